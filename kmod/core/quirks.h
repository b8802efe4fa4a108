/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What soft-RoCE of 6.1 leaves behind when a completion queue goes.
 */
#ifndef TOW_QUIRKS_H
#define TOW_QUIRKS_H

#include <linux/bottom_half.h>
#include <linux/cpumask.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>

/* Runs the softirqs that are pending on this processor. */
static inline long tow_rxe_run_tasklets_cpu(void *unused)
{
	local_bh_disable();
	local_bh_enable();
	return 0;
}

/*
 * Waits for tasklets that nobody schedules any more.  A tasklet may run on one
 * processor while it is scheduled on another, which then puts it off: the first
 * round ends the tasklets that run, the second runs those that were put off.
 */
static inline void tow_rxe_tasklets(void)
{
	int round, cpu;

	/* A processor that goes offline hands its tasklets to another one. */
	for (round = 0; round < 2; round++) {
		for_each_online_cpu(cpu)
			work_on_cpu(cpu, tow_rxe_run_tasklets_cpu, NULL);
	}
}

/**
 * tow_rxe_run_tasklets - run the tasklets that notify of completions
 * @ibdev: the RDMA device
 *
 * For a completion queue that is about to be destroyed; its queue pairs are
 * destroyed.  Soft-RoCE of 6.1 notifies of completions in a tasklet that is
 * part of the completion queue, and frees the queue without waiting for the
 * tasklet: on a busy machine the tasklet ran in freed memory.  Drivers of
 * hardware notify from interrupts, and wait for those.
 */
static inline void tow_rxe_run_tasklets(struct ib_device *ibdev)
{
	if (ib_uses_virt_dma(ibdev))
		tow_rxe_tasklets();
}

#endif /* TOW_QUIRKS_H */
