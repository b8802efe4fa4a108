// SPDX-License-Identifier: GPL-2.0
/*
 * Which session is a peer's present one.
 *
 * Two nodes may connect to each other at the same time, or one twice, over two
 * addresses.  What decides is the first message (AUTH), under one lock at each
 * node: who sends it has given up whatever connection there was before, so who
 * gets it lets it take the place of what there is.  Refused (CROSSED) is what its
 * sender has given up since: it sends numbers, and ours that is READY was asked
 * for later; and the node with the larger incarnation, once it has sent its own,
 * refuses the other's.  Documentation/models/connect.pml looks through all of it.
 */
#include <linux/slab.h>

#include "assoc.h"
#include "core/core.h"
#include "peer.h"
#include "state.h"

/* Connections from outside that have not proved anything so far. */
#define TOW_HALF_OPEN_MAX	64

/* ---- the list of sessions ------------------------------------------------- */

/**
 * tow_peer_session_add - a session begins
 * @session: the session, new
 *
 * Return: 0: the device's list has a reference; -ENODEV: the device is going;
 * -EAGAIN: too many are half open; -ENOMEM.
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
	session->id = ++peers->last_session;
	ret = xa_insert(&peers->sessions, session->id, session, GFP_KERNEL);
	if (ret)
		goto out_unlock;
	session->index = session->id;
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
 * tow_peer_session_find - the responder's session of a number
 * @dev: the device
 * @id: the number
 *
 * Return: the session with a reference for the caller, or NULL.
 */
struct tow_session *tow_peer_session_find(struct tow_device *dev, u64 id)
{
	struct tow_peers *peers = dev->peers;
	struct tow_session *session;

	mutex_lock(&peers->lock);
	session = xa_load(&peers->sessions, id);
	if (session && session->initiator)
		session = NULL;
	if (session)
		tow_session_get(session);
	mutex_unlock(&peers->lock);
	return session;
}

/**
 * tow_peer_session_next - go through all sessions
 * @dev: the device
 * @cursor: the number of the last one, or 0; the next one's afterwards
 *
 * Return: the session with a reference for the caller, or NULL: there is none.
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

/* ---- who may go on? ------------------------------------------------------- */

static bool tow_peer_session_present(const struct tow_session *session)
{
	return session && tow_session_alive(session);
}

/*
 * As tow_peer_obtain(), and who is not connected makes room in a full table.
 * Called with the lock, which is let go of meanwhile.
 */
static struct tow_peer *tow_peer_obtain_for(struct tow_session *session,
					    const u8 *incarnation)
{
	struct tow_device *dev = session->dev;
	struct tow_peer *peer;
	bool forgotten;

	while ((peer = tow_peer_obtain(dev, incarnation)) == ERR_PTR(-ENOSPC)) {
		mutex_unlock(&dev->peers->lock);
		forgotten = tow_evict_forget(dev);
		mutex_lock(&dev->peers->lock);
		if (!forgotten) {
			session->full = true;
			break;
		}
	}
	return peer;
}

/* @session is the present one from now on. */
static void tow_peer_install(struct tow_peer *peer, struct tow_session *session)
{
	lockdep_assert_held(&peer->dev->peers->lock);
	/* That it has broken was seen at the other end only. */
	if (peer->state == TOW_PEER_READY && peer->assoc)
		tow_event_broken(peer, -ECONNRESET);
	if (peer->state == TOW_PEER_READY || peer->state == TOW_PEER_CONNECTING)
		tow_peer_transition(peer, TOW_EVENT_BROKE);
	if (peer->session)
		tow_session_put(peer->session);
	tow_session_get(session);
	peer->session = session;
	tow_peer_get(peer);
	/* Messages are dealt with from now on.  Pairs with tow_message_received(). */
	smp_store_release(&session->peer, peer);
	peer->epoch++;
	tow_peer_transition(peer, TOW_EVENT_CONNECT);
}

/**
 * tow_peer_begin - the initiator knows who is there: may it go on?
 * @session: the initiator's, whose other end has proved itself
 * @address: where that is
 * @result: the peer with a reference for the caller, also with -EALREADY
 *
 * Return: 0: @session is the peer's present one; -EALREADY: there is another,
 * or one is being made; -ENODEV: the device is going; -ENOSPC: there are too many
 * peers; -ENOMEM; the session's error if it is ENDING.
 */
int tow_peer_begin(struct tow_session *session,
		   const struct tow_address *address, struct tow_peer **result)
{
	struct tow_peers *peers = session->dev->peers;
	struct tow_peer *peer;
	int ret = 0;

	mutex_lock(&peers->lock);
	peer = tow_peer_obtain_for(session,
				   session->handshake.reply.incarnation);
	if (IS_ERR(peer)) {
		ret = PTR_ERR(peer);
		goto out_unlock;
	}
	/* Whoever ends it later will find it installed. */
	if (!tow_session_alive(session)) {
		ret = session->error;
		goto out_unlock;
	}
	tow_peer_add_address(peer, address);
	/* Not before: who is there now may not have been when we began. */
	session->opened_at = ++peers->clock;
	tow_peer_get(peer);
	*result = peer;
	if (tow_peer_session_present(peer->session))
		ret = -EALREADY;
	else
		tow_peer_install(peer, session);
out_unlock:
	mutex_unlock(&peers->lock);
	return ret;
}

/*
 * May an authenticated request, the newest, take the place of the present
 * session?
 */
static bool tow_peer_may_replace(struct tow_peer *peer,
				 struct tow_session *present,
				 struct tow_session *session)
{
	/* Theirs as well, and given up when they sent this one. */
	if (!present->initiator)
		return true;
	/* Ours is on its way, and we are the larger: theirs has to yield. */
	if (!present->ready_at &&
	    memcmp(peer->dev->incarnation, peer->incarnation,
		   sizeof(peer->incarnation)) > 0)
		return false;
	/* A request from before: its sender has given it up since. */
	if (present->ready_at > session->opened_at)
		return false;
	return READ_ONCE(present->state) != TOW_SESSION_READY ||
	       present->ready_at;
}

/* The passive end of the loopback peer. */
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
 * tow_peer_authenticated - the responder knows who is there: may it go on?
 * @session: the responder's, whose other end has proved itself
 * @order: the proof's, as its sender counts them
 *
 * Return: 0: it is the peer's present session; -EALREADY: another goes on
 * instead, or did; -ENODEV: the device is going; -ENOSPC: there are too many
 * peers; -ENOMEM; the session's error if it is ENDING.
 */
int tow_peer_authenticated(struct tow_session *session, u64 order)
{
	struct tow_peers *peers = session->dev->peers;
	struct tow_session *present = NULL;
	struct tow_address from = { .in6 = session->handshake.initiator };
	struct tow_peer *peer;
	int ret = 0;

	mutex_lock(&peers->lock);
	peer = tow_peer_obtain_for(session,
				   session->handshake.request.incarnation);
	if (IS_ERR(peer)) {
		ret = PTR_ERR(peer);
		goto out_unlock;
	}
	if (!tow_session_alive(session)) {
		ret = session->error;
		goto out_unlock;
	}
	peers->half_open -= session->half_open;
	session->half_open = false;
	if (order <= peer->order) {
		ret = -EALREADY;
		goto out_unlock;
	}
	peer->order = order;
	present = session->loopback ? peer->other_end : peer->session;
	if (!tow_peer_session_present(present))
		present = NULL;
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
		from.scope_id = session->scope_id;
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

/* ---- earlier lives --------------------------------------------------------- */

/* What that life of the node said last may be dealt with after it has ended. */
static bool tow_peer_came_later(const struct tow_peer *other,
				const struct tow_session *session)
{
	const struct tow_session *present = other->session;

	return tow_peer_session_present(present) &&
	       present->opened_at > session->opened_at;
}

/* Is another peer an earlier life of @session's, by an address of both? */
static bool tow_peer_precedes(const struct tow_peer *other,
			      const struct tow_session *session)
{
	const struct tow_peer *peer = session->peer;
	unsigned int i;

	if (other == peer || other->loopback || peer->loopback ||
	    tow_peer_came_later(other, session))
		return false;
	for (i = 0; i < peer->aliases; i++) {
		if (tow_peer_has_address(other, &peer->addresses[i]))
			return true;
	}
	return false;
}

/*
 * Earlier lives of the node of @session's peer, whether or not we have noticed
 * their end: taken out, with their references, and their sessions end.
 */
static void tow_peer_take_predecessors(const struct tow_session *session,
				       struct list_head *taken)
{
	struct tow_peers *peers = session->dev->peers;
	struct tow_peer *other;
	unsigned long index;

	lockdep_assert_held(&peers->lock);
	xa_for_each(&peers->by_id, index, other) {
		if (!tow_peer_precedes(other, session))
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

static void tow_peer_forget(struct list_head *taken)
{
	struct tow_peer *peer, *next;

	list_for_each_entry_safe(peer, next, taken, taken) {
		tow_peer_sysfs_remove(peer);
		tow_peer_put(peer);
	}
}

/* ---- ready, lost, gone ---------------------------------------------------- */

/* Called with the lock: may the peer become READY by it? */
static bool tow_peer_session_counts(const struct tow_session *session)
{
	return session->peer->session == session && tow_session_alive(session);
}

/*
 * Who is told that a peer is READY finds its folder, whose name an earlier life of the
 * node may have.  Called with the lock, which is let go of meanwhile.
 */
static void tow_peer_show(struct tow_session *session)
{
	struct tow_peers *peers = session->dev->peers;
	LIST_HEAD(earlier);

	tow_peer_take_predecessors(session, &earlier);
	mutex_unlock(&peers->lock);
	tow_peer_forget(&earlier);
	tow_peer_sysfs_add(session->peer);
	mutex_lock(&peers->lock);
}

/**
 * tow_peer_session_ready - a session is READY
 * @session: it
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
	/* One that is seen already becomes READY at once. */
	if (tow_peer_session_counts(session) && !READ_ONCE(peer->node))
		tow_peer_show(session);
	if (tow_peer_session_counts(session)) {
		/* In one step: who knows that it is READY finds no other. */
		tow_peer_take_predecessors(session, &earlier);
		peer->error = 0;
		tow_peer_transition(peer, TOW_EVENT_ESTABLISHED);
	}
	mutex_unlock(&peers->lock);
	tow_peer_forget(&earlier);
}

/**
 * tow_peer_session_ending - a session is ENDING
 * @session: it
 * @orderly: it does not count as a failure
 * @keep: another one may carry its association
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
		peer->error = orderly ? 0 : session->error;
		if (keep && peer->state == TOW_PEER_READY)
			tow_event_broken(peer, session->error);
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

/* Called with the lock: its present session is ENDED. */
static enum tow_peer_event tow_peer_end_event(struct tow_peer *peer, bool orderly)
{
	if (peer->assoc)
		return TOW_EVENT_KEPT;
	return orderly ? TOW_EVENT_CLOSED : TOW_EVENT_FAILED;
}

/**
 * tow_peer_session_gone - a session is ENDED
 * @session: it; the list's reference ends here
 * @orderly: as in tow_peer_session_ending()
 * @keep: another one may carry its association
 */
void tow_peer_session_gone(struct tow_session *session, bool orderly,
			   bool keep)
{
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
