// SPDX-License-Identifier: GPL-2.0
/*
 * A session's data queue pairs: which completion queues they use, and how they
 * are drained.
 *
 * conn/link.c connects and destroys them, as it does control queue pairs.  Work
 * requests that have not completed when their queue pair is destroyed are left
 * to the association (replay.c).
 */
#include <linux/delay.h>
#include <linux/jiffies.h>

#include "assoc.h"
#include "core/core.h"
#include "ops.h"

/* Requests of a queue pair in the error state complete at once, or never. */
#define TOW_LINK_DRAIN_MS	1000

/*
 * Inline data saves the provider the look-up of our memory when it sends.  The
 * provider copies inline data from a kernel address, which only a software
 * device is given.
 */
static u32 tow_link_inline_bytes(struct tow_device *dev)
{
	return ib_uses_virt_dma(dev->ibdev) ? 64 : 0;
}

/**
 * tow_link_create_data - give a link its data queue pair
 * @link: the link; @link->id is there, and bound to our device
 *
 * tow_qp_drain() and tow_qp_gone() undo it.
 *
 * Return: 0; -ENOSPC: the device or its shared receive queue has no room;
 * -ENOMEM; the provider's error.
 */
int tow_link_create_data(struct tow_link *link)
{
	struct tow_session *session = link->session;
	struct tow_device *dev = session->dev;
	struct ib_qp_init_attr attr = {
		.event_handler		= tow_link_qp_event,
		.qp_context		= link,
		.cap.max_recv_wr	= 1,
		.cap.max_send_sge	= 1,
		.cap.max_recv_sge	= 1,
		.sq_sig_type		= IB_SIGNAL_REQ_WR,
		.qp_type		= IB_QPT_RC,
	};
	struct tow_srq *srq;
	struct tow_cq *cq;
	u32 depth;
	int ret;

	/* Work requests and the receive must fit into one queue. */
	depth = min_t(u32, dev->ibdev->attrs.max_qp_wr,
		      dev->ibdev->attrs.max_cqe - attr.cap.max_recv_wr);
	depth = min(depth, session->settings.queue_depth);
	tow_srq_get(session);
	if (!tow_credit_keep(session))
		return -ENOSPC;
	ret = tow_ops_prepare(link, &depth);
	if (ret)
		return ret;
	srq = session->notify.srq;
	cq = tow_cq_get(dev, depth + attr.cap.max_recv_wr);
	if (IS_ERR(cq))
		return PTR_ERR(cq);
	attr.send_cq = tow_cq_device_cq(cq);
	attr.recv_cq = srq ? tow_srq_device_cq(srq) : attr.send_cq;
	attr.srq = srq ? tow_srq_device_srq(srq) : NULL;
	attr.cap.max_send_wr = depth;
	attr.cap.max_inline_data = tow_link_inline_bytes(dev);
	ret = rdma_create_qp(link->id, dev->pd, &attr);
	if (ret) {
		tow_cq_put(dev, cq, depth + attr.cap.max_recv_wr);
		return ret;
	}
	link->cq = cq;
	link->depth = depth;
	/* Not more than the provider grants. */
	link->inline_bytes = min(tow_link_inline_bytes(dev),
				 attr.cap.max_inline_data);
	if (srq)
		tow_srq_add_link(srq, link);
	return 0;
}

static void tow_link_drain(struct tow_link *link)
{
	unsigned long end = jiffies + msecs_to_jiffies(TOW_LINK_DRAIN_MS);

	while (READ_ONCE(link->posted) != READ_ONCE(link->drained) &&
	       time_before(jiffies, end))
		usleep_range(100, 1000);
}

/*
 * Wait until nothing arrives any more.  Soft-RoCE has no event for that: there
 * a reset stops the queue pair's tasks, and completions stay in their queue.
 */
static void tow_link_silence(struct tow_link *link)
{
	unsigned long end = jiffies + msecs_to_jiffies(TOW_LINK_DRAIN_MS);
	struct ib_qp_attr attr = { .qp_state = IB_QPS_RESET };

	if (ib_uses_virt_dma(link->session->dev->ibdev)) {
		ib_modify_qp(link->id->qp, &attr, IB_QP_STATE);
		return;
	}
	while (!READ_ONCE(link->silent) && time_before(jiffies, end))
		usleep_range(100, 1000);
}

/**
 * tow_qp_drain - wait until a data queue pair is drained
 * @link: its link, disconnected; the queue pair may not be there
 */
void tow_qp_drain(struct tow_link *link)
{
	struct tow_srq *srq = link->srq_qp ? link->session->notify.srq : NULL;

	tow_link_drain(link);
	/* SYNC reports tow_link.arrived, which must be final. */
	if (srq && link->assoc->lasts && link->step == TOW_LINK_ESTABLISHED)
		tow_link_silence(link);
	if (srq)
		tow_srq_remove_link(srq, link);
}

/**
 * tow_qp_gone - a data queue pair was destroyed
 * @link: its link, after tow_qp_drain(); the queue pair may not have been there
 */
void tow_qp_gone(struct tow_link *link)
{
	struct tow_session *session = link->session;

	if (link->cq) {
		/* Cut off in mid-message, it may have kept a receive. */
		if (session->notify.srq)
			tow_srq_link_gone(session->notify.srq);
		tow_cq_flush(link->cq);
		tow_cq_retired(link->cq,
			       link->posted - link->retired - link->kept);
		tow_cq_put(session->dev, link->cq, link->depth + 1);
		link->cq = NULL;
	}
	link->kept = link->posted - link->retired;
	WRITE_ONCE(link->drained, link->posted);
}
