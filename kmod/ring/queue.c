// SPDX-License-Identifier: GPL-2.0
/*
 * Queues: made, mapped, polled, and ended.
 *
 * A queue's descriptor is a file of its own.  The queue ends with that file or
 * with its client, whichever comes first; its memory stays until the last entry
 * has completed, which may be later than both.
 */
#include <linux/anon_inodes.h>
#include <linux/compat.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "core/compat.h"
#include "core/core.h"
#include "core/trace.h"
#include "internal.h"
#include "link.h"
#include "poller.h"
#include "queue.h"

/* ---- memory --------------------------------------------------------------- */

static u64 tow_queue_sqes_offset(void)
{
	return sizeof(struct tow_ring);
}

static u64 tow_queue_cqes_offset(const struct tow_queue *queue)
{
	return tow_queue_sqes_offset() +
	       (u64)queue->sq_entries * sizeof(struct tow_sqe);
}

/* 0: it has none. */
static u64 tow_queue_results_offset(const struct tow_queue *queue)
{
	return queue->has_results ? tow_queue_cqes_offset(queue) +
				    queue->cq_entries * sizeof(struct tow_cqe) :
				    0;
}

static u64 tow_queue_map_bytes(const struct tow_queue *queue)
{
	u64 each = sizeof(struct tow_cqe) +
		   (queue->has_results ? sizeof(struct tow_result) : 0);

	return PAGE_ALIGN(tow_queue_cqes_offset(queue) +
			  queue->cq_entries * each);
}

static void tow_queue_free_ring(struct tow_queue *queue)
{
	unsigned int i;

	vunmap(queue->ring);
	for (i = 0; queue->pages && i < queue->page_count; i++) {
		if (queue->pages[i])
			__free_page(queue->pages[i]);
	}
	kvfree(queue->pages);
}

/* The pages are charged to the cgroup; those of vmalloc_user() would not be. */
static int tow_queue_make_ring(struct tow_queue *queue)
{
	unsigned int i;

	queue->page_count = tow_queue_map_bytes(queue) >> PAGE_SHIFT;
	queue->pages = kvcalloc(queue->page_count, sizeof(*queue->pages),
				GFP_KERNEL_ACCOUNT);
	if (!queue->pages)
		return -ENOMEM;
	for (i = 0; i < queue->page_count; i++) {
		queue->pages[i] = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
		if (!queue->pages[i])
			return -ENOMEM;
	}
	queue->ring = vmap(queue->pages, queue->page_count,
			   VM_MAP | VM_USERMAP, PAGE_KERNEL);
	if (!queue->ring)
		return -ENOMEM;
	queue->sqes = (void *)queue->ring + tow_queue_sqes_offset();
	queue->cqes = (void *)queue->ring + tow_queue_cqes_offset(queue);
	if (queue->has_results)
		queue->results = (void *)queue->ring +
				 tow_queue_results_offset(queue);
	return 0;
}

static int tow_queue_make_entries(struct tow_queue *queue)
{
	u32 i;

	queue->entries = kvcalloc(queue->cq_entries, sizeof(*queue->entries),
				  GFP_KERNEL_ACCOUNT);
	if (!queue->entries)
		return -ENOMEM;
	for (i = queue->cq_entries; i--; ) {
		queue->entries[i].queue = queue;
		queue->entries[i].free = queue->free;
		queue->free = &queue->entries[i];
	}
	return 0;
}

/* ---- life ----------------------------------------------------------------- */

static void tow_queue_free(struct tow_queue *queue)
{
	/* First, as the poller writes to the rings of its queues. */
	if (queue->poller)
		tow_poller_remove(queue);
	tow_queue_stop_deadlines(queue);
	tow_queue_stop_lookups(queue);
	tow_channels_free(queue);
	tow_cqs_unref(&queue->cqs);
	kvfree(queue->entries);
	tow_queue_free_ring(queue);
	tow_uncharge(&queue->charge);
	if (queue->poller)
		tow_poller_put(queue->poller);
	mutex_destroy(&queue->submit);
	tow_process_put(queue->process);
	tow_device_put(queue->dev);
	kfree(queue);
}

static void tow_queue_release(struct kref *refs)
{
	struct tow_queue *queue = container_of(refs, struct tow_queue, refs);
	struct tow_device *dev = queue->dev;

	mutex_lock(&dev->queues->lock);
	list_del(&queue->link);
	mutex_unlock(&dev->queues->lock);
	trace_tow_queue_end(queue);
	/* It counts until all that it had was given back. */
	kref_get(&dev->refs);
	tow_queue_free(queue);
	tow_stat_dec(dev, TOW_STAT_QUEUES);
	tow_device_put(dev);
}

static void tow_queue_free_later(struct work_struct *work)
{
	struct tow_queue *queue = container_of(work, struct tow_queue,
					       free_work);

	tow_queue_release(&queue->refs);
}

/* Add the queue to the device's list, and give it to the client. */
static int tow_queue_publish(struct tow_queue *queue, struct tow_client *client)
{
	struct tow_queues *queues = queue->dev->queues;
	int ret = 0;

	mutex_lock(&queues->lock);
	if (queues->stopped) {
		ret = -ENODEV;
	} else if (READ_ONCE(client->ended)) {
		ret = -EPERM;
	} else {
		queue->client = client;
		list_add_tail(&queue->link, &queues->list);
		list_add_tail(&queue->of_client, &client->queues);
	}
	mutex_unlock(&queues->lock);
	if (!ret)
		tow_stat_inc(queue->dev, TOW_STAT_QUEUES);
	return ret;
}

/**
 * tow_queue_end - let nothing begin on a queue any more
 * @queue: the queue; the caller has a reference
 * @error: why: -ECANCELED, -ENODEV
 *
 * Entries that have not begun, or wait for their turn, end with @error.
 */
void tow_queue_end(struct tow_queue *queue, int error)
{
	spin_lock(&queue->lock);
	if (!queue->ended)
		WRITE_ONCE(queue->ended, error);
	spin_unlock(&queue->lock);
	tow_channels_stop(queue, error);
	tow_queue_end_waits(queue, error);
	tow_queue_end_lookups(queue);
	if (queue->poller)
		tow_poller_leave(queue);
	tow_queue_run(queue);
	tow_queue_wake(queue, TOW_WAKE_CALLS | TOW_WAKE_POLL);
}

/* ---- the descriptor ------------------------------------------------------- */

/* A program that gets ENODEV knows that no poller takes entries any more. */
static int tow_queue_gone(struct tow_queue *queue)
{
	if (queue->poller) {
		mutex_lock(&queue->submit);
		mutex_unlock(&queue->submit);
	}
	return -ENODEV;
}

static long tow_queue_ioctl(struct file *file, unsigned int cmd,
			    unsigned long arg)
{
	struct tow_queue *queue = file->private_data;
	void __user *user = (void __user *)arg;

	if (tow_device_going(queue->dev))
		return tow_queue_gone(queue);
	if (cmd != TOW_IOCTL_ENTER && cmd != TOW_IOCTL_CHANNEL_OPEN &&
	    cmd != TOW_IOCTL_CHANNEL_CLOSE && cmd != TOW_IOCTL_QUEUE_EVENT &&
	    cmd != TOW_IOCTL_QUEUE_RESOLVE)
		return -ENOTTY;
	if (!tow_process_is_current(queue->process))
		return -EPERM;
	if (cmd == TOW_IOCTL_ENTER)
		return tow_queue_enter(queue, user);
	if (cmd == TOW_IOCTL_QUEUE_EVENT)
		return tow_queue_event(queue, user);
	if (cmd == TOW_IOCTL_CHANNEL_CLOSE)
		return tow_queue_channel_close(queue, user);
	if (tow_device_draining(queue->dev))
		return -ESHUTDOWN;
	if (cmd == TOW_IOCTL_QUEUE_RESOLVE)
		return tow_queue_resolve(queue, user);
	return tow_queue_channel_open(queue, user);
}

static int tow_queue_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct tow_queue *queue = file->private_data;

	if (!tow_process_is_current(queue->process))
		return -EPERM;
	if (vma->vm_pgoff || !(vma->vm_flags & VM_SHARED) ||
	    vma->vm_end - vma->vm_start != tow_queue_map_bytes(queue))
		return -EINVAL;
	/* Rings are data, never a program. */
	if (vma->vm_flags & VM_EXEC)
		return -EINVAL;
	tow_vm_flags_clear(vma, VM_MAYEXEC);
	tow_vm_flags_set(vma, VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	return remap_vmalloc_range(vma, queue->ring, 0);
}

static __poll_t tow_queue_poll(struct file *file, poll_table *table)
{
	struct tow_queue *queue = file->private_data;
	__poll_t events = 0;

	poll_wait(file, &queue->poll_wait, table);
	/* Pairs with tow_queue_sleepers(). */
	smp_mb();
	if (tow_queue_completions(queue))
		events |= EPOLLIN | EPOLLRDNORM;
	if (poll_requested_events(table) & (EPOLLOUT | EPOLLWRNORM) &&
	    tow_queue_has_room(queue, 1))
		events |= EPOLLOUT | EPOLLWRNORM;
	if (READ_ONCE(queue->ended))
		events |= EPOLLERR | EPOLLHUP;
	else if (tow_queue_has_event(queue))
		events |= EPOLLPRI;
	return events;
}

static int tow_queue_close(struct inode *inode, struct file *file)
{
	struct tow_queue *queue = file->private_data;

	tow_queue_leave_client(queue);
	tow_queue_put(queue);
	return 0;
}

static const struct file_operations tow_queue_fops = {
	.owner		= THIS_MODULE,
	.release	= tow_queue_close,
	.unlocked_ioctl	= tow_queue_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
	.mmap		= tow_queue_mmap,
	.poll		= tow_queue_poll,
	.llseek		= noop_llseek,
};

/* ---- the call ------------------------------------------------------------- */

static struct tow_queue *tow_queue_alloc(struct tow_client *client)
{
	struct tow_queue *queue;
	struct tow_process *process;

	queue = kzalloc(sizeof(*queue), GFP_KERNEL_ACCOUNT);
	if (!queue)
		return ERR_PTR(-ENOMEM);
	process = tow_process_get();
	if (IS_ERR(process)) {
		kfree(queue);
		return ERR_CAST(process);
	}
	queue->process = process;
	queue->dev = client->dev;
	kref_get(&queue->dev->refs);
	kref_init(&queue->refs);
	queue->release = tow_queue_release;
	INIT_LIST_HEAD(&queue->link);
	INIT_LIST_HEAD(&queue->poll_link);
	tow_channels_init(queue);
	mutex_init(&queue->submit);
	tow_queue_init_run(queue);
	tow_queue_init_waits(queue);
	tow_queue_init_deadlines(queue);
	tow_queue_init_lookups(queue);
	INIT_WORK(&queue->free_work, tow_queue_free_later);
	queue->wanted = U32_MAX;
	init_waitqueue_head(&queue->wait);
	init_waitqueue_head(&queue->poll_wait);
	return queue;
}

/* Find out what the device can do. */
static int tow_queue_find_features(struct tow_queue *queue)
{
	struct tow_device *dev = queue->dev;

	if (!tow_device_enter(dev))
		return -ENODEV;
	queue->atomics = dev->ibdev->attrs.atomic_cap != IB_ATOMIC_NONE;
	tow_device_leave(dev);
	return 0;
}

static int tow_queue_find_poller(struct tow_queue *queue,
				 struct tow_client *client,
				 const struct tow_queue_create *call)
{
	struct tow_poller *poller;

	if (!(call->flags & TOW_QUEUE_POLL))
		return 0;
	poller = tow_poller_get(client);
	if (IS_ERR(poller))
		return PTR_ERR(poller);
	queue->poller = poller;
	queue->idle_us = call->idle_us;
	return 0;
}

static struct tow_queue *tow_queue_new(struct tow_client *client,
				       const struct tow_queue_create *call)
{
	const u64 amount[TOW_RESOURCES] = {
		[TOW_RES_QUEUE_ENTRIES] = call->cq_entries,
	};
	struct tow_queue *queue;
	int ret;

	queue = tow_queue_alloc(client);
	if (IS_ERR(queue))
		return queue;
	queue->sq_entries = call->sq_entries;
	queue->cq_entries = call->cq_entries;
	queue->has_results = call->flags & TOW_QUEUE_RESULTS;
	ret = tow_queue_find_features(queue);
	if (!ret)
		ret = tow_charge(&queue->charge, client->account, amount);
	if (!ret)
		ret = tow_queue_make_ring(queue);
	if (!ret)
		ret = tow_queue_make_entries(queue);
	if (!ret)
		ret = tow_queue_find_poller(queue, client, call);
	if (!ret)
		ret = tow_queue_publish(queue, client);
	if (ret) {
		tow_queue_free(queue);
		return ERR_PTR(ret);
	}
	if (queue->poller)
		tow_poller_add(queue);
	return queue;
}

static int tow_queue_check_poll(struct tow_queue_create *call)
{
	bool polls = call->flags & TOW_QUEUE_POLL;

	if (call->flags & ~(TOW_QUEUE_POLL | TOW_QUEUE_RESULTS) ||
	    call->reserved || (!polls && call->idle_us) ||
	    call->idle_us > TOW_POLL_IDLE_MAX_US)
		return -EINVAL;
	if (polls && !call->idle_us)
		call->idle_us = TOW_POLL_IDLE_US;
	return 0;
}

static int tow_queue_check_sizes(struct tow_queue_create *call)
{
	if (!call->sq_entries || call->sq_entries > TOW_SQ_ENTRIES_MAX)
		return -EINVAL;
	if (!call->cq_entries)
		call->cq_entries = 2 * call->sq_entries;
	if (call->cq_entries < call->sq_entries ||
	    call->cq_entries > TOW_CQ_ENTRIES_MAX)
		return -EINVAL;
	call->sq_entries = roundup_pow_of_two(call->sq_entries);
	call->cq_entries = roundup_pow_of_two(call->cq_entries);
	return 0;
}

/* Return: a descriptor, which is not installed yet; or a negative errno. */
static int tow_queue_make_file(struct tow_queue *queue, struct file **file)
{
	int fd = get_unused_fd_flags(O_CLOEXEC);

	if (fd < 0)
		return fd;
	*file = anon_inode_getfile("[towline-queue]", &tow_queue_fops, queue,
				   O_RDWR | O_CLOEXEC);
	if (IS_ERR(*file)) {
		put_unused_fd(fd);
		return PTR_ERR(*file);
	}
	return fd;
}

static int tow_queue_answer(struct tow_queue *queue,
			    struct tow_queue_create *call,
			    const struct tow_answer *answer)
{
	struct file *file;
	int ret;

	call->map_bytes = tow_queue_map_bytes(queue);
	call->sqes_offset = tow_queue_sqes_offset();
	call->cqes_offset = tow_queue_cqes_offset(queue);
	call->results_offset = tow_queue_results_offset(queue);
	call->fd = tow_queue_make_file(queue, &file);
	if (call->fd < 0) {
		tow_queue_leave_client(queue);
		tow_queue_put(queue);
		return call->fd;
	}
	ret = tow_call_answer(answer, call);
	if (ret) {
		put_unused_fd(call->fd);
		/* Ends the queue: the file has the caller's reference. */
		fput(file);
		return ret;
	}
	fd_install(call->fd, file);
	return 0;
}

/* TOW_IOCTL_QUEUE_CREATE */
int tow_call_queue_create(struct tow_client *client, void *data,
			  const struct tow_answer *answer)
{
	struct tow_queue_create *call = data;
	struct tow_queue *queue;
	int ret;

	BUILD_BUG_ON(sizeof(struct tow_ring) != 256);
	BUILD_BUG_ON(sizeof(struct tow_cqe) != 16);
	BUILD_BUG_ON(sizeof(struct tow_result) != 16);

	ret = tow_queue_check_poll(call) ?: tow_queue_check_sizes(call);
	if (ret)
		return ret;
	queue = tow_queue_new(client, call);
	if (IS_ERR(queue))
		return PTR_ERR(queue);
	trace_tow_queue_create(queue);
	return tow_queue_answer(queue, call, answer);
}
