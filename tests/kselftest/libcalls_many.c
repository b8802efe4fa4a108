// SPDX-License-Identifier: GPL-2.0
/*
 * Calls (tow_allreduce() and its like) against the real module: many are on their way at once,
 * ranks ask for their ends in any order, and by several threads; and what was sent and copied.
 */
/* build: link -ltowline */
#include "tow_jobs.h"

/* ---- many at once ------------------------------------------------------------ */

#define MANY		580U
#define MIXED		40U

static struct how many_sizes(const struct tow_mate *me, uint32_t number)
{
	(void)me;
	return (struct how){ .count = 1 + 7 * number % 1999, .salt = number };
}

/* Each seventh has 1 MiB. */
static struct how all_kinds(const struct tow_mate *me, uint32_t number)
{
	uint32_t dtype = number % ARRAY_SIZE(tow_dtypes), kind = number % KINDS;
	uint64_t bytes = number % 7 == 6 ? 1U << 20 : 1 + number * 3989;
	bool parts = kind == TOW_REDUCE_SCATTER || kind == TOW_ALLGATHER;

	return (struct how){
		.kind = kind,
		.dtype = dtype,
		.reduction = reduces(kind) && number / KINDS % 2 ? TOW_MAX : TOW_SUM,
		.count = bytes / (tow_dtypes[dtype].bits / 8) / (parts ? me->ranks : 1),
		.where = number / 2 % PLACES,
		.apart = kind != TOW_BROADCAST && number % 5 < 2,
		.named = number % 3,
		.root = number % me->ranks,
		.salt = number,
	};
}

static bool begin_together(const struct tow_mate *me, struct job *jobs, uint32_t count)
{
	return !tow_calls_begin(me->comm) && begin_all(me, jobs, count) && !tow_calls_end(me->comm);
}

/* They begin at different times, at some ranks together, and wait in different orders. */
static int at_once(struct tow_mate *me, uint32_t count,
		   struct how (*how)(const struct tow_mate *me, uint32_t number))
{
	/* None of them divides a number of calls. */
	static const uint32_t steps[] = { 3, 7, 11, 13, 17 };
	static struct job jobs[MANY];
	bool well = true;

	if (!make_all(me, jobs, count, how))
		return WRONG(me);
	usleep(me->rank * 5000);
	if (!(me->rank % 2 ? begin_together : begin_all)(me, jobs, count))
		return WRONG(me);
	for (uint32_t i = 0; i < count; i++)
		well &= finish(me, &jobs[(i * steps[me->rank] + me->rank) % count]);
	return well ? 0 : WRONG(me);
}

static int many_at_once(struct tow_mate *me, uint32_t arg)
{
	(void)arg;
	return at_once(me, MANY, many_sizes) ?: at_once(me, MIXED, all_kinds);
}

TEST_F_TIMEOUT(calls, many_at_once, 120)
{
	all_play(_metadata, self, 3, many_at_once, 0);
}

TEST_F_TIMEOUT(calls, many_at_once_of_four, 120)
{
	all_play(_metadata, self, 4, many_at_once, 0);
}

/* ---- works ------------------------------------------------------------------- */

static bool waits(const struct job *job, uint32_t timeout_us)
{
	uint32_t blamed = 0;

	return tow_work_wait(job->work, timeout_us, &blamed) == 0 && blamed == TOW_NO_RANK;
}

/* Rank 1 begins when others have seen that it has not. */
static int while_one_is_late(struct tow_mate *me, const struct how *how)
{
	struct job job;
	bool well = true;

	if (!make(me, how, &job) || (me->rank == 1 && !all_here(me)) || !begin(me, &job))
		return WRONG(me);
	if (me->rank != 1) {
		well = tow_work_test(job.work, NULL) == 0 && waits(&job, 0) && waits(&job, 20000) &&
		       tow_work_test(job.work, NULL) == 0;
		well &= all_here(me);
	}
	well &= ends(me, &job) && tow_work_wait(job.work, 0, NULL) == 1;
	return finish(me, &job) && well ? 0 : WRONG(me);
}

static uint64_t calls_ended(const struct tow_mate *me)
{
	struct tow_comm_stats stats = { .size = sizeof(stats) };

	return tow_comm_stats(me->comm, &stats) ? UINT64_MAX : stats.calls;
}

/* All ranks know whether all are. */
static bool all_are_so(const struct tow_mate *me, bool so, bool *all)
{
	int32_t value = so;

	if (tow_allreduce(me->comm, NULL, &value, 1, (struct tow_dtype){ TOW_DTYPE_INT, 32, 1 },
			  TOW_MIN, NULL, NULL))
		return false;
	*all = value;
	return true;
}

/* What was freed goes on, and ends. */
static int freed_early(struct tow_mate *me)
{
	const struct how how = { .count = 100003, .salt = 1 }, other = { .count = 1003, .salt = 2 };
	uint64_t ended = calls_ended(me) + 2;
	bool well, all = false;
	struct job job;

	if (!make(me, &how, &job) || !begin(me, &job))
		return WRONG(me);
	tow_work_free(job.work);
	well = one_at_once(me, &other);
	/* Those that ask whether all have ended count, too. */
	for (uint32_t i = 0; well && !all && i < 10000; i++)
		well = all_are_so(me, calls_ended(me) == ended + i, &all);
	well &= all && is_right(me, &job);
	unmake(me, &job);
	return well ? 0 : WRONG(me);
}

/* Nobody is through before the last one has come. */
static int barriers(struct tow_mate *me)
{
	uint32_t begun = atomic_load(&board->there);

	if (tow_barrier(me->comm, NULL, NULL))
		return WRONG(me);
	for (uint32_t i = 1; i <= 20; i++) {
		if (me->rank == i % me->ranks)
			usleep(2000);
		atomic_fetch_add(&board->there, 1);
		if (tow_barrier(me->comm, NULL, NULL) ||
		    atomic_load(&board->there) < begun + i * me->ranks)
			return WRONG(me);
	}
	return 0;
}

static int works(struct tow_mate *me, uint32_t arg)
{
	struct how how = { .count = 1003 };
	int ret = 0;

	(void)arg;
	tow_work_free(NULL);
	for (how.algorithm = 0; !ret && how.algorithm < WAYS; how.algorithm++)
		ret = while_one_is_late(me, &how);
	ret = ret ?: while_one_is_late(me, &(struct how){ .kind = TOW_BARRIER });
	ret = ret ?: while_one_is_late(me, &(struct how){ .kind = TOW_ALLGATHER, .count = 70001 });
	ret = ret ?: freed_early(me);
	/* It counts what all_here() does, and comes last. */
	if (!ret && !all_here(me))
		ret = WRONG(me);
	return ret ?: barriers(me);
}

TEST_F_TIMEOUT(calls, works, 60)
{
	all_play(_metadata, self, 3, works, 0);
}

/* ---- threads ----------------------------------------------------------------- */

#define THREADS		4U
#define ROUNDS		4U

/* The last one first; one thread looks, the others sleep. */
static void *wait_for_some(void *arg)
{
	struct waiter *waiter = arg;
	uint32_t i = MIXED - THREADS + waiter->number;

	waiter->well = true;
	for (;; i -= THREADS) {
		struct job *job = &waiter->jobs[i];

		while (!waiter->number && !tow_work_test(job->work, NULL))
			usleep(200);
		waiter->well &= ends(waiter->me, job);
		if (i < THREADS)
			return NULL;
	}
}

static int wait_by_threads(struct tow_mate *me, struct job *jobs)
{
	struct waiter waiters[THREADS];
	bool well = true;

	for (uint32_t i = 0; i < THREADS; i++) {
		waiters[i] = (struct waiter){ .me = me, .jobs = jobs, .number = i };
		if (pthread_create(&waiters[i].thread, NULL, wait_for_some, &waiters[i]))
			return WRONG(me);
	}
	for (uint32_t i = 0; i < THREADS; i++) {
		pthread_join(waiters[i].thread, NULL);
		well &= waiters[i].well;
	}
	return well ? 0 : WRONG(me);
}

static int threads(struct tow_mate *me, uint32_t arg)
{
	static struct job jobs[MIXED];
	int ret = 0;

	for (uint32_t round = 0; !ret && round < arg; round++) {
		if (!make_all(me, jobs, MIXED, all_kinds) || !begin_all(me, jobs, MIXED))
			return WRONG(me);
		ret = wait_by_threads(me, jobs);
		for (uint32_t i = 0; i < MIXED; i++) {
			tow_work_free(jobs[i].work);
			unmake(me, &jobs[i]);
		}
	}
	return ret;
}

TEST_F_TIMEOUT(calls, threads_wait, 120)
{
	all_play(_metadata, self, 3, threads, tow_test_slow() ? 1 : ROUNDS);
}

/* ---- what was sent and copied ------------------------------------------------ */

#define MEBIBYTE	(1ULL << 20)

/* All that ranks send together, of what has 1 MiB in all. */
static uint64_t least_sent(uint32_t kind, uint64_t ranks)
{
	uint64_t once = (ranks - 1) * MEBIBYTE;

	return kind == TOW_ALLREDUCE ? 2 * once : once;
}

/* Of what is in no region: what was given, and what comes and is not reduced. */
static bool copies_are_right(uint32_t kind, uint32_t where)
{
	uint64_t staged = atomic_load(&board->staged), copied = atomic_load(&board->copied);

	if (where != OUTSIDE)
		return !staged && !copied;
	return staged && (copied || kind == TOW_REDUCE_SCATTER || kind == REDUCE);
}

static bool count_one(const struct tow_mate *me, const struct how *how)
{
	struct tow_comm_stats before = { .size = sizeof(before) }, after = before;
	bool well = !tow_comm_stats(me->comm, &before) && one(me, how) &&
		    !tow_comm_stats(me->comm, &after) && after.calls == before.calls + 1;

	atomic_fetch_add(&board->sent, after.sent_bytes - before.sent_bytes);
	atomic_fetch_add(&board->staged, after.staged_bytes - before.staged_bytes);
	atomic_fetch_add(&board->copied, after.copied_bytes - before.copied_bytes);
	return all_here(me) && well;
}

static bool counts_are_right(const struct tow_mate *me, const struct how *how)
{
	bool well = atomic_load(&board->sent) == least_sent(how->kind, me->ranks) &&
		    copies_are_right(how->kind, how->where);

	if (!well && !me->rank)
		fprintf(stderr, "# kind %u, by %u, place %u: sent %" PRIu64 ", staged %" PRIu64
			", copied %" PRIu64 "\n", how->kind, how->algorithm, how->where,
			atomic_load(&board->sent), atomic_load(&board->staged),
			atomic_load(&board->copied));
	/* All have looked. */
	if (!all_here(me))
		return false;
	if (!me->rank) {
		atomic_store(&board->sent, 0);
		atomic_store(&board->staged, 0);
		atomic_store(&board->copied, 0);
	}
	return all_here(me) && well;
}

static int stats(struct tow_mate *me, uint32_t arg)
{
	struct how how = { .apart = true, .root = 1 };
	bool well = true;

	(void)arg;
	for (uint32_t i = 0; i < ARRAY_SIZE(kinds) * PLACES; i++) {
		how.kind = kinds[i % ARRAY_SIZE(kinds)];
		how.where = i / ARRAY_SIZE(kinds);
		how.algorithm = how.kind == REDUCE ? TOW_ALGORITHM_TREE : TOW_ALGORITHM_RING;
		how.apart = how.kind != TOW_BROADCAST;
		how.count = MEBIBYTE / element_of(&how);
		if (how.kind == TOW_REDUCE_SCATTER || how.kind == TOW_ALLGATHER)
			how.count /= me->ranks;
		well &= count_one(me, &how) && counts_are_right(me, &how);
	}
	return well ? 0 : WRONG(me);
}

TEST_F_TIMEOUT(calls, sends_and_copies_no_more_than_it_must, 60)
{
	all_play(_metadata, self, 4, stats, 0);
}

TEST_HARNESS_MAIN
