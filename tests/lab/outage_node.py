# SPDX-License-Identifier: GPL-2.0
"""Nodes of tests/lab/outage: those of queue_node.py, with a load of all kinds of
operations that checks what comes of each, operations that may not take long, and a
consumer that looks at each step.
"""

import errno
import struct
import time

import clock
import peers_node
import queue_node
from queue_node import (INLINE, WRITE, READ, FETCH_ADD, CQE, CQ_HEAD, CQ_TAIL, HELD,
                        RELEASED)

WRITE_NOTIFY = 5
# By one queue pair, and by two.
NOTIFY, NOTIFY_BY_TWO = 8, 24

# What is published, and where what is in it.
SHARED = 3 << 20
COUNTER, STEPS, PARTS, SOURCE, PLACES, LARGE = (
    0, 4096, 128 << 10, 256 << 10, 1 << 20, 2 << 20)
STEPS_MAX = 15872
SOURCE_BYTES = 256 << 10
# At home, behind that; the slot's number is at the other end's.
HOME_PARTS, HOME_OLD, HOME_READS, HOME_WRITES, HOME_LARGE, SLOT = (
    SHARED + place for place in (128 << 10, 256 << 10, 512 << 10, 1 << 20,
                                 2 << 20, (3 << 20) - 4096))
PIECE, PLACES_COUNT = 4096, 8
LARGE_BYTES = 256 << 10
# A large write is of many pieces, which a list there has.
VECTOR, PIECES = 1 << 4, 256
HOME_LIST = HOME_LARGE + 2 * LARGE_BYTES
IN_FLIGHT = 48
# What those that are timed may take.  There is a new one of each kind after a fifth of
# that, or after this pause.
TIMES_MS = (1, 10, 100, 1000, 10000)
TIMED_PAUSE = 0.1
TIMED_PLACES = 256
TIMED_ENTRIES = 2048
# One of each in turns.
TURN = ("step", "write", "read", "step", "add", "large", "step", "fetch")


def stuff(seed, size):
    """Bytes that tell what they are."""
    return struct.pack("<Q", seed) * (size // 8)


class Load:
    """What one run of the load has submitted, and what came of it."""

    def __init__(self, node, channel, remote, slot, at_once):
        self.node, self.channel, self.at_once = node, channel, at_once
        self.remote = remote
        self.slot, self.beside = slot
        # The other half of the last step.
        self.part = None
        self.busy = {}
        self.free = {"write": list(range(32)), "read": list(range(32)),
                     "large": [0], "fetch": [0]}
        self.told = {}
        self.turn = self.steps = self.writes = 0
        # When the first one failed.
        self.failed_at = 0
        # The device has: what was not taken is not.
        self.gone = self.cut = False
        self.last = [0] * PLACES_COUNT
        self.large = 0
        self.wrong = []
        self.list()

    def list(self):
        """The pieces of a large write, the last one first."""
        size = LARGE_BYTES // PIECES
        for i in range(PIECES):
            at = (PIECES - 1 - i) * size
            struct.pack_into("<QQQ", self.node.memory, HOME_LIST + 24 * i,
                             HOME_LARGE + at, LARGE + at, size)

    def next(self):
        """An entry, what it is, and what it takes; None: none of it is free."""
        if self.part:
            part, self.part = self.part, None
            return part
        kind = TURN[self.turn % len(TURN)]
        self.turn += 1
        if kind == "step":
            return self.step()
        if kind == "add":
            return kind, 0, [FETCH_ADD, 0, HOME_OLD, self.remote, COUNTER, 0,
                             1]
        if not self.free[kind]:
            return None
        at = self.free[kind].pop()
        if kind == "read":
            return kind, at, [READ, 0, HOME_READS + at * PIECE, self.remote,
                              SOURCE + at * PIECE, PIECE, 0]
        if kind == "fetch":
            return kind, at, [READ, 0, HOME_LARGE + LARGE_BYTES, self.remote,
                              SOURCE, LARGE_BYTES, 0]
        self.writes += 1
        home = HOME_LARGE if kind == "large" else HOME_WRITES + at * PIECE
        size = LARGE_BYTES if kind == "large" else PIECE
        place = self.writes % PLACES_COUNT
        self.node.memory[home:home + size] = stuff(self.writes, size)
        return kind, (at, place, self.writes), [
            WRITE, VECTOR, self.node.region, self.remote, HOME_LIST, 24 * PIECES, 0
        ] if kind == "large" else [
            WRITE, 0, home, self.remote, PLACES + place * PIECE, size, 0]

    def step(self):
        """A notification, behind the number of its step; and before that another one by
        another queue pair, or, if there is none, a write."""
        if self.steps == STEPS_MAX:
            return None
        at = self.steps * 8
        self.steps += 1
        self.node.word(HOME_PARTS + at, self.steps)
        self.part = "step", self.steps, [
            WRITE_NOTIFY, INLINE, self.steps, self.remote, STEPS + at, 8,
            self.slot]
        part = [WRITE, 0, HOME_PARTS + at, self.remote, PARTS + at, 8, 0]
        if self.beside is not None:
            part = [WRITE_NOTIFY, *part[1:6], self.slot, self.beside]
        return "part", self.steps, part

    def submit(self):
        """As much as there is room for."""
        entries = []
        first = self.node.number
        while len(self.busy) < IN_FLIGHT or self.part:
            chosen = self.next()
            if not chosen:
                continue
            kind, what, entry = chosen
            self.busy[first + len(entries)] = (kind, what)
            entries.append(entry)
        if not entries:
            return
        taken = self.take(entries)
        if taken == len(entries):
            return
        self.cut = True
        for number in range(first + taken, first + len(entries)):
            del self.busy[number]

    def take(self, entries):
        """Have them taken: how many were."""
        try:
            return self.node.submit(self.channel, entries)
        except OSError as error:
            if error.errno != errno.ENODEV:
                raise
        self.gone = True
        return 0

    def collect(self, seconds):
        """What has ended by then, or a few of them."""
        for number, status in self.node.found(
                min(self.at_once, len(self.busy)), seconds):
            if number not in self.busy:
                self.wrong.append(f"completion {number} twice")
                continue
            kind, what = self.busy.pop(number)
            key = f"{kind} {status}"
            self.told[key] = self.told.get(key, 0) + 1
            if status and not self.failed_at:
                self.failed_at = time.monotonic()
            self.end(kind, what, status)

    def end(self, kind, what, status):
        """One has."""
        if kind in ("read", "fetch"):
            self.free[kind].append(what)
            home = (HOME_READS + what * PIECE if kind == "read" else
                    HOME_LARGE + LARGE_BYTES)
            size = PIECE if kind == "read" else LARGE_BYTES
            whole = stuff(77, size)
            if not status and self.node.memory[home:home + size] != whole:
                self.wrong.append(f"{kind}: other bytes")
            self.node.memory[home:home + size] = bytes(size)
        elif kind in ("write", "large"):
            at, place, seed = what
            self.free[kind].append(at)
            if status:
                # Nobody knows what is there.
                seed = None
            if kind == "large":
                self.large = seed
            elif self.last[place] is not None:
                self.last[place] = (None if seed is None else
                                    max(seed, self.last[place]))


class Timed:
    """Reads that may take so long each, and what came of them."""

    def __init__(self, node, channel, remote):
        self.node, self.channel, self.remote = node, channel, remote
        self.begun, self.held = {}, {}
        self.free = list(range(TIMED_PLACES))
        self.next = dict.fromkeys(TIMES_MS, 0)
        self.told = {}
        # What has ended may have done so since the look before.
        # The latest of all: by how much, and when it was due.
        self.late, self.due = 0, time.monotonic()
        self.looked, self.unseen = time.monotonic(), 0
        self.gone = False
        self.wrong = []

    def submit(self):
        """One of each that has waited long enough."""
        now = time.monotonic()
        for allowed in TIMES_MS:
            if now < self.next[allowed] or not self.free:
                continue
            self.next[allowed] = now + max(TIMED_PAUSE, allowed / 5000)
            place = self.free.pop()
            number = self.node.number
            self.begun[number] = (allowed, place, time.monotonic())
            try:
                taken = self.node.submit(
                    self.channel, [[READ, 0, place * PIECE, self.remote, SOURCE,
                                    PIECE, 0]], timeout_ms=allowed)
            except OSError as error:
                if error.errno != errno.ENODEV:
                    raise
                del self.begun[number]
                self.gone = True
                return
            if taken != 1:
                self.wrong.append("it was not taken")

    def collect(self):
        """What has ended by now."""
        now = time.monotonic()
        self.unseen, self.looked = now - self.looked, now
        for number, status, flags in self.node.found(0, 0, flagged=True):
            if flags & RELEASED:
                self.over(number)
            else:
                self.end(number, status, flags & HELD)

    def over(self, number):
        """One that was late is over."""
        if number in self.held:
            self.free.append(self.held.pop(number))
        else:
            self.wrong.append(f"{number} is over, and was not late")

    def end(self, number, status, held):
        """One has ended for who waits for it."""
        if number not in self.begun:
            self.wrong.append(f"completion {number} twice")
            return
        allowed, place, begin = self.begun.pop(number)
        late = time.monotonic() - begin - allowed / 1000
        if late - self.unseen > self.late:
            self.late, self.due = late - self.unseen, begin + allowed / 1000
        self.told[status] = self.told.get(status, 0) + 1
        if status == -errno.ETIMEDOUT and late < 0:
            self.wrong.append(f"{allowed} ms were over {-late} s before")
        if held:
            self.held[number] = place
            return
        at = place * PIECE
        if not status and self.node.memory[at:at + PIECE] != stuff(77, PIECE):
            self.wrong.append("other bytes in time")
        self.node.memory[at:at + PIECE] = bytes(PIECE)
        self.free.append(place)


class Actor(queue_node.Actor):
    """A load, timed operations, a consumer."""

    def __init__(self):
        super().__init__()
        self.stopping = False
        self.loading = None

    def source(self):
        """What is to be read here, and nothing else yet."""
        self.memory[0:SHARED] = bytes(SHARED)
        self.memory[SOURCE:SOURCE + SOURCE_BYTES] = stuff(77, SOURCE_BYTES)

    def source_is(self, place):
        """Does what is to be read there stand here, as far as there was any?"""
        at = place + SOURCE
        return self.memory[at:at + SOURCE_BYTES] == stuff(77, SOURCE_BYTES)

    def stop(self):
        """The load, or the consumer, ends soon."""
        self.stopping = True

    def load(self, channel, remote, slot, at_once):
        """All kinds of operations until it is stopped, and then until all have
        ended: what came of them."""
        self.loading = load = Load(self, channel, remote, slot, at_once)
        self.stopping = False
        while not (self.stopping or load.wrong or load.gone):
            load.submit()
            load.collect(0.5)
        patience = clock.Patience(60)
        while load.busy and patience.left() and not load.wrong:
            load.collect(5)
        if load.busy:
            load.wrong.append(f"{len(load.busy)} have not ended")
        if load.cut and not load.gone:
            load.wrong.append("some were not taken")
        return {"told": load.told, "steps": load.steps, "last": load.last,
                "large": load.large, "wrong": load.wrong,
                "failed_at": load.failed_at}

    def ended(self, *how):
        """How many operations of the load have; or in these ways."""
        told = self.loading.told
        return sum(told.get(key, 0) for key in how or list(told))

    def found(self, wanted, seconds, flagged=False):
        """Completions, also where the device has gone."""
        try:
            return self.collect(wanted, seconds, flagged)[0]
        except OSError as error:
            if error.errno != errno.ENODEV:
                raise
        time.sleep(0.01)
        return self.completions(flagged)

    def timed(self, channel, remote):
        """Timed operations until it is stopped, and then until all are over: what
        came of them."""
        timed = Timed(self, channel, remote)
        self.stopping = False
        while not (self.stopping or timed.wrong or timed.gone):
            timed.submit()
            timed.collect()
            time.sleep(0.002)
        patience = clock.Patience(60)
        while (timed.begun or timed.held) and patience.left() and not timed.wrong:
            timed.collect()
            time.sleep(0.002)
        if timed.begun or timed.held:
            timed.wrong.append(f"{len(timed.begun)} have not ended, "
                               f"{len(timed.held)} are not over")
        return {"told": list(timed.told.items()), "late": timed.late,
                "due": timed.due, "wrong": timed.wrong}

    def consume(self):
        """Each step as it comes: how many, and what was wrong."""
        self.stopping = False
        seen, wrong = 0, []
        while not wrong:
            stop = self.stopping
            count = self.word(SLOT)
            if count < seen:
                wrong.append(f"{count} after {seen}")
            for at in range(seen, count):
                if not self.word(STEPS + at * 8) == self.word(PARTS + at * 8) == at + 1:
                    wrong.append(f"step {at + 1} is not there")
            seen = count
            if stop:
                break
            time.sleep(0.002)
        return [seen, wrong]

    def rest(self, wanted, seconds):
        """Statuses of so many, or what there is by then, of a queue that takes no
        calls any more."""
        _, _, count, _, cqes = self.queue
        head = self.index(CQ_HEAD)
        patience = clock.Patience(seconds)
        while self.index(CQ_TAIL) - head < wanted and patience.left():
            time.sleep(0.01)
        return [CQE.unpack_from(self.rings,
                                cqes + at % count * CQE.size)[1]
                for at in range(head, self.index(CQ_TAIL))]

    def written(self, last, large):
        """Is that what was written last?"""
        return [place for place, seed in enumerate(last)
                if seed is not None and
                self.memory[PLACES + place * PIECE:
                            PLACES + (place + 1) * PIECE] !=
                stuff(seed, PIECE)] + \
            (["large"] if large is not None and
             self.memory[LARGE:LARGE + LARGE_BYTES] !=
             stuff(large, LARGE_BYTES) else [])


class Node(peers_node.Node):
    """A node, seen from node 0."""

    program = "tests/lab/outage_node.py"


if __name__ == "__main__":
    peers_node.serve(Actor())
