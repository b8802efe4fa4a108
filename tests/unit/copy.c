// SPDX-License-Identifier: GPL-2.0
/*
 * Queues, channels and copies of the library, with a kernel that is played here: ioctl(2)
 * is this file's.  It takes entries, keeps them until it is told to complete them, in
 * any order, and refuses what it is told to refuse.
 */
/* build: also tsan */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kselftest.h>

#include "internal.h"
#include "libshim/core/queue.h"

#define DEVICE_FD	1000
#define SQ_ENTRIES	4U
#define CQ_ENTRIES	8U
#define SQES_OFFSET	sizeof(struct tow_ring)
#define CQES_OFFSET	(SQES_OFFSET + SQ_ENTRIES * sizeof(struct tow_sqe))
#define MAP_BYTES	4096
/* The number of the first channel, and how many there may be. */
#define CHANNEL		17
#define CHANNELS	4U
#define QPS		2U
#define THREADS		4
#define REGION		0x111
#define REMOTE		0x222
#define ROUNDS		1000

/* ---- the kernel ---- */

static struct {
	int queue_fd;
	/* A negative errno for the next ENTER, or 0. */
	int refuse;
	/* The next ENTER completes what is in flight, whatever it answers. */
	bool completes;
	/* Each ENTER completes one. */
	bool trickles;
	struct tow_ring *ring;
	struct tow_sqe *sqes;
	struct tow_cqe *cqes;
	/* Taken, and not completed. */
	struct tow_sqe taken[CQ_ENTRIES];
	uint32_t count;
	uint64_t peers;
	/* Channels: its peer's number, or 0: it is closed. */
	pthread_mutex_t lock;
	struct {
		uint64_t peer;
		uint32_t qp;
	} channels[CHANNELS];
	uint32_t next_qp;
	/* No peer is connected: who does not say that he will not wait would. */
	bool apart;
	uint32_t waits;
	/* It is of before channels were closed. */
	bool old;
	uint32_t closes;
	/* Put while the kernel opens one, before the library knows of it; or NULL. */
	struct tow_channel *meanwhile;
} kernel = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int create_queue(struct tow_queue_create *create)
{
	unsigned char *rings;

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
	memset(kernel.channels, 0, sizeof(kernel.channels));
	kernel.next_qp = 0;
	kernel.closes = 0;
	create->sq_entries = SQ_ENTRIES;
	create->cq_entries = CQ_ENTRIES;
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

static int take_entries(uint32_t count)
{
	uint32_t taken = 0;

	while (taken < count &&
	       kernel.ring->sq_head != tow_load_acquire(&kernel.ring->sq_tail)) {
		if (kernel.count + unseen() == CQ_ENTRIES)
			break;
		kernel.taken[kernel.count++] = kernel.sqes[kernel.ring->sq_head % SQ_ENTRIES];
		tow_store_release(&kernel.ring->sq_head, kernel.ring->sq_head + 1);
		taken++;
	}
	return taken || !count ? (int)taken : -EBUSY;
}

/* Complete the @index-th of what is in flight. */
static void complete(uint32_t index, int status)
{
	struct tow_cqe *cqe;

	if (!kernel.ring || index >= kernel.count)
		ksft_exit_fail_msg("nothing to complete\n");
	cqe = &kernel.cqes[kernel.ring->cq_tail % CQ_ENTRIES];
	cqe->user_data = kernel.taken[index].user_data;
	cqe->status = status;
	kernel.count--;
	memmove(&kernel.taken[index], &kernel.taken[index + 1],
		(kernel.count - index) * sizeof(kernel.taken[0]));
	tow_store_release(&kernel.ring->cq_tail, kernel.ring->cq_tail + 1);
}

static int enter(const struct tow_enter *call)
{
	int ret = kernel.refuse;

	kernel.refuse = 0;
	while (kernel.completes && kernel.count)
		complete(0, 0);
	kernel.completes = false;
	if (kernel.trickles && kernel.count)
		complete(0, 0);
	if (!ret && call->to_submit)
		ret = take_entries(call->to_submit);
	if (!ret && call->min_complete > unseen())
		ret = -ETIMEDOUT;
	return ret;
}

/* The one that there is, or the first that is closed; CHANNELS: there is none. */
static uint32_t find_channel(uint64_t number, uint32_t qp)
{
	uint32_t i, closed = CHANNELS;

	for (i = 0; i < CHANNELS; i++) {
		if (kernel.channels[i].peer == number && kernel.channels[i].qp == qp)
			return i;
		if (!kernel.channels[i].peer && closed == CHANNELS)
			closed = i;
	}
	return closed;
}

static int open_channel(struct tow_channel_open *open)
{
	struct tow_channel *meanwhile;
	uint32_t i;

	if (kernel.apart && open->flags & TOW_CHANNEL_CONNECTED)
		return -ENOTCONN;
	pthread_mutex_lock(&kernel.lock);
	kernel.waits += kernel.apart;
	/* One after the other. */
	if (open->qp == TOW_CHANNEL_ANY)
		open->qp = kernel.next_qp++ % QPS;
	i = find_channel(open->peer, open->qp);
	if (i < CHANNELS) {
		kernel.channels[i].peer = open->peer;
		kernel.channels[i].qp = open->qp;
	}
	meanwhile = kernel.meanwhile;
	kernel.meanwhile = NULL;
	pthread_mutex_unlock(&kernel.lock);
	tow_channel_put(meanwhile);
	/* Other threads', too. */
	sched_yield();
	open->channel = CHANNEL + i;
	open->qps = QPS;
	return i < CHANNELS ? 0 : -ENOSPC;
}

static bool is_named(uint32_t number)
{
	for (uint32_t i = 0; i < kernel.count; i++)
		if (kernel.taken[i].channel == number)
			return true;
	return false;
}

static int close_channel(const struct tow_channel_close *call)
{
	uint32_t i = call->channel - CHANNEL;
	int ret = 0;

	pthread_mutex_lock(&kernel.lock);
	kernel.closes++;
	if (kernel.old)
		ret = -ENOTTY;
	else if (i >= CHANNELS || !kernel.channels[i].peer)
		ret = -ENOENT;
	else if (is_named(call->channel))
		ret = -EBUSY;
	else
		kernel.channels[i].peer = 0;
	pthread_mutex_unlock(&kernel.lock);
	return ret;
}

/* Is it what it says, and that peer's? */
static bool is_open(const struct tow_channel *shown, uint64_t number)
{
	uint32_t i = shown->number - CHANNEL;
	bool open;

	pthread_mutex_lock(&kernel.lock);
	open = i < CHANNELS && kernel.channels[i].peer == number &&
	       kernel.channels[i].qp == shown->qp;
	pthread_mutex_unlock(&kernel.lock);
	return open;
}

static uint32_t count_open(void)
{
	uint32_t open = 0;

	for (uint32_t i = 0; i < CHANNELS; i++)
		open += kernel.channels[i].peer != 0;
	return open;
}

static int connect_peer(struct tow_peer_connect *call)
{
	call->peer = ++kernel.peers;
	return 0;
}

static int answer(int fd, unsigned long command, void *arg)
{
	if (fd == DEVICE_FD && command == TOW_IOCTL_QUEUE_CREATE)
		return create_queue(arg);
	if (fd == kernel.queue_fd && command == TOW_IOCTL_ENTER)
		return enter(arg);
	if (fd == kernel.queue_fd && command == TOW_IOCTL_CHANNEL_OPEN)
		return open_channel(arg);
	if (fd == kernel.queue_fd && command == TOW_IOCTL_CHANNEL_CLOSE)
		return close_channel(arg);
	if (fd == DEVICE_FD && command == TOW_IOCTL_PEER_CONNECT)
		return connect_peer(arg);
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

/* ---- the program ---- */

struct object {
	uint64_t handle;
};

static struct object region_object = { REGION }, remote_object = { REMOTE };
static struct tow_device device = { .fd = DEVICE_FD };
static struct tow_peer *peer, *other_peer, *third_peer;
static struct tow_queue *queue;
static struct tow_channel *channel;

static void make_queue(void)
{
	if (tow_queue_create(&device, SQ_ENTRIES, CQ_ENTRIES, &queue) ||
	    tow_channel_get(queue, peer, 0, &channel))
		ksft_exit_fail_msg("no queue\n");
}

/* Both sides of it. */
static void end_queue(void)
{
	tow_queue_destroy(queue);
	munmap(kernel.ring, MAP_BYTES);
}

struct told {
	int calls;
	int status;
};

static void tell(void *arg, int status)
{
	struct told *told = arg;

	told->calls++;
	told->status = status;
}

static int copy(uint64_t offset, enum tow_direction direction, struct told *told)
{
	return tow_memcpy(channel, (struct tow_region *)&region_object, offset,
			  (struct tow_remote *)&remote_object, offset + 1, offset + 2, direction,
			  tell, told);
}

static bool was_told(const struct told *told, int status)
{
	return told->calls == 1 && told->status == status;
}

/* ---- tests ---- */

static void test_channels(void)
{
	struct tow_channel *again = NULL, *any[3] = { NULL };
	bool good;

	make_queue();
	good = tow_channel_get(queue, peer, 0, &again) == 0;
	for (int i = 0; i < 3; i++)
		good = good && tow_channel_get(queue, peer, TOW_CHANNEL_ANY, &any[i]) == 0;
	ksft_test_result(good && again == channel && any[0] == channel && any[1] != channel &&
			 any[2] == channel && any[1]->number == CHANNEL + 1 && any[1]->qp == 1 &&
			 any[1]->qps == 2 && any[1]->queue == queue,
			 "one object for each channel\n");
	ksft_test_result(tow_queue_fd(queue) == kernel.queue_fd, "the descriptor\n");
	end_queue();
}

/* Of the peer or the other one: the channel. */
static struct tow_channel *get(struct tow_peer *of, uint32_t qp)
{
	struct tow_channel *got = NULL;

	if (tow_channel_get(queue, of, qp, &got))
		ksft_exit_fail_msg("no channel\n");
	return got;
}

static void test_given_back(void)
{
	struct tow_channel *again, *other, *first;
	struct told told = { 0 };
	bool good = true;

	make_queue();
	again = get(peer, 0);
	good = again == channel && tow_channel_put(again) == 0 && is_open(channel, 1) &&
	       kernel.closes == 0;
	ksft_test_result(good, "one that somebody has stays\n");
	good = tow_channel_put(channel) == 0 && count_open() == 0 && kernel.closes == 1;
	ksft_test_result(good && tow_channel_put(NULL) == 0, "and ends with the last one\n");
	for (int i = 0; good && i < ROUNDS; i++) {
		other = get(i % 3 ? peer : other_peer, (uint32_t)i % QPS);
		good = is_open(other, i % 3 ? 1 : 2) && tow_channel_put(other) == 0;
	}
	ksft_test_result(good && count_open() == 0, "more than there may be at once\n");
	channel = get(peer, 0);
	good = copy(1, TOW_TO_REMOTE, &told) == 0 && tow_channel_put(channel) == 0 &&
	       is_open(channel, 1);
	other = get(other_peer, 0);
	good = good && is_open(other, 2) && other->number != channel->number;
	again = get(peer, 0);
	ksft_test_result(good && again == channel && count_open() == 2,
			 "with an entry under way it is found again\n");
	tow_channel_put(again);
	complete(0, 0);
	good = tow_queue_progress(queue, 0) == 1 && was_told(&told, 0) && count_open() == 2;
	tow_channel_put(other);
	ksft_test_result(good && count_open() == 0, "or ends with what comes next\n");
	/* Its number is another's before the library knows that it is this one's. */
	first = get(peer, 0);
	kernel.meanwhile = first;
	channel = get(peer, 0);
	good = is_open(channel, 1) && count_open() == 1;
	first = get(other_peer, 1);
	kernel.meanwhile = channel;
	other = get(peer, TOW_CHANNEL_ANY);
	ksft_test_result(good && is_open(other, 1) && is_open(first, 2) &&
			 other->number != first->number,
			 "one that is closed while it is opened\n");
	end_queue();
}

/* As many as there may be, all with entries under way when they are put. */
static void test_room_again(void)
{
	struct told told[CHANNELS] = { { 0 } };
	struct tow_channel *got;
	bool good = true;

	make_queue();
	tow_channel_put(channel);
	for (uint32_t i = 0; i < CHANNELS; i++) {
		channel = get(i < QPS ? peer : other_peer, i % QPS);
		good = good && copy(i, TOW_TO_REMOTE, &told[i]) == 0 &&
		       tow_channel_put(channel) == 0;
	}
	good = good && tow_channel_get(queue, third_peer, 0, &got) == -ENOSPC;
	while (kernel.count)
		complete(0, 0);
	good = good && tow_queue_progress(queue, 0) == CHANNELS && count_open() == CHANNELS;
	got = get(third_peer, 0);
	ksft_test_result(good && is_open(got, 3) && count_open() == 1,
			 "those that nobody has are in nobody's way\n");
	end_queue();
}

/* Those that copies use beside the program's own are in its way no more than in a copy's. */
static void test_spare(void)
{
	struct tow_channel *mine[CHANNELS] = { NULL };
	struct told told[3] = { { 0 } };
	const uint64_t large = TOW_CUT_BYTES;
	bool good;

	make_queue();
	good = copy(large, TOW_TO_REMOTE, &told[0]) == 0 && kernel.count == QPS;
	mine[0] = channel;
	mine[1] = channel = get(other_peer, 0);
	good = good && copy(large, TOW_TO_REMOTE, &told[1]) == 0 && count_open() == CHANNELS &&
	       tow_channel_get(queue, third_peer, 0, &mine[2]) == -ENOSPC;
	while (kernel.count)
		complete(0, 0);
	good = good && tow_queue_progress(queue, 0) == 2;
	mine[2] = get(third_peer, 0);
	mine[3] = get(third_peer, 1);
	good = good && count_open() == CHANNELS;
	for (uint32_t i = 0; i < CHANNELS; i++)
		good = good && is_open(mine[i], i < 2 ? i + 1 : 3);
	ksft_test_result(good, "those beside make room for the program's own\n");
	good = copy(large, TOW_TO_REMOTE, &told[2]) == 0 && kernel.count == 1;
	complete(0, 0);
	ksft_test_result(good && tow_queue_progress(queue, 0) == 1 && was_told(&told[2], 0),
			 "and a copy does without\n");
	end_queue();
}

/* A module that does not know how is asked once. */
static void test_kept(void)
{
	struct tow_channel *again;
	bool good;

	kernel.old = true;
	make_queue();
	good = tow_channel_put(channel) == 0;
	again = get(peer, 0);
	good = good && again == channel && tow_channel_put(get(peer, 1)) == 0 &&
	       tow_channel_put(again) == 0;
	ksft_test_result(good && count_open() == 2 && kernel.closes == 1,
			 "an older module keeps them\n");
	end_queue();
	kernel.old = false;
}

/* What was not as it must be. */
static void *get_and_put(void *arg)
{
	const int *number = arg;
	struct tow_channel *got;
	bool good = true;

	for (int i = 0; good && i < 10 * ROUNDS; i++) {
		bool others = (i ^ *number) % 2;
		uint32_t qp = (uint32_t)(i + *number) / 2 % QPS;

		good = !tow_channel_get(queue, others ? other_peer : peer, qp, &got) &&
		       got->qp == qp && is_open(got, others ? 2 : 1) &&
		       !tow_channel_put(got);
	}
	return good ? NULL : arg;
}

static void test_threads(void)
{
	int numbers[THREADS], begun = 0;
	pthread_t threads[THREADS];
	bool good = true;
	void *failed;

	make_queue();
	tow_channel_put(channel);
	for (; begun < THREADS; begun++) {
		numbers[begun] = begun;
		if (pthread_create(&threads[begun], NULL, get_and_put, &numbers[begun]))
			ksft_exit_fail_perror("pthread_create");
	}
	while (begun--) {
		pthread_join(threads[begun], &failed);
		good = good && !failed;
	}
	ksft_test_result(good && count_open() == 0, "who has one has the one that he wanted\n");
	end_queue();
}

static void test_entry(void)
{
	const struct tow_sqe *sqe = &kernel.taken[0];
	struct told told = { 0 };
	bool good;

	make_queue();
	good = copy(40, TOW_TO_REMOTE, &told) == 0 && kernel.count == 1 &&
	       sqe->opcode == TOW_OP_WRITE && sqe->flags == 0 && sqe->channel == CHANNEL &&
	       sqe->region == REGION && sqe->offset == 40 && sqe->remote == REMOTE &&
	       sqe->remote_offset == 41 && sqe->bytes == 42;
	ksft_test_result(good && told.calls == 0, "a copy is an entry, handed over at once\n");
	ksft_test_result(tow_queue_progress(queue, 1) == 0 && told.calls == 0,
			 "nothing is told before it has ended\n");
	complete(0, -EIO);
	ksft_test_result(tow_queue_progress(queue, 0) == 1 && was_told(&told, -EIO) &&
			 tow_queue_progress(queue, 0) == 0 && was_told(&told, -EIO),
			 "and then once\n");
	good = copy(40, TOW_FROM_REMOTE, &told) == 0 && sqe->opcode == TOW_OP_READ;
	ksft_test_result(good, "the other way\n");
	end_queue();
}

static void test_room(void)
{
	struct told told[CQ_ENTRIES + 1] = { { 0 } };
	bool good = true;

	make_queue();
	for (uint32_t i = 0; i < CQ_ENTRIES; i++)
		good = good && copy(i, TOW_TO_REMOTE, &told[i]) == 0;
	ksft_test_result(good && copy(0, TOW_TO_REMOTE, &told[CQ_ENTRIES]) == -EBUSY,
			 "as many copies as completions\n");
	/* In another order than they began. */
	for (uint32_t i = CQ_ENTRIES; i > 0; i--)
		complete(i - 1, -(int)i);
	good = copy(0, TOW_TO_REMOTE, &told[CQ_ENTRIES]) == -EBUSY &&
	       tow_queue_progress(queue, 1) == CQ_ENTRIES;
	for (uint32_t i = 0; i < CQ_ENTRIES; i++)
		good = good && was_told(&told[i], -(int)(i + 1));
	ksft_test_result(good, "who ended in which order does not matter\n");
	ksft_test_result(copy(0, TOW_TO_REMOTE, &told[CQ_ENTRIES]) == 0 &&
			 told[CQ_ENTRIES].calls == 0, "there is room again\n");
	end_queue();
}

/* One that is cut: what it is made of, and how it ends. */
static void test_large(void)
{
	const struct tow_sqe *one = &kernel.taken[0], *other = &kernel.taken[1];
	struct told told[CQ_ENTRIES] = { { 0 } };
	const uint64_t large = TOW_CUT_BYTES + 4097;
	bool good;

	make_queue();
	good = copy(TOW_CUT_BYTES - 3, TOW_TO_REMOTE, &told[0]) == 0 && kernel.count == 1 &&
	       count_open() == 1;
	complete(0, 0);
	kernel.apart = true;
	good = good && tow_queue_progress(queue, 0) == 1 &&
	       copy(large, TOW_TO_REMOTE, &told[2]) == 0 && kernel.count == 1 &&
	       one->bytes == large + 2 && kernel.waits == 0;
	kernel.apart = false;
	complete(0, 0);
	ksft_test_result(good && tow_queue_progress(queue, 0) == 1 && was_told(&told[2], 0),
			 "one that would have to wait for other queue pairs has none\n");
	good = copy(large, TOW_TO_REMOTE, &told[1]) == 0 && kernel.count == QPS &&
	       one->opcode == TOW_OP_WRITE && other->opcode == TOW_OP_WRITE &&
	       one->channel == CHANNEL && other->channel == CHANNEL + 1 &&
	       one->offset == large && one->remote_offset == large + 1 &&
	       one->bytes == (large + 2) / QPS / 4096 * 4096 &&
	       other->offset == large + one->bytes &&
	       other->remote_offset == large + 1 + one->bytes &&
	       one->bytes + other->bytes == large + 2;
	ksft_test_result(good && told[1].calls == 0, "a large copy is an entry by each queue pair\n");
	complete(1, -EIO);
	good = tow_queue_progress(queue, 0) == 0 && told[1].calls == 0;
	complete(0, -ECONNRESET);
	ksft_test_result(good && tow_queue_progress(queue, 0) == 1 && was_told(&told[1], -EIO),
			 "and ends with the last of them, as the first that failed\n");
	memset(told, 0, sizeof(told));
	good = copy(large, TOW_TO_REMOTE, &told[0]) == 0;
	kernel.trickles = true;
	good = good && tow_queue_progress(queue, TOW_WAIT_FOREVER) == 1 && was_told(&told[0], 0);
	kernel.trickles = false;
	ksft_test_result(good, "who waits for a copy waits for all of its parts\n");
	/* All of it has room, or none has. */
	memset(told, 0, sizeof(told));
	good = true;
	for (uint32_t i = 0; i < CQ_ENTRIES - QPS + 1; i++)
		good = good && copy(i, TOW_FROM_REMOTE, &told[i]) == 0;
	good = good && copy(large, TOW_FROM_REMOTE, &told[CQ_ENTRIES - 1]) == -EBUSY &&
	       kernel.count == CQ_ENTRIES - QPS + 1 &&
	       copy(0, TOW_FROM_REMOTE, &told[CQ_ENTRIES - 1]) == 0;
	while (kernel.count)
		complete(0, 0);
	good = good && tow_queue_progress(queue, 0) == CQ_ENTRIES &&
	       was_told(&told[CQ_ENTRIES - 1], 0);
	ksft_test_result(good, "that is not begun in part\n");
	ksft_test_result(tow_channel_put(channel) == 0 && count_open() == 0,
			 "and the channels beside its own go with that\n");
	end_queue();
}

static int ends(void *arg)
{
	(void)arg;
	return 1;
}

static void test_refused(void)
{
	struct told refused = { 0 }, told = { 0 };
	bool good = true;

	make_queue();
	/* Often enough for each entry and each record. */
	for (uint32_t i = 0; i < 3 * CQ_ENTRIES; i++) {
		kernel.refuse = -ENODEV;
		good = good && copy(1, TOW_TO_REMOTE, &refused) == -ENODEV && kernel.count == 0 &&
		       queue->sq_tail == 0 && kernel.ring->sq_tail == 0;
	}
	ksft_test_result(good, "what the kernel refuses leaves the ring\n");
	good = copy(2, TOW_TO_REMOTE, &told) == 0 && kernel.count == 1 &&
	       kernel.taken[0].offset == 2;
	/* Waiting fails, and something has ended all the same. */
	kernel.refuse = -EINTR;
	kernel.completes = true;
	good = good && tow_queue_progress(queue, 1) == 1 && was_told(&told, 0);
	ksft_test_result(good && refused.calls == 0, "and is not told\n");
	tow_on_signal(ends, NULL);
	kernel.refuse = -EINTR;
	ksft_test_result(tow_queue_progress(queue, 1) == -EINTR, "a signal\n");
	tow_on_signal(NULL, NULL);
	end_queue();
}

/* A completion that is no copy's, as of a program that breaks the rule. */
static void test_foreign(void)
{
	struct told told = { 0 };
	struct tow_sqe *sqe;
	bool good;

	make_queue();
	good = copy(1, TOW_TO_REMOTE, &told) == 0;
	for (uint64_t data = 5; data < UINT64_MAX / 4; data *= 1000000) {
		sqe = tow_queue_get_sqe(queue);
		if (!sqe)
			ksft_exit_fail_msg("no entry\n");
		tow_prep_nop(sqe);
		tow_sqe_set_data(sqe, data);
		good = good && tow_queue_submit(queue) == 1;
		complete(1, 0);
	}
	complete(0, 0);
	ksft_test_result(good && tow_queue_progress(queue, 0) == 1 && was_told(&told, 0) &&
			 unseen() == 0, "what is no copy's is passed over\n");
	end_queue();
}

/* More copies than indices and records, some of them always in flight. */
static void test_many(void)
{
	static struct told told[ROUNDS];
	uint64_t ended = 0;
	bool good = true;

	make_queue();
	for (uint32_t i = 0; i < ROUNDS; i++) {
		good = good && copy(i, TOW_TO_REMOTE, &told[i]) == 0;
		if (kernel.count < CQ_ENTRIES - 1)
			continue;
		complete(i % kernel.count, 0);
		complete(i / 2 % kernel.count, 0);
		ended += (uint64_t)tow_queue_progress(queue, 0);
	}
	while (kernel.count)
		complete(0, 0);
	ended += (uint64_t)tow_queue_progress(queue, 0);
	for (uint32_t i = 0; i < ROUNDS; i++)
		good = good && was_told(&told[i], 0);
	ksft_test_result(good && ended == ROUNDS, "each of many is told once\n");
	end_queue();
}

static struct told chain;

static void again(void *arg, int status)
{
	tell(&chain, status);
	if (chain.calls < ROUNDS)
		tow_memcpy(arg, (struct tow_region *)&region_object, 0,
			   (struct tow_remote *)&remote_object, 0, 1, TOW_TO_REMOTE, again, arg);
}

static void test_again(void)
{
	bool good;

	make_queue();
	good = tow_memcpy(channel, (struct tow_region *)&region_object, 0,
			  (struct tow_remote *)&remote_object, 0, 1, TOW_TO_REMOTE, again,
			  channel) == 0;
	for (int i = 0; i < ROUNDS && good; i++) {
		complete(0, 0);
		good = tow_queue_progress(queue, 0) == 1;
	}
	ksft_test_result(good && chain.calls == ROUNDS && kernel.count == 0,
			 "a function that is called may copy\n");
	end_queue();
}

/* In a child the library must not even look at the rings: here they are unmapped. */
static bool has_no_part(void)
{
	struct told told = { 0 };
	const struct tow_cqe *cqe;
	bool good;

	munmap(kernel.ring, MAP_BYTES);
	kernel.closes = 0;
	good = tow_channel_put(channel) == -EPERM && kernel.closes == 0 &&
	       !tow_queue_get_sqe(queue) && tow_queue_submit(queue) == -EPERM &&
	       tow_queue_peek_cqe(queue, &cqe) == -EPERM &&
	       copy(1, TOW_TO_REMOTE, &told) == -EPERM &&
	       tow_queue_progress(queue, 0) == -EPERM && queue->sq_entries == 0;
	tow_queue_destroy(queue);
	return good && told.calls == 0;
}

static void test_child(void)
{
	struct told told = { 0 };
	int status = -1;
	pid_t child;
	bool good;

	make_queue();
	/* As the kernel has it. */
	if (madvise(queue->ring, MAP_BYTES, MADV_DONTFORK))
		ksft_exit_fail_perror("madvise");
	good = copy(1, TOW_TO_REMOTE, &told) == 0;
	child = fork();
	if (!child)
		_exit(has_no_part() ? 0 : 1);
	good = good && waitpid(child, &status, 0) == child && status == 0;
	complete(0, 0);
	ksft_test_result(good && tow_queue_progress(queue, 0) == 1 && was_told(&told, 0),
			 "a child has no part in it, and harms nobody\n");
	end_queue();
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(2 + 6 + 1 + 2 + 1 + 1 + 4 + 3 + 6 + 3 + 1 + 1 + 1 + 1);
	if (tow_peer_connect(&device, "192.0.2.1", NULL, 0, &peer) ||
	    tow_peer_connect(&device, "192.0.2.2", NULL, 0, &other_peer) ||
	    tow_peer_connect(&device, "192.0.2.3", NULL, 0, &third_peer))
		ksft_exit_fail_msg("no peer\n");
	test_channels();
	test_given_back();
	test_room_again();
	test_spare();
	test_kept();
	test_threads();
	test_entry();
	test_room();
	test_large();
	test_refused();
	test_foreign();
	test_many();
	test_again();
	test_child();
	tow_peer_release(third_peer);
	tow_peer_release(other_peer);
	tow_peer_release(peer);
	ksft_finished();
}
