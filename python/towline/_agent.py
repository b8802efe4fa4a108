# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""Agents: memory by its address, and many blocks of it to and from other processes, which come and go.

What an agent has registered others reach by the addresses that it has there.  Nothing has a name that
somebody must think of, and nobody needs to know how many there are.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import errno
import functools
import json
import operator
import secrets
import select
import threading
import weakref
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import numpy as np

from ._device import Device
from ._lib import MAILBOX_NEWS, Deadline, Error, check, failure, lib
from ._mailbox import Line
from ._memory import Arena
from ._life import uninterrupted
from ._post import Post, Prepared, RemoteAgent, called, payload_of, taken
from ._queue import Queue
from ._registered import Memory, Registration, Registry, There, places_of
from ._remote import Right
from ._wakes import PARTING_S, Loop, Pipe
from ._worker import TICK_S, Worker, wake

VERSION = 1
# Of one region of the arena that lines' messages are in: they are short.
ARENA_BYTES = 4 << 20
BACKLOG = 64
TOKEN_BYTES, NAME_BYTES = 16, 255
# Other agents' lines: of those that have connected, and those that were connected to.
LINES = 1024
# Notifications of one that have come and were not taken: of more it has to wait.
UNTAKEN_MAX = 1024
# How long a line may take to say whose it is.
HELLO_S = 10.0
# Queue pairs by which a post goes at once.
WAYS_MAX = 4
RIGHT_OF = {"write": Right.WRITE, "read": Right.READ}

Found = TypeVar("Found")
# Requests, and functions that say whether it is so far: what comes next is done then.
Steps = Generator[Any, None, Found]


class _Inbox:
    """A line, and whose it is, as soon as that has come."""

    def __init__(self, line: Line, token: str | None = None, name: str = "") -> None:
        self.line = line
        self.token = token
        self.name = name
        self.untaken = 0
        self._until = Deadline(HELLO_S)

    def late(self) -> bool:
        """Should it have come?"""
        return self._until.over


# By the number that the library's function is passed.
_agents: weakref.WeakValueDictionary[int, Agent] = weakref.WeakValueDictionary()


@MAILBOX_NEWS
def _news(number: int, line: int | None, _what: int) -> None:
    agent = _agents.get(number)
    if agent is not None:
        agent._told.append(line)


class Agent:
    """Moves blocks of memory to and from other processes' agents, by addresses.

    dev: the device.
    name: what others know it by, up to 255 bytes; None: one that nobody else has.
    address: under which other nodes reach this one: "192.0.2.1"; None: the device's own.
    entries: how many parts of posts may be on their way at once; others wait for them.
    It knows up to 1,024 lines: agents that have connected to it, and those that it has connected to.

    Any number of threads may use it.  Nothing is done but in calls: of who waits, of progress(), or of an
    event loop in which something is awaited.  close(), which leaving a with block does, waits for
    what is on its way, unless by an exception.

    Raises Error: as Queue and Worker; EADDRNOTAVAIL: the device has no address.
    """

    def __init__(self, dev: Device, name: str | None = None, address: str | None = None,
                 entries: int = 256) -> None:
        self.device = dev
        self.closed = False
        self._token = secrets.token_hex(TOKEN_BYTES)
        self.name = self._token if name is None else name
        if not 0 < len(self.name.encode()) <= NAME_BYTES:
            raise ValueError(f"an agent's name has 1 to {NAME_BYTES} bytes")
        self.address = address or dev.address
        self._registry = Registry(dev, self._token, self._unused)
        self._lock = threading.RLock()
        # Something has: self._moved, which has grown then.
        self._changed = threading.Condition(self._lock)
        self._moved = 0
        self._polling = False
        self._others: dict[str, RemoteAgent] = {}
        self._meeting: set[str] = set()
        self._tellers: set[RemoteAgent] = set()
        self._lines: dict[int, _Inbox] = {}
        self._told: collections.deque[int | None] = collections.deque()
        self._unnamed: collections.deque[_Inbox] = collections.deque()
        self._came: collections.deque[tuple[_Inbox, bytes]] = collections.deque()
        self._waiting: collections.deque[Post] = collections.deque()
        self._finished: collections.deque[Post] = collections.deque()
        self._losses: collections.deque[tuple[str, Error]] = collections.deque()
        self._over: collections.deque[Line] = collections.deque()
        self._lost: list[Callable[[str, Error], Any]] = []
        self._sleepers: set[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = set()
        self._loops: dict[asyncio.AbstractEventLoop, Loop] = {}
        with contextlib.ExitStack() as stack:
            arena = stack.enter_context(Arena(dev, ARENA_BYTES))
            self._worker = stack.enter_context(Worker(dev, arena, entries=LINES))
            self._box = stack.enter_context(self._worker.mailbox(self._token, backlog=BACKLOG))
            self._queue = stack.enter_context(Queue(dev, entries))
            _agents[id(self)] = self
            with self._box._handle as box:
                check(lib.tow_mailbox_watch(box, _news, id(self)), "an agent's mailbox")
            self._pipe = Pipe()
            stack.callback(self._pipe.close)
            self._fds = (self._queue.fileno(), self._worker.fileno())
            self._poll = stack.enter_context(select.epoll())
            # What becomes of peers lines tell.
            for fd, events in zip((*self._fds, self._pipe.fd), (0, select.EPOLLPRI, 0), strict=True):
                self._poll.register(fd, select.EPOLLIN | events)
            self._stack = stack.pop_all()

    # ---- memory ----

    def register(self, *objects: Any) -> Registration:
        """Let other agents reach memory, and send from it.

        objects: NumPy arrays, tensors, and others as towline takes arrays; Regions; or pairs (address, bytes),
        of memory that stays there until the registration is closed.
        A NumPy array that is a part of another one registers all of that, once for all its parts; what lies
        side by side is registered as one.  What is registered already costs nothing.
        Others know of it by metadata() that is asked for afterwards.

        Raises Error: EFAULT: there is no such memory; ENOMEM: also for RLIMIT_MEMLOCK; EDQUOT, ENOSPC.
        """
        self._open()
        return self._registry.add(objects)

    def _unused(self, ended: list[Memory]) -> None:
        """Nothing new goes by what is taken back."""
        with self._lock:
            for other in self._others.values():
                for key in [key for key in other._ways if key[0] in ended]:
                    del other._ways[key]

    # ---- others ----

    def metadata(self) -> bytes:
        """Who this is, and what it has registered: for another agent's connect(), by whatever way.

        Who has it, and is in the same job, reaches that memory.
        """
        self._open()
        return json.dumps({
            "towline": VERSION, "agent": self._token, "name": self.name, "address": self.address,
            "memory": [(one.start, one.end, one.name, int(one.right)) for one in self._registry.listed()],
        }).encode()

    def connect(self, metadata: bytes, timeout: float | None = 30.0) -> RemoteAgent:
        """Another agent, of which metadata() was asked for; again: what it has registered meanwhile.

        timeout: in seconds.
        Raises Error: what Peer() and Mailbox.connect() raise.  ValueError: that is no metadata.
        """
        return self._walk(self._connecting(metadata, timeout))

    async def connected(self, metadata: bytes, timeout: float | None = 30.0) -> RemoteAgent:
        """As connect(), in asyncio."""
        return await self._walked(self._connecting(metadata, timeout))

    def _connecting(self, metadata: bytes, timeout: float | None) -> Steps[RemoteAgent]:
        token, name, address, memory = _parsed(metadata)
        self._open()
        until = Deadline(timeout)
        other = None
        while other is None:
            with self._lock:
                other, meets = self._others.get(token), token in self._meeting
                if other is None and not meets:
                    self._meeting.add(token)
            if other is None and meets:
                # Somebody else connects to it: there is one line.
                yield functools.partial(self._met, token, until)
            elif other is None:
                try:
                    other = yield from self._meet(token, name, address, until)
                finally:
                    with self._lock:
                        self._meeting.discard(token)
                        self._moved += 1
                    self._tell()
        with self._lock:
            other._know(memory)
        return other

    def _met(self, token: str, until: Deadline) -> bool | None:
        """Does nobody connect to it any more?"""
        if token not in self._meeting:
            return True
        if until.over:
            raise failure(-errno.ETIMEDOUT, "an agent")
        return None

    def _meet(self, token: str, name: str, address: str, until: Deadline) -> Steps[RemoteAgent]:
        request = self.device.connect([address], until.seconds)[0]
        yield request
        peer = request.result(0)
        line = self._box._begin(peer, token, until.seconds)
        try:
            yield line._look_open
            yield lambda: line._try(f"{self._token} {self.name}".encode())
        except BaseException:
            line.close()
            peer.close()
            raise
        other = RemoteAgent(token, name, peer, line)
        with self._lock:
            if not self.closed:
                self._others[token] = other
                self._lines[line._handle.pointer or 0] = _Inbox(line, token, name)
                self._told.append(line._handle.pointer)
                self._pipe.fill()
        self._open()
        return other

    def prepare(self, operation: str, other: RemoteAgent, blocks: Any) -> Prepared:
        """Look up where blocks are, here and there, for any number of posts.

        operation: "write", from here to there, or "read", from there to here.
        blocks: an int64 array, or what numpy.asarray() makes one of, of shape (blocks, 3): the address here,
        the address in the other process, bytes.  All of them are registered.
        It keeps what is registered here; what the other one takes back its posts end with ESTALE for.
        Raises Error: ENOENT: the other one has taken it back; as RemoteAgent.error.  ValueError: a block is not
        registered, or may not be used so, or is empty.
        """
        return self._walk(self._preparing(operation, other, blocks))

    async def prepared(self, operation: str, other: RemoteAgent, blocks: Any) -> Prepared:
        """As prepare(), in asyncio."""
        return await self._walked(self._preparing(operation, other, blocks))

    def _preparing(self, operation: str, other: RemoteAgent, blocks: Any) -> Steps[Prepared]:
        right = RIGHT_OF[operation]
        table = np.asarray(blocks, np.int64)
        if table.ndim != 2 or table.shape[1] != 3 or not len(table):
            raise ValueError(f"blocks are of shape {table.shape}, not (any, 3)")
        self._open()
        other._usable()
        mine, theirs = self._registry.listed(), other._memory
        here, there, nbytes = (np.ascontiguousarray(column) for column in table.T)
        # What is read is written here.
        places = places_of(mine, here, nbytes, Right.WRITE if right == Right.READ else Right(0), "here")
        remotes = places_of(theirs, there, nbytes, right, "there")
        pairs = places * len(theirs) + remotes
        used = np.unique(pairs).tolist()
        names = {(theirs[pair % len(theirs)].name, right) for pair in used} - other._remotes.keys()
        # It has said that it has them: there is nothing to wait for.
        requests = self.device.resolve([(other._peer, *name) for name in names], 0)
        for name, request in zip(names, requests, strict=True):
            yield request
            other._usable()
            with self._lock:
                other._remotes.setdefault(name, request.result(0))
        parts = []
        for pair in used:
            memory, found = mine[pair // len(theirs)], theirs[pair % len(theirs)]
            numbers = np.flatnonzero(pairs == pair)
            other._usable()
            # It may have told anew what it has, meanwhile.
            remote = other._remotes.get((found.name, right))
            if remote is None:
                raise failure(-errno.ENOENT, f"memory of {other.name}")
            ways = other._ways.get((memory, remote))
            if ways is None:
                # In no order among each other: what is told is told when all have ended.  Without the lock, as
                # the kernel may have to connect first.
                count = max(1, min(WAYS_MAX, other._peer.report().qps))
                ways = [self._queue.transfer(memory.place, remote, qp) for qp in range(count)]
                with self._lock:
                    other._usable()
                    if remote in other._remotes.values():
                        other._ways[memory, remote] = ways
            parts.append((ways, numbers, here[numbers] - memory.base, there[numbers] - found.start,
                          nbytes[numbers]))
        return Prepared(self, other, right == Right.WRITE, len(table), parts)

    def notify(self, other: RemoteAgent, payload: bytes) -> Post:
        """Tell another agent something, of 1 to 2,016 bytes, after what it was told before."""
        post = Post(self, other, collections.deque(), payload_of(payload))
        self._post(post)
        return post

    def on_peer_lost(self, function: Callable[[str, Error], Any]) -> None:
        """Have a function called with the name of an agent that is lost, and why, by whoever finds that.

        ESTALE: its process has ended, or it was closed; ECONNRESET: its node is lost.  Also of agents that
        have connected to this one.  What was on its way to it ends with an error; it may come back as a new one.
        What the function raises is logged, and no matter, as with posts' callbacks.
        """
        self._lost.append(function)

    # ---- what comes ----

    def notifications(self) -> list[tuple[str, bytes]]:
        """What has come, and was not taken so far: who has sent it, and the payload; does not wait."""
        self.progress()
        came = []
        while (one := self._next()) is not None:
            came.append(one)
        return came

    def recv(self, timeout: float | None = None) -> tuple[str, bytes]:
        """The next notification: who has sent it, and the payload.

        timeout: in seconds.  Raises Timeout.
        """
        self._open()
        return self._wait(self._next, timeout, "a notification")

    async def receive(self) -> tuple[str, bytes]:
        """As recv(), in asyncio."""
        self._open()
        return await self._until(self._next)

    def _next(self) -> tuple[str, bytes] | None:
        with self._lock:
            if not self._came:
                return None
            inbox, message = self._came.popleft()
            inbox.untaken -= 1
            if inbox.untaken == UNTAKEN_MAX - 1 and not self.closed:
                # There may be more in the line.
                self._told.append(inbox.line._handle.pointer)
                self._pipe.fill()
            return inbox.name, message

    # ---- going on ----

    def fileno(self) -> int:
        """For select and poll: to be read from, progress() has something to do.

        Afterwards all is to be asked for that may have come: notifications() and posts' done().
        """
        return self._poll.fileno()

    def progress(self, timeout: float | None = 0) -> None:
        """See to what has come and what has ended; wait for something, in seconds, if there is nothing."""
        self._progress(timeout, self._moved)

    def _progress(self, timeout: float | None, seen: int) -> None:
        """Until something has happened since @seen was self._moved."""
        until = Deadline(timeout)
        while True:
            self._go_on()
            polls = False
            try:
                with self._lock:
                    self._open()
                    # Who changes it has the lock, and wakes others afterwards.
                    if self._moved != seen or until.over:
                        return
                    # One thread waits for the descriptors, others for it.
                    if self._polling:
                        self._changed.wait(min(until.left, TICK_S))
                        continue
                    self._polling = polls = True
                self._poll.poll(min(until.left, TICK_S))
            finally:
                if polls:
                    with self._lock:
                        self._polling = False
                        self._changed.notify_all()

    def _open(self) -> None:
        self._queue._handle.claim()
        if self.closed:
            raise ValueError("it is closed")

    def _go_on(self) -> None:
        self._open()
        before = self._moved
        try:
            with uninterrupted():
                self._queue.progress(0)
                self._worker.progress(0)
                with self._lock:
                    self._open()
                    self._pipe.empty()
                    self._look()
        finally:
            if self._moved != before:
                self._tell()

    def _look(self) -> None:
        """What has happened to lines, who was told, and what there is room for."""
        while self._told:
            self._look_at(self._told.popleft())
            self._moved += 1
        while self._unnamed and (self._unnamed[0].token or self._unnamed[0].late()):
            inbox = self._unnamed.popleft()
            if not inbox.token:
                self._lose(inbox, failure(-errno.ETIMEDOUT, "an agent"))
        for other in list(self._tellers):
            self._look_whether_told(other)
        while self._waiting and self._waiting[0]._begin():
            self._waiting.popleft()
            self._moved += 1

    def _tell(self) -> None:
        """Something has happened: call what is to be called, without the lock, and wake who waits."""
        try:
            for line in taken(self._over):
                line.close()
            for post in taken(self._finished):
                for function in taken(post._callbacks):
                    called(function, post)
            for loss in taken(self._losses):
                for lost in list(self._lost):
                    called(lost, *loss)
        finally:
            with self._lock:
                self._changed.notify_all()
                sleepers = list(self._sleepers)
                # Also if a line that was closed has brought news.
                if (self._polling or self._told) and not self.closed:
                    self._pipe.fill()
            for sleeper in sleepers:
                wake(*sleeper)

    def _look_at(self, pointer: int | None) -> None:
        """Something has happened to a line; None: there is one to accept."""
        if pointer is None:
            while (line := self._box._accept()) is not None:
                inbox = _Inbox(line)
                self._lines[line._handle.pointer or 0] = inbox
                self._unnamed.append(inbox)
                self._told.append(line._handle.pointer)
            return
        if pointer not in self._lines:
            return
        inbox = self._lines[pointer]
        try:
            # What is not taken here stays in the line, and who sends finds no room there.
            while inbox.untaken < UNTAKEN_MAX and (message := inbox.line.test()) is not None:
                if inbox.token is None:
                    inbox.token, inbox.name = _hello(message)
                else:
                    inbox.untaken += 1
                    self._came.append((inbox, message))
            other = self._others.get(inbox.token or "")
            if other is not None and other._line is inbox.line:
                self._send(other)
        except Error as error:
            self._lose(inbox, error)
        except ValueError:
            self._lose(inbox, failure(-errno.EPROTO, "an agent"))

    def _send(self, other: RemoteAgent) -> None:
        """What it is to be told, as far as there is room."""
        if other.error:
            self._not_told(other, other.error)
            return
        try:
            while other._outgoing:
                message, post = other._outgoing[0]
                if other._line._try(message) is None:
                    return
                other._outgoing.popleft()
                other._telling.append((other._line._info().sent, post))
                self._tellers.add(other)
        except Error as error:
            inbox = self._lines.get(other._line._handle.pointer or 0)
            if inbox is not None and inbox.line is other._line:
                self._lose(inbox, error)
            self._not_told(other, error)

    def _look_whether_told(self, other: RemoteAgent) -> None:
        there = other._line._info().there
        while other._telling and other._telling[0][0] <= there:
            other._telling.popleft()[1]._end(None)
        if not other._telling:
            self._tellers.discard(other)

    def _not_told(self, other: RemoteAgent, error: Error) -> None:
        for _, post in (*taken(other._telling), *taken(other._outgoing)):
            post._end(error)
        self._tellers.discard(other)

    def _lose(self, inbox: _Inbox, error: Error) -> None:
        """A line has ended.  Whose it is is lost if it has no other one."""
        if self._lines.pop(inbox.line._handle.pointer or 0, None) is None:
            return
        self._over.append(inbox.line)
        other = self._others.get(inbox.token or "")
        if other is not None and other._line is inbox.line:
            del self._others[other._token]
            # What came there in time did.
            self._look_whether_told(other)
            other.error = error
            self._not_told(other, error)
            other._forget()
        if inbox.token and not any(one.token == inbox.token for one in self._lines.values()):
            self._losses.append((inbox.name, error))

    def _post(self, post: Post) -> None:
        self._open()
        with uninterrupted(), self._lock:
            self._open()
            if post._other.error:
                raise post._other.error
            if self._waiting or not post._begin():
                self._waiting.append(post)
        if self._finished or self._over:
            self._tell()

    # ---- waiting ----

    def _wait(self, look: Callable[[], Found | None], timeout: float | None, what: str) -> Found:
        until = Deadline(timeout)
        while True:
            seen = self._moved
            found = look()
            if found is not None:
                return found
            over = until.over
            try:
                self._progress(until.left, seen)
            except ValueError:
                # It was closed meanwhile, which has ended what there was.
                if (found := look()) is None:
                    raise
                return found
            if over:
                if (found := look()) is None:
                    raise failure(-errno.ETIMEDOUT, what)
                return found

    async def _until(self, look: Callable[[], Found | None]) -> Found:
        found = look()
        if found is not None:
            return found
        self._open()
        loop = asyncio.get_running_loop()
        with self._loops.setdefault(loop, Loop(self, loop)):
            while True:
                sleeper = (loop, loop.create_future())
                self._sleepers.add(sleeper)
                try:
                    # First: what comes while this looks wakes it.
                    found = look()
                    if found is None:
                        self.progress()
                        found = look()
                    if found is not None:
                        return found
                    await sleeper[1]
                finally:
                    self._sleepers.discard(sleeper)

    def _walk(self, steps: Steps[Found]) -> Found:
        try:
            while True:
                step = next(steps)
                if callable(step):
                    self._wait(step, None, "an agent")
                else:
                    step.exception()
        except StopIteration as end:
            return end.value    # type: ignore[no-any-return]
        finally:
            steps.close()

    async def _walked(self, steps: Steps[Found]) -> Found:
        try:
            while True:
                step = next(steps)
                if callable(step):
                    await self._until(step)
                else:
                    with contextlib.suppress(Error):
                        await step
        except StopIteration as end:
            return end.value    # type: ignore[no-any-return]
        finally:
            steps.close()

    # ---- the end ----

    def close(self) -> None:
        """Wait for what is on its way, take back what is registered, and leave."""
        self.__exit__()

    def __enter__(self) -> Agent:
        self._open()
        return self

    def __exit__(self, *error: Any) -> None:
        if self.closed or not self._queue._handle.ours:
            return
        error = error or (None, None, None)
        # Unless the device is gone.
        with contextlib.suppress(Error):
            try:
                if error[0] is None:
                    self._finish()
            except ValueError:
                # Another thread has closed it.
                if not self.closed:
                    raise
        with self._lock:
            if self.closed:
                return
            self.closed = True
        # The last one first.
        stack = contextlib.ExitStack()
        stack.push(self._stack)
        for step in (self._registry.close, self._tell, self._cancel):
            stack.callback(step)
        stack.push(self._queue)
        stack.callback(self._nobody_waits)
        stack.__exit__(*error)

    def _finish(self) -> None:
        """Until what is on its way has ended, and others have been told what there is room for."""
        while True:
            seen = self._moved
            if not self._waiting and not self._queue.in_flight:
                break
            self._progress(None, seen)
        until = Deadline(PARTING_S)
        while not until.over:
            seen = self._moved
            with self._lock:
                if not self._tellers and not any(other._outgoing for other in self._others.values()):
                    break
            self._progress(until.left, seen)

    def _nobody_waits(self) -> None:
        """Before descriptors are closed: no thread, nor any loop, looks at them any more."""
        for one in list(self._loops.values()):
            one.end()
        with self._lock:
            while self._polling:
                self._pipe.fill()
                self._changed.wait(TICK_S)

    def _cancel(self) -> None:
        """What has not ended is cancelled."""
        canceled = failure(-errno.ECANCELED, "an agent was closed")
        with self._lock:
            for post in taken(self._waiting):
                post._todo.clear()
                post._error = post._error or canceled
                post._see()
            for other in self._others.values():
                other.error = canceled
                self._not_told(other, canceled)
                other._forget()


def _hello(message: bytes) -> tuple[str, str]:
    """Token and name of who begins a line.  ValueError: that is none."""
    token, name = message.decode().split(" ", 1)
    if len(token) != 2 * TOKEN_BYTES or not 0 < len(name.encode()) <= NAME_BYTES:
        raise ValueError("a hello of another kind")
    return token, name


def _parsed(metadata: bytes) -> tuple[str, str, str, list[There]]:
    """What metadata() says, sorted.  ValueError: it is something else."""
    try:
        said = json.loads(metadata)
        token, name, address = (str(said[key]) for key in ("agent", "name", "address"))
        if said["towline"] != VERSION or _hello(f"{token} {name}".encode()) != (token, name):
            raise ValueError
        memory = [There(operator.index(start), operator.index(end), str(export), Right(right))
                  for start, end, export, right in said["memory"]]
        if any(not 0 < one.start < one.end < 1 << 63 for one in memory):
            raise ValueError
    except (KeyError, RecursionError, TypeError, ValueError) as error:
        raise ValueError("that is no metadata of an agent's, or of another version's") from error
    return token, name, address, sorted(memory)
