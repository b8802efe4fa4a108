# SPDX-License-Identifier: GPL-2.0
"""What a lab test's result depends on, as a hash: its content.

A result counts for as long as that stays the same: a document that was mended
throws nothing away, nor does a test in another folder.
"""

import functools
import hashlib
import json
import re
import subprocess
import time

from towlab import cache, kernels

from . import BUILD, TOP

RESULTS = cache.ROOT / "results"
# Documents that tests read: what is printed there is run, or compared.
_READ = {
    "graph/onnx": ["Documentation/performance.md"],
    "graph/onnx-node": ["python/README.md", "Documentation/examples/graph_pipeline.py"],
    "lab/edges-more": ["Documentation/tutorial.md"],
    "lab/mpirun": ["Documentation/tutorial.md"],
    "python/readme": ["python/README.md"],
    "torch/two-nodes": ["README.md", "Documentation/examples/torch/ddp.py"],
}
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
    built = kernels.built_provider(provider)
    if built:
        found += _of(*TOP.glob(f"tests/modules/rxe_{built}/*"),
                     *BUILD.glob(f"kernels/{built}-{kernel}/rxe_{built}.ko"))
    return [(home / "version").read_text(), found]


@functools.cache
def _library():
    return _of(*BUILD.glob("lib/libtowline.so.*"), BUILD / "bin/towline",
               *TOP.glob("python/towline/*.py"), TOP / "python/towline/_ring.c")


@functools.cache
def _programs():
    """Test programs, examples and scripts by name."""
    found = {}
    for folder in (BUILD / "tests/kselftest", BUILD / "tests/lab",
                   BUILD / "tests/unit", BUILD / "tests/bench",
                   BUILD / "examples", TOP / "tests/bench",
                   TOP / "scripts/packaging"):
        for path in folder.glob("*"):
            if path.is_file() and path.suffix not in (".c", ".d", ".h", ".toml"):
                found[path.name] = path
    return found


def _is_program(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def _read(test):
    """Documents."""
    return [TOP / path for path in _READ.get(test.name.removesuffix("-dma"), ())]


def _own(test):
    """The test's own programs and scripts, and what those name."""
    words = [TOP / word for word in test.command]
    files = {path for path in words if path.is_file() and
             path.is_relative_to(TOP)}
    scripts = {path for path in files if not _is_program(path)}
    for script in list(scripts):
        # Scripts of a folder use each other.
        scripts |= {path for path in script.parent.iterdir() if path.is_file()
                    and path.suffix not in (".c", ".h", ".toml")}
    said = " ".join([*test.command, *(path.read_text(errors="replace")
                                      for path in scripts)])
    programs = _programs()
    named = {path for name, path in programs.items()
             if name in said or name == "around"}
    trained = TOP.glob("Documentation/examples/training/*.py") \
        if "examples/training" in said else ()
    planned = TOP.glob("python/towline/graph/*.py") if test.name.startswith("graph/") else ()
    found = _of(*(files | scripts | named), *trained, *planned, *_read(test))
    if scripts or any(b"libtowline.so" in path.read_bytes()
                      for path in files | named):
        found += _library()
    return found


@functools.cache
def _project(kernels):
    """Everything but documents that are only read, which man pages are not; the kernels, the compiler."""
    names = subprocess.run(
        ["git", "-c", f"safe.directory={TOP}", "ls-files", "-coz",
         "--exclude-standard"], cwd=TOP, check=False, capture_output=True,
        text=True).stdout.split("\0")
    compiler = subprocess.run(["gcc", "--version"], check=False,
                              capture_output=True, text=True).stdout
    return compiler, [
        (BUILD / "kernels" / kernel / "version").read_text()
        for kernel in kernels], _of(*(
            TOP / name for name in names if name and
            not re.match(r"Documentation/(?!tutorial\.md).*\.(md|svg)$", name) and
            (TOP / name).is_file()))


def of(test, kernel, kernels):
    """The content of a test on a kernel, or on the host, where it may boot several."""
    said = [test.name, test.command, test.protocol]
    if test.where == "host":
        return _hash([*said, _project(tuple(kernels)), *_of(*_read(test))])
    return _hash([
        *said, kernel, test.nodes, test.smp, test.mem, test.provider,
        test.module, _machine(kernel, test.provider), _own(test),
        _of(TOP / "tests/skips", *TOP.glob("scripts/lab/allow"))])


def passed(content):
    """The commit and date at which a test of this content passed, or None."""
    try:
        if cache.old(RESULTS / content):
            return None
        return (RESULTS / content).read_text().strip()
    except FileNotFoundError:
        return None


def note(content, commit):
    """It has passed."""
    cache.write(RESULTS / content, f"{commit}, {time.strftime('%Y-%m-%d')}\n")
