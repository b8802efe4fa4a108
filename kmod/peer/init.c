// SPDX-License-Identifier: GPL-2.0
/*
 * The life of a device's peers as a whole; and what conn/ calls for a session
 * (tow_peer_session_*()): handling messages that are not the control channel's
 * own, choosing the next message, and ending or keeping the association at the
 * session's end.
 */
#include <linux/jiffies.h>
#include <linux/slab.h>

#include "assoc.h"
#include "core/core.h"
#include "export.h"
#include "ops.h"
#include "peer.h"
#include "queue.h"

/**
 * tow_peers_init - make an empty table of peers
 * @dev: the device
 *
 * Return: 0 or -ENOMEM.
 */
int tow_peers_init(struct tow_device *dev)
{
	struct tow_peers *peers = kzalloc(sizeof(*peers), GFP_KERNEL);

	if (!peers)
		return -ENOMEM;
	mutex_init(&peers->lock);
	xa_init(&peers->by_id);
	xa_init(&peers->sessions);
	INIT_LIST_HEAD(&peers->attempts);
	init_waitqueue_head(&peers->wait);
	peers->seek = tow_peer_seek;
	tow_attempts_init(dev);
	tow_conn_init(peers, dev->ibdev);
	tow_peer_dirs_init(&peers->dirs);
	dev->peers = peers;
	return 0;
}

/**
 * tow_peers_start - peers may connect
 * @dev: the device, in use from now on
 *
 * Return: as tow_conn_start().
 */
int tow_peers_start(struct tow_device *dev)
{
	return tow_conn_start(dev);
}

/**
 * tow_peers_quiesce - nothing begins any more, and all sessions end
 * @dev: the device
 */
void tow_peers_quiesce(struct tow_device *dev)
{
	struct tow_peers *peers = dev->peers;
	struct tow_session *session;
	unsigned long index;
	struct tow_peer *peer;

	mutex_lock(&peers->lock);
	WRITE_ONCE(peers->stopping, true);
	xa_for_each(&peers->by_id, index, peer)
		tow_peer_drop_assoc(peer, -ENODEV, true);
	xa_for_each(&peers->sessions, index, session)
		tow_session_fail(session, -ENODEV, TOW_WIRE_GOING,
				 "the device is going");
	tow_attempts_stop(peers);
	mutex_unlock(&peers->lock);
	wake_up_all(&peers->wait);
	tow_listen_move(dev, 0);
}

/* Without tow_peers.lock, which a wait_event() condition cannot take. */
static bool tow_peers_all_ended(struct tow_peers *peers)
{
	return xa_empty(&peers->sessions) && !READ_ONCE(peers->assocs) &&
	       list_empty_careful(&peers->attempts);
}

/**
 * tow_peers_stop - undo tow_peers_start(), after tow_peers_quiesce()
 * @dev: the device
 *
 * On return peers have nothing on the RDMA device any more.
 */
void tow_peers_stop(struct tow_device *dev)
{
	struct tow_peers *peers = dev->peers;
	struct tow_peer *peer;
	unsigned long index;
	LIST_HEAD(taken);

	wait_event(peers->wait, tow_peers_all_ended(peers));
	/*
	 * The lock also waits for whatever ended last.  PEER_DISCONNECT may
	 * forget an idle peer meanwhile: each peer is taken out once.
	 */
	mutex_lock(&peers->lock);
	xa_for_each(&peers->by_id, index, peer) {
		tow_peer_take_out(peer);
		list_add_tail(&peer->taken, &taken);
	}
	mutex_unlock(&peers->lock);
	tow_peer_forget(&taken);
	tow_conn_stop(dev);
}

/**
 * tow_peers_cleanup - undo tow_peers_init()
 * @dev: the device, without peers
 */
void tow_peers_cleanup(struct tow_device *dev)
{
	struct tow_peers *peers = dev->peers;

	tow_conn_cleanup(peers);
	xa_destroy(&peers->by_id);
	xa_destroy(&peers->sessions);
	kfree(peers);
}

/* ---- sessions ------------------------------------------------------------- */

/*
 * Handle AUTH, the initiator's proof.  Return: 0, also if the session ends for
 * another reason; -EKEYREJECTED: the proof is wrong; -EPROTO: another field is.
 */
static int tow_accept_auth(struct tow_session *session,
			   const struct tow_wire_auth *auth)
{
	struct tow_wire_authed authed;
	int ret;

	if (!tow_auth_equal(auth->mac, session->auth.initiator_mac,
			    sizeof(auth->mac)))
		return -EKEYREJECTED;
	if (!auth->order)
		return -EPROTO;
	ret = tow_peer_authenticated(session, le64_to_cpu(auth->order));
	if (!ret)
		ret = tow_assoc_asked(session, auth, &authed);
	if (ret == -EPROTO)
		return ret;
	if (ret) {
		/* Not the other end's fault: GOODBYE has the reason. */
		tow_session_fail(session, ret, tow_session_reason_of(ret),
				 ret == -EALREADY ?
				 "another connection goes on instead" :
				 "not accepted");
		return 0;
	}
	if (!tow_session_set_state(session, TOW_SESSION_AUTHENTICATED))
		return 0;
	tow_session_note(session, "authenticated", session->index, 0);
	ret = tow_session_send(session, TOW_WIRE_AUTHED, 0, &authed,
			       sizeof(authed));
	if (ret)
		tow_session_fail(session, ret, tow_session_reason_of(ret),
				 "AUTHED could not be sent");
	else
		tow_data_accept(session);
	return 0;
}

static int tow_message_authed(struct tow_session *session,
			      const struct tow_wire_authed *authed)
{
	int ret = tow_assoc_answered(session, authed);

	if (ret == -EPROTO)
		return ret;
	if (ret)
		tow_session_fail(session, ret, tow_session_reason_of(ret),
				 "it cannot go on");
	else
		tow_session_set_state(session, TOW_SESSION_AUTHENTICATED);
	return 0;
}

static int tow_message_sync(struct tow_session *session,
			    const struct tow_wire_sync *sync, size_t bytes)
{
	int ret = tow_replay_receive(session, sync, bytes);

	return ret ?: tow_grant_assoc_heard(session->assoc,
					    le64_to_cpu(sync->grant));
}

/**
 * tow_peer_session_receive - handle a message that is not the control channel's
 *	own
 * @session: the session that received it, one message at a time
 * @type: enum tow_wire_type; allowed in the session's state
 * @request: as in the header
 * @body: the message but its header
 * @bytes: of @body; at least the size that @type has
 *
 * Return: 0; -EPROTO, -EKEYREJECTED: the message breaks the protocol; another
 * negative errno: it could not be handled.
 */
int tow_peer_session_receive(struct tow_session *session, u8 type,
			     u32 request, void *body, size_t bytes)
{
	switch (type) {
	case TOW_WIRE_AUTH:
		return tow_accept_auth(session, body);
	case TOW_WIRE_AUTHED:
		return tow_message_authed(session, body);
	case TOW_WIRE_NOTIFIED:
		return tow_credit_returned(session, body);
	case TOW_WIRE_SYNC:
		return tow_message_sync(session, body, bytes);
	default:
		/* Before SYNC has said which grants it was told of. */
		if (READ_ONCE(session->syncs) && type != TOW_WIRE_REVOKE)
			return -EPROTO;
		return tow_directory_receive(session->assoc, type, request, body,
					     bytes);
	}
}

/**
 * tow_peer_session_fill - choose the next message to a peer
 * @session: the session, READY; caller holds its @pump
 * @type: where to: enum tow_wire_type
 * @request: where to: for the header
 * @body: where to: the message but its header, TOW_WIRE_BODY_BYTES
 * @bytes: where to: size of the body
 *
 * Return: true; false: there is no message to be sent.
 */
bool tow_peer_session_fill(struct tow_session *session, u8 *type,
			   u32 *request, void *body, size_t *bytes)
{
	*type = 0;
	*request = 0;
	*bytes = tow_credit_fill(session, type, body);
	if (!*type)
		*bytes = tow_directory_fill(session, type, request, body);
	/* After REVOKE, and before the directory asks for anything. */
	if (!*type && !session->synced) {
		session->synced = true;
		*type = TOW_WIRE_SYNC;
		*bytes = tow_replay_fill(session->assoc, body);
	}
	return *type;
}

/**
 * tow_peer_session_tick - end a session that stalls, is idle or cannot resume
 * @session: the session, READY; its other end was heard lately
 *
 * Called twice in a heartbeat's interval.
 *
 * Return: true: the session ends.
 */
bool tow_peer_session_tick(struct tow_session *session)
{
	struct tow_device *dev = session->dev;
	u32 idle_s = READ_ONCE(dev->peers->settings.peer_idle_s);

	if (tow_ops_stall(session->assoc, READ_ONCE(dev->queues->op_stall_ms))) {
		tow_stat_inc(dev, TOW_STAT_STALLS);
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
	} else {
		return false;
	}
	return true;
}

/*
 * Post no more operations.  Operations that wait stay for another session if
 * @keep; else they are aborted, and their flows may be used with another
 * association.
 */
static void tow_session_close_links(struct tow_session *session, bool keep)
{
	unsigned int i;

	for (i = 0; session->data && i < session->qps; i++)
		tow_ops_close(&session->data[i], !keep);
}

/**
 * tow_peer_session_closing - a session is ENDING: let nothing begin any more
 * @session: the session; its links are not changed any more
 *
 * Return: true: its association may be carried by another session; an argument
 * for tow_peer_session_closed() and tow_peer_session_gone().
 */
bool tow_peer_session_closing(struct tow_session *session)
{
	bool keep = tow_assoc_keeps(session);

	/* First: tow_peer_session_ending() lets the next session begin. */
	tow_session_close_links(session, keep);
	tow_peer_session_ending(session, tow_session_orderly(session->reason),
				keep);
	if (session->assoc && !keep)
		tow_directory_assoc_lost(session->assoc);
	return keep;
}

/**
 * tow_peer_session_closed - release what the other end could reach by a session
 * @session: the session, ENDING; its queue pairs are destroyed
 * @keep: from tow_peer_session_closing()
 */
void tow_peer_session_closed(struct tow_session *session, bool keep)
{
	tow_credit_gone(session);
	tow_assoc_leave(session, keep);
}

/**
 * tow_peer_session_release - put the references that a session has
 * @session: the session, about to be freed
 */
void tow_peer_session_release(struct tow_session *session)
{
	if (session->asked)
		tow_assoc_put(session->asked);
	if (session->assoc)
		tow_assoc_put(session->assoc);
	if (session->peer)
		tow_peer_put(session->peer);
}
