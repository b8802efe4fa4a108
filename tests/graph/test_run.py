# SPDX-License-Identifier: GPL-2.0
"""Graphs that run: ranks of one node, each a process."""

import contextlib
import errno
import multiprocessing
import os
import pathlib
import random
import sys
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

# pylint: disable=wrong-import-position
import towline                                                              # noqa: E402
import encoder                                                              # noqa: E402
from conftest import WAIT_S, used_bytes                                     # noqa: E402
from part import alone                                                      # noqa: E402
from towline import graph                                                   # noqa: E402
from towline.graph import Dim, Edge, Graph, GraphError, Node                # noqa: E402

# Fixtures: children, node.
pytest_plugins = ["conftest"]
SEQ, ROWS = Dim("seq", 48), Dim("rows")
STEPS = 6
# Whoever is told that a rank died is told in this time, far below the time-outs.
TOLD_S = 20


def world(name, rank, ranks):
    """Of this process."""
    return towline.World(rank, ranks, session=f"graph {os.getppid()} {name}")


@contextlib.contextmanager
def a_group(name, rank, ranks):
    """Its ranks."""
    with towline.Device() as dev, towline.Group(dev, world(name, rank, ranks), timeout=WAIT_S) as group:
        yield group


def together(children, function, ranks, *arguments):
    """All ranks run that: how they end."""
    started = [children(function, rank, *arguments) for rank in range(ranks)]
    return [child.wait() for child in started]


# ---- all kinds ----

THERE = Graph(
    (Node("source"), Node("weights", "Variable"), Node("middle", rank=1), Node("sink")),
    (Edge("source", "middle", "float32", (4, 1000)),
     Edge("source", "middle", "int16", (SEQ, 3), output=1),
     Edge("source", "middle", "float64", (ROWS, 2), output=2),
     Edge("weights", "middle", "float32", (1000,)),
     Edge("middle", "sink", "float32", (4, 1000)),
     Edge("middle", "sink", "int16", (SEQ, 3), output=1),
     Edge("middle", "sink", "float64", (ROWS, 2), output=2),
     Edge("source", "sink", "float32", (4, 1000)),
     # Which falls back at every second step.
     Edge("middle", "sink", "uint8", (9,), output=3, fallback=True)), 2)


def shapes_at(step):
    """Of what source gives."""
    return (4, 1000), (1 + step * 11 % 48, 3), (1 + step * 300, 2)


def kinds(rank, slots, in_place):
    """Each kind goes there and back, without a copy if it was written where it is sent from."""
    plan = graph.plan(Graph(THERE.nodes, THERE.edges, 2, slots))

    def source(_inputs, place):
        shapes = shapes_at(running.steps)
        made = [place(output, shape) if in_place else np.empty(shape, kind)
                for output, (shape, kind) in enumerate(zip(shapes, ("f4", "i2", "f8")))]
        for number, array in enumerate(made):
            array[...] = number * 100 + running.steps
        return None if in_place else made

    def middle(inputs, place):
        assert [array.shape for array in inputs[:3]] == list(shapes_at(running.steps))
        assert all((array == number * 100 + running.steps).all() for number, array in enumerate(inputs[:3]))
        assert not inputs[0].flags.writeable and (inputs[3] == 7).all()
        outs = [place(number, array.shape) if in_place else None for number, array in enumerate(inputs[:3])]
        made = [np.add(array, 1, out=out) for array, out in zip(inputs, outs)]
        also = place(3, (9 + running.steps % 2,)) if in_place else np.empty(9 + running.steps % 2, "u1")
        also[:] = running.steps
        return [*made, also]

    def sink(inputs, _place):
        *back, own, also = inputs
        assert also.shape == (9 + running.steps % 2,) and (also == running.steps).all()
        assert [array.shape for array in back] == list(shapes_at(running.steps))
        assert all((array == number * 100 + running.steps + 1).all() for number, array in enumerate(back))
        assert (own == running.steps).all()
        return running.steps

    functions = ({"source": source, "weights": np.full(1000, 7, "f4"), "sink": sink} if rank == 0
                 else {"middle": middle})
    with a_group(f"kinds {slots} {in_place}", rank, 2) as group:
        before = {one.id for one in group.device.exports()}
        group.barrier()
        with graph.run(plan, rank, functions, group) as running:
            copied = []
            for step in range(STEPS):
                assert running.step() == ({"sink": step} if rank == 0 else {})
                copied.append(running.copied_bytes)
            group.barrier()
            # But for what lines of mailboxes have, and the group.
            names = [one.name for one in group.device.exports()
                     if one.id not in before and not one.name.startswith("tow/line/")]
            assert len(names) == sum(needs.exports for needs in plan.ranks), " ".join(names)
            group.barrier()
        # What is traced is copied in the first step alone.
        assert copied == [copied[0]] * STEPS and (copied[0] > 0) != in_place, copied


@pytest.mark.parametrize("slots", [0, 1, 3])
@pytest.mark.parametrize("in_place", [True, False])
def test_kinds(children, slots, in_place):
    """Static, bounded and dynamic edges, there and back."""
    assert together(children, kinds, 2, slots, in_place) == [0, 0]


# ---- a model ----

def compute(rank, ranks):
    """Two layers of an encoder whose sequence has another length at each step."""
    model = encoder.graph()
    cut = graph.plan(graph.pipeline(model, ranks))
    mine = [node.name for node in cut.graph.nodes if node.rank == rank]
    every = encoder.functions_of(encoder.NAMES)
    with a_group("encoder", rank, ranks) as group, \
            graph.run(cut, rank, encoder.functions_of(mine), group) as running:
        for step in range(STEPS):
            fed = encoder.batch(step)
            results = running.step(dict([fed]) if fed[0] in mine else None)
            for found in results.values():
                assert np.array_equal(found, alone(model, every, fed))
        assert running.copied_bytes == 0


def test_encoder(children):
    """By two ranks, and bit by bit what one computes."""
    assert together(children, compute, 2, 2) == [0, 0]


# ---- what goes wrong ----

PAIR = Graph((Node("a"), Node("b", rank=1)), (Edge("a", "b", "float32", (4, SEQ)),), 2)


def contradicts(rank):
    """Of another shape in the third step: it is said there, and the other rank is told."""
    with a_group("contradicts", rank, 2) as group:
        functions = [{"a": lambda inputs, place: np.zeros((4, 10 if running.steps < 2 else 49), "f4")},
                     {"b": lambda inputs, place: inputs[0].shape}][rank]
        with contextlib.suppress(Foreseen), graph.run(graph.plan(PAIR), rank, functions, group) as running:
            for _ in range(2):
                running.step()
            if rank == 0:
                with pytest.raises(GraphError, match=r"edge a:0 -> b: expected float32 \[4, seq<=48\], "
                                                     r"got float32 \[4, 49\]"):
                    running.step()
            else:
                with pytest.raises(towline.Error) as told:
                    running.step()
                assert (told.value.errno, told.value.blamed) == (errno.ECANCELED, 0)
            with pytest.raises((towline.Error, GraphError)):
                running.step()
            raise Foreseen


class Foreseen(Exception):
    """It went wrong as it was to."""


def test_contradiction(children):
    """A tensor that is larger than the plan says."""
    assert together(children, contradicts, 2) == [0, 0]


FALLS = [(4, 10), (4, 49), (4, 48), (2, 3, 5), (0, 0), (4, 0), (), (4, 7)]


def falls_back(rank):
    """What has another shape comes nevertheless, in its turn; of another type it does not."""
    made = Graph(PAIR.nodes, (Edge("a", "b", "float32", (4, SEQ), slots=3, fallback=True),), 2)
    with a_group("falls back", rank, 2) as group:
        def give(_inputs, place):
            out = place(0, FALLS[running.steps])
            out[...] = running.steps
            return out if running.steps % 2 else None

        def take(inputs, _place):
            assert inputs[0].shape == FALLS[running.steps] and (inputs[0] == running.steps).all()

        with graph.run(graph.plan(made), rank, [{"a": give}, {"b": take}][rank], group) as running:
            for _ in FALLS:
                running.step()
            assert running.copied_bytes == 0
        with contextlib.suppress(Foreseen), \
                graph.run(graph.plan(made), rank, [{"a": lambda inputs, place: np.zeros((4, 60))},
                                                   {"b": take}][rank], group) as running:
            with pytest.raises((GraphError, towline.Error), match="expected float32.*got float64" if rank == 0
                               else "rank 0 is to blame"):
                running.step()
            raise Foreseen


def test_fallback(children):
    """Where the plan says so."""
    assert together(children, falls_back, 2) == [0, 0]


def dies(rank, how):
    """Rank 1 does, is slow, or leaves: rank 0 says who."""
    with a_group(f"dies {how}", rank, 2) as group:
        functions = [{"a": lambda inputs, place: np.zeros((4, 1), "f4")},
                     {"b": lambda inputs, place: None}][rank]
        with contextlib.suppress(Foreseen), \
                graph.run(graph.plan(PAIR), rank, functions, group, 3 if how == "late" else WAIT_S) as running:
            running.step()
            group.barrier()
            if rank == 1:
                end_as(how, running)
            begun = time.monotonic()
            with pytest.raises(towline.Error) as told:
                for _ in range(1000):
                    running.step()
                    time.sleep(0.001)
            assert time.monotonic() - begun < TOLD_S
            assert told.value.blamed == 1 and told.value.errno in {
                "dies": (errno.ESTALE, errno.ECONNRESET), "late": (errno.ETIMEDOUT,),
                "raises": (errno.ECANCELED,), "leaves": (errno.ECANCELED,)}[how], told.value
            raise Foreseen


def end_as(how, running):
    """Rank 1 does not go on."""
    if how == "dies":
        os.kill(os.getpid(), 9)
    if how == "leaves":
        # Rank 0 has run more steps, or will.
        with contextlib.suppress(towline.Error):
            running.close()
    if how == "late":
        time.sleep(6)
    raise Foreseen


@pytest.mark.parametrize("how", ["dies", "late", "raises", "leaves"])
def test_gone(children, how):
    """Who does not go on is named."""
    assert together(children, dies, 2, how) == [0, -9 if how == "dies" else 0]


def keeps_up(rank):
    """What is sent has left when a step is over, also where memory is shared: nobody waits for another step."""
    made = Graph((Node("p1"), Node("p2"), Node("c1", rank=1), Node("c2", rank=1)),
                 (Edge("p1", "c1", "int32", (1000,)), Edge("p2", "c2", "int32", (1000,))), 2, share=True)
    plan = graph.plan(made)
    assert plan.edges[0].tensors_offset == plan.edges[1].tensors_offset

    def give(number):
        return lambda inputs, place: np.full(1000, number + running.steps, "i4")

    def take(number):
        def run(inputs, _place):
            assert (inputs[0] == number + running.steps).all()
        return run

    functions = [{"p1": give(1), "p2": give(2)}, {"c1": take(1), "c2": take(2)}][rank]
    with a_group("keeps up", rank, 2) as group, graph.run(plan, rank, functions, group, timeout=5) as running:
        for _ in range(4):
            running.step()
            group.barrier()
        # One that ends much later than the other.
        if rank:
            time.sleep(2)


def test_keeps_up(children):
    """Ranks meet between steps."""
    assert together(children, keeps_up, 2) == [0, 0]


THROUGH = Graph((Node("a"), Node("b", rank=1), Node("c"), Node("d", rank=1)),
                (Edge("a", "b", "int32", (1000,), slots=1), Edge("b", "c", "int32", (Dim("n"),), slots=1),
                 Edge("a", "d", "int32", (7,), output=1, slots=1, fallback=True)), 2)


def passes(rank):
    """What was received is given on as it is, and what is fed is written again at once."""
    fed = np.empty(1000, "i4")
    last = -1

    def take(inputs, _place):
        nonlocal last
        time.sleep(0.01)
        assert (inputs[0] == running.steps).all() and inputs[0].size == 1000
        last = running.steps

    functions = [{"a": lambda inputs, place: (fed, fed), "c": take},
                 {"b": lambda inputs, place: inputs[0], "d": take}][rank]
    with a_group("passes", rank, 2) as group, graph.run(graph.plan(THROUGH), rank, functions, group) as running:
        for step in range(20):
            fed[:] = step
            running.step()
            fed[:] = -1
        assert last == 19


def test_pass(children):
    """Nothing that was given changes."""
    assert together(children, passes, 2) == [0, 0]


def unlike(rank, how):
    """A rank that cannot take part says so to all: at once, and not by a time-out."""
    with a_group(f"unlike {how}", rank, 2) as group:
        functions = [{"a": np.zeros((4, 1), "f4")}, {"b": lambda inputs, place: None}][rank]
        if rank == 1 and how == "name":
            functions["c"] = None
        if rank == 0 and how == "shape":
            functions["a"] = np.zeros((5, 1), "f4")
        begun = time.monotonic()
        wrong = {"name": 1, "shape": 0}[how]
        with pytest.raises(GraphError if rank == wrong else towline.Error) as said:
            graph.run(graph.plan(PAIR), rank, functions, group)
        assert time.monotonic() - begun < TOLD_S
        if rank != wrong:
            assert (said.value.errno, said.value.blamed) == (errno.ECANCELED, wrong)


@pytest.mark.parametrize("how", ["name", "shape"])
def test_unlike(children, how):
    """It is named."""
    assert together(children, unlike, 2, how) == [0, 0]


def needs_memory(rank):
    """What a plan says of a node's pool is no less than what it takes."""
    made = Graph(tuple(Node(f"n{number}", rank=number % 2) for number in range(40)),
                 tuple(Edge(f"n{number}", f"n{number + 1}", "float32", (300, Dim("", 300))) for number in range(39)),
                 2)
    plan = graph.plan(made)
    with a_group("memory", rank, 2) as group:
        before = used_bytes()
        group.barrier()
        with graph.run(plan, rank, {f"n{number}": np.zeros((300, 300), "f4") for number in range(rank, 40, 2)},
                       group):
            group.barrier()
            used = used_bytes() - before
            assert max(needs.region_bytes for needs in plan.ranks) < used <= sum(
                needs.pool_bytes for needs in plan.ranks), used
            group.barrier()


def test_memory(children):
    """Of two ranks of one node."""
    assert together(children, needs_memory, 2) == [0, 0]


def refused():
    """What is wrong before anything runs."""
    plan = graph.plan(PAIR)
    with towline.Device() as dev, towline.Group(dev, world("refused", 0, 1)) as group:
        with pytest.raises(GraphError, match="the group has rank 0 of 1"):
            graph.run(plan, 0, {}, group)
        alone = graph.plan(Graph((Node("x"), Node("y")), (Edge("x", "y", "float32", (Dim("n"),)),)))

        def gives(inputs, place):
            with pytest.raises(GraphError, match="nobody takes output 1"):
                place(1)
            with pytest.raises(GraphError, match="the dims of output 0 are not all known"):
                place()
            return place(0, (3,))

        with graph.run(alone, 0, {"x": gives, "y": lambda inputs, place: inputs[0]}, group) as running:
            with pytest.raises(ValueError, match="fed are"):
                running.step({"x": np.zeros(3)})
            assert running.step()["y"].shape == (3,)
        with pytest.raises(ValueError, match="closed"):
            running.step()
        with pytest.raises(GraphError, match="NumPy has no elements of int4"):
            graph.run(graph.plan(Graph((Node("x"), Node("y")), (Edge("x", "y", "int4", (1000,)),))), 0, {}, group)
        with pytest.raises(GraphError, match="rank 0 has no node 'z'"):
            graph.run(alone, 0, {"z": len}, group)
        with pytest.raises(GraphError, match="node 'x' gave no output 0"), \
                graph.run(alone, 0, {"x": lambda inputs, place: (), "y": len}, group) as running:
            running.step()


def test_refused(children):
    """It says why."""
    assert children(refused).wait() == 0


def by_itself():
    """With a group of its own."""
    os.environ.update(TOW_RANK="0", TOW_WORLD_SIZE="1", TOW_LOCAL_RANK="0")
    made = graph.plan(Graph((Node("x"), Node("y")), (Edge("x", "y", "float32", (4,)),)))
    with graph.run(made, 0, {"y": lambda inputs, place: inputs[0].sum()}) as running:
        assert [running.step({"x": np.full(4, step, "f4")})["y"] for step in range(3)] == [0, 4, 8]


def test_by_itself(children):
    """As a launcher says."""
    assert children(by_itself).wait() == 0


def differ(rank):
    """Of another graph."""
    with a_group("differ", rank, 2) as group:
        plan = graph.plan(Graph(PAIR.nodes, PAIR.edges, 2, slots=1 + rank))
        with pytest.raises(GraphError, match=f"rank {1 - rank} has another plan than rank {rank}"):
            graph.run(plan, rank, {}, group)


def test_differ(children):
    """Both say which one."""
    assert together(children, differ, 2) == [0, 0]


# ---- any graph ----

RANKS = 3


@st.composite
def graphs(draw):
    """Any, of a few nodes, whose edges have any kind of shape."""
    count = draw(st.integers(2, 7))
    nodes = tuple(Node(f"n{number}", rank=draw(st.integers(0, RANKS - 1))) for number in range(count))
    dim = st.one_of(st.integers(0, 40), st.sampled_from([SEQ, Dim("", 9), ROWS, None]))
    outputs = draw(st.dictionaries(
        st.tuples(st.integers(0, count - 2), st.integers(0, 1)),
        st.tuples(st.sampled_from(["float32", "int8", "complex128"]),
                  st.one_of(st.none(), st.lists(dim, max_size=3).map(tuple))), min_size=1, max_size=8))
    edges = []
    for (source, output), (dtype, dims) in outputs.items():
        falls = bool(dims) and Edge("", "", dtype, dims).nbytes is not None and draw(st.booleans())
        # Each output is taken: those before it, too.
        for target in draw(st.sets(st.integers(source + 1, count - 1), min_size=1)):
            edges.append(Edge(f"n{source}", f"n{target}", dtype, dims, output, draw(st.integers(0, 3)), falls))
    return Graph(nodes, tuple(edges), RANKS, share=draw(st.booleans()))


def sizes(edge, step, seed):
    """What an output is of at a step, within its dims, or not, if it may fall back."""
    dims = edge.dims
    rng = random.Random(f"{edge.source} {edge.output} {step} {seed}")
    if dims is None or edge.fallback and rng.random() < 0.3:
        return tuple(rng.randrange(7) for _ in range(rng.randrange(4)))
    return tuple(dim if isinstance(dim, int) else
                 rng.randint(0, 90 if not isinstance(dim, Dim) or dim.max is None else dim.max) for dim in dims)


def pattern(shape, dtype, source, output, step):
    """What nobody else gives."""
    salt = sum(map(ord, source)) * 31 + output * 7 + step * 13
    return ((np.arange(int(np.prod(shape))) + salt) % 113).astype(dtype).reshape(shape)


def functions_for(made, rank, seed):
    """Give patterns, and look at those that come: also when a while has passed."""
    steps = {}

    def function(name):
        rng = random.Random(f"{name} {seed}")
        takes = [edge for edge in made.edges if edge.target == name]
        gives = {edge.output: edge for edge in made.edges if edge.source == name}

        def run(inputs, place):
            step = steps[name] = steps.get(name, -1) + 1
            wanted = [pattern(sizes(edge, step, seed), edge.dtype, edge.source,
                              edge.output, step) for edge in takes]
            assert all(np.array_equal(*pair) for pair in zip(inputs, wanted, strict=True))
            outs = []
            for output in range(max(gives, default=-1) + 1):
                edge = gives.get(output)
                if edge is None:
                    outs.append(np.zeros(1))
                    continue
                shape = sizes(edge, step, seed)
                array = pattern(shape, edge.dtype, name, output, step)
                if rng.random() < 0.7:
                    out = place(output, shape)
                    out[...] = array
                    array = out if rng.random() < 0.5 else None
                outs.append(array)
            if rng.random() < 0.3:
                time.sleep(rng.random() * 0.01)
            assert all(np.array_equal(*pair) for pair in zip(inputs, wanted, strict=True))
            return outs
        return run
    return {node.name: function(node.name) for node in made.nodes if node.rank == rank}


def serve(rank, pipe):
    """Run what comes, and say how that went."""
    with a_group("any", rank, RANKS) as group:
        while True:
            told = pipe.recv()
            if told is None:
                return
            text, seed, steps = told
            made = Graph.from_json(text)
            try:
                with graph.run(graph.plan(made), rank, functions_for(made, rank, seed), group,
                               trace=seed % 2 == 0) as running:
                    for _ in range(steps):
                        running.step()
                pipe.send("")
            except BaseException as error:      # pylint: disable=broad-except
                pipe.send(f"rank {rank}: {error!r}")


def test_any(children):
    """Nothing is overwritten that somebody reads, and nobody waits in a circle."""
    pipes = [multiprocessing.Pipe() for _ in range(RANKS)]
    served = [children(serve, rank, pipes[rank][1]) for rank in range(RANKS)]

    @settings(max_examples=EXAMPLES, deadline=None, database=None, derandomize=True,
              suppress_health_check=list(HealthCheck))
    @given(graphs(), st.integers(0, 1000), st.integers(1, 5))
    def tried(made, seed, steps):
        for ours, _ in pipes:
            ours.send((made.to_json(), seed, steps))
        said = []
        for ours, _ in pipes:
            assert ours.poll(WAIT_S), "a rank says nothing"
            said.append(ours.recv())
        assert said == [""] * RANKS

    tried()     # pylint: disable=no-value-for-parameter
    for ours, _ in pipes:
        ours.send(None)
    assert [child.wait() for child in served] == [0] * RANKS


EXAMPLES = int(os.environ.get("TOW_GRAPHS", "40"))
