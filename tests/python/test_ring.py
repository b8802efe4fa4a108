# SPDX-License-Identifier: GPL-2.0
"""Queues: what is read, written and counted at a peer, which is this node."""

import asyncio
import contextlib
import errno
import gc
import os
import platform
import select
import signal
import sys
import threading

import numpy as np
import pytest

import towline
from conftest import MIB, WAIT_S, Child, becomes, own_address, used_bytes

RIGHT = towline.Right
ALL = RIGHT.READ | RIGHT.WRITE | RIGHT.ATOMIC
# 6.1's soft-RoCE has done all before the call returns.
AT_ONCE = platform.release().startswith("6.1.")


class Both:
    """A region here, another one that a peer exports, a queue and a way between them."""

    def __init__(self, dev, peer, entries=64, rights=ALL, name="both"):
        with contextlib.ExitStack() as stack:
            made = stack.enter_context
            self.here, self.there = (made(towline.Region(dev, MIB)) for _ in range(2))
            self.export = made(towline.Export(self.there, name, ALL))
            self.remote = made(towline.Remote(peer, name, rights))
            self.queue = made(towline.Queue(dev, entries))
            self.way = self.queue.transfer(self.here, self.remote)
            self.stack = stack.pop_all()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.way = None
        self.stack.__exit__(*error)


@pytest.fixture(name="both")
def _both(dev, peer):
    with Both(dev, peer) as made:
        yield made


def numbers(region, count=1000):
    """The first ones of a region."""
    return region.array(count, "i8")


def error_of(request):
    """What it ends with."""
    error = request.exception(WAIT_S)
    return error.errno if error else 0


def test_write_and_read(both):
    """There and back."""
    numbers(both.here)[:] = np.arange(1000)
    request = both.way.write(0, 4096, 8000)
    assert request.result(WAIT_S) is None and request.done() and request.exception() is None
    assert both.there.array(1000, "i8", 4096).tolist() == list(range(1000))
    both.way.read(65536, 4096, 4000, 10.0).result()
    assert both.here.array(500, "i8", 65536).tolist() == list(range(500))
    both.way.write(0, np.int64(8), np.uint8(16)).result()
    assert numbers(both.there)[1:3].tolist() == [0, 1]
    both.way.write(0, 0, 0).result()
    assert both.queue.in_flight == 0


def test_atomics(both):
    """What was there comes back."""
    numbers(both.there)[3] = 40
    both.way.fetch_add(0, 24, 2).result()
    assert numbers(both.here)[0] == 40 and numbers(both.there)[3] == 42
    both.way.compare_swap(8, 24, 42, 7).result()
    both.way.compare_swap(16, 24, 42, 8).result()
    assert numbers(both.here)[1:3].tolist() == [42, 7] and numbers(both.there)[3] == 7


def test_blocks(both):
    """Many at random places, more than one entry has, of one size and of many."""
    values = np.random.default_rng(1)
    count, size = 5000, 64
    both.here.array(count * 8, "i8")[:] = np.arange(count * 8)
    mine, theirs = (values.permutation(count) * size for _ in range(2))
    request = both.way.write_blocks(mine, theirs, size)
    request.result(WAIT_S)
    want = np.zeros((count, 8), "i8")
    want[theirs // size] = np.arange(count * 8).reshape(count, 8)[mine // size]
    assert np.array_equal(both.there.array((count, 8), "i8"), want)
    both.here.array(count * 8, "i8")[:] = 0
    sizes = values.integers(1, size + 1, count)
    both.way.read_blocks(mine, theirs, sizes, 60).result(WAIT_S)
    back = both.here.array((count, size), "u1")
    assert all((back[at, :n] == row[:n]).all() and not back[at, n:].any() for at, row, n in
               zip(mine // size, want.view("u1")[theirs // size], sizes))
    assert both.queue.in_flight == 0


def test_refused(both, dev, peer):
    """What is asked wrongly is said at once; what the kernel refuses its request ends with."""
    way, some = both.way, np.arange(4)
    for call, error in ((lambda: way.write(0, 0), TypeError), (lambda: way.write(0, 0, 8, 1, 1), TypeError),
                        (lambda: way.write(-1, 0, 8), OverflowError), (lambda: way.write("a", 0, 8), TypeError),
                        (lambda: way.write(0, 0, 8, -1), ValueError),
                        (lambda: way.write_blocks(some, some), TypeError),
                        (lambda: way.write_blocks(some, some[:3], 8), ValueError),
                        (lambda: way.write_blocks(some, some, some[:3]), ValueError),
                        (lambda: way.write_blocks(some[:0], some[:0], 8), ValueError),
                        (lambda: way.write_blocks(some.astype("f8"), some, 8), TypeError),
                        (lambda: way.write_blocks(some.astype("i4"), some, 8), TypeError),
                        (lambda: way.write_blocks(some[::2], some[::2], 8), (BufferError, ValueError)),
                        (lambda: way.write_blocks([1], [2], 8), TypeError)):
        with pytest.raises(error):
            call()
    assert both.queue.in_flight == 0
    for request in (way.write(MIB * 2 - 4, 0, 8), way.write(0, MIB * 2 - 4, 8),
                    way.write_blocks(some * 8, some + 2 * MIB, 8)):
        assert error_of(request) == errno.ERANGE
        with pytest.raises(towline.Error):
            request.result()
    with towline.Remote(peer, "both", RIGHT.READ) as remote:
        assert error_of(both.queue.transfer(both.here, remote).write(0, 0, 8)) == errno.EACCES
    with towline.Queue(dev, 1) as small:
        with pytest.raises(ValueError, match="more than"):
            small.transfer(both.here, both.remote).write_blocks(np.arange(5000), np.arange(5000), 8)
    both.way.write_blocks(some * 8, some * 8, np.int64(8)).result()
    with towline.Device() as other, towline.Region(other, MIB) as theirs:
        with pytest.raises(ValueError, match="another device"):
            both.queue.transfer(theirs, both.remote)
    both.export.close()
    assert error_of(way.write(0, 0, 8)) == errno.ESTALE


def test_full(dev, peer):
    """More than fit are refused, and those that were begun end."""
    with Both(dev, peer, entries=4) as both:
        begun = refused = 0
        requests = []
        while not refused and begun < 200:
            try:
                requests.append(both.way.write(0, 0, MIB // 2))
                begun += 1
            except towline.Error as error:
                assert error.errno == errno.EBUSY
                refused += 1
        assert (refused and begun >= 4) or AT_ONCE
        assert both.queue.in_flight <= 4
        assert [error_of(one) for one in requests] == [0] * begun
        both.way.write(0, 0, 8).result()


def test_callbacks(both):
    """In their order, when it has ended, or at once."""
    seen = []
    request = both.way.write(0, 0, 8)
    for number in range(3):
        request.add_done_callback(lambda one, number=number: seen.append((one is request, number)))
    request.result(WAIT_S)
    request.add_done_callback(lambda _: seen.append("late"))
    assert seen == [(True, 0), (True, 1), (True, 2), "late"]


def test_callback_raises(both):
    """Ctrl-C in a callback is for who waits."""
    def interrupt(_):
        raise KeyboardInterrupt

    request = both.way.write(0, 0, 8)
    request.add_done_callback(interrupt)
    with pytest.raises(KeyboardInterrupt):
        request.result(WAIT_S)
        request.result(WAIT_S)
    assert request.result(WAIT_S) is None


def test_select(both):
    """A queue is a descriptor."""
    request = both.way.write(0, 0, 8)
    assert select.select([both.queue], [], [], WAIT_S)[0] == [both.queue]
    both.queue.progress()
    assert request.done() and not select.select([both.queue], [], [], 0)[0]


def test_asyncio(both):
    """Many at once in one loop, beside others; a task that is cancelled ends nothing."""
    async def main():
        beats = 0

        async def beat():
            nonlocal beats
            while True:
                beats += 1
                await asyncio.sleep(0)

        async def write(number):
            await both.way.write(number * 8, number * 8, 8)
            return number

        beating = asyncio.create_task(beat())
        numbers(both.here)[:] = np.arange(1000)
        for begin in range(0, 1000, 50):
            assert await asyncio.gather(*map(write, range(begin, begin + 50))) == list(
                range(begin, begin + 50))
        request = [both.way.write(0, 0, MIB) for _ in range(10)][-1]
        waiting = asyncio.ensure_future(request)
        await asyncio.sleep(0)
        if not AT_ONCE:
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await request
        with pytest.raises(towline.Error):
            await both.way.write(2 * MIB, 0, 8)
        beating.cancel()
        assert beats

    asyncio.run(main())
    assert numbers(both.there, 1001).tolist() == [*range(1000), 0]


def test_threads(both):
    """By as many as one likes, and each waits for its own."""
    wrong = []

    def work(first):
        try:
            for number in range(first, first + 200):
                both.way.write(number * 8, number * 8, 8).result(WAIT_S)
        except BaseException as error:  # pylint: disable=broad-exception-caught
            wrong.append(error)

    numbers(both.here)[:] = np.arange(1000)
    threads = [threading.Thread(target=work, args=(first,)) for first in range(0, 1000, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and numbers(both.there).tolist() == list(range(1000))


def test_lives(dev, peer):
    """What a way is of stays as long as it; a queue that is closed says so."""
    with Both(dev, peer) as both:
        way, queue = both.way, both.queue
        numbers(both.here)[0] = 5
        both.here.close()
        both.remote.close()
        way.write(0, 0, 8).result(WAIT_S)
        assert numbers(both.there)[0] == 5
        request = way.write(0, 8, 8)
        queue.close()
        assert request.done() and request.exception() is None
        with pytest.raises(ValueError, match="closed"):
            way.write(0, 0, 8)
        with pytest.raises(ValueError, match="closed"):
            queue.progress()
        used = used_bytes()
        del way
        both.way = None
        gc.collect()
        becomes(lambda: used_bytes() == used - 2 * MIB)


def test_nothing_left(both):
    """Requests, their arrays and callbacks are gone with the last reference."""
    def some(count):
        for number in range(count):
            request = both.way.write(0, 8 * number, 8)
            request.add_done_callback(lambda _: None)
            if number % 3:
                request.result(WAIT_S)
        del request
        while both.queue.in_flight:
            both.queue.progress(1)
        gc.collect()

    some(100)
    before = sys.getallocatedblocks()
    some(2000)
    assert sys.getallocatedblocks() - before < 200


def leave_something():
    """Left by an exception while something is on its way: that is cancelled, and its memory kept."""
    with towline.Device() as dev, towline.Peer(dev, own_address(), 30) as peer:
        requests = []
        with contextlib.suppress(KeyError):
            with Both(dev, peer, name="left") as both:
                for _ in range(20):
                    requests.append(both.way.write(0, 0, MIB))
                raise KeyError
        assert {error_of(one) for one in requests} <= {0, errno.ECANCELED}
        assert requests[-1].done()


def use_parents(both, request):
    """Everything is the parent's."""
    for call in (lambda: both.way.write(0, 0, 8), lambda: both.queue.transfer(both.here, both.remote),
                 both.queue.progress):
        with pytest.raises(towline.Error) as caught:
            call()
        assert caught.value.errno == errno.EPERM
    with pytest.raises(towline.Error) as caught:
        request.result()
    assert caught.value.errno == errno.EPERM


def test_left(children):
    """By who is in a hurry."""
    assert children(leave_something).wait() == 0


def test_forked(both):
    """A child is refused, and its parent goes on."""
    request = both.way.write(0, 0, MIB)
    child = Child(use_parents, both, request)
    assert child.wait() == 0
    request.result(WAIT_S)
    both.way.write(0, 0, 8).result(WAIT_S)


def test_interrupted(both):
    """A signal's handler ends a wait with what it raises; the request goes on."""
    def handler(*_):
        raise InterruptedError("by a handler")

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(InterruptedError, match="by a handler"):
            while True:
                both.way.write(0, 0, MIB).result(WAIT_S)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    both.way.write(0, 0, 8).result(WAIT_S)


def test_missing():
    """Without its compiled part a queue says what to do."""
    environment = {**os.environ, "TOWLINE_RING": "/nowhere.so"}
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", (
        "import towline\n"
        "try: towline.Queue(None)\n"
        "except ImportError as error: assert 'make python-ring' in str(error)\n"
        "else: raise SystemExit(1)\n")], environment)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_slot(dev, peer):
    """A peer is told what has come, by one entry and by many blocks, and who waits for it, too."""
    with contextlib.ExitStack() as stack:
        made = stack.enter_context
        here, there, counts = (made(towline.Region(dev, MIB)) for _ in range(3))
        made(towline.Export(there, "data", ALL))
        slot = made(towline.Slot(counts, 8, "slot"))
        remote = made(towline.Remote(peer, "data", RIGHT.WRITE))
        teller = made(towline.Remote(peer, "slot", RIGHT.NOTIFY))
        queue, waiting = (made(towline.Queue(dev, 8)) for _ in range(2))
        way = queue.transfer(here, remote, slot=teller)
        with pytest.raises(ValueError, match="no slot"):
            queue.transfer(here, remote).notify()
        numbers(here)[:] = np.arange(1000)
        third = waiting.wait(slot, 3)
        assert slot.value == 0
        way.write_notify(0, 0, 800).result(WAIT_S)
        assert slot.value == 1 and numbers(there)[99] == 99
        some = np.arange(5000) * 8
        way.write_blocks_notify(some, some, 8).result(WAIT_S)
        becomes(lambda: slot.value == 2)
        assert numbers(there).tolist() == list(range(1000)) and not third.done()
        way.notify(10).result(WAIT_S)
        third.result(WAIT_S)
        assert slot.value == 3
        with pytest.raises(towline.Timeout):
            waiting.wait(slot, 4, 0.05).result(WAIT_S)
        with pytest.raises(towline.Error) as caught:
            towline.Slot(counts, 8 * MIB, "outside")
        assert caught.value.errno == errno.EINVAL
        never = waiting.wait(slot, 5)
        slot.close()
        assert error_of(never) == errno.ESTALE
        del way


def test_many_names(dev, peer):
    """Names of one batch are found, or not, each for itself; in asyncio, too."""
    with towline.Region(dev, MIB) as region, contextlib.ExitStack() as stack:
        for number in range(100):
            stack.enter_context(towline.Export(region, f"n{number}", ALL, number * 8, 8 + number * 8))
        found = dev.resolve([(peer, f"n{number}", RIGHT.READ) for number in range(100)])
        assert [one.result(WAIT_S).nbytes for one in found] == [8 + number * 8 for number in range(100)]
        remote = found[7].result()
        assert (remote.name, remote.peer, remote.rights) == ("n7", peer, RIGHT.READ)
        wrong = dev.resolve([(peer, "n1", RIGHT.NOTIFY), (peer, "none", RIGHT.READ), (peer, "n" * 300, RIGHT.READ),
                             (peer, "n2", RIGHT.READ)], timeout=0)
        assert [error_of(one) for one in wrong] == [errno.EACCES, errno.ENOENT, errno.EINVAL, 0]

        async def main():
            late = asyncio.gather(*dev.resolve([(peer, "late", RIGHT.READ)] * 2))
            nodes = await asyncio.gather(*dev.connect([own_address()] * 3))
            assert {node.report().peer for node in nodes} == {peer.report().peer}
            with pytest.raises(towline.Error):
                await dev.connect(["no address"])[0]
            with towline.Export(region, "late", ALL):
                assert [one.nbytes for one in await late] == [MIB, MIB]
        asyncio.run(main())
        assert dev.resolve([]) == []
        ends = dev.resolve([(peer, "never", RIGHT.READ)] * 3000, timeout=0.1)
        assert {error_of(one) for one in ends} == {errno.ETIMEDOUT}
        pending = dev.resolve([(peer, "never", RIGHT.READ)], timeout=None)[0]
    dev.close()
    assert pending.done() and error_of(pending) == errno.ECANCELED


def test_events(both):
    """Of a peer that stays there is nothing to tell."""
    both.way.write(0, 0, 8).result(WAIT_S)
    assert both.queue.events() == []
