# SPDX-License-Identifier: GPL-2.0
"""A rank of a job, as its launcher's variables say.

	rank.py together|lose|train|train-lose
"""

import asyncio
import os
import signal
import sys
import threading
import time

import numpy as np

import towline

WAIT_S = 60
STEPS = 5
# Training: enough time for something to happen to the network meanwhile.
TRAIN_STEPS, STEP_S = 60, 0.05
VARIABLES = [((1000,), np.float32), ((64, 33), np.float64)]
BATCH = [((16, 64), np.float32)]
RATE = 0.25


async def pass_on(worker, group):
    """Arrays of other shapes to the next rank, from the one before."""
    following, before = (group.rank + 1) % group.size, (group.rank - 1) % group.size
    rx = worker.dynamic_receiver(group.peer(before), f"to {group.rank}")
    tx = worker.dynamic_sender(group.peer(following), f"to {following}")
    group.barrier()
    tx.connect(WAIT_S)
    rx.connect(WAIT_S)

    async def send():
        for step in range(1, STEPS + 1):
            await tx.send(worker.arena.array(np.full((step, 1000), group.rank + step, "f4")))

    async def receive():
        async for step, array in rx:
            assert array.shape == (step, 1000) and (array == before + step).all()
            if step == STEPS:
                rx.consumed()
                return

    await asyncio.wait_for(asyncio.gather(send(), receive()), WAIT_S)
    group.barrier()


def together(group, comm, arena):
    """All goes well."""
    array = arena.array(np.arange(100003, dtype="f4") % 7 + group.rank)
    for algorithm in ("ring", "direct"):
        array[:] = np.arange(array.size) % 7 + group.rank
        comm.allreduce(array, algorithm=algorithm)()
        assert (array == np.arange(array.size) % 7 * 4 + 6).all()
    assert comm.allgather(np.array([group.rank]))().ravel().tolist() == [0, 1, 2, 3]
    works = [comm.iallreduce(np.arange(count) + group.rank) for count in range(0, 100000, 5000)]
    assert all((work.wait() == 4 * np.arange(work.out.size) + 6).all() for work in works)
    with towline.Worker(group.device, arena) as worker:
        asyncio.run(pass_on(worker, group))
    print("done")


def lose(group, comm, arena):
    """Rank 2 is killed on the way."""
    reduce = comm.allreduce(arena.zeros(1000, "f4"))
    reduce()
    if group.rank == 2:
        print("goes", flush=True)
        # What others need of it for the first one has left it.
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while True:
            reduce()
    except towline.Error as error:
        print(f"rank {error.blamed} is to blame")


def fill(worker, step, arrays):
    """A worker's batch."""
    arrays[0][:] = worker * 1000 + step
    return step < TRAIN_STEPS


def slopes(worker, step):
    """Its gradients for that batch."""
    return [np.full(shape, worker * 1000 + step, dtype) for shape, dtype in VARIABLES]


def trained(size):
    """What becomes of zeros in all steps, by NumPy's arithmetic."""
    values = [np.zeros(*one) for one in VARIABLES]
    for step in range(TRAIN_STEPS):
        for number, (_, dtype) in enumerate(VARIABLES):
            total = sum(slopes(worker, step)[number] for worker in range(1, size))
            values[number] = values[number] - dtype(RATE) * (total / dtype(size - 1))
    return values


def serve(group, arena):
    """Rank 0 feeds all others, and keeps what they learn: who is to blame, by each of the two."""
    blamed = {}

    def until_over(name, run, *arguments):
        try:
            run(*arguments)
        except towline.Error as error:
            blamed[name] = error.blamed

    with towline.Store(arena, [np.zeros(*one) for one in VARIABLES], rate=RATE) as store:
        with towline.ParameterServer(group, arena, VARIABLES, store=store) as server, \
                towline.JobServer(group, arena, BATCH) as feeder:
            threads = [threading.Thread(target=until_over, args=words) for words in
                       (("values", server.serve), ("batches", feeder.serve, fill))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert blamed or all(np.array_equal(store.value(number), value)
                             for number, value in enumerate(trained(group.size)))
    return blamed


def be_trained(group, arena, dies):
    """A worker: each batch is what it should be, and so is what comes of all."""
    gradients = [arena.zeros(*one) for one in VARIABLES]
    with towline.ParameterWorker(group, arena, VARIABLES) as worker, \
            towline.FeedWorker(group, arena, BATCH) as fed:
        worker.wait()
        print("goes", flush=True)
        for step, batch in enumerate(fed):
            assert (batch[0] == group.rank * 1000 + step).all()
            for gradient, slope in zip(gradients, slopes(group.rank, step)):
                gradient[...] = slope
            if dies and step == TRAIN_STEPS // 4:
                os.kill(os.getpid(), signal.SIGKILL)
            values = worker.exchange(gradients)
            time.sleep(STEP_S)
        assert all(np.array_equal(*pair) for pair in zip(values, trained(group.size)))
        assert worker.stats().copied_bytes == fed.stats().copied_bytes == 0


def train(group, _, arena):
    """All goes well."""
    if group.rank:
        be_trained(group, arena, False)
    else:
        assert serve(group, arena) == {}
    print("done")


def train_lose(group, _, arena):
    """The last rank is killed on the way."""
    last = group.size - 1
    if not group.rank:
        assert serve(group, arena) == {"values": last, "batches": last}
        print(f"rank {last} is to blame")
        return
    try:
        be_trained(group, arena, group.rank == last)
    except towline.Error as error:
        print(f"rank {error.blamed} is to blame")


def main(what):
    """Meet the others, and do it."""
    with towline.Device() as dev, towline.Arena(dev, region_bytes=4 << 20) as arena, \
            towline.Group(dev, towline.World.detect(), timeout=WAIT_S) as group, \
            towline.Comm(group, arena, timeout=WAIT_S) as comm:
        {"together": together, "lose": lose, "train": train,
         "train-lose": train_lose}[what](group, comm, arena)


if __name__ == "__main__":
    main(sys.argv[1])
