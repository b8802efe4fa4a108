/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/* What schedules are made of, inside. */
#ifndef TOW_SCHEDULE_STEPS_H
#define TOW_SCHEDULE_STEPS_H

#include "schedule.h"

/*
 * A round has turns, each of which is a step or none, and which of both follows from the numbers
 * alone: by one function for the sends of a way and one for its writes.
 */
struct towi_way {
	bool (*looks[2])(const struct towi_schedule *schedule, uint32_t turn,
			 struct towi_step *step);	/* by side */
	uint64_t rounds;
	uint32_t turns;
	uint64_t works;			/* pieces that WORK has room for */
};

/* schedule_parts.c: a schedule of which each rank has a part. */
struct towi_way towi_ring_way(const struct towi_schedule *schedule);
struct towi_way towi_direct_way(const struct towi_schedule *schedule);

/* schedule_whole.c: others. */
struct towi_way towi_chain_way(const struct towi_schedule *schedule);
struct towi_way towi_tree_way(const struct towi_schedule *schedule);
struct towi_way towi_spread_way(const struct towi_schedule *schedule);

struct towi_range {
	uint64_t at, count;
};

static inline uint64_t towi_least(uint64_t one, uint64_t other)
{
	return one < other ? one : other;
}

static inline uint64_t towi_cut_into(uint64_t count, uint64_t size)
{
	return count / size + (count % size != 0);
}

/* ---- ranks, parts, pieces ------------------------------------------------------ */

/* Who is so many positions after the first one. */
static inline uint32_t towi_rank_at(const struct towi_schedule *schedule, uint64_t position)
{
	const struct towi_plan *plan = &schedule->plan;
	uint32_t place = (uint32_t)((position + schedule->first) % plan->ranks);

	return plan->order ? plan->order[place] : place;
}

/* Who is so many positions before this rank: fewer than there are, or once round. */
static inline uint32_t towi_rank_behind(const struct towi_schedule *schedule, uint64_t positions)
{
	return towi_rank_at(schedule, schedule->position + schedule->plan.ranks - positions);
}

static inline struct towi_range towi_part_of(const struct towi_plan *plan, uint32_t rank)
{
	uint64_t share = plan->count / plan->ranks, more = plan->count % plan->ranks;

	return (struct towi_range){
		.at = rank * share + towi_least(rank, more),
		.count = share + (rank < more),
	};
}

/* A step's elements.  False: there are none. */
static inline bool towi_elements(const struct towi_schedule *schedule, struct towi_range whole,
				 uint64_t piece, struct towi_step *step)
{
	uint64_t from = piece * schedule->plan.piece;

	if (piece >= schedule->pieces || from >= whole.count)
		return false;
	step->at = whole.at + from;
	step->count = towi_least(whole.count - from, schedule->plan.piece);
	return true;
}

static inline bool towi_elements_of(const struct towi_schedule *schedule, uint32_t rank,
				    uint64_t piece, struct towi_step *step)
{
	return towi_elements(schedule, towi_part_of(&schedule->plan, rank), piece, step);
}

static inline bool towi_elements_of_all(const struct towi_schedule *schedule, uint64_t piece,
					struct towi_step *step)
{
	const struct towi_range all = { .count = schedule->plan.count };

	return towi_elements(schedule, all, piece, step);
}

/* ---- what a step does --------------------------------------------------------------------- */

static inline bool towi_step_send(struct towi_step *step, uint32_t peer, enum towi_operand from,
				  uint64_t after)
{
	step->what = TOWI_STEP_SEND;
	step->peer = peer;
	step->left = from;
	step->after = after;
	return true;
}

/* What the peer only stores in OUT. */
static inline bool towi_step_give(struct towi_step *step, uint32_t peer, enum towi_operand from,
				  uint64_t after)
{
	step->stored = true;
	return towi_step_send(step, peer, from, after);
}

/* What was sent from there has been used by then: what comes was made of it. */
static inline bool towi_step_store(struct towi_step *step, uint32_t peer, enum towi_operand to)
{
	step->what = TOWI_STEP_RECEIVE;
	step->peer = peer;
	step->to = to;
	step->left = TOWI_RECEIVED;
	return true;
}

static inline bool towi_step_copy(struct towi_step *step)
{
	step->what = TOWI_STEP_LOCAL;
	step->to = TOWI_OUT;
	step->left = TOWI_IN;
	return true;
}

/* Of the round's piece. */
static inline bool towi_step_copy_all(const struct towi_schedule *schedule, struct towi_step *step)
{
	return towi_elements_of_all(schedule, schedule->round, step) && towi_step_copy(step);
}

/* to = left op right. */
static inline void towi_step_combine(struct towi_step *step, enum towi_operand to,
				     enum towi_operand left, enum towi_operand right)
{
	step->what = TOWI_STEP_RECEIVE;
	step->to = to;
	step->left = left;
	step->right = right;
	step->left_given = left == TOWI_IN;
	step->right_given = right == TOWI_IN;
}

#endif /* TOW_SCHEDULE_STEPS_H */
