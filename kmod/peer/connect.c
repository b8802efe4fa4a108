// SPDX-License-Identifier: GPL-2.0
/*
 * Attempts to connect: at most one for each address at a time, for any number
 * of callers.  A work item makes the attempt.  Callers wait for it, each with
 * its own timeout, and the attempt continues when they give up.
 *
 * If the peer is connecting to us, an attempt waits for that connection, but
 * not for ever: it may fail, so after a while the attempt tries again.
 *
 * conn/active.c connects each queue pair.  The decisions in between are made
 * here: whether there is a connection already, and which association to carry.
 */
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/minmax.h>
#include <linux/slab.h>

#include "assoc.h"
#include "core/core.h"
#include "peer.h"
#include "state.h"

/* How long to wait for a connection that the peer makes. */
#define TOW_CROSSED_MS		2000

/* Tries when connections are reset half-way, as when the peer restarts. */
#define TOW_RESET_TRIES		3

/* Attempts at a time: each occupies a worker thread. */
#define TOW_ATTEMPTS_MAX	64

/*
 * Connections that one attempt evicts at most; each frees two queue pairs or
 * more.
 */
#define TOW_ATTEMPT_DROPS	(TOW_QPS_MAX / 2 + 1)

/*
 * After an outage, how long to wait for the answer to a request: TOW_ANSWER_MS,
 * or the time since the attempt began divided by TOW_ANSWER_PART if that is
 * longer.
 */
#define TOW_ANSWER_MS		300
#define TOW_ANSWER_PART		4

/* Pause before the next try if the peer is busy. */
#define TOW_BUSY_MS		100

/* ---- connecting a session ------------------------------------------------- */

/* Send AUTH: our proof, and the association that we have.  Wait for AUTHED. */
static int tow_connect_prove(struct tow_session *session)
{
	struct tow_wire_auth auth = {};
	int ret;

	memcpy(auth.mac, session->auth.initiator_mac, sizeof(auth.mac));
	/* tow_peer_begin() set it when the peer had no other session. */
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

/* Connect a session from the other end's proof to READY. */
static int tow_connect_all(struct tow_session *session)
{
	unsigned int i;
	int ret;

	ret = tow_connect_prove(session);
	for (i = 0; !ret && i < session->qps; i++)
		ret = tow_connect_data(&session->data[i]);
	if (ret)
		return ret;
	/* Before sending: the answer may be handled before the call returns. */
	WRITE_ONCE(session->ready_said, true);
	ret = tow_session_send(session, TOW_WIRE_READY, 0, NULL, 0);
	if (!ret)
		ret = tow_connect_wait_state(session, TOW_SESSION_READY);
	return ret;
}

/*
 * Wait until nothing of a session is left, before the next try.  If our device
 * had no room and the session is loopback, wait for its other end as well,
 * which takes room of the same device.
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
 * tow_connect - try once to connect
 * @dev: the device
 * @address: the peer's address
 * @settings: how to connect
 * @answer_ms: how long to wait for the answer to the first request
 * @result: where to: the peer, with a reference for the caller, if
 *	tow_peer_begin() found it, also after later errors; else NULL
 * @full: where to: our own device had no room
 *
 * Return: 0: the session has become READY; -EALREADY: the peer has another
 * session, or is connecting to us; the errors of TOW_IOCTL_PEER_CONNECT;
 * -ENODEV: the device is going.
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
 * struct tow_attempt - an attempt to connect to the peer at an address
 * @refs: held by the work item and by each caller that waits
 * @link: in tow_peers.attempts, until @done
 * @dev: the device, with a reference
 * @address: the peer's address
 * @settings: how to connect
 * @begun: when the attempt began, in jiffies
 * @again: the peer was connected before, and an association waits for it
 * @deadline: when to give up, in jiffies; callers may move it later, under
 *	tow_peers.lock
 * @full: the last try failed because our own device had no room
 * @drops: times that the attempt waited for another connection to make room
 * @work: tow_attempt_work()
 * @done: @error and @peer are valid; the three are under tow_peers.lock
 * @error: the result: 0 or a negative errno
 * @peer: the peer, with a reference, if @error is 0
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

/* Wait until the peer is READY; it may be connecting to us. */
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
 * How long to wait for the answer to the first request.  The connection manager
 * repeats a request only after 4.3 s: if it got lost in an outage, another try
 * is faster.
 */
static unsigned int tow_attempt_answer_ms(const struct tow_attempt *attempt)
{
	unsigned int sought_ms = jiffies_to_msecs(jiffies - attempt->begun);

	/* The last try gives a slow peer all the time that it may need. */
	if (!attempt->again ||
	    time_after(jiffies + msecs_to_jiffies(TOW_CONNECT_STEP_MS),
		       READ_ONCE(attempt->deadline)))
		return TOW_CONNECT_STEP_MS;
	return clamp_t(unsigned int, sought_ms / TOW_ANSWER_PART,
		       TOW_ANSWER_MS, TOW_CONNECT_STEP_MS);
}

/* Try once.  Return: as tow_connect(); -EALREADY, -EAGAIN: try again. */
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

/* Is another try worth while? */
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
	/*
	 * Loopback: the responder's error, as its device is going, may have
	 * come first.
	 */
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

/*
 * The attempt for an address that is in progress, or a new one, with a
 * reference for the caller; or ERR_PTR().
 */
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
		/* Tries continue until the latest deadline of all callers. */
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
 * tow_peer_reach - find the READY peer at an address, or connect to it
 * @dev: the device
 * @address: the address, with its port
 * @settings: how to connect
 * @timeout_ms: how long to wait
 * @result: where to: the peer, with a reference for the caller
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

/* A READY peer's session, with a reference for the caller; or NULL. */
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

/* The address to connect to a peer, and the settings. */
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
 * tow_peer_seek - begin an attempt to connect to a peer, if none is in progress
 * @peer: the peer
 * @limit_ms: how long the attempt may take
 *
 * Does not wait.  The peer's state shows the result.
 */
void tow_peer_seek(struct tow_peer *peer, u32 limit_ms)
{
	struct tow_conn_settings settings;
	struct tow_attempt *attempt;
	struct tow_address address;

	tow_peer_way(peer, &address, &settings);
	attempt = tow_attempt_join(peer->dev, &address, &settings, limit_ms,
				   true);
	/* After an error the caller, an association's work item, asks again. */
	if (!IS_ERR(attempt))
		tow_attempt_put(attempt);
}

/**
 * tow_peer_use - get a peer's READY session, and connect if there is none
 * @peer: the peer
 * @timeout_ms: how long to wait
 * @result: where to: the session, with a reference for the caller
 *
 * Return: 0; -ESTALE: another peer has the address: @peer's life is over;
 * -ECONNRESET: the new session has ended already; else as tow_peer_reach().
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
 * tow_peer_remember - set the settings for later connections to a peer
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
 * tow_peer_disconnect - end the connection to a peer, or forget an idle peer
 * @peer: the peer; if it has no connection it is forgotten
 *
 * Return: 0: the peer has no connection any more; -EINTR: a signal came; the
 * connection ends all the same.
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
	/* Until tow_peer_session_gone() has taken it from the peer. */
	ret = wait_event_interruptible(peers->wait,
				       READ_ONCE(peer->session) != session);
	tow_session_put(session);
	return ret ? -EINTR : 0;
}
