// SPDX-License-Identifier: GPL-2.0
/*
 * Collectives whose processes sleep: the kernel passes on what is whole.  The ranks are processes of
 * one node; one of them is stopped, or killed.
 */
/* build: link -ltowline */
#include <towline/collective.h>

#include "tow_ranks.h"

#define POOL_BYTES	"128m"
#define RANKS		4U
#define CALLS		20U
#define PIECE		4096U
/* Ten pieces: more than a small queue has room for. */
#define ELEMENTS	(9U * PIECE / 4 + 17)
#define PIECES		10U
/* Below any time-out. */
#define TOLD_S		15.0

/* What all processes see. */
struct board {
	_Atomic uint32_t waiting, asleep, go_on, done;
	_Atomic uint64_t forwarded;
};

static struct board *board;

FIXTURE(forward)
{
	struct tow_ranks ranks;
};

FIXTURE_SETUP(forward)
{
	ASSERT_EQ(0, tow_ranks_begin(&self->ranks, POOL_BYTES));
	board = tow_ranks_share(sizeof(*board));
	ASSERT_TRUE(board);
}

FIXTURE_TEARDOWN(forward)
{
	tow_ranks_end(&self->ranks);
	munmap(board, sizeof(*board));
}

/* ---- a rank ------------------------------------------------------------------- */

struct part {
	uint32_t rank;
	uint32_t kind;
	uint32_t entries;	/* of its queue */
	uint64_t count;
	int (*then)(const struct part *part, struct tow_collective *collective, uint32_t *data);
};

static uint64_t elements(const struct part *part)
{
	return part->kind == TOW_ALLGATHER ? part->count * RANKS : part->count;
}

/* As soon as nothing comes it sleeps. */
static int create(const struct part *part, struct tow_me *me, void *data,
		  struct tow_comm **comm, struct tow_collective **collective)
{
	struct tow_comm_attr how = { .size = sizeof(how), .spin_us = 1,
				     .entries = part->entries };
	struct tow_collective_attr attr = {
		.size = sizeof(attr), .kind = part->kind, .algorithm = TOW_ALGORITHM_RING,
		.dtype = { TOW_DTYPE_INT, 32, 1 }, .count = part->count, .out = data,
		.piece_bytes = PIECE,
	};
	int ret = tow_comm_create(me->group, me->arena, &how, comm, NULL);

	return ret ? ret : tow_collective_create(*comm, &attr, collective, NULL);
}

static int take_part(const void *arg, const char *session)
{
	const struct part *part = arg;
	struct tow_me me = { .rank = part->rank, .ranks = RANKS };
	struct tow_collective_stats stats = { .size = sizeof(stats) };
	struct tow_collective *collective;
	struct tow_comm *comm;
	uint32_t *data;
	double begin;
	int ret;

	if (tow_meet_anew(&me, 0, session))
		return 10;
	data = tow_arena_zeroed(me.arena, elements(part), sizeof(*data));
	if (!data || create(part, &me, data, &comm, &collective))
		return 11;
	ret = part->then(part, collective, data);
	if (tow_collective_stats(collective, &stats))
		return 12;
	atomic_fetch_add(&board->forwarded, stats.forwarded);
	begin = tow_test_now();
	tow_collective_destroy(collective);
	tow_arena_free(me.arena, data);
	if (tow_comm_destroy(comm))
		return 13;
	/* Nothing was left to the kernel that would not end. */
	if (tow_clock_end(begin, 5000) == TOW_MISSED)
		return 14;
	return tow_part(&me) ? 15 : ret;
}

static void start_all(struct tow_ranks *ranks, struct part part)
{
	for (part.rank = 0; part.rank < RANKS; part.rank++)
		tow_ranks_start(ranks, take_part, &part);
}

static uint32_t value(uint32_t rank, uint64_t at, uint32_t call)
{
	return (uint32_t)(rank * 1000003ULL + at * 7 + call * 65537ULL);
}

/* ---- what comes out ----------------------------------------------------------- */

static void give(const struct part *part, uint32_t *data, uint32_t call)
{
	uint64_t all = elements(part), at;

	for (at = 0; at < all; at++)
		data[at] = part->kind == TOW_ALLGATHER && at / part->count != part->rank ?
			   0 : value(part->rank, at, call);
}

static uint32_t wanted(const struct part *part, uint64_t at, uint32_t call)
{
	uint32_t sum = 0, rank;

	if (part->kind == TOW_BROADCAST)
		return value(0, at, call);
	if (part->kind == TOW_ALLGATHER)
		return value((uint32_t)(at / part->count), at, call);
	for (rank = 0; rank < RANKS; rank++)
		sum += value(rank, at, call);
	return sum;
}

/* Now and then one of them is late, so that others sleep. */
static int many_calls(const struct part *part, struct tow_collective *collective, uint32_t *data)
{
	uint32_t wrong = 0, call;
	uint64_t at;
	int ret;

	for (call = 0; call < CALLS; call++) {
		give(part, data, call);
		if (call % RANKS == part->rank)
			usleep(20000);
		ret = tow_collective_start(collective);
		if (!ret)
			ret = tow_collective_wait(collective, NULL);
		if (ret) {
			fprintf(stderr, "# rank %u, call %u: %d\n", part->rank, call, ret);
			return 20;
		}
		for (at = 0; at < elements(part); at++)
			wrong += data[at] != wanted(part, at, call);
	}
	return wrong ? 21 : 0;
}

static void all_right(struct __test_metadata *_metadata, struct tow_ranks *ranks,
		      uint32_t kind, uint32_t entries)
{
	start_all(ranks, (struct part){ .kind = kind, .entries = entries, .count = ELEMENTS,
					.then = many_calls });
	for (uint32_t i = 0; i < RANKS; i++)
		EXPECT_EQ(0, tow_ranks_end_of(ranks, i));
	EXPECT_LT(0, atomic_load(&board->forwarded));
	TH_LOG("%llu messages were forwarded",
	       (unsigned long long)atomic_load(&board->forwarded));
}

TEST_F_TIMEOUT(forward, allreduce, 60)
{
	all_right(_metadata, &self->ranks, TOW_ALLREDUCE, 0);
}

TEST_F_TIMEOUT(forward, allgather, 60)
{
	all_right(_metadata, &self->ranks, TOW_ALLGATHER, 0);
}

TEST_F_TIMEOUT(forward, broadcast, 60)
{
	all_right(_metadata, &self->ranks, TOW_BROADCAST, 0);
}

/* Chains are shorter, and there are more of them. */
TEST_F_TIMEOUT(forward, little_room, 60)
{
	all_right(_metadata, &self->ranks, TOW_ALLGATHER, 16);
}

/* ---- who is stopped, or dies, while it sleeps --------------------------------- */

/*
 * Rank 0 is late: all others wait for it, and do so until there are all.  By then each has
 * left it to its kernel to pass on what comes; it looks after that many times in a second.
 */
static bool falls_asleep(const struct part *part, struct tow_collective *collective)
{
	atomic_fetch_add(&board->waiting, 1);
	if (!part->rank)
		return true;
	if (!tow_becomes(&board->waiting, RANKS - 1) ||
	    tow_collective_wait_for(collective, tow_test_slow() ? 2000000 : 1000000, NULL))
		return false;
	atomic_fetch_add(&board->asleep, 1);
	return true;
}

static int one_broadcast(const struct part *part, struct tow_collective *collective,
			 uint32_t *data)
{
	uint32_t wrong = 0;
	uint64_t at;

	give(part, data, 1);
	if (!part->rank && !tow_becomes(&board->go_on, 1))
		return 30;
	if (tow_collective_start(collective))
		return 31;
	if (!falls_asleep(part, collective))
		return 34;
	if (tow_collective_wait(collective, NULL))
		return 32;
	for (at = 0; at < part->count; at++)
		wrong += data[at] != wanted(part, at, 1);
	atomic_fetch_add(&board->done, 1);
	return wrong ? 33 : 0;
}

static void all_but_rank_0_sleep(struct __test_metadata *_metadata, struct tow_ranks *ranks,
				 int (*then)(const struct part *part,
					     struct tow_collective *collective, uint32_t *data))
{
	start_all(ranks, (struct part){ .kind = TOW_BROADCAST, .count = ELEMENTS,
					.then = then });
	ASSERT_TRUE(tow_becomes(&board->asleep, RANKS - 1));
}

/* A process that does nothing at all holds nobody up: its kernel does the work. */
TEST_F_TIMEOUT(forward, for_who_is_stopped, 60)
{
	struct tow_ranks *ranks = &self->ranks;

	all_but_rank_0_sleep(_metadata, ranks, one_broadcast);
	ASSERT_EQ(0, kill(ranks->pids[1], SIGSTOP));
	atomic_store(&board->go_on, 1);
	EXPECT_TRUE(tow_becomes(&board->done, RANKS - 1));
	ASSERT_EQ(0, kill(ranks->pids[1], SIGCONT));
	for (uint32_t i = 0; i < RANKS; i++)
		EXPECT_EQ(0, tow_ranks_end_of(ranks, i));
	EXPECT_EQ(RANKS, atomic_load(&board->done));
	/* By ranks 1 and 2. */
	EXPECT_EQ(2 * PIECES, atomic_load(&board->forwarded));
}

/* A rank is done when the next one has it all, whoever has died behind that one. */
static bool may_succeed(const struct part *part)
{
	return part->rank + 1 < atomic_load(&board->done);
}

static int blames(const struct part *part, struct tow_collective *collective, uint32_t *data)
{
	uint32_t blamed = TOW_NO_RANK;
	double begin;
	int ret;

	give(part, data, 1);
	if (!part->rank && !tow_becomes(&board->go_on, 1))
		return 40;
	if (tow_collective_start(collective))
		return 41;
	if (!falls_asleep(part, collective))
		return 43;
	begin = tow_test_now();
	ret = tow_collective_wait(collective, &blamed);
	/* What was to be sent is the caller's again. */
	memset(data, 0xff, part->count * sizeof(*data));
	if (!ret && may_succeed(part))
		return 0;
	if (ret != -ESTALE || blamed != atomic_load(&board->done) ||
	    tow_clock_end(begin, TOLD_S * 1e3) == TOW_MISSED) {
		fprintf(stderr, "# rank %u: %d, rank %u after %.1f s\n", part->rank, ret, blamed,
			tow_test_now() - begin);
		return 42;
	}
	return 0;
}

static bool exports_fall_to(long long wanted)
{
	for (uint32_t ms = 0; ms < TOW_RANKS_WAIT_MS; ms++) {
		if (tow_get_count("stats/exports") <= wanted)
			return true;
		usleep(1000);
	}
	return false;
}

/* Until its exports are gone what is written to it arrives, and its kernel passes things on. */
static void dies(struct __test_metadata *_metadata, struct tow_ranks *ranks, uint32_t rank)
{
	long long exports;

	all_but_rank_0_sleep(_metadata, ranks, blames);
	exports = tow_get_count("stats/exports");
	atomic_store(&board->done, rank);
	ASSERT_EQ(0, kill(ranks->pids[rank], SIGKILL));
	EXPECT_EQ(SIGKILL, tow_ranks_end_of(ranks, rank));
	/* All have as many; who has been told by then may have left. */
	EXPECT_TRUE(exports_fall_to(exports - exports / RANKS));
	atomic_store(&board->go_on, 1);
	for (uint32_t i = 0; i < RANKS; i++) {
		if (i != rank)
			EXPECT_EQ(0, tow_ranks_end_of(ranks, i));
	}
}

TEST_F_TIMEOUT(forward, the_first_dies, 60)
{
	dies(_metadata, &self->ranks, 0);
}

TEST_F_TIMEOUT(forward, the_second_dies, 60)
{
	dies(_metadata, &self->ranks, 1);
}

TEST_F_TIMEOUT(forward, the_third_dies, 60)
{
	dies(_metadata, &self->ranks, 2);
}

TEST_F_TIMEOUT(forward, the_last_dies, 60)
{
	dies(_metadata, &self->ranks, RANKS - 1);
}

TEST_HARNESS_MAIN
