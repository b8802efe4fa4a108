// SPDX-License-Identifier: GPL-2.0
/*
 * AllReduce of float32 sums by the ranks of a job, in place:
 *
 *	allreduce -r RANK [-p RANKS] [-a ROOT] [-k any|ring|direct] [-s BYTES] [-n CALLS]
 *		[-b PIECE] [-w]
 *
 * Each rank is a process; ROOT is the address of rank 0's node.  -b: bytes that are sent at once,
 * as of struct tow_collective_attr.  -w: pieces are as large as shards, so nothing overlaps.
 * Rank 0 prints first_us, of the very first call, and what report() has of those after it;
 * sent_bytes is of a call.
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

static struct tow_comm *meet(const struct tow_world *world, struct tow_arena **arena)
{
	struct tow_group *group = NULL;
	struct tow_device *dev = NULL;
	struct tow_comm *comm = NULL;

	must("device", tow_device_open(NULL, 0, &dev));
	must("meeting", tow_group_create(dev, world, NULL, &group, NULL));
	must("arena", tow_arena_create(dev, NULL, arena));
	must("connecting", tow_comm_create(group, *arena, NULL, &comm, NULL));
	return comm;
}

static double call(struct tow_collective *collective)
{
	double begin = now_us();

	must("starting", tow_collective_start(collective));
	must("reducing", tow_collective_wait(collective, NULL));
	return now_us() - begin;
}

/* Zeroes stay zeroes, however often they are added. */
static void look(const float *data, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		if (data[i] != 0)
			die("what came out", -EILSEQ);
}

static uint32_t algorithm_of(const char *name)
{
	if (!strcmp(name, "ring"))
		return TOW_ALGORITHM_RING;
	return strcmp(name, "direct") ? TOW_ALGORITHM_ANY : TOW_ALGORITHM_DIRECT;
}

static void measure(struct tow_collective *collective, const struct tow_world *world,
		    unsigned long calls)
{
	struct tow_collective_stats stats = { .size = sizeof(stats) };
	double *samples = calloc(calls, sizeof(*samples)), first;

	if (!samples)
		die("memory", -ENOMEM);
	first = call(collective);
	for (unsigned long i = 0; i < calls; i++)
		samples[i] = call(collective);
	must("asking", tow_collective_stats(collective, &stats));
	if (!world->rank) {
		printf("first_us %.2f sent_bytes %" PRIu64 "\n", first,
		       stats.sent_bytes / stats.calls);
		report(samples, calls);
	}
	free(samples);
}

int main(int argc, char **argv)
{
	struct tow_world world = { .size = sizeof(world), .world_size = 2, .session = "bench" };
	struct tow_collective_attr attr = { .size = sizeof(attr),
					    .dtype = { TOW_DTYPE_FLOAT, 32, 1 }, .count = 1024 };
	struct tow_collective *collective = NULL;
	struct tow_arena *arena = NULL;
	unsigned long calls = 100;
	struct tow_comm *comm;
	bool whole = false;
	int option;

	while ((option = getopt(argc, argv, "r:p:a:k:s:n:b:w")) != -1) {
		switch (option) {
		case 'r': world.rank = (uint32_t)strtoul(optarg, NULL, 10); break;
		case 'p': world.world_size = (uint32_t)strtoul(optarg, NULL, 10); break;
		case 'a': snprintf(world.root, sizeof(world.root), "%s", optarg); break;
		case 'k': attr.algorithm = algorithm_of(optarg); break;
		case 's': attr.count = strtoull(optarg, NULL, 10) / sizeof(float); break;
		case 'n': calls = strtoul(optarg, NULL, 10); break;
		case 'b': attr.piece_bytes = strtoull(optarg, NULL, 10); break;
		case 'w': whole = true; break;
		default: return 2;
		}
	}
	if (!calls || calls > CALLS_MAX || optind != argc)
		return 2;
	world.local_rank = world.rank;
	if (whole)
		attr.piece_bytes = (attr.count * sizeof(float) + 63) / 64 * 64;
	comm = meet(&world, &arena);
	attr.out = tow_arena_zeroed(arena, attr.count, sizeof(float));
	if (!attr.out)
		die("memory", -ENOMEM);
	must("preparing", tow_collective_create(comm, &attr, &collective, NULL));
	measure(collective, &world, calls);
	look(attr.out, attr.count);
	tow_collective_destroy(collective);
	tow_comm_destroy(comm);
	return 0;
}
