/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A client's poller: the thread that takes the entries of its polled queues.
 */
#ifndef TOW_POLLER_H
#define TOW_POLLER_H

#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/types.h>
#include <linux/wait.h>

#include "core/core.h"

struct task_struct;
struct tow_client;
struct tow_device;
struct tow_queue;
struct tow_queues;

/**
 * struct tow_poller - a thread, and the queues that it serves
 * @refs: held by its client and by each of its queues
 * @dev: the device, with a reference
 * @link: in tow_queues.pollers, under tow_queues.lock; empty: in no list
 * @charge: for one poller, until it has stopped; nothing with CAP_SYS_NICE
 * @stop: held to stop the thread; protects @thread and @charge once the thread
 *	runs
 * @thread: the thread; NULL: it has stopped
 * @kicked: there may be something to take: the thread must not sleep
 * @wait: where the thread sleeps
 *
 * @lock: protects @queues and @count; the thread holds it to choose a queue
 * @queues: struct tow_queue, without references; the first one has the next
 *	turn
 * @count: how many @queues; read without the lock
 */
struct tow_poller {
	struct kref		refs;
	struct tow_device	*dev;
	struct list_head	link;
	struct tow_charge	charge;
	/* protects thread, charge */
	struct mutex		stop;
	struct task_struct	*thread;
	bool			kicked;
	wait_queue_head_t	wait;

	/* protects queues, count */
	struct mutex		lock;
	struct list_head	queues;
	unsigned int		count;
};

struct tow_poller *tow_poller_get(struct tow_client *client);
void tow_poller_put(struct tow_poller *poller);
void tow_poller_add(struct tow_queue *queue);
void tow_poller_leave(struct tow_queue *queue);
void tow_poller_remove(struct tow_queue *queue);
void tow_poller_client_end(struct tow_client *client);
void tow_pollers_stop(struct tow_queues *queues);

/**
 * tow_poller_wake - wake a poller, as there may be something to take
 * @poller: the poller
 *
 * In any context.
 */
static inline void tow_poller_wake(struct tow_poller *poller)
{
	WRITE_ONCE(poller->kicked, true);
	wake_up(&poller->wait);
}

#endif /* TOW_POLLER_H */
