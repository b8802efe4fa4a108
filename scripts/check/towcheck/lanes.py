# SPDX-License-Identifier: GPL-2.0
"""Machines side by side: which run when, and who wants none beside it."""

import contextlib
import math
import os
import threading
from concurrent.futures import ThreadPoolExecutor

from . import boot

LANES = 2
# For the host itself, and what QEMU needs beyond the guests' memory.
SPARE_MIB = 3072
# Under kernels that check everything tests take several times as long.
SLOW_KERNELS = ("debug", "debug-6.1", "kcsan")
SLOWER = 3
# Tests of several nodes take more of the time that they may take: 28 % and not 7 %.
LONGER = 4


class Turn:
    """Sections that run side by side, and sections that run alone.

    Who wants to be alone waits for those that run, and lets no other begin.
    """

    def __init__(self):
        self._changed = threading.Condition()
        self._running = 0
        self._alone = False
        self.wanting = 0        # how many wait to be alone

    @contextlib.contextmanager
    def taken(self, alone):
        """Hold a turn."""
        with self._changed:
            if alone:
                self.wanting += 1
                self._changed.wait_for(
                    lambda: not self._running and not self._alone)
                self.wanting -= 1
                self._alone = True
            else:
                self._changed.wait_for(
                    lambda: not self._alone and not self.wanting)
                self._running += 1
        try:
            yield
        finally:
            with self._changed:
                if alone:
                    self._alone = False
                else:
                    self._running -= 1
                self._changed.notify_all()


def available_mib():
    """Memory that the host can give without paging."""
    with open("/proc/meminfo") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["MemAvailable"].split()[0]) // 1024


def how_many(groups, mib, processors):
    """How many machines to run at once: what the largest may need fits."""
    needs = sorted((machine.nodes * machine.mem for machine, _ in groups),
                   reverse=True)
    room = sum(needs[:LANES]) + SPARE_MIB <= mib
    return LANES if room and processors >= LANES else 1


def longest_first(groups):
    """In the order in which they begin: none long is left over at the end."""
    def weight(item):
        machine, tests = item
        return (sum(test.timeout for test in tests) *
                (SLOWER if machine.kernel in SLOW_KERNELS else 1) *
                (LONGER if machine.nodes > 1 else 1))
    return sorted(groups, key=weight, reverse=True)


def run(groups, logs, skips, keep, until=math.inf):
    """Run the tests of all machines: (results, note) of each, in order."""
    turn = Turn()
    processors = len(os.sched_getaffinity(0))
    lanes = ThreadPoolExecutor(how_many(groups, available_mib(), processors))
    with lanes:
        try:
            begun = {machine: lanes.submit(boot.run_group, machine, tests,
                                           logs, skips, turn, keep, until)
                     for machine, tests in longest_first(groups)}
            for machine, _ in groups:
                yield begun[machine].result()
        except BaseException:
            lanes.shutdown(wait=False, cancel_futures=True)
            boot.end_all()
            raise
