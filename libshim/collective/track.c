// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Tracks: what is large, from one rank to another.
 *
 * The receiver gives credits, each of which says where one piece may be written; the sender uses
 * them in the order in which they came, number N by lane N % TOWI_LANES.  Each is answered once, by a
 * notification of its lane, with a piece or without: so a lane's slot says which were.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

_Static_assert(TOWI_CREDITS % TOWI_LANES == 0, "a credit's number says its lane");

static struct tow_comm *comm_of(const struct towi_track *track)
{
	return track->pair->comm;
}

/* ---- this end ------------------------------------------------------------------- */

static const char *name_of(const struct towi_track *track)
{
	return track == &track->pair->tracks[TOWI_OF_CALLS] ? "call" : "letter";
}

void towi_track_begin(struct towi_track *track, struct towi_pair *pair)
{
	uint32_t i;

	track->pair = pair;
	for (i = 0; i < TOWI_LANES; i++)
		towi_sleeper_init(&track->lanes[i].sleeper, &pair->comm->calls->runner);
}

/* 0 or a negative errno. */
static int make_lanes(struct towi_track *track)
{
	struct tow_comm *comm = comm_of(track);
	struct tow_region *region;
	char *numbers = NULL;
	uint64_t offset;
	uint32_t i;
	int ret;

	ret = track->numbers ? 0 : towi_take_memory(comm->arena, TOWI_LINE, &numbers);
	if (numbers)
		track->numbers = (uint64_t *)(void *)numbers;
	if (!ret)
		ret = tow_arena_find(comm->arena, track->numbers, &region, &offset);
	for (i = 0; !ret && i < TOWI_LANES; i++)
		ret = tow_slot_create(region, offset + i * sizeof(uint64_t),
				      towi_pair_name(comm, name_of(track), i, comm->rank,
						     track->pair->rank).text,
				      &track->lanes[i].slot);
	return ret;
}

void towi_track_hide(struct towi_track *track)
{
	uint32_t i;

	for (i = 0; i < TOWI_LANES; i++) {
		tow_slot_destroy(track->lanes[i].slot);
		track->lanes[i].slot = NULL;
	}
}

void towi_track_release(struct towi_track *track)
{
	struct towi_lane *lane;

	for (lane = track->lanes; lane != track->lanes + TOWI_LANES; lane++) {
		tow_remote_release(lane->there);
		tow_channel_put(lane->channel);
		lane->there = NULL;
		lane->channel = NULL;
	}
}

/* Credits that were answered, ever. */
static uint64_t landed(const struct towi_track *track)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; track->made && i < TOWI_LANES; i++)
		sum += tow_slot_value(track->lanes[i].slot);
	return sum;
}

void towi_track_look(struct towi_track *track)
{
	track->seen = landed(track);
}

bool towi_track_arm(struct towi_track *track)
{
	struct towi_lane *lane;
	uint64_t number;

	for (number = track->grants_done; number != track->grants_given; number++) {
		lane = &track->lanes[number % TOWI_LANES];
		if (!towi_grant_landed(track, number))
			towi_sleep_for(&lane->sleeper, lane->slot, number / TOWI_LANES + 1);
	}
	/* What had landed was looked at, and is not wanted yet. */
	return landed(track) == track->seen;
}

/* ---- the other end -------------------------------------------------------------- */

static int find(struct towi_errand *errand)
{
	struct towi_track *track = TOWI_OUTER(errand, struct towi_track, finds);
	struct tow_comm *comm = comm_of(track);
	const struct towi_member *member = &comm->members[track->pair->rank];
	uint32_t i;
	int ret = 0;

	for (i = 0; !ret && i < TOWI_LANES; i++) {
		ret = tow_channel_get(comm->pump.queue, member->peer, i % member->channel->qps,
				      &track->lanes[i].channel);
		if (!ret)
			ret = tow_resolve(member->peer,
					  towi_pair_name(comm, name_of(track), i, member->rank,
							 comm->rank).text,
					  TOW_RIGHT_NOTIFY, 0, &track->lanes[i].there);
	}
	return ret;
}

static void found(struct towi_errand *errand, int ret)
{
	struct towi_track *track = TOWI_OUTER(errand, struct towi_track, finds);

	track->finding = false;
	track->found = !ret;
	track->pair->views.viewer.peer = comm_of(track)->members[track->pair->rank].peer;
	if (ret)
		towi_pair_not_found(track->pair, ret);
}

bool towi_track_found(struct towi_track *track)
{
	struct tow_comm *comm = comm_of(track);
	struct towi_member *member = &comm->members[track->pair->rank];

	if (track->found || track->finding)
		return track->found;
	if (!towi_member_found(member)) {
		if (member->error)
			towi_pair_not_found(track->pair, member->error);
		return false;
	}
	track->finds = (struct towi_errand){ .runner = &comm->calls->runner,
					     .run = find, .done = found };
	track->finding = !towi_pump_errand(&track->finds);
	if (!track->finding)
		towi_comm_fail(comm, -ENOMEM, comm->rank);
	return false;
}

/* ---- credits of this end's -------------------------------------------------------- */

bool towi_track_grant(struct towi_track *track, const struct towi_credit *credit, int slot)
{
	struct tow_comm *comm = comm_of(track);
	bool calls = track == &track->pair->tracks[TOWI_OF_CALLS];
	int ret = track->made ? 0 : make_lanes(track);

	track->made = !ret;
	if (ret) {
		towi_comm_fail(comm, ret, comm->rank);
		return false;
	}
	*towi_grant_at(track, track->grants_given++) = (struct towi_grant){
		.call = credit->call,
		.bytes = credit->bytes,
		.slot = slot,
	};
	towi_pair_tell(track->pair, calls ? TOWI_TAG_CREDIT : TOWI_TAG_LETTER_CREDIT, UINT64_MAX,
		       credit, sizeof(*credit));
	return true;
}

bool towi_grant_of(struct towi_track *track, uint64_t call, uint64_t *number)
{
	const struct towi_grant *grant;
	uint64_t i;

	for (i = track->grants_done; i != track->grants_given; i++) {
		grant = towi_grant_at(track, i);
		if (grant->call == call && !grant->done) {
			*number = i;
			return true;
		}
	}
	return false;
}

static struct towi_slots *pool_of(const struct towi_track *track)
{
	return &comm_of(track)->calls->pools[track - track->pair->tracks];
}

void towi_grant_end(struct towi_track *track, uint64_t number)
{
	struct towi_grant *grant = towi_grant_at(track, number);

	towi_slots_give(pool_of(track), grant->slot);
	grant->done = true;
	while (track->grants_done != track->grants_given &&
	       towi_grant_at(track, track->grants_done)->done)
		track->grants_done++;
}

/* ---- credits of the other end's ---------------------------------------------------- */

void towi_track_take(struct towi_track *track, const struct towi_credit *credit)
{
	if (track->credits_come - track->credits_used == TOWI_CREDITS)
		towi_comm_fail(comm_of(track), -EPROTO, track->pair->rank);
	else
		track->credits[track->credits_come++ % TOWI_CREDITS] = *credit;
}

struct towi_sent *towi_sent_take(struct tow_work *work)
{
	struct towi_sent *first = STAILQ_FIRST(&work->open);

	if (!first || !first->ended)
		return NULL;
	STAILQ_REMOVE_HEAD(&work->open, next);
	return first;
}

static void end_sents(struct tow_work *work)
{
	struct towi_sent *sent;

	while ((sent = towi_sent_take(work)))
		free(sent);
}

static void sent_ended(struct towi_op *op, int status)
{
	struct towi_sent *sent = (struct towi_sent *)op;
	struct tow_work *work = sent->work;

	towi_slots_give(&sent->pair->comm->calls->stage, sent->slot);
	if (sent->view)
		sent->view->busy--;
	sent->ended = true;
	if (status)
		towi_pair_failed(sent->pair, status);
	if (work)
		end_sents(work);
	else
		free(sent);
}

/* An entry, and what is known of it until it ends; NULL: not now. */
static struct towi_sent *new_sent(struct towi_pair *pair, struct tow_sqe **sqe)
{
	struct towi_calls *calls = pair->comm->calls;
	struct towi_sent *sent = calloc(1, sizeof(*sent));

	if (!sent) {
		towi_comm_fail(pair->comm, -ENOMEM, pair->comm->rank);
		return NULL;
	}
	*sqe = towi_comm_entry(&calls->runner);
	if (!*sqe) {
		free(sent);
		return NULL;
	}
	sent->op = (struct towi_op){ .ended = sent_ended, .runner = &calls->runner };
	sent->pair = pair;
	sent->slot = -1;
	return sent;
}

/* Its place, if it is known: NULL: it is looked for, or the communicator has failed. */
static struct towi_view *view_of(struct towi_pair *pair, const struct towi_credit *credit)
{
	struct towi_view *view = NULL;
	int ret = towi_view(&pair->views, &credit->place, credit->bytes, TOW_RIGHT_WRITE, &view);

	if (ret && ret != -EAGAIN)
		towi_pair_failed(pair, ret);
	return ret ? NULL : view;
}

/* What is in no region is sent from a slot. */
static void stage(struct towi_sent *sent, const struct towi_answer *answer, uint64_t bytes)
{
	struct towi_calls *calls = sent->pair->comm->calls;

	sent->slot = towi_slots_take(&calls->stage);
	memcpy(towi_slot_at(&calls->stage, sent->slot), answer->array->at + answer->offset, bytes);
	calls->stats.staged_bytes += bytes;
}

static void prep(struct tow_sqe *sqe, const struct towi_sent *sent, const struct towi_lane *lane,
		 const struct towi_answer *answer, const struct towi_credit *credit)
{
	const struct tow_comm *comm = sent->pair->comm;
	const struct towi_slots *slots = &comm->calls->stage;
	const struct towi_array *array = answer->array;
	bool staged = sent->slot >= 0;

	tow_prep_write_notify(sqe, lane->channel, staged ? slots->region : array->region,
			      staged ? slots->offset + (uint64_t)sent->slot * TOWI_SLOT_BYTES :
				       array->offset + answer->offset,
			      sent->view->remote, credit->place.offset, credit->bytes, lane->there);
	if (staged)
		tow_sqe_set_flags(sqe, comm->pump.copied_flag);
}

static bool answer_with(struct towi_track *track, const struct towi_answer *answer,
			const struct towi_credit *credit, const struct towi_lane *lane)
{
	struct towi_calls *calls = comm_of(track)->calls;
	struct towi_view *view = view_of(track->pair, credit);
	struct towi_sent *sent;
	struct tow_sqe *sqe;

	if (!view || (!answer->array->region && towi_slots_full(&calls->stage)))
		return false;
	sent = new_sent(track->pair, &sqe);
	if (!sent)
		return false;
	if (!answer->array->region)
		stage(sent, answer, credit->bytes);
	sent->work = answer->work;
	sent->round = answer->round;
	sent->view = view;
	view->busy++;
	prep(sqe, sent, lane, answer, credit);
	towi_pump_begun(sqe, &sent->op);
	STAILQ_INSERT_TAIL(&answer->work->open, sent, next);
	calls->stats.sent_bytes += credit->bytes;
	return true;
}

static bool answer_without(struct towi_track *track, const struct towi_lane *lane)
{
	struct tow_sqe *sqe;
	struct towi_sent *sent = new_sent(track->pair, &sqe);

	if (!sent)
		return false;
	tow_prep_notify(sqe, lane->channel, lane->there);
	towi_pump_begun(sqe, &sent->op);
	return true;
}

bool towi_track_answer(struct towi_track *track, const struct towi_answer *answer)
{
	const struct towi_credit *credit = towi_track_credit(track);
	const struct towi_lane *lane = &track->lanes[track->credits_used % TOWI_LANES];
	bool done;

	if (!credit || !towi_track_found(track))
		return false;
	done = answer ? answer_with(track, answer, credit, lane) : answer_without(track, lane);
	track->credits_used += done;
	return done;
}
