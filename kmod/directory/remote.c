// SPDX-License-Identifier: GPL-2.0
/*
 * Remote ranges: see remote.h for their states, resolve.c for what is said about
 * them.
 *
 * Whoever asks for the same name in the same job with the same rights gets the
 * same remote range, also while the peer has not answered yet.  When nobody uses
 * it any more it is kept for the next one, unless there are too many of those.  A
 * slot is one user's alone: the peer says whether it is to be had.
 */
#include <linux/slab.h>

#include "assoc.h"
#include "core/core.h"
#include "remote.h"

/* Of one association: remote ranges that are kept while nobody uses them. */
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
	/* tow_client_get_remote() may look at it. */
	kfree_rcu(remote, rcu);
	tow_assoc_put(assoc);
}

/**
 * tow_remote_get - take another reference
 * @remote: the remote range; the caller has one
 */
void tow_remote_get(struct tow_remote *remote)
{
	kref_get(&remote->refs);
}

/**
 * tow_remote_get_many - take more references
 * @remote: the remote range; the caller has one
 * @count: how many
 */
void tow_remote_get_many(struct tow_remote *remote, u32 count)
{
	refcount_add(count, &remote->refs.refcount);
}

/**
 * tow_remote_try_get - take a reference, if it is not about to go
 * @remote: the remote range; the caller is in an RCU read-side critical section
 *
 * Return: whether there is one.
 */
bool tow_remote_try_get(struct tow_remote *remote)
{
	return kref_get_unless_zero(&remote->refs);
}

/**
 * tow_remote_put - give a reference back
 * @remote: the remote range; may be gone afterwards.  May sleep
 */
void tow_remote_put(struct tow_remote *remote)
{
	kref_put(&remote->refs, tow_remote_release);
}

/**
 * tow_remote_put_many - give references back
 * @remote: the remote range; may be gone afterwards.  May sleep
 * @count: how many
 */
void tow_remote_put_many(struct tow_remote *remote, u32 count)
{
	if (refcount_sub_and_test(count, &remote->refs.refcount))
		tow_remote_release(&remote->refs);
}

/* An association with busy remote ranges is in use. */
static void tow_remote_set_busy(struct tow_remote *remote, bool busy)
{
	if (busy && !remote->busy)
		atomic_inc(&remote->assoc->users);
	else if (!busy && remote->busy)
		atomic_dec(&remote->assoc->users);
	remote->busy = busy;
}

/* Nobody else finds it from now on. */
static void tow_remote_uncache(struct tow_remote *remote)
{
	if (remote->cached)
		tow_labels_remove(&tow_remote_dir(remote)->cache,
				  &remote->label);
	remote->cached = false;
}

/* ---- on the way to VALID -------------------------------------------------- */

/**
 * tow_remote_wake - wake those who wait for the peer's answer
 * @remote: not ASKING any more
 * @error: why it is not VALID; 0: it is
 */
void tow_remote_wake(struct tow_remote *remote, int error)
{
	remote->error = error;
	complete_all(&remote->settled);
}

/**
 * tow_remote_make_valid - it can be used
 * @remote: ASKING, and all of it is known
 */
void tow_remote_make_valid(struct tow_remote *remote)
{
	remote->quiet = false;
	if (tow_remote_is_slot(remote))
		remote->notified = remote->segments[0].address;
	WRITE_ONCE(remote->state, TOW_REMOTE_VALID);
	atomic_set(&remote->inflight, 1);
	tow_remote_wake(remote, 0);
}

/**
 * tow_remote_ask - ask the peer for it, or for more of it
 * @remote: ASKING, with no request
 *
 * Return: 0 or -ENOMEM.
 */
int tow_remote_ask(struct tow_remote *remote)
{
	struct tow_assoc_dir *sdir = tow_remote_dir(remote);
	int ret;

	/* Never 0, so that no request is. */
	ret = xa_alloc_cyclic(&sdir->requests, &remote->number, remote,
			      XA_LIMIT(1, U32_MAX), &sdir->last_request,
			      GFP_KERNEL_ACCOUNT);
	if (ret < 0) {
		remote->number = 0;
		return -ENOMEM;
	}
	tow_remote_get(remote);
	list_add_tail(&remote->link, &sdir->asks);
	tow_directory_want_kick(remote->assoc);
	return 0;
}

/* The request is over; its reference goes. */
static void tow_remote_drop_request(struct tow_remote *remote)
{
	xa_erase(&tow_remote_dir(remote)->requests, remote->number);
	remote->number = 0;
	if (!remote->grant && remote->state == TOW_REMOTE_ENDED)
		tow_remote_set_busy(remote, false);
	tow_remote_put(remote);
}

/* A request that was not sent need not be. */
static void tow_remote_unask(struct tow_remote *remote)
{
	if (remote->state != TOW_REMOTE_ASKING || list_empty(&remote->link))
		return;
	list_del_init(&remote->link);
	tow_remote_drop_request(remote);
}

/**
 * tow_remote_asked - its request was answered
 * @remote: the remote range; the caller has a reference
 */
void tow_remote_asked(struct tow_remote *remote)
{
	/* It was to be cancelled: too late. */
	if (remote->state == TOW_REMOTE_ENDED)
		list_del_init(&remote->link);
	tow_remote_dir(remote)->asked--;
	tow_remote_drop_request(remote);
}

/**
 * tow_remote_granted - the peer says what it calls it
 * @remote: ASKING, or ENDED: nobody waits for it any more
 * @grant: the peer's name for it
 *
 * Return: 0; -EPROTO: that is another one's; -ENOMEM.
 */
int tow_remote_granted(struct tow_remote *remote, u64 grant)
{
	struct tow_assoc_dir *sdir = tow_remote_dir(remote);
	int ret;

	ret = xa_insert(&sdir->remotes, grant, remote, GFP_KERNEL);
	if (ret)
		return ret == -EBUSY ? -EPROTO : ret;
	tow_remote_get(remote);
	remote->grant = grant;
	sdir->remote_count++;
	tow_remote_set_busy(remote, true);
	tow_stat_inc(remote->assoc->dev, TOW_STAT_REMOTES);
	return 0;
}

/**
 * tow_remote_refuse - it will not be VALID
 * @remote: ASKING, with no request; the caller has a reference
 * @error: why
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
 * tow_remote_forget - the peer knows that we do not have it
 * @remote: ENDING; may be gone afterwards
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

/* Nothing is in flight: tell the peer, if that is all there is to say. */
static void tow_remote_drained(struct tow_remote *remote)
{
	struct tow_assoc_dir *sdir = tow_remote_dir(remote);

	remote->quiet = true;
	if (sdir->gone) {
		tow_remote_forget(remote);
		return;
	}
	/*
	 * The end of the connection says it, if that is near; and then the peer's
	 * WAITs end with it, as they do not when a slot is merely given back.
	 */
	if (sdir->lost || READ_ONCE(remote->failed) ||
	    tow_device_going(remote->assoc->dev))
		return;
	list_add_tail(&remote->link, remote->given_up ? &sdir->releases :
							&sdir->acks);
	tow_directory_want_kick(remote->assoc);
}

/* Nobody uses it, and it is kept all the same. */
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
 * tow_remote_end - nobody uses it from now on
 * @remote: known to the peer; the caller has a reference, beside that of
 *	tow_assoc_dir.remotes, if he uses it any more
 * @given_up: by us, not by the peer
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
 * tow_remote_reap - see to what has nothing in flight any more
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

/* Called with the lock held: one that will do, with the caller as a user. */
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

static struct tow_remote *tow_remote_new(struct tow_assoc *assoc,
					 const struct tow_label *label,
					 u32 rights, bool wait)
{
	struct tow_remote *remote;

	remote = kzalloc(struct_size(remote, name, label->bytes),
			 GFP_KERNEL_ACCOUNT);
	if (!remote)
		return NULL;
	kref_init(&remote->refs);
	tow_assoc_get(assoc);
	remote->assoc = assoc;
	tow_label_copy(&remote->label, label, remote->name);
	remote->rights = rights;
	remote->wait = wait;
	remote->quiet = true;
	remote->users = 1;
	init_completion(&remote->settled);
	INIT_LIST_HEAD(&remote->link);
	return remote;
}

/* Called with the lock held: a new one, for which the peer is asked. */
static int tow_remote_begin(struct tow_assoc *assoc,
			    const struct tow_label *label, u32 rights,
			    bool wait, struct tow_remote **result)
{
	struct tow_assoc_dir *sdir = &assoc->dir;
	struct tow_remote *remote = tow_remote_new(assoc, label, rights,
						   wait);
	int ret;

	if (!remote)
		return -ENOMEM;
	ret = tow_remote_is_slot(remote) ? 0 :
	      tow_labels_add(&sdir->cache, &remote->label);
	if (ret)
		goto err_put;
	remote->cached = !tow_remote_is_slot(remote);
	ret = tow_remote_ask(remote);
	if (ret)
		goto err_uncache;
	tow_remote_set_busy(remote, true);
	*result = remote;
	return 0;

err_uncache:
	tow_remote_uncache(remote);
err_put:
	tow_remote_put(remote);
	return ret;
}

/* Why nobody can ask this association any more. */
static int tow_remote_lost_error(struct tow_assoc *assoc)
{
	int error = READ_ONCE(assoc->error);

	/* Why a connection ended is the peer's last_error, not the call's. */
	return error == -ENODEV || error == -ESTALE ? error : -ECONNRESET;
}

/**
 * tow_remote_open - begin to use a remote range, asking for it if need be
 * @assoc: where; the caller has a reference
 * @label: what it is called there
 * @rights: bits of enum tow_right: what the caller will do
 * @wait: the peer is to answer when the name is there; else at once
 * @result: the remote range with a reference, until tow_remote_close(); see
 *	tow_remote_wait()
 *
 * Return: 0; -ENOMEM; the association is lost: why.
 */
int tow_remote_open(struct tow_assoc *assoc, const struct tow_label *label,
		    u32 rights, bool wait, struct tow_remote **result)
{
	struct tow_assoc_dir *sdir = &assoc->dir;
	int ret = 0;

	mutex_lock(&sdir->lock);
	*result = NULL;
	if (sdir->lost)
		ret = tow_remote_lost_error(assoc);
	else if (rights != TOW_RIGHT_NOTIFY)
		*result = tow_remote_find(assoc, label, rights, wait);
	if (!ret && !*result)
		ret = tow_remote_begin(assoc, label, rights, wait, result);
	mutex_unlock(&sdir->lock);
	tow_directory_kick(assoc->dev->directory);
	return ret;
}

/**
 * tow_remote_wait - wait until the peer has answered
 * @remote: from tow_remote_open()
 * @time: jiffies at most
 *
 * Return: 0: it is, or was, VALID; -ETIMEDOUT; -EINTR; what the peer said.
 */
int tow_remote_wait(struct tow_remote *remote, unsigned long time)
{
	long left;

	left = wait_for_completion_interruptible_timeout(&remote->settled,
							 time);
	if (left < 0)
		return -EINTR;
	return left ? remote->error : -ETIMEDOUT;
}

/* Called with the lock held: nobody waits for the answer any more. */
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
		tow_directory_want_kick(remote->assoc);
	} else {
		tow_remote_set_busy(remote, false);
	}
}

/* Called with the lock held: nobody uses it at the moment. */
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
 * @remote: the remote range; may be gone afterwards.  May sleep
 *
 * tow_directory_kick() tells the peer.
 *
 * Return: 0; -ESTALE: it was not VALID any more.
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
 * @assoc: new
 */
void tow_remote_assoc_init(struct tow_assoc *assoc)
{
	struct tow_assoc_dir *sdir = &assoc->dir;

	/* Fails with wrong parameters only; it takes what memory it needs. */
	WARN_ON_ONCE(tow_labels_init(&sdir->cache));
	xa_init_flags(&sdir->requests, XA_FLAGS_ALLOC);
	xa_init(&sdir->remotes);
	INIT_LIST_HEAD(&sdir->asks);
	INIT_LIST_HEAD(&sdir->cancels);
	INIT_LIST_HEAD(&sdir->acks);
	INIT_LIST_HEAD(&sdir->releases);
	INIT_LIST_HEAD(&sdir->idle);
}

/* What was not answered will not be. */
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
 * tow_remote_assoc_lost - what the peer has can be used no more
 * @assoc: the association; the caller has the lock of what the directory keeps of
 *	it
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
 * tow_remote_assoc_gone - there is nobody whom we could tell anything
 * @assoc: the association; the caller has the lock of what the directory keeps of
 *	it, which says that it is gone
 *
 * What has operations in flight goes with the last of them.
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

/**
 * tow_remote_assoc_cleanup - undo tow_remote_assoc_init()
 * @assoc: without references
 */
void tow_remote_assoc_cleanup(struct tow_assoc *assoc)
{
	tow_labels_cleanup(&assoc->dir.cache);
}
