# SPDX-License-Identifier: GPL-2.0
"""Nodes of tests/lab/queue: those of peers_node.py, with memory and queues.

An entry is a list: opcode, flags, place at home, remote range, place there,
bytes (or what to compare with), operand.
"""

import fcntl
import mmap
import os
import random
import struct
import time

import peers_node

NOP, WRITE, READ, FETCH_ADD, COMPARE_SWAP = range(5)
FENCE, LINK, SILENT = 1, 2, 4
HELD, RELEASED = 1, 2
BROKEN, BACK, LOST = 1, 2, 4
ALL_RIGHTS = 7

QUEUE = struct.Struct("<IIIIQIIiI")
CHANNEL = struct.Struct("<IIQIIII")
ENTER = struct.Struct("<IIIIII")
EVENT = struct.Struct("<IIQIiIIQQ16s16s4H")
SQE = struct.Struct("<BBHIQQQQQQQ")
CQE = struct.Struct("<QiI")
# Of struct tow_ring.
SQ_TAIL, CQ_HEAD, SQ_HEAD, SQ_FLAGS, CQ_TAIL = 0, 64, 128, 132, 192
POLL, NEED_WAKEUP = 1, 1
# An entry whose data is in the place of region and offset.
INLINE = 1 << 5


def pattern(seed, size):
    """Bytes that are not those of another seed."""
    return random.Random(seed).randbytes(size)


class Actor(peers_node.Actor):
    """One region, one queue."""

    def __init__(self):
        super().__init__()
        self.memory = self.rings = self.queue = None
        self.polled = False
        self.channels = {}
        self.number = 0

    def close(self):
        """Be no client, and have nothing."""
        for what in (self.memory, self.rings):
            if what:
                what.close()
        if self.queue:
            os.close(self.queue[0])
        self.memory = self.rings = self.queue = None
        self.channels = {}
        super().close()

    # ---- memory ----

    def have(self, size):
        """A region, mapped; export() is of it."""
        room = peers_node.REGION.unpack(self.ioctl(0x10, peers_node.REGION.pack(
            peers_node.REGION.size, 0, size, 0, 0, -1, 0, bytes(64))))
        self.region = room[3]
        self.memory = mmap.mmap(room[5], room[4])
        os.close(room[5])

    def fill(self, seed, place, size):
        """Put there what a seed makes."""
        self.memory[place:place + size] = pattern(seed, size)

    def has(self, seed, place, size):
        """Is that there?"""
        return self.memory[place:place + size] == pattern(seed, size)

    def word(self, place, value=None):
        """Eight bytes as a number: put it there, or look."""
        if value is not None:
            struct.pack_into("<Q", self.memory, place, value)
        return struct.unpack_from("<Q", self.memory, place)[0]

    # ---- the queue ----

    def on_queue(self, command, packed):
        """A call on the queue: what it answers, and what it filled in."""
        room = bytearray(packed)
        answer = fcntl.ioctl(self.queue[0], 0xBA00 | command, room, True)
        return answer, bytes(room)

    def make_queue(self, entries, polled=False):
        """With that many entries; taken by a thread of the kernel's."""
        made = QUEUE.unpack(self.ioctl(0x40, QUEUE.pack(
            QUEUE.size, POLL if polled else 0, entries, 0, 0, 0, 0, -1, 0)))
        self.polled = polled
        self.queue = (made[7], made[2], made[3], made[5], made[6])
        self.rings = mmap.mmap(made[7], made[4])
        self.number = 0

    def channel(self, peer, pair=0):
        """Open one, by this queue pair: its number."""
        _, room = self.on_queue(0x41, CHANNEL.pack(CHANNEL.size, 0, peer, pair,
                                                   0, 0, 0))
        return CHANNEL.unpack(room)[4]

    def index(self, place, value=None):
        """One of the ring's indices."""
        if value is not None:
            struct.pack_into("<I", self.rings, place, value & 0xffffffff)
        return struct.unpack_from("<I", self.rings, place)[0]

    def submit(self, channel, entries, wait=0, seconds=30, timeout_ms=0):
        """Fill them in, and ENTER: how many were taken, or will be.  Behind an entry
        may be a channel of its own.  With INLINE @place is the data, as a number."""
        _, count, _, sqes, _ = self.queue
        tail = self.index(SQ_TAIL)
        for opcode, flags, place, remote, there, size, operand, *via in entries:
            region = self.region if opcode != NOP else 0
            if flags & INLINE:
                region, place = place, 0
            SQE.pack_into(self.rings, sqes + tail % count * SQE.size, opcode,
                          flags, (*via, channel)[0] if opcode != NOP else 0, timeout_ms,
                          self.number, region, place, remote, there, size,
                          operand)
            self.number += 1
            tail += 1
        self.index(SQ_TAIL, tail)
        if self.polled:
            if self.index(SQ_FLAGS) & NEED_WAKEUP:
                self.on_queue(0x42, ENTER.pack(ENTER.size, *[0] * 5))
            return len(entries)
        taken, _ = self.on_queue(0x42, ENTER.pack(
            ENTER.size, 0, len(entries), wait, int(seconds * 1e6), 0))
        return taken

    def collect(self, wanted, seconds=30, flagged=False):
        """So many completions: number and status of each, and flags if asked for; and
        how long."""
        begin = time.monotonic()
        try:
            self.on_queue(0x42, ENTER.pack(ENTER.size, 0, 0, wanted,
                                           int(seconds * 1e6), 0))
        except TimeoutError:
            pass
        return [self.completions(flagged), time.monotonic() - begin]

    def completions(self, flagged=False):
        """Those that are there, as collect(), without a call."""
        _, _, count, _, cqes = self.queue
        head, tail = self.index(CQ_HEAD), self.index(CQ_TAIL)
        found = []
        while head != tail:
            data, status, flags = CQE.unpack_from(
                self.rings, cqes + head % count * CQE.size)
            found.append([data, status, flags] if flagged else [data, status])
            head = (head + 1) & 0xffffffff
        self.index(CQ_HEAD, head)
        return found

    def events(self):
        """What has happened to peers: number, what, why, and when it broke and was
        lost, in seconds."""
        found = []
        while True:
            told = EVENT.unpack(self.on_queue(0x43, EVENT.pack(
                EVENT.size, *[0] * 8, bytes(16), bytes(16), *[0] * 4))[1])
            if not told[2]:
                return found
            found.append([told[2], told[3], told[4], told[7] / 1e9,
                          told[8] / 1e9])

    def do(self, channel, entries):
        """All of them, from the first to the last: their statuses, None for
        those that say nothing."""
        first = self.number
        if self.submit(channel, entries) != len(entries):
            raise OSError(0, "not all were taken")
        said = sum(not entry[1] & SILENT for entry in entries)
        found, _ = self.collect(said)
        statuses = dict(found)
        return [statuses.get(first + at) for at in range(len(entries))]


class Node(peers_node.Node):
    """A node, seen from node 0."""

    program = "tests/lab/queue_node.py"


if __name__ == "__main__":
    peers_node.serve(Actor())
