/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Operations on remote ranges: one read or write each.
 */
#ifndef TOW_OPS_H
#define TOW_OPS_H

#include <linux/list.h>
#include <linux/types.h>
#include <rdma/ib_verbs.h>

struct tow_link;
struct tow_remote;

/**
 * struct tow_op - one operation
 * @done: called when it has completed, in process context; may free the
 *	operation
 * @status: then: 0; -ECONNRESET: the connection ended before, and whether it
 *	took place is not known; -EIO: the peer refused it
 * @cqe: the RDMA core's
 * @wr: what was posted
 * @sge: our memory
 * @via: where it was posted
 * @link: in tow_link.ops
 * @remote: what it is addressed to
 *
 * The caller allocates it, and sets @done; all else is set by tow_op_start().
 */
struct tow_op {
	void			(*done)(struct tow_op *op);
	int			status;
	struct ib_cqe		cqe;
	struct ib_rdma_wr	wr;
	struct ib_sge		sge;
	struct tow_link		*via;
	struct list_head	link;
	struct tow_remote	*remote;
};

int tow_op_start(struct tow_op *op, struct tow_remote *remote,
		 unsigned int channel, bool read, u64 offset, u64 local,
		 u32 bytes);
int towk_op_start(struct tow_op *op, struct tow_remote *remote,
		  unsigned int channel, bool read, u64 offset, u64 local,
		  u32 bytes);
void tow_ops_abandon(struct tow_link *link);

#endif /* TOW_OPS_H */
