// SPDX-License-Identifier: GPL-2.0
/*
 * Striping: an operation of stripe_bytes or more goes by several queue pairs of its
 * peer at once.
 *
 * Normal operation
 *
 * When its turn comes on its own queue pair, an operation gets a struct tow_stripe,
 * and sends out parts: an operation each for other queue pairs, where it takes turns
 * like others, in a flow of its own.  There is one cursor for all.  Whoever has its
 * turn, the operation itself or a part, takes the next bytes there, posts them, and
 * comes back for more when some of them have completed.  So a queue pair that others
 * keep busy does less, and none has more on its way than its share.  Who finds
 * nothing left ends.  A part's end is counted by the operation, as a work request is;
 * the operation has ended when all of that has.
 *
 * Locks of two links are never held together: parts travel in the lists of what has
 * ended, and tow_ops_end() hands them to ops.c.  This file posts nothing: it says what
 * the next work request may be.
 *
 * Order
 *
 * Parts begin when all has completed that the flow had posted before, but for other
 * striped ones that do not concern them.  What follows in the flow waits, if it must,
 * until the parts of those before it have ended: if it notifies, is an atomic, or a
 * write that is not striped, by which the peer might tell that they are there; or if
 * it touches what they touch.  Two remote ranges may be the same memory, and so may
 * two regions: only of one range or region can it be said that two places in it are
 * different.  A notification of the operation's own is posted after its parts have
 * ended.
 *
 * Failure
 *
 * A part that fails breaks its queue pair and so the session.  The operation's own
 * queue pair is closed with the same lock in which the part is counted: nothing that
 * waited for it is posted.  If there is another session the parts come back, and when
 * all have, the operation begins once more.
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

/* What is taken at once, at least; and a multiple of what. */
#define TOW_STRIPE_LEAST	SZ_64K
#define TOW_STRIPE_ALIGN	SZ_4K

/*
 * What a flow of parts may post more when it is its turn again.  A queue with channels
 * on all queue pairs has less than twice the turns of others then.
 */
#define TOW_STRIPE_QUANTUM	(TOW_OPS_QUANTUM / TOW_STRIPE_QPS)

/**
 * struct tow_stripes - what a flow needs for striping
 * @flows: of the parts: one for each queue pair that is not the flow's own
 * @stripes: used as tow_flow.striped says
 */
struct tow_stripes {
	struct tow_flow		flows[TOW_STRIPE_QPS - 1];
	struct tow_stripe	stripes[TOW_STRIPES];
};

/* ---- flows ---------------------------------------------------------------- */

/**
 * tow_stripes_new - what a flow needs for striping
 * @peer: its peer; the flow has a reference, for as long as this is there
 * @index: which of its data queue pairs
 * @part: tow_flow.part of the flows of its parts
 *
 * Return: it, to be freed by kfree() when all operations have ended; NULL: no memory,
 * and nothing will be striped.
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
 * tow_stripes_stop - nothing more of the parts is posted
 * @stripes: may be NULL
 * @error: what the operations end with
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

/* The same on our side. */
static bool tow_ops_meet_here(const struct tow_op *one,
			      const struct tow_op *other)
{
	return one->region != other->region ||
	       tow_ranges_meet(one->offset, one->bytes, other->offset,
			       other->bytes);
}

/*
 * Must an operation, which is to be striped or not, come after one before it that is?
 * A read may take effect later than a write that follows; but two reads to one place
 * take effect there in order, and a write has sent what was there before a read that
 * follows it.
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
 * Called with the lock held: has an operation to wait for striped ones before it?  What
 * they have posted on this queue pair counts only for its parts, which are @apart.
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
		/* Those of a session before are not ours to look at. */
		if (stripe->link != link || stripe == op->stripe)
			continue;
		if ((apart ? stripe->whole->pieces : stripe->left) &&
		    tow_op_must_follow(op, large, stripe->whole))
			return true;
	}
	return false;
}

/*
 * Called with the lock held: may parts go out?  Of what is not striped all must have
 * completed: the last was the work request of this number, or the one before it.
 */
static bool tow_stripe_may_launch(struct tow_link *link,
				  const struct tow_op *whole)
{
	u32 inflight = link->posted - link->retired;

	return (!inflight || whole->flow->last - link->retired > inflight) &&
	       !tow_stripe_holds(link, whole, true, true);
}

/* ---- beginning ------------------------------------------------------------ */

/* What is taken at once: each queue pair comes back a few times. */
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
 * Called with the lock held.  Return: NULL: all are in use; then @wait says whether one
 * of them ends on this link, whose lock it takes to end.
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
 * Called with the lock held: is it worth while?  Chunks are smaller than the whole, so
 * none is merged with what others post.
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

/* Called with the lock held: stripe an operation.  Return: false: it has to wait. */
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

/* Called with the lock held: send the parts out. */
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

/* Called with the lock held: has it enough on its way? */
static bool tow_stripe_has_share(const struct tow_op *op)
{
	u32 parts = tow_op_is_whole(op) ? op->stripe->left : 0;

	return op->pieces - parts >= op->stripe->share;
}

static bool tow_stripe_has_more(const struct tow_op *op)
{
	return atomic64_read(&op->stripe->cursor) < op->bytes;
}

/* Called with the lock held.  Return: false: there is nothing left. */
static bool tow_stripe_take(struct tow_link *link, struct tow_op *op)
{
	struct tow_stripe *stripe = op->stripe;
	s64 from = atomic64_read(&stripe->cursor), to;

	do {
		if (from >= op->bytes)
			return false;
		to = min_t(s64, from + stripe->chunk, op->bytes);
	} while (!atomic64_try_cmpxchg(&stripe->cursor, &from, to));
	/* The first bytes are the whole's. */
	if (!op->taken && from)
		tow_stat_inc(link->assoc->dev, TOW_STAT_STRIPED_PARTS);
	op->cursor = from;
	op->taken = to;
	return true;
}

/* Called with the lock held: nothing is left to take, but it may have to notify. */
static u32 tow_stripe_finish(struct tow_link *link, struct tow_op *op)
{
	op->cursor = op->bytes;
	op->taken = op->bytes;
	/* It is notified when all of it has been posted once more. */
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

/* Called with the lock held: of one that is striped, or a part. */
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
 * tow_stripe_step - it is the turn of an operation that striping may concern
 * @link: where; the caller has its lock
 * @op: the operation: a large one, a part, or one after others that are striped
 * @most: what a work request may be
 * @ended: where to: its parts, if they are to begin; for tow_ops_end()
 *
 * Return: what its next work request may be; 0: there is none for now, and the flow
 * is parked; or never, and it has left its flow: tow_op_try_complete() tells which.
 */
u32 tow_stripe_step(struct tow_link *link, struct tow_op *op, u32 most,
		    struct tow_op_list *ended)
{
	bool large;

	/* One that has begun otherwise goes on like that. */
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
 * tow_stripe_abort - nothing more of a striped operation, or of a part, is posted
 * @op: it; the caller has the lock of its link
 *
 * Return: whether anything was left of it.
 */
bool tow_stripe_abort(struct tow_op *op)
{
	bool left = op->cursor < op->taken || op->to_tell;

	/* What nobody has taken is the whole's. */
	if (tow_op_is_whole(op) &&
	    atomic64_xchg(&op->stripe->cursor, op->bytes) < op->bytes)
		left = true;
	return left;
}

/**
 * tow_stripe_end - a striped operation has ended
 * @op: it, or a part, of which nothing is to be done; the caller has the lock of its
 *	link
 */
void tow_stripe_end(struct tow_op *op)
{
	struct tow_stripe *stripe = op->stripe;
	struct tow_link *link = stripe->link;

	if (!tow_op_is_whole(op))
		return;
	/* Others may use it from here on: pairs with tow_stripe_find(). */
	clear_bit_unlock(stripe->number, &op->flow->striped);
	tow_flows_unpark(link);
}
