// SPDX-License-Identifier: GPL-2.0
/*
 * Peers: which nodes there are, and how it stands with each.
 *
 * Who is who
 *
 * A peer is one life of another node's device: what names it is its incarnation.
 * Addresses lead to it, maybe several.  Who is behind an address turns out when
 * a connection is made; so a peer appears when the other end has proved that it
 * holds the cluster key, and not before.
 *
 * One connection
 *
 * Two nodes may connect to each other at the same time, or one twice, over two
 * addresses.  What decides is the first message (AUTH), under one lock at each
 * node: who sends it has given up whatever connection there was before, so who
 * gets it lets it take the place of what there is; except that the node with
 * the larger incarnation, once it has sent its own, refuses the other's
 * (CROSSED), and that a request which is older than the present connection is
 * refused as well.  Documentation/models/connect.pml looks through all of it.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/jiffies.h>
#include <linux/slab.h>

#include "device.h"
#include "peer_state.h"
#include "session.h"
#include "trace.h"

/* Lives of nodes that are remembered; those that ended are taken out by hand. */
#define TOW_PEERS_MAX		65536

/* Connections from outside that have not proved anything so far. */
#define TOW_HALF_OPEN_MAX	64

/* ---- states --------------------------------------------------------------- */

/* The only place that changes a peer's state. */
static void tow_peer_transition(struct tow_peer *peer,
				enum tow_peer_event event)
{
	int next = tow_peer_next_state(peer->state, event);

	lockdep_assert_held(&peer->dev->peers.lock);
	if (WARN_ONCE(next < 0, "towline: peer state %d, event %d\n",
		      peer->state, event))
		return;
	trace_tow_peer_state(peer, peer->state, next);
	tow_recorder_note(&peer->recorder, peer->epoch,
			  tow_peer_state_name(next), peer->state, peer->error);
	peer->state = next;
	wake_up_all(&peer->dev->peers.wait);
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
	struct tow_peers *peers = &dev->peers;
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
	struct tow_peers *peers = &dev->peers;
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

static bool tow_peer_has_address(const struct tow_peer *peer,
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
	struct tow_peers *peers = &dev->peers;
	struct tow_peer *peer, *found = NULL;
	unsigned long index;

	mutex_lock(&peers->lock);
	xa_for_each(&peers->by_id, index, peer) {
		if (peer->state == TOW_PEER_READY &&
		    tow_peer_has_address(peer, address)) {
			tow_peer_get(peer);
			found = peer;
			break;
		}
	}
	mutex_unlock(&peers->lock);
	return found;
}

/* A port that was not known may be now; too many addresses are forgotten. */
static void tow_peer_add_address(struct tow_peer *peer,
				 const struct tow_address *address)
{
	unsigned int i;

	lockdep_assert_held(&peer->dev->peers.lock);
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
	memcpy(peer->incarnation, incarnation, sizeof(peer->incarnation));
	peer->loopback = !memcmp(incarnation, dev->incarnation,
				 sizeof(peer->incarnation));
	return peer;
}

/* The peer of that incarnation, made if need be: the table's reference. */
static struct tow_peer *tow_peer_obtain(struct tow_device *dev,
					const u8 *incarnation)
{
	struct tow_peers *peers = &dev->peers;
	struct tow_peer *peer;
	int ret;

	lockdep_assert_held(&peers->lock);
	if (peers->stopping)
		return ERR_PTR(-ENODEV);
	peer = tow_peer_by_incarnation(peers, incarnation);
	if (peer)
		return peer;
	if (peers->count >= TOW_PEERS_MAX)
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

/* Takes a peer out of the table; the caller has its reference then. */
static void tow_peer_take_out(struct tow_peer *peer)
{
	struct tow_peers *peers = &peer->dev->peers;

	lockdep_assert_held(&peers->lock);
	xa_erase(&peers->by_id, peer->id);
	peer->removed = true;
	peers->count--;
	tow_stat_dec(peer->dev, TOW_STAT_PEERS);
}

static bool tow_peer_session_present(const struct tow_session *session)
{
	return session && tow_session_alive(session);
}

/* What that life of the node said last may be dealt with after it has ended. */
static bool tow_peer_came_later(const struct tow_peer *other,
				const struct tow_session *session)
{
	const struct tow_session *present = other->session;

	return tow_peer_session_present(present) &&
	       present->opened_at > session->opened_at;
}

/*
 * Another peer that an address of @session's leads to: an earlier life of the
 * same node, whether or not we have noticed its end.  Taken out, with its
 * reference.
 */
static struct tow_peer *
tow_peer_take_predecessor(const struct tow_session *session)
{
	struct tow_peer *peer = session->peer;
	struct tow_peers *peers = &session->dev->peers;
	struct tow_peer *other;
	unsigned long index;
	unsigned int i;

	lockdep_assert_held(&peers->lock);
	xa_for_each(&peers->by_id, index, other) {
		if (other == peer || other->loopback || peer->loopback ||
		    tow_peer_came_later(other, session))
			continue;
		for (i = 0; i < peer->aliases; i++) {
			if (tow_peer_has_address(other, &peer->addresses[i])) {
				tow_peer_take_out(other);
				return other;
			}
		}
	}
	return NULL;
}

static void tow_peer_forget(struct tow_peer *peer)
{
	struct tow_peers *peers = &peer->dev->peers;
	struct tow_session *session;

	mutex_lock(&peers->lock);
	session = peer->session;
	if (session)
		tow_session_get(session);
	mutex_unlock(&peers->lock);
	if (session) {
		tow_session_fail(session, -ESTALE, TOW_WIRE_REPLACED,
				 "another life of that node has come");
		tow_session_put(session);
	}
	tow_peer_sysfs_remove(peer);
	tow_peer_put(peer);
}

static void tow_peer_forget_predecessors(const struct tow_session *session)
{
	struct tow_peers *peers = &session->dev->peers;
	struct tow_peer *other;

	do {
		mutex_lock(&peers->lock);
		other = tow_peer_take_predecessor(session);
		mutex_unlock(&peers->lock);
		if (other)
			tow_peer_forget(other);
	} while (other);
}

/* ---- sessions ------------------------------------------------------------- */

/**
 * tow_peer_session_add - a session begins
 * @session: the session, new
 *
 * Return: 0: the device's list has a reference; -ENODEV: the device is going;
 * -EAGAIN: too many are half open; -ENOMEM.
 */
int tow_peer_session_add(struct tow_session *session)
{
	struct tow_peers *peers = &session->dev->peers;
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
	struct tow_peers *peers = &dev->peers;
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

/* @session is the present one from now on. */
static void tow_peer_install(struct tow_peer *peer, struct tow_session *session)
{
	lockdep_assert_held(&peer->dev->peers.lock);
	if (peer->state == TOW_PEER_READY || peer->state == TOW_PEER_CONNECTING)
		tow_peer_transition(peer, TOW_EVENT_BROKE);
	if (peer->session)
		tow_session_put(peer->session);
	tow_session_get(session);
	peer->session = session;
	tow_peer_get(peer);
	/* From now on messages are dealt with: after the keys. */
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
	struct tow_peers *peers = &session->dev->peers;
	struct tow_peer *peer;
	int ret = 0;

	mutex_lock(&peers->lock);
	peer = tow_peer_obtain(session->dev,
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

/* May an authenticated request take the place of the present session? */
static bool tow_peer_may_replace(struct tow_peer *peer,
				 struct tow_session *present,
				 struct tow_session *session)
{
	/* Ours is on its way, and we are the larger: theirs has to yield. */
	if (present->initiator && !present->ready_at &&
	    memcmp(peer->dev->incarnation, peer->incarnation,
		   sizeof(peer->incarnation)) > 0)
		return false;
	/* A request from before: its sender has given it up since. */
	if (present->ready_at > session->opened_at)
		return false;
	if (READ_ONCE(present->state) == TOW_SESSION_READY &&
	    !present->ready_at)
		return false;
	return present->initiator || present->opened_at < session->opened_at;
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
	/* As in tow_peer_install(). */
	smp_store_release(&session->peer, peer);
}

/**
 * tow_peer_authenticated - the responder knows who is there: may it go on?
 * @session: the responder's, whose other end has proved itself
 *
 * Return: 0: it is the peer's present session; -EALREADY: another goes on
 * instead; -ENODEV: the device is going; -ENOMEM.
 */
int tow_peer_authenticated(struct tow_session *session)
{
	struct tow_peers *peers = &session->dev->peers;
	struct tow_session *present = NULL;
	struct tow_address from = { .in6 = session->handshake.initiator };
	struct tow_peer *peer;
	int ret = 0;

	mutex_lock(&peers->lock);
	peer = tow_peer_obtain(session->dev,
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

/**
 * tow_peer_session_ready - a session is READY
 * @session: it
 */
void tow_peer_session_ready(struct tow_session *session)
{
	struct tow_peer *peer = session->peer;
	struct tow_peers *peers = &session->dev->peers;
	bool present;

	tow_stat_inc(session->dev, TOW_STAT_HANDSHAKES);
	mutex_lock(&peers->lock);
	session->ready_at = ++peers->clock;
	present = peer->session == session && tow_session_alive(session);
	if (present) {
		peer->error = 0;
		tow_peer_transition(peer, TOW_EVENT_ESTABLISHED);
	}
	mutex_unlock(&peers->lock);
	if (!present)
		return;
	tow_peer_forget_predecessors(session);
	tow_peer_sysfs_add(peer);
}

/**
 * tow_peer_session_lost - a session is ENDING
 * @session: it
 * @orderly: it does not count as a failure
 */
void tow_peer_session_lost(struct tow_session *session, bool orderly)
{
	struct tow_peers *peers = &session->dev->peers;
	struct tow_session *other = NULL;
	struct tow_peer *peer;

	mutex_lock(&peers->lock);
	peer = session->peer;
	peers->half_open -= session->half_open;
	session->half_open = false;
	if (peer && peer->session == session) {
		peer->error = orderly ? 0 : session->error;
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

/**
 * tow_peer_session_gone - a session is ENDED
 * @session: it; the list's reference ends here
 * @orderly: as in tow_peer_session_lost()
 */
void tow_peer_session_gone(struct tow_session *session, bool orderly)
{
	struct tow_peers *peers = &session->dev->peers;
	struct tow_session *drop = NULL;
	struct tow_peer *peer;

	mutex_lock(&peers->lock);
	peer = session->peer;
	xa_erase(&peers->sessions, session->index);
	tow_stat_dec(session->dev, TOW_STAT_SESSIONS);
	if (peer && peer->session == session) {
		drop = session;
		peer->session = NULL;
		tow_peer_transition(peer, orderly ? TOW_EVENT_CLOSED :
						    TOW_EVENT_FAILED);
	} else if (peer && peer->other_end == session) {
		drop = session;
		peer->other_end = NULL;
	}
	mutex_unlock(&peers->lock);
	wake_up_all(&peers->wait);
	if (drop)
		tow_session_put(drop);
	tow_session_put(session);
}

/**
 * tow_peer_dump - write what happened last with a peer to the log
 * @peer: the peer; NULL: nobody
 * @why: what is wrong
 */
void tow_peer_dump(struct tow_peer *peer, const char *why)
{
	char device[TOW_DEVICE_NAME_MAX], name[TOW_PEER_NAME_MAX];
	struct tow_address address;

	if (!peer)
		return;
	mutex_lock(&peer->dev->peers.lock);
	address = peer->addresses[0];
	mutex_unlock(&peer->dev->peers.lock);
	tow_device_name(peer->dev, device);
	tow_peer_name(&address, name);
	tow_recorder_dump(&peer->recorder, device, name, why);
}

static void tow_peer_add_numbers(struct tow_session *session,
				 struct tow_peer_info *info)
{
	u32 grants, remotes;

	tow_directory_session_numbers(session, &grants, &remotes);
	info->grants += grants;
	info->remotes += remotes;
}

/**
 * tow_peer_forget_idle - forget a peer that is not connected
 * @peer: the peer
 */
void tow_peer_forget_idle(struct tow_peer *peer)
{
	struct tow_peers *peers = &peer->dev->peers;
	bool idle;

	mutex_lock(&peers->lock);
	idle = !peer->session && !peer->removed;
	if (idle)
		tow_peer_take_out(peer);
	mutex_unlock(&peers->lock);
	if (!idle)
		return;
	tow_peer_sysfs_remove(peer);
	tow_peer_put(peer);
}

/**
 * tow_peer_describe - what can be seen of a peer
 * @peer: the peer
 * @info: where to; all but its size is filled in
 */
void tow_peer_describe(struct tow_peer *peer, struct tow_peer_info *info)
{
	struct tow_peers *peers = &peer->dev->peers;
	struct tow_session *session, *other;
	u32 size = info->size;

	memset(info, 0, sizeof(*info));
	info->size = size;
	info->peer = peer->id;
	memcpy(info->incarnation, peer->incarnation, sizeof(info->incarnation));
	info->messages_sent = atomic64_read(&peer->sent);
	info->messages_received = atomic64_read(&peer->received);
	if (peer->loopback)
		info->flags |= TOW_PEER_LOOPBACK;
	mutex_lock(&peers->lock);
	memcpy(info->address, &peer->addresses[0].in6, sizeof(info->address));
	info->scope_id = peer->addresses[0].scope_id;
	info->port = peer->addresses[0].port;
	info->state = peer->state;
	info->last_error = peer->error;
	info->epoch = peer->epoch;
	info->reconnects = peer->epoch ? peer->epoch - 1 : 0;
	session = peer->session;
	if (session)
		tow_session_get(session);
	other = peer->other_end;
	if (other)
		tow_session_get(other);
	mutex_unlock(&peers->lock);
	if (other) {
		/* The grants are its, as it is the one that is asked. */
		tow_peer_add_numbers(other, info);
		tow_session_put(other);
	}
	if (!session)
		return;
	info->qps = session->qps;
	info->idle_ms = jiffies_to_msecs(jiffies -
					 READ_ONCE(session->busy_at));
	if (session->handshake.request.control.features &
	    cpu_to_le32(TOW_WIRE_AUTHENTICATED))
		info->flags |= TOW_PEER_AUTHENTICATED;
	tow_peer_add_numbers(session, info);
	tow_session_put(session);
}

/* ---- the device ----------------------------------------------------------- */

/**
 * tow_peers_init - no peers, on no RDMA device so far
 * @peers: where to
 * @ibdev: the RDMA device
 */
void tow_peers_init(struct tow_peers *peers, struct ib_device *ibdev)
{
	mutex_init(&peers->lock);
	xa_init(&peers->by_id);
	xa_init(&peers->sessions);
	INIT_LIST_HEAD(&peers->attempts);
	init_waitqueue_head(&peers->wait);
	tow_peer_settings_init(&peers->settings, ibdev);
	tow_cluster_key_init(&peers->key);
	tow_cluster_key_init(&peers->self);
	tow_peer_dirs_init(&peers->dirs);
}

/**
 * tow_peers_start - peers may come
 * @dev: the device, in use from now on
 *
 * That nobody can listen is logged, and not an error: connecting works.
 *
 * Return: 0; -ENOMEM; what the provider says.
 */
int tow_peers_start(struct tow_device *dev)
{
	struct tow_peers *peers = &dev->peers;
	int ret;

	peers->cq_pool = tow_cq_pool_new();
	if (!peers->cq_pool)
		return -ENOMEM;
	peers->control_pd = ib_alloc_pd(dev->ibdev, 0);
	if (IS_ERR(peers->control_pd)) {
		tow_cq_pool_free(peers->cq_pool);
		return PTR_ERR(peers->control_pd);
	}
	ret = tow_cluster_key_random(&peers->self);
	if (ret)
		pr_err("%s: no peer can be authenticated: error %d (the kernel needs hmac and sha256)\n",
		       dev_name(&dev->ibdev->dev), ret);
	ret = tow_listen_move(dev, peers->settings.listen_port);
	if (ret)
		pr_err("%s: cannot listen on port %u: error %d (write another one to listen_port)\n",
		       dev_name(&dev->ibdev->dev), peers->settings.listen_port,
		       ret);
	return 0;
}

/**
 * tow_peers_stop_begin - nothing begins any more, and all sessions end
 * @dev: the device
 */
void tow_peers_stop_begin(struct tow_device *dev)
{
	struct tow_peers *peers = &dev->peers;
	struct tow_session *session;
	unsigned long index;

	mutex_lock(&peers->lock);
	WRITE_ONCE(peers->stopping, true);
	xa_for_each(&peers->sessions, index, session)
		tow_session_fail(session, -ENODEV, TOW_WIRE_GOING,
				 "the device is going");
	mutex_unlock(&peers->lock);
	wake_up_all(&peers->wait);
	tow_listen_move(dev, 0);
}

/* Without the lock, as whoever waits cannot take it while it looks. */
static bool tow_peers_quiet(struct tow_peers *peers)
{
	return xa_empty(&peers->sessions) &&
	       list_empty_careful(&peers->attempts);
}

/**
 * tow_peers_stop - undo tow_peers_start(), after tow_peers_stop_begin()
 * @dev: the device
 *
 * When it returns, nothing of ours that peers need is on the RDMA device.
 */
void tow_peers_stop(struct tow_device *dev)
{
	struct tow_peers *peers = &dev->peers;
	struct tow_peer *peer;
	unsigned long index;

	wait_event(peers->wait, tow_peers_quiet(peers));
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
	ib_dealloc_pd(peers->control_pd);
	tow_cq_pool_free(peers->cq_pool);
}

/**
 * tow_peers_cleanup - undo tow_peers_init()
 * @peers: where it was
 */
void tow_peers_cleanup(struct tow_peers *peers)
{
	tow_cluster_key_cleanup(&peers->key);
	tow_cluster_key_cleanup(&peers->self);
	xa_destroy(&peers->by_id);
	xa_destroy(&peers->sessions);
}
