// SPDX-License-Identifier: GPL-2.0
/*
 * A job server against the real module: it and its workers are processes of one node.  What
 * workers are shown is what the server wrote for them, once and in order; how far ahead it is;
 * ranks that die, are late, fail or leave; feeding that goes on after that; and what is refused.
 */
/* build: link -ltowline */
#include <towline/feed.h>

#include "tow_ranks.h"

#define POOL_BYTES	"128m"
#define STEPS		40U
#define DEPTH		3U
/* What the server has of its own for each worker. */
#define LETTERS		2U
#define SOON_MS		15000U
#define LONG_MS		60000U
/* Who is told of a rank that died is told in this time, far below any time-out. */
#define TOLD_MS		15000U
/* Nobody has so many. */
#define ENDLESS		1000000000ULL

/* What all processes see. */
struct board {
	_Atomic uint32_t there;
	_Atomic uint32_t go_on;
	_Atomic uint32_t filled[TOW_RANKS_TESTED];
	_Atomic uint32_t shown[TOW_RANKS_TESTED];
};

static struct board *board;

/* ---- batches ------------------------------------------------------------------ */

#define TENSORS	5U

static const struct tow_tensor_type types[TENSORS] = {
	{ { TOW_DTYPE_FLOAT, 32, 1 }, 2, { 33, 64 } },
	{ { TOW_DTYPE_INT, 8, 1 }, 1, { 1 } },
	{ { TOW_DTYPE_FLOAT, 64, 1 }, 2, { 7, 0 } },
	{ { TOW_DTYPE_UINT, 64, 1 }, 0, { 0 } },
	{ { TOW_DTYPE_UINT, 8, 1 }, 1, { 40009 } },
};

static uint64_t bytes_of(uint32_t tensor)
{
	uint64_t bytes = 0;

	tow_tensor_bytes(&types[tensor], &bytes);
	return bytes;
}

static uint64_t bytes_of_all(void)
{
	uint64_t all = 0;

	for (uint32_t i = 0; i < TENSORS; i++)
		all += bytes_of(i);
	return all;
}

static uint8_t byte_of(uint64_t rank, uint64_t step, uint64_t tensor, uint64_t at)
{
	return (uint8_t)((at * 31 + tensor * 17 + rank * 101 + step * 59) >> (at % 3));
}

static void write_batch(uint32_t rank, uint64_t step, void *const *tensors)
{
	for (uint32_t i = 0; i < TENSORS; i++)
		for (uint64_t at = 0; at < bytes_of(i); at++)
			((uint8_t *)tensors[i])[at] = byte_of(rank, step, i, at);
}

static bool is_batch(uint32_t rank, uint64_t step, void *const *tensors)
{
	for (uint32_t i = 0; i < TENSORS; i++) {
		if ((uintptr_t)tensors[i] % 64)
			return false;
		for (uint64_t at = 0; at < bytes_of(i); at++)
			if (((uint8_t *)tensors[i])[at] != byte_of(rank, step, i, at))
				return false;
	}
	return true;
}

/* ---- taking part -------------------------------------------------------------- */

struct part {
	uint32_t rank, ranks, restart, depth, timeout_ms;
	uint64_t steps;			/* of worker 1; each next one has one less */
	uint64_t first;			/* the step that a worker asks for */
	/* A worker's: when it was shown that step; what is not 0 ends it as it is. */
	int (*at)(const struct part *part, uint64_t step);
	int fails;			/* what the server's fill function does in step 5 */
	/* What tow_feed_serve() and tow_feed_next() end with; and by whom. */
	int want;
	uint32_t blamed;
	bool again;			/* after that, with the next start */
};

FIXTURE(feed)
{
	struct tow_ranks ranks;
};

FIXTURE_SETUP(feed)
{
	ASSERT_EQ(0, tow_ranks_begin(&self->ranks, POOL_BYTES));
	board = tow_ranks_share(sizeof(*board));
	ASSERT_TRUE(board);
}

FIXTURE_TEARDOWN(feed)
{
	tow_ranks_end(&self->ranks);
	munmap(board, sizeof(*board));
}

static int make_feed(const struct part *part, const struct tow_me *me, struct tow_feed **feed)
{
	struct tow_feed_attr attr = {
		.size = sizeof(attr),
		.depth = part->depth,
		.timeout_ms = part->timeout_ms,
		.count = TENSORS,
		.types = types,
		.step = part->first,
	};

	return tow_feed_create(me->group, me->arena, &attr, feed, NULL);
}

static int fill(void *arg, uint32_t rank, uint64_t step, void *const *tensors)
{
	const struct part *part = arg;

	if (part->fails && step == 5)
		return part->fails;
	if (step + rank > part->steps)
		return 0;
	write_batch(rank, step, tensors);
	atomic_fetch_add(&board->filled[rank], 1);
	return 1;
}

/* Who leaves when there are no more has given all back, though the news of that may come later. */
static bool was_done(const struct tow_feed *feed, uint32_t rank, uint64_t count)
{
	struct tow_feed_worker worker = { .size = sizeof(worker) };

	for (uint32_t ms = 0; ms < TOW_RANKS_WAIT_MS; ms++) {
		if (tow_feed_worker(feed, rank, &worker) || worker.silent_us > LONG_MS * 1000ULL)
			return false;
		if (worker.done == count)
			return worker.step == count && !worker.silent_us;
		usleep(1000);
	}
	return false;
}

/* All workers had all that was for them; rank 1 always has. */
static int check_served(const struct part *part, const struct tow_feed *feed)
{
	struct tow_feed_stats stats = { .size = sizeof(stats) };
	uint64_t batches = 0;

	for (uint32_t rank = 1; rank < part->ranks; rank++) {
		struct tow_feed_worker worker = { .size = sizeof(worker) };

		if (tow_feed_worker(feed, rank, &worker) || worker.state != TOW_FEED_LEFT)
			return 50;
		if (worker.sent != atomic_load(&board->filled[rank]) ||
		    (rank == 1 && !was_done(feed, rank, part->steps)))
			return 51;
		batches += worker.sent;
	}
	if (tow_feed_stats(feed, &stats) || stats.workers != part->ranks - 1 ||
	    stats.batches != batches || stats.bytes != batches * bytes_of_all() ||
	    stats.copied_bytes)
		return 52;
	return 0;
}

static int serve(const struct part *part, struct tow_feed *feed, uint32_t *blamed)
{
	void *arg = (void *)(uintptr_t)part;
	uint32_t nobody = 0;
	int ret;

	/* In pieces, as who prints how far all are. */
	do {
		ret = tow_feed_serve(feed, fill, arg, 20000, blamed);
	} while (ret == -ETIMEDOUT && *blamed == TOW_NO_RANK);
	if (!ret && !part->restart && check_served(part, feed))
		return check_served(part, feed);
	/* And ever after. */
	return tow_feed_serve(feed, fill, arg, 0, &nobody) == ret && nobody == *blamed ? ret : 22;
}

static int work(const struct part *part, struct tow_feed *feed, uint64_t *step, uint32_t *blamed)
{
	void *const *tensors;
	int ret;

	*step = tow_feed_step(feed);
	while ((ret = tow_feed_next(feed, &tensors, blamed)) == 1) {
		if (!is_batch(part->rank, *step, tensors)) {
			fprintf(stderr, "# rank %u: step %d is none\n", part->rank, (int)*step);
			return 30;
		}
		atomic_fetch_add(&board->shown[part->rank], 1);
		ret = part->at ? part->at(part, *step) : 0;
		if (ret)
			return ret;
		++*step;
		if (tow_feed_step(feed) != *step)
			return 31;
	}
	if (!ret && *step + part->rank != part->steps + 1)
		return 32;
	return tow_feed_next(feed, &tensors, NULL) == ret ? ret : 33;
}

/* With one feed, from its begin to its end; @step: what comes next. */
static int take_all(const struct part *part, const struct tow_me *me, uint64_t *step)
{
	uint32_t blamed = TOW_NO_RANK;
	struct tow_feed *feed;
	int ret;

	ret = make_feed(part, me, &feed);
	if (ret) {
		fprintf(stderr, "# rank %u: %d\n", part->rank, ret);
		return 20;
	}
	ret = part->rank ? work(part, feed, step, &blamed) : serve(part, feed, &blamed);
	if (ret > 0)
		return ret;
	if (ret != part->want || blamed != (part->want ? part->blamed : TOW_NO_RANK)) {
		fprintf(stderr, "# rank %u: %d, blamed %d\n", part->rank, ret, (int)blamed);
		return 21;
	}
	tow_feed_destroy(feed);
	return 0;
}

static int take_part(const void *arg, const char *session)
{
	const struct part *part = arg;
	struct tow_me me = { .rank = part->rank, .ranks = part->ranks };
	struct part next = *part;
	int ret;

	ret = tow_meet_anew(&me, part->restart, session);
	if (ret) {
		fprintf(stderr, "# rank %u: %d\n", part->rank, ret);
		return 10;
	}
	ret = take_all(part, &me, &next.first);
	if (!ret && part->again) {
		tow_group_destroy(me.group);
		next.want = 0;
		next.at = NULL;
		next.restart++;
		ret = tow_meet(&me, next.restart, session) ? 11 :
							     take_all(&next, &me, &next.first);
	}
	if (ret)
		return ret;
	return tow_part(&me) ? 13 : 0;
}

static void start_all(struct tow_ranks *ranks, struct part part)
{
	for (part.rank = 0; part.rank < part.ranks; part.rank++)
		tow_ranks_start(ranks, take_part, &part);
}

/* ---- all are fed -------------------------------------------------------------- */

static int delay(const struct part *part, uint64_t step)
{
	usleep((useconds_t)((part->rank * 7ULL + step * 5) % 4 * 1000));
	return 0;
}

static void all_are_fed(struct __test_metadata *_metadata, struct tow_ranks *ranks,
			struct part part)
{
	start_all(ranks, part);
	for (uint32_t i = 0; i < part.ranks; i++)
		EXPECT_EQ(0, tow_ranks_end_of(ranks, i));
	for (uint32_t i = 1; i < part.ranks; i++)
		EXPECT_EQ(part.steps + 1 - i, atomic_load(&board->shown[i]));
}

TEST_F_TIMEOUT(feed, one_worker, 60)
{
	all_are_fed(_metadata, &self->ranks, (struct part){ .ranks = 2, .steps = STEPS });
}

TEST_F_TIMEOUT(feed, several, 60)
{
	all_are_fed(_metadata, &self->ranks, (struct part){
		.ranks = 5, .depth = DEPTH, .steps = STEPS, .at = delay });
}

/* One place: it comes back when the next one is asked for. */
TEST_F_TIMEOUT(feed, without_a_place_ahead, 60)
{
	all_are_fed(_metadata, &self->ranks, (struct part){
		.ranks = 3, .depth = 1, .steps = STEPS });
}

TEST_F_TIMEOUT(feed, nothing_at_all, 60)
{
	all_are_fed(_metadata, &self->ranks, (struct part){ .ranks = 2, .steps = 0 });
}

/* Worker 1 stays with its first batch until worker 2 has had all; then it finds what is ahead. */
static int stay_with_the_first(const struct part *part, uint64_t step)
{
	uint32_t ahead = DEPTH + LETTERS;

	if (part->rank != 1 || step)
		return 0;
	if (!tow_becomes(&board->shown[2], (uint32_t)part->steps - 1) ||
	    !tow_becomes(&board->filled[1], ahead))
		return 60;
	usleep(100000);
	return atomic_load(&board->filled[1]) == ahead ? 0 : 61;
}

TEST_F_TIMEOUT(feed, nobody_waits_for_another, 90)
{
	all_are_fed(_metadata, &self->ranks, (struct part){
		.ranks = 3, .depth = DEPTH, .steps = STEPS, .timeout_ms = LONG_MS,
		.at = stay_with_the_first });
}

/* ---- ranks that end ----------------------------------------------------------- */

/* Rank 2 stays with step 7 for ever. */
static int stay(const struct part *part, uint64_t step)
{
	if (part->rank != 2 || step != 7)
		return delay(part, step);
	atomic_fetch_add(&board->there, 1);
	for (;;)
		pause();
}

/* All others are told, though they have batches without end. */
static void one_ends(struct __test_metadata *_metadata, struct tow_ranks *ranks, uint32_t dies,
		     int how, struct part part)
{
	double begin;

	part.ranks = 4;
	part.depth = DEPTH;
	part.steps = ENDLESS;
	part.at = stay;
	part.blamed = dies;
	start_all(ranks, part);
	ASSERT_TRUE(tow_becomes(&board->there, 1));
	begin = tow_test_now();
	kill(ranks->pids[dies], how);
	for (uint32_t i = 0; i < part.ranks; i++) {
		if (i != dies && i != 2) {
			EXPECT_EQ(0, tow_ranks_end_of(ranks, i));
		}
	}
	if (how == SIGKILL) {
		TOW_WITHIN(begin, TOLD_MS);
	}
}

TEST_F_TIMEOUT(feed, a_worker_dies, 60)
{
	one_ends(_metadata, &self->ranks, 2, SIGKILL, (struct part){ .want = -ESTALE });
}

TEST_F_TIMEOUT(feed, a_worker_is_late, 90)
{
	one_ends(_metadata, &self->ranks, 2, SIGSTOP,
		 (struct part){ .want = -ETIMEDOUT, .timeout_ms = SOON_MS });
}

TEST_F_TIMEOUT(feed, the_server_dies, 60)
{
	one_ends(_metadata, &self->ranks, 0, SIGKILL, (struct part){ .want = -ESTALE });
}

TEST_F_TIMEOUT(feed, the_server_fails, 60)
{
	start_all(&self->ranks, (struct part){ .ranks = 3, .steps = ENDLESS, .fails = -EBADF,
					       .want = -EBADF, .blamed = 0 });
	for (uint32_t i = 0; i < 3; i++)
		EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, i));
}

/* A worker that has had enough: nobody is the worse for it. */
static int leave_early(const void *arg, const char *session)
{
	const struct part *part = arg;
	struct tow_me me = { .rank = part->rank, .ranks = part->ranks };
	void *const *tensors;
	struct tow_feed *feed;

	if (tow_meet_anew(&me, 0, session) || make_feed(part, &me, &feed))
		return 10;
	for (uint64_t step = 0; step < 3; step++)
		if (tow_feed_next(feed, &tensors, NULL) != 1 ||
		    !is_batch(part->rank, step, tensors))
			return 11;
	tow_feed_leave(feed);
	tow_feed_leave(feed);
	/* The last one stays. */
	if (!is_batch(part->rank, 2, tensors) ||
	    tow_feed_next(feed, &tensors, NULL) != -ECANCELED)
		return 12;
	tow_feed_destroy(feed);
	return tow_part(&me) ? 13 : 0;
}

TEST_F_TIMEOUT(feed, a_worker_leaves, 60)
{
	struct part part = { .ranks = 3, .steps = STEPS };

	for (part.rank = 0; part.rank < 3; part.rank++)
		tow_ranks_start(&self->ranks, part.rank == 2 ? leave_early : take_part, &part);
	for (uint32_t i = 0; i < 3; i++)
		EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, i));
	EXPECT_EQ(STEPS, atomic_load(&board->shown[1]));
}

/*
 * Worker 2 is killed in step 7.  All others meet its next life, which asks for that step, and
 * all have from there what they would have had.
 */
TEST_F_TIMEOUT(feed, goes_on, 60)
{
	struct part part = { .ranks = 4, .steps = ENDLESS, .at = stay, .want = -ESTALE,
			     .blamed = 2 };

	for (part.rank = 0; part.rank < 4; part.rank++) {
		part.again = part.rank != 2;
		tow_ranks_start(&self->ranks, take_part, &part);
	}
	ASSERT_TRUE(tow_becomes(&board->there, 1));
	kill(self->ranks.pids[2], SIGKILL);
	tow_ranks_end_of(&self->ranks, 2);
	part = (struct part){ .rank = 2, .ranks = 4, .restart = 1, .steps = ENDLESS, .first = 7,
			      .want = -ESTALE, .blamed = 2, .at = NULL };
	tow_ranks_start(&self->ranks, take_part, &part);
	/* They are fed again; and the run ends as it can. */
	atomic_store(&board->shown[2], 0);
	EXPECT_TRUE(tow_becomes(&board->shown[2], STEPS));
}

/* A server that does not go on: its workers are told by whom, and that nobody has died. */
static int serve_briefly(const void *arg, const char *session)
{
	const struct part *part = arg;
	struct tow_me me = { .rank = 0, .ranks = part->ranks };
	struct tow_feed_worker worker = { .size = sizeof(worker) };
	void *fed = (void *)(uintptr_t)part;
	struct tow_feed *feed;
	int ret;

	if (tow_meet_anew(&me, 0, session) || make_feed(part, &me, &feed))
		return 10;
	do {
		ret = tow_feed_serve(feed, fill, fed, 1000, NULL);
	} while (ret == -ETIMEDOUT && (tow_feed_worker(feed, 1, &worker) || worker.done < 5));
	tow_feed_leave(feed);
	if (ret != -ETIMEDOUT || tow_feed_serve(feed, fill, fed, 0, NULL) != -ECANCELED)
		return 11;
	tow_feed_destroy(feed);
	return tow_part(&me) ? 13 : 0;
}

TEST_F_TIMEOUT(feed, the_server_leaves, 60)
{
	struct part part = { .ranks = 3, .steps = ENDLESS, .want = -ECANCELED, .blamed = 0 };

	for (part.rank = 0; part.rank < 3; part.rank++)
		tow_ranks_start(&self->ranks, part.rank ? take_part : serve_briefly, &part);
	for (uint32_t i = 0; i < 3; i++)
		EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, i));
}

/* Its function may be interrupted, and is asked for the same batch again. */
static int interrupted(void *arg, uint32_t rank, uint64_t step, void *const *tensors)
{
	if (atomic_fetch_add(&board->there, 1) % 2 == 0)
		return -EINTR;
	return fill(arg, rank, step, tensors);
}

static int serve_in_spite(const void *arg, const char *session)
{
	const struct part *part = arg;
	struct tow_me me = { .rank = 0, .ranks = part->ranks };
	struct tow_feed *feed;
	int ret;

	if (tow_meet_anew(&me, 0, session) || make_feed(part, &me, &feed))
		return 10;
	do {
		ret = tow_feed_serve(feed, interrupted, (void *)(uintptr_t)part, TOW_WAIT_FOREVER,
				     NULL);
	} while (ret == -EINTR);
	if (ret || check_served(part, feed))
		return 11;
	tow_feed_destroy(feed);
	return tow_part(&me) ? 13 : 0;
}

TEST_F_TIMEOUT(feed, interrupted, 60)
{
	struct part part = { .ranks = 3, .steps = STEPS };

	for (part.rank = 0; part.rank < 3; part.rank++)
		tow_ranks_start(&self->ranks, part.rank ? take_part : serve_in_spite, &part);
	for (uint32_t i = 0; i < 3; i++)
		EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, i));
	EXPECT_EQ(STEPS, atomic_load(&board->shown[1]));
}

/* ---- what is refused ---------------------------------------------------------- */

static int refused_attrs(const struct tow_me *me)
{
	struct tow_feed_attr good = { .size = sizeof(good), .count = TENSORS, .types = types };
	struct tow_tensor_type wrong = { { TOW_DTYPE_FLOAT, 0, 1 }, 0, { 0 } };
	struct tow_feed_attr attr = good;
	struct tow_feed *feed = NULL;

	attr.size = 3;
	if (tow_feed_create(me->group, me->arena, &attr, &feed, NULL) != -EINVAL)
		return 70;
	attr = good;
	attr.count = 0;
	if (tow_feed_create(me->group, me->arena, &attr, &feed, NULL) != -EINVAL)
		return 71;
	attr.count = TOW_FEED_TENSORS_MAX + 1;
	if (tow_feed_create(me->group, me->arena, &attr, &feed, NULL) != -EINVAL)
		return 72;
	attr = good;
	attr.types = NULL;
	if (tow_feed_create(me->group, me->arena, &attr, &feed, NULL) != -EINVAL)
		return 73;
	attr = good;
	attr.depth = TOW_EDGE_SLOTS_MAX + 1;
	if (tow_feed_create(me->group, me->arena, &attr, &feed, NULL) != -EINVAL)
		return 74;
	attr = good;
	attr.count = 1;
	attr.types = &wrong;
	if (tow_feed_create(me->group, me->arena, &attr, &feed, NULL) != -EINVAL)
		return 75;
	if (tow_feed_create(NULL, me->arena, &good, &feed, NULL) != -EINVAL ||
	    tow_feed_create(me->group, NULL, &good, &feed, NULL) != -EINVAL ||
	    tow_feed_create(me->group, me->arena, NULL, &feed, NULL) != -EINVAL ||
	    tow_feed_create(me->group, me->arena, &good, NULL, NULL) != -EINVAL)
		return 76;
	return feed ? 77 : 0;
}

/* In a child nothing is done, and nothing of the parent's ends. */
static int refused_in_child(const struct part *part, struct tow_feed *feed)
{
	void *const *tensors;
	int status = -1, ret;
	pid_t pid = fork();

	if (!pid) {
		if (part->rank)
			ret = tow_feed_next(feed, &tensors, NULL);
		else
			ret = tow_feed_serve(feed, fill, (void *)(uintptr_t)part, 0, NULL);
		tow_feed_destroy(feed);
		_exit(ret == -EPERM ? 0 : 1);
	}
	waitpid(pid, &status, 0);
	return status ? 80 : 0;
}

static int refused_of_server(const struct part *part, struct tow_feed *feed)
{
	struct tow_feed_worker worker = { .size = sizeof(worker) };
	void *arg = (void *)(uintptr_t)part, *const *tensors;
	struct tow_feed_stats stats = { .size = 1 };
	uint32_t blamed = 0;

	if (tow_feed_next(feed, &tensors, NULL) != -EINVAL ||
	    tow_feed_serve(feed, NULL, arg, 0, NULL) != -EINVAL)
		return 90;
	if (tow_feed_worker(feed, 0, &worker) != -EINVAL ||
	    tow_feed_worker(feed, 2, &worker) != -EINVAL ||
	    tow_feed_worker(feed, 1, NULL) != -EINVAL || tow_feed_stats(feed, &stats) != -EINVAL)
		return 91;
	if (tow_feed_serve(feed, fill, arg, 1000, &blamed) != -ETIMEDOUT || blamed != TOW_NO_RANK)
		return 92;
	/* Two places; it has two more for which there is no room, and knows who is silent. */
	if (tow_feed_worker(feed, 1, &worker) || worker.state != TOW_FEED_WORKS || worker.done ||
	    !worker.sent || worker.sent > 2 + LETTERS || worker.step || tow_feed_step(feed))
		return 93;
	atomic_fetch_add(&board->there, 1);
	return tow_feed_serve(feed, fill, arg, TOW_WAIT_FOREVER, &blamed) ? 94 : 0;
}

static int refused_of_worker(const struct part *part, struct tow_feed *feed)
{
	struct tow_feed_worker worker = { .size = sizeof(worker) };
	void *const *tensors;

	if (!tow_becomes(&board->there, 1))
		return 100;
	if (tow_feed_serve(feed, fill, NULL, 0, NULL) != -EINVAL ||
	    tow_feed_worker(feed, 1, &worker) != -EINVAL || tow_feed_next(feed, NULL, NULL) != -EINVAL)
		return 101;
	if (tow_feed_next(feed, &tensors, NULL) != 1 || !is_batch(part->rank, 0, tensors))
		return 102;
	/* A child ends what it has of it, and the parent's is as it was. */
	if (refused_in_child(part, feed) || !is_batch(part->rank, 0, tensors))
		return 103;
	return tow_feed_next(feed, &tensors, NULL) == 1 && is_batch(part->rank, 1, tensors) ? 0 : 104;
}

static int refused(const void *arg, const char *session)
{
	const struct part *part = arg;
	struct tow_me me = { .rank = part->rank, .ranks = part->ranks };
	struct tow_feed *feed = NULL;
	int ret;

	if (tow_meet_anew(&me, 0, session))
		return 10;
	ret = refused_attrs(&me);
	if (ret)
		return ret;
	if (make_feed(part, &me, &feed))
		return 12;
	ret = refused_in_child(part, feed);
	if (!ret)
		ret = part->rank ? refused_of_worker(part, feed) : refused_of_server(part, feed);
	tow_feed_destroy(feed);
	if (ret)
		return ret;
	return tow_part(&me) ? 13 : 0;
}

TEST_F_TIMEOUT(feed, refused, 60)
{
	struct part part = { .ranks = 2, .steps = STEPS };

	for (part.rank = 0; part.rank < 2; part.rank++)
		tow_ranks_start(&self->ranks, refused, &part);
	EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, 0));
	EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, 1));
}

/* Ranks that do not agree on what a batch is: all know who. */
static int disagree(const void *arg, const char *session)
{
	static const int wants[] = { -EPROTO, -EPROTO, -EPROTOTYPE, -EMSGSIZE };
	const struct part *part = arg;
	struct tow_me me = { .rank = part->rank, .ranks = part->ranks };
	struct tow_tensor_type own[TENSORS];
	struct tow_feed *feed = NULL;
	uint32_t blamed;

	if (tow_meet_anew(&me, 0, session))
		return 10;
	for (uint32_t i = 0; i < ARRAY_SIZE(wants); i++) {
		struct tow_feed_attr attr = { .size = sizeof(attr), .count = TENSORS, .types = own };
		bool differs = part->rank == 1;

		memcpy(own, types, sizeof(own));
		attr.count -= differs && i == 0;
		attr.depth = differs && i == 1 ? 3 : 2;
		own[TENSORS - 1].dtype.code = differs && i == 2 ? TOW_DTYPE_INT : TOW_DTYPE_UINT;
		own[2].dims[0] += differs && i == 3;
		if (tow_feed_create(me.group, me.arena, &attr, &feed, &blamed) != wants[i] ||
		    blamed != 1 || feed)
			return 20 + (int)i;
	}
	return tow_part(&me) ? 13 : 0;
}

TEST_F_TIMEOUT(feed, disagreement, 60)
{
	struct part part = { .ranks = 3 };

	for (part.rank = 0; part.rank < 3; part.rank++)
		tow_ranks_start(&self->ranks, disagree, &part);
	for (uint32_t i = 0; i < 3; i++)
		EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, i));
}

TEST_HARNESS_MAIN
