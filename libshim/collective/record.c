// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Records: what a pair says by its wire, several in one write, and messages that travel in them.
 *
 * They are taken as they come, whoever they are for: none waits for another one's call.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

/* Of a record, what is of the message. */
#define PART_BYTES	(TOWI_MESSAGE_MAX - sizeof(struct towi_part))
_Static_assert(sizeof(struct towi_part) == sizeof(struct towi_letter_head), "as many units");

static struct towi_calls *calls_of(const struct towi_pair *pair)
{
	return pair->comm->calls;
}

/* ---- what goes out ----------------------------------------------------------------- */

static void has_to_say(struct towi_pair *pair, uint64_t call)
{
	if (call < pair->unsaid)
		pair->unsaid = call;
}

static bool put(struct towi_pair *pair, uint8_t tag, const void *data, uint32_t bytes)
{
	const struct towi_record record = { .kind = TOWI_MESSAGE, .tag = tag };

	return !towi_wire_put(&pair->wire, &record, data, bytes);
}

void towi_pair_tell(struct towi_pair *pair, enum towi_tag tag, uint64_t call, const void *data,
		    uint16_t bytes)
{
	struct towi_later *later;

	has_to_say(pair, call);
	if (pair->over || (STAILQ_EMPTY(&pair->later) && put(pair, tag, data, bytes)))
		return;
	later = malloc(sizeof(*later) + bytes);
	if (!later) {
		towi_comm_fail(pair->comm, -ENOMEM, pair->comm->rank);
		return;
	}
	later->tag = tag;
	later->bytes = bytes;
	memcpy(later->data, data, bytes);
	STAILQ_INSERT_TAIL(&pair->later, later, next);
}

static void tell_later(struct towi_pair *pair)
{
	struct towi_later *later;

	while ((later = STAILQ_FIRST(&pair->later)) &&
	       put(pair, later->tag, later->data, later->bytes)) {
		STAILQ_REMOVE_HEAD(&pair->later, next);
		free(later);
	}
}

static uint32_t least(uint32_t one, uint32_t other)
{
	return one < other ? one : other;
}

/* All parts of a message, of which an empty one has one. */
static uint32_t units_of(uint32_t bytes)
{
	uint32_t whole = bytes / PART_BYTES, rest = bytes % PART_BYTES;

	return whole * towi_units(TOWI_MESSAGE_MAX) +
	       (rest || !whole ? towi_units(rest + (uint32_t)sizeof(struct towi_part)) : 0);
}

/* The first call that may not be over at the other end, of those that were sent for. */
static uint64_t first_open(const struct towi_pair *pair, uint64_t call)
{
	if (pair->sent_call <= pair->theirs_ended)
		return call;
	return pair->sent_first > pair->theirs_ended ? pair->sent_first : pair->theirs_ended;
}

/* @at is where the head, which each part has, says where that is. */
static void put_parts(struct towi_pair *pair, uint8_t tag, const void *head, uint32_t *at,
		      const char *data, uint32_t all)
{
	char part[TOWI_MESSAGE_MAX];
	uint32_t bytes;

	do {
		bytes = least(all - *at, PART_BYTES);
		memcpy(part, head, sizeof(struct towi_part));
		if (bytes)
			memcpy(part + sizeof(struct towi_part), data + *at, bytes);
		put(pair, tag, part, (uint32_t)sizeof(struct towi_part) + bytes);
		*at += bytes;
	} while (*at < all);
}

static bool has_room(const struct towi_pair *pair, uint32_t bytes)
{
	return STAILQ_EMPTY(&pair->later) && towi_wire_units(&pair->wire) >= units_of(bytes);
}

bool towi_pair_send(struct towi_pair *pair, const struct towi_part *head, const char *data)
{
	uint64_t first = first_open(pair, head->call);
	struct towi_part part = *head;

	/* The other end has memory for so many. */
	if (head->call >= first + TOWI_CALLS_OPEN || !has_room(pair, head->bytes))
		return false;
	pair->sent_first = first;
	if (pair->sent_call <= head->call)
		pair->sent_call = head->call + 1;
	has_to_say(pair, head->call);
	put_parts(pair, TOWI_TAG_MESSAGE, &part, &part.at, data, head->bytes);
	return true;
}

bool towi_pair_send_letter(struct towi_pair *pair, const struct towi_letter_head *head,
			   const char *data)
{
	struct towi_letter_head part = *head;

	if (!has_room(pair, (uint32_t)head->bytes))
		return false;
	put_parts(pair, TOWI_TAG_LETTER, &part, &part.at, data, (uint32_t)head->bytes);
	return true;
}

static struct towi_record_write *free_write(struct towi_pair *pair)
{
	uint32_t i;

	for (i = 0; i < TOWI_WIRE_WRITES; i++)
		if (!pair->writes[i].op.busy)
			return &pair->writes[i];
	return NULL;
}

static bool write_batches(struct towi_pair *pair)
{
	struct towi_calls *calls = calls_of(pair);
	uint64_t at = pair->comm->rank * towi_inbox_bytes(calls), offset, bytes, outbox;
	struct towi_record_write *write;
	struct tow_region *region;
	struct tow_sqe *sqe;
	bool any = false;

	if (towi_wire_written(&pair->wire) || !towi_pair_found(pair) ||
	    tow_arena_find(pair->comm->arena, pair->outbox, &region, &outbox))
		return false;
	while (!towi_wire_written(&pair->wire) && (write = free_write(pair)) &&
	       towi_pump_room(&calls->runner, 1)) {
		write->batch = pair->wire.next;
		if (!towi_wire_batch(&pair->wire, &offset, &bytes))
			break;
		sqe = towi_pump_entry(&calls->runner);
		tow_prep_write_notify(sqe, pair->comm->members[pair->rank].channel, region,
				      outbox + offset, pair->inbox, at + offset, bytes,
				      pair->there);
		towi_pump_begun(sqe, &write->op);
		any = true;
	}
	return any;
}

/* The other end keeps messages of no more than so many calls that may not be over here. */
static void tell_ended(struct towi_pair *pair, uint64_t ended)
{
	if (pair->heard_call <= pair->told_ended || ended < pair->told_ended + TOWI_CALLS_OPEN / 2)
		return;
	pair->told_ended = ended;
	towi_pair_tell(pair, TOWI_TAG_ENDED, UINT64_MAX, &ended, sizeof(ended));
}

bool towi_pairs_go_on(struct tow_comm *comm)
{
	uint64_t ended = towi_calls_ended(comm);
	struct towi_pair *pair;
	bool any = false;

	TAILQ_FOREACH(pair, &comm->calls->pairs, next) {
		if (pair->over)
			continue;
		tell_later(pair);
		tell_ended(pair, ended);
		towi_wire_credit(&pair->wire);
		any |= write_batches(pair);
		if (towi_wire_written(&pair->wire) && STAILQ_EMPTY(&pair->later))
			pair->unsaid = UINT64_MAX;
	}
	return any;
}

bool towi_pairs_said(const struct tow_comm *comm, uint64_t call)
{
	const struct towi_pair *pair;

	TAILQ_FOREACH(pair, &comm->calls->pairs, next)
		if (!pair->over && pair->unsaid <= call)
			return false;
	return true;
}

/* A credit of a call that was made here is answered, also when that has ended. */
static bool owes_answer(const struct towi_pair *pair)
{
	const struct towi_credit *credit = towi_track_credit(&pair->tracks[TOWI_OF_CALLS]);

	return credit && credit->call < pair->comm->calls->made;
}

static bool is_idle(const struct towi_pair *pair)
{
	return pair->over || (towi_wire_idle(&pair->wire) && STAILQ_EMPTY(&pair->later) &&
			      !owes_answer(pair));
}

bool towi_pairs_idle(const struct tow_comm *comm)
{
	const struct towi_pair *pair;

	TAILQ_FOREACH(pair, &comm->calls->pairs, next)
		if (!is_idle(pair))
			return false;
	/* Answers, too, have arrived. */
	return !comm->calls->runner.busy;
}

bool towi_pairs_found(struct tow_comm *comm)
{
	struct towi_pair *pair;
	bool all = true;

	TAILQ_FOREACH(pair, &comm->calls->pairs, next)
		all &= towi_member_found(&comm->members[pair->rank]) ||
		       comm->members[pair->rank].error;
	return all;
}

/* ---- what comes -------------------------------------------------------------------- */

/* What the other end says makes no sense. */
static void nonsense(struct towi_pair *pair)
{
	towi_comm_fail(pair->comm, -EPROTO, pair->rank);
}

/* The message of that call of which a part is missing. */
static struct towi_early *unfinished(struct towi_pair *pair, uint64_t call)
{
	struct towi_early *early;

	STAILQ_FOREACH(early, &pair->early, next)
		if (early->head.call == call && early->head.at < early->head.bytes)
			return early;
	return NULL;
}

/* Of an empty one, too, something is kept. */
static uint64_t weight_of(uint32_t bytes)
{
	return (uint64_t)bytes + TOWI_UNIT;
}

/* A call has no more messages of one rank than that: pieces, or steps of a ring. */
static uint64_t early_most(const struct towi_calls *calls)
{
	uint64_t messages = TOWI_EARLY_PIECES + 2ULL * calls->comm->ranks;

	return TOWI_CALLS_OPEN * messages * weight_of(calls->eager_bytes);
}

static struct towi_early *new_early(struct towi_pair *pair, const struct towi_part *head)
{
	struct towi_early *early = NULL;

	if (head->bytes > calls_of(pair)->eager_bytes ||
	    pair->early_bytes + weight_of(head->bytes) > early_most(calls_of(pair))) {
		nonsense(pair);
		return NULL;
	}
	if (!posix_memalign((void **)&early, TOWI_LINE, sizeof(*early) + head->bytes)) {
		early->head = *head;
		STAILQ_INSERT_TAIL(&pair->early, early, next);
		pair->early_bytes += weight_of(head->bytes);
	} else {
		early = NULL;
		towi_comm_fail(pair->comm, -ENOMEM, pair->comm->rank);
	}
	return early;
}

/* Does anybody here want what comes for that call, now or later? */
static bool is_wanted(const struct tow_comm *comm, uint64_t call)
{
	const struct towi_joint *joint;

	if (call >= comm->calls->made)
		return true;
	joint = towi_call_of(comm, call);
	return joint && !joint->work.status;
}

static void take_part(struct towi_pair *pair, const char *data, uint32_t bytes)
{
	struct tow_comm *comm = pair->comm;
	struct towi_early *early;
	struct towi_part head;

	memcpy(&head, data, sizeof(head));
	bytes -= (uint32_t)sizeof(head);
	if (pair->heard_call <= head.call)
		pair->heard_call = head.call + 1;
	if (!head.at)
		towi_quarrel_check(comm, head.call, head.mark, pair->rank);
	if (comm->error || !is_wanted(comm, head.call))
		return;
	early = head.at ? unfinished(pair, head.call) : new_early(pair, &head);
	if (comm->error)
		return;
	if (!early || early->head.at != head.at || bytes > early->head.bytes - head.at) {
		nonsense(pair);
		return;
	}
	if (bytes)
		memcpy(early->data + head.at, data + sizeof(head), bytes);
	early->head.at += bytes;
}

static void take_credit(struct towi_pair *pair, enum towi_track_of track, const char *data)
{
	struct towi_credit credit;

	memcpy(&credit, data, sizeof(credit));
	towi_track_take(&pair->tracks[track], &credit);
	if (track == TOWI_OF_CALLS)
		towi_quarrel_check(pair->comm, credit.call, credit.mark, pair->rank);
}

static void take_ended(struct towi_pair *pair, const char *data)
{
	uint64_t ended;

	memcpy(&ended, data, sizeof(ended));
	if (ended > pair->theirs_ended)
		pair->theirs_ended = ended;
}

static void take_mark(struct towi_pair *pair, const char *data)
{
	struct towi_mark mark;

	memcpy(&mark, data, sizeof(mark));
	if (towi_quarrels_full(pair->comm))
		nonsense(pair);
	else
		towi_quarrel_hear_mark(pair->comm, &mark, pair->rank);
}

/* The other end's has ended, or is to, and so will this one's: rank 0 has said, or will, how. */
static bool take_void(struct towi_pair *pair, uint64_t call)
{
	struct towi_joint *joint;

	if (call >= calls_of(pair)->made)
		return false;
	joint = towi_call_of(pair->comm, call);
	if (joint)
		joint->disputed = true;
	towi_pair_tell(pair, TOWI_TAG_HEARD, call, &call, sizeof(call));
	return true;
}

static bool take_heard(struct towi_pair *pair, uint64_t call)
{
	pair->void_heard |= call + 1 == pair->voided;
	return call + 1 == pair->voided;
}

static void take_dispute(struct towi_pair *pair, const char *data)
{
	struct tow_comm *comm = pair->comm;
	struct towi_dispute dispute;

	memcpy(&dispute, data, sizeof(dispute));
	if (comm->rank || towi_quarrels_full(comm) || dispute.ranks[0] >= comm->ranks ||
	    dispute.ranks[1] >= comm->ranks)
		nonsense(pair);
	else
		towi_quarrel_hear(comm, &dispute);
}

static void take_verdict(struct towi_pair *pair, const char *data)
{
	struct towi_verdict verdict;

	memcpy(&verdict, data, sizeof(verdict));
	if (pair->rank || towi_quarrels_full(pair->comm) || verdict.blamed >= pair->comm->ranks)
		nonsense(pair);
	else
		towi_quarrel_end(pair->comm, &verdict);
}

/* Of letters, and numbers.  False: it makes no sense. */
static bool take_other(struct towi_pair *pair, const struct towi_record *record, const char *data)
{
	struct towi_letter_head head;
	uint64_t number;

	if (record->tag == TOWI_TAG_LETTER_CREDIT && record->bytes == sizeof(struct towi_credit)) {
		take_credit(pair, TOWI_OF_LETTERS, data);
		return true;
	}
	if (record->tag == TOWI_TAG_LETTER || record->tag == TOWI_TAG_REQUEST) {
		if (record->bytes < sizeof(head))
			return false;
		memcpy(&head, data, sizeof(head));
		return record->tag == TOWI_TAG_REQUEST ? towi_letter_request(pair, &head) :
		       towi_letter_part(pair, &head, data + sizeof(head),
					record->bytes - (uint32_t)sizeof(head));
	}
	if (record->bytes != sizeof(number))
		return false;
	memcpy(&number, data, sizeof(number));
	if (record->tag == TOWI_TAG_VOID)
		return take_void(pair, number);
	if (record->tag == TOWI_TAG_HEARD)
		return take_heard(pair, number);
	if (record->tag == TOWI_TAG_TAKEN)
		return towi_letter_taken(pair, number);
	if (record->tag == TOWI_TAG_WANTED)
		return towi_letter_wanted(pair, number);
	return record->tag == TOWI_TAG_REFUSED && towi_letter_refused(pair, number);
}

static void take_record(struct towi_pair *pair, const struct towi_record *record, const char *data)
{
	if (record->tag == TOWI_TAG_MESSAGE && record->bytes >= sizeof(struct towi_part))
		take_part(pair, data, record->bytes);
	else if (record->tag == TOWI_TAG_CREDIT && record->bytes == sizeof(struct towi_credit))
		take_credit(pair, TOWI_OF_CALLS, data);
	else if (record->tag == TOWI_TAG_ENDED && record->bytes == sizeof(uint64_t))
		take_ended(pair, data);
	else if (record->tag == TOWI_TAG_MARK && record->bytes == sizeof(struct towi_mark))
		take_mark(pair, data);
	else if (record->tag == TOWI_TAG_DISPUTE && record->bytes == sizeof(struct towi_dispute))
		take_dispute(pair, data);
	else if (record->tag == TOWI_TAG_VERDICT && record->bytes == sizeof(struct towi_verdict))
		take_verdict(pair, data);
	else if (!take_other(pair, record, data))
		nonsense(pair);
}

static bool look(struct towi_pair *pair, uint64_t arrived)
{
	_Alignas(8) char data[TOWI_MESSAGE_MAX];
	struct towi_record record;
	bool any = false;
	int ret;

	while (!pair->comm->error) {
		ret = towi_wire_take(&pair->wire, arrived, &record, data);
		if (!ret)
			break;
		any = true;
		if (ret < 0) {
			nonsense(pair);
			break;
		}
		if (record.kind != TOWI_MESSAGE)
			continue;
		take_record(pair, &record, data);
		towi_wire_taken(&pair->wire, towi_units(record.bytes));
	}
	return any;
}

bool towi_pairs_look(struct tow_comm *comm)
{
	struct towi_calls *calls = comm->calls;
	struct towi_pair *pair;
	uint64_t arrived;
	uint32_t rank;
	bool any = false;

	TAILQ_FOREACH(pair, &calls->pairs, next) {
		towi_track_look(&pair->tracks[TOWI_OF_CALLS]);
		towi_track_look(&pair->tracks[TOWI_OF_LETTERS]);
	}
	for (rank = 0; calls->slots && rank < comm->ranks && !comm->error; rank++) {
		if (!calls->slots[rank])
			continue;
		arrived = tow_slot_value(calls->slots[rank]);
		pair = arrived ? towi_pair_of(comm, rank) : NULL;
		if (pair && arrived > pair->wire.batches_in)
			any |= look(pair, arrived);
	}
	return any;
}

struct towi_early *towi_pair_early(struct towi_pair *pair, uint64_t call)
{
	struct towi_early *early;

	STAILQ_FOREACH(early, &pair->early, next)
		if (early->head.call == call)
			return early->head.at == early->head.bytes ? early : NULL;
	return NULL;
}

void towi_pair_take_early(struct towi_pair *pair, struct towi_early *early)
{
	STAILQ_REMOVE(&pair->early, early, towi_early, next);
	pair->early_bytes -= weight_of(early->head.bytes);
	free(early);
}

/* ---- waiting ------------------------------------------------------------------------- */

bool towi_pairs_arm(struct tow_comm *comm)
{
	struct towi_pair *pair;
	uint32_t i;

	/* What comes is not looked at any more: what was sent ends with completions. */
	if (comm->error)
		return true;
	TAILQ_FOREACH(pair, &comm->calls->pairs, next) {
		if (!pair->over &&
		    !towi_sleep_for(&pair->sleeper, pair->slot, pair->wire.batches_in + 1))
			return false;
		for (i = 0; i < TOWI_TRACKS; i++)
			if (!towi_track_arm(&pair->tracks[i]))
				return false;
	}
	return true;
}
