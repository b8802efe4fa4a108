// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * A tensor whose shape changes with each step, by a dynamic edge; and the tracer, which
 * learns in the first step what is sent, so that from the second step on it is
 * allocated where it can be sent from.
 *
 *	shapes receive ADDR NAME [STEPS]	receives them from the node at ADDR
 *	shapes send ADDR NAME [STEPS]		sends them to the node at ADDR
 *
 * Both print the same sum.  Exit status: 0 success, 1 failure, 2 wrong usage.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <towline/queue.h>
#include <towline/tensor.h>
#include <towline/tracer.h>

#define STEPS		6
#define STEPS_MAX	1000000
#define TOLD_STEPS	8		/* of which each is told */
#define SLOTS		2U
#define WAIT_MS		10000

struct program {
	struct tow_device *dev;
	struct tow_arena *arena;
	struct tow_worker *worker;
	struct tow_peer *peer;
	struct tow_edge *edge;
	struct tow_tracer *tracer;
	uint64_t steps;
	double sum;
};

static int say(const char *what, int error)
{
	fprintf(stderr, "shapes: %s: %s\n", what, tow_strerror(error));
	return EXIT_FAILURE;
}

static int begin(struct program *program, const char *address)
{
	int ret;

	ret = tow_device_open(NULL, 0, &program->dev);
	if (!ret)
		ret = tow_arena_create(program->dev, NULL, &program->arena);
	if (!ret)
		ret = tow_worker_create(program->dev, program->arena, NULL, &program->worker);
	if (!ret)
		ret = tow_tracer_create(program->arena, &program->tracer);
	if (!ret)
		ret = tow_peer_connect(program->dev, address, NULL, WAIT_MS, &program->peer);
	return ret;
}

static int end(struct program *program)
{
	int ret = tow_edge_close(program->edge);

	tow_worker_destroy(program->worker);
	tow_tracer_destroy(program->tracer);
	tow_peer_release(program->peer);
	tow_arena_destroy(program->arena);
	tow_device_close(program->dev);
	return ret;
}

/* ---- the same on both sides ---- */

/* A batch of sentences, say: how many, and how long the longest is. */
static struct tow_tensor_type type_of(uint64_t step)
{
	struct tow_tensor_type type = {
		.dtype = { TOW_DTYPE_FLOAT, 32, 1 },
		.ndim = 2,
		.dims = { (int64_t)(1 + step * 7 % 128), (int64_t)(16 + step * 37 % 512) },
	};

	return type;
}

static double sum_of(const float *tensor, size_t elements)
{
	double sum = 0;

	for (size_t i = 0; i < elements; i++)
		sum += (double)tensor[i];
	return sum;
}

/* ---- send ---- */

static void sent(void *arg, uint64_t step, int status)
{
	int *error = arg;

	(void)step;
	if (status && !*error)
		*error = status;
}

/* What the tracer says of a step. */
static int tell(const struct program *program, uint64_t step, const struct tow_tensor_type *type)
{
	struct tow_tracer_report report = { .size = sizeof(report) };
	int ret = tow_tracer_report(program->tracer, &report);

	if (!ret && step <= TOLD_STEPS)
		printf("step %" PRIu64 ": %" PRId64 " x %" PRId64 ", %" PRIu64
		       " bytes copied, %" PRIu64 " zero-copy\n",
		       step, type->dims[0], type->dims[1], report.copied_bytes,
		       report.zero_copy_bytes);
	return ret;
}

/* One step: allocate, compute, send, wait until it was read, free. */
static int send_step(struct program *program, uint32_t node, uint64_t step)
{
	struct tow_tensor_type type = type_of(step);
	size_t elements = (size_t)(type.dims[0] * type.dims[1]);
	int ret, error = 0;
	float *tensor;

	tow_tracer_step_begin(program->tracer);
	tensor = tow_tracer_alloc(program->tracer, node, elements * sizeof(float));
	if (!tensor)
		return -errno;
	for (size_t i = 0; i < elements; i++)
		tensor[i] = (float)(step % 1000) + (float)(i % 4096) / 4096;
	program->sum += sum_of(tensor, elements);
	tow_tracer_transferred(program->tracer, tensor, elements * sizeof(float));
	ret = tow_dynamic_send(program->edge, &type, tensor, sent, &error);
	while (!ret && tow_edge_pending(program->edge)) {
		ret = tow_worker_progress(program->worker, TOW_WAIT_FOREVER);
		ret = ret < 0 ? ret : 0;
	}
	tow_tracer_free(program->tracer, tensor);
	tow_tracer_step_end(program->tracer);
	if (!ret && !error)
		ret = tell(program, step, &type);
	return error ? error : ret;
}

static int send_all(struct program *program)
{
	uint32_t node;
	int ret;

	ret = tow_tracer_node(program->tracer, "embedding", &node);
	for (uint64_t step = 1; step <= program->steps && !ret; step++)
		ret = send_step(program, node, step);
	return ret;
}

/* ---- receive ---- */

static int receive_all(struct program *program)
{
	struct tow_tensor_type type, wanted;
	uint64_t step = 0;
	void *tensor;
	int ret = 0;

	while (!ret && step < program->steps) {
		ret = tow_edge_wait(program->edge, TOW_WAIT_FOREVER, &tensor, &step);
		if (!ret)
			ret = tow_edge_type(program->edge, &type);
		if (ret)
			break;
		wanted = type_of(step);
		if (type.ndim != 2 || type.dims[0] != wanted.dims[0] ||
		    type.dims[1] != wanted.dims[1])
			return -EMSGSIZE;
		program->sum += sum_of(tensor, (size_t)(type.dims[0] * type.dims[1]));
		ret = tow_edge_consumed(program->edge);
	}
	return ret;
}

/* ---- all of it ---- */

static int run(struct program *program, bool sends, const char *name)
{
	int ret;

	ret = sends ? tow_dynamic_sender(program->worker, program->peer, name, &program->edge) :
		      tow_dynamic_receiver(program->worker, program->peer, name, SLOTS,
					   &program->edge);
	if (!ret)
		ret = tow_edge_connect(program->edge, WAIT_MS);
	if (ret)
		return ret;
	return sends ? send_all(program) : receive_all(program);
}

static int usage(void)
{
	fputs("usage: shapes send|receive ADDR NAME [STEPS]\n", stderr);
	return 2;
}

int main(int argc, char **argv)
{
	struct program program = { .steps = STEPS };
	char *rest = NULL;
	int ret;

	if (argc < 4 || argc > 5 || (strcmp(argv[1], "send") && strcmp(argv[1], "receive")))
		return usage();
	if (argc == 5)
		program.steps = strtoull(argv[4], &rest, 10);
	if ((rest && *rest) || !program.steps || program.steps > STEPS_MAX)
		return usage();
	ret = begin(&program, argv[2]);
	if (ret)
		return say("cannot begin", ret);
	ret = run(&program, !strcmp(argv[1], "send"), argv[3]);
	if (ret)
		return say(argv[1], ret);
	printf("%s: %" PRIu64 " steps, sum %.6f, %" PRIu64 " bytes copied\n", argv[1],
	       program.steps, program.sum, tow_worker_copied(program.worker));
	ret = end(&program);
	return ret ? say("cannot end", ret) : EXIT_SUCCESS;
}
