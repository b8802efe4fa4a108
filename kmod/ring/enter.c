// SPDX-License-Identifier: GPL-2.0
/*
 * ENTER: entries are taken, begun, and waited for; and a poller's turn, which
 * takes and begins them as ENTER does.
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
 * How long a call looks for completions before it sleeps, in microseconds; and
 * after TOW_LOOK_VAIN such looks in vain, one after the other, for
 * TOW_LOOK_PENANCE waits.
 */
#define TOW_LOOK_US		400
#define TOW_LOOK_SHORT_US	20
#define TOW_LOOK_VAIN		4
#define TOW_LOOK_PENANCE	16

/* Entries that a poller takes in one turn. */
#define TOW_POLL_BUDGET		64

/**
 * struct tow_wait - a call that waits
 * @wanted: completions that it waits for
 * @after: it waits for completions that were written after @since, and not for
 *	those that were not handled
 * @since: as of tow_queue.cq_tail
 * @room: it waits for room for so many completions, as well; 0: it does not
 * @timeout_us: how long it waits, at most, in microseconds
 * @looked_us: how long it looked for completions, at most, in microseconds; 0:
 *	it did not look
 * @begun: when it began to look, or to sleep; 0: it did neither
 */
struct tow_wait {
	u32	wanted;
	bool	after;
	u32	since;
	u32	room;
	u32	timeout_us;
	u32	looked_us;
	ktime_t	begun;
};

/* ---- waiting -------------------------------------------------------------- */

static bool tow_queue_has_wanted(struct tow_queue *queue,
				 const struct tow_wait *wait)
{
	if (wait->room && tow_queue_has_room(queue, wait->room))
		return true;
	if (!wait->after)
		return tow_queue_completions(queue) >= wait->wanted;
	/* Pairs with tow_cqes_publish(). */
	return (s32)(smp_load_acquire(&queue->cq_tail) - wait->since) >=
	       (s32)wait->wanted;
}

static bool tow_queue_has(struct tow_queue *queue, const struct tow_wait *wait)
{
	return tow_queue_has_wanted(queue, wait) || READ_ONCE(queue->ended);
}

/* As tow_queue_has(); or have waits ended that the caller is to handle? */
static bool tow_queue_stirs(struct tow_queue *queue, const struct tow_wait *wait)
{
	return !llist_empty(&queue->due) || tow_queue_has(queue, wait);
}

/*
 * Choose how long the next calls look.  Several looks in vain show that
 * something else needs the processor, or that what they wait for takes longer.
 */
static void tow_queue_learn(struct tow_queue *queue,
			    const struct tow_wait *wait, bool found)
{
	u8 penance = READ_ONCE(queue->penance), vain = READ_ONCE(queue->vain);

	if (penance)
		penance--;
	if (found)
		vain = 0;
	else if (wait->looked_us > TOW_LOOK_SHORT_US)
		vain++;
	if (vain == TOW_LOOK_VAIN) {
		penance = TOW_LOOK_PENANCE;
		vain = 0;
	}
	WRITE_ONCE(queue->penance, penance);
	WRITE_ONCE(queue->vain, vain);
}

static void tow_cqs_look(const struct tow_cqs *cqs)
{
	unsigned int i;

	for (i = 0; i < cqs->count; i++)
		tow_cq_look(cqs->cq[i]);
}

static void tow_cqs_look_begin(const struct tow_cqs *cqs)
{
	unsigned int i;

	for (i = 0; i < cqs->count; i++)
		tow_cq_look_begin(cqs->cq[i]);
}

/* Look no more; @looked: as of tow_cq_look_end().  May sleep. */
static void tow_cqs_look_end(struct tow_cqs *cqs, bool looked)
{
	unsigned int i;

	for (i = 0; i < cqs->count; i++)
		tow_cq_look_end(cqs->cq[i], looked);
	tow_cqs_unref(cqs);
}

/* Look for completions: once, and for a while if there are not enough. */
static void tow_queue_look(struct tow_queue *queue, const struct tow_cqs *cqs,
			   struct tow_wait *wait)
{
	ktime_t end;

	tow_cqs_look(cqs);
	if (tow_queue_stirs(queue, wait))
		return;
	wait->looked_us = min_t(u32, wait->timeout_us, READ_ONCE(queue->penance) ?
				TOW_LOOK_SHORT_US : TOW_LOOK_US);
	wait->begun = ktime_get();
	end = ktime_add_us(wait->begun, wait->looked_us);
	/*
	 * A task that sends or receives for us may need this processor; and
	 * other callers must not wait while we count as looking and do not run.
	 * Without cpu_relax(): a look is long itself, and under QEMU a relaxed
	 * processor is late to see the completion.
	 */
	while (!need_resched() && !signal_pending(current) &&
	       ktime_before(ktime_get(), end)) {
		tow_cqs_look(cqs);
		if (tow_queue_stirs(queue, wait)) {
			tow_queue_learn(queue, wait, true);
			return;
		}
	}
}

/* Are they tow_queue.cqs?  While we have references no others are at their places. */
static bool tow_cqs_are_of(const struct tow_cqs *cqs,
			   const struct tow_queue *queue)
{
	unsigned int i;

	if (READ_ONCE(queue->cqs.count) != cqs->count)
		return false;
	for (i = 0; i < cqs->count; i++) {
		if (READ_ONCE(queue->cqs.cq[i]) != cqs->cq[i])
			return false;
	}
	return true;
}

/* Operations that have begun may complete elsewhere than those before: look there. */
static void tow_cqs_look_anew(struct tow_cqs *cqs, struct tow_queue *queue)
{
	if (likely(tow_cqs_are_of(cqs, queue)))
		return;
	/* First, as it may sleep, which a looker must not. */
	tow_cqs_look_end(cqs, false);
	tow_queue_cqs_get(queue, cqs);
	tow_cqs_look_begin(cqs);
}

/*
 * Begin what was taken, and look for its completions.  A call that does not
 * wait looks once, and only if no operation waits for its turn: else the call
 * would begin all that its completions let begin.
 *
 * The caller counts as a looker before it posts, as soft-RoCE of 6.1 completes
 * operations while they are posted, and must not sleep meanwhile.
 */
static void tow_queue_go(struct tow_queue *queue, struct tow_taken *taken,
			 struct tow_wait *wait)
{
	struct tow_cqs *cqs = &taken->cqs;
	bool looks;

	tow_cqs_look_begin(cqs);
	tow_queue_begin(queue, taken->step);
	if (taken->step)
		tow_cqs_look_anew(cqs, queue);
	looks = wait->wanted || !READ_ONCE(queue->waits);
	if (wait->wanted && cqs->count)
		tow_queue_look(queue, cqs, wait);
	else if (looks)
		tow_cqs_look(cqs);
	tow_cqs_look_end(cqs, looks);
}

static int tow_queue_sleep(struct tow_queue *queue, const struct tow_wait *wait)
{
	ktime_t end = ktime_add_us(wait->begun, wait->timeout_us);
	ktime_t now = ktime_get();
	int ret;

	if (wait->timeout_us == TOW_WAIT_FOREVER)
		ret = wait_event_interruptible(queue->wait,
					       tow_queue_stirs(queue, wait));
	else
		ret = wait_event_interruptible_hrtimeout(queue->wait,
							 tow_queue_stirs(queue, wait),
							 ktime_after(end, now) ?
							 ktime_sub(end, now) : 0);
	if (ret == -ETIME)
		return -ETIMEDOUT;
	return ret ? -EINTR : 0;
}

/* How many completions wake a call; @by: 1: a call is to sleep; -1: it has. */
static void tow_queue_count_waiter(struct tow_queue *queue,
				   const struct tow_wait *wait, int by)
{
	/* Others may have handled those that it waits for. */
	u32 wanted = wait->after ? 0 : wait->wanted;

	spin_lock(&queue->lock);
	queue->waiters += by;
	if (!queue->waiters)
		queue->wanted = U32_MAX;
	else if (by > 0 && wanted < queue->wanted)
		queue->wanted = wanted;
	spin_unlock(&queue->lock);
}

static int tow_queue_wait(struct tow_queue *queue, struct tow_wait *wait)
{
	bool slept = false;
	int ret = 0;

	for (;;) {
		if (!llist_empty(&queue->due))
			tow_queue_handle_waits(queue);
		if (ret || tow_queue_has(queue, wait))
			break;
		if (!wait->begun)
			wait->begun = ktime_get();
		tow_queue_count_waiter(queue, wait, 1);
		ret = tow_queue_sleep(queue, wait);
		tow_queue_count_waiter(queue, wait, -1);
		slept = true;
	}
	/* A wait that was given up does not show how long completions take. */
	if (slept && !ret && wait->looked_us)
		tow_queue_learn(queue, wait, false);
	return tow_queue_has_wanted(queue, wait) ? 0 :
	       tow_queue_ended_error(queue) ?: ret;
}

/*
 * Take entries.  Where the first chain has no room, and there is no completion to be
 * handled, the call may wait until entries that complete silently have made room.
 */
static int tow_queue_submit_wait(struct tow_queue *queue, struct tow_enter *call,
				 struct tow_taken *taken)
{
	struct tow_wait wait = { .wanted = 1, .timeout_us = call->timeout_us };
	s64 left;
	int ret;

	while ((ret = tow_queue_submit(queue, call->to_submit, taken)) == -EBUSY &&
	       call->flags & TOW_ENTER_ROOM && !tow_queue_completions(queue)) {
		wait.room = tow_queue_needs(queue, call->to_submit);
		/* Another call has taken it. */
		if (!wait.room)
			continue;
		tow_queue_call_begin(queue);
		ret = tow_queue_wait(queue, &wait);
		tow_queue_call_end(queue);
		if (ret)
			break;
	}
	if (wait.begun && wait.timeout_us != TOW_WAIT_FOREVER) {
		left = wait.timeout_us - ktime_us_delta(ktime_get(), wait.begun);
		call->timeout_us = max_t(s64, left, 0);
	}
	return ret;
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
 * If nothing but room is missing the poller is woken when there is some.
 *
 * Return: whether it would.
 */
bool tow_queue_can_take(struct tow_queue *queue)
{
	u32 needs = tow_queue_needs(queue, queue->sq_entries);

	return !READ_ONCE(queue->ended) && !tow_device_going(queue->dev) &&
	       needs && tow_queue_has_room(queue, needs);
}

/**
 * tow_queue_serve - a turn: take entries, or look for completions
 * @queue: the queue; the caller is its poller, with a reference
 *
 * Completions that are found need no work queue; nothing relies on this.
 *
 * Return: whether there was something to take, and room for it.
 */
bool tow_queue_serve(struct tow_queue *queue)
{
	struct tow_taken taken = {};
	struct tow_wait wait = {};

	if (tow_queue_untaken(queue))
		tow_queue_submit(queue, TOW_POLL_BUDGET, &taken);
	if (!taken.count && READ_ONCE(queue->busy))
		tow_queue_cqs_get(queue, &taken.cqs);
	tow_queue_go(queue, &taken, &wait);
	return taken.count;
}

/*
 * ENTER of a polled queue takes nothing.  When it fails because the queue has
 * ended the poller takes nothing any more either.
 */
static int tow_queue_enter_polled(struct tow_queue *queue,
				  const struct tow_enter *call)
{
	if (call->to_submit || call->flags & TOW_ENTER_ROOM)
		return -EINVAL;
	if (READ_ONCE(queue->ended)) {
		mutex_lock(&queue->submit);
		mutex_unlock(&queue->submit);
	} else if (tow_queue_untaken(queue)) {
		tow_poller_wake(queue->poller);
		return tow_queue_stuck(queue) ? -EINVAL : 0;
	}
	return 0;
}

/* ---- the call ------------------------------------------------------------- */

/**
 * tow_queue_enter - ENTER
 * @queue: the queue; the caller's process is its client's
 * @user: struct tow_enter
 *
 * Return: how many entries were taken, or a negative errno: see uapi/towline.h.
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
	if (call.flags & ~(TOW_ENTER_SINCE | TOW_ENTER_ROOM) ||
	    (call.since && !(call.flags & TOW_ENTER_SINCE)) ||
	    call.min_complete > queue->cq_entries)
		return -EINVAL;
	ret = queue->poller ? tow_queue_enter_polled(queue, &call) : 0;
	if (!ret)
		ret = tow_queue_ended_error(queue);
	if (!ret && call.to_submit)
		ret = tow_queue_submit_wait(queue, &call, &taken);
	if (ret)
		return ret;
	wait.wanted = call.min_complete;
	wait.after = call.flags & TOW_ENTER_SINCE;
	wait.since = call.since;
	wait.timeout_us = call.timeout_us;
	if (!taken.count && !tow_queue_has(queue, &wait))
		tow_queue_cqs_get(queue, &taken.cqs);
	if (wait.wanted)
		tow_queue_call_begin(queue);
	tow_queue_go(queue, &taken, &wait);
	if (!wait.wanted)
		return taken.count;
	ret = tow_queue_wait(queue, &wait);
	tow_queue_call_end(queue);
	return taken.count ? (long)taken.count : ret;
}
