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
 * @adopt: a region that stays the program's: where it begins, how much it is, and whether its
 *	addresses only stand for a device's memory, and nobody touches it.  0 or a negative errno
 * @leave: the reverse: 0 or a negative errno
 */
struct towi_source {
	int (*get)(void *from, size_t *bytes, void **at, struct tow_region **region);
	int (*put)(void *from, struct tow_region *region);
	int (*adopt)(void *from, struct tow_region *region, void **at, uint64_t *bytes, bool *far);
	int (*leave)(void *from, struct tow_region *region, void *at);
	void *from;
};

/* As tow_arena_create(). */
int towi_arena_create(const struct towi_source *source, const struct tow_arena_attr *attr,
		      struct tow_arena **arena);

/* Whose it is, and whether it is this process's and not its parent's; without a lock. */
uint64_t towi_arena_process(const struct tow_arena *arena);
bool towi_arena_ours(const struct tow_arena *arena);

/* Is its memory a device's, which nobody touches? */
bool towi_arena_far(const struct tow_arena *arena);

/*
 * As tow_arena_alloc(), of what there is: no region is made, and nobody waited for who makes one.
 * Otherwise NULL, and errno is EAGAIN.
 */
void *towi_arena_try(struct tow_arena *arena, size_t bytes);

/*
 * Which region @bytes at @ptr, at least one, are in: of the arena's, whose are found without a
 * lock, or else of any of @dev's that has an address here.  0; -ENOENT: none; -EINVAL: one end of
 * it is in a region, and the other is not.
 */
int towi_place(struct tow_arena *arena, struct tow_device *dev, const void *ptr, uint64_t bytes,
	       struct tow_region **region, uint64_t *offset);

/* Memory of the arena that is in a region, zeroed: 0, or -ENOSPC and the like. */
int towi_take_memory(struct tow_arena *arena, uint64_t bytes, char **at);

#endif /* TOW_ARENA_INSIDE_H */
