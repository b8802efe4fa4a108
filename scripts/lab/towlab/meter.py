# SPDX-License-Identifier: GPL-2.0
"""What the host took from a lab: time in which the guests had work and did not run.

The scheduler counts for how long each thread was ready to run and was not run (the
run-delay, second in /proc/PID/task/TID/schedstat).  Counted are the threads that a
guest's work goes through: QEMU's virtual processors, its main thread, from which timers,
disks and frames come, and the switch.  They are added up over all nodes, since
what a test waits for goes from one to the other; and so is what was stolen from the host's
processors (/proc/stat), as it may be a virtual machine itself.

That is the most that the host can have taken: of two that wait at once both are counted.
What a guest does to itself is not in it, such as a long time with interrupts off; nor is
a QEMU that was stopped by a signal, or waits for the disk to swap.

Samples are kept, so that a guest has to ask only when something took too long.
"""

import bisect
import collections
import contextlib
import os
import pathlib
import threading
import time

PERIOD_S = 0.1
KEPT_S = 1200
TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")


def at(samples, when):
    """What a list of (time, count) says of a time; between two, on the line between them."""
    place = bisect.bisect_left(samples, (when,))
    if place == 0:
        return samples[0][1]
    if place == len(samples):
        return samples[-1][1]
    (before, low), (after, high) = samples[place - 1:place + 1]
    return low + (high - low) * (when - before) / (after - before)


def works_for_guest(task):
    """Is this thread of QEMU's one that the guest's work goes through?"""
    return (task.parts[2] == task.name or
            (task / "comm").read_text().startswith("CPU "))


def stolen_ns():
    """From all the host's processors since it booted."""
    with open("/proc/stat", encoding="ascii") as stat:
        return int(stat.readline().split()[8]) * TICK_NS


class _Thread:
    """One thread: what it had to wait since it is looked at."""

    def __init__(self, task):
        self.file = os.open(task / "schedstat", os.O_RDONLY | os.O_CLOEXEC)
        self.waited = 0
        self.first = self._read()

    def _read(self):
        return int(os.pread(self.file, 128, 0).split()[1])

    def look(self):
        """False: it has ended."""
        try:
            self.waited = self._read() - self.first
            return True
        except ProcessLookupError:
            return False

    def close(self):
        """It is not looked at again."""
        os.close(self.file)


class Meter:
    """Samples what the host takes, all the time."""

    def __init__(self):
        self.lock = threading.Lock()
        self.threads = []
        self.ended_ns = 0
        self.first_stolen = stolen_ns()
        self.samples = collections.deque(maxlen=int(KEPT_S / PERIOD_S))
        self.over = threading.Event()
        self._sample()
        threading.Thread(target=self._run, daemon=True).start()

    def watch(self, pid):
        """Count a process from now on: QEMU, or the switch."""
        # It, or a thread of it, may have ended already.
        ended = contextlib.suppress(FileNotFoundError, ProcessLookupError)
        with self.lock, ended:
            for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
                with ended:
                    if works_for_guest(task):
                        self.threads.append(_Thread(task))

    def close(self):
        """No more samples."""
        self.over.set()
        with self.lock:
            while self.threads:
                self.threads.pop().close()

    def took_ns(self, since_s=None, until_s=0):
        """Between two moments, so many seconds ago; since the lab began without the first."""
        now = time.monotonic()
        self._sample()
        with self.lock:
            samples = list(self.samples)
        begin = samples[0][1] if since_s is None else at(samples, now - since_s)
        end = samples[-1][1] if not until_s else at(samples, now - until_s)
        return max(0, int(end - begin))

    def _run(self):
        while not self.over.wait(PERIOD_S):
            self._sample()

    def _sample(self):
        with self.lock:
            for thread in self.threads[:]:
                if not thread.look():
                    thread.close()
                    self.threads.remove(thread)
                    self.ended_ns += thread.waited
            count = (sum(thread.waited for thread in self.threads) + self.ended_ns +
                     stolen_ns() - self.first_stolen)
            self.samples.append((time.monotonic(), count))
