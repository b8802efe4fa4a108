# SPDX-License-Identifier: GPL-2.0
"""Commands on the host: builds and host tests."""

import contextlib
import os
import signal
import subprocess
import sys
import time

from . import TOP, UserError
from .judge import Outcome

# make's own variables would make a make inside a test or a build think that
# it shares this one's job server and goals.
_MAKE_OWN = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES",
             "MAKE_TERMOUT", "MAKE_TERMERR", "TESTS", "BENCH", "SOAK",
             "SOAK_MINUTES")
GRACE_SECONDS = 10
# What runs at the moment, maybe in several threads.
_running = set()


def environment(**more):
    """The caller's environment without make's.

    An ordinary user of Debian does not have the folders of modinfo and dkms
    in PATH.
    """
    clean = {name: value for name, value in os.environ.items()
             if name not in _MAKE_OWN}
    clean["PATH"] = clean.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"
    return dict(clean, **more)


def _end(process):
    """Stop a command and what it started, machines it booted included."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=GRACE_SECONDS)
            break


def end_all():
    """Stop every command that run() waits for in some thread."""
    for process in list(_running):
        _end(process)


def run(command, log, timeout, env=None):
    """Run a command from the top of the tree; its output goes to log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    out, err = log.with_suffix(".out"), log.with_suffix(".err")
    timed_out = False
    with open(out, "wb") as stdout, open(err, "wb") as stderr:
        process = subprocess.Popen(
            command, cwd=TOP, stdin=subprocess.DEVNULL, stdout=stdout,
            stderr=stderr, env=env or environment(), start_new_session=True)
        _running.add(process)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            # Also what a finished test left running in its group.
            _end(process)
            _running.discard(process)
    texts = [path.read_text(errors="replace") for path in (out, err)]
    out.unlink()
    err.unlink()
    log.write_text(f"$ {' '.join(map(str, command))}\n{texts[0]}"
                   f"{'--- stderr' + chr(10) if texts[1] else ''}{texts[1]}")
    return Outcome(None if timed_out else process.returncode, *texts,
                   time.monotonic() - started, timed_out)


def _leave(number, _frame):
    """kill ends a runner as Ctrl-C does: through its finally clauses."""
    raise SystemExit(128 + number)


def guarded(name, main):
    """Run a runner's main; the exit status for whatever ends it."""
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, _leave)
    try:
        return main()
    except UserError as problem:
        print(f"{name}: {problem}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as problem:
        # What went wrong was printed by the command itself.
        print(f"{name}: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return 130
