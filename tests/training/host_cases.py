# SPDX-License-Identifier: GPL-2.0
"""Cases of a test on the host, one after the other, as KTAP; the training's modules."""

import importlib
import pathlib
import sys
import time
import traceback

TRAINING = pathlib.Path(__file__).resolve().parents[2] / "Documentation/examples/training"
sys.dont_write_bytecode = True
sys.path.insert(0, str(TRAINING))
importlib.import_module("exact").before_numpy()


class Wrong(Exception):
    """Something is not as it must be."""


def must(good, *said):
    """Go on only if that is so."""
    if not good:
        raise Wrong(" ".join(str(word) for word in said))


def run(cases):
    """All cases, or those that are named; a case is check_NAME()."""
    cases = [case for case in cases
             if not sys.argv[1:] or case.__name__[6:] in sys.argv[1:]]
    print(f"KTAP version 1\n1..{len(cases)}", flush=True)
    failed = False
    for number, case in enumerate(cases, 1):
        start = time.monotonic()
        good = "ok"
        try:
            case()
        except Exception:                              # pylint: disable=broad-except
            good = "not ok"
            failed = True
            print("# " + traceback.format_exc().strip().replace("\n", "\n# "))
        print(f"# {time.monotonic() - start:.1f} s")
        print(f"{good} {number} {case.__name__[6:]}", flush=True)
    sys.exit(failed)
