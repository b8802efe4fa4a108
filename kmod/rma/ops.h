/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Operations on remote ranges, and how they share a queue pair.
 */
#ifndef TOW_OPS_H
#define TOW_OPS_H

#include <linux/atomic.h>
#include <linux/sizes.h>
#include <linux/types.h>
#include <rdma/ib_verbs.h>

#include "link.h"
#include "memory/memory.h"
#include "remote.h"
#include "uapi/towline.h"

struct tow_account;
struct tow_device;
struct tow_flow;
struct tow_peer;
struct tow_region;
struct tow_session;
struct tow_assoc;

/*
 * Default and maximum of op_stall_ms: a session ends when nothing completes on
 * one of its queue pairs for so long.  The default is much longer than the
 * second or two that an RDMA device takes to give up, and than the few
 * megabytes in flight take.
 */
#define TOW_OP_STALL_MS		30000
#define TOW_OP_STALL_MAX_MS	3600000

/**
 * enum tow_claim - what has happened to an operation with a deadline; bits
 * @TOW_CLAIM_BEGUN: the operation has begun
 * @TOW_CLAIM_POSTED: some of it was posted
 * @TOW_CLAIM_LATE: its deadline has passed: nothing more of it is posted
 *
 * Setting a bit returns the bits that were set before.  So tow_req_is_late()
 * knows whether any of a late operation was posted.
 */
enum tow_claim {
	TOW_CLAIM_BEGUN		= 1 << 0,
	TOW_CLAIM_POSTED	= 1 << 1,
	TOW_CLAIM_LATE		= 1 << 2
};

/**
 * struct tow_vec - the pieces of an operation
 * @charge: for its memory
 * @index: the piece that has the operation's cursor, or ends there
 * @before: bytes of the pieces before that one.  Both are 0 at first, and under the
 *	lock of the operation's link
 * @count: how many @pieces
 * @pieces: in order, none of them empty
 */
struct tow_vec {
	struct tow_charge	charge;
	u32			index;
	u64			before;
	u32			count;
	struct tow_vector	pieces[];
};

/**
 * struct tow_op - one operation on a remote range
 * @flow: the flow that it belongs to
 * @region: memory on our side, kept by the caller until tow_flow.done; NULL: there is
 *	no data, or it is @payload, and @offset is 0
 * @offset: where the data begins in @region, in bytes
 * @remote: memory on the peer's side, kept by the caller until tow_flow.done
 * @remote_offset: where the data begins in @remote, in bytes
 * @bytes: size of the data
 * @slot: the peer's slot that is notified after the data, kept by the caller
 *	until tow_flow.done; NULL: none.  A notification without data has @slot
 *	as its @remote, and @bytes is 0
 * @operand: of an atomic: the number to add, or the new value
 * @compare: of a compare-and-swap: the expected value
 * @payload: of a write without @region: the data
 * @claim: bits of enum tow_claim; NULL: the operation has no deadline
 * @vec: its pieces, owned by the caller: @bytes is their sum, and @offset and
 *	@remote_offset are not used; NULL: it is one piece
 * @opcode: enum tow_opcode: one of the operations
 *
 * @next: in a struct tow_op_list, or in the same work request
 * @cursor: where the next work request begins, in bytes; @bytes: there is no
 *	more data to post
 * @pieces: work requests in flight
 * @status: the first error, a negative errno; 0: none
 * @like: no work request of it was posted, and the operation before it in its
 *	flow is like it (tow_ops_begin_run())
 * @to_tell: the notification of @slot was not posted yet
 * @replayed: it was posted from its beginning once more
 * @moved: since it began, or began once more, a work request of it has
 *	completed that filled whole packets
 * @lost: a work request did not succeed, and will not be posted again
 * @again: replay.c: a work request did not complete, and the whole operation is to
 *	be posted once more
 * @told: its notification had a number, which was taken back
 * @tried: how often one of its work requests failed by itself, up to
 *	TOW_OP_TRIES
 * @mark: number of its last work request that broke, during a replay
 *
 * The caller sets the fields before @next.  tow_ops_begin() sets the others,
 * which are under the lock of the operation's link.
 */
struct tow_op {
	struct tow_flow		*flow;
	struct tow_region	*region;
	u64			offset;
	struct tow_remote	*remote;
	u64			remote_offset;
	u64			bytes;
	struct tow_remote	*slot;
	union {
		struct {
			u64	operand;
			u64	compare;
		};
		u8		payload[TOW_INLINE_MAX];
	};
	atomic_t		*claim;
	struct tow_vec		*vec;
	u8			opcode;

	struct tow_op		*next;
	u64			cursor;
	u32			pieces;
	int			status;
	bool			like;
	bool			to_tell;
	bool			replayed;
	bool			moved;
	bool			lost;
	bool			again;
	bool			told;
	u8			tried;
	u32			mark;
};

/**
 * struct tow_op_list - a list of operations
 * @first: NULL: the list is empty
 * @end: where the next operation is linked
 */
struct tow_op_list {
	struct tow_op	*first;
	struct tow_op	**end;
};

/**
 * struct tow_share - flows that share their turns on a link: those of one client
 * @via: the link where they have joined; NULL: none has.  All but this is under the
 *	lock of @via
 * @joined: how many of them
 * @next: in tow_link.shares while @flows is not empty
 * @flows: those that may post, the next one first; NULL: none
 * @flows_end: where the next one is added
 * @credit: bytes that they may post in this turn
 */
struct tow_share {
	struct tow_link		*via;
	unsigned int		joined;
	struct tow_share	*next;
	struct tow_flow		*flows;
	struct tow_flow		**flows_end;
	s64			credit;
};

/**
 * struct tow_flow - the operations of one user on one queue pair
 * @peer: the peer, with a reference
 * @index: which of the peer's data queue pairs
 * @loopback: the peer is our own node
 * @done: called with operations that have ended, linked by @next, which are the
 *	caller's again; in process context, with no link's lock
 * @shared: the client's share for @index; the caller keeps it
 * @own: used while @shared is used on another link, of an association that ends
 *
 * @next: in tow_share.flows or tow_link.starved while @ops is not empty; it and the
 *	fields up to @ops are under the lock of @via
 * @via: the link where @ops wait; NULL: none.  Changed only while @ops is empty
 * @share: while @via is not NULL: @shared or @own
 * @ops: operations that are not wholly posted, in order
 * @stopped: 0; a negative errno: nothing more is posted.  Read without a lock
 * @busy: of @loopback: operations that have begun and not ended.  More only where they
 *	begin, one after the other; less anywhere
 */
struct tow_flow {
	struct tow_peer		*peer;
	unsigned int		index;
	bool			loopback;
	void			(*done)(struct tow_op *ops);
	struct tow_share	*shared;
	struct tow_share	own;
	struct tow_flow		*next;
	struct tow_link		*via;
	struct tow_share	*share;
	struct tow_op_list	ops;
	int			stopped;
	atomic_t		busy;
};

/* Links that the operations of one plug are for, at most. */
#define TOW_PLUG_LINKS		4

/**
 * struct tow_plug_link - operations of a plug that are for one link
 * @link: the link
 * @assoc: the association of @link, with a reference
 * @ops: the operations, in order
 */
struct tow_plug_link {
	struct tow_link		*link;
	struct tow_assoc	*assoc;
	struct tow_op_list	ops;
};

/**
 * struct tow_plug - operations that begin together
 * @links: the operations, by link
 * @count: how many of @links
 * @at: the one of @links that @last is for
 * @last: the operation that was added last; NULL: there is none
 * @waits: operations that were flushed could not all be posted at once
 * @known: completion queues that the caller knows
 * @fresh: others, where operations that were flushed complete, with references
 */
struct tow_plug {
	struct tow_plug_link	links[TOW_PLUG_LINKS];
	unsigned int		count;
	struct tow_plug_link	*at;
	struct tow_op		*last;
	bool			waits;
	const struct tow_cqs	*known;
	struct tow_cqs		fresh;
};

static inline void tow_op_list_init(struct tow_op_list *list)
{
	list->first = NULL;
	list->end = &list->first;
}

/* Add the operations from @first to @last, which are linked already. */
static inline void tow_op_list_add(struct tow_op_list *list,
				   struct tow_op *first, struct tow_op *last)
{
	last->next = NULL;
	*list->end = first;
	list->end = &last->next;
}

static inline void tow_plug_add(struct tow_plug *plug, struct tow_op *op)
{
	tow_op_list_add(&plug->at->ops, op, op);
	plug->last = op;
}

static inline bool tow_op_is_read(const struct tow_op *op)
{
	return op->opcode == TOW_OP_READ;
}

static inline bool tow_op_is_atomic(const struct tow_op *op)
{
	return op->opcode == TOW_OP_FETCH_ADD ||
	       op->opcode == TOW_OP_COMPARE_SWAP;
}

/* Is what it writes in the operation itself? */
static inline bool tow_op_is_inline(const struct tow_op *op)
{
	return !op->region && op->bytes;
}

/* Has the operation's deadline passed? */
static inline bool tow_op_is_late(const struct tow_op *op)
{
	return unlikely(op->claim) && atomic_read(op->claim) & TOW_CLAIM_LATE;
}

/* Set a bit of enum tow_claim.  Return: false: the operation is late. */
static inline bool tow_op_claim(const struct tow_op *op, enum tow_claim claim)
{
	return likely(!op->claim) ||
	       !(atomic_fetch_or(claim, op->claim) & TOW_CLAIM_LATE);
}

/* ops.c */
void tow_share_init(struct tow_share *share);
void tow_flow_init(struct tow_flow *flow, struct tow_peer *peer,
		   unsigned int index, void (*done)(struct tow_op *ops));
void tow_flow_cleanup(struct tow_flow *flow);
void tow_plug_init(struct tow_plug *plug, const struct tow_cqs *known);
int tow_ops_check(struct tow_op *op);
int tow_ops_check_slot(struct tow_op *op);
void tow_ops_begin_first(struct tow_op *op, struct tow_plug *plug);
void tow_ops_begin_run(struct tow_op *first, struct tow_op *last, u32 count,
		       struct tow_plug *plug);
void tow_ops_flush(struct tow_plug *plug);
void tow_ops_stop(struct tow_flow *flow, int error);
void tow_ops_close(struct tow_link *link, bool over);
bool tow_ops_stall(struct tow_assoc *assoc, u32 limit_ms);
void tow_ops_look(struct tow_device *dev, unsigned int look);

/* Nothing has happened to an operation; it has no slot.  @like: see struct tow_op. */
static inline void tow_op_begin_state(struct tow_op *op, bool like)
{
	op->cursor = 0;
	op->pieces = 0;
	op->status = 0;
	op->like = like;
	op->to_tell = false;
	op->replayed = false;
	op->moved = false;
	op->lost = false;
	op->again = false;
	op->told = false;
	op->tried = 0;
}

/* Has the plug's last operation the same flow and remote range as @op? */
static inline bool tow_plug_has_such(const struct tow_plug *plug,
				     const struct tow_op *op)
{
	return plug->last && plug->last->flow == op->flow &&
	       plug->last->remote == op->remote && op->bytes && !op->slot;
}

/**
 * tow_ops_begin - begin an operation
 * @op: the operation, complete, which tow_ops_check() has accepted.  Its flow's
 *	@done may be called before this returns
 * @plug: holds the operation until tow_ops_flush(), which is called here if the
 *	plug has operations of too many other queue pairs
 *
 * In process context, like all functions below.  The status that @done finds:
 * 0; -ESTALE: the export or the connection had ended before; -ECONNRESET: the
 * connection has ended meanwhile; -EIO: the peer has refused it; -EFAULT: our
 * memory was taken back; -ETIMEDOUT: it was late; the error of tow_ops_stop().
 */
static inline void tow_ops_begin(struct tow_op *op, struct tow_plug *plug)
{
	op->next = NULL;
	tow_op_begin_state(op, false);
	op->to_tell = op->slot;
	if (!tow_plug_has_such(plug, op)) {
		tow_ops_begin_first(op, plug);
		return;
	}
	/* The plug's last operation keeps the range in flight. */
	tow_remote_enter_again(op->remote, 1);
	if (unlikely(op->flow->loopback))
		atomic_inc(&op->flow->busy);
	tow_plug_add(plug, op);
}

/* vector.c */
struct tow_vec *tow_vec_new(struct tow_account *account,
			    const struct tow_region *region, u64 offset,
			    u32 count);
void tow_vec_free(struct tow_vec *vec);

/* post.c */
int tow_ops_prepare(struct tow_link *link, u32 *depth);
void tow_ops_abandon(struct tow_link *link);

#endif /* TOW_OPS_H */
