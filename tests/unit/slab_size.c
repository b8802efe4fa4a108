// SPDX-License-Identifier: GPL-2.0
/*
 * How large slabs are, from the module's own source: for every size of pages, and for
 * whatever a device's registrations hold.
 */
#include <kselftest.h>

#include "tests/unit/tow_kernel.h"
#include "kmod/memory/slab_size.h"

#define COUNT(ARRAY)	(sizeof(ARRAY) / sizeof((ARRAY)[0]))

static const u64 page_sizes[] = { 4096, 16384, 65536 };

/* Of soft-RoCE, of what has little, of mlx5, and what a driver may say without thought. */
static const u32 registrations[] = {
	1, 2, 3, 15, 16, 17, 255, 256, 511, 512, 513, 1000, 65535, 65536, 262144, 1U << 20,
	INT32_MAX, UINT32_MAX,
};

static bool power_of_two(u64 value)
{
	return value && !(value & (value - 1));
}

/* A peer is told the size in 32 bits, and a scatterlist has as many. */
static bool import_fits(u32 pages, u64 page_bytes)
{
	u64 bytes = tow_slab_import_bytes(pages, page_bytes);

	return bytes && bytes <= UINT32_MAX && (uint32_t)bytes == bytes &&
	       bytes % page_bytes == 0 && bytes <= pages * page_bytes &&
	       bytes / page_bytes <= TOW_SLAB_MAX_PAGES;
}

static bool large_fits(u32 pages, u64 page_bytes)
{
	u64 bytes = tow_slab_large_bytes(pages, page_bytes);

	return power_of_two(bytes) && bytes <= TOW_SLAB_LARGE_BYTES &&
	       bytes <= pages * page_bytes && bytes >= page_bytes &&
	       (bytes == TOW_SLAB_LARGE_BYTES || 2 * bytes > pages * page_bytes);
}

static bool all_fit(bool (*fits)(u32 pages, u64 page_bytes))
{
	for (size_t i = 0; i < COUNT(page_sizes); i++) {
		for (size_t j = 0; j < COUNT(registrations); j++) {
			if (!fits(registrations[j], page_sizes[i]))
				return false;
		}
	}
	return true;
}

/* What they are where everything is as usual, and where 4 GiB became 0. */
static bool known_sizes(void)
{
	return tow_slab_large_bytes(512, 4096) == 2 << 20 &&
	       tow_slab_large_bytes(16, 4096) == 64 << 10 &&
	       tow_slab_large_bytes(32, 65536) == 2 << 20 &&
	       tow_slab_import_bytes(512, 4096) == 2 << 20 &&
	       tow_slab_import_bytes(65536, 4096) == 256 << 20 &&
	       tow_slab_import_bytes(262144, 4096) == 1 << 30 &&
	       tow_slab_import_bytes(65536, 65536) == 1 << 30 &&
	       tow_slab_import_bytes(512, 65536) == 32 << 20;
}

/* Each row: the chunks, the most, what the device has, and what comes of it. */
static bool known_pages(void)
{
	static const struct {
		u64 chunks;
		u32 most;
		u64 able;
		u64 page_bytes;
		u32 want;
	} rows[] = {
		/* one chunk of 2 MiB */
		{ 0xffff888000200000 | 2 << 20, 2 << 20, 0xfffff000, 4096, 2 << 20 },
		/* nothing is known of larger pages */
		{ 0xffff888000200000 | 2 << 20, 4096, 0xfffff000, 4096, 4096 },
		/* the address, or a size, of one chunk is not a multiple */
		{ 0x100000000 | 0x10000 | 2 << 20, 2 << 20, 0xfffff000, 4096, 0x10000 },
		{ 0x100000000 | 0x3000, 2 << 20, 0xfffff000, 4096, 4096 },
		/* larger than what is known */
		{ 1ULL << 40, 2 << 20, ~0ULL, 4096, 2 << 20 },
		/* the device has some sizes only, and that of the processor's pages */
		{ 0x200000, 2 << 20, 0x11000, 4096, 0x10000 },
		{ 0x200000, 2 << 20, 0x1000, 4096, 4096 },
		{ 0x200000, 2 << 20, 0, 4096, 4096 },
		/* pages of 64 KiB */
		{ 0x200000, 2 << 20, ~0ULL << 16, 65536, 2 << 20 },
		{ 0x30000, 2 << 20, ~0ULL << 12, 65536, 65536 },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		if (tow_slab_reg_bytes(rows[i].chunks, rows[i].most, rows[i].able,
				       rows[i].page_bytes) != rows[i].want)
			return false;
	}
	return true;
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(4);
	ksft_test_result(all_fit(import_fits), "import: whole pages that 32 bits can tell\n");
	ksft_test_result(all_fit(large_fits), "pool: the largest power of two that fits\n");
	ksft_test_result(known_sizes(), "sizes as they should be\n");
	ksft_test_result(known_pages(), "pages of registrations as they should be\n");
	ksft_finished();
}
