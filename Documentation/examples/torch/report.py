# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""What several trainings have logged, as a page with plots.

	report.py --out FILE FOLDER...

A folder is a training's name, and has a log of each rank (rank-N.jsonl).  Losses of all trainings must agree:
else the exit status is 1.
"""

import argparse
import io
import json
import pathlib
import statistics
import sys

import matplotlib
matplotlib.use("svg")
from matplotlib import pyplot   # noqa: E402

# Losses of float32 by another order of additions.
TOLERANCE = 1e-3
# The first steps of a process, which make what later ones use.
WARM = 5


def read(folder):
    """Rank 0's steps, by number; one that was done twice counts as it was done last."""
    lines = (folder / "rank-0.jsonl").read_text(encoding="utf-8").splitlines()
    return {line["step"]: line for line in map(json.loads, lines)}


def plot(runs):
    """Losses, and the time of a step, as SVG."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4))
    for name, steps in runs.items():
        left.plot(list(steps), [one["loss"] for one in steps.values()], label=name, alpha=0.7)
    left.set(xlabel="step", ylabel="loss", title="Losses")
    left.legend()
    names = list(runs)
    right.bar(names, [median(runs[name]) for name in names])
    right.set(ylabel="ms, the median", title="A step")
    figure.tight_layout()
    out = io.StringIO()
    figure.savefig(out, format="svg")
    text = out.getvalue()
    return text[text.index("<svg"):]


def median(steps):
    """Milliseconds of a step."""
    return statistics.median(one["ms"] for one in steps.values() if one["since"] > WARM)


def main():
    """The page, and the same as lines of text."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    runs = {folder.name: read(folder) for folder in args.folders}
    first = next(iter(runs.values()))
    rows, same = [], True
    for name, steps in runs.items():
        apart = max((abs(one["loss"] - first[number]["loss"]) for number, one in steps.items()
                     if number in first), default=float("inf"))
        same = same and apart <= TOLERANCE and steps.keys() == first.keys()
        last = steps[max(steps)]
        copied = sum(one["copied"] for one in steps.values() if one["since"] > WARM)
        rows.append((name, len(steps), f"{last['loss']:.4f}", f"{apart:.1e}", f"{median(steps):.1f}",
                     copied))
    heads = ("training", "steps", "last loss", "apart from the first, at most", "ms a step",
             f"bytes copied after the first {WARM}")
    for row in (heads, *rows):
        print("  ".join(f"{word!s:>12}" for word in row))
    table = "".join("<tr>" + "".join(f"<td>{word}</td>" for word in row) + "</tr>" for row in rows)
    args.out.write_text(
        "<!doctype html><meta charset=utf-8><title>towline: PyTorch</title>"
        "<h1>A convolutional network on two nodes</h1>"
        f"<table border=1><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>{table}</table>"
        f"{plot(runs)}", encoding="utf-8")
    if not same:
        print("losses are not the same", file=sys.stderr)
    return not same


if __name__ == "__main__":
    sys.exit(main())
