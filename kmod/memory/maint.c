// SPDX-License-Identifier: GPL-2.0
/*
 * The maintenance queue pair: internal.h says what it is for.  This file
 * decides when there is one, and lets others use it; maint_qp.c makes it.
 *
 * Normal operation
 *
 * A work item makes the queue pair when the device begins, and tries what the
 * device can do with it (maint_trial.c); only if it can register memory the
 * queue pair is READY.
 *
 * Recovery
 *
 * A registration that finds no queue pair makes one; if the queue pair broke
 * under it, it makes another.  An attempt that failed is not repeated before
 * TOW_MAINT_PAUSE is over: until then registrations fail at once.  The work item
 * repeats the first of a row that fail, and each that had no memory.
 *
 * Events may come in any context, with the provider's locks held, so they only
 * queue the work item.  That looks whether the queue pair still serves, and
 * makes it anew if it does not, once.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/jiffies.h>

#include "core/trace.h"
#include "internal.h"

static void tow_maint_set_state(struct tow_maint *maint,
				enum tow_maint_state state, int error)
{
	trace_tow_maint_state(maint->dev, maint->state, state, error);
	spin_lock(&maint->lock);
	maint->state = state;
	maint->error = error;
	maint->times_ready += state == TOW_MAINT_READY;
	spin_unlock(&maint->lock);
	if (state == TOW_MAINT_READY)
		tow_uevent(maint->dev, "maint_ready", "");
	else if (state == TOW_MAINT_FAILED)
		tow_uevent(maint->dev, "maint_failed", "");
}

/**
 * tow_memory_describe - fill in what QUERY tells of the maintenance queue pair
 * @dev: the device
 * @query: where to
 */
void tow_memory_describe(struct tow_device *dev, struct tow_query *query)
{
	struct tow_maint *maint = &dev->memory->maint;

	spin_lock(&maint->lock);
	query->maint_state = maint->state;
	query->maint_error = maint->error;
	query->maint_rebuilds = max(maint->times_ready, 1U) - 1;
	spin_unlock(&maint->lock);
}

/* What a trial that failed has left goes when nothing of it is in flight. */
static void tow_maint_unmake(struct tow_maint *maint)
{
	tow_maint_teardown(maint);
	tow_maint_trial_free(maint);
}

/* There is none; the caller holds @use. */
static int tow_maint_make(struct tow_maint *maint)
{
	bool known = maint->state == TOW_MAINT_FAILED;
	struct tow_device *dev = maint->dev;
	char name[TOW_DEVICE_NAME_MAX];
	int ret;

	tow_maint_set_state(maint, TOW_MAINT_CONNECTING, maint->error);
	ret = tow_device_use_port(dev) ?: 1;
	maint->untried = !tow_device_port_serves(dev->ibdev, dev->port);
	/* Once more after each thing that the device turned out not to do. */
	while (ret > 0) {
		ret = tow_maint_build(maint) ?: tow_maint_try(maint);
		if (ret)
			tow_maint_unmake(maint);
	}
	maint->tried_at = jiffies;
	tow_maint_set_state(maint, ret ? TOW_MAINT_FAILED : TOW_MAINT_READY,
			    ret);
	/* Memory that is short need not be for long. */
	if (ret == -ENOMEM || (ret && !known))
		tow_memory_changed(dev);
	if (ret && !known) {
		tow_device_name(dev, name);
		pr_warn("%s: no maintenance queue pair: error %d (tried again when memory is to be registered, and when a port or an address changes)\n",
			name, ret);
	}
	return ret;
}

/* The caller holds @use.  Returns 0: READY; or an error of tow_maint_run(). */
static int tow_maint_need(struct tow_maint *maint, const struct ib_send_wr *wr)
{
	if (maint->state == TOW_MAINT_READY)
		return 0;
	if (tow_device_going(maint->dev))
		return -ENODEV;
	/* To destroy a memory region costs less than to make a queue pair. */
	if (wr->opcode == IB_WR_LOCAL_INV ||
	    (maint->state == TOW_MAINT_FAILED &&
	     time_before(jiffies, maint->tried_at + TOW_MAINT_PAUSE)))
		return -ENETDOWN;
	return tow_maint_make(maint) ? -ENETDOWN : 0;
}

/* It was READY, and does not serve any more; the caller holds @use. */
static void tow_maint_drop(struct tow_maint *maint, int error)
{
	tow_maint_unmake(maint);
	tow_maint_set_state(maint, TOW_MAINT_WAITING, error);
}

static void tow_maint_work(struct work_struct *work)
{
	struct tow_maint *maint = container_of(to_delayed_work(work),
					       struct tow_maint, work);
	int error;

	mutex_lock(&maint->use);
	error = maint->state == TOW_MAINT_READY ? tow_maint_look(maint) : 0;
	if (error)
		tow_maint_drop(maint, error);
	if (maint->state != TOW_MAINT_READY && !tow_device_going(maint->dev))
		tow_maint_make(maint);
	mutex_unlock(&maint->use);
}

/**
 * tow_maint_run - execute a registration or an invalidation, and wait for it
 * @maint: the maintenance queue pair
 * @wr: the work request, signalled; its wr_cqe is filled in here
 *
 * For users of the device, and for work items that removal waits for.  Makes
 * the queue pair for a registration if there is none, which is bounded.
 *
 * A queue pair that had broken before tells so with the first request.  A
 * registration is repeated, once, on a new one.  Nothing of it is in flight any
 * more, and either nothing was done yet, or the same is done once more: the key
 * and the pages are the same.  A provider that refuses to do it twice makes this
 * fail, after which the memory region is destroyed as it is after every failure.
 * A request that failed in another way may be what broke the queue pair: it is
 * not repeated.
 *
 * Return: 0: it has succeeded.  -ENODEV: the device is going; -ENETDOWN: there
 * is no queue pair: nothing was done.  Others, the driver's among them: what
 * was done is unknown, and nothing is in flight any more.
 */
int tow_maint_run(struct tow_maint *maint, struct ib_send_wr *wr)
{
	int ret, again = 1;

	mutex_lock(&maint->use);
	do {
		ret = tow_maint_need(maint, wr) ?: tow_maint_execute(maint, wr);
		if (maint->state == TOW_MAINT_READY && maint->request.broken) {
			/* Before the caller touches what is in flight. */
			tow_maint_drop(maint, ret);
			tow_memory_changed(maint->dev);
		}
	} while (ret == -ECONNRESET && again--);
	mutex_unlock(&maint->use);
	return ret;
}

/**
 * tow_maint_init - prepare the structure
 * @maint: zeroed memory
 * @dev: the device
 */
void tow_maint_init(struct tow_maint *maint, struct tow_device *dev)
{
	maint->dev = dev;
	spin_lock_init(&maint->lock);
	mutex_init(&maint->use);
	INIT_DELAYED_WORK(&maint->work, tow_maint_work);
	maint->page_bytes = PAGE_SIZE;
}

/**
 * tow_maint_start - make the queue pair for the first time
 * @maint: the maintenance queue pair
 *
 * The attempt is over on return, so that whoever loads the module and asks at
 * once gets an answer that lasts.
 */
void tow_maint_start(struct tow_maint *maint)
{
	queue_delayed_work(tow_wq, &maint->work, 0);
	flush_delayed_work(&maint->work);
}

/**
 * tow_maint_stop - undo tow_maint_start(), for good
 * @maint: the maintenance queue pair of a device that is going; nobody is
 *	a user of that any more, and it has no events
 *
 * Bounded: what the work item waits for ends by itself.
 */
void tow_maint_stop(struct tow_maint *maint)
{
	mutex_lock(&maint->use);
	tow_maint_drop(maint, -ENODEV);
	mutex_unlock(&maint->use);
	/* After the queue pair, whose events queue it. */
	cancel_delayed_work_sync(&maint->work);
}
