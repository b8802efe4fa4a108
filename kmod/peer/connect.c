// SPDX-License-Identifier: GPL-2.0
/*
 * Attempts to connect: one for each address at a time, however many want the
 * peer there.  An attempt is a work item's; those who want it wait, each as long
 * as it likes, and the attempt goes on when they give up.
 *
 * An attempt that is refused because a connection is being made from the other
 * side waits for that one, but not for ever: it may fail, so after a while the
 * attempt begins anew.
 *
 * conn/active.c connects each queue pair; what is decided between them is decided
 * here: whether there is a connection already, and which association it is to carry.
 */
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/minmax.h>
#include <linux/slab.h>

#include "assoc.h"
#include "core/core.h"
#include "peer.h"
#include "state.h"

/* How long the other side's connection is waited for. */
#define TOW_CROSSED_MS		2000

/* Tries when connections end in the middle, as when the other side restarts. */
#define TOW_RESET_TRIES		3

/* Attempts at a time: each is a thread's work. */
#define TOW_ATTEMPTS_MAX	64

/* Connections that one attempt ends for want of room: two queue pairs of each. */
#define TOW_ATTEMPT_DROPS	(TOW_QPS_MAX / 2 + 1)

/*
 * For the answer to a request, after an outage: so long, or that part of the time for
 * which it was tried.
 */
#define TOW_ANSWER_MS		300
#define TOW_ANSWER_PART		4

/* Between tries at a peer that has too much to do. */
#define TOW_BUSY_MS		100

/* ---- a session is connected ----------------------------------------------- */

/* The other end has proved itself; we do, and say which association we have. */
static int tow_connect_prove(struct tow_session *session)
{
	struct tow_wire_auth auth = {};
	int ret;

	memcpy(auth.mac, session->auth.initiator_mac, sizeof(auth.mac));
	/* Counted when it was seen that there is no other connection. */
	auth.order = cpu_to_le64(session->opened_at);
	ret = tow_assoc_ask(session, &auth);
	if (!ret)
		ret = tow_session_send(session, TOW_WIRE_AUTH, 0, &auth,
				       sizeof(auth));
	if (!ret)
		ret = tow_connect_wait_state(session,
					     TOW_SESSION_AUTHENTICATED);
	return ret;
}

/* From the other end's proof to READY. */
static int tow_connect_all(struct tow_session *session)
{
	unsigned int i;
	int ret;

	ret = tow_connect_prove(session);
	for (i = 0; !ret && i < session->qps; i++)
		ret = tow_connect_data(&session->data[i]);
	if (ret)
		return ret;
	/* Before it is said: the answer may be faster than we are. */
	WRITE_ONCE(session->ready_said, true);
	ret = tow_session_send(session, TOW_WIRE_READY, 0, NULL, 0);
	if (!ret)
		ret = tow_connect_wait_state(session, TOW_SESSION_READY);
	return ret;
}

/*
 * Nothing of a session is left when the next attempt begins.  Nor, where our device had
 * no room, of its other end, if that is ours, too: it makes no room that we did not have.
 */
static void tow_connect_wait_gone(struct tow_session *session)
{
	struct tow_peers *peers = session->dev->peers;

	wait_event(peers->wait,
		   xa_load(&peers->sessions, session->index) != session);
	if (session->full && session->loopback)
		wait_event(peers->wait,
			   !xa_load(&peers->sessions, session->id));
}

/**
 * tow_connect - one attempt to connect
 * @dev: the device
 * @address: where to
 * @settings: how
 * @answer_ms: how long the answer to the first request is waited for
 * @result: the peer, with a reference for the caller.  Also with -EALREADY, when
 *	it is known who is there but not connected to by us: it is connected, or
 *	connects to us
 * @full: it failed because our own device had no room
 *
 * Return: 0: it is READY, or was a moment ago; -EALREADY: see @result; the errors
 * of TOW_IOCTL_PEER_CONNECT; -ENODEV: the device is going.
 */
static int tow_connect(struct tow_device *dev,
		       const struct tow_address *address,
		       const struct tow_conn_settings *settings,
		       unsigned int answer_ms, struct tow_peer **result,
		       bool *full)
{
	struct tow_session *session;
	int ret;

	*result = NULL;
	*full = false;
	session = tow_session_new(dev, true, settings);
	if (IS_ERR(session))
		return PTR_ERR(session);
	session->target = *address;
	ret = tow_connect_control(session, answer_ms);
	if (!ret) {
		ret = tow_peer_begin(session, address, result);
		if (!ret)
			ret = tow_connect_all(session);
	}
	if (ret) {
		tow_session_fail(session, ret, tow_session_reason_of(ret),
				 "could not be connected");
		tow_connect_wait_gone(session);
		*full = session->full;
	}
	tow_session_put(session);
	return ret;
}

/* ---- attempts ------------------------------------------------------------- */

/**
 * struct tow_attempt - somebody wants the peer at an address
 * @refs: held by the work item and by each who waits
 * @link: in tow_peers.attempts, until @done
 * @dev: the device, with a reference
 * @address: where
 * @settings: how
 * @begun: since when, in jiffies
 * @again: the peer was connected before, and something waits for it
 * @deadline: when to give up, in jiffies
 * @full: the last try failed because our own device had no room
 * @drops: connections that were ended to make some
 * @work: does it
 * @done: the result is there; under tow_peers.lock
 * @error: the result
 * @peer: the result, with a reference
 */
struct tow_attempt {
	struct kref			refs;
	struct list_head		link;
	struct tow_device		*dev;
	struct tow_address		address;
	struct tow_conn_settings	settings;
	unsigned long			begun;
	bool				again;
	unsigned long			deadline;
	bool				full;
	unsigned int			drops;
	struct work_struct		work;
	bool				done;
	int				error;
	struct tow_peer			*peer;
};

static void tow_attempt_release(struct kref *refs)
{
	struct tow_attempt *attempt = container_of(refs, struct tow_attempt,
						   refs);

	if (attempt->peer)
		tow_peer_put(attempt->peer);
	tow_device_put(attempt->dev);
	kfree(attempt);
}

static void tow_attempt_put(struct tow_attempt *attempt)
{
	kref_put(&attempt->refs, tow_attempt_release);
}

static bool tow_attempt_decided(struct tow_peer *peer)
{
	return READ_ONCE(peer->state) == TOW_PEER_READY ||
	       READ_ONCE(peer->dev->peers->stopping);
}

/* Wait for the connection that is being made from the other side. */
static int tow_attempt_wait_ready(struct tow_peer *peer)
{
	struct tow_peers *peers = peer->dev->peers;

	wait_event_timeout(peers->wait, tow_attempt_decided(peer),
			   msecs_to_jiffies(TOW_CROSSED_MS));
	if (READ_ONCE(peers->stopping))
		return -ENODEV;
	return READ_ONCE(peer->state) == TOW_PEER_READY ? 0 : -EALREADY;
}

/*
 * How long the answer to the first request is waited for.  The connection manager says a
 * request again after 4.3 s only: if it got lost in an outage, another try is faster.
 */
static unsigned int tow_attempt_answer_ms(const struct tow_attempt *attempt)
{
	unsigned int sought_ms = jiffies_to_msecs(jiffies - attempt->begun);

	/* The last try takes all the time that a slow peer may need. */
	if (!attempt->again ||
	    time_after(jiffies + msecs_to_jiffies(TOW_CONNECT_STEP_MS),
		       READ_ONCE(attempt->deadline)))
		return TOW_CONNECT_STEP_MS;
	return clamp_t(unsigned int, sought_ms / TOW_ANSWER_PART,
		       TOW_ANSWER_MS, TOW_CONNECT_STEP_MS);
}

/* One try.  Return: as tow_connect(); -EALREADY and -EAGAIN: try again. */
static int tow_attempt_try(struct tow_attempt *attempt, struct tow_peer **peer)
{
	int ret;

	ret = tow_connect(attempt->dev, &attempt->address, &attempt->settings,
			  tow_attempt_answer_ms(attempt), peer, &attempt->full);
	if (*peer && (!ret || ret == -EALREADY))
		ret = tow_attempt_wait_ready(*peer);
	if (ret == -EAGAIN)
		msleep(TOW_BUSY_MS);
	if (ret && *peer) {
		tow_peer_put(*peer);
		*peer = NULL;
	}
	return ret;
}

/* Is another try worth while?  Packets get lost, connections cross. */
static bool tow_attempt_again(struct tow_attempt *attempt, int error,
			      unsigned int *resets)
{
	if (tow_device_going(attempt->dev) ||
	    !time_before(jiffies, READ_ONCE(attempt->deadline)))
		return false;
	if (attempt->full)
		return attempt->drops++ < TOW_ATTEMPT_DROPS &&
		       tow_evict_wait(attempt->dev);
	switch (error) {
	case -EALREADY:
	case -EAGAIN:
	case -ETIMEDOUT:
		return true;
	case -ECONNRESET:
		return ++*resets < TOW_RESET_TRIES;
	default:
		return false;
	}
}

static void tow_attempt_work(struct work_struct *work)
{
	struct tow_attempt *attempt = container_of(work, struct tow_attempt,
						   work);
	struct tow_peers *peers = attempt->dev->peers;
	struct tow_peer *peer = NULL;
	unsigned int resets = 0;
	int ret;

	do {
		ret = tow_attempt_try(attempt, &peer);
	} while (ret && tow_attempt_again(attempt, ret, &resets));
	/* The listener of the same device may have refused because of that. */
	if (ret && tow_device_going(attempt->dev))
		ret = -ENODEV;
	else if (ret == -EALREADY)
		ret = -ETIMEDOUT;
	mutex_lock(&peers->lock);
	attempt->error = ret;
	attempt->peer = peer;
	attempt->done = true;
	list_del(&attempt->link);
	peers->attempt_count--;
	mutex_unlock(&peers->lock);
	wake_up_all(&peers->wait);
	tow_attempt_put(attempt);
}

static bool tow_attempt_is_for(const struct tow_attempt *attempt,
			       const struct tow_address *address)
{
	return ipv6_addr_equal(&attempt->address.in6, &address->in6) &&
	       attempt->address.scope_id == address->scope_id &&
	       attempt->address.port == address->port;
}

static struct tow_attempt *tow_attempt_find(struct tow_peers *peers,
					    const struct tow_address *address)
{
	struct tow_attempt *attempt;

	lockdep_assert_held(&peers->lock);
	list_for_each_entry(attempt, &peers->attempts, link) {
		if (tow_attempt_is_for(attempt, address))
			return attempt;
	}
	return NULL;
}

static struct tow_attempt *tow_attempt_new(struct tow_device *dev,
					   const struct tow_address *address,
					   const struct tow_conn_settings *how,
					   u32 limit_ms, bool again)
{
	struct tow_attempt *attempt;

	attempt = kzalloc(sizeof(*attempt), GFP_KERNEL);
	if (!attempt)
		return NULL;
	kref_init(&attempt->refs);
	kref_get(&dev->refs);
	attempt->dev = dev;
	attempt->address = *address;
	attempt->settings = *how;
	attempt->begun = jiffies;
	attempt->again = again;
	attempt->deadline = attempt->begun + msecs_to_jiffies(limit_ms);
	INIT_WORK(&attempt->work, tow_attempt_work);
	return attempt;
}

/* The attempt that goes on, or a new one; with a reference for the caller. */
static struct tow_attempt *tow_attempt_join(struct tow_device *dev,
					    const struct tow_address *address,
					    const struct tow_conn_settings *how,
					    u32 limit_ms, bool again)
{
	unsigned long deadline = jiffies + msecs_to_jiffies(limit_ms);
	struct tow_peers *peers = dev->peers;
	struct tow_attempt *attempt;

	mutex_lock(&peers->lock);
	attempt = tow_attempt_find(peers, address);
	if (attempt) {
		/* Whoever waits the longest may see another try. */
		if (time_after(deadline, attempt->deadline))
			WRITE_ONCE(attempt->deadline, deadline);
		kref_get(&attempt->refs);
		goto out_unlock;
	}
	if (peers->stopping) {
		attempt = ERR_PTR(-ENODEV);
		goto out_unlock;
	}
	if (peers->attempt_count >= TOW_ATTEMPTS_MAX) {
		attempt = ERR_PTR(-EAGAIN);
		goto out_unlock;
	}
	attempt = tow_attempt_new(dev, address, how, limit_ms, again);
	if (!attempt) {
		attempt = ERR_PTR(-ENOMEM);
		goto out_unlock;
	}
	list_add_tail(&attempt->link, &peers->attempts);
	peers->attempt_count++;
	kref_get(&attempt->refs);
	queue_work(tow_connect_wq, &attempt->work);
out_unlock:
	mutex_unlock(&peers->lock);
	return attempt;
}

/**
 * tow_peer_reach - the peer at an address, connected
 * @dev: the device
 * @address: the address, with its port
 * @settings: how to connect, if need be
 * @timeout_ms: how long to wait
 * @result: the peer, with a reference for the caller
 *
 * Return: 0; the errors of TOW_IOCTL_PEER_CONNECT; -ENODEV: the device is going;
 * -EINTR: a signal came.
 */
int tow_peer_reach(struct tow_device *dev, const struct tow_address *address,
		   const struct tow_conn_settings *settings, u32 timeout_ms,
		   struct tow_peer **result)
{
	struct tow_peers *peers = dev->peers;
	struct tow_attempt *attempt;
	long left;
	int ret;

	*result = tow_peer_by_address(dev, address);
	if (*result)
		return 0;
	attempt = tow_attempt_join(dev, address, settings,
				   settings->reconnect_timeout_ms, false);
	if (IS_ERR(attempt))
		return PTR_ERR(attempt);
	left = wait_event_interruptible_timeout(peers->wait,
						READ_ONCE(attempt->done),
						msecs_to_jiffies(timeout_ms));
	mutex_lock(&peers->lock);
	if (attempt->done) {
		ret = attempt->error;
		*result = ret ? NULL : attempt->peer;
		if (*result)
			tow_peer_get(*result);
	} else {
		ret = left < 0 ? -EINTR : -ETIMEDOUT;
	}
	mutex_unlock(&peers->lock);
	tow_attempt_put(attempt);
	return ret;
}

/* The peer's session if it is READY, with a reference for the caller. */
static struct tow_session *tow_peer_session(struct tow_peer *peer)
{
	struct tow_peers *peers = peer->dev->peers;
	struct tow_session *session;

	mutex_lock(&peers->lock);
	session = peer->session;
	if (session && peer->state == TOW_PEER_READY &&
	    tow_session_alive(session))
		tow_session_get(session);
	else
		session = NULL;
	mutex_unlock(&peers->lock);
	return session;
}

/* Where a peer is to be asked, and how. */
static void tow_peer_way(struct tow_peer *peer, struct tow_address *address,
			 struct tow_conn_settings *settings)
{
	struct tow_peers *peers = peer->dev->peers;

	mutex_lock(&peers->lock);
	*address = peer->addresses[0];
	if (peer->overridden)
		*settings = peer->settings;
	else
		tow_conn_settings_read(peers, settings);
	mutex_unlock(&peers->lock);
	if (!address->port)
		address->port = READ_ONCE(peers->settings.listen_port);
}

/**
 * tow_peer_seek - have a peer asked to connect, if nobody does already
 * @peer: the peer
 * @limit_ms: how long that may take
 *
 * Waits for nothing.  What comes of it is seen by the peer's state.
 */
void tow_peer_seek(struct tow_peer *peer, u32 limit_ms)
{
	struct tow_conn_settings settings;
	struct tow_attempt *attempt;
	struct tow_address address;

	tow_peer_way(peer, &address, &settings);
	attempt = tow_attempt_join(peer->dev, &address, &settings, limit_ms,
				   true);
	/* Whoever wants it asks again. */
	if (!IS_ERR(attempt))
		tow_attempt_put(attempt);
}

/**
 * tow_peer_use - a peer's READY session, made anew if need be
 * @peer: the peer
 * @timeout_ms: how long to wait for that
 * @result: the session, with a reference for the caller
 *
 * Return: 0; -ESTALE: that life of the node is over, and another has its address;
 * otherwise as tow_peer_reach().
 */
int tow_peer_use(struct tow_peer *peer, u32 timeout_ms,
		 struct tow_session **result)
{
	struct tow_conn_settings settings;
	struct tow_address address;
	struct tow_peer *found;
	int ret;

	*result = tow_peer_session(peer);
	if (*result)
		return 0;
	tow_peer_way(peer, &address, &settings);
	ret = tow_peer_reach(peer->dev, &address, &settings, timeout_ms,
			     &found);
	if (ret)
		return ret;
	ret = found == peer ? 0 : -ESTALE;
	tow_peer_put(found);
	if (ret)
		return ret;
	*result = tow_peer_session(peer);
	return *result ? 0 : -ECONNRESET;
}

/**
 * tow_peer_remember - connect to this peer with these settings from now on
 * @peer: the peer
 * @settings: the settings
 */
void tow_peer_remember(struct tow_peer *peer,
		       const struct tow_conn_settings *settings)
{
	mutex_lock(&peer->dev->peers->lock);
	peer->overridden = true;
	peer->settings = *settings;
	mutex_unlock(&peer->dev->peers->lock);
}

/**
 * tow_peer_disconnect - end the connection to a peer, or forget it
 * @peer: the peer; without a connection it is forgotten
 *
 * Return: 0: there is none any more; -EINTR: a signal came, it ends all the same.
 */
int tow_peer_disconnect(struct tow_peer *peer)
{
	struct tow_peers *peers = peer->dev->peers;
	struct tow_session *session;
	bool waits;
	int ret;

	mutex_lock(&peers->lock);
	session = peer->session;
	if (session)
		tow_session_get(session);
	waits = peer->state == TOW_PEER_RECONNECTING;
	tow_peer_drop_assoc(peer, -ECONNRESET, true);
	mutex_unlock(&peers->lock);
	if (!session && waits) {
		ret = wait_event_interruptible(peers->wait,
					       READ_ONCE(peer->state) !=
					       TOW_PEER_RECONNECTING);
		return ret ? -EINTR : 0;
	}
	if (!session) {
		tow_peer_forget_idle(peer);
		return 0;
	}
	tow_session_fail(session, -ECONNRESET, TOW_WIRE_ADMIN,
			 "an administrator disconnected it");
	/* Not only ENDED: nobody sees it any more. */
	ret = wait_event_interruptible(peers->wait,
				       READ_ONCE(peer->session) != session);
	tow_session_put(session);
	return ret ? -EINTR : 0;
}
