/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * towline: the contract between the kernel module and programs.
 *
 * Every structure here has the same layout for 32-bit and 64-bit programs, in
 * C and in C++: fields are naturally aligned, padding is spelled out, and
 * 64-bit fields are aligned to 8 bytes everywhere.
 *
 * The device node
 * ---------------
 * Each RDMA device that can register memory by work request ("fast
 * registration") has one node, /dev/towline/NAME, where NAME is the RDMA
 * device's name.  Renaming the RDMA device moves the node; open files stay
 * valid.
 *
 * open(2) with O_RDWR gives everything the caller's permissions allow; with
 * O_RDONLY it gives the calls that only look (TOW_IOCTL_QUERY).  Errors of
 * open(2) that are towline's own:
 *
 *	EINVAL		O_WRONLY: no call could answer through such a file
 *	ENODEV		the RDMA device is gone, or is going
 *	EPERM		the RDMA device belongs to another network namespace, and
 *			the RDMA subsystem is in exclusive mode
 *	EOPNOTSUPP	soft-RoCE over a network interface outside the initial
 *			network namespace: soft-RoCE works in that one only
 *	ENOMEM		the machine has no memory
 *
 * In the RDMA subsystem's shared mode (the default) the caller's own network
 * namespace does not matter: the kernel talks to peers, not the caller.
 *
 * The calls
 * ---------
 * Every ioctl takes a pointer to a structure whose first field is its size in
 * bytes, as the caller was compiled; the ioctl number holds no size.  With
 * "published size" meaning the size of the structure in the first version of
 * this header that had it, the kernel
 *
 *	refuses a size below the published size with EINVAL;
 *	takes a longer structure than it knows if the part it does not know is
 *	all zero, and refuses it with E2BIG otherwise (and always above 4096
 *	bytes);
 *	refuses unknown bits in flags, and non-zero reserved fields, with EINVAL;
 *	never writes beyond the size the caller gave; in calls that answer in
 *	the structure, "size" comes back as the number of bytes filled in,
 *	which is less than the caller's where the kernel is the older of the
 *	two.
 *
 * Errors that every call can give:
 *
 *	EFAULT		the structure is not readable, or not writable where
 *			the call answers in it
 *	EINVAL, E2BIG	as above
 *	ENODEV		the RDMA device is gone.  This file will answer nothing
 *			else any more; close it
 *	ENOTTY		no such call
 *
 * Where several apply, the order is ENODEV, ENOTTY, then what is wrong with the
 * size, then what is wrong with the content.
 */
#ifndef _UAPI_TOWLINE_H
#define _UAPI_TOWLINE_H

#include <linux/ioctl.h>
#include <linux/types.h>

/*
 * Grows by one with every addition to this file.  Nothing here ever changes
 * its meaning, so a program needs a kernel that is at least as new as the
 * calls it makes, and nothing more.
 */
#define TOW_UAPI_VERSION	1

#define TOW_IOCTL_TYPE		0xBA

enum {
	TOW_CMD_QUERY = 0x00
};

/* With the terminating zero; the RDMA subsystem's limit on device names. */
#define TOW_DEVICE_NAME_MAX	64

/* Bytes of the number that names one life of one RDMA device. */
#define TOW_INCARNATION_BYTES	16

/**
 * enum tow_transport - what carries RDMA on a device
 * @TOW_TRANSPORT_IB: InfiniBand
 * @TOW_TRANSPORT_ROCE: RDMA over Converged Ethernet, soft-RoCE included
 * @TOW_TRANSPORT_IWARP: RDMA over TCP, soft-iWARP included
 */
enum tow_transport {
	TOW_TRANSPORT_IB	= 1,
	TOW_TRANSPORT_ROCE	= 2,
	TOW_TRANSPORT_IWARP	= 3
};

/* What a device can do: bits of tow_query.features. */
enum tow_feature {
	/* an RDMA write can carry immediate data */
	TOW_FEATURE_WRITE_IMM	= 1 << 0,
	/* 64-bit fetch-and-add and compare-and-swap */
	TOW_FEATURE_ATOMICS	= 1 << 1,
	/* shared receive queues */
	TOW_FEATURE_SRQ		= 1 << 2,
	/*
	 * The device is software that uses the processor's own addresses: no
	 * DMA mapping takes place, and peer-to-peer DMA is impossible.
	 */
	TOW_FEATURE_VIRT_DMA	= 1 << 3
};

/**
 * enum tow_maint_state - the maintenance queue pair, which registers memory
 * @TOW_MAINT_WAITING: there is none; it is made after a short pause
 * @TOW_MAINT_CONNECTING: it is being made at this moment
 * @TOW_MAINT_READY: it works: a registration was tried and went through
 * @TOW_MAINT_FAILED: it could not be made, and is not tried again before
 *	something about the device changes (a port becomes active, an address
 *	comes or goes)
 *
 * From WAITING to CONNECTING; from CONNECTING to READY, WAITING or FAILED; from
 * READY to WAITING (an error broke it); from FAILED to WAITING.
 */
enum tow_maint_state {
	TOW_MAINT_WAITING	= 0,
	TOW_MAINT_CONNECTING	= 1,
	TOW_MAINT_READY		= 2,
	TOW_MAINT_FAILED	= 3
};

/**
 * struct tow_query - what a device is, and how it is
 * @size: in: sizeof(struct tow_query); out: bytes filled in
 * @flags: in: 0
 * @uapi_version: the kernel's TOW_UAPI_VERSION
 * @driver_version: of the module: major << 16 | minor << 8 | patch
 * @device_name: of the RDMA device, terminated and filled up with zeroes; the
 *	present one if it was renamed after open
 * @incarnation: random, chosen anew whenever the RDMA device appears or the
 *	module is loaded; names this life of this device among all nodes
 * @features: bits of enum tow_feature; bits not named there are zero
 * @max_mr_size: largest memory region, in bytes
 * @max_msg_size: largest message, in bytes
 * @transport: enum tow_transport
 * @port: the port of the RDMA device that towline uses, counted from 1
 * @page_size: the kernel's page size, in bytes
 * @numa_node: the memory node nearest to the device; -1 if there is none
 * @max_mr: memory regions, of the whole device
 * @max_fast_reg_pages: pages in one fast registration
 * @max_pd: protection domains
 * @max_qp: queue pairs
 * @max_qp_wr: work requests outstanding on one queue of a queue pair
 * @max_send_sge: local ranges in one send or write
 * @max_recv_sge: local ranges in one receive
 * @max_sge_rd: local ranges in one RDMA read
 * @max_cq: completion queues
 * @max_cqe: entries of one completion queue
 * @max_srq: shared receive queues
 * @max_srq_wr: work requests outstanding on one shared receive queue
 * @max_qp_rd_atom: reads and atomics in flight towards one queue pair
 * @max_qp_init_rd_atom: reads and atomics in flight from one queue pair
 * @maint_state: enum tow_maint_state
 * @maint_error: why the last attempt to make the maintenance queue pair failed,
 *	or what broke it: a negative errno; 0 while it is ready, and before the
 *	first attempt has ended
 * @maint_rebuilds: how often it became ready again after it had been broken
 * @reserved: out: zero
 *
 * The limits are those of the RDMA device: what towline gives out of them is
 * never more.
 */
struct tow_query {
	__u32		size;
	__u32		flags;
	__u32		uapi_version;
	__u32		driver_version;
	char		device_name[TOW_DEVICE_NAME_MAX];
	__u8		incarnation[TOW_INCARNATION_BYTES];
	__aligned_u64	features;
	__aligned_u64	max_mr_size;
	__aligned_u64	max_msg_size;
	__u32		transport;
	__u32		port;
	__u32		page_size;
	__s32		numa_node;
	__u32		max_mr;
	__u32		max_fast_reg_pages;
	__u32		max_pd;
	__u32		max_qp;
	__u32		max_qp_wr;
	__u32		max_send_sge;
	__u32		max_recv_sge;
	__u32		max_sge_rd;
	__u32		max_cq;
	__u32		max_cqe;
	__u32		max_srq;
	__u32		max_srq_wr;
	__u32		max_qp_rd_atom;
	__u32		max_qp_init_rd_atom;
	__u32		maint_state;
	__s32		maint_error;
	__u32		maint_rebuilds;
	__u32		reserved;
};

/**
 * TOW_IOCTL_QUERY - describe the device behind this file
 *
 * Takes a struct tow_query with @size and @flags set; @reserved must be zero,
 * every other field is only written.  Never waits, for the device or for
 * anybody else.  Allowed on every open file.
 *
 * Errors: none but those of every call (above).
 */
#define TOW_IOCTL_QUERY		_IO(TOW_IOCTL_TYPE, TOW_CMD_QUERY)

#endif /* _UAPI_TOWLINE_H */
