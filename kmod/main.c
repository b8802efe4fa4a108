// SPDX-License-Identifier: GPL-2.0
/*
 * Loading and unloading of the module; RDMA devices that come, go, and change
 * their names.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cdev.h>
#include <linux/device.h>
#include <linux/glob.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <rdma/ib_verbs.h>

#include "assoc.h"
#include "core/compat.h"
#include "core/core.h"
#include "core/trace.h"
#include "directory.h"
#include "export.h"
#include "memory/memory.h"
#include "notify.h"
#include "ops.h"
#include "peer.h"
#include "peer_sysfs.h"
#include "poller.h"
#include "queue.h"
#include "root.h"

/* See Documentation/ABI/testing/sysfs-module-towline. */
static char *tow_device_globs = "*";
module_param_named(devices, tow_device_globs, charp, 0444);
MODULE_PARM_DESC(devices, "RDMA devices to take into use: names with *, ? and [], separated by commas");

static dev_t tow_devt;
static struct cdev tow_cdev;

/* Without a udev rule only root gets in; see scripts/packaging. */
static char *tow_device_devnode(TOW_DEVNODE_DEVICE *node, umode_t *mode)
{
	if (mode)
		*mode = 0600;
	return kasprintf(GFP_KERNEL, "towline/%s", dev_name(node));
}

static struct class tow_class = {
	.name		= "towline",
	.dev_groups	= tow_sysfs_groups,
	.devnode	= tow_device_devnode,
};

static int tow_device_setup(void)
{
	int ret;

	ret = alloc_chrdev_region(&tow_devt, 0, TOW_DEVICES_MAX, "towline");
	if (ret)
		return ret;
	ret = class_register(&tow_class);
	if (ret)
		goto err_unregister_region;
	cdev_init(&tow_cdev, &tow_file_fops);
	tow_cdev.owner = THIS_MODULE;
	ret = cdev_add(&tow_cdev, tow_devt, TOW_DEVICES_MAX);
	if (ret)
		goto err_unregister_class;
	return 0;

err_unregister_class:
	class_unregister(&tow_class);
err_unregister_region:
	unregister_chrdev_region(tow_devt, TOW_DEVICES_MAX);
	return ret;
}

static void tow_device_cleanup(void)
{
	cdev_del(&tow_cdev);
	class_unregister(&tow_class);
	unregister_chrdev_region(tow_devt, TOW_DEVICES_MAX);
}

/* Does the parameter "devices" match the device?  Or a negative errno. */
static int tow_device_wanted(struct ib_device *ibdev)
{
	char *globs = kstrdup(tow_device_globs, GFP_KERNEL);
	char *rest = globs, *glob;
	int wanted = 0;

	if (!globs)
		return -ENOMEM;
	while (!wanted && (glob = strsep(&rest, ",")))
		wanted = glob_match(strim(glob), dev_name(&ibdev->dev));
	kfree(globs);
	return wanted;
}

/* Why towline cannot use an RDMA device; NULL if it can. */
static const char *tow_device_unusable(struct ib_device *ibdev)
{
	const struct ib_device_attr *attrs = &ibdev->attrs;
	u32 port = rdma_start_port(ibdev);

	if (!ibdev->kverbs_provider)
		return "its driver serves user space only";
	if (!(attrs->device_cap_flags & IB_DEVICE_MEM_MGT_EXTENSIONS))
		return "it cannot register memory by work request";
	if (attrs->max_fast_reg_page_list_len < TOW_SLAB_SMALL_BYTES / PAGE_SIZE)
		return "its fast registrations hold too few pages";
	if (!ibdev->ops.alloc_mr || !ibdev->ops.map_mr_sg)
		return "its driver has no memory regions for fast registration";
	if (!rdma_is_port_valid(ibdev, port))
		return "it has no port";
	if (!rdma_ib_or_roce(ibdev, port))
		return "it speaks neither InfiniBand nor RoCE";
	return NULL;
}

/* In process context; a GID's change comes with the lock of the GID table held. */
static void tow_device_event(struct ib_event_handler *handler,
			     struct ib_event *event)
{
	struct tow_device *dev = container_of(handler, struct tow_device,
					      events);

	switch (event->event) {
	case IB_EVENT_DEVICE_FATAL:
		tow_memory_changed(dev);
		break;
	case IB_EVENT_PORT_ACTIVE:
	case IB_EVENT_LID_CHANGE:
	case IB_EVENT_GID_CHANGE:
		tow_memory_changed(dev);
		tow_partings_retry(dev);
		tow_sessions_look(dev, 0);
		break;
	case IB_EVENT_PORT_ERR:
		tow_sessions_look(dev, event->element.port_num);
		break;
	default:
		break;
	}
}

static void tow_device_release(struct tow_device *dev)
{
	tow_queues_cleanup(dev);
	tow_directory_cleanup(dev);
	tow_notify_cleanup(dev);
	tow_peers_cleanup(dev);
	tow_memory_cleanup(dev);
	tow_limits_cleanup(&dev->limits);
	percpu_ref_exit(&dev->users);
	kfree(dev);
}

static bool tow_main_region_in_use(const struct tow_region *region,
				   const struct tow_account *account)
{
	struct tow_device *dev = region->dev;

	if (tow_queues_busy(dev->queues, account))
		return true;
	if (!tow_exported_of_region(region, account))
		return false;
	/* Have the work item finish dead exports, and look again. */
	flush_work(&dev->directory->dead_work);
	return tow_exported_of_region(region, account);
}

static unsigned int tow_main_revoke_timeout_ms(struct tow_device *dev)
{
	return READ_ONCE(dev->peers->settings.revoke_timeout_ms);
}

static const struct tow_memory_ops tow_main_memory_ops = {
	.end_exports		= tow_exported_end_region,
	.look			= tow_ops_look,
	.in_use			= tow_main_region_in_use,
	.revoke_timeout_ms	= tow_main_revoke_timeout_ms,
};

static const struct tow_assoc_client *const tow_main_clients[] = {
	&tow_rma_client, &tow_directory_client, &tow_ring_client, NULL
};

static struct tow_device *tow_device_alloc(struct ib_device *ibdev)
{
	struct tow_device *dev;
	int ret;

	dev = kzalloc(sizeof(*dev), GFP_KERNEL);
	if (!dev)
		return ERR_PTR(-ENOMEM);
	ret = percpu_ref_init(&dev->users, tow_device_users_gone, 0,
			      GFP_KERNEL);
	if (ret) {
		kfree(dev);
		return ERR_PTR(ret);
	}
	kref_init(&dev->refs);
	dev->release = tow_device_release;
	init_completion(&dev->users_gone);
	spin_lock_init(&dev->name_lock);
	tow_uevents_init(&dev->uevents);
	dev->ibdev = ibdev;
	get_random_bytes(dev->incarnation, sizeof(dev->incarnation));
	tow_device_take_name(dev);
	tow_limits_init(&dev->limits, ibdev->attrs.max_mr);
	ret = tow_memory_init(dev, &tow_main_memory_ops);
	if (ret)
		goto err_exit_users;
	ret = tow_peers_init(dev, &tow_qp_link_ops, tow_main_clients);
	if (ret)
		goto err_cleanup_memory;
	ret = tow_notify_init(dev);
	if (ret)
		goto err_cleanup_peers;
	ret = tow_directory_init(dev);
	if (ret)
		goto err_cleanup_notify;
	ret = tow_queues_init(dev);
	if (ret)
		goto err_cleanup_directory;
	INIT_IB_EVENT_HANDLER(&dev->events, ibdev, tow_device_event);
	return dev;

err_cleanup_directory:
	tow_directory_cleanup(dev);
err_cleanup_notify:
	tow_notify_cleanup(dev);
err_cleanup_peers:
	tow_peers_cleanup(dev);
err_cleanup_memory:
	tow_memory_cleanup(dev);
err_exit_users:
	percpu_ref_exit(&dev->users);
	kfree(dev);
	return ERR_PTR(ret);
}

static int tow_device_make_node(struct tow_device *dev)
{
	struct device *node;

	node = device_create(&tow_class, dev->ibdev->dev.parent,
			     MKDEV(MAJOR(tow_devt), dev->minor), dev, "%s",
			     dev_name(&dev->ibdev->dev));
	if (IS_ERR(node))
		return PTR_ERR(node);
	dev->node = node;
	tow_uevents_use(&dev->uevents, node);
	tow_peer_sysfs_device_add(dev);
	return 0;
}

static void tow_device_drop_node(struct tow_device *dev)
{
	if (!dev->node)
		return;
	tow_peer_sysfs_device_remove(dev);
	tow_uevents_use(&dev->uevents, NULL);
	/* device_unregister() waits for writers of the node's files. */
	WRITE_ONCE(dev->node_going, true);
	device_unregister(dev->node);
	WRITE_ONCE(dev->node_going, false);
	dev->node = NULL;
}

/* Everything but the node: from here on open() works. */
static int tow_device_bring_up(struct tow_device *dev)
{
	int ret;

	ret = tow_device_use_port(dev);
	if (ret)
		return ret;
	dev->pd = ib_alloc_pd(dev->ibdev, 0);
	if (IS_ERR(dev->pd))
		return PTR_ERR(dev->pd);
	ret = tow_peers_start(dev);
	if (ret)
		goto err_dealloc_pd;
	ret = tow_device_publish(dev);
	if (ret == -EBUSY)
		pr_err("%s: there are %u devices already, as many as can be: name those that are needed in the module's parameter \"devices\"\n",
		       dev_name(&dev->ibdev->dev), TOW_DEVICES_MAX);
	if (ret)
		goto err_stop_peers;
	ib_register_event_handler(&dev->events);
	tow_memory_start(dev);
	return 0;

err_stop_peers:
	tow_peers_quiesce(dev);
	tow_peers_stop(dev);
err_dealloc_pd:
	ib_dealloc_pd(dev->pd);
	return ret;
}

/* Undoes tow_device_bring_up(); waits for the device's users. */
static void tow_device_take_down(struct tow_device *dev)
{
	tow_device_unpublish(dev);
	ib_unregister_event_handler(&dev->events);
	tow_peers_quiesce(dev);
	tow_directory_quiesce(dev);
	tow_queues_stop(dev->queues);
	tow_pollers_stop(dev->queues);
	percpu_ref_kill(&dev->users);
	wait_for_completion(&dev->users_gone);
	tow_peers_stop(dev);
	tow_directory_stop(dev);
	tow_memory_stop(dev);
	tow_uevents_stop(&dev->uevents);
	ib_dealloc_pd(dev->pd);
}

/**
 * tow_device_add - take an RDMA device into use
 * @ibdev: the RDMA device, complete and not going
 * @result: the device, with the caller's reference; for tow_device_remove()
 *
 * Return: 0; -EOPNOTSUPP: towline cannot use the RDMA device, or the
 * administrator excluded it; another negative errno: a step failed.  Errors are
 * logged.
 */
static int tow_device_add(struct ib_device *ibdev, struct tow_device **result)
{
	const char *reason = tow_device_unusable(ibdev);
	struct tow_device *dev;
	int ret;

	ret = tow_device_wanted(ibdev);
	if (ret < 0)
		goto err_log;
	if (!ret)
		reason = "the module's parameter \"devices\" does not name it";
	if (reason) {
		trace_tow_device_skip(ibdev, reason);
		pr_info("%s: left alone: %s\n", dev_name(&ibdev->dev), reason);
		return -EOPNOTSUPP;
	}
	dev = tow_device_alloc(ibdev);
	if (IS_ERR(dev)) {
		ret = PTR_ERR(dev);
		goto err_log;
	}
	ret = tow_device_bring_up(dev);
	if (ret)
		goto err_put;
	ret = tow_device_make_node(dev);
	if (ret)
		goto err_take_down;
	trace_tow_device_add(dev);
	*result = dev;
	return 0;

err_take_down:
	WRITE_ONCE(dev->going, true);
	tow_device_take_down(dev);
err_put:
	tow_device_put(dev);
err_log:
	pr_err("%s: not taken into use: error %d\n", dev_name(&ibdev->dev),
	       ret);
	return ret;
}

/**
 * tow_device_remove - undo tow_device_add()
 * @dev: the device; puts the reference of tow_device_add()
 *
 * Returns within seconds, whatever user space does.  Afterwards nothing of
 * towline is left on the RDMA device.
 */
static void tow_device_remove(struct tow_device *dev)
{
	WRITE_ONCE(dev->going, true);
	tow_device_drop_node(dev);
	tow_device_take_down(dev);
	trace_tow_device_remove(dev);
	tow_device_put(dev);
}

/**
 * tow_device_rename - take over an RDMA device's new name
 * @dev: the device
 *
 * The node is made anew, as a node in /dev cannot be renamed.  Open files stay
 * usable.
 */
static void tow_device_rename(struct tow_device *dev)
{
	int ret;

	tow_device_take_name(dev);
	tow_device_drop_node(dev);
	ret = tow_device_make_node(dev);
	if (ret)
		pr_err("%s: renamed, and left without a device node: error %d (rename it again, or load the module anew)\n",
		       dev_name(&dev->ibdev->dev), ret);
}

static struct ib_client tow_ib_client;

static int tow_main_add(struct ib_device *ibdev)
{
	struct tow_device *dev;
	int ret;

	ret = tow_device_add(ibdev, &dev);
	if (ret)
		return ret;
	ib_set_client_data(ibdev, &tow_ib_client, dev);
	return 0;
}

static void tow_main_remove(struct ib_device *ibdev, void *client_data)
{
	tow_device_remove(client_data);
}

static void tow_main_rename(struct ib_device *ibdev, void *client_data)
{
	tow_device_rename(client_data);
}

static struct ib_client tow_ib_client = {
	.name		= KBUILD_MODNAME,
	.add		= tow_main_add,
	.remove		= tow_main_remove,
	.rename		= tow_main_rename,
	/* tow_device_unusable() gives the reason for refusing such devices. */
	.no_kverbs_req	= 1,
};

static int __init tow_main_init(void)
{
	int ret;

	if (tow_accounts_by_cgroup() < 0) {
		pr_err("account_by is neither user nor, if there are any, cgroup\n");
		return -EINVAL;
	}
	ret = tow_workqueues_init();
	if (ret)
		return ret;
	tow_sysfs_init();
	tow_label_tenants_init();
	ret = tow_device_setup();
	if (ret)
		goto err_destroy_workqueues;
	/* Last: this calls tow_main_add() for each RDMA device. */
	ret = ib_register_client(&tow_ib_client);
	if (ret)
		goto err_device_cleanup;
	return 0;

err_device_cleanup:
	tow_device_cleanup();
err_destroy_workqueues:
	tow_workqueues_cleanup();
	return ret;
}

static void __exit tow_main_exit(void)
{
	ib_unregister_client(&tow_ib_client);
	tow_device_cleanup();
	/* Before processes: queued work of queues may hold processes. */
	tow_workqueues_cleanup();
	tow_process_cleanup();
}

module_init(tow_main_init);
module_exit(tow_main_exit);

MODULE_DESCRIPTION("Tensors over the wire: shared RDMA memory and connections");
MODULE_AUTHOR("The towline authors");
MODULE_LICENSE("GPL");
MODULE_VERSION(TOW_DRIVER_VERSION);
