# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""Agents: memory by its address, and many blocks of it to and from other processes, which come and go.

What an agent has registered others reach by the addresses that it has there.  Nothing has a name that
somebody must think of, and nobody needs to know how many there are.
"""

from __future__ import annotations

import asyncio
import bisect
import collections
import concurrent.futures
import contextlib
import ctypes
import errno
import functools
import ipaddress
import itertools
import json
import operator
import os
import secrets
import select
import threading
import weakref
from typing import (Any, NamedTuple, TypeVar)
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

import numpy as np

from ._device import Device, Peer
from ._lib import MAILBOX_NEWS, MESSAGE_MAX, Deadline, Error, check, failure, lib
from ._life import Handle, Object
from ._mailbox import Line
from ._memory import Arena, Region
from ._queue import VECTOR_MAX, Queue
from ._remote import Remote, Right
from ._types import Array, address_of, whole
from ._worker import TICK_S, Worker, wake

VERSION = 1
LINKS = "/sys/class/infiniband"
# Of one region of the arena that lines' messages are in: they are short.
ARENA_BYTES = 4 << 20
BACKLOG = 64
TOKEN_BYTES, NAME_BYTES = 16, 255
# Notifications that have come and were not taken: of more who sends them has to wait.
CAME_MAX = 65536
RIGHT_OF = {"write": Right.WRITE, "read": Right.READ}

Found = TypeVar("Found")
# Requests, and functions that say whether it is so far: what comes next is done then.
Steps = Generator[Any, None, Found]


def _own_address(dev: Device) -> str:
    """By which other nodes reach this one: the best GID of the device's ports that is an address."""
    found: list[tuple[int, str]] = []
    for ports in sorted(os.scandir(f"{LINKS}/{dev.name}/ports"), key=lambda one: one.name):
        for file in os.listdir(f"{ports.path}/gids"):
            with contextlib.suppress(OSError), open(f"{ports.path}/gids/{file}", encoding="ascii") as gid, \
                    open(f"{ports.path}/gid_attrs/ndevs/{file}", encoding="ascii") as ndev:
                at, interface = ipaddress.IPv6Address(gid.read().strip()), ndev.read().strip()
                if at.is_unspecified or not interface:
                    continue
                if at.ipv4_mapped:
                    found.append((0, str(at.ipv4_mapped)))
                else:
                    found.append((2, f"{at}%{interface}") if at.is_link_local else (1, str(at)))
    if not found:
        raise failure(-errno.EADDRNOTAVAIL, f"the address of {dev.name}")
    return min(found)[1]


class _Range(NamedTuple):
    """Memory from an address up to another one."""
    start: int
    end: int
    writable: bool
    kept: Any


class _Place(Object):
    """What stands for a region: entries name it by what the library's object begins with.

    So nothing here points to that object, which may end with memory that nobody has kept.
    """

    def __init__(self, dev: Device, region: int, parent: Handle, kept: Any) -> None:
        said = ctypes.c_uint64.from_buffer_copy(ctypes.string_at(region, 8))
        self._own(Handle(ctypes.addressof(said), lambda _: None, parent, kept=(said, kept)))
        self.device = dev


class _There(NamedTuple):
    """What another agent has registered."""
    start: int
    end: int
    name: str
    right: Right


class _Memory(Object):
    """A range that is registered: what stands for its region, and its export."""

    def __init__(self, dev: Device, name: str, wanted: _Range, region: Region | None) -> None:
        """region: made for it; None: it is in one that the library knows."""
        self.start, self.end, self.name = wanted.start, wanted.end, name
        self.right = Right.READ | Right.WRITE if wanted.writable else Right.READ
        self.users = 0
        self._region = region
        exported, found, offset = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
        with dev._handle as pointer, (region or dev)._handle as made:
            if region:
                found.value = made
            else:
                room = ctypes.c_uint64()
                check(lib.tow_region_find(pointer, self.start, found, offset, room), "memory of a region")
                if room.value < self.end - self.start:
                    raise ValueError("a part of it is in a region, and a part is not")
            check(lib.tow_export(found, offset.value, self.end - self.start, name.encode(), self.right,
                                 exported), "registering memory")
            self.place = _Place(dev, found.value or 0, (region or dev)._handle, wanted.kept)
            self._own(Handle(exported.value, lib.tow_unexport, self.place._handle))
        # Where the region begins: offsets are from there on.
        self.base = self.start - offset.value

    def close(self) -> None:
        """Nobody reaches it any more."""
        super().close()
        self.place.close()
        if self._region is not None:
            self._region.close()


class Registration:
    """What Agent.register() has registered: a context manager; close() takes it back.

    What several have registered ends with the last of them.  close() waits until no other process can
    reach it.
    """

    def __init__(self, agent: Agent, memory: list[_Memory], kept: Any) -> None:
        self._agent = agent
        self._memory = memory
        self._kept = kept

    def close(self) -> None:
        """Take it back."""
        memory, self._memory = self._memory, []
        self._agent._give_back(memory)
        self._kept = None

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


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
        self._memory: list[_There] = []
        self._remotes: dict[tuple[str, Right], Remote] = {}
        self._ways: dict[tuple[_Memory, Remote], Any] = {}
        self._outgoing: collections.deque[tuple[bytes, Post]] = collections.deque()

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
        self._callbacks: list[Callable[[Post], Any]] = []

    # ---- what the agent does, with its lock ----

    def _begin(self) -> bool:
        """What there is room for.  False: there is more."""
        while self._todo and not self._error:
            try:
                request = self._todo[0]()
            except Error as error:
                if error.errno == errno.EBUSY:
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
        """When all blocks are in place it is told; when that is on its way it has ended."""
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
        with self._agent._lock:
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

        When it has, writes are in place and the notification is on its way behind them.
        Raises Error: what it has ended with: ECONNRESET, ESTALE: the other one is lost, or has taken its
        memory back.  CancelledError.  Timeout: it goes on.
        """
        error = self.exception(timeout)
        if error:
            raise error

    def add_done_callback(self, function: Callable[[Post], Any]) -> None:
        """Have a function called with it when it has ended, by whoever finds that; or at once."""
        with self._agent._lock:
            if not self._done:
                self._callbacks.append(function)
                return
        function(self)

    def __await__(self) -> Any:
        return self._awaited().__await__()

    async def _awaited(self) -> None:
        await self._agent._until(self._is_done)
        self.result(0)


class Prepared:
    """Blocks whose places were looked up: Agent.prepare()."""

    def __init__(self, agent: Agent, other: RemoteAgent, write: bool, count: int,
                 parts: list[tuple[Any, Array, Array, Array, Array]]) -> None:
        """parts: a way, and of its blocks their numbers, offsets here, offsets there, and bytes."""
        self._agent = agent
        self._other = other
        self._write = write
        self._count = count
        self._parts = parts

    def __len__(self) -> int:
        return self._count

    def post(self, which: Any | None = None, notify: bytes | None = None,
             timeout: float | None = None) -> Post:
        """Begin: as often as one likes.

        which: numbers of the blocks that are meant, an array of integers; None: all.
        notify: 1 to 2,016 bytes that the other agent is told when all of them are in place; None: nothing.
        timeout: of each part, in seconds, after which it is given up.
        Raises Error: ECONNRESET, ESTALE: the other one is lost.  ValueError: notify is too long;
        IndexError: there is no such block.
        """
        told = None if notify is None else _payload(notify)
        if which is not None:
            chosen = np.zeros(self._count, bool)
            chosen[which] = True
        todo: collections.deque[Callable[[], Any]] = collections.deque()
        for way, numbers, here, there, nbytes in self._parts:
            begin = way.write_blocks if self._write else way.read_blocks
            if which is not None:
                some = chosen[numbers]
                here, there, nbytes = here[some], there[some], nbytes[some]
            for first in range(0, len(here), VECTOR_MAX):
                last = first + VECTOR_MAX
                todo.append(functools.partial(begin, here[first:last], there[first:last], nbytes[first:last],
                                              timeout))
        post = Post(self._agent, self._other, todo, told)
        self._agent._post(post)
        return post


class _Loop:
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
        for fd in self._fds:
            self._loop.remove_reader(fd)
        self._fds = ()
        if self._timer:
            self._timer.cancel()

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


class _Inbox:
    """A line, and whose it is, as soon as that has come."""

    def __init__(self, line: Line, token: str | None = None, name: str = "") -> None:
        self.line = line
        self.token = token
        self.name = name


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
        self.address = address or _own_address(dev)
        # What is registered; taken before the other one.
        self._registering = threading.RLock()
        self._memory: list[_Memory] = []
        self._numbers = itertools.count()
        self._lock = threading.RLock()
        self._moved = 0
        self._others: dict[str, RemoteAgent] = {}
        self._lines: dict[int, _Inbox] = {}
        self._told: collections.deque[int | None] = collections.deque()
        self._came: collections.deque[tuple[str, bytes]] = collections.deque()
        self._waiting: collections.deque[Post] = collections.deque()
        self._finished: collections.deque[Post] = collections.deque()
        self._losses: collections.deque[tuple[str, Error]] = collections.deque()
        self._over: collections.deque[Line] = collections.deque()
        self._lost: list[Callable[[str, Error], Any]] = []
        self._sleeping = 0
        self._sleepers: set[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = set()
        self._loops: dict[asyncio.AbstractEventLoop, _Loop] = {}
        with contextlib.ExitStack() as stack:
            arena = stack.enter_context(Arena(dev, ARENA_BYTES))
            self._worker = stack.enter_context(Worker(dev, arena))
            self._box = stack.enter_context(self._worker.mailbox(self._token, backlog=BACKLOG))
            self._queue = stack.enter_context(Queue(dev, entries))
            _agents[id(self)] = self
            with self._box._handle as box:
                check(lib.tow_mailbox_watch(box, _news, id(self)), "an agent's mailbox")
            # Wakes threads that sleep, one for each byte.
            self._wakes, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            for fd in (self._wakes, self._wake):
                stack.callback(os.close, fd)
            self._fds = (self._queue.fileno(), self._worker.fileno())
            self._poll = stack.enter_context(select.epoll())
            for fd in (*self._fds, self._wakes):
                self._poll.register(fd, select.EPOLLIN | select.EPOLLPRI)
            self._stack = stack.pop_all()

    # ---- memory ----

    def register(self, *objects: Any) -> Registration:
        """Let other agents reach memory, and send from it.

        objects: NumPy arrays, tensors, and others as towline takes arrays; Regions; or pairs (address, bytes),
        of memory that stays there until the registration is closed.
        An array that is a part of another one registers all of that, once for all its parts; what lies
        side by side is registered as one, whole pages.  What is registered already costs nothing.
        Others know of it by metadata() that is asked for afterwards.

        Raises Error: EFAULT: there is no such memory; ENOMEM: also for RLIMIT_MEMLOCK; EDQUOT, ENOSPC.
        """
        self._open()
        wanted = [_range_of(one) for one in objects]
        with self._registering:
            made: list[_Memory] = []
            try:
                for one in self._merged([one for one in wanted if not self._covering(one)]):
                    made.append(self._make(one))
            except BaseException:
                for memory in made:
                    self._memory.remove(memory)
                    memory.close()
                raise
            used = {memory for memory in map(self._covering, wanted) if memory}
            for memory in used:
                memory.users += 1
            return Registration(self, list(used), objects)

    def _covering(self, wanted: _Range) -> _Memory | None:
        """What is registered and has all of it."""
        last = bisect.bisect_right(self._memory, wanted.start, key=_start)
        for one in reversed(self._memory[:last]):
            if one.end >= wanted.end and (Right.WRITE in one.right or not wanted.writable):
                return one
        return None

    def _merged(self, wanted: list[_Range]) -> Iterable[_Range]:
        """What overlaps, or whose pages touch, as one; what is in a region stays alone."""
        page, run = os.sysconf("SC_PAGE_SIZE"), None
        for one in sorted(wanted, key=lambda one: one[:2]):
            if run and run.writable == one.writable and one.start // page <= (run.end - 1) // page + 1 and (
                    one.end <= run.end or not self._in_region(run) and not self._in_region(one)):
                run = run._replace(end=max(run.end, one.end), kept=(run.kept, one.kept))
                continue
            if run:
                yield run
            run = one
        if run:
            yield run

    def _in_region(self, wanted: _Range) -> bool:
        found, offset = ctypes.c_void_p(), ctypes.c_uint64()
        with self.device._handle as pointer:
            return not lib.tow_region_find(pointer, wanted.start, found, offset, None)

    def _make(self, wanted: _Range) -> _Memory:
        region = None
        if not self._in_region(wanted):
            memory = (ctypes.c_uint8 * (wanted.end - wanted.start)).from_address(wanted.start)
            region = Region.from_memory(self.device, memory, readonly=not wanted.writable)
        try:
            made = _Memory(self.device, f"{self._token}.{next(self._numbers)}", wanted, region)
        except BaseException:
            if region:
                region.close()
            raise
        bisect.insort(self._memory, made, key=_start)
        return made

    def _give_back(self, memory: list[_Memory]) -> None:
        with self._registering:
            for one in memory:
                one.users -= 1
            ended = [one for one in memory if not one.users]
            for one in ended:
                self._memory.remove(one)
            with self._lock:
                for other in self._others.values():
                    for key in [key for key in other._ways if key[0] in ended]:
                        del other._ways[key]
        for one in ended:
            one.close()

    # ---- others ----

    def metadata(self) -> bytes:
        """Who this is, and what it has registered: for another agent's connect(), by whatever way.

        Who has it, and is in the same job, reaches that memory.
        """
        self._open()
        with self._registering:
            return json.dumps({
                "towline": VERSION, "agent": self._token, "name": self.name, "address": self.address,
                "memory": [(one.start, one.end, one.name, int(one.right)) for one in self._memory],
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
        until = Deadline(timeout)
        other = self._others.get(token)
        if other is None:
            request = self.device.connect([address], timeout)[0]
            yield request
            peer = request.result(0)
            line = self._box._begin(peer, token, None if timeout is None else until.left)
            try:
                yield line._look_open
                yield lambda: line._try(f"{self._token} {self.name}".encode())
            except BaseException:
                line.close()
                raise
            with self._lock:
                other = self._others.setdefault(token, RemoteAgent(token, name, peer, line))
                if other._line is line:
                    self._lines[line._handle.pointer or 0] = _Inbox(line, token, name)
                    self._told.append(line._handle.pointer)
                else:
                    # Another thread has connected meanwhile.
                    self._over.append(line)
        with self._lock:
            other._memory = memory
        return other

    def prepare(self, operation: str, other: RemoteAgent, blocks: Any,
                timeout: float | None = 30.0) -> Prepared:
        """Look up where blocks are, here and there, for any number of posts.

        operation: "write", from here to there, or "read", from there to here.
        blocks: an int64 array, or what numpy.asarray() makes one of, of shape (blocks, 3): the address here,
        the address in the other process, bytes.  All of them are registered.
        timeout: in seconds.
        It keeps what is registered here; what the other one takes back its posts end with ESTALE for.
        Raises Error: ENOENT: the other one has taken it back; as RemoteAgent.error.  ValueError: a block is not
        registered, or may not be written, or is empty.
        """
        return self._walk(self._preparing(operation, other, blocks, timeout))

    async def prepared(self, operation: str, other: RemoteAgent, blocks: Any,
                       timeout: float | None = 30.0) -> Prepared:
        """As prepare(), in asyncio."""
        return await self._walked(self._preparing(operation, other, blocks, timeout))

    def _preparing(self, operation: str, other: RemoteAgent, blocks: Any,
                   timeout: float | None) -> Steps[Prepared]:
        right = RIGHT_OF[operation]
        table = np.asarray(blocks, np.int64)
        if table.ndim != 2 or table.shape[1] != 3 or not len(table):
            raise ValueError(f"blocks are of shape {table.shape}, not (any, 3)")
        if other.error:
            raise other.error
        with self._registering:
            mine = list(self._memory)
        theirs = other._memory
        here, there, nbytes = (np.ascontiguousarray(column) for column in table.T)
        # What is read is written here.
        places = _places(mine, here, nbytes, Right.WRITE if right == Right.READ else Right(0), "here")
        remotes = _places(theirs, there, nbytes, right, "there")
        pairs = places * len(theirs) + remotes
        used = np.unique(pairs).tolist()
        names = {(theirs[pair % len(theirs)].name, right) for pair in used} - other._remotes.keys()
        requests = self.device.resolve([(other._peer, *name) for name in names], timeout)
        for name, request in zip(names, requests, strict=False):
            yield request
            other._remotes.setdefault(name, request.result(0))
        parts = []
        for pair in used:
            memory, found = mine[pair // len(theirs)], theirs[pair % len(theirs)]
            numbers = np.flatnonzero(pairs == pair)
            with self._lock:
                remote = other._remotes[found.name, right]
                way = other._ways.get((memory, remote))
                if way is None:
                    way = self._queue.transfer(memory.place, remote)
                    other._ways[memory, remote] = way
            parts.append((way, numbers, here[numbers] - memory.base, there[numbers] - found.start,
                          nbytes[numbers]))
        return Prepared(self, other, right == Right.WRITE, len(table), parts)

    def notify(self, other: RemoteAgent, payload: bytes) -> Post:
        """Tell another agent something, of 1 to 2,016 bytes, after what it was told before."""
        post = Post(self, other, collections.deque(), _payload(payload))
        self._post(post)
        return post

    def on_peer_lost(self, function: Callable[[str, Error], Any]) -> None:
        """Have a function called with the name of an agent that is lost, and why, by whoever finds that.

        ESTALE: its process has ended, or it was closed; ECONNRESET: its node is lost.  Also of agents that
        have connected to this one.  What was on its way to it ends with an error; it may come back as a new one.
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
        return self._wait(self._next, timeout, "a notification")

    async def receive(self) -> tuple[str, bytes]:
        """As recv(), in asyncio."""
        return await self._until(self._next)

    def _next(self) -> tuple[str, bytes] | None:
        with contextlib.suppress(IndexError):
            return self._came.popleft()
        return None

    # ---- going on ----

    def fileno(self) -> int:
        """For select and poll: to be read from, progress() has something to do."""
        return self._poll.fileno()

    def progress(self, timeout: float | None = 0) -> None:
        """See to what has come and what has ended; wait for something, in seconds, if there is nothing."""
        until = Deadline(timeout)
        while not self._go_on() and not until.over:
            with self._lock:
                self._sleeping += 1
            try:
                self._poll.poll(min(until.left, TICK_S))
            finally:
                with self._lock:
                    self._sleeping -= 1
            with contextlib.suppress(BlockingIOError):
                os.read(self._wakes, 1)

    def _open(self) -> None:
        if self.closed:
            raise ValueError("it is closed")

    def _go_on(self) -> bool:
        """Has anything happened?"""
        self._open()
        before = self._moved
        self._queue.progress(0)
        self._worker.progress(0)
        with self._lock:
            for _ in range(len(self._told)):
                if len(self._came) >= CAME_MAX:
                    break
                self._look_at(self._told.popleft())
                self._moved += 1
            while self._waiting and self._waiting[0]._begin():
                self._waiting.popleft()
                self._moved += 1
        self._tell()
        return self._moved != before

    def _tell(self) -> None:
        """Call what is to be called, without the lock, and wake who sleeps."""
        for line in _taken(self._over):
            line.close()
        for post in _taken(self._finished):
            for function in post._callbacks:
                function(post)
        for loss in _taken(self._losses):
            for lost in list(self._lost):
                lost(*loss)
        with self._lock:
            sleepers, count = list(self._sleepers), self._sleeping
        for sleeper in sleepers:
            wake(*sleeper)
        if count:
            with contextlib.suppress(BlockingIOError):
                os.write(self._wake, bytes(count))

    def _look_at(self, pointer: int | None) -> None:
        """Something has happened to a line; None: there is one to accept."""
        if pointer is None:
            while (line := self._box._accept()) is not None:
                self._lines[line._handle.pointer or 0] = _Inbox(line)
                self._told.append(line._handle.pointer)
            return
        inbox = self._lines.get(pointer)
        if inbox is None:
            return
        try:
            while len(self._came) < CAME_MAX and (message := inbox.line.test()) is not None:
                if inbox.token is None:
                    inbox.token, inbox.name = _hello(message)
                else:
                    self._came.append((inbox.name, message))
            if len(self._came) >= CAME_MAX:
                self._told.append(pointer)
            other = self._others.get(inbox.token or "")
            if other is not None and other._line is inbox.line:
                self._send(other)
        except Error as error:
            self._lose(pointer, error)
        except ValueError:
            self._lose(pointer, failure(-errno.EPROTO, "an agent"))

    def _send(self, other: RemoteAgent) -> None:
        """What it is to be told, as far as there is room."""
        try:
            while other._outgoing:
                message, post = other._outgoing[0]
                if other.error:
                    raise other.error
                if other._line._try(message) is None:
                    return
                other._outgoing.popleft()
                post._end(None)
        except Error as error:
            self._lose(other._line._handle.pointer or 0, error)
            while other._outgoing:
                other._outgoing.popleft()[1]._end(error)

    def _lose(self, pointer: int, error: Error) -> None:
        inbox = self._lines.get(pointer)
        if inbox is None:
            return
        for at in [at for at, one in self._lines.items() if one is inbox or one.token and one.token == inbox.token]:
            self._over.append(self._lines.pop(at).line)
        other = self._others.pop(inbox.token or "", None)
        if other is not None:
            other.error = error
            self._send(other)
            other._forget()
        if inbox.token is not None:
            self._losses.append((inbox.name, error))

    def _post(self, post: Post) -> None:
        self._open()
        with self._lock:
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
            found = look()
            if found is not None:
                return found
            over = until.over
            self.progress(until.left)
            if over and (found := look()) is None:
                raise failure(-errno.ETIMEDOUT, what)

    async def _until(self, look: Callable[[], Found | None]) -> Found:
        loop = asyncio.get_running_loop()
        with self._loops.setdefault(loop, _Loop(self, loop)):
            while True:
                found = look()
                if found is not None:
                    return found
                sleeper = (loop, loop.create_future())
                self._sleepers.add(sleeper)
                try:
                    # First: what comes while this looks wakes it.
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
        if self.closed:
            return
        error = error or (None, None, None)
        if error[0] is None and self._queue._handle.ours:
            while self._waiting or self._queue.in_flight:
                self.progress(None)
        with self._lock:
            self.closed = True
            waiting, self._waiting = self._waiting, collections.deque()
            for post in waiting:
                post._todo.clear()
                post._error = post._error or failure(-errno.ECANCELED, "blocks")
                post._see()
        self._queue.__exit__(*error)
        with self._lock:
            canceled = failure(-errno.ECANCELED, "a notification")
            for other in self._others.values():
                other.error = canceled
                while other._outgoing:
                    other._outgoing.popleft()[1]._end(canceled)
                other._forget()
        self._tell()
        with self._registering:
            memory, self._memory = self._memory, []
        for one in memory:
            one.close()
        self._stack.__exit__(*error)


def _start(memory: _Memory) -> int:
    return memory.start


def _taken(queue: collections.deque[Found]) -> Iterator[Found]:
    with contextlib.suppress(IndexError):
        while True:
            yield queue.popleft()


def _range_of(one: Any) -> _Range:
    """What an object of register() is."""
    if isinstance(one, Region):
        if not one._address:
            raise ValueError("another device's memory has no address")
        return _Range(one._address, one._address + one.nbytes, not one.readonly, one._handle)
    if isinstance(one, tuple):
        address, nbytes = (operator.index(number) for number in one)
        if address <= 0 or nbytes <= 0 or address + nbytes >= 1 << 63:
            raise ValueError(f"{nbytes} bytes at {address:#x} are no memory")
        return _Range(address, address + nbytes, True, None)
    array = root = whole(one, "memory")
    while isinstance(root.base, np.ndarray) and root.base.flags.c_contiguous and \
            root.base.flags.writeable == array.flags.writeable:
        root = root.base
    if not root.nbytes:
        raise ValueError("memory is empty")
    return _Range(address_of(root), address_of(root) + root.nbytes, array.flags.writeable, array)


def _places(memory: Sequence[_Memory | _There], addresses: Array, nbytes: Array, right: Right,
            where: str) -> Array:
    """In which of them each block is; they are in the order of their begins."""
    starts, ends = (np.array([getattr(one, end) for one in memory] or [0], np.int64) for end in ("start", "end"))
    may = np.array([right in one.right for one in memory] or [False])
    found = np.maximum(np.searchsorted(starts, addresses, "right") - 1, 0)

    def good(number: Any, at: Any) -> Any:
        return may[at] & (addresses[number] >= starts[at]) & (nbytes[number] > 0) & (
            nbytes[number] <= ends[at] - addresses[number])

    for number in np.flatnonzero(~good(slice(None), found)).tolist():
        # Those that begin before may go on longer.
        every = np.flatnonzero(good(number, np.arange(len(starts))))
        if not len(every):
            raise ValueError(f"block {number}: {nbytes[number]} bytes at {addresses[number]:#x} are not registered "
                             f"{where}, or may not be used so")
        found[number] = every[-1]
    return found


def _payload(payload: bytes) -> bytes:
    if not 0 < len(payload) <= MESSAGE_MAX:
        raise ValueError(f"a notification has 1 to {MESSAGE_MAX} bytes")
    return bytes(payload)


def _hello(message: bytes) -> tuple[str, str]:
    """Token and name of who begins a line.  ValueError: that is none."""
    token, name = message.decode().split(" ", 1)
    if len(token) != 2 * TOKEN_BYTES or not 0 < len(name.encode()) <= NAME_BYTES:
        raise ValueError("a hello of another kind")
    return token, name


def _parsed(metadata: bytes) -> tuple[str, str, str, list[_There]]:
    """What metadata() says, sorted.  ValueError: it is something else."""
    try:
        said = json.loads(metadata)
        token, name, address = (str(said[key]) for key in ("agent", "name", "address"))
        if said["towline"] != VERSION or _hello(f"{token} {name}".encode()) != (token, name):
            raise ValueError
        memory = [_There(operator.index(start), operator.index(end), str(export), Right(right))
                  for start, end, export, right in said["memory"]]
        if any(not 0 < one.start < one.end < 1 << 63 for one in memory):
            raise ValueError
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError("that is no metadata of an agent's, or of another version's") from error
    return token, name, address, sorted(memory)
