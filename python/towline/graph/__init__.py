# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""Graphs of what a step computes: which tensors pass between which nodes, and which ranks run these.

A graph is made by hand, of JSON, of an ONNX model or of a PyTorch module; what partitions it gives each
node its rank.  Its JSON is what `towline plan` reads.
"""

from ._fx import from_torch
from ._graph import Dim, Edge, Graph, GraphError, Node
from ._onnx import from_onnx
from ._partition import by_hand, data_parallel, pipeline

__all__ = ["Dim", "Edge", "Graph", "GraphError", "Node", "by_hand", "data_parallel", "from_onnx",
           "from_torch", "pipeline"]
