// SPDX-License-Identifier: GPL-2.0
/*
 * QUEUE_RESOLVE: many names are looked for without waiting, and each has a completion.
 *
 * Each name takes an entry, which is the room for its completion; the entry is in no
 * order.  All lookups of a queue belong to one work item, tow_queue.look, which alone
 * calls tow_lookup_step(), one lookup after the other.  Whoever wakes a lookup moves it
 * to tow_queue.woken and queues the work item.  The work item has no reference to the
 * queue, but entries do, and without entries it finds nothing to do.
 */
#include <linux/jiffies.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "core/core.h"
#include "internal.h"
#include "poller.h"
#include "queue.h"
#include "remote.h"

/* Published sizes. */
#define TOW_QUEUE_RESOLVE_PUBLISHED	24
#define TOW_RESOLVE_REQUEST_PUBLISHED	40

/**
 * struct tow_queue_lookup - a lookup of a queue
 * @lookup: the lookup
 * @link: in tow_queue.lookups or .woken, under tow_queue.lock
 * @entry: for its completion
 */
struct tow_queue_lookup {
	struct tow_lookup	lookup;
	struct list_head	link;
	struct tow_req		*entry;
};

/* ---- the work item -------------------------------------------------------- */

static void tow_queue_look_soon(struct tow_queue *queue)
{
	mod_delayed_work(tow_lookup_wq, &queue->look, 0);
}

static void tow_queue_lookup_wake(struct tow_lookup *lookup)
{
	struct tow_queue_lookup *of_queue =
		container_of(lookup, struct tow_queue_lookup, lookup);
	struct tow_queue *queue = of_queue->entry->queue;

	spin_lock(&queue->lock);
	list_move_tail(&of_queue->link, &queue->woken);
	spin_unlock(&queue->lock);
	tow_queue_look_soon(queue);
}

/* Give what was found to the client, unless the queue has ended. */
static int tow_queue_lookup_give(struct tow_queue *queue,
				 struct tow_lookup *lookup,
				 struct tow_result *result)
{
	struct tow_resolve found;
	int ret;

	/* The client is there as long as the queue has it. */
	mutex_lock(&queue->submit);
	ret = READ_ONCE(queue->ended);
	if (!ret)
		ret = queue->client ?
		      tow_lookup_give(lookup, queue->client, &found) :
		      -ECANCELED;
	mutex_unlock(&queue->submit);
	if (ret)
		return ret == -EPERM ? -ECANCELED : ret;
	result->handle = found.handle;
	result->bytes = found.bytes;
	return 0;
}

/* Called by the work item.  @status: 0: it was found. */
static void tow_queue_lookup_end(struct tow_queue *queue,
				 struct tow_queue_lookup *of_queue, int status)
{
	struct tow_lookup *lookup = &of_queue->lookup;
	struct tow_result result = {};

	if (!status)
		status = tow_queue_lookup_give(queue, lookup, &result);
	/* Nobody wakes it any more. */
	tow_lookup_end(lookup);
	spin_lock(&queue->lock);
	list_del(&of_queue->link);
	spin_unlock(&queue->lock);
	tow_req_answer(of_queue->entry, status, &result);
	kfree(of_queue);
}

static void tow_queue_lookup_go(struct tow_queue *queue,
				struct tow_queue_lookup *of_queue)
{
	struct tow_lookup *lookup = &of_queue->lookup;
	int ret = READ_ONCE(queue->ended) ?: tow_lookup_step(lookup);
	long left;

	if (ret == -EINPROGRESS) {
		left = tow_lookup_left(lookup);
		if (left <= 0)
			ret = tow_lookup_late(lookup);
		else if (time_before(jiffies + left, queue->look_at))
			queue->look_at = jiffies + left;
	}
	if (ret != -EINPROGRESS)
		tow_queue_lookup_end(queue, of_queue, ret);
}

/* The first lookup that was woken, moved to the others; NULL: there is none. */
static struct tow_queue_lookup *tow_queue_lookup_next(struct tow_queue *queue)
{
	struct tow_queue_lookup *of_queue;

	spin_lock(&queue->lock);
	of_queue = list_first_entry_or_null(&queue->woken,
					    struct tow_queue_lookup, link);
	if (of_queue)
		list_move_tail(&of_queue->link, &queue->lookups);
	spin_unlock(&queue->lock);
	return of_queue;
}

/* Wake the lookups that are late.  Return: whether there are any. */
static bool tow_queue_find_late(struct tow_queue *queue)
{
	struct tow_queue_lookup *of_queue, *next;
	long left, least = MAX_JIFFY_OFFSET;
	bool late;

	if (time_before(jiffies, queue->look_at))
		return false;
	spin_lock(&queue->lock);
	list_for_each_entry_safe(of_queue, next, &queue->lookups, link) {
		left = tow_lookup_left(&of_queue->lookup);
		if (left <= 0)
			list_move_tail(&of_queue->link, &queue->woken);
		else
			least = min(least, left);
	}
	late = !list_empty(&queue->woken);
	spin_unlock(&queue->lock);
	queue->look_at = jiffies + least;
	return late;
}

static void tow_queue_look(struct work_struct *work)
{
	struct tow_queue *queue = container_of(to_delayed_work(work),
					       struct tow_queue, look);
	struct tow_queue_lookup *of_queue;
	bool waits;

	/* A queue without references has no lookup. */
	if (!kref_get_unless_zero(&queue->refs))
		return;
	do {
		while ((of_queue = tow_queue_lookup_next(queue))) {
			tow_queue_lookup_go(queue, of_queue);
			cond_resched();
		}
	} while (tow_queue_find_late(queue));
	spin_lock(&queue->lock);
	waits = !list_empty(&queue->lookups);
	spin_unlock(&queue->lock);
	/* Unless it is queued already, for one that was woken meanwhile. */
	if (waits)
		queue_delayed_work(tow_lookup_wq, &queue->look,
				   queue->look_at - jiffies);
	/* Not here: tow_queue_stop_lookups() waits for this work item. */
	tow_queue_put_later(queue);
}

/**
 * tow_queue_init_lookups - prepare a queue's part of this file
 * @queue: new
 */
void tow_queue_init_lookups(struct tow_queue *queue)
{
	INIT_LIST_HEAD(&queue->lookups);
	INIT_LIST_HEAD(&queue->woken);
	INIT_DELAYED_WORK(&queue->look, tow_queue_look);
	queue->look_at = jiffies + MAX_JIFFY_OFFSET;
}

/**
 * tow_queue_end_lookups - end all lookups of a queue
 * @queue: the queue, ended; the caller has a reference
 *
 * Does not wait for them.
 */
void tow_queue_end_lookups(struct tow_queue *queue)
{
	spin_lock(&queue->lock);
	list_splice_tail_init(&queue->lookups, &queue->woken);
	spin_unlock(&queue->lock);
	tow_queue_look_soon(queue);
}

/**
 * tow_queue_stop_lookups - undo tow_queue_init_lookups()
 * @queue: the queue, without references
 */
void tow_queue_stop_lookups(struct tow_queue *queue)
{
	cancel_delayed_work_sync(&queue->look);
}

/* ---- the call ------------------------------------------------------------- */

static int tow_request_read(const struct tow_resolve_request *request,
			    struct tow_resolve *call)
{
	if (!request->name_bytes || request->name_bytes > TOW_EXPORT_NAME_MAX)
		return -EINVAL;
	call->flags = 0;
	call->peer = request->peer;
	call->rights = request->rights;
	call->timeout_ms = request->timeout_ms;
	call->name_bytes = request->name_bytes;
	call->reserved = request->reserved;
	return copy_from_user(call->name, u64_to_user_ptr(request->name),
			      request->name_bytes) ? -EFAULT : 0;
}

/* A request begins; or 0 or a negative errno, which is its completion's. */
static int tow_request_begin(struct tow_queue *queue, struct tow_req *entry,
			     const struct tow_resolve_request *request)
{
	struct tow_queue_lookup *of_queue;
	struct tow_resolve call;
	int ret;

	ret = tow_request_read(request, &call);
	if (ret)
		return ret;
	of_queue = kzalloc(sizeof(*of_queue), GFP_KERNEL_ACCOUNT);
	if (!of_queue)
		return -ENOMEM;
	of_queue->entry = entry;
	of_queue->lookup.wake = tow_queue_lookup_wake;
	mutex_lock(&queue->submit);
	ret = queue->client ? tow_lookup_begin(&of_queue->lookup, queue->client,
					       &call) : -ECANCELED;
	mutex_unlock(&queue->submit);
	if (ret) {
		kfree(of_queue);
		return ret;
	}
	/* If the queue has ended, the work item sees that. */
	spin_lock(&queue->lock);
	list_add_tail(&of_queue->link, &queue->woken);
	spin_unlock(&queue->lock);
	return 0;
}

/* Return: 0: the request was begun, or has completed; else the call's error. */
static int tow_queue_resolve_one(struct tow_queue *queue, void __user *from,
				 u32 size)
{
	const struct tow_result nothing = {};
	struct tow_resolve_request request;
	struct tow_req *entry;
	int ret;

	ret = copy_struct_from_user(&request, sizeof(request), from, size);
	if (ret)
		return ret;
	if (!tow_reqs_take(queue, 1, &entry))
		return -EBUSY;
	entry->user_data = request.user_data;
	ret = tow_request_begin(queue, entry, &request);
	if (ret)
		tow_req_answer(entry, ret, &nothing);
	return 0;
}

static int tow_queue_resolve_check(const struct tow_queue *queue,
				   const struct tow_queue_resolve *call)
{
	if (call->flags || !queue->results || !call->count ||
	    call->count > TOW_QUEUE_RESOLVE_MAX ||
	    call->request_size < TOW_RESOLVE_REQUEST_PUBLISHED ||
	    call->request_size > PAGE_SIZE)
		return -EINVAL;
	return 0;
}

/**
 * tow_queue_resolve - QUEUE_RESOLVE
 * @queue: the queue; the caller's process is its client's
 * @user: struct tow_queue_resolve
 *
 * Return: how many requests were begun, or a negative errno: see uapi/towline.h.
 */
long tow_queue_resolve(struct tow_queue *queue, void __user *user)
{
	struct tow_queue_resolve call;
	u32 user_size, i;
	int ret;

	BUILD_BUG_ON(sizeof(call) < TOW_QUEUE_RESOLVE_PUBLISHED);

	ret = tow_call_copy_in(&call, sizeof(call), TOW_QUEUE_RESOLVE_PUBLISHED,
			       user, &user_size);
	if (!ret)
		ret = tow_queue_resolve_check(queue, &call) ?:
		      tow_queue_ended_error(queue);
	if (ret)
		return ret;
	for (i = 0; i < call.count && !ret; i++) {
		ret = tow_queue_resolve_one(queue,
					    u64_to_user_ptr(call.requests +
							    (u64)i * call.request_size),
					    call.request_size);
		cond_resched();
	}
	/* Together, so that names share messages. */
	tow_queue_look_soon(queue);
	/* It may wait for room that was taken here. */
	if (queue->poller)
		tow_poller_wake(queue->poller);
	if (ret)
		i--;
	return (long)i ?: ret;
}
