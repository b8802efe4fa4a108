// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Quarrels: ranks that make different calls in the same place.
 *
 * All that is sent for a call has its mark, which is made of what all ranks have to ask for alike.
 * Whoever sees another mark than its own stands still with that call, and tells rank 0 both; rank 0
 * knows its own, and says to all others who differs from it.  Then the call ends, and with it
 * what was sent for it.  Where ranks wait for each other, as each takes another one for the sender,
 * nothing is sent: so who has waited for a while tells its mark to the one that it waits for.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

/* Something that was said before its call began here. */
struct towi_quarrels {
	struct towi_quarrels *next;
	enum towi_tag tag;
	uint64_t call;
	uint32_t rank;			/* of a mark */
	union {
		struct towi_mark mark;
		struct towi_dispute dispute;
		struct towi_verdict verdict;
	} said;
};

/* Until that call begins.  NULL: the communicator has failed. */
static struct towi_quarrels *keep(struct tow_comm *comm, enum towi_tag tag, uint64_t call)
{
	struct towi_quarrels *kept = calloc(1, sizeof(*kept));

	if (!kept) {
		towi_comm_fail(comm, -ENOMEM, comm->rank);
		return NULL;
	}
	kept->tag = tag;
	kept->call = call;
	kept->next = comm->calls->quarrels;
	comm->calls->quarrels = kept;
	comm->calls->quarrels_count++;
	return kept;
}

bool towi_quarrels_full(const struct tow_comm *comm)
{
	return comm->calls->quarrels_count >= 2 * TOWI_CALLS_OPEN * comm->ranks;
}

void towi_quarrels_free(struct tow_comm *comm)
{
	struct towi_quarrels *first;

	while ((first = comm->calls->quarrels)) {
		comm->calls->quarrels = first->next;
		free(first);
	}
}

/* ---- rank 0 ----------------------------------------------------------------------- */

static uint64_t mark_of(const struct tow_comm *comm, uint64_t call)
{
	return comm->calls->marks[call % TOWI_CALLS_KNOWN];
}

static void tell_all(struct tow_comm *comm, const struct towi_verdict *verdict)
{
	struct towi_pair *pair;
	uint32_t rank;

	for (rank = 1; rank < comm->ranks; rank++) {
		pair = towi_pair_of(comm, rank);
		if (pair)
			towi_pair_tell(pair, TOWI_TAG_VERDICT, verdict->call, verdict,
				       sizeof(*verdict));
	}
	towi_quarrel_end(comm, verdict);
}

/* Was it judged?  Then all have been told, or will be. */
static bool is_judged(struct towi_calls *calls, uint64_t call)
{
	uint64_t *word = &calls->judged[call % TOWI_CALLS_KNOWN / 64];
	uint64_t bit = 1ULL << call % 64;
	bool judged = *word & bit;

	*word |= bit;
	return judged;
}

void towi_quarrel_hear(struct tow_comm *comm, const struct towi_dispute *dispute)
{
	struct towi_verdict verdict = { .call = dispute->call, .blamed = TOW_NO_RANK };
	struct towi_quarrels *kept;
	uint32_t i;

	if (dispute->call >= comm->calls->made) {
		kept = keep(comm, TOWI_TAG_DISPUTE, dispute->call);
		if (kept)
			kept->said.dispute = *dispute;
		return;
	}
	for (i = 0; i < 2; i++)
		if (dispute->marks[i] != mark_of(comm, dispute->call) &&
		    dispute->ranks[i] < verdict.blamed)
			verdict.blamed = dispute->ranks[i];
	if (dispute->call + TOWI_CALLS_KNOWN < comm->calls->made || verdict.blamed == TOW_NO_RANK)
		towi_comm_fail(comm, -EPROTO, dispute->ranks[1]);
	else if (!is_judged(comm->calls, dispute->call))
		tell_all(comm, &verdict);
}

/* ---- all ranks -------------------------------------------------------------------- */

void towi_quarrel_end(struct tow_comm *comm, const struct towi_verdict *verdict)
{
	struct towi_joint *joint = towi_call_of(comm, verdict->call);
	struct towi_quarrels *kept;

	if (verdict->call >= comm->calls->made) {
		kept = keep(comm, TOWI_TAG_VERDICT, verdict->call);
		if (kept)
			kept->said.verdict = *verdict;
	} else if (joint) {
		towi_call_fail(joint, -EPROTO, verdict->blamed);
	}
}

static void dispute(struct tow_comm *comm, uint64_t call, uint64_t mark, uint32_t rank)
{
	const struct towi_dispute said = {
		.call = call,
		.marks = { mark_of(comm, call), mark },
		.ranks = { comm->rank, rank },
	};
	struct towi_joint *joint = towi_call_of(comm, call);
	struct towi_pair *pair;

	/* Once is enough. */
	if (joint && (joint->disputed || joint->work.status))
		return;
	if (joint)
		joint->disputed = true;
	if (!comm->rank) {
		towi_quarrel_hear(comm, &said);
		return;
	}
	pair = towi_pair_of(comm, 0);
	if (pair)
		towi_pair_tell(pair, TOWI_TAG_DISPUTE, call, &said, sizeof(said));
}

void towi_quarrel_check(struct tow_comm *comm, uint64_t call, uint64_t mark, uint32_t rank)
{
	/* One that has not begun is looked at when it does. */
	if (call >= comm->calls->made)
		return;
	if (call + TOWI_CALLS_KNOWN < comm->calls->made)
		towi_comm_fail(comm, -EPROTO, rank);
	else if (mark != mark_of(comm, call))
		dispute(comm, call, mark, rank);
}

void towi_quarrel_hear_mark(struct tow_comm *comm, const struct towi_mark *mark, uint32_t rank)
{
	struct towi_quarrels *kept;

	if (mark->call < comm->calls->made) {
		towi_quarrel_check(comm, mark->call, mark->mark, rank);
		return;
	}
	kept = keep(comm, TOWI_TAG_MARK, mark->call);
	if (!kept)
		return;
	kept->said.mark = *mark;
	kept->rank = rank;
}

static void check_pair(struct towi_pair *pair, uint64_t call)
{
	const struct towi_track *track = &pair->tracks[TOWI_OF_CALLS];
	const struct towi_early *early;
	const struct towi_credit *credit;
	uint64_t i;

	STAILQ_FOREACH(early, &pair->early, next)
		if (early->head.call == call)
			towi_quarrel_check(pair->comm, call, early->head.mark, pair->rank);
	for (i = track->credits_used; i != track->credits_come; i++) {
		credit = &track->credits[i % TOWI_CREDITS];
		if (credit->call == call)
			towi_quarrel_check(pair->comm, call, credit->mark, pair->rank);
	}
}

/* What was said of it before; not in the list any more.  NULL: nothing else. */
static struct towi_quarrels *take_kept(struct tow_comm *comm, uint64_t call)
{
	struct towi_quarrels **link, *kept;

	for (link = &comm->calls->quarrels; (kept = *link); link = &kept->next) {
		if (kept->call == call) {
			*link = kept->next;
			comm->calls->quarrels_count--;
			return kept;
		}
	}
	return NULL;
}

void towi_quarrel_begun(struct towi_joint *joint)
{
	struct tow_comm *comm = joint->work.comm;
	struct towi_quarrels *kept;
	struct towi_pair *pair;

	comm->calls->judged[joint->number % TOWI_CALLS_KNOWN / 64] &=
		~(1ULL << joint->number % 64);
	while ((kept = take_kept(comm, joint->number))) {
		if (kept->tag == TOWI_TAG_VERDICT)
			towi_quarrel_end(comm, &kept->said.verdict);
		else if (kept->tag == TOWI_TAG_DISPUTE)
			towi_quarrel_hear(comm, &kept->said.dispute);
		else
			towi_quarrel_hear_mark(comm, &kept->said.mark, kept->rank);
		free(kept);
	}
	TAILQ_FOREACH(pair, &comm->calls->pairs, next)
		check_pair(pair, joint->number);
}
