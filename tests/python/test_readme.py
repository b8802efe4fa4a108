# SPDX-License-Identifier: GPL-2.0
"""The blocks of python/README.md, as they are printed there: each runs, and does what it is there for.

Each by as many processes as it is about, on a node that is its own peer.  PyTorch's are not among them.
"""

import ast
import asyncio
import contextlib
import inspect
import os
import pathlib
import pickle
import re

import numpy as np
import pytest

import towline
from conftest import MIB, becomes, own_address

README = pathlib.Path(__file__).resolve().parents[2] / "python/README.md"
TEXT = README.read_text(encoding="utf-8").partition("\n## PyTorch\n")[0]
BLOCKS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
STEPS = 4


class Enough(Exception):
    """A loop without an end has gone on for long enough."""


def execute(text, **names):
    """Run a block, which may await, with the names that it leaves open: those that it has made, too."""
    names = {"towline": towline, "np": np, **names}
    code = compile(text, str(README), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    begun = eval(code, names)   # pylint: disable=eval-used
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(begun)
    return names


@contextlib.contextmanager
def opened():
    """What most blocks leave open."""
    world = towline.World.detect()
    with towline.Device() as dev, towline.Arena(dev, region_bytes=4 * MIB) as arena, \
            towline.Group(dev, world) as group, towline.Comm(group, arena) as comm, \
            towline.Worker(dev, arena) as worker, towline.Peer(dev, own_address(), 30) as peer:
        yield {"dev": dev, "arena": arena, "world": world, "group": group, "comm": comm,
               "worker": worker, "peer": peer}


def trains(rank, block):
    """Of each batch all have the average."""
    seen = []

    def compute(batch, gradient):
        seen.append(gradient[-1])
        gradient[:] = rank + batch

    left = execute(block, batches=range(STEPS), compute=compute)
    assert [*seen, left["gradient"][-1]] == list(range(STEPS + 1))


def calls(rank, block):
    """Averages of gradients of NumPy's own, and a sum."""
    said, gradients = [], [np.full(count, rank + 1.0) for count in (3, 5000)]
    execute(block, gradients=gradients, print=said.append)
    assert all((gradient == 1.5).all() for gradient in gradients) and said == [1.0]


def letter(rank, block):
    """From rank 0 to rank 1."""
    said, buffer = [], np.zeros(1000)
    with opened() as names:
        execute(block.split("\n\n")[rank], activations=np.arange(1000.0), buffer=buffer, **names,
                print=lambda *words: said.append(words))
    assert not rank or (said == [(0, 3, 8000)] and (buffer == np.arange(1000)).all())


def edge(rank, block):
    """A step."""
    array = np.arange(32 * 1024, dtype="f4").reshape(32, 1024)

    def compute(came):
        raise Enough(np.array_equal(came, array))

    with opened() as names, contextlib.ExitStack() as stack:
        enough = None if rank else stack.enter_context(pytest.raises(Enough))
        execute(block.split("\n\n")[rank], array=array, compute=compute, **names)
    assert rank or enough.value.args == (True,)


def mailbox(rank, block):
    """It asserts itself that the message has come."""
    with opened() as names:
        execute(block.split("\n\n")[rank], **names)


def parameters(rank, block):
    """Values are what NumPy makes of the average gradients."""
    def compute(_, gradients):
        for gradient in gradients:
            gradient[...] = rank

    initial = [np.full((3, 5), 7.0, "f4"), np.full(1000, 8.0)]
    with opened() as names:
        left = execute(block, initial=initial, steps=STEPS, compute=compute, **names)
    moved = velocity = 0
    for _ in range(STEPS):
        velocity = 0.9 * velocity + 1.5
        moved += 0.1 * velocity
    assert not rank or all(np.allclose(*pair) for pair in zip(left["values"], (7 - moved, 8 - moved)))


def jobs(rank, block):
    """Each has the batches that were planned for it."""
    images, labels, seen = np.random.default_rng(1).random((100, 64), "f4"), np.arange(100), []

    def plan(whose, step):
        return (np.arange(32) * 3 + 10 * whose + step) % 100

    def compute(x, y):
        assert np.array_equal(x, images[y]) and np.array_equal(y, plan(rank, len(seen)))
        seen.append(y[0])

    with opened() as names:
        execute(block, images=images, labels=labels, plan=plan, steps=STEPS, compute=compute, **names)
    assert len(seen) == (STEPS if rank else 0)


def queue(_, block):
    """What is written is there, and what was there has been read."""
    offsets, remote_offsets = np.array([65536, 8192]), np.array([131072, 196608])
    everything = towline.Right.READ | towline.Right.WRITE
    with opened() as names, towline.Region(names["dev"], MIB) as region, \
            towline.Region(names["dev"], MIB) as there, towline.Export(there, "name", everything), \
            towline.Remote(names["peer"], "name", everything) as remote:
        here, there = (one.array(MIB, "u1") for one in (region, there))
        here[:], there[:] = (np.random.default_rng(seed).integers(0, 256, MIB, "u1") for seed in (1, 2))
        before = here.copy()
        execute(block, region=region, remote=remote, offsets=offsets, remote_offsets=remote_offsets, **names)
        assert np.array_equal(there[:4096], before[:4096])
        assert np.array_equal(here[:4096], there[65536:69632])
        assert all(np.array_equal(there[far:far + 4096], before[near:near + 4096])
                   for near, far in zip(offsets, remote_offsets))


def agents(rank, block):
    """Two blocks, and what is told of them."""
    file = pathlib.Path(f"/run/agent-{os.getppid()}")
    cache, blocks = np.zeros(MIB, "u1"), np.arange(MIB, dtype="u4").astype("u1")

    def put(*what):
        file.with_suffix(".new").write_bytes(pickle.dumps(what))
        file.with_suffix(".new").rename(file)

    def get():
        becomes(file.exists)
        return pickle.loads(file.read_bytes())

    with towline.Device() as dev:
        left = execute(block.split("\n\n")[rank], dev=dev, cache=cache, blocks=blocks, put=put, get=get)
        assert rank or left["told"] == b"both are there" and left["name"]
        assert rank or np.array_equal(cache[:8192], np.concatenate([blocks[:4096], blocks[8192:12288]]))
        left["agent"].close()
    if not rank:
        file.unlink()


# In the README's order, each with the number of its processes.
CASES = [(trains, 3), (calls, 2), (letter, 2), (edge, 2), (mailbox, 2), (parameters, 3),
         (jobs, 3), (queue, 1), (agents, 2)]


def test_every_block():
    """There is none that is not run."""
    assert len(BLOCKS) == len(CASES)


def begin(rank, ranks, case, block):
    """One process."""
    os.environ.update(TOW_RANK=str(rank), TOW_WORLD_SIZE=str(ranks), TOW_LOCAL_RANK=str(rank),
                      TOW_LOCAL_SIZE=str(ranks), TOW_SESSION=f"{case.__name__} {os.getppid()}")
    case(rank, block)


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case.__name__ for case, _ in CASES])
def test_block(number, children):
    """It runs."""
    case, ranks = CASES[number]
    started = [children(begin, rank, ranks, case, BLOCKS[number]) for rank in range(ranks)]
    assert [child.wait() for child in started] == [0] * ranks
