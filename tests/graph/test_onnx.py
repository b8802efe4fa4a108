# SPDX-License-Identifier: GPL-2.0
"""Graphs of ONNX models: those that its package has, and others; their shapes are those of onnxruntime."""

import collections
import pathlib
import re
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import models
from onnx_models import HEADS, WIDTH, WORDS, encoder, of
from towline import graph
from towline.graph import Dim, GraphError

LIGHT = pathlib.Path(onnx.__file__).parent / "backend/test/data/light"
TOP = pathlib.Path(__file__).resolve().parents[2]
README = TOP / "python/README.md"
SEQ = Dim("seq", 512)

# Of what the package has: nodes that compute, and what crosses in a pipeline of two (edges, bytes).
TABLE = {
    "bvlc_alexnet": (24, 1, 36864), "densenet121": (910, 2, 301056), "inception_v1": (144, 1, 346112),
    "inception_v2": (509, 4, 451584), "resnet50": (176, 1, 802816), "shufflenet": (203, 1, 213248),
    "squeezenet": (66, 1, 32448), "vgg19": (46, 1, 401408), "zfnet512": (22, 1, 294912),
}


def read(name):
    """One of them."""
    return graph.from_onnx(LIGHT / f"light_{name}.onnx")


@pytest.mark.parametrize("name", sorted(path.stem.removeprefix("light_") for path in LIGHT.glob("*.onnx")))
def test_light(name):
    """All shapes are static; how much crosses is known."""
    cut = graph.pipeline(read(name), 2)
    assert {edge.kind for edge in cut.edges} == {"static"}
    ops = collections.Counter(node.op for node in cut.nodes)
    cross = cut.crossing()
    assert (ops.total() - ops["Variable"] - ops["Buffer"] - ops["Input"] - ops["ConstantOfShape"], len(cross),
            sum(edge.nbytes for edge in cross)) == TABLE[name]
    assert graph.Graph.from_json(cut.to_json()) == cut



def test_trained():
    """Means, variances and numbers are not."""
    model = of("""m (float[2, 3, 4] x) => (float[2, 3, 4] y)
        <float[3] scale = {1, 1, 1}, float[3] bias = {0, 0, 0}, float[3] mean = {0, 0, 0},
         float[3] var = {1, 1, 1}, float half = {0.5}>
        { n = BatchNormalization(x, scale, bias, mean, var)
          y = Mul(n, half) }""")
    made = graph.from_onnx(model)
    assert {node.name: node.op for node in made.nodes} == {
        "x": "Input", "scale": "Variable", "bias": "Variable", "mean": "Buffer", "var": "Buffer",
        "half": "Constant", "n": "BatchNormalization", "y": "Mul"}
    parallel = graph.data_parallel(made, 1, 1)
    assert [node.name for node in parallel.nodes if node.op == "Update"] == ["scale/update", "bias/update"]


def dims_of(made, name):
    """Of the first output of a node."""
    return next(edge.dims for edge in made.edges if edge.source == name)


def test_encoder():
    """Lengths keep their names, and their bounds."""
    made = graph.from_onnx(encoder(), {"seq": 512})
    assert dims_of(made, "layer0.norm2/LayerNormalization") == (Dim("batch"), SEQ, WIDTH)
    assert dims_of(made, "layer1.scores/MatMul") == (Dim("batch"), HEADS, SEQ, SEQ)
    both = graph.from_onnx(encoder(), {"seq": 512, "batch": 8})
    assert [(str(edge), edge.kind, edge.nbytes) for edge in graph.pipeline(both, 2).crossing()] == [
        ("layer0.sum1/Add:0 -> layer0.norm1/LayerNormalization", "bounded", 8 * 512 * WIDTH * 4),
        ("split:0 -> layer1.query.parts/Reshape", "static", 32),
        ("joined:0 -> layer1.joined/Reshape", "static", 24)]


def test_as_it_runs():
    """At two lengths each tensor between nodes has the dims that were said."""
    model = encoder()
    made = graph.from_onnx(model)
    values = {(node.name, number): value
              for node in model.graph.node for number, value in enumerate(node.output)}
    for value in values.values():
        if value != model.graph.output[0].name:
            model.graph.output.append(helper.make_empty_tensor_value_info(value))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    names = [one.name for one in session.get_outputs()]
    for batch, seq in ((1, 7), (3, 12)):
        ids = np.arange(batch * seq).reshape(batch, seq) % WORDS
        said = dict(zip(names, session.run(names, {"ids": ids})))
        checked = 0
        for edge in made.edges:
            if (edge.source, edge.output) in values:
                array = said[values[edge.source, edge.output]]
                dims = tuple({"batch": batch, "seq": seq}[dim.name] if isinstance(dim, Dim) else dim
                             for dim in edge.dims)
                assert (array.shape, array.dtype.name) == (dims, edge.dtype), edge
                checked += 1
        assert checked >= len(model.graph.node) - 1


def edges_of(model, **words):
    """Each edge, and its dims."""
    return {str(edge): edge.dims for edge in graph.from_onnx(model, **words).edges}


def test_names():
    """Of nodes without a name, and of those that others have, too; what nobody uses is left out."""
    model = of("m (float[n] x) => (float[n] z) { y = Add (x, w) z = Mul (y, y) }",
               ("w", np.zeros(1, "f4")), ("unused", np.zeros(3, "f4")))
    model.graph.node[0].name = model.graph.node[1].name = "w"
    made = graph.from_onnx(model)
    assert [(node.name, node.op) for node in made.nodes] == [
        ("w", "Variable"), ("x", "Input"), ("w'", "Add"), ("w''", "Mul")]
    assert list(map(str, made.edges)) == ["x:0 -> w'", "w:0 -> w'", "w':0 -> w''"]
    model.graph.node[1].name = ""
    assert [node.name for node in graph.from_onnx(model).nodes][-1] == "z"


def test_values():
    """What depends on values is not known; what inference can compute is."""
    found = edges_of(of("""m (float[n, 4] x, int64[k] shape)
            => (float[2, q] z, float[4, s] v, float[2, 2] u) {
        i = NonZero (x)
        j = Cast <to = 1> (i)
        z = Relu (j)
        two = Constant <value = int64[2] {4, -1}> ()
        t = Reshape (x, two)
        v = Identity (t)
        r = Reshape (x, shape)
        w = Relu (r)
        c = Constant <value = float[2, 2] {1, 2, 3, 4}> ()
        size = Shape (c)
        u = ConstantOfShape (size)
    }"""))
    assert found["i:0 -> j"] == (2, None) and found["j:0 -> z"] == (2, None)
    assert found["t:0 -> v"] == (4, None) and found["r:0 -> w"] is None
    assert found["x:0 -> i"] == (Dim("n"), 4) and found["size:0 -> u"] == (2,)


def test_bodies():
    """What a body takes from around it comes to the node that has the body."""
    found = edges_of(of("""m (float[3] x, bool b) => (float[3] z) {
        y = Abs (x)
        z = If (b) <
            then_branch = one () => (float[3] p) { q = Neg (y) p = Add (q, w) },
            else_branch = two () => (float[3] p) { p = If (b) <
                then_branch = three () => (float[3] r) { r = Relu (x) },
                else_branch = four () => (float[3] r) { r = Identity (w) }> }>
    }""", ("w", np.ones(3, "f4"))))
    assert found == {"x:0 -> y": (3,), "b:0 -> z": (), "y:0 -> z": (3,), "w:0 -> z": (3,), "x:0 -> z": (3,)}


@pytest.mark.parametrize("text, words, said", [
    ("m (float[2] x, float[3] y) => (float[q] z) { z = Add (x, y) }", {}, "shape inference: "),
    ("m (float[2] x) => (float[3] z) { z = Relu (x) }", {}, "shape inference: "),
    ("m (int64[2] x) => (float[2] z) { z = Relu (x) }", {}, "shape inference: "),
    ("m (float[n] x) => (float[n] z) { z = Relu (x) }", {"bounds": {"N": 4}}, "no dimension is named 'N'"),
    ("m (string[2] x) => (string[2] z) { z = Identity (x) }", {}, "node 'x': no tensor of STRING travels"),
    ("m (float[2] x) => (float[2] z) { z = Relu (y) }", {}, "shape inference: "),
    ("m (seq(float[2]) x) => (float[2] z) { i = Constant <value = int64 {0}> () z = SequenceAt (x, i) }", {},
     "node 'x': of 'x' it is not known that it is a tensor"),
])
def test_refused(text, words, said):
    """It says which node, and why."""
    with pytest.raises(GraphError, match=said):
        graph.from_onnx(of(text), **words)


def test_unknown_operator():
    """Of an operator that inference does not know nothing is known."""
    for text, said in (("y = other.Own (x) z = Relu (y)", "node 'y': of 'y' it is not known"),
                       ("z = other.Own (w)", "node 'z': nothing gives 'w' before it")):
        model = of(f"m (float[2] x) => (float[2] z) {{ {text} }}")
        model.opset_import.append(helper.make_opsetid("other", 1))
        with pytest.raises(GraphError, match=said):
            graph.from_onnx(model)


def test_files(tmp_path):
    """By a path, of which what is stored beside it is not read."""
    model = encoder(1)
    onnx.save(model, tmp_path / "encoder.onnx", save_as_external_data=True, location="data")
    (tmp_path / "data").unlink()
    for path in (tmp_path / "encoder.onnx", str(tmp_path / "encoder.onnx")):
        assert graph.from_onnx(path, {"seq": 512}) == graph.from_onnx(encoder(1), {"seq": 512})


def test_readme(tmp_path, monkeypatch, capsys):
    """Its block, as it is printed there."""
    text = README.read_text(encoding="utf-8").partition("\n## Graphs\n")[2]
    block, _ = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    onnx.save(encoder(), "encoder.onnx")
    exec(compile(block, str(README), "exec"), {})   # pylint: disable=exec-used
    made = graph.Graph.from_json((tmp_path / "encoder.json").read_text())
    assert made.ranks == 2 and capsys.readouterr().out.splitlines() == [
        f"{edge} {edge.kind} {edge.nbytes}" for edge in made.crossing()]
    assert {edge.kind for edge in made.crossing()} == {"bounded", "static"}


def test_tables():
    """performance.md has what plans say."""
    table = subprocess.run([sys.executable, TOP / "tests/graph/tables"], stdout=subprocess.PIPE, check=True,
                           text=True).stdout
    assert len(table.splitlines()) == 2 + len(TABLE) + 2 * 2 + 2 * len(models.TABLE)
    text = (TOP / "Documentation/performance.md").read_text(encoding="utf-8")
    assert table in text.partition("\n## Graphs\n")[2].partition("\n## ")[0]
