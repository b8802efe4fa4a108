#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""An ONNX model, cut over all ranks, of which this is one; sizes differ from step to step.

	graph_pipeline.py encoder.onnx --bound batch=4 --bound seq=128 --below 50
	graph_pipeline.py digits.onnx --bound batch=32 --feed images=digits.npy

Which rank this is, and of how many, a launcher's variables say, torchrun's for one, or TOW_*.
All have the same file.  Where the last nodes are it prints what came of each step, and with --check that the
same nodes, one after the other in one process, give the same bits.  It needs onnx and onnxruntime.
"""

import argparse
import dataclasses
import hashlib
import os
import pathlib
import zlib

import numpy as np

import towline
from towline import graph


def pair(text):
    """NAME=VALUE."""
    name, equals, value = text.rpartition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


class Feeds:
    """What each step's inputs are, the same for whoever asks."""

    def __init__(self, cut, rank, args):
        self.below = args.below
        self.files = {name: np.load(path) for name, path in args.feed}
        own = {node.name for node in cut.nodes if node.op == "Input" and node.rank == rank}
        self.inputs = {edge.source: edge for edge in cut.edges if edge.source in own}
        self.bounds = {dim.name: dim.max for edge in cut.edges for dim in edge.dims or ()
                       if isinstance(dim, graph.Dim)}
        unknown = [name for name, most in self.bounds.items() if most is None]
        if unknown:
            raise SystemExit(f"graph_pipeline.py: --bound {unknown[0]}=NUMBER is missing")

    def __call__(self, step):
        numbers, feeds = np.random.RandomState(step), {}
        sizes = {name: numbers.randint(1, self.bounds[name] + 1) for name in sorted(self.bounds)}
        for name, edge in self.inputs.items():
            # The same on whatever rank it is.
            numbers = np.random.RandomState([step, zlib.crc32(name.encode())])
            shape = [sizes[dim.name] if isinstance(dim, graph.Dim) else dim for dim in edge.dims]
            if name in self.files:
                rows = (np.arange(shape[0]) + step * shape[0]) % len(self.files[name])
                feeds[name] = self.files[name][rows]
            elif "int" in edge.dtype:
                feeds[name] = numbers.randint(0, self.below, shape).astype(edge.dtype)
            else:
                feeds[name] = numbers.random_sample(shape).astype(edge.dtype)
        return feeds


def run(dev, cut, world, args):
    """All steps of this rank: what its last nodes have given in each, and how many bytes were copied."""
    feeds = Feeds(cut, world.rank, args)
    functions = graph.onnx_functions(args.model, cut, world.rank)
    found = []
    with towline.Group(dev, world) as group, \
            graph.run(graph.plan(cut), world.rank, functions, group=group) as running:
        for step in range(args.steps):
            results = running.step(feeds(step))
            found.append({f"{name}:{output}": np.array(array) for name, given in results.items()
                          for output, array in enumerate(given if isinstance(given, tuple) else (given,))})
        return found, running.copied_bytes


def checksum(found):
    """Of all bits of all steps."""
    digest = hashlib.sha256()
    for results in found:
        for name, array in sorted(results.items()):
            digest.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return digest.hexdigest()[:16]


def main():
    """One rank."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a file of ONNX")
    parser.add_argument("--bound", type=pair, action="append", default=[], metavar="NAME=MOST",
                        help="what a dimension of that name is at most")
    parser.add_argument("--feed", type=pair, action="append", default=[], metavar="NAME=FILE.npy",
                        help="of which an input has other rows at each step; else it has random numbers")
    parser.add_argument("--below", type=int, default=10, help="of random integers; default: %(default)s")
    parser.add_argument("--steps", type=int, default=10, help="default: %(default)s")
    parser.add_argument("--json", metavar="FILE", help="write what towline plan reads, and run nothing")
    parser.add_argument("--check", action="store_true", help="compare with one process")
    args = parser.parse_args()
    world = towline.World.detect()
    whole = graph.from_onnx(args.model, {name: int(most) for name, most in args.bound})
    cut = graph.pipeline(whole, world.size)
    if args.json:
        pathlib.Path(args.json).write_text(cut.to_json(), encoding="utf-8")
        return
    with towline.Device() as dev:
        found, copied = run(dev, cut, world, args)
        print(f"rank {world.rank}: {copied} bytes were copied", flush=True)
        if not any(found):
            return
        for step, results in enumerate(found):
            for name, array in results.items():
                begins = ", ".join(f"{value:.4f}" for value in array.ravel()[:3])
                print(f"step {step}: {name} {list(array.shape)} {begins} ...", flush=True)
        print(f"rank {world.rank}: checksum {checksum(found)}", flush=True)
        if args.check:
            alone = dataclasses.replace(world, rank=0, size=1, root="", session=f"alone-{os.getpid()}")
            every, _ = run(dev, whole, alone, args)
            same = [{name: results[name] for name in own} for results, own in zip(every, found)]
            if checksum(same) != checksum(found):
                raise SystemExit("graph_pipeline.py: one process gives other bits")
            print(f"rank {world.rank}: one process gives the same bits", flush=True)


if __name__ == "__main__":
    main()
