/* SPDX-License-Identifier: GPL-2.0 */
/*
 * tow_vgpu: what the tests ask of tow_vgpu.ko.
 */
#ifndef TOW_VGPU_H
#define TOW_VGPU_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define TOW_VGPU_NODE		"/dev/tow_vgpu"

/* What a place is filled with that a buffer has moved from. */
#define TOW_VGPU_LEFT		0xa5

/* How a buffer meets its importers: bits of tow_vgpu_alloc.flags. */
enum tow_vgpu_flags {
	/* pinned by who does not allow peer-to-peer it moves to host memory */
	TOW_VGPU_HOST_UNLESS_P2P	= 1 << 0,
	/* nobody attaches who cannot be told of moves, or does not allow peer-to-peer */
	TOW_VGPU_REFUSE_STATIC		= 1 << 1,
	/* to pin it waits for what the buffer is busy with */
	TOW_VGPU_PIN_WAITS		= 1 << 2
};

/**
 * struct tow_vgpu_alloc - a buffer
 * @bytes: in: how much, whole pages
 * @chunk_bytes: in: its memory is in parts of so many, none beside another, whole
 *	pages; 0: in one
 * @flags: in: of enum tow_vgpu_flags
 * @fd: out: the dma-buf, zeroed
 */
struct tow_vgpu_alloc {
	__aligned_u64	bytes;
	__aligned_u64	chunk_bytes;
	__u32		flags;
	__s32		fd;
};

/**
 * struct tow_vgpu_access - the processor's look at a buffer
 * @fd: in: the buffer
 * @write: in: 0: read; 1: write
 * @offset: in: where
 * @bytes: in: how many
 * @data: in: address of them
 */
struct tow_vgpu_access {
	__s32		fd;
	__u32		write;
	__aligned_u64	offset;
	__aligned_u64	bytes;
	__aligned_u64	data;
};

/**
 * struct tow_vgpu_busy - keep a buffer busy
 * @fd: in: the buffer
 * @ms: in: so long
 * @byte: in: of this value all of its bytes are then
 * @reserved: in: 0
 */
struct tow_vgpu_busy {
	__s32		fd;
	__u32		ms;
	__u32		byte;
	__u32		reserved;
};

/**
 * struct tow_vgpu_move - move a buffer
 * @fd: in: the buffer
 * @timeout_ms: in: how long to wait for its fences, and then for its mappings
 * @signaled: out: 1: nobody uses it any more, as its fences say
 * @mappings: out: how many mappings there still were when that was over
 * @waited_us: out: how long its fences took
 * @unmapped_us: out: how long it took, from the same moment on, until it was mapped
 *	nowhere, or to the end of the time
 */
struct tow_vgpu_move {
	__s32		fd;
	__u32		timeout_ms;
	__u32		signaled;
	__u32		mappings;
	__aligned_u64	waited_us;
	__aligned_u64	unmapped_us;
};

/**
 * struct tow_vgpu_status - how a buffer is
 * @fd: in: the buffer
 * @host: out: 1: it is in host memory
 * @attachments: out: importers
 * @pins: out: how many of them have pinned it
 * @mappings: out: how often it is mapped for a device
 * @moves: out: how often it has moved
 * @landed: out: bytes of the place that it moved from last that are not
 *	TOW_VGPU_LEFT any more
 */
struct tow_vgpu_status {
	__s32		fd;
	__u32		host;
	__u32		attachments;
	__u32		pins;
	__u32		mappings;
	__u32		moves;
	__aligned_u64	landed;
};

/*
 * ALLOC	a buffer of the device's memory.  Its dma-buf can be mapped: what is
 *		seen there is where the buffer is now
 * ACCESS	copy bytes out of a buffer, or into it
 * BUSY		the buffer has a fence that importers must wait for; only when that
 *		signals are its bytes what they should be
 * MOVE		as an exporter that needs the place: tells importers, waits for their
 *		fences with the reservation locked, then uses the place for something
 *		else, which a later STATUS looks at
 * STATUS
 *
 * Errors: EBADF, EINVAL (no buffer of this device, a range that is not in it), ENOSPC
 * (no room on the device), ENOMEM, EFAULT, ENODEV (the device is gone), EBUSY (MOVE: an
 * importer cannot be told).
 */
#define TOW_VGPU_ALLOC		_IOWR('v', 0, struct tow_vgpu_alloc)
#define TOW_VGPU_ACCESS		_IOW('v', 1, struct tow_vgpu_access)
#define TOW_VGPU_BUSY		_IOW('v', 2, struct tow_vgpu_busy)
#define TOW_VGPU_MOVE		_IOWR('v', 3, struct tow_vgpu_move)
#define TOW_VGPU_STATUS		_IOWR('v', 4, struct tow_vgpu_status)

#ifdef __KERNEL__
/*
 * Of the provider that has DMA, if it is loaded: device memory has no pages, so it must be
 * told what it may reach.
 */
int rxe_dma_window_add(phys_addr_t start, size_t bytes);
void rxe_dma_window_remove(phys_addr_t start);
#endif

#endif /* TOW_VGPU_H */
