// SPDX-License-Identifier: GPL-2.0
/*
 * Imports of another driver's dma-buf, which it may take back at any moment (import.c).
 *
 * What its exporter is waited for
 *
 * An exporter may take its time: it moves memory that is to be pinned, and its fences
 * say when that has happened.  Nothing of ours is held meanwhile, and whoever asked can
 * be killed; removal does not wait.  Only while memory is mapped for the RDMA device is
 * the caller a user of that.  An exporter that cannot move its memory maps it as soon as
 * it is attached to, which is part of the mapping then.
 *
 * What its exporter takes back
 *
 * An exporter may ask for its memory at any time (tow_import_invalidate()), though it is
 * pinned: it is over for the import then, for good.  From that moment on nothing is
 * begun that uses the memory.  A fence is added to the reservation object, for which
 * whoever moves the memory waits, and a work item sees to it that what is under way
 * comes to an end: exports are revoked, in two phases, as if their owner had wished it;
 * what was posted here completes.  What takes longer than revoke_timeout_ms loses its
 * queue pair.  Then nobody reaches the memory any more, the fence says so, and another
 * work item takes the import off the RDMA device, for which it needs the exporter.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/device.h>
#include <linux/dma-buf.h>
#include <linux/dma-fence.h>
#include <linux/dma-resv.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "core/compat.h"
#include "internal.h"

/* Between two looks whether the device is going, while an exporter is waited for. */
#define TOW_IMPORT_LOOK	(HZ / 10)

/* Places for fences that are left to an exporter. */
#define TOW_FENCES_SPARE	8

/* ---- fences --------------------------------------------------------------- */

/**
 * struct tow_import_fence - nobody reaches an import's memory any more
 * @base: the fence
 * @told: others know it, and may keep it for long: it holds the module
 * @lock: of @base
 */
struct tow_import_fence {
	struct dma_fence	base;
	bool			told;
	/* of base */
	spinlock_t		lock;
};

static const char *tow_import_fence_driver(struct dma_fence *fence)
{
	return KBUILD_MODNAME;
}

static const char *tow_import_fence_timeline(struct dma_fence *fence)
{
	return "import";
}

static void tow_import_fence_release(struct dma_fence *fence)
{
	bool told = container_of(fence, struct tow_import_fence, base)->told;

	dma_fence_free(fence);
	if (told)
		module_put(THIS_MODULE);
}

static const struct dma_fence_ops tow_import_fence_ops = {
	.get_driver_name	= tow_import_fence_driver,
	.get_timeline_name	= tow_import_fence_timeline,
	.release		= tow_import_fence_release,
};

static struct tow_import_fence *tow_import_fence_new(void)
{
	struct tow_import_fence *fence;

	fence = kzalloc(sizeof(*fence), GFP_KERNEL_ACCOUNT);
	if (!fence)
		return NULL;
	spin_lock_init(&fence->lock);
	dma_fence_init(&fence->base, &tow_import_fence_ops, &fence->lock,
		       dma_fence_context_alloc(1), 1);
	return fence;
}

/* Called with the reservation object locked: whoever moves the memory is to wait. */
static void tow_import_fence_add(struct tow_import_fence *fence,
				 struct dma_resv *resv)
{
	/*
	 * An exporter may have made room for one of its own before.  Without memory
	 * for more the fence is waited for here.
	 */
	if (dma_resv_reserve_fences(resv, 1 + TOW_FENCES_SPARE)) {
		dma_fence_wait(&fence->base, false);
		return;
	}
	__module_get(THIS_MODULE);
	fence->told = true;
	dma_resv_add_fence(resv, &fence->base, DMA_RESV_USAGE_BOOKKEEP);
}

/* ---- taken back ----------------------------------------------------------- */

/**
 * tow_backing_found - what was taken back is in use on a queue pair
 * @backing: what; invalid
 * @look: the number of the look that found it
 *
 * Return: true: it takes too long.
 */
bool tow_backing_found(struct tow_backing *backing, unsigned int look)
{
	struct tow_import *import = container_of(backing, struct tow_import,
						 backing);

	/* Found before its turn: it is looked for again. */
	WRITE_ONCE(import->busy, look);
	return import->deadline && time_after(jiffies, import->deadline);
}

/* Those that were taken back since the last time: their exports are revoked. */
static void tow_imports_begin_revoke(struct tow_device *dev,
				     struct list_head *list)
{
	const struct tow_memory_ops *ops = dev->memory->ops;
	unsigned int limit_ms = ops->revoke_timeout_ms(dev);
	struct tow_imports *imports = &dev->memory->imports;
	struct tow_import *import;
	LIST_HEAD(fresh);

	mutex_lock(&imports->lock);
	list_splice_init(&imports->invalid, &fresh);
	mutex_unlock(&imports->lock);
	list_for_each_entry(import, &fresh, invalidated) {
		/* Never 0: that has a meaning. */
		WRITE_ONCE(import->deadline,
			   (jiffies + msecs_to_jiffies(limit_ms)) | 1);
		/* Pairs with tow_import_region(): who exports it sees it. */
		smp_mb();
		if (READ_ONCE(import->region_id))
			ops->end_exports(dev, import->region_id);
	}
	list_splice_tail(&fresh, list);
}

/* Nobody uses it.  What was exposed and not published has a key that goes here. */
static void tow_import_unused(struct tow_import *import)
{
	unsigned int i;

	/* Whoever else has claimed it tells by the fence when nobody reaches it. */
	if (!tow_import_claim(import)) {
		tow_import_put(import);
		return;
	}
	for (i = 0; i < import->slab_count; i++)
		tow_slab_detach(import->slabs[i]);
	dma_fence_signal(&import->fence->base);
	queue_work(tow_import_wq, &import->leave);
}

/* Takes off the RDMA device what was taken back. */
static void tow_import_leave(struct work_struct *work)
{
	struct tow_import *import = container_of(work, struct tow_import, leave);

	tow_import_take_off(import);
	tow_import_put(import);
}

/**
 * tow_imports_quiesce - see to it that nobody reaches what was taken back
 * @work: of the device's imports
 *
 * All that there are together, as one exporter may take back thousands; each is quiet as
 * soon as nobody uses it.  No exporter is waited for here, as they wait for us.
 */
void tow_imports_quiesce(struct work_struct *work)
{
	struct tow_imports *imports = container_of(work, struct tow_imports,
						   quiesce);
	struct tow_device *dev = imports->dev;
	struct tow_import *import, *next;
	unsigned int look = 0;
	LIST_HEAD(list);

	for (;;) {
		tow_imports_begin_revoke(dev, &list);
		dev->memory->ops->look(dev, ++look);
		list_for_each_entry_safe(import, next, &list, invalidated) {
			if (atomic_read(&import->backing.exports) ||
			    READ_ONCE(import->busy) == look)
				continue;
			list_del_init(&import->invalidated);
			tow_import_unused(import);
		}
		if (list_empty(&list))
			break;
		usleep_range(200, 1000);
	}
	tow_device_put(dev);
}

/* Called by the exporter, with the reservation object locked. */
static void tow_import_invalidate(struct dma_buf_attachment *attachment)
{
	struct tow_import *import = attachment->importer_priv;
	struct tow_import_fence *fence = import->fence;
	struct tow_device *dev = import->dev;
	struct tow_imports *imports = &dev->memory->imports;

	dma_resv_assert_held(attachment->dmabuf->resv);
	/* What nobody holds nobody uses. */
	if (!import->table || import->backing.invalid ||
	    !refcount_inc_not_zero(&import->holders))
		return;
	dma_fence_get(&fence->base);
	/* Pairs with the lock of a link: see tow_memory_ops.look. */
	WRITE_ONCE(import->backing.invalid, true);
	mutex_lock(&imports->lock);
	list_add_tail(&import->invalidated, &imports->invalid);
	mutex_unlock(&imports->lock);
	kref_get(&dev->refs);
	/* Not the last reference: the import has one. */
	if (!queue_work(tow_wq, &imports->quiesce))
		tow_device_put(dev);
	tow_import_fence_add(fence, attachment->dmabuf->resv);
	dma_fence_put(&fence->base);
}

static const struct dma_buf_attach_ops tow_import_attach_ops = {
	.allow_peer2peer	= true,
	.TOW_MOVE_NOTIFY	= tow_import_invalidate,
};

/* ---- the end -------------------------------------------------------------- */

/*
 * Nobody has operations on its memory; it may not be attached.  The real end of a
 * mapping that was made when it was attached is here, too.
 */
static void tow_import_detach_dmabuf(struct tow_import *import)
{
	struct dma_resv *resv = import->dmabuf->resv;
	struct dma_fence *stub;

	if (!import->attachment)
		return;
	/* Whoever has the lock may wait for it. */
	dma_fence_signal(&import->fence->base);
	dma_resv_lock(resv, NULL);
	if (import->table) {
		dma_buf_unmap_attachment(import->attachment, import->table,
					 tow_import_direction(import));
		tow_stat_inc(import->dev, TOW_STAT_DMA_UNMAPS);
	}
	import->table = NULL;
	if (import->pinned)
		dma_buf_unpin(import->attachment);
	/* The exporter has seen the fence by now. */
	stub = dma_fence_get_stub();
	dma_resv_replace_fences(resv, import->fence->base.context, stub,
				DMA_RESV_USAGE_BOOKKEEP);
	dma_fence_put(stub);
	dma_resv_unlock(resv);
	dma_buf_detach(import->dmabuf, import->attachment);
	import->attachment = NULL;
}

static void tow_import_put_dmabuf(struct tow_import *import)
{
	/* It may have been attached to, and not mapped. */
	tow_import_detach_dmabuf(import);
	if (import->fence)
		dma_fence_put(&import->fence->base);
	dma_buf_put(import->dmabuf);
}

/* ---- making --------------------------------------------------------------- */

/*
 * An exporter that cannot move its memory has it mapped by this, for both directions,
 * unless it is attached to in the old way, in which peer-to-peer cannot be had.
 */
static int tow_import_attach(struct tow_import *import)
{
	struct dma_buf_attachment *attachment = ERR_PTR(-EOPNOTSUPP);
	struct dma_buf *dmabuf = import->dmabuf;

	if (import->readonly && !dmabuf->ops->pin)
		attachment = dma_buf_attach(dmabuf, import->dma_device);
	if (IS_ERR(attachment))
		attachment = dma_buf_dynamic_attach(dmabuf, import->dma_device,
						    &tow_import_attach_ops,
						    import);
	if (IS_ERR(attachment))
		return PTR_ERR(attachment);
	import->attachment = attachment;
	return 0;
}

/* Wait until the memory is where it is to stay, and what was in it is gone. */
static int tow_import_await(struct tow_import *import)
{
	long left;

	do {
		if (tow_device_going(import->dev))
			return -ENODEV;
		left = dma_resv_wait_timeout(import->dmabuf->resv,
					     DMA_RESV_USAGE_KERNEL, true,
					     TOW_IMPORT_LOOK);
	} while (!left);
	return left < 0 ? left : 0;
}

/* The caller may be interrupted, and begins anew. */
static int tow_import_lock(struct tow_import *import)
{
	int ret = dma_resv_lock_interruptible(import->dmabuf->resv, NULL);

	return ret == -EINTR ? -ERESTARTSYS : ret;
}

/* An exporter that can move its memory is not to do so any more. */
static int tow_import_pin_dmabuf(struct tow_import *import)
{
	int ret;

	ret = tow_import_attach(import);
	if (!ret)
		ret = tow_import_lock(import);
	if (ret)
		return ret;
	ret = dma_buf_pin(import->attachment);
	import->pinned = !ret;
	dma_resv_unlock(import->dmabuf->resv);
	return ret;
}

/*
 * Called with the reservation object locked: whoever takes the import off finds all of
 * it, or none.  Who had the lock for long was waited for then, by who can be killed.
 */
static int tow_import_map_dmabuf(struct tow_import *import)
{
	struct dma_resv *resv = import->dmabuf->resv;
	struct sg_table *table;
	int ret = 0;

	if (!import->attachment) {
		dma_resv_unlock(resv);
		ret = tow_import_attach(import);
		dma_resv_lock(resv, NULL);
	}
	if (ret)
		return ret;
	table = dma_buf_map_attachment(import->attachment,
				       tow_import_direction(import));
	if (IS_ERR(table))
		return PTR_ERR(table);
	import->table = table;
	return 0;
}

static const struct tow_import_ops tow_import_dmabuf_ops = {
	.backing.release	= tow_import_release,
	.map			= tow_import_map_dmabuf,
	.unmap			= tow_import_detach_dmabuf,
	.put			= tow_import_put_dmabuf,
};

static int tow_import_dmabuf_fill(struct tow_import *import,
				  struct tow_client *client)
{
	char name[TOW_DEVICE_NAME_MAX];
	int ret;

	/*
	 * Software devices use the processor's addresses: what a dma-buf has for a
	 * device means nothing to them.
	 */
	if (!import->dma_device) {
		tow_device_name(import->dev, name);
		pr_notice_ratelimited("%s: dma-bufs cannot be imported: this RDMA device is software and has no DMA\n",
				      name);
		return -EOPNOTSUPP;
	}
	ret = tow_import_charge(import, client);
	if (ret)
		return ret;
	import->fence = tow_import_fence_new();
	if (!import->fence)
		return -ENOMEM;
	if (import->dmabuf->ops->pin)
		ret = tow_import_pin_dmabuf(import);
	ret = ret ?: tow_import_await(import) ?: tow_import_lock(import);
	if (ret)
		return ret;
	ret = tow_import_map(import);
	dma_resv_unlock(import->dmabuf->resv);
	/* Mapping may have moved it. */
	return ret ?: tow_import_await(import);
}

/**
 * tow_import_dmabuf - make a region of a dma-buf's memory
 * @client: whose it is to be
 * @dmabuf: the dma-buf
 * @offset: where to begin in it, whole pages
 * @bytes: how much, at least 1
 * @readonly: the device does not write to it
 *
 * Not for users of the device: an exporter may let us wait.
 *
 * Return: the region with the caller's reference, or an ERR_PTR(): see
 * TOW_IOCTL_REGION_IMPORT_DMABUF.
 */
struct tow_region *tow_import_dmabuf(struct tow_client *client,
				     struct dma_buf *dmabuf, u64 offset,
				     u64 bytes, bool readonly)
{
	struct tow_import *import;
	int ret;

	if (bytes > dmabuf->size || offset > dmabuf->size - bytes)
		return ERR_PTR(-EINVAL);
	/* dma-bufs are whole pages. */
	import = tow_import_new(client->dev, PAGE_ALIGN(bytes), readonly,
				&tow_import_dmabuf_ops);
	if (IS_ERR(import))
		return ERR_CAST(import);
	INIT_LIST_HEAD(&import->invalidated);
	INIT_WORK(&import->leave, tow_import_leave);
	get_dma_buf(dmabuf);
	import->dmabuf = dmabuf;
	import->offset = offset;
	ret = tow_import_dmabuf_fill(import, client);
	return tow_import_region(client, import, ret, 0, bytes);
}
