// SPDX-License-Identifier: GPL-2.0
/*
 * What soft-RoCE never does, and network cards do.  The kernel's own rdma_rxe, with
 * rxe.patch, calls these; for tests only.  scripts/lab/kernel builds it.
 *
 * Parameters, all of them off at first, and to be changed at any time:
 *	placement	a write's bytes arrive from the last to the first, and its first
 *			packet behind all others
 *	late		a write's first packet is placed when its queue pair brings an
 *			immediate, a read or an atomic, or after 50 ms; it is acknowledged at
 *			once.  Its memory must not be taken back meanwhile
 *	lost_acks	one ACK of so many is not sent; 0: all are
 *	malformed	one write of several packets of so many is no valid request, says
 *			the other end when its last packet has come; 0: all are.  Soft-RoCE
 *			does send such, when it sends again twice
 *	unpostable	a work request of so many bytes is refused when it is posted; 0: none
 *	purge		what a queue pair has completed, and nobody has polled, goes with
 *			it when it is destroyed
 *	tiny		devices that are made from now on have the smallest limits that
 *			hardware of today is sold with, or less
 *
 * Sources: PCI Express' relaxed ordering, which mlx5 asks for, lets what one queue pair
 * brings pass what another has brought, and acknowledged.  The InfiniBand specification
 * promises no order of placement within a message (9.5); an ACK may be lost, or stand
 * for those before it (9.7.5.1); completions of a destroyed queue pair may be gone
 * (11.2.4.4).
 */
#include <linux/atomic.h>
#include <linux/moduleparam.h>
#include <linux/slab.h>

#include "rxe.h"
#include "rxe_loc.h"
#include "rxe_queue.h"
#include "hostile.h"

/* Pieces of a packet. */
#define HOSTILE_PIECE	256

static bool placement;
module_param(placement, bool, 0644);
MODULE_PARM_DESC(placement, "Place what is written from its end to its beginning");

static bool late;
module_param(late, bool, 0644);
MODULE_PARM_DESC(late, "Place the beginning of a write when its queue pair tells of it");

static uint lost_acks;
module_param(lost_acks, uint, 0644);
MODULE_PARM_DESC(lost_acks, "Do not send one ACK of so many; 0: send all");

static uint malformed;
module_param(malformed, uint, 0644);
MODULE_PARM_DESC(malformed, "One write of so many is no valid request; 0: all are");

static uint unpostable;
module_param(unpostable, uint, 0644);
MODULE_PARM_DESC(unpostable, "Refuse work requests of so many bytes; 0: none");

static bool purge;
module_param(purge, bool, 0644);
MODULE_PARM_DESC(purge, "A queue pair's completions go with it");

static bool tiny;
module_param(tiny, bool, 0644);
MODULE_PARM_DESC(tiny, "New devices have small limits");

/* So often it was done; a few more or less, as nobody locks. */
static uint held;
module_param(held, uint, 0444);
MODULE_PARM_DESC(held, "First packets of writes that were placed last");

static uint delayed;
module_param(delayed, uint, 0444);
MODULE_PARM_DESC(delayed, "First packets of writes that were placed late");

static uint lost;
module_param(lost, uint, 0444);
MODULE_PARM_DESC(lost, "ACKs that were not sent");

static uint refused;
module_param(refused, uint, 0444);
MODULE_PARM_DESC(refused, "Writes that were no valid requests");

static uint purged;
module_param(purged, uint, 0444);
MODULE_PARM_DESC(purged, "Completions that went with their queue pair");

static atomic_t acks = ATOMIC_INIT(0);
static atomic_t writes = ATOMIC_INIT(0);

/* ---- placement ------------------------------------------------------------ */

static int hostile_copy(struct rxe_mr *mr, u64 iova, void *from, int bytes)
{
	int at, err = 0;

	for (at = (bytes - 1) / HOSTILE_PIECE * HOSTILE_PIECE;
	     at >= 0 && bytes && !err; at -= HOSTILE_PIECE)
		err = rxe_mr_copy(mr, iova + at, from + at,
				  min(bytes - at, HOSTILE_PIECE),
				  RXE_TO_MR_OBJ);
	return err;
}

/**
 * hostile_forget - what was held is not placed any more
 * @first: it
 */
void hostile_forget(struct hostile_held *first)
{
	kfree(first->data);
	first->data = NULL;
}

/* Is it the first packet of several?  Without memory it is placed as any other. */
static bool hostile_hold(struct hostile_held *first, struct rxe_pkt_info *pkt,
			 u64 iova, const void *from, int bytes)
{
	if (!(pkt->mask & RXE_START_MASK) || pkt->mask & RXE_END_MASK)
		return false;
	hostile_forget(first);
	first->data = kmemdup(from, bytes, GFP_ATOMIC);
	first->iova = iova;
	first->bytes = bytes;
	return first->data;
}

/**
 * struct hostile_late - a packet that is placed later
 * @link: in hostile_lates
 * @qp: its queue pair; compared only
 * @mr: its memory, with a reference
 * @iova: where it goes
 * @bytes: size of @data
 * @data: what is in it
 */
struct hostile_late {
	struct list_head	link;
	struct rxe_qp		*qp;
	struct rxe_mr		*mr;
	u64			iova;
	int			bytes;
	u8			data[];
};

#define HOSTILE_LATE_MS		50

static DEFINE_SPINLOCK(hostile_lock);
static LIST_HEAD(hostile_lates);

/* Place what a queue pair has brought; NULL: all of them. */
static void hostile_settle(const struct rxe_qp *qp)
{
	struct hostile_late *piece, *next;
	LIST_HEAD(due);

	spin_lock_bh(&hostile_lock);
	list_for_each_entry_safe(piece, next, &hostile_lates, link) {
		if (!qp || piece->qp == qp)
			list_move_tail(&piece->link, &due);
	}
	spin_unlock_bh(&hostile_lock);
	list_for_each_entry_safe(piece, next, &due, link) {
		hostile_copy(piece->mr, piece->iova, piece->data, piece->bytes);
		rxe_put(piece->mr);
		kfree(piece);
		WRITE_ONCE(delayed, delayed + 1);
	}
}

static void hostile_settle_all(struct work_struct *work)
{
	hostile_settle(NULL);
}

static DECLARE_DELAYED_WORK(hostile_settling, hostile_settle_all);

/* Return: true: the packet is placed later. */
static bool hostile_delays(struct rxe_qp *qp, const struct rxe_pkt_info *pkt,
			   u64 iova, const void *from, int bytes)
{
	struct hostile_late *piece;

	if (!READ_ONCE(late) || !bytes || !(pkt->mask & RXE_START_MASK) ||
	    pkt->mask & RXE_IMMDT_MASK)
		return false;
	piece = kmalloc(struct_size(piece, data, bytes), GFP_ATOMIC);
	if (!piece)
		return false;
	piece->qp = qp;
	piece->mr = qp->resp.mr;
	rxe_get(piece->mr);
	piece->iova = iova;
	piece->bytes = bytes;
	memcpy(piece->data, from, bytes);
	spin_lock_bh(&hostile_lock);
	list_add_tail(&piece->link, &hostile_lates);
	spin_unlock_bh(&hostile_lock);
	schedule_delayed_work(&hostile_settling,
			      msecs_to_jiffies(HOSTILE_LATE_MS));
	return true;
}

/**
 * hostile_place - a packet of a write has come
 * @qp: the responder
 * @pkt: the packet
 * @iova: where it goes
 * @from: what is in it
 * @bytes: how much
 *
 * Return: as rxe_mr_copy().
 */
int hostile_place(struct rxe_qp *qp, struct rxe_pkt_info *pkt, u64 iova,
		  void *from, int bytes)
{
	struct hostile_held *first = &qp->hostile;
	int err;

	if (pkt->mask & RXE_IMMDT_MASK)
		hostile_settle(qp);
	if (hostile_delays(qp, pkt, iova, from, bytes))
		return 0;
	if (!READ_ONCE(placement) && !first->data)
		return rxe_mr_copy(qp->resp.mr, iova, from, bytes,
				   RXE_TO_MR_OBJ);
	if (hostile_hold(first, pkt, iova, from, bytes))
		return 0;
	err = hostile_copy(qp->resp.mr, iova, from, bytes);
	if (!first->data || !(pkt->mask & RXE_END_MASK))
		return err;
	if (!err)
		err = hostile_copy(qp->resp.mr, first->iova, first->data,
				   first->bytes);
	hostile_forget(first);
	WRITE_ONCE(held, held + 1);
	return err;
}

/* ---- ACKs ------------------------------------------------------------------ */

/**
 * hostile_loses_ack - an ACK is about to be sent
 *
 * Return: true: it is not.
 */
bool hostile_loses_ack(void)
{
	uint every = READ_ONCE(lost_acks);

	if (!every || (uint)atomic_inc_return(&acks) % every)
		return false;
	WRITE_ONCE(lost, lost + 1);
	return true;
}

/**
 * hostile_refuses - a packet has come
 * @pkt: the packet
 *
 * Return: true: it is answered as if its length was wrong.
 */
bool hostile_refuses(const struct rxe_pkt_info *pkt)
{
	uint every = READ_ONCE(malformed);

	if (pkt->mask & RXE_READ_OR_ATOMIC_MASK)
		hostile_settle(pkt->qp);
	if (!every || !(pkt->mask & RXE_WRITE_MASK) ||
	    !(pkt->mask & RXE_END_MASK) || pkt->mask & RXE_START_MASK ||
	    (uint)atomic_inc_return(&writes) % every)
		return false;
	WRITE_ONCE(refused, refused + 1);
	return true;
}

/**
 * hostile_posts - a work request is about to be posted
 * @bytes: of its data
 *
 * Return: 0; -EINVAL: it is refused.
 */
int hostile_posts(unsigned int bytes)
{
	uint refuse = READ_ONCE(unpostable);

	return refuse && bytes == refuse ? -EINVAL : 0;
}

/* ---- the end of a queue pair ------------------------------------------------ */

/**
 * hostile_purge - a queue pair has been destroyed
 * @cq: where it completed
 * @qp: it
 */
void hostile_purge(struct rxe_cq *cq, struct rxe_qp *qp)
{
	struct rxe_queue *queue;
	struct rxe_cqe *cqe;
	unsigned long flags;
	u32 at, end, gone = 0;

	/* The module may go as soon as no queue pair is left. */
	hostile_settle(qp);
	cancel_delayed_work_sync(&hostile_settling);
	hostile_settle(NULL);
	if (!READ_ONCE(purge) || !cq || cq->is_user)
		return;
	queue = cq->queue;
	spin_lock_irqsave(&cq->cq_lock, flags);
	end = queue_get_consumer(queue, QUEUE_TYPE_TO_ULP);
	at = queue_get_producer(queue, QUEUE_TYPE_TO_CLIENT);
	while (at != end) {
		at = (at - 1) & queue->index_mask;
		cqe = queue_addr_from_index(queue, at);
		if (cqe->ibwc.qp == &qp->ibqp)
			gone++;
		else if (gone)
			memcpy(queue_addr_from_index(queue, (at + gone) &
						     queue->index_mask),
			       cqe, sizeof(*cqe));
	}
	WRITE_ONCE(purged, purged + gone);
	while (gone--)
		queue_advance_consumer(queue, QUEUE_TYPE_TO_ULP);
	spin_unlock_irqrestore(&cq->cq_lock, flags);
}

/* ---- limits ----------------------------------------------------------------- */

/**
 * hostile_limits - a device is being made
 * @rxe: it, with its pools, and the limits that it would have
 */
void hostile_limits(struct rxe_dev *rxe)
{
	if (!READ_ONCE(tiny))
		return;
	rxe->attr.max_qp = 64;
	rxe->qp_pool.max_elem = 64;
	/* Less, and ib_core has no queue pair for connecting. */
	rxe->attr.max_qp_wr = 512;
	rxe->attr.max_cqe = 4095;
	rxe->attr.max_send_sge = 2;
	rxe->attr.max_recv_sge = 1;
	rxe->attr.max_srq_wr = 1024;
	rxe->attr.max_qp_rd_atom = 1;
	rxe->attr.max_qp_init_rd_atom = 1;
	rxe->attr.max_mr = 256;
	rxe->mr_pool.max_elem = 256;
}
