/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * What all kinds of edges have in common, inside.
 *
 * A receiver exports a range, NAME: a header that says what it is, and room for the sender's
 * header; and a slot.  The sender takes the slot, which the kernel gives to one at a time, reads
 * the one header, and writes the other: the slot's first notification says that it is there.
 * Before that it sees to a line between the two processes (way.c), which tells both ends when the
 * other one has gone.
 *
 * Of most kinds letters are messages on that line.  Of a static edge they are tensors in the range,
 * behind the headers, and each of them is one more notification of the slot.  Large ones go by several
 * queue pairs, a part by each, and the slot is as wide: whatever notifies it does so on each lane.  Of
 * a rendezvous, where tensors are large or not, those that are have a slot of their own.
 *
 * Everything is called with the pump's lock, but for what says otherwise.
 */
#ifndef TOW_EDGE_INSIDE_H
#define TOW_EDGE_INSIDE_H

#include "../pump/line.h"
#include "../pump/windows.h"
#include "worker.h"

/*
 * A receiver's memory that outlives it: struct towi_kept, then its range.  The number of
 * NAME/arrived is there, too, so that whoever takes it over knows what had come.
 */
struct towi_kept {
	uint64_t magic;
	uint64_t number;	/* the slot's */
	uint64_t before;	/* steps that had come before that was 0 */
	uint64_t next;		/* what that is becoming, while it does */
	uint64_t consumed;
};

/* Where the range begins behind that. */
#define TOWI_KEPT_BYTES		512U

/* Where things are in a range: lines of the cache of their own. */
#define TOWI_HEADER_AT		0U
#define TOWI_HELLO_AT		256U
/* Both headers as in the range, in the memory that nobody reaches. */
#define TOWI_SCRATCH_AT		512U

/* Notifications of a receiver before the first letter's. */
#define TOWI_HELLO		1U
/* Where letters begin in a range; one of static edges that ends there has them apart, in */
#define TOWI_LETTERS_AT		512U
#define TOWI_APART		"/tensors"
/* How much there is of the memory that nobody reaches. */
#define TOWI_OWN_BYTES		1024U
#define TOWI_LINE		64U

/* What an end says of itself. */
struct towi_header {
	uint64_t magic;
	uint32_t version;
	uint32_t kind;
	uint32_t slots;		/* letters in its range */
	uint32_t line;		/* of a sender's mailbox: this end of it */
	uint64_t stride;	/* of one */
	uint64_t bytes;		/* of a static edge's tensor */
	struct tow_tensor_type type;
	uint64_t before;	/* steps that had come, and that were read, before this */
	uint64_t consumed;
	uint64_t box;		/* the number of its worker's mailbox, */
	uint32_t port, generation;	/* and its port there */
};

_Static_assert(sizeof(struct towi_header) <= TOWI_HELLO_AT, "each has its place");
_Static_assert(TOWI_HELLO_AT + sizeof(struct towi_header) <= TOWI_LETTERS_AT, "and letters");
_Static_assert(TOWI_SCRATCH_AT + 2 * TOWI_HELLO_AT <= TOWI_OWN_BYTES, "and in the scratch");

enum towi_kind_number { TOWI_STATIC = 1, TOWI_DYNAMIC = 2, TOWI_RENDEZVOUS = 4 };

struct towi_kind {
	enum towi_kind_number number;	/* in headers */
	const char *slot;	/* what its name ends with, of this end's; */
	const char *other;	/* and of the other end's that this one notifies; or NULL */
	const char *large;	/* the same for what is large, as wide as there are lanes; or NULL */
	/* Does the other end fit this one?  0; -EPROTO: it cannot be; or what differs. */
	int (*compare)(const struct tow_edge *edge, const struct towi_header *header);
	/* The receiver had steps before; NULL: it has none. */
	void (*resume)(struct tow_edge *edge, const struct towi_header *header);
	/* Begin what may begin; or NULL. */
	void (*go_on)(struct tow_edge *edge);
	/* A message has come, and makes sense: true; or NULL: none does. */
	bool (*came)(struct tow_edge *edge, const struct towi_record *record, const void *data);
	/* The other end has gone, and what had come before that counts: take it; or NULL. */
	void (*take)(struct tow_edge *edge);
	/* As the public functions, but begins nothing; NULL: -EINVAL, or 0. */
	int (*show)(struct tow_edge *edge, void **data, uint64_t *step);
	bool shows_memory;	/* only, and needs no lock for that */
	/* What is shown is a want of memory: try again.  False: it is not.  NULL. */
	bool (*retry)(struct tow_edge *edge);
	int (*arm)(struct tow_edge *edge);
	int (*consumed)(struct tow_edge *edge);
	uint32_t (*pending)(const struct tow_edge *edge);
	/* The number of the step that is sent, or shown, next. */
	uint64_t (*next)(const struct tow_edge *edge);
	/* Has a device taken back memory that a tensor of this end's is in?  NULL: none is. */
	bool (*lost)(struct tow_edge *edge);
	/* What the other end is to be told before it is that this one has gone; or NULL. */
	void (*part)(struct tow_edge *edge);
	/* What else of this end's can be reached cannot any more; without the lock.  NULL. */
	void (*hide)(struct tow_edge *edge);
	/*
	 * Each of these may be NULL.
	 *
	 * What has not begun, and what the device did not end: it does not any more.
	 */
	void (*give_up)(struct tow_edge *edge);
	/* Its own memory.  Called without the lock. */
	void (*free)(struct tow_edge *edge);
};

/* A range's letters: the one with number n, from 0, is the (n % slots)th. */
struct towi_letters {
	uint32_t slots;
	uint64_t stride;
};

/* What messages are to an edge, besides TOWI_PORT_BYE. */
enum towi_tag {
	TOWI_TAG_STEP = 1,	/* a dynamic sender's letter */
	TOWI_TAG_ANSWER,	/* and what has become of it */
	TOWI_TAG_REQUEST,	/* rendezvous.h */
	TOWI_TAG_REPLY
};

/* How far the sender has come in tow_edge_connect(). */
enum towi_meeting {
	TOWI_NOTHING,
	TOWI_READING,		/* the receiver's header */
	TOWI_GREETING		/* with its own */
};

/* A function that is called for each step that comes. */
struct towi_step_watch {
	struct towi_call call;
	bool calling;
	tow_edge_came *came;			/* or NULL */
	void *arg;
	uint64_t told;				/* the last one that it was called for */
	int status;
};

struct tow_edge {
	struct towi_runner runner;		/* first */
	struct tow_worker *worker;
	const struct towi_kind *kind;
	bool sends;
	bool there;				/* it is made, and not closed */
	bool connecting, connected;
	_Atomic bool greeted;			/* the receiver: by a sender that fits */
	uint32_t trying;			/* errands that look for memory */
	uint64_t found_ns;			/* when the other end was found */
	_Atomic int error;			/* what has ended it */
	struct tow_peer *peer;
	struct tow_channel *channel;
	bool large;				/* what this end moves may be: it has other lanes, */
	struct tow_channel *beside[TOW_SLOT_WIDTH_MAX - 1];
	uint32_t lanes;				/* so many with that one */
	struct tow_tensor_type type;		/* of a static edge's tensors, and their size */
	uint64_t bytes;
	struct towi_letters mine, theirs;	/* without slots: there is no range */
	char *own;				/* memory that nobody reaches */
	struct tow_slot *slot;			/* that the other end notifies */
	struct tow_remote *other;		/* the slot that this end does */
	struct tow_slot *large_slot;		/* the same for what is large, if there are two */
	struct tow_remote *large_other;
	struct tow_remote *range;		/* of the other end */
	struct tow_remote *tensors_there;	/* its letters, if they are not in that */
	char *letters;				/* this end's range, or NULL */
	char *tensors;				/* its letters, in there, */
	bool apart;				/* or in a device's memory: an export of its own */
	struct tow_exported *tensors_exported;
	struct tow_region *kept_region;		/* it is the program's: whole, from 0 on */
	struct towi_kept *kept;			/* mapped */
	uint64_t before;			/* steps that came before this end did */
	struct tow_exported *exported;
	struct towi_steps *steps;		/* steps.h: a sender's that has such, or NULL */
	struct towi_wait wait;			/* for one of the slots: */
	const struct tow_slot *wait_slot;
	struct towi_op once;			/* of tow_edge_connect() */
	int once_status;
	enum towi_meeting meeting;
	int fits;				/* how the other end differs, or 0 */
	struct towi_port port;
	uint64_t their_box;			/* the other end's mailbox, */
	uint32_t their_line;			/* and, of a sender, its end of the line */
	struct towi_step_watch watch;
	char name[TOW_EDGE_NAME_MAX + 16];
	size_t name_length;
};

/* ---- meet.c ---- */

/* The edge's name with this at its end, until the next one is asked for. */
const char *towi_edge_name(struct tow_edge *edge, const char *end);

/* What this end says of itself. */
struct towi_header towi_edge_header(const struct tow_edge *edge);

/* What the other end says that it is: 0; -EPROTO: no edge of this kind; what differs. */
int towi_edge_compare(const struct tow_edge *edge, const struct towi_header *header);

/*
 * The receiver: 1: the sender has said what it is, and it fits; 0: not yet; its error.  Only
 * looks, also without the lock.
 */
int towi_edge_greets(const struct tow_edge *edge);

/* The channel of one of the lanes, from 0 on. */
static inline struct tow_channel *towi_edge_lane(const struct tow_edge *edge, uint32_t lane)
{
	return lane ? edge->beside[lane - 1] : edge->channel;
}

/* How wide is the slot that it notifies first? */
static inline uint32_t towi_edge_width(const struct tow_edge *edge)
{
	return edge->kind->large ? 1 : edge->lanes;
}

/* Which of @bytes go by one of @lanes: so many of them, from there on. */
static inline uint64_t towi_part(uint64_t bytes, uint32_t lanes, uint32_t lane, uint64_t *from)
{
	uint64_t each = bytes / lanes / TOWI_LINE * TOWI_LINE;

	*from = lane * each;
	return lane + 1 < lanes ? each : bytes - *from;
}

/* ---- way.c ---- */

/* Of the worker's mailbox: without the lock.  0; -EMFILE; -ENOMEM. */
int towi_edge_open_port(struct tow_edge *edge);

/*
 * Until the edge is on the line to the other end, which has said where it is: 0; -ETIMEDOUT;
 * -EINTR; or what has ended one of them.  Lets go of the lock meanwhile.
 */
int towi_edge_meet_line(struct tow_edge *edge, uint64_t until);

/* A message to the other end's port: as towi_port_send(); the edge goes on when there is room. */
int towi_edge_tell(struct tow_edge *edge, enum towi_tag tag, const void *data, uint32_t bytes);

/* The same, of no more than 64 KiB, of an edge that is closed: there may be no room. */
void towi_edge_tell_last(struct tow_edge *edge, enum towi_tag tag, const void *data,
			 uint16_t bytes);

/* ---- memory.c ---- */

/* Memory, maybe a slot, and a range; without the lock.  0 or a negative errno. */
int towi_edge_memory(struct tow_edge *edge);

/* ---- edge.c ---- */

static inline struct tow_edge *towi_edge_of(const struct towi_op *op)
{
	return (struct tow_edge *)op->runner;
}

/* The first error counts; the edge goes on. */
void towi_edge_fail(struct tow_edge *edge, int error);

/* Which region @ptr is in, as towi_place(). */
int towi_edge_place(const struct tow_edge *edge, const void *ptr, struct tow_region **region,
		    uint64_t *offset);

/* May this process touch what is at @ptr?  Not where that only stands for a device's memory. */
bool towi_edge_touches(const struct tow_edge *edge, const void *ptr);

/* Is it in a device's memory that was taken back?  NULL is not. */
bool towi_edge_lost(const struct tow_edge *edge, const void *ptr);

/*
 * @bytes of @data in a region, which others can reach: as they are (NULL is stored), or as
 * a copy, which is counted, and freed with tow_arena_free(); with @clone a copy in any case.  0;
 * -EINVAL: only a part of it is in a region; -EOPNOTSUPP: it cannot be copied; or another
 * negative errno.
 */
int towi_edge_stage(struct tow_edge *edge, const void *data, uint64_t bytes, bool clone,
		    void **copied);

/* An operation that does nothing when it has ended but to fail the edge if it did. */
void towi_edge_op_ended(struct towi_op *op, int status);
void towi_edge_op(struct tow_edge *edge, struct towi_op *op);

/* Go on when the slot's number is @number; it may be by now.  0 or -EOVERFLOW. */
int towi_edge_wait_for(struct tow_edge *edge, uint64_t number);
/* The same of @slot, when those that it waited for before have come. */
int towi_edge_wait_at(struct tow_edge *edge, const struct tow_slot *slot, uint64_t number);

/* If the step that is shown next is, and nobody was told of it, somebody is. */
void towi_edge_watch_on(struct tow_edge *edge);

/* Where letter @number of this end's is, and in the other end's range, or what is apart of it. */
char *towi_letter(const struct tow_edge *edge, uint64_t number);
uint64_t towi_letter_at(const struct tow_edge *edge, uint64_t number);

/*
 * The rest of @edge, of which the kind has filled in kind, sends, large, type, bytes and mine; all
 * else is 0.  Called without the lock.  0, or a negative errno, and it is
 * gone.
 */
int towi_edge_make(struct tow_edge *edge, struct tow_worker *worker, struct tow_peer *peer,
		   const char *name, struct tow_edge **made);

/* Is it what public functions must be given?  0, -EINVAL; -EPERM: in a child. */
int towi_edge_may_be(const struct tow_worker *worker, const struct tow_peer *peer,
		      const char *name, struct tow_edge **edge);

/* 0; -EPROTOTYPE: elements are of another type; -EMSGSIZE: the shape is another one. */
int towi_type_compare(const struct tow_tensor_type *a, const struct tow_tensor_type *b);

/* ---- static.c ---- */

/* How many steps of a static sender's the receiver has done with. */
uint64_t towi_static_read(const struct tow_edge *edge);

#endif /* TOW_EDGE_INSIDE_H */
