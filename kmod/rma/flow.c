// SPDX-License-Identifier: GPL-2.0
/*
 * How flows take turns on a queue pair, and how ended operations are handed
 * back.
 *
 * While a flow has operations it is in one of its link's two lists.
 * tow_link.shares has the flows with something to post: each share those of one client,
 * which has one turn however many it is; the first flow of the first share has its
 * turn.  tow_link.starved has the flows that can post nothing for now, as there is
 * no credit for a notification.  When there is, all of them take turns again.
 * tow_flow.via is the link, whose lock protects the flow meanwhile; a flow without
 * operations may join another link.
 *
 * Ended operations are handed back without locks: their ranges are left, the
 * peer's statistics are counted, and tow_flow.done is called.  This file does
 * not know how an operation is posted.
 */
#include <linux/sched.h>

#include "core/core.h"
#include "internal.h"
#include "peer.h"
#include "remote.h"

/* ---- turns ---------------------------------------------------------------- */

/**
 * tow_flow_park - park the flow that has its turn
 * @link: its link; caller holds @link->lock
 *
 * The flow takes no turns until tow_flows_unpark().
 */
void tow_flow_park(struct tow_link *link)
{
	struct tow_flow *flow = tow_flow_take(link);

	flow->next = NULL;
	*link->starved_end = flow;
	link->starved_end = &flow->next;
}

/**
 * tow_flows_unpark - let parked flows take turns again
 * @link: their link; caller holds @link->lock
 */
void tow_flows_unpark(struct tow_link *link)
{
	struct tow_flow *flow, *next;

	for (flow = link->starved; flow; flow = next) {
		next = flow->next;
		tow_flow_add(link, flow);
	}
	link->starved = NULL;
	link->starved_end = &link->starved;
}

/**
 * tow_flow_return - put operations back at the beginning of their flow
 * @link: the link that is to post them again; caller holds @link->lock
 * @first: the first operation, linked up to @last; all are of one flow, which
 *	does not list them
 * @last: the last operation
 */
void tow_flow_return(struct tow_link *link, struct tow_op *first,
		     struct tow_op *last)
{
	struct tow_flow *flow = first->flow;

	last->next = flow->ops.first;
	flow->ops.first = first;
	if (last->next) {
		/* What it was like has gone. */
		last->next->like = false;
		return;
	}
	flow->ops.end = &last->next;
	WARN_ON_ONCE(!tow_flow_join(flow, link));
}

/* ---- ended operations ----------------------------------------------------- */

/* Operations for one call of tow_flow.done, at most: it holds a lock. */
#define TOW_OPS_TOLD		256

/* Count what succeeded in the peer's statistics. */
static void tow_op_count(struct tow_peer *peer, u64 count, u64 read,
			 u64 written)
{
	if (count)
		atomic64_add(count, &peer->operations);
	if (read)
		atomic64_add(read, &peer->bytes_read);
	if (written)
		atomic64_add(written, &peer->bytes_written);
}

/* Leave the slot that an operation was to notify. */
static void tow_op_leave_slot(const struct tow_op *op)
{
	if (!op->status)
		tow_stat_inc(op->flow->peer->dev, TOW_STAT_NOTIFICATIONS_SENT);
	tow_remote_leave(op->slot, 1, op->lost ? op->status : 0);
}

/**
 * tow_flow_end - hand ended operations back to a flow's user
 * @flow: the flow
 * @ops: the operations, linked; the user's again afterwards
 *
 * Caller holds no link's lock.
 */
void tow_flow_end(struct tow_flow *flow, struct tow_op *ops)
{
	u64 count = 0, read = 0, written = 0;
	const struct tow_op *op, *next;
	int all = 0, same = 0;

	for (op = ops; op; op = next) {
		next = op->next;
		all++;
		if (op->slot)
			tow_op_leave_slot(op);
		/* Those of one range that follow each other leave it together. */
		same++;
		if (!next || next->remote != op->remote || op->lost ||
		    next->lost) {
			/* If all pieces completed nothing is in flight. */
			tow_remote_leave(op->remote, same,
					 op->lost ? op->status : 0);
			same = 0;
		}
		if (op->status)
			continue;
		count++;
		if (tow_op_is_read(op))
			read += op->bytes;
		else
			written += op->bytes;
	}
	tow_op_count(flow->peer, count, read, written);
	/* Pairs with tow_op_copy(): what they did is done. */
	if (unlikely(flow->loopback))
		atomic_sub_return_release(all, &flow->busy);
	flow->done(ops);
}

/* Remove the first operations that are of one flow, at most TOW_OPS_TOLD. */
static struct tow_op *tow_ops_take(struct tow_op_list *list)
{
	struct tow_op *first = list->first, *last;
	int left = TOW_OPS_TOLD;

	for (last = first; last->next && --left; last = last->next) {
		if (last->next->flow != first->flow)
			break;
	}
	list->first = last->next;
	if (!list->first)
		list->end = &list->first;
	last->next = NULL;
	return first;
}

/**
 * tow_ops_end - hand ended operations back to their users
 * @ended: ended operations; empty afterwards
 *
 * Caller holds no link's lock: tow_flow.done may begin another operation.
 */
void tow_ops_end(struct tow_op_list *ended)
{
	struct tow_op *op;

	while (ended->first) {
		op = tow_ops_take(ended);
		tow_flow_end(op->flow, op);
		if (ended->first)
			cond_resched();
	}
}
