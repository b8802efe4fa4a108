// SPDX-License-Identifier: GPL-2.0
/*
 * The pool: a device's slabs, made ahead of need; memory.h has the states of a slab.
 *
 * Normal operation
 *
 * A region takes FREE slabs, which are zeroed, and gives them back when it ends.  By then
 * no peer reaches them: an export holds its region until its last grant has ended and its
 * keys are invalid (directory/export.c).  That order matters: invalidation stops no
 * operation that is past its check of the key.  What may be left are users on this
 * machine, who hold references to the pages: a pipe, a read or a write past the page
 * cache, another driver's registration.  A slab without them is DIRTY; the work item
 * zeroes it, and it is FREE.  One that has them is HELD.
 *
 * HELD slabs are no less the pool's, and they stay charged to the client that had them,
 * and to its user: one page that somebody keeps in a pipe keeps all of a slab, and
 * uncharged a user could keep the whole pool so.  Nobody tells us when a page is let go
 * of, so the work item looks once a second, and before anybody is refused.
 *
 * A region that finds too few FREE slabs takes DIRTY ones and zeroes them itself; then
 * has the work item look at HELD ones, and stop zeroing; then has small slabs made in
 * place of a large one, if it is them that it needs.  Which slabs there are at all is the
 * business of pool_resize.c.
 *
 * Locks
 *
 * tow_pool.lock is dropped after each TOW_POOL_BATCH slabs.  So a list's count, and not
 * its length, says what may be taken: who takes many counts them off first, and collects
 * them then.
 *
 * Removal of the device
 *
 * tow_pool_stop() takes every slab off the RDMA device.  Those that regions have stay with
 * them, as plain memory, until the regions end; pages that others use go when they are let
 * go of.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "core/trace.h"
#include "internal.h"

/* How often HELD slabs are looked at. */
#define TOW_POOL_LOOK		HZ

/* So many slabs are moved while the lock is held. */
#define TOW_POOL_BATCH		64

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
	int state, class;

	pool->dev = dev;
	pool->large_bytes = tow_slab_large_bytes(registration_pages, PAGE_SIZE);
	spin_lock_init(&pool->lock);
	INIT_LIST_HEAD(&pool->all);
	for (state = 0; state < TOW_SLAB_STATES; state++) {
		for (class = 0; class < TOW_SLAB_CLASSES; class++)
			INIT_LIST_HEAD(&pool->slabs[state][class].list);
	}
	mutex_init(&pool->resize);
	INIT_DELAYED_WORK(&pool->work, tow_pool_work);
}

/* Caller holds the lock, and has moved another slab: its @i-th. */
static void tow_pool_breathe(struct tow_pool *pool, unsigned int i)
{
	if (i % TOW_POOL_BATCH != TOW_POOL_BATCH - 1)
		return;
	spin_unlock(&pool->lock);
	cond_resched();
	spin_lock(&pool->lock);
}

/* ---- slabs that come back ------------------------------------------------- */

/* A HELD slab, of no list, whose pages nobody else uses any more. */
static void tow_pool_let_go(struct tow_pool *pool, struct tow_slab *slab)
{
	tow_slab_uncharge(slab);
	spin_lock(&pool->lock);
	pool->slabs[TOW_SLAB_HELD][slab->class].count--;
	pool->used_bytes -= slab->bytes;
	tow_pool_put(pool, slab, TOW_SLAB_DIRTY);
	spin_unlock(&pool->lock);
}

/* Are HELD slabs of a class held still?  Return: true: some are. */
static bool tow_pool_look(struct tow_pool *pool, enum tow_slab_class class)
{
	struct tow_slabs *held = &pool->slabs[TOW_SLAB_HELD][class];
	struct tow_slab *slab, *next;
	LIST_HEAD(looked_at);
	bool some;

	spin_lock(&pool->lock);
	list_splice_init(&held->list, &looked_at);
	spin_unlock(&pool->lock);
	list_for_each_entry_safe(slab, next, &looked_at, list) {
		if (tow_slab_ours_alone(slab)) {
			list_del(&slab->list);
			tow_pool_let_go(pool, slab);
		}
		cond_resched();
	}
	spin_lock(&pool->lock);
	list_splice(&looked_at, &held->list);
	some = held->count;
	spin_unlock(&pool->lock);
	return some;
}

/*
 * Makes DIRTY slabs FREE.  Those who wait can zero what they take, and removal has no
 * use for zeroes.
 */
static void tow_pool_zero(struct tow_pool *pool, enum tow_slab_class class)
{
	struct tow_slab *slab;

	while (!tow_device_going(pool->dev) && !atomic_read(&pool->waiting)) {
		spin_lock(&pool->lock);
		slab = tow_pool_pick(pool, TOW_SLAB_DIRTY, class);
		spin_unlock(&pool->lock);
		if (!slab)
			return;
		if (tow_slab_zero(slab)) {
			tow_pool_lose(pool, slab);
			continue;
		}
		spin_lock(&pool->lock);
		tow_pool_put(pool, slab, TOW_SLAB_FREE);
		spin_unlock(&pool->lock);
	}
}

static void tow_pool_work(struct work_struct *work)
{
	struct tow_pool *pool = container_of(to_delayed_work(work),
					     struct tow_pool, work);
	bool held = false;
	int class;

	for (class = 0; class < TOW_SLAB_CLASSES; class++)
		held |= tow_pool_look(pool, class);
	/* What is to leave need not be zeroed. */
	tow_pool_trim(pool, false);
	for (class = 0; class < TOW_SLAB_CLASSES; class++)
		tow_pool_zero(pool, class);
	tow_pool_trim(pool, false);
	/* Not if it is to run sooner. */
	if (held)
		queue_delayed_work(tow_wq, &pool->work, TOW_POOL_LOOK);
}

/* ---- for regions ---------------------------------------------------------- */

/*
 * All or nothing.  The first @dirty of the slabs are dirty: the caller zeroes
 * them.  They count as used from now on, so nobody else sees them.
 */
static int tow_pool_try_take(struct tow_pool *pool, enum tow_slab_class class,
			     unsigned int count, struct tow_slab **slabs,
			     unsigned int *dirty)
{
	struct tow_slabs *used = &pool->slabs[TOW_SLAB_DIRTY][class];
	struct tow_slabs *free = &pool->slabs[TOW_SLAB_FREE][class];
	unsigned int i;

	spin_lock(&pool->lock);
	if (free->count + used->count < count) {
		spin_unlock(&pool->lock);
		return -ENOSPC;
	}
	*dirty = count - min_t(unsigned long, count, free->count);
	used->count -= *dirty;
	free->count -= count - *dirty;
	pool->used_bytes += count * tow_pool_slab_bytes(pool, class);
	pool->high_water_bytes = max(pool->high_water_bytes, pool->used_bytes);
	for (i = 0; i < count; i++) {
		/* The one that was used last, which is the warmest. */
		slabs[i] = list_last_entry(i < *dirty ? &used->list : &free->list,
					   struct tow_slab, list);
		list_del_init(&slabs[i]->list);
		tow_pool_breathe(pool, i);
	}
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
	if (error == -ENOSPC) {
		trace_tow_limit(dev, "pool_bytes", numbers.used_bytes,
				numbers.bytes, bytes);
		tow_stat_inc(dev, TOW_STAT_POOL_REFUSALS);
		tow_uevent(dev, "limit", "pool_bytes");
		pr_notice_ratelimited("%s: %llu bytes asked for, with %llu used (%llu held) of %llu: raise /sys/class/towline/%s/pool_bytes (or write it again: small slabs go)\n",
				      name, bytes, numbers.used_bytes,
				      numbers.held_bytes, numbers.bytes, name);
	} else if (error == -ENOMEM) {
		tow_stat_inc(dev, TOW_STAT_MEMORY_REFUSALS);
		pr_notice_ratelimited("%s: the machine has no memory for slabs: "
				      TOW_SLAB_NO_MEMORY "\n", name);
	}
	return error;
}

/* What others have let go of lately may do, or small slabs in place of a large one. */
static int tow_pool_take_slowly(struct tow_pool *pool,
				enum tow_slab_class class, unsigned int count,
				struct tow_slab **slabs, unsigned int *dirty)
{
	int ret, error = 0;

	tow_pool_settle(pool);
	ret = tow_pool_try_take(pool, class, count, slabs, dirty);
	while (ret == -ENOSPC && class == TOW_SLAB_SMALL && !error) {
		error = tow_slab_interrupted(pool->dev) ?:
			tow_pool_make_small(pool);
		ret = tow_pool_try_take(pool, class, count, slabs, dirty);
	}
	tow_pool_settled(pool);
	return ret == -ENOSPC && error ? error : ret;
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
	u64 most;

	spin_lock(&pool->lock);
	/* There is less than wanted while small slabs are made. */
	most = max(pool->bytes, pool->want_bytes);
	spin_unlock(&pool->lock);
	return bytes <= most ? 0 : tow_pool_refuse(pool, bytes, -ENOSPC);
}

/*
 * Zeroes the first @dirty of @count slabs.  A poisoned one is lost, and the others are
 * given back then: -EAGAIN.
 */
static int tow_pool_clean(struct tow_pool *pool, struct tow_slab **slabs,
			  unsigned int count, unsigned int dirty)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < dirty && !ret; i++) {
		ret = tow_slab_interrupted(pool->dev);
		if (!ret && tow_slab_zero(slabs[i])) {
			spin_lock(&pool->lock);
			pool->used_bytes -= slabs[i]->bytes;
			spin_unlock(&pool->lock);
			tow_pool_lose(pool, slabs[i]);
			slabs[i] = slabs[--count];
			ret = -EAGAIN;
		}
	}
	if (ret)
		tow_pool_give(pool, slabs, count, NULL);
	return ret;
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
 * no memory for small slabs (logged); -ENODEV: the device is going; -EINTR: the caller
 * was killed; -EOPNOTSUPP: see tow_slab_make().
 */
int tow_pool_take(struct tow_pool *pool, enum tow_slab_class class,
		  unsigned int count, struct tow_slab **slabs)
{
	unsigned int dirty;
	int ret;

	do {
		ret = tow_pool_try_take(pool, class, count, slabs, &dirty);
		if (ret == -ENOSPC)
			ret = tow_pool_take_slowly(pool, class, count, slabs,
						   &dirty);
		if (ret)
			return tow_pool_refuse(pool, count *
					       tow_pool_slab_bytes(pool, class),
					       ret);
		ret = tow_pool_clean(pool, slabs, count, dirty);
	} while (ret == -EAGAIN);
	return ret;
}

/* How many were given; fewer than @count if the device is going. */
static unsigned int tow_pool_try_give(struct tow_pool *pool,
				      struct tow_slab **slabs,
				      unsigned int count,
				      struct tow_charge *charge)
{
	unsigned int i;

	spin_lock(&pool->lock);
	for (i = 0; i < count && !pool->stopped; i++) {
		struct tow_slab *slab = slabs[i];

		/* Exports hold their region until they have hidden it. */
		WARN_ON_ONCE(tow_slab_exposed(slab));
		if (!charge || tow_slab_ours_alone(slab)) {
			pool->used_bytes -= slab->bytes;
			tow_pool_put(pool, slab, TOW_SLAB_DIRTY);
		} else {
			slab->payer = tow_charge_leave(charge, slab->bytes);
			trace_tow_slab_held(slab);
			tow_pool_put(pool, slab, TOW_SLAB_HELD);
		}
		tow_pool_breathe(pool, i);
	}
	if (!pool->stopped)
		mod_delayed_work(tow_wq, &pool->work, 0);
	spin_unlock(&pool->lock);
	return i;
}

/**
 * tow_pool_give - give slabs back
 * @pool: the pool; the caller need not be a user of the device
 * @slabs: from tow_pool_take(), which no peer reaches; not the caller's any more
 * @count: how many
 * @charge: what is charged for them; a slab whose pages others use takes its part of
 *	it.  NULL: nobody but the caller had them
 *
 * Waits for nobody.
 */
void tow_pool_give(struct tow_pool *pool, struct tow_slab **slabs,
		   unsigned int count, struct tow_charge *charge)
{
	unsigned int given = tow_pool_try_give(pool, slabs, count, charge);

	if (given == count)
		return;
	/*
	 * Removal may not have come as far as taking the rest off the RDMA device; it
	 * does not go on before we let go of the lock, and what is off stays so.
	 */
	mutex_lock(&pool->resize);
	for (; given < count; given++) {
		spin_lock(&pool->lock);
		pool->used_bytes -= slabs[given]->bytes;
		spin_unlock(&pool->lock);
		tow_pool_unmake(pool, slabs[given]);
		cond_resched();
	}
	mutex_unlock(&pool->resize);
}

/**
 * tow_pool_look_again - have HELD slabs looked at now
 * @pool: the pool; the caller is a user of the device
 *
 * Those that nobody holds any more are charged to nobody.
 */
void tow_pool_look_again(struct tow_pool *pool)
{
	struct tow_pool_numbers numbers;

	tow_pool_numbers(pool->dev, &numbers);
	if (!numbers.held)
		return;
	tow_pool_settle(pool);
	tow_pool_settled(pool);
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
	for (class = 0; class < TOW_SLAB_CLASSES; class++) {
		u64 held = pool->slabs[TOW_SLAB_HELD][class].count;

		numbers->slabs += pool->count[class];
		numbers->free += pool->slabs[TOW_SLAB_FREE][class].count;
		numbers->dirty += pool->slabs[TOW_SLAB_DIRTY][class].count;
		numbers->held += held;
		numbers->held_bytes += held * tow_pool_slab_bytes(pool, class);
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

	spin_lock(&pool->lock);
	pool->stopped = true;
	spin_unlock(&pool->lock);
	cancel_delayed_work_sync(&pool->work);
	mutex_lock(&pool->resize);
	list_for_each_entry_safe(slab, next, &pool->all, all) {
		/* A region has those that are in no other list. */
		if (list_empty(&slab->list))
			tow_slab_detach(slab);
		else
			tow_pool_unmake(pool, slab);
		cond_resched();
	}
	mutex_unlock(&pool->resize);
}

/**
 * tow_memory_charge - charge a client, for whom others may have to let go first
 * @charge: where to: the charge, for tow_uncharge()
 * @client: the client
 * @amount: how much of each resource
 *
 * What the client gave up is charged until nobody reaches it any more: who is refused
 * waits for that once.
 *
 * Return: 0; -EDQUOT, -ENOSPC.
 */
int tow_memory_charge(struct tow_charge *charge, struct tow_client *client,
		      const u64 amount[TOW_RESOURCES])
{
	struct tow_device *dev = client->dev;

	if (tow_charge_try(charge, client->account, amount))
		return 0;
	/* Who imports is no user of the device. */
	if (tow_device_enter(dev)) {
		tow_pool_look_again(&dev->memory->pool);
		tow_device_leave(dev);
	}
	tow_imports_wait(&dev->memory->imports);
	return tow_charge(charge, client->account, amount);
}
