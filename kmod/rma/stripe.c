// SPDX-License-Identifier: GPL-2.0
/*
 * Striping: an operation of stripe_bytes or more uses several queue pairs of
 * its peer at once.
 *
 * Normal operation
 *
 * When an operation has its turn on its own queue pair it gets a struct
 * tow_stripe and sends out parts: one operation for each other queue pair,
 * which takes turns there in a flow for parts.  All of them share one cursor.
 * The operation, or a part, that has its turn takes the next bytes at the
 * cursor and posts them, and takes more when some of them have completed.  So a
 * busy queue pair carries less, and no queue pair has more in flight than its
 * share.  A part that finds no bytes left ends.  The operation counts the end
 * of a part like that of a work request, and ends when all of these have.
 *
 * The locks of two links are never held together: parts are passed in the lists
 * of ended operations, and tow_ops_end() hands them to ops.c.  This file posts
 * nothing: it says how large the next work request may be.
 *
 * Order
 *
 * Parts begin when all that the flow posted before has completed, except
 * striped operations that they may overtake.  A later operation of the flow
 * waits until the parts before it have ended if it notifies, is an atomic, is a
 * write that is not striped (the peer might take its arrival for theirs), or
 * touches the memory that they touch.  Two remote ranges may be the same
 * memory, and so may two regions: only two places of one range, or of one
 * region, are known to be different.  The notification of a striped operation
 * is posted after its parts have ended.
 *
 * Failure
 *
 * A part that fails breaks its queue pair and so the session.  The operation's
 * own queue pair is closed under the same hold of the lock that counts the
 * part: no operation that waited for the part is posted.  If another session
 * carries the association the parts end without success, and after the last one
 * the operation begins once more.
 */
#include <linux/bitops.h>
#include <linux/slab.h>

#include "assoc.h"
#include "core/core.h"
#include "internal.h"
#include "queue.h"
#include "remote.h"

/* Operations of one flow that are striped at the same time. */
#define TOW_STRIPES		3

/* A chunk is at least the one, and a multiple of the other. */
#define TOW_STRIPE_LEAST	SZ_64K
#define TOW_STRIPE_ALIGN	SZ_4K

/*
 * Bytes that a flow of parts may post for each turn: so few that a queue with
 * channels on all queue pairs has less than twice the turns of others.
 */
#define TOW_STRIPE_QUANTUM	(TOW_OPS_QUANTUM / TOW_STRIPE_QPS)

/**
 * struct tow_stripes - what a flow needs for striping
 * @flows: flows of the parts: one for each queue pair that is not the flow's
 *	own
 * @stripes: tow_flow.striped has a bit for each that is in use
 */
struct tow_stripes {
	struct tow_flow		flows[TOW_STRIPE_QPS - 1];
	struct tow_stripe	stripes[TOW_STRIPES];
};

/* ---- flows ---------------------------------------------------------------- */

/**
 * tow_stripes_new - allocate what a flow needs for striping
 * @peer: the flow's peer, which the flow has a reference to
 * @index: the flow's data queue pair
 * @part: tow_flow.part for the flows of parts
 *
 * Return: the structure, for kfree() when all operations have ended; NULL: no
 * memory, and nothing will be striped.
 */
struct tow_stripes *
tow_stripes_new(struct tow_peer *peer, unsigned int index,
		void (*part)(struct tow_op *part, struct tow_op_list *ended))
{
	struct tow_stripes *stripes;
	struct tow_flow *flow;
	unsigned int i;

	stripes = kzalloc(sizeof(*stripes), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!stripes)
		return NULL;
	for (i = 0; i < ARRAY_SIZE(stripes->flows); i++) {
		flow = &stripes->flows[i];
		flow->peer = peer;
		flow->index = index + 1 + i;
		flow->part = part;
		flow->quantum = TOW_STRIPE_QUANTUM;
		flow->striped = 1;
		tow_op_list_init(&flow->ops);
	}
	for (i = 0; i < TOW_STRIPES; i++)
		stripes->stripes[i].number = i;
	return stripes;
}

/**
 * tow_stripes_stop - post nothing more of a flow's parts
 * @stripes: may be NULL
 * @error: status of the parts that have not ended
 */
void tow_stripes_stop(struct tow_stripes *stripes, int error)
{
	unsigned int i;

	for (i = 0; stripes && i < ARRAY_SIZE(stripes->flows); i++)
		WRITE_ONCE(stripes->flows[i].stopped, error);
}

/* ---- order ---------------------------------------------------------------- */

static bool tow_ranges_meet(u64 one, u64 one_bytes, u64 other, u64 other_bytes)
{
	return one < other + other_bytes && other < one + one_bytes;
}

/* May two operations touch the same bytes at the peer? */
static bool tow_ops_meet_there(const struct tow_op *one,
			       const struct tow_op *other)
{
	return one->remote != other->remote ||
	       tow_ranges_meet(one->remote_offset, one->bytes,
			       other->remote_offset, other->bytes);
}

/* May two operations touch the same bytes on our side? */
static bool tow_ops_meet_here(const struct tow_op *one,
			      const struct tow_op *other)
{
	return one->region != other->region ||
	       tow_ranges_meet(one->offset, one->bytes, other->offset,
			       other->bytes);
}

/*
 * Must an operation, which is to be striped if @large, wait for striped
 * operation @before?  A write need not wait for a read, which may take effect
 * later.  A read must wait for a read into the same bytes here, and for a write
 * that touches the same bytes at the peer or here.  A write must wait for a
 * write to the same bytes at the peer, and for any write if it is not striped
 * itself.
 */
static bool tow_op_must_follow(const struct tow_op *op, bool large,
			       const struct tow_op *before)
{
	if (op->slot || tow_op_is_atomic(op))
		return true;
	if (tow_op_is_read(before))
		return tow_op_is_read(op) && tow_ops_meet_here(before, op);
	if (tow_op_is_read(op))
		return tow_ops_meet_there(before, op) ||
		       tow_ops_meet_here(before, op);
	return !large || tow_ops_meet_there(before, op);
}

/*
 * Caller holds link->lock.  Must an operation wait for striped ones before it?
 * @apart: it is to send out parts, which must wait for work requests on this
 * queue pair as well.
 */
static bool tow_stripe_holds(struct tow_link *link, const struct tow_op *op,
			     bool large, bool apart)
{
	struct tow_flow *flow = op->flow;
	unsigned long striped = READ_ONCE(flow->striped);
	struct tow_stripe *stripe;
	unsigned int i;

	for_each_set_bit(i, &striped, TOW_STRIPES) {
		stripe = &flow->stripes->stripes[i];
		/* The others are under another link's lock. */
		if (stripe->link != link || stripe == op->stripe)
			continue;
		if ((apart ? stripe->whole->pieces : stripe->left) &&
		    tow_op_must_follow(op, large, stripe->whole))
			return true;
	}
	return false;
}

/*
 * Caller holds link->lock.  May parts be sent out?  All work requests that are
 * not of striped operations must have completed: the last of these has the
 * number tow_flow.last, or the one before.
 */
static bool tow_stripe_may_launch(struct tow_link *link,
				  const struct tow_op *whole)
{
	u32 inflight = link->posted - link->retired;

	return (!inflight || whole->flow->last - link->retired > inflight) &&
	       !tow_stripe_holds(link, whole, true, true);
}

/* ---- beginning ------------------------------------------------------------ */

/* Bytes that are taken at once: each queue pair takes some a few times. */
static u32 tow_stripe_chunk(const struct tow_op *op, u32 count, u32 most)
{
	u64 chunk = div_u64(op->bytes, count * TOW_OPS_PIECES);

	chunk = max_t(u64, round_down(chunk, TOW_STRIPE_ALIGN),
		      TOW_STRIPE_LEAST);
	return min_t(u64, chunk, most);
}

static bool tow_link_stripes(const struct tow_link *link)
{
	return link->assoc->qps > 1;
}

/*
 * Caller holds link->lock.  Return: NULL: all stripes are in use, and @wait
 * says whether one of them belongs to this link, which will unpark the flow.
 */
static struct tow_stripe *tow_stripe_find(struct tow_flow *flow,
					  const struct tow_link *link,
					  bool *wait)
{
	struct tow_stripe *stripe;
	unsigned int i;

	*wait = false;
	for (i = 0; i < TOW_STRIPES; i++) {
		stripe = &flow->stripes->stripes[i];
		/* Pairs with tow_stripe_end(). */
		if (!test_and_set_bit(i, &flow->striped))
			return stripe;
		*wait |= stripe->link == link;
	}
	return NULL;
}

static u32 tow_stripe_count(const struct tow_link *link)
{
	return min_t(u32, link->assoc->qps, TOW_STRIPE_QPS);
}

/*
 * Caller holds link->lock.  Is it worth while to stripe an operation?  Chunks
 * are smaller than the operation, so tow_piece_merge() merges none of them.
 */
static bool tow_stripe_suits(const struct tow_link *link,
			     const struct tow_op *op, u32 most)
{
	struct tow_device *dev = link->assoc->dev;
	u64 plain = (u64)READ_ONCE(dev->queues->stripe_bytes) - 1;

	return op->bytes > plain && op->flow->stripes &&
	       tow_link_stripes(link) &&
	       op->bytes > tow_stripe_chunk(op, tow_stripe_count(link), most);
}

/* Caller holds link->lock.  Return: false: the operation waits for a stripe. */
static bool tow_stripe_begin(struct tow_link *link, struct tow_op *op, u32 most)
{
	u32 count = tow_stripe_count(link);
	u32 chunk = tow_stripe_chunk(op, count, most);
	struct tow_stripe *stripe;
	bool wait;

	stripe = tow_stripe_find(op->flow, link, &wait);
	if (!stripe)
		return !wait;
	stripe->whole = op;
	stripe->link = link;
	stripe->launched = false;
	stripe->left = 0;
	stripe->count = count;
	stripe->chunk = chunk;
	stripe->share = clamp_t(u64, div_u64(op->bytes, count * chunk), 1,
				TOW_OPS_PIECES);
	atomic64_set(&stripe->cursor, 0);
	op->stripe = stripe;
	op->taken = 0;
	return true;
}

/* Caller holds stripe->link->lock.  Send the parts out. */
static void tow_stripe_launch(struct tow_stripe *stripe,
			      struct tow_op_list *ended)
{
	struct tow_op *whole = stripe->whole, *part;
	u32 i;

	stripe->launched = true;
	stripe->left = stripe->count - 1;
	whole->pieces += stripe->left;
	for (i = 0; i < stripe->left; i++) {
		part = &stripe->parts[i];
		memset(part, 0, sizeof(*part));
		part->flow = &whole->flow->stripes->flows[i];
		part->region = whole->region;
		part->offset = whole->offset;
		part->remote = whole->remote;
		part->remote_offset = whole->remote_offset;
		part->bytes = whole->bytes;
		part->claim = whole->claim;
		part->opcode = whole->opcode;
		part->tried = whole->tried;
		part->replayed = whole->replayed;
		part->stripe = stripe;
		tow_op_list_add(ended, part, part);
	}
	tow_stat_inc(stripe->link->assoc->dev, TOW_STAT_STRIPED);
}

/* ---- turns ---------------------------------------------------------------- */

static bool tow_op_is_whole(const struct tow_op *op)
{
	return op->stripe->whole == op;
}

/* Caller holds the link's lock.  Has the operation its share in flight? */
static bool tow_stripe_has_share(const struct tow_op *op)
{
	u32 parts = tow_op_is_whole(op) ? op->stripe->left : 0;

	return op->pieces - parts >= op->stripe->share;
}

static bool tow_stripe_has_more(const struct tow_op *op)
{
	return atomic64_read(&op->stripe->cursor) < op->bytes;
}

/* Caller holds link->lock.  Take a chunk.  Return: false: no bytes are left. */
static bool tow_stripe_take(struct tow_link *link, struct tow_op *op)
{
	struct tow_stripe *stripe = op->stripe;
	s64 from = atomic64_read(&stripe->cursor), to;

	do {
		if (from >= op->bytes)
			return false;
		to = min_t(s64, from + stripe->chunk, op->bytes);
	} while (!atomic64_try_cmpxchg(&stripe->cursor, &from, to));
	/* The first bytes go to the whole, which is no part. */
	if (!op->taken && from)
		tow_stat_inc(link->assoc->dev, TOW_STAT_STRIPED_PARTS);
	op->cursor = from;
	op->taken = to;
	return true;
}

/* Caller holds link->lock.  No bytes are left; a notification may be. */
static u32 tow_stripe_finish(struct tow_link *link, struct tow_op *op)
{
	op->cursor = op->bytes;
	op->taken = op->bytes;
	/* The notification is posted when all is posted once more. */
	if (op->again)
		op->to_tell = false;
	if (!op->to_tell) {
		tow_op_leave(op->flow);
		return 0;
	}
	if (!op->stripe->left)
		return 1;
	tow_flow_park(link);
	return 0;
}

/* Caller holds link->lock; @op is striped, or a part. */
static u32 tow_stripe_post_next(struct tow_link *link, struct tow_op *op, u32 most,
				struct tow_op_list *ended)
{
	struct tow_stripe *stripe = op->stripe;

	if (op->again)
		return tow_stripe_finish(link, op);
	if (tow_op_is_whole(op) && !stripe->launched &&
	    tow_stripe_has_more(op) && tow_stripe_may_launch(link, op) &&
	    tow_op_claim(op, TOW_CLAIM_POSTED))
		tow_stripe_launch(stripe, ended);
	if (op->cursor == op->taken) {
		if (tow_stripe_has_more(op) && tow_stripe_has_share(op)) {
			tow_flow_park(link);
			return 0;
		}
		if (!tow_stripe_take(link, op))
			return tow_stripe_finish(link, op);
	}
	return min_t(u64, most, op->taken - op->cursor);
}

/**
 * tow_stripe_step - how large may the next work request be?
 * @link: the link; caller holds @link->lock
 * @op: the operation that has its turn: a large one, a part, or one after
 *	striped operations
 * @most: bytes of a work request, at most
 * @ended: the list that parts which are to begin are added to; for
 *	tow_ops_end()
 *
 * Return: the bytes; 0: no work request for now, and the flow is parked; or
 * none at all, and the operation has left its flow: tow_op_try_complete() finds
 * out which.
 */
u32 tow_stripe_step(struct tow_link *link, struct tow_op *op, u32 most,
		    struct tow_op_list *ended)
{
	bool large;

	/* An operation that has begun without a stripe goes on without. */
	if (!op->stripe && !op->pieces && !op->cursor) {
		large = tow_stripe_suits(link, op, most);
		if (tow_stripe_holds(link, op, large, false) ||
		    (large && !tow_stripe_begin(link, op, most))) {
			tow_flow_park(link);
			return 0;
		}
	}
	if (op->stripe)
		return tow_stripe_post_next(link, op, most, ended);
	op->flow->last = link->posted;
	return most;
}

/* ---- ends ----------------------------------------------------------------- */

/**
 * tow_stripe_abort - post nothing more of a striped operation, or of a part
 * @op: the operation or part; caller holds the lock of its link
 *
 * Return: whether anything was left to post.
 */
bool tow_stripe_abort(struct tow_op *op)
{
	bool left = op->cursor < op->taken || op->to_tell;

	/* Bytes that were not taken count as the whole's. */
	if (tow_op_is_whole(op) &&
	    atomic64_xchg(&op->stripe->cursor, op->bytes) < op->bytes)
		left = true;
	return left;
}

/**
 * tow_stripe_end - give a striped operation's stripe back
 * @op: the operation, of which nothing is left; or a part, for which nothing is
 *	done.  Caller holds the lock of its link
 */
void tow_stripe_end(struct tow_op *op)
{
	struct tow_stripe *stripe = op->stripe;
	struct tow_link *link = stripe->link;

	if (!tow_op_is_whole(op))
		return;
	/* Pairs with tow_stripe_find(), which may take it now. */
	clear_bit_unlock(stripe->number, &op->flow->striped);
	tow_flows_unpark(link);
}
