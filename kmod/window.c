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
#include "notify.h"
#include "ops.h"
#include "sequence.h"
#include "session.h"

/* ---- what comes in -------------------------------------------------------- */

/**
 * tow_window_open - the peer may send notifications
 * @session: the session; the caller has the lock of what the directory keeps of
 *	it, and it is not lost
 *
 * Return: false: there are not enough receives.
 */
bool tow_window_open(struct tow_session *session)
{
	struct tow_session_notify *notify = &session->notify;

	lockdep_assert_held(&session->dir.lock);
	if (notify->window)
		return true;
	if (!notify->srq || !tow_srq_promise(notify->srq, TOW_NOTIFY_WINDOW))
		return false;
	WRITE_ONCE(notify->window, TOW_NOTIFY_WINDOW);
	return true;
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
	tow_ops_go_on(session);
	return 0;
}

static void tow_window_go_on_work(struct work_struct *work)
{
	struct tow_session *session = container_of(work, struct tow_session,
						   notify.go_on);

	tow_ops_go_on(session);
	tow_session_put(session);
}

/**
 * tow_window_go_on - have those looked at that wait for room
 * @session: the session; the caller has a reference
 *
 * Called when they may end instead: nobody else may come to tell them.  With any
 * lock.
 */
void tow_window_go_on(struct tow_session *session)
{
	tow_session_get(session);
	if (!queue_work(tow_wq, &session->notify.go_on))
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
	cancel_work_sync(&session->notify.tell);
	tow_srq_put(session);
}
