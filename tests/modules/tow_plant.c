// SPDX-License-Identifier: GPL-2.0
/*
 * tow_plant: do on purpose what towline must never do.
 *
 * The lab fails a run when the kernel complains, and the leak oracles fail a
 * test that leaves something behind.  This module proves that they do: it
 * plants one complaint, or one leak, of each kind, by name.
 *
 *	/sys/kernel/debug/tow_plant/plant	write a kind: the kernel complains
 *						read: each kind, and why this
 *						kernel cannot show it, if so
 *	/sys/kernel/debug/tow_plant/leak	write "KIND IBDEV": KIND is leaked
 *						write "free": give all back
 *	/sys/kernel/debug/tow_plant/slow	mmap: pages (zero) whose first
 *						touch waits for a write here,
 *						or 20 seconds; a read answers
 *						how many are waiting now
 *	/sys/kernel/debug/tow_plant/deaf	write milliseconds, up to 5000: for so
 *						long this processor hears no interrupt
 *
 * A write returns when the deed is done.  What kills the thread that does it
 * (BUG, oops) is done in a kernel thread of its own, so that the guest lives
 * on.  Everything is bounded in time.  -EINVAL: unknown kind; -EOPNOTSUPP:
 * this kernel cannot show it; -ENODATA: tried, and nothing was hit.
 *
 * Not for any machine that matters.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/debugfs.h>
#include <linux/dma-mapping.h>
#include <linux/kfence.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/platform_device.h>
#include <linux/rcupdate.h>
#include <linux/refcount.h>
#include <linux/sched/task.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/timer.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <linux/wait.h>
#include <rdma/ib_verbs.h>

#include "tow_find.h"

/* More than the slab oracle takes for noise. */
#define LEAKED_OBJECTS	128

struct tow_plant_kind {
	const char *name;
	int (*plant)(void);
	bool dies;		/* the planting thread does not come back */
	const char *missing;	/* why this kernel cannot show it, or NULL */
};

/* One planting in flight. */
struct tow_plant_job {
	const struct tow_plant_kind *kind;
	struct completion started;
	struct completion done;
	int result;
};

static struct dentry *tow_plant_dir;

/* Protects everything that is leaked. */
static DEFINE_MUTEX(tow_plant_lock);

/* Protected by tow_plant_lock: what "free" gives back. */
static struct ib_pd *leaked_pd;
static struct ib_cq *leaked_cq;
static struct ib_qp *leaked_qp;
static struct ib_mr *leaked_mr;
static struct page *leaked_pin;
static void *leaked_vmalloc;
/* Complemented, so that kmemleak cannot find the objects through here. */
static unsigned long leaked_objects[LEAKED_OBJECTS];

static int tow_plant_warn(void)
{
	WARN(1, "planted\n");
	return 0;
}

static int tow_plant_bug(void)
{
	BUG();
}

static int tow_plant_oops(void)
{
	int *nowhere = NULL;

	OPTIMIZER_HIDE_VAR(nowhere);
	return READ_ONCE(*nowhere);
}

static int tow_plant_kasan(void)
{
	char *object = kmalloc(64, GFP_KERNEL);

	if (!object)
		return -ENOMEM;
	kfree(object);
	OPTIMIZER_HIDE_VAR(object);
	(void)READ_ONCE(object[1]);
	return 0;
}

/*
 * KFENCE looks at one allocation per sample interval: take objects until one
 * is under its guard, then use exactly that one after it is freed.
 */
static int tow_plant_kfence(void)
{
	unsigned long end = jiffies + 5 * HZ;
	char *object;
	bool guarded;

	while (time_before(jiffies, end)) {
		object = kmalloc(64, GFP_KERNEL);
		if (!object)
			return -ENOMEM;
		guarded = is_kfence_address(object);
		kfree(object);
		if (guarded) {
			OPTIMIZER_HIDE_VAR(object);
			(void)READ_ONCE(object[1]);
			return 0;
		}
		cond_resched();
	}
	return -ENODATA;
}

static int tow_plant_ubsan(void)
{
	int distance = 40;
	int one = 1;

	OPTIMIZER_HIDE_VAR(distance);
	OPTIMIZER_HIDE_VAR(one);
	one <<= distance;
	OPTIMIZER_HIDE_VAR(one);
	return 0;
}

static int tow_plant_lockdep(void)
{
	static DEFINE_MUTEX(first);
	static DEFINE_MUTEX(second);

	mutex_lock(&first);
	mutex_lock(&second);
	mutex_unlock(&second);
	mutex_unlock(&first);

	mutex_lock(&second);
	mutex_lock(&first);
	mutex_unlock(&first);
	mutex_unlock(&second);
	return 0;
}

/*
 * The scheduler complains and then sets the preemption count right itself, so
 * there is no preempt_enable() to match.
 */
static int tow_plant_atomic(void)
{
	preempt_disable();
	schedule_timeout_uninterruptible(1);
	return 0;
}

static int tow_plant_refcount(void)
{
	refcount_t holders = REFCOUNT_INIT(1);

	if (refcount_dec_and_test(&holders))
		refcount_inc(&holders);
	return 0;
}

static int tow_plant_list(void)
{
	struct list_head head, entry;

	INIT_LIST_HEAD(&head);
	list_add(&entry, &head);
	list_del(&entry);
	list_del(&entry);
	return 0;
}

static void tow_plant_no_timer(struct timer_list *timer)
{
}

/* The memory of an armed timer is freed; debugobjects disarms it first. */
static int tow_plant_debugobjects(void)
{
	struct timer_list *timer = kmalloc(sizeof(*timer), GFP_KERNEL);

	if (!timer)
		return -ENOMEM;
	timer_setup(timer, tow_plant_no_timer, 0);
	mod_timer(timer, jiffies + 3600 * HZ);
	kfree(timer);
	return 0;
}

/* A mapping whose success nobody asked about. */
static int tow_plant_dma(void)
{
	struct platform_device *device;
	dma_addr_t address;
	void *page;
	int ret;

	page = (void *)__get_free_page(GFP_KERNEL);
	if (!page)
		return -ENOMEM;
	device = platform_device_register_simple("tow_plant", -1, NULL, 0);
	if (IS_ERR(device)) {
		ret = PTR_ERR(device);
		goto free_page;
	}
	ret = dma_coerce_mask_and_coherent(&device->dev, DMA_BIT_MASK(64));
	if (ret)
		goto unregister;
	address = dma_map_single(&device->dev, page, PAGE_SIZE, DMA_TO_DEVICE);
	dma_unmap_single(&device->dev, address, PAGE_SIZE, DMA_TO_DEVICE);
unregister:
	platform_device_unregister(device);
free_page:
	free_page((unsigned long)page);
	return ret;
}

/*
 * Pages that claim to be mapped are given back.  Four orders up, they go past
 * the per-CPU lists, which do not look in every configuration.
 */
static int tow_plant_bad_page(void)
{
	struct page *page = alloc_pages(GFP_KERNEL, 4);

	if (!page)
		return -ENOMEM;
	atomic_set(&page->_mapcount, 0);
	__free_pages(page, 4);
	return 0;
}

/* A byte behind the object: its red zone is checked when it is freed. */
static int tow_plant_slab(void)
{
	struct kmem_cache *cache;
	char *object;

	cache = kmem_cache_create("tow_plant_slab", 64, 0,
				  SLAB_RED_ZONE | SLAB_POISON, NULL);
	if (!cache)
		return -ENOMEM;
	object = kmem_cache_alloc(cache, GFP_KERNEL);
	if (object) {
		OPTIMIZER_HIDE_VAR(object);
		WRITE_ONCE(object[64], 0x5e);
		kmem_cache_free(cache, object);
	}
	kmem_cache_destroy(cache);
	return object ? 0 : -ENOMEM;
}

/* Also a leak: "free" gives the objects back.  A scan must follow. */
static int tow_plant_kmalloc(void)
{
	void *object;
	int i;

	lockdep_assert_held(&tow_plant_lock);
	for (i = 0; i < LEAKED_OBJECTS; i++) {
		if (leaked_objects[i])
			continue;
		object = kmalloc(192, GFP_KERNEL);
		if (!object)
			return -ENOMEM;
		leaked_objects[i] = ~(unsigned long)object;
	}
	return 0;
}

static int tow_plant_kmemleak(void)
{
	int ret;

	mutex_lock(&tow_plant_lock);
	ret = tow_plant_kmalloc();
	mutex_unlock(&tow_plant_lock);
	return ret;
}

/* hung_task_timeout_secs must be 2 or less. */
static int tow_plant_hung_task(void)
{
	unsigned long end = jiffies + 7 * HZ;

	while (time_before(jiffies, end))
		schedule_timeout_uninterruptible(end - jiffies);
	return 0;
}

static void tow_plant_spin(unsigned int seconds)
{
	unsigned long end = jiffies + seconds * HZ;

	while (time_before(jiffies, end))
		cpu_relax();
}

/* rcu_cpu_stall_timeout must be 3; PROVE_RCU makes the kernel add 5 to it. */
static int tow_plant_rcu_stall(void)
{
	start_poll_synchronize_rcu();
	rcu_read_lock();
	tow_plant_spin(IS_ENABLED(CONFIG_PROVE_RCU) ? 10 : 5);
	rcu_read_unlock();
	return 0;
}

/* watchdog_thresh must be 1: a CPU may be gone for twice as long. */
static int tow_plant_soft_lockup(void)
{
	preempt_disable();
	tow_plant_spin(4);
	preempt_enable();
	return 0;
}

#define MISSING_UNLESS(CONFIG_option, why)	(IS_ENABLED(CONFIG_option) ? NULL : (why))

static const struct tow_plant_kind tow_plant_kinds[] = {
	{ "warn", tow_plant_warn },
	{ "bug", tow_plant_bug, .dies = true },
	{ "oops", tow_plant_oops, .dies = true },
	{ "kasan", tow_plant_kasan,
	  .missing = MISSING_UNLESS(CONFIG_KASAN, "built without KASAN") },
	{ "kfence", tow_plant_kfence,
	  .missing = MISSING_UNLESS(CONFIG_KFENCE, "built without KFENCE") },
	{ "ubsan", tow_plant_ubsan,
	  .missing = MISSING_UNLESS(CONFIG_UBSAN_SHIFT, "built without UBSAN") },
	{ "lockdep", tow_plant_lockdep,
	  .missing = MISSING_UNLESS(CONFIG_PROVE_LOCKING, "built without lockdep") },
	{ "atomic", tow_plant_atomic },
	{ "refcount", tow_plant_refcount },
	{ "list", tow_plant_list,
	  .dies = IS_ENABLED(CONFIG_BUG_ON_DATA_CORRUPTION),
	  .missing = MISSING_UNLESS(CONFIG_DEBUG_LIST, "built without DEBUG_LIST") },
	{ "debugobjects", tow_plant_debugobjects,
	  .missing = MISSING_UNLESS(CONFIG_DEBUG_OBJECTS_TIMERS, "built without DEBUG_OBJECTS") },
	{ "dma", tow_plant_dma,
	  .missing = MISSING_UNLESS(CONFIG_DMA_API_DEBUG, "built without DMA_API_DEBUG") },
	{ "bad_page", tow_plant_bad_page },
	{ "slab", tow_plant_slab,
	  .missing = IS_ENABLED(CONFIG_KASAN) ? "KASAN sees it first" :
		MISSING_UNLESS(CONFIG_SLUB_DEBUG, "built without SLUB_DEBUG") },
	{ "kmemleak", tow_plant_kmemleak,
	  .missing = MISSING_UNLESS(CONFIG_DEBUG_KMEMLEAK, "built without kmemleak") },
	{ "hung_task", tow_plant_hung_task,
	  .missing = MISSING_UNLESS(CONFIG_DETECT_HUNG_TASK, "built without khungtaskd") },
	{ "rcu_stall", tow_plant_rcu_stall },
	{ "soft_lockup", tow_plant_soft_lockup,
	  .missing = MISSING_UNLESS(CONFIG_SOFTLOCKUP_DETECTOR, "built without the watchdog") },
};

static int tow_plant_thread(void *data)
{
	struct tow_plant_job *job = data;

	complete(&job->started);
	job->result = job->kind->plant();
	complete(&job->done);
	return 0;
}

/*
 * The writer waits interruptibly: were it in D state, the hung task detector
 * would complain about it as well.  kthread_stop() also returns for a thread
 * that died of its deed.
 */
static int tow_plant_do(const struct tow_plant_kind *kind)
{
	struct tow_plant_job job = { .kind = kind };
	struct task_struct *thread;

	init_completion(&job.started);
	init_completion(&job.done);
	thread = kthread_create(tow_plant_thread, &job, "tow_plant");
	if (IS_ERR(thread))
		return PTR_ERR(thread);
	/* Spinning kinds must not sit on the CPU that boots and takes IRQs. */
	kthread_bind(thread, cpumask_last(cpu_online_mask));
	get_task_struct(thread);
	wake_up_process(thread);
	/* A thread that is stopped before it ran never calls its function. */
	wait_for_completion(&job.started);
	if (!kind->dies)
		wait_for_completion_interruptible(&job.done);
	kthread_stop(thread);
	put_task_struct(thread);
	return job.result;
}

static const struct tow_plant_kind *tow_plant_find(const char *name)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(tow_plant_kinds); i++)
		if (!strcmp(tow_plant_kinds[i].name, name))
			return &tow_plant_kinds[i];
	return NULL;
}

/* Copy one line of at most size - 1 characters, without its newline. */
static int tow_plant_line(const char __user *from, size_t count, char *line, size_t size)
{
	if (!count || count >= size)
		return -EINVAL;
	if (copy_from_user(line, from, count))
		return -EFAULT;
	line[count] = '\0';
	strim(line);
	return 0;
}

static ssize_t plant_write(struct file *file, const char __user *buf, size_t count, loff_t *pos)
{
	const struct tow_plant_kind *kind;
	char name[32];
	int ret;

	ret = tow_plant_line(buf, count, name, sizeof(name));
	if (ret)
		return ret;
	kind = tow_plant_find(name);
	if (!kind)
		return -EINVAL;
	if (kind->missing)
		return -EOPNOTSUPP;
	/* A grace period that began under the old stall time-out must end. */
	synchronize_rcu();
	ret = tow_plant_do(kind);
	return ret ? ret : count;
}

static int plant_show(struct seq_file *seq, void *unused)
{
	const struct tow_plant_kind *kind;
	int i;

	for (i = 0; i < ARRAY_SIZE(tow_plant_kinds); i++) {
		kind = &tow_plant_kinds[i];
		seq_printf(seq, "%s%s%s\n", kind->name, kind->missing ? "\t" : "",
			   kind->missing ?: "");
	}
	return 0;
}

static int plant_open(struct inode *inode, struct file *file)
{
	return single_open(file, plant_show, NULL);
}

static const struct file_operations plant_fops = {
	.owner = THIS_MODULE,
	.open = plant_open,
	.read = seq_read,
	.write = plant_write,
	.llseek = seq_lseek,
	.release = single_release,
};

/* Free in the order in which the objects depend on each other. */
static void tow_plant_free_leaks(void)
{
	int i;

	if (leaked_qp)
		ib_destroy_qp(leaked_qp);
	if (leaked_mr)
		ib_dereg_mr(leaked_mr);
	if (leaked_cq)
		ib_destroy_cq(leaked_cq);
	if (leaked_pd)
		ib_dealloc_pd(leaked_pd);
	leaked_qp = NULL;
	leaked_mr = NULL;
	leaked_cq = NULL;
	leaked_pd = NULL;
	if (leaked_pin)
		unpin_user_page(leaked_pin);
	leaked_pin = NULL;
	vfree(leaked_vmalloc);
	leaked_vmalloc = NULL;
	for (i = 0; i < LEAKED_OBJECTS; i++) {
		if (leaked_objects[i])
			kfree((void *)~leaked_objects[i]);
		leaked_objects[i] = 0;
	}
}

static int tow_plant_leak_pd(struct ib_device *ibdev)
{
	struct ib_pd *pd;

	if (leaked_pd)
		return 0;
	pd = ib_alloc_pd(ibdev, 0);
	if (IS_ERR(pd))
		return PTR_ERR(pd);
	leaked_pd = pd;
	return 0;
}

static int tow_plant_leak_cq(struct ib_device *ibdev)
{
	struct ib_cq_init_attr attr = { .cqe = 16 };
	struct ib_cq *cq;

	if (leaked_cq)
		return 0;
	cq = ib_create_cq(ibdev, NULL, NULL, NULL, &attr);
	if (IS_ERR(cq))
		return PTR_ERR(cq);
	leaked_cq = cq;
	return 0;
}

static int tow_plant_leak_mr(struct ib_device *ibdev)
{
	struct ib_mr *mr;
	int ret;

	ret = tow_plant_leak_pd(ibdev);
	if (ret)
		return ret;
	if (leaked_mr)
		return -EBUSY;
	mr = ib_alloc_mr(leaked_pd, IB_MR_TYPE_MEM_REG, 16);
	if (IS_ERR(mr))
		return PTR_ERR(mr);
	leaked_mr = mr;
	return 0;
}

static int tow_plant_leak_qp(struct ib_device *ibdev)
{
	struct ib_qp_init_attr attr = {
		.qp_type = IB_QPT_RC,
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.cap = {
			.max_send_wr = 4, .max_recv_wr = 4,
			.max_send_sge = 1, .max_recv_sge = 1,
		},
	};
	struct ib_qp *qp;
	int ret;

	ret = tow_plant_leak_pd(ibdev) ?: tow_plant_leak_cq(ibdev);
	if (ret)
		return ret;
	if (leaked_qp)
		return -EBUSY;
	attr.send_cq = leaked_cq;
	attr.recv_cq = leaked_cq;
	qp = ib_create_qp(leaked_pd, &attr);
	if (IS_ERR(qp))
		return PTR_ERR(qp);
	leaked_qp = qp;
	return 0;
}

/* Pins a page of the writing process, at an address that is surely mapped. */
static int tow_plant_leak_pin(struct ib_device *ibdev)
{
	struct page *page;
	int pinned;

	if (leaked_pin)
		return -EBUSY;
	pinned = pin_user_pages_fast(current->mm->start_stack & PAGE_MASK, 1, FOLL_LONGTERM, &page);
	if (pinned != 1)
		return pinned < 0 ? pinned : -EFAULT;
	leaked_pin = page;
	return 0;
}

static int tow_plant_leak_kmalloc(struct ib_device *ibdev)
{
	return tow_plant_kmalloc();
}

static int tow_plant_leak_vmalloc(struct ib_device *ibdev)
{
	if (leaked_vmalloc)
		return -EBUSY;
	leaked_vmalloc = vmalloc(8 * PAGE_SIZE);
	return leaked_vmalloc ? 0 : -ENOMEM;
}

static const struct {
	const char *name;
	int (*leak)(struct ib_device *ibdev);
} tow_plant_leaks[] = {
	{ "pd", tow_plant_leak_pd },
	{ "cq", tow_plant_leak_cq },
	{ "mr", tow_plant_leak_mr },
	{ "qp", tow_plant_leak_qp },
	{ "pin", tow_plant_leak_pin },
	{ "kmalloc", tow_plant_leak_kmalloc },
	{ "vmalloc", tow_plant_leak_vmalloc },
};

static int tow_plant_leak(const char *name, struct ib_device *ibdev)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(tow_plant_leaks); i++)
		if (!strcmp(tow_plant_leaks[i].name, name))
			return tow_plant_leaks[i].leak(ibdev);
	return -EINVAL;
}

static ssize_t leak_write(struct file *file, const char __user *buf, size_t count, loff_t *pos)
{
	char line[32 + IB_DEVICE_NAME_MAX];
	struct ib_device *ibdev;
	char *device = line;
	char *name;
	int ret;

	ret = tow_plant_line(buf, count, line, sizeof(line));
	if (ret)
		return ret;
	name = strsep(&device, " ");
	if (!strcmp(name, "free")) {
		mutex_lock(&tow_plant_lock);
		tow_plant_free_leaks();
		mutex_unlock(&tow_plant_lock);
		return count;
	}
	if (!device)
		return -EINVAL;
	ibdev = tow_find_device(device);
	if (!ibdev)
		return -ENODEV;
	mutex_lock(&tow_plant_lock);
	ret = tow_plant_leak(name, ibdev);
	mutex_unlock(&tow_plant_lock);
	ib_device_put(ibdev);
	return ret ? ret : count;
}

static const struct file_operations leak_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = leak_write,
	.llseek = noop_llseek,
};

/* Who touches a slow page waits here until tow_plant_slow_turn moves on. */
static DECLARE_WAIT_QUEUE_HEAD(tow_plant_slow_wait);
static atomic_t tow_plant_slow_turn;
static atomic_t tow_plant_slow_waiting;

static vm_fault_t slow_fault(struct vm_fault *vmf)
{
	int turn = atomic_read(&tow_plant_slow_turn);
	struct page *page;
	long ret;

	atomic_inc(&tow_plant_slow_waiting);
	ret = wait_event_killable_timeout(tow_plant_slow_wait,
					  atomic_read(&tow_plant_slow_turn) != turn, 20 * HZ);
	atomic_dec(&tow_plant_slow_waiting);
	if (ret < 0)
		return VM_FAULT_SIGBUS;
	page = alloc_page(GFP_KERNEL | __GFP_ZERO);
	if (!page)
		return VM_FAULT_OOM;
	/* The reference is the mapping's now. */
	vmf->page = page;
	return 0;
}

static const struct vm_operations_struct slow_vm_ops = {
	.fault = slow_fault,
};

static int slow_mmap(struct file *file, struct vm_area_struct *vma)
{
	vma->vm_ops = &slow_vm_ops;
	return 0;
}

static ssize_t slow_read(struct file *file, char __user *buf, size_t count, loff_t *pos)
{
	char text[16];
	int length;

	length = scnprintf(text, sizeof(text), "%d\n", atomic_read(&tow_plant_slow_waiting));
	return simple_read_from_buffer(buf, count, pos, text, length);
}

static ssize_t slow_write(struct file *file, const char __user *buf, size_t count, loff_t *pos)
{
	atomic_inc(&tow_plant_slow_turn);
	wake_up_all(&tow_plant_slow_wait);
	return count;
}

static const struct file_operations slow_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.read = slow_read,
	.write = slow_write,
	.mmap = slow_mmap,
	.llseek = noop_llseek,
};

/* Not for so long that a watchdog complains. */
static int deaf_set(void *unused, u64 ms)
{
	unsigned long flags;
	ktime_t end;

	if (ms > 5000)
		return -EINVAL;
	local_irq_save(flags);
	/*
	 * Not mdelay(): an emulated processor that is added late measures how fast it is
	 * by itself, and has found itself 40 times slower than it was.
	 */
	end = ktime_add_ms(ktime_get(), ms);
	while (ktime_before(ktime_get(), end))
		cpu_relax();
	local_irq_restore(flags);
	return 0;
}

DEFINE_DEBUGFS_ATTRIBUTE(deaf_fops, NULL, deaf_set, "%llu\n");

static int __init tow_plant_init(void)
{
	tow_plant_dir = debugfs_create_dir("tow_plant", NULL);
	if (IS_ERR(tow_plant_dir))
		return PTR_ERR(tow_plant_dir);
	debugfs_create_file("plant", 0600, tow_plant_dir, NULL, &plant_fops);
	debugfs_create_file("leak", 0200, tow_plant_dir, NULL, &leak_fops);
	/* "unsafe": the safe variant passes no mmap on. */
	debugfs_create_file_unsafe("slow", 0600, tow_plant_dir, NULL, &slow_fops);
	debugfs_create_file_unsafe("deaf", 0200, tow_plant_dir, NULL, &deaf_fops);
	return 0;
}

static void __exit tow_plant_exit(void)
{
	debugfs_remove(tow_plant_dir);
	tow_plant_free_leaks();
}

module_init(tow_plant_init);
module_exit(tow_plant_exit);

MODULE_DESCRIPTION("plants kernel complaints and leaks for towline's tests");
MODULE_LICENSE("GPL");
