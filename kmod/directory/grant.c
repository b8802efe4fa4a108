// SPDX-License-Identifier: GPL-2.0
/*
 * What peers have of ours: grants are given and revoked, and exports end.
 *
 * A grant is given with the answer to a request (serve.c).  It holds the export, and that
 * its region: no memory goes to anybody else before all its grants have ended.
 * A grant ends when the peer says that it has let go of it, or when the queue pairs by
 * which the peer reaches us are destroyed.
 *
 * Two-phase revoke, the owner's side
 *
 * When an export ends each peer that has a grant is told to let go of it, and has
 * revoke_timeout_ms for that; a peer that takes longer loses its queue pairs.  While no
 * session carries the association the peer reaches nothing: the grant ends at once,
 * and the peer is told when there is a session.  An association's grants that are
 * being revoked are in the order in which that began: the timer waits for the
 * oldest, as long as there is one.
 *
 * "Both locks" are tow_directory.lock and the tow_assoc_dir.lock of the grant's
 * association.
 */
#include <linux/jiffies.h>
#include <linux/kernel.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#include "assoc.h"
#include "core/core.h"
#include "core/trace.h"
#include "export.h"
#include "memory/memory.h"
#include "peer.h"
#include "slot.h"

/* Of one association: what the peer may have. */
#define TOW_GRANTS_MAX		SZ_1M

/* ---- grants --------------------------------------------------------------- */

/* Caller holds both locks.  Return: enum tow_wire_status: may the peer have it? */
static u32 tow_grant_allowed(struct tow_assoc *assoc,
			     struct tow_exported *exported, u32 rights)
{
	if (rights & ~exported->rights)
		return TOW_WIRE_FORBIDDEN;
	if (exported->slot && exported->grant_count)
		return TOW_WIRE_TAKEN;
	if (assoc->dir.grant_count >= TOW_GRANTS_MAX ||
	    (exported->slot && !tow_credit_open(assoc)))
		return TOW_WIRE_TOO_MANY;
	return TOW_WIRE_OK;
}

/**
 * tow_grant_new - give a peer an export
 * @assoc: the peer's, not lost; caller holds both locks
 * @exported: the export, which has a name
 * @rights: bits of enum tow_right: what the peer wants
 * @id: where to: what the association calls the grant, if there is one
 *
 * Return: enum tow_wire_status: TOW_WIRE_OK: there is.
 */
u32 tow_grant_new(struct tow_assoc *assoc, struct tow_exported *exported, u32 rights,
		  u64 *id)
{
	struct tow_assoc_dir *sdir = &assoc->dir;
	u32 status = tow_grant_allowed(assoc, exported, rights);
	struct tow_grant *grant;

	if (status)
		return status;
	grant = kzalloc(sizeof(*grant), GFP_KERNEL);
	if (!grant)
		return TOW_WIRE_NO_MEMORY;
	grant->id = sdir->last_grant + 1;
	if (xa_err(xa_store(&sdir->grants, grant->id, grant, GFP_KERNEL))) {
		kfree(grant);
		return TOW_WIRE_NO_MEMORY;
	}
	sdir->last_grant++;
	sdir->grant_count++;
	grant->rights = rights;
	grant->assoc = assoc;
	INIT_LIST_HEAD(&grant->link);
	kref_get(&exported->refs);
	grant->exported = exported;
	list_add_tail(&grant->of_export, &exported->grants);
	exported->grant_count++;
	if (exported->slot)
		tow_slot_give(exported->slot, assoc->index);
	atomic_inc(&assoc->users);
	tow_stat_inc(assoc->dev, TOW_STAT_GRANTS);
	*id = grant->id;
	return TOW_WIRE_OK;
}

/* Caller holds both locks; the peer does not reach the export any more. */
static void tow_grant_released(struct tow_grant *grant)
{
	struct tow_exported *exported = grant->exported;
	struct tow_assoc *assoc = grant->assoc;

	if (exported->slot && assoc->dir.lost)
		tow_slot_lost(exported->slot);
	else if (exported->slot)
		tow_slot_give(exported->slot, 0);
	xa_erase(&assoc->dir.grants, grant->id);
	assoc->dir.grant_count--;
	list_del(&grant->link);
	list_del(&grant->of_export);
	exported->grant_count--;
	atomic_dec(&assoc->users);
	tow_stat_dec(assoc->dev, TOW_STAT_GRANTS);
	if (tow_exported_is_dead(exported))
		tow_directory_queue(assoc->dev->directory);
	/* Not the last reference: tow_directory.by_id has one until it is finished. */
	tow_exported_put(exported);
}

/**
 * tow_grant_end - a grant ends
 * @grant: the grant; caller holds both locks, and the peer has let go of it, or its
 *	queue pairs are destroyed.  Freed
 */
void tow_grant_end(struct tow_grant *grant)
{
	tow_grant_released(grant);
	kfree(grant);
}

/*
 * Caller holds both locks; no session carries the grant's association.  A revoked
 * grant ends, and is kept for the peer to be told when there is a session.
 */
static void tow_grant_end_apart(struct tow_grant *grant)
{
	struct tow_assoc_dir *sdir = &grant->assoc->dir;

	tow_grant_released(grant);
	list_add_tail(&grant->link, &sdir->bygone);
}

/* ---- two-phase revoke ----------------------------------------------------- */

/* Caller holds the association's lock.  Return: NULL: none is being revoked. */
static struct tow_grant *tow_revoke_oldest(struct tow_assoc_dir *sdir)
{
	struct list_head *list = list_empty(&sdir->revoked) ? &sdir->revokes :
							      &sdir->revoked;

	return list_first_entry_or_null(list, struct tow_grant, link);
}

/* When the peer must have let go, in jiffies: as revoke_timeout_ms is now. */
static unsigned long tow_revoke_deadline(const struct tow_grant *grant)
{
	const struct tow_conn_settings *settings =
		&grant->assoc->dev->peers->settings;

	return grant->revoked_at +
	       msecs_to_jiffies(READ_ONCE(settings->revoke_timeout_ms));
}

/* Caller holds the association's lock: the timer is set to the oldest one's deadline. */
static void tow_revoke_arm(struct tow_assoc *assoc)
{
	struct tow_grant *oldest = tow_revoke_oldest(&assoc->dir);
	unsigned long deadline, now = jiffies;

	if (!oldest)
		return;
	deadline = tow_revoke_deadline(oldest);
	tow_assoc_get(assoc);
	/* Not the last reference: the caller's association is there. */
	if (mod_delayed_work(tow_wq, &assoc->dir.revoke_timer,
			     time_after(deadline, now) ? deadline - now : 0))
		tow_assoc_put(assoc);
}

/* Caller holds the directory's lock; the grant's export ends.  The grant may, too. */
static void tow_grant_revoke(struct tow_grant *grant)
{
	struct tow_assoc *assoc = grant->assoc;
	struct tow_assoc_dir *sdir = &assoc->dir;
	bool watched;

	mutex_lock(&sdir->lock);
	/* If the association is lost tow_grant_assoc_gone() ends it soon. */
	if (!sdir->lost && sdir->apart) {
		tow_grant_end_apart(grant);
	} else if (!sdir->lost) {
		watched = tow_revoke_oldest(sdir);
		grant->revoked_at = jiffies;
		list_add_tail(&grant->link, &sdir->revokes);
		if (!watched)
			tow_revoke_arm(assoc);
		tow_directory_want_kick(assoc);
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
	struct tow_assoc *assoc;
	u64 cursor = 0;

	while ((session = tow_peer_session_next(dev, &cursor))) {
		/* Pairs with tow_assoc_carry(). */
		assoc = smp_load_acquire(&session->assoc);
		if (assoc) {
			mutex_lock(&assoc->dir.lock);
			if (!assoc->dir.lost)
				tow_revoke_arm(assoc);
			mutex_unlock(&assoc->dir.lock);
		}
		tow_session_put(session);
	}
}

static void tow_revoke_say_late(struct tow_assoc *assoc, u64 exported,
				u64 grant)
{
	char why[64];

	snprintf(why, sizeof(why), "revoke of export %llu not acknowledged",
		 exported);
	tow_stat_inc(assoc->dev, TOW_STAT_REVOKES_LATE);
	tow_assoc_note(assoc, "revoke: late", grant, -ETIMEDOUT);
	tow_peer_dump(assoc->peer, why);
}

/* The timer: the oldest one's deadline has come, or revoke_timeout_ms has changed. */
static void tow_revoke_time(struct work_struct *work)
{
	struct tow_assoc *assoc =
		container_of(to_delayed_work(work), struct tow_assoc,
			     dir.revoke_timer);
	struct tow_assoc_dir *sdir = &assoc->dir;
	u64 exported = 0, id = 0;
	struct tow_grant *grant;

	mutex_lock(&sdir->lock);
	grant = sdir->lost ? NULL : tow_revoke_oldest(sdir);
	if (grant && time_before(jiffies, tow_revoke_deadline(grant))) {
		tow_revoke_arm(assoc);
	} else if (grant) {
		exported = grant->exported->id;
		id = grant->id;
	}
	mutex_unlock(&sdir->lock);
	if (id) {
		tow_revoke_say_late(assoc, exported, id);
		tow_assoc_fail(assoc, -ETIMEDOUT, TOW_WIRE_REVOKE_LATE,
			       "a revoke was not acknowledged in time");
	}
	tow_assoc_put(assoc);
}

/**
 * tow_revoke_fill - tell a resolver what to let go of
 * @assoc: its association; caller holds its lock, and there are grants to be
 *	revoked, or that ended apart
 * @type: where to
 * @number: where to: of the request
 * @body: where to, TOW_WIRE_BODY_BYTES
 *
 * Return: the body's size.
 */
size_t tow_revoke_fill(struct tow_assoc *assoc, u8 *type, u32 *number,
		       struct tow_wire_grants *body)
{
	struct tow_assoc_dir *sdir = &assoc->dir;
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
	tow_assoc_note(assoc, "revoke: sent",
		       le64_to_cpu(body->grants[0]), 0);
	body->count = cpu_to_le32(count);
	body->reserved = 0;
	*type = TOW_WIRE_REVOKE;
	*number = 0;
	return struct_size(body, grants, count);
}

/**
 * tow_revoke_assoc_init - nothing is being revoked
 * @assoc: new
 */
void tow_revoke_assoc_init(struct tow_assoc *assoc)
{
	struct tow_assoc_dir *sdir = &assoc->dir;

	INIT_LIST_HEAD(&sdir->revokes);
	INIT_LIST_HEAD(&sdir->revoked);
	INIT_LIST_HEAD(&sdir->bygone);
	INIT_DELAYED_WORK(&sdir->revoke_timer, tow_revoke_time);
}

/* No session carries the association, and no grant of it is being revoked. */
static void tow_revoke_assoc_gone(struct tow_assoc *assoc)
{
	if (cancel_delayed_work_sync(&assoc->dir.revoke_timer))
		tow_assoc_put(assoc);
}

/* ---- an export ends ------------------------------------------------------- */

/**
 * tow_exported_end - begin to end an export
 * @exported: the export; caller has a reference; it may have ended before
 *
 * Does not wait.  What its grants' peers are to be told is sent by
 * tow_directory_kick().
 *
 * Return: true: it has no grants, and the caller must have it finished: by
 * tow_exported_claim() or tow_directory_queue().
 */
bool tow_exported_end(struct tow_exported *exported)
{
	struct tow_directory *dir = exported->dev->directory;
	struct tow_grant *grant, *next;
	bool begins, dead = false;

	mutex_lock(&dir->lock);
	begins = !exported->ending;
	if (begins) {
		exported->ending = true;
		trace_tow_export_revoke(exported);
		tow_labels_remove(&dir->exports, &exported->label);
		/* No grant comes any more; some may end here. */
		list_for_each_entry_safe(grant, next, &exported->grants,
					 of_export) {
			tow_grant_revoke(grant);
			cond_resched();
		}
		dead = tow_exported_is_dead(exported);
	}
	mutex_unlock(&dir->lock);
	/* Without the lock, as it may take long: many may wait. */
	if (begins && exported->slot)
		tow_slot_close(exported->slot);
	return dead;
}

/**
 * tow_exported_stop - end all exports
 * @dir: the directory, stopping; the device has no users, and no sessions
 *
 * There are no grants, so this waits only for the work item, and for clients that end
 * at this moment.
 */
void tow_exported_stop(struct tow_directory *dir)
{
	struct tow_exported *exported;
	u64 cursor = 0;

	while ((exported = tow_exported_next(dir, &cursor))) {
		tow_exported_end(exported);
		if (tow_exported_claim(exported))
			tow_exported_finish(exported);
		wait_for_completion(&exported->ended);
		tow_exported_put(exported);
		cond_resched();
	}
}

/* The next one of a region that is not finished, with a reference for the caller. */
static struct tow_exported *tow_exported_next_of(struct tow_directory *dir,
						 u64 *cursor, u64 region_id)
{
	struct tow_exported *exported;

	while ((exported = tow_exported_next(dir, cursor)) &&
	       exported->region_id != region_id) {
		tow_exported_put(exported);
		cond_resched();
	}
	return exported;
}

/**
 * tow_exported_end_region - begin to end all exports of a region
 * @dev: the device, which may be gone
 * @region_id: the region's number; it is invalid, so there will be no others
 */
void tow_exported_end_region(struct tow_device *dev, u64 region_id)
{
	struct tow_directory *dir = dev->directory;
	struct tow_exported *exported;
	u64 cursor = 0;

	/* Who publishes one at this moment has looked before, or will see it. */
	mutex_lock(&dir->lock);
	mutex_unlock(&dir->lock);
	while ((exported = tow_exported_next_of(dir, &cursor, region_id))) {
		if (tow_exported_end(exported))
			tow_directory_queue(dir);
		tow_exported_put(exported);
	}
	tow_directory_kick(dir);
}

/* ---- associations ----------------------------------------------------------------- */

/* Caller holds no lock.  Return: there are more. */
static bool tow_grant_end_some(struct tow_assoc *assoc)
{
	struct tow_directory *dir = assoc->dev->directory;
	struct tow_grant *grant;
	unsigned long id;
	int left = 64;

	mutex_lock(&dir->lock);
	mutex_lock(&assoc->dir.lock);
	xa_for_each(&assoc->dir.grants, id, grant) {
		if (!left--)
			break;
		tow_grant_end(grant);
	}
	mutex_unlock(&assoc->dir.lock);
	mutex_unlock(&dir->lock);
	return left < 0;
}

/* The same, of those that are being revoked. */
static bool tow_grant_end_revoked(struct tow_assoc *assoc)
{
	struct tow_directory *dir = assoc->dev->directory;
	struct tow_assoc_dir *sdir = &assoc->dir;
	int left = 64;

	mutex_lock(&dir->lock);
	mutex_lock(&sdir->lock);
	sdir->apart = true;
	/* The peer was told, or will be: that message is said again. */
	while (left && !list_empty(&sdir->revoked)) {
		tow_grant_end(list_first_entry(&sdir->revoked,
					       struct tow_grant, link));
		left--;
	}
	while (left && !list_empty(&sdir->revokes)) {
		tow_grant_end_apart(list_first_entry(&sdir->revokes,
						     struct tow_grant, link));
		left--;
	}
	mutex_unlock(&sdir->lock);
	mutex_unlock(&dir->lock);
	return !left;
}

/**
 * tow_grant_assoc_apart - the peer reaches nothing until there is another session
 * @assoc: the association; the queue pairs of the session that carried it are destroyed
 */
void tow_grant_assoc_apart(struct tow_assoc *assoc)
{
	while (tow_grant_end_revoked(assoc))
		cond_resched();
	tow_revoke_assoc_gone(assoc);
}

/**
 * tow_grant_assoc_carried - the peer will reach again what it has
 * @assoc: the association, of which a session has no data queue pairs so far
 */
void tow_grant_assoc_carried(struct tow_assoc *assoc)
{
	mutex_lock(&assoc->dir.lock);
	assoc->dir.apart = false;
	mutex_unlock(&assoc->dir.lock);
}

/**
 * tow_grant_assoc_gone - the peer reaches nothing any more
 * @assoc: lost, its queue pairs destroyed
 */
void tow_grant_assoc_gone(struct tow_assoc *assoc)
{
	struct tow_grant *grant, *next;

	while (tow_grant_end_some(assoc))
		cond_resched();
	tow_revoke_assoc_gone(assoc);
	mutex_lock(&assoc->dir.lock);
	list_for_each_entry_safe(grant, next, &assoc->dir.bygone, link) {
		list_del(&grant->link);
		kfree(grant);
	}
	mutex_unlock(&assoc->dir.lock);
}
