// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Copies: entries of a queue whose completions call a function.
 *
 * A queue has as many records of copies as it has completions, made with the first
 * copy; an entry's user_data is its record's number.  A record is free again when its
 * completion is taken off the ring, so who finds one finds room for a completion, too.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "internal.h"
#include "queue.h"

/* Completions that are taken off the ring at a time: what fits on the stack. */
#define TAKEN_MAX	64

struct copy {
	/* NULL: nobody has the record. */
	tow_copy_done *done;
	union {
		void *arg;		/* somebody has it */
		struct copy *free;	/* nobody has it: the next such one */
	};
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
static int take_copy(struct tow_queue *queue, struct copy **copy)
{
	struct towi_queue *own = towi_queue_of(queue);

	if (!own->copies)
		own->copies = new_copies(queue->cq_entries);
	if (!own->copies)
		return -ENOMEM;
	*copy = own->copies->free;
	if (!*copy)
		return -EBUSY;
	own->copies->free = (*copy)->free;
	return 0;
}

static void give_copy(struct copies *copies, struct copy *copy)
{
	copy->done = NULL;
	copy->free = copies->free;
	copies->free = copy;
}

/* Who fails to wake somebody knows that nobody will take the entry, if nobody has. */
static int submit_one_polled(struct tow_queue *queue)
{
	int ret = towi_queue_publish(queue);

	return !ret || tow_load_acquire(&queue->ring->sq_head) == queue->sq_tail ? 1 : ret;
}

/* One entry, all by itself: 0, or a negative errno, and it is not in the ring. */
static int submit_one(struct tow_queue *queue)
{
	int ret;

	if (queue->flags & TOW_QUEUE_POLL) {
		ret = submit_one_polled(queue);
	} else {
		tow_store_release(&queue->ring->sq_tail, queue->sq_tail);
		ret = tow_queue_enter(queue, 1, 0, 0);
	}
	if (ret > 0)
		return 0;
	queue->sq_tail--;
	tow_store_release(&queue->ring->sq_tail, queue->sq_tail);
	return ret ? ret : -EBUSY;
}

static int begin_copy(struct tow_queue *queue, const struct tow_sqe *wanted, tow_copy_done *done,
		      void *arg)
{
	struct tow_sqe *sqe;
	struct copy *copy;
	int ret;

	ret = take_copy(queue, &copy);
	if (ret)
		return ret;
	copy->done = done;
	copy->arg = arg;
	sqe = tow_queue_get_sqe(queue);
	ret = -EBUSY;
	if (sqe) {
		*sqe = *wanted;
		tow_sqe_set_data(sqe, (uint64_t)(copy - towi_queue_of(queue)->copies->all));
		ret = submit_one(queue);
	}
	if (ret)
		give_copy(towi_queue_of(queue)->copies, copy);
	return ret;
}

TOW_PUBLIC int tow_memcpy(struct tow_channel *channel, const struct tow_region *region,
			  uint64_t offset, const struct tow_remote *remote, uint64_t remote_offset,
			  uint64_t bytes, enum tow_direction direction, tow_copy_done *done,
			  void *arg)
{
	struct tow_queue *queue;
	struct tow_sqe wanted;
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
	pthread_mutex_lock(&towi_queue_of(queue)->lock);
	ret = begin_copy(queue, &wanted, done, arg);
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
	uint32_t index, count = 0;
	struct copy *copy;

	/* Nobody has copied: nothing in the ring is a copy's. */
	if (!copies)
		return 0;
	tow_queue_for_each_cqe(queue, index, cqe) {
		if (count == TAKEN_MAX)
			break;
		copy = cqe->user_data < copies->count ? &copies->all[cqe->user_data] : NULL;
		/* An entry that was none of ours. */
		if (!copy || !copy->done)
			continue;
		ended[count++] = (struct ended){ copy->done, copy->arg, cqe->status };
		give_copy(copies, copy);
	}
	if (index != queue->cq_head)
		tow_queue_advance(queue, index - queue->cq_head);
	return count;
}

/* How many functions were called. */
static int call_some(struct tow_queue *queue)
{
	struct ended ended[TAKEN_MAX];
	uint32_t i, count;

	pthread_mutex_lock(&towi_queue_of(queue)->lock);
	count = take_ended(queue, ended);
	pthread_mutex_unlock(&towi_queue_of(queue)->lock);
	for (i = 0; i < count; i++)
		ended[i].done(ended[i].arg, ended[i].status);
	return (int)count;
}

static int call_all(struct tow_queue *queue)
{
	int some, called = 0;

	do {
		some = call_some(queue);
		called += some;
	} while (some == TAKEN_MAX && called < (int)queue->cq_entries);
	return called;
}

TOW_PUBLIC int tow_queue_progress(struct tow_queue *queue, uint32_t timeout_us)
{
	int called, ret;

	if (!queue)
		return -EINVAL;
	if (!queue->ring)
		return -EPERM;
	called = call_all(queue);
	if (called || !timeout_us)
		return called;
	ret = tow_queue_enter(queue, 0, 1, timeout_us);
	/* Also when waiting failed: what has ended is told. */
	called = call_all(queue);
	if (called || ret >= 0 || ret == -ETIMEDOUT)
		return called;
	return ret;
}
