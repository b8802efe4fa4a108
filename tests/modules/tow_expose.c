// SPDX-License-Identifier: GPL-2.0
/*
 * tow_expose: let tests do to a region's slabs what peers' exports will do.
 *
 * tow_expose.h lists the calls of /dev/tow_expose.
 *
 * How long things live
 *
 * What a file has made ends with the file: first its queue pairs, so that
 * nobody reaches anything any more, then what it exposed.
 * It ends as well when the RDMA device goes: the RDMA core takes a device from
 * its clients in the reverse order of their registration, and we come after
 * towline, whose symbols we use, so everything works still.  From then on the
 * file only says ENODEV.
 *
 * What tests may not do: probe a key and hide it at the same time from two
 * threads on purpose (calls are serialised, so it only looks as if they could),
 * and expect anything of towline.ko's unloading while this module is loaded.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/jiffies.h>
#include <linux/list.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_verbs.h>

#include "core/core.h"
#include "memory/internal.h"
#include "memory/memory.h"
#include "peer.h"
#include "remote.h"
#include "assoc.h"
#include "tow_expose.h"

/* A debug kernel in an emulator takes its time; a lost packet, some retries. */
#define PROBE_MS		10000
#define PROBE_TIMEOUT		14	/* 4.096 us * 2^14: 67 ms */
#define PROBE_RETRIES		6
#define PROBE_MIN_RNR		12

#define PROBE_ACCESS		(IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE | \
				 IB_ACCESS_REMOTE_ATOMIC)

/* The two ends of the probing queue pairs. */
enum tow_expose_end { ASKS, ANSWERS, ENDS };

/**
 * struct tow_expose_prober - a connected pair of queue pairs
 * @cq: of both; NULL: not made yet, or done for
 * @qp: in the slabs' protection domain
 * @cqe: of the request under way
 * @done: it has completed
 * @status: how
 */
struct tow_expose_prober {
	struct ib_cq		*cq;
	struct ib_qp		*qp[ENDS];
	struct ib_cqe		cqe;
	bool			done;
	enum ib_wc_status	status;
};

/**
 * struct tow_expose_device - an RDMA device that is there
 * @list: in tow_expose_devices
 * @ibdev: the RDMA device
 * @files: those that belong to it
 */
struct tow_expose_device {
	struct list_head	list;
	struct ib_device	*ibdev;
	struct list_head	files;
};

/**
 * struct tow_expose_file - an open file
 * @list: in the device's
 * @device: whose it is; NULL: nobody's yet, or gone
 * @dev: what towline has of it
 * @gone: it belonged to a device that is gone
 * @uses: what it has made
 * @last_id: of the youngest of those
 * @prober: for PROBE
 */
struct tow_expose_file {
	struct list_head		list;
	struct tow_expose_device	*device;
	struct tow_device		*dev;
	bool				gone;
	struct list_head		uses;
	u32				last_id;
	struct tow_expose_prober	prober;
};

/**
 * struct tow_expose_use - an exposure
 * @list: in the file's
 * @region: its region, with a reference
 * @slab: the slab
 * @rights: what peers may do
 * @id: its number
 */
struct tow_expose_use {
	struct list_head	list;
	struct tow_region	*region;
	struct tow_slab		*slab;
	enum tow_rights		rights;
	u32			id;
};

/* Protects everything here; taken by every call. */
static DEFINE_MUTEX(tow_expose_lock);
static LIST_HEAD(tow_expose_devices);

/* ---- probing --------------------------------------------------------------- */

static void tow_prober_destroy(struct tow_expose_prober *prober)
{
	int end;

	for (end = 0; end < ENDS; end++) {
		if (prober->qp[end])
			ib_destroy_qp(prober->qp[end]);
	}
	if (prober->cq)
		ib_free_cq(prober->cq);
	memset(prober, 0, sizeof(*prober));
}

static struct ib_qp *tow_prober_make_qp(struct tow_device *dev, struct ib_cq *cq)
{
	struct ib_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {
			.max_send_wr = 1, .max_recv_wr = 1,
			.max_send_sge = 1, .max_recv_sge = 1,
		},
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.qp_type = IB_QPT_RC,
	};

	return ib_create_qp(dev->pd, &attr);
}

static int tow_prober_to_init(struct tow_device *dev, struct ib_qp *qp)
{
	struct ib_qp_attr attr = {
		.qp_state	 = IB_QPS_INIT,
		.port_num	 = dev->port,
		.qp_access_flags = PROBE_ACCESS,
	};

	return ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT |
			    IB_QP_ACCESS_FLAGS);
}

/* The way to oneself: the one that the maintenance queue pair has found. */
static int tow_prober_address(struct tow_device *dev, const struct ib_port_attr *port,
			      struct rdma_ah_attr *ah)
{
	const struct ib_gid_attr *attr;
	union ib_gid gid;
	int index, ret;

	ah->type = rdma_ah_find_type(dev->ibdev, dev->port);
	rdma_ah_set_port_num(ah, dev->port);
	if (dev->transport == TOW_TRANSPORT_IB) {
		rdma_ah_set_dlid(ah, port->lid);
		return 0;
	}
	mutex_lock(&dev->memory->maint.use);
	index = dev->memory->maint.gid_index;
	mutex_unlock(&dev->memory->maint.use);
	attr = rdma_get_gid_attr(dev->ibdev, dev->port, index);
	if (IS_ERR(attr))
		return PTR_ERR(attr);
	gid = attr->gid;
	ret = rdma_read_gid_l2_fields(attr, NULL, ah->roce.dmac);
	rdma_ah_set_grh(ah, &gid, 0, index, 1, 0);
	rdma_put_gid_attr(attr);
	return ret;
}

static int tow_prober_to_rtr(struct tow_device *dev, struct ib_qp *qp, u32 peer)
{
	struct ib_qp_attr attr = {
		.qp_state		= IB_QPS_RTR,
		.dest_qp_num		= peer,
		.max_dest_rd_atomic	= 1,
		.min_rnr_timer		= PROBE_MIN_RNR,
	};
	struct ib_port_attr port;
	int ret;

	ret = ib_query_port(dev->ibdev, dev->port, &port);
	if (!ret)
		ret = tow_prober_address(dev, &port, &attr.ah_attr);
	if (ret)
		return ret;
	attr.path_mtu = port.active_mtu;
	return ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_AV | IB_QP_PATH_MTU |
			    IB_QP_DEST_QPN | IB_QP_RQ_PSN | IB_QP_MAX_DEST_RD_ATOMIC |
			    IB_QP_MIN_RNR_TIMER);
}

static int tow_prober_to_rts(struct ib_qp *qp)
{
	struct ib_qp_attr attr = {
		.qp_state	= IB_QPS_RTS,
		.timeout	= PROBE_TIMEOUT,
		.retry_cnt	= PROBE_RETRIES,
		.rnr_retry	= PROBE_RETRIES,
		.max_rd_atomic	= 1,
	};

	return ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_SQ_PSN | IB_QP_TIMEOUT |
			    IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_MAX_QP_RD_ATOMIC);
}

static int tow_prober_connect(struct tow_device *dev, struct tow_expose_prober *prober)
{
	int end, ret = 0;

	for (end = 0; end < ENDS && !ret; end++)
		ret = tow_prober_to_init(dev, prober->qp[end]);
	for (end = 0; end < ENDS && !ret; end++)
		ret = tow_prober_to_rtr(dev, prober->qp[end], prober->qp[!end]->qp_num);
	for (end = 0; end < ENDS && !ret; end++)
		ret = tow_prober_to_rts(prober->qp[end]);
	return ret;
}

/*
 * Two queue pairs, not one connected to itself: the end that refuses a key goes
 * into its error state, and would take the one that is to hear of it along.
 */
static int tow_prober_make(struct tow_device *dev, struct tow_expose_prober *prober)
{
	int end, ret;

	prober->cq = ib_alloc_cq(dev->ibdev, prober, 2 * ENDS, 0, IB_POLL_DIRECT);
	if (IS_ERR(prober->cq)) {
		ret = PTR_ERR(prober->cq);
		prober->cq = NULL;
		return ret;
	}
	for (end = 0; end < ENDS; end++) {
		struct ib_qp *qp = tow_prober_make_qp(dev, prober->cq);

		if (IS_ERR(qp)) {
			ret = PTR_ERR(qp);
			goto err_destroy;
		}
		prober->qp[end] = qp;
	}
	ret = tow_prober_connect(dev, prober);
	if (ret)
		goto err_destroy;
	return 0;

err_destroy:
	tow_prober_destroy(prober);
	return ret;
}

/* Called from tow_prober_wait(). */
static void tow_prober_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct tow_expose_prober *prober = cq->cq_context;

	prober->done = true;
	prober->status = wc->status;
}

static int tow_prober_wait(struct tow_expose_prober *prober)
{
	unsigned long end = jiffies + msecs_to_jiffies(PROBE_MS);

	for (;;) {
		bool late = time_after(jiffies, end);

		ib_process_cq_direct(prober->cq, -1);
		if (prober->done)
			return 0;
		if (late)
			return -ETIMEDOUT;
		usleep_range(50, 200);
	}
}

static int tow_prober_post(struct tow_device *dev, struct tow_expose_prober *prober,
			   const struct tow_expose_probe *probe, dma_addr_t dma, u64 word)
{
	struct ib_sge sge = {
		.addr = dma, .length = probe->bytes, .lkey = dev->pd->local_dma_lkey,
	};
	struct ib_rdma_wr rdma = {
		.remote_addr = probe->address, .rkey = probe->key,
	};
	struct ib_atomic_wr atomic = {
		.remote_addr = probe->address, .rkey = probe->key, .compare_add = word,
	};
	struct ib_send_wr *wr = probe->op == TOW_EXPOSE_FETCH_ADD ? &atomic.wr : &rdma.wr;

	wr->opcode = probe->op == TOW_EXPOSE_FETCH_ADD ? IB_WR_ATOMIC_FETCH_AND_ADD :
		     probe->op == TOW_EXPOSE_RDMA_WRITE ? IB_WR_RDMA_WRITE : IB_WR_RDMA_READ;
	wr->send_flags = IB_SEND_SIGNALED;
	wr->sg_list = &sge;
	wr->num_sge = 1;
	wr->wr_cqe = &prober->cqe;
	prober->cqe.done = tow_prober_done;
	prober->done = false;
	return ib_post_send(prober->qp[ASKS], wr, NULL);
}

/* With the memory mapped.  What went wrong takes the queue pairs along. */
static int tow_prober_ask(struct tow_device *dev, struct tow_expose_prober *prober,
			  struct tow_expose_probe *probe, dma_addr_t dma, u64 word)
{
	int ret;

	ret = tow_prober_post(dev, prober, probe, dma, word);
	if (!ret)
		ret = tow_prober_wait(prober);
	if (!ret)
		probe->status = prober->status;
	if (ret || prober->status != IB_WC_SUCCESS)
		tow_prober_destroy(prober);
	return ret;
}

static int tow_prober_run(struct tow_device *dev, struct tow_expose_prober *prober,
			  struct tow_expose_probe *probe, void *data)
{
	u64 word = probe->op == TOW_EXPOSE_FETCH_ADD ? *(u64 *)data : 0;
	dma_addr_t dma;
	int ret = 0;

	if (!prober->cq)
		ret = tow_prober_make(dev, prober);
	if (ret)
		return ret;
	dma = ib_dma_map_single(dev->ibdev, data, TOW_EXPOSE_PROBE_MAX, DMA_BIDIRECTIONAL);
	if (ib_dma_mapping_error(dev->ibdev, dma))
		return -ENOMEM;
	ret = tow_prober_ask(dev, prober, probe, dma, word);
	ib_dma_unmap_single(dev->ibdev, dma, TOW_EXPOSE_PROBE_MAX, DMA_BIDIRECTIONAL);
	return ret;
}

/* ---- exposures ------------------------------------------------------------- */

/* Called as a user of the device. */
static void tow_expose_end_use(struct tow_expose_use *use)
{
	list_del(&use->list);
	towk_slab_hide(use->slab, use->rights);
	towk_region_put(use->region);
	kfree(use);
}

static void tow_expose_end_uses(struct tow_expose_file *file)
{
	struct tow_expose_use *use, *next;

	list_for_each_entry_safe(use, next, &file->uses, list)
		tow_expose_end_use(use);
}

/* The file is nobody's afterwards. */
static void tow_expose_end_file(struct tow_expose_file *file)
{
	if (!file->device)
		return;
	/* Our device is not gone yet, so towline's is not either. */
	if (WARN_ON_ONCE(!tow_device_enter(file->dev)))
		return;
	tow_prober_destroy(&file->prober);
	tow_expose_end_uses(file);
	tow_device_leave(file->dev);
	list_del(&file->list);
	file->device = NULL;
	file->dev = NULL;
}

/* Called as a user of @dev: the file is its from now on, if it was nobody's. */
static int tow_expose_bind(struct tow_expose_file *file, struct tow_device *dev)
{
	struct tow_expose_device *device;

	if (file->gone)
		return -ENODEV;
	if (file->device)
		return file->dev == dev ? 0 : -EXDEV;
	list_for_each_entry(device, &tow_expose_devices, list) {
		if (device->ibdev != dev->ibdev)
			continue;
		file->device = device;
		file->dev = dev;
		list_add_tail(&file->list, &device->files);
		return 0;
	}
	return -ENODEV;
}

static int tow_expose_start_use(struct tow_expose_use *use,
				struct tow_expose_slab *call)
{
	int ret;

	use->slab = use->region->slabs[call->slab];
	use->rights = call->rights;
	call->chunks = use->slab->chunk_count;
	ret = towk_slab_expose(use->slab, use->rights, &call->key, &call->address);
	call->page_bytes = use->slab->page_bytes[use->rights];
	return ret;
}

/* Called as a user of the region's device; keeps the region if it succeeds. */
static int tow_expose_add_use(struct tow_expose_file *file, struct tow_region *region,
			      struct tow_expose_slab *call)
{
	struct tow_expose_use *use;
	int ret;

	ret = tow_expose_bind(file, region->dev);
	if (ret)
		return ret;
	use = kzalloc(sizeof(*use), GFP_KERNEL);
	if (!use)
		return -ENOMEM;
	use->region = region;
	ret = tow_expose_start_use(use, call);
	if (ret) {
		kfree(use);
		return ret;
	}
	use->id = ++file->last_id;
	call->id = use->id;
	list_add(&use->list, &file->uses);
	return 0;
}

static int tow_expose_use_region(struct tow_expose_file *file, struct tow_region *region,
				 struct tow_expose_slab *call)
{
	struct tow_device *dev = region->dev;
	int ret;

	if (call->slab >= region->slab_count || call->rights >= TOW_RIGHTS)
		return -EINVAL;
	if (!tow_device_enter(dev))
		return -ENODEV;
	mutex_lock(&tow_expose_lock);
	ret = tow_expose_add_use(file, region, call);
	mutex_unlock(&tow_expose_lock);
	tow_device_leave(dev);
	return ret;
}

/* EXPOSE. */
static int tow_expose_use(struct tow_expose_file *file, void __user *user)
{
	struct tow_expose_slab call;
	struct tow_region *region;
	int ret;

	if (copy_from_user(&call, user, sizeof(call)))
		return -EFAULT;
	region = towk_region_get(call.region_fd);
	if (IS_ERR(region))
		return PTR_ERR(region);
	ret = tow_expose_use_region(file, region, &call);
	if (ret) {
		towk_region_put(region);
		return ret;
	}
	/* What nobody hears of ends with the file. */
	return copy_to_user(user, &call, sizeof(call)) ? -EFAULT : 0;
}

/* HIDE, called as a user of the file's device. */
static int tow_expose_unuse(struct tow_expose_file *file, u32 id)
{
	struct tow_expose_use *use;

	list_for_each_entry(use, &file->uses, list) {
		if (use->id == id) {
			tow_expose_end_use(use);
			return 0;
		}
	}
	return -ENOENT;
}

/*
 * It notices when it is used the next time.  Nobody's event says so before, as
 * it is not the device that found an error.
 */
static int tow_expose_break(struct tow_device *dev)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };
	int ret = -EAGAIN;

	mutex_lock(&dev->memory->maint.use);
	if (dev->memory->maint.state == TOW_MAINT_READY)
		ret = ib_modify_qp(dev->memory->maint.qp, &attr, IB_QP_STATE);
	mutex_unlock(&dev->memory->maint.use);
	return ret;
}

static bool tow_expose_describe(struct tow_session *session, struct tow_expose_remote *found)
{
	/* Pairs with tow_assoc_carry(). */
	struct tow_assoc *assoc = smp_load_acquire(&session->assoc);
	struct tow_remote *remote;
	unsigned long grant;

	if (!assoc)
		return false;
	xa_for_each(&assoc->dir.remotes, grant, remote) {
		if (remote->state != TOW_REMOTE_VALID)
			continue;
		found->address = remote->segments[0].address;
		found->bytes = remote->total > 1 ? remote->segments[1].offset : remote->bytes;
		found->key = remote->segments[0].key;
		found->segments = remote->total;
		return true;
	}
	return false;
}

/* Sessions stay while we look; what is in them, as the caller lets it be. */
static int tow_expose_remote(struct tow_device *dev, struct tow_expose_remote *found)
{
	struct tow_session *session;
	unsigned long index;
	int ret = -ENOENT;

	mutex_lock(&dev->peers->lock);
	xa_for_each(&dev->peers->sessions, index, session) {
		if (!tow_expose_describe(session, found))
			continue;
		ret = 0;
		break;
	}
	mutex_unlock(&dev->peers->lock);
	return ret;
}

/* ---- calls ----------------------------------------------------------------- */

struct tow_expose_work {
	unsigned int		cmd;
	u32			id;
	struct tow_expose_probe	*probe;
	void			*data;
	struct tow_expose_remote remote;
};

static int tow_expose_do(struct tow_expose_file *file, struct tow_expose_work *work)
{
	switch (work->cmd) {
	case TOW_EXPOSE_PROBE:
		return tow_prober_run(file->dev, &file->prober, work->probe, work->data);
	case TOW_EXPOSE_BREAK:
		return tow_expose_break(file->dev);
	case TOW_EXPOSE_REMOTE:
		return tow_expose_remote(file->dev, &work->remote);
	default:
		return tow_expose_unuse(file, work->id);
	}
}

/* What needs no region but the file's device. */
static int tow_expose_on_device(struct tow_expose_file *file, struct tow_expose_work *work)
{
	struct tow_device *dev;
	int ret;

	mutex_lock(&tow_expose_lock);
	dev = file->dev;
	if (!dev) {
		ret = file->gone ? -ENODEV : -ENOENT;
	} else if (!tow_device_enter(dev)) {
		ret = -ENODEV;
	} else {
		ret = tow_expose_do(file, work);
		tow_device_leave(dev);
	}
	mutex_unlock(&tow_expose_lock);
	return ret;
}

static bool tow_expose_valid(const struct tow_expose_probe *probe)
{
	switch (probe->op) {
	case TOW_EXPOSE_FETCH_ADD:
		return probe->bytes == sizeof(u64);
	case TOW_EXPOSE_RDMA_READ:
	case TOW_EXPOSE_RDMA_WRITE:
		return probe->bytes && probe->bytes <= TOW_EXPOSE_PROBE_MAX;
	default:
		return false;
	}
}

static int tow_expose_probe_data(struct tow_expose_file *file, struct tow_expose_probe *probe,
				 void *data)
{
	struct tow_expose_work work = {
		.cmd = TOW_EXPOSE_PROBE, .probe = probe, .data = data,
	};
	void __user *user = u64_to_user_ptr(probe->data);
	int ret;

	if (copy_from_user(data, user, probe->bytes))
		return -EFAULT;
	ret = tow_expose_on_device(file, &work);
	if (!ret && copy_to_user(user, data, probe->bytes))
		ret = -EFAULT;
	return ret;
}

static int tow_expose_probe(struct tow_expose_file *file, void __user *user)
{
	struct tow_expose_probe probe;
	void *data;
	int ret;

	if (copy_from_user(&probe, user, sizeof(probe)))
		return -EFAULT;
	if (!tow_expose_valid(&probe))
		return -EINVAL;
	data = kzalloc(TOW_EXPOSE_PROBE_MAX, GFP_KERNEL);
	if (!data)
		return -ENOMEM;
	ret = tow_expose_probe_data(file, &probe, data);
	kfree(data);
	if (!ret && copy_to_user(user, &probe, sizeof(probe)))
		ret = -EFAULT;
	return ret;
}

static long tow_expose_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	struct tow_expose_file *file = filp->private_data;
	struct tow_expose_work work = { .cmd = cmd, .id = arg };
	void __user *user = (void __user *)arg;
	int ret;

	switch (cmd) {
	case TOW_EXPOSE_EXPOSE:
		return tow_expose_use(file, user);
	case TOW_EXPOSE_PROBE:
		return tow_expose_probe(file, user);
	case TOW_EXPOSE_HIDE:
	case TOW_EXPOSE_BREAK:
		return tow_expose_on_device(file, &work);
	case TOW_EXPOSE_REMOTE:
		ret = tow_expose_on_device(file, &work);
		if (!ret && copy_to_user(user, &work.remote, sizeof(work.remote)))
			ret = -EFAULT;
		return ret;
	default:
		return -ENOTTY;
	}
}

static int tow_expose_open(struct inode *inode, struct file *filp)
{
	struct tow_expose_file *file = kzalloc(sizeof(*file), GFP_KERNEL);

	if (!file)
		return -ENOMEM;
	INIT_LIST_HEAD(&file->uses);
	filp->private_data = file;
	return 0;
}

static int tow_expose_release(struct inode *inode, struct file *filp)
{
	struct tow_expose_file *file = filp->private_data;

	mutex_lock(&tow_expose_lock);
	tow_expose_end_file(file);
	mutex_unlock(&tow_expose_lock);
	kfree(file);
	return 0;
}

static const struct file_operations tow_expose_fops = {
	.owner		= THIS_MODULE,
	.open		= tow_expose_open,
	.release	= tow_expose_release,
	.unlocked_ioctl	= tow_expose_ioctl,
};

static struct miscdevice tow_expose_misc = {
	.minor	= MISC_DYNAMIC_MINOR,
	.name	= "tow_expose",
	.fops	= &tow_expose_fops,
};

/* ---- devices --------------------------------------------------------------- */

static int tow_expose_add(struct ib_device *ibdev);
static void tow_expose_remove(struct ib_device *ibdev, void *data);

static struct ib_client tow_expose_client = {
	.name	= "tow_expose",
	.add	= tow_expose_add,
	.remove	= tow_expose_remove,
};

static int tow_expose_add(struct ib_device *ibdev)
{
	struct tow_expose_device *device = kzalloc(sizeof(*device), GFP_KERNEL);

	if (!device)
		return -ENOMEM;
	device->ibdev = ibdev;
	INIT_LIST_HEAD(&device->files);
	ib_set_client_data(ibdev, &tow_expose_client, device);
	mutex_lock(&tow_expose_lock);
	list_add_tail(&device->list, &tow_expose_devices);
	mutex_unlock(&tow_expose_lock);
	return 0;
}

static void tow_expose_remove(struct ib_device *ibdev, void *data)
{
	struct tow_expose_device *device = data;
	struct tow_expose_file *file, *next;

	mutex_lock(&tow_expose_lock);
	list_for_each_entry_safe(file, next, &device->files, list) {
		tow_expose_end_file(file);
		file->gone = true;
	}
	list_del(&device->list);
	mutex_unlock(&tow_expose_lock);
	kfree(device);
}

static int __init tow_expose_init(void)
{
	int ret;

	ret = ib_register_client(&tow_expose_client);
	if (ret)
		return ret;
	ret = misc_register(&tow_expose_misc);
	if (ret)
		ib_unregister_client(&tow_expose_client);
	return ret;
}

static void __exit tow_expose_exit(void)
{
	misc_deregister(&tow_expose_misc);
	ib_unregister_client(&tow_expose_client);
}

module_init(tow_expose_init);
module_exit(tow_expose_exit);

MODULE_DESCRIPTION("exposes slabs and probes keys, for towline's tests");
MODULE_LICENSE("GPL");
/* As MODULE_IMPORT_NS() has it, whose argument is a word or a string. */
MODULE_INFO(import_ns, "TOWLINE_TEST");
