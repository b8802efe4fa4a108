// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/* Pumps: entries, completions, who goes on with them, and waiting. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <towline/queue.h>

#include "pump.h"

/* The first version of the kernel's interface with TOW_SQE_COPIED. */
#define COPIED_SINCE	9U
/* The kernel's own waiting, which is quicker for a moment, before poll(2)'s. */
#define BRIEFLY_US	1000U
/* Who does not wait asks so often whether a peer is lost: that is a call. */
#define ASK_US		10000U
/* How often runners have a turn, and what is timed is looked at, at most; and how many at once. */
#define TICK_US		1000000U
#define TURNS		1024U
/* What the device is given to end everything with, when it goes. */
#define SETTLE_US	10000000U
/* How long an errand that is to be run once more waits at first, and at last. */
#define PAUSE_US	1000U
#define PAUSE_MAX_US	64000U

static uint64_t now_us(void)
{
	return towi_now_ns() / 1000;
}

/* ---- who goes on ------------------------------------------------------------ */

static void put_in(struct towi_runner *runner, struct towi_runners *list)
{
	if (runner->in)
		TAILQ_REMOVE(runner->in, runner, next);
	runner->in = list;
	if (list)
		TAILQ_INSERT_TAIL(list, runner, next);
}

void towi_pump_ready(struct towi_runner *runner)
{
	if (runner->in != &runner->pump->ready)
		put_in(runner, &runner->pump->ready);
}

static void starve(struct towi_runner *runner, uint32_t entries)
{
	struct towi_pump *pump = runner->pump;

	if (runner->in || pump->over)
		return;
	runner->needs = entries;
	runner->in = &pump->starved;
	/* It keeps its place if others had some of it since. */
	if (pump->fed == runner)
		TAILQ_INSERT_HEAD(&pump->starved, runner, next);
	else
		TAILQ_INSERT_TAIL(&pump->starved, runner, next);
}

static void feed(struct towi_pump *pump);

/* Each once: who is ready again by then has its turn after all others. */
static void run_ready(struct towi_pump *pump)
{
	struct towi_runner *last = TAILQ_LAST(&pump->ready, towi_runners), *runner = NULL;

	while (runner != last) {
		runner = TAILQ_FIRST(&pump->ready);
		if (!runner)
			break;
		put_in(runner, NULL);
		runner->ops->go_on(runner);
		/* Whoever is about to sleep may have looked before that. */
		pump->news++;
		if (pump->fed == runner)
			pump->fed = NULL;
		feed(pump);
	}
}

/* ---- entries ---------------------------------------------------------------- */

static uint32_t sq_free(const struct towi_pump *pump)
{
	struct tow_queue *queue = pump->queue;

	queue->sq_head = tow_load_acquire(&queue->ring->sq_head);
	return queue->sq_entries - (queue->sq_tail - queue->sq_head);
}

uint32_t towi_pump_free(const struct towi_pump *pump)
{
	uint32_t entries, completions = pump->in_flight_max - pump->in_flight;

	if (pump->over)
		return 0;
	entries = sq_free(pump);
	return entries < completions ? entries : completions;
}

bool towi_pump_room(struct towi_runner *runner, uint32_t entries)
{
	const struct towi_pump *pump = runner->pump;

	/* Or who needs several would wait for ever behind those who need one. */
	if ((pump->fed == runner || TAILQ_EMPTY(&pump->starved)) && towi_pump_free(pump) >= entries)
		return true;
	starve(runner, entries);
	return false;
}

struct tow_sqe *towi_pump_entry(struct towi_runner *runner)
{
	if (towi_pump_free(runner->pump))
		return tow_queue_get_sqe(runner->pump->queue);
	starve(runner, 1);
	return NULL;
}

void towi_pump_begun(struct tow_sqe *sqe, struct towi_op *op)
{
	op->busy = true;
	tow_sqe_set_data(sqe, (uintptr_t)op);
	if (op->waits)
		op->runner->waiting++;
	else
		op->runner->busy++;
	op->runner->pump->in_flight += !op->reserved;
}

static void put_nudge(struct towi_pump *pump)
{
	struct tow_sqe *sqe;

	if (!pump->nudged || pump->nudge.busy || pump->over)
		return;
	sqe = tow_queue_get_sqe(pump->queue);
	if (!sqe)
		return;
	tow_prep_nop(sqe);
	tow_sqe_set_data(sqe, (uintptr_t)&pump->nudge);
	pump->nudge.busy = true;
	pump->nudged = false;
}

void towi_pump_nudge(struct towi_pump *pump)
{
	/* One that is on its way is seen by whoever looks after this. */
	pump->nudged = !pump->nudge.busy;
	put_nudge(pump);
}

/*
 * There may be more room than there was: for who has found too little first, as soon as it is
 * enough, and when it has gone on for the next one.
 */
static void feed(struct towi_pump *pump)
{
	struct towi_runner *runner = TAILQ_FIRST(&pump->starved);

	put_nudge(pump);
	if (pump->fed || !runner || towi_pump_free(pump) < runner->needs)
		return;
	put_in(runner, NULL);
	runner->in = &pump->ready;
	TAILQ_INSERT_HEAD(&pump->ready, runner, next);
	pump->fed = runner;
}

void towi_pump_silent(struct towi_runner *runner, uint32_t entries)
{
	runner->busy -= entries;
	runner->pump->in_flight -= entries;
	feed(runner->pump);
}

/* ---- waits ------------------------------------------------------------------ */

int towi_pump_reserve(struct towi_wait *wait)
{
	struct towi_pump *pump = wait->op.runner->pump;

	if (wait->op.reserved)
		return 0;
	if (pump->reserved == pump->reserved_max)
		return -EOVERFLOW;
	pump->reserved++;
	wait->op.reserved = true;
	wait->op.waits = true;
	return 0;
}

void towi_pump_release(struct towi_wait *wait)
{
	/* What the device did not end has its completion for ever. */
	if (!wait->op.reserved || wait->op.busy)
		return;
	wait->op.runner->pump->reserved--;
	wait->op.reserved = false;
}

void towi_pump_wait_for(struct towi_wait *wait, const struct tow_slot *slot, uint64_t number)
{
	struct towi_runner *runner = wait->op.runner;
	struct towi_pump *pump = runner->pump;
	struct tow_sqe *sqe;

	wait->wanted = number;
	if (wait->op.busy || pump->over)
		return;
	sqe = tow_queue_get_sqe(pump->queue);
	if (!sqe) {
		starve(runner, 1);
		return;
	}
	tow_prep_wait(sqe, slot, number);
	towi_pump_begun(sqe, &wait->op);
}

void towi_pump_wait_on(struct towi_wait *wait, const struct tow_slot *slot)
{
	if (!wait->wanted || wait->op.busy)
		return;
	if (tow_slot_value(slot) >= wait->wanted)
		wait->wanted = 0;
	else
		towi_pump_wait_for(wait, slot, wait->wanted);
}

/* ---- completions ------------------------------------------------------------ */

static struct towi_op *op_of(uint64_t user_data)
{
	/* NOLINTNEXTLINE(performance-no-int-to-ptr): the kernel carries it as a number */
	return (struct towi_op *)(uintptr_t)user_data;
}

static void end_op(struct towi_pump *pump, struct towi_op *op, int status)
{
	struct towi_runner *runner = op->runner;

	if (op == &pump->nudge) {
		op->busy = false;
		return;
	}
	if (op->waits)
		runner->waiting--;
	else
		runner->busy--;
	pump->in_flight -= !op->reserved;
	if (op->failed)
		status = op->failed;
	op->failed = op->more ? status : 0;
	if (op->more) {
		op->more--;
		return;
	}
	op->busy = false;
	op->ended(op, status);
	towi_pump_ready(runner);
}

void towi_pump_wake(struct towi_pump *pump)
{
	static const uint64_t one = 1;

	pump->news++;
	pthread_cond_broadcast(&pump->looked);
	/* Full is as good as one more. */
	if (pump->waited_for && write(pump->wake_fd, &one, sizeof(one)) < 0)
		return;
}

static void lose(struct towi_runner *runner, int error, uint64_t lost_ns)
{
	if (runner->ops->lost)
		runner->ops->lost(runner, error, lost_ns);
	towi_pump_ready(runner);
}

/* Nothing is begun any more: what was not taken never is; what was ends with completions. */
static void end_all(struct towi_pump *pump, int error)
{
	struct tow_queue *queue = pump->queue;
	struct towi_runner *runner;
	uint32_t from, to;

	/* He may be having some of it taken. */
	while (pump->submitting)
		pthread_cond_wait(&pump->submitted, &pump->lock);
	if (pump->over)
		return;
	pump->over = error;
	TAILQ_FOREACH(runner, &pump->all, all)
		lose(runner, error, UINT64_MAX);
	to = queue->sq_tail;
	from = tow_load_acquire(&queue->ring->sq_head);
	queue->sq_tail = from;
	for (; from != to; from++)
		end_op(pump, op_of(queue->sqes[from & (queue->sq_entries - 1)].user_data), error);
	pump->ended++;
	towi_pump_wake(pump);
}

/* Everything that has ended: how much. */
static int reap(struct towi_pump *pump)
{
	const struct tow_cqe *cqe = NULL;
	struct tow_cqe own;
	int count = 0;

	while (!tow_queue_peek_cqe(pump->queue, &cqe) && cqe) {
		own = *cqe;
		tow_queue_cqe_seen(pump->queue);
		end_op(pump, op_of(own.user_data), own.status);
		count++;
	}
	if (!count)
		return 0;
	pump->ended += (uint64_t)count;
	feed(pump);
	towi_pump_wake(pump);
	return count;
}

/* No completion tells of a peer that is lost while nothing is on its way to it. */
static void ask_for_lost(struct towi_pump *pump, uint64_t now)
{
	struct tow_queue_event event = { .size = sizeof(event) };
	struct towi_runner *runner;

	pump->asked_us = now;
	while (tow_queue_event(pump->queue, &event) > 0) {
		if (event.what & TOW_QUEUE_EVENT_LOST) {
			TAILQ_FOREACH(runner, &pump->all, all)
				if (runner->peer == event.peer)
					lose(runner, event.error ? event.error : -ECONNRESET,
					     event.lost_ns);
			towi_pump_wake(pump);
		}
		event = (struct tow_queue_event){ .size = sizeof(event) };
	}
}

/* ---- time ------------------------------------------------------------------- */

void towi_pump_untime(struct towi_pump *pump, struct towi_timed *timed)
{
	if (timed->since_us)
		TAILQ_REMOVE(&pump->timed, timed, next);
	timed->since_us = 0;
}

void towi_pump_time(struct towi_pump *pump, struct towi_timed *timed)
{
	if (!pump->late_us)
		return;
	towi_pump_untime(pump, timed);
	timed->since_us = now_us();
	TAILQ_INSERT_TAIL(&pump->timed, timed, next);
}

static void take_turns(struct towi_pump *pump, uint64_t now)
{
	struct towi_runner *first = TAILQ_FIRST(&pump->turns), *runner = first;
	uint32_t turns;

	/* Who finds no room is first the next time. */
	for (turns = 0; runner && turns < TURNS && towi_pump_free(pump); turns++) {
		TAILQ_REMOVE(&pump->turns, runner, turn);
		TAILQ_INSERT_TAIL(&pump->turns, runner, turn);
		runner->ops->tick(runner, now);
		runner = TAILQ_FIRST(&pump->turns);
		if (runner == first)
			break;
	}
}

static void tell_late(struct towi_pump *pump, uint64_t now)
{
	struct towi_timed *timed;

	while ((timed = TAILQ_FIRST(&pump->timed)) &&
	       towi_passed(timed->since_us, now) > pump->late_us) {
		towi_pump_untime(pump, timed);
		timed->late(timed);
		towi_pump_wake(pump);
	}
}

static void tick(struct towi_pump *pump, uint64_t now)
{
	if (towi_passed(pump->ticked_us, now) < pump->tick_us)
		return;
	pump->ticked_us = now;
	tell_late(pump, now);
	take_turns(pump, now);
}

/* ---- the lock --------------------------------------------------------------- */

bool towi_pump_usable(const struct towi_pump *pump)
{
	return pump->queue->ring;
}

void towi_pump_lock(struct towi_pump *pump)
{
	pthread_mutex_lock(&pump->lock);
}

static bool unpublished(const struct towi_pump *pump)
{
	return !pump->over && pump->queue->sq_tail != pump->queue->ring->sq_tail;
}

/*
 * One thread at a time, as a chain ends with what one call takes: all entries that were prepared
 * without letting go of the lock are published at once, and taken by one call.
 */
void towi_pump_submit(struct towi_pump *pump)
{
	struct tow_queue *queue = pump->queue;
	uint32_t count, head;
	int ret;

	while (pump->submitting && unpublished(pump))
		pthread_cond_wait(&pump->submitted, &pump->lock);
	if (pump->submitting || pump->over)
		return;
	count = queue->sq_entries - sq_free(pump);
	if (!count)
		return;
	head = queue->sq_head;
	tow_store_release(&queue->ring->sq_tail, queue->sq_tail);
	pump->submitting = true;
	pthread_mutex_unlock(&pump->lock);
	ret = tow_queue_enter(queue, count, 0, 0);
	pthread_mutex_lock(&pump->lock);
	pump->submitting = false;
	pthread_cond_broadcast(&pump->submitted);
	/* What finds no room is handed over with what comes next. */
	if (ret == -ENODEV || ret == -EPERM)
		end_all(pump, ret);
	else if (tow_load_acquire(&queue->ring->sq_head) != head)
		feed(pump);
}

static void hand_over(struct towi_pump *pump)
{
	do {
		run_ready(pump);
		towi_pump_submit(pump);
		/* That has made room, for a nudge, too. */
	} while (!TAILQ_EMPTY(&pump->ready) || unpublished(pump));
}

/* What the thread has run: how much. */
static int finish_errands(struct towi_pump *pump)
{
	struct towi_errand *errand;
	struct towi_runner *runner;
	int count = 0;

	while ((errand = STAILQ_FIRST(&pump->finished))) {
		STAILQ_REMOVE_HEAD(&pump->finished, next);
		runner = errand->runner;
		errand->done(errand, errand->ret);
		runner->busy--;
		towi_pump_ready(runner);
		count++;
	}
	if (!count)
		return 0;
	pump->ended += (uint64_t)count;
	towi_pump_wake(pump);
	return count;
}

int towi_pump_look(struct towi_pump *pump)
{
	uint64_t now = now_us();
	int count;

	if (towi_passed(pump->asked_us, now) >= ASK_US)
		ask_for_lost(pump, now);
	/* First: what has ended while nobody looked is not late. */
	count = reap(pump) + finish_errands(pump);
	tick(pump, now);
	hand_over(pump);
	return count;
}

void towi_pump_call(struct towi_call *call)
{
	call->runner->calls++;
	call->number = ++call->runner->pump->calls_count;
	STAILQ_INSERT_TAIL(&call->runner->pump->calls, call, next);
}

/* A thread that calls functions.  Not thread-local: that would be a symbol of the dynamic loader's. */
struct towi_caller {
	pthread_t thread;
	SLIST_ENTRY(towi_caller) next;
};

/* Called with the lock: does this thread call one of the pump's functions? */
static bool is_calling(const struct towi_pump *pump)
{
	const struct towi_caller *caller;

	SLIST_FOREACH(caller, &pump->callers, next)
		if (pthread_equal(caller->thread, pthread_self()))
			return true;
	return false;
}

/*
 * Called with the lock, which is let go of meanwhile: false: there is nothing to be called.  One
 * that is not being called yet can be by any thread that waits for it: a function may wait, too.
 * What they add is not this thread's, which would never come back.
 */
static bool call_all(struct towi_pump *pump)
{
	struct towi_caller own = { .thread = pthread_self() };
	uint64_t last = pump->calls_count;
	struct towi_runner *runner;
	struct towi_call *call;
	bool any = false;

	SLIST_INSERT_HEAD(&pump->callers, &own, next);
	while ((call = STAILQ_FIRST(&pump->calls)) && call->number <= last) {
		STAILQ_REMOVE_HEAD(&pump->calls, next);
		runner = call->runner;
		pthread_mutex_unlock(&pump->lock);
		call->run(call);
		pthread_mutex_lock(&pump->lock);
		if (!--runner->calls && pump->settling)
			towi_pump_wake(pump);
		any = true;
	}
	SLIST_REMOVE(&pump->callers, &own, towi_caller, next);
	return any;
}

void towi_pump_unlock(struct towi_pump *pump)
{
	hand_over(pump);
	/* A function's own come after it. */
	if (!is_calling(pump) && call_all(pump) && !STAILQ_EMPTY(&pump->calls)) {
		towi_pump_nudge(pump);
		towi_pump_wake(pump);
		hand_over(pump);
	}
	pthread_mutex_unlock(&pump->lock);
}

void towi_pump_unlock_quietly(struct towi_pump *pump)
{
	hand_over(pump);
	pthread_mutex_unlock(&pump->lock);
}

void towi_pump_unlock_plainly(struct towi_pump *pump)
{
	pthread_mutex_unlock(&pump->lock);
}

/* ---- waiting ---------------------------------------------------------------- */

static int poll_queue(const struct towi_pump *pump, uint64_t until)
{
	struct pollfd look[] = {
		{ tow_queue_fd(pump->queue), POLLIN | POLLPRI, 0 },
		{ pump->wake_fd, POLLIN, 0 },
	};
	uint64_t now = now_us(), left = until > now ? until - now : 0, count;
	int ret;

	/* Runners want to look around now and then. */
	if (left > pump->tick_us)
		left = pump->tick_us;
	ret = poll(look, 2, (int)((left + 999) / 1000));
	if (ret < 0)
		return errno == EINTR && towi_goes_on() ? 0 : -errno;
	if (look[1].revents && read(pump->wake_fd, &count, sizeof(count)) < 0)
		return 0;
	return look[0].revents & (POLLERR | POLLHUP) ? -ENODEV : 0;
}

/* In the kernel, without the lock. */
static int wait_alone(const struct towi_pump *pump, uint64_t until)
{
	uint64_t now = now_us(), left = until > now ? until - now : 0;
	uint32_t briefly = left < BRIEFLY_US ? (uint32_t)left : BRIEFLY_US;
	int ret;

	if (!left)
		return -ETIMEDOUT;
	ret = tow_queue_enter(pump->queue, 0, 1, briefly);
	if (ret != -ETIMEDOUT)
		return ret < 0 ? ret : 0;
	return poll_queue(pump, until);
}

/* Until another thread has something to say; UINT64_MAX: for ever. */
static int wait_for_other(struct towi_pump *pump, pthread_cond_t *cond, uint64_t until)
{
	struct timespec at = { (time_t)(until / 1000000), (long)(until % 1000000) * 1000 };

	if (until == UINT64_MAX)
		return -pthread_cond_wait(cond, &pump->lock);
	return -pthread_cond_timedwait(cond, &pump->lock, &at);
}

static int sleep_alone(struct towi_pump *pump, uint64_t until)
{
	int ret;

	pump->waited_for = true;
	pthread_mutex_unlock(&pump->lock);
	ret = wait_alone(pump, until);
	pthread_mutex_lock(&pump->lock);
	pump->waited_for = false;
	if (towi_pump_look(pump))
		ret = 0;
	if (ret == -ENODEV || ret == -EPERM)
		end_all(pump, ret);
	/* Another one may wait in the kernel now. */
	pthread_cond_broadcast(&pump->looked);
	return ret;
}

int towi_pump_sleep(struct towi_pump *pump, uint64_t until)
{
	uint64_t news = pump->news;

	/* Nobody waits with entries that were not handed over, or functions not called. */
	towi_pump_look(pump);
	/* Whoever waits for something to end may have been told. */
	if (call_all(pump)) {
		pump->ended++;
		pump->news++;
	}
	if (pump->news != news)
		return now_us() < until ? 0 : -ETIMEDOUT;
	if (pump->over)
		return pump->over;
	return pump->waited_for ? wait_for_other(pump, &pump->looked, until) :
				  sleep_alone(pump, until);
}

int towi_pump_sleep_for(struct towi_pump *pump, const struct towi_op *op, uint64_t until)
{
	int ret = 0;

	while (op->busy && (!ret || ret == -EINTR))
		ret = towi_pump_sleep(pump, until);
	return op->busy ? ret : 0;
}

void towi_pump_settle(struct towi_pump *pump, const uint32_t *count, uint64_t until)
{
	uint64_t over_us = towi_until(SETTLE_US);

	pump->settling++;
	while (*count && now_us() < until) {
		if (!pump->over) {
			towi_pump_sleep(pump, until);
			over_us = towi_until(SETTLE_US);
			continue;
		}
		if (now_us() >= over_us)
			break;
		towi_pump_look(pump);
		call_all(pump);
		pthread_mutex_unlock(&pump->lock);
		usleep(1000);
		pthread_mutex_lock(&pump->lock);
	}
	pump->settling--;
}

/* ---- errands ---------------------------------------------------------------- */

/* The first that is due; or NULL, and when one will be. */
static struct towi_errand *due_errand(struct towi_pump *pump, uint64_t *due_us)
{
	uint64_t now = now_us();
	struct towi_errand *errand;

	*due_us = UINT64_MAX;
	STAILQ_FOREACH(errand, &pump->errands, next) {
		if (errand->due_us <= now)
			return errand;
		if (errand->due_us < *due_us)
			*due_us = errand->due_us;
	}
	return NULL;
}

static void run_errand(struct towi_pump *pump, struct towi_errand *errand)
{
	STAILQ_REMOVE(&pump->errands, errand, towi_errand, next);
	pthread_mutex_unlock(&pump->lock);
	errand->ret = errand->run(errand);
	pthread_mutex_lock(&pump->lock);
	if (errand->ret == -EAGAIN) {
		errand->due_us = now_us() + errand->pause_us;
		if (errand->pause_us < PAUSE_MAX_US)
			errand->pause_us *= 2;
		STAILQ_INSERT_TAIL(&pump->errands, errand, next);
		return;
	}
	STAILQ_INSERT_TAIL(&pump->finished, errand, next);
	towi_pump_wake(pump);
	/* Nothing else may tell of it. */
	towi_pump_nudge(pump);
	towi_pump_submit(pump);
}

static void *run_errands(void *arg)
{
	struct towi_pump *pump = arg;
	struct towi_errand *errand;
	uint64_t due_us;

	towi_pump_lock(pump);
	while (!pump->ends) {
		errand = due_errand(pump, &due_us);
		if (errand)
			run_errand(pump, errand);
		else
			wait_for_other(pump, &pump->called, due_us);
	}
	pthread_mutex_unlock(&pump->lock);
	return NULL;
}

/* Signals are the program's. */
static int begin_thread(struct towi_pump *pump)
{
	sigset_t all, before;
	int ret;

	if (pump->ends)
		return -ECANCELED;
	if (pump->has_thread)
		return 0;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ret = pthread_create(&pump->runs, NULL, run_errands, pump);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pump->has_thread = !ret;
	/* -EAGAIN would be another thing here. */
	return ret ? -ENOMEM : 0;
}

int towi_pump_errand(struct towi_errand *errand)
{
	struct towi_pump *pump = errand->runner->pump;
	int ret = begin_thread(pump);

	if (ret)
		return ret;
	errand->due_us = 0;
	errand->pause_us = PAUSE_US;
	errand->runner->busy++;
	STAILQ_INSERT_TAIL(&pump->errands, errand, next);
	pthread_cond_signal(&pump->called);
	return 0;
}

static void end_thread(struct towi_pump *pump)
{
	bool has_thread;

	towi_pump_lock(pump);
	pump->ends = true;
	has_thread = pump->has_thread;
	pump->has_thread = false;
	pthread_cond_signal(&pump->called);
	pthread_mutex_unlock(&pump->lock);
	if (has_thread)
		pthread_join(pump->runs, NULL);
}

void towi_pump_quiet(struct towi_pump *pump)
{
	struct towi_errand *errand;

	end_thread(pump);
	towi_pump_lock(pump);
	while ((errand = STAILQ_FIRST(&pump->errands))) {
		STAILQ_REMOVE_HEAD(&pump->errands, next);
		errand->ret = -ECANCELED;
		STAILQ_INSERT_TAIL(&pump->finished, errand, next);
	}
	finish_errands(pump);
	towi_pump_unlock_plainly(pump);
}

/* ---- begin and end ---------------------------------------------------------- */

void towi_pump_join(struct towi_pump *pump, struct towi_runner *runner)
{
	runner->pump = pump;
	TAILQ_INSERT_TAIL(&pump->all, runner, all);
	if (runner->ops->tick)
		TAILQ_INSERT_TAIL(&pump->turns, runner, turn);
}

bool towi_pump_leave(struct towi_runner *runner)
{
	struct towi_pump *pump = runner->pump;

	put_in(runner, NULL);
	if (pump->fed == runner)
		pump->fed = NULL;
	feed(pump);
	TAILQ_REMOVE(&pump->all, runner, all);
	if (runner->ops->tick)
		TAILQ_REMOVE(&pump->turns, runner, turn);
	if (!runner->busy && !runner->waiting && !runner->calls)
		return true;
	TAILQ_INSERT_TAIL(&pump->graves, runner, all);
	return false;
}

static void init_cond(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

static void ask_device(struct towi_pump *pump, struct tow_device *dev)
{
	struct tow_device_attr attr = { .size = sizeof(attr) };

	if (!tow_device_query(dev, &attr) && attr.uapi_version >= COPIED_SINCE)
		pump->copied_flag = TOW_SQE_COPIED;
}

/* Completions, of which one is for the nudge. */
static void share_out(struct towi_pump *pump, uint32_t waits)
{
	uint32_t completions = pump->queue->cq_entries;

	pump->reserved_max = waits < completions / 8 * 7 ? waits : completions / 8 * 7;
	pump->in_flight_max = completions - pump->reserved_max - 1;
}

void towi_pump_init(struct towi_pump *pump, struct tow_queue *queue, uint32_t waits,
		    uint32_t timeout_ms)
{
	pump->queue = queue;
	pump->late_us = timeout_ms * 1000ULL;
	pump->tick_us = pump->late_us && pump->late_us / 4 < TICK_US ? pump->late_us / 4 : TICK_US;
	TAILQ_INIT(&pump->all);
	TAILQ_INIT(&pump->turns);
	TAILQ_INIT(&pump->ready);
	TAILQ_INIT(&pump->starved);
	TAILQ_INIT(&pump->graves);
	TAILQ_INIT(&pump->timed);
	STAILQ_INIT(&pump->calls);
	STAILQ_INIT(&pump->errands);
	STAILQ_INIT(&pump->finished);
	pthread_mutex_init(&pump->lock, NULL);
	init_cond(&pump->looked);
	init_cond(&pump->submitted);
	init_cond(&pump->called);
	share_out(pump, waits);
}

int towi_pump_begin(struct towi_pump *pump, struct tow_device *dev, uint32_t entries,
		    uint32_t waits, uint32_t timeout_ms)
{
	uint64_t completions = entries + entries / 2ULL + waits;
	struct tow_queue *queue;
	int ret;

	*pump = (struct towi_pump){ .wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
	if (pump->wake_fd < 0)
		return -errno;
	if (completions > TOW_CQ_ENTRIES_MAX && entries <= TOW_SQ_ENTRIES_MAX)
		completions = TOW_CQ_ENTRIES_MAX;
	ret = tow_queue_create(dev, entries, (uint32_t)completions, &queue);
	if (ret) {
		close(pump->wake_fd);
		return ret;
	}
	ask_device(pump, dev);
	towi_pump_init(pump, queue, waits, timeout_ms);
	return 0;
}

void towi_pump_forget(struct towi_pump *pump)
{
	tow_queue_destroy(pump->queue);
	close(pump->wake_fd);
}

void towi_pump_end(struct towi_pump *pump)
{
	struct towi_runner *grave;

	end_thread(pump);
	towi_pump_forget(pump);
	while ((grave = TAILQ_FIRST(&pump->graves))) {
		TAILQ_REMOVE(&pump->graves, grave, all);
		grave->ops->bury(grave);
	}
	pthread_cond_destroy(&pump->called);
	pthread_cond_destroy(&pump->submitted);
	pthread_cond_destroy(&pump->looked);
	pthread_mutex_destroy(&pump->lock);
}
