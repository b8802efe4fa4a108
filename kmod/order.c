// SPDX-License-Identifier: GPL-2.0
/*
 * In what order a queue's entries begin: see order.h.
 *
 * Chains begin in their order.  A fenced one waits until all that began before
 * it has ended, and holds back those after it.  Of a chain one step is under way
 * at a time; the next one becomes ready when it has succeeded.
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
	order->failures = 0;
}

/**
 * tow_order_add - a chain is to begin after those that were added before
 * @order: the order
 * @chain: its first step
 */
void tow_order_add(struct tow_order *order, struct tow_step *chain)
{
	chain->failures = order->failures;
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
 * @cancel: where to: it must not be done, but fail, as something that it was to
 *	wait for did
 *
 * Return: the step, for tow_order_done(); NULL: nothing.
 */
struct tow_step *tow_order_next(struct tow_order *order, bool *cancel)
{
	struct tow_step *step = tow_steps_take(&order->ready);

	*cancel = false;
	if (step)
		return step;
	step = order->chains.first;
	if (!step || (step->fence && order->active))
		return NULL;
	tow_steps_take(&order->chains);
	order->active++;
	*cancel = step->fence && step->failures != order->failures;
	return step;
}

/**
 * tow_order_done - a step has ended
 * @order: the order
 * @step: from tow_order_next(); the caller's afterwards
 * @failed: it did not succeed
 *
 * Return: what ends with it without having begun: the rest of its chain, linked
 * by @next, after which tow_order_end() is due; NULL: nothing.
 */
struct tow_step *tow_order_done(struct tow_order *order, struct tow_step *step,
				bool failed)
{
	struct tow_step *rest = step->next;

	if (failed)
		order->failures++;
	if (failed && rest)
		return rest;
	if (rest)
		tow_steps_add(&order->ready, rest);
	else
		tow_order_end(order);
	return NULL;
}

/**
 * tow_order_end - a chain has ended, of which not all has begun
 * @order: the order
 *
 * Fences waited for that.
 */
void tow_order_end(struct tow_order *order)
{
	order->active--;
}
