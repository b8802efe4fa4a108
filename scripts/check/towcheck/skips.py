# SPDX-License-Identifier: GPL-2.0
"""tests/skips: which tests may skip where, and why."""

import dataclasses
import fnmatch

from . import TOP, UserError


@dataclasses.dataclass
class Entry:
    """One line: NAME-GLOB KERNEL-GLOB REASON."""
    name: str
    kernel: str
    reason: str
    line: int
    used: bool = False

    def covers(self, name, kernel):
        """Whether this line lets a test skip under a kernel."""
        return (fnmatch.fnmatchcase(name, self.name) and
                fnmatch.fnmatchcase(kernel, self.kernel))


class Skips:
    """The list, and which of its lines were needed."""

    def __init__(self, text, path="tests/skips"):
        self.entries = []
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split(None, 2)
            if not words or words[0].startswith("#"):
                continue
            if len(words) < 3:
                raise UserError(f"{path}:{number}: a skip needs a name, a "
                                "kernel and a reason")
            self.entries.append(Entry(*words, number))

    @classmethod
    def load(cls, top=TOP):
        """The list of this tree."""
        return cls((top / "tests/skips").read_text())

    def allowed(self, name, kernel):
        """The reason why a test may skip, or None."""
        found = [entry for entry in self.entries
                 if entry.covers(name, kernel)]
        for entry in found:
            entry.used = True
        return found[0].reason if found else None

    def stale(self, ran):
        """Lines that let something skip that ran and did not.

        ran: the (name, kernel) of all tests that ran.
        """
        return [entry for entry in self.entries if not entry.used and any(
            fnmatch.fnmatchcase(name, entry.name.partition(":")[0]) and
            fnmatch.fnmatchcase(kernel, entry.kernel)
            for name, kernel in ran)]
