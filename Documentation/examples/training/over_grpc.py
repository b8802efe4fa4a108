# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""Tensors over gRPC, in its good case: what towline is compared with.

Connections are kept.  A worker and a server, or two workers, exchange one call a step:
what is given goes with the request, what comes of it with the reply, so a step takes one
round trip.  Messages are protobuf's, with the tensors as one field of bytes, as users of
gRPC send them; their code is generated from tensors.proto (make examples).  A field of
bytes wants an object of Python's that never changes, hence tobytes(); what was received is
used where it lies.
"""

import concurrent.futures
import threading
import time
from typing import Callable, Dict, List, Sequence, Tuple

import grpc
import numpy as np

from model import Model, views
from optimizer import Momentum, sum_in_order
from transport import AllReduce, Lost, ParameterServer, Shapes, placement

try:
    from tensors_pb2 import Number, Tensors
    import tensors_pb2_grpc as generated
except ImportError as error:
    raise SystemExit("gRPC's code is not there: make examples, "
                     "and PYTHONPATH=build/examples/training") from error

OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # Processes of a training reach each other directly, whatever the environment says.
    ("grpc.enable_http_proxy", 0),
    # A worker that was restarted is wanted back soon.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
PROBE_SECONDS = 1.0
# What a call fails with when the other side is gone, or has not come back yet.
GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN)


class Meeting:
    """All bring an array for a step; the last to come computes, all get what came of it."""

    def __init__(self, size: int, work: Callable[[int, List[np.ndarray]], Tensors]) -> None:
        self._size = size
        self._work = work
        self._changed = threading.Condition()
        self._brought: Dict[int, np.ndarray] = {}
        # Nobody begins a step before all have taken what came of the last one.
        self._done = Tensors()
        self._ended = False

    def bring(self, step: int, rank: int, values: np.ndarray) -> None:
        """Lay it on the table; does not wait."""
        with self._changed:
            if rank in self._brought or not 0 <= rank < self._size:
                raise ValueError(f"rank {rank} at step {step}")
            self._brought[rank] = values
            if len(self._brought) == self._size:
                arrays = [self._brought[other] for other in range(self._size)]
                self._brought = {}
                self._done = self._work(step, arrays)
                self._changed.notify_all()

    def result(self, step: int, timeout: float) -> Tensors:
        """What came of a step; Lost when the meeting is over, TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._done.step >= step or self._ended,
                                          timeout):
                raise TimeoutError(f"step {step} did not end within {timeout} s")
            if self._done.step != step:
                raise Lost(f"step {step} is not going to end")
            return self._done

    def end(self) -> None:
        """Whoever waits waits no more."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()


def _channel(address: str) -> grpc.Channel:
    return grpc.insecure_channel(address, OPTIONS)


def _listen(address: str, callers: int, add: Callable[[grpc.Server], None]) -> grpc.Server:
    """A server, each of whose callers may wait in it."""
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2 * callers + 1),
                         options=(*OPTIONS, ("grpc.so_reuseport", 0)))
    add(server)
    if not server.add_insecure_port(address):
        raise OSError(f"cannot listen at {address}")
    server.start()
    return server


# ---- AllReduce ---------------------------------------------------------------

class _WorkerService(generated.WorkerServicer):
    """What other workers call."""

    def __init__(self, owner: "GrpcAllReduce") -> None:
        self._owner = owner

    def Reduce(self, request, context):                     # pylint: disable=invalid-name
        """Another worker's part of what we sum up."""
        owner = self._owner
        if request.restart != owner.restart or owner.meeting is None:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not of this meeting")
        try:
            owner.meeting.bring(request.step, request.rank,
                                np.frombuffer(request.values, np.float32))
            return owner.meeting.result(request.step, owner.timeout)
        except (Lost, TimeoutError) as error:
            context.abort(grpc.StatusCode.ABORTED, str(error))

    def Tell(self, request, context):                       # pylint: disable=invalid-name
        """Our number, if we have come as far as who asks."""
        owner = self._owner
        if request.restart != owner.restart or owner.number is None:
            context.abort(grpc.StatusCode.UNAVAILABLE, "not there yet")
        return Number(restart=owner.restart, value=owner.number)


class GrpcAllReduce(AllReduce):
    """Each worker sums up its part of the gradients and hands the sum to all others.

    As many bytes as by the ring, in one round trip, and always in the order of ranks.
    """

    def __init__(self, rank: int, addresses: Sequence[str], restart: int = 0,
                 timeout: float = 60) -> None:
        self.ranks = [rank]
        self.restart = restart
        self.timeout = timeout
        self.meeting = None
        self.number = None
        self._rank = rank
        self._size = len(addresses)
        self._bounds = [0] * (self._size + 1)
        self._gradient = self._total = np.empty(0, np.float32)
        self._channels = {peer: _channel(address) for peer, address in enumerate(addresses)
                          if peer != rank}
        self._peers = {peer: generated.WorkerStub(channel)
                       for peer, channel in self._channels.items()}
        self._server = _listen(addresses[rank], self._size, lambda server:
                               generated.add_WorkerServicer_to_server(_WorkerService(self),
                                                                      server))

    def _part(self, array: np.ndarray, rank: int) -> np.ndarray:
        return array[self._bounds[rank]:self._bounds[rank + 1]]

    def allocate(self, count: int) -> List[np.ndarray]:
        self._bounds = [count * rank // self._size for rank in range(self._size + 1)]
        self._gradient = np.empty(count, np.float32)
        self._total = np.empty(count, np.float32)
        self.meeting = Meeting(self._size, self._sum)
        return [self._gradient]

    def _sum(self, step: int, arrays: List[np.ndarray]) -> Tensors:
        own = sum_in_order(arrays, self._part(self._total, self._rank))
        return Tensors(step=step, restart=self.restart, values=own.tobytes())

    def lowest(self, value: int) -> int:
        self.number = value
        end = time.monotonic() + self.timeout
        return min([value] + [self._ask(peer, end) for peer in self._peers])

    def _ask(self, peer: int, end: float) -> int:
        """A worker's number, when it has come."""
        while True:
            try:
                return self._peers[peer].Tell(Number(restart=self.restart), timeout=2,
                                              wait_for_ready=True).value
            except grpc.RpcError as error:
                if time.monotonic() > end or \
                        error.code() not in (*GONE, grpc.StatusCode.DEADLINE_EXCEEDED):
                    raise Lost(f"worker {peer}: {error.details()}") from error
                time.sleep(0.05)

    def reduce(self, step: int) -> np.ndarray:
        if not self._peers:
            np.copyto(self._total, self._gradient)
            return self._total
        assert self.meeting is not None
        self.meeting.bring(step, self._rank, self._part(self._gradient, self._rank))
        *others, last = sorted(self._peers)
        waiting = [(peer, self._peers[peer].Reduce.future(self._request(step, peer),
                                                          timeout=self.timeout))
                   for peer in others]
        try:
            # The calling thread waits for this one itself, which is gRPC's shortest way.
            self._received(last, self._peers[last].Reduce(self._request(step, last),
                                                          timeout=self.timeout))
            for peer, future in waiting:
                self._received(peer, future.result())
        except grpc.RpcError as error:
            raise Lost(f"step {step}: {error.code().name}: {error.details()}") from error
        self._own_sum(step)
        return self._total

    def _request(self, step: int, peer: int) -> Tensors:
        values = self._part(self._gradient, peer)
        self.bytes_moved += values.nbytes
        return Tensors(step=step, rank=self._rank, restart=self.restart,
                       values=values.tobytes())

    def _received(self, peer: int, reply: Tensors) -> None:
        """A worker's part of the sum; it got ours, or gets it, in a reply as well."""
        np.copyto(self._part(self._total, peer), np.frombuffer(reply.values, np.float32))
        self.bytes_moved += len(reply.values)
        # What came in and went out because it called us.
        self.bytes_moved += 2 * self._part(self._total, self._rank).nbytes

    def _own_sum(self, step: int) -> None:
        """Wait for the part that we sum up ourselves, as long as all others are there."""
        end = time.monotonic() + self.timeout
        assert self.meeting is not None
        while True:
            try:
                self.meeting.result(step, PROBE_SECONDS)
                return
            except TimeoutError as error:
                for peer in self._peers:
                    self._ask(peer, 0)
                if time.monotonic() > end:
                    raise Lost(str(error)) from error

    def close(self) -> None:
        if self.meeting:
            self.meeting.end()
        self._server.stop(1).wait()
        for channel in self._channels.values():
            channel.close()


# ---- parameter server --------------------------------------------------------

class GrpcServer(generated.ServerServicer):
    """A parameter server: its variables, until all workers have had the last step's."""

    def __init__(self, rank: int, addresses: Sequence[str], workers: int, model: Model,
                 seed: int, optimizer: Momentum, steps: int, timeout: float = 60) -> None:
        variables = model.views(model.initial(seed))
        mine = [variables[i].ravel() for i in placement(len(variables), len(addresses))[rank]]
        values = np.concatenate(mine) if mine else np.empty(0, np.float32)
        zeros = np.zeros_like(values)
        # (parameters, velocity), of the last step and of the next one
        self._now = (values, zeros)
        self._next = (np.empty_like(values), np.empty_like(values))
        self._total = np.empty_like(values)
        self._optimizer = optimizer
        self._meeting = Meeting(workers, self._update)
        self._steps = steps
        self._timeout = timeout
        self._left = workers
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._server = _listen(addresses[rank], workers, lambda server:
                               generated.add_ServerServicer_to_server(self, server))

    def _update(self, step: int, arrays: List[np.ndarray]) -> Tensors:
        total = sum_in_order(arrays, self._total)
        self._optimizer.apply(total, *self._now, *self._next)
        self._now, self._next = self._next, self._now
        return Tensors(step=step, values=self._now[0].tobytes())

    def Pull(self, request, context):                       # pylint: disable=invalid-name
        """What training begins with."""
        del request, context
        return Tensors(values=self._now[0].tobytes())

    def Update(self, request, context):                     # pylint: disable=invalid-name
        """A worker's gradients there, the parameters after the step back."""
        try:
            if request.step == self._steps:
                context.add_callback(self._had_the_last)
            self._meeting.bring(request.step, request.rank,
                                np.frombuffer(request.values, np.float32))
            return self._meeting.result(request.step, self._timeout)
        except (Lost, TimeoutError) as error:
            context.abort(grpc.StatusCode.ABORTED, str(error))

    def _had_the_last(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left <= 0:
                self._over.set()

    def serve(self) -> None:
        """Until the end of the training."""
        self._over.wait()
        self._server.stop(5).wait()


class GrpcParameterServer(ParameterServer):
    """A worker of such servers."""

    def __init__(self, rank: int, addresses: Sequence[str], timeout: float = 60) -> None:
        self._rank = rank
        self._timeout = timeout
        self._channels = [_channel(address) for address in addresses]
        self._servers = [generated.ServerStub(channel) for channel in self._channels]
        self._shapes: Shapes = ()
        self._placement: List[List[int]] = []
        # One array for each server: what goes into one message lies together.
        self._gradients: List[np.ndarray] = []

    def _shapes_of(self, server: int) -> List[Tuple[int, ...]]:
        return [self._shapes[i] for i in self._placement[server]]

    def allocate(self, shapes: Shapes) -> List[np.ndarray]:
        self._shapes = shapes
        self._placement = placement(len(shapes), len(self._servers))
        self._gradients = [
            np.empty(sum(int(np.prod(shape)) for shape in self._shapes_of(server)), np.float32)
            for server in range(len(self._servers))]
        return self._sorted(self._gradients)

    def _sorted(self, flat: Sequence[np.ndarray]) -> List[np.ndarray]:
        """What servers have, one array each, as arrays of variables in their order."""
        found = {}
        for server, array in enumerate(flat):
            found.update(zip(self._placement[server], views(array, self._shapes_of(server))))
        return [found[i] for i in range(len(self._shapes))]

    def _parameters(self, replies: Sequence[Tensors]) -> List[np.ndarray]:
        self.bytes_moved += sum(len(reply.values) for reply in replies)
        return self._sorted([np.frombuffer(reply.values, np.float32) for reply in replies])

    def pull(self) -> List[np.ndarray]:
        try:
            return self._parameters([server.Pull(Tensors(rank=self._rank),
                                                 timeout=self._timeout, wait_for_ready=True)
                                     for server in self._servers])
        except grpc.RpcError as error:
            raise Lost(f"{error.code().name}: {error.details()}") from error

    def exchange(self, step: int, gradients: Sequence[np.ndarray]) -> List[np.ndarray]:
        # They are where allocate() said.
        requests = [Tensors(step=step, rank=self._rank, values=flat.tobytes())
                    for flat in self._gradients]
        self.bytes_moved += sum(flat.nbytes for flat in self._gradients)
        waiting = [server.Update.future(request, timeout=self._timeout)
                   for server, request in zip(self._servers[:-1], requests)]
        try:
            # As above: the calling thread waits for the last one itself.
            last = self._servers[-1].Update(requests[-1], timeout=self._timeout)
            return self._parameters([future.result() for future in waiting] + [last])
        except grpc.RpcError as error:
            raise Lost(f"step {step}: {error.code().name}: {error.details()}") from error

    def close(self) -> None:
        for channel in self._channels:
            channel.close()
