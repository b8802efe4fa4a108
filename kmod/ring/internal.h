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
 * tow_cqe_write - write a completion, for tow_cqes_publish()
 * @queue: the queue; caller holds @queue->lock, and has an entry for it
 *	(tow_reqs_take())
 * @user_data: of the entry
 * @status: 0 or a negative errno
 * @flags: bits of enum tow_cqe_flag
 */
static inline void tow_cqe_write(struct tow_queue *queue, u64 user_data,
				 int status, u32 flags)
{
	struct tow_cqe *cqe = &queue->cqes[queue->cq_next++ &
					   (queue->cq_entries - 1)];

	WRITE_ONCE(cqe->user_data, user_data);
	WRITE_ONCE(cqe->status, status);
	WRITE_ONCE(cqe->flags, flags);
}

/**
 * tow_cqes_publish - show the program the completions that were written
 * @queue: the queue; caller has held @queue->lock since
 */
static inline void tow_cqes_publish(struct tow_queue *queue)
{
	if (queue->cq_tail == queue->cq_next)
		return;
	/* Pairs with tow_queue_cqe() of the library. */
	smp_store_release(&queue->ring->cq_tail, queue->cq_next);
	/*
	 * Pairs with tow_queue_completions(): a completion that a call has
	 * counted is in the ring.
	 */
	smp_store_release(&queue->cq_tail, queue->cq_next);
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

/* Caller holds queue->lock.  Return: how many entries may be taken. */
static inline u32 tow_queue_room(struct tow_queue *queue)
{
	u32 room = queue->cq_entries - tow_queue_unseen(queue);

	return room - min(room, queue->busy);
}

/**
 * enum tow_queue_sleepers - who is to be woken
 * @TOW_WAKE_CALLS: calls of ENTER
 * @TOW_WAKE_POLL: poll(2)
 */
enum tow_queue_sleepers {
	TOW_WAKE_CALLS	= 1 << 0,
	TOW_WAKE_POLL	= 1 << 1
};

/**
 * tow_queue_sleepers - are there as many completions as somebody waits for?
 * @queue: the queue; caller holds @queue->lock, and has written completions
 *
 * Return: bits of enum tow_queue_sleepers, for tow_queue_wake().
 */
static inline unsigned int tow_queue_sleepers(struct tow_queue *queue)
{
	unsigned int who = 0;

	/*
	 * Pairs with those of tow_queue_sleep() and tow_queue_poll(): the
	 * sleeper sees the completion, or we see the sleeper.
	 */
	smp_mb();
	/* After the barrier above. */
	if (waitqueue_active(&queue->wait) &&
	    tow_queue_unseen(queue) >= queue->wanted)
		who = TOW_WAKE_CALLS;
	/* Likewise. */
	if (waitqueue_active(&queue->poll_wait))
		who |= TOW_WAKE_POLL;
	return who;
}

/**
 * tow_queue_wake - wake those who sleep
 * @queue: the queue
 * @who: bits of enum tow_queue_sleepers
 */
static inline void tow_queue_wake(struct tow_queue *queue, unsigned int who)
{
	if (who & TOW_WAKE_CALLS)
		wake_up_all(&queue->wait);
	if (who & TOW_WAKE_POLL)
		wake_up_all(&queue->poll_wait);
}

#endif /* TOW_RING_INTERNAL_H */
