/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tracepoints, in /sys/kernel/tracing/events/towline/.
 *
 * Names are copied: an RDMA device may be renamed, and may be gone when the
 * trace is read.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM towline

#if !defined(TOW_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define TOW_TRACE_H

#include <linux/string.h>
#include <linux/tracepoint.h>

#include "core/core.h"

/* Only tracepoints.c knows these structures. */
struct tow_chunk;
struct tow_req;
struct tow_exported;
struct tow_peer;
struct tow_queue;
struct tow_region;
struct tow_session;
struct tow_slab;

TRACE_DEFINE_ENUM(TOW_MAINT_WAITING);
TRACE_DEFINE_ENUM(TOW_MAINT_CONNECTING);
TRACE_DEFINE_ENUM(TOW_MAINT_READY);
TRACE_DEFINE_ENUM(TOW_MAINT_FAILED);

#define tow_show_maint_state(state)				\
	__print_symbolic(state,					\
		{ TOW_MAINT_WAITING,	"WAITING" },		\
		{ TOW_MAINT_CONNECTING,	"CONNECTING" },		\
		{ TOW_MAINT_READY,	"READY" },		\
		{ TOW_MAINT_FAILED,	"FAILED" })

DECLARE_EVENT_CLASS(tow_device,
		    TP_PROTO(struct tow_device *dev),
		    TP_ARGS(dev),
		    TP_STRUCT__entry(__array(char, name, TOW_DEVICE_NAME_MAX)
				     __array(u8, incarnation, TOW_INCARNATION_BYTES)
		    ),
		    TP_fast_assign(tow_device_name(dev, __entry->name);
				   memcpy(__entry->incarnation, dev->incarnation,
					  TOW_INCARNATION_BYTES);
		    ),
		    TP_printk("%s incarnation=%s", __entry->name,
			      __print_hex_str(__entry->incarnation, TOW_INCARNATION_BYTES))
);

/* The device can be opened. */
DEFINE_EVENT(tow_device, tow_device_add,
	     TP_PROTO(struct tow_device *dev),
	     TP_ARGS(dev)
);

/* Nothing of the device is left on the hardware. */
DEFINE_EVENT(tow_device, tow_device_remove,
	     TP_PROTO(struct tow_device *dev),
	     TP_ARGS(dev)
);

/* towline cannot use this RDMA device. */
TRACE_EVENT(tow_device_skip,
	    TP_PROTO(struct ib_device *ibdev, const char *reason),
	    TP_ARGS(ibdev, reason),
	    TP_STRUCT__entry(__array(char, name, TOW_DEVICE_NAME_MAX)
			     __array(char, reason, 80)
	    ),
	    TP_fast_assign(strscpy(__entry->name, dev_name(&ibdev->dev),
				   TOW_DEVICE_NAME_MAX);
			   strscpy(__entry->reason, reason, 80);
	    ),
	    TP_printk("%s reason=\"%s\"", __entry->name, __entry->reason)
);

DECLARE_EVENT_CLASS(tow_device_error,
		    TP_PROTO(struct tow_device *dev, int error),
		    TP_ARGS(dev, error),
		    TP_STRUCT__entry(__array(char, name, TOW_DEVICE_NAME_MAX)
				     __field(int, error)
		    ),
		    TP_fast_assign(tow_device_name(dev, __entry->name);
				   __entry->error = error;
		    ),
		    TP_printk("%s error=%d", __entry->name, __entry->error)
);

/* open() with its result; error is 0 or a negative errno. */
DEFINE_EVENT(tow_device_error, tow_client_open,
	     TP_PROTO(struct tow_device *dev, int error),
	     TP_ARGS(dev, error)
);

/* The last close of an open file. */
TRACE_EVENT(tow_client_close,
	    TP_PROTO(struct tow_device *dev),
	    TP_ARGS(dev),
	    TP_STRUCT__entry(__array(char, name, TOW_DEVICE_NAME_MAX)
	    ),
	    TP_fast_assign(tow_device_name(dev, __entry->name);
	    ),
	    TP_printk("%s", __entry->name)
);

/* A call with its result. */
TRACE_EVENT(tow_ioctl,
	    TP_PROTO(struct tow_device *dev, unsigned int cmd, long result),
	    TP_ARGS(dev, cmd, result),
	    TP_STRUCT__entry(__array(char, name, TOW_DEVICE_NAME_MAX)
			     __field(unsigned int, cmd)
			     __field(long, result)
	    ),
	    TP_fast_assign(tow_device_name(dev, __entry->name);
			   __entry->cmd = cmd;
			   __entry->result = result;
	    ),
	    TP_printk("%s cmd=0x%08x result=%ld", __entry->name, __entry->cmd,
		      __entry->result)
);

/* The maintenance queue pair goes from one state to another. */
TRACE_EVENT(tow_maint_state,
	    TP_PROTO(struct tow_device *dev, enum tow_maint_state from,
		     enum tow_maint_state to, int error),
	    TP_ARGS(dev, from, to, error),
	    TP_STRUCT__entry(__array(char, name, TOW_DEVICE_NAME_MAX)
			     __field(int, from)
			     __field(int, to)
			     __field(int, error)
	    ),
	    TP_fast_assign(tow_device_name(dev, __entry->name);
			   __entry->from = from;
			   __entry->to = to;
			   __entry->error = error;
	    ),
	    TP_printk("%s %s -> %s error=%d", __entry->name,
		      tow_show_maint_state(__entry->from),
		      tow_show_maint_state(__entry->to), __entry->error)
);

/* A chunk of memory was taken from the machine. */
TRACE_EVENT(tow_chunk_alloc,
	    TP_PROTO(struct tow_device *dev, struct tow_chunk *chunk),
	    TP_ARGS(dev, chunk),
	    TP_STRUCT__entry(__array(char, name, TOW_DEVICE_NAME_MAX)
			     __field(unsigned long, pfn)
			     __field(u64, bytes)
	    ),
	    TP_fast_assign(tow_device_name(dev, __entry->name);
			   __entry->pfn = page_to_pfn(chunk->page);
			   __entry->bytes = chunk->bytes;
	    ),
	    TP_printk("%s pfn=0x%lx bytes=%llu", __entry->name, __entry->pfn,
		      __entry->bytes)
);

DECLARE_EVENT_CLASS(tow_slab,
		    TP_PROTO(struct tow_slab *slab),
		    TP_ARGS(slab),
		    TP_STRUCT__entry(__array(char, name, TOW_DEVICE_NAME_MAX)
				     __field(const void *, slab)
				     __field(u64, bytes)
				     __field(unsigned int, chunks)
		    ),
		    TP_fast_assign(tow_device_name(slab->dev, __entry->name);
				   __entry->slab = slab;
				   __entry->bytes = slab->bytes;
				   __entry->chunks = slab->chunk_count;
		    ),
		    TP_printk("%s slab=%p bytes=%llu chunks=%u", __entry->name,
			      __entry->slab, __entry->bytes, __entry->chunks)
);

/* The pool has one more slab. */
DEFINE_EVENT(tow_slab, tow_slab_make,
	     TP_PROTO(struct tow_slab *slab),
	     TP_ARGS(slab)
);

/* The slab's memory goes back to the machine. */
DEFINE_EVENT(tow_slab, tow_slab_free,
	     TP_PROTO(struct tow_slab *slab),
	     TP_ARGS(slab)
);

/* The slab's region has ended, and its pages are in use elsewhere. */
DEFINE_EVENT(tow_slab, tow_slab_held,
	     TP_PROTO(struct tow_slab *slab),
	     TP_ARGS(slab)
);

DECLARE_EVENT_CLASS(tow_mr,
		    TP_PROTO(struct tow_slab *slab, int rights, int error),
		    TP_ARGS(slab, rights, error),
		    TP_STRUCT__entry(__array(char, name, TOW_DEVICE_NAME_MAX)
				     __field(const void *, slab)
				     __field(int, rights)
				     __field(int, error)
		    ),
		    TP_fast_assign(tow_device_name(slab->dev, __entry->name);
				   __entry->slab = slab;
				   __entry->rights = rights;
				   __entry->error = error;
		    ),
		    TP_printk("%s slab=%p rights=%s error=%d", __entry->name,
			      __entry->slab,
			      __entry->rights ? "WRITE" : "READ",
			      __entry->error)
);

/* Peers with the key reach the slab; error is 0 or a negative errno. */
DEFINE_EVENT(tow_mr, tow_mr_register,
	     TP_PROTO(struct tow_slab *slab, int rights, int error),
	     TP_ARGS(slab, rights, error)
);

/* The slab's key was invalidated; error is 0 or a negative errno. */
DEFINE_EVENT(tow_mr, tow_mr_invalidate,
	     TP_PROTO(struct tow_slab *slab, int rights, int error),
	     TP_ARGS(slab, rights, error)
);

DECLARE_EVENT_CLASS(tow_region,
		    TP_PROTO(struct tow_region *region),
		    TP_ARGS(region),
		    TP_STRUCT__entry(__array(char, name, TOW_DEVICE_NAME_MAX)
				     __field(u64, id)
				     __field(u64, bytes)
				     __field(u32, flags)
		    ),
		    TP_fast_assign(tow_device_name(region->dev, __entry->name);
				   __entry->id = region->id;
				   __entry->bytes = region->bytes;
				   __entry->flags = region->flags;
		    ),
		    TP_printk("%s id=%llu bytes=%llu flags=0x%x",
			      __entry->name, __entry->id, __entry->bytes,
			      __entry->flags)
);

/* A client has made a region. */
DEFINE_EVENT(tow_region, tow_region_create,
	     TP_PROTO(struct tow_region *region),
	     TP_ARGS(region)
);

/* The region's client has ended; the region waits for another client. */
DEFINE_EVENT(tow_region, tow_region_linger,
	     TP_PROTO(struct tow_region *region),
	     TP_ARGS(region)
);

/* Another client has taken the region over. */
DEFINE_EVENT(tow_region, tow_region_take_over,
	     TP_PROTO(struct tow_region *region),
	     TP_ARGS(region)
);

/* The region has ended. */
DEFINE_EVENT(tow_region, tow_region_end,
	     TP_PROTO(struct tow_region *region),
	     TP_ARGS(region)
);

/* A charge was refused: the limit's file, and the amount asked for. */
TRACE_EVENT(tow_limit,
	    TP_PROTO(struct tow_device *dev, const char *file, u64 used,
		     u64 max, u64 amount),
	    TP_ARGS(dev, file, used, max, amount),
	    TP_STRUCT__entry(__array(char, name, TOW_DEVICE_NAME_MAX)
			     __array(char, file, 32)
			     __field(u64, used)
			     __field(u64, max)
			     __field(u64, amount)
	    ),
	    TP_fast_assign(tow_device_name(dev, __entry->name);
			   strscpy(__entry->file, file, 32);
			   __entry->used = used;
			   __entry->max = max;
			   __entry->amount = amount;
	    ),
	    TP_printk("%s %s used=%llu max=%llu amount=%llu", __entry->name,
		      __entry->file, __entry->used, __entry->max,
		      __entry->amount)
);

/* ---- peers ---------------------------------------------------------------- */

/* A peer goes from one state to another: enum tow_peer_state. */
TRACE_EVENT(tow_peer_state,
	    TP_PROTO(struct tow_peer *peer, int from, int to),
	    TP_ARGS(peer, from, to),
	    TP_STRUCT__entry(__array(char, name, TOW_DEVICE_NAME_MAX)
			     __field(u64, peer)
			     __field(int, from)
			     __field(int, to)
	    ),
	    TP_fast_assign(tow_device_name(peer->dev, __entry->name);
			   __entry->peer = peer->id;
			   __entry->from = from;
			   __entry->to = to;
	    ),
	    TP_printk("%s peer=%llu from=%d to=%d", __entry->name,
		      __entry->peer, __entry->from, __entry->to)
);

/* An event of a session that has no peer yet. */
TRACE_EVENT(tow_session,
	    TP_PROTO(struct tow_session *session, const char *stage,
		     u64 subject, int error),
	    TP_ARGS(session, stage, subject, error),
	    TP_STRUCT__entry(__array(char, name, TOW_DEVICE_NAME_MAX)
			     __array(char, stage, 64)
			     __field(u64, session)
			     __field(u64, subject)
			     __field(int, error)
	    ),
	    TP_fast_assign(tow_device_name(session->dev, __entry->name);
			   strscpy(__entry->stage, stage, 64);
			   __entry->session = session->index;
			   __entry->subject = subject;
			   __entry->error = error;
	    ),
	    TP_printk("%s session=%llu stage=\"%s\" subject=%llu error=%d",
		      __entry->name, __entry->session, __entry->stage,
		      __entry->subject, __entry->error)
);

/* A control message: enum tow_wire_type. */
TRACE_EVENT(tow_message,
	    TP_PROTO(struct tow_session *session, bool sent, u8 type,
		     u32 request, u32 bytes),
	    TP_ARGS(session, sent, type, request, bytes),
	    TP_STRUCT__entry(__array(char, name, TOW_DEVICE_NAME_MAX)
			     __field(u64, session)
			     __field(bool, sent)
			     __field(u8, type)
			     __field(u32, request)
			     __field(u32, bytes)
	    ),
	    TP_fast_assign(tow_device_name(session->dev, __entry->name);
			   __entry->session = session->index;
			   __entry->sent = sent;
			   __entry->type = type;
			   __entry->request = request;
			   __entry->bytes = bytes;
	    ),
	    TP_printk("%s session=%llu %s type=%u request=%u bytes=%u",
		      __entry->name, __entry->session,
		      __entry->sent ? "sent" : "received", __entry->type,
		      __entry->request, __entry->bytes)
);

/* A connection from outside was refused. */
DEFINE_EVENT(tow_device_error, tow_refused,
	     TP_PROTO(struct tow_device *dev, int error),
	     TP_ARGS(dev, error)
);

/* ---- auth, recorder ------------------------------------------------------- */

/* An event in a peer's flight recorder; error is 0 or a negative errno. */
TRACE_EVENT(tow_peer_event,
	    TP_PROTO(struct tow_recorder *recorder, u32 epoch,
		     const char *stage, u64 subject, int error),
	    TP_ARGS(recorder, epoch, stage, subject, error),
	    TP_STRUCT__entry(__array(char, name, TOW_DEVICE_NAME_MAX)
			     __array(char, stage, 64)
			     __field(u64, peer)
			     __field(u64, subject)
			     __field(u32, epoch)
			     __field(int, error)
	    ),
	    TP_fast_assign(tow_device_name(recorder->dev, __entry->name);
			   strscpy(__entry->stage, stage, 64);
			   __entry->peer = recorder->peer;
			   __entry->subject = subject;
			   __entry->epoch = epoch;
			   __entry->error = error;
	    ),
	    TP_printk("%s peer=%llu epoch=%u stage=\"%s\" subject=%llu error=%d",
		      __entry->name, __entry->peer, __entry->epoch,
		      __entry->stage, __entry->subject, __entry->error)
);

/* ---- directory ------------------------------------------------------------ */

DECLARE_EVENT_CLASS(tow_exported,
		    TP_PROTO(struct tow_exported *exported),
		    TP_ARGS(exported),
		    TP_STRUCT__entry(__array(char, name, TOW_DEVICE_NAME_MAX)
				     __field(u64, id)
				     __field(u64, region)
				     __field(u64, bytes)
				     __field(u32, rights)
				     __field(u32, grants)
		    ),
		    TP_fast_assign(tow_device_name(exported->dev, __entry->name);
				   __entry->id = exported->id;
				   __entry->region = exported->region_id;
				   __entry->bytes = exported->bytes;
				   __entry->rights = exported->rights;
				   __entry->grants = exported->grant_count;
		    ),
		    TP_printk("%s id=%llu region=%llu bytes=%llu rights=0x%x grants=%u",
			      __entry->name, __entry->id, __entry->region,
			      __entry->bytes, __entry->rights, __entry->grants)
);

/* Peers can find the export. */
DEFINE_EVENT(tow_exported, tow_export_publish,
	     TP_PROTO(struct tow_exported *exported),
	     TP_ARGS(exported)
);

/* Peers cannot find the export any more; its grants are revoked. */
DEFINE_EVENT(tow_exported, tow_export_revoke,
	     TP_PROTO(struct tow_exported *exported),
	     TP_ARGS(exported)
);

/* No peer reaches the export any more. */
DEFINE_EVENT(tow_exported, tow_export_end,
	     TP_PROTO(struct tow_exported *exported),
	     TP_ARGS(exported)
);

DECLARE_EVENT_CLASS(tow_queue,
		    TP_PROTO(struct tow_queue *queue),
		    TP_ARGS(queue),
		    TP_STRUCT__entry(__array(char, name, TOW_DEVICE_NAME_MAX)
				     __field(u32, sq_entries)
				     __field(u32, cq_entries)
		    ),
		    TP_fast_assign(tow_device_name(queue->dev, __entry->name);
				   __entry->sq_entries = queue->sq_entries;
				   __entry->cq_entries = queue->cq_entries;
		    ),
		    TP_printk("%s sq_entries=%u cq_entries=%u", __entry->name,
			      __entry->sq_entries, __entry->cq_entries)
);

DEFINE_EVENT(tow_queue, tow_queue_create,
	     TP_PROTO(struct tow_queue *queue),
	     TP_ARGS(queue)
);

/* The queue's last entry has completed. */
DEFINE_EVENT(tow_queue, tow_queue_end,
	     TP_PROTO(struct tow_queue *queue),
	     TP_ARGS(queue)
);

DECLARE_EVENT_CLASS(tow_poller,
		    TP_PROTO(struct tow_device *dev, int pid),
		    TP_ARGS(dev, pid),
		    TP_STRUCT__entry(__array(char, name, TOW_DEVICE_NAME_MAX)
				     __field(int, pid)
		    ),
		    TP_fast_assign(tow_device_name(dev, __entry->name);
				   __entry->pid = pid;
		    ),
		    TP_printk("%s pid=%d", __entry->name, __entry->pid)
);

/* A client's poller has started. */
DEFINE_EVENT(tow_poller, tow_poller_start,
	     TP_PROTO(struct tow_device *dev, int pid),
	     TP_ARGS(dev, pid)
);

/* The poller is asked to stop. */
DEFINE_EVENT(tow_poller, tow_poller_stop,
	     TP_PROTO(struct tow_device *dev, int pid),
	     TP_ARGS(dev, pid)
);

/* The poller has found no entries, and has set NEED_WAKEUP. */
DEFINE_EVENT(tow_poller, tow_poller_sleep,
	     TP_PROTO(struct tow_device *dev, int pid),
	     TP_ARGS(dev, pid)
);

DEFINE_EVENT(tow_poller, tow_poller_wake,
	     TP_PROTO(struct tow_device *dev, int pid),
	     TP_ARGS(dev, pid)
);

/* A request has ended. */
TRACE_EVENT(tow_entry,
	    TP_PROTO(const struct tow_req *ended, int status),
	    TP_ARGS(ended, status),
	    TP_STRUCT__entry(__field(u64, user_data)
			     __field(u64, bytes)
			     __field(u8, opcode)
			     __field(u8, flags)
			     __field(int, status)
	    ),
	    TP_fast_assign(__entry->user_data = ended->user_data;
			   __entry->bytes = ended->opcode == TOW_OP_NOP ? 0 :
					    ended->op.bytes;
			   __entry->opcode = ended->opcode;
			   __entry->flags = ended->flags;
			   __entry->status = status;
	    ),
	    TP_printk("user_data=0x%llx opcode=%u flags=0x%x bytes=%llu status=%d",
		      __entry->user_data, __entry->opcode, __entry->flags,
		      __entry->bytes, __entry->status)
);

#endif /* TOW_TRACE_H */

/* Found through -I, as this file is not below include/trace/events/. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
