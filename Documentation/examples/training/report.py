#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""What trainings did, side by side: a table for the terminal, and a page.

	report.py [--out report.html] [--picture picture.svg] FOLDER...

A folder holds the logs (*.jsonl, log.py) of one training's workers.  All of them must be the
same training: exit 1, and no page, unless each worker's loss is the same in each step, bit
for bit, and the same parameters came of it.

Time is taken apart without comparing clocks of different machines.  An exchange ends for all
workers together, so who comes last waits for nobody: the shortest exchange of a step is
communication, and what others spend beyond that is waiting.
"""

import argparse
import html
import io
import json
import pathlib
import statistics
import sys
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

SETTINGS = ("layers", "steps", "batch", "rate", "momentum", "seed", "workers")
TRANSPORTS = {"none": "one process", "grpc": "gRPC over TCP", "towline": "towline"}
METHODS = {"server": "parameter server", "allreduce": "AllReduce"}
COLOURS = {"none": "#777777", "grpc": "#c2571a", "towline": "#1f6fb2"}
DASHES = {"server": "--", "allreduce": "-"}
# Steps of which a curve shows the mean: about an epoch of the usual batches.
SMOOTH = 20
PARTS = (("compute", "#5b8c5a"), ("communication", "#1f6fb2"), ("waiting", "#d9b44a"))


class Unequal(Exception):
    """These are not the same training, or it did not do the same."""


class Life(NamedTuple):
    """What one process wrote: a worker that is restarted has several lives."""

    run: Dict[str, Any]
    steps: List[Dict[str, Any]]
    events: List[Dict[str, Any]]
    end: Optional[Dict[str, Any]]


def lives(path: pathlib.Path) -> List[Life]:
    """All processes that wrote to a file."""
    found: List[Life] = []
    for number, text in enumerate(path.read_text().splitlines(), 1):
        try:
            line = json.loads(text)
            if "run" in line:
                found.append(Life(line["run"], [], [], None))
            elif "step" in line and "hex" in line:
                found[-1].steps.append(line)
            elif "event" in line:
                found[-1].events.append(line)
            else:
                found[-1] = found[-1]._replace(end=line["end"])
        except (ValueError, KeyError, IndexError) as error:
            raise Unequal(f"{path}:{number}: not a line of a training's log") from error
    return found


class Parts(NamedTuple):
    """Where the time of a step went, in seconds, as the mean of the workers."""

    compute: float
    communication: float
    waiting: float


class Run:
    """One training."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.name = folder.name
        self.lives = [life for path in sorted(folder.glob("*.jsonl")) for life in lives(path)]
        if not self.lives:
            raise Unequal(f"{folder}: no logs")
        first = self.lives[0].run
        self.transport: str = first["transport"]
        self.method: str = first["method"]
        self.settings = {name: first[name] for name in SETTINGS}
        for life in self.lives:
            same = {name: life.run[name] for name in ("transport", "method", *SETTINGS)}
            if same != {"transport": self.transport, "method": self.method, **self.settings}:
                raise Unequal(f"{self.name}: logs of different trainings in one folder")
        self.steps = self._by_step()
        self.ends = [life.end for life in self.lives if life.end]
        self._check_end()

    def _by_step(self) -> List[Dict[int, Dict[str, Any]]]:
        """For each step the lines of all ranks.  One that was repeated counts as it was last."""
        size, count = self.settings["workers"], self.settings["steps"]
        found: List[Dict[int, Dict[str, Any]]] = [{} for _ in range(count)]
        for life in self.lives:
            for line in life.steps:
                before = found[line["step"] - 1].get(line["rank"])
                if before and before["hex"] != line["hex"]:
                    raise Unequal(f"{self.name}: step {line['step']} of rank {line['rank']} was "
                                  f"repeated with another loss: {before['hex']}, {line['hex']}")
                found[line["step"] - 1][line["rank"]] = line
        for step, ranks in enumerate(found, 1):
            if sorted(ranks) != list(range(size)):
                raise Unequal(f"{self.name}: step {step} has losses of ranks {sorted(ranks)}, "
                              f"of {size}")
        return found

    def _check_end(self) -> None:
        wanted = 1 if self.transport == "none" else self.settings["workers"]
        if len(self.ends) != wanted:
            raise Unequal(f"{self.name}: {len(self.ends)} of {wanted} workers came to the end")
        if len({end["parameters"] for end in self.ends}) != 1:
            raise Unequal(f"{self.name}: workers have different parameters at the end")

    @property
    def label(self) -> str:
        """What it is called in tables."""
        text = TRANSPORTS.get(self.transport, self.transport)
        if self.transport != "none":
            text += ", " + METHODS[self.method]
        return text + (", a worker killed" if self.restarted else "")

    @property
    def restarted(self) -> bool:
        """Whether workers had to meet again."""
        return any(event["event"] == "lost" for life in self.lives for event in life.events)

    @property
    def accuracy(self) -> float:
        """Which part of what was held out is recognised."""
        return float(self.ends[0]["accuracy"])

    @property
    def parameters(self) -> str:
        """The digest of what came of it."""
        return str(self.ends[0]["parameters"])

    def bits(self) -> List[Tuple[str, ...]]:
        """The losses' bits: of each step, of each rank."""
        return [tuple(ranks[rank]["hex"] for rank in sorted(ranks)) for ranks in self.steps]

    def losses(self) -> List[float]:
        """The loss of each step: the mean of its shares."""
        return [sum(ranks[rank]["loss"] for rank in sorted(ranks)) / len(ranks)
                for ranks in self.steps]

    def smooth(self) -> List[float]:
        """The same, each as the mean of the last SMOOTH steps."""
        losses = self.losses()
        return [statistics.fmean(losses[max(0, end - SMOOTH):end])
                for end in range(1, len(losses) + 1)]

    def times(self) -> List[float]:
        """When each step ended, in seconds since the first one began, by rank 0's clock."""
        lines = [ranks[0] for ranks in self.steps]
        begin = lines[0]["time"] - lines[0]["compute"] - lines[0]["exchange"]
        return [line["time"] - begin for line in lines]

    def parts(self) -> List[Parts]:
        """Of each step, where the time went."""
        found = []
        for ranks in self.steps:
            lines = list(ranks.values())
            if self.transport == "none":
                # One process computed all shares: each line has the whole step.
                lines = lines[:1]
            communication = min(line["exchange"] for line in lines)
            found.append(Parts(
                statistics.fmean(line["compute"] for line in lines), communication,
                statistics.fmean(line["exchange"] - communication for line in lines)))
        return found

    def median(self, part: Optional[str] = None) -> float:
        """Milliseconds a step, or a part of it, takes in the median."""
        return 1000 * statistics.median(
            getattr(parts, part) if part else sum(parts) for parts in self.parts())

    def step_bytes(self) -> float:
        """Bytes of tensors that a worker sends and receives in a step."""
        return statistics.median(statistics.fmean(line["bytes"] for line in ranks.values())
                                 for ranks in self.steps)

    def bytes_copied(self) -> Optional[int]:
        """Bytes that processors copied on the way, where somebody counted."""
        counts = [end.get("bytes_copied") for end in self.ends]
        return None if None in counts else sum(counts)

    def traced(self) -> List[Tuple[int, int, int, int]]:
        """Where a tracer placed gradients: first and last step, and of each of these the bytes
        that all workers sent from where they are, and those that they copied first."""
        found: List[Tuple[int, int, int, int]] = []
        for step, ranks in enumerate(self.steps, 1):
            if not all("zero_copy" in line for line in ranks.values()):
                return []
            sums = tuple(sum(line[name] for line in ranks.values())
                         for name in ("zero_copy", "copied"))
            if found and found[-1][2:] == sums:
                found[-1] = (found[-1][0], step, *sums)
            else:
                found.append((step, step, *sums))
        return found


def check_equal(runs: Sequence[Run]) -> None:
    """All did the same, bit for bit, or Unequal."""
    first = runs[0]
    for run in runs[1:]:
        for name in SETTINGS:
            if run.settings[name] != first.settings[name]:
                raise Unequal(f"{first.name} and {run.name} are not the same training: {name} "
                              f"is {first.settings[name]} and {run.settings[name]}")
        for step, (one, other) in enumerate(zip(first.bits(), run.bits()), 1):
            if one != other:
                raise Unequal(f"loss curves differ: step {step} of {first.name} has "
                              f"{', '.join(one)}, of {run.name} {', '.join(other)}")
        if run.parameters != first.parameters:
            raise Unequal(f"{first.name} and {run.name} ended with different parameters")


# ---- the table ---------------------------------------------------------------

HEAD = ("training", "held out", "steps", "ms/step", "compute", "communication", "waiting",
        "KiB/step", "copied")


def rows(runs: Sequence[Run]) -> List[Tuple[str, ...]]:
    """A row of words for each training."""
    found = []
    for run in runs:
        copied = run.bytes_copied()
        found.append((run.label, f"{run.accuracy:.1%}", str(len(run.steps)),
                      f"{run.median():.2f}", *(f"{run.median(part):.2f}" for part, _ in PARTS),
                      f"{run.step_bytes() / 1024:.0f}" if run.transport != "none" else "",
                      "" if copied is None else f"{copied} B"))
    return found


def text_table(runs: Sequence[Run]) -> str:
    """For the terminal."""
    lines = [HEAD, *rows(runs)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    return "\n".join("  ".join(word.ljust(width) if column == 0 else word.rjust(width)
                               for column, (word, width) in enumerate(zip(line, widths))
                               ).rstrip() for line in lines)


def zero_copy(run: Run) -> List[str]:
    """What the tracer made of it, in words; nothing where there was none."""
    return [(f"step {first}" if first == last else f"steps {first} to {last}") +
            f": {zero} bytes of gradients a step were sent from where NumPy computed them, "
            f"{copied} copied first" for first, last, zero, copied in run.traced()]


def verdict(runs: Sequence[Run]) -> str:
    """What was found out about their being the same."""
    size, steps = runs[0].settings["workers"], len(runs[0].steps)
    return (f"{len(runs)} training{'s' * (len(runs) > 1)}, {steps} steps, {size} workers: all "
            f"{steps * size} losses are equal, bit for bit, and so are the parameters at the "
            f"end (SHA-256 {runs[0].parameters[:16]})")


# ---- the failure scene -------------------------------------------------------

class Bar(NamedTuple):
    """A stretch of time in one worker's row, on the first worker's clock."""

    row: int
    begin: float
    end: float
    what: str


def _offset(life: Life, base: Life) -> float:
    """What to add to a process's clock: both see the end of a step at the same moment."""
    ends = {(line["step"], line["restart"]): line["time"] for line in base.steps}
    shared = [ends[key] - line["time"] for line in life.steps
              if (key := (line["step"], line["restart"])) in ends]
    return statistics.median(shared) if shared else 0.0


def _waits(life: Life) -> Dict[int, float]:
    """Since when a process waited for the others, each time that they met."""
    since, found = 0.0, {}
    for event in life.events:
        if event["event"] == "lost":
            since = event["time"]
        elif event["event"] == "met":
            found[event["restart"]] = since
    return found


def timeline(run: Run) -> List[Bar]:
    """Who trained, who was gone, who waited to meet again."""
    bars = []
    base = next((life for life in run.lives if life.run["restart"] == 0 and life.end),
                run.lives[0])
    for row in range(run.settings["workers"]):
        gone = None
        for life in (life for life in run.lives if life.run["rank"] == row):
            offset = _offset(life, base)
            if gone is not None:
                bars.append(Bar(row, gone, offset, "killed"))
            by_restart: Dict[int, List[Dict[str, Any]]] = {}
            for line in life.steps:
                by_restart.setdefault(line["restart"], []).append(line)
            waits = _waits(life)
            for restart, lines in by_restart.items():
                wait = waits.get(restart, 0.0)
                begin = lines[0]["time"] - lines[0]["compute"] - lines[0]["exchange"]
                bars.append(Bar(row, offset + wait, offset + begin, "meets the others"))
                bars.append(Bar(row, offset + begin, offset + lines[-1]["time"],
                                f"steps {lines[0]['step']} to {lines[-1]['step']}"))
                gone = offset + lines[-1]["time"]
    return bars


def story(run: Run) -> List[str]:
    """The same in sentences."""
    lines = []
    for life in run.lives:
        who = f"worker {life.run['rank']}"
        for event in life.events:
            if event["event"] == "lost":
                lines.append(f"{who} noticed, after step {event['step']}, that somebody was "
                             f"gone: {event['why']}")
            elif event["event"] == "resumed":
                lines.append(f"{who} was started again and found its state of step "
                             f"{event['step']}")
            elif event["restart"]:
                lost = [other["time"] for other in life.events if other["event"] == "lost"]
                after = f", {event['time'] - lost[-1]:.2f} s later" if lost else ""
                lines.append(f"{who} met the others again{after}; they go on after step "
                             f"{event['step']}, the last that all have")
    return lines


# ---- the page ----------------------------------------------------------------

class Charts:
    """Drawings, as SVG to put into a page."""

    def __init__(self) -> None:
        import matplotlib                               # pylint: disable=import-outside-toplevel
        matplotlib.use("svg")
        matplotlib.rcParams.update({
            "svg.fonttype": "none", "svg.hashsalt": "towline", "font.size": 10,
            "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
            "grid.alpha": 0.3, "legend.frameon": False})
        from matplotlib import pyplot                   # pylint: disable=import-outside-toplevel
        self._pyplot = pyplot

    def _svg(self, figure: Any) -> str:
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None}, bbox_inches="tight")
        self._pyplot.close(figure)
        return text.getvalue()[text.getvalue().index("<svg"):]

    @staticmethod
    def _by_time(axes: Any, runs: Sequence[Run]) -> None:
        for run in runs:
            axes.plot(run.times(), run.smooth(), DASHES[run.method], lw=1.4,
                      color=COLOURS.get(run.transport, "#444444"),
                      alpha=0.45 if run.restarted else 1, label=run.label)
        axes.set(xlabel="seconds", ylabel="loss (cross-entropy)", yscale="log")
        axes.legend(fontsize=8)

    @staticmethod
    def _parts(axes: Any, runs: Sequence[Run]) -> None:
        left = [0.0] * len(runs)
        for part, colour in PARTS:
            widths = [run.median(part) for run in runs]
            axes.barh(range(len(runs)), widths, left=left, color=colour, label=part, height=0.6)
            left = [begin + width for begin, width in zip(left, widths)]
        axes.set_yticks(range(len(runs)), [run.label for run in runs])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.set(xlabel="milliseconds a step (medians of the parts)")
        axes.legend(fontsize=8, ncols=len(PARTS), loc="lower left", bbox_to_anchor=(0, 1))

    def losses(self, runs: Sequence[Run]) -> str:
        """Against time each training has its own curve; against steps there is one."""
        figure, (by_time, by_step) = self._pyplot.subplots(1, 2, figsize=(11, 3.8), sharey=True)
        self._by_time(by_time, runs)
        steps = range(1, len(runs[0].steps) + 1)
        by_step.plot(steps, runs[0].losses(), color="#333333", lw=0.7, alpha=0.5,
                     label=f"all {len(runs)}, bit for bit")
        by_step.plot(steps, runs[0].smooth(), color="#333333", lw=1.4,
                     label=f"mean of the last {SMOOTH} steps, as on the left")
        by_step.set(xlabel="step")
        by_step.legend(fontsize=8)
        return self._svg(figure)

    def breakdown(self, runs: Sequence[Run]) -> str:
        """Where the time of a step goes."""
        figure, axes = self._pyplot.subplots(figsize=(11, 0.9 + 0.45 * len(runs)))
        self._parts(axes, runs)
        return self._svg(figure)

    def picture(self, runs: Sequence[Run]) -> str:
        """Losses against time, and where the time of a step goes, in one drawing."""
        figure, (losses, parts) = self._pyplot.subplots(
            2, 1, figsize=(9, 4.4 + 0.3 * len(runs)), height_ratios=(3.4, 0.3 * len(runs)),
            gridspec_kw={"hspace": 0.45})
        self._by_time(losses, runs)
        self._parts(parts, runs)
        figure.patch.set_facecolor("white")
        return self._svg(figure)

    def failure(self, run: Run) -> str:
        """The timeline of a training in which a worker was killed."""
        size = run.settings["workers"]
        figure, axes = self._pyplot.subplots(figsize=(11, 1 + 0.5 * size))
        bars = timeline(run)
        start = min(bar.begin for bar in bars)
        for bar in bars:
            colour = {"killed": "#b03a2e", "meets the others": "#d9b44a"}.get(bar.what, "#1f6fb2")
            axes.barh(bar.row, bar.end - bar.begin, left=bar.begin - start, color=colour,
                      height=0.55)
            if bar.what.startswith("steps"):
                axes.text((bar.begin + bar.end) / 2 - start, bar.row, bar.what, ha="center",
                          va="center", color="white", fontsize=8)
        for what, colour in (("trains", "#1f6fb2"), ("killed, not yet back", "#b03a2e"),
                             ("waits to meet the others", "#d9b44a")):
            axes.barh(0, 0, color=colour, label=what)
        axes.set_yticks(range(size), [f"worker {rank}" for rank in range(size)])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.set(xlabel="seconds")
        axes.legend(fontsize=8, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))
        return self._svg(figure)


STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
       color: #222; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; }
svg { width: 100%; height: auto; }
pre { background: #f6f6f6; padding: .8rem; overflow-x: auto; font-size: 13px; }
.note { color: #555; font-size: .9rem; }
"""


def html_table(runs: Sequence[Run]) -> str:
    """The table, for the page."""
    def row(tag: str, words: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(word)}</{tag}>" for word in words) + "</tr>"
    return ("<table>" + row("th", HEAD) + "".join(row("td", words) for words in rows(runs)) +
            "</table>")


def page(runs: Sequence[Run], title: str) -> str:
    """The whole page; it needs no other file."""
    charts = Charts()
    settings = runs[0].settings
    layers = "-".join(str(units) for units in settings["layers"])
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p>The 1,797 handwritten digits of scikit-learn, a fifth of them held out; a "
        f"perceptron {layers}, float32; {settings['workers']} workers, synchronous; batches of "
        f"{settings['batch']}; momentum {settings['momentum']}, rate {settings['rate']}; seed "
        f"{settings['seed']}.</p>", f"<p><b>{html.escape(verdict(runs))}.</b></p>",
        html_table(runs),
        "<p class=note>Times are medians over the steps of the workers' mean, in milliseconds. An "
        "exchange ends for all workers together, so the shortest exchange of a step is "
        "communication, and what other workers spend beyond that is waiting for the one that "
        "came last. KiB are those of tensors that a worker sends and receives.</p>",
        "<h2>Loss</h2>", charts.losses(runs), "<h2>Where the time of a step goes</h2>",
        charts.breakdown(runs)]
    for run in runs:
        if run.restarted:
            told = "".join(f"<li>{html.escape(line)}</li>" for line in story(run))
            parts += [f"<h2>{html.escape(run.label)}</h2>", charts.failure(run),
                      f"<ul>{told}</ul>",
                      "<p class=note>Clocks of different processes are put side by side by the "
                      "ends of steps that both took.</p>"]
    for run in runs:
        reports = [(rank, end["report"]) for rank, end in enumerate(run.ends)
                   if end.get("report")]
        if reports:
            parts.append(f"<h2>What was copied: {html.escape(run.label)}</h2>")
        if run.traced():
            told = "".join(f"<li>{html.escape(line)}</li>" for line in zero_copy(run))
            parts += [f"<ul>{told}</ul>", "<p class=note>Of all workers together. NumPy's arrays are "
                      "ordinary ones; a tracer notes which of its allocations are sent, and from the "
                      "next step on these are in registered memory.</p>"]
        parts += [f"<p>Worker {rank}:</p><pre>{html.escape(text)}</pre>"
                  for rank, text in reports]
    return (f"<!doctype html><html lang=en><head><meta charset=utf-8>"
            f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>" +
            "\n".join(parts) + "</body></html>\n")


def main() -> int:
    """Compare, then tell."""
    options = argparse.ArgumentParser(description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=pathlib.Path, metavar="report.html")
    options.add_argument("--picture", type=pathlib.Path, metavar="picture.svg")
    options.add_argument("--title", default="The same training, over towline and over gRPC")
    options.add_argument("folders", nargs="+", type=pathlib.Path, metavar="FOLDER")
    known = options.parse_args()
    try:
        runs = [Run(folder) for folder in known.folders]
        check_equal(runs)
    except (Unequal, OSError) as error:
        print(f"report: {error}", file=sys.stderr)
        return 1
    print(text_table(runs))
    print(verdict(runs))
    for run in runs:
        for line in zero_copy(run):
            print(f"{run.label}: {line}")
    if known.out:
        known.out.write_text(page(runs, known.title))
    if known.picture:
        known.picture.write_text(Charts().picture(runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
