# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""What peers may reach here, what was found of theirs, and who has what on a device."""

from __future__ import annotations

import builtins
import ctypes
import enum
from typing import TYPE_CHECKING, NamedTuple

from ._lib import check, lib, milliseconds
from ._life import Handle, Interruptible, Object
from ._memory import Region

if TYPE_CHECKING:
    from ._device import Peer


class Right(enum.IntFlag):
    """What may be done with a range; ATOMIC comes with WRITE, and NOTIFY, a slot's, alone."""
    READ = 1
    WRITE = 2
    ATOMIC = 4
    NOTIFY = 8


class Export(Object):
    """A part of a region that peers may reach, found by name by processes of the same job.

    region: what it is in; it does not end before this is closed.
    name: 1 to 255 bytes of UTF-8, without control characters.
    rights: what may be done with it, at least one.
    offset, nbytes: where it begins and how much, in bytes; None: all from there on.

    close() waits until no peer can reach it by this.  As the process ends so does this.

    Raises Error: EEXIST: the name is taken; EINVAL: the name, the rights or the range are not as above;
    EACCES: the region is read-only; EAGAIN: the device cannot register memory at the moment; EDQUOT,
    ENOSPC, ENOMEM; EOPNOTSUPP: the device has no atomics.
    """

    def __init__(self, region: Region, name: str, rights: Right, offset: int = 0,
                 nbytes: int | None = None) -> None:
        if nbytes is None:
            nbytes = region.nbytes - offset
        if offset < 0 or nbytes <= 0 or offset + nbytes > region.nbytes:
            raise ValueError(f"{nbytes} bytes from {offset} on are not within {region.nbytes}")
        made = ctypes.c_void_p()
        with region._handle as pointer:
            check(lib.tow_export(pointer, offset, nbytes, name.encode("utf-8", "surrogateescape"), rights,
                                 made), f"exporting {name}")
            self._own(Handle(made.value, lib.tow_unexport, region._handle))
        self.region = region
        self.name = name
        self.rights = Right(rights)
        self.nbytes = nbytes


class Remote(Object):
    """A range that a peer has exported.

    peer: whose; name, rights: as it exported it.
    timeout: how long to wait for somebody to export it, in seconds; 0: not at all; None: for ever.

    nbytes: its size.

    Raises Error: ENOENT: there is none, and @timeout is 0; EACCES: it has not all of @rights; ESTALE: it
    ended meanwhile; EBUSY: a slot that somebody else has; ECONNRESET; ENOSPC: too many wait there;
    EDQUOT, ENOMEM; what Peer() raises; Timeout.
    """

    def __init__(self, peer: Peer, name: str, rights: Right,
                 timeout: float | None = 10.0) -> None:
        made = ctypes.c_void_p()
        wait_ms = milliseconds(timeout) if timeout != 0 else 0
        with peer._handle as pointer, Interruptible() as waiting:
            result = lib.tow_resolve(pointer, name.encode("utf-8", "surrogateescape"), rights, wait_ms,
                                     made)
            if not result:
                self._found(made.value, peer, name, rights)
        waiting.over()
        check(result, f"resolving {name}")

    def _found(self, pointer: int | None, peer: Peer, name: str, rights: Right) -> None:
        self._own(Handle(pointer, lib.tow_remote_release, peer._handle))
        self.nbytes: int = lib.tow_remote_bytes(pointer)
        self.peer = peer
        self.name = name
        self.rights = Right(rights)


class RegionReport(NamedTuple):
    """What a region is, as struct tow_region_info; sizes in bytes."""
    id: int
    flags: int
    bytes: int
    map_bytes: int
    charged_bytes: int
    cgroup_id: int
    mrs: int
    slabs: int
    uid: int
    pid: int
    linger_s: int
    linger_left_ms: int
    fds: int
    name: str
    job_id: builtins.bytes


class ExportReport(NamedTuple):
    """What an export is, as struct tow_export_info."""
    id: int
    flags: int
    region_id: int
    offset: int
    bytes: int
    rights: int
    grants: int
    uid: int
    pid: int
    name: str
    job_id: builtins.bytes


class PeerReport(NamedTuple):
    """How it stands with a peer, as struct tow_peer_info; address: 16 bytes of IPv6."""
    peer: int
    flags: int
    address: bytes
    scope_id: int
    port: int
    incarnation: bytes
    state: int
    last_error: int
    epoch: int
    qps: int
    reconnects: int
    grants: int
    remotes: int
    messages_sent: int
    messages_received: int
    idle_ms: int
