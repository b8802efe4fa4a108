// SPDX-License-Identifier: GPL-2.0
/*
 * What the ranks of a job do together to arrays of float32; what is reduced is added:
 *
 *	allreduce -r RANK [-p RANKS] [-a ROOT] [-o WHAT] [-c] [-m] [-k any|ring|direct|tree]
 *		[-s BYTES] [-n CALLS] [-b PIECE] [-w] [-x WORK]
 *
 * Each rank is a process; ROOT is the address of rank 0's node.  WHAT is allreduce (in place),
 * reduce_scatter, allgather, broadcast, barrier or reduce, or create: a communicator of the group,
 * that is made CALLS times.  BYTES are the larger array's of a rank.  -c: calls, as
 * tow_allreduce(); else a collective that is made once.  Who is the root of a call takes turns.
 * -m: in memory of the process's own, not the arena's.  -b: bytes that are sent at once, as of
 * struct tow_collective_attr.  -w: pieces are as large as shards, so nothing overlaps.  -x: an
 * AllReduce begins, the rank does so much work (sample.h) while the communicator's thread goes on
 * with it, and then waits for it.
 *
 * Rank 0 prints first_us, of the very first call, and what report() has of those after it: where
 * roots take turns, of those after each was one once.  sent_bytes is of a call, by rank 0.
 */
/* build: link -ltowline */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include <towline/collective.h>

#include "sample.h"

#define CALLS_MAX	100000UL

/* The first of them are enum tow_collective_kind. */
enum { REDUCE = TOW_BARRIER + 1, CREATE };

struct job {
	struct tow_world world;
	struct tow_collective_attr attr;	/* .count is that of the larger array at first */
	unsigned long calls;
	unsigned long work;
	bool by_calls, plain, whole;
	struct tow_group *group;
	struct tow_arena *arena;
	struct tow_comm *comm;
	struct tow_collective *collective;	/* NULL: calls */
};

static void __attribute__((noreturn)) die(const char *what, int error)
{
	fprintf(stderr, "allreduce: %s: %s\n", what, tow_strerror(error));
	exit(1);
}

static void must(const char *what, int ret)
{
	if (ret < 0)
		die(what, ret);
}

static void meet(struct job *job)
{
	struct tow_device *dev = NULL;

	must("device", tow_device_open(NULL, 0, &dev));
	must("meeting", tow_group_create(dev, &job->world, NULL, &job->group, NULL));
	must("arena", tow_arena_create(dev, NULL, &job->arena));
}

static void gather(struct job *job)
{
	must("gathering", tow_group_gather(job->group, NULL, 0, NULL, NULL));
}

/* All have come before it begins, and it ends when all have one. */
static double create(struct job *job)
{
	double begin, took;

	gather(job);
	begin = now_us();
	must("connecting", tow_comm_create(job->group, job->arena, NULL, &job->comm, NULL));
	took = now_us() - begin;
	gather(job);
	tow_comm_destroy(job->comm);
	job->comm = NULL;
	return took;
}

static bool takes_turns(const struct job *job)
{
	return job->by_calls && (job->attr.kind == TOW_BROADCAST || job->attr.kind == REDUCE);
}

static int call(struct job *job, uint32_t root)
{
	const struct tow_collective_attr *attr = &job->attr;
	const struct tow_call_attr how = { .size = sizeof(how), .algorithm = attr->algorithm,
					   .piece_bytes = attr->piece_bytes };

	switch (attr->kind) {
	case TOW_ALLREDUCE:
		return tow_allreduce(job->comm, NULL, attr->out, attr->count, attr->dtype, TOW_SUM,
				     &how, NULL);
	case TOW_REDUCE_SCATTER:
		return tow_reduce_scatter(job->comm, attr->in, attr->out, attr->count, attr->dtype,
					  TOW_SUM, &how, NULL);
	case TOW_ALLGATHER:
		return tow_allgather(job->comm, attr->in, attr->out, attr->count, attr->dtype,
				     &how, NULL);
	case TOW_BROADCAST:
		return tow_broadcast(job->comm, attr->out, attr->count, attr->dtype, root, &how,
				     NULL);
	case REDUCE:
		return tow_reduce(job->comm, attr->in, attr->out, attr->count, attr->dtype,
				  TOW_SUM, root, &how, NULL);
	default:
		return tow_barrier(job->comm, NULL, NULL);
	}
}

static int begin_and_work(struct job *job)
{
	const struct tow_collective_attr *attr = &job->attr;
	struct tow_work *work;
	int ret = tow_allreduce(job->comm, NULL, attr->out, attr->count, attr->dtype, TOW_SUM, NULL,
				&work);

	if (ret)
		return ret;
	do_work(job->work);
	ret = tow_work_wait(work, TOW_WAIT_FOREVER, NULL);
	tow_work_free(work);
	return ret;
}

static int start_and_wait(struct job *job)
{
	int ret = tow_collective_start(job->collective);

	return ret ? ret : tow_collective_wait(job->collective, NULL);
}

static double once(struct job *job, unsigned long number)
{
	double begin = now_us();

	if (job->attr.kind == CREATE)
		return create(job);
	if (job->work)
		must("it", begin_and_work(job));
	else
		must("it", job->by_calls ? call(job, (uint32_t)(number % job->world.world_size)) :
					   start_and_wait(job));
	return now_us() - begin;
}

static uint64_t sent_bytes(const struct job *job)
{
	struct tow_collective_stats stats = { .size = sizeof(stats) };
	struct tow_comm_stats all = { .size = sizeof(all) };

	if (job->collective) {
		must("asking", tow_collective_stats(job->collective, &stats));
		return stats.sent_bytes / stats.calls;
	}
	if (!job->comm)
		return 0;
	must("asking", tow_comm_stats(job->comm, &all));
	return all.sent_bytes / all.calls;
}

static void measure(struct job *job)
{
	double *samples = calloc(job->calls, sizeof(*samples)), first;
	unsigned long warm = takes_turns(job) ? job->world.world_size : 1, number;

	if (!samples)
		die("memory", -ENOMEM);
	first = once(job, 0);
	for (number = 1; number < warm; number++)
		once(job, number);
	for (number = 0; number < job->calls; number++)
		samples[number] = once(job, number);
	if (!job->world.rank) {
		printf("first_us %.2f sent_bytes %" PRIu64 "\n", first, sent_bytes(job));
		report(samples, job->calls);
	}
	free(samples);
}

static float *zeroes(struct job *job, uint64_t count)
{
	float *array = job->plain ? malloc(count * sizeof(float)) :
				    tow_arena_zeroed(job->arena, count, sizeof(float));

	if (!array)
		die("memory", -ENOMEM);
	/* Also written to, so that it is there. */
	memset(array, 0, count * sizeof(float));
	return array;
}

/* Zeroes stay zeroes, however often they are added. */
static void look(const float *data, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		if (data[i] != 0)
			die("what came out", -EILSEQ);
}

static void make_arrays(struct job *job)
{
	struct tow_collective_attr *attr = &job->attr;
	uint64_t larger = attr->count;

	if (attr->kind == TOW_REDUCE_SCATTER || attr->kind == TOW_ALLGATHER)
		attr->count /= job->world.world_size;
	attr->out = zeroes(job, attr->kind == TOW_REDUCE_SCATTER ? attr->count : larger);
	if (attr->kind == TOW_REDUCE_SCATTER || attr->kind == REDUCE)
		attr->in = zeroes(job, larger);
	if (attr->kind == TOW_ALLGATHER)
		attr->in = zeroes(job, attr->count);
	if (job->whole)
		attr->piece_bytes = (attr->count * sizeof(float) + 63) / 64 * 64;
}

static void make(struct job *job)
{
	const struct tow_comm_attr attr = { .size = sizeof(attr),
					    .flags = job->work ? TOW_COMM_THREAD : 0 };

	must("connecting", tow_comm_create(job->group, job->arena, &attr, &job->comm, NULL));
	if (job->attr.kind != TOW_BARRIER)
		make_arrays(job);
	else
		job->attr.dtype = (struct tow_dtype){ 0 };
	if (job->by_calls || job->work)
		return;
	must("preparing", tow_collective_create(job->comm, &job->attr, &job->collective, NULL));
}

static uint32_t one_of(const char *const *names, const char *name)
{
	uint32_t number = 0;

	while (names[number] && strcmp(names[number], name))
		number++;
	if (!names[number])
		exit(2);
	return number;
}

static bool parse(int argc, char **argv, struct job *job)
{
	/* enum tow_algorithm */
	static const char *const algorithms[] = { "any", "ring", "direct", "tree", NULL };
	static const char *const kinds[] = { "allreduce", "reduce_scatter", "allgather",
					     "broadcast", "barrier", "reduce", "create", NULL };
	int option;

	while ((option = getopt(argc, argv, "r:p:a:o:cmk:s:n:b:wx:")) != -1) {
		switch (option) {
		case 'r': job->world.rank = (uint32_t)strtoul(optarg, NULL, 10); break;
		case 'p': job->world.world_size = (uint32_t)strtoul(optarg, NULL, 10); break;
		case 'a': snprintf(job->world.root, sizeof(job->world.root), "%s", optarg); break;
		case 'o': job->attr.kind = one_of(kinds, optarg); break;
		case 'c': job->by_calls = true; break;
		case 'm': job->plain = true; break;
		case 'k': job->attr.algorithm = one_of(algorithms, optarg); break;
		case 's': job->attr.count = strtoull(optarg, NULL, 10) / sizeof(float); break;
		case 'n': job->calls = strtoul(optarg, NULL, 10); break;
		case 'b': job->attr.piece_bytes = strtoull(optarg, NULL, 10); break;
		case 'w': job->whole = true; break;
		case 'x': job->work = strtoul(optarg, NULL, 10); break;
		default: return false;
		}
	}
	return job->calls && job->calls <= CALLS_MAX && job->world.world_size && optind == argc;
}

int main(int argc, char **argv)
{
	struct job job = {
		.world = { .size = sizeof(job.world), .world_size = 2, .session = "bench" },
		.attr = { .size = sizeof(job.attr), .dtype = { TOW_DTYPE_FLOAT, 32, 1 },
			  .count = 1024 },
		.calls = 100,
	};

	if (!parse(argc, argv, &job))
		return 2;
	job.world.local_rank = job.world.rank;
	meet(&job);
	if (job.attr.kind != CREATE)
		make(&job);
	measure(&job);
	if (job.attr.out)
		look(job.attr.out, job.attr.count);
	tow_collective_destroy(job.collective);
	tow_comm_destroy(job.comm);
	return 0;
}
