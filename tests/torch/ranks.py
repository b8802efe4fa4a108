# SPDX-License-Identifier: GPL-2.0
"""What the tests of PyTorch's backend have in common."""

import contextlib
import datetime
import os

import torch
import torch.distributed as dist

import towline.torch

MOST_S = 60


def marked(ranks=3, ends=None, seconds=None):
    """In so many processes; @ends: with what a rank ends, if it is not 0; @seconds: what it may take."""
    def mark(case):
        case.ranks, case.ends = ranks, ends or {}
        if seconds:
            case.seconds = seconds
        return case
    return mark


def store():
    """That of this case."""
    return dist.FileStore(os.environ["TOW_TEST_STORE"], int(os.environ["WORLD_SIZE"]))


def begin(seconds=MOST_S, backend="towline"):
    """The group of all ranks."""
    dist.init_process_group(backend, store=store(), rank=int(os.environ["RANK"]),
                            world_size=int(os.environ["WORLD_SIZE"]),
                            timeout=datetime.timedelta(seconds=seconds))


@contextlib.contextmanager
def group(seconds=MOST_S):
    """All ranks, within."""
    begin(seconds)
    yield
    dist.barrier()
    dist.destroy_process_group()


@contextlib.contextmanager
def raises(kind, *words):
    """It raises that, and says so."""
    try:
        yield
    except kind as error:
        text = str(error)
        assert all(word in text for word in words), (words, text)
    else:
        raise AssertionError(f"{kind} was not raised: {words}")


def numbers(rank, count, dtype, low=0, high=5):
    """Small ones, another set for each rank."""
    generator = torch.Generator().manual_seed(1000 + rank)
    values = torch.randint(low, high, (count,), generator=generator)
    if dtype.is_complex:
        return torch.complex(values.double(), values.flip(0).double()).to(dtype)
    return values.to(dtype)


def same(one, other):
    """Equal, of the same type and shape."""
    assert one.dtype == other.dtype and one.shape == other.shape, (one.dtype, other.dtype, one.shape,
                                                                  other.shape)
    assert torch.equal(one, other), (one, other)


__all__ = ["begin", "datetime", "dist", "group", "marked", "numbers", "raises", "same", "store",
           "torch", "towline"]
