// SPDX-License-Identifier: GPL-2.0
/*
 * Which slabs a pool has: making it larger and smaller, replacing slabs that
 * were lost, and exchanging slabs of one class for the other.
 *
 * One change at a time: all of it is done with tow_pool.resize held, which only
 * those who make slabs wait for.  What is made is free at once, and only what is
 * free or dirty ever leaves; so regions come and go meanwhile.
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
	tow_pool_put_free(pool, slab);
	spin_unlock(&pool->lock);
	return 0;
}

/*
 * The slab of a class that may leave best, out of its list: a dirty one, which
 * nobody need zero then, or the one that was used longest ago.  NULL: none may.
 */
static struct tow_slab *tow_pool_pick(struct tow_pool *pool,
				      enum tow_slab_class class)
{
	struct tow_slab *slab;

	lockdep_assert_held(&pool->lock);
	slab = list_first_entry_or_null(&pool->dirty[class], struct tow_slab,
					list);
	if (slab) {
		pool->dirty_count[class]--;
		return slab;
	}
	slab = list_first_entry_or_null(&pool->free[class], struct tow_slab,
					list);
	if (slab)
		pool->free_count[class]--;
	return slab;
}

/* A slab of the class that nobody has leaves the pool; false: there is none. */
static bool tow_pool_unmake_one(struct tow_pool *pool, enum tow_slab_class class)
{
	struct tow_slab *slab;

	lockdep_assert_held(&pool->resize);
	spin_lock(&pool->lock);
	slab = tow_pool_pick(pool, class);
	if (slab)
		tow_pool_forget(pool, slab);
	spin_unlock(&pool->lock);
	if (!slab)
		return false;
	tow_slab_detach(slab);
	tow_slab_free(slab);
	return true;
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
 * As tow_pool_trim(); whoever trims just now is done, too.  Small slabs in use may be
 * what is too much: then a large one stays, and they go as they come back.
 */
static void tow_pool_shrink(struct tow_pool *pool)
{
	int class;

	mutex_lock(&pool->resize);
	for (class = 0; class < TOW_SLAB_CLASSES; class++) {
		s64 each = tow_pool_slab_bytes(pool, class);

		while (tow_pool_excess(pool) >= each &&
		       tow_pool_unmake_one(pool, class))
			cond_resched();
	}
	mutex_unlock(&pool->resize);
}

/**
 * tow_pool_trim - let go of slabs until there are no more than is wanted
 * @pool: the pool; the caller is a user of the device, or removal waits for it
 *
 * Only what nobody has goes.
 */
void tow_pool_trim(struct tow_pool *pool)
{
	if (tow_pool_excess(pool) > 0)
		tow_pool_shrink(pool);
}

static void tow_pool_log_missing(struct tow_pool *pool, int error)
{
	char name[TOW_DEVICE_NAME_MAX];

	tow_device_name(pool->dev, name);
	pr_notice_ratelimited("%s: a slab left the pool, and none could be had in its place: error %d (write pool_bytes to try again)\n",
			      name, error);
}

/**
 * tow_pool_replace - make a slab in place of one that was lost
 * @pool: the pool; the caller has tow_pool.resize, and removal waits for it
 * @class: what it was
 *
 * Nothing happens if the pool is as large as it should be.  What fails is
 * logged.
 */
void tow_pool_replace(struct tow_pool *pool, enum tow_slab_class class)
{
	int ret;

	if (tow_pool_excess(pool) >= 0 ||
	    tow_device_going(pool->dev))
		return;
	ret = tow_pool_make_one(pool, class);
	if (ret)
		tow_pool_log_missing(pool, ret);
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

/* ---- exchange ------------------------------------------------------------- */

/* Slabs of a class that nobody has, for @bytes at most: their bytes. */
static u64 tow_pool_unmake(struct tow_pool *pool, enum tow_slab_class class,
			   u64 bytes)
{
	u64 each = tow_pool_slab_bytes(pool, class), done = 0;

	while (done + each <= bytes && tow_pool_unmake_one(pool, class))
		done += each;
	return done;
}

/* Slabs of a class for @bytes at most; in @done the bytes that were made. */
static int tow_pool_make(struct tow_pool *pool, enum tow_slab_class class,
			 u64 bytes, u64 *done)
{
	u64 each = tow_pool_slab_bytes(pool, class);
	int ret = 0;

	*done = 0;
	while (*done + each <= bytes) {
		ret = tow_pool_make_one(pool, class);
		if (ret)
			break;
		*done += each;
	}
	return ret;
}

/*
 * After a failure: slabs for @bytes as they were, or small ones where a region
 * has taken some of the others meanwhile.
 */
static void tow_pool_restore(struct tow_pool *pool, enum tow_slab_class class,
			     u64 bytes)
{
	u64 done;
	int ret;

	ret = tow_pool_make(pool, class, bytes, &done);
	bytes -= done;
	if (!ret)
		ret = tow_pool_make(pool, TOW_SLAB_SMALL, bytes, &done);
	if (ret)
		tow_pool_log_missing(pool, ret);
}

/*
 * One large slab becomes small ones, or the other way round.  All of it does,
 * or the pool would shrink; what cannot be done is undone.
 */
static int tow_pool_convert(struct tow_pool *pool, enum tow_slab_class class)
{
	u64 room, done;
	int ret;

	room = tow_pool_unmake(pool, !class, pool->large_bytes);
	if (room < pool->large_bytes) {
		tow_pool_restore(pool, !class, room);
		return -ENOSPC;
	}
	ret = tow_pool_make(pool, class, room, &done);
	if (!ret)
		return 0;
	room -= done;
	room += tow_pool_unmake(pool, class, done);
	tow_pool_restore(pool, !class, room);
	return ret;
}

/* How many bytes of a class are missing for so many slabs; U64_MAX: too many. */
static u64 tow_pool_missing(struct tow_pool *pool, enum tow_slab_class class,
			    unsigned int count)
{
	enum tow_slab_class other = !class;
	u64 missing = 0, have, spare;

	spin_lock(&pool->lock);
	have = pool->free_count[class] + pool->dirty_count[class];
	spare = pool->free_count[other] + pool->dirty_count[other];
	spin_unlock(&pool->lock);
	if (have < count)
		missing = (count - have) * tow_pool_slab_bytes(pool, class);
	return missing <= spare * tow_pool_slab_bytes(pool, other) ? missing :
								     U64_MAX;
}

/**
 * tow_pool_exchange - slabs of the other class for some of this one
 * @pool: the pool; the caller is a user of the device
 * @class: small or large
 * @count: how many of it there should be that nobody has
 *
 * Memory goes back to the machine in between.  If the machine needs it more the
 * pool is smaller afterwards, which is logged.
 *
 * Return: 0: there were as many for a moment; -ENOSPC: too few slabs of the
 * other class are nobody's; -ENOMEM: no memory; -ENODEV: the device is going;
 * -EINTR: the caller was killed; -EOPNOTSUPP: see tow_slab_make().
 */
int tow_pool_exchange(struct tow_pool *pool, enum tow_slab_class class,
		      unsigned int count)
{
	u64 missing;
	int ret = 0;

	mutex_lock(&pool->resize);
	missing = tow_pool_missing(pool, class, count);
	if (missing == U64_MAX)
		ret = -ENOSPC;
	while (!ret && missing) {
		ret = tow_slab_interrupted(pool->dev);
		if (!ret)
			ret = tow_pool_convert(pool, class);
		missing -= min(missing, pool->large_bytes);
	}
	mutex_unlock(&pool->resize);
	return ret;
}

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
	const char *reason = error == -ENOMEM ? "the machine has no more to give" :
			     error == -EINTR ? "the writer was killed" :
			     error == -EOPNOTSUPP ? "the device reaches memory by copies only" :
			     error == -EAGAIN ? "the device is being renamed" :
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
 * what nobody has now, and slabs in use when they come back.
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
	if (tow_pool_excess(pool) > 0) {
		flush_work(&pool->work);
		tow_pool_shrink(pool);
		return 0;
	}
	ret = tow_pool_grow(pool, bytes);
	if (ret)
		tow_pool_stop_growing(pool, bytes, ret);
	return ret;
}
