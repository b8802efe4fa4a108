// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Copies: entries of a queue whose completions call a function.
 *
 * A queue has as many records of copies as it has completions, made with the first
 * copy; an entry's user_data is its record's number.  A record is free again when its
 * completion is taken off the ring, so who finds one finds room for a completion, too.
 *
 * A large copy is several entries, its parts, by a queue pair each.  The record of the first
 * has the copy, and is free when all have ended.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "internal.h"
#include "queue.h"

/* Completions that are taken off the ring at a time: what fits on the stack. */
#define TAKEN_MAX	64

struct copy {
	/* The copy that it is a part of, or itself; NULL: nobody has the record. */
	struct copy *whole;
	union {
		void *arg;		/* somebody has it */
		struct copy *free;	/* nobody has it: the next such one */
	};
	/* Of a whole: parts that have not ended, and the first error. */
	tow_copy_done *done;
	uint32_t left;
	int status;
};

struct copies {
	struct copy *free;
	uint32_t count;
	struct copy all[];
};

static struct copies *new_copies(uint32_t count)
{
	struct copies *copies;
	uint32_t i;

	copies = calloc(1, sizeof(*copies) + count * sizeof(copies->all[0]));
	if (!copies)
		return NULL;
	copies->count = count;
	for (i = count; i > 0; i--) {
		copies->all[i - 1].free = copies->free;
		copies->free = &copies->all[i - 1];
	}
	return copies;
}

/* Called with the lock, as all functions up to tow_memcpy(). */
static void give_copy(struct copies *copies, struct copy *copy)
{
	copy->whole = NULL;
	copy->free = copies->free;
	copies->free = copy;
}

/* All of @count, or none: 0, -ENOMEM or -EBUSY. */
static int take_copies(struct tow_queue *queue, uint32_t count, struct copy **parts)
{
	struct towi_queue *own = towi_queue_of(queue);
	uint32_t taken;

	if (!own->copies)
		own->copies = new_copies(queue->cq_entries);
	if (!own->copies)
		return -ENOMEM;
	for (taken = 0; taken < count && own->copies->free; taken++) {
		parts[taken] = own->copies->free;
		parts[taken]->whole = parts[0];
		own->copies->free = parts[taken]->free;
	}
	if (taken == count)
		return 0;
	while (taken)
		give_copy(own->copies, parts[--taken]);
	return -EBUSY;
}

/*
 * @count entries: how many are not in the ring, the last ones, and @error says why.  Who
 * fails to wake a poller knows that nobody will take what nobody has.
 */
static uint32_t submit(struct tow_queue *queue, uint32_t count, int *error)
{
	uint32_t left;
	int ret;

	if (queue->flags & TOW_QUEUE_POLL) {
		ret = towi_queue_publish(queue);
		if (!ret)
			return 0;
	} else {
		tow_store_release(&queue->ring->sq_tail, queue->sq_tail);
		ret = tow_queue_enter(queue, count, 0, 0);
	}
	left = queue->sq_tail - tow_load_acquire(&queue->ring->sq_head);
	if (left > count)
		left = count;
	queue->sq_tail -= left;
	tow_store_release(&queue->ring->sq_tail, queue->sq_tail);
	*error = ret < 0 ? ret : -EBUSY;
	return left;
}

/* Part @index of @count, in whole pages but for the last one. */
static void prepare_part(struct tow_sqe *sqe, const struct tow_sqe *wanted, uint32_t index,
			 uint32_t count, uint16_t channel)
{
	uint64_t each = wanted->bytes / count & ~(uint64_t)4095, from = index * each;

	*sqe = *wanted;
	sqe->channel = channel;
	sqe->offset += from;
	sqe->remote_offset += from;
	sqe->bytes = index + 1 < count ? each : wanted->bytes - from;
}

static bool has_room(struct tow_queue *queue, uint32_t count)
{
	queue->sq_head = tow_load_acquire(&queue->ring->sq_head);
	return queue->sq_entries - (queue->sq_tail - queue->sq_head) >= count;
}

/* By @count channels. */
static int begin_copy(struct tow_queue *queue, const struct tow_sqe *wanted, uint32_t count,
		      const uint16_t *channels, tow_copy_done *done, void *arg)
{
	struct copy *parts[TOW_SLOT_WIDTH_MAX];
	struct copies *copies;
	struct tow_sqe *sqe;
	uint32_t i, left;
	int ret;

	ret = has_room(queue, count) ? take_copies(queue, count, parts) : -EBUSY;
	if (ret)
		return ret;
	copies = towi_queue_of(queue)->copies;
	for (i = 0; i < count; i++) {
		sqe = tow_queue_get_sqe(queue);
		prepare_part(sqe, wanted, i, count, channels[i]);
		tow_sqe_set_data(sqe, (uint64_t)(parts[i] - copies->all));
	}
	left = submit(queue, count, &ret);
	for (i = count - left; i < count; i++)
		give_copy(copies, parts[i]);
	if (left == count)
		return ret;
	/* If a part of it has begun it ends with that. */
	*parts[0] = (struct copy){
		.whole = parts[0], .arg = arg, .done = done, .left = count - left,
		.status = left ? ret : 0,
	};
	return 0;
}

/* By how many channels a copy may go. */
static uint32_t channels_of(const struct tow_channel *channel, uint64_t bytes)
{
	uint32_t most = channel->queue->sq_entries;

	if (bytes < TOW_CUT_BYTES)
		return 1;
	if (most > channel->qps)
		most = channel->qps;
	return most < TOW_SLOT_WIDTH_MAX ? most : TOW_SLOT_WIDTH_MAX;
}

TOW_PUBLIC int tow_memcpy(struct tow_channel *channel, const struct tow_region *region,
			  uint64_t offset, const struct tow_remote *remote, uint64_t remote_offset,
			  uint64_t bytes, enum tow_direction direction, tow_copy_done *done,
			  void *arg)
{
	uint16_t channels[TOW_SLOT_WIDTH_MAX];
	struct tow_queue *queue;
	struct tow_sqe wanted;
	uint32_t count;
	int ret;

	if (!channel || !region || !remote || !done)
		return -EINVAL;
	if (direction == TOW_TO_REMOTE)
		tow_prep_write(&wanted, channel, region, offset, remote, remote_offset, bytes);
	else if (direction == TOW_FROM_REMOTE)
		tow_prep_read(&wanted, channel, region, offset, remote, remote_offset, bytes);
	else
		return -EINVAL;
	queue = channel->queue;
	if (!queue->ring)
		return -EPERM;
	count = channels_of(channel, bytes);
	towi_channels_open_beside(channel, count);
	pthread_mutex_lock(&towi_queue_of(queue)->lock);
	count = towi_channels_beside(channel, count, channels);
	ret = begin_copy(queue, &wanted, count, channels, done, arg);
	pthread_mutex_unlock(&towi_queue_of(queue)->lock);
	return ret;
}

/* A copy that has ended, and whose record is free again. */
struct ended {
	tow_copy_done *done;
	void *arg;
	int status;
};

/* Take some off the ring: how many.  Called with the lock. */
static uint32_t take_ended(struct tow_queue *queue, struct ended ended[TAKEN_MAX])
{
	struct copies *copies = towi_queue_of(queue)->copies;
	const struct tow_cqe *cqe;
	struct copy *copy, *whole;
	uint32_t index, count = 0;

	/* Nobody has copied: nothing in the ring is a copy's. */
	if (!copies)
		return 0;
	tow_queue_for_each_cqe(queue, index, cqe) {
		if (count == TAKEN_MAX)
			break;
		copy = cqe->user_data < copies->count ? &copies->all[cqe->user_data] : NULL;
		/* An entry that was none of ours. */
		if (!copy || !copy->whole)
			continue;
		whole = copy->whole;
		if (!whole->status)
			whole->status = cqe->status;
		if (copy != whole)
			give_copy(copies, copy);
		if (--whole->left)
			continue;
		ended[count++] = (struct ended){ whole->done, whole->arg, whole->status };
		give_copy(copies, whole);
	}
	if (index != queue->cq_head)
		tow_queue_advance(queue, index - queue->cq_head);
	return count;
}

/* How many functions were called; up to @seen all completions are dealt with. */
static int call_some(struct tow_queue *queue, uint32_t *seen)
{
	struct ended ended[TAKEN_MAX];
	uint32_t i, count;

	pthread_mutex_lock(&towi_queue_of(queue)->lock);
	count = take_ended(queue, ended);
	*seen = queue->cq_head;
	pthread_mutex_unlock(&towi_queue_of(queue)->lock);
	for (i = 0; i < count; i++)
		ended[i].done(ended[i].arg, ended[i].status);
	return (int)count;
}

static int call_all(struct tow_queue *queue, uint32_t *seen)
{
	int some, called = 0;

	do {
		some = call_some(queue, seen);
		called += some;
	} while (some == TAKEN_MAX && called < (int)queue->cq_entries);
	return called;
}

TOW_PUBLIC int tow_queue_progress(struct tow_queue *queue, uint32_t timeout_us)
{
	uint32_t left = timeout_us, seen;
	uint64_t until;
	int called, ret;

	if (!queue)
		return -EINVAL;
	if (!queue->ring)
		return -EPERM;
	called = call_all(queue, &seen);
	if (called || !timeout_us)
		return called;
	until = towi_until(timeout_us);
	/* What has ended may be a part, or another thread's to tell of. */
	do {
		ret = towi_queue_wait_since(queue, seen, left);
		/* Also when waiting failed: what has ended is told. */
		called = call_all(queue, &seen);
		left = towi_left_us(until);
	} while (!called && ret >= 0 && left);
	if (called || ret >= 0 || ret == -ETIMEDOUT)
		return called;
	return ret;
}
