// SPDX-License-Identifier: GPL-2.0
/*
 * Arenas on memory of the process: what is given out is nobody else's, errors and
 * numbers are the right ones, mistakes are noticed; with several threads, too.
 */
/* build: also tsan */
#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kselftest.h>

#include "internal.h"
#include "tow_source.h"

#define KIB		((size_t)1 << 10)
#define THREADS		4
#define LIVE_MAX	400
/* Each takes ten times as long where races are looked for. */
#ifdef __SANITIZE_THREAD__
#define ROUNDS		20000
#else
#define ROUNDS		250000
#endif

static void result(bool good, const char *what)
{
	ksft_test_result(good, "%s\n", what);
}

static struct tow_arena_stats stats_of(struct tow_arena *arena)
{
	struct tow_arena_stats stats = { .size = sizeof(stats) };

	if (tow_arena_stats(arena, &stats))
		ksft_exit_fail_msg("no numbers\n");
	return stats;
}

/* What was allocated, which there is. */
static char *had(void *ptr)
{
	if (!ptr)
		ksft_exit_fail_msg("no memory\n");
	return ptr;
}

static bool refused(const void *ptr, int error)
{
	return !ptr && errno == error;
}

/* ---- arguments -------------------------------------------------------------- */

static void test_arguments(void)
{
	struct source source = { 0 };
	struct towi_source from = { source_get, source_put, source_adopt, source_leave, &source };
	struct tow_arena_attr attr = { .size = sizeof(attr), .flags = 4 };
	struct tow_arena *arena = NULL;
	struct tow_region *region;
	uint64_t offset;
	int local;

	result(towi_arena_create(&from, &attr, &arena) == -EINVAL && !arena, "an unknown flag");
	attr.flags = 0;
	attr.size = 4;
	result(towi_arena_create(&from, &attr, &arena) == -EINVAL && !arena,
	       "a size that there never was");
	result(towi_arena_create(&from, NULL, NULL) == -EINVAL &&
	       tow_arena_create(NULL, NULL, &arena) == -EINVAL, "nothing to store it in, no device");
	arena = source_arena(&source, NULL);
	result(!source.regions, "nothing is taken before it is wanted");
	result(refused(tow_arena_alloc(NULL, 1), EINVAL) &&
	       refused(tow_arena_zeroed(NULL, 1, 1), EINVAL) &&
	       refused(tow_arena_aligned(arena, 0, 1), EINVAL) &&
	       refused(tow_arena_aligned(arena, 96, 1), EINVAL), "no arena, no alignment");
	result(refused(tow_arena_alloc(arena, SIZE_MAX), ENOMEM) &&
	       refused(tow_arena_aligned(arena, SIZE_MAX / 2 + 1, 1), ENOMEM) &&
	       refused(tow_arena_zeroed(arena, SIZE_MAX / 2, 3), ENOMEM), "more than there can be");
	result(tow_arena_free(arena, &local) == -EINVAL && !tow_arena_free(arena, NULL) &&
	       tow_arena_free(NULL, &local) == -EINVAL, "what was never allocated is not freed");
	result(tow_arena_find(arena, &local, &region, &offset) == -ENOENT &&
	       tow_arena_find(arena, &local, NULL, &offset) == -EINVAL &&
	       !tow_arena_usable(arena, &local), "nor found");
	result(refused(tow_arena_realloc(arena, &local, 9), EINVAL), "nor made larger");
	result(stats_of(arena).failures == 4 && !stats_of(arena).allocations,
	       "failures are counted");
	result(!tow_arena_destroy(arena) && !tow_arena_destroy(NULL), "an end");
}

/* ---- memory ----------------------------------------------------------------- */

static void test_places(void)
{
	struct source source = { 0 };
	struct tow_arena *arena = source_arena(&source, NULL);
	char *zero = tow_arena_alloc(arena, 0), *other = tow_arena_alloc(arena, 0), *ptr;
	bool aligned = true, zeroes;

	result(zero && other && zero != other, "no bytes have an address of their own");
	for (size_t alignment = 1; alignment <= 8 * MIB; alignment *= 2) {
		ptr = tow_arena_aligned(arena, alignment, 100);
		aligned &= ptr && !((uintptr_t)ptr % alignment) && !((uintptr_t)ptr % 64);
		memset(ptr, 1, 100);
	}
	result(aligned, "any power of two");
	ptr = tow_arena_alloc(arena, 1000);
	memset(ptr, 1, 1000);
	result(!tow_arena_free(arena, ptr), "freed");
	ptr = tow_arena_zeroed(arena, 10, 100);
	zeroes = ptr && !ptr[0] && !memcmp(ptr, ptr + 1, 999);
	result(zeroes, "zeroes where there were none");
	result(tow_arena_usable(arena, ptr) == 1024 && tow_arena_usable(arena, zero) == 64,
	       "all of a block may be used");
	result(tow_arena_usable(arena, ptr + 64) == 0 && tow_arena_free(arena, ptr + 64) == -EINVAL &&
	       tow_arena_free(arena, ptr + 1) == -EINVAL, "its middle is no block");
	result(!tow_arena_free(arena, ptr) && tow_arena_free(arena, ptr) == -EINVAL,
	       "small ones are freed once");
	ptr = tow_arena_alloc(arena, MIB);
	result(!tow_arena_free(arena, ptr) && tow_arena_free(arena, ptr) == -EINVAL,
	       "large ones are freed once");
	tow_arena_destroy(arena);
	result(!source.regions && !source.out, "all regions have ended");
}

static void test_regions(void)
{
	struct source source = { 0 };
	struct tow_arena_attr attr = { .size = sizeof(attr), .region_bytes = 3 * MIB };
	struct tow_arena *arena = source_arena(&source, &attr);
	char *first = tow_arena_alloc(arena, 4 * MIB), *second = tow_arena_alloc(arena, 4 * MIB);
	char *large = tow_arena_alloc(arena, 9 * MIB);
	struct tow_region *one = NULL, *other = NULL;
	uint64_t offset = 0, within = 0;

	result(first && second && large && source.regions == 3 && source.out == 18 * MIB,
	       "regions of 2 MiB, and larger ones for what is larger");
	result(!tow_arena_find(arena, first, &one, &offset) && !offset &&
	       !tow_arena_find(arena, first + 4 * MIB - 1, &other, &within) && one == other &&
	       within == 4 * MIB - 1 &&
	       !tow_arena_find(arena, large + 9 * MIB, &other, &within) && other != one &&
	       ((struct source_region *)other)->bytes == 10 * MIB, "each address is found");
	tow_arena_free(arena, second);
	tow_arena_free(arena, large);
	result(tow_arena_trim(arena, 14 * MIB) == 4 * MIB && source.out == 14 * MIB &&
	       tow_arena_find(arena, second, &other, &within) == -ENOENT &&
	       tow_arena_free(arena, second) == -EINVAL,
	       "trimmed no further than asked; what is gone is not found");
	result(tow_arena_trim(arena, 0) == 10 * MIB && source.regions == 1 &&
	       !tow_arena_trim(arena, 0), "nor further than what is in use");
	tow_arena_free(arena, first);
	first = tow_arena_alloc(arena, 10);
	tow_arena_free(arena, first);
	result(tow_arena_trim(arena, 0) == 4 * MIB && !source.regions && !stats_of(arena).regions,
	       "what caches keep does not hold a region");
	tow_arena_destroy(arena);
}

static void test_realloc(void)
{
	struct source source = { 0 };
	struct tow_arena *arena = source_arena(&source, NULL);
	char *first = tow_arena_realloc(arena, NULL, 100 * KIB), *second, *moved;
	struct tow_arena_stats stats;

	second = tow_arena_alloc(arena, 100 * KIB);
	memset(first, 7, 100 * KIB);
	result(first && second, "nothing made larger is something");
	result(tow_arena_realloc(arena, second, 300 * KIB) == second &&
	       tow_arena_usable(arena, second) == 300 * KIB, "in place, where there is room");
	moved = tow_arena_realloc(arena, first, 200 * KIB);
	result(moved && moved != first && moved[0] == 7 && !memcmp(moved, moved + 1,
								   100 * KIB - 1),
	       "moved, where there is none, with what is in it");
	result(tow_arena_realloc(arena, moved, 10) == moved && tow_arena_usable(arena, moved) == 64,
	       "and smaller in place");
	first = had(tow_arena_alloc(arena, 1000));
	memset(first, 8, tow_arena_usable(arena, first));
	second = tow_arena_realloc(arena, second, 350 * KIB);
	first = had(tow_arena_realloc(arena, first, 5000));
	result(first[1023] == 8 && !memcmp(first, first + 1, 1023),
	       "with all that could be used of it");
	tow_arena_free(arena, first);
	result(refused(tow_arena_realloc(arena, first, 10), EINVAL),
	       "what was moved away is not there any more");
	result(tow_arena_realloc(arena, moved, 0) == moved && !tow_arena_free(arena, moved),
	       "of no bytes it is still something");
	tow_arena_free(arena, second);
	stats = stats_of(arena);
	result(!stats.in_use_bytes && stats.allocations == stats.frees, "the numbers add up");
	tow_arena_destroy(arena);
}

/* ---- too little ------------------------------------------------------------- */

static void test_limits(void)
{
	struct source source = { .pool = 14 * MIB };
	struct tow_arena_attr attr = {
		.size = sizeof(attr), .region_bytes = 8 * MIB, .limit_bytes = 12 * MIB,
	};
	struct tow_arena *arena = source_arena(&source, &attr);
	char *first, *second;

	first = tow_arena_alloc(arena, 8 * MIB);
	result(refused(tow_arena_alloc(arena, 6 * MIB), EDQUOT), "a limit of the arena's own");
	second = tow_arena_alloc(arena, 3 * MIB);
	result(first && second && source.out == 12 * MIB, "what is left below it is had");
	result(refused(tow_arena_alloc(arena, 2 * MIB), EDQUOT), "and no more");
	tow_arena_free(arena, second);
	tow_arena_trim(arena, 0);
	result(!!tow_arena_aligned(arena, 2 * MIB, 4 * MIB), "regions are aligned anyway");
	tow_arena_destroy(arena);

	attr.limit_bytes = 0;
	arena = source_arena(&source, &attr);
	first = tow_arena_alloc(arena, 8 * MIB);
	second = tow_arena_alloc(arena, 5 * MIB);
	result(first && second && source.out == 14 * MIB, "what the pool has left does");
	result(refused(tow_arena_alloc(arena, 2 * MIB), ENOSPC), "until there is nothing");
	source.error = -ENODEV;
	result(refused(tow_arena_alloc(arena, 2 * MIB), ENODEV), "or no device");
	source.error = 0;
	tow_arena_free(arena, second);
	result(!!tow_arena_alloc(arena, 6 * MIB), "what is freed is there again");
	tow_arena_destroy(arena);
}

/* What may not wait for a region does with what there is. */
static void test_try(void)
{
	struct source source = { 0 };
	struct tow_arena_attr attr = { .size = sizeof(attr), .flags = TOW_ARENA_FALLBACK };
	struct tow_arena *arena = source_arena(&source, &attr);
	char *small = tow_arena_alloc(arena, 100), *block;

	result(refused(towi_arena_try(arena, 128 * MIB), EAGAIN) && source.regions == 1,
	       "no region is made where none may be");
	tow_arena_free(arena, tow_arena_alloc(arena, 128 * MIB));
	block = towi_arena_try(arena, 128 * MIB);
	result(block && towi_arena_try(arena, 100) && source.regions == 2, "what there is is had");
	result(small && !tow_arena_free(arena, small) && !tow_arena_free(arena, block),
	       "and given back");
	tow_arena_destroy(arena);
}

/* All of it is in a cache, in small pieces; nobody else would get any of it. */
static void test_caches_give_back(void)
{
	struct source source = { .pool = 2 * MIB };
	struct tow_arena *arena = source_arena(&source, NULL);
	char *small[256];
	bool all = true;

	for (int i = 0; i < 256; i++)
		all &= !!(small[i] = tow_arena_alloc(arena, 1 * KIB));
	for (int i = 0; i < 256; i++)
		tow_arena_free(arena, small[i]);
	result(all && !stats_of(arena).in_use_bytes, "many small ones come and go");
	result(!!tow_arena_alloc(arena, 2 * MIB), "caches are emptied for a large one");
	tow_arena_destroy(arena);
}

/* Freed ones serve others: each has enough, and not much more. */
static void test_sizes(void)
{
	struct source source = { 0 };
	struct tow_arena *arena = source_arena(&source, NULL);
	size_t usable, wrong = 0;
	char *ptr, *other;

	for (size_t bytes = 1; bytes < 70 * KIB; bytes += bytes < 5000 ? 1 : 37) {
		ptr = had(tow_arena_alloc(arena, bytes));
		other = had(tow_arena_alloc(arena, bytes));
		usable = tow_arena_usable(arena, ptr);
		wrong += usable < bytes || usable > bytes + bytes / 8 + 64;
		wrong += ptr < other ? ptr + usable > other :
				       other + tow_arena_usable(arena, other) > ptr;
		wrong += tow_arena_free(arena, ptr) || tow_arena_free(arena, other);
	}
	result(!wrong && !stats_of(arena).in_use_bytes, "no more than an eighth too large");
	tow_arena_destroy(arena);
}

/* What a cache keeps of larger ones is taken again by who wants about as much. */
static void test_stash(void)
{
	struct source source = { .pool = 12 * MIB };
	struct tow_arena_attr attr = { .size = sizeof(attr), .region_bytes = 12 * MIB };
	struct tow_arena *arena = source_arena(&source, &attr);
	char *first = had(tow_arena_alloc(arena, 100 * KIB)), *second, *many[20];
	struct tow_arena_stats stats;

	had(tow_arena_alloc(arena, 100 * KIB));
	tow_arena_free(arena, first);
	result(tow_arena_free(arena, first) == -EINVAL && !tow_arena_usable(arena, first) &&
	       stats_of(arena).in_use_bytes == 100 * KIB, "what is kept is free");
	second = had(tow_arena_alloc(arena, 80 * KIB));
	result(second != first && tow_arena_usable(arena, second) == 80 * KIB,
	       "not taken for much less");
	tow_arena_free(arena, second);
	second = had(tow_arena_alloc(arena, 90 * KIB));
	result(second == first && tow_arena_usable(arena, second) == 100 * KIB &&
	       stats_of(arena).in_use_bytes == 200 * KIB, "taken for nearly as much");
	for (size_t i = 0; i < ARRAY_SIZE(many); i++)
		many[i] = had(tow_arena_alloc(arena, 500 * KIB));
	for (size_t i = 0; i < ARRAY_SIZE(many); i++)
		tow_arena_free(arena, many[i]);
	stats = stats_of(arena);
	result(stats.in_use_bytes == 200 * KIB && stats.peak_bytes <= (280 + 20 * 500) * KIB &&
	       (double)stats.largest_free_bytes / (1 - stats.fragmentation) >=
		       (double)(8 * MIB - 200 * KIB), "no more than 4 MiB is kept");
	result(!!tow_arena_alloc(arena, 12 * MIB - 400 * KIB), "and none before there is no room");
	tow_arena_destroy(arena);
}

struct told {
	int warned, grown, shrunk, refuse;
};

static void note_warning(void *data, const char *what)
{
	((struct told *)data)->warned += !!*what;
}

static int note_grown(void *data, struct tow_region *region, void *addr, uint64_t bytes)
{
	struct told *told = data;

	if (told->refuse)
		return told->refuse;
	told->grown += region && addr && bytes;
	return 0;
}

static void note_shrinks(void *data, struct tow_region *region, void *addr, uint64_t bytes)
{
	((struct told *)data)->shrunk += region && addr && bytes;
}

static void test_told(void)
{
	struct told told = { .refuse = -EKEYREJECTED };
	struct source source = { 0 };
	struct tow_arena_attr attr = {
		.size = sizeof(attr), .grown = note_grown, .shrinks = note_shrinks, .data = &told,
	};
	struct tow_arena *arena = source_arena(&source, &attr);

	result(refused(tow_arena_alloc(arena, 1), EKEYREJECTED) && !source.regions,
	       "a region that is refused is none");
	told.refuse = 0;
	tow_arena_free(arena, tow_arena_alloc(arena, 1));
	result(told.grown == 1 && tow_arena_trim(arena, 0) && told.shrunk == 1,
	       "regions come and go, and it is told");
	result(tow_arena_alloc(arena, 1) && !tow_arena_destroy(arena) && told.grown == 2 &&
	       told.shrunk == 2, "at the end, too");
}

/* What an arena is given, from the middle of 2 MiB to the middle of others. */
static void test_adopted(void)
{
	struct told told = { 0 };
	struct source source = { .pool = 4 * MIB };
	struct tow_arena_attr attr = {
		.size = sizeof(attr), .region_bytes = 2 * MIB, .limit_bytes = 4 * MIB,
		.grown = note_grown, .shrinks = note_shrinks, .data = &told,
	};
	struct tow_arena *arena = source_arena(&source, &attr);
	char *memory = had(source_map(12 * MIB)), *block, *other;
	struct source_region given = { memory + MIB, 10 * MIB };
	struct source_region small = { memory + MIB, 3 * MIB - 1 };
	struct source_region again = { memory + 3 * MIB, 9 * MIB };
	struct tow_region *region = (struct tow_region *)(void *)&given, *found;
	uint64_t offset;

	memset(memory, 7, 12 * MIB);
	result(tow_arena_adopt(NULL, region) == -EINVAL && tow_arena_adopt(arena, NULL) == -EINVAL &&
	       tow_arena_adopt(arena, (struct tow_region *)(void *)&small) == -EINVAL &&
	       !source.adopted, "no region, or one without 2 MiB as they must lie");
	source.error = -EBUSY;
	result(tow_arena_adopt(arena, region) == -EBUSY, "one that cannot be had");
	source.error = 0;
	told.refuse = -EKEYREJECTED;
	result(tow_arena_adopt(arena, region) == -EKEYREJECTED && !source.adopted && !told.shrunk,
	       "one that is refused");
	told.refuse = 0;
	result(!tow_arena_adopt(arena, region) && told.grown == 1 && source.adopted == 1 &&
	       stats_of(arena).reserved_bytes == 8 * MIB && stats_of(arena).regions == 1,
	       "what of it is whole multiples of 2 MiB");
	result(tow_arena_adopt(arena, (struct tow_region *)(void *)&again) == -EBUSY &&
	       source.adopted == 1, "not the same memory twice");
	block = had(tow_arena_alloc(arena, 8 * MIB));
	result(block == memory + 2 * MIB && !tow_arena_find(arena, block + 5, &found, &offset) &&
	       found == region && offset == MIB + 5, "blocks are cut out of it");
	other = had(tow_arena_alloc(arena, 4 * MIB));
	result(other && refused(tow_arena_alloc(arena, 2 * MIB), EDQUOT) && source.out == 4 * MIB,
	       "it does not count against the limit");
	tow_arena_free(arena, block);
	tow_arena_free(arena, other);
	result(tow_arena_trim(arena, 0) == 4 * MIB && source.adopted == 1 && told.shrunk == 1 &&
	       tow_arena_alloc(arena, 8 * MIB) == block, "it is not trimmed");
	result(!tow_arena_destroy(arena) && !source.adopted && told.shrunk == 2, "and left at the end");
	attr = (struct tow_arena_attr){ .size = sizeof(attr), .flags = TOW_ARENA_DEBUG };
	arena = source_arena(&source, &attr);
	result(!tow_arena_adopt(arena, region) && memory[2 * MIB - 1] == 7 &&
	       memory[2 * MIB] == (char)0xdd && memory[10 * MIB - 1] == (char)0xdd &&
	       memory[10 * MIB] == 7 && !tow_arena_check(arena), "nothing around it is written to");
	tow_arena_destroy(arena);
	munmap(memory, 12 * MIB);
}

/* A device's memory: nothing here looks at it, or is mixed with it. */
static void test_far(void)
{
	struct source source = { .far = true };
	struct told told = { .refuse = -EKEYREJECTED };
	struct tow_arena_attr attr = { .size = sizeof(attr), .flags = TOW_ARENA_DEBUG };
	struct tow_arena *arena = source_arena(&source, &attr);
	struct source_region given = { had(source_map(4 * MIB)), 4 * MIB };
	struct source_region near = { had(source_map(2 * MIB)), 2 * MIB };
	struct tow_region *region = (struct tow_region *)(void *)&given, *found;
	char *block, *other;
	uint64_t offset;

	mprotect(given.at, given.bytes, PROT_NONE);
	result(tow_arena_adopt(arena, region) == -EOPNOTSUPP && !tow_arena_destroy(arena) &&
	       !source.adopted, "an arena that looks at its memory is given none of a device's");
	attr = (struct tow_arena_attr){ .size = sizeof(attr), .grown = note_grown,
					.shrinks = note_shrinks, .data = &told };
	arena = source_arena(&source, &attr);
	result(tow_arena_adopt(arena, region) == -EKEYREJECTED && !source.adopted,
	       "or one that refuses it");
	told.refuse = 0;
	tow_arena_free(arena, had(tow_arena_alloc(arena, 1)));
	result(tow_arena_adopt(arena, region) == -EOPNOTSUPP && !towi_arena_far(arena),
	       "nor one that has other memory");
	tow_arena_trim(arena, 0);
	result(!tow_arena_adopt(arena, region) && towi_arena_far(arena), "one that has none is");
	block = had(tow_arena_alloc(arena, 3 * MIB));
	result(!tow_arena_find(arena, block + 7, &found, &offset) && found == region &&
	       offset == (uint64_t)(block - (char *)given.at) + 7 &&
	       refused(tow_arena_alloc(arena, 2 * MIB), ENOSPC) && !source.regions,
	       "what it has is there, and it gets nothing from the pool");
	other = had(tow_arena_alloc(arena, 100));
	result(refused(tow_arena_zeroed(arena, 1, 100), EOPNOTSUPP) &&
	       refused(tow_arena_realloc(arena, other, 3000), EOPNOTSUPP) &&
	       tow_arena_realloc(arena, block, MIB) == block, "nothing is written or moved");
	source.far = false;
	result(tow_arena_adopt(arena, (struct tow_region *)(void *)&near) == -EOPNOTSUPP &&
	       source.adopted == 1, "nor is other memory added");
	result(!tow_arena_free(arena, block) && !tow_arena_free(arena, other) &&
	       !stats_of(arena).in_use_bytes && !tow_arena_destroy(arena) && !source.adopted,
	       "it is freed, and left");
	munmap(given.at, given.bytes);
	munmap(near.at, near.bytes);
}

/* Where a tensor is, of the arena's and a device's other regions. */
static void test_place(void)
{
	struct source source = { 0 };
	struct tow_arena *arena = source_arena(&source, NULL);
	struct tow_device dev = { .fd = -1, .process = towi_process() };
	char *block = had(tow_arena_alloc(arena, MIB)), *memory = had(malloc(3000));
	struct tow_region *region = (struct tow_region *)(void *)memory, *found = NULL, *own;
	uint64_t offset;

	towi_mapped_begin(&dev);
	tow_arena_find(arena, block, &own, &offset);
	result(!towi_place(arena, &dev, block, MIB, &found, &offset) && found == own &&
	       !offset, "in the arena");
	result(towi_place(arena, &dev, memory, 3000, &found, &offset) == -ENOENT, "nowhere");
	towi_mapped_add(&dev, region, memory + 1000, 500, 1000);
	result(!towi_place(arena, &dev, memory + 1000, 1000, &found, &offset) && found == region &&
	       offset == 500 &&
	       !towi_place(arena, &dev, memory + 1999, 1, &found, &offset) && offset == 1499,
	       "in another region");
	result(towi_place(arena, &dev, memory + 1000, 1001, &found, &offset) == -EINVAL &&
	       towi_place(arena, &dev, memory + 999, 2, &found, &offset) == -EINVAL,
	       "at the end of one, or at its begin");
	result(towi_place(arena, &dev, memory, 1000, &found, &offset) == -ENOENT &&
	       towi_place(arena, &dev, memory + 2000, 1000, &found, &offset) == -ENOENT,
	       "beside it");
	towi_mapped_drop(&dev, region, memory + 1000);
	towi_mapped_end(&dev);
	free(memory);
	tow_arena_destroy(arena);
}

static void test_fallback(void)
{
	struct told told = { 0 };
	struct source source = { .pool = 2 * MIB };
	struct tow_arena_attr attr = {
		.size = sizeof(attr), .flags = TOW_ARENA_FALLBACK, .warn = note_warning,
		.data = &told,
	};
	struct tow_arena *arena = source_arena(&source, &attr);
	char *inside = tow_arena_alloc(arena, 2 * MIB), *outside, *other;
	struct tow_region *region;
	struct tow_arena_stats stats;
	uint64_t offset;

	outside = had(tow_arena_aligned(arena, 4096, 100));
	other = tow_arena_alloc(arena, 5000);
	stats = stats_of(arena);
	result(outside && other && !((uintptr_t)outside % 4096) && stats.fallbacks == 2 &&
	       stats.fallback_bytes == 5100 && !stats.failures, "ordinary memory is counted");
	result(told.warned == 1, "and told of once");
	result(tow_arena_find(arena, outside, &region, &offset) == -ENOENT &&
	       tow_arena_usable(arena, outside) == 100, "it is in no region");
	memset(outside, 3, 100);
	tow_arena_free(arena, inside);
	outside = tow_arena_realloc(arena, outside, 200);
	result(outside && outside[99] == 3 && !tow_arena_find(arena, outside, &region, &offset),
	       "it moves in when there is room");
	result(!tow_arena_free(arena, other) && tow_arena_free(arena, other) == -EINVAL &&
	       !stats_of(arena).fallback_bytes, "and is freed once");
	source.pool = 1;
	result(!!tow_arena_alloc(arena, 3 * MIB), "at the end some is left, which goes, too");
	tow_arena_destroy(arena);
}

/* ---- mistakes --------------------------------------------------------------- */

static void test_debug(void)
{
	struct told told = { 0 };
	struct source source = { 0 };
	struct tow_arena_attr attr = {
		.size = sizeof(attr), .flags = TOW_ARENA_DEBUG, .region_bytes = 2 * MIB,
		.warn = note_warning, .data = &told,
	};
	struct tow_arena *arena = source_arena(&source, &attr);
	char *ptr = had(tow_arena_alloc(arena, 100));
	char *other = had(tow_arena_aligned(arena, 4096, 10));

	result(!((uintptr_t)other % 4096) && tow_arena_usable(arena, ptr) == 100,
	       "no more than was asked for may be used");
	memset(ptr, 1, 100);
	memset(other, 1, 10);
	result(!tow_arena_check(arena) && !tow_arena_free(arena, other), "and all of that");
	ptr[100] = 1;
	result(tow_arena_check(arena) == 1 && tow_arena_free(arena, ptr) == -EUCLEAN &&
	       !tow_arena_check(arena), "a byte behind it");
	ptr = had(tow_arena_alloc(arena, 100));
	ptr[-1] = 1;
	result(tow_arena_free(arena, ptr) == -EUCLEAN && stats_of(arena).damaged == 2,
	       "a byte before it");
	ptr = had(tow_arena_alloc(arena, 100));
	result(!tow_arena_free(arena, ptr) && tow_arena_free(arena, ptr) == -EINVAL, "freed twice");
	ptr[50] = 1;
	result(tow_arena_check(arena) == 1 && !told.warned, "written after it was freed");
	ptr = had(tow_arena_alloc(arena, 100));
	result(told.warned == 1 && stats_of(arena).damaged == 3,
	       "which whoever gets it next is told of");
	memset(ptr, 2, 100);
	other = tow_arena_realloc(arena, ptr, 200);
	result(other != ptr && other[99] == 2 && told.warned == 1, "moved in any case");
	other[200] = 1;
	other = tow_arena_realloc(arena, other, 300);
	result(told.warned == 2 && !tow_arena_free(arena, other), "and looked at then");
	ptr = had(tow_arena_alloc(arena, 0));
	*ptr = 1;
	result(!tow_arena_free(arena, ptr), "nothing is as good as a byte");
	tow_arena_destroy(arena);
}

/* ---- threads ---------------------------------------------------------------- */

static struct shared {
	struct tow_arena *arena;
	/* What one thread allocated and another frees. */
	_Atomic(char *) passed[16];
	_Atomic int wrong;
} shared;

struct own {
	char *at;
	size_t bytes;
};

/* Its size at the begin, and that of who wrote it at the end. */
static void stamp(char *at, size_t bytes)
{
	if (bytes < 16)
		return;
	memcpy(at, &bytes, 8);
	memcpy(at + bytes - 8, &bytes, 8);
}

static bool stamped(const char *at, size_t bytes)
{
	size_t first = bytes, last = bytes;

	if (bytes >= 16) {
		memcpy(&first, at, 8);
		memcpy(&last, at + bytes - 8, 8);
	}
	return first == bytes && last == bytes;
}

static size_t some_bytes(unsigned int *seed)
{
	unsigned int kind = (unsigned int)rand_r(seed) % 16;
	size_t most = kind < 10 ? 4 * KIB : kind < 14 ? 100 * KIB : 2 * MIB;

	return (size_t)rand_r(seed) % most + 16;
}

static void pass_on(struct own *own, unsigned int *seed)
{
	char *before = atomic_exchange(&shared.passed[(size_t)rand_r(seed) % 16], own->at);
	size_t bytes;

	own->at = before;
	if (!before)
		return;
	memcpy(&bytes, before, 8);
	own->bytes = bytes;
}

static void one_round(struct own *live, unsigned int *seed)
{
	struct own *own = &live[(size_t)rand_r(seed) % LIVE_MAX];
	struct tow_region *region;
	uint64_t offset;
	size_t bytes;
	char *moved;

	if (!own->at) {
		own->bytes = some_bytes(seed);
		own->at = tow_arena_alloc(shared.arena, own->bytes);
		if (own->at)
			stamp(own->at, own->bytes);
		return;
	}
	shared.wrong += !stamped(own->at, own->bytes) ||
			tow_arena_find(shared.arena, own->at, &region, &offset) ||
			tow_arena_usable(shared.arena, own->at) < own->bytes;
	switch (rand_r(seed) % 8) {
	case 0:
		bytes = some_bytes(seed);
		moved = tow_arena_realloc(shared.arena, own->at, bytes);
		if (!moved)
			break;
		own->at = moved;
		own->bytes = bytes;
		stamp(moved, bytes);
		break;
	case 1:
		pass_on(own, seed);
		break;
	default:
		shared.wrong += !!tow_arena_free(shared.arena, own->at);
		own->at = NULL;
	}
	if (rand_r(seed) % 1000 == 0)
		tow_arena_trim(shared.arena, 0);
}

static void *many_rounds(void *arg)
{
	struct own *live = calloc(LIVE_MAX, sizeof(*live));
	unsigned int seed = (unsigned int)(uintptr_t)arg;

	for (int i = 0; live && i < ROUNDS && !shared.wrong; i++)
		one_round(live, &seed);
	for (int i = 0; live && i < LIVE_MAX; i++)
		shared.wrong += !!tow_arena_free(shared.arena, live[i].at);
	free(live);
	return NULL;
}

static void test_threads(uint32_t flags, size_t pool, const char *what)
{
	struct source source = { .pool = pool };
	struct tow_arena_attr attr = {
		.size = sizeof(attr), .flags = flags, .region_bytes = 8 * MIB,
	};
	pthread_t threads[THREADS];
	struct tow_arena_stats stats;

	shared.arena = source_arena(&source, &attr);
	for (uintptr_t i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, many_rounds, (void *)(i + 1)))
			ksft_exit_fail_msg("no thread\n");
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 16; i++)
		shared.wrong += !!tow_arena_free(shared.arena,
						 atomic_exchange(&shared.passed[i], NULL));
	stats = stats_of(shared.arena);
	ksft_print_msg("%llu allocated, %llu times there was no room, %llu MiB at most\n",
		       (unsigned long long)stats.allocations, (unsigned long long)stats.failures,
		       (unsigned long long)(stats.peak_bytes / MIB));
	result(!shared.wrong && !stats.in_use_bytes && stats.allocations == stats.frees &&
	       !stats.damaged && !tow_arena_check(shared.arena) && (!pool || stats.failures), what);
	result(tow_arena_trim(shared.arena, 0) == stats.reserved_bytes && !source.regions,
	       "and then all of it goes back");
	tow_arena_destroy(shared.arena);
}

/* More threads than caches; what each allocated the next one frees. */
#define MANY		80
#define ROUNDS_OF_MANY	50

static pthread_barrier_t all_of_them;

static void *free_anothers(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg;
	static _Atomic(char *) theirs[MANY];
	size_t bytes;
	char *at;

	for (size_t round = 0; round < ROUNDS_OF_MANY; round++) {
		for (int i = 0; i < 20; i++) {
			bytes = some_bytes(&seed) % (32 * KIB) + 16;
			at = tow_arena_alloc(shared.arena, bytes);
			shared.wrong += !at;
			if (at)
				stamp(at, bytes);
			at = atomic_exchange(&theirs[(uintptr_t)arg], at);
			if (at)
				memcpy(&bytes, at, 8);
			shared.wrong += at && !stamped(at, bytes);
			shared.wrong += !!tow_arena_free(shared.arena, at);
		}
		pthread_barrier_wait(&all_of_them);
		at = atomic_exchange(&theirs[((uintptr_t)arg + 1) % MANY], NULL);
		shared.wrong += !!tow_arena_free(shared.arena, at);
		pthread_barrier_wait(&all_of_them);
	}
	return NULL;
}

static void test_many_threads(void)
{
	struct source source = { 0 };
	struct tow_arena_attr attr = { .size = sizeof(attr), .region_bytes = 8 * MIB };
	pthread_t threads[MANY];
	struct tow_arena_stats stats;

	shared.arena = source_arena(&source, &attr);
	pthread_barrier_init(&all_of_them, NULL, MANY);
	for (uintptr_t i = 0; i < MANY; i++)
		if (pthread_create(&threads[i], NULL, free_anothers, (void *)i))
			ksft_exit_fail_msg("no thread\n");
	for (int i = 0; i < MANY; i++)
		pthread_join(threads[i], NULL);
	stats = stats_of(shared.arena);
	result(!shared.wrong && stats.allocations == (uint64_t)MANY * ROUNDS_OF_MANY * 20 &&
	       stats.frees == stats.allocations && !stats.in_use_bytes,
	       "more threads than have caches, each frees another's");
	result(tow_arena_trim(shared.arena, 0) == stats.reserved_bytes && !source.regions,
	       "and caches of threads that have ended hold nothing");
	tow_arena_destroy(shared.arena);
}

/* ---- children --------------------------------------------------------------- */

static struct {
	struct tow_arena *arena;
	char *block;
	sem_t stands, ends;
} held;

/* Called with the lock that is around blocks. */
static void stand(void *data, const char *what)
{
	(void)data;
	(void)what;
	sem_post(&held.stands);
	sem_wait(&held.ends);
}

static void *alloc_and_stand(void *arg)
{
	(void)arg;
	return tow_arena_alloc(held.arena, 1000);
}

/* 0, or what a child found wrong. */
static int child(void)
{
	struct tow_arena_stats stats = { .size = sizeof(stats) };
	struct tow_region *region;
	uint64_t offset;

	if (!refused(tow_arena_alloc(held.arena, 100), EPERM) ||
	    !refused(tow_arena_aligned(held.arena, 4096, 100), EPERM) ||
	    !refused(tow_arena_zeroed(held.arena, 10, 10), EPERM) ||
	    !refused(tow_arena_realloc(held.arena, held.block, 10), EPERM) ||
	    !refused(tow_arena_realloc(held.arena, NULL, 10), EPERM))
		return 1;
	if (tow_arena_free(held.arena, held.block) != -EPERM || tow_arena_free(held.arena, NULL) ||
	    tow_arena_stats(held.arena, &stats) != -EPERM)
		return 2;
	if (tow_arena_trim(held.arena, 0) || tow_arena_check(held.arena) ||
	    tow_arena_usable(held.arena, held.block) != 100 ||
	    tow_arena_find(held.arena, held.block + 7, &region, &offset))
		return 3;
	if (tow_arena_adopt(held.arena, region) != -EPERM)
		return 4;
	return tow_arena_destroy(held.arena) == -EPERM ? 0 : 5;
}

static bool child_is_refused(void)
{
	int status = -1;
	pid_t pid = fork();

	if (!pid) {
		alarm(20);
		_exit(child());
	}
	waitpid(pid, &status, 0);
	if (status)
		ksft_print_msg("a child ends with %#x\n", (unsigned int)status);
	return !status;
}

static void test_child(void)
{
	struct tow_arena_attr attr = { .size = sizeof(attr), .flags = TOW_ARENA_DEBUG,
				       .warn = stand };
	struct source source = { 0 };
	pthread_t thread;
	void *of_thread;
	char *freed;
	bool good;

	held.arena = source_arena(&source, &attr);
	held.block = had(tow_arena_alloc(held.arena, 100));
	memset(held.block, 5, 100);
	result(child_is_refused(), "a child");
	sem_init(&held.stands, 0, 0);
	sem_init(&held.ends, 0, 0);
	freed = had(tow_arena_alloc(held.arena, 1000));
	tow_arena_free(held.arena, freed);
	*freed = 0;
	if (pthread_create(&thread, NULL, alloc_and_stand, NULL))
		ksft_exit_fail_msg("no thread\n");
	sem_wait(&held.stands);
	good = child_is_refused();
	sem_post(&held.ends);
	pthread_join(thread, &of_thread);
	result(good, "a child, while a thread has the lock");
	result(of_thread && of_thread != held.block && held.block[99] == 5 &&
	       !tow_arena_free(held.arena, of_thread) && !tow_arena_free(held.arena, held.block) &&
	       !stats_of(held.arena).in_use_bytes, "and the parent goes on");
	tow_arena_destroy(held.arena);
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(11 + 9 + 5 + 8 + 8 + 3 + 2 + 5 + 1 + 2 + 3 + 10 + 8 + 5 + 6 + 10 + 3 + 6);
	test_arguments();
	test_places();
	test_regions();
	test_realloc();
	test_limits();
	test_try();
	test_caches_give_back();
	test_sizes();
	test_stash();
	test_told();
	test_adopted();
	test_far();
	test_place();
	test_fallback();
	test_debug();
	test_child();
	test_threads(0, 0, "threads, each with its own, and what others had");
	test_threads(0, 64 * MIB, "threads, and not enough for all");
	test_threads(TOW_ARENA_DEBUG, 0, "threads, each block with its surroundings");
	test_many_threads();
	ksft_finished();
}
