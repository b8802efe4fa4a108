// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * How a call is done: by which algorithm, and in pieces of what size.
 *
 * All ranks have to choose alike, so they go by numbers that are rank 0's, told when the communicator
 * is made.  Of these, of what is asked for and of the ranks' nodes a plan is a function, and of
 * nothing else.
 */
#include "calls.h"

/* ---- what is gone by --------------------------------------------------------------------- */

/* Of what is sent once all to all is no more than by the ring, and two or more at once. */
#define ONCE_RANKS	16U
/* A broadcast's pieces follow each other by the ring; by the tree whoever has several children waits. */
#define SENT_OF_TREE	4U

static const struct towi_choices defaults = {
	.direct_bytes = 256U << 10,
	.tree_bytes = 128U << 10,
	.piece_bytes_min = 32U << 10,
	.direct_ranks = 4,
	.pieces = 8,
	/* What an all-gather sends needs no time. */
	.window = 4,
	.window_gather = 8,
};

struct towi_choices towi_choices_of(const struct tow_comm_attr *attr)
{
	struct towi_choices choices = defaults;

	if (attr->direct_ranks)
		choices.direct_ranks = attr->direct_ranks;
	if (attr->direct_bytes)
		choices.direct_bytes = attr->direct_bytes;
	if (attr->tree_bytes)
		choices.tree_bytes = attr->tree_bytes;
	return choices;
}

static bool is_window(uint32_t window)
{
	return window && window <= TOWI_PLAN_WINDOW_MAX;
}

bool towi_choices_good(const struct towi_choices *choices)
{
	return choices->direct_bytes && choices->tree_bytes && choices->direct_ranks &&
	       choices->pieces && choices->piece_bytes_min &&
	       choices->piece_bytes_min % TOWI_LINE == 0 &&
	       choices->piece_bytes_min <= TOWI_SLOT_BYTES &&
	       is_window(choices->window) && is_window(choices->window_gather);
}

/* ---- what is chosen ---------------------------------------------------------------------- */

static enum towi_plan_kind kind_of(uint32_t kind)
{
	static const enum towi_plan_kind kinds[] = {
		[TOW_ALLREDUCE] = TOWI_PLAN_ALLREDUCE,
		[TOW_REDUCE_SCATTER] = TOWI_PLAN_REDUCE_SCATTER,
		[TOW_ALLGATHER] = TOWI_PLAN_ALLGATHER,
		[TOW_BROADCAST] = TOWI_PLAN_BROADCAST,
		[TOW_BARRIER] = TOWI_PLAN_BARRIER,
		[TOWI_REDUCE] = TOWI_PLAN_REDUCE,
	};

	return kinds[kind];
}

static enum towi_plan_way choose_way(const struct towi_joint *joint, uint32_t kind)
{
	const struct towi_choices *choices = &joint->work.comm->choices;
	uint64_t bytes = joint->plan.count * joint->element;
	uint32_t ranks = joint->plan.ranks;

	switch (kind) {
	case TOW_BARRIER:
		return TOWI_PLAN_DISSEMINATION;
	case TOWI_REDUCE:
		return TOWI_PLAN_TREE;
	case TOW_BROADCAST:
		return bytes <= choices->tree_bytes / SENT_OF_TREE ? TOWI_PLAN_TREE :
								     TOWI_PLAN_RING;
	case TOW_ALLREDUCE:
		if (ranks <= choices->direct_ranks && bytes <= choices->direct_bytes)
			return TOWI_PLAN_DIRECT;
		return bytes <= choices->tree_bytes ? TOWI_PLAN_TREE : TOWI_PLAN_RING;
	default:
		return ranks <= ONCE_RANKS && bytes <= choices->direct_bytes ? TOWI_PLAN_DIRECT :
									       TOWI_PLAN_RING;
	}
}

static enum towi_plan_way way_of(const struct towi_joint *joint,
				 const struct tow_collective_attr *attr)
{
	switch (attr->algorithm) {
	case TOW_ALGORITHM_RING:
		return TOWI_PLAN_RING;
	case TOW_ALGORITHM_DIRECT:
		return TOWI_PLAN_DIRECT;
	case TOW_ALGORITHM_TREE:
		return TOWI_PLAN_TREE;
	default:
		return choose_way(joint, attr->kind);
	}
}

/* What is cut into pieces, in bytes. */
static uint64_t largest(const struct towi_joint *joint)
{
	const struct towi_plan *plan = &joint->plan;
	bool whole = plan->way == TOWI_PLAN_TREE || plan->kind == TOWI_PLAN_BROADCAST;
	uint64_t elements = whole ? plan->count : (plan->count + plan->ranks - 1) / plan->ranks;

	return elements * joint->element;
}

uint32_t towi_plan_pieces(const struct towi_joint *joint)
{
	uint64_t bytes = joint->plan.piece * joint->element;

	return (uint32_t)((largest(joint) + bytes - 1) / bytes);
}

static uint64_t round_up(uint64_t bytes)
{
	return (bytes + TOWI_LINE - 1) / TOWI_LINE * TOWI_LINE;
}

/* In bytes. */
static uint64_t choose_piece(const struct towi_joint *joint, uint64_t wanted)
{
	const struct tow_comm *comm = joint->work.comm;
	uint64_t bytes = largest(joint), piece;

	if (wanted)
		return wanted;
	if (bytes <= comm->calls->eager_bytes)
		return bytes;
	/* What is large is sent in about so many, of no less than that. */
	piece = round_up(bytes / comm->choices.pieces);
	if (piece < comm->choices.piece_bytes_min)
		return comm->choices.piece_bytes_min;
	return piece < TOWI_SLOT_BYTES ? piece : TOWI_SLOT_BYTES;
}

/* Of what only moves bytes are the elements. */
static void count_elements(struct towi_joint *joint, const struct tow_collective_attr *attr)
{
	uint64_t count = attr->count;

	joint->element = 1;
	if (joint->reduces)
		joint->element = (uint32_t)towi_reduce_bytes(joint->type);
	else
		count *= (uint64_t)attr->dtype.bits * attr->dtype.lanes / 8;
	if (attr->kind == TOW_REDUCE_SCATTER || attr->kind == TOW_ALLGATHER)
		count *= joint->work.comm->ranks;
	joint->plan.count = count;
}

void towi_plan_call(struct towi_joint *joint, const struct tow_collective_attr *attr)
{
	const struct tow_comm *comm = joint->work.comm;
	uint64_t piece;

	joint->reduction = attr->reduction;
	joint->reduces = towi_is_reduction(attr->kind);
	joint->plan = (struct towi_plan){
		.kind = kind_of(attr->kind),
		.rank = comm->rank,
		.ranks = comm->ranks,
		.root = attr->root,
		.order = comm->calls->order,
		.window = attr->kind == TOW_ALLGATHER ? comm->choices.window_gather :
							comm->choices.window,
	};
	count_elements(joint, attr);
	joint->plan.way = way_of(joint, attr);
	piece = choose_piece(joint, attr->piece_bytes) / joint->element;
	joint->plan.piece = piece ? piece : 1;
	joint->all_large = largest(joint) > TOWI_EARLY_PIECES * joint->plan.piece * joint->element;
}

/* ---- what was chosen --------------------------------------------------------------------- */

void towi_plan_tell(const struct tow_work *work, struct tow_work_info *info)
{
	static const uint32_t algorithms[] = {
		[TOWI_PLAN_RING] = TOW_ALGORITHM_RING,
		[TOWI_PLAN_DIRECT] = TOW_ALGORITHM_DIRECT,
		[TOWI_PLAN_TREE] = TOW_ALGORITHM_TREE,
	};
	const struct towi_joint *joint = (const struct towi_joint *)work;

	if (joint->plan.way == TOWI_PLAN_DISSEMINATION)
		return;
	info->algorithm = algorithms[joint->plan.way];
	/* As it may be asked for. */
	info->piece_bytes = round_up(joint->plan.piece * joint->element);
}
