// SPDX-License-Identifier: GPL-2.0
/*
 * tow_vgpu: a device with memory of its own, exported as dma-bufs.
 *
 * The device is QEMU's ivshmem-plain; its memory is BAR 2, for which there are no pages.
 * tow_vgpu.h lists the calls of /dev/tow_vgpu.
 *
 * How long things live
 *
 * A buffer lives as long as its dma-buf, or a call that uses it.  Where it is, a place,
 * lives longer: as long as it is mapped for somebody, or something is yet to be written to
 * it.  When the PCI device goes all buffers are taken from their importers, in the way that
 * MOVE does it, and only then the memory goes; what is left of buffers says ENODEV.
 *
 * Locks: a buffer's reservation, then the device's lock, for which nobody waits while he
 * waits for an importer.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/bitmap.h>
#include <linux/dma-buf.h>
#include <linux/dma-fence.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/io.h>
#include <linux/kref.h>
#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "core/compat.h"
#include "tow_vgpu.h"

#define IVSHMEM_BAR		2

/* Importers that are told have so long to let go when the device goes. */
#define END_MS			60000

/**
 * struct tow_vgpu - the device
 * @refs: the driver's, files', buffers' and places'
 * @lock: all below, and each access to @memory
 * @gone: there is no memory any more
 * @start: its address on the bus, which is that of the processor, too
 * @memory: the same, mapped
 * @pages: how many
 * @used: which of them are
 * @buffers: all of them
 */
struct tow_vgpu {
	struct kref		refs;
	struct mutex		lock; /* all below */
	bool			gone;
	phys_addr_t		start;
	void			*memory;
	unsigned long		pages;
	unsigned long		*used;
	struct list_head	buffers;
};

/**
 * struct tow_vgpu_place - where a buffer is, or was
 * @refs: the buffer's, mappings', and what is to be written
 * @vgpu: the device
 * @host: it is not the device's memory
 * @chunk_bytes: of each part; in host memory, a page
 * @count: how many there are
 * @at: each of them
 */
struct tow_vgpu_place {
	struct kref		refs;
	struct tow_vgpu		*vgpu;
	bool			host;
	size_t			chunk_bytes;
	unsigned int		count;
	void			*at[];
};

/**
 * struct tow_vgpu_buffer - a buffer
 * @refs: the dma-buf's, and of who ends it
 * @vgpu: the device
 * @link: in tow_vgpu.buffers, under the device's lock
 * @flags: of enum tow_vgpu_flags
 * @chunk_bytes: of each part of it, in the device's memory
 * @unmapped: the last mapping has gone
 * @resv: the reservation, and its lock, which protects all below
 * @dmabuf: the dma-buf, as long as there is one
 * @gone: the device is
 * @place: where it is
 * @left: where it was before
 * @pins: how often it is pinned
 * @mappings: how often it is mapped
 * @moves: how often it has moved
 */
struct tow_vgpu_buffer {
	struct kref		refs;
	struct tow_vgpu		*vgpu;
	struct list_head	link;
	u32			flags;
	size_t			chunk_bytes;
	wait_queue_head_t	unmapped;
	struct dma_resv		resv;
	struct dma_buf		*dmabuf;
	bool			gone;
	struct tow_vgpu_place	*place;
	struct tow_vgpu_place	*left;
	unsigned int		pins;
	unsigned int		mappings;
	unsigned int		moves;
};

/**
 * struct tow_vgpu_mapping - a buffer, mapped for an importer's device
 * @table: what the importer gets
 * @place: where the buffer was when it was mapped
 * @mapped: so many parts of it are
 */
struct tow_vgpu_mapping {
	struct sg_table		table;
	struct tow_vgpu_place	*place;
	unsigned int		mapped;
};

/**
 * struct tow_vgpu_fence - what a buffer is busy with
 * @fence: what importers wait for
 * @lock: the fence's
 * @end: when it is over
 * @place: what is written to
 * @byte: what is
 */
struct tow_vgpu_fence {
	struct dma_fence	fence;
	spinlock_t		lock; /* the fence's */
	struct delayed_work	end;
	struct tow_vgpu_place	*place;
	u8			byte;
};

static struct workqueue_struct *tow_vgpu_wq;

static void tow_vgpu_free(struct kref *refs)
{
	struct tow_vgpu *vgpu = container_of(refs, struct tow_vgpu, refs);

	bitmap_free(vgpu->used);
	mutex_destroy(&vgpu->lock);
	kfree(vgpu);
}

static void tow_vgpu_put(struct tow_vgpu *vgpu)
{
	kref_put(&vgpu->refs, tow_vgpu_free);
}

/* ---- places ---------------------------------------------------------------- */

static void tow_vgpu_place_free(struct kref *refs)
{
	struct tow_vgpu_place *place = container_of(refs, struct tow_vgpu_place, refs);
	struct tow_vgpu *vgpu = place->vgpu;
	unsigned int i;

	mutex_lock(&vgpu->lock);
	for (i = 0; i < place->count; i++) {
		if (place->host)
			free_page((unsigned long)place->at[i]);
		else
			bitmap_clear(vgpu->used, (place->at[i] - vgpu->memory) >> PAGE_SHIFT,
				     place->chunk_bytes >> PAGE_SHIFT);
	}
	mutex_unlock(&vgpu->lock);
	kvfree(place);
	tow_vgpu_put(vgpu);
}

static void tow_vgpu_place_put(struct tow_vgpu_place *place)
{
	if (place)
		kref_put(&place->refs, tow_vgpu_place_free);
}

/* Called with the lock held: a part of the memory from page @at on, or NULL. */
static void *tow_vgpu_take(struct tow_vgpu *vgpu, unsigned long *at, unsigned long pages)
{
	unsigned long start = bitmap_find_next_zero_area(vgpu->used, vgpu->pages, *at, pages, 0);

	if (start >= vgpu->pages)
		return NULL;
	bitmap_set(vgpu->used, start, pages);
	/* The next one is not beside it. */
	*at = start + pages + 1;
	return vgpu->memory + (start << PAGE_SHIFT);
}

static int tow_vgpu_place_fill_in(struct tow_vgpu_place *place, unsigned int count)
{
	struct tow_vgpu *vgpu = place->vgpu;
	unsigned long at = 0;
	int ret = 0;
	void *part;

	mutex_lock(&vgpu->lock);
	if (vgpu->gone)
		ret = -ENODEV;
	while (place->count < count && !ret) {
		if (place->host)
			part = (void *)__get_free_page(GFP_KERNEL);
		else
			part = tow_vgpu_take(vgpu, &at, place->chunk_bytes >> PAGE_SHIFT);
		if (part)
			place->at[place->count++] = part;
		else
			ret = place->host ? -ENOMEM : -ENOSPC;
	}
	mutex_unlock(&vgpu->lock);
	return ret;
}

static struct tow_vgpu_place *tow_vgpu_place_alloc(struct tow_vgpu *vgpu, size_t bytes,
						   size_t chunk_bytes, bool host)
{
	unsigned int count = bytes / chunk_bytes;
	struct tow_vgpu_place *place;
	int ret;

	place = kvzalloc(struct_size(place, at, count), GFP_KERNEL);
	if (!place)
		return ERR_PTR(-ENOMEM);
	kref_init(&place->refs);
	kref_get(&vgpu->refs);
	place->vgpu = vgpu;
	place->host = host;
	place->chunk_bytes = chunk_bytes;
	ret = tow_vgpu_place_fill_in(place, count);
	if (ret) {
		tow_vgpu_place_put(place);
		return ERR_PTR(ret);
	}
	return place;
}

static size_t tow_vgpu_place_bytes(const struct tow_vgpu_place *place)
{
	return place->count * place->chunk_bytes;
}

/* To the end of the page there is more. */
static void *tow_vgpu_place_at(const struct tow_vgpu_place *place, size_t offset)
{
	return place->at[offset / place->chunk_bytes] + offset % place->chunk_bytes;
}

/* Called with the lock held. */
static bool tow_vgpu_place_there(const struct tow_vgpu_place *place)
{
	lockdep_assert_held(&place->vgpu->lock);
	return place->host || !place->vgpu->gone;
}

static void tow_vgpu_place_fill(struct tow_vgpu_place *place, u8 byte)
{
	size_t at;

	mutex_lock(&place->vgpu->lock);
	for (at = 0; tow_vgpu_place_there(place) && at < tow_vgpu_place_bytes(place);
	     at += PAGE_SIZE)
		memset(tow_vgpu_place_at(place, at), byte, PAGE_SIZE);
	mutex_unlock(&place->vgpu->lock);
}

static void tow_vgpu_place_copy(struct tow_vgpu_place *to, const struct tow_vgpu_place *from)
{
	size_t at;

	mutex_lock(&to->vgpu->lock);
	for (at = 0; !to->vgpu->gone && at < tow_vgpu_place_bytes(to); at += PAGE_SIZE)
		memcpy(tow_vgpu_place_at(to, at), tow_vgpu_place_at(from, at), PAGE_SIZE);
	mutex_unlock(&to->vgpu->lock);
}

/* How many bytes are not TOW_VGPU_LEFT. */
static size_t tow_vgpu_place_landed(struct tow_vgpu_place *place)
{
	size_t at, i, landed = 0;

	mutex_lock(&place->vgpu->lock);
	for (at = 0; tow_vgpu_place_there(place) && at < tow_vgpu_place_bytes(place);
	     at += PAGE_SIZE) {
		const u8 *bytes = tow_vgpu_place_at(place, at);

		for (i = 0; i < PAGE_SIZE; i++)
			landed += READ_ONCE(bytes[i]) != TOW_VGPU_LEFT;
	}
	mutex_unlock(&place->vgpu->lock);
	return landed;
}

static phys_addr_t tow_vgpu_place_phys(const struct tow_vgpu_place *place, unsigned int part)
{
	if (place->host)
		return virt_to_phys(place->at[part]);
	return place->vgpu->start + (place->at[part] - place->vgpu->memory);
}

/* ---- buffers --------------------------------------------------------------- */

static void tow_vgpu_buffer_free(struct kref *refs)
{
	struct tow_vgpu_buffer *buffer = container_of(refs, struct tow_vgpu_buffer, refs);

	dma_resv_fini(&buffer->resv);
	tow_vgpu_place_put(buffer->left);
	tow_vgpu_place_put(buffer->place);
	tow_vgpu_put(buffer->vgpu);
	kfree(buffer);
}

static void tow_vgpu_buffer_put(struct tow_vgpu_buffer *buffer)
{
	kref_put(&buffer->refs, tow_vgpu_buffer_free);
}

/* Called with the reservation locked: how many importers; some cannot be told of moves. */
static unsigned int tow_vgpu_importers(const struct tow_vgpu_buffer *buffer, bool untold)
{
	struct dma_buf_attachment *attachment;
	unsigned int count = 0;

	list_for_each_entry(attachment, &buffer->dmabuf->attachments, node)
		count += !untold || !tow_dma_buf_revocable(attachment);
	return count;
}

/*
 * Called with the reservation locked: importers are told, and the fences that they leave
 * waited for.  True if these have signaled.
 */
static bool tow_vgpu_invalidate(struct tow_vgpu_buffer *buffer, unsigned int timeout_ms)
{
	dma_resv_assert_held(&buffer->resv);
	tow_dma_buf_invalidate(buffer->dmabuf);
	/* Where the processor sees it. */
	unmap_mapping_range(buffer->dmabuf->file->f_mapping, 0, 0, 1);
	return dma_resv_wait_timeout(&buffer->resv, DMA_RESV_USAGE_BOOKKEEP, false,
				     msecs_to_jiffies(timeout_ms)) > 0;
}

/* Called with the reservation locked: what is in it goes along. */
static void tow_vgpu_settle(struct tow_vgpu_buffer *buffer, struct tow_vgpu_place *place)
{
	tow_vgpu_place_copy(place, buffer->place);
	tow_vgpu_place_fill(buffer->place, TOW_VGPU_LEFT);
	tow_vgpu_place_put(buffer->left);
	buffer->left = buffer->place;
	buffer->place = place;
	buffer->moves++;
}

/* A place for it, elsewhere. */
static struct tow_vgpu_place *tow_vgpu_other_place(struct tow_vgpu_buffer *buffer, bool host)
{
	return tow_vgpu_place_alloc(buffer->vgpu, tow_vgpu_place_bytes(buffer->place),
				    host ? PAGE_SIZE : buffer->chunk_bytes, host);
}

/* ---- what importers call --------------------------------------------------- */

static int tow_vgpu_attach(struct dma_buf *dmabuf, struct dma_buf_attachment *attachment)
{
	struct tow_vgpu_buffer *buffer = dmabuf->priv;

	if (!(buffer->flags & TOW_VGPU_REFUSE_STATIC))
		return 0;
	if (!attachment->peer2peer || !tow_dma_buf_revocable(attachment))
		return -EOPNOTSUPP;
	return 0;
}

static int tow_vgpu_pin(struct dma_buf_attachment *attachment)
{
	struct tow_vgpu_buffer *buffer = attachment->dmabuf->priv;
	bool host = buffer->flags & TOW_VGPU_HOST_UNLESS_P2P && !attachment->peer2peer;
	struct tow_vgpu_place *place;
	long left = 1;

	dma_resv_assert_held(&buffer->resv);
	if (buffer->gone)
		return -ENODEV;
	if (buffer->flags & TOW_VGPU_PIN_WAITS)
		left = dma_resv_wait_timeout(&buffer->resv, DMA_RESV_USAGE_KERNEL, true,
					     MAX_SCHEDULE_TIMEOUT);
	if (left < 0)
		return left;
	if (host != buffer->place->host) {
		if (buffer->pins)
			return -EINVAL;
		place = tow_vgpu_other_place(buffer, host);
		if (IS_ERR(place))
			return PTR_ERR(place);
		tow_vgpu_invalidate(buffer, END_MS);
		tow_vgpu_settle(buffer, place);
	}
	buffer->pins++;
	return 0;
}

static void tow_vgpu_unpin(struct dma_buf_attachment *attachment)
{
	struct tow_vgpu_buffer *buffer = attachment->dmabuf->priv;

	dma_resv_assert_held(&buffer->resv);
	WARN_ON(!buffer->pins--);
}

static dma_addr_t tow_vgpu_map_part(struct device *dev, const struct tow_vgpu_place *place,
				    unsigned int part, enum dma_data_direction direction)
{
	if (place->host)
		return dma_map_page(dev, virt_to_page(place->at[part]), 0, place->chunk_bytes,
				    direction);
	return dma_map_resource(dev, tow_vgpu_place_phys(place, part), place->chunk_bytes,
				direction, DMA_ATTR_SKIP_CPU_SYNC);
}

static void tow_vgpu_mapping_free(struct device *dev, struct tow_vgpu_mapping *mapping,
				  enum dma_data_direction direction)
{
	struct scatterlist *sg;
	unsigned int i;

	for_each_sg(mapping->table.sgl, sg, mapping->mapped, i) {
		if (mapping->place->host)
			dma_unmap_page(dev, sg_dma_address(sg), sg_dma_len(sg), direction);
		else
			dma_unmap_resource(dev, sg_dma_address(sg), sg_dma_len(sg), direction,
					   DMA_ATTR_SKIP_CPU_SYNC);
	}
	sg_free_table(&mapping->table);
	tow_vgpu_place_put(mapping->place);
	kfree(mapping);
}

static int tow_vgpu_mapping_fill(struct device *dev, struct tow_vgpu_mapping *mapping,
				 enum dma_data_direction direction)
{
	const struct tow_vgpu_place *place = mapping->place;
	struct scatterlist *sg;
	unsigned int i;

	for_each_sg(mapping->table.sgl, sg, place->count, i) {
		dma_addr_t dma = tow_vgpu_map_part(dev, place, i, direction);

		if (dma_mapping_error(dev, dma))
			return -EIO;
		sg_set_page(sg, place->host ? virt_to_page(place->at[i]) : NULL,
			    place->chunk_bytes, 0);
		sg_dma_address(sg) = dma;
		sg_dma_len(sg) = place->chunk_bytes;
		mapping->mapped++;
	}
	return 0;
}

static struct sg_table *tow_vgpu_map(struct dma_buf_attachment *attachment,
				     enum dma_data_direction direction)
{
	struct tow_vgpu_buffer *buffer = attachment->dmabuf->priv;
	struct tow_vgpu_mapping *mapping;
	int ret;

	dma_resv_assert_held(&buffer->resv);
	if (buffer->gone)
		return ERR_PTR(-ENODEV);
	mapping = kzalloc(sizeof(*mapping), GFP_KERNEL);
	if (!mapping)
		return ERR_PTR(-ENOMEM);
	kref_get(&buffer->place->refs);
	mapping->place = buffer->place;
	ret = sg_alloc_table(&mapping->table, buffer->place->count, GFP_KERNEL);
	if (!ret)
		ret = tow_vgpu_mapping_fill(attachment->dev, mapping, direction);
	if (ret) {
		tow_vgpu_mapping_free(attachment->dev, mapping, direction);
		return ERR_PTR(ret);
	}
	buffer->mappings++;
	return &mapping->table;
}

static void tow_vgpu_unmap(struct dma_buf_attachment *attachment, struct sg_table *table,
			   enum dma_data_direction direction)
{
	struct tow_vgpu_mapping *mapping = container_of(table, struct tow_vgpu_mapping, table);
	struct tow_vgpu_buffer *buffer = attachment->dmabuf->priv;

	dma_resv_assert_held(&buffer->resv);
	tow_vgpu_mapping_free(attachment->dev, mapping, direction);
	if (!--buffer->mappings)
		wake_up_all(&buffer->unmapped);
}

static void tow_vgpu_release(struct dma_buf *dmabuf)
{
	struct tow_vgpu_buffer *buffer = dmabuf->priv;

	mutex_lock(&buffer->vgpu->lock);
	list_del(&buffer->link);
	mutex_unlock(&buffer->vgpu->lock);
	dma_resv_lock(&buffer->resv, NULL);
	buffer->dmabuf = NULL;
	dma_resv_unlock(&buffer->resv);
	tow_vgpu_buffer_put(buffer);
}

static vm_fault_t tow_vgpu_fault(struct vm_fault *vmf)
{
	struct tow_vgpu_buffer *buffer = vmf->vma->vm_private_data;
	size_t at = (size_t)vmf->pgoff << PAGE_SHIFT;
	vm_fault_t ret = VM_FAULT_SIGBUS;
	phys_addr_t phys;

	dma_resv_lock(&buffer->resv, NULL);
	if (!buffer->gone && at < tow_vgpu_place_bytes(buffer->place)) {
		phys = tow_vgpu_place_phys(buffer->place, at / buffer->place->chunk_bytes) +
		       at % buffer->place->chunk_bytes;
		ret = vmf_insert_pfn(vmf->vma, vmf->address, PHYS_PFN(phys));
	}
	dma_resv_unlock(&buffer->resv);
	return ret;
}

static const struct vm_operations_struct tow_vgpu_vm_ops = {
	.fault	= tow_vgpu_fault,
};

/* The mapping keeps the dma-buf. */
static int tow_vgpu_mmap(struct dma_buf *dmabuf, struct vm_area_struct *vma)
{
	if (!(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	tow_vm_flags_set(vma, VM_IO | VM_PFNMAP | VM_DONTEXPAND | VM_DONTDUMP);
	vma->vm_private_data = dmabuf->priv;
	vma->vm_ops = &tow_vgpu_vm_ops;
	return 0;
}

static const struct dma_buf_ops tow_vgpu_dmabuf_ops = {
	.attach		= tow_vgpu_attach,
	.pin		= tow_vgpu_pin,
	.unpin		= tow_vgpu_unpin,
	.map_dma_buf	= tow_vgpu_map,
	.unmap_dma_buf	= tow_vgpu_unmap,
	.release	= tow_vgpu_release,
	.mmap		= tow_vgpu_mmap,
};

/* ---- fences ---------------------------------------------------------------- */

static const char *tow_vgpu_fence_name(struct dma_fence *fence)
{
	return KBUILD_MODNAME;
}

/* Whoever has a fence may ask for its name. */
static void tow_vgpu_fence_release(struct dma_fence *fence)
{
	dma_fence_free(fence);
	module_put(THIS_MODULE);
}

static const struct dma_fence_ops tow_vgpu_fence_ops = {
	.get_driver_name	= tow_vgpu_fence_name,
	.get_timeline_name	= tow_vgpu_fence_name,
	.release		= tow_vgpu_fence_release,
};

static void tow_vgpu_fence_end(struct work_struct *work)
{
	struct tow_vgpu_fence *busy = container_of(to_delayed_work(work), struct tow_vgpu_fence,
						   end);

	tow_vgpu_place_fill(busy->place, busy->byte);
	dma_fence_signal(&busy->fence);
	tow_vgpu_place_put(busy->place);
	dma_fence_put(&busy->fence);
}

/* Called with the reservation locked. */
static int tow_vgpu_keep_busy(struct tow_vgpu_buffer *buffer, u8 byte, unsigned int ms)
{
	struct tow_vgpu_fence *busy;
	int ret;

	if (buffer->gone)
		return -ENODEV;
	ret = dma_resv_reserve_fences(&buffer->resv, 1);
	if (ret)
		return ret;
	/* It begins with its fence, which is freed as one. */
	busy = kzalloc(sizeof(*busy), GFP_KERNEL);
	if (!busy)
		return -ENOMEM;
	__module_get(THIS_MODULE);
	spin_lock_init(&busy->lock);
	dma_fence_init(&busy->fence, &tow_vgpu_fence_ops, &busy->lock,
		       dma_fence_context_alloc(1), 1);
	kref_get(&buffer->place->refs);
	busy->place = buffer->place;
	busy->byte = byte;
	dma_resv_add_fence(&buffer->resv, &busy->fence, DMA_RESV_USAGE_KERNEL);
	INIT_DELAYED_WORK(&busy->end, tow_vgpu_fence_end);
	queue_delayed_work(tow_vgpu_wq, &busy->end, msecs_to_jiffies(ms));
	return 0;
}

/* ---- calls ----------------------------------------------------------------- */

static struct tow_vgpu_buffer *tow_vgpu_buffer_alloc(struct tow_vgpu *vgpu,
						     const struct tow_vgpu_alloc *call)
{
	size_t chunk_bytes = call->chunk_bytes ?: call->bytes;
	struct tow_vgpu_buffer *buffer;
	struct tow_vgpu_place *place;

	if (!call->bytes || call->bytes > vgpu->pages << PAGE_SHIFT ||
	    !PAGE_ALIGNED(chunk_bytes) || call->bytes % chunk_bytes)
		return ERR_PTR(-EINVAL);
	place = tow_vgpu_place_alloc(vgpu, call->bytes, chunk_bytes, false);
	if (IS_ERR(place))
		return ERR_CAST(place);
	buffer = kzalloc(sizeof(*buffer), GFP_KERNEL);
	if (!buffer) {
		tow_vgpu_place_put(place);
		return ERR_PTR(-ENOMEM);
	}
	kref_init(&buffer->refs);
	kref_get(&vgpu->refs);
	buffer->vgpu = vgpu;
	buffer->flags = call->flags;
	buffer->chunk_bytes = chunk_bytes;
	init_waitqueue_head(&buffer->unmapped);
	dma_resv_init(&buffer->resv);
	buffer->place = place;
	tow_vgpu_place_fill(place, 0);
	return buffer;
}

static int tow_vgpu_buffer_export(struct tow_vgpu_buffer *buffer)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct tow_vgpu *vgpu = buffer->vgpu;
	int ret = 0;

	info.ops = &tow_vgpu_dmabuf_ops;
	info.size = tow_vgpu_place_bytes(buffer->place);
	info.flags = O_RDWR | O_CLOEXEC;
	info.resv = &buffer->resv;
	info.priv = buffer;
	mutex_lock(&vgpu->lock);
	if (vgpu->gone)
		ret = -ENODEV;
	else
		buffer->dmabuf = dma_buf_export(&info);
	if (!ret)
		ret = PTR_ERR_OR_ZERO(buffer->dmabuf);
	if (!ret)
		list_add_tail(&buffer->link, &vgpu->buffers);
	mutex_unlock(&vgpu->lock);
	return ret;
}

static int tow_vgpu_do_alloc(struct tow_vgpu *vgpu, struct tow_vgpu_alloc *call)
{
	struct tow_vgpu_buffer *buffer = tow_vgpu_buffer_alloc(vgpu, call);
	struct dma_buf *dmabuf;
	int ret;

	if (IS_ERR(buffer))
		return PTR_ERR(buffer);
	ret = tow_vgpu_buffer_export(buffer);
	if (ret) {
		tow_vgpu_buffer_put(buffer);
		return ret;
	}
	/* The buffer is its from here on. */
	dmabuf = buffer->dmabuf;
	ret = dma_buf_fd(dmabuf, O_CLOEXEC);
	if (ret < 0) {
		dma_buf_put(dmabuf);
		return ret;
	}
	call->fd = ret;
	return 0;
}

/* A page's worth at most of a buffer, from or to @bounce. */
static int tow_vgpu_copy(struct tow_vgpu_buffer *buffer, size_t offset, void *bounce,
			 size_t bytes, bool write)
{
	int ret = -ENODEV;
	void *at;

	dma_resv_lock(&buffer->resv, NULL);
	mutex_lock(&buffer->vgpu->lock);
	if (!buffer->gone) {
		at = tow_vgpu_place_at(buffer->place, offset);
		memcpy(write ? at : bounce, write ? bounce : at, bytes);
		ret = 0;
	}
	mutex_unlock(&buffer->vgpu->lock);
	dma_resv_unlock(&buffer->resv);
	return ret;
}

/* User memory is touched with nothing locked: it may be a mapping of a buffer. */
static int tow_vgpu_do_access(struct tow_vgpu_buffer *buffer, const struct tow_vgpu_access *call)
{
	u64 size = buffer->dmabuf->size;
	size_t done, bytes;
	void *bounce;
	int ret = 0;

	if (call->bytes > size || call->offset > size - call->bytes)
		return -EINVAL;
	bounce = (void *)__get_free_page(GFP_KERNEL);
	if (!bounce)
		return -ENOMEM;
	for (done = 0; done < call->bytes && !ret; done += bytes) {
		void __user *user = u64_to_user_ptr(call->data + done);
		size_t offset = call->offset + done;

		bytes = min_t(u64, call->bytes - done, PAGE_SIZE - offset_in_page(offset));
		if (call->write && copy_from_user(bounce, user, bytes))
			ret = -EFAULT;
		if (!ret)
			ret = tow_vgpu_copy(buffer, offset, bounce, bytes, call->write);
		if (!ret && !call->write && copy_to_user(user, bounce, bytes))
			ret = -EFAULT;
	}
	free_page((unsigned long)bounce);
	return ret;
}

/* Called with the reservation locked. */
static int tow_vgpu_move_away(struct tow_vgpu_buffer *buffer, unsigned int timeout_ms,
			      bool *signaled, u64 *waited_us)
{
	struct tow_vgpu_place *place;
	ktime_t begin;

	if (buffer->gone)
		return -ENODEV;
	if (tow_vgpu_importers(buffer, true))
		return -EBUSY;
	place = tow_vgpu_other_place(buffer, buffer->place->host);
	if (IS_ERR(place))
		return PTR_ERR(place);
	begin = ktime_get();
	*signaled = tow_vgpu_invalidate(buffer, timeout_ms);
	*waited_us = ktime_us_delta(ktime_get(), begin);
	tow_vgpu_settle(buffer, place);
	return 0;
}

static int tow_vgpu_do_move(struct tow_vgpu_buffer *buffer, struct tow_vgpu_move *call)
{
	ktime_t begin = ktime_get();
	bool signaled = false;
	int ret;

	if (!call->timeout_ms || call->timeout_ms > END_MS)
		return -EINVAL;
	dma_resv_lock(&buffer->resv, NULL);
	ret = tow_vgpu_move_away(buffer, call->timeout_ms, &signaled, &call->waited_us);
	dma_resv_unlock(&buffer->resv);
	if (ret)
		return ret;
	wait_event_timeout(buffer->unmapped, !READ_ONCE(buffer->mappings),
			   msecs_to_jiffies(call->timeout_ms));
	call->unmapped_us = ktime_us_delta(ktime_get(), begin);
	call->signaled = signaled;
	call->mappings = READ_ONCE(buffer->mappings);
	return 0;
}

static int tow_vgpu_do_status(struct tow_vgpu_buffer *buffer, struct tow_vgpu_status *call)
{
	dma_resv_lock(&buffer->resv, NULL);
	call->host = buffer->place->host;
	call->attachments = tow_vgpu_importers(buffer, false);
	call->pins = buffer->pins;
	call->mappings = buffer->mappings;
	call->moves = buffer->moves;
	call->landed = buffer->left ? tow_vgpu_place_landed(buffer->left) : 0;
	dma_resv_unlock(&buffer->resv);
	return 0;
}

static int tow_vgpu_do_busy(struct tow_vgpu_buffer *buffer, const struct tow_vgpu_busy *call)
{
	int ret;

	dma_resv_lock(&buffer->resv, NULL);
	ret = tow_vgpu_keep_busy(buffer, call->byte, call->ms);
	dma_resv_unlock(&buffer->resv);
	return ret;
}

static int tow_vgpu_on_buffer(struct tow_vgpu_buffer *buffer, unsigned int cmd, void *call)
{
	switch (cmd) {
	case TOW_VGPU_ACCESS:
		return tow_vgpu_do_access(buffer, call);
	case TOW_VGPU_BUSY:
		return tow_vgpu_do_busy(buffer, call);
	case TOW_VGPU_MOVE:
		return tow_vgpu_do_move(buffer, call);
	case TOW_VGPU_STATUS:
		return tow_vgpu_do_status(buffer, call);
	default:
		return -ENOTTY;
	}
}

/* They all begin with its descriptor. */
static int tow_vgpu_do(struct tow_vgpu *vgpu, unsigned int cmd, void *call)
{
	struct tow_vgpu_buffer *buffer;
	struct dma_buf *dmabuf;
	int ret = -EINVAL;

	if (cmd == TOW_VGPU_ALLOC)
		return tow_vgpu_do_alloc(vgpu, call);
	dmabuf = dma_buf_get(*(s32 *)call);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	buffer = dmabuf->priv;
	if (dmabuf->ops == &tow_vgpu_dmabuf_ops && buffer->vgpu == vgpu)
		ret = tow_vgpu_on_buffer(buffer, cmd, call);
	dma_buf_put(dmabuf);
	return ret;
}

static long tow_vgpu_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	void __user *user = (void __user *)arg;
	union {
		struct tow_vgpu_alloc alloc;
		struct tow_vgpu_access access;
		struct tow_vgpu_busy busy;
		struct tow_vgpu_move move;
		struct tow_vgpu_status status;
	} call;
	size_t bytes = _IOC_SIZE(cmd);
	int ret;

	if (_IOC_TYPE(cmd) != 'v' || bytes > sizeof(call))
		return -ENOTTY;
	if (copy_from_user(&call, user, bytes))
		return -EFAULT;
	ret = tow_vgpu_do(filp->private_data, cmd, &call);
	if (!ret && _IOC_DIR(cmd) & _IOC_READ && copy_to_user(user, &call, bytes))
		ret = -EFAULT;
	return ret;
}

/* The one that there is; it comes before the node, and goes after it. */
static struct tow_vgpu *tow_vgpu_only;

static int tow_vgpu_open(struct inode *inode, struct file *filp)
{
	kref_get(&tow_vgpu_only->refs);
	filp->private_data = tow_vgpu_only;
	return 0;
}

static int tow_vgpu_close(struct inode *inode, struct file *filp)
{
	tow_vgpu_put(filp->private_data);
	return 0;
}

static const struct file_operations tow_vgpu_fops = {
	.owner		= THIS_MODULE,
	.open		= tow_vgpu_open,
	.release	= tow_vgpu_close,
	.unlocked_ioctl	= tow_vgpu_ioctl,
};

static struct miscdevice tow_vgpu_misc = {
	.minor	= MISC_DYNAMIC_MINOR,
	.name	= "tow_vgpu",
	.fops	= &tow_vgpu_fops,
};

/* ---- the device ------------------------------------------------------------ */

static int tow_vgpu_tell_provider(struct tow_vgpu *vgpu)
{
	typeof(rxe_dma_window_add) *add = symbol_get(rxe_dma_window_add);
	int ret;

	/* Another provider has real hardware, or no use for this. */
	if (!add)
		return 0;
	ret = add(vgpu->start, vgpu->pages << PAGE_SHIFT);
	symbol_put(rxe_dma_window_add);
	return ret;
}

static void tow_vgpu_untell_provider(struct tow_vgpu *vgpu)
{
	typeof(rxe_dma_window_remove) *remove = symbol_get(rxe_dma_window_remove);

	if (!remove)
		return;
	remove(vgpu->start);
	symbol_put(rxe_dma_window_remove);
}

static struct tow_vgpu *tow_vgpu_new(struct pci_dev *pdev)
{
	struct tow_vgpu *vgpu = kzalloc(sizeof(*vgpu), GFP_KERNEL);

	if (!vgpu)
		return NULL;
	kref_init(&vgpu->refs);
	mutex_init(&vgpu->lock);
	INIT_LIST_HEAD(&vgpu->buffers);
	vgpu->start = pci_resource_start(pdev, IVSHMEM_BAR);
	vgpu->pages = pci_resource_len(pdev, IVSHMEM_BAR) >> PAGE_SHIFT;
	vgpu->used = bitmap_zalloc(vgpu->pages, GFP_KERNEL);
	if (vgpu->used)
		return vgpu;
	tow_vgpu_put(vgpu);
	return NULL;
}

/* What the driver does with the memory, once it has it. */
static int tow_vgpu_begin(struct tow_vgpu *vgpu)
{
	int ret;

	/* As the provider and user space map it, too: of one memory type. */
	vgpu->memory = memremap(vgpu->start, vgpu->pages << PAGE_SHIFT, MEMREMAP_WB);
	if (!vgpu->memory)
		return -ENOMEM;
	ret = tow_vgpu_tell_provider(vgpu);
	if (ret)
		goto unmap;
	tow_vgpu_only = vgpu;
	ret = misc_register(&tow_vgpu_misc);
	if (ret)
		goto untell;
	return 0;
untell:
	tow_vgpu_only = NULL;
	tow_vgpu_untell_provider(vgpu);
unmap:
	memunmap(vgpu->memory);
	return ret;
}

static int tow_vgpu_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct tow_vgpu *vgpu;
	int ret;

	if (tow_vgpu_only)
		return -EBUSY;
	ret = pci_enable_device_mem(pdev);
	if (ret)
		return ret;
	ret = pci_request_region(pdev, IVSHMEM_BAR, KBUILD_MODNAME);
	if (ret)
		goto disable;
	vgpu = tow_vgpu_new(pdev);
	ret = vgpu ? tow_vgpu_begin(vgpu) : -ENOMEM;
	if (ret)
		goto put;
	pci_set_drvdata(pdev, vgpu);
	return 0;
put:
	if (vgpu)
		tow_vgpu_put(vgpu);
	pci_release_region(pdev, IVSHMEM_BAR);
disable:
	pci_disable_device(pdev);
	return ret;
}

/* The end of a buffer's memory; its importers must have let go of it. */
static void tow_vgpu_buffer_end(struct tow_vgpu_buffer *buffer)
{
	bool let_go = true;

	dma_resv_lock(&buffer->resv, NULL);
	buffer->gone = true;
	if (buffer->dmabuf)
		let_go = tow_vgpu_invalidate(buffer, END_MS);
	dma_resv_unlock(&buffer->resv);
	if (let_go)
		let_go = wait_event_timeout(buffer->unmapped, !READ_ONCE(buffer->mappings),
					    msecs_to_jiffies(END_MS));
	WARN(!let_go, "the device goes, and importers still use its memory\n");
}

static void tow_vgpu_buffers_end(struct tow_vgpu *vgpu)
{
	struct tow_vgpu_buffer *buffer;

	mutex_lock(&vgpu->lock);
	vgpu->gone = true;
	while ((buffer = list_first_entry_or_null(&vgpu->buffers, struct tow_vgpu_buffer,
						  link))) {
		list_del_init(&buffer->link);
		kref_get(&buffer->refs);
		mutex_unlock(&vgpu->lock);
		tow_vgpu_buffer_end(buffer);
		tow_vgpu_buffer_put(buffer);
		mutex_lock(&vgpu->lock);
	}
	mutex_unlock(&vgpu->lock);
}

static void tow_vgpu_remove(struct pci_dev *pdev)
{
	struct tow_vgpu *vgpu = pci_get_drvdata(pdev);

	misc_deregister(&tow_vgpu_misc);
	tow_vgpu_only = NULL;
	tow_vgpu_buffers_end(vgpu);
	tow_vgpu_untell_provider(vgpu);
	memunmap(vgpu->memory);
	tow_vgpu_put(vgpu);
	pci_release_region(pdev, IVSHMEM_BAR);
	pci_disable_device(pdev);
}

static const struct pci_device_id tow_vgpu_ids[] = {
	{ PCI_DEVICE(PCI_VENDOR_ID_REDHAT_QUMRANET, 0x1110) },
	{ }
};
MODULE_DEVICE_TABLE(pci, tow_vgpu_ids);

static struct pci_driver tow_vgpu_driver = {
	.name		= KBUILD_MODNAME,
	.id_table	= tow_vgpu_ids,
	.probe		= tow_vgpu_probe,
	.remove		= tow_vgpu_remove,
};

static int __init tow_vgpu_init(void)
{
	int ret;

	tow_vgpu_wq = alloc_workqueue("tow_vgpu", WQ_UNBOUND, 0);
	if (!tow_vgpu_wq)
		return -ENOMEM;
	ret = pci_register_driver(&tow_vgpu_driver);
	if (ret)
		destroy_workqueue(tow_vgpu_wq);
	return ret;
}

static void __exit tow_vgpu_exit(void)
{
	pci_unregister_driver(&tow_vgpu_driver);
	destroy_workqueue(tow_vgpu_wq);
}

module_init(tow_vgpu_init);
module_exit(tow_vgpu_exit);

MODULE_DESCRIPTION("a device with memory of its own, for towline's tests");
MODULE_LICENSE("GPL");
TOW_IMPORT_DMA_BUF;
