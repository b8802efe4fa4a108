# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""Devices, and the nodes that they reach."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import ipaddress
import pathlib
import re
import threading
from typing import Any
from collections.abc import Callable, Iterable, Sequence

from ._lib import (LIST_ALL, DeviceAttr, ExportInfo, Name, Node, PeerInfo, RegionInfo, check, failure, lib,
                   listed, milliseconds)
from ._life import Handle, Interruptible, Object
from ._memory import values_of
from ._queue import Lookups
from ._remote import ExportReport, PeerReport, RegionReport, Remote, Right

LINKS = pathlib.Path("/sys/class/infiniband")


def devices() -> list[str]:
    """The names of the devices that towline serves on this node, sorted.

    Raises Error: ENOPKG: the kernel module is not loaded.
    """
    found = ctypes.c_void_p()
    check(lib.tow_device_list_get(found), "listing devices")
    try:
        return [lib.tow_device_list_name(found, i).decode()
                for i in range(lib.tow_device_list_count(found))]
    finally:
        lib.tow_device_list_free(found)


class Device(Object):
    """An RDMA device that this process has opened through towline.

    name: the RDMA device's ("mlx5_0"); None: what TOW_DEVICE names, or the only one there is.

    With TOW_JOB in the environment the process is in that job.  A child that was forked opens the
    device itself; what its parent made answers EPERM there.

    Raises Error: ENOPKG: the kernel module is not loaded; ENXIO: no device is usable; ENOTUNIQ:
    there are several; ENOENT: there is none of that name; ENOMEDIUM: it has no node in
    /dev/towline; EACCES, EPERM: not for this process.
    """

    def __init__(self, name: str | None = None) -> None:
        made = ctypes.c_void_p()
        check(lib.tow_device_open(name.encode() if name is not None else None, 0, made),
              f"opening device {name}" if name else "opening a device")
        self._own(Handle(made.value, lib.tow_device_close))
        self._lookups: Lookups | None = None
        self._looking = threading.Lock()

    def join(self, job: str | bytes) -> None:
        """Enter a job: names are looked up among those of its processes.

        In a container nothing is exported, nor found, nor made persistent, before (ENOKEY).

        job: its key: 32 bytes, or 64 hexadecimal digits, or any other text, of which the SHA-256
        is the key.  Who knows it can enter: it is a secret.
        Raises Error: EBUSY: this device is in another job.  ValueError: bytes that are not 32.
        """
        if isinstance(job, str):
            key = (bytes.fromhex(job) if re.fullmatch("[0-9a-fA-F]{64}", job)
                   else hashlib.sha256(job.encode()).digest())
        elif len(job) == 32:
            key = bytes(job)
        else:
            raise ValueError("a job's key has 32 bytes")
        with self._handle as pointer:
            check(lib.tow_job_join(pointer, key), "joining a job")

    @property
    def name(self) -> str:
        """The RDMA device's.  Raises Error: ENODEV: it was removed."""
        attr = DeviceAttr()
        with self._handle as pointer:
            check(lib.tow_device_query(pointer, attr), "asking a device")
        return str(attr.device_name.decode())

    @property
    def address(self) -> str:
        """By which other nodes reach this one: "192.0.2.1", the best GID of its ports that is an address.

        Raises Error: EADDRNOTAVAIL: there is none; ENODEV: it was removed.
        """
        found: list[tuple[int, str]] = []
        for gid in sorted(LINKS.glob(f"{self.name}/ports/*/gids/*")):
            with contextlib.suppress(OSError):
                at = ipaddress.IPv6Address(gid.read_text(encoding="ascii").strip())
                interface = (gid.parents[1] / "gid_attrs/ndevs" / gid.name).read_text(encoding="ascii").strip()
                if at.is_unspecified or not interface:
                    continue
                if at.ipv4_mapped:
                    found.append((0, str(at.ipv4_mapped)))
                else:
                    found.append((2, f"{at}%{interface}") if at.is_link_local else (1, str(at)))
        if not found:
            raise failure(-errno.EADDRNOTAVAIL, f"the address of {self.name}")
        return min(found)[1]

    def _looks(self) -> Lookups:
        self._handle.claim()
        with self._looking:
            if self._lookups is None:
                self._lookups = Lookups(self)
            return self._lookups

    def resolve(self, names: Iterable[tuple[Peer, str, Right]],
                timeout: float | None = 10.0) -> list[Any]:
        """Look for many names at once: a Request for each, in their order.

        names: of each the peer, the name, and rights, as Remote() has them.
        timeout: how long to wait until somebody exports it, in seconds; 0: not at all; None: for ever.
        A request's result is the Remote; it may be awaited; it ends with what Remote() raises, and with
        ECANCELED if the peer, or the device, is closed meanwhile.
        Those of one peer share messages.  Beyond 2,048 that are on their way this waits.
        """
        wanted = list(names)
        made = (Name * max(1, len(wanted)))()
        wait_ms = milliseconds(timeout) if timeout != 0 else 0
        with contextlib.ExitStack() as stack:
            pointers = {peer: stack.enter_context(peer._handle) for peer, _, _ in wanted}
            for one, (peer, name, rights) in zip(made, wanted, strict=False):
                if peer.device is not self:
                    raise ValueError("the peer is another device's")
                one.peer, one.name = pointers[peer], name.encode("utf-8", "surrogateescape")
                one.rights, one.timeout_ms = rights, wait_ms
            requests = self._looks().begin(lib.tow_queue_resolve, made, [
                _maker(Remote, lib.tow_remote_release, *one) for one in wanted])
        return requests

    def connect(self, addresses: Sequence[str], timeout: float | None = 10.0) -> list[Any]:
        """Connect to many nodes at once: a Request for each, in their order.

        addresses: as Peer() has them; hosts' names are looked up in this call.
        timeout: how long to try, in seconds; None: for ever.
        A request's result is the Peer; all else as resolve().
        """
        made = (Node * max(1, len(addresses)))()
        for one, address in zip(made, addresses, strict=False):
            one.address, one.timeout_ms = address.encode(), milliseconds(timeout)
        return self._looks().begin(lib.tow_queue_connect, made,
                                   [_maker(Peer, lib.tow_peer_release, self) for _ in addresses])

    def regions(self, everybody: bool = False) -> list[RegionReport]:
        """Those of this user, or, for who has CAP_NET_ADMIN, everybody's.  Raises Error: EPERM."""
        with self._handle as pointer:
            every = listed("region", RegionInfo, pointer, LIST_ALL if everybody else 0)
        return [values_of(one, RegionReport) for one in every]

    def exports(self, everybody: bool = False) -> list[ExportReport]:
        """Those of this user in this job, or everybody's, as regions()."""
        with self._handle as pointer:
            every = listed("export", ExportInfo, pointer, LIST_ALL if everybody else 0)
        return [values_of(one, ExportReport) for one in every]

    def peers(self) -> list[PeerReport]:
        """Nodes that it is connected to, or was."""
        with self._handle as pointer:
            every = listed("peer", PeerInfo, pointer)
        return [values_of(one, PeerReport) for one in every]


def _maker(kind: Any, release: Any, *about: Any) -> Callable[[int], Any]:
    """Makes an object of an address that was found; None: what it is of is closed."""
    def make(pointer: int) -> Any:
        made = kind.__new__(kind)
        try:
            made._found(pointer, *about)
        except ValueError:
            release(pointer)
            return None
        except BaseException:
            release(pointer)
            raise
        return made
    return make


class Peer(Object):
    """A node that this one is connected to, or this node itself.

    dev: through which device.
    address: where it listens: "192.0.2.1", "[fe80::1%eth0]:18600", "node7".
    timeout: how long to try, in seconds; None: for ever.

    The connection is the node's: it stays when this is closed.

    Raises Error: EADDRNOTAVAIL, ENETUNREACH, EHOSTUNREACH, ECONNREFUSED: nobody can be reached
    there; ENOKEY, EKEYREJECTED: the nodes do not trust each other; Timeout.
    """

    def __init__(self, dev: Device, address: str, timeout: float | None = 10.0) -> None:
        made = ctypes.c_void_p()
        with dev._handle as pointer, Interruptible() as waiting:
            result = lib.tow_peer_connect(pointer, address.encode(), None, milliseconds(timeout),
                                          made)
            if not result:
                self._found(made.value, dev)
        waiting.over()
        check(result, f"connecting to {address}")

    def _found(self, pointer: int | None, dev: Device) -> None:
        self._own(Handle(pointer, lib.tow_peer_release, dev._handle))
        self.device = dev

    @classmethod
    def find(cls, dev: Device, address: str) -> Peer:
        """The one at an address among those that are known; connects to nobody.

        Raises Error: ENOENT: there is none.
        """
        self = cls.__new__(cls)
        made = ctypes.c_void_p()
        with dev._handle as pointer:
            check(lib.tow_peer_find(pointer, address.encode(), made), f"finding {address}")
            self._found(made.value, dev)
        return self

    def report(self) -> PeerReport:
        """How it stands with it.  Raises Error: ENOENT: it is not known any more."""
        info = PeerInfo()
        with self._handle as pointer:
            check(lib.tow_peer_info(pointer, info), "asking a peer")
        return values_of(info, PeerReport)
