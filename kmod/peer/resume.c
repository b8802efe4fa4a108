// SPDX-License-Identifier: GPL-2.0
/*
 * Which session carries an association.
 *
 * In AUTH the initiator names its association with the peer, when nothing is
 * left of the session that carried it before.  In AUTHED the responder names
 * the same association if it has it as well: then it resumes.  Else both ends
 * give up what they have, and a new association begins: one node may have
 * restarted or given up waiting, or the last session was READY at one end only.
 */
#include <linux/slab.h>

#include "assoc.h"
#include "core/core.h"
#include "peer.h"

/* Without tow_peers.lock, which a wait_event() condition cannot take. */
static bool tow_assoc_decided(const struct tow_assoc *assoc)
{
	return READ_ONCE(assoc->idle) || READ_ONCE(assoc->giving_up);
}

static bool tow_assoc_wait_idle(struct tow_assoc *assoc)
{
	return wait_event_timeout(assoc->dev->peers->wait, tow_assoc_decided(assoc),
				  msecs_to_jiffies(TOW_ASSOC_QUIET_MS));
}

/*
 * Let a session carry an association.  Caller holds the session's @setup.
 * tow_session.assoc is set first, so it is there for users of
 * tow_assoc.session.
 */
static void tow_assoc_carry(struct tow_assoc *assoc, struct tow_session *session,
			    bool goes_on)
{
	struct tow_session *before;
	unsigned int i;

	lockdep_assert_held(&session->setup);
	for (i = 0; i < assoc->qps; i++)
		tow_link_carry(&assoc->data[i], session);
	session->data = assoc->data;
	session->syncs = goes_on;
	session->synced = !goes_on;
	tow_session_get(session);
	spin_lock_bh(&assoc->lock);
	before = assoc->session;
	/*
	 * Pairs with tow_session_used(), tow_peer_assoc(),
	 * tow_peer_describe(), tow_ops_look() and tow_revoke_watch().
	 */
	smp_store_release(&session->assoc, assoc);
	assoc->session = session;
	spin_unlock_bh(&assoc->lock);
	if (before)
		tow_session_put(before);
	tow_clients_call(assoc->dev, carried, assoc);
}

/*
 * Claim an idle association for a session.  Return: 0; -EAGAIN: it is not idle;
 * -ESTALE: it was given up.
 */
static int tow_assoc_claim(struct tow_assoc *assoc)
{
	struct tow_peers *peers = assoc->dev->peers;
	int ret = -EAGAIN;

	mutex_lock(&peers->lock);
	if (assoc->giving_up) {
		ret = -ESTALE;
	} else if (assoc->idle) {
		WRITE_ONCE(assoc->idle, false);
		ret = 0;
	}
	mutex_unlock(&peers->lock);
	return ret;
}

/* Undo tow_assoc_claim(): the association is idle again. */
static void tow_assoc_unclaim(struct tow_assoc *assoc)
{
	mutex_lock(&assoc->dev->peers->lock);
	tow_assoc_pause(assoc);
	mutex_unlock(&assoc->dev->peers->lock);
}

/*
 * Let a session carry @assoc, which is claimed; or a new association if @assoc
 * is NULL.
 * Return: 0; the session's error if it is ENDING; -ENOMEM.
 */
static int tow_assoc_begin(struct tow_session *session, struct tow_assoc *assoc)
{
	bool goes_on = assoc;
	int ret = 0;

	mutex_lock(&session->setup);
	if (!tow_session_alive(session)) {
		ret = session->error;
		if (assoc)
			tow_assoc_unclaim(assoc);
		goto out_unlock;
	}
	if (assoc)
		tow_assoc_get(assoc);
	else
		assoc = tow_assoc_new(session);
	if (IS_ERR(assoc))
		ret = PTR_ERR(assoc);
	else
		tow_assoc_carry(assoc, session, goes_on);
out_unlock:
	mutex_unlock(&session->setup);
	return ret;
}

/**
 * tow_assoc_ask - put the initiator's association into AUTH
 * @session: the initiator's session, the peer's present one
 * @auth: where to; @assoc is zeroed
 *
 * Waits until nothing is left of the last session of the association.
 *
 * Return: 0; -ETIMEDOUT: that takes too long.
 */
int tow_assoc_ask(struct tow_session *session, struct tow_wire_auth *auth)
{
	struct tow_peers *peers = session->dev->peers;
	struct tow_assoc *assoc;

	mutex_lock(&peers->lock);
	assoc = session->peer->assoc;
	if (assoc)
		tow_assoc_get(assoc);
	mutex_unlock(&peers->lock);
	if (!assoc)
		return 0;
	session->asked = assoc;
	if (!tow_assoc_wait_idle(assoc))
		return -ETIMEDOUT;
	/* Not named, so the other end gives it up as well. */
	if (assoc->qps != session->qps || READ_ONCE(assoc->giving_up))
		return 0;
	memcpy(auth->assoc, assoc->name, sizeof(auth->assoc));
	return 0;
}

/*
 * The peer's association, with a reference, if it is the one that the initiator
 * names; else NULL, and it is given up.
 */
static struct tow_assoc *tow_assoc_meant(struct tow_session *session,
					 const u8 *name)
{
	struct tow_peers *peers = session->dev->peers;
	struct tow_assoc *assoc;

	/* The associations of loopback do not last. */
	if (session->loopback)
		return NULL;
	mutex_lock(&peers->lock);
	assoc = session->peer->assoc;
	if (assoc && (memcmp(assoc->name, name, sizeof(assoc->name)) ||
		      assoc->qps != session->qps)) {
		tow_assoc_get(assoc);
		tow_assoc_give_up(assoc, -ESTALE, false);
		tow_assoc_put(assoc);
		assoc = NULL;
	}
	if (assoc)
		tow_assoc_get(assoc);
	mutex_unlock(&peers->lock);
	return assoc;
}

/**
 * tow_assoc_asked - handle the association in AUTH, and let the session carry
 *	one
 * @session: the responder's session, the peer's present one
 * @auth: the initiator's AUTH
 * @authed: where to: the answer
 *
 * Waits until nothing is left of the last session of the association.
 *
 * Return: 0: @session carries an association; -EAGAIN: the last session is not
 * gone; -ENOMEM; the session's error if it is ENDING.
 */
int tow_assoc_asked(struct tow_session *session, const struct tow_wire_auth *auth,
		    struct tow_wire_authed *authed)
{
	struct tow_assoc *assoc;
	int ret = 0;

	memset(authed, 0, sizeof(*authed));
	assoc = tow_assoc_meant(session, auth->assoc);
	if (assoc) {
		tow_assoc_wait_idle(assoc);
		ret = tow_assoc_claim(assoc);
	}
	if (assoc && !ret)
		memcpy(authed->assoc, assoc->name, sizeof(authed->assoc));
	if (ret != -EAGAIN)
		ret = tow_assoc_begin(session, ret ? NULL : assoc);
	if (assoc)
		tow_assoc_put(assoc);
	return ret;
}

/**
 * tow_assoc_answered - handle the association in AUTHED, and let the session
 *	carry one
 * @session: the initiator's session, after tow_assoc_ask()
 * @authed: the responder's AUTHED
 *
 * Return: 0: @session carries an association; -EPROTO: @authed is invalid;
 * -ECONNRESET: the association was given up meanwhile, and another try may
 * begin a new one; -ENOMEM; the session's error if it is ENDING.
 */
int tow_assoc_answered(struct tow_session *session,
		       const struct tow_wire_authed *authed)
{
	struct tow_peers *peers = session->dev->peers;
	bool named = memchr_inv(authed->assoc, 0, sizeof(authed->assoc));
	struct tow_assoc *assoc = session->asked;
	int ret;

	if (named && (!assoc || assoc->qps != session->qps ||
		      memcmp(assoc->name, authed->assoc, sizeof(assoc->name))))
		return -EPROTO;
	if (named) {
		ret = tow_assoc_claim(assoc);
		if (ret)
			return -ECONNRESET;
	} else if (assoc) {
		mutex_lock(&peers->lock);
		tow_assoc_give_up(assoc, -ESTALE, false);
		mutex_unlock(&peers->lock);
	}
	return tow_assoc_begin(session, named ? assoc : NULL);
}
