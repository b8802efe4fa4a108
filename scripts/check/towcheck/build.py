# SPDX-License-Identifier: GPL-2.0
"""What must be there before anything runs: packages, kernels, programs."""

import os
import subprocess
import time

from towlab import cache

from . import TOP, UserError, host, say


def setup(kernels, torch=False):
    """Packages, PyTorch's too if it is wanted, and kernels; kernels that are there stay as they are."""
    command = [TOP / "scripts/setup", "--keep", *(["--torch"] if torch else []), *kernels]
    started = time.monotonic()
    # Its progress and its questions go straight to the person.
    code = subprocess.run(command, cwd=TOP, check=False,
                          env=host.environment()).returncode
    if code == 2:
        raise UserError("set the machine up first (see above)")
    if code:
        raise subprocess.CalledProcessError(code, "make setup")
    say.result("host", "setup", "", time.monotonic() - started)


def build(kernels, log, extra=()):
    """Everything that tests need; raises where it does not build."""
    command = ["make", "--no-print-directory", f"-j{os.cpu_count()}",
               "-Oline", f"KERNELS={' '.join(kernels)}", "lib", "tools",
               "examples", "test-programs", "lab-modules", *extra]
    say.say("building " + (f"for {', '.join(kernels)}" if kernels
                           else " ".join(extra)))
    outcome = host.run(command, log, 1800, host.environment(**cache.compiler()))
    if outcome.rc:
        print("\n".join((outcome.stdout + outcome.stderr)
                        .splitlines()[-40:]), flush=True)
        raise subprocess.CalledProcessError(outcome.rc, "make")
    say.result("host", "build", "", outcome.seconds)
