# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""Blocks that were prepared, and those that are on their way to another agent."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import errno
import functools
import itertools
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ._lib import MESSAGE_MAX, Error, milliseconds
from ._life import uninterrupted
from ._queue import VECTOR_MAX
from ._remote import Remote, Right
from ._types import Array

if TYPE_CHECKING:
    from ._agent import Agent
    from ._device import Peer
    from ._mailbox import Line
    from ._registered import Memory, There

Found = TypeVar("Found")
# Of a part, unless there are fewer: a system call is worth it.
BLOCKS_MIN = 32
# As concurrent.futures has it.
_LOG = logging.getLogger("towline")


def taken(queue: collections.deque[Found]) -> Iterator[Found]:
    with contextlib.suppress(IndexError):
        while True:
            yield queue.popleft()


def payload_of(payload: bytes) -> bytes:
    """A notification's.  ValueError: it is too short or too long; TypeError: it is no bytes."""
    if not isinstance(payload, (bytes, bytearray, memoryview)):
        raise TypeError(f"a notification is of bytes, and not {type(payload).__name__}")
    payload = bytes(payload)
    if not 0 < len(payload) <= MESSAGE_MAX:
        raise ValueError(f"a notification has 1 to {MESSAGE_MAX} bytes")
    return payload


def called(function: Callable[..., Any], *arguments: Any) -> None:
    """Call a function of the program's; what it raises is for nobody here."""
    try:
        function(*arguments)
    except Exception:   # pylint: disable=broad-exception-caught
        _LOG.exception("exception calling callback for %r", arguments[0])


class RemoteAgent:
    """Another process' agent, as Agent.connect() has found it.

    name: its name.
    error: None, or with what it was lost.
    """

    def __init__(self, token: str, name: str, peer: Peer, line: Line) -> None:
        self.name = name
        self.error: Error | None = None
        self._token = token
        self._peer = peer
        self._line = line
        # What it has registered, by where it begins, and what of it was found.
        self._memory: list[There] = []
        self._remotes: dict[tuple[str, Right], Remote] = {}
        self._ways: dict[tuple[Memory, Remote], list[Any]] = {}
        # What it is to be told, and what is on its way to it: up to which place of the line's.
        self._outgoing: collections.deque[tuple[bytes, Post]] = collections.deque()
        self._telling: collections.deque[tuple[int, Post]] = collections.deque()

    def _usable(self) -> None:
        if self.error:
            raise self.error

    def _know(self, memory: list[There]) -> None:
        """What it has now; what it has not any more goes."""
        self._memory = memory
        names = {one.name for one in memory}
        gone = {remote for (name, _), remote in self._remotes.items() if name not in names}
        self._ways = {key: way for key, way in self._ways.items() if key[1] not in gone}
        self._remotes = {key: remote for key, remote in self._remotes.items() if remote not in gone}
        for remote in gone:
            remote.close()

    def _forget(self) -> None:
        self._ways.clear()
        for one in self._remotes.values():
            one.close()
        self._remotes.clear()
        self._peer.close()


class Post:
    """Blocks that are on their way, with the semantics of concurrent.futures.Future; may be awaited.

    It goes on also when this object is gone, or who awaits it is cancelled.
    """

    def __init__(self, agent: Agent, other: RemoteAgent, todo: collections.deque[Callable[[], Any]],
                 notify: bytes | None) -> None:
        self._agent = agent
        self._other = other
        self._todo = todo
        self._notify = notify
        self._left = 0
        self._error: BaseException | None = None
        self._cancelled = False
        self._telling = False
        self._done = False
        self._callbacks: collections.deque[Callable[[Post], Any]] = collections.deque()

    # ---- what the agent does, with its lock ----

    def _begin(self) -> bool:
        """What there is room for.  False: there is more."""
        while self._todo and not self._error:
            try:
                request = self._todo[0]()
            except Exception as error:  # pylint: disable=broad-exception-caught
                if isinstance(error, Error) and error.errno == errno.EBUSY:
                    return False
                self._error = error
                break
            self._todo.popleft()
            self._left += 1
            request.add_done_callback(self._ended)
        self._todo.clear()
        self._see()
        return True

    def _ended(self, request: Any) -> None:
        with self._agent._lock:
            self._left -= 1
            self._error = self._error or request.exception()
            self._see()
            self._agent._moved += 1

    def _see(self) -> None:
        """When all blocks are in place it is told; when that is there, too, it has ended."""
        if self._left or self._todo or self._telling:
            return
        self._telling = True
        if self._notify is None or self._error:
            self._end(None)
        else:
            self._other._outgoing.append((self._notify, self))
            self._agent._send(self._other)

    def _end(self, error: BaseException | None) -> None:
        self._error = self._error or error
        self._done = True
        self._agent._moved += 1
        self._agent._finished.append(self)

    # ---- who waits for it ----

    def _is_done(self) -> bool | None:
        return self._done or None

    def done(self) -> bool:
        """Has it ended, well or not?"""
        if not self._done:
            self._agent.progress()
        return self._done

    def cancelled(self) -> bool:
        """Was it cancelled before it had ended?"""
        return self._done and self._cancelled

    def cancel(self) -> bool:
        """Begin nothing more of it, and tell nobody.

        It ends, with CancelledError, when what is on its way has ended, as its memory is in use until then.
        Returns whether it had not ended.
        """
        self._agent._queue._handle.claim()
        with uninterrupted(), self._agent._lock:
            if self._done or self._cancelled:
                return self._cancelled
            if self._telling:
                return False
            self._cancelled = True
            self._error = concurrent.futures.CancelledError()
            if self in self._agent._waiting:
                self._agent._waiting.remove(self)
            self._todo.clear()
            self._see()
            self._agent._moved += 1
        self._agent._tell()
        return True

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As result(), but what it has ended with is returned, or None."""
        self._agent._wait(self._is_done, timeout, "blocks")
        if self._cancelled:
            raise concurrent.futures.CancelledError
        return self._error

    def result(self, timeout: float | None = None) -> None:
        """Until it has ended, but no longer than timeout, in seconds; None: for ever.

        When it has, writes are in place, and the notification arrives without anybody's help.
        Raises Error: what it has ended with: ECONNRESET, ESTALE: the other one is lost, or has taken its
        memory back.  CancelledError.  Timeout: it goes on.
        """
        error = self.exception(timeout)
        if error:
            raise error

    def add_done_callback(self, function: Callable[[Post], Any]) -> None:
        """Have a function called with it when it has ended, by whoever finds that; or at once."""
        self._agent._queue._handle.claim()
        with self._agent._lock:
            if not self._done:
                self._callbacks.append(function)
                return
        called(function, self)

    def __await__(self) -> Any:
        return self._awaited().__await__()

    async def _awaited(self) -> None:
        await self._agent._until(self._is_done)
        self.result(0)


class Prepared:
    """Blocks whose places were looked up: Agent.prepare()."""

    def __init__(self, agent: Agent, other: RemoteAgent, write: bool, count: int,
                 parts: list[tuple[list[Any], Array, Array, Array, Array]]) -> None:
        """parts: ways, and of their blocks the numbers, offsets here, offsets there, and bytes."""
        self._agent = agent
        self._other = other
        self._write = write
        self._count = count
        self._parts = parts

    def __len__(self) -> int:
        return self._count

    def post(self, notify: bytes | None = None, *, which: Any | None = None,
             timeout: float | None = None) -> Post:
        """Begin: as often as one likes.

        notify: 1 to 2,016 bytes that the other agent is told when all of them are in place; None: nothing.
        which: numbers of the blocks that are meant, an array of integers; None: all.
        timeout: of each part, in seconds, after which it is given up.
        Raises Error: ECONNRESET, ESTALE: the other one is lost.  ValueError: notify is too long;
        IndexError: there is no such block.
        """
        told = None if notify is None else payload_of(notify)
        # Before anything is begun, which may be later.
        milliseconds(timeout)
        if which is not None:
            chosen = np.zeros(self._count, bool)
            if np.any(np.asarray(which) < 0):
                raise IndexError("numbers of blocks are not negative")
            chosen[which] = True
        todo: collections.deque[Callable[[], Any]] = collections.deque()
        for ways, numbers, here, there, nbytes in self._parts:
            if which is not None:
                some = chosen[numbers]
                here, there, nbytes = here[some], there[some], nbytes[some]
            # By as many ways as it is worth, a part each, or one behind the other.
            size = min(VECTOR_MAX, max(BLOCKS_MIN, -(-len(here) // len(ways))))
            for first, way in zip(range(0, len(here), size), itertools.cycle(ways)):
                last = first + size
                todo.append(functools.partial(way.write_blocks if self._write else way.read_blocks,
                                              here[first:last], there[first:last], nbytes[first:last], timeout))
        post = Post(self._agent, self._other, todo, told)
        self._agent._post(post)
        return post
