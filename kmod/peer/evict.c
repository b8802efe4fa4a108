// SPDX-License-Identifier: GPL-2.0
/*
 * Eviction: making room for another peer.
 *
 * When the table of peers is full, the peer without a connection that was
 * unused for the longest is forgotten.  If there is none, or if the device has
 * no more queue pairs, the unused connection that was idle for the longest is
 * ended in good order.  Connections in use are never evicted, so there may be
 * no room: connecting fails then.
 *
 * An initiator waits until the evicted connection is gone, and tries again
 * (connect.c).  A responder must not wait: the initiator gets TOW_WIRE_BUSY,
 * and tries again soon (conn/passive.c).  Nodes that have proved nothing evict
 * as well, but there are at most TOW_HALF_OPEN_MAX of them at a time, with one
 * queue pair each.
 */
#include <linux/jiffies.h>

#include "assoc.h"
#include "core/core.h"
#include "peer.h"

/*
 * A connection is evicted only if it was idle for so long: two peers that evict
 * each other's connection all the time would get nothing done.
 */
#define TOW_EVICT_IDLE_MS	1000

static bool tow_evict_may(const struct tow_peer *peer)
{
	const struct tow_session *session = peer->session;

	return peer->state == TOW_PEER_READY && session &&
	       tow_session_alive(session) && !tow_session_used(session) &&
	       time_after(jiffies, READ_ONCE(session->busy_at) +
			  msecs_to_jiffies(TOW_EVICT_IDLE_MS));
}

/* A peer's session that is ENDING already, with a reference; or NULL. */
static struct tow_session *tow_evict_ending(struct tow_peers *peers)
{
	struct tow_session *session, *found = NULL;
	unsigned long index;

	mutex_lock(&peers->lock);
	xa_for_each(&peers->sessions, index, session) {
		if (session->peer && !tow_session_alive(session)) {
			tow_session_get(session);
			found = session;
			break;
		}
	}
	mutex_unlock(&peers->lock);
	return found;
}

/*
 * The session that may be evicted and was idle for the longest, with a
 * reference.
 */
static struct tow_session *tow_evict_pick(struct tow_peers *peers)
{
	struct tow_session *found = NULL;
	struct tow_peer *peer;
	unsigned long index;

	mutex_lock(&peers->lock);
	xa_for_each(&peers->by_id, index, peer) {
		if (!tow_evict_may(peer))
			continue;
		if (!found || time_before(READ_ONCE(peer->session->busy_at),
					  READ_ONCE(found->busy_at)))
			found = peer->session;
	}
	if (found)
		tow_session_get(found);
	mutex_unlock(&peers->lock);
	return found;
}

/*
 * A session whose end makes room, with a reference; or NULL.  One that is
 * ENDING is preferred, so that no more sessions are evicted than necessary.
 */
static struct tow_session *tow_evict_begin(struct tow_device *dev)
{
	struct tow_session *session = tow_evict_ending(dev->peers);

	if (session)
		return session;
	session = tow_evict_pick(dev->peers);
	if (!session)
		return NULL;
	tow_stat_inc(dev, TOW_STAT_EVICTIONS);
	tow_session_fail(session, -ECONNRESET, TOW_WIRE_IDLE,
			 "it made room for another");
	return session;
}

/**
 * tow_evict_wait - evict an unused connection, and wait until it is gone
 * @dev: the device; it has no room
 *
 * Return: true: a session is gone; false: there is none to evict.
 */
bool tow_evict_wait(struct tow_device *dev)
{
	struct tow_session *session = tow_evict_begin(dev);

	if (!session)
		return false;
	/* Until it is not in the table: waiting for ENDED is not enough. */
	wait_event(dev->peers->wait, xa_load(&dev->peers->sessions,
					     session->index) != session);
	tow_session_put(session);
	return true;
}

/**
 * tow_evict_soon - evict an unused connection, without waiting
 * @dev: the device; it has no room
 *
 * Return: true: there will be room soon; false: there is none to evict.
 */
bool tow_evict_soon(struct tow_device *dev)
{
	struct tow_session *session = tow_evict_begin(dev);

	if (!session)
		return false;
	tow_session_put(session);
	return true;
}

/**
 * tow_peer_forget_idle - forget a peer that is not connected
 * @peer: the peer
 *
 * Return: true; false: the peer is connected, has an association, or is
 * forgotten already.
 */
bool tow_peer_forget_idle(struct tow_peer *peer)
{
	struct tow_peers *peers = peer->dev->peers;
	bool idle;

	mutex_lock(&peers->lock);
	idle = !peer->session && !peer->assoc && !peer->removed;
	if (idle)
		tow_peer_take_out(peer);
	mutex_unlock(&peers->lock);
	if (!idle)
		return false;
	tow_peer_sysfs_remove(peer);
	tow_peer_put(peer);
	return true;
}

/**
 * tow_evict_forget - forget the idle peer that was unused for the longest
 * @dev: the device; its table of peers is full
 *
 * In process context; caller does not hold tow_peers.lock.
 *
 * Return: true: the caller looks again for room; false: no peer is idle.
 */
bool tow_evict_forget(struct tow_device *dev)
{
	struct tow_peers *peers = dev->peers;
	struct tow_peer *peer, *found = NULL;
	unsigned long index;
	bool forgotten;

	mutex_lock(&peers->lock);
	xa_for_each(&peers->by_id, index, peer) {
		if (!peer->session && !peer->assoc &&
		    (!found || time_before(peer->used_at, found->used_at)))
			found = peer;
	}
	if (found)
		tow_peer_get(found);
	mutex_unlock(&peers->lock);
	if (!found)
		return false;
	forgotten = tow_peer_forget_idle(found);
	if (forgotten)
		tow_stat_inc(dev, TOW_STAT_EVICTIONS);
	tow_peer_put(found);
	/*
	 * Also if @found was forgotten or connected meanwhile: the caller looks
	 * again.
	 */
	return true;
}
