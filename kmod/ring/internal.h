/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the files of ring/ share: references to a queue, and what is done to its
 * completion ring for each entry that ends.
 */
#ifndef TOW_RING_INTERNAL_H
#define TOW_RING_INTERNAL_H

#include "core/core.h"
#include "queue.h"

/**
 * tow_queue_put - give a reference back
 * @queue: the queue; may be gone afterwards.  May sleep
 */
static inline void tow_queue_put(struct tow_queue *queue)
{
	kref_put(&queue->refs, queue->release);
}

static inline void tow_queue_release_later(struct kref *refs)
{
	struct tow_queue *queue = container_of(refs, struct tow_queue, refs);

	queue_work(tow_wq, &queue->free_work);
}

/**
 * tow_queue_put_later - give a reference back
 * @queue: the queue; may be gone afterwards
 *
 * In any context.
 */
static inline void tow_queue_put_later(struct tow_queue *queue)
{
	kref_put(&queue->refs, tow_queue_release_later);
}

/* Caller holds queue->lock.  Return: completions that were not handled. */
static inline u32 tow_queue_unseen(struct tow_queue *queue)
{
	/*
	 * The program may write anything there: never more than the ring has.
	 * Pairs with tow_queue_advance() of the library: the program has read
	 * what is overwritten next.
	 */
	return min(queue->cq_tail - smp_load_acquire(&queue->ring->cq_head),
		   queue->cq_entries);
}

/**
 * tow_cqe_write - write a completion
 * @queue: the queue; caller holds @queue->lock, and has an entry for it
 *	(tow_reqs_take())
 * @user_data: of the entry
 * @status: 0 or a negative errno
 * @flags: bits of enum tow_cqe_flag
 */
static inline void tow_cqe_write(struct tow_queue *queue, u64 user_data,
				 int status, u32 flags)
{
	struct tow_cqe *cqe = &queue->cqes[queue->cq_tail &
					   (queue->cq_entries - 1)];

	WRITE_ONCE(cqe->user_data, user_data);
	WRITE_ONCE(cqe->status, status);
	WRITE_ONCE(cqe->flags, flags);
	/* Pairs with tow_queue_cqe() of the library. */
	smp_store_release(&queue->ring->cq_tail, queue->cq_tail + 1);
	/*
	 * Pairs with tow_queue_completions(): a completion that a call has
	 * counted is in the ring.
	 */
	smp_store_release(&queue->cq_tail, queue->cq_tail + 1);
}

/**
 * tow_req_give_back - free an entry
 * @entry: the entry; caller holds @entry->queue->lock
 *
 * If tow_queue.busy is 0 afterwards the caller puts the busy entries'
 * reference, with tow_queue_put().
 */
static inline void tow_req_give_back(struct tow_req *entry)
{
	struct tow_queue *queue = entry->queue;

	entry->free = queue->free;
	queue->free = entry;
	queue->busy--;
}

/**
 * tow_queue_should_wake - are there as many completions as a call waits for?
 * @queue: the queue; caller holds @queue->lock, and has written completions
 *
 * Return: whether to wake the tasks that sleep.
 */
static inline bool tow_queue_should_wake(struct tow_queue *queue)
{
	/*
	 * Has a barrier, which pairs with those of tow_queue_sleep() and
	 * tow_queue_poll(): the sleeper sees the completion, or we see the
	 * sleeper.
	 */
	if (!wq_has_sleeper(&queue->wait))
		return false;
	return tow_queue_unseen(queue) >=
	       (READ_ONCE(queue->polled) ? 1 : queue->wanted);
}

#endif /* TOW_RING_INTERNAL_H */
