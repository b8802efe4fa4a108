// SPDX-License-Identifier: GPL-2.0
/*
 * The table of a device's peers.
 *
 * A peer is one life of another node's device, named by its incarnation.
 * Several addresses may lead to one peer.  Only a connection shows which peer
 * an address leads to; so a peer is made when the other end has proved that it
 * holds the cluster key, not before.
 *
 * Each peer has a state, which only tow_peer_transition() changes.  collision.c
 * decides which session is the present one, whose events change it.
 */
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/slab.h>

#include "assoc.h"
#include "core/core.h"
#include "core/trace.h"
#include "peer.h"
#include "state.h"

/* ---- states --------------------------------------------------------------- */

/**
 * tow_peer_transition - change a peer's state; nothing else does
 * @peer: the peer; caller holds tow_peers.lock
 * @event: what happened to the peer
 */
void tow_peer_transition(struct tow_peer *peer, enum tow_peer_event event)
{
	int next = tow_peer_next_state(peer->state, event);

	lockdep_assert_held(&peer->dev->peers->lock);
	if (WARN_ONCE(next < 0, "towline: peer state %d, event %d\n",
		      peer->state, event))
		return;
	trace_tow_peer_state(peer, peer->state, next);
	tow_recorder_note(&peer->recorder, peer->epoch,
			  tow_peer_state_name(next), peer->state, peer->error);
	peer->state = next;
	wake_up_all(&peer->dev->peers->wait);
}

/* ---- references ----------------------------------------------------------- */

/**
 * tow_peer_get - take a reference
 * @peer: the peer
 */
void tow_peer_get(struct tow_peer *peer)
{
	kref_get(&peer->refs);
}

static void tow_peer_release(struct kref *refs)
{
	struct tow_peer *peer = container_of(refs, struct tow_peer, refs);

	tow_device_put(peer->dev);
	kfree(peer);
}

/**
 * tow_peer_put - give a reference back
 * @peer: the peer; may be gone afterwards
 */
void tow_peer_put(struct tow_peer *peer)
{
	kref_put(&peer->refs, tow_peer_release);
}

/* ---- finding -------------------------------------------------------------- */

/**
 * tow_peer_find - find a peer by its number
 * @dev: the device
 * @id: the number
 *
 * Return: the peer with a reference for the caller, or NULL.
 */
struct tow_peer *tow_peer_find(struct tow_device *dev, u64 id)
{
	struct tow_peers *peers = dev->peers;
	struct tow_peer *peer;

	mutex_lock(&peers->lock);
	peer = xa_load(&peers->by_id, id);
	if (peer)
		tow_peer_get(peer);
	mutex_unlock(&peers->lock);
	return peer;
}

/**
 * tow_peer_next - go through all peers
 * @dev: the device
 * @cursor: number of the last peer, or 0; set to that of the returned one
 *
 * Return: the next peer, with a reference for the caller; NULL: there is none.
 */
struct tow_peer *tow_peer_next(struct tow_device *dev, u64 *cursor)
{
	struct tow_peers *peers = dev->peers;
	unsigned long index = *cursor;
	struct tow_peer *peer;

	mutex_lock(&peers->lock);
	peer = xa_find_after(&peers->by_id, &index, ULONG_MAX, XA_PRESENT);
	if (peer) {
		*cursor = index;
		tow_peer_get(peer);
	}
	mutex_unlock(&peers->lock);
	return peer;
}

static struct tow_peer *tow_peer_by_incarnation(struct tow_peers *peers,
						const u8 *incarnation)
{
	struct tow_peer *peer;
	unsigned long index;

	lockdep_assert_held(&peers->lock);
	xa_for_each(&peers->by_id, index, peer) {
		if (!memcmp(peer->incarnation, incarnation,
			    sizeof(peer->incarnation)))
			return peer;
	}
	return NULL;
}

static bool tow_peer_same_address(const struct tow_address *one,
				  const struct tow_address *other)
{
	return ipv6_addr_equal(&one->in6, &other->in6) &&
	       one->scope_id == other->scope_id &&
	       (one->port == other->port || !one->port || !other->port);
}

/* Which of the peer's addresses it is, also if it leads elsewhere; or -1. */
static int tow_peer_alias(const struct tow_peer *peer,
			  const struct tow_address *address)
{
	int i;

	for (i = 0; i < peer->aliases; i++) {
		if (tow_peer_same_address(&peer->addresses[i], address))
			return i;
	}
	return -1;
}

static bool tow_peer_has_address(const struct tow_peer *peer,
				 const struct tow_address *address)
{
	int i = tow_peer_alias(peer, address);

	return i >= 0 && !(peer->moved & BIT(i));
}

/**
 * tow_peer_lose_address - an address leads to another peer now
 * @peer: the peer; caller holds tow_peers.lock
 * @address: the address; port 0 matches any port
 *
 * Return: true: it led to @peer until now.
 */
bool tow_peer_lose_address(struct tow_peer *peer,
			   const struct tow_address *address)
{
	lockdep_assert_held(&peer->dev->peers->lock);
	if (!tow_peer_has_address(peer, address))
		return false;
	peer->moved |= BIT(tow_peer_alias(peer, address));
	return true;
}

/**
 * tow_peer_session_address - where a session leads
 * @session: the session
 *
 * Return: the other end's address; a responder does not know its port, which is 0.
 */
struct tow_address tow_peer_session_address(const struct tow_session *session)
{
	const struct tow_address from = {
		.in6		= session->handshake.initiator,
		.scope_id	= session->scope_id,
	};

	return session->initiator ? session->target : from;
}

/**
 * tow_peer_session_leads - does a session lead to an address?
 * @session: the session
 * @address: the address; port 0 matches any port
 *
 * Return: true: it does.
 */
bool tow_peer_session_leads(const struct tow_session *session,
			    const struct tow_address *address)
{
	const struct tow_address there = tow_peer_session_address(session);

	return tow_peer_same_address(&there, address);
}

/**
 * tow_peer_address - where a peer is found
 * @peer: the peer, with an address; caller holds tow_peers.lock
 *
 * Return: the address that its session uses; without a session, the first that has
 * not moved to another peer.
 */
struct tow_address tow_peer_address(const struct tow_peer *peer)
{
	struct tow_address address;
	int i;

	lockdep_assert_held(&peer->dev->peers->lock);
	if (peer->session) {
		address = tow_peer_session_address(peer->session);
		i = tow_peer_alias(peer, &address);
		/* With its port. */
		return i < 0 ? address : peer->addresses[i];
	}
	i = ffz(peer->moved);
	return peer->addresses[i < peer->aliases ? i : 0];
}

/**
 * tow_peer_by_address - the READY peer that an address leads to
 * @dev: the device
 * @address: the address
 *
 * A peer's other addresses may be another's by now: only that which its session
 * uses is known to be its.
 *
 * Return: the peer with a reference for the caller, or NULL.
 */
struct tow_peer *tow_peer_by_address(struct tow_device *dev,
				     const struct tow_address *address)
{
	struct tow_peers *peers = dev->peers;
	struct tow_peer *peer, *found = NULL;
	unsigned long index;

	mutex_lock(&peers->lock);
	xa_for_each(&peers->by_id, index, peer) {
		/* A READY peer's session may be ENDING for a moment. */
		if (peer->state == TOW_PEER_READY && peer->session &&
		    tow_session_alive(peer->session) &&
		    tow_peer_session_leads(peer->session, address) &&
		    tow_peer_has_address(peer, address)) {
			tow_peer_get(peer);
			found = peer;
			break;
		}
	}
	mutex_unlock(&peers->lock);
	return found;
}

/**
 * tow_peer_add_address - add an address to a peer
 * @peer: the peer; caller holds tow_peers.lock
 * @address: the address.  If the peer has it already, a port that is not 0 is
 *	set
 *
 * If the peer has TOW_PEER_ALIASES, it takes the place of one that leads elsewhere,
 * but for the first one; else it is ignored.
 */
void tow_peer_add_address(struct tow_peer *peer,
			  const struct tow_address *address)
{
	unsigned long elsewhere = peer->moved & ~BIT(0);
	int i = tow_peer_alias(peer, address);

	lockdep_assert_held(&peer->dev->peers->lock);
	if (i >= 0) {
		if (address->port)
			peer->addresses[i].port = address->port;
	} else if (peer->aliases < TOW_PEER_ALIASES) {
		i = peer->aliases++;
		peer->addresses[i] = *address;
	} else if (elsewhere) {
		i = __ffs(elsewhere);
		peer->addresses[i] = *address;
	} else {
		return;
	}
	peer->moved &= ~BIT(i);
}

/* ---- coming and going ----------------------------------------------------- */

static struct tow_peer *tow_peer_alloc(struct tow_device *dev,
				       const u8 *incarnation)
{
	struct tow_peer *peer = kzalloc(sizeof(*peer), GFP_KERNEL);

	if (!peer)
		return NULL;
	kref_init(&peer->refs);
	kref_get(&dev->refs);
	peer->dev = dev;
	peer->used_at = jiffies;
	peer->made_at = jiffies;
	peer->heard_at = jiffies;
	INIT_LIST_HEAD(&peer->channels);
	memcpy(peer->incarnation, incarnation, sizeof(peer->incarnation));
	peer->loopback = !memcmp(incarnation, dev->incarnation,
				 sizeof(peer->incarnation));
	return peer;
}

/**
 * tow_peer_obtain - find the peer of an incarnation, or make it
 * @dev: the device; caller holds tow_peers.lock
 * @incarnation: the incarnation; the other end has proved itself
 *
 * Return: the peer, with the table's reference; -ENODEV: the device is going;
 * -ENOSPC: there are too many; -ENOMEM.
 */
struct tow_peer *tow_peer_obtain(struct tow_device *dev, const u8 *incarnation)
{
	struct tow_peers *peers = dev->peers;
	struct tow_peer *peer;
	int ret;

	lockdep_assert_held(&peers->lock);
	if (peers->stopping)
		return ERR_PTR(-ENODEV);
	peer = tow_peer_by_incarnation(peers, incarnation);
	if (peer)
		return peer;
	if (peers->count >= READ_ONCE(peers->settings.peer_limit))
		return ERR_PTR(-ENOSPC);
	peer = tow_peer_alloc(dev, incarnation);
	if (!peer)
		return ERR_PTR(-ENOMEM);
	peer->id = peers->last_id + 1;
	tow_recorder_init(&peer->recorder, dev, peer->id);
	ret = xa_insert(&peers->by_id, peer->id, peer, GFP_KERNEL);
	if (ret) {
		tow_peer_put(peer);
		return ERR_PTR(ret);
	}
	peers->last_id++;
	peers->count++;
	tow_stat_inc(dev, TOW_STAT_PEERS);
	return peer;
}

/**
 * tow_peer_take_out - take a peer out of the table
 * @peer: the peer; caller holds tow_peers.lock, and gets the table's reference
 */
void tow_peer_take_out(struct tow_peer *peer)
{
	struct tow_peers *peers = peer->dev->peers;

	lockdep_assert_held(&peers->lock);
	xa_erase(&peers->by_id, peer->id);
	peer->removed = true;
	peers->count--;
	tow_stat_dec(peer->dev, TOW_STAT_PEERS);
}

/**
 * tow_peer_waits_no_more - end RECONNECTING if the peer has nothing to
 *	reconnect for
 * @peer: the peer, of which an association or a session has ended; caller holds
 *	tow_peers.lock
 * @orderly: that end is no failure
 */
void tow_peer_waits_no_more(struct tow_peer *peer, bool orderly)
{
	/* A session is being made, or an association waits for one. */
	if (peer->state != TOW_PEER_RECONNECTING || peer->session || peer->assoc)
		return;
	tow_peer_transition(peer, orderly ? TOW_EVENT_CLOSED :
					    TOW_EVENT_FAILED);
}

/**
 * tow_peer_forget - let go of peers that were taken out
 * @taken: the peers, with the table's references
 *
 * In process context; caller does not hold tow_peers.lock.
 */
void tow_peer_forget(struct list_head *taken)
{
	struct tow_peer *peer, *next;

	list_for_each_entry_safe(peer, next, taken, taken) {
		tow_peer_sysfs_remove(peer);
		tow_peer_put(peer);
	}
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
 * tow_peer_forget_oldest - forget the idle peer that was unused for the longest
 * @dev: the device; its table of peers is full
 *
 * In process context; caller does not hold tow_peers.lock.
 *
 * Return: true: the caller looks again for room; false: no peer is idle.
 */
bool tow_peer_forget_oldest(struct tow_device *dev)
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

/* ---- events --------------------------------------------------------------- */

static void tow_peer_tell(struct tow_peer *peer)
{
	lockdep_assert_held(&peer->dev->peers->lock);
	tow_clients_call(peer->dev, event, peer);
}

/**
 * tow_peer_broken - a peer's connection has failed
 * @peer: the peer; the caller has tow_peers.lock
 * @error: why
 */
void tow_peer_broken(struct tow_peer *peer, int error)
{
	peer->events.broken++;
	peer->events.broken_ns = ktime_get_ns();
	peer->events.error = error;
	tow_peer_tell(peer);
}

/**
 * tow_peer_back - another session carries a peer's association
 * @peer: the peer; the caller has tow_peers.lock
 */
void tow_peer_back(struct tow_peer *peer)
{
	peer->events.back++;
	tow_peer_tell(peer);
}

/**
 * tow_peer_lost - a peer's association is lost
 * @peer: the peer; the caller has tow_peers.lock
 * @error: why
 */
void tow_peer_lost(struct tow_peer *peer, int error)
{
	peer->events.lost++;
	peer->events.lost_ns = ktime_get_ns();
	peer->events.error = error;
	tow_peer_tell(peer);
}
