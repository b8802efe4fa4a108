// SPDX-License-Identifier: GPL-2.0
/*
 * A client's handles, and the processes that have clients.
 *
 * A handle's number is an index and a generation: the index finds the handle,
 * the generation tells it from handles that had the index before.  Handles are
 * made and given up under the client's lock.  They are looked up without the
 * lock, by RCU, as each entry of a queue names one: the lookup takes a
 * reference to the region, export or remote range, unless the last reference is
 * already gone.
 *
 * A client ends with the process that opened it, even if other processes hold
 * the file: a forked child must not keep alive the memory of a dead trainer.  A
 * process is its memory map: threads share it, exit and exec end it.  An
 * mmu_notifier reports the map's end; a process has one for all its clients.
 *
 * Every process with a notifier of any driver waits, when it exits, for the
 * notifiers that are being called at that moment.  So ours only marks the
 * clients as ended; a work item, one for each client, takes away what it has.
 * The items have a work queue of their own: an end may wait for a device's
 * removal, which waits for work in the others.
 */
#include <linux/mmu_notifier.h>
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "core/core.h"

/**
 * tow_client_reserve_handle - give a handle a number, by which it is not found yet
 * @client: the client
 * @handle: allocated; tow_client_publish_handle() or tow_client_unreserve_handle()
 *	follows
 * @number: where to: the handle's number
 *
 * Return: 0; -EPERM: the client has ended; -ENOMEM.
 */
int tow_client_reserve_handle(struct tow_client *client,
			      struct tow_handle *handle, u64 *number)
{
	u32 index;
	int ret;

	mutex_lock(&client->lock);
	ret = READ_ONCE(client->ended) ? -EPERM :
	      xa_alloc(&client->handles, &index, handle, xa_limit_31b,
		       GFP_KERNEL_ACCOUNT);
	if (!ret) {
		/* Never 0: a handle without a generation is not usable. */
		if (!++client->generation)
			client->generation = 1;
		*number = (u64)client->generation << 32 | index;
	}
	mutex_unlock(&client->lock);
	return ret;
}

/**
 * tow_client_unreserve_handle - undo tow_client_reserve_handle()
 * @client: the client
 * @number: from there; the handle is the caller's, who drops it
 */
void tow_client_unreserve_handle(struct tow_client *client, u64 number)
{
	mutex_lock(&client->lock);
	xa_erase(&client->handles, lower_32_bits(number));
	mutex_unlock(&client->lock);
}

/**
 * tow_client_publish_handle - make a handle usable
 * @client: the client
 * @handle: complete but for its generation; the client's on success
 * @number: from tow_client_reserve_handle()
 *
 * Return: 0; -EPERM: the client has ended; or what the handle's kind says.  The caller
 * drops the handle then.
 */
int tow_client_publish_handle(struct tow_client *client,
			      struct tow_handle *handle, u64 number)
{
	int ret = 0;

	mutex_lock(&client->lock);
	if (READ_ONCE(client->ended))
		ret = -EPERM;
	else if (handle->ops->publish)
		ret = handle->ops->publish(handle);
	if (ret)
		xa_erase(&client->handles, lower_32_bits(number));
	else
		/* Pairs with tow_client_find_handle(). */
		smp_store_release(&handle->generation, upper_32_bits(number));
	mutex_unlock(&client->lock);
	return ret;
}

/**
 * tow_client_add_handle - reserve and publish a handle
 * @client: the client
 * @handle: complete but for its generation; the client's on success
 * @number: where to: the handle's number
 *
 * Return: 0; -EPERM: the client has ended; -ENOMEM; or what the handle's kind says.  The
 * caller drops the handle then: others may look at it.
 */
int tow_client_add_handle(struct tow_client *client, struct tow_handle *handle,
			  u64 *number)
{
	return tow_client_reserve_handle(client, handle, number) ?:
	       tow_client_publish_handle(client, handle, *number);
}

/**
 * tow_client_take_handle - take a handle away from its client
 * @client: the client
 * @number: the handle's number
 * @ops: the handle's kind
 *
 * Return: the handle, which the caller drops; NULL: the client has no such
 * handle.
 */
struct tow_handle *tow_client_take_handle(struct tow_client *client, u64 number,
					  const struct tow_handle_ops *ops)
{
	struct tow_handle *handle;

	mutex_lock(&client->lock);
	handle = tow_client_find_handle(client, number, ops);
	if (handle)
		xa_erase(&client->handles, lower_32_bits(number));
	mutex_unlock(&client->lock);
	return handle;
}

/**
 * tow_handle_drop - end a handle
 * @handle: in no client's table; freed
 * @destroy: see struct tow_handle_ops
 */
void tow_handle_drop(struct tow_handle *handle, bool destroy)
{
	handle->ops->drop(handle, destroy);
	kfree_rcu(handle, rcu);
}

/* The first handle of a kind from an index on, taken away; or NULL. */
static struct tow_handle *tow_client_take_kind(struct tow_client *client,
					       const struct tow_handle_ops *ops,
					       unsigned long *index)
{
	struct tow_handle *handle;

	mutex_lock(&client->lock);
	handle = xa_find(&client->handles, index, ULONG_MAX, XA_PRESENT);
	/* A handle without a generation belongs to the call that reserved it. */
	while (handle && (handle->ops != ops || !handle->generation))
		handle = xa_find_after(&client->handles, index, ULONG_MAX,
				       XA_PRESENT);
	if (handle)
		xa_erase(&client->handles, *index);
	mutex_unlock(&client->lock);
	return handle;
}

/**
 * tow_client_drop_handles - end all of a client's handles of a kind
 * @client: the client, ended: it gets no more handles
 * @ops: the kind
 */
void tow_client_drop_handles(struct tow_client *client,
			     const struct tow_handle_ops *ops)
{
	struct tow_handle *handle;
	unsigned long index = 0;

	while ((handle = tow_client_take_kind(client, ops, &index))) {
		tow_handle_drop(handle, false);
		cond_resched();
	}
}

/**
 * tow_client_job - which job is a client in?
 * @client: the client
 * @job_id: where to: the job; all zero: its user's own
 *
 * May be called in any context.
 */
void tow_client_job(struct tow_client *client, u8 job_id[TOW_JOB_ID_BYTES])
{
	memset(job_id, 0, TOW_JOB_ID_BYTES);
	/* Pairs with tow_client_join(): the job is complete, and stays. */
	if (smp_load_acquire(&client->joined))
		memcpy(job_id, client->job_id, TOW_JOB_ID_BYTES);
}

/**
 * struct tow_process - a process that opened a device
 * @notifier: reports the end of the memory map; each client has a reference
 * @lock: protects @clients
 * @clients: struct tow_client that have not ended
 */
struct tow_process {
	struct mmu_notifier	notifier;
	/* protects clients */
	struct mutex		lock;
	struct list_head	clients;
};

static struct mmu_notifier *tow_process_alloc(struct mm_struct *mm)
{
	struct tow_process *process;

	process = kzalloc(sizeof(*process), GFP_KERNEL_ACCOUNT);
	if (!process)
		return ERR_PTR(-ENOMEM);
	mutex_init(&process->lock);
	INIT_LIST_HEAD(&process->clients);
	return &process->notifier;
}

static void tow_process_free(struct mmu_notifier *notifier)
{
	kfree(container_of(notifier, struct tow_process, notifier));
}

static void tow_client_end_work(struct work_struct *work)
{
	struct tow_client *client = container_of(work, struct tow_client,
						 end_work);

	client->end(client);
}

/* The client gets nothing more, and loses what it has, once: is it this time? */
static bool tow_client_begin_end(struct tow_client *client)
{
	lockdep_assert_held(&client->process->lock);
	if (client->ended)
		return false;
	WRITE_ONCE(client->ended, true);
	list_del(&client->link);
	queue_work(tow_end_wq, &client->end_work);
	return true;
}

/* The process has exited, or executes another program. */
static void tow_process_end(struct mmu_notifier *notifier,
			    struct mm_struct *mm)
{
	struct tow_process *process = container_of(notifier,
						   struct tow_process,
						   notifier);
	struct tow_client *client, *next;

	mutex_lock(&process->lock);
	list_for_each_entry_safe(client, next, &process->clients, link)
		tow_client_begin_end(client);
	mutex_unlock(&process->lock);
}

static const struct mmu_notifier_ops tow_process_ops = {
	.release	= tow_process_end,
	.alloc_notifier	= tow_process_alloc,
	.free_notifier	= tow_process_free,
};

/**
 * tow_process_get - the current process
 *
 * Signals wait until it is done, as mmu_notifier_get() gives up on any: a
 * process that gets them often, from a profiler's timer, would never have a
 * client.  SIGKILL ends it.
 *
 * Return: the process, with a reference for one client; -EINTR: it is to end;
 * or another ERR_PTR().
 */
struct tow_process *tow_process_get(void)
{
	struct mmu_notifier *notifier;
	sigset_t blocked, before;

	/* A kernel thread has no memory map, and can be no client. */
	if (!current->mm)
		return ERR_PTR(-EINVAL);
	siginitsetinv(&blocked, sigmask(SIGKILL));
	sigprocmask(SIG_BLOCK, &blocked, &before);
	notifier = mmu_notifier_get(&tow_process_ops, current->mm);
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (IS_ERR(notifier))
		return ERR_CAST(notifier);
	return container_of(notifier, struct tow_process, notifier);
}

/**
 * tow_process_put - give a reference back
 * @process: from tow_process_get(); may be gone afterwards
 */
void tow_process_put(struct tow_process *process)
{
	mmu_notifier_put(&process->notifier);
}

/**
 * tow_process_add - end a client when its process ends
 * @process: the process
 * @client: the client, complete but for what this fills in
 */
void tow_process_add(struct tow_process *process, struct tow_client *client)
{
	INIT_WORK(&client->end_work, tow_client_end_work);
	client->process = process;
	mutex_lock(&process->lock);
	list_add_tail(&client->link, &process->clients);
	mutex_unlock(&process->lock);
}

/**
 * tow_process_is_current - is a process the one that calls?
 * @process: the process
 *
 * Return: true if it is.
 */
bool tow_process_is_current(struct tow_process *process)
{
	return process->notifier.mm == current->mm;
}

/**
 * tow_client_end - end a client: its file is closed, or an administrator says so
 * @client: the client, which has nothing any more on return; caller keeps it
 *
 * Return: false if it had ended before.
 */
bool tow_client_end(struct tow_client *client)
{
	bool first;

	mutex_lock(&client->process->lock);
	first = tow_client_begin_end(client);
	mutex_unlock(&client->process->lock);
	flush_work(&client->end_work);
	return first;
}

/**
 * tow_client_is_ending - will a client soon have nothing any more?
 * @client: the client; caller keeps it
 *
 * Return: true if it has ended, or its process has been killed.
 */
bool tow_client_is_ending(struct tow_client *client)
{
	struct task_struct *task;
	bool ending;

	rcu_read_lock();
	task = pid_task(client->pid, PIDTYPE_TGID);
	ending = !task || READ_ONCE(task->signal->flags) & SIGNAL_GROUP_EXIT;
	rcu_read_unlock();
	return ending || READ_ONCE(client->ended);
}

/**
 * tow_pid_number - a process as those who look know it
 * @pid: the process
 *
 * Return: its number in the caller's PID namespace; 0: it has ended, or is not there.
 */
s32 tow_pid_number(struct pid *pid)
{
	s32 number = 0;

	rcu_read_lock();
	if (pid_task(pid, PIDTYPE_TGID))
		number = pid_vnr(pid);
	rcu_read_unlock();
	return number;
}

/**
 * tow_process_cleanup - wait until all processes are freed
 *
 * For unloading: a process is freed some time after its last tow_process_put().
 */
void tow_process_cleanup(void)
{
	mmu_notifier_synchronize();
}

/**
 * tow_client_join - put a client into a job
 * @client: the client
 * @job_id: the job
 *
 * Return: 0; -EBUSY: the client has joined another job.
 */
int tow_client_join(struct tow_client *client,
		    const u8 job_id[TOW_JOB_ID_BYTES])
{
	int ret = 0;

	mutex_lock(&client->lock);
	if (!client->joined) {
		memcpy(client->job_id, job_id, TOW_JOB_ID_BYTES);
		/* Pairs with tow_client_job(). */
		smp_store_release(&client->joined, true);
	} else if (memcmp(client->job_id, job_id, TOW_JOB_ID_BYTES)) {
		ret = -EBUSY;
	}
	mutex_unlock(&client->lock);
	return ret;
}
