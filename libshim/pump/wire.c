// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Records, batches and credits of a line: wire.h says how they travel.
 *
 * The ring that comes in is written by another process at any time, which may not mean well: each
 * record's header is copied once, and only the copy is looked at.  What is found there decides no
 * address but within the ring, and nothing goes on behind what makes no sense.
 */
#include <errno.h>
#include <string.h>

#include "wire.h"

static unsigned char *place(unsigned char *ring, uint32_t units, uint64_t position)
{
	return ring + position % towi_places(units) * TOWI_UNIT;
}

/* ---- to the other end ------------------------------------------------------- */

/* The batch that the next record joins: one that is not on its way and ends before the ring. */
static struct towi_batch *open_batch(struct towi_wire *wire)
{
	uint64_t places = towi_places(wire->theirs);
	struct towi_batch *batch = &wire->batches[(wire->last - 1) % TOWI_BATCHES];

	if (!towi_wire_written(wire) && batch->begin / places == batch->end / places)
		return batch;
	batch = &wire->batches[wire->last++ % TOWI_BATCHES];
	*batch = (struct towi_batch){ wire->composed, wire->composed, false };
	return batch;
}

uint64_t towi_wire_units(const struct towi_wire *wire)
{
	uint64_t places = towi_places(wire->theirs) - (wire->composed - wire->done);
	uint64_t messages = wire->theirs - (wire->sent - wire->freed);

	return messages < places ? messages : places;
}

int towi_wire_put(struct towi_wire *wire, const struct towi_record *record, const void *data,
		  uint32_t bytes)
{
	uint32_t units = towi_units(bytes);
	struct towi_record own = *record;
	unsigned char *at = place(wire->out, wire->theirs, wire->composed);

	if (record->kind == TOWI_MESSAGE ? units > towi_wire_units(wire) :
	    wire->composed + units - wire->done > towi_places(wire->theirs))
		return -EAGAIN;
	own.position = wire->composed;
	own.bytes = (uint16_t)bytes;
	memcpy(at, &own, sizeof(own));
	if (bytes)
		memcpy(at + sizeof(own), data, bytes);
	open_batch(wire)->end += units;
	wire->composed += units;
	if (record->kind == TOWI_MESSAGE)
		wire->sent += units;
	return 0;
}

bool towi_wire_batch(struct towi_wire *wire, uint64_t *offset, uint64_t *bytes)
{
	struct towi_batch *batch = &wire->batches[wire->next % TOWI_BATCHES];
	unsigned char *at = place(wire->out, wire->theirs, batch->begin);
	uint32_t units = (uint32_t)(batch->end - batch->begin);

	if (towi_wire_written(wire) || wire->next - wire->first >= TOWI_WIRE_WRITES)
		return false;
	memcpy(at + offsetof(struct towi_record, batch), &units, sizeof(units));
	memcpy(at + offsetof(struct towi_record, taken), &wire->taken, sizeof(wire->taken));
	wire->told = wire->taken;
	batch->busy = true;
	wire->next++;
	*offset = (uint64_t)(at - wire->out);
	*bytes = (uint64_t)units * TOWI_UNIT;
	return true;
}

void towi_wire_ended(struct towi_wire *wire, uint64_t number)
{
	wire->batches[number % TOWI_BATCHES].busy = false;
	while (wire->first != wire->next && !wire->batches[wire->first % TOWI_BATCHES].busy)
		wire->done = wire->batches[wire->first++ % TOWI_BATCHES].end;
}

bool towi_wire_idle(const struct towi_wire *wire)
{
	return wire->done == wire->composed;
}

uint32_t towi_wire_room(const struct towi_wire *wire)
{
	uint64_t units = towi_wire_units(wire);

	return units < TOWI_RECORD_UNITS ? (uint32_t)units : TOWI_RECORD_UNITS;
}

/* ---- from the other end ----------------------------------------------------- */

/* Once: what is there may be another thing the next time. */
static void copy_record(struct towi_record *record, const unsigned char *from)
{
	memcpy(record, from, sizeof(*record));
	__asm__ __volatile__("" : "+m"(*record) : : "memory");
}

/* What the first record of a batch says of all of it. */
static bool begin_batch(struct towi_wire *wire, const struct towi_record *record)
{
	if (!record->batch || record->batch > towi_places(wire->ours) + TOWI_RECORD_UNITS ||
	    record->taken < wire->freed || record->taken > wire->sent)
		return false;
	wire->freed = record->taken;
	wire->batch_end = wire->position + record->batch;
	wire->batches_in++;
	return true;
}

static bool sensible(const struct towi_wire *wire, const struct towi_record *record)
{
	return record->position == wire->position && record->bytes <= TOWI_MESSAGE_MAX &&
	       towi_units(record->bytes) <= wire->batch_end - wire->position &&
	       record->kind >= TOWI_HELLO && record->kind <= TOWI_MESSAGE &&
	       (record->kind != TOWI_HELLO || !record->position) &&
	       (record->kind != TOWI_MESSAGE || record->bytes);
}

int towi_wire_take(struct towi_wire *wire, uint64_t arrived, struct towi_record *record,
		   void *data)
{
	const unsigned char *at = wire->in + wire->position % towi_places(wire->ours) * TOWI_UNIT;
	bool first = wire->position == wire->batch_end;
	uint64_t freed = wire->freed;
	uint32_t units;

	if (first && wire->batches_in >= arrived)
		return 0;
	copy_record(record, at);
	if ((first && !begin_batch(wire, record)) || !sensible(wire, record))
		return -EPROTO;
	units = towi_units(record->bytes);
	memcpy(data, at + sizeof(*record), record->bytes);
	wire->position += units;
	/* A word that says nothing might be said for ever. */
	if (record->kind == TOWI_CREDIT && wire->freed == freed)
		return -EPROTO;
	if (record->kind != TOWI_MESSAGE)
		return 1;
	wire->came += units;
	/* More than the other end knew that there is room for. */
	return wire->came - wire->told <= wire->ours ? 1 : -EPROTO;
}

void towi_wire_taken(struct towi_wire *wire, uint32_t units)
{
	wire->taken += units;
}

void towi_wire_credit(struct towi_wire *wire)
{
	static const struct towi_record credit = { .kind = TOWI_CREDIT };

	/* What is to go out anyway says it. */
	if (towi_wire_written(wire) && wire->taken - wire->told >= wire->ours / 2)
		towi_wire_put(wire, &credit, NULL, 0);
}
