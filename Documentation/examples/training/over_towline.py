# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""Tensors over towline: gradients are computed where they are sent from.

A worker's gradients lie in an arena, memory of the node's pool; the others' parts come to
where they are summed up, and the sum to where the gradients were.  Nothing is copied.
"""

import errno
import os
import time
from typing import List, Optional

import numpy as np
import towline

from transport import AllReduce, Lost

# The process before us is dead; what it had on its way may still have to end.
BUSY_SECONDS = 10
# What says that somebody else is gone, or did not come.
OF_OTHERS = (errno.ESTALE, errno.ECONNRESET, errno.ETIMEDOUT, errno.ECANCELED, errno.EPIPE)


def _lost(error: towline.Error) -> Exception:
    """An error of the others', as Lost; one of ours as it is."""
    if error.blamed is None and error.errno not in OF_OTHERS:
        return error
    who = "somebody" if error.blamed is None else f"worker {error.blamed}"
    return Lost(f"{who}: {error.strerror}")


class Node:
    """This node's device, and a region of it: there as long as the process, whoever is lost."""

    def __init__(self) -> None:
        self.device = towline.Device()
        self._region: Optional[towline.Region] = None

    def __enter__(self) -> "Node":
        return self

    def __exit__(self, *_: object) -> None:
        self.device.close()

    def memory(self, name: str, size: int) -> np.ndarray:
        """A persistent region: the next process of this name finds what is in it."""
        end = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                self._region = towline.Region.attach(self.device, name)
                break
            except towline.Error as error:
                if error.errno == errno.ENOENT:
                    self._region = towline.Region(self.device, size, name=name,
                                                  persistent=True)
                    break
                if error.errno != errno.EBUSY or time.monotonic() > end:
                    raise
                time.sleep(0.05)
        return self._region.array((size,), np.uint8)

    def forget(self) -> None:
        """The training has ended well: nobody is going to take its state over."""
        if self._region:
            self._region.destroy()


class TowlineAllReduce(AllReduce):
    """AllReduce in the order of the ranks, prepared once for the array of gradients."""

    def __init__(self, node: Node, rank: int, size: int, restart: int = 0,
                 timeout: float = 60) -> None:
        self.ranks = [rank]
        world = towline.World(rank, size, root=os.environ.get("TOW_ROOT", ""), restart=restart,
                              session=os.environ.get("TOW_SESSION", ""))
        self._arena = towline.Arena(node.device)
        try:
            self._group = towline.Group(node.device, world, name="training", timeout=timeout)
        except towline.Error as error:
            raise _lost(error) from error
        self._timeout = timeout
        self._comm = self._sum = self._gradient = None

    def allocate(self, count: int) -> List[np.ndarray]:
        try:
            self._gradient = self._arena.zeros((count,), np.float32)
            self._comm = towline.Comm(self._group, self._arena, timeout=self._timeout)
            self._sum = self._comm.allreduce(self._gradient, op="sum", algorithm="direct")
        except towline.Error as error:
            raise _lost(error) from error
        return [self._gradient]

    def lowest(self, value: int) -> int:
        try:
            told = self._group.gather(value.to_bytes(8, "little"))
        except towline.Error as error:
            raise _lost(error) from error
        return min(int.from_bytes(one, "little") for one in told)

    def reduce(self, step: int) -> np.ndarray:
        try:
            self._sum()
        except towline.Error as error:
            raise _lost(error) from error
        return self._gradient

    @property
    def bytes_moved(self) -> int:
        """As many come as go."""
        return 2 * self._sum.stats().sent_bytes if self._sum else 0

    @property
    def bytes_copied(self) -> int:
        """To and from the arena: of arrays that are in it, none."""
        return self._sum.stats().copied_bytes if self._sum else 0

    def report(self) -> str:
        stats = self._sum.stats()
        return (f"AllReduce of {self._gradient.nbytes} bytes in the arena, {stats.calls} times: "
                f"{stats.sent_bytes} bytes sent, {stats.copied_bytes} bytes copied")

    def close(self) -> None:
        # Gradients that somebody still looks at keep their memory.
        for part in (self._sum, self._comm, self._group, self._arena):
            if part is not None:
                part.close()
