// SPDX-License-Identifier: GPL-2.0
/*
 * The completion queues of data queue pairs.
 *
 * When a queue pair breaks, each of its work requests completes, so a queue must
 * have room for all that its queue pairs may have posted: the room is reserved
 * when a queue pair is made.  Queue pairs are spread round-robin; when no queue
 * has room another one is made.  A queue that nobody has room in is freed.
 */
#include <linux/slab.h>
#include <rdma/ib_verbs.h>

#include "device.h"
#include "link.h"

/* Queue pairs that a completion queue has room for, if the device lets it. */
#define TOW_CQ_QPS		8

/**
 * struct tow_cq_pool - a device's completion queues
 * @lock: protects the others
 * @list: struct tow_cq; the next one to use comes first
 * @count: how many
 */
struct tow_cq_pool {
	/* protects list, count */
	struct mutex		lock;
	struct list_head	list;
	unsigned int		count;
};

/**
 * tow_cq_pool_new - completion queues, none so far
 *
 * Return: the pool, for tow_cq_pool_free(); or NULL: no memory.
 */
struct tow_cq_pool *tow_cq_pool_new(void)
{
	struct tow_cq_pool *pool = kzalloc(sizeof(*pool), GFP_KERNEL);

	if (!pool)
		return NULL;
	mutex_init(&pool->lock);
	INIT_LIST_HEAD(&pool->list);
	return pool;
}

/**
 * tow_cq_pool_free - undo tow_cq_pool_new()
 * @pool: the pool, of which everything was given back
 */
void tow_cq_pool_free(struct tow_cq_pool *pool)
{
	WARN_ON_ONCE(!list_empty(&pool->list));
	mutex_destroy(&pool->lock);
	kfree(pool);
}

static struct tow_cq *tow_cq_find(struct tow_cq_pool *pool,
				  unsigned int entries)
{
	struct tow_cq *cq;

	list_for_each_entry(cq, &pool->list, link) {
		if (cq->cq->cqe - cq->reserved >= entries)
			return cq;
	}
	return NULL;
}

static struct tow_cq *tow_cq_make(struct tow_device *dev, unsigned int entries)
{
	unsigned int most = dev->ibdev->attrs.max_cqe;
	struct tow_cq *cq;

	if (entries > most)
		return ERR_PTR(-ENOSPC);
	cq = kzalloc(sizeof(*cq), GFP_KERNEL);
	if (!cq)
		return ERR_PTR(-ENOMEM);
	cq->cq = ib_alloc_cq(dev->ibdev, NULL, min(entries * TOW_CQ_QPS, most),
			     dev->peers.cq_pool->count %
			     dev->ibdev->num_comp_vectors,
			     IB_POLL_UNBOUND_WORKQUEUE);
	if (IS_ERR(cq->cq)) {
		int ret = PTR_ERR(cq->cq);

		kfree(cq);
		return ERR_PTR(ret == -ENOMEM ? -ENOMEM : -ENOSPC);
	}
	return cq;
}

/**
 * tow_cq_get - room in a completion queue
 * @dev: the device; the caller is one of its users
 * @entries: how much
 *
 * Return: the queue, for tow_cq_put(); -ENOSPC: the device has no more; -ENOMEM.
 */
struct tow_cq *tow_cq_get(struct tow_device *dev, unsigned int entries)
{
	struct tow_cq_pool *pool = dev->peers.cq_pool;
	struct tow_cq *cq = NULL;

	mutex_lock(&pool->lock);
	if (pool->count >= READ_ONCE(dev->peers.settings.cqs))
		cq = tow_cq_find(pool, entries);
	if (!cq) {
		cq = tow_cq_make(dev, entries);
		if (IS_ERR(cq)) {
			struct tow_cq *other = tow_cq_find(pool, entries);

			cq = other ?: cq;
		} else {
			list_add(&cq->link, &pool->list);
			pool->count++;
		}
	}
	if (!IS_ERR(cq)) {
		cq->reserved += entries;
		list_move_tail(&cq->link, &pool->list);
	}
	mutex_unlock(&pool->lock);
	return cq;
}

/**
 * tow_cq_put - undo tow_cq_get()
 * @dev: the device
 * @cq: the queue; nothing of what was reserved will complete any more
 * @entries: as there
 */
void tow_cq_put(struct tow_device *dev, struct tow_cq *cq, unsigned int entries)
{
	struct tow_cq_pool *pool = dev->peers.cq_pool;

	mutex_lock(&pool->lock);
	cq->reserved -= entries;
	if (!cq->reserved) {
		list_del(&cq->link);
		pool->count--;
		ib_free_cq(cq->cq);
		kfree(cq);
	}
	mutex_unlock(&pool->lock);
}

/**
 * tow_cq_flush - wait until what has completed so far is dealt with
 * @cq: the queue
 *
 * Not from a completion.
 */
void tow_cq_flush(struct tow_cq *cq)
{
	/* The provider may be just about to queue it; it does no harm twice. */
	queue_work(cq->cq->comp_wq, &cq->cq->work);
	/* A full budget makes the work queue itself again. */
	do {
		flush_work(&cq->cq->work);
	} while (work_pending(&cq->cq->work));
}
