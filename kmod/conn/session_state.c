// SPDX-License-Identifier: GPL-2.0
/*
 * A session's states, its errors and reasons, and the settings.
 *
 * A state only ever changes to a later one, under tow_session.lock.  The first
 * error ends the session (tow_session_fail()) and stays its error; a work item
 * does the rest (session.c).  Nothing here sleeps.
 */
#include <linux/jiffies.h>
#include <linux/minmax.h>

#include "core/core.h"
#include "core/trace.h"
#include "peer.h"
#include "session.h"

/* After the connection manager's DISCONNECTED event GOODBYE may still come. */
#define TOW_HANG_UP_MS		50

/**
 * tow_session_error_of - the errno of a reason
 * @reason: enum tow_wire_reason, as the other end sent it
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
	case TOW_WIRE_TOO_LONG:
		return -EMSGSIZE;
	default:
		return -ECONNRESET;
	}
}

/**
 * tow_session_reason_of - the reason to send to the other end for an error
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
	case -EMSGSIZE:
		return TOW_WIRE_TOO_LONG;
	case -ENODEV:
		return TOW_WIRE_GOING;
	default:
		return TOW_WIRE_FAILED;
	}
}

/**
 * tow_session_orderly - does a session end in good order?
 * @reason: why it ends, enum tow_wire_reason of either end
 *
 * Return: true: it does, and the end is not logged; false: it is a failure.
 */
bool tow_session_orderly(u32 reason)
{
	return reason == TOW_WIRE_IDLE || reason == TOW_WIRE_ADMIN ||
	       reason == TOW_WIRE_GOING || reason == TOW_WIRE_REPLACED ||
	       reason == TOW_WIRE_CROSSED;
}

/**
 * tow_session_may_pass - may another session carry this session's association?
 * @session: the session, ENDING
 *
 * Return: true: it may; false: the association ends with the session.
 */
bool tow_session_may_pass(struct tow_session *session)
{
	/*
	 * -ENODEV: the device is going; -ESTALE: another life of the peer has
	 * come.
	 */
	if (session->error == -ENODEV || session->error == -ESTALE)
		return false;
	/* REPLACED, CROSSED: only another connection was chosen. */
	return session->reason == TOW_WIRE_FAILED ||
	       session->reason == TOW_WIRE_BUSY ||
	       session->reason == TOW_WIRE_NO_ROOM ||
	       session->reason == TOW_WIRE_TOO_LONG ||
	       session->reason == TOW_WIRE_REVOKE_LATE ||
	       session->reason == TOW_WIRE_REPLACED ||
	       session->reason == TOW_WIRE_CROSSED;
}

/**
 * tow_session_explain - an error of connecting, for the log
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
	case -ENODEV:
		return "the device is going";
	case -ETIMEDOUT:
		return "nothing was proved in time";
	default:
		return "failed";
	}
}

/**
 * tow_session_note - record what happened in the peer's recorder
 * @session: the session; while it has no peer, a trace event is made instead
 * @stage: a string that is never freed
 * @subject: a number that goes with @stage, or 0
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
 * tow_session_alive - is a session not ENDING yet?
 * @session: the session
 *
 * Return: false: it is ENDING or ENDED.
 */
bool tow_session_alive(const struct tow_session *session)
{
	/* Pairs with tow_session_fail(). */
	return smp_load_acquire(&session->state) < TOW_SESSION_ENDING;
}

/**
 * tow_session_set_state - change to a later state
 * @session: the session
 * @state: AUTHENTICATED or READY
 *
 * Return: true; false: the session is ENDING, or is in @state or a later one.
 */
bool tow_session_set_state(struct tow_session *session,
			   enum tow_session_state state)
{
	unsigned long flags;
	bool result = false;

	spin_lock_irqsave(&session->lock, flags);
	if (session->state < TOW_SESSION_ENDING && session->state < state) {
		session->state = state;
		/* Time for all data queue pairs. */
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
 * tow_session_fail - end a session
 * @session: the session; may be ENDING already
 * @error: the session's error, a negative errno
 * @reason: the reason in GOODBYE: enum tow_wire_reason
 * @why: for the log, a string that is never freed
 *
 * In any context; caller does not hold tow_session.lock.
 *
 * Return: true; false: the session was ENDING before, with another error.
 */
bool tow_session_fail(struct tow_session *session, int error, u32 reason,
		      const char *why)
{
	unsigned long flags;
	bool first = false;

	spin_lock_irqsave(&session->lock, flags);
	if (session->state < TOW_SESSION_ENDING) {
		session->error = error;
		session->reason = reason;
		session->why = why;
		/* Pairs with tow_session_alive(): whoever sees it has the rest. */
		smp_store_release(&session->state, TOW_SESSION_ENDING);
		first = true;
		/* The list's reference is put at the end of the work. */
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
 * tow_session_watch - start the timer
 * @session: the session, new; caller holds tow_peers.lock, so no other task
 *	finds the session and ends it before the timer is queued
 */
void tow_session_watch(struct tow_session *session)
{
	tow_session_look_in(session, TOW_HANDSHAKE_MS / 4);
}

/**
 * tow_session_beats - start heartbeats
 * @session: the session, which has become READY; the caller is a handler or work
 *	item that tow_session_end() waits for before it cancels the timer
 *
 * The first heartbeat may be due long before the timer would run next.
 */
void tow_session_beats(struct tow_session *session)
{
	/* Before READY the other end need not send anything. */
	WRITE_ONCE(session->heard_at, jiffies);
	tow_session_look_in(session, READ_ONCE(session->dev->peers->settings.heartbeat_ms) / 2);
}

/**
 * tow_session_hung_up - the connection manager says that the other end has
 *	disconnected
 * @session: the session
 *
 * The session ends TOW_HANG_UP_MS later: GOODBYE may come first.
 */
void tow_session_hung_up(struct tow_session *session)
{
	WRITE_ONCE(session->hung_up, true);
	if (tow_session_alive(session))
		tow_session_look_in(session, TOW_HANG_UP_MS);
}

/* ---- settings ------------------------------------------------------------- */

/**
 * tow_conn_settings_init - set the defaults
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
		.traffic_class		= -1,
		/*
		 * 67 ms in software.  1.07 s on hardware, where queues in
		 * switches and pauses may hold an ACK up for longer than 67 ms.
		 */
		.timeout		= ib_uses_virt_dma(ibdev) ? 14 : 18,
		/* Soft-RoCE takes 7 as no limit. */
		.retry_count		= 6,
	};
}

/**
 * tow_conn_settings_read - copy a device's settings
 * @peers: the device's peers
 * @settings: where to
 *
 * An administrator may write to the settings meanwhile: each value of the copy
 * is an old or a new one, and does not change while the copy is checked and
 * used.
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
