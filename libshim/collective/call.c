// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Calls: works are carried out, step by step of their schedules.
 *
 * One thread at a time goes on with all that can go on; what another one sees meanwhile it leaves
 * to that one.  So the lock is let go of for what takes long, and nothing that is looked at here
 * changes but by operations that end.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../bootstrap/inside.h"
#include "calls.h"

/* ---- credits ----------------------------------------------------------------------- */

/* The next one that needs a credit. */
static void advance_grants(struct towi_joint *joint)
{
	struct towi_cursor *cursor = &joint->grants;

	do {
		towi_cursor_advance(cursor);
	} while (cursor->more && (cursor->step.what == TOWI_STEP_LOCAL ||
				  towi_step_is_small(joint, &cursor->step)));
}

/* What is only stored comes to the array, if others can write there. */
static bool lands_there(const struct towi_joint *joint, const struct towi_step *step)
{
	return towi_is_stored(step) && joint->out_place.edge;
}

/* Where the next piece may land: false: not now. */
static bool find_place(struct towi_joint *joint, struct towi_credit *credit, int *slot)
{
	const struct towi_step *step = &joint->grants.step;
	struct towi_slots *pool = &joint->work.comm->calls->pools[TOWI_OF_CALLS];

	if (lands_there(joint, step)) {
		*slot = -1;
		credit->place = joint->out_place;
		credit->place.offset += towi_joint_span(joint, TOWI_OUT, step).offset;
		return true;
	}
	*slot = towi_slots_take(pool);
	credit->place = pool->place;
	credit->place.offset += (uint64_t)*slot * TOWI_SLOT_BYTES;
	return *slot >= 0;
}

static bool grant(struct towi_joint *joint)
{
	const struct towi_step *step = &joint->grants.step;
	struct towi_credit credit = { .call = joint->number, .mark = joint->mark,
				      .bytes = towi_step_bytes(joint, step) };
	struct towi_pair *pair = towi_pair_of(joint->work.comm, step->peer);
	int slot;

	return pair && !pair->over && towi_track_has_room(&pair->tracks[TOWI_OF_CALLS]) &&
	       find_place(joint, &credit, &slot) &&
	       towi_track_grant(&pair->tracks[TOWI_OF_CALLS], &credit, slot);
}

/* The next one behind it whose credits are not all given. */
static void grant_next(struct towi_calls *calls)
{
	do {
		calls->granting = TAILQ_NEXT(calls->granting, next);
	} while (calls->granting && !calls->granting->grants.more);
}

static bool grants(struct tow_comm *comm)
{
	struct towi_calls *calls = comm->calls;
	bool any = false;

	while (calls->granting && !comm->error) {
		if (calls->granting->grants.more) {
			if (calls->granting->disputed || !grant(calls->granting))
				break;
			advance_grants(calls->granting);
			any = true;
		} else {
			grant_next(calls);
		}
	}
	return any;
}

/* A credit that nobody uses, as its call has ended here, or is to. */
static bool is_unused(const struct tow_comm *comm, const struct towi_credit *credit)
{
	const struct towi_joint *joint = towi_call_of(comm, credit->call);

	return credit->call < comm->calls->made && (!joint || joint->work.status);
}

/* Else what is notified would be taken for the message: true: the other end knows better. */
static bool is_void(struct towi_pair *pair, uint64_t call)
{
	if (pair->voided != call + 1) {
		pair->voided = call + 1;
		pair->void_heard = false;
		towi_pair_tell(pair, TOWI_TAG_VOID, call, &call, sizeof(call));
	}
	return pair->void_heard;
}

static bool answer(struct towi_pair *pair)
{
	struct towi_track *track = &pair->tracks[TOWI_OF_CALLS];
	const struct towi_credit *credit = towi_track_credit(track);

	return !pair->over && credit && is_unused(pair->comm, credit) &&
	       is_void(pair, credit->call) && towi_track_answer(track, NULL);
}

static bool answers(struct tow_comm *comm)
{
	struct towi_pair *pair;
	bool any = false;

	TAILQ_FOREACH(pair, &comm->calls->pairs, next)
		while (!comm->error && answer(pair))
			any = true;
	return any;
}

/* ---- ends ---------------------------------------------------------------------------- */

/* Nobody may write to what its credits name any more. */
static bool all_landed(struct towi_joint *joint)
{
	struct towi_track *track;
	struct towi_pair *pair;
	uint64_t number;

	TAILQ_FOREACH(pair, &joint->work.comm->calls->pairs, next) {
		track = &pair->tracks[TOWI_OF_CALLS];
		while (towi_grant_of(track, joint->number, &number)) {
			if (!towi_grant_landed(track, number))
				return false;
			towi_grant_end(track, number);
		}
	}
	return true;
}

static void forget_early(struct towi_joint *joint)
{
	struct towi_early *early, *next;
	struct towi_pair *pair;

	TAILQ_FOREACH(pair, &joint->work.comm->calls->pairs, next)
		STAILQ_FOREACH_SAFE(early, &pair->early, next, next)
			if (early->head.call == joint->number)
				towi_pair_take_early(pair, early);
}

static void end(struct towi_joint *joint)
{
	struct tow_comm *comm = joint->work.comm;
	struct towi_calls *calls = comm->calls;

	if (calls->granting == joint)
		grant_next(calls);
	TAILQ_REMOVE(&calls->joints, joint, next);
	towi_board_put(comm, TOWI_PLACE_OF_ENDED, towi_calls_ended(comm));
	forget_early(joint);
	towi_array_free(comm, &joint->sums);
	calls->stats.calls += !joint->work.status;
	towi_work_end(&joint->work);
}

/* Of one that is a collective's. */
static bool made_ends(struct towi_joint *joint)
{
	struct tow_comm *comm = joint->work.comm;

	if (comm->error && !joint->work.status)
		towi_call_fail(joint, comm->error, comm->blamed);
	if (joint->work.status)
		towi_made_stop(joint);
	if (!STAILQ_EMPTY(&joint->work.open))
		return false;
	if (!joint->work.status &&
	    (joint->sends.more || joint->writes.more || !towi_made_told(joint)))
		return false;
	TAILQ_REMOVE(&comm->calls->made_ones, joint, next);
	towi_made_end(joint);
	towi_work_end(&joint->work);
	return true;
}

static bool ends(struct towi_joint *joint)
{
	struct tow_comm *comm = joint->work.comm;

	if (comm->error && !joint->work.status)
		towi_call_fail(joint, comm->error, comm->blamed);
	if (!STAILQ_EMPTY(&joint->work.open) ||
	    (!comm->error && !towi_pairs_said(comm, joint->number)))
		return false;
	if (joint->work.status ? !comm->error && !all_landed(joint) :
			   joint->sends.more || joint->writes.more)
		return false;
	end(joint);
	return true;
}

void towi_call_fail(struct towi_joint *joint, int status, uint32_t blamed)
{
	if (joint->work.status)
		return;
	joint->work.status = status;
	joint->work.blamed = blamed;
	joint->grants.more = false;
}

/* ---- going on ------------------------------------------------------------------------ */

static bool goes_on(struct towi_joint *joint)
{
	return !joint->work.status && !joint->disputed && towi_joint_go_on(joint);
}

/* They begin together, when all are there; what has failed ends. */
static bool is_held(const struct towi_calls *calls)
{
	return calls->held && !calls->comm->error;
}

bool towi_calls_passed(const struct tow_comm *comm)
{
	return comm->calls->going || is_held(comm->calls);
}

/* Those that are carried out: one, or NULL. */
static struct towi_joint *carried_out(struct towi_joint *joint, uint64_t behind)
{
	return joint && joint->number < behind ? joint : NULL;
}

static bool joints_go_on(struct tow_comm *comm, uint64_t behind)
{
	struct towi_joint *joint = carried_out(TAILQ_FIRST(&comm->calls->joints), behind);
	bool any = false;

	/* Another thread may begin to collect meanwhile. */
	for (; joint && !is_held(comm->calls); joint = carried_out(TAILQ_NEXT(joint, next), behind))
		any |= goes_on(joint);
	return any;
}

static bool joints_end(struct tow_comm *comm, uint64_t behind)
{
	struct towi_joint *joint = carried_out(TAILQ_FIRST(&comm->calls->joints), behind), *next;
	bool any = false;

	for (; joint; joint = next) {
		next = carried_out(TAILQ_NEXT(joint, next), behind);
		any |= ends(joint);
	}
	return any;
}

static bool made_go_on(struct tow_comm *comm)
{
	struct towi_joint *joint, *next;
	bool any = false;

	TAILQ_FOREACH(joint, &comm->calls->made_ones, next) {
		if (comm->error)
			break;
		any |= towi_made_tell(joint);
		any |= goes_on(joint);
	}
	TAILQ_FOREACH_SAFE(joint, &comm->calls->made_ones, next, next)
		any |= made_ends(joint);
	return any;
}

static bool go_once(struct tow_comm *comm)
{
	uint64_t behind = towi_calls_ended(comm) + TOWI_CALLS_OPEN;
	bool any = false;

	if (!comm->error) {
		any = towi_pairs_look(comm);
		any |= grants(comm);
		any |= joints_go_on(comm, behind);
		any |= answers(comm);
		any |= towi_letters_go_on(comm);
		any |= towi_pairs_go_on(comm);
	}
	any |= towi_letters_end(comm);
	any |= made_go_on(comm);
	return joints_end(comm, comm->error ? UINT64_MAX : behind) || any;
}

static void go_on(struct towi_runner *runner)
{
	struct towi_calls *calls = (struct towi_calls *)runner;
	bool any;

	calls->again = true;
	if (calls->going || calls->over)
		return;
	calls->going = true;
	while (calls->again && !is_held(calls)) {
		calls->again = false;
		any = go_once(calls->comm);
		/* Another thread has something to be done that this one had passed. */
		calls->again |= any;
		calls->comm->moved |= any;
	}
	calls->going = false;
	if (calls->unarmed && !is_held(calls)) {
		calls->unarmed = false;
		towi_pump_wake(&calls->comm->pump);
	}
}

/* ---- calls --------------------------------------------------------------------------- */

bool towi_calls_arm(struct tow_comm *comm)
{
	struct towi_joint *joint;

	if (comm->pump.over)
		return true;
	/* Then there is room, and nothing lets go of the lock. */
	towi_pump_submit(&comm->pump);
	/* What is there already may have to wait, and go_on() wakes whoever sleeps now. */
	if (towi_calls_passed(comm)) {
		comm->calls->unarmed = true;
		return true;
	}
	TAILQ_FOREACH(joint, &comm->calls->made_ones, next)
		if (!towi_made_arm(joint))
			return false;
	return towi_pairs_arm(comm);
}

void towi_call_begin_made(struct towi_joint *joint)
{
	towi_work_begin(&joint->work);
	towi_joint_begin(joint);
	TAILQ_INSERT_TAIL(&joint->work.comm->calls->made_ones, joint, next);
}

void towi_call_begin(struct towi_joint *joint)
{
	struct tow_comm *comm = joint->work.comm;
	struct towi_calls *calls = comm->calls;

	towi_work_begin(&joint->work);
	joint->number = calls->made++;
	calls->marks[joint->number % TOWI_CALLS_KNOWN] = joint->mark;
	towi_joint_begin(joint);
	/* Its plan is good. */
	towi_schedule_begin(&joint->grants.schedule, &joint->plan, TOWI_WRITES);
	advance_grants(joint);
	TAILQ_INSERT_TAIL(&calls->joints, joint, next);
	if (!calls->granting && joint->grants.more)
		calls->granting = joint;
	towi_board_put(comm, TOWI_PLACE_OF_CALLS, calls->made);
	towi_quarrel_begun(joint);
	towi_pump_ready(&calls->runner);
}

struct towi_joint *towi_call_of(const struct tow_comm *comm, uint64_t number)
{
	struct towi_joint *joint;

	TAILQ_FOREACH(joint, &comm->calls->joints, next)
		if (joint->number >= number)
			return joint->number == number ? joint : NULL;
	return NULL;
}

uint64_t towi_calls_ended(const struct tow_comm *comm)
{
	const struct towi_joint *first = TAILQ_FIRST(&comm->calls->joints);

	return first ? first->number : comm->calls->made;
}

uint32_t towi_call_waits_for(const struct tow_work *work)
{
	const struct towi_joint *joint = (const struct towi_joint *)work;
	const struct towi_step *step = &joint->writes.step;

	if (joint->disputed)
		return 0;
	/* It may have come, and wait for what this rank sends to others. */
	if (joint->writes.more && step->what == TOWI_STEP_RECEIVE &&
	    towi_joint_sent(joint) >= step->after)
		return step->peer;
	return joint->sends.more ? joint->sends.step.peer : TOW_NO_RANK;
}

/* It may be that the other one does something else. */
static void waits(struct tow_work *work)
{
	struct towi_joint *joint = (struct towi_joint *)work;
	const struct towi_mark mark = { joint->number, joint->mark };
	uint32_t rank = towi_call_waits_for(work);
	struct towi_pair *pair;

	if (joint->told || joint->disputed || joint->work.status || rank == TOW_NO_RANK)
		return;
	pair = towi_pair_of(work->comm, rank);
	if (!pair)
		return;
	joint->told = true;
	towi_pair_tell(pair, TOWI_TAG_MARK, mark.call, &mark, sizeof(mark));
	towi_pump_ready(&work->comm->calls->runner);
}

/* Somebody is to blame. */
void towi_call_late(struct tow_work *work, const uint64_t *places, uint64_t started)
{
	struct tow_comm *comm = work->comm;
	uint32_t blamed;

	/* Another thread is finding out. */
	if (comm->calls->asking)
		return;
	comm->calls->asking = true;
	comm->calls->late = work;
	blamed = towi_board_late(comm, places, started);
	if (blamed == TOW_NO_RANK)
		blamed = towi_board_standing(comm, places, started);
	comm->calls->asking = false;
	/* That has let go of the lock. */
	if (comm->calls->late != work || work->ended)
		return;
	if (blamed == TOW_NO_RANK)
		blamed = towi_call_waits_for(work);
	towi_comm_fail(comm, -ETIMEDOUT, blamed);
}

static void late(struct tow_work *work)
{
	towi_call_late(work, NULL, ((struct towi_joint *)work)->number + 1);
}

void towi_call_gone(struct tow_work *work, uint32_t rank)
{
	towi_comm_fail(work->comm, -ESTALE, rank);
}

const struct towi_work_ops towi_call_ops = {
	.waits_for = towi_call_waits_for,
	.waits = waits,
	.gone = towi_call_gone,
	.late = late,
	.tell = towi_plan_tell,
};

/* ---- life ---------------------------------------------------------------------------- */

static void bury(struct towi_runner *runner)
{
	struct towi_calls *calls = (struct towi_calls *)runner;
	struct tow_comm *comm = calls->comm;

	comm->calls = calls;
	towi_pairs_free(comm);
	towi_slots_free(comm, &calls->pools[TOWI_OF_CALLS]);
	towi_slots_free(comm, &calls->pools[TOWI_OF_LETTERS]);
	towi_slots_free(comm, &calls->stage);
	towi_quarrels_free(comm);
	towi_letters_free(comm);
	comm->calls = NULL;
	free(calls->order);
	free(calls->waited_us);
	free(calls);
}

static const struct towi_runner_ops ops = { .go_on = go_on, .bury = bury };

int towi_calls_make(struct tow_comm *comm)
{
	struct towi_calls *calls = calloc(1, sizeof(*calls));
	int ret;

	if (!calls)
		return -ENOMEM;
	calls->comm = comm;
	calls->runner.ops = &ops;
	calls->stats.size = sizeof(calls->stats);
	TAILQ_INIT(&calls->pairs);
	TAILQ_INIT(&calls->joints);
	TAILQ_INIT(&calls->made_ones);
	TAILQ_INIT(&calls->wanted);
	TAILQ_INIT(&calls->to_self);
	TAILQ_INIT(&calls->ending);
	TAILQ_INIT(&calls->came);
	LIST_INIT(&calls->all);
	comm->calls = calls;
	towi_pump_join(&comm->pump, &calls->runner);
	calls->waited_us = calloc(comm->ranks, sizeof(*calls->waited_us));
	if (!calls->waited_us)
		return -ENOMEM;
	ret = towi_windows_begin(&calls->windows, comm->arena, towi_group_device(comm->group),
				 TOW_RIGHT_WRITE);
	return ret ? ret : towi_pairs_make(comm);
}

int towi_calls_order(struct tow_comm *comm)
{
	comm->calls->order = calloc(comm->ranks, sizeof(*comm->calls->order));
	if (!comm->calls->order)
		return -ENOMEM;
	towi_schedule_order(comm->nodes, comm->ranks, comm->calls->order);
	return 0;
}

bool towi_calls_busy(struct tow_comm *comm)
{
	bool busy;

	towi_pump_lock(&comm->pump);
	busy = !comm->error && towi_works_open(comm, false);
	towi_pump_unlock(&comm->pump);
	return busy;
}

void towi_calls_flush(struct tow_comm *comm)
{
	uint64_t until = towi_until(comm->timeout_ms * 1000ULL);

	towi_letters_withdraw(comm);
	while (!comm->error && towi_left_us(until)) {
		towi_comm_progress(comm);
		towi_works_doubt(comm);
		if (!towi_works_open(comm, true) && towi_pairs_found(comm) && towi_pairs_idle(comm))
			break;
		towi_comm_sleep(comm, until);
	}
}

void towi_calls_end(struct tow_comm *comm)
{
	struct towi_calls *calls = comm->calls;
	bool idle;

	if (!calls)
		return;
	towi_pump_lock(&comm->pump);
	calls->over = true;
	towi_pump_unlock(&comm->pump);
	towi_pairs_hide(comm);
	towi_windows_end(&calls->windows);
	towi_pump_lock(&comm->pump);
	towi_comm_settle(comm, &calls->runner.busy);
	towi_comm_settle(comm, &calls->runner.waiting);
	towi_pairs_release(comm);
	towi_works_leave(comm);
	comm->calls = NULL;
	idle = towi_pump_leave(&calls->runner);
	towi_pump_unlock(&comm->pump);
	/* What the device did not end, it may still read. */
	if (idle)
		bury(&calls->runner);
}
