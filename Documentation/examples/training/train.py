#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""Data-parallel training of a perceptron on handwritten digits, one worker or one server.

Synchronous: each step takes the mean of all workers' gradients, so the loss is the same,
bit for bit, whatever moves the tensors, and the same as in one process (--transport none).

Who we are is in the environment: TOW_RANK (among the workers, or among the servers),
TOW_WORLD_SIZE (workers), TOW_RESTART.  launch.py starts all processes of a training on
this machine.
"""

import argparse
import hashlib
import mmap
import os
import sys
import time
from contextlib import nullcontext
from typing import Callable, ContextManager, List, Optional, Sequence, Tuple

import exact

exact.before_numpy()
# pylint: disable=wrong-import-position
import numpy as np                                              # noqa: E402

import digits                                                   # noqa: E402
from log import Log                                             # noqa: E402
from model import Arrays, Model                                 # noqa: E402
from optimizer import Momentum                                  # noqa: E402
from state import State, fingerprint                            # noqa: E402
from transport import Alone, AllReduce, Lost, ParameterServer, Transport    # noqa: E402

# A worker that is lost again and again is not coming back.
RESTARTS_MAX = 8


class World:
    """Which process of how many this is."""

    def __init__(self) -> None:
        try:
            self.rank = int(os.environ.get("TOW_RANK", "0"))
            self.size = int(os.environ.get("TOW_WORLD_SIZE", "1"))
            self.restart = int(os.environ.get("TOW_RESTART", "0"))
        except ValueError as error:
            raise SystemExit(f"TOW_RANK, TOW_WORLD_SIZE, TOW_RESTART: {error}") from error
        if self.size < 1 or self.rank < 0 or self.restart < 0:
            raise SystemExit("TOW_RANK, TOW_WORLD_SIZE, TOW_RESTART: out of range")


class Training:
    """What all ways to train have in common: the model, the data, the log."""

    def __init__(self, options: argparse.Namespace, world: World) -> None:
        self.options = options
        self.world = world
        self.model = Model(options.layers)
        self.optimizer = Momentum(options.rate, options.momentum, world.size)
        self.data = digits.load()
        self.batches = digits.Batches(len(self.data.pixels), options.batch, options.seed)
        self.settings = {
            "layers": list(options.layers), "steps": options.steps, "batch": options.batch,
            "rate": options.rate, "momentum": options.momentum, "seed": options.seed,
            "workers": world.size}
        self.log = Log(options.log, transport=options.transport, method=options.method,
                       rank=world.rank, restart=world.restart, **self.settings)

    def gradients(self, step: int, rank: int, parameters: List[np.ndarray],
                  into: Optional[Arrays], computing: ContextManager[object] = nullcontext()
                  ) -> Tuple[float, Arrays]:
        """A rank's share of a step: the loss, and its gradients."""
        rows = self.batches.share(step, rank, self.world.size)
        pixels, labels = self.data.pixels[rows], self.data.labels[rows]
        with computing:
            return self.model.gradients(parameters, pixels, labels, into)

    def end(self, parameters: List[np.ndarray], transport: Transport) -> None:
        """What came of it."""
        accuracy = self.model.accuracy(parameters, self.data.held_out_pixels,
                                       self.data.held_out_labels)
        digest = hashlib.sha256(b"".join(array.tobytes() for array in parameters))
        self.log.end(accuracy=accuracy, parameters=digest.hexdigest(),
                     bytes_copied=transport.bytes_copied, report=transport.report())
        print(f"{accuracy:.2%} of {len(self.data.held_out_labels)} digits held out are "
              f"recognised; parameters {digest.hexdigest()[:16]}")


# ---- AllReduce ---------------------------------------------------------------

def meet(training: Training, transport: AllReduce, state: State) -> List[Arrays]:
    """Wait for all workers, and go back to the lowest step that any of them has.

    Returns where the gradients of each rank that is computed here belong.
    """
    gradients = transport.allocate(training.model.count)
    last = transport.lowest(state.last or 0)
    state.forget_after(last)
    training.log.event("met", step=last, restart=training.world.restart)
    return [training.model.views(array) for array in gradients]


def all_reduce(training: Training, transport: AllReduce, state: State,
               into: Sequence[Arrays]) -> None:
    """Train to the end."""
    world, model, log = training.world, training.model, training.log
    for step in range((state.last or 0) + 1, training.options.steps + 1):
        moved, begin = transport.bytes_moved, time.perf_counter()
        parameters, velocity = state.at(step - 1)
        losses = [training.gradients(step, rank, model.views(parameters), own)[0]
                  for rank, own in zip(transport.ranks, into)]
        computed = time.perf_counter()
        total = transport.reduce(step)
        exchanged = time.perf_counter()
        training.optimizer.apply(total, parameters, velocity, *state.begin(step))
        state.commit(step)
        end = time.perf_counter()
        for rank, loss in zip(transport.ranks, losses):
            log.step(step, rank, loss, restart=world.restart,
                     compute=computed - begin + end - exchanged,
                     exchange=exchanged - computed, bytes=transport.bytes_moved - moved)
    training.end(model.views(state.at(training.options.steps)[0]), transport)


def all_reduce_in_spite(training: Training, make: Callable[[int], AllReduce],
                        memory: Optional[np.ndarray]) -> None:
    """The same; who loses another worker meets it again when it was restarted."""
    model, world = training.model, training.world
    kept = memory is not None
    if memory is None:
        memory = np.zeros(State.size(model.count), np.uint8)
    settings = fingerprint(sorted(training.settings.items()), world.rank)
    state = State(memory, model.count, settings)
    if state.last is None:
        parameters, velocity = state.begin(0)
        parameters[...] = model.initial(training.options.seed)
        velocity[...] = 0
        state.commit(0)
    else:
        training.log.event("resumed", step=state.last)
        print(f"goes on after step {state.last}", flush=True)
    while True:
        # Who does not come is not waited for another time.
        transport = make(world.restart)
        try:
            into = meet(training, transport, state)
            try:
                all_reduce(training, transport, state, into)
                return
            except Lost as error:
                if not kept or world.restart >= RESTARTS_MAX:
                    raise
                training.log.event("lost", step=state.last, why=str(error))
                print(f"after step {state.last}: {error}", flush=True)
                world.restart += 1
        finally:
            transport.close()


# ---- parameter server --------------------------------------------------------

def with_server(training: Training, transport: ParameterServer) -> None:
    """Train with parameters that servers hold."""
    world, log = training.world, training.log
    try:
        into = transport.allocate(training.model.shapes)
        parameters = transport.pull()
        log.event("met", step=0, restart=world.restart)
        for step in range(1, training.options.steps + 1):
            moved, begin = transport.bytes_moved, time.perf_counter()
            with transport.step():
                loss, gradients = training.gradients(step, world.rank, parameters, into,
                                                     transport.computing())
                computed = time.perf_counter()
                parameters = transport.exchange(step, gradients)
            end = time.perf_counter()
            log.step(step, world.rank, loss, restart=world.restart, compute=computed - begin,
                     exchange=end - computed, bytes=transport.bytes_moved - moved,
                     **transport.traced())
        training.end(parameters, transport)
    finally:
        transport.close()


def serve(options: argparse.Namespace, world: World) -> None:
    """Be a parameter server."""
    model = Model(options.layers)
    optimizer = Momentum(options.rate, options.momentum, world.size)
    if options.transport == "grpc":
        import over_grpc                                # pylint: disable=import-outside-toplevel
        over_grpc.GrpcServer(world.rank, options.servers, world.size, model, options.seed,
                             optimizer, options.steps, options.timeout).serve()
    else:
        import over_towline                             # pylint: disable=import-outside-toplevel
        initial = [array.copy() for array in model.views(model.initial(options.seed))]
        with over_towline.Node() as node:
            over_towline.serve(node, world.rank, world.size, len(options.servers), initial,
                               options.rate, options.momentum, options.timeout)


# ---- what the command line asks for ------------------------------------------

def file_memory(path: str, size: int) -> np.ndarray:
    """A file's bytes, which outlive the process."""
    with open(path, "a+b") as file:
        if os.fstat(file.fileno()).st_size < size:
            file.truncate(size)
        return np.frombuffer(mmap.mmap(file.fileno(), size), np.uint8)


def work(options: argparse.Namespace, world: World) -> None:
    """Be a worker.  Transports are imported when they are wanted: each needs packages."""
    training = Training(options, world)
    size = State.size(training.model.count)
    if options.transport == "none":
        all_reduce_in_spite(training, lambda _: Alone(world.size), None)
    elif options.transport == "towline":
        over_towline_work(training, size)
    elif options.method == "server":
        import over_grpc                                # pylint: disable=import-outside-toplevel
        with_server(training, over_grpc.GrpcParameterServer(world.rank, options.servers,
                                                            options.timeout))
    else:
        import over_grpc                                # pylint: disable=import-outside-toplevel
        memory = file_memory(options.state, size) if options.state else None
        all_reduce_in_spite(training, lambda restart: over_grpc.GrpcAllReduce(
            world.rank, options.workers, restart, options.timeout), memory)


def over_towline_work(training: Training, size: int) -> None:
    """The same over towline; state is in a persistent region."""
    import over_towline                                 # pylint: disable=import-outside-toplevel
    options, world = training.options, training.world
    with over_towline.Node() as node:
        if options.method == "server":
            with_server(training, over_towline.TowlineParameterServer(
                node, world.rank, world.size, len(options.servers), options.timeout))
            return
        memory = node.memory(options.state, size) if options.state else None
        all_reduce_in_spite(training, lambda restart: over_towline.TowlineAllReduce(
            node, world.rank, world.size, restart, options.timeout), memory)
        del memory
        node.forget()


def numbers(text: str) -> List[int]:
    """Numbers with commas between them."""
    return [int(word) for word in text.split(",")]


def words(text: str) -> List[str]:
    """Words with commas between them."""
    return text.split(",")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--role", choices=("worker", "server"), default="worker")
    made.add_argument("--transport", choices=("towline", "grpc", "none"), required=True)
    made.add_argument("--method", choices=("server", "allreduce"), default="allreduce")
    made.add_argument("--workers", type=words, default=[], metavar="ADDRESS,...",
                      help="where the workers are, by rank")
    made.add_argument("--servers", type=words, default=[], metavar="ADDRESS,...",
                      help="where the parameter servers are, by rank")
    made.add_argument("--layers", type=numbers, default=[64, 128, 10], metavar="UNITS,...",
                      help="default: 64,128,10")
    made.add_argument("--steps", type=int, default=200, help="default: %(default)s")
    made.add_argument("--batch", type=int, default=64,
                      help="rows in a step, of all workers together; default: %(default)s")
    made.add_argument("--rate", type=float, default=0.1, help="default: %(default)s")
    made.add_argument("--momentum", type=float, default=0.9, help="default: %(default)s")
    made.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    made.add_argument("--log", metavar="FILE", help="a line of JSON for each step")
    made.add_argument("--state", metavar="NAME",
                      help="a persistent region (towline) or a file (grpc) that keeps the last "
                      "steps, of this worker alone: who is killed goes on there (allreduce)")
    made.add_argument("--timeout", type=float, default=60,
                      help="seconds to wait for the others; default: %(default)s")
    return made


def main() -> int:
    """Be what the command line and the environment say."""
    options = parser().parse_args()
    world = World()
    wanted = "servers" if options.method == "server" else "workers"
    if (options.transport == "grpc" or options.method == "server") and not getattr(options, wanted):
        parser().error(f"--{wanted}: where are they?")
    try:
        if options.role == "server":
            serve(options, world)
        else:
            work(options, world)
    except (Lost, OSError) as error:
        print(f"train: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
