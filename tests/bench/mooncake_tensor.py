#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""What tensor_edge.c does, by Mooncake's transfer engine over RDMA.

	mooncake_tensor.py -m serve -a ADDRESS:PORT [-s BYTES]
	mooncake_tensor.py -m send -l OWN_ADDRESS -a ADDRESS:PORT [-s BYTES] [-n STEPS]

A tensor a step is written into the other end's memory, and then, when that has ended,
a word behind which it is: Mooncake spreads a transfer over queue pairs, and promises no
order.  The other end looks at the word, takes the largest element, and writes it back.
PORT is where both ends meet, once, by TCP.  us_per_step.
"""
import argparse
import json
import os
import socket
import sys
import time

import numpy
from mooncake.engine import TransferEngine

WARM = 3
WORDS = 4096            # bytes before the tensor: number and largest element, then our own


class End:
    """One end: its memory, the engine, and where the other one's memory is."""

    def __init__(self, address, size):
        self.memory = numpy.zeros(WORDS + size, dtype=numpy.uint8)
        self.theirs = self.memory[0:16].view(numpy.float64)
        self.ours = self.memory[64:80].view(numpy.float64)
        self.tensor = self.memory[WORDS:].view(numpy.float32)
        self.engine = TransferEngine()
        device = os.environ.get("TOW_DEVICE", "rxe0")
        if self.engine.initialize(address, "P2PHANDSHAKE", "rdma", device):
            sys.exit(f"mooncake_tensor: cannot use {device}")
        if self.engine.register_memory(self.memory.ctypes.data, self.memory.nbytes):
            sys.exit("mooncake_tensor: cannot register memory")
        self.name = f"{address}:{self.engine.get_rpc_port()}"
        self.other = None
        self.base = 0

    def meet(self, connection):
        """Tell the other end where our memory is, and learn where its is."""
        with connection.makefile("rw") as file:
            file.write(json.dumps([self.name, self.memory.ctypes.data]) + "\n")
            file.flush()
            self.other, self.base = json.loads(file.readline())

    def write(self, here, there, size):
        """Bytes of our memory into the other one's; returns when they are there."""
        if self.engine.transfer_sync_write(
                self.other, self.memory.ctypes.data + here, self.base + there, size):
            sys.exit("mooncake_tensor: a write has failed")

    def say(self, number, element=0.0):
        """A number and an element, of which the number is behind, and arrives last."""
        self.ours[0] = element
        self.ours[1] = number
        self.write(64, 0, 16)

    def hear(self, number):
        """Wait for a word; what it says."""
        while self.theirs[1] != number:
            # Spinning would take the processor that the engine's threads need.
            time.sleep(0.0001)
        return self.theirs[0]


def serve(address, port, size):
    """Until it is killed."""
    with socket.create_server((address, port)) as server:
        while True:
            connection, _ = server.accept()
            end = End(address, size)
            with connection:
                end.meet(connection)
            number = 1
            while True:
                end.hear(number)
                end.say(number, float(end.tensor.max()))
                number += 1


def reach(address, port):
    """The other end, when it is there."""
    until = time.monotonic() + 30
    while True:
        try:
            return socket.create_connection((address, port), timeout=30)
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
        time.sleep(0.05)


def send(own, address, port, size, steps):
    """The measure."""
    end = End(own, size)
    with reach(address, port) as connection:
        end.meet(connection)
    start = 0
    for number in range(1, WARM + steps + 1):
        end.tensor[number % len(end.tensor)] = number
        end.write(WORDS, WORDS, size)
        end.say(number)
        if end.hear(number) != number:
            sys.exit("mooncake_tensor: another tensor has come")
        if number == WARM:
            start = time.monotonic()
    print(f"us_per_step {(time.monotonic() - start) / steps * 1e6:.1f}")


def main():
    """The whole of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", choices=("serve", "send"), required=True)
    parser.add_argument("-l", default="")
    parser.add_argument("-a", required=True)
    parser.add_argument("-s", type=int, default=1024)
    parser.add_argument("-n", type=int, default=100)
    args = parser.parse_args()
    address, port = args.a.rsplit(":", 1)
    if args.m == "serve":
        serve(address, int(port), args.s)
    send(args.l, address, int(port), args.s, args.n)
    sys.stdout.flush()
    # Its threads do not end by themselves.
    os._exit(0)


if __name__ == "__main__":
    main()
