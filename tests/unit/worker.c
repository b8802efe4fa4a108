// SPDX-License-Identifier: GPL-2.0
/* What workers and edges decide by themselves: by the clock, and by where a tensor is. */
#include <errno.h>
#include <stdint.h>

#include <kselftest.h>

#include "../tensor/steps.h"
#include "tow_source.h"

#define TIMEOUT_MS	1000U
#define MOMENT_US	1000U

static uint64_t now_us(void)
{
	return towi_now_ns() / 1000;
}

static void ended(struct towi_op *op, int status)
{
	(void)op;
	(void)status;
}

/* An edge with one step on its way. */
static void begin(struct tow_edge *edge, struct tow_worker *worker)
{
	*worker = (struct tow_worker){ .timeout_ms = TIMEOUT_MS };
	*edge = (struct tow_edge){ .common.worker = worker };
	if (towi_steps_make(edge, ended))
		ksft_exit_fail_msg("no memory\n");
	towi_steps_give(edge->steps, towi_steps_next(edge->steps), NULL, NULL);
	towi_steps_begun(edge->steps, towi_step(edge->steps, 1));
}

/* The error of an edge that looked at the clock so much after its step had begun. */
static int error_after(int64_t us)
{
	struct tow_worker worker;
	struct tow_edge edge;

	begin(&edge, &worker);
	towi_steps_look(&edge, towi_step(edge.steps, 1)->begun_us + (uint64_t)us);
	towi_steps_free(&edge);
	return edge.error;
}

#define TENSOR_BYTES	64U

/* What becomes of a tensor at @at: its place; a copy; or an error. */
static int staged(struct tow_worker *worker, const char *at, bool clone, bool copies)
{
	struct tow_edge edge = { .common.worker = worker };
	void *copied = NULL;
	int ret = towi_edge_stage(&edge, at, TENSOR_BYTES, clone, &copied);

	if (!ret && !copied == copies)
		ret = -EXDEV;
	tow_arena_free(worker->arena, copied);
	return ret;
}

/* In the arena, not in it, and at either end of its memory. */
static void test_places(void)
{
	struct source source = { 0 };
	struct tow_worker worker = { .arena = source_arena(&source, NULL) };
	char ordinary[TENSOR_BYTES] = { 0 }, *block = tow_arena_alloc(worker.arena, TENSOR_BYTES);
	struct source_region *made;
	struct tow_region *region;
	uint64_t offset;
	char *begin, *end;

	if (!block || tow_arena_find(worker.arena, block, &region, &offset))
		ksft_exit_fail_msg("no memory\n");
	made = (struct source_region *)region;
	begin = made->at;
	end = begin + made->bytes;
	ksft_test_result(!staged(&worker, block, false, false) &&
			 !staged(&worker, end - TENSOR_BYTES, false, false),
			 "a tensor in a region is sent from there\n");
	ksft_test_result(!staged(&worker, ordinary, false, true) &&
			 !staged(&worker, block, true, true), "others are copied\n");
	ksft_test_result(staged(&worker, end - TENSOR_BYTES + 1, false, false) == -EINVAL &&
			 staged(&worker, end - 1, true, false) == -EINVAL,
			 "one that ends behind a region is refused\n");
	ksft_test_result(staged(&worker, begin - 1, false, false) == -EINVAL,
			 "and one that begins before it\n");
	tow_arena_free(worker.arena, block);
	tow_arena_destroy(worker.arena);
}

int main(void)
{
	struct tow_worker patient = { .timeout_ms = 0 };

	ksft_print_header();
	ksft_set_plan(8);
	ksft_test_result(!error_after(0) && !error_after(TIMEOUT_MS * 1000),
			 "a step has all of its time\n");
	ksft_test_result(error_after(TIMEOUT_MS * 1000 + MOMENT_US) == -ETIMEDOUT,
			 "then it is late\n");
	/* Another peer was lost meanwhile, and that let the step begin. */
	ksft_test_result(!error_after(-(int64_t)MOMENT_US),
			 "one that began after the clock was looked at is not\n");
	ksft_test_result(!towi_worker_late(&patient, 0, now_us()), "without a limit nothing is\n");
	test_places();
	ksft_finished();
}
