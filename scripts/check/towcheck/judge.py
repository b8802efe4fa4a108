# SPDX-License-Identifier: GPL-2.0
"""From what a test did to what it means: pass, fail, skip or slow."""

import dataclasses
import json
import re

from . import ktap

KSFT_SKIP = 4
# A case that ends so was kept from its bound by the host (tow_clock.h).
STOOD_STILL = "stood still: "
# More of these fail a run: of tests that passed when they ran once more, and, where
# the host did nothing else, of those that it kept standing still each time.
FLAKY_MOST, SLOW_MOST = 2, 4


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
    if any(reason.startswith(STOOD_STILL) for _, reason in verdict.skipped):
        return "skip", "", verdict.skipped
    # Nothing ran: the program as a whole skipped.
    reasons = [reason for _, reason in verdict.skipped if reason]
    reason = reasons[0] if reasons else "every case skipped"
    return "skip", reason, [("", reason)]


def _unlisted(test, kernel, skipped, skips):
    """The skipped cases (or the test itself) that tests/skips lacks."""
    names = [f"{test.name}:{case}" if case else test.name
             for case, _ in skipped]
    return [name for name in names if skips.allowed(name, kernel) is None]


# What tow_clock.h and clock.py say of a bound that was missed, and what tests in Python say
# of patience that is over.
_LATE = r"\d+ ms(?: of \d+)?, \d+ of them the host's$"
_IN_VAIN = "waited in vain"
# A line that the kernel's harness, or a case in Python, prints of a failure.
_SAID = re.compile(r"# (?:\S+:\d+:(?P<case>\w+):(?=Expected |.*" + _LATE +
                   r")|\w*(?:Error|Wrong|Exception): )(?P<what>.*)$")
_TIMED_OUT = re.compile(r"# (?P<case>\w+): Test terminated by timeout$")
# A case that did not end as cases do; what failed of a mere assertion says so.
_CRASH = re.compile(
    r"^# .*(?:terminated unexpectedly|ended in some other way|exited normally instead|"
    r"ERROR SPAWNING|Failed to wait|caught signal)", re.MULTILINE)
_NOT_OK = re.compile(r"not ok \d+ (?:- )?(?P<name>\S+)")


def _only_late(outcome):
    """Whether each case that failed only missed a bound.

    What a program says in C goes to stderr and names its case; in Python it stands before
    the case's result.
    """
    late, wrong = set(), set()
    for text in (outcome.stderr, outcome.stdout):
        before = []
        for line in map(str.strip, text.splitlines()):
            said, timed_out = _SAID.match(line), _TIMED_OUT.match(line)
            if timed_out:
                late.add(timed_out["case"])
            elif said:
                is_late = (re.search(_LATE, said["what"]) or
                           said["what"].startswith(_IN_VAIN))
                if said["case"]:
                    (late if is_late else wrong).add(said["case"])
                else:
                    before.append(bool(is_late))
            elif failed := _NOT_OK.match(line):
                if before:
                    (late if all(before) else wrong).add(
                        failed["name"].rpartition(".")[2])
                before = []
            elif line.startswith("ok "):
                before = []
    failed = {match["name"].rpartition(".")[2] for match in
              map(_NOT_OK.match, map(str.strip, outcome.stdout.splitlines()))
              if match}
    return failed <= late - wrong


def may_pass(test, outcome):
    """Whether what failed may be the machine's doing: one more run shows it.

    It may where time ran out, and nothing else was found.  It never is where a
    kernel complained, something leaked, a program or a machine crashed, or an assertion
    failed that is neither a bound of tow_clock.h's or clock.py's nor a wait that was in vain.
    """
    if outcome.trouble:
        return all(re.match("boot failed: .*(no word from the guest|did not end)",
                            what) for what in outcome.trouble)
    if _CRASH.search(outcome.stdout + "\n" + outcome.stderr):
        return False
    if test.protocol != "ktap":
        return outcome.timed_out
    if outcome.timed_out:
        return _only_late(outcome)
    return (outcome.rc == 1 and _only_late(outcome) and
            not ktap.parse(outcome.stdout).errors)


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
    stood = [why for _, why in skipped if why.startswith(STOOD_STILL)]
    if stood and status != "fail":
        status, reason = "slow", _names(stood)
    skipped = [(case, why) for case, why in skipped if why not in stood]
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


def refuse(results, idle):
    """Fail what is flaky, or slow on an idle host, where there is too much of it."""
    for status, most in (("flaky", FLAKY_MOST), ("slow", SLOW_MOST if idle
                                                 else len(results))):
        some = [result for result in results if result.status == status]
        if len(some) > most:
            for result in some:
                result.status = "fail"
                result.reason = f"{status}, as are {len(some) - 1} others: " \
                    + result.reason


def summary(results):
    """The last line of make check, and its exit status.

    What is flaky has passed; what is slow was not seen to the end; what is left did
    not begin.
    """
    count = {status: sum(result.status == status for result in results)
             for status in ("pass", "flaky", "fail", "skip", "slow", "left")}
    passed = count["pass"] + count["flaky"]
    skipped = count["skip"] + count["slow"] + count["left"]
    line = f"{passed} passed, {count['fail']} failed, {skipped} skipped"
    return line, 0 if passed and not count["fail"] and not count["left"] else 1
