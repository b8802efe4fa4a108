# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""How the ranks of a plan find each other's memory."""

from __future__ import annotations

import contextlib
import errno
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from .._device import Device, Peer
from .._group import Group
from .._lib import Deadline, failure
from .._mailbox import Line
from .._memory import Arena, Region
from .._queue import Queue, Slot
from .._remote import Export, Remote, Right
from .._worker import Worker
from ._ends import DynamicIn, DynamicWay, Here, In, Out, Way, lanes_of
from ._plan import Plan, PlanEdge

# What ranks tell each other by lines: which one it is about, and after how many steps it leaves.
NEWS = struct.Struct("=IQ")


def heard(news: bytes, ranks: int) -> tuple[int, int]:
    """What was told.  Raises Error: EPROTO: that makes no sense."""
    if len(news) != NEWS.size or NEWS.unpack(news)[0] >= ranks:
        raise failure(-errno.EPROTO, "what a rank tells")
    rank, steps = NEWS.unpack(news)
    return rank, steps


def _entries(edges: list[PlanEdge]) -> int:
    """How many operations may be on their way: of each edge its steps by all queue pairs, and two waits."""
    return min(32768, 64 + sum(2 + 5 * edge.slots for edge in edges))


class Ends:
    """Makes the ends of a rank's edges, which end with the stack.

    What is made here others look for in lines() and connect().
    """

    def __init__(self, plan: Plan, rank: int, prefix: str, group: Group, dev: Device,
                 stack: contextlib.ExitStack) -> None:
        self._plan, self._rank, self._prefix, self._keep = plan, rank, prefix, stack.enter_context
        keep = self._keep
        self._mine = [edge for edge in plan.edges if rank in (edge.from_rank, edge.to_rank)]
        self._peers: dict[int, Peer] = {other: group.peer(other) for other in
                                        sorted({self._other(edge) for edge in self._mine})}
        self._qps = {other: peer.report().qps for other, peer in self._peers.items()}
        needs = plan.ranks[rank]
        # With nothing but what the library needs for itself the arena is small.
        arena = keep(Arena(dev, 0 if any(edge.kind == "dynamic" or edge.fallback for edge in self._mine) else 2 << 20))
        entries = _entries(self._mine)
        queue = keep(Queue(dev, entries))
        self._region = keep(Region(dev, needs.region_bytes)) if needs.region_bytes else None
        self.here = Here(queue, entries, self._region, arena, keep(Worker(dev, arena)))
        stack.callback(setattr, self.here, "memory", np.empty(0, np.uint8))
        if self._region and needs.receive_bytes:
            keep(Export(self._region, f"{prefix}/{rank}", Right.WRITE, 0, needs.receive_bytes))
        self._slots = {edge: self._slot(edge) for edge in self._mine if edge.kind != "dynamic"}
        self._dynamic = {edge: self._dynamic_end(edge) for edge in self._mine
                         if edge.kind == "dynamic" or edge.fallback}
        self._mailbox = keep(self.here.worker.mailbox(f"{prefix}/{rank}/box")) if self._peers else None

    def _other(self, edge: PlanEdge) -> int:
        return edge.from_rank + edge.to_rank - self._rank

    def _slot(self, edge: PlanEdge) -> Slot:
        assert self._region
        name = f"{self._prefix}/{self._rank}/{edge.number}"
        if edge.to_rank == self._rank:
            return self._keep(Slot(self._region, edge.offset, name))
        return self._keep(Slot(self._region, edge.credit_offset, f"{name}/read"))

    def _dynamic_end(self, edge: PlanEdge) -> Any:
        worker, peer = self.here.worker, self._peers[self._other(edge)]
        name = f"{self._prefix}/{edge.to_rank}/{edge.number}/dynamic"
        if edge.to_rank == self._rank:
            return self._keep(worker.dynamic_receiver(peer, name, edge.slots))
        return self._keep(worker.dynamic_sender(peer, name))

    def lines(self, timeout: float | None) -> dict[int, Line]:
        """One to each peer, by which both learn of each other's end: who has the higher rank begins it."""
        until = Deadline(timeout)
        lines: dict[int, Line] = {}
        if self._mailbox is None:
            return lines
        for other, peer in self._peers.items():
            if other < self._rank:
                line = self._keep(self._mailbox.connect(peer, f"{self._prefix}/{other}/box", until.seconds))
                line.send(NEWS.pack(self._rank, 0), until.seconds)
                lines[other] = line
        while len(lines) < len(self._peers):
            line = self._keep(self._mailbox.accept(until.seconds))
            lines[heard(line.recv(until.seconds), len(self._plan.ranks))[0]] = line
        return lines

    def connect(self, numbers: Mapping[str, int],
                timeout: float | None) -> tuple[list[In | DynamicIn], list[Out]]:
        """Find what others have, with one batch of names for each of them.

        numbers: of this rank's nodes.
        """
        found = self._find(timeout)
        ways: dict[tuple[str, int], list[Way | DynamicWay]] = {}
        ins: list[In | DynamicIn] = []
        # Who may send when an edge was read.
        frees = {edge.after: edge for edge in self._slots if edge.to_rank == self._rank}
        for edge in self._mine:
            if edge.from_rank == self._rank:
                way: Way | DynamicWay = DynamicWay(edge, self._dynamic[edge]) if edge.kind == "dynamic" else Way(
                    self.here, edge, self._qps[edge.to_rank], found[edge.to_rank], found[edge],
                    self._slots[edge], self._dynamic.get(edge))
                ways.setdefault((edge.source, edge.output), []).append(way)
                continue
            readers = [numbers[name] for name in edge.targets]
            if edge.kind == "dynamic":
                ins.append(DynamicIn(edge, self._dynamic[edge], readers))
                continue
            freed = frees[edge.number]
            assert self._region
            credit = self.here.queue.transfer(self._region, found[freed],
                                              freed.number % self._qps[freed.from_rank], found[freed])
            ins.append(In(self.here, edge, self._slots[edge], readers, freed, credit,
                          self._dynamic.get(edge)))
        self._connect_dynamic(timeout)
        return ins, [Out(self.here, some) for some in ways.values()]

    def _connect_dynamic(self, timeout: float | None) -> None:
        until = Deadline(timeout)
        left = list(self._dynamic.values())
        while left:
            over = until.over
            left = [end for end in left if not end._look(over)]

    def _find(self, timeout: float | None) -> dict[object, Remote]:
        """By edges their slots at the other end, and by ranks where tensors are sent to."""
        names: dict[object, tuple[Peer, str, Right]] = {}
        for edge in self._slots:
            other = self._other(edge)
            name = f"{self._prefix}/{other}/{edge.number}"
            if other == edge.from_rank:
                names[edge] = self._peers[other], f"{name}/read", Right.NOTIFY
            else:
                width = lanes_of(edge, self._qps[other])
                names[other] = self._peers[other], f"{self._prefix}/{other}", Right.WRITE
                names[edge] = self._peers[other], name, Right(Right.NOTIFY | width - 1 << 4)
        requests = self.here.arena.device.resolve(names.values(), timeout)
        return {name: self._keep(request.result()) for name, request in zip(names, requests, strict=True)}
