# SPDX-License-Identifier: GPL-2.0
"""Ranks of one node, each a process: what they do together, and one of them goes."""

import asyncio
import errno
import gc
import os
import pathlib
import signal
import sys
import threading
import time
import types

import numpy as np
import pytest

import towline
from conftest import MIB, WAIT_S, Child

RANKS = 3
# Whoever is told that a rank died is told in this time, far below the time-outs.
TOLD_S = 20
SESSION = f"python {os.getpid()}"


class Me:
    """One rank, with all that it needs."""

    def __init__(self, rank, name, timeout=WAIT_S):
        self.rank = rank
        self.dev = towline.Device()
        world = towline.World(rank, RANKS, session=SESSION, restart=0)
        self.group = towline.Group(self.dev, world, name=name, timeout=WAIT_S)
        self.arena = towline.Arena(self.dev, region_bytes=4 * MIB)
        self.comm = towline.Comm(self.group, self.arena, timeout=timeout)

    def close(self):
        """In order."""
        for one in (self.comm, self.group, self.arena, self.dev):
            one.close()


def together(children, function, *arguments):
    """All of them run that; how they end."""
    started = [children(function, rank, *arguments) for rank in reversed(range(RANKS))]
    return [child.wait() for child in started][::-1]


def given(rank, count, dtype):
    """Not the same for any two ranks; sums are exact."""
    return ((np.arange(count) * 7 + rank * 5) % 9 * RANKS).astype(dtype)


def wanted(count, dtype, op="sum"):
    """What comes of all of them."""
    every = np.stack([given(rank, count, dtype) for rank in range(RANKS)])
    if op == "avg":
        return (every.sum(0) / RANKS).astype(dtype)
    # NumPy adds and multiplies bools and small integers as larger integers, which are cut off here.
    return {"sum": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum,
            "band": np.bitwise_and, "bor": np.bitwise_or,
            "bxor": np.bitwise_xor}[op].reduce(every, 0).astype(dtype)


def check_meeting(me):
    """What a group is for."""
    assert (me.group.rank, me.group.size, me.comm.size) == (me.rank, RANKS, RANKS)
    assert me.group.gather(bytes([me.rank] * 5)) == [bytes([i] * 5) for i in range(RANKS)]
    assert me.group.gather(b"") == [b""] * RANKS
    me.group.barrier()
    with pytest.raises(ValueError):
        me.group.gather(bytes(225))
    assert isinstance(me.group.peer((me.rank + 1) % RANKS), towline.Peer)
    with pytest.raises(towline.Error):
        me.group.peer(RANKS)


def check_allreduce(me):
    """All reductions, types and algorithms; in the arena and not, in place and not."""
    for op, dtype, algorithm in (("sum", "f4", "ring"), ("avg", "f8", "direct"),
                                 ("min", "i4", "any"), ("max", "i8", "any"),
                                 ("sum", "f2", "any"), ("product", "i1", "ring"),
                                 ("sum", "u1", "direct"), ("sum", "?", "ring"),
                                 ("product", "?", "direct"), ("band", "u1", "any"),
                                 ("bor", "i4", "any"), ("bxor", "i8", "any")):
        array = me.arena.array(given(me.rank, 1003, dtype))
        reduce = me.comm.allreduce(array, op=op, algorithm=algorithm)
        for _ in range(2):
            array[:] = given(me.rank, 1003, dtype)
            assert reduce() is array
            assert np.array_equal(array, wanted(1003, dtype, op)), (op, dtype)
        stats = reduce.stats()
        assert stats.calls == 2 and stats.copies == 0 and stats.sent_bytes
        reduce.close()
    array, out = given(me.rank, 6, "f4").reshape(2, 3), np.zeros((2, 3), "f4")
    with me.comm.allreduce(array, out) as reduce:
        reduce()
        assert np.array_equal(out.reshape(-1), wanted(6, "f4")) and reduce.stats().copied_bytes
        assert np.array_equal(array.reshape(-1), given(me.rank, 6, "f4"))
    for bad in (out[:, 1], np.zeros(6), np.zeros((3, 2), "f4")):
        with pytest.raises(ValueError):
            me.comm.allreduce(array, bad)
    with pytest.raises(towline.Error) as caught:
        me.comm.allreduce(np.zeros(3, "u2"))
    assert caught.value.errno == errno.EOPNOTSUPP


def check_others(me):
    """All other kinds."""
    every = me.arena.array(given(me.rank, 4 * RANKS, "f4"))
    scatter = me.comm.reduce_scatter(every)
    assert np.array_equal(scatter(), wanted(4 * RANKS, "f4").reshape(RANKS, 4)[me.rank])
    assert scatter.out in me.arena
    gather = me.comm.allgather(np.full((2, 2), me.rank, "u1"))
    out = gather()
    assert out.shape == (RANKS, 2, 2) and all((out[i] == i).all() for i in range(RANKS))
    text = np.array([b"from the root" if me.rank == 1 else b""], "S20")
    me.comm.broadcast(text, root=1)()
    assert text[0] == b"from the root"
    me.comm.barrier()()
    with pytest.raises(ValueError):
        me.comm.reduce_scatter(np.zeros(4, "f4"))
    with pytest.raises(ValueError):
        me.comm.allgather(np.zeros(4, "f4"), np.zeros(4, "f4"))


def check_several(me):
    """On their way at once, in another order at each rank, in an event loop and beside it."""
    arrays = [me.arena.empty(5000, "f4") for _ in range(3)]
    reduces = [me.comm.allreduce(array) for array in arrays]

    def fill():
        for array in arrays:
            array[:] = given(me.rank, 5000, "f4")

    def right():
        return all(np.array_equal(array, wanted(5000, "f4")) for array in arrays)

    async def main():
        turned = reduces[me.rank:] + reduces[:me.rank]
        return await asyncio.gather(*(reduce.run() for reduce in turned))

    fill()
    assert len(asyncio.run(main())) == 3 and right()
    fill()
    threads = [threading.Thread(target=reduce)
               for reduce in reduces[me.rank:] + reduces[:me.rank]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right()
    fill()
    for reduce in reduces:
        reduce.start()
        with pytest.raises(towline.Error) as caught:
            reduce.start()
        assert caught.value.errno == errno.EBUSY
    while not all([reduce.test() for reduce in reduces]):
        time.sleep(0.001)
    assert right()


def check_late(me):
    """Rank 0 begins late; the others' waits end before, by time and by Ctrl-C."""
    array = np.full(10, me.rank + 1.0)
    reduce = me.comm.allreduce(array)
    if me.rank == 0:
        me.group.barrier()
        reduce()
    else:
        reduce.start()
        with pytest.raises(towline.Timeout) as caught:
            reduce.wait(0.1)
        assert caught.value.blamed is None
        timer = threading.Timer(0.3, signal.pthread_kill,
                                (threading.main_thread().ident, signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            reduce.wait()
        timer.join()
        me.group.barrier()
        reduce.wait(WAIT_S)
    assert (array == RANKS * (RANKS + 1) / 2).all()


def check_child(me):
    """A child has no part in it."""
    array = np.ones(10)
    reduce = me.comm.allreduce(array)

    def child():
        for use in (reduce, reduce.test, me.group.barrier):
            with pytest.raises(towline.Error) as caught:
                use()
            assert caught.value.errno == errno.EPERM

    assert Child(child).wait() == 0
    reduce()
    assert (array == RANKS).all()


def check_ends(me):
    """Closed from the top, with collectives and arrays that live."""
    array = me.arena.zeros(100, "f4")
    reduce = me.comm.allreduce(array)
    reduce()
    me.comm.close()
    me.comm.close()
    assert reduce.closed
    for use in (reduce, reduce.test, reduce.stats, me.comm.barrier):
        with pytest.raises(ValueError, match="closed"):
            use()
    me.arena.close()
    array[:] = 1
    assert array.sum() == 100


def take_part(rank):
    """One rank, through all of it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    me = Me(rank, "all")
    for check in (check_meeting, check_allreduce, check_others, check_several, check_late,
                  check_child, check_ends):
        start = time.monotonic()
        check(me)
        if not rank:
            print(f"{check.__name__}: {time.monotonic() - start:.1f} s")
    me.close()


def test_together(children):
    """All that ranks do together."""
    assert together(children, take_part) == [0] * RANKS


def lose(rank):
    """Rank 1 is killed: the others name it, again and again, in both ways to wait."""
    me = Me(rank, "lose")
    reduce = me.comm.allreduce(me.arena.zeros(1000, "f4"))
    reduce()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    with pytest.raises(towline.Error) as caught:
        for _ in range(1000):
            if rank:
                asyncio.run(reduce.run())
            else:
                reduce()
    assert (caught.value.errno, caught.value.blamed) == (errno.ESTALE, 1)
    assert "rank 1 is to blame" in str(caught.value)
    assert time.monotonic() - start < TOLD_S
    for use in (reduce, me.comm.barrier):
        with pytest.raises(towline.Error) as caught:
            use()
        assert caught.value.blamed == 1
    me.close()


def test_one_dies(children):
    """Whoever is left is told who."""
    assert together(children, lose) == [0, -signal.SIGKILL, 0]


def miss(rank):
    """Rank 1 never comes."""
    if rank == 1:
        return
    with towline.Device() as dev, pytest.raises(towline.Timeout) as caught:
        towline.Group(dev, towline.World(rank, RANKS, session=SESSION), "miss", timeout=2)
    assert caught.value.blamed == 1


def test_one_is_missing(children):
    """A group says who it waits for."""
    assert together(children, miss) == [0] * RANKS


# ---- a parameter server -------------------------------------------------------

VARIABLES = [((64, 33), np.float32), ((1,), np.float32), ((4097,), np.float64)]
STEPS = 8


def slope(worker, step, variable):
    """A worker's gradient, any numbers."""
    shape, dtype = VARIABLES[variable]
    return np.random.default_rng((worker, step, variable)).standard_normal(shape).astype(dtype)


def trained(steps):
    """What two workers make of ones, by NumPy's arithmetic."""
    values = [np.ones(shape, dtype) for shape, dtype in VARIABLES]
    speeds = [np.zeros(shape, dtype) for shape, dtype in VARIABLES]
    for step in range(steps):
        for number, (_, dtype) in enumerate(VARIABLES):
            mean = (slope(0, step, number) + slope(1, step, number)) / dtype(2)
            speeds[number] = dtype(0.9) * speeds[number] + mean
            values[number] = values[number] - dtype(0.1) * speeds[number]
    return values


def serve(me, store, blamed):
    """Rank 0: until the workers have left, or one has died."""
    with towline.ParameterServer(me.group, me.arena, VARIABLES, store=store) as server:
        with pytest.raises(towline.Error) as caught:
            store.update(1, [np.ones(1, "f4")])
        assert caught.value.errno == errno.EBUSY
        if blamed is None:
            server.serve()
            return
        with pytest.raises(towline.Error) as caught:
            server.serve()
        assert (caught.value.errno, caught.value.blamed) == (errno.ESTALE, blamed)


def train(me, until, dies=False):
    """A worker: to that step; one that dies has pushed some of its gradients of that step."""
    worker = towline.ParameterWorker(me.group, me.arena, VARIABLES)
    try:
        asyncio.run(worker.waited())
        values = [worker.value(number) for number in range(len(VARIABLES))]
        gradients = [me.arena.zeros(shape, dtype) for shape, dtype in VARIABLES]
        with pytest.raises(ValueError):
            worker.push(0, np.zeros((33, 64), "f4"))
        for wrong in (lambda: worker.wait(-1), lambda: worker.value(len(VARIABLES)),
                      lambda: worker.push(-1, gradients[0])):
            with pytest.raises(IndexError):
                wrong()
        while worker.step < until or dies:
            for number, gradient in enumerate(gradients):
                gradient[...] = slope(me.rank - 1, worker.step, number)
            if dies and worker.step == until:
                worker.push(0, gradients[0])
                os.kill(os.getpid(), signal.SIGKILL)
            assert worker.exchange(gradients)[0].ctypes.data == values[0].ctypes.data
        assert worker.stats().copied_bytes == 0
    finally:
        # Who is only forgotten leaves, too.
        if me.rank == 1:
            del worker
            gc.collect()
        else:
            worker.close()
    # They stay where they are.
    return all(np.array_equal(*pair) for pair in zip(values, trained(until)))


def learn(rank):
    """Two workers and a server; worker 2 dies, and another one takes its place."""
    dev = towline.Device()
    with towline.Arena(dev, region_bytes=4 * MIB) as arena:
        store = towline.Store(arena, [np.ones(*one) for one in VARIABLES], rate=0.1,
                              momentum=0.9) if rank == 0 else None
        for restart in range(2):
            world = towline.World(rank, RANKS, session=SESSION, restart=restart)
            if rank == 2 and "TOW_TEST_AGAIN" in os.environ and not restart:
                continue
            with towline.Group(dev, world, "learn", timeout=WAIT_S) as group:
                me = types.SimpleNamespace(rank=rank, group=group, arena=arena)
                if rank == 0:
                    with pytest.raises(IndexError):
                        store.value(-1)
                    serve(me, store, None if restart else 2)
                elif restart:
                    assert train(me, STEPS)
                elif rank == 2:
                    train(me, STEPS // 2, dies=True)
                else:
                    with pytest.raises(towline.Error) as caught:
                        train(me, STEPS)
                    assert caught.value.blamed == 2
        if store:
            assert all(np.array_equal(store.value(number), value)
                       for number, value in enumerate(trained(STEPS)))
            assert store.updates(0) == STEPS
            store.close()
    dev.close()


def test_parameter_server(children, monkeypatch):
    """The bits of NumPy, though a worker was killed on the way."""
    started = [children(learn, rank) for rank in range(RANKS)]
    assert started[2].wait() == -signal.SIGKILL
    monkeypatch.setenv("TOW_TEST_AGAIN", "1")
    started[2] = children(learn, 2)
    assert [child.wait() for child in started] == [0, 0, 0]


# ---- a job server -------------------------------------------------------------

BATCH = [((8, 64), np.float32), ((8,), np.int64)]


def written(rank, step):
    """A worker's batch of a step."""
    chance = np.random.default_rng((rank, step))
    return [chance.standard_normal(BATCH[0][0]).astype("f4"), chance.integers(10, size=8)]


def fill(rank, step, arrays):
    """What the server is asked for: worker 1 has one step fewer."""
    if step + (rank == 1) >= STEPS:
        return False
    for array, value in zip(arrays, written(rank, step)):
        array[...] = value
    return True


def serve_in_pieces(server):
    """As who prints how far all are: never further back."""
    done = [0] * RANKS
    while True:
        try:
            return server.serve(fill, timeout=0.02)
        except towline.Timeout as mere:
            if mere.blamed is not None:
                raise
            for rank in range(1, RANKS):
                worker = server.worker(rank)
                assert done[rank] <= worker.done <= STEPS
                done[rank] = worker.done


def feed_all(group, arena, blamed):
    """Rank 0: until the workers have left, or one has died."""
    with towline.JobServer(group, arena, BATCH) as server:
        with pytest.raises(IndexError):
            server.worker(0)
        if blamed is None:
            serve_in_pieces(server)
            assert [server.worker(rank).state for rank in (1, 2)] == ["left", "left"]
            assert server.stats().copied_bytes == 0
            return
        with pytest.raises(towline.Error) as caught:
            serve_in_pieces(server)
        assert (caught.value.errno, caught.value.blamed) == (errno.ESTALE, blamed)


async def impatient(worker):
    """A batch that was not waited for is the next one's."""
    try:
        return await asyncio.wait_for(worker.coming(), 0.0001)
    except asyncio.TimeoutError:
        return worker.next()


def be_fed(worker, dies=False):
    """All batches are what they should be, from here on."""
    rank, step = worker.rank, worker.step
    while (batch := asyncio.run(impatient(worker)) if step % 2 else worker.next()) is not None:
        assert all(np.array_equal(*pair) for pair in zip(batch, written(rank, step)))
        step += 1
        assert worker.step == step
        if dies and step == STEPS // 2:
            os.kill(os.getpid(), signal.SIGKILL)
    assert list(worker) == [] and asyncio.run(worker.coming()) is None
    assert step == STEPS - (rank == 1)


def take(rank):
    """A server and two workers; worker 2 dies, and another one takes its place."""
    # Worker 2's next life has less to go on from than worker 1 may have.
    step = STEPS // 4 if "TOW_TEST_AGAIN" in os.environ else 0
    dev = towline.Device()
    with towline.Arena(dev, region_bytes=4 * MIB) as arena:
        for restart in range(2):
            world = towline.World(rank, RANKS, session=SESSION, restart=restart)
            if rank == 2 and "TOW_TEST_AGAIN" in os.environ and not restart:
                continue
            with towline.Group(dev, world, "take", timeout=WAIT_S) as group:
                if rank == 0:
                    feed_all(group, arena, None if restart else 2)
                    continue
                with towline.FeedWorker(group, arena, BATCH, step=step) as worker:
                    assert worker.step <= step and (restart or worker.step == 0)
                    try:
                        be_fed(worker, dies=rank == 2 and not restart)
                    except towline.Error as error:
                        assert not restart and (error.errno, error.blamed) == (errno.ESTALE, 2)
                    step = worker.step
    dev.close()


def test_job_server(children, monkeypatch):
    """Batches as they were written, though a worker was killed on the way."""
    started = [children(take, rank) for rank in range(RANKS)]
    assert started[2].wait() == -signal.SIGKILL
    monkeypatch.setenv("TOW_TEST_AGAIN", "1")
    started[2] = children(take, 2)
    assert [child.wait() for child in started] == [0, 0, 0]


def refuse(rank):
    """What the server's function raises is raised there, and workers are told."""
    with towline.Device() as dev, towline.Arena(dev, region_bytes=4 * MIB) as arena:
        world = towline.World(rank, RANKS, session=SESSION, restart=0)
        with towline.Group(dev, world, "refuse", timeout=WAIT_S) as group:
            if rank:
                with towline.FeedWorker(group, arena, BATCH) as worker, \
                        pytest.raises(towline.Error) as caught:
                    be_fed(worker)
                assert (caught.value.errno, caught.value.blamed) == (errno.ECANCELED, 0)
                return

            def stumble(worker, step, arrays):
                if step == 2:
                    raise KeyError("no such file")
                return fill(worker, step, arrays)

            with towline.JobServer(group, arena, BATCH) as server, pytest.raises(KeyError):
                server.serve(stumble)


def test_job_server_raises(children):
    """All of them end."""
    assert together(children, refuse) == [0] * RANKS


PROGRAM = """
import sys
sys.path.insert(0, "tests/python")
import conftest, numpy, towline
with towline.Device() as dev, towline.Arena(dev) as arena:
    world = towline.World.detect()
    group = towline.Group(dev, world)
    comm = towline.Comm(group, arena)
    print(comm.allreduce(numpy.full(3, world.rank + 1.0))()[0])
"""


def launch(rank, program=PROGRAM):
    """A program of its own, as a launcher starts it, which closes nothing at its end."""
    os.environ.update(TOW_RANK=str(rank), TOW_WORLD_SIZE="2", TOW_LOCAL_RANK=str(rank),
                      TOW_LOCAL_SIZE="2", TOW_SESSION=SESSION)
    os.dup2(os.open(str(pathlib.Path(os.environ["TOW_TEST_SAID"]) / str(rank)),
                    os.O_CREAT | os.O_WRONLY, 0o600), 1)
    os.execv(sys.executable, [sys.executable, "-c", program])


def test_launched(children, tmp_path, monkeypatch):
    """Ranks that were not forked."""
    monkeypatch.setenv("TOW_TEST_SAID", str(tmp_path))
    started = [children(launch, rank) for rank in range(2)]
    assert [child.wait() for child in started] == [0, 0]
    assert [(tmp_path / str(rank)).read_text() for rank in range(2)] == ["3.0\n"] * 2


def add_up(job, rank):
    """A rank of one of two jobs, of which torchrun says the same but for the port."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2",
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(29500 + job),
                      TORCHELASTIC_RESTART_COUNT="0", TORCHELASTIC_RUN_ID="none")
    with towline.Device() as dev, towline.Arena(dev, region_bytes=4 * MIB) as arena, \
            towline.Group(dev, towline.World.detect(), timeout=WAIT_S) as group, \
            towline.Comm(group, arena, timeout=WAIT_S) as comm:
        array = np.full(10, 10.0 ** job)
        comm.allreduce(array)()
        assert (array == 2 * 10 ** job).all(), array
        # The other job is there meanwhile.
        time.sleep(2)
        group.barrier()


def test_two_jobs(children):
    """On one host, at once, by one user: each has its own sum."""
    started = []
    for job, rank in ((0, 0), (1, 0), (1, 1), (0, 1)):
        started.append(children(add_up, job, rank))
        time.sleep(0.5)
    assert [child.wait() for child in started] == [0] * 4
