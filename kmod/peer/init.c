// SPDX-License-Identifier: GPL-2.0
/*
 * A device's peers as a whole, from before the first to after the last; and what
 * sessions ask for (tow_peer_session_*()): what a message means that is not the
 * control channel's own, what is said next, and what becomes of an association when its
 * session ends.
 */
#include <linux/jiffies.h>
#include <linux/slab.h>

#include "assoc.h"
#include "core/core.h"
#include "ops.h"
#include "peer.h"
#include "queue.h"

/**
 * tow_peers_init - no peers, on no RDMA device so far
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
	tow_conn_init(peers, dev->ibdev);
	tow_peer_dirs_init(&peers->dirs);
	dev->peers = peers;
	return 0;
}

/**
 * tow_peers_start - peers may come
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
	mutex_unlock(&peers->lock);
	wake_up_all(&peers->wait);
	tow_listen_move(dev, 0);
}

/* Without the lock, as whoever waits cannot take it while it looks. */
static bool tow_peers_all_ended(struct tow_peers *peers)
{
	return xa_empty(&peers->sessions) && !READ_ONCE(peers->assocs) &&
	       list_empty_careful(&peers->attempts);
}

/**
 * tow_peers_stop - undo tow_peers_start(), after tow_peers_quiesce()
 * @dev: the device
 *
 * When it returns, nothing of ours that peers need is on the RDMA device.
 */
void tow_peers_stop(struct tow_device *dev)
{
	struct tow_peers *peers = dev->peers;
	struct tow_peer *peer;
	unsigned long index;

	wait_event(peers->wait, tow_peers_all_ended(peers));
	/* Whoever made it quiet has let go of the lock. */
	mutex_lock(&peers->lock);
	mutex_unlock(&peers->lock);
	xa_for_each(&peers->by_id, index, peer) {
		mutex_lock(&peers->lock);
		tow_peer_take_out(peer);
		mutex_unlock(&peers->lock);
		tow_peer_sysfs_remove(peer);
		tow_peer_put(peer);
	}
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

/**
 * tow_accept_error - what an initiator is told that could not be accepted
 * @session: the responder's; it remembers whether our device had no room
 * @error: why, a negative errno
 *
 * Return: @error; -EAGAIN: there will be room soon, as a connection that nobody uses
 * is about to end.
 */
int tow_accept_error(struct tow_session *session, int error)
{
	if (session->full && tow_evict_soon(session->dev))
		return -EAGAIN;
	return error;
}

/*
 * The initiator proves that it holds the cluster key.  Return: 0; -EKEYREJECTED: it does
 * not; -EPROTO: it does, and says nonsense.
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
		ret = tow_accept_error(session, ret);
		/* Not the other end's fault: it is told why, and that is all. */
		tow_session_fail(session, ret, tow_session_reason_of(ret),
				 ret == -EALREADY ?
				 "another connection goes on instead" :
				 "not accepted");
		return 0;
	}
	if (!tow_session_set_state(session, TOW_SESSION_AUTHENTICATED))
		return 0;
	tow_session_note(session, "authenticated", session->id, 0);
	ret = tow_session_send(session, TOW_WIRE_AUTHED, 0, &authed,
			       sizeof(authed));
	if (ret)
		tow_session_fail(session, ret, tow_session_reason_of(ret),
				 "AUTHED could not be sent");
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

static int tow_peer_session_dispatch(struct tow_session *session, u8 type,
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
		return tow_replay_receive(session, body, bytes);
	default:
		return tow_directory_receive(session->assoc, type, request, body,
					     bytes);
	}
}

/**
 * tow_peer_session_receive - a message that is not the control channel's own
 * @session: by which it came; one is dealt with at a time
 * @type: enum tow_wire_type; it is in its place
 * @request: as in the header
 * @body: the message but its header
 * @bytes: of @body; as many as @type has at least
 *
 * Return: 0; -EPROTO, -EKEYREJECTED: it must not be; another negative errno: it
 * could not be dealt with.
 */
int tow_peer_session_receive(struct tow_session *session, u8 type,
			     u32 request, void *body, size_t bytes)
{
	int ret = tow_peer_session_dispatch(session, type, request, body,
					    bytes);

	if (!ret)
		tow_assoc_log_received(session, type);
	return ret;
}

/*
 * What the directory has to say.  SYNC comes after what it says to resolvers, by
 * which these know what was revoked.
 */
static size_t tow_message_of_assoc(struct tow_session *session, u8 *type,
				   u32 *request, void *body)
{
	struct tow_assoc *assoc = session->assoc;
	size_t bytes;

	bytes = tow_directory_fill(assoc, session->synced, type, request, body);
	if (*type) {
		tow_assoc_log_add(session, *type, *request, body, bytes);
	} else if (!session->synced) {
		session->synced = true;
		*type = TOW_WIRE_SYNC;
		bytes = tow_replay_fill(assoc, body);
	}
	return bytes;
}

/**
 * tow_peer_session_fill - what is to be said next to a peer
 * @session: READY; the caller has its @pump
 * @type: where to: enum tow_wire_type
 * @request: where to: for the header
 * @body: where to: the message but its header, TOW_WIRE_BODY_BYTES
 * @bytes: where to: of @body
 *
 * tow_peer_session_posted() is due when it was posted.
 *
 * Return: false: there is nothing to be said.
 */
bool tow_peer_session_fill(struct tow_session *session, u8 *type,
			   u32 *request, void *body, size_t *bytes)
{
	if (tow_assoc_log_next(session, type, request, body, bytes))
		return true;
	*type = 0;
	*request = 0;
	*bytes = tow_credit_fill(session, type, body);
	if (!*type && tow_assoc_log_has_room(session))
		*bytes = tow_message_of_assoc(session, type, request, body);
	return *type;
}

/**
 * tow_peer_session_posted - a message was posted
 * @session: by which; the caller has its @pump
 * @type: enum tow_wire_type
 */
void tow_peer_session_posted(struct tow_session *session, u8 type)
{
	if (tow_wire_lasts(type))
		tow_assoc_log_posted(session);
}

/**
 * tow_peer_session_tick - look twice a heartbeat whether a session is to go on
 * @session: READY, and its other end was heard
 *
 * Return: true: it is not, and ends.
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
 * Nothing more is posted.  What waits for its turn goes on in another session; or it
 * ends, and its flows are free for another association.
 */
static void tow_session_close_links(struct tow_session *session, bool keep)
{
	unsigned int i;

	for (i = 0; session->data && i < session->qps; i++)
		tow_ops_close(&session->data[i], !keep);
}

/**
 * tow_peer_session_closing - a session is ENDING: nothing begins any more
 * @session: it; nobody makes links of it any more
 *
 * Return: whether what it carries outlives it, for what is called later.
 */
bool tow_peer_session_closing(struct tow_session *session)
{
	bool keep = tow_assoc_keeps(session);

	/* First: what follows lets the next session begin. */
	tow_session_close_links(session, keep);
	tow_peer_session_ending(session, tow_session_orderly(session->reason),
				keep);
	if (session->assoc && !keep)
		tow_directory_assoc_lost(session->assoc);
	return keep;
}

/**
 * tow_peer_session_closed - nobody reaches anything by a session any more
 * @session: ENDING; its queue pairs are destroyed
 * @keep: from tow_peer_session_closing()
 */
void tow_peer_session_closed(struct tow_session *session, bool keep)
{
	tow_credit_gone(session);
	tow_assoc_leave(session, keep);
}

/**
 * tow_peer_session_release - a session is about to be freed
 * @session: the session; nobody has a reference
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
