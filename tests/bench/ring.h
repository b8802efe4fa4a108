/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A queue by raw calls, as a program uses it that wants to be quick: entries go
 * into the ring, one call submits and waits.  Or none does: a poller takes them, and
 * the program looks for completions.
 */
#ifndef TOW_RING_H
#define TOW_RING_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <towline/uapi.h>

/* Nothing that is measured takes so long. */
#define RING_WAIT_MS	30000U

struct ring {
	int fd;
	bool polled;
	__u32 sq_mask, cq_mask;
	__u32 tail;		/* entries that are filled in */
	__u32 submitted;
	__u32 head;		/* completions that are dealt with */
	struct tow_ring *shared;
	struct tow_sqe *sqes;
	struct tow_cqe *cqes;
};

/* 0 or more, or a negative errno. */
static inline int ring_call(int fd, unsigned long command, void *call)
{
	int ret = ioctl(fd, command, call);

	return ret < 0 ? -errno : ret;
}

static inline int ring_open_device(const char *name)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "/dev/towline/%s", name);
	fd = open(path, O_RDWR | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* A poller does not sleep while something is measured. */
static inline int ring_make(int device, __u32 entries, bool polled, struct ring *ring)
{
	struct tow_queue_create call = {
		.size = sizeof(call), .sq_entries = entries,
		.flags = polled ? TOW_QUEUE_POLL : 0,
		.idle_us = polled ? TOW_POLL_IDLE_MAX_US : 0,
	};
	int ret = ring_call(device, TOW_IOCTL_QUEUE_CREATE, &call);
	char *at;

	if (ret)
		return ret;
	at = mmap(NULL, call.map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, call.fd, 0);
	if (at == MAP_FAILED)
		return -errno;
	*ring = (struct ring){
		.fd = call.fd,
		.polled = polled,
		.sq_mask = call.sq_entries - 1,
		.cq_mask = call.cq_entries - 1,
		.shared = (struct tow_ring *)at,
		.sqes = (struct tow_sqe *)(at + call.sqes_offset),
		.cqes = (struct tow_cqe *)(at + call.cqes_offset),
	};
	return 0;
}

/* A channel's number, or a negative errno. */
static inline int ring_channel(const struct ring *ring, __u64 peer, __u32 qp)
{
	struct tow_channel_open call = { .size = sizeof(call), .peer = peer, .qp = qp };
	int ret = ring_call(ring->fd, TOW_IOCTL_CHANNEL_OPEN, &call);

	return ret ? ret : (int)call.channel;
}

/* The caller knows that there is room. */
static inline struct tow_sqe *ring_next(struct ring *ring)
{
	return &ring->sqes[ring->tail++ & ring->sq_mask];
}

/* The same as below, without a call but to wake the poller. */
static inline int ring_offer(struct ring *ring, __u32 wait_for)
{
	struct tow_enter call = { .size = sizeof(call) };
	int ret = 0;

	__atomic_store_n(&ring->shared->sq_tail, ring->tail, __ATOMIC_RELEASE);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&ring->shared->sq_flags, __ATOMIC_RELAXED) & TOW_RING_NEED_WAKEUP)
		ret = ring_call(ring->fd, TOW_IOCTL_ENTER, &call);
	while (!ret && __atomic_load_n(&ring->shared->cq_tail, __ATOMIC_ACQUIRE) - ring->head <
			       wait_for)
		;
	return ret;
}

/* Submit what was filled in, and wait for completions: 0 or a negative errno. */
static inline int ring_enter(struct ring *ring, __u32 wait_for)
{
	struct tow_enter call = {
		.size = sizeof(call), .to_submit = ring->tail - ring->submitted,
		.min_complete = wait_for, .timeout_us = RING_WAIT_MS * 1000,
	};
	int ret;

	if (ring->polled)
		return ring_offer(ring, wait_for);
	__atomic_store_n(&ring->shared->sq_tail, ring->tail, __ATOMIC_RELEASE);
	ret = ring_call(ring->fd, TOW_IOCTL_ENTER, &call);
	if (ret < 0)
		return ret;
	ring->submitted += (__u32)ret;
	return 0;
}

/*
 * Deal with all completions that are there: how many.  What failed ends up in
 * @status.
 */
static inline __u32 ring_reap(struct ring *ring, int *status)
{
	__u32 tail = __atomic_load_n(&ring->shared->cq_tail, __ATOMIC_ACQUIRE);
	__u32 count = tail - ring->head;

	for (; ring->head != tail; ring->head++) {
		if (ring->cqes[ring->head & ring->cq_mask].status)
			*status = ring->cqes[ring->head & ring->cq_mask].status;
	}
	__atomic_store_n(&ring->shared->cq_head, tail, __ATOMIC_RELEASE);
	return count;
}

/* ---- what it is used with ---------------------------------------------------- */

static inline int ring_region(int device, __u64 bytes, __u64 *handle)
{
	struct tow_region_create call = { .size = sizeof(call), .bytes = bytes };
	int ret = ring_call(device, TOW_IOCTL_REGION_CREATE, &call);

	if (ret)
		return ret;
	close(call.fd);
	*handle = call.handle;
	return 0;
}

/* To be read and written. */
static inline int ring_export(int device, __u64 region, __u64 offset, __u64 bytes,
			      const char *name)
{
	struct tow_export call = {
		.size = sizeof(call), .region = region, .offset = offset, .bytes = bytes,
		.rights = TOW_RIGHT_READ | TOW_RIGHT_WRITE, .name_bytes = (__u32)strlen(name),
	};

	memcpy(call.name, name, strlen(name));
	return ring_call(device, TOW_IOCTL_EXPORT, &call);
}

/* The peer at an IPv4 address. */
static inline int ring_connect(int device, const char *address, __u64 *peer)
{
	struct tow_peer_connect call = { .size = sizeof(call), .timeout_ms = RING_WAIT_MS };
	int ret;

	if (inet_pton(AF_INET, address, call.address + 12) != 1)
		return -EINVAL;
	call.address[10] = 0xff;
	call.address[11] = 0xff;
	ret = ring_call(device, TOW_IOCTL_PEER_CONNECT, &call);
	*peer = call.peer;
	return ret;
}

static inline int ring_resolve(int device, __u64 peer, const char *name, __u64 *remote)
{
	struct tow_resolve call = {
		.size = sizeof(call), .peer = peer, .rights = TOW_RIGHT_READ | TOW_RIGHT_WRITE,
		.timeout_ms = RING_WAIT_MS, .name_bytes = (__u32)strlen(name),
	};
	int ret;

	memcpy(call.name, name, strlen(name));
	ret = ring_call(device, TOW_IOCTL_RESOLVE, &call);
	*remote = call.handle;
	return ret;
}

#endif /* TOW_RING_H */
