// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * The functions that NumPy allocates arrays' data by.
 *
 * Arrays outlive whoever made their handler, so what the functions are passed does, too:
 * tow_numpy_retire() takes the arena away when nothing of it is in use.  Who is in one of the
 * functions says so first (@inside) and then looks whether that was done (@retired); who
 * retires says so first and then looks whether anybody is inside.  One sees the other.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <towline/numpy.h>

#include "../alloc/arena.h"
#include "../core/internal.h"

#define NO_NODE		UINT32_MAX

struct tow_numpy {
	struct tow_arena *arena;
	struct tow_tracer *tracer;	/* or NULL */
	uint32_t node;			/* of who runs none */
	uint64_t process;		/* whose it is, also when the arena has gone */
	/*
	 * The node that a thread runs, and 1; or 0.  Not a thread-local variable: a library that is
	 * loaded late has little room for those, which others use, too, or needs one more library.
	 */
	pthread_key_t runs;
	bool has_runs;
	atomic_bool retired;
	atomic_size_t live;		/* of the arena, and not freed */
	atomic_size_t inside;		/* threads that look at the arena, or may */
};

/* ---- begin and end ---- */

TOW_PUBLIC void tow_numpy_destroy(struct tow_numpy *numpy)
{
	if (!numpy)
		return;
	if (numpy->has_runs)
		pthread_key_delete(numpy->runs);
	free(numpy);
}

TOW_PUBLIC int tow_numpy_create(struct tow_arena *arena, struct tow_tracer *tracer,
				struct tow_numpy **numpy)
{
	struct tow_numpy *made;
	int ret = 0;

	if (!arena || !numpy)
		return -EINVAL;
	if (towi_arena_far(arena))
		return -EOPNOTSUPP;
	made = calloc(1, sizeof(*made));
	if (!made)
		return -ENOMEM;
	made->arena = arena;
	made->tracer = tracer;
	made->has_runs = !pthread_key_create(&made->runs, NULL);
	/* A child that makes one of its parent's arena gets ordinary memory. */
	made->process = towi_arena_process(arena);
	if (!made->has_runs)
		ret = -ENOMEM;
	else if (tracer)
		ret = tow_tracer_node(tracer, "numpy", &made->node);
	if (ret)
		tow_numpy_destroy(made);
	else
		*numpy = made;
	return ret;
}

TOW_PUBLIC int tow_numpy_retire(struct tow_numpy *numpy)
{
	if (!numpy)
		return -EINVAL;
	if (!towi_ours(numpy->process))
		return -EPERM;
	atomic_store(&numpy->retired, true);
	/* The second time: nobody who has found something live before is still looking at it. */
	return atomic_load(&numpy->inside) || atomic_load(&numpy->live) ||
	       atomic_load(&numpy->inside) ? -EBUSY : 0;
}

/* Of this thread; NO_NODE: none. */
static uint32_t node_of(const struct tow_numpy *numpy)
{
	return (uint32_t)(uintptr_t)pthread_getspecific(numpy->runs) - 1;
}

TOW_PUBLIC uint32_t tow_numpy_node(struct tow_numpy *numpy, uint32_t node)
{
	uint32_t before = node_of(numpy);

	/* NOLINTNEXTLINE(performance-no-int-to-ptr): a number is kept */
	pthread_setspecific(numpy->runs, (void *)(uintptr_t)(uint32_t)(node + 1));
	return before;
}

/* ---- the arena, or ordinary memory ---- */

/* May the arena and the tracer give something out?  Then leave() follows. */
static bool enter(struct tow_numpy *numpy)
{
	if (!towi_ours(numpy->process))
		return false;
	atomic_fetch_add(&numpy->inside, 1);
	if (!atomic_load(&numpy->retired))
		return true;
	atomic_fetch_sub(&numpy->inside, 1);
	return false;
}

static void leave(struct tow_numpy *numpy)
{
	atomic_fetch_sub(&numpy->inside, 1);
}

/* Is it of the arena?  Only while that is sure to be there. */
static bool is_of_arena(const struct tow_numpy *numpy, const void *ptr)
{
	struct tow_region *region;
	uint64_t offset;

	/* What TOW_ARENA_FALLBACK gave is, too, and is in no region. */
	return !tow_arena_find(numpy->arena, ptr, &region, &offset) ||
	       tow_arena_usable(numpy->arena, ptr);
}

static void *alloc_ordinary(size_t bytes)
{
	void *ptr;
	int ret = posix_memalign(&ptr, TOW_ARENA_ALIGNMENT, bytes ? bytes : 1);

	if (ret)
		errno = ret;
	return ret ? NULL : ptr;
}

/* Within enter() and leave(). */
static void *alloc_inside(struct tow_numpy *numpy, size_t bytes)
{
	uint32_t node = node_of(numpy);
	void *ptr;

	if (numpy->tracer)
		ptr = tow_tracer_alloc(numpy->tracer, node == NO_NODE ? numpy->node : node, bytes);
	else
		ptr = tow_arena_alloc(numpy->arena, bytes);
	if (ptr && is_of_arena(numpy, ptr))
		atomic_fetch_add(&numpy->live, 1);
	return ptr;
}

TOW_PUBLIC void *tow_numpy_malloc(void *numpy, size_t bytes)
{
	void *ptr;

	if (!enter(numpy))
		return alloc_ordinary(bytes);
	ptr = alloc_inside(numpy, bytes);
	leave(numpy);
	return ptr;
}

TOW_PUBLIC void *tow_numpy_calloc(void *numpy, size_t count, size_t bytes)
{
	size_t all;
	void *ptr;

	if (__builtin_mul_overflow(count, bytes, &all)) {
		errno = ENOMEM;
		return NULL;
	}
	ptr = tow_numpy_malloc(numpy, all);
	return ptr ? memset(ptr, 0, all) : NULL;
}

/* As is_of_arena(), at any time, of what was not freed. */
static bool is_live(struct tow_numpy *numpy, const void *ptr)
{
	bool found;

	/* If nothing of it is live, this is not of it, and it may be gone. */
	atomic_fetch_add(&numpy->inside, 1);
	found = (!atomic_load(&numpy->retired) || atomic_load(&numpy->live)) &&
		is_of_arena(numpy, ptr);
	atomic_fetch_sub(&numpy->inside, 1);
	return found;
}

/* What the parent has is not freed by a child: the arena's memory is shared. */
static bool is_parents(const struct tow_numpy *numpy, const void *ptr)
{
	struct tow_region *region;
	uint64_t offset;

	return !towi_ours(numpy->process) && atomic_load(&numpy->live) &&
	       !tow_arena_find(numpy->arena, ptr, &region, &offset);
}

static void free_ordinary(struct tow_numpy *numpy, void *ptr)
{
	/* The tracer forgets it first: another array may be there at once. */
	if (numpy->tracer && enter(numpy)) {
		tow_tracer_freed(numpy->tracer, ptr);
		leave(numpy);
	}
	free(ptr);
}

TOW_PUBLIC void tow_numpy_free(void *numpy, void *ptr, size_t bytes)
{
	struct tow_numpy *own = numpy;

	(void)bytes;
	if (!ptr || is_parents(own, ptr))
		return;
	if (towi_ours(own->process) && is_live(own, ptr)) {
		tow_arena_free(own->arena, ptr);
		atomic_fetch_sub(&own->live, 1);
	} else {
		free_ordinary(own, ptr);
	}
}

static void *realloc_ordinary(struct tow_numpy *numpy, void *ptr, size_t bytes)
{
	size_t had = malloc_usable_size(ptr);
	void *moved = tow_numpy_malloc(numpy, bytes);

	if (!moved)
		return NULL;
	memcpy(moved, ptr, had < bytes ? had : bytes);
	free_ordinary(numpy, ptr);
	return moved;
}

TOW_PUBLIC void *tow_numpy_realloc(void *numpy, void *ptr, size_t bytes)
{
	struct tow_numpy *own = numpy;

	if (!ptr)
		return tow_numpy_malloc(numpy, bytes);
	if (is_parents(own, ptr)) {
		errno = EPERM;
		return NULL;
	}
	/* It is live as long as this: the arena stays. */
	if (towi_ours(own->process) && is_live(own, ptr))
		return tow_arena_realloc(own->arena, ptr, bytes);
	return realloc_ordinary(own, ptr, bytes);
}
