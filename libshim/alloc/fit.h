/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * Best fit over spans of memory, by one thread at a time.
 *
 * What is known of a block is kept beside the memory and not in it: peers write
 * there.  Spans begin at multiples of 2 MiB and are multiples of it, as large
 * mappings of regions do; so an address says in two steps which span it is in.
 */
#ifndef TOW_FIT_H
#define TOW_FIT_H

#include <bsd/sys/tree.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Blocks begin at multiples of it and are multiples of it: a line of the cache. */
#define TOWI_GRAIN	((size_t)64)
#define TOWI_SPAN_GRAIN	((size_t)2 << 20)

/* Free blocks of up to so many grains have a list for each size. */
#define TOWI_FIT_LISTS	1024U

enum towi_block_state {
	TOWI_BLOCK_FREE,	/* the allocator's */
	TOWI_BLOCK_LIVE,	/* a program's */
	TOWI_BLOCK_KEPT,	/* taken, and in a cache */
};

struct towi_span;

/*
 * A piece of a span, free or taken.  Records are reused and never given back before
 * the end: who asks about an address that is no block's reads one that is another's.
 */
struct towi_block {
	char *at;
	size_t bytes;
	struct towi_span *span;
	struct towi_block *before;	/* neighbours in the span, or NULL */
	struct towi_block *after;
	/* What its owner keeps of it; the allocator leaves it alone. */
	size_t asked;			/* bytes that the program asked for */
	size_t front;			/* bytes between @at and what it was given */
	_Atomic uint32_t state;		/* enum towi_block_state */
	union {
		/* Free, of up to TOWI_FIT_LISTS grains; in a cache; not in use. */
		struct {
			struct towi_block *next, *prev;
		};
		/* Free, larger. */
		RB_ENTRY(towi_block) node;
	};
};

/* Memory that blocks are cut of. */
struct towi_span {
	char *at;
	size_t bytes;
	void *owner;			/* the caller's */
	bool stays;			/* the caller says that it is not to be removed */
	struct towi_span *next;		/* of the same allocator */
	struct towi_block *first;	/* that at @at: always the same record */
	/* The taken block that begins in each grain, or NULL. */
	struct towi_block *_Atomic *starts;
};

/* Which span an address is in: two steps of so many bits, above 21. */
#define TOWI_MAP_BITS	14
#define TOWI_MAP_WAYS	((size_t)1 << TOWI_MAP_BITS)

struct towi_fit_leaf {
	struct towi_span *_Atomic spans[TOWI_MAP_WAYS];
};

struct towi_fit {
	struct towi_span *spans;
	size_t reserved;		/* bytes of all spans */
	size_t taken;			/* bytes of them that are taken */
	size_t peak;			/* the most that was taken */
	size_t free_blocks;
	struct towi_block *lists[TOWI_FIT_LISTS + 1];
	uint64_t filled[(TOWI_FIT_LISTS + 64) / 64];	/* lists that are not empty */
	RB_HEAD(towi_fit_tree, towi_block) tree;
	struct towi_block *records;	/* that are not in use */
	struct towi_records *pages;	/* what they are cut of */
	struct towi_fit_leaf *_Atomic *leaves;
};

/* 0 or -ENOMEM. */
int towi_fit_init(struct towi_fit *fit);

/* All blocks and spans are forgotten; the memory is the caller's. */
void towi_fit_end(struct towi_fit *fit);

/*
 * More memory: 0, -ENOMEM, or -EINVAL when it does not begin at a multiple of
 * TOWI_SPAN_GRAIN, is none, or lies where this cannot look.
 */
int towi_fit_add(struct towi_fit *fit, void *at, size_t bytes, void *owner);

/*
 * A span of which nothing is taken is given back, as long as @keep bytes stay:
 * its owner and its bytes; false when there is none such.
 */
bool towi_fit_remove(struct towi_fit *fit, size_t keep, void **owner, size_t *bytes);

/*
 * Take the smallest free block that @bytes, a multiple of the grain, fit into at a
 * multiple of @alignment, a power of two; their sum is below SIZE_MAX.  What it has
 * more stays free.  Its state is TOWI_BLOCK_LIVE.  NULL: there is none, or no memory for what is known of it, which
 * makes errno ENOMEM.
 */
struct towi_block *towi_fit_take(struct towi_fit *fit, size_t bytes, size_t alignment);

/* It is free, and one with free neighbours. */
void towi_fit_give(struct towi_fit *fit, struct towi_block *block);

/*
 * Where @block begins it goes on to have @bytes, a multiple of the grain: true; or
 * nothing has changed: there is no room behind it.
 */
bool towi_fit_resize(struct towi_fit *fit, struct towi_block *block, size_t bytes);

/* The bytes of the largest free block. */
size_t towi_fit_largest(struct towi_fit *fit);

/*
 * The span that @ptr is in, or NULL.  By any number of threads, at any time; the span
 * stays only as long as something of it is taken.
 */
struct towi_span *towi_fit_span(const struct towi_fit *fit, const void *ptr);

/*
 * That a program was given @ptr of @block, so that towi_fit_find() finds it; or not.  By who
 * has the block, without what is around the rest: others need not wait for that memory.
 */
void towi_fit_note(struct towi_block *block, const void *ptr);
void towi_fit_forget(struct towi_block *block, const void *ptr);

/* What was noted for @ptr, as towi_fit_span(). */
struct towi_block *towi_fit_find(const struct towi_fit *fit, const void *ptr);

#endif /* TOW_FIT_H */
