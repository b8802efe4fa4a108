// SPDX-License-Identifier: GPL-2.0
/*
 * In what order a queue's entries begin: see order.h.
 *
 * Chains begin in their order.  A fenced one waits until all that began before
 * it has ended, and holds back those after it.  Of a chain one step is under way
 * at a time; the next one becomes ready when it has succeeded.
 *
 * A step may fail before it ends (tow_order_fail()), even before it begins: the
 * program is told at once, and it keeps its place.  Those that come after it find out
 * when it ends; what was added after the program was told is not concerned.
 */
#include "order.h"

static void tow_steps_init(struct tow_steps *steps)
{
	steps->first = NULL;
	steps->end = &steps->first;
}

static void tow_steps_add(struct tow_steps *steps, struct tow_step *step)
{
	step->later = NULL;
	*steps->end = step;
	steps->end = &step->later;
}

static struct tow_step *tow_steps_take(struct tow_steps *steps)
{
	struct tow_step *step = steps->first;

	if (!step)
		return NULL;
	steps->first = step->later;
	if (!steps->first)
		steps->end = &steps->first;
	return step;
}

/**
 * tow_order_init - nothing is to begin
 * @order: where to
 */
void tow_order_init(struct tow_order *order)
{
	tow_steps_init(&order->chains);
	tow_steps_init(&order->ready);
	order->active = 0;
	order->added = 0;
	order->failed = 0;
}

/**
 * tow_order_add - a chain is to begin after those that were added before
 * @order: the order
 * @chain: its first step
 */
void tow_order_add(struct tow_order *order, struct tow_step *chain)
{
	order->added++;
	/* Of one that has failed it says something else. */
	if (!chain->failed)
		chain->number = order->added;
	tow_steps_add(&order->chains, chain);
}

/**
 * tow_order_pass - do chains begin at once?
 * @order: the order
 * @count: chains that would be added otherwise, none of them fenced
 *
 * Return: true: nothing is to begin before them, and they have begun: each first
 * step is for tow_order_done(); false: they are to be added.
 */
bool tow_order_pass(struct tow_order *order, u32 count)
{
	if (order->ready.first || order->chains.first)
		return false;
	order->active += count;
	return true;
}

/**
 * tow_order_next - what may begin now?
 * @order: the order
 * @cancel: where to: it must not be done, but fail, as it has failed before, or
 *	something that it was to wait for has
 *
 * Return: the step, for tow_order_done(); NULL: nothing.
 */
struct tow_step *tow_order_next(struct tow_order *order, bool *cancel)
{
	struct tow_step *step = tow_steps_take(&order->ready);

	*cancel = step && step->failed;
	if (step)
		return step;
	step = order->chains.first;
	if (!step || (step->fence && order->active))
		return NULL;
	tow_steps_take(&order->chains);
	order->active++;
	*cancel = step->failed ||
		  (step->fence && step->number <= order->failed);
	return step;
}

/* So many chains were there when a step failed. */
static void tow_order_note(struct tow_order *order, u64 chains)
{
	if (order->failed < chains)
		order->failed = chains;
}

/* The same of a step, and of those after it that have failed since. */
static void tow_order_note_all(struct tow_order *order, struct tow_step *step)
{
	for (; step; step = step->next) {
		if (step->failed)
			tow_order_note(order, step->number);
	}
}

/**
 * tow_order_advance - a step has ended: tow_order_done() where there is more to do
 * @order: the order
 * @step: as there
 * @failed: as there
 *
 * Return: as there.
 */
struct tow_step *tow_order_advance(struct tow_order *order, struct tow_step *step,
				   bool failed)
{
	struct tow_step *rest = step->next;

	if (step->failed)
		tow_order_note_all(order, step);
	else if (failed)
		tow_order_note(order, order->added);
	if ((failed || step->failed) && rest)
		return rest;
	if (rest)
		tow_steps_add(&order->ready, rest);
	else
		tow_order_end(order);
	return NULL;
}

/**
 * tow_order_fail - a step has failed, and has not ended
 * @order: the order
 * @step: the step: of a chain that is to be added, that was added, or that passed;
 *	tow_order_done() is due all the same, when its turn has come or it has ended
 * @begun: it is from tow_order_next(), or has passed
 *
 * Return: what ends with it without having begun, if it had @begun: the rest of its
 * chain, linked by @next, of which tow_order_done() says no more, and after which
 * tow_order_end() is due, too; NULL: nothing.
 */
struct tow_step *tow_order_fail(struct tow_order *order, struct tow_step *step,
				bool begun)
{
	struct tow_step *rest = step->next;

	step->failed = true;
	step->number = order->added;
	if (!begun)
		return NULL;
	step->next = NULL;
	/* The step may end before that does, and fences wait for both. */
	if (rest)
		order->active++;
	return rest;
}

/**
 * tow_order_abort - a step ends that was cut off with the rest of its chain
 * @order: the order
 *
 * What is added until the program can know of it, and is to wait, fails of it.
 */
void tow_order_abort(struct tow_order *order)
{
	tow_order_note(order, order->added);
}

/**
 * tow_order_end - a chain has ended, of which not all has begun; or the rest of one
 * @order: the order
 *
 * Fences waited for that.
 */
void tow_order_end(struct tow_order *order)
{
	order->active--;
}
