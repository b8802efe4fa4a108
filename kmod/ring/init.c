// SPDX-License-Identifier: GPL-2.0
/*
 * A device's queues begin and stop, and a client's queues end.
 *
 * tow_queues.list has each queue from tow_queue_publish() until its last
 * reference is put, without a reference: a user of the list takes one, or keeps
 * tow_queues.lock.  After tow_queues_stop() no queue is added, and nothing
 * begins on the queues there are; what is on its way ends with its connection.
 *
 * A queue points to its client, without a reference, until its descriptor is
 * closed or the client ends, whichever comes first: the client is not freed
 * before tow_queue_client_end() has emptied tow_client.queues.  tow_queue_publish()
 * adds no queue of a client that has ended.
 */
#include <linux/sizes.h>

#include "core/core.h"
#include "internal.h"
#include "notify.h"
#include "queue.h"

/* Default of inflight_bytes. */
#define TOW_INFLIGHT_BYTES	SZ_2M

/**
 * tow_queues_init - prepare a device's queues
 * @dev: the device, after tow_notify_init()
 *
 * Return: 0 or -ENOMEM.
 */
int tow_queues_init(struct tow_device *dev)
{
	struct tow_queues *queues = kzalloc(sizeof(*queues), GFP_KERNEL);

	if (!queues)
		return -ENOMEM;
	mutex_init(&queues->lock);
	INIT_LIST_HEAD(&queues->list);
	INIT_LIST_HEAD(&queues->pollers);
	queues->inflight_bytes = TOW_INFLIGHT_BYTES;
	queues->op_stall_ms = TOW_OP_STALL_MS;
	dev->queues = queues;
	dev->notify->wait_ended = tow_queue_wait_ended;
	return 0;
}

static struct tow_queue *tow_queues_next(struct tow_queues *queues)
{
	struct tow_queue *queue;

	mutex_lock(&queues->lock);
	queues->stopped = true;
	list_for_each_entry(queue, &queues->list, link) {
		if (!READ_ONCE(queue->gone) &&
		    kref_get_unless_zero(&queue->refs)) {
			queue->gone = true;
			mutex_unlock(&queues->lock);
			return queue;
		}
	}
	mutex_unlock(&queues->lock);
	return NULL;
}

/**
 * tow_queues_stop - end all queues of a device that is going
 * @queues: the device's queues
 *
 * Wakes the calls that wait.  What is on its way ends with its connection.
 */
void tow_queues_stop(struct tow_queues *queues)
{
	struct tow_queue *queue;

	while ((queue = tow_queues_next(queues))) {
		tow_queue_end(queue, -ENODEV);
		tow_queue_put(queue);
	}
}

/**
 * tow_queues_busy - has a client's entry not ended?
 * @queues: the device's queues
 * @account: the account of the client, which has ended
 *
 * Return: true if an entry of one of its queues has not ended.
 */
bool tow_queues_busy(struct tow_queues *queues,
		     const struct tow_account *account)
{
	struct tow_queue *queue;
	bool busy = false;

	mutex_lock(&queues->lock);
	list_for_each_entry(queue, &queues->list, link) {
		/* A queue is charged as long as it is in the list. */
		if (queue->charge.account != account)
			continue;
		spin_lock(&queue->lock);
		busy = queue->busy;
		spin_unlock(&queue->lock);
		if (busy)
			break;
	}
	mutex_unlock(&queues->lock);
	return busy;
}

/**
 * tow_queues_cleanup - undo tow_queues_init()
 * @dev: the device; its queues have gone
 */
void tow_queues_cleanup(struct tow_device *dev)
{
	WARN_ON_ONCE(!list_empty(&dev->queues->list));
	mutex_destroy(&dev->queues->lock);
	kfree(dev->queues);
}

/* The client's first queue, with a reference; NULL: it has none. */
static struct tow_queue *tow_queue_first_of(struct tow_client *client)
{
	struct tow_queues *queues = client->dev->queues;
	struct tow_queue *queue;

	mutex_lock(&queues->lock);
	queue = list_first_entry_or_null(&client->queues, struct tow_queue,
					 of_client);
	/* Its descriptor has a reference until tow_queue_leave_client(). */
	if (queue)
		kref_get(&queue->refs);
	mutex_unlock(&queues->lock);
	return queue;
}

/**
 * tow_queue_leave_client - a queue has no client any more
 * @queue: the queue; the caller has a reference
 *
 * Waits for calls that take entries, not for entries.
 */
void tow_queue_leave_client(struct tow_queue *queue)
{
	struct tow_queues *queues = queue->dev->queues;
	struct tow_client *client;

	mutex_lock(&queue->submit);
	client = queue->client;
	if (client)
		kref_get(&client->refs);
	WRITE_ONCE(queue->client, NULL);
	mutex_unlock(&queue->submit);
	/* Not before: the client is there until its list is empty. */
	mutex_lock(&queues->lock);
	list_del_init(&queue->of_client);
	mutex_unlock(&queues->lock);
	tow_queue_end(queue, -ECANCELED);
	if (client) {
		tow_queue_drop_found(queue, client);
		tow_client_put(client);
	}
}

/**
 * tow_queue_client_end - end a client's queues
 * @client: the client, ended
 */
void tow_queue_client_end(struct tow_client *client)
{
	struct tow_queue *queue;

	while ((queue = tow_queue_first_of(client))) {
		tow_queue_leave_client(queue);
		tow_queue_put(queue);
	}
}
