// SPDX-License-Identifier: GPL-2.0
/*
 * The maintenance queue pair itself: made, connected, used, unmade.
 *
 * It is connected by hand, to its own number and address.  What looks well may
 * not register memory all the same, so that is tried before anybody else may use
 * it: see maint_trial.c.
 *
 * Whoever calls has tow_maint.use, so nothing here happens twice at a time.
 */
#include <linux/delay.h>
#include <linux/etherdevice.h>
#include <linux/jiffies.h>
#include <net/ipv6.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_verbs.h>

#include "internal.h"

/* A registration takes microseconds; a debug kernel in an emulator, more. */
#define TOW_MAINT_REQUEST_MS	3000
#define TOW_MAINT_DRAIN_MS	1000

/* So often completions are looked for before we go to sleep between looks. */
#define TOW_MAINT_LOOKS		200

/* Nobody is far away on the way to oneself. */
#define TOW_MAINT_RETRIES	6
#define TOW_MAINT_TIMEOUT	14	/* 4.096 us * 2^14: 67 ms */
#define TOW_MAINT_MIN_RNR	12	/* 0.64 ms */

/**
 * tow_maint_broken - the present queue pair is of no use any more
 * @maint: the maintenance queue pair
 * @error: why, a negative errno
 *
 * May be called in any context, with the provider's locks held.
 */
void tow_maint_broken(struct tow_maint *maint, int error)
{
	unsigned long flags;

	spin_lock_irqsave(&maint->lock, flags);
	if (!maint->stopping && (maint->state == TOW_MAINT_READY ||
				 maint->state == TOW_MAINT_CONNECTING)) {
		maint->broken = error;
		mod_delayed_work(tow_wq, &maint->work, 0);
	}
	spin_unlock_irqrestore(&maint->lock, flags);
}

/* Called by providers in any context, maybe with their locks held. */
static void tow_maint_qp_event(struct ib_event *event, void *context)
{
	switch (event->event) {
	case IB_EVENT_QP_FATAL:
	case IB_EVENT_QP_REQ_ERR:
	case IB_EVENT_QP_ACCESS_ERR:
		tow_maint_broken(context, -EIO);
		break;
	default:
		break;
	}
}

/* How well a RoCE address serves: 0 is not at all. */
static int tow_maint_rank_gid(const struct ib_gid_attr *attr)
{
	const struct in6_addr *addr = (const struct in6_addr *)attr->gid.raw;

	if (attr->gid_type != IB_GID_TYPE_ROCE_UDP_ENCAP)
		return 1;
	if (ipv6_addr_v4mapped(addr))
		return 4;
	return ipv6_addr_type(addr) & IPV6_ADDR_LINKLOCAL ? 2 : 3;
}

/* The best of the port's addresses, with a reference. */
static const struct ib_gid_attr *tow_maint_find_gid(struct ib_device *ibdev,
						    u32 port, int count)
{
	const struct ib_gid_attr *best = NULL, *attr;
	int i;

	for (i = 0; i < count; i++) {
		attr = rdma_get_gid_attr(ibdev, port, i);
		if (IS_ERR(attr))
			continue;
		if (best && tow_maint_rank_gid(best) >=
			    tow_maint_rank_gid(attr)) {
			rdma_put_gid_attr(attr);
			continue;
		}
		if (best)
			rdma_put_gid_attr(best);
		best = attr;
	}
	return best ?: ERR_PTR(-EADDRNOTAVAIL);
}

/*
 * RoCE: the way to oneself.  Queue pairs that the kernel makes must bring the
 * Ethernet address along; nobody looks it up for them.
 */
static int tow_maint_address_roce(struct tow_maint *maint,
				  const struct ib_port_attr *port,
				  struct rdma_ah_attr *ah)
{
	struct tow_device *dev = maint->dev;
	const struct ib_gid_attr *attr;
	int ret;

	attr = tow_maint_find_gid(dev->ibdev, dev->port, port->gid_tbl_len);
	if (IS_ERR(attr))
		return PTR_ERR(attr);
	ret = rdma_read_gid_l2_fields(attr, NULL, ah->roce.dmac);
	if (!ret) {
		maint->gid = attr->gid;
		maint->gid_index = attr->index;
		rdma_ah_set_grh(ah, &maint->gid, 0, attr->index, 1, 0);
	}
	rdma_put_gid_attr(attr);
	return ret;
}

/* InfiniBand: a port has a local identifier once a subnet manager was there. */
static int tow_maint_address_ib(struct tow_maint *maint,
				const struct ib_port_attr *port,
				struct rdma_ah_attr *ah)
{
	if (!port->lid)
		return -ENETDOWN;
	maint->lid = port->lid;
	rdma_ah_set_dlid(ah, port->lid);
	return 0;
}

/**
 * tow_maint_address_valid - is what the queue pair is connected to still ours?
 * @maint: the maintenance queue pair, connected; the caller has tow_maint.use
 *
 * Return: false if the address has changed.
 */
bool tow_maint_address_valid(struct tow_maint *maint)
{
	struct tow_device *dev = maint->dev;
	struct ib_port_attr port;
	union ib_gid gid;

	if (dev->transport == TOW_TRANSPORT_ROCE)
		return !rdma_query_gid(dev->ibdev, dev->port, maint->gid_index,
				       &gid) &&
		       !memcmp(&gid, &maint->gid, sizeof(gid));
	return !ib_query_port(dev->ibdev, dev->port, &port) &&
	       port.lid == maint->lid;
}

/**
 * tow_maint_port_active - may anything be sent?
 * @maint: the maintenance queue pair; the caller has tow_maint.use
 *
 * Return: whether the port is up.
 */
bool tow_maint_port_active(struct tow_maint *maint)
{
	struct tow_device *dev = maint->dev;
	struct ib_port_attr port;

	return !ib_query_port(dev->ibdev, dev->port, &port) &&
	       port.state == IB_PORT_ACTIVE;
}

/**
 * tow_device_atomics - are there atomics, for us and for peers?
 * @dev: the device; the caller is a user of it
 *
 * Return: whether the driver has them, and did not refuse one when it was tried.
 */
bool tow_device_atomics(struct tow_device *dev)
{
	return READ_ONCE(dev->ibdev->attrs.atomic_cap) != IB_ATOMIC_NONE &&
	       !tow_maint_lacks(&dev->memory->maint, TOW_LACKS_ATOMICS);
}

static int tow_maint_to_init(struct tow_maint *maint)
{
	struct tow_device *dev = maint->dev;
	struct ib_qp_attr attr = {
		.qp_state		= IB_QPS_INIT,
		.port_num		= dev->port,
		/* For the trial. */
		.qp_access_flags	= IB_ACCESS_REMOTE_READ,
	};

	if (tow_device_atomics(dev))
		attr.qp_access_flags |= IB_ACCESS_REMOTE_ATOMIC;
	return ib_modify_qp(maint->qp, &attr, IB_QP_STATE | IB_QP_PKEY_INDEX |
			    IB_QP_PORT | IB_QP_ACCESS_FLAGS);
}

static int tow_maint_to_rtr(struct tow_maint *maint)
{
	struct tow_device *dev = maint->dev;
	struct ib_qp_attr attr = {
		.qp_state		= IB_QPS_RTR,
		.dest_qp_num		= maint->qp->qp_num,
		.max_dest_rd_atomic	= 1,
		.min_rnr_timer		= TOW_MAINT_MIN_RNR,
	};
	struct ib_port_attr port;
	int ret;

	ret = ib_query_port(dev->ibdev, dev->port, &port);
	if (ret)
		return ret;
	attr.path_mtu = port.active_mtu;
	attr.ah_attr.type = rdma_ah_find_type(dev->ibdev, dev->port);
	rdma_ah_set_port_num(&attr.ah_attr, dev->port);
	if (dev->transport == TOW_TRANSPORT_ROCE)
		ret = tow_maint_address_roce(maint, &port, &attr.ah_attr);
	else
		ret = tow_maint_address_ib(maint, &port, &attr.ah_attr);
	if (ret)
		return ret;
	return ib_modify_qp(maint->qp, &attr, IB_QP_STATE | IB_QP_AV |
			    IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN |
			    IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER);
}

static int tow_maint_to_rts(struct tow_maint *maint)
{
	struct ib_qp_attr attr = {
		.qp_state	= IB_QPS_RTS,
		.timeout	= TOW_MAINT_TIMEOUT,
		.retry_cnt	= TOW_MAINT_RETRIES,
		.rnr_retry	= TOW_MAINT_RETRIES,
		.max_rd_atomic	= 1,
	};

	return ib_modify_qp(maint->qp, &attr, IB_QP_STATE | IB_QP_SQ_PSN |
			    IB_QP_TIMEOUT | IB_QP_RETRY_CNT |
			    IB_QP_RNR_RETRY | IB_QP_MAX_QP_RD_ATOMIC);
}

/* tow_maint_teardown() undoes what was done. */
static int tow_maint_connect_self(struct tow_maint *maint)
{
	struct ib_qp_init_attr attr = {
		.event_handler		= tow_maint_qp_event,
		.qp_context		= maint,
		.send_cq		= maint->cq,
		.recv_cq		= maint->cq,
		.cap.max_send_wr	= TOW_MAINT_SEND_WR,
		.cap.max_recv_wr	= TOW_MAINT_RECV_WR,
		.cap.max_send_sge	= 1,
		.cap.max_recv_sge	= 1,
		.sq_sig_type		= IB_SIGNAL_REQ_WR,
		.qp_type		= IB_QPT_RC,
	};
	struct ib_qp *qp;
	int ret;

	qp = ib_create_qp(maint->dev->pd, &attr);
	if (IS_ERR(qp))
		return PTR_ERR(qp);
	maint->qp = qp;
	ret = tow_maint_to_init(maint);
	if (!ret)
		ret = tow_maint_to_rtr(maint);
	if (!ret)
		ret = tow_maint_to_rts(maint);
	return ret;
}

/* Called from tow_maint_poll(). */
static void tow_maint_request_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct tow_maint *maint = cq->cq_context;

	maint->request.outstanding--;
	if (maint->request.status == IB_WC_SUCCESS)
		maint->request.status = wc->status;
}

/*
 * Wait for the completions of what was posted.  There is nobody else to wake
 * us: some providers call completion handlers with locks held that polling
 * needs, so none is used.  A registration is usually over when it was posted,
 * or when another processor has had a moment.
 */
static int tow_maint_poll(struct tow_maint *maint, unsigned int limit_ms)
{
	unsigned long end = jiffies + msecs_to_jiffies(limit_ms);
	unsigned int looks = 0;

	for (;;) {
		bool late = time_after(jiffies, end);

		ib_process_cq_direct(maint->cq, TOW_MAINT_SEND_WR);
		if (!maint->request.outstanding)
			return 0;
		if (late)
			return -ETIMEDOUT;
		if (looks++ < TOW_MAINT_LOOKS && !need_resched())
			cpu_relax();
		else
			usleep_range(20, 100);
	}
}

/*
 * Post a chain of signalled requests.  Those that were taken are outstanding,
 * also after a failure.
 */
static int tow_maint_post(struct tow_maint *maint, struct ib_send_wr *first)
{
	const struct ib_send_wr *bad = NULL;
	struct ib_send_wr *wr;
	int ret;

	maint->request.cqe.done = tow_maint_request_done;
	maint->request.status = IB_WC_SUCCESS;
	maint->request.outstanding = 0;
	for (wr = first; wr; wr = (struct ib_send_wr *)wr->next) {
		wr->wr_cqe = &maint->request.cqe;
		maint->request.outstanding++;
	}
	/*
	 * soft-RoCE of 6.1 works in a tasklet.  With soft interrupts held back
	 * it runs here, when they are let loose, and not in some other thread.
	 */
	local_bh_disable();
	ret = ib_post_send(maint->qp, first, &bad);
	local_bh_enable();
	if (ret) {
		for (wr = (struct ib_send_wr *)bad; wr;
		     wr = (struct ib_send_wr *)wr->next)
			maint->request.outstanding--;
	}
	return ret;
}

/* After a request was refused: could others be sent? */
static bool tow_maint_sends(struct tow_maint *maint)
{
	struct ib_qp_init_attr init;
	struct ib_qp_attr attr;

	return !ib_query_qp(maint->qp, &attr, IB_QP_STATE, &init) &&
	       attr.qp_state == IB_QPS_RTS;
}

/**
 * tow_maint_execute - post work requests, and wait for them, bounded
 * @maint: the maintenance queue pair, connected; the caller has tow_maint.use
 * @first: a chain of them, see tow_maint_run()
 *
 * What the driver did not take does no harm: the queue pair is as good as before.
 * tow_maint.request.broken tells whether it is; if so some may be in flight still,
 * until tow_maint_teardown().
 *
 * Return: 0: all have succeeded; or a negative errno.
 */
int tow_maint_execute(struct tow_maint *maint, struct ib_send_wr *first)
{
	int posted, ret;

	posted = tow_maint_post(maint, first);
	ret = tow_maint_poll(maint, TOW_MAINT_REQUEST_MS);
	if (!ret && maint->request.status != IB_WC_SUCCESS)
		ret = -EIO;
	maint->request.broken = ret || (posted && !tow_maint_sends(maint));
	return ret ?: posted;
}

/**
 * tow_maint_build - make the queue pair, and connect it
 * @maint: the maintenance queue pair; the caller has tow_maint.use
 *
 * tow_maint_teardown() undoes it, also after a failure.
 *
 * Return: 0 or a negative errno.
 */
int tow_maint_build(struct tow_maint *maint)
{
	struct tow_device *dev = maint->dev;
	struct ib_cq *cq;

	cq = ib_alloc_cq(dev->ibdev, maint,
			 TOW_MAINT_SEND_WR + TOW_MAINT_RECV_WR, 0,
			 IB_POLL_DIRECT);
	if (IS_ERR(cq))
		return PTR_ERR(cq);
	maint->cq = cq;
	return tow_maint_connect_self(maint);
}

/**
 * tow_maint_teardown - undo as much of tow_maint_build() as was done
 * @maint: the maintenance queue pair; the caller has tow_maint.use
 *
 * In the error state every request completes; those that do not in time are
 * forgotten by destroying the queue pair, and only then their memory may go.
 */
void tow_maint_teardown(struct tow_maint *maint)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };

	if (maint->qp)
		ib_modify_qp(maint->qp, &attr, IB_QP_STATE);
	if (maint->request.outstanding)
		tow_maint_poll(maint, TOW_MAINT_DRAIN_MS);
	if (maint->qp)
		ib_destroy_qp(maint->qp);
	maint->qp = NULL;
	maint->request.outstanding = 0;
	if (maint->cq)
		ib_free_cq(maint->cq);
	maint->cq = NULL;
}
