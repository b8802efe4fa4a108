/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A slab: memory that the RDMA device reaches under one registration.
 *
 * A slab of the pool consists of chunks from the page allocator; a slab of
 * imported memory, of somebody else's pages.  Both are registered alike.
 */
#ifndef TOW_SLAB_H
#define TOW_SLAB_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/sizes.h>
#include <linux/types.h>
#include <rdma/ib_verbs.h>

#include "slab_size.h"

struct tow_device;
struct tow_backing;

/* The classes of the pool, and what is not of the pool. */
enum tow_slab_class {
	TOW_SLAB_SMALL,
	TOW_SLAB_LARGE,
	TOW_SLAB_CLASSES,
	TOW_SLAB_IMPORTED = TOW_SLAB_CLASSES
};

/**
 * enum tow_slab_state - where a slab of the pool is
 * @TOW_SLAB_FREE: zeroed, nobody's
 * @TOW_SLAB_OWNED: a region's
 * @TOW_SLAB_DRAINING: its region has ended; peers may still reach it, its
 *	registrations may still be valid
 * @TOW_SLAB_DIRTY: nobody reaches it any more; not zeroed yet
 * @TOW_SLAB_RETIRED: its pages are in use elsewhere: on its way out of the pool
 *
 * FREE to OWNED; OWNED to DRAINING; DRAINING to DIRTY or RETIRED; DIRTY to FREE,
 * or to OWNED if it is zeroed on the way.
 */
enum tow_slab_state {
	TOW_SLAB_FREE,
	TOW_SLAB_OWNED,
	TOW_SLAB_DRAINING,
	TOW_SLAB_DIRTY,
	TOW_SLAB_RETIRED
};

/* Under what rights peers may be let in: one registration for each. */
enum tow_rights {
	TOW_RIGHTS_READ,	/* reads */
	TOW_RIGHTS_WRITE,	/* reads, writes and atomics */
	TOW_RIGHTS
};

struct tow_region;
struct tow_slab;

/**
 * struct tow_backing_ops - what is done with memory that is not the pool's
 * @release: its region has ended
 * @drained: no peer can reach a slab of it any more; the slab is hidden, and may be gone
 *	on return
 * @page: the page of a region's slab @index at @offset, in bytes; NULL: there are none
 */
struct tow_backing_ops {
	void		(*release)(struct tow_region *region);
	void		(*drained)(struct tow_slab *slab);
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
 * @list: in the pool's list of its state, if there is one; under the pool's lock
 * @all: in the pool's list of all slabs; under the pool's lock
 * @dev: the device; whoever has the slab keeps its structure
 * @class: the pool's class, or that it is imported
 * @backing: where it is from; NULL: the pool
 * @payer: no region has it, but others' references to its pages, who is charged for
 *	it until they have gone; else NULL.  Of whoever takes it on from the region
 * @readonly: an import that neither peers nor the device may write to
 * @state: under the pool's lock
 * @remote: peers that may have operations on it in flight, plus one while it is
 *	OWNED; when it drops to 0 the slab may be invalidated
 * @bytes: its size
 * @lock: protects @mr, @page_bytes and what is registered
 * @mr: one memory region for each kind of rights, from the first exposure on, until
 *	it is wanted elsewhere
 * @page_bytes: for each of them, the size of its pages
 * @exposed: how many exports of each kind there are
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
	enum tow_slab_state	state;
	refcount_t		remote;
	u64			bytes;
	/* protects mr, page_bytes, exposed */
	struct mutex		lock;
	struct ib_mr		*mr[TOW_RIGHTS];
	u32			page_bytes[TOW_RIGHTS];
	unsigned int		exposed[TOW_RIGHTS];
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

struct tow_slab *tow_slab_alloc(struct tow_device *dev,
				enum tow_slab_class class,
				unsigned int chunk_count, gfp_t gfp);
struct tow_slab *tow_slab_make(struct tow_device *dev,
			       enum tow_slab_class class);
bool tow_slab_needs_copies(struct ib_device *ibdev);
unsigned int tow_slab_reclaim_mrs(struct tow_slab *slab);
void tow_slab_detach(struct tow_slab *slab);
void tow_slab_free(struct tow_slab *slab);
void tow_slab_zero(struct tow_slab *slab);
bool tow_slab_ours_alone(struct tow_slab *slab);
int tow_slab_expose(struct tow_slab *slab, enum tow_rights rights, u32 *key,
		    u64 *address);
void tow_slab_hide_all(struct tow_slab *slab);
struct page *tow_slab_page(struct tow_slab *slab, u64 offset);
int tow_slab_go_on(struct tow_device *dev);

bool towk_slab_hold(struct tow_slab *slab);
void towk_slab_drop(struct tow_slab *slab);
int towk_slab_expose(struct tow_slab *slab, enum tow_rights rights, u32 *key,
		     u64 *address);
void towk_slab_hide(struct tow_slab *slab, enum tow_rights rights);

#endif /* TOW_SLAB_H */
