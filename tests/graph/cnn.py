# SPDX-License-Identifier: GPL-2.0
"""A small network that convolves handwritten digits, by NumPy: a graph, and the functions of its nodes."""

import functools
import pathlib
import sys

import numpy as np

from encoder import relu
from towline.graph import Edge, Node

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "Documentation/examples/training"))
import digits           # noqa: E402    pylint: disable=wrong-import-position

BATCH, FILTERS, CLASSES = 32, 8, 10
SHAPES = {"images": (BATCH, 8, 8), "conv": (BATCH, 6, 6, FILTERS), "relu": (BATCH, 6, 6, FILTERS),
          "pool": (BATCH, 3, 3, FILTERS), "classes": (BATCH, CLASSES), "kernel": (9, FILTERS),
          "dense": (9 * FILTERS, CLASSES)}
NODES = tuple(Node(name, "Variable" if name in ("kernel", "dense") else "") for name in (
    "images", "kernel", "dense", "conv", "relu", "pool", "classes"))
EDGES = tuple(Edge(source, target, "float32", SHAPES[source]) for source, target in (
    ("images", "conv"), ("kernel", "conv"), ("conv", "relu"), ("relu", "pool"), ("pool", "classes"),
    ("dense", "classes")))


def _conv(inputs):
    images, kernel = inputs
    windows = np.lib.stride_tricks.sliding_window_view(images, (3, 3), (1, 2))
    return windows.reshape(BATCH, 6, 6, 9) @ kernel


def _pool(inputs):
    return inputs[0].reshape(BATCH, 3, 2, 3, 2, FILTERS).max((2, 4))


COMPUTED = {"conv": _conv, "relu": lambda inputs: relu(inputs[0]), "pool": _pool,
            "classes": lambda inputs: inputs[0].reshape(BATCH, -1) @ inputs[1]}


def _function(name):
    if name in ("kernel", "dense"):
        return np.random.default_rng(len(name)).standard_normal(SHAPES[name]).astype("f4")

    def run(inputs, place):
        made = COMPUTED[name](inputs)
        if place is None or name == "classes":
            return made
        np.copyto(place(), made)
        return None
    return run


def functions_of(names):
    """Of the nodes of these names, but for what is fed."""
    return {name: _function(name) for name in names if name != "images"}


@functools.cache
def _pixels():
    return digits.load().pixels


def batch(step):
    """What is fed at a step."""
    return "images", _pixels()[step * BATCH:(step + 1) * BATCH].reshape(SHAPES["images"])
