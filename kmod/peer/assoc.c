// SPDX-License-Identifier: GPL-2.0
/*
 * An association begins, waits for another session, ends.
 *
 * Which session carries an association, and when the association ends, is
 * decided under tow_peers.lock.  When the session that carries it ends,
 * tow_assoc_keeps() decides whether the association ends as well or becomes
 * idle.  An idle association is claimed by another session (resume.c).  Until
 * then its work item has the peer connected (tow_peers.seek), and ends the
 * association when its time is over.
 */
#include <linux/jiffies.h>
#include <linux/random.h>
#include <linux/slab.h>

#include "assoc.h"
#include "core/core.h"
#include "peer.h"

/* The responder reconnects after so long, plus up to half of it at random. */
#define TOW_ASSOC_LATER_MS	300

/* Between two tries: doubled each time, plus up to half of it at random. */
#define TOW_ASSOC_PAUSE_MS	100
#define TOW_ASSOC_PAUSE_MAX_MS	1600

/* A connection works if the peer is heard for so many heartbeats. */
#define TOW_ASSOC_BEATS		2

/* ---- references ----------------------------------------------------------- */

/**
 * tow_assoc_get - take a reference
 * @assoc: the association
 */
void tow_assoc_get(struct tow_assoc *assoc)
{
	kref_get(&assoc->refs);
}

static void tow_assoc_release(struct kref *refs)
{
	struct tow_assoc *assoc = container_of(refs, struct tow_assoc, refs);
	unsigned int i;

	tow_clients_call(assoc->dev, release, assoc);
	for (i = 0; i < assoc->qps; i++)
		tow_link_cleanup(&assoc->data[i]);
	kfree(assoc->data);
	if (assoc->other_end)
		tow_assoc_put(assoc->other_end);
	tow_peer_put(assoc->peer);
	tow_device_put(assoc->dev);
	kfree(assoc);
}

/**
 * tow_assoc_put - give a reference back
 * @assoc: the association; may be gone afterwards
 */
void tow_assoc_put(struct tow_assoc *assoc)
{
	kref_put(&assoc->refs, tow_assoc_release);
}

/**
 * tow_assoc_session - the session that carries an association, or carried it
 *	last
 * @assoc: the association
 *
 * Return: the session with a reference for the caller; NULL: the association has ended.
 */
struct tow_session *tow_assoc_session(struct tow_assoc *assoc)
{
	struct tow_session *session;

	spin_lock_bh(&assoc->lock);
	session = assoc->session;
	if (session)
		tow_session_get(session);
	spin_unlock_bh(&assoc->lock);
	return session;
}

/**
 * tow_assoc_fail - end the session that carries an association
 * @assoc: the association
 * @error: as for tow_session_fail()
 * @reason: likewise
 * @why: likewise
 */
void tow_assoc_fail(struct tow_assoc *assoc, int error, u32 reason, const char *why)
{
	struct tow_session *session = tow_assoc_session(assoc);

	if (!session)
		return;
	tow_session_fail(session, error, reason, why);
	tow_session_put(session);
}

/**
 * tow_assoc_note - record what happened in the peer's recorder
 * @assoc: the association
 * @stage: a string that is never freed
 * @subject: a number that goes with @stage, or 0
 * @error: a negative errno, or 0
 */
void tow_assoc_note(struct tow_assoc *assoc, const char *stage, u64 subject,
		    int error)
{
	tow_recorder_note(&assoc->peer->recorder, READ_ONCE(assoc->peer->epoch),
			  stage, subject, error);
}

static void tow_assoc_kick_work(struct work_struct *work)
{
	struct tow_assoc *assoc = container_of(work, struct tow_assoc, kick);
	struct tow_session *session = tow_assoc_session(assoc);

	if (session) {
		tow_session_kick(session);
		tow_session_put(session);
	}
	tow_assoc_put(assoc);
}

/**
 * tow_assoc_kick - have the messages of an association sent
 * @assoc: the association; a reference keeps it during the call
 *
 * Does not wait: a work item calls tow_session_kick().  With any lock held.
 */
void tow_assoc_kick(struct tow_assoc *assoc)
{
	tow_assoc_get(assoc);
	/* Not the last reference: the caller keeps the association. */
	if (!queue_work(tow_cq_wq, &assoc->kick))
		tow_assoc_put(assoc);
}

/**
 * tow_peer_assoc - the association with a peer
 * @peer: the peer
 *
 * Return: the association with a reference for the caller; NULL: there is none.
 */
struct tow_assoc *tow_peer_assoc(struct tow_peer *peer)
{
	struct tow_peers *peers = peer->dev->peers;
	struct tow_assoc *assoc;

	mutex_lock(&peers->lock);
	assoc = peer->assoc;
	/* An association that does not last is found by its session only. */
	if (!assoc && peer->session)
		/* Pairs with tow_assoc_carry(). */
		assoc = smp_load_acquire(&peer->session->assoc);
	if (assoc)
		tow_assoc_get(assoc);
	mutex_unlock(&peers->lock);
	return assoc;
}

/* ---- the end -------------------------------------------------------------- */

/*
 * End an association that no session carries or will carry.  Its queue pairs
 * are destroyed; the caller has a reference.
 */
static void tow_assoc_end(struct tow_assoc *assoc)
{
	struct tow_peers *peers = assoc->dev->peers;
	struct tow_session *session;

	/* The work is not queued again; not the last reference. */
	if (cancel_delayed_work(&assoc->work))
		tow_assoc_put(assoc);
	tow_clients_call(assoc->dev, lost, assoc);
	tow_clients_call(assoc->dev, suspend, assoc, true);
	tow_clients_call(assoc->dev, gone, assoc);
	spin_lock_bh(&assoc->lock);
	session = assoc->session;
	assoc->session = NULL;
	spin_unlock_bh(&assoc->lock);
	if (session)
		tow_session_put(session);
	mutex_lock(&peers->lock);
	peers->assocs--;
	mutex_unlock(&peers->lock);
	wake_up_all(&peers->wait);
}

/* Take an association from its peer.  Caller holds tow_peers.lock. */
static void tow_assoc_unregister(struct tow_assoc *assoc)
{
	if (assoc->peer->assoc != assoc)
		return;
	assoc->peer->assoc = NULL;
	/* Not the last reference: the caller has one. */
	tow_assoc_put(assoc);
}

/*
 * Deliver LOST to programs.  Caller holds tow_peers.lock.  This comes before
 * the association's remote ranges become stale, so programs do not relate the
 * event to what they find in the next association.
 */
static void tow_assoc_notify(struct tow_assoc *assoc)
{
	if (assoc->settled && assoc->tells && !assoc->dev->peers->stopping)
		tow_peer_lost(assoc->peer, assoc->orderly ? 0 : assoc->error);
}

static void tow_assoc_queue(struct tow_assoc *assoc, unsigned int ms)
{
	tow_assoc_get(assoc);
	if (mod_delayed_work(tow_wq, &assoc->work, msecs_to_jiffies(ms)))
		tow_assoc_put(assoc);
}

/**
 * tow_assoc_give_up - let no session carry an association any more
 * @assoc: the association; caller holds tow_peers.lock and has a reference
 * @error: why, a negative errno
 * @orderly: the end is wanted, and is no failure
 *
 * If a session carries the association now, the caller ends that session.
 */
void tow_assoc_give_up(struct tow_assoc *assoc, int error, bool orderly)
{
	lockdep_assert_held(&assoc->dev->peers->lock);
	if (!assoc->giving_up) {
		WRITE_ONCE(assoc->giving_up, error);
		assoc->orderly = orderly;
		/*
		 * -EALREADY only says that another session replaced the last
		 * one.
		 */
		WRITE_ONCE(assoc->error, error == -EALREADY ? -ECONNRESET :
							    error);
		tow_assoc_notify(assoc);
	}
	if (assoc->idle)
		tow_assoc_queue(assoc, 0);
	tow_assoc_unregister(assoc);
	wake_up_all(&assoc->dev->peers->wait);
}

/**
 * tow_peer_drop_assoc - tow_assoc_give_up() for a peer's association, if any
 * @peer: the peer; caller holds tow_peers.lock
 * @error: as for tow_assoc_give_up()
 * @orderly: likewise
 */
void tow_peer_drop_assoc(struct tow_peer *peer, int error, bool orderly)
{
	struct tow_assoc *assoc = peer->assoc;

	if (!assoc)
		return;
	tow_assoc_get(assoc);
	tow_assoc_give_up(assoc, error, orderly);
	tow_assoc_put(assoc);
}

/**
 * tow_assoc_keeps - does a session's association outlive the session?
 * @session: the session, ENDING; its links are not changed any more
 *
 * If not, tow_assoc_give_up() is called for the association.
 *
 * Return: true: another session may carry the association.
 */
bool tow_assoc_keeps(struct tow_session *session)
{
	struct tow_peers *peers = session->dev->peers;
	struct tow_assoc *assoc = session->assoc;
	bool keep;

	if (!assoc)
		return false;
	mutex_lock(&peers->lock);
	keep = assoc->lasts && assoc->settled && !assoc->giving_up &&
	       !peers->stopping && tow_session_may_pass(session);
	/* No LOST event if an unused association ends because it was idle. */
	if (session->reason == TOW_WIRE_IDLE && !atomic_read(&assoc->users))
		assoc->tells = false;
	if (!keep)
		tow_assoc_give_up(assoc, session->error,
				  session->reason == TOW_WIRE_ADMIN ||
				  session->reason == TOW_WIRE_GOING);
	mutex_unlock(&peers->lock);
	return keep;
}

/**
 * tow_assoc_leave - a session does not carry its association any more
 * @session: the session; its queue pairs are destroyed
 * @keep: from tow_assoc_keeps().  true: the association is idle after
 *	tow_assoc_pause(); false: it ends here
 */
void tow_assoc_leave(struct tow_session *session, bool keep)
{
	if (!session->assoc)
		return;
	if (keep)
		tow_clients_call(session->dev, apart, session->assoc);
	else
		tow_assoc_end(session->assoc);
}

/* ---- waiting for another session ------------------------------------------- */

/* Add up to half at random, so that many peers do not connect at once. */
static unsigned int tow_assoc_jitter(unsigned int ms)
{
	return ms + get_random_u32() % (ms / 2 + 1);
}

static unsigned int tow_assoc_next_pause(struct tow_assoc *assoc)
{
	assoc->pause_ms = clamp_t(unsigned int, 2 * assoc->pause_ms,
				  TOW_ASSOC_PAUSE_MS, TOW_ASSOC_PAUSE_MAX_MS);
	return tow_assoc_jitter(assoc->pause_ms);
}

/*
 * Has the session that resumed an association shown that the connection works?
 * SYNC alone does not: data may find no way, or the peer may break each session.
 * Caller holds tow_peers.lock.
 */
static bool tow_assoc_worked(const struct tow_assoc *assoc)
{
	const struct tow_session *session = assoc->session;
	u32 beat_ms = READ_ONCE(assoc->dev->peers->settings.heartbeat_ms);

	return READ_ONCE(session->moved) || atomic_read(&session->notify.arrived) ||
	       time_after(READ_ONCE(session->heard_at), assoc->resumed_at +
			  msecs_to_jiffies(TOW_ASSOC_BEATS * beat_ms));
}

/**
 * tow_assoc_pause - make an association idle: another session may carry it
 * @assoc: the association; caller holds tow_peers.lock.  Nothing is left of the
 *	session that carried it last, or that claimed it
 */
void tow_assoc_pause(struct tow_assoc *assoc)
{
	struct tow_peers *peers = assoc->dev->peers;
	u32 patience_ms = READ_ONCE(peers->settings.reconnect_timeout_ms);
	unsigned int pause_ms;

	lockdep_assert_held(&peers->lock);
	WRITE_ONCE(assoc->idle, true);
	if (assoc->resumed_at) {
		assoc->waiting = !tow_assoc_worked(assoc);
		assoc->patience += jiffies - assoc->resumed_at;
		assoc->resumed_at = 0;
	}
	if (assoc->waiting) {
		pause_ms = tow_assoc_jitter(max_t(unsigned int, assoc->pause_ms,
						  TOW_ASSOC_PAUSE_MS));
	} else {
		assoc->waiting = true;
		assoc->pause_ms = 0;
		assoc->patience = jiffies + msecs_to_jiffies(patience_ms);
		pause_ms = assoc->session->initiator ? 0 :
			   tow_assoc_jitter(TOW_ASSOC_LATER_MS);
	}
	tow_assoc_queue(assoc, assoc->giving_up ? 0 : pause_ms);
	wake_up_all(&peers->wait);
}

/* Begin the end of an idle association.  Caller holds tow_peers.lock. */
static void tow_assoc_take_down(struct tow_assoc *assoc)
{
	WRITE_ONCE(assoc->idle, false);
	tow_assoc_give_up(assoc, -ECONNRESET, false);
	tow_peer_waits_no_more(assoc->peer, assoc->orderly);
}

static void tow_assoc_work(struct work_struct *work)
{
	struct tow_assoc *assoc = container_of(to_delayed_work(work),
					       struct tow_assoc, work);
	struct tow_peers *peers = assoc->dev->peers;
	bool idle, end;
	long left;

	mutex_lock(&peers->lock);
	idle = assoc->idle;
	left = assoc->patience - jiffies;
	end = idle && (assoc->giving_up || left <= 0);
	if (end)
		tow_assoc_take_down(assoc);
	else if (idle)
		tow_assoc_queue(assoc, min_t(unsigned int, tow_assoc_next_pause(assoc),
					     jiffies_to_msecs(left) + 1));
	mutex_unlock(&peers->lock);
	if (end) {
		tow_assoc_note(assoc, "given up", assoc->index, assoc->error);
		tow_assoc_end(assoc);
	} else if (idle) {
		peers->seek(assoc->peer, jiffies_to_msecs(left));
	}
	tow_assoc_put(assoc);
}

/**
 * tow_assoc_went_on - an association has resumed
 * @session: the session that carries it now; the other end's SYNC was handled
 */
void tow_assoc_went_on(struct tow_session *session)
{
	struct tow_peers *peers = session->dev->peers;
	struct tow_assoc *assoc = session->assoc;

	mutex_lock(&peers->lock);
	/* If ENDING, the association waits for the next session, or will. */
	if (tow_session_alive(session)) {
		/* Never 0, which means that none has. */
		assoc->resumed_at = jiffies | 1;
		tow_peer_back(assoc->peer);
	}
	mutex_unlock(&peers->lock);
	tow_assoc_note(assoc, "goes on", assoc->index, 0);
}

/* ---- the beginning -------------------------------------------------------- */

/*
 * Make an association its peer's, unless it does not last: then only its
 * session leads to it.  Caller holds tow_peers.lock.
 */
static void tow_assoc_register(struct tow_assoc *assoc, struct tow_session *session)
{
	struct tow_peer *peer = assoc->peer;

	assoc->dev->peers->assocs++;
	if (peer->session != session || peer->assoc || peer->removed ||
	    !tow_session_alive(session))
		assoc->lasts = false;
	if (!assoc->lasts)
		return;
	tow_assoc_get(assoc);
	peer->assoc = assoc;
}

/*
 * Caller holds tow_peers.lock; @session is loopback's initiator.  The responder has begun
 * its association before it answered.
 */
static void tow_assoc_find_other_end(struct tow_assoc *assoc,
				     struct tow_session *session)
{
	struct tow_session *far = session->peer->other_end;
	/* Pairs with tow_assoc_carry(). */
	struct tow_assoc *other = far ? smp_load_acquire(&far->assoc) : NULL;

	if (!other || memcmp(other->name, assoc->name, sizeof(assoc->name)))
		return;
	tow_assoc_get(other);
	assoc->other_end = other;
}

/**
 * tow_assoc_new - make an association that begins with a session
 * @session: the session, which has a peer and is to carry the association
 *
 * tow_assoc_leave() or the association's work item ends it.
 *
 * Return: the association with a reference for the session; or ERR_PTR(-ENOMEM).
 */
struct tow_assoc *tow_assoc_new(struct tow_session *session)
{
	struct tow_peers *peers = session->dev->peers;
	struct tow_assoc *assoc;
	unsigned int i;

	assoc = kzalloc(sizeof(*assoc), GFP_KERNEL);
	if (!assoc)
		return ERR_PTR(-ENOMEM);
	kref_init(&assoc->refs);
	spin_lock_init(&assoc->lock);
	assoc->index = session->index;
	/* Both ends of loopback end together, so neither association lasts. */
	assoc->lasts = !session->loopback;
	assoc->tells = !session->loopback || session->initiator;
	assoc->qps = session->qps;
	assoc->width = session->handshake.reply.version < TOW_WIRE_WIDTHS ?
		       1 : session->qps;
	memcpy(assoc->name, session->auth.assoc, sizeof(assoc->name));
	assoc->data = kcalloc(assoc->qps, sizeof(*assoc->data), GFP_KERNEL);
	if (!assoc->data) {
		kfree(assoc);
		return ERR_PTR(-ENOMEM);
	}
	kref_get(&session->dev->refs);
	assoc->dev = session->dev;
	tow_peer_get(session->peer);
	assoc->peer = session->peer;
	for (i = 0; i < assoc->qps; i++)
		tow_link_init(&assoc->data[i], assoc, i);
	tow_clients_call(assoc->dev, init, assoc);
	INIT_DELAYED_WORK(&assoc->work, tow_assoc_work);
	INIT_WORK(&assoc->kick, tow_assoc_kick_work);
	mutex_lock(&peers->lock);
	if (session->loopback && session->initiator)
		tow_assoc_find_other_end(assoc, session);
	tow_assoc_register(assoc, session);
	mutex_unlock(&peers->lock);
	return assoc;
}
