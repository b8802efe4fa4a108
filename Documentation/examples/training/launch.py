#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""Start all processes of a training on this machine, and wait for them.

	launch.py [--workers N] [--servers N] [--out FOLDER] TRAIN.PY'S OPTIONS...

For example, after `make examples`:

	launch.py --out /tmp/run --transport grpc --method server
	report.py --out /tmp/report.html /tmp/run
"""

import argparse
import os
import pathlib
import socket
import subprocess
import sys
import time
from typing import Dict, List, Optional, Sequence, Tuple

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parents[2]
# Where make puts code that is generated, and where towline's own package is.
PATHS = (TOP / "build/examples/training", TOP / "python")
LIBRARY = TOP / "build/lib/libtowline.so.0"


def free_addresses(count: int) -> List[str]:
    """Addresses here at which nobody listens, at this moment."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    found = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return found


class Training:
    """The processes of one training; ends them all when left."""

    def __init__(self, words: Sequence[str], out: Optional[pathlib.Path] = None,
                 workers: int = 2, servers: int = 2, state: bool = False) -> None:
        """Start what `words`, train.py's options, ask for; logs go into the folder `out`."""
        options = argparse.ArgumentParser(add_help=False)
        options.add_argument("--transport")
        options.add_argument("--method")
        known, _ = options.parse_known_args(words)
        self._out = out
        self._words = list(words)
        self._size = workers
        self._state = state
        self._transport = known.transport
        # Of two trainings at a time neither meets the other's workers.
        self._session = f"{os.getpid()}.{time.monotonic_ns()}"
        self._processes: Dict[Tuple[str, int], subprocess.Popen] = {}
        alone = known.transport == "none"
        if out:
            out.mkdir(parents=True, exist_ok=True)
        self._words += ["--workers", ",".join(free_addresses(workers))]
        if known.method == "server" and not alone:
            self._words += ["--servers", ",".join(free_addresses(servers))]
            for rank in range(servers):
                self.start("server", rank)
        for rank in range(1 if alone else workers):
            self.start("worker", rank)

    def start(self, role: str, rank: int, restart: int = 0) -> None:
        """Start one of them, or start it again."""
        words = [sys.executable, str(HERE / "train.py"), "--role", role, *self._words]
        if role == "worker" and self._out:
            words += ["--log", str(self.log(rank))]
            if self._state:
                words += ["--state", self._keeps(rank)]
        paths = [str(path) for path in PATHS] + [os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ, "TOW_RANK": str(rank), "TOW_WORLD_SIZE": str(self._size),
            "TOW_RESTART": str(restart), "TOW_SESSION": self._session,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONDONTWRITEBYTECODE": "1"}
        if LIBRARY.exists():
            environment.setdefault("TOWLINE_LIBRARY", str(LIBRARY))
        self._processes[role, rank] = subprocess.Popen(     # pylint: disable=consider-using-with
            words, env=environment)

    def _keeps(self, rank: int) -> str:
        """Where a worker keeps its state: a region's name, or a file."""
        assert self._out
        return (f"training-{rank}" if self._transport == "towline"
                else str(self._out / f"state-{rank}"))

    def log(self, rank: int) -> pathlib.Path:
        """A worker's log."""
        assert self._out
        return self._out / f"worker-{rank}.jsonl"

    def kill(self, rank: int) -> None:
        """Kill a worker, without a warning."""
        process = self._processes.pop(("worker", rank))
        process.kill()
        process.wait()

    def failed(self) -> bool:
        """Whether one of them has."""
        return any(process.poll() for process in self._processes.values())

    def wait(self, seconds: float = 600) -> bool:
        """Until all have ended well; False when one failed, or the time is over."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.failed():
                return False
            if None not in [process.poll() for process in self._processes.values()]:
                return True
            time.sleep(0.02)
        return False

    def __enter__(self) -> "Training":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()


def main() -> int:
    """Start, wait."""
    options = argparse.ArgumentParser(description=__doc__, usage="%(prog)s [options] ...",
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--servers", type=int, default=2)
    options.add_argument("--out", type=pathlib.Path)
    known, words = options.parse_known_args()
    with Training(words, known.out, known.workers, known.servers) as training:
        return 0 if training.wait() else 1


if __name__ == "__main__":
    sys.exit(main())
