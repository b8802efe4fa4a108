// SPDX-License-Identifier: GPL-2.0
/*
 * Imports of a process's own memory: its pages, pinned, which become slabs (import.c).
 *
 * Pages are pinned first, a slab's at a time, without the device, as a page that is not
 * there may keep us waiting for as long as a program likes.  Then they are mapped, a
 * slab's at a time, so removal need not wait for all of them.
 */
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "core/compat.h"
#include "internal.h"

/* Pinned at a time: as many pointers as a page holds. */
#define TOW_PIN_BATCH	(PAGE_SIZE / sizeof(struct page *))

/**
 * struct tow_pinning - memory that is being pinned
 * @address: of the next page
 * @left: pages
 * @slab_pages: of one slab
 * @max_segment: bytes of one segment that the RDMA device takes
 * @batch: TOW_PIN_BATCH of them
 */
struct tow_pinning {
	unsigned long	address;
	unsigned long	left;
	unsigned long	slab_pages;
	unsigned int	max_segment;
	struct page	**batch;
};

/* Of RLIMIT_MEMLOCK, as other users of pinned memory count it. */
static bool tow_import_may_pin(unsigned long pages)
{
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	unsigned long now;

	now = atomic64_add_return(pages, &current->mm->pinned_vm);
	if (now <= limit || capable(CAP_IPC_LOCK))
		return true;
	atomic64_sub(pages, &current->mm->pinned_vm);
	return false;
}

static int tow_import_account(struct tow_import *import, unsigned long pages)
{
	if (!tow_import_may_pin(pages)) {
		/* Some may be given back in a moment. */
		tow_imports_wait(&import->dev->memory->imports);
		if (!tow_import_may_pin(pages))
			return -ENOMEM;
	}
	mmgrab(current->mm);
	import->mm = current->mm;
	import->accounted = pages;
	return 0;
}

/* Pins some pages: how many, or a negative errno. */
static int tow_import_pin_some(struct tow_import *import,
			       struct tow_pinning *pinning, unsigned long most)
{
	int count = min3(most, pinning->left, (unsigned long)TOW_PIN_BATCH);
	int got;

	got = tow_slab_interrupted(import->dev);
	if (got)
		return got;
	if (import->readonly)
		got = tow_pin_to_read(pinning->address, count, pinning->batch);
	else
		got = pin_user_pages_fast(pinning->address, count,
					  FOLL_LONGTERM | FOLL_WRITE,
					  pinning->batch);
	/* Without progress we would try for ever. */
	return got ?: -EFAULT;
}

/* Pins what is to be one slab. */
static int tow_import_pin_part(struct tow_import *import,
			       struct tow_pinning *pinning,
			       struct sg_append_table *table)
{
	unsigned long left = min(pinning->left, pinning->slab_pages);
	int got, ret;

	while (left) {
		got = tow_import_pin_some(import, pinning, left);
		if (got < 0)
			return got;
		left -= got;
		ret = sg_alloc_append_table_from_pages(table, pinning->batch,
						       got, 0,
						       (u64)got << PAGE_SHIFT,
						       pinning->max_segment, left,
						       GFP_KERNEL_ACCOUNT);
		if (ret) {
			unpin_user_pages(pinning->batch, got);
			return ret;
		}
		pinning->left -= got;
		pinning->address += (unsigned long)got << PAGE_SHIFT;
	}
	return 0;
}

static int tow_import_pin(struct tow_import *import, struct tow_pinning *pinning)
{
	unsigned int i;
	int ret = 0;

	/* However much a program asks for, that is no reason to warn. */
	import->part_count = DIV_ROUND_UP(pinning->left, pinning->slab_pages);
	import->parts = kvcalloc(import->part_count, sizeof(*import->parts),
				 GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	pinning->batch = (struct page **)__get_free_page(GFP_KERNEL);
	if (!import->parts || !pinning->batch)
		ret = -ENOMEM;
	for (i = 0; !ret && i < import->part_count; i++)
		ret = tow_import_pin_part(import, pinning,
					  &import->parts[i].pages);
	free_page((unsigned long)pinning->batch);
	return ret;
}

static void tow_import_unpin_part(struct tow_import *import,
				  struct tow_import_part *part)
{
	struct scatterlist *sg;
	unsigned int i;

	for_each_sgtable_sg(&part->pages.sgt, sg, i)
		unpin_user_page_range_dirty_lock(sg_page(sg),
						 sg->length >> PAGE_SHIFT,
						 !import->readonly);
	sg_free_append_table(&part->pages);
}

/* It may not have come so far. */
static void tow_import_unpin(struct tow_import *import)
{
	unsigned int i;

	for (i = 0; import->parts && i < import->part_count; i++) {
		/* The first that there is nothing of is the end. */
		if (!import->parts[i].pages.sgt.sgl)
			break;
		tow_import_unpin_part(import, &import->parts[i]);
		cond_resched();
	}
	kvfree(import->parts);
	if (import->mm) {
		atomic64_sub(import->accounted, &import->mm->pinned_vm);
		mmdrop(import->mm);
	}
}

static void tow_import_unmap_parts(struct tow_import *import)
{
	struct tow_device *dev = import->dev;
	unsigned int i;

	for (i = 0; i < import->part_count && import->parts[i].mapped; i++) {
		ib_dma_unmap_sgtable_attrs(dev->ibdev, &import->parts[i].pages.sgt,
					   tow_import_direction(import),
					   DMA_ATTR_SKIP_CPU_SYNC);
		import->parts[i].mapped = false;
		tow_stat_inc(dev, TOW_STAT_DMA_UNMAPS);
	}
}

static struct page *tow_import_page(const struct tow_region *region,
				    unsigned int index, u64 offset)
{
	const struct tow_import *import = container_of(region->backing,
						       struct tow_import,
						       backing);
	const struct sg_table *table = &import->parts[index].pages.sgt;
	struct scatterlist *sg;
	unsigned int i;

	for_each_sgtable_sg(table, sg, i) {
		if (offset < sg->length)
			break;
		offset -= sg->length;
	}
	return sg_page(sg) + (offset >> PAGE_SHIFT);
}

static const struct tow_import_ops tow_import_user_ops = {
	.backing.release	= tow_import_release,
	.backing.page		= tow_import_page,
	.unmap			= tow_import_unmap_parts,
	.put			= tow_import_unpin,
};

/*
 * The device is coherent, and copies nothing.  Without a word about that the DMA API's
 * checker complains when a page is mapped twice, as it may be by two imports.
 */
static int tow_import_map_part(struct tow_import *import,
			       struct tow_import_part *part, u64 bytes)
{
	struct sg_table *table = &part->pages.sgt;
	struct tow_segments segments;

	if (ib_dma_map_sgtable_attrs(import->dev->ibdev, table,
				     tow_import_direction(import),
				     DMA_ATTR_SKIP_CPU_SYNC))
		return -ENOMEM;
	part->mapped = true;
	tow_stat_inc(import->dev, TOW_STAT_DMA_MAPS);
	segments = tow_segments_of(table);
	return tow_import_add_slab(import, &segments, bytes);
}

/* Called by users of the device. */
static int tow_import_map_parts(struct tow_import *import, u64 bytes,
				u64 slab_bytes)
{
	unsigned int i;
	int ret = 0;

	if (tow_slab_needs_copies(import->dev->ibdev))
		return -EOPNOTSUPP;
	tow_import_arrive(import);
	for (i = 0; !ret && i < import->part_count; i++) {
		ret = tow_slab_interrupted(import->dev);
		if (!ret)
			ret = tow_import_map_part(import, &import->parts[i],
						  min(bytes - i * slab_bytes,
						      slab_bytes));
	}
	return ret;
}

static int tow_import_user_fill(struct tow_import *import,
				struct tow_client *client,
				struct tow_pinning pinning)
{
	u64 slab_bytes = (u64)pinning.slab_pages << PAGE_SHIFT;
	u64 bytes = (u64)pinning.left << PAGE_SHIFT;
	int ret;

	/* Nor is so much kept of it then that the machine has no memory for that. */
	if (pinning.left > totalram_pages())
		return -ENOMEM;
	ret = tow_import_charge(import, client, bytes, slab_bytes);
	if (!ret)
		ret = tow_import_account(import, pinning.left);
	if (!ret)
		ret = tow_import_pin(import, &pinning);
	if (ret)
		return ret;
	if (!tow_device_enter(import->dev))
		return -ENODEV;
	ret = tow_import_map_parts(import, bytes, slab_bytes);
	tow_device_leave(import->dev);
	return ret;
}

static struct tow_import *tow_import_user_new(struct tow_client *client,
					      const struct tow_pinning *pinning,
					      bool readonly)
{
	struct tow_import *import = tow_import_alloc(client->dev, readonly,
						      &tow_import_user_ops);
	int ret;

	if (!import)
		return ERR_PTR(-ENOMEM);
	ret = tow_import_user_fill(import, client, *pinning);
	if (ret) {
		tow_import_drop(import);
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
	struct tow_pinning pinning = { .address = address & PAGE_MASK };
	struct tow_device *dev = client->dev;
	struct tow_import *import;
	u64 end;

	if (check_add_overflow(address, bytes, &end) ||
	    end > ULONG_MAX - PAGE_SIZE)
		return ERR_PTR(-EINVAL);
	if (end > TASK_SIZE_MAX)
		return ERR_PTR(-EFAULT);
	pinning.left = DIV_ROUND_UP_ULL(end - pinning.address, PAGE_SIZE);
	if (!tow_device_enter(dev))
		return ERR_PTR(-ENODEV);
	pinning.slab_pages = tow_import_slab_bytes(dev) >> PAGE_SHIFT;
	pinning.max_segment = ib_dma_max_seg_size(dev->ibdev);
	tow_device_leave(dev);
	import = tow_import_user_new(client, &pinning, readonly);
	if (IS_ERR(import))
		return ERR_CAST(import);
	return tow_import_region(client, import,
				 (u64)pinning.slab_pages << PAGE_SHIFT,
				 address - pinning.address, bytes,
				 TOW_REGION_USER_MEMORY |
				 (readonly ? TOW_REGION_READONLY : 0));
}
