/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * libtowline: an allocator of memory that is ready for the wire.
 *
 * An arena cuts tensors out of large regions, so that a program registers little and
 * seldom, and each tensor may be sent from where it was computed.  Best fit with
 * coalescing; what is known of the blocks is kept outside the regions, where no peer
 * writes.  The allocator on top of one large registered buffer is that of "Fast
 * Distributed Deep Learning over RDMA" (EuroSys '19), section 3.4.
 *
 * All functions may be called by any number of threads at once; but what is not allocated
 * any more is not to be asked about, or freed again, while another thread trims.
 *
 * fork(2).  A child shares the memory with its parent, whose arena it is: what it writes to a
 * tensor is in its parent's.  It can neither allocate nor free; where an address is, and how
 * much may be used there, it can ask.
 */
#ifndef TOW_ARENA_H
#define TOW_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include <towline/towline.h>

#ifdef __cplusplus
/* One function is called like the structure that it fills in. */
#ifdef __GNUC__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif
extern "C" {
#endif

/* Made by tow_arena_create(), ended by tow_arena_destroy(). */
struct tow_arena;

/* What all memory of an arena is aligned to, in bytes. */
#define TOW_ARENA_ALIGNMENT	64U

/* Each block has red zones, and freed memory is poisoned; both are looked at. */
#define TOW_ARENA_DEBUG		(1U << 0)
/* Where the pool has nothing left, ordinary memory, which no peer can reach. */
#define TOW_ARENA_FALLBACK	(1U << 1)

/**
 * struct tow_arena_attr - what an arena is to be like
 * @size: sizeof(struct tow_arena_attr)
 * @flags: TOW_ARENA_*
 * @region_bytes: of each region that the arena takes, in bytes: rounded up to 2 MiB; 0:
 *	64 MiB.  Larger blocks get a region of their size; where the pool has less, the
 *	arena is content with what the block needs.
 * @limit_bytes: what all regions together may have, but for those of tow_arena_adopt(), in bytes;
 *	0: what the device's limits and its pool give
 * @warn: told what went wrong where no function could say so: once that ordinary memory
 *	is given out, and each time freed memory was found changed, or tow_arena_realloc()
 *	found that something was written around a block.  It must not call the arena.
 *	NULL: one line on the standard error.
 * @grown: told of each new region, before anything in it is given out: to export it,
 *	say.  A negative errno refuses it.  It must not call the arena.  By whoever
 *	allocates, which of a worker's arena may be a thread of the worker's.  NULL: nobody
 * @shrinks: told of each region that was accepted before it is destroyed.  It must not
 *	call the arena.  NULL: nobody
 * @data: for those three
 */
struct tow_arena_attr {
	uint32_t size;
	uint32_t flags;
	uint64_t region_bytes;
	uint64_t limit_bytes;
	void (*warn)(void *data, const char *what);
	int (*grown)(void *data, struct tow_region *region, void *addr, uint64_t bytes);
	void (*shrinks)(void *data, struct tow_region *region, void *addr, uint64_t bytes);
	void *data;
};

/**
 * tow_arena_create() - make an arena
 * @dev: whose pool it takes regions from; it must stay open as long as the arena lives
 * @attr: what it is to be like, or NULL: no flags, no limit of its own
 * @arena: stored here; ended with tow_arena_destroy()
 *
 * Nothing is taken from the pool before something is allocated.
 *
 * Return: 0, or
 *  -E2BIG: @attr asks for what this library does not know;
 *  -EINVAL: an argument is NULL, @attr's size is none that there ever was, or a flag is
 *	unknown;
 *  -ENOMEM: out of memory;
 *  -EPERM: @dev is another process's.
 */
int tow_arena_create(struct tow_device *dev, const struct tow_arena_attr *attr,
		     struct tow_arena **arena);

/**
 * tow_arena_destroy() - end an arena, and all of its memory with it
 * @arena: the arena, which no thread may use any more; NULL is nothing
 *
 * What is still allocated is gone, as are the regions and their mappings.
 *
 * Return: 0, or what tow_region_destroy() said of the first region that it could not
 * end; -EPERM in a child that was forked, where nothing but the child's mappings ends.  The
 * arena is gone in any case.
 */
int tow_arena_destroy(struct tow_arena *arena);

/**
 * tow_arena_adopt() - give an arena a region to cut blocks out of
 * @arena: the arena
 * @region: of the same device: of its pool, however it was come by, of the process's own
 *	memory, or of another device's (tow_region_from_dmabuf()).  It stays the caller's, and must
 *	not be destroyed or released before the arena is
 *
 * The arena uses those 2 MiB of it that begin at multiples of 2 MiB where it has an address, maps
 * it if it has none of its own, and overwrites what was in it as blocks are given out; with
 * TOW_ARENA_DEBUG at once.  tow_arena_trim() leaves it alone, and it does not count against
 * @limit_bytes.  @grown and @shrinks are told of all of it.
 *
 * What was allocated in a persistent region cannot be found again in it by this: an arena keeps
 * what it knows of blocks elsewhere, and does not outlive its process.
 *
 * Of another device's memory the arena gives out addresses that only stand for it: tow_arena_find()
 * says where in the region such a one is, and the device, or whatever tow_region_map() maps,
 * reaches it there.  At the address itself is nothing, and to read or write it is a fault.  It is
 * for edges, of a worker of that arena (tow_worker_create()) or another; communicators, servers,
 * tracers and tow_numpy refuse the arena (-EOPNOTSUPP).  All that such an arena has is other
 * devices' memory, and it gets none by itself (ENOSPC).  tow_arena_zeroed() fails with EOPNOTSUPP,
 * and so does tow_arena_realloc() where it would move.  When the device has taken its memory back
 * (tow_region_from_dmabuf()) what is allocated is good for tow_arena_free() only.
 *
 * Return: 0, or
 *  -EACCES: the region is read-only;
 *  -EBUSY: an arena has it, or another region with the same memory, already;
 *  -EINVAL: an argument is NULL, the region is another device's, or there are no such 2 MiB in it;
 *  -EOPNOTSUPP: it is another device's memory, and the arena has flags, or a region that is
 *	not; or it is not, and the arena has one that is;
 *  -EPERM: in a child that was forked; and what tow_region_map() and @grown return.
 */
int tow_arena_adopt(struct tow_arena *arena, struct tow_region *region);

/**
 * tow_arena_alloc() - allocate
 * @arena: the arena
 * @bytes: how many; 0 is as good as 1, and gets an address of its own
 *
 * Return: the memory, aligned to 64 bytes, with any contents, freed with
 * tow_arena_free(); or NULL with errno:
 *  EDQUOT: @limit_bytes, or a limit of this client or its user, is reached;
 *  EINVAL: @arena is NULL;
 *  ENODEV: there is no room left, and the device was removed;
 *  ENOMEM: out of the machine's memory, or @bytes is more than there can be;
 *  EPERM: in a child that was forked;
 *  ENOSPC: the device's pool is empty, or a limit of the device is reached, or the arena is
 *	of another device's memory and has no more; and what
 *	else tow_region_create() and tow_region_map() fail with.
 */
void *tow_arena_alloc(struct tow_arena *arena, size_t bytes);

/**
 * tow_arena_aligned() - the same, at a multiple of @alignment
 * @arena: the arena
 * @alignment: any power of two, in bytes; less than 64 is as good as 64
 * @bytes: how many
 *
 * Return: as tow_arena_alloc(); EINVAL also when @alignment is no power of two.
 */
void *tow_arena_aligned(struct tow_arena *arena, size_t alignment, size_t bytes);

/**
 * tow_arena_zeroed() - the same, of zeroes
 * @arena: the arena
 * @count: how many things
 * @bytes: of each
 *
 * Return: as tow_arena_alloc(); ENOMEM also when @count times @bytes is more than there
 * can be; EOPNOTSUPP when the arena is of another device's memory.
 */
void *tow_arena_zeroed(struct tow_arena *arena, size_t count, size_t bytes);

/**
 * tow_arena_realloc() - have more of it, or less
 * @arena: the arena
 * @ptr: what was allocated there; or NULL, as tow_arena_alloc()
 * @bytes: how many there are to be; 0 is as good as 1, and frees nothing
 *
 * It stays where it is if there is room behind it; otherwise it is moved, and is aligned
 * to 64 bytes then.
 *
 * Return: the memory, with the contents it had as far as both sizes reach (of what was
 * there: tow_arena_usable()); or NULL with
 * errno, and nothing has changed: as tow_arena_alloc(), EINVAL also when @ptr is
 * nothing that is allocated there, EOPNOTSUPP when another device's memory had to be moved.
 */
void *tow_arena_realloc(struct tow_arena *arena, void *ptr, size_t bytes);

/**
 * tow_arena_free() - free
 * @arena: the arena
 * @ptr: what was allocated there, by any thread; NULL is nothing
 *
 * Return: 0, or
 *  -EINVAL: @ptr is nothing that is allocated there, maybe not any more; nothing has
 *	changed;
 *  -EPERM: in a child that was forked; nothing has changed;
 *  -EUCLEAN: with TOW_ARENA_DEBUG, somebody wrote before its begin or behind its end;
 *	it is freed.
 */
int tow_arena_free(struct tow_arena *arena, void *ptr);

/**
 * tow_arena_usable() - how much of it there is
 * @arena: the arena
 * @ptr: what was allocated there
 *
 * Return: bytes from @ptr on that may be used, at least what was asked for; with
 * TOW_ARENA_DEBUG no more; 0: @ptr is nothing that is allocated there, or ordinary memory in
 * a child that was forked.
 */
size_t tow_arena_usable(struct tow_arena *arena, const void *ptr);

/**
 * tow_arena_find() - where an address is
 * @arena: the arena
 * @ptr: any address; that of something allocated there, or within it
 * @region: the region that it is in is stored here; it is the arena's, which may destroy
 *	it when nothing is allocated in it any more
 * @offset: its offset in that region is stored here, in bytes
 *
 * Takes two steps, however many regions there are, and no lock.
 *
 * Return: 0, or
 *  -EINVAL: an argument is NULL;
 *  -ENOENT: it is in none of the arena's regions.  So is what TOW_ARENA_FALLBACK gave.
 */
int tow_arena_find(struct tow_arena *arena, const void *ptr, struct tow_region **region,
		   uint64_t *offset);

/**
 * tow_arena_trim() - give regions back in which nothing is allocated
 * @arena: the arena
 * @keep_bytes: how much is to be kept for later, in bytes, at least; of tow_arena_adopt()'s
 *	regions all is
 *
 * Return: how many bytes went back to the pool; in a child that was forked none do.
 */
uint64_t tow_arena_trim(struct tow_arena *arena, uint64_t keep_bytes);

/**
 * tow_arena_check() - with TOW_ARENA_DEBUG, look at all red zones and freed memory
 * @arena: the arena
 *
 * Return: how many blocks, allocated or free, somebody wrote around or into who may not;
 * 0 without TOW_ARENA_DEBUG, and in a child that was forked.
 */
size_t tow_arena_check(struct tow_arena *arena);

/**
 * struct tow_arena_stats - how an arena is
 * @size: sizeof(struct tow_arena_stats)
 * @flags: the arena's
 * @in_use_bytes: allocated now, of each block all that may be used; without @fallback_bytes
 * @reserved_bytes: of all regions
 * @peak_bytes: the most that was in use, or kept by threads' caches, at once
 * @largest_free_bytes: the largest block that there is room for without another region
 * @regions: how many
 * @allocations: that succeeded, moves of tow_arena_realloc() too
 * @frees: that succeeded
 * @failures: allocations that failed
 * @fallbacks: allocations that were given ordinary memory
 * @fallback_bytes: of those that are not freed yet, as they were asked for
 * @damaged: with TOW_ARENA_DEBUG: blocks that were found written around when they were
 *	freed, or into after that
 * @fragmentation: 1 - the largest free block / all that is free: 0 when it is in one
 *	piece, or nothing is free
 */
struct tow_arena_stats {
	uint32_t size;
	uint32_t flags;
	uint64_t in_use_bytes;
	uint64_t reserved_bytes;
	uint64_t peak_bytes;
	uint64_t largest_free_bytes;
	uint64_t regions;
	uint64_t allocations;
	uint64_t frees;
	uint64_t failures;
	uint64_t fallbacks;
	uint64_t fallback_bytes;
	uint64_t damaged;
	double fragmentation;
};

/**
 * tow_arena_stats() - ask how an arena is
 * @arena: the arena
 * @stats: answered here; @stats->size must be set.  While other threads allocate, its
 *	numbers are of slightly different moments.
 *
 * Return: 0; -EINVAL: an argument is NULL, or its size is none that there ever was; -EPERM: in
 * a child that was forked.
 */
int tow_arena_stats(struct tow_arena *arena, struct tow_arena_stats *stats);

#ifdef __cplusplus
}
#ifdef __GNUC__
#pragma GCC diagnostic pop
#endif
#endif

#endif /* TOW_ARENA_H */
