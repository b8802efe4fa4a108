// SPDX-License-Identifier: GPL-2.0
/*
 * Notifications of a device and of a session begin and end, and the peer
 * returns credit.
 *
 * A session's part is there as long as the session.
 */
#include "assoc.h"
#include "core/core.h"
#include "internal.h"
#include "notify.h"
#include "sequence.h"

/* ---- sessions ------------------------------------------------------------- */

/**
 * tow_credit_returned - handle a message that returns credit
 * @session: the session
 * @body: the message
 *
 * Return: 0; -EPROTO: the message is not valid.
 */
int tow_credit_returned(struct tow_session *session,
			const struct tow_wire_notified *body)
{
	struct tow_session_notify *notify = &session->notify;
	u32 count = le32_to_cpu(body->count);
	int gain;

	if (body->reserved)
		return -EPROTO;
	gain = tow_credit_gain(count, notify->dealt, TOW_NOTIFY_WINDOW -
			       atomic_read(&notify->room));
	if (gain < 0)
		return -EPROTO;
	notify->dealt = count;
	atomic_add(gain, &notify->room);
	tow_ops_unpark(session->assoc);
	return 0;
}

static void tow_credit_return(struct work_struct *work)
{
	tow_session_kick(container_of(work, struct tow_session, notify.tell));
}

static void tow_credit_wake_work(struct work_struct *work)
{
	struct tow_session *session = container_of(work, struct tow_session,
						   notify.go_on);

	tow_ops_unpark(session->assoc);
	tow_session_put(session);
}

/**
 * tow_credit_init - prepare a session's notifications
 * @session: the session, new
 */
void tow_credit_init(struct tow_session *session)
{
	struct tow_session_notify *notify = &session->notify;

	atomic_set(&notify->room, TOW_NOTIFY_WINDOW);
	INIT_WORK(&notify->tell, tow_credit_return);
	INIT_WORK(&notify->go_on, tow_credit_wake_work);
}

/**
 * tow_credit_gone - end a session's notifications
 * @session: the session; its queue pairs are destroyed
 */
void tow_credit_gone(struct tow_session *session)
{
	cancel_work_sync(&session->notify.tell);
}

/* ---- the device ----------------------------------------------------------- */

/**
 * tow_notify_init - prepare a device's notifications
 * @dev: the device
 *
 * Return: 0 or -ENOMEM.
 */
int tow_notify_init(struct tow_device *dev)
{
	struct tow_notify *notify = kzalloc(sizeof(*notify), GFP_KERNEL);

	if (!notify)
		return -ENOMEM;
	xa_init_flags(&notify->slots, XA_FLAGS_ALLOC);
	dev->notify = notify;
	return 0;
}

/**
 * tow_notify_cleanup - undo tow_notify_init()
 * @dev: the device; there are neither slots nor sessions
 */
void tow_notify_cleanup(struct tow_device *dev)
{
	struct tow_notify *notify = dev->notify;

	WARN_ON_ONCE(!xa_empty(&notify->slots));
	xa_destroy(&notify->slots);
	kfree(notify);
}
