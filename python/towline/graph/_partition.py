# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""Which rank runs which node: data parallel, as a pipeline, or as one says."""

from __future__ import annotations

import collections
import dataclasses
import fnmatch
import math
import re
from collections.abc import Container, Iterable, Mapping

import numpy as np

from ._graph import Edge, Graph, GraphError, Node

_TOO_MUCH = 1 << 61


def _beside(graph: Graph, placed: Container[str] = ()) -> dict[str, str | None]:
    """Of each node that can be anywhere the one that it is beside, None if it is alone.

    Anywhere can be what is fed, and what follows from variables and constants alone, unless it is placed.
    It is beside the first node that needs it, or if none does, what its latest source is beside.
    """
    sources, targets = collections.defaultdict(list), collections.defaultdict(list)
    for edge in graph.edges:
        sources[edge.target].append(edge.source)
        targets[edge.source].append(edge.target)
    fixed: set[str] = set()
    place = {node.name: number for number, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        own = sources[node.name]
        if all(name in fixed for name in own) and (own or node.op in ("Variable", "Buffer", "Constant")):
            fixed.add(node.name)
    beside: dict[str, str | None] = {}

    def those(names: Iterable[str]) -> list[str]:
        found = [beside.get(name, name) for name in names]
        return sorted((name for name in found if name), key=place.__getitem__)

    for node in reversed(graph.nodes):
        if node.name not in placed and (node.name in fixed or
                                        node.op == "Input" and not sources[node.name]):
            beside[node.name] = next(iter(those(targets[node.name])), None)
    for node in graph.nodes:
        if node.name in beside and not beside[node.name]:
            beside[node.name] = next(reversed(those(sources[node.name])), None)
    return beside


def by_hand(graph: Graph, places: Mapping[str, int]) -> Graph:
    """Each node at the rank that its name has in places, or else the first pattern that fits it.

    Patterns are names with a * or ? in them, which no node has.  Inputs, variables and constants that
    places has not, and what follows from the latter two, are where they are needed first.
    Raises GraphError: for a name or pattern of no node, or a node that is not in places.
    """
    names, ranks = {node.name for node in graph.nodes}, dict[str, int]()
    patterns = {word: re.compile(fnmatch.translate(word.replace("[", "[[]"))).match
                for word in places if word not in names and ("*" in word or "?" in word)}
    unused = {word for word in places if word not in names}
    for name in names:
        fits = [word for word, match in patterns.items() if match(name)]
        unused.difference_update(fits)
        if name in places or fits:
            ranks[name] = places[name if name in places else fits[0]]
    if unused:
        raise GraphError(f"there is no node {min(unused)!r} to be placed")
    beside = _beside(graph, ranks)
    for node in graph.nodes:
        if node.name not in ranks and node.name not in beside:
            raise GraphError(f"node {node.name!r} has no place")
    ranks.update({name: ranks[other] if other else 0 for name, other in beside.items()})
    return graph.placed(ranks, max([0, *ranks.values()]) + 1)


def data_parallel(graph: Graph, workers: int, servers: int) -> Graph:
    """A training of that model: the ranks of the servers, which hold its variables, then the workers'.

    Each worker has a copy of all other nodes, pulls the values (nodes of op "Pull"), and pushes gradients
    (of op "Gradient") to what a server does with them ("Update").  Variables go to the server that has
    the fewest bytes, the largest first; those of integers are constants, and stay with the workers.
    Names become longer: "worker7/", the old one, "/gradient".
    Raises GraphError: no workers, servers or variables, one whose size is not known, or a name that would
    have more than 255 bytes.
    """
    if workers < 1 or servers < 1:
        raise GraphError(f"{workers} workers and {servers} servers train nothing")
    ops = {node.name: node.op for node in graph.nodes}
    held = {edge.source: edge for edge in reversed(graph.edges)
            if ops[edge.source] == "Variable" and edge.dtype.startswith(("float", "bfloat"))}
    if not held:
        raise GraphError("there are no variables to be trained")
    size = {name: edge.nbytes or 0 for name, edge in held.items()}
    for name, edge in held.items():
        if edge.kind != "static":
            raise GraphError(f"variable {name!r} is not of one size")
    server, load = {}, [0] * servers
    names = [node.name for node in graph.nodes if node.name in held]
    for name in sorted(names, key=size.__getitem__, reverse=True):
        server[name] = load.index(min(load))
        load[server[name]] += size[name]
    nodes = [Node(name, "Variable", server[name]) for name in names]
    edges: list[Edge] = []
    for worker in range(workers):
        def own(name: str, worker: int = worker) -> str:
            return f"worker{worker}/{name}"
        rank = servers + worker
        nodes += [Node(own(node.name), "Pull" if node.name in held else node.op, rank)
                  for node in graph.nodes]
        nodes += [Node(own(f"{name}/gradient"), "Gradient", rank) for name in reversed(names)]
        edges += [dataclasses.replace(held[name], source=name, target=own(name), output=0) for name in names]
        edges += [dataclasses.replace(edge, source=own(edge.source), target=own(edge.target))
                  for edge in graph.edges]
        edges += [dataclasses.replace(held[name], source=own(f"{name}/gradient"), target=f"{name}/update",
                                      output=0) for name in reversed(names)]
    nodes += [Node(f"{name}/update", "Update", server[name]) for name in names]
    return Graph(tuple(nodes), tuple(edges), servers + workers, graph.slots, graph.share)


def pipeline(graph: Graph, stages: int, *, balance: float = 1.25, weights: Mapping[str, int] | None = None,
             sizes: Mapping[str, int] | None = None) -> Graph:
    """Nodes in as many stages, each a rank, in their order: so that the fewest bytes cross.

    balance: no stage weighs more than that many times the heaviest one of the most even cut.
    weights: what nodes weigh, 0 those that are not there; without it all that compute weigh the same.
    sizes: what symbolic dims count as, of "2*n" that n; else they count as their maximum, unknown ones as 1.
    Inputs, variables and constants are where they are needed first.
    Raises GraphError: fewer nodes compute than there are stages, or wrong numbers.
    """
    beside = _beside(graph)
    steps = [node.name for node in graph.nodes if node.name not in beside]
    if not 0 < stages <= len(steps) or balance < 1 or not math.isfinite(balance):
        raise GraphError(f"{len(steps)} nodes are not to be cut into {stages} stages, balance {balance}")
    place = {name: number for number, name in enumerate(steps)}
    place.update({name: place[other] if other else 0 for name, other in beside.items()})
    weight = [int(weights is None)] * len(steps)
    for name, heavy in (weights or {}).items():
        if name not in place or heavy < 0:
            raise GraphError(f"node {name!r} is not there, or weighs {heavy}")
        weight[place[name]] += heavy
    if sum(weight) >= _TOO_MUCH:
        raise GraphError("nodes weigh more than can be counted")
    even = _most_even(weight, stages)
    most = max(even, int(min(balance, stages) * even))
    ends = _cut(graph, place, weight, stages, most, sizes or {})
    return graph.placed({name: int(np.searchsorted(ends, number, "right"))
                         for name, number in place.items()}, stages)


def _most_even(weight: list[int], stages: int) -> int:
    """What the heaviest stage weighs where that is least."""
    low, high = max(weight), sum(weight)
    while low < high:
        middle = (low + high) // 2
        needed, filled = 1, 0
        for one in weight:
            filled += one
            if filled > middle:
                needed, filled = needed + 1, one
        low, high = (low, middle) if needed <= stages else (middle + 1, high)
    return low


def _cut(graph: Graph, place: Mapping[str, int], weight: list[int], stages: int, most: int,
         sizes: Mapping[str, int]) -> list[int]:
    """Where each stage ends.

    enter[begin] is what enters a stage from there to the present end: all outputs made before it that are
    used in it.  best[stage][end] is the least that crosses with so many stages up to that end.
    """
    count = len(weight)
    uses: list[list[Edge]] = [[] for _ in range(count)]
    for edge in graph.edges:
        uses[place[edge.target]].append(edge)
    if sum(edge.estimate(sizes) for edge in graph.edges) >= _TOO_MUCH:
        raise GraphError("the graph's edges have more bytes than can be counted")
    enter = np.zeros(count, np.int64)
    best = np.full((stages + 1, count + 1), _TOO_MUCH, np.int64)
    begins = np.zeros((stages + 1, count + 1), np.int64)
    best[0, 0] = 0
    used: dict[tuple[str, int], int] = {}
    lowest = filled = 0
    for last, edges in enumerate(uses):
        for edge in edges:
            before = used.get((edge.source, edge.output), place[edge.source])
            enter[before + 1:last + 1] += edge.estimate(sizes)
            used[edge.source, edge.output] = last
        filled += weight[last]
        while filled > most:
            filled -= weight[lowest]
            lowest += 1
        for stage in range(1, stages + 1):
            costs = best[stage - 1, lowest:last + 1] + enter[lowest:last + 1]
            begin = int(costs.argmin())
            best[stage, last + 1] = min(costs[begin], _TOO_MUCH)
            begins[stage, last + 1] = lowest + begin
    ends = [count]
    for stage in range(stages, 1, -1):
        ends.insert(0, int(begins[stage, ends[0]]))
    return ends[:-1]
