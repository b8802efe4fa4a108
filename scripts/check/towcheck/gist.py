# SPDX-License-Identifier: GPL-2.0
"""The lines of a failed test's log to read first, as a log may be far away."""

import re

# Of each case that failed, and of each kernel complaint.
CASE_LINES, COMPLAINT_LINES = 4, 14
MOST_LINES = 24
WIDTH = 160

_NOT_OK = re.compile(r"^\s*(?:# )?not ok ")
_DIAGNOSTIC = re.compile(r"^\s*# (?!\s*(?:RUN|OK|FAIL|PASSED|FAILED|Starting)\b)")
_COMPLAINT = "--- kernel complaint"
_STAMP = re.compile(r"^(?:<\d+>)?\[\s*\d+\.\d+\](?:\[[^\]]*\])? ?")
# Where it was and how it came there, without registers and guesses.
_WORTH = re.compile(r"^(?:RIP: |BUG|WARNING|Oops|KASAN|UBSAN|general protection|"
                    r"Call Trace|INFO:| (?!\? )[<\w/.]+(?:\+0x|>$)|[\w.]+\+0x)")


def _of_cases(lines):
    said = []
    for line in lines:
        if _NOT_OK.match(line):
            yield from said[-CASE_LINES:]
            yield line.strip()
            said = []
        elif _DIAGNOSTIC.match(line):
            said.append(line.strip())
        elif re.match(r"^\s*ok ", line):
            said = []


def _of_complaints(lines):
    left = 0
    for line in lines:
        if line.startswith(_COMPLAINT):
            left = COMPLAINT_LINES
            continue
        line = _STAMP.sub("", line)
        if left and _WORTH.match(line):
            left -= 1
            yield line.rstrip()


def of(text):
    """The gist of a log, in lines."""
    lines = text.splitlines()
    found = [*_of_cases(lines), *_of_complaints(lines)]
    return [line[:WIDTH] for line in found[:MOST_LINES]]
