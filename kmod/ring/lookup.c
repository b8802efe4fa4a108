// SPDX-License-Identifier: GPL-2.0
/*
 * QUEUE_RESOLVE: many names are looked for, and many peers connected to, without waiting,
 * and each has a completion.
 *
 * Each name takes an entry, which is the room for its completion; the entry is in no
 * order.  All lookups of a queue belong to one work item, tow_queue.look, which alone
 * calls tow_lookup_step(), one lookup after the other.  Whoever wakes a lookup adds it
 * to tow_queue.woken and queues the work item.  The work item has no reference to the
 * queue, but entries do, and without entries it finds nothing to do.
 *
 * The work item allocates nothing that programs are charged for: memory is taken in the
 * call, and so is the handle's number.
 */
#include <linux/jiffies.h>
#include <linux/minmax.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "core/core.h"
#include "directory.h"
#include "internal.h"
#include "queue.h"
#include "remote.h"

/* Published sizes. */
#define TOW_QUEUE_RESOLVE_PUBLISHED	24
#define TOW_RESOLVE_REQUEST_PUBLISHED	64

/* Lookups that the work item looks at before others have their turn. */
#define TOW_LOOKUP_BUDGET		256

/**
 * struct tow_queue_lookup - a lookup of a queue
 * @lookup: the lookup
 * @link: in tow_queue.woken, under tow_queue.lock; or empty
 * @node: in tow_queue.lookups; used by the work item only, like @timed
 * @timed: it is there
 * @queue: the queue
 * @entry: for its completion
 */
struct tow_queue_lookup {
	struct tow_lookup	lookup;
	struct list_head	link;
	struct timerqueue_node	node;
	bool			timed;
	struct tow_queue	*queue;
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
	struct tow_queue *queue = of_queue->queue;
	bool first;

	spin_lock(&queue->lock);
	first = list_empty(&queue->woken);
	if (list_empty(&of_queue->link))
		list_add_tail(&of_queue->link, &queue->woken);
	spin_unlock(&queue->lock);
	/* Else the work item is queued, or looks again before it ends. */
	if (first)
		tow_queue_look_soon(queue);
}

/* Until when a lookup may wait, or has waited for @left jiffies. */
static void tow_queue_lookup_wait(struct tow_queue *queue,
				  struct tow_queue_lookup *of_queue, long left)
{
	if (of_queue->timed)
		timerqueue_del(&queue->lookups, &of_queue->node);
	of_queue->node.expires = (s64)get_jiffies_64() + left;
	of_queue->timed = true;
	timerqueue_add(&queue->lookups, &of_queue->node);
}

/* Called by the work item.  @status: 0: it was found. */
static void tow_queue_lookup_end(struct tow_queue *queue,
				 struct tow_queue_lookup *of_queue, int status)
{
	struct tow_lookup *lookup = &of_queue->lookup;
	struct tow_client *client = lookup->client;
	u32 flag = lookup->dials ? TOW_CQE_CONNECTED : TOW_CQE_FOUND;
	struct tow_req *entry = of_queue->entry;
	struct tow_result result = {};
	struct tow_resolve found;

	kref_get(&client->refs);
	if (!status)
		status = tow_lookup_give(lookup, &found);
	if (!status) {
		result.handle = found.handle;
		result.bytes = found.bytes;
	}
	/* Nobody wakes it any more. */
	tow_lookup_end(lookup);
	spin_lock(&queue->lock);
	list_del(&of_queue->link);
	spin_unlock(&queue->lock);
	if (of_queue->timed)
		timerqueue_del(&queue->lookups, &of_queue->node);
	kfree(of_queue);
	/* The client has ended, and with it the queue. */
	if (status == -EPERM)
		status = -ECANCELED;
	if (!tow_req_answer(entry, status, flag, &result) && flag == TOW_CQE_FOUND)
		tow_client_release_remote(client, result.handle);
	tow_client_put(client);
}

static void tow_queue_lookup_go(struct tow_queue *queue,
				struct tow_queue_lookup *of_queue,
				struct tow_assoc **asked)
{
	struct tow_lookup *lookup = &of_queue->lookup;
	int ret = READ_ONCE(queue->ended) ?: tow_lookup_step(lookup, asked);
	long left;

	if (ret == -EINPROGRESS) {
		left = tow_lookup_left(lookup);
		if (left > 0)
			tow_queue_lookup_wait(queue, of_queue, left);
		else
			ret = tow_lookup_late(lookup);
	}
	if (ret != -EINPROGRESS)
		tow_queue_lookup_end(queue, of_queue, ret);
}

/* The lookup that may not wait any longer, or any if the queue has ended; or NULL. */
static struct tow_queue_lookup *tow_queue_lookup_first(struct tow_queue *queue)
{
	struct timerqueue_node *node = timerqueue_getnext(&queue->lookups);

	if (!node || (!READ_ONCE(queue->ended) &&
		      node->expires > (s64)get_jiffies_64()))
		return NULL;
	return container_of(node, struct tow_queue_lookup, node);
}

/* The first lookup that was woken, which is not any more; or NULL. */
static struct tow_queue_lookup *tow_queue_lookup_next(struct tow_queue *queue)
{
	struct tow_queue_lookup *of_queue;

	spin_lock(&queue->lock);
	of_queue = list_first_entry_or_null(&queue->woken,
					    struct tow_queue_lookup, link);
	if (of_queue)
		list_del_init(&of_queue->link);
	spin_unlock(&queue->lock);
	return of_queue;
}

/* Queue the work item for the lookup that will be late first. */
static void tow_queue_look_later(struct tow_queue *queue)
{
	struct timerqueue_node *node = timerqueue_getnext(&queue->lookups);
	s64 left;

	if (!node)
		return;
	left = node->expires - (s64)get_jiffies_64();
	/* Unless it is queued already, for one that was woken meanwhile. */
	queue_delayed_work(tow_lookup_wq, &queue->look,
			   clamp_t(s64, left, 0, MAX_JIFFY_OFFSET));
}

static void tow_queue_look(struct work_struct *work)
{
	struct tow_queue *queue = container_of(to_delayed_work(work),
					       struct tow_queue, look);
	struct tow_queue_lookup *of_queue;
	struct tow_assoc *asked = NULL;
	int left = TOW_LOOKUP_BUDGET;

	/* A queue without references has no lookup. */
	if (!kref_get_unless_zero(&queue->refs))
		return;
	/* First those that are late, as there may always be others. */
	while (left && ((of_queue = tow_queue_lookup_first(queue)) ||
			(of_queue = tow_queue_lookup_next(queue)))) {
		tow_queue_lookup_go(queue, of_queue, &asked);
		left--;
		cond_resched();
	}
	tow_lookup_send(&asked);
	if (left)
		tow_queue_look_later(queue);
	else
		tow_queue_look_soon(queue);
	/* Not here: tow_queue_stop_lookups() waits for this work item. */
	tow_queue_put_later(queue);
}

/**
 * tow_queue_init_lookups - prepare a queue's part of this file
 * @queue: new
 */
void tow_queue_init_lookups(struct tow_queue *queue)
{
	timerqueue_init_head(&queue->lookups);
	INIT_LIST_HEAD(&queue->woken);
	INIT_DELAYED_WORK(&queue->look, tow_queue_look);
}

/**
 * tow_queue_end_lookups - end all lookups of a queue
 * @queue: the queue, ended; the caller has a reference
 *
 * Does not wait for them.
 */
void tow_queue_end_lookups(struct tow_queue *queue)
{
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

/**
 * tow_queue_drop_found - give up what was found, and the program did not look at
 * @queue: the queue, ended
 * @client: what was its client
 */
void tow_queue_drop_found(struct tow_queue *queue, struct tow_client *client)
{
	u32 tail, unseen, i;

	/* With the client it goes anyway. */
	if (!queue->results || READ_ONCE(client->ended))
		return;
	spin_lock(&queue->lock);
	tail = queue->cq_tail;
	unseen = tow_queue_unseen(queue);
	spin_unlock(&queue->lock);
	for (; unseen; unseen--) {
		i = (tail - unseen) & (queue->cq_entries - 1);
		/* The program may write there: then it gives up what it says. */
		if (READ_ONCE(queue->cqes[i].flags) & TOW_CQE_FOUND)
			tow_client_release_remote(client,
						  READ_ONCE(queue->results[i].handle));
		cond_resched();
	}
}

/* ---- the call ------------------------------------------------------------- */

static int tow_request_read(const struct tow_resolve_request *request,
			    struct tow_resolve *call)
{
	if (memchr_inv(request->address, 0, sizeof(request->address)) ||
	    request->scope_id || request->port || request->reserved1)
		return -EINVAL;
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
static int tow_request_begin(struct tow_req *entry, struct tow_client *client,
			     const struct tow_resolve_request *request,
			     struct list_head *begun)
{
	struct tow_queue_lookup *of_queue;
	struct tow_resolve call;
	int ret;

	ret = request->peer ? tow_request_read(request, &call) : 0;
	if (ret)
		return ret;
	of_queue = kzalloc(sizeof(*of_queue), GFP_KERNEL_ACCOUNT);
	if (!of_queue)
		return -ENOMEM;
	of_queue->queue = entry->queue;
	of_queue->entry = entry;
	of_queue->lookup.wake = tow_queue_lookup_wake;
	timerqueue_init(&of_queue->node);
	/* The client may have to wait for its memory, but nobody else. */
	lockdep_assert_not_held(&entry->queue->submit);
	ret = request->peer ?
	      tow_lookup_begin(&of_queue->lookup, client, &call) :
	      tow_lookup_begin_dial(&of_queue->lookup, client, request);
	if (ret)
		kfree(of_queue);
	else
		list_add_tail(&of_queue->link, begun);
	return ret == -EPERM ? -ECANCELED : ret;
}

/* Return: 0: the request was begun, or has completed; else the call's error. */
static int tow_queue_resolve_one(struct tow_queue *queue,
				 struct tow_client *client, void __user *from,
				 u32 size, struct list_head *begun)
{
	const struct tow_result nothing = {};
	struct tow_resolve_request request;
	struct tow_req *entry;
	int ret;

	ret = copy_struct_from_user(&request, sizeof(request), from, size);
	if (ret)
		return ret;
	entry = tow_req_take(queue);
	if (!entry)
		return -EBUSY;
	entry->user_data = request.user_data;
	ret = tow_request_begin(entry, client, &request, begun);
	if (ret)
		tow_req_answer(entry, ret, 0, &nothing);
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

/* Return: how many requests were begun, or a negative errno. */
static long tow_queue_resolve_all(struct tow_queue *queue,
				  struct tow_client *client,
				  const struct tow_queue_resolve *call)
{
	LIST_HEAD(begun);
	int ret = 0;
	u32 i;

	for (i = 0; i < call->count; i++) {
		ret = tow_queue_resolve_one(queue, client,
					    u64_to_user_ptr(call->requests +
							    (u64)i * call->request_size),
					    call->request_size, &begun);
		if (ret)
			break;
		cond_resched();
	}
	/* Together, so that names share messages.  The queue may have ended. */
	spin_lock(&queue->lock);
	list_splice_tail(&begun, &queue->woken);
	spin_unlock(&queue->lock);
	tow_queue_look_soon(queue);
	return (long)i ?: ret;
}

/* The queue's client, with a reference; NULL: it has ended. */
static struct tow_client *tow_queue_get_client(struct tow_queue *queue)
{
	struct tow_client *client;

	mutex_lock(&queue->submit);
	client = queue->client;
	if (client)
		kref_get(&client->refs);
	mutex_unlock(&queue->submit);
	return client;
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
	struct tow_client *client;
	u32 user_size;
	long ret;

	BUILD_BUG_ON(sizeof(call) < TOW_QUEUE_RESOLVE_PUBLISHED);

	ret = tow_call_copy_in(&call, sizeof(call), TOW_QUEUE_RESOLVE_PUBLISHED,
			       user, &user_size);
	if (!ret)
		ret = tow_queue_resolve_check(queue, &call) ?:
		      tow_queue_ended_error(queue);
	if (ret)
		return ret;
	client = tow_queue_get_client(queue);
	if (!client)
		return -EPERM;
	ret = tow_queue_resolve_all(queue, client, &call);
	tow_client_put(client);
	return ret;
}
