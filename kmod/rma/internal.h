/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the files of rma/ share: flows and their turns, posted work requests.
 */
#ifndef TOW_RMA_INTERNAL_H
#define TOW_RMA_INTERNAL_H

#include <linux/sizes.h>
#include <linux/types.h>
#include <rdma/ib_verbs.h>

#include "link.h"
#include "ops.h"

struct tow_assoc;
struct tow_session;
struct tow_wire_sync;

/* Bytes that a flow may post before the next flow has its turn. */
#define TOW_OPS_QUANTUM		SZ_64K

/* A work request carries at most this part of inflight_bytes. */
#define TOW_OPS_PIECES		4

/**
 * struct tow_post - a work request that was posted
 * @cqe: its completion
 * @link: the link whose queue pair it was posted to
 * @ops: its operation; merged operations follow by tow_op.next, up to @last
 * @last: the last of @ops
 * @bytes: what it adds to tow_link.inflight
 * @tells: it notifies the operation's slot
 * @status: 0; a negative errno: it must not be posted again
 * @refused: the provider did not post it: what was posted in its place does nothing
 * @stalled: it was the oldest one when its link stalled, and was counted for that
 *
 * An element of tow_link.posts; all fields but @cqe and @link are under the
 * lock of @link.
 */
struct tow_post {
	struct ib_cqe	cqe;
	struct tow_link	*link;
	struct tow_op	*ops;
	struct tow_op	*last;
	u32		bytes;
	bool		tells;
	int		status;
	bool		refused;
	bool		stalled;
};

/* Remove the first operation; the list is not empty. */
static inline void tow_op_list_drop(struct tow_op_list *list)
{
	list->first = list->first->next;
	if (!list->first)
		list->end = &list->first;
}

/* flow.c */
void tow_flow_park(struct tow_link *link);
void tow_flows_unpark(struct tow_link *link);
void tow_flow_return(struct tow_link *link, struct tow_op *first,
		     struct tow_op *last);
void tow_flow_end(struct tow_flow *flow, struct tow_op *ops);
void tow_ops_end(struct tow_op_list *ended);

/* Caller holds link->lock. */
static inline void tow_share_add(struct tow_link *link, struct tow_share *share)
{
	share->next = NULL;
	*link->shares_end = share;
	link->shares_end = &share->next;
}

/* Caller holds link->lock; link->shares is not empty.  Remove the first share. */
static inline struct tow_share *tow_share_take(struct tow_link *link)
{
	struct tow_share *share = link->shares;

	link->shares = share->next;
	if (!link->shares)
		link->shares_end = &link->shares;
	return share;
}

/**
 * tow_flow_add - give a flow turns on a link
 * @link: the link; caller holds @link->lock
 * @flow: the flow, which has joined it; it is in no link's lists
 */
static inline void tow_flow_add(struct tow_link *link, struct tow_flow *flow)
{
	struct tow_share *share = flow->share;

	if (!share->flows)
		tow_share_add(link, share);
	flow->next = NULL;
	*share->flows_end = flow;
	share->flows_end = &flow->next;
}

/**
 * tow_flow_take - remove the flow that has its turn
 * @link: the link; caller holds @link->lock, and @link->shares is not empty
 *
 * Return: the flow.
 */
static inline struct tow_flow *tow_flow_take(struct tow_link *link)
{
	struct tow_share *share = link->shares;
	struct tow_flow *flow = share->flows;

	share->flows = flow->next;
	if (!share->flows) {
		share->flows_end = &share->flows;
		tow_share_take(link);
	}
	return flow;
}

/**
 * tow_flow_rotate - give the next share its turn, and later the next flow of this one
 * @link: the link; caller holds @link->lock, and @link->shares is not empty
 */
static inline void tow_flow_rotate(struct tow_link *link)
{
	struct tow_share *share = link->shares;

	tow_flow_add(link, tow_flow_take(link));
	/* It has others. */
	if (link->shares == share && share->next)
		tow_share_add(link, tow_share_take(link));
}

/**
 * tow_flow_leave - a flow without operations has left its link
 * @flow: the flow, in no link's lists; caller holds the lock of @flow->via
 */
static inline void tow_flow_leave(struct tow_flow *flow)
{
	if (!--flow->share->joined)
		/* Pairs with tow_share_join(): another link may take it. */
		smp_store_release(&flow->share->via, NULL);
	/* Pairs with tow_flow_join(): another link may take the flow. */
	smp_store_release(&flow->via, NULL);
}

/* Nothing is left of the flow that has its turn; caller holds the lock of @flow->via. */
static inline void tow_flow_is_done(struct tow_flow *flow)
{
	flow->ops.end = &flow->ops.first;
	tow_flow_take(flow->via);
	tow_flow_leave(flow);
}

/**
 * tow_op_leave - remove an operation of which nothing is left to post
 * @flow: the flow, which has its turn and whose first operation it is; caller
 *	holds the lock of @flow->via
 */
static inline void tow_op_leave(struct tow_flow *flow)
{
	tow_op_list_drop(&flow->ops);
	if (!flow->ops.first)
		tow_flow_is_done(flow);
}

/* Caller holds link->lock.  Return: false: the share has flows on another link. */
static inline bool tow_share_join(struct tow_share *share, struct tow_link *link)
{
	/* Pairs with tow_flow_leave(), which another link's lock protects. */
	struct tow_link *via = cmpxchg(&share->via, NULL, link);

	if (via && via != link)
		return false;
	if (!share->joined++)
		share->credit = min_t(s64, share->credit, TOW_OPS_QUANTUM);
	return true;
}

/**
 * tow_flow_join - let a flow post on a link
 * @flow: the flow
 * @link: a link of its peer's present association; caller holds @link->lock
 *
 * Return: true: it may; false: the flow has operations on another link.
 */
static inline bool tow_flow_join(struct tow_flow *flow, struct tow_link *link)
{
	/* Pairs with tow_flow_leave(), which another link's lock protects. */
	struct tow_link *via = smp_load_acquire(&flow->via);

	if (via)
		return via == link;
	flow->via = link;
	flow->share = flow->shared;
	if (!tow_share_join(flow->share, link)) {
		flow->share = &flow->own;
		tow_share_join(flow->share, link);
	}
	tow_flow_add(link, flow);
	return true;
}

/**
 * tow_op_refused - must nothing more of an operation be posted?
 * @op: the operation; caller holds its link's lock, or has just begun it
 *
 * Return: the operation's error; 0: it may be posted.
 */
static inline int tow_op_refused(const struct tow_op *op)
{
	int error = READ_ONCE(op->flow->stopped);

	/* The device goes: what was posted may have been executed. */
	if (error == -ENODEV && (op->cursor || op->replayed))
		return -ECONNRESET;
	if (!error)
		error = op->status;
	if (error)
		return error;
	if (!tow_remote_usable(op->remote) ||
	    (op->slot && !tow_remote_usable(op->slot)))
		return -ESTALE;
	if (op->region && tow_region_invalid(op->region))
		return -EFAULT;
	if (op->slot && READ_ONCE(op->slot->closed))
		return -ECANCELED;
	return tow_op_is_late(op) ? -ETIMEDOUT : 0;
}

/* ops.c */
void tow_ops_unpark(struct tow_assoc *assoc);

/* replay.c */
int tow_replay_receive(struct tow_session *session,
		       const struct tow_wire_sync *body, size_t bytes);

/* copy.c */
bool tow_op_copy(struct tow_op *op, struct tow_link *link);

/* post.c */
void tow_op_begin_again(struct tow_op *op);
void tow_op_refuse(struct tow_op *op, int error, struct tow_op_list *ended);
void tow_op_abort(struct tow_op *op, int error, struct tow_op_list *ended);
void tow_link_push(struct tow_link *link, struct tow_op_list *ended);
void tow_link_stalled(struct tow_link *link);

/**
 * tow_op_try_complete - end an operation of which nothing is left
 * @op: the operation; caller holds its link's lock, and is not about to post
 *	any of it
 * @ended: the list that it is added to if it has ended; for tow_ops_end()
 */
static inline void tow_op_try_complete(struct tow_op *op, struct tow_op_list *ended)
{
	if (op->pieces || op->cursor != op->bytes || op->to_tell)
		return;
	tow_op_list_add(ended, op, op);
}

#endif /* TOW_RMA_INTERNAL_H */
