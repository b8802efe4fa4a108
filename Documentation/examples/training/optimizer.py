# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""Stochastic gradient descent with momentum, the same bits wherever it is computed.

Each operation is rounded to float32 by itself: a server in C does the same when it is
compiled with -ffp-contract=off.
"""

from typing import Sequence

import numpy as np


def sum_in_order(arrays: Sequence[np.ndarray], out: np.ndarray) -> np.ndarray:
    """The sum of the workers' arrays, in the order of their ranks."""
    if len(arrays) == 1:
        np.copyto(out, arrays[0])
        return out
    np.add(arrays[0], arrays[1], out=out)
    for array in arrays[2:]:
        np.add(out, array, out=out)
    return out


class Momentum:
    """velocity = momentum * velocity + gradient; parameter -= rate * velocity."""

    def __init__(self, rate: float, momentum: float, workers: int) -> None:
        self._rate = np.float32(rate)
        self._momentum = np.float32(momentum)
        self._workers = np.float32(workers)

    def apply(self, total: np.ndarray, parameters: np.ndarray, velocity: np.ndarray,
              new_parameters: np.ndarray, new_velocity: np.ndarray) -> None:
        """One step, from the sum of the workers' gradients (which is written over).

        What was before stays as it is: a step that is broken off has spoilt nothing.
        """
        np.divide(total, self._workers, out=total)
        np.multiply(velocity, self._momentum, out=new_velocity)
        np.add(new_velocity, total, out=new_velocity)
        np.multiply(new_velocity, self._rate, out=new_parameters)
        np.subtract(parameters, new_parameters, out=new_parameters)
