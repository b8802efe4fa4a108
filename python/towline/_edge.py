# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""Edges: arrays that move from a producer on one node to a consumer on another."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import itertools
import threading
import weakref
from typing import TYPE_CHECKING, Any
from collections.abc import AsyncIterator, Callable

import numpy as np

from ._device import Peer
from ._lib import (EDGE_CAME, PUT_CLONE, RENDEZVOUS_GOT, Deadline, TensorType, check, failure,
                   lib, milliseconds)
from ._life import Handle, Interruptible, Object
from ._memory import Block, Region
from ._types import (Array, AnyArray, Shape, address_of, bytes_of, numpy_type, same_type, shape_of,
                     tensor_type, whole)
from ._worker import Driver, Operation, Pending, Sent, Worker, edge_done, wake

if TYPE_CHECKING:
    from ._tracer import Tracer


def static_bytes(shape: Shape, dtype: Any, slots: int = 2) -> int:
    """How large a region a static receiver takes, in bytes (Worker.static_receiver())."""
    found = ctypes.c_uint64()
    check(lib.tow_static_bytes(tensor_type(shape, dtype), slots, found), "a static edge")
    return found.value

# How often an event loop looks whether the other end is there.
LOOK_S = 0.002


class Edge(Object):
    """An end of an edge.  Both are made, then connect().

    close() waits until what is on its way has ended; steps that wait for room, and tensors that
    were not read yet, fail with ECANCELED.
    """

    def __init__(self, worker: Worker, peer: Peer, name: str,
                 make: Callable[[int | None, int | None, ctypes.c_void_p], int],
                 *parents: Handle) -> None:
        made = ctypes.c_void_p()
        with worker._handle as drives, peer._handle as node:
            check(make(drives, node, made), f"making edge {name}")
            handle = Handle(made.value, lib.tow_edge_close, worker._handle, peer._handle,
                            *parents, calls=True)
            worker._handle.owned.add(handle)
            self._own(handle)
        self.worker = worker
        self.name = name

    def connect(self, timeout: float | None = 30.0) -> None:
        """Find the other end.

        timeout: how long to wait for it, in seconds; after that it may be called again.

        While it looks nothing is done for the worker's other edges but by other threads.  Who has
        both ends connects the sender first: a receiver waits until its sender has connected.

        Raises Timeout; Error: EPROTOTYPE, EMSGSIZE: the other end's arrays are of another type or
        shape; EBUSY: the receiver had a sender before, and is to be made anew; EPROTO.
        """
        with self._handle as pointer, Interruptible() as waiting:
            result = lib.tow_edge_connect(pointer, milliseconds(timeout))
        waiting.over()
        check(result, f"connecting edge {self.name}")

    async def connected(self, timeout: float | None = 30.0) -> None:
        """As connect(), in asyncio, which looks now and then; other edges go on meanwhile."""
        until = Deadline(timeout)
        while not self._look(until.over):
            self.worker.progress()
            await asyncio.sleep(LOOK_S)

    def _look(self, last: bool) -> bool:
        """Is the other end there?  If not, and this was the last look, that is raised."""
        with self._handle as pointer:
            result = lib.tow_edge_connect(pointer, 1)
        if result == -errno.ETIMEDOUT and not last:
            return False
        check(result, f"connecting edge {self.name}")
        return True

    @property
    def pending(self) -> int:
        """How many steps were sent, offered or asked for, and have not ended."""
        with self._handle as pointer:
            return lib.tow_edge_pending(pointer)


class _Stepping(Edge):
    """A static or dynamic edge, which counts its steps."""

    @property
    def next_step(self) -> int:
        """The number of what is sent, or received, next; of a sender that is connected."""
        step = ctypes.c_uint64()
        with self._handle as pointer:
            check(lib.tow_edge_next(pointer, step), f"edge {self.name}")
        return step.value


# ---- senders ----

class _Sender(_Stepping):
    def _send(self, array: Array, tracer: Tracer | None,
              call: Callable[[int | None, int], int]) -> Sent:
        operation = Operation(kept=array)
        with self._handle as pointer:
            operation.begin(lambda number: call(pointer, number), f"sending by edge {self.name}")
        if tracer is not None:
            tracer.transferred(array)
        return Sent(self.worker, operation, f"sending by edge {self.name}")


class StaticSender(_Sender):
    """The producer's end of a static edge: Worker.static_sender()."""

    def __init__(self, worker: Worker, peer: Peer, name: str, shape: Shape, dtype: Any) -> None:
        kind = tensor_type(shape, dtype)
        self.shape, self.dtype = shape_of(shape), np.dtype(dtype)
        super().__init__(worker, peer, name, lambda drives, node, made: lib.tow_static_sender(
            drives, node, name.encode(), kind, made))

    def send(self, array: AnyArray, tracer: Tracer | None = None) -> Sent:
        """Send the next step.  Steps count from 1, and arrive in their order.

        array: of the edge's shape and type, without gaps; nobody changes it before it was sent.
        In the worker's arena it is sent from where it is, else it is copied first.
        tracer: is told of the transfer.
        Raises Error: EAGAIN: 64 steps are on their way; ENOTCONN: connect() comes first; ENOSPC,
        EDQUOT, ENOMEM: no room for a copy; or what has ended the edge.  ValueError: of another
        shape or type.
        """
        array = same_type(self.shape, self.dtype, whole(array, "what is sent"), "what is sent")
        return self._send(array, tracer, lambda pointer, number: lib.tow_edge_send(
            pointer, address_of(array), edge_done, number))


class DynamicSender(_Sender):
    """The producer's end of a dynamic edge: Worker.dynamic_sender()."""

    def __init__(self, worker: Worker, peer: Peer, name: str) -> None:
        super().__init__(worker, peer, name, lambda drives, node, made: lib.tow_dynamic_sender(
            drives, node, name.encode(), made))

    def send(self, array: AnyArray, tracer: Tracer | None = None) -> Sent:
        """Send the next array, of any shape and type; all else as StaticSender.send().

        It has been sent when the receiver has read it.
        """
        array = whole(array, "what is sent")
        kind = tensor_type(array.shape, array.dtype)
        return self._send(array, tracer, lambda pointer, number: lib.tow_dynamic_send(
            pointer, kind, address_of(array), edge_done, number))


# ---- receivers ----

class _Watch:
    """Who waits in event loops for an edge's next step; the library's callback finds it."""

    every: weakref.WeakValueDictionary[int, _Watch] = weakref.WeakValueDictionary()
    _numbers = itertools.count(1)

    def __init__(self) -> None:
        self.number = next(self._numbers)
        self.begun = False
        self._lock = threading.Lock()
        self._waiting: dict[asyncio.Future[None], asyncio.AbstractEventLoop] = {}
        self.every[self.number] = self

    def add(self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
        """It waits."""
        with self._lock:
            self._waiting[future] = loop

    def came(self) -> None:
        """All who wait look."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for future, loop in waiting.items():
            wake(loop, future)


@EDGE_CAME
def _edge_came(number: int, _edge: int, _status: int) -> None:
    watch = _Watch.every.get(number)
    if watch:
        watch.came()


class _Shown:
    """The array that is shown, if it is: not the edge's Python object, which may go before."""

    def __init__(self, arena: Handle | None) -> None:
        self._arena = arena         # a dynamic edge's: a tensor can be taken
        self.step = 0
        self.block: weakref.ref[Block] | None = None
        # Of the edge, when it is made.
        self.handle: weakref.ref[Handle] | None = None

    def array_of(self, handle: Handle, step: int, address: int, shape: tuple[int, ...],
                 dtype: np.dtype[Any]) -> Array:
        """It as an array; the same memory if it was shown before."""
        block = self.block() if self.block and self.step == step else None
        if block is None:
            block = Block(handle, address, bytes_of(shape, dtype))
            self.step, self.block = step, weakref.ref(block)
        return block.array(shape, dtype)

    def done(self, pointer: int | None) -> int:
        """It was consumed.  Of a dynamic edge an array that lives is taken, and stays."""
        block = self.block() if self.block else None
        if block is None or self._arena is None:
            result = lib.tow_edge_consumed(pointer)
        else:
            result = lib.tow_edge_take(pointer, ctypes.c_void_p())
            if not result:
                block.own(self._arena)
        if not result:
            self.block = None
        return result

    def leave(self) -> None:
        """The edge is about to be closed."""
        handle = self.handle() if self.handle else None
        if handle and handle.ours and self.block and self.block() is not None and self._arena:
            self.done(handle.pointer)


class Received(tuple[int, Array]):
    """A step's number and array.  `with` it the step is consumed at the block's end, unless it was
    already."""

    _receiver: _Receiver

    def __enter__(self) -> Received:
        return self

    def __exit__(self, *_: Any) -> None:
        self._receiver._consume(self[0])


class _Receiver(_Stepping):
    """A receiver of a static or dynamic edge."""

    def __init__(self, worker: Worker, peer: Peer, name: str, make: Any, takes: bool,
                 *parents: Handle) -> None:
        super().__init__(worker, peer, name, make, *parents)
        self._watch = _Watch()
        self._shown = _Shown(worker.arena._handle if takes else None)
        self._shown.handle = weakref.ref(self._handle)
        self._handle.before = self._shown.leave

    def _kind(self, pointer: int | None) -> tuple[tuple[int, ...], np.dtype[Any]]:
        kind = TensorType()
        check(lib.tow_edge_type(pointer, kind), f"edge {self.name}")
        return numpy_type(kind)

    def _show(self, pointer: int | None, step: int,
              address: int | None) -> Received:
        shape, dtype = self._kind(pointer)
        found = Received((step, self._shown.array_of(self._handle, step, address or 0, shape, dtype)))
        found._receiver = self
        return found

    def test(self) -> Received | None:
        """The next step's number and array, if it has come; else None.

        The same one until consumed().  Raises Error: what has ended the edge; of a dynamic one
        also ENOSPC, EDQUOT, ENOMEM: there was no memory for it: a thread tries again each time, and
        consumed() leaves it out; EBADMSG: it is not what was sent (TOW_VALIDATE).
        """
        data, step = ctypes.c_void_p(), ctypes.c_uint64()
        with self._handle as pointer:
            if not check(lib.tow_edge_test(pointer, data, step), f"edge {self.name}"):
                return None
            return self._show(pointer, step.value, data.value)

    def recv(self, timeout: float | None = None) -> Received:
        """The next step's number and array; waits for it, and drives the worker meanwhile.

        timeout: seconds.
        `with rx.recv() as (step, array):` calls consumed() at the block's end, however that ends, unless
        it was called in the block.
        Raises Timeout: it has not come; Error: as test().
        """
        until = Deadline(timeout)
        data, step = ctypes.c_void_p(), ctypes.c_uint64()
        while True:
            with self._handle as pointer:
                result = lib.tow_edge_wait(pointer, until.slice_us(), data, step)
                if result == 0:
                    return self._show(pointer, step.value, data.value)
            if result not in (-errno.EINTR, -errno.ETIMEDOUT):
                raise failure(result, f"edge {self.name}")
            # Nothing came in this call; or an edge has ended because something was late.
            found = self.test()
            if found:
                return found
            if until.over:
                raise failure(-errno.ETIMEDOUT, f"edge {self.name}")

    def consumed(self) -> None:
        """The step was read, and the next one may be shown.

        Raises Error: EINVAL: none was shown; or what has ended the edge.
        """
        with self._handle as pointer:
            check(self._shown.done(pointer), f"edge {self.name}")

    def _consume(self, step: int) -> None:
        # Unless it was done by hand: then another one is shown, or none.
        if not self.closed and self._shown.block is not None and self._shown.step == step:
            self.consumed()

    async def receive(self) -> Received:
        """As recv(), in asyncio: the event loop drives the worker meanwhile."""
        found = self.test()
        if found:
            return found
        loop = asyncio.get_running_loop()
        if not self._watch.begun:
            with self._handle as pointer:
                check(lib.tow_edge_watch(pointer, _edge_came, self._watch.number),
                      f"edge {self.name}")
            self._watch.begun = True
        with self.worker._driver() as driver:
            return await self._next(loop, driver)

    async def _next(self, loop: asyncio.AbstractEventLoop,
                    driver: Driver) -> Received:
        while True:
            with driver.future() as future:
                # First: it may come while this looks.
                self._watch.add(loop, future)
                found = self.test()
                if found:
                    return found
                await future

    async def __aiter__(self) -> AsyncIterator[tuple[int, Array]]:
        """Each step in turn; consumed() is called for it when the next one is asked for."""
        while True:
            step, array = await self.receive()
            yield step, array
            del array
            self._consume(step)


class StaticReceiver(_Receiver):
    """The consumer's end of a static edge: Worker.static_receiver().

    An array is a view of the edge's memory: after consumed() a later step is written there.  As
    long as one lives the edge's end is put off, when it was closed.
    """

    def __init__(self, worker: Worker, peer: Peer, name: str, shape: Shape, dtype: Any,
                 slots: int = 2, region: Region | None = None) -> None:
        kind = tensor_type(shape, dtype)
        self.shape, self.dtype = shape_of(shape), np.dtype(dtype)

        def make(drives: int | None, node: int | None, made: ctypes.c_void_p) -> int:
            if region is None:
                return lib.tow_static_receiver(drives, node, name.encode(), kind, slots, made)
            with region._handle as memory:
                return lib.tow_static_receiver_in(drives, node, name.encode(), kind, slots,
                                                  memory, made)

        super().__init__(worker, peer, name, make, False,
                         *((region._handle,) if region is not None else ()))

    def _kind(self, pointer: int | None) -> tuple[tuple[int, ...], np.dtype[Any]]:
        return self.shape, self.dtype


class DynamicReceiver(_Receiver):
    """The consumer's end of a dynamic edge: Worker.dynamic_receiver().

    An array is in the worker's arena.  If it is still in use when consumed() is called, it is
    kept, and freed when the last view of it dies; take() says so.
    """

    def __init__(self, worker: Worker, peer: Peer, name: str, slots: int = 2) -> None:
        super().__init__(worker, peer, name, lambda drives, node, made: lib.tow_dynamic_receiver(
            drives, node, name.encode(), slots, made), True)

    def take(self) -> Array:
        """The array that recv() or test() has shown, to keep; all else as consumed().

        Raises Error: EINVAL: none was shown.
        """
        shown = self.test()
        if shown is None:
            raise failure(-errno.EINVAL, f"edge {self.name}")
        self.consumed()
        return shown[1]


# ---- rendezvous ----

class _Asked(Operation):
    """A request: the tensor is the arena's, and freed if nobody takes it."""

    def __init__(self, worker: Worker) -> None:
        super().__init__()
        self._arena = worker.arena._handle

    def got(self, tensor: Any) -> None:
        """What has come, or why nothing will."""
        try:
            if tensor.data:
                self.result = self._array(tensor)
        except (TypeError, ValueError, MemoryError) as error:
            self.error = error
        self.end(tensor.step, tensor.status)

    def _array(self, tensor: Any) -> Array:
        nbytes = ctypes.c_uint64()
        lib.tow_tensor_bytes(tensor.type, nbytes)
        block = Block(self._arena, tensor.data, nbytes.value, self._arena)
        shape, dtype = numpy_type(tensor.type)
        return block.array(shape, dtype)


@RENDEZVOUS_GOT
def _rendezvous_got(number: int, tensor: Any) -> None:
    asked = Operation.every.pop(number, None)
    if isinstance(asked, _Asked):
        asked.got(tensor[0])


class Request(Pending):
    """A tensor that was asked for: wait() and await give the array, which is in the arena."""

    def __init__(self, edge: RendezvousReceiver, operation: Operation, key: str,
                 step: int) -> None:
        super().__init__(edge.worker, operation, f"asking for {key}, step {step}")
        self._edge, self._key, self._step = edge, key, step

    def cancel(self) -> None:
        """Do without it: it ends with ECANCELED, or with the array if that was on its way."""
        with self._edge._handle as pointer:
            result = lib.tow_rendezvous_cancel(pointer, self._key.encode(), self._step)
        if result not in (0, -errno.ENOENT):
            raise failure(result, self._what)

    async def _ended(self) -> Any:
        try:
            return await super()._ended()
        except asyncio.CancelledError:
            if not self._edge.closed:
                self.cancel()
            raise


class RendezvousReceiver(Edge):
    """The end of a rendezvous that asks: Worker.rendezvous_receiver()."""

    def __init__(self, worker: Worker, peer: Peer, name: str, requests: int = 64) -> None:
        super().__init__(worker, peer, name,
                         lambda drives, node, made: lib.tow_rendezvous_receiver(
                             drives, node, name.encode(), requests, made))

    def get(self, key: str, step: int) -> Request:
        """Ask for a tensor, as it is or will be offered.

        key: 1 to 255 bytes.
        Raises Error: EEXIST: it was asked for already; ENOTCONN: connect() comes first; or what
        has ended the edge.  wait() and await raise what fail() was given; ECANCELED; Timeout: it
        took longer than the worker's; ENOSPC, EDQUOT, ENOMEM: there is no memory for it here.
        """
        operation = _Asked(self.worker)
        with self._handle as pointer:
            operation.begin(lambda number: lib.tow_rendezvous_get(
                pointer, key.encode(), step, _rendezvous_got, number), f"asking for {key}")
        return Request(self, operation, key, step)


class RendezvousSender(Edge):
    """The end of a rendezvous that offers: Worker.rendezvous_sender()."""

    def __init__(self, worker: Worker, peer: Peer, name: str, requests: int = 64) -> None:
        super().__init__(worker, peer, name,
                         lambda drives, node, made: lib.tow_rendezvous_sender(
                             drives, node, name.encode(), requests, made))

    def put(self, key: str, step: int, array: AnyArray, clone: bool = False,
            tracer: Tracer | None = None) -> Sent:
        """Offer an array, connected or not, until somebody asks for it or the edge is closed.

        key: 1 to 255 bytes.  step: any number.
        clone: it is copied at once, and may be changed.
        tracer: is told of the transfer.
        Raises Error: EEXIST: there is one, which was not asked for yet; ENOSPC, EDQUOT, ENOMEM;
        or what has ended the edge.
        """
        array = whole(array, "what is offered")
        kind = tensor_type(array.shape, array.dtype)
        operation = Operation(kept=None if clone else array)
        what = f"offering {key}, step {step}"
        with self._handle as pointer:
            operation.begin(lambda number: lib.tow_rendezvous_put(
                pointer, key.encode(), step, kind, address_of(array),
                PUT_CLONE if clone else 0, edge_done, number), what)
        if tracer is not None:
            tracer.transferred(array)
        return Sent(self.worker, operation, what)

    def fail(self, key: str, step: int, error: int = errno.ECANCELED) -> None:
        """Offer an error: there will be no such tensor.

        error: the errno of what is raised where it is asked for.
        """
        with self._handle as pointer:
            check(lib.tow_rendezvous_fail(pointer, key.encode(), step, -error),
                  f"offering {key}")
