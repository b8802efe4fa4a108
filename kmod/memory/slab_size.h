/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How large slabs are, and the pages that they are registered in: on every size of the
 * processor's pages.
 *
 * No kernel in it: tested on the host.
 */
#ifndef TOW_SLAB_SIZE_H
#define TOW_SLAB_SIZE_H

#include <linux/types.h>

#define TOW_SLAB_SMALL_BYTES	((u64)64 << 10)
/* Less where a registration holds less: tow_pool.large_bytes. */
#define TOW_SLAB_LARGE_BYTES	((u64)2 << 20)
/* Of imported memory; peers are told in 32 bits, which scatterlists have, too. */
#define TOW_SLAB_MAX_BYTES	((u64)1 << 30)
/* And as each page may be a chunk of its own, in an array. */
#define TOW_SLAB_MAX_PAGES	(256U << 10)

/**
 * tow_slab_large_bytes - the size of a large slab
 * @pages: what one registration of the device can hold
 * @page_bytes: of the processor's pages
 *
 * Return: a power of two, at least TOW_SLAB_SMALL_BYTES if @pages hold that.
 */
static inline u64 tow_slab_large_bytes(u32 pages, u64 page_bytes)
{
	u64 bytes = TOW_SLAB_LARGE_BYTES;

	while (bytes > pages * page_bytes)
		bytes /= 2;
	return bytes;
}

/**
 * tow_slab_import_bytes - the size of a slab of imported memory, but for the last
 * @pages: what one registration of the device can hold
 * @page_bytes: of the processor's pages
 *
 * Return: whole pages.
 */
static inline u64 tow_slab_import_bytes(u32 pages, u64 page_bytes)
{
	u64 bytes;

	if (pages > TOW_SLAB_MAX_PAGES)
		pages = TOW_SLAB_MAX_PAGES;
	bytes = pages * page_bytes;
	return bytes < TOW_SLAB_MAX_BYTES ? bytes : TOW_SLAB_MAX_BYTES;
}

/**
 * tow_slab_reg_bytes - the size of the pages that memory is registered in
 * @chunks: the addresses and the sizes of all chunks, in one "or": whole pages each
 * @most: the largest page that is known to work, a power of two
 * @able: bits: sizes that the device has
 * @page_bytes: of the processor's pages, which every device has
 *
 * Return: the largest that divides all, so that there are as few as there can be.
 */
static inline u32 tow_slab_reg_bytes(u64 chunks, u32 most, u64 able,
				     u64 page_bytes)
{
	u64 all = chunks | most;
	u64 bytes = all & -all;

	while (bytes > page_bytes && !(bytes & able))
		bytes /= 2;
	return bytes;
}

#endif /* TOW_SLAB_SIZE_H */
