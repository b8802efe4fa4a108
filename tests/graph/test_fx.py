# SPDX-License-Identifier: GPL-2.0
"""Graphs of PyTorch's modules: what is static, symbolic and dynamic, and what is refused."""

import inspect
import pathlib
import re

import pytest
import torch
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp

from towline import graph
from towline.graph import Dim, GraphError

SEQ, BATCH = Dim("seq", 512), Dim("batch")


class Of(nn.Module):
    """A module of a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        """It."""
        return self.function(x)


class Layer(nn.Module):
    """Of an encoder: attention of four heads, and what comes after it."""

    def __init__(self, width):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.after = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))

    def forward(self, x, mask):
        """[batch, seq, width] to the same."""
        shape = x.size(0), x.size(1), 4, x.size(2) // 4
        query, key, value = (one(x).reshape(*shape).transpose(1, 2)
                             for one in (self.query, self.key, self.value))
        scores = (query @ key.transpose(-1, -2)).masked_fill(mask[:, None, None, :], -1e9).softmax(-1)
        mixed = (scores @ value).transpose(1, 2).reshape(x.size(0), x.size(1), x.size(2))
        x = self.norm1(x + self.out(mixed))
        return self.norm2(x + self.after(x))


class Encoder(nn.Module):
    """Words to classes, by two layers; the words' vectors are the classes', too."""

    def __init__(self, width=16, words=100):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(2))
        self.classes = nn.Linear(width, words, bias=False)
        self.classes.weight = self.words.weight

    def forward(self, ids, mask):
        """[batch, seq] to [batch * seq, words]."""
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x, mask)
        return self.classes(x.reshape(-1, x.size(2)))


def encoded(batch, seq):
    """What an encoder takes."""
    return torch.randint(100, (batch, seq)), torch.rand(batch, seq) < 0.2


def dims_of(made, name=None, output=0):
    """Of an output of a node, or of the first one that the last node takes and that is not held."""
    ops = {node.name: node.op for node in made.nodes}
    if name is None:
        name, output = next((edge.source, edge.output) for edge in made.edges
                            if edge.target == made.nodes[-1].name and
                            ops[edge.source] not in ("Variable", "Input"))
    return next(edge.dims for edge in made.edges if (edge.source, edge.output) == (name, output))


def test_encoder():
    """Lengths keep their names through all of it; what a pipeline sends is bounded."""
    module = Encoder()
    made = graph.from_torch(module, *encoded(2, 5), free={"batch": [(0, 0), (1, 0)], "seq": [(0, 1), (1, 1)]},
                            bounds={"seq": 512})
    assert dims_of(made, "words") == dims_of(made, "layers_0_norm2") == (BATCH, SEQ, 16)
    assert dims_of(made, "softmax_1") == (BATCH, 4, SEQ, SEQ)
    assert dims_of(made, "reshape_8") == (Dim("batch*seq"), 16)
    held = {node.name for node in made.nodes if node.op == "Variable"}
    assert held == {name for name, _ in module.named_parameters()}
    users = [edge.target for edge in made.edges if edge.source == "words.weight"]
    assert users == ["words", "classes"]
    cut = graph.pipeline(graph.from_torch(module, *encoded(2, 5), free={"seq": [(0, 1), (1, 1)]},
                                          bounds={"seq": 512}), 2)
    assert {(str(edge), edge.kind, edge.nbytes) for edge in cut.crossing()} == {
        ("add:0 -> layers_0_norm1", "bounded", 2 * 512 * 16 * 4),
        ("mask:0 -> getitem_1", "bounded", 2 * 512), ("words.weight:0 -> classes", "static", 100 * 16 * 4)}


def test_another_size():
    """At a third size, of which nothing was said, all shapes are what they were said to be."""
    module = Encoder()
    made = graph.from_torch(module, *encoded(2, 5), free={"batch": [(0, 0), (1, 0)], "seq": [(0, 1), (1, 1)]})
    sizes = {"batch": 3, "seq": 11, "batch*seq": 33}
    traced = fx.symbolic_trace(module)
    ShapeProp(traced).propagate(*encoded(3, 11))
    shapes = {node.name: node.meta["tensor_meta"].shape for node in traced.graph.nodes
              if hasattr(node.meta.get("tensor_meta"), "shape")}
    checked = 0
    for edge in made.edges:
        if edge.source in shapes:
            assert shapes[edge.source] == tuple(sizes[dim.name] if isinstance(dim, Dim) else dim
                                                for dim in edge.dims), edge
            checked += 1
    assert checked > 60


# The function, the shape of its example, and the dims of what the last node takes.
@pytest.mark.parametrize("function, shape, dims", [
    (lambda x: x.nonzero() + 1, (4, 3), (None, 2)),
    (lambda x: torch.nonzero(x, as_tuple=True)[1] + 1, (4, 3), (None,)),
    (lambda x: torch.where(x)[0] + 1, (4, 3), (None,)),
    (lambda x: torch.argwhere(x > 9) + 1, (4, 3), (None, 2)),
    (lambda x: x.unique() + 1, (6,), (None,)),
    (lambda x: torch.unique(x, dim=1) + 1, (3, 8), (3, None)),
    (lambda x: torch.unique_consecutive(x) + 1, (6,), (None,)),
    (lambda x: torch.masked_select(x, x > 1000) + 1, (3, 5), (None,)),
    (lambda x: x[x > 0] + 1, (3, 5), (None,)),
    (lambda x: x[:, x[0] > 0] + 1, (3, 5), (3, None)),
    (lambda x: x[x[:, 0] > 0] + 1, (3, 5), (None, 5)),
    (lambda x: x[x > 0].reshape(-1, 1).repeat(1, 7) + 1, (3, 5), (None, 7)),
    (lambda x: (x.nonzero().float() @ torch.ones(2, 9)) + 1, (3, 5), (None, 9)),
    (lambda x: torch.cat([x, x[x[:, 0] > 0]]) + 1, (3, 5), (None, 5)),
    (lambda x: torch.bincount((x > 0).flatten().long()) + 1, (3, 5), (None,)),
    (lambda x: torch.repeat_interleave(x[0], (x[0] > 0).long()) + 1, (2, 6), (None,)),
    (lambda x: x[:(x > 1.5).sum().item()] + 1, (40,), (None,)),
    (lambda x: torch.where(x > 0, x, -x) + 1, (3, 5), (3, 5)),
    (lambda x: x[torch.tensor([1, 0])] + 1, (3, 5), (2, 5)),
    (lambda x: x.topk(2)[0] + 1, (3, 5), (3, 2)),
    (lambda x: (x > 0).long() + 1, (3, 5), (3, 5)),
    (lambda x: x.flatten()[x.flatten().argsort()] + 1, (3, 5), (15,)),
])
def test_values(function, shape, dims):
    """What depends on values is not known, nor what follows from it; all else is."""
    assert dims_of(graph.from_torch(Of(function), torch.rand(*shape) + 1)) == dims


@pytest.mark.parametrize("function, dims", [
    (lambda x: x + 1 + 1, (Dim("n", 10), Dim("m"), 2)),
    (lambda x: x.flatten() + 1, (Dim("2*n*m"),)),
    (lambda x: torch.cat([x, x, x]) + 1, (Dim("3*n", 30), Dim("m"), 2)),
    (lambda x: torch.cat([x, x[:1]]) + 1, (None, Dim("m"), 2)),
    (lambda x: x[::2] + 1, (None, Dim("m"), 2)),
    (lambda x: x.sum((0, 1)) + 1, (2,)),
    (lambda x: x[:3] + 1, (None, Dim("m"), 2)),
    (lambda x: x[:1] + 1, (1, Dim("m"), 2)),
    (lambda x: x[-4:] + 1, (None, Dim("m"), 2)),
    (lambda x: torch.diagonal(x) + 1, (2, None)),
    (lambda x: nn.functional.pad(x, (0, 0, 0, 0, 0, -x.shape[0] % 4)) + 1, (None, Dim("m"), 2)),
    (lambda x: nn.functional.pad(x, (0, 0, 0, 0, 0, -x.shape[0] % 2)) + 1, (None, Dim("m"), 2)),
    (lambda x: x.squeeze(1) + 1, None),
])
def test_sizes(function, dims):
    """What a dimension is of free ones."""
    made = graph.from_torch(Of(function), torch.rand(4, 1 if dims is None else 3, 2),
                            free={"n": (0, 0), "m": (0, 1)}, bounds={"n": 10})
    assert dims_of(made) == dims


def test_square():
    """Each of two names by itself does not change it, both do."""
    made = graph.from_torch(Of(lambda x: torch.diagonal(x) + 1), torch.rand(4, 4),
                            free={"n": (0, 0), "m": (0, 1)})
    assert dims_of(made) == (None,)


def test_even():
    """A module that runs at even sizes alone is bounded nevertheless."""
    made = graph.from_torch(Of(lambda x: x.reshape(-1, 2).repeat(1, 2).flatten() + 1), torch.rand(6),
                            free={"n": (0, 0)}, bounds={"n": 40})
    assert dims_of(made) == (Dim("2*n", 80),)


class With(nn.Module):
    """A module of a function of two."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, given):
        """It."""
        return self.function(x, given)


X = torch.arange(12.).reshape(4, 3)


@pytest.mark.parametrize("function, given, dims", [
    (lambda x, mask: x[:, :mask.sum(1).max()] + 1, torch.ones(2, 3, dtype=torch.int64), (4, None)),
    (lambda x, n: x[:n] + 1, torch.tensor(4), (None, 3)),
    (lambda x, n: x.narrow(0, 0, n.item()) + 1, torch.tensor(4), (None, 3)),
    (lambda x, n: x[:n] + 1, torch.tensor(0), (None, 3)),
    (lambda x, n: x[:n] + 1, torch.tensor([-1]), (None, 3)),
    (lambda x, n: x[:n.sum()] + 1, torch.tensor([True]), (None, 3)),
    (lambda x, ids: nn.functional.one_hot(ids) + 1, torch.tensor([2, 2, 2]), (3, None)),
    (lambda x, ids: nn.functional.one_hot(ids, 5) + 1, torch.tensor([2, 2, 2]), (3, 5)),
    (lambda x, given: given[1][:given[0].sum().item()] + 1, [torch.ones(2, dtype=torch.int32), X], (None, 3)),
    (lambda x, given: given["x"][:given["n"]] + 1, {"n": torch.tensor(3), "x": X}, (None, 3)),
    (lambda x, k: x[:, :k] + 1, 2, (4, None)),
    (lambda x, given: x[:, :given[0]] + 1, [0], (4, None)),
    (lambda x, k: nn.functional.interpolate(x[None], scale_factor=k) + 1, 2.0, None),
    (lambda x, k: x.reshape(k, 6) + 1, 2, None),
    (lambda x, k: x.sum(1, keepdim=k) + 1, True, None),
    (lambda x, k: (x * k)[:, :2] + 1, 2, (4, 2)),
])
def test_numbers(function, given, dims):
    """What depends on integers is not known, also where they are all equal, in lists, or Python's."""
    assert dims_of(graph.from_torch(With(function), X, given)) == dims


def test_outputs():
    """Each output of a node by itself, and numbers."""
    class Several(nn.Module):
        """A recurrent layer, and functions of several outputs."""

        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(3, 5)

        def forward(self, x):
            """Some of what they give."""
            out, state = self.rnn(x)[0], self.rnn(x)[1]
            return out + 1, state[1] * 2, torch.max(x, 0)[0] + 1, x.split(2)[0] + x.size(0)

    made = graph.from_torch(Several(), torch.rand(4, 2, 3), free={"batch": (0, 1)})
    given = {(edge.source, edge.output, edge.dtype): (edge.dims, edge.target) for edge in made.edges
             if edge.source in ("rnn", "rnn_1", "max_1", "split", "size")}
    assert given == {("rnn", 0, "float32"): ((4, BATCH, 5), "add"),
                     ("rnn_1", 2, "float32"): ((1, BATCH, 5), "mul"),
                     ("max_1", 0, "float32"): ((BATCH, 3), "add_1"),
                     ("split", 0, "float32"): ((2, BATCH, 3), "add_2"), ("size", 0, "int64"): ((), "add_2")}


class Holds(nn.Module):
    """Uses a parameter twice, and what is in a dict."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, given):
        """It."""
        return given["x"] * self.scale, (given["y"][0] * self.scale).nonzero() + 1


def test_given():
    """What is in a tuple, list or dict that a module is given; a parameter of its own."""
    example = {"x": torch.ones(2, 3), "y": (torch.ones(4, 3),)}
    made = graph.from_torch(Holds(), example)
    assert [(node.name, node.op) for node in made.nodes] == [
        ("given", "Input"), ("scale", "Variable"), ("mul", "mul"), ("mul_1", "mul"), ("nonzero", "nonzero"),
        ("add", "add")]
    assert {str(edge): edge.dims for edge in made.edges} == {
        "given:0 -> mul": (2, 3), "scale:0 -> mul": (3,), "given:1 -> mul_1": (4, 3),
        "scale:0 -> mul_1": (3,), "mul_1:0 -> nonzero": (4, 3), "nonzero:0 -> add": (None, 2)}


class Branches(nn.Module):
    """Goes on as a value is."""

    def forward(self, x):
        """It."""
        if x.sum() > 0:
            return x
        return -x


class Loops(nn.Module):
    """So often as a value is."""

    def forward(self, x):
        """It."""
        for _ in range(x.long()):
            x = x + 1
        return x


class Long(nn.Module):
    """Goes on as a size is."""

    def forward(self, x):
        """It."""
        if x.shape[0] > 1:
            return x
        return -x


class Assigns(nn.Module):
    """Writes to a part of it."""

    def forward(self, x):
        """It."""
        x[0] = 1
        return x


class Counts(nn.Module):
    """Makes as many as a value is."""

    def forward(self, x):
        """It."""
        return torch.arange(x.sum().item())


@pytest.mark.parametrize("module, text", [
    (Branches, "if x.sum() > 0"), (Loops, "for _ in range"), (Long, "if x.shape"), (Assigns, "x[0] = 1"),
    (Counts, "torch.arange(")])
def test_control(module, text):
    """The line is named, also within another module."""
    lines, first = inspect.getsourcelines(module)
    line = first + next(number for number, one in enumerate(lines) if text in one)
    for made in (module(), nn.Sequential(nn.ReLU(), module())):
        with pytest.raises(GraphError, match=f"^{re.escape(str(pathlib.Path(__file__)))}:{line}: "
                           "this is not traceable by torch.fx"):
            graph.from_torch(made, torch.ones(3))


def test_leaves_alone():
    """The module, its buffers, random numbers and examples are what they were."""
    module = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout())
    before = {name: one.clone() for name, one in module.state_dict().items()}
    torch.manual_seed(5)
    made = graph.from_torch(module, torch.rand(4, 3, generator=torch.Generator()), free={"batch": (0, 0)})
    assert torch.equal(torch.rand(3), torch.rand(3, generator=torch.Generator().manual_seed(5)))
    assert all(torch.equal(one, before[name]) for name, one in module.state_dict().items())
    example = torch.zeros(3)
    graph.from_torch(Of(lambda x: x.add_(1)), example)
    assert not example.any()
    for op, names in (("Variable", ("weight", "bias")),
                      ("Buffer", ("running_mean", "running_var", "num_batches_tracked"))):
        assert {node.name for node in made.nodes if node.op == op} == {f"0.{name}" for name in names}
    trained = graph.data_parallel(made, 1, 1)
    updated = [node.name for node in trained.nodes if node.op == "Update"]
    assert updated == ["0.weight/update", "0.bias/update"]


@pytest.mark.parametrize("function, words, said", [
    (lambda x: x, {"free": {"n": (1, 0)}}, "'n': there is no dimension 0 of example 1"),
    (lambda x: x, {"free": {"n": (0, 2)}}, "'n': there is no dimension 2 of example 0"),
    (lambda x: x, {"free": {"n": [(0, 0), (0, 1)]}}, "'n' is 3 in example 0"),
    (lambda x: x, {"free": {"n": (0, 0)}, "bounds": {"m": 3}}, "no free dimension is named 'm'"),
    (lambda x: x, {"free": {"n": (0, 0)}, "bounds": {"n": 3}},
     "'n' is 4 in the examples, more than its bound 3"),
    (lambda x: x + torch.zeros(9, 1)[:x.size(0)], {"free": {"n": (0, 0)}, "bounds": {"n": 10}},
     "this is not traceable by torch.fx, which runs it without values or sizes: "),
    (lambda x: nn.functional.one_hot(torch.ones_like(x).cumsum(0).long(), 10) + 1,
     {"free": {"n": (0, 0)}, "bounds": {"n": 10}}, "'one_hot' does not run at n=10"),
    (lambda x: x.reshape(3, 4) + 1, {"free": {"n": (0, 0)}}, "node 'reshape' does not run at n=8"),
    (lambda x: x.reshape(5, 5) + 1, {}, "node 'reshape' does not run: "),
    (lambda x: x[x > 0].reshape(-1, 12) + 1, {}, "does not run with other values of the same shapes"),
    (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize(), {}, "no tensor of qint8"),
    (lambda x: x.split(2)[0] + x.split(2)[1], {"free": {"n": (0, 0)}}, "node 'split' gives tensors of"),
])
def test_refused(function, words, said):
    """It says which node or dimension, and why."""
    with pytest.raises(GraphError, match=said):
        graph.from_torch(Of(function), torch.rand(4, 3), **words)


def test_examples():
    """As many as the module takes."""
    for examples, said in (((), "'x' does not run: there is no example"),
                           ([torch.ones(1)] * 3, "takes 2 fewer than 3")):
        with pytest.raises(GraphError, match=said):
            graph.from_torch(Of(torch.neg), *examples)
