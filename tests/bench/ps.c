// SPDX-License-Identifier: GPL-2.0
/*
 * What a parameter server moves in a mini-batch: all gradients of a model to the server, which
 * subtracts them, and all values back.
 *
 *	ps -r 0 [-a ROOT] -m MODEL [-d DIVIDE]			the server
 *	ps -r 1 [-a ROOT] -m MODEL [-d DIVIDE] [-n STEPS] [-c]	its worker
 *
 * ROOT is the address of rank 0's node.  Tensors are smaller by DIVIDE than the model's
 * (models.h).  -c: gradients are in ordinary memory, so the library copies them first.  The worker
 * prints what report() has of steps, and copied_bytes of all of them.
 */
/* build: link -ltowline */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>

#include <towline/server.h>

#include "models.h"
#include "sample.h"

#define STEPS_MAX	10000UL

static struct tow_tensor_type types[MODEL_TENSORS_MAX];
static struct model model;
static struct tow_arena *arena;
static bool copies;

static void __attribute__((noreturn)) die(const char *what, int error)
{
	fprintf(stderr, "ps: %s: %s\n", what, tow_strerror(error));
	exit(1);
}

static void must(const char *what, int ret)
{
	if (ret < 0)
		die(what, ret);
}

static struct tow_ps *meet(const struct tow_world *world, struct tow_store *store,
			   struct tow_group *group)
{
	struct tow_ps_attr attr = {
		.size = sizeof(attr),
		.servers = 1,
		.staleness = TOW_PS_SYNCHRONOUS,
		.count = model.count,
		.types = types,
		.store = store,
	};
	struct tow_ps *ps = NULL;

	must(world->rank ? "finding the server" : "finding the worker",
	     tow_ps_create(group, arena, &attr, &ps, NULL));
	return ps;
}

static void serve(const struct tow_world *world, struct tow_group *group)
{
	/* Whole numbers, so that all comes out even. */
	const struct tow_store_attr attr = { .size = sizeof(attr), .optimizer = TOW_SGD, .rate = 1 };
	struct tow_store *store = NULL;
	struct tow_ps *ps;

	must("variables", tow_store_create(arena, &attr, types, NULL, model.count, &store));
	ps = meet(world, store, group);
	must("serving", tow_ps_serve(ps, TOW_WAIT_FOREVER, NULL));
	tow_ps_destroy(ps);
	tow_store_destroy(store);
}

static float *make_gradient(uint64_t elements)
{
	float *gradient = copies ? malloc(elements * sizeof(float)) :
				   tow_arena_alloc(arena, elements * sizeof(float));

	if (!gradient)
		die("memory", -ENOMEM);
	for (uint64_t i = 0; i < elements; i++)
		gradient[i] = 1;
	return gradient;
}

static double step(struct tow_ps *ps, float *const *gradients)
{
	double begin = now_us();

	for (uint32_t i = 0; i < model.count; i++)
		must("pushing", tow_ps_push(ps, i, gradients[i]));
	must("waiting", tow_ps_wait(ps, TOW_PS_ALL, NULL));
	return now_us() - begin;
}

/* Each step has subtracted 1. */
static void look(const struct tow_ps *ps, unsigned long steps)
{
	for (uint32_t i = 0; i < model.count; i++) {
		const float *value = tow_ps_value(ps, i);

		for (uint64_t at = 0; at < model.elements[i]; at++)
			if (value[at] != -(float)steps)
				die("what came back", -EILSEQ);
	}
}

static void work(const struct tow_world *world, struct tow_group *group, unsigned long steps)
{
	struct tow_ps_stats stats = { .size = sizeof(stats) };
	double *samples = calloc(steps, sizeof(*samples));
	struct tow_ps *ps = meet(world, NULL, group);
	float *gradients[MODEL_TENSORS_MAX] = { NULL };

	if (!samples)
		die("memory", -ENOMEM);
	for (uint32_t i = 0; i < model.count; i++)
		gradients[i] = make_gradient(model.elements[i]);
	must("waiting", tow_ps_wait(ps, TOW_PS_ALL, NULL));
	step(ps, gradients);
	for (unsigned long i = 0; i < steps; i++)
		samples[i] = step(ps, gradients);
	look(ps, steps + 1);
	must("asking", tow_ps_stats(ps, &stats));
	printf("tensors %" PRIu32 " sent_bytes %" PRIu64 " copied_bytes %" PRIu64 "\n", model.count,
	       stats.sent_bytes, stats.copied_bytes);
	report(samples, steps);
	tow_ps_destroy(ps);
	free(samples);
}

static void make_types(void)
{
	for (uint32_t i = 0; i < model.count; i++)
		types[i] = (struct tow_tensor_type){
			.dtype = { TOW_DTYPE_FLOAT, 32, 1 }, .ndim = 1,
			.dims = { (int64_t)model.elements[i] },
		};
}

int main(int argc, char **argv)
{
	struct tow_world world = { .size = sizeof(world), .world_size = 2, .session = "bench" };
	unsigned long steps = 10, divide = 1;
	struct tow_group *group = NULL;
	struct tow_device *dev = NULL;
	const char *name = "";
	int option;

	while ((option = getopt(argc, argv, "r:a:m:d:n:c")) != -1) {
		switch (option) {
		case 'r': world.rank = (uint32_t)strtoul(optarg, NULL, 10); break;
		case 'a': snprintf(world.root, sizeof(world.root), "%s", optarg); break;
		case 'm': name = optarg; break;
		case 'd': divide = strtoul(optarg, NULL, 10); break;
		case 'n': steps = strtoul(optarg, NULL, 10); break;
		case 'c': copies = true; break;
		default: return 2;
		}
	}
	if (!steps || steps > STEPS_MAX || !divide || optind != argc)
		return 2;
	model = model_make(name, divide);
	if (!model.count)
		return 2;
	make_types();
	must("device", tow_device_open(NULL, 0, &dev));
	must("meeting", tow_group_create(dev, &world, NULL, &group, NULL));
	must("arena", tow_arena_create(dev, NULL, &arena));
	if (world.rank)
		work(&world, group, steps);
	else
		serve(&world, group);
	tow_group_destroy(group);
	return 0;
}
