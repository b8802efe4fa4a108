// SPDX-License-Identifier: GPL-2.0
/*
 * Which session is a peer's present one.
 *
 * Two nodes may connect to each other at the same time, or one node may connect
 * twice, over two addresses.  The first message (AUTH) decides, under
 * tow_peers.lock of each node.  An initiator that sends AUTH has given up every
 * earlier connection, so the responder replaces its present session by the new
 * one.  It refuses AUTH (CROSSED) in three cases: its @order is not the largest
 * so far; the present session is ours and became READY after the request came;
 * or ours is not READY yet and our incarnation is the larger one.
 * Documentation/models/connect.pml checks all of it.
 */
#include <linux/slab.h>
#include <rdma/ib_cache.h>

#include "assoc.h"
#include "core/core.h"
#include "peer.h"
#include "state.h"

/* Responder's sessions whose other end has not proved itself. */
#define TOW_HALF_OPEN_MAX	64

/* A peer that was silent for so long, or for two heartbeats, may be at another address. */
#define TOW_ELSEWHERE_MS	2000U

/* ---- the list of sessions ------------------------------------------------- */

/**
 * tow_peer_session_add - put a session into the device's list
 * @session: the session, new
 *
 * Return: 0: the device's list has a reference; -ENODEV: the device is going; -EAGAIN:
 * too many are half open; -ENOMEM.
 */
int tow_peer_session_add(struct tow_session *session)
{
	struct tow_peers *peers = session->dev->peers;
	int ret = 0;

	mutex_lock(&peers->lock);
	if (peers->stopping)
		ret = -ENODEV;
	else if (!session->initiator && peers->half_open >= TOW_HALF_OPEN_MAX)
		ret = -EAGAIN;
	if (ret)
		goto out_unlock;
	ret = xa_insert(&peers->sessions, ++peers->last_session, session,
			GFP_KERNEL);
	if (ret)
		goto out_unlock;
	session->index = peers->last_session;
	session->opened_at = ++peers->clock;
	session->half_open = !session->initiator;
	peers->half_open += session->half_open;
	tow_stat_inc(session->dev, TOW_STAT_SESSIONS);
	tow_session_get(session);
	tow_session_watch(session);
out_unlock:
	mutex_unlock(&peers->lock);
	return ret;
}

/**
 * tow_peer_session_next - go through all sessions
 * @dev: the device
 * @cursor: number of the last session, or 0; set to that of the returned one
 *
 * Return: the next session, with a reference for the caller; NULL: there is
 * none.
 */
struct tow_session *tow_peer_session_next(struct tow_device *dev, u64 *cursor)
{
	struct tow_peers *peers = dev->peers;
	unsigned long index = *cursor;
	struct tow_session *session;

	mutex_lock(&peers->lock);
	session = xa_find_after(&peers->sessions, &index, ULONG_MAX,
				XA_PRESENT);
	if (session) {
		*cursor = index;
		tow_session_get(session);
	}
	mutex_unlock(&peers->lock);
	return session;
}

/*
 * Why a connected session cannot go on; NULL: it can.  Caller holds @setup.  A
 * port that is down does not matter to loopback.
 */
static const char *tow_session_cut_off(const struct tow_session *session, u32 down)
{
	const struct ib_gid_attr *from;
	union ib_gid gid;

	if (!tow_session_alive(session) ||
	    session->control.step != TOW_LINK_ESTABLISHED)
		return NULL;
	from = session->control.id->route.addr.dev_addr.sgid_attr;
	if (!from)
		return NULL;
	if (from->port_num == down && !session->loopback)
		return "the port is down";
	if (rdma_query_gid(from->device, from->port_num, from->index, &gid) ||
	    memcmp(&gid, &from->gid, sizeof(gid)))
		return "our address is gone";
	return NULL;
}

/*
 * One look at a time: each takes @setup of every session for a moment, where
 * another would take it for held.
 */
static DEFINE_MUTEX(tow_sessions_look_lock);

/**
 * tow_sessions_look - end the sessions that a change of the device cuts off
 * @dev: the device; a port has changed, or its addresses have
 * @down: the port that is down; 0: none
 *
 * In process context; caller is an event handler, which is unregistered before
 * the device goes.  It may be called with locks that the making of links needs
 * (the RDMA core's, RTNL), so it does not wait for @setup: a session whose links
 * are being made is left to its time-outs.
 */
void tow_sessions_look(struct tow_device *dev, u32 down)
{
	struct tow_session *session;
	const char *why;
	u64 cursor = 0;

	mutex_lock(&tow_sessions_look_lock);
	while ((session = tow_peer_session_next(dev, &cursor))) {
		why = NULL;
		if (mutex_trylock(&session->setup)) {
			why = tow_session_cut_off(session, down);
			mutex_unlock(&session->setup);
		}
		if (why)
			tow_session_fail(session, -ECONNRESET, TOW_WIRE_FAILED, why);
		tow_session_put(session);
	}
	mutex_unlock(&tow_sessions_look_lock);
}

/* ---- the present session -------------------------------------------------- */

static bool tow_peer_session_present(const struct tow_session *session)
{
	return session && tow_session_alive(session);
}

/*
 * As tow_peer_obtain(), but if the table is full a peer without a connection is
 * forgotten.  Caller holds tow_peers.lock, which is dropped for that.
 */
static struct tow_peer *tow_peer_obtain_for(struct tow_device *dev,
					    const u8 *incarnation)
{
	struct tow_peer *peer;
	bool forgotten = true;

	while ((peer = tow_peer_obtain(dev, incarnation)) == ERR_PTR(-ENOSPC) &&
	       forgotten) {
		mutex_unlock(&dev->peers->lock);
		forgotten = tow_peer_forget_oldest(dev);
		mutex_lock(&dev->peers->lock);
	}
	return peer;
}

/*
 * Is another peer's present session younger than @session?  Then @session is of
 * an earlier life of the node, whose last message is handled late.
 */
static bool tow_peer_came_later(const struct tow_peer *other,
				const struct tow_session *session)
{
	const struct tow_session *present = other->session;

	return tow_peer_session_present(present) &&
	       present->opened_at > session->opened_at;
}

/*
 * Another peer had an address that leads to @peer now.  Is it an earlier life of
 * @peer's node?  No: it was heard when @peer was there already, or it has a
 * connection by another address: then the address has moved from node to node.
 */
static bool tow_peer_precedes(const struct tow_peer *other,
			      const struct tow_peer *peer,
			      const struct tow_address *address)
{
	const struct tow_session *session = other->session;
	unsigned long heard_at = session ? READ_ONCE(session->heard_at) :
					   other->heard_at;

	return !time_after(heard_at, peer->made_at) &&
	       (!tow_peer_session_present(session) ||
		tow_peer_session_leads(session, address));
}

/*
 * @session has proved that its address leads to @peer.  Others lose it, and earlier
 * lives of @peer's node are moved from the table to @taken, with the table's
 * references, and their sessions end.
 */
static void tow_peer_claim(struct tow_peer *peer, const struct tow_session *session,
			   struct list_head *taken)
{
	const struct tow_address address = tow_peer_session_address(session);
	struct tow_peers *peers = session->dev->peers;
	struct tow_peer *other;
	unsigned long index;

	lockdep_assert_held(&peers->lock);
	xa_for_each(&peers->by_id, index, other) {
		if (other == peer || other->loopback || peer->loopback ||
		    tow_peer_came_later(other, session) ||
		    !tow_peer_lose_address(other, &address) ||
		    !tow_peer_precedes(other, peer, &address))
			continue;
		tow_peer_take_out(other);
		list_add_tail(&other->taken, taken);
		tow_peer_drop_assoc(other, -ESTALE, false);
		if (other->session)
			tow_session_fail(other->session, -ESTALE,
					 TOW_WIRE_REPLACED,
					 "another life of that node has come");
	}
}

/* Make @session the peer's present session. */
static void tow_peer_install(struct tow_peer *peer, struct tow_session *session)
{
	lockdep_assert_held(&peer->dev->peers->lock);
	/*
	 * The present session broke at the other end, which was not noticed
	 * here.
	 */
	if (peer->state == TOW_PEER_READY && peer->assoc)
		tow_peer_broken(peer, -ECONNRESET);
	if (peer->state == TOW_PEER_READY || peer->state == TOW_PEER_CONNECTING)
		tow_peer_transition(peer, TOW_EVENT_BROKE);
	if (peer->session)
		tow_session_put(peer->session);
	tow_session_get(session);
	peer->session = session;
	tow_peer_get(peer);
	/*
	 * Lets an initiator handle messages.  Pairs with
	 * tow_message_received().
	 */
	smp_store_release(&session->peer, peer);
	peer->epoch++;
	tow_peer_transition(peer, TOW_EVENT_CONNECT);
}

/**
 * tow_peer_begin - make an initiator's session the present one, if there is
 *	none
 * @session: the initiator's session; the other end has proved itself
 * @address: the other end's address
 * @result: the peer with a reference for the caller, also with -EALREADY
 *
 * Return: 0: @session is the peer's present session; -EALREADY: the peer has
 * another; -ENODEV: the device is going; -ENOSPC: there are too many peers;
 * -ENOMEM; the session's error if it is ENDING.
 */
int tow_peer_begin(struct tow_session *session,
		   const struct tow_address *address, struct tow_peer **result)
{
	struct tow_peers *peers = session->dev->peers;
	struct tow_peer *peer;
	LIST_HEAD(earlier);
	int ret = 0;

	mutex_lock(&peers->lock);
	peer = tow_peer_obtain_for(session->dev,
				   session->handshake.reply.incarnation);
	if (IS_ERR(peer)) {
		ret = PTR_ERR(peer);
		goto out_unlock;
	}
	/*
	 * If not ENDING now, tow_peer_session_ending() will find it installed.
	 */
	if (!tow_session_alive(session)) {
		ret = session->error;
		goto out_unlock;
	}
	tow_peer_add_address(peer, address);
	/*
	 * Counted only now: another life of the node may have begun since the
	 * request.
	 */
	session->opened_at = ++peers->clock;
	tow_peer_get(peer);
	*result = peer;
	if (tow_peer_session_present(peer->session)) {
		ret = -EALREADY;
		tow_peer_claim(peer, session, &earlier);
	} else {
		tow_peer_install(peer, session);
	}
out_unlock:
	mutex_unlock(&peers->lock);
	tow_peer_forget(&earlier);
	return ret;
}

/*
 * May a responder's session, whose AUTH has the largest @order so far, replace
 * the present session?
 */
static bool tow_peer_may_replace(struct tow_peer *peer,
				 struct tow_session *present,
				 struct tow_session *session)
{
	/*
	 * The peer made the present one as well, and gave it up before this
	 * AUTH.
	 */
	if (!present->initiator)
		return true;
	/*
	 * Ours is not READY yet, and our incarnation is larger: theirs yields.
	 */
	if (!present->ready_at &&
	    memcmp(peer->dev->incarnation, peer->incarnation,
		   sizeof(peer->incarnation)) > 0)
		return false;
	/*
	 * The request came before ours was READY: the peer has given it up
	 * since.
	 */
	if (present->ready_at > session->opened_at)
		return false;
	return READ_ONCE(present->state) != TOW_SESSION_READY ||
	       present->ready_at;
}

/*
 * Is the peer of a READY session heard still, but not at @address?  A node that
 * connects from another address has given up its earlier connection, which soon
 * is silent; somebody else who has the cluster key, and only says that he is that
 * node, does not take its connection away.
 */
static bool tow_peer_heard_elsewhere(const struct tow_session *present,
				     const struct tow_address *address)
{
	u32 beat_ms = READ_ONCE(present->dev->peers->settings.heartbeat_ms);
	unsigned long silence = msecs_to_jiffies(min(2 * beat_ms,
						     TOW_ELSEWHERE_MS));

	return present->ready_at && !tow_peer_session_leads(present, address) &&
	       time_before(jiffies, READ_ONCE(present->heard_at) + silence);
}

/* Make @session the responder's session of the loopback peer. */
static void tow_peer_install_other_end(struct tow_peer *peer,
				       struct tow_session *session)
{
	if (peer->other_end)
		tow_session_put(peer->other_end);
	tow_session_get(session);
	peer->other_end = session;
	tow_peer_get(peer);
	/* Pairs with tow_message_received(), as in tow_peer_install(). */
	smp_store_release(&session->peer, peer);
}

/**
 * tow_peer_authenticated - make a responder's session the present one, if it
 *	may be
 * @session: the responder's session; the other end has proved itself
 * @order: tow_wire_auth.order
 *
 * Return: 0: @session is the peer's present session; -EALREADY: another session
 * has precedence; -EAGAIN: the peer is heard at another address; -ENODEV: the
 * device is going; -ENOSPC: there are too many peers; -ENOMEM; the session's
 * error if it is ENDING.
 */
int tow_peer_authenticated(struct tow_session *session, u64 order)
{
	const struct tow_address from = tow_peer_session_address(session);
	struct tow_peers *peers = session->dev->peers;
	struct tow_session *present = NULL;
	struct tow_peer *peer;
	int ret = 0;

	mutex_lock(&peers->lock);
	peer = tow_peer_obtain_for(session->dev,
				   session->handshake.request.incarnation);
	if (IS_ERR(peer)) {
		ret = PTR_ERR(peer);
		goto out_unlock;
	}
	if (!tow_session_alive(session)) {
		ret = session->error;
		goto out_unlock;
	}
	/* What was begun goes on, by whichever end's connection. */
	if (!session->initiator && !peer->assoc &&
	    tow_device_draining(session->dev)) {
		ret = -ENODEV;
		goto out_unlock;
	}
	peers->half_open -= session->half_open;
	session->half_open = false;
	if (order <= peer->order) {
		ret = -EALREADY;
		goto out_unlock;
	}
	present = session->loopback ? peer->other_end : peer->session;
	if (!tow_peer_session_present(present))
		present = NULL;
	if (present && !session->loopback &&
	    tow_peer_heard_elsewhere(present, &from)) {
		present = NULL;
		ret = -EAGAIN;
		goto out_unlock;
	}
	peer->order = order;
	if (present && !session->loopback &&
	    !tow_peer_may_replace(peer, present, session)) {
		present = NULL;
		ret = -EALREADY;
		goto out_unlock;
	}
	if (present)
		tow_session_get(present);
	if (session->loopback) {
		tow_peer_install_other_end(peer, session);
	} else {
		tow_peer_add_address(peer, &from);
		tow_peer_install(peer, session);
	}
out_unlock:
	mutex_unlock(&peers->lock);
	if (!ret && present) {
		tow_session_fail(present, -EALREADY, TOW_WIRE_REPLACED,
				 "a newer connection takes its place");
		tow_session_put(present);
	}
	return ret;
}

/* ---- ready, lost, gone ---------------------------------------------------- */

/*
 * Is a session its peer's present one, and alive?  Caller holds tow_peers.lock.
 */
static bool tow_peer_session_counts(const struct tow_session *session)
{
	return session->peer->session == session && tow_session_alive(session);
}

/*
 * Make a peer's folder before the peer is READY.  An earlier life of the node
 * may have a folder of the same name, and is removed first.  Caller holds
 * tow_peers.lock, which is dropped meanwhile.
 */
static void tow_peer_show(struct tow_session *session)
{
	struct tow_peers *peers = session->dev->peers;
	LIST_HEAD(earlier);

	tow_peer_claim(session->peer, session, &earlier);
	mutex_unlock(&peers->lock);
	tow_peer_forget(&earlier);
	tow_peer_sysfs_add(session->peer);
	mutex_lock(&peers->lock);
}

/**
 * tow_peer_session_ready - a session has become READY
 * @session: the session
 */
void tow_peer_session_ready(struct tow_session *session)
{
	struct tow_peer *peer = session->peer;
	struct tow_peers *peers = session->dev->peers;
	LIST_HEAD(earlier);

	tow_stat_inc(session->dev, TOW_STAT_HANDSHAKES);
	mutex_lock(&peers->lock);
	session->ready_at = ++peers->clock;
	session->assoc->settled = true;
	/*
	 * A peer that has its folder already is READY without dropping the
	 * lock.
	 */
	if (tow_peer_session_counts(session) && !READ_ONCE(peer->node))
		tow_peer_show(session);
	if (tow_peer_session_counts(session)) {
		/*
		 * Under one lock: when the peer is READY no earlier life is in
		 * the table.
		 */
		tow_peer_claim(peer, session, &earlier);
		peer->error = 0;
		tow_peer_transition(peer, TOW_EVENT_ESTABLISHED);
	}
	mutex_unlock(&peers->lock);
	tow_peer_forget(&earlier);
}

/**
 * tow_peer_session_ending - a session is ENDING
 * @session: the session
 * @orderly: the end is no failure
 * @keep: another session may carry its association
 */
void tow_peer_session_ending(struct tow_session *session, bool orderly, bool keep)
{
	struct tow_peers *peers = session->dev->peers;
	struct tow_session *other = NULL;
	struct tow_peer *peer;

	mutex_lock(&peers->lock);
	peer = session->peer;
	peers->half_open -= session->half_open;
	session->half_open = false;
	if (peer && peer->session == session) {
		peer->heard_at = READ_ONCE(session->heard_at);
		peer->error = orderly ? 0 : session->error;
		if (keep && peer->state == TOW_PEER_READY)
			tow_peer_broken(peer, session->error);
		tow_peer_transition(peer, TOW_EVENT_BROKE);
		other = peer->other_end;
	} else if (peer && peer->other_end == session) {
		other = peer->session;
	}
	if (other)
		tow_session_get(other);
	mutex_unlock(&peers->lock);
	if (other) {
		tow_session_fail(other, session->error, session->reason,
				 "its other end has ended");
		tow_session_put(other);
	}
}

/* What the end of the present session means.  Caller holds tow_peers.lock. */
static enum tow_peer_event tow_peer_end_event(struct tow_peer *peer, bool orderly)
{
	if (peer->assoc)
		return TOW_EVENT_KEPT;
	return orderly ? TOW_EVENT_CLOSED : TOW_EVENT_FAILED;
}

/**
 * tow_peer_session_gone - take a session that is ENDED from the device's list
 * @session: the session; the list's reference is put
 * @keep: as for tow_peer_session_ending(); true: its association is idle from
 *	now on
 */
void tow_peer_session_gone(struct tow_session *session, bool keep)
{
	bool orderly = tow_session_orderly(session->reason);
	struct tow_peers *peers = session->dev->peers;
	struct tow_session *drop = NULL;
	struct tow_peer *peer;

	mutex_lock(&peers->lock);
	peer = session->peer;
	if (keep)
		tow_assoc_pause(session->assoc);
	xa_erase(&peers->sessions, session->index);
	tow_stat_dec(session->dev, TOW_STAT_SESSIONS);
	if (peer && peer->session == session) {
		drop = session;
		WRITE_ONCE(peer->session, NULL);
		peer->used_at = READ_ONCE(session->busy_at);
		tow_peer_transition(peer,
				    tow_peer_end_event(peer, orderly));
	} else if (peer && peer->other_end == session) {
		drop = session;
		peer->other_end = NULL;
	} else if (peer) {
		tow_peer_waits_no_more(peer, orderly);
	}
	mutex_unlock(&peers->lock);
	wake_up_all(&peers->wait);
	if (drop)
		tow_session_put(drop);
	tow_session_put(session);
}
