# SPDX-License-Identifier: GPL-2.0
"""Calls of ranks of one node, each a process: any arrays, at any time."""

import asyncio
import errno
import gc
import os
import signal
import threading
import time
import weakref

import numpy as np
import pytest

import towline
from conftest import WAIT_S, Child
from test_ranks import PROGRAM, RANKS, TOLD_S, Me, given, launch, together, wanted

REDUCED = ("f2", "f4", "f8", "i1", "i4", "i8", "u1", "?")
SHAPES = ((), (1,), (0,), (0, 3), (7, 3, 5), (1003,), (200003,))
BITS = ("band", "bor", "bxor")


def blamed_of(error):
    """What is told of a failure."""
    return error.value.errno, error.value.blamed


def shaped(values, shape):
    """As many of them as that has."""
    return values[:int(np.prod(shape))].reshape(shape)


def check_types(me):
    """All elements, reductions and algorithms, in the arena and not."""
    for dtype in REDUCED:
        for op in ("sum", "product", "min", "max", *(BITS if dtype[0] not in "f" else ()),
                   *(["avg"] if dtype != "?" else ())):
            for algorithm in ("ring", "direct", "tree", "any"):
                array = given(me.rank, 103, dtype)
                if algorithm != "direct":
                    array = me.arena.array(array)
                assert me.comm.iallreduce(array, op=op, algorithm=algorithm).wait() is array
                assert np.array_equal(array, wanted(103, dtype, op)), (dtype, op, algorithm)
    bits = given(me.rank, 11, "f4").view("u4") >> 16
    short = bits.astype("u2").view(towline.bfloat16)
    me.comm.iallreduce(short).wait()
    assert np.array_equal(short.view("u2"), wanted(11, "f4").view("u4") >> 16)


def check_shapes(me):
    """Of no dimension, of no element, and larger than any message."""
    for shape in SHAPES:
        for make in (np.array, me.arena.array):
            mine = make(shaped(given(me.rank, 200003, "f4"), shape))
            total = shaped(wanted(200003, "f4"), shape)
            out = np.zeros(shape, "f4")
            assert me.comm.iallreduce(mine, out).wait() is out and np.array_equal(out, total)
            assert np.array_equal(mine, shaped(given(me.rank, 200003, "f4"), shape))
            every = me.comm.iallgather(mine).wait()
            assert every in me.arena and every.shape == (RANKS, *shape)
            assert all(np.array_equal(every[rank], shaped(given(rank, 200003, "f4"), shape))
                       for rank in range(RANKS))
            part = me.comm.ireduce_scatter(every).wait()
            assert part in me.arena and part.shape == (mine.size,)
            assert np.array_equal(part, RANKS * every[me.rank].reshape(-1))
            found = me.comm.ireduce(mine, out, op="max", root=1).wait()
            assert (found is out) == (me.rank == 1)
            assert np.array_equal(out, shaped(wanted(200003, "f4", "max"), shape)
                                  if me.rank == 1 else total)
            assert me.comm.ibroadcast(mine, root=2).wait() is mine
            assert np.array_equal(mine, shaped(given(2, 200003, "f4"), shape))
            assert (me.comm.ireduce(mine).wait() is mine) == (me.rank == 0)
            assert np.array_equal(mine, (1 if me.rank else RANKS) *
                                  shaped(given(2, 200003, "f4"), shape))


def check_others(me):
    """Other algorithms, elements and places of what is not reduced to all."""
    for algorithm in ("ring", "direct"):
        every = np.zeros((RANKS, 301), "c16")
        every[me.rank] = me.rank + 1j
        assert me.comm.iallgather(every[me.rank], every, algorithm=algorithm).wait() is every
        assert all((every[rank] == rank + 1j).all() for rank in range(RANKS))
        values = given(me.rank, RANKS * 50, "i4")
        part = values[me.rank * 50:(me.rank + 1) * 50]
        me.comm.ireduce_scatter(values, part, "min", algorithm).wait()
        assert np.array_equal(part, wanted(RANKS * 50, "i4", "min").reshape(RANKS, 50)[me.rank])
    for algorithm in ("ring", "tree"):
        text = np.array([b"from the root" if me.rank == 1 else b""], "S20")
        text.flags.writeable = me.rank != 1
        me.comm.ibroadcast(text, 1, algorithm).wait()
        assert text[0] == b"from the root"
    assert me.comm.ibarrier().wait() is None


def check_plans(me):
    """How calls are done: as rank 0's communicator says, or the call; letters and barriers have none."""
    array = np.ones(1003, "f4")
    for how, of_sums, of_others in (({}, "direct", "tree"),
                                    ({"direct_ranks": 1}, "tree", "tree"),
                                    ({"direct_bytes": 4000, "tree_bytes": 4000}, "ring", "ring")):
        with towline.Comm(me.group, me.arena, WAIT_S,
                          **(how if me.rank == 0 else {"tree_bytes": 8})) as comm:
            work = comm.iallreduce(array)
            assert work.algorithm is None and work.piece_bytes is None
            work.wait()
            assert work.algorithm == of_sums and work.piece_bytes in range(64, 8192, 64)
            sent = comm.ibroadcast(array)
            sent.wait()
            assert sent.algorithm == of_others and sent.source is None
            asked = comm.iallreduce(array, algorithm="tree")
            barrier = comm.ibarrier()
            asked.wait()
            barrier.wait()
            assert asked.algorithm == "tree"
            assert barrier.algorithm is None and barrier.piece_bytes is None
    letter = me.comm.isend(array, me.rank)
    me.comm.irecv(np.empty(1003, "f4"), me.rank).wait()
    letter.wait()
    assert letter.algorithm is None and letter.piece_bytes is None


def check_split(me):
    """Of some ranks, in another order, beside the one that they are of; and its end."""
    pair = [2, 0]
    if me.rank in pair:
        with me.comm.split(pair, tag=5) as comm:
            assert (comm.rank, comm.size) == (pair.index(me.rank), 2)
            every = comm.iallgather(np.array([me.rank])).wait()
            assert every.ravel().tolist() == pair
            with pytest.raises(towline.Error) as caught:
                me.comm.split(pair, tag=5)
            assert caught.value.errno == errno.EEXIST
    for bad in ([me.rank, me.rank], [(me.rank + 1) % RANKS], [me.rank, RANKS], []):
        with pytest.raises(towline.Error) as caught:
            me.comm.split(bad)
        assert caught.value.errno == errno.EINVAL
    assert me.comm.split([me.rank]).iallreduce(np.ones(3)).wait().sum() == 3


def check_together(me):
    """Many small ones begin together, also within another one's."""
    arrays = [given(me.rank, 11, "i4") for _ in range(40)]
    with me.comm.together():
        works = [me.comm.iallreduce(array) for array in arrays[:20]]
        with me.comm.together():
            works += [me.comm.iallreduce(array) for array in arrays[20:]]
        with pytest.raises(ValueError, match="together"):
            me.comm.close()
        assert not any(work.done for work in works)
    assert all(np.array_equal(work.wait(), wanted(11, "i4")) for work in works)
    waited = me.comm.waited()
    assert len(waited) == RANKS and sum(waited) > 0 and me.comm.error is None


def check_refused(me):
    """What cannot be done is said at once, and others hear nothing of it."""
    array, square = np.ones(8, "f4"), np.ones((4, 4), "f4")
    frozen = np.ones(8, "f4")
    frozen.flags.writeable = False
    for call in (lambda: me.comm.iallreduce([1, 2]), lambda: me.comm.ireduce(3.0, root=me.rank),
                 lambda: me.comm.iallgather(np.array([None])),
                 lambda: me.comm.iallreduce(array.astype(">f4"))):
        with pytest.raises(TypeError):
            call()
    for call in (lambda: me.comm.iallreduce(square[:, 1]), lambda: me.comm.iallreduce(square.T),
                 lambda: me.comm.iallreduce(array[::-1]), lambda: me.comm.iallreduce(frozen),
                 lambda: me.comm.iallreduce(array, square.T),
                 lambda: me.comm.iallreduce(array, np.ones(8)),
                 lambda: me.comm.iallreduce(array, np.ones((2, 4), "f4")),
                 lambda: me.comm.ibroadcast(frozen, (me.rank + 1) % RANKS),
                 lambda: me.comm.ireduce(square[:, 1]),
                 lambda: me.comm.ireduce_scatter(array), lambda: me.comm.iallgather(array, array),
                 lambda: me.comm.iallreduce(array, timeout=-1)):
        with pytest.raises(ValueError):
            call()
    memory = np.ones(9, "f4")
    for number, call in ((errno.EINVAL, lambda: me.comm.iallreduce(memory[:-1], memory[1:])),
                         (errno.EINVAL, lambda: me.comm.ibroadcast(array, RANKS)),
                         (errno.EOPNOTSUPP, lambda: me.comm.iallreduce(np.ones(3, "u2"))),
                         (errno.EOPNOTSUPP, lambda: me.comm.iallgather(array, algorithm="tree")),
                         (errno.EOPNOTSUPP, lambda: me.comm.iallreduce(array, op="band"))):
        with pytest.raises(towline.Error) as caught:
            call()
        assert blamed_of(caught) == (number, None)
    with pytest.raises(KeyError):
        me.comm.iallreduce(array, algorithm="hope")
    assert (me.comm.iallreduce(frozen, array).wait() == RANKS).all()


def check_forgotten(me):
    """Works that are dropped at once go on with their arrays, which are let go of in the end."""
    results, gone = [], []
    for count in (1, 1003, 200003):
        for make in (np.array, me.arena.array):
            array, out = make(given(me.rank, count, "f4")), np.zeros(count, "f4")
            work = me.comm.iallreduce(array, out)
            results.append(out)
            gone.append(weakref.ref(array))
            del array, work
            gc.collect()
    assert any(one() is not None for one in gone)
    me.comm.ibarrier().wait()
    # It may have passed them.
    me.comm._calls.finish(me.comm._handle)
    assert all(np.array_equal(out, wanted(out.size, "f4")) for out in results)
    me.comm.ibarrier().wait()
    assert [one() for one in gone] == [None] * len(gone)


def check_many(me):
    """A hundred on their way, asked for in another order."""
    arrays = [me.arena.empty(count, "f4") if count % 2 else np.empty(count, "f4")
              for count in range(0, 100000, 1000)]
    for array in arrays:
        array[:] = given(me.rank, array.size, "f4")
    before = me.comm.stats().calls
    works = [me.comm.iallreduce(array) for array in arrays]
    for work in works[::-1] if me.rank else works:
        assert work.wait(WAIT_S) is work.out and work.done
    assert all(np.array_equal(array, wanted(array.size, "f4")) for array in arrays)
    stats = me.comm.stats()
    assert stats.calls == before + 100
    assert stats.sent_bytes > stats.eager_bytes > 0 and stats.staged_bytes > 0


def check_threads(me):
    """Who begins is one thread; who waits are many, some for the same work."""
    arrays = [given(me.rank, 30000, "f8") for _ in range(6)]
    works = [me.comm.iallreduce(array) for array in arrays]
    found = []
    threads = [threading.Thread(target=lambda one=one: found.append(one.wait() is one.out))
               for one in works + works[::-1]]
    for thread in threads:
        thread.start()
    assert me.comm.ibarrier().wait() is None
    for thread in threads:
        thread.join()
    assert found == [True] * 12
    assert all(np.array_equal(array, wanted(30000, "f8")) for array in arrays)


def check_loop(me):
    """Twenty in an event loop; a task that is cancelled leaves its work alone."""
    arrays = [given(me.rank, 5000, "f4") for _ in range(20)]

    async def main():
        works = [me.comm.iallreduce(array) for array in arrays]
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(hold(works[-1]), 0)
        return await asyncio.gather(*(works[::-1] if me.rank else works))

    async def hold(work):
        return await work

    outs = asyncio.run(main())
    assert all(out is array for out, array in zip(outs, arrays[::-1] if me.rank else arrays))
    assert all(np.array_equal(array, wanted(5000, "f4")) for array in arrays)


def check_mismatch(me):
    """Who makes another call is named at all ranks, and what follows is good."""
    for other, large in ((1, 10), (2, 100000)):
        array = np.ones(large + (me.rank == other), "f4")
        work = me.comm.iallreduce(array)
        behind = me.comm.iallreduce(given(me.rank, 100, "f4"))
        with pytest.raises(towline.Error) as caught:
            work.wait(WAIT_S)
        assert blamed_of(caught) == (errno.EPROTO, other) and "iallreduce" in str(caught.value)
        assert work.done
        with pytest.raises(towline.Error) as caught:
            asyncio.run(awaited(work))
        assert blamed_of(caught) == (errno.EPROTO, other)
        assert np.array_equal(behind.wait(), wanted(100, "f4"))
    me.comm.ibarrier().wait()


async def awaited(work):
    """As a coroutine."""
    return await work


def check_late(me):
    """Rank 0 begins late; the others' waits end before, by time and by Ctrl-C."""
    array = np.full(10, me.rank + 1.0)
    if me.rank == 0:
        me.group.barrier()
        work = me.comm.iallreduce(array)
    else:
        work = me.comm.iallreduce(array)
        assert not work.done
        with pytest.raises(towline.Timeout) as caught:
            work.wait(0.1)
        assert caught.value.blamed is None
        timer = threading.Timer(0.3, signal.pthread_kill,
                                (threading.main_thread().ident, signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            work.wait()
        timer.join()
        me.group.barrier()
    work.wait(WAIT_S)
    assert (array == RANKS * (RANKS + 1) / 2).all()


def check_both(me):
    """Calls and collectives of one communicator."""
    array = me.arena.array(given(me.rank, 1000, "f4"))
    works = [me.comm.iallreduce(given(me.rank, 500, "f4")) for _ in range(50)]
    for work in works:
        assert np.array_equal(work.wait(WAIT_S), wanted(500, "f4"))
    with me.comm.allreduce(array) as reduce:
        reduce.start()
        other = me.comm.iallreduce(given(me.rank, 1000, "f4"))
        assert np.array_equal(reduce.wait(WAIT_S), other.wait(WAIT_S))
        assert np.array_equal(array, wanted(1000, "f4"))


def check_child(me):
    """A child has no part in it."""
    array = np.ones(10)
    work = me.comm.iallreduce(array)
    ended = me.comm.ibarrier()
    ended.wait()

    def child():
        for use in (lambda: work.done, work.wait, me.comm.ibarrier, me.comm.stats, me.comm.abort):
            with pytest.raises(towline.Error) as caught:
                use()
            assert caught.value.errno == errno.EPERM
        ended.wait()
        me.comm.close()

    assert Child(child).wait() == 0
    assert (work.wait() == RANKS).all()


def check_ends(me):
    """Closing waits for what is on its way, whether anybody has its work or not."""
    arrays = [me.arena.array(given(me.rank, 100003, "f4")) for _ in range(3)]
    work = me.comm.iallreduce(arrays[0])
    for array in arrays[1:]:
        me.comm.iallreduce(array)
    if me.rank == 1:
        time.sleep(0.5)
    me.comm.close()
    assert all(np.array_equal(array, wanted(100003, "f4")) for array in arrays)
    assert work.done and work.wait() is arrays[0]
    for use in (me.comm.ibarrier, me.comm.stats, me.comm.abort):
        with pytest.raises(ValueError, match="closed"):
            use()


def take_part(rank):
    """One rank, through all of it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    me = Me(rank, "calls")
    for check in (check_types, check_shapes, check_others, check_plans, check_split,
                  check_together, check_refused, check_forgotten, check_many, check_threads,
                  check_loop, check_mismatch, check_late, check_both, check_child, check_ends):
        start = time.monotonic()
        check(me)
        if not rank:
            print(f"{check.__name__}: {time.monotonic() - start:.1f} s")
    me.close()


def test_calls(children):
    """All that goes well, and what disturbs nothing."""
    assert together(children, take_part) == [0] * RANKS


def fail(rank, how, number, culprit):
    """The communicator fails: all ranks' calls end so, those that wait and those that follow."""
    me = Me(rank, how.__name__)
    array, start = np.ones(200003, "f4"), time.monotonic()
    gone = weakref.ref(array)
    me.comm.iallreduce(array).wait()
    me.comm.ibarrier().wait()
    work = how(me, array)
    del array
    with pytest.raises(towline.Error) as caught:
        work.wait()
    assert blamed_of(caught) == (number, culprit)
    del work, caught
    for _ in range(2):
        with pytest.raises(towline.Error) as caught:
            me.comm.iallreduce(np.ones(3)).wait()
        assert blamed_of(caught) == (number, culprit)
    assert (me.comm.error.errno, me.comm.error.blamed) == (number, culprit)
    assert time.monotonic() - start < TOLD_S
    # Others may write to it until the communicator ends.
    gc.collect()
    assert gone() is not None
    me.close()
    gc.collect()
    assert gone() is None


def die(me, array):
    """Rank 1 is killed."""
    if me.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return me.comm.iallreduce(array)


def test_one_dies(children):
    """Whoever is left is told who."""
    assert together(children, fail, die, errno.ESTALE, 1) == [0, -signal.SIGKILL, 0]


def abort(rank):
    """All are told who has given up."""
    me = Me(rank, "abort")
    if rank == 2:
        me.group.barrier()
        threading.Timer(0.3, me.comm.abort).start()
        time.sleep(0.6)
        works = []
    else:
        works = [me.comm.iallreduce(np.ones(count, "f4")) for count in (10, 100000)]
        me.group.barrier()
    for work in works:
        with pytest.raises(towline.Error) as caught:
            work.wait()
        assert blamed_of(caught) == (errno.ECANCELED, 2)
    with pytest.raises(towline.Error) as caught:
        me.comm.ibarrier().wait()
    assert caught.value.errno == errno.ECANCELED and caught.value.blamed in (2, None)
    me.close()


def test_abort(children):
    """While others wait."""
    assert together(children, abort) == [0] * RANKS


def miss(me, array):
    """Rank 1 does not come, and is blamed after that call's own time."""
    if me.rank == 1:
        me.group.barrier()
    work = me.comm.iallreduce(array, timeout=1)
    if me.rank != 1:
        with pytest.raises(towline.Timeout) as caught:
            work.wait()
        assert caught.value.blamed == 1
        me.group.barrier()
    return work


def test_one_is_late(children):
    """A call has a time of its own."""
    assert together(children, fail, miss, errno.ETIMEDOUT, 1) == [0] * RANKS


def stumble(rank):
    """Rank 0 leaves its block by an exception, and others do not wait for it."""
    me = Me(rank, "stumble")
    start = time.monotonic()
    with pytest.raises(KeyError if rank == 0 else towline.Error) as caught:
        with me.comm as comm:
            work = comm.iallreduce(np.ones(100003))
            if rank == 0:
                raise KeyError("no such file")
            work.wait()
    assert rank == 0 or blamed_of(caught) == (errno.ECANCELED, 0)
    assert me.comm.closed and time.monotonic() - start < TOLD_S
    me.close()


def test_exception(children):
    """Nobody waits where something was raised."""
    assert together(children, stumble) == [0] * RANKS


def leave(rank):
    """Ranks 1 and 2 forget their communicator before rank 0 has begun what they have."""
    me = Me(rank, "leave")
    if rank:
        me.comm.iallreduce(me.arena.zeros(100003, "f4"))
        comm = weakref.ref(me.comm)
        del me.comm
        gc.collect()
        assert comm() is None
        me.group.barrier()
        return
    me.group.barrier()
    with pytest.raises(towline.Error) as caught:
        me.comm.iallreduce(me.arena.zeros(100003, "f4")).wait()
    assert caught.value.errno == errno.ECANCELED and caught.value.blamed in (1, 2)
    me.close()


def test_forgotten_communicator(children):
    """The collector ends it, and waits for nothing."""
    assert together(children, leave) == [0] * RANKS


def test_forgetful_program(children, tmp_path, monkeypatch):
    """One that ends has no more to say, whatever it has not waited for."""
    program = PROGRAM.replace("print(comm.allreduce(numpy.full(3, world.rank + 1.0))()[0])", """
    work = comm.iallreduce(numpy.ones(100003))
    comm.ibarrier()
    group.barrier()
    print("over")
""")
    assert "over" in program
    monkeypatch.setenv("TOW_TEST_SAID", str(tmp_path))
    started = [children(launch, rank, program) for rank in range(2)]
    assert [child.wait() for child in started] == [0, 0]
    assert [(tmp_path / str(rank)).read_text() for rank in range(2)] == ["over\n"] * 2
