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

/* Entries that are begun before others have their turn. */
#define TOW_RUN_BUDGET		256

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
	/* Pairs with tow_cqe_write(). */
	u32 tail = smp_load_acquire(&queue->cq_tail);

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
	/* The program sees what the tail says is there. */
	smp_store_release(&queue->ring->cq_tail, queue->cq_tail + 1);
	/* Pairs with tow_queue_completions(): the program sees what we told. */
	smp_store_release(&queue->cq_tail, queue->cq_tail + 1);
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
	/* Has a barrier: who is about to sleep sees the completion, or we him. */
	if (!wq_has_sleeper(&queue->wait))
		return false;
	return tow_queue_unseen(queue) >=
	       (READ_ONCE(queue->polled) ? 1 : queue->wanted);
}

/* Called with the lock held: is there what may begin, and nobody at it? */
static bool tow_queue_may_begin(const struct tow_queue *queue)
{
	return !queue->running &&
	       (queue->order.ready.first || queue->order.chains.first);
}

/* What an entry holds, but the queue. */
static void tow_entry_let_go(struct tow_region *region,
			     struct tow_remote *remote)
{
	if (region)
		tow_region_put(region);
	if (remote)
		tow_remote_put(remote);
}

/* Called with the lock held; it is not there any more afterwards. */
static void tow_entry_tell(struct tow_entry *entry, int status)
{
	struct tow_queue *queue = entry->queue;

	trace_tow_entry(entry, status);
	if (status || !(entry->flags & TOW_SQE_SILENT))
		tow_cqe_write(queue, entry->user_data, status);
	tow_entry_give_back(entry);
}

/* The rest of a chain of which an entry has failed. */
static void tow_chain_cancel(struct tow_queue *queue, struct tow_step *rest)
{
	while (rest) {
		struct tow_entry *entry = container_of(rest, struct tow_entry,
						       step);
		struct tow_region *region = entry->op.region;
		struct tow_remote *remote = entry->op.remote;

		rest = rest->next;
		spin_lock(&queue->lock);
		tow_entry_tell(entry, entry->error ?: -ECANCELED);
		spin_unlock(&queue->lock);
		tow_entry_let_go(region, remote);
		/* Never the last: the first one's is still there. */
		tow_queue_put(queue);
	}
	spin_lock(&queue->lock);
	tow_order_end(&queue->order);
	spin_unlock(&queue->lock);
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
	struct tow_region *region = entry->op.region;
	struct tow_remote *remote = entry->op.remote;
	struct tow_step *rest;
	bool wake, more;

	spin_lock(&queue->lock);
	/* At once: a program that sees it finds room, and nothing to fail of. */
	rest = tow_order_done(&queue->order, &entry->step, status);
	tow_entry_tell(entry, status);
	wake = tow_queue_should_wake(queue);
	more = tow_queue_may_begin(queue);
	spin_unlock(&queue->lock);
	tow_entry_let_go(region, remote);
	if (rest) {
		tow_chain_cancel(queue, rest);
		wake = true;
		more = true;
	}
	if (wake)
		wake_up_all(&queue->wait);
	if (more)
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

/*
 * What begins next, and with what it ends if it must not; NULL: nothing.  Then,
 * with @stop, nobody is at it any more.
 */
static struct tow_entry *tow_queue_next(struct tow_queue *queue, bool stop,
					int *error)
{
	struct tow_step *step;
	bool cancel;

	spin_lock(&queue->lock);
	step = tow_order_next(&queue->order, &cancel);
	*error = cancel ? -ECANCELED : queue->ended;
	if (!step && stop)
		queue->running = false;
	spin_unlock(&queue->lock);
	return step ? container_of(step, struct tow_entry, step) : NULL;
}

/* Called by the one who is at it.  Return: false: it is time for others. */
static bool tow_queue_begin_some(struct tow_queue *queue)
{
	int left = TOW_RUN_BUDGET, error;
	struct tow_entry *entry;
	struct tow_plug plug;
	bool plugged = false;

	tow_plug_init(&plug);
	while (left--) {
		entry = tow_queue_next(queue, !plugged, &error);
		if (!entry && !plugged)
			return true;
		if (entry)
			tow_entry_begin(entry, error, &plug);
		else
			tow_queue_flush(queue, &plug);
		plugged = entry;
	}
	tow_queue_flush(queue, &plug);
	return false;
}

/* Somebody else goes on: a completion's context is not one program's alone. */
static void tow_queue_run_later(struct work_struct *work)
{
	struct tow_queue *queue = container_of(work, struct tow_queue, run);

	spin_lock(&queue->lock);
	queue->running = false;
	spin_unlock(&queue->lock);
	tow_queue_run(queue);
	tow_queue_put(queue);
}

/**
 * tow_queue_init_run - prepare a queue's part of this file
 * @queue: new
 */
void tow_queue_init_run(struct tow_queue *queue)
{
	spin_lock_init(&queue->lock);
	tow_order_init(&queue->order);
	INIT_WORK(&queue->run, tow_queue_run_later);
}

/**
 * tow_queue_run - begin what may begin
 * @queue: the queue; the caller has a reference
 *
 * In process context, without a link's lock.
 */
void tow_queue_run(struct tow_queue *queue)
{
	bool running;

	spin_lock(&queue->lock);
	running = queue->running;
	queue->running = true;
	spin_unlock(&queue->lock);
	if (running || tow_queue_begin_some(queue))
		return;
	kref_get(&queue->refs);
	queue_work(tow_wq, &queue->run);
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
