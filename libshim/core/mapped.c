// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Which region an address is in, and who wants to know of regions that end.
 *
 * A device has a table of all memory of its regions that has an address in this process: what
 * was mapped, and what was imported from it.  It is sorted by address.  Imports may overlap,
 * each other and mappings; so each record says, too, how far those up to it reach, and who
 * looks back from an address knows when to stop.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define ROOM	16U

void towi_mapped_begin(struct tow_device *dev)
{
	pthread_mutex_init(&dev->mapped.lock, NULL);
	pthread_mutex_init(&dev->watching, NULL);
	LIST_INIT(&dev->watches);
}

void towi_mapped_end(struct tow_device *dev)
{
	/* A child's copy another thread may have been changing. */
	if (towi_ours(dev->process) || towi_at_rest(&dev->mapped.lock))
		free(dev->mapped.sorted);
}

/* How many begin at @at or before. */
static size_t up_to(const struct towi_mapped *mapped, uintptr_t at)
{
	size_t first = 0, last = mapped->count, middle;

	while (first < last) {
		middle = first + (last - first) / 2;
		if (mapped->sorted[middle].at <= at)
			first = middle + 1;
		else
			last = middle;
	}
	return first;
}

/* From the record on. */
static void reach(struct towi_mapped *mapped, size_t from)
{
	uintptr_t furthest = from ? mapped->sorted[from - 1].furthest : 0;

	for (size_t i = from; i < mapped->count; i++) {
		if (mapped->sorted[i].at + mapped->sorted[i].bytes > furthest)
			furthest = mapped->sorted[i].at + mapped->sorted[i].bytes;
		mapped->sorted[i].furthest = furthest;
	}
}

static bool make_room(struct towi_mapped *mapped)
{
	size_t room = mapped->room ? 2 * mapped->room : ROOM;
	struct towi_range *sorted;

	if (mapped->count < mapped->room)
		return true;
	sorted = reallocarray(mapped->sorted, room, sizeof(*sorted));
	if (!sorted)
		return false;
	mapped->sorted = sorted;
	mapped->room = room;
	return true;
}

int towi_mapped_add(struct tow_device *dev, struct tow_region *region, const void *at,
		    uint64_t offset, size_t bytes)
{
	struct towi_mapped *mapped = &dev->mapped;
	struct towi_range range = { (uintptr_t)at, bytes, 0, offset, region };
	size_t place;
	bool room;

	pthread_mutex_lock(&mapped->lock);
	room = make_room(mapped);
	if (room) {
		place = up_to(mapped, range.at);
		memmove(&mapped->sorted[place + 1], &mapped->sorted[place],
			(mapped->count - place) * sizeof(range));
		mapped->sorted[place] = range;
		mapped->count++;
		reach(mapped, place);
	}
	pthread_mutex_unlock(&mapped->lock);
	return room ? 0 : -ENOMEM;
}

void towi_mapped_drop(struct tow_device *dev, const struct tow_region *region, const void *at)
{
	struct towi_mapped *mapped = &dev->mapped;
	size_t place;

	pthread_mutex_lock(&mapped->lock);
	place = up_to(mapped, (uintptr_t)at);
	while (place-- && mapped->sorted[place].at == (uintptr_t)at)
		if (mapped->sorted[place].region == region) {
			mapped->count--;
			memmove(&mapped->sorted[place], &mapped->sorted[place + 1],
				(mapped->count - place) * sizeof(*mapped->sorted));
			reach(mapped, place);
			break;
		}
	pthread_mutex_unlock(&mapped->lock);
}

int towi_mapped_find(struct tow_device *dev, const void *ptr, struct tow_region **region,
		     uint64_t *offset, uint64_t *bytes)
{
	struct towi_mapped *mapped = &dev->mapped;
	const struct towi_range *range, *found = NULL;
	uintptr_t at = (uintptr_t)ptr, end = at;
	size_t place;

	pthread_mutex_lock(&mapped->lock);
	place = up_to(mapped, at);
	while (place-- && mapped->sorted[place].furthest > end) {
		range = &mapped->sorted[place];
		if (range->at + range->bytes <= end)
			continue;
		found = range;
		end = range->at + range->bytes;
	}
	if (found) {
		*region = found->region;
		*offset = found->offset + (at - found->at);
		*bytes = end - at;
	}
	pthread_mutex_unlock(&mapped->lock);
	return found ? 0 : -ENOENT;
}

TOW_PUBLIC int tow_region_find(struct tow_device *dev, const void *ptr,
			       struct tow_region **region, uint64_t *offset, uint64_t *bytes)
{
	uint64_t ignored;

	if (!dev || !region || !offset)
		return -EINVAL;
	if (!towi_ours(dev->process))
		return -EPERM;
	return towi_mapped_find(dev, ptr, region, offset, bytes ? bytes : &ignored);
}

/* ---- regions that end ------------------------------------------------------- */

void towi_watch(struct tow_device *dev, struct towi_watch *watch)
{
	pthread_mutex_lock(&dev->watching);
	LIST_INSERT_HEAD(&dev->watches, watch, next);
	pthread_mutex_unlock(&dev->watching);
}

void towi_unwatch(struct tow_device *dev, struct towi_watch *watch)
{
	if (!towi_ours(dev->process))
		return;
	pthread_mutex_lock(&dev->watching);
	LIST_REMOVE(watch, next);
	pthread_mutex_unlock(&dev->watching);
}

void towi_tell_gone(struct tow_device *dev, uint64_t region)
{
	struct towi_watch *watch;

	pthread_mutex_lock(&dev->watching);
	LIST_FOREACH(watch, &dev->watches, next)
		watch->gone(watch, region);
	pthread_mutex_unlock(&dev->watching);
}
