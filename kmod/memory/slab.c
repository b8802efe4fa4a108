// SPDX-License-Identifier: GPL-2.0
/*
 * Slabs: memory that the RDMA device reaches under one registration.  One of the pool
 * consists of chunks from the page allocator, one of imported memory of somebody else's
 * pages; both are registered alike.
 *
 * Memory
 *
 * A chunk is one compound page of the page allocator (__GFP_COMP), so that all
 * references to any part of it are counted in one place, its head.  The pool's
 * own is one; tow_slab_ours_alone() is true when there is no other: no mapping,
 * no pipe, no pin.  A slab should be one chunk; where memory is fragmented it
 * is several smaller ones of one size, and mappings of it cost more page faults.  Where
 * there are only pieces below TOW_SLAB_SMALL_BYTES, no slab is made.
 *
 * Registration
 *
 * A slab has up to two memory regions of the RDMA device: one for peers that
 * only read, one for peers that write.  Each is made when its first export comes,
 * and stays with the slab: what was exported once is exported again without a
 * command to the hardware.  It is registered, by a work request on the maintenance
 * queue pair, when the first export comes, and invalidated when the last one goes;
 * its key changes with each registration.  The caller of towk_slab_hide() has made
 * sure before that no peer uses the key any more: invalidation does not wait for
 * anybody.
 *
 * Where the device has no more memory regions, those that no export needs are taken
 * from whichever slabs have them: see tow_pool_reclaim_mrs().
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/dma-map-ops.h>
#include <linux/dma-mapping.h>
#include <linux/highmem.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "core/compat.h"
#include "core/trace.h"
#include "internal.h"

/* So much of the machine's memory is never taken, that the machine may live. */
#define TOW_SPARE_DIVISOR	16

/* Chunks of the pool have 2^order pages at least: TOW_SLAB_SMALL_BYTES. */
#define TOW_SLAB_MIN_ORDER	get_order(TOW_SLAB_SMALL_BYTES)

/* Between two looks whether somebody else wants the processor. */
#define TOW_ZERO_PAGES		64

/**
 * tow_slab_interrupted - may what goes over many slabs go on?
 * @dev: the device, which removal may be waiting to take from the caller
 *
 * A region may have all of a machine's memory; removal takes seconds at most,
 * and whoever is killed goes.
 *
 * Return: 0; -ENODEV: the device is going; -EINTR: the caller was killed.
 */
int tow_slab_interrupted(struct tow_device *dev)
{
	if (tow_device_going(dev))
		return -ENODEV;
	if (fatal_signal_pending(current))
		return -EINTR;
	cond_resched();
	return 0;
}

/**
 * tow_slab_alloc - a slab without memory
 * @dev: the device
 * @class: of what kind
 * @chunk_count: how many chunks there is room for
 * @gfp: how to allocate: an import is accounted to its client
 *
 * Return: the slab, its chunks empty; or NULL.
 */
struct tow_slab *tow_slab_alloc(struct tow_device *dev,
				enum tow_slab_class class,
				unsigned int chunk_count, gfp_t gfp)
{
	struct tow_slab *slab;

	slab = kvzalloc(struct_size(slab, chunks, chunk_count), gfp);
	if (!slab)
		return NULL;
	INIT_LIST_HEAD(&slab->list);
	INIT_LIST_HEAD(&slab->all);
	mutex_init(&slab->lock);
	slab->dev = dev;
	slab->class = class;
	return slab;
}

/* Would taking @bytes more leave the machine enough to live on? */
static bool tow_slab_memory_left(u64 bytes)
{
	struct sysinfo info;
	u64 spare;

	si_meminfo(&info);
	spare = (info.totalram / TOW_SPARE_DIVISOR) << PAGE_SHIFT;
	return ((u64)si_mem_available() << PAGE_SHIFT) > spare + bytes;
}

static struct page *tow_slab_alloc_pages(struct tow_device *dev,
					 unsigned int order)
{
	gfp_t gfp = GFP_KERNEL | __GFP_COMP | __GFP_ZERO | __GFP_NOWARN;
	struct page *page;

	/* Big ones are nice to have; not at any price, and never at OOM's. */
	gfp |= order > TOW_SLAB_MIN_ORDER ? __GFP_NORETRY : __GFP_RETRY_MAYFAIL;
	page = alloc_pages_node(ibdev_to_node(dev->ibdev), gfp, order);
	/*
	 * Its last owner's number may be there yet.  6.12's finish_fault() takes it
	 * for the place in the file, and maps nothing at once beyond a file's end.
	 */
	if (page)
		page_folio(page)->index = 0;
	return page;
}

static bool tow_chunk_poisoned(const struct tow_chunk *chunk)
{
	u64 page;

	for (page = 0; page < chunk->bytes >> PAGE_SHIFT; page++) {
		if (PageHWPoison(chunk->page + page))
			return true;
	}
	return false;
}

static void tow_chunk_lose(struct tow_device *dev, const struct tow_chunk *chunk)
{
	char name[TOW_DEVICE_NAME_MAX];

	tow_device_name(dev, name);
	tow_stat_inc(dev, TOW_STAT_POISONED_CHUNKS);
	pr_warn("%s: memory with a hardware error is used no more: %llu bytes from page frame %#lx on\n",
		name, chunk->bytes, page_to_pfn(chunk->page));
}

/**
 * tow_slab_free - give a slab's pages back to the machine
 * @slab: a slab of the pool that was detached; gone afterwards
 *
 * Pages that somebody else still uses go when he lets go of them.  A chunk with a
 * poisoned page never goes: of several pages the page allocator looks for that at none,
 * and would hand them out.
 */
void tow_slab_free(struct tow_slab *slab)
{
	unsigned int i;

	trace_tow_slab_free(slab);
	for (i = 0; i < slab->chunk_count; i++) {
		if (tow_chunk_poisoned(&slab->chunks[i]))
			tow_chunk_lose(slab->dev, &slab->chunks[i]);
		else
			put_page(slab->chunks[i].page);
	}
	kvfree(slab);
}

/**
 * tow_slab_uncharge - nobody else uses a slab's pages, or it does not matter any more
 * @slab: a slab of the pool that no region has
 */
void tow_slab_uncharge(struct tow_slab *slab)
{
	if (slab->payer)
		tow_account_uncharge(slab->payer, slab->bytes);
	slab->payer = NULL;
}

/* A slab in chunks of 2^order pages; NULL: they cannot be had. */
static struct tow_slab *tow_slab_find_memory(struct tow_device *dev,
					     enum tow_slab_class class,
					     unsigned int order)
{
	u64 bytes = tow_pool_slab_bytes(&dev->memory->pool, class);
	unsigned int count = bytes >> (order + PAGE_SHIFT);
	struct tow_slab *slab;

	slab = tow_slab_alloc(dev, class, count, GFP_KERNEL);
	while (slab && slab->chunk_count < count) {
		struct tow_chunk *chunk = &slab->chunks[slab->chunk_count];

		chunk->page = tow_slab_alloc_pages(dev, order);
		if (!chunk->page) {
			tow_slab_free(slab);
			return NULL;
		}
		chunk->at = slab->bytes;
		chunk->bytes = PAGE_SIZE << order;
		slab->bytes += chunk->bytes;
		slab->chunk_count++;
		trace_tow_chunk_alloc(dev, chunk);
	}
	return slab;
}

static void tow_slab_unmap(struct tow_slab *slab)
{
	while (slab->mapped) {
		struct tow_chunk *chunk = &slab->chunks[--slab->mapped];

		ib_dma_unmap_page(slab->dev->ibdev, chunk->dma, chunk->bytes,
				  DMA_BIDIRECTIONAL);
		tow_stat_inc(slab->dev, TOW_STAT_DMA_UNMAPS);
	}
}

/**
 * tow_slab_needs_copies - must memory be copied for a device, or its caches be seen to?
 * @ibdev: the device
 *
 * Copies go through buffers that are much smaller than a large slab, and only devices
 * that may need them have that limit.  Without such buffers a device that does not reach
 * all memory has none.
 *
 * dma_need_sync() is another question: before 6.10 the answer is yes for every device
 * behind an IOMMU.
 *
 * Return: true: it is no memory for us.
 */
bool tow_slab_needs_copies(struct ib_device *ibdev)
{
	if (ib_uses_virt_dma(ibdev))
		return false;
	return !dev_is_dma_coherent(ibdev->dma_device) ||
	       dma_addressing_limited(ibdev->dma_device) ||
	       dma_max_mapping_size(ibdev->dma_device) < TOW_SLAB_LARGE_BYTES;
}

/* Called by users of the device; tow_slab_detach() undoes it, also after a failure. */
static int tow_slab_map(struct tow_slab *slab)
{
	struct ib_device *ibdev = slab->dev->ibdev;

	if (tow_slab_needs_copies(ibdev))
		return -EOPNOTSUPP;
	while (slab->mapped < slab->chunk_count) {
		struct tow_chunk *chunk = &slab->chunks[slab->mapped];
		dma_addr_t dma;

		dma = ib_dma_map_page(ibdev, chunk->page, 0, chunk->bytes,
				      DMA_BIDIRECTIONAL);
		if (ib_dma_mapping_error(ibdev, dma))
			return -ENOMEM;
		chunk->dma = dma;
		slab->mapped++;
		tow_stat_inc(slab->dev, TOW_STAT_DMA_MAPS);
	}
	return 0;
}

/*
 * Called with the lock held.  A memory region that could not be registered or
 * invalidated is destroyed, too, which ends its key.
 */
static void tow_slab_free_mr(struct tow_slab *slab, enum tow_rights rights)
{
	tow_keys_remove(&slab->dev->memory->keys, slab->mr[rights]);
	ib_dereg_mr(slab->mr[rights]);
	slab->mr[rights] = NULL;
	tow_limits_give_mr(&slab->dev->limits);
}

/* Called with the lock held: those that no export needs, or @all.  Return: how many. */
static unsigned int tow_slab_free_mrs(struct tow_slab *slab, bool all)
{
	unsigned int i, count = 0;

	for (i = 0; i < TOW_RIGHTS; i++) {
		if (slab->mr[i] && (all || !slab->exposed[i])) {
			tow_slab_free_mr(slab, i);
			count++;
		}
	}
	return count;
}

/**
 * tow_slab_reclaim_mrs - take memory regions that no export needs
 * @slab: a slab of the pool; the caller is a user of the device, or removal waits
 *	for it
 *
 * Return: how many; none if somebody is at the slab just now.
 */
unsigned int tow_slab_reclaim_mrs(struct tow_slab *slab)
{
	unsigned int count;

	if (!mutex_trylock(&slab->lock))
		return 0;
	count = tow_slab_free_mrs(slab, false);
	mutex_unlock(&slab->lock);
	return count;
}

/*
 * The largest page that divides every chunk and that the device can do: the fewer
 * pages, the less the device has to look up and to keep.
 */
static u32 tow_slab_page_bytes(struct tow_slab *slab)
{
	struct tow_device *dev = slab->dev;
	unsigned int i;
	u64 all = 0;

	for (i = 0; i < slab->chunk_count; i++)
		all |= slab->chunks[i].dma | slab->chunks[i].bytes;
	return tow_slab_reg_bytes(all, READ_ONCE(dev->memory->maint.page_bytes),
				  dev->ibdev->attrs.page_size_cap, PAGE_SIZE);
}

static int tow_slab_alloc_mr(struct tow_slab *slab, enum tow_rights rights)
{
	u32 page_bytes = tow_slab_page_bytes(slab);
	struct tow_device *dev = slab->dev;
	struct ib_mr *mr;
	int ret;

	ret = tow_limits_take_mr(&dev->limits);
	if (ret)
		return ret;
	mr = ib_alloc_mr(dev->pd, IB_MR_TYPE_MEM_REG, slab->bytes / page_bytes);
	if (IS_ERR(mr)) {
		ret = PTR_ERR(mr);
		goto err_give;
	}
	ret = tow_keys_add(&dev->memory->keys, slab, mr);
	if (ret)
		goto err_dereg;
	slab->mr[rights] = mr;
	slab->page_bytes[rights] = page_bytes;
	return 0;

err_dereg:
	ib_dereg_mr(mr);
err_give:
	tow_limits_give_mr(&dev->limits);
	return ret;
}

/**
 * tow_slab_make - make a slab of the pool
 * @dev: the device; the caller is a user of it
 * @class: small or large
 *
 * Return: the slab, mapped, zeroed; or an ERR_PTR(): -ENOMEM: the machine has no
 * memory, or what is left is for others, or in small pieces; -EOPNOTSUPP: the device cannot reach
 * memory without copies.
 */
struct tow_slab *tow_slab_make(struct tow_device *dev,
			       enum tow_slab_class class)
{
	u64 bytes = tow_pool_slab_bytes(&dev->memory->pool, class);
	int order = get_order(bytes), ret;
	struct tow_slab *slab = NULL;

	if (tow_slab_memory_left(bytes)) {
		for (; !slab && order >= TOW_SLAB_MIN_ORDER; order--)
			slab = tow_slab_find_memory(dev, class, order);
	}
	if (!slab)
		return ERR_PTR(-ENOMEM);
	ret = tow_slab_map(slab);
	if (ret) {
		tow_slab_detach(slab);
		tow_slab_free(slab);
		return ERR_PTR(ret);
	}
	trace_tow_slab_make(slab);
	return slab;
}

/**
 * tow_slab_detach - take a slab off the RDMA device
 * @slab: the slab, not reached by any peer; the RDMA device is still there
 *
 * Its pages stay.
 */
void tow_slab_detach(struct tow_slab *slab)
{
	mutex_lock(&slab->lock);
	tow_slab_free_mrs(slab, true);
	tow_slab_unmap(slab);
	mutex_unlock(&slab->lock);
}

/**
 * tow_slab_zero - forget what is in a slab
 * @slab: a slab of the pool that is in nobody's hands
 *
 * Return: 0; -EHWPOISON: part of it has a hardware error, and must not be touched.
 */
int tow_slab_zero(struct tow_slab *slab)
{
	unsigned int i;
	u64 page;

	for (i = 0; i < slab->chunk_count; i++) {
		struct tow_chunk *chunk = &slab->chunks[i];

		if (tow_chunk_poisoned(chunk))
			return -EHWPOISON;
		for (page = 0; page < chunk->bytes >> PAGE_SHIFT; page++) {
			clear_highpage(chunk->page + page);
			if (page % TOW_ZERO_PAGES == 0)
				cond_resched();
		}
	}
	return 0;
}

/**
 * tow_slab_ours_alone - does nobody else use its pages?
 * @slab: a slab of the pool that no region has and no mapping shows
 *
 * Return: true if the pool's own reference to each chunk is the only one.
 */
bool tow_slab_ours_alone(struct tow_slab *slab)
{
	unsigned int i;

	for (i = 0; i < slab->chunk_count; i++) {
		if (page_count(slab->chunks[i].page) != 1)
			return false;
	}
	return true;
}

/**
 * tow_slab_page - the page at an offset
 * @slab: a slab of the pool
 * @offset: in bytes, below the slab's size
 *
 * Return: the page.
 */
struct page *tow_slab_page(struct tow_slab *slab, u64 offset)
{
	const struct tow_chunk *chunk = tow_slab_chunk(slab, offset);

	return chunk->page + ((offset - chunk->at) >> PAGE_SHIFT);
}

/* Tell a memory region where its slab's chunks are. */
static int tow_slab_map_mr(struct tow_slab *slab, enum tow_rights rights)
{
	struct scatterlist one, *list = &one;
	unsigned int i;
	int ret;

	/* A slab may be one chunk. */
	BUILD_BUG_ON(max(TOW_SLAB_LARGE_BYTES, TOW_SLAB_MAX_BYTES) > UINT_MAX);
	/* And is whole pages. */
	BUILD_BUG_ON(TOW_SLAB_SMALL_BYTES % PAGE_SIZE);
	if (slab->chunk_count > 1) {
		list = kvmalloc_array(slab->chunk_count, sizeof(*list),
				      GFP_KERNEL);
		if (!list)
			return -ENOMEM;
	}
	sg_init_table(list, slab->chunk_count);
	for (i = 0; i < slab->chunk_count; i++) {
		struct tow_chunk *chunk = &slab->chunks[i];

		sg_dma_address(&list[i]) = chunk->dma;
		sg_dma_len(&list[i]) = chunk->bytes;
	}
	ret = ib_map_mr_sg(slab->mr[rights], list, slab->chunk_count, NULL,
			   slab->page_bytes[rights]);
	if (slab->chunk_count > 1)
		kvfree(list);
	if (ret == slab->chunk_count)
		return 0;
	return ret < 0 ? ret : -EIO;
}

/* Register what a memory region was mapped to. */
static int tow_slab_register(struct tow_slab *slab, enum tow_rights rights, u32 key)
{
	struct tow_maint *maint = &slab->dev->memory->maint;
	struct ib_reg_wr reg;
	int ret;

	reg = tow_maint_registration(maint, slab->mr[rights], rights, key);
	ret = tow_maint_run(maint, &reg.wr);
	trace_tow_mr_register(slab, rights, ret);
	if (!ret)
		tow_stat_inc(slab->dev, TOW_STAT_REGISTRATIONS);
	return ret;
}

static void tow_slab_invalidate(struct tow_slab *slab, enum tow_rights rights)
{
	struct ib_send_wr invalidate = tow_maint_invalidation(slab->mr[rights]);
	int ret;

	ret = tow_maint_run(&slab->dev->memory->maint, &invalidate);
	trace_tow_mr_invalidate(slab, rights, ret);
	if (ret)
		tow_slab_free_mr(slab, rights);
	tow_stat_inc(slab->dev, TOW_STAT_INVALIDATIONS);
}

/**
 * tow_slab_restore - register again what a peer has invalidated
 * @slab: the slab; the caller holds its lock, and removal waits for the caller
 * @key: what the peer named; nothing is done if no export needs it any more
 * @unknown: it may have been done already, and is undone first
 *
 * Return: 0 or an error of tow_maint_run().
 */
int tow_slab_restore(struct tow_slab *slab, u32 key, bool unknown)
{
	enum tow_rights rights;

	lockdep_assert_held(&slab->lock);
	for (rights = 0; rights < TOW_RIGHTS; rights++) {
		if (slab->exposed[rights] && slab->mr[rights] &&
		    slab->mr[rights]->rkey == key)
			break;
	}
	if (rights == TOW_RIGHTS ||
	    (slab->backing && tow_backing_invalid(slab->backing)))
		return 0;
	if (unknown) {
		struct ib_send_wr invalidate =
			tow_maint_invalidation(slab->mr[rights]);

		/* It fails where a device refuses to do it twice. */
		tow_maint_run(&slab->dev->memory->maint, &invalidate);
	}
	return tow_slab_register(slab, rights, key);
}

/**
 * tow_slab_expose - towk_slab_expose(), if there is a memory region for it
 * @slab: the slab; the caller is a user of the device
 * @rights: not to write if it may only be read
 * @key: as there
 * @address: as there
 *
 * Return: as there.
 */
int tow_slab_expose(struct tow_slab *slab, enum tow_rights rights, u32 *key,
		    u64 *address)
{
	int ret = 0;

	mutex_lock(&slab->lock);
	/* It is off the device then, or will be when we let go of the lock. */
	if (slab->backing && tow_backing_invalid(slab->backing))
		ret = -EFAULT;
	else if (!slab->mr[rights])
		ret = tow_slab_alloc_mr(slab, rights);
	if (!ret && !slab->exposed[rights]) {
		ret = tow_slab_map_mr(slab, rights) ?:
		      tow_slab_register(slab, rights,
					ib_inc_rkey(slab->mr[rights]->rkey));
		if (ret)
			tow_slab_free_mr(slab, rights);
	}
	if (!ret) {
		slab->exposed[rights]++;
		*key = slab->mr[rights]->rkey;
		*address = slab->mr[rights]->iova;
	}
	mutex_unlock(&slab->lock);
	return ret;
}

/**
 * towk_slab_hide - undo towk_slab_expose()
 * @slab: the slab; the caller is a user of the device
 * @rights: as they were given
 *
 * When this returns and there is no other exposure the key is refused.  No peer
 * may have an operation with it in flight: invalidation is not a fence.
 */
void towk_slab_hide(struct tow_slab *slab, enum tow_rights rights)
{
	mutex_lock(&slab->lock);
	if (!WARN_ON_ONCE(!slab->exposed[rights]) && !--slab->exposed[rights] &&
	    slab->mr[rights])
		tow_slab_invalidate(slab, rights);
	mutex_unlock(&slab->lock);
}
EXPORT_SYMBOL_GPL(towk_slab_hide);
