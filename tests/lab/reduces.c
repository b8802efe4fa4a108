// SPDX-License-Identifier: GPL-2.0
/*
 * A rank of a job, as its launcher's variables say, that takes part in an AllReduce:
 *
 *	reduces ring|direct ELEMENTS CALLS TIMEOUT_MS
 *
 * of ELEMENTS numbers (float32) for CALLS times, and looks at all that comes out.  "goes" is said
 * after the first one, "done" after the last; or what is wrong, and who is to blame.
 */
/* build: link -ltowline */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <towline/collective.h>

static struct tow_world world = { .size = sizeof(world) };

static void __attribute__((noreturn)) die(const char *what, int error, uint32_t blamed)
{
	printf("%s: %s", what, tow_strerror(error));
	if (blamed != TOW_NO_RANK)
		printf("; rank %" PRIu32 " is to blame", blamed);
	putchar('\n');
	exit(1);
}

/* Sums of these are exact. */
static float given(uint32_t rank, uint64_t at, uint64_t call)
{
	return (float)((at * 7 + rank * 5ULL + call * 3) % 17);
}

static float sum(uint64_t at, uint64_t call)
{
	float all = 0;

	for (uint32_t rank = 0; rank < world.world_size; rank++)
		all += given(rank, at, call);
	return all;
}

static void do_call(struct tow_collective *collective, float *data, uint64_t count, uint64_t call)
{
	uint32_t blamed = TOW_NO_RANK;
	int ret;

	for (uint64_t i = 0; i < count; i++)
		data[i] = given(world.rank, i, call);
	ret = tow_collective_start(collective);
	if (!ret)
		ret = tow_collective_wait(collective, &blamed);
	else
		tow_collective_test(collective, &blamed);
	if (ret)
		die("reducing", ret, blamed);
	for (uint64_t i = 0; i < count; i++)
		if (data[i] != sum(i, call))
			die("what came out", -EILSEQ, TOW_NO_RANK);
}

static void meet(struct tow_group **group, struct tow_arena **arena, struct tow_comm **comm,
		 uint32_t timeout_ms)
{
	struct tow_comm_attr attr = { .size = sizeof(attr), .timeout_ms = timeout_ms };
	struct tow_device *dev;
	const char *variable;
	uint32_t blamed;
	int ret;

	ret = tow_world_detect(&world, &variable);
	if (ret)
		die(variable, ret, TOW_NO_RANK);
	ret = tow_device_open(NULL, 0, &dev);
	if (ret)
		die("device", ret, TOW_NO_RANK);
	ret = tow_group_create(dev, &world, NULL, group, &blamed);
	if (ret)
		die("meeting", ret, blamed);
	ret = tow_arena_create(dev, NULL, arena);
	if (!ret)
		ret = tow_comm_create(*group, *arena, &attr, comm, &blamed);
	if (ret)
		die("connecting", ret, blamed);
}

int main(int argc, char **argv)
{
	struct tow_collective_attr attr = {
		.size = sizeof(attr), .kind = TOW_ALLREDUCE,
		.dtype = { TOW_DTYPE_FLOAT, 32, 1 },
	};
	struct tow_collective *collective;
	struct tow_group *group;
	struct tow_arena *arena;
	struct tow_comm *comm;
	uint64_t calls;
	uint32_t blamed;
	int ret;

	if (argc != 5)
		return 2;
	attr.algorithm = strcmp(argv[1], "ring") ? TOW_ALGORITHM_DIRECT : TOW_ALGORITHM_RING;
	attr.count = strtoull(argv[2], NULL, 10);
	calls = strtoull(argv[3], NULL, 10);
	setvbuf(stdout, NULL, _IOLBF, 0);
	meet(&group, &arena, &comm, (uint32_t)strtoul(argv[4], NULL, 10));
	attr.out = tow_arena_alloc(arena, attr.count * sizeof(float));
	if (!attr.out)
		die("memory", -errno, TOW_NO_RANK);
	ret = tow_collective_create(comm, &attr, &collective, &blamed);
	if (ret)
		die("preparing", ret, blamed);
	for (uint64_t call = 0; call < calls; call++) {
		do_call(collective, attr.out, attr.count, call);
		if (!call)
			puts("goes");
	}
	tow_collective_destroy(collective);
	ret = tow_comm_destroy(comm);
	if (ret)
		die("leaving", ret, TOW_NO_RANK);
	tow_group_destroy(group);
	puts("done");
	return 0;
}
