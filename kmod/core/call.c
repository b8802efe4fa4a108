// SPDX-License-Identifier: GPL-2.0
/*
 * Calls: one place copies their structures in and out.
 *
 * The structures of calls that list things (regions, peers, exports) have one
 * layout.  No lock is held while the program's memory is written, so a listing
 * may miss things that come or go meanwhile; cursors only grow, so it names
 * nothing twice.
 */
#include <linux/capability.h>
#include <linux/sched/signal.h>
#include <linux/stddef.h>
#include <linux/uaccess.h>

#include "core/core.h"

#define TOW_LISTING_ENTRY_MAX	4096

/* The layout of every call that lists things. */
#define TOW_LISTING_LIKE(type)						\
	static_assert(sizeof(struct type) ==				\
		      sizeof(struct tow_region_list) &&			\
		      offsetof(struct type, cursor) ==			\
		      offsetof(struct tow_region_list, cursor) &&	\
		      offsetof(struct type, entries) ==			\
		      offsetof(struct tow_region_list, entries) &&	\
		      offsetof(struct type, entry_size) ==		\
		      offsetof(struct tow_region_list, entry_size) &&	\
		      offsetof(struct type, count) ==			\
		      offsetof(struct tow_region_list, count))

TOW_LISTING_LIKE(tow_peer_list);
TOW_LISTING_LIKE(tow_export_list);
TOW_LISTING_LIKE(tow_account_list);

/* The contract will have no larger structure. */
#define TOW_STRUCT_MAX		4096

/**
 * tow_call_copy_in - read a structure that begins with its size
 * @to: where to
 * @known: the structure's size, as the module knows it
 * @published: the structure's published size: see the contract
 * @from: the program's structure
 * @user_size: where to: the size in the program's structure, which the program
 *	may have changed since
 *
 * Return: 0, -EFAULT, -EINVAL or -E2BIG.
 */
int tow_call_copy_in(void *to, u32 known, u32 published,
		     const void __user *from, u32 *user_size)
{
	u32 size;

	if (get_user(size, (const u32 __user *)from))
		return -EFAULT;
	if (size < published)
		return -EINVAL;
	if (size > TOW_STRUCT_MAX)
		return -E2BIG;
	*user_size = size;
	return copy_struct_from_user(to, known, from, size);
}

/**
 * tow_call_copy_out - answer in a structure that begins with its size
 * @user: the program's structure
 * @from: the answer; its size is filled in here
 * @known: the answer's size, as the module knows it
 * @user_size: from tow_call_copy_in()
 *
 * Return: 0 or -EFAULT.
 */
int tow_call_copy_out(void __user *user, void *from, u32 known, u32 user_size)
{
	u32 filled = min(user_size, known);

	*(u32 *)from = filled;
	return copy_to_user(user, from, filled) ? -EFAULT : 0;
}

/* Room for an entry of any listing. */
union tow_listing_entry {
	u32			size;
	struct tow_region_info	region;
	struct tow_peer_info	peer;
	struct tow_export_info	export;
	struct tow_account_info	account;
};

static int tow_listing_fill(struct tow_client *client,
			    const struct tow_listing *listing,
			    struct tow_region_list *list, u32 entry_size)
{
	char __user *entries = u64_to_user_ptr(list->entries);
	union tow_listing_entry entry;
	u32 room = list->count;
	int ret;

	list->count = 0;
	while (list->count < room) {
		/* The client may not see most of what there is. */
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
		memset(&entry, 0, sizeof(entry));
		ret = listing->next(client, list->flags, &list->cursor, &entry);
		if (ret < 0)
			break;
		if (!ret)
			continue;
		ret = tow_call_copy_out(entries + (size_t)list->count *
					entry_size, &entry,
					listing->entry_bytes, entry_size);
		if (ret)
			return ret;
		list->count++;
	}
	return 0;
}

static int tow_listing_run(struct tow_client *client,
			   const struct tow_listing *listing,
			   struct tow_region_list *list,
			   const struct tow_answer *answer)
{
	u32 entry_size = list->entry_size;
	int ret;

	if (list->flags & ~listing->flags ||
	    entry_size < listing->entry_published ||
	    entry_size > TOW_LISTING_ENTRY_MAX || entry_size % sizeof(u64))
		return -EINVAL;
	if (list->flags & TOW_LIST_ALL && !capable(CAP_NET_ADMIN))
		return -EPERM;
	ret = tow_listing_fill(client, listing, list, entry_size);
	if (ret)
		return ret;
	list->entry_size = min(entry_size, listing->entry_bytes);
	return tow_call_answer(answer, list);
}

/**
 * tow_call_answer - copy a call's answer out
 * @answer: where to
 * @data: the structure
 *
 * Return: 0; -EFAULT: the program has no answer: the caller undoes the call.
 */
int tow_call_answer(const struct tow_answer *answer, void *data)
{
	return tow_call_copy_out(answer->user, data, answer->known,
				 answer->user_size);
}

/**
 * tow_call_run - do what a program calls for
 * @call: which call; caller has checked that the client may call it
 * @client: the client that calls
 * @user: the program's structure
 *
 * Return: 0; the error of tow_call_copy_in() or of the call's function; of a
 * listing: -EINVAL: unknown flags or a bad size of entries; -EPERM:
 * TOW_LIST_ALL without CAP_NET_ADMIN; -EINTR, -EFAULT.
 */
int tow_call_run(const struct tow_call *call, struct tow_client *client,
		 void __user *user)
{
	struct tow_answer answer = { .user = user, .known = call->known };
	u64 data[TOW_CALL_BYTES / sizeof(u64)];
	int ret;

	if (WARN_ON_ONCE(call->known > sizeof(data) ||
			 call->known < call->published))
		return -ENOTTY;
	ret = tow_call_copy_in(data, call->known, call->published, user,
			       &answer.user_size);
	if (ret)
		return ret;
	if (call->listing)
		return tow_listing_run(client, call->listing,
				       (struct tow_region_list *)data, &answer);
	return call->function(client, data, &answer);
}
