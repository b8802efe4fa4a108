/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Remote ranges: exports of peers that this node has found.
 */
#ifndef TOW_REMOTE_H
#define TOW_REMOTE_H

#include <linux/atomic.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/llist.h>

#include "directory.h"
#include "memory/memory.h"
#include "peer.h"

/**
 * enum tow_remote_state - states of a remote range
 * @TOW_REMOTE_ASKING: a request was sent, or will be; not all segments are
 *	known
 * @TOW_REMOTE_VALID: operations may begin
 * @TOW_REMOTE_ENDING: no operation begins; some may be in flight, and the peer
 *	still has the grant
 * @TOW_REMOTE_ENDED: the peer has no grant
 *
 * ASKING to VALID, or to ENDING (the peer had granted it already) or ENDED;
 * VALID to ENDING; ENDING to ENDED; ENDED to ENDING: the peer granted it after
 * the last call had ceased to wait.
 */
enum tow_remote_state {
	TOW_REMOTE_ASKING,
	TOW_REMOTE_VALID,
	TOW_REMOTE_ENDING,
	TOW_REMOTE_ENDED
};

/**
 * struct tow_segment - a part of a remote range under one remote key
 * @address: of its first byte, under @key; of a slot: after which number
 *	notifications begin
 * @offset: of its first byte in the remote range
 * @key: the remote key; of a slot: the slot's number
 */
struct tow_segment {
	u64	address;
	u64	offset;
	u32	key;
};

/**
 * struct tow_remote - an export of a peer
 * @refs: held by tow_assoc_dir.requests and .remotes, by each of @users, and by
 *	requests of queues
 * @rights: bits of enum tow_right: what was asked for
 * @assoc: the association with the peer, with a reference; NULL: not opened yet
 * @label: its name and job, in tow_assoc_dir.cache if @cached
 * @wait: ASKING: the peer answers when the name is published; else at once
 * @failed: an operation failed: only the end of the queue pairs ends the grant
 * @closed: of a slot: none may be notified any more: see tow_remote_missed(); read
 *	and written without a lock
 * @inflight: 1 while VALID, plus 1 for each operation in flight
 * @lookups: struct tow_lookup that are woken when it is not ASKING any more; under
 *	tow_assoc_dir.lock
 * @error: when it is not ASKING: why it is not VALID; 0: it is, or was
 * @via: of a slot, 8 bits for each of its lanes: the queue pair that sends its
 *	notifications, counted from 1; 0: not chosen yet
 * @notified: of a slot, for each of its lanes: how many notifications were sent,
 *	including those of its earlier holders, as far as an immediate tells; under
 *	the lock of the queue pair
 * @quiet_node: in tow_directory.quiet
 * @state: written under tow_assoc_dir.lock, read without it; all that follows
 *	is under this lock, but @bytes, @total and @segments do not change once
 *	VALID
 * @cached: in tow_assoc_dir.cache: other calls may share it
 * @busy: it counts in tow_assoc.users
 * @quiet: drained: nothing is in flight, nor will be
 * @given_up: ENDING: released by us, not revoked by the peer
 * @users: handles, and calls that wait for the answer
 * @number: of its request, which is in tow_assoc_dir.requests, or reserved
 *	there until it is; 0: it was answered
 * @grant: the grant's number in the association; 0: none
 * @bytes: its size
 * @total: how many segments it has
 * @have: how many segments are known
 * @known: how many bytes are in known segments
 * @segments: in the order of its bytes; while ASKING, with room for
 *	tow_answer_room() of them
 * @mark: in tow_assoc_dir.released: tow_session_mark() of its message
 * @link: in one of the lists of tow_assoc_dir
 * @rcu: frees it
 * @name: of @label
 *
 * With a name of 32 bytes it takes 256 bytes, so it should not grow.
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
	struct hlist_head	lookups;
	int			error;
	atomic_t		via;
	u16			notified[TOW_SLOT_WIDTH_MAX];
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
	u32			mark;
	struct list_head	link;
	struct rcu_head		rcu;
	u8			name[];
};

/**
 * struct tow_lookup - a program looks for an export of a peer, or for the peer at an
 *	address
 * @wake: called when to call tow_lookup_step() again, with locks held; does not sleep
 * @seeker: waits until the peer is connected
 * @link: in tow_remote.lookups of @remote
 * @peer: the peer, with a reference; NULL: it is sought
 * @address: where, if a peer is sought
 * @dials: a peer is sought: what follows @client is not used, but @seek_until
 * @client: the program's, with a reference; its user's attempts to connect are limited
 * @fresh: for tow_remote_open(); NULL: it has got @remote
 * @remote: the remote range, opened; NULL: not yet, or given to a handle
 * @handle: for @remote, from tow_lookup_begin(); NULL: the client has it
 * @number: reserved for @handle; 0: it is not
 * @session: in which @remote was opened, with a reference; NULL: not connected
 * @again: it was tried a second time
 * @seek_until: until when to wait for @session, in jiffies
 * @until: until when to wait for the answer; likewise
 */
struct tow_lookup {
	void			(*wake)(struct tow_lookup *lookup);
	struct tow_seeker	seeker;
	struct hlist_node	link;
	struct tow_peer		*peer;
	struct tow_address	address;
	bool			dials;
	struct tow_client	*client;
	struct tow_remote	*fresh;
	struct tow_remote	*remote;
	struct tow_handle	*handle;
	u64			number;
	struct tow_session	*session;
	bool			again;
	unsigned long		seek_until;
	unsigned long		until;
};

static inline bool tow_remote_is_slot(const struct tow_remote *remote)
{
	return remote->rights & TOW_RIGHT_NOTIFY;
}

/**
 * tow_remote_missed - a notification of a slot was not sent
 * @slot: the slot
 * @numbered: it was on its way, and had a number
 *
 * The peer would take the next one for it.  Of a slot with several lanes it would
 * do so on one lane only, and count what is of different steps together.
 */
static inline void tow_remote_missed(struct tow_remote *slot, bool numbered)
{
	if (numbered || tow_rights_width(slot->rights) > 1)
		WRITE_ONCE(slot->closed, true);
}

/*
 * As tow_remote_enter() for @count operations, while another one of the caller is
 * in flight on the remote range: this cannot fail.
 */
static inline void tow_remote_enter_again(struct tow_remote *remote, int count)
{
	atomic_add(count, &remote->inflight);
}

/* remote.c */
struct tow_remote *tow_remote_new(const struct tow_label *label, u32 rights,
				  bool wait);
int tow_remote_open(struct tow_assoc *assoc, struct tow_remote *fresh,
		    struct tow_lookup *lookup, struct tow_remote **result);
int tow_remote_look(struct tow_remote *remote, struct tow_lookup *lookup);
void tow_remote_unlook(struct tow_remote *remote, struct tow_lookup *lookup);
int tow_remote_close(struct tow_remote *remote);
void tow_remote_get(struct tow_remote *remote);
void tow_remote_get_many(struct tow_remote *remote, u32 count);
bool tow_remote_try_get(struct tow_remote *remote);
void tow_remote_put(struct tow_remote *remote);
void tow_remote_put_many(struct tow_remote *remote, u32 count);
void tow_remote_reap(struct tow_directory *dir);
void tow_remote_assoc_init(struct tow_assoc *assoc);
void tow_remote_assoc_apart(struct tow_assoc *assoc);
void tow_remote_assoc_lost(struct tow_assoc *assoc);
void tow_remote_assoc_gone(struct tow_assoc *assoc);

/* rma/rmr.c */
const struct tow_segment *tow_remote_segment(const struct tow_remote *remote,
					     u64 offset);
int tow_remote_enter(struct tow_remote *remote);
int tow_remote_check_slot(const struct tow_remote *remote, unsigned int link);
int tow_remote_bind_slot(struct tow_remote *remote, unsigned int link);
u16 *tow_remote_lane(struct tow_remote *remote, unsigned int link);
u32 tow_remote_notify(struct tow_remote *remote, unsigned int link);
void tow_remote_leave(struct tow_remote *remote, int count, int status);

/*
 * Inline, as they run for every operation.
 */

/**
 * tow_remote_usable - may operations begin on a remote range?
 * @remote: was VALID once
 *
 * Return: false: the export or the association has ended.
 */
static inline bool tow_remote_usable(const struct tow_remote *remote)
{
	return READ_ONCE(remote->state) == TOW_REMOTE_VALID;
}

/* Are the bytes within the remote range, which was VALID once? */
static inline bool tow_remote_has(const struct tow_remote *remote, u64 offset,
				  u64 bytes)
{
	return bytes <= remote->bytes && offset <= remote->bytes - bytes;
}

/**
 * tow_remote_check - has a remote range these bytes and these rights?
 * @remote: was VALID once
 * @offset: of the first byte
 * @bytes: how many
 * @rights: bits of enum tow_right: what the operation does
 *
 * Return: 0; -EACCES: @remote was not resolved with @rights; -ERANGE: the bytes
 * are not all in it.
 */
static inline int tow_remote_check(const struct tow_remote *remote, u64 offset,
				   u64 bytes, u32 rights)
{
	if (rights & ~remote->rights)
		return -EACCES;
	return tow_remote_has(remote, offset, bytes) ? 0 : -ERANGE;
}

/**
 * tow_remote_reach - which bytes of a remote range are under one key?
 * @remote: was VALID once
 * @offset: of one of them, in the range
 * @reach: becomes all of them
 */
static inline void tow_remote_reach(const struct tow_remote *remote, u64 offset,
				    struct tow_reach *reach)
{
	const struct tow_segment *segment = remote->segments;
	u64 end = remote->bytes;

	if (remote->total > 1) {
		segment = tow_remote_segment(remote, offset);
		if (segment != &remote->segments[remote->total - 1])
			end = segment[1].offset;
	}
	reach->start = segment->offset;
	reach->bytes = end - segment->offset;
	reach->address = segment->address;
	reach->key = segment->key;
}

/* Called by resolve.c with tow_assoc_dir.lock held. */
void tow_remote_wake(struct tow_remote *remote, int error);
void tow_remote_make_valid(struct tow_remote *remote);
void tow_remote_ask(struct tow_remote *remote);
void tow_remote_asked(struct tow_remote *remote);
int tow_remote_granted(struct tow_remote *remote, u64 grant);
void tow_remote_refuse(struct tow_remote *remote, int error);
void tow_remote_end(struct tow_remote *remote, bool given_up);
void tow_remote_forget(struct tow_remote *remote);

/* lookup.c */
void tow_lookup_init(struct tow_lookup *lookup, struct tow_client *client,
		     struct tow_peer *peer, u32 timeout_ms);
int tow_lookup_begin_dial(struct tow_lookup *lookup, struct tow_client *client,
			  const struct tow_resolve_request *request);
int tow_lookup_step(struct tow_lookup *lookup, struct tow_assoc **asked);
void tow_lookup_send(struct tow_assoc **asked);
long tow_lookup_left(const struct tow_lookup *lookup);
int tow_lookup_late(const struct tow_lookup *lookup);
void tow_lookup_end(struct tow_lookup *lookup);

/* ioctl.c */
int tow_lookup_begin(struct tow_lookup *lookup, struct tow_client *client,
		     const struct tow_resolve *call);
int tow_lookup_give(struct tow_lookup *lookup, struct tow_resolve *call);

/* resolve.c */
int tow_answer_receive(struct tow_assoc *assoc, u8 type, u32 number,
		       void *body, size_t bytes);
size_t tow_answer_fill(struct tow_session *session, u8 *type, u32 *number,
		       void *body);

#endif /* TOW_REMOTE_H */
