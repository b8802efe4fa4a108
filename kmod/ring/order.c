// SPDX-License-Identifier: GPL-2.0
/*
 * In what order a queue's entries begin: see order.h.
 *
 * Chains begin in their order.  A fenced chain waits until all that began
 * before it has ended, and holds back the chains after it.  One step of a chain
 * is under way at a time; the next step becomes ready when that has succeeded.
 *
 * A step may fail before it ends (tow_order_fail()), even before it begins: the
 * program is told at once, and the step keeps its place.  Steps that wait for
 * it fail when it ends, but for those that were added after the program was
 * told.
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
 * tow_order_init - prepare an order
 * @order: the order
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
 * tow_order_add - add a chain, which begins after those that were added before
 * @order: the order
 * @chain: its first step
 */
void tow_order_add(struct tow_order *order, struct tow_step *chain)
{
	order->added++;
	/* The number of a step that has failed says when. */
	if (!chain->failed)
		chain->number = order->added;
	tow_steps_add(&order->chains, chain);
}

/**
 * tow_order_pass - begin chains at once, if none is to begin before them
 * @order: the order
 * @count: how many chains, none of them fenced
 *
 * Return: true: they have begun: each first step is for tow_order_done();
 * false: they are to be added.
 */
bool tow_order_pass(struct tow_order *order, u32 count)
{
	if (order->ready.first || order->chains.first)
		return false;
	order->active += count;
	return true;
}

/**
 * tow_order_next - take the step that may begin now
 * @order: the order
 * @cancel: becomes true: the step must not be done, but fails, as it or a step
 *	that it waited for has failed
 *
 * Return: the step, for tow_order_done(); NULL: there is none.
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

/* A step has failed when so many chains had been added. */
static void tow_order_note(struct tow_order *order, u64 chains)
{
	if (order->failed < chains)
		order->failed = chains;
}

/* Note the failure of a step, and those of steps after it. */
static void tow_order_note_all(struct tow_order *order, struct tow_step *step)
{
	for (; step; step = step->next) {
		if (step->failed)
			tow_order_note(order, step->number);
	}
}

/**
 * tow_order_advance - tow_order_done() in the less usual cases
 * @order: the order
 * @step: see tow_order_done()
 * @failed: see tow_order_done()
 *
 * Return: see tow_order_done().
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
 * @step: the step, of a chain that is to be added, that was added, or that
 *	passed; tow_order_done() is due all the same, when its turn has come or
 *	it has ended
 * @begun: the step is from tow_order_next(), or has passed
 *
 * Return: if it has @begun, the rest of its chain, linked by @next, which ends
 * without having begun; tow_order_done() will not return it, and
 * tow_order_end() is due after it, too.  NULL: nothing.
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
	/* The step may end before its rest does: fences wait for both. */
	if (rest)
		order->active++;
	return rest;
}

/**
 * tow_order_abort - a step of a chain's rest ends
 * @order: the order
 *
 * A fenced chain that is added before the program can know of it fails, too.
 */
void tow_order_abort(struct tow_order *order)
{
	tow_order_note(order, order->added);
}

/**
 * tow_order_end - a chain, or the rest of one, has ended
 * @order: the order
 *
 * Fences wait for it.
 */
void tow_order_end(struct tow_order *order)
{
	order->active--;
}
