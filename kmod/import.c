// SPDX-License-Identifier: GPL-2.0
/*
 * Imported memory: a process's own pages, or another driver's dma-buf.
 *
 * An import consists of slabs as a region of the pool does, only that their
 * chunks are somebody else's pages, and that there are as few as the device's
 * limit on pages of one registration allows.  So everything about registration
 * and revocation is the same for both.
 *
 * The memory stays pinned until no peer can reach it any more, which may be
 * after the region has ended; what it is charged stays with it.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/dma-buf.h>
#include <linux/mm.h>
#include <linux/scatterlist.h>
#include <linux/sched/mm.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#include "client.h"
#include "compat.h"
#include "device.h"

/* Pages pinned at a time: as many pointers as a page holds. */
#define TOW_PIN_BATCH	(PAGE_SIZE / sizeof(struct page *))

/**
 * struct tow_import - what has to be given back
 * @dev: the device, with a reference
 * @link: in tow_imports.list until it is off the RDMA device; under its lock
 * @charge: what it is charged
 * @draining: slabs that peers may still reach
 * @mm: user memory: whose, with a reference to the structure
 * @pages: user memory: the pages, pinned
 * @page_count: how many of them are
 * @accounted: pages that count in the process's pinned_vm
 * @readonly: the device does not write to it
 * @dmabuf: dma-buf: it, with a reference
 * @attachment: dma-buf: ours to it
 * @table: dma-buf: where its memory is
 * @slab_count: how many slabs
 * @slabs: in the order of the memory
 */
struct tow_import {
	struct tow_device		*dev;
	struct list_head		link;
	struct tow_charge		charge;
	refcount_t			draining;
	struct mm_struct		*mm;
	struct page			**pages;
	unsigned long			page_count;
	unsigned long			accounted;
	bool				readonly;
	struct dma_buf			*dmabuf;
	struct dma_buf_attachment	*attachment;
	struct sg_table			*table;
	unsigned int			slab_count;
	struct tow_slab			**slabs;
};

/**
 * tow_imports_init - prepare the structure
 * @imports: zeroed memory inside a tow_device
 */
void tow_imports_init(struct tow_imports *imports)
{
	mutex_init(&imports->lock);
	INIT_LIST_HEAD(&imports->list);
}

static enum dma_data_direction tow_import_direction(struct tow_import *import)
{
	return import->readonly ? DMA_TO_DEVICE : DMA_BIDIRECTIONAL;
}

/* Called with the lock held: nothing of it is left on the RDMA device. */
static void tow_import_detach(struct tow_import *import)
{
	unsigned int i;

	lockdep_assert_held(&import->dev->imports.lock);
	list_del_init(&import->link);
	for (i = 0; i < import->slab_count; i++)
		tow_slab_detach(import->slabs[i]);
	if (import->table)
		dma_buf_unmap_attachment_unlocked(import->attachment,
						  import->table,
						  tow_import_direction(import));
	import->table = NULL;
	if (import->attachment)
		dma_buf_detach(import->dmabuf, import->attachment);
	import->attachment = NULL;
}

/**
 * tow_imports_stop - the device is going
 * @imports: its imports
 *
 * Takes them off the RDMA device; the memory stays pinned until their regions
 * end.
 */
void tow_imports_stop(struct tow_imports *imports)
{
	struct tow_import *import, *next;

	mutex_lock(&imports->lock);
	list_for_each_entry_safe(import, next, &imports->list, link)
		tow_import_detach(import);
	mutex_unlock(&imports->lock);
}

static void tow_import_unpin(struct tow_import *import)
{
	if (import->page_count)
		unpin_user_pages_dirty_lock(import->pages, import->page_count,
					    !import->readonly);
	kvfree(import->pages);
	if (import->mm) {
		atomic64_sub(import->accounted, &import->mm->pinned_vm);
		mmdrop(import->mm);
	}
}

/* Undoes whatever was done so far. */
static void tow_import_free(struct tow_import *import)
{
	struct tow_device *dev = import->dev;
	unsigned int i;

	mutex_lock(&dev->imports.lock);
	if (!list_empty(&import->link))
		tow_import_detach(import);
	mutex_unlock(&dev->imports.lock);
	for (i = 0; i < import->slab_count; i++)
		kvfree(import->slabs[i]);
	kvfree(import->slabs);
	tow_import_unpin(import);
	if (import->dmabuf)
		dma_buf_put(import->dmabuf);
	tow_uncharge(&import->charge);
	kfree(import);
	tow_device_put(dev);
}

/**
 * tow_import_drained - no peer can reach a slab any more
 * @slab: an imported slab, hidden; gone with the last of its import
 */
void tow_import_drained(struct tow_slab *slab)
{
	struct tow_import *import = slab->import;

	if (refcount_dec_and_test(&import->draining))
		tow_import_free(import);
}

/**
 * tow_import_release - the region of an import has ended
 * @region: the region
 */
void tow_import_release(struct tow_region *region)
{
	struct tow_import *import = region->import;
	struct tow_device *dev = import->dev;

	/* What remains is the import's business. */
	import->charge = region->charge;
	region->charge.account = NULL;
	refcount_set(&import->draining, import->slab_count);
	if (!tow_pool_begin_drain(&dev->pool, import->slabs,
				  import->slab_count))
		tow_import_free(import);
}

static struct tow_import *tow_import_alloc(struct tow_device *dev)
{
	struct tow_import *import;

	import = kzalloc(sizeof(*import), GFP_KERNEL_ACCOUNT);
	if (!import)
		return NULL;
	INIT_LIST_HEAD(&import->link);
	kref_get(&dev->refs);
	import->dev = dev;
	return import;
}

/* Only after the import was charged: it is as long as the program asks for. */
static int tow_import_alloc_slabs(struct tow_import *import, u64 count)
{
	import->slabs = kvcalloc(count, sizeof(*import->slabs),
				 GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	return import->slabs ? 0 : -ENOMEM;
}

/* One more slab, empty, with room for so many chunks; or NULL. */
static struct tow_slab *tow_import_add_slab(struct tow_import *import,
					    unsigned int chunks)
{
	struct tow_slab *slab;

	slab = tow_slab_alloc(import->dev, TOW_SLAB_IMPORTED, chunks,
			      GFP_KERNEL_ACCOUNT);
	if (!slab)
		return NULL;
	slab->import = import;
	slab->readonly = import->readonly;
	refcount_set(&slab->remote, 1);
	import->slabs[import->slab_count++] = slab;
	return slab;
}

/* Bytes that one registration can hold.  Called by users of the device. */
static u64 tow_import_slab_bytes(struct tow_device *dev)
{
	return tow_slab_import_bytes(dev->ibdev->attrs.max_fast_reg_page_list_len,
				     PAGE_SIZE);
}

/* Was it refused for what may be given back in a moment?  That was waited for. */
static bool tow_import_try_again(struct tow_device *dev,
				 struct tow_import *import)
{
	if (import != ERR_PTR(-EDQUOT) && import != ERR_PTR(-ENOSPC) &&
	    import != ERR_PTR(-ENOMEM))
		return false;
	/* What was destroyed lately may be charged still. */
	flush_work(&dev->pool.work);
	return true;
}

/* ---- a process's memory --------------------------------------------------- */

/* Of RLIMIT_MEMLOCK, as other users of pinned memory count it. */
static int tow_import_account(struct tow_import *import, unsigned long pages)
{
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	unsigned long now;

	now = atomic64_add_return(pages, &current->mm->pinned_vm);
	if (now > limit && !capable(CAP_IPC_LOCK)) {
		atomic64_sub(pages, &current->mm->pinned_vm);
		return -ENOMEM;
	}
	mmgrab(current->mm);
	import->mm = current->mm;
	import->accounted = pages;
	return 0;
}

/* Pins some of what is left: how many pages, or a negative errno. */
static int tow_import_pin_some(struct tow_import *import, unsigned long start,
			       unsigned long left)
{
	struct page **pages = import->pages + import->page_count;
	int count = min(left, TOW_PIN_BATCH);
	int got;

	start += import->page_count << PAGE_SHIFT;
	if (import->readonly)
		got = tow_pin_to_read(start, count, pages);
	else
		got = pin_user_pages_fast(start, count,
					  FOLL_LONGTERM | FOLL_WRITE, pages);
	/* Without progress we would try for ever. */
	return got ?: -EFAULT;
}

static int tow_import_pin(struct tow_import *import, unsigned long start,
			  unsigned long count)
{
	int got;

	/* However much a program asks for, that is no reason to warn. */
	import->pages = kvmalloc_array(count, sizeof(*import->pages),
				       GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!import->pages)
		return -ENOMEM;
	while (import->page_count < count) {
		got = tow_slab_go_on(import->dev);
		if (!got)
			got = tow_import_pin_some(import, start,
						  count - import->page_count);
		if (got < 0)
			return got;
		import->page_count += got;
	}
	return 0;
}

/* How many pages from the first one on are contiguous, @count at most. */
static unsigned int tow_import_run(struct page **pages, unsigned int count)
{
	unsigned int i;

	for (i = 1; i < count; i++) {
		if (page_to_pfn(pages[i]) != page_to_pfn(pages[0]) + i)
			break;
	}
	return i;
}

static unsigned int tow_import_runs(struct page **pages, unsigned int count)
{
	unsigned int i, runs = 0;

	for (i = 0; i < count; i += tow_import_run(pages + i, count - i))
		runs++;
	return runs;
}

static int tow_import_slab_user(struct tow_import *import, struct page **pages,
				unsigned int count)
{
	unsigned int i, length;
	struct tow_slab *slab;

	slab = tow_import_add_slab(import, tow_import_runs(pages, count));
	if (!slab)
		return -ENOMEM;
	for (i = 0; i < count; i += length) {
		struct tow_chunk *chunk = &slab->chunks[slab->chunk_count++];

		length = tow_import_run(pages + i, count - i);
		chunk->page = pages[i];
		chunk->bytes = (u64)length << PAGE_SHIFT;
		slab->bytes += chunk->bytes;
	}
	return 0;
}

static int tow_import_slabs_user(struct tow_import *import, u64 slab_pages)
{
	unsigned long done = 0;

	while (done < import->page_count) {
		unsigned int count = min_t(u64, import->page_count - done,
					   slab_pages);
		int ret;

		ret = tow_import_slab_user(import, import->pages + done, count);
		if (ret)
			return ret;
		done += count;
	}
	return 0;
}

/* On the RDMA device: mapped for it. */
static int tow_import_attach(struct tow_import *import)
{
	struct tow_imports *imports = &import->dev->imports;
	unsigned int i;
	int ret = 0;

	if (!tow_device_enter(import->dev))
		return -ENODEV;
	mutex_lock(&imports->lock);
	/* From here on removal knows about it. */
	list_add_tail(&import->link, &imports->list);
	for (i = 0; i < import->slab_count && !ret; i++) {
		ret = tow_slab_go_on(import->dev);
		if (!ret)
			ret = tow_slab_map(import->slabs[i]);
	}
	mutex_unlock(&imports->lock);
	tow_device_leave(import->dev);
	return ret;
}

/*
 * A region around an import that is charged and complete.  The device may be gone by
 * now.
 */
static struct tow_region *tow_import_region(struct tow_client *client,
					    struct tow_import *import,
					    u64 slab_bytes, u64 skip, u64 bytes,
					    u32 flags)
{
	static const char no_name[TOW_REGION_NAME_MAX];
	struct tow_region *region;
	int ret;

	region = tow_region_alloc(client, import->slab_count, no_name);
	if (!region) {
		tow_import_free(import);
		return ERR_PTR(-ENOMEM);
	}
	region->bytes = bytes;
	region->flags = flags;
	region->skip = skip;
	region->slab_bytes = slab_bytes;
	region->slab_count = import->slab_count;
	memcpy(region->slabs, import->slabs,
	       import->slab_count * sizeof(*import->slabs));
	region->import = import;
	region->charge = import->charge;
	import->charge.account = NULL;
	ret = tow_region_publish(region);
	if (ret) {
		tow_region_put(region);
		return ERR_PTR(ret);
	}
	return region;
}

static int tow_import_charge(struct tow_import *import,
			     struct tow_client *client, u64 bytes,
			     u64 slab_count)
{
	u64 amount[TOW_RESOURCES] = {
		[TOW_RES_BYTES]		= bytes,
		[TOW_RES_MRS]		= slab_count * TOW_RIGHTS,
		[TOW_RES_REGIONS]	= 1,
	};

	return tow_charge(&import->charge, client->account, amount);
}

static int tow_import_user_fill(struct tow_import *import,
				struct tow_client *client, unsigned long start,
				unsigned long pages, u64 slab_bytes)
{
	u64 bytes = (u64)pages << PAGE_SHIFT;
	u64 slab_count = DIV_ROUND_UP_ULL(bytes, slab_bytes);
	int ret;

	ret = tow_import_charge(import, client, bytes, slab_count);
	if (!ret)
		ret = tow_import_account(import, pages);
	if (!ret)
		ret = tow_import_alloc_slabs(import, slab_count);
	if (!ret)
		ret = tow_import_pin(import, start, pages);
	if (!ret)
		ret = tow_import_slabs_user(import, slab_bytes >> PAGE_SHIFT);
	if (!ret)
		ret = tow_import_attach(import);
	return ret;
}

static struct tow_import *tow_import_user_new(struct tow_client *client,
					      u64 start, u64 end,
					      u64 slab_bytes, bool readonly)
{
	struct tow_import *import = tow_import_alloc(client->dev);
	int ret;

	if (!import)
		return ERR_PTR(-ENOMEM);
	import->readonly = readonly;
	ret = tow_import_user_fill(import, client, start,
				   DIV_ROUND_UP_ULL(end - start, PAGE_SIZE),
				   slab_bytes);
	if (ret) {
		tow_import_free(import);
		return ERR_PTR(ret);
	}
	return import;
}

/**
 * tow_import_user - make a region of the current process's memory
 * @client: whose it is to be
 * @address: where it begins
 * @bytes: how much, at least 1
 * @readonly: the device does not write to it
 *
 * Return: the region with the caller's reference, or an ERR_PTR(): see
 * TOW_IOCTL_REGION_IMPORT_USER.
 */
struct tow_region *tow_import_user(struct tow_client *client, u64 address,
				   u64 bytes, bool readonly)
{
	u64 slab_bytes, start = address & PAGE_MASK, end;
	struct tow_import *import;

	if (check_add_overflow(address, bytes, &end) ||
	    end > ULONG_MAX - PAGE_SIZE)
		return ERR_PTR(-EINVAL);
	if (end > TASK_SIZE_MAX)
		return ERR_PTR(-EFAULT);
	if (!tow_device_enter(client->dev))
		return ERR_PTR(-ENODEV);
	slab_bytes = tow_import_slab_bytes(client->dev);
	tow_device_leave(client->dev);
	import = tow_import_user_new(client, start, end, slab_bytes, readonly);
	if (tow_import_try_again(client->dev, import))
		import = tow_import_user_new(client, start, end, slab_bytes,
					     readonly);
	if (IS_ERR(import))
		return ERR_CAST(import);
	return tow_import_region(client, import, slab_bytes, address - start,
				 bytes, TOW_REGION_USER_MEMORY |
				 (readonly ? TOW_REGION_READONLY : 0));
}

/* ---- somebody else's dma-buf ---------------------------------------------- */

/*
 * Software devices use the processor's addresses: what a dma-buf has for a
 * device means nothing to them.
 */
static int tow_import_can_attach(struct tow_device *dev)
{
	char name[TOW_DEVICE_NAME_MAX];

	if (!ib_uses_virt_dma(dev->ibdev))
		return 0;
	tow_device_name(dev, name);
	pr_notice_ratelimited("%s: dma-bufs cannot be imported: this RDMA device is software and has no DMA\n",
			      name);
	return -EOPNOTSUPP;
}

/* Called with the lock of the imports held. */
static int tow_import_map_dmabuf(struct tow_import *import)
{
	struct dma_buf_attachment *attachment;
	struct sg_table *table;

	attachment = dma_buf_attach(import->dmabuf,
				    import->dev->ibdev->dma_device);
	if (IS_ERR(attachment))
		return PTR_ERR(attachment);
	import->attachment = attachment;
	table = dma_buf_map_attachment_unlocked(attachment,
						tow_import_direction(import));
	if (IS_ERR(table))
		return PTR_ERR(table);
	import->table = table;
	return 0;
}

/* Adds what fits of a segment; how much that was. */
static u64 tow_import_add_segment(struct tow_slab *slab, dma_addr_t dma,
				  u64 bytes, u64 room)
{
	struct tow_chunk *chunk = &slab->chunks[slab->chunk_count++];

	chunk->dma = dma;
	chunk->bytes = min(bytes, room);
	slab->bytes += chunk->bytes;
	return chunk->bytes;
}

/* Slabs for @left bytes of the table from @skip on. */
static int tow_import_slabs_dmabuf(struct tow_import *import, u64 skip,
				   u64 left, u64 slab_bytes)
{
	/* Whole pages each, and each segment adds one at most. */
	unsigned int chunks = min_t(u64, import->table->nents,
				    slab_bytes >> PAGE_SHIFT);
	struct tow_slab *slab = NULL;
	struct scatterlist *sg;
	int i;

	for_each_sgtable_dma_sg(import->table, sg, i) {
		u64 at = min_t(u64, skip, sg_dma_len(sg));
		u64 end = min_t(u64, sg_dma_len(sg), at + left);

		skip -= at;
		if (!PAGE_ALIGNED(sg_dma_address(sg) | sg_dma_len(sg)))
			return -EOPNOTSUPP;
		while (at < end) {
			u64 added;

			if (!slab || slab->bytes == slab_bytes)
				slab = tow_import_add_slab(import, chunks);
			if (!slab)
				return -ENOMEM;
			added = tow_import_add_segment(slab, sg_dma_address(sg) + at,
						       end - at,
						       slab_bytes - slab->bytes);
			at += added;
			left -= added;
		}
	}
	return left ? -EINVAL : 0;
}

static int tow_import_dmabuf_fill(struct tow_import *import,
				  struct tow_client *client, u64 offset,
				  u64 bytes, u64 slab_bytes)
{
	struct tow_imports *imports = &import->dev->imports;
	u64 slab_count = DIV_ROUND_UP_ULL(bytes, slab_bytes);
	int ret;

	ret = tow_import_charge(import, client, bytes, slab_count);
	if (!ret)
		ret = tow_import_alloc_slabs(import, slab_count);
	if (ret)
		return ret;
	mutex_lock(&imports->lock);
	/* From here on removal knows about it. */
	list_add_tail(&import->link, &imports->list);
	ret = tow_import_map_dmabuf(import);
	if (!ret)
		ret = tow_import_slabs_dmabuf(import, offset, bytes,
					      slab_bytes);
	mutex_unlock(&imports->lock);
	return ret;
}

/* Called by users of the device. */
static struct tow_import *tow_import_dmabuf_new(struct tow_client *client,
						struct dma_buf *dmabuf,
						u64 offset, u64 bytes,
						u64 slab_bytes, bool readonly)
{
	struct tow_import *import;
	int ret;

	ret = tow_import_can_attach(client->dev);
	if (ret)
		return ERR_PTR(ret);
	import = tow_import_alloc(client->dev);
	if (!import)
		return ERR_PTR(-ENOMEM);
	import->readonly = readonly;
	get_dma_buf(dmabuf);
	import->dmabuf = dmabuf;
	ret = tow_import_dmabuf_fill(import, client, offset, bytes, slab_bytes);
	if (ret) {
		tow_import_free(import);
		return ERR_PTR(ret);
	}
	return import;
}

/**
 * tow_import_dmabuf - make a region of a dma-buf's memory
 * @client: whose it is to be
 * @dmabuf: the dma-buf
 * @offset: where to begin in it, whole pages
 * @bytes: how much, at least 1
 * @readonly: the device does not write to it
 *
 * Return: the region with the caller's reference, or an ERR_PTR(): see
 * TOW_IOCTL_REGION_IMPORT_DMABUF.
 */
struct tow_region *tow_import_dmabuf(struct tow_client *client,
				     struct dma_buf *dmabuf, u64 offset,
				     u64 bytes, bool readonly)
{
	struct tow_import *import;
	u64 slab_bytes;

	if (bytes > dmabuf->size || offset > dmabuf->size - bytes)
		return ERR_PTR(-EINVAL);
	if (!tow_device_enter(client->dev))
		return ERR_PTR(-ENODEV);
	slab_bytes = tow_import_slab_bytes(client->dev);
	/* dma-bufs are whole pages. */
	import = tow_import_dmabuf_new(client, dmabuf, offset,
				       PAGE_ALIGN(bytes), slab_bytes, readonly);
	if (tow_import_try_again(client->dev, import))
		import = tow_import_dmabuf_new(client, dmabuf, offset,
					       PAGE_ALIGN(bytes), slab_bytes,
					       readonly);
	tow_device_leave(client->dev);
	if (IS_ERR(import))
		return ERR_CAST(import);
	return tow_import_region(client, import, slab_bytes, 0, bytes,
				 TOW_REGION_DMABUF |
				 (readonly ? TOW_REGION_READONLY : 0));
}
