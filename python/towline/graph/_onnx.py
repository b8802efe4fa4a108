# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""Graphs of ONNX models, with the shapes that onnx.shape_inference finds."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

from ._graph import BITS, AnyDim, Dim, Edge, Graph, GraphError, Node


def from_onnx(model: Any, bounds: Mapping[str, int] | None = None) -> Graph:
    """A graph of a model of onnx's, or of the file of that path; all nodes are of rank 0.

    Initializers are nodes of op "Variable"; "Buffer" the means and variances of BatchNormalization, and
    "Constant" those without dims: the model does not say what is trained.  What it is given are nodes of op
    "Input".  Dimensions keep the names that the model has for them; those that only inference has named are
    not known.  Tensors that are stored beside a file are not read.

    bounds: what dimensions of these names are at most.
    Raises GraphError: shapes contradict each other, the type of a tensor is not known or none that
    travels, or a bound is of no dimension.  ImportError: onnx is not installed.
    """
    read = Reader(model, bounds or {})
    return Graph(tuple(read.nodes.values()), tuple(read.edges))


def _captured(node: Any) -> Iterator[str]:
    """What the bodies of If, Loop and Scan take from around them."""
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs):
            own = {one.name for one in (*body.input, *body.initializer)}
            for inner in body.node:
                yield from (name for name in (*inner.input, *_captured(inner)) if name not in own)
                own.update(inner.output)
            # A body may give what is around it as it is.
            yield from (one.name for one in body.output if one.name not in own)


def takes(node: Any) -> tuple[str, ...]:
    """The values that a node takes, in the order of its edges.

    One that is taken twice comes once; one without a name is left out.
    """
    return tuple(dict.fromkeys(word for word in (*node.input, *_captured(node)) if word))


class Reader:
    """Makes nodes and edges of what the model has.

    model: as it was read.
    nodes, edges: of the graph.
    parts: of each node, by its name, what of the model it is: a node, an initializer, or an input.
    made: of each value which node gives it, as which output.
    """

    def __init__(self, model: Any, bounds: Mapping[str, int]) -> None:
        self._onnx = importlib.import_module("onnx")
        importlib.import_module("onnx.shape_inference")
        inference = self._onnx.shape_inference
        if isinstance(model, (str, os.PathLike)):
            model = self._onnx.load(os.fspath(model), load_external_data=False)
        try:
            inferred = inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True).graph
        except (inference.InferenceError, self._onnx.checker.ValidationError) as error:
            raise GraphError(f"shape inference: {str(error).strip()}") from error
        self.model = model
        self._values = {one.name: one for one in (*inferred.input, *inferred.value_info, *inferred.output)}
        self._held = {one.name: one for one in model.graph.initializer}
        symbols = {dim.dim_param for one in (*model.graph.input, *model.graph.value_info, *model.graph.output)
                   for dim in one.type.tensor_type.shape.dim if dim.dim_param}
        self._dims = {name: Dim(name, bounds.get(name)) for name in symbols}
        unknown = sorted(set(bounds) - symbols)
        if unknown:
            raise GraphError(f"no dimension is named {unknown[0]!r}: there are {sorted(symbols)}")
        self.nodes: dict[str, Node] = {}
        self.edges: list[Edge] = []
        self.parts: dict[str, Any] = {}
        self.made: dict[str, tuple[str, int]] = {}
        self._read(model.graph)

    def _read(self, graph: Any) -> None:
        used = {name for node in graph.node for name in takes(node)}
        measured = {name for node in graph.node if node.op_type == "BatchNormalization"
                    for name in node.input[3:5]}
        for one, tensor in self._held.items():
            if one in used:
                op = "Buffer" if one in measured else "Variable" if tensor.dims else "Constant"
                self.made[one] = self._add(one, op, tensor), 0
        for one in graph.input:
            if one.name not in self._held:
                self.made[one.name] = self._add(one.name, "Input", one), 0
        for number, node in enumerate(graph.node):
            called = next((word for word in (node.name, *node.output) if word), f"{node.op_type}_{number}")
            name = self._add(called, node.op_type, node)
            for value in takes(node):
                if value not in self.made:
                    raise GraphError(f"node {name!r}: nothing gives {value!r} before it")
                source, output = self.made[value]
                self.edges.append(Edge(source, name, *self._type(value, source), output))
            self.made.update({value: (name, output) for output, value in enumerate(node.output) if value})

    def _add(self, name: str, op: str, part: Any) -> str:
        """One more node: its name."""
        while name in self.nodes:
            name += "'"
        self.nodes[name] = Node(name, op)
        self.parts[name] = part
        return name

    def value(self, name: str) -> Any:
        """What the model, or inference, says of a value."""
        held = self._held.get(name)
        if held is not None:
            return self._onnx.helper.make_tensor_value_info(name, held.data_type, held.dims)
        return self._values.get(name) or self._onnx.helper.make_empty_tensor_value_info(name)

    def _type(self, value: str, source: str) -> tuple[str, tuple[AnyDim, ...] | None]:
        """Element type and dims of a value."""
        tensor = self.value(value).type.tensor_type
        if not tensor.elem_type:
            raise GraphError(f"node {source!r}: of {value!r} it is not known that it is a tensor")
        dims = tuple(map(self._dim, tensor.shape.dim)) if tensor.HasField("shape") else None
        return self._dtype(tensor.elem_type, source), dims

    def _dim(self, dim: Any) -> AnyDim:
        if dim.HasField("dim_value"):
            return int(dim.dim_value) if dim.dim_value >= 0 else None
        return self._dims.get(dim.dim_param)

    def _dtype(self, number: int, source: str) -> str:
        try:
            name = str(self._onnx.helper.tensor_dtype_to_np_dtype(number).name)
        except (KeyError, ValueError):
            name = ""
        if name not in BITS:
            kind = self._onnx.TensorProto.DataType.Name(number)
            raise GraphError(f"node {source!r}: no tensor of {kind} travels")
        return name
