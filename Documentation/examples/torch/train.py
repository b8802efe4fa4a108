# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""A small convolutional network learns handwritten digits by several processes.

	torchrun --nnodes 2 --node_rank N --master_addr ADDRESS train.py --backend towline --log FILE

Each of them is a rank of DistributedDataParallel with a part of the digits.  With --state the model and its
optimizer are in memory that outlives the process, and whoever is started again goes on where they were.
The log has a line of JSON a step: the loss (the mean of all ranks'), its milliseconds, and how many bytes
were copied to be sent.
"""

import argparse
import datetime
import json
import time

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits

import towline.torch

BATCH = 32      # of each rank
RATE, MOMENTUM, SEED = 0.05, 0.9, 1


def net():
    """The same at all ranks."""
    torch.manual_seed(SEED)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(16, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(512, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))


def digits():
    """Images, 0 to 1, and what they show."""
    found = load_digits()
    return (torch.from_numpy(found.images).float().unsqueeze(1) / 16,
            torch.from_numpy(found.target).long())


def agree(model, optimizer, kept):
    """All ranks go on from the latest step that one of them has committed: which one."""
    steps = [None] * dist.get_world_size()
    dist.all_gather_object(steps, kept.step)
    if None in steps:
        if any(step is not None for step in steps):
            kept.destroy()
            raise SystemExit("not all ranks had committed a step: start again")
        return 0
    best = max(range(len(steps)), key=lambda rank: steps[rank])
    if steps[best] != min(steps):
        # The others have committed the step before it, so they have the same tensors.
        state = [value for one in model.parameters() for value in optimizer.state[one].values()]
        for tensor in [*model.state_dict().values(), *state]:
            dist.broadcast(tensor, best)
    return steps[best]


def copied(ours):
    """Bytes, so far; what Gloo copies nobody counts."""
    stats = towline.torch.stats() if ours else {}
    return stats.get("staged_bytes", 0) + stats.get("copied_bytes", 0)


def main():
    """One rank's training."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", choices=("towline", "gloo"), required=True)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--log", required=True)
    parser.add_argument("--state", help="a name for what outlives the process")
    args = parser.parse_args()
    dist.init_process_group(args.backend, timeout=datetime.timedelta(seconds=120))
    rank, size = dist.get_rank(), dist.get_world_size()
    ours = args.backend == "towline"
    wrap = towline.torch.DistributedDataParallel if ours else torch.nn.parallel.DistributedDataParallel
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    kept = towline.torch.persistent(model, optimizer, f"{args.state}-{rank}") if args.state else None
    begin = agree(model, optimizer, kept) if kept else 0
    if begin:
        print(f"rank {rank} goes on after step {begin}", flush=True)
    wrapped = wrap(model, gradient_as_bucket_view=True)
    images, wanted = digits()
    losses = torch.nn.CrossEntropyLoss()
    with open(args.log, "a", encoding="utf-8") as log:
        for step in range(begin + 1, args.steps + 1):
            generator = torch.Generator().manual_seed(step)
            chosen = torch.randperm(len(wanted), generator=generator)[rank * BATCH:(rank + 1) * BATCH]
            before, began = copied(ours), time.monotonic()
            optimizer.zero_grad(set_to_none=False)
            loss = losses(wrapped(images[chosen]), wanted[chosen])
            loss.backward()
            optimizer.step()
            if kept:
                kept.commit(step)
            took = time.monotonic() - began
            now = copied(ours)
            loss = loss.detach()
            dist.all_reduce(loss)
            print(json.dumps({"step": step, "since": step - begin, "loss": loss.item() / size,
                              "ms": took * 1000, "copied": now - before}), file=log, flush=True)
    with torch.no_grad():
        right = (model(images).argmax(1) == wanted).float().mean().item()
    print(f"rank {rank}: {100 * right:.1f} % of the digits are known after {args.steps} steps", flush=True)
    if kept:
        dist.barrier()
        kept.destroy()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
