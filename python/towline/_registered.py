# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""What an agent has registered: ranges of addresses, each of which others reach by an export."""

from __future__ import annotations

import bisect
import ctypes
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ._device import Device
from ._lib import PERSISTENT, READONLY, Error, RegionInfo, check, lib
from ._life import Handle, Object
from ._memory import Region
from ._remote import Right
from ._types import Array, address_of, whole


class Range(NamedTuple):
    """Memory from an address up to another one, and what keeps it there."""
    start: int
    end: int
    writable: bool
    kept: Any
    region: Region | None = None


class There(NamedTuple):
    """What another agent has registered."""
    start: int
    end: int
    name: str
    right: Right


class _Place(Object):
    """What stands for a region: entries name it by what the library's object begins with.

    So nothing here points to that object, which may end with memory that nobody has kept.
    """

    def __init__(self, dev: Device, region: int, parent: Handle, kept: Any) -> None:
        said = ctypes.c_uint64.from_buffer_copy(ctypes.string_at(region, 8))
        self._own(Handle(ctypes.addressof(said), lambda _: None, parent, kept=(said, kept)))
        self.device = dev


class Memory(Object):
    """A range that is registered: what stands for its region, and its export."""

    def __init__(self, place: _Place, region: int, offset: int, name: str, wanted: Range) -> None:
        """region: the library's; offset: where in it the range begins."""
        self.start, self.end, self.name = wanted.start, wanted.end, name
        # Where the region begins: offsets are from there on.
        self.base = wanted.start - offset
        self.right = Right.READ | Right.WRITE if wanted.writable else Right.READ
        self.users: set[Registration] = set()
        self.place = place
        exported = ctypes.c_void_p()
        check(lib.tow_export(region, offset, self.end - self.start, name.encode(), self.right, exported),
              "registering memory")
        self._own(Handle(exported.value, lib.tow_unexport, place._handle))

    def close(self) -> None:
        """Nobody reaches it any more."""
        super().close()
        self.place.close()


class Registration:
    """What Agent.register() has registered: a context manager; close() takes it back.

    What several have registered ends with the last of them.  close() waits until no other process can
    reach it.  One that nobody has any more stays until the agent is closed, and so does what it is of.
    """

    def __init__(self, registry: Registry, memory: set[Memory], kept: Any) -> None:
        self._registry = registry
        self._memory = memory
        self._kept = kept
        for one in memory:
            one.users.add(self)

    def close(self) -> None:
        """Take it back."""
        memory, self._memory = self._memory, set()
        self._registry.give_back(self, memory)
        self._kept = None

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class Registry:
    """Ranges of addresses that are registered, in the order of their begins."""

    def __init__(self, dev: Device, token: str, forget: Callable[[list[Memory]], None]) -> None:
        """token: what names begin with; forget: called with what is about to end."""
        self._device = dev
        self._token = token
        self._forget = forget
        self._lock = threading.RLock()
        self._memory: list[Memory] = []
        self._numbers = itertools.count()

    def listed(self) -> list[Memory]:
        """All of it."""
        with self._lock:
            return list(self._memory)

    def add(self, objects: Sequence[Any]) -> Registration:
        """Agent.register()."""
        wanted = _ranges_of(objects)
        with self._lock:
            try:
                merged = self._merged(wanted)
                self._make_all(merged)
            except Error:
                # What lies side by side may be memory of several kinds.
                merged = _ranges_of(objects, apart=True)
                if len(merged) == len(wanted):
                    raise
                self._make_all(merged)
            used = {memory for memory in map(self._covering, merged) if memory}
            return Registration(self, used, wanted)

    def _make_all(self, wanted: list[Range]) -> None:
        made: list[Memory] = []
        try:
            for one in wanted:
                if not self._covering(one):
                    made.append(self._make(one))
        except BaseException:
            for memory in made:
                self._memory.remove(memory)
                memory.close()
            raise

    def give_back(self, registration: Registration, memory: set[Memory]) -> None:
        """One user of each is gone; what has none any more ends."""
        # In a child that was forked somebody may have the lock who is not there.
        if not self._device._handle.ours:
            return
        with self._lock:
            for one in memory:
                one.users.discard(registration)
            ended = [one for one in memory if not one.users and one in self._memory]
            for one in ended:
                self._memory.remove(one)
        self._forget(ended)
        for one in ended:
            one.close()
        # Those who had looked before it ended may have come in between.
        self._forget(ended)

    def close(self) -> None:
        """Take all of it back."""
        with self._lock:
            memory, self._memory = self._memory, []
        for one in memory:
            one.close()

    def _covering(self, wanted: Range) -> Memory | None:
        """What is registered and has all of it."""
        last = bisect.bisect_right(self._memory, wanted.start, key=_start)
        for one in reversed(self._memory[:last]):
            if one.end >= wanted.end and (Right.WRITE in one.right or not wanted.writable):
                return one
        return None

    def _merged(self, wanted: list[Range]) -> list[Range]:
        """What overlaps, or lies side by side, as one; what is in a region stays alone."""
        runs: list[Range] = []
        for one in sorted(wanted, key=lambda one: one[:2]):
            run = runs[-1] if runs else one
            if runs and one.start <= run.end and run.writable == one.writable and not any(
                    each.region or self._pool_region(each) for each in (run, one)):
                runs[-1] = run._replace(end=max(run.end, one.end), kept=(run.kept, one.kept))
            else:
                runs.append(one)
        return runs

    def _pool_region(self, wanted: Range) -> tuple[int, int] | None:
        """The library's region of the pool that has all of it, and where in it: it is there as long as the memory.

        Of the process's own memory somebody else may have made one, who may end it.
        """
        found, offset, room, info = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint64(), RegionInfo()
        with self._device._handle as pointer:
            if lib.tow_region_find(pointer, wanted.start, found, offset, room) or \
                    room.value < wanted.end - wanted.start or lib.tow_region_info(found, info):
                return None
        if info.flags & ~(PERSISTENT | (0 if wanted.writable else READONLY)):
            return None
        return found.value or 0, offset.value

    def _make(self, wanted: Range) -> Memory:
        dev, made = self._device, None
        pool = None if wanted.region else self._pool_region(wanted)
        region = wanted.region
        if region is None and pool is None:
            memory = (ctypes.c_uint8 * (wanted.end - wanted.start)).from_address(wanted.start)
            region = made = Region.from_memory(dev, memory, readonly=not wanted.writable)
        try:
            with (region or dev)._handle as pointer:
                at, offset = pool or (pointer or 0, 0)
                place = _Place(dev, at, (region or dev)._handle, wanted.kept)
                try:
                    one = Memory(place, at, offset, f"{self._token}.{next(self._numbers)}", wanted)
                except BaseException:
                    place.close()
                    raise
        finally:
            # The place keeps it.
            if made:
                made.close()
        bisect.insort(self._memory, one, key=_start)
        return one


def _start(memory: Memory) -> int:
    return memory.start


def _ranges_of(objects: Sequence[Any], apart: bool = False) -> list[Range]:
    """What objects of register() are: pairs that lie side by side as one, unless they are to be @apart."""
    pairs = [one for one in objects if isinstance(one, tuple)]
    ranges, roots = [], set()
    for one in objects:
        if isinstance(one, tuple):
            continue
        root = one
        while isinstance(root, np.ndarray) and isinstance(root.base, np.ndarray):
            root = root.base
        # Of the parts of one array one is enough.
        if (id(root), getattr(getattr(one, "flags", None), "writeable", None)) not in roots:
            ranges.append(_range_of(one))
            if isinstance(root, np.ndarray) and ranges[-1].end - ranges[-1].start == root.nbytes:
                roots.add((id(root), one.flags.writeable))
    if pairs:
        ranges += _ranges_of_pairs(pairs, apart)
    return ranges


def _ranges_of_pairs(pairs: list[tuple[Any, ...]], apart: bool) -> list[Range]:
    try:
        table = np.array(pairs, np.int64)
        if table.ndim != 2 or table.shape[1] != 2:
            raise TypeError("memory is a pair of an address and a number of bytes")
        starts, ends = table[:, 0], table.sum(1)
    except OverflowError:
        table = starts = ends = np.zeros((1, 2), np.int64)
    # A sum that is too large is negative.
    if (table <= 0).any() or (ends <= 0).any():
        raise ValueError(f"there is no memory at one of {pairs[:3]} ... or of so many bytes")
    if not apart:
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], np.maximum.accumulate(ends[order])
        first = np.flatnonzero(np.concatenate([[True], starts[1:] > ends[:-1]]))
        starts, ends = starts[first], ends[np.append(first[1:] - 1, len(ends) - 1)]
    return [Range(*one, True, None) for one in zip(starts.tolist(), ends.tolist(), strict=True)]


def _range_of(one: Any) -> Range:
    """What an array, or a Region, of register() is."""
    if isinstance(one, Region):
        if not one._address:
            raise ValueError("another device's memory has no address")
        if one.closed:
            raise ValueError("the region is closed")
        return Range(one._address, one._address + one.nbytes, not one.readonly, None, one)
    array = root = whole(one, "memory")
    while isinstance(root.base, np.ndarray) and root.base.flags.c_contiguous and \
            root.base.flags.writeable == array.flags.writeable:
        root = root.base
    if not root.nbytes:
        raise ValueError("memory is empty")
    if root.dtype.hasobject:
        raise TypeError(f"{root.dtype} refers to Python objects, which nobody else may write")
    return Range(address_of(root), address_of(root) + root.nbytes, array.flags.writeable, array)


def places_of(memory: Sequence[Memory | There], addresses: Array, nbytes: Array, right: Right,
            where: str) -> Array:
    """In which of them each block is; they are in the order of their begins."""
    starts, ends = (np.array([getattr(one, end) for one in memory] or [0], np.int64) for end in ("start", "end"))
    may = np.array([right in one.right for one in memory] or [False])
    found = np.maximum(np.searchsorted(starts, addresses, "right") - 1, 0)

    def good(number: Any, at: Any) -> Any:
        return may[at] & (addresses[number] >= starts[at]) & (nbytes[number] > 0) & (
            nbytes[number] <= ends[at] - addresses[number])

    for number in np.flatnonzero(~good(slice(None), found)).tolist():
        # Those that begin before may go on longer.
        every = np.flatnonzero(good(number, np.arange(len(starts))))
        if not len(every):
            raise ValueError(f"block {number}: {nbytes[number]} bytes at {addresses[number]:#x} are not registered "
                             f"{where}, or may not be used so")
        found[number] = every[-1]
    return found
