// SPDX-License-Identifier: GPL-2.0
/*
 * The calls about regions.  Each copies its structure in, does its work as a
 * user of the device, and copies the answer out; what a failing copy leaves
 * behind is undone.
 */
#include <linux/capability.h>
#include <linux/dma-buf.h>
#include <linux/file.h>
#include <linux/jiffies.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "core/core.h"
#include "internal.h"

/*
 * A name is terminated, printable, and fills up its field with zeroes, so that
 * names can be compared, shown and put into a path.
 */
static bool tow_name_valid(const char name[TOW_REGION_NAME_MAX])
{
	size_t length = strnlen(name, TOW_REGION_NAME_MAX);
	size_t i;

	if (length == TOW_REGION_NAME_MAX)
		return false;
	for (i = 0; i < length; i++) {
		if (name[i] <= ' ' || name[i] > '~' || name[i] == '/')
			return false;
	}
	return !memchr_inv(name + length, 0, TOW_REGION_NAME_MAX - length);
}

/* A handle that the client will have, with a reference to the region. */
static struct tow_region_handle *tow_handle_new(struct tow_region *region,
						u32 flags, bool owner)
{
	struct tow_region_handle *handle;

	handle = kzalloc(sizeof(*handle), GFP_KERNEL_ACCOUNT);
	if (!handle)
		return NULL;
	tow_region_get(region);
	handle->handle.ops = &tow_region_handle_ops;
	handle->region = region;
	handle->flags = flags;
	handle->owner = owner;
	return handle;
}

static struct tow_region_handle *tow_take_handle(struct tow_client *client,
						 u64 number)
{
	return (struct tow_region_handle *)
	       tow_client_take_handle(client, number, &tow_region_handle_ops);
}

/* ---- create, attach ------------------------------------------------------- */

/**
 * struct tow_opening - a region that is being given to a program
 * @region: the region, with a reference until it is finished
 * @handle: a handle to it, which nobody finds yet
 * @dmabuf: the descriptor's
 * @fd: reserved, nothing behind it yet
 * @number: the handle's
 */
struct tow_opening {
	struct tow_region	*region;
	struct tow_region_handle *handle;
	struct dma_buf		*dmabuf;
	int			fd;
	u64			number;
};

static int tow_opening_reserve(struct tow_opening *opening,
			       struct tow_client *client)
{
	struct tow_region_handle *handle = tow_handle_new(opening->region, 0,
							  true);
	int ret;

	if (!handle)
		return -ENOMEM;
	opening->handle = handle;
	ret = tow_client_reserve_handle(client, &handle->handle,
					&opening->number);
	if (ret) {
		handle->owner = false;
		tow_handle_drop(&handle->handle, false);
	}
	return ret;
}

/* A descriptor and a handle; the region itself is left to the caller. */
static int tow_opening_begin(struct tow_opening *opening,
			     struct tow_client *client)
{
	int ret;

	opening->fd = get_unused_fd_flags(O_CLOEXEC);
	if (opening->fd < 0)
		return opening->fd;
	opening->dmabuf = tow_region_make_dmabuf(opening->region, false);
	if (IS_ERR(opening->dmabuf)) {
		ret = PTR_ERR(opening->dmabuf);
		goto err_put_fd;
	}
	ret = tow_opening_reserve(opening, client);
	if (ret)
		goto err_put_dmabuf;
	return 0;

err_put_dmabuf:
	dma_buf_put(opening->dmabuf);
err_put_fd:
	put_unused_fd(opening->fd);
	return ret;
}

/*
 * The program knows: from now on the handle is usable, and ends with the client.  Or
 * it does not, as @error says, and the handle and descriptor go.
 */
static int tow_opening_end(struct tow_opening *opening,
			   struct tow_client *client, int error, bool destroy)
{
	struct tow_handle *handle = &opening->handle->handle;

	if (error)
		tow_client_unreserve_handle(client, opening->number);
	else
		error = tow_client_publish_handle(client, handle,
						  opening->number);
	if (error) {
		dma_buf_put(opening->dmabuf);
		put_unused_fd(opening->fd);
		tow_handle_drop(handle, destroy);
	} else {
		fd_install(opening->fd, opening->dmabuf->file);
	}
	tow_region_put(opening->region);
	return error;
}

static int tow_create_check(const struct tow_region_create *create)
{
	bool persistent = create->flags & TOW_REGION_PERSISTENT;

	if (create->flags & ~TOW_REGION_PERSISTENT || !create->bytes ||
	    !tow_name_valid(create->name))
		return -EINVAL;
	if (persistent ? !create->name[0] : !!create->linger_s)
		return -EINVAL;
	return 0;
}

static int tow_create_open(struct tow_client *client,
			   const struct tow_region_create *create,
			   struct tow_opening *opening)
{
	int ret;

	opening->region = tow_region_new(client, create->bytes, create->flags,
					 create->linger_s, create->name);
	if (IS_ERR(opening->region))
		return PTR_ERR(opening->region);
	ret = tow_opening_begin(opening, client);
	if (ret) {
		tow_region_disown(opening->region);
		tow_region_put(opening->region);
	}
	return ret;
}

/* TOW_IOCTL_REGION_CREATE */
int tow_call_region_create(struct tow_client *client, void *data,
			   const struct tow_answer *answer)
{
	struct tow_region_create *create = data;
	struct tow_opening opening = {};
	int ret;

	ret = tow_create_check(create);
	if (ret)
		return ret;
	if (!tow_device_enter(client->dev))
		return -ENODEV;
	ret = tow_create_open(client, create, &opening);
	tow_device_leave(client->dev);
	if (ret)
		return ret;
	create->handle = opening.number;
	create->map_bytes = opening.region->map_bytes;
	create->fd = opening.fd;
	ret = tow_call_answer(answer, create);
	return tow_opening_end(&opening, client, ret, true);
}

static int tow_attach_open(struct tow_client *client,
			   const struct tow_region_attach *attach,
			   struct tow_opening *opening)
{
	int ret;

	opening->region = tow_region_take_over(client, attach->name);
	if (IS_ERR(opening->region))
		return PTR_ERR(opening->region);
	ret = tow_opening_begin(opening, client);
	if (ret) {
		tow_region_give_up(opening->region, client);
		tow_region_put(opening->region);
	}
	return ret;
}

/*
 * Waits while what the region's client had ends.  Its peers have as long as a
 * revocation may take, and then their queue pairs are destroyed: twice that.
 */
static int tow_attach_wait(struct tow_client *client,
			   const struct tow_region_attach *attach,
			   struct tow_opening *opening)
{
	struct tow_device *dev = client->dev;
	unsigned int revoke_ms = dev->memory->ops->revoke_timeout_ms(dev);
	unsigned long end = jiffies + 2 * msecs_to_jiffies(revoke_ms);
	long pause = 1;
	int ret;

	for (;;) {
		if (!tow_device_enter(dev))
			return -ENODEV;
		ret = tow_attach_open(client, attach, opening);
		/* Not a user of the device while it waits: removal goes on. */
		tow_device_leave(dev);
		if (ret != -EAGAIN)
			return ret;
		if (time_after(jiffies, end))
			return -EBUSY;
		schedule_timeout_killable(pause);
		if (fatal_signal_pending(current))
			return -EINTR;
		pause = min_t(long, 2 * pause, HZ / 20);
	}
}

/* TOW_IOCTL_REGION_ATTACH */
int tow_call_region_attach(struct tow_client *client, void *data,
			   const struct tow_answer *answer)
{
	struct tow_region_attach *attach = data;
	struct tow_opening opening = {};
	int ret;

	if (attach->flags || !tow_name_valid(attach->name) || !attach->name[0])
		return -EINVAL;
	ret = tow_attach_wait(client, attach, &opening);
	if (ret)
		return ret;
	attach->bytes = opening.region->bytes;
	attach->handle = opening.number;
	attach->map_bytes = opening.region->map_bytes;
	attach->fd = opening.fd;
	ret = tow_call_answer(answer, attach);
	/* If the program does not know of it, it lingers on. */
	if (ret) {
		opening.handle->owner = false;
		tow_region_give_up(opening.region, client);
	} else {
		tow_region_taken(opening.region, client, attach->linger_s);
	}
	return tow_opening_end(&opening, client, ret, false);
}

/* TOW_IOCTL_REGION_DESTROY */
int tow_call_region_destroy(struct tow_client *client, void *data,
			    const struct tow_answer *answer)
{
	const struct tow_region_destroy *destroy = data;
	struct tow_region_handle *handle;

	if (destroy->flags)
		return -EINVAL;
	handle = tow_take_handle(client, destroy->handle);
	if (!handle)
		return -ENOENT;
	tow_handle_drop(&handle->handle, true);
	return 0;
}

/* ---- query, list ---------------------------------------------------------- */

/* TOW_IOCTL_REGION_QUERY */
int tow_call_region_query(struct tow_client *client, void *data,
			  const struct tow_answer *answer)
{
	struct tow_region_info *info = data;
	u64 number = info->handle;
	struct tow_region *region;
	u32 flags;

	if (info->flags || info->reserved)
		return -EINVAL;
	region = tow_client_get_region(client, number, &flags);
	if (!region)
		return -ENOENT;
	memset(info, 0, sizeof(*info));
	tow_region_describe(region, info);
	info->flags |= flags;
	info->handle = number;
	tow_region_put(region);
	return tow_call_answer(answer, info);
}

/* The next region that the caller may see, described. */
static bool tow_region_list_next(struct tow_client *client, u32 flags,
				 u64 *cursor, void *info)
{
	struct tow_region *region;
	bool shown = false;

	while (!shown && (region = tow_region_next(&client->dev->memory->regions,
						   cursor))) {
		shown = flags & TOW_LIST_ALL ||
			tow_region_is_of(region, client);
		if (shown)
			tow_region_describe(region, info);
		tow_region_put(region);
		cond_resched();
	}
	return shown;
}

const struct tow_listing tow_region_listing = {
	.flags			= TOW_LIST_ALL,
	.entry_published	= TOW_REGION_INFO_PUBLISHED,
	.entry_bytes		= sizeof(struct tow_region_info),
	.next			= tow_region_list_next,
};

/* TOW_IOCTL_REGION_END */
int tow_call_region_end(struct tow_client *client, void *data,
			const struct tow_answer *answer)
{
	struct tow_region_end *call = data;
	u64 cursor = call->id - 1;
	struct tow_region *region;
	int ret = -ENOENT;

	if (call->flags)
		return -EINVAL;
	if (!capable(CAP_NET_ADMIN))
		return -EPERM;
	region = tow_region_next(&client->dev->memory->regions, &cursor);
	if (!region)
		return -ENOENT;
	if (region->id == call->id) {
		ret = tow_region_end(region, &call->pid);
		call->fds = atomic_read(&region->fds);
	}
	tow_region_put(region);
	return ret ?: tow_call_answer(answer, call);
}

/* ---- descriptors ---------------------------------------------------------- */

static int tow_fd_open(struct tow_client *client, struct tow_region_fd *call,
		       struct tow_opening *opening)
{
	bool readonly = call->flags & TOW_REGION_READONLY;
	u32 flags;
	int ret;

	opening->region = tow_client_get_region(client, call->handle, &flags);
	if (!opening->region)
		return -ENOENT;
	ret = -EOPNOTSUPP;
	if (opening->region->backing)
		goto err_put_region;
	ret = -EACCES;
	if (flags & TOW_REGION_READONLY && !readonly)
		goto err_put_region;
	ret = get_unused_fd_flags(O_CLOEXEC);
	if (ret < 0)
		goto err_put_region;
	opening->fd = ret;
	opening->dmabuf = tow_region_make_dmabuf(opening->region, readonly);
	if (IS_ERR(opening->dmabuf)) {
		ret = PTR_ERR(opening->dmabuf);
		goto err_put_fd;
	}
	return 0;

err_put_fd:
	put_unused_fd(opening->fd);
err_put_region:
	tow_region_put(opening->region);
	return ret;
}

/* TOW_IOCTL_REGION_FD */
int tow_call_region_fd(struct tow_client *client, void *data,
		       const struct tow_answer *answer)
{
	struct tow_opening opening = {};
	struct tow_region_fd *call = data;
	int ret;

	if (call->flags & ~TOW_REGION_READONLY || call->reserved)
		return -EINVAL;
	ret = tow_fd_open(client, call, &opening);
	if (ret)
		return ret;
	call->fd = opening.fd;
	ret = tow_call_answer(answer, call);
	if (ret) {
		dma_buf_put(opening.dmabuf);
		put_unused_fd(opening.fd);
	} else {
		fd_install(opening.fd, opening.dmabuf->file);
	}
	tow_region_put(opening.region);
	return ret;
}

/* Somebody else's region: it is charged to him, its handle to us. */
static int tow_from_fd_handle(struct tow_client *client,
			      struct tow_region *region, bool readonly,
			      u64 *number)
{
	const u64 amount[TOW_RESOURCES] = { [TOW_RES_REGIONS] = 1 };
	struct tow_region_handle *handle;
	int ret;

	handle = tow_handle_new(region, readonly ? TOW_REGION_READONLY : 0,
				false);
	if (!handle)
		return -ENOMEM;
	ret = tow_charge(&handle->charge, client->account, amount);
	if (!ret)
		ret = tow_client_add_handle(client, &handle->handle, number);
	if (ret)
		tow_handle_drop(&handle->handle, false);
	return ret;
}

static int tow_from_fd_find(struct tow_client *client, int fd, u64 *number)
{
	struct dma_buf *dmabuf = dma_buf_get(fd);
	struct tow_region *region;
	bool readonly;
	int ret;

	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	region = tow_region_from_dmabuf(dmabuf, &readonly);
	if (!region)
		ret = -EINVAL;
	else if (region->dev != client->dev)
		ret = -EXDEV;
	else
		ret = tow_from_fd_handle(client, region, readonly, number);
	dma_buf_put(dmabuf);
	return ret;
}

/* Answers a call that made a handle: without an answer there is none. */
static int tow_answer_handle(struct tow_client *client,
			     const struct tow_answer *answer, void *data,
			     u64 number)
{
	int ret = tow_call_answer(answer, data);
	struct tow_region_handle *handle;

	if (ret) {
		handle = tow_take_handle(client, number);
		if (handle)
			tow_handle_drop(&handle->handle, true);
	}
	return ret;
}

/* TOW_IOCTL_REGION_FROM_FD */
int tow_call_region_from_fd(struct tow_client *client, void *data,
			    const struct tow_answer *answer)
{
	struct tow_region_from_fd *call = data;
	int ret;

	if (call->flags || call->reserved)
		return -EINVAL;
	ret = tow_from_fd_find(client, call->fd, &call->handle);
	if (ret)
		return ret;
	return tow_answer_handle(client, answer, call, call->handle);
}

/* ---- imports -------------------------------------------------------------- */

/* Takes over the reference to @region, or finds an error in it. */
static int tow_import_handle(struct tow_client *client,
			     struct tow_region *region, bool readonly,
			     u64 *number)
{
	struct tow_region_handle *handle;
	int ret;

	if (IS_ERR(region))
		return PTR_ERR(region);
	ret = -ENOMEM;
	handle = tow_handle_new(region, readonly ? TOW_REGION_READONLY : 0,
				true);
	if (handle) {
		ret = tow_client_add_handle(client, &handle->handle, number);
		if (ret)
			tow_handle_drop(&handle->handle, true);
	}
	tow_region_put(region);
	return ret;
}

/* TOW_IOCTL_REGION_IMPORT_USER */
int tow_call_region_import_user(struct tow_client *client, void *data,
				const struct tow_answer *answer)
{
	struct tow_region_import_user *call = data;
	struct tow_region *region;
	bool readonly;
	int ret;

	if (call->flags & ~TOW_REGION_READONLY || !call->bytes)
		return -EINVAL;
	readonly = call->flags & TOW_REGION_READONLY;
	/* Not a user of the device: the user's pages may keep us waiting. */
	region = tow_import_user(client, call->address, call->bytes, readonly);
	ret = tow_import_handle(client, region, readonly, &call->handle);
	if (ret)
		return ret;
	return tow_answer_handle(client, answer, call, call->handle);
}

/* TOW_IOCTL_REGION_IMPORT_DMABUF */
int tow_call_region_import_dmabuf(struct tow_client *client, void *data,
				  const struct tow_answer *answer)
{
	struct tow_region_import_dmabuf *call = data;
	struct tow_region *region;
	struct dma_buf *dmabuf;
	bool readonly;
	int ret;

	if (call->flags & ~TOW_REGION_READONLY || call->reserved ||
	    !call->bytes || !PAGE_ALIGNED(call->offset))
		return -EINVAL;
	readonly = call->flags & TOW_REGION_READONLY;
	dmabuf = dma_buf_get(call->fd);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	region = tow_import_dmabuf(client, dmabuf, call->offset, call->bytes,
				   readonly);
	dma_buf_put(dmabuf);
	ret = tow_import_handle(client, region, readonly, &call->handle);
	if (ret)
		return ret;
	return tow_answer_handle(client, answer, call, call->handle);
}
