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
#include "assoc.h"
#include "core/core.h"
#include "notify.h"
#include "sequence.h"

/* ---- what comes in -------------------------------------------------------- */

/* Called with the lock of what the directory keeps of its association. */
static bool tow_credit_promise(struct tow_session *session)
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
static bool tow_credit_apart(struct tow_session *session)
{
	/* Pairs with tow_srq_get(): where it is chosen, it is there. */
	return !smp_load_acquire(&session->notify.chosen) ||
	       (!session->notify.srq && !tow_session_alive(session));
}

/**
 * tow_credit_open - the peer may send notifications
 * @assoc: what we have of it; the caller has the lock of what the directory keeps
 *	of it, and it is not lost
 *
 * While no session has queue pairs for it the next one is to have enough.
 *
 * Return: false: there are not enough receives.
 */
bool tow_credit_open(struct tow_assoc *assoc)
{
	struct tow_session *session;
	bool apart;

	lockdep_assert_held(&assoc->dir.lock);
	if (assoc->windowed)
		return true;
	session = tow_assoc_session(assoc);
	if (!session)
		return false;
	/* First: what is being made may be there a moment later. */
	apart = tow_credit_apart(session);
	assoc->windowed = tow_credit_promise(session) ||
			(apart && assoc->dev->ibdev->attrs.max_srq > 0);
	tow_session_put(session);
	return assoc->windowed;
}

/**
 * tow_credit_keep - what the peer was promised before holds in this session
 * @session: which is about to have data queue pairs, and has a shared receive queue
 *
 * Return: false: there are not enough receives.
 */
bool tow_credit_keep(struct tow_session *session)
{
	struct tow_assoc *assoc = session->assoc;
	bool enough;

	mutex_lock(&assoc->dir.lock);
	enough = !assoc->windowed || tow_credit_promise(session);
	mutex_unlock(&assoc->dir.lock);
	return enough;
}

/**
 * tow_credit_drain - deal with notifications that have come so far
 * @assoc: what we have of their sender; the caller deals with a message of its session
 */
void tow_credit_drain(struct tow_assoc *assoc)
{
	struct tow_session *session = tow_assoc_session(assoc);

	if (!session)
		return;
	tow_srq_drain(session->notify.srq);
	tow_session_put(session);
}

/**
 * tow_credit_fill - is the peer to be told what was dealt with?
 * @session: the session, which can send something; the caller has its @pump
 * @type: where to; left alone if there is nothing
 * @body: where to, TOW_WIRE_BODY_BYTES
 *
 * Return: the body's size.
 */
size_t tow_credit_fill(struct tow_session *session, u8 *type, void *body)
{
	struct tow_session_notify *notify = &session->notify;
	u32 arrived = READ_ONCE(notify->arrived);
	struct tow_wire_notified *notified = body;

	lockdep_assert_held(&session->pump);
	if (!tow_credit_due(arrived, notify->told))
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
 * tow_credit_take - may another notification be sent?
 * @session: the session
 *
 * Return: true: then it is sent; false: not before the peer has told.
 */
bool tow_credit_take(struct tow_session *session)
{
	return atomic_dec_if_positive(&session->notify.room) >= 0;
}

/**
 * tow_credit_untake - it is not sent after all
 * @session: the session, after tow_credit_take()
 *
 * Who found no room meanwhile goes on when the peer tells next: there is so much on its
 * way then that it will.
 */
void tow_credit_untake(struct tow_session *session)
{
	atomic_inc(&session->notify.room);
}

/**
 * tow_credit_wake - have those looked at that wait for room, or for a session
 * @assoc: the association; the caller has a reference
 *
 * Called when they may end instead: nobody else may come to tell them.  With any
 * lock.
 */
void tow_credit_wake(struct tow_assoc *assoc)
{
	struct tow_session *session = tow_assoc_session(assoc);

	if (session && !queue_work(tow_wq, &session->notify.go_on))
		tow_session_put(session);
}
