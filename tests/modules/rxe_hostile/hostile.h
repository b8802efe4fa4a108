/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What soft-RoCE never does, and network cards do: see hostile.c.
 */
#ifndef TOW_RXE_HOSTILE_H
#define TOW_RXE_HOSTILE_H

#include <linux/types.h>

struct rxe_cq;
struct rxe_dev;
struct rxe_pkt_info;
struct rxe_qp;

/**
 * struct hostile_held - the first packet of a write, which is to be placed last
 * @data: its contents; NULL: there is none
 * @iova: where they go
 * @bytes: how many
 */
struct hostile_held {
	void	*data;
	u64	iova;
	int	bytes;
};

int hostile_place(struct rxe_qp *qp, struct rxe_pkt_info *pkt, u64 iova,
		  void *from, int bytes);
void hostile_forget(struct hostile_held *first);
bool hostile_loses_ack(void);
bool hostile_refuses(const struct rxe_pkt_info *pkt);
int hostile_posts(unsigned int bytes);
void hostile_limits(struct rxe_dev *rxe);
void hostile_purge(struct rxe_cq *cq, struct rxe_qp *qp);

#endif /* TOW_RXE_HOSTILE_H */
