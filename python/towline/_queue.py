# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""Queues: reads, writes and atomics between a region and what a peer has exported.

What is done for each is compiled: see _ring.c.
"""

from __future__ import annotations

import asyncio
import ctypes
import enum
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ._lib import (ChannelStruct, Deadline, Error, QueueAttr, QueueEvent, check, failure, lib,
                   load_compiled)
from ._life import Handle, Object, exiting, uninterrupted
from ._memory import Region, values_of
from ._remote import Remote
from ._worker import wake

if TYPE_CHECKING:
    from ._device import Device

VECTOR_MAX, VECTOR_BYTES = 4096, 24
CHANNEL_ANY = 0xffffffff
QUEUE_RESULTS = 2
# Names and nodes that may be looked for at once; of more some wait until others were found.
LOOKUPS = 4096
# How long the kernel may take to say what has become of what a device that is gone had.
GONE_S = 5.0


# Event loops that look at a ring's descriptor, and for how many that wait.
_looked: dict[tuple[int, int], int] = {}


async def _ended(request: Any) -> Any:
    """What `await request` does: others run meanwhile, and if it is cancelled the request goes on."""
    if not request.done():
        loop, ring = asyncio.get_running_loop(), request._ring
        future = loop.create_future()
        request.add_done_callback(lambda _: wake(loop, future))
        key = (id(loop), id(ring))
        if key not in _looked:
            loop.add_reader(ring.fd, ring.progress, 0)
        _looked[key] = _looked.get(key, 0) + 1
        try:
            await future
        finally:
            _looked[key] -= 1
            if not _looked[key]:
                del _looked[key]
                loop.remove_reader(ring.fd)
    return request.result(0)


class _Kept:
    """What a transfer is of, until nobody has it and nothing of it is on its way."""

    def __init__(self, channel: Any, *handles: Handle) -> None:
        for handle in handles:
            handle.keep()
        self.channel = channel
        self._handles = handles

    def __del__(self) -> None:
        if exiting():
            return
        if self._handles[0].ours:
            lib.tow_channel_put(self.channel)
        for handle in self._handles:
            handle.drop()


class Slot(Object):
    """A number that one peer at a time notifies this process by: found as a Remote with Right.NOTIFY.

    region: where the number is; not read-only.
    offset: where in it, in bytes: a multiple of 8; nobody writes these 8 bytes from now on.
    name: as of an Export.

    The number becomes 0, and only grows: when it is N, all that came with the first N notifications is
    there.  close() waits until nobody can notify by it; who waits for it gets ESTALE.

    Raises Error: EINVAL; EACCES: the region is read-only; EOPNOTSUPP: it is a dma-buf's; EEXIST: the name
    is taken; EDQUOT, ENOSPC, ENOMEM.
    """

    def __init__(self, region: Region, offset: int, name: str) -> None:
        # In the ring's module, so that the processor's order is kept.
        self._value = _ring().value
        made = ctypes.c_void_p()
        with region._handle as pointer:
            check(lib.tow_slot_create(pointer, offset, name.encode("utf-8", "surrogateescape"), made),
                  f"making slot {name}")
            self._own(Handle(made.value, lib.tow_slot_destroy, region._handle))
        self.region = region
        self.name = name

    @property
    def value(self) -> int:
        """How many notifications have arrived; makes no call."""
        with self._handle.look() as pointer:
            return int(self._value(pointer))


class Happening(enum.IntFlag):
    """What may happen to a peer: its connection broke, another one took its place, or it is lost."""
    BROKEN = 1
    BACK = 2
    LOST = 4


class QueueReport(NamedTuple):
    """What has happened to a peer, as struct tow_queue_event; times by CLOCK_MONOTONIC, in nanoseconds."""
    peer: int
    what: Happening
    error: int
    state: int
    scope_id: int
    broken_ns: int
    lost_ns: int
    address: bytes
    incarnation: bytes
    port: int


class Queue(Object):
    """What reads and writes go by.

    dev: the device.
    entries: how many may be on their way, rounded up to a power of two: up to 32,768.

    Any number of threads may use it.  close() waits for what is on its way.  Who leaves a with block by
    an exception waits for nothing, nor do the garbage collector and the interpreter's end: what has not
    ended has ended with ECANCELED then, and its memory is kept.

    Raises Error: EDQUOT, ENOSPC, ENOMEM; EMFILE, ENFILE; EINVAL: the number of entries is none.
    """

    def __init__(self, dev: Device, entries: int = 256) -> None:
        ring = _ring()
        made = ctypes.c_void_p()
        vectors = np.zeros(VECTOR_MAX * VECTOR_BYTES, np.uint8)
        # The region is the queue's, and ends with it.
        with Region.from_memory(dev, vectors, readonly=True) as vector_list, \
                dev._handle as pointer, vector_list._handle as address:
            check(lib.tow_queue_create(pointer, entries, 0, made), "making a queue")
            fd = lib.tow_queue_fd(made)
            self._own(Handle(made.value, lib.tow_queue_destroy, dev._handle, vector_list._handle))
            self._ring = ring.Ring(made.value, fd, False, address, vectors.ctypes.data, vectors)
            # Also if it is closed by the collector, or at the interpreter's end.
            self._handle.before = self._ring.close
        self.device = dev

    def transfer(self, region: Region, remote: Remote, qp: int | None = None,
                 slot: Remote | None = None) -> Any:
        """A way between a region and a remote range.

        region: here; may be closed, and so may @remote: they do not end before this.
        remote: at a peer.
        qp: by which of the peer's queue pairs, counted from 0: what goes by one goes in its order; None:
            any one.
        slot: what write_notify() and its like count at; at the same peer.
        Returns a Transfer.
        Raises Error: ENOENT: the peer is not known any more; EINVAL: it has no such queue pair;
        ECONNRESET; ENOSPC: the queue has too many ways; ENOMEM; what Peer() raises.
        """
        if region.device is not self.device:
            raise ValueError("the region is of another device")
        with region._handle as here:
            return self._between(here, region._handle, remote, qp, slot)

    def _between(self, here: int | None, holder: Handle, remote: Remote, qp: int | None,
                 slot: Remote | None) -> Any:
        """The same of a region that ends with its holder."""
        channel = ctypes.POINTER(ChannelStruct)()
        used = [remote] if slot is None else [remote, slot]
        with self._handle as pointer, remote._handle as there, used[-1]._handle as counts:
            # A remote range keeps its peer.
            check(lib.tow_channel_get(pointer, remote.peer._handle.pointer,
                                      CHANNEL_ANY if qp is None else qp, channel), "a way to a peer")
            kept = _Kept(channel, self._handle, holder, *(one._handle for one in used))
            return _ring().Transfer(self._ring, channel.contents.number, here, there,
                                    None if slot is None else counts, kept)

    def wait(self, slot: Slot, number: int, timeout: float | None = None) -> Any:
        """Until so many notifications have arrived: a Request.

        slot: here, of the queue's device.
        timeout: in seconds; then it ends with Timeout.
        It ends with ESTALE if the slot is closed, or with what has become of the peer that notifies.
        """
        if slot.region.device is not self.device:
            raise ValueError("the slot is of another device")
        with self._handle, slot._handle as pointer:
            return self._ring.wait(pointer, number, timeout, slot)

    def events(self) -> list[QueueReport]:
        """What has happened to peers that it has transfers to, since it was asked last; does not wait.

        select.poll() with POLLPRI does.
        """
        found: list[QueueReport] = []
        while True:
            event = QueueEvent()
            with self._handle as pointer:
                if not check(lib.tow_queue_event(pointer, event), "asking a queue"):
                    return found
            one = values_of(event, QueueReport)
            found.append(one._replace(what=Happening(one.what)))

    def fileno(self) -> int:
        """For select and poll: to be read from, something has ended."""
        return int(self._ring.fd)

    @property
    def in_flight(self) -> int:
        """How many entries have not ended, or have memory in use still."""
        return int(self._ring.in_flight)

    def progress(self, timeout: float | None = 0) -> None:
        """Look what has ended, and call what waits for it; wait for one, for 20 ms at most.

        timeout: for less, in seconds.
        Waiting for any request does that, too, and so does an event loop in which one is awaited.
        """
        with self._handle:
            self._ring.progress(timeout)

    def close(self) -> None:
        """Wait for what is on its way, and end it."""
        if self._handle.ours and not self.closed:
            until = Deadline(None)
            while self._ring.in_flight and not until.over:
                try:
                    self._ring.progress(None)
                except Error:
                    # The device is gone, and what was on its way ends.
                    until = Deadline(min(until.left, GONE_S))
                    time.sleep(0.001)
        super().close()

    def __exit__(self, kind: type[BaseException] | None = None, *_: Any) -> None:
        if kind is None:
            self.close()
        else:
            super().close()


class Lookups(Object):
    """What a device looks for names and connects to nodes by, many at once: Device.resolve(), .connect()."""

    def __init__(self, dev: Device) -> None:
        ring = _ring()
        made = ctypes.c_void_p()
        with dev._handle as pointer:
            check(lib.tow_queue_create_with(pointer, 1, LOOKUPS, QueueAttr(flags=QUEUE_RESULTS), made),
                  "making a queue of results")
            handle = Handle(made.value, lib.tow_queue_destroy, dev._handle)
            self._ring = ring.Ring(made.value, lib.tow_queue_fd(made), True, 0, 0, None)
            # How many are about to be in flight.
            self._beginning, self._expected = threading.Lock(), 0
            handle.before = self._ring.close
            # A device that is closed ends what it has begun.
            dev._handle.owned.add(handle)
            self._own(handle)

    def begin(self, call: Any, structures: Any, makers: list[Any]) -> list[Any]:
        """Hand over structures, of which each has user_data: their Requests.

        call: tow_queue_resolve(), say.
        makers: for each what makes of an address what it has found.
        """
        requests: list[Any] = []
        with self._handle as pointer:
            for first in range(0, len(makers), LOOKUPS // 2):
                last = min(first + LOOKUPS // 2, len(makers))
                # Callbacks that are called meanwhile may look for others.
                while True:
                    with self._beginning:
                        if self._ring.in_flight + self._expected <= LOOKUPS // 2:
                            self._expected += last - first
                            break
                    self._ring.progress(None)
                try:
                    # Ctrl-C comes when all of them were begun.
                    with uninterrupted():
                        requests += self._hand_over(call, pointer, structures, makers, range(first, last))
                finally:
                    with self._beginning:
                        self._expected -= last - first
        return requests

    def _hand_over(self, call: Any, pointer: int | None, structures: Any, makers: list[Any],
                   some: range) -> list[Any]:
        requests = []
        for at in some:
            request, structures[at].user_data = self._ring.expect(makers[at], makers[at])
            requests.append(request)
        begun = some.start
        while begun < some.stop:
            result = call(pointer, structures[begun], some.stop - begun)
            if result <= 0:
                # The first one is refused; those behind it are not.
                self._ring.refuse(structures[begun].user_data, result)
                result = 1
            begun += result
        return requests


_module: Any = None


def _ring() -> Any:
    """The compiled part, when it is needed first."""
    global _module  # pylint: disable=global-statement
    if _module is None:
        made = load_compiled(f"{__package__}._ring", "TOWLINE_RING", "towline.Queue", "python-ring")
        made.setup(*(ctypes.cast(getattr(lib, name), ctypes.c_void_p).value
                     for name in ("tow_queue_submit", "tow_queue_enter", "tow_queue_found",
                                  "tow_queue_connected")), failure, _ended)
        _module = made
    return _module
