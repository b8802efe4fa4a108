// SPDX-License-Identifier: GPL-2.0
/*
 * A session's life: made, watched, ended.
 *
 * Normal operation
 *
 * A session is made by whoever connects (active.c) or is connected to
 * (passive.c).  From then on its timer watches over it: a session that is not
 * READY by its deadline ends, and so does one whose other end has not been heard
 * for too long.  The connection manager's own time-outs, about a minute, are not
 * waited for.
 *
 * The end
 *
 * Whoever finds that a session cannot go on says so (tow_session_fail()), from
 * any context.  The first one counts.  A work item does the rest: the directory
 * lets nothing new begin, the other end is told, the queue pairs are destroyed,
 * and only then is given up what the other end could reach by them.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/jiffies.h>
#include <linux/slab.h>

#include "device.h"
#include "ops.h"
#include "session.h"
#include "quirks.h"
#include "tie.h"
#include "trace.h"

/* For lockdep: see tow_session_new(). */
static struct lock_class_key tow_session_responder;

/* The other end's goodbye may be just behind the connection manager's. */
#define TOW_HANG_UP_MS		50

/**
 * tow_session_error_of - what an enum tow_wire_reason means to a caller
 * @reason: the reason, as the other end said it
 *
 * Return: a negative errno.
 */
int tow_session_error_of(u32 reason)
{
	switch (reason) {
	case TOW_WIRE_BAD_VERSION:
		return -EPROTONOSUPPORT;
	case TOW_WIRE_NO_KEY:
		return -ENOKEY;
	case TOW_WIRE_BAD_MAC:
		return -EKEYREJECTED;
	case TOW_WIRE_BUSY:
		return -EAGAIN;
	case TOW_WIRE_CROSSED:
		return -EALREADY;
	case TOW_WIRE_NO_ROOM:
		return -ENOSPC;
	case TOW_WIRE_MALFORMED:
	case TOW_WIRE_PROTOCOL:
		return -EPROTO;
	case TOW_WIRE_REVOKE_LATE:
		return -ETIMEDOUT;
	default:
		return -ECONNRESET;
	}
}

/**
 * tow_session_reason_of - what the other end is told of an error
 * @error: a negative errno
 *
 * Return: an enum tow_wire_reason.
 */
u32 tow_session_reason_of(int error)
{
	switch (error) {
	case -EPROTONOSUPPORT:
		return TOW_WIRE_BAD_VERSION;
	case -ENOKEY:
		return TOW_WIRE_NO_KEY;
	case -EKEYREJECTED:
		return TOW_WIRE_BAD_MAC;
	case -EAGAIN:
		return TOW_WIRE_BUSY;
	case -EALREADY:
		return TOW_WIRE_CROSSED;
	case -ENOSPC:
	case -ENOMEM:
		return TOW_WIRE_NO_ROOM;
	case -EPROTO:
		return TOW_WIRE_PROTOCOL;
	case -ENOENT:
		return TOW_WIRE_NO_SESSION;
	case -ENODEV:
		return TOW_WIRE_GOING;
	default:
		return TOW_WIRE_FAILED;
	}
}

/* Not failures, whoever says so: nobody needs to know why. */
static bool tow_session_orderly(u32 reason)
{
	return reason == TOW_WIRE_IDLE || reason == TOW_WIRE_ADMIN ||
	       reason == TOW_WIRE_GOING || reason == TOW_WIRE_REPLACED ||
	       reason == TOW_WIRE_CROSSED;
}

/**
 * tow_session_may_pass - may another session go on where this one has ended?
 * @session: ENDING
 *
 * Return: false: what ended it is final, whoever said so.
 */
bool tow_session_may_pass(struct tow_session *session)
{
	/* The device is going; another life of the other node has come. */
	if (session->error == -ENODEV || session->error == -ESTALE)
		return false;
	/* Which connection goes on is no question of what both ends have. */
	return session->reason == TOW_WIRE_FAILED ||
	       session->reason == TOW_WIRE_BUSY ||
	       session->reason == TOW_WIRE_REVOKE_LATE ||
	       session->reason == TOW_WIRE_REPLACED ||
	       session->reason == TOW_WIRE_CROSSED;
}

/**
 * tow_session_explain - an error of connecting, for people
 * @error: a negative errno
 *
 * Return: a string that is never freed.
 */
const char *tow_session_explain(int error)
{
	switch (error) {
	case -EPROTONOSUPPORT:
		return "another version of the protocol";
	case -ENOKEY:
		return "no cluster key on one side";
	case -EKEYREJECTED:
		return "another cluster key";
	case -EAGAIN:
		return "too much to do for now";
	case -ENOSPC:
	case -ENOMEM:
		return "no room for another connection";
	case -EPROTO:
		return "not understood";
	case -ENOENT:
		return "no such session";
	case -ENODEV:
		return "the device is going";
	case -ETIMEDOUT:
		return "nothing was proved in time";
	default:
		return "failed";
	}
}

/**
 * tow_session_note - remember what happened
 * @session: the session; before it has a peer only trace events are left
 * @stage: a string that is never freed
 * @subject: a number that says what it was about, or 0
 * @error: a negative errno, or 0
 */
void tow_session_note(struct tow_session *session, const char *stage,
		      u64 subject, int error)
{
	struct tow_peer *peer = session->peer;

	if (peer)
		tow_recorder_note(&peer->recorder, READ_ONCE(peer->epoch),
				  stage, subject, error);
	else
		trace_tow_session(session, stage, subject, error);
}

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
	if (session->asked)
		tow_tie_put(session->asked);
	if (session->tie)
		tow_tie_put(session->tie);
	if (session->peer)
		tow_peer_put(session->peer);
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

/**
 * tow_session_alive - may something still begin?
 * @session: the session
 *
 * Return: false from ENDING on.
 */
bool tow_session_alive(const struct tow_session *session)
{
	return READ_ONCE(session->state) < TOW_SESSION_ENDING;
}

/**
 * tow_session_set_state - the next state
 * @session: the session
 * @state: one that the present one leads to
 *
 * Return: true; or false: the session is ENDING, and stays so.
 */
bool tow_session_set_state(struct tow_session *session,
			   enum tow_session_state state)
{
	unsigned long flags;
	bool result = false;

	spin_lock_irqsave(&session->lock, flags);
	if (session->state < TOW_SESSION_ENDING && session->state < state) {
		session->state = state;
		/* There may be many data queue pairs. */
		if (state == TOW_SESSION_AUTHENTICATED)
			session->deadline = jiffies +
				msecs_to_jiffies(session->settings.reconnect_timeout_ms);
		result = true;
	}
	spin_unlock_irqrestore(&session->lock, flags);
	if (result)
		wake_up_all(&session->wait);
	return result;
}

/**
 * tow_session_fail - the session cannot go on
 * @session: the session; may be ENDING already
 * @error: what whoever waits is told, a negative errno
 * @reason: what the other end is told: enum tow_wire_reason
 * @why: for the log, a string that is never freed
 *
 * In any context, with whatever locks but the session's.
 *
 * Return: true; false: it was ENDING before, of something else.
 */
bool tow_session_fail(struct tow_session *session, int error, u32 reason,
		      const char *why)
{
	unsigned long flags;
	bool first = false;

	spin_lock_irqsave(&session->lock, flags);
	if (session->state < TOW_SESSION_ENDING) {
		session->state = TOW_SESSION_ENDING;
		session->error = error;
		session->reason = reason;
		session->why = why;
		first = true;
		/* The list's reference is there until the work is done. */
		queue_work(tow_wq, &session->end_work);
	}
	spin_unlock_irqrestore(&session->lock, flags);
	if (!first)
		return false;
	tow_session_note(session, why, reason, error);
	wake_up_all(&session->wait);
	return true;
}

static void tow_session_look_in(struct tow_session *session, unsigned int ms)
{
	mod_delayed_work(tow_wq, &session->timer, msecs_to_jiffies(ms));
}

/**
 * tow_session_watch - the timer watches over the session from now on
 * @session: the session, new; the caller has the lock under which others find it, and
 *	may end it
 */
void tow_session_watch(struct tow_session *session)
{
	tow_session_look_in(session, TOW_HANDSHAKE_MS / 4);
}

/**
 * tow_session_beats - the session has become READY, and its ends say so regularly
 * @session: the session; the caller is a handler that its end waits for
 *
 * Heartbeats may have to begin long before it would have been looked at again.
 */
void tow_session_beats(struct tow_session *session)
{
	/* Until now nobody had to say anything. */
	WRITE_ONCE(session->heard_at, jiffies);
	tow_session_look_in(session, READ_ONCE(session->dev->peers.settings.heartbeat_ms) / 2);
}

/**
 * tow_session_hung_up - the connection manager says that the other end has gone
 * @session: the session
 *
 * What it said last is given the time to be heard first.
 */
void tow_session_hung_up(struct tow_session *session)
{
	WRITE_ONCE(session->hung_up, true);
	if (tow_session_alive(session))
		tow_session_look_in(session, TOW_HANG_UP_MS);
}

/**
 * tow_session_established - one more data queue pair is connected
 * @link: it, or the control queue pair; responder's
 */
void tow_session_established(struct tow_link *link)
{
	struct tow_session *session = link->session;
	unsigned long flags;

	if (link->index == TOW_LINK_CONTROL)
		return;
	spin_lock_irqsave(&session->lock, flags);
	session->connected++;
	spin_unlock_irqrestore(&session->lock, flags);
	tow_accept_check_ready(session);
}

/* ---- the timer ------------------------------------------------------------ */

static void tow_session_watch_opening(struct tow_session *session)
{
	if (time_after(jiffies, READ_ONCE(session->deadline)))
		tow_session_fail(session, -ETIMEDOUT, TOW_WIRE_FAILED,
				 "not ready in time");
}

/*
 * That the other end was not heard is its fault only if we have looked for it: a node
 * that stood still itself has what came meanwhile still to be dealt with.
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
	struct tow_peer_settings *settings = &session->dev->peers.settings;
	unsigned long beat = msecs_to_jiffies(READ_ONCE(settings->heartbeat_ms));
	u32 misses = READ_ONCE(settings->heartbeat_misses);
	u32 idle_s = READ_ONCE(settings->peer_idle_s);

	if (tow_session_silent(session, beat, misses)) {
		tow_session_fail(session, -ETIMEDOUT, TOW_WIRE_FAILED,
				 "silent for too long");
		tow_peer_dump(session->peer, "silent for too long");
	} else if (tow_ops_stall(session->tie,
				 READ_ONCE(session->dev->queues.op_stall_ms))) {
		tow_stat_inc(session->dev, TOW_STAT_STALLS);
		tow_session_fail(session, -ETIMEDOUT, TOW_WIRE_FAILED,
				 "nothing completes for too long");
		tow_peer_dump(session->peer, "nothing completes for too long");
	} else if (READ_ONCE(session->syncs) &&
		   time_after(jiffies, READ_ONCE(session->deadline))) {
		tow_session_fail(session, -ETIMEDOUT, TOW_WIRE_FAILED,
				 "the other end does not go on");
	} else if (idle_s && !tow_session_used(session) &&
		   time_after(jiffies, READ_ONCE(session->busy_at) +
			      idle_s * HZ)) {
		tow_session_fail(session, -ECONNRESET, TOW_WIRE_IDLE, "idle");
	} else if (time_after_eq(jiffies, READ_ONCE(session->said_at) +
				 beat / 2)) {
		tow_session_heartbeat(session);
	}
}

static void tow_session_tick(struct work_struct *work)
{
	struct tow_session *session = container_of(to_delayed_work(work),
						   struct tow_session, timer);
	u32 beat_ms = READ_ONCE(session->dev->peers.settings.heartbeat_ms);
	bool ready = READ_ONCE(session->state) == TOW_SESSION_READY;
	u32 next_ms = ready ? beat_ms / 2 : TOW_HANDSHAKE_MS / 4;

	if (READ_ONCE(session->hung_up))
		tow_session_fail(session, -ECONNRESET, TOW_WIRE_FAILED,
				 "the other end hung up");
	else if (ready)
		tow_session_watch_ready(session);
	else
		tow_session_watch_opening(session);
	/* Not after the end has begun, which waits for us. */
	if (tow_session_alive(session))
		queue_delayed_work(tow_wq, &session->timer,
				   msecs_to_jiffies(next_ms));
}

/* ---- the end -------------------------------------------------------------- */

/* Data queue pairs that it may have. */
static unsigned int tow_session_links(const struct tow_session *session)
{
	return session->data ? session->qps : 0;
}

static void tow_session_destroy_links(struct tow_session *session, bool keep)
{
	unsigned int i;

	for (i = 0; i < tow_session_links(session); i++)
		tow_link_disconnect(&session->data[i], !keep);
	tow_link_disconnect(&session->control, true);
	/* Who deals with a message now may post; who comes later sees the end. */
	if (session->cq)
		flush_work(&session->cq->work);
	for (i = 0; i < tow_session_links(session); i++)
		tow_link_destroy(&session->data[i]);
	tow_link_destroy(&session->control);
	/* Waits for whoever deals with a completion; others are forgotten. */
	if (session->cq) {
		tow_settle(session->cq->device);
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

/* It was we who ended it, before the other end had proved itself. */
static bool tow_session_refused(struct tow_session *session)
{
	return !session->initiator && !session->peer && !session->told &&
	       session->error != -ECONNRESET &&
	       !tow_session_orderly(session->reason);
}

/*
 * Nothing more is posted.  What waits for its turn goes on in another session; or it
 * ends, and its flows are free for another tie.
 */
static void tow_session_close_links(struct tow_session *session, bool keep)
{
	unsigned int i;

	for (i = 0; i < tow_session_links(session); i++)
		tow_ops_close(&session->data[i], !keep);
}

static void tow_session_end(struct work_struct *work)
{
	struct tow_session *session = container_of(work, struct tow_session,
						   end_work);
	bool keep;

	tow_session_log_end(session);
	if (tow_session_refused(session))
		tow_accept_refused(session->dev, &session->handshake.initiator,
				   session->error);
	/*
	 * Whoever makes links, takes a tie, or makes the keys that the last message
	 * is signed with, has finished, and nobody begins any more.
	 */
	mutex_lock(&session->setup);
	mutex_unlock(&session->setup);
	keep = tow_tie_keeps(session);
	/* First: what follows lets the next session begin. */
	tow_session_close_links(session, keep);
	tow_peer_session_lost(session, tow_session_orderly(session->reason),
			      keep);
	if (session->tie && !keep)
		tow_directory_tie_lost(session->tie);
	tow_session_close(session);
	tow_session_destroy_links(session, keep);
	tow_window_gone(session);
	/* Only now: handlers of the connection manager start it, too. */
	cancel_delayed_work_sync(&session->timer);
	tow_tie_leave(session, keep);
	tow_session_note(session, "queue pairs destroyed", 0, 0);
	spin_lock_irq(&session->lock);
	session->state = TOW_SESSION_ENDED;
	spin_unlock_irq(&session->lock);
	/* Takes the list's reference. */
	tow_peer_session_gone(session, tow_session_orderly(session->reason),
			      keep);
}

/* ---- the beginning -------------------------------------------------------- */

/**
 * tow_session_new - a session, OPENING, in the device's list
 * @dev: the device
 * @initiator: our end makes the request
 * @settings: how to connect and to keep it
 *
 * tow_session_fail() ends it, whatever became of it.
 *
 * Return: the session with a reference for the caller; -ENODEV: the device is
 * going; -EAGAIN: too many are half open; -ENOMEM.
 */
struct tow_session *tow_session_new(struct tow_device *dev, bool initiator,
				    const struct tow_peer_settings *settings)
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
	 * Two classes for lockdep: only the responder's is taken within the
	 * connection manager's handlers, and only the initiator's around calls
	 * that take the handlers' lock.
	 */
	mutex_init(&session->setup);
	if (!initiator)
		lockdep_set_class(&session->setup, &tow_session_responder);
	INIT_LIST_HEAD(&session->queue);
	init_waitqueue_head(&session->wait);
	tow_link_init_control(&session->control, session);
	INIT_DELAYED_WORK(&session->timer, tow_session_tick);
	INIT_WORK(&session->end_work, tow_session_end);
	tow_window_init(session);
	ret = tow_peer_session_add(session);
	if (ret) {
		tow_session_put(session);
		return ERR_PTR(ret);
	}
	return session;
}

/*
 * Providers say in many ways that they have no more of something, and there is
 * little else that can go wrong.
 */
static int tow_session_full(struct tow_session *session, int error)
{
	if (error == -ENODEV || error == -EIO)
		return error;
	session->full = true;
	return error == -ENOMEM ? -ENOMEM : -ENOSPC;
}

/**
 * tow_session_create_qp - tow_link_create_qp(), and what it means if it fails
 * @link: the link, of a session
 *
 * Return: 0; -ENOSPC, -ENOMEM: our device has no room, as the session remembers;
 * -ENODEV, -EIO: it is going.
 */
int tow_session_create_qp(struct tow_link *link)
{
	int ret = tow_link_create_qp(link);

	return ret ? tow_session_full(link->session, ret) : 0;
}

/**
 * tow_session_prepare - the control queue pair, ready to receive
 * @session: the session
 * @id: its connection; the session's from now on, whatever is returned
 *
 * Return: 0; -ENOSPC, -ENOMEM; what the provider says.
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
		return tow_session_full(session, PTR_ERR(cq));
	session->cq = cq;
	ret = tow_session_create_qp(&session->control);
	if (ret)
		return ret;
	return tow_session_post_receives(session);
}
