// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/class/towline/<ibdev>/.  A new file is one attribute and one line in
 * the table; Documentation/ABI/testing/sysfs-class-towline describes each.
 *
 * The node's driver data is the tow_device, which outlives the node: removing
 * the node waits for readers and writers that are in these functions.
 */
#include <linux/device.h>
#include <linux/sysfs.h>

#include "device.h"

static ssize_t incarnation_show(struct device *node,
				struct device_attribute *attr, char *buf)
{
	struct tow_device *dev = dev_get_drvdata(node);

	return sysfs_emit(buf, "%*phN\n", TOW_INCARNATION_BYTES,
			  dev->incarnation);
}
static DEVICE_ATTR_RO(incarnation);

static struct attribute *tow_sysfs_attrs[] = {
	&dev_attr_incarnation.attr,
	NULL
};

static const struct attribute_group tow_sysfs_group = {
	.attrs = tow_sysfs_attrs,
};

const struct attribute_group *tow_sysfs_groups[] = {
	&tow_sysfs_group,
	NULL
};
