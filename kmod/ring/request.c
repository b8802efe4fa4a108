// SPDX-License-Identifier: GPL-2.0
/*
 * An entry of a queue from its beginning to its completion.
 *
 * Entries begin in tow_queue_run(), in one thread at a time for each queue.  A
 * thread that finds another one at it (tow_queue.running) leaves: the other one
 * looks again before it stops.  So entries of one channel join their queue pair
 * in their order, whether ENTER or a completion lets them begin.
 *
 * Each entry ends exactly once, in tow_reqs_finish(), tow_req_end() or
 * tow_chain_end().  An entry with a deadline leaves the queue's deadlines
 * first, so timeout.c finds only entries that have not ended.  Then its
 * references are put.  Last, under one hold of queue->lock, its completion is
 * written, if it has one, the entry becomes free, and entries that waited for
 * it may begin.
 */
#include <linux/sched.h>

#include "core/core.h"
#include "core/trace.h"
#include "internal.h"
#include "link.h"
#include "memory/memory.h"
#include "poller.h"
#include "queue.h"
#include "remote.h"
#include "slot.h"

/* Entries that a thread begins before others have their turn. */
#define TOW_RUN_BUDGET		256

/* Caller holds queue->lock.  May an entry begin, and is no thread at it? */
static bool tow_queue_may_begin(const struct tow_queue *queue)
{
	return !queue->running &&
	       (queue->order.ready.first || queue->order.chains.first);
}

/*
 * Caller holds queue->lock; the entry has a deadline, and tow_timeout_disarm()
 * is done.  Return: true: the program knows that the entry is late; it gets
 * RELEASED if it was told HELD.  False: the entry completes as usual, and its
 * spare is given back.
 */
static bool tow_timeout_reported(struct tow_req *entry, int status)
{
	if (!entry->told) {
		/*
		 * A late WAIT was not counted before.  An operation was not
		 * late: it got no answer.
		 */
		if (status == -ETIMEDOUT && entry->opcode == TOW_OP_WAIT)
			tow_stat_inc(entry->queue->dev, TOW_STAT_TIMEOUTS);
		tow_req_give_back(entry->spare);
		entry->spare = NULL;
		return false;
	}
	if (entry->held) {
		trace_tow_entry(entry, status);
		tow_cqe_write(entry->queue, entry->user_data, status,
			      TOW_CQE_RELEASED);
	}
	return true;
}

/* Caller holds queue->lock.  Complete an entry, and free it. */
static void tow_req_complete(struct tow_req *entry, int status)
{
	struct tow_queue *queue = entry->queue;
	bool told = unlikely(entry->op.claim) &&
		    tow_timeout_reported(entry, status);

	if (!told) {
		trace_tow_entry(entry, status);
		if (status || !(entry->flags & TOW_SQE_SILENT))
			tow_cqe_write(queue, entry->user_data, status, 0);
	}
	/* The channel may be closed as soon as the lock is released. */
	if (entry->op.flow)
		tow_channel_of(entry->op.flow)->ended++;
	tow_req_give_back(entry);
}

/*
 * Put the slot that is notified, the slot that is waited for, and the vector.
 * @status: how the entry ends.
 */
static void tow_req_put_own(const struct tow_req *entry, int status)
{
	if (entry->op.slot) {
		if (status)
			tow_remote_missed(entry->op.slot, false);
		tow_remote_put(entry->op.slot);
	}
	if (entry->wait.slot)
		tow_slot_put(entry->wait.slot);
	if (unlikely(entry->op.vec))
		tow_vec_free(entry->op.vec);
}

/*
 * Remove an entry's deadline: from here on the entry does not become late.
 * Called before any of the entry's references is put.
 */
static void tow_timeout_disarm(struct tow_req *entry)
{
	struct tow_queue *queue = entry->queue;

	spin_lock(&queue->lock);
	if (entry->spare && !RB_EMPTY_NODE(&entry->spare->deadline.node.node))
		timerqueue_del(&queue->deadlines, &entry->spare->deadline.node);
	spin_unlock(&queue->lock);
}

/* Put an entry's references, but that to the queue. */
static void tow_req_put_refs(struct tow_req *entry, int status)
{
	if (unlikely(entry->op.claim))
		tow_timeout_disarm(entry);
	if (entry->op.region)
		tow_region_put(entry->op.region);
	if (entry->op.remote)
		tow_remote_put(entry->op.remote);
	tow_req_put_own(entry, status);
}

static struct tow_req *tow_req_of(struct tow_op *op)
{
	return container_of(op, struct tow_req, op);
}

/* The same of several: most entries name what the one before has named. */
static void tow_reqs_put_refs(struct tow_op *ops)
{
	u32 regions = 0, remotes = 0;
	struct tow_op *op, *next;

	for (op = ops; op; op = next) {
		next = op->next;
		if (unlikely(op->claim))
			tow_timeout_disarm(tow_req_of(op));
		tow_req_put_own(tow_req_of(op), op->status);
		regions++;
		remotes++;
		if (op->region && (!next || next->region != op->region))
			tow_region_put_many(op->region, regions);
		if (!next || next->region != op->region)
			regions = 0;
		if (op->remote && (!next || next->remote != op->remote))
			tow_remote_put_many(op->remote, remotes);
		if (!next || next->remote != op->remote)
			remotes = 0;
	}
}

/*
 * Caller holds queue->lock.  Wake those who sleep for want of room: nobody else
 * knows of the room that silent entries make.
 */
static void tow_queue_frees(struct tow_queue *queue)
{
	if (likely(!queue->starved) || !tow_queue_room(queue))
		return;
	queue->starved = false;
	if (queue->poller)
		tow_poller_wake(queue->poller);
	tow_queue_wake(queue, TOW_WAKE_CALLS | TOW_WAKE_POLL);
}

static void tow_chain_cancel(struct tow_queue *queue, struct tow_step *rest)
{
	bool last;

	while (rest) {
		struct tow_req *entry = container_of(rest, struct tow_req,
						     step);
		int status = entry->error ?: -ECANCELED;

		rest = rest->next;
		tow_req_put_refs(entry, status);
		spin_lock(&queue->lock);
		tow_order_abort(&queue->order);
		tow_req_complete(entry, status);
		tow_cqes_publish(queue);
		tow_queue_frees(queue);
		last = !queue->busy;
		spin_unlock(&queue->lock);
		/* This is not the last reference: the caller has one. */
		if (last)
			tow_queue_put(queue);
	}
}

/**
 * tow_chain_end - end the rest of a chain of which an entry has failed
 * @queue: the queue; the caller has a reference, and calls tow_queue_run()
 *	afterwards
 * @rest: the steps that have not begun: from tow_order_done() or
 *	tow_order_fail()
 *
 * In process context, without a link's lock.
 */
void tow_chain_end(struct tow_queue *queue, struct tow_step *rest)
{
	tow_chain_cancel(queue, rest);
	spin_lock(&queue->lock);
	tow_order_end(&queue->order);
	spin_unlock(&queue->lock);
}

/*
 * Caller holds queue->lock.  Complete entries, each with tow_op.status.
 * Return: the rests of chains that end with them, linked by tow_step.later.
 */
static struct tow_step *tow_reqs_complete(struct tow_queue *queue,
					  struct tow_op *ops)
{
	struct tow_step *failed = NULL, *rest;
	struct tow_op *op, *next;

	for (op = ops; op; op = next) {
		struct tow_req *entry = tow_req_of(op);

		next = op->next;
		rest = tow_order_done(&queue->order, &entry->step, op->status);
		if (rest) {
			rest->later = failed;
			failed = rest;
		}
		tow_req_complete(entry, op->status);
	}
	tow_cqes_publish(queue);
	return failed;
}

/**
 * tow_reqs_finish - end entries
 * @ops: the entries' operations, linked by @next, each with its status for the
 *	program; all of one queue, whose tow_queue_run() began them; gone
 *	afterwards
 *
 * In process context, without a link's lock.
 */
void tow_reqs_finish(struct tow_op *ops)
{
	struct tow_queue *queue = tow_req_of(ops)->queue;
	struct tow_step *failed, *rest;
	unsigned int wake;
	bool more, last;

	/* First: a program that sees the completion finds nothing held. */
	tow_reqs_put_refs(ops);
	spin_lock(&queue->lock);
	/* Under one hold: then there is room, and later chains do not fail. */
	failed = tow_reqs_complete(queue, ops);
	tow_queue_frees(queue);
	wake = failed ? TOW_WAKE_CALLS | TOW_WAKE_POLL :
			tow_queue_sleepers(queue);
	more = failed || tow_queue_may_begin(queue);
	last = !queue->busy;
	/* With the last entry its reference is ours; else take one. */
	if ((wake || more) && !last)
		kref_get(&queue->refs);
	spin_unlock(&queue->lock);
	for (; failed; failed = rest) {
		rest = failed->later;
		tow_chain_end(queue, failed);
	}
	tow_queue_wake(queue, wake);
	if (more)
		tow_queue_run(queue);
	if (wake || more || last)
		tow_queue_put(queue);
}

/* Is the caller one whose time is the queue's, or nobody's? */
static bool tow_queue_is_at_home(const struct tow_queue *queue)
{
	if (current->flags & PF_WQ_WORKER)
		return true;
	if (current->flags & PF_KTHREAD)
		return queue->poller &&
		       READ_ONCE(queue->poller->thread) == current;
	return tow_process_is_current(queue->process);
}

/**
 * tow_reqs_end - end entries, or have their own program end them
 * @ops: as of tow_reqs_finish()
 *
 * A program that looks for its completions finds other programs', too: what follows
 * from these, up to beginning their next entries, is not for its time.
 *
 * In process context, without a link's lock.
 */
void tow_reqs_end(struct tow_op *ops)
{
	struct tow_queue *queue = tow_req_of(ops)->queue;

	if (likely(tow_queue_is_at_home(queue)))
		tow_reqs_finish(ops);
	else
		tow_queue_hand_over(tow_req_of(ops));
}

/**
 * tow_req_end - end an entry that is no operation
 * @entry: the entry, which tow_queue_run() began; gone afterwards
 * @status: 0 or a negative errno, for the program
 *
 * In process context, without a link's lock.
 */
void tow_req_end(struct tow_req *entry, int status)
{
	entry->op.status = status;
	entry->op.next = NULL;
	tow_reqs_finish(&entry->op);
}

/**
 * tow_req_answer - complete an entry that is not in the order, with a result
 * @entry: from tow_req_take(), with its user_data; gone afterwards
 * @status: 0 or a negative errno, for the program
 * @flag: of enum tow_cqe_flag, if @status is 0
 * @result: for the program; zeroes, if @status is not 0
 *
 * The caller has a reference to the queue, which has results.
 *
 * Return: false: the queue has ended, and the program is not told of @result.
 */
bool tow_req_answer(struct tow_req *entry, int status, u32 flag,
		    const struct tow_result *result)
{
	const struct tow_result nothing = {};
	struct tow_queue *queue = entry->queue;
	struct tow_result *to;
	unsigned int wake;
	bool last, told;

	spin_lock(&queue->lock);
	told = status || !queue->ended;
	if (!told) {
		status = queue->ended;
		result = &nothing;
	}
	to = &queue->results[queue->cq_tail & (queue->cq_entries - 1)];
	WRITE_ONCE(to->handle, result->handle);
	WRITE_ONCE(to->bytes, result->bytes);
	tow_cqe_write(queue, entry->user_data, status,
		      status ? 0 : flag);
	tow_cqes_publish(queue);
	tow_req_give_back(entry);
	tow_queue_frees(queue);
	wake = tow_queue_sleepers(queue);
	last = !queue->busy;
	spin_unlock(&queue->lock);
	tow_queue_wake(queue, wake);
	/* This is not the last reference: the caller has one. */
	if (last)
		tow_queue_put(queue);
	return told;
}

/* Begin a WAIT.  In process context, without a link's lock. */
static void tow_req_wait(struct tow_req *entry)
{
	struct tow_queue *queue = entry->queue;
	struct tow_slot_wait *wait = &entry->wait;
	int status;

	/*
	 * Under one hold of the lock: tow_queue_end_waits() finds the wait in
	 * the list, or the end of the queue is seen here.  The same is so with
	 * tow_req_is_late().
	 */
	spin_lock(&queue->lock);
	status = queue->ended;
	if (!status)
		status = tow_op_is_late(&entry->op) ? -ETIMEDOUT :
			 tow_slot_wait(wait->slot, wait);
	if (status == -EINPROGRESS)
		list_add_tail(&wait->of_queue, &queue->waiting);
	spin_unlock(&queue->lock);
	if (status != -EINPROGRESS)
		tow_req_end(entry, status);
}

static void tow_req_begin(struct tow_req *entry, struct tow_plug *plug)
{
	if (entry->error || entry->opcode == TOW_OP_NOP) {
		tow_req_end(entry, entry->error);
		return;
	}
	if (!tow_op_claim(&entry->op, TOW_CLAIM_BEGUN)) {
		tow_req_end(entry, -ETIMEDOUT);
		return;
	}
	if (entry->opcode == TOW_OP_WAIT) {
		tow_req_wait(entry);
		return;
	}
	tow_ops_begin(&entry->op, plug);
}

/*
 * Caller holds queue->lock.  Remember a completion queue.  Return: one that is
 * forgotten for it, whose reference is the caller's; NULL: none.
 */
static struct tow_cq *tow_queue_note_cq(struct tow_queue *queue,
					struct tow_cq *cq)
{
	struct tow_cqs *cqs = &queue->cqs;
	struct tow_cq *old = NULL;
	unsigned int at = cqs->count;

	if (at == TOW_CQS_SEEN) {
		at = queue->cqs_turn++ % TOW_CQS_SEEN;
		old = cqs->cq[at];
	}
	WRITE_ONCE(cqs->cq[at], cq);
	if (!old)
		WRITE_ONCE(cqs->count, at + 1);
	return old;
}

/* Post operations, and remember where they complete. */
static void tow_queue_flush(struct tow_queue *queue, struct tow_plug *plug)
{
	struct tow_cq *old;

	tow_ops_flush(plug);
	WRITE_ONCE(queue->waits, plug->waits);
	while (unlikely(plug->fresh.count)) {
		spin_lock(&queue->lock);
		old = tow_queue_note_cq(queue,
					plug->fresh.cq[--plug->fresh.count]);
		spin_unlock(&queue->lock);
		if (old)
			tow_cq_unref(old);
	}
}

/*
 * Caller holds queue->lock.  Take the steps that may begin now, at most
 * TOW_RUN_BUDGET of them; they are added at @end, linked by tow_step.later.
 * Entries that must not begin get an error.
 */
static void tow_queue_next(struct tow_queue *queue, struct tow_step **end)
{
	int left = TOW_RUN_BUDGET;
	struct tow_step *step;
	bool cancel;

	while (left-- && (step = tow_order_next(&queue->order, &cancel))) {
		struct tow_req *entry = container_of(step, struct tow_req,
						     step);

		if (!entry->error)
			entry->error = cancel ? -ECANCELED : queue->ended;
		*end = step;
		end = &step->later;
	}
	*end = NULL;
}

/* Begin steps.  Return: how many. */
static int tow_steps_begin(struct tow_queue *queue, struct tow_step *step)
{
	struct tow_step *next;
	struct tow_plug plug;
	int count = 0;

	/* Only the running thread, which this is, changes queue->cqs. */
	tow_plug_init(&plug, &queue->cqs);
	for (; step; step = next) {
		struct tow_req *entry = container_of(step, struct tow_req,
						     step);

		if (entry->run) {
			next = entry->run_last->step.later;
			count += entry->run;
			tow_ops_begin_run(&entry->op, &entry->run_last->op,
					  entry->run, &plug);
			continue;
		}
		next = step->later;
		tow_req_begin(entry, &plug);
		count++;
	}
	tow_queue_flush(queue, &plug);
	return count;
}

/*
 * Caller holds queue->lock.  Take steps that may begin; if there are any the
 * caller is the running thread.
 */
static struct tow_step *tow_queue_claim(struct tow_queue *queue)
{
	struct tow_step *step;

	tow_queue_next(queue, &step);
	queue->running = step;
	return step;
}

/*
 * Called by the running thread, with its steps; or with NULL.  Return: false:
 * the budget is used up, and tow_queue.run is to continue.
 */
static bool tow_queue_begin_some(struct tow_queue *queue,
				 struct tow_step *step)
{
	int left = TOW_RUN_BUDGET;

	while (step) {
		left -= tow_steps_begin(queue, step);
		if (left <= 0)
			return false;
		spin_lock(&queue->lock);
		step = tow_queue_claim(queue);
		spin_unlock(&queue->lock);
	}
	return true;
}

/* Work item: the context of a completion serves other programs, too. */
static void tow_queue_run_later(struct work_struct *work)
{
	struct tow_queue *queue = container_of(work, struct tow_queue, run);
	struct tow_step *step;

	spin_lock(&queue->lock);
	step = tow_queue_claim(queue);
	spin_unlock(&queue->lock);
	if (tow_queue_begin_some(queue, step))
		tow_queue_put(queue);
	else
		queue_work(tow_wq, &queue->run);
}

/**
 * tow_queue_init_run - prepare a queue's part of this file
 * @queue: new
 */
void tow_queue_init_run(struct tow_queue *queue)
{
	spin_lock_init(&queue->lock);
	tow_order_init(&queue->order);
	INIT_WORK(&queue->run, tow_queue_run_later);
}

/*
 * Caller holds queue->lock.  Begin chains at once, if nothing is before them,
 * as is usual.  Return: true: they have begun, and their first steps are linked
 * already.
 */
static bool tow_queue_passes(struct tow_queue *queue, u32 plain)
{
	return plain && plain <= TOW_RUN_BUDGET && !queue->running &&
	       !queue->ended && tow_order_pass(&queue->order, plain);
}

/* Caller holds queue->lock. */
static void tow_queue_line_up(struct tow_queue *queue, struct tow_step *chains)
{
	struct tow_step *next;

	for (; chains; chains = next) {
		next = chains->later;
		container_of(chains, struct tow_req, step)->run = 0;
		tow_order_add(&queue->order, chains);
	}
}

/**
 * tow_queue_cqs_get - where does what a queue has begun complete?
 * @queue: the queue
 * @cqs: becomes tow_queue.cqs, with references
 */
void tow_queue_cqs_get(struct tow_queue *queue, struct tow_cqs *cqs)
{
	spin_lock(&queue->lock);
	*cqs = queue->cqs;
	tow_cqs_ref(cqs);
	spin_unlock(&queue->lock);
}

/**
 * tow_queue_add - add chains to a queue's order
 * @queue: the queue
 * @chains: their first steps, linked by tow_step.later
 * @plain: the number of chains, if none of them is fenced; or 0
 * @cqs: becomes tow_queue.cqs, with references
 *
 * Return: the steps that begin now, for tow_queue_begin(); NULL: none, or
 * another thread begins them.
 */
struct tow_step *tow_queue_add(struct tow_queue *queue,
			       struct tow_step *chains, u32 plain,
			       struct tow_cqs *cqs)
{
	struct tow_step *begin = NULL;

	spin_lock(&queue->lock);
	if (tow_queue_passes(queue, plain)) {
		queue->running = true;
		begin = chains;
	} else {
		tow_queue_line_up(queue, chains);
		if (!queue->running)
			begin = tow_queue_claim(queue);
	}
	*cqs = queue->cqs;
	tow_cqs_ref(cqs);
	spin_unlock(&queue->lock);
	return begin;
}

/**
 * tow_queue_begin - begin steps, and what may begin after them
 * @queue: the queue; the caller has a reference
 * @step: from tow_queue_add()
 *
 * In process context, without a link's lock.
 */
void tow_queue_begin(struct tow_queue *queue, struct tow_step *step)
{
	if (tow_queue_begin_some(queue, step))
		return;
	kref_get(&queue->refs);
	queue_work(tow_wq, &queue->run);
}

/**
 * tow_queue_run - begin what may begin
 * @queue: the queue; the caller has a reference
 *
 * In process context, without a link's lock.
 */
void tow_queue_run(struct tow_queue *queue)
{
	struct tow_step *step;

	spin_lock(&queue->lock);
	step = queue->running ? NULL : tow_queue_claim(queue);
	spin_unlock(&queue->lock);
	tow_queue_begin(queue, step);
}
