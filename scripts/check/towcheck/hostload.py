# SPDX-License-Identifier: GPL-2.0
"""Whether others kept the host's processors busy while something was measured.

Two processes that spin, and a third that wants their processors, wait for each
other's time slices: a write of 50 us then takes 4000.  What this process and
all that it has started take (QEMU's threads, the switch) is what is measured,
and no such third.
"""

import dataclasses
import os
import pathlib

# Of the processors' time; more is noted.
BUSY_SHARE = 0.1
PROC = pathlib.Path("/proc")


@dataclasses.dataclass(frozen=True)
class Sample:
    """Ticks since the host booted: all processors', and those that others had."""
    every: int
    others: int


def own_ticks(pid, proc):
    """Those of a process and of all that it has started, ended ones included."""
    ticks, children = {}, {}
    for path in proc.glob("[0-9]*/stat"):
        try:
            words = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue            # ended meanwhile
        # From the third on: state ppid ... utime stime cutime cstime (proc(5))
        ticks[int(path.parent.name)] = sum(map(int, words[11:15]))
        children.setdefault(int(words[1]), []).append(int(path.parent.name))
    total, those = 0, [pid]
    while those:
        one = those.pop()
        total += ticks.get(one, 0)
        those += children.get(one, [])
    return total


def sample(pid=None, proc=PROC):
    """What it is now; steal is what a hypervisor's other guests have had."""
    own = own_ticks(pid or os.getpid(), proc)
    columns = (proc / "stat").read_text().split("\n", maxsplit=1)[0].split()[1:9]
    user, nice, system, idle, iowait, irq, softirq, steal = map(int, columns)
    busy = user + nice + system + irq + softirq + steal
    return Sample(busy + idle + iowait, busy - own)


def others_share(before, after):
    """The part of all processors' time that others had between two samples."""
    every = after.every - before.every
    return max(0.0, (after.others - before.others) / every) if every else 0.0


def note(before, after):
    """What to say of the time between two samples; nothing where it was quiet."""
    share = others_share(before, after)
    if share <= BUSY_SHARE:
        return ""
    return f"the host was busy: others had {share:.0%} of its processors' time"
