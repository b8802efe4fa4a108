// SPDX-License-Identifier: GPL-2.0
/*
 * The life of a device's peers as a whole; and what sessions call
 * (tow_peer_session_ops): handling messages that are not the control channel's
 * own, choosing the next message, and ending or keeping the association at the
 * session's end.
 */
#include <linux/jiffies.h>
#include <linux/slab.h>

#include "assoc.h"
#include "core/core.h"
#include "peer.h"

/* What sessions call: below. */
static const struct tow_session_ops tow_peer_session_ops;

/**
 * tow_peers_init - make an empty table of peers
 * @dev: the device
 * @link_ops: for data queue pairs
 * @clients: of associations, in the order in which they are called; then NULL
 *
 * Return: 0 or -ENOMEM.
 */
int tow_peers_init(struct tow_device *dev, const struct tow_link_ops *link_ops,
		   const struct tow_assoc_client *const *clients)
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
	peers->session_ops = &tow_peer_session_ops;
	peers->link_ops = link_ops;
	peers->clients = clients;
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

/*
 * Handle a message that is not the control channel's own: the proofs here, all
 * others by who uses the association.
 */
static int tow_peer_session_receive(struct tow_session *session, u8 type,
				    u32 request, void *body, size_t bytes)
{
	const struct tow_assoc_client *const *at = session->dev->peers->clients;
	int ret = 0;

	switch (type) {
	case TOW_WIRE_AUTH:
		return tow_accept_auth(session, body);
	case TOW_WIRE_AUTHED:
		return tow_message_authed(session, body);
	case TOW_WIRE_NOTIFIED:
	case TOW_WIRE_SYNC:
	case TOW_WIRE_REVOKE:
		break;
	default:
		/* Before SYNC has said which grants it was told of. */
		if (READ_ONCE(session->syncs))
			return -EPROTO;
	}
	for (; *at && !ret; at++)
		if ((*at)->receive)
			ret = (*at)->receive(session, type, request, body,
					     bytes);
	return ret;
}

/* Fill in SYNC: what we had received before.  Return: the body's size. */
static size_t tow_sync_fill(struct tow_assoc *assoc, struct tow_wire_sync *sync)
{
	unsigned int i;

	sync->epoch = cpu_to_le32(READ_ONCE(assoc->peer->epoch));
	sync->count = cpu_to_le32(assoc->qps);
	sync->grant = cpu_to_le64(READ_ONCE(assoc->dir.last_heard));
	/* Nothing has arrived in this session: the peer waits for SYNC. */
	for (i = 0; i < assoc->qps; i++)
		sync->notified[i] =
			cpu_to_le32(READ_ONCE(assoc->data[i].arrived));
	return struct_size(sync, notified, assoc->qps);
}

static bool tow_peer_session_fill(struct tow_session *session, u8 *type,
				  u32 *request, void *body, size_t *bytes)
{
	const struct tow_assoc_client *const *at = session->dev->peers->clients;

	*type = 0;
	*request = 0;
	for (; *at && !*type; at++)
		if ((*at)->fill)
			*bytes = (*at)->fill(session, type, request, body);
	/* After REVOKE, and before the directory asks for anything. */
	if (!*type && !session->synced) {
		session->synced = true;
		*type = TOW_WIRE_SYNC;
		*bytes = tow_sync_fill(session->assoc, body);
	}
	return *type;
}

/* End a session that is silent, stalls, is idle or cannot resume. */
static void tow_peer_session_tick(struct tow_session *session, bool silent)
{
	struct tow_peers *peers = session->dev->peers;
	u32 idle_s = READ_ONCE(peers->settings.peer_idle_s);

	if (silent) {
		tow_session_fail(session, -ETIMEDOUT, TOW_WIRE_FAILED,
				 "silent for too long");
		tow_peer_dump(session->peer, "silent for too long");
		return;
	}
	tow_clients_call(session->dev, tick, session);
	if (READ_ONCE(session->syncs) &&
	    time_after(jiffies, READ_ONCE(session->deadline)))
		tow_session_fail(session, -ETIMEDOUT, TOW_WIRE_FAILED,
				 "the other end does not go on");
	else if (idle_s && !tow_session_used(session) &&
		 time_after(jiffies, READ_ONCE(session->busy_at) + idle_s * HZ))
		tow_session_fail(session, -ECONNRESET, TOW_WIRE_IDLE, "idle");
}

static int tow_peer_session_begin(struct tow_session *session)
{
	tow_clients_call(session->dev, session_init, session);
	return tow_peer_session_add(session);
}

/*
 * Let nothing begin any more.  Operations that wait stay for another session if
 * the association is kept; else they are aborted, and their flows may be used
 * with another association.
 */
static bool tow_peer_session_closing(struct tow_session *session)
{
	struct tow_assoc *assoc = session->assoc;
	bool keep = tow_assoc_keeps(session);

	/* First: tow_peer_session_ending() lets the next session begin. */
	if (assoc)
		tow_clients_call(session->dev, suspend, assoc, !keep);
	tow_peer_session_ending(session, tow_session_orderly(session->reason),
				keep);
	if (assoc && !keep)
		tow_clients_call(session->dev, lost, assoc);
	return keep;
}

static void tow_peer_session_closed(struct tow_session *session, bool keep)
{
	tow_clients_call(session->dev, session_gone, session);
	tow_assoc_leave(session, keep);
}

static void tow_peer_session_release(struct tow_session *session)
{
	if (session->asked)
		tow_assoc_put(session->asked);
	if (session->assoc)
		tow_assoc_put(session->assoc);
	if (session->peer)
		tow_peer_put(session->peer);
}

static const struct tow_session_ops tow_peer_session_ops = {
	.add		= tow_peer_session_begin,
	.receive	= tow_peer_session_receive,
	.fill		= tow_peer_session_fill,
	.ready		= tow_peer_session_ready,
	.tick		= tow_peer_session_tick,
	.closing	= tow_peer_session_closing,
	.closed		= tow_peer_session_closed,
	.gone		= tow_peer_session_gone,
	.release	= tow_peer_session_release,
};
