// SPDX-License-Identifier: GPL-2.0
/*
 * Devices: finding them, their references, their users, their names and ports.
 * main.c makes and ends them.
 *
 * A reference keeps the structure.  A user keeps all that is made on the RDMA
 * device, too: removal waits for users, so a user never waits for user space.
 */
#include <linux/export.h>
#include <linux/string.h>
#include <linux/xarray.h>

#include "core/core.h"

struct workqueue_struct *tow_wq;
/* An import's end waits for its exporter, which may wait for work in tow_wq. */
struct workqueue_struct *tow_import_wq;
/* Ends of sessions, in tow_wq, wait for what a responder makes. */
struct workqueue_struct *tow_accept_wq;
/* Attempts to connect wait for work in tow_wq. */
struct workqueue_struct *tow_connect_wq;
struct workqueue_struct *tow_reconnect_wq;
/* Reaping: work in the other queues waits for completions. */
struct workqueue_struct *tow_cq_wq;
/* Lookups of names: work for a program may wait for its other threads. */
struct workqueue_struct *tow_lookup_wq;
/* Ends of clients, which may wait for a removal, and that for work in the others. */
struct workqueue_struct *tow_end_wq;

/*
 * Devices by minor number.  A device that is found under the lock still has the
 * ib_client's reference.
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
 * tow_device_find - the device of an RDMA device
 * @ibdev: the RDMA device; the caller keeps it
 *
 * Return: the device with a reference for the caller; NULL: towline does not
 * use the RDMA device, or no longer.
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
 * tow_device_publish - let a device be found, under a minor number
 * @dev: the device, complete; the caller keeps it until tow_device_unpublish()
 *
 * Return: 0; -EBUSY: there are TOW_DEVICES_MAX devices already; -ENOMEM.
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
 * tow_device_enter - become a user of a device
 * @dev: the device
 *
 * Until tow_device_leave() removal waits for the caller, who must not wait for
 * user space meanwhile.
 *
 * Return: false if the device is going or gone (-ENODEV to the user).
 */
bool tow_device_enter(struct tow_device *dev)
{
	/* @going is set before @users is killed: after one -ENODEV all fail. */
	return !tow_device_going(dev) && percpu_ref_tryget_live(&dev->users);
}
EXPORT_SYMBOL_GPL(tow_device_enter);

/**
 * tow_device_leave - undo tow_device_enter()
 * @dev: the device
 */
void tow_device_leave(struct tow_device *dev)
{
	percpu_ref_put(&dev->users);
}
EXPORT_SYMBOL_GPL(tow_device_leave);

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
 * @dev: the device; if the RDMA device is gone the name is its last one
 * @name: where to; padded with zeroes
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

/**
 * tow_device_port_serves - may a port be used now?
 * @ibdev: the RDMA device
 * @port: the port
 *
 * Return: true if it is up.
 */
bool tow_device_port_serves(struct ib_device *ibdev, u32 port)
{
	struct ib_port_attr attr;

	return rdma_ib_or_roce(ibdev, port) &&
	       !ib_query_port(ibdev, port, &attr) &&
	       attr.state == IB_PORT_ACTIVE;
}

/**
 * tow_device_choose_port - choose the port to be used
 * @dev: the device; caller holds tow_maint.use, or @dev is not published yet
 *
 * Return: the port that the administrator wants; if none: the present port if
 * it is active, else the first active port, else the present port, or the first
 * port if no port was chosen yet.
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
 * @dev: the device; caller holds tow_maint.use, or @dev is not published yet
 *
 * Return: 0, or the error of ib_query_port().
 */
int tow_device_use_port(struct tow_device *dev)
{
	u32 port = tow_device_choose_port(dev);
	struct ib_port_attr attr;
	int ret;

	ret = ib_query_port(dev->ibdev, port, &attr);
	if (ret)
		return ret;
	/* Readers hold no lock: operations begun on the old port fail. */
	WRITE_ONCE(dev->port, port);
	WRITE_ONCE(dev->max_msg_bytes, attr.max_msg_sz);
	WRITE_ONCE(dev->transport, rdma_protocol_roce(dev->ibdev, port) ?
				   TOW_TRANSPORT_ROCE : TOW_TRANSPORT_IB);
	return 0;
}

/* In the order of their making: work in each may queue work in those before. */
static const struct {
	struct workqueue_struct	**queue;
	const char		*name;
	unsigned int		flags;
} tow_workqueues[] = {
	{ &tow_import_wq, "towline_import", WQ_UNBOUND },
	{ &tow_wq, "towline", WQ_UNBOUND },
	{ &tow_lookup_wq, "towline_lookup", WQ_UNBOUND },
	{ &tow_accept_wq, "towline_accept", WQ_UNBOUND },
	{ &tow_connect_wq, "towline_connect", WQ_UNBOUND },
	{ &tow_reconnect_wq, "towline_reconnect", WQ_UNBOUND },
	{ &tow_cq_wq, "towline_cq", WQ_UNBOUND | WQ_HIGHPRI },
	{ &tow_end_wq, "towline_end", WQ_UNBOUND },
};

/**
 * tow_workqueues_init - make the module's work queues
 *
 * Return: 0 or -ENOMEM.
 */
int __init tow_workqueues_init(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(tow_workqueues); i++) {
		*tow_workqueues[i].queue =
			alloc_workqueue("%s", tow_workqueues[i].flags, 0,
					tow_workqueues[i].name);
		if (!*tow_workqueues[i].queue) {
			tow_workqueues_cleanup();
			return -ENOMEM;
		}
	}
	return 0;
}

/**
 * tow_workqueues_cleanup - drain and destroy the module's work queues
 */
void tow_workqueues_cleanup(void)
{
	unsigned int i = ARRAY_SIZE(tow_workqueues);

	while (i--) {
		if (*tow_workqueues[i].queue)
			destroy_workqueue(*tow_workqueues[i].queue);
	}
}
