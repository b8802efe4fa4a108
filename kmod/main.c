// SPDX-License-Identifier: GPL-2.0
/*
 * Loading and unloading, and what the kernel tells us: RDMA devices that come,
 * go and change their names.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>

#include "client.h"
#include "device.h"
#include "peer_sysfs.h"

struct workqueue_struct *tow_wq;
/* Imports that end wait for exporters, who may wait for work in the other one. */
struct workqueue_struct *tow_import_wq;
/* Attempts to connect wait for work in the other one. */
struct workqueue_struct *tow_connect_wq;
/* Completions: others wait for what these bring. */
struct workqueue_struct *tow_cq_wq;

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
	/* Devices without kernel verbs are refused by us, with a reason. */
	.no_kverbs_req	= 1,
};

static int __init tow_main_make_workqueues(void)
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

static void tow_main_destroy_workqueues(void)
{
	destroy_workqueue(tow_cq_wq);
	destroy_workqueue(tow_connect_wq);
	/* The last pool's work ends imports. */
	destroy_workqueue(tow_wq);
	destroy_workqueue(tow_import_wq);
}

static int __init tow_main_init(void)
{
	int ret;

	ret = tow_main_make_workqueues();
	if (ret)
		return ret;
	tow_debugfs_setup();
	ret = tow_device_setup();
	if (ret)
		goto err_destroy_workqueues;
	/* Last: devices are added from within. */
	ret = ib_register_client(&tow_ib_client);
	if (ret)
		goto err_device_cleanup;
	return 0;

err_device_cleanup:
	tow_device_cleanup();
err_destroy_workqueues:
	tow_debugfs_cleanup();
	tow_main_destroy_workqueues();
	return ret;
}

static void __exit tow_main_exit(void)
{
	ib_unregister_client(&tow_ib_client);
	tow_device_cleanup();
	/* What is left of queues may hold processes: those come after. */
	tow_main_destroy_workqueues();
	tow_process_cleanup();
	tow_debugfs_cleanup();
}

module_init(tow_main_init);
module_exit(tow_main_exit);

MODULE_DESCRIPTION("Tensors over the wire: shared RDMA memory and connections");
MODULE_AUTHOR("The towline authors");
MODULE_LICENSE("GPL");
MODULE_VERSION(TOW_DRIVER_VERSION);
