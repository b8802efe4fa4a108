# SPDX-License-Identifier: GPL-2.0
"""The six models that "Fast Distributed Deep Learning over RDMA" (EuroSys '19) trains, as graphs.

Of their variables the paper's Table 2 has the sizes and numbers; tests/bench/models.h says how these came
about: ten classes, Inception-v3 with its second head and batch normalisation without a scale.
Activations are [batch, height, width, channels], as in TensorFlow.
"""

from towline.graph import Edge, Graph, Node

BATCH = 32
HIDDEN, STEPS, WORDS = 1024, 80, 1000
# Table 2: (MiB, variables) of each.
TABLE = {"alexnet": (176.42, 16), "inception": (92.90, 196), "vgg16": (512.32, 32), "lstm": (35.93, 14),
         "gru": (27.92, 11), "fcn5": (204.47, 10)}


class Builder:
    """Takes nodes in their order; a tensor is (the node that gives it, its dims)."""

    def __init__(self):
        self.nodes, self.edges = {}, []

    def add(self, name, op, dims, *sources):
        """One node, of one output."""
        if name in self.nodes:
            name += f"_{sum(other.startswith(name) for other in self.nodes)}"
        self.nodes[name] = Node(name, op)
        for source, its in dict(sources).items():
            self.edges.append(Edge(source, name, "float32", tuple(its)))
        return name, dims

    def variable(self, name, *dims):
        """It."""
        return self.add(name, "Variable", dims)

    def layer(self, name, op, dims, source, *kernel):
        """Weights and a bias (or a shift) of what they make of the source."""
        return self.add(name, op, dims, source, self.variable(f"{name}/weights", *kernel),
                        self.variable(f"{name}/biases", kernel[-1]))

    def full(self, name, source, outputs):
        """A layer of which each output has all inputs."""
        return self.layer(name, "MatMul", (BATCH, outputs), source, source[1][-1], outputs)

    def conv(self, name, source, outputs, kernel, stride=1, same=True):
        """A convolution."""
        high, wide = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        dims = self.window(source, high, wide, stride, same)
        return self.layer(name, "Conv", (*dims, outputs), source, high, wide, source[1][-1], outputs)

    def pool(self, name, source, kernel, stride, same=False):
        """The largest, or average, of each window."""
        dims = self.window(source, kernel, kernel, stride, same)
        return self.add(name, "Pool", (*dims, source[1][-1]), source)

    @staticmethod
    def window(source, high, wide, stride, same):
        """How many places a window has."""
        batch, *sides, _ = source[1]
        return (batch, *(-(-side // stride) if same else (side - size) // stride + 1
                         for side, size in zip(sides, (high, wide))))

    def graph(self):
        """What was built."""
        return Graph(tuple(self.nodes.values()), tuple(self.edges))


def alexnet(make):
    """Slim's alexnet_v2."""
    x = make.add("images", "Input", (BATCH, 224, 224, 3))
    x = make.pool("pool1", make.conv("conv1", x, 64, 11, 4, False), 3, 2)
    x = make.pool("pool2", make.conv("conv2", x, 192, 5), 3, 2)
    for name, outputs in (("conv3", 384), ("conv4", 384), ("conv5", 256)):
        x = make.conv(name, x, outputs, 3)
    x = make.conv("fc6", make.pool("pool5", x, 3, 2), 4096, 5, same=False)
    make.conv("fc8", make.conv("fc7", x, 4096, 1), 10, 1)


def vgg16(make):
    """Slim's vgg_16."""
    x = make.add("images", "Input", (BATCH, 224, 224, 3))
    for block, (outputs, layers) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)), 1):
        for layer in range(1, layers + 1):
            x = make.conv(f"conv{block}_{layer}", x, outputs, 3)
        x = make.pool(f"pool{block}", x, 2, 2)
    x = make.conv("fc6", x, 4096, 7, same=False)
    make.conv("fc8", make.conv("fc7", x, 4096, 1), 10, 1)


def fcn5(make):
    """Three hidden layers of 4,096 between two others."""
    x = make.add("images", "Input", (BATCH, 784))
    for name, outputs in (("fc1", 4096), ("fc2", 4096), ("fc3", 4096), ("fc4", 4096), ("fc5", 10)):
        x = make.full(name, x, outputs)


def cell(make, gates):
    """All steps of a cell, which use the same variables, of two inputs and a bias for each gate."""
    kinds = {"input": (HIDDEN, HIDDEN), "hidden": (HIDDEN, HIDDEN), "bias": (HIDDEN,)}
    held = [make.variable(f"gate{gate}/{name}", *dims) for gate in range(gates)
            for name, dims in kinds.items()]
    x = state = make.add("state", "Input", (BATCH, HIDDEN))
    for step in range(STEPS):
        x = make.add(f"input{step}", "Input", (BATCH, HIDDEN))
        state = make.add(f"cell{step}", "Cell", (BATCH, HIDDEN), x, state, *held)
    make.full("softmax", state, WORDS)


def lstm(make):
    """Four gates."""
    cell(make, 4)


def gru(make):
    """Three gates."""
    cell(make, 3)


def mixed(make, name, source, *branches):
    """Branches, each of layers (outputs, kernel, stride) in turn or a layer of pooling, joined.

    A branch's last layer may be several that all use what is before them.
    """
    ends = []
    for number, branch in enumerate(branches):
        x, own = source, f"{name}/{number}"
        for step, layer in enumerate(branch):
            if layer == "pool":
                x = make.pool(f"{own}/pool", x, 3, 1, same=True)
            elif layer == "down":
                x = make.pool(f"{own}/pool", x, 3, 2)
            elif isinstance(layer, list):
                ends += [make.conv(f"{own}/{step}_{which}", x, *one) for which, one in enumerate(layer)]
                x = None
            else:
                x = make.conv(f"{own}/{step}", x, *layer)
        ends += [x] if x else []
    return make.add(name, "Concat", (*ends[0][1][:3], sum(dims[-1] for _, dims in ends)), *ends)


def inception(make):
    """Slim's inception_v3, of which each convolution has a batch normalisation without a scale."""
    x = make.add("images", "Input", (BATCH, 299, 299, 3))
    x = make.conv("conv2a", make.conv("conv1a", x, 32, 3, 2, False), 32, 3, 1, False)
    x = make.pool("pool3a", make.conv("conv2b", x, 64, 3), 3, 2)
    x = make.conv("conv4a", make.conv("conv3b", x, 80, 1, 1, False), 192, 3, 1, False)
    x = make.pool("pool5a", x, 3, 2)
    for name, pooled in (("5b", 32), ("5c", 64), ("5d", 64)):
        x = mixed(make, name, x, [(64, 1)], [(48, 1), (64, 5)], [(64, 1), (96, 3), (96, 3)],
                  ["pool", (pooled, 1)])
    x = mixed(make, "6a", x, [(384, 3, 2, False)], [(64, 1), (96, 3), (96, 3, 2, False)], ["down"])
    for name, mid in (("6b", 128), ("6c", 160), ("6d", 160), ("6e", 192)):
        x = mixed(make, name, x, [(192, 1)], [(mid, 1), (mid, (1, 7)), (192, (7, 1))],
                  [(mid, 1), (mid, (7, 1)), (mid, (1, 7)), (mid, (7, 1)), (192, (1, 7))], ["pool", (192, 1)])
    head = make.pool("head/pool", x, 5, 3)
    head = make.conv("head/conv2", make.conv("head/conv1", head, 128, 1), 768, 5, 1, False)
    make.conv("head/classes", head, 10, 1)
    x = mixed(make, "7a", x, [(192, 1), (320, 3, 2, False)],
              [(192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3, 2, False)], ["down"])
    for name in ("7b", "7c"):
        x = mixed(make, name, x, [(320, 1)], [(384, 1), [(384, (1, 3)), (384, (3, 1))]],
                  [(448, 1), (384, 3), [(384, (1, 3)), (384, (3, 1))]], ["pool", (192, 1)])
    make.conv("classes", make.pool("pool8", x, 8, 1), 10, 1)


def model(name):
    """One of them."""
    make = Builder()
    globals()[name](make)
    return make.graph()
