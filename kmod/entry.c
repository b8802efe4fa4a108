// SPDX-License-Identifier: GPL-2.0
/*
 * An entry of a queue from its beginning to its completion.
 *
 * Entries begin in tow_queue_run(), which one at a time does for a queue, and
 * whoever finds somebody at it leaves: what is to begin is seen before he stops.
 * So entries of one channel join their queue pair in their order, whoever made
 * it possible for them to begin: the program by ENTER, or a completion.
 */
#include <linux/slab.h>

#include "device.h"
#include "link.h"
#include "queue.h"
#include "region.h"
#include "remote.h"
#include "trace.h"

/* Called with the lock held.  Completions that the program has not dealt with. */
static u32 tow_queue_unseen(struct tow_queue *queue)
{
	/* The program writes there what it likes: never more than there may be. */
	return min(queue->cq_tail - smp_load_acquire(&queue->ring->cq_head),
		   queue->cq_entries);
}

/**
 * tow_queue_completions - how many completions are there to be dealt with?
 * @queue: the queue
 *
 * Return: the number, as far as the program's word can be trusted.
 */
u32 tow_queue_completions(struct tow_queue *queue)
{
	u32 tail = READ_ONCE(queue->cq_tail);

	return min(tail - READ_ONCE(queue->ring->cq_head), queue->cq_entries);
}

/**
 * tow_entries_take - take entries, each with room for its completion
 * @queue: the queue
 * @count: how many, at most
 * @first: where to: the first one; the others follow by @free
 *
 * Each holds the queue, and ends in tow_entry_complete().
 *
 * Return: how many there are.
 */
u32 tow_entries_take(struct tow_queue *queue, u32 count,
		     struct tow_entry **first)
{
	struct tow_entry *entry;
	u32 room, i;

	spin_lock(&queue->lock);
	room = queue->cq_entries - tow_queue_unseen(queue);
	room -= min(room, queue->busy);
	count = min(count, room);
	*first = queue->free;
	for (i = 0, entry = queue->free; i < count; i++) {
		kref_get(&queue->refs);
		entry = entry->free;
	}
	queue->free = entry;
	queue->busy += count;
	spin_unlock(&queue->lock);
	return count;
}

/* Called with the lock held. */
static void tow_cqe_write(struct tow_queue *queue, u64 user_data, int status)
{
	struct tow_cqe *cqe = &queue->cqes[queue->cq_tail &
					   (queue->cq_entries - 1)];

	WRITE_ONCE(cqe->user_data, user_data);
	WRITE_ONCE(cqe->status, status);
	WRITE_ONCE(cqe->flags, 0);
	WRITE_ONCE(queue->cq_tail, queue->cq_tail + 1);
	/* The program sees what the tail says is there. */
	smp_store_release(&queue->ring->cq_tail, queue->cq_tail);
}

/* Called with the lock held. */
static void tow_entry_give_back(struct tow_entry *entry)
{
	struct tow_queue *queue = entry->queue;

	entry->free = queue->free;
	queue->free = entry;
	queue->busy--;
}

/* Called with the lock held: what a completion wakes. */
static bool tow_queue_should_wake(struct tow_queue *queue)
{
	u32 wanted = READ_ONCE(queue->polled) ? 1 : queue->wanted;

	/* Has a barrier: who is about to sleep sees the completion, or we him. */
	return wq_has_sleeper(&queue->wait) &&
	       tow_queue_unseen(queue) >= wanted;
}

/* Called with the lock held.  Return: somebody waits for this. */
static bool tow_entry_tell(struct tow_entry *entry, int status)
{
	struct tow_queue *queue = entry->queue;

	trace_tow_entry(entry, status);
	if (status || !(entry->flags & TOW_SQE_SILENT))
		tow_cqe_write(queue, entry->user_data, status);
	return tow_queue_should_wake(queue);
}

/* The end of an entry that has been told of, with what it holds but the queue. */
static void tow_entry_free(struct tow_entry *entry, bool begun, int status)
{
	struct tow_queue *queue = entry->queue;
	struct tow_region *region = entry->op.region;
	struct tow_remote *remote = entry->op.remote;

	spin_lock(&queue->lock);
	if (begun)
		tow_order_done(&queue->order, &entry->step, status);
	tow_entry_give_back(entry);
	spin_unlock(&queue->lock);
	if (region)
		tow_region_put(region);
	if (remote)
		tow_remote_put(remote);
}

/* What was to follow an entry that has failed. */
static void tow_chain_cancel(struct tow_queue *queue, struct tow_step *rest)
{
	while (rest) {
		struct tow_entry *entry = container_of(rest, struct tow_entry,
						       step);

		rest = rest->next;
		spin_lock(&queue->lock);
		tow_entry_tell(entry, entry->error ?: -ECANCELED);
		spin_unlock(&queue->lock);
		tow_entry_free(entry, false, 0);
		/* Never the last: the first one's is still there. */
		tow_queue_put(queue);
	}
}

/**
 * tow_entry_complete - an entry has ended
 * @entry: the entry, that tow_queue_run() began; gone afterwards
 * @status: 0 or a negative errno, for the program
 *
 * In process context, without a link's lock.
 */
void tow_entry_complete(struct tow_entry *entry, int status)
{
	struct tow_queue *queue = entry->queue;
	bool wake;

	spin_lock(&queue->lock);
	wake = tow_entry_tell(entry, status);
	spin_unlock(&queue->lock);
	/* A fence waits for all of the chain: only then may it end. */
	if (status && entry->step.next) {
		tow_chain_cancel(queue, entry->step.next);
		wake = true;
	}
	tow_entry_free(entry, true, status);
	if (wake)
		wake_up_all(&queue->wait);
	tow_queue_run(queue);
	tow_queue_put(queue);
}

static void tow_entry_done(struct tow_op *op, int status)
{
	tow_entry_complete(container_of(op, struct tow_entry, op), status);
}

static void tow_entry_begin(struct tow_entry *entry, int error,
			    struct tow_plug *plug)
{
	if (entry->error)
		error = entry->error;
	if (error || entry->opcode == TOW_OP_NOP) {
		tow_entry_complete(entry, error);
		return;
	}
	entry->op.done = tow_entry_done;
	tow_ops_begin(&entry->op, plug);
}

/* Remember where the last operation completes: who waits looks there. */
static void tow_queue_flush(struct tow_queue *queue, struct tow_plug *plug)
{
	struct tow_cq *cq = tow_ops_flush(plug), *old;

	if (!cq)
		return;
	spin_lock(&queue->lock);
	old = queue->cq;
	queue->cq = cq;
	spin_unlock(&queue->lock);
	if (old)
		tow_cq_unref(old);
}

/* Called with the lock held, which is let go of meanwhile. */
static void tow_queue_begin_all(struct tow_queue *queue)
{
	struct tow_plug plug;
	bool plugged = false;
	struct tow_step *step;
	bool cancel;
	int error;

	tow_plug_init(&plug);
	for (;;) {
		step = tow_order_next(&queue->order, &cancel);
		if (!step && !plugged)
			return;
		error = cancel ? -ECANCELED : queue->ended;
		spin_unlock(&queue->lock);
		if (step)
			tow_entry_begin(container_of(step, struct tow_entry,
						     step), error, &plug);
		else
			tow_queue_flush(queue, &plug);
		plugged = step;
		spin_lock(&queue->lock);
	}
}

/**
 * tow_queue_run - begin what may begin
 * @queue: the queue; the caller has a reference
 *
 * In process context, without a link's lock.
 */
void tow_queue_run(struct tow_queue *queue)
{
	spin_lock(&queue->lock);
	if (!queue->running) {
		queue->running = true;
		tow_queue_begin_all(queue);
		queue->running = false;
	}
	spin_unlock(&queue->lock);
}

/**
 * tow_queue_end - nothing begins any more
 * @queue: the queue; the caller has a reference
 * @error: why: -ECANCELED, -ENODEV
 *
 * What has not begun, or waits for its turn, ends with that.
 */
void tow_queue_end(struct tow_queue *queue, int error)
{
	struct tow_flow *flow;
	unsigned long number;

	spin_lock(&queue->lock);
	if (!queue->ended)
		WRITE_ONCE(queue->ended, error);
	spin_unlock(&queue->lock);
	/* They stay until the queue goes. */
	xa_for_each(&queue->flows, number, flow)
		tow_ops_stop(flow, error);
	tow_queue_run(queue);
	wake_up_all(&queue->wait);
}
