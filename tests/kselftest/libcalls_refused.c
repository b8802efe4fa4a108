// SPDX-License-Identifier: GPL-2.0
/*
 * Calls (tow_allreduce() and its like) against the real module that are refused, and what does no
 * harm then.
 */
/* build: link -ltowline */
#include "tow_jobs.h"

/* ---- what is refused --------------------------------------------------------- */

static int says(const struct tow_mate *me, const char *what, int wanted_ret, int ret,
		struct tow_work *work)
{
	if (ret == wanted_ret && !work)
		return 0;
	fprintf(stderr, "# rank %u: %s: %d, not %d%s\n", me->rank, what, ret, wanted_ret,
		work ? ", and a work" : "");
	return 1;
}

/* In functions with @me, @work, which is NULL, and @wrongs. */
#define REFUSES(error, ...)	(wrongs += says(me, #__VA_ARGS__, error, __VA_ARGS__, work))

static int refused_arguments(const struct tow_mate *me)
{
	const struct tow_dtype f32 = tow_dtypes[0], none = { 0 }, wide = { TOW_DTYPE_UINT, 32, 1 };
	const struct tow_dtype two = { TOW_DTYPE_FLOAT, 32, 2 }, nibble = { TOW_DTYPE_INT, 4, 1 };
	const uint64_t many = UINT64_MAX / 4;
	struct tow_comm *comm = me->comm;
	struct tow_work *work = NULL;
	uint32_t ranks = me->ranks;
	float in[16] = { 0 }, out[16] = { 0 };
	int wrongs = 0;

	REFUSES(-EINVAL, tow_allreduce(NULL, in, out, 4, f32, TOW_SUM, NULL, &work));
	REFUSES(-EINVAL, tow_allreduce(comm, in, NULL, 4, f32, TOW_SUM, NULL, &work));
	REFUSES(-EINVAL, tow_allreduce(comm, in, out, 4, none, TOW_SUM, NULL, &work));
	REFUSES(-EINVAL, tow_allreduce(comm, in, out, 4, f32, TOW_BXOR + 1, NULL, &work));
	REFUSES(-EOPNOTSUPP, tow_allreduce(comm, in, out, 4, f32, TOW_BXOR, NULL, &work));
	REFUSES(-EOPNOTSUPP, tow_allreduce(comm, in, out, 4, wide, TOW_SUM, NULL, &work));
	REFUSES(-EOPNOTSUPP, tow_allreduce(comm, in, out, 4, two, TOW_SUM, NULL, &work));
	REFUSES(-EOPNOTSUPP, tow_allreduce(comm, in, out, 4, tow_dtypes[8], TOW_AVG, NULL, &work));
	REFUSES(-EOVERFLOW, tow_allreduce(comm, in, out, many, f32, TOW_SUM, NULL, &work));
	REFUSES(-EOVERFLOW, tow_allreduce(comm, in, out, 1ULL << 60, f32, TOW_SUM, NULL, NULL));
	REFUSES(-EINVAL, tow_reduce_scatter(NULL, in, out, 2, f32, TOW_SUM, NULL, &work));
	REFUSES(-EINVAL, tow_reduce_scatter(comm, NULL, out, 2, f32, TOW_SUM, NULL, &work));
	REFUSES(-EINVAL, tow_reduce_scatter(comm, in, NULL, 2, f32, TOW_SUM, NULL, &work));
	REFUSES(-EOVERFLOW, tow_reduce_scatter(comm, in, out, many, f32, TOW_SUM, NULL, &work));
	REFUSES(-EINVAL, tow_allgather(NULL, in, out, 2, f32, NULL, &work));
	REFUSES(-EINVAL, tow_allgather(comm, in, NULL, 2, f32, NULL, &work));
	REFUSES(-EINVAL, tow_allgather(comm, in, out, 2, none, NULL, &work));
	REFUSES(-EOPNOTSUPP, tow_allgather(comm, in, out, 2, nibble, NULL, &work));
	REFUSES(-EOVERFLOW, tow_allgather(comm, in, out, many, f32, NULL, &work));
	REFUSES(-EINVAL, tow_broadcast(NULL, in, 4, f32, 0, NULL, &work));
	REFUSES(-EINVAL, tow_broadcast(comm, NULL, 4, f32, 0, NULL, &work));
	REFUSES(-EINVAL, tow_broadcast(comm, in, 4, f32, ranks, NULL, &work));
	REFUSES(-EOPNOTSUPP, tow_broadcast(comm, in, 4, nibble, 0, NULL, &work));
	REFUSES(-EOVERFLOW, tow_broadcast(comm, in, many, f32, 0, NULL, &work));
	REFUSES(-EINVAL, tow_reduce(NULL, in, out, 4, f32, TOW_SUM, 0, NULL, &work));
	REFUSES(-EINVAL, tow_reduce(comm, NULL, NULL, 4, f32, TOW_SUM, me->rank, NULL, &work));
	REFUSES(-EINVAL, tow_reduce(comm, NULL, NULL, 4, f32, TOW_SUM, !me->rank, NULL, &work));
	REFUSES(-EINVAL, tow_reduce(comm, in, NULL, 4, f32, TOW_SUM, me->rank, NULL, &work));
	REFUSES(-EINVAL, tow_reduce(comm, in, out, 4, f32, TOW_SUM, ranks, NULL, &work));
	REFUSES(-EOPNOTSUPP, tow_reduce(comm, in, out, 4, f32, TOW_BAND, 0, NULL, &work));
	REFUSES(-EOVERFLOW, tow_reduce(comm, in, out, many, f32, TOW_SUM, 0, NULL, &work));
	REFUSES(-EINVAL, tow_barrier(NULL, NULL, &work));
	return wrongs;
}

/* Not aligned, or one upon the other: what is written would be read, too. */
static int refused_places(const struct tow_mate *me)
{
	const struct tow_dtype f32 = tow_dtypes[0];
	struct tow_comm *comm = me->comm;
	struct tow_work *work = NULL;
	float data[16] = { 0 }, other[16] = { 0 };
	char *odd = (char *)data + 1;
	/* One element beside this rank's place. */
	float *beside = &data[2 * me->rank + 1];
	int wrongs = 0;

	REFUSES(-EINVAL, tow_allreduce(comm, NULL, odd, 4, f32, TOW_SUM, NULL, &work));
	REFUSES(-EINVAL, tow_allreduce(comm, odd, other, 4, f32, TOW_SUM, NULL, &work));
	REFUSES(-EINVAL, tow_allreduce(comm, data, data + 1, 4, f32, TOW_SUM, NULL, &work));
	REFUSES(-EINVAL, tow_allreduce(comm, data + 3, data, 4, f32, TOW_SUM, NULL, &work));
	REFUSES(-EINVAL, tow_reduce_scatter(comm, odd, other, 2, f32, TOW_SUM, NULL, &work));
	REFUSES(-EINVAL, tow_reduce_scatter(comm, other, odd, 2, f32, TOW_SUM, NULL, &work));
	REFUSES(-EINVAL, tow_reduce_scatter(comm, data, beside, 2, f32, TOW_SUM, NULL, &work));
	REFUSES(-EINVAL, tow_allgather(comm, beside, data, 2, f32, NULL, &work));
	REFUSES(-EINVAL, tow_reduce(comm, odd, other, 4, f32, TOW_SUM, me->rank, NULL, &work));
	REFUSES(-EINVAL, tow_reduce(comm, other, odd, 4, f32, TOW_SUM, me->rank, NULL, &work));
	REFUSES(-EINVAL, tow_reduce(comm, data, data + 1, 4, f32, TOW_SUM, me->rank, NULL, &work));
	return wrongs;
}

/* Of a later version: with something that this one does not know, which is there or not. */
struct later_attr {
	struct tow_call_attr known;
	uint64_t unknown;
};

static int refused_attrs(const struct tow_mate *me)
{
	struct tow_call_attr attr = { .size = sizeof(attr) };
	struct later_attr later = { .known = { .size = sizeof(later) }, .unknown = 1 };
	const struct tow_dtype f32 = tow_dtypes[0];
	struct tow_comm *comm = me->comm;
	struct tow_work *work = NULL;
	float in[16] = { 0 }, out[16] = { 0 };
	int wrongs = 0;

	REFUSES(-E2BIG, tow_allreduce(comm, in, out, 4, f32, TOW_SUM, &later.known, &work));
	REFUSES(-E2BIG, tow_barrier(comm, &later.known, &work));
	attr.size = 4;
	REFUSES(-EINVAL, tow_allreduce(comm, in, out, 4, f32, TOW_SUM, &attr, &work));
	REFUSES(-EINVAL, tow_barrier(comm, &attr, &work));
	attr = (struct tow_call_attr){ .size = sizeof(attr), .piece_bytes = 100 };
	REFUSES(-EINVAL, tow_allreduce(comm, in, out, 4, f32, TOW_SUM, &attr, &work));
	REFUSES(-EINVAL, tow_broadcast(comm, in, 4, f32, 0, &attr, &work));
	attr.piece_bytes = (256U << 10) + 64;
	REFUSES(-EINVAL, tow_allreduce(comm, in, out, 4, f32, TOW_SUM, &attr, &work));
	attr.piece_bytes = 64;
	REFUSES(-EINVAL, tow_barrier(comm, &attr, &work));
	attr = (struct tow_call_attr){ .size = sizeof(attr), .algorithm = TOW_ALGORITHM_TREE + 1 };
	REFUSES(-EINVAL, tow_allreduce(comm, in, out, 4, f32, TOW_SUM, &attr, &work));
	attr.algorithm = TOW_ALGORITHM_TREE;
	REFUSES(-EOPNOTSUPP, tow_reduce_scatter(comm, in, out, 2, f32, TOW_SUM, &attr, &work));
	REFUSES(-EOPNOTSUPP, tow_allgather(comm, in, out, 2, f32, &attr, &work));
	attr.algorithm = TOW_ALGORITHM_DIRECT;
	REFUSES(-EOPNOTSUPP, tow_broadcast(comm, in, 4, f32, 0, &attr, &work));
	REFUSES(-EOPNOTSUPP, tow_reduce(comm, in, out, 4, f32, TOW_SUM, 0, &attr, &work));
	attr.algorithm = TOW_ALGORITHM_RING;
	REFUSES(-EOPNOTSUPP, tow_reduce(comm, in, out, 4, f32, TOW_SUM, 0, &attr, &work));
	REFUSES(-EINVAL, tow_barrier(comm, &attr, &work));
	return wrongs;
}

static int refused_elsewhere(const struct tow_mate *me)
{
	struct tow_comm_stats stats = { .size = 4 };
	struct tow_work *work = NULL;
	int wrongs = 0;

	REFUSES(-EINVAL, tow_work_test(NULL, NULL));
	REFUSES(-EINVAL, tow_work_wait(NULL, 0, NULL));
	REFUSES(-EINVAL, tow_comm_abort(NULL));
	REFUSES(-EINVAL, tow_comm_stats(me->comm, NULL));
	REFUSES(-EINVAL, tow_comm_stats(me->comm, &stats));
	stats.size = sizeof(stats);
	REFUSES(-EINVAL, tow_comm_stats(NULL, &stats));
	return wrongs;
}

/* Of nothing: no arrays; and what is 0 of a later version. */
static bool accepted(const struct tow_mate *me)
{
	struct later_attr later = { .known = { .size = sizeof(later) } };
	const struct tow_call_attr *attr = &later.known;
	const struct tow_dtype f32 = tow_dtypes[0];
	struct tow_comm *comm = me->comm;

	return !tow_allreduce(comm, NULL, NULL, 0, f32, TOW_SUM, NULL, NULL) &&
	       !tow_reduce_scatter(comm, NULL, NULL, 0, f32, TOW_SUM, attr, NULL) &&
	       !tow_allgather(comm, NULL, NULL, 0, f32, attr, NULL) &&
	       !tow_broadcast(comm, NULL, 0, f32, 1, attr, NULL) &&
	       !tow_reduce(comm, NULL, NULL, 0, f32, TOW_MAX, 1, attr, NULL) &&
	       !tow_barrier(comm, attr, NULL);
}

/* What is there is the parent's, on which the child calls. */
static int refused_in_a_child(const struct tow_mate *me, struct tow_work *waited)
{
	struct tow_comm_stats stats = { .size = sizeof(stats) };
	const struct tow_dtype f32 = tow_dtypes[0];
	struct tow_comm *comm = me->comm;
	struct tow_work *work = NULL;
	float in[16] = { 0 }, out[16] = { 0 };
	int wrongs = 0;

	REFUSES(-EPERM, tow_allreduce(comm, in, out, 4, f32, TOW_SUM, NULL, &work));
	REFUSES(-EPERM, tow_reduce_scatter(comm, in, out, 2, f32, TOW_SUM, NULL, &work));
	REFUSES(-EPERM, tow_allgather(comm, in, out, 2, f32, NULL, &work));
	REFUSES(-EPERM, tow_broadcast(comm, in, 4, f32, 0, NULL, &work));
	REFUSES(-EPERM, tow_reduce(comm, in, out, 4, f32, TOW_SUM, 0, NULL, NULL));
	REFUSES(-EPERM, tow_barrier(comm, NULL, &work));
	REFUSES(-EPERM, tow_work_test(waited, NULL));
	REFUSES(-EPERM, tow_work_wait(waited, TOW_WAIT_FOREVER, NULL));
	REFUSES(-EPERM, tow_comm_stats(comm, &stats));
	REFUSES(-EPERM, tow_comm_abort(comm));
	tow_work_free(waited);
	REFUSES(-EPERM, tow_comm_destroy(comm));
	return wrongs;
}

/* Rank 1's child comes while it waits for rank 0, and does no harm. */
static bool in_a_child(const struct tow_mate *me)
{
	const struct how how = { .count = 1003 };
	struct job job;
	int status = 0;
	pid_t pid;

	if (!make(me, &how, &job) || (!me->rank && !all_here(me)) || !begin(me, &job))
		return false;
	if (me->rank) {
		pid = fork();
		if (!pid)
			_exit(refused_in_a_child(me, job.work));
		if (waitpid(pid, &status, 0) != pid || !all_here(me))
			return false;
	}
	return finish(me, &job) && !status;
}

static int refused(struct tow_mate *me, uint32_t arg)
{
	int wrongs = refused_arguments(me) + refused_places(me) + refused_attrs(me) +
		     refused_elsewhere(me);

	(void)arg;
	if (!accepted(me) || wrongs || !in_a_child(me))
		return WRONG(me);
	/* Nothing of it did any harm. */
	return one(me, &(struct how){ .count = 1003 }) ? 0 : WRONG(me);
}

TEST_F(calls, refused)
{
	all_play(_metadata, self, 2, refused, 0);
}

TEST_HARNESS_MAIN
