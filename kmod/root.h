/* SPDX-License-Identifier: GPL-2.0 */
/* What the files above all layers share. */
#ifndef TOW_ROOT_H
#define TOW_ROOT_H

#include <linux/fs.h>
#include <linux/sysfs.h>

#include "core/core.h"

/* chardev.c */
extern const struct file_operations tow_file_fops;

/* sysfs.c */
extern const struct attribute_group *tow_sysfs_groups[];
void tow_sysfs_init(void);

#endif /* TOW_ROOT_H */
