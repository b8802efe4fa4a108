/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * What the core's files share, and programs never see.  Functions here are
 * named towi_* so that the static library claims no other names.
 */
#ifndef TOW_INTERNAL_H
#define TOW_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>

#include <towline/towline.h>

#define TOW_PUBLIC __attribute__((visibility("default")))

/* Where the kernel shows its devices: one entry each, named like the device. */
#define TOWI_SYSFS_CLASS "/sys/class/towline"
#define TOWI_DEV_FOLDER "/dev/towline"

/*
 * May name be an RDMA device's?  Says nothing about whether there is one, only
 * that using it as one component of a path is safe.
 */
bool towi_name_valid(const char *name);

/*
 * The list of the sysfs class folder @class_dir, or NULL with the reason, a
 * negative errno, in @error.
 */
struct tow_device_list *towi_list(const char *class_dir, int *error);

/*
 * The device to open: @asked if given, else @preferred (TOW_DEVICE) if given,
 * else the only one in @class_dir.  Copies its name to @name.
 */
int towi_choose(const char *class_dir, const char *asked, const char *preferred,
		char name[TOW_DEVICE_NAME_MAX]);

/* The kernel's answer in the library's structure, its size filled in. */
void towi_attr_from_query(const struct tow_query *query, struct tow_device_attr *attr);

/*
 * Copy @known to the caller's @attr, whose size says how much room there is:
 * less than today's where the caller is older than the library, more where it
 * is newer.  0, or -EINVAL when no version ever had a structure of that size.
 */
int towi_attr_give(const struct tow_device_attr *known, struct tow_device_attr *attr);

#endif /* TOW_INTERNAL_H */
