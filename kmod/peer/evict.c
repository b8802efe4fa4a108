// SPDX-License-Identifier: GPL-2.0
/*
 * Room for another peer, where there is none.
 *
 * When the device has no more queue pairs, or the table of peers is full, the
 * connection that was idle for the longest is ended in good order, if nobody uses
 * it; and from a full table goes the peer without a connection that was not used
 * for the longest.  What is used is never touched, so it may be that there is no
 * room: then whoever wants it is told so.
 *
 * Who makes a connection waits until the other one is gone, and tries again
 * (connect.c).  Who accepts one must not wait: the other end is told to come back
 * soon (conn/passive.c).  That holds for those who have proved nothing, too: no more than
 * 64 of them are there at a time, so they have no more than 64 queue pairs that
 * nobody used.
 */
#include <linux/jiffies.h>

#include "assoc.h"
#include "core/core.h"
#include "peer.h"

/*
 * What was used a moment ago will be used again: two that push each other out
 * get nothing done.
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

/* A session of a peer that ends already, with a reference; or NULL. */
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

/* The session to be missed least, with a reference; or NULL. */
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
 * A session whose end makes room, with a reference; or NULL.  One after another,
 * so that no more go than have to.
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
 * tow_evict_wait - wait for the end of a connection that nobody uses
 * @dev: the device; it has no room
 *
 * Return: true: nothing is left of it; false: there is none.
 */
bool tow_evict_wait(struct tow_device *dev)
{
	struct tow_session *session = tow_evict_begin(dev);

	if (!session)
		return false;
	/* Not only ENDED: the table may be what is full. */
	wait_event(dev->peers->wait, xa_load(&dev->peers->sessions,
					     session->index) != session);
	tow_session_put(session);
	return true;
}

/**
 * tow_evict_soon - see that a connection that nobody uses ends
 * @dev: the device; it has no room
 *
 * Does not wait.
 *
 * Return: true: there will be room soon; false: there is no such connection.
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
 * Return: true; false: it is connected, or forgotten already.
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
 * tow_evict_forget - forget a peer that is not connected
 * @dev: the device; its table of peers is full
 *
 * In process context, without tow_peers.lock.
 *
 * Return: true: one was forgotten, the one that was not used for the longest;
 * false: all are connected, or about to be.
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
	/* Somebody else was faster, or connects to it: who asks looks again. */
	return true;
}
