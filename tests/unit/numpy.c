// SPDX-License-Identifier: GPL-2.0
/*
 * NumPy's functions: where memory is, what it holds when its size changes, whose it is after
 * the tracer and the arena have ended and in a child; and threads meanwhile.
 */
/* build: also tsan */
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kselftest.h>
#include <towline/numpy.h>

#include "tow_source.h"

#define THREADS	4
#define ROUNDS	2000

static struct source source;
static struct tow_arena *arena;
static struct tow_tracer *tracer;
static struct tow_numpy *numpy;

static void result(bool good, const char *what)
{
	ksft_test_result(good, "%s\n", what);
}

static void begin(bool traces, uint32_t flags)
{
	struct tow_arena_attr attr = { .size = sizeof(attr), .flags = flags };

	source = (struct source){ 0 };
	arena = source_arena(&source, &attr);
	tracer = NULL;
	if ((traces && tow_tracer_create(arena, &tracer)) ||
	    tow_numpy_create(arena, tracer, &numpy))
		ksft_exit_fail_msg("nothing to allocate by\n");
}

/* It must be retired. */
static void end(void)
{
	result(!tow_numpy_retire(numpy), "nothing is in use");
	tow_tracer_destroy(tracer);
	tow_arena_destroy(arena);
	result(!source.regions, "the memory is given back");
}

static bool in_arena(const void *ptr)
{
	struct tow_region *region;
	uint64_t offset;

	return !tow_arena_find(arena, ptr, &region, &offset);
}

static bool all_are(const unsigned char *ptr, unsigned char value, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (ptr[i] != value)
			return false;
	return true;
}

static void test_arguments(void)
{
	begin(false, 0);
	result(tow_numpy_create(NULL, NULL, &numpy) == -EINVAL &&
	       tow_numpy_create(arena, NULL, NULL) == -EINVAL &&
	       tow_numpy_retire(NULL) == -EINVAL, "arguments");
	result(!tow_numpy_calloc(numpy, SIZE_MAX / 2, 3) && errno == ENOMEM, "too much");
	tow_numpy_free(numpy, NULL, 0);
	end();
	tow_numpy_destroy(numpy);
	tow_numpy_destroy(NULL);
}

/* Bytes that it has are those that it had; @flags of the arena. */
static void test_all(uint32_t flags, const char *what)
{
	unsigned char *ptr, *zeroes;

	begin(false, flags);
	ptr = tow_numpy_malloc(numpy, 1000);
	zeroes = tow_numpy_calloc(numpy, 100, 10);
	result(ptr && zeroes && in_arena(ptr) && in_arena(zeroes) && all_are(zeroes, 0, 1000), what);
	memset(ptr, 7, 1000);
	ptr = tow_numpy_realloc(numpy, ptr, 3 * MIB);
	result(ptr && in_arena(ptr) && all_are(ptr, 7, 1000), "more");
	ptr = tow_numpy_realloc(numpy, ptr, 10);
	result(ptr && in_arena(ptr) && all_are(ptr, 7, 10), "less");
	result(tow_numpy_retire(numpy) == -EBUSY, "it is in use");
	tow_numpy_free(numpy, ptr, 10);
	result(tow_numpy_retire(numpy) == -EBUSY, "half of it is");
	tow_numpy_free(numpy, zeroes, 1000);
	end();
	ptr = tow_numpy_malloc(numpy, 100);
	memset(ptr, 3, 100);
	ptr = tow_numpy_realloc(numpy, ptr, 200);
	result(ptr && all_are(ptr, 3, 100), "ordinary memory after the arena");
	tow_numpy_free(numpy, ptr, 200);
	tow_numpy_destroy(numpy);
}

/* The pool has nothing: ordinary memory, which is the arena's. */
static void test_fallback(void)
{
	unsigned char *ptr;

	begin(false, TOW_ARENA_FALLBACK);
	source.error = -ENOSPC;
	ptr = tow_numpy_malloc(numpy, 1000);
	result(ptr && !in_arena(ptr) && tow_arena_usable(arena, ptr) >= 1000,
	       "the arena's ordinary memory");
	memset(ptr, 9, 1000);
	ptr = tow_numpy_realloc(numpy, ptr, 2000);
	result(ptr && all_are(ptr, 9, 1000) && tow_numpy_retire(numpy) == -EBUSY, "more of it");
	tow_numpy_free(numpy, ptr, 2000);
	end();
	tow_numpy_destroy(numpy);
}

/* Two buffers a step, of which the second is sent: where that was. */
static bool step(uint32_t node)
{
	unsigned char *first, *second;
	uint32_t before;
	bool found;

	tow_tracer_step_begin(tracer);
	before = tow_numpy_node(numpy, node);
	first = tow_numpy_malloc(numpy, 500);
	second = tow_numpy_calloc(numpy, 500, 1);
	found = in_arena(second) && !in_arena(first) && all_are(second, 0, 500);
	tow_tracer_transferred(tracer, second, 500);
	second = tow_numpy_realloc(numpy, second, 5000);
	found = found && in_arena(second) && all_are(second, 0, 500);
	first = tow_numpy_realloc(numpy, first, 5000);
	tow_numpy_free(numpy, first, 5000);
	tow_numpy_free(numpy, second, 5000);
	if (tow_numpy_node(numpy, before) != node)
		found = false;
	tow_tracer_step_end(tracer);
	return found;
}

static void test_tracer(void)
{
	uint32_t node;
	int late = 0;

	begin(true, 0);
	tow_tracer_node(tracer, "layer", &node);
	result(!step(node) && step(node) && step(node), "from the second step on");
	/* One step finds out that something unknown is sent, the next one what. */
	while (!step(UINT32_MAX) && late < 9)
		late++;
	result(late == 2 && step(UINT32_MAX), "without a node");
	end();
	tow_numpy_destroy(numpy);
}

/* What a child finds wrong. */
static int child(unsigned char *of_arena, unsigned char *ordinary)
{
	unsigned char *own = tow_numpy_malloc(numpy, 100);

	if (!own || in_arena(own))
		return 1;
	tow_numpy_free(numpy, own, 100);
	if (tow_numpy_realloc(numpy, of_arena, 10) || errno != EPERM)
		return 2;
	tow_numpy_free(numpy, of_arena, 1000);
	tow_numpy_free(numpy, ordinary, 1000);
	return tow_numpy_retire(numpy) == -EPERM ? 0 : 3;
}

static void test_child(void)
{
	unsigned char *of_arena, *ordinary;
	int status = -1;
	uint32_t node;
	pid_t pid;

	begin(true, TOW_ARENA_DEBUG);
	tow_tracer_node(tracer, "layer", &node);
	step(node);
	tow_numpy_node(numpy, node);
	tow_tracer_step_begin(tracer);
	ordinary = tow_numpy_malloc(numpy, 1000);
	of_arena = tow_numpy_malloc(numpy, 1000);
	memset(of_arena, 5, 1000);
	pid = fork();
	if (!pid)
		_exit(child(of_arena, ordinary));
	waitpid(pid, &status, 0);
	result(in_arena(of_arena) && !in_arena(ordinary) && status == 0 &&
	       all_are(of_arena, 5, 1000), "a child");
	tow_numpy_free(numpy, of_arena, 1000);
	tow_numpy_free(numpy, ordinary, 1000);
	tow_tracer_step_end(tracer);
	tow_numpy_node(numpy, UINT32_MAX);
	end();
	tow_numpy_destroy(numpy);
}

static _Atomic int wrong;

static void *allocate(void *arg)
{
	unsigned char *ptr;

	for (unsigned int i = 0; i < ROUNDS; i++) {
		ptr = tow_numpy_malloc(numpy, 100 + i % 3000);
		memset(ptr, (int)(i & 0xff), 100);
		ptr = tow_numpy_realloc(numpy, ptr, 50 + i % 5000);
		if (!all_are(ptr, i & 0xff, 50))
			wrong++;
		tow_numpy_free(numpy, ptr, 0);
	}
	return arg;
}

/* The arena ends while they go on. */
static void test_threads(void)
{
	pthread_t threads[THREADS];

	begin(false, 0);
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, allocate, NULL))
			ksft_exit_fail_msg("no thread\n");
	usleep(1000);
	while (tow_numpy_retire(numpy) == -EBUSY)
		usleep(10);
	tow_arena_destroy(arena);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	result(!wrong && !source.regions, "the arena ends while threads allocate");
	tow_numpy_destroy(numpy);
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(4 + 2 * 8 + 4 + 4 + 3 + 1);
	test_arguments();
	test_all(0, "all is in the arena");
	test_all(TOW_ARENA_DEBUG, "with red zones, too");
	test_fallback();
	test_tracer();
	test_child();
	test_threads();
	ksft_finished();
}
