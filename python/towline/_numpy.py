# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""NumPy's own arrays in an arena: NEP 49.

NumPy asks a handler for the data of each new array, the one of the current context; an array keeps
the handler that it was made by.  A handler is a capsule around struct PyDataMem_Handler; the
functions in that are libtowline's (towline/numpy.h), so that no array costs a call of Python's.

What a capsule points to is never freed, as some array, or some context, may have it: that is a
few hundred bytes for each arena and tracer.  The arena ends when nothing of it is in use.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
from ctypes import c_char, c_uint8, c_void_p
from typing import Any

from . import _life
from ._lib import check, lib
from ._life import Handle
from ._memory import Arena
from ._tracer import Tracer

try:    # NumPy 2
    _umath = importlib.import_module("numpy._core._multiarray_umath")
except ImportError:
    _umath = importlib.import_module("numpy.core._multiarray_umath")

# Places in the table of NumPy's C functions: the same since there is NEP 49 (NumPy 1.22).
SET_HANDLER, GET_HANDLER = 304, 305
CAPSULE_NAME = b"mem_handler"


class Allocator(ctypes.Structure):
    """PyDataMemAllocator"""
    _fields_ = [("ctx", c_void_p), ("malloc", c_void_p), ("calloc", c_void_p),
                ("realloc", c_void_p), ("free", c_void_p)]


class MemHandler(ctypes.Structure):
    """PyDataMem_Handler, version 1"""
    _fields_ = [("name", c_char * 127), ("version", c_uint8), ("allocator", Allocator)]


def c_api(name: str, result: Any, *arguments: Any) -> Any:
    """A function of Python's."""
    # One of our own: pythonapi's are shared with whoever else sets their types.
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


capsule_new = c_api("PyCapsule_New", ctypes.py_object, c_void_p, ctypes.c_char_p, c_void_p)
capsule_get = c_api("PyCapsule_GetPointer", c_void_p, ctypes.py_object, ctypes.c_char_p)
_table = (c_void_p * (GET_HANDLER + 1)).from_address(capsule_get(_umath._ARRAY_API, None))
# Both give a new reference to a capsule, and steal none.
_set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(_table[SET_HANDLER] or 0)
_get_handler = ctypes.PYFUNCTYPE(ctypes.py_object)(_table[GET_HANDLER] or 0)


def _address(function: Any) -> int | None:
    return ctypes.cast(function, c_void_p).value


class Handler:
    """What NumPy allocates by, for an arena or a tracer: made once for each."""

    # With all that NumPy may look at.
    _for_ever: list[tuple[Any, ...]] = []

    def __init__(self, arena: Handle, tracer: Handle | None = None) -> None:
        made = c_void_p()
        used = [arena] if tracer is None else [arena, tracer]
        check(lib.tow_numpy_create(arena.pointer, tracer.pointer if tracer else None, made),
              "making a handler of NumPy's")
        for one in used:
            one.hold()
        self._pointer, self._used = made.value, used
        self._retiring = False
        struct = MemHandler(b"towline", 1, Allocator(
            made.value, *(_address(getattr(lib, f"tow_numpy_{name}"))
                          for name in ("malloc", "calloc", "realloc", "free"))))
        self.capsule = capsule_new(ctypes.addressof(struct), CAPSULE_NAME, None)
        self._for_ever.append((struct, self.capsule))
        used[-1].owned.add(self)

    def run(self, node: int) -> int:
        """This thread runs that node now: which one it ran before."""
        return lib.tow_numpy_node(self._pointer, node)

    def close(self) -> None:
        """Nothing new in the arena; it is let go when what is there has gone."""
        if not self._retiring:
            self._retiring = True
            if not self._retire():
                _life.end_later(self._retire)

    def _retire(self) -> bool:
        if lib.tow_numpy_retire(self._pointer) == -errno.EBUSY:
            return False
        used, self._used = self._used, []
        for one in used:
            one.owned.discard(self)
            one.drop()
        return True


class allocator:    # pylint: disable=invalid-name
    """Within `with towline.allocator(tracer):` NumPy allocates arrays' data by the tracer.

    source: a Tracer: what is sent is in its arena from the second step on, all else is ordinary
    memory.  Or an Arena: all is there, and MemoryError is raised when it has no room.

    It holds for this thread's context (contextvars), and that of asyncio's tasks and to_thread() made
    within.  A new thread begins without it, unless it is started within by
    threading.Thread(target=contextvars.copy_context().run, args=(function,)), or Python 3.14 runs with
    thread_inherit_context.  Arrays may outlive the block, the tracer and the arena's
    close(): the arena's memory goes back when the last of them has died and, after that, the garbage
    collector has run, or something of towline is closed.  A child that was forked gets ordinary
    memory.  A thread pool's threads keep the allocator with which they were started; when its
    source is closed they get ordinary memory.

    Arrays of Python objects are there, too; as before, NumPy sees to the objects.
    """

    def __init__(self, source: Tracer | Arena) -> None:
        if isinstance(source, Tracer):
            self._handler = source._handler
        elif isinstance(source, Arena):
            if source._handler is None:
                with source._handle.look():
                    source._handler = Handler(source._handle)
            self._handler = source._handler
        else:
            raise TypeError("an allocator is made of a Tracer or an Arena")
        self._source = source
        self._before: list[Any] = []

    def __enter__(self) -> Tracer | Arena:
        if self._source.closed:
            raise ValueError("it is closed")
        self._before.append(_set_handler(self._handler.capsule))
        return self._source

    def __exit__(self, *_: Any) -> None:
        _set_handler(self._before.pop())


def handler_name() -> str:
    """The name of the handler that NumPy allocates by now: "towline", or another one's."""
    struct = MemHandler.from_address(capsule_get(_get_handler(), CAPSULE_NAME))
    return str(struct.name.decode())
