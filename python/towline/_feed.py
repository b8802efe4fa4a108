# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""A job server: a rank that feeds all others with batches, and watches them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import ctypes
import errno
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ._group import Group
from ._lib import (FEED_FILL, FOREVER, Deadline, FeedAttr, FeedStats, FeedWorkerStruct, TensorType,
                   check, failure, lib, milliseconds)
from ._life import Handle, Interruptible, Object
from ._memory import Arena, Block, values_of
from ._server import leave
from ._types import Array, Shape, bytes_of, shape_of, tensor_type

STATES = ("works", "over", "left", "lost")

Batch = list[Array]


class FeedReport(NamedTuple):
    """What a rank has done, as struct tow_feed_stats; sizes in bytes."""
    workers: int
    batches: int
    bytes: int
    copied_bytes: int
    waited_ns: int


class FedWorker(NamedTuple):
    """How far a worker is: "works", "over", "left" or "lost"; of which step its next batch is; how
    many it was sent, and has done with; for how long it works on one, in seconds."""
    state: str
    step: int
    sent: int
    done: int
    silent: float


class _Rank(Object):
    """What the server and workers have in common."""

    def __init__(self, group: Group, arena: Arena, tensors: Sequence[tuple[Shape, Any]],
                 depth: int = 2, timeout: float | None = 600.0, step: int = 0) -> None:
        self.tensors = [(shape_of(shape), np.dtype(dtype)) for shape, dtype in tensors]
        types = (TensorType * max(1, len(self.tensors)))(
            *(tensor_type(shape, dtype) for shape, dtype in self.tensors))
        attr = FeedAttr(depth=depth, timeout_ms=milliseconds(timeout), count=len(self.tensors),
                        types=types, step=step)
        made, blamed = ctypes.c_void_p(), ctypes.c_uint32(FOREVER)
        with group._handle as ranks, arena._handle as memory, Interruptible() as waiting:
            result = lib.tow_feed_create(ranks, memory, attr, made, blamed)
            if not result:
                handle = Handle(made.value, lib.tow_feed_destroy, group._handle, arena._handle,
                                calls=True)
        if result:
            waiting.over()
            raise failure(result, "finding the job server and its workers", blamed.value)
        self._turn = threading.RLock()
        # Others are told at once, whoever still looks at a batch; a call that waits ends first.
        handle.before = functools.partial(leave, handle, self._turn, lib.tow_feed_leave)
        self._own(handle)
        waiting.over()
        self.rank, self.size = group.rank, group.size

    def _batch(self, tensors: Any) -> Batch:
        """Arrays of what is there: the feed ends after them."""
        return [Block(self._handle, tensors[number] or 0, bytes_of(*one)).array(*one)
                for number, one in enumerate(self.tensors)]

    @property
    def step(self) -> int:
        """Of which step the next batch is; of the server, the least that a worker has not done
        with."""
        with self._handle as pointer, self._turn:
            return lib.tow_feed_step(pointer)

    def stats(self) -> FeedReport:
        """What it has done so far."""
        stats = FeedStats()
        with self._handle as pointer, self._turn:
            check(lib.tow_feed_stats(pointer, stats), "asking")
        return values_of(stats, FeedReport)


class JobServer(_Rank):
    """The rank that feeds: rank 0; all others work.

    group: the ranks.  All make theirs, and wait for all.
    arena: where batches are.
    tensors: shape and type of each of a batch, the same at all ranks.
    depth: how many batches a worker has memory for.
    timeout: how long a worker may work on a batch, in seconds.

    What a model is made of does not pass through it: workers have a group of their own for that.

    When a rank dies, or is too late, everything raises the same Error ever after, with that rank
    blamed.  Whoever is left makes a new group, of another name or restart, and goes on.

    Raises Error: EPROTO, EPROTOTYPE, EMSGSIZE: blamed has other ideas of a batch; ECANCELED: blamed
    could not; as Group.gather().
    """

    def serve(self, fill: Callable[[int, int, Batch], bool | None],
              timeout: float | None = None) -> None:
        """Until all workers have left.

        fill: called with a worker's rank, a step, and arrays to write its batch to; False: there
            are no more for this worker.  Nothing else is done meanwhile.  What it raises is raised
            here, and workers are told ECANCELED.
        timeout: seconds; after that it may be called again.
        Raises Timeout without blamed: after @timeout.  Error with blamed: ESTALE: that rank died;
        ECONNRESET: its node does not answer; ETIMEDOUT: it has worked on a batch for too long.
        """
        raised: list[BaseException] = []

        def call(_: int, rank: int, step: int, tensors: Any) -> int:
            try:
                return 0 if fill(rank, step, self._batch(tensors)) is False else 1
            except BaseException as error:  # pylint: disable=broad-exception-caught
                raised.append(error)
                return -errno.ECANCELED

        callback = FEED_FILL(call)
        until = Deadline(timeout)
        while True:
            blamed = ctypes.c_uint32(FOREVER)
            with self._handle as pointer, self._turn:
                result = lib.tow_feed_serve(pointer, callback, None, until.slice_us(), blamed)
            if raised:
                raise raised[0]
            if not result:
                return
            mere_time = result == -errno.ETIMEDOUT and blamed.value == FOREVER
            if result != -errno.EINTR and (not mere_time or until.over):
                raise failure(result, "feeding", blamed.value)

    def worker(self, rank: int) -> FedWorker:
        """How far a worker is.

        Raises IndexError: there is no such worker.
        """
        if not 0 < rank < self.size:
            raise IndexError(f"there is no worker {rank}")
        told = FeedWorkerStruct()
        with self._handle as pointer, self._turn:
            check(lib.tow_feed_worker(pointer, rank, told), "asking")
        return FedWorker(STATES[told.state], told.step, told.sent, told.done, told.silent_us / 1e6)


class FeedWorker(_Rank):
    """A rank that is fed: of the server's arguments all, and the step that it wants first.

    All begin with the least step that one wants.  It is an iterator of batches, of arrays each; one
    thread, or task, at a time asks for the next.

    Raises Error: as JobServer.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._places = ctypes.POINTER(ctypes.c_void_p)()
        self._there = False
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "towline-feed")
        self._asked: concurrent.futures.Future[Batch | None] | None = None

    def next(self) -> Batch | None:
        """The next batch: arrays, to be read until the next call; None: there are no more.

        Raises Error with blamed: ESTALE: that rank died, or the server left; ECONNRESET: its node
        does not answer; ETIMEDOUT: it came too late; ECANCELED: it could not go on.
        """
        self._handle.claim()
        if self._asked is None:
            return self._next()
        try:
            return self._asked.result()
        finally:
            self._asked = None

    def _next(self) -> Batch | None:
        result = -errno.EINTR
        # What has come before Ctrl-C was noticed was given to nobody.
        while result == -errno.EINTR and not self._there:
            blamed = ctypes.c_uint32(FOREVER)
            with self._handle as pointer, self._turn, Interruptible() as waiting:
                result = lib.tow_feed_next(pointer, self._places, blamed)
                self._there = result == 1
            waiting.over()
        if not self._there:
            if result < 0:
                raise failure(result, "waiting for a batch", blamed.value)
            return None
        batch = self._batch(self._places)
        self._there = False
        return batch

    async def coming(self) -> Batch | None:
        """The same in asyncio, by a thread.  If it is cancelled, the next call, or next(), has what
        it was to have."""
        self._handle.claim()
        if self._asked is None:
            self._asked = self._thread.submit(self._next)
        try:
            batch = await asyncio.shield(asyncio.wrap_future(self._asked))
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._asked = None
            raise
        self._asked = None
        return batch

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        batch = self.next()
        if batch is None:
            raise StopIteration
        return batch
