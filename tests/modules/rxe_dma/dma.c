// SPDX-License-Identifier: GPL-2.0
/*
 * Soft-RoCE behind an IOMMU.  The kernel's own rdma_rxe, with rxe-*.patch, calls these;
 * for tests only.  scripts/lab/kernel builds it.
 *
 * Its devices do their DMA as QEMU's pci-testdev, which does none of its own.  What is
 * registered for them is kept as the device's addresses, and such an address becomes
 * memory when a packet is placed or read, page by page, as the IOMMU has it then
 * (without one it is the physical address).  One that is not mapped is a DMA fault: the
 * kernel complains, and the queue pair ends with a protection error.  A program's
 * registered memory is reached by its pages, and inline data by the processor's
 * addresses.
 *
 * What network cards guarantee and soft-RoCE does not: the end of a completion queue
 * waits for its task, an invalidation for accesses under way, a queue pair in the error
 * state says when nothing comes in any more, a packet that cannot be sent is lost, no
 * more, and a work request that failed by itself says how.
 *
 * Parameters; but for the first, which is read when the PCI device is found, they may be
 * changed at any time and hold for devices, or work requests, that are made afterwards:
 *	mask_bits	the device's addresses are so wide
 *	no_atomics	work requests of the kernel's for atomics are refused, though
 *			the device has them, as mlx5 does
 *	no_srq		no shared receive queues
 *	max_cqe		a completion queue's largest size; 0: soft-RoCE's own
 *	page_list	pages that a work request can register; 0: soft-RoCE's own
 *	refuse_access	a work request that registers memory is refused if it asks for
 *			any of these access flags
 *	late_data	what is written arrives after it was acknowledged: before the same
 *			queue pair's next completion of a receive, its reads, its end, and
 *			that of what it wrote to; and some milliseconds later at most.
 *			Other queue pairs' do not wait for it: so may mlx5, with relaxed
 *			ordering
 */
#include <linux/dma-mapping.h>
#include <linux/iommu.h>
#include <linux/io.h>
#include <linux/moduleparam.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/rwlock.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "rxe.h"
#include "rxe_loc.h"
#include "rxe_queue.h"
#include "dma.h"

#define RXE_DMA_PCI_VENDOR	0x1b36
#define RXE_DMA_PCI_DEVICE	0x0005
#define RXE_DMA_LATE_MS		20

static uint mask_bits = 64;
module_param(mask_bits, uint, 0444);
MODULE_PARM_DESC(mask_bits, "Bits of the device's addresses");

static bool no_atomics;
module_param(no_atomics, bool, 0644);
MODULE_PARM_DESC(no_atomics, "Refuse the kernel's work requests for atomics");

static bool no_srq;
module_param(no_srq, bool, 0644);
MODULE_PARM_DESC(no_srq, "New devices have no shared receive queues");

static uint max_cqe;
module_param(max_cqe, uint, 0644);
MODULE_PARM_DESC(max_cqe, "Largest completion queue of new devices; 0: soft-RoCE's");

static uint page_list;
module_param(page_list, uint, 0644);
MODULE_PARM_DESC(page_list, "Longest page list of new devices; 0: soft-RoCE's");

static uint refuse_access;
module_param(refuse_access, uint, 0644);
MODULE_PARM_DESC(refuse_access, "Access flags that are not registered");

static bool late_data;
module_param(late_data, bool, 0644);
MODULE_PARM_DESC(late_data, "What is written arrives after it was acknowledged");

/* So often it happened; a few more or less, as nobody locks. */
static uint faults;
module_param(faults, uint, 0444);
MODULE_PARM_DESC(faults, "Accesses to what was not mapped");

static uint refused;
module_param(refused, uint, 0444);
MODULE_PARM_DESC(refused, "Work requests that were refused");

static uint late;
module_param(late, uint, 0444);
MODULE_PARM_DESC(late, "Packets of writes that were placed late");

/* ---- the PCI device ---------------------------------------------------------- */

/* Held while an RDMA device is made. */
static DEFINE_MUTEX(rxe_dma_lock);
/* Whose DMA it is; NULL: there is none. */
static struct pci_dev *rxe_dma_pci;

static int rxe_dma_probe(struct pci_dev *pci, const struct pci_device_id *id)
{
	int err;

	err = pcim_enable_device(pci);
	if (err)
		return err;
	pci_set_master(pci);
	err = dma_set_mask_and_coherent(&pci->dev, DMA_BIT_MASK(mask_bits));
	if (err)
		return err;
	dma_set_max_seg_size(&pci->dev, UINT_MAX);

	mutex_lock(&rxe_dma_lock);
	if (rxe_dma_pci)
		err = -EBUSY;
	else
		rxe_dma_pci = pci;
	mutex_unlock(&rxe_dma_lock);
	return err;
}

static void rxe_dma_remove(struct pci_dev *pci)
{
	mutex_lock(&rxe_dma_lock);
	rxe_dma_pci = NULL;
	mutex_unlock(&rxe_dma_lock);
	ib_unregister_driver(RDMA_DRIVER_RXE);
}

static const struct pci_device_id rxe_dma_ids[] = {
	{ PCI_DEVICE(RXE_DMA_PCI_VENDOR, RXE_DMA_PCI_DEVICE) },
	{ }
};

static struct pci_driver rxe_dma_driver = {
	.name		= "rxe_dma",
	.id_table	= rxe_dma_ids,
	.probe		= rxe_dma_probe,
	.remove		= rxe_dma_remove,
};

/**
 * rxe_dma_register - ib_register_device() of a device that has DMA
 * @ibdev: it
 * @name: its name
 *
 * Return: as ib_register_device(); -ENODEV: there is no PCI device.
 */
int rxe_dma_register(struct ib_device *ibdev, const char *name)
{
	int err = -ENODEV;

	mutex_lock(&rxe_dma_lock);
	if (rxe_dma_pci) {
		ibdev->dev.parent = &rxe_dma_pci->dev;
		err = ib_register_device(ibdev, name, &rxe_dma_pci->dev);
	}
	mutex_unlock(&rxe_dma_lock);
	return err;
}

/* ---- what it can do ---------------------------------------------------------- */

/**
 * rxe_dma_limits - a device is being made
 * @rxe: it, with its pools, and the limits that it would have
 */
void rxe_dma_limits(struct rxe_dev *rxe)
{
	if (READ_ONCE(no_srq)) {
		rxe->attr.max_srq = 0;
		rxe->srq_pool.max_elem = 0;
	}
	if (READ_ONCE(max_cqe))
		rxe->attr.max_cqe = READ_ONCE(max_cqe);
	if (READ_ONCE(page_list))
		rxe->attr.max_fast_reg_page_list_len = READ_ONCE(page_list);
}

static int rxe_dma_refusal(const struct ib_send_wr *wr)
{
	switch (wr->opcode) {
	case IB_WR_ATOMIC_CMP_AND_SWP:
	case IB_WR_ATOMIC_FETCH_AND_ADD:
		return READ_ONCE(no_atomics) ? -EOPNOTSUPP : 0;
	case IB_WR_REG_MR:
		return reg_wr(wr)->access & READ_ONCE(refuse_access) ?
		       -EINVAL : 0;
	default:
		return 0;
	}
}

/**
 * rxe_dma_refuses - a work request of the kernel's is to be posted
 * @wr: it
 *
 * Return: 0; an error: it is not.
 */
int rxe_dma_refuses(const struct ib_send_wr *wr)
{
	int err = rxe_dma_refusal(wr);

	if (err)
		WRITE_ONCE(refused, refused + 1);
	return err;
}

/* ---- memory ------------------------------------------------------------------ */

/**
 * struct rxe_dma_window - memory of another device
 * @link: in rxe_dma_windows
 * @start: physical address
 * @bytes: how much
 * @at: where it is mapped
 */
struct rxe_dma_window {
	struct list_head	link;
	phys_addr_t		start;
	size_t			bytes;
	void			*at;
};

static LIST_HEAD(rxe_dma_windows);
/* Held for reading during each access, so that who ends something can wait for those. */
static DEFINE_RWLOCK(rxe_dma_access);

/**
 * rxe_dma_window_add - memory without pages can be reached
 * @start: physical address of the first byte; page aligned
 * @bytes: how much
 *
 * It is mapped as memremap(MEMREMAP_WB) does.
 *
 * Return: 0; -ENOMEM.
 */
int rxe_dma_window_add(phys_addr_t start, size_t bytes)
{
	struct rxe_dma_window *window = kzalloc(sizeof(*window), GFP_KERNEL);

	if (!window)
		return -ENOMEM;
	window->start = start;
	window->bytes = bytes;
	window->at = memremap(start, bytes, MEMREMAP_WB);
	if (!window->at) {
		kfree(window);
		return -ENOMEM;
	}
	write_lock_bh(&rxe_dma_access);
	list_add(&window->link, &rxe_dma_windows);
	write_unlock_bh(&rxe_dma_access);
	return 0;
}
EXPORT_SYMBOL_GPL(rxe_dma_window_add);

static struct rxe_dma_window *rxe_dma_window_at(phys_addr_t phys)
{
	struct rxe_dma_window *window;

	list_for_each_entry(window, &rxe_dma_windows, link) {
		if (phys >= window->start &&
		    phys - window->start < window->bytes)
			return window;
	}
	return NULL;
}

/**
 * rxe_dma_window_remove - undo rxe_dma_window_add()
 * @start: as it was told
 *
 * When it returns nothing is accessed there.
 */
void rxe_dma_window_remove(phys_addr_t start)
{
	struct rxe_dma_window *window;

	write_lock_bh(&rxe_dma_access);
	window = rxe_dma_window_at(start);
	if (window)
		list_del(&window->link);
	write_unlock_bh(&rxe_dma_access);
	if (!window)
		return;
	memunmap(window->at);
	kfree(window);
}
EXPORT_SYMBOL_GPL(rxe_dma_window_remove);

/* NULL: the device cannot reach it. */
static void *rxe_dma_translate(struct ib_device *ibdev, u64 at)
{
	struct iommu_domain *domain;
	struct rxe_dma_window *window;
	phys_addr_t phys = at;

	domain = iommu_get_domain_for_dev(ibdev->dma_device);
	if (domain)
		phys = iommu_iova_to_phys(domain, at);
	if (!phys)
		return NULL;
	window = rxe_dma_window_at(phys);
	if (window)
		return window->at + (phys - window->start);
	return pfn_valid(PHYS_PFN(phys)) ? phys_to_virt(phys) : NULL;
}

/**
 * rxe_dma_reach - begin to access memory
 * @mr: what it is registered as
 * @at: the device's address, or the processor's of a program's memory
 *
 * Return: the memory, up to the end of its page, for rxe_dma_leave(); NULL: the
 * registration has ended, or the address is not mapped, which the kernel complains of.
 */
void *rxe_dma_reach(struct rxe_mr *mr, u64 at)
{
	void *memory;

	read_lock_bh(&rxe_dma_access);
	if (mr->state != RXE_MR_STATE_VALID) {
		memory = NULL;
	} else if (mr->umem) {
		memory = (void *)(uintptr_t)at;
	} else {
		memory = rxe_dma_translate(mr->ibmr.pd->device, at);
		if (WARN(!memory, "DMA fault: %#llx is not mapped\n", at))
			WRITE_ONCE(faults, faults + 1);
	}
	if (!memory)
		read_unlock_bh(&rxe_dma_access);
	return memory;
}

/**
 * rxe_dma_leave - what rxe_dma_reach() began is over
 */
void rxe_dma_leave(void)
{
	read_unlock_bh(&rxe_dma_access);
}

/**
 * rxe_dma_copy - copy to or from what is registered
 * @mr: it
 * @at: where, as rxe_dma_reach() wants it
 * @addr: the other end
 * @bytes: how much
 * @to_mr: to it
 *
 * Return: 0; -EFAULT.
 */
int rxe_dma_copy(struct rxe_mr *mr, u64 at, void *addr, int bytes, bool to_mr)
{
	while (bytes) {
		int part = min_t(int, bytes, PAGE_SIZE - offset_in_page(at));
		void *memory = rxe_dma_reach(mr, at);

		if (!memory)
			return -EFAULT;
		memcpy(to_mr ? memory : addr, to_mr ? addr : memory, part);
		rxe_dma_leave();
		at += part;
		addr += part;
		bytes -= part;
	}
	return 0;
}

/* ---- data that comes late ------------------------------------------------------ */

/**
 * struct rxe_dma_held - a packet of a write that is acknowledged, but not placed
 * @link: in rxe_dma_all_held, in the order in which they came
 * @qp: the responder, to be compared only
 * @mr: what it goes to, which is referenced
 * @iova: where
 * @bytes: how much
 * @data: its contents
 */
struct rxe_dma_held {
	struct list_head	link;
	struct rxe_qp		*qp;
	struct rxe_mr		*mr;
	u64			iova;
	int			bytes;
	u8			data[];
};

static LIST_HEAD(rxe_dma_all_held);
static DEFINE_SPINLOCK(rxe_dma_held_lock);

/* Places what is held of a queue pair, for a registration; NULL: any. */
static void rxe_dma_place(struct rxe_qp *qp, struct rxe_mr *mr)
{
	struct rxe_dma_held *held, *next;

	list_for_each_entry_safe(held, next, &rxe_dma_all_held, link) {
		if ((qp && held->qp != qp) || (mr && held->mr != mr))
			continue;
		list_del(&held->link);
		rxe_mr_copy(held->mr, held->iova, held->data, held->bytes,
			    RXE_TO_MR_OBJ);
		rxe_put(held->mr);
		kfree(held);
	}
}

static void rxe_dma_settle(struct rxe_qp *qp, struct rxe_mr *mr)
{
	if (list_empty(&rxe_dma_all_held))
		return;
	spin_lock_bh(&rxe_dma_held_lock);
	rxe_dma_place(qp, mr);
	spin_unlock_bh(&rxe_dma_held_lock);
}

static void rxe_dma_late(struct work_struct *work)
{
	rxe_dma_settle(NULL, NULL);
}

static DECLARE_DELAYED_WORK(rxe_dma_late_work, rxe_dma_late);

/* false: it is to be placed now. */
static bool rxe_dma_hold(struct rxe_qp *qp, u64 iova, const void *from,
			 int bytes)
{
	struct rxe_mr *mr = qp->resp.mr;
	struct rxe_dma_held *held;

	if (!READ_ONCE(late_data) || !mr || mr->state != RXE_MR_STATE_VALID)
		return false;
	held = kmalloc(struct_size(held, data, bytes), GFP_ATOMIC);
	if (!held)
		return false;
	rxe_get(mr);
	*held = (struct rxe_dma_held) {
		.qp = qp, .mr = mr, .iova = iova, .bytes = bytes,
	};
	memcpy(held->data, from, bytes);
	list_add_tail(&held->link, &rxe_dma_all_held);
	WRITE_ONCE(late, late + 1);
	schedule_delayed_work(&rxe_dma_late_work,
			      msecs_to_jiffies(RXE_DMA_LATE_MS));
	return true;
}

/**
 * rxe_dma_write - a packet of a write has come
 * @qp: the responder
 * @iova: where it goes
 * @from: what is in it
 * @bytes: how much
 *
 * Return: as rxe_mr_copy().
 */
int rxe_dma_write(struct rxe_qp *qp, u64 iova, void *from, int bytes)
{
	int err = 0;

	if (!READ_ONCE(late_data) && list_empty(&rxe_dma_all_held))
		return rxe_mr_copy(qp->resp.mr, iova, from, bytes,
				   RXE_TO_MR_OBJ);
	spin_lock_bh(&rxe_dma_held_lock);
	if (!bytes || !rxe_dma_hold(qp, iova, from, bytes)) {
		rxe_dma_place(qp, NULL);
		err = rxe_mr_copy(qp->resp.mr, iova, from, bytes,
				  RXE_TO_MR_OBJ);
	}
	spin_unlock_bh(&rxe_dma_held_lock);
	return err;
}

/**
 * rxe_dma_settle_qp - what came to a queue pair is in memory when this returns
 * @qp: it
 */
void rxe_dma_settle_qp(struct rxe_qp *qp)
{
	rxe_dma_settle(qp, NULL);
}

/**
 * rxe_dma_settle_mr - what was written to memory is there when this returns
 * @mr: it
 */
void rxe_dma_settle_mr(struct rxe_mr *mr)
{
	rxe_dma_settle(NULL, mr);
}

/**
 * rxe_dma_end_mr - a registration is invalidated
 * @mr: it
 *
 * When it returns nobody accesses the memory by it.
 */
void rxe_dma_end_mr(struct rxe_mr *mr)
{
	spin_lock_bh(&rxe_dma_held_lock);
	rxe_dma_place(NULL, mr);
	mr->state = RXE_MR_STATE_FREE;
	spin_unlock_bh(&rxe_dma_held_lock);
	write_lock_bh(&rxe_dma_access);
	write_unlock_bh(&rxe_dma_access);
}

/**
 * rxe_dma_last_wqe - nothing comes in to a queue pair any more
 * @qp: it, with a shared receive queue
 *
 * Soft-RoCE of 6.12 says so itself.
 */
void rxe_dma_last_wqe(struct rxe_qp *qp)
{
	struct ib_event event = {
		.device		= qp->ibqp.device,
		.element.qp	= &qp->ibqp,
		.event		= IB_EVENT_QP_LAST_WQE_REACHED,
	};

	if (qp->ibqp.event_handler)
		qp->ibqp.event_handler(&event, qp->ibqp.qp_context);
}

/* ---- the module ---------------------------------------------------------------- */

/**
 * rxe_dma_init - begin to serve the PCI device
 *
 * Return: 0 or an error.
 */
int rxe_dma_init(void)
{
	return pci_register_driver(&rxe_dma_driver);
}

/**
 * rxe_dma_exit - undo rxe_dma_init(); all RDMA devices go
 */
void rxe_dma_exit(void)
{
	pci_unregister_driver(&rxe_dma_driver);
	cancel_delayed_work_sync(&rxe_dma_late_work);
}
