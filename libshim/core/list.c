// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Which devices there are, and which one a program means.
 *
 * The kernel's class folder in sysfs is the list; the library keeps none of
 * its own, so devices that come and go are seen by the next call.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

struct tow_device_list {
	size_t count;
	size_t room;
	char (*names)[TOW_DEVICE_NAME_MAX];
};

bool towi_name_valid(const char *name)
{
	size_t length = strnlen(name, TOW_DEVICE_NAME_MAX);

	return length > 0 && length < TOW_DEVICE_NAME_MAX && !strchr(name, '/') &&
	       strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

/* For names that towi_name_valid() has seen. */
static void copy_name(char to[TOW_DEVICE_NAME_MAX], const char *name)
{
	memcpy(to, name, strlen(name) + 1);
}

static int list_append(struct tow_device_list *list, const char *name)
{
	if (list->count == list->room) {
		size_t room = list->room ? 2 * list->room : 4;
		void *names = reallocarray(list->names, room, sizeof(*list->names));

		if (!names)
			return -ENOMEM;
		list->names = names;
		list->room = room;
	}
	copy_name(list->names[list->count++], name);
	return 0;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(a, b);
}

static int list_read(DIR *dir, struct tow_device_list *list)
{
	struct dirent *entry;
	int ret;

	for (;;) {
		errno = 0;
		entry = readdir(dir);
		if (!entry)
			return -errno;
		/* Devices are links; plain files are attributes of the class. */
		if (entry->d_type == DT_REG || !towi_name_valid(entry->d_name))
			continue;
		ret = list_append(list, entry->d_name);
		if (ret)
			return ret;
	}
}

struct tow_device_list *towi_list(const char *class_dir, int *error)
{
	struct tow_device_list *list;
	DIR *dir;

	list = calloc(1, sizeof(*list));
	if (!list) {
		*error = -ENOMEM;
		return NULL;
	}

	dir = opendir(class_dir);
	if (!dir) {
		/* The module makes the folder when it loads. */
		*error = errno == ENOENT ? -ENOPKG : -errno;
		goto free_list;
	}
	*error = list_read(dir, list);
	closedir(dir);
	if (*error)
		goto free_list;

	if (list->count)
		qsort(list->names, list->count, sizeof(*list->names), compare_names);
	return list;

free_list:
	tow_device_list_free(list);
	return NULL;
}

int towi_choose(const char *class_dir, const char *asked, const char *preferred,
		char name[TOW_DEVICE_NAME_MAX])
{
	struct tow_device_list *list;
	int ret = 0;

	/* An empty TOW_DEVICE is one that was not set. */
	if (!asked && preferred && *preferred)
		asked = preferred;
	if (asked) {
		if (!towi_name_valid(asked))
			return -EINVAL;
		copy_name(name, asked);
		return 0;
	}

	list = towi_list(class_dir, &ret);
	if (!list)
		return ret;
	if (list->count == 1)
		copy_name(name, list->names[0]);
	else
		ret = list->count ? -ENOTUNIQ : -ENXIO;
	tow_device_list_free(list);
	return ret;
}

TOW_PUBLIC int tow_device_list_get(struct tow_device_list **list)
{
	struct tow_device_list *found;
	int error;

	if (!list)
		return -EINVAL;
	found = towi_list(TOWI_SYSFS_CLASS, &error);
	if (!found)
		return error;
	*list = found;
	return 0;
}

TOW_PUBLIC size_t tow_device_list_count(const struct tow_device_list *list)
{
	return list->count;
}

TOW_PUBLIC const char *tow_device_list_name(const struct tow_device_list *list, size_t index)
{
	return index < list->count ? list->names[index] : NULL;
}

TOW_PUBLIC void tow_device_list_free(struct tow_device_list *list)
{
	if (!list)
		return;
	free(list->names);
	free(list);
}
