# SPDX-License-Identifier: GPL-2.0
"""A node that is its own peer, for the tests that need one."""

import contextlib
import gc
import os
import pathlib
import signal
import sys
import time
import traceback

import pytest

import towline

CLASS = pathlib.Path("/sys/class/towline")
WAIT_S = 60
MIB = 1 << 20


def sysfs(file):
    """A file of the device's."""
    return next(CLASS.iterdir()) / file


def own_address():
    """This node's in the lab."""
    return os.environ["TOW_LAB_ADDRS"].split(",")[int(os.environ["TOW_LAB_NODE"])]


def used_bytes():
    """Of the device's pool."""
    return int(sysfs("pool_used_bytes").read_text())


def becomes(good, seconds=20):
    """Wait until that is so."""
    end = time.monotonic() + seconds
    while not good():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


@pytest.fixture(name="node")
def _node():
    """The node has a pool, and all of it is free again in the end."""
    sysfs("pool_bytes").write_text("64m")
    sysfs("allow_unauthenticated").write_text("1")
    yield sysfs("").name
    gc.collect()
    becomes(lambda: used_bytes() == 0)


@pytest.fixture(name="dev")
def _dev(node):
    """A device."""
    assert towline.devices() == [node]
    with towline.Device() as dev:
        yield dev


@pytest.fixture(name="arena")
def _arena(dev):
    """An arena that looks whether anybody writes where he may not."""
    with towline.Arena(dev, region_bytes=4 * MIB, debug=True) as arena:
        yield arena


@pytest.fixture(name="peer")
def _peer(dev):
    """The node itself."""
    with towline.Peer(dev, own_address(), 30) as peer:
        yield peer


@pytest.fixture(name="worker")
def _worker(dev, arena):
    """A worker."""
    with towline.Worker(dev, arena) as worker:
        yield worker


class Only:     # pylint: disable=too-few-public-methods
    """An array that has nothing but DLPack."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, stream=None):
        return self._array.__dlpack__()


class Child:
    """A process of its own, forked from one that has opened nothing, so that NumPy is there.

    It runs function(*arguments), and ends with 0 if that raises nothing.
    """

    every = []

    def __init__(self, function, *arguments):
        sys.stdout.flush()
        self.status = None
        self.pid = os.fork()
        if not self.pid:
            self._run(function, arguments)
        self.every.append(self)

    @staticmethod
    def _run(function, arguments):
        status = 1
        try:
            signal.alarm(2 * WAIT_S)
            function(*arguments)
            gc.collect()
            status = 0
        except BaseException:   # pylint: disable=broad-except
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)

    def kill(self):
        """At once."""
        os.kill(self.pid, signal.SIGKILL)

    def wait(self):
        """Its exit status, or less than 0."""
        if self.status is None:
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.status


@pytest.fixture(name="children")
def _children(node):
    """Makes processes, which end with the test: children(function, *arguments)."""
    del node
    Child.every = []
    yield Child
    for child in Child.every:
        if child.status is None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            child.wait()
