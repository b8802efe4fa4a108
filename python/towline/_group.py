# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""The processes of a job, and how they meet."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ._device import Peer
from ._lib import (FOREVER, GATHER_MAX, GROUP_GATHER, Error, GroupAttr, WorldStruct, check, failure,
                   lib, milliseconds)
from ._life import Handle, Interruptible, Object, calling

if TYPE_CHECKING:
    from ._device import Device


@dataclass(frozen=True)
class World:
    """What a launcher says of this process.

    rank: which one this is, from 0.
    size: how many there are.
    root: where rank 0 is, an address or a host's name; "": all are on this node.
    restart: how often the job was started again; processes of different starts never meet.
    session: what this run is called.
    local_rank: which one of this node.
    launcher: who says so: "towline", "torchrun", "Open MPI", "Slurm"; "": the program.
    """

    rank: int
    size: int
    root: str = ""
    restart: int = 0
    session: str = ""
    local_rank: int = 0
    launcher: str = ""

    @classmethod
    def detect(cls) -> World:
        """As the environment has it: TOW_*, torchrun's, Open MPI's or Slurm's variables.

        Raises Error: ENOENT: a variable is missing; EINVAL: what it holds cannot be; which one it
        is is in the text.
        """
        world, variable = WorldStruct(), ctypes.c_char_p()
        result = lib.tow_world_detect(world, variable)
        if result:
            name = variable.value.decode() if variable.value else "a launcher's"
            raise failure(result, f"environment variable {name}")
        return cls(world.rank, world.world_size, world.root.decode(), world.restart,
                   world.session.decode(), world.local_rank, world.launcher.decode())

    def _structure(self) -> WorldStruct:
        for name, room in (("root", 256), ("session", 128)):
            if len(getattr(self, name).encode()) >= room:
                raise ValueError(f"{name} is too long")
        return WorldStruct(rank=self.rank, world_size=self.size, local_rank=self.local_rank,
                           restart=self.restart, root=self.root.encode(),
                           session=self.session.encode())


class _Gather:
    """The program's own way to tell all ranks something, as the library calls it."""

    def __init__(self, function: Callable[[bytes], Sequence[bytes]], size: int) -> None:
        self._function = function
        self._size = size
        self._error: BaseException | None = None
        self.pointer = GROUP_GATHER(self._call)

    def _call(self, _: Any, mine: int | None, count: int, every: Any) -> int:
        try:
            with calling.within():
                told = self._function(ctypes.string_at(mine, count) if mine else b"")
            if [len(one) for one in told] != [count] * self._size:
                raise ValueError(f"{self._size} ranks were to tell {count} bytes each")
            if count:
                ctypes.memmove(every, b"".join(told), count * self._size)
            return 0
        except BaseException as error:  # pylint: disable=broad-exception-caught
            self._error = error
            return -errno.ECANCELED

    def over(self) -> None:
        """Raise what the program's function has raised."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def __enter__(self) -> None:
        calling.begin()

    def __exit__(self, *_: Any) -> None:
        calling.end()
        self.over()


class Group(Object):
    """Processes of a job that know each other.

    dev: the device; all ranks are in one job.  None: there is none, as @error says.
    world: which one this is of how many.
    name: which of several groups of the run it is.
    address: by which other nodes reach this one; None: TOW_ADDRESS, or the first of the device.
    timeout: how long each call may wait for other ranks, in seconds; None: for ever.
    gather: by which ranks tell each other, in place of the group's own way: given what this rank
        tells, it returns what all tell, by rank, as Group.gather() does.  All ranks have one, which is
        called by one thread at a time.  What it raises is raised by whoever has called.
    error: why this rank cannot take part, as what Device() has raised; with @gather only.  It is raised
        here, and by all other ranks, with this rank blamed.

    Made by all ranks; it waits for them, and for rank 0's node to come up.  What a signal's handler
    raises ends that, and any other call here: the group is of no use then, and others are told.

    Raises Error: with blamed the rank that did not come (Timeout), or EPROTO: ranks disagree on
    how many there are; EEXIST: another process is this rank, or two runs have one session; ESTALE,
    ECONNRESET: rank 0 ended; ECANCELED: blamed has left; and as Peer, if rank 0's node is not reached.
    """

    def __init__(self, dev: Device | None, world: World, name: str = "",
                 address: str | None = None, timeout: float | None = 600.0,
                 gather: Callable[[bytes], Sequence[bytes]] | None = None,
                 error: Error | None = None) -> None:
        if dev is None and error is None:
            raise ValueError("without a device @error says why")
        if error is not None and (gather is None or not error.errno):
            raise ValueError("@error goes with @gather, and has a number")
        way = _Gather(gather, world.size) if gather else None
        attr = GroupAttr(timeout_ms=milliseconds(timeout), name=name.encode(),
                         address=address.encode() if address else None,
                         gather=ctypes.cast(way.pointer, ctypes.c_void_p) if way else None,
                         status=-error.errno if error else 0)
        made, blamed = ctypes.c_void_p(), ctypes.c_uint32(FOREVER)
        with dev and dev._handle or contextlib.nullcontext() as pointer, \
                way or contextlib.nullcontext(), Interruptible() as waiting:
            result = lib.tow_group_create(pointer, world._structure(), attr, made, blamed)
            if not result:
                self._own(Handle(made.value, lib.tow_group_destroy, *([dev._handle] if dev else []),
                                 kept=(way,), over=way.over if way else None))
        waiting.over()
        if result:
            raise failure(result, "meeting", blamed.value)
        self.device = dev
        self.rank = world.rank
        self.size = world.size
        self._one_at_a_time = threading.Lock()

    def peer(self, rank: int) -> GroupPeer:
        """The node of a rank; connected to if need be.  It ends with the group.

        Raises Error: EINVAL: there is no such rank; and as Peer.
        """
        return GroupPeer(self, rank)

    def gather(self, mine: bytes) -> list[bytes]:
        """All ranks tell each other something: what each has told, by rank.

        mine: at most 224 bytes, as many at all ranks.
        Raises Error: Timeout with blamed: that rank did not call it in time; ECANCELED: it has left;
        ESTALE, ECONNRESET: rank 0 ended.  After an error the group has the same one for ever.
        """
        if len(mine) > GATHER_MAX:
            raise ValueError(f"at most {GATHER_MAX} bytes can be told")
        told = ctypes.create_string_buffer(max(1, len(mine) * self.size))
        blamed = ctypes.c_uint32(FOREVER)
        with self._handle as pointer, self._one_at_a_time, Interruptible() as waiting:
            result = lib.tow_group_gather(pointer, bytes(mine), len(mine),
                                          ctypes.addressof(told), blamed)
        waiting.over()
        if result:
            raise failure(result, "gathering", blamed.value)
        return [told.raw[i * len(mine):(i + 1) * len(mine)] for i in range(self.size)]

    def barrier(self) -> None:
        """Nobody goes on before all have called it.  It takes milliseconds: Comm.barrier() is
        for what is done often.

        Raises Error: as gather().
        """
        self.gather(b"")


class GroupPeer(Peer):
    """The node of a rank: Group.peer()."""

    def __init__(self, group: Group, rank: int) -> None:  # pylint: disable=super-init-not-called
        found = ctypes.c_void_p()
        with group._handle as pointer:
            with Interruptible() as waiting:
                result = lib.tow_group_peer(pointer, rank, found)
            waiting.over()
            check(result, f"connecting to rank {rank}")
            # It is the group's: nothing to release.
            self._own(Handle(found.value, lambda _: None, group._handle))
        if group.device is not None:
            self.device = group.device
