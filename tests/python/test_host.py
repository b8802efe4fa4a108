# SPDX-License-Identifier: GPL-2.0
"""Without the module: what ctypes was told is what the headers say; installing; errors."""

import array
import ctypes
import errno
import gc
import mmap
import os
import pathlib
import pickle
import re
import shutil
import signal
import subprocess
import sys
import threading
import types

import numpy as np
import pytest

import towline
from conftest import Only
from towline import _dlpack, _lib, _numpy, _types, _worker

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
    assert not set(_lib.FUNCTIONS) & set(_lib.UNBOUND) and {*_lib.FUNCTIONS, *_lib.UNBOUND} == exported
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


@pytest.fixture(name="source")
def _source(tmp_path):
    """The package beside what was built, as in the tree, where installing leaves nothing behind."""
    shutil.copytree(TOP / "python", tmp_path / "python",
                    ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    (tmp_path / "build").symlink_to(TOP / "build")
    return tmp_path


def without_package(**more):
    """An environment in which Python finds the library, and of the package nothing but what is installed."""
    return {**{name: value for name, value in os.environ.items()
               if name not in ("PYTHONPATH", "TOWLINE_RING", "TOWLINE_INCLUDE")}, "PIP_NO_INDEX": "1", **more}


def test_install(source, tmp_path):
    """By the lines of the README, offline, with what is compiled; it runs from elsewhere."""
    lines = re.findall(r"^(?:/usr/bin/python3|v/bin/pip) .*$", (source / "python/README.md").read_text(),
                       re.MULTILINE)
    assert len(lines) == 2
    run("sh", "-ec", "\n".join(lines), env=without_package(), cwd=source)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    program = "import towline as t, towline._ring as r, towline.graph; print(t.__version__, t.__file__, r.__file__)"
    own = source / "v/bin/python"
    version, path, ring = run(own, "-c", program, env=without_package(), cwd=elsewhere).split()
    assert version == (TOP / "VERSION").read_text().strip()
    assert path.startswith(str(source / "v")) and ring.startswith(str(pathlib.Path(path).parent))
    assert pathlib.Path(path).with_name("py.typed").exists()
    wheel = next(pathlib.Path(path).parents[1].glob("towline-*.dist-info/WHEEL"))
    assert re.search(r"^Tag: cp311-abi3-linux_\w+$", wheel.read_text(), re.MULTILINE)
    said = run(own, "-c", "try:\n import towline\nexcept ImportError as error:\n print(error)",
               env=without_package(TOWLINE_LIBRARY="/nowhere/libtowline.so.0"), cwd=elsewhere)
    assert "the C library is missing: /nowhere/libtowline.so.0" in said and "TOWLINE_LIBRARY" in said


def test_headers(source):
    """Building finds those that are installed, too, and says what is missing."""
    (source / "build").unlink()
    (source / "towline.pc").write_text("Name: towline\nDescription: it\nVersion: 0\n"
                                       f"Cflags: -I{TOP}/build/include\n")

    def build(**where):
        done = subprocess.run([sys.executable, "setup.py", "-q", "build"], cwd=source / "python", text=True,
                              env=without_package(**where), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
        return done.returncode, done.stdout

    status, said = build(TOWLINE_INCLUDE="/nowhere")
    assert status and "headers are missing in /nowhere" in said
    status, said = build(PKG_CONFIG_LIBDIR="/nowhere")
    assert status and "headers are missing.  Build it" in said
    assert "make install" in said and "TOWLINE_INCLUDE" in said
    status, said = build(PKG_CONFIG_LIBDIR=str(source))
    assert not status, said
    assert len(list((source / "python/build").glob("lib*/towline/_ring.abi3.so"))) == 1


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


# ---- arrays of others ----

def take(capsule):
    """An array of it."""
    return _types.whole(types.SimpleNamespace(__dlpack__=lambda: capsule), "it")


def test_arrays_of_others(tmp_path):
    """They are taken where they are."""
    (tmp_path / "mapped").write_bytes(bytes(12))
    with open(tmp_path / "mapped", "r+b") as file:
        mapped = mmap.mmap(file.fileno(), 12)
    numbers = np.arange(12, dtype="i2").reshape(3, 4)
    for source, dtype, shape in (
            (numbers, "i2", (3, 4)), (memoryview(numbers), "i2", (3, 4)), (Only(numbers), "i2", (3, 4)),
            (bytearray(12), "u1", (12,)), (array.array("d", [1, 2]), "f8", (2,)),
            ((ctypes.c_float * 3)(), "f4", (3,)), (mapped, "u1", (12,)),
            (types.SimpleNamespace(__array_interface__=numbers.__array_interface__), "i2", (3, 4)),
            (Only(np.zeros((), "f4")), "f4", ()), (Only(np.zeros((2, 0), "f8")), "f8", (2, 0))):
        found = _types.whole(source, "it", writable=True)
        assert (found.dtype, found.shape) == (dtype, shape), source
        found[...] = 1
        again = _types.whole(source, "it")
        assert np.array_equal(again, np.ones(shape)), source
        assert _types.address_of(found) == _types.address_of(again)
    del found, again, source
    mapped.close()
    assert _types.whole(b"abc", "it").tolist() == [97, 98, 99]
    for source in (b"abc", memoryview(b"abc")):
        with pytest.raises(ValueError, match="written"):
            _types.whole(source, "it", writable=True)
    for source in ([1, 2], "text", 3, None, np.float32(3)):
        with pytest.raises(TypeError, match=f"__dlpack__.* {type(source).__name__} does not"):
            _types.whole(source, "it")
    for gaps in (Only(numbers.T), Only(numbers[:, 1:]), memoryview(numbers)[::2]):
        with pytest.raises(ValueError, match="gaps"):
            _types.whole(gaps, "it")
    assert np.array_equal(_types.array_of(Only(numbers.T[1:]), "it"), numbers.T[1:])


@pytest.mark.parametrize("name", ["i1", "i8", "u2", "f2", "f4", "f8", "c8", "c16", "g", "?",
                                  towline.bfloat16])
def test_dlpack(name):
    """By our exporter to our importer: of the same type, in the same memory."""
    for shape in ((), (3,), (2, 3), (2, 0, 3)):
        numbers = np.zeros(shape, name)
        numbers.view("V").reshape(-1).view("u1")[:] = 1
        found = _types.whole(Only(towline.dlpack(numbers)), "it", writable=True)
        assert (found.dtype, found.shape) == (numbers.dtype, shape)
        assert found.tobytes() == numbers.tobytes()
        assert not found.size or np.shares_memory(found, numbers)
    strided = np.zeros((4, 6), name)[1:, ::2]
    found = _types.array_of(Only(towline.dlpack(strided)), "it")
    assert found.strides == strided.strides and np.shares_memory(found, strided)


def test_dlpack_out():
    """Others take it; there are types that DLPack has not."""
    numbers = np.arange(10, dtype="f4")
    out = towline.dlpack(numbers)
    assert np.shares_memory(np.from_dlpack(out), numbers) and out.__dlpack_device__() == (1, 0)
    copy = take(out.__dlpack__(copy=True))
    assert np.array_equal(copy, numbers) and not np.shares_memory(copy, numbers)
    for name in ("S3", "V2", "M8[s]", "O", ">f4", [("a", "i4")]):
        with pytest.raises(TypeError):
            towline.dlpack(np.zeros(3, name))
    numbers.flags.writeable = False
    with pytest.raises((BufferError, TypeError)):
        towline.dlpack(numbers).__dlpack__()


def tensor_of(capsule):
    """What is in it."""
    return _dlpack.DLManagedTensor.from_address(_numpy.capsule_get(capsule, _dlpack.FULL))


def test_dlpack_lives():
    """The exporter hears of the end once: when the last view has died, or nobody has taken it."""
    numbers = np.zeros(100, "u1")
    before = sys.getrefcount(numbers)
    arrays = [_types.whole(Only(towline.dlpack(numbers)), "it") for _ in range(50)]
    assert sys.getrefcount(numbers) >= before + 50
    part = arrays[0][3:].reshape(-1, 1)
    del arrays
    assert sys.getrefcount(numbers) == before + 1
    part[0] = 7
    del part
    assert sys.getrefcount(numbers) == before and numbers[3] == 7
    # Taken by nobody, taken twice, and refused: of a GPU, and of elements that NumPy has not.
    capsule = towline.dlpack(numbers).__dlpack__()
    assert sys.getrefcount(numbers) == before + 1
    take(capsule)
    assert sys.getrefcount(numbers) == before
    with pytest.raises(ValueError, match="name"):
        take(capsule)
    capsule = towline.dlpack(numbers).__dlpack__()
    tensor_of(capsule).dl_tensor.device_type = 2
    with pytest.raises(ValueError, match="device"):
        take(capsule)
    capsule = towline.dlpack(numbers).__dlpack__()
    tensor_of(capsule).dl_tensor.dtype.bits = 4
    with pytest.raises(TypeError, match="4 bits"):
        take(capsule)
    del capsule
    gc.collect()
    assert sys.getrefcount(numbers) == before


def test_dlpack_elsewhere():
    """An exporter that is not NumPy's: without strides, with an offset, pinned; its own deleter."""
    memory, ends = (ctypes.c_int16 * 8)(*range(8)), []
    shape = (ctypes.c_int64 * 2)(2, 3)
    function = dict(_dlpack.DLManagedTensor._fields_)["deleter"]
    managed = _dlpack.DLManagedTensor(deleter=function(ends.append))
    tensor = managed.dl_tensor
    tensor.data, tensor.byte_offset, tensor.device_type = ctypes.addressof(memory), 4, 3
    tensor.ndim, tensor.shape, tensor.dtype = 2, shape, _lib.DType(4, 16, 1)

    def made():
        return take(_numpy.capsule_new(ctypes.addressof(managed), _dlpack.FULL, None))

    found = made()
    assert found.dtype == towline.bfloat16 and found.view("u2").tolist() == [[2, 3, 4], [5, 6, 7]]
    views = [found[1:]]
    del found
    assert not ends
    thread = threading.Thread(target=views.clear)
    thread.start()
    thread.join()
    assert ends == [ctypes.addressof(managed)]
    # One of memory that nobody waits for has none.
    managed.deleter = function()
    assert made().shape == (2, 3)
    gc.collect()
    assert len(ends) == 1


KEEPER = """
#include <stdint.h>
#include <stdlib.h>
struct tensor { uint64_t words[7]; void (*deleter)(struct tensor *); };
static struct tensor *kept;
void end(struct tensor *tensor) { tensor->deleter(tensor); }
static void last(void) { end(kept); }
void keep(struct tensor *tensor) { kept = tensor; atexit(last); }
"""

KEEPS = """
import ctypes, threading, sys, numpy, towline
from towline import _dlpack, _numpy, _types
keeper = ctypes.CDLL(sys.argv[1])
numbers = numpy.arange(1000, dtype="u2")
bits = numbers.view(towline.bfloat16)

def taken():
    # As another library takes it.
    capsule = towline.dlpack(bits).__dlpack__()
    address = _numpy.capsule_get(capsule, _dlpack.FULL)
    _dlpack._capsule_set_name(capsule, _dlpack.USED)
    return ctypes.c_void_p(address)

before = sys.getrefcount(numbers)
there = taken()
assert sys.getrefcount(numbers) == before + 1
# The call does not hold Python's lock.
thread = threading.Thread(target=keeper.end, args=(there,))
thread.start()
thread.join()
assert sys.getrefcount(numbers) == before
keeper.keep(taken())
class Only:
    def __dlpack__(self):
        return towline.dlpack(bits).__dlpack__()
numpy.cycle = [_types.whole(Only(), "it"), towline.dlpack(bits), towline.dlpack(bits).__dlpack__()]
numpy.cycle.append(numpy.cycle)
left = _types.whole(Only(), "it")
print("done")
"""


def test_dlpack_exit(tmp_path):
    """Who has taken an array lets go of it in any thread, and when Python has ended."""
    (tmp_path / "keeper.c").write_text(KEEPER)
    run("gcc", "-shared", "-fPIC", "-o", tmp_path / "keeper.so", tmp_path / "keeper.c")
    assert run(sys.executable, "-c", KEEPS, tmp_path / "keeper.so") == "done\n"


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
