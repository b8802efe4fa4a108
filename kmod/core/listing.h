/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Calls that list things.  Their structures are all alike.
 */
#ifndef TOW_LISTING_H
#define TOW_LISTING_H

#include <linux/types.h>

struct tow_client;

/**
 * struct tow_listing - what is listed, and how
 * @flags: those that the call takes
 * @entry_published: published size of an entry
 * @entry_bytes: its size, as the module knows it
 * @next: describes the next one that the client may see, from @cursor on, in
 *	@info, which is zeroed, and moves @cursor; false: there is no more
 */
struct tow_listing {
	u32	flags;
	u32	entry_published;
	u32	entry_bytes;
	bool	(*next)(struct tow_client *client, u32 flags, u64 *cursor,
			void *info);
};

int tow_listing_call(struct tow_client *client,
		     const struct tow_listing *listing, void __user *user);

#endif /* TOW_LISTING_H */
