// SPDX-License-Identifier: GPL-2.0
/*
 * Devices as everybody knows them: found by number or by RDMA device, kept by
 * references, entered by their users, known by name.  How a device begins and ends
 * is in main.c.
 *
 * A reference keeps the structure.  A user keeps what is made on the RDMA device, too:
 * removal waits for him, so he waits for nothing that user space could stretch.
 */
#include <linux/export.h>
#include <linux/string.h>
#include <linux/xarray.h>

#include "core/core.h"

struct workqueue_struct *tow_wq;
/* Imports that end wait for exporters, who may wait for work in the other one. */
struct workqueue_struct *tow_import_wq;
/* Attempts to connect wait for work in the other one. */
struct workqueue_struct *tow_connect_wq;
/* Completions: others wait for what these bring. */
struct workqueue_struct *tow_cq_wq;

/*
 * Devices by minor number.  Its lock protects the way from a number to a
 * reference: what is found there still has the ib_client's.
 */
static DEFINE_XARRAY_ALLOC(tow_devices);

/**
 * tow_device_get - the device behind a minor number
 * @minor: the number
 *
 * Return: the device with a reference for the caller, or NULL.
 */
struct tow_device *tow_device_get(unsigned int minor)
{
	struct tow_device *dev;

	xa_lock(&tow_devices);
	dev = xa_load(&tow_devices, minor);
	if (dev)
		kref_get(&dev->refs);
	xa_unlock(&tow_devices);
	return dev;
}

/**
 * tow_device_find - the device that an RDMA device is
 * @ibdev: the RDMA device; the caller keeps it
 *
 * Return: the device with a reference for the caller, or NULL: it is none of
 * ours, or going.
 */
struct tow_device *tow_device_find(struct ib_device *ibdev)
{
	struct tow_device *dev, *found = NULL;
	unsigned long minor;

	xa_lock(&tow_devices);
	xa_for_each(&tow_devices, minor, dev) {
		if (dev->ibdev == ibdev) {
			kref_get(&dev->refs);
			found = dev;
			break;
		}
	}
	xa_unlock(&tow_devices);
	return found;
}

/**
 * tow_device_publish - let a device be found, under a number of its own
 * @dev: the device, complete; the caller keeps it until tow_device_unpublish()
 *
 * Return: 0; -EBUSY: there are TOW_DEVICES_MAX; -ENOMEM.
 */
int tow_device_publish(struct tow_device *dev)
{
	return xa_alloc(&tow_devices, &dev->minor, dev,
			XA_LIMIT(0, TOW_DEVICES_MAX - 1), GFP_KERNEL);
}

/**
 * tow_device_unpublish - undo tow_device_publish()
 * @dev: the device; not found any more on return
 */
void tow_device_unpublish(struct tow_device *dev)
{
	xa_erase(&tow_devices, dev->minor);
}

static void tow_device_release(struct kref *refs)
{
	struct tow_device *dev = container_of(refs, struct tow_device, refs);

	dev->release(dev);
}

/**
 * tow_device_put - give a reference back
 * @dev: the device; may be gone afterwards
 */
void tow_device_put(struct tow_device *dev)
{
	kref_put(&dev->refs, tow_device_release);
}

/**
 * tow_device_enter - be let in to what is made on the RDMA device
 * @dev: the device
 *
 * Until tow_device_leave() removal waits for the caller, who must not wait for
 * user space meanwhile.
 *
 * Return: false if the device is going or gone (-ENODEV to the user).
 */
bool tow_device_enter(struct tow_device *dev)
{
	/* From the first word of its end on: nobody gets in after an -ENODEV. */
	return !tow_device_going(dev) && percpu_ref_tryget_live(&dev->users);
}

/**
 * towk_device_enter - tow_device_enter() for other kernel modules
 * @dev: the device
 *
 * Return: as there.
 */
bool towk_device_enter(struct tow_device *dev)
{
	return tow_device_enter(dev);
}
EXPORT_SYMBOL_GPL(towk_device_enter);

/**
 * tow_device_leave - undo tow_device_enter()
 * @dev: the device
 */
void tow_device_leave(struct tow_device *dev)
{
	percpu_ref_put(&dev->users);
}

/**
 * towk_device_leave - undo towk_device_enter()
 * @dev: the device
 */
void towk_device_leave(struct tow_device *dev)
{
	tow_device_leave(dev);
}
EXPORT_SYMBOL_GPL(towk_device_leave);

/**
 * tow_device_users_gone - the last user has left
 * @users: tow_device.users
 */
void tow_device_users_gone(struct percpu_ref *users)
{
	struct tow_device *dev = container_of(users, struct tow_device, users);

	complete(&dev->users_gone);
}

/**
 * tow_device_name - copy the RDMA device's name
 * @dev: the device, which may be gone: then its last name
 * @name: where to; filled up with zeroes
 */
void tow_device_name(struct tow_device *dev, char name[TOW_DEVICE_NAME_MAX])
{
	unsigned long flags;

	spin_lock_irqsave(&dev->name_lock, flags);
	memcpy(name, dev->name, TOW_DEVICE_NAME_MAX);
	spin_unlock_irqrestore(&dev->name_lock, flags);
}

/**
 * tow_device_take_name - take the RDMA device's name over
 * @dev: the device
 */
void tow_device_take_name(struct tow_device *dev)
{
	unsigned long flags;

	BUILD_BUG_ON(TOW_DEVICE_NAME_MAX != IB_DEVICE_NAME_MAX);

	spin_lock_irqsave(&dev->name_lock, flags);
	strscpy_pad(dev->name, dev_name(&dev->ibdev->dev), sizeof(dev->name));
	spin_unlock_irqrestore(&dev->name_lock, flags);
}

static bool tow_device_port_serves(struct ib_device *ibdev, u32 port)
{
	struct ib_port_attr attr;

	return rdma_ib_or_roce(ibdev, port) &&
	       !ib_query_port(ibdev, port, &attr) &&
	       attr.state == IB_PORT_ACTIVE;
}

/**
 * tow_device_choose_port - which port is to be used?
 * @dev: the device; the caller has tow_maint.use, or nobody else knows @dev yet
 *
 * Return: the one that the administrator wants; or the present one if it is up, else
 * the first that is, else the present one: at the beginning, the first.
 */
u32 tow_device_choose_port(struct tow_device *dev)
{
	u32 wanted = READ_ONCE(dev->port_wanted);
	struct ib_device *ibdev = dev->ibdev;
	u32 port;

	if (wanted)
		return wanted;
	if (dev->port && tow_device_port_serves(ibdev, dev->port))
		return dev->port;
	rdma_for_each_port(ibdev, port) {
		if (tow_device_port_serves(ibdev, port))
			return port;
	}
	return dev->port ?: rdma_start_port(ibdev);
}

/**
 * tow_device_use_port - choose a port, and use it from now on
 * @dev: the device; the caller has tow_maint.use, or nobody else knows @dev yet
 *
 * Return: 0, or what the device says of the port.
 */
int tow_device_use_port(struct tow_device *dev)
{
	u32 port = tow_device_choose_port(dev);
	struct ib_port_attr attr;
	int ret;

	ret = ib_query_port(dev->ibdev, port, &attr);
	if (ret)
		return ret;
	/* Others look without the lock; what they begin on the old port fails. */
	WRITE_ONCE(dev->port, port);
	WRITE_ONCE(dev->max_msg_bytes, attr.max_msg_sz);
	WRITE_ONCE(dev->transport, rdma_protocol_roce(dev->ibdev, port) ?
				   TOW_TRANSPORT_ROCE : TOW_TRANSPORT_IB);
	return 0;
}

/**
 * tow_workqueues_init - make the module's work queues
 *
 * Return: 0 or -ENOMEM.
 */
int __init tow_workqueues_init(void)
{
	tow_wq = alloc_workqueue("towline", WQ_UNBOUND, 0);
	if (!tow_wq)
		return -ENOMEM;
	tow_import_wq = alloc_workqueue("towline_import", WQ_UNBOUND, 0);
	if (!tow_import_wq)
		goto err_destroy_wq;
	tow_connect_wq = alloc_workqueue("towline_connect", WQ_UNBOUND, 0);
	if (!tow_connect_wq)
		goto err_destroy_import_wq;
	tow_cq_wq = alloc_workqueue("towline_cq", WQ_UNBOUND | WQ_HIGHPRI, 0);
	if (!tow_cq_wq)
		goto err_destroy_connect_wq;
	return 0;

err_destroy_connect_wq:
	destroy_workqueue(tow_connect_wq);
err_destroy_import_wq:
	destroy_workqueue(tow_import_wq);
err_destroy_wq:
	destroy_workqueue(tow_wq);
	return -ENOMEM;
}

/**
 * tow_workqueues_cleanup - wait for what they still have to do, and end them
 */
void tow_workqueues_cleanup(void)
{
	destroy_workqueue(tow_cq_wq);
	destroy_workqueue(tow_connect_wq);
	/* The last pool's work ends imports. */
	destroy_workqueue(tow_wq);
	destroy_workqueue(tow_import_wq);
}
