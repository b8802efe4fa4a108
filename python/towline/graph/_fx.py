# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""Graphs of PyTorch modules: torch.fx finds the nodes, and running them at several sizes the shapes."""

from __future__ import annotations

import copy
import functools
import importlib
import math
import operator
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ._graph import BITS, AnyDim, Dim, Edge, Graph, GraphError, Node

# Operators whose result's size depends on the values of their arguments.
_BY_VALUE = {"nonzero", "argwhere", "unique", "unique_consecutive", "masked_select", "repeat_interleave",
             "bincount", "where", "getitem"}
# Of each run with other values: how large those of the examples are, and what such operators get.
_VARIANTS = ((1.0, 1), (100.0, 2), (0.01, 4))
# Numbers that the examples need not have; a module need not run with them.
_OTHERS: tuple[Callable[[Any], Any], ...] = (lambda one: one * 0, lambda one: one // 2, lambda one: one - 1)
_NUMBERS = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}

# The element type and dims of each tensor that a node gives; a number is one without dims.
_Shapes = list[tuple[str, tuple[int, ...]]]
# Of a run, by the names of nodes.
_Found = dict[str, _Shapes]
# One output of a node, as (its name, number), or a list or dict of such, or None for what is no tensor.
_Given = Any


def from_torch(module: Any, *examples: Any,
               free: Mapping[str, tuple[int, int] | Sequence[tuple[int, int]]] | None = None,
               bounds: Mapping[str, int] | None = None) -> Graph:
    """A graph of a module that is called with such examples; all nodes are of rank 0.

    A copy of the module runs: with the examples, with other values of the same shapes, and at several
    sizes of each free dimension, of which one is twice its own and one is its bound.  A dim that is
    another one with other values is not known, nor is one of a node that does not run with smaller numbers.
    One that changes with sizes is symbolic if it is a multiple of them in all runs, else not known; all
    others are known.  What differs in none of these runs is not seen: values of buffers stay as they are,
    and smaller and odd sizes at which the module does not run are left out.

    Parameters that are trained are nodes of op "Variable", other parameters and buffers those of op
    "Buffer", what the module is given are those of op "Input".

    free: (which example, which dimension of it), or several of them, by the name of the dimension.
    bounds: what free dimensions are at most; the memory must be there to run at that size.
    Raises GraphError: torch.fx cannot trace the module (file and line are named), it does not run at twice
    a size, at a bound or with other values, or gives tensors of another number or type then; a place or
    bound is of no dimension, or a bound less than the example's; a tensor is of a type that does not
    travel.  ImportError: PyTorch is not installed.
    """
    torch = importlib.import_module("torch")
    fx = importlib.import_module("torch.fx")
    places: dict[str, Any] = {name: [where] if isinstance(where[0], int) else where
                              for name, where in (free or {}).items()}
    sizes = _sizes(torch, examples, places)
    limits = dict(bounds or {})
    for name, bound in limits.items():
        if name not in sizes:
            raise GraphError(f"no free dimension is named {name!r}: there are {sorted(sizes)}")
        if bound < sizes[name]:
            raise GraphError(f"{name!r} is {sizes[name]} in the examples, more than its bound {bound}")
    own = copy.deepcopy(module)
    try:
        traced = fx.symbolic_trace(own)
    except Exception as error:      # pylint: disable=broad-exception-caught
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise GraphError(f"{_line(torch, error)}: this is not traceable by torch.fx, which runs it without "
                         f"values or sizes: {said}.  Use torch.where() and the like instead, or put it into "
                         "a function that torch.fx.wrap() has been told of") from error
    maker = _Maker(torch, fx, traced)
    given: list[Any] = []
    fx.node.map_aggregate(examples, given.append)
    gpus = {one.device for one in (*own.parameters(), *own.buffers(), *filter(torch.is_tensor, given))
            if one.device.type == "cuda"}
    with torch.no_grad(), torch.random.fork_rng(devices=sorted(gpus, key=str)):
        torch.random.default_generator.manual_seed(0)
        maker.begin(examples)
        varied = [maker.run(fx.node.map_aggregate(examples, functools.partial(_varied, torch, scale)),
                            "with other values of the same shapes", repeat) for scale, repeat in _VARIANTS]
        names = set(varied[0])
        varied += [maker.run(fx.node.map_aggregate(examples, functools.partial(_numbered, torch, other)),
                             "with other numbers", may_fail=True) for other in _OTHERS]
        resized = _resized(torch, maker, examples, places, sizes, limits)

    def dims(name: str, output: int) -> tuple[AnyDim, ...] | None:
        first = maker.shapes[name][output][1]
        if name not in names:
            return first
        if any(name not in run for run in varied):
            return None
        others = [run[name][output][1] for run in varied]
        runs = [(now, run[name][output][1]) for now, run in resized]
        if any(len(shape) != len(first) for shape in (*others, *(shape for _, shape in runs))):
            return None
        return tuple(None if any(shape[axis] != size for shape in others) else
                     _dim(size, [(now, shape[axis]) for now, shape in runs], sizes, limits)
                     for axis, size in enumerate(first))

    return Graph(tuple(maker.nodes.values()), tuple(
        Edge(source, target, maker.shapes[source][output][0], dims(source, output), output)
        for target, source, output in maker.edges))


def _line(torch: Any, error: Exception) -> str:
    """Which line of whose own code has raised it."""
    ours = (os.path.dirname(torch.__file__) + os.sep, __file__)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)
              if not frame.filename.startswith(ours)]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "the module"


def _sizes(torch: Any, examples: Sequence[Any], places: Mapping[str, Any]) -> dict[str, int]:
    """What size each free dimension has in the examples."""
    sizes: dict[str, int] = {}
    for name, where in places.items():
        for example, axis in where:
            if not (0 <= example < len(examples) and torch.is_tensor(examples[example]) and
                    0 <= axis < examples[example].dim()):
                raise GraphError(f"{name!r}: there is no dimension {axis} of example {example}")
            size = examples[example].shape[axis]
            if size < 1:
                raise GraphError(f"{name!r} is {size} in example {example}")
            if sizes.setdefault(name, size) != size:
                raise GraphError(f"{name!r} is {size} in example {example}, {sizes[name]} elsewhere")
    return sizes


def _varied(torch: Any, scale: float, example: Any) -> Any:
    """Other values of the same shape; integers are some of those that are there."""
    if not torch.is_tensor(example) or not example.numel():
        return example
    shape, device = example.shape, example.device
    if example.dtype == torch.bool:
        return torch.rand(shape).to(device) < 0.5
    if example.is_floating_point() or example.is_complex():
        return (torch.randn(shape) * scale * (torch.rand(shape) < 0.5)).to(device, example.dtype)
    return example.flatten()[torch.randint(example.numel(), (example.numel(),)).to(device)].reshape(shape)


def _numbered(torch: Any, other: Callable[[Any], Any], example: Any) -> Any:
    """Other integers, none of them negative that was not, and other numbers of Python's."""
    if isinstance(example, bool):
        return not example
    if isinstance(example, (int, float)):
        return max(other(example), 0) if example > 0 else example + 1
    if not torch.is_tensor(example) or not example.numel() or example.is_floating_point() or \
            example.is_complex():
        return example
    if example.dtype == torch.bool:
        return ~example
    made = torch.where(example > 0, other(example), example)
    return example + 1 if torch.equal(made, example) else made


def _resized(torch: Any, maker: _Maker, examples: Sequence[Any], places: Mapping[str, Any],
             sizes: Mapping[str, int], bounds: Mapping[str, int]) -> list[tuple[dict[str, int], _Found]]:
    """Runs at other sizes: these, and the shapes.  Raises GraphError: one that must run does not."""
    runs: list[tuple[dict[str, int], _Found]] = []

    def run(may_fail: bool, **others: int) -> bool:
        now, made = {**sizes, **others}, list(examples)
        for name, where in places.items():
            for example, axis in where:
                numbers = torch.arange(now[name], device=made[example].device) % sizes[name]
                made[example] = made[example].index_select(axis, numbers)
        try:
            found = maker.run(made, f"at {', '.join(f'{name}={size}' for name, size in others.items())}")
        except GraphError:
            if not may_fail:
                raise
            return False
        runs.append((now, found))
        return True

    for name, size in sizes.items():
        run(False, **{name: 2 * size})
        if bounds.get(name, size) not in (size, 2 * size):
            run(False, **{name: bounds[name]})
        # An odd size tells what is rounded; not all modules run at one.
        if not run(True, **{name: 2 * size + 1}):
            run(True, **{name: 3 * size})
        for less in {size - 1, *(size >> shift for shift in range(1, size.bit_length()))} - {0}:
            run(True, **{name: less})
    # All of them together: twice as large, odd, about half as large.
    for times, more, parts in ((2, 0, 1), (2, 1, 1), (1, 1, 2)) if len(sizes) > 1 else ():
        run(True, **{name: (times * size + more) // parts for name, size in sizes.items()})
    return runs


def _dim(size: int, runs: Sequence[tuple[Mapping[str, int], int]], sizes: Mapping[str, int],
         bounds: Mapping[str, int]) -> AnyDim:
    """A dim of that size, of which runs have what it is at other sizes.

    One that is a multiple of free dimensions in all of them is named so, and bounded if they are.
    """
    if all(other == size for _, other in runs):
        return size
    names = [name for name in sizes if any(
        other != size for now, other in runs if all(now[one] == sizes[one] for one in sizes if one != name))]
    times, rest = divmod(size, math.prod(sizes[name] for name in names))
    third = all(any(now[name] > sizes[name] and now[name] != 2 * sizes[name] for now, _ in runs)
                for name in names)
    if rest or not third or any(other != times * math.prod(now[name] for name in names)
                                for now, other in runs):
        return None
    most = math.prod(bounds[name] for name in names) * times if bounds.keys() >= set(names) else None
    return Dim("*".join([str(times)] * (times > 1) + names), most)


def _leaves(given: _Given) -> Iterator[tuple[str, int]]:
    """All outputs in it."""
    if isinstance(given, tuple):
        name, output = given
        yield name, output
    elif given is not None:
        for one in given.values() if isinstance(given, dict) else given:
            yield from _leaves(one)


class _Maker:
    """Runs what was traced; nodes and edges, each (target, source, output), are of the first run."""

    def __init__(self, torch: Any, fx: Any, traced: Any) -> None:
        self._torch = torch
        self._fx = fx
        self._traced = traced
        self._given: dict[Any, _Given] = {}
        # The nodes of variables, by where PyTorch has these.
        self._held: dict[int, str] = {}
        self.nodes: dict[str, Node] = {}
        self.edges: dict[tuple[str, str, int], None] = {}
        self.shapes: dict[str, _Shapes] = {}

    def begin(self, examples: Sequence[Any]) -> None:
        """The first run."""
        for node, args, value in self._values(examples, "", 0):
            if self._is_part(node, args):
                self._given[node] = self._given[node.args[0]][args[1]]
                continue
            variables = []
            op = getattr(node.target, "__name__", str(node.target))
            if node.op == "call_module":
                called = self._traced.get_submodule(node.target)
                variables = [self._variable(f"{node.target}.{name}", one)
                             for name, one in (*called.named_parameters(), *called.named_buffers())]
                op = type(called).__name__
            elif node.op == "get_attr" and self._torch.is_tensor(value):
                self._given[node] = (self._variable(node.target, value), 0)
                continue
            elif node.op == "placeholder":
                op = "Input"
            self.nodes[node.name] = Node(node.name, op)
            self.shapes[node.name] = []
            self._given[node] = self._noted(node.name, value, self.shapes[node.name])
            for given in (*((one, 0) for one in variables), *map(self._given.get, node.all_input_nodes)):
                self.edges.update({(node.name, *leaf): None for leaf in _leaves(given)})

    def run(self, examples: Sequence[Any], how: str, repeat: int = 0, may_fail: bool = False) -> _Found:
        """The shapes of another run, of which how says in errors what is special.

        repeat: where a result's size depends on the values of arguments these are 0 up to repeat - 1 in
        turn, or all 1 if it is 1; 0: as they come.
        may_fail: nodes that do not run are left out, and so are those that need them.
        """
        found: _Found = {}
        for node, args, value in self._values(examples, how, repeat, may_fail):
            if node.name in self.shapes and not self._is_part(node, args):
                found[node.name] = []
                self._noted(node.name, value, found[node.name])
                own, first = ([dtype for dtype, _ in shapes[node.name]] for shapes in (found, self.shapes))
                if own != first:
                    raise GraphError(f"node {node.name!r} gives tensors of {own} {how}, else of {first}")
        return found

    def _values(self, examples: Sequence[Any], how: str, repeat: int,
                may_fail: bool = False) -> Iterator[tuple[Any, Any, Any]]:
        """Each of fx's nodes, its arguments and its value."""
        # What a module writes to is not the caller's.
        waiting = list(self._fx.node.map_aggregate(
            tuple(examples), lambda one: one.clone() if self._torch.is_tensor(one) else one))
        left = {node: len(node.users) for node in self._traced.graph.nodes}
        values: dict[Any, Any] = {}
        for node in self._traced.graph.nodes:
            if node.op == "output":
                break
            if not values.keys() >= set(node.all_input_nodes):
                continue
            args, kwargs = (self._fx.node.map_arg(one, values.__getitem__)
                            for one in (node.args, node.kwargs))
            try:
                values[node] = self._value(node, args, kwargs, waiting, repeat)
            except Exception as error:      # pylint: disable=broad-exception-caught
                if may_fail:
                    continue
                raise GraphError(f"node {node.name!r} does not run{' ' * bool(how)}{how}: {error}") from error
            yield node, args, values[node]
            for used in node.all_input_nodes:
                left[used] -= 1
                if not left[used]:
                    del values[used]
        if waiting:
            raise GraphError(f"the module takes {len(waiting)} fewer than {len(examples)} examples")

    def _value(self, node: Any, args: Any, kwargs: Any, waiting: list[Any], repeat: int) -> Any:
        if node.op == "placeholder":
            if not waiting and not args:
                raise GraphError("there is no example for it")
            return waiting.pop(0) if waiting else args[0]
        if node.op == "get_attr":
            return operator.attrgetter(node.target)(self._traced)
        if repeat and getattr(node.target, "__name__", node.target) in _BY_VALUE and \
                not self._is_part(node, args):
            args, kwargs = self._repeated(node, args, kwargs, repeat)
        if node.op == "call_module":
            return self._traced.get_submodule(node.target)(*args, **kwargs)
        if node.op == "call_method":
            return getattr(args[0], node.target)(*args[1:], **kwargs)
        return node.target(*args, **kwargs)

    def _repeated(self, node: Any, args: Any, kwargs: Any, repeat: int) -> Any:
        """Arguments with other values, masks alone where there are some."""
        torch, masks = self._torch, (self._torch.bool, self._torch.uint8)
        tensors: list[Any] = []
        self._fx.node.map_aggregate((args, kwargs), lambda one: tensors.append(one))
        only = any(torch.is_tensor(one) and one.dtype in masks for one in tensors)
        # Integers that say which elements are taken say how many by their shape.
        if node.target is operator.getitem and not only:
            return args, kwargs

        def other(one: Any) -> Any:
            if not torch.is_tensor(one) or only and one.dtype not in masks:
                return one
            values = torch.ones(one.numel()) if repeat == 1 else torch.arange(one.numel()) % repeat
            return values.reshape(one.shape).to(one.device, one.dtype)
        return tuple(self._fx.node.map_aggregate(one, other) for one in (args, kwargs))

    @staticmethod
    def _is_part(node: Any, args: Any) -> bool:
        """Does it take one of a node's several outputs?"""
        return node.target is operator.getitem and isinstance(args[0], (tuple, list, dict))

    def _noted(self, name: str, value: Any, shapes: _Shapes) -> _Given:
        """What a value gives; its shapes are put to the others."""
        if isinstance(value, dict):
            return {key: self._noted(name, one, shapes) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._noted(name, one, shapes) for one in value]
        if not self._torch.is_tensor(value) and type(value) not in _NUMBERS:
            return None
        dtype = _NUMBERS.get(type(value)) or str(value.dtype).removeprefix("torch.")
        if dtype not in BITS:
            raise GraphError(f"node {name!r}: no tensor of {dtype} travels")
        shapes.append((dtype, tuple(getattr(value, "shape", ()))))
        return name, len(shapes) - 1

    def _variable(self, name: str, tensor: Any) -> str:
        """The node of a parameter or buffer, of which there is one however many use it."""
        if id(tensor) not in self._held:
            taken = {node.name for node in self._traced.graph.nodes if node.op != "get_attr"}
            while name in self.nodes or name in taken:
                name += "'"
            self._held[id(tensor)] = name
            self.nodes[name] = Node(name, "Variable" if tensor.requires_grad else "Buffer")
            self.shapes[name] = []
            self._noted(name, tensor, self.shapes[name])
        return self._held[id(tensor)]
