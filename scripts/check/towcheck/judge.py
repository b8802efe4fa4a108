# SPDX-License-Identifier: GPL-2.0
"""From what a test did to what it means: pass, fail or skip."""

import dataclasses
import json

from . import ktap

KSFT_SKIP = 4


@dataclasses.dataclass
class Outcome:
    """What a command did, wherever it ran."""
    rc: int | None          # None: it was stopped
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool = False
    trouble: tuple = ()     # what the runner saw beside it: leaks, complaints


@dataclasses.dataclass
class Result:
    """One line of build/check/results.json."""
    name: str
    kernel: str
    nodes: int
    status: str
    seconds: float
    reason: str = ""


def _last_line(outcome):
    for text in (outcome.stderr, outcome.stdout):
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if lines:
            return lines[-1][:200]
    return ""


def _names(names):
    return ", ".join(names[:4]) + (" …" if len(names) > 4 else "")


def _judge_exit(outcome):
    if outcome.rc == 0:
        return "pass", "", []
    if outcome.rc == KSFT_SKIP:
        return "skip", _last_line(outcome), [("", _last_line(outcome))]
    return "fail", f"exit status {outcome.rc}: {_last_line(outcome)}", []


def _judge_ktap(outcome):
    verdict = ktap.parse(outcome.stdout)
    faults = list(verdict.errors)
    if verdict.failed:
        faults.append("not ok: " + _names(verdict.failed))
    if outcome.rc not in (0, KSFT_SKIP) and not faults:
        faults.append(f"exit status {outcome.rc} though no case failed")
    if faults:
        return "fail", "; ".join(faults), verdict.skipped
    if verdict.passed:
        return "pass", "", verdict.skipped
    # Nothing ran: the program as a whole skipped.
    reasons = [reason for _, reason in verdict.skipped if reason]
    reason = reasons[0] if reasons else "every case skipped"
    return "skip", reason, [("", reason)]


def _unlisted(test, kernel, skipped, skips):
    """The skipped cases (or the test itself) that tests/skips lacks."""
    names = [f"{test.name}:{case}" if case else test.name
             for case, _ in skipped]
    return [name for name in names if skips.allowed(name, kernel) is None]


def judge(test, kernel, outcome, skips):
    """The result of one test."""
    skipped = []
    if outcome.timed_out:
        status, reason = "fail", f"not done after {test.timeout} s"
    elif outcome.rc is None:
        status, reason = "fail", "; ".join(outcome.trouble) or "stopped"
    else:
        status, reason, skipped = (
            _judge_ktap if test.protocol == "ktap" else _judge_exit)(outcome)
    if outcome.trouble and outcome.rc is not None:
        trouble = "; ".join(outcome.trouble)
        reason = f"{reason}; {trouble}" if status == "fail" else trouble
        status = "fail"
    unlisted = _unlisted(test, kernel, skipped, skips)
    if unlisted and status != "fail":
        status = "fail"
        reason = (f"skipped but not in tests/skips: {_names(unlisted)}" +
                  (f" ({reason})" if reason else ""))
    elif skipped and status == "pass":
        reason = f"{len(skipped)} case(s) skipped, as listed in tests/skips"
    nodes = test.nodes if test.where == "lab" else 0
    return Result(test.name, kernel, nodes, status,
                  round(outcome.seconds, 1), reason)


def write_json(path, items):
    """Write a list of dataclasses (or dicts) as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(
        [dataclasses.asdict(item) if dataclasses.is_dataclass(item) else item
         for item in items], indent=1) + "\n")


def summary(results):
    """The last line of make check, and its exit status."""
    count = {status: sum(result.status == status for result in results)
             for status in ("pass", "fail", "skip")}
    line = (f"{count['pass']} passed, {count['fail']} failed, "
            f"{count['skip']} skipped")
    return line, 0 if count["pass"] and not count["fail"] else 1
