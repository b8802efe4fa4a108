// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Schedules: which step a rank has in which round (schedule.h says what rounds are for).
 *
 * A round has turns, each of which is a step or none; towi_schedule_next() goes through them.
 * What a turn is follows from its numbers alone, by one function for the sends of a way and one
 * for its writes.
 */
#include <errno.h>
#include <stddef.h>

#include "schedule.h"

struct range {
	uint64_t at, count;
};

static uint64_t least(uint64_t one, uint64_t other)
{
	return one < other ? one : other;
}

static uint64_t cut_into(uint64_t count, uint64_t size)
{
	return count / size + (count % size != 0);
}

/* ---- ranks, parts, pieces ------------------------------------------------------ */

/* Who is so many positions after the first one. */
static uint32_t rank_at(const struct towi_schedule *schedule, uint64_t position)
{
	const struct towi_plan *plan = &schedule->plan;
	uint32_t place = (uint32_t)((position + schedule->first) % plan->ranks);

	return plan->order ? plan->order[place] : place;
}

/* Who is so many positions before this rank: fewer than there are, or once round. */
static uint32_t rank_behind(const struct towi_schedule *schedule, uint64_t positions)
{
	return rank_at(schedule, schedule->position + schedule->plan.ranks - positions);
}

static struct range part_of(const struct towi_plan *plan, uint32_t rank)
{
	uint64_t share = plan->count / plan->ranks, more = plan->count % plan->ranks;

	return (struct range){
		.at = rank * share + least(rank, more),
		.count = share + (rank < more),
	};
}

static uint64_t largest_part(const struct towi_plan *plan)
{
	return part_of(plan, 0).count;
}

static bool has_parts(const struct towi_plan *plan)
{
	return plan->way == TOWI_PLAN_RING ? plan->kind != TOWI_PLAN_BROADCAST :
					     plan->way == TOWI_PLAN_DIRECT;
}

/* What a message is at most: no more than there is to send. */
static uint64_t message_count(const struct towi_plan *plan)
{
	return least(plan->piece, has_parts(plan) ? largest_part(plan) : plan->count);
}

/* A step's elements.  False: there are none. */
static bool elements(const struct towi_schedule *schedule, struct range whole, uint64_t piece,
		     struct towi_step *step)
{
	uint64_t from = piece * schedule->plan.piece;

	if (piece >= schedule->pieces || from >= whole.count)
		return false;
	step->at = whole.at + from;
	step->count = least(whole.count - from, schedule->plan.piece);
	return true;
}

static bool elements_of(const struct towi_schedule *schedule, uint32_t rank, uint64_t piece,
			struct towi_step *step)
{
	return elements(schedule, part_of(&schedule->plan, rank), piece, step);
}

static bool elements_of_all(const struct towi_schedule *schedule, uint64_t piece,
			    struct towi_step *step)
{
	return elements(schedule, (struct range){ .count = schedule->plan.count }, piece, step);
}

/* ---- steps --------------------------------------------------------------------- */

static bool send(struct towi_step *step, uint32_t peer, enum towi_place from, uint64_t after)
{
	step->what = TOWI_STEP_SEND;
	step->peer = peer;
	step->left = from;
	step->after = after;
	return true;
}

static bool store(struct towi_step *step, uint32_t peer, enum towi_place to, uint64_t after)
{
	step->what = TOWI_STEP_RECEIVE;
	step->peer = peer;
	step->to = to;
	step->left = TOWI_RECEIVED;
	step->after = after;
	return true;
}

static bool copy(struct towi_step *step)
{
	step->what = TOWI_STEP_LOCAL;
	step->to = TOWI_OUT;
	step->left = TOWI_IN;
	return true;
}

/* to = left op right. */
static void combine(struct towi_step *step, enum towi_place to, enum towi_place left,
		    enum towi_place right)
{
	step->what = TOWI_STEP_RECEIVE;
	step->to = to;
	step->left = left;
	step->right = right;
	step->left_given = left == TOWI_IN;
	step->right_given = right == TOWI_IN;
}

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
	return elements_of_all(schedule, schedule->round, step) && copy(step);
}

/* ---- the ring ------------------------------------------------------------------- */

/*
 * Pieces are gone through in blocks of at most the window.  A block goes round the ring in hops,
 * reducing ones first; a hop has a round for each of its pieces.  So what comes in a round is sent
 * on as many rounds later as its block has pieces, and WORK has to have room for a window, or two as
 * others are on their way.  Blocks are as equal as they can be: one of a single piece would
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
	uint64_t blocks = cut_into(schedule->pieces, plan->window);
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

static enum towi_place ring_partial(const struct towi_plan *plan)
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
	uint32_t next = rank_at(schedule, schedule->position + 1ULL);
	uint64_t came = schedule->round - spot.width;

	if (turn || !elements_of(schedule, rank_behind(schedule, behind), spot.piece, step))
		return false;
	if (!spot.hop)
		return send(step, next, TOWI_IN, 0);
	if (spot.hop >= reducing)
		return send(step, next, TOWI_OUT, came + 1);
	step->work_at = ring_work_at(plan, came);
	return send(step, next, ring_partial(plan), came + 1);
}

static bool ring_reduces(const struct towi_schedule *schedule, uint64_t hop,
			 struct towi_step *step)
{
	const struct towi_plan *plan = &schedule->plan;

	step->reduced = hop + 1 == reducing_hops(plan);
	combine(step, step->reduced ? TOWI_OUT : ring_partial(plan), TOWI_RECEIVED, TOWI_IN);
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
	uint64_t reducing = reducing_hops(plan), sent = 0;
	struct spot spot = ring_spot(schedule);
	uint64_t behind = spot.hop < reducing ? spot.hop + 2 : spot.hop - reducing + 1;

	if (turn)
		return plan->kind == TOWI_PLAN_ALLGATHER && !spot.hop &&
		       elements_of(schedule, plan->rank, spot.piece, step) && copy(step);
	if (!elements_of(schedule, rank_behind(schedule, behind), spot.piece, step))
		return false;
	step->peer = rank_behind(schedule, 1);
	if (spot.hop < reducing)
		return ring_reduces(schedule, spot.hop, step);
	/* While it was reduced it was sent from here. */
	if (reducing)
		sent = schedule->round - reducing * spot.width + 1;
	return store(step, step->peer, TOWI_OUT, sent);
}

/* ---- a broadcast's ring ---------------------------------------------------------- */

/* Piece I is sent by the rank at position V in round V + I. */
static bool chain_sends(const struct towi_schedule *schedule, uint32_t turn, struct towi_step *step)
{
	uint32_t own = schedule->position;

	(void)turn;
	if (own + 1 >= schedule->plan.ranks || schedule->round < own ||
	    !elements_of_all(schedule, schedule->round - own, step))
		return false;
	return send(step, rank_at(schedule, own + 1ULL), own ? TOWI_OUT : TOWI_IN,
		    own ? schedule->round : 0);
}

static bool chain_writes(const struct towi_schedule *schedule, uint32_t turn,
			 struct towi_step *step)
{
	uint32_t own = schedule->position;

	(void)turn;
	if (!own)
		return elements_of_all(schedule, schedule->round, step) && copy(step);
	if (schedule->round + 1 < own ||
	    !elements_of_all(schedule, schedule->round + 1 - own, step))
		return false;
	return store(step, rank_at(schedule, own - 1ULL), TOWI_OUT, 0);
}

/* ---- directly -------------------------------------------------------------------- */

/*
 * A round for each piece of the parts.  An AllReduce has two: piece I is given in round 2 * I, and
 * what came of it is told in a later one, so that others are on their way while it is reduced.
 */
static uint64_t direct_lag(const struct towi_schedule *schedule)
{
	return least(schedule->plan.window, schedule->pieces) - 1;
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
	uint32_t peer = rank_at(schedule, plan->rank + turn + 1ULL);

	if (peer == plan->rank)
		return false;
	if (!direct_tells(schedule))
		return elements_of(schedule, peer, piece, step) && send(step, peer, TOWI_IN, 0);
	if (!elements_of(schedule, plan->rank, piece, step))
		return false;
	return send(step, peer, plan->kind == TOWI_PLAN_ALLREDUCE ? TOWI_OUT : TOWI_IN,
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
			return store(step, peer, TOWI_WORK, 0);
		combine(step, TOWI_WORK, TOWI_WORK, TOWI_RECEIVED);
		step->left_given = peer == 1;
	} else if (peer < own) {
		combine(step, TOWI_OUT, TOWI_RECEIVED, TOWI_IN);
		step->left_given = true;
	} else {
		combine(step, TOWI_OUT, peer == 1 ? TOWI_IN : TOWI_OUT, TOWI_RECEIVED);
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
	combine(step, TOWI_OUT, TOWI_WORK, TOWI_IN);
	step->what = TOWI_STEP_LOCAL;
	step->reduced = plan->rank + 1 == plan->ranks;
	return true;
}

static bool direct_reduces(const struct towi_schedule *schedule, uint32_t peer,
			   struct towi_step *step)
{
	const struct towi_plan *plan = &schedule->plan;

	if (!elements_of(schedule, plan->rank, direct_piece(schedule), step))
		return false;
	return peer == plan->rank ? direct_adds_own(plan, step) :
				    direct_combines(schedule, peer, step);
}

static bool direct_writes(const struct towi_schedule *schedule, uint32_t turn,
			  struct towi_step *step)
{
	const struct towi_plan *plan = &schedule->plan;
	uint32_t peer = rank_behind(schedule, turn + 1ULL);

	if (!direct_tells(schedule))
		return direct_reduces(schedule, turn, step);
	if (!elements_of(schedule, peer, direct_piece(schedule), step))
		return false;
	if (peer == plan->rank)
		return plan->kind == TOWI_PLAN_ALLGATHER && copy(step);
	return store(step, peer, TOWI_OUT, direct_given(schedule));
}

/* ---- the tree -------------------------------------------------------------------- */

/*
 * A rank at position V that is a multiple of 2^N, and of no higher power of two, has children at
 * V + 1, V + 2, V + 4, ... V + 2^(N - 1), as far as there are ranks, and its parent is at V - 2^N.
 * "Bit" is the exponent of the distance.  Up, piece I is sent by bit B in round I + B; down, in round I
 * + depth - 1 - B, and in an AllReduce so many rounds later that all have come up.
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
	return rank_at(schedule, schedule->position - (1ULL << parent_bit(schedule)));
}

static uint32_t rank_down(const struct towi_schedule *schedule, uint32_t bit)
{
	return rank_at(schedule, schedule->position + (1ULL << bit));
}

/* How many pieces WORK has: of each bit one is on its way, and a window more. */
static uint64_t tree_works(uint32_t depth, const struct towi_plan *plan)
{
	return (uint64_t)depth + plan->window;
}

static enum towi_place tree_partial(const struct towi_schedule *schedule)
{
	return schedule->plan.kind == TOWI_PLAN_REDUCE && schedule->position ? TOWI_WORK :
									       TOWI_OUT;
}

static uint64_t tree_work_at(const struct towi_schedule *schedule, uint64_t piece)
{
	const struct towi_plan *plan = &schedule->plan;

	return piece % tree_works(schedule->depth, plan) * plan->piece;
}

static bool up_sends(const struct towi_schedule *schedule, struct towi_step *step)
{
	uint32_t bit = parent_bit(schedule), below = children(schedule);
	uint64_t piece = schedule->round - bit;

	if (!schedule->position || schedule->round < bit ||
	    !elements_of_all(schedule, piece, step))
		return false;
	if (!below)
		return send(step, rank_up(schedule), TOWI_IN, 0);
	step->work_at = tree_work_at(schedule, piece);
	return send(step, rank_up(schedule), tree_partial(schedule), piece + below);
}

static bool up_writes(const struct towi_schedule *schedule, uint32_t bit, struct towi_step *step)
{
	uint64_t piece = schedule->round - bit, works;
	enum towi_place partial = tree_partial(schedule);

	if (bit >= children(schedule) || schedule->round < bit ||
	    !elements_of_all(schedule, piece, step))
		return false;
	combine(step, partial, bit ? partial : TOWI_IN, TOWI_RECEIVED);
	step->peer = rank_down(schedule, bit);
	step->right_given = !bit || schedule->position + (1ULL << bit) + 1 == schedule->plan.ranks;
	step->reduced = !schedule->position && bit + 1 == schedule->depth;
	if (partial != TOWI_WORK)
		return true;
	works = tree_works(schedule->depth, &schedule->plan);
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
	    !elements_of_all(schedule, piece, step))
		return false;
	if (schedule->position)
		return send(step, rank_down(schedule, bit), TOWI_OUT,
			    begun + piece - parent_bit(schedule) + 1);
	if (schedule->plan.kind == TOWI_PLAN_BROADCAST)
		return send(step, rank_down(schedule, bit), TOWI_IN, 0);
	return send(step, rank_down(schedule, bit), TOWI_OUT, piece + schedule->depth);
}

static bool down_writes(const struct towi_schedule *schedule, struct towi_step *step)
{
	uint64_t begun = down_from(schedule) + schedule->depth - 1, sent = 0;
	uint32_t bit = parent_bit(schedule);
	uint64_t piece = schedule->round + bit - begun;

	if (!schedule->position)
		return schedule->plan.kind == TOWI_PLAN_BROADCAST &&
		       elements_of_all(schedule, schedule->round, step) && copy(step);
	if (schedule->round + bit < begun || !elements_of_all(schedule, piece, step))
		return false;
	/* It was sent up from here. */
	if (schedule->plan.kind == TOWI_PLAN_ALLREDUCE)
		sent = piece + bit + 1;
	return store(step, rank_up(schedule), TOWI_OUT, sent);
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

/* ---- dissemination --------------------------------------------------------------- */

static bool spread_sends(const struct towi_schedule *schedule, uint32_t turn,
			 struct towi_step *step)
{
	(void)turn;
	return send(step, rank_at(schedule, schedule->position + (1ULL << schedule->round)),
		    TOWI_NOWHERE, schedule->round);
}

static bool spread_writes(const struct towi_schedule *schedule, uint32_t turn,
			  struct towi_step *step)
{
	(void)turn;
	return store(step, rank_behind(schedule, 1ULL << schedule->round), TOWI_NOWHERE, 0);
}

/* ---- cursors --------------------------------------------------------------------- */

struct way {
	bool (*looks[2])(const struct towi_schedule *schedule, uint32_t turn,
			 struct towi_step *step);	/* by side */
	uint64_t rounds;
	uint32_t turns;
};

static struct way ring_way(const struct towi_schedule *schedule)
{
	if (schedule->plan.kind == TOWI_PLAN_BROADCAST)
		return (struct way){
			.looks = { chain_sends, chain_writes },
			.rounds = schedule->pieces ? schedule->pieces + schedule->plan.ranks - 2 : 0,
			.turns = 1,
		};
	return (struct way){
		.looks = { ring_sends, ring_writes },
		.rounds = schedule->pieces * hops(&schedule->plan),
		.turns = 2,
	};
}

static struct way direct_way(const struct towi_schedule *schedule)
{
	bool twice = schedule->plan.kind == TOWI_PLAN_ALLREDUCE && schedule->pieces;

	return (struct way){
		.looks = { direct_sends, direct_writes },
		.rounds = twice ? 2 * (schedule->pieces + direct_lag(schedule)) : schedule->pieces,
		.turns = schedule->plan.ranks,
	};
}

static struct way tree_way(const struct towi_schedule *schedule)
{
	return (struct way){
		.looks = { tree_sends, tree_writes },
		.rounds = schedule->pieces ?
			  schedule->pieces + down_from(schedule) + schedule->depth - 1 : 0,
		.turns = schedule->depth + 1,
	};
}

static struct way way_of(const struct towi_schedule *schedule)
{
	if (schedule->plan.ranks == 1)
		return (struct way){ { alone_sends, alone_writes }, schedule->pieces, 1 };
	switch (schedule->plan.way) {
	case TOWI_PLAN_RING:
		return ring_way(schedule);
	case TOWI_PLAN_DIRECT:
		return direct_way(schedule);
	case TOWI_PLAN_TREE:
		return tree_way(schedule);
	default:
		return (struct way){ { spread_sends, spread_writes }, schedule->depth, 1 };
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
	plan->piece = message_count(plan);
	if (plan->piece)
		schedule->pieces = cut_into(has_parts(plan) ? largest_part(plan) : plan->count,
					    plan->piece);
}

int towi_schedule_begin(struct towi_schedule *schedule, const struct towi_plan *plan,
			enum towi_side side)
{
	struct way way;

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
	uint64_t pieces = 0;

	if (plan->ranks < 3)
		return 0;
	if (plan->kind == TOWI_PLAN_REDUCE)
		pieces = tree_works(depth_of(plan->ranks), plan);
	else if (plan->way == TOWI_PLAN_RING && plan->kind == TOWI_PLAN_REDUCE_SCATTER)
		pieces = 2ULL * plan->window;
	else if (plan->way == TOWI_PLAN_DIRECT && plan->kind != TOWI_PLAN_ALLGATHER)
		pieces = 1;
	return pieces * message_count(plan);
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
