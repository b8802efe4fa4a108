# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""libtowline by ctypes: its structures, functions and errors, as its headers have them.

STRUCTURES and FUNCTIONS say all that is bound; tests/python compares both with the headers.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import importlib.machinery
import importlib.util
import math
import os
import sys
import time
from ctypes import (POINTER, c_char, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t,
                    c_uint8, c_uint16, c_uint32, c_uint64, c_void_p)
from typing import Any, Protocol
from collections.abc import Callable

SONAME = "libtowline.so.0"
FOREVER = 0xffffffff
NO_RANK = 0xffffffff
ANY = 0xffffffff
DIMS_MAX = 8
GATHER_MAX = 224
MESSAGE_MAX = 2016
READONLY, PERSISTENT = 1, 2
LIST_ALL = 1
ARENA_DEBUG, ARENA_FALLBACK = 1, 2
PUT_CLONE = 1
# The longest wait in one call of what may be closed meanwhile.
SLICE_S = 0.25


class Library(Protocol):
    """Its functions, as FUNCTIONS has them."""

    def tow_strerror(self, error: int) -> bytes: ...
    def tow_device_list_name(self, pointer: c_void_p, number: int) -> bytes: ...
    def __getattr__(self, name: str) -> Callable[..., int]: ...


def _load() -> Library:
    path = os.environ.get("TOWLINE_LIBRARY") or SONAME
    try:
        return ctypes.CDLL(path, use_errno=True)
    except OSError as error:
        raise ImportError(f"towline: the C library is missing: {error}.  Install it (make "
                          "install), or name it in TOWLINE_LIBRARY") from None


lib = _load()


def load_compiled(name: str, variable: str, what: str, made_by: str) -> Any:
    """A compiled part of the package: the file that a variable of the environment names, or a module.

    Raises ImportError: it is missing, and how to build it.
    """
    path = os.environ.get(variable)
    try:
        if path is None:
            return importlib.import_module(name)
        loader = importlib.machinery.ExtensionFileLoader(name, path)
        spec = importlib.util.spec_from_file_location(name, path, loader=loader)
        assert spec
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
        sys.modules[name] = module
        return module
    except ImportError as error:
        raise ImportError(f"{what}: its compiled part is missing, or of another version: {error}.  Build it "
                          f"(make {made_by}), and name it in {variable}") from None


# ---- structures ----

class Sized(ctypes.Structure):
    """One that begins with its own size."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self.size = ctypes.sizeof(self)


class DeviceAttr(Sized):
    """struct tow_device_attr"""
    _fields_ = [("size", c_uint32), ("uapi_version", c_uint32), ("driver_version", c_uint32),
                ("transport", c_uint32), ("device_name", c_char * 64),
                ("incarnation", c_uint8 * 16), ("features", c_uint64), ("max_mr_size", c_uint64),
                ("max_msg_size", c_uint64), ("port", c_uint32), ("page_size", c_uint32),
                ("numa_node", c_int32), ("max_mr", c_uint32), ("max_fast_reg_pages", c_uint32),
                ("max_pd", c_uint32), ("max_qp", c_uint32), ("max_qp_wr", c_uint32),
                ("max_send_sge", c_uint32), ("max_recv_sge", c_uint32), ("max_sge_rd", c_uint32),
                ("max_cq", c_uint32), ("max_cqe", c_uint32), ("max_srq", c_uint32),
                ("max_srq_wr", c_uint32), ("max_qp_rd_atom", c_uint32),
                ("max_qp_init_rd_atom", c_uint32), ("maint_state", c_uint32),
                ("maint_error", c_int32), ("maint_rebuilds", c_uint32)]


class RegionAttr(Sized):
    """struct tow_region_attr"""
    _fields_ = [("size", c_uint32), ("flags", c_uint32), ("linger_s", c_uint32),
                ("reserved", c_uint32), ("name", c_char_p)]


class RegionInfo(Sized):
    """struct tow_region_info"""
    _fields_ = [("size", c_uint32), ("flags", c_uint32), ("handle", c_uint64), ("id", c_uint64),
                ("bytes", c_uint64), ("map_bytes", c_uint64), ("charged_bytes", c_uint64),
                ("cgroup_id", c_uint64), ("mrs", c_uint32), ("slabs", c_uint32),
                ("uid", c_uint32), ("pid", c_int32), ("linger_s", c_uint32),
                ("linger_left_ms", c_uint32), ("fds", c_uint32), ("reserved", c_uint32),
                ("name", c_char * 64), ("job_id", c_uint8 * 16)]


class PeerInfo(Sized):
    """struct tow_peer_info"""
    _fields_ = [("size", c_uint32), ("flags", c_uint32), ("peer", c_uint64),
                ("address", c_uint8 * 16), ("scope_id", c_uint32), ("port", c_uint16),
                ("reserved", c_uint16), ("incarnation", c_uint8 * 16), ("state", c_uint32),
                ("last_error", c_int32), ("epoch", c_uint32), ("qps", c_uint32),
                ("reconnects", c_uint32), ("grants", c_uint32), ("remotes", c_uint32),
                ("reserved2", c_uint32), ("messages_sent", c_uint64),
                ("messages_received", c_uint64), ("idle_ms", c_uint64)]


class ExportInfo(Sized):
    """struct tow_export_info"""
    _fields_ = [("size", c_uint32), ("flags", c_uint32), ("id", c_uint64),
                ("region_id", c_uint64), ("offset", c_uint64), ("bytes", c_uint64),
                ("rights", c_uint32), ("grants", c_uint32), ("uid", c_uint32), ("pid", c_int32),
                ("reserved", c_uint32), ("name_bytes", c_uint32), ("job_id", c_uint8 * 16),
                ("name", c_char * 256)]


class ChannelStruct(ctypes.Structure):
    """struct tow_channel"""
    _fields_ = [("queue", c_void_p), ("number", c_uint32), ("qp", c_uint32), ("qps", c_uint32)]


class QueueAttr(Sized):
    """struct tow_queue_attr"""
    _fields_ = [("size", c_uint32), ("flags", c_uint32), ("idle_us", c_uint32)]


class Name(ctypes.Structure):
    """struct tow_name"""
    _fields_ = [("user_data", c_uint64), ("peer", c_void_p), ("name", c_char_p),
                ("rights", c_uint32), ("timeout_ms", c_uint32), ("flags", c_uint32),
                ("reserved", c_uint32)]


class Node(ctypes.Structure):
    """struct tow_node"""
    _fields_ = [("user_data", c_uint64), ("address", c_char_p), ("timeout_ms", c_uint32),
                ("reserved", c_uint32)]


class QueueEvent(Sized):
    """struct tow_queue_event"""
    _fields_ = [("size", c_uint32), ("flags", c_uint32), ("peer", c_uint64), ("what", c_uint32),
                ("error", c_int32), ("state", c_uint32), ("scope_id", c_uint32),
                ("broken_ns", c_uint64), ("lost_ns", c_uint64), ("address", c_uint8 * 16),
                ("incarnation", c_uint8 * 16), ("port", c_uint16), ("reserved", c_uint16 * 3)]


class ArenaAttr(Sized):
    """struct tow_arena_attr; its functions stay NULL"""
    _fields_ = [("size", c_uint32), ("flags", c_uint32), ("region_bytes", c_uint64),
                ("limit_bytes", c_uint64), ("warn", c_void_p), ("grown", c_void_p),
                ("shrinks", c_void_p), ("data", c_void_p)]


class ArenaStats(Sized):
    """struct tow_arena_stats"""
    _fields_ = [("size", c_uint32), ("flags", c_uint32), ("in_use_bytes", c_uint64),
                ("reserved_bytes", c_uint64), ("peak_bytes", c_uint64),
                ("largest_free_bytes", c_uint64), ("regions", c_uint64),
                ("allocations", c_uint64), ("frees", c_uint64), ("failures", c_uint64),
                ("fallbacks", c_uint64), ("fallback_bytes", c_uint64), ("damaged", c_uint64),
                ("fragmentation", c_double)]


class WorldStruct(Sized):
    """struct tow_world"""
    _fields_ = [("size", c_uint32), ("rank", c_uint32), ("world_size", c_uint32),
                ("local_rank", c_uint32), ("restart", c_uint32), ("root", c_char * 256),
                ("session", c_char * 128), ("launcher", c_char_p)]


class GroupAttr(Sized):
    """struct tow_group_attr"""
    _fields_ = [("size", c_uint32), ("timeout_ms", c_uint32), ("name", c_char_p),
                ("address", c_char_p), ("gather", c_void_p), ("arg", c_void_p),
                ("status", c_int32), ("reserved", c_uint32)]


class CommAttr(Sized):
    """struct tow_comm_attr"""
    _fields_ = [("size", c_uint32), ("timeout_ms", c_uint32), ("entries", c_uint32),
                ("spin_us", c_uint32), ("flags", c_uint32), ("direct_ranks", c_uint32),
                ("direct_bytes", c_uint64), ("tree_bytes", c_uint64)]


class DType(ctypes.Structure):
    """struct tow_dtype"""
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class TensorType(ctypes.Structure):
    """struct tow_tensor_type"""
    _fields_ = [("dtype", DType), ("ndim", c_uint32), ("dims", c_int64 * DIMS_MAX)]


class CollectiveAttr(Sized):
    """struct tow_collective_attr ("in" is a word of Python's)"""
    _fields_ = [("size", c_uint32), ("kind", c_uint32), ("reduction", c_uint32),
                ("algorithm", c_uint32), ("dtype", DType), ("root", c_uint32),
                ("count", c_uint64), ("in", c_void_p), ("out", c_void_p),
                ("piece_bytes", c_uint64)]


class CollectiveStats(Sized):
    """struct tow_collective_stats"""
    _fields_ = [("size", c_uint32), ("algorithm", c_uint32), ("pieces", c_uint32),
                ("copies", c_uint32), ("calls", c_uint64), ("sent_bytes", c_uint64),
                ("copied_bytes", c_uint64), ("forwarded", c_uint64)]


class CallAttr(Sized):
    """struct tow_call_attr"""
    _fields_ = [("size", c_uint32), ("algorithm", c_uint32), ("piece_bytes", c_uint64),
                ("timeout_ms", c_uint32)]


class WorkInfo(Sized):
    """struct tow_work_info"""
    _fields_ = [("size", c_uint32), ("rank", c_uint32), ("tag", c_uint32),
                ("algorithm", c_uint32), ("bytes", c_uint64), ("piece_bytes", c_uint64)]


class CommStats(Sized):
    """struct tow_comm_stats"""
    _fields_ = [("size", c_uint32), ("reserved", c_uint32), ("calls", c_uint64),
                ("sent_bytes", c_uint64), ("eager_bytes", c_uint64), ("staged_bytes", c_uint64),
                ("copied_bytes", c_uint64)]


class WorkerAttr(Sized):
    """struct tow_worker_attr"""
    _fields_ = [("size", c_uint32), ("entries", c_uint32), ("timeout_ms", c_uint32)]


class MailboxAttr(Sized):
    """struct tow_mailbox_attr"""
    _fields_ = [("size", c_uint32), ("bytes", c_uint32), ("lines", c_uint32),
                ("backlog", c_uint32)]


class LineInfo(Sized):
    """struct tow_line_info"""
    _fields_ = [("size", c_uint32), ("status", c_int32), ("room", c_uint32),
                ("waiting", c_uint32), ("incarnation", c_uint8 * 16), ("name", c_char * 232),
                ("sent", c_uint64), ("there", c_uint64)]


class RendezvousTensor(ctypes.Structure):
    """struct tow_rendezvous_tensor"""
    _fields_ = [("key", c_char_p), ("step", c_uint64), ("status", c_int), ("type", TensorType),
                ("data", c_void_p)]


class TracerReport(Sized):
    """struct tow_tracer_report"""
    _fields_ = [("size", c_uint32), ("traced", c_uint32), ("step", c_uint64),
                ("zero_copy", c_uint64), ("zero_copy_bytes", c_uint64), ("copied", c_uint64),
                ("copied_bytes", c_uint64), ("unknown", c_uint64), ("refused", c_uint64),
                ("sites", c_uint64)]


class StoreAttr(Sized):
    """struct tow_store_attr"""
    _fields_ = [("size", c_uint32), ("optimizer", c_uint32), ("rate", c_double),
                ("momentum", c_double), ("beta1", c_double), ("beta2", c_double),
                ("epsilon", c_double)]


class PsAttr(Sized):
    """struct tow_ps_attr"""
    _fields_ = [("size", c_uint32), ("servers", c_uint32), ("staleness", c_uint32),
                ("timeout_ms", c_uint32), ("count", c_uint32), ("types", POINTER(TensorType)),
                ("store", c_void_p)]


class PsStats(Sized):
    """struct tow_ps_stats"""
    _fields_ = [("size", c_uint32), ("servers", c_uint32), ("workers", c_uint32),
                ("variables", c_uint32), ("sent_bytes", c_uint64), ("received_bytes", c_uint64),
                ("copied_bytes", c_uint64), ("waited_ns", c_uint64), ("updates", c_uint64)]


class FeedAttr(Sized):
    """struct tow_feed_attr"""
    _fields_ = [("size", c_uint32), ("depth", c_uint32), ("timeout_ms", c_uint32),
                ("count", c_uint32), ("types", POINTER(TensorType)), ("step", c_uint64)]


class FeedWorkerStruct(Sized):
    """struct tow_feed_worker"""
    _fields_ = [("size", c_uint32), ("state", c_uint32), ("step", c_uint64), ("sent", c_uint64),
                ("done", c_uint64), ("silent_us", c_uint64)]


class FeedStats(Sized):
    """struct tow_feed_stats"""
    _fields_ = [("size", c_uint32), ("workers", c_uint32), ("batches", c_uint64),
                ("bytes", c_uint64), ("copied_bytes", c_uint64), ("waited_ns", c_uint64)]


class GraphNode(ctypes.Structure):
    """struct tow_graph_node"""
    _fields_ = [("rank", c_uint32), ("reserved", c_uint32)]


class GraphEdge(ctypes.Structure):
    """struct tow_graph_edge ("from" is a word of Python's)"""
    _fields_ = [("from", c_uint32), ("output", c_uint32), ("to", c_uint32), ("slots", c_uint32),
                ("flags", c_uint32), ("reserved", c_uint32), ("type", TensorType),
                ("most", c_int64 * DIMS_MAX)]


class PlanAttr(Sized):
    """struct tow_plan_attr"""
    _fields_ = [("size", c_uint32), ("flags", c_uint32), ("ranks", c_uint32), ("slots", c_uint32),
                ("node_count", c_uint32), ("edge_count", c_uint32), ("nodes", POINTER(GraphNode)),
                ("edges", POINTER(GraphEdge))]


class PlanEdge(Sized):
    """struct tow_plan_edge"""
    _fields_ = [("size", c_uint32), ("kind", c_uint32), ("from_rank", c_uint32),
                ("to_rank", c_uint32), ("edge", c_uint32), ("edges", c_uint32),
                ("first", c_uint32), ("last", c_uint32), ("slots", c_uint32), ("steps", c_uint32),
                ("after", c_uint32), ("flags", c_uint32), ("type", TensorType),
                ("tensor_bytes", c_uint64), ("stride", c_uint64), ("offset", c_uint64),
                ("bytes", c_uint64), ("tensors_offset", c_uint64), ("tensors_bytes", c_uint64),
                ("credit_offset", c_uint64), ("send_offset", c_uint64), ("send_bytes", c_uint64)]


class PlanRank(Sized):
    """struct tow_plan_rank"""
    _fields_ = [("size", c_uint32), ("nodes", c_uint32), ("receives", c_uint32),
                ("sends", c_uint32), ("peers", c_uint32), ("exports", c_uint32),
                ("registrations", c_uint32), ("reserved", c_uint32), ("region_bytes", c_uint64),
                ("receive_bytes", c_uint64), ("send_bytes", c_uint64), ("pool_bytes", c_uint64)]


STRUCTURES = {(cls.__doc__ or "").split()[1].rstrip(";"): cls for cls in (
    DeviceAttr, RegionAttr, RegionInfo, PeerInfo, ExportInfo, ChannelStruct, QueueAttr, Name, Node,
    QueueEvent,
    ArenaAttr, ArenaStats, WorldStruct, GroupAttr, CommAttr,
    DType, TensorType, CollectiveAttr, CollectiveStats, CallAttr, CommStats, WorkerAttr,
    MailboxAttr, LineInfo, RendezvousTensor, TracerReport, StoreAttr, PsAttr, PsStats, FeedAttr,
    FeedWorkerStruct, FeedStats, GraphNode, GraphEdge, PlanAttr, PlanEdge, PlanRank)}

# ---- functions ----

Callback = Callable[[Callable[..., Any]], Any]
EDGE_DONE: Callback = ctypes.CFUNCTYPE(None, c_void_p, c_uint64, c_int)
EDGE_CAME: Callback = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_int)
MAILBOX_NEWS: Callback = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_uint32)
RENDEZVOUS_GOT: Callback = ctypes.CFUNCTYPE(None, c_void_p, POINTER(RendezvousTensor))
GROUP_GATHER = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t, c_void_p)
ON_SIGNAL = ctypes.CFUNCTYPE(c_int, c_void_p)
FEED_FILL = ctypes.CFUNCTYPE(c_int, c_void_p, c_uint32, c_uint64, POINTER(c_void_p))

_P = c_void_p               # a handle
_O = POINTER(c_void_p)      # where one is stored
_U = POINTER(c_uint32)
_T = POINTER(TensorType)
_A = POINTER(CallAttr)

# What each returns, and takes.
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "tow_strerror": (c_char_p, [c_int]),
    "tow_on_signal": (c_int, [_P, _P]),
    "tow_device_list_get": (c_int, [_O]),
    "tow_device_list_count": (c_size_t, [_P]),
    "tow_device_list_name": (c_char_p, [_P, c_size_t]),
    "tow_device_list_free": (None, [_P]),
    "tow_device_open": (c_int, [c_char_p, c_uint32, _O]),
    "tow_device_close": (None, [_P]),
    "tow_device_query": (c_int, [_P, POINTER(DeviceAttr)]),
    "tow_job_join": (c_int, [_P, c_char_p]),
    "tow_region_create": (c_int, [_P, c_uint64, POINTER(RegionAttr), _O]),
    "tow_region_attach": (c_int, [_P, c_char_p, c_uint32, _O]),
    "tow_region_destroy": (c_int, [_P]),
    "tow_region_release": (None, [_P]),
    "tow_region_map": (c_int, [_P, c_uint64, c_size_t, c_int, _O]),
    "tow_region_info": (c_int, [_P, POINTER(RegionInfo)]),
    "tow_region_from_memory": (c_int, [_P, _P, c_uint64, c_uint32, _O]),
    "tow_region_from_dmabuf": (c_int, [_P, c_int, c_uint64, c_uint64, c_uint32, _O]),
    "tow_region_from_fd": (c_int, [_P, c_int, _O]),
    "tow_region_fd": (c_int, [_P, c_uint32, POINTER(c_int)]),
    "tow_region_find": (c_int, [_P, _P, _O, POINTER(c_uint64), POINTER(c_uint64)]),
    "tow_region_list_get": (c_int, [_P, c_uint32, _O]),
    "tow_region_list_count": (c_size_t, [_P]),
    "tow_region_list_entry": (c_int, [_P, c_size_t, POINTER(RegionInfo)]),
    "tow_region_list_free": (None, [_P]),
    "tow_export": (c_int, [_P, c_uint64, c_uint64, c_char_p, c_uint32, _O]),
    "tow_unexport": (c_int, [_P]),
    "tow_export_list_get": (c_int, [_P, c_uint32, _O]),
    "tow_export_list_count": (c_size_t, [_P]),
    "tow_export_list_entry": (c_int, [_P, c_size_t, POINTER(ExportInfo)]),
    "tow_export_list_free": (None, [_P]),
    "tow_resolve": (c_int, [_P, c_char_p, c_uint32, c_uint32, _O]),
    "tow_remote_bytes": (c_uint64, [_P]),
    "tow_remote_release": (c_int, [_P]),
    "tow_peer_find": (c_int, [_P, c_char_p, _O]),
    "tow_peer_info": (c_int, [_P, POINTER(PeerInfo)]),
    "tow_peer_list_get": (c_int, [_P, c_uint32, _O]),
    "tow_peer_list_count": (c_size_t, [_P]),
    "tow_peer_list_entry": (c_int, [_P, c_size_t, POINTER(PeerInfo)]),
    "tow_peer_list_free": (None, [_P]),
    "tow_peer_connect": (c_int, [_P, c_char_p, _P, c_uint32, _O]),
    "tow_peer_release": (None, [_P]),
    "tow_queue_create": (c_int, [_P, c_uint32, c_uint32, _O]),
    "tow_queue_create_with": (c_int, [_P, c_uint32, c_uint32, POINTER(QueueAttr), _O]),
    "tow_queue_destroy": (None, [_P]),
    "tow_queue_fd": (c_int, [_P]),
    "tow_queue_submit": (c_int, [_P]),
    "tow_queue_enter": (c_int, [_P, c_uint32, c_uint32, c_uint32]),
    "tow_queue_resolve": (c_int, [_P, POINTER(Name), c_uint32]),
    "tow_queue_found": (c_int, [_P, _P, _O]),
    "tow_queue_connect": (c_int, [_P, POINTER(Node), c_uint32]),
    "tow_queue_connected": (c_int, [_P, _P, _O]),
    "tow_queue_event": (c_int, [_P, POINTER(QueueEvent)]),
    "tow_slot_create": (c_int, [_P, c_uint64, c_char_p, _O]),
    "tow_slot_destroy": (c_int, [_P]),
    "tow_channel_get": (c_int, [_P, _P, c_uint32, POINTER(POINTER(ChannelStruct))]),
    "tow_channel_put": (c_int, [POINTER(ChannelStruct)]),
    "tow_arena_create": (c_int, [_P, POINTER(ArenaAttr), _O]),
    "tow_arena_destroy": (c_int, [_P]),
    "tow_arena_adopt": (c_int, [_P, _P]),
    "tow_arena_alloc": (_P, [_P, c_size_t]),
    "tow_arena_free": (c_int, [_P, _P]),
    "tow_arena_find": (c_int, [_P, _P, _O, POINTER(c_uint64)]),
    "tow_arena_trim": (c_uint64, [_P, c_uint64]),
    "tow_arena_stats": (c_int, [_P, POINTER(ArenaStats)]),
    "tow_world_detect": (c_int, [POINTER(WorldStruct), POINTER(c_char_p)]),
    "tow_group_create": (c_int, [_P, POINTER(WorldStruct), POINTER(GroupAttr), _O, _U]),
    "tow_group_destroy": (None, [_P]),
    "tow_group_gather": (c_int, [_P, c_char_p, c_size_t, _P, _U]),
    "tow_group_peer": (c_int, [_P, c_uint32, _O]),
    "tow_comm_create": (c_int, [_P, _P, POINTER(CommAttr), _O, _U]),
    "tow_comm_split": (c_int, [_P, _U, c_uint32, c_uint64, POINTER(CommAttr), _O]),
    "tow_comm_destroy": (c_int, [_P]),
    "tow_comm_error": (c_int, [_P, _U]),
    "tow_comm_waited": (c_int, [_P, POINTER(c_uint64), c_uint32]),
    "tow_calls_begin": (c_int, [_P]),
    "tow_calls_end": (c_int, [_P]),
    "tow_collective_create": (c_int, [_P, POINTER(CollectiveAttr), _O, _U]),
    "tow_collective_destroy": (None, [_P]),
    "tow_collective_start": (c_int, [_P]),
    "tow_collective_test": (c_int, [_P, _U]),
    "tow_collective_wait_for": (c_int, [_P, c_uint32, _U]),
    "tow_collective_late": (c_int, [_P, _U]),
    "tow_collective_stats": (c_int, [_P, POINTER(CollectiveStats)]),
    "tow_allreduce": (c_int, [_P, _P, _P, c_uint64, DType, c_uint32, _A, _O]),
    "tow_reduce_scatter": (c_int, [_P, _P, _P, c_uint64, DType, c_uint32, _A, _O]),
    "tow_allgather": (c_int, [_P, _P, _P, c_uint64, DType, _A, _O]),
    "tow_broadcast": (c_int, [_P, _P, c_uint64, DType, c_uint32, _A, _O]),
    "tow_reduce": (c_int, [_P, _P, _P, c_uint64, DType, c_uint32, c_uint32, _A, _O]),
    "tow_barrier": (c_int, [_P, _A, _O]),
    "tow_send": (c_int, [_P, _P, c_uint64, DType, c_uint32, c_uint32, _A, _O]),
    "tow_receive": (c_int, [_P, _P, c_uint64, DType, c_uint32, c_uint32, _A, _O]),
    "tow_work_info": (c_int, [_P, POINTER(WorkInfo)]),
    "tow_work_wait": (c_int, [_P, c_uint32, _U]),
    "tow_work_free": (None, [_P]),
    "tow_comm_abort": (c_int, [_P]),
    "tow_comm_stats": (c_int, [_P, POINTER(CommStats)]),
    "tow_worker_create": (c_int, [_P, _P, POINTER(WorkerAttr), _O]),
    "tow_worker_destroy": (c_int, [_P]),
    "tow_worker_fd": (c_int, [_P]),
    "tow_worker_progress": (c_int, [_P, c_uint32]),
    "tow_worker_copied": (c_uint64, [_P]),
    "tow_mailbox_create": (c_int, [_P, c_char_p, POINTER(MailboxAttr), _O]),
    "tow_mailbox_destroy": (c_int, [_P]),
    "tow_mailbox_connect": (c_int, [_P, _P, c_char_p, c_uint32, _O]),
    "tow_mailbox_accept": (c_int, [_P, _O]),
    "tow_mailbox_info": (c_int, [_P, POINTER(LineInfo)]),
    "tow_mailbox_send": (c_int, [_P, c_char_p, c_uint32]),
    "tow_mailbox_receive": (c_int, [_P, _P, c_uint32, _U]),
    "tow_mailbox_watch": (c_int, [_P, MAILBOX_NEWS, _P]),
    "tow_mailbox_wait": (c_int, [_P, _P, c_uint32, c_uint32]),
    "tow_mailbox_close": (c_int, [_P]),
    "tow_tensor_bytes": (c_int, [_T, POINTER(c_uint64)]),
    "tow_static_bytes": (c_int, [_T, c_uint32, POINTER(c_uint64)]),
    "tow_static_receiver": (c_int, [_P, _P, c_char_p, _T, c_uint32, _O]),
    "tow_static_receiver_in": (c_int, [_P, _P, c_char_p, _T, c_uint32, _P, _O]),
    "tow_static_sender": (c_int, [_P, _P, c_char_p, _T, _O]),
    "tow_dynamic_receiver": (c_int, [_P, _P, c_char_p, c_uint32, _O]),
    "tow_dynamic_sender": (c_int, [_P, _P, c_char_p, _O]),
    "tow_rendezvous_receiver": (c_int, [_P, _P, c_char_p, c_uint32, _O]),
    "tow_rendezvous_sender": (c_int, [_P, _P, c_char_p, c_uint32, _O]),
    "tow_edge_connect": (c_int, [_P, c_uint32]),
    "tow_edge_send": (c_int, [_P, _P, EDGE_DONE, _P]),
    "tow_dynamic_send": (c_int, [_P, _T, _P, EDGE_DONE, _P]),
    "tow_rendezvous_put": (c_int, [_P, c_char_p, c_uint64, _T, _P, c_uint32, EDGE_DONE, _P]),
    "tow_rendezvous_fail": (c_int, [_P, c_char_p, c_uint64, c_int]),
    "tow_rendezvous_get": (c_int, [_P, c_char_p, c_uint64, RENDEZVOUS_GOT, _P]),
    "tow_rendezvous_cancel": (c_int, [_P, c_char_p, c_uint64]),
    "tow_edge_pending": (c_uint32, [_P]),
    "tow_edge_test": (c_int, [_P, _O, POINTER(c_uint64)]),
    "tow_edge_wait": (c_int, [_P, c_uint32, _O, POINTER(c_uint64)]),
    "tow_edge_next": (c_int, [_P, POINTER(c_uint64)]),
    "tow_edge_type": (c_int, [_P, _T]),
    "tow_edge_take": (c_int, [_P, _O]),
    "tow_edge_watch": (c_int, [_P, EDGE_CAME, _P]),
    "tow_edge_consumed": (c_int, [_P]),
    "tow_edge_close": (c_int, [_P]),
    "tow_tracer_create": (c_int, [_P, _O]),
    "tow_tracer_destroy": (None, [_P]),
    "tow_tracer_node": (c_int, [_P, c_char_p, _U]),
    "tow_tracer_step_begin": (c_int, [_P]),
    "tow_tracer_step_end": (c_int, [_P]),
    "tow_tracer_node_begin": (c_int, [_P, c_uint32]),
    "tow_tracer_transferred": (c_int, [_P, _P, c_size_t]),
    "tow_tracer_report": (c_int, [_P, POINTER(TracerReport)]),
    "tow_tracer_save": (c_int, [_P, c_char_p]),
    "tow_tracer_load": (c_int, [_P, c_char_p]),
    "tow_store_create": (c_int, [_P, POINTER(StoreAttr), _T, POINTER(c_void_p), c_uint32, _O]),
    "tow_store_destroy": (c_int, [_P]),
    "tow_store_value": (_P, [_P, c_uint32]),
    "tow_store_update": (c_int, [_P, c_uint32, POINTER(c_void_p), c_uint32]),
    "tow_store_updates": (c_uint64, [_P, c_uint32]),
    "tow_ps_create": (c_int, [_P, _P, POINTER(PsAttr), _O, _U]),
    "tow_ps_leave": (None, [_P]),
    "tow_ps_destroy": (None, [_P]),
    "tow_ps_serve": (c_int, [_P, c_uint32, _U]),
    "tow_ps_push": (c_int, [_P, c_uint32, _P]),
    "tow_ps_wait": (c_int, [_P, c_uint32, _U]),
    "tow_ps_value": (_P, [_P, c_uint32]),
    "tow_ps_step": (c_uint64, [_P]),
    "tow_ps_stats": (c_int, [_P, POINTER(PsStats)]),
    "tow_feed_create": (c_int, [_P, _P, POINTER(FeedAttr), _O, _U]),
    "tow_feed_leave": (None, [_P]),
    "tow_feed_destroy": (None, [_P]),
    "tow_feed_step": (c_uint64, [_P]),
    "tow_feed_serve": (c_int, [_P, FEED_FILL, _P, c_uint32, _U]),
    "tow_feed_next": (c_int, [_P, POINTER(POINTER(c_void_p)), _U]),
    "tow_feed_worker": (c_int, [_P, c_uint32, POINTER(FeedWorkerStruct)]),
    "tow_feed_stats": (c_int, [_P, POINTER(FeedStats)]),
    "tow_plan_create": (c_int, [POINTER(PlanAttr), _O, _U, _U]),
    "tow_plan_destroy": (None, [_P]),
    "tow_plan_edge_count": (c_uint32, [_P]),
    "tow_plan_edge_info": (c_int, [_P, c_uint32, POINTER(PlanEdge)]),
    "tow_plan_edge_of": (c_uint32, [_P, c_uint32]),
    "tow_plan_rank_info": (c_int, [_P, c_uint32, POINTER(PlanRank)]),
    "tow_numpy_create": (c_int, [_P, _P, _O]),
    "tow_numpy_retire": (c_int, [_P]),
    "tow_numpy_node": (c_uint32, [_P, c_uint32]),
    "tow_numpy_malloc": (_P, [_P, c_size_t]),
    "tow_numpy_calloc": (_P, [_P, c_size_t, c_size_t]),
    "tow_numpy_realloc": (_P, [_P, _P, c_size_t]),
    "tow_numpy_free": (None, [_P, _P, c_size_t]),
}

# What of the library is not bound, and why.
UNBOUND = {
    "tow_arena_aligned": "Arena.empty() aligns to 64 bytes",
    "tow_arena_check": "each array is looked at as it dies",
    "tow_arena_realloc": "an array has its size for good",
    "tow_arena_usable": "as before",
    "tow_arena_zeroed": "Arena.zeros() writes zeroes",
    "tow_collective_wait": "tow_collective_wait_for() has a time-out",
    "tow_edge_arm": "tow_edge_watch() calls",
    "tow_group_rank": "World says it",
    "tow_group_size": "as before",
    "tow_memcpy": "a queue is used by entries, or by this",
    "tow_numpy_destroy": "NumPy may have a handler for ever",
    "tow_peer_disconnect": "it is everybody's: an administrator's call (towline peers)",
    "tow_queue_progress": "tow_memcpy()'s",
    "tow_queue_submit_and_wait": "_ring.c submits, and waits by tow_queue_enter()",
    "tow_queue_submit_room": "as before",
    "tow_region_unmap": "arrays may use the mapping until the region ends",
    "tow_rendezvous_wait": "tow_rendezvous_get(), and the worker is driven",
    "tow_tracer_alloc": "NumPy allocates by tow_numpy_malloc()",
    "tow_tracer_allocated": "as before",
    "tow_tracer_free": "as before",
    "tow_tracer_freed": "as before",
    "tow_work_fd": "it says nothing while nobody goes on with the communicator",
    "tow_work_test": "tow_work_wait() for no time",
}


def _bind() -> None:
    for name, (result, arguments) in FUNCTIONS.items():
        try:
            function = getattr(lib, name)
        except AttributeError:
            raise ImportError(f"towline: the C library has no {name}(): it is older than this "
                              "package") from None
        function.restype, function.argtypes = result, arguments


_bind()


# ---- errors ----

class Error(OSError):
    """What a function of libtowline returned.

    errno: the error's number, as tow_strerror(3) lists them.
    strerror: what was asked for, and what the error means.
    blamed: the rank that is to blame, or None.
    """

    def __init__(self, number: int, what: str = "", blamed: int | None = None) -> None:
        text = lib.tow_strerror(-number).decode()
        if what:
            text = f"{what}: {text}"
        if blamed is not None:
            text += f"; rank {blamed} is to blame"
        super().__init__(number, text)
        self.what = what
        self.blamed = blamed

    def __reduce__(self) -> Any:
        return type(self), (self.errno, self.what, self.blamed)


class Timeout(Error, TimeoutError):
    """Nothing came in time (ETIMEDOUT)."""


def failure(result: int, what: str, blamed: int | None = None) -> Error:
    """The exception for a negative errno."""
    if blamed == NO_RANK:
        blamed = None
    kind = Timeout if result == -errno.ETIMEDOUT else Error
    return kind(-result, what, blamed)


def check(result: int, what: str) -> int:
    """A result that is no error."""
    if result < 0:
        raise failure(result, what)
    return result


# ---- lists ----

def listed(kind: str, structure: Any, pointer: Any, flags: int = 0) -> list[Any]:
    """What tow_KIND_list_get() and its like say."""
    count, entry, free = (getattr(lib, f"tow_{kind}_list_{end}") for end in ("count", "entry", "free"))
    found = c_void_p()
    check(getattr(lib, f"tow_{kind}_list_get")(pointer, flags, found), f"listing {kind}s")
    try:
        every = [structure() for _ in range(count(found))]
        for number, one in enumerate(every):
            check(entry(found, number, one), f"listing {kind}s")
        return every
    finally:
        free(found)


# ---- time ----

def milliseconds(seconds: float | None, forever: int = FOREVER) -> int:
    """For functions to which 0 means something else: at least 1; None is @forever."""
    if seconds is None:
        return forever
    if not seconds >= 0:
        raise ValueError("a time is 0 or more seconds, or None")
    if seconds * 1000 >= FOREVER:
        return forever
    return max(1, math.ceil(seconds * 1000))


class Deadline:
    """Until when to wait: so many seconds from now; None: for ever."""

    def __init__(self, seconds: float | None) -> None:
        if seconds is not None and not seconds >= 0:
            raise ValueError("a time is 0 or more seconds, or None")
        self.end = math.inf if seconds is None else time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds."""
        return max(0.0, self.end - time.monotonic())

    @property
    def seconds(self) -> float | None:
        """As a time-out: None: for ever."""
        return None if self.end == math.inf else self.left

    @property
    def over(self) -> bool:
        """Is it?"""
        return time.monotonic() >= self.end

    def slice_us(self, longest: float = SLICE_S) -> int:
        """How long one call may wait now, in microseconds."""
        return math.ceil(min(self.left, longest) * 1e6)
