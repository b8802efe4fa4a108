/* SPDX-License-Identifier: GPL-2.0 */
/*
 * tow_probe: what measures ask of tow_probe.ko, the floor under towline: the
 * same reads and writes from inside the kernel, with nothing of towline's.
 */
#ifndef TOW_RAW_H
#define TOW_RAW_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define TOW_RAW_NODE		"/dev/tow_probe"

/* With the terminating zero; as the RDMA subsystem has it. */
#define TOW_RAW_DEVICE_MAX	64

/* Memory at each end, in bytes. */
#define TOW_RAW_MEMORY		(2 << 20)

/* Operations in flight, at most. */
#define TOW_RAW_WINDOW_MAX	1024

/* tow_raw_run.op */
#define TOW_RAW_WRITE		0
#define TOW_RAW_READ		1

/* tow_raw_run.unmapped */
#define TOW_RAW_NEAR		1
#define TOW_RAW_FAR		2

/**
 * struct tow_raw_run - post operations, and wait until they have completed
 * @device: in: the RDMA device, which is both ends
 * @op: in: TOW_RAW_WRITE or TOW_RAW_READ
 * @bytes: in: of one operation, at least 1
 * @gap: in: bytes between two places
 * @places: in: operation I is at place I modulo this, at both ends; all places
 *	lie within TOW_RAW_MEMORY
 * @count: in: how many, a multiple of @batch
 * @batch: in: how many are posted with one call, the last of them signalled
 * @window: in: how many are in flight, at most; a multiple of @batch
 * @unmapped: in: 0; or whose memory the device may not reach any more when the first
 *	is posted, TOW_RAW_NEAR: ours, TOW_RAW_FAR: the other end's.  That is a bug,
 *	planted for who must see it
 * @status: out: of the first that failed, of enum ib_wc_status, as verbs have it too; 0
 * @reserved: in: 0
 * @time_ns: out: from before the first was posted until after the last completed
 */
struct tow_raw_run {
	char		device[TOW_RAW_DEVICE_MAX];
	__u32		op;
	__u32		bytes;
	__u32		gap;
	__u32		places;
	__u32		count;
	__u32		batch;
	__u32		window;
	__u32		unmapped;
	__u32		status;
	__u32		reserved;
	__aligned_u64	time_ns;
};

/*
 * Errors: EINVAL; ENODEV: no such device; ETIMEDOUT, EIO: an operation did not
 * complete, or failed (@status says how); EINTR; ENOMEM; what the device says.
 */
#define TOW_RAW_RUN		_IOWR('x', 16, struct tow_raw_run)

#endif /* TOW_RAW_H */
