// SPDX-License-Identifier: GPL-2.0
/*
 * Remote ranges: see remote.h for their states, resolve.c for the messages
 * about them.
 *
 * Calls that resolve the same name in the same job with the same rights share a
 * remote range, also while the peer has not answered yet.  A remote range
 * without users is kept for the next such call, if not too many are.  A slot is
 * not shared: the peer grants it to one user.
 */
#include <linux/slab.h>

#include "assoc.h"
#include "core/core.h"
#include "remote.h"

/* Remote ranges of one association that are kept without users, at most. */
#define TOW_IDLE_MAX		64

static struct tow_assoc_dir *tow_remote_dir(struct tow_remote *remote)
{
	return &remote->assoc->dir;
}

static void tow_remote_release(struct kref *refs)
{
	struct tow_remote *remote = container_of(refs, struct tow_remote, refs);
	struct tow_assoc *assoc = remote->assoc;

	kvfree(remote->segments);
	/* tow_client_get_remote() may still see it. */
	kfree_rcu(remote, rcu);
	if (assoc)
		tow_assoc_put(assoc);
}

/**
 * tow_remote_get - take another reference
 * @remote: the remote range; caller has a reference
 */
void tow_remote_get(struct tow_remote *remote)
{
	kref_get(&remote->refs);
}

/**
 * tow_remote_get_many - take more references
 * @remote: the remote range; caller has a reference
 * @count: how many
 */
void tow_remote_get_many(struct tow_remote *remote, u32 count)
{
	refcount_add(count, &remote->refs.refcount);
}

/**
 * tow_remote_try_get - take a reference, unless the last one is gone
 * @remote: the remote range; caller is in an RCU read-side critical section
 *
 * Return: true: the caller has a reference.
 */
bool tow_remote_try_get(struct tow_remote *remote)
{
	return kref_get_unless_zero(&remote->refs);
}

/**
 * tow_remote_put - give a reference back
 * @remote: the remote range; may be gone afterwards
 *
 * May sleep.
 */
void tow_remote_put(struct tow_remote *remote)
{
	kref_put(&remote->refs, tow_remote_release);
}

/**
 * tow_remote_put_many - give references back
 * @remote: the remote range; may be gone afterwards
 * @count: how many
 *
 * May sleep.
 */
void tow_remote_put_many(struct tow_remote *remote, u32 count)
{
	if (refcount_sub_and_test(count, &remote->refs.refcount))
		tow_remote_release(&remote->refs);
}

/* While a remote range is busy it counts in tow_assoc.users. */
static void tow_remote_set_busy(struct tow_remote *remote, bool busy)
{
	if (busy && !remote->busy)
		atomic_inc(&remote->assoc->users);
	else if (!busy && remote->busy)
		atomic_dec(&remote->assoc->users);
	remote->busy = busy;
}

/* From now on no call shares the remote range. */
static void tow_remote_uncache(struct tow_remote *remote)
{
	if (remote->cached)
		tow_labels_remove(&tow_remote_dir(remote)->cache,
				  &remote->label);
	remote->cached = false;
}

/* ---- on the way to VALID -------------------------------------------------- */

/**
 * tow_remote_wake - wake the lookups that wait for the peer's answer
 * @remote: the remote range, not ASKING any more
 * @error: why it is not VALID; 0: it is
 */
void tow_remote_wake(struct tow_remote *remote, int error)
{
	struct tow_lookup *lookup;

	remote->error = error;
	hlist_for_each_entry(lookup, &remote->lookups, link)
		lookup->wake(lookup);
}

/**
 * tow_remote_make_valid - a remote range becomes VALID
 * @remote: the remote range, ASKING; all segments are known
 */
void tow_remote_make_valid(struct tow_remote *remote)
{
	remote->quiet = false;
	if (tow_remote_is_slot(remote))
		memset16(remote->notified, remote->segments[0].address,
			 ARRAY_SIZE(remote->notified));
	WRITE_ONCE(remote->state, TOW_REMOTE_VALID);
	atomic_set(&remote->inflight, 1);
	tow_remote_wake(remote, 0);
}

/* Where requests for a remote range wait: with those of its tenant. */
static struct list_head *tow_remote_asks(struct tow_remote *remote)
{
	return &tow_remote_dir(remote)->asks[tow_label_tenant(&remote->label)];
}

/**
 * tow_remote_ask - request a remote range, or more of its segments
 * @remote: the remote range, ASKING; its request was not sent, or was answered
 *
 * What was begun is before what was not: a large range does not wait again for
 * each of its messages.  The caller calls tow_assoc_kick().
 */
void tow_remote_ask(struct tow_remote *remote)
{
	if (remote->have)
		list_add(&remote->link, tow_remote_asks(remote));
	else
		list_add_tail(&remote->link, tow_remote_asks(remote));
}

/* End the remote range's request, and put the request's reference. */
static void tow_remote_drop_request(struct tow_remote *remote)
{
	xa_erase(&tow_remote_dir(remote)->requests, remote->number);
	remote->number = 0;
	if (!remote->grant && remote->state == TOW_REMOTE_ENDED)
		tow_remote_set_busy(remote, false);
	tow_remote_put(remote);
}

/* Take the remote range's request back, if it was not sent. */
static void tow_remote_unask(struct tow_remote *remote)
{
	if (remote->state != TOW_REMOTE_ASKING || list_empty(&remote->link))
		return;
	list_del_init(&remote->link);
	tow_remote_drop_request(remote);
}

/**
 * tow_remote_asked - the answer to a remote range's request was handled
 * @remote: the remote range; caller has a reference.  ASKING: it asks for more
 *	segments, by the same number
 */
void tow_remote_asked(struct tow_remote *remote)
{
	tow_remote_dir(remote)->asked--;
	if (remote->state != TOW_REMOTE_ASKING)
		tow_remote_drop_request(remote);
}

/**
 * tow_remote_granted - the peer has granted a remote range
 * @remote: the remote range, ASKING; or ENDED, if no call waits for it any more
 * @grant: the grant's number in the association, reserved in
 *	tow_assoc_dir.remotes
 *
 * Return: 0; -EPROTO: an earlier grant had this number, or a larger one.
 */
int tow_remote_granted(struct tow_remote *remote, u64 grant)
{
	struct tow_assoc_dir *sdir = tow_remote_dir(remote);

	if (grant <= sdir->last_heard)
		return -EPROTO;
	sdir->last_heard = grant;
	xa_store(&sdir->remotes, grant, remote, 0);
	tow_remote_get(remote);
	remote->grant = grant;
	sdir->remote_count++;
	tow_remote_set_busy(remote, true);
	tow_stat_inc(remote->assoc->dev, TOW_STAT_REMOTES);
	return 0;
}

/**
 * tow_remote_refuse - end a remote range that was not VALID yet
 * @remote: the remote range, ASKING; its request was answered; caller has a
 *	reference
 * @error: for the calls that wait
 */
void tow_remote_refuse(struct tow_remote *remote, int error)
{
	if (remote->grant) {
		tow_remote_end(remote, true);
	} else {
		tow_remote_uncache(remote);
		WRITE_ONCE(remote->state, TOW_REMOTE_ENDED);
		tow_remote_set_busy(remote, false);
	}
	tow_remote_wake(remote, error);
}

/* ---- on the way from VALID ------------------------------------------------ */

/**
 * tow_remote_forget - the grant of a remote range has ended
 * @remote: the remote range, ENDING; may be gone afterwards
 */
void tow_remote_forget(struct tow_remote *remote)
{
	struct tow_assoc_dir *sdir = tow_remote_dir(remote);

	list_del_init(&remote->link);
	xa_erase(&sdir->remotes, remote->grant);
	sdir->remote_count--;
	tow_stat_dec(remote->assoc->dev, TOW_STAT_REMOTES);
	remote->grant = 0;
	WRITE_ONCE(remote->state, TOW_REMOTE_ENDED);
	if (!remote->number)
		tow_remote_set_busy(remote, false);
	tow_remote_put(remote);
}

/* Acknowledge or release a remote range that has nothing in flight any more. */
static void tow_remote_drained(struct tow_remote *remote)
{
	struct tow_assoc_dir *sdir = tow_remote_dir(remote);

	remote->quiet = true;
	if (sdir->gone) {
		tow_remote_forget(remote);
		return;
	}
	/*
	 * If the connection ends soon its end releases the grant.  Only that
	 * ends WAITs for the slot at the peer, too; a release would not.
	 */
	if (sdir->lost || READ_ONCE(remote->failed) ||
	    tow_device_going(remote->assoc->dev))
		return;
	list_add_tail(&remote->link, remote->given_up ? &sdir->releases :
							&sdir->acks);
	tow_assoc_kick(remote->assoc);
}

/* Take a remote range out of tow_assoc_dir.idle, if it is there. */
static void tow_remote_unidle(struct tow_remote *remote)
{
	if (remote->state != TOW_REMOTE_VALID || remote->users ||
	    tow_remote_is_slot(remote))
		return;
	list_del_init(&remote->link);
	tow_remote_dir(remote)->idle_count--;
	tow_remote_set_busy(remote, true);
}

/**
 * tow_remote_end - no operation begins on a remote range any more
 * @remote: the remote range, with a grant; may be gone afterwards, unless the
 *	caller has a reference
 * @given_up: released by us; else revoked by the peer, or lost
 */
void tow_remote_end(struct tow_remote *remote, bool given_up)
{
	bool valid = remote->state == TOW_REMOTE_VALID;

	tow_remote_uncache(remote);
	tow_remote_unask(remote);
	tow_remote_unidle(remote);
	remote->given_up = given_up;
	WRITE_ONCE(remote->state, TOW_REMOTE_ENDING);
	/* Pairs with tow_remote_enter(): it sees the state, or we its count. */
	if (!valid || atomic_dec_and_test(&remote->inflight))
		tow_remote_drained(remote);
	else
		tow_credit_wake(remote->assoc);
}

/**
 * tow_remote_reap - acknowledge or release all drained remote ranges
 * @dir: the directory; the caller is its work item
 */
void tow_remote_reap(struct tow_directory *dir)
{
	struct llist_node *all = llist_del_all(&dir->quiet);
	struct tow_remote *remote, *next;

	llist_for_each_entry_safe(remote, next, all, quiet_node) {
		struct tow_assoc *assoc = remote->assoc;

		tow_assoc_get(assoc);
		mutex_lock(&assoc->dir.lock);
		tow_remote_drained(remote);
		mutex_unlock(&assoc->dir.lock);
		tow_assoc_put(assoc);
		cond_resched();
	}
}

/* ---- users ---------------------------------------------------------------- */

/*
 * Caller holds tow_assoc_dir.lock.  Return: a remote range for the call to
 * share, with the call as a user; or NULL.
 */
static struct tow_remote *tow_remote_find(struct tow_assoc *assoc,
					  const struct tow_label *label,
					  u32 rights, bool wait)
{
	struct tow_label *found = tow_labels_first(&assoc->dir.cache, label);
	struct tow_remote *remote;

	for (; found; found = tow_labels_next(found)) {
		remote = container_of(found, struct tow_remote, label);
		if (remote->rights != rights ||
		    (remote->state == TOW_REMOTE_ASKING && remote->wait != wait))
			continue;
		tow_remote_unidle(remote);
		remote->users++;
		tow_remote_get(remote);
		return remote;
	}
	return NULL;
}

/**
 * tow_remote_new - make a remote range for tow_remote_open()
 * @label: the export's name and job
 * @rights: bits of enum tow_right: what the program wants to do
 * @wait: the peer answers when the name is published; else at once
 *
 * Charged to the caller's cgroup, which may have to wait for the memory.
 *
 * Return: the remote range, in no association, with a reference; NULL: no memory.
 */
struct tow_remote *tow_remote_new(const struct tow_label *label, u32 rights,
				  bool wait)
{
	struct tow_remote *remote;

	remote = kzalloc(struct_size(remote, name, label->bytes),
			 GFP_KERNEL_ACCOUNT);
	if (!remote)
		return NULL;
	kref_init(&remote->refs);
	tow_label_copy(&remote->label, label, remote->name);
	remote->rights = rights;
	remote->wait = wait;
	remote->quiet = true;
	remote->users = 1;
	INIT_HLIST_HEAD(&remote->lookups);
	INIT_LIST_HEAD(&remote->link);
	return remote;
}

/* The remote range is to be in an association: with a number for its request. */
static int tow_remote_join(struct tow_remote *remote, struct tow_assoc *assoc)
{
	struct tow_assoc_dir *sdir = &assoc->dir;

	/* Memory may have to be waited for. */
	lockdep_assert_not_held(&sdir->lock);
	/*
	 * Number 0 means that there is no request.  Not charged, as it may be a work
	 * item that calls, but little: @remote is.
	 */
	if (xa_alloc_cyclic(&sdir->requests, &remote->number, NULL,
			    XA_LIMIT(1, U32_MAX), &sdir->last_request,
			    GFP_KERNEL) < 0) {
		remote->number = 0;
		return -ENOMEM;
	}
	tow_assoc_get(assoc);
	remote->assoc = assoc;
	return 0;
}

/* Undo tow_remote_join(). */
static void tow_remote_part(struct tow_remote *remote)
{
	xa_release(&tow_remote_dir(remote)->requests, remote->number);
	remote->number = 0;
	tow_assoc_put(remote->assoc);
	remote->assoc = NULL;
}

/* Caller holds tow_assoc_dir.lock.  Request a new remote range. */
static int tow_remote_begin(struct tow_remote *remote)
{
	struct tow_assoc_dir *sdir = tow_remote_dir(remote);

	if (!tow_remote_is_slot(remote)) {
		if (tow_labels_add(&sdir->cache, &remote->label))
			return -ENOMEM;
		remote->cached = true;
	}
	xa_store(&sdir->requests, remote->number, remote, 0);
	tow_remote_get(remote);
	tow_remote_ask(remote);
	tow_remote_set_busy(remote, true);
	return 0;
}

/* The error of calls that need a lost association. */
static int tow_remote_lost_error(struct tow_assoc *assoc)
{
	int error = READ_ONCE(assoc->error);

	/* The peer's last_error, not the call's error, says why it was lost. */
	return error == -ENODEV || error == -ESTALE ? error : -ECONNRESET;
}

/**
 * tow_remote_open - become a user of a remote range, and request it if need be
 * @assoc: the association; caller has a reference
 * @fresh: from tow_remote_new()
 * @lookup: woken when the peer has answered
 * @result: where to: the remote range, until tow_remote_close(): @fresh, or another
 *	one in its place
 *
 * The caller calls tow_assoc_kick().  tow_remote_look() looks whether the peer has answered.
 *
 * Return: 0; -EINVAL: a slot that is wider than @assoc allows; -ENOMEM; -ENODEV,
 * -ESTALE, -ECONNRESET: the association is lost: @fresh stays the caller's.
 */
int tow_remote_open(struct tow_assoc *assoc, struct tow_remote *fresh,
		    struct tow_lookup *lookup, struct tow_remote **result)
{
	struct tow_remote *found = NULL;
	int ret;

	if (tow_rights_width(fresh->rights) > assoc->width)
		return -EINVAL;
	ret = tow_remote_join(fresh, assoc);
	if (ret)
		return ret;
	mutex_lock(&assoc->dir.lock);
	if (assoc->dir.lost)
		ret = tow_remote_lost_error(assoc);
	else if (!tow_remote_is_slot(fresh))
		found = tow_remote_find(assoc, &fresh->label, fresh->rights,
					fresh->wait);
	if (!ret && !found)
		ret = tow_remote_begin(fresh);
	if (!ret) {
		*result = found ?: fresh;
		hlist_add_head(&lookup->link, &(*result)->lookups);
	}
	mutex_unlock(&assoc->dir.lock);
	if (ret || found)
		tow_remote_part(fresh);
	if (found)
		tow_remote_put(fresh);
	return ret;
}

/**
 * tow_remote_look - has the peer answered?
 * @remote: from tow_remote_open()
 * @lookup: the same as there; if the peer has answered it is not woken any more
 *
 * Return: 0: @remote is, or was, VALID; -EINPROGRESS: it has not; or
 * tow_remote.error.
 */
int tow_remote_look(struct tow_remote *remote, struct tow_lookup *lookup)
{
	struct tow_assoc_dir *sdir = tow_remote_dir(remote);
	int ret = -EINPROGRESS;

	mutex_lock(&sdir->lock);
	if (remote->state != TOW_REMOTE_ASKING) {
		hlist_del_init(&lookup->link);
		ret = remote->error;
	}
	mutex_unlock(&sdir->lock);
	return ret;
}

/**
 * tow_remote_unlook - a lookup is not woken by a remote range any more
 * @remote: from tow_remote_open()
 * @lookup: the same as there
 */
void tow_remote_unlook(struct tow_remote *remote, struct tow_lookup *lookup)
{
	struct tow_assoc_dir *sdir = tow_remote_dir(remote);

	mutex_lock(&sdir->lock);
	hlist_del_init(&lookup->link);
	mutex_unlock(&sdir->lock);
}

/* Caller holds tow_assoc_dir.lock; no call waits for the answer any more. */
static void tow_remote_abandon(struct tow_remote *remote)
{
	struct tow_assoc_dir *sdir = tow_remote_dir(remote);

	if (remote->grant) {
		tow_remote_end(remote, true);
		return;
	}
	tow_remote_uncache(remote);
	tow_remote_unask(remote);
	WRITE_ONCE(remote->state, TOW_REMOTE_ENDED);
	if (remote->number) {
		list_add_tail(&remote->link, &sdir->cancels);
		tow_assoc_kick(remote->assoc);
	} else {
		tow_remote_set_busy(remote, false);
	}
}

/* Caller holds tow_assoc_dir.lock; the remote range is VALID, without users. */
static void tow_remote_make_idle(struct tow_remote *remote)
{
	struct tow_assoc_dir *sdir = tow_remote_dir(remote);

	list_add_tail(&remote->link, &sdir->idle);
	tow_remote_set_busy(remote, false);
	if (++sdir->idle_count > TOW_IDLE_MAX)
		tow_remote_end(list_first_entry(&sdir->idle, struct tow_remote,
						link), true);
}

/**
 * tow_remote_close - undo tow_remote_open()
 * @remote: the remote range; may be gone afterwards
 *
 * May sleep.
 *
 * Return: 0; -ESTALE: @remote was not VALID any more.
 */
int tow_remote_close(struct tow_remote *remote)
{
	struct tow_assoc_dir *sdir = tow_remote_dir(remote);
	int ret;

	mutex_lock(&sdir->lock);
	ret = remote->state == TOW_REMOTE_VALID ? 0 : -ESTALE;
	if (!--remote->users) {
		if (remote->state == TOW_REMOTE_VALID &&
		    tow_remote_is_slot(remote))
			tow_remote_end(remote, true);
		else if (remote->state == TOW_REMOTE_VALID)
			tow_remote_make_idle(remote);
		else if (remote->state == TOW_REMOTE_ASKING)
			tow_remote_abandon(remote);
	}
	mutex_unlock(&sdir->lock);
	tow_remote_put(remote);
	return ret;
}

/* ---- associations ----------------------------------------------------------------- */

/**
 * tow_remote_assoc_init - prepare the resolver's side of an association
 * @assoc: the association, new
 */
void tow_remote_assoc_init(struct tow_assoc *assoc)
{
	struct tow_assoc_dir *sdir = &assoc->dir;
	unsigned int i;

	/* Fails only with wrong parameters, not for want of memory. */
	WARN_ON_ONCE(tow_labels_init(&sdir->cache));
	xa_init_flags(&sdir->requests, XA_FLAGS_ALLOC);
	xa_init(&sdir->remotes);
	for (i = 0; i < TOW_TENANTS; i++)
		INIT_LIST_HEAD(&sdir->asks[i]);
	INIT_LIST_HEAD(&sdir->cancels);
	INIT_LIST_HEAD(&sdir->acks);
	INIT_LIST_HEAD(&sdir->releases);
	INIT_LIST_HEAD(&sdir->released);
	INIT_LIST_HEAD(&sdir->idle);
}

/**
 * tow_remote_assoc_apart - prepare to say again what was not handled
 * @assoc: the association; no session carries it; caller holds
 *	tow_assoc_dir.lock
 *
 * The peer has forgotten all requests: those that no call waits for end here, the others
 * are sent again in their order, before those that were not sent.
 */
void tow_remote_assoc_apart(struct tow_assoc *assoc)
{
	struct tow_assoc_dir *sdir = &assoc->dir;
	struct tow_remote *remote, *next;
	unsigned long number;
	LIST_HEAD(again);

	xa_for_each(&sdir->requests, number, remote) {
		if (remote->state == TOW_REMOTE_ASKING) {
			/* Unless it was not sent. */
			if (list_empty(&remote->link))
				list_add_tail(&remote->link, &again);
		} else {
			/* It may be in tow_assoc_dir.cancels. */
			if (remote->state == TOW_REMOTE_ENDED)
				list_del_init(&remote->link);
			tow_remote_drop_request(remote);
		}
		cond_resched();
	}
	list_for_each_entry_safe_reverse(remote, next, &again, link)
		list_move(&remote->link, tow_remote_asks(remote));
	sdir->asked = 0;
	list_splice_init(&sdir->released, &sdir->releases);
}

/* End all requests: no answer will come. */
static void tow_remote_lose_requests(struct tow_assoc *assoc)
{
	struct tow_remote *remote;
	unsigned long number;

	xa_for_each(&assoc->dir.requests, number, remote) {
		list_del_init(&remote->link);
		if (remote->state == TOW_REMOTE_ASKING) {
			tow_remote_uncache(remote);
			WRITE_ONCE(remote->state, remote->grant ?
				   TOW_REMOTE_ENDING : TOW_REMOTE_ENDED);
			tow_remote_wake(remote,
					tow_remote_lost_error(assoc));
		}
		tow_remote_drop_request(remote);
		cond_resched();
	}
}

/**
 * tow_remote_assoc_lost - end an association's requests and remote ranges
 * @assoc: the association, lost; caller holds tow_assoc_dir.lock
 */
void tow_remote_assoc_lost(struct tow_assoc *assoc)
{
	struct tow_remote *remote;
	unsigned long grant;

	tow_remote_lose_requests(assoc);
	xa_for_each(&assoc->dir.remotes, grant, remote) {
		if (remote->state == TOW_REMOTE_VALID)
			tow_remote_end(remote, false);
		cond_resched();
	}
}

/**
 * tow_remote_assoc_gone - forget an association's drained remote ranges
 * @assoc: the association, gone; caller holds tow_assoc_dir.lock
 *
 * The others are forgotten when their last operation has completed.
 */
void tow_remote_assoc_gone(struct tow_assoc *assoc)
{
	struct tow_remote *remote;
	unsigned long grant;

	xa_for_each(&assoc->dir.remotes, grant, remote) {
		if (remote->quiet)
			tow_remote_forget(remote);
		cond_resched();
	}
}
