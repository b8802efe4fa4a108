# SPDX-License-Identifier: GPL-2.0
"""DistributedDataParallel and what is built on it, against one process that has all batches."""

import importlib

from ranks import dist, group, marked, torch, towline
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer

# 2.x imports it as soon as an optimizer steps: here once, and not by each rank.
if not torch.__version__.startswith("1."):
    importlib.import_module("torch._dynamo")
STEPS, BATCH = 6, 8
DDP = towline.torch.DistributedDataParallel
# Else all of this net is one.
dist._DEFAULT_FIRST_BUCKET_BYTES = 1 << 17


def net():
    """The same in all processes; more than one bucket of half a MiB."""
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(64, 500), torch.nn.ReLU(), torch.nn.Linear(500, 300),
                               torch.nn.Tanh(), torch.nn.Linear(300, 10))


def batch(rank, step):
    """What a rank has in a step."""
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(BATCH, 64, generator=generator), torch.randn(BATCH, 10, generator=generator)


def loss_of(model, *batches):
    """Mean over all of them."""
    inputs, wanted = (torch.cat(parts) for parts in zip(*batches))
    return (model(inputs) - wanted).square().mean()


def alone(size, make_optimizer, steps=STEPS):
    """All ranks' batches in one process: what the parameters are to be."""
    model = net()
    optimizer = make_optimizer(model.parameters())
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, *(batch(rank, step) for rank in range(size))).backward()
        optimizer.step()
    return list(model.parameters())


def sgd(parameters):
    """With momentum."""
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def close(model, wanted, tolerance=1e-4):
    """Parameters are as wanted, up to rounding."""
    for one, other in zip(model.parameters(), wanted):
        torch.testing.assert_close(one.detach(), other.detach(), rtol=tolerance, atol=tolerance)


def train(model, optimizer, rank, each=lambda step: None):
    """All steps."""
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=False)
        loss_of(model, batch(rank, step)).backward()
        optimizer.step()
        each(step)


def test_no_copies(rank, size):
    """From the third step on; gradients are in the pool."""
    with group():
        model = DDP(net(), bucket_cap_mb=0.5)
        seen = []
        train(model, optimizer := sgd(model.parameters()), rank,
              lambda _: seen.append(towline.torch.stats()))
        assert optimizer
        for what in ("staged_bytes", "copied_bytes"):
            assert seen[-1][what] == seen[1][what], (what, seen)
        assert seen[-1]["sent_bytes"] > seen[1]["sent_bytes"]
        assert all(towline.torch.in_pool(one.grad) for one in model.parameters())
        close(model, alone(size, sgd))
        mine = torch.cat([one.detach().flatten() for one in model.parameters()])
        all_of = [torch.zeros_like(mine) for _ in range(size)]
        dist.all_gather(all_of, mine)
        assert all(torch.equal(one, mine) for one in all_of)


def test_plain(rank, size):
    """PyTorch's own, whose buckets are in ordinary memory; with a graph that stays, and unused parts."""
    with group():
        for words in ({}, {"static_graph": True}, {"find_unused_parameters": True},
                      {"broadcast_buffers": False, "gradient_as_bucket_view": True}):
            model = torch.nn.parallel.DistributedDataParallel(net(), **words)
            train(model, sgd(model.parameters()), rank)
            close(model, alone(size, sgd))


def test_accumulated(rank, size):
    """no_sync(): two batches a step."""
    with group():
        model = DDP(net())
        for turn in range(2):
            with model.no_sync():
                loss_of(model, batch(rank, 2 * turn)).backward()
            loss_of(model, batch(rank, 2 * turn + 1)).backward()
        whole = net()
        for step in range(4):
            loss_of(whole, *(batch(one, step) for one in range(size))).backward()
        for one, other in zip(model.parameters(), whole.parameters()):
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-6)


def test_uneven(rank, size):
    """Join: ranks have unlike numbers of batches."""
    with group():
        model = DDP(net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        with Join([model]):
            for step in range(3 + rank):
                optimizer.zero_grad(set_to_none=False)
                loss_of(model, batch(rank, step)).backward()
                optimizer.step()
        mine = torch.cat([one.detach().flatten() for one in model.parameters()])
        first = mine.clone()
        dist.broadcast(first, 0)
        torch.testing.assert_close(mine, first)
        assert size > 1


def test_sharded_optimizer(rank, size):
    """ZeroRedundancyOptimizer: each rank updates a part."""
    with group():
        model = DDP(net())
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
        train(model, optimizer, rank)
        close(model, alone(size, lambda some: torch.optim.Adam(some, lr=0.01)), 1e-3)


def test_hooks(rank, size):
    """Gradients that are compressed on the way."""
    with group():
        model = DDP(net(), bucket_cap_mb=0.4)
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
        train(model, sgd(model.parameters()), rank)
        close(model, alone(size, sgd), 1e-2)
        # One bucket: its hook makes calls when a future is there, in no order among buckets.
        dist._DEFAULT_FIRST_BUCKET_BYTES = 1 << 24
        model = DDP(net())
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        train(model, sgd(model.parameters()), rank)
        mine = torch.cat([one.detach().flatten() for one in model.parameters()])
        first = mine.clone()
        dist.broadcast(first, 0)
        torch.testing.assert_close(mine, first)


class Seen(torch.nn.Module):
    """Where its inputs are."""

    def __init__(self):
        super().__init__()
        self.in_pool = []

    def forward(self, inputs):
        """Changes nothing."""
        self.in_pool.append(towline.torch.in_pool(inputs))
        return inputs


@marked(ranks=2)
def test_activations(rank, size):
    """They are in the pool only while buckets may be made anew."""
    with group():
        model = DDP(torch.nn.Sequential(torch.nn.Linear(64, 20), seen := Seen(), torch.nn.Linear(20, 10)))
        with torch.no_grad():
            model(batch(rank, 0)[0])
        for step in range(4):
            model(batch(rank, step)[0]).sum().backward()
        assert seen.in_pool == [False, True, True, False, False], seen.in_pool
        model = DDP(torch.nn.Sequential(torch.nn.Linear(64, 20), seen := Seen(), torch.nn.Linear(20, 10)),
                    find_unused_parameters=True)
        for step in range(4):
            model(batch(rank, step)[0]).sum().backward()
        assert not any(seen.in_pool) and size == 2


@marked(ranks=2)
def test_buffers(rank, size):
    """They are the first rank's after each forward()'s begin."""
    with group():
        model = DDP(torch.nn.Sequential(torch.nn.Linear(64, 20), torch.nn.BatchNorm1d(20)))
        for step in range(3):
            model(batch(rank, step)[0]).sum().backward()
        mine = model.module[1].running_mean.clone()
        first = mine.clone()
        dist.broadcast(first, 0)
        assert not rank or not torch.equal(mine, first), "batches are to be unlike"
        model.eval()
        with torch.no_grad():
            model(batch(rank, 9)[0])
        assert torch.equal(model.module[1].running_mean, first) and size == 2
