# SPDX-License-Identifier: GPL-2.0
"""What all clones of a user share: kernels, compiled objects, results.

	${TOW_CACHE:-${XDG_CACHE_HOME:-~/.cache}/towline}/
	kernels/	scripts/lab/kernel
	ccache/		what the compiler made of user code
	lint/		a file for each thing in which a linter found nothing
	results/	a file for each test that passed, by content (towcheck/content.py)
	history.jsonl	a line for each test that ran (towcheck/history.py)
	debs/, wheels-*/, fresh-*	tests/packaging/fresh
	lock		shared by runs, held alone by make clean-cache
"""

import contextlib
import fcntl
import functools
import os
import pathlib
import time

_OF_ALL = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
ROOT = pathlib.Path(os.environ.get("TOW_CACHE") or
                    pathlib.Path(_OF_ALL) / "towline")

KEPT_SECONDS = 30 * 24 * 3600


@functools.cache
def hold():
    """Let nobody clean the cache as long as this process lives."""
    ROOT.mkdir(parents=True, exist_ok=True)
    lock = open(ROOT / "lock", "w")
    fcntl.flock(lock, fcntl.LOCK_SH)
    return lock


def compiler():
    """Environment in which the compiler remembers, for every clone."""
    path = os.environ.get("PATH", "/usr/bin:/bin")
    return {"PATH": f"/usr/lib/ccache:{path}:/usr/sbin:/sbin",
            "CCACHE_DIR": str(ROOT / "ccache"), "CCACHE_NOHASHDIR": "1",
            "CCACHE_MAXSIZE": "2G"}


def write(path, text):
    """Write a file that others see whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(text)
    new.rename(path)


def old(path):
    """Whether it was written, or asked for by fresh(), too long ago."""
    return path.stat().st_mtime < time.time() - KEPT_SECONDS


def fresh(path):
    """Whether a file is there; it then stays for another KEPT_SECONDS."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def prune(folder):
    """Remove the files of a folder that are old."""
    for path in folder.glob("*"):
        with contextlib.suppress(FileNotFoundError):
            if old(path):
                path.unlink()
