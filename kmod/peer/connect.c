// SPDX-License-Identifier: GPL-2.0
/*
 * Attempts to connect: at most one for each address or known peer at a time, for
 * any number of seekers.  A work item makes the attempt.  A seeker is a call that
 * waits for it, or is told when to look again.  When all of them have given up,
 * the attempt makes no further try.  try.c makes the tries.
 *
 * A user's programs have a limited number of places for attempts.  It is the
 * attempt that waits for one, not its seekers: when another attempt has ended,
 * the place goes to that of the user who has the fewest.  Associations have
 * places and worker threads of their own, so programs do not keep them from
 * their peers.  How many attempts there are of programs is limited as well, as
 * all are looked through under tow_peers.lock.
 */
#include <linux/jiffies.h>
#include <linux/slab.h>

#include "assoc.h"
#include "attempt.h"
#include "core/core.h"
#include "peer.h"
#include "state.h"

/*
 * Attempts at a time: of programs and, apart from them, of associations; and of
 * one user's programs.  Each occupies a worker thread.
 */
#define TOW_ATTEMPTS_MAX	64
#define TOW_ATTEMPTS_USER	32

/* Attempts of programs with those that wait for a place, and of one user's. */
#define TOW_SOUGHT_MAX		2048
#define TOW_SOUGHT_USER		1024

/* Seekers that are woken before others may have tow_peers.lock. */
#define TOW_SEEKERS_BATCH	64

/* ---- attempts ------------------------------------------------------------- */

static void tow_attempt_release(struct kref *refs)
{
	struct tow_attempt *attempt = container_of(refs, struct tow_attempt,
						   refs);

	if (attempt->peer)
		tow_peer_put(attempt->peer);
	if (attempt->goal.sought)
		tow_peer_put(attempt->goal.sought);
	if (attempt->account)
		tow_account_put(attempt->account);
	tow_uncharge(&attempt->sought);
	tow_device_put(attempt->goal.dev);
	kfree(attempt);
}

static void tow_attempt_put(struct tow_attempt *attempt)
{
	kref_put(&attempt->refs, tow_attempt_release);
}

/* ---- places --------------------------------------------------------------- */

/*
 * Caller holds tow_peers.lock.  An attempt begins, if there is a place for it.
 * @account: whose; NULL: an association's.
 */
static bool tow_attempt_place(struct tow_attempt *attempt,
			      struct tow_account *account)
{
	const u64 amount[TOW_RESOURCES] = {
		[TOW_RES_ATTEMPTS]	= account ? 1 : 0,
		[TOW_RES_RECONNECTS]	= account ? 0 : 1,
	};
	struct tow_goal *goal = &attempt->goal;
	unsigned long deadline = jiffies + msecs_to_jiffies(goal->limit_ms);

	if (!tow_charge_try(&attempt->charge,
			    account ?: &goal->dev->limits.device, amount))
		return false;
	WRITE_ONCE(attempt->placed, true);
	attempt->begun = jiffies;
	if (time_after(deadline, attempt->deadline))
		attempt->deadline = deadline;
	queue_work(account ? tow_connect_wq : tow_reconnect_wq, &attempt->work);
	return true;
}

/* How many places has the user?  Of nested cgroups, the outermost. */
static u64 tow_attempts_of(const struct tow_account *account)
{
	while (account->parent && account->parent->parent)
		account = account->parent;
	return READ_ONCE(account->used[TOW_RES_ATTEMPTS]);
}

/* Caller holds tow_peers.lock.  Somebody else wants an attempt that waits. */
static void tow_attempt_wait(struct tow_attempt *attempt,
			     struct tow_account *account)
{
	struct tow_account *old = attempt->account;

	if (old && tow_attempts_of(old) <= tow_attempts_of(account))
		return;
	kref_get(&account->refs);
	attempt->account = account;
	if (old)
		tow_account_put(old);
}

/* Caller holds tow_peers.lock.  Those that wait begin, as far as there are places. */
static void tow_attempts_advance(struct tow_peers *peers)
{
	struct tow_attempt *attempt, *next;

	do {
		next = NULL;
		list_for_each_entry(attempt, &peers->attempts, link) {
			if (!attempt->placed &&
			    (!next || tow_attempts_of(attempt->account) <
				      tow_attempts_of(next->account)))
				next = attempt;
		}
	} while (next && tow_attempt_place(next, next->account));
}

/**
 * tow_attempts_stop - attempts that wait for their place fail
 * @peers: the peers of a device that is going; caller holds tow_peers.lock
 */
void tow_attempts_stop(struct tow_peers *peers)
{
	struct tow_attempt *attempt;

	lockdep_assert_held(&peers->lock);
	list_for_each_entry(attempt, &peers->attempts, link) {
		if (attempt->placed)
			continue;
		/* Nothing is tried any more. */
		WRITE_ONCE(attempt->placed, true);
		queue_work(tow_connect_wq, &attempt->work);
	}
}

/* ---- the work item -------------------------------------------------------- */

/* The attempt is done, so it gets no other seekers. */
static void tow_attempt_wake(struct tow_attempt *attempt)
{
	struct tow_peers *peers = attempt->goal.dev->peers;
	struct tow_seeker *seeker, *next;
	int left;

	do {
		left = TOW_SEEKERS_BATCH;
		mutex_lock(&peers->lock);
		list_for_each_entry_safe(seeker, next, &attempt->seekers, link) {
			list_del_init(&seeker->link);
			seeker->wake(seeker);
			if (!--left)
				break;
		}
		mutex_unlock(&peers->lock);
		cond_resched();
	} while (!left);
}

static void tow_attempt_work(struct work_struct *work)
{
	struct tow_attempt *attempt = container_of(work, struct tow_attempt,
						   work);
	struct tow_peers *peers = attempt->goal.dev->peers;
	struct tow_peer *peer = NULL;
	int ret;

	ret = tow_attempt_run(attempt, &peer);
	mutex_lock(&peers->lock);
	attempt->error = ret;
	attempt->peer = peer;
	WRITE_ONCE(attempt->done, true);
	list_del(&attempt->link);
	tow_uncharge(&attempt->charge);
	tow_attempts_advance(peers);
	mutex_unlock(&peers->lock);
	wake_up_all(&peers->wait);
	tow_attempt_wake(attempt);
	tow_attempt_put(attempt);
}

/* ---- who joins ------------------------------------------------------------ */

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
 * Caller holds tow_peers.lock.  A new attempt, without a place.  @account: whose; NULL: an
 * association's.  Return: ERR_PTR(): as tow_attempt_join().
 */
static struct tow_attempt *tow_attempt_new(const struct tow_goal *goal,
					   struct tow_account *account)
{
	const u64 amount[TOW_RESOURCES] = { [TOW_RES_SOUGHT] = 1 };
	struct tow_peers *peers = goal->dev->peers;
	struct tow_attempt *attempt;

	if (peers->stopping)
		return ERR_PTR(-ENODEV);
	attempt = kzalloc(sizeof(*attempt), GFP_KERNEL);
	if (!attempt)
		return ERR_PTR(-ENOMEM);
	if (account && !tow_charge_try(&attempt->sought, account, amount)) {
		kfree(attempt);
		return ERR_PTR(-EAGAIN);
	}
	kref_init(&attempt->refs);
	kref_get(&goal->dev->refs);
	if (goal->sought)
		tow_peer_get(goal->sought);
	attempt->goal = *goal;
	attempt->deadline = jiffies;
	INIT_LIST_HEAD(&attempt->seekers);
	INIT_WORK(&attempt->work, tow_attempt_work);
	list_add_tail(&attempt->link, &peers->attempts);
	return attempt;
}

/*
 * Caller holds tow_peers.lock.  Nobody wants an attempt any more.  If it waits it is
 * gone, but for the caller's reference; else the try in progress is the last one.
 */
static void tow_attempt_unwanted(struct tow_attempt *attempt)
{
	if (attempt->placed) {
		WRITE_ONCE(attempt->deadline, jiffies);
		return;
	}
	list_del(&attempt->link);
	tow_attempt_put(attempt);
}

/*
 * Caller holds tow_peers.lock.  The attempt for a goal that there is, or a new one,
 * with a reference for the caller.  @account is whose program waits for it; NULL: an
 * association does.  Return: ERR_PTR(-ENOMEM); -ENODEV: the device is going; -EAGAIN:
 * associations have no place, or programs seek too many others.
 */
static struct tow_attempt *tow_attempt_join(const struct tow_goal *goal,
					    struct tow_account *account)
{
	unsigned long deadline = jiffies + msecs_to_jiffies(goal->limit_ms);
	struct tow_attempt *attempt;

	attempt = tow_attempt_find(goal->dev->peers, goal) ?:
		  tow_attempt_new(goal, account);
	if (IS_ERR(attempt))
		return attempt;
	kref_get(&attempt->refs);
	if (!attempt->placed && !tow_attempt_place(attempt, account)) {
		if (!account) {
			if (!attempt->waiters)
				tow_attempt_unwanted(attempt);
			tow_attempt_put(attempt);
			return ERR_PTR(-EAGAIN);
		}
		tow_attempt_wait(attempt, account);
	}
	/* Tries continue until the latest deadline of all callers. */
	if (time_after(deadline, attempt->deadline))
		WRITE_ONCE(attempt->deadline, deadline);
	if (account)
		WRITE_ONCE(attempt->waiters, attempt->waiters + 1);
	else
		WRITE_ONCE(attempt->again, true);
	return attempt;
}

/* ---- seekers -------------------------------------------------------------- */

/*
 * Caller holds tow_peers.lock.  Look for a seeker's peer, without waiting: join an
 * attempt, if it has none, or look at its result.  Return: 0; -EINPROGRESS: there is no
 * result; else as tow_peer_reach().
 */
static int tow_seek(struct tow_seeker *seeker, const struct tow_goal *goal,
		    struct tow_account *account, struct tow_peer **result)
{
	struct tow_attempt *attempt;

	attempt = seeker->attempt ?: tow_attempt_join(goal, account);
	if (IS_ERR(attempt))
		return PTR_ERR(attempt);
	seeker->attempt = attempt;
	if (!attempt->done) {
		if (seeker->wake && list_empty(&seeker->link))
			list_add_tail(&seeker->link, &attempt->seekers);
		return -EINPROGRESS;
	}
	if (!attempt->error) {
		*result = attempt->peer;
		tow_peer_get(*result);
	}
	return attempt->error;
}

/**
 * tow_seeker_late - the error of a seeker whose time is over
 * @seeker: the seeker; it was told to look again
 *
 * Return: -ETIMEDOUT; -EAGAIN: the attempt had no place so far.
 */
int tow_seeker_late(const struct tow_seeker *seeker)
{
	return READ_ONCE(seeker->attempt->placed) ? -ETIMEDOUT : -EAGAIN;
}

/**
 * tow_seeker_end - a seeker needs its attempt no more
 * @seeker: from tow_seeker_init(); it is not woken any more
 * @dev: the device
 *
 * The seeker may begin anew.
 */
void tow_seeker_end(struct tow_seeker *seeker, struct tow_device *dev)
{
	struct tow_attempt *attempt = seeker->attempt;
	struct tow_peers *peers = dev->peers;

	if (!attempt)
		return;
	mutex_lock(&peers->lock);
	list_del_init(&seeker->link);
	WRITE_ONCE(attempt->waiters, attempt->waiters - 1);
	if (!attempt->waiters && !attempt->again)
		tow_attempt_unwanted(attempt);
	mutex_unlock(&peers->lock);
	seeker->attempt = NULL;
	tow_attempt_put(attempt);
}

/* As tow_seek(), with the lock. */
static int tow_seek_once(struct tow_seeker *seeker, const struct tow_goal *goal,
			 struct tow_account *account, struct tow_peer **result)
{
	struct tow_peers *peers = goal->dev->peers;
	int ret;

	mutex_lock(&peers->lock);
	ret = tow_seek(seeker, goal, account, result);
	mutex_unlock(&peers->lock);
	return ret;
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
	struct tow_seeker seeker;
	long left;
	int ret;

	tow_seeker_init(&seeker, NULL);
	ret = tow_seek_once(&seeker, goal, account, result);
	if (ret == -EINPROGRESS) {
		left = wait_event_interruptible_timeout(peers->wait,
							READ_ONCE(seeker.attempt->done),
							msecs_to_jiffies(timeout_ms) + 1);
		ret = tow_seek_once(&seeker, goal, account, result);
		if (ret == -EINPROGRESS)
			ret = left < 0 ? -EINTR : tow_seeker_late(&seeker);
	}
	tow_seeker_end(&seeker, goal->dev);
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
	dev->limits.max[TOW_LEVEL_USER][TOW_RES_SOUGHT] = TOW_SOUGHT_USER;
	all[TOW_RES_ATTEMPTS] = TOW_ATTEMPTS_MAX;
	all[TOW_RES_SOUGHT] = TOW_SOUGHT_MAX;
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

/**
 * tow_peer_reach_begin - as tow_peer_reach(), with the device's settings, but do not wait
 * @dev: the device
 * @account: the caller's
 * @address: the address; port 0: the device's
 * @seeker: from tow_seeker_init(), for this address; woken when to call again
 * @result: where to: the peer, with a reference for the caller
 *
 * Return: as tow_peer_reach(); -EINPROGRESS: it is being connected, or waits for its
 * user's turn.
 */
int tow_peer_reach_begin(struct tow_device *dev, struct tow_account *account,
			 const struct tow_address *address,
			 struct tow_seeker *seeker, struct tow_peer **result)
{
	struct tow_goal goal = { .dev = dev, .address = *address };
	int ret = 0;

	tow_conn_settings_read(dev->peers, &goal.settings);
	goal.limit_ms = goal.settings.reconnect_timeout_ms;
	if (!goal.address.port)
		goal.address.port = goal.settings.listen_port;
	*result = tow_peer_by_address(dev, &goal.address);
	if (!*result)
		ret = tow_seek_once(seeker, &goal, account, result);
	if (ret != -EINPROGRESS)
		tow_seeker_end(seeker, dev);
	return ret;
}

/*
 * Caller holds tow_peers.lock.  To connect to a peer: as its own settings say, or the
 * device's.
 */
static void tow_goal_init(struct tow_goal *goal, struct tow_peer *peer)
{
	struct tow_peers *peers = peer->dev->peers;

	lockdep_assert_held(&peers->lock);
	*goal = (struct tow_goal){ .dev = peer->dev, .sought = peer };
	if (peer->overridden)
		goal->settings = peer->settings;
	else
		tow_conn_settings_read(peers, &goal->settings);
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
	struct tow_peers *peers = peer->dev->peers;
	struct tow_attempt *attempt;
	struct tow_goal goal;

	mutex_lock(&peers->lock);
	tow_goal_init(&goal, peer);
	goal.limit_ms = limit_ms;
	attempt = tow_attempt_join(&goal, NULL);
	mutex_unlock(&peers->lock);
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
	struct tow_peers *peers = peer->dev->peers;
	struct tow_peer *found;
	struct tow_goal goal;
	int ret;

	mutex_lock(&peers->lock);
	*result = tow_peer_session_get(peer);
	if (!*result)
		tow_goal_init(&goal, peer);
	mutex_unlock(&peers->lock);
	if (*result)
		return 0;
	ret = tow_attempt_make(&goal, account, timeout_ms, &found);
	if (ret)
		return ret;
	tow_peer_put(found);
	*result = tow_peer_session(peer);
	return *result ? 0 : -ECONNRESET;
}

/**
 * tow_peer_use_begin - as tow_peer_use(), but do not wait
 * @peer: the peer
 * @account: the caller's
 * @seeker: from tow_seeker_init(), for this peer; woken when to call again
 * @result: where to: the session, with a reference for the caller
 *
 * Return: as tow_peer_use(); -EINPROGRESS: the peer is being connected, or waits for
 * its user's turn.
 */
int tow_peer_use_begin(struct tow_peer *peer, struct tow_account *account,
		       struct tow_seeker *seeker, struct tow_session **result)
{
	struct tow_peers *peers = peer->dev->peers;
	struct tow_peer *found = NULL;
	struct tow_goal goal;
	int ret = 0;

	mutex_lock(&peers->lock);
	*result = tow_peer_session_get(peer);
	if (!*result) {
		tow_goal_init(&goal, peer);
		ret = tow_seek(seeker, &goal, account, &found);
		/* It was READY a moment ago. */
		if (!ret)
			ret = -ECONNRESET;
	}
	mutex_unlock(&peers->lock);
	if (found)
		tow_peer_put(found);
	if (ret != -EINPROGRESS)
		tow_seeker_end(seeker, peer->dev);
	return ret;
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
