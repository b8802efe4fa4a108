// SPDX-License-Identifier: GPL-2.0
/*
 * Sleeping until a number has come so far: WAIT before, at and after it; several of
 * them; what it holds back, and what not; chains that run in the kernel while nobody
 * is awake in user space; and that sleeping costs nothing.
 */
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include "tow_notify.h"

#define POOL_BYTES	(4 * TOW_SLAB)
#define ENTRIES		256U
#define BYTES		(64 * TOW_KB)
#define SLEEP_SECONDS	5L
/* Of a processor, while asleep. */
#define IDLE_SHARE	0.01
/* Who was notified is awake after so long. */
#define AWAKE_MS	2000
#define ROUNDS		100U
/* Who is woken may have to wait for a processor, and be charged for others' interrupts. */
#define TRIES		3U

FIXTURE(wait)
{
	struct tow_ends ends;
};

FIXTURE_SETUP(wait)
{
	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_ends_make(&self->ends, ENTRIES, BYTES));
}

FIXTURE_TEARDOWN(wait)
{
	struct tow_sqe nop = { .user_data = 1000000 };

	EXPECT_EQ(0, tow_rings_do(&self->ends.to.rings, &nop));
	EXPECT_EQ(0, tow_rings_do(&self->ends.from.rings, &nop));
}

/* None has completed, also not a little later. */
static bool still_waits(struct tow_ends *ends)
{
	tow_test_sleep_ms(20);
	return !tow_rings_ready(&ends->to.rings);
}

/* ---- one, and several ---------------------------------------------------------------- */

TEST_F(wait, before_at_and_after)
{
	struct tow_ends *ends = &self->ends;
	int i;

	for (i = 0; i < 3; i++)
		ASSERT_EQ(0, tow_ends_notify(ends));
	/* After, at. */
	EXPECT_EQ(0, tow_ends_begin_wait(ends, 2, 0));
	EXPECT_EQ(0, tow_ends_end_wait(ends, 2));
	EXPECT_EQ(0, tow_ends_begin_wait(ends, 3, 0));
	EXPECT_EQ(0, tow_ends_end_wait(ends, 3));
	/* Before: by one, and by two. */
	EXPECT_EQ(0, tow_ends_begin_wait(ends, 5, 0));
	EXPECT_TRUE(still_waits(ends));
	ASSERT_EQ(0, tow_ends_notify(ends));
	EXPECT_TRUE(still_waits(ends));
	ASSERT_EQ(0, tow_ends_notify(ends));
	EXPECT_EQ(0, tow_ends_end_wait(ends, 5));
	/* The number says at least as much as the completion does. */
	EXPECT_LE(5, tow_ends_number(ends));
}

/* In whatever order they came: each at its own number. */
TEST_F(wait, several)
{
	static const __u64 numbers[] = { 3, 1, 5, 2, 4, 3, 1 };
	struct tow_ends *ends = &self->ends;
	unsigned int counts[6] = { 0 }, ended = 0, due = 0;
	struct tow_cqe cqe;
	__u64 number;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(numbers); i++)
		ASSERT_EQ(0, tow_ends_begin_wait(ends, numbers[i], 0));
	EXPECT_TRUE(still_waits(ends));
	for (number = 1; number <= 5; number++) {
		ASSERT_EQ(0, tow_ends_notify(ends));
		for (i = 0; i < ARRAY_SIZE(numbers); i++)
			due += numbers[i] == number;
		for (; ended < due; ended++) {
			ASSERT_EQ(0, tow_rings_wait(&ends->to.rings, &cqe));
			EXPECT_EQ(0, cqe.status);
			EXPECT_EQ(number, cqe.user_data);
			ASSERT_GT(6, cqe.user_data);
			counts[cqe.user_data]++;
		}
		EXPECT_TRUE(still_waits(ends));
	}
	EXPECT_EQ(2, counts[1]);
	EXPECT_EQ(2, counts[3]);
	EXPECT_EQ(ARRAY_SIZE(numbers), ended);
}

/* As many as there can be, all for the same number: none is forgotten. */
TEST_F(wait, many_at_once)
{
	struct tow_ends *ends = &self->ends;
	struct tow_cqe cqe;
	__u32 i;

	for (i = 0; i < ENTRIES; i++)
		ASSERT_EQ(0, tow_ends_begin_wait(ends, 1, i % 3 ? 0 : TOW_SQE_SILENT));
	EXPECT_TRUE(still_waits(ends));
	ASSERT_EQ(0, tow_ends_notify(ends));
	for (i = 0; i < ENTRIES - (ENTRIES + 2) / 3; i++) {
		ASSERT_EQ(0, tow_rings_wait(&ends->to.rings, &cqe));
		EXPECT_EQ(0, cqe.status);
	}
	EXPECT_TRUE(still_waits(ends));
}

/* As many as a queue can have in flight, handed over in any order. */
#define CROWD		TOW_SQ_ENTRIES_MAX
#define CROWD_SLOW	4096U
/* Each of them at once: what is bounded is that nobody has to look at all others. */
#define CROWD_SECONDS	20.0

static void hand_over_crowd(struct __test_metadata *_metadata, struct tow_rings *rings,
			    __u64 slot, __u32 count, bool falling)
{
	__u32 i;

	for (i = 0; i < count; i++) {
		struct tow_sqe sqe = tow_wait_for(slot, falling ? count - i + 1 : 1);

		sqe.user_data = sqe.operand;
		ASSERT_TRUE(tow_rings_put(rings, &sqe));
	}
	ASSERT_EQ(count, tow_rings_enter(rings, 0, 0));
	ASSERT_EQ(0, tow_rings_ready(rings));
}

TEST_F_TIMEOUT(wait, crowds, 120)
{
	__u32 count = tow_test_slow() ? CROWD_SLOW : CROWD, i;
	struct tow_ends *ends = &self->ends;
	double start = tow_test_now();
	struct tow_rings rings;
	struct tow_cqe cqe;

	ASSERT_EQ(0, tow_rings_make(ends->to.fd, count, count, &rings));
	/* All for the same number: one notification ends them. */
	hand_over_crowd(_metadata, &rings, ends->slot, count, false);
	ASSERT_EQ(0, tow_ends_notify(ends));
	ASSERT_EQ(0, tow_enter(rings.made.fd, 0, count, TOW_LONG_US));
	for (i = 0; i < count; i++) {
		ASSERT_TRUE(tow_rings_take(&rings, &cqe));
		ASSERT_EQ(0, cqe.status);
	}
	TH_LOG("%u for one number: %.2f s", count, tow_test_now() - start);
	TOW_WITHIN(start, CROWD_SECONDS * 1e3);
	/* Each for another one, the last ones first; and they are told in turn. */
	start = tow_test_now();
	hand_over_crowd(_metadata, &rings, ends->slot, count, true);
	TH_LOG("%u falling numbers: %.2f s", count, tow_test_now() - start);
	TOW_WITHIN(start, CROWD_SECONDS * 1e3);
	for (i = 2; i <= 4; i++) {
		ASSERT_EQ(0, tow_ends_notify(ends));
		ASSERT_EQ(0, tow_rings_wait(&rings, &cqe));
		EXPECT_EQ(i, cqe.user_data);
		EXPECT_EQ(0, cqe.status);
	}
	/* The rest ends with the queue. */
	tow_rings_end(&rings);
	EXPECT_EQ(2, tow_sysfs_wait("stats/queues", 2));
}

/* Queues of one client, and slots of its. */
TEST_F(wait, two_queues_and_two_slots)
{
	struct tow_ends *ends = &self->ends;
	struct tow_sqe sqe = tow_wait_for(ends->slot, 1), notify;
	struct tow_rings rings;
	struct tow_cqe cqe;
	__u64 slot, found;

	ASSERT_EQ(0, tow_rings_make(ends->to.fd, 4, 0, &rings));
	ASSERT_EQ(0, tow_slot_make(ends->to.fd, ends->memory.made.handle, 128, "second", &slot));
	ASSERT_EQ(0, tow_slot_find(ends->from.fd, ends->from.peer, "second", &found));
	sqe.user_data = 1;
	ASSERT_TRUE(tow_rings_put(&rings, &sqe));
	sqe = tow_wait_for(slot, 1);
	sqe.user_data = 2;
	ASSERT_TRUE(tow_rings_put(&rings, &sqe));
	ASSERT_EQ(2, tow_rings_enter(&rings, 0, 0));
	ASSERT_EQ(0, tow_ends_begin_wait(ends, 1, 0));
	notify = tow_notify(&ends->from, found);
	ASSERT_EQ(0, tow_rings_do(&ends->from.rings, &notify));
	ASSERT_EQ(0, tow_rings_wait(&rings, &cqe));
	EXPECT_EQ(2, cqe.user_data);
	EXPECT_TRUE(still_waits(ends));
	EXPECT_EQ(0, tow_rings_ready(&rings));
	ASSERT_EQ(0, tow_ends_notify(ends));
	ASSERT_EQ(0, tow_rings_wait(&rings, &cqe));
	EXPECT_EQ(1, cqe.user_data);
	EXPECT_EQ(0, tow_ends_end_wait(ends, 1));
	tow_rings_end(&rings);
}

/* ---- what it holds back ----------------------------------------------------------------- */

TEST_F(wait, holds_back_nothing)
{
	struct tow_ends *ends = &self->ends;
	struct tow_sqe nop = { .user_data = 7 };

	ASSERT_EQ(0, tow_ends_begin_wait(ends, 1, 0));
	EXPECT_EQ(0, tow_rings_do(&ends->to.rings, &nop));
	ASSERT_EQ(0, tow_ends_notify(ends));
	EXPECT_EQ(0, tow_ends_end_wait(ends, 1));
}

TEST_F(wait, what_a_fence_waits_for)
{
	struct tow_ends *ends = &self->ends;
	struct tow_sqe nop = { .user_data = 7, .flags = TOW_SQE_FENCE };
	struct tow_cqe cqe;

	ASSERT_EQ(0, tow_ends_begin_wait(ends, 1, 0));
	ASSERT_TRUE(tow_rings_put(&ends->to.rings, &nop));
	ASSERT_EQ(1, tow_rings_enter(&ends->to.rings, 0, 0));
	EXPECT_TRUE(still_waits(ends));
	ASSERT_EQ(0, tow_ends_notify(ends));
	EXPECT_EQ(0, tow_ends_end_wait(ends, 1));
	ASSERT_EQ(0, tow_rings_wait(&ends->to.rings, &cqe));
	EXPECT_EQ(7, cqe.user_data);
	EXPECT_EQ(0, cqe.status);
}

/* What is linked behind one that fails is cancelled. */
TEST_F(wait, a_chain_that_fails)
{
	struct tow_ends *ends = &self->ends;
	struct tow_sqe nop = { .user_data = 7 };
	struct tow_sqe wait = tow_wait_for(ends->slot, 1);
	struct tow_cqe cqe;

	wait.flags = TOW_SQE_LINK;
	wait.user_data = 1;
	ASSERT_TRUE(tow_rings_put(&ends->to.rings, &wait));
	ASSERT_TRUE(tow_rings_put(&ends->to.rings, &nop));
	ASSERT_EQ(2, tow_rings_enter(&ends->to.rings, 0, 0));
	EXPECT_TRUE(still_waits(ends));
	ASSERT_EQ(0, tow_end_handle(ends->to.fd, TOW_IOCTL_UNEXPORT, ends->slot));
	ASSERT_EQ(0, tow_rings_wait(&ends->to.rings, &cqe));
	EXPECT_EQ(1, cqe.user_data);
	EXPECT_EQ(-ESTALE, cqe.status);
	ASSERT_EQ(0, tow_rings_wait(&ends->to.rings, &cqe));
	EXPECT_EQ(7, cqe.user_data);
	EXPECT_EQ(-ECANCELED, cqe.status);
}

/* ---- chains in the kernel ------------------------------------------------------------------ */

/*
 * What was handed over to a queue runs when the number has come so far.  Nobody calls
 * the kernel for that queue from then on: all that is done is to look at memory.
 */
TEST_F(wait, write_behind_wait)
{
	struct tow_ends *ends = &self->ends;
	struct tow_sqe wait = tow_wait_for(ends->slot, 1), write;
	const volatile char *there;
	struct tow_mapped target;
	struct tow_patience patience;
	__u64 exported, remote;

	/* The other way: from who is notified to who notifies. */
	ASSERT_EQ(0, tow_mapped_make(ends->from.fd, BYTES, &target));
	ASSERT_EQ(0, tow_publish_for(ends->from.fd, target.made.handle, "back", BYTES,
				     TOW_RIGHT_WRITE, &exported));
	ASSERT_EQ(0, tow_find_for(ends->to.fd, ends->to.peer, "back", TOW_RIGHT_WRITE, &remote));
	write = tow_move(&ends->to, TOW_OP_WRITE, ends->memory.made.handle, TOW_DATA_AT, remote, 0,
			 64);
	wait.flags = TOW_SQE_LINK;
	ASSERT_TRUE(tow_rings_put(&ends->to.rings, &wait));
	ASSERT_TRUE(tow_rings_put(&ends->to.rings, &write));
	ASSERT_EQ(2, tow_rings_enter(&ends->to.rings, 0, 0));
	EXPECT_TRUE(still_waits(ends));
	there = target.at;
	EXPECT_EQ(0, there[63]);
	/* What the write takes is what has just arrived. */
	memset(ends->own.at, 0x5a, 64);
	write = tow_write_notify(&ends->from, ends->own.made.handle, 0, ends->remote, 0, 64,
				 ends->found);
	ASSERT_EQ(0, tow_rings_do(&ends->from.rings, &write));
	patience = tow_patience(TOW_SETTLE_SECONDS);
	while (tow_rings_ready(&ends->to.rings) < 2 && tow_patient(&patience))
		tow_test_sleep_ms(1);
	ASSERT_EQ(2, tow_rings_ready(&ends->to.rings));
	EXPECT_EQ(0, tow_rings_look(&ends->to.rings, 0).status);
	EXPECT_EQ(0, tow_rings_look(&ends->to.rings, 1).status);
	EXPECT_EQ(0x5a, there[0]);
	EXPECT_EQ(0x5a, there[63]);
	tow_rings_seen(&ends->to.rings, 2);
}

/* Queue @user: at each number, notify the other side: a chain for each round. */
static int put_rounds(struct tow_user *user, __u64 slot, __u64 found, __u64 first)
{
	__u64 round;

	for (round = 0; round < ROUNDS; round++) {
		struct tow_sqe wait = tow_wait_for(slot, first + round);
		struct tow_sqe notify = tow_notify(user, found);

		wait.flags = TOW_SQE_LINK | TOW_SQE_SILENT;
		notify.flags = TOW_SQE_SILENT;
		if (!tow_rings_put(&user->rings, &wait) || !tow_rings_put(&user->rings, &notify))
			return -EXFULL;
	}
	return tow_rings_enter(&user->rings, 0, 0) == 2 * (int)ROUNDS ? 0 : -EXFULL;
}

/* To and fro, a hundred times, with everybody asleep. */
TEST_F(wait, chains_that_answer_each_other)
{
	struct tow_ends *ends = &self->ends;
	__u64 slot, found;

	ASSERT_EQ(0, tow_slot_make(ends->from.fd, ends->own.made.handle, 0, "answers", &slot));
	ASSERT_EQ(0, tow_slot_find(ends->to.fd, ends->to.peer, "answers", &found));
	ASSERT_EQ(0, put_rounds(&ends->to, ends->slot, found, 1));
	ASSERT_EQ(0, put_rounds(&ends->from, slot, ends->found, 1));
	EXPECT_TRUE(still_waits(ends));
	EXPECT_EQ(0, tow_slot_number(ends->own.at));
	ASSERT_EQ(0, tow_ends_notify(ends));
	/* The first one was by hand: theirs goes one further. */
	EXPECT_EQ(ROUNDS, tow_slot_await(ends->own.at, ROUNDS));
	EXPECT_EQ(ROUNDS + 1, tow_slot_await(tow_ends_word(ends), ROUNDS + 1));
	EXPECT_EQ(0, tow_rings_ready(&ends->to.rings));
	EXPECT_EQ(0, tow_rings_ready(&ends->from.rings));
}

/* ---- asleep ------------------------------------------------------------------------------------ */

struct sleeper {
	struct tow_ends *ends;
	__u64 number;
	int ret;
	double cpu;
	double woken;
};

static double cpu_seconds(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec / 1e6 +
	       (double)usage.ru_stime.tv_sec + (double)usage.ru_stime.tv_usec / 1e6;
}

static void *sleep_in_enter(void *arg)
{
	struct sleeper *sleeper = arg;
	struct tow_sqe wait = tow_wait_for(sleeper->ends->slot, sleeper->number);
	double before = cpu_seconds();

	sleeper->ret = tow_rings_do(&sleeper->ends->to.rings, &wait);
	sleeper->woken = tow_test_now();
	sleeper->cpu = cpu_seconds() - before;
	return NULL;
}

/* Until the slot is at this number: did it cost nothing, and was it woken in time? */
static bool sleeps_well(struct __test_metadata *_metadata, struct tow_ends *ends, __u64 number)
{
	struct sleeper sleeper = { .ends = ends, .number = number };
	pthread_t thread;
	double notified;

	EXPECT_EQ(0, pthread_create(&thread, NULL, sleep_in_enter, &sleeper));
	tow_test_sleep_ms(SLEEP_SECONDS * 1000);
	notified = tow_test_now();
	EXPECT_EQ(0, tow_ends_notify(ends));
	EXPECT_EQ(0, pthread_join(thread, NULL));
	EXPECT_EQ(0, sleeper.ret);
	EXPECT_LE(notified, sleeper.woken);
	TH_LOG("%.4f s of a processor in %ld s; awake after %.0f us", sleeper.cpu, SLEEP_SECONDS,
	       (sleeper.woken - notified) * 1e6);
	if (number == TRIES)
		TOW_WITHIN_AT(notified, sleeper.woken, AWAKE_MS);
	return sleeper.woken - notified < AWAKE_MS / 1e3 &&
	       sleeper.cpu <= IDLE_SHARE * SLEEP_SECONDS;
}

TEST_F_TIMEOUT(wait, asleep, 60)
{
	bool well = false;
	__u64 number;

	for (number = 1; number <= TRIES && !well; number++)
		well = sleeps_well(_metadata, &self->ends, number);
	EXPECT_TRUE(well);
}

static void *notify_soon(void *arg)
{
	tow_test_sleep_ms(50);
	return (void *)(intptr_t)tow_ends_notify(arg);
}

TEST_F(wait, poll)
{
	struct tow_ends *ends = &self->ends;
	struct pollfd fd = { .fd = ends->to.rings.made.fd, .events = POLLIN };
	pthread_t thread;
	void *ret;

	ASSERT_EQ(0, tow_ends_begin_wait(ends, 1, 0));
	EXPECT_EQ(0, poll(&fd, 1, 20));
	ASSERT_EQ(0, pthread_create(&thread, NULL, notify_soon, ends));
	EXPECT_EQ(1, poll(&fd, 1, TOW_WAIT_MS));
	EXPECT_EQ(POLLIN, fd.revents);
	EXPECT_EQ(0, tow_ends_end_wait(ends, 1));
	ASSERT_EQ(0, pthread_join(thread, &ret));
	EXPECT_EQ(0, (int)(intptr_t)ret);
}

/* WAIT and the notification meet at every moment there is: none is lost. */
TEST_F_TIMEOUT(wait, races, 60)
{
	__u64 number, rounds = (__u64)tow_test_count(tow_test_slow() ? 200 : 3000);
	struct tow_ends *ends = &self->ends;
	struct tow_sqe sqe = tow_notify(&ends->from, ends->found);
	struct tow_cqe cqe;
	volatile __u64 pause;

	for (number = 1; number <= rounds; number++) {
		ASSERT_TRUE(tow_rings_put(&ends->from.rings, &sqe));
		ASSERT_EQ(1, tow_rings_enter(&ends->from.rings, 0, 0));
		for (pause = number % 64 * 64; pause; pause--)
			;
		ASSERT_EQ(0, tow_ends_begin_wait(ends, number, 0));
		ASSERT_EQ(0, tow_ends_end_wait(ends, number));
		EXPECT_LE(number, tow_ends_number(ends));
		ASSERT_EQ(0, tow_rings_wait(&ends->from.rings, &cqe));
		ASSERT_EQ(0, cqe.status);
	}
}

TEST_HARNESS_MAIN
