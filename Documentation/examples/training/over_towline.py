# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""Tensors over towline: gradients are computed where they are sent from.

For AllReduce a worker's gradients lie in an arena, memory of the node's pool; the others' parts
come to where they are summed up, and the sum to where the gradients were.  Nothing is copied.

For a parameter server they are what NumPy allocates in computing them.  In the first step that is
ordinary memory, and they are copied before they are sent; a tracer notes which allocations those
were, and from the second step on these are in the arena: section 3.4 of "Fast Distributed Deep
Learning over RDMA" (EuroSys '19).
"""

import contextlib
import errno
import os
import time
from typing import ContextManager, Dict, Iterator, List, Optional, Sequence

import numpy as np
import towline

from transport import AllReduce, Lost, ParameterServer, Shapes, placement

# The process before us is dead; what it had on its way may still have to end.
BUSY_SECONDS = 10
# What says that somebody else is gone, or did not come.
OF_OTHERS = (errno.ESTALE, errno.ECONNRESET, errno.ETIMEDOUT, errno.ECANCELED, errno.EPIPE)


def _lost(error: towline.Error) -> Exception:
    """An error of the others', as Lost; one of ours as it is."""
    return Lost(error.strerror) if error.errno in OF_OTHERS else error


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


def _meet(node: Node, rank: int, size: int, restart: int, timeout: float) -> towline.Group:
    """All processes of the training."""
    world = towline.World(rank, size, root=os.environ.get("TOW_ROOT", ""), restart=restart,
                          session=os.environ.get("TOW_SESSION", ""))
    try:
        return towline.Group(node.device, world, name="training", timeout=timeout)
    except towline.Error as error:
        raise _lost(error) from error


class TowlineAllReduce(AllReduce):
    """AllReduce in the order of the ranks, prepared once for the array of gradients."""

    def __init__(self, node: Node, rank: int, size: int, restart: int = 0,
                 timeout: float = 60) -> None:
        self.ranks = [rank]
        self._arena = towline.Arena(node.device)
        self._group = _meet(node, rank, size, restart, timeout)
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


class TowlineParameterServer(ParameterServer):
    """Servers hold the parameters; their values come to where the model reads them."""

    def __init__(self, node: Node, rank: int, workers: int, servers: int,
                 timeout: float = 60) -> None:
        self._servers = servers
        self._arena = towline.Arena(node.device)
        self._group = _meet(node, servers + rank, servers + workers, 0, timeout)
        self._timeout = timeout
        self._worker: Optional[towline.ParameterWorker] = None
        self._tracer = towline.Tracer(self._arena)
        self._variables = 0

    def allocate(self, shapes: Shapes) -> None:
        self._variables = len(shapes)
        try:
            self._worker = towline.ParameterWorker(
                self._group, self._arena, [(shape, np.float32) for shape in shapes],
                servers=self._servers, timeout=self._timeout)
        except towline.Error as error:
            raise _lost(error) from error

    def pull(self) -> List[np.ndarray]:
        try:
            self._worker.wait()
        except towline.Error as error:
            raise _lost(error) from error
        return [self._worker.value(variable) for variable in range(self._variables)]

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        with towline.allocator(self._tracer), self._tracer.step():
            yield

    def computing(self) -> ContextManager[object]:
        return self._tracer.node("gradients")

    def exchange(self, step: int, gradients: Sequence[np.ndarray]) -> List[np.ndarray]:
        for gradient in gradients:
            self._tracer.transferred(gradient)
        try:
            return self._worker.exchange(gradients)
        except towline.Error as error:
            raise _lost(error) from error

    def traced(self) -> Dict[str, int]:
        report = self._tracer.report()
        return {"zero_copy": report.zero_copy_bytes, "copied": report.copied_bytes}

    @property
    def bytes_moved(self) -> int:
        """Gradients, and values."""
        stats = self._worker.stats() if self._worker else None
        return stats.sent_bytes + stats.received_bytes if stats else 0

    @property
    def bytes_copied(self) -> int:
        """Before gradients were sent: those of the first step, until all are in the arena."""
        return self._worker.stats().copied_bytes if self._worker else 0

    def report(self) -> str:
        stats = self._worker.stats()
        return (f"{stats.variables} variables at {stats.servers} servers, gradients of NumPy's: "
                f"{stats.sent_bytes} bytes pushed, {stats.received_bytes} pulled, "
                f"{stats.copied_bytes} copied")

    def close(self) -> None:
        for part in (self._worker, self._group, self._tracer, self._arena):
            if part is not None:
                part.close()


def serve(node: Node, rank: int, workers: int, servers: int, initial: List[np.ndarray],
          rate: float, momentum: float, timeout: float = 60) -> None:
    """Be a parameter server, of those of the variables that are dealt to it."""
    own = [initial[variable] for variable in placement(len(initial), servers)[rank]]
    with towline.Arena(node.device) as arena, \
         _meet(node, rank, servers + workers, 0, timeout) as group:
        store = towline.Store(arena, own, "sgd", rate=rate, momentum=momentum) if own else None
        try:
            with towline.ParameterServer(group, arena,
                                         [(one.shape, one.dtype) for one in initial],
                                         servers=servers, store=store,
                                         timeout=timeout) as server:
                server.serve()
        except towline.Error as error:
            raise _lost(error) from error
