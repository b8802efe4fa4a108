// SPDX-License-Identifier: GPL-2.0
/*
 * Calls (tow_allreduce() and its like) against the real module that do not end well: ranks make
 * different ones, die, are late, leave or abort.
 */
/* build: link -ltowline */
#include "tow_jobs.h"

/* What goes wrong is told in this time, and below any time-out but LATE_MS. */
#define TOLD_MS		15000U
#define AT_ONCE_MS	5000U
#define LATE_MS		(tow_test_slow() ? 6000U : 2000U)

/* ---- ranks that make different calls ----------------------------------------- */

#define SMALL_COUNT	64U
#define LARGE_COUNT	200003U

/* What most do, and what one does instead. */
static const struct mismatch {
	struct how most, odd;
} mismatches[] = {
	{ { .count = SMALL_COUNT }, { .count = SMALL_COUNT - 1 } },
	{ { .count = LARGE_COUNT }, { .count = LARGE_COUNT / 2 } },
	{ { .count = LARGE_COUNT }, { .count = 1 } },
	{ { .count = 1 }, { .count = LARGE_COUNT } },
	{ { .count = 0 }, { .count = SMALL_COUNT } },
	{ { .count = SMALL_COUNT }, { .count = SMALL_COUNT, .dtype = 4 } },
	{ { .count = LARGE_COUNT }, { .count = LARGE_COUNT, .dtype = 2 } },
	{ { .count = SMALL_COUNT }, { .count = SMALL_COUNT, .reduction = TOW_MAX } },
	{ { .count = LARGE_COUNT }, { .count = LARGE_COUNT, .reduction = TOW_AVG } },
	{ { .count = SMALL_COUNT }, { .count = SMALL_COUNT, .kind = TOW_ALLGATHER } },
	{ { .count = LARGE_COUNT }, { .kind = TOW_BARRIER } },
	{ { .kind = TOW_BARRIER }, { .count = LARGE_COUNT } },
	{ { .kind = TOW_REDUCE_SCATTER, .count = LARGE_COUNT / 4, .apart = true },
	  { .kind = TOW_ALLGATHER, .count = LARGE_COUNT / 4, .apart = true } },
	{ { .count = LARGE_COUNT }, { .count = LARGE_COUNT, .kind = REDUCE } },
	{ { .kind = REDUCE, .count = SMALL_COUNT },
	  { .kind = REDUCE, .count = SMALL_COUNT, .root = 2 } },
	{ { .kind = REDUCE, .count = LARGE_COUNT },
	  { .kind = REDUCE, .count = LARGE_COUNT, .root = 2 } },
	{ { .kind = TOW_BROADCAST, .count = SMALL_COUNT },
	  { .kind = TOW_BROADCAST, .count = SMALL_COUNT, .root = 1 } },
	{ { .kind = TOW_BROADCAST, .count = LARGE_COUNT },
	  { .kind = TOW_BROADCAST, .count = LARGE_COUNT, .root = 1 } },
	{ { .kind = TOW_BROADCAST, .count = LARGE_COUNT, .where = OUTSIDE },
	  { .kind = TOW_BROADCAST, .count = LARGE_COUNT / 2, .where = OUTSIDE } },
	{ { .count = LARGE_COUNT, .where = OUTSIDE }, { .count = 7, .where = OUTSIDE } },
	{ { .count = LARGE_COUNT, .piece_bytes = 4096 }, { .count = LARGE_COUNT } },
	{ { .count = LARGE_COUNT, .algorithm = TOW_ALGORITHM_RING },
	  { .count = LARGE_COUNT, .algorithm = TOW_ALGORITHM_DIRECT } },
};

/* A rank may have done its part, and know no better. */
static bool may_end(const struct how *how)
{
	return how->kind == TOW_BROADCAST || how->kind == REDUCE ||
	       (how->kind != TOW_BARRIER && !how->count);
}

/* What is the caller's again is written by nobody else. */
static void mark(const struct array *array, int value)
{
	if (array->block)
		memset(array->at, value, array->bytes);
}

static bool is_marked(const struct array *array, int value)
{
	return !array->block || all_are(array->at, array->at + array->bytes, value);
}

/* Of those that differ from rank 0, which all do if it is the odd one, it is any. */
static bool is_to_blame(uint32_t blamed, uint32_t who)
{
	return who ? blamed == who : blamed && blamed != TOW_NO_RANK;
}

/* All are told within seconds who differs, while calls before and behind it go well. */
static bool is_told(const struct tow_mate *me, const struct job *job, uint32_t who)
{
	double begin_at = tow_clock_begin();
	uint32_t blamed = TOW_NO_RANK;
	int ret = tow_work_wait(job->work, TOW_WAIT_FOREVER, &blamed);

	if (tow_clock_end(begin_at, TOLD_MS) == TOW_MISSED)
		say(me, job, "not told at once", ret);
	else if ((ret == -EPROTO && is_to_blame(blamed, who)) || (ret == 1 && may_end(&job->how)))
		return tow_work_test(job->work, NULL) == ret;
	say(me, job, "not told", ret);
	fprintf(stderr, "# blamed %d, not %u\n", (int)blamed, who);
	return false;
}

static int differ(struct tow_mate *me, const struct mismatch *mismatch, uint32_t who)
{
	const struct how before = { .count = 5003, .salt = 1 };
	const struct how behind = { .count = 30011, .salt = 2 };
	const struct how *between = me->rank == who ? &mismatch->odd : &mismatch->most;
	struct job jobs[3];
	bool well;

	if (!make(me, &before, &jobs[0]) || !make(me, between, &jobs[1]) ||
	    !make(me, &behind, &jobs[2]) || !begin_all(me, jobs, 3))
		return WRONG(me);
	well = is_told(me, &jobs[1], who) && guarded(&jobs[1].in) && guarded(&jobs[1].out);
	tow_work_free(jobs[1].work);
	mark(&jobs[1].in, 0x77);
	mark(&jobs[1].out, 0x77);
	well &= finish(me, &jobs[2]);
	well &= finish(me, &jobs[0]);
	/* As many calls later as it takes. */
	well &= one(me, &behind) && all_here(me) && is_marked(&jobs[1].in, 0x77) &&
		is_marked(&jobs[1].out, 0x77);
	if (!well)
		say(me, &jobs[1], "what differs", 0);
	unmake(me, &jobs[1]);
	return well ? 0 : WRONG(me);
}

static int all_mismatches(struct tow_mate *me, uint32_t arg)
{
	uint32_t passes = tow_test_slow() ? 1 : me->ranks;
	int ret = 0;

	(void)arg;
	for (uint32_t i = 0; !ret && i < ARRAY_SIZE(mismatches) * passes; i++)
		ret = differ(me, &mismatches[i / passes], (i + i / passes) % me->ranks);
	return ret;
}

TEST_F_TIMEOUT(calls, of_different_minds, 120)
{
	all_play(_metadata, self, 3, all_mismatches, 0);
}

/* ---- ranks that do not go on ------------------------------------------------- */

#define WAITED		5U
#define WITHIN_COUNT	(tow_test_slow() ? 1U << 20 : 4U << 20)

/* None of them ends without all ranks. */
static struct how all_ways(const struct tow_mate *me, uint32_t number)
{
	static const struct how hows[WAITED] = {
		{ .count = 1003, .algorithm = TOW_ALGORITHM_RING },
		{ .count = 1003, .algorithm = TOW_ALGORITHM_DIRECT },
		{ .count = 70001, .algorithm = TOW_ALGORITHM_TREE, .where = OUTSIDE },
		{ .kind = TOW_BARRIER },
		{ .count = 20011, .kind = TOW_ALLGATHER, .apart = true },
	};

	(void)me;
	return hows[number];
}

static bool begin_or_fail(const struct tow_mate *me, struct job *job, int error)
{
	job->begun = call(me, job, &job->work);
	if (job->begun && job->begun != error)
		say(me, job, "not begun", job->begun);
	return !job->begun || job->begun == error;
}

/* It does so, at once or in the end, and blames that rank. */
static bool fails(const struct tow_mate *me, const struct job *job, int error, uint32_t rank)
{
	uint32_t blamed = TOW_NO_RANK;
	int ret;

	if (job->begun)
		return job->begun == error;
	ret = tow_work_wait(job->work, TOW_WAIT_FOREVER, &blamed);
	if (ret == error && blamed == rank && tow_work_test(job->work, NULL) == error)
		return true;
	say(me, job, "not failed so", ret);
	fprintf(stderr, "# blamed: %d\n", (int)blamed);
	return false;
}

/* So do all that the communicator is asked for later. */
static bool has_failed(const struct tow_mate *me, int error)
{
	struct tow_work *work = NULL;
	float data[4] = { 0 };
	int ret = tow_allreduce(me->comm, NULL, data, 4, tow_dtypes[0], TOW_SUM, NULL, &work);

	return ret == error && !work && tow_barrier(me->comm, NULL, NULL) == error;
}

/* All that waits is told; nothing is left of it. */
static bool all_fail(const struct tow_mate *me, struct job *jobs, uint32_t count, int error,
		     uint32_t rank)
{
	bool well = true;

	for (uint32_t i = 0; i < count; i++)
		well &= begin_or_fail(me, &jobs[i], error);
	for (uint32_t i = count; well && i--;)
		well &= fails(me, &jobs[i], error, rank);
	for (uint32_t i = 0; i < count; i++)
		if (!jobs[i].begun)
			tow_work_free(jobs[i].work);
	return well && has_failed(me, error);
}

static void unmake_all(const struct tow_mate *me, struct job *jobs, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		unmake(me, &jobs[i]);
}

static int dies_before(struct tow_mate *me, uint32_t arg)
{
	struct job jobs[WAITED];
	bool well;

	(void)arg;
	if (!make_all(me, jobs, WAITED, all_ways) || !all_here(me))
		return WRONG(me);
	if (me->rank == 1)
		raise(SIGKILL);
	well = all_fail(me, jobs, WAITED, -ESTALE, 1) && !tow_comm_destroy(me->comm);
	me->comm = NULL;
	unmake_all(me, jobs, WAITED);
	return well ? 0 : WRONG(me);
}

static uint64_t sent_bytes(const struct tow_mate *me)
{
	struct tow_comm_stats stats = { .size = sizeof(stats) };

	return tow_comm_stats(me->comm, &stats) ? 0 : stats.sent_bytes;
}

/* It has sent some, and not all. */
static int die_within(const struct tow_mate *me, struct job *job)
{
	uint64_t before = sent_bytes(me);

	if (!begin(me, job))
		return WRONG(me);
	while (sent_bytes(me) - before < job->out.bytes / 16)
		if (tow_work_test(job->work, NULL))
			return WRONG(me);
	raise(SIGKILL);
	return WRONG(me);
}

static int dies_within(struct tow_mate *me, uint32_t arg)
{
	const struct how how = { .count = WITHIN_COUNT, .algorithm = arg };
	struct job job;
	bool well;

	/* One goes well before. */
	if (!one(me, &(struct how){ .count = 1003 }) || !make(me, &how, &job) || !all_here(me))
		return WRONG(me);
	if (me->rank == 1)
		return die_within(me, &job);
	well = all_fail(me, &job, 1, -ESTALE, 1) && !tow_comm_destroy(me->comm);
	me->comm = NULL;
	unmake(me, &job);
	return well ? 0 : WRONG(me);
}

static void one_dies(struct __test_metadata *_metadata, FIXTURE_DATA(calls) *self,
		     int (*then)(struct tow_mate *me, uint32_t arg), uint32_t arg)
{
	uint32_t first = tow_all_start(&self->ranks, next_part(self, 3, then, arg));
	double begin_at;

	EXPECT_EQ(SIGKILL, tow_ranks_end_of(&self->ranks, first + 1));
	begin_at = tow_clock_begin();
	EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, first));
	EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, first + 2));
	TOW_WITHIN(begin_at, TOLD_MS) {
		TH_LOG("by %u", arg);
	}
}

TEST_F_TIMEOUT(calls, a_rank_dies_before, 60)
{
	one_dies(_metadata, self, dies_before, 0);
}

TEST_F_TIMEOUT(calls, a_rank_dies_within, 120)
{
	for (uint32_t by = TOW_ALGORITHM_RING; by <= TOW_ALGORITHM_TREE; by++)
		one_dies(_metadata, self, dies_within, by);
}

/* ---- ranks that live, and do not go on either -------------------------------- */

/* Another communicator, as the last one has failed. */
static bool renew(struct tow_mate *me, uint32_t timeout_ms)
{
	struct tow_comm_attr attr = { .size = sizeof(attr), .timeout_ms = timeout_ms };
	int ret = tow_comm_destroy(me->comm);

	me->comm = NULL;
	/* Who was told that something is wrong has been told so by all. */
	if (!ret && all_here(me))
		ret = tow_comm_create(me->group, me->arena, &attr, &me->comm, NULL);
	if (ret)
		fprintf(stderr, "# rank %u: anew: %d\n", me->rank, ret);
	return !ret && one(me, &(struct how){ .count = 1003 });
}

/* Rank 2 comes when the others have given up: in the communicator's time, or in that of calls. */
static int is_late(struct tow_mate *me, uint32_t timeout_ms, uint32_t call_ms)
{
	struct job jobs[WAITED];
	bool well;

	if (!renew(me, timeout_ms) || !make_all(me, jobs, WAITED, all_ways))
		return WRONG(me);
	for (uint32_t i = 0; i < WAITED; i++)
		jobs[i].how.timeout_ms = call_ms;
	if (me->rank == 2 && !all_here(me))
		return WRONG(me);
	well = all_fail(me, jobs, WAITED, -ETIMEDOUT, 2);
	if (me->rank != 2)
		well &= all_here(me);
	/* Nobody has left before it has heard. */
	well &= all_here(me) && !tow_comm_destroy(me->comm);
	me->comm = NULL;
	unmake_all(me, jobs, WAITED);
	return well ? 0 : WRONG(me);
}

/* Rank 2 has begun, too, and does not go on with it. */
static int stands_within(struct tow_mate *me, uint32_t by)
{
	const struct how how = { .count = LARGE_COUNT, .algorithm = by };
	struct job job;
	bool well;

	if (!renew(me, LATE_MS) || !make(me, &how, &job))
		return WRONG(me);
	well = begin_or_fail(me, &job, -ETIMEDOUT) && !job.begun && (me->rank != 2 || all_here(me));
	well = well && fails(me, &job, -ETIMEDOUT, 2) && has_failed(me, -ETIMEDOUT);
	if (me->rank != 2)
		well &= all_here(me);
	well &= all_here(me) && !tow_comm_destroy(me->comm);
	me->comm = NULL;
	tow_work_free(job.work);
	unmake(me, &job);
	return well ? 0 : WRONG(me);
}

static int all_stand(struct tow_mate *me, uint32_t arg)
{
	int ret = 0;

	(void)arg;
	for (uint32_t by = TOW_ALGORITHM_RING; !ret && by <= TOW_ALGORITHM_TREE; by++)
		ret = stands_within(me, by);
	return ret || renew(me, ENDS_MS) ? ret : WRONG(me);
}

TEST_F_TIMEOUT(calls, a_rank_stands_within, 120)
{
	all_play(_metadata, self, 5, all_stand, 0);
}

/* Rank 1 ends its communicator, while others call. */
static int leaves(struct tow_mate *me)
{
	struct job jobs[WAITED];
	bool well = true;

	if (!renew(me, ENDS_MS) || !make_all(me, jobs, WAITED, all_ways))
		return WRONG(me);
	if (me->rank != 1)
		well = all_fail(me, jobs, WAITED, -ESTALE, 1);
	well &= !tow_comm_destroy(me->comm);
	me->comm = NULL;
	unmake_all(me, jobs, WAITED);
	return well ? 0 : WRONG(me);
}

static uint64_t now_ns(void)
{
	return (uint64_t)(tow_test_now() * 1e9);
}

static void note_abort(void)
{
	atomic_store(&board->abort_ns, now_ns());
}

static bool told_at_once(void)
{
	double begin_at = (double)atomic_load(&board->abort_ns) / 1e9;

	return tow_clock_end(begin_at, AT_ONCE_MS) != TOW_MISSED;
}

/* When the communicator has ended nobody writes to arrays of what was on its way. */
static bool ends_with_arrays(struct tow_mate *me, struct job *jobs, uint32_t count)
{
	bool well = !tow_comm_destroy(me->comm);

	me->comm = NULL;
	for (uint32_t i = 0; i < count; i++)
		mark(&jobs[i].out, 0x33);
	well &= all_here(me);
	usleep(20000);
	for (uint32_t i = 0; i < count; i++)
		well &= is_marked(&jobs[i].out, 0x33) && guarded(&jobs[i].out);
	unmake_all(me, jobs, count);
	return well;
}

#define ABORTED		3U

static struct how large_ways(const struct tow_mate *me, uint32_t number)
{
	(void)me;
	return (struct how){ .count = WITHIN_COUNT / 4, .algorithm = TOW_ALGORITHM_RING + number,
			     .salt = number };
}

/* Rank 1 does that, while large ones are on their way.  The last call it has not made. */
static int aborts(struct tow_mate *me)
{
	bool aborter = me->rank == 1, well;
	struct job jobs[ABORTED];
	uint32_t blamed;
	int ret;

	if (!renew(me, ENDS_MS) || !make_all(me, jobs, ABORTED, large_ways) ||
	    !begin_all(me, jobs, aborter ? ABORTED - 1 : ABORTED) || !all_here(me))
		return WRONG(me);
	if (aborter) {
		usleep(10000);
		note_abort();
		well = !tow_comm_abort(me->comm) && told_at_once() &&
		       call(me, &jobs[ABORTED - 1], &jobs[ABORTED - 1].work) == -ECANCELED;
	} else {
		well = fails(me, &jobs[ABORTED - 1], -ECANCELED, 1) && told_at_once();
		tow_work_free(jobs[ABORTED - 1].work);
	}
	for (uint32_t i = 0; i < ABORTED - 1; i++) {
		ret = tow_work_wait(jobs[i].work, TOW_WAIT_FOREVER, &blamed);
		well &= ret == 1 || (ret == -ECANCELED && blamed == 1);
		tow_work_free(jobs[i].work);
	}
	well &= has_failed(me, -ECANCELED) && all_here(me);
	return ends_with_arrays(me, jobs, ABORTED) && well ? 0 : WRONG(me);
}

static void *wait_to_fail(void *arg)
{
	struct waiter *waiter = arg;

	waiter->well = fails(waiter->me, &waiter->jobs[0], -ECANCELED, 0) && told_at_once();
	return NULL;
}

static bool abort_from_here(struct tow_mate *me, struct job *job)
{
	struct waiter waiter = { .me = me, .jobs = job };

	if (pthread_create(&waiter.thread, NULL, wait_to_fail, &waiter))
		return false;
	usleep(50000);
	note_abort();
	if (tow_comm_abort(me->comm))
		return false;
	pthread_join(waiter.thread, NULL);
	return waiter.well;
}

/* A thread of rank 0's waits for rank 2, which comes when all is over. */
static int aborts_while_it_waits(struct tow_mate *me)
{
	const struct how how = { .count = 1003 };
	struct job job;
	bool well;

	if (!renew(me, ENDS_MS) || !make(me, &how, &job))
		return WRONG(me);
	if (me->rank == 2 && !all_here(me))
		return WRONG(me);
	if (!begin_or_fail(me, &job, -ECANCELED))
		return WRONG(me);
	well = me->rank ? fails(me, &job, -ECANCELED, 0) : abort_from_here(me, &job);
	if (me->rank != 2)
		well &= all_here(me);
	if (!job.begun)
		tow_work_free(job.work);
	well &= has_failed(me, -ECANCELED) && all_here(me);
	return ends_with_arrays(me, &job, 1) && well ? 0 : WRONG(me);
}

static int all_live(struct tow_mate *me, uint32_t arg)
{
	int ret = is_late(me, LATE_MS, 0);

	(void)arg;
	ret = ret ?: is_late(me, ENDS_MS, LATE_MS);
	ret = ret ?: leaves(me);
	ret = ret ?: aborts(me);
	ret = ret ?: aborts_while_it_waits(me);
	return ret || renew(me, ENDS_MS) ? ret : WRONG(me);
}

TEST_F_TIMEOUT(calls, ranks_are_late_leave_and_abort, 120)
{
	all_play(_metadata, self, 3, all_live, 0);
}

TEST_HARNESS_MAIN
