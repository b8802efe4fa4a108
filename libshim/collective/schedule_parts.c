// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/* Schedules of which each rank has a part: the ring, and directly. */
#include <stddef.h>

#include "schedule_steps.h"

/* ---- the ring ------------------------------------------------------------------- */

/*
 * Pieces are gone through in blocks of at most the window.  A block goes round the ring in hops,
 * reducing ones first; a hop has a round for each of its pieces.  So what comes in a round is sent
 * on as many rounds later as its block has pieces.  WORK has room for two windows: one that is
 * on its way, and one that comes.  Blocks are as equal as they can be: one of a single piece would
 * wait for each hop.
 */
struct spot {
	uint64_t hop, piece, width;
};

static uint64_t reducing_hops(const struct towi_plan *plan)
{
	return plan->kind == TOWI_PLAN_ALLGATHER ? 0 : plan->ranks - 1;
}

static uint64_t hops(const struct towi_plan *plan)
{
	return plan->kind == TOWI_PLAN_ALLREDUCE ? 2ULL * (plan->ranks - 1) : plan->ranks - 1;
}

static struct spot ring_spot(const struct towi_schedule *schedule)
{
	const struct towi_plan *plan = &schedule->plan;
	uint64_t blocks = towi_cut_into(schedule->pieces, plan->window);
	uint64_t width = schedule->pieces / blocks + 1, wide = schedule->pieces % blocks;
	uint64_t round = schedule->round, first = 0;

	/* The first ones have a piece more. */
	if (round >= wide * width * hops(plan)) {
		round -= wide * width * hops(plan);
		first = wide * width;
		width--;
	}
	first += round / (width * hops(plan)) * width;
	round %= width * hops(plan);
	return (struct spot){
		.hop = round / width,
		.piece = first + round % width,
		.width = width,
	};
}

static enum towi_operand ring_partial(const struct towi_plan *plan)
{
	return plan->kind == TOWI_PLAN_ALLREDUCE ? TOWI_OUT : TOWI_WORK;
}

/* Where in WORK is what was written in a round. */
static uint64_t ring_work_at(const struct towi_plan *plan, uint64_t round)
{
	return round % (2ULL * plan->window) * plan->piece;
}

static bool ring_sends(const struct towi_schedule *schedule, uint32_t turn, struct towi_step *step)
{
	const struct towi_plan *plan = &schedule->plan;
	uint64_t reducing = reducing_hops(plan);
	struct spot spot = ring_spot(schedule);
	uint64_t behind = spot.hop < reducing ? spot.hop + 1 : spot.hop - reducing;
	uint32_t whose = towi_rank_behind(schedule, behind);
	uint32_t next = towi_rank_at(schedule, schedule->position + 1ULL);
	uint64_t came = schedule->round - spot.width;

	if (turn || !towi_elements_of(schedule, whose, spot.piece, step))
		return false;
	step->stored = spot.hop >= reducing;
	if (!spot.hop)
		return towi_step_send(step, next, TOWI_IN, 0);
	if (step->stored)
		return towi_step_send(step, next, TOWI_OUT, came + 1);
	step->work_at = ring_work_at(plan, came);
	return towi_step_send(step, next, ring_partial(plan), came + 1);
}

static bool ring_reduces(const struct towi_schedule *schedule, uint64_t hop,
			 struct towi_step *step)
{
	const struct towi_plan *plan = &schedule->plan;

	step->reduced = hop + 1 == reducing_hops(plan);
	towi_step_combine(step, step->reduced ? TOWI_OUT : ring_partial(plan), TOWI_RECEIVED,
			  TOWI_IN);
	step->left_given = !hop;
	if (step->to != TOWI_WORK)
		return true;
	step->work_at = ring_work_at(plan, step->round);
	/* What was there was sent within a window after it came, two windows ago. */
	if (step->round >= plan->window)
		step->after = step->round - plan->window + 1;
	return true;
}

static bool ring_writes(const struct towi_schedule *schedule, uint32_t turn, struct towi_step *step)
{
	const struct towi_plan *plan = &schedule->plan;
	uint64_t reducing = reducing_hops(plan);
	struct spot spot = ring_spot(schedule);
	uint64_t behind = spot.hop < reducing ? spot.hop + 2 : spot.hop - reducing + 1;

	if (turn)
		return plan->kind == TOWI_PLAN_ALLGATHER && !spot.hop &&
		       towi_elements_of(schedule, plan->rank, spot.piece, step) &&
		       towi_step_copy(step);
	if (!towi_elements_of(schedule, towi_rank_behind(schedule, behind), spot.piece, step))
		return false;
	step->peer = towi_rank_behind(schedule, 1);
	if (spot.hop < reducing)
		return ring_reduces(schedule, spot.hop, step);
	return towi_step_store(step, step->peer, TOWI_OUT);
}

struct towi_way towi_ring_way(const struct towi_schedule *schedule)
{
	const struct towi_plan *plan = &schedule->plan;

	return (struct towi_way){
		.looks = { ring_sends, ring_writes },
		.rounds = schedule->pieces * hops(plan),
		.turns = 2,
		.works = plan->kind == TOWI_PLAN_REDUCE_SCATTER ? 2ULL * plan->window : 0,
	};
}

/* ---- directly -------------------------------------------------------------------- */

/*
 * A round for each piece of the parts.  An AllReduce has two: piece I is given in round 2 * I, and
 * what came of it is told in a later one, so that others are on their way while it is reduced.
 */
static uint64_t direct_lag(const struct towi_schedule *schedule)
{
	return towi_least(schedule->plan.window, schedule->pieces) - 1;
}

static bool direct_tells(const struct towi_schedule *schedule)
{
	return schedule->plan.kind == TOWI_PLAN_ALLGATHER ||
	       (schedule->plan.kind == TOWI_PLAN_ALLREDUCE && schedule->round % 2);
}

/* Which piece it is; more than there are: none. */
static uint64_t direct_piece(const struct towi_schedule *schedule)
{
	uint64_t piece = schedule->round / 2;

	if (schedule->plan.kind != TOWI_PLAN_ALLREDUCE)
		return schedule->round;
	if (!direct_tells(schedule))
		return piece;
	return piece < direct_lag(schedule) ? schedule->pieces : piece - direct_lag(schedule);
}

/* In an AllReduce, the round behind that in which a piece is given, and reduced. */
static uint64_t direct_given(const struct towi_schedule *schedule)
{
	return schedule->plan.kind == TOWI_PLAN_ALLREDUCE ? 2 * direct_piece(schedule) + 1 : 0;
}

/* Beginning behind the own rank: not all to the same one at first. */
static bool direct_sends(const struct towi_schedule *schedule, uint32_t turn,
			 struct towi_step *step)
{
	const struct towi_plan *plan = &schedule->plan;
	uint64_t piece = direct_piece(schedule);
	uint32_t peer = towi_rank_at(schedule, plan->rank + turn + 1ULL);

	if (peer == plan->rank)
		return false;
	if (!direct_tells(schedule))
		return towi_elements_of(schedule, peer, piece, step) &&
		       towi_step_send(step, peer, TOWI_IN, 0);
	if (!towi_elements_of(schedule, plan->rank, piece, step))
		return false;
	return towi_step_give(step, peer, plan->kind == TOWI_PLAN_ALLREDUCE ? TOWI_OUT : TOWI_IN,
			      direct_given(schedule));
}

/*
 * From rank 0 on.  OUT may be IN, which is needed until its turn: what those before give is
 * added in WORK.
 */
static bool direct_combines(const struct towi_schedule *schedule, uint32_t peer,
			    struct towi_step *step)
{
	const struct towi_plan *plan = &schedule->plan;
	uint32_t own = plan->rank;

	if (peer < own && own > 1) {
		if (!peer)
			return towi_step_store(step, peer, TOWI_WORK);
		towi_step_combine(step, TOWI_WORK, TOWI_WORK, TOWI_RECEIVED);
		step->left_given = peer == 1;
	} else if (peer < own) {
		towi_step_combine(step, TOWI_OUT, TOWI_RECEIVED, TOWI_IN);
		step->left_given = true;
	} else {
		towi_step_combine(step, TOWI_OUT, peer == 1 ? TOWI_IN : TOWI_OUT,
				  TOWI_RECEIVED);
	}
	step->peer = peer;
	step->right_given = true;
	step->reduced = step->to == TOWI_OUT && (peer > own ? peer : own) + 1 == plan->ranks;
	return true;
}

static bool direct_adds_own(const struct towi_plan *plan, struct towi_step *step)
{
	if (plan->rank < 2)
		return false;
	towi_step_combine(step, TOWI_OUT, TOWI_WORK, TOWI_IN);
	step->what = TOWI_STEP_LOCAL;
	step->reduced = plan->rank + 1 == plan->ranks;
	return true;
}

static bool direct_reduces(const struct towi_schedule *schedule, uint32_t peer,
			   struct towi_step *step)
{
	const struct towi_plan *plan = &schedule->plan;

	if (!towi_elements_of(schedule, plan->rank, direct_piece(schedule), step))
		return false;
	return peer == plan->rank ? direct_adds_own(plan, step) :
				    direct_combines(schedule, peer, step);
}

static bool direct_writes(const struct towi_schedule *schedule, uint32_t turn,
			  struct towi_step *step)
{
	const struct towi_plan *plan = &schedule->plan;
	uint32_t peer = towi_rank_behind(schedule, turn + 1ULL);

	if (!direct_tells(schedule))
		return direct_reduces(schedule, turn, step);
	if (!towi_elements_of(schedule, peer, direct_piece(schedule), step))
		return false;
	if (peer == plan->rank)
		return plan->kind == TOWI_PLAN_ALLGATHER && towi_step_copy(step);
	return towi_step_store(step, peer, TOWI_OUT);
}

struct towi_way towi_direct_way(const struct towi_schedule *schedule)
{
	bool twice = schedule->plan.kind == TOWI_PLAN_ALLREDUCE && schedule->pieces;

	return (struct towi_way){
		.looks = { direct_sends, direct_writes },
		.rounds = twice ? 2 * (schedule->pieces + direct_lag(schedule)) : schedule->pieces,
		.turns = schedule->plan.ranks,
		.works = schedule->plan.kind != TOWI_PLAN_ALLGATHER,
	};
}
