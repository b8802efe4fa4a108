# SPDX-License-Identifier: GPL-2.0
"""Trainings on this machine, each done once: cases compare them."""

import pathlib
import time

from host_cases import must

# pylint: disable=wrong-import-order
import launch
import report


def steps(path):
    """How many steps a worker has written down."""
    return path.read_text().count('"hex"') if path.exists() else 0


def wait_for_steps(training, rank, count, seconds):
    """Until a worker has done so many."""
    end = time.monotonic() + seconds
    while steps(training.log(rank)) < count:
        must(not training.failed() and time.monotonic() < end, f"no {count} steps")
        time.sleep(0.01)


class Trainings:
    """All with the same options, in folders of one folder."""

    def __init__(self, words, seconds=60):
        self.folder = pathlib.Path()
        self._words = words
        self._seconds = seconds
        self._runs = {}

    def start(self, name, transport, method="allreduce", workers=2, state=False):
        """One that is under way."""
        return launch.Training(["--transport", transport, "--method", method, *self._words],
                               self.folder / name, workers, state=state)

    def run(self, transport, method="allreduce", workers=2):
        """One that nothing happens to."""
        name = f"{transport}-{method}-{workers}"
        if name not in self._runs:
            with self.start(name, transport, method, workers) as training:
                must(training.wait(self._seconds), name, "failed")
            self._runs[name] = report.Run(self.folder / name)
        return self._runs[name]

    def alone(self, workers=2):
        """The reference."""
        return self.run("none", workers=workers)

    def killed(self, transport, after):
        """AllReduce; worker 1 is killed when it has done so many steps, and started again."""
        name = f"{transport}-killed"
        with self.start(name, transport, state=True) as training:
            wait_for_steps(training, 1, after, self._seconds)
            training.kill(1)
            time.sleep(0.2)
            training.start("worker", 1, restart=1)
            must(training.wait(self._seconds), "failed")
        done = report.Run(self.folder / name)
        must(done.restarted)
        events = [(life.run["rank"], event["event"]) for life in done.lives
                  for event in life.events]
        must(events == [(0, "met"), (0, "lost"), (0, "met"), (1, "met"), (1, "resumed"),
                        (1, "met")], events)
        must(done.lives[-1].steps[0]["step"] >= after, "began anew")
        must(report.timeline(done) and len(report.story(done)) == 4)
        return done
