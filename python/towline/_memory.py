# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""NumPy arrays in memory that is ready for the wire: arenas and regions."""

from __future__ import annotations

import ctypes
import errno
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from . import _life
from ._lib import (ARENA_DEBUG, ARENA_FALLBACK, PERSISTENT, READONLY, ArenaAttr, ArenaStats,
                   RegionAttr, RegionInfo, check, failure, lib)
from ._life import Handle, Object
from ._types import AnyArray, Array, Shape, address_of, array_of, bytes_of, shape_of, whole

if TYPE_CHECKING:
    from ._device import Device

PROT_READ, PROT_WRITE = 1, 2

Values = TypeVar("Values")


class Block:
    """Memory that arrays are views of; what all of them have as their base, in the end."""

    __slots__ = ("__array_interface__", "_handle", "_arena", "_address", "__weakref__")

    def __init__(self, handle: Handle, address: int, nbytes: int,
                 arena: Handle | None = None, readonly: bool = False) -> None:
        """Of what is used as long as there is this; it is freed in @arena then, if that is given.
        """
        handle.keep()
        self._handle = handle
        self._arena = arena
        self._address = address
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (nbytes,),
                                    "data": (address, readonly)}

    def own(self, arena: Handle) -> None:
        """It is not the edge's any more, and freed in the arena."""
        arena.keep()
        used, self._handle, self._arena = self._handle, arena, arena
        used.drop()

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """It as an array."""
        return np.ndarray(shape, dtype, np.asarray(self))

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle is None or _life.exiting():
            return
        if self._arena and handle.ours and lib.tow_arena_free(
                self._arena.pointer, self._address) == -errno.EUCLEAN:
            warnings.warn("something was written before the begin of an array, or behind its "
                          "end", RuntimeWarning, stacklevel=2)
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


def values_of(structure: Any, kind: type[Values]) -> Values:
    """A named tuple of a structure's fields of the same names."""
    return kind(*(_plain(getattr(structure, name)) for name in kind.__annotations__))


def _plain(value: Any) -> Any:
    if isinstance(value, ctypes.Array):
        return bytes(value)
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


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

    def __init__(self, dev: Device, region_bytes: int = 0, limit_bytes: int = 0,
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

    def adopt(self, region: Region) -> None:
        """Cut arrays out of a region, too, which is kept until the arena ends.

        region: of the same device; the arena uses those 2 MiB of it that begin at multiples of 2 MiB, and
        overwrites what was there.
        Raises Error: EACCES: it is read-only; EBUSY: an arena has it; EINVAL: there are no such 2 MiB, or
        it is of another device.  ValueError: another device's memory, which has no address.
        """
        if not region._address:
            raise ValueError("another device's memory has no address")
        with self._handle as pointer, region._handle as memory:
            check(lib.tow_arena_adopt(pointer, memory), "giving an arena a region")
            self._handle.keep_parent(region._handle)

    def empty(self, shape: Shape, dtype: Any = np.float64) -> Array:
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

    def zeros(self, shape: Shape, dtype: Any = np.float64) -> Array:
        """An array of zeroes; all else as empty()."""
        array = self.empty(shape, dtype)
        ctypes.memset(address_of(array), 0, array.nbytes)
        return array

    def array(self, like: Any, dtype: Any = None) -> Array:
        """A copy of an array, or of what numpy.asarray() makes one of; all else as empty()."""
        # NumPy alone refuses a tensor of bfloat16.
        like = np.asarray(array_of(like, "array") if hasattr(like, "__dlpack__") else like, dtype)
        array = self.empty(like.shape, like.dtype)
        array[...] = like
        return array

    def __contains__(self, array: Any) -> bool:
        """Is it in this arena's regions, so that it is sent from where it is?"""
        region, offset = ctypes.c_void_p(), ctypes.c_uint64()
        try:
            address = address_of(array_of(array, "array"))
        except TypeError:
            return False
        with self._handle.look() as pointer:
            return not lib.tow_arena_find(pointer, address, region, offset)

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

    def __init__(self, dev: Device, bytes: int,   # pylint: disable=redefined-builtin
                 name: str | None = None, persistent: bool = False, linger: int = 0) -> None:
        attr = RegionAttr(flags=PERSISTENT if persistent else 0, linger_s=linger,
                          name=name.encode() if name is not None else None)
        made = ctypes.c_void_p()
        with dev._handle as pointer:
            check(lib.tow_region_create(pointer, bytes, attr, made), f"making region {name}")
            self._made(dev, made, persistent)

    @classmethod
    def attach(cls, dev: Device, name: str, linger: int = 0) -> Region:
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

    @classmethod
    def from_fd(cls, dev: Device, fd: int) -> Region:
        """The region behind a descriptor of fd()'s, of whatever process; it stays charged to whom it was.

        fd: stays the caller's, who may close it then.
        Raises Error: EINVAL: it is no region's; EBADF; EXDEV: of another device, or of an earlier life of
        this one; EDQUOT, ENOSPC, ENOMEM.
        """
        self = cls.__new__(cls)
        made = ctypes.c_void_p()
        with dev._handle as pointer:
            check(lib.tow_region_from_fd(pointer, fd, made), f"a region of descriptor {fd}")
            self._made(dev, made, False)
        return self

    @classmethod
    def from_memory(cls, dev: Device, memory: AnyArray, readonly: bool = False) -> Region:
        """One of memory that the process has, which is pinned and kept until the region ends.

        memory: a NumPy array, or another's, without gaps.
        readonly: peers may read it, and it is sent from, not written.
        Raises Error: ENOMEM: also for RLIMIT_MEMLOCK; EDQUOT, ENOSPC; EFAULT: it cannot be written;
        EOPNOTSUPP: a file's memory past the page cache.  ValueError: it is empty, has gaps, or cannot be
        written, and not @readonly.
        """
        array = whole(memory, "memory", writable=not readonly)
        if not array.nbytes:
            raise ValueError("memory is empty")
        self = cls.__new__(cls)
        made = ctypes.c_void_p()
        with dev._handle as pointer:
            check(lib.tow_region_from_memory(pointer, address_of(array), array.nbytes,
                                             READONLY if readonly else 0, made), "a region of memory")
            self._made(dev, made, False, array)
        return self

    @classmethod
    def from_dmabuf(cls, dev: Device, fd: int, nbytes: int, offset: int = 0,
                    readonly: bool = False) -> Region:
        """One of another device's memory, which has no address here: array() is for none of it.

        fd: a dma-buf's descriptor (a GPU's, say); stays the caller's.
        nbytes: how much of it, in bytes; offset: from where on, a multiple of the page size.
        Raises Error: EINVAL: it is no dma-buf, or that is not within it; EBADF; EOPNOTSUPP: the RDMA
        device is software, or cannot reach it; EDQUOT, ENOSPC, ENOMEM; what the dma-buf's exporter says.
        """
        self = cls.__new__(cls)
        made = ctypes.c_void_p()
        with dev._handle as pointer:
            check(lib.tow_region_from_dmabuf(pointer, fd, offset, nbytes, READONLY if readonly else 0,
                                             made), f"a region of dma-buf {fd}")
            self._made(dev, made, False, mapped=False)
        return self

    def _made(self, dev: Device, made: ctypes.c_void_p, persistent: bool,
              memory: Array | None = None, mapped: bool = True) -> None:
        info, address = RegionInfo(), ctypes.c_void_p()
        result = lib.tow_region_info(made, info)
        self.readonly = bool(info.flags & READONLY)
        if memory is not None:
            address.value = address_of(memory)
        elif not result and mapped:
            result = lib.tow_region_map(made, 0, 0, PROT_READ | (0 if self.readonly else PROT_WRITE),
                                        address)
        if result:
            lib.tow_region_destroy(made)
            raise failure(result, "mapping a region")
        end = _Ending(persistent)
        self.device = dev
        self.nbytes: int = info.bytes
        self._ending = end
        self._address = address.value or 0
        self._own(Handle(made.value, end, dev._handle, kept=(memory,)))

    @property
    def fd(self) -> int:
        """A new descriptor of it, a dma-buf, for passing it on: os.close() is the caller's.

        Who has it may write to the region unless that is read-only.
        Raises Error: EOPNOTSUPP: it is of the process's own memory or of a dma-buf; EMFILE, ENFILE.
        """
        fd = ctypes.c_int()
        with self._handle as pointer:
            check(lib.tow_region_fd(pointer, READONLY if self.readonly else 0, fd),
                  "a region's descriptor")
        return fd.value

    def array(self, shape: Shape, dtype: Any = np.uint8, offset: int = 0) -> Array:
        """A part of it as an array, which keeps the region.

        offset: where it begins, in bytes: a multiple of the elements' alignment.
        Raises ValueError: it is not within the region, or not aligned; the region has no address.
        """
        dims, kind = shape_of(shape), np.dtype(dtype)
        nbytes = bytes_of(dims, kind)
        if kind.hasobject:
            raise TypeError(f"{kind} refers to Python objects, which have no place here")
        if not self._address:
            raise ValueError("another device's memory has no address")
        if offset < 0 or offset + nbytes > self.nbytes:
            raise ValueError(f"{nbytes} bytes from {offset} on are not within {self.nbytes}")
        if offset % kind.alignment:
            raise ValueError(f"offset {offset} is no multiple of {kind.alignment}")
        with self._handle.look():
            block = Block(self._handle, self._address + offset, nbytes, readonly=self.readonly)
            return block.array(dims, kind)

    def destroy(self) -> None:
        """As close(), of a persistent one, too."""
        self._ending.persistent = False
        self.close()


class _Ending:
    """How a region ends."""

    def __init__(self, persistent: bool) -> None:
        self.persistent = persistent

    def __call__(self, pointer: int | None) -> None:
        (lib.tow_region_release if self.persistent else lib.tow_region_destroy)(pointer)
