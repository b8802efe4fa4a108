# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""PyTorch by towline: the backend "towline" of torch.distributed, and tensors in the pool.

    import torch, torch.distributed as dist
    import towline.torch

    dist.init_process_group("towline")              # under torchrun
    with towline.torch.allocator():
        model = Net()
    model = towline.torch.DistributedDataParallel(model)

Tensors of the CPU.  All that c10d asks of a backend for them is there; what it is called with and
returns is in PyTorch's documentation.  Whatever fails raises RuntimeError, and says which rank is
to blame.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from .. import _lib     # Also the C library, which the backend needs: found as TOWLINE_LIBRARY says.

_backend = _lib.load_compiled(__name__ + "._backend", "TOWLINE_TORCH", "towline.torch", "torch")

from ._persistent import Persistent, persistent     # noqa: E402


_DEVICES: Any = {} if torch.__version__.startswith("1.") else {"devices": ["cpu"]}
_register: Any = dist.Backend.register_backend
_register("towline", _backend.create, **_DEVICES)


def _group(group: Any) -> Any:
    group = group if group is not None else dist.group.WORLD
    if group is None:
        raise RuntimeError("towline: init_process_group() comes first")
    backend = group._get_backend(torch.device("cpu")) if hasattr(group, "_get_backend") else group
    # TORCH_DISTRIBUTED_DEBUG=DETAIL wraps it.
    while hasattr(backend, "wrapped_pg"):
        backend = backend.wrapped_pg
    return backend


@atexit.register
def _leave() -> None:
    """Who ends without destroy_process_group() has not died: what others need of it arrives first."""
    _backend.close_all()


def abort(group: Any = None) -> None:
    """Break off all that a group has on its way, here and at all its ranks, who blame this one.

    group: None: that of all ranks.
    Returns at once; may be called by any thread while others wait.  The group is of no use then.
    """
    _backend.abort(_group(group))


def monitored_barrier(group: Any = None, timeout: datetime.timedelta | None = None,
                      wait_all_ranks: bool = False) -> None:
    """As torch.distributed.monitored_barrier(), which refuses all backends but Gloo.

    Raises RuntimeError: which ranks did not come: at rank 0, of wait_all_ranks all, else the first.
    """
    _backend.monitored_barrier(_group(group), timeout or datetime.timedelta(milliseconds=-1),
                               wait_all_ranks)


def stats(group: Any = None) -> dict[str, int]:
    """What a group's calls have done at this rank, as struct tow_comm_stats: calls, sent_bytes,
    eager_bytes, staged_bytes, copied_bytes."""
    return dict(_backend.stats(_group(group)))


def memory() -> dict[str, int]:
    """How the arena of tensors is, as struct tow_arena_stats: in_use_bytes, reserved_bytes, peak_bytes,
    allocations, fallbacks, fallback_bytes.  Zeroes before there is one."""
    return dict(_backend.memory())


def in_pool(tensor: torch.Tensor) -> bool:
    """Is it in the pool, so that it is sent from where it is?"""
    return bool(_backend.in_pool(tensor))


@contextlib.contextmanager
def allocator(whole_process: bool = False) -> Iterator[None]:
    """Within, CPU tensors that this thread makes are in towline's pool.

    whole_process: those of all threads, and from now on: it does not end with the block.

    Tensors are there for as long as they are used, also after the block.  What has no room in the pool
    is ordinary memory, which memory() counts and one line on the standard error says.  A child that
    was forked shares its parent's tensors: what it writes there its parent has; its own are ordinary
    memory.

    Raises RuntimeError: the node's device cannot be opened, and why.
    """
    _backend.use_memory()
    if whole_process:
        _backend.whole_process(True)
    before = _backend.scope(True)
    try:
        yield
    finally:
        _backend.scope(before)


class DistributedDataParallel(torch.nn.parallel.DistributedDataParallel):
    """PyTorch's, whose gradients are in the pool: nothing is copied to reduce them.

    Arguments are PyTorch's; gradient_as_bucket_view is True.  Buckets are made when it is constructed,
    and, unless some parameters may be unused, once more in a forward() after the first backward(): until
    then each that has a backward() runs within allocator(), as constructing it does.
    """

    def __init__(self, module: torch.nn.Module, *args: Any, gradient_as_bucket_view: bool = True,
                 **kwargs: Any) -> None:
        kwargs["gradient_as_bucket_view"] = gradient_as_bucket_view
        with allocator():
            super().__init__(module, *args, **kwargs)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        never = self.find_unused_parameters and not self.static_graph
        if never or getattr(self, "_has_rebuilt_buckets", False) or not torch.is_grad_enabled():
            return super().forward(*inputs, **kwargs)
        with allocator():
            return super().forward(*inputs, **kwargs)


__all__ = ["DistributedDataParallel", "Persistent", "abort", "allocator", "in_pool", "memory",
           "monitored_barrier", "persistent", "stats"]
