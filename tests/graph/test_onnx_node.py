# SPDX-License-Identifier: GPL-2.0
"""ONNX models that run in two processes of a node: the example, and what the README says."""

import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import onnx
import pytest

from onnx_models import WORDS, digits, encoder

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests/python"))
# pylint: disable=wrong-import-position
from conftest import WAIT_S, sysfs                                  # noqa: E402

RANKS = 2


@pytest.fixture(autouse=True)
def _node():
    """The node has a pool."""
    sysfs("pool_bytes").write_text("64m")
    sysfs("allow_unauthenticated").write_text("1")


def ranks(name, folder, *words):
    """What each has said, of a program that all have begun there with those words."""
    began = []
    for rank in range(RANKS):
        environment = {**os.environ, "TOW_RANK": str(rank), "TOW_WORLD_SIZE": str(RANKS),
                       "TOW_LOCAL_RANK": str(rank), "TOW_LOCAL_SIZE": str(RANKS),
                       "TOW_SESSION": f"{name} {os.getpid()}"}
        began.append(subprocess.Popen([sys.executable, *words], cwd=folder, env=environment, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
    try:
        said = [one.communicate(timeout=2 * WAIT_S)[0] for one in began]
    finally:
        for one in began:
            one.kill()
            one.wait()
    assert [one.returncode for one in began] == [0] * RANKS, said
    return said


@pytest.mark.parametrize("name, bounds", [("encoder", ["batch=4", "seq=48"]), ("digits", ["batch=32"])])
def test_example(tmp_path, name, bounds):
    """Nothing is copied, and the bits are those of one process."""
    onnx.save({"encoder": encoder, "digits": digits}[name](), tmp_path / "model.onnx")
    pixels = np.random.default_rng(1).integers(0, 17, (100, 1, 8, 8)).astype("f4") / 16
    np.save(tmp_path / "pixels.npy", pixels)
    feeds = ["--below", str(WORDS)] if name == "encoder" else ["--feed", "images=pixels.npy"]
    first, last = ranks(name, tmp_path, TOP / "Documentation/examples/graph_pipeline.py", "model.onnx",
                        *(word for bound in bounds for word in ("--bound", bound)), *feeds,
                        "--steps", "6", "--check")
    assert first == "rank 0: 0 bytes were copied\n"
    assert "rank 1: 0 bytes were copied\n" in last
    assert last.endswith("rank 1: one process gives the same bits\n")
    shapes = re.findall(r"^step \d+: \S+ (\[.*\]) .* \.\.\.$", last, re.MULTILINE)
    assert len(shapes) == 6 and len(set(shapes)) > 3


def test_readme(tmp_path):
    """Its second block of graphs, after its first one."""
    onnx.save(encoder(), tmp_path / "encoder.onnx")
    text = (TOP / "python/README.md").read_text(encoding="utf-8").partition("\n## Graphs\n")[2]
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    sizes = [(8, 512), (1, 1), (3, 100)]
    given = f"import numpy as np\nbatches = [np.ones(size, np.int64) for size in {sizes}]\n"
    (tmp_path / "program.py").write_text("\n".join([blocks[0], given, blocks[1], "print(results)"]))
    first, last = ranks("readme", tmp_path, "program.py")
    assert first.endswith("0 bytes were copied\n{}\n")
    assert "\n0 bytes were copied\n{'layer1.norm2/LayerNormalization': array(" in last
