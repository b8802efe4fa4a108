/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Slots by raw calls, and two clients of one node, which is its own peer: one that
 * is notified, and one that notifies.
 */
#ifndef TOW_NOTIFY_H
#define TOW_NOTIFY_H

#include "tow_queue.h"

/* Notifications that a session has on its way at most: a constant of the protocol. */
#define TOW_NOTIFY_WINDOW	128

/* In the memory of who is notified: the slot, and where data goes. */
#define TOW_SLOT_AT		0
#define TOW_DATA_AT		4096

/* A slot of 8 bytes of a region. */
static inline int tow_slot_make(int client, __u64 region, __u64 offset, const char *name,
				__u64 *handle)
{
	struct tow_export call = {
		.size = sizeof(call), .region = region, .offset = offset, .bytes = 8,
		.rights = TOW_RIGHT_NOTIFY, .name_bytes = (__u32)strlen(name),
	};
	int ret;

	memcpy(call.name, name, strlen(name));
	ret = tow_test_ioctl(client, TOW_IOCTL_EXPORT, &call);
	*handle = call.handle;
	return ret;
}

/* Once, without waiting for the name. */
static inline int tow_slot_ask(int client, __u64 peer, const char *name, unsigned int width,
			       __u64 *handle)
{
	struct tow_resolve call = {
		.size = sizeof(call), .peer = peer, .rights = TOW_RIGHT_NOTIFY_BY(width),
		.name_bytes = (__u32)strlen(name),
	};
	int ret;

	memcpy(call.name, name, strlen(name));
	ret = tow_test_ioctl(client, TOW_IOCTL_RESOLVE, &call);
	*handle = call.handle;
	return ret;
}

/* Until whoever had it has given it back. */
static inline int tow_slot_find_by(int client, __u64 peer, const char *name, unsigned int width,
				   __u64 *handle)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	int ret;

	while ((ret = tow_slot_ask(client, peer, name, width, handle)) == -EBUSY &&
	       tow_patient(&patience))
		tow_test_sleep_ms(5);
	return ret;
}

static inline int tow_slot_find(int client, __u64 peer, const char *name, __u64 *handle)
{
	return tow_slot_find_by(client, peer, name, 1, handle);
}

/* How far it has come, with all the data before it. */
static inline __u64 tow_slot_number(const void *word)
{
	return __atomic_load_n((const __u64 *)word, __ATOMIC_ACQUIRE);
}

/* Wait until it has come so far, without a call that knows of it: where it is then. */
static inline __u64 tow_slot_await(const void *word, __u64 number)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);

	while (tow_slot_number(word) < number && tow_patient(&patience))
		tow_test_sleep_ms(1);
	return tow_slot_number(word);
}

/* ---- entries ------------------------------------------------------------------ */

static inline struct tow_sqe tow_notify(const struct tow_user *user, __u64 slot)
{
	return (struct tow_sqe) {
		.opcode = TOW_OP_WRITE_NOTIFY, .channel = user->channel, .operand = slot,
	};
}

static inline struct tow_sqe tow_write_notify(const struct tow_user *user, __u64 region,
					      __u64 offset, __u64 remote, __u64 remote_offset,
					      __u64 bytes, __u64 slot)
{
	struct tow_sqe sqe = tow_move(user, TOW_OP_WRITE_NOTIFY, region, offset, remote,
				      remote_offset, bytes);

	sqe.operand = slot;
	return sqe;
}

static inline struct tow_sqe tow_wait_for(__u64 slot, __u64 number)
{
	return (struct tow_sqe) { .opcode = TOW_OP_WAIT, .region = slot, .operand = number };
}

/* ---- both ends ------------------------------------------------------------------ */

struct tow_ends {
	const char *slot_name;
	const char *data_name;
	/* Who is notified: both are its. */
	struct tow_user to;
	struct tow_mapped memory;
	__u64 slot;			/* handles of exports */
	__u64 data;
	/* Who notifies, and what it has found. */
	struct tow_user from;
	struct tow_mapped own;
	__u64 found;
	__u64 remote;
};

static inline const __u64 *tow_ends_word(const struct tow_ends *ends)
{
	return (const __u64 *)(ends->memory.at + TOW_SLOT_AT);
}

static inline __u64 tow_ends_number(const struct tow_ends *ends)
{
	return tow_slot_number(tow_ends_word(ends));
}

static inline int tow_ends_make_to(struct tow_ends *ends, __u32 entries, size_t bytes)
{
	struct tow_export call = {
		.size = sizeof(call), .offset = TOW_DATA_AT, .bytes = bytes,
		.rights = TOW_RIGHT_READ | TOW_RIGHT_WRITE,
		.name_bytes = (__u32)strlen(ends->data_name),
	};
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	int ret = tow_user_make(&ends->to, entries, 0);

	if (!ret)
		ret = tow_mapped_make(ends->to.fd, TOW_DATA_AT + bytes, &ends->memory);
	if (!ret)
		ret = tow_slot_make(ends->to.fd, ends->memory.made.handle, TOW_SLOT_AT,
				    ends->slot_name, &ends->slot);
	if (ret)
		return ret;
	memcpy(call.name, ends->data_name, call.name_bytes);
	call.region = ends->memory.made.handle;
	while ((ret = tow_test_ioctl(ends->to.fd, TOW_IOCTL_EXPORT, &call)) == -EAGAIN &&
	       tow_patient(&patience))
		tow_test_sleep_ms(10);
	ends->data = call.handle;
	return ret;
}

static inline int tow_ends_find(struct tow_ends *ends)
{
	int ret = tow_slot_find(ends->from.fd, ends->from.peer, ends->slot_name, &ends->found);

	return ret ? ret : tow_find_for(ends->from.fd, ends->from.peer, ends->data_name,
					TOW_RIGHT_READ | TOW_RIGHT_WRITE, &ends->remote);
}

static inline int tow_ends_make_from(struct tow_ends *ends, __u32 entries, size_t bytes)
{
	int ret = tow_user_make(&ends->from, entries, 0);

	if (!ret)
		ret = tow_mapped_make(ends->from.fd, bytes, &ends->own);
	return ret ? ret : tow_ends_find(ends);
}

static inline int tow_ends_make_named(struct tow_ends *ends, const char *slot, const char *data,
				      __u32 entries, size_t bytes)
{
	int ret;

	memset(ends, 0, sizeof(*ends));
	ends->slot_name = slot;
	ends->data_name = data;
	ret = tow_ends_make_to(ends, entries, bytes);
	return ret ? ret : tow_ends_make_from(ends, entries, bytes);
}

static inline int tow_ends_make(struct tow_ends *ends, __u32 entries, size_t bytes)
{
	return tow_ends_make_named(ends, "slot", "data", entries, bytes);
}

static inline void tow_ends_end(struct tow_ends *ends)
{
	tow_user_end(&ends->from);
	tow_user_end(&ends->to);
}

/* One notification without data, and wait for its completion. */
static inline int tow_ends_notify(struct tow_ends *ends)
{
	struct tow_sqe sqe = tow_notify(&ends->from, ends->found);

	return tow_rings_do(&ends->from.rings, &sqe);
}

/* A WAIT that is handed over and not waited for: 0 or a negative errno. */
static inline int tow_ends_begin_wait(struct tow_ends *ends, __u64 number, __u8 flags)
{
	struct tow_sqe sqe = tow_wait_for(ends->slot, number);
	int ret;

	sqe.flags = flags;
	sqe.user_data = number;
	if (!tow_rings_put(&ends->to.rings, &sqe))
		return -EXFULL;
	ret = tow_rings_enter(&ends->to.rings, 0, 0);
	return ret < 0 ? ret : ret == 1 ? 0 : -EXFULL;
}

/* What one of those ends with; EILSEQ: another one has ended. */
static inline int tow_ends_end_wait(struct tow_ends *ends, __u64 number)
{
	struct tow_cqe cqe;
	int ret = tow_rings_wait(&ends->to.rings, &cqe);

	if (ret)
		return ret;
	return cqe.user_data == number ? cqe.status : -EILSEQ;
}

#endif /* TOW_NOTIFY_H */
