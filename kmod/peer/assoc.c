// SPDX-License-Identifier: GPL-2.0
/*
 * A tie begins, waits for another session, ends.
 *
 * Who carries a tie, and when it ends, is decided under tow_peers.lock.  While a
 * session carries it, that session's end says what becomes of it
 * (tow_tie_keeps()): it ends with the session, or is idle from then on.  An idle
 * one is taken by another session (resume.c), or ended by its work item, which
 * asks for one until then (tow_peers.seek).
 */
#include <linux/jiffies.h>
#include <linux/random.h>
#include <linux/slab.h>

#include "core/core.h"
#include "export.h"
#include "ops.h"
#include "peer.h"
#include "remote.h"
#include "tie.h"

/* Who was not the initiator asks after that, and half of it at random. */
#define TOW_TIE_LATER_MS	300

/* Between two tries: each time twice as long, and half of that at random. */
#define TOW_TIE_PAUSE_MS	100
#define TOW_TIE_PAUSE_MAX_MS	1600

/* ---- references ----------------------------------------------------------- */

/**
 * tow_tie_get - take a reference
 * @tie: the tie
 */
void tow_tie_get(struct tow_tie *tie)
{
	kref_get(&tie->refs);
}

static void tow_tie_release(struct kref *refs)
{
	struct tow_tie *tie = container_of(refs, struct tow_tie, refs);
	unsigned int i;

	tow_directory_tie_cleanup(tie);
	for (i = 0; i < tie->qps; i++)
		tow_ops_cleanup(&tie->data[i]);
	kfree(tie->data);
	tow_tie_log_cleanup(&tie->log);
	tow_peer_put(tie->peer);
	tow_device_put(tie->dev);
	kfree(tie);
}

/**
 * tow_tie_put - give a reference back
 * @tie: the tie; may be gone afterwards
 */
void tow_tie_put(struct tow_tie *tie)
{
	kref_put(&tie->refs, tow_tie_release);
}

/**
 * tow_tie_session - the session that carries a tie, or did last
 * @tie: the tie
 *
 * Return: the session with a reference for the caller; NULL: the tie has ended.
 */
struct tow_session *tow_tie_session(struct tow_tie *tie)
{
	struct tow_session *session;

	spin_lock_bh(&tie->lock);
	session = tie->session;
	if (session)
		tow_session_get(session);
	spin_unlock_bh(&tie->lock);
	return session;
}

/**
 * tow_tie_fail - the session that carries a tie cannot go on
 * @tie: the tie
 * @error: as of tow_session_fail()
 * @reason: likewise
 * @why: likewise
 */
void tow_tie_fail(struct tow_tie *tie, int error, u32 reason, const char *why)
{
	struct tow_session *session = tow_tie_session(tie);

	if (!session)
		return;
	tow_session_fail(session, error, reason, why);
	tow_session_put(session);
}

/**
 * tow_tie_note - remember what happened
 * @tie: the tie
 * @stage: a string that is never freed
 * @subject: a number that says what it was about, or 0
 * @error: a negative errno, or 0
 */
void tow_tie_note(struct tow_tie *tie, const char *stage, u64 subject,
		  int error)
{
	tow_recorder_note(&tie->peer->recorder, READ_ONCE(tie->peer->epoch),
			  stage, subject, error);
}

/**
 * tow_tie_kick - send what there is to send, if a session carries a tie
 * @tie: the tie
 *
 * As tow_session_kick().
 */
void tow_tie_kick(struct tow_tie *tie)
{
	struct tow_session *session = tow_tie_session(tie);

	if (!session)
		return;
	tow_session_kick(session);
	tow_session_put(session);
}

/**
 * tow_peer_tie - what we have of a peer
 * @peer: the peer
 *
 * Return: it, with a reference for the caller; NULL: nothing.
 */
struct tow_tie *tow_peer_tie(struct tow_peer *peer)
{
	struct tow_peers *peers = peer->dev->peers;
	struct tow_tie *tie;

	mutex_lock(&peers->lock);
	tie = peer->tie;
	/* One that does not last is its session's alone. */
	if (!tie && peer->session)
		/* Pairs with tow_tie_carry(). */
		tie = smp_load_acquire(&peer->session->tie);
	if (tie)
		tow_tie_get(tie);
	mutex_unlock(&peers->lock);
	return tie;
}

/* ---- the end -------------------------------------------------------------- */

/* No session carries it, nor will one; what was on queue pairs is gone. */
static void tow_tie_end(struct tow_tie *tie)
{
	struct tow_peers *peers = tie->dev->peers;
	struct tow_session *session;
	unsigned int i;

	/* Nobody queues it any more; the caller has a reference. */
	if (cancel_delayed_work(&tie->work))
		tow_tie_put(tie);
	tow_directory_tie_lost(tie);
	for (i = 0; i < tie->qps; i++)
		tow_ops_close(&tie->data[i], true);
	for (i = 0; i < tie->qps; i++)
		tow_ops_abandon(&tie->data[i]);
	tow_directory_tie_gone(tie);
	spin_lock_bh(&tie->lock);
	session = tie->session;
	tie->session = NULL;
	spin_unlock_bh(&tie->lock);
	if (session)
		tow_session_put(session);
	mutex_lock(&peers->lock);
	peers->ties--;
	mutex_unlock(&peers->lock);
	wake_up_all(&peers->wait);
}

/* Called with tow_peers.lock: the peer has none any more. */
static void tow_tie_unregister(struct tow_tie *tie)
{
	if (tie->peer->tie != tie)
		return;
	tie->peer->tie = NULL;
	/* Not the last: whoever calls has one. */
	tow_tie_put(tie);
}

/*
 * Called with tow_peers.lock: programs are told that it is lost.  Before what they have of
 * it ends, so it cannot be taken for what they find in the next one.
 */
static void tow_tie_tell(struct tow_tie *tie)
{
	if (tie->settled && tie->tells && !tie->dev->peers->stopping)
		tow_event_lost(tie->peer, tie->orderly ? 0 : tie->error);
}

static void tow_tie_queue(struct tow_tie *tie, unsigned int ms)
{
	tow_tie_get(tie);
	if (mod_delayed_work(tow_wq, &tie->work, msecs_to_jiffies(ms)))
		tow_tie_put(tie);
}

/**
 * tow_tie_give_up - no session shall carry a tie any more
 * @tie: the tie; the caller has tow_peers.lock, and a reference
 * @error: what those get who wait
 * @orderly: it does not count as a failure
 *
 * The session that does now is to be ended by the caller.
 */
void tow_tie_give_up(struct tow_tie *tie, int error, bool orderly)
{
	lockdep_assert_held(&tie->dev->peers->lock);
	if (!tie->giving_up) {
		WRITE_ONCE(tie->giving_up, error);
		tie->orderly = orderly;
		/* How it was lost, not how it was found out. */
		WRITE_ONCE(tie->error, error == -EALREADY ? -ECONNRESET :
							    error);
		tow_tie_tell(tie);
	}
	if (tie->idle)
		tow_tie_queue(tie, 0);
	tow_tie_unregister(tie);
	wake_up_all(&tie->dev->peers->wait);
}

/**
 * tow_peer_drop_tie - what we have of a peer shall not be kept for another session
 * @peer: the peer; the caller has tow_peers.lock
 * @error: as of tow_tie_give_up()
 * @orderly: likewise
 */
void tow_peer_drop_tie(struct tow_peer *peer, int error, bool orderly)
{
	struct tow_tie *tie = peer->tie;

	if (!tie)
		return;
	tow_tie_get(tie);
	tow_tie_give_up(tie, error, orderly);
	tow_tie_put(tie);
}

/**
 * tow_tie_keeps - does what a session carries outlive it?
 * @session: ENDING, and nobody makes links of it any more
 *
 * Return: whether it does.
 */
bool tow_tie_keeps(struct tow_session *session)
{
	struct tow_peers *peers = session->dev->peers;
	struct tow_tie *tie = session->tie;
	bool keep;

	if (!tie)
		return false;
	mutex_lock(&peers->lock);
	keep = tie->lasts && tie->settled && !tie->giving_up &&
	       !peers->stopping && tow_session_may_pass(session);
	/* That what nobody has used is gone is no news. */
	if (session->reason == TOW_WIRE_IDLE && !atomic_read(&tie->users))
		tie->tells = false;
	if (!keep)
		tow_tie_give_up(tie, session->error,
				session->reason == TOW_WIRE_ADMIN ||
				session->reason == TOW_WIRE_GOING);
	mutex_unlock(&peers->lock);
	return keep;
}

/**
 * tow_tie_leave - a session carries its tie no more
 * @session: the session; its queue pairs are destroyed
 * @keep: from tow_tie_keeps()
 *
 * What is kept is idle after tow_tie_pause().
 */
void tow_tie_leave(struct tow_session *session, bool keep)
{
	if (!session->tie)
		return;
	if (keep)
		tow_grant_tie_apart(session->tie);
	else
		tow_tie_end(session->tie);
}

/* ---- waiting for another session ------------------------------------------- */

/* What is half of it at random, so that many do not come at once. */
static unsigned int tow_tie_jitter(unsigned int ms)
{
	return ms + get_random_u32() % (ms / 2 + 1);
}

static unsigned int tow_tie_next_pause(struct tow_tie *tie)
{
	tie->pause_ms = clamp_t(unsigned int, 2 * tie->pause_ms,
				TOW_TIE_PAUSE_MS, TOW_TIE_PAUSE_MAX_MS);
	return tow_tie_jitter(tie->pause_ms);
}

/**
 * tow_tie_pause - nothing is left of the session that carried a tie
 * @tie: the tie; the caller has tow_peers.lock
 *
 * Another one may carry it from now on.
 */
void tow_tie_pause(struct tow_tie *tie)
{
	struct tow_peers *peers = tie->dev->peers;
	u32 patience_ms = READ_ONCE(peers->settings.reconnect_timeout_ms);
	unsigned int pause_ms;

	lockdep_assert_held(&peers->lock);
	WRITE_ONCE(tie->idle, true);
	if (tie->waiting) {
		pause_ms = tow_tie_next_pause(tie);
	} else {
		tie->waiting = true;
		tie->patience = jiffies + msecs_to_jiffies(patience_ms);
		pause_ms = tie->session->initiator ? 0 :
			   tow_tie_jitter(TOW_TIE_LATER_MS);
	}
	tow_tie_queue(tie, tie->giving_up ? 0 : pause_ms);
	wake_up_all(&peers->wait);
}

/* Called with tow_peers.lock: it ends, and the peer is not waited for. */
static void tow_tie_take_down(struct tow_tie *tie)
{
	WRITE_ONCE(tie->idle, false);
	tow_tie_give_up(tie, -ECONNRESET, false);
	tow_peer_waits_no_more(tie->peer, tie->orderly);
}

static void tow_tie_work(struct work_struct *work)
{
	struct tow_tie *tie = container_of(to_delayed_work(work),
					   struct tow_tie, work);
	struct tow_peers *peers = tie->dev->peers;
	bool idle, end;
	long left;

	mutex_lock(&peers->lock);
	idle = tie->idle;
	left = tie->patience - jiffies;
	end = idle && (tie->giving_up || left <= 0);
	if (end)
		tow_tie_take_down(tie);
	else if (idle)
		tow_tie_queue(tie, min_t(unsigned int, tow_tie_next_pause(tie),
					 jiffies_to_msecs(left) + 1));
	mutex_unlock(&peers->lock);
	if (end) {
		tow_tie_note(tie, "given up", tie->index, tie->error);
		tow_tie_end(tie);
	} else if (idle) {
		peers->seek(tie->peer, jiffies_to_msecs(left));
	}
	tow_tie_put(tie);
}

/**
 * tow_tie_went_on - a tie is what it was, in another session
 * @session: that session
 */
void tow_tie_went_on(struct tow_session *session)
{
	struct tow_peers *peers = session->dev->peers;
	struct tow_tie *tie = session->tie;

	mutex_lock(&peers->lock);
	/* Else it waits for the next one, or is about to. */
	if (tow_session_alive(session)) {
		tie->waiting = false;
		tie->pause_ms = 0;
		tow_event_back(tie->peer);
	}
	mutex_unlock(&peers->lock);
	tow_tie_note(tie, "goes on", tie->index, 0);
}

/* ---- the beginning -------------------------------------------------------- */

/* Called with tow_peers.lock: what does not last is its session's alone. */
static void tow_tie_register(struct tow_tie *tie, struct tow_session *session)
{
	struct tow_peer *peer = tie->peer;

	tie->dev->peers->ties++;
	if (peer->session != session || peer->tie || peer->removed ||
	    !tow_session_alive(session))
		tie->lasts = false;
	if (!tie->lasts)
		return;
	tow_tie_get(tie);
	peer->tie = tie;
}

/**
 * tow_tie_new - a tie that begins with a session
 * @session: the session, whose other end is known; it is to carry the tie
 *
 * tow_tie_leave() ends it.
 *
 * Return: the tie with a reference for the session; -ENOMEM; what the hash says.
 */
struct tow_tie *tow_tie_new(struct tow_session *session)
{
	struct tow_peers *peers = session->dev->peers;
	struct tow_tie *tie;
	unsigned int i;
	int ret;

	tie = kzalloc(sizeof(*tie), GFP_KERNEL);
	if (!tie)
		return ERR_PTR(-ENOMEM);
	kref_init(&tie->refs);
	spin_lock_init(&tie->lock);
	tie->index = session->index;
	/* A node that is its own peer has a tie at each end, and both break at once. */
	tie->lasts = !session->loopback;
	tie->tells = !session->loopback || session->initiator;
	tie->qps = session->qps;
	ret = tow_auth_tie_name(&session->auth, tie->name);
	if (ret)
		goto err_free_tie;
	ret = tow_tie_log_init(&tie->log);
	if (ret)
		goto err_free_tie;
	ret = -ENOMEM;
	tie->data = kcalloc(tie->qps, sizeof(*tie->data), GFP_KERNEL);
	if (!tie->data)
		goto err_cleanup_log;
	kref_get(&session->dev->refs);
	tie->dev = session->dev;
	tow_peer_get(session->peer);
	tie->peer = session->peer;
	for (i = 0; i < tie->qps; i++)
		tow_link_init(&tie->data[i], tie, i);
	tow_directory_tie_init(tie);
	INIT_DELAYED_WORK(&tie->work, tow_tie_work);
	mutex_lock(&peers->lock);
	tow_tie_register(tie, session);
	mutex_unlock(&peers->lock);
	return tie;

err_cleanup_log:
	tow_tie_log_cleanup(&tie->log);
err_free_tie:
	kfree(tie);
	return ERR_PTR(ret);
}
