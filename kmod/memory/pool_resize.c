// SPDX-License-Identifier: GPL-2.0
/*
 * Which slabs a pool has: making it larger and smaller, and small slabs.
 *
 * One change at a time: each is done with tow_pool.resize held, which only those who
 * make slabs wait for, for a slab or for what replaces it.  What is made is free at
 * once, and only what is free or dirty leaves; so regions come and go meanwhile.
 *
 * Small slabs are made when a region needs them, in place of a large one that nobody
 * has, and stay.  Each write to pool_bytes gives those back that nobody has, and makes
 * large ones in their place.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "internal.h"

/* What is exported next may need as many; each costs the hardware a command. */
#define TOW_POOL_RECLAIM_MRS	16

static int tow_pool_make_one(struct tow_pool *pool, enum tow_slab_class class)
{
	struct tow_slab *slab;

	lockdep_assert_held(&pool->resize);
	slab = tow_slab_make(pool->dev, class);
	if (IS_ERR(slab))
		return PTR_ERR(slab);
	spin_lock(&pool->lock);
	list_add_tail(&slab->all, &pool->all);
	tow_pool_count(pool, slab, slab->bytes);
	pool->count[class]++;
	tow_pool_put(pool, slab, TOW_SLAB_FREE);
	spin_unlock(&pool->lock);
	return 0;
}

/**
 * tow_pool_unmake - a slab leaves the pool
 * @pool: the pool; caller holds tow_pool.resize, and removal waits for it
 * @slab: nobody's; gone afterwards.  Pages that others use go when they are let go of
 */
void tow_pool_unmake(struct tow_pool *pool, struct tow_slab *slab)
{
	lockdep_assert_held(&pool->resize);
	spin_lock(&pool->lock);
	list_del(&slab->list);
	list_del(&slab->all);
	tow_pool_count(pool, slab, -(s64)slab->bytes);
	pool->count[slab->class]--;
	spin_unlock(&pool->lock);
	tow_slab_detach(slab);
	tow_slab_uncharge(slab);
	tow_slab_free(slab);
}

/**
 * tow_pool_lose - a slab has poisoned memory: the pool is smaller from now on
 * @pool: the pool; removal waits for the caller
 * @slab: nobody's, of no list but that of all; gone afterwards
 */
void tow_pool_lose(struct tow_pool *pool, struct tow_slab *slab)
{
	mutex_lock(&pool->resize);
	spin_lock(&pool->lock);
	pool->want_bytes -= min(pool->want_bytes, slab->bytes);
	spin_unlock(&pool->lock);
	tow_pool_unmake(pool, slab);
	mutex_unlock(&pool->resize);
}

/*
 * A slab of the class that nobody has leaves the pool: a dirty one, which nobody need
 * zero then, or the one that was used longest ago.  Return: false: there is none.
 */
static bool tow_pool_unmake_one(struct tow_pool *pool, enum tow_slab_class class)
{
	struct tow_slab *slab;

	spin_lock(&pool->lock);
	slab = tow_pool_pick(pool, TOW_SLAB_DIRTY, class) ?:
	       tow_pool_pick(pool, TOW_SLAB_FREE, class);
	spin_unlock(&pool->lock);
	if (slab)
		tow_pool_unmake(pool, slab);
	return slab;
}

/* By how much is the pool larger than is wanted?  Negative: smaller. */
static s64 tow_pool_excess(struct tow_pool *pool)
{
	s64 excess;

	spin_lock(&pool->lock);
	excess = pool->stopped ? 0 : pool->bytes - pool->want_bytes;
	spin_unlock(&pool->lock);
	return excess;
}

/*
 * Slabs of a class that nobody has leave until there are no more than is wanted, and @more
 * of them.  Those who make slabs need not wait for all.
 */
static void tow_pool_shrink(struct tow_pool *pool, enum tow_slab_class class,
			    unsigned long more)
{
	s64 each = tow_pool_slab_bytes(pool, class);
	bool gone;

	do {
		mutex_lock(&pool->resize);
		gone = (more || tow_pool_excess(pool) >= each) &&
		       tow_pool_unmake_one(pool, class);
		mutex_unlock(&pool->resize);
		more -= !!more;
		cond_resched();
	} while (gone);
}

/**
 * tow_pool_trim - let go of slabs until there are no more than is wanted
 * @pool: the pool; the caller is a user of the device, or removal waits for it
 * @small: let go of all small ones that there are now, too
 *
 * Only what nobody has goes.  Small slabs in use may be what is too much: then a large one
 * stays, and they go as they come back.
 */
void tow_pool_trim(struct tow_pool *pool, bool small)
{
	tow_pool_shrink(pool, TOW_SLAB_SMALL,
			small ? READ_ONCE(pool->count[TOW_SLAB_SMALL]) : 0);
	tow_pool_shrink(pool, TOW_SLAB_LARGE, 0);
}

/**
 * tow_pool_make_small - make small slabs in place of a large one
 * @pool: the pool; the caller is a user of the device
 *
 * All that the large one had room for, or what the pool lacks.  If the machine needs the
 * memory more, the pool is smaller afterwards, and the next time begins with what it lacks.
 *
 * Return: 0; -ENOSPC: nobody has let go of a large slab; -ENOMEM: no memory; or as
 * tow_slab_make().
 */
int tow_pool_make_small(struct tow_pool *pool)
{
	s64 each = TOW_SLAB_SMALL_BYTES, room;
	int ret = 0;

	mutex_lock(&pool->resize);
	if (tow_pool_excess(pool) > -each)
		tow_pool_unmake_one(pool, TOW_SLAB_LARGE);
	room = min_t(s64, -tow_pool_excess(pool), pool->large_bytes);
	if (room < each)
		ret = -ENOSPC;
	for (; !ret && room >= each; room -= each)
		ret = tow_pool_make_one(pool, TOW_SLAB_SMALL);
	mutex_unlock(&pool->resize);
	return ret;
}

/* ---- memory regions ------------------------------------------------------- */

/**
 * tow_pool_reclaim_mrs - the device has no more memory regions: find some
 * @pool: the pool; the caller is a user of the device, and holds no slab's lock
 *
 * Slabs keep theirs when nothing is exported any more.  Takes some from those
 * slabs, whoever has them; the next time it goes on from there.
 *
 * Return: whether there were any.
 */
static bool tow_pool_reclaim_mrs(struct tow_pool *pool)
{
	unsigned int count = 0;
	struct tow_slab *slab;

	mutex_lock(&pool->resize);
	list_for_each_entry(slab, &pool->all, all) {
		count += tow_slab_reclaim_mrs(slab);
		if (count >= TOW_POOL_RECLAIM_MRS)
			break;
		cond_resched();
	}
	if (count >= TOW_POOL_RECLAIM_MRS) {
		spin_lock(&pool->lock);
		list_rotate_to_front(&slab->all, &pool->all);
		spin_unlock(&pool->lock);
	}
	mutex_unlock(&pool->resize);
	return count;
}

/**
 * towk_slab_expose - let peers in
 * @slab: a region's slab; the caller is a user of the device
 * @rights: to do what
 * @key: the key that peers need
 * @address: the address of the slab's first byte that goes with the key
 *
 * May sleep.  One towk_slab_hide() for each success.
 *
 * Return: 0; -EACCES: to write what was imported for reading; -EFAULT: its exporter has
 * taken the memory back; -ENOSPC: no memory region, the device's limit is reached
 * (logged); -ENOMEM: the machine's; -ENETDOWN: no maintenance queue pair; -ENODEV: the
 * device is going; -EIO or what the device's driver said.
 */
int towk_slab_expose(struct tow_slab *slab, enum tow_rights rights, u32 *key,
		     u64 *address)
{
	int ret;

	/* Whoever has the region's handle may not, either. */
	if (slab->readonly && rights == TOW_RIGHTS_WRITE)
		return -EACCES;
	ret = tow_slab_expose(slab, rights, key, address);
	/* Hardware may have fewer than it says, which drivers tell so. */
	if (ret == -ENOMEM && tow_pool_reclaim_mrs(&slab->dev->memory->pool))
		ret = tow_slab_expose(slab, rights, key, address);
	while (ret == -ENOSPC && !tow_slab_interrupted(slab->dev) &&
	       tow_pool_reclaim_mrs(&slab->dev->memory->pool))
		ret = tow_slab_expose(slab, rights, key, address);
	if (ret == -ENOSPC)
		tow_limits_refuse_mr(&slab->dev->limits);
	return ret;
}
EXPORT_SYMBOL_GPL(towk_slab_expose);

/* ---- for the administrator ------------------------------------------------ */

/*
 * One slab more, if the pool is to have @bytes still.  What remains where small
 * slabs have left is filled up with small ones.  Returns 1 if there may be more
 * to do.
 */
static int tow_pool_grow_one(struct tow_pool *pool, u64 bytes)
{
	enum tow_slab_class class = TOW_SLAB_LARGE;
	u64 have, want;
	int ret = 0;

	/* Whoever wants less trims after us. */
	mutex_lock(&pool->resize);
	spin_lock(&pool->lock);
	have = pool->bytes;
	want = pool->want_bytes;
	spin_unlock(&pool->lock);
	if (have + pool->large_bytes > bytes)
		class = TOW_SLAB_SMALL;
	if (want == bytes && have + TOW_SLAB_SMALL_BYTES <= bytes)
		ret = tow_pool_make_one(pool, class) ?: 1;
	mutex_unlock(&pool->resize);
	return ret;
}

/* Until there is enough, nothing is left, or something else is wanted. */
static int tow_pool_grow(struct tow_pool *pool, u64 bytes)
{
	int ret;

	do {
		ret = tow_slab_interrupted(pool->dev);
		/* Whoever renames it keeps all RDMA devices waiting. */
		if (!ret && READ_ONCE(pool->dev->node_going))
			ret = -EAGAIN;
		if (!ret)
			ret = tow_pool_grow_one(pool, bytes);
	} while (ret > 0);
	return ret;
}

/* What could be had is what is wanted now, unless somebody wants otherwise. */
static void tow_pool_stop_growing(struct tow_pool *pool, u64 bytes, int error)
{
	const char *reason = error == -ENOMEM ?
				"the machine has no more to give: "
				TOW_SLAB_NO_MEMORY :
			     error == -EOPNOTSUPP ? "the device reaches memory by copies only" :
					       "see the error";
	char name[TOW_DEVICE_NAME_MAX];
	u64 have;

	spin_lock(&pool->lock);
	have = pool->bytes;
	if (pool->want_bytes == bytes)
		pool->want_bytes = have;
	spin_unlock(&pool->lock);
	if (error == -ENOMEM)
		tow_stat_inc(pool->dev, TOW_STAT_MEMORY_REFUSALS);
	tow_device_name(pool->dev, name);
	pr_notice("%s: pool_bytes is %llu, not %llu: %s (error %d)\n", name,
		  have, bytes, reason, error);
}

/**
 * tow_pool_resize - make the pool larger or smaller
 * @dev: the device; the caller is a user of it
 * @bytes: how large it is to be, rounded up to whole large slabs
 *
 * Growing stops when no more can be had; what was had stays.  Shrinking takes
 * what nobody has now, and slabs in use when they come back.  Small slabs that nobody
 * has go, whatever @bytes: large ones come in their place.
 *
 * Return: 0; -ENOMEM: the machine has no more; -EINTR: the caller was killed;
 * -EAGAIN: the device is being renamed, which waits for the caller; -ENODEV: it is
 * going; -EOPNOTSUPP: see tow_slab_make().
 */
int tow_pool_resize(struct tow_device *dev, u64 bytes)
{
	struct tow_pool *pool = &dev->memory->pool;
	int ret;

	bytes = round_up(bytes, pool->large_bytes);
	spin_lock(&pool->lock);
	pool->want_bytes = bytes;
	spin_unlock(&pool->lock);
	tow_pool_settle(pool);
	tow_pool_trim(pool, true);
	tow_pool_settled(pool);
	ret = tow_pool_grow(pool, bytes);
	if (ret)
		tow_pool_stop_growing(pool, bytes, ret);
	return ret;
}
