# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""The compiled part of the package; pyproject.toml has the rest."""

import os
import pathlib
import shutil
import subprocess
import sysconfig

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# Where towline itself is built.
TREE = pathlib.Path(__file__).resolve().parents[1] / "build/include"


def flags() -> list[str]:
    """Where libtowline's headers are: TOWLINE_INCLUDE, the tree that this is in, or what is installed."""
    named = os.environ.get("TOWLINE_INCLUDE")
    if pathlib.Path(named or TREE, "towline/queue.h").exists():
        return [f"-I{named or TREE}"]
    if not named and shutil.which("pkg-config"):
        done = subprocess.run(["pkg-config", "--cflags", "towline"], stdout=subprocess.PIPE, text=True,
                              check=False)
        if done.returncode == 0:
            return done.stdout.split()
    raise SystemExit("towline: libtowline's headers are missing" + (f" in {named}" if named else "") +
                     ".  Build it (make) or install it (make install; pkg-config finds it), or name the "
                     "folder of its headers in TOWLINE_INCLUDE")


class Build(build_ext):
    """Compiles it, or says what is missing."""

    def run(self) -> None:
        if not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists():
            raise SystemExit("towline: Python's headers are missing: apt-get install python3-dev")
        for extension in self.extensions:
            extension.extra_compile_args += [*flags(), "-std=gnu11", "-fvisibility=hidden"]
        super().run()


# As Py_LIMITED_API in _ring.c has it: for this Python and later ones.
setup(ext_modules=[Extension("towline._ring", ["towline/_ring.c"], py_limited_api=True)],
      cmdclass={"build_ext": Build}, options={"bdist_wheel": {"py_limited_api": "cp311"}})
