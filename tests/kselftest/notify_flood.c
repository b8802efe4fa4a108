// SPDX-License-Identifier: GPL-2.0
/*
 * More notifications than a connection lets travel at a time: as nobody has to take
 * them, all of them arrive; and while one client sends as many as it can, others that
 * use the same queue pair are not held up, neither their notifications nor their
 * writes.
 */
#include <pthread.h>
#include "tow_notify.h"

#define POOL_BYTES	(6 * TOW_SLAB)
#define ENTRIES		2048U
#define BYTES		(64 * TOW_KB)
#define USUAL		10000
#define USUAL_SLOW	2000
#define SAMPLES		40
/* In units of the time in which the flood sends as much as may be on its way. */
#define BOUND		8.0
/* A processor that is away spoils a measurement: one of so many has to keep the bound. */
#define TRIES		5

FIXTURE(flood)
{
	struct tow_ends flood;
	struct tow_ends small;
	pthread_t thread;
	bool stop;
	int error;
	__u64 sent;			/* that have completed */
};

FIXTURE_SETUP(flood)
{
	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_ends_make_named(&self->flood, "flood", "flood data", ENTRIES, BYTES));
	ASSERT_EQ(0, tow_ends_make_named(&self->small, "small", "small data", 8, BYTES));
	self->stop = false;
	self->error = 0;
	self->sent = 0;
}

FIXTURE_TEARDOWN(flood)
{
	EXPECT_EQ(0, tow_ends_notify(&self->small));
	tow_ends_end(&self->flood);
	tow_ends_end(&self->small);
}

static int usual_count(void)
{
	return tow_test_count(tow_test_slow() ? USUAL_SLOW : USUAL);
}

/* Nobody looks at the number, or waits for it, until all are there. */
TEST_F_TIMEOUT(flood, nobody_takes_them, 120)
{
	struct tow_rings *rings = &self->flood.from.rings;
	struct tow_sqe sqe = tow_notify(&self->flood.from, self->flood.found);
	__u64 count = (__u64)usual_count(), put = 0, ended = 0;
	struct tow_cqe cqe;

	while (ended < count) {
		while (put < count && tow_rings_put(rings, &sqe))
			put++;
		ASSERT_LE(0, tow_rings_enter(rings, 1, TOW_LONG_US));
		for (; tow_rings_take(rings, &cqe); ended++)
			ASSERT_EQ(0, cqe.status);
	}
	EXPECT_EQ(count, tow_slot_await(tow_ends_word(&self->flood), count));
	tow_test_sleep_ms(20);
	EXPECT_EQ(count, tow_ends_number(&self->flood));
}

/* ---- beside it --------------------------------------------------------------------- */

static void *flood_on(void *arg)
{
	FIXTURE_DATA(flood) *self = arg;
	struct tow_rings *rings = &self->flood.from.rings;
	struct tow_sqe sqe = tow_notify(&self->flood.from, self->flood.found);
	__u64 put = 0, ended = 0;
	struct tow_cqe cqe;
	int ret;

	while (!self->error && (ended < put || !self->stop)) {
		while (!__atomic_load_n(&self->stop, __ATOMIC_RELAXED) && put - ended < ENTRIES &&
		       tow_rings_put(rings, &sqe))
			put++;
		ret = tow_rings_enter(rings, 1, TOW_LONG_US);
		if (ret < 0)
			self->error = ret;
		for (; tow_rings_take(rings, &cqe); ended++)
			if (cqe.status)
				self->error = cqe.status;
		__atomic_store_n(&self->sent, ended, __ATOMIC_RELAXED);
	}
	return NULL;
}

static int compare(const void *a, const void *b)
{
	double one = *(const double *)a, other = *(const double *)b;

	return one < other ? -1 : one > other;
}

/*
 * How long an entry of the small one takes beside the flood, half of them at most, in
 * units of what a window of the flood takes meanwhile.  Below 0: it failed.
 */
static double measure(FIXTURE_DATA(flood) *self, const struct tow_sqe *sqe)
{
	double took[SAMPLES], begin = tow_test_now(), start, unit;
	__u64 before = __atomic_load_n(&self->sent, __ATOMIC_RELAXED), sent;
	int i;

	for (i = 0; i < SAMPLES; i++) {
		start = tow_test_now();
		if (tow_rings_do(&self->small.from.rings, sqe))
			return -1;
		took[i] = tow_test_now() - start;
		tow_test_sleep_ms(2);
	}
	sent = __atomic_load_n(&self->sent, __ATOMIC_RELAXED) - before;
	unit = (tow_test_now() - begin) * TOW_NOTIFY_WINDOW / (double)(sent ? sent : 1);
	qsort(took, SAMPLES, sizeof(took[0]), compare);
	return took[SAMPLES / 2] / unit;
}

static void start_flood(struct __test_metadata *_metadata, FIXTURE_DATA(flood) *self)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);

	ASSERT_EQ(0, pthread_create(&self->thread, NULL, flood_on, self));
	while (__atomic_load_n(&self->sent, __ATOMIC_RELAXED) < 4ULL * TOW_NOTIFY_WINDOW &&
	       tow_patient(&patience))
		tow_test_sleep_ms(1);
	ASSERT_LE(4ULL * TOW_NOTIFY_WINDOW, __atomic_load_n(&self->sent, __ATOMIC_RELAXED));
}

static void stop_flood(struct __test_metadata *_metadata, FIXTURE_DATA(flood) *self)
{
	__atomic_store_n(&self->stop, true, __ATOMIC_RELAXED);
	ASSERT_EQ(0, pthread_join(self->thread, NULL));
	EXPECT_EQ(0, self->error);
	EXPECT_EQ(self->sent, tow_slot_await(tow_ends_word(&self->flood), self->sent));
}

TEST_F_TIMEOUT(flood, a_notification_beside_it, 120)
{
	struct tow_sqe sqe = tow_notify(&self->small.from, self->small.found);
	unsigned int tries = 0;
	double waited;

	start_flood(_metadata, self);
	do {
		waited = measure(self, &sqe);
		TH_LOG("a notification waited for %.2f windows", waited);
		tries++;
		EXPECT_EQ((__u64)tries * SAMPLES,
			  tow_slot_await(tow_ends_word(&self->small), (__u64)tries * SAMPLES));
	} while (waited >= BOUND && tries < TRIES);
	stop_flood(_metadata, self);
	EXPECT_LE(0, waited);
	EXPECT_GT(BOUND, waited);
}

TEST_F_TIMEOUT(flood, a_write_beside_it, 120)
{
	struct tow_sqe sqe = tow_move(&self->small.from, TOW_OP_WRITE,
				      self->small.own.made.handle, 0, self->small.remote, 0, 8);
	unsigned int tries = 0;
	double waited;

	start_flood(_metadata, self);
	do {
		waited = measure(self, &sqe);
		TH_LOG("a write waited for %.2f windows", waited);
	} while (waited >= BOUND && ++tries < TRIES);
	stop_flood(_metadata, self);
	EXPECT_LE(0, waited);
	EXPECT_GT(BOUND, waited);
}

/* ---- two of them ------------------------------------------------------------------ */

static __u64 sent_by(const FIXTURE_DATA(flood) *self)
{
	return __atomic_load_n(&self->sent, __ATOMIC_RELAXED);
}

/* Both for a while: half of what is sent each, but for the scheduler of two threads? */
static bool share_evenly(struct __test_metadata *_metadata, const FIXTURE_DATA(flood) *one,
			 const FIXTURE_DATA(flood) *other)
{
	__u64 before[2] = { sent_by(one), sent_by(other) }, sent[2];

	tow_test_sleep_ms(1000);
	sent[0] = sent_by(one) - before[0];
	sent[1] = sent_by(other) - before[1];
	TH_LOG("%llu beside %llu", (unsigned long long)sent[0], (unsigned long long)sent[1]);
	return sent[0] / 4 < sent[1] && sent[1] / 4 < sent[0];
}

/*
 * The window is the session's, whichever queue pair is used: who floods one of them
 * takes no more of it than who floods another.
 */
TEST_F_TIMEOUT(flood, two_queue_pairs, 120)
{
	FIXTURE_DATA(flood) other = { .small = self->small };
	struct tow_channel_open channel;
	unsigned int tries;
	bool even = false;
	struct tow_patience patience;

	ASSERT_EQ(0, tow_ends_make_named(&other.flood, "other", "other data", ENTRIES, BYTES));
	ASSERT_EQ(0, tow_channel_open(other.flood.from.rings.made.fd, other.flood.from.peer, 1,
				      &channel));
	ASSERT_EQ(1, channel.qp);
	other.flood.from.channel = (__u16)channel.channel;
	start_flood(_metadata, self);
	ASSERT_EQ(0, pthread_create(&other.thread, NULL, flood_on, &other));
	/* Both are at it. */
	patience = tow_patience(TOW_SETTLE_SECONDS);
	while (sent_by(&other) < TOW_NOTIFY_WINDOW && tow_patient(&patience))
		tow_test_sleep_ms(1);
	EXPECT_LE(TOW_NOTIFY_WINDOW, sent_by(&other));
	for (tries = 0; tries < TRIES && !even; tries++)
		even = share_evenly(_metadata, self, &other);
	stop_flood(_metadata, self);
	stop_flood(_metadata, &other);
	EXPECT_TRUE(even);
	tow_ends_end(&other.flood);
}

TEST_HARNESS_MAIN
