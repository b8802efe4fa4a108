// SPDX-License-Identifier: GPL-2.0
/*
 * A client's handles, and the processes that have clients.
 *
 * A handle is an index and a generation: the index finds it, the generation
 * tells it from what had the index before.  Handles are made and given up under
 * the client's lock.  They are looked up without it, by RCU, as each entry of a
 * queue names one: the user of a handle takes a reference to its region, export or remote
 * range, if that is not about to go.
 *
 * A client ends with the process that opened it, whoever else holds the file: a child
 * that was forked must not keep alive what a dead trainer had.  A process is its memory
 * map: threads share it, exit and exec end it.  The map tells through an mmu_notifier,
 * of which there is one for each process, however many clients it has.
 */
#include <linux/mmu_notifier.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "core/core.h"

/**
 * tow_client_add_handle - make a handle usable
 * @client: the client
 * @handle: allocated, complete but for its generation; the client's on success
 * @number: what the program calls it
 *
 * Return: 0; -EPERM: the client has ended; -ENOMEM.
 */
int tow_client_add_handle(struct tow_client *client, struct tow_handle *handle,
			  u64 *number)
{
	u32 index;
	int ret;

	mutex_lock(&client->lock);
	ret = client->ended ? -EPERM :
	      xa_alloc(&client->handles, &index, handle, xa_limit_31b,
		       GFP_KERNEL_ACCOUNT);
	if (!ret) {
		/* Never 0, so that no number is. */
		if (!++client->generation)
			client->generation = 1;
		/* Pairs with tow_client_find_handle(). */
		smp_store_release(&handle->generation, client->generation);
		*number = (u64)handle->generation << 32 | index;
	}
	mutex_unlock(&client->lock);
	return ret;
}

/**
 * tow_client_take_handle - take a handle away from its client
 * @client: the client
 * @number: what the program calls it
 * @ops: its kind
 *
 * Return: the handle, the caller's now; or NULL: there is none of that kind.
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
 * tow_handle_drop - the end of a handle
 * @handle: in no client's table; gone afterwards
 * @destroy: see struct tow_handle_ops
 */
void tow_handle_drop(struct tow_handle *handle, bool destroy)
{
	handle->ops->drop(handle, destroy);
	kfree_rcu(handle, rcu);
}

/**
 * tow_client_drop_handles - the end of all handles of a kind
 * @client: the client, ended: none is added any more
 * @ops: the kind
 *
 * May be called by two at once.
 */
void tow_client_drop_handles(struct tow_client *client,
			     const struct tow_handle_ops *ops)
{
	struct tow_handle *handle;
	unsigned long index;

	xa_for_each(&client->handles, index, handle) {
		rcu_read_lock();
		handle = xa_load(&client->handles, index);
		if (!handle || handle->ops != ops) {
			rcu_read_unlock();
			continue;
		}
		rcu_read_unlock();
		/* Another end of this client may have taken it since: see again under the lock. */
		mutex_lock(&client->lock);
		handle = xa_load(&client->handles, index);
		if (handle && handle->ops == ops)
			xa_erase(&client->handles, index);
		else
			handle = NULL;
		mutex_unlock(&client->lock);
		if (handle)
			tow_handle_drop(handle, false);
		cond_resched();
	}
}

/**
 * tow_client_job - which job is it in?
 * @client: the client
 * @job_id: where to
 */
void tow_client_job(struct tow_client *client, u8 job_id[TOW_JOB_ID_BYTES])
{
	mutex_lock(&client->lock);
	memcpy(job_id, client->job_id, TOW_JOB_ID_BYTES);
	mutex_unlock(&client->lock);
}

/**
 * struct tow_process - a process that opened a device
 * @notifier: tells when its memory map ends; counts the clients, which hold it
 * @lock: protects @clients
 * @clients: its clients, until they are released
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

/* The process has exited, or executes another program. */
static void tow_process_end(struct mmu_notifier *notifier,
			    struct mm_struct *mm)
{
	struct tow_process *process = container_of(notifier,
						   struct tow_process,
						   notifier);
	struct tow_client *client;

	mutex_lock(&process->lock);
	list_for_each_entry(client, &process->clients, link)
		client->end(client);
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
 * Return: it, with a reference for one client; or an ERR_PTR().
 */
struct tow_process *tow_process_get(void)
{
	struct mmu_notifier *notifier;

	/* A kernel thread is no process that could have clients. */
	if (!current->mm)
		return ERR_PTR(-EINVAL);
	notifier = mmu_notifier_get(&tow_process_ops, current->mm);
	if (IS_ERR(notifier))
		return ERR_CAST(notifier);
	return container_of(notifier, struct tow_process, notifier);
}

/**
 * tow_process_put - give the reference back
 * @process: from tow_process_get(); may be gone afterwards
 */
void tow_process_put(struct tow_process *process)
{
	mmu_notifier_put(&process->notifier);
}

/**
 * tow_process_add - tell a client when the process ends
 * @process: the process
 * @client: the client, complete
 */
void tow_process_add(struct tow_process *process, struct tow_client *client)
{
	mutex_lock(&process->lock);
	list_add_tail(&client->link, &process->clients);
	mutex_unlock(&process->lock);
}

/**
 * tow_process_remove - undo tow_process_add()
 * @process: the process
 * @client: the client; not told anything any more on return
 */
void tow_process_remove(struct tow_process *process, struct tow_client *client)
{
	mutex_lock(&process->lock);
	list_del(&client->link);
	mutex_unlock(&process->lock);
}

/**
 * tow_process_is_current - is it the process that calls?
 * @process: the process
 *
 * Return: true if it is.
 */
bool tow_process_is_current(struct tow_process *process)
{
	return process->notifier.mm == current->mm;
}

/**
 * tow_process_cleanup - wait until nothing of this file is in use
 *
 * For unloading: processes are freed some time after they were put.
 */
void tow_process_cleanup(void)
{
	mmu_notifier_synchronize();
}

/**
 * tow_client_join - be in a job from now on
 * @client: the client
 * @job_id: the job
 *
 * Return: 0; -EBUSY: it is in another one.
 */
int tow_client_join(struct tow_client *client,
		    const u8 job_id[TOW_JOB_ID_BYTES])
{
	int ret = 0;

	mutex_lock(&client->lock);
	if (client->joined &&
	    memcmp(client->job_id, job_id, sizeof(client->job_id)))
		ret = -EBUSY;
	memcpy(client->job_id, ret ? client->job_id : job_id,
	       sizeof(client->job_id));
	client->joined = true;
	mutex_unlock(&client->lock);
	return ret;
}
