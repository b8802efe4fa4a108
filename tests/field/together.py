# SPDX-License-Identifier: GPL-2.0
"""What the tests of this folder on one node share: ranks that are processes; cases, as KTAP."""

import gc
import os
import pathlib
import pickle
import signal
import sys
import tempfile
import time
import traceback

TOP = pathlib.Path(__file__).resolve().parents[2]
os.environ.setdefault("TOWLINE_LIBRARY", str(TOP / "build/lib/libtowline.so.0"))
sys.dont_write_bytecode = True
sys.path[:0] = [str(TOP / "python"), str(TOP / "tests/lab")]

import clock            # noqa: E402
import towline          # noqa: E402

MIB = 1 << 20
# Nothing that goes well takes so long, and what goes wrong is told in less.
WAIT_S = 60
SYSFS = "/sys/class/towline/"
SESSION = f"field {os.getpid()}"


def must(good, *said):
    """Go on only if that is so."""
    if not good:
        raise AssertionError(" ".join(str(word) for word in said))


def sysfs(file):
    """A file of the device's."""
    return next(pathlib.Path(SYSFS).iterdir()) / file


def own_address():
    """This node's in the lab."""
    return os.environ["TOW_LAB_ADDRS"].split(",")[int(os.environ["TOW_LAB_NODE"])]


class Rank:
    """A process, forked from one that has opened nothing, that calls function(*arguments).

    What comes of it is in value, or in error: an exception's type, errno, text and traceback.
    """

    every = []

    def __init__(self, function, *arguments, env=None):
        self.value = self.error = self.status = None
        self.said = tempfile.TemporaryFile()
        sys.stdout.flush()
        self.pid = os.fork()
        if not self.pid:
            self._run(function, arguments, env or {})
        self.every.append(self)

    def _run(self, function, arguments, env):
        answer = None
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.environ.update({name: str(value) for name, value in env.items()})
            answer = ("value", function(*arguments))
            gc.collect()
        except BaseException as error:   # pylint: disable=broad-except
            answer = ("error", (type(error).__name__, getattr(error, "errno", None), str(error),
                                traceback.format_exc()))
        finally:
            self.said.write(pickle.dumps(answer))
            self.said.flush()
            sys.stderr.flush()
            os._exit(0)

    def ended(self):
        """Has it?"""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = status
        return self.status is not None

    def wait(self, seconds=WAIT_S):
        """Until it has ended; who takes longer is killed, and hangs."""
        patience = clock.Patience(seconds)
        while not self.ended():
            if not patience.left():
                self.kill()
                self.error = ("hangs", None, f"for {seconds} s", "")
                return self
            time.sleep(0.01)
        self.said.seek(0)
        data = self.said.read()
        if data:
            setattr(self, *pickle.loads(data))
        return self

    def kill(self):
        """At once."""
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.status = os.waitpid(self.pid, 0)[1]

    def __repr__(self):
        return "{0} {1}: {2}\n{3}".format(*self.error) if self.error else str(self.value)


def together(count, function, *arguments, env=None, seconds=WAIT_S):
    """Ranks 0 to count - 1 of function(rank, *arguments), the last one first; all have ended."""
    ranks = [Rank(function, rank, *arguments, env=env and env(rank))
             for rank in reversed(range(count))][::-1]
    return [rank.wait(seconds) for rank in ranks]


class Me:
    """A rank, with all that it needs."""

    def __init__(self, rank, ranks, timeout=WAIT_S, region_bytes=16 * MIB):
        self.rank = rank
        self.dev = towline.Device()
        world = towline.World(rank, ranks, session=SESSION, restart=0)
        self.group = towline.Group(self.dev, world, timeout=WAIT_S)
        self.arena = towline.Arena(self.dev, region_bytes=region_bytes)
        self.comm = towline.Comm(self.group, self.arena, timeout=timeout)

    def close(self):
        """In order."""
        for one in (self.comm, self.group, self.arena, self.dev):
            one.close()


def nothing_wrong(ranks, function, seconds=WAIT_S):
    """What function(Me) says at each of so many ranks, a list of what is wrong, is nothing."""
    def with_all(rank):
        me = Me(rank, ranks, seconds)
        wrong = function(me)
        me.close()
        return wrong

    every = together(ranks, with_all, seconds=seconds)
    must(not any(rank.error for rank in every), every)
    must(not any(rank.value for rank in every),
         "; ".join(sorted({text for rank in every for text in rank.value})))


def told(count=1):
    """A way for @count processes to tell this one that they are so far: come(), and came()."""
    read, write = os.pipe()

    def come():
        os.write(write, b".")

    def came():
        for _ in range(count):
            must(os.read(read, 1), "nobody came")

    return come, came


def run(*cases, pool="64m"):
    """All of check_NAME(), or those that are named, with such a pool."""
    cases = [case for case in cases
             if not sys.argv[1:] or case.__name__[6:] in sys.argv[1:]]
    print(f"KTAP version 1\n1..{len(cases)}", flush=True)
    sysfs("pool_bytes").write_text(pool)
    sysfs("allow_unauthenticated").write_text("1")
    failed = False
    for number, case in enumerate(cases, 1):
        begin, error = clock.now(), None
        try:
            case()
        except Exception as problem:    # pylint: disable=broad-except
            error = problem
        for rank in Rank.every:
            rank.kill()
        Rank.every.clear()
        print(f"# {clock.now() - begin:.1f} s")
        failed |= clock.result(number, case.__name__[6:], error)
    sys.stdout.flush()
    sys.exit(failed)
