# SPDX-License-Identifier: GPL-2.0
"""A rank, as its launcher's variables say: adds up with all others, and says what came of it.

	rank.py TIMEOUT_S
"""

import sys

import numpy as np

import towline

try:
    world = towline.World.detect()
    timeout = float(sys.argv[1])
    with towline.Device() as dev, towline.Arena(dev, region_bytes=4 << 20) as arena, \
            towline.Group(dev, world, timeout=timeout) as group, \
            towline.Comm(group, arena, timeout=timeout) as comm:
        array = np.full(1000, world.rank + 1, "f4")
        comm.allreduce(array)()
        print(f"sum {array.min():.0f} {array.max():.0f}", flush=True)
except towline.Error as error:
    print(f"error {error}", flush=True)
    sys.exit(1)
