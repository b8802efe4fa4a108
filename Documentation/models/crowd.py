#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Many nodes that connect at the same moment: a discrete-event simulation.

	Documentation/models/crowd.py [--nodes N] [--servers K | --all] [--work MS]
			[--latency MS] [--patience MS] [--fixed] [--user N]

Each of N nodes connects to each of K others that do nothing else, or all to all.  A node
is one processor that deals with what comes, one thing after the other; the network takes
its time and loses nothing.  Bounds and time-outs are the module's (Documentation/protocol.md).
It knows nothing of memory, of drivers, or of what else a node does; what is said of these in
Documentation/scaling.md is arithmetic.
"""

import argparse
import collections
import heapq
import random

# Of the module, in seconds.
HALF_OPEN = 64          # requests at a time whose senders have not proved themselves
ATTEMPTS = 64           # attempts at a time, of all programs of a node
STEP = 2.0              # the answer to one step
BUSY = 0.1              # pause after BUSY; doubled, and up to a half more
BUSY_MAX = 3.2
HEARTBEAT = 1.0         # of which each end says two
# A handshake: at which end each step is, and what share of the end's work it is.  Steps 0
# to 2 are request, its answer, proof; the last is that the initiator reads READY.
RESPONDER, INITIATOR = 0, 1
STEPS = ((RESPONDER, 0.4), (INITIATOR, 0.4), (RESPONDER, 0.5), (INITIATOR, 0.5),
         (RESPONDER, 0.1), (INITIATOR, 0.1))
REQUEST, PROOF = 0, 2
# What refusing takes, as a share of that work.
REFUSAL = 0.05
# When to give up, in seconds.
FOREVER = 300
# Bytes of a session with one data queue pair and queue_depth 31: ours and soft-RoCE's.
SESSION_BYTES = 129 << 10


class Node:
    """A processor with a queue, what it waits for, and what it has counted."""

    def __init__(self):
        self.free_at = 0.0
        self.half_open = 0
        self.goals = collections.deque()
        self.attempts = 0
        self.ready = 0
        self.requests = self.refused = self.messages = 0


class World:
    """Nodes, and what is going to happen."""

    def __init__(self, count, work, latency, patience, fixed=False, attempts=ATTEMPTS):
        self.nodes = [Node() for _ in range(count)]
        self.work, self.latency, self.patience = work, latency, patience
        self.fixed, self.at_once = fixed, attempts
        self.random = random.Random(1)
        self.now = 0.0
        self.events, self.number = [], 0
        self.took, self.failed = [], 0

    def at(self, when, what, *arguments):
        """Let it happen then; what is due at the same moment in the order of these calls."""
        self.number += 1
        heapq.heappush(self.events, (when, self.number, what, arguments))

    def run(self):
        """Until nothing happens any more, or for ever."""
        while self.events and self.now < FOREVER:
            self.now, _, what, arguments = heapq.heappop(self.events)
            what(*arguments)

    def works(self, node, seconds):
        """Its processor does that when it is free: until when.

        >>> world = World(1, 1.0, 0.0, 10.0)
        >>> [world.works(world.nodes[0], 2.0), world.works(world.nodes[0], 1.0)]
        [2.0, 3.0]
        """
        node.free_at = max(node.free_at, self.now) + seconds
        return node.free_at

    def begin(self, node):
        """As many attempts as it may have."""
        while node.goals and node.attempts < self.at_once:
            node.attempts += 1
            attempt = {"from": node, "to": node.goals.popleft(), "begun": self.now,
                       "tries": 0, "pause": BUSY, "step": 0}
            self.request(attempt)

    def request(self, attempt):
        """Try once.  Of an older try nothing counts any more, which is known by its number."""
        attempt["tries"] += 1
        attempt["step"] = 0
        node = attempt["from"]
        node.requests += 1
        self.send(attempt, REQUEST, self.now)
        self.at(self.now + STEP, self.late, attempt, attempt["tries"], 0)

    def send(self, attempt, step, when):
        """It arrives there, and is dealt with after what came before."""
        self.at(when + self.latency, self.arrives, attempt, attempt["tries"], step)

    def arrives(self, attempt, tries, step):
        """The end that the step is at has it, and will have done it then."""
        where, share = STEPS[step]
        node = attempt["to"] if where == RESPONDER else attempt["from"]
        node.messages += 1
        if step == REQUEST and node.half_open >= HALF_OPEN:
            node.refused += 1
            self.at(self.works(node, self.work * REFUSAL) + self.latency, self.busy, attempt,
                    tries)
            return
        node.half_open += step == REQUEST
        if tries != attempt["tries"]:
            # Its sender has given it up, and says so.
            if step in (REQUEST + 1, PROOF):
                attempt["to"].half_open -= 1
            return
        self.at(self.works(node, self.work * share), self.done, attempt, tries, step)

    def done(self, attempt, tries, step):
        """It has; the next one."""
        if step == PROOF:
            attempt["to"].half_open -= 1
        if tries != attempt["tries"] and step != REQUEST:
            if step == REQUEST + 1:
                attempt["to"].half_open -= 1
            return
        if step + 1 == len(STEPS):
            self.ready(attempt)
            return
        if tries == attempt["tries"]:
            attempt["step"] = step + 1
            # Beyond the proof nobody waits for a step less than the patience of all.
            if STEPS[step][0] == INITIATOR and step < PROOF:
                self.at(self.now + STEP, self.late, attempt, tries, step + 1)
        self.at(self.now + self.latency, self.arrives, attempt, tries, step + 1)

    def late(self, attempt, tries, step):
        """No answer came to that."""
        if tries == attempt["tries"] and attempt["step"] <= step:
            self.again(attempt)

    def busy(self, attempt, tries):
        """It was refused."""
        if tries != attempt["tries"]:
            return
        pause = attempt["pause"]
        if not self.fixed:
            attempt["pause"] = min(2 * pause, BUSY_MAX)
            pause *= self.random.uniform(1, 1.5)
        attempt["tries"] += 1
        self.at(self.now + pause, self.again, attempt)

    def again(self, attempt):
        """Or not, where its time is over: the program is told, and asks again."""
        if self.now - attempt["begun"] >= self.patience:
            self.failed += 1
            attempt["begun"] = self.now
            attempt["pause"] = BUSY
        self.request(attempt)

    def ready(self, attempt):
        """Both ends."""
        attempt["tries"] += 1
        attempt["from"].ready += 1
        attempt["to"].ready += 1
        attempt["from"].attempts -= 1
        self.took.append(self.now)
        self.begin(attempt["from"])


def heartbeats(peers):
    """Messages a second that a node says to so many, and as many come.

    >>> heartbeats(10000)
    20000.0
    """
    return 2 * peers / HEARTBEAT


def some(count, servers, **how):
    """A world where so many nodes connect to the first ones.

    One at a time takes the processor of the slower end: nobody is refused or fails.

    >>> world = some(50, 1, work=0.01, latency=0.0, patience=10.0)
    >>> len(world.took), world.nodes[0].ready, world.failed, world.nodes[0].refused
    (50, 50, 0, 0)
    >>> 0.5 <= max(world.took) <= 0.52
    True

    More than may be half open are refused, and come again.

    >>> world = some(300, 1, work=0.01, latency=0.0, patience=60.0)
    >>> len(world.took), world.failed, world.nodes[0].refused > 0
    (300, 0, True)
    >>> world.nodes[0].half_open
    0

    Whose patience is over is told so, and has to ask again.

    >>> world = some(300, 1, work=0.02, latency=0.0, patience=1.0)
    >>> len(world.took), world.failed > 0
    (300, True)

    Where 64 requests take longer than a step may, none is answered in time.

    >>> world = some(300, 1, work=0.1, latency=0.0, patience=10.0)
    >>> len(world.took), world.now >= FOREVER
    (0, True)

    A node has so many attempts at a time.

    >>> world = some(1, 3, work=0.01, latency=1.0, patience=60.0, attempts=1)
    >>> [round(when) for when in sorted(world.took)]
    [6, 12, 18]
    """
    world = World(servers + count, **how)
    for node in world.nodes[servers:]:
        node.goals.extend(world.nodes[:servers])
    for node in world.nodes[servers:]:
        world.begin(node)
    world.run()
    return world


def everybody(count, **how):
    """A world where each two nodes connect, one of them to the other.

    >>> world = everybody(20, work=0.001, latency=0.0001, patience=10.0)
    >>> {node.ready for node in world.nodes}, len(world.took)
    ({19}, 190)
    """
    world = World(count, **how)
    for at, node in enumerate(world.nodes):
        # Half of the others, and not all of them in the same order.
        goals = [world.nodes[(at + ahead) % count] for ahead in range(1, (count + 1) // 2)]
        if count % 2 == 0 and at < count // 2:
            goals.append(world.nodes[at + count // 2])
        world.random.shuffle(goals)
        node.goals.extend(goals)
    for node in world.nodes:
        world.begin(node)
    world.run()
    return world


def main():
    """Print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--nodes", type=int, default=10000)
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--all", action="store_true", help="all to all")
    parser.add_argument("--work", type=float, default=1.0,
                        help="ms that a connection takes each end's processor")
    parser.add_argument("--latency", type=float, default=0.01, help="ms, one way")
    parser.add_argument("--patience", type=float, default=10000, help="reconnect_timeout_ms")
    parser.add_argument("--fixed", action="store_true", help="all pauses are 100 ms")
    parser.add_argument("--user", type=int, default=32, help="attempts at a time")
    args = parser.parse_args()
    how = {"work": args.work / 1e3, "latency": args.latency / 1e3,
           "patience": args.patience / 1e3, "fixed": args.fixed, "attempts": args.user}
    world = (everybody(args.nodes, **how) if args.all else
             some(args.nodes, args.servers, **how))
    took = sorted(world.took)
    most = max(world.nodes, key=lambda node: node.messages)
    if world.events:
        print(f"after {FOREVER} s only {len(took)} are READY")
        return
    print(f"READY: half after {took[len(took) // 2]:.2f} s, all after {took[-1]:.2f} s")
    print(f"attempts that were over before: {world.failed}")
    print(f"the busiest node: {most.ready} peers, {most.messages / took[-1]:.0f} messages a "
          f"second while connecting, {most.refused} requests refused; then "
          f"{heartbeats(most.ready):.0f} heartbeats a second each way, and "
          f"{most.ready * SESSION_BYTES / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
