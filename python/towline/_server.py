# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""A parameter server: ranks that hold variables, and ranks that compute gradients."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import functools
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ._group import Group
from ._lib import (FOREVER, Deadline, PsAttr, PsStats, StoreAttr, TensorType, check, failure, lib,
                   milliseconds)
from ._life import Handle, Interruptible, Object
from ._memory import Arena, Block, values_of
from ._types import (Array, AnyArray, Shape, address_of, bytes_of, same_type, shape_of, tensor_type,
                     whole)

OPTIMIZERS = {"sgd": 0, "adam": 1}
SYNCHRONOUS = 0xffffffff
ALL = 0xffffffff
# What says nothing of others: all else a tow_ps that has failed says, and who is to blame.
ASKED_WRONGLY = (errno.EINVAL, errno.EBUSY, errno.EINTR, errno.EDQUOT, errno.ENOSPC, errno.ENOMEM)


def _addresses(arrays: Sequence[Array]) -> Any:
    return (ctypes.c_void_p * max(1, len(arrays)))(*(address_of(one) for one in arrays))


class Store(Object):
    """Variables, and what an optimizer has of them.

    arena: where they are.
    initial: what each variable is at first, of float32 or float64; it is copied.
    optimizer: "sgd": v = momentum v + g; p = p - rate v.  "adam": as Kingma and Ba have it.
    rate: the learning rate.
    momentum: of "sgd".
    beta1, beta2, epsilon: of "adam".

    Each operation is rounded to the variable's type, as NumPy does.  A store outlives the servers
    that serve it: when a worker has died another one goes on with it.  One thread at a time
    uses it.

    Raises Error: EINVAL, EOPNOTSUPP: a variable is of another type; ENOSPC and the like: no memory.
    """

    def __init__(self, arena: Arena, initial: Sequence[AnyArray], optimizer: str = "sgd",
                 rate: float = 0.01, momentum: float = 0.0, beta1: float = 0.9,
                 beta2: float = 0.999, epsilon: float = 1e-8) -> None:
        values = [whole(one, "a variable") for one in initial]
        types = (TensorType * max(1, len(values)))(
            *(tensor_type(one.shape, one.dtype) for one in values))
        attr = StoreAttr(optimizer=OPTIMIZERS[optimizer], rate=rate, momentum=momentum,
                         beta1=beta1, beta2=beta2, epsilon=epsilon)
        made = ctypes.c_void_p()
        with arena._handle as memory:
            check(lib.tow_store_create(memory, attr, types, _addresses(values), len(values), made),
                  "making a store")
            self._own(Handle(made.value, lib.tow_store_destroy, arena._handle))
        self.types = [(one.shape, one.dtype) for one in values]

    def value(self, variable: int) -> Array:
        """A copy of a variable."""
        shape, dtype = self.types[self._number(variable)]
        array = np.empty(shape, dtype)
        with self._handle as pointer:
            ctypes.memmove(address_of(array), lib.tow_store_value(pointer, variable), array.nbytes)
        return array

    def updates(self, variable: int) -> int:
        """How often it was updated."""
        with self._handle as pointer:
            return lib.tow_store_updates(pointer, self._number(variable))

    def _number(self, variable: int) -> int:
        if not 0 <= variable < len(self.types):
            raise IndexError(f"there is no variable {variable}")
        return variable

    def update(self, variable: int, gradients: Sequence[AnyArray]) -> None:
        """Update a variable by the average of gradients, added in their order.

        Raises Error: EBUSY: a server serves it.
        """
        shape, dtype = self.types[self._number(variable)]
        added = [same_type(shape, dtype, whole(one, "a gradient"), "a gradient") for one in gradients]
        with self._handle as pointer:
            check(lib.tow_store_update(pointer, variable, _addresses(added), len(added)),
                  "updating a variable")


class PsReport(NamedTuple):
    """What a rank has done, as struct tow_ps_stats; sizes in bytes."""
    servers: int
    workers: int
    variables: int
    sent_bytes: int
    received_bytes: int
    copied_bytes: int
    waited_ns: int
    updates: int


def leave(handle: Handle, turn: Any, call: Any) -> None:
    """Nothing here refers to the object that the collector is to find."""
    if handle.ours:
        with turn:
            call(handle.pointer)


class _Rank(Object):
    """What servers and workers have in common."""

    def __init__(self, group: Group, arena: Arena, variables: Sequence[tuple[Shape, Any]],
                 servers: int = 1, staleness: int | None = None,
                 timeout: float | None = 600.0, store: Store | None = None) -> None:
        self.variables = [(shape_of(shape), np.dtype(dtype)) for shape, dtype in variables]
        types = (TensorType * max(1, len(self.variables)))(
            *(tensor_type(shape, dtype) for shape, dtype in self.variables))
        attr = PsAttr(servers=servers, staleness=SYNCHRONOUS if staleness is None else staleness,
                      timeout_ms=milliseconds(timeout), count=len(self.variables), types=types)
        parents = [group._handle, arena._handle] + ([store._handle] if store else [])
        made, blamed = ctypes.c_void_p(), ctypes.c_uint32(FOREVER)
        with group._handle as ranks, arena._handle as memory, Interruptible() as waiting:
            if store:
                with store._handle as pointer:
                    attr.store = pointer
                    result = lib.tow_ps_create(ranks, memory, attr, made, blamed)
            else:
                result = lib.tow_ps_create(ranks, memory, attr, made, blamed)
            if not result:
                handle = Handle(made.value, lib.tow_ps_destroy, *parents)
        if result:
            waiting.over()
            raise failure(result, "finding servers and workers", blamed.value)
        self._turn = threading.RLock()
        # Others are told at once, whoever still looks at values; a call that waits ends first.
        handle.before = functools.partial(leave, handle, self._turn, lib.tow_ps_leave)
        self._own(handle)
        waiting.over()
        self.rank, self.size = group.rank, group.size

    def _number(self, variable: int) -> int:
        if not 0 <= variable < len(self.variables):
            raise IndexError(f"there is no variable {variable}")
        return variable

    @property
    def step(self) -> int:
        """How many steps were done before: with staleness since it was made."""
        with self._handle as pointer, self._turn:
            return lib.tow_ps_step(pointer)

    def stats(self) -> PsReport:
        """What it has done so far."""
        stats = PsStats()
        with self._handle as pointer, self._turn:
            check(lib.tow_ps_stats(pointer, stats), "asking")
        return values_of(stats, PsReport)


class ParameterServer(_Rank):
    """A rank that serves.

    group: the ranks; 0 to servers - 1 serve, the others work.  All make theirs, and wait for all.
    arena: where gradients and values come to.
    variables: shape and type of each, the same at all ranks; number V is server V % servers'.
    servers: how many ranks serve.
    staleness: by how many steps a worker may be ahead of the slowest; None: not at all, and each
        step's gradients are averaged, in the order of ranks.
    timeout: how long a step waits for a worker that is late, in seconds.
    store: its own variables, in their order; None where none are left for it.

    When a rank dies, or comes too late, everything raises the same Error ever after, with that rank
    blamed.  Whoever is left makes a new group, of another name or restart, and goes on with the
    same stores.  close() waits for a call that another thread is in.

    Raises Error: EPROTO: blamed has other ideas, or its store cannot go on where the others
    can; ECANCELED: blamed could not; EBUSY: the store is served; as Group.gather().
    """

    def serve(self, timeout: float | None = None) -> None:
        """Until all workers have left.

        timeout: seconds; after that it may be called again.
        Raises Timeout without blamed: after @timeout.  Error with blamed: ESTALE: that rank died,
        or left before the others; ECONNRESET: its node does not answer; ETIMEDOUT: it came too
        late.
        """
        until = Deadline(timeout)
        while True:
            blamed = ctypes.c_uint32(FOREVER)
            with self._handle as pointer, self._turn:
                result = lib.tow_ps_serve(pointer, until.slice_us(), blamed)
            if not result:
                return
            mere_time = result == -errno.ETIMEDOUT and blamed.value == FOREVER
            if result != -errno.EINTR and (not mere_time or until.over):
                raise failure(result, "serving", blamed.value)


class ParameterWorker(_Rank):
    """A rank that works: of a server's arguments all but the store.

    wait() for the first values; then, in each step, push() a gradient for each variable, and
    wait().

    Raises Error: as ParameterServer.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Of gradients that are on their way.
        self._kept: list[Array | None] = [None] * len(self.variables)

    def push(self, variable: int, gradient: AnyArray) -> None:
        """A gradient of a variable, once a step; it is not changed before wait().

        The variable's value is not to be read any more before that.
        Raises Error: EBUSY: it was pushed already, or another variable of the step before was not
        waited for; as wait().
        """
        shape, dtype = self.variables[self._number(variable)]
        gradient = same_type(shape, dtype, whole(gradient, "the gradient"), "the gradient")
        result = -errno.EINTR
        while result == -errno.EINTR:
            blamed = ctypes.c_uint32(FOREVER)
            with self._handle as pointer, self._turn, Interruptible() as waiting:
                result = lib.tow_ps_push(pointer, variable, address_of(gradient))
                if result and -result not in ASKED_WRONGLY:
                    lib.tow_ps_wait(pointer, variable, blamed)
            waiting.over()
        if result:
            raise failure(result, "pushing a gradient", blamed.value)
        self._kept[variable] = gradient

    def wait(self, variable: int | None = None) -> None:
        """Until the value of a variable is there, or of all of them (None).

        Raises Error with blamed: ESTALE: that rank died, or left; ECONNRESET: its node does not
        answer; ETIMEDOUT: it came too late; ECANCELED: it could not go on.
        """
        which = ALL if variable is None else self._number(variable)
        result = -errno.EINTR
        while result == -errno.EINTR:
            blamed = ctypes.c_uint32(FOREVER)
            with self._handle as pointer, self._turn, Interruptible() as waiting:
                result = lib.tow_ps_wait(pointer, which, blamed)
            waiting.over()
        if result:
            raise failure(result, "waiting for a variable", blamed.value)
        for number in range(len(self.variables)) if variable is None else (variable,):
            self._kept[number] = None

    async def waited(self, variable: int | None = None) -> None:
        """The same in asyncio, by a thread of its executor."""
        await asyncio.get_running_loop().run_in_executor(None, self.wait, variable)

    def value(self, variable: int) -> Array:
        """A variable, where it comes to: always the same memory, whose contents change.

        It may be read after wait() and until push().
        Raises ValueError: none has come yet.
        """
        shape, dtype = self.variables[self._number(variable)]
        with self._handle as pointer:
            address = lib.tow_ps_value(pointer, variable)
            if not address:
                raise ValueError("no value has come yet: wait() for it")
            return Block(self._handle, address, bytes_of(shape, dtype)).array(shape, dtype)

    def exchange(self, gradients: Sequence[AnyArray]) -> list[Array]:
        """Push all gradients, and wait for all values: these.

        Raises Error: as push() and wait().
        """
        for variable, gradient in enumerate(gradients):
            self.push(variable, gradient)
        self.wait()
        return [self.value(variable) for variable in range(len(self.variables))]
