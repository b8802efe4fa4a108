/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Soft-RoCE whose every access is a device's DMA: see dma.c.
 */
#ifndef TOW_RXE_DMA_H
#define TOW_RXE_DMA_H

#include <linux/types.h>

struct ib_device;
struct ib_send_wr;
struct rxe_dev;
struct rxe_mr;
struct rxe_qp;

int rxe_dma_init(void);
void rxe_dma_exit(void);
int rxe_dma_register(struct ib_device *ibdev, const char *name);
void rxe_dma_limits(struct rxe_dev *rxe);
int rxe_dma_refuses(const struct ib_send_wr *wr);

void *rxe_dma_reach(struct rxe_mr *mr, u64 at);
void rxe_dma_leave(void);
int rxe_dma_copy(struct rxe_mr *mr, u64 at, void *addr, int bytes, bool to_mr);

int rxe_dma_write(struct rxe_qp *qp, u64 iova, void *from, int bytes);
void rxe_dma_settle_qp(struct rxe_qp *qp);
void rxe_dma_settle_mr(struct rxe_mr *mr);
void rxe_dma_end_mr(struct rxe_mr *mr);
void rxe_dma_last_wqe(struct rxe_qp *qp);

int rxe_dma_window_add(phys_addr_t start, size_t bytes);
void rxe_dma_window_remove(phys_addr_t start);

#endif /* TOW_RXE_DMA_H */
