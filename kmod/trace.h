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

#include "device.h"

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

/* Nothing of it is left but what open files hold. */
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

/* open() with its result; error is 0 or a negative errno. */
TRACE_EVENT(tow_client_open,
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

#endif /* TOW_TRACE_H */

/* Found through -I, as this file is not below include/trace/events/. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
