// SPDX-License-Identifier: GPL-2.0
/*
 * Which session carries a tie.
 *
 * The initiator names the tie that it has (AUTH), when nothing is left of the
 * session that carried it before; so does the responder (AUTHED), when that is so
 * there.  If both have the same it goes on.  If not, both end what they have, and
 * another begins: the other node may have started anew, or have given up waiting,
 * or the session before was READY at one end only.
 */
#include <linux/slab.h>

#include "core/core.h"
#include "export.h"
#include "peer.h"
#include "tie.h"

static bool tow_tie_is_named(const u8 *name)
{
	return memchr_inv(name, 0, TOW_WIRE_TIE_BYTES);
}

/* Without the lock, as whoever waits cannot take it while it looks. */
static bool tow_tie_settles(const struct tow_tie *tie)
{
	return READ_ONCE(tie->idle) || READ_ONCE(tie->giving_up);
}

static bool tow_tie_wait_idle(struct tow_tie *tie)
{
	return wait_event_timeout(tie->dev->peers->wait, tow_tie_settles(tie),
				  msecs_to_jiffies(TOW_TIE_QUIET_MS));
}

/*
 * Called with the session's setup lock: the tie is its own from now on.  Who finds the
 * session by the tie finds the tie by the session.
 */
static void tow_tie_carry(struct tow_tie *tie, struct tow_session *session,
			  bool goes_on)
{
	struct tow_session *before;
	unsigned int i;

	lockdep_assert_held(&session->setup);
	for (i = 0; i < tie->qps; i++)
		tow_link_carry(&tie->data[i], session);
	session->data = tie->data;
	session->syncs = goes_on;
	session->synced = !goes_on;
	tow_session_get(session);
	spin_lock_bh(&tie->lock);
	before = tie->session;
	/* Pairs with tow_session_used(). */
	smp_store_release(&session->tie, tie);
	tie->session = session;
	spin_unlock_bh(&tie->lock);
	if (before)
		tow_session_put(before);
	tow_grant_tie_carried(tie);
}

/*
 * A tie that is idle is the caller's.  Return: 0; -EAGAIN: it is not idle;
 * -ESTALE: it is to end.
 */
static int tow_tie_claim(struct tow_tie *tie)
{
	struct tow_peers *peers = tie->dev->peers;
	int ret = -EAGAIN;

	mutex_lock(&peers->lock);
	if (tie->giving_up) {
		ret = -ESTALE;
	} else if (tie->idle) {
		WRITE_ONCE(tie->idle, false);
		ret = 0;
	}
	mutex_unlock(&peers->lock);
	return ret;
}

/* What was claimed is not carried after all. */
static void tow_tie_unclaim(struct tow_tie *tie)
{
	mutex_lock(&tie->dev->peers->lock);
	tow_tie_pause(tie);
	mutex_unlock(&tie->dev->peers->lock);
}

/* With the setup lock.  @tie: claimed, or NULL: a new one begins. */
static int tow_tie_carry_or_begin(struct tow_session *session,
				  struct tow_tie *tie, u64 dealt)
{
	int ret = 0;

	if (tie) {
		ret = tow_tie_log_again(&tie->log, dealt);
		tow_tie_get(tie);
		tow_tie_carry(tie, session, true);
		return ret;
	}
	tie = tow_tie_new(session);
	if (IS_ERR(tie))
		return PTR_ERR(tie);
	tow_tie_carry(tie, session, false);
	return 0;
}

/*
 * A session carries a tie from now on: @tie, which is claimed, or a new one.
 * Return: 0; the session's error if it is ENDING; -EPROTO; -ENOMEM.
 */
static int tow_tie_begin(struct tow_session *session, struct tow_tie *tie,
			 u64 dealt)
{
	int ret;

	mutex_lock(&session->setup);
	if (tow_session_alive(session)) {
		ret = tow_tie_carry_or_begin(session, tie, dealt);
	} else {
		ret = session->error;
		if (tie)
			tow_tie_unclaim(tie);
	}
	mutex_unlock(&session->setup);
	return ret;
}

/**
 * tow_tie_ask - the initiator says which tie it has
 * @session: the peer's present one, whose other end has proved itself
 * @auth: where to; zeroed but for what is said otherwise
 *
 * Waits until nothing is left of the session before.
 *
 * Return: 0; -ETIMEDOUT: that takes too long.
 */
int tow_tie_ask(struct tow_session *session, struct tow_wire_auth *auth)
{
	struct tow_peers *peers = session->dev->peers;
	struct tow_tie *tie;

	mutex_lock(&peers->lock);
	tie = session->peer->tie;
	if (tie)
		tow_tie_get(tie);
	mutex_unlock(&peers->lock);
	if (!tie)
		return 0;
	session->asked = tie;
	if (!tow_tie_wait_idle(tie))
		return -ETIMEDOUT;
	/* Without its name the other end does without it, too. */
	if (tie->qps != session->qps || READ_ONCE(tie->giving_up))
		return 0;
	memcpy(auth->tie, tie->name, sizeof(auth->tie));
	auth->dealt = cpu_to_le64(READ_ONCE(tie->log.dealt));
	return 0;
}

/* The peer's tie, if that is what the initiator means; others end. */
static struct tow_tie *tow_tie_meant(struct tow_session *session,
				     const u8 *name)
{
	struct tow_peers *peers = session->dev->peers;
	struct tow_tie *tie;

	/* One that does not last has no name there. */
	if (session->loopback)
		return NULL;
	mutex_lock(&peers->lock);
	tie = session->peer->tie;
	if (tie && (memcmp(tie->name, name, sizeof(tie->name)) ||
		    tie->qps != session->qps)) {
		tow_tie_get(tie);
		tow_tie_give_up(tie, -ESTALE, false);
		tow_tie_put(tie);
		tie = NULL;
	}
	if (tie)
		tow_tie_get(tie);
	mutex_unlock(&peers->lock);
	return tie;
}

/**
 * tow_tie_asked - the responder hears which tie the initiator has
 * @session: the responder's: the peer's present one
 * @auth: what it says
 * @authed: where to: the answer
 *
 * Waits until nothing is left of the session before.
 *
 * Return: 0: @session carries a tie; -EPROTO: it must not say that; -EAGAIN:
 * something is left; -ENOMEM; the session's error if it is ENDING.
 */
int tow_tie_asked(struct tow_session *session, const struct tow_wire_auth *auth,
		  struct tow_wire_authed *authed)
{
	struct tow_tie *tie;
	int ret = 0;

	if (!tow_tie_is_named(auth->tie) && auth->dealt)
		return -EPROTO;
	memset(authed, 0, sizeof(*authed));
	tie = tow_tie_meant(session, auth->tie);
	if (tie) {
		tow_tie_wait_idle(tie);
		ret = tow_tie_claim(tie);
	}
	if (tie && !ret) {
		memcpy(authed->tie, tie->name, sizeof(authed->tie));
		authed->dealt = cpu_to_le64(tie->log.dealt);
	}
	if (ret != -EAGAIN)
		ret = tow_tie_begin(session, ret ? NULL : tie,
				    le64_to_cpu(auth->dealt));
	if (tie)
		tow_tie_put(tie);
	return ret;
}

/**
 * tow_tie_answered - the initiator hears which tie goes on
 * @session: the initiator's, after tow_tie_ask()
 * @authed: what the responder says
 *
 * Return: 0: @session carries a tie; -EPROTO: it must not say that; -ECONNRESET: we
 * have given up waiting meanwhile, and without that tie it can be tried again;
 * -ENOMEM; the session's error if it is ENDING.
 */
int tow_tie_answered(struct tow_session *session,
		     const struct tow_wire_authed *authed)
{
	struct tow_peers *peers = session->dev->peers;
	bool named = tow_tie_is_named(authed->tie);
	struct tow_tie *tie = session->asked;
	int ret;

	if (!named && authed->dealt)
		return -EPROTO;
	if (named && (!tie || tie->qps != session->qps ||
		      memcmp(tie->name, authed->tie, sizeof(tie->name))))
		return -EPROTO;
	if (named) {
		ret = tow_tie_claim(tie);
		if (ret)
			return -ECONNRESET;
	} else if (tie) {
		mutex_lock(&peers->lock);
		tow_tie_give_up(tie, -ESTALE, false);
		mutex_unlock(&peers->lock);
	}
	return tow_tie_begin(session, named ? tie : NULL,
			     le64_to_cpu(authed->dealt));
}
