/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An RDMA device by its name.  The kernel's own function for that is gone since 7.x; a
 * client is told of all devices.
 */
#ifndef TOW_FIND_H
#define TOW_FIND_H

#include <linux/mutex.h>
#include <linux/string.h>
#include <rdma/ib_verbs.h>

static DEFINE_MUTEX(tow_find_lock);	/* of the two below */
static const char *tow_find_name;
static struct ib_device *tow_found;

static int tow_find_add(struct ib_device *ibdev)
{
	if (!strcmp(dev_name(&ibdev->dev), tow_find_name) && ib_device_try_get(ibdev))
		tow_found = ibdev;
	return -EOPNOTSUPP;
}

/* NULL: there is none.  To be given back with ib_device_put(). */
static struct ib_device *tow_find_device(const char *name)
{
	static struct ib_client client = { .name = KBUILD_MODNAME "_find", .add = tow_find_add };
	struct ib_device *found;

	mutex_lock(&tow_find_lock);
	tow_find_name = name;
	tow_found = NULL;
	if (!ib_register_client(&client))
		ib_unregister_client(&client);
	found = tow_found;
	mutex_unlock(&tow_find_lock);
	return found;
}

#endif /* TOW_FIND_H */
