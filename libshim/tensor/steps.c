// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/* What a sender has on its way. */
#include <errno.h>
#include <stdlib.h>

#include "../core/internal.h"
#include "steps.h"

/* Without the lock. */
static void tell(struct towi_call *call)
{
	struct towi_step *step =
		(struct towi_step *)(void *)((char *)call - offsetof(struct towi_step, call));

	if (step->done)
		step->done(step->arg, step->number, step->status);
	atomic_store_explicit(&step->calling, false, memory_order_release);
}

static void be_late(struct towi_timed *timed)
{
	struct towi_step *step =
		(struct towi_step *)(void *)((char *)timed - offsetof(struct towi_step, timed));

	towi_edge_fail(towi_edge_of(&step->op), -ETIMEDOUT);
}

int towi_steps_make(struct tow_edge *edge, void (*ended)(struct towi_op *op, int status))
{
	edge->steps = calloc(1, sizeof(*edge->steps));
	if (!edge->steps)
		return -ENOMEM;
	for (uint32_t i = 0; i < TOW_EDGE_SLOTS_MAX; i++) {
		edge->steps->all[i].op.runner = &edge->runner;
		edge->steps->all[i].op.ended = ended;
		edge->steps->all[i].call.runner = &edge->runner;
		edge->steps->all[i].call.run = tell;
		edge->steps->all[i].timed.late = be_late;
	}
	return 0;
}

void towi_steps_free(struct tow_edge *edge)
{
	free(edge->steps);
}

struct towi_step *towi_steps_next(struct towi_steps *steps)
{
	return towi_step(steps, steps->given + 1);
}

int towi_steps_may(struct tow_edge *edge)
{
	const struct towi_steps *steps = edge->steps;
	const struct towi_step *step = towi_steps_next(edge->steps);
	int error = edge->error;

	if (error)
		return error;
	if (!edge->connected)
		return -ENOTCONN;
	if (steps->given - steps->ended >= TOW_EDGE_SLOTS_MAX || step->op.busy ||
	    atomic_load_explicit(&step->calling, memory_order_acquire))
		return -EAGAIN;
	return 0;
}

int towi_steps_ask(struct tow_edge *edge)
{
	int ret;

	towi_pump_lock(edge->runner.pump);
	ret = towi_steps_may(edge);
	towi_pump_unlock_plainly(edge->runner.pump);
	return ret;
}

void towi_steps_give(struct towi_steps *steps, struct towi_step *step, tow_edge_done *done,
		     void *arg)
{
	step->number = ++steps->given;
	step->done = done;
	step->arg = arg;
	step->over = false;
	atomic_store_explicit(&step->calling, true, memory_order_relaxed);
}

void towi_steps_begun(struct tow_edge *edge, struct towi_step *step)
{
	towi_pump_time(edge->runner.pump, &step->timed);
	edge->steps->begun++;
}

static void end_oldest(struct tow_edge *edge)
{
	struct towi_step *step = towi_step(edge->steps, ++edge->steps->ended);

	towi_pump_untime(edge->runner.pump, &step->timed);
	tow_arena_free(edge->worker->words, step->staged);
	step->staged = NULL;
	towi_pump_call(&step->call);
}

void towi_steps_over(struct tow_edge *edge, struct towi_step *step, int status)
{
	struct towi_steps *steps = edge->steps;

	towi_pump_untime(edge->runner.pump, &step->timed);
	step->status = status;
	step->over = true;
	while (steps->ended < steps->begun && towi_step(steps, steps->ended + 1)->over)
		end_oldest(edge);
}

void towi_steps_cancel(struct tow_edge *edge)
{
	struct towi_steps *steps = edge->steps;

	while (edge->error && steps->begun < steps->given && steps->begun == steps->ended) {
		steps->begun++;
		towi_steps_over(edge, towi_step(steps, steps->begun), edge->error);
	}
}

uint32_t towi_steps_pending(const struct tow_edge *edge)
{
	return (uint32_t)(edge->steps->given - edge->steps->ended);
}

uint64_t towi_steps_next_number(const struct tow_edge *edge)
{
	return edge->steps->given + 1;
}

/* Its operation may still end, and then it is nobody's. */
static void ignore(struct towi_op *op, int status)
{
	(void)op;
	(void)status;
}

/* All that the device did not end. */
void towi_steps_give_up(struct tow_edge *edge)
{
	struct towi_steps *steps = edge->steps;
	struct towi_step *step;

	while (steps->ended < steps->given) {
		step = towi_step(steps, steps->ended + 1);
		step->op.ended = ignore;
		if (!step->over)
			step->status = edge->error;
		end_oldest(edge);
	}
}
