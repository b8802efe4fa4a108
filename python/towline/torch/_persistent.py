# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""A model and its optimizer in memory that outlives the process.

They are in a persistent region of the node's pool, which has two sides.  One is what the program trains,
the other what it has committed last.  A word at the region's begin says which side is whole, and of
which step: commit() has it say that of the trained side, which nobody changes meanwhile, copies that
to the other one, and has it say that of the other one.  So at each moment one side is as it was at the
end of a step, whenever the process is killed.  Who takes the region over copies that side to the other
one, and trains there.

The region:	word	8 bytes: 2 * step + side + 1; 0: nothing was committed
		layout	the optimizer's class; names, shapes and types of all tensors, in their order (JSON)
		sides	each: what is no tensor (JSON), then the tensors
"""

from __future__ import annotations

import errno
import json
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from .._device import Device
from .._lib import Error
from .._memory import Region
from .._types import address_of

PAGE, ALIGNMENT = 4096, 64
# Room for what is no tensor: learning rates and the like, of each side.
PLAIN_BYTES = 1 << 20
LENGTHS = 8     # of the layout, and of what is no tensor: before each, its length


def _rounded(count: int, to: int) -> int:
    return -(-count // to) * to


class _Place(NamedTuple):
    """A tensor's, in a side."""
    name: str
    shape: tuple[int, ...]
    dtype: str
    offset: int
    nbytes: int


def _tensors(module: torch.nn.Module, optimizer: torch.optim.Optimizer
             ) -> Iterator[tuple[str, torch.Tensor]]:
    """All there are, each once, by names that are the same in the next process."""
    seen = set()
    names = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        if not isinstance(tensor, torch.Tensor) or name.rsplit(".", 1)[-1] == "_extra_state":
            raise ValueError(f"the module has {name}, and only parameters and buffers are kept")
        if id(tensor) not in seen:
            seen.add(id(tensor))
            names[id(tensor)] = name
            yield f"module {name}", tensor
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if id(parameter) not in names:
                raise ValueError("the optimizer has a parameter that is not the module's")
            for key, value in sorted(optimizer.state.get(parameter, {}).items()):
                if isinstance(value, torch.Tensor):
                    yield f"optimizer {names[id(parameter)]} {key}", value


def _packed(value: Any) -> Any:
    """For JSON, which has no tuples, and of dicts only those of strings."""
    if isinstance(value, dict):
        return {"dict": _packed(list(value.items()))}
    if isinstance(value, (list, tuple)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_packed(one) for one in value]}
    return value


def _unpacked(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    (kind, what), = value.items()
    if kind == "dict":
        return dict(_unpacked(what))
    return (tuple if kind == "tuple" else list)(map(_unpacked, what))


def _plain(optimizer: torch.optim.Optimizer) -> bytes:
    """What an optimizer has that is no tensor."""
    state = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state.append({key: _packed(value)
                          for key, value in optimizer.state.get(parameter, {}).items()
                          if not isinstance(value, torch.Tensor)})
    groups = [{key: _packed(value) for key, value in group.items() if key != "params"}
              for group in optimizer.param_groups]
    try:
        return json.dumps([groups, state]).encode()
    except TypeError as error:
        raise ValueError(f"the optimizer has something that cannot be kept: {error}") from None


class _Sides:
    """A region, as what it holds."""

    def __init__(self, region: Region, layout: bytes) -> None:
        self.region = region
        self.optimizer, places = json.loads(layout)
        self.places = [_Place(name, tuple(shape), dtype, offset, nbytes)
                       for name, shape, dtype, offset, nbytes in places]
        self.begin = _rounded(PAGE + LENGTHS + len(layout), PAGE)
        self.side_bytes = _side_bytes(self.places)
        self._word = region.array(1, np.int64)
        from . import _backend
        self._backend = _backend

    @classmethod
    def make(cls, dev: Device, name: str, linger: int, optimizer: str,
             tensors: list[tuple[str, torch.Tensor]]) -> _Sides:
        """A new region for them."""
        places, offset = [], LENGTHS + PLAIN_BYTES
        for what, tensor in tensors:
            nbytes = tensor.numel() * tensor.element_size()
            places.append(_Place(what, tuple(tensor.shape), str(tensor.dtype), offset, nbytes))
            offset = _rounded(offset + nbytes, ALIGNMENT)
        layout = json.dumps([optimizer, places]).encode()
        begin = _rounded(PAGE + LENGTHS + len(layout), PAGE)
        region = Region(dev, begin + 2 * _side_bytes(places), name, persistent=True, linger=linger)
        _put(region, PAGE, layout)
        return cls(region, layout)

    @classmethod
    def attach(cls, dev: Device, name: str, linger: int) -> _Sides | None:
        """One that another process has left; none if it has committed nothing."""
        region = Region.attach(dev, name, linger)
        if not region.array(1, np.int64)[0]:
            region.destroy()
            return None
        return cls(region, _get(region, PAGE))

    @property
    def committed(self) -> tuple[int, int]:
        """Which side is whole, and of which step."""
        word = int(self._word[0]) - 1
        return word & 1, word >> 1

    def commit(self, trained: int, step: int) -> None:
        """That side is whole; and then the other one, too, as it is copied there."""
        word = 2 * step + 1
        to, there = self._address(1 - trained), self._address(trained)
        self._backend.commit(address_of(self._word), word + trained, to, there, self.side_bytes,
                             word + 1 - trained)

    def fill(self, side: int) -> None:
        """From the other one, which is whole."""
        self._backend.copy(self._address(side), self._address(1 - side), self.side_bytes)

    def holds(self, tensor: torch.Tensor) -> bool:
        """Is it in the region?"""
        begin = address_of(self._word)
        return begin <= tensor.data_ptr() < begin + self.region.nbytes

    def _address(self, side: int) -> int:
        """Where a side begins."""
        return address_of(self._word) + self.begin + side * self.side_bytes

    def tensor(self, side: int, place: _Place) -> torch.Tensor:
        """One of a side's tensors, where it is."""
        memory = self.region.array(place.nbytes, np.uint8,
                                   self.begin + side * self.side_bytes + place.offset)
        dtype = getattr(torch, place.dtype.split(".")[-1])
        return torch.from_numpy(memory).view(dtype).view(place.shape)

    def put_plain(self, side: int, plain: bytes) -> None:
        """What is no tensor."""
        if len(plain) > PLAIN_BYTES:
            raise ValueError(f"the optimizer has more than {PLAIN_BYTES} bytes that are no tensors")
        _put(self.region, self.begin + side * self.side_bytes, plain)

    def plain(self, side: int) -> Any:
        """The same, of a side that is whole."""
        return json.loads(_get(self.region, self.begin + side * self.side_bytes))


def _side_bytes(places: list[_Place]) -> int:
    end = places[-1].offset + places[-1].nbytes if places else LENGTHS + PLAIN_BYTES
    return _rounded(end, PAGE)


def _put(region: Region, offset: int, what: bytes) -> None:
    region.array(len(what), np.uint8, offset + LENGTHS)[:] = np.frombuffer(what, np.uint8)
    region.array(1, np.int64, offset)[0] = len(what)


def _get(region: Region, offset: int) -> bytes:
    length = int(region.array(1, np.int64, offset)[0])
    if not 0 < length <= region.nbytes - offset - LENGTHS:
        raise ValueError("the region is none of towline.torch.persistent()")
    return region.array(length, np.uint8, offset + LENGTHS).tobytes()


class Persistent:
    """What persistent() returns.

    step: of what was taken over, or committed last; None: nothing so far.
    """

    def __init__(self, module: torch.nn.Module, optimizer: torch.optim.Optimizer, name: str,
                 linger: int, timeout: float) -> None:
        self._module, self._optimizer, self._name, self._linger = module, optimizer, name, linger
        self._dev = Device()
        self._sides: _Sides | None = None
        self._trained = 0
        self.step: int | None = None
        until = time.monotonic() + timeout
        while True:
            try:
                sides = _Sides.attach(self._dev, name, linger)
                if sides:
                    self._take_over(sides)
                return
            except Error as error:
                if error.errno == errno.ENOENT:
                    return
                if error.errno != errno.EBUSY or time.monotonic() > until:
                    raise
            time.sleep(0.01)

    def _take_over(self, sides: _Sides) -> None:
        whole, step = sides.committed
        self._look_at_layout(sides)
        self._trained = 1 - whole
        sides.fill(self._trained)
        self._restore_state(sides, sides.plain(whole))
        self._bind(sides, fill=False)
        self._sides, self.step = sides, step

    def _look_at_layout(self, sides: _Sides) -> None:
        """Has the module what is in the region?"""
        kept = {place.name: place for place in sides.places if place.name.startswith("module ")}
        if sides.optimizer != type(self._optimizer).__name__:
            raise ValueError(f"region {self._name} is of an optimizer {sides.optimizer}")
        for name, tensor in _tensors(self._module, self._optimizer):
            if not name.startswith("module "):
                continue    # What is kept replaces it.
            place = kept.pop(name, None)
            if place is None:
                raise ValueError(f"region {self._name} has no {name}")
            if (place.shape, place.dtype) != (tuple(tensor.shape), str(tensor.dtype)):
                raise ValueError(f"region {self._name}: {name} is {place.dtype}{list(place.shape)}, "
                                 f"and not {tensor.dtype}{list(tensor.shape)}")
        if kept:
            raise ValueError(f"region {self._name} has {min(kept)}, and the module has not")

    def _restore_state(self, sides: _Sides, plain: Any) -> None:
        """The optimizer's state, and what it has that is no tensor."""
        groups, states = plain
        if len(groups) != len(self._optimizer.param_groups):
            raise ValueError(f"region {self._name} is of an optimizer of {len(groups)} groups")
        for group, kept in zip(self._optimizer.param_groups, groups, strict=True):
            for key, value in kept.items():
                group[key] = _unpacked(value)
        parameters = [one for group in self._optimizer.param_groups for one in group["params"]]
        if len(parameters) != len(states):
            raise ValueError(f"region {self._name} is of an optimizer of {len(states)} parameters")
        for parameter, state in zip(parameters, states, strict=True):
            if state:
                self._optimizer.state[parameter].update(
                    {key: _unpacked(value) for key, value in state.items()})
        names = {id(tensor): name.removeprefix("module ")
                 for name, tensor in _tensors(self._module, self._optimizer)}
        by_name = {names[id(one)]: one for one in parameters}
        for place in sides.places:
            if place.name.startswith("optimizer "):
                name, key = place.name.removeprefix("optimizer ").rsplit(" ", 1)
                self._optimizer.state[by_name[name]][key] = sides.tensor(self._trained, place)

    def _bind(self, sides: _Sides, fill: bool) -> None:
        """Module and optimizer use the trained side's memory; @fill: with what they have."""
        places = {place.name: place for place in sides.places}
        moves = []
        for name, tensor in _tensors(self._module, self._optimizer):
            place = places.pop(name, None)
            if place is None or (place.shape, place.dtype) != (tuple(tensor.shape),
                                                               str(tensor.dtype)):
                raise ValueError(f"{name} was not so at the first commit(); that comes after the "
                                 "optimizer's first step")
            there = sides.tensor(self._trained, place)
            if tensor.data_ptr() != there.data_ptr() or not tensor.is_contiguous():
                # Of two that were exchanged neither is written over before it was read.
                value = tensor.detach()
                moves.append((tensor, there, value.clone() if sides.holds(value) else value))
        if places:
            raise ValueError(f"{min(places)} was there at the first commit()")
        for tensor, there, value in moves:
            if fill:
                there.copy_(value)
            tensor.data = there

    def commit(self, step: int) -> None:
        """From now on a process that takes over begins with what is now.

        step: which one has ended: 0 or more.

        Nobody changes the module or the optimizer meanwhile.  The first one moves both into the
        region, and comes after the optimizer's first step, when all of its state is there.

        Raises Error: ENOSPC, EDQUOT: the pool has no room for twice of all; EEXIST.  ValueError: a
        tensor has another shape than before, or is new; the module has extra state; the optimizer has
        what is neither a tensor nor numbers, texts, lists, tuples and dicts of them.
        """
        if step < 0:
            raise ValueError("a step is 0 or more")
        plain = _plain(self._optimizer)
        if self._sides is None:
            self._sides = _Sides.make(self._dev, self._name, self._linger,
                                      type(self._optimizer).__name__,
                                      list(_tensors(self._module, self._optimizer)))
        sides, trained = self._sides, self._trained
        with torch.no_grad():
            self._bind(sides, fill=True)
        sides.put_plain(trained, plain)
        sides.commit(trained, step)
        self.step = step

    def destroy(self) -> None:
        """End what is kept.  Tensors stay as they are until they die."""
        if self._sides is not None:
            self._sides.region.destroy()
            self._sides = None


def persistent(module: torch.nn.Module, optimizer: torch.optim.Optimizer, name: str,
               linger: int = 0, timeout: float = 10.0) -> Persistent:
    """Keep a model and its optimizer's state over the end of this process.

    module, optimizer: of CPU tensors; the same in the process that takes over, before their first step.
    name: by which the next process of this user, and of this job, finds them.
    linger: for how long, in seconds, from the end of the process; 0: as long as the device allows.
    timeout: how long to wait for a process that ends, in seconds.

        kept = towline.torch.persistent(model, optimizer, "model")
        for step in range((kept.step or 0) + 1, steps + 1):
            ...
            optimizer.step()
            kept.commit(step)

    If there is such a region it is taken over: module and optimizer are as at the last commit(), and
    kept.step says which one.  Else nothing happens before the first commit().

    Kept is what module.state_dict() has, tensors of one object once, and the optimizer's state of its
    parameters.  All of that is there at the first commit(): after an optimizer's first step, and a
    parameter that gets its first gradient later is not foreseen (ValueError at the next commit()).

    Raises Error: EBUSY: the process that has it lives.  ValueError: what is kept has other names, shapes
    or types, or is of another optimizer; it stays as it is.
    """
    return Persistent(module, optimizer, name, linger, timeout)
