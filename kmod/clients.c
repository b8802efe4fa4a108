// SPDX-License-Identifier: GPL-2.0
/*
 * The calls about clients: their jobs, what there are, and that they end.
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
#define TOW_CLIENT_INFO_PUBLISHED	72

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

/* The next client, with a reference; NULL: there are no more. */
static struct tow_client *tow_client_next(struct tow_device *dev, u64 *cursor)
{
	unsigned long index = *cursor + 1;
	struct tow_client *client;

	/* No client has such a number; the next one is 0 again. */
	if (!index)
		return NULL;
	xa_lock(&dev->clients);
	client = xa_find(&dev->clients, &index, ULONG_MAX, XA_PRESENT);
	if (client) {
		/* Its file has a reference as long as it is there. */
		kref_get(&client->refs);
		*cursor = index;
	}
	xa_unlock(&dev->clients);
	return client;
}

static void tow_client_describe(struct tow_client *client,
				struct tow_client_info *info)
{
	struct tow_account *account = client->account;
	u64 used[TOW_RESOURCES];

	spin_lock(&account->limits->lock);
	memcpy(used, account->used, sizeof(used));
	spin_unlock(&account->limits->lock);
	info->id = client->id;
	info->cgroup_id = client->cgroup_id;
	info->uid = from_kuid_munged(current_user_ns(), client->key);
	info->pid = tow_pid_number(client->pid);
	if (READ_ONCE(client->ended))
		info->flags |= TOW_CLIENT_ENDED;
	tow_client_job(client, info->job_id);
	info->charged_bytes = used[TOW_RES_BYTES];
	info->mrs = used[TOW_RES_MRS];
	info->regions = used[TOW_RES_REGIONS];
	info->exports = used[TOW_RES_EXPORTS];
	info->queue_entries = used[TOW_RES_QUEUE_ENTRIES];
}

/* The next client that the caller may see, described. */
static bool tow_client_list_next(struct tow_client *client, u32 flags,
				 u64 *cursor, void *info)
{
	struct tow_client *other;
	bool shown = false;

	while (!shown && (other = tow_client_next(client->dev, cursor))) {
		shown = flags & TOW_LIST_ALL ||
			other->account->parent == client->account->parent;
		if (shown)
			tow_client_describe(other, info);
		tow_client_put(other);
		cond_resched();
	}
	return shown;
}

const struct tow_listing tow_client_listing = {
	.flags			= TOW_LIST_ALL,
	.entry_published	= TOW_CLIENT_INFO_PUBLISHED,
	.entry_bytes		= sizeof(struct tow_client_info),
	.next			= tow_client_list_next,
};

/* How many of a process's clients end. */
static u32 tow_clients_end(struct tow_device *dev, struct pid *pid)
{
	/* It may open the device again and again. */
	u64 last = READ_ONCE(dev->last_client);
	struct tow_client *client;
	u64 cursor = 0;
	u32 count = 0;

	while (cursor < last && !fatal_signal_pending(current) &&
	       (client = tow_client_next(dev, &cursor))) {
		if (client->pid == pid)
			count += tow_client_end(client);
		tow_client_put(client);
		cond_resched();
	}
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
	call->count = pid ? tow_clients_end(client->dev, pid) : 0;
	put_pid(pid);
	return call->count ? tow_call_answer(answer, call) : -ESRCH;
}
