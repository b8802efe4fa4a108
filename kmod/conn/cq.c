// SPDX-License-Identifier: GPL-2.0
/*
 * The completion queues of data queue pairs.
 *
 * When a queue pair breaks, each of its work requests completes, so a
 * completion queue must have room for all that its queue pairs may have posted.
 * The room is reserved when a queue pair is made.  Queue pairs are spread
 * round-robin; when no queue has room, another one is made.  A queue without
 * reservations is destroyed.
 *
 * Reaping
 *
 * Only the holder of tow_cq.poll reaps, in process context.  That is the work
 * item, which a completion event queues, or a looker: a task that waits for a
 * completion and polls for it, which saves the way through a work queue.
 *
 * The queue is armed (the device is asked for a completion event) when work
 * requests are in flight and there is no looker.  Two functions check that:
 * tow_cq_posted(), after tow_cq_post(), and tow_cq_look_end() of the last
 * looker.  Each first writes its own counter and then reads the other's, with a
 * barrier between, so at least one of them sees both.  An armed queue is not
 * armed again before the event has come, and an event that comes while there is
 * a looker leaves the completions to the looker.  A looker that has not polled
 * arms the queue as well, even if there are others.
 *
 * Receives
 *
 * Completions of receives have queues of their own, which have no lookers.  A
 * tasklet reaps, under tow_cq.lock, and arms the queue when it is empty.
 */
#include <linux/interrupt.h>
#include <linux/irq_work.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <rdma/ib_verbs.h>

#include "core/core.h"
#include "core/quirks.h"
#include "link.h"
#include "peer.h"

/* Queue pairs that a completion queue has room for, if the device lets it. */
#define TOW_CQ_QPS		8

/*
 * Completions reaped in one call of the provider, and in one run of the work
 * item.
 */
#define TOW_CQ_BATCH		16
#define TOW_CQ_BUDGET		256

/**
 * struct tow_cq - a completion queue that queue pairs share
 * @refs: held by the pool until @reserved is 0, by lookers, and by @later while
 *	it is queued
 * @receives: the completions are of receives
 * @link: in tow_cq_pool.lists; under tow_cq_pool.lock
 * @reserved: entries that queue pairs may fill; under tow_cq_pool.lock
 * @poll: held while completions are reaped; protects @wcs, and @cq against
 *	tow_cq_destroy()
 * @cq: the RDMA device's completion queue; NULL: destroyed
 * @wcs: completions that are being handled
 * @lookers: callers between tow_cq_look_begin() and tow_cq_look_end()
 * @inflight: work requests that are posted and not retired
 * @armed: 1: a completion event was asked for and has not come; written by
 *	xchg()
 * @work: reaps after a completion event
 * @later: reaps after tow_cq_look_end() found @poll held
 * @lock: taken instead of @poll to reap receives, with bottom halves off
 * @irq: schedules @tasklet
 * @tasklet: reaps receives
 */
struct tow_cq {
	struct kref		refs;
	bool			receives;
	struct list_head	link;
	unsigned int		reserved;
	/* protects cq, wcs */
	struct mutex		poll;
	struct ib_cq		*cq;
	struct ib_wc		wcs[TOW_CQ_BATCH];
	atomic_t		lookers;
	atomic_t		inflight;
	int			armed;
	struct work_struct	work;
	struct work_struct	later;
	/* protects cq, wcs if the completions are of receives */
	spinlock_t		lock;
	struct irq_work		irq;
	struct tasklet_struct	tasklet;
};

/**
 * struct tow_cq_pool - a device's completion queues
 * @lock: protects the others
 * @lists: struct tow_cq by tow_cq.receives; the next one to use comes first
 * @counts: entries of each of @lists
 */
struct tow_cq_pool {
	/* protects lists, counts */
	struct mutex		lock;
	struct list_head	lists[2];
	unsigned int		counts[2];
};

/**
 * tow_cq_pool_new - make an empty pool of completion queues
 *
 * Return: the pool, for tow_cq_pool_free(); or NULL: no memory.
 */
struct tow_cq_pool *tow_cq_pool_new(void)
{
	struct tow_cq_pool *pool = kzalloc(sizeof(*pool), GFP_KERNEL);

	if (!pool)
		return NULL;
	mutex_init(&pool->lock);
	INIT_LIST_HEAD(&pool->lists[false]);
	INIT_LIST_HEAD(&pool->lists[true]);
	return pool;
}

/**
 * tow_cq_pool_free - undo tow_cq_pool_new()
 * @pool: the pool, without reservations
 */
void tow_cq_pool_free(struct tow_cq_pool *pool)
{
	WARN_ON_ONCE(!list_empty(&pool->lists[false]));
	WARN_ON_ONCE(!list_empty(&pool->lists[true]));
	mutex_destroy(&pool->lock);
	kfree(pool);
}

/* ---- completions ---------------------------------------------------------- */

/* Return: completions that were reaped; @budget: there may be more. */
static int tow_cq_reap(struct tow_cq *cq, int budget)
{
	int done = 0, most, got, i;

	lockdep_assert(cq->receives ? lockdep_is_held(&cq->lock) :
				      lockdep_is_held(&cq->poll));
	while (cq->cq && done < budget) {
		most = min(TOW_CQ_BATCH, budget - done);
		got = ib_poll_cq(cq->cq, most, cq->wcs);
		for (i = 0; i < got; i++)
			cq->wcs[i].wr_cqe->done(cq->cq, &cq->wcs[i]);
		if (got < most)
			return done + max(got, 0);
		done += got;
	}
	return done;
}

/*
 * Ask the device for a completion event.  The caller keeps @cq->cq from going.
 */
static void tow_cq_arm(struct tow_cq *cq)
{
	int ret;

	if (xchg(&cq->armed, 1))
		return;
	ret = ib_req_notify_cq(cq->cq, IB_CQ_NEXT_COMP |
			       IB_CQ_REPORT_MISSED_EVENTS);
	if (!ret)
		return;
	WRITE_ONCE(cq->armed, 0);
	/* Completions may be there for which no event comes. */
	if (ret > 0)
		queue_work(tow_cq_wq, &cq->work);
}

static void tow_cq_serve(struct tow_cq *cq)
{
	tow_cq_look_begin(cq);
	mutex_lock(&cq->poll);
	/*
	 * Queued under @poll, and only if @cq is there: tow_cq_destroy() takes
	 * @poll to clear @cq before it cancels the work.
	 */
	if (tow_cq_reap(cq, TOW_CQ_BUDGET) == TOW_CQ_BUDGET)
		queue_work(tow_cq_wq, &cq->work);
	mutex_unlock(&cq->poll);
	tow_cq_look_end(cq, true);
}

static void tow_cq_work(struct work_struct *work)
{
	tow_cq_serve(container_of(work, struct tow_cq, work));
}

static void tow_cq_later_work(struct work_struct *work)
{
	struct tow_cq *cq = container_of(work, struct tow_cq, later);

	tow_cq_serve(cq);
	tow_cq_unref(cq);
}

/*
 * The completion event.  In any context, maybe with the provider's locks held.
 */
static void tow_cq_event(struct ib_cq *ibcq, void *context)
{
	struct tow_cq *cq = context;

	/*
	 * A full barrier, pairs with tow_cq_look_end(): either that sees @armed
	 * == 0, or this sees @lookers after its decrement.
	 */
	xchg(&cq->armed, 0);
	if (!atomic_read(&cq->lookers))
		queue_work(tow_cq_wq, &cq->work);
}

static void tow_cq_tasklet(struct tasklet_struct *tasklet)
{
	struct tow_cq *cq = container_of(tasklet, struct tow_cq, tasklet);
	bool more;

	spin_lock(&cq->lock);
	more = tow_cq_reap(cq, TOW_CQ_BUDGET) == TOW_CQ_BUDGET ||
	       (cq->cq && ib_req_notify_cq(cq->cq, IB_CQ_NEXT_COMP |
					   IB_CQ_REPORT_MISSED_EVENTS) > 0);
	spin_unlock(&cq->lock);
	if (more)
		tasklet_schedule(tasklet);
}

static void tow_cq_irq(struct irq_work *irq)
{
	tasklet_schedule(&container_of(irq, struct tow_cq, irq)->tasklet);
}

/*
 * As tow_cq_event(), for receives.  A softirq that process context raises, as
 * soft-RoCE of 6.12 would here, is left to ksoftirqd; after an interrupt it runs.
 */
static void tow_cq_event_receives(struct ib_cq *ibcq, void *context)
{
	struct tow_cq *cq = context;

	if (in_interrupt())
		tasklet_schedule(&cq->tasklet);
	else
		irq_work_queue(&cq->irq);
}

/**
 * tow_cq_look_begin - the caller polls for completions from now on
 * @cq: the queue; the caller has a reference
 */
void tow_cq_look_begin(struct tow_cq *cq)
{
	atomic_inc(&cq->lookers);
}

/**
 * tow_cq_look - reap completions, unless @poll is held or there can be none
 * @cq: the queue, after tow_cq_look_begin()
 */
void tow_cq_look(struct tow_cq *cq)
{
	if (!atomic_read(&cq->inflight) || !mutex_trylock(&cq->poll))
		return;
	tow_cq_reap(cq, TOW_CQ_BATCH);
	mutex_unlock(&cq->poll);
}

/*
 * Reap in a work item, as the holder of @poll may take long and the caller may
 * not wait.  The work item has a reference: the queue may be destroyed before
 * it runs.
 */
static void tow_cq_look_later(struct tow_cq *cq)
{
	tow_cq_ref(cq);
	if (!queue_work(tow_cq_wq, &cq->later))
		tow_cq_unref(cq);
}

/**
 * tow_cq_look_end - undo tow_cq_look_begin()
 * @cq: the queue
 * @looked: the caller has polled after its last post
 *
 * A caller that has not polled arms the queue even if there are other lookers:
 * if none of them polled either, the completions would never be reaped.
 */
void tow_cq_look_end(struct tow_cq *cq, bool looked)
{
	/* A full barrier: pairs with tow_cq_event() and tow_cq_post(). */
	if (!atomic_dec_and_test(&cq->lookers) && looked)
		return;
	if (!atomic_read(&cq->inflight) || READ_ONCE(cq->armed))
		return;
	/* @poll keeps the queue: tow_cq_destroy() may have begun. */
	if (!mutex_trylock(&cq->poll)) {
		tow_cq_look_later(cq);
		return;
	}
	if (cq->cq)
		tow_cq_arm(cq);
	mutex_unlock(&cq->poll);
}

/**
 * tow_cq_post - work requests are about to be posted
 * @cq: the queue; the caller has room in it
 * @count: how many work requests
 *
 * The caller calls tow_cq_posted() after posting.
 */
void tow_cq_post(struct tow_cq *cq, u32 count)
{
	atomic_add(count, &cq->inflight);
	/*
	 * Pairs with tow_cq_look_end(): either that sees @inflight, or
	 * tow_cq_posted() sees @lookers after its decrement.
	 */
	smp_mb__after_atomic();
}

/**
 * tow_cq_posted - work requests were posted: arm the queue if there is no
 *	looker
 * @cq: the queue, after tow_cq_post()
 */
void tow_cq_posted(struct tow_cq *cq)
{
	if (!atomic_read(&cq->lookers) && !READ_ONCE(cq->armed))
		tow_cq_arm(cq);
}

/**
 * tow_cq_retired - work requests are retired
 * @cq: the queue
 * @count: how many work requests
 */
void tow_cq_retired(struct tow_cq *cq, u32 count)
{
	atomic_sub(count, &cq->inflight);
}

/* Return: completions that were reaped. */
static int tow_cq_flush_some(struct tow_cq *cq)
{
	int done;

	if (cq->receives) {
		spin_lock_bh(&cq->lock);
		done = tow_cq_reap(cq, TOW_CQ_BUDGET);
		spin_unlock_bh(&cq->lock);
	} else {
		mutex_lock(&cq->poll);
		done = tow_cq_reap(cq, TOW_CQ_BUDGET);
		mutex_unlock(&cq->poll);
	}
	return done;
}

/**
 * tow_cq_flush - reap all that has completed so far
 * @cq: the queue; the caller has room in it
 *
 * In process context, but not from a handler of a completion of @cq: takes the
 * lock that the handler is called with.
 */
void tow_cq_flush(struct tow_cq *cq)
{
	int left = cq->cq->cqe, done;

	/* More than fit into the queue have not completed before this call. */
	do {
		done = tow_cq_flush_some(cq);
		left -= done;
	} while (done == TOW_CQ_BUDGET && left > 0);
}

/* ---- room ----------------------------------------------------------------- */

/**
 * tow_cq_device_cq - the RDMA device's completion queue
 * @cq: the queue; the caller has room in it
 *
 * Return: the RDMA device's queue.
 */
struct ib_cq *tow_cq_device_cq(struct tow_cq *cq)
{
	return cq->cq;
}

/**
 * tow_cq_ref - take a reference
 * @cq: the queue; the caller has room in it, or a reference
 */
void tow_cq_ref(struct tow_cq *cq)
{
	kref_get(&cq->refs);
}

static void tow_cq_release(struct kref *refs)
{
	struct tow_cq *cq = container_of(refs, struct tow_cq, refs);

	mutex_destroy(&cq->poll);
	kfree(cq);
}

/**
 * tow_cq_unref - give a reference back
 * @cq: the queue; may be gone afterwards
 */
void tow_cq_unref(struct tow_cq *cq)
{
	kref_put(&cq->refs, tow_cq_release);
}

/**
 * tow_cqs_have - is a completion queue one of several?
 * @cqs: these
 * @cq: the queue
 *
 * Return: true: it is.
 */
bool tow_cqs_have(const struct tow_cqs *cqs, const struct tow_cq *cq)
{
	unsigned int i;

	for (i = 0; i < cqs->count; i++) {
		if (cqs->cq[i] == cq)
			return true;
	}
	return false;
}

/**
 * tow_cqs_ref - take a reference to each
 * @cqs: completion queues
 */
void tow_cqs_ref(const struct tow_cqs *cqs)
{
	unsigned int i;

	for (i = 0; i < cqs->count; i++)
		tow_cq_ref(cqs->cq[i]);
}

/**
 * tow_cqs_unref - give the references back
 * @cqs: completion queues; empty afterwards
 */
void tow_cqs_unref(struct tow_cqs *cqs)
{
	while (cqs->count)
		tow_cq_unref(cqs->cq[--cqs->count]);
}

static struct tow_cq *tow_cq_find(struct tow_cq_pool *pool, bool receives,
				  unsigned int entries)
{
	struct tow_cq *cq;

	list_for_each_entry(cq, &pool->lists[receives], link) {
		if (cq->cq->cqe - cq->reserved >= entries)
			return cq;
	}
	return NULL;
}

static struct tow_cq *tow_cq_make(struct tow_device *dev, bool receives,
				  unsigned int entries)
{
	unsigned int most = dev->ibdev->attrs.max_cqe;
	struct ib_cq_init_attr attr = {};
	struct tow_cq *cq;
	int ret;

	if (entries > most)
		return ERR_PTR(-ENOSPC);
	cq = kzalloc(sizeof(*cq), GFP_KERNEL);
	if (!cq)
		return ERR_PTR(-ENOMEM);
	kref_init(&cq->refs);
	cq->receives = receives;
	mutex_init(&cq->poll);
	spin_lock_init(&cq->lock);
	init_irq_work(&cq->irq, tow_cq_irq);
	tasklet_setup(&cq->tasklet, tow_cq_tasklet);
	INIT_WORK(&cq->work, tow_cq_work);
	INIT_WORK(&cq->later, tow_cq_later_work);
	attr.cqe = min(entries * TOW_CQ_QPS, most);
	attr.comp_vector = dev->peers->cq_pool->counts[receives] %
			   dev->ibdev->num_comp_vectors;
	cq->cq = ib_create_cq(dev->ibdev, receives ? tow_cq_event_receives :
			      tow_cq_event, NULL, cq, &attr);
	if (IS_ERR(cq->cq)) {
		ret = PTR_ERR(cq->cq);
		tow_cq_unref(cq);
		return ERR_PTR(ret);
	}
	/* Arms the queue. */
	if (receives)
		tasklet_schedule(&cq->tasklet);
	return cq;
}

/**
 * tow_cq_get - reserve room in a completion queue
 * @dev: the device; the caller is one of its users
 * @receives: the completions will be of receives: their handlers are called
 *	with bottom halves off, and do not sleep
 * @entries: how many entries
 *
 * Return: the queue, for tow_cq_put(); -ENOSPC: @entries are more than the
 * device's queues have; -ENOMEM; the provider's error.
 */
struct tow_cq *tow_cq_get(struct tow_device *dev, bool receives,
			  unsigned int entries)
{
	struct tow_cq_pool *pool = dev->peers->cq_pool;
	struct tow_cq *cq = NULL;

	mutex_lock(&pool->lock);
	if (pool->counts[receives] >= READ_ONCE(dev->peers->settings.cqs))
		cq = tow_cq_find(pool, receives, entries);
	if (!cq) {
		cq = tow_cq_make(dev, receives, entries);
		if (IS_ERR(cq)) {
			struct tow_cq *other = tow_cq_find(pool, receives,
							   entries);

			cq = other ?: cq;
		} else {
			list_add(&cq->link, &pool->lists[receives]);
			pool->counts[receives]++;
		}
	}
	if (!IS_ERR(cq)) {
		cq->reserved += entries;
		list_move_tail(&cq->link, &pool->lists[receives]);
	}
	mutex_unlock(&pool->lock);
	return cq;
}

static void tow_cq_destroy(struct tow_cq *cq)
{
	struct ib_cq *ibcq;

	mutex_lock(&cq->poll);
	spin_lock_bh(&cq->lock);
	ibcq = cq->cq;
	cq->cq = NULL;
	spin_unlock_bh(&cq->lock);
	mutex_unlock(&cq->poll);
	tow_rxe_run_tasklets(ibcq->device);
	ib_destroy_cq(ibcq);
	cancel_work_sync(&cq->work);
	irq_work_sync(&cq->irq);
	tasklet_kill(&cq->tasklet);
	tow_cq_unref(cq);
}

/**
 * tow_cq_put - undo tow_cq_get()
 * @dev: the device
 * @cq: the queue; no work request that the room was reserved for can complete
 *	any more
 * @entries: as for tow_cq_get()
 *
 * Not from a completion's handler.
 */
void tow_cq_put(struct tow_device *dev, struct tow_cq *cq, unsigned int entries)
{
	struct tow_cq_pool *pool = dev->peers->cq_pool;

	mutex_lock(&pool->lock);
	cq->reserved -= entries;
	if (!cq->reserved) {
		list_del(&cq->link);
		pool->counts[cq->receives]--;
		tow_cq_destroy(cq);
	}
	mutex_unlock(&pool->lock);
}
