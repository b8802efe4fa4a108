// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Lines: their memory, what goes out and comes in, and how they end.
 *
 * A line that has failed has first taken what had come: the program receives that, and then the
 * error.  Nothing is begun any more then, and what is on its way ends by itself.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "line.h"

/* How long closing waits until what was sent is there. */
#define PARTING_US	1000000U

static struct tow_line *line_of(struct towi_runner *runner)
{
	return (struct tow_line *)runner;
}

static struct tow_line *line_of_op(const struct towi_op *op)
{
	return line_of(op->runner);
}

void towi_line_name(char name[TOWI_LINE_NAME_BYTES], uint64_t number, uint32_t index,
		    const char *end)
{
	snprintf(name, TOWI_LINE_NAME_BYTES, "tow/line/%016" PRIx64 "/%" PRIu32 "%s", number, index,
		 end);
}

int towi_line_place(const struct tow_line *line, const char *ptr, struct tow_region **region,
		    uint64_t *offset)
{
	/* Ordinary memory is in none. */
	return tow_arena_find(line->arena, ptr, region, offset) ? -ENOSPC : 0;
}

/* ---- out -------------------------------------------------------------------- */

static void write_ended(struct towi_op *op, int status)
{
	struct towi_write *write = (struct towi_write *)op;
	struct tow_line *line = line_of_op(op);

	if (status) {
		towi_line_fail(line, status);
		return;
	}
	line->heard = true;
	towi_wire_ended(&line->wire, write->batch);
}

static struct towi_write *free_write(struct tow_line *line)
{
	uint32_t i;

	for (i = 0; i < TOWI_WIRE_WRITES; i++)
		if (!line->writes[i].op.busy)
			return &line->writes[i];
	return NULL;
}

static void write_batches(struct tow_line *line)
{
	struct tow_region *region;
	struct towi_write *write;
	uint64_t at, offset, bytes;
	struct tow_sqe *sqe;

	if (towi_line_place(line, line->outbox, &region, &at))
		return;
	while (!towi_wire_written(&line->wire) && (write = free_write(line)) &&
	       towi_pump_room(&line->runner, 1)) {
		write->batch = line->wire.next;
		if (!towi_wire_batch(&line->wire, &offset, &bytes))
			return;
		sqe = towi_pump_entry(&line->runner);
		tow_prep_write_notify(sqe, line->channel, region, at + offset, line->range,
				      TOWI_RING_AT + offset, bytes, line->other);
		towi_pump_begun(sqe, &write->op);
	}
}

static void say_notes(struct tow_line *line)
{
	static const struct towi_record last = { .kind = TOWI_BYE };
	struct towi_record record = { .kind = TOWI_MESSAGE };
	struct towi_note *note;

	while ((note = STAILQ_FIRST(&line->notes))) {
		record.port = note->port;
		record.generation = note->generation;
		record.tag = note->tag;
		/* No message is empty. */
		if (towi_wire_put(&line->wire, &record, note->bytes ? (void *)note->data : "",
				  note->bytes ? note->bytes : 1))
			return;
		STAILQ_REMOVE_HEAD(&line->notes, next);
		free(note);
	}
	if (line->parting && !towi_wire_put(&line->wire, &last, NULL, 0))
		line->parting = false;
}

/* Whoever found no room for a message, if there is enough now. */
static void tell_room(struct tow_line *line)
{
	uint32_t room = towi_wire_room(&line->wire);
	struct towi_port *port = TAILQ_FIRST(&line->starving);

	if (line->wanted && room >= line->wanted) {
		line->wanted = 0;
		towi_line_tell(line, TOW_MAILBOX_ROOM);
	}
	if (!port || room < TOWI_RECORD_UNITS)
		return;
	TAILQ_REMOVE(&line->starving, port, starving);
	port->starved = false;
	port->room(port);
	/* The next one, if there still is. */
	towi_pump_ready(&line->runner);
}

int towi_line_send(struct tow_line *line, const struct towi_record *record, const void *data,
		   uint32_t bytes)
{
	int ret;

	if (line->error)
		return line->error;
	if (line->state != TOWI_OPEN)
		return -ENOTCONN;
	ret = towi_wire_put(&line->wire, record, data, bytes);
	if (!ret)
		towi_pump_ready(&line->runner);
	return ret;
}

void towi_line_open(struct tow_line *line)
{
	line->state = TOWI_OPEN;
	line->heard = true;
	line->wanted = 0;
	towi_line_tell(line, TOW_MAILBOX_ROOM);
	towi_pump_ready(&line->runner);
}

/* ---- in --------------------------------------------------------------------- */

/* Until the program receives it: there is room, as the wire has seen to. */
static void keep(struct tow_line *line, const struct towi_record *record, const void *data)
{
	char *at = line->kept + line->kept_last % line->wire.ours * TOWI_UNIT;

	memcpy(at, record, sizeof(*record));
	memcpy(at + sizeof(*record), data, record->bytes);
	line->kept_last += towi_units(record->bytes);
	towi_line_tell(line, TOW_MAILBOX_CAME);
}

/* Its other end has gone; of one that is of no line so far anybody could say that. */
static void end_port(struct towi_port *port, const struct tow_line *line)
{
	if (!port->line && !(port->expects && port->expects(port, line)))
		return;
	towi_port_detach(port);
	port->ended(port, -ESTALE);
}

static void deliver(struct tow_line *line, const struct towi_record *record, const void *data)
{
	struct towi_port *port = towi_port_of(line->box, record);

	if (!record->port) {
		keep(line, record, data);
		return;
	}
	/* One that is of another line does not want it, nor one that has been closed meanwhile. */
	if (port && port->line && port->line != line)
		port = NULL;
	if (port && record->tag == TOWI_PORT_BYE)
		end_port(port, line);
	else if (port)
		port->came(port, line, record, data);
	towi_wire_taken(&line->wire, towi_units(record->bytes));
}

static void tell_ports(struct tow_line *line)
{
	struct towi_port *port;

	while ((port = LIST_FIRST(&line->ports))) {
		towi_port_detach(port);
		port->ended(port, line->error);
	}
}

static void end(struct tow_line *line, int error)
{
	line->error = error;
	atomic_store(&line->given_up, true);
	towi_pump_untime(line->runner.pump, &line->probed);
	tell_ports(line);
	towi_line_tell(line, TOW_MAILBOX_ENDED);
	towi_box_tell(line->box);
}

/* The first of a line that others have begun says who they are, and nothing else does. */
static void take(struct tow_line *line, const struct towi_record *record, const void *data)
{
	bool hello = record->kind == TOWI_HELLO;
	bool for_nobody = record->kind == TOWI_MESSAGE && !record->port && !line->kept;

	if (hello != (line->state == TOWI_SPARE) || for_nobody ||
	    (hello && !towi_door_hello(line, record, data)))
		end(line, -EPROTO);
	else if (record->kind == TOWI_BYE)
		end(line, -ESTALE);
	else if (record->kind == TOWI_MESSAGE)
		deliver(line, record, data);
}

void towi_line_look(struct tow_line *line)
{
	bool spare = line->state == TOWI_SPARE;
	uint64_t taken = line->wire.taken;
	char data[TOW_MESSAGE_MAX];
	struct towi_record record;
	int ret = 1;

	/* By what a port does with a message. */
	if (line->looking)
		return;
	line->looking = true;
	while (ret > 0 && !line->error) {
		ret = towi_wire_take(&line->wire, tow_slot_value(line->slot), &record, data);
		if (ret < 0)
			end(line, ret);
		else if (ret)
			take(line, &record, data);
	}
	line->looking = false;
	/* By ports: who waits for what is theirs looks. */
	if (line->wire.taken != taken)
		towi_pump_wake(line->runner.pump);
	/* Somebody has it now, whatever he said. */
	if (spare && (line->wire.batches_in || line->error))
		towi_door_taken(line);
}

/* ---- failing ---------------------------------------------------------------- */

void towi_line_fail(struct tow_line *line, int error)
{
	/* What has come before that counts. */
	if (!line->error && line->slot)
		towi_line_look(line);
	if (!line->error)
		end(line, error);
}

static void lost(struct towi_runner *runner, int error, uint64_t lost_ns)
{
	struct tow_line *line = line_of(runner);

	if (lost_ns == UINT64_MAX || (line->found_ns && line->found_ns <= lost_ns))
		towi_line_fail(line, error);
}

/* ---- is the other end there? ------------------------------------------------ */

static void probe_ended(struct towi_op *op, int status)
{
	struct tow_line *line = line_of_op(op);

	towi_pump_untime(line->runner.pump, &line->probed);
	if (status)
		towi_line_fail(line, status);
}

static void probe_late(struct towi_timed *timed)
{
	struct tow_line *line = (struct tow_line *)(void *)((char *)timed -
							    offsetof(struct tow_line, probed));

	towi_line_fail(line, -ETIMEDOUT);
	towi_pump_ready(&line->runner);
}

/*
 * A process that ends while its node lives tells nobody.  A write that nobody reads: of no bytes at
 * all it would not ask the other node.
 */
static void tick(struct towi_runner *runner, uint64_t now_us)
{
	struct tow_line *line = line_of(runner);
	struct tow_region *region;
	struct tow_sqe *sqe;
	uint64_t offset;

	/* What looks for the other end may be waiting for its node. */
	if (line->state == TOWI_OPENING && now_us >= line->until_us)
		towi_line_fail(line, -ETIMEDOUT);
	if (line->state != TOWI_OPEN || line->error || line->probe.busy)
		return;
	if (line->heard) {
		line->heard = false;
		return;
	}
	if (towi_line_place(line, line->desk + TOWI_ZERO_AT, &region, &offset))
		return;
	sqe = towi_pump_entry(runner);
	if (!sqe)
		return;
	tow_prep_write(sqe, line->channel, region, offset, line->range, TOWI_PROBE_AT,
		       sizeof(uint64_t));
	towi_pump_begun(sqe, &line->probe);
	towi_pump_time(runner->pump, &line->probed);
}

/* ---- going on --------------------------------------------------------------- */

static void go_on(struct towi_runner *runner)
{
	struct tow_line *line = line_of(runner);

	/* Of one that is being made, or closed, there is no slot. */
	if (!line->slot || line->error)
		return;
	towi_line_look(line);
	if (line->state == TOWI_OPENING && !line->error)
		towi_door_go_on(line);
	if (line->state == TOWI_OPEN && !line->error) {
		say_notes(line);
		tell_room(line);
	}
	if (line->state == TOWI_OPEN && !line->error) {
		towi_wire_credit(&line->wire);
		write_batches(line);
	}
	if (!line->error)
		towi_pump_wait_for(&line->wait, line->slot, line->wire.batches_in + 1);
}

static void wait_ended(struct towi_op *op, int status)
{
	struct tow_line *line = line_of_op(op);

	/* Whoever had a spare, and had said nothing, has lost it: the next one may have it. */
	if (status == -ECONNRESET && line->state == TOWI_SPARE)
		return;
	/* -ESTALE: this end is closed. */
	if (status)
		towi_line_fail(line, status);
}

uint32_t towi_line_what(const struct tow_line *line)
{
	uint32_t what = 0, wanted = line->wanted ? line->wanted : 1;

	if (line->kept_first != line->kept_last)
		what |= TOW_MAILBOX_CAME;
	if (line->error)
		what |= TOW_MAILBOX_ENDED;
	else if (line->state == TOWI_OPEN && towi_wire_room(&line->wire) >= wanted)
		what |= TOW_MAILBOX_ROOM;
	return what;
}

/* ---- begin and end ---------------------------------------------------------- */

void towi_line_free(struct tow_line *line)
{
	struct towi_note *note;

	while ((note = STAILQ_FIRST(&line->notes))) {
		STAILQ_REMOVE_HEAD(&line->notes, next);
		free(note);
	}
	tow_arena_free(line->arena, line->inbox);
	tow_arena_free(line->arena, line->desk);
	tow_arena_free(line->arena, line->outbox);
	free(line->kept);
	free(line);
}

static void bury(struct towi_runner *runner)
{
	towi_line_free(line_of(runner));
}

static const struct towi_runner_ops line_ops = { go_on, lost, tick, bury };

int towi_line_outbox(struct tow_line *line, uint32_t units)
{
	int ret;

	if (line->outbox && line->wire.theirs == units)
		return 0;
	/* Another mailbox took the place of that one. */
	tow_arena_free(line->arena, line->outbox);
	line->outbox = NULL;
	ret = towi_take_memory(line->arena, towi_ring_bytes(units), &line->outbox);
	if (ret)
		return ret;
	line->wire.out = (unsigned char *)line->outbox;
	line->wire.theirs = units;
	return 0;
}

static int make_memory(struct tow_line *line)
{
	uint64_t bytes = towi_ring_bytes(line->wire.ours);
	int ret;

	line->kept = line->box->own ? NULL : malloc(bytes);
	if (!line->kept && !line->box->own)
		return -ENOMEM;
	ret = towi_take_memory(line->arena, TOWI_RING_AT + bytes, &line->inbox);
	if (ret)
		return ret;
	line->wire.in = (unsigned char *)line->inbox + TOWI_RING_AT;
	return towi_take_memory(line->arena, TOWI_DESK_BYTES, &line->desk);
}

static int make_exports(struct tow_line *line)
{
	uint64_t bytes = TOWI_RING_AT + towi_ring_bytes(line->wire.ours), offset;
	char name[TOWI_LINE_NAME_BYTES];
	struct tow_region *region;
	int ret;

	ret = towi_line_place(line, line->desk + TOWI_ARRIVED_AT, &region, &offset);
	if (ret)
		return ret;
	towi_line_name(name, line->box->number, line->index, "!");
	ret = tow_slot_create(region, offset, name, &line->slot);
	if (!ret)
		ret = towi_line_place(line, line->inbox, &region, &offset);
	if (ret)
		return ret;
	towi_line_name(name, line->box->number, line->index, "");
	return tow_export(region, offset, bytes, name, TOW_RIGHT_READ | TOW_RIGHT_WRITE,
			  &line->exported);
}

static void begin_ops(struct tow_line *line)
{
	struct towi_runner *runner = &line->runner;
	uint32_t i;

	for (i = 0; i < TOWI_WIRE_WRITES; i++)
		line->writes[i].op = (struct towi_op){ .ended = write_ended, .runner = runner };
	line->probe = (struct towi_op){ .ended = probe_ended, .runner = runner };
	line->wait.op = (struct towi_op){ .ended = wait_ended, .runner = runner };
	line->probed.late = probe_late;
	line->errand.runner = &line->runner;
}

/* It counts, and may wait: 0; -EMLINK; -EOVERFLOW; what has ended the worker. */
static int admit(struct tow_line *line)
{
	struct tow_mailbox *box = line->box;
	struct towi_pump *pump = towi_box_pump(box);
	int ret;

	if (pump->over)
		return pump->over;
	if (box->count == box->lines_max)
		return -EMLINK;
	line->runner.pump = pump;
	ret = towi_pump_reserve(&line->wait);
	if (ret)
		return ret;
	box->count++;
	line->index = ++box->last;
	return 0;
}

/* The reverse. */
static void dismiss(struct tow_line *line)
{
	towi_pump_release(&line->wait);
	line->box->count--;
}

/* What others find is there before anybody goes on with it. */
static int make_rest(struct tow_line *line)
{
	struct towi_pump *pump = towi_box_pump(line->box);
	int ret;

	towi_pump_lock(pump);
	ret = admit(line);
	towi_pump_unlock_quietly(pump);
	if (ret)
		return ret;
	ret = make_exports(line);
	towi_pump_lock(pump);
	if (ret)
		dismiss(line);
	else
		towi_pump_join(pump, &line->runner);
	if (!ret && pump->over)
		towi_line_fail(line, pump->over);
	towi_pump_unlock_quietly(pump);
	return ret;
}

int towi_line_make(struct tow_mailbox *box, struct tow_line **made)
{
	struct tow_line *line = calloc(1, sizeof(*line));
	int ret;

	if (!line)
		return -ENOMEM;
	line->box = box;
	line->arena = box->worker->words;
	line->runner.ops = &line_ops;
	line->wire.ours = box->units;
	LIST_INIT(&line->ports);
	TAILQ_INIT(&line->starving);
	STAILQ_INIT(&line->notes);
	ret = make_memory(line);
	begin_ops(line);
	if (!ret)
		ret = make_rest(line);
	if (!ret) {
		*made = line;
		return 0;
	}
	tow_unexport(line->exported);
	tow_slot_destroy(line->slot);
	towi_line_free(line);
	return ret;
}

/* What was sent is there, or it takes too long. */
static void part(struct tow_line *line)
{
	uint64_t until = towi_until(PARTING_US);
	int ret = 0;

	if (line->state != TOWI_OPEN || line->error)
		return;
	line->parting = true;
	towi_pump_ready(&line->runner);
	while (!line->error && (line->parting || !towi_wire_idle(&line->wire)) &&
	       (!ret || ret == -EINTR))
		ret = towi_pump_sleep(line->runner.pump, until);
}

/* With the lock, and it is let go of. */
static void drain(struct tow_line *line)
{
	struct towi_pump *pump = line->runner.pump;

	line->shown = false;
	line->news.what = 0;
	towi_line_fail(line, -ECANCELED);
	atomic_store(&line->given_up, true);
	towi_pump_settle(pump, &line->runner.busy, UINT64_MAX);
	towi_pump_settle(pump, &line->runner.calls, UINT64_MAX);
}

static void release(struct tow_line *line)
{
	tow_remote_release(line->door);
	tow_remote_release(line->range);
	tow_remote_release(line->other);
	tow_peer_release(line->own_peer);
	tow_channel_put(line->channel);
	line->door = NULL;
	line->range = NULL;
	line->other = NULL;
	line->own_peer = NULL;
	line->channel = NULL;
}

int towi_line_hide(struct tow_line *line)
{
	struct tow_exported *exported = line->exported;
	struct tow_slot *slot;
	int ret, error;

	towi_pump_lock(line->runner.pump);
	slot = line->slot;
	line->slot = NULL;
	towi_pump_unlock_plainly(line->runner.pump);
	line->exported = NULL;
	ret = tow_unexport(exported);
	error = tow_slot_destroy(slot);
	release(line);
	return ret ? ret : error;
}

void towi_line_leave(struct tow_line *line)
{
	dismiss(line);
	towi_door_refill(line->box);
	if (towi_pump_leave(&line->runner))
		towi_line_free(line);
}

int towi_line_end(struct tow_line *line)
{
	struct towi_pump *pump = line->runner.pump;
	int ret;

	towi_pump_lock(pump);
	part(line);
	drain(line);
	towi_pump_unlock(pump);
	ret = towi_line_hide(line);
	towi_pump_lock(pump);
	/* What waits for a slot ends with it. */
	towi_pump_settle(pump, &line->runner.waiting, UINT64_MAX);
	towi_line_leave(line);
	towi_pump_unlock(pump);
	return ret;
}
