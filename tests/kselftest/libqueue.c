// SPDX-License-Identifier: GPL-2.0
/*
 * libtowline's queues against the real module, with the node as its own peer: each
 * function, what its errors are, rings that wrap around, threads, children, and
 * copies both ways with every byte looked at.  (queue_ops.c and its neighbours are
 * about what the kernel does with entries.)
 */
/* build: link -ltowline */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>

#include <towline/queue.h>

#include "tow_libpeer.h"
#include "tow_rdma.h"

#define MIB		((size_t)1 << 20)
#define HERE		(1 * MIB)
#define THERE		(1 * MIB)
#define ENTRIES		16U
#define NAME		"libqueue"
#define SOON_US		20000U
#define LATE_US		30000000U
#define ALL_RIGHTS	(TOW_RIGHT_READ | TOW_RIGHT_WRITE)
#define ROUNDS		2000
#define PIECES		400
#define QUEUES		300
/* For those that do much, on a kernel that checks much. */
#define LONG_SECONDS	120
#define THREADS		4

/* ---- memory on both sides ---- */

FIXTURE(queue)
{
	struct tow_device *dev;
	struct tow_peer *peer;
	/* What this side has, and what it finds at its peer: itself. */
	struct tow_region *region;
	struct tow_region *target;
	unsigned char *here;
	unsigned char *there;
	struct tow_exported *exported;
	struct tow_remote *remote;
	uint32_t rights;
	struct tow_queue *queue;
	struct tow_channel *channel;
};

static int map_whole(struct tow_region *region, unsigned char **addr)
{
	void *mapped = NULL;
	int ret = tow_region_map(region, 0, 0, PROT_READ | PROT_WRITE, &mapped);

	*addr = mapped;
	return ret;
}

static uint32_t rights_of(const struct tow_device *dev)
{
	struct tow_device_attr attr = { .size = sizeof(attr) };

	if (tow_device_query(dev, &attr))
		return 0;
	return attr.features & TOW_FEATURE_ATOMICS ? ALL_RIGHTS | TOW_RIGHT_ATOMIC : ALL_RIGHTS;
}

FIXTURE_SETUP(queue)
{
	ASSERT_EQ(0, tow_set_file("pool_bytes", TOW_PEER_POOL));
	ASSERT_EQ(0, tow_set_file("allow_unauthenticated", "1"));
	ASSERT_EQ(0, tow_device_open(tow_test_device(), 0, &self->dev));
	ASSERT_EQ(0, tow_peer_connect(self->dev, tow_own_address(), NULL, TOW_PEER_WAIT_MS,
				      &self->peer));
	ASSERT_EQ(0, tow_region_create(self->dev, HERE, NULL, &self->region));
	ASSERT_EQ(0, tow_region_create(self->dev, THERE, NULL, &self->target));
	ASSERT_EQ(0, map_whole(self->region, &self->here));
	ASSERT_EQ(0, map_whole(self->target, &self->there));
	self->rights = rights_of(self->dev);
	ASSERT_EQ(0, tow_export(self->target, 0, THERE, NAME, self->rights, &self->exported));
	ASSERT_EQ(0, tow_resolve(self->peer, NAME, self->rights, 0, &self->remote));
	ASSERT_EQ(0, tow_queue_create(self->dev, ENTRIES, 0, &self->queue));
	ASSERT_EQ(0, tow_channel_get(self->queue, self->peer, 0, &self->channel));
}

FIXTURE_TEARDOWN(queue)
{
	tow_queue_destroy(self->queue);
	tow_remote_release(self->remote);
	tow_unexport(self->exported);
	tow_region_destroy(self->target);
	tow_region_destroy(self->region);
	tow_peer_release(self->peer);
	tow_device_close(self->dev);
}

/* Numbers that look random, and are the same each time. */
static uint64_t next_number(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void fill(unsigned char *bytes, size_t count, uint64_t seed)
{
	uint64_t state = seed * 0x9e3779b97f4a7c15ULL + 1;

	for (size_t i = 0; i < count; i++)
		bytes[i] = (unsigned char)(next_number(&state) >> 32);
}

/* A region ends where its last slab does. */
static uint64_t end_of(const struct tow_region *region)
{
	struct tow_region_info info = { .size = sizeof(info) };

	return tow_region_info(region, &info) ? 0 : info.map_bytes;
}

static uint64_t number_at(const unsigned char *bytes)
{
	uint64_t number;

	memcpy(&number, bytes, sizeof(number));
	return number;
}

/* The next entry: there always is one where this is asked. */
static struct tow_sqe *next_entry(struct tow_queue *queue)
{
	struct tow_sqe *sqe = tow_queue_get_sqe(queue);

	if (!sqe)
		abort();
	return sqe;
}

/* The next completion, which is @data's: what it says; -EBADMSG: it is another's. */
static int wait_for(struct tow_queue *queue, uint64_t data)
{
	const struct tow_cqe *cqe = NULL;
	int ret = tow_queue_wait_cqe(queue, &cqe, LATE_US);

	if (!cqe)
		return ret;
	ret = cqe->user_data == data ? cqe->status : -EBADMSG;
	tow_queue_cqe_seen(queue);
	return ret;
}

/* Hand over what was prepared last, as @data, and wait for it. */
static int finish(struct tow_queue *queue, struct tow_sqe *sqe, uint64_t data)
{
	int ret;

	tow_sqe_set_data(sqe, data);
	ret = tow_queue_submit(queue);
	return ret < 0 ? ret : wait_for(queue, data);
}

/* ---- making one ---- */

TEST_F(queue, numbers_of_entries)
{
	static const struct {
		uint32_t sq, cq;
	} bad[] = {
		{ 0, 0 }, { 0, 8 }, { TOW_SQ_ENTRIES_MAX + 1, 0 }, { 8, 4 },
		{ 8, TOW_CQ_ENTRIES_MAX + 1 }, { UINT32_MAX, UINT32_MAX },
	}, good[] = {
		{ 1, 0 }, { 3, 0 }, { 3, 5 }, { 4, 4 }, { 100, 1000 },
	};
	struct tow_queue *queue = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		EXPECT_EQ(-EINVAL, tow_queue_create(self->dev, bad[i].sq, bad[i].cq, &queue)) {
			TH_LOG("%u, %u", bad[i].sq, bad[i].cq);
		}
	}
	EXPECT_EQ(NULL, queue);
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		ASSERT_EQ(0, tow_queue_create(self->dev, good[i].sq, good[i].cq, &queue));
		EXPECT_LE(good[i].sq, queue->sq_entries);
		EXPECT_GT(2 * good[i].sq, queue->sq_entries);
		EXPECT_EQ(0, queue->sq_entries & (queue->sq_entries - 1));
		EXPECT_EQ(0, queue->cq_entries & (queue->cq_entries - 1));
		EXPECT_LE(good[i].cq ? good[i].cq : 2 * queue->sq_entries, queue->cq_entries);
		EXPECT_GT(good[i].cq ? 2 * good[i].cq : 3 * queue->sq_entries, queue->cq_entries);
		tow_queue_destroy(queue);
		queue = NULL;
	}
}

/* More than the limits: what a queue has goes back with it. */
TEST_F_TIMEOUT(queue, many_come_and_go, LONG_SECONDS)
{
	long long queues = tow_get_count("stats/queues");
	struct tow_queue *queue;

	ASSERT_LT(0, queues);
	for (int i = 0; i < QUEUES; i++) {
		ASSERT_EQ(0, tow_queue_create(self->dev, 512, 0, &queue));
		tow_queue_destroy(queue);
	}
	EXPECT_EQ(queues, tow_wait_count("stats/queues", queues));
}

TEST_F(queue, the_limit_of_a_client)
{
	struct tow_queue *queue = NULL;
	char limit[32], text[32];

	tow_get_file("client_queue_entries_limit", limit, sizeof(limit));
	/* What the fixture's has, and not one more. */
	snprintf(text, sizeof(text), "%u", 2 * ENTRIES);
	ASSERT_EQ(0, tow_set_file("client_queue_entries_limit", text));
	EXPECT_EQ(-EDQUOT, tow_queue_create(self->dev, 1, 1, &queue));
	EXPECT_EQ(NULL, queue);
	EXPECT_EQ(0, tow_set_file("client_queue_entries_limit", limit));
	ASSERT_EQ(0, tow_queue_create(self->dev, 1, 1, &queue));
	tow_queue_destroy(queue);
}

/* ---- channels ---- */

TEST_F(queue, channels)
{
	struct tow_channel *same = NULL, *any[2] = { NULL };
	uint32_t qps = self->channel->qps;

	EXPECT_EQ(self->queue, self->channel->queue);
	EXPECT_EQ(0, self->channel->qp);
	ASSERT_LE(1, qps);
	ASSERT_EQ(0, tow_channel_get(self->queue, self->peer, 0, &same));
	EXPECT_EQ(self->channel, same);
	same = NULL;
	EXPECT_EQ(-EINVAL, tow_channel_get(self->queue, self->peer, qps, &same));
	EXPECT_EQ(NULL, same);
	/* One after the other, and then the first again. */
	ASSERT_EQ(0, tow_channel_get(self->queue, self->peer, TOW_CHANNEL_ANY, &any[0]));
	for (uint32_t i = 0; i < qps; i++)
		ASSERT_EQ(0, tow_channel_get(self->queue, self->peer, TOW_CHANNEL_ANY, &any[1]));
	EXPECT_EQ(any[0], any[1]);
}

/* What comes of an entry that names it, whoever has it. */
static int write_by(FIXTURE_DATA(queue) *self, const struct tow_channel *channel, uint64_t data)
{
	struct tow_sqe *sqe = next_entry(self->queue);

	tow_prep_write(sqe, channel, self->region, 0, self->remote, 0, 8);
	return finish(self->queue, sqe, data);
}

TEST_F_TIMEOUT(queue, channels_given_back, LONG_SECONDS)
{
	struct pollfd fd = { .fd = tow_queue_fd(self->queue), .events = POLLPRI };
	struct tow_channel gone = *self->channel, *channel;
	struct tow_sqe *sqe;

	EXPECT_EQ(0, tow_channel_put(NULL));
	ASSERT_EQ(0, tow_channel_get(self->queue, self->peer, 0, &channel));
	EXPECT_EQ(0, tow_channel_put(channel));
	EXPECT_EQ(0, write_by(self, self->channel, 1));
	EXPECT_EQ(0, tow_channel_put(self->channel));
	EXPECT_EQ(-EBADF, write_by(self, &gone, 2));
	for (int i = 0; i < ROUNDS; i++) {
		ASSERT_EQ(0, tow_channel_get(self->queue, self->peer, TOW_CHANNEL_ANY, &channel));
		ASSERT_EQ(0, write_by(self, channel, 3));
		ASSERT_EQ(0, tow_channel_put(channel));
	}
	/* With an entry under way: that is carried out, and the next call ends the channel. */
	ASSERT_EQ(0, tow_channel_get(self->queue, self->peer, 0, &channel));
	fill(self->here, HERE, 12);
	sqe = next_entry(self->queue);
	tow_prep_write(sqe, channel, self->region, 0, self->remote, 0, HERE);
	tow_sqe_set_data(sqe, 4);
	ASSERT_EQ(1, tow_queue_submit(self->queue));
	gone = *channel;
	EXPECT_EQ(0, tow_channel_put(channel));
	EXPECT_EQ(0, wait_for(self->queue, 4));
	EXPECT_EQ(0, memcmp(self->here, self->there, HERE));
	ASSERT_EQ(0, tow_channel_get(self->queue, self->peer, 1, &channel));
	EXPECT_EQ(channel->number == gone.number ? 0 : -EBADF, write_by(self, &gone, 5));
	EXPECT_EQ(0, tow_channel_put(channel));
	EXPECT_EQ(-EBADF, write_by(self, &gone, 6));
	/* Without a channel to it the peer's end is no news. */
	ASSERT_EQ(0, tow_peer_disconnect(self->peer));
	self->peer = NULL;
	EXPECT_EQ(0, poll(&fd, 1, 0));
}

TEST_F(queue, a_channel_of_another_device_is_refused)
{
	struct tow_channel *channel = NULL;
	struct tow_device *dev;
	struct tow_peer *peer;

	ASSERT_EQ(0, tow_device_open(tow_test_device(), 0, &dev));
	ASSERT_EQ(0, tow_peer_connect(dev, tow_own_address(), NULL, TOW_PEER_WAIT_MS, &peer));
	EXPECT_EQ(-EINVAL, tow_channel_get(self->queue, peer, 0, &channel));
	EXPECT_EQ(NULL, channel);
	tow_peer_release(peer);
	tow_device_close(dev);
}

/* ---- the rings ---- */

TEST_F(queue, nothing_to_wait_for)
{
	const struct tow_cqe *cqe = NULL;
	double start = tow_test_now();

	EXPECT_EQ(-EAGAIN, tow_queue_peek_cqe(self->queue, &cqe));
	EXPECT_EQ(NULL, cqe);
	EXPECT_EQ(-ETIMEDOUT, tow_queue_wait_cqe(self->queue, &cqe, SOON_US));
	EXPECT_EQ(NULL, cqe);
	EXPECT_LE(SOON_US / 1e6, tow_test_now() - start);
	TOW_WITHIN(start, TOW_PEER_SETTLE_SECONDS * 1e3);
	EXPECT_EQ(0, tow_queue_submit(self->queue));
	EXPECT_EQ(0, tow_queue_progress(self->queue, 0));
	EXPECT_EQ(0, tow_queue_progress(self->queue, SOON_US));
	EXPECT_EQ(-EINVAL, tow_queue_submit_and_wait(self->queue, self->queue->cq_entries + 1));
}

static void nothing(int signal)
{
	(void)signal;
}

static int ends(void *arg)
{
	++*(int *)arg;
	return 1;
}

TEST_F(queue, a_wait_goes_on_after_signals)
{
	struct itimerval soon = { .it_value.tv_usec = 20000, .it_interval.tv_usec = 20000 };
	struct itimerval never = { 0 };
	struct sigaction action = { .sa_handler = nothing };
	const struct tow_cqe *cqe = NULL;
	double begin = tow_clock_begin();

	ASSERT_EQ(0, sigaction(SIGALRM, &action, NULL));
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &soon, NULL));
	EXPECT_EQ(-ETIMEDOUT, tow_queue_wait_cqe(self->queue, &cqe, 300000));
	EXPECT_GE(tow_clock_begin() - begin, 0.3);
	EXPECT_EQ(0, tow_queue_progress(self->queue, 300000));
	EXPECT_GE(tow_clock_begin() - begin, 0.6);
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &never, NULL));
}

TEST_F(queue, a_signal_ends_the_wait)
{
	/* Again and again: one before the call waits is for nothing. */
	struct itimerval soon = { .it_value.tv_usec = 200000, .it_interval.tv_usec = 200000 };
	struct itimerval never = { 0 };
	struct sigaction action = { .sa_handler = nothing };
	const struct tow_cqe *cqe = NULL;
	int asked = 0;

	tow_on_signal(ends, &asked);
	ASSERT_EQ(0, sigaction(SIGALRM, &action, NULL));
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &soon, NULL));
	EXPECT_EQ(-EINTR, tow_queue_wait_cqe(self->queue, &cqe, TOW_WAIT_FOREVER));
	EXPECT_EQ(-EINTR, tow_queue_progress(self->queue, TOW_WAIT_FOREVER));
	EXPECT_EQ(-EINTR, tow_queue_submit_and_wait(self->queue, 1));
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &never, NULL));
	EXPECT_EQ(3, asked);
	tow_on_signal(NULL, NULL);
}

/* Take every entry there is: how many. */
static uint32_t take_nops(struct tow_queue *queue, uint64_t data)
{
	struct tow_sqe *sqe;
	uint32_t count = 0;

	while ((sqe = tow_queue_get_sqe(queue))) {
		tow_prep_nop(sqe);
		tow_sqe_set_data(sqe, data + count);
		count++;
	}
	return count;
}

TEST_F_TIMEOUT(queue, rings_wrap_around, LONG_SECONDS)
{
	struct tow_queue *queue = self->queue;
	const struct tow_cqe *cqe;
	uint64_t data = 0;

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t sum = 0, want = 0;
		uint32_t index, seen = 0;

		ASSERT_EQ(ENTRIES, take_nops(queue, data));
		ASSERT_EQ(ENTRIES, (uint32_t)tow_queue_submit_and_wait(queue, ENTRIES));
		tow_queue_for_each_cqe(queue, index, cqe) {
			ASSERT_EQ(0, cqe->status);
			sum += cqe->user_data - data;
			seen++;
		}
		ASSERT_EQ(ENTRIES, seen);
		for (uint32_t j = 0; j < ENTRIES; j++)
			want += j;
		ASSERT_EQ(want, sum);
		tow_queue_advance(queue, seen);
		data += ENTRIES;
	}
	EXPECT_EQ(ROUNDS * ENTRIES, queue->sq_tail);
	EXPECT_EQ(ROUNDS * ENTRIES, queue->cq_head);
	EXPECT_EQ(-EAGAIN, tow_queue_peek_cqe(queue, &cqe));
}

TEST_F(queue, a_full_queue)
{
	const struct tow_cqe *cqe;
	struct tow_queue *queue;

	ASSERT_EQ(0, tow_queue_create(self->dev, 4, 4, &queue));
	ASSERT_EQ(4, take_nops(queue, 0));
	ASSERT_EQ(4, tow_queue_submit(queue));
	/* All have completed, and nobody has dealt with that. */
	ASSERT_EQ(4, take_nops(queue, 4));
	EXPECT_EQ(-EBUSY, tow_queue_submit(queue));
	EXPECT_EQ(NULL, tow_queue_get_sqe(queue));
	for (uint64_t i = 0; i < 3; i++)
		EXPECT_EQ(0, wait_for(queue, i));
	/* Room for three: the fourth stays, and goes later. */
	EXPECT_EQ(3, tow_queue_submit(queue));
	for (uint64_t i = 3; i < 7; i++)
		EXPECT_EQ(0, wait_for(queue, i));
	EXPECT_EQ(-EAGAIN, tow_queue_peek_cqe(queue, &cqe));
	EXPECT_EQ(1, tow_queue_submit_and_wait(queue, 1));
	EXPECT_EQ(0, wait_for(queue, 7));
	tow_queue_destroy(queue);
}

TEST_F(queue, the_descriptor_can_be_polled)
{
	struct pollfd fd = { .fd = tow_queue_fd(self->queue), .events = POLLIN };
	struct tow_sqe *sqe;

	ASSERT_LE(0, fd.fd);
	EXPECT_EQ(0, poll(&fd, 1, 0));
	sqe = next_entry(self->queue);
	tow_prep_write(sqe, self->channel, self->region, 0, self->remote, 0, HERE);
	tow_sqe_set_data(sqe, 1);
	ASSERT_EQ(1, tow_queue_submit(self->queue));
	ASSERT_EQ(1, poll(&fd, 1, (int)(LATE_US / 1000)));
	EXPECT_EQ(POLLIN, fd.revents);
	EXPECT_EQ(0, wait_for(self->queue, 1));
	EXPECT_EQ(0, poll(&fd, 1, 0));
}

TEST_F(queue, the_peer_is_lost)
{
	struct pollfd fd = { .fd = tow_queue_fd(self->queue), .events = POLLPRI };
	struct tow_queue_event event = { .size = sizeof(event), .flags = ~0U };

	EXPECT_EQ(0, tow_queue_event(self->queue, &event));
	EXPECT_EQ(0, event.peer);
	event.size--;
	EXPECT_EQ(-EINVAL, tow_queue_event(self->queue, &event));
	event.size++;
	ASSERT_EQ(0, tow_peer_disconnect(self->peer));
	self->peer = NULL;
	ASSERT_EQ(1, poll(&fd, 1, (int)(LATE_US / 1000)));
	EXPECT_EQ(POLLPRI, fd.revents);
	ASSERT_EQ(1, tow_queue_event(self->queue, &event));
	EXPECT_NE(0, event.peer);
	EXPECT_EQ(TOW_QUEUE_EVENT_LOST, event.what);
	EXPECT_EQ(0, tow_queue_event(self->queue, &event));
	EXPECT_EQ(0, poll(&fd, 1, 0));
}

/* ---- what entries do ---- */

TEST_F(queue, write_and_read)
{
	static const size_t sizes[] = { 0, 1, 7, 8, 4093, 4096, 65537, 300007 };
	unsigned char *want = malloc(THERE);
	struct tow_sqe *sqe;

	ASSERT_NE(NULL, want);
	fill(self->there, THERE, 1);
	memcpy(want, self->there, THERE);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		size_t from = 31 * i, to = 4093 * i + 1;

		fill(self->here, HERE, i + 2);
		memcpy(want + to, self->here + from, sizes[i]);
		sqe = next_entry(self->queue);
		tow_prep_write(sqe, self->channel, self->region, from, self->remote, to, sizes[i]);
		ASSERT_EQ(0, finish(self->queue, sqe, i));
		ASSERT_EQ(0, memcmp(want, self->there, THERE));
	}
	fill(self->here, HERE, 1);
	memcpy(want, self->here, HERE);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		size_t to = 31 * i, from = 4093 * i + 1;

		memcpy(want + to, self->there + from, sizes[i]);
		sqe = next_entry(self->queue);
		tow_prep_read(sqe, self->channel, self->region, to, self->remote, from, sizes[i]);
		ASSERT_EQ(0, finish(self->queue, sqe, i));
		ASSERT_EQ(0, memcmp(want, self->here, HERE));
	}
	free(want);
}

TEST_F(queue, atomics)
{
	const uint64_t start = 0xfffffffffffffff0ULL;
	struct tow_sqe *sqe;

	if (!(self->rights & TOW_RIGHT_ATOMIC)) {
		sqe = next_entry(self->queue);
		tow_prep_fetch_add(sqe, self->channel, self->region, 0, self->remote, 0, 1);
		EXPECT_EQ(-EOPNOTSUPP, finish(self->queue, sqe, 1));
		return;
	}
	memcpy(self->there + 64, &start, sizeof(start));
	sqe = next_entry(self->queue);
	tow_prep_fetch_add(sqe, self->channel, self->region, 8, self->remote, 64, 0x20);
	ASSERT_EQ(0, finish(self->queue, sqe, 1));
	EXPECT_EQ(start, number_at(self->here + 8));
	EXPECT_EQ(0x10, number_at(self->there + 64));

	/* Not what it is thought to be: it stays. */
	sqe = next_entry(self->queue);
	tow_prep_compare_swap(sqe, self->channel, self->region, 8, self->remote, 64, 0x11, 5);
	ASSERT_EQ(0, finish(self->queue, sqe, 2));
	EXPECT_EQ(0x10, number_at(self->here + 8));
	EXPECT_EQ(0x10, number_at(self->there + 64));
	sqe = next_entry(self->queue);
	tow_prep_compare_swap(sqe, self->channel, self->region, 16, self->remote, 64, 0x10, 5);
	ASSERT_EQ(0, finish(self->queue, sqe, 3));
	EXPECT_EQ(0x10, number_at(self->here + 16));
	EXPECT_EQ(5, number_at(self->there + 64));
}

/* One of each: the numbers come through the library as they are. */
TEST_F(queue, what_completions_tell)
{
	struct tow_channel wrong = *self->channel;
	struct tow_remote *writable;
	struct tow_sqe *sqe;

	wrong.number = TOW_CHANNELS_MAX - 1;
	sqe = next_entry(self->queue);
	tow_prep_write(sqe, &wrong, self->region, 0, self->remote, 0, 1);
	EXPECT_EQ(-EBADF, finish(self->queue, sqe, 1));
	sqe = next_entry(self->queue);
	tow_prep_write(sqe, self->channel, self->region, end_of(self->region) - 1,
		       self->remote, 0, 2);
	EXPECT_EQ(-ERANGE, finish(self->queue, sqe, 2));
	sqe = next_entry(self->queue);
	tow_prep_write(sqe, self->channel, self->region, 0, self->remote, THERE, 1);
	EXPECT_EQ(-ERANGE, finish(self->queue, sqe, 3));
	ASSERT_EQ(0, tow_resolve(self->peer, NAME, TOW_RIGHT_WRITE, 0, &writable));
	sqe = next_entry(self->queue);
	tow_prep_read(sqe, self->channel, self->region, 0, writable, 0, 1);
	EXPECT_EQ(-EACCES, finish(self->queue, sqe, 4));
	EXPECT_EQ(0, tow_remote_release(writable));
	sqe = next_entry(self->queue);
	tow_prep_nop(sqe);
	tow_sqe_set_flags(sqe, 1 << 7);
	EXPECT_EQ(-EINVAL, finish(self->queue, sqe, 5));
}

TEST_F(queue, flags_reach_the_kernel)
{
	const struct tow_cqe *cqe;
	struct tow_sqe *sqe;

	fill(self->here, HERE, 3);
	fill(self->there, THERE, 4);
	/* What was written is read back: each begins when the one before has ended. */
	sqe = next_entry(self->queue);
	tow_prep_write(sqe, self->channel, self->region, 0, self->remote, 100, 50000);
	tow_sqe_set_data(sqe, 1);
	tow_sqe_set_flags(sqe, TOW_SQE_LINK | TOW_SQE_SILENT);
	sqe = next_entry(self->queue);
	tow_prep_read(sqe, self->channel, self->region, 500000, self->remote, 100, 50000);
	tow_sqe_set_data(sqe, 2);
	ASSERT_EQ(2, tow_queue_submit(self->queue));
	EXPECT_EQ(0, wait_for(self->queue, 2));
	EXPECT_EQ(0, memcmp(self->here, self->here + 500000, 50000));
	EXPECT_EQ(-EAGAIN, tow_queue_peek_cqe(self->queue, &cqe));

	/* The first fails, and is silent only if it does not. */
	sqe = next_entry(self->queue);
	tow_prep_write(sqe, self->channel, self->region, 0, self->remote, THERE, 1);
	tow_sqe_set_data(sqe, 3);
	tow_sqe_set_flags(sqe, TOW_SQE_SILENT);
	EXPECT_EQ(-ERANGE, finish(self->queue, sqe, 3));
}

/* ---- threads ---- */

#define MANY 20000U

struct two {
	struct tow_queue *queue;
	uint32_t submitted;
	int error;
};

static void *submit_many(void *arg)
{
	struct two *two = arg;
	uint64_t data = 0;
	struct tow_sqe *sqe;
	int ret;

	while (data < MANY && !two->error) {
		sqe = tow_queue_get_sqe(two->queue);
		if (sqe) {
			tow_prep_nop(sqe);
			tow_sqe_set_data(sqe, data++);
			if (data % 5 && data < MANY)
				continue;
		}
		ret = tow_queue_submit(two->queue);
		if (ret < 0 && ret != -EBUSY)
			two->error = ret;
	}
	while (!two->error && two->queue->sq_tail !=
	       tow_load_acquire(&two->queue->ring->sq_head)) {
		ret = tow_queue_submit(two->queue);
		if (ret < 0 && ret != -EBUSY)
			two->error = ret;
	}
	return NULL;
}

TEST_F_TIMEOUT(queue, one_submits_and_one_waits, LONG_SECONDS)
{
	struct two two = { .queue = self->queue };
	unsigned char *seen = calloc(1, MANY);
	const struct tow_cqe *cqe;
	pthread_t thread;

	ASSERT_NE(NULL, seen);
	ASSERT_EQ(0, pthread_create(&thread, NULL, submit_many, &two));
	for (uint32_t i = 0; i < MANY; i++) {
		ASSERT_EQ(0, tow_queue_wait_cqe(self->queue, &cqe, LATE_US));
		ASSERT_GT(MANY, cqe->user_data);
		ASSERT_EQ(0, seen[cqe->user_data]++);
		tow_queue_cqe_seen(self->queue);
	}
	ASSERT_EQ(0, pthread_join(thread, NULL));
	EXPECT_EQ(0, two.error);
	EXPECT_EQ(-EAGAIN, tow_queue_peek_cqe(self->queue, &cqe));
	free(seen);
}

/* ---- copies ---- */

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

/* Until @told has been called, or too late. */
static int progress_until(struct tow_queue *queue, const struct told *told)
{
	struct tow_patience patience = tow_patience(TOW_PEER_SETTLE_SECONDS);
	int ret = 0;

	while (!told->calls && ret >= 0 && tow_patient(&patience))
		ret = tow_queue_progress(queue, SOON_US);
	return ret < 0 ? ret : told->calls ? told->status : -ETIMEDOUT;
}

TEST_F_TIMEOUT(queue, copies_both_ways, LONG_SECONDS)
{
	uint64_t state = 7;
	unsigned char *want[2] = { malloc(THERE), malloc(HERE) };

	ASSERT_NE(NULL, want[0]);
	ASSERT_NE(NULL, want[1]);
	fill(self->here, HERE, 5);
	fill(self->there, THERE, 6);
	memcpy(want[0], self->there, THERE);
	memcpy(want[1], self->here, HERE);
	for (int i = 0; i < PIECES; i++) {
		size_t bytes = next_number(&state) % (100 << 10);
		size_t offset = next_number(&state) % (HERE - bytes);
		size_t remote_offset = next_number(&state) % (THERE - bytes);
		bool there = i % 2;
		struct told told = { 0 };

		ASSERT_EQ(0, tow_memcpy(self->channel, self->region, offset, self->remote,
					remote_offset, bytes,
					there ? TOW_TO_REMOTE : TOW_FROM_REMOTE, tell, &told));
		if (there)
			memcpy(want[0] + remote_offset, want[1] + offset, bytes);
		else
			memcpy(want[1] + offset, want[0] + remote_offset, bytes);
		ASSERT_EQ(0, progress_until(self->queue, &told));
		ASSERT_EQ(1, told.calls);
		if (i % 20 == 19) {
			ASSERT_EQ(0, memcmp(want[0], self->there, THERE));
			ASSERT_EQ(0, memcmp(want[1], self->here, HERE));
		}
	}
	free(want[0]);
	free(want[1]);
}

/* Those that are cut, to places that are not aligned; the bytes around them stay. */
TEST_F_TIMEOUT(queue, large_copies, LONG_SECONDS)
{
	const size_t bytes = TOW_CUT_BYTES + 4097, room = bytes + 8192;
	struct tow_region *large, *target;
	unsigned char *here, *there, *want;
	struct tow_exported *exported;
	struct tow_remote *remote;
	struct told late = { 0 };

	ASSERT_EQ(0, tow_region_create(self->dev, room, NULL, &large));
	ASSERT_EQ(0, tow_region_create(self->dev, room, NULL, &target));
	ASSERT_EQ(0, map_whole(large, &here));
	ASSERT_EQ(0, map_whole(target, &there));
	ASSERT_EQ(0, tow_export(target, 0, room, "large", ALL_RIGHTS, &exported));
	ASSERT_EQ(0, tow_resolve(self->peer, "large", ALL_RIGHTS, 0, &remote));
	want = malloc(room);
	ASSERT_NE(NULL, want);
	for (uint64_t i = 0; i < 4; i++) {
		bool reads = i % 2;
		struct told told = { 0 };

		fill(here, room, 2 * i);
		fill(there, room, 2 * i + 1);
		memcpy(want, reads ? here : there, room);
		memcpy(want + (reads ? 4096 : 1), reads ? there + 1 : here + 4096, bytes);
		ASSERT_EQ(0, tow_memcpy(self->channel, large, 4096, remote, 1, bytes,
					reads ? TOW_FROM_REMOTE : TOW_TO_REMOTE, tell, &told));
		ASSERT_EQ(0, progress_until(self->queue, &told));
		EXPECT_EQ(1, told.calls);
		EXPECT_EQ(0, memcmp(want, reads ? here : there, room));
	}
	free(want);
	/* Only the last part of one is behind the end. */
	ASSERT_EQ(0, tow_memcpy(self->channel, large, 0, remote, room - bytes + 1, bytes,
				TOW_TO_REMOTE, tell, &late));
	EXPECT_EQ(-ERANGE, progress_until(self->queue, &late));
	EXPECT_EQ(1, late.calls);
	EXPECT_EQ(0, tow_remote_release(remote));
	EXPECT_EQ(0, tow_unexport(exported));
	EXPECT_EQ(0, tow_region_destroy(target));
	EXPECT_EQ(0, tow_region_destroy(large));
}

TEST_F(queue, copies_fail_and_say_why)
{
	struct told told = { 0 };

	ASSERT_EQ(0, tow_memcpy(self->channel, self->region, end_of(self->region), self->remote, 0,
				1, TOW_TO_REMOTE, tell, &told));
	EXPECT_EQ(-ERANGE, progress_until(self->queue, &told));
	EXPECT_EQ(1, told.calls);
	told.calls = 0;
	ASSERT_EQ(0, tow_unexport(self->exported));
	self->exported = NULL;
	ASSERT_EQ(0, tow_memcpy(self->channel, self->region, 0, self->remote, 0, 1,
				TOW_TO_REMOTE, tell, &told));
	EXPECT_EQ(-ESTALE, progress_until(self->queue, &told));
	EXPECT_EQ(1, told.calls);
}

TEST_F(queue, as_many_copies_as_there_is_room_for)
{
	struct told told[2 * ENTRIES] = { { 0 } };
	struct told one_more = { 0 };
	uint32_t called = 0;

	for (uint32_t i = 0; i < 2 * ENTRIES; i++)
		ASSERT_EQ(0, tow_memcpy(self->channel, self->region, i, self->remote, i, 1,
					TOW_TO_REMOTE, tell, &told[i]));
	/* They have ended by now, perhaps, and nobody was told. */
	EXPECT_EQ(-EBUSY, tow_memcpy(self->channel, self->region, 0, self->remote, 0, 1,
				     TOW_TO_REMOTE, tell, &one_more));
	while (called < 2 * ENTRIES) {
		int ret = tow_queue_progress(self->queue, LATE_US);

		ASSERT_LT(0, ret);
		called += (uint32_t)ret;
	}
	for (uint32_t i = 0; i < 2 * ENTRIES; i++) {
		EXPECT_EQ(1, told[i].calls);
		EXPECT_EQ(0, told[i].status);
	}
	EXPECT_EQ(0, one_more.calls);
	ASSERT_EQ(0, tow_memcpy(self->channel, self->region, 0, self->remote, 0, 1, TOW_TO_REMOTE,
				tell, &one_more));
	EXPECT_EQ(0, progress_until(self->queue, &one_more));
}

/* Each copy begins the next one when it has ended. */
struct relay {
	struct tow_channel *channel;
	struct tow_region *region;
	struct tow_remote *remote;
	uint32_t left;
	int error;
};

static void hand_on(void *arg, int status)
{
	struct relay *relay = arg;

	if (!status && --relay->left)
		status = tow_memcpy(relay->channel, relay->region, relay->left, relay->remote,
				    relay->left, 9, TOW_TO_REMOTE, hand_on, relay);
	if (status)
		relay->error = status;
}

TEST_F_TIMEOUT(queue, a_copy_begins_another, LONG_SECONDS)
{
	struct relay relay = {
		.channel = self->channel, .region = self->region, .remote = self->remote,
		.left = ROUNDS,
	};

	ASSERT_EQ(0, tow_memcpy(relay.channel, relay.region, 0, relay.remote, 0, 9,
				TOW_TO_REMOTE, hand_on, &relay));
	while (relay.left && !relay.error)
		ASSERT_LE(0, tow_queue_progress(self->queue, LATE_US));
	EXPECT_EQ(0, relay.error);
	EXPECT_EQ(0, relay.left);
}

/* Threads that copy, and one that does nothing but call their functions. */
struct work {
	struct tow_channel *channel;
	struct tow_region *region;
	struct tow_remote *remote;
	int next;
	int ended;
	int failures;
	int stop;
};

static void count_ended(void *arg, int status)
{
	struct work *work = arg;

	if (status)
		__atomic_add_fetch(&work->failures, 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(&work->ended, 1, __ATOMIC_RELEASE);
}

static void *copy_many(void *arg)
{
	struct work *work = arg;
	size_t part = HERE / THREADS;
	size_t place = part * (size_t)__atomic_fetch_add(&work->next, 1, __ATOMIC_RELAXED);
	int ret, begun = 0;

	while (begun < PIECES) {
		size_t offset = place + (size_t)begun * part / PIECES;
		size_t end = place + (size_t)(begun + 1) * part / PIECES;

		ret = tow_memcpy(work->channel, work->region, offset, work->remote, offset,
				 end - offset, TOW_TO_REMOTE, count_ended, work);
		if (ret == -EBUSY) {
			sched_yield();
			continue;
		}
		if (ret)
			__atomic_add_fetch(&work->failures, 1, __ATOMIC_RELAXED);
		begun++;
	}
	return NULL;
}

static void *call_functions(void *arg)
{
	struct work *work = arg;

	while (!__atomic_load_n(&work->stop, __ATOMIC_ACQUIRE))
		if (tow_queue_progress(work->channel->queue, SOON_US) < 0)
			__atomic_add_fetch(&work->failures, 1, __ATOMIC_RELAXED);
	return NULL;
}

TEST_F_TIMEOUT(queue, threads_that_copy, LONG_SECONDS)
{
	struct work work = {
		.channel = self->channel, .region = self->region, .remote = self->remote,
	};
	pthread_t threads[THREADS], caller;
	struct tow_patience patience;

	fill(self->here, HERE, 8);
	fill(self->there, THERE, 9);
	ASSERT_EQ(0, pthread_create(&caller, NULL, call_functions, &work));
	for (int i = 0; i < THREADS; i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, copy_many, &work));
	for (int i = 0; i < THREADS; i++)
		ASSERT_EQ(0, pthread_join(threads[i], NULL));
	patience = tow_patience(TOW_PEER_SETTLE_SECONDS);
	while (__atomic_load_n(&work.ended, __ATOMIC_ACQUIRE) < THREADS * PIECES &&
	       tow_patient(&patience))
		tow_test_sleep_ms(1);
	__atomic_store_n(&work.stop, 1, __ATOMIC_RELEASE);
	ASSERT_EQ(0, pthread_join(caller, NULL));
	EXPECT_EQ(THREADS * PIECES, work.ended);
	EXPECT_EQ(0, work.failures);
	EXPECT_EQ(0, memcmp(self->here, self->there, HERE));
}

/* ---- the end of a queue ---- */

TEST_F(queue, destroyed_with_copies_under_way)
{
	long long queues = tow_get_count("stats/queues");
	struct tow_channel *channel;
	struct tow_queue *queue;
	struct told told = { 0 };

	/* Half of them end before the others fit in: those are twice what may be posted. */
	for (int i = 0; i < 20; i++) {
		ASSERT_EQ(0, tow_queue_create(self->dev, ENTRIES, 0, &queue));
		ASSERT_EQ(0, tow_channel_get(queue, self->peer, TOW_CHANNEL_ANY, &channel));
		for (uint32_t j = 0; j < 2 * ENTRIES; j++)
			ASSERT_EQ(0, tow_memcpy(channel, self->region, 0, self->remote, 0,
						HERE / 4, TOW_TO_REMOTE, tell, &told));
		tow_queue_destroy(queue);
	}
	EXPECT_EQ(queues, tow_wait_count("stats/queues", queues));
	EXPECT_EQ(0, told.calls);
}

/* What a child gets of its parent's queue: which of the answers is not -EPERM? */
struct family {
	struct tow_queue *queue;
	struct tow_channel *channel;
	struct tow_peer *peer;
	struct tow_region *region;
	struct tow_remote *remote;
};

static int use_as_child(void *arg)
{
	struct tow_queue_event event = { .size = sizeof(event) };
	struct family *family = arg;
	const struct tow_name name = {
		.peer = family->peer, .name = NAME, .rights = TOW_RIGHT_READ,
	};
	const struct tow_cqe *cqe = NULL;
	struct tow_channel *channel;
	struct told told = { 0 };

	if (tow_queue_get_sqe(family->queue))
		return -1;
	if (tow_queue_submit(family->queue) != -EPERM)
		return -2;
	if (tow_queue_submit_and_wait(family->queue, 1) != -EPERM)
		return -3;
	if (tow_queue_peek_cqe(family->queue, &cqe) != -EPERM || cqe)
		return -4;
	if (tow_queue_wait_cqe(family->queue, &cqe, 0) != -EPERM || cqe)
		return -5;
	if (tow_queue_enter(family->queue, 1, 0, 0) != -EPERM)
		return -6;
	if (tow_queue_event(family->queue, &event) != -EPERM)
		return -10;
	if (tow_channel_get(family->queue, family->peer, 0, &channel) != -EPERM)
		return -7;
	if (tow_channel_put(family->channel) != -EPERM)
		return -11;
	if (tow_memcpy(family->channel, family->region, 0, family->remote, 0, 1, TOW_TO_REMOTE,
		       tell, &told) != -EPERM)
		return -8;
	if (tow_queue_progress(family->queue, TOW_WAIT_FOREVER) != -EPERM)
		return -9;
	if (tow_queue_resolve(family->queue, &name, 1) != -EPERM)
		return -12;
	tow_queue_destroy(family->queue);
	return -EPERM;
}

TEST_F(queue, a_child_has_no_part_in_it)
{
	struct family family = {
		.queue = self->queue, .channel = self->channel, .peer = self->peer,
		.region = self->region, .remote = self->remote,
	};
	struct tow_sqe *sqe;

	/* In flight, prepared, and completed while the child tries. */
	sqe = next_entry(self->queue);
	tow_prep_nop(sqe);
	tow_sqe_set_data(sqe, 1);
	ASSERT_EQ(1, tow_queue_submit(self->queue));
	sqe = next_entry(self->queue);
	tow_prep_write(sqe, self->channel, self->region, 0, self->remote, 0, 4096);
	fill(self->here, HERE, 10);
	EXPECT_EQ(-EPERM, tow_as(TOW_ROOT, use_as_child, &family));
	EXPECT_EQ(0, wait_for(self->queue, 1));
	EXPECT_EQ(0, finish(self->queue, sqe, 2));
	EXPECT_EQ(0, memcmp(self->here, self->there, 4096));
}

static int make_results(struct tow_device *dev, struct tow_queue **queue)
{
	const struct tow_queue_attr attr = { .size = sizeof(attr), .flags = TOW_QUEUE_RESULTS };

	return tow_queue_create_with(dev, 1, 8, &attr, queue);
}

TEST_F(queue, names_without_waiting)
{
	struct tow_name names[] = {
		{ .user_data = 0, .peer = self->peer, .name = NAME, .rights = self->rights },
		{ .user_data = 1, .peer = self->peer, .name = "nothing", .rights = TOW_RIGHT_READ },
	};
	struct tow_remote *remote = NULL, *again = NULL;
	const struct tow_cqe *cqe;
	struct tow_queue *queue;

	EXPECT_EQ(-EINVAL, tow_queue_resolve(self->queue, names, 2));
	ASSERT_EQ(0, make_results(self->dev, &queue));
	EXPECT_EQ(-EINVAL, tow_queue_resolve(NULL, names, 2));
	EXPECT_EQ(-EINVAL, tow_queue_resolve(queue, NULL, 2));
	EXPECT_EQ(-EINVAL, tow_queue_resolve(queue, names, 0));
	names[1].flags = 1;
	EXPECT_EQ(-EINVAL, tow_queue_resolve(queue, names, 2));
	names[1].flags = 0;
	names[1].reserved = 1;
	EXPECT_EQ(-EINVAL, tow_queue_resolve(queue, names, 2));
	names[1].reserved = 0;
	ASSERT_EQ(2, tow_queue_resolve(queue, names, 2));
	for (int i = 0; i < 2; i++) {
		ASSERT_EQ(0, tow_queue_wait_cqe(queue, &cqe, LATE_US));
		if (cqe->user_data) {
			EXPECT_EQ(-ENOENT, tow_queue_found(queue, cqe, &again));
		} else {
			ASSERT_EQ(0, tow_queue_found(queue, cqe, &remote));
			EXPECT_EQ(THERE, tow_remote_bytes(remote));
			/* Once. */
			EXPECT_EQ(-EINVAL, tow_queue_found(queue, cqe, &again));
		}
		tow_queue_cqe_seen(queue);
	}
	EXPECT_EQ(0, tow_remote_release(remote));
	/* Another entry's completion has found nothing. */
	tow_prep_nop(next_entry(queue));
	ASSERT_EQ(1, tow_queue_submit(queue));
	ASSERT_EQ(0, tow_queue_wait_cqe(queue, &cqe, LATE_US));
	EXPECT_EQ(0, cqe->status);
	EXPECT_EQ(-EINVAL, tow_queue_found(queue, cqe, &again));
	tow_queue_cqe_seen(queue);
	/* What was taken over stays, though its completion was not dealt with. */
	ASSERT_EQ(1, tow_queue_resolve(queue, names, 1));
	ASSERT_EQ(0, tow_queue_wait_cqe(queue, &cqe, LATE_US));
	ASSERT_EQ(0, tow_queue_found(queue, cqe, &remote));
	tow_queue_destroy(queue);
	EXPECT_EQ(0, tow_remote_release(remote));
	EXPECT_EQ(NULL, again);
}

TEST_F(queue, nodes_without_waiting)
{
	struct tow_node nodes[] = {
		{ .user_data = 0, .address = tow_own_address() },
		{ .user_data = 1, .address = tow_own_address() },
		{ .user_data = 2, .address = "this is none" },
	};
	struct tow_peer_info info = { .size = sizeof(info) }, own = info;
	struct tow_remote *remote = NULL;
	struct tow_peer *peer = NULL;
	const struct tow_cqe *cqe;
	struct tow_queue *queue;

	EXPECT_EQ(-EINVAL, tow_queue_connect(self->queue, nodes, 1));
	ASSERT_EQ(0, make_results(self->dev, &queue));
	EXPECT_EQ(-EINVAL, tow_queue_connect(NULL, nodes, 1));
	EXPECT_EQ(-EINVAL, tow_queue_connect(queue, NULL, 1));
	EXPECT_EQ(-EINVAL, tow_queue_connect(queue, nodes, 0));
	EXPECT_GT(0, tow_queue_connect(queue, &nodes[2], 1));
	nodes[2] = (struct tow_node) { .address = NULL };
	EXPECT_EQ(-EINVAL, tow_queue_connect(queue, &nodes[2], 1));
	nodes[2] = (struct tow_node) { .address = tow_own_address(), .reserved = 1 };
	/* Those before it begin. */
	ASSERT_EQ(2, tow_queue_connect(queue, nodes, 3));
	ASSERT_EQ(0, tow_peer_info(self->peer, &own));
	for (int i = 0; i < 2; i++) {
		ASSERT_EQ(0, tow_queue_wait_cqe(queue, &cqe, LATE_US));
		EXPECT_EQ(-EINVAL, tow_queue_found(queue, cqe, &remote));
		ASSERT_EQ(0, tow_queue_connected(queue, cqe, &peer));
		ASSERT_EQ(0, tow_peer_info(peer, &info));
		EXPECT_EQ(own.peer, info.peer);
		tow_peer_release(peer);
		tow_queue_cqe_seen(queue);
	}
	tow_queue_destroy(queue);
	EXPECT_EQ(NULL, remote);
}

TEST_F(queue, a_device_that_goes_away)
{
	const struct tow_name name = {
		.peer = self->peer, .name = "nothing", .rights = TOW_RIGHT_READ,
		.timeout_ms = TOW_WAIT_FOREVER,
	};
	struct tow_patience patience = tow_patience(TOW_PEER_SETTLE_SECONDS);
	struct tow_queue *names = NULL;
	struct pollfd fd = { .fd = tow_queue_fd(self->queue), .events = POLLIN };
	struct tow_channel *channel = NULL;
	const struct tow_cqe *cqe = NULL;
	struct tow_queue *queue = NULL;
	struct told told = { 0 };

	ASSERT_EQ(0, make_results(self->dev, &names));
	ASSERT_EQ(1, tow_queue_resolve(names, &name, 1));
	ASSERT_EQ(0, tow_rdma_link_del("rxe0"));
	/* A name that is waited for has its completion all the same. */
	while (tow_queue_wait_cqe(names, &cqe, LATE_US) == -ENODEV && tow_patient(&patience))
		tow_test_sleep_ms(1);
	ASSERT_NE(NULL, cqe);
	EXPECT_EQ(-ENODEV, cqe->status);
	tow_queue_cqe_seen(names);
	EXPECT_EQ(-ENODEV, tow_queue_resolve(names, &name, 1));
	tow_queue_destroy(names);
	cqe = NULL;
	EXPECT_EQ(-ENODEV, tow_queue_create(self->dev, 1, 0, &queue));
	EXPECT_EQ(NULL, queue);
	EXPECT_EQ(-ENODEV, tow_channel_get(self->queue, self->peer, 0, &channel));
	EXPECT_EQ(NULL, channel);
	EXPECT_EQ(-ENODEV, tow_queue_wait_cqe(self->queue, &cqe, LATE_US));
	EXPECT_EQ(-ENODEV, tow_queue_progress(self->queue, LATE_US));
	EXPECT_EQ(-ENODEV, tow_memcpy(self->channel, self->region, 0, self->remote, 0, 1,
				      TOW_TO_REMOTE, tell, &told));
	EXPECT_EQ(0, told.calls);
	ASSERT_NE(NULL, tow_queue_get_sqe(self->queue));
	EXPECT_EQ(-ENODEV, tow_queue_submit(self->queue));
	EXPECT_EQ(1, poll(&fd, 1, (int)(LATE_US / 1000)));
	EXPECT_EQ(POLLERR | POLLHUP, fd.revents);
	EXPECT_EQ(0, tow_channel_put(self->channel));
	ASSERT_EQ(0, tow_rdma_link_add("rxe0", "rxe", "eth0"));
}

TEST_HARNESS_MAIN
