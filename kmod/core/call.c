// SPDX-License-Identifier: GPL-2.0
/*
 * Calls that list things: regions, peers, exports.
 *
 * Nothing is locked while the program's memory is written, so what comes and goes
 * meanwhile may be missed; cursors only grow, so nothing is told twice.
 */
#include <linux/capability.h>
#include <linux/sched/signal.h>
#include <linux/stddef.h>
#include <linux/uaccess.h>

#include "client.h"
#include "listing.h"

#define TOW_LISTING_PUBLISHED	32
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
		ret = tow_file_copy_out(entries + (size_t)list->count *
					entry_size, &entry,
					listing->entry_bytes, entry_size);
		if (ret)
			return ret;
		list->count++;
		cond_resched();
	}
	return 0;
}

/**
 * tow_listing_call - a call that lists something
 * @client: who calls
 * @listing: what
 * @user: his structure
 *
 * Return: 0; -EINVAL: unknown flags, or entries of a size as it must not be;
 * -EPERM: TOW_LIST_ALL without CAP_NET_ADMIN; -EINTR; -EFAULT; -E2BIG.
 */
int tow_listing_call(struct tow_client *client,
		     const struct tow_listing *listing, void __user *user)
{
	struct tow_region_list list;
	u32 user_size, entry_size;
	int ret;

	ret = tow_file_copy_in(&list, sizeof(list), TOW_LISTING_PUBLISHED, user,
			       &user_size);
	if (ret)
		return ret;
	entry_size = list.entry_size;
	if (list.flags & ~listing->flags ||
	    entry_size < listing->entry_published ||
	    entry_size > TOW_LISTING_ENTRY_MAX || entry_size % sizeof(u64))
		return -EINVAL;
	if (list.flags & TOW_LIST_ALL && !capable(CAP_NET_ADMIN))
		return -EPERM;
	ret = tow_listing_fill(client, listing, &list, entry_size);
	if (ret)
		return ret;
	list.entry_size = min(entry_size, listing->entry_bytes);
	return tow_file_copy_out(user, &list, sizeof(list), user_size);
}
