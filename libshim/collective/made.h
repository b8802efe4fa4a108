/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * Collectives that are made once for their arrays, inside.
 *
 * One is a joint (calls.h) with memory and ways of its own: where a call of any arrays needs a credit for
 * what is large, here all is known before.  Of what another rank sends in a call, each message has its
 * place, in this rank's result, if it is only stored there, or else in its scratch; and it goes by
 * message N % lanes, each of which is a slot that counts and a queue pair.  Both ends have gone
 * through the schedule, so no message has a header.
 */
#ifndef TOW_MADE_H
#define TOW_MADE_H

#include "calls.h"

/* What is on its way of one, at most. */
#define TOWI_MADE_SENTS	32U

struct towi_path;
struct towi_relay;

struct towi_made_sent {
	struct towi_sent sent;		/* first */
	struct towi_path *path;
};

struct towi_made_lane {
	struct tow_slot *slot;		/* of this end, */
	struct towi_op sleeper;
	struct tow_remote *there;	/* and the other one's */
	struct tow_channel *channel;
	struct towi_relay *relay;	/* what the kernel passes on by it; NULL: it never has */
};

/* Messages that have been, in a call. */
struct towi_progress {
	uint64_t messages;
	uint64_t scratch;		/* bytes of those that scratch has places for */
};

/* This rank and another one. */
struct towi_path {
	STAILQ_ENTRY(towi_path) next;
	struct tow_collective *collective;
	uint32_t rank;
	uint32_t index;			/* among the collective's */
	/* In a call, in all: from it and to it. */
	struct towi_progress comes, goes;
	bool stores;			/* some of what goes is only stored there */
	/* In this call. */
	struct towi_progress come, gone;
	bool told;			/* the other end knows that this rank has begun */
	uint64_t scratch_at;		/* where in scratch its part begins */
	struct tow_exported *shown;	/* that part */
	struct tow_remote *scratch, *out;	/* the other end's, */
	struct towi_made_lane lanes[TOWI_LANES];
	/* How often the other end has begun, as it says; and where that is said to it. */
	struct towi_made_lane ready;
	struct towi_op tells;
	uint64_t ahead;			/* while it is looked what will come */
};

struct tow_collective {
	struct towi_runner runner;	/* first */
	struct towi_joint joint;
	struct tow_collective_attr attr;
	uint64_t number;		/* in names */
	uint32_t place;			/* on this rank's board, */
	uint64_t *places;		/* and on those of others */
	bool placed;
	struct towi_array scratch, numbers;
	char *in_given, *out_given;	/* the caller's, if they are copied: in no region */
	struct tow_exported *shown;	/* the result */
	uint64_t begun;			/* starts */
	struct tow_collective_stats stats;
	struct towi_made_sent sents[TOWI_MADE_SENTS];
	STAILQ_HEAD(, towi_sent) free_sents;
	STAILQ_HEAD(, towi_path) paths;
	uint32_t paths_count;
	struct towi_path *path[];	/* by rank, or NULL */
};

static inline struct tow_collective *towi_collective_of(struct towi_joint *joint)
{
	return TOWI_OUTER(joint, struct tow_collective, joint);
}

/* ---- made_ways.c: memory and ways ---- */

/* Whom it has to do with, and how much: 0 or -ENOMEM. */
int towi_made_count(struct tow_collective *collective);

/* What others find: 0 or a negative errno. */
int towi_made_show(struct tow_collective *collective);

/* What others have made, by @until: 0 or a negative errno, and whose it is.  Without the lock. */
int towi_made_find(struct tow_collective *collective, uint64_t until, uint32_t *blamed);

/* Nobody reaches this rank any more, nor it others; and what is known of them, at last. */
void towi_made_free_paths(struct tow_collective *collective);
void towi_made_hide(struct tow_collective *collective);

/* ---- relay.c: what the kernel passes on by itself ---- */

/* Messages of a chain, at most. */
#define TOWI_RELAY_MAX	16U

struct towi_relay_step {
	struct towi_op op;		/* first */
	struct towi_relay *relay;
};

struct towi_relay {
	struct towi_path *path;		/* to whom it is sent, */
	uint32_t from;			/* and whose messages it is */
	uint32_t entries;		/* of the chain that is on its way; 0: none is, */
	bool open;			/* but it may be among what was sent, still */
	uint32_t failed;		/* of them, */
	uint32_t first;			/* from this one on; */
	uint32_t culprit;		/* this one says why, */
	int status;			/* by its status */
	struct towi_sent sent;		/* of the first message */
	struct towi_relay_step step[2 * TOWI_RELAY_MAX];
};

/* Before the process sleeps: what only goes through it when it comes is left to the kernel. */
void towi_relays_begin(struct tow_collective *collective);

/* The communicator has failed, and others know why: what still waits in the kernel ends. */
void towi_relays_stop(struct tow_collective *collective);

/* ---- made.c: a call ---- */

/* How many lanes there are for so many messages. */
static inline uint32_t towi_lanes(const struct towi_progress *all)
{
	return all->messages < TOWI_LANES ? (uint32_t)all->messages : TOWI_LANES;
}

static inline uint32_t towi_lane_of(const struct towi_progress *all, uint64_t message)
{
	return (uint32_t)(message % towi_lanes(all));
}

static inline void towi_progressed(struct towi_progress *progress, uint64_t bytes, bool stored)
{
	progress->messages++;
	progress->scratch += stored ? 0 : bytes;
}

/* The slot by which that message of this call comes, and its number then. */
struct tow_slot *towi_path_slot(const struct towi_path *path, uint64_t message, uint64_t *number);

/* The entry that sends it, as that message of this call: flags that it is to have. */
uint8_t towi_path_prep(const struct towi_path *path, const struct towi_step *step,
		       uint64_t message, struct tow_sqe *sqe);

/* Sends that have ended are known no longer, as far as all before them have. */
void towi_made_sents_end(struct tow_collective *collective);

/* The other end has begun the call; or it follows from what this rank knows. */
bool towi_path_is_ready(const struct towi_path *path);

void towi_path_init(struct towi_path *path, struct tow_collective *collective, uint32_t rank);

/* Nothing has begun. */
void towi_made_init(struct tow_collective *collective);

/* A call begins.  With the lock. */
void towi_made_begin(struct tow_collective *collective);

#endif /* TOW_MADE_H */
