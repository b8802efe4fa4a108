// SPDX-License-Identifier: GPL-2.0
/*
 * tow_full: an RDMA device that soon has no more queue pairs, or completion queues,
 * or that has no atomics.
 *
 *	modprobe tow_full device=rxe0
 *	echo 4 > /sys/module/tow_full/parameters/limit
 *	echo 2 > /sys/module/tow_full/parameters/cq_limit
 *	echo 128 > /sys/module/tow_full/parameters/cqe
 *	modprobe tow_full atomics=0
 *
 * Counts what work items make: towline.ko's, as initiator and as responder; the
 * tests' own are made by their processes.  Beyond the limit it says what soft-RoCE
 * says, whose own limits are a million.  With cqe the device says that no
 * completion queue has room for more.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/xarray.h>
#include <rdma/ib_verbs.h>

#include "tow_find.h"

/**
 * struct full_kind - what there is soon no more of
 * @limit: how many work items may have
 * @count: how many there are
 * @refused: how many were one too many
 * @made: those that were counted
 */
struct full_kind {
	unsigned int	limit;
	unsigned int	count;
	unsigned int	refused;
	struct xarray	made;
};

static char *device = "rxe0";
module_param(device, charp, 0444);
MODULE_PARM_DESC(device, "which RDMA device");

/* protects count and refused of both */
static DEFINE_MUTEX(full_lock);

static bool atomics = true;
module_param(atomics, bool, 0444);
MODULE_PARM_DESC(atomics, "whether the RDMA device has them, if it does without us");

static struct full_kind full_qps = {
	.limit	= UINT_MAX,
	.made	= XARRAY_INIT(full_qps.made, 0),
};
module_param_named(limit, full_qps.limit, uint, 0644);
MODULE_PARM_DESC(limit, "queue pairs that work items may have");
module_param_named(count, full_qps.count, uint, 0444);
MODULE_PARM_DESC(count, "how many there are");
module_param_named(refused, full_qps.refused, uint, 0444);
MODULE_PARM_DESC(refused, "how many were one too many");

static struct full_kind full_cqs = {
	.limit	= UINT_MAX,
	.made	= XARRAY_INIT(full_cqs.made, 0),
};
module_param_named(cq_limit, full_cqs.limit, uint, 0644);
MODULE_PARM_DESC(cq_limit, "completion queues that work items may have");
module_param_named(cq_count, full_cqs.count, uint, 0444);
MODULE_PARM_DESC(cq_count, "how many there are");
module_param_named(cq_refused, full_cqs.refused, uint, 0444);
MODULE_PARM_DESC(cq_refused, "how many were one too many");

/* The last parameter has another type since 6.11: here it is none's. */
typedef int (*full_create_cq_t)(struct ib_cq *cq,
				const struct ib_cq_init_attr *attr, void *more);

static struct ib_device *full_device;
static int full_real_cqe;
static enum ib_atomic_cap full_real_atomic_cap;
static int cqe;
static int (*full_real_create)(struct ib_qp *qp, struct ib_qp_init_attr *attr,
			       struct ib_udata *udata);
static int (*full_real_destroy)(struct ib_qp *qp, struct ib_udata *udata);
static full_create_cq_t full_real_create_cq;
static int (*full_real_destroy_cq)(struct ib_cq *cq, struct ib_udata *udata);

/* The device says so from now on; 0: as much as without us. */
static int full_set_cqe(const char *text, const struct kernel_param *param)
{
	int ret = param_set_int(text, param);

	if (!ret && full_device)
		WRITE_ONCE(full_device->attrs.max_cqe, cqe ?: full_real_cqe);
	return ret;
}

static const struct kernel_param_ops full_cqe_ops = {
	.set	= full_set_cqe,
	.get	= param_get_int,
};
module_param_cb(cqe, &full_cqe_ops, &cqe, 0644);
MODULE_PARM_DESC(cqe, "entries that a completion queue may have; 0: as many as before");

/* One more, if that is not one too many.  Return: 0, or -ENOMEM as most drivers say. */
static int full_take(struct full_kind *kind, void *object)
{
	bool room;
	int ret;

	mutex_lock(&full_lock);
	room = kind->count < READ_ONCE(kind->limit);
	if (room)
		kind->count++;
	else
		kind->refused++;
	mutex_unlock(&full_lock);
	if (!room)
		return -ENOMEM;
	ret = xa_err(xa_store(&kind->made, (unsigned long)object, object,
			      GFP_KERNEL));
	if (ret) {
		mutex_lock(&full_lock);
		kind->count--;
		mutex_unlock(&full_lock);
	}
	return ret;
}

/* One less, if it was counted. */
static void full_give_back(struct full_kind *kind, void *object)
{
	if (!xa_erase(&kind->made, (unsigned long)object))
		return;
	mutex_lock(&full_lock);
	kind->count--;
	mutex_unlock(&full_lock);
}

static int full_create(struct ib_qp *qp, struct ib_qp_init_attr *attr,
		       struct ib_udata *udata)
{
	int ret;

	if (!(current->flags & PF_WQ_WORKER))
		return full_real_create(qp, attr, udata);
	ret = full_take(&full_qps, qp);
	if (ret)
		return ret;
	ret = full_real_create(qp, attr, udata);
	if (ret)
		full_give_back(&full_qps, qp);
	return ret;
}

static int full_destroy(struct ib_qp *qp, struct ib_udata *udata)
{
	full_give_back(&full_qps, qp);
	return full_real_destroy(qp, udata);
}

static int full_create_cq(struct ib_cq *cq, const struct ib_cq_init_attr *attr,
			  void *more)
{
	int ret;

	if (!(current->flags & PF_WQ_WORKER))
		return full_real_create_cq(cq, attr, more);
	ret = full_take(&full_cqs, cq);
	if (ret)
		return ret;
	ret = full_real_create_cq(cq, attr, more);
	if (ret)
		full_give_back(&full_cqs, cq);
	return ret;
}

static int full_destroy_cq(struct ib_cq *cq, struct ib_udata *udata)
{
	full_give_back(&full_cqs, cq);
	return full_real_destroy_cq(cq, udata);
}

static int __init full_init(void)
{
	full_device = tow_find_device(device);
	if (!full_device)
		return -ENODEV;
	full_real_create = full_device->ops.create_qp;
	full_real_destroy = full_device->ops.destroy_qp;
	full_real_create_cq = (void *)full_device->ops.create_cq;
	full_real_destroy_cq = full_device->ops.destroy_cq;
	full_real_cqe = full_device->attrs.max_cqe;
	full_real_atomic_cap = full_device->attrs.atomic_cap;
	if (!atomics)
		WRITE_ONCE(full_device->attrs.atomic_cap, IB_ATOMIC_NONE);
	WRITE_ONCE(full_device->ops.create_qp, full_create);
	WRITE_ONCE(full_device->ops.destroy_qp, full_destroy);
	WRITE_ONCE(full_device->ops.create_cq, (void *)full_create_cq);
	WRITE_ONCE(full_device->ops.destroy_cq, full_destroy_cq);
	return 0;
}
module_init(full_init);

static void __exit full_exit(void)
{
	WRITE_ONCE(full_device->attrs.max_cqe, full_real_cqe);
	WRITE_ONCE(full_device->attrs.atomic_cap, full_real_atomic_cap);
	WRITE_ONCE(full_device->ops.create_qp, full_real_create);
	WRITE_ONCE(full_device->ops.destroy_qp, full_real_destroy);
	WRITE_ONCE(full_device->ops.create_cq, (void *)full_real_create_cq);
	WRITE_ONCE(full_device->ops.destroy_cq, full_real_destroy_cq);
	/* The tests have ended what they began; nobody is far behind them. */
	msleep(100);
	ib_device_put(full_device);
	xa_destroy(&full_qps.made);
	xa_destroy(&full_cqs.made);
}
module_exit(full_exit);

MODULE_DESCRIPTION("An RDMA device that soon has no more queues");
MODULE_LICENSE("GPL");
