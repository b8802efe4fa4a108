# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""How objects end: in the right order, whoever ends them.

A Handle is a C object and a count of who uses it: its Python object until that is closed, every
object that was made of it, every array in its memory, and every call that is going on.  When the
count is 0 the C object ends, and then those that it was made of are used by one fewer.  So it does
not matter whether close(), the garbage collector or the interpreter's end comes first, and
nothing ends under an array.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import ctypes
import errno
import gc
import os
import signal
import threading
import weakref
from collections.abc import Callable, Generator, Iterator
from typing import Any, TypeVar

from ._lib import ON_SIGNAL, failure, lib

# Around all counts.  The garbage collector may come in between, in the same thread.
_lock = threading.RLock()


def _forked() -> None:
    """In a child: a thread that it does not have may have had the lock, and keeps it for ever."""
    global _lock    # pylint: disable=global-statement
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_forked)

Self = TypeVar("Self", bound="Object")


class _Exit:
    """Whether the interpreter is ending: what arrays are in then goes with the process."""
    thread: int | None = None    # that calls finalizers, or has called them
    begun = False                   # it has


def _exit_begins() -> None:
    _Exit.thread = threading.get_ident()


def _finalizers_were_called() -> None:
    _Exit.begun = True


# What is registered last is called first, and weakref registers its finalizers when there is one.
atexit.register(_finalizers_were_called)
weakref.finalize(_Exit, id, None).detach()
atexit.register(_exit_begins)


def _ends_quietly() -> None:
    """While the interpreter ends, what other threads use ends under them: they end, too."""
    if _Exit.thread is not None and _Exit.thread != threading.get_ident():
        raise SystemExit


def exiting() -> bool:
    """Is the interpreter ending, and were finalizers called?"""
    return _Exit.begun


class _Calling(threading.local):
    """Calls in which the library may call functions of ours, of one thread.

    In these functions nothing ends that waits for the library, whatever the collector finds; and
    Ctrl-C, which would break one off before it has noted what happened, is put off until the call
    has returned.
    """
    depth = 0
    interrupted = False
    swapped = False

    def begin(self) -> None:
        """Before the call."""
        if not self.depth and threading.current_thread() is threading.main_thread() and \
                signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._note)
            self.swapped = True
        self.depth += 1

    def _note(self, _number: int, _frame: Any) -> None:
        self.interrupted = True

    @contextlib.contextmanager
    def within(self) -> Iterator[None]:
        """In such a function, one that waits, and notes what is raised in it: Ctrl-C is for it."""
        try:
            if self.swapped:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            if self.interrupted:
                self.interrupted = False
                raise KeyboardInterrupt
            yield
        finally:
            if self.swapped:
                signal.signal(signal.SIGINT, self._note)

    def end(self) -> None:
        """After it."""
        self.depth -= 1
        if self.depth:
            return
        if self.swapped:
            self.swapped = False
            signal.signal(signal.SIGINT, signal.default_int_handler)
        while _postponed:
            try:
                finish = _postponed.popleft()
            except IndexError:
                break
            finish()
        if self.interrupted:
            self.interrupted = False
            raise KeyboardInterrupt


calling = _Calling()
_postponed: collections.deque[Callable[[], None]] = collections.deque()


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C comes when all of it is done."""
    calling.begin()
    try:
        yield
    finally:
        calling.end()


class Interruptible:
    """Within it a call of the library's that waits ends when a signal's handler raises.

    When a signal has interrupted one the library asks whether it goes on (tow_on_signal(3)).  Then
    handlers run; what one raises is raised by over(), when the call has ended.  Handlers run in the
    main thread, so in others there is nothing to ask.
    """

    _inner: Interruptible | None = None

    def __init__(self) -> None:
        self._main = threading.current_thread() is threading.main_thread()
        self._outer: Interruptible | None = None
        self._function: Any = None
        self._error: BaseException | None = None

    def __enter__(self) -> Interruptible:
        if self._main:
            asked = self._asked()
            next(asked)
            self._function = ON_SIGNAL(asked.send)
            self._outer, Interruptible._inner = Interruptible._inner, self
            self._set()
        return self

    def __exit__(self, *_: Any) -> None:
        if self._main:
            Interruptible._inner = self._outer
            self._set()
            self._function = None

    @staticmethod
    def _set() -> None:
        inner = Interruptible._inner
        function = ctypes.cast(inner._function, ctypes.c_void_p) if inner else None
        if lib.tow_on_signal(function, None):
            raise MemoryError

    def _asked(self) -> Generator[int, None, None]:
        # A generator goes on within its try.  A function begins outside of it, and Python may run
        # handlers there: what they raised would be lost.
        while True:
            try:
                while True:
                    yield int(self._error is not None or calling.interrupted)
                    ctypes.pythonapi.PyErr_CheckSignals()
            except GeneratorExit:
                return
            except BaseException as error:  # pylint: disable=broad-exception-caught
                self._error = error

    def over(self) -> None:
        """Raise what a handler has raised."""
        error, self._error = self._error, None
        if error is not None:
            raise error


class Handle:
    """A C object, and who uses it: `with` it for a call.

    A child that was forked may not: it has what it is about in common with its parent, and locks
    that nobody will let go of.  So `with` comes before all of them, and raises Error: EPERM.

    pointer: the C object.
    end: called with it when nobody uses it any more; not in a child that was forked.
    parents: what it was made of, which is used until then.
    kept: Python objects that live until then.
    calls: the library may call functions of ours while it is used, or ended.
    over: called when a call has ended: raises what such a function has raised; then it is so with
        what is made of this one, too.
    defer: takes a function that ends it, and calls it now or soon; None: now.
    """

    __slots__ = ("pointer", "_end", "_parents", "_kept", "_defer", "_users", "_closed", "_pid",
                 "_calls", "_over", "owned", "before", "__weakref__")

    def __init__(self, pointer: int | None, end: Callable[[int | None], Any],
                 *parents: Handle, kept: tuple[Any, ...] = (), calls: bool = False,
                 over: Callable[[], None] | None = None,
                 defer: Callable[[Callable[[], None]], None] | None = None) -> None:
        self.pointer = pointer
        self._end = end
        self._parents: tuple[Handle, ...] = ()
        self._kept = kept
        overs = [one for one in (over, *(parent._over for parent in parents)) if one]
        self._over: Callable[[], None] | None = overs[0] if overs else None
        self._calls = calls or bool(overs)
        self._defer = defer
        self._users = 1
        self._closed = False
        self._pid = os.getpid()
        # What is closed with it, and before it; and what is called then, first.
        self.owned: set[Any] = set()
        self.before: Callable[[], None] | None = None
        for parent in parents:
            parent.hold()
            self._parents += (parent,)

    def keep_parent(self, parent: Handle) -> None:
        """It uses that one, too, from now on."""
        parent.keep()
        with _lock:
            self._parents += (parent,)

    @property
    def closed(self) -> bool:
        """Was it closed?  It may be used by arrays still."""
        return self._closed

    @property
    def ours(self) -> bool:
        """Is this the process that made it?"""
        return self._pid == os.getpid()

    def hold(self) -> None:
        """One more uses it.  ValueError: it was closed."""
        with _lock:
            if self._closed:
                _ends_quietly()
                raise ValueError("it is closed")
            self._users += 1

    def keep(self) -> None:
        """The same for who knows that it is there, closed or not."""
        with _lock:
            self._users += 1

    def drop(self) -> None:
        """One fewer."""
        with _lock:
            self._users -= 1
            if self._users:
                return
        if self._calls and calling.depth:
            _postponed.append(self._finish)
        elif self._defer:
            self._defer(self._finish)
        else:
            self._finish()

    def claim(self) -> None:
        """Raises Error: EPERM: it is the parent's."""
        if not self.ours:
            raise failure(-errno.EPERM, "in a child that was forked")

    @contextlib.contextmanager
    def look(self) -> Iterator[int | None]:
        """As `with`, for what only asks where memory is, which a child may, too."""
        self.hold()
        try:
            yield self.pointer
        finally:
            self.drop()

    def __enter__(self) -> int | None:
        self.claim()
        if self._calls:
            calling.begin()
        try:
            self.hold()
        except ValueError:
            if self._calls:
                calling.end()
            raise
        return self.pointer

    def __exit__(self, *_: Any) -> None:
        try:
            if self._calls:
                calling.end()
        finally:
            self.drop()
        _ends_quietly()
        if self._over:
            self._over()

    def close(self) -> None:
        """Its Python object does not use it any more."""
        with _lock:
            if self._closed:
                return
            self._closed = True
            owned = list(self.owned)
        if self.before:
            self.before()
        for one in owned:
            one.close()
        self.drop()
        sweep()

    def _finish(self) -> None:
        if self._calls:
            calling.begin()
        try:
            if self.ours:
                self._end(self.pointer)
        finally:
            self._ended()

    def _ended(self) -> None:
        self._kept = ()
        for parent in self._parents:
            parent.owned.discard(self)
            parent.drop()
        self._parents = ()
        if self._calls:
            calling.end()


# What could not end yet, and is asked again now and then: a function that says whether it has.
_waiting: list[Callable[[], bool]] = []


def end_later(try_to_end: Callable[[], bool]) -> None:
    """Ask again when something else is made or closed, or the collector has run."""
    with _lock:
        _waiting.append(try_to_end)
        if _collected not in gc.callbacks:
            gc.callbacks.append(_collected)


def sweep() -> None:
    """Ask all again."""
    if not _waiting:
        return
    with _lock:
        asked, _waiting[:] = list(_waiting), []
    again = [one for one in asked if not one()]
    with _lock:
        _waiting.extend(again)
        if not _waiting and _collected in gc.callbacks:
            gc.callbacks.remove(_collected)


def _collected(phase: str, _: dict[str, int]) -> None:
    if phase == "stop":
        sweep()


class Object:
    """What all objects of the package have in common.

    Each is a context manager.  close() may be called any number of times; the garbage collector
    and the interpreter's end call it, too.  After it everything else raises ValueError.
    """

    _handle: Handle
    _finalizer: Callable[[], Any]

    def _own(self, handle: Handle) -> None:
        self._handle = handle
        self._finalizer = weakref.finalize(self, handle.close)

    def close(self) -> None:
        """End it, when nothing that was made of it is in use any more."""
        self._finalizer()

    @property
    def closed(self) -> bool:
        """Was close() called?"""
        return self._handle.closed

    def __enter__(self: Self) -> Self:
        if self.closed:
            raise ValueError("it is closed")
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
