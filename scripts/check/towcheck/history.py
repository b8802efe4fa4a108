#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""How each test went on this machine, in every clone: make flaky.

A line of JSON for each run of a test: t (seconds since 1970), commit, name, kernel, content,
status, seconds, reason.
"""

import collections
import json
import pathlib
import sys
import time

if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "lab"))
# pylint: disable=wrong-import-position
from towlab import cache                                        # noqa: E402

PATH = cache.ROOT / "history.jsonl"
# Lines that are kept, at most; and by how many there may be more.
MOST, SPARE = 50000, 5000
REASON = 200
TOP_TEN = 10


def read():
    """All lines, the oldest first."""
    if not PATH.exists():
        return []
    found = []
    for line in PATH.read_text().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            pass        # a machine that lost power in mid-line
    return found


def add(results, commit, contents):
    """What a run showed; contents: of (name, kernel), where there is one."""
    PATH.parent.mkdir(parents=True, exist_ok=True)
    now = round(time.time())
    with open(PATH, "a") as file:
        for one in results:
            # One write each: clones that run at once do not mix their lines.
            file.write(json.dumps(dict(
                t=now, commit=commit, name=one.name, kernel=one.kernel,
                content=contents.get((one.name, one.kernel), ""),
                status=one.status, seconds=one.seconds,
                reason=one.reason[:REASON])) + "\n")
            file.flush()
    lines = PATH.read_text().splitlines(keepends=True)
    if len(lines) > MOST + SPARE:
        cache.write(PATH, "".join(lines[-MOST:]))


class Record:
    """What is known of a test on a kernel."""

    def __init__(self):
        self.status = collections.Counter()
        self.by_content = collections.defaultdict(set)
        self.last = 0

    def add(self, line):
        """One more run of it."""
        self.status[line["status"]] += 1
        self.by_content[line["content"]].add(line["status"])
        self.last = max(self.last, line["t"])

    @property
    def runs(self):
        """How often it ran."""
        return sum(self.status.values())

    @property
    def trouble(self):
        """How often it was flaky, slow, or failed with a content that passed, too."""
        both = sum("fail" in seen and bool({"pass", "flaky"} & seen)
                   for content, seen in self.by_content.items() if content)
        return self.status["flaky"] + self.status["slow"] + both

    def __str__(self):
        return ", ".join(f"{count} {status}" for status, count in
                         self.status.most_common())


def records():
    """{(name, kernel): Record}"""
    found = collections.defaultdict(Record)
    for line in read():
        found[line["name"], line["kernel"]].add(line)
    return found


def ranked():
    """(share of runs in trouble, name, kernel, Record), the worst first."""
    return sorted(((record.trouble / record.runs, *key, record)
                   for key, record in records().items() if record.trouble),
                  key=lambda item: -item[0])


def oldest(names):
    """Of these tests the one whose last run is longest ago."""
    last = collections.defaultdict(int)
    for (name, _), record in records().items():
        last[name] = max(last[name], record.last)
    return min(names, key=lambda name: last[name])


def main():
    """The whole ranking."""
    found = ranked()
    for share, name, kernel, record in found:
        print(f"{share:6.1%}  {name} ({kernel}): {record}")
    print(f"{len(found)} of {len(records())} tests in {PATH}")


if __name__ == "__main__":
    main()
