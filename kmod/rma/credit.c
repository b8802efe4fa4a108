// SPDX-License-Identifier: GPL-2.0
/*
 * How many notifications may be on their way in a session.
 *
 * Each takes a receive of the peer's shared receive queue, so each end promises
 * the other TOW_NOTIFY_WINDOW of them when it gives it the first slot, and says
 * from time to time how many it has dealt with.  The receives are posted anew by
 * the kernel, before anybody looks at a slot: no consumer holds them.
 *
 * A sender has that many on their way at most.  An operation that there is no room
 * for waits in its flow (post.c); when the peer has told, those flows go on in
 * turns.
 */
#include "device.h"
#include "internal.h"
#include "notify.h"
#include "sequence.h"
#include "tie.h"

/* ---- what comes in -------------------------------------------------------- */

/* Called with the lock of what the directory keeps of its tie. */
static bool tow_window_promise(struct tow_session *session)
{
	struct tow_session_notify *notify = &session->notify;

	if (notify->window)
		return true;
	if (!notify->srq || !tow_srq_promise(notify->srq, TOW_NOTIFY_WINDOW))
		return false;
	WRITE_ONCE(notify->window, TOW_NOTIFY_WINDOW);
	return true;
}

/* Called with the same lock: has it no queue pairs so far, or none any more? */
static bool tow_window_apart(struct tow_session *session)
{
	/* Pairs with tow_srq_get(): where it is chosen, it is there. */
	return !smp_load_acquire(&session->notify.chosen) ||
	       (!session->notify.srq && !tow_session_alive(session));
}

/**
 * tow_window_open - the peer may send notifications
 * @tie: what we have of it; the caller has the lock of what the directory keeps
 *	of it, and it is not lost
 *
 * While no session has queue pairs for it the next one is to have enough.
 *
 * Return: false: there are not enough receives.
 */
bool tow_window_open(struct tow_tie *tie)
{
	struct tow_session *session;
	bool apart;

	lockdep_assert_held(&tie->dir.lock);
	if (tie->windowed)
		return true;
	session = tow_tie_session(tie);
	if (!session)
		return false;
	/* First: what is being made may be there a moment later. */
	apart = tow_window_apart(session);
	tie->windowed = tow_window_promise(session) ||
			(apart && tie->dev->ibdev->attrs.max_srq > 0);
	tow_session_put(session);
	return tie->windowed;
}

/**
 * tow_window_keep - what the peer was promised before holds in this session
 * @session: which is about to have data queue pairs, and has a shared receive queue
 *
 * Return: false: there are not enough receives.
 */
bool tow_window_keep(struct tow_session *session)
{
	struct tow_tie *tie = session->tie;
	bool enough;

	mutex_lock(&tie->dir.lock);
	enough = !tie->windowed || tow_window_promise(session);
	mutex_unlock(&tie->dir.lock);
	return enough;
}

/**
 * tow_window_drain - deal with notifications that have come so far
 * @tie: what we have of their sender; the caller deals with a message of its session
 */
void tow_window_drain(struct tow_tie *tie)
{
	struct tow_session *session = tow_tie_session(tie);

	if (!session)
		return;
	tow_srq_drain(session->notify.srq);
	tow_session_put(session);
}

/**
 * tow_window_refuse - what has come must not be
 * @session: whose
 * @why: for the log, a string that is never freed
 *
 * In any context.
 */
void tow_window_refuse(struct tow_session *session, const char *why)
{
	if (!tow_session_alive(session))
		return;
	tow_stat_inc(session->dev, TOW_STAT_HOSTILE);
	tow_session_fail(session, -EPROTO, TOW_WIRE_PROTOCOL, why);
}

/**
 * tow_window_arrived - a notification has come
 * @session: its session; the caller has the lock of its shared receive queue.  What
 *	it took is posted again
 */
void tow_window_arrived(struct tow_session *session)
{
	struct tow_session_notify *notify = &session->notify;
	u32 told = READ_ONCE(notify->told);

	WRITE_ONCE(notify->arrived, notify->arrived + 1);
	WRITE_ONCE(session->heard_at, jiffies);
	WRITE_ONCE(session->busy_at, jiffies);
	if (tow_window_exceeded(notify->arrived, told,
				READ_ONCE(notify->window)))
		tow_window_refuse(session,
				  "more notifications than it may send");
	else if (tow_window_due(notify->arrived, told))
		queue_work(tow_cq_wq, &notify->tell);
}

static void tow_window_tell(struct work_struct *work)
{
	tow_session_kick(container_of(work, struct tow_session, notify.tell));
}

/**
 * tow_window_fill - is the peer to be told what was dealt with?
 * @session: the session, which can send something; the caller has its @pump
 * @type: where to; left alone if there is nothing
 * @body: where to, TOW_WIRE_BODY_BYTES
 *
 * Return: the body's size.
 */
size_t tow_window_fill(struct tow_session *session, u8 *type, void *body)
{
	struct tow_session_notify *notify = &session->notify;
	u32 arrived = READ_ONCE(notify->arrived);
	struct tow_wire_notified *notified = body;

	lockdep_assert_held(&session->pump);
	if (!tow_window_due(arrived, notify->told))
		return 0;
	/* Before it is sent: what it lets come is within the window then. */
	WRITE_ONCE(notify->told, arrived);
	notified->count = cpu_to_le32(arrived);
	notified->reserved = 0;
	*type = TOW_WIRE_NOTIFIED;
	return sizeof(*notified);
}

/* ---- what goes out -------------------------------------------------------- */

/**
 * tow_window_take - may another notification be sent?
 * @session: the session
 *
 * Return: true: then it is sent; false: not before the peer has told.
 */
bool tow_window_take(struct tow_session *session)
{
	return atomic_dec_if_positive(&session->notify.room) >= 0;
}

/**
 * tow_window_untake - it is not sent after all
 * @session: the session, after tow_window_take()
 *
 * Who found no room meanwhile goes on when the peer tells next: there is so much on its
 * way then that it will.
 */
void tow_window_untake(struct tow_session *session)
{
	atomic_inc(&session->notify.room);
}

/**
 * tow_window_told - the peer has dealt with notifications
 * @session: the session
 * @body: what it says
 *
 * Return: 0; -EPROTO: it must not say that.
 */
int tow_window_told(struct tow_session *session,
		    const struct tow_wire_notified *body)
{
	struct tow_session_notify *notify = &session->notify;
	u32 count = le32_to_cpu(body->count);
	int gain;

	if (body->reserved)
		return -EPROTO;
	gain = tow_window_gain(count, notify->dealt, TOW_NOTIFY_WINDOW -
			       atomic_read(&notify->room));
	if (gain < 0)
		return -EPROTO;
	notify->dealt = count;
	atomic_add(gain, &notify->room);
	tow_ops_go_on(session->tie);
	return 0;
}

static void tow_window_go_on_work(struct work_struct *work)
{
	struct tow_session *session = container_of(work, struct tow_session,
						   notify.go_on);

	tow_ops_go_on(session->tie);
	tow_session_put(session);
}

/**
 * tow_window_go_on - have those looked at that wait for room, or for a session
 * @tie: the tie; the caller has a reference
 *
 * Called when they may end instead: nobody else may come to tell them.  With any
 * lock.
 */
void tow_window_go_on(struct tow_tie *tie)
{
	struct tow_session *session = tow_tie_session(tie);

	if (session && !queue_work(tow_wq, &session->notify.go_on))
		tow_session_put(session);
}

/* ---- sessions ------------------------------------------------------------- */

/**
 * tow_window_init - prepare a session's part
 * @session: new
 */
void tow_window_init(struct tow_session *session)
{
	struct tow_session_notify *notify = &session->notify;

	atomic_set(&notify->room, TOW_NOTIFY_WINDOW);
	INIT_WORK(&notify->tell, tow_window_tell);
	INIT_WORK(&notify->go_on, tow_window_go_on_work);
}

/**
 * tow_window_gone - nothing comes in any more
 * @session: the session; its queue pairs are destroyed
 */
void tow_window_gone(struct tow_session *session)
{
	struct tow_tie *tie = session->tie;

	cancel_work_sync(&session->notify.tell);
	if (!tie)
		return;
	/* Others may look whether it has one. */
	mutex_lock(&tie->dir.lock);
	tow_srq_put(session);
	mutex_unlock(&tie->dir.lock);
}
