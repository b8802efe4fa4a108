# SPDX-License-Identifier: GPL-2.0
"""Letters of ranks of one node, each a process: from one to one, by tags."""

import asyncio
import errno
import gc
import os
import signal
import weakref

import numpy as np
import pytest

import towline
from conftest import WAIT_S, Child
from test_calls import awaited, blamed_of
from test_ranks import RANKS, Me, given, together

SIZES = (0, 1, 504, 4096, 4097, 200003)


def around(me):
    """The next rank, and the one before."""
    return (me.rank + 1) % RANKS, (me.rank - 1) % RANKS


def told(work):
    """What is known of one that has ended."""
    return work.source, work.tag, work.nbytes


def check_sizes(me):
    """In the arena and not; whoever asks first; of less than there is room for."""
    after, before = around(me)
    for number, size in enumerate(SIZES * 4):
        make = me.arena.array if number // len(SIZES) % 2 else np.array
        array, out = make(given(me.rank, size, "f4")), make(np.zeros(size + 3, "f4"))
        late = number >= 2 * len(SIZES)
        if late:
            sent = me.comm.isend(array, after, number)
        work = me.comm.irecv(out, before if number % 2 else None, number if number % 3 else None)
        if not late:
            assert told(work) == (None, None, None)
            me.group.barrier()
            sent = me.comm.isend(array, after, number)
        assert work.wait(WAIT_S) is out and told(work) == (before, number, 4 * size)
        assert sent.wait(WAIT_S) is None and told(sent) == (after, number, 4 * size)
        assert np.array_equal(out[:size], given(before, size, "f4")) and not out[size:].any()
        me.group.barrier()


def check_tags(me):
    """What was sent before is received later, among other calls; and in an event loop."""
    after, before = around(me)
    works = [me.comm.isend(np.array(number), after, number) for number in range(200)]
    assert me.comm.iallreduce(np.ones(3)).wait(WAIT_S)[0] == RANKS
    for number in range(199, -1, -1):
        out = np.array(-1)
        assert me.comm.irecv(out, before, number).wait(WAIT_S)[()] == number
    for work in works:
        work.wait(WAIT_S)
    sent = me.comm.isend(given(me.rank, 100003, "i8"), me.rank, 1)
    out = np.zeros(100003, "i8")
    assert asyncio.run(awaited(me.comm.irecv(out, me.rank))) is out and sent.done
    assert np.array_equal(out, given(me.rank, 100003, "i8"))


def check_refused(me):
    """What cannot be done is said at once; what is too long, or late, when it ends."""
    array, frozen = np.ones((4, 4), "f4"), np.ones(8)
    after, before = around(me)
    frozen.flags.writeable = False
    for call in (lambda: me.comm.isend([1, 2], 0), lambda: me.comm.irecv(None)):
        with pytest.raises(TypeError):
            call()
    for call in (lambda: me.comm.isend(array[:, 1], 0), lambda: me.comm.irecv(array.T),
                 lambda: me.comm.irecv(frozen), lambda: me.comm.isend(array, 0, timeout=-1)):
        with pytest.raises(ValueError):
            call()
    for call in (lambda: me.comm.isend(array, RANKS), lambda: me.comm.irecv(array, RANKS),
                 lambda: me.comm.isend(array, 0, 0xffffffff)):
        with pytest.raises(towline.Error) as caught:
            call()
        assert blamed_of(caught) == (errno.EINVAL, None)
    with pytest.raises(towline.Timeout) as caught:
        me.comm.irecv(array, before, 5, timeout=0.2).wait()
    assert caught.value.blamed == before
    for large in (False, True):
        array = np.ones(100000 if large else 10)
        sent = me.comm.isend(array, after)
        work = me.comm.irecv(array[1:], before)
        with pytest.raises(towline.Error) as caught:
            work.wait(WAIT_S)
        assert blamed_of(caught) == (errno.EMSGSIZE, before)
        assert told(work) == (before, 0, array.nbytes)
        if large:
            with pytest.raises(towline.Error) as caught:
                sent.wait(WAIT_S)
            assert blamed_of(caught) == (errno.EMSGSIZE, after)
        else:
            sent.wait(WAIT_S)
    me.group.barrier()


def check_forgotten(me):
    """Works that are dropped go on; one that nobody takes keeps no other's array."""
    after, before = around(me)
    out, array = np.zeros(100003), np.zeros(100003)
    me.comm.irecv(out, before, 8)
    gone = weakref.ref(array)
    me.comm.isend(array, after, 9)
    me.comm.irecv(np.zeros(100003), before, 9).wait(WAIT_S)
    del array
    gc.collect()
    for _ in range(5):
        me.comm.ibarrier().wait(WAIT_S)
    assert gone() is None
    me.comm.isend(np.ones(100003), after, 8)
    me.comm.close()
    assert out.all()


def check_child(me):
    """A child has no part in it."""
    array = np.ones(10)
    work = me.comm.irecv(array, me.rank)

    def child():
        for use in (lambda: work.done, lambda: me.comm.isend(array, 0),
                    lambda: me.comm.irecv(array)):
            with pytest.raises(towline.Error) as caught:
                use()
            assert caught.value.errno == errno.EPERM
        me.comm.close()

    assert Child(child).wait() == 0
    me.comm.isend(np.full(10, 5.0), me.rank).wait(WAIT_S)
    assert (work.wait() == 5).all()


def take_part(rank):
    """One rank, through all of it."""
    me = Me(rank, "letters")
    for check in (check_sizes, check_tags, check_refused, check_child, check_forgotten):
        check(me)
    me.close()


def test_letters(children):
    """All that goes well, and what disturbs nothing."""
    assert together(children, take_part) == [0] * RANKS


def leave(rank):
    """Rank 1 leaves, and others' letters come."""
    me = Me(rank, "leaves")
    array = np.ones(10)
    if rank == 1:
        me.comm.ibarrier().wait(WAIT_S)
        me.close()
        return
    work = me.comm.irecv(array, 1)
    me.comm.ibarrier().wait(WAIT_S)
    with pytest.raises(towline.Error) as caught:
        work.wait(WAIT_S)
    assert blamed_of(caught) == (errno.ESTALE, 1)
    me.comm.isend(array, 2 - rank).wait(WAIT_S)
    me.comm.irecv(array, 2 - rank).wait(WAIT_S)
    me.close()


def test_one_leaves(children):
    """Who waits for it is told."""
    assert together(children, leave) == [0] * RANKS


def die(rank):
    """Rank 1 is killed."""
    me = Me(rank, "dies")
    me.comm.ibarrier().wait(WAIT_S)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(towline.Error) as caught:
        me.comm.irecv(np.ones(10), 1 if rank else None).wait(WAIT_S)
    assert blamed_of(caught) == (errno.ESTALE, 1)
    me.close()


def test_one_dies(children):
    """So are all, of whomever they wait for."""
    assert together(children, die) == [0, -signal.SIGKILL, 0]
