/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Queues by raw calls: rings in shared memory, and what they work on, with the node
 * as its own peer.
 *
 * $TOW_POLLED: a poller takes the entries of every queue, whatever test it is: then
 * tow_rings_enter() publishes them and waits until they were taken.
 */
#ifndef TOW_QUEUE_H
#define TOW_QUEUE_H

#include <sched.h>
#include <stdint.h>
#include <sys/mman.h>
#include "tow_test.h"
#include "tow_peer.h"
#include "tow_region.h"

/* Nothing takes so long, also on an emulated debug kernel. */
#define TOW_LONG_US	30000000U

/* ---- rings ------------------------------------------------------------------- */

/* A queue, mapped; used by one thread at a time. */
struct tow_rings {
	struct tow_queue_create made;
	struct tow_ring *ring;		/* NULL: not mapped */
	struct tow_sqe *sqes;
	struct tow_cqe *cqes;
	__u32 tail;			/* entries filled in */
	__u32 head;			/* completions dealt with */
};

/* Not mapped; @cq may be 0. */
static inline int tow_queue_make(int client, __u32 sq, __u32 cq, struct tow_queue_create *made)
{
	*made = (struct tow_queue_create) {
		.size = sizeof(*made), .sq_entries = sq, .cq_entries = cq, .fd = -1,
		.flags = getenv("TOW_POLLED") ? TOW_QUEUE_POLL : 0,
	};
	return tow_test_ioctl(client, TOW_IOCTL_QUEUE_CREATE, made);
}

/* With a poller, which looks so long for more; 0: as long as it likes. */
static inline int tow_polled_make(int client, __u32 sq, __u32 cq, __u32 idle_us,
				  struct tow_queue_create *made)
{
	*made = (struct tow_queue_create) {
		.size = sizeof(*made), .sq_entries = sq, .cq_entries = cq, .fd = -1,
		.flags = TOW_QUEUE_POLL, .idle_us = idle_us,
	};
	return tow_test_ioctl(client, TOW_IOCTL_QUEUE_CREATE, made);
}

static inline int tow_rings_map(struct tow_rings *rings)
{
	char *at = mmap(NULL, rings->made.map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
			rings->made.fd, 0);

	if (at == MAP_FAILED)
		return -errno;
	rings->ring = (struct tow_ring *)at;
	rings->sqes = (struct tow_sqe *)(at + rings->made.sqes_offset);
	rings->cqes = (struct tow_cqe *)(at + rings->made.cqes_offset);
	return 0;
}

/* @ret: what came of making them. */
static inline int tow_rings_made(struct tow_rings *rings, int ret)
{
	if (ret)
		return ret;
	ret = tow_rings_map(rings);
	if (ret)
		close(rings->made.fd);
	return ret;
}

static inline int tow_rings_make(int client, __u32 sq, __u32 cq, struct tow_rings *rings)
{
	memset(rings, 0, sizeof(*rings));
	return tow_rings_made(rings, tow_queue_make(client, sq, cq, &rings->made));
}

static inline int tow_rings_make_polled(int client, __u32 sq, __u32 cq, __u32 idle_us,
					struct tow_rings *rings)
{
	memset(rings, 0, sizeof(*rings));
	return tow_rings_made(rings, tow_polled_make(client, sq, cq, idle_us, &rings->made));
}

static inline void tow_rings_end(struct tow_rings *rings)
{
	if (rings->ring)
		munmap(rings->ring, rings->made.map_bytes);
	close(rings->made.fd);
	rings->ring = NULL;
}

static inline int tow_channel_open(int queue, __u64 peer, __u32 qp, struct tow_channel_open *call)
{
	*call = (struct tow_channel_open) { .size = sizeof(*call), .peer = peer, .qp = qp };
	return tow_test_ioctl(queue, TOW_IOCTL_CHANNEL_OPEN, call);
}

static inline int tow_channel_close(int queue, __u32 channel)
{
	struct tow_channel_close call = { .size = sizeof(call), .channel = channel };

	return tow_test_ioctl(queue, TOW_IOCTL_CHANNEL_CLOSE, &call);
}

/* How many were taken, or a negative errno. */
static inline int tow_enter(int queue, __u32 submit, __u32 complete, __u32 timeout_us)
{
	struct tow_enter call = {
		.size = sizeof(call), .to_submit = submit, .min_complete = complete,
		.timeout_us = timeout_us,
	};
	int ret = ioctl(queue, TOW_IOCTL_ENTER, &call);

	return ret < 0 ? -errno : ret;
}

/* The next entry, zeroed; NULL: the ring is full. */
static inline struct tow_sqe *tow_rings_next(struct tow_rings *rings)
{
	__u32 taken = __atomic_load_n(&rings->ring->sq_head, __ATOMIC_ACQUIRE);
	struct tow_sqe *sqe;

	if (rings->tail - taken >= rings->made.sq_entries)
		return NULL;
	sqe = &rings->sqes[rings->tail++ & (rings->made.sq_entries - 1)];
	memset(sqe, 0, sizeof(*sqe));
	return sqe;
}

/* A copy of an entry: was there room? */
static inline bool tow_rings_put(struct tow_rings *rings, const struct tow_sqe *entry)
{
	struct tow_sqe *sqe = tow_rings_next(rings);

	if (sqe)
		*sqe = *entry;
	return sqe;
}

/* What was filled in can be taken. */
static inline void tow_rings_publish(struct tow_rings *rings)
{
	__atomic_store_n(&rings->ring->sq_tail, rings->tail, __ATOMIC_RELEASE);
}

/* Does the poller sleep?  After an index was written. */
static inline bool tow_rings_need_wakeup(const struct tow_rings *rings)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return __atomic_load_n(&rings->ring->sq_flags, __ATOMIC_RELAXED) & TOW_RING_NEED_WAKEUP;
}

/* Entries that were published, or are about to be, and not taken. */
static inline __u32 tow_rings_untaken(const struct tow_rings *rings)
{
	return rings->tail - __atomic_load_n(&rings->ring->sq_head, __ATOMIC_ACQUIRE);
}

/* All that was filled in, to a poller: 1: it had to be woken; 0: not; a negative errno. */
static inline int tow_rings_offer(struct tow_rings *rings)
{
	int ret;

	tow_rings_publish(rings);
	if (!tow_rings_need_wakeup(rings))
		return 0;
	ret = tow_enter(rings->made.fd, 0, 0, 0);
	return ret ? ret : 1;
}

/* As if it were no poller that takes them, if there is room for all. */
static inline int tow_rings_enter_polled(struct tow_rings *rings, __u32 complete,
					 __u32 timeout_us)
{
	int count = (int)tow_rings_untaken(rings), ret = tow_rings_offer(rings);
	struct tow_patience patience = tow_patience(30);

	while (ret >= 0 && tow_rings_untaken(rings)) {
		if (!tow_patient(&patience))
			return -EBUSY;
		sched_yield();
	}
	if (ret >= 0 && complete)
		ret = tow_enter(rings->made.fd, 0, complete, timeout_us);
	return ret < 0 ? ret : count;
}

/* All that was filled in; as tow_enter(). */
static inline int tow_rings_enter(struct tow_rings *rings, __u32 complete, __u32 timeout_us)
{
	__u32 taken = __atomic_load_n(&rings->ring->sq_head, __ATOMIC_RELAXED);

	if (rings->made.flags & TOW_QUEUE_POLL)
		return tow_rings_enter_polled(rings, complete, timeout_us);
	tow_rings_publish(rings);
	return tow_enter(rings->made.fd, rings->tail - taken, complete, timeout_us);
}

/* Completions that are there. */
static inline __u32 tow_rings_ready(const struct tow_rings *rings)
{
	return __atomic_load_n(&rings->ring->cq_tail, __ATOMIC_ACQUIRE) - rings->head;
}

/* Without dealing with it. */
static inline struct tow_cqe tow_rings_look(const struct tow_rings *rings, __u32 number)
{
	return rings->cqes[(rings->head + number) & (rings->made.cq_entries - 1)];
}

static inline void tow_rings_seen(struct tow_rings *rings, __u32 count)
{
	rings->head += count;
	__atomic_store_n(&rings->ring->cq_head, rings->head, __ATOMIC_RELEASE);
}

/* A completion; false: there is none. */
static inline bool tow_rings_take(struct tow_rings *rings, struct tow_cqe *cqe)
{
	if (!tow_rings_ready(rings))
		return false;
	*cqe = tow_rings_look(rings, 0);
	tow_rings_seen(rings, 1);
	return true;
}

/* Wait for one: 0 or a negative errno. */
static inline int tow_rings_wait(struct tow_rings *rings, struct tow_cqe *cqe)
{
	int ret = 0;

	if (!tow_rings_ready(rings))
		ret = tow_enter(rings->made.fd, 0, 1, TOW_LONG_US);
	if (ret < 0)
		return ret;
	return tow_rings_take(rings, cqe) ? 0 : -ENOMSG;
}

/* Wait for so many completions: the first error. */
static inline int tow_rings_collect(struct tow_rings *rings, __u32 count)
{
	struct tow_cqe cqe;
	int ret = 0, error;

	while (count--) {
		error = tow_rings_wait(rings, &cqe);
		if (error)
			return error;
		ret = ret ? ret : cqe.status;
	}
	return ret;
}

/*
 * Submit one entry on an empty queue, and wait for it: its status.  What is no
 * status of an entry: EILSEQ: another's completion; ENOMSG: none; EXFULL: it was
 * not taken.
 */
static inline int tow_rings_do(struct tow_rings *rings, const struct tow_sqe *entry)
{
	struct tow_cqe cqe;
	int ret;

	if (!tow_rings_put(rings, entry))
		return -EXFULL;
	ret = tow_rings_enter(rings, 1, TOW_LONG_US);
	if (ret != 1)
		return ret < 0 ? ret : -EXFULL;
	if (!tow_rings_take(rings, &cqe))
		return -ENOMSG;
	if (cqe.user_data != entry->user_data || cqe.flags)
		return -EILSEQ;
	return cqe.status;
}

/* ---- what entries work on ------------------------------------------------------ */

#define TOW_ALL_RIGHTS	(TOW_RIGHT_READ | TOW_RIGHT_WRITE | TOW_RIGHT_ATOMIC)

static inline bool tow_has_atomics(int client)
{
	struct tow_query query;

	return !tow_test_query(client, &query) && query.features & TOW_FEATURE_ATOMICS;
}

/* With these rights; the device may still be getting ready to register memory. */
static inline int tow_publish_for(int client, __u64 region, const char *name, __u64 bytes,
				  __u32 rights, __u64 *handle)
{
	struct tow_export call = {
		.size = sizeof(call), .region = region, .bytes = bytes, .rights = rights,
		.name_bytes = (__u32)strlen(name),
	};
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	int ret;

	memcpy(call.name, name, strlen(name));
	while ((ret = tow_test_ioctl(client, TOW_IOCTL_EXPORT, &call)) == -EAGAIN &&
	       tow_patient(&patience))
		tow_test_sleep_ms(10);
	*handle = call.handle;
	return ret;
}

static inline int tow_find_for(int client, __u64 peer, const char *name, __u32 rights,
			       __u64 *handle)
{
	struct tow_resolve call = {
		.size = sizeof(call), .peer = peer, .rights = rights, .timeout_ms = TOW_WAIT_MS,
		.name_bytes = (__u32)strlen(name),
	};
	int ret;

	memcpy(call.name, name, strlen(name));
	ret = tow_test_ioctl(client, TOW_IOCTL_RESOLVE, &call);
	*handle = call.handle;
	return ret;
}

/* Sessions that there were; 0: it cannot be seen. */
/* A parameter of soft-RoCE as hardware may be: -ENOENT: the device is as others. */
static inline int tow_hostile_set(const char *name, const char *value)
{
	char path[128];
	int fd, ret = 0;

	snprintf(path, sizeof(path), "/sys/module/rxe_hostile/parameters/%s", name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (write(fd, value, strlen(value)) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

static inline __u32 tow_peer_epoch(int client, __u64 peer)
{
	struct tow_peer_info info;

	return tow_peer_look(client, peer, &info) ? 0 : info.epoch;
}

/*
 * An empty pool, then one of this size, and nothing left of earlier queues: 0, or
 * a negative errno.
 */
static inline int tow_queue_fresh(uint64_t pool_bytes)
{
	int ret = tow_pool_fresh(pool_bytes);

	if (ret)
		return ret;
	if (tow_sysfs_wait("stats/queues", 0))
		return -EUCLEAN;
	return tow_sysfs_put("allow_unauthenticated", "1");
}

/* A client with a queue, and a channel of it to the node itself. */
struct tow_user {
	int fd;
	__u64 peer;
	struct tow_rings rings;
	__u16 channel;
};

static inline int tow_user_make(struct tow_user *user, __u32 sq, __u32 cq)
{
	struct tow_channel_open channel = { .size = sizeof(channel) };
	int ret;

	memset(user, 0, sizeof(*user));
	user->fd = tow_test_open(O_RDWR);
	if (user->fd < 0)
		return user->fd;
	ret = tow_connect_self(user->fd, &user->peer);
	if (!ret)
		ret = tow_rings_make(user->fd, sq, cq, &user->rings);
	if (!ret)
		ret = tow_channel_open(user->rings.made.fd, user->peer, 0, &channel);
	user->channel = (__u16)channel.channel;
	return ret;
}

static inline void tow_user_end(struct tow_user *user)
{
	tow_rings_end(&user->rings);
	close(user->fd);
}

/* Two regions, and the second of them found at ourselves, as "target". */
static inline int tow_make_target(const struct tow_user *user, __u64 bytes,
				  struct tow_mapped *own, struct tow_mapped *target,
				  __u64 *remote)
{
	__u64 exported;
	int ret = tow_mapped_make(user->fd, bytes, own);

	if (!ret)
		ret = tow_mapped_make(user->fd, bytes, target);
	if (!ret)
		ret = tow_publish_for(user->fd, target->made.handle, "target", bytes,
				      TOW_ALL_RIGHTS, &exported);
	return ret ? ret : tow_find_for(user->fd, user->peer, "target", TOW_ALL_RIGHTS, remote);
}

/* A WRITE or READ. */
static inline struct tow_sqe tow_move(const struct tow_user *user, __u8 opcode, __u64 region,
				      __u64 offset, __u64 remote, __u64 remote_offset,
				      __u64 bytes)
{
	return (struct tow_sqe) {
		.opcode = opcode, .channel = user->channel, .region = region, .offset = offset,
		.remote = remote, .remote_offset = remote_offset, .bytes = bytes,
	};
}

#endif /* TOW_QUEUE_H */
