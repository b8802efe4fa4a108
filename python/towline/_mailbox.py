# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""Mailboxes: short messages between processes."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
from collections.abc import Callable
from typing import TypeVar

from ._device import Peer
from ._edge import _Watch
from ._lib import (MAILBOX_NEWS, MESSAGE_MAX, Deadline, LineInfo, MailboxAttr, check, failure, lib,
                   milliseconds)
from ._life import Handle, Object
from ._worker import Worker

# What tow_mailbox_wait() waits for.
CAME, ROOM = 1, 2

Found = TypeVar("Found")


@MAILBOX_NEWS
def _mailbox_news(number: int, _line: int, _what: int) -> None:
    watch = _Watch.every.get(number)
    if watch:
        watch.came()


class Mailbox(Object):
    """What lines lead from and to: Worker.mailbox()."""

    def __init__(self, worker: Worker, name: str | None = None, line_bytes: int = 0,
                 lines: int = 0, backlog: int = 0) -> None:
        attr = MailboxAttr(bytes=line_bytes, lines=lines, backlog=backlog)
        made = ctypes.c_void_p()
        with worker._handle as drives:
            check(lib.tow_mailbox_create(drives, name.encode() if name is not None else None, attr,
                                         made), f"making mailbox {name or 'without a name'}")
            handle = Handle(made.value, lib.tow_mailbox_destroy, worker._handle, calls=True)
            worker._handle.owned.add(handle)
            self._own(handle)
        self.worker = worker
        self.name = name
        self._watch = _Watch()

    def connect(self, peer: Peer, name: str, timeout: float | None = 30.0) -> Line:
        """Begin a line with the mailbox of that name at a peer's.

        timeout: how long to look for it, and for room in its backlog, in seconds.
        Raises Timeout; Error: EPROTO: it is of another version; EMLINK: there are as many lines as
        may be; EOVERFLOW: as many things of the worker's wait as may; EDQUOT, ENOSPC, ENOMEM.
        """
        line = self._begin(peer, name, timeout)
        try:
            self._wait(line._look_open, line._handle, ROOM, timeout, f"beginning a line with {name}")
        except BaseException:
            line.close()
            raise
        return line

    async def connected(self, peer: Peer, name: str, timeout: float | None = 30.0) -> Line:
        """As connect(), in asyncio."""
        line = self._begin(peer, name, timeout)
        try:
            await self._until(line._look_open)
        except BaseException:
            line.close()
            raise
        return line

    def _begin(self, peer: Peer, name: str, timeout: float | None) -> Line:
        """A line that is not open yet."""
        made = ctypes.c_void_p()
        with self._handle as box, peer._handle as node:
            check(lib.tow_mailbox_connect(box, node, name.encode(), milliseconds(timeout), made),
                  f"beginning a line with {name}")
            return Line(self, made.value, peer._handle)

    def _accept(self) -> Line | None:
        made = ctypes.c_void_p()
        with self._handle as box:
            if not check(lib.tow_mailbox_accept(box, made), f"mailbox {self.name}"):
                return None
            return Line(self, made.value)

    def accept(self, timeout: float | None = None) -> Line:
        """A line that another process has begun, in the order in which they came.

        timeout: how long to wait for one, in seconds.  Raises Timeout.
        """
        return self._wait(self._accept, None, CAME, timeout, f"mailbox {self.name}")

    async def accepted(self) -> Line:
        """As accept(), in asyncio."""
        return await self._until(self._accept)

    def _wait(self, look: Callable[[], Found | None], line: Handle | None, what: int,
              timeout: float | None, text: str) -> Found:
        until = Deadline(timeout)
        while True:
            over = until.over
            with self._handle as box, line or contextlib.nullcontext() as pointer:
                result = lib.tow_mailbox_wait(box, pointer, what, until.slice_us())
            found = look()
            if found is not None:
                return found
            if result not in (-errno.EINTR, -errno.ETIMEDOUT):
                check(result, text)
            if over:
                raise failure(-errno.ETIMEDOUT, text)

    async def _until(self, look: Callable[[], Found | None]) -> Found:
        if not self._watch.begun:
            with self._handle as box:
                check(lib.tow_mailbox_watch(box, _mailbox_news, self._watch.number),
                      f"mailbox {self.name}")
            self._watch.begun = True
        loop = asyncio.get_running_loop()
        with self.worker._driver() as driver:
            while True:
                with driver.future() as future:
                    # First: it may come while this looks.
                    self._watch.add(loop, future)
                    found = look()
                    if found is not None:
                        return found
                    await future


class Line(Object):
    """Messages both ways, whole, once, in order: Mailbox.connect(), Mailbox.accept().

    What the other process has sent before it ended, or was killed, is there to be received first.
    close() waits until what was sent is there, but a second at most.
    """

    def __init__(self, mailbox: Mailbox, pointer: int | None, *parents: Handle) -> None:
        handle = Handle(pointer, lib.tow_mailbox_close, mailbox._handle, *parents, calls=True)
        mailbox._handle.owned.add(handle)
        self._own(handle)
        self.mailbox = mailbox

    def _info(self) -> LineInfo:
        info = LineInfo()
        with self._handle as pointer:
            check(lib.tow_mailbox_info(pointer, info), "a line")
        return info

    @property
    def name(self) -> str:
        """Of the other mailbox, as it says; "": it has none."""
        return str(self._info().name.decode())

    @property
    def room(self) -> int:
        """Bytes of the longest message that can be sent now; 0: none."""
        return int(self._info().room)

    def _look_open(self) -> bool | None:
        status = self._info().status
        return None if status == -errno.EINPROGRESS else not check(status, "a line")

    def _try(self, message: bytes) -> bool | None:
        with self._handle as pointer:
            result = lib.tow_mailbox_send(pointer, message, len(message))
        return None if result == -errno.EAGAIN else not check(result, "sending by a line")

    def send(self, message: bytes, timeout: float | None = None) -> None:
        """Send a message of 1 to 2,016 bytes.

        timeout: how long to wait until the other end has room for it, in seconds.
        Raises Timeout; Error: ESTALE: the other end has ended; ECONNRESET: its node is lost.
        """
        if not self._try(bytes(message)):
            self.mailbox._wait(lambda: self._try(bytes(message)), self._handle, ROOM, timeout,
                               "sending by a line")

    async def post(self, message: bytes) -> None:
        """As send(), in asyncio."""
        await self.mailbox._until(lambda: self._try(bytes(message)))

    def test(self) -> bytes | None:
        """The next message, if there is one; else None.  Raises Error: as recv()."""
        room, count = ctypes.create_string_buffer(MESSAGE_MAX), ctypes.c_uint32()
        with self._handle as pointer:
            if not check(lib.tow_mailbox_receive(pointer, room, MESSAGE_MAX, count), "a line"):
                return None
        return room.raw[:count.value]

    def recv(self, timeout: float | None = None) -> bytes:
        """The next message; waits for it, and drives the worker meanwhile.

        timeout: seconds.
        Raises Timeout: it has not come; Error: ESTALE: the other end has ended, and nothing of it
        is left; ECONNRESET: its node is lost; EPROTO: what came makes no sense.
        """
        return self.mailbox._wait(self.test, self._handle, CAME, timeout, "a line")

    async def receive(self) -> bytes:
        """As recv(), in asyncio."""
        return await self.mailbox._until(self.test)
