// SPDX-License-Identifier: GPL-2.0
/*
 * What a device can do, found out by doing it.
 *
 * Drivers say what the hardware has, and their kernel side may refuse it all the
 * same: mlx5 has atomics, and posts none for the kernel; what its functions may
 * register depends on the firmware.  So whenever the maintenance queue pair was made
 * it registers memory under the rights that slabs are registered with, in a page as
 * large as a slab, reads through the key, from itself, and adds to what is there.
 *
 * What is refused is not asked for any more: see enum tow_lack.  A request that was
 * taken and failed leaves a queue pair of no use, so the next attempt goes on from
 * there.  What fails for another reason says nothing about the device.
 *
 * A device that does not reach itself (its port is down, or it does not loop back) is
 * taken at its driver's word, with pages of PAGE_SIZE, until a port or an address
 * changes.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/mm.h>
#include <rdma/ib_verbs.h>

#include "internal.h"

/* Any number that memory does not hold by chance. */
#define TOW_TRIAL_WORD		0x746f776c696e6521ULL

/* Words of the memory; the last one is what is read. */
enum tow_trial_word {
	TOW_TRIAL_COUNTER,	/* is added to */
	TOW_TRIAL_COUNTED,	/* what it was before */
	TOW_TRIAL_READ,		/* what was read */
};

static const char * const tow_lack_words[] = {
	[TOW_LACKS_ATOMICS]	= "has no atomics for us",
	[TOW_LACKS_READ_ONLY]	= "does not register memory that it may only read",
	[TOW_LACKS_LARGE_PAGES]	= "does not register memory in large pages",
};

static void tow_maint_remember(struct tow_maint *maint, enum tow_lack lack,
			       int error)
{
	char name[TOW_DEVICE_NAME_MAX];

	if (tow_maint_lacks(maint, lack))
		return;
	WRITE_ONCE(maint->lacks, maint->lacks | BIT(lack));
	tow_device_name(maint->dev, name);
	pr_info("%s: the RDMA device %s (error %d, status %d)\n", name,
		tow_lack_words[lack], error, maint->request.status);
}

/**
 * tow_maint_access - what a registration asks for
 * @maint: the maintenance queue pair that it is to be posted to
 * @rights: what peers may do
 *
 * Return: bits of enum ib_access_flags.
 */
int tow_maint_access(struct tow_maint *maint, enum tow_rights rights)
{
	int access = IB_ACCESS_REMOTE_READ;

	if (rights == TOW_RIGHTS_WRITE)
		access |= IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE;
	else if (tow_maint_lacks(maint, TOW_LACKS_READ_ONLY))
		access |= IB_ACCESS_LOCAL_WRITE;
	if (rights == TOW_RIGHTS_WRITE &&
	    tow_device_atomics(maint->dev))
		access |= IB_ACCESS_REMOTE_ATOMIC;
	return access;
}

/* ---- the memory ----------------------------------------------------------- */

/**
 * tow_maint_trial_free - give back what a trial needed
 * @maint: the maintenance queue pair, on which nothing is outstanding
 */
void tow_maint_trial_free(struct tow_maint *maint)
{
	struct tow_trial *trial = &maint->trial;

	if (trial->mr)
		ib_dereg_mr(trial->mr);
	if (trial->mapped)
		ib_dma_unmap_page(maint->dev->ibdev, trial->dma,
				  trial->bytes, DMA_BIDIRECTIONAL);
	if (trial->page)
		__free_pages(trial->page, get_order(trial->bytes));
	memset(trial, 0, sizeof(*trial));
}

static u64 *tow_trial_words(struct tow_trial *trial)
{
	return page_address(trial->page);
}

static u64 *tow_trial_last_word(struct tow_trial *trial)
{
	return tow_trial_words(trial) + trial->bytes / sizeof(u64) - 1;
}

static int tow_trial_map(struct tow_maint *maint)
{
	struct ib_device *ibdev = maint->dev->ibdev;
	struct tow_trial *trial = &maint->trial;

	trial->page = alloc_pages(GFP_KERNEL | __GFP_ZERO | __GFP_COMP |
				  __GFP_NOWARN | __GFP_NORETRY,
				  get_order(trial->bytes));
	if (!trial->page)
		return -ENOMEM;
	tow_trial_words(trial)[TOW_TRIAL_COUNTER] = TOW_TRIAL_WORD;
	*tow_trial_last_word(trial) = TOW_TRIAL_WORD;
	trial->dma = ib_dma_map_page(ibdev, trial->page, 0, trial->bytes,
				     DMA_BIDIRECTIONAL);
	if (ib_dma_mapping_error(ibdev, trial->dma))
		return -ENOMEM;
	trial->mapped = true;
	return IS_ALIGNED(trial->dma, trial->bytes) ? 0 : -EINVAL;
}

/* Memory of so many bytes, which are one page of a memory region. */
static int tow_trial_alloc(struct tow_maint *maint, u32 bytes)
{
	struct tow_trial *trial = &maint->trial;
	struct scatterlist sg;
	struct ib_mr *mr;
	int ret;

	trial->bytes = bytes;
	ret = tow_trial_map(maint);
	if (ret)
		return ret;
	mr = ib_alloc_mr(maint->dev->pd, IB_MR_TYPE_MEM_REG, 1);
	if (IS_ERR(mr))
		return PTR_ERR(mr);
	trial->mr = mr;
	sg_init_table(&sg, 1);
	sg_set_page(&sg, trial->page, bytes, 0);
	sg_dma_address(&sg) = trial->dma;
	sg_dma_len(&sg) = bytes;
	ret = ib_map_mr_sg(mr, &sg, 1, NULL, bytes);
	if (ret != 1)
		return ret < 0 ? ret : -EIO;
	return 0;
}

/* As large as a slab, or as can be had, down to PAGE_SIZE. */
static int tow_trial_prepare(struct tow_maint *maint)
{
	struct tow_device *dev = maint->dev;
	u64 bytes = dev->memory->pool.large_bytes;
	int ret;

	if (maint->untried || tow_maint_lacks(maint, TOW_LACKS_LARGE_PAGES))
		bytes = PAGE_SIZE;
	for (;;) {
		ret = bytes > PAGE_SIZE &&
		      !(dev->ibdev->attrs.page_size_cap & bytes) ?
			      -EOPNOTSUPP : tow_trial_alloc(maint, bytes);
		if (!ret || bytes == PAGE_SIZE)
			return ret;
		tow_maint_trial_free(maint);
		bytes /= 2;
	}
}

/* ---- the requests --------------------------------------------------------- */

/*
 * Was that the device's last word, or the driver's?  Others are a port that went
 * down, a device that goes, memory that ran out.
 */
static bool tow_trial_refused(struct tow_maint *maint, int error)
{
	if (!maint->request.broken)
		return error == -EINVAL || error == -EOPNOTSUPP ||
		       error == -EPERM;
	switch (maint->request.status) {
	case IB_WC_LOC_LEN_ERR:
	case IB_WC_LOC_QP_OP_ERR:
	case IB_WC_LOC_PROT_ERR:
	case IB_WC_MW_BIND_ERR:
	case IB_WC_BAD_RESP_ERR:
	case IB_WC_LOC_ACCESS_ERR:
	case IB_WC_REM_INV_REQ_ERR:
	case IB_WC_REM_ACCESS_ERR:
	case IB_WC_REM_OP_ERR:
		return true;
	default:
		return false;
	}
}

static int tow_trial_register_once(struct tow_maint *maint,
				   enum tow_rights rights)
{
	struct ib_mr *mr = maint->trial.mr;
	struct ib_reg_wr reg = {
		.wr.opcode	= IB_WR_REG_MR,
		.wr.send_flags	= IB_SEND_SIGNALED,
		.mr		= mr,
		.access		= tow_maint_access(maint, rights),
	};

	ib_update_fast_reg_key(mr, ib_inc_rkey(mr->rkey));
	reg.key = mr->rkey;
	return tow_maint_execute(maint, &reg.wr);
}

/* Under such rights; @lack says what can be left out of them. */
static int tow_trial_register(struct tow_maint *maint, enum tow_rights rights,
			      enum tow_lack lack)
{
	int access = tow_maint_access(maint, rights);
	bool less = rights == TOW_RIGHTS_WRITE ?
		    access & IB_ACCESS_REMOTE_ATOMIC :
		    !(access & IB_ACCESS_LOCAL_WRITE);
	int ret = tow_trial_register_once(maint, rights);

	if (!ret || !less || !tow_trial_refused(maint, ret))
		return ret;
	tow_maint_remember(maint, lack, ret);
	return maint->request.broken ? ret :
				       tow_trial_register_once(maint, rights);
}

static int tow_trial_invalidate(struct tow_maint *maint)
{
	struct ib_send_wr invalidate = {
		.opcode			= IB_WR_LOCAL_INV,
		.send_flags		= IB_SEND_SIGNALED,
		.ex.invalidate_rkey	= maint->trial.mr->rkey,
	};

	return tow_maint_execute(maint, &invalidate);
}

static struct ib_sge tow_trial_sge(struct tow_maint *maint,
				   enum tow_trial_word word)
{
	return (struct ib_sge){
		.addr	= maint->trial.dma + word * sizeof(u64),
		.length	= sizeof(u64),
		.lkey	= maint->dev->pd->local_dma_lkey,
	};
}

/* What the device has written to a word. */
static u64 tow_trial_word_now(struct tow_maint *maint,
			      enum tow_trial_word word)
{
	struct tow_trial *trial = &maint->trial;

	ib_dma_sync_single_for_cpu(maint->dev->ibdev, trial->dma,
				   trial->bytes, DMA_BIDIRECTIONAL);
	return READ_ONCE(tow_trial_words(trial)[word]);
}

/* Read the last word through the key: it is as far away as the page is long. */
static int tow_trial_read(struct tow_maint *maint)
{
	struct tow_trial *trial = &maint->trial;
	struct ib_sge sge = tow_trial_sge(maint, TOW_TRIAL_READ);
	struct ib_rdma_wr read = {
		.wr.opcode	= IB_WR_RDMA_READ,
		.wr.send_flags	= IB_SEND_SIGNALED,
		.wr.sg_list	= &sge,
		.wr.num_sge	= 1,
		.remote_addr	= trial->mr->iova + trial->bytes - sizeof(u64),
		.rkey		= trial->mr->rkey,
	};
	int ret;

	ret = tow_maint_execute(maint, &read.wr);
	if (!ret && tow_trial_word_now(maint, TOW_TRIAL_READ) == TOW_TRIAL_WORD)
		return 0;
	if (trial->bytes > PAGE_SIZE &&
	    (!ret || tow_trial_refused(maint, ret)))
		tow_maint_remember(maint, TOW_LACKS_LARGE_PAGES, ret);
	return ret ?: -EIO;
}

/* Add to the first word, which is to be done in the processor's order of bytes. */
static int tow_trial_add(struct tow_maint *maint)
{
	struct ib_mr *mr = maint->trial.mr;
	struct ib_sge sge = tow_trial_sge(maint, TOW_TRIAL_COUNTED);
	struct ib_atomic_wr add = {
		.wr.opcode	= IB_WR_ATOMIC_FETCH_AND_ADD,
		.wr.send_flags	= IB_SEND_SIGNALED,
		.wr.sg_list	= &sge,
		.wr.num_sge	= 1,
		.remote_addr	= mr->iova + TOW_TRIAL_COUNTER * sizeof(u64),
		.rkey		= mr->rkey,
		.compare_add	= 1,
	};
	int ret;

	if (!tow_device_atomics(maint->dev))
		return 0;
	ret = tow_maint_execute(maint, &add.wr);
	if (!ret &&
	    tow_trial_word_now(maint, TOW_TRIAL_COUNTED) == TOW_TRIAL_WORD &&
	    tow_trial_word_now(maint, TOW_TRIAL_COUNTER) == TOW_TRIAL_WORD + 1)
		return 0;
	if (!ret || tow_trial_refused(maint, ret))
		tow_maint_remember(maint, TOW_LACKS_ATOMICS, ret);
	return maint->request.broken ? ret : 0;
}

/* Through the key, from ourselves. */
static int tow_trial_use(struct tow_maint *maint)
{
	int ret;

	if (maint->untried)
		return 0;
	ret = tow_trial_read(maint);
	if (!ret)
		ret = tow_trial_add(maint);
	if (ret && maint->request.broken &&
	    (maint->request.status == IB_WC_RETRY_EXC_ERR || ret == -ETIMEDOUT))
		maint->untried = true;
	return ret;
}

/**
 * tow_maint_try - find out what the device can do
 * @maint: the maintenance queue pair, connected; the caller has tow_maint.use
 *
 * tow_maint_trial_free() is needed after a failure, when nothing is outstanding.
 *
 * Return: 0: memory can be registered.  An error: the queue pair is of no use; the
 * next may be, as what was refused is not tried again.
 */
int tow_maint_try(struct tow_maint *maint)
{
	int ret;

	if (!tow_maint_port_active(maint))
		maint->untried = true;
	ret = tow_trial_prepare(maint);
	if (!ret)
		ret = tow_trial_register(maint, TOW_RIGHTS_READ,
					 TOW_LACKS_READ_ONLY);
	if (!ret)
		ret = tow_trial_invalidate(maint);
	if (!ret)
		ret = tow_trial_register(maint, TOW_RIGHTS_WRITE,
					 TOW_LACKS_ATOMICS);
	if (!ret)
		ret = tow_trial_use(maint);
	if (!ret)
		ret = tow_trial_invalidate(maint);
	if (ret)
		return ret;
	WRITE_ONCE(maint->page_bytes, maint->trial.bytes);
	tow_maint_trial_free(maint);
	return 0;
}
