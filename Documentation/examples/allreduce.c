// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * The least that ranks do together: each has three numbers, and all get the sums.
 *
 *	mpirun -x TOW_ROOT=ADDRESS … allreduce		ADDRESS: of rank 0's node
 *
 * or by any other launcher that tow_world_detect(3) knows.  Exit status: 0 success, 1 failure.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <towline/collective.h>

int main(void)
{
	const struct tow_dtype type = { TOW_DTYPE_FLOAT, 64, 1 };
	struct tow_world world = { .size = sizeof(world) };
	struct tow_device *dev = NULL;
	struct tow_group *group = NULL;
	struct tow_arena *arena = NULL;
	struct tow_comm *comm = NULL;
	double numbers[3] = { 1, 0, 0.5 };
	int ret;

	ret = tow_world_detect(&world, NULL);
	if (!ret)
		ret = tow_device_open(NULL, 0, &dev);
	if (!ret)
		ret = tow_group_create(dev, &world, NULL, &group, NULL);
	if (!ret)
		ret = tow_arena_create(dev, NULL, &arena);
	if (!ret)
		ret = tow_comm_create(group, arena, NULL, &comm, NULL);
	numbers[1] = world.rank;
	if (!ret)
		ret = tow_allreduce(comm, NULL, numbers, 3, type, TOW_SUM, NULL, NULL);
	if (ret)
		fprintf(stderr, "allreduce: %s\n", tow_strerror(ret));
	else
		printf("rank %" PRIu32 ": %g %g %g\n", world.rank, numbers[0], numbers[1],
		       numbers[2]);
	tow_comm_destroy(comm);
	tow_arena_destroy(arena);
	tow_group_destroy(group);
	tow_device_close(dev);
	return ret ? EXIT_FAILURE : EXIT_SUCCESS;
}
