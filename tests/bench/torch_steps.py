# SPDX-License-Identifier: GPL-2.0
"""PyTorch's collectives over towline and over Gloo, by turns, in the same processes.

	torch_steps.py ddp|allreduce -a ADDRESS -p RANKS -r RANK [-s BYTES] [-n TIMES] [-t PAIRS]

ddp: a step of DistributedDataParallel, of a model of BYTES of float32; allreduce: one, of BYTES.  Rank 0
prints a pair of medians, in microseconds, for each turn.  Gloo is PyTorch's own, over TCP.
"""

import argparse
import datetime
import os
import statistics
import time

import torch
import torch.distributed as dist

import towline.torch

PORT = 29550
# Times before anything is measured: DDP makes its buckets anew after the first step.
WARM = 3


def options():
    """Parse the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("ddp", "allreduce"))
    for name, kind, default in (("a", str, None), ("p", int, 2), ("r", int, 0), ("s", int, 1 << 20),
                                ("n", int, 5), ("t", int, 7)):
        parser.add_argument(f"-{name}", type=kind, default=default, required=default is None)
    return parser.parse_args()


def stepper(args, group, backend):
    """What is done once."""
    if args.what == "allreduce":
        tensor = torch.ones(args.s // 4)
        return lambda: dist.all_reduce(tensor, group=group)
    torch.manual_seed(1)
    width = max(16, int((args.s / 4 / 2) ** 0.5))
    kind = (towline.torch.DistributedDataParallel if backend == "towline" else
            torch.nn.parallel.DistributedDataParallel)
    model = kind(torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(),
                                     torch.nn.Linear(width, width)),
                 process_group=group, gradient_as_bucket_view=True, bucket_cap_mb=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(4, width)

    def step():
        optimizer.zero_grad(set_to_none=False)
        model(batch).square().mean().backward()
        optimizer.step()
    return step


def timed(step, times):
    """The median of so many, in microseconds."""
    took = []
    for _ in range(times):
        began = time.monotonic()
        step()
        took.append(1e6 * (time.monotonic() - began))
    return statistics.median(took)


def main():
    """One rank."""
    args = options()
    os.environ.update(MASTER_ADDR=args.a, MASTER_PORT=str(PORT), GLOO_SOCKET_IFNAME="eth0")
    dist.init_process_group("gloo", rank=args.r, world_size=args.p,
                            timeout=datetime.timedelta(seconds=200))
    with towline.torch.allocator():
        steps = {backend: stepper(args, dist.new_group(backend=backend), backend)
                 for backend in ("towline", "gloo")}
    for step in steps.values():
        timed(step, WARM)
    for turn in range(args.t):
        took = {}
        for backend in sorted(steps, reverse=bool(turn % 2)):
            dist.barrier()
            took[backend] = timed(steps[backend], args.n)
        if not args.r:
            print(f"pair {took['towline']:.1f} {took['gloo']:.1f}", flush=True)
    dist.barrier()


if __name__ == "__main__":
    main()
