// SPDX-License-Identifier: GPL-2.0
/*
 * open(), ioctl() and close() of /dev/towline/<ibdev>.
 *
 * An open file is a client (core.h).  It holds a reference to its tow_device
 * and, through file_operations.owner, the module; nothing of the RDMA device.
 */
#include <linux/capability.h>
#include <linux/compat.h>
#include <linux/cred.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/nsproxy.h>
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/user_namespace.h>
#include <net/net_namespace.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_verbs.h>

#include "core/core.h"
#include "core/trace.h"
#include "directory.h"
#include "memory/memory.h"
#include "peer.h"
#include "poller.h"
#include "queue.h"
#include "root.h"

/* Does the device's network interface live in the initial namespace? */
static bool tow_file_in_init_net(struct tow_device *dev)
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

/* Caller is a user of the device. */
static int tow_file_check_net(struct tow_device *dev)
{
	struct ib_device *ibdev = dev->ibdev;

	if (!rdma_dev_access_netns(ibdev, current->nsproxy->net_ns))
		return -EPERM;
	/* Soft-RoCE's sockets are in the initial namespace. */
	if (ibdev->ops.driver_id == RDMA_DRIVER_RXE &&
	    !tow_file_in_init_net(dev))
		return -EOPNOTSUPP;
	return 0;
}

static int tow_file_may_open(struct tow_device *dev, struct file *file)
{
	int ret;

	/* Calls copy answers out, so they need read access: see the contract. */
	if (!(file->f_mode & FMODE_READ))
		return -EINVAL;
	if (!tow_device_enter(dev))
		return -ENODEV;
	ret = tow_file_check_net(dev);
	tow_device_leave(dev);
	return ret;
}

/* The client has ended: it has nothing any more on return. */
static void tow_file_end_client(struct tow_client *client)
{
	tow_poller_client_end(client);
	tow_queue_client_end(client);
	/* Before regions: exports are revoked before their regions end. */
	tow_directory_client_end(client);
	tow_client_drop_handles(client, &tow_region_handle_ops);
}

static void tow_client_free(struct kref *refs)
{
	struct tow_client *client = container_of(refs, struct tow_client, refs);

	tow_process_put(client->process);
	tow_account_put(client->account);
	put_user_ns(client->user_ns);
	put_pid(client->pid);
	/* It has no handles, but may have room that one did not get. */
	xa_destroy(&client->handles);
	kfree(client);
}

static struct tow_client *tow_client_new(struct tow_device *dev,
					 struct file *file)
{
	struct tow_process *process;
	struct tow_client *client;

	client = kzalloc(sizeof(*client), GFP_KERNEL_ACCOUNT);
	if (!client)
		return ERR_PTR(-ENOMEM);
	kref_init(&client->refs);
	client->release = tow_client_free;
	INIT_LIST_HEAD(&client->queues);
	mutex_init(&client->poll_lock);
	mutex_init(&client->lock);
	xa_init_flags(&client->handles, XA_FLAGS_ALLOC);
	client->dev = dev;
	client->end = tow_file_end_client;
	client->kuid = current_euid();
	client->cgroup_id = tow_limits_cgroup();
	client->writable = file->f_mode & FMODE_WRITE;
	client->account = tow_account_new(&dev->limits);
	if (!client->account) {
		kfree(client);
		return ERR_PTR(-ENOMEM);
	}
	client->key = client->account->kuid;
	process = tow_process_get();
	if (IS_ERR(process)) {
		tow_account_put(client->account);
		kfree(client);
		return ERR_CAST(process);
	}
	client->user_ns = get_user_ns(current_user_ns());
	client->pid = get_pid(task_tgid(current));
	tow_process_add(process, client);
	return client;
}

/* The file is closed. */
static void tow_client_close(struct tow_client *client)
{
	tow_account_close(client->account);
	tow_client_end(client);
	tow_client_put(client);
}

/*
 * Who drains the device looks for clients afterwards: he finds this one, or this finds
 * that he does.  Administrators look all the same, and end what others have.
 */
static int tow_file_enrol(struct tow_client *client)
{
	int ret = tow_account_enrol(client);

	if (!ret && tow_device_draining(client->dev) && !capable(CAP_NET_ADMIN))
		ret = -ESHUTDOWN;
	return ret;
}

static int tow_file_open(struct inode *inode, struct file *file)
{
	struct tow_device *dev = tow_device_get(iminor(inode));
	struct tow_client *client;
	int ret;

	if (!dev)
		return -ENODEV;
	ret = tow_file_may_open(dev, file);
	if (!ret) {
		client = tow_client_new(dev, file);
		ret = PTR_ERR_OR_ZERO(client);
	}
	if (!ret) {
		ret = tow_file_enrol(client);
		if (ret)
			tow_client_close(client);
	}
	/* SIGKILL, or task work was to run: open() is begun anew after that. */
	if (ret == -EINTR)
		ret = -ERESTARTNOINTR;
	trace_tow_client_open(dev, ret);
	if (ret) {
		tow_device_put(dev);
		return ret;
	}
	file->private_data = client;
	return nonseekable_open(inode, file);
}

static int tow_file_release(struct inode *inode, struct file *file)
{
	struct tow_client *client = file->private_data;
	struct tow_device *dev = client->dev;

	tow_client_close(client);
	trace_tow_client_close(dev);
	tow_device_put(dev);
	return 0;
}

static u64 tow_file_features(struct tow_device *dev)
{
	struct ib_device *ibdev = dev->ibdev;
	u64 features = 0;

	if (tow_device_atomics(dev))
		features |= TOW_FEATURE_ATOMICS;
	if (ibdev->attrs.max_srq > 0)
		features |= TOW_FEATURE_SRQ;
	if (ib_uses_virt_dma(ibdev))
		features |= TOW_FEATURE_VIRT_DMA;
	return features;
}

static void tow_file_fill_limits(struct tow_device *dev,
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

/* Caller is a user of the device. */
static void tow_file_fill_query(struct tow_device *dev,
				struct tow_query *query)
{
	query->uapi_version = TOW_UAPI_VERSION;
	query->driver_version = TOW_DRIVER_VERSION_CODE;
	tow_device_name(dev, query->device_name);
	memcpy(query->incarnation, dev->incarnation,
	       sizeof(query->incarnation));
	query->features = tow_file_features(dev);
	query->transport = dev->transport;
	query->port = READ_ONCE(dev->port);
	query->page_size = PAGE_SIZE;
	query->numa_node = ibdev_to_node(dev->ibdev);
	tow_file_fill_limits(dev, query);
	tow_memory_describe(dev, query);
}

static int tow_call_query(struct tow_client *client, void *data,
			  const struct tow_answer *answer)
{
	struct tow_device *dev = client->dev;
	struct tow_query *query = data;

	if (query->flags || query->reserved)
		return -EINVAL;
	memset(query, 0, sizeof(*query));
	if (!tow_device_enter(dev))
		return -ENODEV;
	tow_file_fill_query(dev, query);
	tow_device_leave(dev);
	return tow_call_answer(answer, query);
}

/* A new call is one line here, and its function. */
static const struct tow_call tow_file_calls[] = {
	{ TOW_CALL(TOW_IOCTL_QUERY, tow_query, 208),
	  .function = tow_call_query },
	{ TOW_CALL(TOW_IOCTL_JOIN, tow_join, 56), .changes = true,
	  .function = tow_call_join },
	{ TOW_CALL(TOW_IOCTL_ACCOUNT_LIST, tow_account_list, 32),
	  .listing = &tow_account_listing },
	{ TOW_CALL(TOW_IOCTL_CLIENT_END, tow_client_end, 16), .changes = true,
	  .function = tow_call_client_end },
	{ TOW_CALL(TOW_IOCTL_REGION_CREATE, tow_region_create, 104),
	  .changes = true, .begins = true, .function = tow_call_region_create },
	{ TOW_CALL(TOW_IOCTL_REGION_DESTROY, tow_region_destroy, 16),
	  .changes = true, .function = tow_call_region_destroy },
	{ TOW_CALL(TOW_IOCTL_REGION_QUERY, tow_region_info,
		   TOW_REGION_INFO_PUBLISHED),
	  .function = tow_call_region_query },
	{ TOW_CALL(TOW_IOCTL_REGION_LIST, tow_region_list, 32),
	  .listing = &tow_region_listing },
	{ TOW_CALL(TOW_IOCTL_REGION_END, tow_region_end, 24),
	  .changes = true, .function = tow_call_region_end },
	{ TOW_CALL(TOW_IOCTL_REGION_FD, tow_region_fd, 24),
	  .changes = true, .function = tow_call_region_fd },
	{ TOW_CALL(TOW_IOCTL_REGION_FROM_FD, tow_region_from_fd, 24),
	  .changes = true, .begins = true, .function = tow_call_region_from_fd },
	{ TOW_CALL(TOW_IOCTL_REGION_ATTACH, tow_region_attach, 104),
	  .changes = true, .begins = true, .function = tow_call_region_attach },
	{ TOW_CALL(TOW_IOCTL_REGION_IMPORT_USER, tow_region_import_user, 32),
	  .changes = true, .begins = true, .function = tow_call_region_import_user },
	{ TOW_CALL(TOW_IOCTL_REGION_IMPORT_DMABUF, tow_region_import_dmabuf, 40),
	  .changes = true, .begins = true, .function = tow_call_region_import_dmabuf },
	{ TOW_CALL(TOW_IOCTL_PEER_CONNECT, tow_peer_connect, 96),
	  .changes = true, .begins = true, .function = tow_call_peer_connect },
	{ TOW_CALL(TOW_IOCTL_PEER_DISCONNECT, tow_peer_disconnect, 16),
	  .changes = true, .function = tow_call_peer_disconnect },
	{ TOW_CALL(TOW_IOCTL_PEER_LIST, tow_peer_list, 32),
	  .listing = &tow_peer_listing },
	{ TOW_CALL(TOW_IOCTL_EXPORT, tow_export, 304), .changes = true,
	  .begins = true, .function = tow_call_export },
	{ TOW_CALL(TOW_IOCTL_UNEXPORT, tow_unexport, 16), .changes = true,
	  .function = tow_call_unexport },
	{ TOW_CALL(TOW_IOCTL_EXPORT_LIST, tow_export_list, 32),
	  .listing = &tow_export_listing },
	{ TOW_CALL(TOW_IOCTL_RESOLVE, tow_resolve, 304), .changes = true,
	  .begins = true, .function = tow_call_resolve },
	{ TOW_CALL(TOW_IOCTL_RELEASE, tow_release, 16), .changes = true,
	  .function = tow_call_release },
	{ TOW_CALL(TOW_IOCTL_QUEUE_CREATE, tow_queue_create, 40),
	  .changes = true, .begins = true, .function = tow_call_queue_create },
};

static const struct tow_call *tow_file_find_call(unsigned int cmd)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(tow_file_calls); i++) {
		if (tow_file_calls[i].cmd == cmd)
			return &tow_file_calls[i];
	}
	return NULL;
}

static long tow_file_call(struct tow_client *client, unsigned int cmd,
			  void __user *user)
{
	const struct tow_call *call = tow_file_find_call(cmd);

	/* Only for the order of errors: each call enters the device itself. */
	if (tow_device_going(client->dev))
		return -ENODEV;
	if (!call)
		return -ENOTTY;
	/* A call that changes nothing needs only the open file. */
	if (call->changes) {
		if (!client->writable)
			return -EBADF;
		if (!tow_process_is_current(client->process) ||
		    READ_ONCE(client->ended))
			return -EPERM;
		if (call->begins && tow_device_draining(client->dev))
			return -ESHUTDOWN;
	}
	return tow_call_run(call, client, user);
}

static long tow_file_ioctl(struct file *file, unsigned int cmd,
			   unsigned long arg)
{
	struct tow_client *client = file->private_data;
	long ret;

	ret = tow_file_call(client, cmd, (void __user *)arg);
	trace_tow_ioctl(client->dev, cmd, ret);
	return ret;
}

const struct file_operations tow_file_fops = {
	.owner		= THIS_MODULE,
	.open		= tow_file_open,
	.release	= tow_file_release,
	.unlocked_ioctl	= tow_file_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
	.llseek		= noop_llseek,
};
