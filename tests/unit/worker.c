// SPDX-License-Identifier: GPL-2.0
/* What workers and edges decide by the clock. */
#include <errno.h>
#include <stdint.h>

#include <kselftest.h>

#include "../tensor/steps.h"

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

int main(void)
{
	struct tow_worker patient = { .timeout_ms = 0 };

	ksft_print_header();
	ksft_set_plan(4);
	ksft_test_result(!error_after(0) && !error_after(TIMEOUT_MS * 1000),
			 "a step has all of its time\n");
	ksft_test_result(error_after(TIMEOUT_MS * 1000 + MOMENT_US) == -ETIMEDOUT,
			 "then it is late\n");
	/* Another peer was lost meanwhile, and that let the step begin. */
	ksft_test_result(!error_after(-(int64_t)MOMENT_US),
			 "one that began after the clock was looked at is not\n");
	ksft_test_result(!towi_worker_late(&patient, 0, now_us()), "without a limit nothing is\n");
	ksft_finished();
}
