# SPDX-License-Identifier: GPL-2.0
"""A rank that runs its parts of graphs by NumPy, as its launcher's variables say.

	part.py

Prints what it has computed, and how many bytes were copied.
"""

import hashlib

import numpy as np

import cnn
import encoder
import towline
from towline import graph
from towline.graph import Graph

STEPS = 8
# Of static shapes, and of another length at each step.
MODELS = ((Graph(cnn.NODES, cnn.EDGES), cnn), (encoder.graph(), encoder))


def alone(made, functions, fed):
    """What the same functions give, one after the other."""
    values = dict([fed])
    for node in made.nodes:
        if node.name in functions:
            function = functions[node.name]
            inputs = [values[edge.source] for edge in made.edges if edge.target == node.name]
            values[node.name] = function(inputs, None) if callable(function) else function
    return values[made.nodes[-1].name]


def run(group, made, model):
    """All steps of one: what came of them, and how many bytes were copied."""
    plan = graph.plan(graph.pipeline(made, group.size))
    mine = [node.name for node in plan.graph.nodes if node.rank == group.rank]
    every = model.functions_of([node.name for node in made.nodes])
    seen = hashlib.sha256()
    with graph.run(plan, group.rank, model.functions_of(mine), group) as running:
        for step in range(STEPS):
            name, array = model.batch(step)
            for found in running.step({name: array} if name in mine else None).values():
                assert np.array_equal(found, alone(made, every, (name, array))), f"step {step}"
                seen.update(found.tobytes())
        return seen.hexdigest()[:16], running.copied_bytes


def main():
    """Runs them."""
    with towline.Device() as dev, towline.Group(dev, towline.World.detect()) as group:
        for made, model in MODELS:
            print(*run(group, made, model), flush=True)
        group.barrier()


if __name__ == "__main__":
    main()
