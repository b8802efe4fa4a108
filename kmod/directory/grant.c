// SPDX-License-Identifier: GPL-2.0
/*
 * Grants: given and revoked; and the end of exports.
 *
 * A grant is given with the answer to a request (serve.c).  It holds the export,
 * which holds its region: no memory goes to anybody else before all its grants
 * have ended.  A grant ends when the peer acknowledges its revoke or releases
 * it, or when the queue pairs by which the peer reaches us are destroyed.
 *
 * Two-phase revoke, the owner's side
 *
 * When an export ends each peer that has a grant is sent a REVOKE, and has
 * revoke_timeout_ms to acknowledge it; else the session fails, and its queue
 * pairs are destroyed.  While no session carries the association the peer
 * reaches nothing: the grant ends at once, and the REVOKE is sent by each session
 * until the peer has handled it.  An association's revoked grants are in the
 * order of their revokes: the timer waits for the oldest one's deadline.
 *
 * Lost answers
 *
 * Grants are numbered in the order in which answers with them are sent.  When
 * another session carries the association the peer says of which grant it was
 * told last: those after it end, and the peer asks anew.
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

/* Grants of one association, at most.  A tenant has no more than are left. */
#define TOW_GRANTS_MAX		SZ_1M

/* ---- grants --------------------------------------------------------------- */

/**
 * tow_grant_new - make a grant, for tow_grant_give() or kfree()
 * @assoc: the peer's association
 * @rights: bits of enum tow_right: what the peer asks for
 *
 * Return: the grant; or NULL: no memory.
 */
struct tow_grant *tow_grant_new(struct tow_assoc *assoc, u32 rights)
{
	struct tow_grant *grant = kzalloc(sizeof(*grant), GFP_KERNEL);

	if (!grant)
		return NULL;
	grant->rights = rights;
	grant->assoc = assoc;
	INIT_LIST_HEAD(&grant->link);
	return grant;
}

/*
 * Caller holds both locks.  Return: TOW_WIRE_OK: a grant may be given, and the export's
 * owner is charged for it.
 */
static u32 tow_grant_charge(const struct tow_grant *grant,
			    struct tow_exported *exported)
{
	struct tow_assoc *assoc = grant->assoc;
	u32 own = assoc->dir.grants_of[tow_label_tenant(&exported->label)];

	if (grant->rights & ~TOW_RIGHT_WIDTH & ~exported->rights)
		return TOW_WIRE_FORBIDDEN;
	if (exported->slot && exported->grant_count)
		return TOW_WIRE_TAKEN;
	if (own >= TOW_GRANTS_MAX - assoc->dir.grant_count -
		   assoc->dir.ended_count)
		return TOW_WIRE_TOO_MANY;
	/* Nothing waits for memory here, and the number is known only now. */
	if (xa_reserve(&assoc->dir.grants, assoc->dir.last_grant + 1, GFP_ATOMIC))
		return TOW_WIRE_NO_MEMORY;
	/* Last, as tow_grant_released() undoes it. */
	return tow_charge_more(&exported->charge, TOW_RES_GRANTS, own) ?
	       TOW_WIRE_OK : TOW_WIRE_TOO_MANY;
}

/**
 * tow_grant_give - give a peer a grant of an export
 * @grant: from tow_grant_new(); its association is not lost; caller holds both
 *	locks
 * @exported: the export, which has a name
 *
 * Return: enum tow_wire_status: TOW_WIRE_OK: the grant is given; else the
 * caller keeps it.
 */
u32 tow_grant_give(struct tow_grant *grant, struct tow_exported *exported)
{
	struct tow_assoc *assoc = grant->assoc;
	struct tow_assoc_dir *sdir = &assoc->dir;
	u32 status = tow_grant_charge(grant, exported);

	if (status)
		return status;
	grant->id = ++sdir->last_grant;
	xa_store(&sdir->grants, grant->id, grant, 0);
	sdir->grant_count++;
	sdir->grants_of[tow_label_tenant(&exported->label)]++;
	kref_get(&exported->refs);
	grant->exported = exported;
	list_add_tail(&grant->of_export, &exported->grants);
	exported->grant_count++;
	if (exported->slot)
		tow_slot_give(exported->slot, assoc->index,
			      tow_rights_width(grant->rights));
	atomic_inc(&assoc->users);
	tow_stat_inc(assoc->dev, TOW_STAT_GRANTS);
	return TOW_WIRE_OK;
}

/* Caller holds both locks; the peer does not reach the export by the grant. */
static void tow_grant_released(struct tow_grant *grant)
{
	struct tow_exported *exported = grant->exported;
	struct tow_assoc *assoc = grant->assoc;

	if (exported->slot && assoc->dir.lost)
		tow_slot_lost(exported->slot);
	else if (exported->slot)
		tow_slot_give(exported->slot, 0, 1);
	tow_charge_less(&exported->charge, TOW_RES_GRANTS);
	/* Whoever copies has copied, or does not find the grant. */
	down_write(&assoc->dir.reach);
	xa_erase(&assoc->dir.grants, grant->id);
	up_write(&assoc->dir.reach);
	assoc->dir.grant_count--;
	assoc->dir.grants_of[tow_label_tenant(&exported->label)]--;
	list_del(&grant->link);
	list_del(&grant->of_export);
	exported->grant_count--;
	atomic_dec(&assoc->users);
	tow_stat_dec(assoc->dev, TOW_STAT_GRANTS);
	tow_exported_check_dead(exported);
	/* Not the last reference: the export is not finished. */
	tow_exported_put(exported);
}

/**
 * tow_grant_end - end a grant
 * @grant: the grant, which is freed; caller holds both locks.  The peer has
 *	acknowledged its revoke or released it, or its queue pairs are destroyed
 */
void tow_grant_end(struct tow_grant *grant)
{
	tow_grant_released(grant);
	kfree(grant);
}

/*
 * Caller holds both locks; no session carries the grant's association; the grant
 * is revoked.  It ends, and is kept until the peer knows.
 */
static void tow_grant_end_apart(struct tow_grant *grant)
{
	tow_grant_released(grant);
	grant->exported = NULL;
	list_add_tail(&grant->link, &grant->assoc->dir.ended);
	grant->assoc->dir.ended_count++;
}

/* ---- two-phase revoke ----------------------------------------------------- */

/* Caller holds tow_assoc_dir.lock.  Return: NULL: no grant is being revoked. */
static struct tow_grant *tow_revoke_oldest(struct tow_assoc_dir *sdir)
{
	struct list_head *list = list_empty(&sdir->revoked) ? &sdir->revokes :
							      &sdir->revoked;

	return list_first_entry_or_null(list, struct tow_grant, link);
}

/* The revoke's deadline in jiffies, with the present revoke_timeout_ms. */
static unsigned long tow_revoke_deadline(const struct tow_grant *grant)
{
	const struct tow_conn_settings *settings =
		&grant->assoc->dev->peers->settings;

	return grant->revoked_at +
	       msecs_to_jiffies(READ_ONCE(settings->revoke_timeout_ms));
}

/* Caller holds tow_assoc_dir.lock.  Set the timer to the oldest deadline. */
static void tow_revoke_arm(struct tow_assoc *assoc)
{
	struct tow_grant *oldest = tow_revoke_oldest(&assoc->dir);
	unsigned long deadline, now = jiffies;

	if (!oldest)
		return;
	deadline = tow_revoke_deadline(oldest);
	tow_assoc_get(assoc);
	/* Not the last reference: the caller keeps the association. */
	if (mod_delayed_work(tow_wq, &assoc->dir.revoke_timer,
			     time_after(deadline, now) ? deadline - now : 0))
		tow_assoc_put(assoc);
}

/* Caller holds tow_directory.lock; the export is ending.  May end the grant. */
static void tow_grant_revoke(struct tow_grant *grant)
{
	struct tow_assoc *assoc = grant->assoc;
	struct tow_assoc_dir *sdir = &assoc->dir;
	bool watched;

	mutex_lock(&sdir->lock);
	/* If the association is lost tow_grant_assoc_gone() ends the grant. */
	if (!sdir->lost && sdir->apart) {
		tow_grant_end_apart(grant);
	} else if (!sdir->lost) {
		watched = tow_revoke_oldest(sdir);
		grant->revoked_at = jiffies;
		list_add_tail(&grant->link, &sdir->revokes);
		if (!watched)
			tow_revoke_arm(assoc);
		tow_assoc_kick(assoc);
	}
	mutex_unlock(&sdir->lock);
}

/**
 * tow_revoke_watch - set the timers anew
 * @dev: the device; its revoke_timeout_ms has changed
 *
 * A revoke's time goes on from when it began.
 */
void tow_revoke_watch(struct tow_device *dev)
{
	struct tow_session *session;
	struct tow_assoc *assoc;
	u64 cursor = 0;

	while ((session = tow_peer_session_next(dev, &cursor))) {
		/* Pairs with tow_assoc_carry(): the association is complete. */
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

/* The timer: the oldest revoke's deadline may have passed. */
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

/* Forget the grants that the peer knows to have ended. */
static void tow_revoke_forget(struct tow_session *session)
{
	struct tow_assoc_dir *sdir = &session->assoc->dir;
	struct tow_grant *grant;

	while ((grant = list_first_entry_or_null(&sdir->told, struct tow_grant,
						 link)) &&
	       tow_session_handled(session, grant->mark)) {
		list_del(&grant->link);
		sdir->ended_count--;
		kfree(grant);
	}
}

/**
 * tow_revoke_fill - fill in a REVOKE
 * @session: the session that sends; caller holds its @pump, and
 *	tow_assoc_dir.lock
 * @type: where to: TOW_WIRE_REVOKE; unchanged: no grant is revoked
 * @body: where to, TOW_WIRE_BODY_BYTES
 *
 * Return: size of @body.
 */
size_t tow_revoke_fill(struct tow_session *session, u8 *type,
		       struct tow_wire_grants *body)
{
	struct tow_assoc_dir *sdir = &session->assoc->dir;
	bool ended = !list_empty(&sdir->ended);
	struct tow_grant *grant, *next;
	u32 count = 0;

	tow_revoke_forget(session);
	list_for_each_entry_safe(grant, next,
				 ended ? &sdir->ended : &sdir->revokes, link) {
		if (count == TOW_WIRE_GRANTS_MAX)
			break;
		body->grants[count++] = cpu_to_le64(grant->id);
		list_move_tail(&grant->link, ended ? &sdir->told : &sdir->revoked);
		if (ended)
			grant->mark = tow_session_mark(session);
	}
	if (!count)
		return 0;
	/* Only the first grant: the recorder is short. */
	tow_assoc_note(session->assoc, "revoke: sent",
		       le64_to_cpu(body->grants[0]), 0);
	body->count = cpu_to_le32(count);
	body->reserved = 0;
	*type = TOW_WIRE_REVOKE;
	return struct_size(body, grants, count);
}

/**
 * tow_revoke_assoc_init - prepare an association's revokes
 * @assoc: the association, new
 */
void tow_revoke_assoc_init(struct tow_assoc *assoc)
{
	struct tow_assoc_dir *sdir = &assoc->dir;

	INIT_LIST_HEAD(&sdir->revokes);
	INIT_LIST_HEAD(&sdir->revoked);
	INIT_LIST_HEAD(&sdir->ended);
	INIT_LIST_HEAD(&sdir->told);
	INIT_DELAYED_WORK(&sdir->revoke_timer, tow_revoke_time);
}

/* Stop the timer: no grant of the association is being revoked. */
static void tow_revoke_assoc_gone(struct tow_assoc *assoc)
{
	if (cancel_delayed_work_sync(&assoc->dir.revoke_timer))
		tow_assoc_put(assoc);
}

/* ---- an export ends ------------------------------------------------------- */

/**
 * tow_exported_end - begin to end an export
 * @exported: the export, which may be ending already; caller has a reference
 *
 * Does not wait for peers.
 */
void tow_exported_end(struct tow_exported *exported)
{
	struct tow_directory *dir = exported->dev->directory;
	struct tow_grant *grant, *next;
	bool begins;

	mutex_lock(&dir->lock);
	begins = !exported->ending;
	if (begins) {
		exported->ending = true;
		trace_tow_export_revoke(exported);
		tow_labels_remove(&dir->exports, &exported->label);
		/* No grant is added any more; some may end here. */
		list_for_each_entry_safe(grant, next, &exported->grants,
					 of_export) {
			tow_grant_revoke(grant);
			cond_resched();
		}
		tow_exported_check_dead(exported);
	}
	mutex_unlock(&dir->lock);
	/* Without the lock: ending many waits takes long. */
	if (begins && exported->slot)
		tow_slot_close(exported->slot);
}

/**
 * tow_exported_stop - end all exports
 * @dir: the directory, stopping; the device has no users, and no sessions
 *
 * There are no grants, so this waits only for the work item, and for clients
 * that are ending their exports.
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

/* The region's next export that is not finished, with a reference; or NULL. */
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
 * @region_id: the region's number; tow_region_invalid() is true, so no more
 *	exports of the region are published
 */
void tow_exported_end_region(struct tow_device *dev, u64 region_id)
{
	struct tow_directory *dir = dev->directory;
	struct tow_exported *exported;
	u64 cursor = 0;

	/*
	 * Pairs with tow_exported_may_be(): an export that was found valid is
	 * published now, and found below; later ones are found invalid.
	 */
	mutex_lock(&dir->lock);
	mutex_unlock(&dir->lock);
	while ((exported = tow_exported_next_of(dir, &cursor, region_id))) {
		tow_exported_end(exported);
		tow_exported_put(exported);
	}
}

/* ---- associations ----------------------------------------------------------------- */

/*
 * End some grants, from number @first on.  Caller holds no lock.  Return: there
 * are more.
 */
static bool tow_grant_end_some(struct tow_assoc *assoc, u64 first)
{
	struct tow_directory *dir = assoc->dev->directory;
	struct tow_grant *grant;
	unsigned long id;
	int left = 64;

	mutex_lock(&dir->lock);
	mutex_lock(&assoc->dir.lock);
	xa_for_each_start(&assoc->dir.grants, id, grant, first) {
		if (!left--)
			break;
		tow_grant_end(grant);
	}
	mutex_unlock(&assoc->dir.lock);
	mutex_unlock(&dir->lock);
	return left < 0;
}

/* As tow_grant_end_some(), of grants that are being revoked. */
static bool tow_grant_end_revoked(struct tow_assoc *assoc)
{
	struct tow_directory *dir = assoc->dev->directory;
	struct tow_assoc_dir *sdir = &assoc->dir;
	struct tow_grant *grant;
	int left = 64;

	mutex_lock(&dir->lock);
	mutex_lock(&sdir->lock);
	for (; left && (grant = tow_revoke_oldest(sdir)); left--)
		tow_grant_end_apart(grant);
	mutex_unlock(&sdir->lock);
	mutex_unlock(&dir->lock);
	return !left;
}

/**
 * tow_grant_assoc_apart - end revoked grants: the peer reaches nothing for now
 * @assoc: the association, which is apart; the queue pairs of the session that
 *	carried it are destroyed
 */
void tow_grant_assoc_apart(struct tow_assoc *assoc)
{
	while (tow_grant_end_revoked(assoc))
		cond_resched();
	tow_revoke_assoc_gone(assoc);
}

/**
 * tow_grant_assoc_carried - another session carries an association
 * @assoc: the association; the session has no data queue pairs yet
 */
void tow_grant_assoc_carried(struct tow_assoc *assoc)
{
	mutex_lock(&assoc->dir.lock);
	assoc->dir.apart = false;
	mutex_unlock(&assoc->dir.lock);
}

/**
 * tow_grant_assoc_heard - end the grants that a peer was not told of
 * @assoc: the association; the peer has not asked for anything since another
 *	session carries it
 * @last: the last grant that it was told of
 *
 * Return: 0; -EPROTO: there is no such grant.
 */
int tow_grant_assoc_heard(struct tow_assoc *assoc, u64 last)
{
	if (last > READ_ONCE(assoc->dir.last_grant))
		return -EPROTO;
	while (tow_grant_end_some(assoc, last + 1))
		cond_resched();
	return 0;
}

/**
 * tow_grant_assoc_gone - end all grants: the peer reaches nothing any more
 * @assoc: the association, lost; its queue pairs are destroyed
 */
void tow_grant_assoc_gone(struct tow_assoc *assoc)
{
	struct tow_grant *grant, *next;

	while (tow_grant_end_some(assoc, 0))
		cond_resched();
	tow_revoke_assoc_gone(assoc);
	mutex_lock(&assoc->dir.lock);
	list_splice_init(&assoc->dir.told, &assoc->dir.ended);
	list_for_each_entry_safe(grant, next, &assoc->dir.ended, link)
		kfree(grant);
	INIT_LIST_HEAD(&assoc->dir.ended);
	mutex_unlock(&assoc->dir.lock);
}
