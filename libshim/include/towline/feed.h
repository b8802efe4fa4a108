/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * libtowline: a job server, which feeds workers with batches and watches them.
 *
 * Rank 0 has the training data, or reads it; each other rank works.  The server writes batches
 * into workers' memory before they ask, by one-sided writes over a static edge each
 * (towline/tensor.h), sees which of them were taken, and tells all when a worker is lost.  What a
 * model is made of never passes through it: workers move that among themselves, by a group of
 * their own (towline/collective.h), or by parameter servers.  "MiMatrix: A Massively Distributed
 * Deep Learning Framework on a Petascale High-density Heterogeneous Cluster" (2018).
 *
 *	server	tow_feed_create(), tow_feed_serve(), tow_feed_worker() to see how far all are,
 *		tow_feed_destroy()
 *	worker	tow_feed_create(), tow_feed_next() until it returns 0, tow_feed_destroy()
 *
 * A feed is used by one thread at a time.  In a child that was forked it is not used (-EPERM), and
 * nobody hears of it when it is destroyed.
 */
#ifndef TOW_FEED_H
#define TOW_FEED_H

#include <stddef.h>
#include <stdint.h>

#include <towline/arena.h>
#include <towline/bootstrap.h>
#include <towline/tensor.h>

#ifdef __cplusplus
/* One function is called like the structure that it fills in. */
#ifdef __GNUC__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif
extern "C" {
#endif

/* Tensors of a batch, at most. */
#define TOW_FEED_TENSORS_MAX	64U

/**
 * struct tow_feed_attr - what a batch is
 * @size: sizeof(struct tow_feed_attr), as the caller was compiled
 * @depth: how many batches a worker has memory for, that which it works on included: 1 to
 *	TOW_EDGE_SLOTS_MAX; 0: 2; the same at all ranks
 * @timeout_ms: how long a worker may work on a batch, in milliseconds, before it is blamed, and
 *	how long it waits for the server, a second more; 0: 600,000
 * @count: how many tensors a batch is made of, 1 to TOW_FEED_TENSORS_MAX
 * @types: what each of them is, the same at all ranks
 * @step: a worker's: of which step it wants a batch first; the least one of all workers' counts
 *
 * Nothing of it is kept.  Later versions of the library add fields at the end only.
 */
struct tow_feed_attr {
	uint32_t size;
	uint32_t depth;
	uint32_t timeout_ms;
	uint32_t count;
	const struct tow_tensor_type *types;
	uint64_t step;
};

/* What this rank has of a job server.  Made by tow_feed_create(). */
struct tow_feed;

/**
 * tow_feed_create() - find the server, or the workers
 * @group: from tow_group_create(), of two ranks or more; it must be there for as long as the feed
 * @arena: from tow_arena_create(), of the group's device: where batches are
 * @attr: what a batch is
 * @feed: where to put it; ended by tow_feed_destroy().  Left alone on failure.
 * @blamed: where to put the rank that is to blame, or TOW_NO_RANK; or NULL
 *
 * All ranks call it; signals wait until it returns.  A worker has memory for @attr->depth batches,
 * the server for two of each worker's, and nothing is allocated after that.
 *
 * Return: 0; -EINVAL: an argument but @blamed is NULL, @attr is not as above, or the group has one
 * rank only, or of another device than @arena (of that others are told, too); -E2BIG: @attr asks for what this library does not know; -EOVERFLOW: a batch is larger
 * than anything, or there are more workers than a queue has entries; -EPROTO: @blamed has other
 * ideas of @depth or @count; -EPROTOTYPE, -EMSGSIZE: @blamed's tensors have elements of another
 * type, or another shape; -ECANCELED: @blamed could not; what tow_group_gather(),
 * tow_group_peer(), tow_arena_alloc(), tow_worker_create(), tow_static_receiver() and
 * tow_edge_connect() return.
 */
int tow_feed_create(struct tow_group *group, struct tow_arena *arena,
		    const struct tow_feed_attr *attr, struct tow_feed **feed, uint32_t *blamed);

/**
 * tow_feed_leave() - say that this rank leaves
 * @feed: from tow_feed_create(), or NULL
 *
 * Of a worker the server is told; and what went wrong, if something did: it tells others.  A
 * server's workers are told that it does not go on, if they have not left.  The last batch stays
 * where it is, and nothing else is done any more.
 */
void tow_feed_leave(struct tow_feed *feed);

/**
 * tow_feed_destroy() - leave, and end it
 * @feed: from tow_feed_create(), or NULL
 */
void tow_feed_destroy(struct tow_feed *feed);

/**
 * tow_feed_step() - of which step the next batch is
 * @feed: from tow_feed_create()
 *
 * Return: a worker's: what the next tow_feed_next() will show; the server's: the least one that a
 * worker has not done with, or has left before.  0: @feed is NULL.
 */
uint64_t tow_feed_step(const struct tow_feed *feed);

/**
 * typedef tow_feed_fill - write a batch
 * @arg: as it was given to tow_feed_serve()
 * @rank: for which worker, 1 or more
 * @step: of which step; each worker has all steps, in their order
 * @tensors: where each tensor is to be, aligned to 64 bytes: the server's memory, from where it is
 *	sent.  It holds what it held two batches of this worker's before.
 *
 * Nothing else is done meanwhile.  What is to be the same after somebody was lost depends on
 * nothing but @rank and @step.
 *
 * Return: 1: it is there; 0: there are no more for this worker, which is not asked for again;
 * -EINTR: tow_feed_serve() returns it, and the next call asks for the same batch;
 * another negative errno: all workers are told, and tow_feed_serve() returns it, with this rank
 * blamed.
 */
typedef int tow_feed_fill(void *arg, uint32_t rank, uint64_t step, void *const *tensors);

/**
 * tow_feed_serve() - a server's work
 * @feed: the server's, from tow_feed_create()
 * @fill: writes batches; the same in each call
 * @arg: for @fill
 * @timeout_us: how long, in microseconds; TOW_WAIT_FOREVER
 * @blamed: where to put the rank that is to blame, or TOW_NO_RANK; or NULL
 *
 * Sleeps while all workers have what they have memory for.  Whether time is over is asked behind
 * each batch; a signal that comes while batches are written is for @fill to tell.
 *
 * Return: 0: all workers have left; -ETIMEDOUT with TOW_NO_RANK: time is over, call it again;
 * -ESTALE: rank @blamed has died; -ECONNRESET: its node does not answer; -ETIMEDOUT: it has worked
 * on a batch for too long, and of several it has done the fewest; another error with @blamed: what
 * that rank has left with, or what @fill returned; -EINTR: tow_on_signal(); -ENODEV: this node's
 * RDMA device is gone; -EPERM in a child that was forked; -EINVAL: @feed is no server's, or @fill
 * is NULL.  Of one that has failed all workers were told, and it has the same error ever after;
 * -ECANCELED when it was left.
 */
int tow_feed_serve(struct tow_feed *feed, tow_feed_fill *fill, void *arg, uint32_t timeout_us,
		   uint32_t *blamed);

/**
 * tow_feed_next() - the next batch
 * @feed: a worker's, from tow_feed_create()
 * @tensors: stored here: where each tensor is, aligned to 64 bytes, in the arena: to be read until
 *	the next call, and changed if one likes
 * @blamed: where to put the rank that is to blame, or TOW_NO_RANK; or NULL
 *
 * The one before is done with: its memory is for another one.  Waits without taking processor
 * time; when batches are there before they are needed it does not wait.
 *
 * Return: 1: a batch is there; 0: there are no more; -ESTALE: rank @blamed has died; -ECONNRESET:
 * its node does not answer; -ETIMEDOUT: rank @blamed took too long; -ECANCELED: the server has
 * left, or this rank has (tow_feed_leave()); another error with @blamed: what that rank says that
 * it could not go on for; -EINTR: tow_on_signal(), call it again; -ENODEV: this node's RDMA device is
 * gone; -EPERM in a child that was forked; -EINVAL: an argument is NULL, or @feed is the server's.
 * A feed that has failed has the same error and blames the same rank ever after.
 */
int tow_feed_next(struct tow_feed *feed, void *const **tensors, uint32_t *blamed);

/**
 * struct tow_feed_worker - how far a worker is
 * @size: sizeof(struct tow_feed_worker), as the caller was compiled
 * @state: enum tow_feed_state
 * @step: the first step that it has not done with: its next call of tow_feed_next() is behind that,
 *	or for it
 * @sent: batches that were sent to it
 * @done: of those, what it has done with
 * @silent_us: how long it has worked on that, in microseconds; 0 while it has none
 */
struct tow_feed_worker {
	uint32_t size;
	uint32_t state;
	uint64_t step;
	uint64_t sent;
	uint64_t done;
	uint64_t silent_us;
};

/**
 * enum tow_feed_state - what a worker does
 * @TOW_FEED_WORKS: it has batches, or will
 * @TOW_FEED_OVER: there are no more for it
 * @TOW_FEED_LEFT: it has said that it leaves
 * @TOW_FEED_LOST: it has died, or its node does not answer
 */
enum tow_feed_state {
	TOW_FEED_WORKS	= 0,
	TOW_FEED_OVER	= 1,
	TOW_FEED_LEFT	= 2,
	TOW_FEED_LOST	= 3
};

/**
 * tow_feed_worker() - how far a worker is
 * @feed: the server's, from tow_feed_create()
 * @rank: which one, 1 or more
 * @worker: told here; @worker->size is set before
 *
 * @done, @step and @silent_us are as they are now, the rest as tow_feed_serve() has left it.
 *
 * Return: 0; -EINVAL: an argument is NULL, @feed is a worker's, there is no such rank, or the size
 * is none that there ever was.
 */
int tow_feed_worker(const struct tow_feed *feed, uint32_t rank, struct tow_feed_worker *worker);

/**
 * struct tow_feed_stats - what this rank has done
 * @size: sizeof(struct tow_feed_stats), as the caller was compiled
 * @workers: how many there are
 * @batches: that the server has sent, or a worker was shown
 * @bytes: of their tensors
 * @copied_bytes: of what the server has sent, what was copied before: none
 * @waited_ns: for how long tow_feed_serve() has slept, or tow_feed_next() has waited, in
 *	nanoseconds
 */
struct tow_feed_stats {
	uint32_t size;
	uint32_t workers;
	uint64_t batches;
	uint64_t bytes;
	uint64_t copied_bytes;
	uint64_t waited_ns;
};

/**
 * tow_feed_stats() - what this rank has done
 * @feed: from tow_feed_create()
 * @stats: told here; @stats->size is set before
 *
 * Return: 0; -EINVAL: an argument is NULL, or the size is none that there ever was.
 */
int tow_feed_stats(const struct tow_feed *feed, struct tow_feed_stats *stats);

#ifdef __cplusplus
}
#ifdef __GNUC__
#pragma GCC diagnostic pop
#endif
#endif

#endif /* TOW_FEED_H */
