// SPDX-License-Identifier: GPL-2.0
/*
 * The completion ring, and the entries that it has room for.
 *
 * A completion always finds room: an entry is taken only if the busy entries
 * and the completions that the program has not handled leave room for its own
 * (tow_queue_room()). cq_head, which the program writes, is believed as far as
 * it can be true: a wrong value costs the program completions, and does no
 * other harm.
 *
 * tow_reqs_take() and tow_req_take() make entries of tow_queue.free busy,
 * tow_req_give_back() makes them free again.  All busy entries share one
 * reference to the queue.
 * What is done for each entry that ends is inline, in internal.h.
 */
#include "internal.h"
#include "queue.h"

/**
 * tow_queue_completions - how many completions were not handled?
 * @queue: the queue
 *
 * Return: the number, as far as cq_head can be true.
 */
u32 tow_queue_completions(struct tow_queue *queue)
{
	/* Pairs with tow_cqes_publish(). */
	u32 tail = smp_load_acquire(&queue->cq_tail);
	s32 unseen = tail - READ_ONCE(queue->ring->cq_head);

	/* cq_head is ahead of our tail: the program has handled newer ones. */
	if (unseen < 0)
		return 0;
	return min_t(u32, unseen, queue->cq_entries);
}

/**
 * tow_queue_has_room - could entries be taken?
 * @queue: the queue
 * @completions: that they need room for
 *
 * If not, an entry that ends and so makes room wakes those who wait for that
 * (tow_queue_frees()).
 *
 * Return: whether there is room.
 */
bool tow_queue_has_room(struct tow_queue *queue, u32 completions)
{
	bool has;

	spin_lock(&queue->lock);
	has = tow_queue_room(queue) >= completions;
	queue->starved |= !has;
	spin_unlock(&queue->lock);
	return has;
}

/**
 * tow_reqs_take - take entries, each with room for its completion
 * @queue: the queue
 * @count: how many, at most
 * @least: how many, at least; or none
 * @list: the entries are put before those that it has, linked by tow_req.free
 *
 * All busy entries have one reference to the queue.  Each entry ends in
 * tow_reqs_end(), or in tow_reqs_return().
 *
 * Return: how many entries were taken.
 */
u32 tow_reqs_take(struct tow_queue *queue, u32 count, u32 least,
		  struct tow_req **list)
{
	struct tow_req **end = &queue->free, *first;
	u32 room, i;

	spin_lock(&queue->lock);
	room = tow_queue_room(queue);
	queue->starved |= count > room;
	count = room < least ? 0 : min(count, room);
	first = queue->free;
	for (i = 0; i < count; i++)
		end = &(*end)->free;
	if (count) {
		queue->free = *end;
		*end = *list;
		*list = first;
	}
	if (count && !queue->busy)
		kref_get(&queue->refs);
	queue->busy += count;
	spin_unlock(&queue->lock);
	return count;
}

/**
 * tow_req_take - take an entry that is not from the submission ring
 * @queue: the queue
 *
 * As tow_reqs_take().
 *
 * Return: the entry; NULL: there is no room for its completion.
 */
struct tow_req *tow_req_take(struct tow_queue *queue)
{
	struct tow_req *entry = NULL;

	tow_reqs_take(queue, 1, 1, &entry);
	return entry;
}

/**
 * tow_reqs_return - give back entries that were not used
 * @queue: the queue; the caller has a reference
 * @list: the entries, linked by tow_req.free
 * @count: how many
 */
void tow_reqs_return(struct tow_queue *queue, struct tow_req *list, u32 count)
{
	struct tow_req *next;
	bool last;

	if (!count)
		return;
	spin_lock(&queue->lock);
	for (; count; count--, list = next) {
		next = list->free;
		tow_req_give_back(list);
	}
	last = !queue->busy;
	spin_unlock(&queue->lock);
	if (last)
		tow_queue_put(queue);
}
