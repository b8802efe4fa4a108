// SPDX-License-Identifier: GPL-2.0
/*
 * Who is charged what: the list of clients' accounts, each with the user and
 * the cgroup of the process that opened it.  An account lasts as long as something
 * is charged to it: a region that lingers, or a slab that is held, outlives the
 * client.
 */
#include <linux/cred.h>
#include <linux/sched.h>
#include <linux/uidgid.h>

#include "core/core.h"

/* Bytes of struct tow_account_info when it was published. */
#define TOW_ACCOUNT_INFO_PUBLISHED	80

/**
 * tow_account_enrol - let a client's account be listed
 * @account: the account
 * @cgroup_id: the client's cgroup
 *
 * tow_account_release() undoes it.
 *
 * Return: 0 or -ENOMEM.
 */
int tow_account_enrol(struct tow_account *account, u64 cgroup_id)
{
	struct tow_limits *limits = account->limits;
	int ret;

	account->opener_cgroup = cgroup_id;
	xa_lock(&limits->clients);
	account->id = ++limits->last_id;
	ret = xa_err(__xa_store(&limits->clients, account->id, account,
				GFP_KERNEL_ACCOUNT));
	xa_unlock(&limits->clients);
	return ret;
}

static void tow_account_describe(struct tow_account *account,
				 struct tow_account_info *info)
{
	spin_lock(&account->limits->lock);
	info->bytes = account->used[TOW_RES_BYTES];
	info->held_bytes = account->held_bytes;
	info->mrs = account->used[TOW_RES_MRS];
	info->regions = account->used[TOW_RES_REGIONS];
	info->exports = account->used[TOW_RES_EXPORTS];
	info->queue_entries = account->used[TOW_RES_QUEUE_ENTRIES];
	spin_unlock(&account->limits->lock);
	info->id = account->id;
	info->cgroup_id = account->opener_cgroup;
	info->uid = from_kuid_munged(current_user_ns(), account->kuid);
}

/* Describes the next account, if the client may see it; false: none is next. */
static bool tow_account_next(struct tow_client *client, u32 flags, u64 *cursor,
			     void *info, bool *shown)
{
	struct tow_limits *limits = &client->dev->limits;
	struct tow_account *account;
	unsigned long id = *cursor;

	/* What is found stays until this unlocks: see tow_account_release(). */
	xa_lock(&limits->clients);
	account = xa_find_after(&limits->clients, &id, ULONG_MAX, XA_PRESENT);
	*shown = account && (flags & TOW_LIST_ALL ||
			     account->parent == client->account->parent);
	if (*shown)
		tow_account_describe(account, info);
	xa_unlock(&limits->clients);
	*cursor = id;
	return account;
}

static bool tow_account_list_next(struct tow_client *client, u32 flags,
				  u64 *cursor, void *info)
{
	bool shown;

	while (tow_account_next(client, flags, cursor, info, &shown) && !shown)
		cond_resched();
	return shown;
}

const struct tow_listing tow_account_listing = {
	.flags			= TOW_LIST_ALL,
	.entry_published	= TOW_ACCOUNT_INFO_PUBLISHED,
	.entry_bytes		= sizeof(struct tow_account_info),
	.next			= tow_account_list_next,
};
