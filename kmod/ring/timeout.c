// SPDX-License-Identifier: GPL-2.0
/*
 * Deadlines: entries that shall not take longer than their programs say.
 *
 * Normal operation
 *
 * An entry with a time-out takes another one with it (tow_req.spare): that is the
 * room for a second completion, and keeps the deadline, so nothing is allocated.  The
 * deadlines of a queue are in a tree; one timer goes off at the first of them, and a
 * work item deals with those that have passed.  Most entries end long before: then the
 * timer goes off in vain, once in that time, and not once for each of them.
 *
 * What is late
 *
 * The program is told at once, and nothing else happens at once.  The entry keeps its
 * place: in the order, in its flow, on its way.  When its turn comes it is passed by,
 * and what was posted comes back as it would have.  So no queue pair is touched, and
 * nothing is searched for.  Whether any of it was posted is what the bits of enum
 * tow_claim decide, between whoever posts and us.
 *
 *	has not begun		ETIMEDOUT.  It ends for good in its place, and the rest
 *				of its chain then
 *	WAIT, has begun		ETIMEDOUT, unless the slot was faster: as any WAIT ends
 *	was not posted		ETIMEDOUT
 *	was posted		ETIMEDOUT and HELD; RELEASED when it has come back
 *
 * Exactly once
 *
 * All of it happens under queue->lock, and only to an entry whose deadline is in the
 * tree.  request.c, which ends entries, takes it out first (tow_timeout_disarm()),
 * before it lets go of anything that the entry holds.
 */
#include "core/compat.h"
#include "core/core.h"
#include "core/trace.h"
#include "internal.h"
#include "notify.h"
#include "queue.h"
#include "remote.h"
#include "slot.h"

/* Those that are dealt with before others have their turn. */
#define TOW_LATE_BATCH		64

/* So much later a timer may go off, if others do then. */
#define TOW_LATE_SLACK_NS	(250 * NSEC_PER_USEC)

/* ---- the timer ------------------------------------------------------------ */

static struct tow_deadline *tow_timeout_first(struct tow_queue *queue)
{
	struct timerqueue_node *node = timerqueue_getnext(&queue->deadlines);

	return node ? container_of(node, struct tow_deadline, node) : NULL;
}

/* Called with the lock held: the timer goes off when the first one is late. */
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

/* ---- what is late --------------------------------------------------------- */

/*
 * Called with the lock held: the program is told.  Return: the rest of its chain that
 * ends with it.
 */
static struct tow_step *tow_req_is_late(struct tow_req *entry)
{
	struct tow_queue *queue = entry->queue;
	int claims = atomic_fetch_or(TOW_CLAIM_LATE, &entry->claim);

	if (entry->opcode == TOW_OP_WAIT && claims & TOW_CLAIM_BEGUN) {
		/* Or it is about to wait, and sees that it must not. */
		tow_slot_wait_no_more(&entry->wait, -ETIMEDOUT);
		return NULL;
	}
	/* Perhaps nobody looks at what has no room for a notification. */
	if (entry->op.slot && claims & TOW_CLAIM_BEGUN)
		tow_credit_wake(entry->op.slot->assoc);
	entry->told = true;
	entry->held = claims & TOW_CLAIM_POSTED;
	trace_tow_entry(entry, -ETIMEDOUT);
	tow_stat_inc(queue->dev, TOW_STAT_TIMEOUTS);
	tow_cqe_write(queue, entry->user_data, -ETIMEDOUT,
		      entry->held ? TOW_CQE_HELD : 0);
	/* What is to come has the entry's own room. */
	tow_req_give_back(entry->spare);
	entry->spare = NULL;
	return tow_order_fail(&queue->order, &entry->step,
			      claims & TOW_CLAIM_BEGUN);
}

/* Called with the lock held.  Return: what ends with those, linked by @later. */
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
	return failed;
}

/* Return: whether there may be more. */
static bool tow_queue_handle_late(struct tow_queue *queue)
{
	struct tow_step *failed, *rest;
	int left = TOW_LATE_BATCH;
	bool wake, more;

	spin_lock(&queue->lock);
	failed = tow_reqs_late(queue, &left);
	if (left) {
		queue->alarm = KTIME_MAX;
		tow_queue_set_alarm(queue);
	}
	more = failed;
	wake = more || tow_queue_should_wake(queue);
	spin_unlock(&queue->lock);
	for (; failed; failed = rest) {
		rest = failed->later;
		tow_chain_end(queue, failed);
	}
	if (wake)
		wake_up_all(&queue->wait);
	/* Fences may have waited for nothing else. */
	if (more)
		tow_queue_run(queue);
	return !left;
}

static void tow_queue_late(struct work_struct *work)
{
	struct tow_queue *queue = container_of(work, struct tow_queue, late);

	/* It may be going: then nothing of it can be late. */
	if (!kref_get_unless_zero(&queue->refs))
		return;
	while (tow_queue_handle_late(queue))
		cond_resched();
	/* Who frees it waits for us. */
	tow_queue_put_later(queue);
}

/* ---- entries -------------------------------------------------------------- */

/**
 * tow_timeout_set - an entry has a deadline
 * @entry: the entry, which is being taken
 * @spare: another one, for its second completion; the entry's from now on
 * @end: when it is late
 *
 * It counts from tow_deadlines_start() on.
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
 * tow_deadlines_start - deadlines count
 * @queue: the queue
 * @deadlines: of entries that are complete and have not begun, linked by @next
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
