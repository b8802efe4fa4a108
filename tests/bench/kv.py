#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""What serving a model moves between two nodes, by towline's Agent and by NIXL's over the same device.

	kv.py serve ADDRESS
	kv.py blocks ADDRESS [-n BLOCKS] [-s BYTES]
	kv.py register ADDRESS [-n TENSORS] [-s BYTES]
	kv.py churn [-n TENSORS] [-s BYTES] [-r ROUNDS]

ADDRESS is where both ends meet, by TCP; serve is the other end, until it is killed.  blocks: so many at random
places are written with one notification, until the other end, which has it, has answered; register: so many
tensors of one allocation, until the other end knows them; churn: the same again and again by one end alone.
Prints pairs of milliseconds, towline's first, or with --side SIDE its median; churn prints how many times as
long as the first round the last one took.
"""

import argparse
import collections
import multiprocessing.connection
import os
import statistics
import time

import numpy as np

PORT = 50054
# Of each end's memory, in which places are chosen.
BYTES = 64 << 20
WARM, ROUNDS = 1, 10
# Between one question and the next: soft-RoCE's threads need the processor.
PAUSE_S = 0.0005
PATIENCE_S = 60.0


class Nixl:
    """NIXL's agent, over UCX; without its thread, which is slower here."""

    def __init__(self, name):
        from nixl_cu12 import nixl_agent, nixl_agent_config     # pylint: disable=import-outside-toplevel
        self._agent = nixl_agent(name, nixl_agent_config(enable_prog_thread=False))
        self._come = collections.deque()

    @staticmethod
    def pieces(arrays):
        """Them as register() takes them fastest."""
        return np.array([(array.ctypes.data, array.nbytes, 0) for array in arrays], np.uint64)

    def register(self, pieces):
        """What ends it is returned."""
        made = self._agent.register_memory(pieces, "DRAM")
        return lambda: self._agent.deregister_memory(made)

    def metadata(self):
        """What the other end is to know."""
        return self._agent.get_agent_metadata()

    def connect(self, data):
        """An agent, and what forgets it."""
        name = self._agent.add_remote_agent(data)
        return name, lambda: self._agent.remove_remote_agent(name)

    def go_on(self):
        """Others need nothing of it."""

    def close(self):
        """It ends when nobody has it."""

    def answer(self, other):
        """Say something to another agent."""
        self._agent.send_notif(other, b"answer")

    def writes(self, other, blocks):
        """What writes blocks, (n, 3) of here, there and bytes, and returns when that is answered."""
        nowhere = np.zeros(len(blocks), np.int64)
        numbers = np.arange(len(blocks), dtype=np.int32)
        here, there = (self._agent.prep_xfer_dlist(
            whose, np.column_stack((blocks[:, place], blocks[:, 2], nowhere)).astype(np.uint64), "DRAM")
            for place, whose in enumerate(("", other)))
        way = self._agent.make_prepped_xfer("WRITE", here, numbers, there, numbers)

        def write():
            state = self._agent.transfer(way, b"written")
            while state == "PROC":
                time.sleep(PAUSE_S)
                state = self._agent.check_xfer_state(way)
            assert state == "DONE", state
            self.receive()
        return write

    def receive(self):
        """The next that is said."""
        while not self._come:
            for told in self._agent.get_new_notifs().values():
                self._come.extend(told)
            if not self._come:
                time.sleep(PAUSE_S)
        return self._come.popleft()


class Towline:
    """towline's agent."""

    def __init__(self, name):
        import towline                                          # pylint: disable=import-outside-toplevel
        own = os.environ["TOW_LAB_ADDRS"].split(",")[int(os.environ["TOW_LAB_NODE"])]
        self._dev = towline.Device(os.environ.get("TOW_DEVICE"))
        self._agent = towline.Agent(self._dev, name, own)

    @staticmethod
    def pieces(arrays):
        """Them as register() takes them."""
        return arrays

    def register(self, pieces):
        """What ends it is returned."""
        return self._agent.register(*pieces).close

    def metadata(self):
        """What the other end is to know."""
        return self._agent.metadata()

    def connect(self, data):
        """An agent, and what forgets it, which its end does."""
        other = self._agent.connect(data, PATIENCE_S)
        return other, lambda: None

    def go_on(self):
        """Who connects to it waits for that."""
        self._agent.progress()

    def close(self):
        """Others forget it."""
        self._agent.close()
        self._dev.close()

    def answer(self, other):
        """Say something to another agent."""
        self._agent.notify(other, b"answer").result(PATIENCE_S)

    def writes(self, other, blocks):
        """What writes blocks, (n, 3) of here, there and bytes, and returns when that is answered."""
        way = self._agent.prepare("write", other, blocks)

        def write():
            way.post(notify=b"written").result(PATIENCE_S)
            self.receive()
        return write

    def receive(self):
        """The next that is said."""
        return self._agent.recv(PATIENCE_S)[1]


SIDES = {"towline": Towline, "nixl": Nixl}


def hear(connection, agent):
    """What the other end says, which may wait for our agent meanwhile."""
    while not connection.poll(PAUSE_S):
        agent.go_on()
    return connection.recv()


class End:
    """One node's end of one side."""

    def __init__(self, side, name):
        self.agent = SIDES[side](name)
        self.memory = np.zeros(BYTES, np.uint8)
        self.base = self.memory.ctypes.data
        self.agent.register(self.agent.pieces([self.memory]))

    def meet(self, connection):
        """The other end's agent, and where its memory is."""
        connection.send((self.agent.metadata(), self.base))
        data, base = connection.recv()
        other, _ = self.agent.connect(data)
        # Either end begins when both know each other.
        connection.send("met")
        hear(connection, self.agent)
        return other, base


class Server:
    """Does what the other node's end asks for."""

    def __init__(self, connection):
        self._connection = connection
        self._ends, self._others = {}, {}

    def meet(self, side):
        """An end of this side."""
        end = self._ends[side] = End(side, f"{side}-server")
        self._others[side], _ = end.meet(self._connection)

    def answer(self, side, count):
        """So many, with what was written, added up."""
        end = self._ends[side]
        end.memory[:] = 0
        self._connection.send("ready")
        for _ in range(count):
            end.agent.receive()
            end.agent.answer(self._others[side])
        self._connection.send(int(end.memory.sum(dtype=np.int64)))

    def learn(self, side):
        """What an agent has registered, and then forget it."""
        _, forget = self._ends[side].agent.connect(self._connection.recv_bytes())
        self._connection.send("known")
        forget()

    def serve(self):
        """All of it."""
        while True:
            what, *arguments = self._connection.recv()
            getattr(self, what)(*arguments)


def serve(address):
    """One after the other."""
    with multiprocessing.connection.Listener((address, PORT)) as listener:
        while True:
            with listener.accept() as connection:
                try:
                    Server(connection).serve()
                except EOFError:
                    pass


def reach(address):
    """The other end, when it is there."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return multiprocessing.connection.Client((address, PORT))
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
        time.sleep(0.05)


class Blocks:
    """Of one side: the same ones, time and again."""

    def __init__(self, side, connection, count, size):
        self._side, self._connection = side, connection
        self._end = End(side, f"{side}-client")
        connection.send(("meet", side))
        other, base = self._end.meet(connection)
        chance = np.random.default_rng(1)
        here, there = (chance.permutation(BYTES // size)[:count] * size for _ in range(2))
        self._write = self._end.agent.writes(other, np.column_stack(
            (self._end.base + here, base + there, np.full(count, size))))
        self._bytes = count * size

    def take(self, number):
        """Milliseconds."""
        self._end.memory[:] = number
        self._connection.send(("answer", self._side, ROUNDS))
        self._connection.recv()
        took = []
        for _ in range(ROUNDS):
            before = time.monotonic()
            self._write()
            took.append(1000 * (time.monotonic() - before))
        assert self._connection.recv() == number * self._bytes, "not all is there"
        return statistics.median(took)


def tensors(count, size):
    """Of one allocation, which is there."""
    memory = np.ones(count * size, np.uint8)
    return [memory[place * size:][:size] for place in range(count)]


class Register:
    """By one side: what the other end does not know, each time by another agent."""

    def __init__(self, side, connection, count, size):
        self._side, self._connection = side, connection
        self._end = End(side, f"{side}-client")
        connection.send(("meet", side))
        self._end.meet(connection)
        self._arrays = tensors(count, size)
        self._pieces = self._end.agent.pieces(self._arrays)

    def take(self, number):
        """Milliseconds."""
        agent = SIDES[self._side](f"{self._side}-{number}")
        self._connection.send(("learn", self._side))
        before = time.monotonic()
        end = agent.register(self._pieces)
        self._connection.send_bytes(agent.metadata())
        hear(self._connection, agent)
        took = 1000 * (time.monotonic() - before)
        end()
        agent.close()
        return took


def compare(kind, sides, address, count, size, turns):
    """Each side first in turns."""
    with reach(address) as connection:
        takers = {side: kind(side, connection, count, size) for side in sides}
        samples = []
        for turn in range(WARM + turns):
            took = {side: takers[side].take(turn + 1) for side in (sides if turn % 2 else sides[::-1])}
            if turn >= WARM:
                samples.append(took)
                if len(sides) > 1:
                    print("pair", *(f"{took[side]:.3f}" for side in sides), flush=True)
        if len(sides) == 1:
            print(f"median_ms {statistics.median(took[sides[0]] for took in samples):.3f}", flush=True)


def churn(side, count, size, rounds):
    """Registered, and not any more."""
    agent, arrays, took = SIDES[side](f"{side}-churn"), tensors(count, size), []
    pieces = agent.pieces(arrays)
    for _ in range(rounds):
        before = time.monotonic()
        agent.register(pieces)()
        took.append(time.monotonic() - before)
    print(f"last_over_first {took[-1] / took[0]:.3f} first_ms {1000 * took[0]:.1f} "
          f"median_ms {1000 * statistics.median(took):.1f} last_ms {1000 * took[-1]:.1f}", flush=True)


def main():
    """The whole of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("serve", "blocks", "register", "churn"))
    parser.add_argument("address", nargs="?")
    parser.add_argument("--side", choices=sorted(SIDES))
    parser.add_argument("-n", type=int, default=2000)
    parser.add_argument("-s", type=int, default=4096)
    parser.add_argument("-r", type=int, default=60)
    parser.add_argument("-t", type=int, default=7)
    args = parser.parse_args()
    sides = [args.side] if args.side else list(SIDES)
    if args.what == "serve":
        serve(args.address)
    elif args.what == "churn":
        churn(sides[0], args.n, args.s, args.r)
    else:
        compare({"blocks": Blocks, "register": Register}[args.what], sides, args.address, args.n, args.s,
                args.t)
    # UCX's ends its own way, and not always well.
    os._exit(0)


if __name__ == "__main__":
    main()
