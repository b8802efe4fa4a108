// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Parameters of a model, fetched by name as they are needed, by a rendezvous: whoever asks
 * first waits, and so does what is offered first.
 *
 *	parameters offer ADDR NAME [STEPS [KEYS]]	has them, for the node at ADDR
 *	parameters fetch ADDR NAME [STEPS [KEYS]]	fetches all of them, each step
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

#define STEPS		20
#define KEYS		16
#define STEPS_MAX	1000000
#define KEYS_MAX	1000
#define ELEMENTS	1024U		/* of the smallest */
#define REQUESTS	32U
#define WAIT_MS		10000

struct program {
	struct tow_device *dev;
	struct tow_arena *arena;
	struct tow_worker *worker;
	struct tow_peer *peer;
	struct tow_edge *edge;
	uint64_t steps, keys;
	uint64_t left;			/* of a step */
	double sum;
	int error;
};

static int say(const char *what, int error)
{
	fprintf(stderr, "parameters: %s: %s\n", what, tow_strerror(error));
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

/* A layer's weights: their shape is the same in each step. */
static struct tow_tensor_type type_of(uint64_t key)
{
	struct tow_tensor_type type = {
		.dtype = { TOW_DTYPE_FLOAT, 32, 1 },
		.ndim = 2,
		.dims = { (int64_t)(1 + key % 8), ELEMENTS },
	};

	return type;
}

static size_t elements_of(const struct tow_tensor_type *type)
{
	return (size_t)(type->dims[0] * type->dims[1]);
}

static double sum_of(const float *tensor, size_t elements)
{
	double sum = 0;

	for (size_t i = 0; i < elements; i += 17)
		sum += (double)tensor[i];
	return sum;
}

/* Until all of a step have ended. */
static int finish(struct program *program)
{
	int ret = 0;

	while (program->left && ret >= 0 && !program->error)
		ret = tow_worker_progress(program->worker, TOW_WAIT_FOREVER);
	return program->error ? program->error : ret < 0 ? ret : 0;
}

/* ---- offer ---- */

static void sent(void *arg, uint64_t step, int status)
{
	struct program *program = arg;

	(void)step;
	program->left--;
	if (status && !program->error)
		program->error = status;
}

static int offer_step(struct program *program, float **tensors, uint64_t step)
{
	struct tow_tensor_type type;
	char name[48];
	int ret = 0;

	program->left = program->keys;
	for (uint64_t key = 0; key < program->keys && !ret; key++) {
		type = type_of(key);
		for (size_t i = 0; i < elements_of(&type); i++)
			tensors[key][i] = (float)((step + key) % 1000) + (float)i / 8192;
		program->sum += sum_of(tensors[key], elements_of(&type));
		snprintf(name, sizeof(name), "layer%" PRIu64 "/weights", key);
		ret = tow_rendezvous_put(program->edge, name, step, &type, tensors[key], 0, sent,
					 program);
	}
	return ret ? ret : finish(program);
}

static int offer(struct program *program)
{
	float *tensors[KEYS_MAX];
	struct tow_tensor_type type;
	int ret = 0;

	for (uint64_t key = 0; key < program->keys; key++) {
		type = type_of(key);
		tensors[key] = tow_arena_alloc(program->arena, elements_of(&type) * sizeof(float));
		if (!tensors[key])
			return -errno;
	}
	for (uint64_t step = 1; step <= program->steps && !ret; step++)
		ret = offer_step(program, tensors, step);
	return ret;
}

/* ---- fetch ---- */

static void got(void *arg, const struct tow_rendezvous_tensor *tensor)
{
	struct program *program = arg;

	program->left--;
	if (tensor->status) {
		if (!program->error)
			program->error = tensor->status;
		return;
	}
	program->sum += sum_of(tensor->data, elements_of(&tensor->type));
	tow_arena_free(program->arena, tensor->data);
}

static int fetch(struct program *program)
{
	char name[48];
	int ret = 0;

	for (uint64_t step = 1; step <= program->steps && !ret; step++) {
		program->left = program->keys;
		for (uint64_t key = 0; key < program->keys && !ret; key++) {
			snprintf(name, sizeof(name), "layer%" PRIu64 "/weights", key);
			ret = tow_rendezvous_get(program->edge, name, step, got, program);
		}
		if (!ret)
			ret = finish(program);
	}
	return ret;
}

/* ---- all of it ---- */

static int run(struct program *program, bool offers, const char *name)
{
	int ret;

	ret = offers ? tow_rendezvous_sender(program->worker, program->peer, name, REQUESTS,
					     &program->edge) :
		       tow_rendezvous_receiver(program->worker, program->peer, name, REQUESTS,
					       &program->edge);
	if (!ret)
		ret = tow_edge_connect(program->edge, WAIT_MS);
	if (ret)
		return ret;
	return offers ? offer(program) : fetch(program);
}

static int usage(void)
{
	fputs("usage: parameters offer|fetch ADDR NAME [STEPS [KEYS]]\n", stderr);
	return 2;
}

/* A number of 1 to @most; 0: it is none. */
static uint64_t number_of(const char *text, uint64_t most)
{
	char *rest;
	uint64_t number = strtoull(text, &rest, 10);

	return *rest || number > most ? 0 : number;
}

int main(int argc, char **argv)
{
	struct program program = { .steps = STEPS, .keys = KEYS };
	int ret;

	if (argc < 4 || argc > 6 || (strcmp(argv[1], "offer") && strcmp(argv[1], "fetch")))
		return usage();
	if (argc > 4)
		program.steps = number_of(argv[4], STEPS_MAX);
	if (argc > 5)
		program.keys = number_of(argv[5], KEYS_MAX);
	if (!program.steps || !program.keys)
		return usage();
	ret = begin(&program, argv[2]);
	if (ret)
		return say("cannot begin", ret);
	ret = run(&program, !strcmp(argv[1], "offer"), argv[3]);
	if (ret)
		return say(argv[1], ret);
	printf("%s: %" PRIu64 " steps of %" PRIu64 " tensors, sum %.6f, %" PRIu64
	       " bytes copied\n",
	       argv[1], program.steps, program.keys, program.sum,
	       tow_worker_copied(program.worker));
	ret = end(&program);
	return ret ? say("cannot end", ret) : EXIT_SUCCESS;
}
