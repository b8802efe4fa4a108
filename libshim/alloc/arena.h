/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * An arena's inside: what its tests and the other files of this folder see.
 */
#ifndef TOW_ARENA_INSIDE_H
#define TOW_ARENA_INSIDE_H

#include <stdbool.h>

#include <towline/arena.h>

/*
 * Where an arena's memory comes from.
 *
 * @get: @bytes, a multiple of 2 MiB, or more: what it is, where it is mapped, at a
 *	multiple of 2 MiB, how much it is.  0 or a negative errno.
 * @put: the reverse: 0 or a negative errno, and it is gone
 */
struct towi_source {
	int (*get)(void *from, size_t *bytes, void **at, struct tow_region **region);
	int (*put)(void *from, struct tow_region *region);
	void *from;
};

/* As tow_arena_create(). */
int towi_arena_create(const struct towi_source *source, const struct tow_arena_attr *attr,
		      struct tow_arena **arena);

/* Whose it is, and whether it is this process's and not its parent's; without a lock. */
uint64_t towi_arena_process(const struct tow_arena *arena);
bool towi_arena_ours(const struct tow_arena *arena);

/*
 * As tow_arena_alloc(), of what there is: no region is made, and nobody waited for who makes one.
 * Otherwise NULL, and errno is EAGAIN.
 */
void *towi_arena_try(struct tow_arena *arena, size_t bytes);

/* Memory of the arena that is in a region, zeroed: 0, or -ENOSPC and the like. */
int towi_take_memory(struct tow_arena *arena, uint64_t bytes, char **at);

/* Who wants to know of regions that go.  @gone must not call the arena. */
struct towi_watch {
	struct towi_watch *next;
	void (*gone)(struct towi_watch *watch, struct tow_region *region);
};

/* From now on, and not any more; @watch is the caller's. */
void towi_arena_watch(struct tow_arena *arena, struct towi_watch *watch);
void towi_arena_unwatch(struct tow_arena *arena, struct towi_watch *watch);

#endif /* TOW_ARENA_INSIDE_H */
