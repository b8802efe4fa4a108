// SPDX-License-Identifier: GPL-2.0
/*
 * ENTER: entries are taken, begun, and waited for; and a poller's turn, which takes
 * and begins them as ENTER does.
 */
#include <linux/hrtimer.h>
#include <linux/ktime.h>
#include <linux/sched/signal.h>

#include "core/core.h"
#include "link.h"
#include "poller.h"
#include "queue.h"

#define TOW_ENTER_PUBLISHED	24

/*
 * So often in vain, one time after the other, and it looks no longer than it must for
 * so many waits.
 */
#define TOW_LOOK_VAIN		4
#define TOW_LOOK_PENANCE	16

/* Entries that a poller takes before it is another queue's turn. */
#define TOW_POLL_BUDGET		64

/* ---- waiting -------------------------------------------------------------- */

static bool tow_queue_has(struct tow_queue *queue, u32 wanted)
{
	return tow_queue_completions(queue) >= wanted ||
	       READ_ONCE(queue->ended);
}

/* The same; or entries have ended that the caller is to complete. */
static bool tow_queue_stirs(struct tow_queue *queue, u32 wanted)
{
	return !llist_empty(&queue->due) || tow_queue_has(queue, wanted);
}

/* Where the queue's last operation completes, with a reference. */
static struct tow_cq *tow_queue_cq(struct tow_queue *queue)
{
	struct tow_cq *cq;

	spin_lock(&queue->lock);
	cq = queue->cq;
	if (cq)
		tow_cq_ref(cq);
	spin_unlock(&queue->lock);
	return cq;
}

/**
 * struct tow_wait - a call that waits
 * @wanted: for so many completions
 * @timeout_us: so long at most
 * @looked_us: so long at most it looked for them; 0: it did not look
 * @since: from then on
 */
struct tow_wait {
	u32	wanted;
	u32	timeout_us;
	u32	looked_us;
	ktime_t	since;
};

/* Was it in vain too often?  Return: how many waits it looks no longer than it must. */
static u8 tow_queue_repent(struct tow_queue *queue,
			   const struct tow_wait *wait, bool found)
{
	u8 penance = READ_ONCE(queue->penance), vain = READ_ONCE(queue->vain);

	if (penance)
		penance--;
	if (found)
		vain = 0;
	else if (wait->looked_us > TOW_LOOK_US)
		vain++;
	if (vain == TOW_LOOK_VAIN) {
		penance = TOW_LOOK_PENANCE;
		vain = 0;
	}
	WRITE_ONCE(queue->penance, penance);
	WRITE_ONCE(queue->vain, vain);
	return penance;
}

/*
 * How long to look: half as long again as the last wait took, if that is not too
 * long; and not much less than the time before, as of waits that differ the longer
 * ones count.  If it was in vain several times, something else needs the processor,
 * or it is not to be foreseen: then no longer than one must for some time.
 */
static void tow_queue_learn(struct tow_queue *queue,
			    const struct tow_wait *wait, bool found)
{
	s64 us = ktime_us_delta(ktime_get(), wait->since) * 3 / 2;
	s64 before = READ_ONCE(queue->look_us);

	if (us < TOW_LOOK_US || us > TOW_LOOK_MAX_US)
		us = TOW_LOOK_US;
	us = max(us, before - before / 8);
	if (tow_queue_repent(queue, wait, found))
		us = TOW_LOOK_US;
	WRITE_ONCE(queue->look_us, us);
}

/* Look once; and for a while, if there is not what is wanted. */
static void tow_queue_look(struct tow_queue *queue, struct tow_cq *cq,
			   struct tow_wait *wait)
{
	ktime_t end;

	tow_cq_look(cq);
	if (tow_queue_stirs(queue, wait->wanted))
		return;
	wait->looked_us = min(READ_ONCE(queue->look_us), wait->timeout_us);
	wait->since = ktime_get();
	end = ktime_add_us(wait->since, wait->looked_us);
	/*
	 * Who sends or receives for us may need this processor; and others must
	 * not wait while we look and do not run.
	 */
	while (!need_resched() && !signal_pending(current) &&
	       ktime_before(ktime_get(), end)) {
		cpu_relax();
		tow_cq_look(cq);
		if (tow_queue_stirs(queue, wait->wanted)) {
			tow_queue_learn(queue, wait, true);
			return;
		}
	}
}

/*
 * What has begun may complete elsewhere than what began before it: that is where to
 * look then.  Return: where, with a reference; or NULL.
 */
static struct tow_cq *tow_queue_pick_waiter(struct tow_queue *queue,
					    struct tow_cq *cq)
{
	/* Ours cannot have been replaced by another one at the same address. */
	if (READ_ONCE(queue->cq) == cq)
		return cq;
	/* First, as it may sleep. */
	if (cq) {
		tow_cq_look_end(cq, false);
		tow_cq_unref(cq);
	}
	cq = tow_queue_cq(queue);
	if (cq)
		tow_cq_look_begin(cq);
	return cq;
}

/*
 * Begin what was taken, and look whether it completes.  Who does not wait looks
 * once, and only if nothing waits for its turn: else all that his completions let
 * begin would be done in his call.
 *
 * He counts as one who looks from before he posts, as soft-RoCE of 6.1 completes
 * operations while they are posted; and must not sleep meanwhile.  The
 * completion queue is that of the operation before, until it turns out otherwise.
 */
static void tow_queue_go(struct tow_queue *queue, struct tow_taken *taken,
			 struct tow_wait *wait)
{
	struct tow_cq *cq = taken->cq;
	bool looks;

	if (cq)
		tow_cq_look_begin(cq);
	tow_queue_begin(queue, taken->step);
	if (taken->step)
		cq = tow_queue_pick_waiter(queue, cq);
	if (!cq)
		return;
	looks = wait->wanted || !READ_ONCE(queue->waits);
	if (wait->wanted)
		tow_queue_look(queue, cq, wait);
	else if (looks)
		tow_cq_look(cq);
	tow_cq_look_end(cq, looks);
	tow_cq_unref(cq);
}

/* @end: when to stop; 0: never */
static int tow_queue_sleep(struct tow_queue *queue, u32 wanted, ktime_t end)
{
	ktime_t now = end ? ktime_get() : 0;
	int ret;

	if (!end)
		ret = wait_event_interruptible(queue->wait,
					       tow_queue_stirs(queue, wanted));
	else
		ret = wait_event_interruptible_hrtimeout(queue->wait,
							 tow_queue_stirs(queue, wanted),
							 ktime_after(end, now) ?
							 ktime_sub(end, now) : 0);
	if (ret == -ETIME)
		return -ETIMEDOUT;
	return ret ? -EINTR : 0;
}

/* What a completion must bring to wake somebody; called when one comes or goes. */
static void tow_queue_count_waiter(struct tow_queue *queue, u32 wanted, int by)
{
	spin_lock(&queue->lock);
	queue->waiters += by;
	if (!queue->waiters)
		queue->wanted = U32_MAX;
	else if (by > 0 && wanted < queue->wanted)
		queue->wanted = wanted;
	spin_unlock(&queue->lock);
}

static int tow_queue_wait(struct tow_queue *queue, const struct tow_wait *wait)
{
	ktime_t end = 0;
	bool slept = false;
	int ret = 0;

	for (;;) {
		if (!llist_empty(&queue->due))
			tow_queue_handle_waits(queue);
		if (ret || tow_queue_has(queue, wait->wanted))
			break;
		if (!end && wait->timeout_us != TOW_WAIT_FOREVER)
			end = ktime_add_us(ktime_get(), wait->timeout_us);
		tow_queue_count_waiter(queue, wait->wanted, 1);
		ret = tow_queue_sleep(queue, wait->wanted, end);
		tow_queue_count_waiter(queue, wait->wanted, -1);
		slept = true;
	}
	/* Who gave up says nothing about how long it takes. */
	if (slept && !ret && wait->looked_us)
		tow_queue_learn(queue, wait, false);
	return tow_queue_completions(queue) >= wait->wanted ? 0 :
	       tow_queue_ended_error(queue) ?: ret;
}

/* ---- for a poller --------------------------------------------------------- */

static bool tow_queue_untaken(const struct tow_queue *queue)
{
	return READ_ONCE(queue->ring->sq_tail) != READ_ONCE(queue->sq_head);
}

/**
 * tow_queue_can_take - would a turn take something?
 * @queue: the queue, of a poller
 *
 * If it would for want of room only, the poller is woken when there is some.
 *
 * Return: whether it would.
 */
bool tow_queue_can_take(struct tow_queue *queue)
{
	return !READ_ONCE(queue->ended) && !tow_device_going(queue->dev) &&
	       tow_queue_untaken(queue) && tow_queue_has_room(queue);
}

/**
 * tow_queue_serve - a turn: take entries, or look for completions
 * @queue: the queue; the caller is its poller, with a reference
 *
 * Who looks spares others the way through a work queue; nobody relies on it.
 *
 * Return: whether there was something to take, and room for it.
 */
bool tow_queue_serve(struct tow_queue *queue)
{
	struct tow_taken taken = {};
	struct tow_wait wait = {};

	if (tow_queue_untaken(queue))
		tow_queue_submit(queue, TOW_POLL_BUDGET, &taken);
	if (!taken.count && !taken.cq && READ_ONCE(queue->busy))
		taken.cq = tow_queue_cq(queue);
	tow_queue_go(queue, &taken, &wait);
	return taken.count;
}

/*
 * ENTER of a polled queue takes nothing.  One that fails as the queue has ended knows
 * that nobody else does any more, either.
 */
static int tow_queue_enter_polled(struct tow_queue *queue,
				  const struct tow_enter *call)
{
	if (call->to_submit)
		return -EINVAL;
	if (READ_ONCE(queue->ended)) {
		mutex_lock(&queue->submit);
		mutex_unlock(&queue->submit);
	} else if (tow_queue_untaken(queue)) {
		tow_poller_wake(queue->poller);
	}
	return 0;
}

/* ---- the call ------------------------------------------------------------- */

/**
 * tow_queue_enter - the call
 * @queue: the queue; the caller's process is its client's
 * @user: struct tow_enter
 *
 * Return: how many entries were taken, or a negative errno; see the contract.
 */
long tow_queue_enter(struct tow_queue *queue, void __user *user)
{
	struct tow_taken taken = {};
	struct tow_wait wait = {};
	struct tow_enter call;
	u32 user_size;
	int ret;

	BUILD_BUG_ON(sizeof(call) < TOW_ENTER_PUBLISHED);

	ret = tow_call_copy_in(&call, sizeof(call), TOW_ENTER_PUBLISHED, user,
			       &user_size);
	if (ret)
		return ret;
	if (call.flags || call.reserved ||
	    call.min_complete > queue->cq_entries)
		return -EINVAL;
	ret = queue->poller ? tow_queue_enter_polled(queue, &call) : 0;
	if (!ret)
		ret = tow_queue_ended_error(queue);
	if (!ret && call.to_submit)
		ret = tow_queue_submit(queue, call.to_submit, &taken);
	if (ret)
		return ret;
	wait.wanted = call.min_complete;
	wait.timeout_us = call.timeout_us;
	if (!taken.count && !tow_queue_has(queue, wait.wanted))
		taken.cq = tow_queue_cq(queue);
	if (wait.wanted)
		tow_queue_call_begin(queue);
	tow_queue_go(queue, &taken, &wait);
	if (!wait.wanted)
		return taken.count;
	ret = tow_queue_wait(queue, &wait);
	tow_queue_call_end(queue);
	return taken.count ? (long)taken.count : ret;
}
