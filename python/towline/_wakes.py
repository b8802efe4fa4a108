# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""What wakes who waits for an agent: an event loop's readers, and a pipe."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

from ._lib import Error
from ._worker import TICK_S

if TYPE_CHECKING:
    from ._agent import Agent

# How long closing waits for others: until they have room for what they are to be told, or look no more.
PARTING_S = 1.0


class Loop:
    """What an event loop needs while somebody in it waits for the agent."""

    def __init__(self, agent: Agent, loop: asyncio.AbstractEventLoop) -> None:
        self._agent = agent
        self._loop = loop
        self._users = 0
        self._timer: asyncio.TimerHandle | None = None
        self._fds: tuple[int, ...] = ()

    def __enter__(self) -> None:
        self._users += 1
        if not self._fds:
            self._fds = self._agent._fds
            for fd in self._fds:
                self._loop.add_reader(fd, self._look)
            self._timer = self._loop.call_later(TICK_S, self._tick)

    def __exit__(self, *_: Any) -> None:
        self._users -= 1
        if not self._users:
            self._stop()
            self._agent._loops.pop(self._loop, None)

    def _stop(self) -> None:
        fds, self._fds = self._fds, ()
        for fd in fds:
            self._loop.remove_reader(fd)
        if self._timer:
            self._timer.cancel()

    def end(self) -> None:
        """By whatever thread: it looks at the descriptors no more."""
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._stop()
            return
        stopped = threading.Event()
        # Unless it has ended, or does not run.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stop)
            self._loop.call_soon_threadsafe(stopped.set)
            stopped.wait(PARTING_S)

    def _look(self) -> None:
        try:
            self._agent.progress()
        except (Error, ValueError):
            # Who waits finds out by asking.
            self._stop()
            self._agent._tell()

    def _tick(self) -> None:
        if self._fds:
            self._timer = self._loop.call_later(TICK_S, self._tick)
            self._look()


class Pipe:
    """Readable when it was filled."""

    def __init__(self) -> None:
        self.fd, self._in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.close = weakref.finalize(self, _close_both, self.fd, self._in)

    def fill(self) -> None:
        """Make it so."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._in, b"x")

    def empty(self) -> None:
        """And not any more."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 4096)


def _close_both(*fds: int) -> None:
    for fd in fds:
        os.close(fd)
