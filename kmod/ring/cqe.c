// SPDX-License-Identifier: GPL-2.0
/*
 * The completion ring, and the entries that it has room for.
 *
 * A completion always finds room: an entry is taken only if those that are taken and
 * the completions that the program has not dealt with leave room for its own, too
 * (tow_queue_room()).  What the program says in cq_head is believed as far as it can be
 * true: a wrong one costs the program completions, and nobody else anything.
 *
 * An entry in tow_queue.free is nobody's.  Who takes it has it until
 * tow_req_give_back(); all that somebody has (tow_queue.busy) share one reference to
 * the queue.  What is done for each entry that ends is inline, in internal.h.
 */
#include "internal.h"
#include "queue.h"

/**
 * tow_queue_completions - how many completions are there to be dealt with?
 * @queue: the queue
 *
 * Return: the number, as far as the program's word can be trusted.
 */
u32 tow_queue_completions(struct tow_queue *queue)
{
	/* Pairs with tow_cqe_write(). */
	u32 tail = smp_load_acquire(&queue->cq_tail);
	s32 unseen = tail - READ_ONCE(queue->ring->cq_head);

	/* The program has seen, and dealt with, what is just being told to us. */
	if (unseen < 0)
		return 0;
	return min_t(u32, unseen, queue->cq_entries);
}

/* Caller holds queue->lock.  Return: how many entries may be taken. */
static u32 tow_queue_room(struct tow_queue *queue)
{
	u32 room = queue->cq_entries - tow_queue_unseen(queue);

	return room - min(room, queue->busy);
}

/**
 * tow_queue_has_room - could another entry be taken?
 * @queue: the queue, which has a poller
 *
 * If not, the poller is woken when an entry that ends makes room (tow_queue_frees()).
 *
 * Return: whether there is room for its completion beside those that are to come.
 */
bool tow_queue_has_room(struct tow_queue *queue)
{
	bool has;

	spin_lock(&queue->lock);
	has = tow_queue_room(queue) >= queue->needed;
	queue->starved = !has;
	spin_unlock(&queue->lock);
	return has;
}

/**
 * tow_reqs_take - take entries, each with room for its completion
 * @queue: the queue
 * @count: how many, at most
 * @first: where to: the first one; the others follow by @free
 *
 * They hold the queue, with one reference for all that are busy; each ends in
 * tow_reqs_end(), or in tow_req_return().
 *
 * Return: how many there are.
 */
u32 tow_reqs_take(struct tow_queue *queue, u32 count,
		  struct tow_req **first)
{
	struct tow_req *entry;
	u32 room, i;

	spin_lock(&queue->lock);
	room = tow_queue_room(queue);
	queue->starved = count > room;
	count = min(count, room);
	*first = queue->free;
	for (i = 0, entry = queue->free; i < count; i++)
		entry = entry->free;
	queue->free = entry;
	if (count && !queue->busy)
		kref_get(&queue->refs);
	queue->busy += count;
	queue->needed = 1;
	spin_unlock(&queue->lock);
	return count;
}

/**
 * tow_req_return - an entry is not taken after all: there is not room enough
 * @entry: the entry; the caller has a reference to its queue
 * @needed: how much it needs
 */
void tow_req_return(struct tow_req *entry, u32 needed)
{
	struct tow_queue *queue = entry->queue;
	bool last;

	spin_lock(&queue->lock);
	tow_req_give_back(entry);
	queue->needed = needed;
	last = !queue->busy;
	spin_unlock(&queue->lock);
	if (last)
		tow_queue_put(queue);
}
