// SPDX-License-Identifier: GPL-2.0
/*
 * tow_full: an RDMA device that soon has no more queue pairs.
 *
 *	modprobe tow_full device=rxe0
 *	echo 4 > /sys/module/tow_full/parameters/limit
 *
 * Counts the queue pairs that work items make: towline.ko's, as initiator and as
 * responder; the tests' own are made by their processes.  Beyond the limit it
 * says what soft-RoCE says, whose own limit is a million.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/xarray.h>
#include <rdma/ib_verbs.h>

static char *device = "rxe0";
module_param(device, charp, 0444);
MODULE_PARM_DESC(device, "which RDMA device");

static unsigned int limit = UINT_MAX;
module_param(limit, uint, 0644);
MODULE_PARM_DESC(limit, "queue pairs that work items may have");

static unsigned int refused;
module_param(refused, uint, 0444);
MODULE_PARM_DESC(refused, "how many were one too many");

/* protects count, refused */
static DEFINE_MUTEX(full_lock);
static unsigned int count;
module_param(count, uint, 0444);
MODULE_PARM_DESC(count, "how many there are");

/* Those that were counted. */
static DEFINE_XARRAY(full_made);

static struct ib_device *full_device;
static int (*full_real_create)(struct ib_qp *qp, struct ib_qp_init_attr *attr,
			       struct ib_udata *udata);
static int (*full_real_destroy)(struct ib_qp *qp, struct ib_udata *udata);

static bool full_take(void)
{
	bool room;

	mutex_lock(&full_lock);
	room = count < READ_ONCE(limit);
	if (room)
		count++;
	else
		refused++;
	mutex_unlock(&full_lock);
	return room;
}

static void full_give_back(void)
{
	mutex_lock(&full_lock);
	count--;
	mutex_unlock(&full_lock);
}

static int full_create(struct ib_qp *qp, struct ib_qp_init_attr *attr,
		       struct ib_udata *udata)
{
	int ret;

	if (!(current->flags & PF_WQ_WORKER))
		return full_real_create(qp, attr, udata);
	if (!full_take())
		return -EINVAL;
	ret = xa_err(xa_store(&full_made, (unsigned long)qp, qp, GFP_KERNEL));
	if (!ret)
		ret = full_real_create(qp, attr, udata);
	if (ret) {
		xa_erase(&full_made, (unsigned long)qp);
		full_give_back();
	}
	return ret;
}

static int full_destroy(struct ib_qp *qp, struct ib_udata *udata)
{
	if (xa_erase(&full_made, (unsigned long)qp))
		full_give_back();
	return full_real_destroy(qp, udata);
}

static int __init full_init(void)
{
	full_device = ib_device_get_by_name(device, RDMA_DRIVER_UNKNOWN);
	if (!full_device)
		return -ENODEV;
	full_real_create = full_device->ops.create_qp;
	full_real_destroy = full_device->ops.destroy_qp;
	WRITE_ONCE(full_device->ops.create_qp, full_create);
	WRITE_ONCE(full_device->ops.destroy_qp, full_destroy);
	return 0;
}
module_init(full_init);

static void __exit full_exit(void)
{
	WRITE_ONCE(full_device->ops.create_qp, full_real_create);
	WRITE_ONCE(full_device->ops.destroy_qp, full_real_destroy);
	/* The tests have ended what they began; nobody is far behind them. */
	msleep(100);
	ib_device_put(full_device);
	xa_destroy(&full_made);
}
module_exit(full_exit);

MODULE_DESCRIPTION("An RDMA device that soon has no more queue pairs");
MODULE_LICENSE("GPL");
