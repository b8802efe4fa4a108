/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * libtowline: NumPy's arrays in memory that is ready for the wire.
 *
 * NumPy lets others allocate its arrays' data (NEP 49): by four functions and what they are
 * passed, struct PyDataMemAllocator.  tow_numpy_malloc() and its like are these functions, and
 * struct tow_numpy is what they are passed.  Neither Python nor NumPy is needed to build or to
 * load this; the Python package towline puts them together.
 *
 * With a tracer, what it says is sent is in its arena, and all else is ordinary memory; without
 * one everything is in the arena.  Either way it is aligned to 64 bytes.
 *
 * All functions may be called by any number of threads at once, but for tow_numpy_destroy().
 * In a child that was forked ordinary memory is given out, and what the parent has stays its own;
 * but what is in the arena is shared, and the parent has what a child writes there.
 */
#ifndef TOW_NUMPY_H
#define TOW_NUMPY_H

#include <stddef.h>
#include <stdint.h>

#include <towline/tracer.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where arrays' data comes from.  Made by tow_numpy_create(). */
struct tow_numpy;

/**
 * tow_numpy_create() - let arrays be allocated there
 * @arena: where
 * @tracer: which of them; or NULL: all.  It is one of @arena's
 * @numpy: stored here
 *
 * Both stay until tow_numpy_retire() has returned 0.
 *
 * Return: 0; -EINVAL: @arena or @numpy is NULL; -ENOMEM: out of memory; -EOPNOTSUPP: @arena is of
 * another device's memory; what tow_tracer_node() returns.
 */
int tow_numpy_create(struct tow_arena *arena, struct tow_tracer *tracer,
		     struct tow_numpy **numpy);

/**
 * tow_numpy_retire() - give out nothing of the arena any more
 * @numpy: from tow_numpy_create()
 *
 * Ordinary memory is given out from now on.  May be called again and again.
 *
 * Return: 0: nothing of the arena is in use through it, and neither the arena nor the tracer
 * is looked at any more; -EBUSY: so far it is; -EPERM: in a child that was forked; -EINVAL: it is
 * NULL.
 */
int tow_numpy_retire(struct tow_numpy *numpy);

/**
 * tow_numpy_destroy() - free it
 * @numpy: from tow_numpy_create(), or NULL; tow_numpy_retire() has returned 0, nobody allocates by
 *	it any more, and what it has allocated is freed
 */
void tow_numpy_destroy(struct tow_numpy *numpy);

/**
 * tow_numpy_node() - which node of the tracer's this thread runs now
 * @numpy: from tow_numpy_create()
 * @node: its number, from tow_tracer_node(); UINT32_MAX: none
 *
 * What a thread allocates that runs none is of the node "numpy".
 *
 * Return: which node it ran before, or UINT32_MAX.
 */
uint32_t tow_numpy_node(struct tow_numpy *numpy, uint32_t node);

/**
 * tow_numpy_malloc() - allocate, as PyDataMemAllocator.malloc
 * @numpy: from tow_numpy_create()
 * @bytes: how many; 0 is as good as 1
 *
 * Return: memory with any contents, freed with tow_numpy_free(); or NULL with errno, as
 * tow_tracer_alloc() or tow_arena_alloc().
 */
void *tow_numpy_malloc(void *numpy, size_t bytes);

/**
 * tow_numpy_calloc() - allocate zeroes, as PyDataMemAllocator.calloc
 * @numpy: from tow_numpy_create()
 * @count: how many things
 * @bytes: of each
 *
 * Return: as tow_numpy_malloc().
 */
void *tow_numpy_calloc(void *numpy, size_t count, size_t bytes);

/**
 * tow_numpy_realloc() - have more of it, or less, as PyDataMemAllocator.realloc
 * @numpy: from tow_numpy_create()
 * @ptr: what was allocated there; or NULL, as tow_numpy_malloc()
 * @bytes: how many there are to be; 0 is as good as 1
 *
 * What is in the arena stays there.
 *
 * Return: the memory, with the contents it had as far as both sizes reach; or NULL with errno, and
 * nothing has changed: as tow_numpy_malloc(); EPERM: it is the parent's, of a child.
 */
void *tow_numpy_realloc(void *numpy, void *ptr, size_t bytes);

/**
 * tow_numpy_free() - free, as PyDataMemAllocator.free
 * @numpy: from tow_numpy_create()
 * @ptr: what was allocated there; NULL is nothing
 * @bytes: what was asked for; it is not looked at
 */
void tow_numpy_free(void *numpy, void *ptr, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif /* TOW_NUMPY_H */
