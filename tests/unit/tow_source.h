/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory of the process in place of a device's pool, for arenas.  For one source file of
 * a program; after <kselftest.h>.
 */
#ifndef TOW_SOURCE_H
#define TOW_SOURCE_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../../libshim/alloc/arena.h"
#include "../../libshim/alloc/fit.h"

#define MIB	((size_t)1 << 20)
#define SPAN	TOWI_SPAN_GRAIN

/* What an arena takes for a region, and nobody looks into. */
struct source_region {
	void *at;
	size_t bytes;
};

struct source {
	size_t pool;		/* bytes that can be had at once; 0: any */
	int error;		/* of the next one; 0: none */
	_Atomic size_t out;
	_Atomic int regions;
	int adopted;
	bool far;		/* what is adopted is a device's memory */
};

/* At a multiple of 2 MiB; NULL: there is no memory. */
static inline void *source_map(size_t bytes)
{
	char *at = mmap(NULL, bytes + SPAN, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0), *aligned;

	if (at == MAP_FAILED)
		return NULL;
	aligned = at + (-(uintptr_t)at & (SPAN - 1));
	if (aligned > at)
		munmap(at, (size_t)(aligned - at));
	munmap(aligned + bytes, (size_t)(at + SPAN - aligned));
	return aligned;
}

static inline int source_get(void *from, size_t *bytes, void **at, struct tow_region **region)
{
	struct source *source = from;
	struct source_region *made;

	/* Slabs may be larger; these are not. */
	*bytes = (*bytes + SPAN - 1) / SPAN * SPAN;
	if (source->error)
		return source->error;
	if (source->pool && *bytes > source->pool - source->out)
		return -ENOSPC;
	made = malloc(sizeof(*made));
	if (!made)
		return -ENOMEM;
	made->bytes = *bytes;
	made->at = source_map(*bytes);
	if (!made->at) {
		free(made);
		return -ENOMEM;
	}
	source->out += *bytes;
	source->regions++;
	*at = made->at;
	*region = (struct tow_region *)made;
	return 0;
}

static inline int source_put(void *from, struct tow_region *region)
{
	struct source_region *made = (struct source_region *)region;
	struct source *source = from;

	munmap(made->at, made->bytes);
	source->out -= made->bytes;
	source->regions--;
	free(made);
	return 0;
}

/* A struct source_region of the test's. */
static inline int source_adopt(void *from, struct tow_region *region, void **at, uint64_t *bytes,
			       bool *far)
{
	const struct source_region *made = (struct source_region *)region;
	struct source *source = from;

	if (source->error)
		return source->error;
	source->adopted++;
	*at = made->at;
	*bytes = made->bytes;
	*far = source->far;
	return 0;
}

static inline int source_leave(void *from, struct tow_region *region, void *at)
{
	struct source *source = from;

	(void)region;
	(void)at;
	source->adopted--;
	return 0;
}

/* An arena of that memory; the program ends if there is none. */
static inline struct tow_arena *source_arena(struct source *source,
					     const struct tow_arena_attr *attr)
{
	struct towi_source from = { source_get, source_put, source_adopt, source_leave, source };
	struct tow_arena *arena;

	if (towi_arena_create(&from, attr, &arena))
		ksft_exit_fail_msg("no arena\n");
	return arena;
}

#endif /* TOW_SOURCE_H */
