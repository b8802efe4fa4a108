// SPDX-License-Identifier: GPL-2.0
/*
 * Entries that wait for a slot; and entries that ended in another program's call.
 *
 * A wait ends in a softirq, or with a slot, an association or a queue; but an
 * entry is completed in process context, as it lets others begin.  So waits
 * that have ended are added to a list of their queue without a lock.  A call
 * that waits for completions of that queue is woken, and handles the list
 * itself: a notification wakes only the task that waits for it.  If there is no
 * such call a work item handles the list.
 *
 * A call is counted in tow_queue.callers (tow_queue_call_begin()) before it
 * looks at the list for the last time, and looks again when it is not counted
 * any more (tow_queue_call_end()).  tow_queue_wait_ended() adds to the list
 * first, and looks at the count afterwards, with a barrier between.  So one of
 * the two sees the other.
 *
 * So are operations whose completions another program has found when it looked for its
 * own (tow_reqs_end()).
 *
 * How a WAIT begins is in request.c (tow_req_wait()).
 */
#include "core/core.h"
#include "internal.h"
#include "queue.h"
#include "slot.h"

/* Waits that are ended before the lock is released. */
#define TOW_WAIT_BATCH		64

static struct tow_req *tow_wait_entry(struct tow_slot_wait *wait)
{
	return container_of(wait, struct tow_req, wait);
}

/**
 * tow_queue_hand_over - have ended entries dealt with in a call of their program
 * @entry: a WAIT that has ended; or the first of operations for tow_reqs_finish().
 *	May be gone afterwards
 *
 * In any context.
 */
void tow_queue_hand_over(struct tow_req *entry)
{
	struct tow_queue *queue = entry->queue;

	/* The entry's reference may be put once the wait is in the list. */
	kref_get(&queue->refs);
	/* Has a barrier: see tow_queue_call_begin(), tow_queue_call_end(). */
	llist_add(&entry->wait.due, &queue->due);
	if (atomic_read(&queue->callers))
		wake_up_all(&queue->wait);
	else if (queue_work(tow_cq_wq, &queue->deal))
		return;
	tow_queue_put_later(queue);
}

/**
 * tow_queue_wait_ended - an entry's wait has ended
 * @wait: the wait, with its status.  May be gone afterwards
 *
 * In any context.
 */
void tow_queue_wait_ended(struct tow_slot_wait *wait)
{
	tow_queue_hand_over(tow_wait_entry(wait));
}

/**
 * tow_queue_handle_waits - complete the entries that were handed over
 * @queue: the queue; the caller has a reference
 *
 * In process context, without a lock.
 */
void tow_queue_handle_waits(struct tow_queue *queue)
{
	struct llist_node *all = llist_del_all(&queue->due);
	struct tow_slot_wait *wait, *next;

	all = llist_reverse_order(all);
	llist_for_each_entry_safe(wait, next, all, due) {
		struct tow_req *entry = tow_wait_entry(wait);

		if (entry->opcode == TOW_OP_WAIT) {
			spin_lock(&queue->lock);
			list_del(&wait->of_queue);
			spin_unlock(&queue->lock);
			tow_req_end(entry, wait->status);
		} else {
			tow_reqs_finish(&entry->op);
		}
		cond_resched();
	}
}

static void tow_queue_handle_work(struct work_struct *work)
{
	struct tow_queue *queue = container_of(work, struct tow_queue, deal);

	tow_queue_handle_waits(queue);
	tow_queue_put(queue);
}

/**
 * tow_queue_call_begin - handle ended waits in this call
 * @queue: the queue
 *
 * tow_queue_call_end() undoes it.
 */
void tow_queue_call_begin(struct tow_queue *queue)
{
	atomic_inc(&queue->callers);
	/* Pairs with tow_queue_wait_ended(). */
	smp_mb__after_atomic();
}

/**
 * tow_queue_call_end - undo tow_queue_call_begin()
 * @queue: the queue; the caller has a reference
 */
void tow_queue_call_end(struct tow_queue *queue)
{
	atomic_dec(&queue->callers);
	/* Pairs with tow_queue_wait_ended(). */
	smp_mb__after_atomic();
	if (!llist_empty(&queue->due))
		tow_queue_handle_waits(queue);
}

/* End a batch of waits.  Return: whether there may be more. */
static bool tow_queue_end_some_waits(struct tow_queue *queue, int error)
{
	struct tow_slot_wait *wait;
	int left = TOW_WAIT_BATCH;

	spin_lock(&queue->lock);
	while (left && !list_empty(&queue->waiting)) {
		wait = list_first_entry(&queue->waiting, struct tow_slot_wait,
					of_queue);
		/* It stays until tow_queue_handle_waits() has the lock. */
		list_move_tail(&wait->of_queue, &queue->waited);
		tow_slot_wait_no_more(wait, error);
		left--;
	}
	spin_unlock(&queue->lock);
	return !left;
}

/**
 * tow_queue_end_waits - end all waits of a queue
 * @queue: the queue, ended; the caller has a reference
 * @error: the waits' status
 */
void tow_queue_end_waits(struct tow_queue *queue, int error)
{
	while (tow_queue_end_some_waits(queue, error))
		cond_resched();
}

/**
 * tow_queue_init_waits - prepare a queue's part of this file
 * @queue: new
 */
void tow_queue_init_waits(struct tow_queue *queue)
{
	INIT_LIST_HEAD(&queue->waiting);
	INIT_LIST_HEAD(&queue->waited);
	init_llist_head(&queue->due);
	atomic_set(&queue->callers, 0);
	INIT_WORK(&queue->deal, tow_queue_handle_work);
}
