// SPDX-License-Identifier: GPL-2.0
/*
 * Notifications of a device and of a session begin and end, and the peer
 * returns credit; what associations call (tow_rma_client).
 *
 * A session's part is there as long as the session.
 */
#include "assoc.h"
#include "core/core.h"
#include "internal.h"
#include "notify.h"
#include "queue.h"
#include "sequence.h"

/* ---- sessions ------------------------------------------------------------- */

/* Handle a message that returns credit. */
static int tow_credit_returned(struct tow_session *session,
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

static void tow_credit_init(struct tow_session *session)
{
	struct tow_session_notify *notify = &session->notify;

	atomic_set(&notify->room, TOW_NOTIFY_WINDOW);
	INIT_WORK(&notify->tell, tow_credit_return);
	INIT_WORK(&notify->go_on, tow_credit_wake_work);
}

static void tow_credit_gone(struct tow_session *session)
{
	cancel_work_sync(&session->notify.tell);
}

/* End a session on which nothing completes. */
static void tow_rma_tick(struct tow_session *session)
{
	struct tow_device *dev = session->dev;

	if (!tow_ops_stall(session->assoc, READ_ONCE(dev->queues->op_stall_ms)))
		return;
	tow_stat_inc(dev, TOW_STAT_STALLS);
	tow_session_fail(session, -ETIMEDOUT, TOW_WIRE_FAILED,
			 "nothing completes for too long");
	tow_peer_dump(session->peer, "nothing completes for too long");
}

static int tow_rma_receive(struct tow_session *session, u8 type, u32 request,
			   void *body, size_t bytes)
{
	switch (type) {
	case TOW_WIRE_NOTIFIED:
		return tow_credit_returned(session, body);
	case TOW_WIRE_SYNC:
		return tow_replay_receive(session, body, bytes);
	default:
		return 0;
	}
}

/* ---- associations --------------------------------------------------------- */

static void tow_rma_suspend(struct tow_assoc *assoc, bool over)
{
	unsigned int i;

	for (i = 0; i < assoc->qps; i++)
		tow_ops_close(&assoc->data[i], over);
}

static void tow_rma_gone(struct tow_assoc *assoc)
{
	unsigned int i;

	for (i = 0; i < assoc->qps; i++)
		tow_ops_abandon(&assoc->data[i]);
}

const struct tow_assoc_client tow_rma_client = {
	.session_init	= tow_credit_init,
	.session_gone	= tow_credit_gone,
	.tick		= tow_rma_tick,
	.receive	= tow_rma_receive,
	.fill		= tow_credit_fill,
	.suspend	= tow_rma_suspend,
	.gone		= tow_rma_gone,
};

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
