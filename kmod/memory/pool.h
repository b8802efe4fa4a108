/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The pool: a device's slabs, made ahead of need.
 */
#ifndef TOW_POOL_H
#define TOW_POOL_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/workqueue.h>

#include "slab.h"

struct tow_charge;

/**
 * struct tow_pool - a device's slabs
 * @dev: the device
 * @large_bytes: of a large slab: TOW_SLAB_LARGE_BYTES, or what one registration of
 *	the device can hold
 * @lock: protects the lists, the numbers and the slabs' states
 * @all: every slab, through tow_slab.all
 * @free: FREE ones by class, through tow_slab.list
 * @dirty: DIRTY ones by class
 * @draining: DRAINING ones
 * @bytes: of all slabs
 * @used_bytes: of those that are OWNED or DRAINING
 * @high_water_bytes: the most that @used_bytes ever was
 * @want_bytes: what the administrator wants; @bytes is more while shrinking
 *	waits for slabs that are in use
 * @count: slabs by class
 * @free_count: of those, the ones in @free
 * @dirty_count: and in @dirty
 * @draining_count: DRAINING slabs: those in @draining, and those that the work
 *	item has taken from there
 * @stopped: the RDMA device is going: slabs are not made any more, and those
 *	that come back are freed
 * @resize: serialises changes of which slabs there are; taken before @lock
 * @work: makes slabs that come back fit for the next region
 * @retired: slabs that are the pool's no more, whose pages others use; under @resize
 * @look: looks whether they still do
 */
struct tow_pool {
	struct tow_device	*dev;
	u64			large_bytes;
	/* protects everything up to stopped */
	spinlock_t		lock;
	struct list_head	all;
	struct list_head	free[TOW_SLAB_CLASSES];
	struct list_head	dirty[TOW_SLAB_CLASSES];
	struct list_head	draining;
	u64			bytes;
	u64			used_bytes;
	u64			high_water_bytes;
	u64			want_bytes;
	unsigned long		count[TOW_SLAB_CLASSES];
	unsigned long		free_count[TOW_SLAB_CLASSES];
	unsigned long		dirty_count[TOW_SLAB_CLASSES];
	unsigned long		draining_count;
	bool			stopped;
	/* one change of which slabs there are at a time */
	struct mutex		resize;
	struct work_struct	work;
	struct list_head	retired;
	struct delayed_work	look;
};

/**
 * struct tow_pool_numbers - a pool at one moment
 * @bytes: of all slabs
 * @used_bytes: of those that are OWNED or DRAINING
 * @high_water_bytes: the most that @used_bytes ever was
 * @slabs: how many slabs
 * @small: of those, small ones
 * @free: FREE ones
 * @dirty: DIRTY ones
 * @draining: DRAINING ones, those of imports too
 */
struct tow_pool_numbers {
	u64 bytes;
	u64 used_bytes;
	u64 high_water_bytes;
	u64 slabs;
	u64 small;
	u64 free;
	u64 dirty;
	u64 draining;
};

/* pool.c */
void tow_pool_init(struct tow_pool *pool, struct tow_device *dev,
		   u32 registration_pages);
void tow_pool_stop(struct tow_pool *pool);
int tow_pool_take(struct tow_pool *pool, enum tow_slab_class class,
		  unsigned int count, struct tow_slab **slabs);
void tow_pool_give(struct tow_pool *pool, struct tow_slab **slabs,
		   unsigned int count);
bool tow_pool_begin_drain(struct tow_pool *pool, struct tow_slab **slabs,
			  unsigned int count);
int tow_pool_too_small(struct tow_pool *pool, u64 bytes);
void tow_pool_numbers(struct tow_pool *pool, struct tow_pool_numbers *numbers);

/**
 * tow_pool_put_free - a slab was made, or zeroed: it is free
 * @pool: the pool; the caller has the lock
 * @slab: one of its slabs, in no list but that of all
 */
static inline void tow_pool_put_free(struct tow_pool *pool,
				     struct tow_slab *slab)
{
	lockdep_assert_held(&pool->lock);
	slab->state = TOW_SLAB_FREE;
	list_add_tail(&slab->list, &pool->free[slab->class]);
	pool->free_count[slab->class]++;
}

/**
 * tow_pool_forget - a slab is no part of the pool any more
 * @pool: the pool; the caller has the lock
 * @slab: the slab; the caller has seen to the count of its state
 */
static inline void tow_pool_forget(struct tow_pool *pool,
				   struct tow_slab *slab)
{
	lockdep_assert_held(&pool->lock);
	list_del_init(&slab->list);
	list_del_init(&slab->all);
	pool->bytes -= slab->bytes;
	pool->count[slab->class]--;
}

static inline u64 tow_pool_slab_bytes(struct tow_pool *pool,
				      enum tow_slab_class class)
{
	return class == TOW_SLAB_SMALL ? TOW_SLAB_SMALL_BYTES :
					 pool->large_bytes;
}

/* pool_resize.c */
int tow_pool_resize(struct tow_pool *pool, u64 bytes);
void tow_pool_trim(struct tow_pool *pool);
void tow_pool_replace(struct tow_pool *pool, enum tow_slab_class class);
bool tow_pool_reclaim_mrs(struct tow_pool *pool);
int tow_pool_exchange(struct tow_pool *pool, enum tow_slab_class class,
		      unsigned int count);

/* retire.c */
void tow_slab_leave_charged(struct tow_slab *slab, struct tow_charge *charge);
void tow_slab_uncharge(struct tow_slab *slab);
void tow_pool_retire(struct tow_pool *pool, struct tow_slab *slab);
void tow_pool_init_retired(struct tow_pool *pool);
void tow_pool_stop_retired(struct tow_pool *pool);

#endif /* TOW_POOL_H */
