// SPDX-License-Identifier: GPL-2.0
/*
 * Calls: their structures are copied in, in one place, and out.
 *
 * Calls that list things (regions, peers, exports) have structures that are all alike.
 * Nothing is locked while the program's memory is written, so what comes and goes
 * meanwhile may be missed; cursors only grow, so nothing is told twice.
 */
#include <linux/capability.h>
#include <linux/sched/signal.h>
#include <linux/stddef.h>
#include <linux/uaccess.h>

#include "core/core.h"

#define TOW_LISTING_ENTRY_MAX	4096

/* The same structure, whatever is listed. */
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

/* No structure of the contract is ever larger. */
#define TOW_STRUCT_MAX		4096

/**
 * tow_call_copy_in - read a structure that begins with its size
 * @to: where to
 * @known: its size, as the module knows it
 * @published: its published size; see the contract, whose rules hold
 * @from: the user's
 * @user_size: the size that the user said; he may have changed it since
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
 * @user: the user's
 * @from: the answer; its size is filled in here
 * @known: its size, as the module knows it
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

/* Larger than any entry: what is described before it is copied out. */
union tow_listing_entry {
	u32			size;
	struct tow_region_info	region;
	struct tow_peer_info	peer;
	struct tow_export_info	export;
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
		memset(&entry, 0, sizeof(entry));
		if (!listing->next(client, list->flags, &list->cursor, &entry))
			break;
		if (fatal_signal_pending(current))
			return -EINTR;
		ret = tow_call_copy_out(entries + (size_t)list->count *
					entry_size, &entry,
					listing->entry_bytes, entry_size);
		if (ret)
			return ret;
		list->count++;
		cond_resched();
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
 * Return: 0 or -EFAULT: the program knows of nothing, and what was made for it is to be
 * undone.
 */
int tow_call_answer(const struct tow_answer *answer, void *data)
{
	return tow_call_copy_out(answer->user, data, answer->known,
				 answer->user_size);
}

/**
 * tow_call_run - do what a program calls for
 * @call: which call; it was checked that the client may
 * @client: whose
 * @user: its structure
 *
 * Return: 0; what tow_call_copy_in() says; of a list: -EINVAL: unknown flags, or entries of
 * a size as it must not be, -EPERM: TOW_LIST_ALL without CAP_NET_ADMIN, -EINTR, -EFAULT; or
 * what the call's function says.
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
