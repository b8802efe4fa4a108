// SPDX-License-Identifier: GPL-2.0
/*
 * Posting: operations of flows become work requests of a queue pair, and
 * complete.  See ops.c.
 */
#include <linux/jiffies.h>
#include <linux/log2.h>
#include <linux/slab.h>

#include "assoc.h"
#include "core/core.h"
#include "internal.h"
#include "memory/memory.h"
#include "notify.h"
#include "queue.h"
#include "remote.h"

/*
 * A chain has so many work requests at most, of which the last one is signaled;
 * and no more than this part of what may be in flight, in number or bytes: the
 * next chain is posted while this one is on its way.
 */
#define TOW_OPS_BATCH		64
#define TOW_OPS_CHAINS		2

/* Bytes that even the smallest work request counts. */
#define TOW_OPS_LEAST		SZ_4K

/*
 * Operations that are posted, merged or refused before the lock is released; and of
 * one flow refused before the next one has its turn.
 */
#define TOW_PUSH_BUDGET		512
#define TOW_REFUSE_BUDGET	64

/* A work request that fails by itself is posted again so many times. */
#define TOW_OP_TRIES		8

/**
 * struct tow_work - a work request that is about to be posted
 * @rdma: of a read or write
 * @atomic: of an atomic
 * @sge: our memory
 */
struct tow_work {
	union {
		struct ib_rdma_wr	rdma;
		struct ib_atomic_wr	atomic;
	};
	struct ib_sge	sge;
};

/**
 * struct tow_piece - what the next work request of an operation does
 * @address: the peer's memory, under @key
 * @local: our memory, as the RDMA device sees it
 * @key: the remote key
 * @bytes: size of the data; 0: the work request only notifies
 * @tells: the work request notifies the operation's slot
 */
struct tow_piece {
	u64	address;
	u64	local;
	u32	key;
	u32	bytes;
	bool	tells;
};

/**
 * struct tow_push - one call of tow_link_push()
 * @limit: bytes that may be in flight
 * @enough: the tow_link.inflight that ends a chain
 * @most: bytes that a work request carries, at most
 * @count: work requests in tow_link.works
 * @left: how much more may be done before the lock is released
 * @refused: operations that were refused
 * @region: what @near is of; NULL: nothing
 * @near: our memory, of the last operation
 * @remote: what @far is of; NULL: nothing
 * @far: the peer's memory, of the last operation
 */
struct tow_push {
	u64			limit;
	u64			enough;
	u32			most;
	u32			count;
	u32			left;
	u32			refused;
	const struct tow_region	*region;
	struct tow_reach	near;
	const struct tow_remote	*remote;
	struct tow_reach	far;
};

/* ---- posting -------------------------------------------------------------- */

/**
 * tow_op_begin_again - post an operation from its beginning
 * @op: the operation; caller holds its link's lock, and nothing of it is in
 *	flight
 */
void tow_op_begin_again(struct tow_op *op)
{
	op->again = false;
	op->like = false;
	op->replayed = true;
	op->moved = false;
	op->cursor = 0;
	if (op->vec) {
		op->vec->index = 0;
		op->vec->before = 0;
	}
	op->pieces = 0;
	op->to_tell = op->slot;
	tow_stat_inc(op->flow->peer->dev, TOW_STAT_REPLAYED);
	atomic64_inc(&op->flow->peer->replayed);
}

/**
 * tow_op_refuse - post nothing more of an operation
 * @op: the operation, which its flow does not list any more; caller holds the lock of
 *	its link
 * @error: the operation's status, if it has none so far
 * @ended: the list that it is added to if it has ended; for tow_ops_end()
 */
void tow_op_refuse(struct tow_op *op, int error, struct tow_op_list *ended)
{
	if (!op->status)
		op->status = error;
	op->cursor = op->bytes;
	op->to_tell = false;
	/* Under the same hold of the lock the next one may be posted. */
	if (op->slot)
		tow_remote_missed(op->slot, op->told);
	tow_op_try_complete(op, ended);
}

/**
 * tow_op_abort - tow_op_refuse() for the operation that has its turn
 * @op: the operation, the first of the flow that has its turn
 * @error: as for tow_op_refuse()
 * @ended: likewise
 */
void tow_op_abort(struct tow_op *op, int error, struct tow_op_list *ended)
{
	tow_op_leave(op->flow);
	tow_op_refuse(op, error, ended);
}

static bool tow_post_try_again(const struct tow_post *post);

/*
 * Caller holds link->lock.  The provider refuses @work, one of the last @count work
 * requests, by @error.  Its operations end with that; in its place a write of no bytes
 * is posted, so that completions say the same as ever.  Return: NULL: it cannot be
 * replaced.
 */
static const struct ib_send_wr *tow_work_replace(struct tow_link *link,
						 struct tow_work *work,
						 u32 count, int error)
{
	u32 number = link->posted - count + (work - link->works);
	struct tow_post *post = &link->posts[number & link->post_mask];
	struct ib_send_wr *wr = &work->rdma.wr;

	/* A queue pair that takes nothing is not the work request's fault. */
	if (post->refused) {
		post->refused = false;
		post->status = 0;
		return NULL;
	}
	if (error != -EINVAL && error != -EOPNOTSUPP)
		return NULL;
	/* The notification has its number. */
	if (post->tells) {
		if (!tow_post_try_again(post))
			post->status = error;
		return NULL;
	}
	post->refused = true;
	post->status = error;
	wr->opcode = IB_WR_RDMA_WRITE;
	wr->send_flags &= IB_SEND_SIGNALED;
	wr->num_sge = 0;
	work->rdma.remote_addr = 0;
	work->rdma.rkey = 0;
	return wr;
}

/*
 * Caller holds link->lock.  The last work request is signaled, else only those
 * of operations that have failed by themselves.
 */
static void tow_works_post(struct tow_link *link, u32 *count)
{
	const struct ib_send_wr *from = &link->works[0].rdma.wr, *bad = NULL;
	struct tow_session *session = link->session;
	struct ib_send_wr *last, *next;
	int ret;

	lockdep_assert_held(&link->lock);
	if (!*count)
		return;
	last = &link->works[*count - 1].rdma.wr;
	last->send_flags |= IB_SEND_SIGNALED;
	next = last->next;
	last->next = NULL;
	tow_cq_post(link->cq, *count);
	do {
		ret = ib_post_send(link->qp, from, &bad);
		from = ret && bad ?
		       tow_work_replace(link, container_of(bad, struct tow_work,
							   rdma.wr),
					*count, ret) : NULL;
	} while (from);
	*count = 0;
	tow_cq_posted(link->cq);
	last->next = next;
	if (ret) {
		/* Unposted work requests end with the queue pair. */
		link->open = false;
		tow_session_fail(session, -ECONNRESET, TOW_WIRE_FAILED,
				 "operations could not be posted");
	}
}

static enum ib_wr_opcode tow_op_wr(const struct tow_op *op)
{
	switch (op->opcode) {
	case TOW_OP_READ:
		return IB_WR_RDMA_READ;
	case TOW_OP_FETCH_ADD:
		return IB_WR_ATOMIC_FETCH_AND_ADD;
	case TOW_OP_COMPARE_SWAP:
		return IB_WR_ATOMIC_CMP_AND_SWP;
	default:
		return IB_WR_RDMA_WRITE;
	}
}

/* Caller holds link->lock. */
static void tow_work_notify(struct tow_work *work, const struct tow_link *link,
			    const struct tow_op *op)
{
	struct ib_send_wr *wr = &work->rdma.wr;
	u32 imm = tow_remote_notify(op->slot, link->index);

	wr->opcode = IB_WR_RDMA_WRITE_WITH_IMM;
	wr->ex.imm_data = cpu_to_be32(imm);
	wr->num_sge = work->sge.length ? 1 : 0;
}

/* A work request whose opcode is set is of @bytes at @local. */
static void tow_work_aim(struct tow_work *work, const struct tow_link *link,
			 u64 local, u32 bytes)
{
	struct ib_send_wr *wr = &work->rdma.wr;

	work->sge.addr = local;
	work->sge.length = bytes;
	wr->num_sge = 1;
	wr->send_flags = wr->opcode == IB_WR_RDMA_WRITE &&
			 bytes <= link->inline_bytes ? IB_SEND_INLINE : 0;
}

/* Fill in what tow_works_prepare() has not set. */
static void tow_work_fill(struct tow_work *work, struct tow_link *link,
			  const struct tow_op *op,
			  const struct tow_piece *piece, struct ib_cqe *cqe)
{
	struct ib_send_wr *wr = &work->rdma.wr;

	wr->wr_cqe = cqe;
	wr->opcode = tow_op_wr(op);
	tow_work_aim(work, link, piece->local, piece->bytes);
	/* If another one stalls, this one is known to have completed. */
	if (op->tried)
		wr->send_flags |= IB_SEND_SIGNALED;
	if (!tow_op_is_atomic(op)) {
		work->rdma.remote_addr = piece->address;
		work->rdma.rkey = piece->key;
		if (piece->tells)
			tow_work_notify(work, link, op);
		return;
	}
	work->atomic.remote_addr = piece->address;
	work->atomic.rkey = piece->key;
	work->atomic.compare_add = op->opcode == TOW_OP_FETCH_ADD ?
				   op->operand : op->compare;
	work->atomic.swap = op->operand;
}

/* Caller holds link->lock.  The next work request is @op's.  Return: it. */
static struct tow_post *tow_post_next(struct tow_link *link, struct tow_op *op,
				      u32 bytes)
{
	struct tow_post *post = &link->posts[link->posted & link->post_mask];

	post->ops = op;
	post->last = op;
	post->bytes = max_t(u32, bytes, TOW_OPS_LEAST);
	post->status = 0;
	post->tells = false;
	post->refused = false;
	post->stalled = false;
	WRITE_ONCE(link->posted, link->posted + 1);
	link->inflight += post->bytes;
	op->flow->share->credit -= post->bytes;
	return post;
}

/* Caller holds link->lock.  Make a work request of a piece. */
static void tow_piece_add(struct tow_link *link, struct tow_op *op,
			  const struct tow_piece *piece, struct tow_push *push)
{
	struct tow_post *post = tow_post_next(link, op, piece->bytes);

	post->tells = piece->tells;
	link->notified += piece->tells;
	tow_work_fill(&link->works[push->count++], link, op, piece,
		      &post->cqe);
}

/* Caller holds link->lock.  Add @op, all of it, to the last work request. */
static void tow_work_extend(struct tow_link *link, struct tow_work *work,
			    struct tow_op *op)
{
	struct tow_post *post = &link->posts[(link->posted - 1) &
					     link->post_mask];

	work->sge.length += op->bytes;
	if (work->sge.length > link->inline_bytes)
		work->rdma.wr.send_flags &= ~IB_SEND_INLINE;
	/* A merged operation has left its flow: tow_op.next is free. */
	post->last->next = op;
	post->last = op;
	link->inflight -= post->bytes;
	post->bytes = max_t(u32, work->sge.length, TOW_OPS_LEAST);
	link->inflight += post->bytes;
	op->flow->share->credit -= op->bytes;
}

/* Does memory follow that of a work request of no more than @most bytes with it? */
static bool tow_work_borders(const struct tow_work *work, u64 local, u64 address,
			     u64 bytes, u32 most)
{
	return work->rdma.remote_addr + work->sge.length == address &&
	       work->sge.addr + work->sge.length == local &&
	       bytes <= most - min(most, work->sge.length);
}

/*
 * Caller holds link->lock.  Merge an operation that is one piece into the last
 * work request, which is not posted yet.  An operation that has failed by itself
 * is posted alone, so that no other operation fails with it again; inline data
 * has a place for each.  Return: false: the two do not fit.
 */
static bool tow_piece_merge(struct tow_link *link, struct tow_op *op,
			    const struct tow_piece *piece,
			    const struct tow_push *push)
{
	struct tow_post *post;
	struct tow_work *work;

	if (!push->count || tow_op_is_atomic(op) || op->slot || op->tried ||
	    !op->region || op->bytes != piece->bytes)
		return false;
	post = &link->posts[(link->posted - 1) & link->post_mask];
	work = &link->works[push->count - 1];
	/* What differs most often comes first. */
	if (!tow_work_borders(work, piece->local, piece->address, piece->bytes,
			      push->most) ||
	    work->rdma.rkey != piece->key ||
	    work->rdma.wr.opcode != tow_op_wr(op) ||
	    post->last->flow != op->flow || post->ops->tried ||
	    !post->ops->region ||
	    /* A piece of a larger operation is not merged. */
	    post->ops->bytes > work->sge.length ||
	    post->ops->cursor != post->ops->bytes)
		return false;
	tow_work_extend(link, work, op);
	return true;
}

/*
 * Caller holds link->lock.  What is next of an operation, of which something is left:
 * all, or of a vector what is left of a piece.
 */
static struct tow_vector tow_op_next(struct tow_op *op)
{
	struct tow_vector rest = {
		.offset		= op->offset,
		.remote_offset	= op->remote_offset,
		.bytes		= op->bytes,
	};
	struct tow_vec *vec = op->vec;
	u64 done = op->cursor;

	if (unlikely(vec)) {
		rest = vec->pieces[vec->index];
		if (done == vec->before + rest.bytes) {
			vec->before = done;
			rest = vec->pieces[++vec->index];
		}
		done -= vec->before;
	}
	rest.offset += done;
	rest.remote_offset += done;
	rest.bytes -= done;
	return rest;
}

/* Caller holds link->lock.  Copy inline data to the next work request's.  Return: there. */
static u64 tow_payload_copy(struct tow_link *link, const struct tow_op *op)
{
	u32 at = (link->posted & link->post_mask) * TOW_INLINE_MAX;

	memcpy(link->payloads + at, op->payload, TOW_INLINE_MAX);
	ib_dma_sync_single_for_device(link->qp->device, link->payloads_dma + at,
				      TOW_INLINE_MAX, DMA_TO_DEVICE);
	return link->payloads_dma + at;
}

/* Caller holds link->lock.  Find memory for the next work request. */
static void tow_piece_find(struct tow_link *link, struct tow_op *op,
			   struct tow_push *push, struct tow_piece *piece)
{
	struct tow_vector rest = tow_op_next(op);
	u64 left = min_t(u64, rest.bytes, push->most);

	if (unlikely(tow_op_is_inline(op)))
		push->near = (struct tow_reach){
			.address = tow_payload_copy(link, op),
			.bytes = TOW_INLINE_MAX,
		};
	else if (push->region != op->region ||
		 !tow_reach_has(&push->near, rest.offset, 1))
		tow_region_reach(op->region, rest.offset, &push->near);
	if (push->remote != op->remote ||
	    !tow_reach_has(&push->far, rest.remote_offset, 1))
		tow_remote_reach(op->remote, rest.remote_offset, &push->far);
	push->region = op->region;
	push->remote = op->remote;
	piece->local = tow_reach_address(&push->near, rest.offset);
	piece->address = tow_reach_address(&push->far, rest.remote_offset);
	piece->key = push->far.key;
	piece->bytes = min3(left, tow_reach_left(&push->near, rest.offset),
			    tow_reach_left(&push->far, rest.remote_offset));
}

/* Caller holds link->lock.  May another work request join the chain that is made? */
static bool tow_push_has_room(const struct tow_link *link,
			      const struct tow_push *push)
{
	return push->left && push->count < link->batch &&
	       link->inflight < push->enough && link->inflight < push->limit &&
	       link->posted - link->retired < link->depth;
}

/*
 * Caller holds link->lock.  The last work request has all of an operation of @flow, for
 * which tow_piece_find() was called.  Post those that are like it.
 */
static void tow_flow_post_like(struct tow_link *link, struct tow_flow *flow,
			       struct tow_push *push)
{
	struct tow_work *work = &link->works[push->count - 1];
	enum ib_wr_opcode opcode = work->rdma.wr.opcode;
	u64 local, address;
	struct tow_op *op;

	while ((op = flow->ops.first) && op->like && op->bytes <= push->most &&
	       flow->share->credit > 0 && tow_push_has_room(link, push) &&
	       tow_reach_has(&push->near, op->offset, op->bytes) &&
	       tow_reach_has(&push->far, op->remote_offset, op->bytes)) {
		local = tow_reach_address(&push->near, op->offset);
		address = tow_reach_address(&push->far, op->remote_offset);
		/* The next one has it as well. */
		flow->ops.first = op->next;
		if (tow_work_borders(work, local, address, op->bytes,
				     push->most)) {
			tow_work_extend(link, work, op);
		} else {
			work = &link->works[push->count++];
			work->rdma.wr.wr_cqe =
				&tow_post_next(link, op, op->bytes)->cqe;
			work->rdma.wr.opcode = opcode;
			tow_work_aim(work, link, local, op->bytes);
			work->rdma.remote_addr = address;
			work->rdma.rkey = push->far.key;
		}
		op->like = false;
		op->pieces = 1;
		op->cursor = op->bytes;
		push->left--;
	}
	if (!flow->ops.first)
		tow_flow_is_done(flow);
}

/* All of it is in one work request, and nothing is special about it. */
static bool tow_op_is_whole(const struct tow_op *op, const struct tow_piece *piece)
{
	return op->bytes == piece->bytes && !op->slot && !op->claim &&
	       !op->tried && !tow_op_is_atomic(op);
}

/*
 * Caller holds link->lock.  Post something of @flow, which has its turn, or refuse its
 * first operation.  Return: false: refused.
 */
static bool tow_flow_post_next(struct tow_link *link, struct tow_flow *flow,
			       struct tow_push *push, struct tow_op_list *ended)
{
	struct tow_op *op = flow->ops.first, *next = op->next;
	int error = tow_op_refused(op);
	struct tow_piece piece;

	if (error) {
		tow_op_abort(op, error, ended);
		return false;
	}
	if (op->cursor < op->bytes)
		tow_piece_find(link, op, push, &piece);
	else
		memset(&piece, 0, sizeof(piece));
	/* The last write notifies the operation's slot. */
	piece.tells = op->to_tell && op->cursor + piece.bytes == op->bytes;
	if (piece.tells && !tow_credit_take(link->session)) {
		/* The flow takes no turns before the peer returns credit. */
		tow_flow_park(link);
		return true;
	}
	if (!tow_op_claim(op, TOW_CLAIM_POSTED)) {
		if (piece.tells)
			tow_credit_untake(link->session);
		tow_op_abort(op, -ETIMEDOUT, ended);
		return false;
	}
	if (!tow_piece_merge(link, op, &piece, push))
		tow_piece_add(link, op, &piece, push);
	op->like = false;
	op->pieces++;
	op->cursor += piece.bytes;
	if (piece.tells)
		op->to_tell = false;
	if (op->cursor == op->bytes && !op->to_tell)
		tow_op_leave(flow);
	if (next && next->like && tow_op_is_whole(op, &piece))
		tow_flow_post_like(link, flow, push);
	return true;
}

static void tow_push_init(struct tow_push *push, struct tow_link *link)
{
	struct tow_device *dev = link->assoc->dev;

	push->limit = READ_ONCE(dev->queues->inflight_bytes);
	push->enough = link->inflight + push->limit / TOW_OPS_CHAINS;
	push->most = min_t(u32, push->limit / TOW_OPS_PIECES, dev->max_msg_bytes);
	push->count = 0;
	push->left = TOW_PUSH_BUDGET;
	push->refused = 0;
	push->region = NULL;
	push->remote = NULL;
}

/**
 * tow_link_push - post operations of a link's flows, in turns
 * @link: the link; caller holds @link->lock
 * @ended: the list that operations which have ended are added to; for
 *	tow_ops_end()
 *
 * Where there is much to do a work item does the rest.
 */
void tow_link_push(struct tow_link *link, struct tow_op_list *ended)
{
	struct tow_share *share;
	struct tow_push push;
	struct tow_flow *flow;

	lockdep_assert_held(&link->lock);
	if (!link->shares)
		return;
	tow_push_init(&push, link);
	while (link->open && link->inflight < push.limit &&
	       link->posted - link->retired < link->depth) {
		share = link->shares;
		if (!share || !push.left)
			break;
		push.left--;
		if (share->credit <= 0) {
			share->credit += TOW_OPS_QUANTUM;
			tow_flow_rotate(link);
			continue;
		}
		flow = share->flows;
		if (!tow_flow_post_next(link, flow, &push, ended) &&
		    ++push.refused % TOW_REFUSE_BUDGET == 0 &&
		    link->shares == share)
			tow_flow_rotate(link);
		if (push.count == link->batch || link->inflight >= push.enough) {
			tow_works_post(link, &push.count);
			push.enough = link->inflight + push.limit / TOW_OPS_CHAINS;
		}
	}
	tow_works_post(link, &push.count);
	if (!push.left && link->shares)
		tow_credit_wake(link->assoc);
}

/* ---- completions ---------------------------------------------------------- */

static int tow_op_status(const struct ib_wc *wc)
{
	switch (wc->status) {
	case IB_WC_SUCCESS:
		return 0;
	case IB_WC_REM_ACCESS_ERR:
	case IB_WC_REM_INV_REQ_ERR:
	case IB_WC_REM_OP_ERR:
		return -EIO;
	default:
		return -ECONNRESET;
	}
}

/* Caller holds link->lock.  End a work request. */
static void tow_post_end(struct tow_link *link, struct tow_post *post,
			 int status, struct tow_op_list *ended)
{
	struct tow_op *op = post->ops;

	link->inflight -= post->bytes;
	if (status) {
		for (;; op = op->next) {
			op->lost |= !post->refused;
			if (!op->status)
				op->status = status;
			if (op == post->last)
				break;
		}
		op = post->ops;
	}
	/* Merged operations have no other pieces. */
	if (op != post->last) {
		tow_op_list_add(ended, op, post->last);
		return;
	}
	op->pieces--;
	op->moved |= post->bytes > TOW_OPS_LEAST;
	tow_op_try_complete(op, ended);
}

/* Caller holds link->lock.  Is the work request under way? */
static bool tow_post_under_way(const struct tow_post *post)
{
	const struct tow_link *link = post->link;
	u32 number = post - link->posts;

	return ((number - link->retired) & link->post_mask) <
	       link->posted - link->retired;
}

/* Caller holds link->lock; @post is under way.  Return: its number. */
static u32 tow_post_number(const struct tow_post *post)
{
	const struct tow_link *link = post->link;
	u32 number = post - link->posts;

	return link->retired + ((number - link->retired) & link->post_mask);
}

/*
 * Caller holds link->lock; @post failed by itself.  Count it for its operations:
 * there is one, or none of them was counted before (tow_piece_merge()).  Return:
 * false: it has failed too often.
 */
static bool tow_post_try_again(const struct tow_post *post)
{
	struct tow_op *op = post->ops;

	if (op->tried == TOW_OP_TRIES)
		return false;
	op->tried++;
	while (op != post->last) {
		op = op->next;
		op->tried++;
	}
	return true;
}

/*
 * Caller holds link->lock.  What becomes of a work request that has failed?  One
 * that was flushed has not failed by itself.  One without an answer may have met
 * an outage, or there is no way for it: a path may lose large packets only.  All
 * work requests are checked before, so one that is reported as not valid need
 * not be at fault: soft-RoCE sends such when it retransmits twice, and refuses
 * to send ours when its interface or its address has gone.  Return: 0: it may be
 * posted once more, by another queue pair; a negative errno: it has failed.
 */
static int tow_post_verdict(const struct tow_post *post, const struct ib_wc *wc)
{
	int error = -EIO;

	switch (wc->status) {
	case IB_WC_WR_FLUSH_ERR:
		return post->status;
	case IB_WC_RETRY_EXC_ERR:
	case IB_WC_RNR_RETRY_EXC_ERR:
	case IB_WC_RESP_TIMEOUT_ERR:
		if (post->stalled || post->ops->moved)
			return post->status;
		error = -ETIMEDOUT;
		break;
	case IB_WC_LOC_QP_OP_ERR:
		break;
	case IB_WC_REM_INV_REQ_ERR:
		if (tow_op_is_atomic(post->ops))
			return error;
		break;
	default:
		return tow_op_status(wc);
	}
	return tow_post_try_again(post) ? 0 : error;
}

/**
 * tow_link_stalled - nothing of a link completes
 * @link: the link; caller holds @link->lock, and ends the session.  Something is
 *	in flight
 *
 * The oldest work request counts as one that got no answer, as the RDMA device
 * would say in the end: else it would end each session, for ever.
 */
void tow_link_stalled(struct tow_link *link)
{
	struct tow_post *post = &link->posts[link->retired & link->post_mask];

	lockdep_assert_held(&link->lock);
	if (post->stalled || post->ops->moved)
		return;
	post->stalled = true;
	if (!tow_post_try_again(post))
		post->status = -ETIMEDOUT;
}

/* Caller holds link->lock.  End all work requests up to @last. */
static void tow_link_retire(struct tow_link *link, struct tow_post *last,
			    int status, struct tow_op_list *ended)
{
	struct tow_post *post;

	/* Completions of a queue pair come in order, each once. */
	if (WARN_ON_ONCE(!tow_post_under_way(last))) {
		link->open = false;
		tow_session_fail(link->session, -EIO, TOW_WIRE_FAILED,
				 "a completion came twice");
		return;
	}
	do {
		post = &link->posts[link->retired & link->post_mask];
		tow_post_end(link, post, post->status ?: status, ended);
		link->retired++;
	} while (post != last);
	WRITE_ONCE(link->drained, link->retired);
}

/*
 * Caller holds link->lock.  A work request has failed.  What becomes of it, and
 * of those before it that were not signaled, is decided later
 * (tow_replay_receive(), tow_ops_abandon()).
 */
static void tow_post_broke(struct tow_post *post, const struct ib_wc *wc)
{
	struct tow_link *link = post->link;

	link->open = false;
	if (WARN_ON_ONCE(!tow_post_under_way(post)))
		return;
	post->status = tow_post_verdict(post, wc);
	WRITE_ONCE(link->drained, tow_post_number(post) + 1);
}

static void tow_op_completed(struct ib_cq *cq, struct ib_wc *wc)
{
	struct tow_post *post = container_of(wc->wr_cqe, struct tow_post, cqe);
	struct tow_link *link = post->link;
	struct tow_session *session = link->session;
	int status = tow_op_status(wc);
	struct tow_op_list ended;
	u32 before;

	if (status) {
		tow_session_fail(session, status, TOW_WIRE_FAILED,
				 "an operation failed");
		spin_lock_bh(&link->lock);
		tow_post_broke(post, wc);
		spin_unlock_bh(&link->lock);
		return;
	}
	WRITE_ONCE(session->heard_at, jiffies);
	WRITE_ONCE(session->busy_at, jiffies);
	WRITE_ONCE(session->moved, true);
	tow_op_list_init(&ended);
	spin_lock_bh(&link->lock);
	before = link->retired;
	tow_link_retire(link, post, 0, &ended);
	tow_cq_retired(link->cq, link->retired - before);
	tow_link_push(link, &ended);
	spin_unlock_bh(&link->lock);
	tow_ops_end(&ended);
}

/* ---- links ---------------------------------------------------------------- */

/* Set what no operation changes; all else is zero. */
static void tow_works_prepare(struct tow_link *link, u32 posts)
{
	struct tow_work *work;
	u32 i;

	for (i = 0; i < posts; i++) {
		link->posts[i].cqe.done = tow_op_completed;
		link->posts[i].link = link;
	}
	for (i = 0; i < link->batch; i++) {
		work = &link->works[i];
		work->sge.lkey = link->assoc->dev->pd->local_dma_lkey;
		work->rdma.wr.sg_list = &work->sge;
		if (i + 1 < link->batch)
			work->rdma.wr.next = &link->works[i + 1].rdma.wr;
	}
}

/**
 * tow_ops_prepare - allocate what posting on a link needs
 * @link: the link
 * @depth: work requests of its queue pair; becomes less if an earlier queue
 *	pair of the link had less
 *
 * tow_link_cleanup() undoes it, when the link gets no queue pair any more.
 *
 * Return: 0 or -ENOMEM.
 */
int tow_ops_prepare(struct tow_link *link, u32 *depth)
{
	u32 count = roundup_pow_of_two(*depth);

	/* Work requests of an earlier queue pair may be listed. */
	if (link->posts) {
		*depth = min(*depth, link->post_mask + 1);
		return 0;
	}
	link->posts = kvcalloc(count, sizeof(*link->posts), GFP_KERNEL);
	link->batch = min_t(u32, DIV_ROUND_UP(*depth, TOW_OPS_CHAINS),
			    TOW_OPS_BATCH);
	link->works = kcalloc(link->batch, sizeof(*link->works), GFP_KERNEL);
	link->post_mask = count - 1;
	if (!link->posts || !link->works) {
		tow_link_cleanup(link);
		return -ENOMEM;
	}
	tow_works_prepare(link, count);
	return 0;
}

/**
 * tow_ops_abandon - end the operations that did not complete with success
 * @link: the link, closed for good; its queue pair is destroyed, its
 *	completions are handled
 */
void tow_ops_abandon(struct tow_link *link)
{
	struct tow_op_list ended;
	struct tow_post *last;

	tow_op_list_init(&ended);
	spin_lock_bh(&link->lock);
	if (link->posted != link->retired) {
		last = &link->posts[(link->posted - 1) & link->post_mask];
		tow_link_retire(link, last, -ECONNRESET, &ended);
	}
	spin_unlock_bh(&link->lock);
	tow_ops_end(&ended);
}
