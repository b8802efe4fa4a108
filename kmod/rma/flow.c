// SPDX-License-Identifier: GPL-2.0
/*
 * Flows take turns on a queue pair; operations that have ended are told.
 *
 * While a flow has operations it is in one of its link's two lists.  Those in
 * tow_link.flows have something to post, and it is the first one's turn.  Those in
 * tow_link.starved can post nothing for now: there is no room for a notification, or
 * parts of a striped operation are on their way.  They come back together when one of
 * that may have changed, and look again.  tow_flow.via is the link, whose lock
 * protects the flow meanwhile; another link takes the flow when it has no operations.
 *
 * That an operation has ended is told without locks: its ranges are let go of, what the
 * peer has carried is counted, and its user has it back.  Nothing here knows how an
 * operation is posted, or that it is striped.
 */
#include "core/core.h"
#include "internal.h"
#include "peer.h"
#include "remote.h"

/* ---- turns ---------------------------------------------------------------- */

/**
 * tow_flow_park - the flow whose turn it is can post nothing for now
 * @link: its link; caller holds its lock
 *
 * It takes no turns until tow_flows_unpark().
 */
void tow_flow_park(struct tow_link *link)
{
	struct tow_flow *flow = tow_flow_take(link);

	flow->next = NULL;
	*link->starved_end = flow;
	link->starved_end = &flow->next;
}

/**
 * tow_flows_unpark - flows that could post nothing take turns again
 * @link: their link; caller holds its lock
 */
void tow_flows_unpark(struct tow_link *link)
{
	if (!link->starved)
		return;
	*link->flows_end = link->starved;
	link->flows_end = link->starved_end;
	link->starved = NULL;
	link->starved_end = &link->starved;
}

/**
 * tow_flow_return - operations go back to the beginning of their flow
 * @link: where they are to be posted once more; caller holds its lock
 * @first: the first of them, linked up to @last; all of one flow, which has none of them
 * @last: the last one
 */
void tow_flow_return(struct tow_link *link, struct tow_op *first,
		     struct tow_op *last)
{
	struct tow_flow *flow = first->flow;

	last->next = flow->ops.first;
	flow->ops.first = first;
	if (last->next)
		return;
	flow->ops.end = &last->next;
	flow->via = link;
	tow_flow_add(link, flow);
}

/* ---- the end -------------------------------------------------------------- */

/* Operations that their user is told of together: he has a lock meanwhile. */
#define TOW_OPS_TOLD		256

/* What peers are told to have carried. */
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

/*
 * Operations from @op on that follow each other and name the same remote range let go
 * of it together.  Return: the last of them.
 */
static struct tow_op *tow_ops_leave(struct tow_op *op)
{
	struct tow_remote *remote = op->remote;
	int count = 1;

	while (op->next && op->next->remote == remote &&
	       !op->lost && !op->next->lost) {
		op = op->next;
		count++;
	}
	/* If all pieces came back it has let go, whatever else went wrong. */
	tow_remote_leave(remote, count, op->lost ? op->status : 0);
	return op;
}

/* The slot that an operation was to notify is let go of. */
static void tow_op_leave_slot(struct tow_op *op)
{
	if (!op->status)
		tow_stat_inc(op->flow->peer->dev, TOW_STAT_NOTIFICATIONS_SENT);
	tow_remote_leave(op->slot, 1, op->lost ? op->status : 0);
}

/**
 * tow_flow_end - tell a flow's user of operations that have ended
 * @flow: the flow; not of parts
 * @ops: the operations, linked; the user's again afterwards
 *
 * Caller holds no link's lock.
 */
void tow_flow_end(struct tow_flow *flow, struct tow_op *ops)
{
	u64 count = 0, read = 0, written = 0;
	struct tow_op *op;

	for (op = ops; op; op = op->next) {
		if (op->slot)
			tow_op_leave_slot(op);
		if (op->status)
			continue;
		count++;
		if (tow_op_is_read(op))
			read += op->bytes;
		else
			written += op->bytes;
	}
	tow_op_count(flow->peer, count, read, written);
	for (op = ops; op; op = op->next)
		op = tow_ops_leave(op);
	flow->done(ops);
}

/* The first ones that are of one flow, at most TOW_OPS_TOLD. */
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
 * tow_ops_end - tell the users of operations that have ended
 * @ended: the operations; and parts of striped ones, which are to begin, or have
 *	ended.  Empty afterwards
 *
 * Caller holds no link's lock: a user that is told may begin another operation.  What
 * ends by a part is added to @ended and told here, not within tow_flow.part().
 */
void tow_ops_end(struct tow_op_list *ended)
{
	struct tow_op *op;

	while ((op = ended->first)) {
		if (op->flow->done) {
			op = tow_ops_take(ended);
			tow_flow_end(op->flow, op);
		} else {
			tow_op_list_drop(ended);
			op->flow->part(op, ended);
		}
	}
}
