// SPDX-License-Identifier: GPL-2.0
/*
 * The calls about exports and remote ranges, and a client's handles of them.
 * As in memory/ioctl.c, a call whose answer cannot be copied out is undone.  A
 * call is not a user of the device while it waits for a peer.
 */
#include <linux/jiffies.h>
#include <linux/slab.h>

#include "core/core.h"
#include "export.h"
#include "memory/memory.h"
#include "peer.h"
#include "remote.h"
#include "session.h"
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

static int tow_dir_add_handle(struct tow_client *client,
			      const struct tow_handle_ops *ops, void *object,
			      u64 *number)
{
	struct tow_dir_handle *handle;
	int ret;

	handle = kzalloc(sizeof(*handle), GFP_KERNEL_ACCOUNT);
	if (!handle)
		return -ENOMEM;
	handle->handle.ops = ops;
	handle->object = object;
	ret = tow_client_add_handle(client, &handle->handle, number);
	if (ret)
		kfree_rcu(handle, handle.rcu);
	return ret;
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
	int ret = tow_dir_add_handle(client, &tow_exported_handle_ops, exported,
				     number);

	if (ret) {
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

	if (call->flags || !tow_rights_valid(call->rights))
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
 * struct tow_resolving - a call that looks for a name
 * @label: the name
 * @rights: bits of enum tow_right: what the program wants to do
 * @wait: the peer answers when the name is published; else at once
 * @deadline: until when the call waits for the answer, in jiffies
 * @remote: the remote range that was found
 */
struct tow_resolving {
	struct tow_label	label;
	u32			rights;
	bool			wait;
	unsigned long		deadline;
	struct tow_remote	*remote;
};

static unsigned long tow_resolve_time(const struct tow_resolving *resolving)
{
	long left = resolving->deadline - jiffies;

	return max(left, 0L);
}

static int tow_resolve_in_session(struct tow_session *session,
				  struct tow_resolving *resolving)
{
	int ret;

	ret = tow_remote_open(session->assoc, &resolving->label,
			      resolving->rights, resolving->wait,
			      &resolving->remote);
	if (ret)
		return ret;
	ret = tow_remote_wait(resolving->remote, tow_resolve_time(resolving));
	if (ret)
		tow_remote_close(resolving->remote);
	return ret;
}

/* Has the session ended only because it was idle or replaced? */
static bool tow_resolve_again(struct tow_session *session, int error)
{
	u32 reason = READ_ONCE(session->reason);

	if (!error || error == -EINTR || error == -ETIMEDOUT ||
	    tow_session_alive(session))
		return false;
	return reason == TOW_WIRE_IDLE || reason == TOW_WIRE_REPLACED;
}

static int tow_resolve_at_peer(struct tow_client *client, struct tow_peer *peer,
			       struct tow_resolving *resolving)
{
	struct tow_conn_settings *settings = &peer->dev->peers->settings;
	struct tow_session *session;
	int tries = 2;
	bool again;
	int ret;

	do {
		ret = tow_peer_use(peer, client->account,
				   READ_ONCE(settings->reconnect_timeout_ms),
				   &session);
		if (ret)
			return ret;
		ret = tow_resolve_in_session(session, resolving);
		again = tow_resolve_again(session, ret);
		tow_session_put(session);
	} while (again && --tries);
	return ret;
}

static int tow_resolve_find(struct tow_client *client,
			    const struct tow_resolve *call,
			    struct tow_resolving *resolving)
{
	struct tow_peer *peer;
	int ret;

	tow_label_of_client(&resolving->label, client, call->name,
			    call->name_bytes);
	resolving->rights = call->rights;
	resolving->wait = call->timeout_ms;
	/* Without a timeout the peer answers at once, or the session ends. */
	resolving->deadline = jiffies +
		(!call->timeout_ms || call->timeout_ms == TOW_WAIT_FOREVER ?
		 MAX_JIFFY_OFFSET : msecs_to_jiffies(call->timeout_ms));
	peer = tow_peer_find(client->dev, call->peer);
	if (!peer)
		return -ENOENT;
	ret = tow_resolve_at_peer(client, peer, resolving);
	tow_peer_put(peer);
	return ret;
}

static int tow_resolve_begin(struct tow_client *client,
			     struct tow_resolve *call)
{
	struct tow_resolving resolving;
	int ret;

	ret = tow_resolve_find(client, call, &resolving);
	if (ret)
		return ret;
	call->bytes = resolving.remote->bytes;
	ret = tow_dir_add_handle(client, &tow_remote_handle_ops,
				 resolving.remote, &call->handle);
	if (ret)
		tow_remote_close(resolving.remote);
	return ret;
}

/* TOW_IOCTL_RESOLVE */
int tow_call_resolve(struct tow_client *client, void *data,
		     const struct tow_answer *answer)
{
	struct tow_resolve *call = data;
	struct tow_remote *remote;
	int ret;

	if (call->flags || call->reserved || !tow_rights_valid(call->rights))
		return -EINVAL;
	ret = tow_name_check(client, call->name, call->name_bytes);
	if (!ret)
		ret = tow_resolve_begin(client, call);
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
	struct tow_remote *remote;

	if (call->flags)
		return -EINVAL;
	remote = tow_dir_take(client, call->handle, &tow_remote_handle_ops);
	return remote ? tow_remote_close(remote) : -ENOENT;
}
