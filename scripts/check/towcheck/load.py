# SPDX-License-Identifier: GPL-2.0
"""How much of the host's processors others took while this process ran."""

import os
import resource
import time

# Of all processors' time: more of it, and the host was not idle.
IDLE = 0.1
_TICK = os.sysconf("SC_CLK_TCK")


def _busy():
    """Seconds that all processors were busy, or taken away by a hypervisor."""
    with open("/proc/stat") as file:
        words = [int(word) for word in file.readline().split()[1:9]]
    user, nice, system, _, _, irq, softirq, steal = words
    return (user + nice + system + irq + softirq + steal) / _TICK


def _own():
    """Seconds of this process and of all its children that have ended."""
    return sum(getattr(resource.getrusage(which), field)
               for which in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
               for field in ("ru_utime", "ru_stime"))


class Others:
    """Counts from its making on."""

    def __init__(self):
        self.start = time.monotonic(), _busy(), _own()

    def share(self):
        """Of all processors' time what others took; all children have ended."""
        at, busy, own = self.start
        spent = (time.monotonic() - at) * os.cpu_count()
        return max(0.0, (_busy() - busy - (_own() - own)) / spent)
