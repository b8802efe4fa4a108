/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * What each rank does in a collective: which pieces it sends, and what becomes of those that come.
 *
 * A schedule is a function of its plan and nothing else: no memory is allocated, nothing is sent
 * and no clock is read.  It is told step by step, so that its length costs nothing, and its state
 * is in the cursor, so that any number of calls can be in flight.
 *
 * A rank has two cursors of a plan: one of its sends, the other of its writes, which are receives
 * and what is copied or combined locally.  Each side is carried out in its own order, and says
 * how far the other one must be:
 *
 *	a send		goes when all writes of rounds before its @after are done
 *	a write		is done when all sends of rounds before its @after have completed, as it
 *			writes to what they read
 *
 * So the executor compares @after with the round of the step that the other side is at: for
 * sends, of the first one that has not completed.
 *
 * Rounds are why nobody waits in a circle.  In a round a rank sends at most one message to
 * each other rank, in which that one has a receive from it in the same round, of as many elements.
 * @after of a send is at most its own round, and so is that of a write.  So when all rounds before
 * one are done, all sends of this one may go with one slot for each pair of ranks, and then its
 * writes have what they wait for.  More slots let a rank be more rounds ahead of the next one, and
 * what is sent then travels while this rank reduces.
 *
 * Empty pieces are no steps, at both ends; only a barrier has messages without elements.
 *
 * Three arrays: IN and OUT, which are one (in place) or do not overlap, and WORK, which is the
 * executor's, of towi_schedule_work() elements.  In IN and OUT an element is named by its place
 * in the whole: of a reduce-scatter OUT has this rank's part only, and of an all-gather IN
 * does.  IN is not touched of a broadcast at others than the root, nor is OUT of a reduction.  A
 * step of which the arrays are in the same place, element by element, is as good as any other; a
 * copy from IN to OUT is nothing to do in place.
 *
 * What is received to be stored in OUT may be written there by who sends it, at any time from the
 * beginning on.  If this rank had something in that place that others needed, what comes was made of
 * it: so it has arrived where it was sent to, though that send may not have completed, and it is
 * not sent again (Documentation/design/failure.md).
 */
#ifndef TOW_SCHEDULE_H
#define TOW_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

/* Of a plan's count, and its window. */
#define TOWI_PLAN_COUNT_MAX	(1ULL << 56)
#define TOWI_PLAN_WINDOW_MAX	64U

/*
 * What is done to @count elements.  Each rank has a part of the whole, by rank; the first ones have
 * one element more where they cannot be equal.
 */
enum towi_plan_kind {
	TOWI_PLAN_ALLREDUCE,		/* all get the reduction of all */
	TOWI_PLAN_REDUCE_SCATTER,	/* each gets its part of it */
	TOWI_PLAN_ALLGATHER,		/* each has its part, all get the whole */
	TOWI_PLAN_BROADCAST,		/* all get what the root has */
	TOWI_PLAN_REDUCE,		/* the root gets the reduction of all */
	TOWI_PLAN_BARRIER,		/* nobody ends before all have begun */
};

/*
 * How, and in which order operands are combined: each left operand comes before the right one.
 * "Position" is a rank's in the plan's order.
 */
enum towi_plan_way {
	/*
	 * Each to the next position.  A part is reduced from the position behind its rank's on
	 * round to that one.  Broadcast: pieces follow each other from the root on.  All but
	 * reduce and barrier.
	 */
	TOWI_PLAN_RING,
	/*
	 * Each to each.  A part is reduced by its rank, in the order of the ranks.  AllReduce,
	 * reduce-scatter, all-gather.
	 */
	TOWI_PLAN_DIRECT,
	/*
	 * Binomial: what the first 2^N positions have reduced is combined with what the next
	 * 2^N have, counted from the root on (AllReduce: from position 0).  AllReduce, broadcast,
	 * reduce.
	 */
	TOWI_PLAN_TREE,
	/* In round N each tells the one 2^N positions behind it.  Barrier. */
	TOWI_PLAN_DISSEMINATION,
};

/* All ranks have the same one, but for @rank. */
struct towi_plan {
	enum towi_plan_kind kind;
	enum towi_plan_way way;
	uint32_t rank, ranks;
	uint32_t root;			/* broadcast, reduce */
	const uint32_t *order;		/* ranks by position, each once; NULL: by rank */
	uint64_t count;			/* elements of the whole */
	uint64_t piece;			/* elements of a message, at most */
	uint32_t window;		/* pieces that follow each other before one comes back */
};

enum towi_operand {
	TOWI_NOWHERE,			/* there is no such operand */
	TOWI_RECEIVED,			/* where the peer's piece has landed */
	TOWI_IN, TOWI_OUT, TOWI_WORK,
};

enum towi_step_what {
	TOWI_STEP_SEND,			/* @left to the peer */
	TOWI_STEP_RECEIVE,		/* to = left, or left op right; one of them is RECEIVED */
	TOWI_STEP_LOCAL,		/* the same without a peer */
};

struct towi_step {
	enum towi_step_what what;
	uint32_t peer;			/* rank; of SEND and RECEIVE */
	enum towi_operand to, left, right;
	bool left_given, right_given;	/* as a rank gave it, and not reduced */
	bool reduced;			/* what comes out has all ranks' elements */
	bool stored;			/* of SEND: the peer only stores it in its OUT */
	uint64_t at;			/* the first element, in IN and OUT, */
	uint64_t work_at;		/* and in WORK */
	uint64_t count;
	uint64_t round, after;		/* see above */
};

enum towi_side { TOWI_SENDS, TOWI_WRITES };

/* A cursor.  Its members are the schedule's own. */
struct towi_schedule {
	struct towi_plan plan;
	bool (*look)(const struct towi_schedule *schedule, uint32_t turn, struct towi_step *step);
	uint32_t first;			/* position that is counted from */
	uint32_t position;		/* this rank's, from there */
	uint32_t depth;			/* 2^depth is the number of ranks, or more */
	uint64_t pieces;		/* of the largest part, or of the whole */
	uint64_t round, rounds;
	uint32_t turn, turns;		/* steps of a round, at most */
};

/*
 * Begin with one side's first step.  @plan is copied, but its order must stay.
 * 0; or -EINVAL: the kind does not go that way, or a number is out of its range.
 */
int towi_schedule_begin(struct towi_schedule *schedule, const struct towi_plan *plan,
			enum towi_side side);

/* The next step; false: there is none any more. */
bool towi_schedule_next(struct towi_schedule *schedule, struct towi_step *step);

/* How many elements WORK has to have, at any rank; @plan is good for towi_schedule_begin(). */
uint64_t towi_schedule_work(const struct towi_plan *plan);

/*
 * An order in which ranks of one node are neighbours: nodes as their first ranks come, a node's
 * ranks as they come.  @nodes[R] is a number that rank R's node has.
 */
void towi_schedule_order(const uint32_t *nodes, uint32_t ranks, uint32_t *order);

#endif /* TOW_SCHEDULE_H */
