# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""Graphs of what a step computes: which tensors pass between which nodes, and which ranks run these.

A graph is made by hand, of JSON, of an ONNX model or of a PyTorch module; what partitions it gives each
node its rank.  Its JSON is what `towline plan` reads.
"""

from ._fx import from_torch
from ._graph import Dim, Edge, Graph, GraphError, Node
from ._onnx import from_onnx
from ._onnx_run import onnx_functions
from ._partition import by_hand, data_parallel, pipeline
from ._plan import Plan, PlanEdge, PlanRank, plan
from ._run import Places, Running, run

__all__ = ["Dim", "Edge", "Graph", "GraphError", "Node", "Places", "Plan", "PlanEdge", "PlanRank", "Running",
           "by_hand", "data_parallel", "from_onnx", "from_torch", "onnx_functions", "pipeline", "plan", "run"]
