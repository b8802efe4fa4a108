// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * The regions of a device, which the kernel tells a few at a time.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define FIRST_ROOM 32

struct tow_regions {
	size_t count;
	size_t room;
	struct tow_region_info *entries;
};

/* Zeroed, as an older kernel leaves the end of an entry alone. */
static int list_grow(struct tow_regions *list)
{
	size_t room = list->room ? 2 * list->room : FIRST_ROOM;
	struct tow_region_info *entries;

	entries = reallocarray(list->entries, room, sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	memset(&entries[list->room], 0, (room - list->room) * sizeof(*entries));
	list->entries = entries;
	list->room = room;
	return 0;
}

/* Count what the kernel has filled in, each entry with the size it has. */
static void list_take(struct tow_regions *list, const struct tow_region_list *call)
{
	size_t end = list->count + call->count;

	while (list->count < end)
		list->entries[list->count++].size = call->entry_size;
}

static int list_ask(const struct tow_device *dev, uint32_t flags, struct tow_regions *list)
{
	struct tow_region_list call = { .size = sizeof(call), .flags = flags };
	int ret;

	do {
		if (list->count == list->room) {
			ret = list_grow(list);
			if (ret)
				return ret;
		}
		/* The kernel's answer is in the same fields. */
		call.size = sizeof(call);
		call.entry_size = sizeof(*list->entries);
		call.entries = (uintptr_t)&list->entries[list->count];
		call.count = (uint32_t)(list->room - list->count);
		ret = towi_call(dev, TOW_IOCTL_REGION_LIST, &call);
		if (ret)
			return ret;
		list_take(list, &call);
	} while (call.count);
	return 0;
}

TOW_PUBLIC int tow_region_list_get(const struct tow_device *dev, uint32_t flags,
				   struct tow_regions **list)
{
	struct tow_regions *found;
	int ret;

	if (!dev || !list)
		return -EINVAL;
	found = calloc(1, sizeof(*found));
	if (!found)
		return -ENOMEM;
	ret = list_ask(dev, flags, found);
	if (ret)
		tow_region_list_free(found);
	else
		*list = found;
	return ret;
}

TOW_PUBLIC size_t tow_region_list_count(const struct tow_regions *list)
{
	return list->count;
}

TOW_PUBLIC int tow_region_list_entry(const struct tow_regions *list, size_t index,
				     struct tow_region_info *info)
{
	if (!info || index >= list->count)
		return -EINVAL;
	return towi_info_give(&list->entries[index], info);
}

TOW_PUBLIC void tow_region_list_free(struct tow_regions *list)
{
	if (!list)
		return;
	free(list->entries);
	free(list);
}
