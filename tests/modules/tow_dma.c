// SPDX-License-Identifier: GPL-2.0
/*
 * tow_dma: soft-RoCE as a device with DMA of its own, behind something as an IOMMU.
 *
 *	modprobe tow_dma device=rxe0 [max_bytes=N]
 *
 * While it is loaded what the kernel maps for that RDMA device goes through operations
 * that can map, and that synchronize for the processor as an IOMMU's do (there is nothing
 * to do).  What they hand out is what soft-RoCE wants: the kernel's own addresses.
 *
 * max_bytes	the largest mapping, as of a device for which memory is copied; 0: any
 *
 * To be loaded before towline, as a device is not of one kind and then of another.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/dma-map-ops.h>
#include <linux/dma-mapping.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/scatterlist.h>
#include <rdma/ib_verbs.h>

#include "tow_compat.h"
#include "tow_find.h"

static char *device = "rxe0";
module_param(device, charp, 0444);
MODULE_PARM_DESC(device, "the RDMA device");

static unsigned long max_bytes;
module_param(max_bytes, ulong, 0444);
MODULE_PARM_DESC(max_bytes, "the largest mapping; 0: any");

static struct platform_device *tow_dma_device;

static void tow_dma_unmap(struct device *dev, dma_addr_t address, size_t size,
			  enum dma_data_direction direction, unsigned long attributes)
{
}

static int tow_dma_map_sg(struct device *dev, struct scatterlist *list, int count,
			  enum dma_data_direction direction, unsigned long attributes)
{
	struct scatterlist *entry;
	int i;

	for_each_sg(list, entry, count, i) {
		sg_dma_address(entry) = (uintptr_t)sg_virt(entry);
		sg_dma_len(entry) = entry->length;
	}
	return count;
}

static void tow_dma_unmap_sg(struct device *dev, struct scatterlist *list, int count,
			     enum dma_data_direction direction, unsigned long attributes)
{
}

static void tow_dma_sync(struct device *dev, dma_addr_t address, size_t size,
			 enum dma_data_direction direction)
{
}

static size_t tow_dma_max(struct device *dev)
{
	return max_bytes ?: SIZE_MAX;
}

static const struct dma_map_ops tow_dma_ops = {
	TOW_DMA_MAP(tow_dma_unmap),
	.map_sg = tow_dma_map_sg,
	.unmap_sg = tow_dma_unmap_sg,
	.sync_single_for_cpu = tow_dma_sync,
	.sync_single_for_device = tow_dma_sync,
	.max_mapping_size = tow_dma_max,
};

/* From now on; NULL: it has none of its own, as software has. */
static int tow_dma_give(struct device *dma_device)
{
	struct ib_device *ibdev = tow_find_device(device);

	if (!ibdev)
		return -ENODEV;
	WRITE_ONCE(ibdev->dma_device, dma_device);
	ib_device_put(ibdev);
	return 0;
}

static int __init tow_dma_init(void)
{
	int ret;

	tow_dma_device = platform_device_register_simple("tow_dma", PLATFORM_DEVID_NONE, NULL, 0);
	if (IS_ERR(tow_dma_device))
		return PTR_ERR(tow_dma_device);
	set_dma_ops(&tow_dma_device->dev, &tow_dma_ops);
	ret = dma_coerce_mask_and_coherent(&tow_dma_device->dev, DMA_BIT_MASK(64));
	if (!ret)
		ret = tow_dma_give(&tow_dma_device->dev);
	if (ret)
		platform_device_unregister(tow_dma_device);
	return ret;
}

static void __exit tow_dma_exit(void)
{
	tow_dma_give(NULL);
	platform_device_unregister(tow_dma_device);
}

module_init(tow_dma_init);
module_exit(tow_dma_exit);

MODULE_DESCRIPTION("soft-RoCE as a device with DMA of its own, for towline's tests");
MODULE_LICENSE("GPL");
