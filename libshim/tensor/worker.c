// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Workers: a queue, and what its completions are about.
 *
 * One thread at a time waits in the kernel; others wait for it, as it may take the
 * completion that they wait for.  Who takes completions while another thread is in the
 * kernel, where it would not notice, wakes it by an eventfd.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "../core/internal.h"
#include "worker.h"

#define ENTRIES		256U
#define ENTRIES_MIN	16U
/* The first version of the kernel's interface with TOW_SQE_COPIED. */
#define COPIED_SINCE	9U
#define ATTR_SIZE_FIRST	(offsetof(struct tow_worker_attr, timeout_ms) + sizeof(uint32_t))
/* The kernel's own waiting, which is quicker for a moment, before poll(2)'s. */
#define BRIEFLY_US	1000U
/* Who does not wait asks so often whether a peer is lost: that is a call. */
#define ASK_US		10000U
/* How often edges look whether something takes too long, at most. */
#define TICK_US		1000000U
/* Edges that look for their other ends in a tick, at most. */
#define PROBES_MAX	1024U
/* What the device is given to end everything with, when it goes. */
#define SETTLE_US	10000000U

static uint64_t now_us(void)
{
	return towi_now_ns() / 1000;
}

/* ---- entries ---------------------------------------------------------------- */

static struct towi_op *op_of(uint64_t user_data)
{
	/* NOLINTNEXTLINE(performance-no-int-to-ptr): the kernel carries it as a number */
	return (struct towi_op *)(uintptr_t)user_data;
}

static void end_op(struct tow_worker *worker, uint64_t user_data, int status)
{
	struct towi_op *op = op_of(user_data);

	worker->in_flight--;
	op->busy = false;
	op->ended(op, status);
}

/* What was not taken never is; what was ends with completions. */
static void end_untaken(struct tow_worker *worker, int error)
{
	struct tow_queue *queue = worker->queue;
	struct towi_edge *edge;
	uint32_t from, to = queue->sq_tail;

	worker->over = error;
	for (edge = worker->edges; edge; edge = edge->next)
		edge->ops->lost(edge, error, UINT64_MAX);
	from = tow_load_acquire(&queue->ring->sq_head);
	queue->sq_tail = from;
	for (; from != to; from++)
		end_op(worker, queue->sqes[from & (queue->sq_entries - 1)].user_data, error);
	worker->ended++;
}

static void submit(struct tow_worker *worker)
{
	int ret;

	if (!worker->queue->ring || worker->over)
		return;
	/* What finds no room is handed over with what comes next. */
	ret = tow_queue_submit(worker->queue);
	if (ret == -ENODEV || ret == -EPERM)
		end_untaken(worker, ret);
}

static bool room(const struct tow_worker *worker, uint32_t entries)
{
	struct tow_queue *queue = worker->queue;

	queue->sq_head = tow_load_acquire(&queue->ring->sq_head);
	return queue->sq_tail - queue->sq_head + entries <= queue->sq_entries &&
	       worker->in_flight + entries <= queue->cq_entries;
}

bool towi_worker_room(struct tow_worker *worker, uint32_t entries)
{
	if (!worker->queue->ring || worker->over)
		return false;
	if (!room(worker, entries))
		submit(worker);
	return !worker->over && room(worker, entries);
}

struct tow_sqe *towi_worker_entry(struct tow_worker *worker)
{
	struct tow_sqe *sqe;

	if (!towi_worker_room(worker, 1))
		return NULL;
	sqe = tow_queue_get_sqe(worker->queue);
	worker->in_flight += !!sqe;
	return sqe;
}

void towi_worker_begun(struct tow_sqe *sqe, struct towi_op *op)
{
	op->busy = true;
	tow_sqe_set_data(sqe, (uintptr_t)op);
}

bool towi_worker_may_probe(const struct tow_worker *worker, uint64_t probed_us, uint64_t now_us)
{
	uint64_t ticks = worker->edges_count / PROBES_MAX;

	return worker->probes && towi_passed(probed_us, now_us) >= ticks * worker->tick_us;
}

bool towi_worker_may_wait(const struct tow_worker *worker)
{
	return worker->waits < worker->queue->cq_entries / 2;
}

/* Who waits in the kernel looks again. */
static void wake(struct tow_worker *worker)
{
	static const uint64_t one = 1;

	/* Full is as good as one more. */
	if (worker->waited_for && write(worker->wake_fd, &one, sizeof(one)) < 0)
		return;
}

void towi_worker_wake(struct tow_worker *worker)
{
	pthread_cond_broadcast(&worker->looked);
	wake(worker);
}

/* ---- completions ------------------------------------------------------------ */

static void go_on_all(struct tow_worker *worker)
{
	struct towi_edge *edge;

	for (edge = worker->edges; edge; edge = edge->next)
		edge->ops->go_on(edge);
}

static void tell_lost(struct tow_worker *worker, const struct tow_queue_event *event)
{
	struct towi_edge *edge;

	for (edge = worker->edges; edge; edge = edge->next) {
		if (edge->peer == event->peer)
			edge->ops->lost(edge,
					event->error ? event->error : -ECONNRESET,
					event->lost_ns);
	}
	go_on_all(worker);
	towi_worker_wake(worker);
}

/* No completion tells of a peer that is lost while nothing is on its way to it. */
static void ask_for_lost(struct tow_worker *worker)
{
	struct tow_queue_event event = { .size = sizeof(event) };

	worker->asked_us = now_us();
	while (tow_queue_event(worker->queue, &event) > 0) {
		if (event.what & TOW_QUEUE_EVENT_LOST)
			tell_lost(worker, &event);
		event = (struct tow_queue_event){ .size = sizeof(event) };
	}
}

static void tick(struct tow_worker *worker, uint64_t now)
{
	struct towi_edge *edge;

	if (now - worker->ticked_us < worker->tick_us)
		return;
	worker->ticked_us = now;
	worker->probes = PROBES_MAX;
	for (edge = worker->edges; edge; edge = edge->next)
		edge->ops->tick(edge, now);
	go_on_all(worker);
}

/* What nothing else tells of. */
static void look_around(struct tow_worker *worker)
{
	uint64_t now = now_us();

	/* Edges that have failed with what was not taken. */
	if (worker->over)
		go_on_all(worker);
	if (now - worker->asked_us >= ASK_US)
		ask_for_lost(worker);
	tick(worker, now);
}

/* Everything that has ended: how much. */
static int reap(struct tow_worker *worker)
{
	const struct tow_cqe *cqe = NULL;
	struct tow_cqe own;
	int count = 0;

	while (!tow_queue_peek_cqe(worker->queue, &cqe) && cqe) {
		own = *cqe;
		tow_queue_cqe_seen(worker->queue);
		end_op(worker, own.user_data, own.status);
		count++;
	}
	if (!count)
		return 0;
	worker->ended += (uint64_t)count;
	go_on_all(worker);
	towi_worker_wake(worker);
	return count;
}

void towi_worker_noticed(struct tow_worker *worker, struct tow_edge *edge)
{
	struct towi_edge *common = (struct towi_edge *)edge;

	worker->ended++;
	common->ops->go_on(common);
	towi_worker_wake(worker);
}

/* ---- the lock --------------------------------------------------------------- */

bool towi_worker_usable(const struct tow_worker *worker)
{
	return worker->queue->ring;
}

void towi_worker_lock(struct tow_worker *worker)
{
	pthread_mutex_lock(&worker->lock);
}

void towi_worker_call(struct tow_worker *worker, struct towi_call *call)
{
	call->next = NULL;
	*worker->last_call = call;
	worker->last_call = &call->next;
}

static struct towi_call *take_calls(struct tow_worker *worker)
{
	struct towi_call *calls = worker->calls;

	worker->calls = NULL;
	worker->last_call = &worker->calls;
	return calls;
}

static void call_all(struct towi_call *calls)
{
	struct towi_call *next;

	for (; calls; calls = next) {
		next = calls->next;
		calls->run(calls);
	}
}

void towi_worker_unlock(struct tow_worker *worker)
{
	struct towi_call *calls;

	submit(worker);
	calls = take_calls(worker);
	pthread_mutex_unlock(&worker->lock);
	call_all(calls);
}

void towi_worker_unlock_quietly(struct tow_worker *worker)
{
	submit(worker);
	pthread_mutex_unlock(&worker->lock);
}

/* ---- waiting ---------------------------------------------------------------- */

static int poll_queue(const struct tow_worker *worker, uint64_t until)
{
	struct pollfd look[] = {
		{ tow_queue_fd(worker->queue), POLLIN | POLLPRI, 0 },
		{ worker->wake_fd, POLLIN, 0 },
	};
	uint64_t now = now_us(), left = until > now ? until - now : 0, count;
	int ret;

	/* Edges want to look around now and then. */
	if (left > worker->tick_us)
		left = worker->tick_us;
	ret = poll(look, 2, (int)((left + 999) / 1000));
	if (ret < 0)
		return errno == EINTR && towi_goes_on() ? 0 : -errno;
	if (look[1].revents && read(worker->wake_fd, &count, sizeof(count)) < 0)
		return 0;
	return look[0].revents & (POLLERR | POLLHUP) ? -ENODEV : 0;
}

/* In the kernel, without the lock. */
static int wait_alone(struct tow_worker *worker, uint64_t until)
{
	uint64_t now = now_us(), left = until > now ? until - now : 0;
	uint32_t briefly = left < BRIEFLY_US ? (uint32_t)left : BRIEFLY_US;
	int ret;

	if (!left)
		return -ETIMEDOUT;
	ret = tow_queue_enter(worker->queue, 0, 1, briefly);
	if (ret != -ETIMEDOUT)
		return ret < 0 ? ret : 0;
	return poll_queue(worker, until);
}

static int wait_for_other(struct tow_worker *worker, uint64_t until)
{
	struct timespec at = { (time_t)(until / 1000000), (long)(until % 1000000) * 1000 };
	int ret;

	if (until == UINT64_MAX)
		ret = pthread_cond_wait(&worker->looked, &worker->lock);
	else
		ret = pthread_cond_timedwait(&worker->looked, &worker->lock, &at);
	return -ret;
}

/* Nobody waits with entries that were not handed over, or functions not called. */
static bool called(struct tow_worker *worker)
{
	struct towi_call *calls;

	submit(worker);
	calls = take_calls(worker);
	if (!calls)
		return false;
	pthread_mutex_unlock(&worker->lock);
	call_all(calls);
	pthread_mutex_lock(&worker->lock);
	/* Whoever waits for something to end may have been told. */
	worker->ended++;
	return true;
}

int towi_worker_wait(struct tow_worker *worker, uint64_t until)
{
	int ret;

	look_around(worker);
	ret = reap(worker);
	if (called(worker) || ret)
		return now_us() < until ? 0 : -ETIMEDOUT;
	if (worker->waited_for)
		return wait_for_other(worker, until);
	worker->waited_for = true;
	pthread_mutex_unlock(&worker->lock);
	ret = wait_alone(worker, until);
	pthread_mutex_lock(&worker->lock);
	worker->waited_for = false;
	look_around(worker);
	if (reap(worker))
		ret = 0;
	/* Another one may wait in the kernel now. */
	pthread_cond_broadcast(&worker->looked);
	return ret;
}

int towi_worker_wait_for(struct tow_worker *worker, const struct towi_op *op, uint64_t until)
{
	int ret = 0;

	while (op->busy && (!ret || ret == -EINTR))
		ret = towi_worker_wait(worker, until);
	return op->busy ? ret : 0;
}

void towi_worker_settle(struct tow_worker *worker, bool (*busy)(const struct tow_edge *edge),
			const struct tow_edge *edge)
{
	uint64_t until = towi_until(SETTLE_US);

	while (busy(edge) && now_us() < until) {
		reap(worker);
		called(worker);
		pthread_mutex_unlock(&worker->lock);
		usleep(1000);
		pthread_mutex_lock(&worker->lock);
	}
}

TOW_PUBLIC int tow_worker_progress(struct tow_worker *worker, uint32_t timeout_us)
{
	uint64_t until, before;
	int ret = 0, count;

	if (!worker)
		return -EINVAL;
	if (!towi_worker_usable(worker))
		return -EPERM;
	until = towi_until(timeout_us);
	towi_worker_lock(worker);
	before = worker->ended;
	look_around(worker);
	reap(worker);
	while (timeout_us && worker->ended == before && !ret)
		ret = towi_worker_wait(worker, until);
	count = (int)(worker->ended - before);
	towi_worker_unlock(worker);
	if (count)
		return count;
	return ret == -ETIMEDOUT ? 0 : ret;
}

/* ---- begin and end ---------------------------------------------------------- */

static int init_cond(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
	return 0;
}

static void ask_device(struct tow_worker *worker)
{
	struct tow_device_attr attr = { .size = sizeof(attr) };

	if (!tow_device_query(worker->dev, &attr) && attr.uapi_version >= COPIED_SINCE)
		worker->copied_flag = TOW_SQE_COPIED;
}

static int make_queue(struct tow_worker *worker, uint32_t entries)
{
	int ret;

	worker->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (worker->wake_fd < 0)
		return -errno;
	ret = tow_queue_create(worker->dev, entries > ENTRIES_MIN ? entries : ENTRIES_MIN, 0,
			       &worker->queue);
	if (ret)
		close(worker->wake_fd);
	return ret;
}

TOW_PUBLIC int tow_worker_create(struct tow_device *dev, struct tow_arena *arena,
				 const struct tow_worker_attr *attr, struct tow_worker **worker)
{
	struct tow_worker_attr known;
	struct tow_worker *made;
	int ret;

	if (!dev || !arena || !worker)
		return -EINVAL;
	if (!towi_ours(dev->process) || !towi_arena_ours(arena))
		return -EPERM;
	ret = towi_take(attr, ATTR_SIZE_FIRST, &known, sizeof(known));
	if (ret)
		return ret;
	made = calloc(1, sizeof(*made));
	if (!made)
		return -ENOMEM;
	made->dev = dev;
	made->arena = arena;
	made->timeout_ms = known.timeout_ms;
	ask_device(made);
	made->last_call = &made->calls;
	made->tick_us = TICK_US;
	if (known.timeout_ms && known.timeout_ms * 250ULL < TICK_US)
		made->tick_us = known.timeout_ms * 250ULL;
	ret = towi_crc32c_wanted(&made->crc32c);
	if (!ret)
		ret = make_queue(made, known.entries ? known.entries : ENTRIES);
	if (ret) {
		free(made);
		return ret;
	}
	pthread_mutex_init(&made->lock, NULL);
	init_cond(&made->looked);
	towi_finder_begin(&made->finder);
	*worker = made;
	return 0;
}

/* A child's copy.  For its conditions threads may wait that the child has not. */
static void forget_worker(struct tow_worker *worker)
{
	tow_queue_destroy(worker->queue);
	close(worker->wake_fd);
	free(worker);
}

TOW_PUBLIC int tow_worker_destroy(struct tow_worker *worker)
{
	struct towi_edge *grave;

	if (!worker)
		return 0;
	if (!towi_worker_usable(worker)) {
		forget_worker(worker);
		return -EPERM;
	}
	if (worker->edges)
		return -EBUSY;
	towi_finder_end(worker);
	tow_queue_destroy(worker->queue);
	while ((grave = worker->graves)) {
		worker->graves = grave->next;
		grave->ops->bury(grave);
	}
	close(worker->wake_fd);
	pthread_cond_destroy(&worker->looked);
	pthread_mutex_destroy(&worker->lock);
	free(worker);
	return 0;
}

TOW_PUBLIC int tow_worker_fd(const struct tow_worker *worker)
{
	return worker ? tow_queue_fd(worker->queue) : -EINVAL;
}

TOW_PUBLIC uint64_t tow_worker_copied(const struct tow_worker *worker)
{
	return worker ? atomic_load_explicit(&worker->copied, memory_order_relaxed) : 0;
}
