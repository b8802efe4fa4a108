# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""Runs a rank's part of a plan, step by step."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import heapq
import os
import secrets
import select
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from .._device import Device
from .._group import Group, World
from .._lib import Deadline, Error, failure
from .._mailbox import Line
from .._numpy import allocator
from .._tracer import Tracer
from .._types import AnyArray, Array, array_of
from ._ends import DynamicIn, Here, In, Out, dtype_of
from ._graph import GraphError
from ._meet import NEWS, Ends, heard
from ._plan import Plan, PlanEdge

# How often who waits looks again, and at what others say: in turns, then asleep, in seconds.
_TURNS, _SLEEP_S = 3, 0.02
# Told in place of how many: it has failed.
_FAILED = 0xffffffffffffffff

Function = Callable[[list[Array], "Places"], AnyArray]
Made = TypeVar("Made")


def run(plan: Plan, rank: int, functions: Mapping[str, Function | AnyArray], group: Group | None = None,
        timeout: float | None = 60.0, trace: bool = True) -> Running:
    """Run a rank's nodes: a context manager, Running.  All ranks of the plan call it.

    functions: of the rank's nodes, by their names.  An array is what the node gives at each step; else it is
        called with (inputs, place):
        inputs: an array for each edge to the node, in the graph's order.  One that has come from another
            rank cannot be written, and is good for as long as the function runs.
        place: place(output=0, shape=None) is an array of that output's type to write to, of any contents:
            where it is sent from, if it is.  shape may be left out where all dims are known.
        It returns what it gives, an array or several, by outputs; or None: what it has asked place() for.
        What it gave is changed by nobody.
        Nodes without a function are fed: Running.step().
    group: whose ranks are the plan's; None: of its own, as World.detect() says.
    timeout: how long a rank waits for others while nothing comes, in seconds; None: for ever.
    trace: what functions give that was not made by place() is looked at in the first step, and allocated by
        NumPy where it is sent from after that (Tracer).

    Raises GraphError: a rank has another plan, functions have names that no node of the rank has, or NumPy
    has no such elements; Error: as Group(), Region() and Device.resolve().
    """
    return Running(plan, rank, functions, group, timeout, trace)


def _agree(group: Group, make: Callable[[], Made]) -> Made:
    """What it makes; if that fails at one rank, all raise."""
    made, error = None, None
    try:
        made = make()
    except BaseException as caught:     # pylint: disable=broad-exception-caught
        error = caught
    status = 0 if error is None else getattr(error, "errno", None) or errno.ECANCELED
    told = group.gather(status.to_bytes(4, "big"))
    if error is not None:
        raise error
    for other, one in enumerate(told):
        if any(one):
            raise failure(-int.from_bytes(one, "big"), "running a graph", other)
    return made     # type: ignore[return-value]


class Places:
    """What a function calls for memory to write its outputs to: run()."""

    def __init__(self, node: _Node, step: int) -> None:
        self._node = node
        self._step = step
        self.given: dict[int, Array] = {}

    def __call__(self, output: int = 0, shape: tuple[int, ...] | None = None) -> Array:
        node = self._node
        if output not in node.types:
            raise GraphError(f"node {node.name!r}: nobody takes output {output}")
        dtype, dims = node.types[output]
        if shape is None:
            if dims is None or not all(isinstance(dim, int) for dim in dims):
                raise GraphError(f"node {node.name!r}: the dims of output {output} are not all known: {dims}")
            shape = dims
        out = node.outs.get(output)
        array = np.empty(shape, dtype) if out is None else out.place(self._step, tuple(shape))
        self.given[output] = array
        return array


class _Node:
    """A node of this rank."""

    def __init__(self, number: int, name: str) -> None:
        self.number = number
        self.name = name
        self.function: Any = None
        # Where its inputs are from: (node, output).
        self.inputs: list[tuple[str, int]] = []
        self.types: dict[int, tuple[np.dtype[Any], Any]] = {}
        self.outs: dict[int, Out] = {}
        # Which nodes here take its outputs, by these.
        self.readers: dict[int, list[int]] = {}
        # Is it traced, and has it given what was not where it is sent from?
        self.traced = self.copied = False

    def free(self, step: int) -> bool:
        """May it run?"""
        return all(out.free(step) for out in self.outs.values())


class Running:
    """A rank's part of a plan that runs: run().

    One thread uses it.  What goes wrong in a step ends it at all ranks.  `with` it close() is called at the
    block's end; if that ends by an exception the other ranks are told, and nobody is waited for.
    """

    def __init__(self, plan: Plan, rank: int, functions: Mapping[str, Any], group: Group | None,
                 timeout: float | None, trace: bool) -> None:
        self._plan, self._rank, self._timeout = plan, rank, timeout
        self._steps = 0
        self._error: BaseException | None = None
        # Who has left, after how many steps.
        self._left: dict[int, int] = {}
        self._lines: dict[int, Line] = {}
        self._ins: list[In | DynamicIn] = []
        self._outs: list[Out] = []
        self._arrays: dict[str, Array] = {}
        self._closed = False
        # Has it dynamic ends, which the worker drives?
        self._dynamic = False
        self._queue_fd = -1
        self._poll = select.poll()
        self._here: Here
        self._tracer: Tracer | None = None
        self._nodes: list[_Node] = []
        self._stack = contextlib.ExitStack()
        try:
            self._meet(group, functions, trace)
        except BaseException as error:
            self._end(error)
            raise

    # ---- what there is ----

    def _read(self, functions: Mapping[str, Any]) -> None:
        graph = self._plan.graph
        nodes = [_Node(number, node.name) for number, node in
                 enumerate(node for node in graph.nodes if node.rank == self._rank)]
        by_name = {node.name: node for node in nodes}
        unknown = sorted(set(functions) - set(by_name))
        if unknown:
            raise GraphError(f"rank {self._rank} has no node {unknown[0]!r}")
        for node in nodes:
            function = functions.get(node.name)
            if function is None or callable(function):
                node.function = function
            else:
                self._arrays[node.name] = array_of(function, node.name)
        for edge in graph.edges:
            if edge.source in by_name:
                by_name[edge.source].types[edge.output] = dtype_of(edge.dtype), edge.dims
            if edge.target in by_name:
                by_name[edge.target].inputs.append((edge.source, edge.output))
                if edge.source in by_name:
                    readers = by_name[edge.source].readers.setdefault(edge.output, [])
                    readers.append(by_name[edge.target].number)
        self._by_name, self._nodes = by_name, nodes

    # ---- meeting ----

    def _meet(self, group: Group | None, functions: Mapping[str, Any], trace: bool) -> None:
        plan, rank, keep = self._plan, self._rank, self._stack.enter_context
        if group is None:
            group = keep(Group(keep(Device()), World.detect()))
        if group.device is None or group.rank != rank or group.size != len(plan.ranks):
            raise GraphError(f"the group has rank {group.rank} of {group.size}, the plan rank {rank} of "
                             f"{len(plan.ranks)}")
        members, device = group, group.device
        digest = hashlib.sha256(plan.graph.to_json().encode() + repr(plan.edges).encode()).digest()
        told = group.gather(digest + secrets.token_bytes(8))
        for other, one in enumerate(told):
            if one[:32] != digest:
                raise GraphError(f"rank {other} has another plan than rank {rank}")
        prefix = f"graph/{told[0][32:].hex()}"
        # What goes wrong at one rank all ranks learn at once; and what is looked for is there then.
        _agree(members, lambda: self._read(functions))
        ends = _agree(members, lambda: Ends(plan, rank, prefix, members, device, self._stack))
        _agree(members, lambda: self._connect(ends, trace))

    def _connect(self, ends: Ends, trace: bool) -> None:
        self._here = here = ends.here
        self._queue_fd = here.queue.fileno()
        for fd in (self._queue_fd, here.worker.fileno()):
            self._poll.register(fd, select.POLLIN)
        self._lines = ends.lines(self._timeout)
        self._ins, self._outs = ends.connect({node.name: node.number for node in self._nodes}, self._timeout)
        self._dynamic = any(edge.kind == "dynamic" or edge.fallback for edge in
                            (*(one.edge for one in self._ins), *(out.edge for out in self._outs)))
        for out in self._outs:
            self._by_name[out.edge.source].outs[out.edge.output] = out
        if trace and self._outs:
            self._tracer = self._stack.enter_context(Tracer(here.arena))
        for node in self._nodes:
            node.traced = self._tracer is not None and callable(node.function) and bool(node.outs)
            if node.name in self._arrays and 0 in node.outs:
                node.outs[0].hold(self._arrays[node.name])

    # ---- steps ----

    @property
    def steps(self) -> int:
        """How many steps were run."""
        return self._steps

    @property
    def copied_bytes(self) -> int:
        """How many bytes were copied, as they were not where they are sent from, or did not stay where they
        had come to."""
        copied: int = self._here.copied + self._here.worker.copied
        return copied

    def step(self, feeds: Mapping[str, AnyArray] | None = None) -> dict[str, Any]:
        """Run each node once, and begin to send all that goes to others, which may be on its way still.

        feeds: of nodes that have no function their output 0; they may change when it has returned.
        Returns of each node here of which nobody takes anything what it gave.
        Raises GraphError: a tensor contradicts the plan; ValueError: feeds are not those of the nodes without a
        function; what a function raises.  Error: with blamed the rank to blame: ECANCELED: it has failed, or
        left; ESTALE, ECONNRESET: it has ended; Timeout.  Then no further step is run.
        """
        fed = {name: array_of(array, name) for name, array in (feeds or {}).items()}
        lacking = {node.name for node in self._nodes if node.function is None} - set(self._arrays)
        if set(fed) != lacking:
            raise ValueError(f"fed are {sorted(fed)}, and not {sorted(lacking)}")
        for name, array in self._arrays.items():
            out = self._by_name[name].outs.get(0)
            fed[name] = array if out is None else out.held(self._steps)
        with self._failing():
            with self._tracing():
                results = _Step(self, self._steps, fed).run()
            self._steps += 1
            if self._steps == 1:
                self._learnt()
        return results

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """What is raised here ends it."""
        if self._closed:
            raise ValueError("it is closed")
        if self._error is not None:
            raise self._error
        try:
            yield
        except BaseException as error:
            told = self._told() if isinstance(error, Error) else None
            self._error = told or error
            self._tell(_FAILED)
            if told:
                raise told from error
            raise

    @contextlib.contextmanager
    def _tracing(self) -> Iterator[None]:
        if self._tracer is None:
            yield
        else:
            with self._tracer.step():
                yield

    def _learnt(self) -> None:
        """After the first step: who made everything where it is sent from is not traced."""
        for node in self._nodes:
            node.traced = node.traced and node.copied
        if not any(node.traced for node in self._nodes):
            self._tracer = None

    def call(self, node: _Node, inputs: list[Array], places: Places) -> Any:
        """What a node's function gives."""
        if not node.traced or self._tracer is None:
            return node.function(inputs, places)
        with allocator(self._tracer), self._tracer.node(node.name):
            return node.function(inputs, places)

    def give(self, node: _Node, output: int, array: Array, step: int) -> None:
        """Send an output."""
        if not node.outs[output].give(step, array) and node.traced and self._tracer is not None:
            node.copied = True
            self._tracer.transferred(array)

    def waits(self) -> bool:
        """Is there anything that has not begun to be sent?"""
        return any(way.waits for out in self._outs for way in out.ways)

    def go(self) -> bool:
        """See what has ended, and begin what may begin: is there anything new?"""
        here = self._here
        here.queue.progress()
        if self._dynamic:
            here.worker.progress()
        moved = False
        for out in self._outs:
            for way in out.ways:
                if way.busy:
                    moved |= way.go()
        for one in self._ins:
            if one.busy:
                moved |= one.go()
        return moved

    def sleep(self, step: int, coming: list[In | DynamicIn]) -> bool:
        """Until something may be new: is there?"""
        for one in coming:
            one.arm(step)
        for out in self._outs:
            for way in out.ways:
                way.arm()
        # Unless it was there before that.
        if self.go() or any(one.there(step) for one in coming):
            return True
        # What go() has let the worker see wakes nobody any more.
        if not (self._dynamic and self._hear_all()):
            ready = self._poll.poll(_SLEEP_S * 1000)
            if not ready or any(fd != self._queue_fd for fd, _ in ready):
                self._here.worker.progress()
                self._hear_all()
        return False

    def _hear_all(self) -> bool:
        return any([self._hear(other, line) for other, line in self._lines.items()])

    def _hear(self, other: int, line: Line) -> bool:
        """Has it said that it leaves?"""
        if other in self._left:
            return False
        try:
            news = line.test()
            if news is None:
                return False
            blamed, self._left[other] = heard(news, len(self._plan.ranks))
        except Error as error:
            raise failure(-(error.errno or errno.EIO), "running a graph", other) from error
        if self._left[other] == _FAILED:
            raise failure(-errno.ECANCELED, "running a graph", blamed)
        return True

    def _told(self) -> Error | None:
        """That a rank has failed says more than what comes of it."""
        with contextlib.suppress(Error):
            self._here.worker.progress()
        for other, line in self._lines.items():
            try:
                self._hear(other, line)
            except Error as error:
                if error.errno == errno.ECANCELED:
                    return error
        return None

    def absent(self, edge: PlanEdge, rank: int, step: int) -> None:
        """Raise it if that rank, at its other end, has left before that step."""
        if self._left.get(rank, _FAILED) <= step:
            raise failure(-errno.ECANCELED, f"edge {edge}: step {step}", rank)

    # ---- the end ----

    def _tell(self, steps: int) -> None:
        blamed = getattr(self._error, "blamed", None)
        for line in self._lines.values():
            # Who has gone need not know.
            with contextlib.suppress(Error, ValueError):
                line.send(NEWS.pack(self._rank if blamed is None else blamed, steps), 0)

    def close(self) -> None:
        """Wait until all that was given is sent, and all other ranks have run as many steps, and end it.

        It waits as long for others as a step does.
        Raises Error: as step(); ECANCELED: a rank has run fewer steps.
        """
        if self._closed:
            return
        try:
            if self._error is None:
                with self._failing():
                    self._part()
        finally:
            self._closed = True
            self._end(self._error)
            # Its traceback keeps what it has come through.
            self._error = None

    def _end(self, error: BaseException | None) -> None:
        """All of it, without waiting for what is on its way if there was an error."""
        for out in self._outs:
            for way in out.ways:
                way.forget()
        self._outs, self._ins = [], []
        for node in self._nodes:
            node.outs = {}
        self._stack.__exit__(type(error) if error else None, error, None)

    def _part(self) -> None:
        until = Deadline(self._timeout)
        ends = [*self._ins, *(way for out in self._outs for way in out.ways)]
        told = False
        while len(self._left) < len(self._lines) or not told:
            before = len(self._left)
            if not told and not any(end.busy for end in ends):
                self._tell(self._steps)
                told = True
                continue
            if self.sleep(self._steps, []) or len(self._left) > before:
                until = Deadline(self._timeout)
            early = [other for other, steps in self._left.items() if steps < self._steps]
            if early:
                raise failure(-errno.ECANCELED, f"running {self._steps} steps", early[0])
            if until.over:
                raise failure(-errno.ETIMEDOUT, "ending a graph",
                              min(set(self._lines) - set(self._left), default=None))

    def __enter__(self) -> Running:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: Any) -> None:
        if error is not None and self._error is None and not self._closed:
            self._error = error
            self._tell(_FAILED)
        self.close()


class _Step:
    """One step, while it runs."""

    def __init__(self, running: Running, number: int, fed: dict[str, Array]) -> None:
        self._running = running
        self._number = number
        self._fed = fed
        self._nodes = running._nodes
        # By nodes: how many inputs have not come.
        self._missing = [len(node.inputs) for node in self._nodes]
        self._ready = [node.number for node in self._nodes if not node.inputs]
        self._values: dict[tuple[str, int], Array] = {}
        # Of values: who has not read it.
        self._unread: dict[tuple[str, int], int] = {}
        self._coming = list(running._ins)
        self._came: dict[tuple[str, int], In | DynamicIn] = {}
        self._left = len(self._nodes)
        # Others write there when it was read.
        self._receives = running._plan.ranks[running._rank].receive_bytes
        self._results: dict[str, Any] = {}

    def run(self) -> dict[str, Any]:
        """All of it."""
        until = Deadline(self._running._timeout)
        turns = 0
        while self._left or self._running.waits():
            moved = self._running.go()
            moved = self._take() or moved
            node = self._next()
            if node:
                self._run(node)
            elif not moved and turns < _TURNS:
                turns += 1
                os.sched_yield()
                continue
            elif not moved and not self._wait(until):
                continue
            turns, until = 0, Deadline(self._running._timeout)
        return self._results

    def _take(self) -> bool:
        """What has come."""
        coming = []
        for one in self._coming:
            array = one.come(self._number)
            if array is None:
                coming.append(one)
                continue
            key = one.edge.source, one.edge.output
            self._came[key] = one
            self._there(key, array, one.readers)
        moved = len(coming) < len(self._coming)
        self._coming = coming
        return moved

    def _there(self, key: tuple[str, int], array: Array, readers: list[int]) -> None:
        self._values[key] = array
        self._unread[key] = len(readers)
        for number in readers:
            self._missing[number] -= 1
            if not self._missing[number]:
                heapq.heappush(self._ready, number)

    def _next(self) -> _Node | None:
        """The first node that may run."""
        waiting = []
        found = None
        while self._ready and found is None:
            node = self._nodes[heapq.heappop(self._ready)]
            if node.free(self._number):
                found = node
            else:
                waiting.append(node.number)
        for number in waiting:
            heapq.heappush(self._ready, number)
        return found

    def _run(self, node: _Node) -> None:
        given = self._given(node)
        self._left -= 1
        for output in node.types:
            if output not in given:
                raise GraphError(f"node {node.name!r} gave no output {output}")
            array = given[output]
            if output in node.outs:
                self._running.give(node, output, array, self._number)
            if output in node.readers:
                self._there((node.name, output), self._kept(array, self._receives), node.readers[output])
        if not node.types:
            results = [self._kept(array, None) for array in given.values()]
            self._results[node.name] = results[0] if len(results) == 1 else tuple(results)
        for key in node.inputs:
            self._unread[key] -= 1
            if not self._unread[key]:
                del self._values[key]
                if key in self._came:
                    self._came[key].read()

    def _given(self, node: _Node) -> dict[int, Array]:
        if node.name in self._fed:
            return {0: self._fed[node.name]}
        places = Places(node, self._number)
        made = self._running.call(node, [self._values[key] for key in node.inputs], places)
        if made is None:
            return places.given
        several = made if isinstance(made, (tuple, list)) else (made,)
        return {output: self._array(node, places, output, one) for output, one in enumerate(several)}

    @staticmethod
    def _array(node: _Node, places: Places, output: int, made: Any) -> Array:
        if made is None and output in places.given:
            return places.given[output]
        # NumPy's sums are numbers.
        return np.asarray(made) if np.isscalar(made) else array_of(made, f"output {output} of node {node.name!r}")

    def _kept(self, array: Array, within: int | None) -> Array:
        """It, or a copy if it is in so many bytes of the region from the first one on, or in any."""
        here = self._running._here
        if within != 0 and np.may_share_memory(array, here.memory[:within]):
            here.copied += array.nbytes
            array = array.copy()
        return array

    def _wait(self, until: Deadline) -> bool:
        """Asleep: has anything come?"""
        running = self._running
        waits = [(one.edge, one.edge.from_rank) for one in self._coming]
        waits += [(way.edge, way.edge.to_rank) for out in running._outs for way in out.ways if way.busy]
        if until.over:
            raise failure(-errno.ETIMEDOUT, f"edge {waits[0][0]}: step {self._number}", waits[0][1])
        moved = running.sleep(self._number, self._coming)
        moved = self._take() or moved
        if not moved:
            for edge, rank in waits:
                running.absent(edge, rank, self._number)
        return moved
