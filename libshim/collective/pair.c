// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Pairs: this rank and another one, records between them, and lanes for what is large.
 *
 * Each rank has an inbox for each other one, and a slot that counts its batches, from the
 * communicator's beginning on; so whoever has something to say finds both when it does, and asks
 * nobody.  Lanes are made when the first credit is given.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

/* Of all inboxes of a rank, unless they would be too small, or larger than is of use. */
#define UNITS_ALL	16384U
#define UNITS_MIN	128U
#define UNITS_MAX	1024U
/* Of a record, what is of the message. */
#define PART_BYTES	(TOWI_MESSAGE_MAX - sizeof(struct towi_part))
_Static_assert(sizeof(struct towi_part) == sizeof(struct towi_letter_head), "as many units");
#define EAGER_MAX	(16U << 10)

static struct towi_calls *calls_of(const struct towi_pair *pair)
{
	return pair->comm->calls;
}

/* ---- names and memory -------------------------------------------------------- */

struct towi_pair_name towi_pair_name(const struct tow_comm *comm, const char *what, uint32_t index,
				     uint32_t of, uint32_t to)
{
	struct towi_pair_name name;

	snprintf(name.text, sizeof(name.text),
		 "towline/comm/%016" PRIx64 "/%s/%" PRIu32 "/%" PRIu32 "/%" PRIu32,
		 comm->numbers[of],
		 what, index, of, to);
	return name;
}

static uint64_t inbox_bytes(const struct towi_calls *calls)
{
	return (towi_ring_bytes(calls->units) + TOWI_LINE - 1) / TOWI_LINE * TOWI_LINE;
}

static void size_inboxes(struct tow_comm *comm)
{
	struct towi_calls *calls = comm->calls;
	uint32_t units = UNITS_ALL / comm->ranks;

	if (units < UNITS_MIN)
		units = UNITS_MIN;
	calls->units = units < UNITS_MAX ? units : UNITS_MAX;
	/* Several find room. */
	calls->eager_bytes = calls->units * TOWI_UNIT / 4;
	if (calls->eager_bytes > EAGER_MAX)
		calls->eager_bytes = EAGER_MAX;
}

static int make_tables(struct towi_calls *calls, uint32_t ranks)
{
	calls->slots = calloc(ranks, sizeof(struct tow_slot *));
	calls->pair = calloc(ranks, sizeof(struct towi_pair *));
	return calls->slots && calls->pair ? 0 : -ENOMEM;
}

static int make_slots(const struct tow_comm *comm)
{
	struct towi_calls *calls = comm->calls;
	uint32_t rank;
	int ret = 0;

	for (rank = 0; !ret && rank < comm->ranks; rank++)
		if (rank != comm->rank)
			ret = tow_slot_create(calls->numbers.region,
					      calls->numbers.offset + rank * sizeof(uint64_t),
					      towi_pair_name(comm, "record", 0, comm->rank,
						     rank).text,
					      &calls->slots[rank]);
	return ret;
}

int towi_pairs_make(struct tow_comm *comm)
{
	struct towi_calls *calls = comm->calls;
	int ret;

	if (comm->ranks == 1)
		return 0;
	size_inboxes(comm);
	ret = make_tables(calls, comm->ranks);
	if (!ret)
		ret = towi_array_make(comm, comm->ranks * sizeof(uint64_t), &calls->numbers);
	if (!ret)
		ret = towi_array_make(comm, comm->ranks * inbox_bytes(calls), &calls->inboxes);
	if (!ret)
		ret = make_slots(comm);
	return ret ? ret : tow_export(calls->inboxes.region, calls->inboxes.offset,
				      calls->inboxes.bytes,
				      towi_pair_name(comm, "inbox", 0, comm->rank, 0).text,
				      TOW_RIGHT_WRITE, &calls->exported);
}

void towi_pairs_hide(struct tow_comm *comm)
{
	struct towi_calls *calls = comm->calls;
	struct towi_pair *pair;
	uint32_t rank;

	tow_unexport(calls->exported);
	calls->exported = NULL;
	for (rank = 0; calls->slots && rank < comm->ranks; rank++) {
		tow_slot_destroy(calls->slots[rank]);
		calls->slots[rank] = NULL;
	}
	TAILQ_FOREACH(pair, &calls->pairs, next)
		for (rank = 0; rank < TOWI_TRACKS; rank++)
			towi_track_hide(&pair->tracks[rank]);
}

static void free_early(struct towi_pair *pair)
{
	struct towi_early *early;

	while ((early = STAILQ_FIRST(&pair->early))) {
		STAILQ_REMOVE_HEAD(&pair->early, next);
		free(early);
	}
}

static void free_later(struct towi_pair *pair)
{
	struct towi_later *later;

	while ((later = STAILQ_FIRST(&pair->later))) {
		STAILQ_REMOVE_HEAD(&pair->later, next);
		free(later);
	}
}

static void release(struct towi_pair *pair)
{
	uint32_t i;

	for (i = 0; i < TOWI_TRACKS; i++)
		towi_track_release(&pair->tracks[i]);
	tow_remote_release(pair->inbox);
	tow_remote_release(pair->there);
	pair->inbox = NULL;
	pair->there = NULL;
}

void towi_pairs_release(struct tow_comm *comm)
{
	struct towi_pair *pair;

	TAILQ_FOREACH(pair, &comm->calls->pairs, next)
		release(pair);
}

static void free_pair(struct towi_pair *pair)
{
	uint32_t i;

	free_early(pair);
	free_later(pair);
	towi_views_free(&pair->views);
	for (i = 0; i < TOWI_TRACKS; i++)
		tow_arena_free(pair->comm->arena, pair->tracks[i].numbers);
	tow_arena_free(pair->comm->arena, pair->outbox);
	free(pair);
}

void towi_pairs_free(struct tow_comm *comm)
{
	struct towi_calls *calls = comm->calls;
	struct towi_pair *pair;

	while ((pair = TAILQ_FIRST(&calls->pairs))) {
		TAILQ_REMOVE(&calls->pairs, pair, next);
		free_pair(pair);
	}
	towi_array_free(comm, &calls->inboxes);
	towi_array_free(comm, &calls->numbers);
	free(calls->slots);
	free(calls->pair);
}

/* ---- finding the other end ------------------------------------------------------ */

void towi_pair_failed(struct towi_pair *pair, int status)
{
	struct tow_comm *comm = pair->comm;

	/* It may have said why. */
	towi_board_look(comm);
	if (comm->error || pair->over)
		return;
	/* What it was told when it had left nobody needs. */
	if (towi_board_has_left(comm, pair->rank))
		pair->over = true;
	else
		towi_comm_fail(comm, status, status == -ENODEV ? comm->rank : pair->rank);
}

/*
 * There was such a name; so if there is none any more, it has ended.  Else it is this rank that
 * cannot.
 */
void towi_pair_not_found(struct towi_pair *pair, int status)
{
	if (status == -ENOENT || status == -ETIMEDOUT || status == -ESTALE)
		towi_pair_failed(pair, -ESTALE);
	else if (status == -ECONNRESET)
		towi_pair_failed(pair, status);
	else
		towi_comm_fail(pair->comm, status, pair->comm->rank);
}

/* Without the lock. */
static int find(struct towi_errand *errand)
{
	struct towi_pair *pair = TOWI_OUTER(errand, struct towi_pair, finds);
	struct tow_comm *comm = pair->comm;
	struct tow_peer *peer = comm->members[pair->rank].peer;
	int ret;

	ret = tow_resolve(peer, towi_pair_name(comm, "inbox", 0, pair->rank, 0).text, TOW_RIGHT_WRITE, 0,
			  &pair->inbox);
	return ret ? ret : tow_resolve(peer, towi_pair_name(comm, "record", 0, pair->rank,
							   comm->rank).text,
				       TOW_RIGHT_NOTIFY, 0, &pair->there);
}

static void found(struct towi_errand *errand, int ret)
{
	struct towi_pair *pair = TOWI_OUTER(errand, struct towi_pair, finds);

	pair->finding = false;
	pair->found = !ret;
	if (ret)
		towi_pair_not_found(pair, ret);
}

static bool is_found(struct towi_pair *pair)
{
	struct towi_member *member = &pair->comm->members[pair->rank];

	if (pair->found || pair->finding)
		return pair->found;
	if (!towi_member_found(member)) {
		if (member->error)
			towi_pair_not_found(pair, member->error);
		return false;
	}
	pair->finds = (struct towi_errand){ .runner = &calls_of(pair)->runner,
					    .run = find, .done = found };
	pair->finding = !towi_pump_errand(&pair->finds);
	if (!pair->finding)
		towi_comm_fail(pair->comm, -ENOMEM, pair->comm->rank);
	return false;
}

/* ---- a pair begins --------------------------------------------------------------- */

static void written(struct towi_op *op, int status)
{
	struct towi_record_write *write = (struct towi_record_write *)op;

	if (status)
		towi_pair_failed(write->pair, status);
	else
		towi_wire_ended(&write->pair->wire, write->batch);
}

static void begin_ops(struct towi_pair *pair)
{
	struct towi_runner *runner = &calls_of(pair)->runner;
	uint32_t i;

	for (i = 0; i < TOWI_WIRE_WRITES; i++) {
		pair->writes[i].op = (struct towi_op){ .ended = written, .runner = runner };
		pair->writes[i].pair = pair;
	}
	towi_sleeper_init(&pair->sleeper, runner);
	for (i = 0; i < TOWI_TRACKS; i++)
		towi_track_begin(&pair->tracks[i], pair);
}

static int make_memory(struct towi_pair *pair)
{
	struct towi_calls *calls = calls_of(pair);
	int ret = towi_take_memory(pair->comm->arena, inbox_bytes(calls), &pair->outbox);

	pair->wire.out = (unsigned char *)pair->outbox;
	pair->wire.in = (unsigned char *)calls->inboxes.at + pair->rank * inbox_bytes(calls);
	pair->wire.ours = calls->units;
	pair->wire.theirs = calls->units;
	return ret;
}

static struct towi_pair *new_pair(struct tow_comm *comm, uint32_t rank)
{
	struct towi_pair *pair = calloc(1, sizeof(*pair));
	int ret = pair ? 0 : -ENOMEM;

	if (pair) {
		pair->comm = comm;
		pair->rank = rank;
		pair->slot = comm->calls->slots[rank];
		pair->unsaid = UINT64_MAX;
		STAILQ_INIT(&pair->early);
		STAILQ_INIT(&pair->later);
		TAILQ_INIT(&pair->post.to_say);
		TAILQ_INIT(&pair->post.put);
		TAILQ_INIT(&pair->post.said);
		TAILQ_INIT(&pair->post.called);
		TAILQ_INIT(&pair->post.coming);
		pair->views.viewer = (struct towi_viewer){ .runner = &comm->calls->runner,
							   .error = &comm->error };
		begin_ops(pair);
		ret = make_memory(pair);
	}
	if (!ret)
		return pair;
	if (pair)
		free_pair(pair);
	towi_comm_fail(comm, ret, comm->rank);
	return NULL;
}

struct towi_pair *towi_pair_of(struct tow_comm *comm, uint32_t rank)
{
	struct towi_calls *calls = comm->calls;

	if (!calls->pair[rank] && !comm->error) {
		calls->pair[rank] = new_pair(comm, rank);
		if (calls->pair[rank])
			TAILQ_INSERT_TAIL(&calls->pairs, calls->pair[rank], next);
	}
	return calls->pair[rank];
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
	uint64_t at = pair->comm->rank * inbox_bytes(calls), offset, bytes, outbox;
	struct towi_record_write *write;
	struct tow_region *region;
	struct tow_sqe *sqe;
	bool any = false;

	if (towi_wire_written(&pair->wire) || !is_found(pair) ||
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
