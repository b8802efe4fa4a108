# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""Queues: reads, writes and atomics between a region and what a peer has exported.

What is done for each is compiled: see _ring.c.
"""

from __future__ import annotations

import asyncio
import ctypes
import time
from typing import TYPE_CHECKING, Any, Optional, Type

import numpy as np

from ._lib import ChannelStruct, Deadline, Error, check, failure, lib, load_compiled
from ._life import Handle, Object, exiting
from ._memory import Region
from ._remote import Remote

if TYPE_CHECKING:
    from ._device import Device

VECTOR_MAX, VECTOR_BYTES = 4096, 24
CHANNEL_ANY = 0xffffffff
# How long the kernel may take to say what has become of what a device that is gone had.
GONE_S = 5.0


# Event loops that look at a ring's descriptor, and for how many that wait.
_looked: dict[tuple[int, int], int] = {}


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


async def _ended(request: Any) -> None:
    """What `await request` does: others run meanwhile, and if it is cancelled the request goes on."""
    if not request.done():
        loop, ring = asyncio.get_running_loop(), request._ring
        future = loop.create_future()
        request.add_done_callback(lambda _: loop.call_soon_threadsafe(_wake, future))
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
    request.result(0)


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


class Queue(Object):
    """What reads and writes go by.

    dev: the device.
    entries: how many may be on their way, rounded up to a power of two: up to 32,768.

    Any number of threads may use it.  close() waits for what is on its way.  Who leaves a with block by
    an exception waits for nothing, nor do the garbage collector and the interpreter's end: what has not
    ended has ended with ECANCELED then, and its memory is kept.

    Raises Error: EDQUOT, ENOSPC, ENOMEM; EMFILE, ENFILE; EINVAL: the number of entries is none.
    """

    def __init__(self, dev: "Device", entries: int = 256) -> None:
        ring = _ring()
        made = ctypes.c_void_p()
        vectors = np.zeros(VECTOR_MAX * VECTOR_BYTES, np.uint8)
        # The region is the queue's, and ends with it.
        with Region.from_memory(dev, vectors, readonly=True) as vector_list, \
                dev._handle as pointer, vector_list._handle as address:
            check(lib.tow_queue_create(pointer, entries, 0, made), "making a queue")
            fd = lib.tow_queue_fd(made)
            self._own(Handle(made.value, lib.tow_queue_destroy, dev._handle, vector_list._handle))
            self._ring = ring.Ring(made.value, fd, address, vectors.ctypes.data, vectors)
            # Also if it is closed by the collector, or at the interpreter's end.
            self._handle.before = self._ring.close
        self.device = dev

    def transfer(self, region: Region, remote: Remote, qp: Optional[int] = None) -> Any:
        """A way between a region and a remote range.

        region: here; may be closed, and so may @remote: they do not end before this.
        remote: at a peer.
        qp: by which of the peer's queue pairs, counted from 0: what goes by one goes in its order; None:
            any one.
        Returns a Transfer.
        Raises Error: ENOENT: the peer is not known any more; EINVAL: it has no such queue pair;
        ECONNRESET; ENOSPC: the queue has too many ways; ENOMEM; what Peer() raises.
        """
        if region.device is not self.device:
            raise ValueError("the region is of another device")
        channel = ctypes.POINTER(ChannelStruct)()
        with self._handle as pointer, region._handle as here, remote._handle as there:
            # A remote range keeps its peer.
            check(lib.tow_channel_get(pointer, remote.peer._handle.pointer,
                                      CHANNEL_ANY if qp is None else qp, channel), "a way to a peer")
            kept = _Kept(channel, self._handle, region._handle, remote._handle)
            return _ring().Transfer(self._ring, channel.contents.number, here, there, kept)

    def fileno(self) -> int:
        """For select and poll: to be read from, something has ended."""
        return self._ring.fd

    @property
    def in_flight(self) -> int:
        """How many entries have not ended, or have memory in use still."""
        return self._ring.in_flight

    def progress(self, timeout: Optional[float] = 0) -> None:
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

    def __exit__(self, kind: Optional[Type[BaseException]] = None, *_: Any) -> None:
        if kind is None:
            self.close()
        else:
            super().close()


_module: Any = None


def _ring() -> Any:
    """The compiled part, when it is needed first."""
    global _module  # pylint: disable=global-statement
    if _module is None:
        made = load_compiled(f"{__package__}._ring", "TOWLINE_RING", "towline.Queue", "python-ring")
        made.setup(*(ctypes.cast(getattr(lib, name), ctypes.c_void_p).value
                     for name in ("tow_queue_submit", "tow_queue_enter")), failure, _ended)
        _module = made
    return _module
