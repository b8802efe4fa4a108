# SPDX-License-Identifier: GPL-2.0
"""Two layers of a transformer's encoder, by NumPy: a graph, and the functions of its nodes.

Words [batch, seq] become [batch, seq, WIDTH]; both dimensions differ from step to step.
"""

import numpy as np

from towline.graph import Dim, Edge, Graph, Node

WORDS, WIDTH, LAYERS = 50, 16, 2
BATCH, SEQ = Dim("batch", 4), Dim("seq", 64)
SHAPES = {"x": (BATCH, SEQ, WIDTH), "scores": (BATCH, SEQ, SEQ), "words": (BATCH, SEQ)}
# Of a layer: each node's inputs, "" the layer's own, and what its output is like.
LAYER = {"query": ([""], "x"), "key": ([""], "x"), "value": ([""], "x"), "scores": (["query", "key"], "scores"),
         "mixed": (["scores", "value"], "x"), "sum1": (["", "mixed"], "x"), "up": (["sum1"], "x"),
         "sum2": (["sum1", "up"], "x")}


def _edges():
    yield Edge("words", "vectors", "int64", SHAPES["words"])
    before = "vectors"
    for layer in range(LAYERS):
        for name, (inputs, _) in LAYER.items():
            for one in inputs:
                shape = SHAPES[LAYER[one][1] if one else "x"]
                yield Edge(f"{layer}/{one}" if one else before, f"{layer}/{name}", "float32", shape)
        before = f"{layer}/sum2"


EDGES = tuple(_edges())


NAMES = ["words", "vectors", *(f"{layer}/{name}" for layer in range(LAYERS) for name in LAYER)]


def graph():
    """It."""
    return Graph(tuple(map(Node, NAMES)), EDGES)


def relu(x):
    """np.maximum(x, 0), in which QEMU 7.2 may fault."""
    return x * (x > 0)


def _soft(scores):
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    return scores / scores.sum(-1, keepdims=True)


def _function(name):
    weights = np.random.default_rng(sum(map(ord, name))).standard_normal((WIDTH, WIDTH)).astype("f4") / WIDTH

    def compute(inputs):
        kind = name.partition("/")[2] or name
        if kind == "vectors":
            table = np.random.default_rng(1).standard_normal((WORDS, WIDTH)).astype("f4")
            return table[inputs[0]]
        if kind == "scores":
            return _soft(inputs[0] @ inputs[1].transpose(0, 2, 1))
        if kind == "mixed":
            return inputs[0] @ inputs[1]
        if kind in ("sum1", "sum2"):
            return inputs[0] + inputs[1]
        made = inputs[0] @ weights
        return relu(made) if kind == "up" else made

    def run(inputs, place):
        made = compute(inputs)
        if place is None or name == NAMES[-1]:
            return made
        np.copyto(place(0, made.shape), made)
        return None
    return run


def functions_of(names):
    """Of the nodes of these names, but for what is fed."""
    return {name: _function(name) for name in names if name != "words"}


def batch(step):
    """What is fed at a step: of another length at each."""
    length = 5 + step * 17 % 60
    return "words", np.random.default_rng(step).integers(0, WORDS, (1 + step % 4, length))
