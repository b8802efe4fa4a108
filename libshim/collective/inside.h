/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/* What communicators and collectives are made of, inside. */
#ifndef TOW_COLLECTIVE_INSIDE_H
#define TOW_COLLECTIVE_INSIDE_H

#include <stdbool.h>

#include <towline/collective.h>
#include <towline/queue.h>
#include <towline/slot.h>

#include "../core/internal.h"
#include "../pump/pump.h"
#include "reduce.h"

/* Of structures, when they were first published. */
#define TOWI_COMM_ATTR_SIZE_FIRST \
	(offsetof(struct tow_comm_attr, spin_us) + sizeof(uint32_t))
#define TOWI_COLLECTIVE_ATTR_SIZE_FIRST \
	(offsetof(struct tow_collective_attr, piece_bytes) + sizeof(uint64_t))
#define TOWI_COLLECTIVE_STATS_SIZE_FIRST \
	(offsetof(struct tow_collective_stats, copied_bytes) + sizeof(uint64_t))

/* What pieces and shards are aligned to, in bytes. */
#define TOWI_LINE	64U
/* How often others are asked whether they are there, while nothing comes. */
#define TOWI_PROBE_US	250000U

/* ---- comm.c: communicators ---- */

/* A rank, for the communicator. */
struct towi_member {
	struct towi_op op;		/* first: it is being told, or asked */
	struct tow_comm *comm;
	uint32_t rank;
	bool due;			/* is to be told what this rank says */
	bool to_ask, asked;		/* while it is found out who is late */
	/* NULL before it is found: */
	struct tow_peer *peer;
	struct tow_channel *channel;
	struct tow_remote *board;
	bool finding;
	int error;			/* why it was not */
	struct towi_errand finds;
	/* The errand's. */
	uint64_t until_us;
	struct tow_peer *seen_peer;
	struct tow_channel *seen_channel;
	struct tow_remote *seen_board;
};

struct towi_board;
struct towi_calls;

/* By what calls are done that do not say how (plan.c).  Ranks tell it each other. */
struct towi_choices {
	/* Up to so many bytes, and ranks, all send to all: two steps. */
	uint64_t direct_bytes;
	/* Up to so many, log P steps are better than pieces that follow each other. */
	uint64_t tree_bytes;
	uint64_t piece_bytes_min;
	uint32_t direct_ranks;
	uint32_t pieces;		/* that what is large is cut into */
	/* Pieces that are on their way before one comes back. */
	uint32_t window, window_gather;
};

/* With the pump's lock, all of it, once it is made. */
struct tow_comm {
	struct towi_runner runner;	/* first: of what goes to boards */
	struct towi_pump pump;
	struct tow_group *group;
	struct tow_arena *arena;
	uint32_t rank, ranks;
	uint32_t timeout_ms, spin_us;
	struct towi_choices choices;	/* rank 0's; of a split one its parent's */
	uint64_t *numbers;		/* in the names of what each rank has */
	bool leaving;
	uint64_t made;			/* collectives that were to be, ever: at all ranks alike */
	bool moved;			/* a call has done something */
	_Atomic int error;		/* it has failed */
	uint32_t blamed;
	uint64_t tell_until;		/* others are told of that */
	uint64_t probe_us;		/* when to ask whether others are there */
	struct towi_board *board;
	struct towi_member *members;	/* by rank */
	uint64_t used[TOW_COLLECTIVES_MAX / 64];
	uint32_t collectives;
	struct towi_calls *calls;
	uint32_t *places;		/* in the group, by rank */
	uint32_t *nodes;		/* the first rank on the same one, by rank */
	bool split;			/* others may not have made theirs so far */
	/* Of its own thread. */
	pthread_t drives;
	bool driven, drive_ends;
	uint32_t aborting;		/* threads that end it, and have not returned */
};

/*
 * Is it this process's?  What a child has of its parent's it leaves alone: the words and numbers
 * that others go by are in memory that it shares.
 */
static inline bool towi_comm_ours(const struct tow_comm *comm)
{
	return towi_pump_usable(&comm->pump);
}

/* A number that follows from both, and hardly from others. */
static inline uint64_t towi_mixed(uint64_t number, uint64_t with)
{
	number = (number ^ with) * 0x9e3779b97f4a7c15;
	return number ^ number >> 32;
}

/*
 * As towi_pump_entry(), of the communicator or one of its collectives; the ring is emptied first if
 * it is full.
 */
struct tow_sqe *towi_comm_entry(struct towi_runner *runner);

/* Completions, alarms, and what all collectives can do now.  True: something happened. */
bool towi_comm_progress(struct tow_comm *comm);

/*
 * Until something happens, or @until: for a while only.  Then progress is due: 0, or -EINTR:
 * whoever waits here wants to end.
 */
int towi_comm_sleep(struct tow_comm *comm, uint64_t until);

/* Others know what this rank says, or a second has gone by. */
void towi_comm_tell(struct tow_comm *comm);

/* Until one of a collective's numbers is 0, or it seems never to be. */
void towi_comm_settle(struct tow_comm *comm, const uint32_t *count);

/* Sleeping until a slot is at a number. */
void towi_sleeper_init(struct towi_op *sleeper, struct towi_runner *runner);

/*
 * Of a pump's entries, those for what waits for others.  The rest is for what ends by itself: or
 * ranks with many collectives on their way would only wait for each other.
 */
static inline uint32_t towi_wait_room(const struct towi_pump *pump)
{
	uint32_t room = towi_pump_free(pump), rest = pump->in_flight_max / 4;

	return room > rest ? room - rest : 0;
}

/*
 * A completion comes when the slot is there: false: it is already.  Where there is no room who waits
 * looks now and then.
 */
bool towi_sleep_for(struct towi_op *sleeper, const struct tow_slot *slot, uint64_t number);

/* The first error counts; all others are told, soon.  Keeps the lock. */
void towi_comm_fail(struct tow_comm *comm, int error, uint32_t blamed);

/* ---- member.c: other ranks ---- */

/* Its board can be written to; if it is looked for, its runners go on when it is, or has an error. */
bool towi_member_found(struct towi_member *member);

/* Is one looked for? */
bool towi_members_are_sought(const struct tow_comm *comm);

/* That one, by @until: 0 or a negative errno.  Lets go of the lock meanwhile. */
int towi_member_find(struct towi_member *member, uint64_t until);

/* ---- board.c: what ranks write to each other when something is wrong ---- */

/* Make this rank's; 0 or a negative errno. */
int towi_board_make(struct tow_comm *comm);

/* Find that one's: 0 or a negative errno.  Without the lock. */
int towi_board_find(struct towi_member *member);

/* It has been: it is told what this rank says, if that is anything. */
void towi_board_found(struct towi_member *member);
void towi_board_free(struct tow_comm *comm);

/* Has somebody said that something is wrong?  Then the communicator fails. */
void towi_board_look(struct tow_comm *comm);

/* What is due: true: nothing is, any more, and nothing on its way. */
bool towi_board_go_on(struct tow_comm *comm);

/* Has it, and says so? */
bool towi_board_has_left(const struct tow_comm *comm, uint32_t rank);

/*
 * What a rank tells at a place of its board: of a collective, twice how often it was started, and 1 more
 * when that has ended.  Then, how many calls were; how many have ended, before the first that has not; and
 * a number that grows as long as the rank goes on.
 */
enum {
	TOWI_PLACE_OF_CALLS = TOW_COLLECTIVES_MAX,
	TOWI_PLACE_OF_ENDED,
	TOWI_PLACE_OF_TURNS,
	TOWI_PLACES
};

void towi_board_put(struct tow_comm *comm, uint32_t place, uint64_t number);

/* Are others there?  Who is not fails the communicator, soon. */
void towi_board_probe(struct tow_comm *comm);

/* All others are to be told what went wrong; or that this rank leaves. */
void towi_board_alarm(struct tow_comm *comm);
void towi_board_leave(struct tow_comm *comm);

/*
 * The first that does not answer within a second, or whose number at that place, by rank, or of calls
 * (NULL), is less than @started; or TOW_NO_RANK.
 */
uint32_t towi_board_late(struct tow_comm *comm, const uint64_t *places, uint64_t started);

/* The first that does not go on, and has not ended what it has started; or TOW_NO_RANK. */
uint32_t towi_board_standing(struct tow_comm *comm, const uint64_t *places, uint64_t started);

/* ---- asked.c: what is asked for ---- */

/* A kind that only calls have: one rank gets the reduction. */
#define TOWI_REDUCE	(TOW_BARRIER + 1U)

/* No array is larger. */
#define TOWI_BYTES_MAX	(1ULL << 46)

bool towi_is_reduction(uint32_t kind);

/* Kind and algorithm are such that it is to be asked: 0 or a negative errno. */
int towi_check_asked(const struct tow_comm *comm, const struct tow_collective_attr *attr,
		     enum towi_reduce_type *type);

/* What this rank has: it is sent from there, and not written to. */
static inline void *towi_in_of(const struct tow_collective_attr *attr)
{
	/* NOLINTNEXTLINE(performance-no-int-to-ptr): arrays are of one type */
	return (void *)(uintptr_t)attr->in;
}

/* An array of this rank's. */
struct towi_array {
	char *at;
	struct tow_region *region;	/* that it is in; or NULL */
	uint64_t offset;
	uint64_t bytes;
	uint64_t from;			/* where it begins in the whole */
	bool owned;			/* is freed with the work */
};

/* One of the caller's, and the region that it is in, if any: 0; -EOPNOTSUPP. */
int towi_take_array(const struct tow_comm *comm, void *given, uint64_t bytes,
		    struct towi_array *array);

/* Memory of the arena, zeroed: 0 or a negative errno. */
int towi_array_make(const struct tow_comm *comm, uint64_t bytes, struct towi_array *array);
void towi_array_free(const struct tow_comm *comm, struct towi_array *array);

#endif /* TOW_COLLECTIVE_INSIDE_H */
