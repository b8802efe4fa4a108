/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * What a sender has on its way: steps that count from 1, begin in order, and end in order.
 *
 * With the pump's lock, but for what says otherwise.
 */
#ifndef TOW_STEPS_INSIDE_H
#define TOW_STEPS_INSIDE_H

#include "edge.h"

struct towi_step {
	struct towi_op op;			/* first */
	struct towi_call call;
	_Atomic bool calling;
	uint64_t number;
	struct towi_timed timed;		/* while it is on its way */
	const void *data;
	void *staged;				/* a copy of it */
	tow_edge_done *done;
	void *arg;
	bool over;				/* with that status */
	int status;
};

struct towi_steps {
	uint64_t given, begun, ended;
	struct towi_step all[TOW_EDGE_SLOTS_MAX];
};

/* The edge's steps: 0 or -ENOMEM; @ended is called when a step's operation has. */
int towi_steps_make(struct tow_edge *edge, void (*ended)(struct towi_op *op, int status));

static inline struct towi_step *towi_step(struct towi_steps *steps, uint64_t number)
{
	return &steps->all[(number - 1) % TOW_EDGE_SLOTS_MAX];
}

/*
 * May one more be sent?  0; -EAGAIN: there are too many, or the last one's function is being
 * called; -ENOTCONN; or what has ended the edge.
 */
int towi_steps_may(struct tow_edge *edge);

/* The same, without the lock: before what takes long. */
int towi_steps_ask(struct tow_edge *edge);

/* The record for one more, if it may: the caller fills in data and staged, and then gives it. */
struct towi_step *towi_steps_next(struct towi_steps *steps);
void towi_steps_give(struct towi_steps *steps, struct towi_step *step, tow_edge_done *done,
		     void *arg);

/* It has begun: if it takes too long, the edge fails. */
void towi_steps_begun(struct tow_edge *edge, struct towi_step *step);

/*
 * One is over, and ends when those before it have: then whoever is to be told will be.
 */
void towi_steps_over(struct tow_edge *edge, struct towi_step *step, int status);

/* With an error all that have not begun end, once those that have begun did. */
void towi_steps_cancel(struct tow_edge *edge);

/* What a kind is asked (struct towi_kind). */
uint32_t towi_steps_pending(const struct tow_edge *edge);
uint64_t towi_steps_next_number(const struct tow_edge *edge);
void towi_steps_give_up(struct tow_edge *edge);
void towi_steps_free(struct tow_edge *edge);

#endif /* TOW_STEPS_INSIDE_H */
