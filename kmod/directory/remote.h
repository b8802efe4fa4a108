/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Remote ranges: exports of peers that were found here.
 */
#ifndef TOW_REMOTE_H
#define TOW_REMOTE_H

#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/llist.h>

#include "directory.h"

/**
 * enum tow_remote_state - where a remote range is
 * @TOW_REMOTE_ASKING: the peer was asked, or will be, and has not said all
 * @TOW_REMOTE_VALID: it can be used
 * @TOW_REMOTE_ENDING: not any more; operations may be in flight, and the peer
 *	thinks that we have it
 * @TOW_REMOTE_ENDED: the peer knows that we do not have it
 *
 * ASKING to VALID, or to ENDING (the peer had granted it already) or ENDED; VALID
 * to ENDING; ENDING to ENDED; ENDED to ENDING: the answer came after nobody
 * waited for it any more.
 */
enum tow_remote_state {
	TOW_REMOTE_ASKING,
	TOW_REMOTE_VALID,
	TOW_REMOTE_ENDING,
	TOW_REMOTE_ENDED
};

/**
 * struct tow_segment - a range that one key opens
 * @address: where it begins, as the key has it
 * @offset: where it begins in the remote range
 * @key: the remote key
 */
struct tow_segment {
	u64	address;
	u64	offset;
	u32	key;
};

/**
 * struct tow_remote - an export of a peer
 * @refs: held by tow_assoc_dir.requests and .remotes, and by each user
 * @rights: bits of enum tow_right: what was asked for
 * @assoc: where it was found, with a reference
 * @label: its name and job, in tow_assoc_dir.cache if @cached
 * @wait: ASKING: the peer answers when the name is there
 * @failed: an operation did not succeed
 * @closed: of a slot: a number was taken back from what ended then; under the lock of the
 *	queue pair, read without it
 * @inflight: VALID: 1 for that; and 1 for each operation in flight
 * @settled: it is not ASKING any more
 * @error: then: why it is not VALID
 * @via: of a slot: which queue pair its notifications go by, counted from 1; 0: any
 * @notified: of a slot: notifications that were sent, those of others before
 *	included; under the lock of the queue pair
 * @quiet_node: in tow_directory.quiet
 * @state: changed under tow_assoc_dir.lock, like what follows
 * @cached: others may find it
 * @busy: it counts in tow_session.users
 * @quiet: nothing is in flight, nor will be
 * @given_up: ENDING: by us, not by the peer
 * @users: handles, and calls that wait
 * @number: of its request, if it is in tow_assoc_dir.requests
 * @grant: what the peer calls it; 0: it has not said
 * @bytes: its size
 * @total: its segments
 * @have: those that are known
 * @known: bytes in them
 * @segments: in the order of its bytes
 * @link: in one of the lists of tow_assoc_dir
 * @rcu: frees it
 * @name: of @label
 *
 * One with a name of 32 bytes takes 256, so it has no room to give away.
 */
struct tow_remote {
	struct kref		refs;
	u32			rights;
	struct tow_assoc	*assoc;
	struct tow_label	label;
	bool			wait;
	bool			failed;
	bool			closed;
	atomic_t		inflight;
	struct completion	settled;
	int			error;
	atomic_t		via;
	u64			notified;
	struct llist_node	quiet_node;

	enum tow_remote_state	state;
	bool			cached;
	bool			busy;
	bool			quiet;
	bool			given_up;
	u32			users;
	u32			number;
	u64			grant;
	u64			bytes;
	u32			total;
	u32			have;
	u64			known;
	struct tow_segment	*segments;
	struct list_head	link;
	struct rcu_head		rcu;
	u8			name[];
};

/**
 * struct tow_remote_target - where an operation goes
 * @address: as the key has it
 * @key: the remote key
 * @bytes: how much of the range the key opens there, as much as was asked at
 *	most
 */
struct tow_remote_target {
	u64	address;
	u32	key;
	u64	bytes;
};

static inline bool tow_remote_is_slot(const struct tow_remote *remote)
{
	return remote->rights == TOW_RIGHT_NOTIFY;
}

/*
 * As tow_remote_enter(), while an operation that the caller began is in flight: what
 * ends meanwhile waits for both.
 */
static inline void tow_remote_enter_again(struct tow_remote *remote)
{
	atomic_inc(&remote->inflight);
}

/* remote.c */
int tow_remote_open(struct tow_assoc *assoc, const struct tow_label *label,
		    u32 rights, bool wait, struct tow_remote **result);
int tow_remote_wait(struct tow_remote *remote, unsigned long time);
int tow_remote_close(struct tow_remote *remote);
void tow_remote_get(struct tow_remote *remote);
void tow_remote_get_many(struct tow_remote *remote, u32 count);
bool tow_remote_try_get(struct tow_remote *remote);
void tow_remote_put(struct tow_remote *remote);
void tow_remote_put_many(struct tow_remote *remote, u32 count);
void tow_remote_reap(struct tow_directory *dir);
void tow_remote_assoc_init(struct tow_assoc *assoc);
void tow_remote_assoc_lost(struct tow_assoc *assoc);
void tow_remote_assoc_gone(struct tow_assoc *assoc);
void tow_remote_assoc_cleanup(struct tow_assoc *assoc);

/* rma/rmr.c */
const struct tow_segment *tow_remote_segment(const struct tow_remote *remote,
					     u64 offset);
int tow_remote_enter(struct tow_remote *remote);
int tow_remote_check_slot(struct tow_remote *remote, unsigned int link);
u32 tow_remote_notify(struct tow_remote *remote);
void tow_remote_leave(struct tow_remote *remote, int count, int status);

/*
 * What follows is done for every operation, and so is not called.
 */

/**
 * tow_remote_usable - has neither the export nor the connection ended so far?
 * @remote: was VALID once
 *
 * Return: whether it may be used.
 */
static inline bool tow_remote_usable(const struct tow_remote *remote)
{
	return READ_ONCE(remote->state) == TOW_REMOTE_VALID;
}

/**
 * tow_remote_check - may that be done with a part of a range?
 * @remote: was VALID once
 * @offset: where the part begins
 * @bytes: its size
 * @rights: bits of enum tow_right: what is done
 *
 * Return: 0; -EACCES: it was not resolved with those rights; -ERANGE: it is not
 * within the range.
 */
static inline int tow_remote_check(const struct tow_remote *remote, u64 offset,
				   u64 bytes, u32 rights)
{
	if (rights & ~remote->rights)
		return -EACCES;
	if (bytes > remote->bytes || offset > remote->bytes - bytes)
		return -ERANGE;
	return 0;
}

/**
 * tow_remote_locate - where is a part of a range?
 * @remote: was VALID once
 * @offset: where the part begins
 * @bytes: its size, at least 1; the part is within the range
 * @target: where that is; not all of it, if several keys open it
 */
static inline void tow_remote_locate(const struct tow_remote *remote, u64 offset,
				     u64 bytes, struct tow_remote_target *target)
{
	const struct tow_segment *segment = remote->segments;
	u64 end = remote->bytes;

	if (remote->total > 1) {
		segment = tow_remote_segment(remote, offset);
		if (segment != &remote->segments[remote->total - 1])
			end = segment[1].offset;
	}
	target->address = segment->address + (offset - segment->offset);
	target->key = segment->key;
	target->bytes = min(bytes, end - offset);
}

/* Called by resolve.c with tow_assoc_dir.lock held. */
void tow_remote_wake(struct tow_remote *remote, int error);
void tow_remote_make_valid(struct tow_remote *remote);
int tow_remote_ask(struct tow_remote *remote);
void tow_remote_asked(struct tow_remote *remote);
int tow_remote_granted(struct tow_remote *remote, u64 grant);
void tow_remote_refuse(struct tow_remote *remote, int error);
void tow_remote_end(struct tow_remote *remote, bool given_up);
void tow_remote_forget(struct tow_remote *remote);

/* resolve.c */
int tow_answer_receive(struct tow_assoc *assoc, u8 type, u32 number,
		       void *body, size_t bytes);
size_t tow_answer_fill(struct tow_assoc *assoc, u8 *type, u32 *number,
		       void *body);

#endif /* TOW_REMOTE_H */
