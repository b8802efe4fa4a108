/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Imported memory: what its three files share.
 *
 *	import.c	slabs of somebody else's memory, on the RDMA device and off it
 *	import_user.c	a process's own pages
 *	import_dmabuf.c	another driver's dma-buf, which it may take back
 */
#ifndef TOW_IMPORT_H
#define TOW_IMPORT_H

#include <linux/dma-direction.h>
#include <linux/list.h>
#include <linux/refcount.h>
#include <linux/scatterlist.h>
#include <linux/types.h>
#include <linux/workqueue.h>

#include "limits.h"
#include "slab.h"

struct device;
struct dma_buf;
struct dma_buf_attachment;
struct mm_struct;
struct tow_client;
struct tow_device;
struct tow_import_fence;

/**
 * struct tow_import_part - a process's pages that become one slab
 * @pages: the pages, pinned
 * @mapped: for the RDMA device
 */
struct tow_import_part {
	struct sg_append_table	pages;
	bool			mapped;
};

/**
 * struct tow_import - what has to be given back
 * @backing: what its region and its slabs know of it
 * @ops: its kind's
 * @dev: the device, with a reference
 * @link: in tow_imports.list while something of it is on the RDMA device, unless that
 *	is being taken off; under the lock of that
 * @off: nothing of it is on the RDMA device
 * @charge: what it is charged
 * @draining: slabs that peers may still reach
 * @holders: its region, or who makes it, and @leave while that is due; at 0 it goes
 * @counted: in tow_imports.ending
 * @end: gives it back
 * @readonly: the device does not write to it
 * @slab_count: how many slabs
 * @slabs: in the order of the memory
 *
 * @mm: user memory: whose, with a reference to the structure
 * @accounted: pages that count in the process's pinned_vm
 * @part_count: how many parts there is room for
 * @parts: one for each slab
 *
 * @dmabuf: dma-buf: it, with a reference; NULL: user memory
 * @dma_device: what it is mapped for, with a reference
 * @attachment: ours to it
 * @table: where its memory is; NULL: it is not mapped.  This, @pinned and
 *	@backing.invalid are under the lock of its reservation object
 * @pinned: its exporter was asked not to move it
 * @region_id: the number of its region; 0: there is none yet.  Without the lock
 * @fence: says when nobody reaches it any more; of its reservation object from then on
 * @invalidated: in tow_imports.invalid until that is seen to; under the lock of that
 * @deadline: then, in jiffies: queue pairs on which it is in use still are destroyed
 * @busy: the number of the last look that found it in use on a queue pair
 * @claimed: then: by who saw to it
 * @leave: then takes it off the RDMA device
 */
struct tow_import {
	struct tow_backing		backing;
	const struct tow_import_ops	*ops;
	struct tow_device		*dev;
	struct list_head		link;
	bool				off;
	struct tow_charge		charge;
	refcount_t			draining;
	refcount_t			holders;
	bool				counted;
	struct work_struct		end;
	bool				readonly;
	unsigned int			slab_count;
	struct tow_slab			**slabs;

	struct mm_struct		*mm;
	unsigned long			accounted;
	unsigned int			part_count;
	struct tow_import_part		*parts;

	struct dma_buf			*dmabuf;
	struct device			*dma_device;
	struct dma_buf_attachment	*attachment;
	struct sg_table			*table;
	bool				pinned;
	u64				region_id;
	struct tow_import_fence		*fence;
	struct list_head		invalidated;
	unsigned long			deadline;
	unsigned int			busy;
	bool				claimed;
	struct work_struct		leave;
};

/**
 * struct tow_import_ops - a kind of import
 * @backing: how its region, and the pool, deal with it
 * @unmap: the RDMA device does not reach it any more; nothing of it may be mapped yet
 * @put: the rest is given back; it is off the RDMA device, or has not come so far
 */
struct tow_import_ops {
	struct tow_backing_ops	backing;
	void			(*unmap)(struct tow_import *import);
	void			(*put)(struct tow_import *import);
};

/**
 * struct tow_segments - where somebody is in what an RDMA device sees
 * @sg: the present segment
 * @left: how many there are from it on
 * @at: bytes of it that were taken
 */
struct tow_segments {
	struct scatterlist	*sg;
	unsigned int		left;
	u64			at;
};

static inline struct tow_segments tow_segments_of(const struct sg_table *table)
{
	return (struct tow_segments){ .sg = table->sgl, .left = table->nents };
}

static inline enum dma_data_direction
tow_import_direction(const struct tow_import *import)
{
	return import->readonly ? DMA_TO_DEVICE : DMA_BIDIRECTIONAL;
}

/* import.c */
void tow_import_release(struct tow_region *region);
void tow_import_drained(struct tow_slab *slab);
struct tow_import *tow_import_alloc(struct tow_device *dev, bool readonly,
				    const struct tow_import_ops *ops);
void tow_import_drop(struct tow_import *import);
void tow_import_begin_end(struct tow_import *import);
void tow_import_leave(struct work_struct *work);
int tow_import_charge(struct tow_import *import, struct tow_client *client,
		      u64 bytes, u64 slab_bytes);
void tow_import_arrive(struct tow_import *import);
bool tow_import_claim(struct tow_import *import);
void tow_import_take_off(struct tow_import *import);
int tow_import_add_slab(struct tow_import *import,
			struct tow_segments *segments, u64 bytes);
u64 tow_segments_take(struct tow_segments *segments, u64 most,
		      dma_addr_t *dma);
u64 tow_import_slab_bytes(struct tow_device *dev);
bool tow_import_try_again(struct tow_device *dev,
			  const struct tow_import *import);
struct tow_region *tow_import_region(struct tow_client *client,
				     struct tow_import *import, u64 slab_bytes,
				     u64 skip, u64 bytes, u32 flags);

/* import_dmabuf.c */
void tow_imports_quiesce(struct work_struct *work);

#endif /* TOW_IMPORT_H */
