# SPDX-License-Identifier: GPL-2.0
"""Bounds on time, judged with the machine in view, as tests/kselftest/tow_clock.h does.

	begin = clock.now()
	...
	clock.within(begin, 1, "the answer")	# came within a second

	patience = clock.Patience(20)
	while not condition and patience.left():
	    time.sleep(0.01)

The time is a guest's; only where a bound was passed is the host asked how much of it it
took.  result() prints how a case ended: after StoodStill as a skip, for which scripts/check
repeats the program.
"""

import socket
import struct
import time

# scripts/lab/guest/frame.h: a type, a channel and a length.
AGENT = "/run/towlab/sock"
FRAME = struct.Struct("<BII")
ASK_S = 10
KEPT, MISSED, STOOD_STILL = "kept", "missed", "stood still"

now = time.monotonic


class StoodStill(Exception):
    """The host took so much that nothing can be said."""


def _exactly(agent, size):
    data = b""
    while len(data) < size:
        part = agent.recv(size - len(data))
        if not part:
            raise ConnectionError
        data += part
    return data


def host(begin, end):
    """Seconds that the host took between, at most; 0 where nobody can say."""
    at = now()
    words = ["ctl", "/", "took", f"{(at - begin) * 1e3:.0f}", f"{(at - end) * 1e3:.0f}"]
    request = "".join(word + "\0" for word in words).encode()
    try:
        with socket.socket(socket.AF_UNIX) as agent:
            agent.settimeout(ASK_S)
            agent.connect(AGENT)
            agent.sendall(FRAME.pack(ord("Q"), 0, len(request)) + request)
            kind, _, size = FRAME.unpack(_exactly(agent, FRAME.size))
            text = _exactly(agent, size)
            return int(text) / 1e9 if kind == ord("O") else 0
    except OSError:
        return 0


def verdict(elapsed, limit, took):
    """What is to be said of a bound."""
    if elapsed <= limit:
        return KEPT
    return STOOD_STILL if elapsed - took <= limit else MISSED


def words(elapsed, limit, took):
    """The same, in numbers."""
    return f"{elapsed * 1e3:.0f} ms of {limit * 1e3:.0f}, {took * 1e3:.0f} of them the host's"


def within(begin, limit, *what, end=None):
    """It took so many seconds at most, until now or a moment before; how many."""
    end = now() if end is None else end
    elapsed = end - begin
    if elapsed <= limit:
        return elapsed
    took = host(begin, end)
    said = words(elapsed, limit, took)
    if verdict(elapsed, limit, took) == STOOD_STILL:
        raise StoodStill(said)
    raise TimeoutError(" ".join([*map(str, what), "took", said]))


def result(number, name, error=None):
    """Print the result of a case, and what ended it if that was an error: has it failed?"""
    if isinstance(error, StoodStill):
        print(f"ok {number} {name} # SKIP stood still: {error}", flush=True)
        return False
    if error is not None:
        print(f"# {type(error).__name__}: {error}".replace("\n", "\n# "))
    print("ok" if error is None else "not ok", number, name, flush=True)
    return error is not None


class Patience:
    """So many seconds of the machine's own time."""

    def __init__(self, seconds):
        self.begin, self.seconds = now(), seconds
        self.end = self.begin + seconds

    def left(self):
        """Is there any?  The host is asked where there seems to be none."""
        at = now()
        if at < self.end:
            return True
        # Nobody stood still for longer than it took.
        self.end = self.begin + self.seconds + min(host(self.begin, at), at - self.begin)
        return at < self.end
