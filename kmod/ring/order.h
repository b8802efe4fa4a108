/* SPDX-License-Identifier: GPL-2.0 */
/*
 * In what order a queue's entries begin: chains and fences.
 *
 * Knows nothing of what entries do, and takes no lock: the caller has one.
 */
#ifndef TOW_ORDER_H
#define TOW_ORDER_H

#include <linux/types.h>

/**
 * struct tow_step - an entry's place in the order
 * @next: the next step of its chain; NULL: it is the last
 * @later: of a chain's first step: the next chain; of others: the next step
 *	that may begin
 * @fence: of a chain's first step: the chain begins when all before it has
 *	ended
 * @failed: the step has failed before its end: tow_order_fail()
 * @number: of a chain's first step: the chain's number, counted from 1; of a
 *	step that has @failed: what tow_order.added was then
 *
 * The caller of tow_order_add() sets @next, @fence and @failed.
 */
struct tow_step {
	struct tow_step	*next;
	struct tow_step	*later;
	bool		fence;
	bool		failed;
	u64		number;
};

/**
 * struct tow_steps - a list of steps, linked by tow_step.later
 * @first: NULL: the list is empty
 * @end: where the next step is linked
 */
struct tow_steps {
	struct tow_step	*first;
	struct tow_step	**end;
};

/**
 * struct tow_order - the order of a queue's chains
 * @chains: chains that have not begun, oldest first
 * @ready: later steps of chains, which may begin
 * @active: chains that have begun and not ended
 * @added: how many chains were added
 * @failed: chains up to this number had been added when a step failed
 */
struct tow_order {
	struct tow_steps	chains;
	struct tow_steps	ready;
	u32			active;
	u64			added;
	u64			failed;
};

void tow_order_init(struct tow_order *order);
void tow_order_add(struct tow_order *order, struct tow_step *chain);
bool tow_order_pass(struct tow_order *order, u32 count);
struct tow_step *tow_order_next(struct tow_order *order, bool *cancel);
struct tow_step *tow_order_advance(struct tow_order *order, struct tow_step *step,
				   bool failed);
struct tow_step *tow_order_fail(struct tow_order *order, struct tow_step *step,
				bool begun);
void tow_order_abort(struct tow_order *order);
void tow_order_end(struct tow_order *order);

/**
 * tow_order_done - a step has ended
 * @order: the order
 * @step: from tow_order_next(); the caller's afterwards
 * @failed: the step did not succeed, or has failed before
 *
 * Return: the rest of its chain, linked by @next, which ends without having
 * begun, and after which tow_order_end() is due; NULL: nothing.
 */
static inline struct tow_step *tow_order_done(struct tow_order *order,
					      struct tow_step *step, bool failed)
{
	/* Most steps are alone, and succeed. */
	if (step->next || step->failed || failed)
		return tow_order_advance(order, step, failed);
	order->active--;
	return NULL;
}

#endif /* TOW_ORDER_H */
