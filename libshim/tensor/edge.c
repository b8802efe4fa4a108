// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * What all kinds of edges have in common: what they are asked, how they wait, and go.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../core/internal.h"
#include "edge.h"

static struct tow_edge *edge_of(struct towi_runner *runner)
{
	return (struct tow_edge *)runner;
}

void towi_edge_fail(struct tow_edge *edge, int error)
{
	if (edge->error)
		return;
	/* The other end goes when it finds that this one's memory has gone. */
	if (error == -ESTALE && edge->kind->lost && edge->kind->lost(edge))
		error = -EFAULT;
	edge->error = error;
	towi_pump_ready(&edge->runner);
}

int towi_edge_place(const struct tow_edge *edge, const void *ptr, struct tow_region **region,
		    uint64_t *offset)
{
	const struct tow_worker *worker = edge->worker;

	return towi_place(worker->arena, worker->dev, ptr, 1, region, offset);
}

bool towi_edge_touches(const struct tow_edge *edge, const void *ptr)
{
	struct tow_region *region;
	uint64_t offset;

	return towi_edge_place(edge, ptr, &region, &offset) || !towi_region_far(region, ptr);
}

bool towi_edge_lost(const struct tow_edge *edge, const void *ptr)
{
	struct tow_region *region;
	uint64_t offset;

	return ptr && !towi_edge_place(edge, ptr, &region, &offset) && towi_region_lost(region);
}

static int copy(struct tow_edge *edge, const void *data, uint64_t bytes, void **copied)
{
	struct tow_worker *worker = edge->worker;
	struct tow_region *region;
	uint64_t offset;

	*copied = tow_arena_alloc(worker->words, bytes);
	if (!*copied)
		return -errno;
	if (towi_edge_place(edge, *copied, &region, &offset)) {
		tow_arena_free(worker->words, *copied);
		*copied = NULL;
		return -ENOSPC;
	}
	memcpy(*copied, data, bytes);
	atomic_fetch_add_explicit(&worker->copied, bytes, memory_order_relaxed);
	return 0;
}

int towi_edge_stage(struct tow_edge *edge, const void *data, uint64_t bytes, bool clone,
		    void **copied)
{
	const struct tow_worker *worker = edge->worker;
	struct tow_region *region;
	uint64_t offset;
	int ret;

	*copied = NULL;
	if (!bytes)
		return 0;
	ret = towi_place(worker->arena, worker->dev, data, bytes, &region, &offset);
	if (!ret && clone && towi_region_far(region, data))
		return -EOPNOTSUPP;
	if (ret == -ENOENT || (!ret && clone))
		return copy(edge, data, bytes, copied);
	return ret;
}

/* ---- waiting ---------------------------------------------------------------- */

void towi_edge_op_ended(struct towi_op *op, int status)
{
	if (status)
		towi_edge_fail(towi_edge_of(op), status);
}

void towi_edge_op(struct tow_edge *edge, struct towi_op *op)
{
	*op = (struct towi_op){ .ended = towi_edge_op_ended, .runner = &edge->runner };
}

int towi_edge_wait_at(struct tow_edge *edge, const struct tow_slot *slot, uint64_t number)
{
	/* One that is not connected may wait, too. */
	int ret = towi_pump_reserve(&edge->wait);

	edge->wait_slot = slot;
	if (!ret)
		towi_pump_wait_for(&edge->wait, slot, number);
	return ret;
}

int towi_edge_wait_for(struct tow_edge *edge, uint64_t number)
{
	return towi_edge_wait_at(edge, edge->slot, number);
}

/* ---- a function for each step ----------------------------------------------- */

/* What the function is to be told: 1: of a step; its error; 0: nothing. */
static int news(struct tow_edge *edge)
{
	const struct towi_step_watch *watch = &edge->watch;
	bool told = edge->kind->next(edge) <= watch->told;
	void *data;
	int ret;

	/* What it was told has failed may come all the same. */
	if (!watch->came || (told && !watch->status))
		return 0;
	ret = edge->kind->show(edge, &data, NULL);
	return told && ret < 0 ? 0 : ret;
}

void towi_edge_watch_on(struct tow_edge *edge)
{
	struct towi_step_watch *watch = &edge->watch;

	if (!watch->came || watch->calling)
		return;
	if (news(edge)) {
		watch->calling = true;
		towi_pump_call(&watch->call);
	} else if (edge->kind->next(edge) > watch->told) {
		edge->kind->arm(edge);
	}
}

/* Without the lock. */
static void tell_watch(struct towi_call *call)
{
	struct tow_edge *edge = (struct tow_edge *)(void *)((char *)call -
							    offsetof(struct tow_edge, watch.call));
	struct towi_step_watch *watch = &edge->watch;
	struct towi_pump *pump = edge->runner.pump;
	tow_edge_came *came;
	void *arg;
	int ret;

	towi_pump_lock(pump);
	/* Somebody may have consumed it meanwhile. */
	ret = news(edge);
	came = watch->came;
	arg = watch->arg;
	if (ret) {
		watch->told = edge->kind->next(edge);
		watch->status = ret < 0 ? ret : 0;
	}
	towi_pump_unlock_quietly(pump);
	if (ret)
		came(arg, edge, ret < 0 ? ret : 0);
	towi_pump_lock(pump);
	watch->calling = false;
	towi_edge_watch_on(edge);
	towi_pump_unlock_quietly(pump);
}

/* Called with the lock. */
static int begin_watch(struct tow_edge *edge, tow_edge_came *came, void *arg)
{
	if (came && !edge->connected)
		return edge->error ? edge->error : -ENOTCONN;
	edge->watch.came = came;
	edge->watch.arg = arg;
	edge->watch.told = 0;
	edge->watch.status = 0;
	towi_edge_watch_on(edge);
	return 0;
}

TOW_PUBLIC int tow_edge_watch(struct tow_edge *edge, tow_edge_came *came, void *arg)
{
	int ret;

	if (!edge || !edge->kind->show)
		return -EINVAL;
	if (!towi_pump_usable(&edge->worker->pump))
		return -EPERM;
	towi_pump_lock(&edge->worker->pump);
	ret = begin_watch(edge, came, arg);
	/* The worker's descriptor says that there is something to do. */
	if (edge->watch.calling)
		towi_pump_nudge(edge->runner.pump);
	towi_pump_unlock_quietly(&edge->worker->pump);
	return ret;
}

/* ---- what the pump asks ----------------------------------------------------- */

static void go_on(struct towi_runner *runner)
{
	struct tow_edge *edge = edge_of(runner);

	if (!edge->there)
		return;
	if (edge->kind->go_on)
		edge->kind->go_on(edge);
	if (!edge->error && edge->slot && edge->wait_slot)
		towi_pump_wait_on(&edge->wait, edge->wait_slot);
	towi_edge_watch_on(edge);
}

static void lost(struct towi_runner *runner, int error, uint64_t lost_ns)
{
	struct tow_edge *edge = edge_of(runner);

	if (edge->found_ns && edge->found_ns <= lost_ns)
		towi_edge_fail(edge, error);
}

static void bury(struct towi_runner *runner)
{
	struct tow_edge *edge = edge_of(runner);
	struct tow_arena *words = edge->worker->words;

	if (edge->kind->free)
		edge->kind->free(edge);
	if (edge->kept)
		tow_region_unmap(edge->kept_region, edge->kept, 0);
	else
		tow_arena_free(words, edge->letters);
	if (edge->apart)
		tow_arena_free(edge->worker->arena, edge->tensors);
	tow_arena_free(words, edge->own);
	free(edge);
}

static const struct towi_runner_ops edge_ops = { go_on, lost, NULL, bury };

char *towi_letter(const struct tow_edge *edge, uint64_t number)
{
	return edge->tensors + number % edge->mine.slots * edge->mine.stride;
}

uint64_t towi_letter_at(const struct tow_edge *edge, uint64_t number)
{
	return (edge->tensors_there ? 0 : TOWI_LETTERS_AT) +
	       number % edge->theirs.slots * edge->theirs.stride;
}

/* ---- what a receiver is asked ----------------------------------------------- */

TOW_PUBLIC int tow_edge_test(struct tow_edge *edge, void **data, uint64_t *step)
{
	bool tries;
	int ret;

	if (!edge || !edge->kind->show || !data)
		return -EINVAL;
	if (!towi_pump_usable(&edge->worker->pump))
		return -EPERM;
	if (edge->kind->shows_memory)
		return edge->kind->show(edge, data, step);
	towi_pump_lock(&edge->worker->pump);
	tries = edge->kind->retry && edge->kind->retry(edge);
	ret = edge->kind->show(edge, data, step);
	if (tries)
		towi_pump_unlock(&edge->worker->pump);
	else
		towi_pump_unlock_plainly(&edge->worker->pump);
	return ret;
}

TOW_PUBLIC int tow_edge_arm(struct tow_edge *edge)
{
	int ret;

	if (!edge || !edge->kind->arm)
		return -EINVAL;
	if (!towi_pump_usable(&edge->worker->pump))
		return -EPERM;
	towi_pump_lock(&edge->worker->pump);
	ret = edge->error ? edge->error : edge->kind->arm(edge);
	towi_pump_unlock(&edge->worker->pump);
	return ret;
}

TOW_PUBLIC int tow_edge_wait(struct tow_edge *edge, uint32_t timeout_us, void **data,
			     uint64_t *step)
{
	struct tow_worker *worker;
	uint64_t until;
	int ret, waited = 0;

	if (!edge || !edge->kind->show || !data)
		return -EINVAL;
	worker = edge->worker;
	if (!towi_pump_usable(&worker->pump))
		return -EPERM;
	until = towi_until(timeout_us);
	towi_pump_lock(&worker->pump);
	if (edge->kind->retry)
		edge->kind->retry(edge);
	/* What is tried has an answer soon. */
	while (edge->trying && !waited)
		waited = towi_pump_sleep(&worker->pump, until);
	while (!(ret = edge->kind->show(edge, data, step)) && !waited) {
		waited = edge->kind->arm(edge);
		if (!waited)
			waited = towi_pump_sleep(&worker->pump, until);
	}
	towi_pump_unlock(&worker->pump);
	if (ret)
		return ret < 0 ? ret : 0;
	return waited;
}

TOW_PUBLIC int tow_edge_consumed(struct tow_edge *edge)
{
	int ret;

	if (!edge || !edge->kind->consumed)
		return -EINVAL;
	if (!towi_pump_usable(&edge->worker->pump))
		return -EPERM;
	towi_pump_lock(&edge->worker->pump);
	ret = edge->kind->consumed(edge);
	towi_edge_watch_on(edge);
	towi_pump_unlock(&edge->worker->pump);
	return ret;
}

TOW_PUBLIC uint32_t tow_edge_pending(const struct tow_edge *edge)
{
	uint32_t pending;

	if (!edge || !edge->kind->pending || !towi_pump_usable(&edge->worker->pump))
		return 0;
	towi_pump_lock(&edge->worker->pump);
	pending = edge->kind->pending(edge);
	towi_pump_unlock_plainly(&edge->worker->pump);
	return pending;
}

TOW_PUBLIC int tow_edge_next(struct tow_edge *edge, uint64_t *step)
{
	if (!edge || !step || !edge->kind->next)
		return -EINVAL;
	if (!towi_pump_usable(&edge->worker->pump))
		return -EPERM;
	towi_pump_lock(&edge->worker->pump);
	*step = edge->kind->next(edge);
	towi_pump_unlock_plainly(&edge->worker->pump);
	return 0;
}

/* ---- begin and end ---------------------------------------------------------- */

int towi_edge_may_be(const struct tow_worker *worker, const struct tow_peer *peer,
		     const char *name, struct tow_edge **edge)
{
	if (!worker || !peer || !edge || !name || !*name ||
	    strnlen(name, TOW_EDGE_NAME_MAX + 1) > TOW_EDGE_NAME_MAX)
		return -EINVAL;
	return towi_pump_usable(&worker->pump) ? 0 : -EPERM;
}

static void once_ended(struct towi_op *op, int status)
{
	towi_edge_of(op)->once_status = status;
}

static int join(struct tow_edge *edge)
{
	int ret = towi_worker_join(edge->worker);

	if (ret)
		return ret;
	ret = towi_edge_open_port(edge);
	if (ret)
		towi_worker_leave(edge->worker);
	return ret;
}

/* What is large goes by several, if it may: as many as it gets. */
static int get_channels(struct tow_edge *edge)
{
	struct towi_pump *pump = edge->runner.pump;
	int ret = tow_channel_get(pump->queue, edge->peer, TOW_CHANNEL_ANY, &edge->channel);
	uint32_t qps, qp;

	edge->lanes = 1;
	if (ret || !edge->large)
		return ret;
	qps = edge->channel->qps;
	/* All parts are begun at once. */
	while (edge->lanes < TOW_SLOT_WIDTH_MAX && edge->lanes < qps &&
	       edge->lanes < pump->queue->sq_entries && edge->lanes < pump->in_flight_max) {
		qp = edge->channel->qp + edge->lanes;
		/* Without a gap: they are as many if there are fewer queue pairs one day. */
		if (qp >= qps)
			qp = qps - 1 - edge->lanes;
		if (tow_channel_get(pump->queue, edge->peer, qp, &edge->beside[edge->lanes - 1]))
			break;
		edge->lanes++;
	}
	return 0;
}

int towi_edge_make(struct tow_edge *edge, struct tow_worker *worker, struct tow_peer *peer,
		   const char *name, struct tow_edge **made)
{
	int ret;

	edge->runner.ops = &edge_ops;
	edge->runner.peer = towi_peer_number(peer);
	edge->worker = worker;
	edge->peer = peer;
	edge->once = (struct towi_op){ .ended = once_ended, .runner = &edge->runner };
	towi_edge_op(edge, &edge->wait.op);
	edge->watch.call = (struct towi_call){ .runner = &edge->runner, .run = tell_watch };
	edge->name_length = strlen(name);
	memcpy(edge->name, name, edge->name_length + 1);
	towi_pump_lock(&worker->pump);
	towi_pump_join(&worker->pump, &edge->runner);
	towi_pump_unlock(&worker->pump);
	ret = join(edge);
	if (!ret)
		ret = get_channels(edge);
	if (!ret)
		ret = towi_edge_memory(edge);
	if (ret) {
		tow_edge_close(edge);
		return ret;
	}
	towi_pump_lock(&worker->pump);
	edge->there = true;
	towi_pump_ready(&edge->runner);
	towi_pump_unlock_quietly(&worker->pump);
	*made = edge;
	return 0;
}

/* Nothing of it is on its way any more, but what waits for the slot. */
static void drain(struct tow_edge *edge)
{
	struct towi_pump *pump = edge->runner.pump;

	towi_pump_lock(pump);
	edge->watch.came = NULL;
	towi_edge_fail(edge, -ECANCELED);
	towi_pump_ready(&edge->runner);
	towi_pump_settle(pump, &edge->runner.busy, UINT64_MAX);
	towi_pump_unlock(pump);
}

/* Whoever is to be told is told, as nobody reaches anything any more. */
static void tell_rest(struct tow_edge *edge)
{
	struct towi_pump *pump = edge->runner.pump;

	towi_pump_lock(pump);
	go_on(&edge->runner);
	/* What the device has not ended, and it is gone; nobody is told a second time. */
	if (edge->kind->give_up)
		edge->kind->give_up(edge);
	/* Another thread may be telling. */
	towi_pump_settle(pump, &edge->runner.calls, UINT64_MAX);
	towi_pump_unlock(pump);
}

/* An entry that waits for a slot ends with the slot. */
static void drain_wait(struct tow_edge *edge)
{
	struct towi_pump *pump = edge->runner.pump;

	towi_pump_lock(pump);
	towi_pump_settle(pump, &edge->runner.waiting, UINT64_MAX);
	towi_pump_unlock(pump);
}

/* Nobody reaches what this end has exported any more. */
static int end_exports(struct tow_edge *edge)
{
	int ret, error;

	if (edge->kind->hide)
		edge->kind->hide(edge);
	ret = tow_unexport(edge->exported);
	error = tow_unexport(edge->tensors_exported);
	return ret ? ret : error;
}

/* From now on nothing is done for it. */
static int end_slot(struct tow_edge *edge)
{
	struct tow_slot *slot, *large;
	int ret, error;

	towi_pump_lock(&edge->worker->pump);
	slot = edge->slot;
	large = edge->large_slot;
	edge->slot = NULL;
	edge->large_slot = NULL;
	edge->there = false;
	towi_pump_unlock(&edge->worker->pump);
	ret = tow_slot_destroy(slot);
	error = tow_slot_destroy(large);
	return ret ? ret : error;
}

/*
 * The other end is told.  True: nothing knows its records any more; else it is buried with the
 * queue.
 */
static bool leave(struct tow_edge *edge)
{
	struct towi_pump *pump = edge->runner.pump;
	bool free;

	towi_pump_lock(pump);
	/* Who has not greeted is not known there. */
	if (edge->sends && edge->meeting < TOWI_GREETING)
		edge->port.other = 0;
	if (edge->port.box && edge->kind->part)
		edge->kind->part(edge);
	if (edge->port.box)
		towi_port_close(&edge->port);
	towi_pump_release(&edge->wait);
	free = towi_pump_leave(&edge->runner);
	towi_pump_unlock(pump);
	return free;
}

TOW_PUBLIC int tow_edge_close(struct tow_edge *edge)
{
	struct tow_worker *worker;
	int ret, error;
	bool joined;

	if (!edge)
		return 0;
	worker = edge->worker;
	joined = edge->port.box;
	/* A child's copy, if no thread was changing it; what there is in the arena stays. */
	if (!towi_pump_usable(&worker->pump)) {
		if (towi_at_rest(&worker->pump.lock))
			bury(&edge->runner);
		return -EPERM;
	}
	drain(edge);
	ret = end_exports(edge);
	tell_rest(edge);
	error = end_slot(edge);
	drain_wait(edge);
	tow_remote_release(edge->range);
	tow_remote_release(edge->tensors_there);
	tow_remote_release(edge->other);
	tow_remote_release(edge->large_other);
	for (uint32_t i = 0; i < TOW_SLOT_WIDTH_MAX; i++)
		tow_channel_put(towi_edge_lane(edge, i));
	if (leave(edge))
		bury(&edge->runner);
	if (joined)
		towi_worker_leave(worker);
	return ret ? ret : error;
}
