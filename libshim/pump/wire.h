/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * What travels between the two ends of a line, and nothing else: no lock, no kernel, no memory of
 * its own.  Documentation/design/mailbox.md has the why.
 *
 * Each end has a ring, which the other end writes.  Memory is counted in units; a record, which is
 * a message or a word of the line's own, takes as many as it needs, one after the other, and begins
 * in place POSITION % ring, POSITION being all units before it.  A ring is longer than that by what
 * a record may need that begins in its last place, so none is cut.
 *
 * Records that are contiguous go out together, as a batch: one write and one notification of the
 * reader's slot.  The slot's number says how many batches are there; nothing in memory does, as a
 * write may be there in parts, and more than once, until it is over.  So the reader looks at no
 * byte of a batch before it was counted, and the first record of it says how long it is.
 *
 * A writer uses no place twice before the write that used it first has ended here, and the reader
 * has said that it is done with the message.  That it says with whatever it sends; or, when half of
 * its memory is to be told of and it has nothing to send, with a record that is not counted as a
 * message.  There are two of those at most that the other end has not seen, and room for them.
 */
#ifndef TOW_WIRE_INSIDE_H
#define TOW_WIRE_INSIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOWI_UNIT		64U
/* What a ring has room for besides messages: a HELLO, two times CREDIT, a BYE. */
#define TOWI_SPARE_UNITS	8U
/* The longest record, and a HELLO. */
#define TOWI_RECORD_UNITS	32U
#define TOWI_HELLO_UNITS	5U
/* Bytes of the longest message. */
#define TOWI_MESSAGE_MAX	2016U
/* Writes that may be on their way: who sends less than that, and looks no more, has sent it. */
#define TOWI_WIRE_WRITES		64U
/* Batches that are, and those that were composed: the ring's end cuts them twice at most. */
#define TOWI_BATCHES		(TOWI_WIRE_WRITES + 4U)

enum towi_record_kind {
	TOWI_HELLO	= 1,	/* who has begun the line: its first record */
	TOWI_CREDIT	= 2,	/* nothing but what every batch says */
	TOWI_BYE	= 3,	/* nothing follows */
	TOWI_MESSAGE	= 4
};

/* As it is in a ring, before its data.  In the byte order of all machines of a job. */
struct towi_record {
	uint64_t position;
	uint64_t taken;		/* a batch's first: units of the other way's messages, done with */
	uint32_t batch;		/* a batch's first: units of it */
	uint32_t port;		/* who is to have the message: 0: the mailbox */
	uint32_t generation;	/* of that number */
	uint16_t bytes;		/* of data */
	uint8_t kind;		/* enum towi_record_kind */
	uint8_t tag;		/* what the message is to a port */
};

_Static_assert(sizeof(struct towi_record) == 32, "as long as it is said to be");
_Static_assert((sizeof(struct towi_record) + TOWI_MESSAGE_MAX) / TOWI_UNIT == TOWI_RECORD_UNITS,
	       "the longest message is the longest record");

struct towi_batch {
	uint64_t begin, end;	/* positions */
	bool busy;		/* it is on its way */
};

struct towi_wire {
	/* To the other end. */
	unsigned char *out;	/* as its ring: a record stays here until its write has ended */
	uint32_t theirs;	/* units of messages that it has memory for */
	uint64_t composed;	/* positions: after the last record, */
	uint64_t done;		/* and after the last one whose write has ended */
	uint64_t sent, freed;	/* units of messages; and of those, what it is done with */
	struct towi_batch batches[TOWI_BATCHES];
	uint64_t first, next, last;	/* not ended, not begun, not there */
	/* From it. */
	const unsigned char *in;
	uint32_t ours;
	uint64_t position;	/* of the next record */
	uint64_t batch_end;	/* of the batch before that */
	uint64_t batches_in;	/* that were looked at */
	uint64_t came, taken;	/* units of messages; and of those, what this end is done with */
	uint64_t told;		/* and has said so */
};

/* How many a message of @bytes takes. */
static inline uint32_t towi_units(uint32_t bytes)
{
	return ((uint32_t)sizeof(struct towi_record) + bytes + TOWI_UNIT - 1) / TOWI_UNIT;
}

/* Places of a ring with memory for @units of messages, and how long it is. */
static inline uint64_t towi_places(uint32_t units)
{
	return (uint64_t)units + TOWI_SPARE_UNITS;
}

static inline uint64_t towi_ring_bytes(uint32_t units)
{
	return (towi_places(units) + TOWI_RECORD_UNITS - 1) * TOWI_UNIT;
}

/* ---- to the other end ---- */

/*
 * Compose a record: its kind, tag, port and generation are filled in.  0; -EAGAIN: a message for
 * which the other end has no room, or what was there before is on its way.
 */
int towi_wire_put(struct towi_wire *wire, const struct towi_record *record, const void *data,
		  uint32_t bytes);

/*
 * The next batch, from now on on its way: where it is in .out and in the other end's ring, in
 * bytes.  False: there is none, or too many are.  It is number wire->next - 1.
 */
bool towi_wire_batch(struct towi_wire *wire, uint64_t *offset, uint64_t *bytes);

/* Its write has ended; in any order. */
void towi_wire_ended(struct towi_wire *wire, uint64_t number);

/* Everything that was composed is on its way. */
static inline bool towi_wire_written(const struct towi_wire *wire)
{
	return wire->next == wire->last;
}

/* And has ended. */
bool towi_wire_idle(const struct towi_wire *wire);

/* Units that messages may take now, in all. */
uint64_t towi_wire_units(const struct towi_wire *wire);

/* The longest message that towi_wire_put() takes now, in units; 0: none. */
uint32_t towi_wire_room(const struct towi_wire *wire);

/* ---- from the other end ---- */

/*
 * The next record of those that @arrived notifications have told of; its data comes to @data, which
 * has room for TOWI_MESSAGE_MAX.  1; 0: there is none; -EPROTO: it makes no sense, nor does what
 * follows.
 */
int towi_wire_take(struct towi_wire *wire, uint64_t arrived, struct towi_record *record,
		   void *data);

/* A message of so many units is done with. */
void towi_wire_taken(struct towi_wire *wire, uint32_t units);

/* Says to the other end what it has room for again, if it is time to, and nothing else does. */
void towi_wire_credit(struct towi_wire *wire);

#endif /* TOW_WIRE_INSIDE_H */
