# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""Workers, and what is on its way."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import itertools
import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from ._lib import (EDGE_DONE, Deadline, Error, WorkerAttr, check, failure, lib, milliseconds)
from ._life import Handle, Object
from ._memory import Arena

if TYPE_CHECKING:
    import numpy as np

    from ._device import Device, Peer
    from ._edge import (DynamicReceiver, DynamicSender, RendezvousReceiver, RendezvousSender,
                        StaticReceiver, StaticSender)
    from ._mailbox import Mailbox
    from ._memory import Region
    from ._types import Shape

# How often an event loop looks for what no completion tells of: time-outs, lost peers.
TICK_S = 0.5


def wake(loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
    """The future is done, from whatever thread."""
    def set_it() -> None:
        if not future.done():
            future.set_result(None)
    # It may have ended: then nobody waits there any more.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(set_it)


class Operation:
    """Something that was begun, and what came of it; told by the library's callbacks.

    kept: what it uses until then: an array, which stays where it is.
    """

    # All that have not ended, by the number that callbacks are passed.
    every: dict[int, Operation] = {}
    _numbers = itertools.count(1)

    def __init__(self, kept: Any = None) -> None:
        self.kept = kept
        self.done = False
        self.status = 0
        self.step = 0
        self.result: Any = None
        self.error: BaseException | None = None
        self.number = next(self._numbers)
        self._lock = threading.Lock()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def begin(self, call: Callable[[int], int], what: str) -> None:
        """Call that with its number; raises Error if it is not begun."""
        self.every[self.number] = self
        result = call(self.number)
        if result < 0:
            self.every.pop(self.number, None)
            raise failure(result, what)

    def end(self, step: int, status: int) -> None:
        """It has."""
        with self._lock:
            self.step, self.status, self.done = step, status, True
            self.kept = None
            waiting, self._waiting = self._waiting, []
        for loop, future in waiting:
            wake(loop, future)

    async def ended(self, driver: Driver) -> None:
        """Until it has, while the driver drives."""
        while not self.done:
            with driver.future() as future:
                with self._lock:
                    if self.done:
                        return
                    self._waiting.append((driver.loop, future))
                await future


@EDGE_DONE
def edge_done(number: int, step: int, status: int) -> None:
    """tow_edge_done of all edges."""
    operation = Operation.every.pop(number, None)
    if operation:
        operation.end(step, status)


class Driver:
    """Lets an event loop drive a worker, while anybody there waits for it."""

    def __init__(self, worker: Worker, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._worker = worker
        self._fd = worker.fileno()
        self._users = 0
        self._timer: asyncio.TimerHandle | None = None
        self._futures: set[asyncio.Future[None]] = set()

    def __enter__(self) -> Driver:
        self._users += 1
        if self._timer is None:
            self.loop.add_reader(self._fd, self._look)
            self._timer = self.loop.call_later(TICK_S, self._tick)
        return self

    def __exit__(self, *_: Any) -> None:
        self._users -= 1
        if not self._users:
            self._stop()
            self._worker._drivers.pop(self.loop, None)

    def _stop(self) -> None:
        self.loop.remove_reader(self._fd)
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        try:
            self._worker.progress(0)
        except (Error, ValueError) as error:
            # Nothing comes any more: who waits is told, and the descriptor is not asked again.
            self._stop()
            for future in list(self._futures):
                if not future.done():
                    future.set_exception(error)

    def _tick(self) -> None:
        self._timer = self.loop.call_later(TICK_S, self._tick)
        self._look()

    def future(self) -> _Future:
        """One to wait for; it fails if the worker does.  A context manager."""
        return _Future(self)

    def add(self, future: asyncio.Future[None]) -> None:
        """It fails if the worker does."""
        self._futures.add(future)

    def forget(self, future: asyncio.Future[None]) -> None:
        """Nobody waits for it any more."""
        self._futures.discard(future)
        future.cancel()


class _Future:
    """A future of a driver's, as a context manager."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._future: asyncio.Future[None] = driver.loop.create_future()

    def __enter__(self) -> asyncio.Future[None]:
        self._driver.add(self._future)
        return self._future

    def __exit__(self, *_: Any) -> None:
        self._driver.forget(self._future)


class Pending:
    """Something that was begun: done, wait(), or await it."""

    def __init__(self, worker: Worker, operation: Operation, what: str) -> None:
        self._worker = worker
        self._operation = operation
        self._what = what

    @property
    def done(self) -> bool:
        """Has it ended, well or not?  Asks nobody: Worker.progress() goes on."""
        return self._operation.done

    @property
    def step(self) -> int:
        """The step's number, when it has ended."""
        return self._operation.step

    def _outcome(self) -> Any:
        operation = self._operation
        if operation.error:
            raise operation.error
        if operation.status:
            raise failure(operation.status, self._what)
        return operation.result

    def wait(self, timeout: float | None = None) -> Any:
        """Until it has ended; drives the worker meanwhile.

        timeout: seconds; after that Timeout is raised, and it goes on.
        """
        self._worker._drive(lambda: self._operation.done, timeout, self._what)
        return self._outcome()

    def __await__(self) -> Generator[Any, None, Any]:
        return self._ended().__await__()

    async def _ended(self) -> Any:
        if not self.done:
            with self._worker._driver() as driver:
                await self._operation.ended(driver)
        return self._outcome()


class Sent(Pending):
    """A tensor that was sent, or offered.  The array is kept until that has ended, and nobody
    changes it before.  wait() and await raise what went wrong: the receiver has it not, or not
    all of it, or nobody knows."""


class Worker(Object):
    """Drives edges and mailboxes: nothing is done for them but in calls of theirs and of this.

    dev: the device.
    arena: where edges' buffers are, and arrays that are sent from where they are.
    timeout: how long a step, or what is asked of a rendezvous, may be on its way, in seconds;
    None: as long as it takes.  Then the edge, or the request, ends with Timeout.
    entries: operations that may be on their way at once; 0: 256.

    close() closes its edges first.

    Raises Error: EDQUOT, ENOSPC, ENOMEM; ELIBACC: TOW_VALIDATE is set, and ISA-L is not there.
    """

    def __init__(self, dev: Device, arena: Arena, timeout: float | None = None,
                 entries: int = 0) -> None:
        attr = WorkerAttr(timeout_ms=milliseconds(timeout, forever=0), entries=entries)
        made = ctypes.c_void_p()
        with dev._handle as pointer, arena._handle as memory:
            check(lib.tow_worker_create(pointer, memory, attr, made), "making a worker")
            self._own(Handle(made.value, lib.tow_worker_destroy, dev._handle, arena._handle,
                             calls=True))
        self.device = dev
        self.arena = arena
        self._drivers: dict[asyncio.AbstractEventLoop, Driver] = {}

    def fileno(self) -> int:
        """A descriptor for poll(2), which stays the worker's: readable when progress() has
        something to do."""
        with self._handle as pointer:
            return check(lib.tow_worker_fd(pointer), "a worker's descriptor")

    def progress(self, timeout: float | None = 0) -> int:
        """See to what has ended, and begin what may begin.

        timeout: how long to wait for something to end, in seconds.
        Returns how many operations have ended.  Raises Error: ENODEV: the device is gone; EPERM:
        in a child.
        """
        until = Deadline(timeout)
        while True:
            with self._handle as pointer:
                result = lib.tow_worker_progress(pointer, until.slice_us())
            if result != -errno.EINTR and (check(result, "a worker") or until.over):
                return result

    @property
    def copied(self) -> int:
        """How many bytes were copied before they were sent, as they are not in the arena."""
        with self._handle as pointer:
            return lib.tow_worker_copied(pointer)

    def _drive(self, done: Callable[[], bool], timeout: float | None, what: str) -> None:
        until = Deadline(timeout)
        while not done():
            with self._handle as pointer:
                result = lib.tow_worker_progress(pointer, until.slice_us())
            if done():
                return
            if result != -errno.EINTR:
                check(result, what)
            if until.over:
                raise failure(-errno.ETIMEDOUT, what)

    def _driver(self) -> Driver:
        loop = asyncio.get_running_loop()
        return self._drivers.setdefault(loop, Driver(self, loop))

    def mailbox(self, name: str | None = None, line_bytes: int = 0, lines: int = 0,
                backlog: int = 0) -> Mailbox:
        """What messages come to, and go from.

        name: by which processes of the same job find it on this node, 1 to 224 bytes; None: nobody
        does, and it only connects.
        line_bytes: that each line has here for messages that have come and were not received, a
        power of two from 4,096 to 262,144; 0: 8,192.  A message takes 32 more than it is long,
        rounded up to a multiple of 64.
        lines: how many there may be at once; 0: 1,024.
        backlog: how many others may begin while nobody drives the worker, 1 to 64; 0: 8.
        Raises Error: EEXIST: the name is taken; EOVERFLOW; EDQUOT, ENOSPC, ENOMEM.
        """
        from ._mailbox import Mailbox
        return Mailbox(self, name, line_bytes, lines, backlog)

    # ---- edges ----

    def static_receiver(self, peer: Peer, name: str, shape: Shape, dtype: np.dtype[Any] | Any,
                        slots: int = 2, region: Region | None = None) -> StaticReceiver:
        """The consumer's end of an edge whose tensors are all of one shape and type.

        peer: where the producer is; the node may be its own peer.
        name: the same at both ends; 1 to 240 bytes.
        slots: how many steps there is memory for, 1 to 64.
        region: where that memory is, of static_bytes() at least; if the process is killed, the
        next one that attaches the region goes on where it was.  None: in the arena.
        Raises Error: EEXIST: there is one of that name; ERANGE: the region is too small;
        EPROTOTYPE, EMSGSIZE, EPROTO: another edge has left what is in it; EDQUOT, ENOSPC, ENOMEM.
        """
        from ._edge import StaticReceiver
        return StaticReceiver(self, peer, name, shape, dtype, slots, region)

    def static_sender(self, peer: Peer, name: str, shape: Shape,
                      dtype: np.dtype[Any] | Any) -> StaticSender:
        """The producer's end of such an edge; parameters as static_receiver()."""
        from ._edge import StaticSender
        return StaticSender(self, peer, name, shape, dtype)

    def dynamic_receiver(self, peer: Peer, name: str, slots: int = 2) -> DynamicReceiver:
        """The consumer's end of an edge whose tensors may differ in shape and type.

        slots: how many may be there or on their way before the first was consumed, 1 to 64.
        """
        from ._edge import DynamicReceiver
        return DynamicReceiver(self, peer, name, slots)

    def dynamic_sender(self, peer: Peer, name: str) -> DynamicSender:
        """The producer's end of such an edge."""
        from ._edge import DynamicSender
        return DynamicSender(self, peer, name)

    def rendezvous_receiver(self, peer: Peer, name: str,
                            requests: int = 64) -> RendezvousReceiver:
        """The end of a rendezvous that asks for tensors, by key and step.

        requests: how many are on their way at once, 1 to 1,024; more wait here.
        """
        from ._edge import RendezvousReceiver
        return RendezvousReceiver(self, peer, name, requests)

    def rendezvous_sender(self, peer: Peer, name: str,
                          requests: int = 64) -> RendezvousSender:
        """The end that offers them; parameters as rendezvous_receiver()."""
        from ._edge import RendezvousSender
        return RendezvousSender(self, peer, name, requests)
