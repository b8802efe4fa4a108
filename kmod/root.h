/* SPDX-License-Identifier: GPL-2.0 */
/* What the files above all layers share. */
#ifndef TOW_ROOT_H
#define TOW_ROOT_H

#include <linux/fs.h>
#include <linux/sysfs.h>

#include "core/core.h"

/* chardev.c */
extern const struct file_operations tow_file_fops;

/* clients.c */
extern const struct tow_listing tow_account_listing;

int tow_call_join(struct tow_client *client, void *data,
		  const struct tow_answer *answer);
int tow_call_client_end(struct tow_client *client, void *data,
			const struct tow_answer *answer);

/* sysfs.c */
extern const struct attribute_group *tow_sysfs_groups[];
void tow_sysfs_init(void);

#endif /* TOW_ROOT_H */
