/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * What the core's files share, and programs never see.  Functions here are
 * named towi_* so that the static library claims no other names.
 */
#ifndef TOW_INTERNAL_H
#define TOW_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <towline/towline.h>

#define TOW_PUBLIC __attribute__((visibility("default")))

/* Where the kernel shows its devices: one entry each, named like the device. */
#define TOWI_SYSFS_CLASS "/sys/class/towline"
#define TOWI_DEV_FOLDER "/dev/towline"

/* No structure is longer: a size above is one that was never set. */
#define TOWI_SIZE_MAX	4096

/* struct tow_region_info when it was first published. */
#define TOWI_INFO_SIZE_FIRST \
	(offsetof(struct tow_region_info, job_id) + TOW_JOB_ID_BYTES)

struct tow_device {
	int fd;
	/* Where the last mapping of 2 MiB or more begins; 0: there was none. */
	_Atomic uintptr_t map_hint;
};

/*
 * A call of the kernel's: 0 or a negative errno.  A call that the kernel does
 * not have is -EPROTONOSUPPORT.
 */
int towi_call(const struct tow_device *dev, unsigned long command, void *arg);

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

/*
 * The 64 hexadecimal digits of @text (TOW_JOB), as the key they are.  0, or
 * -EINVAL when @text is anything else.
 */
int towi_job_key(const char *text, uint8_t key[TOW_JOB_KEY_BYTES]);

int towi_job_join(const struct tow_device *dev, const uint8_t key[TOW_JOB_KEY_BYTES]);

/*
 * The caller's @given, which may be NULL, and of an older or newer version, as
 * today's @attr.  0, -EINVAL, or -E2BIG when it asks for what is not known here.
 */
int towi_region_attr_take(const struct tow_region_attr *given, struct tow_region_attr *attr);

/* @name, filled up with zeroes.  0, or -EINVAL when it is too long. */
int towi_region_name(const char *name, char to[TOW_REGION_NAME_MAX]);

/* Is @size what some version of struct tow_region_info may have? */
bool towi_info_size_valid(uint32_t size);

/* As towi_attr_give(). */
int towi_info_give(const struct tow_region_info *known, struct tow_region_info *info);

/*
 * Map @length bytes of @fd from @offset on, so that address and offset are
 * alike modulo 2 MiB if that much is mapped.  @hint says where to try first, and
 * is brought up to date.  0 or a negative errno.
 */
int towi_map(_Atomic uintptr_t *hint, int fd, int prot, uint64_t offset, size_t length,
	     void **addr);

/* The reverse, for the same @length: 0 or a negative errno. */
int towi_unmap(_Atomic uintptr_t *hint, void *addr, size_t length);

#endif /* TOW_INTERNAL_H */
