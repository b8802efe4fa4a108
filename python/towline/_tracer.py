# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""Which allocations of a computation are sent, learnt from running it."""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import NamedTuple
from collections.abc import Iterator

from ._lib import TracerReport, check, lib
from ._life import Handle, Object
from ._memory import Arena, values_of
from ._types import AnyArray, address_of, array_of

# What Tracer.transferred() answers.
ZERO_COPY, JOINS, UNKNOWN = range(3)


class Report(NamedTuple):
    """What was sent in a step, as struct tow_tracer_report; sizes in bytes.

    traced: where arrays come from was noted in it.  step: from 1.  zero_copy: transfers from the
    arena.  copied: of ordinary memory.  unknown: of these, from nobody knows where.  refused:
    allocations that the arena had no room for.  sites: how many are known to be sent.
    """
    traced: int
    step: int
    zero_copy: int
    zero_copy_bytes: int
    copied: int
    copied_bytes: int
    unknown: int
    refused: int
    sites: int


class Tracer(Object):
    """Learns in the first step which arrays are sent: from the second on these are in the arena.

    arena: where what is sent is to be.

    A computation runs in steps, and in each its nodes allocate the same arrays in the same order.

        with towline.allocator(tracer):
            for batch in batches:
                with tracer.step():
                    with tracer.node("layer1"):
                        gradient = ...
                    tx.send(gradient, tracer=tracer)

    Raises Error: ENOMEM.
    """

    def __init__(self, arena: Arena) -> None:
        from ._numpy import Handler
        made = ctypes.c_void_p()
        with arena._handle as pointer:
            check(lib.tow_tracer_create(pointer, made), "making a tracer")
            self._own(Handle(made.value, lib.tow_tracer_destroy, arena._handle))
        self.arena = arena
        self._nodes: dict[str, int] = {}
        self._handler = Handler(arena._handle, self._handle)

    @contextlib.contextmanager
    def step(self) -> Iterator[Tracer]:
        """A step (a mini-batch): each node's allocations are counted from 0 again.

        No node runs when it begins.  Raises Error: EINVAL: within another one.
        """
        with self._handle as pointer:
            check(lib.tow_tracer_step_begin(pointer), "beginning a step")
        try:
            yield self
        finally:
            # A child that leaves the block, as it ends, has nothing to say.
            if self._handle.ours:
                with self._handle as pointer:
                    check(lib.tow_tracer_step_end(pointer), "ending a step")

    def _node(self, name: str) -> int:
        if name not in self._nodes:
            number = ctypes.c_uint32()
            with self._handle as pointer:
                check(lib.tow_tracer_node(pointer, name.encode(), number), f"node {name}")
            self._nodes[name] = number.value
        return self._nodes[name]

    @contextlib.contextmanager
    def node(self, name: str) -> Iterator[Tracer]:
        """A node of the computation runs, in this thread.

        name: the same in each run of the program, of one line; one thread at a time runs it.
        What NumPy allocates for this thread within (towline.allocator()) is the node's; outside
        of all nodes it is that of a node named "numpy".
        """
        number = self._node(name)
        with self._handle as pointer:
            check(lib.tow_tracer_node_begin(pointer, number), f"node {name}")
        before = self._handler.run(number)
        try:
            yield self
        finally:
            self._handler.run(before)

    def transferred(self, array: AnyArray) -> int:
        """An array is sent; send(..., tracer=...) calls it.

        Returns ZERO_COPY: it is in the arena; JOINS: it is not, and one like it will be, from
        the next step on; UNKNOWN: nobody knows where it comes from.
        """
        array = array_of(array, "array")
        with self._handle as pointer:
            return check(lib.tow_tracer_transferred(pointer, address_of(array), array.nbytes),
                         "a transfer")

    def report(self) -> Report:
        """What was sent in the step that is going on, or the last one."""
        report = TracerReport()
        with self._handle as pointer:
            check(lib.tow_tracer_report(pointer, report), "asking a tracer")
        return values_of(report, Report)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Keep what was learnt in a file, which is replaced at once.  Raises Error."""
        with self._handle as pointer:
            check(lib.tow_tracer_save(pointer, os.fsencode(path)), f"saving {path}")

    def load(self, path: str | os.PathLike[str]) -> None:
        """Know what an earlier run has saved: then the first step copies nothing.

        Raises Error: EBADMSG: it is no such file; ENOENT.
        """
        with self._handle as pointer:
            check(lib.tow_tracer_load(pointer, os.fsencode(path)), f"loading {path}")
