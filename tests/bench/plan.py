#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""A tensor a step from one node to the other by a plan, where the largest element is found and sent back.

	plan.py RANK ROOT [-k static|both] [-s BYTES] [-n STEPS]

Rank 0, which is at ROOT, prints microseconds: of static alone the median of all steps; of both, pairs of the
medians of some steps with a static edge, whose place was planned, and of as many with a dynamic one.
"""

import argparse
import statistics
import time

import numpy as np

import towline
from towline import graph
from towline.graph import Dim, Edge, Graph, Node

WARM, PAIRS = 5, 9


def plan_of(dim):
    """Of a tensor of that dim."""
    return graph.plan(Graph((Node("give"), Node("most", rank=1), Node("take")),
                            (Edge("give", "most", "float32", (dim,)),
                             Edge("most", "take", "float32", ())), 2))


class Giver:
    """Two tensors of zeroes by turns, of which one element is the step's number."""

    def __init__(self, count):
        self._count = count
        self._arrays = {}
        self._steps = 0

    def give(self, _inputs, place):
        """The next one."""
        at = self._steps % 2
        self._steps += 1
        # Where a static one is sent from is the same at every second step.
        if at not in self._arrays:
            self._arrays[at] = place(0, (self._count,))
            self._arrays[at][:] = 0
        array = self._arrays[at]
        array[self._steps % self._count] = self._steps
        return array

    def take(self, inputs, _place):
        """Is it that?"""
        if inputs[0] != self._steps:
            raise SystemExit(f"another tensor has come: {inputs[0]}, not {self._steps}")


def most(inputs, place):
    """The largest element."""
    np.max(inputs[0], out=place())


def main():
    """Runs."""
    words = argparse.ArgumentParser()
    words.add_argument("rank", type=int)
    words.add_argument("root")
    words.add_argument("-k", default="both", choices=("static", "both"))
    words.add_argument("-s", type=int, default=16384)
    words.add_argument("-n", type=int, default=60)
    asked = words.parse_args()
    count = asked.s // 4
    dims = [count] if asked.k == "static" else [count, Dim("count")]
    with towline.Device() as dev, towline.Group(dev, towline.World(asked.rank, 2, asked.root)) as group:
        running = []
        for dim in dims:
            giver = Giver(count)
            functions = {"most": most} if asked.rank else {"give": giver.give, "take": giver.take}
            running.append(graph.run(plan_of(dim), asked.rank, functions, group, trace=False))
        measure(running, asked)
        copied = [one.copied_bytes for one in running]
        for one in running:
            one.close()
        if asked.rank == 0 and asked.k == "static":
            print(f"copied_bytes {copied[0]}")


def steps(running, count):
    """The median of so many, in microseconds."""
    took = []
    for _ in range(count):
        begun = time.perf_counter()
        running.step()
        took.append((time.perf_counter() - begun) * 1e6)
    return statistics.median(took)


def measure(running, asked):
    """Static, and dynamic if that is there, by turns."""
    for one in running:
        steps(one, WARM)
    for _ in range(PAIRS if asked.k == "both" else 1):
        took = [steps(one, asked.n) for one in running]
        if asked.rank == 0:
            print(f"pair {took[0]:.1f} {took[1]:.1f}" if asked.k == "both" else f"us_per_step {took[0]:.1f}",
                  flush=True)


if __name__ == "__main__":
    main()
