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

#include "directory.h"
#include "limits.h"
#include "uapi/towline.h"

struct file;
struct pid;
struct tow_device;
struct tow_poller;
struct tow_process;
struct tow_region;
struct user_namespace;

/**
 * struct tow_client - one open file and its opener
 * @dev: the device, with a reference
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
 * @handles: struct tow_handle by index
 * @dir: its handles of exports and remote ranges
 * @queues: struct tow_queue, each with a reference
 * @generation: of the handle that was made last, of whatever kind
 * @ended: its process has exited or executed another program, or the file is
 *	closed; there are no handles and there will be none
 * @joined: it is in a job of its choice
 * @job_id: its job; all zero: its user's own
 */
struct tow_client {
	struct tow_device	*dev;
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
	/* protects handles, dir, queues, generation, ended, joined, job_id */
	struct mutex		lock;
	struct xarray		handles;
	struct tow_client_dir	dir;
	struct list_head	queues;
	u32			generation;
	bool			ended;
	bool			joined;
	u8			job_id[TOW_JOB_ID_BYTES];
};

/**
 * struct tow_handle - a client's way to a region
 * @region: with a reference
 * @flags: TOW_REGION_READONLY or 0
 * @generation: tells it from others that had its index
 * @owner: the client made the region, or took it over
 * @charge: if it did not: one region
 * @rcu: frees it: handles are looked up without the lock
 */
struct tow_handle {
	struct tow_region	*region;
	u32			flags;
	u32			generation;
	bool			owner;
	struct tow_charge	charge;
	struct rcu_head		rcu;
};

/*
 * Does a number name the handle with this generation, for those who look without
 * the lock?  Until a handle is complete that is 0, as in no number.
 */
static inline bool tow_handle_is(const u32 *generation, u64 number)
{
	/* Pairs with the release that completes it. */
	u32 complete = smp_load_acquire(generation);

	return complete && complete == upper_32_bits(number);
}

/* client.c */
int tow_client_add_handle(struct tow_client *client, struct tow_handle *handle,
			  u64 *number);
struct tow_handle *tow_client_take_handle(struct tow_client *client,
					  u64 number);
void tow_client_job(struct tow_client *client, u8 job_id[TOW_JOB_ID_BYTES]);
int tow_client_join(struct tow_client *client,
		    const u8 job_id[TOW_JOB_ID_BYTES]);

/* call.c */
int tow_file_copy_in(void *to, u32 known, u32 published,
		     const void __user *from, u32 *user_size);
int tow_file_copy_out(void __user *user, void *from, u32 known,
		      u32 user_size);

struct tow_process *tow_process_get(void);
void tow_process_add(struct tow_process *process, struct tow_client *client);
void tow_process_remove(struct tow_process *process,
			struct tow_client *client);
void tow_process_put(struct tow_process *process);
bool tow_process_is_current(struct tow_process *process);
void tow_process_cleanup(void);

/* chardev.c */
void tow_client_end(struct tow_client *client);

#endif /* TOW_CLIENT_H */
