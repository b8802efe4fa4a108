// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Structures that grow: callers, the library and the kernel may each be of
 * another version, and each structure's first field says how much of it there is.
 *
 * And lists of them, which the kernel tells a few at a time, always in the same
 * way, whatever the list is of.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define FIRST_ROOM 32

/* One call serves for all lists. */
#define SAME_LAYOUT(list) \
	_Static_assert(sizeof(struct list) == sizeof(struct tow_region_list) && \
		       offsetof(struct list, flags) == offsetof(struct tow_region_list, flags) && \
		       offsetof(struct list, cursor) == offsetof(struct tow_region_list, cursor) && \
		       offsetof(struct list, entries) == offsetof(struct tow_region_list, entries) && \
		       offsetof(struct list, entry_size) == \
			       offsetof(struct tow_region_list, entry_size) && \
		       offsetof(struct list, count) == offsetof(struct tow_region_list, count), \
		       "lists are asked for alike")
SAME_LAYOUT(tow_peer_list);
SAME_LAYOUT(tow_export_list);

bool towi_size_valid(uint32_t size, size_t first)
{
	return size >= first && size <= TOWI_SIZE_MAX;
}

static uint32_t size_of(const void *structure)
{
	uint32_t size;

	memcpy(&size, structure, sizeof(size));
	return size;
}

int towi_take(const void *given, size_t first, void *known, size_t known_bytes)
{
	uint32_t size;
	size_t i;

	memset(known, 0, known_bytes);
	if (!given)
		return 0;
	size = size_of(given);
	if (!towi_size_valid(size, first))
		return -EINVAL;
	for (i = known_bytes; i < size; i++)
		if (((const unsigned char *)given)[i])
			return -E2BIG;
	memcpy(known, given, size < known_bytes ? size : known_bytes);
	return 0;
}

int towi_give(const void *known, size_t first, void *answer)
{
	uint32_t has = size_of(known), room = size_of(answer);
	uint32_t filled = room < has ? room : has;

	if (!towi_size_valid(room, first))
		return -EINVAL;
	memcpy(answer, known, filled);
	memset((char *)answer + filled, 0, room - filled);
	memcpy(answer, &filled, sizeof(filled));
	return 0;
}

static unsigned char *entry_at(const struct towi_entries *entries, size_t index)
{
	return entries->bytes + index * entries->entry_bytes;
}

/* Zeroed, as an older kernel leaves the end of an entry alone. */
static int entries_grow(struct towi_entries *entries)
{
	size_t room = entries->room ? 2 * entries->room : FIRST_ROOM;
	unsigned char *bytes;

	bytes = reallocarray(entries->bytes, room, entries->entry_bytes);
	if (!bytes)
		return -ENOMEM;
	entries->bytes = bytes;
	memset(entry_at(entries, entries->room), 0,
	       (room - entries->room) * entries->entry_bytes);
	entries->room = room;
	return 0;
}

/* Count what the kernel has filled in, each entry with the size it has. */
static void entries_take(struct towi_entries *entries, const struct tow_region_list *call)
{
	size_t end = entries->count + call->count;

	for (; entries->count < end; entries->count++)
		memcpy(entry_at(entries, entries->count), &call->entry_size,
		       sizeof(call->entry_size));
}

static int entries_fill(const struct tow_device *dev, unsigned long command, uint32_t flags,
			struct towi_entries *entries)
{
	struct tow_region_list call = { .flags = flags };
	int ret;

	do {
		if (entries->count == entries->room) {
			ret = entries_grow(entries);
			if (ret)
				return ret;
		}
		/* The kernel's answer is in the same fields. */
		call.size = sizeof(call);
		call.entry_size = (uint32_t)entries->entry_bytes;
		call.entries = (uintptr_t)entry_at(entries, entries->count);
		call.count = (uint32_t)(entries->room - entries->count);
		ret = towi_call(dev, command, &call);
		if (ret)
			return ret;
		entries_take(entries, &call);
	} while (call.count);
	return 0;
}

int towi_entries_ask(const struct tow_device *dev, unsigned long command, uint32_t flags,
		     size_t entry_bytes, struct towi_entries *entries)
{
	int ret;

	*entries = (struct towi_entries){ .entry_bytes = entry_bytes };
	ret = entries_fill(dev, command, flags, entries);
	if (ret)
		towi_entries_free(entries);
	return ret;
}

int towi_list_new(const struct tow_device *dev, unsigned long command, uint32_t flags,
		  size_t entry_bytes, struct towi_entries **list)
{
	struct towi_entries *found;
	int ret;

	if (!dev)
		return -EINVAL;
	found = malloc(sizeof(*found));
	if (!found)
		return -ENOMEM;
	ret = towi_entries_ask(dev, command, flags, entry_bytes, found);
	if (ret)
		free(found);
	else
		*list = found;
	return ret;
}

void towi_list_free(struct towi_entries *list)
{
	if (!list)
		return;
	towi_entries_free(list);
	free(list);
}

const void *towi_entry(const struct towi_entries *entries, size_t index)
{
	return index < entries->count ? entry_at(entries, index) : NULL;
}

int towi_entry_give(const struct towi_entries *entries, size_t index, size_t first, void *answer)
{
	const void *known = towi_entry(entries, index);

	return known && answer ? towi_give(known, first, answer) : -EINVAL;
}

void towi_entries_free(struct towi_entries *entries)
{
	free(entries->bytes);
	entries->bytes = NULL;
}
