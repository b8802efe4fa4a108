// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Arenas: threads, regions, caches, and what makes mistakes known, around best fit.
 *
 * One lock is held while blocks are cut and joined (fit.c).  Each thread has a cache: what
 * is small goes from free to allocated again without that lock, what is larger takes it half
 * as often.  Nobody waits for a cache either: who finds it busy takes the lock.  Regions
 * come and go under a lock of their own, and nobody waits for the kernel who finds room.
 *
 * A child shares the regions, but what is known of the blocks is its own copy: what it cut
 * out of them its parent would give to somebody else.  So it only looks, without a lock.
 *
 * Lock order: growing, a cache, the blocks'.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
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

/*
 * Caches: small blocks of up to so many grains, so many of a size, so much in all.  Sizes are all
 * numbers of grains up to the first, and then eight for each doubling: four to the last.
 */
#define FINE_GRAINS	64U
#define KEPT_GRAINS	1024U
#define SIZES		(FINE_GRAINS + 4 * 8 + 1)
#define KEPT_OF_A_SIZE	32U
#define KEPT_BYTES	((size_t)1 << 20)
/* How many of a size are taken at once when there is none, and how much. */
#define KEPT_AT_ONCE	8U
#define BYTES_AT_ONCE	((size_t)64 << 10)
/* Larger ones: each of so much at most, so many, so much in all. */
#define STASHED_BYTES	((size_t)2 << 20)
#define STASH		8U
#define STASH_BYTES	(2 * STASHED_BYTES)
/* Threads that have a cache of their own, and places where one's may be. */
#define CACHES		64U
#define CACHES_TRIED	4U

/* How long to look for the blocks' lock before sleeping: see lock_blocks(). */
#define PAUSES_MAX	256U

/* What is written around blocks, and into free ones. */
#define RED		0xfd
#define POISON		0xdd
#define RED_BYTES	TOWI_GRAIN

struct cache {
	_Alignas(128) atomic_flag busy;
	uintptr_t thread;		/* whose it is; more than there are places share one */
	_Atomic size_t bytes;		/* of all that it keeps */
	_Atomic uint64_t allocations, frees;
	struct towi_block *first[SIZES];
	uint8_t count[SIZES];
	/* The larger ones, the oldest first, which towi_fit_find() does not find. */
	struct towi_block *stash[STASH];
	size_t stashed, stash_bytes;
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
	_Atomic bool far;		/* over memory of devices, which nothing here touches */
	/* Around regions that come and go. */
	pthread_mutex_t growing;
	uint64_t adopted_bytes;		/* of spans in adopted regions */
	/* Around everything of fit but what any thread may call; lock_blocks(). */
	pthread_mutex_t lock;
	struct towi_fit fit;
	uint64_t regions;
	_Atomic uint64_t allocations, frees, failures, fallbacks, fallback_bytes, damaged;
	/* Ordinary memory, by its address: a tree of <search.h>. */
	pthread_mutex_t ordinary_lock;
	void *ordinary;
	struct cache *_Atomic caches[CACHES];
};

/* A region's record: towi_span.owner. */
struct part {
	struct tow_region *region;
	bool adopted;		/* it is the program's */
	void *at;		/* where it begins */
	size_t bytes;
};

/* What a program wants, and what that is of a block. */
struct want {
	size_t asked, alignment;
	size_t front;		/* before what it is given */
	size_t bytes;		/* of the block */
	bool grows;		/* if there is no room, some is made */
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

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb");
#endif
}

/*
 * The lock is held for a fraction of what it takes to sleep and to be woken, and once threads
 * sleep for it, each that lets it go has one to wake.  So it is looked for about as long as
 * that takes, ever less often: each look takes the line of memory away from who has it.
 */
static void lock_blocks(struct tow_arena *arena)
{
	for (unsigned int pauses = 1; pauses <= PAUSES_MAX; pauses *= 2) {
		if (!pthread_mutex_trylock(&arena->lock))
			return;
		for (unsigned int i = 0; i < pauses; i++)
			relax();
	}
	pthread_mutex_lock(&arena->lock);
}

static void unlock_blocks(struct tow_arena *arena)
{
	pthread_mutex_unlock(&arena->lock);
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

bool towi_arena_far(const struct tow_arena *arena)
{
	return atomic_load_explicit(&arena->far, memory_order_relaxed);
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

/* A thread's first one; NULL: there is no memory. */
static struct cache *make_cache(struct cache *_Atomic *place, uintptr_t thread)
{
	struct cache *made = aligned_alloc(_Alignof(struct cache), sizeof(*made)), *other = NULL;

	if (!made)
		return NULL;
	memset(made, 0, sizeof(*made));
	atomic_flag_clear(&made->busy);
	made->thread = thread;
	if (atomic_compare_exchange_strong(place, &other, made))
		return made;
	free(made);
	return other;
}

/*
 * The thread's cache: at one of a few places, which its number says.  They stay when threads
 * end, as another one mostly has the same number then.
 */
static struct cache *find_cache(struct tow_arena *arena)
{
	uintptr_t thread = (uintptr_t)pthread_self();
	size_t first = (uint64_t)thread * 0x9e3779b97f4a7c15U >> 32;
	struct cache *cache;

	for (size_t i = first; i < first + CACHES_TRIED; i++) {
		struct cache *_Atomic *place = &arena->caches[i % CACHES];

		cache = atomic_load_explicit(place, memory_order_acquire);
		if (!cache)
			cache = make_cache(place, thread);
		if (!cache || cache->thread == thread)
			return cache;
	}
	return atomic_load_explicit(&arena->caches[first % CACHES], memory_order_acquire);
}

/* NULL: there is none, or somebody else has it. */
static struct cache *take_cache(struct tow_arena *arena)
{
	/* A cache would hand out what nobody looked at. */
	struct cache *cache = arena->debug ? NULL : find_cache(arena);

	if (!cache || atomic_flag_test_and_set_explicit(&cache->busy, memory_order_acquire))
		return NULL;
	return cache;
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

/* Of a number of grains, how many of the last bits its size does not tell. */
static unsigned int coarse_bits(size_t count)
{
	return count > FINE_GRAINS ? 60U - (unsigned int)__builtin_clzll(count - 1) : 0;
}

/* What small blocks have more, so that others of the same size will do for them. */
static size_t round_small(size_t bytes)
{
	return rounded(bytes, TOWI_GRAIN << coarse_bits(bytes / TOWI_GRAIN));
}

/* Which size it is, of a small block. */
static size_t size_of(size_t bytes)
{
	size_t count = bytes / TOWI_GRAIN;
	unsigned int bits = coarse_bits(count);

	return bits ? FINE_GRAINS + (bits - 3) * 8 + (count >> bits) - 8 : count;
}

static bool has_room(const struct cache *cache, size_t bytes)
{
	return cache->count[size_of(bytes)] < KEPT_OF_A_SIZE &&
	       atomic_load_explicit(&cache->bytes, memory_order_relaxed) - cache->stash_bytes +
			       bytes <= KEPT_BYTES;
}

static void keep(struct cache *cache, struct towi_block *block)
{
	size_t size = size_of(block->bytes);

	block->next = cache->first[size];
	cache->first[size] = block;
	cache->count[size]++;
	add(&cache->bytes, block->bytes);
}

/* Some of that size, which nobody has yet; NULL: there is no room. */
static struct towi_block *take_some(struct tow_arena *arena, struct cache *cache, size_t bytes)
{
	struct towi_block *first, *block;

	lock_blocks(arena);
	first = towi_fit_take(&arena->fit, bytes, TOWI_GRAIN);
	if (first)
		towi_fit_note(first, first->at);
	for (unsigned int i = 1; first && i < KEPT_AT_ONCE && (i + 1) * bytes <= BYTES_AT_ONCE &&
				 has_room(cache, bytes); i++) {
		block = towi_fit_take(&arena->fit, bytes, TOWI_GRAIN);
		if (!block)
			break;
		atomic_store_explicit(&block->state, TOWI_BLOCK_KEPT, memory_order_relaxed);
		towi_fit_note(block, block->at);
		keep(cache, block);
	}
	unlock_blocks(arena);
	return first;
}

static struct towi_block *take_kept(struct cache *cache, size_t size)
{
	struct towi_block *block = cache->first[size];

	if (block) {
		cache->first[size] = block->next;
		cache->count[size]--;
		add(&cache->bytes, -block->bytes);
	}
	return block;
}

/* The older half goes back.  Called with arena->lock. */
/* Without some, which are the caller's now. */
static void close_stash(struct cache *cache, size_t first, size_t count)
{
	cache->stashed -= count;
	for (size_t i = first; i < cache->stashed; i++)
		cache->stash[i] = cache->stash[i + count];
}

static void give_older(struct tow_arena *arena, struct cache *cache)
{
	size_t given_back = 0, bytes = 0;

	while (cache->stashed - given_back > STASH / 2 ||
	       cache->stash_bytes - bytes > STASH_BYTES / 2) {
		bytes += cache->stash[given_back]->bytes;
		towi_fit_give(&arena->fit, cache->stash[given_back++]);
	}
	close_stash(cache, 0, given_back);
	cache->stash_bytes -= bytes;
	add(&cache->bytes, -bytes);
}

static void stash(struct tow_arena *arena, struct cache *cache, struct towi_block *block)
{
	towi_fit_forget(block, block->at);
	if (cache->stashed == STASH || cache->stash_bytes + block->bytes > STASH_BYTES) {
		lock_blocks(arena);
		give_older(arena, cache);
		unlock_blocks(arena);
	}
	cache->stash[cache->stashed++] = block;
	cache->stash_bytes += block->bytes;
	add(&cache->bytes, block->bytes);
}

/* The smallest that is large enough, and no more than an eighth of it too large; or NULL. */
static struct towi_block *take_stashed(struct cache *cache, size_t bytes)
{
	size_t best = STASH, most = bytes + bytes / 8;
	struct towi_block *block;

	for (size_t i = 0; i < cache->stashed; i++) {
		block = cache->stash[i];
		if (block->bytes < bytes || block->bytes > most)
			continue;
		best = i;
		most = block->bytes;
	}
	if (best == STASH)
		return NULL;
	block = cache->stash[best];
	close_stash(cache, best, 1);
	cache->stash_bytes -= block->bytes;
	add(&cache->bytes, -block->bytes);
	return block;
}

static struct towi_block *take_small(struct tow_arena *arena, struct cache *cache, size_t bytes)
{
	struct towi_block *block = take_kept(cache, size_of(bytes));

	return block ? block : take_some(arena, cache, bytes);
}

/* Who has the lock anyway makes room in the stash, so that freeing seldom takes it. */
static struct towi_block *take_large(struct tow_arena *arena, struct cache *cache, size_t bytes)
{
	struct towi_block *block = take_stashed(cache, bytes);

	if (!block) {
		lock_blocks(arena);
		give_older(arena, cache);
		block = towi_fit_take(&arena->fit, bytes, TOWI_GRAIN);
		unlock_blocks(arena);
	}
	if (block)
		towi_fit_note(block, block->at);
	return block;
}

/* By the thread's cache; NULL: not by this way. */
static void *alloc_kept(struct tow_arena *arena, const struct want *want)
{
	struct cache *cache = take_cache(arena);
	struct towi_block *block;

	if (!cache)
		return NULL;
	block = want->bytes > KEPT_GRAINS * TOWI_GRAIN ? take_large(arena, cache, want->bytes)
						       : take_small(arena, cache, want->bytes);
	if (block) {
		add64(&cache->allocations);
		block->asked = want->asked;
		atomic_store_explicit(&block->state, TOWI_BLOCK_LIVE, memory_order_relaxed);
	}
	leave_cache(cache);
	return block ? block->at : NULL;
}

/* The block is the caller's, and its state TOWI_BLOCK_KEPT already. */
static bool free_kept(struct tow_arena *arena, struct towi_block *block)
{
	struct cache *cache = block->bytes <= STASHED_BYTES ? take_cache(arena) : NULL;
	bool kept = true;

	if (!cache)
		return false;
	if (grains(block) > KEPT_GRAINS)
		stash(arena, cache, block);
	else if (has_room(cache, block->bytes))
		keep(cache, block);
	else
		kept = false;
	if (kept)
		add64(&cache->frees);
	leave_cache(cache);
	return kept;
}

/* What a cache keeps, which is empty then; the caller gives it back. */
static struct towi_block *empty(struct cache *cache)
{
	struct towi_block *all_kept = NULL, *block;

	/* Whoever has it may be of lower priority, and on this processor. */
	while (atomic_flag_test_and_set_explicit(&cache->busy, memory_order_acquire))
		usleep(10);
	for (size_t size = 1; size < SIZES; size++) {
		while ((block = take_kept(cache, size))) {
			block->next = all_kept;
			all_kept = block;
		}
	}
	for (; cache->stashed; cache->stashed--) {
		block = cache->stash[cache->stashed - 1];
		block->next = all_kept;
		all_kept = block;
		add(&cache->bytes, -block->bytes);
	}
	cache->stash_bytes = 0;
	leave_cache(cache);
	return all_kept;
}

static bool empty_caches(struct tow_arena *arena)
{
	struct towi_block *block, *next;
	struct cache *cache;
	bool any = false;

	for (size_t i = 0; i < CACHES; i++) {
		cache = atomic_load_explicit(&arena->caches[i], memory_order_acquire);
		block = cache ? empty(cache) : NULL;
		if (!block)
			continue;
		any = true;
		lock_blocks(arena);
		for (; block; block = next) {
			next = block->next;
			towi_fit_forget(block, block->at);
			towi_fit_give(&arena->fit, block);
		}
		unlock_blocks(arena);
	}
	return any;
}

/* ---- regions ---------------------------------------------------------------- */

static int put_part(struct tow_arena *arena, struct part *part)
{
	int ret = part->adopted ?
			  arena->source.leave(arena->source.from, part->region, part->at) :
			  arena->source.put(arena->source.from, part->region);

	free(part);
	return ret;
}

/* Called with arena->growing.  What a child's copy says nobody is told. */
static void end_part(struct tow_arena *arena, struct part *part, int *error)
{
	int ret;

	if (towi_arena_ours(arena) && arena->attr.shrinks)
		arena->attr.shrinks(arena->attr.data, part->region, part->at, part->bytes);
	ret = put_part(arena, part);
	if (ret && !*error)
		*error = ret;
}

/*
 * The program is shown it, and then blocks are cut out of @bytes at @from of it.  Called with
 * arena->growing; 0, or a negative errno and it is ended.
 */
static int add_part(struct tow_arena *arena, struct part *part, char *from, size_t bytes)
{
	int ret = 0, ignored = 0;

	if (arena->attr.grown)
		ret = arena->attr.grown(arena->attr.data, part->region, part->at, part->bytes);
	if (ret) {
		/* Nor is it told that it goes. */
		put_part(arena, part);
		return ret;
	}
	if (arena->debug)
		memset(from, POISON, bytes);
	lock_blocks(arena);
	ret = towi_fit_add(&arena->fit, from, bytes, part);
	arena->regions += !ret;
	if (!ret)
		towi_fit_span(&arena->fit, from)->stays = part->adopted;
	unlock_blocks(arena);
	if (ret)
		end_part(arena, part, &ignored);
	return ret;
}

/* A region of the source's.  Called with arena->growing. */
static int get_part(struct tow_arena *arena, size_t bytes)
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
	return add_part(arena, part, part->at, part->bytes);
}

/* Another region, in which @bytes have room: 0 or a negative errno. */
static int grow(struct tow_arena *arena, size_t bytes)
{
	size_t least = rounded(bytes, TOWI_SPAN_GRAIN);
	size_t wanted = arena->attr.region_bytes, room = SIZE_MAX;
	size_t own = arena->fit.reserved - arena->adopted_bytes;
	int ret;

	/* What is the processor's would be taken for the device's. */
	if (towi_arena_far(arena))
		return -ENOSPC;
	if (arena->attr.limit_bytes)
		room = arena->attr.limit_bytes > own ? arena->attr.limit_bytes - own : 0;
	if (least > room)
		return -EDQUOT;
	if (wanted < least)
		wanted = least;
	if (wanted > room)
		wanted = room / TOWI_SPAN_GRAIN * TOWI_SPAN_GRAIN;
	ret = get_part(arena, wanted);
	if (wanted > least && (ret == -ENOSPC || ret == -EDQUOT || ret == -ENOMEM))
		ret = get_part(arena, least);
	return ret;
}

/* ---- allocation ------------------------------------------------------------- */

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
	if (!arena->debug && want->bytes <= KEPT_GRAINS * TOWI_GRAIN)
		want->bytes = round_small(want->bytes);
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

	lock_blocks(arena);
	block = towi_fit_take(&arena->fit, want->bytes, want->alignment);
	if (block) {
		block->front = want->front;
		block->asked = want->asked;
		if (arena->debug) {
			look_at_poison(arena, block);
			paint(block);
		}
	}
	unlock_blocks(arena);
	if (block)
		towi_fit_note(block, given(block));
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
	if (want.alignment == TOWI_GRAIN)
		ptr = alloc_kept(arena, &want);
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
	if (towi_arena_far(arena))
		return failed(arena, EOPNOTSUPP);
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

	towi_fit_forget(block, ptr);
	lock_blocks(arena);
	if (arena->debug) {
		if (!painted(block)) {
			tally(&arena->damaged, 1);
			ret = -EUCLEAN;
		}
		memset(block->at, POISON, block->bytes);
	}
	towi_fit_give(&arena->fit, block);
	unlock_blocks(arena);
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

	lock_blocks(arena);
	done = towi_fit_resize(&arena->fit, block, want->bytes);
	if (done)
		block->asked = want->asked;
	unlock_blocks(arena);
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
	if (towi_arena_far(arena))
		return failed(arena, EOPNOTSUPP);
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

/* The same of any region of the device's, and how much of it there is from @ptr on. */
static int find_any(struct tow_arena *arena, struct tow_device *dev, const void *ptr,
		    struct tow_region **region, uint64_t *offset, uint64_t *bytes)
{
	const struct towi_span *span = towi_fit_span(&arena->fit, ptr);

	if (!span)
		return dev ? towi_mapped_find(dev, ptr, region, offset, bytes) : -ENOENT;
	*bytes = (uint64_t)(span->at + span->bytes - (const char *)ptr);
	return tow_arena_find(arena, ptr, region, offset);
}

int towi_place(struct tow_arena *arena, struct tow_device *dev, const void *ptr, uint64_t bytes,
	       struct tow_region **region, uint64_t *offset)
{
	struct tow_region *other;
	uint64_t left, ignored;

	if (!find_any(arena, dev, ptr, region, offset, &left))
		return bytes > left ? -EINVAL : 0;
	return find_any(arena, dev, (const char *)ptr + bytes - 1, &other, &ignored, &left) ?
		       -ENOENT : -EINVAL;
}

/* ---- regions of the program's ------------------------------------------------ */

/* Called with arena->growing. */
static bool any_span(const struct tow_arena *arena, const char *from, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += TOWI_SPAN_GRAIN)
		if (towi_fit_span(&arena->fit, from + at))
			return true;
	return false;
}

/*
 * A device's memory is in an arena of its own, so that a program knows what it has been given; and
 * all flags are about what is written there.  Called with arena->growing.
 */
static int adopt_far(struct tow_arena *arena, bool far)
{
	if (arena->fit.spans ? far != towi_arena_far(arena) : far && arena->attr.flags)
		return -EOPNOTSUPP;
	atomic_store_explicit(&arena->far, far, memory_order_relaxed);
	return 0;
}

/* What of it spans may be made of, whole multiples of their grain.  Called with arena->growing. */
static int adopt_part(struct tow_arena *arena, struct part *part, bool far)
{
	uintptr_t at = (uintptr_t)part->at, first = rounded(at, TOWI_SPAN_GRAIN);
	size_t before = first - at, bytes;
	int ret = -EINVAL;

	if (part->bytes >= before + TOWI_SPAN_GRAIN) {
		bytes = (part->bytes - before) / TOWI_SPAN_GRAIN * TOWI_SPAN_GRAIN;
		/* Imported memory may be another region's, too. */
		ret = any_span(arena, (char *)part->at + before, bytes) ? -EBUSY :
									 adopt_far(arena, far);
	}
	if (ret) {
		put_part(arena, part);
		return ret;
	}
	ret = add_part(arena, part, (char *)part->at + before, bytes);
	if (!ret)
		arena->adopted_bytes += bytes;
	else if (!arena->fit.spans)
		atomic_store_explicit(&arena->far, false, memory_order_relaxed);
	return ret;
}

TOW_PUBLIC int tow_arena_adopt(struct tow_arena *arena, struct tow_region *region)
{
	struct part *part;
	uint64_t bytes;
	bool far = false;
	int ret;

	if (!arena || !region)
		return -EINVAL;
	if (!towi_arena_ours(arena))
		return -EPERM;
	part = calloc(1, sizeof(*part));
	if (!part)
		return -ENOMEM;
	part->region = region;
	part->adopted = true;
	ret = arena->source.adopt(arena->source.from, region, &part->at, &bytes, &far);
	if (ret) {
		free(part);
		return ret;
	}
	part->bytes = bytes;
	pthread_mutex_lock(&arena->growing);
	ret = adopt_part(arena, part, far);
	pthread_mutex_unlock(&arena->growing);
	return ret;
}

/* ---- regions that nobody needs ------------------------------------------------ */

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
		lock_blocks(arena);
		any = towi_fit_remove(&arena->fit, keep_bytes, &owner, &bytes);
		arena->regions -= any;
		unlock_blocks(arena);
		if (any) {
			end_part(arena, owner, &ignored);
			sum += bytes;
		}
	} while (any);
	pthread_mutex_unlock(&arena->growing);
	return sum;
}

/* ---- how it is ---------------------------------------------------------------- */

TOW_PUBLIC size_t tow_arena_check(struct tow_arena *arena)
{
	const struct towi_block *block;
	const struct towi_span *span;
	size_t bad = 0;

	if (!arena || !arena->debug || !towi_arena_ours(arena))
		return 0;
	lock_blocks(arena);
	for (span = arena->fit.spans; span; span = span->next) {
		for (block = span->first; block; block = block->after) {
			if (atomic_load_explicit(&block->state, memory_order_relaxed) ==
			    TOWI_BLOCK_FREE)
				bad += !all(block->at, block->bytes, POISON);
			else
				bad += !painted(block);
		}
	}
	unlock_blocks(arena);
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
	for (size_t i = 0; i < CACHES; i++) {
		const struct cache *cache = atomic_load_explicit(&arena->caches[i],
								 memory_order_acquire);

		if (!cache)
			continue;
		kept += atomic_load_explicit(&cache->bytes, memory_order_relaxed);
		known.allocations += counted(&cache->allocations);
		known.frees += counted(&cache->frees);
	}
	known.failures = counted(&arena->failures);
	known.fallbacks = counted(&arena->fallbacks);
	known.fallback_bytes = counted(&arena->fallback_bytes);
	known.damaged = counted(&arena->damaged);
	lock_blocks(arena);
	known.in_use_bytes = arena->fit.taken > kept ? arena->fit.taken - kept : 0;
	known.reserved_bytes = arena->fit.reserved;
	known.peak_bytes = arena->fit.peak;
	known.largest_free_bytes = towi_fit_largest(&arena->fit);
	known.regions = arena->regions;
	free_bytes = arena->fit.reserved - arena->fit.taken;
	unlock_blocks(arena);
	if (free_bytes)
		known.fragmentation = 1 - (double)known.largest_free_bytes / (double)free_bytes;
	return towi_give(&known, STATS_SIZE_FIRST, stats);
}

/* ---- begin and end ---------------------------------------------------------- */

static void free_arena(struct tow_arena *arena)
{
	pthread_mutex_destroy(&arena->growing);
	pthread_mutex_destroy(&arena->lock);
	pthread_mutex_destroy(&arena->ordinary_lock);
	for (size_t i = 0; i < CACHES; i++)
		free(atomic_load_explicit(&arena->caches[i], memory_order_relaxed));
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

static int adopt_region(void *from, struct tow_region *region, void **at, uint64_t *bytes,
			bool *far)
{
	return towi_region_device(region) == from ? towi_region_adopt(region, at, bytes, far) :
						    -EINVAL;
}

static int leave_region(void *from, struct tow_region *region, void *at)
{
	(void)from;
	return towi_region_leave(region, at);
}

TOW_PUBLIC int tow_arena_create(struct tow_device *dev, const struct tow_arena_attr *attr,
				struct tow_arena **arena)
{
	struct towi_source source = {
		.get = get_region, .put = put_region, .adopt = adopt_region,
		.leave = leave_region, .from = dev,
	};

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
