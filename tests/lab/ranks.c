// SPDX-License-Identifier: GPL-2.0
/*
 * A rank of a job, as its launcher's variables say:
 *
 *	ranks ROUNDS TIMEOUT_MS
 *
 * Meets the others, tells them ROUNDS times a number that depends on the rank and the round,
 * looks at what they told, connects to all of their nodes, and says how many nodes there are.
 * "met" is said when all have met.
 */
/* build: link -ltowline */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <towline/bootstrap.h>

#define RANKS_MAX	64U
#define REST_US		20000U

static struct tow_world world = { .size = sizeof(world) };

static void __attribute__((noreturn)) die(const char *what, int error, uint32_t blamed)
{
	printf("%s: %s", what, tow_strerror(error));
	if (blamed != TOW_NO_RANK)
		printf("; rank %" PRIu32 " is missing", blamed);
	putchar('\n');
	exit(1);
}

static uint64_t number_of(uint32_t rank, uint64_t round)
{
	return (rank + 1) * 1000003ULL + round;
}

static void tell(struct tow_group *group, uint64_t round)
{
	uint64_t mine = number_of(world.rank, round), all[RANKS_MAX];
	uint32_t blamed;
	int ret = tow_group_gather(group, &mine, sizeof(mine), all, &blamed);

	if (ret)
		die("telling", ret, blamed);
	for (uint32_t rank = 0; rank < world.world_size; rank++)
		if (all[rank] != number_of(rank, round))
			die("what was told", -EILSEQ, rank);
}

static uint32_t count_nodes(struct tow_group *group)
{
	struct tow_peer *peers[RANKS_MAX];
	uint32_t nodes = 0, before;
	int ret;

	for (uint32_t rank = 0; rank < world.world_size; rank++) {
		ret = tow_group_peer(group, rank, &peers[rank]);
		if (ret)
			die("connecting", ret, rank);
		for (before = 0; peers[before] != peers[rank]; before++)
			;
		nodes += before == rank;
	}
	return nodes;
}

int main(int argc, char **argv)
{
	struct tow_group_attr attr = { .size = sizeof(attr) };
	struct tow_group *group;
	struct tow_device *dev;
	const char *variable;
	uint32_t blamed, nodes;
	uint64_t rounds;
	int ret;

	if (argc != 3)
		return 2;
	rounds = strtoull(argv[1], NULL, 10);
	attr.timeout_ms = (uint32_t)strtoul(argv[2], NULL, 10);
	setvbuf(stdout, NULL, _IOLBF, 0);
	ret = tow_world_detect(&world, &variable);
	if (ret)
		die(variable, ret, TOW_NO_RANK);
	if (world.world_size > RANKS_MAX)
		return 2;
	ret = tow_device_open(NULL, 0, &dev);
	if (ret)
		die("device", ret, TOW_NO_RANK);
	ret = tow_group_create(dev, &world, &attr, &group, &blamed);
	if (ret)
		die("meeting", ret, blamed);
	puts("met");
	for (uint64_t round = 0; round < rounds; round++) {
		tell(group, round);
		usleep(REST_US);
	}
	nodes = count_nodes(group);
	/* Nobody leaves before all have connected. */
	tell(group, rounds);
	printf("rank %" PRIu32 " of %" PRIu32 ", %" PRIu32 " of its node, %s, start %" PRIu32
	       ": %" PRIu32 " nodes\n", world.rank, world.world_size, world.local_rank,
	       world.launcher, world.restart, nodes);
	tow_group_destroy(group);
	tow_device_close(dev);
	return 0;
}
