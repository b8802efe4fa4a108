/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory that the RDMA device reaches.
 *
 * A region is what a program has: slabs of the pool, or imported memory.  A slab is pages
 * that the device reaches under at most two registrations, one for peers that only read
 * and one for those that write.  The pool's slabs are made when the administrator sizes
 * the pool, and go from region to region: a slab goes to nobody else before no peer can have
 * an operation on it in flight, its registrations are invalid (both are the business of the
 * exports, which hold the region until then), nobody on this machine uses its pages, and it
 * is zeroed, in this order (pool.c).  Imported memory is a process's own pages, or another
 * driver's dma-buf, which that may take back at any moment.
 *
 * Who holds what: a client's handle, a descriptor and a mapping hold the region; the region
 * holds its slabs; an export holds the region until it has no grants and its keys are
 * invalid; a grant holds the export until the peer has acknowledged the revoke or its queue
 * pairs are destroyed.  Documentation/design/memory.md has the whole of it.
 *
 * Locks, outermost first: tow_regions.lock; tow_pool.resize; tow_slab.lock; tow_keys.lock;
 * tow_maint.use; tow_pool.lock.  tow_imports.lock is taken with none of them, and nothing
 * waits for a dma-buf's exporter with any.
 *
 * What memory wants of those above it is struct tow_memory_ops.  To begin reading: ioctl.c
 * (what programs ask for), region.c, pool.c, slab.c; then maint.c for how registrations get
 * to the device, and import.c.
 */
#ifndef TOW_MEMORY_H
#define TOW_MEMORY_H

#include <linux/atomic.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/sizes.h>
#include <linux/types.h>
#include <linux/uidgid.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>

#include "core/core.h"
#include "slab_size.h"
#include "uapi/towline.h"

struct dma_buf;
struct pid;
struct scatterlist;
struct tow_client;
struct tow_device;
struct tow_region;
struct tow_slab;
struct user_namespace;

/* ---- slabs ----------------------------------------------------------------- */

/* The classes of the pool, and what is not of the pool. */
enum tow_slab_class {
	TOW_SLAB_SMALL,
	TOW_SLAB_LARGE,
	TOW_SLAB_CLASSES,
	TOW_SLAB_IMPORTED = TOW_SLAB_CLASSES
};

/**
 * enum tow_slab_state - how a slab of the pool is that no region has
 * @TOW_SLAB_FREE: zeroed
 * @TOW_SLAB_DIRTY: not zeroed yet
 * @TOW_SLAB_HELD: its pages are in use elsewhere; it is charged to its last owner
 * @TOW_SLAB_STATES: how many there are
 *
 * A region takes FREE ones, and DIRTY ones, which it zeroes.  They come back DIRTY or HELD.
 * HELD becomes DIRTY, and DIRTY becomes FREE.
 */
enum tow_slab_state {
	TOW_SLAB_FREE,
	TOW_SLAB_DIRTY,
	TOW_SLAB_HELD,
	TOW_SLAB_STATES
};

/* Under what rights peers may be let in: one registration for each. */
enum tow_rights {
	TOW_RIGHTS_READ,	/* reads */
	TOW_RIGHTS_WRITE,	/* reads, writes and atomics */
	TOW_RIGHTS
};

/**
 * struct tow_backing_ops - what is done with memory that is not the pool's
 * @release: its region has ended
 * @page: the page of a region's slab @index at @offset, in bytes; NULL: there are none
 */
struct tow_backing_ops {
	void		(*release)(struct tow_region *region);
	struct page	*(*page)(const struct tow_region *region,
				 unsigned int index, u64 offset);
};

/**
 * struct tow_backing - where memory is from that is not the pool's
 * @ops: what is done with it
 * @invalid: it is being taken back, or has been; read without a lock
 * @exports: of its region, that are not finished
 */
struct tow_backing {
	const struct tow_backing_ops	*ops;
	bool				invalid;
	atomic_t			exports;
};

static inline bool tow_backing_invalid(const struct tow_backing *backing)
{
	return READ_ONCE(backing->invalid);
}

/**
 * struct tow_chunk - physically contiguous memory
 * @page: its first page; NULL: it is imported
 * @dma: where the RDMA device sees it
 * @at: where it begins in its slab, in bytes
 * @bytes: its size
 */
struct tow_chunk {
	struct page	*page;
	dma_addr_t	dma;
	u64		at;
	u64		bytes;
};

/**
 * struct tow_slab - memory under one registration
 * @list: in the pool's list of its state; empty: a region has it.  Under the pool's lock
 * @all: in the pool's list of all slabs; under the pool's lock
 * @dev: the device; whoever has the slab keeps its structure
 * @class: the pool's class, or that it is imported
 * @backing: where it is from; NULL: the pool
 * @payer: HELD: the account that is charged for it
 * @readonly: an import that neither peers nor the device may write to
 * @bytes: its size
 * @lock: protects @mr, @page_bytes and what is registered
 * @mr: one memory region for each kind of rights, from the first exposure on, until
 *	it is wanted elsewhere
 * @page_bytes: for each of them, the size of its pages
 * @exposed: how many exports of each kind there are
 * @pages: of an import of a process's pages: the segment that the slab begins in
 * @pages_skip: bytes of @pages that are before the slab
 * @mapped: how many of its chunks, from the first on, we mapped for DMA
 * @chunk_count: how many chunks
 * @chunks: in the order of the slab's bytes
 */
struct tow_slab {
	struct list_head	list;
	struct list_head	all;
	struct tow_device	*dev;
	enum tow_slab_class	class;
	struct tow_backing	*backing;
	struct tow_account	*payer;
	bool			readonly;
	u64			bytes;
	/* protects mr, page_bytes, exposed */
	struct mutex		lock;
	struct ib_mr		*mr[TOW_RIGHTS];
	u32			page_bytes[TOW_RIGHTS];
	unsigned int		exposed[TOW_RIGHTS];
	struct scatterlist	*pages;
	u64			pages_skip;
	unsigned int		mapped;
	unsigned int		chunk_count;
	struct tow_chunk	chunks[];
};

/**
 * tow_slab_chunk - the chunk at an offset
 * @slab: the slab
 * @offset: in bytes, below the slab's size
 *
 * Return: the chunk.
 */
static inline const struct tow_chunk *tow_slab_chunk(const struct tow_slab *slab,
						     u64 offset)
{
	unsigned int low = 0, high = slab->chunk_count, middle;

	while (high - low > 1) {
		middle = low + (high - low) / 2;
		if (slab->chunks[middle].at <= offset)
			low = middle;
		else
			high = middle;
	}
	return &slab->chunks[low];
}

struct page *tow_slab_page(struct tow_slab *slab, u64 offset);
int towk_slab_expose(struct tow_slab *slab, enum tow_rights rights, u32 *key,
		     u64 *address);
void towk_slab_hide(struct tow_slab *slab, enum tow_rights rights);

/* ---- regions --------------------------------------------------------------- */

/**
 * struct tow_region - memory of the pool, or imported
 * @refs: held by each handle, each descriptor (hence each mapping), and by the
 *	named table while the region lingers
 * @dev: the device, with a reference
 * @id: its number on the device
 * @bytes: as asked for
 * @map_bytes: what can be mapped
 * @flags: those of enum tow_region_flag that never change
 * @fds: descriptors that exist
 * @charge: what its client is charged
 * @backing: where its memory is from; NULL: the pool
 * @name: its name
 * @kuid: whose it is, and the name
 * @job_id: in which job
 * @owner: the client that has it; NULL: ended.  This and the following are
 *	under tow_regions.lock
 * @key: the user that people are told it is charged to
 * @user_ns: of its client, with a reference
 * @pid: of its client, with a reference
 * @cgroup_id: of its client
 * @hashed: in tow_regions.named
 * @lingering: it is there only for somebody to take it over; whoever clears
 *	this takes over the table's reference
 * @linger_s: seconds that it may be so at most, unless linger_max_s is less
 * @linger_begun: since when it is so, in jiffies
 * @linger_work: ends it when the time is over
 * @rcu: frees it
 * @skip: bytes of the first slab that come before the region: an import begins
 *	where the program said, not where its page does
 * @slab_bytes: of each slab, except that an import's last one may be smaller
 * @slab_count: how many slabs
 * @slabs: in the order of the region's bytes
 */
struct tow_region {
	struct kref		refs;
	struct tow_device	*dev;
	u64			id;
	u64			bytes;
	u64			map_bytes;
	u32			flags;
	atomic_t		fds;
	struct tow_charge	charge;
	struct tow_backing	*backing;
	char			name[TOW_REGION_NAME_MAX];
	kuid_t			kuid;
	u8			job_id[TOW_JOB_ID_BYTES];

	struct tow_client	*owner;
	kuid_t			key;
	struct user_namespace	*user_ns;
	struct pid		*pid;
	u64			cgroup_id;
	struct hlist_node	hashed;
	bool			lingering;
	u32			linger_s;
	unsigned long		linger_begun;
	struct delayed_work	linger_work;

	struct rcu_head		rcu;

	u64			skip;
	u64			slab_bytes;
	unsigned int		slab_count;
	struct tow_slab		*slabs[];
};

/**
 * struct tow_reach - bytes of a range that one work request can name
 * @start: where they begin in the range; of a region: maybe before 0, modulo 2^64
 * @bytes: how many
 * @address: of the first one, as work requests give it
 * @key: of a remote range: the remote key
 */
struct tow_reach {
	u64	start;
	u64	bytes;
	u64	address;
	u32	key;
};

/* Are they all within reach? */
static inline bool tow_reach_has(const struct tow_reach *reach, u64 offset,
				 u64 bytes)
{
	offset -= reach->start;
	return bytes <= reach->bytes && offset <= reach->bytes - bytes;
}

/* Return: the address of a byte that is within reach. */
static inline u64 tow_reach_address(const struct tow_reach *reach, u64 offset)
{
	return reach->address + (offset - reach->start);
}

/* Return: how many bytes are within reach from @offset on, which is. */
static inline u64 tow_reach_left(const struct tow_reach *reach, u64 offset)
{
	return reach->bytes - (offset - reach->start);
}

/**
 * tow_region_reach - which bytes of a region does the RDMA device see in one piece?
 * @region: the region; the device is not gone
 * @offset: of one of them, in the region
 * @reach: becomes all of them
 */
static inline void tow_region_reach(const struct tow_region *region, u64 offset,
				    struct tow_reach *reach)
{
	const struct tow_chunk *chunk;
	u64 rest;
	const struct tow_slab *slab =
		region->slabs[div64_u64_rem(region->skip + offset,
					    region->slab_bytes, &rest)];

	chunk = tow_slab_chunk(slab, rest);
	reach->start = offset - (rest - chunk->at);
	reach->bytes = chunk->bytes;
	reach->address = chunk->dma;
}

/**
 * tow_region_address - where does the kernel see a region's byte?
 * @region: the region, of the pool; the device's memory is there
 * @offset: of the byte in the region
 * @bytes: where to: how many from there on it sees one after the other
 *
 * Return: the byte's address.
 */
static inline void *tow_region_address(const struct tow_region *region, u64 offset,
				       u64 *bytes)
{
	const struct tow_chunk *chunk;
	const struct tow_slab *slab;
	u64 rest;

	slab = region->slabs[div64_u64_rem(region->skip + offset,
					   region->slab_bytes, &rest)];
	chunk = tow_slab_chunk(slab, rest);
	rest -= chunk->at;
	*bytes = chunk->bytes - rest;
	return page_address(chunk->page) + rest;
}

/**
 * tow_region_invalid - has a region's memory been taken back?
 * @region: the region
 *
 * Return: true: it is an import's, whose exporter has asked for it.
 */
static inline bool tow_region_invalid(const struct tow_region *region)
{
	return unlikely(region->backing) &&
	       tow_backing_invalid(region->backing);
}

/* The page of a region's slab @index at @offset, in bytes; not of another device's. */
static inline struct page *tow_region_page(const struct tow_region *region,
					   unsigned int index, u64 offset)
{
	return region->backing ?
	       region->backing->ops->page(region, index, offset) :
	       tow_slab_page(region->slabs[index], offset);
}

int tow_region_read(const struct tow_region *region, u64 offset, void *to,
		    size_t bytes);
void tow_region_release(struct kref *refs);

/* The caller has a reference. */
static inline void tow_region_get_many(struct tow_region *region, u32 count)
{
	refcount_add(count, &region->refs.refcount);
}

static inline void tow_region_get(struct tow_region *region)
{
	kref_get(&region->refs);
}

/* The region may be gone afterwards; may sleep. */
static inline void tow_region_put_many(struct tow_region *region, u32 count)
{
	if (refcount_sub_and_test(count, &region->refs.refcount))
		tow_region_release(&region->refs);
}

static inline void tow_region_put(struct tow_region *region)
{
	tow_region_put_many(region, 1);
}

extern const struct tow_handle_ops tow_region_handle_ops;
struct tow_region *tow_client_get_region(struct tow_client *client, u64 number,
					 u32 *flags);
struct tow_region *towk_region_get(int fd);
void towk_region_put(struct tow_region *region);

/* ioctl.c: calls, for the table in chardev.c */
#define TOW_REGION_INFO_PUBLISHED	168

extern const struct tow_listing tow_region_listing;
int tow_call_region_create(struct tow_client *client, void *data,
			   const struct tow_answer *answer);
int tow_call_region_destroy(struct tow_client *client, void *data,
			    const struct tow_answer *answer);
int tow_call_region_query(struct tow_client *client, void *data,
			  const struct tow_answer *answer);
int tow_call_region_end(struct tow_client *client, void *data,
			const struct tow_answer *answer);
int tow_call_region_fd(struct tow_client *client, void *data,
		       const struct tow_answer *answer);
int tow_call_region_from_fd(struct tow_client *client, void *data,
			    const struct tow_answer *answer);
int tow_call_region_attach(struct tow_client *client, void *data,
			   const struct tow_answer *answer);
int tow_call_region_import_user(struct tow_client *client, void *data,
				const struct tow_answer *answer);
int tow_call_region_import_dmabuf(struct tow_client *client, void *data,
				  const struct tow_answer *answer);

/* ---- a device's memory ------------------------------------------------------ */

/**
 * struct tow_memory_ops - what those do for memory that use it
 * @end_exports: begin to end all exports of the region with a number, those that are
 *	being made, too; its memory was taken back
 * @look: tell tow_backing_found() of everything that was taken back and is in use on a
 *	queue pair; of the queue pairs of what takes too long nothing is left afterwards
 * @in_use: may what a client has begun still reach a region, or peers by what it has
 *	exported of it?  The client, which @account is of, has ended
 * @revoke_timeout_ms: how long peers have to let go of what is revoked
 */
struct tow_memory_ops {
	void		(*end_exports)(struct tow_device *dev, u64 region_id);
	void		(*look)(struct tow_device *dev, unsigned int look);
	bool		(*in_use)(const struct tow_region *region,
				  const struct tow_account *account);
	unsigned int	(*revoke_timeout_ms)(struct tow_device *dev);
};

/**
 * struct tow_pool_numbers - a pool at one moment
 * @large_bytes: of a large slab
 * @bytes: of all slabs
 * @used_bytes: of those that regions have, and HELD ones
 * @held_bytes: of HELD ones
 * @high_water_bytes: the most that @used_bytes ever was
 * @slabs: how many slabs
 * @small: of those, small ones
 * @free: FREE ones
 * @dirty: DIRTY ones
 * @held: HELD ones
 */
struct tow_pool_numbers {
	u64 large_bytes;
	u64 bytes;
	u64 used_bytes;
	u64 held_bytes;
	u64 high_water_bytes;
	u64 slabs;
	u64 small;
	u64 free;
	u64 dirty;
	u64 held;
};

int tow_memory_init(struct tow_device *dev, const struct tow_memory_ops *ops);
void tow_memory_start(struct tow_device *dev);
void tow_memory_stop(struct tow_device *dev);
void tow_memory_cleanup(struct tow_device *dev);
void tow_memory_changed(struct tow_device *dev);
void tow_memory_describe(struct tow_device *dev, struct tow_query *query);
u32 *tow_memory_linger_max_s(struct tow_device *dev);
int tow_memory_set_linger_max(struct tow_device *dev, u32 seconds);
bool tow_device_atomics(struct tow_device *dev);
bool tow_memory_lacks_atomics(struct tow_device *dev);
void tow_pool_numbers(struct tow_device *dev, struct tow_pool_numbers *numbers);
u64 tow_pool_node_bytes(struct tow_device *dev, int node);
int tow_pool_resize(struct tow_device *dev, u64 bytes);
bool tow_backing_found(struct tow_backing *backing, unsigned int look);

#endif /* TOW_MEMORY_H */
