// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * The exports of a device at one moment.
 */
#include <errno.h>
#include <stdlib.h>

#include "internal.h"

struct tow_exports {
	struct towi_entries entries;
};

TOW_PUBLIC int tow_export_list_get(const struct tow_device *dev, uint32_t flags,
				   struct tow_exports **list)
{
	struct tow_exports *found;
	int ret;

	if (!dev || !list)
		return -EINVAL;
	found = malloc(sizeof(*found));
	if (!found)
		return -ENOMEM;
	ret = towi_entries_ask(dev, TOW_IOCTL_EXPORT_LIST, flags, sizeof(struct tow_export_info),
			       &found->entries);
	if (ret)
		free(found);
	else
		*list = found;
	return ret;
}

TOW_PUBLIC size_t tow_export_list_count(const struct tow_exports *list)
{
	return list->entries.count;
}

TOW_PUBLIC int tow_export_list_entry(const struct tow_exports *list, size_t index,
				     struct tow_export_info *info)
{
	return towi_entry_give(&list->entries, index, TOWI_EXPORT_INFO_SIZE_FIRST, info);
}

TOW_PUBLIC void tow_export_list_free(struct tow_exports *list)
{
	if (!list)
		return;
	towi_entries_free(&list->entries);
	free(list);
}
