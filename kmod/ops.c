// SPDX-License-Identifier: GPL-2.0
/*
 * Operations on remote ranges: one read or write, one work request.
 *
 * An operation ends in one of three ways: the RDMA device completes it; it
 * completes it as flushed, because the queue pair broke; or the queue pair is
 * destroyed without.  A failed one breaks the session: what the queue pair
 * carries for others cannot be told from it.
 */
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "device.h"
#include "ops.h"
#include "remote.h"
#include "session.h"

static void tow_op_end(struct tow_op *op, int status)
{
	op->status = status;
	tow_remote_leave(op->remote, status);
	op->done(op);
}

static void tow_op_count(struct tow_op *op, struct tow_peer *peer)
{
	atomic64_inc(&peer->operations);
	atomic64_add(op->sge.length, op->wr.wr.opcode == IB_WR_RDMA_READ ?
		     &peer->bytes_read : &peer->bytes_written);
}

static void tow_op_completed(struct ib_cq *cq, struct ib_wc *wc)
{
	struct tow_op *op = container_of(wc->wr_cqe, struct tow_op, cqe);
	struct tow_link *link = op->via;
	struct tow_session *session = link->session;
	unsigned long flags;
	int status = 0;

	if (wc->status == IB_WC_SUCCESS) {
		WRITE_ONCE(session->heard_at, jiffies);
		WRITE_ONCE(session->busy_at, jiffies);
		tow_op_count(op, session->peer);
	} else {
		status = wc->status == IB_WC_REM_ACCESS_ERR ||
			 wc->status == IB_WC_REM_INV_REQ_ERR ||
			 wc->status == IB_WC_REM_OP_ERR ? -EIO : -ECONNRESET;
		tow_session_fail(session, status, TOW_WIRE_FAILED,
				 "an operation failed");
	}
	spin_lock_irqsave(&link->lock, flags);
	list_del(&op->link);
	link->posted--;
	spin_unlock_irqrestore(&link->lock, flags);
	tow_op_end(op, status);
}

/**
 * tow_ops_abandon - end what the RDMA device did not complete
 * @link: the link; its queue pair is destroyed, its completions dealt with
 */
void tow_ops_abandon(struct tow_link *link)
{
	struct tow_op *op, *next;
	unsigned long flags;
	LIST_HEAD(ops);

	spin_lock_irqsave(&link->lock, flags);
	list_splice_init(&link->ops, &ops);
	link->posted = 0;
	spin_unlock_irqrestore(&link->lock, flags);
	list_for_each_entry_safe(op, next, &ops, link)
		tow_op_end(op, -ECONNRESET);
}

static void tow_op_prepare(struct tow_op *op, bool read, u64 local, u32 bytes,
			   const struct tow_remote_target *target, u32 lkey)
{
	memset(&op->wr, 0, sizeof(op->wr));
	op->cqe.done = tow_op_completed;
	op->sge.addr = local;
	op->sge.length = bytes;
	op->sge.lkey = lkey;
	op->wr.wr.wr_cqe = &op->cqe;
	op->wr.wr.sg_list = &op->sge;
	op->wr.wr.num_sge = 1;
	op->wr.wr.opcode = read ? IB_WR_RDMA_READ : IB_WR_RDMA_WRITE;
	op->wr.wr.send_flags = IB_SEND_SIGNALED;
	op->wr.remote_addr = target->address;
	op->wr.rkey = target->key;
}

static int tow_op_post(struct tow_op *op, struct tow_link *link)
{
	unsigned long flags;
	int ret = 0;

	op->via = link;
	spin_lock_irqsave(&link->lock, flags);
	if (!link->open)
		ret = -ECONNRESET;
	else if (link->posted >= link->depth)
		ret = -EAGAIN;
	if (!ret) {
		list_add_tail(&op->link, &link->ops);
		link->posted++;
		ret = ib_post_send(link->id->qp, &op->wr.wr, NULL);
		if (ret) {
			list_del(&op->link);
			link->posted--;
		}
	}
	spin_unlock_irqrestore(&link->lock, flags);
	return ret;
}

/**
 * tow_op_start - read from or write to a remote range
 * @op: the operation; the caller's again when its @done is called
 * @remote: the range; the operation holds it until it has ended
 * @channel: which data queue pair; operations on one are executed in order
 * @read: read; else write
 * @offset: in the range, in bytes
 * @local: our memory, as the RDMA device sees it
 * @bytes: how much, at least 1; within one segment of the range
 *
 * In process context.
 *
 * Return: 0: @done will be called; -ESTALE: the export or the connection has
 * ended; -EACCES: without the right; -ERANGE: not within the range, or over the
 * end of a segment; -EINVAL: no such channel; -EAGAIN: the queue pair is full;
 * -ECONNRESET: the connection is ending.
 */
int tow_op_start(struct tow_op *op, struct tow_remote *remote,
		 unsigned int channel, bool read, u64 offset, u64 local,
		 u32 bytes)
{
	struct tow_session *session = remote->session;
	struct tow_remote_target target;
	int ret;

	if (channel >= session->qps || !bytes)
		return -EINVAL;
	ret = tow_remote_enter(remote, offset, bytes, read ? TOW_RIGHT_READ :
			       TOW_RIGHT_WRITE, &target);
	if (ret)
		return ret;
	if (target.bytes < bytes) {
		ret = -ERANGE;
		goto err_leave;
	}
	op->remote = remote;
	tow_op_prepare(op, read, local, bytes, &target,
		       session->dev->pd->local_dma_lkey);
	ret = tow_op_post(op, &session->data[channel]);
	if (!ret)
		return 0;
err_leave:
	/* Nothing of it is on its way. */
	tow_remote_leave(remote, 0);
	return ret;
}

/**
 * towk_op_start - tow_op_start() for other kernel modules
 * @op: as there
 * @remote: as there
 * @channel: as there
 * @read: as there
 * @offset: as there
 * @local: as there
 * @bytes: as there
 *
 * Return: as there.
 */
int towk_op_start(struct tow_op *op, struct tow_remote *remote,
		  unsigned int channel, bool read, u64 offset, u64 local,
		  u32 bytes)
{
	return tow_op_start(op, remote, channel, read, offset, local, bytes);
}
EXPORT_SYMBOL_GPL(towk_op_start);
