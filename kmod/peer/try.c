// SPDX-License-Identifier: GPL-2.0
/*
 * The tries of an attempt to connect (connect.c).  A known peer is tried at each of
 * its addresses.
 *
 * If the peer is connecting to us, an attempt waits for that connection, but
 * not for ever: it may fail, so after a while the attempt tries again.
 *
 * conn/ connects the queue pairs.  The decisions in between are made
 * here: whether there is a connection already, and which association to carry.
 */
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/minmax.h>
#include <linux/random.h>

#include "assoc.h"
#include "attempt.h"
#include "core/core.h"
#include "peer.h"
#include "state.h"

/* How long to wait for a connection that the peer makes. */
#define TOW_CROSSED_MS		2000

/* Tries when connections are reset half-way, as when the peer restarts, or cannot be proved. */
#define TOW_RESET_TRIES		3

/*
 * After an outage, how long to wait for the answer to a request: TOW_ANSWER_MS,
 * or the time since the attempt began divided by TOW_ANSWER_PART if that is
 * longer, but not more than TOW_ANSWER_MAX_MS: the connection manager has repeated
 * the request by then.
 */
#define TOW_ANSWER_MS		300
#define TOW_ANSWER_MAX_MS	8000
#define TOW_ANSWER_PART		4

/*
 * Pause before the next try if the peer is busy: doubled each time, plus up to
 * half of it at random.  With the same pause for all, refusing 10,000 nodes
 * would take a peer more time than connecting to them, and so would refusing
 * those that come back too soon: then none of them gets through.
 */
#define TOW_BUSY_MS		100
#define TOW_BUSY_MAX_MS		3200

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
	int ret;

	ret = tow_connect_prove(session);
	return ret ?: tow_data_connect(session);
}

/* Wait until nothing of a session is left, before the next try. */
static void tow_connect_wait_gone(struct tow_session *session)
{
	struct tow_peers *peers = session->dev->peers;

	wait_event(peers->wait,
		   xa_load(&peers->sessions, session->index) != session);
}

/* ---- tries ---------------------------------------------------------------- */

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
	if (!READ_ONCE(attempt->again) ||
	    time_after(jiffies + msecs_to_jiffies(TOW_CONNECT_STEP_MS),
		       READ_ONCE(attempt->deadline)))
		return TOW_CONNECT_STEP_MS;
	return clamp_t(unsigned int, sought_ms / TOW_ANSWER_PART,
		       TOW_ANSWER_MS, TOW_ANSWER_MAX_MS);
}

/* The association that began it has ended since, and no program waits for it. */
static bool tow_attempt_vain(const struct tow_attempt *attempt)
{
	const struct tow_peer *sought = attempt->goal.sought;

	return sought && !READ_ONCE(sought->assoc) &&
	       !READ_ONCE(attempt->waiters);
}

/*
 * Choose the next of the sought peer's addresses.  Return: 0; -ESTALE: it has
 * none.
 */
static int tow_attempt_turn(struct tow_attempt *attempt)
{
	struct tow_peers *peers = attempt->goal.dev->peers;
	struct tow_address *address = &attempt->goal.address;
	struct tow_peer *sought = attempt->goal.sought;
	int ret = 0;

	if (!sought)
		return 0;
	mutex_lock(&peers->lock);
	if (sought->aliases)
		*address = sought->addresses[attempt->tried++ % sought->aliases];
	else
		ret = -ESTALE;
	mutex_unlock(&peers->lock);
	if (!address->port)
		address->port = READ_ONCE(peers->settings.listen_port);
	return ret;
}

/**
 * tow_peer_session_get - a READY peer's session
 * @peer: the peer; caller holds tow_peers.lock
 *
 * Return: the session, with a reference for the caller; or NULL.
 */
struct tow_session *tow_peer_session_get(struct tow_peer *peer)
{
	struct tow_session *session = peer->session;

	lockdep_assert_held(&peer->dev->peers->lock);
	if (!session || peer->state != TOW_PEER_READY ||
	    !tow_session_alive(session))
		return NULL;
	tow_session_get(session);
	return session;
}

/**
 * tow_peer_session - as tow_peer_session_get(), with the lock
 * @peer: the peer
 *
 * Return: the session, with a reference for the caller; or NULL.
 */
struct tow_session *tow_peer_session(struct tow_peer *peer)
{
	struct tow_peers *peers = peer->dev->peers;
	struct tow_session *session;

	mutex_lock(&peers->lock);
	session = tow_peer_session_get(peer);
	mutex_unlock(&peers->lock);
	return session;
}

/*
 * The peer that is sought, or is at the address, if it is READY by now: by a session
 * that it has made, or another attempt.  With a reference for the caller; or NULL.
 */
static struct tow_peer *tow_attempt_there(const struct tow_goal *goal)
{
	struct tow_peer *sought = goal->sought;
	struct tow_session *session;

	if (!sought)
		return tow_peer_by_address(goal->dev, &goal->address);
	session = tow_peer_session(sought);
	if (!session)
		return NULL;
	tow_session_put(session);
	tow_peer_get(sought);
	return sought;
}

static void tow_attempt_pause(struct tow_attempt *attempt)
{
	unsigned int ms = clamp_t(unsigned int, attempt->busy_ms, TOW_BUSY_MS,
				  TOW_BUSY_MAX_MS);

	attempt->busy_ms = 2 * ms;
	msleep(ms + get_random_u32() % (ms / 2 + 1));
}

/*
 * Try once to connect to the goal's address.  @result: where to: the peer, with a
 * reference for the caller, if tow_peer_begin() found it, also after later errors; else
 * NULL.  Return: 0: the session has become READY; -EALREADY: the peer has another session,
 * or is connecting to us, or nobody wants it any more; the errors of
 * TOW_IOCTL_PEER_CONNECT; -ENODEV: the device is going.
 */
static int tow_connect(struct tow_attempt *attempt, struct tow_peer **result)
{
	const struct tow_goal *goal = &attempt->goal;
	struct tow_session *session;
	int ret;

	*result = NULL;
	session = tow_session_new(goal->dev, true, &goal->settings);
	if (IS_ERR(session))
		return PTR_ERR(session);
	session->target = goal->address;
	ret = tow_connect_control(session, tow_attempt_answer_ms(attempt));
	if (!ret && tow_attempt_vain(attempt))
		ret = -EALREADY;
	if (!ret)
		ret = tow_peer_begin(session, &goal->address, result);
	if (!ret)
		ret = tow_connect_all(session);
	if (ret) {
		tow_session_fail(session, ret, tow_session_reason_of(ret),
				 "could not be connected");
		tow_connect_wait_gone(session);
	}
	tow_session_put(session);
	return ret;
}

/*
 * Try once.  Return: as tow_connect(); -EALREADY, -EAGAIN: try again; -ESTALE:
 * another peer has the address, or the sought peer has none.
 */
static int tow_attempt_try(struct tow_attempt *attempt, struct tow_peer **peer)
{
	struct tow_goal *goal = &attempt->goal;
	int ret;

	*peer = tow_attempt_there(goal);
	if (*peer)
		return 0;
	ret = tow_attempt_turn(attempt);
	if (ret)
		return ret;
	ret = tow_connect(attempt, peer);
	if (*peer && (!ret || ret == -EALREADY))
		ret = tow_attempt_wait_ready(*peer);
	if (!ret && goal->sought && *peer != goal->sought)
		ret = -ESTALE;
	if (ret == -EAGAIN)
		tow_attempt_pause(attempt);
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
	struct tow_peer *sought = attempt->goal.sought;

	if (tow_device_going(attempt->goal.dev) || tow_attempt_vain(attempt) ||
	    !time_before(jiffies, READ_ONCE(attempt->deadline)))
		return false;
	if (sought && attempt->tried < READ_ONCE(sought->aliases))
		return true;
	switch (error) {
	case -EALREADY:
	case -EAGAIN:
	case -ETIMEDOUT:
		return true;
	case -ECONNRESET:
	case -EMSGSIZE:
		return ++*resets < TOW_RESET_TRIES;
	default:
		return false;
	}
}

/**
 * tow_attempt_run - try to connect, until that is done or of no use any more
 * @attempt: the attempt, which has its place; caller is its work item
 * @peer: where to: the peer, with a reference; left alone after an error
 *
 * Return: 0 or the attempt's error.
 */
int tow_attempt_run(struct tow_attempt *attempt, struct tow_peer **peer)
{
	struct tow_device *dev = attempt->goal.dev;
	struct tow_peers *peers = dev->peers;
	unsigned int resets = 0;
	int ret = -ENODEV;

	while (!READ_ONCE(peers->stopping)) {
		ret = tow_attempt_try(attempt, peer);
		if (!ret || !tow_attempt_again(attempt, ret, &resets))
			break;
	}
	/*
	 * Loopback: the responder's error, as its device is going, may have
	 * come first.
	 */
	if (ret && tow_device_going(dev))
		ret = -ENODEV;
	else if (ret == -EALREADY)
		ret = -ETIMEDOUT;
	return ret;
}
