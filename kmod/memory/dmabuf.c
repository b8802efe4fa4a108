// SPDX-License-Identifier: GPL-2.0
/*
 * A region's descriptors: each is a dma-buf of its own that holds the region.
 *
 * Mappings show the pool's real pages, so that everything else in the kernel
 * (direct I/O, pinning, other drivers) can use them.  The fault handler returns
 * the page and leaves mapping it to the core, which maps a whole chunk of 2 MiB
 * at once where mapping and region are aligned alike.  A mapping is never made
 * in two ways, or taking it apart would lose count.
 *
 * Nothing here touches the RDMA device: descriptors and mappings outlive it.
 */
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "core/compat.h"
#include "internal.h"

static vm_fault_t tow_region_fault(struct vm_fault *vmf)
{
	struct tow_region *region = vmf->vma->vm_private_data;
	u64 offset = (u64)vmf->pgoff << PAGE_SHIFT;
	struct page *page;

	/* mmap looked at it, and VM_DONTEXPAND keeps it so. */
	if (WARN_ON_ONCE(offset >= region->map_bytes))
		return VM_FAULT_SIGBUS;
	page = tow_slab_page(region->slabs[offset / region->slab_bytes],
			     offset % region->slab_bytes);
	get_page(page);
	vmf->page = page;
	return 0;
}

static const struct vm_operations_struct tow_region_vm_ops = {
	.fault = tow_region_fault,
};

/* As it was made: the file is the dma-buf's own, whichever descriptor leads to it. */
static bool tow_region_readonly(const struct dma_buf *dmabuf)
{
	return !(dmabuf->file->f_mode & FMODE_WRITE);
}

/* The dma-buf's own mmap has checked the range. */
static int tow_region_mmap(struct dma_buf *dmabuf, struct vm_area_struct *vma)
{
	/* No way may lead from one for reading to a writable mapping. */
	if (tow_region_readonly(dmabuf)) {
		if (vma->vm_flags & VM_WRITE)
			return -EACCES;
		tow_vm_flags_clear(vma, VM_MAYWRITE);
	}
	/* A private mapping would copy what it writes: nobody means that. */
	if (!(vma->vm_flags & VM_MAYSHARE))
		return -EINVAL;
	tow_vm_flags_set(vma, VM_DONTEXPAND);
	vma->vm_ops = &tow_region_vm_ops;
	vma->vm_private_data = dmabuf->priv;
	return 0;
}

static struct sg_table *tow_region_map(struct dma_buf_attachment *attachment,
				       enum dma_data_direction direction)
{
	struct tow_region *region = attachment->dmabuf->priv;
	struct scatterlist *sg;
	struct sg_table *table;
	unsigned int i, j, chunks = 0;
	int ret;

	if (tow_region_readonly(attachment->dmabuf) &&
	    direction != DMA_TO_DEVICE)
		return ERR_PTR(-EACCES);
	table = kmalloc(sizeof(*table), GFP_KERNEL);
	if (!table)
		return ERR_PTR(-ENOMEM);
	for (i = 0; i < region->slab_count; i++)
		chunks += region->slabs[i]->chunk_count;
	ret = sg_alloc_table(table, chunks, GFP_KERNEL);
	if (ret)
		goto err_free;
	sg = table->sgl;
	for (i = 0; i < region->slab_count; i++) {
		struct tow_slab *slab = region->slabs[i];

		for (j = 0; j < slab->chunk_count; j++, sg = sg_next(sg))
			sg_set_page(sg, slab->chunks[j].page,
				    slab->chunks[j].bytes, 0);
	}
	ret = dma_map_sgtable(attachment->dev, table, direction, 0);
	if (ret)
		goto err_free_table;
	return table;

err_free_table:
	sg_free_table(table);
err_free:
	kfree(table);
	return ERR_PTR(ret);
}

static void tow_region_unmap(struct dma_buf_attachment *attachment,
			     struct sg_table *table,
			     enum dma_data_direction direction)
{
	dma_unmap_sgtable(attachment->dev, table, direction, 0);
	sg_free_table(table);
	kfree(table);
}

static void tow_region_fd_release(struct dma_buf *dmabuf)
{
	struct tow_region *region = dmabuf->priv;

	atomic_dec(&region->fds);
	tow_region_put(region);
}

static const struct dma_buf_ops tow_region_dmabuf_ops = {
	.map_dma_buf	= tow_region_map,
	.unmap_dma_buf	= tow_region_unmap,
	.mmap		= tow_region_mmap,
	.release	= tow_region_fd_release,
};

/**
 * tow_region_make_dmabuf - make a descriptor of a region
 * @region: the region, of the pool
 * @readonly: it is only for reading
 *
 * Return: a dma-buf that holds the region, for its file to be installed; or an
 * ERR_PTR().
 */
struct dma_buf *tow_region_make_dmabuf(struct tow_region *region, bool readonly)
{
	struct dma_buf_export_info info = {
		.exp_name	= KBUILD_MODNAME,
		.owner		= THIS_MODULE,
		.ops		= &tow_region_dmabuf_ops,
		.size		= region->map_bytes,
		.flags		= readonly ? O_RDONLY : O_RDWR,
		.priv		= region,
	};
	struct dma_buf *dmabuf = dma_buf_export(&info);

	if (!IS_ERR(dmabuf)) {
		tow_region_get(region);
		atomic_inc(&region->fds);
	}
	return dmabuf;
}

/**
 * tow_region_from_dmabuf - the region behind a descriptor
 * @dmabuf: any dma-buf
 * @readonly: is the descriptor only for reading?
 *
 * Return: the region, held by the dma-buf; NULL: it is none of towline's.
 */
struct tow_region *tow_region_from_dmabuf(struct dma_buf *dmabuf,
					  bool *readonly)
{
	if (dmabuf->ops != &tow_region_dmabuf_ops)
		return NULL;
	*readonly = tow_region_readonly(dmabuf);
	return dmabuf->priv;
}

/**
 * towk_region_get - the region behind a descriptor of the current process
 * @fd: the descriptor
 *
 * For other kernel modules.  towk_region_put() undoes it.
 *
 * Return: the region with the caller's reference; or an ERR_PTR(): -EBADF:
 * nothing is open there; -EINVAL: it is no region's.
 */
struct tow_region *towk_region_get(int fd)
{
	struct dma_buf *dmabuf = dma_buf_get(fd);
	struct tow_region *region;
	bool readonly;

	if (IS_ERR(dmabuf))
		return ERR_CAST(dmabuf);
	region = tow_region_from_dmabuf(dmabuf, &readonly);
	if (region)
		tow_region_get(region);
	dma_buf_put(dmabuf);
	return region ?: ERR_PTR(-EINVAL);
}
EXPORT_SYMBOL_GPL(towk_region_get);

/**
 * towk_region_put - undo towk_region_get()
 * @region: the region; may be gone afterwards
 */
void towk_region_put(struct tow_region *region)
{
	tow_region_put(region);
}
EXPORT_SYMBOL_GPL(towk_region_put);

TOW_IMPORT_DMA_BUF;
