// SPDX-License-Identifier: GPL-2.0
/*
 * Entries that shall not take longer than so long, and of which nothing is on its way
 * when they are late: each completes once, in time or as late; what was not sent never
 * is; chains, fences and others of the queue find out what they must, and nobody else
 * notices.
 *
 * queue_held.c has those that are on their way.
 */
#include <poll.h>
#include <sched.h>
#include "tow_deadline.h"

FIXTURE(deadline)
{
	struct tow_timed timed;
};

FIXTURE_SETUP(deadline)
{
	ASSERT_EQ(0, tow_timed_make(&self->timed));
}

FIXTURE_TEARDOWN_PARENT(deadline)
{
	EXPECT_EQ(0, tow_timed_restore(&self->timed));
}

/* ---- in time ------------------------------------------------------------------------------ */

/* One completion, as without; and room as before, however often. */
TEST_F(deadline, in_time)
{
	struct tow_timed *timed = &self->timed;
	const __u8 opcodes[] = {
		TOW_OP_NOP, TOW_OP_WRITE, TOW_OP_READ, TOW_OP_FETCH_ADD, TOW_OP_COMPARE_SWAP,
		TOW_OP_WRITE_NOTIFY, TOW_OP_WAIT,
	};
	struct tow_sqe sqe;
	unsigned int i;

	for (i = 0; i < 10 * ENTRIES; i++) {
		__u8 opcode = opcodes[i % ARRAY_SIZE(opcodes)];

		sqe = move(timed, opcode, 4096, 100, 0);
		if (opcode == TOW_OP_FETCH_ADD || opcode == TOW_OP_COMPARE_SWAP)
			sqe.bytes = 0;
		if (opcode == TOW_OP_NOP)
			sqe = nop(0, 0);
		if (opcode == TOW_OP_WRITE_NOTIFY)
			sqe = notify(timed);
		if (opcode == TOW_OP_WAIT)
			sqe = wait_for(timed, 1, 0);
		sqe.timeout_ms = i % 3 ? FAR_MS : UINT32_MAX;
		sqe.user_data = i;
		ASSERT_EQ(0, tow_rings_do(opcode == TOW_OP_WRITE_NOTIFY ? &timed->side :
					  &timed->user.rings, &sqe))
			TH_LOG("opcode %u", opcode);
	}
	EXPECT_EQ(0, late_now(timed));
	expect_works(_metadata, timed);
}

/* What is wrong with it is told as it is without. */
TEST_F(deadline, wrong_ones)
{
	struct tow_timed *timed = &self->timed;
	struct tow_rings *rings = &timed->user.rings;
	struct tow_sqe sqe = move(timed, TOW_OP_WRITE, LARGE_BYTES, 1, FAR_MS);
	struct tow_rings small;
	struct tow_cqe cqe;

	EXPECT_EQ(-ERANGE, tow_rings_do(rings, &sqe));
	sqe = wait_for(timed, 1, FAR_MS);
	sqe.region++;
	EXPECT_EQ(-EBADF, tow_rings_do(rings, &sqe));
	sqe.opcode = 77;
	EXPECT_EQ(-EINVAL, tow_rings_do(rings, &sqe));
	sqe = nop(TOW_SQE_SILENT, FAR_MS);
	ASSERT_TRUE(tow_rings_put(rings, &sqe));
	EXPECT_EQ(1, tow_rings_enter(rings, 0, 0));
	EXPECT_TRUE(silence(rings));
	/* Two completions never fit. */
	ASSERT_EQ(0, tow_rings_make(timed->user.fd, 1, 1, &small));
	sqe = nop(0, 1);
	EXPECT_EQ(-EINVAL, tow_rings_do(&small, &sqe));
	sqe = nop(0, 0);
	EXPECT_EQ(0, tow_rings_do(&small, &sqe));
	EXPECT_FALSE(tow_rings_take(&small, &cqe));
	tow_rings_end(&small);
	expect_works(_metadata, timed);
}

/* ---- late -------------------------------------------------------------------------------- */

/* Not before; and whoever sleeps for it is woken. */
TEST_F(deadline, waits)
{
	struct tow_timed *timed = &self->timed;
	const __u32 times[] = { 1, 2, 15, 200, 1000 };
	struct pollfd poller = { .fd = timed->user.rings.made.fd, .events = POLLIN };
	struct tow_rings *rings = &timed->user.rings;
	struct tow_cqe cqe = { .status = 1 };
	struct tow_sqe sqe;
	double begin, took;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(times); i++) {
		sqe = wait_for(timed, 1, times[i]);
		begin = tow_test_now();
		ASSERT_EQ(-ETIMEDOUT, tow_rings_do(rings, &sqe));
		took = tow_test_now() - begin;
		TH_LOG("%u ms: %.1f", times[i], took * 1e3);
		EXPECT_LE(times[i] / 1e3, took);
		TOW_WITHIN_AT(begin, begin + took, times[i] + SLACK_S * 1e3);
	}
	EXPECT_EQ(ARRAY_SIZE(times), late_now(timed));
	sqe = wait_for(timed, 1, 50);
	ASSERT_TRUE(tow_rings_put(rings, &sqe));
	submit(_metadata, rings, 1);
	EXPECT_EQ(1, poll(&poller, 1, 30000));
	EXPECT_TRUE(tow_rings_take(rings, &cqe));
	EXPECT_EQ(-ETIMEDOUT, cqe.status);
	EXPECT_EQ(0, cqe.flags);
	/* The slot is as it was. */
	sqe = wait_for(timed, 1, FAR_MS);
	ASSERT_TRUE(tow_rings_put(rings, &sqe));
	submit(_metadata, rings, 1);
	EXPECT_EQ(0, go_on(timed));
	EXPECT_EQ(0, tow_rings_wait(rings, &cqe));
	EXPECT_EQ(0, cqe.status);
	expect_works(_metadata, timed);
}

/* However they were taken. */
TEST_F(deadline, by_time)
{
	struct tow_timed *timed = &self->timed;
	struct tow_rings *rings = &timed->user.rings;
	struct fate fates[20] = {};
	unsigned int i;

	for (i = 0; i < 20; i++)
		put(_metadata, rings, wait_for(timed, 1, 40 + 10 * (i * 7 % 20)), 0, i);
	submit(_metadata, rings, 20);
	ASSERT_EQ(0, collect(rings, fates, 20, 20));
	for (i = 0; i < 20; i++) {
		EXPECT_EQ(-ETIMEDOUT, fates[i].status);
		EXPECT_EQ(i * 7 % 20, fates[i].order);
	}
	expect_works(_metadata, timed);
}

/* One in flight takes the room of two. */
TEST_F(deadline, room)
{
	struct tow_timed *timed = &self->timed;
	struct tow_rings rings;
	struct tow_cqe cqe;
	int i;

	ASSERT_EQ(0, tow_rings_make(timed->user.fd, 16, 16, &rings));
	for (i = 0; i < 16; i++)
		put(_metadata, &rings, wait_for(timed, 1, i < 4 ? 0 : i < 10 ? 2000 : FAR_MS), 0,
		    (__u64)i);
	EXPECT_EQ(10, tow_rings_enter(&rings, 0, 0));
	EXPECT_EQ(-EBUSY, tow_rings_enter(&rings, 0, 0));
	/* They are there, and not dealt with: the same room, for half of the entries. */
	EXPECT_EQ(0, tow_enter(rings.made.fd, 0, 6, TOW_LONG_US));
	EXPECT_EQ(3, tow_rings_enter(&rings, 0, 0));
	EXPECT_EQ(-EBUSY, tow_rings_enter(&rings, 0, 0));
	for (i = 0; i < 6; i++) {
		EXPECT_EQ(-ETIMEDOUT, tow_rings_look(&rings, (__u32)i).status);
	}
	tow_rings_seen(&rings, 1);
	EXPECT_EQ(-EBUSY, tow_rings_enter(&rings, 0, 0));
	tow_rings_seen(&rings, 5);
	EXPECT_EQ(3, tow_rings_enter(&rings, 0, 0));
	EXPECT_EQ(0, go_on(timed));
	for (i = 0; i < 10; i++) {
		ASSERT_EQ(0, tow_rings_wait(&rings, &cqe));
		EXPECT_EQ(0, cqe.status);
	}
	tow_rings_end(&rings);
	expect_works(_metadata, timed);
}

/* ---- what has not begun ------------------------------------------------------------------- */

/* In a chain, and behind a fence: it is told in time, and never sent. */
TEST_F(deadline, before_the_beginning)
{
	struct tow_timed *timed = &self->timed;
	struct tow_rings *rings = &timed->user.rings;
	struct tow_sqe write = move(timed, TOW_OP_WRITE, 4096, 4096, 30);
	struct fate fates[8] = {};
	double begin = tow_test_now();

	memset(timed->own.at + 4096, 0x33, 4096);
	put(_metadata, rings, wait_for(timed, 1, 0), TOW_SQE_LINK, 0);
	put(_metadata, rings, write, TOW_SQE_LINK, 1);
	put(_metadata, rings, nop(0, 0), TOW_SQE_LINK, 2);
	put(_metadata, rings, nop(0, 0), 0, 3);
	put(_metadata, rings, write, TOW_SQE_FENCE, 4);
	put(_metadata, rings, write, TOW_SQE_SILENT, 5);
	put(_metadata, rings, nop(0, 0), 0, 6);
	submit(_metadata, rings, 7);
	ASSERT_EQ(0, collect(rings, fates, 8, 3));
	EXPECT_EQ(-ETIMEDOUT, fates[1].status);
	EXPECT_EQ(-ETIMEDOUT, fates[4].status);
	EXPECT_EQ(-ETIMEDOUT, fates[5].status);
	EXPECT_FALSE(fates[1].held || fates[4].held || fates[5].held);
	TOW_WITHIN_AT(begin, fates[4].at, 30 + SLACK_S * 1e3);
	/* They keep their places, and so does what comes after them. */
	EXPECT_TRUE(silence(rings));
	EXPECT_EQ(0, go_on(timed));
	ASSERT_EQ(0, collect(rings, fates, 8, 4));
	EXPECT_EQ(0, fates[0].status);
	EXPECT_EQ(-ECANCELED, fates[2].status);
	EXPECT_EQ(-ECANCELED, fates[3].status);
	EXPECT_EQ(0, fates[6].status);
	EXPECT_TRUE(silence(rings));
	EXPECT_TRUE(tow_is_zero(timed->target.at, 64 * TOW_KB));
	EXPECT_EQ(3, late_now(timed));
	expect_works(_metadata, timed);
}

/* A WAIT that has begun ends its chain at once. */
TEST_F(deadline, linked)
{
	struct tow_timed *timed = &self->timed;
	struct tow_rings *rings = &timed->user.rings;
	struct fate fates[4] = {};

	put(_metadata, rings, wait_for(timed, 1, 20), TOW_SQE_LINK, 0);
	put(_metadata, rings, nop(0, FAR_MS), TOW_SQE_LINK, 1);
	put(_metadata, rings, nop(0, 0), 0, 2);
	submit(_metadata, rings, 3);
	ASSERT_EQ(0, collect(rings, fates, 4, 3));
	EXPECT_EQ(-ETIMEDOUT, fates[0].status);
	EXPECT_EQ(-ECANCELED, fates[1].status);
	EXPECT_EQ(-ECANCELED, fates[2].status);
	/* Its time is that of the chain, too. */
	put(_metadata, rings, wait_for(timed, 1, FAR_MS), TOW_SQE_LINK, 0);
	put(_metadata, rings, nop(0, FAR_MS), 0, 1);
	submit(_metadata, rings, 2);
	EXPECT_EQ(0, go_on(timed));
	memset(fates, 0, sizeof(fates));
	ASSERT_EQ(0, collect(rings, fates, 4, 2));
	EXPECT_EQ(0, fates[0].status);
	EXPECT_EQ(0, fates[1].status);
	expect_works(_metadata, timed);
}

/* A fence fails if one has that was late after it was taken, and in no other case. */
TEST_F(deadline, fences)
{
	struct tow_timed *timed = &self->timed;
	struct tow_rings *rings = &timed->user.rings;
	struct fate fates[6] = {};

	put(_metadata, rings, wait_for(timed, 1, 0), TOW_SQE_LINK, 0);
	put(_metadata, rings, nop(0, 30), 0, 1);
	put(_metadata, rings, nop(0, 0), TOW_SQE_FENCE, 2);
	put(_metadata, rings, nop(0, 60), 0, 3);
	submit(_metadata, rings, 4);
	ASSERT_EQ(0, collect(rings, fates, 6, 2));
	put(_metadata, rings, nop(0, 0), TOW_SQE_FENCE, 4);
	submit(_metadata, rings, 1);
	EXPECT_EQ(0, go_on(timed));
	ASSERT_EQ(0, collect(rings, fates, 6, 3));
	EXPECT_EQ(0, fates[0].status);
	EXPECT_EQ(-ETIMEDOUT, fates[1].status);
	EXPECT_EQ(-ECANCELED, fates[2].status);
	EXPECT_EQ(-ETIMEDOUT, fates[3].status);
	/* The fence before it has failed since, of which nobody knew. */
	EXPECT_EQ(-ECANCELED, fates[4].status);
	/* All was known. */
	put(_metadata, rings, wait_for(timed, 2, 0), TOW_SQE_LINK, 0);
	put(_metadata, rings, nop(0, 30), 0, 1);
	submit(_metadata, rings, 2);
	memset(fates, 0, sizeof(fates));
	ASSERT_EQ(0, collect(rings, fates, 6, 1));
	put(_metadata, rings, nop(0, 0), TOW_SQE_FENCE, 2);
	submit(_metadata, rings, 1);
	EXPECT_EQ(0, go_on(timed));
	ASSERT_EQ(0, collect(rings, fates, 6, 2));
	EXPECT_EQ(0, fates[2].status);
	expect_works(_metadata, timed);
}

#define LINKED		8000U
/* One in several sees the chain end, where the host runs both processors at once. */
#define FENCE_TRIES	64

static int stay_on(size_t cpu)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	return sched_setaffinity(0, sizeof(cpus), &cpus) ? -errno : 0;
}

/*
 * While a chain that has failed still ends, entry by entry, a fence that is taken was to
 * wait for what has not ended, and fails of it.
 */
TEST_F_TIMEOUT(deadline, fence_behind_a_long_end, 120)
{
	static struct fate fates[LINKED + 2];
	struct tow_timed *timed = &self->timed;
	struct tow_rings rings;
	struct tow_patience patience;
	double begin = tow_clock_begin();
	unsigned int i, try;
	bool during = false;

	ASSERT_EQ(0, tow_rings_make(timed->user.fd, LINKED, 0, &rings));
	for (try = 0; try < FENCE_TRIES && !during; try++) {
		memset(fates, 0, sizeof(fates));
		put(_metadata, &rings, wait_for(timed, 1, 1), TOW_SQE_LINK, 0);
		for (i = 1; i < LINKED; i++)
			put(_metadata, &rings, nop(0, 0), TOW_SQE_LINK * (i + 1 < LINKED), i);
		/* It ends where it was taken. */
		ASSERT_EQ(0, stay_on(0));
		submit(_metadata, &rings, LINKED);
		ASSERT_EQ(0, stay_on(1));
		/* Without a call, which would end all of it by itself. */
		for (patience = tow_patience(SLACK_S);
		     !tow_rings_ready(&rings) && tow_patient(&patience); )
			;
		put(_metadata, &rings, nop(0, 0), TOW_SQE_FENCE, LINKED);
		submit(_metadata, &rings, 1);
		during = tow_rings_ready(&rings) < LINKED;
		ASSERT_EQ(0, collect(&rings, fates, LINKED + 1, LINKED + 1));
		EXPECT_EQ(-ETIMEDOUT, fates[0].status);
		for (i = 1; i < LINKED; i++)
			ASSERT_EQ(-ECANCELED, fates[i].status);
		EXPECT_TRUE(fates[LINKED].status == -ECANCELED || !during);
	}
	tow_rings_end(&rings);
	expect_works(_metadata, timed);
	TOW_SEEN(during, begin)
		TH_LOG("the chain always ends before the fence is taken");
}

/* ---- what waits for its turn --------------------------------------------------------------- */

#define BULK_BYTES	(LARGE_BYTES - 64 * TOW_KB)
/* Where those behind it go: a page each, and two for the last one. */
#define BEHIND		(BULK_BYTES + 4096)
#define TRIES		8

static void renew(struct tow_timed *timed)
{
	memset(timed->target.at, 0, LARGE_BYTES);
	memset(timed->own.at + 4096, 0x44, BULK_BYTES - 4096);
	memset(timed->own.at + BEHIND, 0x55, 4096);
	memset(timed->own.at + BEHIND + 4096, 0x66, 4096);
}

/* Much that takes long, four that have a millisecond, and one that has time. */
static void put_turns(struct __test_metadata *_metadata, struct tow_timed *timed)
{
	const __u8 opcodes[] = { TOW_OP_WRITE, TOW_OP_READ, TOW_OP_FETCH_ADD };
	struct tow_rings *rings = &timed->user.rings;
	struct tow_sqe sqe;
	size_t i;

	put(_metadata, rings, move(timed, TOW_OP_WRITE, 4096, BULK_BYTES - 4096, 0), 0, 0);
	for (i = 0; i < ARRAY_SIZE(opcodes); i++) {
		sqe = move(timed, opcodes[i], BEHIND + i * 4096, i == 2 ? 0 : 4096, 1);
		sqe.operand = i == 2;
		put(_metadata, rings, sqe, 0, 1 + i);
	}
	sqe = tow_write_notify(&timed->user, timed->own.made.handle, 4096, timed->remote,
			       BEHIND + 3 * 4096ULL, 8192, timed->slot);
	sqe.timeout_ms = 1;
	put(_metadata, rings, sqe, 0, 4);
	put(_metadata, rings, move(timed, TOW_OP_WRITE, 0, 8, 0), 0, 5);
}

/* 0: each byte is the one, 1: each is the other, -1: neither. */
static int which(const char *at, size_t bytes, char one, char other)
{
	if (*at != one && *at != other)
		return -1;
	return memcmp(at, at + 1, bytes - 1) ? -1 : *at == other;
}

/* Of the one of this number: 1: all of it took place, 0: nothing did. */
static int took_place(const struct tow_timed *timed, unsigned int number)
{
	const char *there = timed->target.at + BEHIND + (size_t)(number - 1) * 4096;
	__u64 word;

	switch (number) {
	case 1:
		return which(there, 4096, 0, 0x55);
	case 2:
		return which(timed->own.at + BEHIND + 4096, 4096, 0x66, 0);
	case 3:
		memcpy(&word, there, sizeof(word));
		return tow_is_zero(there + 8, 4088) && word < 2 ? (int)word : -1;
	default:
		return which(there, 8192, 0, 0x44);
	}
}

/* How many of the four were told that it is late. */
static unsigned int check_turns(struct __test_metadata *_metadata, const struct tow_timed *timed,
				const struct fate fates[6], __u64 number)
{
	unsigned int i, late = 0;

	for (i = 1; i < 5; i++) {
		EXPECT_TRUE(!fates[i].status || fates[i].status == -ETIMEDOUT);
		late += fates[i].status == -ETIMEDOUT;
		/* Some of it was on its way: it says when that is over, and how. */
		if (fates[i].held && fates[i].released)
			continue;
		EXPECT_EQ(!fates[i].status || fates[i].held, took_place(timed, i))
			TH_LOG("entry %u: %d", i, fates[i].status);
	}
	number += !(fates[4].held ? fates[4].released : fates[4].status);
	EXPECT_EQ(number, tow_slot_await(timed->own.at, number));
	EXPECT_EQ(0, fates[0].status);
	EXPECT_EQ(0, fates[5].status);
	EXPECT_EQ(0, memcmp(timed->own.at + 4096, timed->target.at + 4096, BULK_BYTES - 4096));
	return late;
}

/* Each was told before the large one had ended, and had not begun. */
static bool all_in_time(const struct fate fates[6])
{
	unsigned int i;

	for (i = 1; i < 5; i++)
		if (!fates[i].status || fates[i].held || fates[i].order > fates[0].order)
			return false;
	return true;
}

/*
 * Behind much that takes long: told in time, and never sent.  The timer's thread may
 * wait for a processor until the large one has ended: then the next time tells.
 */
TEST_F_TIMEOUT(deadline, before_its_turn, 60)
{
	struct tow_timed *timed = &self->timed;
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	struct tow_rings *rings = &timed->user.rings;
	unsigned int tries;
	bool told = false;

	for (tries = 0; !told && (tries < TRIES || tow_patient(&patience)); tries++) {
		__u64 number = tow_slot_number(timed->own.at);
		struct fate fates[6] = {};

		renew(timed);
		put_turns(_metadata, timed);
		submit(_metadata, rings, 6);
		ASSERT_EQ(0, collect(rings, fates, 6, 6));
		EXPECT_TRUE(silence(rings));
		EXPECT_EQ(check_turns(_metadata, timed, fates, number), late_now(timed));
		told = all_in_time(fates);
	}
	EXPECT_TRUE(told);
	expect_works(_metadata, timed);
}

/* ---- a poller's ------------------------------------------------------------------------------ */

/* Five that may need two completions each are more than there ever is room for. */
TEST_F(deadline, polled_chains)
{
	struct tow_timed *timed = &self->timed;
	struct tow_rings rings;
	struct fate fates[5] = {};
	unsigned int i;

	ASSERT_EQ(0, tow_rings_make_polled(timed->user.fd, 8, 8, 0, &rings));
	for (i = 0; i < 5; i++)
		put(_metadata, &rings, nop(0, FAR_MS), i < 4 ? TOW_SQE_LINK : 0, i);
	tow_rings_publish(&rings);
	EXPECT_EQ(-EINVAL, tow_enter(rings.made.fd, 0, 0, 0));
	EXPECT_EQ(5, tow_rings_untaken(&rings));
	rings.sqes[2].timeout_ms = 0;
	rings.sqes[4].timeout_ms = 0;
	EXPECT_EQ(0, tow_enter(rings.made.fd, 0, 0, 0));
	ASSERT_EQ(0, collect(&rings, fates, 5, 5));
	for (i = 0; i < 5; i++)
		EXPECT_EQ(0, fates[i].status);
	tow_rings_end(&rings);
	expect_works(_metadata, timed);
}

/* It sleeps while there is room for one completion only, and one with a time-out is next. */
TEST_F(deadline, polled_room)
{
	struct tow_timed *timed = &self->timed;
	struct tow_patience patience = tow_patience(30);
	struct fate fates[4] = {};
	struct tow_rings rings;

	ASSERT_EQ(0, tow_rings_make_polled(timed->user.fd, 4, 4, 1, &rings));
	put(_metadata, &rings, wait_for(timed, 1, 0), 0, 0);
	put(_metadata, &rings, wait_for(timed, 1, FAR_MS), 0, 1);
	put(_metadata, &rings, wait_for(timed, 1, FAR_MS), 0, 2);
	put(_metadata, &rings, nop(0, 0), 0, 3);
	ASSERT_LE(0, tow_rings_offer(&rings));
	while ((tow_rings_untaken(&rings) != 2 || !tow_rings_need_wakeup(&rings)) &&
	       tow_patient(&patience))
		tow_test_sleep_ms(1);
	tow_test_sleep_ms(50);
	EXPECT_EQ(2, tow_rings_untaken(&rings));
	EXPECT_TRUE(tow_rings_need_wakeup(&rings));
	EXPECT_EQ(0, go_on(timed));
	ASSERT_EQ(0, collect(&rings, fates, 4, 2));
	EXPECT_EQ(0, tow_enter(rings.made.fd, 0, 0, 0));
	ASSERT_EQ(0, collect(&rings, fates, 4, 2));
	tow_rings_end(&rings);
	expect_works(_metadata, timed);
}

TEST_HARNESS_MAIN
