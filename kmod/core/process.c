// SPDX-License-Identifier: GPL-2.0
/*
 * Processes that have clients, so that a client ends with the process that
 * opened it, whoever else holds the file: a child that was forked must not keep
 * alive what a dead trainer had.
 *
 * A process is its memory map: threads share it, exit and exec end it.  The map
 * tells through an mmu_notifier, of which there is one for each process, however
 * many clients it has.
 */
#include <linux/mmu_notifier.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "client.h"

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
		tow_client_end(client);
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
