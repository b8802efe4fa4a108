# SPDX-License-Identifier: GPL-2.0
"""Functions of the nodes of ONNX models, run in turn in one process: the same bits as without them."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_models import WORDS, digits, encoder, of
from towline import graph
from towline.graph import Dim, GraphError


def session(model):
    """onnxruntime's, of one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


class Turns:
    """All nodes of a graph in turn, as graph.run() would call them.

    placed: the outputs that were written to where they were to be; returned: the others.
    """

    def __init__(self, cut, model):
        self.cut = cut
        self.functions = {}
        for rank in range(cut.ranks):
            own = graph.onnx_functions(model, cut, rank)
            assert set(own) == {node.name for node in cut.nodes if node.rank == rank and node.op != "Input"}
            self.functions.update(own)
        self.placed, self.returned = set(), set()

    def step(self, **feeds):
        """What each node gives, by node and output."""
        values = {}
        for node in self.cut.nodes:
            function = feeds.get(node.name, self.functions.get(node.name))
            if isinstance(function, np.ndarray):
                values[node.name, 0] = function
            else:
                self.call(node.name, function, values)
        return values

    def call(self, name, function, values):
        """One of them."""
        own = {}
        dtypes = {edge.output: edge.dtype for edge in self.cut.edges if edge.source == name}

        def place(output=0, shape=None):
            assert output not in own
            own[output] = np.empty(shape, dtypes[output])
            own[output].reshape(-1).view("u1")[...] = 0xa5
            return own[output]

        inputs = [values[edge.source, edge.output] for edge in self.cut.edges if edge.target == name]
        for array in inputs:
            array.flags.writeable = False
        given = function(inputs, place)
        self.placed |= {(name, output) for output in own}
        if given is None:
            assert own
            found = own
        else:
            found = dict(enumerate(given if isinstance(given, tuple) else (given,)))
            assert all(found[output] is array for output, array in own.items())
            self.returned |= {(name, output) for output in found.keys() - own.keys()}
        values.update({(name, output): array for output, array in found.items()})


def plainly(model, feeds):
    """What each node of a model gives, by value: of sessions that are fed and allocate."""
    values = {**{one.name: numpy_helper.to_array(one) for one in model.graph.initializer}, **feeds}
    for node in model.graph.node:
        kinds = {name: helper.np_dtype_to_tensor_dtype(values[name].dtype) for name in node.input}
        taken = [helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items()]
        outputs = [helper.make_empty_tensor_value_info(name) for name in node.output]
        one = helper.make_model(helper.make_graph([node], "one", taken, outputs), ir_version=8,
                                opset_imports=model.opset_import)
        found = session(one).run(None, {info.name: values[info.name] for info in taken})
        values.update(zip(node.output, found))
    return values


def words(batch, seq):
    """Of the encoder."""
    return {"ids": np.arange(batch * seq).reshape(batch, seq) * 7 % WORDS}


def images(batch):
    """Of the network of digits."""
    pixels = np.random.default_rng(batch).integers(0, 17, (batch, 1, 8, 8))
    return {"images": pixels.astype("f4") / 16}


@pytest.mark.parametrize("model, bounds, steps", [
    (encoder(), {"batch": 4, "seq": 64}, [words(4, 64), words(1, 1), words(3, 17), words(2, 64)]),
    (digits(), {"batch": 32}, [images(32), images(1), images(7)]),
], ids=["encoder", "digits"])
def test_same_bits(model, bounds, steps):
    """Of each node, at any size; the whole is what onnxruntime computes of the model as it is."""
    cut = graph.pipeline(graph.from_onnx(model, bounds), 3)
    turns, whole = Turns(cut, model), session(model)
    last = model.graph.output[0].name
    names = {value: (f"{value}/{node.op_type}", 0) for node in model.graph.node for value in node.output}
    for feeds in steps:
        found, plain = turns.step(**feeds), plainly(model, feeds)
        for value, place in names.items():
            np.testing.assert_array_equal(found[place], plain[value], strict=True)
        assert found[names[last]].std() > 0
        np.testing.assert_allclose(found[names[last]], whole.run(None, feeds)[0], rtol=1e-4, atol=1e-6)
    # All that anybody takes is written to where it is sent from.
    assert turns.returned == {names[last]}
    assert turns.placed == {(edge.source, edge.output) for edge in cut.edges
                            if not isinstance(turns.functions.get(edge.source, turns), (np.ndarray, Turns))}


def results(model, **feeds):
    """The turns of a model of one rank, and what the node that is named last gives."""
    made = graph.from_onnx(model)
    turns = Turns(made, model)
    found = turns.step(**feeds)
    last = made.nodes[-1].name
    return turns, [array for (name, _), array in sorted(found.items()) if name == last]


def test_bodies():
    """What a body takes from around it is an input, an initializer, too."""
    model = of("""m (float[n] x, bool b) => (float[n] z) {
        y = Abs (x)
        z = If (b) <
            then_branch = one () => (float[n] p) { q = Neg (y) p = Add (q, w) },
            else_branch = two () => (float[n] p) { p = If (b) <
                then_branch = three () => (float[n] r) { r = Relu (x) },
                else_branch = four () => (float[n] r) { r = Identity (w) }> }>
    }""", ("w", np.ones(3, "f4")))
    x = np.array([1, -2, 3], "f4")
    for b, expected in ((True, [0, -1, -2]), (False, [1, 1, 1])):
        _, (array,) = results(model, x=x, b=np.array(b))
        np.testing.assert_array_equal(array, np.array(expected, "f4"), strict=True)


def test_unknown_shapes():
    """What has a shape that only values tell comes as it is; what follows from its inputs is placed."""
    model = of("""m (float[n, 4] x) => (float[q, r] z) {
        i = NonZero (x)
        two = Constant <value = int64[2] {-1, 2}> ()
        t = Reshape (x, two)
        u = Relu (x)
        v = Mul (u, u)
        z = Concat <axis = 0> (t, t)
        f = Cast <to = 1> (i)
        w = Reshape (f, shape)
        s = Identity (w)
    }""", ("shape", np.array([-1, 4])))
    x = np.arange(1, 9, dtype="f4").reshape(2, 4)
    turns = Turns(graph.from_onnx(model), model)
    found = turns.step(x=x)
    assert turns.placed == {("two", 0), ("u", 0)} and ("v", 0) in turns.returned
    np.testing.assert_array_equal(found["z", 0], np.tile(x.reshape(4, 2), (2, 1)), strict=True)
    np.testing.assert_array_equal(found["i", 0], np.nonzero(x), strict=True)
    assert found["s", 0].shape == (4, 4)


def test_outputs():
    """Those that nobody takes are not asked for, unless nobody takes any; one without a name is none."""
    model = of("""m (float[6] x, int64[1] k) => (float[q] z) {
        a, b = Split <axis = 0, num_outputs = 2> (x)
        v, at = TopK (x, k)
        c = Identity (at)
        d, m = Dropout (b)
        z = Clip (d, , most)
        e, f = Split <axis = 0, num_outputs = 2> (v)
    }""", ("most", np.array(2.5, "f4")))
    model.opset_import[0].version = 18
    made = graph.from_onnx(model)
    turns = Turns(made, model)
    x = np.array([5, 1, 4, 2, 3, 0], "f4")
    found = turns.step(x=x, k=np.array([4]))
    assert ("a", 0) not in found and ("d", 1) not in found
    assert found["c", 0].tolist() == [0, 2, 4, 3] and found["v", 1] is not None
    assert found["z", 0].tolist() == [2, 2.5, 0] and found["z", 0].dtype == np.float32
    assert found["e", 0].tolist() == [5, 4] and found["e", 1].tolist() == [3, 2]


def test_types():
    """Also those that NumPy has not, numbers without dims, and nothing at all."""
    model = of("""m (float[n] x, float y) => (float[n] z) {
        a = Cast <to = 16> (x)
        b = Cast <to = 1> (a)
        c = Mul (b, y)
        d = Greater (c, y)
        z = Where (d, c, x)
    }""")
    for size in (0, 3):
        x = np.arange(size, dtype="f4") + 0.001
        turns, (array,) = results(model, x=x, y=np.array(2, "f4"))
        assert ("a", 0) in turns.placed
        np.testing.assert_array_equal(array, np.array([0.001, 1.001, 4][:size], "f4"), strict=True)


def test_own_operators():
    """Functions that the model has."""
    model = of("m (float[2] x) => (float[2] z) { y = own.Twice (x) z = own.Twice (y) }")
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.functions.append(helper.make_function(
        "own", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 17)]))
    _, (array,) = results(model, x=np.array([1, 2], "f4"))
    assert array.tolist() == [4, 8]


def test_files(tmp_path):
    """Of a path, with what is stored beside it, of the rank's own alone."""
    model = encoder(1)
    onnx.save(model, tmp_path / "encoder.onnx", save_as_external_data=True, location="data", size_threshold=512)
    cut = graph.pipeline(graph.from_onnx(tmp_path / "encoder.onnx", {"seq": 512}), 2)
    arrays = {one.name: numpy_helper.to_array(one) for one in encoder(1).graph.initializer}
    held = {}
    for rank, path in enumerate((tmp_path / "encoder.onnx", str(tmp_path / "encoder.onnx"))):
        functions = graph.onnx_functions(path, cut, rank)
        held.update({name: one for name, one in functions.items() if isinstance(one, np.ndarray)})
        assert len(held) < len(arrays) or rank
    assert held.keys() == arrays.keys()
    for name, array in held.items():
        np.testing.assert_array_equal(array, arrays[name], strict=True)


def test_refused():
    """Graphs that are not the model's; elements that have no addresses."""
    model = of("m (float[2] x, float[2] y) => (float[2] z) { a = Add (x, y) z = Relu (a) }")
    made = graph.from_onnx(model)
    for text, said in (("m (float[2] x) => (float[2] z) { z = Relu (x) }", "node 'y' is not in the model"),
                       ("m (float[2] x, float[2] y) => (float[2] z) { a = Neg (x) z = Relu (a) }",
                        "node 'a': its edges are not the model's")):
        with pytest.raises(GraphError, match=said):
            graph.onnx_functions(of(text), made, 0)
    named = graph.from_onnx(of("m (float[n] x) => (float[n] z) { a = Neg (x) z = Relu (a) }"))
    assert named.edges[0].dims == (Dim("n"),) and not graph.onnx_functions(model, graph.Graph((), ()), 0)
    small = of("m (float[2] x) => (float[2] z) { z = DequantizeLinear (w, x) }")
    small.graph.initializer.append(helper.make_tensor("w", TensorProto.INT4, [2], [1, 2]))
    small.opset_import[0].version, small.ir_version = 21, 10
    with pytest.raises(GraphError, match="w:0 -> z: elements of int4 have less than a byte"):
        graph.onnx_functions(small, graph.from_onnx(small), 0)
