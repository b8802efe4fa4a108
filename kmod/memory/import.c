// SPDX-License-Identifier: GPL-2.0
/*
 * Imported memory: a process's own pages, or another driver's dma-buf.
 *
 * An import consists of slabs as a region of the pool does, only that their
 * chunks are somebody else's memory, and that there are as few as the device's
 * limit on pages of one registration allows.  So everything about registration
 * and revocation is the same for both.
 *
 * The memory stays pinned until no peer can reach it any more, which may be
 * after the region has ended; what it is charged stays with it.
 *
 * On the RDMA device, and off it
 *
 * tow_imports.list has what is there.  Whoever takes an import off the list, its own
 * end, its exporter's wish, or removal, takes it off the device, without the list's
 * lock, as an exporter may let us wait; the others wait until that is done.
 */
#include <linux/slab.h>

#include "internal.h"

/**
 * tow_imports_init - prepare the structure
 * @imports: zeroed memory
 * @dev: the device
 * @quiesce: tow_imports_quiesce()
 */
void tow_imports_init(struct tow_imports *imports, struct tow_device *dev,
		      work_func_t quiesce)
{
	imports->dev = dev;
	mutex_init(&imports->lock);
	INIT_LIST_HEAD(&imports->list);
	INIT_LIST_HEAD(&imports->invalid);
	init_waitqueue_head(&imports->wait);
	INIT_WORK(&imports->quiesce, quiesce);
}

/* ---- on the RDMA device, and off it --------------------------------------- */

/**
 * tow_import_claim - is it the caller who takes an import off the RDMA device?
 * @import: the import
 *
 * Return: true: it is; tow_import_take_off() follows.
 */
bool tow_import_claim(struct tow_import *import)
{
	struct tow_imports *imports = &import->dev->memory->imports;
	bool claimed;

	mutex_lock(&imports->lock);
	claimed = !list_empty(&import->link);
	list_del_init(&import->link);
	imports->leaving += claimed;
	mutex_unlock(&imports->lock);
	return claimed;
}

/**
 * tow_import_take_off - nothing of an import is left on the RDMA device
 * @import: the import, claimed; may be freed by others as soon as this is done.  The
 *	caller keeps the device's structure
 */
void tow_import_take_off(struct tow_import *import)
{
	struct tow_imports *imports = &import->dev->memory->imports;
	unsigned int i;

	for (i = 0; i < import->slab_count; i++)
		tow_slab_detach(import->slabs[i]);
	import->ops->unmap(import);
	mutex_lock(&imports->lock);
	/* Pairs with tow_imports_stop(). */
	smp_store_release(&imports->leaving, imports->leaving - 1);
	mutex_unlock(&imports->lock);
	/* Pairs with tow_import_end(). */
	smp_store_release(&import->off, true);
	wake_up_all(&imports->wait);
}

/**
 * tow_imports_stop - the device is going
 * @imports: its imports; nobody is a user of the device any more, and there are no
 *	queue pairs
 *
 * Takes them off the RDMA device; the memory stays pinned until their regions
 * end.
 */
void tow_imports_stop(struct tow_imports *imports)
{
	struct tow_import *import;

	mutex_lock(&imports->lock);
	while (!list_empty(&imports->list)) {
		import = list_first_entry(&imports->list, struct tow_import,
					  link);
		list_del_init(&import->link);
		imports->leaving++;
		mutex_unlock(&imports->lock);
		tow_import_take_off(import);
		mutex_lock(&imports->lock);
	}
	mutex_unlock(&imports->lock);
	/* Pairs with tow_import_take_off(). */
	wait_event(imports->wait, !smp_load_acquire(&imports->leaving));
}

/* ---- the end -------------------------------------------------------------- */

/* Undoes whatever was done so far.  An exporter may let us wait. */
static void tow_import_end(struct work_struct *work)
{
	struct tow_import *import = container_of(work, struct tow_import, end);
	struct tow_device *dev = import->dev;
	unsigned int i;

	if (tow_import_claim(import))
		tow_import_take_off(import);
	/* Pairs with tow_import_take_off(). */
	wait_event(dev->memory->imports.wait, smp_load_acquire(&import->off));
	for (i = 0; i < import->slab_count; i++)
		kvfree(import->slabs[i]);
	kvfree(import->slabs);
	import->ops->put(import);
	put_device(import->dma_device);
	tow_uncharge(&import->charge);
	atomic_dec(&dev->memory->imports.ending);
	wake_up_all(&dev->memory->imports.wait);
	kfree(import);
	tow_device_put(dev);
}

/**
 * tow_import_put - let go of an import, and do not wait for its exporter
 * @import: the import, gone if nobody else holds it
 */
void tow_import_put(struct tow_import *import)
{
	if (refcount_dec_and_test(&import->holders))
		queue_work(tow_import_wq, &import->end);
}

/* The import's maker, or its region, lets go of it. */
static void tow_import_begin_end(struct tow_import *import)
{
	atomic_inc(&import->dev->memory->imports.ending);
	tow_import_put(import);
}

/**
 * tow_import_release - the region of an import has ended
 * @region: the region
 */
void tow_import_release(struct tow_region *region)
{
	struct tow_import *import = container_of(region->backing,
						 struct tow_import, backing);
	unsigned int i;

	/* Exports hold their region until they have hidden it. */
	for (i = 0; i < import->slab_count; i++)
		WARN_ON_ONCE(tow_slab_exposed(import->slabs[i]));
	/* What remains is the import's business. */
	import->charge = region->charge;
	region->charge.account = NULL;
	tow_import_begin_end(import);
}

/* ---- making --------------------------------------------------------------- */

/* Called by users of the device. */
static struct tow_import *tow_import_alloc(struct tow_device *dev,
					   const struct tow_import_ops *ops)
{
	struct ib_device *ibdev = dev->ibdev;
	struct tow_import *import;

	import = kzalloc(sizeof(*import), GFP_KERNEL_ACCOUNT);
	if (!import)
		return ERR_PTR(-ENOMEM);
	INIT_LIST_HEAD(&import->link);
	refcount_set(&import->holders, 1);
	INIT_WORK(&import->end, tow_import_end);
	kref_get(&dev->refs);
	import->dev = dev;
	import->dma_device = get_device(ibdev->dma_device);
	import->max_segment = ib_dma_max_seg_size(ibdev);
	/* Bytes that one registration can hold, within bounds. */
	import->slab_bytes =
		tow_slab_import_bytes(ibdev->attrs.max_fast_reg_page_list_len,
				      PAGE_SIZE);
	import->off = true;
	import->ops = ops;
	import->backing.ops = &ops->backing;
	return import;
}

/**
 * tow_import_new - an import of nothing so far
 * @dev: the device
 * @bytes: how much it is to be, whole pages
 * @readonly: the device does not write to it
 * @ops: its kind's
 *
 * Return: the import, for tow_import_region(); or an ERR_PTR(): -ENODEV, -ENOMEM;
 * -EOPNOTSUPP: the device needs copies.
 */
struct tow_import *tow_import_new(struct tow_device *dev, u64 bytes,
				  bool readonly,
				  const struct tow_import_ops *ops)
{
	struct tow_import *import = ERR_PTR(-EOPNOTSUPP);

	if (!tow_device_enter(dev))
		return ERR_PTR(-ENODEV);
	if (!tow_slab_needs_copies(dev->ibdev))
		import = tow_import_alloc(dev, ops);
	tow_device_leave(dev);
	if (!IS_ERR(import)) {
		import->bytes = bytes;
		import->readonly = readonly;
	}
	return import;
}

/**
 * tow_import_charge - charge an import, and make room for its slabs
 * @import: the import
 * @client: to whom
 *
 * Return: 0; -EDQUOT, -ENOSPC; -ENOMEM.
 */
int tow_import_charge(struct tow_import *import, struct tow_client *client)
{
	u64 slab_count = DIV_ROUND_UP_ULL(import->bytes, import->slab_bytes);
	u64 amount[TOW_RESOURCES] = {
		[TOW_RES_BYTES]		= import->bytes,
		[TOW_RES_MRS]		= slab_count * TOW_RIGHTS,
		[TOW_RES_REGIONS]	= 1,
	};
	int ret;

	ret = tow_memory_charge(&import->charge, client, amount);
	if (ret)
		return ret;
	/* Only now: it is as long as the program asks for, which is no reason to warn. */
	import->slabs = kvcalloc(slab_count, sizeof(*import->slabs),
				 GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	return import->slabs ? 0 : -ENOMEM;
}

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

/*
 * The next @bytes as chunks, written to @chunks unless that is NULL: how many; or
 * -EINVAL: there is not so much; -EOPNOTSUPP: not in whole pages.
 */
static int tow_segments_cut(struct tow_segments *segments, u64 bytes,
			    struct tow_chunk *chunks)
{
	struct tow_chunk chunk = {};
	int count;

	for (count = 0; chunk.at < bytes; count++) {
		u64 rest;

		if (!segments->left)
			return -EINVAL;
		rest = sg_dma_len(segments->sg) - segments->at;
		chunk.bytes = min(bytes - chunk.at, rest);
		chunk.dma = sg_dma_address(segments->sg) + segments->at;
		if (!PAGE_ALIGNED(chunk.dma | chunk.bytes))
			return -EOPNOTSUPP;
		if (chunks)
			chunks[count] = chunk;
		chunk.at += chunk.bytes;
		segments->at += chunk.bytes;
		if (chunk.bytes == rest) {
			segments->sg = sg_next(segments->sg);
			segments->left--;
			segments->at = 0;
		}
	}
	return count;
}

static int tow_import_add_slab(struct tow_import *import,
			       struct tow_segments *segments, u64 bytes)
{
	struct tow_segments ahead = *segments;
	int count = tow_segments_cut(&ahead, bytes, NULL);
	struct tow_slab *slab;

	if (count < 0)
		return count;
	slab = tow_slab_alloc(import->dev, TOW_SLAB_IMPORTED, count,
			      GFP_KERNEL_ACCOUNT);
	if (!slab)
		return -ENOMEM;
	slab->backing = &import->backing;
	slab->readonly = import->readonly;
	slab->bytes = bytes;
	slab->chunk_count = tow_segments_cut(segments, bytes, slab->chunks);
	import->slabs[import->slab_count++] = slab;
	return 0;
}

/* What was mapped, cut into slabs. */
static int tow_import_make_slabs(struct tow_import *import)
{
	struct tow_segments segments = {
		.sg = import->table->sgl, .left = import->table->nents,
	};
	u64 left = import->bytes, bytes;
	int ret;

	ret = min(tow_segments_cut(&segments, import->offset, NULL), 0);
	for (; left && !ret; left -= bytes) {
		bytes = min(left, import->slab_bytes);
		ret = tow_slab_interrupted(import->dev) ?:
		      tow_import_add_slab(import, &segments, bytes);
	}
	return ret;
}

/**
 * tow_import_map - have the RDMA device see an import's memory, and make slabs of it
 * @import: the import, charged
 *
 * Return: 0; -ENODEV: the device is going; -EINTR: the caller was killed; -ENOMEM;
 * -EINVAL: it is less than was said; -EOPNOTSUPP: it is not in whole pages; or
 * tow_import_ops.map's error.
 */
int tow_import_map(struct tow_import *import)
{
	struct tow_imports *imports = &import->dev->memory->imports;
	int ret;

	if (!tow_device_enter(import->dev))
		return -ENODEV;
	mutex_lock(&imports->lock);
	import->off = false;
	list_add_tail(&import->link, &imports->list);
	mutex_unlock(&imports->lock);
	ret = import->ops->map(import);
	if (!ret) {
		tow_stat_inc(import->dev, TOW_STAT_DMA_MAPS);
		ret = tow_import_make_slabs(import);
	}
	tow_device_leave(import->dev);
	return ret;
}

/**
 * tow_import_region - a region around an import
 * @client: whose it is to be
 * @import: complete, unless there is an error; the region's, or its end has begun
 * @ret: 0; or what went wrong
 * @skip: bytes of the first slab that come before the region
 * @bytes: the region's size
 *
 * Return: the region with the caller's reference, or an ERR_PTR().
 */
struct tow_region *tow_import_region(struct tow_client *client,
				     struct tow_import *import, int ret,
				     u64 skip, u64 bytes)
{
	static const char no_name[TOW_REGION_NAME_MAX];
	struct tow_region *region = ERR_PTR(ret);

	if (!ret)
		region = tow_region_alloc(client, import->slab_count, no_name) ?:
			 ERR_PTR(-ENOMEM);
	if (IS_ERR(region)) {
		tow_import_begin_end(import);
		return region;
	}
	region->bytes = bytes;
	region->flags = (import->dmabuf ? TOW_REGION_DMABUF :
					  TOW_REGION_USER_MEMORY) |
			(import->readonly ? TOW_REGION_READONLY : 0);
	region->skip = skip;
	region->slab_bytes = import->slab_bytes;
	region->slab_count = import->slab_count;
	memcpy(region->slabs, import->slabs,
	       import->slab_count * sizeof(*import->slabs));
	region->backing = &import->backing;
	region->charge = import->charge;
	import->charge.account = NULL;
	ret = tow_region_publish(region);
	if (ret) {
		tow_region_put(region);
		return ERR_PTR(ret);
	}
	/*
	 * Nobody can export it before the caller makes a handle; and if it was taken
	 * back before, whoever exports it sees that.
	 */
	WRITE_ONCE(import->region_id, region->id);
	/* Pairs with tow_imports_begin_revoke(). */
	smp_mb();
	return region;
}
