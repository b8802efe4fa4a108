// SPDX-License-Identifier: GPL-2.0
/*
 * The calls about exports and remote ranges, and a client's handles of them.
 * As in memory/ioctl.c, a call whose answer cannot be copied out is undone.  A
 * call is not a user of the device while it waits for a peer.
 */
#include <linux/completion.h>
#include <linux/minmax.h>
#include <linux/slab.h>

#include "core/core.h"
#include "export.h"
#include "memory/memory.h"
#include "peer.h"
#include "remote.h"
#include "slot.h"

/* Size of the structure in the first version that had it. */
#define TOW_EXPORT_INFO_PUBLISHED	336

/* ---- handles -------------------------------------------------------------- */

/**
 * struct tow_dir_handle - a client's handle of an export or a remote range
 * @handle: in the client's table; its @ops says which one it is
 * @object: the export, with a reference; or the remote range, until
 *	tow_remote_close()
 */
struct tow_dir_handle {
	struct tow_handle	handle;
	void			*object;
};

/* Handles are freed and cast by their first field. */
static_assert(offsetof(struct tow_dir_handle, handle) == 0);

/* Does not wait for peers. */
static void tow_dir_drop_exported(struct tow_exported *exported)
{
	tow_exported_end(exported);
	tow_exported_put(exported);
}

static void tow_exported_drop_handle(struct tow_handle *base, bool destroy)
{
	tow_dir_drop_exported(((struct tow_dir_handle *)base)->object);
}

static int tow_exported_publish_handle(struct tow_handle *base)
{
	return tow_exported_publish(((struct tow_dir_handle *)base)->object);
}

static const struct tow_handle_ops tow_exported_handle_ops = {
	.publish	= tow_exported_publish_handle,
	.drop		= tow_exported_drop_handle,
};

static void tow_remote_drop_handle(struct tow_handle *base, bool destroy)
{
	tow_remote_close(((struct tow_dir_handle *)base)->object);
}

static const struct tow_handle_ops tow_remote_handle_ops = {
	.drop	= tow_remote_drop_handle,
};

static struct tow_dir_handle *
tow_dir_handle_new(const struct tow_handle_ops *ops, void *object)
{
	struct tow_dir_handle *handle = kzalloc(sizeof(*handle),
						GFP_KERNEL_ACCOUNT);

	if (handle) {
		handle->handle.ops = ops;
		handle->object = object;
	}
	return handle;
}

static struct tow_dir_handle *
tow_dir_find_handle(struct tow_client *client, u64 number,
		    const struct tow_handle_ops *ops)
{
	return (struct tow_dir_handle *)tow_client_find_handle(client, number,
							       ops);
}

/* End a handle.  Return: what it was of, as it was given to it; or NULL. */
static void *tow_dir_take(struct tow_client *client, u64 number,
			  const struct tow_handle_ops *ops)
{
	struct tow_dir_handle *handle = (struct tow_dir_handle *)
		tow_client_take_handle(client, number, ops);
	void *object;

	if (!handle)
		return NULL;
	object = handle->object;
	kfree_rcu(handle, handle.rcu);
	return object;
}

/**
 * tow_client_get_remote - the remote range behind a handle
 * @client: the client
 * @number: the handle's number
 *
 * Return: the remote range with a reference for the caller, or NULL.
 */
struct tow_remote *tow_client_get_remote(struct tow_client *client, u64 number)
{
	struct tow_remote *remote = NULL;
	struct tow_dir_handle *handle;

	rcu_read_lock();
	handle = tow_dir_find_handle(client, number, &tow_remote_handle_ops);
	if (handle && tow_remote_try_get(handle->object))
		remote = handle->object;
	rcu_read_unlock();
	return remote;
}

/**
 * tow_client_release_remote - end a handle of a remote range
 * @client: the client
 * @number: the handle's number
 *
 * Return: 0; -ENOENT: the client has no such handle; -ESTALE: the remote range was not
 * VALID any more.
 */
int tow_client_release_remote(struct tow_client *client, u64 number)
{
	struct tow_remote *remote;

	remote = tow_dir_take(client, number, &tow_remote_handle_ops);
	return remote ? tow_remote_close(remote) : -ENOENT;
}

/**
 * tow_client_get_slot - the slot behind an export's handle
 * @client: the client
 * @number: the handle's number
 *
 * May sleep.
 *
 * Return: the slot with a reference for the caller; -EBADF: the client has no
 * such export; -EACCES: the export is not of a slot.
 */
struct tow_slot *tow_client_get_slot(struct tow_client *client, u64 number)
{
	struct tow_slot *slot = ERR_PTR(-EBADF);
	struct tow_dir_handle *handle;
	struct tow_exported *exported;

	mutex_lock(&client->lock);
	handle = tow_dir_find_handle(client, number, &tow_exported_handle_ops);
	if (handle) {
		exported = handle->object;
		slot = exported->slot ?: ERR_PTR(-EACCES);
		if (!IS_ERR(slot))
			tow_slot_get(slot);
	}
	mutex_unlock(&client->lock);
	return slot;
}

/**
 * tow_directory_client_end - end a client's exports and remote ranges
 * @client: the client, ended: it gets no more handles
 *
 * Does not wait for peers.
 */
void tow_directory_client_end(struct tow_client *client)
{
	tow_client_drop_handles(client, &tow_exported_handle_ops);
	tow_client_drop_handles(client, &tow_remote_handle_ops);
}

/* ---- export, unexport ----------------------------------------------------- */

/* 0: the client may call something so.  Once it may it always may. */
static int tow_name_check(struct tow_client *client, const u8 *name, u32 bytes)
{
	struct tow_label label = { .name = name, .bytes = bytes };

	if (!tow_label_valid(&label))
		return -EINVAL;
	tow_client_job(client, label.job_id);
	return tow_client_has_job(client, label.job_id) ? 0 : -ENOKEY;
}

/* Caller is a user of the device. */
static int tow_export_allowed(struct tow_client *client, u32 rights,
			      u32 region_flags)
{
	if (region_flags & TOW_REGION_READONLY && rights != TOW_RIGHT_READ)
		return -EACCES;
	if (rights & TOW_RIGHT_ATOMIC &&
	    !tow_device_atomics(client->dev))
		return -EOPNOTSUPP;
	/* The processor may not reach a dma-buf's memory. */
	if (rights == TOW_RIGHT_NOTIFY && region_flags & TOW_REGION_DMABUF)
		return -EOPNOTSUPP;
	return 0;
}

static struct tow_exported *tow_export_make(struct tow_client *client,
					    const struct tow_export *call)
{
	struct tow_exported *exported;
	struct tow_region *region;
	u32 flags;
	int ret;

	region = tow_client_get_region(client, call->region, &flags);
	if (!region)
		return ERR_PTR(-ENOENT);
	ret = tow_export_allowed(client, call->rights, flags | region->flags);
	exported = ret ? ERR_PTR(ret) : tow_exported_new(client, region, call);
	tow_region_put(region);
	return exported;
}

/* Give an export, with its reference, to a handle, and publish it; an error ends it. */
static int tow_export_give(struct tow_client *client,
			   struct tow_exported *exported, u64 *number)
{
	struct tow_dir_handle *handle;
	int ret = -ENOMEM;

	handle = tow_dir_handle_new(&tow_exported_handle_ops, exported);
	if (handle)
		ret = tow_client_add_handle(client, &handle->handle, number);
	if (ret) {
		if (handle)
			kfree_rcu(handle, handle.rcu);
		tow_exported_hide(exported);
		tow_exported_put(exported);
	}
	return ret;
}

static int tow_export_begin(struct tow_client *client, struct tow_export *call)
{
	struct tow_exported *exported;
	int ret;

	if (!tow_device_enter(client->dev))
		return -ENODEV;
	exported = tow_export_make(client, call);
	ret = PTR_ERR_OR_ZERO(exported);
	if (!ret)
		ret = tow_export_give(client, exported, &call->handle);
	tow_device_leave(client->dev);
	return ret;
}

/* TOW_IOCTL_EXPORT */
int tow_call_export(struct tow_client *client, void *data,
		    const struct tow_answer *answer)
{
	struct tow_exported *exported;
	struct tow_export *call = data;
	int ret;

	/* Whoever finds a slot says its width. */
	if (call->flags || !tow_rights_valid(call->rights) ||
	    tow_rights_width(call->rights) > 1)
		return -EINVAL;
	ret = tow_name_check(client, call->name, call->name_bytes);
	if (!ret)
		ret = tow_export_begin(client, call);
	if (ret)
		return ret;
	ret = tow_call_answer(answer, call);
	/* NULL: another thread has guessed the number, and ended the handle. */
	exported = ret ? tow_dir_take(client, call->handle,
				      &tow_exported_handle_ops) : NULL;
	if (exported)
		tow_dir_drop_exported(exported);
	return ret;
}

/* TOW_IOCTL_UNEXPORT */
int tow_call_unexport(struct tow_client *client, void *data,
		      const struct tow_answer *answer)
{
	const struct tow_unexport *call = data;
	struct tow_exported *exported;
	int ret = 0;

	if (call->flags)
		return -EINVAL;
	if (!tow_device_enter(client->dev))
		return -ENODEV;
	exported = tow_dir_take(client, call->handle, &tow_exported_handle_ops);
	if (exported) {
		tow_exported_end(exported);
		/* Usually no peer has a grant: finish it here. */
		if (tow_exported_claim(exported))
			tow_exported_finish(exported);
	}
	tow_device_leave(client->dev);
	if (!exported)
		return -ENOENT;
	if (wait_for_completion_interruptible(&exported->ended))
		ret = -EINTR;
	tow_exported_put(exported);
	return ret;
}

/* ---- list ----------------------------------------------------------------- */

static int tow_export_list_next(struct tow_client *client, u32 flags,
				u64 *cursor, void *info)
{
	struct tow_exported *exported;
	bool shown;

	exported = tow_exported_next(client->dev->directory, cursor);
	if (!exported)
		return -ENOENT;
	shown = flags & TOW_LIST_ALL || tow_exported_is_of(exported, client);
	if (shown)
		tow_exported_describe(exported, info);
	tow_exported_put(exported);
	return shown;
}

const struct tow_listing tow_export_listing = {
	.flags			= TOW_LIST_ALL,
	.entry_published	= TOW_EXPORT_INFO_PUBLISHED,
	.entry_bytes		= sizeof(struct tow_export_info),
	.next			= tow_export_list_next,
};

/* ---- resolve, release ----------------------------------------------------- */

/**
 * tow_lookup_begin - begin a lookup for a program
 * @lookup: zeroed but for @wake
 * @client: the client
 * @call: peer, name, rights and time-out
 *
 * Memory is charged to the caller, also what the handle needs.  tow_lookup_end() ends it.
 *
 * Return: 0; -EINVAL, -ENOKEY, -ENOENT, -ENOMEM, -EPERM as TOW_IOCTL_RESOLVE: it has
 * not begun.
 */
int tow_lookup_begin(struct tow_lookup *lookup, struct tow_client *client,
		     const struct tow_resolve *call)
{
	struct tow_label label;
	struct tow_peer *peer;
	int ret;

	if (call->flags || call->reserved || !tow_rights_valid(call->rights))
		return -EINVAL;
	ret = tow_name_check(client, call->name, call->name_bytes);
	if (ret)
		return ret;
	peer = tow_peer_find(client->dev, call->peer);
	if (!peer)
		return -ENOENT;
	tow_lookup_init(lookup, client, peer, call->timeout_ms);
	tow_label_of_client(&label, client, call->name, call->name_bytes);
	lookup->fresh = tow_remote_new(&label, call->rights, call->timeout_ms);
	lookup->handle = (struct tow_handle *)
		tow_dir_handle_new(&tow_remote_handle_ops, NULL);
	ret = lookup->fresh && lookup->handle ?
	      tow_client_reserve_handle(client, lookup->handle,
					&lookup->number) : -ENOMEM;
	if (ret)
		tow_lookup_end(lookup);
	return ret;
}

/**
 * tow_lookup_give - give what a lookup has found to its client
 * @lookup: the lookup; tow_lookup_step() has answered 0
 * @call: where to: handle and bytes; the peer's number and 0 if the lookup dials
 *
 * Allocates nothing.
 *
 * Return: 0; -EPERM: the client has ended.
 */
int tow_lookup_give(struct tow_lookup *lookup, struct tow_resolve *call)
{
	int ret;

	if (lookup->dials) {
		call->handle = lookup->peer->id;
		call->bytes = 0;
		return 0;
	}
	call->handle = lookup->number;
	call->bytes = lookup->remote->bytes;
	((struct tow_dir_handle *)lookup->handle)->object = lookup->remote;
	ret = tow_client_publish_handle(lookup->client, lookup->handle,
					lookup->number);
	/* The client's, or given back. */
	lookup->number = 0;
	if (ret)
		return ret;
	lookup->remote = NULL;
	lookup->handle = NULL;
	return 0;
}

/**
 * struct tow_resolving - a call that looks for a name
 * @lookup: its lookup
 * @woken: completed when to go on
 */
struct tow_resolving {
	struct tow_lookup	lookup;
	struct completion	woken;
};

static void tow_resolve_wake(struct tow_lookup *lookup)
{
	complete(&container_of(lookup, struct tow_resolving, lookup)->woken);
}

static int tow_resolve_step(struct tow_lookup *lookup)
{
	struct tow_assoc *asked = NULL;
	int ret = tow_lookup_step(lookup, &asked);

	tow_lookup_send(&asked);
	return ret;
}

static int tow_resolve_wait(struct tow_resolving *resolving)
{
	struct tow_lookup *lookup = &resolving->lookup;
	long left = 0;
	int ret;

	while ((ret = tow_resolve_step(lookup)) == -EINPROGRESS) {
		left = max(tow_lookup_left(lookup), 0L);
		left = wait_for_completion_interruptible_timeout(&resolving->woken,
								 left);
		if (left <= 0)
			break;
	}
	/* Something may have come at the last moment. */
	if (ret == -EINPROGRESS)
		ret = tow_resolve_step(lookup);
	if (ret == -EINPROGRESS)
		ret = left < 0 ? -EINTR : tow_lookup_late(lookup);
	return ret;
}

/* TOW_IOCTL_RESOLVE */
int tow_call_resolve(struct tow_client *client, void *data,
		     const struct tow_answer *answer)
{
	struct tow_resolving resolving = { .lookup.wake = tow_resolve_wake };
	struct tow_resolve *call = data;
	struct tow_remote *remote;
	int ret;

	init_completion(&resolving.woken);
	ret = tow_lookup_begin(&resolving.lookup, client, call);
	if (ret)
		return ret;
	ret = tow_resolve_wait(&resolving);
	if (!ret)
		ret = tow_lookup_give(&resolving.lookup, call);
	tow_lookup_end(&resolving.lookup);
	if (ret)
		return ret;
	ret = tow_call_answer(answer, call);
	/* NULL: another thread has guessed the number, and ended the handle. */
	remote = ret ? tow_dir_take(client, call->handle,
				    &tow_remote_handle_ops) : NULL;
	if (remote)
		tow_remote_close(remote);
	return ret;
}

/* TOW_IOCTL_RELEASE */
int tow_call_release(struct tow_client *client, void *data,
		     const struct tow_answer *answer)
{
	const struct tow_release *call = data;

	return call->flags ? -EINVAL :
			     tow_client_release_remote(client, call->handle);
}
