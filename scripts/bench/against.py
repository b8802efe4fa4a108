# SPDX-License-Identifier: GPL-2.0
"""Another commit's programs and module, built beside this tree's.

build/against/HASH is that commit's tree with a build of its own, which shares
only the kernels.  In a guest scripts/bench/take puts one build or the other in
the place of this tree's, so that commands are the same for both.
"""

import os
import shutil
import subprocess

from towcheck import BUILD, TOP, UserError, host, say

TAKE = "scripts/bench/take"
THIS_BUILD = "build"


def _git(*words):
    return subprocess.run(["git", "-c", f"safe.directory={TOP}", *words], cwd=TOP,
                          check=False, capture_output=True)


def hash_of(commit):
    """The short hash of a commit of this repository."""
    done = _git("rev-parse", "--verify", "--quiet", "--short=12",
                "--end-of-options", commit + "^{commit}")
    if done.returncode:
        raise UserError(f"there is no commit '{commit}'")
    return done.stdout.decode().strip()


def _unpack(name, tree):
    new = tree.with_suffix(".new")
    shutil.rmtree(new, ignore_errors=True)
    (new / "build").mkdir(parents=True)
    archive = _git("archive", name)
    archive.check_returncode()
    subprocess.run(["tar", "-x"], cwd=new, check=True, input=archive.stdout)
    (new / "build/kernels").symlink_to("../../../kernels")
    new.rename(tree)


def build(name, kernels, log):
    """Build what measures need of that commit: its build, from the top of this tree."""
    tree = BUILD / "against" / name
    if not tree.exists():
        _unpack(name, tree)
    say.say(f"building {name} for {', '.join(kernels)}")
    outcome = host.run(
        ["make", "--no-print-directory", "-C", tree, f"-j{os.cpu_count()}", "-Oline",
         f"KERNELS={' '.join(kernels)}", "lib", "tools", "bench-programs",
         "lab-modules"], log, 1800)
    if outcome.rc:
        print("\n".join((outcome.stdout + outcome.stderr)
                        .splitlines()[-40:]), flush=True)
        raise subprocess.CalledProcessError(outcome.rc or 1, f"make of {name}")
    say.result("host", f"build {name}", "", outcome.seconds)
    return str((tree / "build").relative_to(TOP))
