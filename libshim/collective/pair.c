// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Pairs: this rank and another one, and how they find each other.
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
		ret = towi_array_make(comm, comm->ranks * towi_inbox_bytes(calls), &calls->inboxes);
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

bool towi_pair_found(struct towi_pair *pair)
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
	int ret = towi_take_memory(pair->comm->arena, towi_inbox_bytes(calls), &pair->outbox);

	pair->wire.out = (unsigned char *)pair->outbox;
	pair->wire.in = (unsigned char *)calls->inboxes.at + pair->rank * towi_inbox_bytes(calls);
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
