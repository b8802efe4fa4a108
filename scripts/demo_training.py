# SPDX-License-Identifier: GPL-2.0
"""The training of the demo: Documentation/examples/training on two nodes, and its report."""

import json
import pathlib
import shutil
import subprocess

EXAMPLE = "Documentation/examples/training"
# In a guest, where what is written is gone with it; and what is kept of it.
LOGS = "/run/training"
KEPT = "build/demo"
NODES = (0, 1)
ADDRESSES = ("10.77.0.1", "10.77.0.2")
# Steps after which a worker is killed, of 200.
KILLED_AFTER = 80
SECONDS = 240

# (name, transport, method, what is said)
TRAININGS = (
    ("one-process", "none", "allreduce",
     "the reference: one process computes what two workers would, one after the other"),
    ("grpc-server", "grpc", "server",
     "a worker on each node, and a parameter server on each, over gRPC and TCP"),
    ("towline-server", "towline", "server",
     "the same over towline: gradients and values are written to where they are needed"),
    ("grpc-allreduce", "grpc", "allreduce",
     "a worker on each node, AllReduce over gRPC and TCP"),
    ("towline-allreduce", "towline", "allreduce",
     "the same over towline"),
)


def command(name, transport, method, restart=0, state=""):
    """What a node does: be a worker, and where there are servers, one of these as well."""
    servers, workers = (",".join(f"{address}:{port}" for address in ADDRESSES)
                        for port in (7000, 7001))
    train = (f"/usr/bin/python3 {EXAMPLE}/train.py --transport {transport} --method {method} "
             f"--servers {servers} --workers {workers}")
    worker = f"{train} --log {LOGS}/{name}.jsonl" + (f" --state {state}" if state else "")
    script = (f"mkdir -p {LOGS}; export TOW_RANK=$TOW_LAB_NODE TOW_WORLD_SIZE={len(NODES)} "
              f"TOW_ROOT={ADDRESSES[0]} TOW_RESTART={restart} TOW_SESSION={name} "
              "PYTHONPATH=build/examples/training:python; ")
    if method == "server" and transport != "none":
        return script + f"{train} --role server & {worker} && wait $!"
    return script + f"exec {worker}"


class Scene:
    """The trainings, with the demo's own ways to say and show."""

    def __init__(self, top, say, show, step):
        self._kept = pathlib.Path(top, KEPT)
        self._top = top
        self._say, self._show, self._step = say, show, step
        self._folders = []

    def _keep(self, lab, name, nodes):
        """Take the workers' logs out of the guests."""
        folder = self._kept / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for node in nodes:
            text = self._step(lab, f"cat {LOGS}/{name}.jsonl", on=node)
            (folder / f"worker-{node}.jsonl").write_text(text)
        self._folders.append(folder)

    def _written(self, lab, node):
        """Bytes that a node has written to the other one, ever."""
        peers = json.loads(self._step(lab, "build/bin/towline peers --json", on=node))
        return sum(peer["bytes_written"] for peer in peers
                   if peer["address"] == ADDRESSES[1 - node])

    def _check_crossed(self, before, after, name):
        """Each worker's gradients, or as much of others', went to the other node in each step."""
        for node in NODES:
            lines = (self._kept / name / f"worker-{node}.jsonl").read_text().splitlines()
            moved = sum(json.loads(line).get("bytes", 0) for line in lines)
            wrote = after[node] - before[node]
            if not moved or wrote < moved // 2:
                raise RuntimeError(f"node {node} has written {wrote} bytes to the other one, and "
                                   f"its worker has moved {moved}")
            self._show(f"node{node} has written {wrote} bytes to the other node")

    def train(self, lab, name, transport, method, said):
        """One training, to its end."""
        self._say(said)
        nodes = NODES if transport != "none" else NODES[:1]
        crosses = transport == "towline"
        before = [self._written(lab, node) for node in NODES] if crosses else []
        self._show(self._step(lab, command(name, transport, method),
                              on="all" if len(nodes) > 1 else 0, timeout=SECONDS))
        self._keep(lab, name, nodes)
        if crosses:
            self._check_crossed(before, [self._written(lab, node) for node in NODES], name)

    def kill(self, lab):
        """A worker is killed in mid-training, and goes on where it was."""
        name, log = "towline-killed", f"{LOGS}/towline-killed"
        work = [command(name, "towline", "allreduce", restart, "training") for restart in (0, 1)]
        self._say("once more; the worker of node 1 is killed in the middle, without a warning")
        self._step(lab, f"mkdir -p {LOGS}; setsid sh -c 'echo $$ > {log}.pid; {work[0]}' "
                        f"> {log}.out 2>&1 < /dev/null &", on="all")
        self._show(self._step(
            lab, f"while [ $(cat {log}.jsonl 2> /dev/null | grep -c hex) -lt {KILLED_AFTER} ]; do"
                 f"  kill -0 $(cat {log}.pid) || {{ cat {log}.out; exit 1; }}; sleep 0.1; done; "
                 f"kill -9 $(cat {log}.pid) && echo \"killed after $(grep -c hex {log}.jsonl) steps\"",
            on=1, timeout=SECONDS))
        self._show("node1$ towline regions --all")
        self._show(self._step(lab, "build/bin/towline regions --all", on=1))
        self._say("it is started again, takes its parameters over from the region, and meets the "
                  "other one, which waited")
        said = self._step(lab, work[1], on=1, timeout=SECONDS)
        said += self._step(lab, f"while kill -0 $(cat {log}.pid) 2> /dev/null; do sleep 0.1; done; "
                                f"cat {log}.out", timeout=SECONDS)
        self._show(said)
        self._keep(lab, name, NODES)

    def all(self, lab):
        """All of them."""
        self._say("two nodes train a perceptron on 1,797 handwritten digits together, always from "
                  "the same seed")
        self._step(lab, "echo 256m > /sys/class/towline/rxe0/pool_bytes", on="all")
        for training in TRAININGS:
            self.train(lab, *training)
        self.kill(lab)

    def report(self):
        """The table, and the page; False when the losses are not the same."""
        self._say("the same losses, bit for bit, and what they cost: report.py")
        out = self._kept / "report.html"
        picture = self._kept / "training.svg"
        done = subprocess.run(
            ["/usr/bin/python3", "-B", f"{EXAMPLE}/report.py", "--out", str(out),
             "--picture", str(picture), *map(str, self._folders)],
            cwd=self._top, check=False, capture_output=True, text=True)
        self._show(done.stdout + done.stderr)
        if done.returncode == 0:
            self._show(f"more of it: {out.relative_to(self._top)}, {picture.relative_to(self._top)}")
        return done.returncode == 0
