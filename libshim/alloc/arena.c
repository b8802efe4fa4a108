// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Arenas: threads, regions, caches, and what makes mistakes known, around best fit.
 *
 * One lock is held while blocks are cut and joined (fit.c).  What is small is kept in
 * caches, one for each processor, and goes from free to allocated again without that
 * lock; nobody waits for a cache either: who finds it busy takes the lock.  Regions come
 * and go under a lock of their own, and nobody waits for the kernel who finds room.
 *
 * A child shares the regions, but what is known of the blocks is its own copy: what it cut
 * out of them its parent would give to somebody else.  So it only looks, without a lock.
 *
 * Lock order: growing, a cache, the blocks'.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../core/internal.h"
#include "arena.h"
#include "fit.h"

#define REGION_BYTES	((size_t)64 << 20)
/* Any sum of two sizes below is below SIZE_MAX. */
#define BYTES_MAX	(SIZE_MAX / 4)

#define ATTR_SIZE_FIRST	(offsetof(struct tow_arena_attr, data) + sizeof(void *))
#define STATS_SIZE_FIRST \
	(offsetof(struct tow_arena_stats, fragmentation) + sizeof(double))

/* Caches: blocks of up to so many grains, so many of a size, so much in all. */
#define KEPT_GRAINS	64U
#define KEPT_OF_A_SIZE	32U
#define KEPT_BYTES	((size_t)256 << 10)
/* How many of a size are taken at once when there is none. */
#define KEPT_AT_ONCE	8U
#define CACHES_MAX	64

/* What is written around blocks, and into free ones. */
#define RED		0xfd
#define POISON		0xdd
#define RED_BYTES	TOWI_GRAIN

struct cache {
	_Alignas(128) atomic_flag busy;
	_Atomic size_t bytes;
	_Atomic uint64_t allocations, frees;
	struct towi_block *first[KEPT_GRAINS + 1];
	uint8_t count[KEPT_GRAINS + 1];
};

/* Ordinary memory that was given out. */
struct ordinary {
	const void *at;
	void *memory;		/* the same, to be freed */
	size_t bytes;
};

struct tow_arena {
	struct tow_arena_attr attr;
	struct towi_source source;
	uint64_t process;		/* whose it is: towi_ours() */
	bool debug;
	/* Around regions that come and go. */
	pthread_mutex_t growing;
	struct towi_watch *watches;
	/* Around everything of fit but towi_fit_find() and towi_fit_span(). */
	pthread_mutex_t lock;
	struct towi_fit fit;
	uint64_t regions;
	_Atomic uint64_t allocations, frees, failures, fallbacks, fallback_bytes, damaged;
	/* Ordinary memory, by its address: a tree of <search.h>. */
	pthread_mutex_t ordinary_lock;
	void *ordinary;
	int caches_count;
	struct cache *caches;
};

/* A region's record: towi_span.owner. */
struct part {
	struct tow_region *region;
	void *at;
	size_t bytes;
};

/* ---- numbers and words ------------------------------------------------------ */

static void tally(_Atomic uint64_t *number, uint64_t by)
{
	atomic_fetch_add_explicit(number, by, memory_order_relaxed);
}

static uint64_t counted(const _Atomic uint64_t *number)
{
	return atomic_load_explicit(number, memory_order_relaxed);
}

static void warn(const struct tow_arena *arena, const char *what)
{
	if (arena->attr.warn)
		arena->attr.warn(arena->attr.data, what);
	else
		fprintf(stderr, "libtowline: %s\n", what);
}

uint64_t towi_arena_process(const struct tow_arena *arena)
{
	return arena->process;
}

bool towi_arena_ours(const struct tow_arena *arena)
{
	return towi_ours(arena->process);
}

static void *failed(struct tow_arena *arena, int error)
{
	tally(&arena->failures, 1);
	errno = error;
	return NULL;
}

static size_t rounded(size_t bytes, size_t to)
{
	return (bytes + to - 1) & ~(to - 1);
}

/* ---- red zones and poison --------------------------------------------------- */

static bool all(const char *at, size_t bytes, unsigned char value)
{
	const unsigned char *byte = (const unsigned char *)at;

	if (!bytes)
		return true;
	return *byte == value && !memcmp(byte, byte + 1, bytes - 1);
}

static char *given(const struct towi_block *block)
{
	return block->at + block->front;
}

static size_t behind(const struct towi_block *block)
{
	return block->bytes - block->front - block->asked;
}

static void paint(struct towi_block *block)
{
	memset(given(block) - RED_BYTES, RED, RED_BYTES);
	memset(given(block) + block->asked, RED, behind(block));
}

static bool painted(const struct towi_block *block)
{
	return all(given(block) - RED_BYTES, RED_BYTES, RED) &&
	       all(given(block) + block->asked, behind(block), RED);
}

/* ---- caches ----------------------------------------------------------------- */

static struct cache *take_cache(struct tow_arena *arena)
{
	struct cache *cache;
	int cpu;

	if (!arena->caches_count)
		return NULL;
	cpu = sched_getcpu();
	cache = &arena->caches[cpu < 0 ? 0 : cpu % arena->caches_count];
	return atomic_flag_test_and_set_explicit(&cache->busy, memory_order_acquire) ? NULL
										     : cache;
}

static void leave_cache(struct cache *cache)
{
	atomic_flag_clear_explicit(&cache->busy, memory_order_release);
}

/* Only who has the cache writes them. */
static void add(_Atomic size_t *number, size_t by)
{
	atomic_store_explicit(number, atomic_load_explicit(number, memory_order_relaxed) + by,
			      memory_order_relaxed);
}

static void add64(_Atomic uint64_t *number)
{
	atomic_store_explicit(number, counted(number) + 1, memory_order_relaxed);
}

static size_t grains(const struct towi_block *block)
{
	return block->bytes / TOWI_GRAIN;
}

static bool has_room(const struct cache *cache, size_t bytes)
{
	return cache->count[bytes / TOWI_GRAIN] < KEPT_OF_A_SIZE &&
	       atomic_load_explicit(&cache->bytes, memory_order_relaxed) + bytes <= KEPT_BYTES;
}

static void keep(struct cache *cache, struct towi_block *block)
{
	size_t size = grains(block);

	block->next = cache->first[size];
	cache->first[size] = block;
	cache->count[size]++;
	add(&cache->bytes, block->bytes);
}

/* Some of that size, which nobody has yet; NULL: there is no room. */
static struct towi_block *take_some(struct tow_arena *arena, struct cache *cache, size_t bytes)
{
	struct towi_block *first, *block;

	pthread_mutex_lock(&arena->lock);
	first = towi_fit_take(&arena->fit, bytes, TOWI_GRAIN);
	if (first)
		towi_fit_note(first, first->at);
	for (unsigned int i = 1; first && i < KEPT_AT_ONCE && has_room(cache, bytes); i++) {
		block = towi_fit_take(&arena->fit, bytes, TOWI_GRAIN);
		if (!block)
			break;
		atomic_store_explicit(&block->state, TOWI_BLOCK_KEPT, memory_order_relaxed);
		towi_fit_note(block, block->at);
		keep(cache, block);
	}
	pthread_mutex_unlock(&arena->lock);
	return first;
}

static struct towi_block *take_kept(struct cache *cache, size_t bytes)
{
	size_t size = bytes / TOWI_GRAIN;
	struct towi_block *block = cache->first[size];

	if (block) {
		cache->first[size] = block->next;
		cache->count[size]--;
		add(&cache->bytes, -block->bytes);
	}
	return block;
}

/* Small blocks, of @bytes; NULL: not by this way. */
static void *alloc_kept(struct tow_arena *arena, size_t bytes, size_t asked)
{
	struct cache *cache = take_cache(arena);
	struct towi_block *block;

	if (!cache)
		return NULL;
	block = take_kept(cache, bytes);
	if (!block)
		block = take_some(arena, cache, bytes);
	if (block) {
		add64(&cache->allocations);
		block->asked = asked;
		atomic_store_explicit(&block->state, TOWI_BLOCK_LIVE, memory_order_relaxed);
	}
	leave_cache(cache);
	return block ? block->at : NULL;
}

/* The block is the caller's, and its state TOWI_BLOCK_KEPT already. */
static bool free_kept(struct tow_arena *arena, struct towi_block *block)
{
	struct cache *cache = grains(block) <= KEPT_GRAINS && !block->front ?
				      take_cache(arena) : NULL;
	bool room;

	if (!cache)
		return false;
	room = has_room(cache, block->bytes);
	if (room) {
		keep(cache, block);
		add64(&cache->frees);
	}
	leave_cache(cache);
	return room;
}

/* What a cache keeps, which is empty then; the caller gives it back. */
static struct towi_block *empty(struct cache *cache)
{
	struct towi_block *all_kept = NULL, *block;

	/* Whoever has it may be of lower priority, and on this processor. */
	while (atomic_flag_test_and_set_explicit(&cache->busy, memory_order_acquire))
		usleep(10);
	for (unsigned int size = 1; size <= KEPT_GRAINS; size++) {
		while ((block = take_kept(cache, size * TOWI_GRAIN))) {
			block->next = all_kept;
			all_kept = block;
		}
	}
	leave_cache(cache);
	return all_kept;
}

static bool empty_caches(struct tow_arena *arena)
{
	struct towi_block *block, *next;
	bool any = false;

	for (int i = 0; i < arena->caches_count; i++) {
		block = empty(&arena->caches[i]);
		any |= !!block;
		pthread_mutex_lock(&arena->lock);
		for (; block; block = next) {
			next = block->next;
			towi_fit_forget(block, block->at);
			towi_fit_give(&arena->fit, block);
		}
		pthread_mutex_unlock(&arena->lock);
	}
	return any;
}

/* ---- regions ---------------------------------------------------------------- */

/* Called with arena->growing.  What a child's copy says nobody is told. */
static void end_part(struct tow_arena *arena, struct part *part, int *error)
{
	bool ours = towi_arena_ours(arena);
	struct towi_watch *watch;
	int ret;

	for (watch = ours ? arena->watches : NULL; watch; watch = watch->next)
		watch->gone(watch, part->region);
	if (ours && arena->attr.shrinks)
		arena->attr.shrinks(arena->attr.data, part->region, part->at, part->bytes);
	ret = arena->source.put(arena->source.from, part->region);
	if (ret && !*error)
		*error = ret;
	free(part);
}

/* A region is asked for, shown to the program, and ready to be added. */
static int make_part(struct tow_arena *arena, size_t bytes, struct part **made)
{
	struct part *part = calloc(1, sizeof(*part));
	int ret;

	if (!part)
		return -ENOMEM;
	part->bytes = bytes;
	ret = arena->source.get(arena->source.from, &part->bytes, &part->at, &part->region);
	if (ret) {
		free(part);
		return ret;
	}
	if (arena->attr.grown)
		ret = arena->attr.grown(arena->attr.data, part->region, part->at, part->bytes);
	if (ret) {
		arena->source.put(arena->source.from, part->region);
		free(part);
		return ret;
	}
	if (arena->debug)
		memset(part->at, POISON, part->bytes);
	*made = part;
	return 0;
}

/* Called with arena->growing. */
static int add_part(struct tow_arena *arena, size_t bytes)
{
	struct part *part;
	int ret, ignored = 0;

	ret = make_part(arena, bytes, &part);
	if (ret)
		return ret;
	pthread_mutex_lock(&arena->lock);
	ret = towi_fit_add(&arena->fit, part->at, part->bytes, part);
	arena->regions += !ret;
	pthread_mutex_unlock(&arena->lock);
	if (ret)
		end_part(arena, part, &ignored);
	return ret;
}

/* Another region, in which @bytes have room: 0 or a negative errno. */
static int grow(struct tow_arena *arena, size_t bytes)
{
	size_t least = rounded(bytes, TOWI_SPAN_GRAIN);
	size_t wanted = arena->attr.region_bytes, room = SIZE_MAX;
	int ret;

	if (arena->attr.limit_bytes)
		room = arena->attr.limit_bytes > arena->fit.reserved ?
		       arena->attr.limit_bytes - arena->fit.reserved : 0;
	if (least > room)
		return -EDQUOT;
	if (wanted < least)
		wanted = least;
	if (wanted > room)
		wanted = room / TOWI_SPAN_GRAIN * TOWI_SPAN_GRAIN;
	ret = add_part(arena, wanted);
	if (wanted > least && (ret == -ENOSPC || ret == -EDQUOT || ret == -ENOMEM))
		ret = add_part(arena, least);
	return ret;
}

/* ---- allocation ------------------------------------------------------------- */

/* What a program wants, and what that is of a block. */
struct want {
	size_t asked, alignment;
	size_t front;		/* before what it is given */
	size_t bytes;		/* of the block */
	bool grows;		/* if there is no room, some is made */
};

static bool wanted(const struct tow_arena *arena, size_t alignment, size_t asked,
		   struct want *want)
{
	if (asked > BYTES_MAX || alignment > BYTES_MAX)
		return false;
	/* Nothing has an address of its own, too. */
	asked += !asked;
	want->asked = asked;
	want->alignment = alignment > TOWI_GRAIN ? alignment : TOWI_GRAIN;
	want->front = arena->debug ? want->alignment : 0;
	want->bytes = want->front + rounded(asked + (arena->debug ? RED_BYTES : 0),
					    TOWI_GRAIN);
	return true;
}

/* Nobody who may not has written to it since it was free. */
static void look_at_poison(struct tow_arena *arena, const struct towi_block *block)
{
	if (all(block->at, block->bytes, POISON))
		return;
	tally(&arena->damaged, 1);
	warn(arena, "freed memory of an arena was written to");
}

static struct towi_block *take(struct tow_arena *arena, const struct want *want)
{
	struct towi_block *block;

	pthread_mutex_lock(&arena->lock);
	block = towi_fit_take(&arena->fit, want->bytes, want->alignment);
	if (block) {
		block->front = want->front;
		block->asked = want->asked;
		if (arena->debug) {
			look_at_poison(arena, block);
			paint(block);
		}
		towi_fit_note(block, given(block));
	}
	pthread_mutex_unlock(&arena->lock);
	return block;
}

/* There was no room: make some.  NULL with the reason. */
static struct towi_block *take_grown(struct tow_arena *arena, const struct want *want, int *error)
{
	size_t slack = want->alignment > TOWI_SPAN_GRAIN ? want->alignment - TOWI_SPAN_GRAIN : 0;
	struct towi_block *block;

	pthread_mutex_lock(&arena->growing);
	/* Somebody else may have, meanwhile. */
	block = take(arena, want);
	if (!block && empty_caches(arena))
		block = take(arena, want);
	while (!block) {
		/* Regions begin at multiples of 2 MiB. */
		*error = grow(arena, want->bytes + slack);
		if (*error)
			break;
		/* Others may take what was made for this one. */
		block = take(arena, want);
	}
	pthread_mutex_unlock(&arena->growing);
	return block;
}

static int compare_ordinary(const void *one, const void *other)
{
	const char *first = ((const struct ordinary *)one)->at;
	const char *second = ((const struct ordinary *)other)->at;

	return (first > second) - (first < second);
}

/* Ordinary memory, which is counted, and told of once. */
static void *alloc_ordinary(struct tow_arena *arena, const struct want *want)
{
	struct ordinary *ordinary = malloc(sizeof(*ordinary));
	void *known = NULL;

	if (!ordinary)
		return NULL;
	ordinary->bytes = want->asked;
	ordinary->memory = aligned_alloc(want->alignment, rounded(want->asked, want->alignment));
	ordinary->at = ordinary->memory;
	if (ordinary->memory) {
		pthread_mutex_lock(&arena->ordinary_lock);
		known = tsearch(ordinary, &arena->ordinary, compare_ordinary);
		pthread_mutex_unlock(&arena->ordinary_lock);
	}
	if (!known) {
		free(ordinary->memory);
		free(ordinary);
		return NULL;
	}
	tally(&arena->fallback_bytes, want->asked);
	if (!atomic_fetch_add_explicit(&arena->fallbacks, 1, memory_order_relaxed))
		warn(arena, "an arena has no room left and gives out ordinary memory, which "
			    "must be copied before it is sent");
	return ordinary->memory;
}

static void *alloc_slowly(struct tow_arena *arena, const struct want *want)
{
	struct towi_block *block = take(arena, want);
	void *ordinary;
	int error = 0;

	if (!block && !want->grows) {
		errno = EAGAIN;
		return NULL;
	}
	if (!block)
		block = take_grown(arena, want, &error);
	if (block) {
		tally(&arena->allocations, 1);
		return given(block);
	}
	if (arena->attr.flags & TOW_ARENA_FALLBACK) {
		ordinary = alloc_ordinary(arena, want);
		if (ordinary) {
			tally(&arena->allocations, 1);
			return ordinary;
		}
		error = -ENOMEM;
	}
	return failed(arena, -error);
}

static void *alloc(struct tow_arena *arena, size_t alignment, size_t bytes, bool grows)
{
	struct want want;
	void *ptr = NULL;

	if (!towi_arena_ours(arena)) {
		errno = EPERM;
		return NULL;
	}
	if (!wanted(arena, alignment, bytes, &want))
		return failed(arena, ENOMEM);
	want.grows = grows;
	if (want.bytes <= KEPT_GRAINS * TOWI_GRAIN && want.alignment == TOWI_GRAIN)
		ptr = alloc_kept(arena, want.bytes, want.asked);
	return ptr ? ptr : alloc_slowly(arena, &want);
}

TOW_PUBLIC void *tow_arena_alloc(struct tow_arena *arena, size_t bytes)
{
	if (!arena) {
		errno = EINVAL;
		return NULL;
	}
	return alloc(arena, TOWI_GRAIN, bytes, true);
}

void *towi_arena_try(struct tow_arena *arena, size_t bytes)
{
	return alloc(arena, TOWI_GRAIN, bytes, false);
}

TOW_PUBLIC void *tow_arena_aligned(struct tow_arena *arena, size_t alignment, size_t bytes)
{
	if (!arena || !alignment || alignment & (alignment - 1)) {
		errno = EINVAL;
		return NULL;
	}
	return alloc(arena, alignment, bytes, true);
}

TOW_PUBLIC void *tow_arena_zeroed(struct tow_arena *arena, size_t count, size_t bytes)
{
	size_t product;
	void *ptr;

	if (!arena) {
		errno = EINVAL;
		return NULL;
	}
	if (__builtin_mul_overflow(count, bytes, &product))
		return failed(arena, ENOMEM);
	ptr = alloc(arena, TOWI_GRAIN, product, true);
	if (ptr)
		memset(ptr, 0, product);
	return ptr;
}

/* ---- and back --------------------------------------------------------------- */

/* Of ordinary memory; taken off the tree if @forget.  Its size, or SIZE_MAX. */
static size_t find_ordinary(struct tow_arena *arena, const void *ptr, bool forget)
{
	struct ordinary key = { .at = ptr }, *ordinary = NULL, **node;
	size_t bytes = SIZE_MAX;

	if (!(arena->attr.flags & TOW_ARENA_FALLBACK) || !towi_arena_ours(arena))
		return SIZE_MAX;
	pthread_mutex_lock(&arena->ordinary_lock);
	node = tfind(&key, &arena->ordinary, compare_ordinary);
	if (node) {
		ordinary = *node;
		bytes = ordinary->bytes;
		if (forget)
			tdelete(ordinary, &arena->ordinary, compare_ordinary);
	}
	pthread_mutex_unlock(&arena->ordinary_lock);
	if (forget)
		free(ordinary);
	return bytes;
}

static int free_ordinary(struct tow_arena *arena, void *ptr)
{
	size_t bytes = find_ordinary(arena, ptr, true);

	if (bytes == SIZE_MAX)
		return -EINVAL;
	tally(&arena->fallback_bytes, -(uint64_t)bytes);
	tally(&arena->frees, 1);
	free(ptr);
	return 0;
}

/* The block that a program has at @ptr, or NULL. */
static struct towi_block *live(const struct tow_arena *arena, const void *ptr)
{
	struct towi_block *block = towi_fit_find(&arena->fit, ptr);

	return block && atomic_load_explicit(&block->state, memory_order_relaxed) ==
				TOWI_BLOCK_LIVE ? block : NULL;
}

/* Of two that free the same, one is the first. */
static struct towi_block *claim(struct tow_arena *arena, const void *ptr)
{
	struct towi_block *block = towi_fit_find(&arena->fit, ptr);
	uint32_t state = TOWI_BLOCK_LIVE;

	return block && atomic_compare_exchange_strong_explicit(
				&block->state, &state, TOWI_BLOCK_KEPT, memory_order_acq_rel,
				memory_order_relaxed) ? block : NULL;
}

static int free_slowly(struct tow_arena *arena, struct towi_block *block, void *ptr)
{
	int ret = 0;

	pthread_mutex_lock(&arena->lock);
	if (arena->debug) {
		if (!painted(block)) {
			tally(&arena->damaged, 1);
			ret = -EUCLEAN;
		}
		memset(block->at, POISON, block->bytes);
	}
	towi_fit_forget(block, ptr);
	towi_fit_give(&arena->fit, block);
	pthread_mutex_unlock(&arena->lock);
	tally(&arena->frees, 1);
	return ret;
}

TOW_PUBLIC int tow_arena_free(struct tow_arena *arena, void *ptr)
{
	struct towi_block *block;

	if (!arena)
		return -EINVAL;
	if (!ptr)
		return 0;
	if (!towi_arena_ours(arena))
		return -EPERM;
	block = claim(arena, ptr);
	if (!block)
		return free_ordinary(arena, ptr);
	return free_kept(arena, block) ? 0 : free_slowly(arena, block, ptr);
}

/* ---- more of it, or less ---------------------------------------------------- */

/* Whether it goes on where it is. */
static bool resize(struct tow_arena *arena, struct towi_block *block, const struct want *want)
{
	bool done;

	pthread_mutex_lock(&arena->lock);
	done = towi_fit_resize(&arena->fit, block, want->bytes);
	if (done)
		block->asked = want->asked;
	pthread_mutex_unlock(&arena->lock);
	return done;
}

TOW_PUBLIC void *tow_arena_realloc(struct tow_arena *arena, void *ptr, size_t bytes)
{
	struct towi_block *block;
	struct want want;
	size_t had;
	void *moved;

	if (!arena || !ptr || !towi_arena_ours(arena))
		return tow_arena_alloc(arena, bytes);
	if (!wanted(arena, TOWI_GRAIN, bytes, &want))
		return failed(arena, ENOMEM);
	block = live(arena, ptr);
	had = block ? tow_arena_usable(arena, ptr) : find_ordinary(arena, ptr, false);
	if (had == SIZE_MAX)
		return failed(arena, EINVAL);
	/* With red zones each change is a move, so that all of it is looked at. */
	if (block && !arena->debug && resize(arena, block, &want))
		return ptr;
	moved = alloc(arena, TOWI_GRAIN, bytes, true);
	if (!moved)
		return NULL;
	memcpy(moved, ptr, had < bytes ? had : bytes);
	if (tow_arena_free(arena, ptr) == -EUCLEAN)
		warn(arena, "something was written around memory of an arena");
	return moved;
}

/* ---- questions -------------------------------------------------------------- */

TOW_PUBLIC size_t tow_arena_usable(struct tow_arena *arena, const void *ptr)
{
	const struct towi_block *block;
	size_t bytes;

	if (!arena || !ptr)
		return 0;
	block = live(arena, ptr);
	if (block)
		return arena->debug ? block->asked : block->bytes;
	bytes = find_ordinary(arena, ptr, false);
	return bytes == SIZE_MAX ? 0 : bytes;
}

TOW_PUBLIC int tow_arena_find(struct tow_arena *arena, const void *ptr, struct tow_region **region,
			      uint64_t *offset)
{
	const struct towi_span *span;
	const struct part *part;

	if (!arena || !region || !offset)
		return -EINVAL;
	span = towi_fit_span(&arena->fit, ptr);
	if (!span)
		return -ENOENT;
	part = span->owner;
	*region = part->region;
	*offset = (uint64_t)((const char *)ptr - (const char *)part->at);
	return 0;
}

TOW_PUBLIC uint64_t tow_arena_trim(struct tow_arena *arena, uint64_t keep_bytes)
{
	uint64_t sum = 0;
	size_t bytes;
	void *owner;
	bool any;
	int ignored = 0;

	if (!arena || !towi_arena_ours(arena))
		return 0;
	pthread_mutex_lock(&arena->growing);
	empty_caches(arena);
	do {
		pthread_mutex_lock(&arena->lock);
		any = towi_fit_remove(&arena->fit, keep_bytes, &owner, &bytes);
		arena->regions -= any;
		pthread_mutex_unlock(&arena->lock);
		if (any) {
			end_part(arena, owner, &ignored);
			sum += bytes;
		}
	} while (any);
	pthread_mutex_unlock(&arena->growing);
	return sum;
}

void towi_arena_watch(struct tow_arena *arena, struct towi_watch *watch)
{
	pthread_mutex_lock(&arena->growing);
	watch->next = arena->watches;
	arena->watches = watch;
	pthread_mutex_unlock(&arena->growing);
}

void towi_arena_unwatch(struct tow_arena *arena, struct towi_watch *watch)
{
	struct towi_watch **link;

	if (!towi_arena_ours(arena))
		return;
	pthread_mutex_lock(&arena->growing);
	for (link = &arena->watches; *link != watch;)
		link = &(*link)->next;
	*link = watch->next;
	pthread_mutex_unlock(&arena->growing);
}

TOW_PUBLIC size_t tow_arena_check(struct tow_arena *arena)
{
	const struct towi_block *block;
	const struct towi_span *span;
	size_t bad = 0;

	if (!arena || !arena->debug || !towi_arena_ours(arena))
		return 0;
	pthread_mutex_lock(&arena->lock);
	for (span = arena->fit.spans; span; span = span->next) {
		for (block = span->first; block; block = block->after) {
			if (atomic_load_explicit(&block->state, memory_order_relaxed) ==
			    TOWI_BLOCK_FREE)
				bad += !all(block->at, block->bytes, POISON);
			else
				bad += !painted(block);
		}
	}
	pthread_mutex_unlock(&arena->lock);
	return bad;
}

TOW_PUBLIC int tow_arena_stats(struct tow_arena *arena, struct tow_arena_stats *stats)
{
	struct tow_arena_stats known = { .size = sizeof(known) };
	uint64_t kept = 0, free_bytes;

	if (!arena || !stats || !towi_size_valid(stats->size, STATS_SIZE_FIRST))
		return -EINVAL;
	if (!towi_arena_ours(arena))
		return -EPERM;
	known.flags = arena->attr.flags;
	known.allocations = counted(&arena->allocations);
	known.frees = counted(&arena->frees);
	for (int i = 0; i < arena->caches_count; i++) {
		const struct cache *cache = &arena->caches[i];

		kept += atomic_load_explicit(&cache->bytes, memory_order_relaxed);
		known.allocations += counted(&cache->allocations);
		known.frees += counted(&cache->frees);
	}
	known.failures = counted(&arena->failures);
	known.fallbacks = counted(&arena->fallbacks);
	known.fallback_bytes = counted(&arena->fallback_bytes);
	known.damaged = counted(&arena->damaged);
	pthread_mutex_lock(&arena->lock);
	known.in_use_bytes = arena->fit.taken > kept ? arena->fit.taken - kept : 0;
	known.reserved_bytes = arena->fit.reserved;
	known.peak_bytes = arena->fit.peak;
	known.largest_free_bytes = towi_fit_largest(&arena->fit);
	known.regions = arena->regions;
	free_bytes = arena->fit.reserved - arena->fit.taken;
	pthread_mutex_unlock(&arena->lock);
	if (free_bytes)
		known.fragmentation = 1 - (double)known.largest_free_bytes / (double)free_bytes;
	return towi_give(&known, STATS_SIZE_FIRST, stats);
}

/* ---- begin and end ---------------------------------------------------------- */

static int make_caches(struct tow_arena *arena)
{
	long processors = sysconf(_SC_NPROCESSORS_CONF);

	/* A cache would hand out what nobody looked at. */
	if (arena->debug)
		return 0;
	if (processors < 1)
		processors = 1;
	arena->caches_count = processors < CACHES_MAX ? (int)processors : CACHES_MAX;
	arena->caches = aligned_alloc(_Alignof(struct cache),
				      (size_t)arena->caches_count * sizeof(*arena->caches));
	if (!arena->caches)
		return -ENOMEM;
	memset(arena->caches, 0, (size_t)arena->caches_count * sizeof(*arena->caches));
	for (int i = 0; i < arena->caches_count; i++)
		atomic_flag_clear(&arena->caches[i].busy);
	return 0;
}

static void free_arena(struct tow_arena *arena)
{
	pthread_mutex_destroy(&arena->growing);
	pthread_mutex_destroy(&arena->lock);
	pthread_mutex_destroy(&arena->ordinary_lock);
	free(arena->caches);
	free(arena);
}

int towi_arena_create(const struct towi_source *source, const struct tow_arena_attr *attr,
		      struct tow_arena **arena)
{
	struct tow_arena *made;
	int ret;

	if (!arena)
		return -EINVAL;
	made = calloc(1, sizeof(*made));
	if (!made)
		return -ENOMEM;
	made->source = *source;
	made->process = towi_process();
	ret = towi_take(attr, ATTR_SIZE_FIRST, &made->attr, sizeof(made->attr));
	if (!ret && (made->attr.flags & ~(TOW_ARENA_DEBUG | TOW_ARENA_FALLBACK) ||
		     made->attr.region_bytes > BYTES_MAX))
		ret = -EINVAL;
	if (!made->attr.region_bytes)
		made->attr.region_bytes = REGION_BYTES;
	made->attr.region_bytes = rounded(made->attr.region_bytes, TOWI_SPAN_GRAIN);
	made->debug = made->attr.flags & TOW_ARENA_DEBUG;
	pthread_mutex_init(&made->growing, NULL);
	pthread_mutex_init(&made->lock, NULL);
	pthread_mutex_init(&made->ordinary_lock, NULL);
	if (!ret && !made->process)
		ret = -ENOMEM;
	if (!ret)
		ret = make_caches(made);
	if (!ret)
		ret = towi_fit_init(&made->fit);
	if (ret)
		free_arena(made);
	else
		*arena = made;
	return ret;
}

static void end_ordinary(void *entry)
{
	struct ordinary *ordinary = entry;

	free(ordinary->memory);
	free(ordinary);
}

/* Of a child's copy: was no thread changing it? */
static bool at_rest(struct tow_arena *arena)
{
	return towi_at_rest(&arena->growing) && towi_at_rest(&arena->lock) &&
	       towi_at_rest(&arena->ordinary_lock);
}

TOW_PUBLIC int tow_arena_destroy(struct tow_arena *arena)
{
	struct towi_span *span;
	int error = 0;

	if (!arena)
		return 0;
	if (!towi_arena_ours(arena)) {
		error = -EPERM;
		if (!at_rest(arena))
			return error;
	}
	for (span = arena->fit.spans; span; span = span->next)
		end_part(arena, span->owner, &error);
	towi_fit_end(&arena->fit);
	tdestroy(arena->ordinary, end_ordinary);
	free_arena(arena);
	return error;
}

/* ---- regions of a device ---------------------------------------------------- */

static int get_region(void *from, size_t *bytes, void **at, struct tow_region **region)
{
	struct tow_region_info info = { .size = sizeof(info) };
	struct tow_region *made;
	int ret;

	ret = tow_region_create(from, *bytes, NULL, &made);
	if (ret)
		return ret;
	ret = tow_region_info(made, &info);
	if (!ret)
		ret = tow_region_map(made, 0, 0, PROT_READ | PROT_WRITE, at);
	if (ret) {
		tow_region_destroy(made);
		return ret;
	}
	/* Slabs may be larger than what was asked for. */
	*bytes = info.map_bytes / TOWI_SPAN_GRAIN * TOWI_SPAN_GRAIN;
	*region = made;
	return 0;
}

static int put_region(void *from, struct tow_region *region)
{
	(void)from;
	return tow_region_destroy(region);
}

TOW_PUBLIC int tow_arena_create(struct tow_device *dev, const struct tow_arena_attr *attr,
				struct tow_arena **arena)
{
	struct towi_source source = { .get = get_region, .put = put_region, .from = dev };

	if (!dev)
		return -EINVAL;
	return towi_ours(dev->process) ? towi_arena_create(&source, attr, arena) : -EPERM;
}

int towi_take_memory(struct tow_arena *arena, uint64_t bytes, char **at)
{
	struct tow_region *region;
	uint64_t offset;
	char *memory;

	if (bytes > SIZE_MAX)
		return -ENOMEM;
	memory = tow_arena_zeroed(arena, 1, (size_t)bytes);
	if (!memory)
		return -errno;
	if (tow_arena_find(arena, memory, &region, &offset)) {
		tow_arena_free(arena, memory);
		return -ENOSPC;
	}
	*at = memory;
	return 0;
}
