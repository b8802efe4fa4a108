// SPDX-License-Identifier: GPL-2.0
/*
 * Pumps, with a kernel that is played here: ioctl(2) and poll(2) are this file's.  It takes
 * entries, keeps them until it is told to complete them, or completes them itself at once, and
 * may be unplugged.
 */
/* build: also tsan */
#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <kselftest.h>

#include <towline/queue.h>

#include "libshim/pump/pump.h"

#define DEVICE_FD	1000
#define ENTRIES		16U
#define WAITS		32U
#define COMPLETIONS	64U
/* Completions for all else, but for the nudge's. */
#define ROOM		(COMPLETIONS - WAITS - 1)
#define SQES_OFFSET	sizeof(struct tow_ring)
#define CQES_OFFSET	(SQES_OFFSET + ENTRIES * sizeof(struct tow_sqe))
#define MAP_BYTES	8192
#define PEER		7U
#define TIMEOUT_MS	1000U
#define FOREVER		UINT64_MAX

/* ---- the kernel ---- */

static struct {
	pthread_mutex_t lock;
	int queue_fd;
	int gone;		/* what every call says; or 0 */
	bool quick;		/* completes at once what is no wait */
	struct tow_ring *ring;
	struct tow_sqe *sqes;
	struct tow_cqe *cqes;
	struct tow_sqe taken[COMPLETIONS];
	uint32_t count;
	uint32_t nops, cut;	/* nudges, and chains that were not taken whole */
	uint64_t lost;		/* a peer that it is to tell of; or 0 */
	sem_t *at, *on;		/* who takes entries says so, and waits, if there is one */
} kernel = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* What slots count, by their handle. */
static uint64_t numbers[1000];

static int create_queue(struct tow_queue_create *create)
{
	unsigned char *rings;

	if (create->sq_entries != ENTRIES || create->cq_entries > COMPLETIONS)
		return -EINVAL;
	kernel.queue_fd = memfd_create("queue", MFD_CLOEXEC);
	if (kernel.queue_fd < 0 || ftruncate(kernel.queue_fd, MAP_BYTES))
		ksft_exit_fail_perror("memfd");
	rings = mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, kernel.queue_fd, 0);
	if (rings == MAP_FAILED)
		ksft_exit_fail_perror("mmap");
	kernel.ring = (struct tow_ring *)rings;
	kernel.sqes = (struct tow_sqe *)(rings + SQES_OFFSET);
	kernel.cqes = (struct tow_cqe *)(rings + CQES_OFFSET);
	kernel.count = 0;
	create->cq_entries = COMPLETIONS;
	create->map_bytes = MAP_BYTES;
	create->sqes_offset = SQES_OFFSET;
	create->cqes_offset = CQES_OFFSET;
	create->fd = kernel.queue_fd;
	return 0;
}

static uint32_t unseen(void)
{
	return kernel.ring->cq_tail - tow_load_acquire(&kernel.ring->cq_head);
}

/* Complete the @index-th of what is in flight. */
static void complete(uint32_t index, int status)
{
	struct tow_sqe sqe = kernel.taken[index];
	struct tow_cqe *cqe;

	if (index >= kernel.count)
		ksft_exit_fail_msg("nothing to complete\n");
	kernel.count--;
	memmove(&kernel.taken[index], &kernel.taken[index + 1],
		(kernel.count - index) * sizeof(kernel.taken[0]));
	if (!status && sqe.flags & TOW_SQE_SILENT)
		return;
	if (unseen() == COMPLETIONS)
		ksft_exit_fail_msg("no room for a completion\n");
	cqe = &kernel.cqes[kernel.ring->cq_tail % COMPLETIONS];
	cqe->user_data = sqe.user_data;
	cqe->status = status;
	cqe->flags = 0;
	tow_store_release(&kernel.ring->cq_tail, kernel.ring->cq_tail + 1);
}

static bool is_due(const struct tow_sqe *sqe)
{
	if (sqe->opcode == TOW_OP_WAIT)
		return __atomic_load_n(&numbers[sqe->region], __ATOMIC_ACQUIRE) >= sqe->operand;
	return kernel.quick || sqe->opcode == TOW_OP_NOP;
}

static void complete_due(void)
{
	uint32_t i = 0;

	while (i < kernel.count)
		if (kernel.gone)
			complete(i, kernel.gone);
		else if (is_due(&kernel.taken[i]))
			complete(i, 0);
		else
			i++;
}

static void take_entries(uint32_t count)
{
	const struct tow_sqe *sqe = NULL;

	while (count-- && kernel.ring->sq_head != tow_load_acquire(&kernel.ring->sq_tail)) {
		if (kernel.count + unseen() == COMPLETIONS)
			ksft_exit_fail_msg("more entries than completions\n");
		sqe = &kernel.sqes[kernel.ring->sq_head % ENTRIES];
		kernel.nops += sqe->opcode == TOW_OP_NOP;
		kernel.taken[kernel.count++] = *sqe;
		tow_store_release(&kernel.ring->sq_head, kernel.ring->sq_head + 1);
	}
	kernel.cut += sqe && sqe->flags & TOW_SQE_LINK;
}

static int enter(const struct tow_enter *call)
{
	int ret;

	if (call->to_submit && kernel.at) {
		sem_post(kernel.at);
		sem_wait(kernel.on);
	}
	pthread_mutex_lock(&kernel.lock);
	if (!kernel.gone)
		take_entries(call->to_submit);
	complete_due();
	ret = kernel.gone ? kernel.gone : call->min_complete > unseen() ? -ETIMEDOUT : 0;
	pthread_mutex_unlock(&kernel.lock);
	return ret;
}

static int tell_event(struct tow_queue_event *event)
{
	event->peer = kernel.lost;
	event->what = TOW_QUEUE_EVENT_LOST;
	event->lost_ns = towi_now_ns();
	if (kernel.lost)
		kernel.lost = 0;
	return event->peer != 0;
}

static int answer(int fd, unsigned long command, void *arg)
{
	if (fd == DEVICE_FD && command == TOW_IOCTL_QUEUE_CREATE)
		return create_queue(arg);
	if (fd == kernel.queue_fd && command == TOW_IOCTL_ENTER)
		return enter(arg);
	if (fd == kernel.queue_fd && command == TOW_IOCTL_QUEUE_EVENT)
		return tell_event(arg);
	return -ENOTTY;
}

/* Instead of the C library's, for everything in this program. */
/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
int ioctl(int fd, unsigned long command, ...)
{
	va_list arguments;
	int ret;

	va_start(arguments, command);
	ret = answer(fd, command, va_arg(arguments, void *));
	va_end(arguments);
	if (ret >= 0)
		return ret;
	errno = -ret;
	return -1;
}

/* Of a queue and of a number of its own, as pumps do; the real one knows only the latter. */
/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
int poll(struct pollfd *look, nfds_t count, int timeout_ms)
{
	static const struct timespec moment = { 0, 1000000 };
	uint64_t until = towi_until((uint64_t)timeout_ms * 1000);
	bool some;

	if (count != 2 || look[0].fd != kernel.queue_fd)
		ksft_exit_fail_msg("an unknown poll\n");
	do {
		pthread_mutex_lock(&kernel.lock);
		complete_due();
		some = unseen();
		look[0].revents = (short)(some ? POLLIN : kernel.gone ? POLLHUP : 0);
		pthread_mutex_unlock(&kernel.lock);
		if (ppoll(&look[1], 1, &moment, NULL) > 0 || look[0].revents)
			return 1;
	} while (towi_left_us(until));
	return 0;
}

static void be_quick(bool quick)
{
	pthread_mutex_lock(&kernel.lock);
	kernel.quick = quick;
	pthread_mutex_unlock(&kernel.lock);
}

/* One of its numbers, while a thread of the pump's may be in it. */
static uint32_t count_of(const uint32_t *number)
{
	uint32_t count;

	pthread_mutex_lock(&kernel.lock);
	count = *number;
	pthread_mutex_unlock(&kernel.lock);
	return count;
}

static void notify(const struct tow_slot *slot)
{
	__atomic_add_fetch(&numbers[slot->handle], 1, __ATOMIC_ACQ_REL);
}

/* ---- runners ---- */

struct one {
	struct towi_runner runner;	/* first */
	struct towi_op op[2 * ROOM];
	struct towi_wait wait;
	struct towi_timed timed;
	struct towi_call call;
	struct towi_errand errand;
	struct tow_slot slot;
	struct tow_sqe *last;
	uint32_t at_once;		/* that it begins together; 0: one by one */
	uint32_t wants, begun, ended, gone_on, told, late, tries;
	uint32_t order;			/* when it went on, of all */
	int status;
	uint64_t lost_ns;
	bool buried, again;
};

static struct tow_device device = { .fd = DEVICE_FD };
static struct towi_pump pump;
static uint32_t order;

static struct one *one_of(struct towi_runner *runner)
{
	return (struct one *)runner;
}

static void ended(struct towi_op *op, int status)
{
	struct one *one = one_of(op->runner);

	one->ended++;
	one->status = status;
}

/* One more operation; false: not now. */
static bool begin(struct one *one)
{
	struct tow_sqe *sqe = towi_pump_entry(&one->runner);

	if (!sqe)
		return false;
	tow_prep_nop(sqe);
	sqe->opcode = TOW_OP_WRITE;
	one->op[one->begun] = (struct towi_op){ .ended = ended, .runner = &one->runner };
	towi_pump_begun(sqe, &one->op[one->begun++]);
	return true;
}

static bool begin_some(struct one *one)
{
	if (!one->at_once)
		return begin(one);
	if (!towi_pump_room(&one->runner, one->at_once))
		return false;
	for (uint32_t i = 0; i < one->at_once; i++)
		begin(one);
	return true;
}

static void go_on(struct towi_runner *runner)
{
	struct one *one = one_of(runner);

	one->gone_on++;
	one->order = ++order;
	if (one->again)
		towi_pump_ready(runner);
	one->again = false;
	if (one->slot.number)
		towi_pump_wait_on(&one->wait, &one->slot);
	while (one->begun < one->wants && begin_some(one))
		;
}

static void lost(struct towi_runner *runner, int error, uint64_t lost_ns)
{
	one_of(runner)->status = error;
	one_of(runner)->lost_ns = lost_ns;
}

static void tick(struct towi_runner *runner, uint64_t now_us)
{
	(void)now_us;
	one_of(runner)->told++;
}

static void bury(struct towi_runner *runner)
{
	one_of(runner)->buried = true;
}

static const struct towi_runner_ops ops = { go_on, lost, tick, bury };

static void join(struct one *one, uint64_t handle)
{
	one->runner.ops = &ops;
	one->wait.op = (struct towi_op){ .ended = ended, .runner = &one->runner };
	one->slot = (struct tow_slot){ .handle = handle, .number = &numbers[handle] };
	towi_pump_join(&pump, &one->runner);
}

/* With the lock. */
static struct one *make(uint32_t count)
{
	struct one *made = calloc(count, sizeof(*made));

	kernel.gone = 0;
	kernel.quick = false;
	kernel.cut = 0;
	kernel.nops = 0;
	memset(numbers, 0, sizeof(numbers));
	if (!made || towi_pump_begin(&pump, &device, ENTRIES, WAITS, TIMEOUT_MS))
		ksft_exit_fail_msg("no pump\n");
	towi_pump_lock(&pump);
	for (uint32_t i = 0; i < count; i++)
		join(&made[i], i);
	return made;
}

/* What was begun is handed over, and what has ended seen; the lock is held before and after. */
static void turn(void)
{
	towi_pump_unlock(&pump);
	towi_pump_lock(&pump);
	towi_pump_look(&pump);
	towi_pump_unlock(&pump);
	towi_pump_lock(&pump);
}

/* All of it ends. */
static bool end(struct one *ones, uint32_t count)
{
	bool good = true;

	be_quick(true);
	for (uint32_t i = 0; i < count; i++) {
		__atomic_store_n(&numbers[i], UINT64_MAX, __ATOMIC_RELEASE);
		towi_pump_settle(&pump, &ones[i].runner.busy, FOREVER);
		towi_pump_settle(&pump, &ones[i].runner.waiting, FOREVER);
		towi_pump_release(&ones[i].wait);
		good = good && towi_pump_leave(&ones[i].runner);
	}
	good = good && !pump.in_flight && !pump.reserved && !count_of(&kernel.cut);
	towi_pump_unlock(&pump);
	towi_pump_end(&pump);
	munmap(kernel.ring, MAP_BYTES);
	free(ones);
	return good;
}

/* ---- who goes on ---- */

#define MANY	900U

static void test_owner(void)
{
	struct one *ones = make(MANY);
	static const uint32_t some[] = { 800, 3, 77 };
	uint32_t others = 0;
	bool good = true;

	for (uint32_t i = 0; i < 3; i++)
		good = good && begin(&ones[some[i]]);
	turn();
	for (uint32_t i = 0; i < 3; i++)
		good = good && !ones[some[i]].gone_on;
	/* The second first. */
	complete(1, -EIO);
	complete(1, 0);
	complete(0, 0);
	good = good && kernel.count == 0 && towi_pump_look(&pump) == 3;
	for (uint32_t i = 0; i < 3; i++)
		good = good && ones[some[i]].gone_on == 1 && ones[some[i]].ended == 1 &&
		       !ones[some[i]].runner.busy;
	good = good && ones[3].order < ones[77].order && ones[77].order < ones[800].order &&
	       ones[3].status == -EIO && ones[77].status == 0;
	for (uint32_t i = 0; i < MANY; i++)
		others += ones[i].gone_on;
	ksft_test_result(good && others == 3, "whose operation has ended goes on, and nobody else\n");
	ksft_test_result(end(ones, MANY), "all come to an end\n");
}

static void test_ready(void)
{
	struct one *ones = make(2);
	bool good;

	towi_pump_ready(&ones[0].runner);
	towi_pump_ready(&ones[1].runner);
	towi_pump_ready(&ones[0].runner);
	ones[0].again = true;
	turn();
	good = ones[0].gone_on == 2 && ones[1].gone_on == 1 && ones[1].order == ones[0].order - 1;
	ksft_test_result(good, "each goes on once, and once more after others\n");
	end(ones, 2);
}

/* False: who sleeps is to look again at once. */
static bool sleeps(void)
{
	uint64_t until = towi_until(200000);

	towi_pump_sleep(&pump, until);
	return !towi_left_us(until);
}

/* Another thread has made it ready, and has let go of the lock since. */
static void test_ready_sleeps(void)
{
	struct one *ones = make(1);
	bool good;

	towi_pump_ready(&ones->runner);
	good = !sleeps() && ones->gone_on == 1;
	ksft_test_result(good && sleeps(), "whoever had a runner go on looks before he sleeps\n");
	end(ones, 1);
}

/* ---- room ---- */

static void test_starved(void)
{
	struct one *ones = make(3);
	uint32_t calls;
	bool good;

	ones[0].wants = ROOM + 10;
	ones[1].wants = 1;
	towi_pump_ready(&ones[0].runner);
	turn();
	towi_pump_ready(&ones[1].runner);
	turn();
	good = ones[0].begun == ROOM && kernel.count == ROOM && !ones[1].begun;
	ksft_test_result(good, "the ring is emptied until there is no room for completions\n");
	/* Nobody asks in vain. */
	calls = ones[0].gone_on + ones[1].gone_on;
	turn();
	good = calls == ones[0].gone_on + ones[1].gone_on;
	complete(0, 0);
	turn();
	/* Before him whose operation has ended. */
	good = good && ones[0].begun == ROOM && ones[1].begun == 1;
	complete(0, 0);
	turn();
	ksft_test_result(good && ones[0].begun == ROOM + 1,
			 "who found none goes on when there is some, in turn\n");
	be_quick(true);
	towi_pump_settle(&pump, &ones[0].runner.busy, FOREVER);
	ksft_test_result(ones[0].ended == ROOM + 10 && ones[0].begun == ROOM + 10 &&
			 ones[1].ended == 1, "and all of it is done\n");
	end(ones, 3);
}

/* Of one who needs four at once and of others there is none who is always first. */
static void test_needs(void)
{
	struct one *ones = make(3);
	bool good = true;

	ones[0].wants = ROOM + 10;
	ones[0].at_once = 1;
	ones[1].wants = 4;
	ones[1].at_once = 4;
	ones[2].wants = 1;
	ones[2].at_once = 1;
	for (uint32_t i = 0; i < 3; i++) {
		towi_pump_ready(&ones[i].runner);
		turn();
	}
	for (uint32_t i = 0; i < 3; i++) {
		complete(0, 0);
		turn();
		good = good && ones[0].begun == ROOM && !ones[1].begun && !ones[2].begun;
	}
	complete(0, 0);
	turn();
	good = good && ones[0].begun == ROOM && ones[1].begun == 4 && !ones[2].begun;
	ksft_test_result(good, "who needs several has them in turn\n");
	complete(0, 0);
	turn();
	ksft_test_result(good && ones[0].begun == ROOM && ones[2].begun == 1,
			 "and who needs one after that\n");
	ksft_test_result(end(ones, 3), "and all of it is done\n");
}

static void test_waits(void)
{
	struct one *ones = make(WAITS + 2), *more = &ones[WAITS + 1];
	bool good = true;

	for (uint32_t i = 0; i < WAITS; i++)
		good = good && !towi_pump_reserve(&ones[i].wait) &&
		       !towi_pump_reserve(&ones[i].wait);
	good = good && towi_pump_reserve(&ones[WAITS].wait) == -EOVERFLOW;
	ksft_test_result(good, "more waits than there is room for are refused before\n");
	for (uint32_t i = 0; i < WAITS; i++)
		towi_pump_wait_for(&ones[i].wait, &ones[i].slot, 1);
	turn();
	good = kernel.count == WAITS;
	more->wants = ROOM;
	towi_pump_ready(&more->runner);
	turn();
	ksft_test_result(good && more->begun == ROOM && kernel.count == WAITS + ROOM,
			 "all wait, and there is room for others\n");
	notify(&ones[5].slot);
	good = towi_pump_sleep(&pump, FOREVER) == 0 && ones[5].ended == 1 && ones[5].gone_on &&
	       !ones[6].ended;
	/* While it waits for less. */
	towi_pump_wait_for(&ones[6].wait, &ones[6].slot, 2);
	notify(&ones[6].slot);
	towi_pump_sleep(&pump, FOREVER);
	turn();
	good = good && ones[6].ended == 1 && ones[6].runner.waiting == 1;
	notify(&ones[6].slot);
	good = good && towi_pump_sleep(&pump, FOREVER) == 0 && ones[6].ended == 2;
	ksft_test_result(good && !ones[6].runner.waiting, "who waits for more waits on\n");
	towi_pump_release(&ones[6].wait);
	towi_pump_release(&ones[7].wait);
	ksft_test_result(!towi_pump_reserve(&ones[WAITS].wait) &&
			 towi_pump_reserve(&more->wait) == -EOVERFLOW,
			 "room is given back, but not what is still used\n");
	end(ones, WAITS + 2);
}

/* Of an entry's flags, by turns, in a chain that says nothing but at its end. */
static bool begin_chain(struct one *one, uint32_t count)
{
	if (!towi_pump_room(&one->runner, count))
		return false;
	for (uint32_t i = 0; i < count; i++) {
		one->last = &pump.queue->sqes[pump.queue->sq_tail % ENTRIES];
		begin(one);
		if (i + 1 < count)
			tow_sqe_set_flags(one->last, TOW_SQE_SILENT | TOW_SQE_LINK);
	}
	return true;
}

static void test_chain(void)
{
	struct one *ones = make(1);
	bool good;

	good = begin_chain(ones, 5);
	turn();
	good = good && kernel.count == 5 && pump.in_flight == 5;
	while (kernel.count)
		complete(0, 0);
	turn();
	good = good && ones->ended == 1 && ones->runner.busy == 4;
	towi_pump_silent(&ones->runner, 4);
	ksft_test_result(good && !pump.in_flight && !ones->runner.busy, "a chain says so once\n");
	end(ones, 1);
}

static void test_nudge(void)
{
	struct one *ones = make(1);
	bool good;

	for (uint32_t i = 0; i < ENTRIES; i++)
		begin(ones);
	towi_pump_nudge(&pump);
	towi_pump_nudge(&pump);
	turn();
	good = kernel.nops == 1 && !pump.nudge.busy;
	towi_pump_nudge(&pump);
	turn();
	ksft_test_result(good && kernel.nops == 2, "a nudge finds room\n");
	end(ones, 1);
}

/* ---- the end ---- */

static void test_gone(void)
{
	struct one *ones = make(2);
	bool good;

	towi_pump_reserve(&ones[1].wait);
	towi_pump_wait_for(&ones[1].wait, &ones[1].slot, 1);
	begin(&ones[0]);
	turn();
	begin(&ones[0]);
	kernel.gone = -ENODEV;
	turn();
	good = ones[0].lost_ns == UINT64_MAX && ones[1].lost_ns == UINT64_MAX &&
	       ones[0].ended == 2 && ones[0].status == -ENODEV && ones[1].ended == 1 &&
	       !ones[0].runner.busy && !ones[1].runner.waiting;
	ksft_test_result(good && pump.over == -ENODEV, "the device goes\n");
	ksft_test_result(!begin(&ones[0]) && towi_pump_sleep(&pump, FOREVER) == -ENODEV,
			 "then nothing is begun\n");
	end(ones, 2);
}

/* What the device has not ended stays until the queue is gone. */
static void test_grave(void)
{
	struct one *ones = make(1);
	bool good;

	begin(ones);
	turn();
	good = !towi_pump_leave(&ones->runner) && !ones->buried;
	towi_pump_unlock(&pump);
	towi_pump_end(&pump);
	munmap(kernel.ring, MAP_BYTES);
	ksft_test_result(good && ones->buried, "what has not ended is buried with the queue\n");
	free(ones);
}

static void test_lost(void)
{
	struct one *ones = make(2);

	ones[1].runner.peer = PEER;
	kernel.lost = PEER;
	pump.asked_us = 0;
	turn();
	ksft_test_result(!ones[0].gone_on && ones[1].gone_on && ones[1].status == -ECONNRESET &&
			 ones[1].lost_ns <= towi_now_ns(), "a peer is lost\n");
	end(ones, 2);
}

/* ---- time ---- */

static void late(struct towi_timed *timed)
{
	((struct one *)(void *)((char *)timed - offsetof(struct one, timed)))->late++;
}

static void test_time(void)
{
	struct one *ones = make(3);

	for (uint32_t i = 0; i < 3; i++) {
		ones[i].timed.late = late;
		towi_pump_time(&pump, &ones[i].timed);
	}
	towi_pump_untime(&pump, &ones[1].timed);
	for (uint32_t i = 0; i < 2; i++)
		ones[i].timed.since_us -= TIMEOUT_MS * 1000ULL * 2;
	pump.ticked_us = 0;
	turn();
	ksft_test_result(ones[0].late == 1 && !ones[1].late && !ones[2].late,
			 "what takes too long is late, once\n");
	ones[1].timed.since_us = 0;
	ones[2].timed.since_us -= TIMEOUT_MS * 1000ULL * 2;
	pump.ticked_us = 0;
	ksft_test_result(!sleeps() && ones[2].late == 1, "and whoever waits for that looks\n");
	pump.ticked_us = 0;
	turn();
	ksft_test_result(ones[0].late == 1 && ones[0].told && ones[2].told == ones[0].told,
			 "all have a turn now and then\n");
	end(ones, 3);
}

/* ---- without the lock ---- */

static bool is_free(void)
{
	if (pthread_mutex_trylock(&pump.lock))
		return false;
	pthread_mutex_unlock(&pump.lock);
	return true;
}

static int run(struct towi_errand *errand)
{
	struct one *one = one_of(errand->runner);

	if (!is_free())
		return -EDEADLK;
	return ++one->tries < 3 ? -EAGAIN : -ESTALE;
}

static void done(struct towi_errand *errand, int ret)
{
	one_of(errand->runner)->status = ret;
}

static void test_errand(void)
{
	struct one *ones = make(1);
	bool good;

	ones->errand = (struct towi_errand){ .runner = &ones->runner, .run = run, .done = done };
	good = !towi_pump_errand(&ones->errand) && ones->runner.busy == 1;
	/* The lock is let go of while this one waits. */
	towi_pump_settle(&pump, &ones->runner.busy, FOREVER);
	ksft_test_result(good && ones->status == -ESTALE && ones->tries == 3,
			 "an errand is run without the lock, until it is done\n");
	while (!count_of(&kernel.nops))
		towi_pump_sleep(&pump, towi_until(1000));
	ksft_test_result(ones->gone_on == 1, "and then its runner goes on, and the descriptor says so\n");
	end(ones, 1);
}

static sem_t calls, may_return;

static void call(struct towi_call *call)
{
	one_of(call->runner)->late += is_free();
	sem_post(&calls);
	sem_wait(&may_return);
}

static void *call_it(void *arg)
{
	(void)arg;
	towi_pump_lock(&pump);
	towi_pump_unlock(&pump);
	return NULL;
}

static void test_call(void)
{
	struct one *ones = make(1);
	pthread_t thread;
	bool good;

	sem_init(&calls, 0, 0);
	sem_init(&may_return, 0, 0);
	ones->call = (struct towi_call){ .runner = &ones->runner, .run = call };
	towi_pump_call(&ones->call);
	towi_pump_unlock_quietly(&pump);
	pthread_create(&thread, NULL, call_it, NULL);
	sem_wait(&calls);
	towi_pump_lock(&pump);
	towi_pump_settle(&pump, &ones->runner.calls, towi_until(1000));
	good = ones->runner.calls == 1;
	sem_post(&may_return);
	towi_pump_settle(&pump, &ones->runner.calls, FOREVER);
	ksft_test_result(good && ones->late == 1, "a function is called without the lock, and waited for\n");
	towi_pump_unlock(&pump);
	pthread_join(thread, NULL);
	towi_pump_lock(&pump);
	end(ones, 1);
}

/* The first one's function waits for the second one's, as one that closes another edge does. */
static void call_waits(struct towi_call *call)
{
	struct one *one = one_of(call->runner);

	towi_pump_lock(&pump);
	if (!one->late++)
		towi_pump_settle(&pump, &(one + 1)->runner.calls, towi_until(1000000));
	one->status = (int)(one + 1)->runner.calls;
	towi_pump_unlock(&pump);
}

static void call_counts(struct towi_call *call)
{
	one_of(call->runner)->late++;
}

static void test_call_waits(void)
{
	struct one *ones = make(2);

	ones[0].call = (struct towi_call){ .runner = &ones[0].runner, .run = call_waits };
	ones[1].call = (struct towi_call){ .runner = &ones[1].runner, .run = call_counts };
	towi_pump_call(&ones[0].call);
	towi_pump_call(&ones[1].call);
	towi_pump_unlock(&pump);
	towi_pump_lock(&pump);
	ksft_test_result(!ones[0].status && ones[1].late == 1,
			 "a function may wait for one that was to be called after it\n");
	end(ones, 2);
}

/* ---- several threads ---- */

/* While one is in the kernel with its entries another one looks, and then hands over its own. */
static void *hand_over(void *arg)
{
	struct one *one = arg;

	towi_pump_lock(&pump);
	begin(one);
	towi_pump_unlock(&pump);
	return NULL;
}

static void test_submitting(void)
{
	struct one *ones = make(2);
	pthread_t first, second;
	sem_t at, on;
	bool good;

	sem_init(&at, 0, 0);
	sem_init(&on, 0, 0);
	kernel.at = &at;
	kernel.on = &on;
	towi_pump_unlock(&pump);
	pthread_create(&first, NULL, hand_over, &ones[0]);
	sem_wait(&at);
	/* The lock can be had meanwhile. */
	towi_pump_lock(&pump);
	good = towi_pump_look(&pump) == 0;
	towi_pump_unlock_quietly(&pump);
	pthread_create(&second, NULL, hand_over, &ones[1]);
	sem_post(&on);
	sem_wait(&at);
	sem_post(&on);
	pthread_join(first, NULL);
	pthread_join(second, NULL);
	kernel.at = NULL;
	ksft_test_result(good && kernel.count == 2, "the lock is free while entries are handed over\n");
	towi_pump_lock(&pump);
	end(ones, 2);
}

#define THREADS		4U
#define ROUNDS		2000U

static void *play(void *arg)
{
	struct one *one = arg;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		towi_pump_lock(&pump);
		one->begun = 0;
		while (!begin_chain(one, 3))
			towi_pump_sleep(&pump, FOREVER);
		/* Of the last entry the completion comes. */
		towi_pump_sleep_for(&pump, &one->op[2], FOREVER);
		towi_pump_silent(&one->runner, 2);
		towi_pump_wait_for(&one->wait, &one->slot, i + 1);
		towi_pump_unlock(&pump);
		notify(&one->slot);
		towi_pump_lock(&pump);
		towi_pump_sleep_for(&pump, &one->wait.op, FOREVER);
		if (i % 64 == 0) {
			one->tries = 2;
			towi_pump_errand(&one->errand);
			towi_pump_settle(&pump, &one->runner.busy, FOREVER);
		}
		towi_pump_unlock(&pump);
	}
	return NULL;
}

static int run_quickly(struct towi_errand *errand)
{
	(void)errand;
	return 0;
}

static void test_threads(void)
{
	struct one *ones = make(THREADS);
	pthread_t threads[THREADS];
	uint32_t all = 0;

	be_quick(true);
	for (uint32_t i = 0; i < THREADS; i++) {
		towi_pump_reserve(&ones[i].wait);
		ones[i].errand = (struct towi_errand){ .runner = &ones[i].runner,
						       .run = run_quickly, .done = done };
	}
	towi_pump_unlock(&pump);
	for (uint32_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, play, &ones[i]);
	for (uint32_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	towi_pump_lock(&pump);
	for (uint32_t i = 0; i < THREADS; i++)
		all += ones[i].ended;
	ksft_test_result(all == THREADS * ROUNDS * 2 && !count_of(&kernel.cut),
			 "many threads, whose chains stay whole\n");
	ksft_test_result(end(ones, THREADS), "and come to an end\n");
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(2 + 1 + 1 + 3 + 3 + 4 + 1 + 1 + 2 + 1 + 1 + 3 + 2 + 1 + 1 + 1 + 2);
	test_owner();
	test_ready();
	test_ready_sleeps();
	test_starved();
	test_needs();
	test_waits();
	test_chain();
	test_nudge();
	test_gone();
	test_grave();
	test_lost();
	test_time();
	test_errand();
	test_call();
	test_call_waits();
	test_submitting();
	test_threads();
	ksft_finished();
}
