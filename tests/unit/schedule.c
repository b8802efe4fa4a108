// SPDX-License-Identifier: GPL-2.0
/*
 * Schedules of collectives: all ranks of a plan are played, in orders that chance brings, with a few
 * slots for each pair, and what they end up with is held against the definition.
 *
 * An element says which operands it is made of and in which order, as the operation here is
 * neither commutative nor associative.  A play fails when nobody can go on, when a send and its
 * receive differ, when a step touches what is not its rank's, or when something is written to
 * what is being sent.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kselftest.h>

#include "../collective/schedule.h"

#define RANKS_MAX	17U
#define SLOTS_MAX	3U
#define OPEN_MAX	6U
#define NEVER		UINT64_MAX

static uint64_t state = 0x7363686564756c65;

static uint32_t chance(uint32_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)((state >> 16) % below);
}

/* ---- elements -------------------------------------------------------------------------- */

struct element {
	uint64_t hash;
	uint64_t ranks;			/* that are in it */
};

static uint64_t mixed(uint64_t value)
{
	value = (value ^ value >> 29) * 0xbf58476d1ce4e5b9;
	return value ^ value >> 32;
}

static struct element given_by(uint32_t rank, uint64_t at)
{
	return (struct element){ mixed(at * RANKS_MAX + rank + 1), 1 };
}

static struct element combined(struct element left, struct element right)
{
	return (struct element){
		.hash = mixed(left.hash * 3 + mixed(right.hash)),
		.ranks = left.ranks + right.ranks,
	};
}

/* ---- a play ---------------------------------------------------------------------------- */

struct stretch {
	struct element *memory;
	uint64_t from, count;		/* of the whole, that it has */
};

struct message {
	struct element *slot;
	struct element *direct;		/* where it lands instead; or NULL */
	uint64_t count, round;
};

/* From one rank to another; its messages are numbered. */
struct pair {
	struct message messages[SLOTS_MAX];
	uint64_t granted, posted, landed, done;
};

struct open {
	struct towi_step step;
	const struct element *from;
	uint64_t number;		/* of the pair */
	bool landed;
};

struct cursor {
	struct towi_schedule schedule;
	struct towi_step step;
	bool more;
};

struct player {
	struct cursor sends, writes, grants;
	struct stretch in, out, work;
	struct open open[OPEN_MAX];
	uint32_t opened;
	uint64_t sent, messages;
};

struct play {
	struct towi_plan plan;
	bool in_place, direct;
	uint32_t slots;
	struct player players[RANKS_MAX];
	struct pair pairs[RANKS_MAX][RANKS_MAX];	/* from, to */
	const char *wrong;
};

static void expect(struct play *play, bool good, const char *what)
{
	if (!good && !play->wrong)
		play->wrong = what;
}

static void advance(struct cursor *cursor)
{
	cursor->more = towi_schedule_next(&cursor->schedule, &cursor->step);
}

/* The next one that has a message. */
static void advance_grants(struct cursor *cursor)
{
	do {
		advance(cursor);
	} while (cursor->more && cursor->step.what == TOWI_STEP_LOCAL);
}

static struct towi_plan plan_of(const struct play *play, uint32_t rank)
{
	struct towi_plan plan = play->plan;

	plan.rank = rank;
	return plan;
}

static uint64_t part_count(const struct towi_plan *plan, uint32_t rank)
{
	return plan->count / plan->ranks + (rank < plan->count % plan->ranks);
}

static uint64_t part_at(const struct towi_plan *plan, uint32_t rank)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < rank; i++)
		at += part_count(plan, i);
	return at;
}

/* Nothing more than it has to be: a step that goes beyond it is found. */
static struct stretch stretch(const struct play *play, uint32_t rank, bool all, bool part)
{
	struct stretch made = { 0 };

	if (all)
		made.count = play->plan.count;
	if (part) {
		made.from = part_at(&play->plan, rank);
		made.count = part_count(&play->plan, rank);
	}
	made.memory = calloc(made.count + 1, sizeof(*made.memory));
	if (!made.memory)
		ksft_exit_fail_msg("out of memory\n");
	return made;
}

static bool is_root(const struct play *play, uint32_t rank)
{
	return rank == play->plan.root;
}

static struct stretch in_of(const struct play *play, uint32_t rank)
{
	enum towi_plan_kind kind = play->plan.kind;
	struct stretch in = stretch(play, rank, kind != TOWI_PLAN_BROADCAST || is_root(play, rank),
				    kind == TOWI_PLAN_ALLGATHER);

	for (uint64_t i = 0; i < in.count; i++)
		in.memory[i] = given_by(rank, in.from + i);
	return in;
}

static struct stretch out_of(const struct play *play, uint32_t rank)
{
	enum towi_plan_kind kind = play->plan.kind;

	return stretch(play, rank, kind != TOWI_PLAN_REDUCE || is_root(play, rank),
		       kind == TOWI_PLAN_REDUCE_SCATTER);
}

static struct element *at(struct play *play, const struct stretch *stretch, uint64_t first,
			  uint64_t count)
{
	if (first >= stretch->from && count <= stretch->count &&
	    first - stretch->from <= stretch->count - count)
		return stretch->memory + (first - stretch->from);
	expect(play, false, "a step goes beyond what its rank has");
	return NULL;
}

/* In place IN and OUT are one, where both have an element. */
static struct element *place(struct play *play, uint32_t rank, enum towi_place where,
			     const struct towi_step *step)
{
	struct player *player = &play->players[rank];
	bool out_larger = player->out.count >= player->in.count;

	if (where == TOWI_WORK)
		return at(play, &player->work, step->work_at, step->count);
	if (where == TOWI_IN && at(play, &player->in, step->at, step->count))
		return at(play, play->in_place && out_larger ? &player->out : &player->in,
			  step->at, step->count);
	if (where == TOWI_OUT && at(play, &player->out, step->at, step->count))
		return at(play, play->in_place && !out_larger ? &player->in : &player->out,
			  step->at, step->count);
	expect(play, where == TOWI_NOWHERE && !step->count, "a step has no such place");
	return NULL;
}

static bool overlap(const struct element *one, const struct element *other, uint64_t count,
		    uint64_t other_count)
{
	return one && other && one < other + other_count && other < one + count;
}

static bool is_being_sent(const struct player *player, const struct element *from, uint64_t count)
{
	for (uint32_t i = 0; i < player->opened; i++)
		if (overlap(from, player->open[i].from, count, player->open[i].step.count))
			return true;
	return false;
}

/* Others may write there now. */
static bool is_granted(const struct play *play, uint32_t rank, const struct element *from,
		       uint64_t count)
{
	const struct message *message;
	const struct pair *pair;

	for (uint32_t peer = 0; peer < play->plan.ranks; peer++) {
		pair = &play->pairs[peer][rank];
		for (uint64_t i = pair->done; i < pair->granted; i++) {
			message = &pair->messages[i % play->slots];
			if (overlap(from, message->direct, count, message->count))
				return true;
		}
	}
	return false;
}

static uint64_t sends_round(const struct player *player)
{
	uint64_t round = player->sends.more ? player->sends.step.round : NEVER;

	for (uint32_t i = 0; i < player->opened; i++)
		if (player->open[i].step.round < round)
			round = player->open[i].step.round;
	return round;
}

static uint64_t writes_round(const struct player *player)
{
	return player->writes.more ? player->writes.step.round : NEVER;
}

/* ---- what may happen --------------------------------------------------------------------- */

/* A rank says where the next message of a peer may land. */
static bool grants(struct play *play, uint32_t rank)
{
	struct player *player = &play->players[rank];
	struct towi_step *step = &player->grants.step;
	struct message *message;
	struct pair *pair;
	bool direct;

	if (!player->grants.more)
		return false;
	pair = &play->pairs[step->peer][rank];
	direct = play->direct && step->to == TOWI_OUT && step->right == TOWI_NOWHERE;
	if (pair->granted - pair->done >= play->slots ||
	    (direct && sends_round(player) < step->after))
		return false;
	expect(play, step->after <= step->round, "a write waits for a later round");
	message = &pair->messages[pair->granted++ % play->slots];
	message->count = step->count;
	message->round = step->round;
	message->direct = direct ? place(play, rank, TOWI_OUT, step) : NULL;
	expect(play, !is_being_sent(player, message->direct, step->count),
	       "what is being sent may be written");
	advance_grants(&player->grants);
	return true;
}

static bool posts(struct play *play, uint32_t rank)
{
	struct player *player = &play->players[rank];
	struct towi_step *step = &player->sends.step;
	struct message *message;
	struct open *open;
	struct pair *pair;

	if (!player->sends.more || player->opened == OPEN_MAX ||
	    writes_round(player) < step->after)
		return false;
	pair = &play->pairs[rank][step->peer];
	if (pair->posted == pair->granted)
		return false;
	message = &pair->messages[pair->posted % play->slots];
	expect(play, message->count == step->count && message->round == step->round,
	       "a send and its receive differ");
	expect(play, step->what == TOWI_STEP_SEND && step->peer != rank, "a send is no send");
	expect(play, step->after <= step->round, "a send waits for a later round");
	open = &player->open[player->opened++];
	open->step = *step;
	open->from = place(play, rank, step->left, step);
	open->number = pair->posted++;
	open->landed = false;
	expect(play, !is_granted(play, rank, open->from, step->count),
	       "what is sent may be written by others");
	player->sent += step->count;
	player->messages++;
	advance(&player->sends);
	return true;
}

static void move(struct play *play, struct element *to, const struct element *from, uint64_t count)
{
	if (count && to && from)
		memcpy(to, from, count * sizeof(*to));
	else
		expect(play, !count, "there is nowhere to copy from or to");
}

static bool lands(struct play *play, uint32_t rank)
{
	struct player *player = &play->players[rank], *peer;
	struct message *message;
	struct open *open;
	struct pair *pair;

	if (!player->opened)
		return false;
	open = &player->open[chance(player->opened)];
	pair = &play->pairs[rank][open->step.peer];
	/* Those to the same peer come in order. */
	if (open->landed || open->number != pair->landed)
		return false;
	message = &pair->messages[pair->landed++ % play->slots];
	peer = &play->players[open->step.peer];
	expect(play, !is_being_sent(peer, message->direct, message->count),
	       "what is being sent is overwritten");
	move(play, message->direct ? message->direct : message->slot, open->from,
	     open->step.count);
	open->landed = true;
	return true;
}

static bool completes(struct play *play, uint32_t rank)
{
	struct player *player = &play->players[rank];
	struct open *open;

	if (!player->opened)
		return false;
	open = &player->open[chance(player->opened)];
	if (!open->landed)
		return false;
	*open = player->open[--player->opened];
	return true;
}

static void compute(struct play *play, const struct towi_step *step, struct element *to,
		    const struct element *left, const struct element *right)
{
	uint32_t ranks = play->plan.ranks;

	if (step->right == TOWI_NOWHERE) {
		if (to != left)
			move(play, to, left, step->count);
		expect(play, !step->left_given && !step->right_given && !step->reduced,
		       "a copy says that it is a reduction");
		return;
	}
	for (uint64_t i = 0; to && left && right && i < step->count; i++) {
		expect(play, step->left_given == (left[i].ranks == 1), "left_given");
		expect(play, step->right_given == (right[i].ranks == 1), "right_given");
		to[i] = combined(left[i], right[i]);
		expect(play, step->reduced == (to[i].ranks == ranks), "reduced");
	}
}

static struct element *operand(struct play *play, uint32_t rank, enum towi_place where,
			       const struct towi_step *step, struct message *message)
{
	if (where == TOWI_NOWHERE)
		return NULL;
	if (where != TOWI_RECEIVED)
		return place(play, rank, where, step);
	expect(play, message, "a local step has received something");
	if (!message)
		return NULL;
	return message->direct ? message->direct : message->slot;
}

static bool writes(struct play *play, uint32_t rank)
{
	struct player *player = &play->players[rank];
	struct towi_step *step = &player->writes.step;
	struct message *message = NULL;
	struct pair *pair = NULL;
	struct element *to, *left;

	if (!player->writes.more || sends_round(player) < step->after)
		return false;
	if (step->what == TOWI_STEP_RECEIVE) {
		pair = &play->pairs[step->peer][rank];
		if (pair->landed == pair->done)
			return false;
		message = &pair->messages[pair->done % play->slots];
	}
	to = place(play, rank, step->to, step);
	left = operand(play, rank, step->left, step, message);
	/* In place there is nothing to copy. */
	expect(play, (to == left && step->right == TOWI_NOWHERE) ||
	       !is_being_sent(player, to, step->count), "what is being sent is written");
	if (step->count)
		compute(play, step, to, left, operand(play, rank, step->right, step, message));
	if (pair)
		pair->done++;
	advance(&player->writes);
	return true;
}

static bool something(struct play *play, uint32_t rank)
{
	static bool (*const what[])(struct play *play, uint32_t rank) = {
		grants, posts, lands, completes, writes,
	};
	uint32_t first = chance(ARRAY_SIZE(what)), often = 1 + chance(4);
	bool any = false;

	for (uint32_t i = 0; !any && i < ARRAY_SIZE(what); i++)
		for (uint32_t j = 0; j < often; j++)
			any |= what[(first + i) % ARRAY_SIZE(what)](play, rank);
	return any;
}

/* Whether lands() and completes() find something is by chance, as long as something is open. */
static bool has_open(const struct play *play)
{
	for (uint32_t rank = 0; rank < play->plan.ranks; rank++)
		if (play->players[rank].opened)
			return true;
	return false;
}

static bool somebody(struct play *play)
{
	uint32_t first = chance(play->plan.ranks);

	for (uint32_t i = 0; i < play->plan.ranks; i++)
		if (something(play, (first + i) % play->plan.ranks))
			return true;
	return has_open(play);
}

static void go_on(struct play *play)
{
	while (!play->wrong && somebody(play))
		;
	for (uint32_t rank = 0; rank < play->plan.ranks; rank++)
		expect(play, !play->players[rank].sends.more && !play->players[rank].writes.more,
		       "nobody can go on");
}

/* ---- what is to come out ----------------------------------------------------------------- */

static uint32_t ordered(const struct towi_plan *plan, uint32_t position)
{
	position %= plan->ranks;
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

	return (position_of(plan, rank) + plan->ranks - first) % plan->ranks;
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

/* ---- life of a play ---------------------------------------------------------------------- */

static void begin_cursor(struct play *play, struct cursor *cursor, uint32_t rank,
			 enum towi_side side)
{
	struct towi_plan plan = plan_of(play, rank);

	expect(play, !towi_schedule_begin(&cursor->schedule, &plan, side), "a plan is refused");
}

static void begin_player(struct play *play, uint32_t rank)
{
	struct player *player = &play->players[rank];

	player->opened = 0;
	player->sent = 0;
	player->messages = 0;
	player->in = in_of(play, rank);
	player->out = out_of(play, rank);
	/* In place OUT has what IN had. */
	if (play->in_place)
		for (uint64_t i = player->in.from; i < player->in.from + player->in.count; i++)
			if (i >= player->out.from && i < player->out.from + player->out.count)
				player->out.memory[i - player->out.from] = given_by(rank, i);
	player->work = (struct stretch){ .count = towi_schedule_work(&play->plan) };
	player->work.memory = calloc(player->work.count + 1, sizeof(struct element));
	if (!player->work.memory)
		ksft_exit_fail_msg("out of memory\n");
	begin_cursor(play, &player->sends, rank, TOWI_SENDS);
	begin_cursor(play, &player->writes, rank, TOWI_WRITES);
	begin_cursor(play, &player->grants, rank, TOWI_WRITES);
	if (play->wrong)
		return;
	advance(&player->sends);
	advance(&player->writes);
	advance_grants(&player->grants);
}

static struct element *begin_pairs(struct play *play)
{
	uint64_t count = play->plan.piece < play->plan.count ? play->plan.piece : play->plan.count;
	uint32_t ranks = play->plan.ranks, slots = play->slots;
	struct element *all = malloc(((uint64_t)ranks * ranks * slots * count + 1) * sizeof(*all));
	struct element *slot = all;

	if (!all)
		ksft_exit_fail_msg("out of memory\n");
	memset(play->pairs, 0, sizeof(play->pairs));
	for (uint32_t pair = 0; pair < ranks * ranks; pair++)
		for (uint32_t i = 0; i < slots; i++, slot += count)
			play->pairs[pair / ranks][pair % ranks].messages[i].slot = slot;
	return all;
}

static void end_player(struct player *player)
{
	free(player->in.memory);
	free(player->out.memory);
	free(player->work.memory);
}

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

/* ---- all of them ------------------------------------------------------------------------- */

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
	for (uint32_t i = 0; i < ranks; i++) {
		uint32_t other = chance(i + 1);

		order[i] = order[other];
		order[other] = i;
	}
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
		ksft_print_msg("%s: %s: %u ranks, root %u, %llu elements, pieces of %llu, window %u, %u slots%s%s%s\n",
			       name, wrong, ranks, play->plan.root,
			       (unsigned long long)play->plan.count,
			       (unsigned long long)play->plan.piece, play->plan.window,
			       play->slots, play->in_place ? ", in place" : "",
			       play->direct ? ", direct" : "", play->plan.order ? ", ordered" : "");
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
	ksft_set_plan(ARRAY_SIZE(ways) + 4);
	for (uint32_t way = 0; way < ARRAY_SIZE(ways); way++)
		ksft_test_result(all_ranks(way), "%s\n", ways[way].name);
	ksft_test_result(is_refused(), "what is refused\n");
	ksft_test_result(is_endless(), "as many elements as there may be\n");
	ksft_test_result(is_alone(), "a cursor minds no other\n");
	ksft_test_result(is_by_node(), "order by node\n");
	ksft_finished();
}
