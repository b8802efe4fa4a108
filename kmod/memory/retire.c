// SPDX-License-Identifier: GPL-2.0
/*
 * Slabs whose region has ended, and whose pages somebody else still uses: a pipe, a
 * read or write past the page cache, a registration.
 *
 * They are no memory of the pool's any more, which takes others from the machine
 * instead.  All of a slab stays allocated for one page, so its bytes stay charged to
 * the client that had it, and to its user, until nobody uses it: else a user could
 * have any amount of memory, and take it from the pool for good where the machine has
 * no more.  Nobody tells us when a page is let go of, so we look from time to time.
 */
#include "core/trace.h"
#include "internal.h"

#define TOW_RETIRED_LOOK	HZ

/**
 * tow_slab_leave_charged - a region ends that has a slab: is it all over?
 * @slab: the slab, which no mapping shows any more
 * @charge: the region's, which the slab takes its part of if its pages are in use
 */
void tow_slab_leave_charged(struct tow_slab *slab, struct tow_charge *charge)
{
	if (!tow_slab_ours_alone(slab))
		slab->payer = tow_charge_leave(charge, slab->bytes);
}

/**
 * tow_slab_uncharge - nobody else uses a slab's pages, or it does not matter any more
 * @slab: the slab, of no region
 */
void tow_slab_uncharge(struct tow_slab *slab)
{
	if (slab->payer)
		tow_account_uncharge(slab->payer, slab->bytes);
	slab->payer = NULL;
}

static void tow_retired_free(struct tow_slab *slab)
{
	list_del(&slab->list);
	tow_slab_uncharge(slab);
	tow_slab_free(slab);
}

static void tow_pool_look(struct work_struct *work)
{
	struct tow_pool *pool = container_of(to_delayed_work(work),
					     struct tow_pool, look);
	struct tow_slab *slab, *next;

	mutex_lock(&pool->resize);
	list_for_each_entry_safe(slab, next, &pool->retired, list) {
		enum tow_slab_class class = slab->class;

		cond_resched();
		if (!tow_slab_ours_alone(slab))
			continue;
		tow_retired_free(slab);
		/* There was no memory when it left, perhaps. */
		tow_pool_replace(pool, class);
	}
	if (!list_empty(&pool->retired))
		queue_delayed_work(tow_wq, &pool->look, TOW_RETIRED_LOOK);
	mutex_unlock(&pool->resize);
}

/**
 * tow_pool_retire - a slab leaves the pool: its pages are in use elsewhere
 * @pool: the pool; removal waits for the caller
 * @slab: the slab, which the caller has taken from those that drain
 */
void tow_pool_retire(struct tow_pool *pool, struct tow_slab *slab)
{
	mutex_lock(&pool->resize);
	spin_lock(&pool->lock);
	slab->state = TOW_SLAB_RETIRED;
	pool->draining_count--;
	pool->used_bytes -= slab->bytes;
	tow_pool_forget(pool, slab);
	spin_unlock(&pool->lock);
	trace_tow_slab_retire(slab);
	tow_stat_inc(pool->dev, TOW_STAT_RETIRED_SLABS);
	tow_slab_detach(slab);
	list_add_tail(&slab->list, &pool->retired);
	queue_delayed_work(tow_wq, &pool->look, TOW_RETIRED_LOOK);
	tow_pool_replace(pool, slab->class);
	mutex_unlock(&pool->resize);
}

/**
 * tow_pool_init_retired - prepare a pool's part of this file
 * @pool: new
 */
void tow_pool_init_retired(struct tow_pool *pool)
{
	INIT_LIST_HEAD(&pool->retired);
	INIT_DELAYED_WORK(&pool->look, tow_pool_look);
}

/**
 * tow_pool_stop_retired - the RDMA device is going: what has left the pool is let go of
 * @pool: the pool, stopped; nobody retires anything any more
 *
 * Pages that somebody uses go when he lets go of them.
 */
void tow_pool_stop_retired(struct tow_pool *pool)
{
	struct tow_slab *slab, *next;

	cancel_delayed_work_sync(&pool->look);
	mutex_lock(&pool->resize);
	list_for_each_entry_safe(slab, next, &pool->retired, list)
		tow_retired_free(slab);
	mutex_unlock(&pool->resize);
}
