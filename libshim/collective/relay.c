// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * What the kernel passes on while the process sleeps: a chain of WAITs, and behind each the send
 * of what it waited for.
 *
 * Of a chain that succeeds only the last entry says so; of one that fails the first that did, and then all
 * behind it, in their order.  The first one's status may be -ECANCELED, too: its slot is closed, or another
 * entry of the chain is wrong, which says why.
 */
#include <errno.h>

#include "inside.h"

/* Entries that chains leave for what lanes wait for, and for words to others. */
#define LEFT	8U

static void over(struct towi_relay *relay, uint32_t silent)
{
	towi_pump_silent(&relay->collective->runner, silent);
	relay->entries = 0;
}

/* All that failed is known: who is to blame? */
static void broke(struct towi_relay *relay)
{
	struct tow_comm *comm = relay->collective->comm;
	uint32_t blamed = relay->culprit % 2 ? relay->to : relay->from;

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
		relay->collective->forwarded += relay->entries / 2;
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

void towi_relay_init(struct towi_relay *relay, struct tow_collective *collective, uint32_t from,
		     uint32_t to)
{
	uint32_t i;

	relay->collective = collective;
	relay->from = from;
	relay->to = to;
	for (i = 0; i < 2 * TOWI_RELAY_MAX; i++) {
		relay->step[i].op = (struct towi_op){ .ended = ended,
						      .runner = &collective->runner };
		relay->step[i].relay = relay;
	}
}

uint32_t towi_relay_begin(struct towi_relay *relay)
{
	struct towi_pump *pump = &relay->collective->comm->pump;
	uint32_t room, messages;

	relay->failed = 0;
	towi_pump_submit(pump);
	room = towi_pump_free(pump);
	messages = room > LEFT ? (room - LEFT) / 2 : 0;
	return messages < TOWI_RELAY_MAX ? messages : TOWI_RELAY_MAX;
}

static void put(struct towi_relay *relay, struct tow_sqe *sqe, uint8_t flags)
{
	tow_sqe_set_flags(sqe, flags);
	towi_pump_begun(sqe, &relay->step[relay->entries].op);
	relay->entries++;
}

void towi_relay_add(struct towi_relay *relay, const struct tow_slot *slot, uint64_t number,
		    const struct towi_send *send, bool last)
{
	struct tow_collective *collective = relay->collective;
	struct tow_sqe *sqe;

	sqe = towi_comm_entry(&collective->runner);
	tow_prep_wait(sqe, slot, number);
	put(relay, sqe, TOW_SQE_SILENT | TOW_SQE_LINK);
	sqe = towi_comm_entry(&collective->runner);
	put(relay, sqe, (uint8_t)(towi_prep_send(collective, sqe, send) |
				  (last ? 0 : TOW_SQE_SILENT | TOW_SQE_LINK)));
	collective->sent_bytes += send->bytes;
}
