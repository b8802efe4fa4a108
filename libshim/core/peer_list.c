// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * The peers of a device at one moment.
 */
#include <errno.h>

#include "internal.h"

struct tow_peers {
	struct towi_entries entries;
};

TOW_PUBLIC int tow_peer_list_get(const struct tow_device *dev, uint32_t flags,
				 struct tow_peers **list)
{
	struct towi_entries *found;
	int ret;

	if (!list)
		return -EINVAL;
	ret = towi_list_new(dev, TOW_IOCTL_PEER_LIST, flags, sizeof(struct tow_peer_info), &found);
	/* Its only field. */
	if (!ret)
		*list = (struct tow_peers *)found;
	return ret;
}

TOW_PUBLIC size_t tow_peer_list_count(const struct tow_peers *list)
{
	return list->entries.count;
}

TOW_PUBLIC int tow_peer_list_entry(const struct tow_peers *list, size_t index,
				   struct tow_peer_info *info)
{
	return towi_entry_give(&list->entries, index, TOWI_PEER_INFO_SIZE_FIRST, info);
}

TOW_PUBLIC void tow_peer_list_free(struct tow_peers *list)
{
	towi_list_free(list ? &list->entries : NULL);
}
