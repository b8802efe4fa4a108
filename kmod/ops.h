/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Operations on remote ranges, and how they share a queue pair.
 */
#ifndef TOW_OPS_H
#define TOW_OPS_H

#include <linux/list.h>
#include <linux/sizes.h>
#include <linux/types.h>
#include <rdma/ib_verbs.h>

#include "uapi/towline.h"

struct tow_cq;
struct tow_flow;
struct tow_link;
struct tow_peer;
struct tow_region;
struct tow_remote;
struct tow_session;

/* What a flow posts before it is another one's turn, in bytes. */
#define TOW_OPS_QUANTUM		SZ_64K

/**
 * struct tow_op - one operation on a remote range
 * @done: called when it has ended, in process context, with no lock of a link;
 *	the operation is the caller's again
 * @flow: whose turn it takes
 * @region: memory on our side, kept by the caller until @done
 * @offset: where in it, in bytes
 * @remote: memory on the peer's side, kept by the caller until @done
 * @remote_offset: where in it, in bytes
 * @bytes: how much
 * @operand: of an atomic
 * @compare: of a compare-and-swap
 * @opcode: enum tow_opcode: one of the operations
 *
 * @link: in tow_flow.ops, or in a list of those that begin, or have ended
 * @merged: the next one in the same work request
 * @cursor: bytes that are on their way, or were
 * @pieces: work requests of it in flight
 * @status: what went wrong
 * @lost: some of it was on its way when the queue pair broke
 *
 * The caller sets those before @link; the others are tow_ops_begin()'s.
 */
struct tow_op {
	void			(*done)(struct tow_op *op, int status);
	struct tow_flow		*flow;
	struct tow_region	*region;
	u64			offset;
	struct tow_remote	*remote;
	u64			remote_offset;
	u64			bytes;
	u64			operand;
	u64			compare;
	u8			opcode;

	struct list_head	link;
	struct tow_op		*merged;
	u64			cursor;
	u32			pieces;
	int			status;
	bool			lost;
};

/**
 * struct tow_flow - the operations of one user on one queue pair
 * @peer: whose queue pair, with a reference
 * @index: which of its data queue pairs
 *
 * @link: in tow_link.flows while @ops is not empty; this and what follows is under
 *	the lock of @via
 * @via: where @ops wait; changed only while there are none
 * @ops: those that wait, or are partly on their way, in order
 * @credit: bytes that it may post before it is the others' turn
 * @stopped: nothing more of it is posted: why; read without the lock
 */
struct tow_flow {
	struct tow_peer		*peer;
	unsigned int		index;
	struct list_head	link;
	struct tow_link		*via;
	struct list_head	ops;
	s64			credit;
	int			stopped;
};

/**
 * struct tow_plug - operations that begin together
 * @link: on this queue pair; NULL: there are none
 * @session: its session, with a reference
 * @ops: in order
 */
struct tow_plug {
	struct tow_link		*link;
	struct tow_session	*session;
	struct list_head	ops;
};

static inline bool tow_op_is_read(const struct tow_op *op)
{
	return op->opcode == TOW_OP_READ;
}

static inline bool tow_op_is_atomic(const struct tow_op *op)
{
	return op->opcode == TOW_OP_FETCH_ADD ||
	       op->opcode == TOW_OP_COMPARE_SWAP;
}

/* ops.c */
void tow_flow_init(struct tow_flow *flow, struct tow_peer *peer,
		   unsigned int index);
void tow_flow_cleanup(struct tow_flow *flow);
void tow_plug_init(struct tow_plug *plug);
int tow_ops_check(struct tow_op *op);
void tow_ops_begin(struct tow_op *op, struct tow_plug *plug);
struct tow_cq *tow_ops_flush(struct tow_plug *plug);
void tow_ops_stop(struct tow_flow *flow, int error);
void tow_ops_close(struct tow_link *link);
void tow_ops_end(struct list_head *ended);

/* post.c */
int tow_ops_prepare(struct tow_link *link, u32 depth);
void tow_op_cut(struct tow_op *op, int error, struct list_head *ended);
void tow_link_push(struct tow_link *link, struct list_head *ended);
void tow_ops_abandon(struct tow_link *link);
void tow_ops_cleanup(struct tow_link *link);

#endif /* TOW_OPS_H */
