// SPDX-License-Identifier: GPL-2.0
/*
 * The pool: a device's slabs, made ahead of need; memory.h has the states of a slab.
 *
 * Normal operation
 *
 * A region takes FREE slabs, which are zeroed, and gives them back when it
 * ends.  They come back DRAINING.  The work item takes each one through what it
 * needs before somebody else may have it:
 *
 *   1. no peer may have an operation on it in flight (tow_slab.remote is 0:
 *      each was revoked and has acknowledged, or lost its queue pairs);
 *   2. its registrations are invalidated;
 *   3. nobody on this machine may use its pages (references are counted); if
 *      somebody does, the slab is retired and a new one made in its place;
 *   4. it is zeroed.
 *
 * The order matters.  Only after 1 is it safe to invalidate, as invalidation
 * stops no operation that is past its check of the key; only after 2 is 3 the
 * last word, and what somebody wrote before 3 is gone after 4.
 *
 * A region that finds too few FREE slabs takes DIRTY ones and zeroes them
 * itself; then waits for the work item; then has slabs of the other class
 * exchanged for some of its own.  Which slabs there are at all is the business
 * of pool_resize.c.
 *
 * Removal of the device
 *
 * tow_pool_stop() takes every slab off the RDMA device.  Those that regions
 * have stay with them, as plain memory, until the regions end.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/sizes.h>

#include "core/trace.h"
#include "internal.h"

/*
 * What one caller had made ready, another may have taken: so often we try again
 * before we say that there is none.
 */
#define TOW_POOL_ROUNDS		3

/*
 * Zeroed in one go by the work item.  Whoever finds the pool empty waits for it,
 * so however much came back at once must not keep him.
 */
#define TOW_POOL_ZERO_BYTES	((u64)SZ_256M)

static void tow_pool_work(struct work_struct *work);

/**
 * tow_pool_init - prepare the structure
 * @pool: zeroed memory
 * @dev: the device
 * @registration_pages: what one registration of the device can hold, at least
 *	TOW_SLAB_SMALL_BYTES
 */
void tow_pool_init(struct tow_pool *pool, struct tow_device *dev,
		   u32 registration_pages)
{
	int class;

	pool->dev = dev;
	pool->large_bytes = tow_slab_large_bytes(registration_pages, PAGE_SIZE);
	spin_lock_init(&pool->lock);
	INIT_LIST_HEAD(&pool->all);
	INIT_LIST_HEAD(&pool->draining);
	for (class = 0; class < TOW_SLAB_CLASSES; class++) {
		INIT_LIST_HEAD(&pool->free[class]);
		INIT_LIST_HEAD(&pool->dirty[class]);
	}
	mutex_init(&pool->resize);
	INIT_WORK(&pool->work, tow_pool_work);
	tow_pool_init_retired(pool);
}

/* ---- slabs that come back ------------------------------------------------- */

static void tow_pool_put_dirty(struct tow_pool *pool, struct tow_slab *slab)
{
	/* Whoever used its pages has let go of them meanwhile. */
	tow_slab_uncharge(slab);
	spin_lock(&pool->lock);
	slab->state = TOW_SLAB_DIRTY;
	list_add_tail(&slab->list, &pool->dirty[slab->class]);
	pool->dirty_count[slab->class]++;
	pool->draining_count--;
	pool->used_bytes -= slab->bytes;
	spin_unlock(&pool->lock);
}

/* The import's business from now on. */
static void tow_pool_pass_import(struct tow_pool *pool, struct tow_slab *slab)
{
	spin_lock(&pool->lock);
	pool->draining_count--;
	spin_unlock(&pool->lock);
	slab->backing->ops->drained(slab);
}

/* Those that no peer can have an operation on, in @drained. */
static void tow_pool_take_drained(struct tow_pool *pool,
				  struct list_head *drained)
{
	struct tow_slab *slab, *next;

	spin_lock(&pool->lock);
	list_for_each_entry_safe(slab, next, &pool->draining, list) {
		if (!refcount_read(&slab->remote))
			list_move_tail(&slab->list, drained);
	}
	spin_unlock(&pool->lock);
}

/* What becomes ready meanwhile has the work item run again. */
static void tow_pool_drain(struct tow_pool *pool)
{
	struct tow_slab *slab, *next;
	LIST_HEAD(drained);

	tow_pool_take_drained(pool, &drained);
	/* An import takes its slabs with it when the last one has drained. */
	list_for_each_entry_safe(slab, next, &drained, list) {
		list_del_init(&slab->list);
		tow_slab_hide_all(slab);
		if (slab->class == TOW_SLAB_IMPORTED)
			tow_pool_pass_import(pool, slab);
		else if (tow_slab_ours_alone(slab))
			tow_pool_put_dirty(pool, slab);
		else
			tow_pool_retire(pool, slab);
		cond_resched();
	}
}

static struct tow_slab *tow_pool_next_dirty(struct tow_pool *pool,
					    enum tow_slab_class class)
{
	struct tow_slab *slab;

	spin_lock(&pool->lock);
	slab = list_first_entry_or_null(&pool->dirty[class], struct tow_slab,
					list);
	if (slab) {
		list_del_init(&slab->list);
		pool->dirty_count[class]--;
	}
	spin_unlock(&pool->lock);
	return slab;
}

/*
 * Makes dirty slabs free, some at a time.  Removal waits for us, and has no use
 * for zeroes.
 */
static void tow_pool_zero(struct tow_pool *pool)
{
	u64 left = TOW_POOL_ZERO_BYTES;
	struct tow_slab *slab;
	int class;

	for (class = 0; class < TOW_SLAB_CLASSES; class++) {
		while (left && !tow_device_going(pool->dev) &&
		       (slab = tow_pool_next_dirty(pool, class))) {
			left -= min(left, slab->bytes);
			tow_slab_zero(slab);
			spin_lock(&pool->lock);
			tow_pool_put_free(pool, slab);
			spin_unlock(&pool->lock);
		}
	}
	if (!left)
		queue_work(tow_wq, &pool->work);
}

static void tow_pool_work(struct work_struct *work)
{
	struct tow_pool *pool = container_of(work, struct tow_pool, work);

	tow_pool_drain(pool);
	/* What is to leave need not be zeroed. */
	tow_pool_trim(pool);
	tow_pool_zero(pool);
	tow_pool_trim(pool);
}

/* ---- for regions ---------------------------------------------------------- */

/* Called with the lock held. */
static void tow_pool_own(struct tow_pool *pool, struct tow_slab *slab)
{
	slab->state = TOW_SLAB_OWNED;
	refcount_set(&slab->remote, 1);
	pool->used_bytes += slab->bytes;
	pool->high_water_bytes = max(pool->high_water_bytes, pool->used_bytes);
}

/*
 * All or nothing.  The first @dirty of the slabs are dirty: the caller zeroes
 * them.  They count as used from now on, so nobody else sees them.
 */
static int tow_pool_try_take(struct tow_pool *pool, enum tow_slab_class class,
			     unsigned int count, struct tow_slab **slabs,
			     unsigned int *dirty)
{
	unsigned int i;

	*dirty = 0;
	spin_lock(&pool->lock);
	if (pool->stopped) {
		spin_unlock(&pool->lock);
		return -ENODEV;
	}
	if (pool->free_count[class] + pool->dirty_count[class] < count) {
		spin_unlock(&pool->lock);
		return -ENOSPC;
	}
	if (pool->free_count[class] < count)
		*dirty = count - pool->free_count[class];
	for (i = 0; i < count; i++) {
		struct list_head *list = i < *dirty ? &pool->dirty[class] :
						      &pool->free[class];

		/* The one that was used last, which is the warmest. */
		slabs[i] = list_last_entry(list, struct tow_slab, list);
		list_del_init(&slabs[i]->list);
		tow_pool_own(pool, slabs[i]);
	}
	pool->dirty_count[class] -= *dirty;
	pool->free_count[class] -= count - *dirty;
	spin_unlock(&pool->lock);
	return 0;
}

/* Says why there are no slabs. */
static int tow_pool_refuse(struct tow_pool *pool, u64 bytes, int error)
{
	struct tow_device *dev = pool->dev;
	struct tow_pool_numbers numbers;
	char name[TOW_DEVICE_NAME_MAX];

	tow_device_name(dev, name);
	tow_pool_numbers(dev, &numbers);
	switch (error) {
	case -ENODEV:
	case -EINTR:
		return error;
	case -ENOSPC:
		trace_tow_limit(dev, "pool_bytes", numbers.used_bytes,
				numbers.bytes, bytes);
		tow_stat_inc(dev, TOW_STAT_POOL_REFUSALS);
		tow_uevent(dev, "limit", "pool_bytes");
		pr_notice_ratelimited("%s: %llu bytes asked for, with %llu used of %llu: raise /sys/class/towline/%s/pool_bytes\n",
				      name, bytes, numbers.used_bytes,
				      numbers.bytes, name);
		return error;
	case -ENOMEM:
		tow_stat_inc(dev, TOW_STAT_MEMORY_REFUSALS);
		pr_notice_ratelimited("%s: the machine has no memory for slabs\n",
				      name);
		return error;
	default:
		pr_notice_ratelimited("%s: no slab could be made: error %d\n",
				      name, error);
		return error;
	}
}

/* One round of everything that may help. */
static int tow_pool_take_slowly(struct tow_pool *pool,
				enum tow_slab_class class, unsigned int count,
				struct tow_slab **slabs, unsigned int *dirty)
{
	int ret;

	/* What came back lately may do. */
	flush_work(&pool->work);
	ret = tow_pool_try_take(pool, class, count, slabs, dirty);
	if (ret != -ENOSPC)
		return ret;
	ret = tow_pool_exchange(pool, class, count);
	if (ret)
		return ret;
	return tow_pool_try_take(pool, class, count, slabs, dirty);
}

static u64 tow_pool_bytes(struct tow_pool *pool)
{
	u64 bytes;

	spin_lock(&pool->lock);
	bytes = pool->bytes;
	spin_unlock(&pool->lock);
	return bytes;
}

/* Has the pool so much, or will it, once what is missing was replaced? */
static bool tow_pool_reaches(struct tow_pool *pool, u64 bytes)
{
	bool reaches;

	spin_lock(&pool->lock);
	reaches = bytes <= max(pool->bytes, pool->want_bytes);
	spin_unlock(&pool->lock);
	return reaches;
}

/**
 * tow_pool_too_small - refuse what is more than there is in all
 * @pool: the pool
 * @bytes: what was asked for
 *
 * Return: 0, or -ENOSPC (logged).
 */
int tow_pool_too_small(struct tow_pool *pool, u64 bytes)
{
	if (bytes <= tow_pool_bytes(pool))
		return 0;
	/* A slab that is being replaced is missing for a moment. */
	flush_work(&pool->work);
	if (bytes <= tow_pool_bytes(pool))
		return 0;
	return tow_pool_refuse(pool, bytes, -ENOSPC);
}

/**
 * tow_pool_take - take slabs
 * @pool: the pool; the caller is a user of the device
 * @class: small or large
 * @count: how many, at least 1
 * @slabs: where to: zeroed slabs that are the caller's
 *
 * Usually takes a lock and nothing else.  tow_pool_give() undoes it.
 *
 * Return: 0; -ENOSPC: the pool has not enough (logged); -ENOMEM: the machine had
 * no memory for slabs of this class (logged); -ENODEV: the device is going; -EINTR:
 * the caller was killed; -EOPNOTSUPP: see tow_slab_make() (logged).
 */
int tow_pool_take(struct tow_pool *pool, enum tow_slab_class class,
		  unsigned int count, struct tow_slab **slabs)
{
	u64 bytes = count * tow_pool_slab_bytes(pool, class);
	int rounds = TOW_POOL_ROUNDS;
	unsigned int dirty, i;
	int ret;

	ret = tow_pool_try_take(pool, class, count, slabs, &dirty);
	/* While a slab is replaced there is less than wanted, for a moment. */
	while (ret == -ENOSPC && rounds-- && tow_pool_reaches(pool, bytes))
		ret = tow_pool_take_slowly(pool, class, count, slabs, &dirty);
	if (ret)
		return tow_pool_refuse(pool, bytes, ret);
	for (i = 0; i < dirty && !ret; i++) {
		ret = tow_slab_interrupted(pool->dev);
		if (!ret)
			tow_slab_zero(slabs[i]);
	}
	if (ret)
		tow_pool_give(pool, slabs, count);
	return ret;
}

/*
 * During removal and after it: nobody but this region knows the slab.  Removal
 * may not have come as far as taking it off the RDMA device; it does not go on
 * before we let go of the lock, and what is off already stays so.
 */
static void tow_pool_give_memory(struct tow_pool *pool,
				 struct tow_slab **slabs, unsigned int count)
{
	unsigned int i;

	mutex_lock(&pool->resize);
	spin_lock(&pool->lock);
	for (i = 0; i < count; i++) {
		pool->used_bytes -= slabs[i]->bytes;
		tow_pool_forget(pool, slabs[i]);
	}
	spin_unlock(&pool->lock);
	for (i = 0; i < count; i++) {
		tow_slab_detach(slabs[i]);
		tow_slab_uncharge(slabs[i]);
		tow_slab_free(slabs[i]);
	}
	mutex_unlock(&pool->resize);
}

/**
 * tow_pool_begin_drain - a region has ended: let go of its slabs
 * @pool: the pool
 * @slabs: the slabs, of the pool or of one import
 * @count: how many
 *
 * Waits for nobody: the work item takes each one on when no peer can reach it any
 * more, by way of tow_backing_ops.drained if it is an import's.
 *
 * Return: false: the device is gone, and with it everybody who could reach them;
 * they are the caller's still.
 */
bool tow_pool_begin_drain(struct tow_pool *pool, struct tow_slab **slabs,
			  unsigned int count)
{
	bool stopped;
	unsigned int i;

	spin_lock(&pool->lock);
	stopped = pool->stopped;
	for (i = 0; i < count && !stopped; i++) {
		slabs[i]->state = TOW_SLAB_DRAINING;
		list_add_tail(&slabs[i]->list, &pool->draining);
		pool->draining_count++;
		/* The region's own hold. */
		towk_slab_drop(slabs[i]);
	}
	spin_unlock(&pool->lock);
	return !stopped;
}

/**
 * tow_pool_give - give slabs back
 * @pool: the pool; the caller need not be a user of the device
 * @slabs: from tow_pool_take(); not the caller's any more
 * @count: how many
 */
void tow_pool_give(struct tow_pool *pool, struct tow_slab **slabs,
		   unsigned int count)
{
	if (!tow_pool_begin_drain(pool, slabs, count))
		tow_pool_give_memory(pool, slabs, count);
}

/* ---- looking, stopping ---------------------------------------------------- */

/**
 * tow_pool_numbers - how the pool is at this moment
 * @dev: the device
 * @numbers: where to
 */
void tow_pool_numbers(struct tow_device *dev, struct tow_pool_numbers *numbers)
{
	struct tow_pool *pool = &dev->memory->pool;
	int class;

	memset(numbers, 0, sizeof(*numbers));
	numbers->large_bytes = pool->large_bytes;
	spin_lock(&pool->lock);
	numbers->bytes = pool->bytes;
	numbers->used_bytes = pool->used_bytes;
	numbers->high_water_bytes = pool->high_water_bytes;
	numbers->small = pool->count[TOW_SLAB_SMALL];
	numbers->draining = pool->draining_count;
	for (class = 0; class < TOW_SLAB_CLASSES; class++) {
		numbers->slabs += pool->count[class];
		numbers->free += pool->free_count[class];
		numbers->dirty += pool->dirty_count[class];
	}
	spin_unlock(&pool->lock);
}

/**
 * tow_pool_node_bytes - how much of the pool a NUMA node has
 * @dev: the device
 * @node: the node
 *
 * Return: the bytes of slabs whose first page is there.
 */
u64 tow_pool_node_bytes(struct tow_device *dev, int node)
{
	return READ_ONCE(dev->memory->pool.node_bytes[node]);
}

/**
 * tow_pool_stop - the RDMA device is going
 * @pool: the pool; nobody is a user of the device any more
 *
 * Bounded: waits for nobody but the work item, which waits for nobody but the
 * maintenance queue pair.
 */
void tow_pool_stop(struct tow_pool *pool)
{
	struct tow_slab *slab, *next;
	LIST_HEAD(gone);

	spin_lock(&pool->lock);
	pool->stopped = true;
	spin_unlock(&pool->lock);
	cancel_work_sync(&pool->work);
	/* Imports that have ended, among others; there are no peers any more. */
	tow_pool_drain(pool);
	WARN_ON_ONCE(pool->draining_count);
	tow_pool_stop_retired(pool);

	mutex_lock(&pool->resize);
	list_for_each_entry(slab, &pool->all, all)
		tow_slab_detach(slab);
	spin_lock(&pool->lock);
	list_for_each_entry_safe(slab, next, &pool->all, all) {
		if (slab->state == TOW_SLAB_OWNED)
			continue;
		tow_pool_forget(pool, slab);
		list_add(&slab->all, &gone);
	}
	spin_unlock(&pool->lock);
	list_for_each_entry_safe(slab, next, &gone, all)
		tow_slab_free(slab);
	mutex_unlock(&pool->resize);
}
