# SPDX-License-Identifier: GPL-2.0
"""Nodes of tests/lab/outage: those of queue_node.py, with a load of all kinds of
operations that checks what comes of each, and a consumer that looks at each step.
"""

import struct
import time

import peers_node
import queue_node
from queue_node import WRITE, READ, FETCH_ADD, CQE, CQ_HEAD, CQ_TAIL

WRITE_NOTIFY = 5
NOTIFY = 8

# What is published, and where what is in it.
SHARED = 3 << 20
COUNTER, STEPS, SOURCE, PLACES, LARGE = 0, 4096, 256 << 10, 1 << 20, 2 << 20
STEPS_MAX = 16384
SOURCE_BYTES = 256 << 10
# At home, behind that; the slot's number is at the other end's.
HOME_STEPS, HOME_OLD, HOME_READS, HOME_WRITES, HOME_LARGE, SLOT = (
    SHARED + place for place in (0, 256 << 10, 512 << 10, 1 << 20, 2 << 20,
                                 (3 << 20) - 4096))
PIECE, PLACES_COUNT = 4096, 8
LARGE_BYTES = 256 << 10
IN_FLIGHT = 48
# One of each in turns.
TURN = ("step", "write", "read", "step", "add", "large", "step", "fetch")


def stuff(seed, size):
    """Bytes that tell what they are."""
    return struct.pack("<Q", seed) * (size // 8)


class Load:
    """What one run of the load has submitted, and what came of it."""

    def __init__(self, node, channel, remote, slot):
        self.node, self.channel = node, channel
        self.remote, self.slot = remote, slot
        self.busy = {}
        self.free = {"write": list(range(32)), "read": list(range(32)),
                     "large": [0], "fetch": [0]}
        self.told = {}
        self.turn = self.steps = self.writes = 0
        self.last = [0] * PLACES_COUNT
        self.large = 0
        self.wrong = []

    def next(self):
        """An entry, what it is, and what it takes; None: none of it is free."""
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
        there = LARGE if kind == "large" else PLACES + place * PIECE
        self.node.memory[home:home + size] = stuff(self.writes, size)
        return kind, (at, place, self.writes), [
            WRITE, 0, home, self.remote, there, size, 0]

    def step(self):
        """A notification, behind the number of its step."""
        if self.steps == STEPS_MAX:
            return None
        at = self.steps * 8
        self.steps += 1
        self.node.word(HOME_STEPS + at, self.steps)
        return "step", self.steps, [WRITE_NOTIFY, 0, HOME_STEPS + at,
                                    self.remote, STEPS + at, 8, self.slot]

    def submit(self):
        """As much as there is room for."""
        entries = []
        first = self.node.number
        while len(self.busy) < IN_FLIGHT:
            chosen = self.next()
            if not chosen:
                continue
            kind, what, entry = chosen
            self.busy[first + len(entries)] = (kind, what)
            entries.append(entry)
        if entries and self.node.submit(self.channel, entries) != len(entries):
            self.wrong.append("not all were taken")

    def collect(self, seconds):
        """What has ended by then, or a few of them."""
        for number, status in self.node.collect(min(8, len(self.busy)),
                                                seconds)[0]:
            if number not in self.busy:
                self.wrong.append(f"completion {number} twice")
                continue
            kind, what = self.busy.pop(number)
            key = f"{kind} {status}"
            self.told[key] = self.told.get(key, 0) + 1
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


class Actor(queue_node.Actor):
    """A load, a consumer."""

    def __init__(self):
        super().__init__()
        self.stopping = False

    def source(self):
        """What is to be read here, and nothing else yet."""
        self.memory[0:SHARED] = bytes(SHARED)
        self.memory[SOURCE:SOURCE + SOURCE_BYTES] = stuff(77, SOURCE_BYTES)

    def stop(self):
        """The load, or the consumer, ends soon."""
        self.stopping = True

    def load(self, channel, remote, slot):
        """All kinds of operations until it is stopped, and then until all have
        ended: what came of them."""
        load = Load(self, channel, remote, slot)
        self.stopping = False
        while not self.stopping and not load.wrong:
            load.submit()
            load.collect(0.5)
        end = time.monotonic() + 60
        while load.busy and time.monotonic() < end and not load.wrong:
            load.collect(5)
        if load.busy:
            load.wrong.append(f"{len(load.busy)} have not ended")
        return {"told": load.told, "steps": load.steps, "last": load.last,
                "large": load.large, "wrong": load.wrong}

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
                if self.word(STEPS + at * 8) != at + 1:
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
        end = time.monotonic() + seconds
        while (self.index(CQ_TAIL) - head < wanted and
               time.monotonic() < end):
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
