// SPDX-License-Identifier: GPL-2.0
/*
 * What programs do with /dev/towline/<ibdev>: open, ioctl, close.
 *
 * An open file holds a reference to its tow_device and, through
 * file_operations.owner, the module; nothing of the RDMA device.
 */
#include <linux/compat.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/nsproxy.h>
#include <linux/uaccess.h>
#include <net/net_namespace.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_verbs.h>

#include "device.h"
#include "trace.h"

/* No structure of the contract is ever larger. */
#define TOW_STRUCT_MAX		4096

/* Published sizes: of the first version that had the structure, for ever. */
#define TOW_QUERY_PUBLISHED	208

/* Does the device's network interface live in the initial namespace? */
static bool tow_client_in_init_net(struct tow_device *dev)
{
	const struct ib_gid_attr *attr;
	struct net_device *ndev;
	bool result = true;

	/* Every RoCE interface has a default GID, at the table's beginning. */
	attr = rdma_get_gid_attr(dev->ibdev, dev->port, 0);
	if (IS_ERR(attr))
		return true;
	rcu_read_lock();
	ndev = rdma_read_gid_attr_ndev_rcu(attr);
	if (!IS_ERR(ndev))
		result = net_eq(dev_net(ndev), &init_net);
	rcu_read_unlock();
	rdma_put_gid_attr(attr);
	return result;
}

/* Called by users of the device. */
static int tow_client_check_net(struct tow_device *dev)
{
	struct ib_device *ibdev = dev->ibdev;

	if (!rdma_dev_access_netns(ibdev, current->nsproxy->net_ns))
		return -EPERM;
	/* Its sockets are in the initial namespace, whatever the interface. */
	if (ibdev->ops.driver_id == RDMA_DRIVER_RXE &&
	    !tow_client_in_init_net(dev))
		return -EOPNOTSUPP;
	return 0;
}

static int tow_client_may_open(struct tow_device *dev, struct file *file)
{
	int ret;

	/* Every call answers, so it needs to read; see the contract. */
	if (!(file->f_mode & FMODE_READ))
		return -EINVAL;
	if (!tow_device_enter(dev))
		return -ENODEV;
	ret = tow_client_check_net(dev);
	tow_device_leave(dev);
	return ret;
}

static int tow_client_open(struct inode *inode, struct file *file)
{
	struct tow_device *dev = tow_device_get(iminor(inode));
	int ret;

	if (!dev)
		return -ENODEV;
	ret = tow_client_may_open(dev, file);
	trace_tow_client_open(dev, ret);
	if (ret) {
		tow_device_put(dev);
		return ret;
	}
	file->private_data = dev;
	return nonseekable_open(inode, file);
}

static int tow_client_release(struct inode *inode, struct file *file)
{
	struct tow_device *dev = file->private_data;

	trace_tow_client_close(dev);
	tow_device_put(dev);
	return 0;
}

/*
 * Reads a structure that begins with its size, by the rules of the contract.
 * The user may change the size between our two reads: only the first counts,
 * and comes back in @user_size.
 */
static int tow_client_copy_in(void *to, u32 known, u32 published,
			      const void __user *from, u32 *user_size)
{
	u32 size;

	if (get_user(size, (const u32 __user *)from))
		return -EFAULT;
	if (size < published)
		return -EINVAL;
	if (size > TOW_STRUCT_MAX)
		return -E2BIG;
	*user_size = size;
	return copy_struct_from_user(to, known, from, size);
}

static u64 tow_client_features(struct tow_device *dev)
{
	struct ib_device *ibdev = dev->ibdev;
	u64 features = 0;

	if (dev->transport != TOW_TRANSPORT_IWARP)
		features |= TOW_FEATURE_WRITE_IMM;
	if (ibdev->attrs.atomic_cap != IB_ATOMIC_NONE)
		features |= TOW_FEATURE_ATOMICS;
	if (ibdev->attrs.max_srq > 0)
		features |= TOW_FEATURE_SRQ;
	if (ib_uses_virt_dma(ibdev))
		features |= TOW_FEATURE_VIRT_DMA;
	return features;
}

static void tow_client_fill_limits(struct tow_device *dev,
				   struct tow_query *query)
{
	const struct ib_device_attr *attrs = &dev->ibdev->attrs;

	query->max_mr_size = attrs->max_mr_size;
	query->max_msg_size = dev->max_msg_bytes;
	query->max_mr = attrs->max_mr;
	query->max_fast_reg_pages = attrs->max_fast_reg_page_list_len;
	query->max_pd = attrs->max_pd;
	query->max_qp = attrs->max_qp;
	query->max_qp_wr = attrs->max_qp_wr;
	query->max_send_sge = attrs->max_send_sge;
	query->max_recv_sge = attrs->max_recv_sge;
	query->max_sge_rd = attrs->max_sge_rd;
	query->max_cq = attrs->max_cq;
	query->max_cqe = attrs->max_cqe;
	query->max_srq = attrs->max_srq;
	query->max_srq_wr = attrs->max_srq_wr;
	query->max_qp_rd_atom = attrs->max_qp_rd_atom;
	query->max_qp_init_rd_atom = attrs->max_qp_init_rd_atom;
}

/* Called by users of the device. */
static void tow_client_fill_query(struct tow_device *dev,
				  struct tow_query *query)
{
	query->uapi_version = TOW_UAPI_VERSION;
	query->driver_version = TOW_DRIVER_VERSION_CODE;
	tow_device_name(dev, query->device_name);
	memcpy(query->incarnation, dev->incarnation,
	       sizeof(query->incarnation));
	query->features = tow_client_features(dev);
	query->transport = dev->transport;
	query->port = dev->port;
	query->page_size = PAGE_SIZE;
	query->numa_node = ibdev_to_node(dev->ibdev);
	tow_client_fill_limits(dev, query);
	tow_maint_describe(&dev->maint, query);
}

static int tow_client_query(struct tow_device *dev, void __user *user)
{
	struct tow_query query;
	u32 user_size, filled;
	int ret;

	BUILD_BUG_ON(sizeof(query) < TOW_QUERY_PUBLISHED);

	ret = tow_client_copy_in(&query, sizeof(query), TOW_QUERY_PUBLISHED,
				 user, &user_size);
	if (ret)
		return ret;
	if (query.flags || query.reserved)
		return -EINVAL;

	filled = min_t(u32, user_size, sizeof(query));
	memset(&query, 0, sizeof(query));
	query.size = filled;
	if (!tow_device_enter(dev))
		return -ENODEV;
	tow_client_fill_query(dev, &query);
	tow_device_leave(dev);
	return copy_to_user(user, &query, filled) ? -EFAULT : 0;
}

static long tow_client_call(struct tow_device *dev, unsigned int cmd,
			    void __user *user)
{
	/* Only for the order of errors: each call enters by itself. */
	if (percpu_ref_is_dying(&dev->users))
		return -ENODEV;
	switch (cmd) {
	case TOW_IOCTL_QUERY:
		return tow_client_query(dev, user);
	default:
		return -ENOTTY;
	}
}

static long tow_client_ioctl(struct file *file, unsigned int cmd,
			     unsigned long arg)
{
	struct tow_device *dev = file->private_data;
	long ret;

	ret = tow_client_call(dev, cmd, (void __user *)arg);
	trace_tow_ioctl(dev, cmd, ret);
	return ret;
}

const struct file_operations tow_client_fops = {
	.owner		= THIS_MODULE,
	.open		= tow_client_open,
	.release	= tow_client_release,
	.unlocked_ioctl	= tow_client_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
	.llseek		= noop_llseek,
};
