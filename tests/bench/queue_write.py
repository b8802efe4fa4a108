#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Writes of 8 bytes from Python, one after the other: what queue_write.c does from C.

	queue_write.py DEVICE each|blocks COUNT

The other end is a region of our own node's.  COUNT requests, each of one write, or of 2,000 blocks.  Prints
us_each: of a write, or of a block.
"""

import os
import sys
import time

import numpy as np

import towline

NAME = "bench-queue-write"
BYTES, WIDTH, PIECES, WARM = 64 << 10, 8, 2000, 50


def each(way, count):
    """So many requests of one write."""
    for _ in range(count):
        way.write(0, 0, WIDTH).result()
    return 1


def blocks(way, count):
    """Of 2,000, whose places are in two arrays: how many that are."""
    offsets = np.arange(PIECES) * WIDTH
    back = offsets[::-1].copy()
    for _ in range(count):
        way.write_blocks(offsets, back, WIDTH).result()
    return PIECES


def main(name, kind, count):
    """All of it."""
    own = os.environ["TOW_LAB_ADDRS"].split(",", maxsplit=1)[0]
    with towline.Device(name) as dev, towline.Region(dev, BYTES) as here, \
            towline.Region(dev, BYTES) as there, \
            towline.Export(there, NAME, towline.Right.WRITE), \
            towline.Peer(dev, own, 30) as peer, \
            towline.Remote(peer, NAME, towline.Right.WRITE) as remote, towline.Queue(dev) as queue:
        write, way = {"each": each, "blocks": blocks}[kind], queue.transfer(here, remote, 0)
        write(way, WARM)
        before = time.monotonic()
        pieces = write(way, count)
        print(f"us_each {(time.monotonic() - before) * 1e6 / count / pieces:.4f}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
