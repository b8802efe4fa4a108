// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Best fit with coalescing.
 *
 * A span is a row of blocks, of which no two free ones are neighbours.  Free blocks of
 * up to 64 KiB are in a list for each size, larger ones in a tree by size and address:
 * the smallest that fits is found at once, or in as many steps as the tree is high.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fit.h"

#define RECORDS		126U
/* How many blocks that are large enough are looked at for one whose place is right. */
#define ALIGNED_TRIES	8

struct towi_records {
	struct towi_records *next;
	struct towi_block blocks[RECORDS];
};

static int by_size(const struct towi_block *one, const struct towi_block *other)
{
	if (one->bytes != other->bytes)
		return one->bytes < other->bytes ? -1 : 1;
	return (one->at > other->at) - (one->at < other->at);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
RB_GENERATE_INTERNAL(towi_fit_tree, towi_block, node, by_size, static)
#pragma GCC diagnostic pop

/* ---- records ---------------------------------------------------------------- */

static bool more_records(struct towi_fit *fit)
{
	struct towi_records *page = calloc(1, sizeof(*page));

	if (!page)
		return false;
	page->next = fit->pages;
	fit->pages = page;
	for (unsigned int i = 0; i < RECORDS; i++) {
		page->blocks[i].next = fit->records;
		fit->records = &page->blocks[i];
	}
	return true;
}

static struct towi_block *new_record(struct towi_fit *fit)
{
	struct towi_block *block = fit->records;

	if (!block && more_records(fit))
		block = fit->records;
	if (!block) {
		errno = ENOMEM;
		return NULL;
	}
	fit->records = block->next;
	block->before = NULL;
	block->after = NULL;
	block->asked = 0;
	block->front = 0;
	atomic_store_explicit(&block->state, TOWI_BLOCK_FREE, memory_order_relaxed);
	return block;
}

static void drop_record(struct towi_fit *fit, struct towi_block *block)
{
	block->next = fit->records;
	fit->records = block;
}

/* ---- which span ------------------------------------------------------------- */

static size_t way(uintptr_t address, int step)
{
	return address / TOWI_SPAN_GRAIN >> (step ? 0 : TOWI_MAP_BITS) & (TOWI_MAP_WAYS - 1);
}

static bool beyond(uintptr_t address)
{
	return address / TOWI_SPAN_GRAIN >> 2 * TOWI_MAP_BITS;
}

struct towi_span *towi_fit_span(const struct towi_fit *fit, const void *ptr)
{
	uintptr_t address = (uintptr_t)ptr;
	struct towi_fit_leaf *leaf;

	if (beyond(address))
		return NULL;
	leaf = atomic_load_explicit(&fit->leaves[way(address, 0)], memory_order_acquire);
	return leaf ? atomic_load_explicit(&leaf->spans[way(address, 1)], memory_order_acquire)
		    : NULL;
}

/* A leaf for each address of the span: 0 or -ENOMEM. */
static int make_leaves(struct towi_fit *fit, const struct towi_span *span)
{
	for (size_t done = 0; done < span->bytes; done += TOWI_SPAN_GRAIN) {
		struct towi_fit_leaf *_Atomic *leaf =
			&fit->leaves[way((uintptr_t)span->at + done, 0)];
		struct towi_fit_leaf *made;

		if (atomic_load_explicit(leaf, memory_order_relaxed))
			continue;
		made = calloc(1, sizeof(*made));
		if (!made)
			return -ENOMEM;
		atomic_store_explicit(leaf, made, memory_order_release);
	}
	return 0;
}

static void map_span(struct towi_fit *fit, const struct towi_span *span,
		     struct towi_span *to)
{
	for (size_t done = 0; done < span->bytes; done += TOWI_SPAN_GRAIN) {
		uintptr_t address = (uintptr_t)span->at + done;
		struct towi_fit_leaf *leaf = atomic_load_explicit(&fit->leaves[way(address, 0)],
								  memory_order_relaxed);

		atomic_store_explicit(&leaf->spans[way(address, 1)], to, memory_order_release);
	}
}

static struct towi_block *_Atomic *start(const struct towi_span *span, const void *ptr)
{
	return &span->starts[(size_t)((const char *)ptr - span->at) / TOWI_GRAIN];
}

void towi_fit_note(struct towi_block *block, const void *ptr)
{
	atomic_store_explicit(start(block->span, ptr), block, memory_order_release);
}

void towi_fit_forget(struct towi_block *block, const void *ptr)
{
	atomic_store_explicit(start(block->span, ptr), NULL, memory_order_relaxed);
}

struct towi_block *towi_fit_find(const struct towi_fit *fit, const void *ptr)
{
	const struct towi_span *span = towi_fit_span(fit, ptr);

	if (!span || (uintptr_t)ptr % TOWI_GRAIN)
		return NULL;
	return atomic_load_explicit(start(span, ptr), memory_order_acquire);
}

/* ---- free blocks ------------------------------------------------------------ */

static size_t grains(const struct towi_block *block)
{
	return block->bytes / TOWI_GRAIN;
}

static void put_free(struct towi_fit *fit, struct towi_block *block)
{
	size_t list = grains(block);

	atomic_store_explicit(&block->state, TOWI_BLOCK_FREE, memory_order_relaxed);
	fit->free_blocks++;
	if (list > TOWI_FIT_LISTS) {
		RB_INSERT(towi_fit_tree, &fit->tree, block);
		return;
	}
	block->prev = NULL;
	block->next = fit->lists[list];
	if (block->next)
		block->next->prev = block;
	fit->lists[list] = block;
	fit->filled[list / 64] |= (uint64_t)1 << list % 64;
}

static void get_free(struct towi_fit *fit, struct towi_block *block)
{
	size_t list = grains(block);

	fit->free_blocks--;
	if (list > TOWI_FIT_LISTS) {
		RB_REMOVE(towi_fit_tree, &fit->tree, block);
		return;
	}
	if (block->next)
		block->next->prev = block->prev;
	if (block->prev)
		block->prev->next = block->next;
	else
		fit->lists[list] = block->next;
	if (!fit->lists[list])
		fit->filled[list / 64] &= ~((uint64_t)1 << list % 64);
}

/* The first list from @list on that is not empty; 0: none is. */
static size_t filled_from(const struct towi_fit *fit, size_t list)
{
	size_t words = sizeof(fit->filled) / sizeof(fit->filled[0]);
	uint64_t word;

	for (size_t i = list / 64; i < words; i++) {
		word = fit->filled[i];
		if (i == list / 64)
			word &= ~(uint64_t)0 << list % 64;
		if (word)
			return i * 64 + (size_t)__builtin_ctzll(word);
	}
	return 0;
}

/* The smallest free block of @bytes or more. */
static struct towi_block *smallest(struct towi_fit *fit, size_t bytes)
{
	struct towi_block key = { .bytes = bytes };
	size_t list = bytes / TOWI_GRAIN;

	if (list <= TOWI_FIT_LISTS) {
		list = filled_from(fit, list);
		if (list)
			return fit->lists[list];
	}
	return RB_NFIND(towi_fit_tree, &fit->tree, &key);
}

/* The next one by size. */
static struct towi_block *larger(struct towi_fit *fit, struct towi_block *block)
{
	if (grains(block) > TOWI_FIT_LISTS)
		return RB_NEXT(towi_fit_tree, &fit->tree, block);
	return block->next ? block->next : smallest(fit, block->bytes + TOWI_GRAIN);
}

size_t towi_fit_largest(struct towi_fit *fit)
{
	const struct towi_block *block = RB_MAX(towi_fit_tree, &fit->tree);

	if (block)
		return block->bytes;
	for (size_t i = sizeof(fit->filled) / sizeof(fit->filled[0]); i--;) {
		if (fit->filled[i])
			return (i * 64 + 63 - (size_t)__builtin_clzll(fit->filled[i])) *
			       TOWI_GRAIN;
	}
	return 0;
}

/* ---- rows of blocks --------------------------------------------------------- */

/* Cut @block after @bytes: the rest is a block, free, and in no list yet. */
static struct towi_block *cut(struct towi_fit *fit, struct towi_block *block, size_t bytes)
{
	struct towi_block *rest = new_record(fit);

	if (!rest)
		return NULL;
	rest->at = block->at + bytes;
	rest->bytes = block->bytes - bytes;
	rest->span = block->span;
	rest->before = block;
	rest->after = block->after;
	if (rest->after)
		rest->after->before = rest;
	block->after = rest;
	block->bytes = bytes;
	return rest;
}

/* @block and the one after it, neither in a list, are one. */
static void join(struct towi_fit *fit, struct towi_block *block)
{
	struct towi_block *after = block->after;

	block->bytes += after->bytes;
	block->after = after->after;
	if (block->after)
		block->after->before = block;
	drop_record(fit, after);
}

static bool is_free(const struct towi_block *block)
{
	return block && atomic_load_explicit(&block->state, memory_order_relaxed) ==
				TOWI_BLOCK_FREE;
}

/* A block that is in no list is free, and one with its neighbours that are. */
static void release(struct towi_fit *fit, struct towi_block *block)
{
	if (is_free(block->after)) {
		get_free(fit, block->after);
		join(fit, block);
	}
	if (is_free(block->before)) {
		block = block->before;
		get_free(fit, block);
		join(fit, block);
	}
	put_free(fit, block);
}

static size_t front_of(const struct towi_block *block, size_t alignment)
{
	return -(uintptr_t)block->at & (alignment - 1);
}

static bool fits(const struct towi_block *block, size_t bytes, size_t alignment)
{
	size_t front = front_of(block, alignment);

	return front <= block->bytes && bytes <= block->bytes - front;
}

/*
 * The smallest is seldom at the right place, and then one that has room to spare is
 * taken; only before giving up all are looked at.
 */
static struct towi_block *smallest_aligned(struct towi_fit *fit, size_t bytes, size_t alignment)
{
	struct towi_block *first = smallest(fit, bytes), *block = first;
	int tries = ALIGNED_TRIES;

	for (; block && tries; tries--, block = larger(fit, block)) {
		if (fits(block, bytes, alignment))
			return block;
	}
	if (!block)
		return NULL;
	block = smallest(fit, bytes + alignment - TOWI_GRAIN);
	if (block)
		return block;
	for (block = first; block && !fits(block, bytes, alignment);)
		block = larger(fit, block);
	return block;
}

struct towi_block *towi_fit_take(struct towi_fit *fit, size_t bytes, size_t alignment)
{
	struct towi_block *block, *rest;
	size_t front;

	block = alignment > TOWI_GRAIN ? smallest_aligned(fit, bytes, alignment)
				       : smallest(fit, bytes);
	if (!block)
		return NULL;
	get_free(fit, block);
	front = alignment > TOWI_GRAIN ? front_of(block, alignment) : 0;
	if (front) {
		rest = cut(fit, block, front);
		put_free(fit, block);
		if (!rest)
			return NULL;
		block = rest;
	}
	if (block->bytes > bytes) {
		rest = cut(fit, block, bytes);
		if (!rest) {
			release(fit, block);
			return NULL;
		}
		put_free(fit, rest);
	}
	atomic_store_explicit(&block->state, TOWI_BLOCK_LIVE, memory_order_relaxed);
	fit->taken += bytes;
	if (fit->taken > fit->peak)
		fit->peak = fit->taken;
	return block;
}

void towi_fit_give(struct towi_fit *fit, struct towi_block *block)
{
	fit->taken -= block->bytes;
	release(fit, block);
}

static bool shrink(struct towi_fit *fit, struct towi_block *block, size_t bytes)
{
	size_t before = block->bytes;
	struct towi_block *rest = cut(fit, block, bytes);

	if (!rest)
		return false;
	fit->taken -= before - bytes;
	release(fit, rest);
	return true;
}

bool towi_fit_resize(struct towi_fit *fit, struct towi_block *block, size_t bytes)
{
	struct towi_block *after = block->after, *rest;
	size_t more;

	if (bytes == block->bytes)
		return true;
	if (bytes < block->bytes)
		return shrink(fit, block, bytes);
	more = bytes - block->bytes;
	if (!is_free(after) || after->bytes < more)
		return false;
	get_free(fit, after);
	if (after->bytes > more) {
		rest = cut(fit, after, more);
		if (!rest) {
			put_free(fit, after);
			return false;
		}
		put_free(fit, rest);
	}
	join(fit, block);
	fit->taken += more;
	if (fit->taken > fit->peak)
		fit->peak = fit->taken;
	return true;
}

/* ---- spans ------------------------------------------------------------------ */

/* As many as a span may have; only those that are written to become memory. */
static size_t starts_bytes(const struct towi_span *span)
{
	return span->bytes / TOWI_GRAIN * sizeof(*span->starts);
}

static int make_starts(struct towi_span *span)
{
	void *starts = mmap(NULL, starts_bytes(span), PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (starts == MAP_FAILED)
		return -ENOMEM;
	span->starts = starts;
	return 0;
}

static void free_span(struct towi_span *span)
{
	if (span->starts)
		munmap((void *)span->starts, starts_bytes(span));
	free(span);
}

int towi_fit_add(struct towi_fit *fit, void *at, size_t bytes, void *owner)
{
	struct towi_span *span;
	struct towi_block *block;

	if (!bytes || bytes % TOWI_SPAN_GRAIN || (uintptr_t)at % TOWI_SPAN_GRAIN ||
	    beyond((uintptr_t)at + bytes - 1))
		return -EINVAL;
	span = calloc(1, sizeof(*span));
	if (!span)
		return -ENOMEM;
	span->at = at;
	span->bytes = bytes;
	span->owner = owner;
	block = make_starts(span) || make_leaves(fit, span) ? NULL : new_record(fit);
	if (!block) {
		free_span(span);
		return -ENOMEM;
	}
	block->at = at;
	block->bytes = bytes;
	block->span = span;
	span->first = block;
	map_span(fit, span, span);
	span->next = fit->spans;
	fit->spans = span;
	fit->reserved += bytes;
	put_free(fit, block);
	return 0;
}

/* Nothing of it is taken. */
static bool whole(const struct towi_span *span)
{
	return is_free(span->first) && !span->first->after;
}

bool towi_fit_remove(struct towi_fit *fit, size_t keep, void **owner, size_t *bytes)
{
	struct towi_span **link = &fit->spans, *span;

	while ((span = *link) &&
	       (span->stays || fit->reserved - span->bytes < keep || !whole(span)))
		link = &span->next;
	if (!span)
		return false;
	*link = span->next;
	get_free(fit, span->first);
	drop_record(fit, span->first);
	map_span(fit, span, NULL);
	fit->reserved -= span->bytes;
	*owner = span->owner;
	*bytes = span->bytes;
	free_span(span);
	return true;
}

int towi_fit_init(struct towi_fit *fit)
{
	memset(fit, 0, sizeof(*fit));
	fit->leaves = calloc(TOWI_MAP_WAYS, sizeof(*fit->leaves));
	return fit->leaves ? 0 : -ENOMEM;
}

void towi_fit_end(struct towi_fit *fit)
{
	struct towi_records *page;
	struct towi_span *span;

	while ((span = fit->spans)) {
		fit->spans = span->next;
		free_span(span);
	}
	while ((page = fit->pages)) {
		fit->pages = page->next;
		free(page);
	}
	for (size_t i = 0; fit->leaves && i < TOWI_MAP_WAYS; i++)
		free(atomic_load_explicit(&fit->leaves[i], memory_order_relaxed));
	free((void *)fit->leaves);
}
