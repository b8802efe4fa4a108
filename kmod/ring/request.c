// SPDX-License-Identifier: GPL-2.0
/*
 * An entry of a queue from its beginning to its completion.
 *
 * Entries begin in tow_queue_run(), which one at a time does for a queue, and
 * whoever finds somebody at it leaves: what is to begin is seen before he stops.
 * So entries of one channel join their queue pair in their order, whoever made
 * it possible for them to begin: the program by ENTER, or a completion.
 *
 * Each ends exactly once, in tow_reqs_end(), tow_req_end() or tow_chain_end().  One
 * with a deadline leaves the queue's deadlines first: so timeout.c finds only entries
 * that have not ended.  Then what it holds is let go of; and under queue->lock, at once,
 * its completion is written, if it has one, it becomes nobody's, and what waited for it
 * may begin.
 */
#include "core/core.h"
#include "core/trace.h"
#include "internal.h"
#include "link.h"
#include "memory/memory.h"
#include "poller.h"
#include "queue.h"
#include "remote.h"
#include "slot.h"

/* Entries that are begun before others have their turn. */
#define TOW_RUN_BUDGET		256

/* Called with the lock held: is there what may begin, and nobody at it? */
static bool tow_queue_may_begin(const struct tow_queue *queue)
{
	return !queue->running &&
	       (queue->order.ready.first || queue->order.chains.first);
}

/*
 * Caller holds queue->lock; the entry has a deadline, and tow_timeout_disarm() is done.
 * Return: true: the program was told that it is late, and is told what is left to be
 * told; false: it was not, and the room for that is given back.
 */
static bool tow_timeout_reported(struct tow_req *entry, int status)
{
	if (!entry->told) {
		/* A WAIT is not told beforehand. */
		if (status == -ETIMEDOUT)
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

/* Caller holds queue->lock; the entry is nobody's afterwards. */
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
	/* Its channel may be closed as soon as the lock is let go of. */
	if (entry->op.flow)
		entry->op.flow->ended++;
	tow_req_give_back(entry);
}

/* What is notified at the peer; what is waited for. */
static void tow_req_put_slots(const struct tow_req *entry)
{
	if (entry->op.slot)
		tow_remote_put(entry->op.slot);
	if (entry->wait.slot)
		tow_slot_put(entry->wait.slot);
}

/*
 * An entry that has a deadline is about to end: from here on it does not become late.
 * Called before anything that it holds is let go of.
 */
static void tow_timeout_disarm(struct tow_req *entry)
{
	struct tow_queue *queue = entry->queue;

	spin_lock(&queue->lock);
	if (entry->spare && !RB_EMPTY_NODE(&entry->spare->deadline.node.node))
		timerqueue_del(&queue->deadlines, &entry->spare->deadline.node);
	spin_unlock(&queue->lock);
}

/* What an entry holds, but the queue. */
static void tow_req_put_refs(struct tow_req *entry)
{
	if (unlikely(entry->op.claim))
		tow_timeout_disarm(entry);
	if (entry->op.region)
		tow_region_put(entry->op.region);
	if (entry->op.remote)
		tow_remote_put(entry->op.remote);
	tow_req_put_slots(entry);
}

static struct tow_req *tow_req_of(struct tow_op *op)
{
	return container_of(op, struct tow_req, op);
}

/* The same of several: most name what the one before has named. */
static void tow_reqs_put_refs(struct tow_op *ops)
{
	u32 regions = 0, remotes = 0;
	struct tow_op *op, *next;

	for (op = ops; op; op = next) {
		next = op->next;
		if (unlikely(op->claim))
			tow_timeout_disarm(tow_req_of(op));
		tow_req_put_slots(tow_req_of(op));
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
 * Called with the lock held: silent entries make room that nobody else knows of, and
 * somebody who sleeps may need it.
 */
static void tow_queue_frees(struct tow_queue *queue)
{
	if (!queue->starved || !queue->poller)
		return;
	queue->starved = false;
	tow_poller_wake(queue->poller);
}

static void tow_chain_cancel(struct tow_queue *queue, struct tow_step *rest)
{
	bool last;

	while (rest) {
		struct tow_req *entry = container_of(rest, struct tow_req,
						     step);

		rest = rest->next;
		tow_req_put_refs(entry);
		spin_lock(&queue->lock);
		tow_order_abort(&queue->order);
		tow_req_complete(entry, entry->error ?: -ECANCELED);
		tow_queue_frees(queue);
		last = !queue->busy;
		spin_unlock(&queue->lock);
		/* Not the last reference: the caller has one. */
		if (last)
			tow_queue_put(queue);
	}
}

/**
 * tow_chain_end - the rest of a chain ends of which an entry has failed
 * @queue: the queue; the caller has a reference, and calls tow_queue_run() afterwards
 * @rest: what has not begun: of tow_order_done() or tow_order_fail()
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
 * Called with the lock held: entries have ended, each with tow_op.status.  Return:
 * chains of which the rest ends with them, linked by @later.
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
	return failed;
}

/**
 * tow_reqs_end - entries have ended
 * @ops: theirs, linked by @next, each with its status for the program; all of one
 *	queue, whose tow_queue_run() began them; gone afterwards
 *
 * In process context, without a link's lock.
 */
void tow_reqs_end(struct tow_op *ops)
{
	struct tow_queue *queue = tow_req_of(ops)->queue;
	struct tow_step *failed, *rest;
	bool wake, more, last;

	/* First: a program that sees the end finds that nothing is held. */
	tow_reqs_put_refs(ops);
	spin_lock(&queue->lock);
	/* All at once: it finds room, too, and nothing to fail of. */
	failed = tow_reqs_complete(queue, ops);
	tow_queue_frees(queue);
	wake = failed || tow_queue_should_wake(queue);
	more = failed || tow_queue_may_begin(queue);
	last = !queue->busy;
	/* The entries' reference goes with the last one; or is others'. */
	if ((wake || more) && !last)
		kref_get(&queue->refs);
	spin_unlock(&queue->lock);
	for (; failed; failed = rest) {
		rest = failed->later;
		tow_chain_end(queue, failed);
	}
	if (wake)
		wake_up_all(&queue->wait);
	if (more)
		tow_queue_run(queue);
	if (wake || more || last)
		tow_queue_put(queue);
}

/**
 * tow_req_end - an entry has ended that was no operation
 * @entry: the entry, that tow_queue_run() began; gone afterwards
 * @status: 0 or a negative errno, for the program
 *
 * In process context, without a link's lock.
 */
void tow_req_end(struct tow_req *entry, int status)
{
	entry->op.status = status;
	entry->op.next = NULL;
	tow_reqs_end(&entry->op);
}

/* Begin a WAIT: in process context, without a link's lock. */
static void tow_req_wait(struct tow_req *entry)
{
	struct tow_queue *queue = entry->queue;
	struct tow_slot_wait *wait = &entry->wait;
	int status;

	/*
	 * All under the lock: tow_queue_end_waits() finds it in the list, or we see
	 * that the queue has ended; and so with tow_req_is_late().
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

/* Remember where the last operation completes: who waits looks there. */
static void tow_queue_flush(struct tow_queue *queue, struct tow_plug *plug)
{
	/* Changed by the one who is at it, which is us. */
	struct tow_cq *cq = tow_ops_flush(plug, queue->cq), *old;

	WRITE_ONCE(queue->waits, plug->waits);
	if (!cq)
		return;
	spin_lock(&queue->lock);
	old = queue->cq;
	WRITE_ONCE(queue->cq, cq);
	spin_unlock(&queue->lock);
	if (old)
		tow_cq_unref(old);
}

/*
 * Called with the lock held: what may begin now, at most TOW_RUN_BUDGET of it, goes
 * to @end, linked by @later.  What must not begin has an error.
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

/* Begin it.  Return: how much it was. */
static int tow_steps_begin(struct tow_queue *queue, struct tow_step *step)
{
	struct tow_step *next;
	struct tow_plug plug;
	int count = 0;

	tow_plug_init(&plug);
	for (; step; step = next) {
		next = step->later;
		tow_req_begin(container_of(step, struct tow_req, step),
			      &plug);
		count++;
	}
	tow_queue_flush(queue, &plug);
	return count;
}

/*
 * Called with the lock held: somebody is at it from now on; nobody, if there is
 * nothing.
 */
static struct tow_step *tow_queue_claim(struct tow_queue *queue)
{
	struct tow_step *step;

	tow_queue_next(queue, &step);
	queue->running = step;
	return step;
}

/*
 * Called by the one who is at it, with what begins first; or NULL, if he is not.
 * Return: false: it is time for others.
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

/* The work item is at it from here on: a completion's context is not one program's alone. */
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
 * Called with the lock held: may chains begin at once, which is what most do?  Then
 * they have, and their first steps are linked as they must be.
 */
static bool tow_queue_passes(struct tow_queue *queue, u32 plain)
{
	return plain && plain <= TOW_RUN_BUDGET && !queue->running &&
	       !queue->ended && tow_order_pass(&queue->order, plain);
}

/* Called with the lock held. */
static void tow_queue_line_up(struct tow_queue *queue, struct tow_step *chains)
{
	struct tow_step *next;

	for (; chains; chains = next) {
		next = chains->later;
		tow_order_add(&queue->order, chains);
	}
}

/**
 * tow_queue_add - chains are to begin
 * @queue: the queue
 * @chains: linked by tow_step.later
 * @plain: how many, if none of them is fenced; or 0
 * @cq: where to: where the last operation completes, with a reference; or NULL
 *
 * Return: what is to begin now, for tow_queue_begin(); NULL: nothing, or somebody
 * else does it.
 */
struct tow_step *tow_queue_add(struct tow_queue *queue,
			       struct tow_step *chains, u32 plain,
			       struct tow_cq **cq)
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
	*cq = queue->cq;
	if (*cq)
		tow_cq_ref(*cq);
	spin_unlock(&queue->lock);
	return begin;
}

/**
 * tow_queue_begin - begin what may begin
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
