// SPDX-License-Identifier: GPL-2.0
/*
 * A session's data queue pairs: which completion queues they use, and how they
 * are drained.
 *
 * conn/data.c connects them.  Work requests that have not completed when their
 * queue pair is destroyed are left to the association (replay.c).
 */
#include <linux/delay.h>
#include <linux/jiffies.h>

#include "assoc.h"
#include "core/core.h"
#include "notify.h"
#include "ops.h"
#include "sequence.h"

/*
 * Inline data saves the provider the look-up of our memory when it sends.  The
 * provider copies inline data from a kernel address, which only a software
 * device is given.
 */
static u32 tow_link_inline_bytes(struct tow_device *dev)
{
	return ib_uses_virt_dma(dev->ibdev) ? 64 : 0;
}

/* Memory for inline data, as many as work requests may be posted. */
static int tow_payloads_map(struct tow_link *link, struct ib_device *ibdev)
{
	size_t bytes = (size_t)(link->post_mask + 1) * TOW_INLINE_MAX;
	u8 *payloads = kzalloc(bytes, GFP_KERNEL);

	if (!payloads)
		return -ENOMEM;
	link->payloads_dma = ib_dma_map_single(ibdev, payloads, bytes,
					       DMA_TO_DEVICE);
	if (ib_dma_mapping_error(ibdev, link->payloads_dma)) {
		kfree(payloads);
		return -ENOMEM;
	}
	link->payloads = payloads;
	return 0;
}

static void tow_payloads_unmap(struct tow_link *link, struct ib_device *ibdev)
{
	if (!link->payloads)
		return;
	ib_dma_unmap_single(ibdev, link->payloads_dma,
			    (size_t)(link->post_mask + 1) * TOW_INLINE_MAX,
			    DMA_TO_DEVICE);
	kfree(link->payloads);
	link->payloads = NULL;
}

static int tow_qp_create(struct tow_link *link)
{
	struct tow_session *session = link->session;
	struct tow_device *dev = session->dev;
	u32 most = min(dev->ibdev->attrs.max_qp_wr, dev->ibdev->attrs.max_cqe);
	u32 receives = min_t(u32, most, TOW_NOTIFY_WINDOW);
	u32 room = clamp(session->settings.queue_depth, TOW_WIRE_PROOFS + 1U, most);
	u32 depth = room - TOW_WIRE_PROOFS;
	struct ib_qp_init_attr attr = {
		.event_handler		= tow_link_qp_event,
		.qp_context		= link,
		.cap.max_recv_wr	= receives,
		.cap.max_send_sge	= 1,
		.cap.max_recv_sge	= 1,
		.cap.max_inline_data	= tow_link_inline_bytes(dev),
		.sq_sig_type		= IB_SIGNAL_REQ_WR,
		.qp_type		= IB_QPT_RC,
	};
	struct tow_cq *receive_cq, *cq;
	struct ib_qp *qp;
	int ret;

	ret = tow_ops_prepare(link, &depth);
	if (ret)
		return ret;
	room = depth + TOW_WIRE_PROOFS;
	cq = tow_cq_get(dev, false, room);
	if (IS_ERR(cq))
		return PTR_ERR(cq);
	receive_cq = tow_cq_get(dev, true, receives);
	if (IS_ERR(receive_cq)) {
		ret = PTR_ERR(receive_cq);
		goto err_put_cq;
	}
	ret = tow_payloads_map(link, dev->ibdev);
	if (ret)
		goto err_put_receive_cq;
	attr.send_cq = tow_cq_device_cq(cq);
	attr.recv_cq = tow_cq_device_cq(receive_cq);
	attr.cap.max_send_wr = room;
	qp = ib_create_qp(dev->pd, &attr);
	if (IS_ERR(qp)) {
		ret = PTR_ERR(qp);
		goto err_unmap_payloads;
	}
	link->qp = qp;
	link->cq = cq;
	link->depth = depth;
	link->receive_depth = receives;
	link->proofs_posted = 0;
	link->proofs_done = 0;
	link->proofs_acked = 0;
	link->proofs_in = 0;
	/* Not more than the provider grants. */
	link->inline_bytes = min(tow_link_inline_bytes(dev),
				 attr.cap.max_inline_data);
	/* Pairs with tow_credit_drain(). */
	smp_store_release(&link->receive_cq, receive_cq);
	return tow_data_modify(link, IB_QPS_INIT) ?: tow_receives_post(link);

err_unmap_payloads:
	tow_payloads_unmap(link, dev->ibdev);
err_put_receive_cq:
	tow_cq_put(dev, receive_cq, receives);
err_put_cq:
	tow_cq_put(dev, cq, room);
	return ret;
}

/* tow_link.arrived, which SYNC reports, is final afterwards. */
static void tow_qp_drain(struct tow_link *link, unsigned long end)
{
	while ((READ_ONCE(link->posted) != READ_ONCE(link->drained) ||
		READ_ONCE(link->proofs_posted) != READ_ONCE(link->proofs_done) ||
		READ_ONCE(link->receives)) && time_before(jiffies, end))
		usleep_range(100, 1000);
	/* No receive is being posted again afterwards. */
	if (link->receive_cq)
		tow_cq_flush(link->receive_cq);
}

static void tow_qp_destroy(struct tow_link *link, unsigned long end)
{
	struct tow_device *dev = link->session->dev;

	tow_qp_drain(link, end);
	if (link->qp)
		ib_destroy_qp(link->qp);
	link->qp = NULL;
	tow_payloads_unmap(link, dev->ibdev);
	if (link->cq) {
		tow_cq_flush(link->cq);
		tow_cq_retired(link->cq, link->proofs_posted - link->proofs_done +
					 link->posted - link->retired - link->kept);
		tow_cq_put(dev, link->cq, link->depth + TOW_WIRE_PROOFS);
		link->cq = NULL;
		tow_cq_flush(link->receive_cq);
		tow_cq_put(dev, link->receive_cq, link->receive_depth);
		link->receive_cq = NULL;
	}
	link->receives = 0;
	link->proofs_done = link->proofs_posted;
	link->kept = link->posted - link->retired;
	WRITE_ONCE(link->drained, link->posted);
}

const struct tow_link_ops tow_qp_link_ops = {
	.create		= tow_qp_create,
	.destroy	= tow_qp_destroy,
};
