# SPDX-License-Identifier: GPL-2.0
"""Without the module: what ctypes was told is what the headers say; installing; errors."""

import ctypes
import errno
import os
import pathlib
import pickle
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

import towline
from towline import _lib, _numpy, _types, _worker

TOP = pathlib.Path(__file__).resolve().parents[2]
HEADERS = sorted((TOP / "libshim/include/towline").glob("*.h"))


def run(*command, **how):
    """What it says; its exit status must be 0."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, **how)
    assert done.returncode == 0, done.stdout
    return done.stdout


def python(program, **environment):
    """A program of its own."""
    return run(sys.executable, "-c", program, env={**os.environ, **environment})


# ---- the headers ----

def test_structures(tmp_path):
    """Each is as long as in C, and has its fields where they are there."""
    words = []
    for name, structure in _lib.STRUCTURES.items():
        words.append((f"sizeof(struct {name})", ctypes.sizeof(structure)))
        for field, *_ in structure._fields_:
            words.append((f"offsetof(struct {name}, {field})", getattr(structure, field).offset))
            words.append((f"sizeof(((struct {name} *)0)->{field})",
                          getattr(structure, field).size))
    lines = [f'#include <towline/{path.name}>' for path in HEADERS]
    lines += ["#include <stdio.h>", "int main(void)", "{"]
    lines += [f'\tprintf("%zu\\n", {expression});' for expression, _ in words]
    source = tmp_path / "layout.c"
    source.write_text("\n".join([*lines, "\treturn 0;", "}", ""]))
    run("gcc", "-Wall", "-Werror", f"-I{TOP}/build/include", "-o", tmp_path / "layout", source)
    said = [int(line) for line in run(tmp_path / "layout").split()]
    assert len(said) == len(words) > 100
    assert [(expression, number) for (expression, _), number in zip(words, said)] == words


def declared():
    """The functions of the headers: name -> arguments, as C has them."""
    text = "".join(path.read_text() for path in HEADERS)
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    found = {}
    for name, arguments in re.findall(r"^\w[\w *]*\b(tow_\w+)\(([^()]*)\);", text,
                                      re.MULTILINE):
        found[name] = [] if arguments == "void" else arguments.split(",")
    return found


def kind_of(argument):
    """What ctypes may call an argument of C's."""
    if "*" in argument or "[" in argument or re.search(r"\btow_edge_(done|came)\b", argument):
        return "pointer"
    return {"int": "c_int", "uint32_t": "c_uint", "uint64_t": "c_ulong", "size_t": "c_ulong",
            "float": "c_float", "tow_reduction": "c_uint", "tow_dtype": "DType"}[argument.split()[-2]]


def kind_of_ctypes(kind):
    """The same of one of ctypes'."""
    if kind.__name__ in ("c_void_p", "c_char_p", "CFunctionType") or \
            issubclass(kind, ctypes._Pointer):
        return "pointer"
    return kind.__name__


def test_functions():
    """Each is in the map, and takes what the header says."""
    exported = set(re.findall(r"^\t(tow_\w+);", (TOP / "libshim/core/libtowline.map").read_text(),
                              re.MULTILINE))
    headers = declared()
    assert set(_lib.FUNCTIONS) <= exported
    for name, (_, arguments) in _lib.FUNCTIONS.items():
        assert [kind_of(argument) for argument in headers[name]] == \
            [kind_of_ctypes(kind) for kind in arguments], name


def test_numbers():
    """Enumerations and sizes that are written down twice."""
    text = "".join(path.read_text() for path in (*HEADERS, TOP / "uapi/towline.h"))
    from towline import _collective, _edge, _feed, _mailbox, _memory
    numbers = {
        "TOW_DIMS_MAX": _lib.DIMS_MAX, "TOW_GROUP_GATHER_MAX": _lib.GATHER_MAX,
        "TOW_MESSAGE_MAX": _lib.MESSAGE_MAX,
        "TOW_ALLREDUCE": _collective.ALLREDUCE, "TOW_BARRIER": _collective.BARRIER,
        "TOW_AVG": _collective.REDUCTIONS["avg"], "TOW_MAX": _collective.REDUCTIONS["max"],
        "TOW_PRODUCT": _collective.REDUCTIONS["product"],
        "TOW_BAND": _collective.REDUCTIONS["band"], "TOW_BOR": _collective.REDUCTIONS["bor"],
        "TOW_BXOR": _collective.REDUCTIONS["bxor"],
        "TOW_ALGORITHM_DIRECT": _collective.ALGORITHMS["direct"],
        "TOW_ALGORITHM_TREE": _collective.ALGORITHMS["tree"],
        "TOW_TRACER_ZERO_COPY": towline.ZERO_COPY, "TOW_TRACER_JOINS": towline.JOINS,
        "TOW_TRACER_UNKNOWN": towline.UNKNOWN, "TOW_DTYPE_BFLOAT": _types._BFLOAT,
        "TOW_DTYPE_BOOL": _types._BOOL, "TOW_DTYPE_FLOAT8_E5M2": _types._FLOAT8["float8_e5m2"],
        "TOW_WAIT_FOREVER": _lib.FOREVER, "TOW_FEED_LOST": _feed.STATES.index("lost"),
    }
    for name, number in numbers.items():
        found = re.search(rf"\b{name}\b\s*=?\s*(0x[0-9a-f]+|\d+)", text)
        assert found and int(found.group(1), 0) == number, name
    for name, number in (("TOW_ARENA_DEBUG", _lib.ARENA_DEBUG), ("TOW_PUT_CLONE", _edge.PUT_CLONE),
                         ("TOW_ARENA_FALLBACK", _lib.ARENA_FALLBACK),
                         ("TOW_REGION_PERSISTENT", _memory.PERSISTENT),
                         ("TOW_REGION_READONLY", _memory.READONLY),
                         ("TOW_LIST_ALL", _lib.LIST_ALL), *((f"TOW_RIGHT_{one.name}", one)
                                                            for one in towline.Right),
                         ("TOW_MAILBOX_CAME", _mailbox.CAME), ("TOW_MAILBOX_ROOM", _mailbox.ROOM)):
        found = re.search(rf"\b{name}\b\s*=?\s*\(?1U? << (\d+)", text)
        assert found and 1 << int(found.group(1)) == number, name


# ---- without the module ----

def test_no_module():
    """It says what is missing."""
    with pytest.raises(towline.Error, match="the towline kernel module is not loaded") as caught:
        towline.Device()
    assert caught.value.errno == errno.ENOPKG and caught.value.blamed is None
    with pytest.raises(OSError):
        towline.devices()


def test_no_library():
    """So does this."""
    said = python("try:\n import towline\nexcept ImportError as error:\n print(error)",
                  TOWLINE_LIBRARY="/nowhere/libtowline.so")
    assert "the C library is missing" in said and "TOWLINE_LIBRARY" in said


def test_old_library(tmp_path):
    """And a library that lacks something."""
    (tmp_path / "old.c").write_text("int tow_strerror(void) { return 0; }\n")
    run("gcc", "-shared", "-o", tmp_path / "old.so", tmp_path / "old.c")
    said = python("try:\n import towline\nexcept ImportError as error:\n print(error)",
                  TOWLINE_LIBRARY=str(tmp_path / "old.so"))
    assert "older than this package" in said


def test_install(tmp_path):
    """pip installs it offline, with its marker for type checkers; it runs from elsewhere."""
    shutil.copytree(TOP / "python", tmp_path / "source",
                    ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    run(sys.executable, "-m", "venv", "--system-site-packages", tmp_path / "venv")
    own = tmp_path / "venv/bin/python"
    run(own, "-m", "pip", "install", "--no-index", "--no-build-isolation",
        "--disable-pip-version-check", tmp_path / "source")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    said = run(own, "-c", "import towline; print(towline.__file__, towline.__version__)",
               env=environment, cwd=tmp_path)
    path, version = said.split()
    assert path.startswith(str(tmp_path / "venv"))
    assert version == (TOP / "VERSION").read_text().strip()
    assert pathlib.Path(path).with_name("py.typed").exists()


# ---- what needs nothing ----

def test_errors():
    """They say what, why and who; copies of them, too."""
    error = _lib.failure(-errno.ETIMEDOUT, "meeting", 3)
    assert isinstance(error, (towline.Timeout, TimeoutError)) and error.blamed == 3
    assert "meeting: " in str(error) and "rank 3 is to blame" in str(error)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is towline.Timeout and str(copy) == str(error) and copy.blamed == 3
    assert _lib.failure(-errno.ESTALE, "x", _lib.NO_RANK).blamed is None


def test_world(monkeypatch):
    """What a launcher says; what it does not is named."""
    for name in list(os.environ):
        if name.startswith(("TOW_", "OMPI_", "SLURM_", "TORCHELASTIC_")) or name in (
                "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"):
            monkeypatch.delenv(name)
    with pytest.raises(towline.Error, match="TOW_WORLD_SIZE"):
        towline.World.detect()
    for name, value in {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1",
                        "MASTER_ADDR": "node0"}.items():
        monkeypatch.setenv(name, value)
    world = towline.World.detect()
    assert (world.rank, world.size, world.local_rank, world.root, world.launcher) == \
        (3, 4, 1, "node0", "torchrun")
    monkeypatch.setenv("RANK", "4")
    with pytest.raises(towline.Error, match="RANK"):
        towline.World.detect()


@pytest.mark.parametrize("name", ["i1", "i8", "u2", "f2", "f4", "f8", "c8", "c16", "?"])
def test_types(name):
    """There and back."""
    dtype = np.dtype(name)
    kind = _types.tensor_type((2, 0, 3), dtype)
    assert _types.numpy_type(kind) == ((2, 0, 3), dtype)


def test_other_types():
    """What NumPy has not, and what does not travel."""
    assert _types.numpy_dtype(_types.dtype_of(towline.bfloat16)) == towline.bfloat16
    assert _types.numpy_dtype(_types.dtype_of(np.dtype("S5"))) == np.dtype("V5")
    assert _types.numpy_dtype(_lib.DType(2, 32, 4)) == np.dtype("V16")
    for dtype in ("O", ">f4", [("a", "O")]):
        with pytest.raises(TypeError):
            _types.dtype_of(np.dtype(dtype))
    with pytest.raises(TypeError):
        _types.numpy_dtype(_lib.DType(17, 4, 1))
    for shape in ((1,) * 9, (-1,)):
        with pytest.raises(ValueError):
            _types.tensor_type(shape, "f4")
    with pytest.raises(ValueError, match="ascontiguousarray"):
        _types.whole(np.zeros((4, 4))[:, 1], "it")
    with pytest.raises(TypeError):
        _types.whole([1, 2], "it")


def test_handles():
    """What was made of something ends before it, whoever closes first."""
    from towline._life import Handle, Object
    ended = []

    class Thing(Object):
        def __init__(self, name, *parents):
            self._own(Handle(None, lambda _: ended.append(name),
                             *(parent._handle for parent in parents)))

    top = Thing("top")
    middle = Thing("middle", top)
    low = Thing("low", top, middle)
    top.close()
    top.close()
    assert ended == [] and top.closed
    with pytest.raises(ValueError, match="closed"):
        Thing("late", top)
    with pytest.raises(ValueError, match="closed"), top:
        pass
    del middle
    assert ended == []
    with low:
        pass
    assert ended == ["low", "middle", "top"]


@pytest.fixture(name="interruptible")
def interruptible_fixture():
    """Ctrl-C as at a terminal: who is started in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_calling():
    """In calls that may call back nothing of the kind ends, and Ctrl-C waits."""
    from towline._life import Handle
    ended = []
    outer = Handle(1, ended.append, calls=True)
    inner = Handle(2, ended.append, calls=True)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        with outer as pointer:
            inner.close()
            signal.raise_signal(signal.SIGINT)
            assert pointer == 1 and ended == []
            ended.append(0)
    assert ended == [0, 2] and signal.getsignal(signal.SIGINT) is before
    outer.close()
    with pytest.raises(ValueError), outer:
        pass
    assert ended == [0, 2, 1] and signal.getsignal(signal.SIGINT) is before


def test_callbacks(monkeypatch):
    """What a callback raises is reported, and nobody else suffers."""
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    operation = _worker.Operation()
    operation.every[operation.number] = operation
    monkeypatch.setattr(operation, "end", lambda step, status: 1 // 0)
    _worker.edge_done(operation.number, 1, 0)
    assert [type(report.exc_value) for report in reported] == [ZeroDivisionError]
    _worker.edge_done(operation.number, 1, 0)
    assert len(reported) == 1


def test_numpy_handler():
    """The table of NumPy's functions is where it is thought to be."""
    assert ctypes.sizeof(_numpy.MemHandler) == 128 + 5 * ctypes.sizeof(ctypes.c_void_p)
    assert _numpy.handler_name() == "default_allocator"
    with pytest.raises(TypeError):
        towline.allocator(3)
