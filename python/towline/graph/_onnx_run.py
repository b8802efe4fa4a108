# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""Nodes of ONNX models as graph.run() takes them, each run by onnxruntime."""

from __future__ import annotations

import collections
import importlib
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._types import Array, address_of
from ._graph import BITS, AnyDim, Dim, Edge, Graph, GraphError
from ._onnx import Reader, takes

_NOTHING = np.empty(0)
Place = Callable[[int, tuple[int, ...]], Array]
Function = Callable[[Sequence[Array], Place], object]


def onnx_functions(model: Any, cut: Graph, rank: int, *, threads: int = 1) -> dict[str, Array | Function]:
    """What graph.run() wants of a rank's nodes: the array of an initializer, a function of any other one.

    model: a model of onnx's, or the path of its file; what is stored beside that is read.
    cut: from_onnx()'s graph of it, partitioned.
    threads: by how many onnxruntime computes a node; by one it gives the same bits each time.

    A function takes its inputs where they are.  What it computes it writes to where that is sent from, if
    it knows the shape before: all dims are known, or have names of dims of its inputs.

    Raises GraphError: the graph is not that model's, or has elements of less than a byte.  ImportError:
    onnx or onnxruntime is not installed.
    """
    onnx, runtime = importlib.import_module("onnx"), importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    # Warnings are of models that were never whole.
    options.log_severity_level = 3
    read = Reader(model, {})
    folder = os.path.dirname(os.fspath(model)) if isinstance(model, (str, os.PathLike)) else ""
    into: dict[str, list[Edge]] = collections.defaultdict(list)
    outof: dict[str, dict[int, Edge]] = collections.defaultdict(dict)
    for edge in cut.edges:
        into[edge.target].append(edge)
        outof[edge.source].setdefault(edge.output, edge)
        if BITS[edge.dtype] < 8:
            raise GraphError(f"edge {edge}: elements of {edge.dtype} have less than a byte")
    maker = _Maker(onnx, runtime, options, read, {made: value for value, made in read.made.items()})
    functions: dict[str, Array | Function] = {}
    for node in cut.nodes:
        if node.rank != rank:
            continue
        part = read.parts.get(node.name)
        if isinstance(part, onnx.TensorProto):
            functions[node.name] = onnx.numpy_helper.to_array(part, folder)
        elif isinstance(part, onnx.NodeProto):
            functions[node.name] = maker.function(node.name, part, into[node.name], outof[node.name])
        elif part is None:
            raise GraphError(f"node {node.name!r} is not in the model")
    return functions


class _Value(NamedTuple):
    """An input or output: its name, ONNX's number of its type, its dims; output: which one."""
    name: str
    kind: int
    dims: tuple[AnyDim, ...] | None
    output: int = 0


class _Maker(NamedTuple):
    """Makes functions of the nodes of a model; values: what each of its outputs is called."""
    onnx: Any
    runtime: Any
    options: Any
    read: Reader
    values: dict[tuple[str, int], str]

    def function(self, name: str, part: Any, into: Sequence[Edge], outof: dict[int, Edge]) -> _Function:
        """Of a node, and the edges from and to it."""
        taken = [self.values.get((edge.source, edge.output), "") for edge in into]
        if set(taken) != set(takes(part)):
            raise GraphError(f"node {name!r}: its edges are not the model's")
        # Of those that nobody takes what comes is a result.
        outputs = [number for number, value in enumerate(part.output)
                   if value and (number in outof or not outof)]
        infos = [self.read.value(value) for value in taken]
        results = [self.read.value(part.output[number]) for number in outputs]
        model = self.onnx.ModelProto(ir_version=self.read.model.ir_version,
                                     opset_import=self.read.model.opset_import,
                                     functions=self.read.model.functions,
                                     graph=self.onnx.helper.make_graph([part], "one", infos, results))
        session = self.runtime.InferenceSession(model.SerializeToString(), self.options,
                                                providers=["CPUExecutionProvider"])
        return _Function(
            session, [_Value(info.name, info.type.tensor_type.elem_type, edge.dims)
                      for info, edge in zip(infos, into)],
            [_Value(info.name, info.type.tensor_type.elem_type,
                    outof[number].dims if number in outof else None, number)
             for info, number in zip(results, outputs)])


class _Function:
    """A node, which is a model of its own."""

    def __init__(self, session: Any, inputs: list[_Value], outputs: list[_Value]) -> None:
        self._session = session
        self._inputs = inputs
        self._outputs = outputs

    def __call__(self, inputs: Sequence[Array], place: Place) -> object:
        binding = self._session.io_binding()
        # The runtime has their addresses.
        arrays = [np.asarray(array, order="C") for array in inputs]
        sizes: dict[str, int] = {}
        for value, array in zip(self._inputs, arrays, strict=True):
            binding.bind_input(value.name, "cpu", 0, value.kind, array.shape, address_of(array))
            sizes.update((dim.name, size) for dim, size in zip(value.dims or (), array.shape)
                         if isinstance(dim, Dim) and dim.name)
        found: dict[int, Array] = {}
        for value in self._outputs:
            shape = _shape(value.dims, sizes)
            if shape is None:
                binding.bind_output(value.name, "cpu")
            else:
                array = found[value.output] = place(value.output, shape)
                binding.bind_output(value.name, "cpu", 0, value.kind, shape, address_of(array))
        self._session.run_with_iobinding(binding)
        if len(found) == len(self._outputs):
            return None
        for value, given in zip(self._outputs, binding.get_outputs(), strict=True):
            if value.output not in found:
                found[value.output] = given.numpy()
        # Those between them nobody has asked for.
        every = tuple(found.get(number, _NOTHING) for number in range(max(found) + 1))
        return every if len(every) > 1 else every[0]


def _shape(dims: tuple[AnyDim, ...] | None, sizes: dict[str, int]) -> tuple[int, ...] | None:
    """What it is at this step, where inputs tell."""
    shape = [sizes.get(dim.name) if isinstance(dim, Dim) else dim for dim in dims or ()]
    known = tuple(size for size in shape if size is not None)
    return None if dims is None or len(known) < len(shape) else known
