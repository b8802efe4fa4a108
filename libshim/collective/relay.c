// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * What the kernel passes on while the process sleeps: a chain of WAITs, and behind each the send
 * of what it waited for.
 *
 * That is what comes to be stored in the result, and goes to one other rank from there.  Each lane by
 * which it goes has a chain of its own, so as many messages are on their way as there are lanes.
 *
 * Of a chain that succeeds only the last entry says so; of one that fails the first that did, and then all
 * behind it, in their order.  The first one's status may be -ECANCELED, too: its slot is closed, or another
 * entry of the chain is wrong, which says why.
 */
#include <errno.h>
#include <stdlib.h>

#include "made.h"

/* ---- a chain ------------------------------------------------------------------------------- */

static struct tow_collective *collective_of(const struct towi_relay *relay)
{
	return relay->path->collective;
}

static void over(struct towi_relay *relay, uint32_t silent)
{
	towi_pump_silent(&collective_of(relay)->runner, silent);
	relay->entries = 0;
	relay->sent.ended = true;
	towi_made_sents_end(collective_of(relay));
}

/* All that failed is known: who is to blame? */
static void broke(const struct towi_relay *relay)
{
	struct tow_comm *comm = collective_of(relay)->joint.work.comm;
	uint32_t blamed = relay->culprit % 2 ? relay->path->rank : relay->from;

	/* It may have said why. */
	towi_board_look(comm);
	towi_comm_fail(comm, relay->status, relay->status == -ENODEV ? comm->rank : blamed);
}

static void ended(struct towi_op *op, int status)
{
	struct towi_relay_step *step = (struct towi_relay_step *)op;
	struct towi_relay *relay = step->relay;
	uint32_t at = (uint32_t)(step - relay->step);

	if (!status) {
		collective_of(relay)->stats.forwarded += relay->entries / 2;
		over(relay, relay->entries - 1);
		return;
	}
	if (!relay->failed++)
		relay->first = at;
	if (relay->failed == 1 || status != -ECANCELED) {
		relay->culprit = at;
		relay->status = status;
	}
	if (relay->failed < relay->entries - relay->first)
		return;
	broke(relay);
	over(relay, relay->first);
}

static struct towi_relay *new_relay(struct towi_path *path)
{
	struct towi_relay *relay = calloc(1, sizeof(*relay));
	uint32_t i;

	if (!relay)
		return NULL;
	relay->path = path;
	for (i = 0; i < 2 * TOWI_RELAY_MAX; i++) {
		relay->step[i].op = (struct towi_op){ .ended = ended,
						      .runner = &path->collective->runner };
		relay->step[i].relay = relay;
	}
	return relay;
}

static void put(struct towi_relay *relay, struct tow_sqe *sqe, uint8_t flags)
{
	tow_sqe_set_flags(sqe, flags);
	towi_pump_begun(sqe, &relay->step[relay->entries].op);
	relay->entries++;
}

/* ---- what will come --------------------------------------------------------------------------- */

/* Where both sides of the plan are, and what was looked at behind that. */
struct ahead {
	struct towi_cursor sends, writes;
	struct towi_path *from, *to;	/* NULL: not known so far */
	uint64_t come, go;		/* messages of theirs */
};

/* Will what the next send reads come from one rank, and is it only stored? */
static bool will_come(const struct tow_collective *collective, struct ahead *ahead)
{
	const struct towi_step *send = &ahead->sends.step, *write = &ahead->writes.step;

	for (; ahead->writes.more; towi_cursor_advance(&ahead->writes), ahead->come++) {
		if (write->what != TOWI_STEP_RECEIVE || !towi_is_stored(write) ||
		    collective->path[write->peer] != ahead->from)
			return false;
		if (write->at == send->at && write->count == send->count)
			return true;
	}
	return false;
}

static bool is_next(const struct tow_collective *collective, struct ahead *ahead)
{
	const struct towi_step *send = &ahead->sends.step;

	return ahead->sends.more && send->left == TOWI_OUT && send->stored &&
	       collective->path[send->peer] == ahead->to && will_come(collective, ahead);
}

static struct ahead look_ahead(const struct tow_collective *collective)
{
	const struct towi_joint *joint = &collective->joint;
	struct ahead ahead = { .sends = joint->sends, .writes = joint->writes };

	if (!joint->sends.more || !joint->writes.more ||
	    joint->writes.step.what != TOWI_STEP_RECEIVE)
		return ahead;
	ahead.from = collective->path[joint->writes.step.peer];
	ahead.to = collective->path[joint->sends.step.peer];
	ahead.come = ahead.from->come.messages;
	ahead.go = ahead.to->gone.messages;
	return ahead;
}

static struct towi_made_lane *lane_of(const struct ahead *ahead)
{
	return &ahead->to->lanes[towi_lane_of(&ahead->to->goes, ahead->go)];
}

/*
 * Its lane is to have a chain, and the one before is over, as is all that was sent before that.
 * False: or there is no memory.
 */
static bool may_have_chain(const struct ahead *ahead)
{
	struct towi_made_lane *lane = lane_of(ahead);

	if (!lane->relay)
		lane->relay = new_relay(ahead->to);
	return lane->relay && !lane->relay->open;
}

/* How many of the next sends can be left to the kernel: no more than @room. */
static uint32_t count_next(const struct tow_collective *collective, uint32_t room)
{
	struct ahead ahead = look_ahead(collective);
	uint32_t count = 0;

	while (count < room && ahead.to && is_next(collective, &ahead) && may_have_chain(&ahead)) {
		towi_cursor_advance(&ahead.sends);
		ahead.go++;
		count++;
	}
	return count;
}

/* ---- chains --------------------------------------------------------------------------------- */

static void add(struct ahead *ahead, bool last)
{
	struct tow_collective *collective = ahead->to->collective;
	struct towi_relay *relay = lane_of(ahead)->relay;
	const struct towi_step *step = &ahead->sends.step;
	const struct tow_slot *slot;
	struct tow_sqe *sqe;
	uint64_t number;

	if (!relay->entries) {
		relay->open = true;
		relay->from = ahead->from->rank;
		relay->failed = 0;
		relay->sent.round = step->round;
		relay->sent.ended = false;
		STAILQ_INSERT_TAIL(&collective->joint.work.open, &relay->sent, next);
	}
	slot = towi_path_slot(ahead->from, ahead->come, &number);
	sqe = towi_comm_entry(&collective->runner);
	tow_prep_wait(sqe, slot, number);
	put(relay, sqe, TOW_SQE_SILENT | TOW_SQE_LINK);
	sqe = towi_comm_entry(&collective->runner);
	put(relay, sqe, (uint8_t)(towi_path_prep(ahead->to, step, ahead->go, sqe) |
				  (last ? 0 : TOW_SQE_SILENT | TOW_SQE_LINK)));
	collective->stats.sent_bytes += step->count * collective->joint.element;
}

/* Of the next @count sends, those by the lane of the one at @offset: every so many from there on. */
static void add_chain(const struct tow_collective *collective, uint32_t count, uint32_t offset,
		      uint32_t lanes)
{
	struct ahead ahead = look_ahead(collective);
	uint32_t i;

	for (i = 0; i < count && is_next(collective, &ahead); i++) {
		if (i % lanes == offset)
			add(&ahead, i + lanes >= count);
		towi_cursor_advance(&ahead.sends);
		ahead.go++;
	}
}

static void pass_over(struct tow_collective *collective, uint32_t count)
{
	struct towi_joint *joint = &collective->joint;
	struct towi_path *path = collective->path[joint->sends.step.peer];

	for (; count; count--) {
		towi_progressed(&path->gone, 0, true);
		towi_cursor_advance(&joint->sends);
	}
}

void towi_relays_begin(struct tow_collective *collective)
{
	struct towi_pump *pump = collective->runner.pump;
	const struct towi_joint *joint = &collective->joint;
	uint32_t count, lanes, i, room = towi_wait_room(pump) / 2;

	if (!joint->sends.more || !towi_path_is_ready(collective->path[joint->sends.step.peer]))
		return;
	lanes = towi_lanes(&collective->path[joint->sends.step.peer]->goes);
	count = count_next(collective, room < lanes * TOWI_RELAY_MAX ? room :
							      lanes * TOWI_RELAY_MAX);
	for (i = 0; i < lanes && i < count; i++)
		add_chain(collective, count, i, lanes);
	pass_over(collective, count);
}

void towi_relays_stop(struct tow_collective *collective)
{
	struct towi_path *path;
	uint32_t i, chains = 0;

	STAILQ_FOREACH(path, &collective->paths, next)
		for (i = 0; i < TOWI_LANES; i++)
			chains += path->lanes[i].relay && path->lanes[i].relay->entries;
	if (!chains)
		return;
	STAILQ_FOREACH(path, &collective->paths, next) {
		for (i = 0; i < TOWI_LANES; i++) {
			tow_slot_destroy(path->lanes[i].slot);
			path->lanes[i].slot = NULL;
		}
	}
}
