# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""What all ranks of a group do together to their arrays."""

from __future__ import annotations

import asyncio
import collections
import ctypes
import threading
import time
from errno import ETIMEDOUT
from typing import Any, Callable, NamedTuple, Optional

import numpy as np

from ._group import Group
from ._lib import (FOREVER, NO_RANK, CollectiveAttr, CollectiveStats, CommAttr, Deadline, failure, lib,
                   milliseconds)
from ._life import Handle, Interruptible, Object
from ._memory import Arena, values_of
from ._types import address_of, dtype_of, whole

ALLREDUCE, REDUCE_SCATTER, ALLGATHER, BROADCAST, BARRIER = range(5)
REDUCTIONS = {"sum": 0, "avg": 1, "min": 2, "max": 3, "product": 4, "band": 5, "bor": 6, "bxor": 7}
ALGORITHMS = {"any": 0, "ring": 1, "direct": 2}
# In one call, which other threads that use the communicator wait for.
SLICE_S = 0.02
# The longest pause between two looks of run(), and how much of the time so far it may be.
PAUSE_S, PAUSE_PART = 0.005, 8


class _Turn:
    """One thread at a time uses a communicator; what the garbage collector ends waits for it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._graves: collections.deque[Callable[[], None]] = collections.deque()
        self.wanted = 0

    def __enter__(self) -> None:
        self.wanted += 1
        self._lock.acquire()
        self.wanted -= 1

    def __exit__(self, *_: Any) -> None:
        self._lock.release()
        self._dig()

    def end(self, finish: Callable[[], None]) -> None:
        """Now, or when the thread that is at it has done."""
        self._graves.append(finish)
        self._dig()

    def _dig(self) -> None:
        # Who adds one after the last look finds the lock free, and looks himself.
        while self._graves and self._lock.acquire(blocking=False):
            try:
                if self._graves:
                    self._graves.popleft()()
            except IndexError:
                pass
            finally:
                self._lock.release()


class Comm(Object):
    """What a group needs to do something together.

    group: the ranks.
    arena: for what is needed, and for the arrays that are not copied.
    timeout: how long a collective may take before somebody is blamed, in seconds; None: for ever.

    All ranks make it, and collectives of it, in the same order; making one waits for all.  A
    collective is made once, for the same arrays, and called as often as one likes.  Several may
    be on their way at once.  Any number of threads may use it; one at a time is at work.

    When a rank dies, or comes too late, everything raises the same Error ever after, with blamed
    the same rank at all ranks.  Whoever is left makes a new group, of another name or restart.

    close() closes its collectives first.

    Raises Error: ENOSPC: the pool has no room; ECANCELED: blamed could not; as Group.gather().
    """

    def __init__(self, group: Group, arena: Arena, timeout: Optional[float] = 600.0) -> None:
        attr = CommAttr(timeout_ms=milliseconds(timeout))
        made, blamed = ctypes.c_void_p(), ctypes.c_uint32(FOREVER)
        with group._handle as ranks, arena._handle as memory, Interruptible() as waiting:
            result = lib.tow_comm_create(ranks, memory, attr, made, blamed)
            if not result:
                self._own(Handle(made.value, lib.tow_comm_destroy, group._handle, arena._handle))
        waiting.over()
        if result:
            raise failure(result, "making a communicator", blamed.value)
        self.group = group
        self.arena = arena
        self.rank, self.size = group.rank, group.size
        self._turn = _Turn()

    def allreduce(self, array: np.ndarray, out: Optional[np.ndarray] = None, op: str = "sum",
                  algorithm: str = "any") -> "Collective":
        """All ranks get the reduction of all ranks' arrays, element by element.

        array: this rank's; float16, float32, float64, bfloat16, int8, int32, int64, uint8 or bool.
        out: where to put it, of the same shape and type; None: @array itself.
        op: "sum", "product", "min", "max"; "avg", not of bools; "band", "bor" and "bxor", not of
            floats.  Integers wrap around; sum and max of bools are their or, product and min
            their and.
        algorithm: "ring", "direct", or "any": as suits the size.
        """
        out = array if out is None else out
        self._alike(array, out, array.shape)
        return Collective(self, ALLREDUCE, array, out, array.size, REDUCTIONS[op],
                          algorithm=ALGORITHMS[algorithm])

    def reduce_scatter(self, array: np.ndarray, out: Optional[np.ndarray] = None,
                       op: str = "sum") -> "Collective":
        """Rank R gets the R-th part of the reduction of all ranks' arrays.

        array: this rank's, of as many times @out's elements as there are ranks.
        out: where to put the part; None: a new array in the arena, of one dimension.
        """
        if whole(array, "array").size % self.size:
            raise ValueError(f"{array.size} elements are not for {self.size} ranks")
        if out is None:
            out = self.arena.empty(array.size // self.size, array.dtype)
        self._alike(array, out, None, out.size * self.size)
        return Collective(self, REDUCE_SCATTER, array, out, out.size, REDUCTIONS[op])

    def allgather(self, array: np.ndarray, out: Optional[np.ndarray] = None) -> "Collective":
        """All ranks get all ranks' arrays, one behind the other.

        array: this rank's, of any type; it may be its own place in @out.
        out: where to put them; None: a new array in the arena, one dimension more.
        """
        if out is None:
            out = self.arena.empty((self.size, *whole(array, "array").shape), array.dtype)
        self._alike(array, out, None, out.size // self.size)
        if out.size != array.size * self.size:
            raise ValueError(f"{out.size} elements are not those of {self.size} ranks")
        return Collective(self, ALLGATHER, array, out, array.size)

    def broadcast(self, array: np.ndarray, root: int = 0) -> "Collective":
        """All ranks get what rank @root has in @array, in theirs; of any type."""
        self._alike(array, array, array.shape)
        return Collective(self, BROADCAST, array, array, array.size, root=root)

    def barrier(self) -> "Collective":
        """Nobody goes on before all have come: comm.barrier()() makes one and waits."""
        return Collective(self, BARRIER)

    @staticmethod
    def _alike(array: np.ndarray, out: np.ndarray, shape: Optional[tuple[int, ...]],
               size: Optional[int] = None) -> None:
        whole(array, "array")
        whole(out, "out", writable=True)
        if array.dtype != out.dtype:
            raise ValueError(f"out is of {out.dtype}, not {array.dtype}")
        if shape is not None and out.shape != shape:
            raise ValueError(f"out is of {out.shape}, not {shape}")
        if size is not None and array.size != size:
            raise ValueError(f"{array.size} elements do not go with {out.size}")


class CollectiveReport(NamedTuple):
    """What a collective has done, as struct tow_collective_stats."""
    algorithm: int
    pieces: int
    copies: int
    calls: int
    sent_bytes: int
    copied_bytes: int
    forwarded: int


class Collective(Object):
    """One thing that all ranks do, as often as they like: made by Comm's functions.

    in, out: the arrays, which are kept.  From start() until it has ended the first is not
    changed, and the second is not used.

    op() is start() and wait(); await op.run() is the same in asyncio.

    Raises Error when it is made: EINVAL, EOPNOTSUPP: such elements cannot be reduced; EPROTO:
    blamed asks for something else; ECANCELED: blamed could not; EMLINK: the communicator has 4,096 of
    them; ENOSPC.
    """

    def __init__(self, comm: Comm, kind: int, array: Optional[np.ndarray] = None,
                 out: Optional[np.ndarray] = None, count: int = 0, reduction: int = 0,
                 root: int = 0, algorithm: int = 0) -> None:
        attr = CollectiveAttr(kind=kind, reduction=reduction, algorithm=algorithm, root=root,
                              count=count)
        if array is not None and out is not None:
            attr.dtype = dtype_of(array.dtype)
            attr.out = address_of(out)
            setattr(attr, "in", address_of(array))
        made, blamed = ctypes.c_void_p(), ctypes.c_uint32(FOREVER)
        with comm._handle as pointer, comm._turn, Interruptible() as waiting:
            result = lib.tow_collective_create(pointer, attr, made, blamed)
            if not result:
                handle = Handle(made.value, lib.tow_collective_destroy, comm._handle,
                                kept=(array, out), defer=comm._turn.end)
                comm._handle.owned.add(handle)
                self._own(handle)
        waiting.over()
        if result:
            raise failure(result, "making a collective", blamed.value)
        self.comm = comm
        self.array = array
        self.out = out

    def start(self) -> None:
        """Begin.

        Raises Error: EBUSY: it was started, and has not ended; or as wait().
        """
        with self._handle as pointer, self.comm._turn:
            result = lib.tow_collective_start(pointer)
            blamed = ctypes.c_uint32(FOREVER)
            if result:
                lib.tow_collective_test(pointer, blamed)
        if result:
            raise failure(result, "a collective", blamed.value)

    def _ended(self, result: int, blamed: ctypes.c_uint32) -> bool:
        if result < 0:
            raise failure(result, "a collective", blamed.value)
        return bool(result)

    def test(self) -> bool:
        """Has it ended?  Goes on with all that the communicator has on its way.

        Raises Error: as wait().
        """
        blamed = ctypes.c_uint32(FOREVER)
        with self._handle as pointer, self.comm._turn:
            result = lib.tow_collective_test(pointer, blamed)
        return self._ended(result, blamed)

    def wait(self, timeout: Optional[float] = None) -> Optional[np.ndarray]:
        """Until it has ended; goes on with all that the communicator has on its way.

        timeout: seconds; after that it goes on, and may be waited for again.
        Returns out.
        Raises Timeout without blamed: after @timeout; its text says who is late.  Error with blamed: ESTALE: that rank died
        or left; ECONNRESET: its node does not answer; ETIMEDOUT: it did not come in time;
        ECANCELED: it could not go on.
        """
        until = Deadline(timeout)
        while True:
            blamed = ctypes.c_uint32(FOREVER)
            with self._handle as pointer, self.comm._turn:
                result = lib.tow_collective_wait_for(pointer, until.slice_us(SLICE_S), blamed)
            if self._ended(result, blamed):
                return self.out
            if until.over:
                late = self.late()
                raise failure(-ETIMEDOUT, "a collective" if late is None else
                              f"a collective that rank {late} has not started")
            if self.comm._turn.wanted:
                time.sleep(0.0002)

    def late(self) -> Optional[int]:
        """The first rank that has not started it so far, or does not answer; None: there is none.

        Asks others, which takes a round trip each.  Raises Error: as wait().
        """
        late = ctypes.c_uint32(FOREVER)
        with self._handle as pointer, self.comm._turn:
            result = lib.tow_collective_late(pointer, late)
        if result:
            raise failure(result, "a collective")
        return None if late.value == NO_RANK else late.value

    def __call__(self, timeout: Optional[float] = None) -> Optional[np.ndarray]:
        self.start()
        return self.wait(timeout)

    async def run(self) -> Optional[np.ndarray]:
        """start(), and until it has ended: returns out.

        A communicator has no descriptor to wait for, and a thread that waited would keep what is
        started meanwhile, which other ranks may wait for first, from beginning.  So the event
        loop looks, at once at first and then after ever longer pauses: an eighth of the time that
        it has taken so far, 5 ms at most.  If the task is cancelled the collective goes on.
        """
        self.start()
        began = time.monotonic()
        while not self.test():
            pause = (time.monotonic() - began) / PAUSE_PART
            await asyncio.sleep(min(pause, PAUSE_S) if pause > 0.0005 else 0)
        return self.out

    def stats(self) -> CollectiveReport:
        """What it has done so far; sizes in bytes."""
        stats = CollectiveStats()
        with self._handle as pointer, self.comm._turn:
            result = lib.tow_collective_stats(pointer, stats)
        if result:
            raise failure(result, "asking a collective")
        return values_of(stats, CollectiveReport)
