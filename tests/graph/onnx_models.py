# SPDX-License-Identifier: GPL-2.0
"""ONNX models that run: a small encoder, and the digits' convolutional network.

	onnx_models.py {encoder|digits} FILE

writes one of them.  Their weights are random, always the same.
"""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

HEADS, WIDTH, WORDS = 4, 16, 50


def of(text, *initializers):
    """A model of ONNX's own text."""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in initializers)
    return model


class Builder:
    """Takes nodes in their order; what each gives is called as it is."""

    def __init__(self):
        self.rng = np.random.default_rng(0)
        self.nodes, self.held = [], []

    def hold(self, name, value):
        """An initializer."""
        self.held.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(self, op, name, *inputs, **attributes):
        """A node of one output."""
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"{name}/{op}", **attributes))
        return name

    def linear(self, name, source, inputs, outputs):
        """A layer of which each output has all inputs."""
        weight = self.rng.standard_normal((inputs, outputs)).astype("f4") / inputs
        product = self.add("MatMul", f"{name}.product", source, self.hold(f"{name}.weight", weight))
        return self.add("Add", name, product, self.hold(f"{name}.bias", np.zeros(outputs, "f4")))

    def model(self, name, source, target):
        """It, of an input and an output: (name, type, dims)."""
        made = helper.make_graph(self.nodes, name, [helper.make_tensor_value_info(*source)],
                                 [helper.make_tensor_value_info(*target)], self.held)
        model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model)
        return model


def encoder(layers=2):
    """Words [batch, seq] to [batch, seq, WIDTH], by layers of attention, as torch.onnx writes such."""
    make = Builder()
    add, linear = make.add, make.linear

    def norm(name, source):
        return add("LayerNormalization", name, source, make.hold(f"{name}.scale", np.ones(WIDTH, "f4")))

    split = make.hold("split", np.array([0, 0, HEADS, WIDTH // HEADS]))
    joined = make.hold("joined", np.array([0, 0, WIDTH]))
    vectors = make.hold("vectors", make.rng.standard_normal((WORDS, WIDTH)).astype("f4"))
    x = add("Gather", "words", vectors, "ids")
    for number in range(layers):
        own = f"layer{number}"
        heads = {}
        for one, perm in (("query", (0, 2, 1, 3)), ("key", (0, 2, 3, 1)), ("value", (0, 2, 1, 3))):
            parts = add("Reshape", f"{own}.{one}.parts", linear(f"{own}.{one}", x, WIDTH, WIDTH), split)
            heads[one] = add("Transpose", f"{own}.{one}.heads", parts, perm=perm)
        scores = add("MatMul", f"{own}.scores", heads["query"], heads["key"])
        scores = add("Softmax", f"{own}.weights", scores)
        mixed = add("Transpose", f"{own}.mixed", add("MatMul", f"{own}.taken", scores, heads["value"]),
                    perm=(0, 2, 1, 3))
        out = linear(f"{own}.out", add("Reshape", f"{own}.joined", mixed, joined), WIDTH, WIDTH)
        x = norm(f"{own}.norm1", add("Add", f"{own}.sum1", x, out))
        after = add("Relu", f"{own}.relu", linear(f"{own}.up", x, WIDTH, 64))
        x = norm(f"{own}.norm2", add("Add", f"{own}.sum2", x, linear(f"{own}.down", after, 64, WIDTH)))
    return make.model("encoder", ("ids", TensorProto.INT64, ["batch", "seq"]),
                      (x, TensorProto.FLOAT, ["batch", "seq", WIDTH]))


def digits():
    """Images [batch, 1, 8, 8] to how much they are like each digit: the network of examples/torch."""
    make = Builder()

    def conv(name, source, inputs, outputs):
        kernel = make.rng.standard_normal((outputs, inputs, 3, 3)).astype("f4") / 3
        return make.add("Conv", name, source, make.hold(f"{name}.weight", kernel),
                        make.hold(f"{name}.bias", np.zeros(outputs, "f4")), pads=[1, 1, 1, 1])

    x = make.add("Relu", "relu1", conv("conv1", "images", 1, 16))
    x = make.add("MaxPool", "pool1", x, kernel_shape=[2, 2], strides=[2, 2])
    x = make.add("Relu", "relu2", conv("conv2", x, 16, 32))
    x = make.add("Relu", "relu3", make.linear("full1", make.add("Flatten", "flat", x), 512, 64))
    x = make.linear("full2", x, 64, 10)
    return make.model("digits", ("images", TensorProto.FLOAT, ["batch", 1, 8, 8]),
                      (x, TensorProto.FLOAT, ["batch", 10]))


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("encoder", "digits"):
        sys.exit(__doc__)
    onnx.save({"encoder": encoder, "digits": digits}[sys.argv[1]](), sys.argv[2])
