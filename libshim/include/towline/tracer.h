/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * libtowline: which allocations of a computation are sent, learnt from running it.
 *
 * The allocation-site analysis of "Fast Distributed Deep Learning over RDMA" (EuroSys
 * '19), section 3.4.  A graph's nodes allocate the same buffers in the same order each
 * time they run; so (node, i) for the i-th allocation of a node's run is a site, which is
 * there again in the next step.  In the first step the tracer notes the site of each
 * buffer, and when a buffer is sent, its site joins the set S.  From the second on, what
 * sites of S allocate is in an arena, and is sent from where it is; the rest is ordinary
 * memory.
 *
 * Sites may join later: what is sent in a step that is not traced, and not from an arena,
 * has the step after it traced.
 *
 * All functions may be called by any number of threads at once; one thread at a time
 * runs a node.  In a child that was forked all of them but tow_tracer_report() return -EPERM (or
 * NULL, with errno), or do nothing.
 */
#ifndef TOW_TRACER_H
#define TOW_TRACER_H

#include <stddef.h>
#include <stdint.h>

#include <towline/arena.h>

#ifdef __cplusplus
/* One function is called like the structure that it fills in. */
#ifdef __GNUC__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif
extern "C" {
#endif

/* Made by tow_tracer_create(), ended by tow_tracer_destroy(). */
struct tow_tracer;

/**
 * tow_tracer_create() - begin to learn
 * @arena: where what is sent is to be; it must live as long as the tracer
 * @tracer: stored here; ended with tow_tracer_destroy()
 *
 * Return: 0; -EINVAL: an argument is NULL; -ENOMEM: out of memory; -EOPNOTSUPP: @arena is of
 * another device's memory.
 */
int tow_tracer_create(struct tow_arena *arena, struct tow_tracer **tracer);

/**
 * tow_tracer_destroy() - forget what was learnt
 * @tracer: the tracer, which no thread may use any more; NULL is nothing
 *
 * What it allocated stays, and is freed by who knows where it is: tow_arena_free() frees
 * what tow_arena_find() finds, free() the rest.
 */
void tow_tracer_destroy(struct tow_tracer *tracer);

/**
 * tow_tracer_node() - a node's number
 * @tracer: the tracer
 * @name: its name in the graph, which is the same in the next run of the program; not
 *	empty, and of one line
 * @node: its number is stored here: the same for the same name
 *
 * Return: 0; -EINVAL: an argument is NULL, or no name; -ENOMEM: out of memory;
 * -ENOSPC: there are 1,048,576 nodes.
 */
int tow_tracer_node(struct tow_tracer *tracer, const char *name, uint32_t *node);

/**
 * tow_tracer_step_begin() - a step (a mini-batch) begins
 * @tracer: the tracer
 *
 * All nodes' allocations are counted from 0 again.  No node runs meanwhile.
 *
 * Return: 0; -EINVAL: @tracer is NULL, or the step before has not ended.
 */
int tow_tracer_step_begin(struct tow_tracer *tracer);

/**
 * tow_tracer_step_end() - and ends
 * @tracer: the tracer
 *
 * Return: 0; -EINVAL: @tracer is NULL, or no step has begun.
 */
int tow_tracer_step_end(struct tow_tracer *tracer);

/**
 * tow_tracer_node_begin() - a node that runs several times in a step runs again
 * @tracer: the tracer
 * @node: its number
 *
 * Its allocations are counted from 0 again.
 *
 * Return: 0; -EINVAL: @tracer is NULL, or there is no such node.
 */
int tow_tracer_node_begin(struct tow_tracer *tracer, uint32_t node);

/**
 * tow_tracer_alloc() - allocate for a node
 * @tracer: the tracer
 * @node: the number of the node that runs
 * @bytes: how many; 0 is as good as 1
 *
 * Outside of steps, too: what is allocated before the first one is of sites as well.
 *
 * Return: memory, aligned to 64 bytes, with any contents, freed with tow_tracer_free():
 * of the arena if the site is one that is sent, and the arena has room; or ordinary.
 * NULL with errno: EINVAL: @tracer is NULL, or there is no such node; ENOMEM: out of
 * memory.
 */
void *tow_tracer_alloc(struct tow_tracer *tracer, uint32_t node, size_t bytes);

/**
 * tow_tracer_allocated() - a node has allocated by itself
 * @tracer: the tracer
 * @node: the number of the node that runs
 * @ptr: what it has
 * @bytes: how much that is
 *
 * It is counted, and noted, as if tow_tracer_alloc() had been called.  What is noted of
 * it goes with tow_tracer_freed().
 *
 * Return: 0; -EINVAL: @tracer or @ptr is NULL, or there is no such node; -ENOMEM: out of
 * memory.
 */
int tow_tracer_allocated(struct tow_tracer *tracer, uint32_t node, const void *ptr,
			 size_t bytes);

/**
 * tow_tracer_free() - free what tow_tracer_alloc() allocated
 * @tracer: the tracer
 * @ptr: what was allocated; NULL is nothing
 *
 * Return: 0; -EINVAL: @tracer is NULL, or @ptr is in the arena, and not allocated;
 * -EUCLEAN: as tow_arena_free().
 */
int tow_tracer_free(struct tow_tracer *tracer, void *ptr);

/**
 * tow_tracer_freed() - what a node allocated by itself is about to be freed
 * @tracer: the tracer
 * @ptr: what tow_tracer_allocated() was told of
 */
void tow_tracer_freed(struct tow_tracer *tracer, const void *ptr);

/* What tow_tracer_transferred() answers. */
#define TOW_TRACER_ZERO_COPY	0	/* it was sent from the arena */
#define TOW_TRACER_JOINS	1	/* copied, and its site is in S from now on */
#define TOW_TRACER_UNKNOWN	2	/* copied, and nobody knows its site */

/**
 * tow_tracer_transferred() - something is sent
 * @tracer: the tracer
 * @ptr: the buffer, or a place in it
 * @bytes: how many are sent
 *
 * Of an address that several buffers had, one after the other, the newest one's site
 * counts.  Where a node passes on what another one allocated, that one's does.
 *
 * Return: TOW_TRACER_*; or -EINVAL: @tracer or @ptr is NULL; -ENOMEM: out of memory.
 */
int tow_tracer_transferred(struct tow_tracer *tracer, const void *ptr, size_t bytes);

/**
 * struct tow_tracer_report - what was sent in a step
 * @size: sizeof(struct tow_tracer_report)
 * @traced: 1: allocations' sites were noted in it
 * @step: its number, from 1; 0: what was before the first
 * @zero_copy: how many transfers were from the arena
 * @zero_copy_bytes: and of how many bytes
 * @copied: how many were of ordinary memory
 * @copied_bytes: and of how many bytes
 * @unknown: how many of @copied were of memory whose site nobody knows
 * @refused: allocations of sites of S that the arena had no room for
 * @sites: how many are in S, now
 */
struct tow_tracer_report {
	uint32_t size;
	uint32_t traced;
	uint64_t step;
	uint64_t zero_copy;
	uint64_t zero_copy_bytes;
	uint64_t copied;
	uint64_t copied_bytes;
	uint64_t unknown;
	uint64_t refused;
	uint64_t sites;
};

/**
 * tow_tracer_report() - ask what was sent
 * @tracer: the tracer
 * @report: of the step that is going on, or else of the last one, answered here;
 *	@report->size must be set
 *
 * Return: 0; -EINVAL: an argument is NULL, or its size is none that there ever was.
 */
int tow_tracer_report(struct tow_tracer *tracer, struct tow_tracer_report *report);

/**
 * tow_tracer_save() - keep S for the next run of the program
 * @tracer: the tracer
 * @path: a file, which is replaced at once, or not at all
 *
 * Return: 0; -EINVAL: an argument is NULL; or what opening, writing or renaming the file
 * failed with.
 */
int tow_tracer_save(struct tow_tracer *tracer, const char *path);

/**
 * tow_tracer_load() - have S of an earlier run, so that the first step is zero-copy
 * @tracer: the tracer; what it knows already stays
 * @path: from tow_tracer_save()
 *
 * Return: 0; -EBADMSG: the file is no such file, and nothing was taken of it; -EINVAL: an
 * argument is NULL; -ENOMEM: out of memory; -ENOSPC: it has more nodes than there can be,
 * and some of it was taken; or what opening or reading it failed with.
 */
int tow_tracer_load(struct tow_tracer *tracer, const char *path);

#ifdef __cplusplus
}
#ifdef __GNUC__
#pragma GCC diagnostic pop
#endif
#endif

#endif /* TOW_TRACER_H */
