// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/* Schedules: plans, and cursors of them. */
#include <errno.h>
#include <stddef.h>

#include "schedule_steps.h"

/* ---- one rank ------------------------------------------------------------------- */

static bool alone_sends(const struct towi_schedule *schedule, uint32_t turn,
			struct towi_step *step)
{
	(void)schedule;
	(void)turn;
	(void)step;
	return false;
}

static bool alone_writes(const struct towi_schedule *schedule, uint32_t turn,
			 struct towi_step *step)
{
	(void)turn;
	return towi_step_copy_all(schedule, step);
}

/* ---- cursors --------------------------------------------------------------------- */

/* What is cut into pieces: elements of a part, if there are any, or of the whole. */
static uint64_t largest(const struct towi_plan *plan)
{
	bool whole = plan->way == TOWI_PLAN_RING ? plan->kind == TOWI_PLAN_BROADCAST :
						   plan->way == TOWI_PLAN_TREE;

	return whole ? plan->count : towi_part_of(plan, 0).count;
}

static struct towi_way alone_way(const struct towi_schedule *schedule)
{
	return (struct towi_way){
		.looks = { alone_sends, alone_writes },
		.rounds = schedule->pieces,
		.turns = 1,
	};
}

static struct towi_way way_of(const struct towi_schedule *schedule)
{
	if (schedule->plan.ranks == 1)
		return alone_way(schedule);
	switch (schedule->plan.way) {
	case TOWI_PLAN_RING:
		return schedule->plan.kind == TOWI_PLAN_BROADCAST ? towi_chain_way(schedule) :
								    towi_ring_way(schedule);
	case TOWI_PLAN_DIRECT:
		return towi_direct_way(schedule);
	case TOWI_PLAN_TREE:
		return towi_tree_way(schedule);
	default:
		return towi_spread_way(schedule);
	}
}

static bool goes(const struct towi_plan *plan)
{
	static const uint8_t ways[] = {
		[TOWI_PLAN_ALLREDUCE] = 1U << TOWI_PLAN_RING | 1U << TOWI_PLAN_DIRECT |
					1U << TOWI_PLAN_TREE,
		[TOWI_PLAN_REDUCE_SCATTER] = 1U << TOWI_PLAN_RING | 1U << TOWI_PLAN_DIRECT,
		[TOWI_PLAN_ALLGATHER] = 1U << TOWI_PLAN_RING | 1U << TOWI_PLAN_DIRECT,
		[TOWI_PLAN_BROADCAST] = 1U << TOWI_PLAN_RING | 1U << TOWI_PLAN_TREE,
		[TOWI_PLAN_REDUCE] = 1U << TOWI_PLAN_TREE,
		[TOWI_PLAN_BARRIER] = 1U << TOWI_PLAN_DISSEMINATION,
	};

	return (unsigned int)plan->kind < sizeof(ways) &&
	       (unsigned int)plan->way <= TOWI_PLAN_DISSEMINATION &&
	       (ways[plan->kind] & 1U << plan->way);
}

static bool in_range(const struct towi_plan *plan)
{
	return plan->rank < plan->ranks && plan->root < plan->ranks && plan->piece &&
	       plan->count <= TOWI_PLAN_COUNT_MAX && plan->window &&
	       plan->window <= TOWI_PLAN_WINDOW_MAX;
}

static uint32_t depth_of(uint32_t ranks)
{
	uint32_t depth = 0;

	while (1ULL << depth < ranks)
		depth++;
	return depth;
}

static uint32_t position_of(const struct towi_plan *plan, uint32_t rank)
{
	uint32_t position = 0;

	if (!plan->order)
		return rank;
	while (position + 1 < plan->ranks && plan->order[position] != rank)
		position++;
	return position;
}

static void place(struct towi_schedule *schedule)
{
	struct towi_plan *plan = &schedule->plan;

	/* Nobody has neighbours there. */
	if (plan->way == TOWI_PLAN_DIRECT)
		plan->order = NULL;
	if (plan->kind == TOWI_PLAN_BROADCAST || plan->kind == TOWI_PLAN_REDUCE)
		schedule->first = position_of(plan, plan->root);
	schedule->position = (uint32_t)((position_of(plan, plan->rank) + (uint64_t)plan->ranks -
					 schedule->first) % plan->ranks);
	schedule->depth = depth_of(plan->ranks);
}

static void cut(struct towi_schedule *schedule)
{
	struct towi_plan *plan = &schedule->plan;

	if (plan->kind == TOWI_PLAN_BARRIER)
		plan->count = 0;
	/* WORK has room for no more than there is. */
	plan->piece = towi_least(plan->piece, largest(plan));
	if (plan->piece)
		schedule->pieces = towi_cut_into(largest(plan), plan->piece);
}

int towi_schedule_begin(struct towi_schedule *schedule, const struct towi_plan *plan,
			enum towi_side side)
{
	struct towi_way way;

	if (!goes(plan) || !in_range(plan))
		return -EINVAL;
	*schedule = (struct towi_schedule){ .plan = *plan };
	place(schedule);
	cut(schedule);
	way = way_of(schedule);
	schedule->look = way.looks[side];
	schedule->rounds = way.rounds;
	schedule->turns = way.turns;
	return 0;
}

bool towi_schedule_next(struct towi_schedule *schedule, struct towi_step *step)
{
	for (; schedule->round < schedule->rounds; schedule->round++, schedule->turn = 0) {
		while (schedule->turn < schedule->turns) {
			*step = (struct towi_step){ .round = schedule->round };
			if (schedule->look(schedule, schedule->turn++, step))
				return true;
		}
	}
	return false;
}

uint64_t towi_schedule_work(const struct towi_plan *plan)
{
	struct towi_schedule schedule;

	/* Two need none: what comes is combined at once. */
	if (plan->ranks < 3 || towi_schedule_begin(&schedule, plan, TOWI_WRITES))
		return 0;
	return way_of(&schedule).works * schedule.plan.piece;
}

/* ---- the order of ranks ---------------------------------------------------------- */

void towi_schedule_order(const uint32_t *nodes, uint32_t ranks, uint32_t *order)
{
	uint32_t rank, other, count = 0;

	for (rank = 0; rank < ranks; rank++) {
		for (other = 0; other < rank && nodes[other] != nodes[rank]; other++)
			;
		/* It came with the first of its node. */
		if (other < rank)
			continue;
		for (other = rank; other < ranks; other++)
			if (nodes[other] == nodes[rank])
				order[count++] = other;
	}
}
