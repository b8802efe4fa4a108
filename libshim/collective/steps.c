// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Joints: the steps of their schedules are carried out, of calls and of collectives that are made once.
 *
 * What takes long is done without the lock: one thread at a time goes on with all (call.c).
 */
#include <string.h>

#include "calls.h"

/* What takes long to copy or reduce: others may have the lock meanwhile. */
#define LONG_BYTES	(16U << 10)

/* ---- where a step is ------------------------------------------------------------- */

uint64_t towi_joint_sent(const struct towi_joint *joint)
{
	const struct towi_sent *first = STAILQ_FIRST(&joint->work.open);

	if (first)
		return first->round;
	return joint->sends.more ? joint->sends.step.round : UINT64_MAX;
}

static uint64_t writes_round(const struct towi_joint *joint)
{
	return joint->writes.more ? joint->writes.step.round : UINT64_MAX;
}

/* Of one that is an array. */
static const struct towi_array *array_of(const struct towi_joint *joint,
					 enum towi_operand operand)
{
	if (operand == TOWI_WORK)
		return &joint->sums;
	return operand == TOWI_OUT ? &joint->out : &joint->in;
}

/* Where in that array. */
static uint64_t offset_of(const struct towi_joint *joint, enum towi_operand operand,
			  const struct towi_step *step)
{
	if (operand == TOWI_WORK)
		return step->work_at * joint->element;
	return step->at * joint->element - array_of(joint, operand)->from;
}

struct towi_span towi_joint_span(const struct towi_joint *joint, enum towi_operand operand,
				 const struct towi_step *step)
{
	return (struct towi_span){
		.array = array_of(joint, operand),
		.offset = offset_of(joint, operand, step),
		.bytes = towi_step_bytes(joint, step),
	};
}

static char *place_of(const struct towi_joint *joint, enum towi_operand operand,
		      const struct towi_step *step, char *received)
{
	if (operand == TOWI_RECEIVED)
		return received;
	return operand == TOWI_NOWHERE ? NULL : array_of(joint, operand)->at +
						offset_of(joint, operand, step);
}

/* ---- sending ----------------------------------------------------------------------- */

static bool send_small(struct towi_joint *joint, struct towi_pair *pair)
{
	const struct towi_step *step = &joint->sends.step;
	const struct towi_part head = { .call = joint->number, .mark = joint->mark,
					.bytes = (uint32_t)towi_step_bytes(joint, step) };
	struct tow_comm_stats *stats = &joint->work.comm->calls->stats;

	if (!towi_pair_send(pair, &head, place_of(joint, step->left, step, NULL)))
		return false;
	stats->eager_bytes += head.bytes;
	stats->sent_bytes += head.bytes;
	return true;
}

static bool send_large(struct towi_joint *joint, struct towi_pair *pair)
{
	const struct towi_step *step = &joint->sends.step;
	struct towi_track *track = &pair->tracks[TOWI_OF_CALLS];
	const struct towi_credit *credit = towi_track_credit(track);
	struct towi_answer answer = {
		.array = array_of(joint, step->left),
		.offset = offset_of(joint, step->left, step),
		.work = &joint->work,
		.round = step->round,
	};

	if (!credit || credit->call != joint->number)
		return false;
	if (credit->bytes != towi_step_bytes(joint, step)) {
		towi_comm_fail(pair->comm, -EPROTO, pair->rank);
		return false;
	}
	return towi_track_answer(track, &answer);
}

static bool send_step(struct towi_joint *joint)
{
	const struct towi_step *step = &joint->sends.step;
	struct towi_pair *pair;

	if (writes_round(joint) < step->after)
		return false;
	if (joint->made)
		return towi_made_send(joint);
	pair = towi_pair_of(joint->work.comm, step->peer);
	if (!pair)
		return false;
	if (pair->over) {
		towi_comm_fail(joint->work.comm, -ESTALE, pair->rank);
		return false;
	}
	return towi_step_is_small(joint, step) ? send_small(joint, pair) : send_large(joint, pair);
}

static bool sends(struct towi_joint *joint)
{
	bool any = false;

	while (joint->sends.more && !joint->work.comm->error && send_step(joint)) {
		towi_cursor_advance(&joint->sends);
		any = true;
	}
	return any;
}

/* ---- writing ----------------------------------------------------------------------- */

static void reduce(const struct towi_joint *joint, const struct towi_step *step, char *to,
		   const char *left, const char *right)
{
	uint32_t ranks = joint->plan.ranks;

	if (joint->reduction != TOW_AVG) {
		towi_reduce(joint->reduction, joint->type, to, left, right, step->count);
		return;
	}
	towi_avg_add(joint->type, ranks, step->left_given, step->right_given, to, left, right,
		     step->count);
	if (step->reduced)
		towi_avg_end(joint->type, ranks, to, step->count);
}

/* Of one rank alone bools are 0 or 1, too. */
static bool makes_bools(const struct towi_joint *joint)
{
	return joint->plan.ranks == 1 && joint->type == TOWI_REDUCE_BOOL && joint->reduces;
}

static void compute(const struct towi_joint *joint, const struct towi_step *step, char *received)
{
	char *to = place_of(joint, step->to, step, received);
	const char *left = place_of(joint, step->left, step, received);
	const char *right = place_of(joint, step->right, step, received);

	if (right)
		reduce(joint, step, to, left, right);
	else if (makes_bools(joint))
		towi_reduce(TOW_BOR, TOWI_REDUCE_BOOL, to, left, left, step->count);
	else if (to && left && to != left)
		memcpy(to, left, towi_step_bytes(joint, step));
}

/* Without the lock, if it takes long; what is to be sent is on its way before. */
static void carry_out(struct towi_joint *joint, char *received)
{
	const struct towi_step *step = &joint->writes.step;
	struct towi_pump *pump = &joint->work.comm->pump;

	if (towi_step_bytes(joint, step) < LONG_BYTES) {
		compute(joint, step, received);
		return;
	}
	towi_pump_submit(pump);
	towi_pump_unlock_plainly(pump);
	compute(joint, step, received);
	towi_pump_lock(pump);
}

static bool write_small(struct towi_joint *joint, struct towi_pair *pair)
{
	struct towi_early *early = towi_pair_early(pair, joint->number);

	if (!early)
		return false;
	if (early->head.bytes == towi_step_bytes(joint, &joint->writes.step))
		carry_out(joint, early->data);
	else
		towi_comm_fail(joint->work.comm, -EPROTO, pair->rank);
	towi_pair_take_early(pair, early);
	return true;
}

static bool write_large(struct towi_joint *joint, struct towi_pair *pair)
{
	struct towi_calls *calls = joint->work.comm->calls;
	struct towi_track *track = &pair->tracks[TOWI_OF_CALLS];
	uint64_t number;
	int slot;

	if (!towi_grant_of(track, joint->number, &number) || !towi_grant_landed(track, number))
		return false;
	slot = towi_grant_at(track, number)->slot;
	if (slot >= 0) {
		if (towi_is_stored(&joint->writes.step))
			calls->stats.copied_bytes += towi_step_bytes(joint, &joint->writes.step);
		carry_out(joint, towi_slot_at(&calls->pools[TOWI_OF_CALLS], slot));
	}
	towi_grant_end(track, number);
	return true;
}

static bool write_made(struct towi_joint *joint)
{
	char *received;

	if (!towi_made_come(joint, &received))
		return false;
	if (received)
		carry_out(joint, received);
	return true;
}

static bool write_step(struct towi_joint *joint)
{
	const struct towi_step *step = &joint->writes.step;
	struct towi_pair *pair;

	if (towi_joint_sent(joint) < step->after)
		return false;
	if (step->what == TOWI_STEP_LOCAL) {
		carry_out(joint, NULL);
		return true;
	}
	if (joint->made)
		return write_made(joint);
	pair = towi_pair_of(joint->work.comm, step->peer);
	if (!pair)
		return false;
	return towi_step_is_small(joint, step) ? write_small(joint, pair) : write_large(joint, pair);
}

static bool writes(struct towi_joint *joint)
{
	bool any = false;

	while (joint->writes.more && !joint->work.comm->error && write_step(joint)) {
		towi_cursor_advance(&joint->writes);
		any = true;
		/* While this rank reduces, what it has reduced travels. */
		sends(joint);
	}
	return any;
}

/* ---- a joint ------------------------------------------------------------------------- */

static void begin_cursor(struct towi_joint *joint, struct towi_cursor *cursor, enum towi_side side)
{
	/* Its plan is good. */
	towi_schedule_begin(&cursor->schedule, &joint->plan, side);
}

void towi_joint_begin(struct towi_joint *joint)
{
	begin_cursor(joint, &joint->sends, TOWI_SENDS);
	begin_cursor(joint, &joint->writes, TOWI_WRITES);
	towi_cursor_advance(&joint->sends);
	towi_cursor_advance(&joint->writes);
}

bool towi_joint_go_on(struct towi_joint *joint)
{
	bool any = sends(joint);

	return writes(joint) || any;
}
