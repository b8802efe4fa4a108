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
    onnx = importlib.import_module("onnx")
    importlib.import_module("onnx.shape_inference")
    if isinstance(model, (str, os.PathLike)):
        model = onnx.load(os.fspath(model), load_external_data=False)
    try:
        inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError) as error:
        raise GraphError(f"shape inference: {str(error).strip()}") from error
    return _Reader(onnx, model.graph, inferred.graph, bounds or {}).graph()


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


class _Reader:
    """Makes nodes and edges of what the model has."""

    def __init__(self, onnx: Any, model: Any, inferred: Any, bounds: Mapping[str, int]) -> None:
        self._onnx = onnx
        self._model = model
        self._values = {one.name: one.type
                        for one in (*inferred.input, *inferred.value_info, *inferred.output)}
        self._held = {one.name: one for one in model.initializer}
        symbols = {dim.dim_param for one in (*model.input, *model.value_info, *model.output)
                   for dim in one.type.tensor_type.shape.dim if dim.dim_param}
        self._dims = {name: Dim(name, bounds.get(name)) for name in symbols}
        unknown = sorted(set(bounds) - symbols)
        if unknown:
            raise GraphError(f"no dimension is named {unknown[0]!r}: there are {sorted(symbols)}")

    def graph(self) -> Graph:
        """It."""
        nodes: dict[str, Node] = {}
        # Which node gives a value, as which output.
        made: dict[str, tuple[str, int]] = {}
        edges: list[Edge] = []

        def add(name: str, op: str) -> str:
            unique = name
            while unique in nodes:
                unique += "'"
            nodes[unique] = Node(unique, op)
            return unique

        used = {name for node in self._model.node for name in (*node.input, *_captured(node))}
        measured = {name for node in self._model.node if node.op_type == "BatchNormalization"
                    for name in node.input[3:5]}
        for one, tensor in self._held.items():
            if one in used:
                op = "Buffer" if one in measured else "Variable" if tensor.dims else "Constant"
                made[one] = add(one, op), 0
        for one in self._model.input:
            if one.name not in self._held:
                made[one.name] = add(one.name, "Input"), 0
        for number, node in enumerate(self._model.node):
            called = next((word for word in (node.name, *node.output) if word), f"{node.op_type}_{number}")
            name = add(called, node.op_type)
            # One that is taken twice comes once; one without a name is left out.
            for value in dict.fromkeys(word for word in (*node.input, *_captured(node)) if word):
                if value not in made:
                    raise GraphError(f"node {name!r}: nothing gives {value!r} before it")
                source, output = made[value]
                edges.append(Edge(source, name, *self._type(value, source), output))
            made.update({value: (name, output) for output, value in enumerate(node.output) if value})
        return Graph(tuple(nodes.values()), tuple(edges))

    def _type(self, value: str, source: str) -> tuple[str, tuple[AnyDim, ...] | None]:
        """Element type and dims of a value."""
        held = self._held.get(value)
        if held is not None:
            return self._dtype(held.data_type, source), tuple(held.dims)
        tensor = self._values[value].tensor_type if value in self._values else None
        if tensor is None or not tensor.elem_type:
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
