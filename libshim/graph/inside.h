/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * What a plan is, inside.
 *
 * What mailboxes and ends of dynamic edges take is the business of the layers below, which say
 * nothing of it to who plans.  So the planner has it in numbers of its own, which are no smaller:
 * a test compares them with what it is (tests/unit/plan.c).
 */
#ifndef TOW_GRAPH_INSIDE_H
#define TOW_GRAPH_INSIDE_H

#include <stddef.h>

#include <towline/graph.h>

/*
 * All places are multiples of it, as what is allocated in an arena is; a number that peers count is
 * alone in as much, and so are a bounded tensor's dimensions.
 */
#define TOWI_PLAN_GRAIN		TOW_ARENA_ALIGNMENT
/* A slab of soft-RoCE; what the pool gives is a multiple of it. */
#define TOWI_PLAN_SLAB		((uint64_t)2 << 20)
/* Sums of sizes are no larger, so that none is lost. */
#define TOWI_PLAN_MOST		((uint64_t)1 << 62)

/* What an end of a dynamic edge has in its worker's arena. */
#define TOWI_PLAN_END_BYTES	2048U
/*
 * The same of an end of a line between two mailboxes: of those that programs make by default, and of
 * those that workers have for their edges.
 */
#define TOWI_PLAN_LINE_BYTES	((uint64_t)28 << 10)
#define TOWI_PLAN_END_LINE_BYTES	((uint64_t)80 << 10)
/* A mailbox takes as much as so many lines, before there is one: its spares, and who is to find them. */
#define TOWI_PLAN_BOX_LINES	9U

_Static_assert(TOW_DIMS_MAX * sizeof(int64_t) <= TOWI_PLAN_GRAIN, "a tensor's dimensions fit");

struct tow_plan {
	uint32_t ranks_count;
	uint32_t edges_count;
	uint32_t graph_count;
	struct tow_plan_rank *ranks;
	struct tow_plan_edge *edges;	/* in the order of tow_plan_edge_info() */
	uint32_t *carries;		/* by the graph's edges: the plan's, or TOW_PLAN_NONE */
};

/*
 * Take so many bytes of a rank's region: 0, and where they are; -EOVERFLOW: there is no region as
 * large as that.
 */
int towi_plan_take(struct tow_plan_rank *rank, uint64_t bytes, uint64_t *offset);

/* ---- share.c ---- */

/*
 * Find places for the tensors of those edges that may share memory, and their order in there: 0;
 * -ENOMEM; or -EOVERFLOW, of the edge of the plan with the number *@wrong.
 */
int towi_plan_share(struct tow_plan *plan, uint32_t *wrong);

/* May the tensors of an edge share their memory with others? */
static inline int towi_plan_shares(const struct tow_plan_edge *edge)
{
	return edge->slots == 1 && edge->tensors_bytes;
}

#endif /* TOW_GRAPH_INSIDE_H */
