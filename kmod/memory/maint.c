// SPDX-License-Identifier: GPL-2.0
/*
 * The maintenance queue pair: internal.h says what it is for.  This file decides
 * when there is one, and lets others use it; maint_qp.c makes it.
 *
 * Normal operation
 *
 * One work item makes the queue pair and tries what the device can do with it
 * (maint_trial.c); only if it can register memory the queue pair is READY.
 *
 * Recovery
 *
 * Whoever learns that something is wrong (the queue pair's or the device's
 * events) only leaves a note and kicks the work item: they may be called with
 * the provider's locks held.  The work item tears everything down and makes it
 * anew.  Attempts that fail, and queue pairs that break soon after they were
 * made, lead to pauses that double, and after TOW_MAINT_ATTEMPTS to FAILED.
 * From there only a change leads back: a port that comes up, an address that
 * comes or goes.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/jiffies.h>

#include "core/trace.h"
#include "internal.h"

/* 10, 20, ... 2560 ms between them: about five seconds in all. */
#define TOW_MAINT_ATTEMPTS	10
#define TOW_MAINT_PAUSE_MS	10

/* Whatever held this long was sound; what breaks now is something new. */
#define TOW_MAINT_SOUND_MS	10000

/* As long as it may take to make a queue pair anew, pauses included. */
#define TOW_MAINT_READY_MS	6000

static void tow_maint_set_state(struct tow_maint *maint,
				enum tow_maint_state state, int error)
{
	unsigned long flags;

	trace_tow_maint_state(maint->dev, maint->state, state,
			      error);
	spin_lock_irqsave(&maint->lock, flags);
	/* Waiters look without the lock. */
	WRITE_ONCE(maint->state, state);
	maint->error = error;
	spin_unlock_irqrestore(&maint->lock, flags);
	if (state == TOW_MAINT_READY)
		tow_uevent(maint->dev, "maint_ready", "");
	else if (state == TOW_MAINT_FAILED)
		tow_uevent(maint->dev, "maint_failed", "");
	wake_up(&maint->wait);
}

/**
 * tow_maint_changed - something happened that may help, or moved our address
 * @maint: the maintenance queue pair
 *
 * May be called in any context.
 */
void tow_maint_changed(struct tow_maint *maint)
{
	unsigned long flags;

	spin_lock_irqsave(&maint->lock, flags);
	if (!maint->stopping) {
		maint->changed = true;
		mod_delayed_work(tow_wq, &maint->work, 0);
	}
	spin_unlock_irqrestore(&maint->lock, flags);
}

/* Is the device going?  Then nobody waits any more. */
static bool tow_maint_stopping(struct tow_maint *maint)
{
	return READ_ONCE(maint->stopping);
}

/**
 * tow_maint_describe - fill in what QUERY tells
 * @maint: the maintenance queue pair
 * @query: where to
 */
void tow_maint_describe(struct tow_maint *maint, struct tow_query *query)
{
	unsigned long flags;

	spin_lock_irqsave(&maint->lock, flags);
	query->maint_state = maint->state;
	query->maint_error = maint->error;
	query->maint_rebuilds = maint->rebuilds;
	spin_unlock_irqrestore(&maint->lock, flags);
}

/* Have the work item run at once. */
static void tow_maint_kick(struct tow_maint *maint)
{
	spin_lock_irq(&maint->lock);
	if (!maint->stopping)
		mod_delayed_work(tow_wq, &maint->work, 0);
	spin_unlock_irq(&maint->lock);
}

/* After @error: try again after a pause, or give up. */
static void tow_maint_retry(struct tow_maint *maint, int error)
{
	unsigned int pause_ms = TOW_MAINT_PAUSE_MS << (maint->attempts - 1);
	char name[TOW_DEVICE_NAME_MAX];

	if (maint->attempts >= TOW_MAINT_ATTEMPTS) {
		tow_maint_set_state(maint, TOW_MAINT_FAILED, error);
		tow_device_name(maint->dev, name);
		pr_warn("%s: no maintenance queue pair after %u attempts: error %d (tried again when a port or an address changes)\n",
			name, maint->attempts, error);
		return;
	}
	tow_maint_set_state(maint, TOW_MAINT_WAITING, error);
	spin_lock_irq(&maint->lock);
	if (!maint->stopping)
		mod_delayed_work(tow_wq, &maint->work,
				 msecs_to_jiffies(pause_ms));
	spin_unlock_irq(&maint->lock);
}

/* What failed before may work now. */
static void tow_maint_anew(struct tow_maint *maint)
{
	maint->attempts = 0;
	maint->untried = false;
}

/* What a trial that failed has left goes when nothing of it is in flight. */
static void tow_maint_unmake(struct tow_maint *maint)
{
	tow_maint_teardown(maint);
	tow_maint_trial_free(maint);

	/* What its end made it say must not be held against the next one. */
	spin_lock_irq(&maint->lock);
	maint->broken = 0;
	spin_unlock_irq(&maint->lock);
}

/*
 * The queue pair was READY and is of no use any more.  Returns whether it may
 * be made anew at once.
 */
static bool tow_maint_fail(struct tow_maint *maint, int error, bool changed)
{
	unsigned long sound = maint->ready_at +
			      msecs_to_jiffies(TOW_MAINT_SOUND_MS);

	if (changed)
		tow_maint_anew(maint);
	else if (time_after(jiffies, sound))
		maint->attempts = 0;
	tow_maint_unmake(maint);
	if (maint->attempts) {
		tow_maint_retry(maint, error);
		return false;
	}
	tow_maint_set_state(maint, TOW_MAINT_WAITING, error);
	return true;
}

/* The queue pair was READY.  Is it still, and if not, may it be made now? */
static bool tow_maint_check(struct tow_maint *maint, int broken, bool changed)
{
	if (!broken && changed && !tow_maint_address_valid(maint))
		broken = -EADDRNOTAVAIL;
	if (!broken && changed &&
	    tow_device_choose_port(maint->dev) !=
	    maint->dev->port)
		broken = -EADDRNOTAVAIL;
	/* The device may be tried as a whole now. */
	if (!broken && changed && maint->untried &&
	    tow_maint_port_active(maint))
		broken = -EAGAIN;
	if (!broken)
		return false;
	return tow_maint_fail(maint, broken, changed);
}

/* Take the notes that were left, and decide whether to make a queue pair. */
static bool tow_maint_begin(struct tow_maint *maint)
{
	bool changed;
	int broken;

	spin_lock_irq(&maint->lock);
	broken = maint->broken;
	changed = maint->changed;
	maint->broken = 0;
	maint->changed = false;
	spin_unlock_irq(&maint->lock);

	if (tow_maint_stopping(maint))
		return false;
	if (maint->state == TOW_MAINT_READY)
		return tow_maint_check(maint, broken, changed);
	if (changed)
		tow_maint_anew(maint);
	return changed || maint->state == TOW_MAINT_WAITING;
}

/* Ready, unless an event came between the trial and now. */
static int tow_maint_finish(struct tow_maint *maint)
{
	int broken;

	spin_lock_irq(&maint->lock);
	broken = maint->broken;
	maint->broken = 0;
	if (!broken && maint->was_ready)
		maint->rebuilds++;
	spin_unlock_irq(&maint->lock);
	if (broken)
		return broken;
	maint->was_ready = true;
	maint->ready_at = jiffies;
	tow_maint_set_state(maint, TOW_MAINT_READY, 0);
	return 0;
}

static void tow_maint_make(struct tow_maint *maint)
{
	int ret;

	maint->attempts++;
	tow_maint_set_state(maint, TOW_MAINT_CONNECTING, maint->error);
	ret = tow_device_use_port(maint->dev);
	if (!ret)
		ret = tow_maint_build(maint);
	if (!ret)
		ret = tow_maint_try(maint);
	if (!ret)
		ret = tow_maint_finish(maint);
	if (ret) {
		tow_maint_unmake(maint);
		tow_maint_retry(maint, ret);
	}
}

static void tow_maint_work(struct work_struct *work)
{
	struct tow_maint *maint = container_of(to_delayed_work(work),
					       struct tow_maint, work);

	mutex_lock(&maint->use);
	if (tow_maint_begin(maint))
		tow_maint_make(maint);
	mutex_unlock(&maint->use);
}

/* Is it known whether there is, or will be, a queue pair? */
static bool tow_maint_decided(struct tow_maint *maint)
{
	enum tow_maint_state state = READ_ONCE(maint->state);

	return state == TOW_MAINT_READY || state == TOW_MAINT_FAILED ||
	       tow_maint_stopping(maint);
}

/* Wait until it is worth while to look again whether there is a queue pair. */
static int tow_maint_wait_ready(struct tow_maint *maint)
{
	unsigned long time = msecs_to_jiffies(TOW_MAINT_READY_MS);
	long left;

	left = wait_event_killable_timeout(maint->wait, tow_maint_decided(maint),
					   time);
	if (left < 0)
		return -EINTR;
	if (tow_maint_stopping(maint))
		return -ENODEV;
	return READ_ONCE(maint->state) == TOW_MAINT_READY ? 0 : -ENETDOWN;
}

/* Called with @use held, READY. */
static int tow_maint_run_ready(struct tow_maint *maint,
			       struct ib_send_wr *first)
{
	int ret = tow_maint_execute(maint, first);

	/* Before the caller may do anything with what is still outstanding. */
	if (ret && maint->request.broken && tow_maint_fail(maint, ret, false))
		tow_maint_kick(maint);
	return ret;
}

/**
 * tow_maint_run - execute work requests, and wait for them
 * @maint: the maintenance queue pair
 * @first: a chain of at most TOW_MAINT_SEND_WR, each signalled; their wr_cqe is
 *	filled in here
 *
 * For users of the device, and for work items that removal waits for.  Waits,
 * bounded, for a queue pair that is being made anew.
 *
 * Return: 0: all have succeeded.  -ENODEV: the device is going; -ENETDOWN:
 * there is no queue pair; -EINTR: the caller was killed while waiting for one:
 * nothing was done.  Others, the driver's among them: what was done is unknown, and
 * nothing is in flight any more.
 */
int tow_maint_run(struct tow_maint *maint, struct ib_send_wr *first)
{
	int ret;

	for (;;) {
		mutex_lock(&maint->use);
		if (maint->state == TOW_MAINT_READY) {
			ret = tow_maint_run_ready(maint, first);
			mutex_unlock(&maint->use);
			return ret;
		}
		mutex_unlock(&maint->use);
		ret = tow_maint_wait_ready(maint);
		if (ret)
			return ret;
	}
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
	init_waitqueue_head(&maint->wait);
	INIT_DELAYED_WORK(&maint->work, tow_maint_work);
	maint->page_bytes = PAGE_SIZE;
}

/**
 * tow_maint_start - begin to make the queue pair
 * @maint: the maintenance queue pair
 *
 * The first attempt is over on return, so that whoever loads the module and
 * asks at once gets an answer that lasts.
 */
void tow_maint_start(struct tow_maint *maint)
{
	queue_delayed_work(tow_wq, &maint->work, 0);
	flush_delayed_work(&maint->work);
}

/**
 * tow_maint_stop_begin - nobody is to wait for the queue pair any more
 * @maint: the maintenance queue pair
 *
 * Whoever does gets -ENODEV.  What is READY still works.
 */
void tow_maint_stop_begin(struct tow_maint *maint)
{
	spin_lock_irq(&maint->lock);
	/* Waiters look without the lock. */
	WRITE_ONCE(maint->stopping, true);
	spin_unlock_irq(&maint->lock);
	wake_up_all(&maint->wait);
}

/**
 * tow_maint_stop - undo tow_maint_start(), for good
 * @maint: the maintenance queue pair; tow_maint_stop_begin() was called, and
 *	nobody is a user of the device any more
 *
 * Bounded: what the work item waits for ends by itself.
 */
void tow_maint_stop(struct tow_maint *maint)
{
	cancel_delayed_work_sync(&maint->work);
	mutex_lock(&maint->use);
	tow_maint_unmake(maint);
	mutex_unlock(&maint->use);
}
