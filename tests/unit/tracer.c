// SPDX-License-Identifier: GPL-2.0
/*
 * The tracer: steps of a made-up graph, of which the first is copied and the second is
 * not; what comes later, is reused, passed on, kept, and read from a file.
 */
/* build: also tsan */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kselftest.h>
#include <towline/tracer.h>

#include "tow_scratch.h"
#include "tow_source.h"

#define THREADS		4
#define STEPS		200
#define ALLOCATIONS	70

static void result(bool good, const char *what)
{
	ksft_test_result(good, "%s\n", what);
}

static char path[64];
static struct source source;
static struct tow_arena *arena;
static struct tow_tracer *tracer;
static uint32_t dense, sparse;

static void begin(const struct tow_arena_attr *attr)
{
	source = (struct source){ 0 };
	arena = source_arena(&source, attr);
	if (tow_tracer_create(arena, &tracer) || tow_tracer_node(tracer, "dense", &dense) ||
	    tow_tracer_node(tracer, "sparse/grad", &sparse))
		ksft_exit_fail_msg("no tracer\n");
}

static void end(void)
{
	tow_tracer_destroy(tracer);
	tow_arena_destroy(arena);
}

static struct tow_tracer_report report(void)
{
	struct tow_tracer_report now = { .size = sizeof(now) };

	if (tow_tracer_report(tracer, &now))
		ksft_exit_fail_msg("no report\n");
	return now;
}

static bool in_arena(const void *ptr)
{
	struct tow_region *region;
	uint64_t offset;

	return !tow_arena_find(arena, ptr, &region, &offset);
}

/* Did the step that ended copy and not copy so many bytes? */
static bool sent(uint64_t zero_copy, uint64_t copied)
{
	struct tow_tracer_report now = report();

	return now.zero_copy_bytes == zero_copy && now.copied_bytes == copied;
}

/* dense allocates three, of which the second is sent; sparse two, and neither is. */
static void step(void)
{
	void *has[5];

	tow_tracer_step_begin(tracer);
	for (int i = 0; i < 5; i++)
		has[i] = tow_tracer_alloc(tracer, i < 3 ? dense : sparse, 1000);
	tow_tracer_transferred(tracer, has[1], 1000);
	for (int i = 0; i < 5; i++)
		tow_tracer_free(tracer, has[i]);
	tow_tracer_step_end(tracer);
}

static void test_steps(void)
{
	struct tow_tracer_report now;
	struct tow_arena_stats stats = { .size = sizeof(stats) };

	begin(NULL);
	step();
	now = report();
	result(sent(0, 1000) && now.traced && now.step == 1 && now.copied == 1 && now.sites == 1 &&
	       !now.unknown && !source.regions, "the first step copies");
	step();
	now = report();
	result(sent(1000, 0) && !now.traced && now.step == 2 && now.zero_copy == 1 &&
	       now.sites == 1, "the second does not");
	tow_arena_stats(arena, &stats);
	result(stats.allocations == 1, "and what is not sent is not in the arena");
	step();
	result(sent(1000, 0) && report().step == 3, "nor the third");
	end();
}

static void test_arguments(void)
{
	struct tow_tracer_report now = { .size = 8 };
	struct tow_tracer *none;
	uint32_t again;
	char byte;

	begin(NULL);
	result(tow_tracer_create(NULL, &none) == -EINVAL &&
	       tow_tracer_create(arena, NULL) == -EINVAL, "no arena, no place");
	result(tow_tracer_node(tracer, "", &again) == -EINVAL &&
	       tow_tracer_node(tracer, "a\nb", &again) == -EINVAL &&
	       tow_tracer_node(tracer, NULL, &again) == -EINVAL, "no names");
	result(!tow_tracer_node(tracer, "dense", &again) && again == dense && dense != sparse,
	       "the same name is the same node");
	result(!tow_tracer_alloc(tracer, 2, 1) && errno == EINVAL &&
	       tow_tracer_node_begin(tracer, 2) == -EINVAL &&
	       tow_tracer_allocated(tracer, 2, &byte, 1) == -EINVAL &&
	       tow_tracer_allocated(tracer, 0, NULL, 1) == -EINVAL, "no such node");
	result(tow_tracer_step_end(tracer) == -EINVAL && !tow_tracer_step_begin(tracer) &&
	       tow_tracer_step_begin(tracer) == -EINVAL && !tow_tracer_step_end(tracer),
	       "steps begin and end");
	result(tow_tracer_transferred(tracer, NULL, 1) == -EINVAL &&
	       tow_tracer_report(tracer, &now) == -EINVAL &&
	       tow_tracer_report(tracer, NULL) == -EINVAL, "nothing sent, no report");
	result(!tow_tracer_free(tracer, NULL) && tow_tracer_free(NULL, &byte) == -EINVAL,
	       "nothing is freed");
	end();
}

/* What a site is. */
static void test_sites(void)
{
	char *ptr, *other, area[4096];

	begin(NULL);
	tow_tracer_step_begin(tracer);
	ptr = tow_tracer_alloc(tracer, dense, 1000);
	result(tow_tracer_transferred(tracer, ptr + 500, 100) == TOW_TRACER_JOINS,
	       "a part of a buffer is of its site");
	tow_tracer_step_end(tracer);
	result(tow_tracer_transferred(tracer, ptr, 1000) == TOW_TRACER_JOINS,
	       "it is known for as long as it lives");
	tow_tracer_free(tracer, ptr);

	tow_tracer_step_begin(tracer);
	ptr = tow_tracer_alloc(tracer, dense, 10);
	other = tow_tracer_alloc(tracer, dense, 10);
	result(in_arena(ptr) && !in_arena(other), "the first allocation is, the second is not");
	tow_tracer_node_begin(tracer, dense);
	tow_tracer_free(tracer, ptr);
	ptr = tow_tracer_alloc(tracer, dense, 10);
	result(in_arena(ptr), "a node that runs again has the same sites");
	tow_tracer_free(tracer, ptr);
	result(tow_tracer_free(tracer, ptr) == -EINVAL, "what is in the arena is freed once");
	tow_tracer_free(tracer, other);
	tow_tracer_step_end(tracer);
	end();

	/* The program's own memory; the first step is traced. */
	begin(NULL);
	tow_tracer_step_begin(tracer);
	tow_tracer_allocated(tracer, dense, area, 1000);
	tow_tracer_allocated(tracer, sparse, area + 200, 100);
	result(tow_tracer_transferred(tracer, area + 200, 100) == TOW_TRACER_JOINS &&
	       tow_tracer_transferred(tracer, area, 1) == TOW_TRACER_UNKNOWN &&
	       report().sites == 1, "of those that had an address the newest counts");
	tow_tracer_freed(tracer, area + 200);
	result(tow_tracer_transferred(tracer, area + 200, 1) == TOW_TRACER_UNKNOWN &&
	       report().unknown == 2, "what is freed is nobody's");
	tow_tracer_allocated(tracer, dense, area, 4096);
	tow_tracer_allocated(tracer, dense, area + 4000, 10);
	tow_tracer_allocated(tracer, sparse, area + 10, 4086);
	result(tow_tracer_transferred(tracer, area + 4000, 1) == TOW_TRACER_JOINS &&
	       report().sites == 2 && tow_tracer_transferred(tracer, area, 1) ==
					      TOW_TRACER_UNKNOWN, "a large one is newer than all in it");
	tow_tracer_step_end(tracer);
	end();
}

/* A buffer that is sent only from the third step on. */
static void test_later(void)
{
	void *ptr;
	bool zero_copy[6];

	begin(NULL);
	for (int i = 1; i < 6; i++) {
		tow_tracer_step_begin(tracer);
		ptr = tow_tracer_alloc(tracer, sparse, 64);
		if (i >= 3)
			tow_tracer_transferred(tracer, ptr, 64);
		tow_tracer_free(tracer, ptr);
		tow_tracer_step_end(tracer);
		zero_copy[i] = sent(64, 0);
		if (i == 3)
			result(report().unknown == 1 && !report().traced, "a surprise");
		if (i == 4)
			result(report().traced && report().sites == 1, "has the next step traced");
	}
	result(!zero_copy[3] && !zero_copy[4] && zero_copy[5], "and the one after does not copy");
	end();

	/* Memory that nobody ever tells of, in each step. */
	begin(NULL);
	for (int i = 1; i < 4; i++) {
		tow_tracer_step_begin(tracer);
		tow_tracer_transferred(tracer, path, 1);
		tow_tracer_step_end(tracer);
		zero_copy[i] = report().traced;
	}
	result(zero_copy[1] && !zero_copy[2] && zero_copy[3],
	       "what a traced step does not know has no other one traced");
	end();

	/* Reused without a word, in a step that is not traced. */
	begin(NULL);
	tow_tracer_step_begin(tracer);
	tow_tracer_allocated(tracer, dense, path, 10);
	tow_tracer_transferred(tracer, path, 10);
	tow_tracer_step_end(tracer);
	tow_tracer_step_begin(tracer);
	tow_tracer_allocated(tracer, sparse, path, 10);
	result(tow_tracer_transferred(tracer, path, 10) == TOW_TRACER_UNKNOWN,
	       "what was there before is not taken for it");
	tow_tracer_step_end(tracer);
	end();
}

static void test_exhausted(void)
{
	struct tow_arena_attr attr = { .size = sizeof(attr), .limit_bytes = 2 * MIB };
	void *ptr[2];

	begin(&attr);
	for (int i = 0; i < 2; i++) {
		tow_tracer_step_begin(tracer);
		for (int j = 0; j < 2; j++) {
			ptr[j] = tow_tracer_alloc(tracer, dense, 2 * MIB);
			tow_tracer_transferred(tracer, ptr[j], 1);
		}
		result(in_arena(ptr[0]) == i && !in_arena(ptr[1]) &&
		       report().refused == (uint64_t)i,
		       i ? "what the arena has no room for is ordinary, and counted" :
			   "nothing is refused that is not asked for");
		for (int j = 0; j < 2; j++)
			tow_tracer_free(tracer, ptr[j]);
		tow_tracer_step_end(tracer);
	}
	end();
}

/* ---- from run to run -------------------------------------------------------- */

static bool malformed(const char *text)
{
	write_file("", "sites", text);
	return tow_tracer_load(tracer, path) == -EBADMSG && !report().sites;
}

static void test_files(void)
{
	struct stat status;
	uint32_t node;
	void *ptr;

	snprintf(path, sizeof(path), "%s/sites", scratch);
	begin(NULL);
	step();
	tow_tracer_node(tracer, "a name with spaces", &node);
	for (int i = 0; i < 100; i++) {
		ptr = tow_tracer_alloc(tracer, node, 10);
		tow_tracer_transferred(tracer, ptr, i == 99 ? 10 : 0);
		tow_tracer_free(tracer, ptr);
	}
	umask(027);
	result(report().sites == 101 && !tow_tracer_save(tracer, path) && !stat(path, &status) &&
	       (status.st_mode & 0777) == 0640, "kept, with the rights of any file");
	end();

	begin(NULL);
	result(!tow_tracer_load(tracer, path) && report().sites == 101, "and read");
	step();
	result(sent(1000, 0), "then the first step does not copy");
	result(!tow_tracer_load(tracer, path) && report().sites == 101, "read again it is the same");
	end();

	begin(NULL);
	result(malformed("") && malformed("towline-sites 2\n") && malformed("towline-sites 1"),
	       "no such file");
	result(malformed("towline-sites 1\n1 dense\nx sparse\n") &&
	       malformed("towline-sites 1\n1 dense\n-1 sparse\n") &&
	       malformed("towline-sites 1\n1 dense\n1048576 sparse\n") &&
	       malformed("towline-sites 1\n99999999999999999999 dense\n") &&
	       malformed("towline-sites 1\n1 \n") && malformed("towline-sites 1\n1\n") &&
	       malformed("towline-sites 1\n1 dense"), "nothing is taken of a malformed one");
	snprintf(path, sizeof(path), "%s/nowhere/sites", scratch);
	result(tow_tracer_load(tracer, path) == -ENOENT &&
	       tow_tracer_save(tracer, path) == -ENOENT &&
	       tow_tracer_save(tracer, scratch) == -EISDIR &&
	       tow_tracer_load(tracer, NULL) == -EINVAL, "no file");
	end();
}

/* ---- threads ---------------------------------------------------------------- */

static pthread_barrier_t barrier;
static _Atomic int wrong;

/* A node each: every third of its allocations is sent. */
static void *run_node(void *arg)
{
	uint32_t node = (uint32_t)(uintptr_t)arg;
	void *has[ALLOCATIONS];

	for (int i = 0; i < STEPS; i++) {
		if (!node)
			tow_tracer_step_begin(tracer);
		pthread_barrier_wait(&barrier);
		for (int j = 0; j < ALLOCATIONS; j++) {
			has[j] = tow_tracer_alloc(tracer, node, (size_t)j * 100);
			wrong += !has[j] || in_arena(has[j]) != (i > 0 && j % 3 == 0);
			if (j % 3 == 0)
				wrong += tow_tracer_transferred(tracer, has[j], 1) !=
					 (i ? TOW_TRACER_ZERO_COPY : TOW_TRACER_JOINS);
		}
		for (int j = 0; j < ALLOCATIONS; j++)
			wrong += !!tow_tracer_free(tracer, has[j]);
		pthread_barrier_wait(&barrier);
		if (!node)
			tow_tracer_step_end(tracer);
	}
	return NULL;
}

static void test_threads(void)
{
	pthread_t threads[THREADS];
	char name[32];
	uint32_t node;

	begin(NULL);
	for (int i = 0; i < 3000; i++) {
		snprintf(name, sizeof(name), "node %d", i);
		wrong += tow_tracer_node(tracer, name, &node) || node != (uint32_t)i + 2;
	}
	result(!wrong && !tow_tracer_node(tracer, "node 1234", &node) && node == 1236,
	       "thousands of nodes");
	pthread_barrier_init(&barrier, NULL, THREADS);
	for (uintptr_t i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, run_node, (void *)i))
			ksft_exit_fail_msg("no thread\n");
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	result(!wrong && report().sites == (uint64_t)THREADS * ((ALLOCATIONS + 2) / 3),
	       "nodes of several threads");
	end();
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(4 + 7 + 8 + 5 + 2 + 7 + 2);
	scratch_make();
	test_steps();
	test_arguments();
	test_sites();
	test_later();
	test_exhausted();
	test_files();
	test_threads();
	scratch_cleanup();
	ksft_finished();
}
