// SPDX-License-Identifier: GPL-2.0
/*
 * The maintenance queue pair: see maint.h for what it is for.
 *
 * Normal operation
 *
 * One work item makes the queue pair, connects it to itself and tries one
 * registration on it; only if that goes through it is READY.  InfiniBand and
 * RoCE queue pairs are connected by hand to their own number and address;
 * iWARP can only be connected by the connection manager (maint_iwarp.c).
 *
 * Recovery
 *
 * Whoever learns that something is wrong (the queue pair's or the device's
 * events, the connection manager's) only leaves a note and kicks the work
 * item: they may be called with the provider's locks held.  The work item
 * tears everything down and makes it anew.  Attempts that fail, and queue
 * pairs that break soon after they were made, lead to pauses that double, and
 * after TOW_MAINT_ATTEMPTS to FAILED.  From there only a change leads back: a
 * port that comes up, an address that comes or goes.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/etherdevice.h>
#include <linux/jiffies.h>
#include <net/ipv6.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_verbs.h>

#include "device.h"
#include "trace.h"

/* 10, 20, ... 2560 ms between them: about five seconds in all. */
#define TOW_MAINT_ATTEMPTS	10
#define TOW_MAINT_PAUSE_MS	10

/* Whatever held this long was sound; what breaks now is something new. */
#define TOW_MAINT_SOUND_MS	10000

/* A registration takes microseconds; a debug kernel in an emulator, more. */
#define TOW_MAINT_REQUEST_MS	3000
#define TOW_MAINT_DRAIN_MS	1000

/* So often completions are looked for before we go to sleep between looks. */
#define TOW_MAINT_LOOKS		200

/* As long as it may take to make a queue pair anew, pauses included. */
#define TOW_MAINT_READY_MS	6000

/* Nobody is far away on the way to oneself. */
#define TOW_MAINT_RETRIES	6
#define TOW_MAINT_TIMEOUT	14	/* 4.096 us * 2^14: 67 ms */
#define TOW_MAINT_MIN_RNR	12	/* 0.64 ms */

static struct tow_device *tow_maint_device(struct tow_maint *maint)
{
	return container_of(maint, struct tow_device, maint);
}

static struct ib_device *tow_maint_ibdev(struct tow_maint *maint)
{
	return tow_maint_device(maint)->ibdev;
}

static void tow_maint_set_state(struct tow_maint *maint,
				enum tow_maint_state state, int error)
{
	unsigned long flags;

	trace_tow_maint_state(tow_maint_device(maint), maint->state, state,
			      error);
	spin_lock_irqsave(&maint->lock, flags);
	maint->state = state;
	maint->error = error;
	spin_unlock_irqrestore(&maint->lock, flags);
	wake_up(&maint->wait);
}

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
	wake_up(&maint->wait);
}

/**
 * tow_maint_changed - something happened that may help, or moved our address
 * @maint: the maintenance queue pair
 *
 * May be called in any context.
 */
void tow_maint_changed(struct tow_maint *maint)
{
	unsigned long flags;

	spin_lock_irqsave(&maint->lock, flags);
	if (!maint->stopping) {
		maint->changed = true;
		mod_delayed_work(tow_wq, &maint->work, 0);
	}
	spin_unlock_irqrestore(&maint->lock, flags);
}

/**
 * tow_maint_stopping - is the device going?
 * @maint: the maintenance queue pair
 *
 * For waits in the work item: whoever waits gives up when it is.
 *
 * Return: true if it is.
 */
bool tow_maint_stopping(struct tow_maint *maint)
{
	return READ_ONCE(maint->stopping);
}

/**
 * tow_maint_describe - fill in what QUERY tells
 * @maint: the maintenance queue pair
 * @query: where to
 */
void tow_maint_describe(struct tow_maint *maint, struct tow_query *query)
{
	unsigned long flags;

	spin_lock_irqsave(&maint->lock, flags);
	query->maint_state = maint->state;
	query->maint_error = maint->error;
	query->maint_rebuilds = maint->rebuilds;
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

/**
 * tow_maint_qp_attr - what to ask for when a queue pair is made
 * @maint: the maintenance queue pair; its CQ is there
 * @attr: where to
 */
void tow_maint_qp_attr(struct tow_maint *maint, struct ib_qp_init_attr *attr)
{
	memset(attr, 0, sizeof(*attr));
	attr->event_handler = tow_maint_qp_event;
	attr->qp_context = maint;
	attr->send_cq = maint->cq;
	attr->recv_cq = maint->cq;
	attr->cap.max_send_wr = TOW_MAINT_SEND_WR;
	attr->cap.max_recv_wr = TOW_MAINT_RECV_WR;
	attr->cap.max_send_sge = 1;
	attr->cap.max_recv_sge = 1;
	attr->sq_sig_type = IB_SIGNAL_REQ_WR;
	attr->qp_type = IB_QPT_RC;
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
	struct tow_device *dev = tow_maint_device(maint);
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

/* Is the address that the queue pair is connected to still ours? */
static bool tow_maint_address_valid(struct tow_maint *maint)
{
	struct tow_device *dev = tow_maint_device(maint);
	struct ib_port_attr port;
	union ib_gid gid;

	switch (dev->transport) {
	case TOW_TRANSPORT_ROCE:
		return !rdma_query_gid(dev->ibdev, dev->port, maint->gid_index,
				       &gid) &&
		       !memcmp(&gid, &maint->gid, sizeof(gid));
	case TOW_TRANSPORT_IB:
		return !ib_query_port(dev->ibdev, dev->port, &port) &&
		       port.lid == maint->lid;
	default:
		/* The connection itself tells. */
		return true;
	}
}

static int tow_maint_to_init(struct tow_maint *maint)
{
	struct ib_qp_attr attr = {
		.qp_state	= IB_QPS_INIT,
		.port_num	= tow_maint_device(maint)->port,
	};

	return ib_modify_qp(maint->qp, &attr, IB_QP_STATE | IB_QP_PKEY_INDEX |
			    IB_QP_PORT | IB_QP_ACCESS_FLAGS);
}

static int tow_maint_to_rtr(struct tow_maint *maint)
{
	struct tow_device *dev = tow_maint_device(maint);
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

/* InfiniBand and RoCE; tow_maint_teardown() undoes what was done. */
static int tow_maint_connect_self(struct tow_maint *maint)
{
	struct ib_qp_init_attr attr;
	struct ib_qp *qp;
	int ret;

	tow_maint_qp_attr(maint, &attr);
	qp = ib_create_qp(tow_maint_device(maint)->pd, &attr);
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

static int tow_maint_execute(struct tow_maint *maint, struct ib_send_wr *first)
{
	int ret;

	ret = tow_maint_post(maint, first);
	if (!ret)
		ret = tow_maint_poll(maint, TOW_MAINT_REQUEST_MS);
	if (!ret && maint->request.status != IB_WC_SUCCESS)
		ret = -EIO;
	return ret;
}

static void tow_maint_probe_free(struct tow_maint *maint)
{
	struct ib_device *ibdev = tow_maint_ibdev(maint);

	if (maint->probe.mr)
		ib_dereg_mr(maint->probe.mr);
	if (maint->probe.mapped)
		ib_dma_unmap_sg(ibdev, &maint->probe.sg, 1, DMA_BIDIRECTIONAL);
	if (maint->probe.page)
		__free_page(maint->probe.page);
	memset(&maint->probe, 0, sizeof(maint->probe));
}

static int tow_maint_probe_alloc(struct tow_maint *maint)
{
	struct tow_device *dev = tow_maint_device(maint);
	struct ib_mr *mr;
	int ret;

	maint->probe.page = alloc_page(GFP_KERNEL | __GFP_ZERO);
	if (!maint->probe.page)
		return -ENOMEM;
	sg_init_table(&maint->probe.sg, 1);
	sg_set_page(&maint->probe.sg, maint->probe.page, PAGE_SIZE, 0);
	if (ib_dma_map_sg(dev->ibdev, &maint->probe.sg, 1,
			  DMA_BIDIRECTIONAL) != 1)
		return -ENOMEM;
	maint->probe.mapped = true;
	mr = ib_alloc_mr(dev->pd, IB_MR_TYPE_MEM_REG, 1);
	if (IS_ERR(mr))
		return PTR_ERR(mr);
	maint->probe.mr = mr;
	ret = ib_map_mr_sg(mr, &maint->probe.sg, 1, NULL, PAGE_SIZE);
	if (ret != 1)
		return ret < 0 ? ret : -EIO;
	ib_update_fast_reg_key(mr, ib_inc_rkey(mr->rkey));
	return 0;
}

static int tow_maint_probe_execute(struct tow_maint *maint)
{
	struct ib_mr *mr = maint->probe.mr;
	struct ib_send_wr invalidate = {
		.opcode			= IB_WR_LOCAL_INV,
		.send_flags		= IB_SEND_SIGNALED,
		.ex.invalidate_rkey	= mr->rkey,
	};
	struct ib_reg_wr reg = {
		.wr.next	= &invalidate,
		.wr.opcode	= IB_WR_REG_MR,
		.wr.send_flags	= IB_SEND_SIGNALED,
		.mr		= mr,
		.key		= mr->rkey,
		.access		= IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_READ,
	};

	return tow_maint_execute(maint, &reg.wr);
}

/* Register one page and take it back: what the queue pair is for. */
static int tow_maint_probe(struct tow_maint *maint)
{
	int ret;

	ret = tow_maint_probe_alloc(maint);
	if (!ret)
		ret = tow_maint_probe_execute(maint);
	/* What is still outstanding needs all of it: see teardown. */
	if (!ret)
		tow_maint_probe_free(maint);
	return ret;
}

static int tow_maint_build(struct tow_maint *maint)
{
	struct tow_device *dev = tow_maint_device(maint);
	struct ib_cq *cq;
	int ret;

	/* Room for both ends of an iWARP pair. */
	cq = ib_alloc_cq(dev->ibdev, maint,
			 2 * (TOW_MAINT_SEND_WR + TOW_MAINT_RECV_WR), 0,
			 IB_POLL_DIRECT);
	if (IS_ERR(cq))
		return PTR_ERR(cq);
	maint->cq = cq;
	if (dev->transport == TOW_TRANSPORT_IWARP)
		ret = tow_iwarp_connect(maint);
	else
		ret = tow_maint_connect_self(maint);
	if (ret)
		return ret;
	return tow_maint_probe(maint);
}

/*
 * Undoes as much of tow_maint_build() as was done.  In the error state every
 * request completes; those that do not in time are forgotten by destroying the
 * queue pair, and only then their memory may go.
 */
static void tow_maint_teardown(struct tow_maint *maint)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };

	if (maint->pair)
		tow_iwarp_disconnect(maint);
	else if (maint->qp)
		ib_modify_qp(maint->qp, &attr, IB_QP_STATE);
	if (maint->request.outstanding)
		tow_maint_poll(maint, TOW_MAINT_DRAIN_MS);
	if (maint->pair)
		tow_iwarp_destroy(maint);
	else if (maint->qp)
		ib_destroy_qp(maint->qp);
	maint->qp = NULL;
	maint->request.outstanding = 0;
	tow_maint_probe_free(maint);
	if (maint->cq)
		ib_free_cq(maint->cq);
	maint->cq = NULL;

	/* What its end made it say must not be held against the next one. */
	spin_lock_irq(&maint->lock);
	maint->broken = 0;
	spin_unlock_irq(&maint->lock);
}

/* Have the work item run at once. */
static void tow_maint_kick(struct tow_maint *maint)
{
	spin_lock_irq(&maint->lock);
	if (!maint->stopping)
		mod_delayed_work(tow_wq, &maint->work, 0);
	spin_unlock_irq(&maint->lock);
}

/* After @error: try again after a pause, or give up. */
static void tow_maint_retry(struct tow_maint *maint, int error)
{
	unsigned int pause_ms = TOW_MAINT_PAUSE_MS << (maint->attempts - 1);
	char name[TOW_DEVICE_NAME_MAX];

	if (maint->attempts >= TOW_MAINT_ATTEMPTS) {
		tow_maint_set_state(maint, TOW_MAINT_FAILED, error);
		tow_device_name(tow_maint_device(maint), name);
		pr_warn("%s: no maintenance queue pair after %u attempts: error %d (tried again when a port or an address changes)\n",
			name, maint->attempts, error);
		return;
	}
	tow_maint_set_state(maint, TOW_MAINT_WAITING, error);
	spin_lock_irq(&maint->lock);
	if (!maint->stopping)
		mod_delayed_work(tow_wq, &maint->work,
				 msecs_to_jiffies(pause_ms));
	spin_unlock_irq(&maint->lock);
}

/*
 * The queue pair was READY and is of no use any more.  Returns whether it may
 * be made anew at once.
 */
static bool tow_maint_lost(struct tow_maint *maint, int error, bool changed)
{
	unsigned long sound = maint->ready_at +
			      msecs_to_jiffies(TOW_MAINT_SOUND_MS);

	if (changed || time_after(jiffies, sound))
		maint->attempts = 0;
	tow_maint_teardown(maint);
	if (maint->attempts) {
		tow_maint_retry(maint, error);
		return false;
	}
	tow_maint_set_state(maint, TOW_MAINT_WAITING, error);
	return true;
}

/* The queue pair was READY.  Is it still, and if not, may it be made now? */
static bool tow_maint_check(struct tow_maint *maint, int broken, bool changed)
{
	if (!broken && changed && !tow_maint_address_valid(maint))
		broken = -EADDRNOTAVAIL;
	if (!broken)
		return false;
	return tow_maint_lost(maint, broken, changed);
}

/* Take the notes that were left, and decide whether to make a queue pair. */
static bool tow_maint_begin(struct tow_maint *maint)
{
	bool changed;
	int broken;

	spin_lock_irq(&maint->lock);
	broken = maint->broken;
	changed = maint->changed;
	maint->broken = 0;
	maint->changed = false;
	spin_unlock_irq(&maint->lock);

	if (tow_maint_stopping(maint))
		return false;
	if (maint->state == TOW_MAINT_READY)
		return tow_maint_check(maint, broken, changed);
	if (changed)
		maint->attempts = 0;
	return changed || maint->state == TOW_MAINT_WAITING;
}

/* Ready, unless an event came between the trial and now. */
static int tow_maint_finish(struct tow_maint *maint)
{
	int broken;

	spin_lock_irq(&maint->lock);
	broken = maint->broken;
	maint->broken = 0;
	if (!broken && maint->was_ready)
		maint->rebuilds++;
	spin_unlock_irq(&maint->lock);
	if (broken)
		return broken;
	maint->was_ready = true;
	maint->ready_at = jiffies;
	tow_maint_set_state(maint, TOW_MAINT_READY, 0);
	return 0;
}

static void tow_maint_make(struct tow_maint *maint)
{
	int ret;

	maint->attempts++;
	tow_maint_set_state(maint, TOW_MAINT_CONNECTING, maint->error);
	ret = tow_maint_build(maint);
	if (!ret)
		ret = tow_maint_finish(maint);
	if (ret) {
		tow_maint_teardown(maint);
		tow_maint_retry(maint, ret);
	}
}

static void tow_maint_work(struct work_struct *work)
{
	struct tow_maint *maint = container_of(to_delayed_work(work),
					       struct tow_maint, work);

	mutex_lock(&maint->use);
	if (tow_maint_begin(maint))
		tow_maint_make(maint);
	mutex_unlock(&maint->use);
}

/* Is it known whether there is, or will be, a queue pair? */
static bool tow_maint_decided(struct tow_maint *maint)
{
	enum tow_maint_state state = READ_ONCE(maint->state);

	return state == TOW_MAINT_READY || state == TOW_MAINT_FAILED ||
	       tow_maint_stopping(maint);
}

/* Wait until it is worth while to look again whether there is a queue pair. */
static int tow_maint_wait_ready(struct tow_maint *maint)
{
	unsigned long time = msecs_to_jiffies(TOW_MAINT_READY_MS);
	long left;

	left = wait_event_killable_timeout(maint->wait, tow_maint_decided(maint),
					   time);
	if (left < 0)
		return -EINTR;
	if (tow_maint_stopping(maint))
		return -ENODEV;
	return READ_ONCE(maint->state) == TOW_MAINT_READY ? 0 : -ENETDOWN;
}

/* Called with @use held, READY. */
static int tow_maint_run_ready(struct tow_maint *maint,
			       struct ib_send_wr *first)
{
	int ret = tow_maint_execute(maint, first);

	/* Before the caller may do anything with what is still outstanding. */
	if (ret && tow_maint_lost(maint, ret, false))
		tow_maint_kick(maint);
	return ret;
}

/**
 * tow_maint_run - execute work requests, and wait for them
 * @maint: the maintenance queue pair
 * @first: a chain of at most TOW_MAINT_SEND_WR, each signalled; their wr_cqe is
 *	filled in here
 *
 * For users of the device, and for work items that removal waits for.  Waits,
 * bounded, for a queue pair that is being made anew.
 *
 * Return: 0: all have succeeded.  -ENODEV: the device is going; -ENETDOWN:
 * there is no queue pair; -EINTR: the caller was killed while waiting for one:
 * nothing was done.  Others: what was done is unknown, and nothing is in flight
 * any more.
 */
int tow_maint_run(struct tow_maint *maint, struct ib_send_wr *first)
{
	int ret;

	for (;;) {
		mutex_lock(&maint->use);
		if (maint->state == TOW_MAINT_READY) {
			ret = tow_maint_run_ready(maint, first);
			mutex_unlock(&maint->use);
			return ret;
		}
		mutex_unlock(&maint->use);
		ret = tow_maint_wait_ready(maint);
		if (ret)
			return ret;
	}
}

/**
 * tow_maint_init - prepare the structure
 * @maint: zeroed memory inside a tow_device
 */
void tow_maint_init(struct tow_maint *maint)
{
	spin_lock_init(&maint->lock);
	mutex_init(&maint->use);
	init_waitqueue_head(&maint->wait);
	INIT_DELAYED_WORK(&maint->work, tow_maint_work);
}

/**
 * tow_maint_start - begin to make the queue pair
 * @maint: the maintenance queue pair
 *
 * Where nothing can keep it waiting the first attempt is over on return, so
 * that whoever loads the module and asks at once gets an answer that lasts.
 */
void tow_maint_start(struct tow_maint *maint)
{
	queue_delayed_work(tow_wq, &maint->work, 0);
	if (tow_maint_device(maint)->transport != TOW_TRANSPORT_IWARP)
		flush_delayed_work(&maint->work);
}

/**
 * tow_maint_stop_begin - nobody is to wait for the queue pair any more
 * @maint: the maintenance queue pair
 *
 * Whoever does gets -ENODEV.  What is READY still works.
 */
void tow_maint_stop_begin(struct tow_maint *maint)
{
	spin_lock_irq(&maint->lock);
	/* Waiters look without the lock. */
	WRITE_ONCE(maint->stopping, true);
	spin_unlock_irq(&maint->lock);
	wake_up_all(&maint->wait);
}

/**
 * tow_maint_stop - undo tow_maint_start(), for good
 * @maint: the maintenance queue pair; tow_maint_stop_begin() was called, and
 *	nobody is a user of the device any more
 *
 * Bounded: waits in the work item end when stopping is set, or by themselves.
 */
void tow_maint_stop(struct tow_maint *maint)
{
	cancel_delayed_work_sync(&maint->work);
	mutex_lock(&maint->use);
	tow_maint_teardown(maint);
	mutex_unlock(&maint->use);
}
