# SPDX-License-Identifier: GPL-2.0
"""What a lab test's result depends on, as a hash: its content.

A result counts for as long as that stays the same: a document that was mended
throws nothing away, nor does another test.
"""

import functools
import hashlib
import json
import re
import subprocess
import time

from towlab import cache

from . import BUILD, TOP

RESULTS = cache.ROOT / "results"
_BUILD_ID = re.compile(rb"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0(.{20})", re.DOTALL)


@functools.cache
def _of_file(path):
    """A file's hash; of a module its build id, which knows no debugging information."""
    data = path.read_bytes()
    if path.suffix == ".ko":
        found = _BUILD_ID.search(data)
        if found:
            return found.group(1).hex()
    return hashlib.sha256(data).hexdigest()


def _hash(what):
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:20]


def _of(*files):
    return [(str(path.relative_to(TOP)), _of_file(path))
            for path in sorted(files)]


@functools.cache
def _machine(kernel, provider):
    """The kernel, and every module of ours on it."""
    home = BUILD / "kernels" / kernel
    modules = BUILD / "modules" / (home / "release").read_text().strip()
    found = _of(*modules.glob("*.ko"), *modules.glob("tests/modules/*.ko"))
    if provider == "hostile":
        found += _of(*BUILD.glob(f"kernels/hostile-{kernel}/rxe_hostile.ko"))
    return [(home / "version").read_text(), found]


@functools.cache
def _library():
    return _of(*BUILD.glob("lib/libtowline.so.*"), BUILD / "bin/towline",
               *TOP.glob("python/towline/*.py"))


@functools.cache
def _programs():
    """Test programs by name."""
    return {path.name: path for folder in ("kselftest", "lab")
            for path in BUILD.glob(f"tests/{folder}/*")
            if path.is_file() and path.suffix != ".d"}


def _is_program(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def _own(test):
    """The test's own programs and scripts, and what those name."""
    words = [TOP / word for word in test.command]
    files = {path for path in words if path.is_file()}
    scripts = {path for path in files if not _is_program(path)}
    for script in list(scripts):
        # Scripts of a folder use each other.
        scripts |= {path for path in script.parent.iterdir() if path.is_file()
                    and path.suffix not in (".c", ".h", ".toml")}
    said = " ".join([*test.command, *(path.read_text(errors="replace")
                                      for path in scripts)])
    programs = _programs()
    named = {programs[word] for word in set(re.findall(r"\w+", said))
             if word in programs}
    found = _of(*(files | scripts | named | {programs["around"]}))
    if scripts or any(b"libtowline.so" in path.read_bytes()
                      for path in files | named):
        found += _library()
    return found


@functools.cache
def _project():
    """Everything but documents, which man pages are not, and the kernels."""
    names = subprocess.run(
        ["git", "-c", f"safe.directory={TOP}", "ls-files", "-coz",
         "--exclude-standard"], cwd=TOP, check=False, capture_output=True,
        text=True).stdout.split("\0")
    kernels = [path.read_text() for path in sorted(
        BUILD.glob("kernels/*/version"))]
    return kernels, _of(*(TOP / name for name in names if name and
                          not re.match(r"Documentation/.*\.(md|svg)$", name) and
                          (TOP / name).is_file()))


def of(test, kernel):
    """The content of a test on a kernel, or on the host."""
    if test.where == "host":
        return _hash([test.name, test.command, _project()])
    return _hash([
        test.name, test.command, kernel, test.nodes, test.smp, test.mem,
        test.provider, test.module, _machine(kernel, test.provider),
        _own(test)])


def passed(content):
    """The commit and date at which a test of this content passed, or None."""
    if not cache.fresh(RESULTS / content):
        return None
    return (RESULTS / content).read_text().strip()


def note(content, commit):
    """It has passed."""
    cache.write(RESULTS / content, f"{commit}, {time.strftime('%Y-%m-%d')}\n")
