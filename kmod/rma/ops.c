// SPDX-License-Identifier: GPL-2.0
/*
 * Operations on remote ranges, and how they share a queue pair.
 *
 * Normal operation
 *
 * An operation joins its flow: those of one user on one queue pair, in order.
 * Flows with something to post take turns (deficit round robin, by bytes); what
 * is on its way on a queue pair is bounded by inflight_bytes and by the queue
 * pair's depth, so who comes late waits for no more than that.  A large operation
 * is cut where memory is not contiguous on one of the sides, and into pieces that
 * leave others their turn; neighbours become one work request.  A very large one
 * goes by several queue pairs (stripe.c).  What is posted at
 * once is one chain, or a few, of each of which the last one tells that it has
 * completed, and with it all before.
 *
 * The end of an operation
 *
 * It has ended when nothing more of it will be posted and each piece of it has
 * completed with success.  A failed piece breaks the session: what the queue pair
 * carries for others cannot be told from it.  What was on its way then stays where
 * it is, and what begins waits in its flow, until there is another session and it
 * is known what came of it (replay.c); or until there will be none.
 *
 * A remote range that is revoked ends its operations: what has not been posted
 * never is.  Each operation counts as in flight until it has ended, and the
 * revoke is acknowledged after that.
 *
 * One that is late (enum tow_claim) keeps its place: nothing more of it is posted, and
 * it ends when its turn comes, or when what was posted before has come back.
 */
#include <linux/jiffies.h>
#include <linux/slab.h>

#include "assoc.h"
#include "core/core.h"
#include "internal.h"
#include "memory/memory.h"
#include "remote.h"

/* ---- parts ---------------------------------------------------------------- */

/* Caller holds no link's lock: a part has ended, and its whole may have with it. */
static void tow_part_end(struct tow_op *part, struct tow_op_list *ended)
{
	struct tow_stripe *stripe = part->stripe;
	struct tow_op *whole = stripe->whole;
	struct tow_link *link = stripe->link;

	/* They are there until this part is counted. */
	spin_lock_bh(&link->lock);
	stripe->left--;
	whole->pieces--;
	if (part->again) {
		whole->again = true;
		atomic64_set(&stripe->cursor, whole->bytes);
	}
	if (part->status) {
		whole->lost |= part->lost;
		if (!whole->status)
			whole->status = part->status;
		atomic64_set(&stripe->cursor, whole->bytes);
	}
	/* What waited for it must not follow. */
	if (part->lost)
		link->open = false;
	tow_flows_unpark(link);
	tow_op_try_complete(whole, ended);
	tow_link_push(link, ended);
	spin_unlock_bh(&link->lock);
}

/* Caller holds no link's lock.  Return: false: the part cannot begin. */
static bool tow_part_join(struct tow_op *part, struct tow_op_list *ended)
{
	struct tow_assoc *assoc = part->stripe->link->assoc;
	struct tow_flow *flow = part->flow;
	struct tow_link *link = &assoc->data[flow->index % assoc->qps];
	bool joined;

	spin_lock_bh(&link->lock);
	joined = !link->over && tow_flow_join(flow, link);
	if (joined) {
		tow_op_list_add(&flow->ops, part, part);
		tow_link_push(link, ended);
	}
	spin_unlock_bh(&link->lock);
	return joined;
}

/* See tow_flow.part: a part begins, or has ended.  It is in no list. */
static void tow_part_go(struct tow_op *part, struct tow_op_list *ended)
{
	/* One that cannot begin leaves its bytes to the others. */
	if (part->cursor == part->bytes || !tow_part_join(part, ended))
		tow_part_end(part, ended);
}

/* ---- flows, plugs --------------------------------------------------------- */

/**
 * tow_flow_init - a flow with nothing in it
 * @flow: where to
 * @peer: the peer; the flow takes a reference
 * @index: which of its data queue pairs; if there are fewer, they are counted
 *	through again
 * @done: see struct tow_flow
 */
void tow_flow_init(struct tow_flow *flow, struct tow_peer *peer,
		   unsigned int index, void (*done)(struct tow_op *ops))
{
	memset(flow, 0, sizeof(*flow));
	tow_peer_get(peer);
	flow->peer = peer;
	flow->index = index;
	flow->done = done;
	flow->quantum = TOW_OPS_QUANTUM;
	tow_op_list_init(&flow->ops);
	flow->stripes = tow_stripes_new(peer, index, tow_part_go);
}

/**
 * tow_flow_cleanup - undo tow_flow_init()
 * @flow: the flow; all its operations have ended
 */
void tow_flow_cleanup(struct tow_flow *flow)
{
	WARN_ON_ONCE(flow->ops.first);
	kfree(flow->stripes);
	tow_peer_put(flow->peer);
}

/**
 * tow_ops_stop - nothing more of a flow is posted
 * @flow: the flow
 * @error: what its operations end with
 *
 * Those that wait end when it would be their turn: something of others, or of
 * this flow, is on its way, or they would not wait.  But for notifications that
 * there is no room for, and for those that wait for another session: these are
 * looked at once more.  Parts of striped ones end like others.
 */
void tow_ops_stop(struct tow_flow *flow, int error)
{
	struct tow_assoc *assoc;

	WRITE_ONCE(flow->stopped, error);
	tow_stripes_stop(flow->stripes, error);
	assoc = tow_peer_assoc(flow->peer);
	if (!assoc)
		return;
	tow_credit_wake(assoc);
	tow_assoc_put(assoc);
}

/**
 * tow_plug_init - nothing begins so far
 * @plug: where to
 */
void tow_plug_init(struct tow_plug *plug)
{
	plug->link = NULL;
	plug->assoc = NULL;
	plug->waits = false;
	plug->last = NULL;
	tow_op_list_init(&plug->ops);
}

/* ---- beginning ------------------------------------------------------------ */

static u32 tow_op_right(const struct tow_op *op)
{
	if (tow_op_is_atomic(op))
		return TOW_RIGHT_ATOMIC;
	return tow_op_is_read(op) ? TOW_RIGHT_READ : TOW_RIGHT_WRITE;
}

/* Are an atomic's eight bytes aligned, at either end? */
static bool tow_op_aligned(struct tow_op *op,
			   const struct tow_remote_target *target)
{
	u64 local;

	return tow_region_locate(op->region, op->offset, &local) >= op->bytes &&
	       target->bytes >= op->bytes && IS_ALIGNED(local, op->bytes) &&
	       IS_ALIGNED(target->address, op->bytes);
}

static int tow_op_check_atomic(struct tow_op *op)
{
	struct tow_remote_target target;

	tow_remote_locate(op->remote, op->remote_offset, op->bytes, &target);
	return tow_op_aligned(op, &target) ? 0 : -EINVAL;
}

/**
 * tow_ops_check - is it an operation that could be done?
 * @op: the operation, complete; its range is within its region
 *
 * Return: 0; -EINVAL: another peer's range, or an atomic that is not aligned;
 * -EACCES: the range was not resolved with that right; -ERANGE: not within it.
 */
int tow_ops_check(struct tow_op *op)
{
	struct tow_remote *remote = op->remote;
	int ret;

	if (remote->assoc->peer != op->flow->peer)
		return -EINVAL;
	ret = tow_remote_check(remote, op->remote_offset, op->bytes,
			       tow_op_right(op));
	if (ret || !tow_op_is_atomic(op))
		return ret;
	return tow_op_check_atomic(op);
}

/**
 * tow_ops_check_slot - can its slot be notified?
 * @op: the operation, complete
 *
 * Return: 0; -EACCES: that is no slot; -EINVAL: another peer's, or one that
 * another queue pair was used for before.
 */
int tow_ops_check_slot(struct tow_op *op)
{
	struct tow_assoc *assoc = op->slot->assoc;
	struct tow_flow *flow = op->flow;

	if (!tow_remote_is_slot(op->slot))
		return -EACCES;
	if (assoc->peer != flow->peer)
		return -EINVAL;
	return tow_remote_check_slot(op->slot, flow->index % assoc->qps);
}

/* What it writes to, and what it notifies, count it as in flight. */
static int tow_op_enter(struct tow_op *op)
{
	int ret = tow_remote_enter(op->remote);

	if (ret || !op->slot)
		return ret;
	/* Of two associations one has ended. */
	ret = op->slot->assoc == op->remote->assoc ?
	      tow_remote_enter(op->slot) : -ESTALE;
	if (ret)
		tow_remote_leave(op->remote, 1, 0);
	return ret;
}

/**
 * tow_ops_begin_first - begin an operation that is not like the one before
 * @op: the operation, as tow_ops_begin() has prepared it
 * @plug: as there
 */
void tow_ops_begin_first(struct tow_op *op, struct tow_plug *plug)
{
	struct tow_assoc *assoc = op->remote->assoc;
	struct tow_link *link;
	struct tow_cq *cq;

	op->status = tow_op_enter(op);
	if (op->status) {
		op->flow->done(op);
		return;
	}
	if (!op->bytes && !op->slot) {
		tow_flow_end(op->flow, op);
		return;
	}
	link = &assoc->data[op->flow->index % assoc->qps];
	if (plug->link != link) {
		cq = tow_ops_flush(plug, NULL);
		if (cq)
			tow_cq_unref(cq);
		tow_assoc_get(assoc);
		plug->assoc = assoc;
		plug->link = link;
	}
	tow_plug_add(plug, op);
}

/* Those that follow each other and are of one flow.  Return: the last of them. */
static struct tow_op *tow_ops_of_flow(struct tow_op *first)
{
	struct tow_op *last = first;

	while (last->next && last->next->flow == first->flow)
		last = last->next;
	return last;
}

/* Called with the lock held: of one flow all join at once, or none does. */
static void tow_link_join(struct tow_link *link, struct tow_op_list *ops,
			  struct tow_op_list *ended)
{
	struct tow_op *op, *last, *next, *first;

	for (first = ops->first; first; first = next) {
		last = tow_ops_of_flow(first);
		next = last->next;
		if (!link->over && tow_flow_join(first->flow, link)) {
			tow_op_list_add(&first->flow->ops, first, last);
			continue;
		}
		tow_op_list_add(ended, first, last);
		for (op = first; op; op = op->next) {
			op->status = -ESTALE;
			op->cursor = op->bytes;
		}
	}
	tow_op_list_init(ops);
}

/**
 * tow_ops_flush - what was begun is posted, or waits for its turn
 * @plug: what was; nothing any more
 * @known: where the caller knows that operations complete, or NULL
 *
 * Of one flow it must be called by one at a time.
 *
 * Return: where it will complete, with a reference; NULL: as @known says; or there
 * was nothing, or the connection has ended.
 */
struct tow_cq *tow_ops_flush(struct tow_plug *plug, const struct tow_cq *known)
{
	struct tow_link *link = plug->link;
	struct tow_cq *cq = NULL;
	struct tow_op_list ended;

	if (!link)
		return NULL;
	tow_op_list_init(&ended);
	spin_lock_bh(&link->lock);
	if (link->open && link->cq != known) {
		cq = link->cq;
		tow_cq_ref(cq);
	}
	tow_link_join(link, &plug->ops, &ended);
	tow_link_push(link, &ended);
	if (link->flows)
		plug->waits = true;
	spin_unlock_bh(&link->lock);
	tow_ops_end(&ended);
	plug->link = NULL;
	plug->last = NULL;
	tow_assoc_put(plug->assoc);
	return cq;
}

/* ---- links ---------------------------------------------------------------- */

/* Called with the lock held: all that waits for its turn ends. */
static void tow_link_abort_ops(struct tow_link *link, struct tow_op_list *ended)
{
	struct tow_op *op;

	tow_flows_unpark(link);
	while (link->flows) {
		op = link->flows->ops.first;
		tow_op_abort(op, op->cursor || op->tried ? -ECONNRESET : -ESTALE,
			     ended);
	}
}

/**
 * tow_ops_close - nothing more is posted
 * @link: the link; may have been closed before
 * @over: nor will be: what waits for its turn ends
 */
void tow_ops_close(struct tow_link *link, bool over)
{
	struct tow_op_list ended;

	tow_op_list_init(&ended);
	spin_lock_bh(&link->lock);
	link->open = false;
	if (over) {
		link->over = true;
		tow_link_abort_ops(link, &ended);
	}
	spin_unlock_bh(&link->lock);
	tow_ops_end(&ended);
}

/*
 * Called with the lock held, of a link where nothing is posted: those end that would
 * not be posted if it were their turn.
 */
static void tow_link_sweep(struct tow_link *link, struct tow_op_list *ended)
{
	struct tow_flow *flow, *last = NULL;
	int error;

	while ((flow = link->flows) && flow != last) {
		error = tow_op_refused(flow->ops.first);
		if (error) {
			tow_op_abort(flow->ops.first, error, ended);
			continue;
		}
		tow_flow_rotate(link);
		if (!last)
			last = flow;
	}
}

/**
 * tow_ops_unpark - flows that had no room for a notification go on
 * @assoc: whose
 *
 * In turns, like others; queue pairs take turns, too, as the first of them may take
 * all the room there is.
 */
void tow_ops_unpark(struct tow_assoc *assoc)
{
	unsigned int turn = atomic_inc_return(&assoc->turn);
	unsigned int i;

	for (i = 0; i < assoc->qps; i++) {
		struct tow_link *link = &assoc->data[(turn + i) % assoc->qps];
		struct tow_op_list ended;

		tow_op_list_init(&ended);
		spin_lock_bh(&link->lock);
		tow_flows_unpark(link);
		if (link->open)
			tow_link_push(link, &ended);
		else
			tow_link_sweep(link, &ended);
		spin_unlock_bh(&link->lock);
		tow_ops_end(&ended);
	}
}

/* Called with the lock held: is nothing coming back of what is on its way? */
static bool tow_link_stalls(struct tow_link *link, unsigned long limit)
{
	/* Closed: while there is no connection nothing can. */
	if (!link->open || link->posted == link->retired) {
		link->watched_at = 0;
		return false;
	}
	if (!link->watched_at || link->watched != link->retired) {
		link->watched = link->retired;
		/* Never 0: that has a meaning. */
		link->watched_at = jiffies | 1;
		return false;
	}
	return time_after(jiffies, link->watched_at + limit);
}

/**
 * tow_ops_stall - has nothing come back on a queue pair for too long?
 * @assoc: whose; its session is READY
 * @limit_ms: what is too long, in milliseconds; 0: nothing is
 *
 * To be called every now and then: it counts from the first time that it sees what is
 * on its way.
 *
 * Return: whether it is so on one of them.
 */
bool tow_ops_stall(struct tow_assoc *assoc, u32 limit_ms)
{
	unsigned long limit = msecs_to_jiffies(limit_ms);
	bool stalls = false;
	unsigned int i;

	for (i = 0; limit_ms && !stalls && i < assoc->qps; i++) {
		struct tow_link *link = &assoc->data[i];

		spin_lock_bh(&link->lock);
		stalls = tow_link_stalls(link, limit);
		spin_unlock_bh(&link->lock);
	}
	return stalls;
}

/* Called with the lock held: is memory in it that was taken back, and for too long? */
static bool tow_post_look(const struct tow_post *post, unsigned int look)
{
	const struct tow_op *op;
	bool late = false;

	for (op = post->ops;; op = op->next) {
		if (op->region && tow_region_invalid(op->region))
			late |= tow_backing_found(op->region->backing, look);
		if (op == post->last)
			return late;
	}
}

/* Called with the lock held: the same of all that is on its way. */
static bool tow_link_look(const struct tow_link *link, unsigned int look)
{
	u32 number = READ_ONCE(link->drained);
	bool late = false;

	for (; number != link->posted; number++)
		late |= tow_post_look(&link->posts[number & link->post_mask],
				      look);
	return late;
}

static void tow_assoc_look(struct tow_assoc *assoc, unsigned int look)
{
	bool late = false;
	unsigned int i;

	/* What waits for room ends. */
	tow_ops_unpark(assoc);
	for (i = 0; i < assoc->qps; i++) {
		struct tow_link *link = &assoc->data[i];

		spin_lock_bh(&link->lock);
		late |= tow_link_look(link, look);
		spin_unlock_bh(&link->lock);
	}
	if (late)
		tow_assoc_fail(assoc, -ETIMEDOUT, TOW_WIRE_FAILED,
			       "memory was taken back, and is in use");
}

/**
 * tow_ops_look - look for memory that was taken back and is in use
 * @dev: the device, which may be gone
 * @look: what tow_backing_found() is told of each that is found
 *
 * What was invalid before, and is not found, will not be: tow_op_refused() sees that
 * with the same lock.  Queue pairs on which it takes too long are destroyed.
 */
void tow_ops_look(struct tow_device *dev, unsigned int look)
{
	struct tow_session *session;
	struct tow_assoc *assoc;
	u64 cursor = 0;

	while ((session = tow_peer_session_next(dev, &cursor))) {
		/* Pairs with tow_assoc_carry(). */
		assoc = smp_load_acquire(&session->assoc);
		if (assoc)
			tow_assoc_look(assoc, look);
		tow_session_put(session);
	}
}
