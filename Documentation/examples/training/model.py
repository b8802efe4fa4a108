# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""A perceptron with ReLUs between its layers, its loss and its gradients.

The same numbers give the same bits, in any process and on any machine with the same NumPy and
BLAS, set up as exact.py does it.
"""

import itertools
from typing import Any, List, Optional, Sequence, Tuple

import numpy as np

Arrays = List[np.ndarray]


class Model:
    """Layers of so many units, the first of which are the inputs.

    Parameters are all weights, then all biases: dealt round robin, weights spread over
    servers.  In turns with the biases every second server would get biases alone.
    """

    def __init__(self, layers: Sequence[int], dtype: type = np.float32) -> None:
        self.layers = tuple(layers)
        self.dtype = np.dtype(dtype)
        pairs = list(itertools.pairwise(self.layers))
        self.shapes: List[Tuple[int, ...]] = pairs + [(units,) for _, units in pairs]
        self.count = sum(int(np.prod(shape)) for shape in self.shapes)

    def views(self, flat: np.ndarray) -> Arrays:
        """Parameters, or their gradients, one behind the other in an array."""
        return views(flat, self.shapes)

    def initial(self, seed: int) -> np.ndarray:
        """Where training begins: He's bounds for the weights, no biases.

        Uniform numbers are exact arithmetic; normal ones would need a logarithm, which
        C libraries round differently.
        """
        flat = np.zeros(self.count, self.dtype)
        stream = np.random.RandomState([seed, 0x1417])
        for weights in self.views(flat)[:len(self.layers) - 1]:
            bound = np.sqrt(6 / len(weights))
            weights[...] = (2 * stream.random_sample(weights.shape) - 1) * bound
        return flat

    def _activations(self, parameters: Sequence[np.ndarray], inputs: np.ndarray) -> Arrays:
        """What goes into each layer, and what comes out of the last one."""
        depth = len(self.layers) - 1
        values = [inputs]
        for layer in range(depth):
            out = values[-1] @ parameters[layer]
            out += parameters[depth + layer]
            if layer < depth - 1:
                np.maximum(out, 0, out=out)
            values.append(out)
        return values

    def gradients(self, parameters: Sequence[np.ndarray], inputs: np.ndarray, labels: np.ndarray,
                  into: Optional[Sequence[np.ndarray]] = None) -> Tuple[float, Arrays]:
        """The mean cross-entropy of some rows, and its gradients, written where they belong.

        `into` may be memory that is sent from: nothing is copied to there.  Without it NumPy
        allocates them.
        """
        depth = len(self.layers) - 1
        found: List[Any] = list(into) if into else [None] * len(parameters)
        values = self._activations(parameters, inputs)
        rows = np.arange(len(labels))
        logits = values.pop()
        logits -= logits.max(axis=1, keepdims=True)
        slope = np.exp(logits)
        sums = slope.sum(axis=1, keepdims=True)
        loss = np.mean(np.log(sums[:, 0]) - logits[rows, labels])
        slope /= sums
        slope[rows, labels] -= 1
        slope /= self.dtype.type(len(labels))
        for layer in reversed(range(depth)):
            value = values.pop()
            found[layer] = np.matmul(value.T, slope, out=found[layer])
            found[depth + layer] = np.sum(slope, axis=0, out=found[depth + layer])
            if layer:
                slope = slope @ parameters[layer].T
                slope *= value > 0
        return float(loss), found

    def accuracy(self, parameters: Sequence[np.ndarray], inputs: np.ndarray,
                 labels: np.ndarray) -> float:
        """Which part of the rows is recognised."""
        logits = self._activations(parameters, inputs)[-1]
        return float(np.mean(logits.argmax(axis=1) == labels))


def views(flat: np.ndarray, shapes: Sequence[Tuple[int, ...]]) -> Arrays:
    """Arrays of these shapes, one behind the other in another one."""
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    return [flat[end - int(np.prod(shape)):end].reshape(shape)
            for shape, end in zip(shapes, ends)]
