# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""Where the tensors of a plan leave a rank, and where they come to it.

A static or bounded tensor is one write into the receiver's region, with a notification that counts the step
at the edge's slot.  The receiver counts each step that was read at a slot of whoever may then send.  What a
bounded tensor begins with says its dims.  Dynamic edges are those of the library.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import errno
import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _types
from .._lib import Error, failure, lib
from .._memory import Arena, Region
from .._queue import Queue, Slot
from .._remote import Remote
from .._types import Array, address_of
from .._worker import Worker
from ._graph import BITS, AnyDim, Dim, GraphError
from ._plan import LINE, PlanEdge

if TYPE_CHECKING:
    from .._edge import DynamicReceiver, DynamicSender, Received

# How a static or bounded tensor is sent: from where the plan has it, from the arena, or, as it fell back, by
# the dynamic edge beside.
IN_PLACE, IN_ARENA, FALLEN = range(3)
# In place of the dims of one that fell back.
_ELSEWHERE = -1
# A tensor of so many bytes or more goes in parts, by several queue pairs, as those of the library's edges do.
CUT_BYTES, LANES = 4 << 20, 4


def dtype_of(name: str) -> np.dtype[Any]:
    """NumPy's type of that name, or that of ml_dtypes.

    Raises GraphError: there is none, or it has a byte for each element, which are less when they travel.
    """
    found: Any = _types.bfloat16 if name == "bfloat16" else None
    with contextlib.suppress(TypeError):
        found = found or np.dtype(name)
    if found is None:
        with contextlib.suppress(ImportError, AttributeError):
            found = np.dtype(getattr(importlib.import_module("ml_dtypes"), name))
    if found is None or found.itemsize * 8 != BITS[name]:
        raise GraphError(f"NumPy has no elements of {name}")
    return np.dtype(found)


def _text(dim: AnyDim) -> str:
    if isinstance(dim, Dim):
        return f"{dim.name}<={dim.max}" if dim.max is not None else dim.name
    return "?" if dim is None else str(dim)


def fits(dims: tuple[AnyDim, ...] | None, shape: Sequence[int]) -> bool:
    """Can a tensor of those dims be of that shape?"""
    return dims is None or len(dims) == len(shape) and all(
        size == dim if isinstance(dim, int) else not isinstance(dim, Dim) or dim.max is None or size <= dim.max
        for dim, size in zip(dims, shape, strict=True))


def contradiction(edge: PlanEdge, dtype: object, shape: Sequence[int]) -> GraphError:
    """What a tensor is that the plan says is another one."""
    dims = "of any shape" if edge.dims is None else f"[{', '.join(map(_text, edge.dims))}]"
    return GraphError(f"edge {edge}: expected {edge.dtype} {dims}, got {dtype} [{', '.join(map(str, shape))}]")


# What of a transfer's errors the other end is to blame for.
_THEIRS = {errno.ESTALE, errno.ECONNRESET, errno.ETIMEDOUT, errno.EPROTO, errno.EHOSTUNREACH}


def _blaming(error: Error, edge: PlanEdge, rank: int) -> Error:
    """It with the edge, and with that rank, which is at its other end, where it is to blame."""
    number = error.errno or errno.EIO
    return failure(-number, f"edge {edge}", rank if number in _THEIRS else None)


def _wrong(edge: PlanEdge, dtype: object, shape: Sequence[int]) -> Error:
    """What another rank has sent contradicts the plan, which it should have seen itself."""
    return failure(-errno.EPROTO, str(contradiction(edge, dtype, shape)), edge.from_rank)


class Here:
    """What all ends of a rank are made of."""

    def __init__(self, queue: Queue, entries: int, region: Region | None, arena: Arena, worker: Worker) -> None:
        self.queue = queue
        self._entries = entries
        self.arena = arena
        self.worker = worker
        self.region = region
        self.memory: Array = region.array(region.nbytes) if region else np.empty(0, np.uint8)
        # Bytes that were copied, by edges that are not dynamic.
        self.copied = 0

    def room(self) -> bool:
        """Has the queue room for a tensor's entries, and for those who wait?"""
        return self.queue.in_flight < self._entries - 2 * LANES

    def array(self, shape: Sequence[int], dtype: np.dtype[Any], offset: int) -> Array:
        """A part of the region."""
        return np.ndarray(shape, dtype, self.memory, offset)


class _Waits:
    """For a slot: asleep, as a request of the queue's."""

    def __init__(self, here: Here, slot: Slot) -> None:
        self._queue = here.queue
        self._slot = slot
        self._asked: Any = None
        self._number = -1
        # Read at every turn, by one thread, as long as there is the slot: without what makes sure of that.
        self._value, self._pointer = slot._value, slot._handle.pointer

    @property
    def value(self) -> int:
        """How many notifications have arrived.  Raises what has become of whoever notifies."""
        if self._asked is not None and self._asked.done():
            asked, self._asked = self._asked, None
            asked.result(0)
        return int(self._value(self._pointer))

    def arm(self, number: int) -> None:
        """The queue's descriptor is readable when the slot has come so far."""
        if self._asked is None or self._number != number:
            self._asked, self._number = self._queue.wait(self._slot, number), number


class Way:
    """Where an output leaves for one rank, of a static or bounded edge.

    over: how many steps have been sent.
    """

    def __init__(self, here: Here, edge: PlanEdge, peer_qps: int, there: Remote, slot: Remote,
                 credit: Slot, fallback: DynamicSender | None) -> None:
        assert here.region
        self.edge = edge
        self.over = 0
        self._here = here
        self._head = LINE if edge.kind == "bounded" else 0
        lanes = lanes_of(edge, peer_qps)
        self._qps = [(edge.number + lane) % peer_qps for lane in range(lanes)]
        self._remote, self._slot = there, slot
        self._fallback = fallback
        self._credits = _Waits(here, credit)
        self._lanes: dict[int, list[Any]] = {0: [here.queue.transfer(here.region, there, qp, slot)
                                                 for qp in self._qps]}
        self._given: collections.deque[tuple[int, Array, int, int]] = collections.deque()
        self._flying: collections.deque[tuple[list[Any], Array]] = collections.deque()
        # Tensors that fell back.
        self._fallen: collections.deque[Any] = collections.deque()

    def give(self, step: int, array: Array, offset: int, how: int) -> None:
        """Send it when its turn comes; it is kept until then.

        offset: where in the region it is, if it is in place.  What a bounded one begins with is before that
        in any case.
        how: IN_PLACE, IN_ARENA, or FALLEN.
        """
        self._given.append((step, array, offset, how))

    @property
    def waits(self) -> bool:
        """Has anything that was given not begun?"""
        return bool(self._given)

    @property
    def busy(self) -> bool:
        """Has anything that was given not been sent?"""
        return bool(self._given or self._flying or self._fallen)

    def go(self) -> bool:
        """Begin what may begin, and see what has ended: has anything?"""
        before = len(self._given), self.over
        try:
            self._reap()
            if self._given:
                credit = self.edge.steps + self._credits.value
                while self._given and self._given[0][0] < credit and self._here.room() and \
                        len(self._fallen) < self.edge.slots:
                    self._begin(*self._given.popleft())
        except Error as error:
            raise _blaming(error, self.edge, self.edge.to_rank) from error
        return before != (len(self._given), self.over)

    def _reap(self) -> None:
        while self._flying and all(request.done() for request in self._flying[0][0]):
            for request in self._flying[0][0]:
                request.result(0)
            self._flying.popleft()
            self.over += 1
        while self._fallen and self._fallen[0].done:
            self._fallen.popleft().wait(0)

    def forget(self) -> None:
        """What keeps memory: nothing is sent any more."""
        self._lanes.clear()
        self._given.clear()
        self._flying.clear()
        self._fallen.clear()

    def arm(self) -> None:
        """Before sleeping."""
        if self._given:
            self._credits.arm(self._given[0][0] + 1 - self.edge.steps)

    def _begin(self, step: int, array: Array, offset: int, how: int) -> None:
        there, head = self.edge.tensors_offset + step % self.edge.slots * self.edge.stride, self._head
        requests: list[Any] = []
        if how == IN_PLACE:
            self._write(requests, self._lanes[0], offset - head, there, head + array.nbytes)
        elif how == FALLEN:
            assert self._fallback
            self._fallen.append(self._fallback.send(array))
            self._write(requests, self._lanes[0], offset - head, there, head)
        else:
            if head:
                requests.append(self._lanes[0][0].write(offset - head, there, head))
            region, at = self._find(array)
            self._write(requests, self._lanes_of(region), at, there + head, array.nbytes)
        self._flying.append((requests, array))

    def _write(self, requests: list[Any], lanes: list[Any], offset: int, there: int, nbytes: int) -> None:
        each = nbytes // len(lanes) // LINE * LINE
        for number, lane in enumerate(lanes):
            first = number * each
            part = each if number + 1 < len(lanes) else nbytes - first
            requests.append(lane.write_notify(offset + first, there + first, part) if part else lane.notify())

    def _find(self, array: Array) -> tuple[int, int]:
        region, offset = ctypes.c_void_p(), ctypes.c_uint64()
        with self._here.arena._handle as arena:
            lib.tow_arena_find(arena, address_of(array), region, offset)
        return region.value or 0, offset.value

    def _lanes_of(self, region: int) -> list[Any]:
        if region not in self._lanes:
            self._lanes[region] = [self._here.queue._between(region, self._here.arena._handle, self._remote,
                                                             qp, self._slot) for qp in self._qps]
        return self._lanes[region]


def lanes_of(edge: PlanEdge, peer_qps: int) -> int:
    """By how many queue pairs each of its tensors goes."""
    return min(LANES, peer_qps) if edge.tensor_bytes >= CUT_BYTES else 1


class DynamicWay:
    """The same of a dynamic edge."""

    def __init__(self, edge: PlanEdge, sender: DynamicSender) -> None:
        self.edge = edge
        self.over = 0
        self._sender = sender
        self._given: collections.deque[Array] = collections.deque()
        self._flying: collections.deque[Any] = collections.deque()

    def give(self, _step: int, array: Array, _offset: int, _how: int) -> None:
        """Send it when its turn comes."""
        self._given.append(array)

    @property
    def waits(self) -> bool:
        """As of Way."""
        return bool(self._given)

    @property
    def busy(self) -> bool:
        """As of Way."""
        return bool(self._given or self._flying)

    def go(self) -> bool:
        """As of Way."""
        before = len(self._given), self.over
        try:
            while self._flying and self._flying[0].done:
                self._flying.popleft().wait(0)
                self.over += 1
            # As many as there are slots at most: there is room for them.
            while self._given:
                self._flying.append(self._sender.send(self._given.popleft()))
        except Error as error:
            raise _blaming(error, self.edge, self.edge.to_rank) from error
        return before != (len(self._given), self.over)

    def forget(self) -> None:
        """As of Way."""
        self._given.clear()
        self._flying.clear()

    def arm(self) -> None:
        """The worker's descriptor tells."""


class Out:
    """An output that goes to other ranks, by one way to each."""

    def __init__(self, here: Here, ways: list[Any]) -> None:
        edges = [way.edge for way in ways]
        self.edge: PlanEdge = edges[0]
        self.ways = ways
        self.slots: int = max(edge.slots for edge in edges)
        self.dtype = dtype_of(self.edge.dtype)
        self._here = here
        self._head = LINE if self.edge.kind == "bounded" else 0
        self._held: list[Array] = []

    def free(self, step: int) -> bool:
        """Is there room for that step's tensor?"""
        return all(way.over > step - self.slots for way in self.ways)

    def place(self, step: int, shape: tuple[int, ...]) -> Array:
        """Where that step's tensor is sent from."""
        fit = fits(self.edge.dims, shape)
        if not fit and not self.edge.fallback:
            raise contradiction(self.edge, self.dtype, shape)
        if self.edge.kind == "dynamic" or not fit:
            return self._here.arena.empty(shape, self.dtype)
        return self._here.array(shape, self.dtype, self._offset(step))

    def hold(self, array: Array) -> None:
        """It is the same at each step: wherever it is sent from it is already.

        Raises GraphError: as give().
        """
        fit = fits(self.edge.dims, array.shape)
        if array.dtype != self.dtype or not fit and not self.edge.fallback:
            raise contradiction(self.edge, array.dtype, array.shape)
        if self.edge.kind == "dynamic" or not fit:
            self._held = [self._here.arena.array(array)]
            return
        self._held = [self.place(step, array.shape) for step in range(self.slots)]
        for place in self._held:
            np.copyto(place, array)

    def held(self, step: int) -> Array:
        """It, where that step sends it from."""
        return self._held[step % len(self._held)]

    def _offset(self, step: int) -> int:
        edge = self.edge
        return edge.send_offset + step % self.slots * edge.stride + self._head

    def give(self, step: int, array: Array) -> bool:
        """Send it to all: was it where it can be sent from?

        Raises GraphError: the plan says that it is of another type or shape.
        """
        edge, here = self.edge, self._here
        fallen = edge.fallback and not fits(edge.dims, array.shape)
        if array.dtype != self.dtype or not fallen and not fits(edge.dims, array.shape):
            raise contradiction(edge, array.dtype, array.shape)
        offset, how = self._offset(step), FALLEN
        if fallen or edge.kind == "dynamic":
            well = array.flags.c_contiguous and array in here.arena
            if not well:
                # At once: it may be where others write when it was read, or fed, and change.
                here.copied += array.nbytes
                array = here.arena.array(array)
        else:
            array, how, well = self._placed(array, offset)
        if self._head:
            dims = (_ELSEWHERE,) if fallen else array.shape
            here.array((len(dims),), np.dtype(np.int64), offset - LINE)[...] = dims
        for way in self.ways:
            way.give(step, array, offset, how)
        return well

    def _placed(self, array: Array, offset: int) -> tuple[Array, int, bool]:
        """It where it can be sent from, how, and whether it was there."""
        place = self._here.array(array.shape, self.dtype, offset)
        whole = array.flags.c_contiguous
        if not array.nbytes or whole and address_of(array) == address_of(place):
            return array, IN_PLACE, True
        if whole and array in self._here.arena:
            return array, IN_ARENA, True
        np.copyto(place, array)
        self._here.copied += array.nbytes
        return place, IN_PLACE, False


def _test(receiver: DynamicReceiver, edge: PlanEdge) -> Received | None:
    try:
        return receiver.test()
    except Error as error:
        raise _blaming(error, edge, edge.from_rank) from error


def _consume(receiver: DynamicReceiver, edge: PlanEdge) -> None:
    try:
        receiver.consumed()
    except Error as error:
        raise _blaming(error, edge, edge.from_rank) from error


class In:
    """Where a static or bounded edge's tensors come to.

    readers: the nodes here that take them, by number.
    """

    def __init__(self, here: Here, edge: PlanEdge, slot: Slot, readers: list[int], frees: PlanEdge,
                 credit: Any, fallback: DynamicReceiver | None) -> None:
        self.edge = edge
        self.readers = readers
        self._here = here
        self._dtype = dtype_of(edge.dtype)
        self._waits = _Waits(here, slot)
        # Steps that have, when it was looked at last.
        self._come = 0
        self._frees = frees
        self._credit = credit
        self._fallback = fallback
        self._fallen = False
        self._told: collections.deque[Any] = collections.deque()

    def come(self, step: int) -> Array | None:
        """That step's tensor, if it has come."""
        edge = self.edge
        if not self._has(step):
            return None
        offset = edge.tensors_offset + step % edge.slots * edge.stride
        shape: Any = edge.dims
        if edge.kind == "bounded":
            shape = self._here.array((len(shape),), np.dtype(np.int64), offset).tolist()
            offset += LINE
            self._fallen = shape[0] == _ELSEWHERE and self._fallback is not None
            if self._fallen:
                return self._elsewhere()
            if min(shape) < 0 or not fits(edge.dims, shape):
                raise _wrong(edge, edge.dtype, shape)
        array = self._here.array(shape, self._dtype, offset)
        array.flags.writeable = False
        return array

    def _elsewhere(self) -> Array | None:
        assert self._fallback
        found = _test(self._fallback, self.edge)
        if found is None:
            return None
        if found[1].dtype != self._dtype:
            raise _wrong(self.edge, found[1].dtype, found[1].shape)
        found[1].flags.writeable = False
        return found[1]

    def there(self, step: int) -> bool:
        """Has it come?"""
        return self._has(step) and (
            not self._fallen or self._fallback is not None and self._fallback.test() is not None)

    def _has(self, step: int) -> bool:
        """Has it been notified of?"""
        if self._come <= step:
            try:
                self._come = self._waits.value
            except Error as error:
                raise _blaming(error, self.edge, self.edge.from_rank) from error
        return self._come > step

    def arm(self, step: int) -> None:
        """Before sleeping."""
        self._waits.arm(step + 1)

    def read(self) -> None:
        """A step's tensor was: tell whoever may send now."""
        if self._fallen:
            assert self._fallback
            _consume(self._fallback, self.edge)
            self._fallen = False
        try:
            self._told.append(self._credit.notify())
        except Error as error:
            raise _blaming(error, self._frees, self._frees.from_rank) from error

    def go(self) -> bool:
        """See whether they were told: was anybody?"""
        before = len(self._told)
        try:
            while self._told and self._told[0].done():
                self._told.popleft().result(0)
        except Error as error:
            raise _blaming(error, self._frees, self._frees.from_rank) from error
        return len(self._told) < before

    @property
    def busy(self) -> bool:
        """Is anybody to be told still?"""
        return bool(self._told)


class DynamicIn:
    """The same of a dynamic edge."""

    busy = False

    def __init__(self, edge: PlanEdge, receiver: DynamicReceiver, readers: list[int]) -> None:
        self.edge = edge
        self.readers = readers
        self._receiver = receiver
        self._dtype = dtype_of(edge.dtype)

    def come(self, _step: int) -> Array | None:
        """As of In."""
        found = _test(self._receiver, self.edge)
        if found is None:
            return None
        array = found[1]
        if array.dtype != self._dtype or not fits(self.edge.dims, array.shape):
            raise _wrong(self.edge, array.dtype, array.shape)
        array.flags.writeable = False
        return array

    def there(self, _step: int) -> bool:
        """As of In."""
        return self._receiver.test() is not None

    def arm(self, _step: int) -> None:
        """The worker's descriptor tells."""

    def read(self) -> None:
        """As of In."""
        _consume(self._receiver, self.edge)

    def go(self) -> bool:
        """Nothing is left to do."""
        return False
