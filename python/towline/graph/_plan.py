# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""Plans: how the tensors of a graph move, as tow_plan_create() decides it."""

from __future__ import annotations

import ctypes
import dataclasses
import errno
from typing import NamedTuple

from .. import _lib
from .._lib import check, failure, lib
from .._memory import values_of
from ._graph import BITS, AnyDim, Dim, Edge, Graph, GraphError

_KINDS = {1: "static", 2: "bounded", 3: "dynamic"}
_UNKNOWN, _NDIM_UNKNOWN, _NONE, _SHARE, _FALLBACK = -1, 0xffffffff, 0xffffffff, 1, 1
# What a bounded tensor begins with: its dims, of 8 bytes each.
LINE = 64


@dataclasses.dataclass(frozen=True)
class PlanEdge:
    """An output that goes from one rank to another, as struct tow_plan_edge; sizes in bytes.

    number: which of the plan's edges it is.
    source, output: what is sent; targets: the nodes that take it, in their order.
    dtype, dims, fallback: as the graph has them.
    """
    number: int
    source: str
    output: int
    targets: tuple[str, ...]
    from_rank: int
    to_rank: int
    dtype: str
    dims: tuple[AnyDim, ...] | None
    kind: str
    slots: int
    after: int
    steps: int
    tensor_bytes: int
    stride: int
    offset: int
    tensors_offset: int
    tensors_bytes: int
    credit_offset: int
    send_offset: int
    send_bytes: int
    fallback: bool

    def __str__(self) -> str:
        return f"{self.source}:{self.output} -> {', '.join(self.targets)}"


class PlanRank(NamedTuple):
    """What a rank needs, as struct tow_plan_rank; sizes in bytes."""
    nodes: int
    receives: int
    sends: int
    peers: int
    exports: int
    registrations: int
    region_bytes: int
    receive_bytes: int
    send_bytes: int
    pool_bytes: int


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a graph's tensors move: plan()."""
    graph: Graph
    edges: tuple[PlanEdge, ...]
    ranks: tuple[PlanRank, ...]


def plan(graph: Graph) -> Plan:
    """The plan of a graph whose nodes have their ranks: the same one on every rank; opens no device.

    Raises GraphError: an edge, which is named, or what a rank needs is larger than memory can be.
    """
    place = {node.name: number for number, node in enumerate(graph.nodes)}
    nodes = (_lib.GraphNode * max(1, len(graph.nodes)))(*(_lib.GraphNode(node.rank) for node in graph.nodes))
    edges = (_lib.GraphEdge * max(1, len(graph.edges)))(*(_edge_in(edge, place) for edge in graph.edges))
    attr = _lib.PlanAttr(flags=_SHARE * graph.share, ranks=graph.ranks, slots=graph.slots,
                         node_count=len(graph.nodes), edge_count=len(graph.edges), nodes=nodes, edges=edges)
    made, node, edge = ctypes.c_void_p(), ctypes.c_uint32(), ctypes.c_uint32()
    result = lib.tow_plan_create(attr, made, node, edge)
    if result == -errno.EOVERFLOW and edge.value != _NONE:
        raise GraphError(f"edge {graph.edges[edge.value]}: no memory is as large as that")
    if result:
        raise failure(result, "planning")
    try:
        return _read(graph, made)
    finally:
        lib.tow_plan_destroy(made)


def _edge_in(edge: Edge, place: dict[str, int]) -> _lib.GraphEdge:
    # Which type it is makes no difference but for its size.
    kind = _lib.TensorType(_lib.DType(0, BITS[edge.dtype], 1), _NDIM_UNKNOWN)
    made = _lib.GraphEdge(place[edge.source], edge.output, place[edge.target], edge.slots,
                          _FALLBACK * edge.fallback, 0, kind)
    for number, dim in enumerate(edge.dims or ()):
        most = dim.max if isinstance(dim, Dim) else None
        made.type.dims[number] = dim if isinstance(dim, int) else _UNKNOWN
        made.most[number] = _UNKNOWN if most is None else most
    if edge.dims is not None:
        made.type.ndim = len(edge.dims)
    return made


def _read(graph: Graph, made: ctypes.c_void_p) -> Plan:
    count = lib.tow_plan_edge_count(made)
    targets: list[list[int]] = [[] for _ in range(count)]
    place = {node.name: number for number, node in enumerate(graph.nodes)}
    for number, edge in enumerate(graph.edges):
        carrier = lib.tow_plan_edge_of(made, number)
        if carrier != _NONE:
            targets[carrier].append(place[edge.target])
    edges = []
    for number in range(count):
        info = _lib.PlanEdge()
        check(lib.tow_plan_edge_info(made, number, info), "a plan")
        edge = graph.edges[info.edge]
        edges.append(PlanEdge(
            number, edge.source, edge.output, tuple(graph.nodes[at].name for at in sorted(targets[number])),
            info.from_rank, info.to_rank, edge.dtype, edge.dims, _KINDS[info.kind], info.slots, info.after,
            info.steps, info.tensor_bytes, info.stride, info.offset, info.tensors_offset, info.tensors_bytes,
            info.credit_offset, info.send_offset, info.send_bytes, edge.fallback))
    ranks = []
    for number in range(graph.ranks):
        needs = _lib.PlanRank()
        check(lib.tow_plan_rank_info(made, number, needs), "a plan")
        ranks.append(values_of(needs, PlanRank))
    return Plan(graph, tuple(edges), tuple(ranks))
