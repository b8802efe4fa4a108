// SPDX-License-Identifier: GPL-2.0
/*
 * A session's life: made, watched, ended.
 *
 * Normal operation
 *
 * The initiator (active.c) and the responder (passive.c) each make a session.
 * From then on its timer watches it: a session that is not READY by its
 * deadline ends, and so does a session whose other end has been silent for too
 * long.  The connection manager's own time-outs, of about a minute, would be
 * too late.
 *
 * The end
 *
 * tow_session_fail() ends a session, from any context.  The first call counts.
 * A work item does the rest: nothing new begins (tow_session_ops.closing),
 * GOODBYE is sent, the queue pairs are destroyed, and only then is memory
 * released that the other end could reach by them (tow_session_ops.closed).
 *
 * The session is freed with its last reference.  It owns its identifiers, queue
 * pairs and buffers, which are gone when it is ENDED.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/jiffies.h>
#include <linux/slab.h>

#include "core/core.h"
#include "core/quirks.h"
#include "core/trace.h"
#include "peer.h"
#include "session.h"

/* For lockdep: see tow_session_new(). */
static struct lock_class_key tow_session_responder;

/**
 * tow_session_get - take a reference
 * @session: the session
 */
void tow_session_get(struct tow_session *session)
{
	kref_get(&session->refs);
}

static void tow_session_release(struct kref *refs)
{
	struct tow_session *session = container_of(refs, struct tow_session,
						   refs);

	tow_auth_cleanup(&session->auth);
	tow_session_ops(session)->release(session);
	tow_device_put(session->dev);
	kfree(session);
}

/**
 * tow_session_put - give a reference back
 * @session: the session; may be gone afterwards
 */
void tow_session_put(struct tow_session *session)
{
	kref_put(&session->refs, tow_session_release);
}

/* ---- the timer ------------------------------------------------------------ */

static void tow_session_watch_opening(struct tow_session *session)
{
	if (time_after(jiffies, READ_ONCE(session->deadline)))
		tow_session_fail(session, -ETIMEDOUT, TOW_WIRE_FAILED,
				 "not ready in time");
}

/*
 * Was the other end silent for @misses heartbeats?  Time alone does not tell:
 * if this node was stopped itself, messages may have come that were not handled
 * yet.  So the timer must have run @misses times as well.
 */
static bool tow_session_silent(struct tow_session *session, unsigned long beat,
			       u32 misses)
{
	unsigned long heard_at = READ_ONCE(session->heard_at);

	if (heard_at != session->heard_then)
		session->looks = 0;
	else
		session->looks++;
	session->heard_then = heard_at;
	return session->looks >= misses &&
	       time_after(jiffies, heard_at + beat * misses);
}

static void tow_session_watch_ready(struct tow_session *session)
{
	struct tow_conn_settings *settings = &session->dev->peers->settings;
	unsigned long beat = msecs_to_jiffies(READ_ONCE(settings->heartbeat_ms));
	u32 misses = READ_ONCE(settings->heartbeat_misses);
	bool silent = tow_session_silent(session, beat, misses);

	tow_session_ops(session)->tick(session, silent);
	if (tow_session_alive(session) &&
	    time_after_eq(jiffies, READ_ONCE(session->said_at) + beat / 2))
		tow_session_heartbeat(session);
}

static void tow_session_tick(struct work_struct *work)
{
	struct tow_session *session = container_of(to_delayed_work(work),
						   struct tow_session, timer);
	u32 beat_ms = READ_ONCE(session->dev->peers->settings.heartbeat_ms);
	bool ready = READ_ONCE(session->state) == TOW_SESSION_READY;
	u32 next_ms = ready ? beat_ms / 2 : TOW_HANDSHAKE_MS / 4;

	if (READ_ONCE(session->hung_up))
		tow_session_fail(session, -ECONNRESET, TOW_WIRE_FAILED,
				 "the other end hung up");
	else if (ready)
		tow_session_watch_ready(session);
	else
		tow_session_watch_opening(session);
	/* If ENDING: tow_session_end() waits for this work item. */
	if (tow_session_alive(session))
		queue_delayed_work(tow_wq, &session->timer,
				   msecs_to_jiffies(next_ms));
}

/* ---- the end -------------------------------------------------------------- */

/* How many links of data queue pairs the session has. */
static unsigned int tow_session_links(const struct tow_session *session)
{
	return session->data ? session->qps : 0;
}

static void tow_session_destroy_links(struct tow_session *session)
{
	const struct tow_link_ops *ops = session->dev->peers->link_ops;
	unsigned long end;
	unsigned int i;

	for (i = 0; i < tow_session_links(session); i++)
		tow_link_disconnect(&session->data[i]);
	tow_link_disconnect(&session->control);
	/* A handler of a message may still post; later ones see ENDING. */
	if (session->cq)
		flush_work(&session->cq->work);
	/* Which it queues. */
	tow_data_end(session);
	/* All of them flush at the same time. */
	end = jiffies + msecs_to_jiffies(TOW_LINK_DRAIN_MS);
	for (i = 0; i < tow_session_links(session); i++)
		ops->destroy(&session->data[i], end);
	tow_link_destroy_control(&session->control);
	if (session->cq) {
		tow_rxe_run_tasklets(session->cq->device);
		/* The last receive, too, may have invalidated a key. */
		flush_work(&session->cq->work);
		ib_free_cq(session->cq);
	}
	session->cq = NULL;
	tow_buffers_free(session);
}

static void tow_session_log_end(struct tow_session *session)
{
	char name[TOW_DEVICE_NAME_MAX];

	if (!session->peer || tow_session_orderly(session->reason))
		return;
	tow_device_name(session->dev, name);
	pr_warn_ratelimited("%s: connection to %pI6c ended: %s (error %d)\n",
			    name, session->initiator ?
			    &session->handshake.responder :
			    &session->handshake.initiator,
			    session->why, session->error);
}

/**
 * tow_accept_refused - count and log that a node was refused
 * @dev: the device
 * @from: the node's address
 * @error: why, a negative errno
 *
 * The log is rate limited: there may be many attempts.
 */
void tow_accept_refused(struct tow_device *dev, const struct in6_addr *from,
			int error)
{
	char name[TOW_DEVICE_NAME_MAX];

	tow_stat_inc(dev, TOW_STAT_AUTH_REFUSED);
	trace_tow_refused(dev, error);
	tow_device_name(dev, name);
	pr_warn_ratelimited("%s: a connection from %pI6c was refused: %s (error %d)\n",
			    name, from, tow_session_explain(error), error);
}

/*
 * Did the responder, which is us, end the session before the other end's proof?
 */
static bool tow_session_refused(struct tow_session *session)
{
	return !session->initiator && !session->peer && !session->told &&
	       session->error != -ECONNRESET && session->error != -EAGAIN &&
	       !tow_session_orderly(session->reason);
}

static void tow_session_end(struct work_struct *work)
{
	struct tow_session *session = container_of(work, struct tow_session,
						   end_work);
	const struct tow_session_ops *ops = tow_session_ops(session);
	bool keep;

	/*
	 * Holders of @setup make links, take an association, or make the keys
	 * that GOODBYE is signed with.  Wait for the last; no other begins
	 * after ENDING.
	 */
	mutex_lock(&session->setup);
	mutex_unlock(&session->setup);
	keep = ops->closing(session);
	/* Whether the session has a peer does not change any more. */
	tow_session_log_end(session);
	if (tow_session_refused(session))
		tow_accept_refused(session->dev, &session->handshake.initiator,
				   session->error);
	tow_session_close(session);
	tow_session_destroy_links(session);
	/* Only now: handlers of the connection manager start the timer, too. */
	cancel_delayed_work_sync(&session->timer);
	ops->closed(session, keep);
	tow_session_note(session, "queue pairs destroyed", 0, 0);
	spin_lock_irq(&session->lock);
	session->state = TOW_SESSION_ENDED;
	spin_unlock_irq(&session->lock);
	/* Puts the list's reference. */
	ops->gone(session, keep);
}

/* ---- the beginning -------------------------------------------------------- */

/**
 * tow_session_new - make a session, OPENING, in the device's list
 * @dev: the device
 * @initiator: our end makes the request
 * @settings: the settings; copied
 *
 * tow_session_fail() ends the session, in any state.
 *
 * Return: the session with a reference for the caller; -ENODEV: the device is
 * going; -EAGAIN: too many are half open; -ENOMEM.
 */
struct tow_session *tow_session_new(struct tow_device *dev, bool initiator,
				    const struct tow_conn_settings *settings)
{
	struct tow_session *session;
	int ret;

	session = kzalloc(sizeof(*session), GFP_KERNEL);
	if (!session)
		return ERR_PTR(-ENOMEM);
	kref_init(&session->refs);
	kref_get(&dev->refs);
	session->dev = dev;
	session->initiator = initiator;
	session->settings = *settings;
	session->deadline = jiffies + msecs_to_jiffies(TOW_HANDSHAKE_MS);
	session->heard_at = jiffies;
	session->said_at = jiffies;
	session->busy_at = jiffies;
	spin_lock_init(&session->lock);
	mutex_init(&session->pump);
	/*
	 * Two classes for lockdep: only the responder's @setup is taken within
	 * the connection manager's handlers, and only the initiator's around
	 * calls that take the handlers' lock.
	 */
	mutex_init(&session->setup);
	if (!initiator)
		lockdep_set_class(&session->setup, &tow_session_responder);
	INIT_LIST_HEAD(&session->queue);
	init_waitqueue_head(&session->wait);
	tow_link_init_control(&session->control, session);
	INIT_DELAYED_WORK(&session->timer, tow_session_tick);
	INIT_WORK(&session->end_work, tow_session_end);
	tow_data_init(session);
	ret = tow_session_ops(session)->add(session);
	if (ret) {
		tow_session_put(session);
		return ERR_PTR(ret);
	}
	return session;
}

/**
 * tow_session_prepare - make the control queue pair, ready to receive
 * @session: the session; caller holds its @setup
 * @id: the connection's identifier; the session owns it from now on, after
 *	errors too
 *
 * Return: 0; -ENOMEM; the provider's error.
 */
int tow_session_prepare(struct tow_session *session, struct rdma_cm_id *id)
{
	struct ib_cq *cq;
	int ret;

	lockdep_assert_held(&session->setup);
	session->control.id = id;
	ret = tow_buffers_make(session);
	if (ret)
		return ret;
	cq = ib_alloc_cq_any(session->dev->ibdev, session,
			     2 * (TOW_WIRE_CREDITS + 1),
			     IB_POLL_UNBOUND_WORKQUEUE);
	if (IS_ERR(cq))
		return PTR_ERR(cq);
	session->cq = cq;
	ret = tow_link_create_control(&session->control);
	if (ret)
		return ret;
	return tow_session_post_receives(session);
}
