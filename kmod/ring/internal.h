/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the files of this folder share and nobody else needs.
 */
#ifndef TOW_RING_INTERNAL_H
#define TOW_RING_INTERNAL_H

#include "device.h"
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

/* Called with the lock held.  Completions that the program has not dealt with. */
static inline u32 tow_queue_unseen(struct tow_queue *queue)
{
	/* The program writes there what it likes: never more than there may be. */
	return min(queue->cq_tail - smp_load_acquire(&queue->ring->cq_head),
		   queue->cq_entries);
}

/**
 * tow_cqe_write - write a completion
 * @queue: the queue; the caller has its lock, and room was taken before
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
	/* The program sees what the tail says is there. */
	smp_store_release(&queue->ring->cq_tail, queue->cq_tail + 1);
	/* Pairs with tow_queue_completions(): the program sees what we told. */
	smp_store_release(&queue->cq_tail, queue->cq_tail + 1);
}

/**
 * tow_entry_give_back - nobody has it any more
 * @entry: the entry; the caller has its queue's lock
 *
 * The reference of those that are busy is the caller's if this was the last.
 */
static inline void tow_entry_give_back(struct tow_entry *entry)
{
	struct tow_queue *queue = entry->queue;

	entry->free = queue->free;
	queue->free = entry;
	queue->busy--;
}

/**
 * tow_queue_should_wake - is there what somebody waits for?
 * @queue: the queue; the caller has its lock, and has written completions
 *
 * Return: whether to wake who sleeps.
 */
static inline bool tow_queue_should_wake(struct tow_queue *queue)
{
	/* Has a barrier: who is about to sleep sees the completion, or we him. */
	if (!wq_has_sleeper(&queue->wait))
		return false;
	return tow_queue_unseen(queue) >=
	       (READ_ONCE(queue->polled) ? 1 : queue->wanted);
}

#endif /* TOW_RING_INTERNAL_H */
