/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the files in /sys/class/towline/<ibdev>/ have in common.
 */
#ifndef TOW_SYSFS_H
#define TOW_SYSFS_H

#include <linux/device.h>
#include <linux/sysfs.h>
#include <linux/types.h>

#include "root.h"

struct tow_device;

/**
 * struct tow_setting_attr - a file that holds a number of the administrator's
 * @attr: the file
 * @field: where the device has it; read and written in one go, without a lock
 * @set: takes a number that is within the bounds, or refuses it with a negative
 *	errno; NULL: it is written to @field
 * @min: the least that may be written
 * @max: the most
 */
struct tow_setting_attr {
	struct device_attribute	attr;
	u32 *(*field)(struct tow_device *dev);
	int (*set)(struct tow_device *dev, u32 value);
	u32			min;
	u32			max;
};

/* As below, with a function of one's own: see struct tow_setting_attr. */
#define TOW_SETTING_ATTR_SET(_name, _field, _min, _max, _set)		\
	static u32 *tow_setting_field_##_name(struct tow_device *dev)	\
	{								\
		return &(_field);					\
	}								\
	static struct tow_setting_attr tow_setting_attr_##_name = {	\
		.attr = __ATTR(_name, 0644, tow_setting_show,		\
			       tow_setting_store),			\
		.field = tow_setting_field_##_name,			\
		.set = _set,						\
		.min = _min,						\
		.max = _max,						\
	}

/* tow_setting_attr_<name>: the file of that name holds _field, of dev. */
#define TOW_SETTING_ATTR(_name, _field, _min, _max)			\
	TOW_SETTING_ATTR_SET(_name, _field, _min, _max, NULL)

int tow_sysfs_number(const char *buf, size_t count, bool suffixes, u64 max,
		     u64 *result);
bool tow_sysfs_may_write(void);
ssize_t tow_setting_show(struct device *node, struct device_attribute *attr,
			 char *buf);
ssize_t tow_setting_store(struct device *node, struct device_attribute *attr,
			  const char *buf, size_t count);

/* peer_settings.c */
extern const struct attribute_group tow_conn_settings_group;

#endif /* TOW_SYSFS_H */
