// SPDX-License-Identifier: GPL-2.0
/*
 * Entries that are on their way when they are late: each is HELD, and RELEASED when that
 * is over; no more of it is sent than was; its memory is nobody else's meanwhile.  And
 * thousands with deadlines by chance, while data flows.
 *
 * $TOW_COUNT (soak): how many thousands.
 */
#include <signal.h>
#include <sys/wait.h>
#include "tow_deadline.h"

#define MUCH		(64 * TOW_MB)	/* on its way at once: all of it */
#define TRIES		8
#define USUAL_THOUSANDS	10

FIXTURE(held)
{
	struct tow_timed timed;
};

FIXTURE_SETUP(held)
{
	ASSERT_EQ(0, tow_timed_make(&self->timed));
	memset(self->timed.own.at + 4096, 0x77, LARGE_BYTES - 4096);
}

FIXTURE_TEARDOWN_PARENT(held)
{
	EXPECT_EQ(0, tow_timed_restore(&self->timed));
}

/* A large one, of which a little is on its way when it is late. */
static struct tow_sqe large(const struct tow_timed *timed, __u8 opcode, __u32 timeout_ms)
{
	return move(timed, opcode, 4096, LARGE_BYTES - 4096, timeout_ms);
}

#define LARGE_PAGES	(LARGE_BYTES / 4096 - 1)

/* Pages of it that are there. */
static size_t arrived(const struct tow_timed *timed)
{
	size_t pages = 0, at;

	for (at = 4096; at < LARGE_BYTES; at += 4096)
		pages += !memcmp(timed->own.at + at, timed->target.at + at, 4096);
	return pages;
}

/* It is over: all of it is there, or it says that it is not; and nothing moves any more. */
static void expect_over(struct __test_metadata *_metadata, const struct tow_timed *timed,
			const struct fate *fate)
{
	int status = fate->held ? fate->released : fate->status;
	size_t there = arrived(timed);

	EXPECT_TRUE(!status || status == -ETIMEDOUT);
	if (status) {
		EXPECT_GT(LARGE_PAGES, there);
		tow_test_sleep_ms(20);
	} else {
		EXPECT_EQ(LARGE_PAGES, there);
	}
	EXPECT_EQ(there, arrived(timed));
}

/* Other bytes here than there. */
static void renew(struct tow_timed *timed)
{
	memset(timed->own.at + 4096, 0x77, LARGE_BYTES - 4096);
	memset(timed->target.at, 0, LARGE_BYTES);
}

/*
 * After so many milliseconds some of a large one is on its way, and far from all: that
 * depends on the machine.
 */
static __u32 soon(struct __test_metadata *_metadata, struct tow_timed *timed)
{
	struct tow_rings *rings = &timed->user.rings;
	unsigned int tries;
	__u32 ms = 1;

	for (tries = 0; tries < 2 * TRIES && ms < 1024; tries++) {
		struct fate fate = {};

		put(_metadata, rings, large(timed, TOW_OP_WRITE, ms), 0, 0);
		submit(_metadata, rings, 1);
		EXPECT_EQ(0, collect(rings, &fate, 1, 1));
		if (fate.held)
			break;
		/* It was late before any of it was sent, or, after a stall, done in time. */
		EXPECT_TRUE(!fate.status || fate.status == -ETIMEDOUT);
		ms = fate.status ? 2 * ms : (ms + 1) / 2;
	}
	late_now(timed);
	return 2 * ms;
}

/* What was measured beside others may be too long, so other tries have half of it, or 1. */
static __u32 sooner(__u32 ms, unsigned int tries)
{
	return tries % 3 == 0 ? ms : tries % 3 == 1 ? (ms + 1) / 2 : 1;
}

/*
 * Until it is HELD: on a busy machine it is now and then late before any of it was sent,
 * or done in time.
 */
static void be_held(struct __test_metadata *_metadata, struct tow_timed *timed,
		    __u64 region, struct fate *fate)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	struct tow_rings *rings = &timed->user.rings;
	struct tow_sqe sqe;
	struct tow_cqe cqe;
	unsigned int tries;

	memset(fate, 0, sizeof(*fate));
	for (tries = 0; !fate->held && (tries < TRIES || tow_patient(&patience)); tries++) {
		sqe = large(timed, TOW_OP_WRITE, soon(_metadata, timed));
		sqe.region = region;
		memset(fate, 0, sizeof(*fate));
		put(_metadata, rings, sqe, 0, 0);
		submit(_metadata, rings, 1);
		ASSERT_EQ(0, tow_rings_wait(rings, &cqe));
		ASSERT_TRUE(note(fate, &cqe, 0));
	}
	ASSERT_TRUE(fate->held);
}

/* Once HELD, and once RELEASED; what is behind it waits for both.  Of success nothing is said. */
static void do_silent(struct __test_metadata *_metadata, struct tow_rings *rings,
		      struct tow_sqe entry, struct fate *fate)
{
	struct fate fates[2] = {};
	unsigned int order = 0;
	struct tow_cqe cqe;

	put(_metadata, rings, entry, TOW_SQE_SILENT, 0);
	put(_metadata, rings, nop(0, 0), TOW_SQE_FENCE, 1);
	submit(_metadata, rings, 2);
	while (!fates[1].firsts) {
		ASSERT_EQ(0, tow_rings_wait(rings, &cqe));
		ASSERT_GT(2, cqe.user_data);
		ASSERT_TRUE(note(&fates[cqe.user_data], &cqe, order++));
	}
	EXPECT_EQ(fates[0].held, fates[0].seconds);
	EXPECT_EQ(fates[0].firsts ? -ECANCELED : 0, fates[1].status);
	*fate = fates[0];
}

/* No more of it is sent.  How long it takes depends on the machine: one of these is cut. */
TEST_F_TIMEOUT(held, cut, 60)
{
	const __u8 opcodes[] = { TOW_OP_WRITE, TOW_OP_READ };
	struct tow_timed *timed = &self->timed;
	struct tow_rings *rings = &timed->user.rings;
	unsigned int i, tries;

	for (i = 0; i < 2; i++) {
		struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
		struct fate fate = {};

		for (tries = 0; !fate.released && (tries < TRIES || tow_patient(&patience));
		     tries++) {
			__u32 ms = soon(_metadata, timed);

			renew(timed);
			do_silent(_metadata, rings, large(timed, opcodes[i], ms), &fate);
			expect_over(_metadata, timed, &fate);
			EXPECT_TRUE(silence(rings));
			EXPECT_EQ(fate.firsts, late_now(timed));
		}
		TH_LOG("cut at the %u. time", tries);
		EXPECT_TRUE(fate.held);
		EXPECT_EQ(-ETIMEDOUT, fate.released);
	}
	expect_works(_metadata, timed);
}

/*
 * All of it is on its way: it takes place, HELD or not.  Of small ones that became one
 * message each has its own word.
 */
TEST_F_TIMEOUT(held, all_on_its_way, 60)
{
	struct tow_timed *timed = &self->timed;
	struct tow_rings *rings = &timed->user.rings;
	size_t piece = (LARGE_BYTES - 4096) / 8, place;
	__u32 ms = soon(_metadata, timed);
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	unsigned int i, held = 0, at;

	ASSERT_EQ(0, tow_sysfs_set("inflight_bytes", MUCH));
	for (i = 0; (i < TRIES && held < 8) || (!held && tow_patient(&patience)); i++) {
		__u32 now_ms = sooner(ms, i);
		struct fate fates[8] = {};

		renew(timed);
		for (at = 0; at < 8; at++)
			put(_metadata, rings,
			    move(timed, TOW_OP_WRITE, 4096 + at * piece, piece, now_ms), 0, at);
		submit(_metadata, rings, 8);
		ASSERT_EQ(0, collect(rings, fates, 8, 8));
		for (at = 0; at < 8; at++) {
			held += fates[at].held;
			/* Unless none of it was sent. */
			EXPECT_EQ(0, fates[at].released);
			place = 4096 + at * piece;
			EXPECT_EQ(!fates[at].status || fates[at].held,
				  !memcmp(timed->own.at + place, timed->target.at + place, piece));
		}
	}
	EXPECT_LT(0, held);
	expect_works(_metadata, timed);
}

/* It says that it is over, though it was to say nothing of success. */
TEST_F_TIMEOUT(held, silent, 60)
{
	struct tow_timed *timed = &self->timed;
	struct tow_rings *rings = &timed->user.rings;
	__u32 ms = soon(_metadata, timed);
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	unsigned int i, held = 0;
	struct tow_cqe cqe;

	ASSERT_EQ(0, tow_sysfs_set("inflight_bytes", MUCH));
	for (i = 0; !held && (i < TRIES || tow_patient(&patience)); i++) {
		renew(timed);
		put(_metadata, rings, large(timed, TOW_OP_WRITE, sooner(ms, i)), TOW_SQE_SILENT,
		    0);
		/* Behind it, so that something comes in any case. */
		put(_metadata, rings, nop(0, 0), TOW_SQE_FENCE, 1);
		submit(_metadata, rings, 2);
		ASSERT_EQ(0, tow_rings_wait(rings, &cqe));
		if (cqe.user_data)
			continue;
		EXPECT_EQ(-ETIMEDOUT, cqe.status);
		if (cqe.flags) {
			held++;
			EXPECT_EQ(TOW_CQE_HELD, cqe.flags);
			ASSERT_EQ(0, tow_rings_wait(rings, &cqe));
			EXPECT_EQ(TOW_CQE_RELEASED, cqe.flags);
			EXPECT_EQ(0, cqe.user_data);
			EXPECT_EQ(0, cqe.status);
			EXPECT_EQ(LARGE_PAGES, arrived(timed));
		}
		ASSERT_EQ(0, tow_rings_wait(rings, &cqe));
		EXPECT_EQ(1, cqe.user_data);
		EXPECT_EQ(-ECANCELED, cqe.status);
	}
	EXPECT_LT(0, held);
	expect_works(_metadata, timed);
}

/*
 * A large one that is HELD as a rule, with a chain, a fence and one more behind it: all
 * but the last share its fate.
 */
static void do_chain(struct __test_metadata *_metadata, struct tow_timed *timed,
		     struct fate fates[5])
{
	struct tow_rings *rings = &timed->user.rings;
	__u32 ms = soon(_metadata, timed);
	struct tow_cqe cqe;
	unsigned int i;

	put(_metadata, rings, large(timed, TOW_OP_WRITE, ms), TOW_SQE_LINK, 0);
	put(_metadata, rings, nop(0, FAR_MS), TOW_SQE_LINK, 1);
	put(_metadata, rings, nop(0, 0), 0, 2);
	put(_metadata, rings, nop(0, 0), TOW_SQE_FENCE, 3);
	submit(_metadata, rings, 4);
	ASSERT_EQ(0, tow_rings_wait(rings, &cqe));
	ASSERT_EQ(0, cqe.user_data);
	ASSERT_TRUE(note(&fates[0], &cqe, 0));
	put(_metadata, rings, nop(0, 0), 0, 4);
	submit(_metadata, rings, 1);
	ASSERT_EQ(0, collect(rings, fates, 5, is_over(&fates[0]) ? 4 : 5));
	for (i = 1; i < 4; i++) {
		EXPECT_EQ(fates[0].status ? -ECANCELED : 0, fates[i].status);
	}
	EXPECT_EQ(0, fates[4].status);
	EXPECT_GT(fates[2].order, fates[1].order);
	EXPECT_GT(fates[3].order, fates[0].order);
	EXPECT_GT(fates[3].order, fates[2].order);
	EXPECT_GT(fates[4].order, fates[3].order);
}

/*
 * What is linked to it ends at once, and does not wait until it is RELEASED: one after
 * the other all the same, so on a busy machine the release may be faster now and then.
 * A fence waits for both, and has to know.
 */
TEST_F_TIMEOUT(held, chains_and_fences, 60)
{
	struct tow_timed *timed = &self->timed;
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	struct tow_rings *rings = &timed->user.rings;
	struct fate fates[5] = {};
	bool at_once = false;
	unsigned int i;

	for (i = 0; !at_once && (i < TRIES || tow_patient(&patience)); i++) {
		memset(fates, 0, sizeof(fates));
		do_chain(_metadata, timed, fates);
		at_once = fates[0].held && fates[2].order < fates[0].order;
	}
	EXPECT_TRUE(at_once);
	/* One that was taken when it was known. */
	memset(fates, 0, sizeof(fates));
	be_held(_metadata, timed, timed->own.made.handle, &fates[0]);
	put(_metadata, rings, nop(0, 0), TOW_SQE_FENCE, 1);
	submit(_metadata, rings, 1);
	ASSERT_EQ(0, collect(rings, fates, 5, 2));
	EXPECT_EQ(0, fates[0].order);
	EXPECT_EQ(1, fates[1].order);
	EXPECT_EQ(0, fates[1].status);
	expect_works(_metadata, timed);
}

/* A notification behind what was cut is not sent. */
TEST_F_TIMEOUT(held, notifications, 60)
{
	struct tow_timed *timed = &self->timed;
	struct tow_rings *rings = &timed->user.rings;
	unsigned int i;

	for (i = 0; i < 2 * TRIES; i++) {
		__u64 number = tow_slot_number(timed->own.at);
		struct fate fate = {};
		struct tow_sqe sqe;

		renew(timed);
		sqe = tow_write_notify(&timed->user, timed->own.made.handle, 4096, timed->remote,
				       4096, LARGE_BYTES - 4096, timed->slot);
		sqe.timeout_ms = i < TRIES ? 1 : 1 + i * i / 8;
		put(_metadata, rings, sqe, 0, 0);
		submit(_metadata, rings, 1);
		ASSERT_EQ(0, collect(rings, &fate, 1, 1));
		expect_over(_metadata, timed, &fate);
		number += !(fate.held ? fate.released : fate.status);
		EXPECT_EQ(number, tow_slot_await(timed->own.at, number));
	}
	expect_works(_metadata, timed);
}

/* ---- memory, ends ------------------------------------------------------------------------- */

/* Nobody else gets it before it is RELEASED. */
TEST_F_TIMEOUT(held, memory, 60)
{
	struct tow_timed *timed = &self->timed;
	struct tow_rings *rings = &timed->user.rings;
	struct tow_mapped lost;
	struct fate fate = {};
	uint64_t used, still;

	ASSERT_EQ(0, tow_mapped_make(timed->user.fd, LARGE_BYTES, &lost));
	used = tow_sysfs_get("pool_used_bytes");
	be_held(_metadata, timed, lost.made.handle, &fate);
	munmap(lost.at, lost.bytes);
	ASSERT_EQ(0, tow_region_end(timed->user.fd, &lost.made));
	still = tow_sysfs_get("pool_used_bytes");
	if (!tow_rings_ready(rings)) {
		EXPECT_EQ(used, still);
	}
	ASSERT_EQ(0, collect(rings, &fate, 1, 1));
	EXPECT_EQ(used - LARGE_BYTES, tow_sysfs_wait("pool_used_bytes", used - LARGE_BYTES));
	expect_works(_metadata, timed);
}

/* Entries of all kinds, with time left, late, HELD and over. */
static int fill_up(const struct tow_timed *timed, struct tow_rings *rings)
{
	unsigned int i;
	int ret;

	for (i = 0; i < 30; i++) {
		struct tow_sqe sqe = i % 5 == 1 ? large(timed, TOW_OP_READ, 1 + i) :
				     i % 5 == 2 ? wait_for(timed, 1000, 1 + 3 * i) :
				     i % 5 == 3 ? wait_for(timed, 1000, FAR_MS) :
				     i % 5 == 4 ? nop(TOW_SQE_FENCE, 20) :
				     move(timed, TOW_OP_WRITE, 4096, 4096, 40);

		sqe.flags |= i % 7 ? 0 : TOW_SQE_LINK;
		if (!tow_rings_put(rings, &sqe))
			return -EXFULL;
	}
	ret = tow_rings_enter(rings, 0, 0);
	return ret == 30 ? 0 : ret < 0 ? ret : -EXFULL;
}

/* A queue that ends takes its deadlines with it, and leaves nothing behind. */
TEST_F_TIMEOUT(held, ends, 60)
{
	struct tow_timed *timed = &self->timed;
	uint64_t queues = tow_sysfs_get("stats/queues");
	struct tow_user user = timed->user;
	unsigned int i;

	for (i = 0; i < TRIES; i++) {
		struct tow_channel_open channel;

		ASSERT_EQ(0, tow_rings_make(user.fd, ENTRIES, 0, &user.rings));
		ASSERT_EQ(0, tow_channel_open(user.rings.made.fd, user.peer, 0, &channel));
		ASSERT_EQ(0, fill_up(timed, &user.rings));
		tow_test_sleep_ms(i * 3 % 40);
		tow_rings_end(&user.rings);
	}
	EXPECT_EQ(queues, tow_sysfs_wait("stats/queues", queues));
	expect_works(_metadata, timed);
}

/* A process that ends, too. */
static void be_killed(void)
{
	struct tow_timed timed;
	__u64 exported;

	memset(&timed, 0, sizeof(timed));
	if (tow_user_make(&timed.user, ENTRIES, 0) ||
	    tow_mapped_make(timed.user.fd, LARGE_BYTES / 2, &timed.own) ||
	    tow_publish_for(timed.user.fd, timed.own.made.handle, "other", LARGE_BYTES / 2,
			    TOW_ALL_RIGHTS, &exported) ||
	    tow_find_for(timed.user.fd, timed.user.peer, "other", TOW_ALL_RIGHTS, &timed.remote))
		_exit(1);
	for (;;) {
		struct tow_sqe sqe = move(&timed, TOW_OP_READ, 0, LARGE_BYTES / 2, 1);
		int ret;

		while (tow_rings_put(&timed.user.rings, &sqe))
			;
		/* Room may come without a completion. */
		ret = tow_rings_enter(&timed.user.rings, 1, TOW_LONG_US);
		if (ret < 0 && ret != -EBUSY)
			_exit(2);
		tow_rings_seen(&timed.user.rings, tow_rings_ready(&timed.user.rings));
	}
}

TEST_F_TIMEOUT(held, killed, 60)
{
	struct tow_timed *timed = &self->timed;
	uint64_t used = tow_sysfs_get("pool_used_bytes");
	int i, status;
	pid_t child;

	for (i = 0; i < 5; i++) {
		child = fork();
		ASSERT_LE(0, child);
		if (!child)
			be_killed();
		tow_test_sleep_ms(100 + 20 * i);
		kill(child, SIGKILL);
		ASSERT_EQ(child, waitpid(child, &status, 0));
		EXPECT_TRUE(WIFSIGNALED(status))
			TH_LOG("it ended by itself: %d", WEXITSTATUS(status));
	}
	EXPECT_EQ(used, tow_sysfs_wait("pool_used_bytes", used));
	expect_works(_metadata, timed);
}

/* ---- many ------------------------------------------------------------------------------------ */

/* As many as a queue has: each is late in its time. */
TEST_F_TIMEOUT(held, many, 120)
{
	unsigned int count = tow_test_slow() ? 4096 : TOW_CQ_ENTRIES_MAX / 2, i, early = 0, other = 0;
	struct fate *fates = calloc(count, sizeof(*fates));
	struct tow_random random = { .state = 5 };
	struct tow_timed *timed = &self->timed;
	__u32 *times = calloc(count, sizeof(*times));
	struct tow_rings rings;
	double begin;

	ASSERT_TRUE(fates && times);
	ASSERT_EQ(0, tow_rings_make(timed->user.fd, count, 2 * count, &rings));
	for (i = 0; i < count; i++) {
		times[i] = 1 + (__u32)tow_random_below(&random, 1500);
		put(_metadata, &rings, wait_for(timed, 1000, times[i]), 0, i);
	}
	begin = tow_test_now();
	submit(_metadata, &rings, (int)count);
	ASSERT_EQ(0, collect(&rings, fates, count, count));
	TH_LOG("%u in %.3f s", count, tow_test_now() - begin);
	for (i = 0; i < count; i++) {
		early += fates[i].at < begin + times[i] / 1e3;
		other += fates[i].status != -ETIMEDOUT;
	}
	EXPECT_EQ(0, early);
	EXPECT_EQ(0, other);
	tow_rings_end(&rings);
	free(fates);
	free(times);
	expect_works(_metadata, timed);
}

/* What one of them is by chance: its place is its own. */
#define PLACE		1024U
#define PLACES		(LARGE_BYTES / 2 / PLACE)

struct chances {
	struct tow_timed *timed;
	struct tow_random random;
	struct fate fates[PLACES];
};

/* From 1 ms to 10 s, most of them short; every fourth has none. */
static __u32 random_time(struct tow_random *random)
{
	uint64_t roll = tow_random(random);
	static const __u32 ends[] = { 0, 5, 20, 100, 20, 5, 1000, 10000 };
	__u32 end = ends[roll % ARRAY_SIZE(ends)];

	return end ? 1 + (__u32)((roll >> 8) % end) : 0;
}

static struct tow_sqe random_entry(struct chances *chances, unsigned int number)
{
	struct tow_random *random = &chances->random;
	size_t place = 4096 + (size_t)number * PLACE;
	uint64_t roll = tow_random(random);
	struct tow_sqe sqe;

	/* The target's other half is for what only takes long. */
	if (roll % 64 == 0)
		sqe = tow_move(&chances->timed->user, TOW_OP_WRITE, chances->timed->own.made.handle,
			       0, chances->timed->remote, LARGE_BYTES / 2 + 8192,
			       (roll >> 8) % (LARGE_BYTES / 4));
	else
		sqe = move(chances->timed, TOW_OP_WRITE, place, 1 + (roll >> 8) % PLACE, 0);
	sqe.timeout_ms = random_time(random);
	sqe.flags = (roll >> 40) % 8 ? 0 : TOW_SQE_LINK;
	sqe.flags |= (roll >> 44) % 64 ? 0 : TOW_SQE_FENCE;
	sqe.user_data = number;
	return sqe;
}

/*
 * A round: each entry writes to a place of its own.  What succeeded is there; what was
 * neither HELD nor succeeded is not.
 */
static void one_round(struct __test_metadata *_metadata, struct chances *chances,
		      struct tow_rings *rings, unsigned int count)
{
	struct tow_timed *timed = chances->timed;
	unsigned int put = 0, over = 0, taken = 0, order = 0, i;
	static struct tow_sqe sqes[PLACES];
	struct tow_cqe cqe;
	int ret;

	memset(chances->fates, 0, sizeof(chances->fates));
	memset(timed->target.at, 0, LARGE_BYTES);
	tow_random_fill(&chances->random, timed->own.at + 4096, LARGE_BYTES / 2);
	while (over < count) {
		while (put < count) {
			sqes[put] = random_entry(chances, put);
			if (!tow_rings_put(rings, &sqes[put]))
				break;
			put++;
		}
		ret = tow_rings_enter(rings, 1, TOW_LONG_US);
		ASSERT_TRUE(ret >= 0 || ret == -EBUSY);
		/* Room may come without a completion. */
		if (ret == -EBUSY)
			tow_enter(rings->made.fd, 0, 1, 10000);
		taken += ret > 0 ? (unsigned int)ret : 0;
		while (tow_rings_take(rings, &cqe)) {
			ASSERT_GT(count, cqe.user_data);
			ASSERT_TRUE(note(&chances->fates[cqe.user_data], &cqe, order++));
			over += is_over(&chances->fates[cqe.user_data]);
		}
		ASSERT_LE(over, taken);
	}
	for (i = 0; i < count; i++) {
		const struct fate *fate = &chances->fates[i];
		size_t place = 4096 + (size_t)i * PLACE;
		const char *there = timed->target.at + place;

		if (sqes[i].offset != place)
			continue;
		if (!(fate->held ? fate->released : fate->status)) {
			EXPECT_EQ(0, memcmp(timed->own.at + place, there, sqes[i].bytes));
		} else if (!fate->held) {
			EXPECT_TRUE(tow_is_zero(there, PLACE));
		}
		EXPECT_TRUE(tow_is_zero(there + (sqes[i].bytes + 7) / 8 * 8,
					PLACE - (sqes[i].bytes + 7) / 8 * 8));
	}
}

TEST_F_TIMEOUT(held, by_chance, 120)
{
	int left = 1000 * tow_test_count(tow_test_slow() ? 1 : USUAL_THOUSANDS), rounds = 0;
	struct chances *chances = calloc(1, sizeof(*chances));
	unsigned int held = 0, late = 0, failed = 0, i, count;
	struct tow_timed *timed = &self->timed;
	struct tow_channel_open channel;
	struct tow_rings rings;

	ASSERT_TRUE(chances);
	chances->timed = timed;
	chances->random.state = 0x646561646c696e65;
	ASSERT_EQ(0, tow_rings_make(timed->user.fd, 256, 1024, &rings));
	ASSERT_EQ(0, tow_channel_open(rings.made.fd, timed->user.peer, 0, &channel));
	for (; left > 0; left -= (int)count) {
		count = left < (int)PLACES - 8 ? (unsigned int)left : (unsigned int)PLACES - 8;
		ASSERT_EQ(0, tow_sysfs_set("inflight_bytes", rounds++ % 2 ? MUCH : 4 * LITTLE));
		one_round(_metadata, chances, &rings, count);
		for (i = 0; i < count; i++) {
			held += chances->fates[i].held;
			late += chances->fates[i].status == -ETIMEDOUT;
			failed += chances->fates[i].status && chances->fates[i].status != -ETIMEDOUT;
		}
	}
	TH_LOG("%u late, %u of them held, %u ended with others", late, held, failed);
	EXPECT_LT(0, late);
	EXPECT_EQ(late, late_now(timed));
	EXPECT_TRUE(silence(&rings));
	tow_rings_end(&rings);
	free(chances);
	expect_works(_metadata, timed);
}

TEST_HARNESS_MAIN
