// SPDX-License-Identifier: GPL-2.0
/*
 * tow_probe: the floor under towline.
 *
 * Posts reads and writes inside the kernel, without anything of towline's: its
 * own protection domain, completion queue, memory and pair of queue pairs, on
 * an RDMA device that so talks to itself.  tow_raw.h has the one call.  What
 * towline takes longer for the same is its own cost, and what it takes as long
 * for is the device's.
 *
 * A run makes all it needs and unmakes it again; only posting and polling is
 * timed, after a warm-up.  It holds the device, which waits for it when it goes.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <net/ipv6.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_verbs.h>

#include "tow_find.h"
#include "tow_raw.h"

/* Without any completion for so long something is wrong. */
#define STALL_MS		10000

#define RAW_PORT		1
#define RAW_TIMEOUT		14	/* 4.096 us * 2^14: 67 ms */
#define RAW_RETRIES		6
#define RAW_MIN_RNR		12
/* As towline's own queue pairs have. */
#define RAW_READS		16
#define RAW_INLINE		64

#define RAW_ORDER		get_order(TOW_RAW_MEMORY)
#define RAW_PAGES		(TOW_RAW_MEMORY / PAGE_SIZE)

/* The two ends; the first one asks. */
enum tow_raw_end { ASKS, ANSWERS, ENDS };

/**
 * struct tow_raw - what one run has
 * @ibdev: the RDMA device, with a reference
 * @run: what was asked for
 * @pd: of everything
 * @cq: of both queue pairs; polled by the caller
 * @qp: the pair
 * @pages: memory of each end
 * @dma: the same, as the device sees it
 * @mapped: it does
 * @mr: of the end that answers
 * @cqe: of all requests
 * @wr: room for a batch
 * @sge: likewise
 * @inline_bytes: writes up to this size take their data along, as towline's do: only
 *	software copies it from the address that it is given
 * @completed: operations
 * @status: of the first that failed, or IB_WC_SUCCESS
 */
struct tow_raw {
	struct ib_device	*ibdev;
	struct tow_raw_run	*run;
	struct ib_pd		*pd;
	struct ib_cq		*cq;
	struct ib_qp		*qp[ENDS];
	struct page		*pages[ENDS];
	u64			dma[ENDS];
	bool			mapped[ENDS];
	struct ib_mr		*mr;
	struct ib_cqe		cqe;
	struct ib_rdma_wr	*wr;
	struct ib_sge		*sge;
	u32			inline_bytes;
	u32			completed;
	enum ib_wc_status	status;
};

/* ---- posting and polling ---------------------------------------------------- */

/* Called from ib_process_cq_direct(). */
static void tow_raw_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct tow_raw *raw = cq->cq_context;

	raw->completed += raw->run->batch;
	if (raw->status == IB_WC_SUCCESS)
		raw->status = wc->status;
}

/*
 * soft-RoCE of 6.1 works in a tasklet.  With soft interrupts held back it runs
 * here, when they are let loose, and not in some other thread.
 */
static int tow_raw_post(struct tow_raw *raw, struct ib_send_wr *first)
{
	int ret;

	local_bh_disable();
	ret = ib_post_send(raw->qp[ASKS], first, NULL);
	local_bh_enable();
	return ret;
}

/* The chain stays as it is; only the places move on. */
static void tow_raw_prepare(struct tow_raw *raw)
{
	const struct tow_raw_run *run = raw->run;
	u32 i;

	raw->cqe.done = tow_raw_done;
	for (i = 0; i < run->batch; i++) {
		struct ib_send_wr *wr = &raw->wr[i].wr;
		bool last = i == run->batch - 1;

		raw->sge[i].length = run->bytes;
		raw->sge[i].lkey = raw->pd->local_dma_lkey;
		raw->wr[i].rkey = raw->mr->rkey;
		wr->next = last ? NULL : &raw->wr[i + 1].wr;
		wr->wr_cqe = &raw->cqe;
		wr->sg_list = &raw->sge[i];
		wr->num_sge = 1;
		wr->opcode = run->op == TOW_RAW_READ ? IB_WR_RDMA_READ : IB_WR_RDMA_WRITE;
		wr->send_flags = last ? IB_SEND_SIGNALED : 0;
		if (run->op == TOW_RAW_WRITE && run->bytes <= raw->inline_bytes)
			wr->send_flags |= IB_SEND_INLINE;
	}
}

static int tow_raw_post_batch(struct tow_raw *raw, u32 first)
{
	const struct tow_raw_run *run = raw->run;
	u64 stride = (u64)run->bytes + run->gap;
	u32 i;

	for (i = 0; i < run->batch; i++) {
		u64 offset = (first + i) % run->places * stride;

		raw->sge[i].addr = raw->dma[ASKS] + offset;
		raw->wr[i].remote_addr = raw->mr->iova + offset;
	}
	return tow_raw_post(raw, &raw->wr[0].wr);
}

static int tow_raw_loop(struct tow_raw *raw, u32 count)
{
	const struct tow_raw_run *run = raw->run;
	unsigned long end = jiffies + msecs_to_jiffies(STALL_MS);
	u32 posted = 0;
	int ret;

	raw->completed = 0;
	while (raw->completed < count) {
		while (posted < count && posted - raw->completed < run->window) {
			ret = tow_raw_post_batch(raw, posted);
			if (ret)
				return ret;
			posted += run->batch;
		}
		if (ib_process_cq_direct(raw->cq, -1) > 0)
			end = jiffies + msecs_to_jiffies(STALL_MS);
		else if (time_after(jiffies, end))
			return -ETIMEDOUT;
		if (raw->status != IB_WC_SUCCESS)
			return -EIO;
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	return 0;
}

static int tow_raw_measure(struct tow_raw *raw)
{
	struct tow_raw_run *run = raw->run;
	u64 before;
	int ret;

	tow_raw_prepare(raw);
	ret = tow_raw_loop(raw, run->window);
	if (ret)
		return ret;
	before = ktime_get_ns();
	ret = tow_raw_loop(raw, run->count);
	run->time_ns = ktime_get_ns() - before;
	return ret;
}

/* ---- queue pairs ------------------------------------------------------------ */

static struct ib_qp *tow_raw_make_qp(struct tow_raw *raw)
{
	struct ib_qp_init_attr attr = {
		.send_cq = raw->cq,
		.recv_cq = raw->cq,
		.cap = {
			.max_send_wr = TOW_RAW_WINDOW_MAX, .max_recv_wr = 1,
			.max_send_sge = 1, .max_recv_sge = 1,
			.max_inline_data = ib_uses_virt_dma(raw->ibdev) ? RAW_INLINE : 0,
		},
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.qp_type = IB_QPT_RC,
	};
	struct ib_qp *qp = ib_create_qp(raw->pd, &attr);

	raw->inline_bytes = ib_uses_virt_dma(raw->ibdev) ? attr.cap.max_inline_data : 0;
	return qp;
}

static int tow_raw_to_init(struct ib_qp *qp)
{
	struct ib_qp_attr attr = {
		.qp_state	 = IB_QPS_INIT,
		.port_num	 = RAW_PORT,
		.qp_access_flags = IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE,
	};

	return ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT |
			    IB_QP_ACCESS_FLAGS);
}

/* The port's IPv4 address, which is there in the lab; or the last one it has. */
static const struct ib_gid_attr *tow_raw_find_gid(struct ib_device *ibdev, int count)
{
	const struct ib_gid_attr *found = NULL;
	int i;

	for (i = 0; i < count; i++) {
		const struct ib_gid_attr *attr = rdma_get_gid_attr(ibdev, RAW_PORT, i);

		if (IS_ERR(attr))
			continue;
		if (found)
			rdma_put_gid_attr(found);
		found = attr;
		if (ipv6_addr_v4mapped((const struct in6_addr *)attr->gid.raw))
			break;
	}
	return found ?: ERR_PTR(-EADDRNOTAVAIL);
}

static int tow_raw_address(struct ib_device *ibdev, const struct ib_port_attr *port,
			   struct rdma_ah_attr *ah)
{
	const struct ib_gid_attr *attr;
	union ib_gid gid;
	int ret;

	ah->type = rdma_ah_find_type(ibdev, RAW_PORT);
	rdma_ah_set_port_num(ah, RAW_PORT);
	if (!rdma_protocol_roce(ibdev, RAW_PORT)) {
		rdma_ah_set_dlid(ah, port->lid);
		return 0;
	}
	attr = tow_raw_find_gid(ibdev, port->gid_tbl_len);
	if (IS_ERR(attr))
		return PTR_ERR(attr);
	gid = attr->gid;
	ret = rdma_read_gid_l2_fields(attr, NULL, ah->roce.dmac);
	rdma_ah_set_grh(ah, &gid, 0, attr->index, 1, 0);
	rdma_put_gid_attr(attr);
	return ret;
}

static int tow_raw_to_rtr(struct ib_device *ibdev, struct ib_qp *qp, u32 peer)
{
	struct ib_qp_attr attr = {
		.qp_state		= IB_QPS_RTR,
		.dest_qp_num		= peer,
		.max_dest_rd_atomic	= RAW_READS,
		.min_rnr_timer		= RAW_MIN_RNR,
	};
	struct ib_port_attr port;
	int ret;

	ret = ib_query_port(ibdev, RAW_PORT, &port);
	if (!ret)
		ret = tow_raw_address(ibdev, &port, &attr.ah_attr);
	if (ret)
		return ret;
	attr.path_mtu = port.active_mtu;
	return ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_AV | IB_QP_PATH_MTU |
			    IB_QP_DEST_QPN | IB_QP_RQ_PSN | IB_QP_MAX_DEST_RD_ATOMIC |
			    IB_QP_MIN_RNR_TIMER);
}

static int tow_raw_to_rts(struct ib_qp *qp)
{
	struct ib_qp_attr attr = {
		.qp_state	= IB_QPS_RTS,
		.timeout	= RAW_TIMEOUT,
		.retry_cnt	= RAW_RETRIES,
		.rnr_retry	= RAW_RETRIES,
		.max_rd_atomic	= RAW_READS,
	};

	return ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_SQ_PSN | IB_QP_TIMEOUT |
			    IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_MAX_QP_RD_ATOMIC);
}

static int tow_raw_connect(struct tow_raw *raw)
{
	int end, ret = 0;

	for (end = 0; end < ENDS && !ret; end++) {
		struct ib_qp *qp = tow_raw_make_qp(raw);

		if (IS_ERR(qp))
			return PTR_ERR(qp);
		raw->qp[end] = qp;
		ret = tow_raw_to_init(qp);
	}
	for (end = 0; end < ENDS && !ret; end++)
		ret = tow_raw_to_rtr(raw->ibdev, raw->qp[end], raw->qp[!end]->qp_num);
	for (end = 0; end < ENDS && !ret; end++)
		ret = tow_raw_to_rts(raw->qp[end]);
	return ret;
}

/* ---- memory ----------------------------------------------------------------- */

static int tow_raw_map(struct tow_raw *raw, int end)
{
	u64 dma;

	raw->pages[end] = alloc_pages(GFP_KERNEL | __GFP_ZERO | __GFP_COMP, RAW_ORDER);
	if (!raw->pages[end])
		return -ENOMEM;
	dma = ib_dma_map_page(raw->ibdev, raw->pages[end], 0, TOW_RAW_MEMORY,
			      DMA_BIDIRECTIONAL);
	if (ib_dma_mapping_error(raw->ibdev, dma))
		return -ENOMEM;
	raw->dma[end] = dma;
	raw->mapped[end] = true;
	return 0;
}

static void tow_raw_unmap(struct tow_raw *raw, int end)
{
	if (raw->mapped[end])
		ib_dma_unmap_page(raw->ibdev, raw->dma[end], TOW_RAW_MEMORY,
				  DMA_BIDIRECTIONAL);
	raw->mapped[end] = false;
}

/* The end that answers; the other has its protection domain's own key. */
static int tow_raw_register(struct tow_raw *raw)
{
	struct ib_reg_wr reg = {
		.wr.opcode	= IB_WR_REG_MR,
		.wr.wr_cqe	= &raw->cqe,
		.wr.send_flags	= IB_SEND_SIGNALED,
		.access		= IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_READ |
				  IB_ACCESS_REMOTE_WRITE,
	};
	unsigned long end = jiffies + msecs_to_jiffies(STALL_MS);
	struct scatterlist sg;
	int ret;

	raw->mr = ib_alloc_mr(raw->pd, IB_MR_TYPE_MEM_REG, RAW_PAGES);
	if (IS_ERR(raw->mr)) {
		ret = PTR_ERR(raw->mr);
		raw->mr = NULL;
		return ret;
	}
	sg_init_table(&sg, 1);
	sg_set_page(&sg, raw->pages[ANSWERS], TOW_RAW_MEMORY, 0);
	sg_dma_address(&sg) = raw->dma[ANSWERS];
	sg_dma_len(&sg) = TOW_RAW_MEMORY;
	ret = ib_map_mr_sg(raw->mr, &sg, 1, NULL, PAGE_SIZE);
	if (ret != 1)
		return ret < 0 ? ret : -EIO;
	ib_update_fast_reg_key(raw->mr, ib_inc_rkey(raw->mr->rkey));
	reg.mr = raw->mr;
	reg.key = raw->mr->rkey;
	raw->cqe.done = tow_raw_done;
	ret = tow_raw_post(raw, &reg.wr);
	while (!ret && ib_process_cq_direct(raw->cq, 1) <= 0) {
		if (time_after(jiffies, end))
			ret = -ETIMEDOUT;
		cond_resched();
	}
	return ret ?: raw->status == IB_WC_SUCCESS ? 0 : -EIO;
}

/* ---- a run ------------------------------------------------------------------ */

/* Undone by tow_raw_unmake(), also after a failure. */
static int tow_raw_make(struct tow_raw *raw)
{
	struct ib_pd *pd = ib_alloc_pd(raw->ibdev, 0);
	struct ib_cq *cq;
	int end, ret = 0;

	if (IS_ERR(pd))
		return PTR_ERR(pd);
	raw->pd = pd;
	cq = ib_alloc_cq(raw->ibdev, raw, ENDS * (TOW_RAW_WINDOW_MAX + 1), 0,
			 IB_POLL_DIRECT);
	if (IS_ERR(cq))
		return PTR_ERR(cq);
	raw->cq = cq;
	raw->wr = kcalloc(raw->run->batch, sizeof(*raw->wr), GFP_KERNEL);
	raw->sge = kcalloc(raw->run->batch, sizeof(*raw->sge), GFP_KERNEL);
	if (!raw->wr || !raw->sge)
		return -ENOMEM;
	for (end = 0; end < ENDS && !ret; end++)
		ret = tow_raw_map(raw, end);
	if (!ret)
		ret = tow_raw_connect(raw);
	if (!ret)
		ret = tow_raw_register(raw);
	if (raw->run->unmapped & TOW_RAW_NEAR)
		tow_raw_unmap(raw, ASKS);
	if (raw->run->unmapped & TOW_RAW_FAR)
		tow_raw_unmap(raw, ANSWERS);
	return ret;
}

/* Queue pairs go first: then nothing reaches the memory any more. */
static void tow_raw_unmake(struct tow_raw *raw)
{
	int end;

	for (end = 0; end < ENDS; end++) {
		if (raw->qp[end])
			ib_destroy_qp(raw->qp[end]);
	}
	if (raw->mr)
		ib_dereg_mr(raw->mr);
	for (end = 0; end < ENDS; end++) {
		tow_raw_unmap(raw, end);
		if (raw->pages[end])
			__free_pages(raw->pages[end], RAW_ORDER);
	}
	kfree(raw->sge);
	kfree(raw->wr);
	if (raw->cq)
		ib_free_cq(raw->cq);
	if (raw->pd)
		ib_dealloc_pd(raw->pd);
}

static bool tow_raw_valid(const struct tow_raw_run *run)
{
	if (run->op > TOW_RAW_READ || run->unmapped > TOW_RAW_FAR || run->reserved ||
	    !run->bytes || !run->places || !run->count || !run->batch || !run->window)
		return false;
	if (run->window > TOW_RAW_WINDOW_MAX || run->window % run->batch ||
	    run->count % run->batch)
		return false;
	return run->bytes <= TOW_RAW_MEMORY && run->gap <= TOW_RAW_MEMORY &&
	       run->places <= TOW_RAW_MEMORY &&
	       ((u64)run->bytes + run->gap) * (run->places - 1) + run->bytes <=
		       TOW_RAW_MEMORY;
}

static int tow_raw_on_device(struct ib_device *ibdev, struct tow_raw_run *run)
{
	struct tow_raw *raw;
	int ret;

	raw = kzalloc(sizeof(*raw), GFP_KERNEL);
	if (!raw)
		return -ENOMEM;
	raw->ibdev = ibdev;
	raw->run = run;
	raw->status = IB_WC_SUCCESS;
	ret = tow_raw_make(raw);
	if (!ret)
		ret = tow_raw_measure(raw);
	tow_raw_unmake(raw);
	run->status = raw->status;
	kfree(raw);
	return ret;
}

static long tow_raw_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	struct tow_raw_run run;
	struct ib_device *ibdev;
	int ret;

	if (cmd != TOW_RAW_RUN)
		return -ENOTTY;
	if (copy_from_user(&run, (void __user *)arg, sizeof(run)))
		return -EFAULT;
	run.device[sizeof(run.device) - 1] = '\0';
	if (!tow_raw_valid(&run))
		return -EINVAL;
	ibdev = tow_find_device(run.device);
	if (!ibdev)
		return -ENODEV;
	ret = tow_raw_on_device(ibdev, &run);
	ib_device_put(ibdev);
	if ((!ret || ret == -EIO) && copy_to_user((void __user *)arg, &run, sizeof(run)))
		ret = -EFAULT;
	return ret;
}

static const struct file_operations tow_raw_fops = {
	.owner		= THIS_MODULE,
	.unlocked_ioctl	= tow_raw_ioctl,
};

static struct miscdevice tow_raw_misc = {
	.minor	= MISC_DYNAMIC_MINOR,
	.name	= "tow_probe",
	.fops	= &tow_raw_fops,
};

module_misc_device(tow_raw_misc);

MODULE_DESCRIPTION("reads and writes without towline, for its measures");
MODULE_LICENSE("GPL");
