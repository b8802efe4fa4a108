// SPDX-License-Identifier: GPL-2.0
/*
 * Slots that several queue pairs notify: the number is the least of what each has
 * brought, so a consumer that it tells of a step finds all of the step's parts.
 *
 * notify_hostile.c has a peer whose queue pairs do not agree; lab/outage connections
 * that break.
 */
#include <pthread.h>
#include "tow_notify.h"

#define POOL_BYTES	(8 * TOW_SLAB)
#define ENTRIES		64U
#define QPS		4U

/* Data of a step, and how many steps have places of their own. */
#define PIECE		(384 * TOW_KB)
#define PLACES		4U

FIXTURE(width)
{
	struct tow_knobs before;
	struct tow_ends ends;
	__u16 channels[QPS];		/* each by its own queue pair */
	__u64 count, wrong, checked;	/* of steps */
	bool stop;
};

static int open_channels(FIXTURE_DATA(width) *self)
{
	struct tow_user *from = &self->ends.from;
	struct tow_channel_open call;
	unsigned int i;
	int ret = 0;

	for (i = 0; !ret && i < QPS; i++) {
		ret = tow_channel_open(from->rings.made.fd, from->peer, i, &call);
		self->channels[i] = (__u16)call.channel;
	}
	return ret;
}

static int find_by(FIXTURE_DATA(width) *self, unsigned int width)
{
	const struct tow_ends *ends = &self->ends;

	return tow_slot_find_by(ends->from.fd, ends->from.peer, ends->slot_name, width,
				&self->ends.found);
}

static int let_go(FIXTURE_DATA(width) *self)
{
	return tow_end_handle(self->ends.from.fd, TOW_IOCTL_RELEASE, self->ends.found);
}

FIXTURE_SETUP(width)
{
	tow_knobs_save(&self->before);
	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_ends_make(&self->ends, ENTRIES, PLACES * PIECE));
	ASSERT_EQ(0, open_channels(self));
	/* It was found as wide as any. */
	ASSERT_EQ(0, let_go(self));
	self->count = (__u64)tow_test_count(tow_test_slow() ? 15 : 60);
	self->wrong = 0;
	self->checked = 0;
	self->stop = false;
}

FIXTURE_TEARDOWN_PARENT(width)
{
	EXPECT_EQ(0, tow_knobs_restore(&self->before));
}

static int do_one(FIXTURE_DATA(width) *self, unsigned int lane, struct tow_sqe sqe)
{
	sqe.channel = self->channels[lane];
	return tow_rings_do(&self->ends.from.rings, &sqe);
}

static int notify(FIXTURE_DATA(width) *self, unsigned int lane)
{
	return do_one(self, lane, tow_notify(&self->ends.from, self->ends.found));
}

/* It is there, and no further. */
static __u64 comes_to(FIXTURE_DATA(width) *self, __u64 number)
{
	const __u64 *word = tow_ends_word(&self->ends);

	if (tow_slot_await(word, number) == number)
		tow_test_sleep_ms(2);
	return tow_slot_number(word);
}

FIXTURE_VARIANT(width)
{
	unsigned int width;
};

FIXTURE_VARIANT_ADD(width, one) { .width = 1 };
FIXTURE_VARIANT_ADD(width, two) { .width = 2 };
FIXTURE_VARIANT_ADD(width, four) { .width = 4 };

/* Each queue pair brings what it can, one after the other, and in turn. */
TEST_F(width, the_least_counts)
{
	unsigned int lane, step;

	ASSERT_EQ(0, find_by(self, variant->width));
	for (step = 1; step <= 3; step++)
		for (lane = 0; lane < variant->width; lane++) {
			EXPECT_EQ(0, notify(self, lane));
			EXPECT_EQ(step - (lane + 1 < variant->width), comes_to(self, step - 1 +
				  (lane + 1 == variant->width)));
		}
	for (lane = 0; lane < variant->width; lane++) {
		EXPECT_EQ(3, comes_to(self, 3));
		for (step = 0; step < 5; step++)
			EXPECT_EQ(0, notify(self, variant->width - 1 - lane));
	}
	EXPECT_EQ(8, comes_to(self, 8));
}

/* One more queue pair than it is wide is none of its own. */
TEST_F(width, other_queue_pairs)
{
	unsigned int lane;

	ASSERT_EQ(0, find_by(self, variant->width));
	for (lane = 0; lane < variant->width; lane++)
		EXPECT_EQ(0, notify(self, lane));
	EXPECT_EQ(1, comes_to(self, 1));
	if (variant->width == QPS)
		return;
	EXPECT_EQ(-EINVAL, notify(self, variant->width));
	/* A part is missing then, if there are parts. */
	EXPECT_EQ(variant->width > 1 ? -ECANCELED : 0, notify(self, 0));
}

/* A notification that was never begun has no queue pair. */
TEST_F(width, not_begun)
{
	struct tow_rings *rings = &self->ends.from.rings;
	struct tow_sqe bad = { .flags = TOW_SQE_LINK, .operand = 1 }, sqe;
	struct tow_cqe cqe;
	unsigned int i;

	/* A wider one closes, as a part is missing. */
	if (variant->width != 1)
		return;
	ASSERT_EQ(0, find_by(self, 1));
	sqe = tow_notify(&self->ends.from, self->ends.found);
	sqe.channel = self->channels[1];
	ASSERT_TRUE(tow_rings_put(rings, &bad));
	ASSERT_TRUE(tow_rings_put(rings, &sqe));
	ASSERT_EQ(2, tow_rings_enter(rings, 2, TOW_LONG_US));
	for (i = 0; i < 2; i++) {
		ASSERT_TRUE(tow_rings_take(rings, &cqe));
	}
	EXPECT_EQ(-ECANCELED, cqe.status);
	EXPECT_EQ(0, notify(self, 0));
	EXPECT_EQ(-EINVAL, notify(self, 1));
}

/* What some queue pairs have brought is forgotten; which they were, too. */
TEST_F(width, the_next_holder)
{
	static const unsigned int widths[] = { 4, 2, 1, 3, 1, 4 };
	unsigned int lane, i;
	__u64 number = 0;

	for (i = 0; i < ARRAY_SIZE(widths); i++) {
		ASSERT_EQ(0, find_by(self, widths[i]));
		for (lane = 0; lane < widths[i]; lane++) {
			EXPECT_EQ(number, comes_to(self, number));
			EXPECT_EQ(0, notify(self, (lane + i) % QPS));
		}
		EXPECT_EQ(++number, comes_to(self, number));
		for (lane = 0; lane + 1 < widths[i]; lane++)
			EXPECT_EQ(0, notify(self, (lane + i) % QPS));
		EXPECT_EQ(number, comes_to(self, number));
		ASSERT_EQ(0, let_go(self));
	}
}

/* A part that was not sent is not taken for the next step's. */
TEST_F(width, a_part_that_fails)
{
	bool closes = variant->width > 1;
	struct tow_ends *ends = &self->ends;
	struct tow_sqe bad = tow_write_notify(&ends->from, ends->own.made.handle, 0, ends->remote,
					      PLACES * PIECE - 4, 8, 0), first;
	struct tow_cqe cqe;
	int tries;

	for (tries = 0; tries < 2; tries++) {
		__u64 number = tow_ends_number(ends);

		ASSERT_EQ(0, find_by(self, variant->width));
		if (closes) {
			EXPECT_EQ(0, notify(self, 0));
		}
		bad.operand = ends->found;
		if (tries) {
			/* Canceled, as what it is linked to has failed. */
			first = bad;
			first.opcode = TOW_OP_WRITE;
			first.operand = 0;
			first.flags = TOW_SQE_LINK;
			bad = tow_notify(&ends->from, ends->found);
			bad.channel = self->channels[variant->width - 1];
			ASSERT_TRUE(tow_rings_put(&ends->from.rings, &first));
			ASSERT_TRUE(tow_rings_put(&ends->from.rings, &bad));
			ASSERT_EQ(2, tow_rings_enter(&ends->from.rings, 2, TOW_LONG_US));
			ASSERT_EQ(0, tow_rings_wait(&ends->from.rings, &cqe));
			EXPECT_EQ(-ERANGE, cqe.status);
			ASSERT_EQ(0, tow_rings_wait(&ends->from.rings, &cqe));
			EXPECT_EQ(-ECANCELED, cqe.status);
		} else {
			EXPECT_EQ(-ERANGE, do_one(self, variant->width - 1, bad));
		}
		EXPECT_EQ(closes ? -ECANCELED : 0, notify(self, variant->width - 1));
		EXPECT_EQ(number + !closes, comes_to(self, number + !closes));
		ASSERT_EQ(0, let_go(self));
	}
	ASSERT_EQ(0, find_by(self, variant->width));
	for (tries = 0; tries < (int)variant->width; tries++)
		EXPECT_EQ(0, notify(self, (unsigned int)tries));
	EXPECT_EQ(1U + (closes ? 0 : 2), comes_to(self, 1U + (closes ? 0 : 2)));
}

/* One that is refused as it is taken: of a device that is drained, or as it is no entry. */
TEST_F(width, a_part_that_is_refused)
{
	bool closes = variant->width > 1;
	struct tow_ends *ends = &self->ends;
	struct tow_sqe bad;
	int tries;

	for (tries = 0; tries < 2; tries++) {
		__u64 number = tow_ends_number(ends);

		ASSERT_EQ(0, find_by(self, variant->width));
		if (closes) {
			EXPECT_EQ(0, notify(self, 0));
		}
		bad = tow_notify(&ends->from, ends->found);
		bad.flags = tries ? 0x80 : 0;
		ASSERT_EQ(0, tow_sysfs_set("drain", !tries));
		EXPECT_EQ(tries ? -EINVAL : -ESHUTDOWN, do_one(self, variant->width - 1, bad));
		ASSERT_EQ(0, tow_sysfs_set("drain", 0));
		EXPECT_EQ(closes ? -ECANCELED : 0, notify(self, variant->width - 1));
		EXPECT_EQ(number + !closes, comes_to(self, number + !closes));
		ASSERT_EQ(0, let_go(self));
	}
}

/* One that is late counts as missing when that is told, though its turn has not come. */
TEST_F(width, a_part_that_is_late)
{
	bool closes = variant->width > 1;
	struct tow_ends *ends = &self->ends;
	struct tow_rings *rings = &ends->from.rings;
	struct tow_sqe wait, late;
	struct tow_cqe cqe;
	__u64 slot;

	ASSERT_EQ(0, tow_slot_make(ends->from.fd, ends->own.made.handle, 0, "held", &slot));
	ASSERT_EQ(0, find_by(self, variant->width));
	if (closes) {
		EXPECT_EQ(0, notify(self, 0));
	}
	wait = tow_wait_for(slot, 1);
	wait.flags = TOW_SQE_LINK;
	late = tow_notify(&ends->from, ends->found);
	late.channel = self->channels[variant->width - 1];
	late.timeout_ms = 10;
	ASSERT_TRUE(tow_rings_put(rings, &wait));
	ASSERT_TRUE(tow_rings_put(rings, &late));
	ASSERT_EQ(2, tow_rings_enter(rings, 1, TOW_LONG_US));
	ASSERT_EQ(0, tow_rings_wait(rings, &cqe));
	EXPECT_EQ(-ETIMEDOUT, cqe.status);
	EXPECT_EQ(closes ? -ECANCELED : 0, notify(self, variant->width - 1));
	EXPECT_EQ(!closes, comes_to(self, !closes));
	/* And it has come to nothing in its turn. */
	ASSERT_EQ(0, tow_end_handle(ends->from.fd, TOW_IOCTL_UNEXPORT, slot));
	ASSERT_EQ(0, tow_rings_wait(rings, &cqe));
	EXPECT_EQ(-ESTALE, cqe.status);
	EXPECT_EQ(!closes, comes_to(self, !closes));
}

/* With fewer queue pairs there are no so wide slots. */
TEST_F_TIMEOUT(width, queue_pairs_that_there_are, 60)
{
	struct tow_ends *ends = &self->ends;
	unsigned int width;

	ASSERT_EQ(0, tow_sysfs_set("qps_per_peer", variant->width));
	ASSERT_EQ(0, tow_disconnect(ends->from.fd, ends->from.peer));
	tow_ends_end(ends);
	ASSERT_EQ(0, tow_sysfs_wait("stats/exports", 0));
	ASSERT_EQ(0, tow_ends_make(ends, ENTRIES, PIECE));
	ASSERT_EQ(0, let_go(self));
	for (width = QPS; width; width--) {
		int ret = find_by(self, width);

		EXPECT_EQ(width > variant->width ? -EINVAL : 0, ret)
			TH_LOG("width %u", width);
		if (!ret) {
			ASSERT_EQ(0, let_go(self));
		}
	}
	/* The next one finds as many as ever. */
	ASSERT_EQ(0, tow_sysfs_set("qps_per_peer", QPS));
	ASSERT_EQ(0, tow_disconnect(ends->from.fd, ends->from.peer));
}

/* ---- data --------------------------------------------------------------------------------- */

static void *check(void *arg)
{
	FIXTURE_DATA(width) *self = arg;
	__u64 seen = 0;

	while (seen < self->count && !__atomic_load_n(&self->stop, __ATOMIC_RELAXED)) {
		if (tow_ends_number(&self->ends) == seen) {
			tow_test_sleep_ms(1);
			continue;
		}
		seen++;
		self->wrong += tow_differs(self->ends.memory.at + TOW_DATA_AT +
					   seen % PLACES * PIECE, PIECE, seen) != 0;
		__atomic_store_n(&self->checked, seen, __ATOMIC_RELEASE);
	}
	return NULL;
}

/* A step in parts, one by each queue pair; another one begins each time. */
static int tell(FIXTURE_DATA(width) *self, __u64 number, unsigned int width)
{
	struct tow_ends *ends = &self->ends;
	size_t at = number % PLACES * PIECE, part = PIECE / width;
	unsigned int i;

	tow_fill(ends->own.at + at, PIECE, number);
	for (i = 0; i < width; i++) {
		unsigned int lane = (i + (unsigned int)number) % width;
		struct tow_sqe sqe = tow_write_notify(&ends->from, ends->own.made.handle,
						      at + lane * part, ends->remote,
						      at + lane * part, part, ends->found);

		sqe.channel = self->channels[lane];
		if (!tow_rings_put(&ends->from.rings, &sqe))
			return -EXFULL;
	}
	return tow_rings_enter(&ends->from.rings, 0, 0) == (int)width ? 0 : -EXFULL;
}

TEST_F_TIMEOUT(width, all_is_there, 120)
{
	struct tow_patience patience = tow_patience(100);
	__u64 next = 1, ended = 0;
	struct tow_cqe cqe;
	pthread_t thread;

	ASSERT_EQ(0, find_by(self, variant->width));
	ASSERT_EQ(0, pthread_create(&thread, NULL, check, self));
	while (ended < self->count * variant->width && tow_patient(&patience)) {
		while (next <= self->count && (next - 1) * variant->width < ended + 2ULL *
		       variant->width &&
		       next <= __atomic_load_n(&self->checked, __ATOMIC_ACQUIRE) + PLACES - 1)
			ASSERT_EQ(0, tell(self, next++, variant->width));
		if ((next - 1) * variant->width == ended) {
			tow_test_sleep_ms(1);
			continue;
		}
		ASSERT_EQ(0, tow_rings_wait(&self->ends.from.rings, &cqe));
		ASSERT_EQ(0, cqe.status);
		ended++;
	}
	EXPECT_EQ(self->count, comes_to(self, self->count));
	while (__atomic_load_n(&self->checked, __ATOMIC_ACQUIRE) < self->count &&
	       tow_patient(&patience))
		tow_test_sleep_ms(1);
	__atomic_store_n(&self->stop, true, __ATOMIC_RELAXED);
	ASSERT_EQ(0, pthread_join(thread, NULL));
	EXPECT_EQ(self->count, self->checked);
	EXPECT_EQ(0, self->wrong);
}

/* ---- data that comes late ------------------------------------------------------------------ */

/* Each part is written by its own queue pair, and acknowledged; one of them tells of all. */
static int tell_of_acknowledged(FIXTURE_DATA(width) *self, __u64 number, unsigned int width)
{
	struct tow_ends *ends = &self->ends;
	size_t at = number % PLACES * PIECE, part = PIECE / width;
	unsigned int i;
	int ret = 0;

	tow_fill(ends->own.at + at, PIECE, number);
	for (i = 0; !ret && i < width; i++)
		ret = do_one(self, i, tow_move(&ends->from, TOW_OP_WRITE, ends->own.made.handle,
					       at + i * part, ends->remote, at + i * part, part));
	return ret ? ret : notify(self, 0);
}

/*
 * Where a queue pair's data may come late, acknowledgements prove nothing: what one queue
 * pair tells of is not there.  With a part of the notification by each it is.
 */
TEST_F_TIMEOUT(width, acknowledged_is_not_there, 120)
{
	bool late = !tow_hostile_set("late", "Y");
	__u64 number, wrong = 0;

	ASSERT_EQ(0, find_by(self, 1));
	for (number = 1; number <= 8; number++) {
		EXPECT_EQ(0, tell_of_acknowledged(self, number, variant->width));
		ASSERT_EQ(number, tow_slot_await(tow_ends_word(&self->ends), number));
		wrong += tow_differs(self->ends.memory.at + TOW_DATA_AT + number % PLACES * PIECE,
				     PIECE, number) != 0;
	}
	ASSERT_EQ(0, let_go(self));
	/* Soft-RoCE as it is has placed what it acknowledges. */
	EXPECT_EQ(late && variant->width > 1, wrong > 0)
		TH_LOG("%llu of 8 were not there", wrong);
	ASSERT_EQ(0, find_by(self, variant->width));
	for (number = 1; number <= 16; number++) {
		EXPECT_EQ(0, tell(self, number, variant->width));
		ASSERT_EQ(8 + number, tow_slot_await(tow_ends_word(&self->ends), 8 + number));
		EXPECT_EQ(0, tow_differs(self->ends.memory.at + TOW_DATA_AT +
					 number % PLACES * PIECE, PIECE, number));
		tow_rings_seen(&self->ends.from.rings, tow_rings_ready(&self->ends.from.rings));
	}
	EXPECT_EQ(late ? 0 : -ENOENT, tow_hostile_set("late", "N"));
}

TEST_HARNESS_MAIN
