# SPDX-License-Identifier: GPL-2.0
"""What towline's runners (check, soak, coverage, bench) share."""

import pathlib
import sys

TOP = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(TOP / "scripts/lab"))
BUILD = TOP / "build"
DEFAULT_KERNELS = ("6.1", "6.12", "7", "debug")
EXTRA_KERNELS = ("debug-6.1", "kcsan")


class UserError(Exception):
    """Something the person at the keyboard can put right."""
