// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Exports: ranges of regions that peers may reach, under a name.
 *
 * An export is a handle of the kernel's and nothing else.  It holds its region
 * there, so the library's region may be gone before it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

/* How often to look, after a signal, whether an export has ended. */
#define LOOK_US	1000U

struct tow_exported {
	const struct tow_device *dev;
	uint64_t handle;
};

int towi_export_name(const char *name, uint8_t to[TOW_EXPORT_NAME_MAX + 1], uint32_t *bytes)
{
	size_t length = name ? strnlen(name, TOW_EXPORT_NAME_MAX + 1) : 0;

	if (!length || length > TOW_EXPORT_NAME_MAX)
		return -EINVAL;
	memset(to, 0, TOW_EXPORT_NAME_MAX + 1);
	memcpy(to, name, length);
	*bytes = (uint32_t)length;
	return 0;
}

int towi_export(const struct tow_region *region, uint64_t offset, uint64_t bytes,
		const char *name, uint32_t rights, uint64_t *handle)
{
	struct tow_export call = {
		.size = sizeof(call),
		.offset = offset,
		.bytes = bytes,
		.rights = rights,
	};
	int ret;

	ret = towi_export_name(name, call.name, &call.name_bytes);
	if (ret)
		return ret;
	call.region = towi_region_handle(region);
	ret = towi_call(towi_region_device(region), TOW_IOCTL_EXPORT, &call);
	if (!ret)
		*handle = call.handle;
	return ret;
}

/* Is there one of this process's that peers still have? */
static bool any_revoking(const struct tow_device *dev)
{
	const struct tow_export_info *info;
	struct towi_entries exports;
	bool any = false;
	size_t i;
	int ret;

	ret = towi_entries_ask(dev, TOW_IOCTL_EXPORT_LIST, 0, sizeof(*info), &exports);
	if (ret)
		return ret == -ENOMEM;
	for (i = 0; !any && (info = towi_entry(&exports, i)); i++)
		any = info->flags & TOW_EXPORT_REVOKING && info->pid == getpid();
	towi_entries_free(&exports);
	return any;
}

int towi_unexport(const struct tow_device *dev, uint64_t handle)
{
	struct tow_unexport call = { .size = sizeof(call), .handle = handle };
	int ret = towi_call(dev, TOW_IOCTL_UNEXPORT, &call);

	if (ret != -EINTR)
		return ret;
	/*
	 * It ends by itself, and the handle is gone: all that is left is to look whether it has.
	 * Nobody is asked whether to wait: the memory may be used for something else afterwards.
	 */
	while (any_revoking(dev))
		usleep(LOOK_US);
	return 0;
}

TOW_PUBLIC int tow_export(struct tow_region *region, uint64_t offset, uint64_t bytes,
			  const char *name, uint32_t rights, struct tow_exported **exported)
{
	struct tow_exported *made;
	int ret;

	if (!region || !exported)
		return -EINVAL;
	made = malloc(sizeof(*made));
	if (!made)
		return -ENOMEM;
	ret = towi_export(region, offset, bytes, name, rights, &made->handle);
	if (ret) {
		free(made);
		return ret;
	}
	made->dev = towi_region_device(region);
	*exported = made;
	return 0;
}

TOW_PUBLIC int tow_unexport(struct tow_exported *exported)
{
	const struct tow_device *dev;
	uint64_t handle;

	if (!exported)
		return 0;
	dev = exported->dev;
	handle = exported->handle;
	free(exported);
	return towi_unexport(dev, handle);
}
