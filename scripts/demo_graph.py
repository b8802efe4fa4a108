# SPDX-License-Identifier: GPL-2.0
"""Graphs in the demo: plans of ONNX models, and Documentation/examples/graph_pipeline.py on two nodes."""

import json
import os
import pathlib
import subprocess

EXAMPLE = "Documentation/examples/graph_pipeline.py"
PYTHON = "build/onnx/bin/python3"
KEPT = "build/demo"
ROOT = "10.77.0.1"
RANKS = 2
STEPS = 10
SECONDS = 240
# Who runs the example, beside which one it is.
ENVIRONMENT = {"TOW_WORLD_SIZE": str(RANKS), "TOW_ROOT": ROOT, "TOW_LOCAL_RANK": "0", "PYTHONPATH": "python",
               "PYTHONDONTWRITEBYTECODE": "1", "TOWLINE_LIBRARY": "build/lib/libtowline.so.0",
               "TOWLINE_RING": "build/python/_ring.abi3.so"}
SAVE_DIGITS = ("import sys; sys.path.insert(0, 'Documentation/examples/training'); import digits, numpy; "
               f"numpy.save('{KEPT}/digits.npy', digits.load().pixels.reshape(-1, 1, 8, 8))")

# (name, the example's options, what is said)
MODELS = (
    ("encoder", "--bound batch=4 --bound seq=128 --below 50",
     "an encoder of two layers, of which each step has sequences of another length"),
    ("digits", f"--bound batch=32 --feed images={KEPT}/digits.npy",
     "a convolutional network, and scikit-learn's handwritten digits in batches of any size up to 32"),
)


def picture(plan):
    """The ranks of a plan, and what goes from each to others, in some lines."""
    nodes = plan["graph"]["nodes"]
    for rank in plan["ranks"]:
        own = [node["name"] for node in nodes if node["rank"] == rank["rank"]]
        yield f"[ rank {rank['rank']}: {len(own)} nodes, {own[0]} to {own[-1]} ]"
        for edge in plan["edges"]:
            if edge["from_rank"] == rank["rank"]:
                yield f"    |-- {edge['from']} --> rank {edge['to_rank']}: {', '.join(edge['to'])}"


class Scene:
    """The models, with the demo's own ways to say and show."""

    def __init__(self, top, say, show, step):
        self._top, self._say, self._show, self._step = top, say, show, step
        self._in_place = True

    def _run(self, *command):
        """Its output, here."""
        return subprocess.run(command, cwd=self._top, check=True, stdout=subprocess.PIPE, text=True,
                              env={**os.environ, **ENVIRONMENT, "TOW_RANK": "0"}).stdout

    def _plan(self, name, options):
        path = f"{KEPT}/{name}/plan"
        pathlib.Path(self._top, path).parent.mkdir(parents=True, exist_ok=True)
        self._run(PYTHON, "tests/graph/onnx_models.py", name, f"{KEPT}/{name}.onnx")
        self._run(PYTHON, EXAMPLE, f"{KEPT}/{name}.onnx", *options.split(), "--json", f"{path}.json")
        self._show(f"$ graph_pipeline.py {name}.onnx {options} --json plan.json; towline plan plan.json")
        self._show(self._run("build/bin/towline", "plan", f"{path}.json"))
        self._show("\n".join(picture(json.loads(self._run("build/bin/towline", "plan", "--json",
                                                          f"{path}.json")))))
        pathlib.Path(self._top, f"{path}.dot").write_text(
            self._run("build/bin/towline", "plan", "--dot", f"{path}.json"), encoding="utf-8")
        self._run("dot", "-Tsvg", "-o", f"{path}.svg", f"{path}.dot")
        self._show(f"towline plan --dot | dot -Tsvg: {path}.svg")

    def plan(self):
        """How their tensors will move; nothing runs."""
        pathlib.Path(self._top, KEPT).mkdir(parents=True, exist_ok=True)
        self._run("/usr/bin/python3", "-B", "-c", SAVE_DIGITS)
        for name, options, said in MODELS:
            self._say(f"{said}: cut in two, and planned")
            self._plan(name, options)

    def all(self, lab):
        """Both run."""
        self._step(lab, "echo 64m > /sys/class/towline/rxe0/pool_bytes", on="all")
        words = " ".join(f"{name}={value}" for name, value in ENVIRONMENT.items())
        for name, options, _ in MODELS:
            self._say(f"the {name} model runs, a part on each node; node 1 computes it alone as well")
            self._show(f"nodeN$ graph_pipeline.py {name}.onnx {options} --check")
            text = self._step(lab, f"export TOW_RANK=$TOW_LAB_NODE TOW_SESSION={name} {words}; exec {PYTHON} "
                                   f"{EXAMPLE} {KEPT}/{name}.onnx {options} --steps {STEPS} --check",
                              on="all", timeout=SECONDS)
            self._show(text)
            self._in_place &= text.count(": 0 bytes were copied") == RANKS

    def report(self):
        """False when anything was copied."""
        self._say("the same bits as in one process" + ", and nothing was copied" * self._in_place)
        return self._in_place
