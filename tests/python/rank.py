# SPDX-License-Identifier: GPL-2.0
"""A rank of a job, as its launcher's variables say: rank.py together|lose."""

import asyncio
import os
import signal
import sys

import numpy as np

import towline

WAIT_S = 60
STEPS = 5


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
    with towline.Worker(group.device, arena) as worker:
        asyncio.run(pass_on(worker, group))
    print("done")


def lose(group, comm, arena):
    """Rank 2 is killed on the way."""
    reduce = comm.allreduce(arena.zeros(1000, "f4"))
    reduce()
    if group.rank == 2:
        print("goes", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while True:
            reduce()
    except towline.Error as error:
        print(f"rank {error.blamed} is to blame")


def main(what):
    """Meet the others, and do it."""
    with towline.Device() as dev, towline.Arena(dev, region_bytes=4 << 20) as arena, \
            towline.Group(dev, towline.World.detect(), timeout=WAIT_S) as group, \
            towline.Comm(group, arena, timeout=WAIT_S) as comm:
        {"together": together, "lose": lose}[what](group, comm, arena)


if __name__ == "__main__":
    main(sys.argv[1])
