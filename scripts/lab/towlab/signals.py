# SPDX-License-Identifier: GPL-2.0
"""Ctrl-C and kill end a lab the ordinary way, so that nothing is left behind."""

import contextlib
import signal
import sys


@contextlib.contextmanager
def ends_cleanly():
    def leave(number, _frame):
        sys.exit(128 + number)

    kept = {n: signal.signal(n, leave) for n in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
