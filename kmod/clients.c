// SPDX-License-Identifier: GPL-2.0
/*
 * The calls about clients: their jobs, what each is charged, and that they end.
 *
 * An account lasts as long as something is charged to it: a region that lingers, or
 * a slab that is held, outlives the client.
 */
#include <crypto/sha2.h>
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/string.h>
#include <linux/uidgid.h>

#include "core/core.h"
#include "root.h"

/* Published size: of the first version that had the structure, for ever. */
#define TOW_ACCOUNT_INFO_PUBLISHED	80

/* TOW_IOCTL_JOIN */
int tow_call_join(struct tow_client *client, void *data,
		  const struct tow_answer *answer)
{
	u8 digest[SHA256_DIGEST_SIZE];
	struct tow_join *join = data;
	int ret;

	/* A key that somebody forgot to fill in is everybody's. */
	if (join->flags ||
	    !memchr_inv(join->job_key, 0, sizeof(join->job_key)))
		return -EINVAL;
	sha256(join->job_key, sizeof(join->job_key), digest);
	ret = tow_client_join(client, digest);
	memcpy(join->job_id, digest, sizeof(join->job_id));
	if (!ret)
		ret = tow_call_answer(answer, join);
	/* Leave no copy of the key on the stack. */
	memzero_explicit(join, sizeof(*join));
	return ret;
}

/* Caller holds the lock of tow_limits.clients, so an open file stays open. */
static void tow_account_describe(struct tow_account *account,
				 struct tow_account_info *info)
{
	struct tow_client *client = account->client;

	spin_lock(&account->limits->lock);
	info->charged_bytes = account->used[TOW_RES_BYTES];
	info->held_bytes = account->held_bytes;
	info->mrs = account->used[TOW_RES_MRS];
	info->regions = account->used[TOW_RES_REGIONS];
	info->exports = account->used[TOW_RES_EXPORTS];
	info->queue_entries = account->used[TOW_RES_QUEUE_ENTRIES];
	spin_unlock(&account->limits->lock);
	info->id = account->id;
	info->cgroup_id = account->opener_cgroup;
	info->uid = from_kuid_munged(current_user_ns(), account->kuid);
	if (!client) {
		info->flags = TOW_ACCOUNT_ENDED | TOW_ACCOUNT_CLOSED;
		return;
	}
	if (READ_ONCE(client->ended))
		info->flags = TOW_ACCOUNT_ENDED;
	info->pid = tow_pid_number(client->pid);
	tow_client_job(client, info->job_id);
}

static int tow_account_list_next(struct tow_client *client, u32 flags,
				 u64 *cursor, void *info)
{
	struct tow_limits *limits = &client->dev->limits;
	struct tow_account *account, *own = client->account;
	unsigned long id = *cursor;
	bool shown;

	/* What is found stays until this unlocks: see tow_account_release(). */
	xa_lock(&limits->clients);
	account = xa_find_after(&limits->clients, &id, ULONG_MAX, XA_PRESENT);
	shown = account && (flags & TOW_LIST_ALL ||
			    (account->parent == own->parent &&
			     uid_eq(account->opener, own->opener)));
	if (shown)
		tow_account_describe(account, info);
	xa_unlock(&limits->clients);
	*cursor = id;
	return account ? shown : -ENOENT;
}

const struct tow_listing tow_account_listing = {
	.flags			= TOW_LIST_ALL,
	.entry_published	= TOW_ACCOUNT_INFO_PUBLISHED,
	.entry_bytes		= sizeof(struct tow_account_info),
	.next			= tow_account_list_next,
};

/* How many of a process's clients end. */
static u32 tow_clients_end(struct tow_limits *limits, struct pid *pid)
{
	/* It may open the device again and again. */
	unsigned long cursor = 0, last = READ_ONCE(limits->last_id);
	struct tow_account *account;
	struct tow_client *client;
	u32 count = 0;

	do {
		client = NULL;
		xa_lock(&limits->clients);
		account = xa_find_after(&limits->clients, &cursor, last,
					XA_PRESENT);
		if (account && account->client && account->client->pid == pid) {
			/* Its file has a reference as long as it is there. */
			client = account->client;
			kref_get(&client->refs);
		}
		xa_unlock(&limits->clients);
		if (client) {
			count += tow_client_end(client);
			tow_client_put(client);
		}
		cond_resched();
	} while (account && !fatal_signal_pending(current));
	return count;
}

/* TOW_IOCTL_CLIENT_END */
int tow_call_client_end(struct tow_client *client, void *data,
			const struct tow_answer *answer)
{
	struct tow_client_end *call = data;
	struct pid *pid;

	if (call->flags || call->pid <= 0)
		return -EINVAL;
	if (!capable(CAP_NET_ADMIN))
		return -EPERM;
	pid = find_get_pid(call->pid);
	call->count = pid ? tow_clients_end(&client->dev->limits, pid) : 0;
	put_pid(pid);
	return call->count ? tow_call_answer(answer, call) : -ESRCH;
}
