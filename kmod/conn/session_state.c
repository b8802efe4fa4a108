// SPDX-License-Identifier: GPL-2.0
/*
 * A session's states, what errors mean at both ends, and the settings.
 *
 * A state only ever leads to a later one, under tow_session.lock.  The first error
 * ends the session (tow_session_fail()), and is what everybody is told from then on;
 * what has to be done then is the work item's (session.c).  Nothing here waits.
 */
#include <linux/jiffies.h>
#include <linux/minmax.h>

#include "core/core.h"
#include "core/trace.h"
#include "peer.h"
#include "session.h"

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

/**
 * tow_session_orderly - is a session's end wanted?
 * @reason: of its end, enum tow_wire_reason
 *
 * Return: true: it is no failure, whoever says so, and nobody needs to know why.
 */
bool tow_session_orderly(u32 reason)
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
	tow_session_look_in(session, READ_ONCE(session->dev->peers->settings.heartbeat_ms) / 2);
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

/* ---- settings ------------------------------------------------------------- */

/**
 * tow_conn_settings_init - what holds as long as no administrator says otherwise
 * @settings: the settings
 * @ibdev: the RDMA device
 */
void tow_conn_settings_init(struct tow_conn_settings *settings,
			    struct ib_device *ibdev)
{
	*settings = (struct tow_conn_settings){
		.peer_limit		= TOW_PEERS_MAX,
		.qps_per_peer		= 4,
		.cqs			= 4,
		/* Soft-RoCE keeps one entry of a power of two free. */
		.queue_depth		= clamp_t(u32, ibdev->attrs.max_qp_wr, 1,
						  127),
		.listen_port		= 18600,
		.peer_idle_s		= 600,
		.heartbeat_ms		= 1000,
		.heartbeat_misses	= 5,
		.reconnect_timeout_ms	= 10000,
		.revoke_timeout_ms	= 5000,
		.gid_index		= -1,
		/* 67 ms */
		.timeout		= 14,
		/* Seven means for ever to soft-RoCE. */
		.retry_count		= 6,
	};
}

/**
 * tow_conn_settings_read - a copy of a device's settings
 * @peers: the device's peers
 * @settings: the copy
 *
 * An administrator may write to them meanwhile: each is the one before or the one
 * after, and stays what it is while the copy is checked and used.
 */
void tow_conn_settings_read(const struct tow_peers *peers,
			    struct tow_conn_settings *settings)
{
	const u32 *from = (const u32 *)&peers->settings;
	u32 *to = (u32 *)settings;
	size_t i;

	BUILD_BUG_ON(sizeof(*settings) % sizeof(*to));
	for (i = 0; i < sizeof(*settings) / sizeof(*to); i++)
		to[i] = READ_ONCE(from[i]);
}
