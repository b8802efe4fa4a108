// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/* Schedules of what is whole: a broadcast's ring, the tree, dissemination. */
#include <stddef.h>

#include "schedule_steps.h"

/* ---- a broadcast's ring ---------------------------------------------------------- */

/* Piece I is sent by the rank at position V in round V + I. */
static bool chain_sends(const struct towi_schedule *schedule, uint32_t turn, struct towi_step *step)
{
	uint32_t own = schedule->position;

	(void)turn;
	if (own + 1 >= schedule->plan.ranks || schedule->round < own ||
	    !towi_elements_of_all(schedule, schedule->round - own, step))
		return false;
	return towi_step_give(step, towi_rank_at(schedule, own + 1ULL), own ? TOWI_OUT : TOWI_IN,
			      own ? schedule->round : 0);
}

static bool chain_writes(const struct towi_schedule *schedule, uint32_t turn,
			 struct towi_step *step)
{
	uint32_t own = schedule->position;

	(void)turn;
	if (!own)
		return towi_step_copy_all(schedule, step);
	if (schedule->round + 1 < own ||
	    !towi_elements_of_all(schedule, schedule->round + 1 - own, step))
		return false;
	return towi_step_store(step, towi_rank_at(schedule, own - 1ULL), TOWI_OUT);
}

struct towi_way towi_chain_way(const struct towi_schedule *schedule)
{
	return (struct towi_way){
		.looks = { chain_sends, chain_writes },
		.rounds = schedule->pieces ? schedule->pieces + schedule->plan.ranks - 2 : 0,
		.turns = 1,
	};
}

/* ---- the tree -------------------------------------------------------------------- */

/*
 * A rank at position V that is a multiple of 2^N, and of no higher power of two, has children at
 * V + 1, V + 2, V + 4, ... V + 2^(N - 1), as far as there are ranks, and its parent is at V - 2^N.
 * "Bit" is the exponent of the distance.  Up, piece I is sent by bit B in round I + B; down, in
 * round I + depth - 1 - B, and in an AllReduce so many rounds later that it has come up.
 */
static uint32_t parent_bit(const struct towi_schedule *schedule)
{
	return schedule->position ? (uint32_t)__builtin_ctz(schedule->position) :
				    schedule->depth;
}

static uint32_t children(const struct towi_schedule *schedule)
{
	uint32_t bit, most = parent_bit(schedule);

	for (bit = 0; bit < most; bit++)
		if (schedule->position + (1ULL << bit) >= schedule->plan.ranks)
			break;
	return bit;
}

static uint32_t rank_up(const struct towi_schedule *schedule)
{
	return towi_rank_at(schedule, schedule->position - (1ULL << parent_bit(schedule)));
}

static uint32_t rank_down(const struct towi_schedule *schedule, uint32_t bit)
{
	return towi_rank_at(schedule, schedule->position + (1ULL << bit));
}

/* How many pieces WORK has: of each bit one is on its way, and a window more. */
static uint64_t tree_works(const struct towi_schedule *schedule)
{
	return (uint64_t)schedule->depth + schedule->plan.window;
}

static enum towi_operand tree_partial(const struct towi_schedule *schedule)
{
	return schedule->plan.kind == TOWI_PLAN_REDUCE && schedule->position ? TOWI_WORK :
									       TOWI_OUT;
}

static uint64_t tree_work_at(const struct towi_schedule *schedule, uint64_t piece)
{
	return piece % tree_works(schedule) * schedule->plan.piece;
}

static bool up_sends(const struct towi_schedule *schedule, struct towi_step *step)
{
	uint32_t bit = parent_bit(schedule), below = children(schedule);
	uint64_t piece = schedule->round - bit;

	if (!schedule->position || schedule->round < bit ||
	    !towi_elements_of_all(schedule, piece, step))
		return false;
	if (!below)
		return towi_step_send(step, rank_up(schedule), TOWI_IN, 0);
	step->work_at = tree_work_at(schedule, piece);
	return towi_step_send(step, rank_up(schedule), tree_partial(schedule), piece + below);
}

static bool up_writes(const struct towi_schedule *schedule, uint32_t bit, struct towi_step *step)
{
	uint64_t piece = schedule->round - bit, works;
	enum towi_operand partial = tree_partial(schedule);

	if (bit >= children(schedule) || schedule->round < bit ||
	    !towi_elements_of_all(schedule, piece, step))
		return false;
	towi_step_combine(step, partial, bit ? partial : TOWI_IN, TOWI_RECEIVED);
	step->peer = rank_down(schedule, bit);
	step->right_given = !bit || schedule->position + (1ULL << bit) + 1 == schedule->plan.ranks;
	step->reduced = !schedule->position && bit + 1 == schedule->depth;
	if (partial != TOWI_WORK)
		return true;
	works = tree_works(schedule);
	step->work_at = tree_work_at(schedule, piece);
	if (piece >= works)
		step->after = piece - works + parent_bit(schedule) + 1;
	return true;
}

/* When the first piece goes down. */
static uint64_t down_from(const struct towi_schedule *schedule)
{
	return schedule->plan.kind == TOWI_PLAN_ALLREDUCE ? schedule->depth : 0;
}

static bool down_sends(const struct towi_schedule *schedule, uint32_t bit, struct towi_step *step)
{
	uint64_t begun = down_from(schedule) + schedule->depth - 1;
	uint64_t piece = schedule->round + bit - begun;

	if (bit >= children(schedule) || schedule->round + bit < begun ||
	    !towi_elements_of_all(schedule, piece, step))
		return false;
	if (schedule->position)
		return towi_step_give(step, rank_down(schedule, bit), TOWI_OUT,
				      begun + piece - parent_bit(schedule) + 1);
	if (schedule->plan.kind == TOWI_PLAN_BROADCAST)
		return towi_step_give(step, rank_down(schedule, bit), TOWI_IN, 0);
	return towi_step_give(step, rank_down(schedule, bit), TOWI_OUT, piece + schedule->depth);
}

static bool down_writes(const struct towi_schedule *schedule, struct towi_step *step)
{
	uint64_t begun = down_from(schedule) + schedule->depth - 1;
	uint32_t bit = parent_bit(schedule);
	uint64_t piece = schedule->round + bit - begun;

	if (!schedule->position)
		return schedule->plan.kind == TOWI_PLAN_BROADCAST &&
		       towi_step_copy_all(schedule, step);
	if (schedule->round + bit < begun || !towi_elements_of_all(schedule, piece, step))
		return false;
	return towi_step_store(step, rank_up(schedule), TOWI_OUT);
}

/* The last turn is that of the parent. */
static bool tree_sends(const struct towi_schedule *schedule, uint32_t turn, struct towi_step *step)
{
	if (turn == schedule->depth)
		return schedule->plan.kind != TOWI_PLAN_BROADCAST && up_sends(schedule, step);
	return schedule->plan.kind != TOWI_PLAN_REDUCE &&
	       down_sends(schedule, schedule->depth - 1 - turn, step);
}

static bool tree_writes(const struct towi_schedule *schedule, uint32_t turn, struct towi_step *step)
{
	if (turn == schedule->depth)
		return schedule->plan.kind != TOWI_PLAN_REDUCE && down_writes(schedule, step);
	return schedule->plan.kind != TOWI_PLAN_BROADCAST && up_writes(schedule, turn, step);
}

struct towi_way towi_tree_way(const struct towi_schedule *schedule)
{
	uint64_t more = down_from(schedule) + schedule->depth - 1;

	return (struct towi_way){
		.looks = { tree_sends, tree_writes },
		.rounds = schedule->pieces ? schedule->pieces + more : 0,
		.turns = schedule->depth + 1,
		.works = schedule->plan.kind == TOWI_PLAN_REDUCE ? tree_works(schedule) : 0,
	};
}

/* ---- dissemination --------------------------------------------------------------- */

static bool spread_sends(const struct towi_schedule *schedule, uint32_t turn,
			 struct towi_step *step)
{
	uint64_t to = schedule->position + (1ULL << schedule->round);

	(void)turn;
	return towi_step_send(step, towi_rank_at(schedule, to), TOWI_NOWHERE, schedule->round);
}

static bool spread_writes(const struct towi_schedule *schedule, uint32_t turn,
			  struct towi_step *step)
{
	uint64_t before = 1ULL << schedule->round;

	(void)turn;
	return towi_step_store(step, towi_rank_behind(schedule, before), TOWI_NOWHERE);
}

struct towi_way towi_spread_way(const struct towi_schedule *schedule)
{
	return (struct towi_way){
		.looks = { spread_sends, spread_writes },
		.rounds = schedule->depth,
		.turns = 1,
	};
}
