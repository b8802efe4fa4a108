/* SPDX-License-Identifier: GPL-2.0 */
/*
 * tow_expose: what the tests ask of tow_expose.ko.
 */
#ifndef TOW_EXPOSE_H
#define TOW_EXPOSE_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define TOW_EXPOSE_NODE		"/dev/tow_expose"

/* Longest probe, in bytes. */
#define TOW_EXPOSE_PROBE_MAX	4096

/* tow_expose_slab.rights: those of enum tow_rights. */
#define TOW_EXPOSE_READ		0
#define TOW_EXPOSE_WRITE	1

/* tow_expose_probe.op */
#define TOW_EXPOSE_RDMA_READ	0
#define TOW_EXPOSE_RDMA_WRITE	1
#define TOW_EXPOSE_FETCH_ADD	2

/* tow_expose_probe.status: of enum ib_wc_status, as verbs have it too. */
#define TOW_EXPOSE_SUCCESS	0
#define TOW_EXPOSE_REFUSED	10	/* IB_WC_REM_ACCESS_ERR */

/**
 * struct tow_expose_slab - a slab of a region
 * @region_fd: in: a descriptor of the region
 * @slab: in: which one of its slabs, from 0
 * @rights: in: what peers may do
 * @id: out: what to undo it by
 * @key: out: the key that peers need
 * @chunks: out: of how many chunks the slab consists
 * @page_bytes: out: the size of its pages, as the device has them
 * @address: out: of the slab's first byte, for use with the key
 */
struct tow_expose_slab {
	__s32		region_fd;
	__u32		slab;
	__u32		rights;
	__u32		id;
	__u32		key;
	__u32		chunks;
	__aligned_u64	address;
	__aligned_u64	page_bytes;
};

/**
 * struct tow_expose_probe - do what a peer would do
 * @op: in: read, write, fetch and add
 * @key: in: the key
 * @address: in: where
 * @data: in: address of the bytes to write, or of the room for what was read;
 *	of the word to add, which what was there before replaces
 * @bytes: in: how many; 8 for fetch and add
 * @status: out: of the completion
 */
struct tow_expose_probe {
	__u32		op;
	__u32		key;
	__aligned_u64	address;
	__aligned_u64	data;
	__u32		bytes;
	__u32		status;
};

/**
 * struct tow_expose_remote - where a remote range begins
 * @address: out: of its first byte, for use with the key
 * @bytes: out: how much of it the key opens
 * @key: out: the key
 * @segments: out: of how many such parts the range consists
 */
struct tow_expose_remote {
	__aligned_u64	address;
	__aligned_u64	bytes;
	__u32		key;
	__u32		segments;
};

/*
 * A file belongs to the device of the first region it is used with; the calls
 * with an id take it as the argument itself.
 *
 * EXPOSE	towk_slab_expose(); keeps the region
 * HIDE		towk_slab_hide(), and let the region go
 * PROBE	with a queue pair in the same protection domain
 * BREAK	the maintenance queue pair, as an error would
 * REMOTE	a remote range that was found through the device: there must be one,
 *		and nobody who finds others or lets go of it meanwhile
 *
 * Errors: EBADF, EINVAL, ENOENT (no such id, no
 * remote range), EXDEV (another device's region),
 * ENODEV (the device is gone), ETIMEDOUT (PROBE: no completion), EAGAIN (BREAK:
 * there is none just now), and what towline says.
 */
#define TOW_EXPOSE_EXPOSE	_IOWR('x', 0, struct tow_expose_slab)
#define TOW_EXPOSE_HIDE		_IO('x', 1)
#define TOW_EXPOSE_PROBE	_IOWR('x', 2, struct tow_expose_probe)
#define TOW_EXPOSE_BREAK	_IO('x', 3)
#define TOW_EXPOSE_REMOTE	_IOR('x', 4, struct tow_expose_remote)

#endif /* TOW_EXPOSE_H */
