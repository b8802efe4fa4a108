// SPDX-License-Identifier: GPL-2.0
/*
 * Attempts to connect: at most one for each address or known peer at a time, for
 * any number of callers.  A work item makes the attempt.  Callers wait for it,
 * each with its own timeout.  When all of them have given up, the attempt makes
 * no further try.  A known peer is tried at each of its addresses.
 *
 * A user's programs have a limited number of attempts at a time, and wait for
 * their turn.  Associations have attempts and worker threads of their own, so
 * programs do not keep them from their peers.
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
#include <linux/slab.h>

#include "assoc.h"
#include "core/core.h"
#include "peer.h"
#include "state.h"

/* How long to wait for a connection that the peer makes. */
#define TOW_CROSSED_MS		2000

/* Tries when connections are reset half-way, as when the peer restarts, or cannot be proved. */
#define TOW_RESET_TRIES		3

/*
 * Attempts at a time: of programs and, apart from them, of associations; and of
 * one user's programs.  Each occupies a worker thread.
 */
#define TOW_ATTEMPTS_MAX	64
#define TOW_ATTEMPTS_USER	32

/*
 * After an outage, how long to wait for the answer to a request: TOW_ANSWER_MS,
 * or the time since the attempt began divided by TOW_ANSWER_PART if that is
 * longer.
 */
#define TOW_ANSWER_MS		300
#define TOW_ANSWER_PART		4

/*
 * Pause before the next try if the peer is busy: doubled each time, plus up to
 * half of it at random.  With the same pause for all, refusing 10,000 nodes
 * would take a peer more time than connecting to them.
 */
#define TOW_BUSY_MS		100
#define TOW_BUSY_MAX_MS		800

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

/**
 * tow_connect - try once to connect
 * @dev: the device
 * @address: the peer's address
 * @settings: how to connect
 * @answer_ms: how long to wait for the answer to the request
 * @result: where to: the peer, with a reference for the caller, if
 *	tow_peer_begin() found it, also after later errors; else NULL
 *
 * Return: 0: the session has become READY; -EALREADY: the peer has another
 * session, or is connecting to us; the errors of TOW_IOCTL_PEER_CONNECT;
 * -ENODEV: the device is going.
 */
static int tow_connect(struct tow_device *dev,
		       const struct tow_address *address,
		       const struct tow_conn_settings *settings,
		       unsigned int answer_ms, struct tow_peer **result)
{
	struct tow_session *session;
	int ret;

	*result = NULL;
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
	}
	tow_session_put(session);
	return ret;
}

/* ---- attempts ------------------------------------------------------------- */

/**
 * struct tow_goal - whom to connect to, and how
 * @dev: the device
 * @sought: the peer, at any of its addresses; NULL: whoever is at @address
 * @address: where, if @sought is NULL; else where the last try was made
 * @settings: how to connect
 * @limit_ms: how long an attempt may take
 */
struct tow_goal {
	struct tow_device		*dev;
	struct tow_peer			*sought;
	struct tow_address		address;
	struct tow_conn_settings	settings;
	u32				limit_ms;
};

/**
 * struct tow_attempt - an attempt to connect
 * @refs: held by the work item and by each caller that waits
 * @link: in tow_peers.attempts, until @done
 * @goal: whom to connect to; the device and the peer with references
 * @charge: of the caller that began the attempt
 * @tried: how many of the sought peer's addresses were tried
 * @busy_ms: the pause before the next try if the peer is busy
 * @begun: when the attempt began, in jiffies
 * @again: the peer was connected before, and an association waits for it; this
 *	and what follows, up to @waiters, is written under tow_peers.lock
 * @deadline: when to give up, in jiffies
 * @waiters: callers that wait
 * @work: tow_attempt_work()
 * @done: @error and @peer are valid; the three are under tow_peers.lock
 * @error: the result: 0 or a negative errno
 * @peer: the peer, with a reference, if @error is 0
 */
struct tow_attempt {
	struct kref			refs;
	struct list_head		link;
	struct tow_goal			goal;
	struct tow_charge		charge;
	unsigned int			tried;
	unsigned int			busy_ms;
	unsigned long			begun;
	bool				again;
	unsigned long			deadline;
	unsigned int			waiters;
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
	if (attempt->goal.sought)
		tow_peer_put(attempt->goal.sought);
	tow_device_put(attempt->goal.dev);
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
	if (!READ_ONCE(attempt->again) ||
	    time_after(jiffies + msecs_to_jiffies(TOW_CONNECT_STEP_MS),
		       READ_ONCE(attempt->deadline)))
		return TOW_CONNECT_STEP_MS;
	return clamp_t(unsigned int, sought_ms / TOW_ANSWER_PART,
		       TOW_ANSWER_MS, TOW_CONNECT_STEP_MS);
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
	ret = tow_connect(goal->dev, &goal->address, &goal->settings,
			  tow_attempt_answer_ms(attempt), peer);
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

	if (tow_device_going(attempt->goal.dev) ||
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

static void tow_attempt_work(struct work_struct *work)
{
	struct tow_attempt *attempt = container_of(work, struct tow_attempt,
						   work);
	struct tow_device *dev = attempt->goal.dev;
	struct tow_peers *peers = dev->peers;
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
	if (ret && tow_device_going(dev))
		ret = -ENODEV;
	else if (ret == -EALREADY)
		ret = -ETIMEDOUT;
	tow_uncharge(&attempt->charge);
	mutex_lock(&peers->lock);
	attempt->error = ret;
	attempt->peer = peer;
	attempt->done = true;
	list_del(&attempt->link);
	WRITE_ONCE(peers->attempts_ended, peers->attempts_ended + 1);
	mutex_unlock(&peers->lock);
	wake_up_all(&peers->wait);
	tow_attempt_put(attempt);
}

static bool tow_attempt_is_for(const struct tow_attempt *attempt,
			       const struct tow_goal *goal)
{
	const struct tow_address *address = &attempt->goal.address;

	if (attempt->goal.sought || goal->sought)
		return attempt->goal.sought == goal->sought;
	return ipv6_addr_equal(&address->in6, &goal->address.in6) &&
	       address->scope_id == goal->address.scope_id &&
	       address->port == goal->address.port;
}

static struct tow_attempt *tow_attempt_find(struct tow_peers *peers,
					    const struct tow_goal *goal)
{
	struct tow_attempt *attempt;

	lockdep_assert_held(&peers->lock);
	list_for_each_entry(attempt, &peers->attempts, link) {
		if (tow_attempt_is_for(attempt, goal))
			return attempt;
	}
	return NULL;
}

/*
 * A new attempt, or ERR_PTR(-EAGAIN): the user, all users together, or all
 * associations together have as many as they may.
 */
static struct tow_attempt *tow_attempt_new(const struct tow_goal *goal,
					   struct tow_account *account)
{
	const u64 amount[TOW_RESOURCES] = {
		[TOW_RES_ATTEMPTS]	= account ? 1 : 0,
		[TOW_RES_RECONNECTS]	= account ? 0 : 1,
	};
	struct tow_attempt *attempt;

	attempt = kzalloc(sizeof(*attempt), GFP_KERNEL);
	if (!attempt)
		return ERR_PTR(-ENOMEM);
	if (!tow_charge_try(&attempt->charge,
			    account ?: &goal->dev->limits.device, amount)) {
		kfree(attempt);
		return ERR_PTR(-EAGAIN);
	}
	kref_init(&attempt->refs);
	kref_get(&goal->dev->refs);
	if (goal->sought)
		tow_peer_get(goal->sought);
	attempt->goal = *goal;
	attempt->begun = jiffies;
	attempt->deadline = attempt->begun;
	INIT_WORK(&attempt->work, tow_attempt_work);
	return attempt;
}

/* Begin an attempt.  Return: as tow_attempt_new(). */
static struct tow_attempt *tow_attempt_begin(const struct tow_goal *goal,
					     struct tow_account *account)
{
	struct tow_peers *peers = goal->dev->peers;
	struct tow_attempt *attempt;

	if (peers->stopping)
		return ERR_PTR(-ENODEV);
	attempt = tow_attempt_new(goal, account);
	if (IS_ERR(attempt))
		return attempt;
	list_add_tail(&attempt->link, &peers->attempts);
	queue_work(account ? tow_connect_wq : tow_reconnect_wq, &attempt->work);
	return attempt;
}

/*
 * The attempt for a goal that is in progress, or a new one, with a reference for
 * the caller.  @account is whose program waits for it; NULL: an association
 * waits.  Return: ERR_PTR() as tow_attempt_new(); -ENODEV: the device is going.
 */
static struct tow_attempt *tow_attempt_join(const struct tow_goal *goal,
					    struct tow_account *account)
{
	unsigned long deadline = jiffies + msecs_to_jiffies(goal->limit_ms);
	struct tow_peers *peers = goal->dev->peers;
	struct tow_attempt *attempt;

	mutex_lock(&peers->lock);
	attempt = tow_attempt_find(peers, goal);
	if (!attempt)
		attempt = tow_attempt_begin(goal, account);
	if (!IS_ERR(attempt)) {
		/* Tries continue until the latest deadline of all callers. */
		if (time_after(deadline, attempt->deadline))
			WRITE_ONCE(attempt->deadline, deadline);
		if (account)
			attempt->waiters++;
		else
			WRITE_ONCE(attempt->again, true);
		kref_get(&attempt->refs);
	}
	mutex_unlock(&peers->lock);
	return attempt;
}

/*
 * As tow_attempt_join() for a program, which waits up to @left jiffies until its
 * user may begin an attempt.  @left: where to: what is left.
 */
static struct tow_attempt *tow_attempt_queue(const struct tow_goal *goal,
					     struct tow_account *account,
					     long *left)
{
	struct tow_peers *peers = goal->dev->peers;
	struct tow_attempt *attempt;
	unsigned long ended;

	do {
		ended = READ_ONCE(peers->attempts_ended);
		attempt = tow_attempt_join(goal, account);
		if (attempt != ERR_PTR(-EAGAIN))
			break;
		*left = wait_event_interruptible_timeout(peers->wait, ended !=
							 READ_ONCE(peers->attempts_ended),
							 *left);
	} while (*left > 0);
	return *left < 0 ? ERR_PTR(-EINTR) : attempt;
}

/*
 * Attempt to connect for a program of @account, and wait.  Return: as
 * tow_peer_reach(); -ESTALE: the sought peer is at none of its addresses.
 */
static int tow_attempt_make(const struct tow_goal *goal,
			    struct tow_account *account, u32 timeout_ms,
			    struct tow_peer **result)
{
	struct tow_peers *peers = goal->dev->peers;
	long left = msecs_to_jiffies(timeout_ms);
	struct tow_attempt *attempt;
	int ret;

	*result = NULL;
	attempt = tow_attempt_queue(goal, account, &left);
	if (IS_ERR(attempt))
		return PTR_ERR(attempt);
	left = wait_event_interruptible_timeout(peers->wait,
						READ_ONCE(attempt->done), left);
	mutex_lock(&peers->lock);
	attempt->waiters--;
	if (attempt->done) {
		ret = attempt->error;
		*result = ret ? NULL : attempt->peer;
		if (*result)
			tow_peer_get(*result);
	} else {
		ret = left < 0 ? -EINTR : -ETIMEDOUT;
		/* The try in progress is the last one if nobody waits. */
		if (!attempt->waiters && !attempt->again)
			WRITE_ONCE(attempt->deadline, jiffies);
	}
	mutex_unlock(&peers->lock);
	tow_attempt_put(attempt);
	return ret;
}

/**
 * tow_attempts_init - limit how many attempts there are at a time
 * @dev: the device, which nobody else knows yet
 */
void tow_attempts_init(struct tow_device *dev)
{
	u64 *all = dev->limits.max[TOW_LEVEL_DEVICE];

	dev->limits.max[TOW_LEVEL_USER][TOW_RES_ATTEMPTS] = TOW_ATTEMPTS_USER;
	all[TOW_RES_ATTEMPTS] = TOW_ATTEMPTS_MAX;
	all[TOW_RES_RECONNECTS] = TOW_ATTEMPTS_MAX;
}

/**
 * tow_peer_reach - find the READY peer at an address, or connect to it
 * @dev: the device
 * @account: the caller's
 * @address: the address, with its port
 * @settings: how to connect
 * @timeout_ms: how long to wait
 * @result: where to: the peer, with a reference for the caller
 *
 * Return: 0; the errors of TOW_IOCTL_PEER_CONNECT; -ENODEV: the device is going;
 * -EINTR: a signal came.
 */
int tow_peer_reach(struct tow_device *dev, struct tow_account *account,
		   const struct tow_address *address,
		   const struct tow_conn_settings *settings, u32 timeout_ms,
		   struct tow_peer **result)
{
	const struct tow_goal goal = {
		.dev = dev, .address = *address, .settings = *settings,
		.limit_ms = settings->reconnect_timeout_ms,
	};

	*result = tow_peer_by_address(dev, address);
	return *result ? 0 : tow_attempt_make(&goal, account, timeout_ms, result);
}

/* To connect to a peer: as its own settings say, or the device's. */
static void tow_goal_init(struct tow_goal *goal, struct tow_peer *peer)
{
	struct tow_peers *peers = peer->dev->peers;

	*goal = (struct tow_goal){ .dev = peer->dev, .sought = peer };
	mutex_lock(&peers->lock);
	if (peer->overridden)
		goal->settings = peer->settings;
	else
		tow_conn_settings_read(peers, &goal->settings);
	mutex_unlock(&peers->lock);
	goal->limit_ms = goal->settings.reconnect_timeout_ms;
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
	struct tow_attempt *attempt;
	struct tow_goal goal;

	tow_goal_init(&goal, peer);
	goal.limit_ms = limit_ms;
	attempt = tow_attempt_join(&goal, NULL);
	/* After an error the caller, an association's work item, asks again. */
	if (!IS_ERR(attempt))
		tow_attempt_put(attempt);
}

/**
 * tow_peer_use - get a peer's READY session, and connect if there is none
 * @peer: the peer
 * @account: the caller's
 * @timeout_ms: how long to wait
 * @result: where to: the session, with a reference for the caller
 *
 * Return: 0; -ESTALE: other peers have its addresses: @peer's life is over;
 * -ECONNRESET: the new session has ended already; else as tow_peer_reach().
 */
int tow_peer_use(struct tow_peer *peer, struct tow_account *account,
		 u32 timeout_ms, struct tow_session **result)
{
	struct tow_peer *found;
	struct tow_goal goal;
	int ret;

	*result = tow_peer_session(peer);
	if (*result)
		return 0;
	tow_goal_init(&goal, peer);
	ret = tow_attempt_make(&goal, account, timeout_ms, &found);
	if (ret)
		return ret;
	tow_peer_put(found);
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
 * It is told that an administrator wants that; if the device is being drained, that
 * it goes.
 *
 * Return: 0: the peer has no connection any more; -EINTR: a signal came; the
 * connection ends all the same.
 */
int tow_peer_disconnect(struct tow_peer *peer)
{
	struct tow_peers *peers = peer->dev->peers;
	bool going = tow_device_draining(peer->dev);
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
	tow_session_fail(session, -ECONNRESET,
			 going ? TOW_WIRE_GOING : TOW_WIRE_ADMIN,
			 going ? "the device is being drained" :
				 "an administrator disconnected it");
	/* Until tow_peer_session_gone() has taken it from the peer. */
	ret = wait_event_interruptible(peers->wait,
				       READ_ONCE(peer->session) != session);
	tow_session_put(session);
	return ret ? -EINTR : 0;
}
