// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * The exports of a device at one moment.
 */
#include <errno.h>

#include "internal.h"

struct tow_exports {
	struct towi_entries entries;
};

TOW_PUBLIC int tow_export_list_get(const struct tow_device *dev, uint32_t flags,
				   struct tow_exports **list)
{
	struct towi_entries *found;
	int ret;

	if (!list)
		return -EINVAL;
	ret = towi_list_new(dev, TOW_IOCTL_EXPORT_LIST, flags, sizeof(struct tow_export_info), &found);
	/* Its only field. */
	if (!ret)
		*list = (struct tow_exports *)found;
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
	towi_list_free(list ? &list->entries : NULL);
}
