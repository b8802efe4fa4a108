// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * What all kinds of edges have in common: what they are asked, how they wait, and go.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../core/internal.h"
#include "edge.h"

static struct tow_edge *edge_of(struct towi_edge *common)
{
	return (struct tow_edge *)common;
}

void towi_edge_fail(struct tow_edge *edge, int error)
{
	if (!edge->error)
		edge->error = error;
}

int towi_edge_place(const struct tow_edge *edge, const void *ptr, struct tow_region **region,
		    uint64_t *offset)
{
	const struct tow_worker *worker = edge->common.worker;

	return towi_place(worker->arena, worker->dev, ptr, 1, region, offset);
}

static int copy(struct tow_edge *edge, const void *data, uint64_t bytes, void **copied)
{
	struct tow_worker *worker = edge->common.worker;
	struct tow_region *region;
	uint64_t offset;

	*copied = tow_arena_alloc(worker->arena, bytes);
	if (!*copied)
		return -errno;
	if (towi_edge_place(edge, *copied, &region, &offset)) {
		tow_arena_free(worker->arena, *copied);
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
	const struct tow_worker *worker = edge->common.worker;
	struct tow_region *region;
	uint64_t offset;
	int ret;

	*copied = NULL;
	if (!bytes)
		return 0;
	ret = towi_place(worker->arena, worker->dev, data, bytes, &region, &offset);
	if (ret == -ENOENT || (!ret && clone))
		return copy(edge, data, bytes, copied);
	return ret;
}

/* ---- waiting ---------------------------------------------------------------- */

void towi_edge_op_ended(struct towi_op *op, int status)
{
	if (status)
		towi_edge_fail(op->edge, status);
}

void towi_edge_op(struct tow_edge *edge, struct towi_op *op)
{
	*op = (struct towi_op){ .ended = towi_edge_op_ended, .edge = edge };
}

int towi_edge_wait_for(struct tow_edge *edge, uint64_t number)
{
	struct tow_worker *worker = edge->common.worker;
	struct tow_sqe *sqe;

	edge->wanted = number;
	/* One that waits for less is followed by another one. */
	if (edge->wait.busy)
		return 0;
	sqe = towi_worker_may_wait(worker) ? towi_worker_entry(worker) : NULL;
	if (!sqe)
		return -EBUSY;
	tow_prep_wait(sqe, edge->slot, number);
	towi_worker_begun(sqe, &edge->wait);
	worker->waits++;
	return 0;
}

static void wait_ended(struct towi_op *op, int status)
{
	op->edge->common.worker->waits--;
	towi_edge_op_ended(op, status);
}

void towi_edge_wait_on(struct tow_edge *edge)
{
	if (!edge->wanted || edge->wait.busy || edge->error)
		return;
	if (tow_slot_value(edge->slot) >= edge->wanted)
		edge->wanted = 0;
	else
		towi_edge_wait_for(edge, edge->wanted);
}

int towi_edge_nudge(struct tow_edge *edge)
{
	struct tow_sqe *sqe;

	if (edge->nudge.busy)
		return 0;
	sqe = towi_worker_entry(edge->common.worker);
	if (!sqe)
		return -EBUSY;
	tow_prep_nop(sqe);
	towi_worker_begun(sqe, &edge->nudge);
	return 0;
}

/* A write that nobody reads: of no bytes at all, it would not ask the other node. */
void towi_edge_probe(struct tow_edge *edge, uint64_t now_us)
{
	struct tow_worker *worker = edge->common.worker;
	struct tow_region *region;
	struct tow_sqe *sqe;
	uint64_t offset;

	if (edge->probe.busy) {
		if (towi_worker_late(worker, edge->probed_us, now_us))
			towi_edge_fail(edge, -ETIMEDOUT);
		return;
	}
	if (!towi_worker_may_probe(worker, edge->probed_us, now_us) ||
	    towi_edge_place(edge, edge->own + TOWI_SCRATCH_AT, &region, &offset))
		return;
	sqe = towi_worker_entry(worker);
	if (!sqe)
		return;
	worker->probes--;
	edge->probed_us = now_us;
	tow_prep_write(sqe, edge->channel, region, offset, edge->range,
		       edge->sends || edge->kind->back ? TOWI_PROBE_AT : 0, TOWI_PROBE_BYTES);
	towi_worker_begun(sqe, &edge->probe);
}

void towi_edge_ticks(struct tow_edge *edge, uint64_t now_us)
{
	if (edge->connected && !edge->error)
		towi_edge_probe(edge, now_us);
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

	if (!watch->came || atomic_load_explicit(&watch->calling, memory_order_relaxed))
		return;
	if (news(edge)) {
		atomic_store_explicit(&watch->calling, true, memory_order_relaxed);
		towi_worker_call(edge->common.worker, &watch->call);
	} else if (edge->kind->next(edge) > watch->told) {
		/* Without room it is asked again, by the clock at the latest. */
		edge->kind->arm(edge);
	}
}

/* Without the lock. */
static void tell_watch(struct towi_call *call)
{
	struct tow_edge *edge = (struct tow_edge *)(void *)((char *)call -
							    offsetof(struct tow_edge, watch.call));
	struct tow_worker *worker = edge->common.worker;
	struct towi_step_watch *watch = &edge->watch;
	tow_edge_came *came;
	void *arg;
	int ret;

	towi_worker_lock(worker);
	/* Somebody may have consumed it meanwhile. */
	ret = news(edge);
	came = watch->came;
	arg = watch->arg;
	if (ret) {
		watch->told = edge->kind->next(edge);
		watch->status = ret < 0 ? ret : 0;
	}
	towi_worker_unlock_quietly(worker);
	if (ret)
		came(arg, edge, ret < 0 ? ret : 0);
	towi_worker_lock(worker);
	atomic_store_explicit(&watch->calling, false, memory_order_release);
	towi_edge_watch_on(edge);
	/* Whoever calls next; not from here, where the next one would call the next. */
	if (atomic_load_explicit(&watch->calling, memory_order_relaxed)) {
		towi_edge_nudge(edge);
		towi_worker_wake(worker);
	}
	towi_worker_unlock_quietly(worker);
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
	if (!towi_worker_usable(edge->common.worker))
		return -EPERM;
	towi_worker_lock(edge->common.worker);
	ret = begin_watch(edge, came, arg);
	/* The worker's descriptor says that there is something to do. */
	if (atomic_load_explicit(&edge->watch.calling, memory_order_relaxed))
		towi_edge_nudge(edge);
	towi_worker_unlock_quietly(edge->common.worker);
	return ret;
}

/* ---- what the worker asks --------------------------------------------------- */

/* Of one that is being made, or closed, there is no slot. */
static void go_on(struct towi_edge *common)
{
	struct tow_edge *edge = edge_of(common);

	if (!edge->slot)
		return;
	edge->kind->go_on(edge);
	towi_edge_watch_on(edge);
}

static void tick(struct towi_edge *common, uint64_t now_us)
{
	struct tow_edge *edge = edge_of(common);

	if (edge->slot && edge->kind->tick)
		edge->kind->tick(edge, now_us);
}

static void lost(struct towi_edge *common, int error, uint64_t lost_ns)
{
	struct tow_edge *edge = edge_of(common);

	if (edge->found_ns && edge->found_ns <= lost_ns)
		towi_edge_fail(edge, error);
}

static void bury(struct towi_edge *common)
{
	struct tow_edge *edge = edge_of(common);
	struct tow_arena *arena = common->worker->arena;

	if (edge->kind->free)
		edge->kind->free(edge);
	if (edge->kept)
		tow_region_unmap(edge->kept_region, edge->kept, 0);
	else
		tow_arena_free(arena, edge->letters);
	tow_arena_free(arena, edge->own);
	free(edge);
}

static const struct towi_edge_ops edge_ops = { go_on, lost, tick, bury };

char *towi_letter(const struct tow_edge *edge, uint64_t number)
{
	return edge->letters + TOWI_LETTERS_AT + number % edge->mine.slots * edge->mine.stride;
}

uint64_t towi_letter_at(const struct tow_edge *edge, uint64_t number)
{
	return TOWI_LETTERS_AT + number % edge->theirs.slots * edge->theirs.stride;
}

/* ---- what a receiver is asked ----------------------------------------------- */

TOW_PUBLIC int tow_edge_test(struct tow_edge *edge, void **data, uint64_t *step)
{
	int ret;

	if (!edge || !edge->kind->show || !data)
		return -EINVAL;
	if (!towi_worker_usable(edge->common.worker))
		return -EPERM;
	towi_worker_lock(edge->common.worker);
	ret = edge->kind->show(edge, data, step);
	towi_worker_unlock(edge->common.worker);
	return ret;
}

TOW_PUBLIC int tow_edge_arm(struct tow_edge *edge)
{
	int ret;

	if (!edge || !edge->kind->arm)
		return -EINVAL;
	if (!towi_worker_usable(edge->common.worker))
		return -EPERM;
	towi_worker_lock(edge->common.worker);
	ret = edge->error ? edge->error : edge->kind->arm(edge);
	towi_worker_unlock(edge->common.worker);
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
	worker = edge->common.worker;
	if (!towi_worker_usable(worker))
		return -EPERM;
	until = towi_until(timeout_us);
	towi_worker_lock(worker);
	while (!(ret = edge->kind->show(edge, data, step)) && !waited) {
		waited = edge->kind->arm(edge);
		if (!waited || waited == -EBUSY)
			waited = towi_worker_wait(worker, until);
	}
	towi_worker_unlock(worker);
	if (ret)
		return ret < 0 ? ret : 0;
	return waited;
}

TOW_PUBLIC int tow_edge_consumed(struct tow_edge *edge)
{
	int ret;

	if (!edge || !edge->kind->consumed)
		return -EINVAL;
	if (!towi_worker_usable(edge->common.worker))
		return -EPERM;
	towi_worker_lock(edge->common.worker);
	ret = edge->kind->consumed(edge);
	towi_edge_watch_on(edge);
	towi_worker_unlock(edge->common.worker);
	return ret;
}

TOW_PUBLIC uint32_t tow_edge_pending(const struct tow_edge *edge)
{
	uint32_t pending;

	if (!edge || !edge->kind->pending || !towi_worker_usable(edge->common.worker))
		return 0;
	towi_worker_lock(edge->common.worker);
	pending = edge->kind->pending(edge);
	towi_worker_unlock(edge->common.worker);
	return pending;
}

TOW_PUBLIC int tow_edge_next(struct tow_edge *edge, uint64_t *step)
{
	if (!edge || !step || !edge->kind->next)
		return -EINVAL;
	if (!towi_worker_usable(edge->common.worker))
		return -EPERM;
	towi_worker_lock(edge->common.worker);
	*step = edge->kind->next(edge);
	towi_worker_unlock(edge->common.worker);
	return 0;
}

/* ---- begin and end ---------------------------------------------------------- */

int towi_edge_may_be(const struct tow_worker *worker, const struct tow_peer *peer,
		     const char *name, struct tow_edge **edge)
{
	if (!worker || !peer || !edge || !name || !*name ||
	    strnlen(name, TOW_EDGE_NAME_MAX + 1) > TOW_EDGE_NAME_MAX)
		return -EINVAL;
	return towi_worker_usable(worker) ? 0 : -EPERM;
}

static void once_ended(struct towi_op *op, int status)
{
	op->edge->once_status = status;
}

static void link_edge(struct tow_edge *edge)
{
	struct tow_worker *worker = edge->common.worker;

	towi_worker_lock(worker);
	edge->common.next = worker->edges;
	worker->edges = &edge->common;
	worker->edges_count++;
	towi_worker_unlock(worker);
}

static int get_channels(struct tow_edge *edge)
{
	struct tow_worker *worker = edge->common.worker;
	int ret;

	ret = tow_channel_get(worker->queue, edge->peer, TOW_CHANNEL_ANY, &edge->channel);
	if (ret)
		return ret;
	return tow_channel_get(worker->queue, edge->peer,
			       (edge->channel->qp + 1) % edge->channel->qps, &edge->bulk);
}

int towi_edge_make(struct tow_edge *edge, struct tow_worker *worker, struct tow_peer *peer,
		   const char *name, struct tow_edge **made)
{
	int ret;

	edge->common.ops = &edge_ops;
	edge->common.worker = worker;
	edge->common.peer = towi_peer_number(peer);
	edge->peer = peer;
	edge->wait = (struct towi_op){ .ended = wait_ended, .edge = edge };
	edge->once = (struct towi_op){ .ended = once_ended, .edge = edge };
	towi_edge_op(edge, &edge->probe);
	towi_edge_op(edge, &edge->nudge);
	edge->watch.call.run = tell_watch;
	edge->name_length = strlen(name);
	memcpy(edge->name, name, edge->name_length + 1);
	link_edge(edge);
	ret = get_channels(edge);
	if (!ret)
		ret = towi_edge_memory(edge);
	if (ret)
		tow_edge_close(edge);
	else
		*made = edge;
	return ret;
}

/* All but what waits for the slot. */
static bool in_flight(const struct tow_edge *edge)
{
	return edge->once.busy || edge->probe.busy || edge->nudge.busy ||
	       edge->kind->in_flight(edge);
}

static bool waits(const struct tow_edge *edge)
{
	return edge->wait.busy;
}

/* Until it is not any more, with the lock. */
static void until_not(struct tow_edge *edge, bool (*busy)(const struct tow_edge *edge))
{
	struct tow_worker *worker = edge->common.worker;
	int ret = 0;

	while (busy(edge) && (!ret || ret == -EINTR || ret == -ETIMEDOUT))
		ret = towi_worker_wait(worker, UINT64_MAX);
	if (busy(edge))
		towi_worker_settle(worker, busy, edge);
}

/* Nothing of it is on its way any more. */
static void drain(struct tow_edge *edge)
{
	struct tow_worker *worker = edge->common.worker;

	towi_worker_lock(worker);
	edge->watch.came = NULL;
	towi_edge_fail(edge, -ECANCELED);
	go_on(&edge->common);
	until_not(edge, in_flight);
	towi_worker_unlock(worker);
}

/* Whoever is to be told is told, as nobody reaches anything any more. */
static void tell_rest(struct tow_edge *edge)
{
	struct tow_worker *worker = edge->common.worker;

	towi_worker_lock(worker);
	go_on(&edge->common);
	/* What the device has not ended, and it is gone; nobody is told a second time. */
	if (edge->kind->give_up)
		edge->kind->give_up(edge);
	towi_worker_unlock(worker);
	/* Another thread may be telling. */
	while ((edge->kind->calling && edge->kind->calling(edge)) ||
	       atomic_load_explicit(&edge->watch.calling, memory_order_acquire))
		usleep(50);
}

/* An entry that waits for a slot ends with the slot. */
static void drain_wait(struct tow_edge *edge)
{
	towi_worker_lock(edge->common.worker);
	until_not(edge, waits);
	towi_worker_unlock(edge->common.worker);
}

/* Nobody reaches what this end has exported any more. */
static int end_exports(struct tow_edge *edge)
{
	if (edge->kind->hide)
		edge->kind->hide(edge);
	return tow_unexport(edge->exported);
}

/* From now on nothing is done for it. */
static int end_slot(struct tow_edge *edge)
{
	struct tow_slot *slot;

	towi_worker_lock(edge->common.worker);
	slot = edge->slot;
	edge->slot = NULL;
	towi_worker_unlock(edge->common.worker);
	return tow_slot_destroy(slot);
}

/* True: nothing knows its records any more; else it is buried with the queue. */
static bool unlink_edge(struct tow_edge *edge)
{
	struct tow_worker *worker = edge->common.worker;
	struct towi_edge **link;
	bool free;

	towi_worker_lock(worker);
	for (link = &worker->edges; edge_of(*link) != edge;)
		link = &(*link)->next;
	*link = edge->common.next;
	worker->edges_count--;
	free = !in_flight(edge) && !waits(edge);
	if (!free) {
		edge->common.next = worker->graves;
		worker->graves = &edge->common;
	}
	towi_worker_unlock(worker);
	return free;
}

TOW_PUBLIC int tow_edge_close(struct tow_edge *edge)
{
	struct tow_worker *worker;
	int ret, error;

	if (!edge)
		return 0;
	worker = edge->common.worker;
	/* A child's copy, if no thread was changing it; what there is in the arena stays. */
	if (!towi_worker_usable(worker)) {
		if (towi_at_rest(&worker->lock))
			bury(&edge->common);
		return -EPERM;
	}
	drain(edge);
	ret = end_exports(edge);
	tell_rest(edge);
	error = end_slot(edge);
	drain_wait(edge);
	tow_remote_release(edge->range);
	tow_remote_release(edge->other);
	tow_channel_put(edge->channel);
	tow_channel_put(edge->bulk);
	if (unlink_edge(edge))
		bury(&edge->common);
	return ret ? ret : error;
}
