# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""What all ranks of a group do together to their arrays."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from errno import ETIMEDOUT
from typing import Any, NamedTuple

from ._calls import ALGORITHMS, SLICE_S, Calls, Work, looked
from ._group import Group
from ._lib import (ANY, FOREVER, NO_RANK, CallAttr, CollectiveAttr, CollectiveStats, CommAttr,
                   CommStats, Deadline, Error, check, failure, lib, milliseconds)
from ._life import Handle, Interruptible, Object
from ._memory import Arena, values_of
from ._types import Array, AnyArray, address_of, dtype_of, whole

ALLREDUCE, REDUCE_SCATTER, ALLGATHER, BROADCAST, BARRIER = range(5)
REDUCTIONS = {"sum": 0, "avg": 1, "min": 2, "max": 3, "product": 4, "band": 5, "bor": 6, "bxor": 7}


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


class CommReport(NamedTuple):
    """What a communicator's calls have done at this rank, as struct tow_comm_stats."""
    calls: int
    sent_bytes: int
    eager_bytes: int
    staged_bytes: int
    copied_bytes: int


class Comm(Object):
    """What a group needs to do something together.

    group: the ranks.
    arena: for what is needed, and for the arrays that are not copied.
    timeout: how long a collective may take before somebody is blamed, in seconds; None: for ever.
    direct_ranks, direct_bytes, tree_bytes: rank 0's say how calls of algorithm "any" are done, those
        of other ranks do not: by up to so many ranks "direct", of up to so many bytes; else
        AllReduces of up to so many, and broadcasts of a quarter, by the "tree"; and what is left
        by the "ring".  0: 4, 256 KiB, 128 KiB.

    All ranks make it.  There are two ways to use it, and both may be used:

    calls: iallreduce() and all that begin with an i take any arrays at any time, as MPI's do.  They
        begin, wait for nobody, and return a Work.  Nothing is agreed upon before but that all ranks
        make the same calls in the same order; isend() and irecv() are of two ranks.
    collectives: allreduce() and its like make one, which waits for all ranks: all make them in the
        same order, between calls that all have ended.  It is called for the same arrays as often as
        one likes.

    Several may be on their way at once.  Any number of threads may use it; with collectives one at
    a time is at work.

    When a rank dies, or comes too late, everything raises the same Error ever after, with blamed
    the same rank at all ranks.  Whoever is left makes a new group, of another name or restart.

    close() waits for calls to end, for as long as they may take, and closes its collectives.  Who
    leaves a with block by an exception waits for nothing, nor do the garbage collector and the
    interpreter's end: calls that have not ended are broken off, as by abort().

    Raises Error: ENOSPC: the pool has no room; ECANCELED: blamed could not; as Group.gather().
    """

    def __init__(self, group: Group, arena: Arena, timeout: float | None = 600.0,
                 direct_ranks: int = 0, direct_bytes: int = 0, tree_bytes: int = 0) -> None:
        attr = CommAttr(timeout_ms=milliseconds(timeout), direct_ranks=direct_ranks,
                        direct_bytes=direct_bytes, tree_bytes=tree_bytes)
        made, blamed = ctypes.c_void_p(), ctypes.c_uint32(FOREVER)
        self._calls = Calls()
        with group._handle as ranks, arena._handle as memory, Interruptible() as waiting:
            result = lib.tow_comm_create(ranks, memory, attr, made, blamed)
            if not result:
                self._made(made, group, arena, group.rank, group.size)
        waiting.over()
        if result:
            raise failure(result, "making a communicator", blamed.value)

    def _made(self, made: ctypes.c_void_p, group: Group, arena: Arena, rank: int, size: int) -> None:
        self._own(Handle(made.value, self._calls.end, group._handle, arena._handle))
        self.group = group
        self.arena = arena
        self.rank, self.size = rank, size
        self._turn = _Turn()
        self._together = 0

    def split(self, ranks: Sequence[int], tag: int = 0, timeout: float | None = 600.0) -> Comm:
        """A communicator of some ranks, which those call, and no others, with the same ranks and tag.

        ranks: which ones of this one, each once; in their order they are ranks 0, 1, 2 of the new one.
        tag: a number that these ranks have for no other one that there is.
        timeout: as that of Comm.

        Nobody waits for anybody; this one may be closed before it.
        Raises Error: EINVAL: this rank is not among @ranks, or one is none, or is there twice; EEXIST:
        there is one of these ranks and @tag; ENOSPC; or what this one has failed with.
        """
        attr = CommAttr(timeout_ms=milliseconds(timeout))
        made, every = ctypes.c_void_p(), (ctypes.c_uint32 * len(ranks))(*ranks)
        other = Comm.__new__(Comm)
        other._calls = Calls()
        with self._handle as pointer:
            check(lib.tow_comm_split(pointer, every, len(ranks), tag, attr, made),
                  "splitting a communicator")
            other._made(made, self.group, self.arena, list(ranks).index(self.rank), len(ranks))
        return other

    def close(self) -> None:
        """Wait for calls to end, and end it; see Comm.  Raises ValueError: within together()."""
        if self._together:
            raise ValueError("calls that are made together have not begun")
        if self._handle.ours:
            with contextlib.suppress(ValueError):   # Somebody else closes it.
                self._calls.finish(self._handle)
        super().close()

    def __exit__(self, kind: type[BaseException] | None = None, *_: Any) -> None:
        if kind is None:
            self.close()
        else:
            super().close()

    # ---- calls ----

    def iallreduce(self, array: AnyArray, out: AnyArray | None = None, op: str = "sum",
                   algorithm: str = "any", timeout: float | None = None) -> Work:
        """All ranks get the reduction of all ranks' arrays, element by element.

        array, out, op: as for allreduce().  As for all calls, arrays in the arena are sent from
            where they are and written where they are to be; others are copied on the way.  Until
            it has ended the first is not changed, and the second is not used.
        algorithm: "ring", "direct", "tree", or "any": as suits the size.
        timeout: how long it may take before somebody is blamed and the communicator has failed, in
            seconds; None: as long as the communicator's may.

        Raises Error: EINVAL: arrays overlap otherwise than by being one; EOPNOTSUPP: such elements
        cannot be reduced, or not so; ENOSPC, ENOMEM; or as Work.wait().  Then no call was made.
        """
        array, out = self._alike(array, out)
        return self._begin("iallreduce", lib.tow_allreduce, array, address_of(out),
                           array.size, dtype_of(array.dtype), REDUCTIONS[op],
                           algorithm=algorithm, timeout=timeout, out=out)

    def ireduce_scatter(self, array: AnyArray, out: AnyArray | None = None,
                        op: str = "sum", algorithm: str = "any",
                        timeout: float | None = None) -> Work:
        """Rank R gets the R-th part of the reduction of all ranks' arrays.

        array, out, op: as for reduce_scatter(); @out may be that part of @array.
        algorithm: "ring", "direct", or "any".
        """
        array, out = self._part(array, out)
        return self._begin("ireduce_scatter", lib.tow_reduce_scatter, array, address_of(out),
                           out.size, dtype_of(array.dtype), REDUCTIONS[op],
                           algorithm=algorithm, timeout=timeout, out=out)

    def iallgather(self, array: AnyArray, out: AnyArray | None = None,
                   algorithm: str = "any", timeout: float | None = None) -> Work:
        """All ranks get all ranks' arrays, one behind the other.

        array, out: as for allgather().
        algorithm: "ring", "direct", or "any".
        """
        array, out = self._places(array, out)
        return self._begin("iallgather", lib.tow_allgather, array, address_of(out),
                           array.size, dtype_of(array.dtype), algorithm=algorithm,
                           timeout=timeout, out=out)

    def ibroadcast(self, array: AnyArray, root: int = 0, algorithm: str = "any",
                   timeout: float | None = None) -> Work:
        """All ranks get what rank @root has in @array, in theirs; of any type.

        algorithm: "ring", "tree", or "any".
        """
        array = whole(array, "array", writable=self.rank != root)
        return self._begin("ibroadcast", lib.tow_broadcast, array, array.size,
                           dtype_of(array.dtype), root, algorithm=algorithm, timeout=timeout,
                           out=array)

    def ireduce(self, array: AnyArray, out: AnyArray | None = None, op: str = "sum",
                root: int = 0, timeout: float | None = None) -> Work:
        """Rank @root gets the reduction of all ranks' arrays, element by element.

        array, op: as for iallreduce(); other ranks' arrays stay as they are.
        out: where to put it, at @root; None: @array itself.  Other ranks' is not looked at, and
            their wait() returns None.
        """
        if self.rank == root:
            array, out = self._alike(array, out)
        else:
            array, out = whole(array, "array"), None
        return self._begin("ireduce", lib.tow_reduce, array,
                           None if out is None else address_of(out), array.size,
                           dtype_of(array.dtype), REDUCTIONS[op], root, timeout=timeout, out=out)

    def ibarrier(self, timeout: float | None = None) -> Work:
        """Nobody ends it before all have begun."""
        return self._begin("ibarrier", lib.tow_barrier, None, timeout=timeout)

    def isend(self, array: AnyArray, to: int, tag: int = 0,
              timeout: float | None = None) -> Work:
        """Send @array, of any type, to rank @to, which may be this one.

        tag: by which it is received.
        timeout: how long it may take, in seconds; None: as long as it takes.  After that it ends
            with Timeout, and the communicator has failed, unless the other rank knows nothing of it.

        It has ended when @array may be changed again: of up to 16 KiB, when it is kept at the other
        end, which keeps 64 KiB of each rank's; of more, and to itself, when it was received.  What
        nobody receives holds up nothing else, but for close(), which waits for it.

        Its wait() raises Error: EMSGSIZE: it was too long for who receives it; ESTALE: that rank
        has left, and others are not disturbed; or as that of other calls.
        """
        array = whole(array, "array")
        return self._begin("isend", lib.tow_send, array, array.size,
                           dtype_of(array.dtype), to, tag, timeout=timeout, letter=True)

    def irecv(self, array: AnyArray, source: int | None = None, tag: int | None = None,
              timeout: float | None = None) -> Work:
        """Receive to @array, of any type, from rank @source; None: from any, or with any @tag.

        Of those that it is for it gets the first one, in the order in which a rank has sent them;
        it may be shorter than @array.  The work's source, tag and nbytes say what has come.
        timeout: as for isend(); what has not begun to come harms nothing.

        Its wait() returns @array, and raises Error: EMSGSIZE: it was longer, and is gone; ESTALE:
        @source has left, and others are not disturbed; or as that of other calls.
        """
        array = whole(array, "array", writable=True)
        return self._begin("irecv", lib.tow_receive, array, array.size, dtype_of(array.dtype),
                           ANY if source is None else source, ANY if tag is None else tag,
                           timeout=timeout, out=array, letter=True)

    def _begin(self, what: str, function: Callable[..., int], array: Array | None,
               *words: Any, algorithm: str = "any", timeout: float | None = None,
               out: Array | None = None, letter: bool = False) -> Work:
        attr = CallAttr(algorithm=ALGORITHMS[algorithm],
                        timeout_ms=0 if timeout is None else milliseconds(timeout))
        first = () if array is None else (address_of(array),)
        with self._handle as pointer:
            call = self._calls.make(
                what, lambda work: function(pointer, *first, *words, attr, work), (array, out),
                letter)
        return Work(self, call, what, out)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Calls that are made within begin when it is left: what they have to say to a rank travels
        in one message, which for many small ones is most of their time.  None of the communicator's
        goes on before, so nothing is waited for within.
        """
        with self._handle as pointer:
            check(lib.tow_calls_begin(pointer), "beginning calls")
            self._together += 1
            try:
                yield
            finally:
                self._together -= 1
                check(lib.tow_calls_end(pointer), "beginning calls")

    def waited(self) -> list[float]:
        """For how long this rank has waited for each one, in seconds, in Work.wait().  Who comes late
        has others wait for it, and hardly waits itself."""
        each = (ctypes.c_uint64 * self.size)()
        with self._handle as pointer:
            check(lib.tow_comm_waited(pointer, each, self.size), "asking a communicator")
        return [us / 1e6 for us in each]

    @property
    def error(self) -> Error | None:
        """What it has failed with, once it has: all else raises the same."""
        blamed = ctypes.c_uint32(FOREVER)
        with self._handle as pointer:
            result = lib.tow_comm_error(pointer, blamed)
        return failure(result, "a communicator", blamed.value) if result else None

    def abort(self) -> None:
        """End all calls and collectives, here and at all other ranks, with Error: ECANCELED, and
        this rank blamed.  Waits for nobody; any thread may call it, while others wait."""
        with self._handle as pointer:
            check(lib.tow_comm_abort(pointer), "aborting a communicator")

    def stats(self) -> CommReport:
        """What its calls have done so far at this rank; sizes in bytes."""
        stats = CommStats()
        with self._handle as pointer:
            check(lib.tow_comm_stats(pointer, stats), "asking a communicator")
        return values_of(stats, CommReport)

    # ---- collectives ----

    def allreduce(self, array: AnyArray, out: AnyArray | None = None, op: str = "sum",
                  algorithm: str = "any") -> Collective:
        """All ranks get the reduction of all ranks' arrays, element by element.

        array: this rank's; float16, float32, float64, bfloat16, int8, int32, int64, uint8 or bool.
        out: where to put it, of the same shape and type; None: @array itself.
        op: "sum", "product", "min", "max"; "avg", not of bools; "band", "bor" and "bxor", not of
            floats.  Integers wrap around; sum and max of bools are their or, product and min
            their and.
        algorithm: "ring", "direct", "tree", or "any": as suits the size.
        """
        array, out = self._alike(array, out)
        return Collective(self, ALLREDUCE, array, out, array.size, REDUCTIONS[op],
                          algorithm=ALGORITHMS[algorithm])

    def reduce_scatter(self, array: AnyArray, out: AnyArray | None = None,
                       op: str = "sum") -> Collective:
        """Rank R gets the R-th part of the reduction of all ranks' arrays.

        array: this rank's, of as many times @out's elements as there are ranks.
        out: where to put the part; None: a new array in the arena, of one dimension.
        """
        array, out = self._part(array, out)
        return Collective(self, REDUCE_SCATTER, array, out, out.size, REDUCTIONS[op])

    def allgather(self, array: AnyArray, out: AnyArray | None = None) -> Collective:
        """All ranks get all ranks' arrays, one behind the other.

        array: this rank's, of any type; it may be its own place in @out.
        out: where to put them; None: a new array in the arena, one dimension more.
        """
        array, out = self._places(array, out)
        return Collective(self, ALLGATHER, array, out, array.size)

    def broadcast(self, array: AnyArray, root: int = 0) -> Collective:
        """All ranks get what rank @root has in @array, in theirs; of any type."""
        array, out = self._alike(array, None)
        return Collective(self, BROADCAST, array, out, array.size, root=root)

    def barrier(self) -> Collective:
        """Nobody goes on before all have come: comm.barrier()() makes one and waits."""
        return Collective(self, BARRIER)

    def _part(self, array: AnyArray, out: AnyArray | None) -> tuple[Array, Array]:
        """Both, and a rank's part of @array goes to the second."""
        array = whole(array, "array")
        if array.size % self.size:
            raise ValueError(f"{array.size} elements are not for {self.size} ranks")
        if out is None:
            out = self.arena.empty(array.size // self.size, array.dtype)
        array, out = self._alike(array, out, same_shape=False)
        if array.size != out.size * self.size:
            raise ValueError(f"{array.size} elements do not go with {out.size}")
        return array, out

    def _places(self, array: AnyArray, out: AnyArray | None) -> tuple[Array, Array]:
        """Both, and all ranks' arrays go to the second."""
        array = whole(array, "array")
        if out is None:
            out = self.arena.empty((self.size, *array.shape), array.dtype)
        array, out = self._alike(array, out, same_shape=False)
        if out.size != array.size * self.size:
            raise ValueError(f"{out.size} elements are not those of {self.size} ranks")
        return array, out

    @staticmethod
    def _alike(array: AnyArray, out: AnyArray | None,
               same_shape: bool = True) -> tuple[Array, Array]:
        """Both; without the second it is the first."""
        array = whole(array, "array")
        out = whole(array if out is None else out, "out", writable=True)
        if array.dtype != out.dtype:
            raise ValueError(f"out is of {out.dtype}, not {array.dtype}")
        if same_shape and out.shape != array.shape:
            raise ValueError(f"out is of {out.shape}, not {array.shape}")
        return array, out


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

    def __init__(self, comm: Comm, kind: int, array: Array | None = None,
                 out: Array | None = None, count: int = 0, reduction: int = 0,
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

    def wait(self, timeout: float | None = None) -> Array | None:
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

    def late(self) -> int | None:
        """The first rank that has not started it so far, or does not answer; None: there is none.

        Asks others, which takes a round trip each.  Raises Error: as wait().
        """
        late = ctypes.c_uint32(FOREVER)
        with self._handle as pointer, self.comm._turn:
            result = lib.tow_collective_late(pointer, late)
        if result:
            raise failure(result, "a collective")
        return None if late.value == NO_RANK else late.value

    def __call__(self, timeout: float | None = None) -> Array | None:
        self.start()
        return self.wait(timeout)

    async def run(self) -> Array | None:
        """start(), and until it has ended: returns out.

        A communicator has no descriptor to wait for, and a thread that waited would keep what is
        started meanwhile, which other ranks may wait for first, from beginning.  So the event
        loop looks, at once at first and then after ever longer pauses: an eighth of the time that
        it has taken so far, 5 ms at most.  If the task is cancelled the collective goes on.
        """
        self.start()
        await looked(self.test)
        return self.out

    def stats(self) -> CollectiveReport:
        """What it has done so far; sizes in bytes."""
        stats = CollectiveStats()
        with self._handle as pointer, self.comm._turn:
            result = lib.tow_collective_stats(pointer, stats)
        if result:
            raise failure(result, "asking a collective")
        return values_of(stats, CollectiveReport)
