// SPDX-License-Identifier: GPL-2.0
/*
 * How many notifications may be on their way in a session.
 *
 * Each notification takes a receive of the peer's queue pair.  A sender has
 * TOW_NOTIFY_WINDOW notifications on their way in a session at most, and the
 * receiver returns credit from time to time.  The kernel posts receives again
 * before any program looks at a slot: no consumer holds them.  An operation
 * without credit waits in its flow (post.c); when the peer returns credit such
 * flows take turns again.
 */
#include "assoc.h"
#include "core/core.h"
#include "notify.h"
#include "sequence.h"

/* ---- credit of the peer --------------------------------------------------- */

/**
 * tow_credit_drain - handle notifications that have come so far
 * @assoc: the association of their sender; the caller handles a message of its
 *	session, so no queue pair is destroyed meanwhile
 */
void tow_credit_drain(struct tow_assoc *assoc)
{
	struct tow_cq *cq;
	unsigned int i;

	for (i = 0; i < assoc->qps; i++) {
		/* Pairs with tow_qp_create(). */
		cq = smp_load_acquire(&assoc->data[i].receive_cq);
		if (cq)
			tow_cq_flush(cq);
	}
}

/**
 * tow_credit_fill - fill in a message that returns credit, if it is time
 * @session: the session, which can send a message; caller holds @session->pump
 * @type: becomes the message's type; left alone if there is none
 * @request: left alone
 * @body: the message's body, of TOW_WIRE_BODY_BYTES
 *
 * Return: the body's size; 0: there is no message.
 */
size_t tow_credit_fill(struct tow_session *session, u8 *type, u32 *request,
		       void *body)
{
	struct tow_session_notify *notify = &session->notify;
	u32 arrived = atomic_read(&notify->arrived);
	struct tow_wire_notified *notified = body;

	lockdep_assert_held(&session->pump);
	if (!tow_credit_due(arrived, notify->told))
		return 0;
	/* Set before the message lets the peer send more. */
	WRITE_ONCE(notify->told, arrived);
	notified->count = cpu_to_le32(arrived);
	notified->reserved = 0;
	*type = TOW_WIRE_NOTIFIED;
	return sizeof(*notified);
}

/* ---- our credit ----------------------------------------------------------- */

/**
 * tow_credit_take - take credit for a notification
 * @session: the session
 *
 * Return: true: the caller sends the notification; false: there is no credit.
 */
bool tow_credit_take(struct tow_session *session)
{
	return atomic_dec_if_positive(&session->notify.room) >= 0;
}

/**
 * tow_credit_untake - undo tow_credit_take()
 * @session: the session, after tow_credit_take()
 *
 * A flow that found no credit meanwhile is unparked when the peer returns
 * credit next, which the peer will: so much is on its way.
 */
void tow_credit_untake(struct tow_session *session)
{
	atomic_inc(&session->notify.room);
}

/**
 * tow_credit_wake - look at flows that wait for credit, or for a session
 * @assoc: the association; the caller has a reference
 *
 * Called when their operations may end instead, which nothing else may find
 * out.  With any lock held but @assoc->lock.
 */
void tow_credit_wake(struct tow_assoc *assoc)
{
	struct tow_session *session = tow_assoc_session(assoc);

	if (session && !queue_work(tow_wq, &session->notify.go_on))
		tow_session_put(session);
}
