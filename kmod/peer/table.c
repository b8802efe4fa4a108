// SPDX-License-Identifier: GPL-2.0
/*
 * Peers: which nodes there are.
 *
 * A peer is one life of another node's device: what names it is its incarnation.
 * Addresses lead to it, maybe several.  Who is behind an address turns out when
 * a connection is made; so a peer appears when the other end has proved that it
 * holds the cluster key, and not before.
 *
 * How it stands with each is a state that only tow_peer_transition() changes;
 * which session decides that is known to collision.c.
 */
#include <linux/jiffies.h>
#include <linux/slab.h>

#include "assoc.h"
#include "core/core.h"
#include "core/trace.h"
#include "peer.h"
#include "state.h"

/* ---- states --------------------------------------------------------------- */

/**
 * tow_peer_transition - the only place that changes a peer's state
 * @peer: the peer; the caller has tow_peers.lock
 * @event: what happened to it
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
 * tow_peer_find - the peer of a number
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
 * @cursor: the number of the last one, or 0; the next one's afterwards
 *
 * Return: the peer with a reference for the caller, or NULL: there is none.
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

/**
 * tow_peer_has_address - does an address lead to a peer?
 * @peer: the peer; the caller has tow_peers.lock
 * @address: the address; without a port, whatever port it has there
 *
 * Return: true: it does.
 */
bool tow_peer_has_address(const struct tow_peer *peer,
			  const struct tow_address *address)
{
	unsigned int i;

	for (i = 0; i < peer->aliases; i++) {
		if (tow_peer_same_address(&peer->addresses[i], address))
			return true;
	}
	return false;
}

/**
 * tow_peer_by_address - the READY peer that an address leads to
 * @dev: the device
 * @address: the address
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
		/* Its session may be ENDING, and nobody has told the peer yet. */
		if (peer->state == TOW_PEER_READY && peer->session &&
		    tow_session_alive(peer->session) &&
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
 * tow_peer_add_address - an address leads to a peer
 * @peer: the peer; the caller has tow_peers.lock
 * @address: the address, known or not; its port, if there is one, is from now on
 *
 * From TOW_PEER_ALIASES on they are forgotten.
 */
void tow_peer_add_address(struct tow_peer *peer,
			  const struct tow_address *address)
{
	unsigned int i;

	lockdep_assert_held(&peer->dev->peers->lock);
	for (i = 0; i < peer->aliases; i++) {
		if (!tow_peer_same_address(&peer->addresses[i], address))
			continue;
		if (address->port)
			peer->addresses[i].port = address->port;
		return;
	}
	if (peer->aliases < TOW_PEER_ALIASES)
		peer->addresses[peer->aliases++] = *address;
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
	memcpy(peer->incarnation, incarnation, sizeof(peer->incarnation));
	peer->loopback = !memcmp(incarnation, dev->incarnation,
				 sizeof(peer->incarnation));
	return peer;
}

/**
 * tow_peer_obtain - the peer of an incarnation, made if need be
 * @dev: the device; the caller has tow_peers.lock
 * @incarnation: of a node that has proved that it is that one
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
 * @peer: the peer; the caller has tow_peers.lock, and the table's reference then
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
 * tow_peer_waits_no_more - is a peer waited for in vain?
 * @peer: the peer; the caller has tow_peers.lock, and an association or a session
 *	has ended
 * @orderly: that was wanted
 */
void tow_peer_waits_no_more(struct tow_peer *peer, bool orderly)
{
	/* Another session is being made, or another association is waited for. */
	if (peer->state != TOW_PEER_RECONNECTING || peer->session || peer->assoc)
		return;
	tow_peer_transition(peer, orderly ? TOW_EVENT_CLOSED :
					    TOW_EVENT_FAILED);
}
