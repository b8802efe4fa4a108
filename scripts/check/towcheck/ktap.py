# SPDX-License-Identifier: GPL-2.0
"""KTAP, read by the kernel's own parser (tools/testing/kunit)."""

import dataclasses
import functools
import importlib
import io
import re
import subprocess
import sys
import threading

from . import TOP


# The parser prints to where its module says.
_parsing = threading.Lock()


@dataclasses.dataclass
class Verdict:
    """What a KTAP log says."""
    passed: int = 0
    failed: list = dataclasses.field(default_factory=list)
    skipped: list = dataclasses.field(default_factory=list)
    errors: list = dataclasses.field(default_factory=list)


@functools.cache
def _parser():
    source = subprocess.run(
        [TOP / "scripts/lab/kernel", "source", "6.12"],
        check=True, capture_output=True, text=True).stdout.strip()
    sys.path.insert(0, f"{source}/tools/testing/kunit")
    return importlib.import_module("kunit_parser")


def _leaves(test, prefix=""):
    for child in test.subtests:
        name = prefix + (child.name or "?")
        if child.subtests:
            yield from _leaves(child, name + ".")
        else:
            yield name, child


# A program that skips as a whole says so in place of its plan.
_SKIPPED_WHOLE = re.compile(r"^1\.\.0 # SKIP ?(.*)$", re.MULTILINE)
_SKIP_REASON = re.compile(
    r"^\s*(?:not )?ok \d+ (?:- )?(.*?) # SKIP ?(.*)$", re.MULTILINE)


class _Endless(Exception):
    """The parser went round and round."""


def _parse_bounded(parser, lines, count):
    """parse_test(), given up when it makes more tests than there are lines.

    It does not get past a plan or a header where it expects a result, and
    makes a missing test of it again and again until memory runs out.
    """
    inner, calls = parser.parse_test, 0

    def parse_test(*args):
        nonlocal calls
        calls += 1
        if calls > count + 1:
            raise _Endless
        return inner(*args)

    parser.parse_test = parse_test
    try:
        return parser.parse_test(lines, 0, [], False)
    finally:
        parser.parse_test = inner


def parse(text):
    """Read one program's KTAP output."""
    verdict = Verdict()
    whole = _SKIPPED_WHOLE.search(text)
    if whole and not re.search(r"^\s*(not )?ok ", text, re.MULTILINE):
        verdict.skipped.append(("", whole.group(1)))
        return verdict
    with _parsing:
        return _parse(text, verdict)


def _parse(text, verdict):
    parser = _parser()
    report = io.StringIO()
    # The parser explains its errors through this printer only.
    parser.stdout = parser.stdout.__class__(report)
    lines = parser.extract_tap_lines(text.splitlines())
    if not lines:
        verdict.errors.append("no KTAP output")
        return verdict
    try:
        main = _parse_bounded(parser, lines, len(text.splitlines()))
    except _Endless:
        verdict.errors.append("malformed KTAP: a plan or a header out of place")
        return verdict
    _sort(parser, main, verdict, dict(_SKIP_REASON.findall(text)))
    if main.expected_count is None:
        verdict.errors.append("no plan")
    # The parser stops at the planned count and does not look behind it.
    if any(parser.TEST_RESULT.match(line) for line in lines):
        verdict.errors.append("more results than planned")
    if main.counts.errors:
        said = [line.partition("[ERROR] ")[2]
                for line in report.getvalue().splitlines()
                if "[ERROR]" in line]
        verdict.errors += said or ["malformed KTAP"]
    if not (verdict.passed or verdict.failed or verdict.skipped or
            verdict.errors):
        verdict.errors.append("no results")
    return verdict


def _sort(parser, main, verdict, reasons):
    for name, leaf in _leaves(main):
        if leaf.status == parser.TestStatus.SUCCESS:
            verdict.passed += 1
        elif leaf.status == parser.TestStatus.SKIPPED:
            verdict.skipped.append((name, reasons.get(leaf.name, "")))
        else:
            verdict.failed.append(name)
