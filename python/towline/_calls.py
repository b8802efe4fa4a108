# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""Calls of a communicator's, of any arrays at any time, and what asks for their end.

The library reads and writes arrays until a call has ended, whoever has forgotten about it.  So the
communicator keeps them: those of a call that has ended well are let go of when somebody looks, those
of one that failed when the communicator ends, as other ranks may write to them until then.
"""

from __future__ import annotations

import asyncio
import collections
import ctypes
import errno
import threading
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from ._lib import FOREVER, Deadline, WorkInfo, failure, lib
from ._life import Handle
from ._types import Array

if TYPE_CHECKING:
    from ._collective import Comm

# The longest wait in one call of the library's: signals' handlers run, and it may be closed.
SLICE_S = 0.02
SLICE_US = 20000
# The longest pause between two looks of an event loop, and how much of the time so far it may be.
PAUSE_S, PAUSE_PART = 0.005, 8
ALGORITHMS = {"any": 0, "ring": 1, "direct": 2, "tree": 3}
# Calls that have not ended, at which a sweep looks: more than can be added by one call.
LOOKED_AT = 2


async def looked(ended: Callable[[], bool]) -> None:
    """Until that is so: at once at first, and then after ever longer pauses."""
    began = time.monotonic()
    while not ended():
        pause = (time.monotonic() - began) / PAUSE_PART
        await asyncio.sleep(min(pause, PAUSE_S) if pause > 0.0005 else 0)


class Call:
    """One, with what the library uses until it has ended."""

    __slots__ = ("pointer", "arrays", "letter", "info", "result", "blamed")

    def __init__(self, arrays: tuple[Array | None, ...], letter: bool) -> None:
        self.pointer = ctypes.c_void_p()
        self.arrays = arrays
        self.letter = letter
        self.info = WorkInfo()  # filled in when it has ended
        self.result = 0     # 1: it has ended; or a negative errno
        self.blamed = FOREVER

    def look(self, timeout_us: int = 0) -> int:
        """Go on until it has ended, but not longer: its result.  Who asks uses the communicator."""
        blamed = ctypes.c_uint32(FOREVER)
        result = self.result or lib.tow_work_wait(self.pointer, timeout_us, blamed)
        if not self.result and result != -errno.EINTR:
            if result:
                lib.tow_work_info(self.pointer, self.info)
            self.blamed, self.result = blamed.value, result
        if self.result > 0:
            self.arrays = ()
        return self.result


class Calls:
    """All of a communicator's."""

    def __init__(self) -> None:
        self._every: set[Call] = set()
        self._forgotten: collections.deque[Call] = collections.deque()
        self._failed: dict[int, int] = {}
        # Who frees works, or asks for those that he has not begun.
        self._lock = threading.RLock()

    def make(self, what: str, function: Callable[[ctypes.c_void_p], int],
             arrays: tuple[Array | None, ...], letter: bool = False) -> Call:
        """Of a function that is told where to put the work."""
        self._sweep()
        call = Call(arrays, letter)
        # Whatever is raised from here on, the arrays stay.
        self._every.add(call)
        result = function(call.pointer)
        if result:
            self._every.discard(call)
            raise failure(result, what, self._failed.get(result, FOREVER))
        return call

    def forget(self, call: Call) -> None:
        """Nobody asks for it any more; called anywhere, as the collector likes."""
        self._forgotten.append(call)

    def note(self, call: Call) -> None:
        """The communicator may have failed with that one, and then blames the same rank again."""
        # What a letter fails with may be its own.
        if call.result < 0 and not call.letter:
            self._failed[call.result] = call.blamed

    def _sweep(self) -> None:
        """Let go of those that have ended, of which nobody has anything left."""
        if not self._forgotten or not self._lock.acquire(blocking=False):
            return
        try:
            # Calls end in their order, more or less; a letter that nobody takes stands in no way.
            waiting = 0
            while waiting < min(LOOKED_AT, len(self._forgotten)):
                if not self._forgotten[0].look():
                    self._forgotten.rotate(-1)
                    waiting += 1
                    continue
                call = self._forgotten.popleft()
                self.note(call)
                pointer, call.pointer = call.pointer, ctypes.c_void_p()
                lib.tow_work_free(pointer)
                if call.result > 0:
                    self._every.discard(call)
        finally:
            self._lock.release()

    def finish(self, comm: Handle) -> None:
        """Until all have ended that there are, well or not."""
        with self._lock:
            for call in list(self._every):
                while call.pointer and not call.result:
                    with comm:
                        call.look(SLICE_US)

    def end(self, comm: int | None) -> None:
        """The communicator, which nobody uses.  What has not ended is broken off."""
        if lib.tow_comm_destroy(comm) == -errno.EBUSY:
            lib.tow_comm_abort(comm)
            lib.tow_comm_destroy(comm)
        for call in self._every:
            if call.pointer:
                call.look()
                lib.tow_work_free(call.pointer)
            call.arrays = ()
        self._every.clear()


class Work:
    """A call that has begun: made by Comm's functions that begin with an i.

    out: what wait() and await return: a NumPy array, of another's memory if that was given.

    It goes on when something of the communicator's is waited for or asked, by any thread, and also
    when this object is gone: the communicator keeps it and its arrays until it has ended.
    """

    def __init__(self, comm: Comm, call: Call, what: str, out: Array | None) -> None:
        self.comm = comm
        self.out = out
        self._call = call
        self._what = what

    def __del__(self) -> None:
        self.comm._calls.forget(self._call)

    def _look(self, timeout_us: int) -> bool:
        call = self._call
        if not call.result:
            with self.comm._handle:
                call.look(timeout_us)
            self.comm._calls.note(call)
        return bool(call.result)

    def _outcome(self) -> Array | None:
        call = self._call
        if call.result < 0:
            raise failure(call.result, self._what, call.blamed)
        return self.out

    def _told(self, letter: bool) -> WorkInfo | None:
        call = self._call
        known = call.result > 0 or call.result == -errno.EMSGSIZE
        return call.info if known and call.letter == letter else None

    @property
    def source(self) -> int | None:
        """Of irecv(), when it has ended, well or too long: who has sent it; of isend(): to whom.
        Else None, as the next two."""
        told = self._told(True)
        return None if told is None else told.rank

    @property
    def tag(self) -> int | None:
        """With which tag."""
        told = self._told(True)
        return None if told is None else told.tag

    @property
    def nbytes(self) -> int | None:
        """How much, in bytes."""
        told = self._told(True)
        return None if told is None else told.bytes

    @property
    def algorithm(self) -> str | None:
        """Of a call of all ranks, when it has ended well: "ring", "direct" or "tree", by which it was
        done.  Else, and of ibarrier(), None, as the next one."""
        told = self._told(False)
        return None if told is None or not told.algorithm else list(ALGORITHMS)[told.algorithm]

    @property
    def piece_bytes(self) -> int | None:
        """How much was sent at once, at most, in bytes."""
        told = self._told(False)
        return None if told is None or not told.algorithm else told.piece_bytes

    @property
    def done(self) -> bool:
        """Has it ended, well or not?  Goes on with all that the communicator has on its way."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> Array | None:
        """Until it has ended; goes on with all that the communicator has on its way.

        timeout: seconds; after that it goes on, and may be waited for again.
        Returns out.
        Raises Timeout without blamed: after @timeout.  Error with blamed: EPROTO: that rank has
        made another call than rank 0 in its place, and others are not disturbed; or as
        Collective.wait(), and the communicator has failed.
        """
        until = Deadline(timeout)
        while not self._look(until.slice_us(SLICE_S)):
            if until.over:
                raise failure(-errno.ETIMEDOUT, self._what)
        return self._outcome()

    def __await__(self) -> Generator[Any, None, Array | None]:
        return self._ended().__await__()

    async def _ended(self) -> Array | None:
        # As Collective.run(); if the task is cancelled it goes on.
        await looked(lambda: self.done)
        return self._outcome()
