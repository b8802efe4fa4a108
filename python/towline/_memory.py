# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""NumPy arrays in memory that is ready for the wire: arenas and regions."""

from __future__ import annotations

import ctypes
import errno
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

import numpy as np

from . import _life
from ._lib import (ARENA_DEBUG, ARENA_FALLBACK, PERSISTENT, ArenaAttr, ArenaStats, RegionAttr,
                   RegionInfo, check, failure, lib)
from ._life import Handle, Object
from ._types import Shape, address_of, bytes_of, shape_of

if TYPE_CHECKING:
    from ._device import Device

PROT_READ, PROT_WRITE = 1, 2


class Block:
    """Memory that arrays are views of; what all of them have as their base, in the end."""

    __slots__ = ("__array_interface__", "_handle", "_arena", "_address", "__weakref__")

    def __init__(self, handle: Handle, address: int, nbytes: int,
                 arena: Optional[Handle] = None) -> None:
        """Of what is used as long as there is this; it is freed in @arena then, if that is given.
        """
        handle.keep()
        self._handle = handle
        self._arena = arena
        self._address = address
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (nbytes,),
                                    "data": (address, False)}

    def own(self, arena: Handle) -> None:
        """It is not the edge's any more, and freed in the arena."""
        arena.keep()
        used, self._handle, self._arena = self._handle, arena, arena
        used.drop()

    def array(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """It as an array."""
        return np.ndarray(shape, dtype, np.asarray(self))

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle is None or _life.exiting():
            return
        if self._arena and handle.ours:
            if lib.tow_arena_free(self._arena.pointer, self._address) == -errno.EUCLEAN:
                warnings.warn("something was written before the begin of an array, or behind its "
                              "end", RuntimeWarning)
        handle.drop()


class Stats(NamedTuple):
    """How an arena is, as struct tow_arena_stats; sizes in bytes."""
    flags: int
    in_use_bytes: int
    reserved_bytes: int
    peak_bytes: int
    largest_free_bytes: int
    regions: int
    allocations: int
    frees: int
    failures: int
    fallbacks: int
    fallback_bytes: int
    damaged: int
    fragmentation: float


def values_of(structure: Any, kind: Any) -> Any:
    """A named tuple of a structure's fields of the same names."""
    return kind(*(getattr(structure, name) for name in kind._fields))


class Arena(Object):
    """Memory of a device's pool, of which arrays are cut.

    dev: the device.
    region_bytes: of each region that is taken from the pool, in bytes; 0: 64 MiB.
    limit_bytes: what all of them together may have, in bytes; 0: what the device gives.
    debug: look whether anybody writes around arrays, or into those that are gone.
    fallback: where the pool has nothing left, ordinary memory, which no peer can reach.

    An array is freed when the last view of it dies.  close() with arrays that live: nothing new is
    allocated, and the memory goes back to the pool when the last of them has died.  A child that
    was forked shares the arrays: what it writes there its parent has, too.  It allocates nothing.

    Raises Error: ENOMEM.
    """

    def __init__(self, dev: "Device", region_bytes: int = 0, limit_bytes: int = 0,
                 debug: bool = False, fallback: bool = False) -> None:
        _life.sweep()
        attr = ArenaAttr(flags=debug * ARENA_DEBUG | fallback * ARENA_FALLBACK,
                         region_bytes=region_bytes, limit_bytes=limit_bytes)
        made = ctypes.c_void_p()
        with dev._handle as pointer:
            check(lib.tow_arena_create(pointer, attr, made), "making an arena")
            self._own(Handle(made.value, lib.tow_arena_destroy, dev._handle))
        self.device = dev
        # towline.allocator()'s.
        self._handler: Any = None

    def empty(self, shape: Shape, dtype: Any = np.float64) -> np.ndarray:
        """An array with any contents, aligned to 64 bytes.

        shape: elements in each dimension, or of the only one.
        Raises Error: ENOSPC: the pool is empty; EDQUOT: a limit is reached; ENOMEM; ENODEV;
        EPERM: in a child.
        """
        dims, kind = shape_of(shape), np.dtype(dtype)
        if kind.hasobject:
            raise TypeError(f"{kind} refers to Python objects, which have no place here")
        nbytes = bytes_of(dims, kind)
        with self._handle as pointer:
            address = lib.tow_arena_alloc(pointer, nbytes)
            if not address:
                raise failure(-ctypes.get_errno(), f"allocating {nbytes} bytes")
            return Block(self._handle, address, nbytes, self._handle).array(dims, kind)

    def zeros(self, shape: Shape, dtype: Any = np.float64) -> np.ndarray:
        """An array of zeroes; all else as empty()."""
        array = self.empty(shape, dtype)
        ctypes.memset(address_of(array), 0, array.nbytes)
        return array

    def array(self, like: Any, dtype: Any = None) -> np.ndarray:
        """A copy of an array, or of what numpy.asarray() makes one of; all else as empty()."""
        like = np.asarray(like, dtype)
        array = self.empty(like.shape, like.dtype)
        array[...] = like
        return array

    def __contains__(self, array: Any) -> bool:
        """Is it in this arena's regions, so that it is sent from where it is?"""
        region, offset = ctypes.c_void_p(), ctypes.c_uint64()
        with self._handle.look() as pointer:
            return isinstance(array, np.ndarray) and not lib.tow_arena_find(
                pointer, address_of(array), region, offset)

    def stats(self) -> Stats:
        """How it is now."""
        stats = ArenaStats()
        with self._handle as pointer:
            check(lib.tow_arena_stats(pointer, stats), "asking an arena")
        return values_of(stats, Stats)

    def trim(self, keep_bytes: int = 0) -> int:
        """Give regions back to the pool in which there is no array.

        keep_bytes: how much is to be kept at least.
        Returns how many bytes went back.
        """
        with self._handle as pointer:
            return lib.tow_arena_trim(pointer, keep_bytes)


class Region(Object):
    """One piece of a device's pool, of zeroes.

    dev: the device.
    bytes: how much.
    name: for who lists regions; of a persistent one the name by which attach() finds it.
    persistent: it outlives this process, for a time.
    linger: for how long, in seconds; 0: as long as the device allows.

    close() ends it when no array in it lives any more; a persistent one it lets go, and it lingers
    from when the device is closed or the process ends.  destroy() ends that, too.

    Raises Error: EEXIST: the name is taken; EDQUOT, ENOSPC, ENOMEM: there is no room; EINVAL.
    """

    def __init__(self, dev: "Device", bytes: int,   # pylint: disable=redefined-builtin
                 name: Optional[str] = None, persistent: bool = False, linger: int = 0) -> None:
        attr = RegionAttr(flags=PERSISTENT if persistent else 0, linger_s=linger,
                          name=name.encode() if name is not None else None)
        made = ctypes.c_void_p()
        with dev._handle as pointer:
            check(lib.tow_region_create(pointer, bytes, attr, made), f"making region {name}")
            self._made(dev, made, persistent)

    @classmethod
    def attach(cls, dev: "Device", name: str, linger: int = 0) -> "Region":
        """Take over a persistent region whose process has ended, with what is in it.

        linger: as above, from now on.
        Raises Error: ENOENT: the user has no such region in this job; EBUSY: its process lives,
        or something that it began is not over: try again.
        """
        self = cls.__new__(cls)
        made = ctypes.c_void_p()
        with dev._handle as pointer:
            check(lib.tow_region_attach(pointer, name.encode(), linger, made),
                  f"attaching region {name}")
            self._made(dev, made, True)
        return self

    def _made(self, dev: "Device", made: ctypes.c_void_p, persistent: bool) -> None:
        info, address = RegionInfo(), ctypes.c_void_p()
        result = lib.tow_region_info(made, info)
        if not result:
            result = lib.tow_region_map(made, 0, 0, PROT_READ | PROT_WRITE, address)
        if result:
            lib.tow_region_destroy(made)
            raise failure(result, "mapping a region")
        end = _Ending(persistent)
        self.device = dev
        self.nbytes: int = info.bytes
        self._ending = end
        self._address = address.value or 0
        self._own(Handle(made.value, end, dev._handle))

    def array(self, shape: Shape, dtype: Any = np.uint8, offset: int = 0) -> np.ndarray:
        """A part of it as an array, which keeps the region.

        offset: where it begins, in bytes: a multiple of the elements' alignment.
        Raises ValueError: it is not within the region, or not aligned.
        """
        dims, kind = shape_of(shape), np.dtype(dtype)
        nbytes = bytes_of(dims, kind)
        if kind.hasobject:
            raise TypeError(f"{kind} refers to Python objects, which have no place here")
        if offset < 0 or offset + nbytes > self.nbytes:
            raise ValueError(f"{nbytes} bytes from {offset} on are not within {self.nbytes}")
        if offset % kind.alignment:
            raise ValueError(f"offset {offset} is no multiple of {kind.alignment}")
        with self._handle.look():
            return Block(self._handle, self._address + offset, nbytes).array(dims, kind)

    def destroy(self) -> None:
        """As close(), of a persistent one, too."""
        self._ending.persistent = False
        self.close()


class _Ending:
    """How a region ends."""

    def __init__(self, persistent: bool) -> None:
        self.persistent = persistent

    def __call__(self, pointer: Optional[int]) -> None:
        (lib.tow_region_release if self.persistent else lib.tow_region_destroy)(pointer)
