# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""Graphs, their nodes and edges, and their JSON."""

from __future__ import annotations

import collections
import dataclasses
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

_RANKS_MAX, _SLOTS_MAX = 65536, 64
# As many as the library's tensors have.
_DIMS_MAX = 8
_NAME_BYTES = 255
_UNSHOWN = re.compile("[\0-\x1f\x7f-\x9f\ud800-\udfff]")
# The names of the types of elements, by their bits.
_TYPES = {
    4: "int4 uint4 float4_e2m1fn",
    6: "float6_e2m3fn float6_e3m2fn",
    8: "bool int8 uint8 float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz "
       "float8_e5m2 float8_e5m2fnuz float8_e8m0fnu",
    16: "int16 uint16 float16 bfloat16",
    32: "int32 uint32 float32",
    64: "int64 uint64 float64 complex64",
    128: "complex128",
}
BITS = {name: bits for bits, names in _TYPES.items() for name in names.split()}


class GraphError(ValueError):
    """A graph that is none, or cannot be had: the node, edge or line is named."""


@dataclasses.dataclass(frozen=True)
class Dim:
    """A dimension that is not the same at every step.

    name: the same for dimensions that are always equal; "" where there is a max alone.
    max: the most that it can be, where that is known.
    """
    name: str = ""
    max: int | None = None


# Known, bounded or symbolic, unknown.
AnyDim = int | Dim | None


@dataclasses.dataclass(frozen=True)
class Node:
    """What one rank runs once a step.

    Of op "Variable" it holds what is trained, of op "Buffer" or "Constant" another value; of op "Input" it
    is fed.
    """
    name: str
    op: str = ""
    rank: int = 0


@dataclasses.dataclass(frozen=True)
class Edge:
    """A tensor that one node gives to another: the source's output of that number.

    dtype: as NumPy names it, "bfloat16" too.  dims: None where not even their number is known.
    slots: how many steps there is memory for, 0: as the graph has it.
    fallback: a tensor of another shape, where these dims are known or bounded, is sent as by a dynamic edge.
    """
    source: str
    target: str
    dtype: str
    dims: tuple[AnyDim, ...] | None
    output: int = 0
    slots: int = 0
    fallback: bool = False

    def __str__(self) -> str:
        return f"{self.source}:{self.output} -> {self.target}"

    @property
    def kind(self) -> str:
        """"static": of one shape at all steps; "bounded": never larger than nbytes; else "dynamic".

        This is what dims say.  A plan has an edge with a fallback as "bounded", static ones too.
        """
        if self.nbytes is None:
            return "dynamic"
        return "bounded" if any(isinstance(dim, Dim) for dim in self.dims or ()) else "static"

    @property
    def nbytes(self) -> int | None:
        """Its bytes, at most where it is bounded; None where it is dynamic."""
        most = [dim.max if isinstance(dim, Dim) else dim for dim in
                ((None,) if self.dims is None else self.dims)]
        known = [dim for dim in most if dim is not None]
        return self._bytes(known) if len(known) == len(most) else None

    def estimate(self, sizes: Mapping[str, int]) -> int:
        """Its bytes where sizes has what symbols stand for; else they are at their maximum, or 1."""
        return self._bytes([_estimate(dim, sizes) for dim in self.dims or ()])

    def _bytes(self, dims: list[int]) -> int:
        return (math.prod(dims) * BITS[self.dtype] + 7) // 8


def _estimate(dim: AnyDim, sizes: Mapping[str, int]) -> int:
    """Of a dim: what sizes has for its name, or for all that are multiplied in it, as in "2*batch*seq"."""
    if not isinstance(dim, Dim):
        return 1 if dim is None else dim
    if dim.name in sizes:
        return sizes[dim.name]
    parts = [sizes.get(part, int(part) if part.isdecimal() else None) for part in dim.name.split("*")]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) and dim.max is not None:
        return dim.max
    return math.prod(known)


@dataclasses.dataclass(frozen=True)
class Graph:
    """Nodes in the order of a step, and edges, which go forward in it.

    slots: of edges that do not say it, 0: the planner says.
    share: buffers may share memory where the planner finds that it is safe.
    Raises GraphError: names that are not there, or are there twice; ranks that are not there; edges that
    go backward, or are there twice, or of one output that are not alike.
    """
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    ranks: int = 1
    slots: int = 0
    share: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.ranks <= _RANKS_MAX:
            raise GraphError(f"a graph has no {self.ranks} ranks")
        _number("the graph", "slots", self.slots, _SLOTS_MAX)
        place: dict[str, int] = {}
        for node in self.nodes:
            _shown(f"node {len(place)}", node.name)
            if node.op:
                _shown(f"node {node.name!r}: its op", node.op)
            if node.name in place:
                raise GraphError(f"two nodes are named {node.name!r}")
            if not 0 <= node.rank < self.ranks:
                raise GraphError(f"node {node.name!r}: there is no rank {node.rank} of {self.ranks}")
            place[node.name] = len(place)
        alike: dict[tuple[str, int], Edge] = {}
        there: set[tuple[str, int, str]] = set()
        for edge in self.edges:
            _check(edge, place)
            first = alike.setdefault((edge.source, edge.output), edge)
            if (first.dtype, first.dims, first.fallback) != (edge.dtype, edge.dims, edge.fallback):
                raise GraphError(f"edge {edge} has another type, dims or fallback than {first}")
            if (edge.source, edge.output, edge.target) in there:
                raise GraphError(f"edge {edge} is there twice")
            there.add((edge.source, edge.output, edge.target))

    def crossing(self) -> tuple[Edge, ...]:
        """The edges between ranks: of those that take one output to one rank the first."""
        rank = {node.name: node.rank for node in self.nodes}
        found: dict[tuple[str, int, int], Edge] = {}
        for edge in self.edges:
            if rank[edge.source] != rank[edge.target]:
                found.setdefault((edge.source, edge.output, rank[edge.target]), edge)
        return tuple(found.values())

    def placed(self, ranks: Mapping[str, int], count: int) -> Graph:
        """The same with another rank for each node, of count ranks."""
        return dataclasses.replace(self, ranks=count, nodes=tuple(
            dataclasses.replace(node, rank=ranks[node.name]) for node in self.nodes))

    def to_json(self) -> str:
        """What from_json() and `towline plan` read: a line for each node and edge."""
        def lines(items: Iterable[object]) -> str:
            return ",\n".join(f"  {json.dumps(item)}" for item in items)

        def known(**fields: object) -> dict[str, object]:
            return {key: value for key, value in fields.items() if value}

        nodes = lines({"name": node.name, "rank": node.rank, **known(op=node.op)} for node in self.nodes)
        edges = lines({"from": edge.source, "output": edge.output, "to": edge.target, "dtype": edge.dtype,
                       "dims": None if edge.dims is None else list(map(_dim_out, edge.dims)),
                       **known(slots=edge.slots, fallback=edge.fallback)} for edge in self.edges)
        head = json.dumps({"ranks": self.ranks, "share": self.share, **known(slots=self.slots)})
        return f'{head[:-1]},\n "nodes": [\n{nodes}\n ],\n "edges": [\n{edges}\n ]}}\n'

    @classmethod
    def from_json(cls, text: str | bytes) -> Graph:
        """A graph of its JSON.  Raises GraphError: it is none, or has what graphs have not."""
        try:
            table = json.loads(text if isinstance(text, str) else text.decode(), object_pairs_hook=_once)
        except GraphError:
            raise
        except (ValueError, RecursionError) as error:
            raise GraphError(f"this is no JSON: {error}") from error
        found = _fields("the graph", table, {"ranks": int, "nodes": list, "edges": list, "slots": int,
                                             "share": bool}, slots=0, share=False)
        return cls(tuple(_node_in(number, one) for number, one in enumerate(found["nodes"])),
                   tuple(_edge_in(number, one) for number, one in enumerate(found["edges"])),
                   found["ranks"], found["slots"], found["share"])


def _shown(what: str, name: str) -> None:
    if not name or _UNSHOWN.search(name) or len(name.encode()) > _NAME_BYTES:
        raise GraphError(f"{what} is called {name!r}: that is no text of one line, "
                         f"of 1 to {_NAME_BYTES} bytes")


def _check(edge: Edge, place: Mapping[str, int]) -> None:
    for end in (edge.source, edge.target):
        if end not in place:
            raise GraphError(f"edge {edge}: there is no node {end!r}")
    if place[edge.source] >= place[edge.target]:
        raise GraphError(f"edge {edge} goes backward: nodes are in the order of a step")
    if edge.dtype not in BITS:
        raise GraphError(f"edge {edge}: no tensor of {edge.dtype!r} travels")
    dims = edge.dims or ()
    if len(dims) > _DIMS_MAX:
        raise GraphError(f"edge {edge} has {len(dims)} dims, more than {_DIMS_MAX}")
    for dim in dims:
        if isinstance(dim, Dim) and (dim.name or dim.max is None):
            _shown(f"edge {edge}: a dim", dim.name)
        _number(f"edge {edge}", "dim", dim.max if isinstance(dim, Dim) else dim, (1 << 63) - 1)
    _number(f"edge {edge}", "output", edge.output, (1 << 32) - 1)
    _number(f"edge {edge}", "slots", edge.slots, _SLOTS_MAX)
    if edge.fallback and (not dims or edge.nbytes is None):
        raise GraphError(f"edge {edge} has nothing to fall back from: its dims are {edge.dims}")


def _number(what: str, name: str, number: int | None, most: int) -> None:
    if number is not None and not 0 <= number <= most:
        raise GraphError(f"{what}: {name} is {number}")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        (twice, _), = collections.Counter(name for name, _ in pairs).most_common(1)
        raise GraphError(f"an object has {twice!r} twice")
    return table


def _fields(what: str, table: object, types: Mapping[str, type], **defaults: object) -> dict[str, Any]:
    """The fields of an object of JSON's, those of defaults where they are missing."""
    if not isinstance(table, dict):
        raise GraphError(f"{what} is no object")
    for key in table:
        if key not in types:
            raise GraphError(f"{what} has {key!r}, which is unknown")
    found = {**defaults, **table}
    for key, kind in types.items():
        if key not in found:
            raise GraphError(f"{what} lacks {key!r}")
        # A bool is no number.
        if kind is not object and type(found[key]) is not kind:
            raise GraphError(f"{what}: {key!r} is of {type(found[key]).__name__}, not {kind.__name__}")
        if key in table and (key, table[key]) in (("op", ""), ("slots", 0)):
            raise GraphError(f"{what}: {key!r} is {table[key]!r}")
    return found


def _named(what: str, number: int, table: object, *keys: str) -> str:
    """What an object is called in errors."""
    names = [table.get(key) for key in keys] if isinstance(table, dict) else [None]
    return f"{what} {' -> '.join(map(str, names)) if None not in names else number}"


def _node_in(number: int, table: object) -> Node:
    what = _named("node", number, table, "name")
    found = _fields(what, table, {"name": str, "rank": int, "op": str}, op="")
    return Node(found["name"], found["op"], found["rank"])


def _edge_in(number: int, table: object) -> Edge:
    what = _named("edge", number, table, "from", "to")
    found = _fields(what, table, {"from": str, "output": int, "to": str, "dtype": str, "dims": object,
                                  "slots": int, "fallback": bool}, output=0, slots=0, fallback=False)
    dims = found["dims"]
    if not isinstance(dims, list) and dims is not None:
        raise GraphError(f"{what}: 'dims' is of {type(dims).__name__}, not list")
    return Edge(found["from"], found["to"], found["dtype"],
                None if dims is None else tuple(_dim_in(what, dim) for dim in dims),
                found["output"], found["slots"], found["fallback"])


def _dim_in(what: str, dim: object) -> AnyDim:
    if dim is None or type(dim) is int:
        return dim
    if not isinstance(dim, dict):
        raise GraphError(f"{what}: {dim!r} is no dim")
    if dim.get("name") == "":
        raise GraphError(f"{what}: a dim is called ''")
    kinds = {"name": str, "max": int if "max" in dim else object}
    found = _fields(f"{what}: a dim", dim, kinds, name="", max=None)
    return Dim(found["name"], found["max"])


def _dim_out(dim: AnyDim) -> object:
    if not isinstance(dim, Dim):
        return dim
    return {key: value for key, value in dataclasses.asdict(dim).items() if value not in ("", None)}
