// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * The regions of a device at one moment.
 */
#include <errno.h>

#include "internal.h"

struct tow_regions {
	struct towi_entries entries;
};

TOW_PUBLIC int tow_region_list_get(const struct tow_device *dev, uint32_t flags,
				   struct tow_regions **list)
{
	struct towi_entries *found;
	int ret;

	if (!list)
		return -EINVAL;
	ret = towi_list_new(dev, TOW_IOCTL_REGION_LIST, flags, sizeof(struct tow_region_info), &found);
	/* Its only field. */
	if (!ret)
		*list = (struct tow_regions *)found;
	return ret;
}

TOW_PUBLIC size_t tow_region_list_count(const struct tow_regions *list)
{
	return list->entries.count;
}

TOW_PUBLIC int tow_region_list_entry(const struct tow_regions *list, size_t index,
				     struct tow_region_info *info)
{
	return towi_entry_give(&list->entries, index, TOWI_INFO_SIZE_FIRST, info);
}

TOW_PUBLIC void tow_region_list_free(struct tow_regions *list)
{
	towi_list_free(list ? &list->entries : NULL);
}
