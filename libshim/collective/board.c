// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Boards: what ranks write to each other when something is wrong.
 *
 * Each rank has one, with a word for each other rank, which that one writes: who is to blame for
 * a failure, or that it leaves.  Writing there says whether a rank is still there: its board ends
 * with its process, and its node's connection says more.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inside.h"

/* What a rank says: nothing; that it leaves; or whom it blames, and 1, and for which error. */
#define NOTHING		0ULL
#define LEFT		UINT64_MAX
#define ERROR_SHIFT	32

/* How long a rank is given to answer, from when it was asked. */
#define ANSWER_US	1000000U
#define UNKNOWN		UINT64_MAX
/* Who waits looks more often. */
#define STAND_US	1000000U

struct towi_board {
	struct tow_region *region;
	struct tow_exported *exported;
	uint64_t offset;		/* of what follows, in the region */
	uint64_t *heard;		/* what others say, by rank */
	uint64_t *calls;		/* what this rank has at each place */
	uint64_t *said;			/* what this rank says; nobody reaches it, as what follows */
	uint64_t *theirs;		/* what others' @calls are, by rank */
	uint64_t turns;			/* how often this rank has looked */
	bool due;			/* somebody is to be told */
	bool asking;
};

static uint64_t calls_at(const struct tow_comm *comm, uint64_t place)
{
	return (comm->ranks + place) * sizeof(uint64_t);
}

static uint64_t offset_of(const struct towi_board *board, const uint64_t *word)
{
	return board->offset + (uint64_t)(word - board->heard) * sizeof(*word);
}

bool towi_board_has_left(const struct tow_comm *comm, uint32_t rank)
{
	return tow_load_acquire64(&comm->board->heard[rank]) == LEFT;
}

/* ---- telling ------------------------------------------------------------------ */

/* What is the matter when nothing can be written to a rank. */
static void cannot_reach(struct towi_member *member, int status)
{
	struct tow_comm *comm = member->comm;

	/* It may have said why. */
	towi_board_look(comm);
	if (comm->error || towi_board_has_left(comm, member->rank))
		return;
	towi_comm_fail(comm, status, status == -ENODEV ? comm->rank : member->rank);
}

static void told(struct towi_op *op, int status)
{
	struct towi_member *member = (struct towi_member *)op;

	if (status && !member->comm->board->asking)
		cannot_reach(member, status);
}

/* False: not now. */
static bool tell(struct towi_member *member)
{
	struct tow_comm *comm = member->comm;
	struct towi_board *board = comm->board;
	struct tow_sqe *sqe = towi_comm_entry(&comm->runner);

	if (!sqe)
		return false;
	tow_prep_write(sqe, member->channel, board->region, offset_of(board, board->said),
		       member->board, comm->rank * sizeof(uint64_t), sizeof(uint64_t));
	member->due = false;
	towi_pump_begun(sqe, &member->op);
	return true;
}

/* Who is late may still be there. */
static bool is_dead(const struct tow_comm *comm, uint32_t rank)
{
	return comm->error && comm->error != -ETIMEDOUT && rank == comm->blamed;
}

static bool is_to_be_told(const struct tow_comm *comm, uint32_t rank)
{
	return rank != comm->rank && comm->members[rank].board && !is_dead(comm, rank) &&
	       !towi_board_has_left(comm, rank);
}

bool towi_board_go_on(struct tow_comm *comm)
{
	struct towi_board *board = comm->board;
	bool due = false, busy = false;
	uint32_t rank;

	if (!board || !board->due)
		return true;
	for (rank = 0; rank < comm->ranks; rank++) {
		struct towi_member *member = &comm->members[rank];

		if (member->due && !member->op.busy && !tell(member))
			break;
		due |= member->due;
		busy |= member->op.busy;
	}
	/* Also when there was no room. */
	board->due = due || busy || rank < comm->ranks;
	return !board->due;
}

static void tell_all(struct tow_comm *comm)
{
	uint32_t rank;

	for (rank = 0; rank < comm->ranks; rank++)
		comm->members[rank].due = is_to_be_told(comm, rank);
	comm->board->due = true;
	/* Not at once, which might let go of the lock: nobody expects that of what only fails. */
	towi_pump_ready(&comm->runner);
}

void towi_board_probe(struct tow_comm *comm)
{
	tell_all(comm);
}

/* Those that nobody has needed so far, too: they may wait for those who fail. */
static void find_all(struct tow_comm *comm)
{
	uint32_t rank;

	for (rank = 0; rank < comm->ranks; rank++)
		if (rank != comm->rank && !is_dead(comm, rank))
			towi_member_found(&comm->members[rank]);
}

void towi_board_found(struct towi_member *member)
{
	struct tow_comm *comm = member->comm;

	if (!comm->error && !comm->leaving)
		return;
	member->due = is_to_be_told(comm, member->rank);
	comm->board->due = true;
}

void towi_board_alarm(struct tow_comm *comm)
{
	/* Who leaves has said so. */
	if (!comm->board || comm->leaving)
		return;
	find_all(comm);
	__atomic_store_n(comm->board->said,
			 (uint64_t)(uint32_t)-comm->error << ERROR_SHIFT |
				 (uint32_t)(comm->blamed + 1), __ATOMIC_RELEASE);
	tell_all(comm);
}

void towi_board_leave(struct tow_comm *comm)
{
	comm->leaving = true;
	__atomic_store_n(comm->board->said, LEFT, __ATOMIC_RELEASE);
	tell_all(comm);
}

/* ---- hearing ------------------------------------------------------------------ */

/* What a rank has written, which may be anything. */
static void hear(struct tow_comm *comm, uint32_t rank, uint64_t said)
{
	uint32_t error = (uint32_t)(said >> ERROR_SHIFT), blamed = (uint32_t)said - 1;

	switch (-(int)error) {
	case -ESTALE:
	case -ECONNRESET:
	case -ETIMEDOUT:
		break;
	default:
		/* Of what is wrong elsewhere only this matters: it cannot go on. */
		error = ECANCELED;
	}
	towi_comm_fail(comm, -(int)error, blamed < comm->ranks ? blamed : rank);
}

void towi_board_look(struct tow_comm *comm)
{
	uint64_t said;
	uint32_t rank;

	if (comm->board)
		towi_board_put(comm, TOWI_PLACE_OF_TURNS, ++comm->board->turns);
	for (rank = 0; comm->board && !comm->error && rank < comm->ranks; rank++) {
		said = tow_load_acquire64(&comm->board->heard[rank]);
		if (said != NOTHING && said != LEFT)
			hear(comm, rank, said);
	}
}

void towi_board_put(struct tow_comm *comm, uint32_t place, uint64_t number)
{
	__atomic_store_n(&comm->board->calls[place], number, __ATOMIC_RELEASE);
}

/* ---- asking ------------------------------------------------------------------- */

static bool ask(struct towi_member *member, uint64_t place)
{
	struct tow_comm *comm = member->comm;
	struct towi_board *board = comm->board;
	struct tow_sqe *sqe = towi_comm_entry(&comm->runner);

	if (!sqe)
		return false;
	tow_prep_read(sqe, member->channel, board->region,
		      offset_of(board, &board->theirs[member->rank]), member->board,
		      calls_at(comm, place), sizeof(uint64_t));
	towi_pump_begun(sqe, &member->op);
	return true;
}

/* All that can be asked now, for what they have at a place, or at one by rank; true: there was somebody. */
static bool ask_some(struct tow_comm *comm, uint64_t place, const uint64_t *places)
{
	bool any = false;
	uint32_t rank;

	for (rank = 0; rank < comm->ranks; rank++) {
		struct towi_member *member = &comm->members[rank];

		/* What it was told before must have come back. */
		if (!member->to_ask || member->op.busy)
			continue;
		if (!ask(member, places ? places[rank] : place))
			break;
		member->to_ask = false;
		member->asked = true;
		any = true;
	}
	towi_pump_submit(&comm->pump);
	return any;
}

static bool all_answered(const struct tow_comm *comm)
{
	uint32_t rank;

	for (rank = 0; rank < comm->ranks; rank++) {
		const struct towi_member *member = &comm->members[rank];

		if (member->to_ask || (member->asked && member->op.busy))
			return false;
	}
	return true;
}

/* For a while; others may ask for this one, too. */
static void rest(struct tow_comm *comm, uint64_t until)
{
	towi_comm_sleep(comm, until);
	towi_board_look(comm);
	towi_pump_look(&comm->pump);
}

/* Those that this rank has not needed so far, too. */
static void find_others(struct tow_comm *comm)
{
	uint64_t until = towi_until(ANSWER_US);

	find_all(comm);
	while (towi_members_are_sought(comm) && towi_left_us(until) && !comm->pump.over)
		rest(comm, until);
}

/*
 * All at once, as far as there is room: an answer takes as long as a round trip, and there may be
 * a thousand of them.
 */
static void ask_all(struct tow_comm *comm, uint64_t place, const uint64_t *places)
{
	uint64_t until = towi_until(ANSWER_US);
	uint32_t rank;

	for (rank = 0; rank < comm->ranks; rank++) {
		comm->members[rank].to_ask = is_to_be_told(comm, rank);
		comm->members[rank].asked = false;
		comm->board->theirs[rank] = UNKNOWN;
	}
	do {
		if (ask_some(comm, place, places))
			until = towi_until(ANSWER_US);
		if (all_answered(comm))
			return;
		/* Also when it was this process that stood still. */
		rest(comm, until);
	} while (!comm->pump.over && towi_left_us(until));
}

/* For whom there was no room nobody knows, and it is not to blame. */
static bool is_late(const struct towi_member *member, uint64_t calls)
{
	uint64_t theirs = tow_load_acquire64(&member->comm->board->theirs[member->rank]);

	if (!member->asked)
		return member->error || (member->to_ask && member->op.busy);
	return member->op.busy || theirs == UNKNOWN || theirs < calls;
}

uint32_t towi_board_late(struct tow_comm *comm, const uint64_t *places, uint64_t started)
{
	uint32_t rank;

	find_others(comm);
	comm->board->asking = true;
	ask_all(comm, TOWI_PLACE_OF_CALLS, places);
	comm->board->asking = false;
	for (rank = 0; rank < comm->ranks; rank++)
		if (is_late(&comm->members[rank], started))
			return rank;
	return TOW_NO_RANK;
}

/* How far each was, and then, those that have got further since: of whom is neither nobody knows. */
static void find_standing(struct tow_comm *comm, uint64_t *turns)
{
	const uint64_t *theirs = comm->board->theirs;
	uint64_t until;
	uint32_t rank;

	ask_all(comm, TOWI_PLACE_OF_TURNS, NULL);
	for (rank = 0; rank < comm->ranks; rank++)
		turns[rank] = theirs[rank];
	until = towi_until(STAND_US);
	while (towi_left_us(until) && !comm->error && !comm->pump.over)
		rest(comm, until);
	ask_all(comm, TOWI_PLACE_OF_TURNS, NULL);
	for (rank = 0; rank < comm->ranks; rank++)
		if (turns[rank] != theirs[rank] || !comm->members[rank].asked)
			turns[rank] = UNKNOWN;
}

uint32_t towi_board_standing(struct tow_comm *comm, const uint64_t *places, uint64_t started)
{
	uint64_t *turns = calloc(comm->ranks, sizeof(*turns)), ended = places ? started + 1 : started;
	uint32_t rank, found = TOW_NO_RANK;

	if (!turns)
		return TOW_NO_RANK;
	comm->board->asking = true;
	find_standing(comm, turns);
	ask_all(comm, TOWI_PLACE_OF_ENDED, places);
	comm->board->asking = false;
	for (rank = comm->ranks; rank--;)
		if (turns[rank] != UNKNOWN && comm->board->theirs[rank] < ended)
			found = rank;
	free(turns);
	return found;
}

/* ---- life --------------------------------------------------------------------- */

static void name_of(const struct tow_comm *comm, uint32_t rank,
		    char name[TOW_EXPORT_NAME_MAX + 1])
{
	snprintf(name, TOW_EXPORT_NAME_MAX + 1, "towline/comm/%016" PRIx64 "/board/%" PRIu32,
		 comm->numbers[rank], rank);
}

int towi_board_make(struct tow_comm *comm)
{
	uint64_t shown = comm->ranks + (uint64_t)TOWI_PLACES;
	struct towi_board *board = calloc(1, sizeof(*board));
	char name[TOW_EXPORT_NAME_MAX + 1];
	uint32_t rank;
	int ret;

	if (!board)
		return -ENOMEM;
	for (rank = 0; rank < comm->ranks; rank++)
		comm->members[rank].op = (struct towi_op){ .ended = told,
							   .runner = &comm->runner };
	board->heard = tow_arena_zeroed(comm->arena, shown + 1 + comm->ranks, sizeof(uint64_t));
	if (!board->heard) {
		ret = -errno;
		goto free_board;
	}
	board->calls = board->heard + comm->ranks;
	board->said = board->heard + shown;
	board->theirs = board->said + 1;
	ret = tow_arena_find(comm->arena, board->heard, &board->region, &board->offset);
	if (ret)
		goto free_words;
	name_of(comm, comm->rank, name);
	ret = tow_export(board->region, board->offset, shown * sizeof(uint64_t), name,
			 TOW_RIGHT_READ | TOW_RIGHT_WRITE, &board->exported);
	if (ret)
		goto free_words;
	comm->board = board;
	return 0;

free_words:
	tow_arena_free(comm->arena, board->heard);
free_board:
	free(board);
	return ret;
}

int towi_board_find(struct towi_member *member)
{
	const struct tow_comm *comm = member->comm;
	char name[TOW_EXPORT_NAME_MAX + 1];
	int ret;

	name_of(comm, member->rank, name);
	ret = tow_resolve(member->seen_peer, name, TOW_RIGHT_READ | TOW_RIGHT_WRITE, 0,
			  &member->seen_board);
	return !ret && tow_remote_bytes(member->seen_board) !=
			       calls_at(comm, TOWI_PLACES) ? -EPROTO : ret;
}

void towi_board_free(struct tow_comm *comm)
{
	struct towi_board *board = comm->board;
	uint32_t rank;

	for (rank = 0; rank < comm->ranks; rank++)
		tow_remote_release(comm->members[rank].seen_board);
	if (!board)
		return;
	tow_unexport(board->exported);
	tow_arena_free(comm->arena, board->heard);
	free(board);
}
