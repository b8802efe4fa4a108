// SPDX-License-Identifier: GPL-2.0
/*
 * tow_halt: the first that calls a function of towline's waits there.
 *
 *	modprobe tow_halt at=FUNCTION
 *
 * It goes on when this module is unloaded, or 20 seconds later; others never wait.
 * So a test can do what it likes at a moment that would pass too fast.
 *
 *	/sys/module/tow_halt/parameters/halted	Y: it waits, or did
 *
 * The function must not be static where the compiler may have put it into its callers,
 * may sleep, and has six arguments at most, none of them on the stack.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/completion.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/wait.h>

#define TOW_HALT_SECONDS	20

typedef unsigned long (*tow_halt_function)(unsigned long, unsigned long, unsigned long,
					   unsigned long, unsigned long, unsigned long);

static char *at;
module_param(at, charp, 0444);
MODULE_PARM_DESC(at, "the function");

static bool halted;
module_param(halted, bool, 0444);
MODULE_PARM_DESC(halted, "has anybody called it?");

static struct kprobe tow_halt_probe;
static DECLARE_COMPLETION(tow_halt_over);
static atomic_t tow_halt_called = ATOMIC_INIT(0);
/* Who waits, and has not come back from the function. */
static atomic_t tow_halt_inside = ATOMIC_INIT(0);
static DECLARE_WAIT_QUEUE_HEAD(tow_halt_wait);

/* In the place of the function. */
static unsigned long tow_halt_instead(unsigned long a, unsigned long b, unsigned long c,
				      unsigned long d, unsigned long e, unsigned long f)
{
	tow_halt_function function = (tow_halt_function)tow_halt_probe.addr;
	unsigned long result;

	WRITE_ONCE(halted, true);
	wait_for_completion_timeout(&tow_halt_over, TOW_HALT_SECONDS * HZ);
	result = function(a, b, c, d, e, f);
	if (atomic_dec_and_test(&tow_halt_inside))
		wake_up(&tow_halt_wait);
	return result;
}

static int tow_halt_enter(struct kprobe *probe, struct pt_regs *regs)
{
	if (atomic_xchg(&tow_halt_called, 1))
		return 0;
	atomic_inc(&tow_halt_inside);
	instruction_pointer_set(regs, (unsigned long)tow_halt_instead);
	return 1;
}

/* With it the kernel lets us go elsewhere. */
static void tow_halt_after(struct kprobe *probe, struct pt_regs *regs, unsigned long flags)
{
}

static int __init tow_halt_init(void)
{
	if (!at)
		return -EINVAL;
	tow_halt_probe.symbol_name = at;
	tow_halt_probe.pre_handler = tow_halt_enter;
	tow_halt_probe.post_handler = tow_halt_after;
	return register_kprobe(&tow_halt_probe);
}

static void __exit tow_halt_exit(void)
{
	complete_all(&tow_halt_over);
	/* First: it runs what the other changes. */
	wait_event(tow_halt_wait, !atomic_read(&tow_halt_inside));
	unregister_kprobe(&tow_halt_probe);
	/* It has said so, and may be here for a moment. */
	synchronize_rcu_tasks();
}

module_init(tow_halt_init);
module_exit(tow_halt_exit);

MODULE_DESCRIPTION("the first that calls a function waits there, for towline's tests");
MODULE_LICENSE("GPL");
