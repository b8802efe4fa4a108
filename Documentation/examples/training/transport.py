# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""What training wants of whatever moves its tensors: two small interfaces.

By AllReduce each worker gets the sum of all gradients and updates its own parameters.  By
parameter server the servers do both, each for its variables, and workers get those.
"""

import abc
import contextlib
from typing import ContextManager, Dict, List, Optional, Sequence, Tuple

import numpy as np

from optimizer import sum_in_order

Shapes = Sequence[Tuple[int, ...]]


class Lost(Exception):
    """Somebody does not answer any more: a worker that was killed, say."""


class Transport(abc.ABC):
    """What both have."""

    # Of tensors, both ways, since the beginning.
    bytes_moved = 0
    # Of these, how many the processor copied on their way, where somebody counts it.
    bytes_copied = None

    @abc.abstractmethod
    def close(self) -> None:
        """End: nobody is going to be waited for."""

    def report(self) -> str:
        """What it has to say of copies, for people."""
        return ""


class AllReduce(Transport):
    """Gradients are summed, and every worker has the sum."""

    # The ranks whose gradients this process computes.
    ranks: Sequence[int] = ()

    @abc.abstractmethod
    def allocate(self, count: int) -> List[np.ndarray]:
        """An array of so many float32 for each of `ranks`, to write gradients into."""

    @abc.abstractmethod
    def lowest(self, value: int) -> int:
        """The lowest number that any of the workers says; all have come when it returns."""

    @abc.abstractmethod
    def reduce(self, step: int) -> np.ndarray:
        """Sum the gradients in the order of the ranks; an array that may be written over."""


class ParameterServer(Transport):
    """Servers hold the parameters."""

    @abc.abstractmethod
    def allocate(self, shapes: Shapes) -> Optional[List[np.ndarray]]:
        """An array for each variable, to write its gradients into; None: they may be anywhere."""

    @abc.abstractmethod
    def pull(self) -> List[np.ndarray]:
        """The parameters that training begins with."""

    def step(self) -> ContextManager[object]:
        """What a step is done in, from its gradients to what is exchanged."""
        return contextlib.nullcontext()

    def computing(self) -> ContextManager[object]:
        """What gradients are computed in."""
        return contextlib.nullcontext()

    @abc.abstractmethod
    def exchange(self, step: int, gradients: Sequence[np.ndarray]) -> List[np.ndarray]:
        """Give the gradients away; the parameters after the step, not to be written to."""

    def traced(self) -> Dict[str, int]:
        """Of the last step's gradients, how many bytes were sent from where they are, and how many
        were copied first: for the log."""
        return {}


class Alone(AllReduce):
    """One process that computes what several workers would: what all are compared with."""

    def __init__(self, size: int) -> None:
        self.ranks = range(size)
        self._gradients: List[np.ndarray] = []
        self._total = np.empty(0, np.float32)

    def allocate(self, count: int) -> List[np.ndarray]:
        self._gradients = [np.empty(count, np.float32) for _ in self.ranks]
        self._total = np.empty(count, np.float32)
        return self._gradients

    def lowest(self, value: int) -> int:
        return value

    def reduce(self, step: int) -> np.ndarray:
        return sum_in_order(self._gradients, self._total)

    def close(self) -> None:
        pass


def placement(variables: int, servers: int) -> List[List[int]]:
    """Which variables each server holds: dealt round robin."""
    return [list(range(server, variables, servers)) for server in range(servers)]
