// SPDX-License-Identifier: GPL-2.0
/*
 * Test module: whether a tasklet is over after tow_rxe_tasklets(), where it runs on one
 * processor for long while it is scheduled on another one, which has other work, too.  To
 * load it is the test; it fails with EIO.  Needs two processors.
 */
#include <linux/cpumask.h>
#include <linux/interrupt.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/workqueue.h>

#include "core/quirks.h"

#define ROUNDS		20
/* Longer than what a processor runs of softirqs before it does something else. */
#define LONG_MS		20

struct settled {
	struct tasklet_struct	tasklet;
	struct work_struct	begin;
	atomic_t		runs;
	bool			begun;
};

static void settled_run(struct tasklet_struct *tasklet)
{
	struct settled *settled = from_tasklet(settled, tasklet, tasklet);
	ktime_t end = ktime_add_ms(ktime_get(), LONG_MS);

	/* The first time only. */
	if (atomic_inc_return(&settled->runs) > 1)
		return;
	WRITE_ONCE(settled->begun, true);
	/* Not mdelay(), which goes wrong on an emulated processor that is added late. */
	while (ktime_before(ktime_get(), end))
		cpu_relax();
}

static long settled_schedule(void *data)
{
	struct settled *settled = data;

	tasklet_schedule(&settled->tasklet);
	return 0;
}

static void settled_begin(struct work_struct *work)
{
	settled_schedule(container_of(work, struct settled, begin));
}

static int settled_work(void *unused)
{
	while (!kthread_should_stop())
		cond_resched();
	return 0;
}

/* Return: whether it is over. */
static bool settled_once(struct settled *settled, int here, int there)
{
	bool over;

	settled->begun = false;
	atomic_set(&settled->runs, 0);
	schedule_work_on(there, &settled->begin);
	while (!READ_ONCE(settled->begun))
		usleep_range(50, 100);
	work_on_cpu(here, settled_schedule, settled);
	tow_rxe_tasklets();
	over = !settled->tasklet.state && atomic_read(&settled->runs) == 2;
	flush_work(&settled->begin);
	tasklet_kill(&settled->tasklet);
	return over;
}

static int __init settled_init(void)
{
	int here = cpumask_first(cpu_online_mask);
	int there = cpumask_last(cpu_online_mask);
	struct settled *settled;
	struct task_struct *work;
	int i, bad = 0;

	if (here == there)
		return -ENODEV;
	settled = kzalloc(sizeof(*settled), GFP_KERNEL);
	if (!settled)
		return -ENOMEM;
	tasklet_setup(&settled->tasklet, settled_run);
	INIT_WORK(&settled->begin, settled_begin);
	work = kthread_create(settled_work, NULL, "tow_settled_work");
	if (IS_ERR(work)) {
		kfree(settled);
		return PTR_ERR(work);
	}
	kthread_bind(work, here);
	wake_up_process(work);
	for (i = 0; i < ROUNDS; i++)
		bad += !settled_once(settled, here, there);
	kthread_stop(work);
	kfree(settled);
	pr_info("tow_settled: %d of %d tasklets were not over\n", bad, ROUNDS);
	return bad ? -EIO : 0;
}

static void __exit settled_exit(void)
{
}

module_init(settled_init);
module_exit(settled_exit);

MODULE_DESCRIPTION("towline: whether tasklets are over");
MODULE_LICENSE("GPL");
