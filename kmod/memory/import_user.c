// SPDX-License-Identifier: GPL-2.0
/*
 * Imports of a process's own memory: its pages, pinned, which become slabs (import.c).
 *
 * Pages are pinned without the device, as a page that is not there may keep us waiting
 * for as long as a program likes.  Then all of them are mapped.
 */
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "core/compat.h"
#include "internal.h"

/* Pinned at a time: as many pointers as a page holds. */
#define TOW_PIN_BATCH	(PAGE_SIZE / sizeof(struct page *))

/* Of RLIMIT_MEMLOCK, as other users of pinned memory count it. */
static bool tow_import_account(struct tow_import *import)
{
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	unsigned long pages = import->bytes >> PAGE_SHIFT;
	unsigned long now;

	now = atomic64_add_return(pages, &current->mm->pinned_vm);
	if (now > limit && !capable(CAP_IPC_LOCK)) {
		atomic64_sub(pages, &current->mm->pinned_vm);
		return false;
	}
	mmgrab(current->mm);
	import->mm = current->mm;
	return true;
}

static int tow_import_pin(struct tow_import *import, unsigned long address)
{
	unsigned int flags = FOLL_LONGTERM | (import->readonly ? 0 : FOLL_WRITE);
	struct page **batch = (struct page **)__get_free_page(GFP_KERNEL);
	unsigned long left = import->bytes >> PAGE_SHIFT;
	int ret = batch ? 0 : -ENOMEM;
	int got;

	for (; left && !ret; left -= got, address += got << PAGE_SHIFT) {
		got = tow_slab_interrupted(import->dev) ?:
		      tow_pin_user_pages(address, min(left, TOW_PIN_BATCH),
					 flags, batch);
		/* Without progress we would try for ever. */
		ret = got > 0 ? 0 : got ?: -EFAULT;
		if (ret)
			break;
		ret = sg_alloc_append_table_from_pages(&import->pages, batch, got,
						       0, got << PAGE_SHIFT,
						       import->max_segment,
						       left - got,
						       GFP_KERNEL_ACCOUNT);
		if (ret)
			unpin_user_pages(batch, got);
	}
	free_page((unsigned long)batch);
	return ret;
}

/* It may not have come so far. */
static void tow_import_unpin(struct tow_import *import)
{
	struct scatterlist *sg;
	unsigned int i;

	for_each_sgtable_sg(&import->pages.sgt, sg, i) {
		unpin_user_page_range_dirty_lock(sg_page(sg),
						 sg->length >> PAGE_SHIFT,
						 !import->readonly);
		cond_resched();
	}
	sg_free_append_table(&import->pages);
	if (import->mm) {
		atomic64_sub(import->bytes >> PAGE_SHIFT,
			     &import->mm->pinned_vm);
		mmdrop(import->mm);
	}
}

/*
 * The device is coherent, and copies nothing.  Without a word about that the DMA API's
 * checker complains when a page is mapped twice, as it may be by two imports.
 */
static int tow_import_map_user(struct tow_import *import)
{
	if (ib_dma_map_sgtable_attrs(import->dev->ibdev, &import->pages.sgt,
				     tow_import_direction(import),
				     DMA_ATTR_SKIP_CPU_SYNC))
		return -ENOMEM;
	import->table = &import->pages.sgt;
	return 0;
}

static void tow_import_unmap_user(struct tow_import *import)
{
	if (!import->table)
		return;
	ib_dma_unmap_sgtable_attrs(import->dev->ibdev, import->table,
				   tow_import_direction(import),
				   DMA_ATTR_SKIP_CPU_SYNC);
	tow_stat_inc(import->dev, TOW_STAT_DMA_UNMAPS);
}

/* Find where each slab begins among the pages, so that nobody looks for it again. */
static void tow_import_find_slabs(struct tow_import *import)
{
	u64 at = 0, begin = 0;
	unsigned int slab = 0, i;
	struct scatterlist *sg;

	for_each_sgtable_sg(&import->pages.sgt, sg, i) {
		for (; slab < import->slab_count && begin < at + sg->length;
		     begin += import->slab_bytes) {
			import->slabs[slab]->pages = sg;
			import->slabs[slab++]->pages_skip = begin - at;
		}
		at += sg->length;
		cond_resched();
	}
}

static struct page *tow_import_page(const struct tow_region *region,
				    unsigned int index, u64 offset)
{
	const struct tow_slab *slab = region->slabs[index];
	struct scatterlist *sg = slab->pages;

	offset += slab->pages_skip;
	for (; offset >= sg->length; sg = sg_next(sg))
		offset -= sg->length;
	return sg_page(sg) + (offset >> PAGE_SHIFT);
}

static const struct tow_import_ops tow_import_user_ops = {
	.backing.release	= tow_import_release,
	.backing.page		= tow_import_page,
	.map			= tow_import_map_user,
	.unmap			= tow_import_unmap_user,
	.put			= tow_import_unpin,
};

static int tow_import_user_fill(struct tow_import *import,
				struct tow_client *client, u64 address)
{
	int ret;

	/*
	 * Nor is so much kept of it then that the machine has no memory for that; and
	 * one list of segments counts pages in an unsigned int.
	 */
	if (import->bytes >> PAGE_SHIFT >
	    min_t(unsigned long, totalram_pages(), UINT_MAX))
		return -ENOMEM;
	ret = tow_import_charge(import, client);
	if (ret)
		return ret;
	if (!tow_import_account(import)) {
		/* Some may be given back in a moment. */
		tow_imports_wait(&import->dev->memory->imports);
		if (!tow_import_account(import))
			return -ENOMEM;
	}
	ret = tow_import_pin(import, address) ?: tow_import_map(import);
	if (!ret)
		tow_import_find_slabs(import);
	return ret;
}

/**
 * tow_import_user - make a region of the current process's memory
 * @client: whose it is to be
 * @address: where it begins
 * @bytes: how much, at least 1
 * @readonly: the device does not write to it
 *
 * Not for users of the device: the program's pages may let us wait.
 *
 * Return: the region with the caller's reference, or an ERR_PTR(): see
 * TOW_IOCTL_REGION_IMPORT_USER.
 */
struct tow_region *tow_import_user(struct tow_client *client, u64 address,
				   u64 bytes, bool readonly)
{
	u64 skip = offset_in_page(address), end;
	struct tow_import *import;
	int ret;

	if (check_add_overflow(address, bytes, &end) ||
	    end > ULONG_MAX - PAGE_SIZE)
		return ERR_PTR(-EINVAL);
	if (end > TASK_SIZE_MAX)
		return ERR_PTR(-EFAULT);
	import = tow_import_new(client->dev, PAGE_ALIGN(skip + bytes), readonly,
				&tow_import_user_ops);
	if (IS_ERR(import))
		return ERR_CAST(import);
	ret = tow_import_user_fill(import, client, address - skip);
	return tow_import_region(client, import, ret, skip, bytes);
}
