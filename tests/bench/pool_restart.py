#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""A pool that outlives its owner, whom it is taken from while another node writes into it.

	pool_restart.py own [-s BYTES] [-n LIVES]
	pool_restart.py write ADDRESS

Each owner is killed, and the next one, which has imported all that it needs and opened nothing, has the
pool with what was in it and can export it again.  Prints worst_ms of all of them, from the kill on.
"""

import argparse
import errno
import os
import signal
import time

import numpy as np

import towline

NAME = "bench-pool"
# In each MiB the owner has the first word, and the other node writes the second.
STEP, WIDTH = 1 << 20, 8
WAIT_S = 60.0
# How long nothing is to be written any more.
STILL_S = 0.2


def words(region):
    """Of each MiB of the region the first two."""
    return region.array((region.nbytes // STEP, STEP // WIDTH), "u8")[:, :2]


def attached(dev):
    """The pool, when the last owner's death is over."""
    while True:
        try:
            return towline.Region.attach(dev, NAME)
        except towline.Error as error:
            if error.errno != errno.EBUSY:
                raise
            time.sleep(0.001)


def held(dev):
    """By how many peers."""
    return sum(export.grants for export in dev.exports(True))


def own(nbytes, first, go, told):
    """One life: tells the milliseconds that it took, then when it may be killed, and waits for that."""
    began = float(go.readline())
    dev = towline.Device()
    if first:
        region = towline.Region(dev, nbytes, name=NAME, persistent=True)
        words(region)[:, 0] = np.arange(nbytes // STEP)
    else:
        region = attached(dev)
    took, pool = time.monotonic() - began, words(region)
    assert not held(dev)
    before = pool[:, 1].copy()
    time.sleep(STILL_S)
    assert (pool[:, 1] == before).all(), "a peer goes on writing"
    assert (pool[:, 0] == np.arange(len(pool))).all() and (first or before.any())
    with towline.Export(region, NAME, towline.Right.WRITE):
        until = time.monotonic() + WAIT_S
        while (pool[:, 1] == before).all() or not held(dev):
            assert time.monotonic() < until, "nobody writes"
            time.sleep(0.01)
        print(1000 * took, file=told, flush=True)
        signal.pause()


def write(address):
    """Into the pool of whoever has it, until this is killed."""
    number = 0
    with towline.Device() as dev, towline.Region(dev, STEP) as here:
        with towline.Queue(dev) as queue:
            while True:
                try:
                    with towline.Peer(dev, address, WAIT_S) as peer, \
                            towline.Remote(peer, NAME, towline.Right.WRITE, WAIT_S) as remote:
                        way = queue.transfer(here, remote)
                        while True:
                            number += 1
                            here.array(1, "u8")[0] = number
                            way.write(0, number * STEP % remote.nbytes + WIDTH, WIDTH).result()
                except towline.Error:
                    # Its owner is gone.
                    pass


class Life:
    """A process that is an owner when it is told to begin."""

    def __init__(self, nbytes, first):
        go, self._go = os.pipe()
        self._told, told = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            signal.alarm(5 * int(WAIT_S))
            with open(go, encoding="utf-8") as asked, open(told, "w", encoding="utf-8") as said:
                own(nbytes, first, asked, said)
        os.close(go)
        os.close(told)

    def begins(self):
        """From now on."""
        with open(self._go, "w", encoding="utf-8") as go:
            print(time.monotonic(), file=go)

    def lives(self):
        """When others have written into what it has: how many milliseconds it took to have it."""
        with open(self._told, encoding="utf-8") as told:
            return float(told.readline())

    def dies(self):
        """Killed in the middle of their writing; nothing is waited for."""
        os.kill(self._pid, signal.SIGKILL)

    def is_dead(self):
        """It is nobody's child any more."""
        os.waitpid(self._pid, 0)


def main():
    """All lives."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("own", "write"))
    parser.add_argument("address", nargs="?")
    parser.add_argument("-s", type=int, default=2 << 30)
    parser.add_argument("-n", type=int, default=5)
    args = parser.parse_args()
    if args.what == "write":
        write(args.address)
    life, took = Life(args.s, True), []
    life.begins()
    life.lives()
    for _ in range(args.n):
        following = Life(args.s, False)
        life.dies()
        following.begins()
        took.append(following.lives())
        life.is_dead()
        life = following
    life.dies()
    life.is_dead()
    with towline.Device() as dev:
        attached(dev).destroy()
    print(f"worst_ms {max(took):.1f}")


if __name__ == "__main__":
    main()
