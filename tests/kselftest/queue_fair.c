// SPDX-License-Identifier: GPL-2.0
/*
 * Two clients on one queue pair: one of them floods it with writes, as deep as his
 * queue is; the other one's write of 8 bytes waits for what is on its way
 * (inflight_bytes), not for all that waits.
 *
 * Measured by the flood itself: how long it takes to move inflight_bytes, on this
 * machine, while the other one disturbs it.  With inflight_bytes as large as the
 * flood is deep the same measure is far beyond the bound: so it can be seen.
 *
 * A flood by all four queue pairs has so much on its way on each of them.
 */
#include <pthread.h>
#include "tow_queue.h"

#define POOL_BYTES	(6 * TOW_SLAB)
#define FLOOD_BYTES	(2 * TOW_SLAB)
#define SAMPLES		15
#define INFLIGHT	(512 * TOW_KB)
#define QPS		4U

/* What waits in the flood's queue: so many times inflight_bytes. */
#define DEPTH		16

/*
 * In units of the time that inflight_bytes take.  Ahead of the small one: what is on
 * its way, a turn of the flood's, and the scheduling of four processes on two
 * processors; without turns it would be DEPTH.
 */
#define BOUND		4.0

/*
 * A processor that is away while the unit is measured spoils it: one of so many
 * measurements has to keep the bound, or to break it where it must be seen to fail.
 */
#define TRIES		5

FIXTURE(fair)
{
	struct tow_knobs before;
	struct tow_user flood;
	__u16 channels[QPS];		/* of the flood, as many as it uses */
	unsigned int queue_pairs;
	struct tow_mapped from, to;
	__u64 flooded;
	struct tow_user small;
	struct tow_mapped word;
	__u64 remote;
	bool stop;
	int error;
	uint64_t moved;			/* bytes, by the flood */
	size_t piece;
	pthread_t thread;
};

FIXTURE_SETUP(fair)
{
	__u64 exported;

	tow_knobs_save(&self->before);
	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_user_make(&self->flood, 1024, 0));
	ASSERT_EQ(0, tow_mapped_make(self->flood.fd, FLOOD_BYTES, &self->from));
	ASSERT_EQ(0, tow_mapped_make(self->flood.fd, FLOOD_BYTES, &self->to));
	ASSERT_EQ(0, tow_publish_for(self->flood.fd, self->to.made.handle, "flooded", FLOOD_BYTES,
				     TOW_RIGHT_WRITE, &exported));
	ASSERT_EQ(0, tow_find_for(self->flood.fd, self->flood.peer, "flooded", TOW_RIGHT_WRITE,
				  &self->flooded));
	/* The same queue pair: the first one. */
	ASSERT_EQ(0, tow_user_make(&self->small, 4, 0));
	ASSERT_EQ(0, tow_mapped_make(self->small.fd, 64, &self->word));
	ASSERT_EQ(0, tow_publish_for(self->small.fd, self->word.made.handle, "word", 64,
				     TOW_RIGHT_WRITE, &exported));
	ASSERT_EQ(0, tow_find_for(self->small.fd, self->small.peer, "word", TOW_RIGHT_WRITE,
				  &self->remote));
	self->queue_pairs = 1;
	self->stop = false;
	self->error = 0;
	self->moved = 0;
}

FIXTURE_TEARDOWN_PARENT(fair)
{
	EXPECT_EQ(0, tow_knobs_restore(&self->before));
}

/* ---- the flood ------------------------------------------------------------------------- */

/* The queue is never less than DEPTH times inflight_bytes deep. */
static void *flood(void *arg)
{
	FIXTURE_DATA(fair) *self = arg;
	struct tow_rings *rings = &self->flood.rings;
	const uint64_t depth = DEPTH * INFLIGHT / self->piece;
	uint64_t submitted = 0, ended = 0;
	struct tow_cqe cqe;
	int ret;

	while (!self->error && (ended < submitted || !self->stop)) {
		bool stop = __atomic_load_n(&self->stop, __ATOMIC_RELAXED);

		for (; !stop && submitted - ended < depth; submitted++) {
			struct tow_sqe sqe = tow_move(&self->flood, TOW_OP_WRITE,
						      self->from.made.handle,
						      submitted % 2 * (FLOOD_BYTES - self->piece),
						      self->flooded,
						      submitted % 2 * (FLOOD_BYTES - self->piece),
						      self->piece);

			sqe.channel = self->channels[submitted % self->queue_pairs];
			if (!tow_rings_put(rings, &sqe))
				break;
		}
		/* Wakes up for every one, so that what is moved is known well. */
		ret = tow_rings_enter(rings, 1, TOW_LONG_US);
		if (ret < 0)
			self->error = ret;
		for (; tow_rings_take(rings, &cqe); ended++)
			if (cqe.status)
				self->error = cqe.status;
		__atomic_store_n(&self->moved, ended * self->piece, __ATOMIC_RELAXED);
	}
	return NULL;
}

static int flood_start(FIXTURE_DATA(fair) *self, size_t piece)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	struct tow_channel_open channel;
	unsigned int i;
	int ret;

	for (i = 0; i < self->queue_pairs; i++) {
		ret = tow_channel_open(self->flood.rings.made.fd, self->flood.peer, i, &channel);
		if (ret)
			return ret;
		self->channels[i] = (__u16)channel.channel;
	}
	self->piece = piece;
	if (pthread_create(&self->thread, NULL, flood, self))
		return -EAGAIN;
	/* Until it has moved all that can wait at once. */
	while (__atomic_load_n(&self->moved, __ATOMIC_RELAXED) < DEPTH * INFLIGHT &&
	       tow_patient(&patience))
		tow_test_sleep_ms(1);
	return __atomic_load_n(&self->moved, __ATOMIC_RELAXED) < DEPTH * INFLIGHT ? -ETIMEDOUT : 0;
}

static void flood_stop(struct __test_metadata *_metadata, FIXTURE_DATA(fair) *self)
{
	__atomic_store_n(&self->stop, true, __ATOMIC_RELAXED);
	ASSERT_EQ(0, pthread_join(self->thread, NULL));
	EXPECT_EQ(0, self->error);
}

/* ---- the small one ------------------------------------------------------------------------ */

static int compare(const void *a, const void *b)
{
	double one = *(const double *)a, other = *(const double *)b;

	return one < other ? -1 : one > other;
}

/*
 * How long its writes take beside the flood, half of them at most: in units of the time
 * in which the flood moves INFLIGHT bytes meanwhile.  Below 0: it failed.
 */
static double measure(FIXTURE_DATA(fair) *self, int samples)
{
	struct tow_sqe sqe = tow_move(&self->small, TOW_OP_WRITE, self->word.made.handle, 0,
				      self->remote, 8, 8);
	uint64_t before = __atomic_load_n(&self->moved, __ATOMIC_RELAXED), moved;
	double took[SAMPLES], begin = tow_test_now(), start, unit;
	int i;

	for (i = 0; i < samples; i++) {
		self->word.words[0] = (uint64_t)i + 1;
		start = tow_test_now();
		if (tow_rings_do(&self->small.rings, &sqe))
			return -1;
		took[i] = tow_test_now() - start;
		if (self->word.words[1] != (uint64_t)i + 1)
			return -2;
		tow_test_sleep_ms(2);
	}
	moved = __atomic_load_n(&self->moved, __ATOMIC_RELAXED) - before;
	unit = (tow_test_now() - begin) * (double)INFLIGHT / (double)(moved ? moved : 1);
	qsort(took, (size_t)samples, sizeof(took[0]), compare);
	return took[samples / 2] / unit;
}

FIXTURE_VARIANT(fair)
{
	size_t piece;
	unsigned int queue_pairs;
};

FIXTURE_VARIANT_ADD(fair, flood_64_KiB) { .piece = 64 * TOW_KB, .queue_pairs = 1 };
FIXTURE_VARIANT_ADD(fair, flood_256_KiB) { .piece = 256 * TOW_KB, .queue_pairs = 1 };
FIXTURE_VARIANT_ADD(fair, flood_2_MiB) { .piece = 2 * TOW_MB, .queue_pairs = 1 };
FIXTURE_VARIANT_ADD(fair, flood_2_MiB_by_all) { .piece = 2 * TOW_MB, .queue_pairs = QPS };

TEST_F_TIMEOUT(fair, small_beside_flood, 120)
{
	unsigned int tries = 0;
	double waited;

	ASSERT_EQ(0, tow_sysfs_set("inflight_bytes", INFLIGHT));
	self->queue_pairs = variant->queue_pairs;
	ASSERT_EQ(0, flood_start(self, variant->piece));
	do {
		waited = measure(self, SAMPLES);
		TH_LOG("waited for %.2f times inflight_bytes", waited);
	} while (waited >= BOUND * variant->queue_pairs && ++tries < TRIES);
	flood_stop(_metadata, self);
	EXPECT_LE(0, waited);
	EXPECT_GT(BOUND * variant->queue_pairs, waited);
}

/* With all of the flood on its way there is no turn to be had: the bound can fail. */
TEST_F_TIMEOUT(fair, the_bound_is_seen_to_fail, 120)
{
	unsigned int tries = 0;
	double waited;

	if (variant->piece != 256 * TOW_KB)
		return;
	ASSERT_EQ(0, tow_sysfs_set("inflight_bytes", DEPTH * INFLIGHT));
	ASSERT_EQ(0, flood_start(self, variant->piece));
	do {
		waited = measure(self, 5);
		TH_LOG("waited for %.2f times as much", waited);
	} while (waited >= 0 && waited <= BOUND && ++tries < TRIES);
	flood_stop(_metadata, self);
	EXPECT_LT(BOUND, waited);
}

/* ---- a client with several queues --------------------------------------------------------- */

#define QUEUES		6
#define IN_FLIGHT	48U
#define MEASURED_MS	1500

/* A queue that always has something to send. */
struct sender {
	struct tow_rings rings;
	struct tow_sqe sqe;
	const bool *stop;
	uint64_t moved;			/* operations */
	int error;
	pthread_t thread;
};

static void *send_always(void *arg)
{
	struct sender *sender = arg;
	unsigned int under_way = 0;
	struct tow_cqe cqe;
	int ret;

	while (!sender->error) {
		bool stop = __atomic_load_n(sender->stop, __ATOMIC_RELAXED);

		while (!stop && under_way < IN_FLIGHT && tow_rings_put(&sender->rings,
								       &sender->sqe))
			under_way++;
		if (!under_way)
			break;
		ret = tow_rings_enter(&sender->rings, 1, TOW_LONG_US);
		if (ret < 0)
			sender->error = ret;
		for (; tow_rings_take(&sender->rings, &cqe); under_way--) {
			if (cqe.status)
				sender->error = cqe.status;
			__atomic_fetch_add(&sender->moved, 1, __ATOMIC_RELAXED);
		}
	}
	return NULL;
}

static int sender_start(struct sender *sender, const struct tow_user *user, struct tow_sqe sqe,
			const bool *stop)
{
	struct tow_channel_open channel;
	int ret;

	*sender = (struct sender){ .sqe = sqe, .stop = stop };
	ret = tow_rings_make(user->fd, 64, 0, &sender->rings);
	if (!ret)
		ret = tow_channel_open(sender->rings.made.fd, user->peer, 0, &channel);
	if (ret)
		return ret;
	sender->sqe.channel = (__u16)channel.channel;
	return -pthread_create(&sender->thread, NULL, send_always, sender);
}

/* One client sends by several queues, the other one by one: each has the same of the queue pair. */
TEST_F_TIMEOUT(fair, clients_not_queues, 120)
{
	struct sender senders[QUEUES + 1];
	uint64_t before[2] = { 0 }, moved[2] = { 0 };
	struct tow_mapped wide;
	__u64 exported, remote;
	double ratio = 0;
	int i, tries;

	if (variant->piece != 64 * TOW_KB)
		return;
	ASSERT_EQ(0, tow_sysfs_set("inflight_bytes", INFLIGHT));
	ASSERT_EQ(0, tow_mapped_make(self->small.fd, 2 * variant->piece, &wide));
	ASSERT_EQ(0, tow_publish_for(self->small.fd, wide.made.handle, "wide", 2 * variant->piece,
				     TOW_RIGHT_WRITE, &exported));
	ASSERT_EQ(0, tow_find_for(self->small.fd, self->small.peer, "wide", TOW_RIGHT_WRITE,
				  &remote));
	for (i = 0; i < QUEUES; i++)
		ASSERT_EQ(0, sender_start(&senders[i], &self->flood,
					  tow_move(&self->flood, TOW_OP_WRITE,
						   self->from.made.handle, 0, self->flooded, 0,
						   variant->piece), &self->stop));
	ASSERT_EQ(0, sender_start(&senders[QUEUES], &self->small,
				  tow_move(&self->small, TOW_OP_WRITE, wide.made.handle, 0, remote,
					   variant->piece, variant->piece), &self->stop));
	/* A processor that is away spoils it: one of so many times tells. */
	for (tries = 0; tries <= TRIES && (!tries || ratio > 2 || ratio < 0.5); tries++) {
		tow_test_sleep_ms(MEASURED_MS);
		moved[0] = 0;
		for (i = 0; i < QUEUES; i++)
			moved[0] += __atomic_load_n(&senders[i].moved, __ATOMIC_RELAXED);
		moved[1] = __atomic_load_n(&senders[QUEUES].moved, __ATOMIC_RELAXED);
		/* The first time only warms up. */
		if (tries)
			ratio = (double)(moved[0] - before[0]) / (double)(moved[1] - before[1] + 1);
		memcpy(before, moved, sizeof(before));
	}
	__atomic_store_n(&self->stop, true, __ATOMIC_RELAXED);
	for (i = 0; i <= QUEUES; i++) {
		ASSERT_EQ(0, pthread_join(senders[i].thread, NULL));
		EXPECT_EQ(0, senders[i].error);
		tow_rings_end(&senders[i].rings);
	}
	EXPECT_GE(2.0, ratio)
		TH_LOG("%.2f as much", ratio);
	EXPECT_LE(0.5, ratio);
	TH_LOG("%d queues moved %.2f times as much as one", QUEUES, ratio);
}

TEST_HARNESS_MAIN
