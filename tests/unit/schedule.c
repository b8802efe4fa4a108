// SPDX-License-Identifier: GPL-2.0
/*
 * Schedules of collectives: what all ranks of a plan end up with (tow_play.h plays them) is held
 * against the definition, for all kinds and ways, and 1 to 17 ranks; so is how much was sent.
 */
#include <errno.h>

#include <kselftest.h>

#include "tow_play.h"

/* ---- what is to come out ----------------------------------------------------------------- */

/* A position that may be once round. */
static uint32_t wrapped(const struct towi_plan *plan, uint32_t position)
{
	return position < plan->ranks ? position : position - plan->ranks;
}

static uint32_t ordered(const struct towi_plan *plan, uint32_t position)
{
	position = wrapped(plan, position);
	return plan->order && plan->way != TOWI_PLAN_DIRECT ? plan->order[position] : position;
}

static uint32_t position_of(const struct towi_plan *plan, uint32_t rank)
{
	uint32_t position = 0;

	while (ordered(plan, position) != rank)
		position++;
	return position;
}

/* From the root on. */
static uint32_t distance(const struct towi_plan *plan, uint32_t rank)
{
	uint32_t first = plan->kind == TOWI_PLAN_ALLREDUCE ? 0 : position_of(plan, plan->root);

	return wrapped(plan, position_of(plan, rank) + plan->ranks - first);
}

static struct element one_by_one(const struct towi_plan *plan, uint32_t first, uint64_t index)
{
	struct element sum = given_by(ordered(plan, first), index);

	for (uint32_t i = 1; i < plan->ranks; i++)
		sum = combined(sum, given_by(ordered(plan, first + i), index));
	return sum;
}

/* @size ranks from a position on, as far as there are any. */
static struct element by_halves(const struct towi_plan *plan, uint32_t from, uint32_t size,
				uint64_t index)
{
	uint32_t first = plan->kind == TOWI_PLAN_ALLREDUCE ? 0 : position_of(plan, plan->root);

	if (size == 1)
		return given_by(ordered(plan, first + from), index);
	if (from + size / 2 >= plan->ranks)
		return by_halves(plan, from, size / 2, index);
	return combined(by_halves(plan, from, size / 2, index),
			by_halves(plan, from + size / 2, size / 2, index));
}

static uint32_t owner_of(const struct towi_plan *plan, uint64_t index)
{
	uint32_t rank = 0;

	while (index >= part_at(plan, rank) + part_count(plan, rank))
		rank++;
	return rank;
}

static struct element reference(const struct towi_plan *plan, uint64_t index)
{
	if (plan->kind == TOWI_PLAN_BROADCAST)
		return given_by(plan->root, index);
	if (plan->kind == TOWI_PLAN_ALLGATHER)
		return given_by(owner_of(plan, index), index);
	if (plan->way == TOWI_PLAN_TREE)
		return by_halves(plan, 0, 32, index);
	if (plan->way == TOWI_PLAN_DIRECT)
		return one_by_one(plan, 0, index);
	return one_by_one(plan, position_of(plan, owner_of(plan, index)) + 1, index);
}

static uint32_t children(const struct towi_plan *plan, uint32_t own)
{
	uint32_t count = 0;

	for (uint32_t other = 1; other < plan->ranks; other++)
		count += (other & (other - 1)) == own;
	return count;
}

static uint64_t sent_by_ring(const struct towi_plan *plan)
{
	uint64_t own = part_count(plan, plan->rank);
	uint64_t next = part_count(plan, ordered(plan, position_of(plan, plan->rank) + 1));

	switch (plan->kind) {
	case TOWI_PLAN_ALLREDUCE:
		return plan->count * 2 - own - next;
	case TOWI_PLAN_REDUCE_SCATTER:
		return plan->count - own;
	case TOWI_PLAN_ALLGATHER:
		return plan->count - next;
	default:
		return distance(plan, plan->rank) + 1 < plan->ranks ? plan->count : 0;
	}
}

static uint64_t sent_directly(const struct towi_plan *plan)
{
	uint64_t own = part_count(plan, plan->rank), sent = 0;

	if (plan->kind != TOWI_PLAN_ALLGATHER)
		sent += plan->count - own;
	if (plan->kind != TOWI_PLAN_REDUCE_SCATTER)
		sent += own * (plan->ranks - 1);
	return sent;
}

static uint64_t sent_by_tree(const struct towi_plan *plan)
{
	uint32_t own = distance(plan, plan->rank), messages = 0;

	if (plan->kind != TOWI_PLAN_REDUCE)
		messages += children(plan, own);
	if (plan->kind != TOWI_PLAN_BROADCAST)
		messages += own != 0;
	return messages * plan->count;
}

/* Elements. */
static uint64_t sent_by(const struct towi_plan *plan)
{
	if (plan->ranks == 1 || plan->kind == TOWI_PLAN_BARRIER)
		return 0;
	if (plan->way == TOWI_PLAN_RING)
		return sent_by_ring(plan);
	return plan->way == TOWI_PLAN_DIRECT ? sent_directly(plan) : sent_by_tree(plan);
}

static void check_barrier(struct play *play)
{
	for (uint32_t rank = 0; rank < play->plan.ranks; rank++)
		expect(play, 1U << play->players[rank].messages >= play->plan.ranks &&
		       1U << play->players[rank].messages < 2 * play->plan.ranks,
		       "a barrier has other messages");
}

static void check_out(struct play *play, uint32_t rank, const struct element *wanted)
{
	struct player *player = &play->players[rank];
	struct towi_step all = { .at = player->out.from, .count = player->out.count };
	const struct element *out = place(play, rank, TOWI_OUT, &all);

	for (uint64_t i = 0; out && i < all.count; i++)
		expect(play, out[i].hash == wanted[all.at + i].hash, "what comes out is wrong");
}

static void check_in(struct play *play, uint32_t rank)
{
	const struct stretch *in = &play->players[rank].in;

	for (uint64_t i = 0; !play->in_place && i < in->count; i++)
		expect(play, in->memory[i].hash == given_by(rank, in->from + i).hash,
		       "what went in is another");
}

static void check(struct play *play)
{
	struct element *wanted = calloc(play->plan.count + 1, sizeof(*wanted));
	struct towi_plan plan;

	if (!wanted)
		ksft_exit_fail_msg("out of memory\n");
	for (uint64_t i = 0; i < play->plan.count; i++)
		wanted[i] = reference(&play->plan, i);
	for (uint32_t rank = 0; rank < play->plan.ranks; rank++) {
		plan = plan_of(play, rank);
		expect(play, play->players[rank].sent == sent_by(&plan),
		       "it is not as much that was sent");
		if (plan.kind == TOWI_PLAN_BARRIER)
			continue;
		check_out(play, rank, wanted);
		check_in(play, rank);
	}
	free(wanted);
}

/* ---- all of them ---------------------------------------------------------------------- */

static const char *played(struct play *play)
{
	struct element *slots = begin_pairs(play);

	play->wrong = NULL;
	for (uint32_t rank = 0; rank < play->plan.ranks; rank++)
		begin_player(play, rank);
	if (!play->wrong)
		go_on(play);
	if (!play->wrong)
		check(play);
	if (!play->wrong && play->plan.kind == TOWI_PLAN_BARRIER)
		check_barrier(play);
	for (uint32_t rank = 0; rank < play->plan.ranks; rank++)
		end_player(&play->players[rank]);
	free(slots);
	return play->wrong;
}

static const struct {
	const char *name;
	enum towi_plan_kind kind;
	enum towi_plan_way way;
} ways[] = {
	{ "AllReduce, ring", TOWI_PLAN_ALLREDUCE, TOWI_PLAN_RING },
	{ "AllReduce, direct", TOWI_PLAN_ALLREDUCE, TOWI_PLAN_DIRECT },
	{ "AllReduce, tree", TOWI_PLAN_ALLREDUCE, TOWI_PLAN_TREE },
	{ "reduce-scatter, ring", TOWI_PLAN_REDUCE_SCATTER, TOWI_PLAN_RING },
	{ "reduce-scatter, direct", TOWI_PLAN_REDUCE_SCATTER, TOWI_PLAN_DIRECT },
	{ "all-gather, ring", TOWI_PLAN_ALLGATHER, TOWI_PLAN_RING },
	{ "all-gather, direct", TOWI_PLAN_ALLGATHER, TOWI_PLAN_DIRECT },
	{ "broadcast, ring", TOWI_PLAN_BROADCAST, TOWI_PLAN_RING },
	{ "broadcast, tree", TOWI_PLAN_BROADCAST, TOWI_PLAN_TREE },
	{ "reduce, tree", TOWI_PLAN_REDUCE, TOWI_PLAN_TREE },
	{ "barrier", TOWI_PLAN_BARRIER, TOWI_PLAN_DISSEMINATION },
};

static void shuffle(uint32_t *order, uint32_t ranks)
{
	for (uint32_t i = 0; i < ranks; i++)
		order[i] = i;
	for (uint32_t i = 1; i < ranks; i++) {
		uint32_t other = chance(i + 1), rank = order[i];

		order[i] = order[other];
		order[other] = rank;
	}
}

static void say(const struct play *play, const char *name, const char *wrong)
{
	const struct towi_plan *plan = &play->plan;

	ksft_print_msg("%s: %s: %u ranks, root %u, %llu elements, pieces of %llu, window %u%s\n",
		       name, wrong, plan->ranks, plan->root, (unsigned long long)plan->count,
		       (unsigned long long)plan->piece, plan->window,
		       plan->order ? ", ordered" : "");
	ksft_print_msg("%u slots%s%s\n", play->slots, play->in_place ? ", in place" : "",
		       play->direct ? ", written directly" : "");
}

/* In place and not, with whatever else chance brings. */
static bool plays_well(struct play *play, const char *name)
{
	uint32_t order[RANKS_MAX], ranks = play->plan.ranks;
	const char *wrong = NULL;

	for (uint32_t i = 0; !wrong && i < 2; i++) {
		play->in_place = i;
		play->direct = chance(2);
		play->slots = 1 + chance(SLOTS_MAX);
		play->plan.root = chance(ranks);
		play->plan.window = 1 + chance(5);
		shuffle(order, ranks);
		play->plan.order = chance(2) ? order : NULL;
		wrong = played(play);
	}
	if (wrong)
		say(play, name, wrong);
	return !wrong;
}

static bool all_counts(struct play *play, const char *name)
{
	const uint64_t counts[] = { 0, 1, 2, 3, 7, play->plan.ranks - 1, play->plan.ranks,
				    play->plan.ranks + 1, 101, 1009 };
	static const uint64_t pieces[] = { 1, 3, 16, 100, 2000 };

	for (uint32_t i = 0; i < ARRAY_SIZE(counts); i++) {
		play->plan.count = counts[i];
		for (uint32_t j = 0; j < ARRAY_SIZE(pieces); j++) {
			play->plan.piece = pieces[j];
			/* Thousands of messages show nothing that hundreds do not. */
			if (counts[i] / pieces[j] <= 101 && !plays_well(play, name))
				return false;
		}
	}
	return true;
}

static bool all_ranks(uint32_t way)
{
	static struct play play;

	play.plan.kind = ways[way].kind;
	play.plan.way = ways[way].way;
	for (play.plan.ranks = 1; play.plan.ranks <= RANKS_MAX; play.plan.ranks++)
		if (!all_counts(&play, ways[way].name))
			return false;
	return true;
}

/* ---- what is refused, and what is not ---------------------------------------------------- */

static struct towi_plan some_plan(void)
{
	return (struct towi_plan){
		.kind = TOWI_PLAN_BROADCAST, .way = TOWI_PLAN_TREE, .rank = 1, .ranks = 4,
		.root = 3, .count = 1000, .piece = 64, .window = 2,
	};
}

static bool refuses(struct towi_plan plan)
{
	struct towi_schedule schedule;

	return towi_schedule_begin(&schedule, &plan, TOWI_SENDS) == -EINVAL;
}

#define BUT(member, value) ({ struct towi_plan but = some_plan(); but.member = value; but; })

static bool is_refused(void)
{
	return !refuses(some_plan()) && refuses(BUT(rank, 4)) && refuses(BUT(root, 4)) &&
	       refuses(BUT(piece, 0)) && refuses(BUT(window, 0)) &&
	       refuses(BUT(window, TOWI_PLAN_WINDOW_MAX + 1)) &&
	       refuses(BUT(count, TOWI_PLAN_COUNT_MAX + 1)) &&
	       refuses(BUT(way, TOWI_PLAN_DIRECT)) && refuses(BUT(way, (enum towi_plan_way)9)) &&
	       refuses(BUT(kind, (enum towi_plan_kind)6)) &&
	       refuses(BUT(kind, TOWI_PLAN_BARRIER)) && refuses(BUT(ranks, 0));
}

/* WORK is of a few pieces, and these of no more elements than a part has; or there is none. */
static bool works_with_little(void)
{
	struct towi_plan plan = {
		.kind = TOWI_PLAN_REDUCE_SCATTER, .way = TOWI_PLAN_RING, .ranks = 4,
		.count = 10, .piece = 1000, .window = 2,
	};
	uint64_t small = towi_schedule_work(&plan), large, none;

	plan.count = 1000000;
	large = towi_schedule_work(&plan);
	plan.ranks = 2;
	none = towi_schedule_work(&plan);
	plan.ranks = 4;
	plan.kind = TOWI_PLAN_ALLREDUCE;
	return small == 4ULL * 3 && large == 4ULL * 1000 && !none && !towi_schedule_work(&plan);
}

/* The largest one, from its beginning, and its window's end. */
static bool is_endless(void)
{
	struct towi_plan plan = {
		.kind = TOWI_PLAN_REDUCE_SCATTER, .way = TOWI_PLAN_RING, .rank = 5, .ranks = 1024,
		.count = TOWI_PLAN_COUNT_MAX, .piece = 1, .window = TOWI_PLAN_WINDOW_MAX,
	};
	struct towi_schedule schedule;
	struct towi_step step;

	if (towi_schedule_begin(&schedule, &plan, TOWI_SENDS))
		return false;
	for (uint32_t i = 0; i < 100000; i++) {
		if (!towi_schedule_next(&schedule, &step) || step.count != 1 || step.round != i ||
		    step.at >= plan.count || step.work_at >= towi_schedule_work(&plan))
			return false;
	}
	return true;
}

/* A cursor stays as it is while others go on. */
static bool is_alone(void)
{
	struct towi_plan plan = some_plan();
	struct towi_schedule one, again, other;
	struct towi_step step, same, ignored;
	bool more;

	if (towi_schedule_begin(&one, &plan, TOWI_WRITES))
		return false;
	again = one;
	plan.rank = 3;
	if (towi_schedule_begin(&other, &plan, TOWI_SENDS))
		return false;
	memset(&plan, 0, sizeof(plan));
	do {
		more = towi_schedule_next(&one, &step);
		towi_schedule_next(&other, &ignored);
		if (more != towi_schedule_next(&again, &same) ||
		    (more && (step.at != same.at || step.peer != 3 || same.peer != 3)))
			return false;
	} while (more);
	return !towi_schedule_next(&one, &step);
}

static bool is_by_node(void)
{
	static const uint32_t nodes[] = { 7, 2, 7, 9, 2, 2, 9, 7 };
	static const uint32_t wanted[] = { 0, 2, 7, 1, 4, 5, 3, 6 };
	uint32_t order[ARRAY_SIZE(nodes)];

	towi_schedule_order(nodes, ARRAY_SIZE(nodes), order);
	return !memcmp(order, wanted, sizeof(order));
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(ARRAY_SIZE(ways) + 5);
	for (uint32_t way = 0; way < ARRAY_SIZE(ways); way++)
		ksft_test_result(all_ranks(way), "%s\n", ways[way].name);
	ksft_test_result(is_refused(), "what is refused\n");
	ksft_test_result(is_endless(), "as many elements as there may be\n");
	ksft_test_result(works_with_little(), "how much is to be lent\n");
	ksft_test_result(is_alone(), "a cursor minds no other\n");
	ksft_test_result(is_by_node(), "order by node\n");
	ksft_finished();
}
