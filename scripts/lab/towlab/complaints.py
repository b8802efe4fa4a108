# SPDX-License-Identifier: GPL-2.0
"""Find the kernel's complaints in a console log, and sort out known ones.

A complaint is an event, not a line: what a WARN prints between "cut here" and
"end trace" is one, of the most specific kind any of its lines has.
"""

import dataclasses
import fnmatch
import pathlib
import re
import tomllib

# Most specific first: within one event the first kind listed wins.
KINDS = [
    ("kasan", r"BUG: KASAN:"),
    ("kcsan", r"BUG: KCSAN:"),
    ("kfence", r"BUG: KFENCE:"),
    ("ubsan", r"UBSAN:"),
    ("refcount", r"refcount_t: "),
    ("kmemleak", r"kmemleak: [1-9]\d* new suspected memory leaks"),
    ("hung_task", r"INFO: task .* blocked for more than"),
    ("rcu_stall", r"rcu: INFO: .*(stall|detected expedited)|rcu_\w+ detected (stalls|expedited)|"
                  r"rcu_\w+ self-detected stall|rcu: .*kthread (starved|timer wakeup)"),
    ("lockup", r"BUG: soft lockup|hard LOCKUP|Watchdog detected"),
    ("lockdep", r"WARNING: (possible|suspicious RCU|inconsistent lock|bad unlock|bad contention|"
                r"held lock|lock held|Nested lock|\S+ held|\S+/\d+ (is|still))|"
                r"BUG: (MAX_|sleeping function|scheduling while atomic|Invalid wait context|"
                r"workqueue leaked|using \S+ in preemptible|held lock freed|spinlock|rwlock)|"
                r"\[ BUG: |DEBUG_LOCKS_WARN_ON|possible (recursive|circular|irq)|"
                r"WARNING: HARDIRQ|WARNING: SOFTIRQ|suspicious RCU usage"),
    ("debugobjects", r"ODEBUG: "),
    ("dma", r"DMA-API: .*(error|warning|device driver)"),
    ("list", r"list_(add|del)(_rcu)? corruption|(next|prev)->\w+ should be"),
    ("rdma_leak", r"BUG: RESTRACK"),
    ("slab", r"BUG [\w:.-]+ ?(\([^)]*\))?: |Slab cache still has objects|"
             r"Objects remaining in|Padding overwritten|Poison overwritten"),
    ("bad_page", r"BUG: Bad (page|rss|rwsem)|BUG: non-zero"),
    ("oops", r"BUG: kernel NULL pointer|BUG: unable to handle|general protection fault|"
             r"Oops: |Unable to handle kernel|invalid opcode: |stack segment: |double fault:"),
    ("bug", r"kernel BUG at|BUG: "),
    ("panic", r"Kernel panic"),
    ("warn", r"WARNING: .* at |WARNING: CPU:"),
]
PATTERNS = [(kind, re.compile(pattern)) for kind, pattern in KINDS]
RANK = {kind: rank for rank, (kind, _) in enumerate(KINDS)}
# BUG() announces itself and then traps: the oops is how it is reported.
RANK["bug"], RANK["oops"] = RANK["oops"], RANK["bug"]

STAMP = re.compile(r"^(<\d+>)?\[ *\d+\.\d+\](\[ *[TC]\d+\])? ?")
CUT_HERE = "------------[ cut here ]------------"
END_TRACE = re.compile(r"---\[ end (trace|Kernel panic)")
RULER = re.compile(r"^={20,}$")
MAX_LINES = 150


@dataclasses.dataclass
class Complaint:
    """One event: the node it came from, its kind, the lines as printed."""
    node: int
    kind: str
    text: str

    def __str__(self):
        lines = [line for line in self.text.splitlines() if kind_of(line)]
        first = lines[0] if lines else self.text.splitlines()[0]
        return "node%d %s: %s" % (self.node, self.kind, STAMP.sub("", first))


def kind_of(line):
    for kind, pattern in PATTERNS:
        if pattern.search(line):
            return kind
    return None


# Reports between two rulers.  Others (SLUB, lockdep) begin with one but do not
# end with one.
RULED = ("kasan", "kcsan", "kfence")
# Reports of one line.
ONE_LINE = ("kmemleak", "panic")


class _Event:
    def __init__(self):
        self.kind = None
        self.lines = []
        self.cut = False

    def add(self, line, text):
        self.lines.append(line)
        self.cut = self.cut or text == CUT_HERE
        kind = kind_of(text)
        if kind and (self.kind is None or RANK[kind] < RANK[self.kind]):
            self.kind = kind

    def ends_with(self, text):
        """Is text its last line?"""
        if len(self.lines) >= MAX_LINES or END_TRACE.search(text):
            return True
        if self.kind is None:       # opened by a ruler or a cut, nothing in it yet
            return len(self.lines) > 8
        if self.kind in RULED:
            return bool(RULER.match(text)) and len(self.lines) > 2
        if self.cut:
            return False
        return text == " </TASK>" or self.kind in ONE_LINE

    def ends_before(self, text):
        """Does text open another, though this one never reached its end?"""
        if RULER.match(text):
            return self.kind is not None and self.kind not in RULED
        if text != CUT_HERE:
            return False
        # list_del, and SLUB on 6.12, say what they found before their cut.
        return self.cut or self.kind not in (None, "list", "slab")


def find(log, node):
    """The complaints in log (text), in order."""
    found, event = [], None
    for line in log.splitlines():
        text = STAMP.sub("", line).rstrip()
        if text.startswith("towlab: "):
            continue
        if event is not None and event.ends_before(text):
            found.append(event)
            event = None
        if event is None:
            if text != CUT_HERE and not RULER.match(text) and not kind_of(text):
                continue
            event = _Event()
        event.add(line, text)
        if event.ends_with(text):
            found.append(event)
            event = None
    if event is not None:
        found.append(event)
    return [Complaint(node, e.kind, "\n".join(e.lines)) for e in found if e.kind]


class AllowList:
    """Complaints reproduced without towline loaded (allow/*.toml).

    Each has a kernel glob, a kind, a regular expression that its text must
    match, a reason, and a reproducer: a command line for scripts/lab/run that
    shows it without our module.
    """

    FIELDS = {"kernel", "kind", "match", "reason", "reproducer"}

    def __init__(self, folder):
        self.entries = []
        for path in sorted(pathlib.Path(folder).glob("*.toml")):
            with open(path, "rb") as file:
                for entry in tomllib.load(file).get("complaint", []):
                    if set(entry) != self.FIELDS:
                        raise ValueError("%s: an entry needs exactly %s" %
                                         (path, ", ".join(sorted(self.FIELDS))))
                    entry["match"] = re.compile(entry["match"], re.M | re.S)
                    self.entries.append(entry)

    def allows(self, kernel, complaint):
        return any(fnmatch.fnmatch(kernel, e["kernel"]) and e["kind"] == complaint.kind and
                   e["match"].search(complaint.text) for e in self.entries)

    def split(self, kernel, complaints):
        """(those that count, those allowed)"""
        allowed = [c for c in complaints if self.allows(kernel, c)]
        return [c for c in complaints if c not in allowed], allowed
