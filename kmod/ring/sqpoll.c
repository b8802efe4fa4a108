// SPDX-License-Identifier: GPL-2.0
/*
 * Pollers: entries are taken without a call.
 *
 * A client with polled queues has one thread, in the cgroups of who made the first
 * of them, so that its time is the client's.  It has no right and no address space
 * of the client's, and needs none: rings are the kernel's memory, and handles were
 * checked when they were made.  It gives each queue its turn and takes a little of
 * each, as ENTER would.  It waits for nothing but queues' mutexes.
 *
 * Sleeping
 *
 * It looks for as long as there was something to take not long ago.  Completions
 * need it not: they come as they do for a program that sleeps.  Before it sleeps it
 * says so in the rings of all its queues, and then looks at each for the last time,
 * with a barrier between; a program writes its index, has a barrier, and looks
 * whether the thread sleeps.  So one of the two sees the other.
 *
 * An entry without room for its completion is none that could be taken.  Room comes
 * from the program, which looks whether the thread sleeps when it has made some; or
 * from a silent entry that has ended, and then from us (tow_queue_frees()).
 *
 * The end
 *
 * The thread is stopped by who ends the client, and by who removes the device,
 * whoever comes first; the other one waits for it.  That is not long: the thread is
 * stopped between two turns, and a turn waits for neither programs nor peers.  A
 * queue that has ended is passed over, and its ring says for ever that nobody looks.
 */
#include <linux/capability.h>
#include <linux/cgroup.h>
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "core/core.h"
#include "core/trace.h"
#include "internal.h"
#include "poller.h"
#include "queue.h"

/* ---- turns ---------------------------------------------------------------- */

/* The queue whose turn it is, with a reference; NULL: there is none. */
static struct tow_queue *tow_poller_next(struct tow_poller *poller)
{
	struct tow_queue *queue, *found = NULL;

	mutex_lock(&poller->lock);
	list_for_each_entry(queue, &poller->queues, poll_link) {
		/* One that is going is about to leave the list. */
		if (kref_get_unless_zero(&queue->refs)) {
			found = queue;
			break;
		}
	}
	if (found)
		list_move_tail(&found->poll_link, &poller->queues);
	mutex_unlock(&poller->lock);
	return found;
}

/* A turn for each queue.  Return: how long to go on looking, in us; 0: in vain. */
static u32 tow_poller_round(struct tow_poller *poller)
{
	unsigned int left = READ_ONCE(poller->count);
	struct tow_queue *queue;
	u32 idle_us = 0;

	while (left-- && !kthread_should_stop()) {
		queue = tow_poller_next(poller);
		if (!queue)
			break;
		if (tow_queue_serve(queue))
			idle_us = max(idle_us, queue->idle_us);
		tow_queue_put(queue);
		cond_resched();
	}
	return idle_us;
}

/* ---- sleeping ------------------------------------------------------------- */

/*
 * Called with the lock held.  For a queue that has ended nobody looks any more.  What
 * a program writes there deceives only itself.
 */
static void tow_poller_write_flags(struct tow_queue *queue, u32 flags)
{
	if (READ_ONCE(queue->ended))
		flags = TOW_RING_NEED_WAKEUP;
	WRITE_ONCE(queue->ring->sq_flags, flags);
}

static void tow_poller_say(struct tow_poller *poller, u32 flags)
{
	struct tow_queue *queue;

	mutex_lock(&poller->lock);
	list_for_each_entry(queue, &poller->queues, poll_link)
		tow_poller_write_flags(queue, flags);
	mutex_unlock(&poller->lock);
}

static bool tow_poller_has_work(struct tow_poller *poller)
{
	struct tow_queue *queue;
	bool has = false;

	mutex_lock(&poller->lock);
	list_for_each_entry(queue, &poller->queues, poll_link) {
		has = tow_queue_can_take(queue);
		if (has)
			break;
	}
	mutex_unlock(&poller->lock);
	return has;
}

static void tow_poller_sleep(struct tow_poller *poller)
{
	/* Before the last look: who kicks from now on is not forgotten. */
	WRITE_ONCE(poller->kicked, false);
	tow_poller_say(poller, TOW_RING_NEED_WAKEUP);
	/* Pairs with the program's, between its index and sq_flags. */
	smp_mb();
	if (!tow_poller_has_work(poller)) {
		trace_tow_poller_sleep(poller->dev, current->pid);
		wait_event_idle(poller->wait, READ_ONCE(poller->kicked) ||
				kthread_should_stop());
		trace_tow_poller_wake(poller->dev, current->pid);
		if (!kthread_should_stop())
			tow_stat_inc(poller->dev, TOW_STAT_POLLER_WAKEUPS);
	}
	tow_poller_say(poller, 0);
}

static int tow_poller_run(void *arg)
{
	struct tow_poller *poller = arg;
	ktime_t until = ktime_get();
	u32 idle_us;

	while (!kthread_should_stop()) {
		idle_us = tow_poller_round(poller);
		if (idle_us)
			until = max(until, ktime_add_us(ktime_get(), idle_us));
		else if (ktime_after(ktime_get(), until))
			tow_poller_sleep(poller);
		else
			cpu_relax();
		cond_resched();
	}
	return 0;
}

/* ---- making, stopping ----------------------------------------------------- */

/* May the caller have one? */
static int tow_poller_allow(struct tow_poller *poller,
			    struct tow_client *client)
{
	const u64 amount[TOW_RESOURCES] = { [TOW_RES_POLLERS] = 1 };
	struct tow_limits *limits = &client->dev->limits;
	int ret;

	if (capable(CAP_SYS_NICE))
		return 0;
	ret = tow_charge(&poller->charge, client->account, amount);
	/* None at all is a matter of rights, and not of how many there are. */
	if (ret == -ENOSPC &&
	    !tow_limits_get(limits, TOW_LEVEL_DEVICE, TOW_RES_POLLERS))
		ret = -EPERM;
	return ret;
}

/* Of the device's list from here on. */
static int tow_poller_publish(struct tow_poller *poller)
{
	struct tow_queues *queues = poller->dev->queues;
	int ret = 0;

	mutex_lock(&queues->lock);
	if (queues->stopped)
		ret = -ENODEV;
	else
		list_add_tail(&poller->link, &queues->pollers);
	mutex_unlock(&queues->lock);
	return ret;
}

static int tow_poller_start(struct tow_poller *poller)
{
	struct task_struct *thread;
	int ret;

	thread = kthread_create(tow_poller_run, poller, "towpoll/%d",
				task_tgid_nr(current));
	if (IS_ERR(thread))
		return PTR_ERR(thread);
	ret = cgroup_attach_task_all(current, thread);
	if (!ret) {
		poller->thread = thread;
		ret = tow_poller_publish(poller);
	}
	if (ret) {
		/* It has never run, and will not. */
		poller->thread = NULL;
		kthread_stop(thread);
		return ret;
	}
	tow_stat_inc(poller->dev, TOW_STAT_POLLERS);
	trace_tow_poller_start(poller->dev, thread->pid);
	wake_up_process(thread);
	return 0;
}

/* Returns when it has stopped, whoever stops it. */
static void tow_poller_stop(struct tow_poller *poller)
{
	mutex_lock(&poller->stop);
	if (poller->thread) {
		trace_tow_poller_stop(poller->dev, poller->thread->pid);
		kthread_stop(poller->thread);
		poller->thread = NULL;
		tow_uncharge(&poller->charge);
		tow_stat_dec(poller->dev, TOW_STAT_POLLERS);
	}
	mutex_unlock(&poller->stop);
}

static void tow_poller_free(struct tow_poller *poller)
{
	tow_uncharge(&poller->charge);
	mutex_destroy(&poller->lock);
	mutex_destroy(&poller->stop);
	tow_device_put(poller->dev);
	kfree(poller);
}

static struct tow_poller *tow_poller_make(struct tow_client *client)
{
	struct tow_poller *poller;
	int ret;

	poller = kzalloc(sizeof(*poller), GFP_KERNEL_ACCOUNT);
	if (!poller)
		return ERR_PTR(-ENOMEM);
	kref_init(&poller->refs);
	INIT_LIST_HEAD(&poller->link);
	INIT_LIST_HEAD(&poller->queues);
	mutex_init(&poller->stop);
	mutex_init(&poller->lock);
	init_waitqueue_head(&poller->wait);
	poller->dev = client->dev;
	kref_get(&poller->dev->refs);
	ret = tow_poller_allow(poller, client);
	if (!ret)
		ret = tow_poller_start(poller);
	if (ret) {
		tow_poller_free(poller);
		return ERR_PTR(ret);
	}
	return poller;
}

/**
 * tow_poller_get - a client's poller, made if need be
 * @client: the client, which calls
 *
 * Return: the poller with a reference for the caller; -EPERM: the caller may have
 * none, or the client has ended; -ENOSPC: no more; -ENODEV, -ENOMEM, -EINTR.
 */
struct tow_poller *tow_poller_get(struct tow_client *client)
{
	struct tow_poller *poller;

	mutex_lock(&client->poll_lock);
	poller = client->poller;
	/* Else who ends it has not looked here so far, and will. */
	if (!poller && READ_ONCE(client->ended))
		poller = ERR_PTR(-EPERM);
	else if (!poller)
		poller = tow_poller_make(client);
	if (!IS_ERR(poller)) {
		client->poller = poller;
		kref_get(&poller->refs);
	}
	mutex_unlock(&client->poll_lock);
	return poller;
}

static void tow_poller_release(struct kref *refs)
{
	struct tow_poller *poller = container_of(refs, struct tow_poller, refs);
	struct tow_queues *queues = poller->dev->queues;

	mutex_lock(&queues->lock);
	list_del_init(&poller->link);
	mutex_unlock(&queues->lock);
	tow_poller_free(poller);
}

/**
 * tow_poller_put - give a reference back
 * @poller: the poller, stopped if it is the last one; may be gone afterwards
 */
void tow_poller_put(struct tow_poller *poller)
{
	kref_put(&poller->refs, tow_poller_release);
}

/**
 * tow_poller_client_end - a client's poller stops
 * @client: the client, ended
 */
void tow_poller_client_end(struct tow_client *client)
{
	struct tow_poller *poller;

	mutex_lock(&client->poll_lock);
	poller = client->poller;
	client->poller = NULL;
	mutex_unlock(&client->poll_lock);
	if (poller) {
		tow_poller_stop(poller);
		tow_poller_put(poller);
	}
}

static struct tow_poller *tow_pollers_next(struct tow_queues *queues)
{
	struct tow_poller *poller, *found = NULL;

	mutex_lock(&queues->lock);
	list_for_each_entry(poller, &queues->pollers, link) {
		/* One that is going is about to leave the list. */
		if (kref_get_unless_zero(&poller->refs)) {
			list_del_init(&poller->link);
			found = poller;
			break;
		}
	}
	mutex_unlock(&queues->lock);
	return found;
}

/**
 * tow_pollers_stop - the device is going: its pollers stop
 * @queues: the device's queues, all of which have ended
 */
void tow_pollers_stop(struct tow_queues *queues)
{
	struct tow_poller *poller;

	while ((poller = tow_pollers_next(queues))) {
		tow_poller_stop(poller);
		tow_poller_put(poller);
	}
}

/* ---- its queues ----------------------------------------------------------- */

/**
 * tow_poller_add - serve a queue
 * @queue: the queue, complete, with its poller
 */
void tow_poller_add(struct tow_queue *queue)
{
	struct tow_poller *poller = queue->poller;

	mutex_lock(&poller->lock);
	list_add_tail(&queue->poll_link, &poller->queues);
	WRITE_ONCE(poller->count, poller->count + 1);
	mutex_unlock(&poller->lock);
	/* It may sleep, and has not said so there. */
	tow_poller_wake(poller);
}

/**
 * tow_poller_leave - nobody looks for a queue's entries any more
 * @queue: the queue, ended
 *
 * Its program is told so: ENTER says why.
 */
void tow_poller_leave(struct tow_queue *queue)
{
	struct tow_poller *poller = queue->poller;

	mutex_lock(&poller->lock);
	tow_poller_write_flags(queue, TOW_RING_NEED_WAKEUP);
	mutex_unlock(&poller->lock);
}

/**
 * tow_poller_remove - undo tow_poller_add()
 * @queue: the queue, of which nobody has a reference; or that was not added
 */
void tow_poller_remove(struct tow_queue *queue)
{
	struct tow_poller *poller = queue->poller;

	mutex_lock(&poller->lock);
	if (!list_empty(&queue->poll_link)) {
		list_del_init(&queue->poll_link);
		WRITE_ONCE(poller->count, poller->count - 1);
	}
	mutex_unlock(&poller->lock);
}
