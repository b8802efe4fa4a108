# SPDX-License-Identifier: GPL-2.0
"""Graphs without ONNX and PyTorch: their JSON, what is refused, partitions, the paper's models."""

import dataclasses
import itertools
import json
import random
import subprocess
import sys
import time

import pytest

import forms
import models
from towline import graph
from towline.graph import Dim, Edge, Graph, GraphError, Node

SMALL = {
    "ranks": 2, "share": False, "slots": 3,
    "nodes": [{"name": "conv1", "rank": 0, "op": "Conv"}, {"name": "pool1", "rank": 1, "op": "Pool"},
              {"name": "out", "rank": 1, "op": "Out"}],
    "edges": [{"from": "conv1", "output": 0, "to": "pool1", "dtype": "float32",
               "dims": [32, {"name": "seq", "max": 512}, {"name": "n"}, None, {"max": 3}], "slots": 2},
              {"from": "pool1", "output": 1, "to": "out", "dtype": "bfloat16", "dims": None}],
}


def changed(path, value):
    """The small graph's JSON with another value at a place; that is left out where it is ..."""
    table = json.loads(json.dumps(SMALL))
    place = table
    for step in path[:-1]:
        place = place[step]
    if value is ...:
        del place[path[-1]]
    elif isinstance(place, list) and path[-1] == len(place):
        place.append(value)
    else:
        place[path[-1]] = value
    return json.dumps(table)


def test_json():
    """There and back; what has a default may be left out."""
    found = Graph.from_json(json.dumps(SMALL))
    assert found == Graph(
        (Node("conv1", "Conv"), Node("pool1", "Pool", 1), Node("out", "Out", 1)),
        (Edge("conv1", "pool1", "float32", (32, Dim("seq", 512), Dim("n"), None, Dim(max=3)), slots=2),
         Edge("pool1", "out", "bfloat16", None, output=1)), 2, 3)
    assert json.loads(found.to_json()) == SMALL and Graph.from_json(found.to_json()) == found
    for path, value in ((("share",), False), (("edges", 0, "output"), 0)):
        assert Graph.from_json(changed(path, ...)) == Graph.from_json(changed(path, value))
    empty = Graph((), (), 3, share=True)
    assert Graph.from_json(empty.to_json()) == empty


@pytest.mark.parametrize("path, value, said", [
    (("ranks",), ..., "the graph lacks 'ranks'"),
    (("ranks",), 0, "no 0 ranks"),
    (("ranks",), True, "the graph: 'ranks' is of bool, not int"),
    (("ranks",), 65537, "no 65537 ranks"),
    (("slots",), 65, "the graph: slots is 65"),
    (("share",), 1, "'share' is of int, not bool"),
    (("colour",), 1, "the graph has 'colour', which is unknown"),
    (("nodes",), {}, "'nodes' is of dict, not list"),
    (("nodes", 1), 7, "node 1 is no object"),
    (("nodes", 1, "name"), ..., "node 1 lacks 'name'"),
    (("nodes", 1, "name"), "", "node 1 is called ''"),
    (("nodes", 1, "name"), "a\nb", r"node 1 is called 'a\\nb': that is no text of one line"),
    (("nodes", 1, "name"), "\ud800", "that is no text of one line, of 1 to 255 bytes"),
    (("nodes", 1, "name"), "\u00e4" * 128, "that is no text of one line, of 1 to 255 bytes"),
    (("nodes", 1, "op"), "\x1b[2J", "node 'pool1': its op is called '.x1b.2J'"),
    (("nodes", 1, "name"), "conv1", "two nodes are named 'conv1'"),
    (("nodes", 1, "rank"), ..., "node pool1 lacks 'rank'"),
    (("nodes", 1, "rank"), 2, "node 'pool1': there is no rank 2 of 2"),
    (("nodes", 1, "rank"), -1, "no rank -1"),
    (("nodes", 1, "rank"), 1.0, "node pool1: 'rank' is of float, not int"),
    (("edges", 0), [], "edge 0 is no object"),
    (("edges", 0, "from"), "conv2", "edge conv2:0 -> pool1: there is no node 'conv2'"),
    (("edges", 0, "to"), "conv1", "edge conv1:0 -> conv1 goes backward"),
    (("edges", 1, "from"), "out", "edge out:1 -> out goes backward"),
    (("edges", 0, "to"), ..., "edge 0 lacks 'to'"),
    (("edges", 0, "dtype"), ..., "edge conv1 -> pool1 lacks 'dtype'"),
    (("edges", 0, "dtype"), "string", "edge conv1:0 -> pool1: no tensor of 'string' travels"),
    (("edges", 0, "dims"), ..., "edge conv1 -> pool1 lacks 'dims'"),
    (("edges", 0, "dims"), 4, "edge conv1 -> pool1: 'dims' is of int, not list"),
    (("edges", 0, "dims", 0), -1, "edge conv1:0 -> pool1: dim is -1"),
    (("edges", 0, "dims", 0), 1 << 63, "dim is 9223372036854775808"),
    (("edges", 0, "dims", 0), 1.5, "edge conv1 -> pool1: 1.5 is no dim"),
    (("edges", 0, "dims", 0), True, "True is no dim"),
    (("edges", 0, "dims", 0), "seq", "'seq' is no dim"),
    (("edges", 0, "dims"), [1] * 9, "edge conv1:0 -> pool1 has 9 dims, more than 8"),
    (("edges", 0, "dims", 1), {}, "edge conv1:0 -> pool1: a dim is called ''"),
    (("edges", 0, "dims", 1, "name"), "\t", "edge conv1:0 -> pool1: a dim is called"),
    (("edges", 0, "dims", 1, "max"), -1, "dim is -1"),
    (("edges", 0, "dims", 1, "max"), None, "a dim: 'max' is of NoneType, not int"),
    (("edges", 0, "dims", 1, "min"), 1, "a dim has 'min', which is unknown"),
    (("edges", 0, "output"), -1, "output is -1"),
    (("edges", 0, "output"), 1 << 32, "output is 4294967296"),
    (("edges", 0, "slots"), 65, "edge conv1:0 -> pool1: slots is 65"),
    (("edges", 2), SMALL["edges"][0], "edge conv1:0 -> pool1 is there twice"),
    (("edges", 2), {**SMALL["edges"][0], "to": "out", "dtype": "float64"},
     "edge conv1:0 -> out has another type, dims or fallback than conv1:0 -> pool1"),
])
def test_malformed(path, value, said):
    """It says which node or edge, and what is wrong."""
    with pytest.raises(GraphError, match=said.replace("(", r"\(")):
        Graph.from_json(changed(path, value))


@pytest.mark.parametrize("text, said", [
    ("", "no JSON"), ("{", "no JSON"), ("[]", "the graph is no object"), (b"\xff\xfe\xff", "no JSON"),
    ("[" * 100000, "no JSON"), ("9" * 5000, "no JSON"), ('{"ranks": 1, "ranks": 2}', "'ranks' twice")])
def test_no_graph(text, said):
    """Nor is it JSON, or it is that of something else."""
    with pytest.raises(GraphError, match=said):
        Graph.from_json(text)


TOOL = "build/bin/towline"


@pytest.mark.parametrize("text, good", [
    pytest.param(text, good, id=f"{'good' if good else 'bad'}{number}")
    for number, (text, good) in enumerate(forms.forms())])
def test_forms(tmp_path, text, good):
    """What the tool takes is what is taken here."""
    path = tmp_path / "graph.json"
    path.write_bytes(text)
    said = subprocess.run([TOOL, "plan", path], capture_output=True, check=False)
    assert (said.returncode, said.stderr == b"") == ((0, True) if good else (1, False)), said
    if good:
        found = Graph.from_json(text)
        assert Graph.from_json(text.decode()) == Graph.from_json(found.to_json()) == found
    else:
        with pytest.raises(GraphError):
            Graph.from_json(text)


def places_of(table):
    """Each place in it, as (what has it, which)."""
    if isinstance(table, list):
        pairs = enumerate(table)
    else:
        pairs = table.items() if isinstance(table, dict) else ()
    for key, value in pairs:
        yield table, key
        yield from places_of(value)


def test_anything():
    """Whatever is in it, it is a graph, which its own JSON gives again, or none."""
    rng, counts = random.Random(1), [0, 0]
    values = [None, True, -1, 0, 1, 2, 1 << 70, 1.5, "", "conv1", "out", "int4", "\0", [], [1], {}, {"max": 2}]
    for _ in range(4000):
        table = json.loads(json.dumps(SMALL))
        where, key = rng.choice(list(places_of(table)))
        where[key] = rng.choice(values)
        try:
            found = Graph.from_json(json.dumps(table))
            assert Graph.from_json(found.to_json()) == found
            counts[0] += 1
        except GraphError:
            counts[1] += 1
    assert min(counts) > 300


@pytest.mark.parametrize("dims, kind, nbytes", [
    ((2, 3), "static", 24), ((), "static", 4), ((0, 3), "static", 0),
    ((2, Dim("n", 5)), "bounded", 40), ((Dim("n", 0),), "bounded", 0),
    ((2, Dim("n")), "dynamic", None), ((Dim("m", 3), None), "dynamic", None), (None, "dynamic", None)])
def test_kinds(dims, kind, nbytes):
    """What is known of a shape says how it moves."""
    edge = Edge("a", "b", "float32", dims)
    assert (edge.kind, edge.nbytes) == (kind, nbytes)
    for dtype, nine in (("int4", 5), ("float6_e3m2fn", 7), ("bool", 9), ("complex128", 144)):
        assert Edge("a", "b", dtype, (3, 3)).nbytes == nine


def test_crossing():
    """An output goes once to each other rank."""
    made = Graph((Node("a"), Node("b"), Node("c", rank=1), Node("d", rank=1), Node("e", rank=2)), tuple(
        Edge("a", name, "int8", (1,), output) for name, output in
        (("b", 0), ("d", 0), ("c", 0), ("c", 1), ("e", 0))), 3)
    assert list(map(str, made.crossing())) == ["a:0 -> d", "a:1 -> c", "a:0 -> e"]


def planned(edge):
    """The kind of an edge, and how large its tensors are, in a plan."""
    return "bounded" if edge.fallback else edge.kind, edge.nbytes or 0


def output_of(rng, name, number):
    """An edge to nobody yet, which may fall back if it can."""
    dims = tuple(rng.choice((3, 5, Dim("n", 7), Dim(max=2), Dim("n"), None)) for _ in range(rng.randrange(3)))
    edge = Edge(name, "", rng.choice(("int4", "bfloat16", "float32")), rng.choice((None, dims, dims)), number)
    fallback = bool(edge.dims) and edge.nbytes is not None and rng.random() < 0.4
    return dataclasses.replace(edge, fallback=fallback)


@pytest.mark.parametrize("seed", range(20))
def test_planned(tmp_path, seed):
    """The tool and Python plan alike, and what crosses as its shape says."""
    rng = random.Random(seed)
    names = [f"n{number}" for number in range(12)]
    rank = {name: rng.randrange(3) for name in names}
    outputs = {(name, number): output_of(rng, name, number) for name in names for number in range(2)}
    edges = tuple(dataclasses.replace(outputs[source, number], target=target)
                  for source, target in itertools.combinations(names, 2) for number in range(2)
                  if rng.random() < 0.4)
    made = Graph(tuple(Node(name, rank=rank[name]) for name in names), edges, 3)
    path = tmp_path / "graph.json"
    path.write_text(made.to_json(), encoding="utf-8")
    tool = json.loads(subprocess.run([TOOL, "plan", "--json", path], capture_output=True, check=True).stdout)
    plan = graph.plan(made)
    assert sorted((edge.source, edge.output, edge.to_rank, edge.kind, edge.tensor_bytes)
                  for edge in plan.edges) == sorted(
        (edge.source, edge.output, rank[edge.target], *planned(edge)) for edge in made.crossing()) != []
    for ours, theirs in zip(plan.edges, tool["edges"], strict=True):
        same = {key: value for key, value in theirs.items() if key not in ("from", "to", "dims", "bytes")}
        assert (ours.source, list(ours.targets)) == (theirs["from"], theirs["to"])
        assert {"fallback": False, **same}.items() <= dataclasses.asdict(ours).items()
    assert [{"rank": number, **needs._asdict()} for number, needs in enumerate(plan.ranks)] == tool["ranks"]


# ---- partitions ----

def made_up(rng, steps):
    """A graph of so many nodes that compute, and of inputs, variables and what follows from these."""
    nodes, outputs, edges = [], {}, []
    for number in range(steps):
        sources = []
        for _ in range(rng.randrange(3)):
            name = f"held{len(nodes)}"
            fixed = [other for other in outputs if other.startswith("held")]
            if fixed and rng.random() < 0.4:
                source = rng.choice(fixed)
                edges.append(Edge(source, name, "int8", (outputs[source],)))
                nodes.append(Node(name, "Expand"))
            else:
                nodes.append(Node(name, rng.choice(("Variable", "Constant"))))
            outputs[name] = rng.randrange(1, 30)
        if not number or rng.random() < 0.2:
            nodes.append(Node(f"fed{number}", "Input"))
            outputs[nodes[-1].name] = rng.randrange(1, 30)
        name = f"step{number}"
        # One that has nothing but what is held would be of that kind.
        moving = [other for other in outputs if not other.startswith("held")]
        sources = {rng.choice(moving), *rng.sample(sorted(outputs), min(len(outputs), rng.randrange(4)))}
        edges += [Edge(source, name, "int8", (outputs[source],)) for source in sorted(sources)]
        nodes.append(Node(name, "Step"))
        outputs[name] = rng.randrange(1, 30)
    return Graph(tuple(nodes), tuple(edges))


def crossing_bytes(ranks, edges):
    """What crosses: each output once to each rank that takes it."""
    return sum({(edge.source, ranks[edge.target]): edge.nbytes for edge in edges
                if ranks[edge.source] != ranks[edge.target]}.values())


def every_pipeline(made, stages):
    """(what the heaviest stage weighs, bytes that cross) of each way to cut."""
    steps = [node.name for node in made.nodes if node.op == "Step"]
    needed = {name: [name] for name in steps}
    for node in reversed(made.nodes):
        if node.op != "Step":
            needed[node.name] = sorted((step for edge in made.edges if edge.source == node.name
                                        for step in needed[edge.target]), key=steps.index)
    for cuts in itertools.combinations(range(1, len(steps)), stages - 1):
        ends = [*cuts, len(steps)]
        ranks = {name: next(rank for rank, end in enumerate(ends) if number < end)
                 for number, name in enumerate(steps)}
        # What no step needs stays with its latest source.
        for node in made.nodes:
            if needed[node.name]:
                ranks[node.name] = ranks[needed[node.name][0]]
            else:
                ranks[node.name] = max((ranks[edge.source] for edge in made.edges
                                        if edge.target == node.name), default=0)
        yield max(end - begin for begin, end in zip([0, *ends], ends)), crossing_bytes(ranks, made.edges)


@pytest.mark.parametrize("seed", range(60))
def test_pipeline(seed):
    """No other cut that is as even has fewer bytes cross."""
    rng = random.Random(seed)
    made = made_up(rng, rng.randrange(2, 11))
    count = sum(node.op == "Step" for node in made.nodes)
    for stages in range(1, min(count, 4) + 1):
        balance = rng.choice((1.0, 1.25, 1.5, 4.0))
        cuts = list(every_pipeline(made, stages))
        bound = int(balance * min(heavy for heavy, _ in cuts))
        found = graph.pipeline(made, stages, balance=balance)
        ranks = [node.rank for node in found.nodes if node.op == "Step"]
        assert found.ranks == stages and sorted(set(ranks)) == list(range(stages)) and ranks == sorted(ranks)
        assert max(map(ranks.count, ranks)) <= bound
        place = {node.name: node.rank for node in found.nodes}
        assert all(place[edge.source] < place[edge.target] for edge in found.crossing())
        assert sum(edge.nbytes for edge in found.crossing()) == \
            crossing_bytes({node.name: node.rank for node in found.nodes}, found.edges) == \
            min(crossed for heavy, crossed in cuts if heavy <= bound)


def chain(*dims, dtype="int8"):
    """Nodes n0, n1, ..., each of which takes from the one before it a tensor of one of these dims."""
    return Graph(tuple(Node(f"n{number}") for number in range(len(dims) + 1)), tuple(
        Edge(f"n{number}", f"n{number + 1}", dtype, (dim,)) for number, dim in enumerate(dims)))


def cut_of(found):
    """Which edges of a chain cross."""
    return [edge.source for edge in found.crossing()]


def test_pipeline_options():
    """What nodes weigh, what symbols count as, what is refused."""
    made = chain(Dim("n"), 5, Dim("m", 3), 4)
    assert cut_of(graph.pipeline(made, 2, balance=4)) == ["n0"]
    assert cut_of(graph.pipeline(made, 2, balance=4, sizes={"n": 9})) == ["n2"]
    assert cut_of(graph.pipeline(made, 2, balance=4, sizes={"n": 9, "m": 6})) == ["n3"]
    assert cut_of(graph.pipeline(made, 2, balance=1, weights={"n0": 5, "n1": 5})) == ["n0"]
    assert cut_of(graph.pipeline(made, 2, balance=1, weights={"n3": 5, "n4": 5})) == ["n3"]
    assert cut_of(graph.pipeline(made, 5)) == ["n0", "n1", "n2", "n3"]
    heavy = {f"n{number}": (1 << 53) + 1 for number in range(5)}
    assert len(cut_of(graph.pipeline(made, 5, balance=1, weights=heavy))) == 4
    assert cut_of(graph.pipeline(made, 2, balance=1e308)) == ["n0"]
    for words in ({"stages": 0}, {"stages": 6}, {"stages": 2, "balance": 0.9},
                  {"stages": 2, "balance": float("nan")}, {"stages": 2, "balance": float("inf")},
                  {"stages": 2, "weights": {"n1": 1 << 61}},
                  {"stages": 2, "weights": {"n9": 1}}, {"stages": 2, "weights": {"n1": -1}}):
        with pytest.raises(GraphError):
            graph.pipeline(made, **words)
    with pytest.raises(GraphError, match="more bytes than can be counted"):
        graph.pipeline(chain(1 << 62), 2)


def test_pipeline_symbols():
    """What is multiplied in a name counts as each part of it."""
    made = chain(Dim("b*s"), 40, Dim("2*n", 30))
    for sizes, cut in (({}, "n0"), ({"b": 9, "s": 9}, "n2"), ({"b": 9, "s": 9, "n": 50}, "n1"),
                       ({"b*s": 50}, "n2"), ({"b": 35}, "n2"), ({"b": 35, "n": 18}, "n0")):
        assert cut_of(graph.pipeline(made, 2, balance=2, sizes=sizes)) == [cut], sizes


def test_returned():
    """What follows from variables and is returned alone is with them."""
    made = Graph((Node("x", "Input"), Node("w", "Variable"), Node("a"), Node("b"), Node("pow", "Pow")), (
        Edge("x", "a", "int8", (3,)), Edge("a", "b", "int8", (1,)), Edge("w", "b", "int8", (9,)),
        Edge("w", "pow", "int8", (9,))))
    for found in (graph.pipeline(made, 2), graph.by_hand(made, {"a": 0, "b": 1})):
        assert [str(edge) for edge in found.crossing()] == ["a:0 -> b"]


def test_pipeline_of_many():
    """10,000 nodes are cut where least crosses within the bound."""
    dims = [100] * 9999
    for thin, size in ((2000, 1), (4400, 7), (5100, 8), (9000, 1)):
        dims[thin] = size
    assert cut_of(graph.pipeline(chain(*dims), 2)) == ["n4400"]
    assert len(graph.pipeline(chain(*dims), 8).crossing()) == 7


def test_by_hand():
    """Names before patterns, the first that fits; what can be anywhere is where it is needed."""
    made = models.model("fcn5")
    placed = graph.by_hand(made, {"fc?": 0, "f?5": 3, "fc3": 2, "fc5/*": 1})
    ranks = {node.name: node.rank for node in placed.nodes}
    assert placed.ranks == 3 and [ranks[f"fc{number}"] for number in range(1, 6)] == [0, 0, 2, 0, 0]
    assert ranks["images"] == 0 and ranks["fc3/weights"] == 2 and ranks["fc5/weights"] == 1
    with pytest.raises(GraphError, match="'fc1' has no place"):
        graph.by_hand(made, {"fc2*": 0, "fc3*": 0})
    with pytest.raises(GraphError, match="no node 'fc.2-5.'"):
        graph.by_hand(made, {"*": 0, "fc[2-5]": 0})
    with pytest.raises(GraphError, match="no node 'fc6'"):
        graph.by_hand(made, {"fc*": 0, "fc6": 1})
    with pytest.raises(GraphError, match="no rank -1"):
        graph.by_hand(made, {"*": -1})


def test_by_hand_names():
    """Names with brackets are names, also in patterns; 10,000 of them take no time."""
    made = Graph((Node("a[0]"), Node("a0"), Node("b[1]"), Node("b*")), ())
    for places, ranks in (({"a[0]": 1, "a0": 2, "b*": 3, "b[?]": 4}, [1, 2, 4, 3]),
                          ({"a[*": 1, "a*": 2, "b[1]": 0, "b*": 3}, [1, 2, 0, 3])):
        assert [node.rank for node in graph.by_hand(made, places).nodes] == ranks
    with pytest.raises(GraphError, match="no node 'b.0.'"):
        graph.by_hand(made, {"*": 0, "b[0]": 1})
    many = Graph(tuple(Node(f"n{number}") for number in range(10000)), ())
    begun = time.process_time()
    found = graph.by_hand(many, {node.name: number for number, node in enumerate(many.nodes)})
    assert time.process_time() - begun < 2 and found.ranks == 10000


def test_by_hand_beside():
    """What may be anywhere follows those that need it to where they were put."""
    made = Graph((Node("v", "Variable"), Node("f", "Reshape"), Node("x", "Input"), Node("y")), (
        Edge("v", "f", "int8", (9,)), Edge("f", "y", "int8", (9,)), Edge("x", "y", "int8", (9,))))
    assert [node.rank for node in graph.by_hand(made, {"f": 1, "y": 0}).nodes] == [1, 1, 0, 0]
    assert [node.rank for node in graph.by_hand(made, {"y": 2}).nodes] == [2, 2, 2, 2]
    assert [node.rank for node in graph.by_hand(made, {"v": 1, "y": 0}).nodes] == [1, 0, 0, 0]


def of_variables(*elements):
    """A graph of such variables, which one node uses."""
    held = (Node(f"v{number}", "Variable") for number in range(len(elements)))
    return Graph((*held, Node("all", "Sum")), tuple(
        Edge(f"v{number}", "all", "float32", (count,)) for number, count in enumerate(elements)))


@pytest.mark.parametrize("seed", range(30))
def test_balance(seed):
    """The largest first is never worse than 4/3 of the best."""
    rng = random.Random(seed)
    elements = [rng.randrange(1, 100) for _ in range(rng.randrange(1, 8))]
    servers = rng.randrange(1, 4)
    best = min(max(sum(size for size, own in zip(elements, chosen) if own == server)
                   for server in range(servers))
               for chosen in itertools.product(range(servers), repeat=len(elements)))
    found = graph.data_parallel(of_variables(*elements), 1, servers)
    load = [0] * servers
    for node in found.nodes:
        if node.op == "Variable":
            load[node.rank] += elements[int(node.name[1:])]
    assert sum(load) == sum(elements) and 3 * max(load) <= 4 * best


def test_data_parallel():
    """Values are pulled from where gradients are pushed to; the workers' own edges stay there."""
    made = Graph((Node("x", "Input"), Node("shape", "Variable"), Node("w", "Variable"), Node("a", "Reshape"),
                  Node("b", "MatMul"), Node("c", "MatMul")), (
        Edge("x", "a", "float32", (Dim("batch"), 8)), Edge("shape", "a", "int64", (2,)),
        Edge("a", "b", "float32", (Dim("batch"), 2, 4)), Edge("w", "b", "float32", (4, 4)),
        Edge("w", "c", "float32", (4, 4)), Edge("b", "c", "float32", (Dim("batch"), 2, 4))))
    found = graph.data_parallel(made, 2, 1)
    assert found.ranks == 3
    assert [(str(edge), edge.kind, edge.nbytes) for edge in found.crossing()] == [
        (text.format(worker), "static", 64) for worker in (0, 1)
        for text in ("w:0 -> worker{}/w", "worker{}/w/gradient:0 -> w/update")]
    ops = {node.name: (node.op, node.rank) for node in found.nodes}
    assert ops["w"] == ("Variable", 0) and ops["w/update"] == ("Update", 0)
    assert ops["worker1/w"] == ("Pull", 2) and ops["worker1/w/gradient"] == ("Gradient", 2)
    assert ops["worker1/shape"] == ("Variable", 2) and ops["worker0/c"] == ("MatMul", 1)
    assert len(found.edges) == 2 * (len(made.edges) + 2)
    for words in ((0, 1), (1, 0)):
        with pytest.raises(GraphError, match="train nothing"):
            graph.data_parallel(made, *words)
    with pytest.raises(GraphError, match="no variables"):
        graph.data_parallel(chain(3), 1, 1)
    named = Graph((Node("v" * 240, "Variable"), Node("y")), (Edge("v" * 240, "y", "float32", (3,)),))
    with pytest.raises(GraphError, match="of 1 to 255 bytes"):
        graph.data_parallel(named, 1, 1)
    with pytest.raises(GraphError, match="'v0' is not of one size"):
        graph.data_parallel(of_variables(Dim("n", 4)), 1, 1)


# ---- the paper's models ----

# What crosses between two stages: (edges, bytes), all static; of cells all variables.
CUTS = {"alexnet": (1, 3538944), "inception": (4, 28409856), "vgg16": (1, 25690112), "lstm": (13, 33701888),
        "gru": (10, 25309184), "fcn5": (1, 524288)}


@pytest.mark.parametrize("name", models.TABLE)
def test_models(name):
    """Sizes and numbers of variables are those of Table 2; what crosses is known."""
    made = models.model(name)
    held = {node.name for node in made.nodes if node.op == "Variable"}
    sizes = {edge.source: edge.nbytes for edge in made.edges if edge.source in held}
    assert (round(sum(sizes.values()) / (1 << 20), 2), len(sizes)) == models.TABLE[name]
    cut = graph.pipeline(made, 2).crossing()
    assert all(edge.kind == "static" for edge in cut)
    assert (len(cut), sum(edge.nbytes for edge in cut)) == CUTS[name]
    parallel = graph.data_parallel(made, 3, 2)
    assert len(parallel.crossing()) == 2 * 3 * len(sizes)
    assert sum(edge.nbytes for edge in parallel.crossing()) == 2 * 3 * sum(sizes.values())


def test_alone():
    """It is there without ONNX and PyTorch; what needs them says so."""
    said = subprocess.run([sys.executable, "-c", """
import sys
sys.modules["onnx"] = sys.modules["torch"] = None
from towline import graph
for function, *more in ((graph.from_onnx,), (graph.from_torch,),
                        (graph.onnx_functions, graph.Graph((), ()), 0)):
    try:
        function("model.onnx", *more)
    except ImportError as error:
        print(error)
"""], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout
    assert [name in line for name, line in zip(("onnx", "torch", "onnx"), said.splitlines(), strict=True)] == [
        True] * 3, said
