# SPDX-License-Identifier: GPL-2.0
"""Progress: one plain line for each thing that begins or ends."""

import time

_started = time.monotonic()


def elapsed():
    """Seconds since the runner started."""
    return time.monotonic() - _started


def clock(seconds):
    """83.4 -> '1:23'."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def say(text):
    """Print one line of progress, with the time since the start."""
    print(f"[{clock(elapsed()):>5}] {text}", flush=True)


def result(where, name, status, seconds, reason=""):
    """Print how one test ended."""
    line = f"{where:<9} {name:<34} {status:<4} {seconds:6.1f} s"
    say(line + (f"  {reason}" if reason else ""))
