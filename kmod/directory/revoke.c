// SPDX-License-Identifier: GPL-2.0
/*
 * Two-phase revoke, the owner's side: a peer is told to let go of a grant, and has
 * so long for it.  The grant ends when it says that it has (grant.c), or with its
 * queue pairs; who takes too long loses those.
 *
 * A tie's grants that are being revoked are in the order in which that began:
 * the timer waits for the oldest, as long as there is one.
 */
#include <linux/jiffies.h>
#include <linux/kernel.h>
#include <linux/slab.h>

#include "device.h"
#include "export.h"
#include "tie.h"

/* Called with the tie's lock held. */
static struct tow_grant *tow_revoke_oldest(struct tow_tie_dir *sdir)
{
	struct list_head *list = list_empty(&sdir->revoked) ? &sdir->revokes :
							      &sdir->revoked;

	return list_first_entry_or_null(list, struct tow_grant, link);
}

/* When a peer must have let go of a grant, in jiffies, as things stand now. */
static unsigned long tow_revoke_deadline(const struct tow_grant *grant)
{
	const struct tow_peer_settings *settings =
		&grant->tie->dev->peers.settings;

	return grant->revoked_at +
	       msecs_to_jiffies(READ_ONCE(settings->revoke_timeout_ms));
}

/* Called with the tie's lock held. */
static void tow_revoke_arm(struct tow_tie *tie)
{
	struct tow_grant *oldest = tow_revoke_oldest(&tie->dir);
	unsigned long deadline, now = jiffies;

	if (!oldest)
		return;
	deadline = tow_revoke_deadline(oldest);
	tow_tie_get(tie);
	/* Not the last reference: the grant's tie is there. */
	if (mod_delayed_work(tow_wq, &tie->dir.revoke_timer,
			     time_after(deadline, now) ? deadline - now : 0))
		tow_tie_put(tie);
}

/**
 * tow_grant_revoke - tell a peer to let go
 * @grant: the grant, of an export that ends; the caller has the directory's lock
 */
void tow_grant_revoke(struct tow_grant *grant)
{
	struct tow_tie *tie = grant->tie;
	struct tow_tie_dir *sdir = &tie->dir;
	bool watched;

	mutex_lock(&sdir->lock);
	/* What is lost needs no telling: its end is near. */
	if (!sdir->lost && sdir->apart) {
		tow_grant_end_apart(grant);
	} else if (!sdir->lost) {
		watched = tow_revoke_oldest(sdir);
		grant->revoked_at = jiffies;
		list_add_tail(&grant->link, &sdir->revokes);
		if (!watched)
			tow_revoke_arm(tie);
		tow_directory_want_kick(tie);
	}
	mutex_unlock(&sdir->lock);
}

/**
 * tow_revoke_watch - peers have more time to let go, or less
 * @dev: the device, whose revoke_timeout_ms is another now
 *
 * What is being revoked already had its time begin when it was.
 */
void tow_revoke_watch(struct tow_device *dev)
{
	struct tow_session *session;
	struct tow_tie *tie;
	u64 cursor = 0;

	while ((session = tow_peer_session_next(dev, &cursor))) {
		/* Pairs with tow_tie_carry(). */
		tie = smp_load_acquire(&session->tie);
		if (tie) {
			mutex_lock(&tie->dir.lock);
			if (!tie->dir.lost)
				tow_revoke_arm(tie);
			mutex_unlock(&tie->dir.lock);
		}
		tow_session_put(session);
	}
}

static void tow_revoke_say_late(struct tow_tie *tie, u64 exported,
				u64 grant)
{
	char why[64];

	snprintf(why, sizeof(why), "revoke of export %llu not acknowledged",
		 exported);
	tow_stat_inc(tie->dev, TOW_STAT_REVOKES_LATE);
	tow_tie_note(tie, "revoke: late", grant, -ETIMEDOUT);
	tow_peer_dump(tie->peer, why);
}

/* Something should have been let go of by now, or soon. */
static void tow_revoke_time(struct work_struct *work)
{
	struct tow_tie *tie =
		container_of(to_delayed_work(work), struct tow_tie,
			     dir.revoke_timer);
	struct tow_tie_dir *sdir = &tie->dir;
	u64 exported = 0, id = 0;
	struct tow_grant *grant;

	mutex_lock(&sdir->lock);
	grant = sdir->lost ? NULL : tow_revoke_oldest(sdir);
	if (grant && time_before(jiffies, tow_revoke_deadline(grant))) {
		tow_revoke_arm(tie);
	} else if (grant) {
		exported = grant->exported->id;
		id = grant->id;
	}
	mutex_unlock(&sdir->lock);
	if (id) {
		tow_revoke_say_late(tie, exported, id);
		tow_tie_fail(tie, -ETIMEDOUT, TOW_WIRE_REVOKE_LATE,
			     "a revoke was not acknowledged in time");
	}
	tow_tie_put(tie);
}

/**
 * tow_revoke_fill - tell a resolver what to let go of
 * @tie: its tie, of which grants are to be revoked; the caller has the
 *	lock of what the directory keeps of it
 * @type: where to
 * @number: where to: of the request
 * @body: where to, TOW_WIRE_BODY_BYTES
 *
 * Return: the body's size.
 */
size_t tow_revoke_fill(struct tow_tie *tie, u8 *type, u32 *number,
		       struct tow_wire_grants *body)
{
	struct tow_tie_dir *sdir = &tie->dir;
	struct tow_grant *grant, *next;
	u32 count = 0;

	list_for_each_entry_safe(grant, next, &sdir->bygone, link) {
		if (count == TOW_WIRE_GRANTS_MAX)
			break;
		body->grants[count++] = cpu_to_le64(grant->id);
		list_del(&grant->link);
		kfree(grant);
	}
	list_for_each_entry_safe(grant, next, &sdir->revokes, link) {
		if (count == TOW_WIRE_GRANTS_MAX)
			break;
		body->grants[count++] = cpu_to_le64(grant->id);
		list_move_tail(&grant->link, &sdir->revoked);
	}
	/* The first stands for all: the recorder is short. */
	tow_tie_note(tie, "revoke: sent",
		     le64_to_cpu(body->grants[0]), 0);
	body->count = cpu_to_le32(count);
	body->reserved = 0;
	*type = TOW_WIRE_REVOKE;
	*number = 0;
	return struct_size(body, grants, count);
}

/**
 * tow_revoke_tie_init - nothing is being revoked
 * @tie: new
 */
void tow_revoke_tie_init(struct tow_tie *tie)
{
	struct tow_tie_dir *sdir = &tie->dir;

	INIT_LIST_HEAD(&sdir->revokes);
	INIT_LIST_HEAD(&sdir->revoked);
	INIT_LIST_HEAD(&sdir->bygone);
	INIT_DELAYED_WORK(&sdir->revoke_timer, tow_revoke_time);
}

/**
 * tow_revoke_tie_gone - nothing is waited for any more
 * @tie: no session carries it, and its grants that were being revoked have ended
 */
void tow_revoke_tie_gone(struct tow_tie *tie)
{
	if (cancel_delayed_work_sync(&tie->dir.revoke_timer))
		tow_tie_put(tie);
}
