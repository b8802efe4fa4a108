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
 * tow_import_arrive - something of an import is about to be on the RDMA device
 * @import: the import; the caller is a user of the device until it is complete, or has
 *	failed
 */
void tow_import_arrive(struct tow_import *import)
{
	struct tow_imports *imports = &import->dev->memory->imports;

	mutex_lock(&imports->lock);
	import->off = false;
	list_add_tail(&import->link, &imports->list);
	mutex_unlock(&imports->lock);
}

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
	/* Pairs with tow_import_free(). */
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
static void tow_import_free(struct tow_import *import)
{
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
	tow_uncharge(&import->charge);
	if (import->counted)
		atomic_dec(&dev->memory->imports.ending);
	wake_up_all(&dev->memory->imports.wait);
	kfree(import);
	tow_device_put(dev);
}

/**
 * tow_import_drop - let go of an import
 * @import: the import, gone if nobody else holds it; its exporter may let us wait
 */
void tow_import_drop(struct tow_import *import)
{
	if (refcount_dec_and_test(&import->holders))
		tow_import_free(import);
}

/**
 * tow_import_leave - take off the RDMA device what was taken back
 * @work: of the import, which this lets go of
 */
void tow_import_leave(struct work_struct *work)
{
	struct tow_import *import = container_of(work, struct tow_import,
						 leave);

	if (import->claimed)
		tow_import_take_off(import);
	tow_import_drop(import);
}

static void tow_import_end(struct work_struct *work)
{
	tow_import_free(container_of(work, struct tow_import, end));
}

/**
 * tow_import_begin_end - let go of an import, and do not wait for its exporter
 * @import: the import, gone if nobody else holds it
 */
void tow_import_begin_end(struct tow_import *import)
{
	atomic_inc(&import->dev->memory->imports.ending);
	import->counted = true;
	if (refcount_dec_and_test(&import->holders))
		queue_work(tow_import_wq, &import->end);
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

/**
 * tow_import_alloc - an import of nothing so far
 * @dev: the device
 * @readonly: the device does not write to it
 * @ops: its kind's
 *
 * Return: the import, for tow_import_drop(); or NULL.
 */
struct tow_import *tow_import_alloc(struct tow_device *dev, bool readonly,
				    const struct tow_import_ops *ops)
{
	struct tow_import *import;

	import = kzalloc(sizeof(*import), GFP_KERNEL_ACCOUNT);
	if (!import)
		return NULL;
	INIT_LIST_HEAD(&import->link);
	refcount_set(&import->holders, 1);
	INIT_WORK(&import->end, tow_import_end);
	kref_get(&dev->refs);
	import->dev = dev;
	import->off = true;
	import->readonly = readonly;
	import->ops = ops;
	import->backing.ops = &ops->backing;
	return import;
}

/**
 * tow_import_charge - charge an import, and make room for its slabs
 * @import: the import
 * @client: to whom
 * @bytes: its size
 * @slab_bytes: of each slab but the last
 *
 * Return: 0; -EDQUOT, -ENOSPC; -ENOMEM.
 */
int tow_import_charge(struct tow_import *import, struct tow_client *client,
		      u64 bytes, u64 slab_bytes)
{
	u64 slab_count = DIV_ROUND_UP_ULL(bytes, slab_bytes);
	u64 amount[TOW_RESOURCES] = {
		[TOW_RES_BYTES]		= bytes,
		[TOW_RES_MRS]		= slab_count * TOW_RIGHTS,
		[TOW_RES_REGIONS]	= 1,
	};
	int ret;

	ret = tow_memory_charge(&import->charge, client, amount);
	if (ret)
		return ret;
	/* Only now: it is as long as the program asks for. */
	import->slabs = kvcalloc(slab_count, sizeof(*import->slabs),
				 GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	return import->slabs ? 0 : -ENOMEM;
}

/**
 * tow_segments_take - the next bytes that the RDMA device sees one after the other
 * @segments: where we are; moved on
 * @most: at most so many
 * @dma: where to: where they are
 *
 * Return: how many; 0: there are no more.
 */
u64 tow_segments_take(struct tow_segments *segments, u64 most,
		      dma_addr_t *dma)
{
	u64 bytes;

	while (segments->left && segments->at == sg_dma_len(segments->sg)) {
		segments->left--;
		segments->sg = sg_next(segments->sg);
		segments->at = 0;
	}
	if (!segments->left)
		return 0;
	bytes = min_t(u64, most, sg_dma_len(segments->sg) - segments->at);
	*dma = sg_dma_address(segments->sg) + segments->at;
	segments->at += bytes;
	return bytes;
}

/* How many chunks the next @bytes are; or a negative errno. */
static int tow_segments_count(struct tow_segments segments, u64 bytes)
{
	dma_addr_t dma;
	int count;
	u64 taken;

	for (count = 0; bytes; count++) {
		taken = tow_segments_take(&segments, bytes, &dma);
		if (!taken)
			return -EINVAL;
		if (!PAGE_ALIGNED(dma | taken))
			return -EOPNOTSUPP;
		bytes -= taken;
	}
	return count;
}

/**
 * tow_import_add_slab - a slab of what comes next
 * @import: the import
 * @segments: where it is; moved on
 * @bytes: how much, whole pages
 *
 * Return: 0; -ENOMEM; -EINVAL: there is not so much; -EOPNOTSUPP: not in whole pages.
 */
int tow_import_add_slab(struct tow_import *import,
			struct tow_segments *segments, u64 bytes)
{
	int count = tow_segments_count(*segments, bytes);
	struct tow_slab *slab;

	if (count < 0)
		return count;
	slab = tow_slab_alloc(import->dev, TOW_SLAB_IMPORTED, count,
			      GFP_KERNEL_ACCOUNT);
	if (!slab)
		return -ENOMEM;
	slab->backing = &import->backing;
	slab->readonly = import->readonly;
	while (slab->bytes < bytes) {
		struct tow_chunk *chunk = &slab->chunks[slab->chunk_count++];

		chunk->at = slab->bytes;
		chunk->bytes = tow_segments_take(segments, bytes - slab->bytes,
						 &chunk->dma);
		slab->bytes += chunk->bytes;
	}
	import->slabs[import->slab_count++] = slab;
	return 0;
}

/**
 * tow_import_slab_bytes - how large are an import's slabs?
 * @dev: the device; the caller is a user of it
 *
 * Return: bytes that one registration can hold, within bounds.
 */
u64 tow_import_slab_bytes(struct tow_device *dev)
{
	return tow_slab_import_bytes(dev->ibdev->attrs.max_fast_reg_page_list_len,
				     PAGE_SIZE);
}

/**
 * tow_import_region - a region around an import
 * @client: whose it is to be
 * @import: charged and complete; the region's, or freed
 * @slab_bytes: of each slab but the last.  The device may be gone by now
 * @skip: bytes of the first slab that come before the region
 * @bytes: the region's size
 * @flags: the region's
 *
 * Return: the region with the caller's reference, or an ERR_PTR().
 */
struct tow_region *tow_import_region(struct tow_client *client,
				     struct tow_import *import, u64 slab_bytes,
				     u64 skip, u64 bytes, u32 flags)
{
	static const char no_name[TOW_REGION_NAME_MAX];
	struct tow_region *region;
	int ret;

	region = tow_region_alloc(client, import->slab_count, no_name);
	if (!region) {
		tow_import_drop(import);
		return ERR_PTR(-ENOMEM);
	}
	region->bytes = bytes;
	region->flags = flags;
	region->skip = skip;
	region->slab_bytes = slab_bytes;
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
