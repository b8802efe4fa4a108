// SPDX-License-Identifier: GPL-2.0
/*
 * Shared receive queues: where notifications come in.
 *
 * Normal operation
 *
 * All data queue pairs of a device receive from one queue and complete to one
 * completion queue, which is as deep and so cannot overflow.  Receives carry no
 * data: the immediate is in the completion.  A tasklet handles completions, so
 * that a consumer that sleeps is woken at once; each receive is posted again
 * before anything else.  The queue is made with the first session, and is freed
 * with the last one.
 *
 * Which session
 *
 * A completion names a queue pair by its address, which is never followed: the
 * queue pair may be gone while its completions are still queued.  The address
 * is looked up among those of links.  A link leaves the table before its queue
 * pair is destroyed.  Completions that are queued are handled before a link
 * enters the table, as its queue pair may have the address of an earlier one.
 *
 * What is lost
 *
 * A queue pair that dies in mid-message may keep a receive, and the device does
 * not say so.  Another receive is posted for each such queue pair, from a
 * reserve.  When the reserve is used up new sessions get a new queue, and the
 * old one goes with its last session.
 */
#include <linux/hashtable.h>
#include <linux/interrupt.h>
#include <linux/slab.h>
#include <rdma/ib_verbs.h>

#include "assoc.h"
#include "core/core.h"
#include "core/quirks.h"
#include "notify.h"
#include "sequence.h"
#include "slot.h"

/* The reserve is this part of the depth. */
#define TOW_SRQ_RESERVE		4

/* Completions that are polled at once, and that one run handles at most. */
#define TOW_SRQ_BATCH		16
#define TOW_SRQ_BUDGET		256

/* 10,000 peers with four queue pairs each have ten of them in a bucket. */
#define TOW_SRQ_HASH_BITS	12

/**
 * struct tow_srq - a shared receive queue and its completions
 * @dev: the device
 * @users: sessions, the last of which frees the queue; under tow_notify.lock,
 *	like @promised
 * @promised: receives that peers were promised
 * @depth: receives that may be promised
 * @count: receives that there are, with the reserve
 * @srq: the RDMA device's shared receive queue
 * @tasklet: handles completions
 * @lock: protects the fields below, but for @worn and @broken; held while
 *	completions are handled
 * @cq: the completion queue of the receives; NULL: it is being destroyed
 * @used: receives that were posted at least once; their numbers are below
 * @worn: the queue is @broken, or a receive may be lost that was not replaced;
 *	read without the lock
 * @broken: the RDMA device has reported that the queue is of no use any more;
 *	read without the lock
 * @lost: receives that may be lost and were not replaced; read without the lock
 * @links: struct tow_link by the address of their queue pair
 * @wcs: completions that are being handled
 */
struct tow_srq {
	struct tow_device	*dev;
	unsigned int		users;
	u32			promised;
	u32			depth;
	u32			count;
	struct ib_srq		*srq;
	struct tasklet_struct	tasklet;
	/* protects everything below */
	spinlock_t		lock;
	struct ib_cq		*cq;
	u32			used;
	bool			worn;
	bool			broken;
	u32			lost;
	DECLARE_HASHTABLE(links, TOW_SRQ_HASH_BITS);
	struct ib_wc		wcs[TOW_SRQ_BATCH];
};

/* ---- receives ------------------------------------------------------------- */

/* Caller holds srq->lock, or nobody else knows the queue. */
static int tow_receive_post(struct tow_srq *srq, u32 index)
{
	struct ib_recv_wr wr = { .wr_id = index };

	return ib_post_srq_recv(srq->srq, &wr, NULL);
}

/* Caller holds srq->lock.  A receive may be lost, and is not replaced. */
static void tow_srq_lose(struct tow_srq *srq)
{
	WRITE_ONCE(srq->lost, srq->lost + 1);
	WRITE_ONCE(srq->worn, true);
}

/* Is it the completion of a notification? */
static bool tow_receive_notifies(const struct ib_wc *wc)
{
	return wc->opcode == IB_WC_RECV_RDMA_WITH_IMM &&
	       wc->wc_flags & IB_WC_WITH_IMM;
}

/* Caller holds srq->lock.  Return: the link of a queue pair, or NULL. */
static struct tow_link *tow_srq_find_link(struct tow_srq *srq,
					  const struct ib_qp *qp)
{
	struct tow_link *link;

	hash_for_each_possible(srq->links, link, srq_node, (unsigned long)qp) {
		if (link->srq_qp == qp)
			return link;
	}
	return NULL;
}

/* The peer broke the protocol.  @why: a string that stays, for the log. */
static void tow_credit_refuse(struct tow_session *session, const char *why)
{
	if (!tow_session_alive(session))
		return;
	tow_stat_inc(session->dev, TOW_STAT_HOSTILE);
	tow_session_fail(session, -EPROTO, TOW_WIRE_PROTOCOL, why);
}

/* Caller holds srq->lock.  Count a notification of a session. */
static void tow_credit_arrived(struct tow_session *session)
{
	struct tow_session_notify *notify = &session->notify;
	u32 told = READ_ONCE(notify->told);

	WRITE_ONCE(notify->arrived, notify->arrived + 1);
	WRITE_ONCE(session->heard_at, jiffies);
	WRITE_ONCE(session->busy_at, jiffies);
	if (tow_credit_exceeded(notify->arrived, told,
				READ_ONCE(notify->window)))
		tow_credit_refuse(session,
				  "more notifications than it may send");
	else if (tow_credit_due(notify->arrived, told))
		queue_work(tow_cq_wq, &notify->tell);
}

/* Caller holds srq->lock. */
static void tow_receive_complete(struct tow_srq *srq, const struct ib_wc *wc)
{
	struct tow_link *link = tow_srq_find_link(srq, wc->qp);
	struct tow_device *dev = srq->dev;
	bool counted;
	u32 imm;

	if (tow_receive_post(srq, wc->wr_id))
		tow_srq_lose(srq);
	/* Flushed, as the queue pair broke: reported elsewhere. */
	if (!link || wc->status == IB_WC_WR_FLUSH_ERR)
		return;
	/* Soft-RoCE sends this when it retransmits twice; it may pass. */
	if (wc->status == IB_WC_REM_INV_REQ_ERR) {
		tow_session_fail(link->session, -ECONNRESET, TOW_WIRE_FAILED,
				 "what came was no valid request");
		return;
	}
	if (wc->status != IB_WC_SUCCESS || !tow_receive_notifies(wc)) {
		tow_credit_refuse(link->session,
				  "what came was no notification");
		return;
	}
	imm = be32_to_cpu(wc->ex.imm_data);
	counted = tow_slot_notify(dev, link->assoc->index, imm);
	tow_stat_inc(dev, counted ? TOW_STAT_NOTIFICATIONS :
		     TOW_STAT_NOTIFICATIONS_IGNORED);
	/* Received twice, sent once: Documentation/design/rings.md. */
	if (!counted && link->last_imm == imm)
		return;
	link->last_imm = imm;
	WRITE_ONCE(link->arrived, link->arrived + 1);
	tow_credit_arrived(link->session);
}

/* ---- completions ---------------------------------------------------------- */

/* Caller holds srq->lock.  Return: completions; @budget: there may be more. */
static u32 tow_srq_reap(struct tow_srq *srq, u32 budget)
{
	u32 done = 0;
	int got, i;

	lockdep_assert_held(&srq->lock);
	while (srq->cq && done < budget) {
		got = ib_poll_cq(srq->cq, min_t(u32, TOW_SRQ_BATCH,
						budget - done), srq->wcs);
		if (got <= 0)
			break;
		for (i = 0; i < got; i++)
			tow_receive_complete(srq, &srq->wcs[i]);
		done += got;
	}
	return done;
}

/* Caller holds srq->lock.  End the sessions of all links. */
static void tow_srq_fail_links(struct tow_srq *srq)
{
	struct tow_link *link;
	int bucket;

	hash_for_each(srq->links, bucket, link, srq_node)
		tow_session_fail(link->session, -EIO, TOW_WIRE_FAILED,
				 "the shared receive queue broke");
}

static void tow_srq_tasklet(struct tasklet_struct *tasklet)
{
	struct tow_srq *srq = container_of(tasklet, struct tow_srq, tasklet);
	bool done;

	spin_lock(&srq->lock);
	if (READ_ONCE(srq->broken))
		tow_srq_fail_links(srq);
	done = tow_srq_reap(srq, TOW_SRQ_BUDGET) < TOW_SRQ_BUDGET;
	if (done && srq->cq)
		done = ib_req_notify_cq(srq->cq, IB_CQ_NEXT_COMP |
					IB_CQ_REPORT_MISSED_EVENTS) <= 0;
	spin_unlock(&srq->lock);
	if (!done)
		tasklet_schedule(tasklet);
}

/* In any context, with the provider's locks held. */
static void tow_srq_event(struct ib_cq *cq, void *context)
{
	struct tow_srq *srq = context;

	tasklet_schedule(&srq->tasklet);
}

/* Called like tow_srq_event(): a queue is in error. */
static void tow_srq_broke(struct ib_event *event, void *context)
{
	struct tow_srq *srq = context;

	if (event->event != IB_EVENT_SRQ_ERR && event->event != IB_EVENT_CQ_ERR)
		return;
	WRITE_ONCE(srq->broken, true);
	WRITE_ONCE(srq->worn, true);
	tasklet_schedule(&srq->tasklet);
}

/**
 * tow_srq_drain - handle all notifications that have come so far
 * @srq: the queue; NULL: none can have come
 *
 * In process context.
 */
void tow_srq_drain(struct tow_srq *srq)
{
	u32 left, done;

	if (!srq)
		return;
	/* No more completions can have come before this call. */
	for (left = srq->count; left; left -= done) {
		spin_lock_bh(&srq->lock);
		done = tow_srq_reap(srq, min_t(u32, left, TOW_SRQ_BUDGET));
		spin_unlock_bh(&srq->lock);
		if (!done)
			break;
	}
}

/* ---- links ---------------------------------------------------------------- */

/**
 * tow_srq_device_srq - the RDMA device's shared receive queue
 * @srq: the queue; the caller's session is a user
 *
 * Return: the shared receive queue.
 */
struct ib_srq *tow_srq_device_srq(struct tow_srq *srq)
{
	return srq->srq;
}

/**
 * tow_srq_device_cq - the completion queue of the receives
 * @srq: the queue; the caller's session is a user
 *
 * Return: the RDMA device's completion queue.
 */
struct ib_cq *tow_srq_device_cq(struct tow_srq *srq)
{
	return srq->cq;
}

/**
 * tow_srq_add_link - give a link what its queue pair receives
 * @srq: the queue
 * @link: the link; its queue pair was just made
 */
void tow_srq_add_link(struct tow_srq *srq, struct tow_link *link)
{
	/* Queued completions may be of an earlier queue pair. */
	tow_srq_drain(srq);
	spin_lock_bh(&srq->lock);
	link->srq_qp = link->id->qp;
	link->last_imm = U64_MAX;
	hash_add(srq->links, &link->srq_node, (unsigned long)link->srq_qp);
	spin_unlock_bh(&srq->lock);
	/* The tasklet may have run before, for the other links. */
	if (READ_ONCE(srq->broken))
		tasklet_schedule(&srq->tasklet);
}

/**
 * tow_srq_remove_link - undo tow_srq_add_link()
 * @srq: the queue
 * @link: the link; its queue pair is in the error state, not destroyed
 *
 * Notifications that have come so far are handled; later ones are dropped.
 */
void tow_srq_remove_link(struct tow_srq *srq, struct tow_link *link)
{
	tow_srq_drain(srq);
	spin_lock_bh(&srq->lock);
	hash_del(&link->srq_node);
	link->srq_qp = NULL;
	spin_unlock_bh(&srq->lock);
}

/**
 * tow_srq_link_gone - replace a receive that a queue pair may have kept
 * @srq: the queue
 */
void tow_srq_link_gone(struct tow_srq *srq)
{
	spin_lock_bh(&srq->lock);
	if (srq->used < srq->count && !tow_receive_post(srq, srq->used))
		srq->used++;
	else
		tow_srq_lose(srq);
	spin_unlock_bh(&srq->lock);
}

/* ---- life ----------------------------------------------------------------- */

/* The queue pairs are gone: completions that were not handled are dropped. */
static void tow_srq_free(struct tow_srq *srq)
{
	struct ib_device *ibdev = srq->dev->ibdev;
	struct ib_cq *cq;

	spin_lock_bh(&srq->lock);
	cq = srq->cq;
	srq->cq = NULL;
	spin_unlock_bh(&srq->lock);
	if (srq->srq)
		ib_destroy_srq(srq->srq);
	if (cq) {
		tow_rxe_run_tasklets(ibdev);
		ib_destroy_cq(cq);
	}
	tasklet_kill(&srq->tasklet);
	kvfree(srq);
}

static int tow_srq_make_queues(struct tow_srq *srq)
{
	struct ib_srq_init_attr srq_attr = {
		.attr.max_wr	= srq->count,
		.attr.max_sge	= 1,
		.event_handler	= tow_srq_broke,
		.srq_context	= srq,
		.srq_type	= IB_SRQT_BASIC,
	};
	struct ib_cq_init_attr cq_attr = { .cqe = srq->count };
	struct ib_device *ibdev = srq->dev->ibdev;
	struct ib_cq *cq;

	cq = ib_create_cq(ibdev, tow_srq_event, tow_srq_broke, srq, &cq_attr);
	if (IS_ERR(cq))
		return PTR_ERR(cq);
	srq->cq = cq;
	srq->srq = ib_create_srq(srq->dev->pd, &srq_attr);
	if (IS_ERR(srq->srq)) {
		int ret = PTR_ERR(srq->srq);

		srq->srq = NULL;
		return ret;
	}
	return ib_req_notify_cq(cq, IB_CQ_NEXT_COMP) < 0 ? -EIO : 0;
}

static int tow_srq_post_all(struct tow_srq *srq)
{
	u32 posted = 0;
	int ret = 0;

	while (srq->used < srq->depth && !ret) {
		ret = tow_receive_post(srq, srq->used);
		if (!ret)
			srq->used++;
		if (!(++posted % TOW_SRQ_BUDGET))
			cond_resched();
	}
	return ret;
}

static int tow_srq_prepare(struct tow_srq *srq)
{
	const struct ib_device_attr *attrs = &srq->dev->ibdev->attrs;
	u32 depth = READ_ONCE(srq->dev->notify->srq_depth);
	int ret;

	srq->count = min3(depth + depth / TOW_SRQ_RESERVE,
			  (u32)max(attrs->max_srq_wr, 1),
			  (u32)max(attrs->max_cqe, 1));
	/* The reserve is the same part if the device has fewer receives. */
	srq->depth = min(depth, srq->count -
			 srq->count / (TOW_SRQ_RESERVE + 1));
	ret = tow_srq_make_queues(srq);
	return ret ?: tow_srq_post_all(srq);
}

static struct tow_srq *tow_srq_make(struct tow_device *dev)
{
	struct tow_srq *srq = kvzalloc(sizeof(*srq), GFP_KERNEL);
	int ret;

	if (!srq)
		return ERR_PTR(-ENOMEM);
	srq->dev = dev;
	spin_lock_init(&srq->lock);
	hash_init(srq->links);
	tasklet_setup(&srq->tasklet, tow_srq_tasklet);
	ret = tow_srq_prepare(srq);
	if (ret) {
		tow_srq_free(srq);
		return ERR_PTR(ret == -ENOMEM ? -ENOMEM : -ENOSPC);
	}
	return srq;
}

/* Caller holds tow_notify.lock.  Return: the queue for a new session. */
static struct tow_srq *tow_srq_choose(struct tow_device *dev)
{
	struct tow_srq *now = dev->notify->srq, *srq;

	if (now && !READ_ONCE(now->worn))
		return now;
	srq = tow_srq_make(dev);
	/* A queue that loses receives is better than none. */
	if (IS_ERR(srq))
		return now && !READ_ONCE(now->broken) ? now : srq;
	dev->notify->srq = srq;
	return srq;
}

/**
 * tow_srq_get - give a session a shared receive queue
 * @session: the session, which is to have data queue pairs; caller holds
 *	@session->setup
 *
 * If no queue is to be had no peer gets a slot by this session, and all else
 * works.
 */
void tow_srq_get(struct tow_session *session)
{
	struct tow_device *dev = session->dev;
	struct tow_srq *srq;

	lockdep_assert_held(&session->setup);
	/* All data queue pairs of a session use the same queue. */
	if (session->notify.chosen || dev->ibdev->attrs.max_srq <= 0)
		return;
	mutex_lock(&dev->notify->lock);
	srq = tow_srq_choose(dev);
	if (!IS_ERR(srq)) {
		srq->users++;
		session->notify.srq = srq;
	}
	mutex_unlock(&dev->notify->lock);
	/* Pairs with tow_credit_apart(). */
	smp_store_release(&session->notify.chosen, true);
}

/**
 * tow_srq_put - undo tow_srq_get() and tow_srq_promise()
 * @session: the session; its queue pairs are destroyed
 */
void tow_srq_put(struct tow_session *session)
{
	struct tow_notify *notify = session->dev->notify;
	struct tow_srq *srq = session->notify.srq;

	if (!srq)
		return;
	mutex_lock(&notify->lock);
	session->notify.srq = NULL;
	srq->promised -= session->notify.window;
	if (!--srq->users) {
		if (notify->srq == srq)
			notify->srq = NULL;
		tow_srq_free(srq);
	}
	mutex_unlock(&notify->lock);
}

/**
 * tow_srq_promise - promise receives to a peer
 * @srq: the queue; the caller's session is a user
 * @receives: their number
 *
 * Return: false: not so many are left.
 */
bool tow_srq_promise(struct tow_srq *srq, u32 receives)
{
	struct tow_notify *notify = srq->dev->notify;
	bool enough;

	mutex_lock(&notify->lock);
	enough = srq->promised + receives + READ_ONCE(srq->lost) <= srq->depth;
	if (enough)
		srq->promised += receives;
	mutex_unlock(&notify->lock);
	return enough;
}
