/* SPDX-License-Identifier: GPL-2.0 */
/*
 * In what order a queue's entries begin: chains and fences.
 *
 * Knows nothing of what entries do, and takes no lock; its user has one.
 */
#ifndef TOW_ORDER_H
#define TOW_ORDER_H

#include <linux/types.h>

/**
 * struct tow_step - an entry, as far as its order goes
 * @next: the next one of its chain; NULL: it is the last
 * @later: of a chain's first: the chain after it; of others, the next one that
 *	may begin
 * @fence: of a chain's first: the chain begins when all before it has ended
 * @failed: it has failed before its end: tow_order_fail()
 * @number: of a chain's first: its number among those that were added; of one that
 *	has @failed: how many there were then
 *
 * Who adds a chain sets @next, @fence and @failed.
 */
struct tow_step {
	struct tow_step	*next;
	struct tow_step	*later;
	bool		fence;
	bool		failed;
	u64		number;
};

/**
 * struct tow_steps - steps one after the other
 * @first: NULL: there are none
 * @end: where the next one goes
 */
struct tow_steps {
	struct tow_step	*first;
	struct tow_step	**end;
};

/**
 * struct tow_order - what is to begin
 * @chains: those that have not begun, oldest first
 * @ready: steps whose chain goes on with them
 * @active: chains that have begun and not ended
 * @added: chains that were added
 * @failed: the first so many of these were there when a step failed
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
 * @failed: it did not succeed; or has failed before
 *
 * Return: what ends with it without having begun: the rest of its chain, linked
 * by @next, after which tow_order_end() is due; NULL: nothing.
 */
static inline struct tow_step *tow_order_done(struct tow_order *order,
					      struct tow_step *step, bool failed)
{
	/* Most are alone, and succeed. */
	if (step->next || step->failed || failed)
		return tow_order_advance(order, step, failed);
	order->active--;
	return NULL;
}

#endif /* TOW_ORDER_H */
