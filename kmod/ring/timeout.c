// SPDX-License-Identifier: GPL-2.0
/*
 * Deadlines: entries that must not take longer than their programs say.
 *
 * Normal operation
 *
 * An entry with a time-out takes another entry with it (tow_req.spare), which
 * is the room for a second completion and keeps the deadline, so nothing is
 * allocated.  The deadlines of a queue are in a tree; one timer expires at the
 * first of them, and a work item handles those that have passed.  Most entries
 * end long before: then the timer expires in vain, once in that time, and not
 * once for each entry.
 *
 * Late entries
 *
 * The program is told at once, and nothing else happens at once, but that a slot
 * that it would have notified may close.  The entry keeps its place in the order,
 * in its flow, or on its way.  When its turn comes nothing of it is done, and what
 * was posted completes as it would have.  So no queue pair is touched, and nothing
 * is searched for.  The bits of enum tow_claim decide, between this file and the
 * code that posts, whether any of it was posted.
 *
 *	has not begun		ETIMEDOUT.  The entry ends in its place, and the
 *				rest of its chain then
 *	WAIT, has begun		ETIMEDOUT, unless the slot was faster: as any
 *				WAIT ends
 *	was not posted		ETIMEDOUT
 *	was posted		ETIMEDOUT and HELD; RELEASED when it has come
 *				back
 *
 * Exactly once
 *
 * All of this happens under queue->lock, and only to an entry whose deadline is
 * in the tree. request.c, which ends entries, removes the deadline first
 * (tow_timeout_disarm()), before it puts any of the entry's references.
 */
#include "core/compat.h"
#include "core/core.h"
#include "core/trace.h"
#include "internal.h"
#include "notify.h"
#include "queue.h"
#include "remote.h"
#include "slot.h"

/* Deadlines that are handled before the lock is released. */
#define TOW_LATE_BATCH		64

/* A timer may expire so much later, if others expire then. */
#define TOW_LATE_SLACK_NS	(250 * NSEC_PER_USEC)

/* ---- the timer ------------------------------------------------------------ */

static struct tow_deadline *tow_timeout_first(struct tow_queue *queue)
{
	struct timerqueue_node *node = timerqueue_getnext(&queue->deadlines);

	return node ? container_of(node, struct tow_deadline, node) : NULL;
}

/* Caller holds queue->lock.  Set the timer for the first deadline. */
static void tow_queue_set_alarm(struct tow_queue *queue)
{
	struct tow_deadline *first = tow_timeout_first(queue);

	if (!first || first->node.expires >= queue->alarm)
		return;
	queue->alarm = first->node.expires;
	hrtimer_start_range_ns(&queue->timer, queue->alarm, TOW_LATE_SLACK_NS,
			       HRTIMER_MODE_ABS);
}

static enum hrtimer_restart tow_queue_alarmed(struct hrtimer *timer)
{
	struct tow_queue *queue = container_of(timer, struct tow_queue, timer);

	queue_work(tow_cq_wq, &queue->late);
	return HRTIMER_NORESTART;
}

/* ---- late entries --------------------------------------------------------- */

/*
 * Caller holds queue->lock.  Let the program know that an entry is late.
 * Return: the rest of its chain, which ends now; or NULL.
 */
static struct tow_step *tow_req_is_late(struct tow_req *entry)
{
	struct tow_queue *queue = entry->queue;
	int claims = atomic_fetch_or(TOW_CLAIM_LATE, &entry->claim);

	if (entry->opcode == TOW_OP_WAIT && claims & TOW_CLAIM_BEGUN) {
		/* Or tow_req_wait() will see that it is late. */
		tow_slot_wait_no_more(&entry->wait, -ETIMEDOUT);
		return NULL;
	}
	/* The flow may be parked for want of credit. */
	if (entry->op.slot && claims & TOW_CLAIM_BEGUN)
		tow_credit_wake(entry->op.slot->assoc);
	entry->told = true;
	entry->held = claims & TOW_CLAIM_POSTED;
	/* Before the program knows, and sends what is next. */
	if (entry->op.slot && !entry->held)
		tow_remote_missed(entry->op.slot, false);
	trace_tow_entry(entry, -ETIMEDOUT);
	tow_stat_inc(queue->dev, TOW_STAT_TIMEOUTS);
	tow_cqe_write(queue, entry->user_data, -ETIMEDOUT,
		      entry->held ? TOW_CQE_HELD : 0);
	/* A RELEASED completion has the entry's own room. */
	tow_req_give_back(entry->spare);
	entry->spare = NULL;
	return tow_order_fail(&queue->order, &entry->step,
			      claims & TOW_CLAIM_BEGUN);
}

/* Caller holds queue->lock.  Return: rests of chains, linked by @later. */
static struct tow_step *tow_reqs_late(struct tow_queue *queue, int *left)
{
	struct tow_step *failed = NULL, *rest;
	struct tow_deadline *deadline;
	ktime_t now = ktime_get();

	while (*left && (deadline = tow_timeout_first(queue)) &&
	       deadline->node.expires <= now) {
		timerqueue_del(&queue->deadlines, &deadline->node);
		(*left)--;
		rest = tow_req_is_late(deadline->entry);
		if (rest) {
			rest->later = failed;
			failed = rest;
		}
	}
	tow_cqes_publish(queue);
	return failed;
}

/* Handle a batch.  Return: whether there may be more. */
static bool tow_queue_handle_late(struct tow_queue *queue)
{
	struct tow_step *failed, *rest;
	int left = TOW_LATE_BATCH;
	unsigned int wake;
	bool more;

	spin_lock(&queue->lock);
	failed = tow_reqs_late(queue, &left);
	if (left) {
		queue->alarm = KTIME_MAX;
		tow_queue_set_alarm(queue);
	}
	more = failed;
	wake = more ? TOW_WAKE_CALLS | TOW_WAKE_POLL :
		      tow_queue_sleepers(queue);
	spin_unlock(&queue->lock);
	for (; failed; failed = rest) {
		rest = failed->later;
		tow_chain_end(queue, failed);
	}
	tow_queue_wake(queue, wake);
	/* Fences may have waited for nothing but these chains. */
	if (more)
		tow_queue_run(queue);
	return !left;
}

static void tow_queue_late(struct work_struct *work)
{
	struct tow_queue *queue = container_of(work, struct tow_queue, late);

	/* A queue without references has no entry that could be late. */
	if (!kref_get_unless_zero(&queue->refs))
		return;
	while (tow_queue_handle_late(queue))
		cond_resched();
	/* Not here: tow_queue_stop_deadlines() waits for this work item. */
	tow_queue_put_later(queue);
}

/* ---- entries -------------------------------------------------------------- */

/**
 * tow_timeout_set - give an entry a deadline
 * @entry: the entry, which is being taken
 * @spare: another entry, for a second completion; @entry owns it from now on
 * @end: the deadline, CLOCK_MONOTONIC
 *
 * tow_deadlines_start() lets the deadline count.
 */
void tow_timeout_set(struct tow_req *entry, struct tow_req *spare,
		     ktime_t end)
{
	entry->spare = spare;
	entry->told = false;
	entry->held = false;
	atomic_set(&entry->claim, 0);
	entry->op.claim = &entry->claim;
	timerqueue_init(&spare->deadline.node);
	spare->deadline.node.expires = end;
	spare->deadline.entry = entry;
}

/**
 * tow_deadlines_start - let deadlines count
 * @queue: the queue
 * @deadlines: deadlines of entries that are complete and have not begun, linked
 *	by @next
 */
void tow_deadlines_start(struct tow_queue *queue,
			 struct tow_deadline *deadlines)
{
	spin_lock(&queue->lock);
	for (; deadlines; deadlines = deadlines->next)
		timerqueue_add(&queue->deadlines, &deadlines->node);
	tow_queue_set_alarm(queue);
	spin_unlock(&queue->lock);
}

/* ---- queues --------------------------------------------------------------- */

/**
 * tow_queue_init_deadlines - prepare a queue's part of this file
 * @queue: new
 */
void tow_queue_init_deadlines(struct tow_queue *queue)
{
	timerqueue_init_head(&queue->deadlines);
	queue->alarm = KTIME_MAX;
	tow_hrtimer_setup(&queue->timer, tow_queue_alarmed, CLOCK_MONOTONIC,
			  HRTIMER_MODE_ABS);
	INIT_WORK(&queue->late, tow_queue_late);
}

/**
 * tow_queue_stop_deadlines - undo tow_queue_init_deadlines()
 * @queue: the queue, without references
 */
void tow_queue_stop_deadlines(struct tow_queue *queue)
{
	hrtimer_cancel(&queue->timer);
	cancel_work_sync(&queue->late);
}
