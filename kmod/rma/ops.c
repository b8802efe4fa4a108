// SPDX-License-Identifier: GPL-2.0
/*
 * Operations on remote ranges, and how they share a queue pair.
 *
 * Normal operation
 *
 * Operations of one user on one queue pair are a flow, and keep their order.
 * Flows with something to post take turns (deficit round robin, by bytes).
 * What is in flight on a queue pair is bounded by inflight_bytes and by the
 * queue pair's depth, so a flow that comes late waits for no more than that.  A
 * large operation is cut where memory is not contiguous on either side, and
 * into pieces that leave other flows their turns; neighbouring operations
 * become one work request.  Work requests are posted in chains.  Only the last one
 * of a chain is signaled: its completion stands for all before it.
 *
 * The end of an operation
 *
 * An operation has ended when nothing more of it will be posted and each of its
 * pieces has completed with success.  A failed piece breaks the session, as the
 * queue pair fails with all that it carries.  What was posted then stays listed
 * in its link, and new operations wait in their flows, until another session
 * carries the association and the outcome is known (replay.c), or until there
 * will be no session.
 *
 * When a remote range is revoked its operations end: nothing more of them is
 * posted.  Each operation counts as in flight until it has ended; the revoke is
 * acknowledged after that.
 *
 * A late operation (enum tow_claim) keeps its place: nothing more of it is
 * posted, and it ends when its turn comes, or when its posted pieces have
 * completed.
 */
#include <linux/jiffies.h>
#include <linux/slab.h>

#include "assoc.h"
#include "core/core.h"
#include "internal.h"
#include "memory/memory.h"
#include "remote.h"

/* ---- flows, plugs --------------------------------------------------------- */

/**
 * tow_share_init - prepare a share
 * @share: the share, zeroed
 */
void tow_share_init(struct tow_share *share)
{
	share->flows_end = &share->flows;
}

/**
 * tow_flow_init - prepare a flow
 * @flow: the flow; the caller sets @flow->shared before it is used
 * @peer: the peer; the flow takes a reference
 * @index: which of its data queue pairs, modulo their number
 * @done: see struct tow_flow
 */
void tow_flow_init(struct tow_flow *flow, struct tow_peer *peer,
		   unsigned int index, void (*done)(struct tow_op *ops))
{
	memset(flow, 0, sizeof(*flow));
	tow_peer_get(peer);
	flow->peer = peer;
	flow->index = index;
	flow->loopback = peer->loopback;
	flow->done = done;
	tow_share_init(&flow->own);
	tow_op_list_init(&flow->ops);
}

/**
 * tow_flow_cleanup - undo tow_flow_init()
 * @flow: the flow; all its operations have ended
 */
void tow_flow_cleanup(struct tow_flow *flow)
{
	WARN_ON_ONCE(flow->ops.first);
	tow_peer_put(flow->peer);
}

/**
 * tow_ops_stop - post nothing more of a flow
 * @flow: the flow
 * @error: status of its operations that have not ended
 *
 * An operation that waits ends when its turn comes: something is in flight on
 * the queue pair, or the operation would not wait.  Operations that wait for
 * credit or for another session have no turn: tow_credit_wake() has these
 * looked at.
 */
void tow_ops_stop(struct tow_flow *flow, int error)
{
	struct tow_assoc *assoc;

	WRITE_ONCE(flow->stopped, error);
	assoc = tow_peer_assoc(flow->peer);
	if (!assoc)
		return;
	tow_credit_wake(assoc);
	tow_assoc_put(assoc);
}

/**
 * tow_plug_init - prepare an empty plug
 * @plug: the plug
 * @known: completion queues that the caller knows; they stay as they are
 */
void tow_plug_init(struct tow_plug *plug, const struct tow_cqs *known)
{
	plug->count = 0;
	plug->last = NULL;
	plug->waits = false;
	plug->known = known;
	plug->fresh.count = 0;
}

/* The part of a plug that is for a link, which is added if need be. */
static struct tow_plug_link *tow_plug_part(struct tow_plug *plug,
					   struct tow_link *link,
					   struct tow_assoc *assoc)
{
	struct tow_plug_link *part;
	unsigned int i;

	for (i = 0; i < plug->count; i++) {
		if (plug->links[i].link == link)
			return &plug->links[i];
	}
	if (plug->count == TOW_PLUG_LINKS)
		tow_ops_flush(plug);
	part = &plug->links[plug->count++];
	tow_assoc_get(assoc);
	part->assoc = assoc;
	part->link = link;
	tow_op_list_init(&part->ops);
	return part;
}

/* ---- beginning ------------------------------------------------------------ */

static u32 tow_op_right(const struct tow_op *op)
{
	if (tow_op_is_atomic(op))
		return TOW_RIGHT_ATOMIC;
	return tow_op_is_read(op) ? TOW_RIGHT_READ : TOW_RIGHT_WRITE;
}

/* Are an atomic's eight bytes in one piece? */
static bool tow_op_aligned(const struct tow_op *op, u64 offset,
			   const struct tow_reach *reach)
{
	return tow_reach_has(reach, offset, op->bytes) &&
	       IS_ALIGNED(tow_reach_address(reach, offset), op->bytes);
}

static int tow_op_check_atomic(const struct tow_op *op)
{
	struct tow_reach near, far;

	tow_region_reach(op->region, op->offset, &near);
	tow_remote_reach(op->remote, op->remote_offset, &far);
	return tow_op_aligned(op, op->offset, &near) &&
	       tow_op_aligned(op, op->remote_offset, &far) ? 0 : -EINVAL;
}

/**
 * tow_ops_check - may an operation be begun?
 * @op: the operation, complete; its range is within its region
 *
 * Return: 0; -EINVAL: the remote range is another peer's, or an atomic is not
 * aligned; -EACCES: the remote range was not resolved with the right; -ERANGE:
 * the bytes are not within the remote range.
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
 * tow_ops_check_slot - may an operation's slot be notified?
 * @op: the operation, complete
 *
 * Return: 0; -EACCES: @op->slot is no slot; -EINVAL: the slot is another
 * peer's, or is notified by another queue pair.
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

/* Count the operation in flight on its remote range and on its slot. */
static int tow_op_enter(struct tow_op *op)
{
	int ret = tow_remote_enter(op->remote);

	if (ret || !op->slot)
		return ret;
	/* Of two associations with a peer one has ended. */
	ret = op->slot->assoc == op->remote->assoc ?
	      tow_remote_enter(op->slot) : -ESTALE;
	if (!ret) {
		ret = tow_remote_bind_slot(op->slot, op->flow->index %
					   op->slot->assoc->qps);
		if (ret)
			tow_remote_leave(op->slot, 1, 0);
	}
	if (ret)
		tow_remote_leave(op->remote, 1, 0);
	return ret;
}

/**
 * tow_ops_begin_first - begin an operation that is unlike the plug's last one
 * @op: the operation, prepared by tow_ops_begin()
 * @plug: see tow_ops_begin()
 */
void tow_ops_begin_first(struct tow_op *op, struct tow_plug *plug)
{
	struct tow_assoc *assoc = op->remote->assoc;
	struct tow_link *link;
	bool done;

	op->status = tow_op_enter(op);
	if (op->status) {
		op->flow->done(op);
		return;
	}
	link = &assoc->data[op->flow->index % assoc->qps];
	done = !op->bytes && !op->slot;
	if (unlikely(op->flow->loopback)) {
		atomic_inc(&op->flow->busy);
		done = done || tow_op_copy(op, link);
	}
	if (done) {
		tow_flow_end(op->flow, op);
		return;
	}
	plug->at = tow_plug_part(plug, link, assoc);
	tow_plug_add(plug, op);
}

/**
 * tow_ops_begin_run - begin operations that are alike
 * @first: the first one, for tow_ops_begin()
 * @last: the last one; all are linked by @next.  Those after @first, in the state of
 *	tow_op_begin_state(), differ from it only in where they read and write, and
 *	how much, which is not nothing; a run has no atomics, slots, or deadlines
 * @count: how many
 * @plug: see tow_ops_begin()
 */
void tow_ops_begin_run(struct tow_op *first, struct tow_op *last, u32 count,
		       struct tow_plug *plug)
{
	struct tow_op *op = first->next, *next;

	tow_ops_begin(first, plug);
	if (plug->last == first) {
		/* The first one keeps the range in flight. */
		tow_remote_enter_again(op->remote, count - 1);
		if (unlikely(op->flow->loopback))
			atomic_add(count - 1, &op->flow->busy);
		tow_op_list_add(&plug->at->ops, op, last);
		plug->last = last;
		return;
	}
	while (--count) {
		next = op->next;
		tow_ops_begin(op, plug);
		op = next;
	}
}

/* Return: the last one of the operations after @first that are of its flow. */
static struct tow_op *tow_ops_of_flow(struct tow_op *first)
{
	struct tow_op *last = first;

	while (last->next && last->next->flow == first->flow)
		last = last->next;
	return last;
}

/* Caller holds link->lock.  All operations of a flow join, or none does. */
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

/* Caller holds link->lock.  Remember where operations complete, if it is news. */
static void tow_plug_note(struct tow_plug *plug, struct tow_link *link)
{
	struct tow_cqs *fresh = &plug->fresh;

	if (!link->open || tow_cqs_have(plug->known, link->cq) ||
	    tow_cqs_have(fresh, link->cq) || fresh->count == TOW_CQS_SEEN)
		return;
	tow_cq_ref(link->cq);
	fresh->cq[fresh->count++] = link->cq;
}

static void tow_plug_flush(struct tow_plug *plug, struct tow_plug_link *part)
{
	struct tow_link *link = part->link;
	struct tow_op_list ended;

	tow_op_list_init(&ended);
	spin_lock_bh(&link->lock);
	tow_plug_note(plug, link);
	tow_link_join(link, &part->ops, &ended);
	tow_link_push(link, &ended);
	if (link->shares)
		plug->waits = true;
	spin_unlock_bh(&link->lock);
	tow_ops_end(&ended);
	tow_assoc_put(part->assoc);
}

/**
 * tow_ops_flush - post a plug's operations, or let them wait for their turn
 * @plug: the plug; without operations afterwards
 *
 * Calls for one flow must not run at the same time.
 */
void tow_ops_flush(struct tow_plug *plug)
{
	unsigned int i;

	for (i = 0; i < plug->count; i++)
		tow_plug_flush(plug, &plug->links[i]);
	plug->count = 0;
	plug->last = NULL;
}

/* ---- links ---------------------------------------------------------------- */

/* Operations that are refused before the lock is released. */
#define TOW_ABORT_BUDGET	512

/*
 * Caller holds link->lock.  End operations in the link's flows.  Return: false: there
 * are none left.
 */
static bool tow_link_abort_ops(struct tow_link *link, struct tow_op_list *ended)
{
	int left = TOW_ABORT_BUDGET;
	struct tow_op *op;

	tow_flows_unpark(link);
	while (link->shares && left--) {
		op = link->shares->flows->ops.first;
		tow_op_abort(op, op->cursor || op->replayed ? -ECONNRESET :
			     -ESTALE, ended);
	}
	return link->shares;
}

/**
 * tow_ops_close - post nothing more on a link
 * @link: the link; may have been closed before
 * @over: the link will not be opened again: operations in its flows end
 */
void tow_ops_close(struct tow_link *link, bool over)
{
	struct tow_op_list ended;
	bool more;

	tow_op_list_init(&ended);
	do {
		spin_lock_bh(&link->lock);
		link->open = false;
		link->over |= over;
		more = over && tow_link_abort_ops(link, &ended);
		spin_unlock_bh(&link->lock);
		tow_ops_end(&ended);
	} while (more);
}

/*
 * Caller holds link->lock; the link is closed.  End the operations that
 * tow_op_refused() refuses.
 */
static void tow_link_sweep(struct tow_link *link, struct tow_op_list *ended)
{
	struct tow_flow *flow, *all = NULL;
	int error, left = TOW_ABORT_BUDGET;
	struct tow_op *op;

	while (link->shares) {
		flow = tow_flow_take(link);
		flow->next = all;
		all = flow;
	}
	while ((flow = all)) {
		all = flow->next;
		while ((op = flow->ops.first) && left) {
			error = tow_op_refused(op);
			if (!error)
				break;
			tow_op_list_drop(&flow->ops);
			tow_op_refuse(op, error, ended);
			left--;
		}
		if (op)
			tow_flow_add(link, flow);
		else
			tow_flow_leave(flow);
	}
	if (!left && link->shares)
		tow_credit_wake(link->assoc);
}

/**
 * tow_ops_unpark - unpark the flows of an association
 * @assoc: the association
 *
 * Each call begins behind the first queue pair with parked flows of the call before, as
 * that may have taken all credit.
 */
void tow_ops_unpark(struct tow_assoc *assoc)
{
	unsigned int turn = READ_ONCE(assoc->turn);
	bool first = true;
	unsigned int i;

	for (i = 0; i < assoc->qps; i++) {
		struct tow_link *link = &assoc->data[(turn + i) % assoc->qps];
		struct tow_op_list ended;

		tow_op_list_init(&ended);
		spin_lock_bh(&link->lock);
		if (first && link->starved) {
			WRITE_ONCE(assoc->turn, turn + i + 1);
			first = false;
		}
		tow_flows_unpark(link);
		if (link->open)
			tow_link_push(link, &ended);
		else
			tow_link_sweep(link, &ended);
		spin_unlock_bh(&link->lock);
		tow_ops_end(&ended);
	}
}

/* Caller holds link->lock.  Has nothing completed for @limit jiffies? */
static bool tow_link_stalls(struct tow_link *link, unsigned long limit)
{
	/* While a link is closed nothing can complete. */
	if (!link->open || link->posted == link->retired) {
		link->watched_at = 0;
		return false;
	}
	if (!link->watched_at || link->watched != link->retired) {
		link->watched = link->retired;
		/* Never 0, which means that nothing was in flight. */
		link->watched_at = jiffies | 1;
		return false;
	}
	return time_after(jiffies, link->watched_at + limit);
}

/**
 * tow_ops_stall - has nothing completed on a queue pair for too long?
 * @assoc: the association; its session is READY
 * @limit_ms: too long, in milliseconds; 0: never
 *
 * To be called at intervals: the time counts from the first call that sees the
 * work requests in flight.
 *
 * Return: true: a queue pair has stalled; the caller ends the session.
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
		if (stalls)
			tow_link_stalled(link);
		spin_unlock_bh(&link->lock);
	}
	return stalls;
}

/* Caller holds link->lock.  Was memory of @post taken back too long ago? */
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

/* Caller holds link->lock.  As tow_post_look(), for all that is in flight. */
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

	/* Parked flows find out that their memory is invalid. */
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
 * @look: passed to tow_backing_found() for each backing that is found
 *
 * Memory that was invalid before this call and is not found will not be found
 * later: tow_op_refused() sees under the same lock that it is invalid.  A
 * session that uses such memory for too long ends.
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
