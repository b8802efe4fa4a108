# SPDX-License-Identifier: GPL-2.0
"""PyTorch in the demo: Documentation/examples/torch on two nodes under torchrun, and its report."""

import pathlib
import shutil
import subprocess

EXAMPLE = "Documentation/examples/torch"
LOGS = "/run/torch"
KEPT = "build/demo/torch"
NODES = (0, 1)
ROOT = "10.77.0.1"
STEPS = 120
# Steps after which a rank is killed.
KILLED_AFTER = 40
SECONDS = 400


def torchrun(name, words, port):
    """What a node runs; PyTorch's own threads would fight for the emulated processors.

    Debian's torchrun wants to be told what to redirect: of a ninth rank.
    """
    return (f"mkdir -p {LOGS}/{name}; export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=eth0 "
            "PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=python TOWLINE_LIBRARY=build/lib/libtowline.so.0 "
            "TOWLINE_TORCH=build/torch/_backend.so; "
            f"exec torchrun -r 9:1 -t 9:1 --nnodes 2 --node_rank $TOW_LAB_NODE --master_addr {ROOT} "
            f"--master_port {port} {EXAMPLE}/train.py --steps {STEPS} "
            f"--log {LOGS}/{name}/rank-$TOW_LAB_NODE.jsonl {words}")


class Scene:
    """The trainings, with the demo's own ways to say and show."""

    def __init__(self, top, say, show, step):
        self._top, self._kept = top, pathlib.Path(top, KEPT)
        self._say, self._show, self._step = say, show, step
        self._folders = []

    def _keep(self, lab, name):
        folder = self._kept / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for node in NODES:
            text = self._step(lab, f"cat {LOGS}/{name}/rank-{node}.jsonl", on=node)
            (folder / f"rank-{node}.jsonl").write_text(text)
        self._folders.append(folder)

    def _last_lines(self, text):
        self._show("\n".join(line for line in text.splitlines() if line.startswith("rank ")))

    def train(self, lab, name, words, port, said):
        """One training, to its end."""
        self._say(said)
        self._show(f"nodeN$ torchrun --nnodes 2 --node_rank N --master_addr {ROOT} train.py {words}")
        self._last_lines(self._step(lab, torchrun(name, words, port), on="all", timeout=SECONDS))
        self._keep(lab, name)

    def kill(self, lab):
        """A rank is killed; both are started again."""
        name, words = "towline-killed", "--backend towline --state digits"
        self._say("once more, with weights that outlive the process; node 1's is killed in the middle")
        log = f"{LOGS}/{name}"
        self._step(lab, f"mkdir -p {log}; setsid sh -c '{torchrun(name, words, 29502)}' "
                        f"> {log}/out 2>&1 < /dev/null & echo $! > {log}/pid", on="all")
        self._show(self._step(
            lab, f"while [ $(cat {log}/rank-1.jsonl 2> /dev/null | wc -l) -lt {KILLED_AFTER} ]; do"
                 f"  sleep 0.1; kill -0 $(cat {log}/pid) || {{ cat {log}/out; exit 1; }}; done; "
                 f"pkill -9 -f '[-]u {EXAMPLE}/train.py' && "
                 f"echo \"killed after $(wc -l < {log}/rank-1.jsonl) steps\"", on=1, timeout=SECONDS))
        self._say("node 0's rank is told which one died, and ends")
        self._show(self._step(
            lab, f"while kill -0 $(cat {log}/pid) 2> /dev/null; do sleep 0.2; done; "
                 f"grep -h 'RuntimeError: towline' {log}/out | sort -u | head -1", timeout=SECONDS))
        self._step(lab, f"while kill -0 $(cat {log}/pid) 2> /dev/null; do sleep 0.2; done", on=1,
                   timeout=SECONDS)
        self._say("both are started again, and take their weights over")
        self._last_lines(self._step(lab, torchrun(name, words, 29503), on="all", timeout=SECONDS))
        self._keep(lab, name)

    def all(self, lab):
        """All of them."""
        self._say("two nodes train a convolutional network on handwritten digits, always from the same "
                  "seed (importing PyTorch takes most of a minute here)")
        self._step(lab, "echo 384m > /sys/class/towline/rxe0/pool_bytes", on="all")
        self.train(lab, "gloo", "--backend gloo", 29500, "over Gloo and TCP")
        self.train(lab, "towline", "--backend towline", 29501, "over towline")
        self.kill(lab)

    def report(self):
        """The table, and the page; False when the losses are not the same."""
        self._say("the same losses, and what they cost: report.py")
        out = self._kept / "report.html"
        done = subprocess.run(["/usr/bin/python3", "-B", f"{EXAMPLE}/report.py", "--out", str(out),
                               *map(str, self._folders)],
                              cwd=self._top, check=False, capture_output=True, text=True)
        self._show(done.stdout + done.stderr)
        if done.returncode == 0:
            self._show(f"more of it: {out.relative_to(self._top)}")
        return done.returncode == 0
