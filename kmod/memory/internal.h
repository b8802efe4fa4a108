/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the files of memory/ share, in the order in which they call each other, the lowest
 * first.
 */
#ifndef TOW_MEMORY_INTERNAL_H
#define TOW_MEMORY_INTERNAL_H

#include <linux/dma-direction.h>
#include <linux/hashtable.h>
#include <linux/scatterlist.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/xarray.h>

#include "core/core.h"
#include "memory/memory.h"

struct device;
struct dma_buf_attachment;
struct file;
struct mm_struct;
struct tow_import_fence;
struct tow_import_ops;

/* ---- the maintenance queue pair ---------------------------------------------- */

/*
 * A fast registration is a work request, so it needs a queue pair in the registration's
 * protection domain that is ready to send.  Each device has one, connected to itself, over
 * which no data goes but two words when the device is tried.  It is made when the device
 * begins, and made again when it breaks: by tow_maint_run(), or by a work item.
 */

/* From an attempt that failed to the next, and from an event to the look at what it did. */
#define TOW_MAINT_PAUSE		(HZ / 10)

/* What a device may turn out not to do, whatever its driver says. */
enum tow_lack {
	TOW_LACKS_ATOMICS,	/* be asked for, or allowed to peers */
	TOW_LACKS_READ_ONLY,	/* register memory that it does not write to */
	TOW_LACKS_LARGE_PAGES,	/* register memory in pages above PAGE_SIZE */
};

/**
 * struct tow_trial - the memory that a device is tried with
 * @mr: its memory region
 * @words: the memory
 * @bytes: its size: of one page of @mr
 * @sg: where the RDMA device sees it
 * @mapped: it does
 */
struct tow_trial {
	struct ib_mr		*mr;
	u64			*words;
	u32			bytes;
	struct scatterlist	sg;
	bool			mapped;
};

/**
 * struct tow_maint - a device's maintenance queue pair
 * @dev: the device
 * @use: held while the queue pair is made, used or destroyed; protects all but @work,
 *	@lacks and @page_bytes
 * @lock: protects @state, @error and @times_ready for those who only look, which are
 *	written with @use held, too
 * @state: see enum tow_maint_state for what leads where
 * @error: what tow_query.maint_error shows
 * @times_ready: how often it became ready
 * @tried_at: when it became READY or FAILED, in jiffies
 * @work: looks whether the queue pair serves, and makes it anew if not
 * @cq: polled directly
 * @qp: what registrations are posted to
 * @gid: RoCE: our address at the time
 * @gid_index: RoCE: where @gid stands in the port's table
 * @lid: InfiniBand: our address at the time
 * @request: the work request that is being executed; @request.broken: its end was the
 *	queue pair's
 * @trial: what trying the device needs, while it goes on
 * @untried: the device did not reach itself: what it can do with keys is not known
 * @lacks: what it turned out not to do: bits by enum tow_lack, never cleared; written
 *	with @use held, read without
 * @page_bytes: the largest page of a memory region that worked; written with @use held,
 *	read without
 */
struct tow_maint {
	struct tow_device	*dev;
	/* see above */
	struct mutex		use;
	/* protects state, error, times_ready */
	spinlock_t		lock;
	enum tow_maint_state	state;
	int			error;
	u32			times_ready;
	unsigned long		tried_at;
	struct delayed_work	work;

	struct ib_cq		*cq;
	struct ib_qp		*qp;
	union ib_gid		gid;
	int			gid_index;
	u32			lid;

	struct {
		struct ib_cqe		cqe;
		bool			outstanding;
		enum ib_wc_status	status;
		bool			broken;
	} request;

	struct tow_trial	trial;
	bool			untried;
	unsigned long		lacks;
	u32			page_bytes;
};

/* Is there something that the device turned out not to do?  False if it was not tried. */
static inline bool tow_maint_lacks(const struct tow_maint *maint,
				   enum tow_lack lack)
{
	return READ_ONCE(maint->lacks) & BIT(lack);
}

/* maint.c */
void tow_maint_init(struct tow_maint *maint, struct tow_device *dev);
void tow_maint_start(struct tow_maint *maint);
void tow_maint_stop(struct tow_maint *maint);
int tow_maint_run(struct tow_maint *maint, struct ib_send_wr *wr);

/* maint_qp.c */
int tow_maint_build(struct tow_maint *maint);
void tow_maint_teardown(struct tow_maint *maint);
int tow_maint_look(struct tow_maint *maint);
int tow_maint_execute(struct tow_maint *maint, struct ib_send_wr *wr);

/* maint_trial.c */
int tow_maint_try(struct tow_maint *maint);
void tow_maint_trial_free(struct tow_maint *maint);
int tow_maint_access(struct tow_maint *maint, enum tow_rights rights);

/* The request that registers what a memory region was mapped to. */
static inline struct ib_reg_wr tow_maint_registration(struct tow_maint *maint,
						      struct ib_mr *mr,
						      enum tow_rights rights,
						      u32 key)
{
	ib_update_fast_reg_key(mr, key);
	return (struct ib_reg_wr) {
		.wr.opcode	= IB_WR_REG_MR,
		.wr.send_flags	= IB_SEND_SIGNALED,
		.mr		= mr,
		.key		= mr->rkey,
		.access		= tow_maint_access(maint, rights),
	};
}

static inline struct ib_send_wr tow_maint_invalidation(const struct ib_mr *mr)
{
	return (struct ib_send_wr) {
		.opcode			= IB_WR_LOCAL_INV,
		.send_flags		= IB_SEND_SIGNALED,
		.ex.invalidate_rkey	= mr->rkey,
	};
}

/* ---- slabs ------------------------------------------------------------------- */

struct tow_slab *tow_slab_alloc(struct tow_device *dev,
				enum tow_slab_class class,
				unsigned int chunk_count, gfp_t gfp);
struct tow_slab *tow_slab_make(struct tow_device *dev,
			       enum tow_slab_class class);
bool tow_slab_needs_copies(struct ib_device *ibdev);
unsigned int tow_slab_reclaim_mrs(struct tow_slab *slab);
void tow_slab_detach(struct tow_slab *slab);
void tow_slab_free(struct tow_slab *slab);
int tow_slab_zero(struct tow_slab *slab);
bool tow_slab_ours_alone(struct tow_slab *slab);
void tow_slab_uncharge(struct tow_slab *slab);
int tow_slab_expose(struct tow_slab *slab, enum tow_rights rights, u32 *key,
		    u64 *address);
int tow_slab_restore(struct tow_slab *slab, u32 key, bool unknown);
int tow_slab_interrupted(struct tow_device *dev);

/* What to do if no memory can be had for slabs, for the log. */
#define TOW_SLAB_NO_MEMORY						\
	"if much is free, it is in pieces of less than 64 KiB: write 1 to /proc/sys/vm/compact_memory, or size the pool at boot"

/* Do peers reach it?  Not under its lock: for one that no region has any more. */
static inline bool tow_slab_exposed(const struct tow_slab *slab)
{
	return slab->exposed[TOW_RIGHTS_READ] || slab->exposed[TOW_RIGHTS_WRITE];
}

/**
 * struct tow_keys - which slab has a key, for when a peer invalidates it
 * @lock: keeps slabs that are found; taken with tow_slab.lock held
 * @slabs: struct tow_slab by its memory regions' numbers
 * @invalidated: keys that are to be made valid again; has a lock of its own
 * @work: does so
 */
struct tow_keys {
	/* keeps what is found in slabs */
	struct mutex		lock;
	struct xarray		slabs;
	struct xarray		invalidated;
	struct delayed_work	work;
};

/* Without the part that each registration changes. */
static inline unsigned long tow_key_index(u32 key)
{
	return key >> 8;
}

/* It has another memory region; the caller holds the slab's lock.  Return: 0 or -ENOMEM. */
static inline int tow_keys_add(struct tow_keys *keys, struct tow_slab *slab,
			       const struct ib_mr *mr)
{
	return xa_err(xa_store_bh(&keys->slabs, tow_key_index(mr->rkey), slab,
				  GFP_KERNEL));
}

/* Undo tow_keys_add(). */
static inline void tow_keys_remove(struct tow_keys *keys, const struct ib_mr *mr)
{
	mutex_lock(&keys->lock);
	xa_erase_bh(&keys->slabs, tow_key_index(mr->rkey));
	mutex_unlock(&keys->lock);
}

/* keys.c */
void tow_keys_init(struct tow_keys *keys);
void tow_keys_stop(struct tow_keys *keys);
void tow_keys_invalidated(struct tow_device *dev, u32 key);

/* ---- the pool ---------------------------------------------------------------- */

/**
 * struct tow_slabs - slabs of one state and class
 * @list: through tow_slab.list
 * @count: how many of @list there are to be taken: see pool.c
 */
struct tow_slabs {
	struct list_head	list;
	unsigned long		count;
};

/**
 * struct tow_pool - a device's slabs
 * @dev: the device
 * @large_bytes: of a large slab: TOW_SLAB_LARGE_BYTES, or what one registration of
 *	the device can hold
 * @lock: protects the lists and the numbers
 * @all: every slab, through tow_slab.all; changed under @resize, too
 * @slabs: those that no region has
 * @bytes: of all slabs
 * @node_bytes: of those, by the NUMA node of their first page
 * @used_bytes: of those that regions have, and HELD ones
 * @high_water_bytes: the most that @used_bytes ever was
 * @want_bytes: what the administrator wants; @bytes is more while shrinking
 *	waits for slabs that are in use
 * @count: slabs by class
 * @stopped: the RDMA device is going: slabs are not made any more, and those
 *	that come back are freed
 * @resize: serialises changes of which slabs there are; taken before @lock
 * @work: makes slabs that come back fit for the next region
 * @waiting: how many tasks wait for @work, which zeroes no slabs meanwhile
 */
struct tow_pool {
	struct tow_device	*dev;
	u64			large_bytes;
	/* protects everything up to stopped */
	spinlock_t		lock;
	struct list_head	all;
	struct tow_slabs	slabs[TOW_SLAB_STATES][TOW_SLAB_CLASSES];
	u64			bytes;
	u64			node_bytes[MAX_NUMNODES];
	u64			used_bytes;
	u64			high_water_bytes;
	u64			want_bytes;
	unsigned long		count[TOW_SLAB_CLASSES];
	bool			stopped;
	/* one change of which slabs there are at a time */
	struct mutex		resize;
	struct delayed_work	work;
	atomic_t		waiting;
};

/* pool.c */
void tow_pool_init(struct tow_pool *pool, struct tow_device *dev,
		   u32 registration_pages);
void tow_pool_stop(struct tow_pool *pool);
int tow_pool_take(struct tow_pool *pool, enum tow_slab_class class,
		  unsigned int count, struct tow_slab **slabs);
void tow_pool_give(struct tow_pool *pool, struct tow_slab **slabs,
		   unsigned int count, struct tow_charge *charge);
void tow_pool_look_again(struct tow_pool *pool);
int tow_pool_too_small(struct tow_pool *pool, u64 bytes);
int tow_memory_charge(struct tow_charge *charge, struct tow_client *client,
		      const u64 amount[TOW_RESOURCES]);

/* The slab is the pool's now, or not any more; caller holds the lock. */
static inline void tow_pool_count(struct tow_pool *pool,
				  const struct tow_slab *slab, s64 bytes)
{
	pool->bytes += bytes;
	pool->node_bytes[page_to_nid(slab->chunks[0].page)] += bytes;
}

/**
 * tow_pool_put - no region has a slab
 * @pool: the pool; caller holds the lock
 * @slab: one of its slabs, in no list but that of all
 * @state: how it is
 */
static inline void tow_pool_put(struct tow_pool *pool, struct tow_slab *slab,
				enum tow_slab_state state)
{
	struct tow_slabs *slabs = &pool->slabs[state][slab->class];

	lockdep_assert_held(&pool->lock);
	list_add_tail(&slab->list, &slabs->list);
	slabs->count++;
}

/* Caller holds the lock.  The slab that was put there first, or NULL: there is none. */
static inline struct tow_slab *tow_pool_pick(struct tow_pool *pool,
					     enum tow_slab_state state,
					     enum tow_slab_class class)
{
	struct tow_slabs *slabs = &pool->slabs[state][class];
	struct tow_slab *slab;

	lockdep_assert_held(&pool->lock);
	if (!slabs->count)
		return NULL;
	slabs->count--;
	slab = list_first_entry(&slabs->list, struct tow_slab, list);
	list_del_init(&slab->list);
	return slab;
}

/*
 * Have HELD slabs looked at, and none zeroed until tow_pool_settled(): whatever nobody
 * has can be taken meanwhile.  The caller is a user of the device.
 */
static inline void tow_pool_settle(struct tow_pool *pool)
{
	atomic_inc(&pool->waiting);
	/* If it runs just now it may have looked before. */
	mod_delayed_work(tow_wq, &pool->work, 0);
	flush_delayed_work(&pool->work);
}

static inline void tow_pool_settled(struct tow_pool *pool)
{
	atomic_dec(&pool->waiting);
	mod_delayed_work(tow_wq, &pool->work, 0);
}

static inline u64 tow_pool_slab_bytes(struct tow_pool *pool,
				      enum tow_slab_class class)
{
	return class == TOW_SLAB_SMALL ? TOW_SLAB_SMALL_BYTES :
					 pool->large_bytes;
}

/* pool_resize.c */
void tow_pool_unmake(struct tow_pool *pool, struct tow_slab *slab);
void tow_pool_lose(struct tow_pool *pool, struct tow_slab *slab);
void tow_pool_trim(struct tow_pool *pool, bool small);
int tow_pool_make_small(struct tow_pool *pool);

/* ---- regions ------------------------------------------------------------------ */

#define TOW_REGIONS_HASH_BITS	8

/**
 * struct tow_regions - a device's regions
 * @lock: protects @named, @stopped and what is marked so in struct tow_region
 * @named: the persistent ones, by user, job and name
 * @linger_max_s: what the administrator allows
 * @stopped: the device is going: nothing lingers any more
 * @by_id: every region, without a reference; has a lock of its own
 * @last_id: of the youngest; under the lock of @by_id
 */
struct tow_regions {
	/* protects named, linger_max_s, stopped and parts of tow_region */
	struct mutex		lock;
	DECLARE_HASHTABLE(named, TOW_REGIONS_HASH_BITS);
	u32			linger_max_s;
	bool			stopped;
	struct xarray		by_id;
	u64			last_id;
};

/**
 * struct tow_region_handle - a client's way to a region
 * @handle: in the client's table
 * @region: with a reference
 * @flags: TOW_REGION_READONLY or 0
 * @owner: the client made the region, or took it over
 * @charge: if it did not: one region
 */
struct tow_region_handle {
	struct tow_handle	handle;
	struct tow_region	*region;
	u32			flags;
	bool			owner;
	struct tow_charge	charge;
};

/* region.c */
void tow_regions_init(struct tow_regions *regions);
void tow_regions_stop(struct tow_regions *regions);
struct tow_region *tow_region_alloc(struct tow_client *client,
				    unsigned int slab_count,
				    const char name[TOW_REGION_NAME_MAX]);
int tow_region_publish(struct tow_region *region);
struct tow_region *tow_region_new(struct tow_client *client, u64 bytes,
				  u32 flags, u32 linger_s,
				  const char name[TOW_REGION_NAME_MAX]);
void tow_region_disown(struct tow_region *region);
struct tow_region *tow_region_take_over(struct tow_client *client,
					const char name[TOW_REGION_NAME_MAX]);
void tow_region_give_up(struct tow_region *region, struct tow_client *client);
void tow_region_taken(struct tow_region *region, struct tow_client *client,
		      u32 linger_s);
int tow_region_end(struct tow_region *region, s32 *pid);
void tow_region_describe(struct tow_region *region,
			 struct tow_region_info *info);
struct tow_region *tow_region_next(struct tow_regions *regions, u64 *cursor);
bool tow_region_is_of(struct tow_region *region, struct tow_client *client);

/* dmabuf.c */
struct dma_buf *tow_region_make_dmabuf(struct tow_region *region, bool readonly);
struct tow_region *tow_region_from_dmabuf(struct dma_buf *dmabuf,
					  bool *readonly);

/* ioctl.c */

/* ---- imports ------------------------------------------------------------------ */

/**
 * struct tow_imports - a device's imports
 * @dev: the device
 * @lock: protects @list and @leaving
 * @list: those that are on the RDMA device
 * @leaving: those that are being taken off
 * @invalid: those that were taken back, until @quiesce takes them from here; under @lock
 * @quiesce: ends their use; holds the device while it is queued
 * @ending: those whose end has begun
 * @wait: for one that has been taken off, or has ended
 */
struct tow_imports {
	struct tow_device	*dev;
	/* protects list, leaving, invalid */
	struct mutex		lock;
	struct list_head	list;
	unsigned int		leaving;
	struct list_head	invalid;
	struct work_struct	quiesce;
	atomic_t		ending;
	wait_queue_head_t	wait;
};

/* An exporter that is slow to take back what it gave does not keep others longer. */
#define TOW_IMPORT_PATIENCE	HZ

/*
 * Have what is ending given back, or wait TOW_IMPORT_PATIENCE; a signal that kills ends
 * the wait, too.
 */
static inline void tow_imports_wait(struct tow_imports *imports)
{
	wait_event_killable_timeout(imports->wait,
				    !atomic_read(&imports->ending),
				    TOW_IMPORT_PATIENCE);
}

/**
 * struct tow_import - what has to be given back
 * @backing: what its region and its slabs know of it
 * @ops: its kind's
 * @dev: the device, with a reference
 * @link: in tow_imports.list while something of it is on the RDMA device, unless that
 *	is being taken off; under the lock of that
 * @off: nothing of it is on the RDMA device
 * @charge: what it is charged
 * @holders: its region, or who makes it, and @leave while that is due; at 0 it goes
 * @end: gives it back
 * @readonly: the device does not write to it
 * @dma_device: what it is mapped for, with a reference; NULL: a software device
 * @max_segment: bytes of one segment that the RDMA device takes
 * @bytes: its size
 * @slab_bytes: of each slab but the last
 * @table: what the RDMA device sees; NULL: it is not mapped
 * @slab_count: how many slabs
 * @slabs: in the order of the memory
 *
 * @mm: user memory: in whose pinned_vm it counts, with a reference to the structure
 * @pages: pinned
 *
 * @dmabuf: dma-buf: it, with a reference; NULL: user memory
 * @offset: where the import begins in it
 * @attachment: ours to it
 * @pinned: its exporter was asked not to move it.  This, @table and @backing.invalid are
 *	under the lock of its reservation object
 * @region_id: the number of its region; 0: there is none yet.  Without the lock
 * @fence: says when nobody reaches it any more; of its reservation object from then on
 * @invalidated: in tow_imports.invalid until that is seen to; under the lock of that
 * @deadline: then, in jiffies: queue pairs on which it is in use still are destroyed
 * @busy: the number of the last look that found it in use on a queue pair
 * @leave: then takes it off the RDMA device
 */
struct tow_import {
	struct tow_backing		backing;
	const struct tow_import_ops	*ops;
	struct tow_device		*dev;
	struct list_head		link;
	bool				off;
	struct tow_charge		charge;
	refcount_t			holders;
	struct work_struct		end;
	bool				readonly;
	struct device			*dma_device;
	unsigned int			max_segment;
	u64				bytes;
	u64				slab_bytes;
	struct sg_table			*table;
	unsigned int			slab_count;
	struct tow_slab			**slabs;

	struct mm_struct		*mm;
	struct sg_append_table		pages;

	struct dma_buf			*dmabuf;
	u64				offset;
	struct dma_buf_attachment	*attachment;
	bool				pinned;
	u64				region_id;
	struct tow_import_fence		*fence;
	struct list_head		invalidated;
	unsigned long			deadline;
	unsigned int			busy;
	struct work_struct		leave;
};

/**
 * struct tow_import_ops - a kind of import
 * @backing: how its region, and the pool, deal with it
 * @map: the RDMA device is to reach it, by @table; called by users of the device
 * @unmap: the RDMA device does not reach it any more; nothing of it may be mapped yet
 * @put: the rest is given back; it is off the RDMA device, or has not come so far
 */
struct tow_import_ops {
	struct tow_backing_ops	backing;
	int			(*map)(struct tow_import *import);
	void			(*unmap)(struct tow_import *import);
	void			(*put)(struct tow_import *import);
};

static inline enum dma_data_direction
tow_import_direction(const struct tow_import *import)
{
	return import->readonly ? DMA_TO_DEVICE : DMA_BIDIRECTIONAL;
}

/* import.c */
void tow_imports_init(struct tow_imports *imports, struct tow_device *dev,
		      work_func_t quiesce);
void tow_imports_stop(struct tow_imports *imports);
void tow_import_release(struct tow_region *region);
struct tow_import *tow_import_new(struct tow_device *dev, u64 bytes,
				  bool readonly,
				  const struct tow_import_ops *ops);
int tow_import_charge(struct tow_import *import, struct tow_client *client);
int tow_import_map(struct tow_import *import);
void tow_import_put(struct tow_import *import);
bool tow_import_claim(struct tow_import *import);
void tow_import_take_off(struct tow_import *import);
struct tow_region *tow_import_region(struct tow_client *client,
				     struct tow_import *import, int ret,
				     u64 skip, u64 bytes);

/* import_dmabuf.c */
void tow_imports_quiesce(struct work_struct *work);

/* import_user.c */
struct tow_region *tow_import_user(struct tow_client *client, u64 address,
				   u64 bytes, bool readonly);

/* import_dmabuf.c */
struct tow_region *tow_import_dmabuf(struct tow_client *client,
				     struct dma_buf *dmabuf, u64 offset,
				     u64 bytes, bool readonly);

/**
 * struct tow_memory - what a device has of memory
 * @ops: those that use it
 * @maint: the maintenance queue pair
 * @keys: which slab has a key
 * @pool: slabs
 * @regions: regions
 * @imports: imported memory
 */
struct tow_memory {
	const struct tow_memory_ops	*ops;
	struct tow_maint		maint;
	struct tow_keys			keys;
	struct tow_pool			pool;
	struct tow_regions		regions;
	struct tow_imports		imports;
};

#endif /* TOW_MEMORY_INTERNAL_H */
