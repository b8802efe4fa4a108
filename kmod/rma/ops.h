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

#include "event.h"
#include "memory/memory.h"
#include "remote.h"
#include "uapi/towline.h"

struct tow_cq;
struct tow_device;
struct tow_flow;
struct tow_link;
struct tow_peer;
struct tow_region;
struct tow_session;
struct tow_stripe;
struct tow_stripes;
struct tow_assoc;

/* Operations of that many bytes are striped, until the administrator says otherwise. */
#define TOW_STRIPE_BYTES	SZ_4M

/*
 * A queue pair of which nothing completes for that long is given up, until the
 * administrator says otherwise.  Long after the RDMA device has given up by itself, if it
 * can, which it does in a second or two; and what is on its way at once is megabytes.
 */
#define TOW_OP_STALL_MS		30000
#define TOW_OP_STALL_MAX_MS	3600000

/**
 * enum tow_claim - what has become of an operation that has a deadline; bits
 * @TOW_CLAIM_BEGUN: it has begun
 * @TOW_CLAIM_POSTED: some of it is on its way, or was
 * @TOW_CLAIM_LATE: its deadline has passed: nothing more of it is posted
 *
 * Who sets one sees which of the others were set before: so it is known of what is
 * late whether any of it was posted.
 */
enum tow_claim {
	TOW_CLAIM_BEGUN		= 1 << 0,
	TOW_CLAIM_POSTED	= 1 << 1,
	TOW_CLAIM_LATE		= 1 << 2
};

/**
 * struct tow_op - one operation on a remote range
 * @flow: whose turn it takes
 * @region: memory on our side, kept by the caller until tow_flow.done
 * @offset: where in it, in bytes
 * @remote: memory on the peer's side, kept by the caller until tow_flow.done
 * @remote_offset: where in it, in bytes
 * @bytes: how much
 * @slot: a slot of the peer's that is notified then, kept by the caller until
 *	tow_flow.done; NULL: none.  Without data it is @remote, too, and @bytes is 0
 * @operand: of an atomic
 * @compare: of a compare-and-swap
 * @claim: it has a deadline: bits of enum tow_claim; NULL: it has none
 * @opcode: enum tow_opcode: one of the operations
 *
 * @next: in a struct tow_op_list, or in the same work request
 * @cursor: bytes that are on their way, or were
 * @to_tell: @slot is to be notified yet
 * @pieces: work requests of it in flight; if it is striped, its parts that have not
 *	ended count, too
 * @status: what went wrong; 0 at its end: it has succeeded
 * @lost: some of it was on its way when the queue pair broke, for good
 * @again: some of it was, and all of it is to be posted once more: replay.c
 * @tried: how often that was so, up to TOW_OP_TRIES
 * @told: its notification had a number, which was taken back
 * @mark: the number of its last work request that broke, while that is dealt with
 * @stripe: it is striped, or a part of one that is; else NULL
 * @taken: striped: bytes up to which @cursor may go; what follows is to be taken
 *	first, as others may have it
 *
 * The caller sets those before @next; the others are tow_ops_begin()'s.
 */
struct tow_op {
	struct tow_flow		*flow;
	struct tow_region	*region;
	u64			offset;
	struct tow_remote	*remote;
	u64			remote_offset;
	u64			bytes;
	struct tow_remote	*slot;
	u64			operand;
	u64			compare;
	atomic_t		*claim;
	u8			opcode;

	struct tow_op		*next;
	u64			cursor;
	bool			to_tell;
	u32			pieces;
	int			status;
	bool			lost;
	bool			again;
	u8			tried;
	bool			told;
	u32			mark;
	struct tow_stripe	*stripe;
	u64			taken;
};

/**
 * struct tow_op_list - operations one after the other
 * @first: NULL: there are none
 * @end: where the next one goes
 */
struct tow_op_list {
	struct tow_op	*first;
	struct tow_op	**end;
};

/**
 * struct tow_flow - the operations of one user on one queue pair
 * @peer: whose queue pair, with a reference
 * @index: which of its data queue pairs
 * @done: called with operations that have ended, linked by @next, which are the
 *	caller's again; in process context, with no lock of a link.  NULL: its
 *	operations are parts of striped ones
 * @quantum: bytes that it may post more, when it is its turn again
 * @stripes: what striping needs; NULL: nothing of it is striped
 *
 * @next: in tow_link.flows or .starved while @ops is not empty; this and what
 *	follows is under the lock of @via
 * @via: where @ops wait; changed only while there are none
 * @ops: those that wait, or are partly on their way, in order
 * @credit: bytes that it may post before it is the others' turn
 * @last: the number of the last work request of what is not striped, or the one after
 * @striped: bit mask of @stripes in use: what follows may have to wait for them; of
 *	parts never 0.  Atomic
 * @stopped: nothing more of it is posted: why; read without the lock
 *
 * @told: what the program was told of the peer; under tow_peers.lock
 *
 * @taken: entries that named it when they were taken, wrapping around; under
 *	tow_queue.submit
 * @ended: those of them that have ended, likewise; under tow_queue.lock
 *
 * @part: if its operations are parts: called, as @done is, with each that is to begin
 *	or has ended, and with the list for what has ended by that
 */
struct tow_flow {
	struct tow_peer		*peer;
	unsigned int		index;
	void			(*done)(struct tow_op *ops);
	s64			quantum;
	struct tow_stripes	*stripes;
	struct tow_flow		*next;
	struct tow_link		*via;
	struct tow_op_list	ops;
	s64			credit;
	u32			last;
	unsigned long		striped;
	int			stopped;
	struct tow_peer_events	told;
	u32			taken;
	u32			ended;
	void			(*part)(struct tow_op *part,
					struct tow_op_list *ended);
};

/**
 * struct tow_plug - operations that begin together
 * @link: on this queue pair; NULL: there are none
 * @assoc: whose it is, with a reference
 * @waits: not all that was flushed could be posted at once
 * @ops: in order
 * @last: of @ops; NULL: there are none
 */
struct tow_plug {
	struct tow_link		*link;
	struct tow_assoc	*assoc;
	bool			waits;
	struct tow_op_list	ops;
	struct tow_op		*last;
};

static inline void tow_op_list_init(struct tow_op_list *list)
{
	list->first = NULL;
	list->end = &list->first;
}

/* Those from @first to @last, which are linked already. */
static inline void tow_op_list_add(struct tow_op_list *list,
				   struct tow_op *first, struct tow_op *last)
{
	last->next = NULL;
	*list->end = first;
	list->end = &last->next;
}

static inline void tow_plug_add(struct tow_plug *plug, struct tow_op *op)
{
	tow_op_list_add(&plug->ops, op, op);
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

/* Has its deadline passed? */
static inline bool tow_op_is_late(const struct tow_op *op)
{
	return unlikely(op->claim) && atomic_read(op->claim) & TOW_CLAIM_LATE;
}

/* Something is about to be done with it.  Return: false: it must not, it is late. */
static inline bool tow_op_claim(const struct tow_op *op, enum tow_claim claim)
{
	return likely(!op->claim) ||
	       !(atomic_fetch_or(claim, op->claim) & TOW_CLAIM_LATE);
}

/* ops.c */
void tow_flow_init(struct tow_flow *flow, struct tow_peer *peer,
		   unsigned int index, void (*done)(struct tow_op *ops));
void tow_flow_cleanup(struct tow_flow *flow);
void tow_plug_init(struct tow_plug *plug);
int tow_ops_check(struct tow_op *op);
int tow_ops_check_slot(struct tow_op *op);
void tow_ops_begin_first(struct tow_op *op, struct tow_plug *plug);
struct tow_cq *tow_ops_flush(struct tow_plug *plug, const struct tow_cq *known);
void tow_ops_stop(struct tow_flow *flow, int error);
void tow_ops_close(struct tow_link *link, bool over);
bool tow_ops_stall(struct tow_assoc *assoc, u32 limit_ms);
void tow_ops_look(struct tow_device *dev, unsigned int look);

/* Is the last one there of the same flow and on the same remote range? */
static inline bool tow_plug_has_such(const struct tow_plug *plug,
				     const struct tow_op *op)
{
	return plug->last && plug->last->flow == op->flow &&
	       plug->last->remote == op->remote && op->bytes && !op->slot;
}

/**
 * tow_ops_begin - begin an operation
 * @op: the operation, complete, that tow_ops_check() found right.  Its flow's
 *	@done may be called before this returns
 * @plug: it begins with others, when this is flushed; which happens here if they
 *	are on another queue pair
 *
 * In process context, like all that follows.  What @done is called with:
 * 0; -ESTALE: the export or the connection had ended before; -ECONNRESET: the
 * connection has ended meanwhile; -EIO: the peer has refused it; -EFAULT: our memory
 * was taken back; -ETIMEDOUT: it was late; what tow_ops_stop() says.
 */
static inline void tow_ops_begin(struct tow_op *op, struct tow_plug *plug)
{
	op->next = NULL;
	op->cursor = 0;
	op->to_tell = op->slot;
	op->pieces = 0;
	op->lost = false;
	op->again = false;
	op->tried = 0;
	op->told = false;
	op->stripe = NULL;
	op->status = 0;
	if (!tow_plug_has_such(plug, op)) {
		tow_ops_begin_first(op, plug);
		return;
	}
	/* The one before holds what this needs to be held. */
	tow_remote_enter_again(op->remote);
	tow_plug_add(plug, op);
}

/* post.c */
int tow_ops_prepare(struct tow_link *link, u32 *depth);
void tow_ops_abandon(struct tow_link *link);
void tow_ops_cleanup(struct tow_link *link);

#endif /* TOW_OPS_H */
