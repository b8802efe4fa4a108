# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""What a worker knows after a step, kept where it outlives the worker.

Parameters and velocity are there twice, for even and for odd steps, and a step's number is
written when all else of it is: so a worker can be killed at any moment, and what is there
afterwards is whole.  (Only a process dies, not the machine: what it had written is in
memory, in the order in which it was written.)

A worker keeps step N before it gives anything away for step N + 1, and nobody ends a step
without the others.  So workers that lost one of them differ by one step at most, and the
lowest step that anybody has, all have: going on from there repeats one step at most, with
the same numbers.
"""

import hashlib
from typing import Optional, Tuple

import numpy as np

_ALIGNED = 64
# Two words that say which steps are there, plus 1, and one that says whose they are.
_WORDS = 3


def fingerprint(*settings: object) -> int:
    """A number that stands for settings: state of other ones is not taken for ours."""
    digest = hashlib.sha256(repr(settings).encode()).digest()
    return int.from_bytes(digest[:8], "little")


def _up(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


class State:
    """Parameters and velocity of the last step and of the one before, in some memory."""

    def __init__(self, memory: np.ndarray, count: int, owner: int) -> None:
        """Take `memory` (bytes, as many as size() says) as it is.

        Memory of zeros, or of another owner, holds no step.
        """
        self._words = memory[:8 * _WORDS].view(np.uint64)
        self._arrays = []
        begin = _ALIGNED
        for _ in range(2):
            pair = []
            for _ in range(2):
                pair.append(memory[begin:begin + 4 * count].view(np.float32))
                begin += _up(4 * count)
            self._arrays.append((pair[0], pair[1]))
        if int(self._words[2]) != owner:
            self._words[:2] = 0
            self._words[2] = owner

    @staticmethod
    def size(count: int) -> int:
        """Bytes of memory for so many parameters."""
        return _ALIGNED + 4 * _up(4 * count)

    @property
    def last(self) -> Optional[int]:
        """The last step that is there, or None."""
        last = int(self._words[:2].max())
        return last - 1 if last else None

    def at(self, step: int) -> Tuple[np.ndarray, np.ndarray]:
        """Parameters and velocity after a step."""
        if int(self._words[step % 2]) != step + 1:
            raise KeyError(f"step {step} is not there")
        return self._arrays[step % 2]

    def begin(self, step: int) -> Tuple[np.ndarray, np.ndarray]:
        """Where a step's parameters and velocity are to be written."""
        self._words[step % 2] = 0
        return self._arrays[step % 2]

    def commit(self, step: int) -> None:
        """They are written, whole."""
        self._words[step % 2] = step + 1

    def forget_after(self, step: int) -> None:
        """Go back: what came later did not happen."""
        self.at(step)
        if self.last != step:
            self._words[(step + 1) % 2] = 0
