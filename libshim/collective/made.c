// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Calls of collectives that are made once: the steps of a joint, by its own memory and ways.
 *
 * Who is written to, and when: what a rank sends in a call has a place of its own at the other end,
 * which has used what was there when it begins the next call.  So a send asks for nothing but that the
 * other end has begun this one.
 *
 *	AllReduce, barrier	that is known: this rank has ended the call before, so all have used what
 *				went into it; and what is only stored was made of what is there
 *	others			the other end says so, once a call, by a slot of its own ("ready")
 */
#include <errno.h>

#include "made.h"

/* ---- messages ---------------------------------------------------------------------------- */

/* Of the messages of a call, how many go by that lane. */
static uint64_t share_of(const struct towi_progress *all, uint64_t lane)
{
	return (all->messages - lane + TOWI_LANES - 1) / TOWI_LANES;
}

struct tow_slot *towi_path_slot(const struct towi_path *path, uint64_t message, uint64_t *number)
{
	uint32_t lane = towi_lane_of(&path->comes, message);

	*number = (path->collective->begun - 1) * share_of(&path->comes, lane) +
		  message / TOWI_LANES + 1;
	return path->lanes[lane].slot;
}

bool towi_path_is_ready(const struct towi_path *path)
{
	return !path->ready.slot || tow_slot_value(path->ready.slot) >= path->collective->begun;
}

static void path_failed(const struct towi_path *path, int status)
{
	struct tow_comm *comm = path->collective->joint.work.comm;

	/* It may have said why. */
	towi_board_look(comm);
	/* One that could not be begun says nothing of others. */
	if (status != -ECANCELED)
		towi_comm_fail(comm, status, status == -ENODEV ? comm->rank : path->rank);
}

/* ---- sending ------------------------------------------------------------------------------ */

uint8_t towi_path_prep(const struct towi_path *path, const struct towi_step *step,
		       uint64_t message, struct tow_sqe *sqe)
{
	const struct tow_collective *collective = path->collective;
	const struct towi_joint *joint = &collective->joint;
	const struct towi_made_lane *lane = &path->lanes[towi_lane_of(&path->goes, message)];
	struct towi_span span = towi_joint_span(joint, step->left, step);
	bool copied = (span.array == &joint->in && collective->in_given) ||
		      (span.array == &joint->out && collective->out_given);

	if (!step->count) {
		tow_prep_notify(sqe, lane->channel, lane->there);
		return 0;
	}
	tow_prep_write_notify(sqe, lane->channel, span.array->region,
			      span.array->offset + span.offset,
			      step->stored ? path->out : path->scratch,
			      step->stored ? step->at * joint->element : path->gone.scratch,
			      span.bytes, lane->there);
	return copied ? joint->work.comm->pump.copied_flag : 0;
}

void towi_made_sents_end(struct tow_collective *collective)
{
	struct towi_sent *sent;

	while ((sent = towi_sent_take(&collective->joint.work))) {
		/* Those of chains are the chains'. */
		if (sent->work)
			STAILQ_INSERT_HEAD(&collective->free_sents, sent, next);
		else
			TOWI_OUTER(sent, struct towi_relay, sent)->open = false;
	}
}

static void sent_ended(struct towi_op *op, int status)
{
	struct towi_made_sent *made = (struct towi_made_sent *)op;

	made->sent.ended = true;
	if (status)
		path_failed(made->path, status);
	towi_made_sents_end(made->path->collective);
}

static void told(struct towi_op *op, int status)
{
	if (status)
		path_failed(TOWI_OUTER(op, struct towi_path, tells), status);
}

void towi_path_init(struct towi_path *path, struct tow_collective *collective, uint32_t rank)
{
	uint32_t i;

	path->collective = collective;
	path->rank = rank;
	path->tells = (struct towi_op){ .ended = told, .runner = &collective->runner };
	for (i = 0; i < TOWI_LANES; i++)
		towi_sleeper_init(&path->lanes[i].sleeper, &collective->runner);
	towi_sleeper_init(&path->ready.sleeper, &collective->runner);
}

bool towi_made_send(struct towi_joint *joint)
{
	struct tow_collective *collective = towi_collective_of(joint);
	const struct towi_step *step = &joint->sends.step;
	struct towi_path *path = collective->path[step->peer];
	const struct towi_made_lane *lane = &path->lanes[towi_lane_of(&path->goes,
								      path->gone.messages)];
	uint64_t bytes = step->count * joint->element;
	struct towi_sent *sent;
	struct tow_sqe *sqe;

	/* In their order: what was left to the kernel goes first. */
	if (STAILQ_EMPTY(&collective->free_sents) || !towi_path_is_ready(path) ||
	    (lane->relay && lane->relay->entries))
		return false;
	sqe = towi_comm_entry(&collective->runner);
	if (!sqe)
		return false;
	/* That may have let go of the lock, and others have been added. */
	sent = STAILQ_FIRST(&collective->free_sents);
	tow_sqe_set_flags(sqe, towi_path_prep(path, step, path->gone.messages, sqe));
	STAILQ_REMOVE_HEAD(&collective->free_sents, next);
	sent->round = step->round;
	sent->ended = false;
	((struct towi_made_sent *)sent)->path = path;
	STAILQ_INSERT_TAIL(&joint->work.open, sent, next);
	towi_pump_begun(sqe, &sent->op);
	towi_progressed(&path->gone, bytes, step->stored);
	collective->stats.sent_bytes += bytes;
	return true;
}

static bool tell(struct towi_path *path)
{
	struct tow_sqe *sqe;

	if (path->told || !path->ready.there)
		return false;
	sqe = towi_comm_entry(&path->collective->runner);
	if (!sqe)
		return false;
	tow_prep_notify(sqe, path->ready.channel, path->ready.there);
	towi_pump_begun(sqe, &path->tells);
	path->told = true;
	return true;
}

/* ---- what comes ----------------------------------------------------------------------------- */

static bool has_come(const struct towi_path *path, uint64_t message)
{
	uint64_t number;
	const struct tow_slot *slot = towi_path_slot(path, message, &number);

	return tow_slot_value(slot) >= number;
}

bool towi_made_come(struct towi_joint *joint, char **received)
{
	struct tow_collective *collective = towi_collective_of(joint);
	const struct towi_step *step = &joint->writes.step;
	struct towi_path *path = collective->path[step->peer];

	if (!has_come(path, path->come.messages))
		return false;
	*received = NULL;
	if (!towi_is_stored(step) && step->count)
		*received = collective->scratch.at + path->scratch_at + path->come.scratch;
	towi_progressed(&path->come, step->count * joint->element, towi_is_stored(step));
	return true;
}

/* ---- sleeping --------------------------------------------------------------------------------- */

/* What the first send that is left waits for comes in a round before that. */
static uint64_t wanted_round(const struct towi_joint *joint)
{
	return joint->sends.more ? joint->sends.step.after : UINT64_MAX;
}

/*
 * Of what comes next, up to the first message that this process has to do something with: the last one
 * that is not there.  False: all are.
 */
static bool last_missing(const struct tow_collective *collective, struct towi_path **path,
			 uint64_t *message)
{
	const struct towi_joint *joint = &collective->joint;
	struct towi_cursor cursor = joint->writes;
	struct towi_path *each;
	bool any = false, more = true;
	uint64_t number;

	STAILQ_FOREACH(each, &collective->paths, next)
		each->ahead = each->come.messages;
	for (; more && cursor.more && cursor.step.what == TOWI_STEP_RECEIVE;
	     towi_cursor_advance(&cursor)) {
		each = collective->path[cursor.step.peer];
		number = each->ahead++;
		if (!has_come(each, number)) {
			*path = each;
			*message = number;
			any = true;
		}
		more = towi_is_stored(&cursor.step) && cursor.step.round + 1 < wanted_round(joint);
	}
	return any;
}

static bool sleeps_for_others(struct tow_collective *collective)
{
	struct towi_joint *joint = &collective->joint;
	struct towi_path *path = NULL;
	const struct tow_slot *slot;
	uint64_t message, number;

	/* Or for what it has sent. */
	if (!joint->writes.more || towi_joint_sent(joint) < joint->writes.step.after)
		return true;
	if (!last_missing(collective, &path, &message))
		return false;
	slot = towi_path_slot(path, message, &number);
	return towi_sleep_for(&path->lanes[towi_lane_of(&path->comes, message)].sleeper, slot,
			      number);
}

bool towi_made_arm(struct towi_joint *joint)
{
	struct tow_collective *collective = towi_collective_of(joint);
	struct towi_path *path;

	if (joint->work.status)
		return true;
	towi_relays_begin(collective);
	path = joint->sends.more ? collective->path[joint->sends.step.peer] : NULL;
	if (path && !towi_path_is_ready(path) &&
	    !towi_sleep_for(&path->ready.sleeper, path->ready.slot, collective->begun))
		return false;
	return sleeps_for_others(collective);
}

/* ---- a call --------------------------------------------------------------------------------- */

bool towi_made_tell(struct towi_joint *joint)
{
	struct towi_path *path;
	bool any = false;

	STAILQ_FOREACH(path, &towi_collective_of(joint)->paths, next)
		any |= tell(path);
	return any;
}

bool towi_made_told(struct towi_joint *joint)
{
	const struct towi_path *path;

	STAILQ_FOREACH(path, &towi_collective_of(joint)->paths, next)
		if (path->ready.there && !path->told)
			return false;
	return true;
}

static void late(struct tow_work *work)
{
	struct tow_collective *collective = towi_collective_of((struct towi_joint *)work);

	towi_call_late(work, collective->places, 2 * collective->begun);
}

static const struct towi_work_ops made_ops = {
	.waits_for = towi_call_waits_for,
	.gone = towi_call_gone,
	.late = late,
};

void towi_made_init(struct tow_collective *collective)
{
	struct towi_made_sent *sent;

	STAILQ_INIT(&collective->free_sents);
	STAILQ_INIT(&collective->paths);
	collective->joint.made = true;
	collective->joint.work.ops = &made_ops;
	collective->joint.work.ended = true;
	for (sent = collective->sents; sent != collective->sents + TOWI_MADE_SENTS; sent++) {
		sent->sent.op = (struct towi_op){ .ended = sent_ended,
						  .runner = &collective->runner };
		sent->sent.work = &collective->joint.work;
		STAILQ_INSERT_TAIL(&collective->free_sents, &sent->sent, next);
	}
}

void towi_made_stop(struct towi_joint *joint)
{
	struct tow_comm *comm = joint->work.comm;

	/* Who finds this rank's end of it gone is to know why. */
	if ((towi_board_go_on(comm) && !towi_members_are_sought(comm)) ||
	    !towi_left_us(comm->tell_until))
		towi_relays_stop(towi_collective_of(joint));
}

void towi_made_begin(struct tow_collective *collective)
{
	struct towi_path *path;

	STAILQ_FOREACH(path, &collective->paths, next) {
		path->come = path->gone = (struct towi_progress){ 0 };
		path->told = false;
	}
	towi_call_begin_made(&collective->joint);
}
