// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Data-parallel training at its smallest: each rank has some of the samples of a line, and
 * all fit the same line to all of them; what they tell each other is the average of their
 * gradients, a step.
 *
 *	mpirun -x TOW_ROOT=ADDRESS … regression [STEPS]		ADDRESS: of rank 0's node
 *
 * or by any other launcher that tow_world_detect(3) knows.  All print the same line, bit for
 * bit.  Exit status: 0 success, 1 failure, 2 wrong usage.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <towline/collective.h>

#define SAMPLES		4096U
#define STEPS		500
#define STEPS_MAX	1000000
#define RATE		0.5F
/* What is to be found. */
#define SLOPE		3.0F
#define OFFSET		(-1.25F)

struct program {
	struct tow_world world;
	struct tow_device *dev;
	struct tow_group *group;
	struct tow_arena *arena;
	struct tow_comm *comm;
	struct tow_collective *average;
	float *gradient;		/* of slope and offset; in the arena: sent from there */
	float slope, offset;
};

static int say(const char *what, int error, uint32_t blamed)
{
	fprintf(stderr, "regression: %s: %s\n", what, tow_strerror(error));
	if (blamed != TOW_NO_RANK)
		fprintf(stderr, "regression: it is for rank %" PRIu32 "\n", blamed);
	return EXIT_FAILURE;
}

/* The ranks meet, and make what they need for every step. */
static int begin(struct program *program, uint32_t *blamed)
{
	struct tow_collective_attr attr = {
		.size = sizeof(attr),
		.kind = TOW_ALLREDUCE,
		.reduction = TOW_AVG,
		.dtype = { TOW_DTYPE_FLOAT, 32, 1 },
		.count = 2,
	};
	int ret;

	ret = tow_device_open(NULL, 0, &program->dev);
	if (!ret)
		ret = tow_group_create(program->dev, &program->world, NULL, &program->group, blamed);
	if (!ret)
		ret = tow_arena_create(program->dev, NULL, &program->arena);
	if (!ret)
		ret = tow_comm_create(program->group, program->arena, NULL, &program->comm, blamed);
	if (ret)
		return ret;
	program->gradient = tow_arena_zeroed(program->arena, 2, sizeof(float));
	if (!program->gradient)
		return -errno;
	attr.out = program->gradient;
	return tow_collective_create(program->comm, &attr, &program->average, blamed);
}

static void end(struct program *program)
{
	tow_collective_destroy(program->average);
	tow_comm_destroy(program->comm);
	tow_arena_destroy(program->arena);
	tow_group_destroy(program->group);
	tow_device_close(program->dev);
}

/* Of this rank's samples: every world_size-th one. */
static void compute_gradient(struct program *program)
{
	float *gradient = program->gradient, count = 0, x, error;

	gradient[0] = gradient[1] = 0;
	for (uint32_t i = program->world.rank; i < SAMPLES; i += program->world.world_size) {
		x = (float)i / SAMPLES;
		error = program->slope * x + program->offset - (SLOPE * x + OFFSET);
		gradient[0] += error * x;
		gradient[1] += error;
		count++;
	}
	gradient[0] /= count;
	gradient[1] /= count;
}

static int step(struct program *program, uint32_t *blamed)
{
	int ret;

	compute_gradient(program);
	ret = tow_collective_start(program->average);
	if (!ret)
		ret = tow_collective_wait(program->average, blamed);
	if (ret)
		return ret;
	program->slope -= RATE * program->gradient[0];
	program->offset -= RATE * program->gradient[1];
	return 0;
}

int main(int argc, char **argv)
{
	struct program program = { .world.size = sizeof(program.world) };
	unsigned long steps = argc > 1 ? strtoul(argv[1], NULL, 10) : STEPS;
	uint32_t blamed = TOW_NO_RANK;
	const char *variable;
	int ret;

	if (argc > 2 || !steps || steps > STEPS_MAX) {
		fputs("usage: regression [STEPS]\n", stderr);
		return 2;
	}
	ret = tow_world_detect(&program.world, &variable);
	if (ret)
		return say(variable, ret, blamed);
	ret = begin(&program, &blamed);
	for (unsigned long i = 0; i < steps && !ret; i++)
		ret = step(&program, &blamed);
	if (ret) {
		ret = say("training", ret, blamed);
	} else {
		printf("rank %" PRIu32 " of %" PRIu32 ": y = %a x + %a, that is %.2f x + %.2f\n",
		       program.world.rank, program.world.world_size, (double)program.slope,
		       (double)program.offset, (double)program.slope, (double)program.offset);
	}
	end(&program);
	return ret;
}
