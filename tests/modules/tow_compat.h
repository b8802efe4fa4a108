/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What test modules do in a way of their own on some kernels; the module's differences
 * are in kmod/core/compat.h.
 */
#ifndef TOW_TEST_COMPAT_H
#define TOW_TEST_COMPAT_H

#include <linux/dma-map-ops.h>
#include <linux/mm.h>
#include <rdma/ib_verbs.h>

/* Operations on memory at a physical address since 6.18; Kbuild looks. */
#ifdef TOW_HAVE_MAP_PHYS
static inline dma_addr_t tow_dma_map(struct device *dev, phys_addr_t address, size_t size,
				     enum dma_data_direction direction, unsigned long attributes)
{
	return (uintptr_t)phys_to_virt(address);
}

#define TOW_DMA_MAP(unmap)	.map_phys = tow_dma_map, .unmap_phys = (unmap)
#else
static inline dma_addr_t tow_dma_map(struct device *dev, struct page *page,
				     unsigned long offset, size_t size,
				     enum dma_data_direction direction, unsigned long attributes)
{
	return (uintptr_t)(page_address(page) + offset);
}

#define TOW_DMA_MAP(unmap)	.map_page = tow_dma_map, .unmap_page = (unmap)
#endif

#endif /* TOW_TEST_COMPAT_H */
