# SPDX-License-Identifier: GPL-2.0
"""A model that outlives its process: each life is a process that is forked here, which opens no device."""

import copy
import os
import random
import signal
import time
import traceback

import towline
from ranks import marked, raises, torch

persistent = towline.torch.persistent
KILLS = 200
# A life's longest, from when it has taken over.
LIFE_S = 0.12
OPTIMIZERS = {
    "sgd": lambda some: torch.optim.SGD(some, lr=0.1, momentum=0.9, dampening=0.1),
    "adam": lambda some: torch.optim.AdamW(some, lr=0.01),
    "adagrad": lambda some: torch.optim.Adagrad(some, lr=0.01),
    "rmsprop": lambda some: torch.optim.RMSprop(some, lr=0.01, centered=True),
}


def net(width=50):
    """With buffers, and types other than float32."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(20, width), torch.nn.BatchNorm1d(width),
                                torch.nn.Linear(width, 5))
    model.register_buffer("sevens", torch.ones(7, dtype=torch.bfloat16))
    return model


def step_of(model, optimizer, step):
    """The same in all lives."""
    generator = torch.Generator().manual_seed(step)
    optimizer.zero_grad()
    model(torch.randn(16, 20, generator=generator)).square().mean().backward()
    optimizer.step()
    model.sevens += 1
    optimizer.param_groups[0]["lr"] *= 0.99


def state_of(model, optimizer):
    """All of it, as it is saved."""
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


def equal(one, other):
    """Bit for bit."""
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(equal, one, other))
    return one == other


def alone(kind, steps):
    """What becomes of it in one life."""
    model = net()
    optimizer = OPTIMIZERS[kind](model.parameters())
    for step in range(1, steps + 1):
        step_of(model, optimizer, step)
    return state_of(model, optimizer)


def live(function, *arguments):
    """In a process of its own: how it ended."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            function(*arguments)
            status = 0
        except BaseException:   # pylint: disable=broad-exception-caught
            traceback.print_exc()
        os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@marked(ranks=1)
def test_lives(*_):
    """Three of them, of each optimizer: the same as one."""
    def life(kind, begin, end):
        model = net()
        optimizer = OPTIMIZERS[kind](model.parameters())
        kept = persistent(model, optimizer, kind)
        assert kept.step == (begin or None), kept.step
        for step in range(begin + 1, end + 1):
            step_of(model, optimizer, step)
            kept.commit(step)
        assert equal(state_of(model, optimizer), alone(kind, end))
        if end == 9:
            kept.destroy()
            step_of(model, optimizer, 10)

    for kind in OPTIMIZERS:
        for begin, end in ((0, 3), (3, 6), (6, 9)):
            assert live(life, kind, begin, end) == 0
    assert live(life, "sgd", 0, 1) == 0, "it was destroyed"
    assert live(lambda: persistent(model := net(), OPTIMIZERS["sgd"](model.parameters()),
                                   "sgd").destroy()) == 0


@marked(ranks=1)
def test_other_layouts(*_):
    """Refused, and what is kept stays."""
    def first():
        model = net()
        optimizer = OPTIMIZERS["adam"](model.parameters())
        kept = persistent(model, optimizer, "layout")
        step_of(model, optimizer, 1)
        kept.commit(1)
        first_two = list(optimizer.state.values())[0]
        first_two["exp_avg"], first_two["exp_avg_sq"] = first_two["exp_avg_sq"], first_two["exp_avg"]
        kept.commit(1)
        assert equal(first_two["exp_avg"], list(alone("adam", 1)["optimizer"]["state"].values())[0]
                     ["exp_avg_sq"]), "they were exchanged"
        first_two["exp_avg"], first_two["exp_avg_sq"] = first_two["exp_avg_sq"], first_two["exp_avg"]
        kept.commit(1)
        optimizer.state.clear()
        with raises(ValueError, "was there at the first"):
            kept.commit(2)

    def second():
        for width, words in ((60, ("module 0.weight", "50, 20", "60, 20")),):
            model = net(width)
            with raises(ValueError, *words):
                persistent(model, OPTIMIZERS["adam"](model.parameters()), "layout")
        model = torch.nn.Sequential(torch.nn.Linear(20, 50))
        with raises(ValueError, "has module"):
            persistent(model, OPTIMIZERS["adam"](model.parameters()), "layout")
        model = net()
        with raises(ValueError, "parameters"):
            persistent(model, OPTIMIZERS["adam"](list(model.parameters())[:2]), "layout")
        model = net()
        with raises(ValueError, "AdamW"):
            persistent(model, OPTIMIZERS["sgd"](model.parameters()), "layout")

    def third():
        model = net()
        optimizer = OPTIMIZERS["adam"](model.parameters())
        kept = persistent(model, optimizer, "layout")
        assert kept.step == 1 and equal(state_of(model, optimizer), alone("adam", 1))
        with raises(ValueError, "0 or more"):
            kept.commit(-1)
        kept.destroy()

    for life in (first, second, third):
        assert live(life) == 0


class Extra(torch.nn.Linear):
    """With something in its state that is not given back by replacing it."""

    def get_extra_state(self):
        """A tensor or anything."""
        return torch.ones(3)

    def set_extra_state(self, state):
        """Never called."""
        raise AssertionError(state)


@marked(ranks=1)
def test_plain(*_):
    """What is no tensor comes back as it was, or is refused."""
    things = {"tuple": (1, (2, [3, ()])), "list": [(1,), [2]], "dict": {"a": 1, 2: (3, {})}, "none": None,
              "number": 0.1, "text": "dict"}

    def life(step):
        model = net()
        optimizer = OPTIMIZERS["adam"](model.parameters())
        kept = persistent(model, optimizer, "plain")
        if step == 1:
            step_of(model, optimizer, 1)
            optimizer.param_groups[0]["things"] = things
            kept.commit(1)
            optimizer.param_groups[0]["things"] = {1, 2}
            with raises(ValueError, "cannot be kept"):
                kept.commit(2)
        else:
            assert kept.step == 1 and optimizer.param_groups[0]["things"] == things
            kept.destroy()
            model = Extra(2, 2)
            with raises(ValueError, "_extra_state"):
                persistent(model, OPTIMIZERS["adam"](model.parameters()), "extra").commit(0)

    for step in (1, 2):
        assert live(life, step) == 0


@marked(ranks=1)
def test_state_comes_later(*_):
    """A commit before the optimizer's first step has not all of its state: the next one says so."""
    def life():
        model = net()
        optimizer = OPTIMIZERS["adam"](model.parameters())
        kept = persistent(model, optimizer, "later")
        kept.commit(0)
        step_of(model, optimizer, 1)
        with raises(ValueError, "after the optimizer's first step"):
            kept.commit(1)
        kept.destroy()
    assert live(life) == 0


@marked(ranks=1)
def test_two_at_once(*_):
    """While one lives another one waits, and is refused."""
    def life():
        model = net()
        optimizer = OPTIMIZERS["sgd"](model.parameters())
        kept = persistent(model, optimizer, "two")
        step_of(model, optimizer, 1)
        kept.commit(1)

        def other():
            with raises(towline.Error, "taken"):
                persistent(again := net(), OPTIMIZERS["sgd"](again.parameters()), "two", timeout=0.5)
        assert live(other) == 0
        kept.destroy()
    assert live(life) == 0


@marked(ranks=1, seconds=900)
def test_kills(*_):
    """At random moments: what is taken over is a committed step, bit for bit."""
    random.seed(time.time_ns())
    wanted = {}
    reached = 0

    def life(write):
        model = net()
        optimizer = OPTIMIZERS["adam"](model.parameters())
        kept = persistent(model, optimizer, "killed")
        begin = kept.step or 0
        assert begin >= reached, (begin, reached)
        if begin:
            assert equal(state_of(model, optimizer), wanted[begin]), begin
        os.write(write, b"%9d\n" % begin)
        for step in range(begin + 1, begin + 1000):
            step_of(model, optimizer, step)
            kept.commit(step)
            os.write(write, b"%9d\n" % step)

    model = net()
    optimizer = OPTIMIZERS["adam"](model.parameters())
    known = 0
    for _ in range(KILLS):
        # What it may have reached, and a little more: by the same steps, in one life.
        for step in range(known + 1, reached + 3):
            step_of(model, optimizer, step)
            wanted[step] = copy.deepcopy(state_of(model, optimizer))
            known = step
        for old in [step for step in wanted if step < reached]:
            del wanted[old]
        read, write = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                life(write)
            except BaseException:   # pylint: disable=broad-exception-caught
                traceback.print_exc()
            os._exit(1)
        os.close(write)
        line = os.read(read, 10)
        assert line, "it ended by itself"
        reached = int(line)
        time.sleep(random.random() * LIFE_S)
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, "it ended by itself"
        while line := os.read(read, 10):
            reached = int(line)
        os.close(read)
    assert reached > KILLS / 4, reached
    print(reached, "steps in", KILLS, "lives")

    def last():
        model = net()
        kept = persistent(model, OPTIMIZERS["adam"](model.parameters()), "killed")
        assert kept.step in (reached, reached + 1)
        kept.destroy()
    assert live(last) == 0
