// SPDX-License-Identifier: GPL-2.0
/*
 * tow_fakedev: an RDMA device that lacks one thing towline needs.
 *
 *	modprobe tow_fakedev lack=WHAT
 *
 * verbs	it serves user space only: the kernel's verbs are incomplete
 * capability	it does not say that it can register by work request
 * pages	it says so, for no pages at all
 * mr_ops	it has no memory regions for fast registration
 * protocol	it says no protocol at all
 * transport	it speaks a protocol of its own, as usNIC does (iWARP's devices are not
 *		registered without a connection manager)
 *
 * It has all that comes before its lack in this list.  Every verb answers
 * -EOPNOTSUPP.  The device is called towfake0.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <rdma/ib_verbs.h>

enum tow_fakedev_lack {
	LACK_VERBS,
	LACK_CAPABILITY,
	LACK_PAGES,
	LACK_MR_OPS,
	LACK_PROTOCOL,
	LACK_TRANSPORT,
};

static const char * const lack_names[] = {
	"verbs", "capability", "pages", "mr_ops", "protocol", "transport",
};

static char *lack = "capability";
module_param(lack, charp, 0444);
MODULE_PARM_DESC(lack, "verbs, capability, pages, mr_ops, protocol or transport");

static enum tow_fakedev_lack lacking;
/* Only because its size is asked for by a type. */
struct tow_fakedev {
	struct ib_device ib;
};

static struct ib_device *fakedev;

static int fake_query_device(struct ib_device *dev, struct ib_device_attr *attr,
			     struct ib_udata *udata)
{
	if (lacking > LACK_CAPABILITY)
		attr->device_cap_flags = IB_DEVICE_MEM_MGT_EXTENSIONS;
	if (lacking > LACK_PAGES)
		attr->max_fast_reg_page_list_len = 16;
	attr->max_mr = 16;
	attr->max_pd = 16;
	attr->max_qp = 16;
	attr->max_cq = 16;
	return 0;
}

static int fake_query_port(struct ib_device *dev, u32 port, struct ib_port_attr *attr)
{
	attr->state = IB_PORT_ACTIVE;
	attr->gid_tbl_len = 1;
	attr->pkey_tbl_len = 1;
	attr->max_msg_sz = 4096;
	return 0;
}

static int fake_port_immutable(struct ib_device *dev, u32 port,
			       struct ib_port_immutable *immutable)
{
	immutable->gid_tbl_len = 1;
	immutable->pkey_tbl_len = 1;
	if (lacking > LACK_PROTOCOL)
		immutable->core_cap_flags = RDMA_CORE_CAP_PROT_USNIC;
	return 0;
}

static int fake_query_gid(struct ib_device *dev, u32 port, int index, union ib_gid *gid)
{
	memset(gid, 0, sizeof(*gid));
	return 0;
}

static int fake_query_pkey(struct ib_device *dev, u32 port, u16 index, u16 *pkey)
{
	*pkey = 0xffff;
	return 0;
}

static int fake_alloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	return -EOPNOTSUPP;
}

static int fake_dealloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	return 0;
}

static int fake_create_qp(struct ib_qp *qp, struct ib_qp_init_attr *attr, struct ib_udata *udata)
{
	return -EOPNOTSUPP;
}

static int fake_modify_qp(struct ib_qp *qp, struct ib_qp_attr *attr, int mask,
			  struct ib_udata *udata)
{
	return -EOPNOTSUPP;
}

static int fake_destroy_qp(struct ib_qp *qp, struct ib_udata *udata)
{
	return 0;
}

static int fake_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
			  const struct ib_send_wr **bad)
{
	return -EOPNOTSUPP;
}

static int fake_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr,
			  const struct ib_recv_wr **bad)
{
	return -EOPNOTSUPP;
}

/* The last argument's type depends on the kernel; nobody looks at it here. */
static int fake_create_cq(struct ib_cq *cq, const struct ib_cq_init_attr *attr, void *udata)
{
	return -EOPNOTSUPP;
}

static int fake_destroy_cq(struct ib_cq *cq, struct ib_udata *udata)
{
	return 0;
}

static int fake_poll_cq(struct ib_cq *cq, int entries, struct ib_wc *wc)
{
	return 0;
}

static int fake_req_notify_cq(struct ib_cq *cq, enum ib_cq_notify_flags flags)
{
	return -EOPNOTSUPP;
}

static struct ib_mr *fake_get_dma_mr(struct ib_pd *pd, int access)
{
	return ERR_PTR(-EOPNOTSUPP);
}

/* What comes after the access depends on the kernel. */
static struct ib_mr *fake_reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 virt,
				      int access)
{
	return ERR_PTR(-EOPNOTSUPP);
}

static int fake_dereg_mr(struct ib_mr *mr, struct ib_udata *udata)
{
	return 0;
}

static struct ib_mr *fake_alloc_mr(struct ib_pd *pd, enum ib_mr_type type, u32 max_num_sg)
{
	return ERR_PTR(-EOPNOTSUPP);
}

static int fake_map_mr_sg(struct ib_mr *mr, struct scatterlist *sg, int nents,
			  unsigned int *offset)
{
	return -EOPNOTSUPP;
}

static const struct ib_device_ops fake_basic_ops = {
	.owner = THIS_MODULE,
	.query_device = fake_query_device,
	.query_port = fake_query_port,
	.get_port_immutable = fake_port_immutable,
	.query_gid = fake_query_gid,
	.query_pkey = fake_query_pkey,
};

static const struct ib_device_ops fake_verbs_ops = {
	.alloc_pd = fake_alloc_pd,
	.dealloc_pd = fake_dealloc_pd,
	.create_qp = fake_create_qp,
	.modify_qp = fake_modify_qp,
	.destroy_qp = fake_destroy_qp,
	.post_send = fake_post_send,
	.post_recv = fake_post_recv,
	.create_cq = (void *)fake_create_cq,
	.destroy_cq = fake_destroy_cq,
	.poll_cq = fake_poll_cq,
	.req_notify_cq = fake_req_notify_cq,
	.get_dma_mr = fake_get_dma_mr,
	.reg_user_mr = (void *)fake_reg_user_mr,
	.dereg_mr = fake_dereg_mr,
};

static const struct ib_device_ops fake_mr_ops = {
	.alloc_mr = fake_alloc_mr,
	.map_mr_sg = fake_map_mr_sg,
};

static int __init tow_fakedev_init(void)
{
	struct tow_fakedev *fake;
	int ret;

	ret = match_string(lack_names, ARRAY_SIZE(lack_names), lack);
	if (ret < 0)
		return -EINVAL;
	lacking = ret;

	fake = ib_alloc_device(tow_fakedev, ib);
	if (!fake)
		return -ENOMEM;
	fakedev = &fake->ib;
	fakedev->node_type = RDMA_NODE_UNSPECIFIED;
	fakedev->phys_port_cnt = 1;
	fakedev->num_comp_vectors = 1;
	ib_set_device_ops(fakedev, &fake_basic_ops);
	if (lacking > LACK_VERBS)
		ib_set_device_ops(fakedev, &fake_verbs_ops);
	if (lacking > LACK_MR_OPS)
		ib_set_device_ops(fakedev, &fake_mr_ops);
	ret = ib_register_device(fakedev, "towfake0", NULL);
	if (ret)
		ib_dealloc_device(fakedev);
	return ret;
}

static void __exit tow_fakedev_exit(void)
{
	ib_unregister_device(fakedev);
	ib_dealloc_device(fakedev);
}

module_init(tow_fakedev_init);
module_exit(tow_fakedev_exit);

MODULE_DESCRIPTION("an RDMA device that lacks something, for towline's tests");
MODULE_LICENSE("GPL");
