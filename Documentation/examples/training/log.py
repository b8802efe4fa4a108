# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""What a worker writes down: one line of JSON for each thing that happens.

	{"run": {...}}		a process begins; what it was told
	{"event": "...", ...}	met, lost: with the step and the time
	{"step": 1, ...}	a step: the loss of each share that was computed here, with
				its exact bits, and where the time went
	{"end": {...}}		accuracy on what was held out, the parameters' digest

Times are seconds since the process began to write; each process has its own clock.
"""

import json
import os
import time
from typing import Any, Optional


class Log:
    """One worker's lines, each in the file when the call returns."""

    def __init__(self, path: Optional[str], **run: Any) -> None:
        """Begin, behind what the process before us wrote that was killed."""
        self._file = None
        if path:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._zero = time.monotonic()
        self._write({"run": run})

    def _write(self, line: dict) -> None:
        if self._file is not None:
            os.write(self._file, (json.dumps(line) + "\n").encode())

    def now(self) -> float:
        """Seconds since the beginning."""
        return round(time.monotonic() - self._zero, 6)

    def event(self, name: str, **more: Any) -> None:
        """Something that is no step."""
        self._write({"event": name, "time": self.now(), **more})

    def step(self, step: int, rank: int, loss: float, **more: Any) -> None:
        """A step, for one rank's share of the batch."""
        self._write({"step": step, "rank": rank, "loss": loss, "hex": loss.hex(),
                     "time": self.now(), **more})

    def end(self, **more: Any) -> None:
        """The training is over."""
        self._write({"end": {"time": self.now(), **more}})
