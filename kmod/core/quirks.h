/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What soft-RoCE of 6.1 leaves behind when a completion queue goes.
 */
#ifndef TOW_SETTLE_H
#define TOW_SETTLE_H

#include <linux/bottom_half.h>
#include <linux/cpumask.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>

/* Runs what softirqs this processor has been asked for. */
static inline long tow_rxe_run_tasklets_cpu(void *unused)
{
	local_bh_disable();
	local_bh_enable();
	return 0;
}

/*
 * Waits for tasklets that nobody schedules any more.  One may run on a processor while it
 * is scheduled on another, which cannot run it then and puts it off: so first each processor
 * ends what it runs, and then each runs what it was asked for.
 */
static inline void tow_rxe_tasklets(void)
{
	int round, cpu;

	/* A processor that goes meanwhile hands its tasklets to another. */
	for (round = 0; round < 2; round++) {
		for_each_online_cpu(cpu)
			work_on_cpu(cpu, tow_rxe_run_tasklets_cpu, NULL);
	}
}

/**
 * tow_rxe_run_tasklets - run the tasklets that tell of completions
 * @ibdev: the RDMA device
 *
 * For a completion queue that is about to be destroyed, when the queue pairs that
 * complete there are gone.  Soft-RoCE of 6.1 tells of completions in a tasklet
 * that is part of the completion queue, and does not wait for it: on a busy
 * machine it ran in memory that was freed.  Hardware tells from interrupts, and
 * waits for those.
 */
static inline void tow_rxe_run_tasklets(struct ib_device *ibdev)
{
	if (ib_uses_virt_dma(ibdev))
		tow_rxe_tasklets();
}

#endif /* TOW_SETTLE_H */
