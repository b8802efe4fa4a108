// SPDX-License-Identifier: GPL-2.0
/*
 * What a device can do, found out by doing it.
 *
 * Drivers say what the hardware has, and their kernel side may refuse it all
 * the same: mlx5 has atomics, and posts none for the kernel; what its functions
 * may register depends on the firmware.  So whenever the maintenance queue pair
 * was made it registers memory under the rights that slabs are registered with,
 * in a page as large as a slab, reads through the key, from itself, and adds to
 * what is there.
 *
 * What is refused is not asked for any more: see enum tow_lack.  Then there is
 * another trial, on a new queue pair, as a request that was taken and failed
 * leaves the old one of no use.  What fails for another reason says nothing
 * about the device.
 *
 * A device that does not reach itself (its port is down, or it does not loop
 * back) is taken at its driver's word, with pages of PAGE_SIZE, until the queue
 * pair is made anew, as it is when its port comes up.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/gfp.h>
#include <rdma/ib_verbs.h>

#include "internal.h"

/* Any number that memory does not hold by chance. */
#define TOW_TRIAL_WORD		0x746f776c696e6521ULL

#define TOW_TRIAL_GFP		(GFP_KERNEL | __GFP_ZERO | __GFP_COMP |	\
				 __GFP_NOWARN | __GFP_NORETRY)

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

	if (!IS_ERR_OR_NULL(trial->mr))
		ib_dereg_mr(trial->mr);
	if (trial->mapped)
		ib_dma_unmap_sg(maint->dev->ibdev, &trial->sg, 1,
				DMA_BIDIRECTIONAL);
	free_pages((unsigned long)trial->words, get_order(trial->bytes));
	memset(trial, 0, sizeof(*trial));
}

/* Memory of so many bytes, which are one page of a memory region. */
static int tow_trial_alloc(struct tow_maint *maint, u32 bytes)
{
	struct ib_device *ibdev = maint->dev->ibdev;
	struct tow_trial *trial = &maint->trial;
	int ret;

	if (bytes > PAGE_SIZE && !(ibdev->attrs.page_size_cap & bytes))
		return -EOPNOTSUPP;
	trial->bytes = bytes;
	trial->words = (u64 *)__get_free_pages(TOW_TRIAL_GFP, get_order(bytes));
	if (!trial->words)
		return -ENOMEM;
	trial->words[TOW_TRIAL_COUNTER] = TOW_TRIAL_WORD;
	trial->words[bytes / sizeof(u64) - 1] = TOW_TRIAL_WORD;
	sg_init_one(&trial->sg, trial->words, bytes);
	trial->mapped = ib_dma_map_sg(ibdev, &trial->sg, 1, DMA_BIDIRECTIONAL);
	if (!trial->mapped || !IS_ALIGNED(sg_dma_address(&trial->sg), bytes))
		return -ENOMEM;
	trial->mr = ib_alloc_mr(maint->dev->pd, IB_MR_TYPE_MEM_REG, 1);
	if (IS_ERR(trial->mr))
		return PTR_ERR(trial->mr);
	ret = ib_map_mr_sg(trial->mr, &trial->sg, 1, NULL, bytes);
	return ret == 1 ? 0 : ret < 0 ? ret : -EIO;
}

/* As large as a slab, or as can be had, down to PAGE_SIZE. */
static int tow_trial_prepare(struct tow_maint *maint)
{
	u64 bytes = maint->dev->memory->pool.large_bytes;
	int ret;

	if (maint->untried || tow_maint_lacks(maint, TOW_LACKS_LARGE_PAGES))
		bytes = PAGE_SIZE;
	while ((ret = tow_trial_alloc(maint, bytes)) && bytes > PAGE_SIZE) {
		tow_maint_trial_free(maint);
		bytes /= 2;
	}
	return ret;
}

/* ---- the requests --------------------------------------------------------- */

/* What a completion says that is about the request: a device's last word. */
#define TOW_TRIAL_REFUSALS						\
	(BIT(IB_WC_LOC_LEN_ERR) | BIT(IB_WC_LOC_QP_OP_ERR) |		\
	 BIT(IB_WC_LOC_PROT_ERR) | BIT(IB_WC_MW_BIND_ERR) |		\
	 BIT(IB_WC_BAD_RESP_ERR) | BIT(IB_WC_LOC_ACCESS_ERR) |		\
	 BIT(IB_WC_REM_INV_REQ_ERR) | BIT(IB_WC_REM_ACCESS_ERR) |	\
	 BIT(IB_WC_REM_OP_ERR))

/*
 * Was the error the device's last word, or the driver's, about @lack?  Others
 * are a port that went down, a device that goes, memory that ran out.  Returns
 * 1 if it was, and that is news; otherwise @error, which may be 0.
 */
static int tow_trial_blame(struct tow_maint *maint, enum tow_lack lack,
			   int error)
{
	char name[TOW_DEVICE_NAME_MAX];
	bool refused;

	if (maint->request.broken)
		refused = BIT(maint->request.status) & TOW_TRIAL_REFUSALS;
	else
		refused = error == -EINVAL || error == -EOPNOTSUPP ||
			  error == -EPERM || error == -EPROTO;
	if (!refused || tow_maint_lacks(maint, lack))
		return error;
	WRITE_ONCE(maint->lacks, maint->lacks | BIT(lack));
	tow_device_name(maint->dev, name);
	pr_info("%s: the RDMA device %s (error %d, status %d)\n", name,
		tow_lack_words[lack], error, maint->request.status);
	return 1;
}

/* Under such rights; a refusal is blamed on what can be left out of them. */
static int tow_trial_register(struct tow_maint *maint, enum tow_rights rights)
{
	struct ib_mr *mr = maint->trial.mr;
	struct ib_reg_wr reg = tow_maint_registration(maint, mr, rights,
						      ib_inc_rkey(mr->rkey));

	return tow_trial_blame(maint, rights == TOW_RIGHTS_WRITE ?
			       TOW_LACKS_ATOMICS : TOW_LACKS_READ_ONLY,
			       tow_maint_execute(maint, &reg.wr));
}

static int tow_trial_invalidate(struct tow_maint *maint)
{
	struct ib_send_wr invalidate = tow_maint_invalidation(maint->trial.mr);

	return tow_maint_execute(maint, &invalidate);
}

/* From ourselves, through the key, to a word: TOW_TRIAL_WORD is to come. */
static int tow_trial_fetch(struct tow_maint *maint, struct ib_send_wr *wr,
			   enum tow_trial_word word)
{
	struct tow_trial *trial = &maint->trial;
	struct ib_sge sge = {
		.addr	= sg_dma_address(&trial->sg) + word * sizeof(u64),
		.length	= sizeof(u64),
		.lkey	= maint->dev->pd->local_dma_lkey,
	};
	int ret;

	wr->send_flags = IB_SEND_SIGNALED;
	wr->sg_list = &sge;
	wr->num_sge = 1;
	ret = tow_maint_execute(maint, wr);
	ib_dma_sync_single_for_cpu(maint->dev->ibdev,
				   sg_dma_address(&trial->sg), trial->bytes,
				   DMA_BIDIRECTIONAL);
	if (!ret && READ_ONCE(trial->words[word]) != TOW_TRIAL_WORD)
		ret = -EPROTO;
	return ret;
}

/* Read the last word, as far away as the page is long; add to the first. */
static int tow_trial_use(struct tow_maint *maint)
{
	struct tow_trial *trial = &maint->trial;
	u64 *counter = &trial->words[TOW_TRIAL_COUNTER];
	struct ib_rdma_wr read = {
		.wr.opcode	= IB_WR_RDMA_READ,
		.remote_addr	= trial->mr->iova + trial->bytes - sizeof(u64),
		.rkey		= trial->mr->rkey,
	};
	struct ib_atomic_wr add = {
		.wr.opcode	= IB_WR_ATOMIC_FETCH_AND_ADD,
		.remote_addr	= trial->mr->iova +
				  TOW_TRIAL_COUNTER * sizeof(u64),
		.rkey		= trial->mr->rkey,
		.compare_add	= 1,
	};
	int ret;

	ret = tow_trial_fetch(maint, &read.wr, TOW_TRIAL_READ);
	if (trial->bytes > PAGE_SIZE)
		ret = tow_trial_blame(maint, TOW_LACKS_LARGE_PAGES, ret);
	if (ret || !tow_device_atomics(maint->dev))
		return ret;
	ret = tow_trial_fetch(maint, &add.wr, TOW_TRIAL_COUNTED);
	/* In the processor's order of bytes. */
	if (!ret && READ_ONCE(*counter) != TOW_TRIAL_WORD + 1)
		ret = -EPROTO;
	return tow_trial_blame(maint, TOW_LACKS_ATOMICS, ret);
}

/**
 * tow_maint_try - find out what the device can do
 * @maint: the maintenance queue pair, connected; the caller has tow_maint.use
 *
 * tow_maint_trial_free() is needed after a failure, when nothing is
 * outstanding.
 *
 * Return: 0: memory can be registered.  1: something turned out not to work,
 * which will not be tried again: another queue pair may be of use.  A negative
 * errno: it is not.
 */
int tow_maint_try(struct tow_maint *maint)
{
	int ret = tow_trial_prepare(maint) ?:
		  tow_trial_register(maint, TOW_RIGHTS_READ) ?:
		  tow_trial_invalidate(maint) ?:
		  tow_trial_register(maint, TOW_RIGHTS_WRITE);

	if (!ret && !maint->untried) {
		ret = tow_trial_use(maint);
		maint->untried = ret == -ETIMEDOUT ||
				 maint->request.status == IB_WC_RETRY_EXC_ERR;
		if (maint->untried)
			return 1;
	}
	ret = ret ?: tow_trial_invalidate(maint);
	if (ret)
		return ret;
	WRITE_ONCE(maint->page_bytes, maint->trial.bytes);
	tow_maint_trial_free(maint);
	return 0;
}
