# SPDX-License-Identifier: GPL-2.0
"""Ranks that are processes of this node, for tests that are programs.

together() forks them from a process that has opened nothing itself.
"""

import os
import pathlib
import pickle
import signal
import sys
import time
import traceback

TOP = pathlib.Path(__file__).resolve().parents[2]
os.environ.setdefault("TOWLINE_LIBRARY", str(TOP / "build/lib/libtowline.so.0"))
sys.path.insert(0, str(TOP / "python"))
sys.dont_write_bytecode = True

import towline      # noqa: E402

MIB = 1 << 20
WAIT_S = 60
SESSION = f"field {os.getpid()}"


def prepare(pool):
    """The node has such a pool, and trusts itself."""
    device = next(pathlib.Path("/sys/class/towline").iterdir())
    (device / "pool_bytes").write_text(pool)
    (device / "allow_unauthenticated").write_text("1")


def own_address():
    """This node's in the lab."""
    return os.environ["TOW_LAB_ADDRS"].split(",")[int(os.environ["TOW_LAB_NODE"])]


class Me:
    """A rank, with all that it needs."""

    def __init__(self, rank, ranks, timeout=WAIT_S, region_bytes=4 * MIB):
        self.rank, self.ranks = rank, ranks
        self.dev = towline.Device()
        world = towline.World(rank, ranks, session=SESSION, restart=0)
        self.group = towline.Group(self.dev, world, timeout=WAIT_S)
        self.arena = towline.Arena(self.dev, region_bytes=region_bytes)
        self.comm = towline.Comm(self.group, self.arena, timeout=timeout)

    def close(self):
        """In order."""
        for one in (self.comm, self.group, self.arena, self.dev):
            one.close()


def _run(function, rank, pipe, seconds):
    status = 1
    try:
        signal.alarm(seconds)
        told = pickle.dumps(function(rank))
        while told:
            told = told[os.write(pipe, told):]
        status = 0
    except BaseException:   # pylint: disable=broad-except
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def together(ranks, function, seconds=100):
    """What function(rank) returns at each of them; the program ends if one of them fails."""
    pids, pipes = [], []
    for rank in range(ranks):
        reads, writes = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(reads)
            _run(function, rank, writes, seconds)
        os.close(writes)
        pids.append(pid)
        pipes.append(reads)
    told = [os.fdopen(pipe, "rb").read() for pipe in pipes]
    ends = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    if any(ends):
        sys.exit(f"ranks ended with {ends}")
    return [pickle.loads(one) for one in told]


def done(wrong, began):
    """Say what is wrong, if anything is, and end."""
    for text in sorted(set(wrong)):
        print("wrong:", text)
    print(f"{time.monotonic() - began:.1f} s")
    sys.exit(1 if wrong else 0)
