/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * Pumps: a queue, and those whose operations go through it.
 *
 * A runner is what has operations: an edge, a line, a collective.  An operation is a record that
 * an entry's user_data points to, and that knows its runner; so whose completion comes is found at
 * once, and only he goes on, however many there are.  Who finds no room for an entry goes on when
 * there is some, by himself.
 *
 * A slot is waited for by an entry, too, and as long as nobody notifies it does not end.  So
 * completions are shared out: some are for waits, one each, which are reserved before, and others
 * for all else.  Neither takes the other's.
 *
 * One thread at a time waits in the kernel; others wait for it, as it may take the completion
 * that they wait for.  Who takes completions while another thread is in the kernel, where it
 * would not notice, wakes it by an eventfd.
 *
 * The lock is for records, lists and rings.  What takes long is done without it: entries are handed
 * over to the kernel, functions of the program's are called (calls), and what may wait for another
 * node is done by a thread of the pump's (errands).
 *
 * Everything here is called with the pump's lock, but for what says otherwise.
 */
#ifndef TOW_PUMP_H
#define TOW_PUMP_H

#include <bsd/sys/queue.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <towline/slot.h>

#include "../core/internal.h"

struct towi_pump;
struct towi_runner;

struct towi_runner_ops {
	/* Begin what may begin. */
	void (*go_on)(struct towi_runner *runner);
	/*
	 * What was found at its peer until then (CLOCK_MONOTONIC) is stale; UINT64_MAX: nothing is
	 * begun any more at all.  Or NULL.
	 */
	void (*lost)(struct towi_runner *runner, int error, uint64_t lost_ns);
	/*
	 * Time has passed: pump->tick_us at least, if anybody is there; with many runners each has
	 * its turn less often.  Or NULL.
	 */
	void (*tick)(struct towi_runner *runner, uint64_t now_us);
	/* Its memory, at last.  Without the lock. */
	void (*bury)(struct towi_runner *runner);
};

/* The first member of an edge, and so on: all 0 but for ops and peer when it joins. */
struct towi_runner {
	const struct towi_runner_ops *ops;
	struct towi_pump *pump;
	uint64_t peer;			/* towi_peer_number(); 0: of no one peer */
	TAILQ_ENTRY(towi_runner) all;	/* or among the graves */
	TAILQ_ENTRY(towi_runner) turn;	/* of those with a tick */
	TAILQ_ENTRY(towi_runner) next;
	struct towi_runners *in;	/* which list that is: ready, starved, or NULL */
	uint32_t needs;			/* entries, if it is starved */
	/* Of it, and 0 before it may go: */
	uint32_t busy;			/* operations but waits, and errands */
	uint32_t waiting;		/* waits that the kernel has */
	uint32_t calls;			/* functions that are being called, or will be */
};

TAILQ_HEAD(towi_runners, towi_runner);

struct towi_op {
	/* It has ended, and its runner goes on after this.  Whoever began it has the record again. */
	void (*ended)(struct towi_op *op, int status);
	struct towi_runner *runner;
	uint32_t more;			/* entries that it has beside one: it ends with the last */
	int failed;			/* the first error of those that have ended before */
	bool busy;
	bool waits;			/* for a slot, */
	bool reserved;			/* and has a completion of its own */
};

/* A slot that is waited for. */
struct towi_wait {
	struct towi_op op;		/* first: its ended and runner are filled in */
	uint64_t wanted;		/* its number, or more; 0: nothing */
};

/* Something that began, and may take too long. */
struct towi_timed {
	TAILQ_ENTRY(towi_timed) next;
	uint64_t since_us;
	/* It has.  It is timed no longer. */
	void (*late)(struct towi_timed *timed);
};

/* A function of the program's that is to be called: without the lock. */
struct towi_call {
	STAILQ_ENTRY(towi_call) next;
	struct towi_runner *runner;
	void (*run)(struct towi_call *call);	/* the record may be gone when it returns */
	uint64_t number;
};

/* What may wait.  Its runner is busy until done() has been called. */
struct towi_errand {
	STAILQ_ENTRY(towi_errand) next;
	struct towi_runner *runner;
	/* Without the lock: what done() is told; -EAGAIN: once more, in a moment. */
	int (*run)(struct towi_errand *errand);
	/* By a thread of the program's, which looks; its runner goes on after this. */
	void (*done)(struct towi_errand *errand, int ret);
	int ret;
	uint64_t due_us, pause_us;
};

STAILQ_HEAD(towi_errands, towi_errand);

struct towi_pump {
	struct tow_queue *queue;
	/* For entries whose bytes were copied: TOW_SQE_COPIED, if the module knows it. */
	uint8_t copied_flag;
	int wake_fd;			/* an eventfd at which he who waits looks, too */
	pthread_mutex_t lock;		/* for all below */
	/* Somebody waits for the queue; others wait for this, until he has looked. */
	pthread_cond_t looked;
	bool waited_for;
	/* Somebody hands over; others wait for this, and then hand over what is theirs. */
	pthread_cond_t submitted;
	bool submitting;
	/* The device has gone, or the client ended: nothing is begun any more. */
	int over;
	struct towi_runners all, turns, ready, starved;
	struct towi_runner *fed;	/* it was starved, and is ready; or NULL */
	/* They left with operations that never ended; buried when the queue is. */
	struct towi_runners graves;
	/* Entries whose completion nobody has seen, but for those with a completion of their own. */
	uint32_t in_flight, in_flight_max;
	uint32_t reserved, reserved_max;
	uint64_t ended;			/* operations, ever, and errands, */
	uint64_t news;			/* and what else who waits is to look for */
	struct towi_op nudge;
	bool nudged;			/* once there is room */
	uint32_t settling;		/* threads in towi_pump_settle() */
	STAILQ_HEAD(, towi_call) calls;
	uint64_t calls_count;		/* ever */
	SLIST_HEAD(, towi_caller) callers;
	uint64_t asked_us;		/* when somebody last asked for lost peers */
	uint64_t ticked_us, tick_us;
	uint64_t late_us;		/* that something timed may take; 0: as long as it likes */
	TAILQ_HEAD(, towi_timed) timed;	/* the oldest first */
	struct towi_errands errands, finished;
	pthread_cond_t called;		/* who runs them looks */
	pthread_t runs;
	bool has_thread, ends;
};

/* ---- begin and end ---- */

/*
 * A queue of @entries, and room for @waits; @timeout_ms: how long what is timed may take; 0: as
 * long as it likes.  Without the lock.  0, or what tow_queue_create() returns.
 */
int towi_pump_begin(struct towi_pump *pump, struct tow_device *dev, uint32_t entries,
		    uint32_t waits, uint32_t timeout_ms);

/* The same with a queue that there is, which cannot fail: for tests. */
void towi_pump_init(struct towi_pump *pump, struct tow_queue *queue, uint32_t waits,
		    uint32_t timeout_ms);

/* No errand is run any more: those that were not end with -ECANCELED.  Without the lock. */
void towi_pump_quiet(struct towi_pump *pump);

/* Without the lock, without runners. */
void towi_pump_end(struct towi_pump *pump);

/* The same of a child's copy, for whose conditions threads may wait that the child has not. */
void towi_pump_forget(struct towi_pump *pump);

/* Not in a child that was forked: asked before the lock is taken. */
bool towi_pump_usable(const struct towi_pump *pump);

/* ---- the lock ---- */

void towi_pump_lock(struct towi_pump *pump);

/*
 * Whoever is ready goes on, what was begun is handed over, and what is to be called is called.
 */
void towi_pump_unlock(struct towi_pump *pump);

/* The same, but somebody else calls: in a call. */
void towi_pump_unlock_quietly(struct towi_pump *pump);

/* Nobody has become ready, and nothing was begun, since the lock was taken. */
void towi_pump_unlock_plainly(struct towi_pump *pump);

/* What was begun is handed over now; lets go of the lock meanwhile. */
void towi_pump_submit(struct towi_pump *pump);

/* ---- runners ---- */

/* Its ops and peer are filled in. */
void towi_pump_join(struct towi_pump *pump, struct towi_runner *runner);

/* True: nothing knows its records any more, and it is the caller's; else it is buried. */
bool towi_pump_leave(struct towi_runner *runner);

/* It goes on before the lock is let go of. */
void towi_pump_ready(struct towi_runner *runner);

/*
 * Until @count, one of a runner's numbers, is 0, or @until; what the device has not ended for a
 * while after it has gone seems never to end.  Lets go of the lock meanwhile, and calls what is to
 * be called.
 */
void towi_pump_settle(struct towi_pump *pump, const uint32_t *count, uint64_t until);

/* ---- operations ---- */

/*
 * Is there room for so many entries, and for their completions, and has nobody found too little
 * before?  Then they are handed over together.  False: not now; @runner goes on when it is its turn.
 */
bool towi_pump_room(struct towi_runner *runner, uint32_t entries);

/* As many as there is room for. */
uint32_t towi_pump_free(const struct towi_pump *pump);

/* An entry, to be prepared, and then begun, whoever waits; NULL: no room, as towi_pump_room(). */
struct tow_sqe *towi_pump_entry(struct towi_runner *runner);

/*
 * @sqe is of @op, whose runner has got it.  One record may be of several: it is busy until one ends, and
 * each is told of; or, with op->more counted up for each but one, until all have, and that is told of.
 */
void towi_pump_begun(struct tow_sqe *sqe, struct towi_op *op);

/* So many more of its operations have ended: of a chain, that say nothing. */
void towi_pump_silent(struct towi_runner *runner, uint32_t entries);

/* ---- waits ---- */

/* Before the first towi_pump_wait_for(), and at last: 0, also a second time; -EOVERFLOW. */
int towi_pump_reserve(struct towi_wait *wait);
void towi_pump_release(struct towi_wait *wait);

/*
 * Its runner goes on when @slot is at @number; at once if it is by now.  @wait is reserved, and
 * one that waits for less is followed by another one.
 */
void towi_pump_wait_for(struct towi_wait *wait, const struct tow_slot *slot, uint64_t number);

/* Go on waiting, if one that has ended waited for less: a runner goes on with this. */
void towi_pump_wait_on(struct towi_wait *wait, const struct tow_slot *slot);

/* ---- time ---- */

/* From now on, and no longer; both also of what is not. */
void towi_pump_time(struct towi_pump *pump, struct towi_timed *timed);
void towi_pump_untime(struct towi_pump *pump, struct towi_timed *timed);

/* ---- without the lock ---- */

/* @call's runner and run are filled in. */
void towi_pump_call(struct towi_call *call);

/* Its runner, run and done are filled in.  0; -ENOMEM: there is no thread to run it; -ECANCELED. */
int towi_pump_errand(struct towi_errand *errand);

/* ---- waiting ---- */

/* Whoever waits looks; and, with a nudge, who watches the queue's descriptor. */
void towi_pump_wake(struct towi_pump *pump);
void towi_pump_nudge(struct towi_pump *pump);

/* What has ended is seen, who is ready goes on, and what was begun is handed over: how much has. */
int towi_pump_look(struct towi_pump *pump);

/*
 * Wait, until @until (CLOCK_MONOTONIC in microseconds; UINT64_MAX: for ever), for anything to
 * end; lets go of the lock meanwhile, and calls what is to be called.  0: something may have;
 * -ETIMEDOUT; -EINTR; -ENODEV; -EPERM.
 */
int towi_pump_sleep(struct towi_pump *pump, uint64_t until);

/* Wait until @op has ended, as towi_pump_sleep(). */
int towi_pump_sleep_for(struct towi_pump *pump, const struct towi_op *op, uint64_t until);

#endif /* TOW_PUMP_H */
