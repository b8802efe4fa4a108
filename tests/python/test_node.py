# SPDX-License-Identifier: GPL-2.0
"""The Python package against the module: memory, edges, the tracer, NumPy's allocator."""

import array as array_module
import asyncio
import contextlib
import contextvars
import errno
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest

import towline
from conftest import MIB, WAIT_S, Child, Only, becomes, own_address, used_bytes
from towline import _numpy

SHAPE = (10, 100)


def filled(arena, step, shape=SHAPE, dtype="f4"):
    """An array that is not the same for any two steps."""
    array = arena.empty(shape, dtype)
    array[...] = np.arange(array.size).reshape(shape) % 13 + step
    return array


def holds(array, step, shape=SHAPE, dtype="f4"):
    """Is that one of that step?"""
    return array.shape == shape and array.dtype == dtype and np.array_equal(
        array, (np.arange(array.size).reshape(shape) % 13 + step).astype(dtype))


# ---- memory ----

def test_arrays(arena):
    """Of all types and shapes, aligned, in the arena; others are not."""
    for shape, dtype in (((3, 4), "f4"), (7, "i8"), ((), "f8"), ((5, 0), "u1"), (3, "S5"),
                         (4, towline.bfloat16), ((2, 3), [("a", "i4"), ("b", "f8")])):
        array = arena.empty(shape, dtype)
        assert array in arena and array.ctypes.data % 64 == 0
        assert array.dtype == np.dtype(dtype) and array.flags.c_contiguous
        assert array.flags.writeable and array.shape == np.empty(shape, dtype).shape
    assert not arena.zeros((100, 3)).any() and arena.zeros(3).dtype == np.float64
    copy = arena.array([[1, 2], [3, 4]])
    assert copy in arena and copy.tolist() == [[1, 2], [3, 4]]
    assert np.zeros(3) not in arena and "no array" not in arena
    with pytest.raises(TypeError):
        arena.empty(3, "O")


def test_lifetime(dev, arena):
    """Memory is freed with the last view; an arena that is closed stays for those that live."""
    before = arena.stats().in_use_bytes
    array = arena.zeros(MIB, "u1")
    view = array[10:20].view("u2")[::2]
    del array
    assert arena.stats().in_use_bytes >= before + MIB
    view[0] = 5
    del view
    assert arena.stats().in_use_bytes == before
    other = towline.Arena(dev, region_bytes=2 * MIB)
    array = other.array(np.arange(1000))
    used = used_bytes()
    other.close()
    other.close()
    with pytest.raises(ValueError, match="closed"):
        other.empty(3)
    gc.collect()
    assert used_bytes() == used and array.sum() == 499500
    del array
    becomes(lambda: used_bytes() == used - 2 * MIB)
    assert arena.trim() == 4 * MIB and arena.stats().regions == 0


def test_adopted(dev):
    """A region that an arena was given stays as long as an array in it."""
    arena, used = towline.Arena(dev, limit_bytes=1), used_bytes()
    region = towline.Region(dev, 8 * MIB)
    with pytest.raises(towline.Error):
        arena.zeros(1000)
    arena.adopt(region)
    with pytest.raises(towline.Error) as caught:
        arena.adopt(region)
    assert caught.value.errno == errno.EBUSY
    array = arena.zeros(1000)
    assert array in arena and len(dev.regions()) == 1
    region.close()
    arena.close()
    array[:] = 1
    assert array.sum() == 1000 and used_bytes() > used
    del array
    gc.collect()
    becomes(lambda: used_bytes() == used)


def test_limits(dev, arena):
    """What is too much says so, and a fallback does not."""
    with towline.Arena(dev, limit_bytes=2 * MIB, region_bytes=2 * MIB) as small:
        with pytest.raises(towline.Error) as caught:
            small.empty(3 * MIB, "u1")
        assert caught.value.errno == errno.EDQUOT and small.stats().failures == 1
    with pytest.raises(towline.Error) as caught:
        arena.empty(200 * MIB, "u1")
    assert caught.value.errno in (errno.ENOSPC, errno.EDQUOT)
    with towline.Arena(dev, fallback=True) as falls:
        array = falls.zeros(200 * MIB, "u1")
        assert array not in falls and falls.stats().fallbacks == 1


def test_written_around(arena):
    """Somebody writes behind an array's end."""
    array = arena.zeros(64, "u1")
    whole = np.ndarray(72, "u1", (np.ctypeslib.ctypes.c_char * 72).from_address(array.ctypes.data))
    whole[64] = 1
    with pytest.warns(RuntimeWarning, match="behind its end"):
        del array
        gc.collect()


def test_region(dev):
    """Parts of it as arrays, which keep it."""
    region = towline.Region(dev, 100000, name="part")
    assert region.nbytes >= 100000
    array = region.array((10, 10), "f8", 4096)
    assert not array.any()
    array[...] = 3
    assert region.array(1, "f8", 4104)[0] == 3
    for offset, shape in ((region.nbytes, 1), (-8, 1), (4, 1), (0, region.nbytes)):
        with pytest.raises(ValueError):
            region.array(shape, "f8", offset)
    region.close()
    assert array.sum() == 300 and used_bytes()
    with pytest.raises(ValueError, match="closed"):
        region.array(1)
    del array
    becomes(lambda: used_bytes() == 0)


def keep_and_die():
    """A process that is killed with a persistent region."""
    dev = towline.Device()
    region = towline.Region(dev, MIB, name="kept", persistent=True, linger=100)
    region.array(1000, "i4")[:] = np.arange(1000)
    os.kill(os.getpid(), signal.SIGKILL)


def test_take_over(children, dev):
    """The next one has what was in it."""
    assert children(keep_and_die).wait() == -signal.SIGKILL
    with towline.Region.attach(dev, "kept") as region:
        assert region.array(1000, "i4").tolist() == list(range(1000))
        with pytest.raises(towline.Error) as caught:
            towline.Region(dev, MIB, name="kept", persistent=True)
        assert caught.value.errno == errno.EEXIST
        region.destroy()
    with pytest.raises(towline.Error) as caught:
        towline.Region.attach(dev, "kept")
    assert caught.value.errno == errno.ENOENT


def test_region_of_memory(dev):
    """Of the process's own: it is kept, and not mapped again."""
    memory = np.arange(5000, dtype="i4")
    with towline.Region.from_memory(dev, memory) as region:
        assert region.nbytes == 20000 and not region.readonly
        region.array(5000, "i4")[7] = 70
        assert memory[7] == 70
        with pytest.raises(towline.Error) as caught:
            region.fd   # pylint: disable=pointless-statement
        assert caught.value.errno == errno.EOPNOTSUPP
        kept = weakref.ref(memory)
        del memory
        gc.collect()
        assert kept() is not None and region.array(5000, "i4")[7] == 70
    gc.collect()
    assert kept() is None
    with towline.Region.from_memory(dev, b"for reading", readonly=True) as region:
        array = region.array(region.nbytes)
        assert region.readonly and array.tobytes() == b"for reading" and not array.flags.writeable
    for bad in (b"read-only", np.zeros((4, 4))[:, 1], bytearray()):
        with pytest.raises(ValueError):
            towline.Region.from_memory(dev, bad)
    with pytest.raises(TypeError):
        towline.Region.from_memory(dev, [1, 2])


def test_region_passed_on(dev, children):
    """By a descriptor, which another process opens; a copy of it is the region's, too."""
    with towline.Region(dev, MIB, name="passed") as region:
        fd = region.fd

        def other():
            with towline.Device() as mine, towline.Region.from_fd(mine, fd) as same:
                same.array(3, "i8")[:] = (1, 2, 3)

        assert children(other).wait() == 0
        assert region.array(3, "i8").tolist() == [1, 2, 3]
        with pytest.raises(towline.Error) as caught:
            towline.Region.from_dmabuf(dev, fd, MIB)
        assert caught.value.errno == errno.EOPNOTSUPP, "this device is software"
        os.close(fd)
        for function in (towline.Region.from_fd, lambda *of: towline.Region.from_dmabuf(*of, 4096)):
            with pytest.raises(towline.Error) as caught:
                function(dev, fd)
            assert caught.value.errno == errno.EBADF
        mine = [one for one in dev.regions() if one.name == "passed"]
        assert len(mine) == 1 and mine[0].bytes == region.nbytes and mine[0].pid == os.getpid()
        assert mine == [one for one in dev.regions(everybody=True) if one.name == "passed"]


def test_export(dev, peer):
    """What was exported is found, with its size and its rights, until it ends."""
    right = towline.Right
    region = towline.Region(dev, MIB)
    export = towline.Export(region, "bläck", right.READ | right.WRITE, 4096, 8192)
    seen = [one for one in dev.exports() if one.name == "bläck"]
    assert len(seen) == 1 and (seen[0].offset, seen[0].bytes, seen[0].rights) == (4096, 8192, 3)
    with towline.Remote(peer, "bläck", right.READ) as remote:
        assert remote.nbytes == 8192 and peer.report().remotes == 1
    with pytest.raises(towline.Error) as caught:
        towline.Remote(peer, "bläck", right.READ | right.ATOMIC | right.WRITE)
    assert caught.value.errno == errno.EACCES
    with pytest.raises(towline.Error) as caught:
        towline.Export(region, "bläck", right.READ)
    assert caught.value.errno == errno.EEXIST
    for begin, nbytes in ((-1, 5), (0, 0), (MIB, None), (1, region.nbytes)):
        with pytest.raises(ValueError):
            towline.Export(region, "bad", right.READ, begin, nbytes)
    region.close()
    assert used_bytes(), "the export keeps it"
    export.close()
    becomes(lambda: not used_bytes())
    with pytest.raises(towline.Error) as caught:
        towline.Remote(peer, "bläck", right.READ, timeout=0)
    assert caught.value.errno == errno.ENOENT
    with pytest.raises(towline.Timeout):
        towline.Remote(peer, "bläck", right.READ, timeout=0.1)


def test_peers(dev, peer):
    """Who is known is found; nobody is connected to for that."""
    with towline.Peer.find(dev, own_address()) as same:
        assert same.report().peer == peer.report().peer
    assert peer.report().peer in [one.peer for one in dev.peers()]
    with pytest.raises(towline.Error) as caught:
        towline.Peer.find(dev, "192.0.2.77")
    assert caught.value.errno == errno.ENOENT


# ---- edges ----

def static(worker, peer, name="edge", shape=SHAPE, dtype="f4", **more):
    """Both ends, connected."""
    rx = worker.static_receiver(peer, name, shape, dtype, **more)
    tx = worker.static_sender(peer, name, shape, dtype)
    tx.connect()
    rx.connect()
    return tx, rx


def dynamic(worker, peer, name="edge"):
    """The same."""
    rx = worker.dynamic_receiver(peer, name, 4)
    tx = worker.dynamic_sender(peer, name)
    tx.connect()
    rx.connect()
    return tx, rx


def test_static(worker, arena, peer):
    """Steps in their order, without a copy, or with one."""
    tx, rx = static(worker, peer)
    assert rx.test() is None and tx.next_step == 1
    for step in (1, 2, 3):
        sent = tx.send(filled(arena, step))
        number, array = rx.recv(WAIT_S)
        assert number == step and holds(array, step) and array in arena
        assert rx.test()[1].ctypes.data == array.ctypes.data
        rx.consumed()
        sent.wait(WAIT_S)
        assert sent.done and sent.step == step and tx.pending == 0
    assert worker.copied == 0
    tx.send(np.ones(SHAPE, "f4"))
    assert rx.recv(WAIT_S)[1].sum() == 1000 and worker.copied == 4000
    for bad in (np.zeros(1000, "f4"), np.zeros(SHAPE), np.zeros((100, 10), "f4").T):
        with pytest.raises(ValueError):
            tx.send(bad)
    with pytest.raises(towline.Error) as caught:
        rx.consumed()
        rx.consumed()
    assert caught.value.errno == errno.EINVAL
    with pytest.raises(towline.Timeout):
        rx.recv(0.05)


def test_arrays_of_others(dev, worker, arena, peer):
    """What is not NumPy's is sent, reduced and received to where it is."""
    tx, rx = dynamic(worker, peer)
    values = np.arange(1000, dtype="f4")
    for sent, dtype in ((memoryview(values), "f4"), (bytearray(values), "u1"), (Only(values), "f4"),
                        (array_module.array("f", values), "f4")):
        tx.send(sent)
        with rx.recv(WAIT_S) as (_, found):
            assert found.dtype == dtype and found.tobytes() == values.tobytes()
    assert worker.copied == 4 * values.nbytes
    inside = arena.empty(SHAPE, towline.bfloat16)
    inside.view("u2")[...] = values.reshape(SHAPE)
    typed = Only(towline.dlpack(inside))
    tx.send(typed)
    with rx.recv(WAIT_S) as (_, found):
        assert found.dtype == towline.bfloat16 and found.tobytes() == inside.tobytes()
    assert typed in arena and memoryview(values) not in arena
    assert worker.copied == 4 * values.nbytes
    copy = arena.array(typed)
    assert copy in arena and copy.dtype == towline.bfloat16 and copy.tobytes() == inside.tobytes()
    with towline.Tracer(arena) as tracer, tracer.step():
        assert tracer.transferred(typed) == towline.ZERO_COPY
    with pytest.raises(TypeError, match="list"):
        tx.send([1.0, 2.0])

    into = bytearray(values.nbytes)
    with towline.Group(dev, towline.World(0, 1, session="alone")) as group, \
            towline.Comm(group, arena) as comm:
        work = comm.irecv(memoryview(into).cast("f"))
        comm.isend(Only(values), 0).wait(WAIT_S)
        assert np.shares_memory(work.wait(WAIT_S), into) and into == values.tobytes()
        doubled = bytearray(values.nbytes)
        out = memoryview(doubled).cast("f")
        assert comm.iallreduce(values * 2, out).wait(WAIT_S).sum() == 2 * values.sum()
        assert doubled == (values * 2).tobytes()
        total = comm.allreduce(Only(values), out)
        total(WAIT_S)
        assert doubled == values.tobytes()
        total.close()
        with pytest.raises(ValueError, match="written"):
            comm.irecv(b"for reading")
    with towline.Store(arena, [memoryview(values)], rate=1.0) as store:
        store.update(0, [Only(values)])
        assert not store.value(0).any()


def test_consumed_by_block(worker, arena, peer):
    """A step is consumed when the block ends that it is shown in."""
    for tx, rx in (static(worker, peer, "static"), dynamic(worker, peer, "dynamic")):
        for step in (1, 2, 3):
            tx.send(filled(arena, step))
        with rx.recv(WAIT_S) as (step, array):
            assert step == 1 and holds(array, 1) and rx.test()[0] == 1
        # By hand, and the next one is shown meanwhile.
        with rx.recv(WAIT_S) as (step, array):
            assert step == 2 and holds(array, 2)
            rx.consumed()
            step, array = rx.recv(WAIT_S)
            assert step == 3
        with pytest.raises(KeyError), rx.test() as (step, array):
            assert step == 3 and holds(array, 3)
            raise KeyError("x")
        assert rx.test() is None
        tx.send(filled(arena, 4))
        with rx.recv(WAIT_S) as (step, array):
            rx.consumed()
        tx.send(filled(arena, 5))
        with rx.recv(WAIT_S) as (step, array):
            assert step == 5
            rx.close()


def test_unlike(worker, peer):
    """Ends that do not fit."""
    rx = worker.static_receiver(peer, "unlike", 10, "f4")
    tx = worker.static_sender(peer, "unlike", 10, "i4")
    with pytest.raises(towline.Error) as caught:
        tx.connect()
    assert caught.value.errno == errno.EPROTOTYPE
    rx.close()
    with pytest.raises(towline.Timeout):
        worker.static_sender(peer, "nobody", 1, "f4").connect(0.1)


def test_kept_array(worker, arena, peer):
    """A view of an edge's memory that lives when the edge is closed."""
    tx, rx = static(worker, peer)
    tx.send(filled(arena, 1))
    _, array = rx.recv(WAIT_S)
    rx.close()
    worker.close()
    with pytest.raises(ValueError, match="closed"):
        rx.test()
    assert holds(array, 1)
    del array
    gc.collect()
    assert arena.stats().in_use_bytes == 0


def take_over(dev, name):
    """As soon as peers have let go of what its process had exported."""
    end = time.monotonic() + WAIT_S
    while True:
        try:
            return towline.Region.attach(dev, name)
        except towline.Error as error:
            if error.errno != errno.EBUSY or time.monotonic() > end:
                raise
        time.sleep(0.01)


def read_one(region):
    """The step that is there."""
    with towline.Device() as dev, towline.Arena(dev) as arena, \
            towline.Worker(dev, arena) as worker, towline.Peer(dev, region[1], 30) as peer:
        kept = take_over(dev, region[0]) if region[2] else towline.Region(
            dev, towline.static_bytes(SHAPE, "f4", 4), name=region[0], persistent=True)
        rx = worker.static_receiver(peer, "kept", SHAPE, "f4", 4, region=kept)
        rx.connect(WAIT_S)
        step, array = rx.recv(WAIT_S)
        assert holds(array, step)
        rx.consumed()
        assert step == (2 if region[2] else 1), step
        if region[2]:
            del array
            rx.close()
            kept.destroy()
        else:
            os.kill(os.getpid(), signal.SIGKILL)


def test_receiver_again(children, arena, worker, peer):
    """A receiver is killed; the next one goes on with its region."""
    for again in (False, True):
        child = children(read_one, ("steps", own_address(), again))
        tx = worker.static_sender(peer, "kept", SHAPE, "f4")
        tx.connect(WAIT_S)
        assert tx.next_step == (2 if again else 1)
        tx.send(filled(arena, tx.next_step))
        assert child.wait() == (0 if again else -signal.SIGKILL)
        tx.close()


def test_connecting_in_asyncio(worker, peer):
    """Ends of edges and lines find each other in one event loop, or time is over."""
    async def main():
        tx, lonely = (worker.static_sender(peer, name, 4, "f4") for name in ("edge", "nobody"))
        rx, box = worker.static_receiver(peer, "edge", 4, "f4"), worker.mailbox("box")
        *_, line = await asyncio.gather(rx.connected(WAIT_S), tx.connected(WAIT_S),
                                        worker.mailbox().connected(peer, "box", WAIT_S))
        await asyncio.gather(tx.send(np.ones(4, "f4")), line.post(b"there"))
        assert (await rx.receive())[1].sum() == 4 and await (await box.accepted()).receive() == b"there"
        for missing in (lonely.connected(0.05), worker.mailbox().connected(peer, "nobody", 0.05)):
            with pytest.raises(towline.Timeout):
                await missing

    asyncio.run(main())


def test_meeting_in_asyncio(dev, arena):
    """Groups and communicators are made by a thread, while others run."""
    async def main():
        group = await asyncio.to_thread(towline.Group, dev, towline.World(0, 1, session="in a thread"))
        with group, await asyncio.to_thread(towline.Comm, group, arena) as comm:
            assert (await comm.iallreduce(np.ones(3))).tolist() == [1, 1, 1]

    asyncio.run(main())


def test_static_asyncio(worker, arena, peer):
    """A producer and a consumer in one event loop, and another task beside them."""
    tx, rx = static(worker, peer, slots=2)
    beats = 0

    async def beat():
        nonlocal beats
        while True:
            await asyncio.sleep(0.001)
            beats += 1

    async def produce():
        for step in range(1, 11):
            await asyncio.sleep(0.01)
            await tx.send(filled(arena, step))

    async def consume():
        async for step, array in rx:
            assert holds(array, step)
            if step == 10:
                return

    async def main():
        beating = asyncio.create_task(beat())
        await asyncio.wait_for(asyncio.gather(produce(), consume()), WAIT_S)
        beating.cancel()
        with pytest.raises(asyncio.TimeoutError):
            rx.consumed()
            await asyncio.wait_for(rx.receive(), 0.1)

    asyncio.run(main())
    assert beats and worker._drivers == {}


def test_dynamic(worker, arena, peer):
    """Any shape and type; arrays that are in use stay."""
    tx, rx = dynamic(worker, peer)
    kinds = [((3, 4), "f4"), ((), "i8"), ((2, 0), "u1"), (SHAPE, "f2"), (5, "c16")]
    kept = []
    for number, (shape, dtype) in enumerate(kinds, 1):
        shape = np.empty(shape).shape
        sent = tx.send(filled(arena, number, shape, dtype))
        step, array = rx.recv(WAIT_S)
        assert step == number and holds(array, number, shape, dtype)
        rx.consumed()
        sent.wait(WAIT_S)
        kept.append(array)
    tx.send(filled(arena, 9))
    rx.recv(WAIT_S)
    kept.append(rx.take())
    for number, (array, (shape, dtype)) in enumerate(zip(kept, kinds), 1):
        assert array in arena and holds(array, number, np.empty(shape).shape, dtype)
    assert holds(kept[-1], 9)
    with pytest.raises(towline.Error) as caught:
        rx.take()
    assert caught.value.errno == errno.EINVAL
    # One that is shown when the edge is closed.
    tx.send(filled(arena, 10))
    _, array = rx.recv(WAIT_S)
    rx.close()
    assert holds(array, 10) and worker.copied == 0
    tx.close()
    del array, kept
    gc.collect()
    assert arena.stats().in_use_bytes == 0


def test_dynamic_asyncio(worker, arena, peer):
    """The same in an event loop, with arrays that are let go."""
    tx, rx = dynamic(worker, peer)

    async def produce():
        for step in range(1, 8):
            await tx.send(filled(arena, step, (step, 2)))

    async def consume():
        found = []
        async for step, array in rx:
            found.append(array)
            assert holds(array, step, (step, 2))
            if step == 7:
                return found

    async def main():
        return await asyncio.wait_for(asyncio.gather(produce(), consume()), WAIT_S)

    found = asyncio.run(main())[1]
    assert all(holds(array, step, (step, 2)) for step, array in enumerate(found, 1))


def test_rendezvous(worker, arena, peer):
    """Asked before, and after; waited for in every way; errors; what is cancelled."""
    rx = worker.rendezvous_receiver(peer, "meet", 8)
    tx = worker.rendezvous_sender(peer, "meet", 8)
    tx.connect()
    rx.connect()
    early = rx.get("weights", 1)
    with pytest.raises(towline.Timeout):
        early.wait(0.05)
    with pytest.raises(towline.Error) as caught:
        rx.get("weights", 1)
    assert caught.value.errno == errno.EEXIST
    sent = tx.put("weights", 1, filled(arena, 1))
    array = early.wait(WAIT_S)
    assert holds(array, 1) and array in arena and sent.wait(WAIT_S) is None
    source = np.ones(5)
    cloned = tx.put("weights", 2, source, clone=True)
    source[:] = 0
    assert rx.get("weights", 2).wait(WAIT_S).sum() == 5
    cloned.wait(WAIT_S)
    tx.fail("weights", 3, errno.EDQUOT)
    with pytest.raises(towline.Error) as caught:
        rx.get("weights", 3).wait(WAIT_S)
    assert caught.value.errno == errno.EDQUOT
    asked = rx.get("weights", 4)
    asked.cancel()
    with pytest.raises(towline.Error) as caught:
        asked.wait(WAIT_S)
    assert caught.value.errno == errno.ECANCELED

    async def main():
        requests = [rx.get(key, 5) for key in "abc"]
        offers = [tx.put(key, 5, filled(arena, ord(key))) for key in "cba"]
        found = await asyncio.wait_for(asyncio.gather(*requests), WAIT_S)
        await asyncio.wait_for(asyncio.gather(*offers), WAIT_S)
        return found
    assert all(holds(found, ord(key)) for key, found in zip("abc", asyncio.run(main())))
    # Never asked for.
    offered = tx.put("nobody", 1, filled(arena, 1))
    tx.close()
    with pytest.raises(towline.Error) as caught:
        offered.wait(WAIT_S)
    assert caught.value.errno == errno.ECANCELED


# ---- mailboxes ----

def line(worker, peer, name="box", **more):
    """Both ends, open."""
    box = worker.mailbox(name, **more)
    tx = worker.mailbox(**more).connect(peer, name, WAIT_S)
    return tx, box.accept(WAIT_S)


def ended(call):
    """The number of the error that it raises."""
    with pytest.raises(towline.Error) as caught:
        call()
    return caught.value.errno


def test_mailbox(worker, peer):
    """Messages both ways, of any length, and what had been sent before the end."""
    tx, rx = line(worker, peer)
    assert tx.name == "box" and rx.name == "" and tx.room == 2016
    for number, size in enumerate((1, 31, 32, 33, 2016)):
        tx.send(bytes([number]) * size)
        rx.send(bytes([number + 100]) * size)
    for number, size in enumerate((1, 31, 32, 33, 2016)):
        assert rx.recv(WAIT_S) == bytes([number]) * size
        assert tx.recv(WAIT_S) == bytes([number + 100]) * size
    assert rx.test() is None
    with pytest.raises(towline.Timeout):
        rx.recv(0.05)
    with pytest.raises(towline.Timeout):
        rx.mailbox.accept(0.05)
    with pytest.raises(towline.Timeout):
        tx.mailbox.connect(peer, "nobody", 0.1)
    for bad in (b"", bytes(2017)):
        assert ended(lambda bad=bad: tx.send(bad)) == errno.EINVAL
    assert ended(lambda: worker.mailbox("box")) == errno.EEXIST
    tx.send(b"last")
    tx.close()
    assert rx.recv(WAIT_S) == b"last" and ended(lambda: rx.recv(WAIT_S)) == errno.ESTALE
    assert ended(lambda: rx.send(b"nobody")) == errno.ESTALE


def test_mailbox_full(worker, peer):
    """Whoever finds no room waits for some."""
    tx, rx = line(worker, peer, line_bytes=4096)
    for number in range(2):
        tx.send(bytes([number]) * 2016, 0)
    with pytest.raises(towline.Timeout):
        tx.send(b"more", 0.05)
    assert tx.room == 0 and rx.recv(WAIT_S) == bytes(2016)
    tx.send(b"more", WAIT_S)
    assert rx.recv(WAIT_S) == b"\1" * 2016 and rx.recv(WAIT_S) == b"more"


def test_mailbox_while_busy(dev, arena, peer):
    """A process that does other things for longer than anything may take loses nobody by that."""
    with towline.Worker(dev, arena, timeout=0.2) as worker:
        tx, rx = line(worker, peer)
        for _ in range(5):
            # What looks whether the other end is there is begun, and ends meanwhile.
            worker.progress()
            time.sleep(0.5)
        tx.send(b"here")
        assert rx.recv(WAIT_S) == b"here"


def test_mailbox_asyncio(worker, peer):
    """The same in an event loop, with more than there is room for at once."""
    async def produce():
        tx = worker.mailbox().connect(peer, "box", WAIT_S)
        for number in range(500):
            await tx.post(number.to_bytes(2, "little") * (1 + number))
        return tx

    async def consume(box):
        rx = await box.accepted()
        return rx, [await rx.receive() for _ in range(500)]

    async def main():
        with worker.mailbox("box", line_bytes=4096) as box:
            made = await asyncio.gather(consume(box), produce())
        return made[0][1]

    found = asyncio.run(asyncio.wait_for(main(), WAIT_S))
    assert found == [number.to_bytes(2, "little") * (1 + number) for number in range(500)]


def write_and_die(address, name):
    """A process that is killed when it has sent something."""
    with towline.Device() as dev, towline.Arena(dev) as arena, \
            towline.Worker(dev, arena) as worker, towline.Peer(dev, address, 30) as peer:
        tx = worker.mailbox().connect(peer, name, WAIT_S)
        for number in range(3):
            tx.send(b"%d" % number)
        assert tx.recv(WAIT_S) == b"go"
        os.kill(os.getpid(), signal.SIGKILL)


def test_mailbox_of_another(children, worker, peer):
    """What it had sent is there, and then that it has ended."""
    box = worker.mailbox("killed")
    child = children(write_and_die, own_address(), "killed")
    rx = box.accept(WAIT_S)
    rx.send(b"go")
    assert child.wait() == -signal.SIGKILL
    assert [rx.recv(WAIT_S) for _ in range(3)] == [b"0", b"1", b"2"]
    assert ended(lambda: rx.recv(WAIT_S)) == errno.ESTALE


# ---- waiting ----

def interrupt(seconds=0.3):
    """Ctrl-C, in a while."""
    timer = threading.Timer(seconds, signal.pthread_kill,
                            (threading.main_thread().ident, signal.SIGINT))
    timer.start()
    return timer


def test_interrupt(worker, peer):
    """Ctrl-C ends a wait, other threads run meanwhile, and the edge goes on."""
    tx, rx = static(worker, peer)
    for wait in (rx.recv, lambda: worker.progress(None)):
        turns = []
        running = threading.Event()

        def turn(turns=turns, running=running):
            while not running.is_set():
                turns.append(time.sleep(0.001))

        thread = threading.Thread(target=turn)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            timer = interrupt()
            wait()
        running.set()
        timer.join()
        thread.join()
        assert turns
    tx.send(np.ones(SHAPE, "f4"))
    assert rx.recv(WAIT_S)[0] == 1


def test_signal(worker, peer):
    """A signal that raises nothing does not end it."""
    _, rx = static(worker, peer)
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
    timer = threading.Timer(0.1, signal.pthread_kill,
                            (threading.main_thread().ident, signal.SIGUSR1))
    timer.start()
    start = time.monotonic()
    with pytest.raises(towline.Timeout):
        rx.recv(0.5)
    signal.signal(signal.SIGUSR1, before)
    assert seen and time.monotonic() - start >= 0.5


def test_threads(worker, arena, peer):
    """One sends and one receives, by the same worker."""
    tx, rx = static(worker, peer)
    wrong = []

    def receive():
        for step in range(1, 21):
            number, array = rx.recv(WAIT_S)
            if number != step or not holds(array, step):
                wrong.append(number)
            rx.consumed()

    thread = threading.Thread(target=receive)
    thread.start()
    for step in range(1, 21):
        tx.send(filled(arena, step)).wait(WAIT_S)
    thread.join()
    assert not wrong


# ---- ends ----

def test_close(dev, arena, peer):
    """In any order, as often as one likes."""
    worker = towline.Worker(dev, arena)
    tx, rx = static(worker, peer)
    sent = tx.send(np.ones(SHAPE, "f4"))
    worker.close()
    worker.close()
    assert worker.closed and tx.closed and rx.closed and sent.done
    for use in (tx.connect, rx.test, worker.fileno, lambda: tx.pending, worker.progress):
        with pytest.raises(ValueError, match="closed"):
            use()
    tx.close()
    with pytest.raises(ValueError, match="closed"), worker:
        pass


def test_collected(node):
    """Nobody closes anything; the collector finds it all, in a cycle."""
    def make():
        dev = towline.Device(node)
        arena = towline.Arena(dev)
        worker = towline.Worker(dev, arena)
        tx, rx = static(worker, towline.Peer(dev, own_address()))
        cycle = [tx, rx, arena.zeros(10), tx.send(np.ones(SHAPE, "f4"))]
        cycle.append(cycle)
        return weakref.ref(worker)
    worker = make()
    gc.collect()
    assert worker() is None
    becomes(lambda: used_bytes() == 0)


LEFT = """
import sys
sys.path.insert(0, "tests/python")
import conftest, numpy, towline
dev = towline.Device()
arena = towline.Arena(dev)
worker = towline.Worker(dev, arena)
peer = towline.Peer(dev, conftest.own_address())
rx = worker.static_receiver(peer, "left", 10, "f4")
tx = worker.static_sender(peer, "left", 10, "f4")
tx.connect()
rx.connect()
tracer = towline.Tracer(arena)
block = towline.allocator(arena)
block.__enter__()
array = numpy.ones(10, "f4")
sent = tx.send(array)
found = rx.recv(30)[1]
numpy.cycle = [array, found, rx, arena.zeros(3)]
numpy.cycle.append(numpy.cycle)
print(found.sum())
"""


def test_exit(node):
    """The interpreter ends with everything open."""
    del node
    done = subprocess.run([sys.executable, "-W", "default", "-c", LEFT], capture_output=True,
                          text=True, check=False, timeout=2 * WAIT_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "10.0\n", "")


def test_fork(worker, arena, peer):
    """A child has no part in it, says so, and harms nobody."""
    tx, rx = static(worker, peer)
    out, into = line(worker, peer)
    array = filled(arena, 1)
    block = towline.allocator(arena)

    def child():
        for use in (lambda: arena.empty(3), lambda: tx.send(array), rx.recv, worker.progress,
                    worker.mailbox, into.mailbox.accept, lambda: out.send(b"no"), into.recv):
            with pytest.raises(towline.Error) as caught:
                use()
            assert caught.value.errno == errno.EPERM
        assert holds(array, 1)
        with block:
            assert np.ones(10) not in arena
        tx.close()
        out.close()
        worker.close()
        arena.close()

    with block:
        of_numpy = np.ones(1000)
    assert Child(child).wait() == 0
    assert of_numpy.sum() == 1000
    tx.send(array)
    assert holds(rx.recv(WAIT_S)[1], 1)
    out.send(b"yes")
    assert into.recv(WAIT_S) == b"yes"


@contextlib.contextmanager
def held(*locks):
    """Another thread has them."""
    has, over = threading.Event(), threading.Event()

    def hold():
        for lock in locks:
            lock.acquire()
        has.set()
        over.wait()
        for lock in locks:
            lock.release()

    thread = threading.Thread(target=hold)
    # The collector would wait for them, too.
    gc.disable()
    thread.start()
    has.wait()
    try:
        yield
    finally:
        over.set()
        thread.join()
        gc.enable()


def test_fork_meanwhile(dev, worker, arena, peer):
    """It is so at once whatever a thread of the parent's is in, and nothing dies in vain."""
    tx, rx = static(worker, peer)
    array = filled(arena, 1)
    with towline.Group(dev, towline.World(0, 1, session="alone")) as group, \
            towline.Comm(group, arena) as comm:
        total = comm.allreduce(array)

        def child():
            nonlocal array
            for use in (lambda: tx.send(array), rx.recv, worker.progress, worker.fileno,
                        lambda: arena.zeros(3), arena.stats, group.barrier, comm.barrier,
                        total.start, total.test, total, lambda: towline.Region(dev, 4096)):
                with pytest.raises(towline.Error) as caught:
                    use()
                assert caught.value.errno == errno.EPERM
            assert array in arena and holds(array, 1)
            with towline.allocator(arena):
                assert np.ones(10) not in arena
            array[:] = 5
            for one in (total, comm, group, rx, tx, worker, arena):
                one.close()
            array = None
            gc.collect()

        with held(towline._life._lock, comm._turn._lock, group._one_at_a_time):
            assert Child(child).wait() == 0
        # What the child wrote is there; nothing else has changed.
        assert (array == 5).all()
        total()
        tx.send(array)
        assert (rx.recv(WAIT_S)[1] == 5).all()
        total.close()


# ---- the tracer, and NumPy ----

def run_step(tracer, tx, rx, step):
    """A made-up computation: what its second node makes is sent."""
    with tracer.step():
        with tracer.node("first"):
            data = np.full(SHAPE, step, "f4")
        with tracer.node("second"):
            data = data * 2 + 1
        sent = tx.send(data, tracer=tracer)
        assert (rx.recv(WAIT_S)[1] == 2 * step + 1).all()
        rx.consumed()
        sent.wait(WAIT_S)
    return data


def test_tracer(worker, arena, peer, tmp_path):
    """From the second step on what is sent is in the arena, and nothing else; also next time."""
    tx, rx = static(worker, peer)
    with towline.Tracer(arena) as tracer:
        with towline.allocator(tracer):
            for step in range(1, 5):
                data = run_step(tracer, tx, rx, step)
                assert (data in arena) == (step > 1)
                report = tracer.report()
                assert (report.step, report.zero_copy, report.copied) == (
                    step, int(step > 1), int(step == 1))
        assert worker.copied == 4000
        tracer.save(tmp_path / "sites")
        with pytest.raises(towline.Error) as caught, tracer.step(), tracer.step():
            pass
        assert caught.value.errno == errno.EINVAL
    assert (data == 9).all()
    with towline.Tracer(arena) as tracer, towline.allocator(tracer):
        tracer.load(tmp_path / "sites")
        assert run_step(tracer, tx, rx, 1) in arena
    (tmp_path / "other").write_text("no sites\n")
    with towline.Tracer(arena) as tracer, pytest.raises(towline.Error) as caught:
        tracer.load(tmp_path / "other")
    assert caught.value.errno == errno.EBADMSG


def test_traced_threads(arena):
    """Nodes that threads run, in the context of who has started them."""
    found = {}

    def run(tracer, name):
        with tracer.node(name):
            other = np.zeros(200)
            mine = np.ones(300)
        found[name] = (mine in arena, other in arena)
        tracer.transferred(mine)

    with towline.Tracer(arena) as tracer, towline.allocator(tracer):
        for step in (1, 2, 3):
            with tracer.step():
                threads = [threading.Thread(target=contextvars.copy_context().run,
                                            args=(run, tracer, f"node {i}")) for i in range(3)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            assert set(found.values()) == {(step > 1, False)}


def test_allocator(dev):
    """All arrays are in the arena; they and what they become outlive it."""
    arena = towline.Arena(dev, region_bytes=4 * MIB)
    outside = np.ones(3)
    with towline.allocator(arena) as source:
        assert source is arena and _numpy.handler_name() == "towline"
        array = np.arange(1000)
        assert array in arena and (array + 1) in arena and np.zeros((100, 100)) in arena
        array.resize(100000, refcheck=False)
        assert array in arena and array[:1000].sum() == 499500 and not array[1000:].any()
        array.resize(10, refcheck=False)
        assert array.tolist() == list(range(10))
        objects = np.array([[], {}, "text"], dtype=object)
        outside.resize(1000, refcheck=False)
        assert outside not in arena
        with towline.allocator(arena):
            pass
        assert _numpy.handler_name() == "towline"
    assert _numpy.handler_name() != "towline" and np.ones(3) not in arena
    arena.close()
    array.resize(20, refcheck=False)
    assert array[:10].tolist() == list(range(10)) and objects[2] == "text"
    del array, objects
    gc.collect()
    becomes(lambda: used_bytes() == 0)
    with pytest.raises(ValueError, match="closed"), towline.allocator(arena):
        pass


def test_allocator_contexts(dev):
    """Tasks that are started inside have it, and threads in a copy of the context; others have not."""
    found = {}

    def allocate(name):
        found[name] = np.ones(100) in arena

    async def task():
        allocate("task")

    async def main():
        await asyncio.create_task(task())
        await asyncio.to_thread(allocate, "to_thread")

    def in_thread(function, *words):
        thread = threading.Thread(target=function, args=words)
        thread.start()
        thread.join()

    start = threading.Thread.start
    with towline.Arena(dev) as arena:
        with towline.allocator(arena):
            in_thread(allocate, "new")
            in_thread(contextvars.copy_context().run, allocate, "copy")
            asyncio.run(main())
            assert threading.Thread.start is start
        in_thread(contextvars.copy_context().run, allocate, "after")
    # Python 3.14 may be told to give new threads the context.
    inherits = getattr(sys.flags, "thread_inherit_context", 0)
    assert found == {"new": bool(inherits), "copy": True, "task": True, "to_thread": True,
                     "after": False}


def test_allocator_full(dev):
    """An arena that has no room: MemoryError; a tracer's: ordinary memory."""
    with towline.Arena(dev, region_bytes=2 * MIB, limit_bytes=2 * MIB) as arena:
        with towline.allocator(arena), pytest.raises(MemoryError):
            np.ones(4 * MIB, "u1")
        with towline.Tracer(arena) as tracer, towline.allocator(tracer):
            for _ in range(2):
                with tracer.step(), tracer.node("large"):
                    large = np.ones(4 * MIB, "u1")
                    tracer.transferred(large)
            assert large not in arena and tracer.report().refused == 1
