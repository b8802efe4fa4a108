# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""towline: tensors over the wire, as NumPy arrays.

A node's kernel has RDMA memory, registrations and connections once for all its processes; this is
Python's way to them, over libtowline by ctypes.  README.md has an example, the pages of tow_*(3)
say more.

Where an array is taken, so is another's in the CPU's memory, without a copy: what has __dlpack__
(PyTorch, JAX), __array_interface__ or the buffer protocol.  What is given is NumPy's; dlpack() is for
types that only others have.

All times are seconds, None is for ever.  All objects are context managers and have close(); the
garbage collector and the interpreter's end close them, too, in the right order, and nothing
ends under an array that lives.  Errors are towline.Error.  Functions that wait let other threads
run, and Ctrl-C, or what another signal's handler raises, ends them.
"""

from ._agent import Agent
from ._calls import Work
from ._collective import Collective, CollectiveReport, Comm, CommReport
from ._device import Device, Peer, devices
from ._dlpack import dlpack
from ._edge import (DynamicReceiver, DynamicSender, Edge, RendezvousReceiver, RendezvousSender,
                    Request, StaticReceiver, StaticSender, static_bytes)
from ._feed import FeedReport, FeedWorker, FedWorker, JobServer
from ._group import Group, World
from ._lib import Error, Timeout
from ._mailbox import Line, Mailbox
from ._memory import Arena, Region, Stats
from ._numpy import allocator
from ._post import Post, Prepared, RemoteAgent
from ._queue import Happening, Queue, QueueReport, Slot
from ._registered import Registration
from ._remote import Export, ExportReport, PeerReport, RegionReport, Remote, Right
from ._server import ParameterServer, ParameterWorker, PsReport, Store
from ._tracer import JOINS, UNKNOWN, ZERO_COPY, Report, Tracer
from ._types import bfloat16
from ._worker import Pending, Sent, Worker

__version__ = "0.1.0"

__all__ = [
    "Agent", "Arena", "Collective", "CollectiveReport", "Comm", "CommReport", "Device",
    "DynamicReceiver", "DynamicSender", "Edge", "Error", "Export", "ExportReport", "FedWorker",
    "FeedReport", "FeedWorker", "Group", "Happening", "JOINS", "JobServer", "Line", "Mailbox",
    "ParameterServer", "ParameterWorker", "Peer", "PeerReport", "Pending", "Post", "Prepared",
    "PsReport", "Queue", "QueueReport", "Region", "RegionReport", "Registration", "Remote",
    "RemoteAgent", "RendezvousReceiver", "RendezvousSender", "Report", "Request", "Right", "Sent",
    "Slot", "StaticReceiver", "StaticSender", "Stats", "Store", "Timeout", "Tracer", "UNKNOWN",
    "Work", "Worker", "World", "ZERO_COPY", "allocator", "bfloat16", "devices", "dlpack",
    "static_bytes",
]
