// SPDX-License-Identifier: GPL-2.0
/*
 * Pollers: entries are taken without a call.
 *
 * A client with polled queues has one thread, in the cgroups of the task that
 * made the first of these queues, so that its time is the client's.  The thread
 * has no right and no address space of the client's, and needs none: rings are
 * the kernel's memory, and handles were checked when they were made.  The
 * thread gives each queue its turn and takes a few entries of each, as ENTER
 * would.  It waits for nothing but queues' mutexes.
 *
 * Sleeping
 *
 * The thread looks for entries until idle_us after it has last taken some.  It
 * need not look for completions: they are handled as for a program that
 * sleeps.  Before the thread sleeps it sets NEED_WAKEUP in the rings of all its
 * queues, and then looks at each for the last time, with a barrier between; a
 * program writes its index, has a barrier, and looks for NEED_WAKEUP
 * (tow_queue_need_wakeup() of the library).  So one of the two sees the other.
 *
 * An entry without room for its completion cannot be taken.  When the program
 * makes room it looks for NEED_WAKEUP; when a silent entry ends,
 * tow_queue_frees() wakes the thread.
 *
 * The end
 *
 * The thread is stopped when the client ends or the device is removed,
 * whichever comes first; the other one waits for that.  It is not long: the
 * thread is stopped between two turns, and a turn waits for neither programs
 * nor peers.  A queue that has ended is passed over, and its ring has
 * NEED_WAKEUP for ever.
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

/* Return: the queue that has its turn, with a reference; NULL: none. */
static struct tow_queue *tow_poller_next(struct tow_poller *poller)
{
	struct tow_queue *queue, *found = NULL;

	mutex_lock(&poller->lock);
	list_for_each_entry(queue, &poller->queues, poll_link) {
		/* A queue without references is about to leave the list. */
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

/* A turn for each queue.  Return: us to look for more; 0: took nothing. */
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
 * Caller holds poller->lock.  Entries of a queue that has ended are not looked
 * for.  What a program writes to sq_flags deceives only itself.
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
	/* Before the last look: later tow_poller_wake()s are not lost. */
	WRITE_ONCE(poller->kicked, false);
	tow_poller_say(poller, TOW_RING_NEED_WAKEUP);
	/* Pairs with tow_queue_need_wakeup() of the library. */
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

/* May the caller have a poller? */
static int tow_poller_allow(struct tow_poller *poller,
			    struct tow_client *client)
{
	const u64 amount[TOW_RESOURCES] = { [TOW_RES_POLLERS] = 1 };
	struct tow_limits *limits = &client->dev->limits;
	int ret;

	if (capable(CAP_SYS_NICE))
		return 0;
	ret = tow_charge(&poller->charge, client->account, amount);
	/* Where no poller is allowed at all it is a matter of rights. */
	if (ret == -ENOSPC &&
	    !READ_ONCE(limits->max[TOW_LEVEL_DEVICE][TOW_RES_POLLERS]))
		ret = -EPERM;
	return ret;
}

/* Add the poller to the device's list. */
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
		/* The thread has never run, and will not. */
		poller->thread = NULL;
		kthread_stop(thread);
		return ret;
	}
	tow_stat_inc(poller->dev, TOW_STAT_POLLERS);
	trace_tow_poller_start(poller->dev, thread->pid);
	wake_up_process(thread);
	return 0;
}

/* On return the thread has stopped, also if another caller stops it. */
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
 * tow_poller_get - get a client's poller, made if need be
 * @client: the client, which calls
 *
 * Return: the poller, with a reference for the caller; -EPERM: the caller may
 * not have a poller, or the client has ended; -ENOSPC: there are too many;
 * -ENODEV, -ENOMEM, -EINTR.
 */
struct tow_poller *tow_poller_get(struct tow_client *client)
{
	struct tow_poller *poller;

	mutex_lock(&client->poll_lock);
	poller = client->poller;
	/* Otherwise tow_poller_client_end() will find the poller. */
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
 * @poller: the poller; stopped, if this is the last reference, and gone
 *	afterwards
 */
void tow_poller_put(struct tow_poller *poller)
{
	kref_put(&poller->refs, tow_poller_release);
}

/**
 * tow_poller_client_end - stop a client's poller
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
		/* A poller without references is about to leave the list. */
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
 * tow_pollers_stop - stop the pollers of a device that is going
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
 * tow_poller_add - let a poller serve a queue
 * @queue: the queue, complete, with its poller
 */
void tow_poller_add(struct tow_queue *queue)
{
	struct tow_poller *poller = queue->poller;

	mutex_lock(&poller->lock);
	list_add_tail(&queue->poll_link, &poller->queues);
	WRITE_ONCE(poller->count, poller->count + 1);
	mutex_unlock(&poller->lock);
	/* A thread that sleeps has not set NEED_WAKEUP in this ring. */
	tow_poller_wake(poller);
}

/**
 * tow_poller_leave - set NEED_WAKEUP for a queue that has ended
 * @queue: the queue, ended
 *
 * The program then calls ENTER, which says why entries are not taken.
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
 * @queue: the queue, without references; need not have been added
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
