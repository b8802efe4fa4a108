/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * Workers, as edges see them.
 *
 * An operation is a record that an entry's user_data points to.  Everything here is
 * called with the worker's lock, but for what says otherwise.
 */
#ifndef TOW_WORKER_INSIDE_H
#define TOW_WORKER_INSIDE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <towline/slot.h>
#include <towline/tensor.h>

#include "../core/internal.h"
#include "check.h"
#include "windows.h"

struct towi_op {
	/* It has ended.  Whoever began it has the record again. */
	void (*ended)(struct towi_op *op, int status);
	struct tow_edge *edge;
	bool busy;
};

/* Something that is to be done without the lock: a function of the program's is called. */
struct towi_call {
	struct towi_call *next;
	void (*run)(struct towi_call *call);
};

struct towi_edge;

struct towi_edge_ops {
	/* Begin what may begin. */
	void (*go_on)(struct towi_edge *edge);
	/* What was found at its peer until then (CLOCK_MONOTONIC) is stale. */
	void (*lost)(struct towi_edge *edge, int error, uint64_t lost_ns);
	/* Time has passed: worker->tick_us at least, if anybody is there. */
	void (*tick)(struct towi_edge *edge, uint64_t now_us);
	/* Its memory, at last. */
	void (*bury)(struct towi_edge *edge);
};

/* What a worker knows of an edge: its first member. */
struct towi_edge {
	const struct towi_edge_ops *ops;
	struct tow_worker *worker;
	struct towi_edge *next;
	uint64_t peer;
};

struct tow_worker {
	struct tow_device *dev;
	struct tow_arena *arena;
	struct tow_queue *queue;
	uint32_t timeout_ms;
	/* For entries whose bytes were copied: TOW_SQE_COPIED, if the module knows it. */
	uint8_t copied_flag;
	/* Tensors travel with their sums, and those are compared; or NULL. */
	towi_crc32c *crc32c;
	struct towi_finder finder;
	pthread_mutex_t lock;
	/* Somebody waits for the queue; others wait for this, until he has looked. */
	pthread_cond_t looked;
	bool waited_for;
	/* The device has gone, or the client ended: nothing is begun any more. */
	int over;
	int wake_fd;			/* an eventfd that he looks at, too */
	struct towi_edge *edges;
	uint32_t edges_count;
	uint32_t probes;		/* that edges may begin in this tick */
	/* Closed with operations that never ended; freed when the queue is. */
	struct towi_edge *graves;
	struct towi_call *calls, **last_call;
	uint64_t asked_us;		/* when somebody last asked for lost peers */
	uint64_t ticked_us, tick_us;
	uint32_t waits;			/* entries that wait for slots */
	uint64_t ended;			/* operations, ever */
	uint32_t in_flight;		/* entries whose completion nobody has seen */
	_Atomic uint64_t copied;
};

void towi_worker_lock(struct tow_worker *worker);

/* Has what began then taken longer than the worker's timeout_ms, if it has one? */
static inline bool towi_worker_late(const struct tow_worker *worker, uint64_t since_us,
				    uint64_t now_us)
{
	return worker->timeout_ms &&
	       towi_passed(since_us, now_us) > worker->timeout_ms * 1000ULL;
}

/* Hands over what was begun, and calls what is to be called. */
void towi_worker_unlock(struct tow_worker *worker);

/* For a thread that is not the program's: somebody else calls. */
void towi_worker_unlock_quietly(struct tow_worker *worker);

/*
 * Room for an entry of @op, which is not busy: to be prepared, and then given to
 * towi_worker_begun().  NULL: there is none at the moment.
 */
struct tow_sqe *towi_worker_entry(struct tow_worker *worker);

/*
 * Is there room for that many, and for their completions?  Then they are taken together: a
 * chain ends with what one call takes, and what was linked would go alone.
 */
bool towi_worker_room(struct tow_worker *worker, uint32_t entries);
void towi_worker_begun(struct tow_sqe *sqe, struct towi_op *op);

/*
 * May an edge that has looked for its other end then do so again now?  So many do in a tick: with
 * more edges each has its turn less often.
 */
bool towi_worker_may_probe(const struct tow_worker *worker, uint64_t probed_us, uint64_t now_us);

/* May another entry wait for a slot?  Those take room from others' completions. */
bool towi_worker_may_wait(const struct tow_worker *worker);

/*
 * After -ENODEV or -EPERM: what was taken ends by itself, and nobody can wait for it.
 * Looks for a while whether @busy(@edge) still.
 */
void towi_worker_settle(struct tow_worker *worker, bool (*busy)(const struct tow_edge *edge),
			const struct tow_edge *edge);

/* Not in a child that was forked. */
bool towi_worker_usable(const struct tow_worker *worker);

/* Whoever waits looks. */
void towi_worker_wake(struct tow_worker *worker);

/* Something has ended of which no completion tells: @edge goes on, and who waits looks. */
void towi_worker_noticed(struct tow_worker *worker, struct tow_edge *edge);

/* Something is to be called when the lock is let go of. */
void towi_worker_call(struct tow_worker *worker, struct towi_call *call);

/*
 * Wait, until @until (CLOCK_MONOTONIC in microseconds; UINT64_MAX: for ever), for
 * anything to end; lets go of the lock meanwhile, and calls what is to be called.  0:
 * something may have; -ETIMEDOUT; -EINTR; -ENODEV; -EPERM.
 */
int towi_worker_wait(struct tow_worker *worker, uint64_t until);

/* Wait until @op has ended, as towi_worker_wait(). */
int towi_worker_wait_for(struct tow_worker *worker, const struct towi_op *op, uint64_t until);

#endif /* TOW_WORKER_INSIDE_H */
