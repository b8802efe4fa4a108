/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * Mailboxes and lines, inside.
 *
 * Each end of a line exports an inbox, tow/line/NUMBER/INDEX: a place that probes are written
 * to, and its ring; and a slot, the same name with "!".  NUMBER is its mailbox's, by chance, and
 * INDEX is never used twice.  A mailbox with a name exports a door by it, to be read: which of its
 * ends nobody has.  door.c begins lines, line.c carries what they say.
 *
 * A message is the mailbox's, for the program to receive, or a port's: an edge's, say, of which
 * many have one line between two processes.  Ports take what comes at once, and bound by
 * themselves what that may be, so that none keeps others waiting.
 *
 * Everything is called with the pump's lock, but for what says otherwise.
 */
#ifndef TOW_LINE_INSIDE_H
#define TOW_LINE_INSIDE_H

#include <sys/queue.h>

#include <towline/mailbox.h>

#include "../alloc/arena.h"
#include "../tensor/worker.h"
#include "pump.h"
#include "wire.h"

/* An inbox. */
#define TOWI_PROBE_AT		0U
#define TOWI_RING_AT		64U
/* Memory of an end that nobody reaches: its slot's number, a probe, what is read elsewhere. */
#define TOWI_ARRIVED_AT		0U
#define TOWI_ZERO_AT		8U
#define TOWI_READ_AT		64U
#define TOWI_DESK_BYTES		512U

#define TOWI_LINE_NAME_BYTES	64U

_Static_assert(TOWI_MESSAGE_MAX == TOW_MESSAGE_MAX, "as programs are told");

/* What a mailbox shows of itself to whoever knows its name. */
struct towi_door {
	uint64_t magic;
	uint32_t version;
	uint32_t units;			/* of messages, in each of its ends */
	uint64_t number;
	uint32_t spares[TOW_BACKLOG_MAX];	/* their index; 0: none */
};

_Static_assert(TOWI_READ_AT + sizeof(struct towi_door) <= TOWI_DESK_BYTES, "it is read there");

/* A line's first record. */
struct towi_hello {
	uint64_t magic;
	uint32_t version;
	uint32_t units;
	uint64_t number;
	uint32_t index;
	uint32_t name_bytes;
	uint8_t incarnation[TOW_INCARNATION_BYTES];
	char name[TOW_MAILBOX_NAME_MAX];
};

_Static_assert((sizeof(struct towi_record) + sizeof(struct towi_hello)) / TOWI_UNIT <
	       TOWI_HELLO_UNITS, "a ring has room for it");

/* A message that is kept by the line until there is room for it. */
struct towi_note {
	STAILQ_ENTRY(towi_note) next;
	uint32_t port, generation;	/* of the other end's, that is told */
	uint8_t tag;
	uint16_t bytes;			/* 0: there is nothing but the tag */
	unsigned char data[];
};

/* A message's tag that says so; others are the ports' own. */
#define TOWI_PORT_BYE	0U

struct towi_port {
	LIST_ENTRY(towi_port) on_line;
	TAILQ_ENTRY(towi_port) starving;
	struct tow_mailbox *box;
	struct tow_line *line;		/* NULL: of none so far, or none any more */
	uint32_t number, generation;
	uint32_t other, other_generation;	/* the other end's; 0: not known */
	struct towi_note *bye;		/* for when it is closed */
	bool starved;			/* it found no room */
	/* A message has come, on its line, or if it is of none on any; @data is gone when this returns. */
	void (*came)(struct towi_port *port, struct tow_line *line,
		     const struct towi_record *record, const void *data);
	/* There is room again. */
	void (*room)(struct towi_port *port);
	/* It is of none: will it be of that one?  NULL: no. */
	bool (*expects)(struct towi_port *port, const struct tow_line *line);
	/* Its line has ended, or the other end's port (-ESTALE): it is of none any more. */
	void (*ended)(struct towi_port *port, int error);
};

/* NULL: it is free. */
struct towi_port_place {
	struct towi_port *port;
};

LIST_HEAD(towi_ports, towi_port);
TAILQ_HEAD(towi_starving, towi_port);

/* What is known of a line that others had begun, and that is forgotten. */
struct towi_ended {
	uint64_t number;		/* of the other end, */
	uint32_t theirs;		/* and its index */
	int error;
};

/* Of so many, the last ones, a mailbox knows. */
#define TOWI_ENDED		64U

/* A function of the program's that is told of a line, or of lines to accept. */
struct towi_telling {
	struct towi_call call;
	uint32_t what;			/* that it is to be told */
	uint32_t told;			/* and was, and nobody has looked since */
	bool calling;
};

enum towi_line_state {
	TOWI_SPARE,			/* nobody has said that it has this end */
	TOWI_OPENING,			/* what it needs of the other end is looked for */
	TOWI_OPEN
};

/* How far a line that this end has begun has come. */
enum towi_door_step {
	TOWI_FIND_DOOR,
	TOWI_READ_DOOR,
	TOWI_CLAIM,
	TOWI_LOOK_WHETHER_USED
};

struct towi_write {
	struct towi_op op;		/* first */
	uint64_t batch;
};

struct tow_line {
	struct towi_runner runner;	/* first */
	struct tow_mailbox *box;
	struct tow_arena *arena;	/* which may outlive that */
	TAILQ_ENTRY(tow_line) in_box;	/* in .lines, .spares or .waiting */
	enum towi_line_state state;
	uint32_t index;
	bool begun;			/* by this end */
	bool told;			/* of its name, by whoever has it: it is there, or was */
	int error;			/* what has ended it */
	bool shown;			/* the program has it */
	bool parting;			/* it is to say BYE */
	bool looking;			/* somebody is taking what has come */
	uint32_t place;			/* of a spare: in the door */
	uint64_t found_ns;		/* when the other end was looked for, and found */
	struct towi_wire wire;
	struct towi_write writes[TOWI_WIRE_WRITES];
	/* This end. */
	char *inbox, *desk, *outbox;	/* in the arena */
	struct tow_exported *exported;
	struct tow_slot *slot;
	struct towi_wait wait;
	/* The other one. */
	char name[TOW_MAILBOX_NAME_MAX + 8];
	uint8_t incarnation[TOW_INCARNATION_BYTES];
	struct tow_peer *peer;		/* the caller's, or .own_peer */
	struct tow_peer *own_peer;
	struct tow_channel *channel;
	struct tow_remote *range, *other;	/* its inbox, its slot */
	/* Beginning it. */
	struct towi_errand errand;
	uint64_t looked_ns;		/* the errand's: .found_ns, when it is done */
	struct towi_op read;
	enum towi_door_step step;
	struct tow_remote *door;
	bool door_stale;		/* it has ended */
	struct towi_door seen;		/* as it was read */
	uint64_t number;		/* of the other end */
	uint32_t theirs;		/* its index */
	uint64_t until_us;
	uint32_t pause_us;
	_Atomic bool given_up;		/* nobody wants it any more */
	/* Is the other end there? */
	struct towi_op probe;
	struct towi_timed probed;
	bool heard;			/* of it, since it was asked last */
	/* Messages for the program, if it may have some: in a ring of .wire.ours units, as long as an inbox's. */
	char *kept;
	uint64_t kept_first, kept_last;
	uint32_t wanted;		/* units of what found no room, until it is told */
	struct towi_telling news;
	struct towi_ports ports;
	struct towi_starving starving;
	STAILQ_HEAD(, towi_note) notes;	/* that go before all else */
};

TAILQ_HEAD(towi_lines, tow_line);

struct tow_mailbox {
	struct towi_runner runner;	/* first */
	struct tow_worker *worker;
	uint64_t number;
	uint32_t units, lines_max, backlog;
	uint8_t incarnation[TOW_INCARNATION_BYTES];
	char name[TOW_MAILBOX_NAME_MAX + 1];
	bool own;			/* a worker's: all its messages are for ports */
	struct towi_door *door;		/* NULL: it has no name; what others may have written there */
	bool shown[TOW_BACKLOG_MAX];	/* the door's places that are taken */
	struct tow_exported *exported;
	uint32_t last;			/* index that was given */
	uint32_t count;			/* of all lines */
	struct towi_lines lines;	/* the program's */
	struct towi_lines spares;
	uint32_t spares_count;
	struct towi_lines waiting;	/* to be accepted, and those that are OPENING */
	struct towi_ended ended[TOWI_ENDED];	/* that were in there */
	uint32_t ended_count;		/* ever */
	struct towi_errand errand;	/* makes a spare */
	struct tow_line *made;
	struct towi_errand burial;	/* of a line that has ended: */
	struct tow_line *dead;		/* in no list, or NULL */
	bool making;			/* somebody makes spares */
	bool ending;
	int unmade;			/* why there was no spare to be had, the last time; or 0 */
	tow_mailbox_news *tell;
	void *arg;
	struct towi_telling news;
	struct towi_port_place *ports;	/* by number - 1 */
	uint32_t ports_count;
	uint32_t ports_free;		/* there is none before that */
	uint32_t generations;
};

static inline struct towi_pump *towi_box_pump(struct tow_mailbox *box)
{
	return &box->worker->pump;
}

/* ---- line.c ---- */

/*
 * An end of a line, that nobody has, in no list of @box: without the lock.  0, and it has joined
 * the pump; or as tow_mailbox_connect().
 */
int towi_line_make(struct tow_mailbox *box, struct tow_line **made);

/* Its end; without the lock.  As tow_mailbox_close(). */
int towi_line_end(struct tow_line *line);

/* The first part of that: nobody reaches it any more.  Without the lock. */
int towi_line_hide(struct tow_line *line);

/* And the last one: it is freed, or when nothing knows it any more. */
void towi_line_leave(struct tow_line *line);

/* Its memory, when nothing else knows it; or, in a child, what is the child's of it. */
void towi_line_free(struct tow_line *line);

/* The name of that end's inbox, or, with @end "!", of its slot. */
void towi_line_name(char name[TOWI_LINE_NAME_BYTES], uint64_t number, uint32_t index,
		    const char *end);

/* Where in a region @ptr is, of the arena's: 0 or -ENOSPC. */
int towi_line_place(const struct tow_line *line, const char *ptr, struct tow_region **region,
		    uint64_t *offset);

/* Memory to send from, for a ring of so many units: without the lock.  0 or a negative errno. */
int towi_line_outbox(struct tow_line *line, uint32_t units);

/* The first error counts. */
void towi_line_fail(struct tow_line *line, int error);

/* Take what has come. */
void towi_line_look(struct tow_line *line);

/* Records go out from now on. */
void towi_line_open(struct tow_line *line);

/* A message to a port of the other end's, 0: the program.  0; -EAGAIN; -ENOTCONN; its error. */
int towi_line_send(struct tow_line *line, const struct towi_record *record, const void *data,
		   uint32_t bytes);

/* What is so, of enum tow_mailbox_what. */
uint32_t towi_line_what(const struct tow_line *line);

/* ---- mailbox.c ---- */

/*
 * One of which the program knows nothing: all its lines are in .waiting, for ports.  Without the
 * lock; ended by tow_mailbox_destroy().
 */
int towi_box_make(struct tow_worker *worker, uint32_t backlog, struct tow_mailbox **mailbox);

/* The name of the one of that number. */
void towi_box_name(char name[TOWI_LINE_NAME_BYTES], uint64_t number);

/* The program's function is to be told that. */
void towi_line_tell(struct tow_line *line, uint32_t what);
void towi_box_tell(struct tow_mailbox *box);

/*
 * The program's from now on: a line by which something was said, and that may be answered, or that
 * has ended.  NULL: there is none.
 */
struct tow_line *towi_box_accept(struct tow_mailbox *box);

/*
 * Of a mailbox whose lines are for ports, and not accepted: one that has ended goes.  What it had
 * ended with, and then the lock was let go of; 0: none has.
 */
int towi_box_drop(struct tow_mailbox *box);

/* One of .waiting is in no list any more; what has ended it is still known. */
void towi_box_forget(struct tow_line *line);

/* What has ended one of others that was forgotten; 0: there was none, or long ago. */
int towi_box_ended(const struct tow_mailbox *box, uint64_t number, uint32_t theirs);

/*
 * Ports of a mailbox.  towi_port_open(): came, room and ended are filled in.  0; -ENOMEM;
 * -EMFILE: there are as many as may be.  towi_port_close(): the other end's, if it is known, is
 * told.
 */
int towi_port_open(struct tow_mailbox *box, struct towi_port *port);
void towi_port_close(struct towi_port *port);

/* It is told when @line ends; and not any more. */
void towi_port_attach(struct towi_port *port, struct tow_line *line);
void towi_port_detach(struct towi_port *port);

/* To the other end's, which is known: @note, with its data, is the line's from now on. */
void towi_port_tell(struct towi_port *port, struct towi_note *note, uint8_t tag);

/*
 * To that one of the other end's: as towi_line_send(), but -EAGAIN also if the line is not open
 * yet: it is told when there is room.
 */
int towi_port_send(struct towi_port *port, const struct towi_record *record, const void *data,
		   uint32_t bytes);

/* The port that a message is for; NULL: there is none any more. */
struct towi_port *towi_port_of(struct tow_mailbox *box, const struct towi_record *record);

/* ---- door.c ---- */

/* A line goes on that is not open. */
void towi_door_go_on(struct tow_line *line);

/* Look for @line's other end.  0 or -ENOMEM. */
int towi_door_begin(struct tow_line *line);

/* A spare's first record has come: false: it makes no sense. */
bool towi_door_hello(struct tow_line *line, const struct towi_record *record, const void *data);

/* Somebody has that spare. */
void towi_door_taken(struct tow_line *line);

/* As many spares as there are to be, from now on: without the lock.  0 or a negative errno. */
int towi_door_open(struct tow_mailbox *box);

/* A spare is missing, or may be. */
void towi_door_refill(struct tow_mailbox *box);

#endif /* TOW_LINE_INSIDE_H */
