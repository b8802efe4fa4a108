// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * A tensor a step, from the node that computes it to one that sums it up, by a static
 * edge: sent from where it was computed, and never written over before it was read.
 *
 *	gradients sum ADDR NAME [STEPS]		receives them from the node at ADDR
 *	gradients compute ADDR NAME [STEPS]	sends them to the node at ADDR
 *
 * Both print the same sum.  Exit status: 0 success, 1 failure, 2 wrong usage.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <towline/queue.h>
#include <towline/tensor.h>

#define ROWS		64
#define COLUMNS		1024
#define ELEMENTS	((size_t)ROWS * COLUMNS)
#define SLOTS		4U		/* steps that the receiver has room for */
#define STEPS		200
#define STEPS_MAX	1000000
#define WAIT_MS		10000
/* Computed while others are on their way. */
#define TENSORS		3U

static const struct tow_tensor_type type = {
	.dtype = { TOW_DTYPE_FLOAT, 32, 1 }, .ndim = 2, .dims = { ROWS, COLUMNS },
};

struct program {
	struct tow_device *dev;
	struct tow_arena *arena;
	struct tow_worker *worker;
	struct tow_peer *peer;
	struct tow_edge *edge;
	uint64_t steps;
	double sum;
};

static int say(const char *what, int error)
{
	fprintf(stderr, "gradients: %s: %s\n", what, tow_strerror(error));
	return EXIT_FAILURE;
}

/* A device, memory, a worker, and the node at the other end. */
static int begin(struct program *program, const char *address)
{
	int ret;

	ret = tow_device_open(NULL, 0, &program->dev);
	if (!ret)
		ret = tow_arena_create(program->dev, NULL, &program->arena);
	if (!ret)
		ret = tow_worker_create(program->dev, program->arena, NULL, &program->worker);
	if (!ret)
		ret = tow_peer_connect(program->dev, address, NULL, WAIT_MS, &program->peer);
	return ret;
}

static int end(struct program *program)
{
	int ret = tow_edge_close(program->edge);

	tow_worker_destroy(program->worker);
	tow_peer_release(program->peer);
	tow_arena_destroy(program->arena);
	tow_device_close(program->dev);
	return ret;
}

static double sum_of(const float *tensor)
{
	double sum = 0;

	for (size_t i = 0; i < ELEMENTS; i += 101)
		sum += (double)tensor[i];
	return sum;
}

/* ---- compute ---- */

static void compute_step(float *tensor, uint64_t step)
{
	for (size_t i = 0; i < ELEMENTS; i++)
		tensor[i] = (float)(step % 1000) + (float)(i % 4096) / 4096;
}

/* Called when a tensor is ours again; its number of steps under way is one less. */
static void sent(void *arg, uint64_t step, int status)
{
	int *error = arg;

	(void)step;
	if (status && !*error)
		*error = status;
}

static int compute(struct program *program)
{
	float *tensors[TENSORS];
	int ret = 0, error = 0;

	for (size_t i = 0; i < TENSORS; i++) {
		tensors[i] = tow_arena_alloc(program->arena, ELEMENTS * sizeof(float));
		if (!tensors[i])
			return -errno;
	}
	for (uint64_t step = 1; step <= program->steps && !ret && !error; step++) {
		float *tensor = tensors[step % TENSORS];

		while (tow_edge_pending(program->edge) >= TENSORS && ret >= 0 && !error)
			ret = tow_worker_progress(program->worker, TOW_WAIT_FOREVER);
		if (ret < 0 || error)
			break;
		compute_step(tensor, step);
		program->sum += sum_of(tensor);
		ret = tow_edge_send(program->edge, tensor, sent, &error);
	}
	while (tow_edge_pending(program->edge) && ret >= 0 && !error)
		ret = tow_worker_progress(program->worker, TOW_WAIT_FOREVER);
	return error ? error : ret < 0 ? ret : 0;
}

/* ---- sum ---- */

static int sum(struct program *program)
{
	uint64_t step = 0;
	void *tensor;
	int ret = 0;

	while (!ret && step < program->steps) {
		ret = tow_edge_wait(program->edge, TOW_WAIT_FOREVER, &tensor, &step);
		if (ret)
			break;
		program->sum += sum_of(tensor);
		ret = tow_edge_consumed(program->edge);
	}
	return ret;
}

/* ---- all of it ---- */

static int run(struct program *program, const char *what, const char *name)
{
	int ret;

	if (!strcmp(what, "sum"))
		ret = tow_static_receiver(program->worker, program->peer, name, &type, SLOTS,
					  &program->edge);
	else
		ret = tow_static_sender(program->worker, program->peer, name, &type,
					&program->edge);
	if (!ret)
		ret = tow_edge_connect(program->edge, WAIT_MS);
	if (ret)
		return ret;
	return !strcmp(what, "sum") ? sum(program) : compute(program);
}

static int usage(void)
{
	fputs("usage: gradients sum|compute ADDR NAME [STEPS]\n", stderr);
	return 2;
}

int main(int argc, char **argv)
{
	struct program program = { .steps = STEPS };
	char *rest = NULL;
	int ret;

	if (argc < 4 || argc > 5 || (strcmp(argv[1], "sum") && strcmp(argv[1], "compute")))
		return usage();
	if (argc == 5)
		program.steps = strtoull(argv[4], &rest, 10);
	if ((rest && *rest) || !program.steps || program.steps > STEPS_MAX)
		return usage();
	ret = begin(&program, argv[2]);
	if (ret)
		return say("cannot begin", ret);
	ret = run(&program, argv[1], argv[3]);
	if (ret)
		return say(argv[1], ret);
	printf("%s: %" PRIu64 " steps, sum %.6f, %" PRIu64 " bytes copied\n", argv[1],
	       program.steps, program.sum, tow_worker_copied(program.worker));
	ret = end(&program);
	return ret ? say("cannot end", ret) : EXIT_SUCCESS;
}
