/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A client: one open file of the device node, and the process that opened it.
 */
#ifndef TOW_CLIENT_H
#define TOW_CLIENT_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/types.h>
#include <linux/uidgid.h>
#include <linux/xarray.h>

#include "call.h"
#include "limits.h"
#include "uapi/towline.h"

struct file;
struct pid;
struct tow_device;
struct tow_poller;
struct tow_process;
struct user_namespace;

/**
 * struct tow_client - one open file and its opener
 * @dev: the device, with a reference
 * @end: takes away from it what it has; called when its process is over, perhaps
 *	twice
 * @process: who opened it
 * @link: in tow_process.clients
 * @account: what it has
 * @key: whom it is charged to: see chardev.c
 * @kuid: the opener's user, for whom its names are
 * @user_ns: and user namespace, with a reference
 * @pid: the opener, with a reference
 * @cgroup_id: the opener's cgroup
 * @writable: opened with O_RDWR
 * @poll_lock: held by who makes @poller
 * @poller: takes the entries of its polled queues, with a reference; NULL: none
 * @lock: protects what follows
 * @handles: struct tow_handle by index, of all kinds
 * @queues: struct tow_queue, each with a reference
 * @generation: of the handle that was made last
 * @ended: its process has exited or executed another program, or the file is
 *	closed; there are no handles and there will be none
 * @joined: it is in a job of its choice
 * @job_id: its job; all zero: its user's own
 */
struct tow_client {
	struct tow_device	*dev;
	void			(*end)(struct tow_client *client);
	struct tow_process	*process;
	struct list_head	link;
	struct tow_account	*account;
	kuid_t			key;
	kuid_t			kuid;
	struct user_namespace	*user_ns;
	struct pid		*pid;
	u64			cgroup_id;
	bool			writable;
	/* protects poller */
	struct mutex		poll_lock;
	struct tow_poller	*poller;
	/* protects handles, queues, generation, ended, joined, job_id */
	struct mutex		lock;
	struct xarray		handles;
	struct list_head	queues;
	u32			generation;
	bool			ended;
	bool			joined;
	u8			job_id[TOW_JOB_ID_BYTES];
};

/**
 * struct tow_handle - the beginning of a client's way to something of the device
 * @ops: its kind
 * @generation: tells it from others that had its index; 0 until it is complete
 * @rcu: frees it: handles are looked up without the lock
 */
struct tow_handle {
	const struct tow_handle_ops	*ops;
	u32				generation;
	struct rcu_head			rcu;
};

/**
 * struct tow_handle_ops - a kind of handle
 * @drop: gives back what the handle has; @destroy: the program wants what is behind
 *	it to end, even if it would outlive the client
 */
struct tow_handle_ops {
	void	(*drop)(struct tow_handle *handle, bool destroy);
};

/**
 * tow_client_find_handle - the handle that a number names
 * @client: the client; the caller has its lock, or is in an RCU read-side section
 * @number: what the program calls it
 * @ops: its kind
 *
 * Return: the handle, or NULL: there is none of that kind.  Without the lock it may be
 * on its way out: what is behind it may have no reference left.
 */
static inline struct tow_handle *
tow_client_find_handle(struct tow_client *client, u64 number,
		       const struct tow_handle_ops *ops)
{
	struct tow_handle *handle = xa_load(&client->handles,
					    lower_32_bits(number));
	u32 generation;

	if (!handle)
		return NULL;
	/* Pairs with tow_client_add_handle(); 0 is in no number. */
	generation = smp_load_acquire(&handle->generation);
	if (!generation || generation != upper_32_bits(number) ||
	    handle->ops != ops)
		return NULL;
	return handle;
}

/* client.c */
int tow_client_add_handle(struct tow_client *client, struct tow_handle *handle,
			  u64 *number);
struct tow_handle *tow_client_take_handle(struct tow_client *client, u64 number,
					  const struct tow_handle_ops *ops);
void tow_handle_drop(struct tow_handle *handle, bool destroy);
void tow_client_drop_handles(struct tow_client *client,
			     const struct tow_handle_ops *ops);
void tow_client_job(struct tow_client *client, u8 job_id[TOW_JOB_ID_BYTES]);
int tow_client_join(struct tow_client *client,
		    const u8 job_id[TOW_JOB_ID_BYTES]);

struct tow_process *tow_process_get(void);
void tow_process_add(struct tow_process *process, struct tow_client *client);
void tow_process_remove(struct tow_process *process,
			struct tow_client *client);
void tow_process_put(struct tow_process *process);
bool tow_process_is_current(struct tow_process *process);
void tow_process_cleanup(void);

#endif /* TOW_CLIENT_H */
