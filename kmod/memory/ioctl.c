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

/* ---- giving regions to programs -------------------------------------------- */

/**
 * struct tow_opening - a region that is being given to a program
 * @region: the region, with a reference until it is finished
 * @handle: a handle to it, which nobody finds yet
 * @number: the handle's
 * @dmabuf: the descriptor's; NULL: there is to be none
 * @fd: reserved, nothing behind it yet
 */
struct tow_opening {
	struct tow_region	*region;
	struct tow_region_handle *handle;
	u64			number;
	struct dma_buf		*dmabuf;
	int			fd;
};

static int tow_opening_begin_fd(struct tow_opening *opening, bool readonly)
{
	struct dma_buf *dmabuf;

	opening->fd = get_unused_fd_flags(O_CLOEXEC);
	if (opening->fd < 0)
		return opening->fd;
	dmabuf = tow_region_make_dmabuf(opening->region, readonly);
	if (IS_ERR(dmabuf)) {
		put_unused_fd(opening->fd);
		return PTR_ERR(dmabuf);
	}
	opening->dmabuf = dmabuf;
	return 0;
}

static void tow_opening_end_fd(struct tow_opening *opening, int error)
{
	if (!error) {
		fd_install(opening->fd, opening->dmabuf->file);
		return;
	}
	dma_buf_put(opening->dmabuf);
	put_unused_fd(opening->fd);
}

/* A handle, and a descriptor if there is to be one; the region is left to the caller. */
static int tow_opening_begin(struct tow_opening *opening,
			     struct tow_client *client, u32 flags, bool fd)
{
	struct tow_region_handle *handle;
	int ret;

	handle = kzalloc(sizeof(*handle), GFP_KERNEL_ACCOUNT);
	if (!handle)
		return -ENOMEM;
	tow_region_get(opening->region);
	handle->handle.ops = &tow_region_handle_ops;
	handle->region = opening->region;
	handle->flags = flags;
	opening->handle = handle;
	ret = tow_client_reserve_handle(client, &handle->handle,
					&opening->number);
	if (!ret && fd) {
		ret = tow_opening_begin_fd(opening, false);
		if (ret)
			tow_client_unreserve_handle(client, opening->number);
	}
	if (ret)
		tow_handle_drop(&handle->handle, false);
	return ret;
}

/* The same for a region that was made for the client, or an error: it ends if this fails. */
static int tow_opening_own(struct tow_opening *opening,
			   struct tow_client *client, struct tow_region *region,
			   u32 flags, bool fd)
{
	int ret;

	if (IS_ERR(region))
		return PTR_ERR(region);
	opening->region = region;
	ret = tow_opening_begin(opening, client, flags, fd);
	if (!ret) {
		opening->handle->owner = true;
		return 0;
	}
	tow_region_disown(region);
	tow_region_put(region);
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
	if (opening->dmabuf)
		tow_opening_end_fd(opening, error);
	if (error)
		tow_handle_drop(handle, destroy);
	tow_region_put(opening->region);
	return error;
}

/* ---- create, attach ------------------------------------------------------- */

static int tow_create_check(struct tow_client *client,
			    const struct tow_region_create *create)
{
	u8 job_id[TOW_JOB_ID_BYTES];
	bool persistent = create->flags & TOW_REGION_PERSISTENT;

	if (create->flags & ~TOW_REGION_PERSISTENT || !create->bytes ||
	    !tow_name_valid(create->name))
		return -EINVAL;
	if (persistent ? !create->name[0] : !!create->linger_s)
		return -EINVAL;
	tow_client_job(client, job_id);
	return !persistent || tow_client_has_job(client, job_id) ? 0 : -ENOKEY;
}

/* TOW_IOCTL_REGION_CREATE */
int tow_call_region_create(struct tow_client *client, void *data,
			   const struct tow_answer *answer)
{
	struct tow_region_create *create = data;
	struct tow_opening opening = {};
	int ret;

	ret = tow_create_check(client, create);
	if (ret)
		return ret;
	if (!tow_device_enter(client->dev))
		return -ENODEV;
	ret = tow_opening_own(&opening, client,
			      tow_region_new(client, create->bytes,
					     create->flags, create->linger_s,
					     create->name), 0, true);
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
	ret = tow_opening_begin(opening, client, 0, true);
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
		tow_region_give_up(opening.region, client);
	} else {
		tow_region_taken(opening.region, client, attach->linger_s);
		opening.handle->owner = true;
	}
	return tow_opening_end(&opening, client, ret, false);
}

/* TOW_IOCTL_REGION_DESTROY */
int tow_call_region_destroy(struct tow_client *client, void *data,
			    const struct tow_answer *answer)
{
	const struct tow_region_destroy *destroy = data;
	struct tow_handle *handle;

	if (destroy->flags)
		return -EINVAL;
	handle = tow_client_take_handle(client, destroy->handle,
					&tow_region_handle_ops);
	if (!handle)
		return -ENOENT;
	tow_handle_drop(handle, true);
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

static int tow_region_list_next(struct tow_client *client, u32 flags,
				u64 *cursor, void *info)
{
	struct tow_region *region;
	bool shown;

	region = tow_region_next(&client->dev->memory->regions, cursor);
	if (!region)
		return -ENOENT;
	shown = flags & TOW_LIST_ALL || tow_region_is_of(region, client);
	if (shown)
		tow_region_describe(region, info);
	tow_region_put(region);
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

static int tow_fd_begin(struct tow_opening *opening,
			const struct tow_region_fd *call, u32 flags)
{
	bool readonly = call->flags & TOW_REGION_READONLY;

	if (opening->region->backing)
		return -EOPNOTSUPP;
	if (flags & TOW_REGION_READONLY && !readonly)
		return -EACCES;
	return tow_opening_begin_fd(opening, readonly);
}

/* TOW_IOCTL_REGION_FD */
int tow_call_region_fd(struct tow_client *client, void *data,
		       const struct tow_answer *answer)
{
	struct tow_opening opening = {};
	struct tow_region_fd *call = data;
	u32 flags;
	int ret;

	if (call->flags & ~TOW_REGION_READONLY || call->reserved)
		return -EINVAL;
	opening.region = tow_client_get_region(client, call->handle, &flags);
	if (!opening.region)
		return -ENOENT;
	ret = tow_fd_begin(&opening, call, flags);
	if (!ret) {
		call->fd = opening.fd;
		ret = tow_call_answer(answer, call);
		tow_opening_end_fd(&opening, ret);
	}
	tow_region_put(opening.region);
	return ret;
}

/* Somebody else's region: it is charged to him, its handle to us. */
static int tow_from_fd_begin(struct tow_opening *opening,
			     struct tow_client *client, int fd)
{
	struct dma_buf *dmabuf = dma_buf_get(fd);
	bool readonly;
	int ret;

	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	opening->region = tow_region_from_dmabuf(dmabuf, &readonly);
	if (!opening->region)
		ret = -EINVAL;
	else if (opening->region->dev != client->dev)
		ret = -EXDEV;
	else
		ret = tow_opening_begin(opening, client,
					readonly ? TOW_REGION_READONLY : 0,
					false);
	if (!ret)
		tow_region_get(opening->region);
	dma_buf_put(dmabuf);
	return ret;
}

/* TOW_IOCTL_REGION_FROM_FD */
int tow_call_region_from_fd(struct tow_client *client, void *data,
			    const struct tow_answer *answer)
{
	const u64 amount[TOW_RESOURCES] = { [TOW_RES_REGIONS] = 1 };
	struct tow_region_from_fd *call = data;
	struct tow_opening opening = {};
	int ret;

	if (call->flags || call->reserved)
		return -EINVAL;
	ret = tow_from_fd_begin(&opening, client, call->fd);
	if (ret)
		return ret;
	call->handle = opening.number;
	ret = tow_charge(&opening.handle->charge, client->account, amount) ?:
	      tow_call_answer(answer, call);
	return tow_opening_end(&opening, client, ret, false);
}

/* ---- imports -------------------------------------------------------------- */

/* TOW_IOCTL_REGION_IMPORT_USER */
int tow_call_region_import_user(struct tow_client *client, void *data,
				const struct tow_answer *answer)
{
	struct tow_region_import_user *call = data;
	struct tow_opening opening = {};
	int ret;

	if (call->flags & ~TOW_REGION_READONLY || !call->bytes)
		return -EINVAL;
	/* Not a user of the device: the user's pages may keep us waiting. */
	ret = tow_opening_own(&opening, client,
			      tow_import_user(client, call->address, call->bytes,
					      call->flags), call->flags, false);
	if (ret)
		return ret;
	call->handle = opening.number;
	return tow_opening_end(&opening, client, tow_call_answer(answer, call),
			       true);
}

/* TOW_IOCTL_REGION_IMPORT_DMABUF */
int tow_call_region_import_dmabuf(struct tow_client *client, void *data,
				  const struct tow_answer *answer)
{
	struct tow_region_import_dmabuf *call = data;
	struct tow_opening opening = {};
	struct dma_buf *dmabuf;
	int ret;

	if (call->flags & ~TOW_REGION_READONLY || call->reserved ||
	    !call->bytes || !PAGE_ALIGNED(call->offset))
		return -EINVAL;
	dmabuf = dma_buf_get(call->fd);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	ret = tow_opening_own(&opening, client,
			      tow_import_dmabuf(client, dmabuf, call->offset,
						call->bytes, call->flags),
			      call->flags, false);
	dma_buf_put(dmabuf);
	if (ret)
		return ret;
	call->handle = opening.number;
	return tow_opening_end(&opening, client, tow_call_answer(answer, call),
			       true);
}
