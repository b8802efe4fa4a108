/* SPDX-License-Identifier: GPL-2.0 */
/*
 * All ranks of a collective's plan are played, in orders that chance brings, with a few slots for
 * each pair.
 *
 * An element says which operands it is made of and in which order, as the operation here is
 * neither commutative nor associative.  A play fails when nobody can go on, when a send and its
 * receive differ, when a step touches what is not its rank's, or when something is written to
 * what is being sent.
 */
#ifndef TOW_PLAY_H
#define TOW_PLAY_H

#include <stdbool.h>
#include <stdint.h>
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
	return (uint32_t)((state >> 32) * below >> 32);
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
	bool stored;
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
	uint32_t late;			/* a rank that does nothing yet */
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
	if (rank >= plan->ranks)
		return 0;
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
static struct element *place(struct play *play, uint32_t rank, enum towi_operand where,
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

/* It has not landed; or it has, and this rank does not know (@open). */
static bool is_being_sent(const struct player *player, const struct element *from, uint64_t count,
			  bool open)
{
	for (uint32_t i = 0; i < player->opened; i++)
		if ((open || !player->open[i].landed) &&
		    overlap(from, player->open[i].from, count, player->open[i].step.count))
			return true;
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
	bool stored;

	if (!player->grants.more)
		return false;
	pair = &play->pairs[step->peer][rank];
	stored = step->to == TOWI_OUT && step->right == TOWI_NOWHERE;
	if (pair->granted - pair->done >= play->slots)
		return false;
	expect(play, step->after <= step->round, "a write waits for a later round");
	message = &pair->messages[pair->granted++ % play->slots];
	message->count = step->count;
	message->round = step->round;
	message->stored = stored;
	message->direct = play->direct && stored ? place(play, rank, TOWI_OUT, step) : NULL;
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
	expect(play, message->count == step->count && message->round == step->round &&
	       message->stored == step->stored, "a send and its receive differ");
	expect(play, step->what == TOWI_STEP_SEND && step->peer != rank, "a send is no send");
	expect(play, step->after <= step->round, "a send waits for a later round");
	open = &player->open[player->opened++];
	open->step = *step;
	open->from = place(play, rank, step->left, step);
	open->number = pair->posted++;
	open->landed = false;
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
	expect(play, !is_being_sent(peer, message->direct, message->count, false),
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

static struct element *operand(struct play *play, uint32_t rank, enum towi_operand where,
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
	       !is_being_sent(player, to, step->count, step->left != TOWI_RECEIVED ||
			      step->right != TOWI_NOWHERE), "what is being sent is written");
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

	if (rank == play->late)
		return false;
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

static bool has_ended(const struct player *player)
{
	return !player->sends.more && !player->writes.more;
}

/* A barrier is nobody's end before all have begun. */
static void all_but_one_go_on(struct play *play)
{
	play->late = chance(play->plan.ranks);
	while (!play->wrong && somebody(play))
		;
	for (uint32_t rank = 0; rank < play->plan.ranks; rank++)
		expect(play, play->plan.kind != TOWI_PLAN_BARRIER || play->plan.ranks == 1 ||
		       !has_ended(&play->players[rank]), "a barrier waits for somebody not");
	play->late = RANKS_MAX;
}

static void go_on(struct play *play)
{
	all_but_one_go_on(play);
	while (!play->wrong && somebody(play))
		;
	for (uint32_t rank = 0; rank < play->plan.ranks; rank++)
		expect(play, has_ended(&play->players[rank]), "nobody can go on");
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

#endif /* TOW_PLAY_H */
