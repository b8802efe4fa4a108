// SPDX-License-Identifier: GPL-2.0
/*
 * The maintenance queue pair itself: made, connected, used, unmade.
 *
 * It is connected by hand, to its own number and address.  What looks well may
 * not register memory all the same, so that is tried before anybody else may
 * use it: see maint_trial.c.
 *
 * The caller of each function holds tow_maint.use, so nothing here happens
 * twice at a time.
 */
#include <linux/iopoll.h>
#include <net/ipv6.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_verbs.h>

#include "internal.h"

/* A registration takes microseconds; a debug kernel in an emulator, more. */
#define TOW_MAINT_REQUEST_MS	3000
#define TOW_MAINT_DRAIN_MS	1000

/* So long completions are looked for before we sleep; and so long we sleep. */
#define TOW_MAINT_SPIN_US	200
#define TOW_MAINT_LOOK_US	100

/* Nobody is far away on the way to oneself. */
#define TOW_MAINT_RETRIES	6
#define TOW_MAINT_TIMEOUT	14	/* 4.096 us * 2^14: 67 ms */
#define TOW_MAINT_MIN_RNR	12	/* 0.64 ms */

/* ---- connecting it -------------------------------------------------------- */

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

/* The best of the port's addresses, with a reference; NULL: it has none. */
static const struct ib_gid_attr *tow_maint_find_gid(struct tow_device *dev,
						    int count)
{
	const struct ib_gid_attr *best = NULL, *attr;
	int i;

	for (i = 0; i < count; i++) {
		attr = rdma_get_gid_attr(dev->ibdev, dev->port, i);
		if (IS_ERR(attr))
			continue;
		if (!best ||
		    tow_maint_rank_gid(attr) > tow_maint_rank_gid(best))
			swap(attr, best);
		if (attr)
			rdma_put_gid_attr(attr);
	}
	return best;
}

/*
 * RoCE: the way to oneself.  Queue pairs that the kernel makes must bring the
 * Ethernet address along; nobody looks it up for them.
 */
static int tow_maint_address_roce(struct tow_maint *maint, int count,
				  struct rdma_ah_attr *ah)
{
	const struct ib_gid_attr *attr = tow_maint_find_gid(maint->dev, count);
	int ret;

	if (!attr)
		return -EADDRNOTAVAIL;
	ret = rdma_read_gid_l2_fields(attr, NULL, ah->roce.dmac);
	maint->gid = attr->gid;
	maint->gid_index = attr->index;
	rdma_ah_set_grh(ah, &maint->gid, 0, attr->index, 1, 0);
	rdma_put_gid_attr(attr);
	return ret;
}

static int tow_maint_address(struct tow_maint *maint, struct ib_qp_attr *attr)
{
	struct tow_device *dev = maint->dev;
	struct ib_port_attr port;
	int ret;

	ret = ib_query_port(dev->ibdev, dev->port, &port);
	if (ret)
		return ret;
	attr->path_mtu = port.active_mtu;
	attr->ah_attr.type = rdma_ah_find_type(dev->ibdev, dev->port);
	rdma_ah_set_port_num(&attr->ah_attr, dev->port);
	if (dev->transport == TOW_TRANSPORT_ROCE)
		return tow_maint_address_roce(maint, port.gid_tbl_len,
					      &attr->ah_attr);
	/* InfiniBand: there is one once a subnet manager was there. */
	if (!port.lid)
		return -ENETDOWN;
	maint->lid = port.lid;
	rdma_ah_set_dlid(&attr->ah_attr, port.lid);
	return 0;
}

/* Is what the queue pair is connected to still ours? */
static bool tow_maint_address_valid(struct tow_maint *maint)
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
 * tow_device_atomics - are there atomics, for us and for peers?
 * @dev: the device; the caller is a user of it
 *
 * Return: whether the driver has them, and did not refuse one when it was
 * tried.
 */
bool tow_device_atomics(struct tow_device *dev)
{
	return READ_ONCE(dev->ibdev->attrs.atomic_cap) != IB_ATOMIC_NONE &&
	       !tow_maint_lacks(&dev->memory->maint, TOW_LACKS_ATOMICS);
}

static int tow_maint_connect(struct tow_maint *maint)
{
	static const struct {
		enum ib_qp_state	state;
		int			mask;
	} steps[] = {
		{ IB_QPS_INIT, IB_QP_PKEY_INDEX | IB_QP_PORT |
			       IB_QP_ACCESS_FLAGS },
		{ IB_QPS_RTR, IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN |
			      IB_QP_RQ_PSN | IB_QP_MAX_DEST_RD_ATOMIC |
			      IB_QP_MIN_RNR_TIMER },
		{ IB_QPS_RTS, IB_QP_SQ_PSN | IB_QP_TIMEOUT | IB_QP_RETRY_CNT |
			      IB_QP_RNR_RETRY | IB_QP_MAX_QP_RD_ATOMIC },
	};
	struct ib_qp_attr attr = {
		.port_num		= maint->dev->port,
		/* For the trial. */
		.qp_access_flags	= IB_ACCESS_REMOTE_READ |
					  (tow_device_atomics(maint->dev) ?
					   IB_ACCESS_REMOTE_ATOMIC : 0),
		.dest_qp_num		= maint->qp->qp_num,
		.max_dest_rd_atomic	= 1,
		.min_rnr_timer		= TOW_MAINT_MIN_RNR,
		.timeout		= TOW_MAINT_TIMEOUT,
		.retry_cnt		= TOW_MAINT_RETRIES,
		.rnr_retry		= TOW_MAINT_RETRIES,
		.max_rd_atomic		= 1,
	};
	int i, ret = tow_maint_address(maint, &attr);

	for (i = 0; !ret && i < ARRAY_SIZE(steps); i++) {
		attr.qp_state = steps[i].state;
		ret = ib_modify_qp(maint->qp, &attr,
				   IB_QP_STATE | steps[i].mask);
	}
	return ret;
}

/* ---- making and unmaking it ----------------------------------------------- */

/**
 * tow_memory_changed - the device failed, or a port or address is to be another
 * @dev: the device; its events end before tow_maint_stop()
 *
 * May be called in any context, with the provider's locks held.  The work item
 * in maint.c looks, after a pause, lest a queue pair that breaks whenever it is
 * made keeps it busy.
 */
void tow_memory_changed(struct tow_device *dev)
{
	queue_delayed_work(tow_wq, &dev->memory->maint.work, TOW_MAINT_PAUSE);
}

/* Called by providers in any context, maybe with their locks held. */
static void tow_maint_qp_event(struct ib_event *event, void *context)
{
	tow_memory_changed(context);
}

/**
 * tow_maint_build - make the queue pair, and connect it
 * @maint: the maintenance queue pair
 *
 * tow_maint_teardown() undoes it, also after a failure.
 *
 * Return: 0 or a negative errno.
 */
int tow_maint_build(struct tow_maint *maint)
{
	struct ib_qp_init_attr attr = {
		.event_handler		= tow_maint_qp_event,
		.qp_context		= maint->dev,
		/* Nothing is received, which not every driver believes. */
		.cap.max_send_wr	= 1,
		.cap.max_send_sge	= 1,
		.cap.max_recv_wr	= 1,
		.cap.max_recv_sge	= 1,
		.sq_sig_type		= IB_SIGNAL_REQ_WR,
		.qp_type		= IB_QPT_RC,
	};

	maint->cq = ib_alloc_cq(maint->dev->ibdev, maint, 2, 0, IB_POLL_DIRECT);
	if (IS_ERR(maint->cq))
		return PTR_ERR(maint->cq);
	attr.send_cq = maint->cq;
	attr.recv_cq = maint->cq;
	maint->qp = ib_create_qp(maint->dev->pd, &attr);
	if (IS_ERR(maint->qp))
		return PTR_ERR(maint->qp);
	return tow_maint_connect(maint);
}

/* Called from tow_maint_poll(). */
static void tow_maint_request_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct tow_maint *maint = cq->cq_context;

	maint->request.outstanding = false;
	maint->request.status = wc->status;
}

static bool tow_maint_waits(struct tow_maint *maint)
{
	ib_process_cq_direct(maint->cq, 1);
	return maint->request.outstanding;
}

/* Whoever needs this processor may be who does what is waited for. */
static bool tow_maint_waits_alone(struct tow_maint *maint)
{
	return tow_maint_waits(maint) && !need_resched();
}

/*
 * Wait for the completion of what was posted.  There is nobody else to wake
 * us: some providers call completion handlers with locks held that polling
 * needs, so none is used.  A registration is usually over when it was posted,
 * or when another processor has had a moment.
 */
static int tow_maint_poll(struct tow_maint *maint, unsigned int limit_ms)
{
	bool waits;

	read_poll_timeout(tow_maint_waits_alone, waits, !waits, 0,
			  TOW_MAINT_SPIN_US, false, maint);
	return read_poll_timeout(tow_maint_waits, waits, !waits,
				 TOW_MAINT_LOOK_US, limit_ms * USEC_PER_MSEC,
				 false, maint);
}

/**
 * tow_maint_teardown - undo as much of tow_maint_build() as was done
 * @maint: the maintenance queue pair
 *
 * In the error state every request completes; one that does not in time is
 * forgotten by destroying the queue pair, and only then its memory may go.
 */
void tow_maint_teardown(struct tow_maint *maint)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };

	if (!IS_ERR_OR_NULL(maint->qp)) {
		ib_modify_qp(maint->qp, &attr, IB_QP_STATE);
		tow_maint_poll(maint, TOW_MAINT_DRAIN_MS);
		ib_destroy_qp(maint->qp);
	}
	maint->qp = NULL;
	maint->request.outstanding = false;
	if (!IS_ERR_OR_NULL(maint->cq))
		ib_free_cq(maint->cq);
	maint->cq = NULL;
}

/* ---- using it ------------------------------------------------------------- */

/* Could anything be sent? */
static bool tow_maint_sends(struct tow_maint *maint)
{
	struct ib_qp_init_attr init;
	struct ib_qp_attr attr;

	return !ib_query_qp(maint->qp, &attr, IB_QP_STATE, &init) &&
	       attr.qp_state == IB_QPS_RTS;
}

/**
 * tow_maint_look - does the queue pair still serve?
 * @maint: the maintenance queue pair, connected
 *
 * Return: 0; or why another is to be made, a negative errno.
 */
int tow_maint_look(struct tow_maint *maint)
{
	struct tow_device *dev = maint->dev;

	if (!tow_maint_sends(maint))
		return -EIO;
	if (!tow_maint_address_valid(maint) ||
	    tow_device_choose_port(dev) != dev->port)
		return -EADDRNOTAVAIL;
	/* The device may be tried as a whole now. */
	if (maint->untried && tow_device_port_serves(dev->ibdev, dev->port))
		return -EAGAIN;
	return 0;
}

/**
 * tow_maint_execute - post a work request, and wait for it, bounded
 * @maint: the maintenance queue pair, connected
 * @wr: the work request, see tow_maint_run()
 *
 * What the driver did not take does no harm: the queue pair is as good as
 * before.  tow_maint.request.broken tells whether it is; if so the request may
 * be in flight still, until tow_maint_teardown().
 *
 * Return: 0: it has succeeded; -ECONNRESET: the queue pair had broken before;
 * -ETIMEDOUT; -EIO: it failed; or what the driver said.
 */
int tow_maint_execute(struct tow_maint *maint, struct ib_send_wr *wr)
{
	int ret;

	maint->request.cqe.done = tow_maint_request_done;
	maint->request.status = IB_WC_SUCCESS;
	wr->wr_cqe = &maint->request.cqe;
	/*
	 * soft-RoCE of 6.1 works in a tasklet.  With soft interrupts held back
	 * it runs here, when they are let loose, and not in some other thread.
	 */
	local_bh_disable();
	ret = ib_post_send(maint->qp, wr, NULL);
	local_bh_enable();
	if (ret) {
		maint->request.broken = !tow_maint_sends(maint);
		return maint->request.broken ? -ECONNRESET : ret;
	}
	maint->request.outstanding = true;
	ret = tow_maint_poll(maint, TOW_MAINT_REQUEST_MS);
	maint->request.broken = ret || maint->request.status != IB_WC_SUCCESS;
	if (!ret && maint->request.broken)
		ret = maint->request.status == IB_WC_WR_FLUSH_ERR ?
			      -ECONNRESET : -EIO;
	return ret;
}
