// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * The line that an edge is on.
 *
 * A worker has a mailbox of its own as long as it has edges, and each of those a port.  A receiver's
 * header says which; the sender begins a line to there, unless there is one, and says which that
 * is with its own header.  So all edges from one worker to another are on one line, which
 * finds out for all of them whether the other process is there; and an end that is closed says so to
 * the other one's port.
 *
 * Whoever has begun a line ends it with the last of his edges on it; at the other end it
 * has failed then.  A receiver may look for it later than that.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../pump/line.h"
#include "edge.h"

/* ---- a worker's mailbox ----------------------------------------------------- */

int towi_worker_join(struct tow_worker *worker)
{
	struct tow_mailbox *made = NULL;
	int ret = 0;

	towi_pump_lock(&worker->pump);
	if (!worker->box) {
		towi_pump_unlock_quietly(&worker->pump);
		ret = towi_box_make(worker, worker->strangers, &made);
		towi_pump_lock(&worker->pump);
	}
	/* Another thread may have been faster. */
	if (!worker->box) {
		worker->box = made;
		made = NULL;
	}
	if (worker->box) {
		worker->edges++;
		ret = 0;
	}
	towi_pump_unlock_quietly(&worker->pump);
	tow_mailbox_destroy(made);
	return ret;
}

/* Without an edge: it was begun here, or has failed.  NULL: there is none. */
static struct tow_line *take_idle_line(struct tow_mailbox *box)
{
	struct tow_line *line;

	TAILQ_FOREACH(line, &box->waiting, in_box)
		if (LIST_EMPTY(&line->ports) && (line->begun || line->error))
			break;
	if (line)
		towi_box_forget(line);
	return line;
}

void towi_worker_leave(struct tow_worker *worker)
{
	struct tow_mailbox *box = NULL;
	struct tow_line *line;

	towi_pump_lock(&worker->pump);
	while ((line = take_idle_line(worker->box))) {
		towi_pump_unlock(&worker->pump);
		towi_line_end(line);
		towi_pump_lock(&worker->pump);
	}
	if (!--worker->edges) {
		box = worker->box;
		worker->box = NULL;
	}
	towi_pump_unlock(&worker->pump);
	tow_mailbox_destroy(box);
}

void towi_worker_expect(struct tow_worker *worker, uint32_t strangers)
{
	worker->strangers = strangers < TOW_BACKLOG_MAX ? strangers : TOW_BACKLOG_MAX;
}

/* ---- an edge's port --------------------------------------------------------- */

static struct tow_edge *edge_with(struct towi_port *port)
{
	return (struct tow_edge *)(void *)((char *)port - offsetof(struct tow_edge, port));
}

static void came(struct towi_port *port, struct tow_line *line, const struct towi_record *record,
		 const void *data)
{
	struct tow_edge *edge = edge_with(port);

	/* A sender's has had one, or will. */
	if (!port->line && edge->sends)
		return;
	if (!port->line)
		towi_port_attach(port, line);
	if (!edge->kind->came || !edge->kind->came(edge, record, data))
		towi_edge_fail(edge, -EPROTO);
	towi_pump_ready(&edge->runner);
}

/* A receiver's: its sender has said so, and nobody has looked. */
static bool expects(struct towi_port *port, const struct tow_line *line)
{
	const struct tow_edge *edge = edge_with(port);
	struct towi_header header;

	if (!edge->there || edge->sends)
		return false;
	memcpy(&header, edge->letters + TOWI_HELLO_AT, sizeof(header));
	return !line->begun && header.box == line->number && header.line == line->theirs;
}

static void room(struct towi_port *port)
{
	towi_pump_ready(&edge_with(port)->runner);
}

int towi_edge_tell(struct tow_edge *edge, enum towi_tag tag, const void *data, uint32_t bytes)
{
	const struct towi_record record = {
		.kind = TOWI_MESSAGE, .tag = (uint8_t)tag, .port = edge->port.other,
		.generation = edge->port.other_generation,
	};

	return towi_port_send(&edge->port, &record, data, bytes);
}

void towi_edge_tell_last(struct tow_edge *edge, enum towi_tag tag, const void *data,
			 uint16_t bytes)
{
	struct towi_note *note = malloc(sizeof(*note) + bytes);

	/* It is told that this end has gone. */
	if (!note)
		return;
	note->bytes = bytes;
	memcpy(note->data, data, bytes);
	towi_port_tell(&edge->port, note, (uint8_t)tag);
}

static void ended(struct towi_port *port, int error)
{
	struct tow_edge *edge = edge_with(port);

	/* It was somebody else's time that ran out: another line may be begun. */
	if (error == -ETIMEDOUT && edge->sends && edge->meeting < TOWI_GREETING)
		return;
	if (edge->there && edge->connected && edge->kind->take)
		edge->kind->take(edge);
	towi_edge_fail(edge, error);
}

int towi_edge_open_port(struct tow_edge *edge)
{
	int ret;

	edge->port.came = came;
	edge->port.room = room;
	edge->port.expects = expects;
	edge->port.ended = ended;
	towi_pump_lock(edge->runner.pump);
	ret = towi_port_open(edge->worker->box, &edge->port);
	towi_pump_unlock(edge->runner.pump);
	return ret;
}

/* ---- meeting ---------------------------------------------------------------- */

static int make_line(const struct tow_edge *edge, struct tow_line **line)
{
	int ret = towi_line_make(edge->worker->box, line);

	if (ret)
		return ret;
	/* The edge's may be released before the line has begun. */
	ret = towi_peer_copy(edge->peer, &(*line)->own_peer);
	if (ret)
		towi_line_end(*line);
	return ret;
}

/* Called with the lock, which is let go of meanwhile. */
static int begin_line(struct tow_edge *edge, uint64_t until)
{
	struct towi_pump *pump = edge->runner.pump;
	struct tow_line *line;
	int ret;

	towi_pump_unlock(pump);
	ret = make_line(edge, &line);
	towi_pump_lock(pump);
	if (ret)
		return ret;
	line->peer = line->own_peer;
	line->told = true;
	line->number = edge->their_box;
	line->until_us = until;
	towi_box_name(line->name, edge->their_box);
	ret = towi_door_begin(line);
	TAILQ_INSERT_TAIL(&edge->worker->box->waiting, line, in_box);
	if (!ret)
		towi_port_attach(&edge->port, line);
	return ret;
}

/* The one to there, or from there, that the edge is to be on; or NULL. */
static struct tow_line *find_line(const struct tow_edge *edge)
{
	struct tow_line *line;

	TAILQ_FOREACH(line, &edge->worker->box->waiting, in_box)
		if (line->number == edge->their_box && line->begun == edge->sends &&
		    (edge->sends ? !line->error : line->theirs == edge->their_line))
			break;
	return line;
}

/* What has ended it; 0: nothing, or it is not there yet. */
static int error_of_line(const struct tow_edge *edge, const struct tow_line *line)
{
	if (line || edge->sends)
		return line ? line->error : 0;
	return towi_box_ended(edge->worker->box, edge->their_box, edge->their_line);
}

/* The sender's: its first record is there; then the other end finds it, whenever it looks. */
static bool is_there(const struct tow_line *line)
{
	return line->state == TOWI_OPEN && line->wire.done;
}

int towi_edge_meet_line(struct tow_edge *edge, uint64_t until)
{
	struct tow_line *line;
	int ret = 0;

	while (!ret && !edge->error) {
		/* A receiver may have been told something on another one. */
		line = edge->sends && edge->port.line ? edge->port.line : find_line(edge);
		ret = error_of_line(edge, line);
		if (ret)
			return ret;
		if (line && edge->port.line != line)
			towi_port_attach(&edge->port, line);
		if (line && (!edge->sends || is_there(line)))
			return 0;
		if (line || !edge->sends)
			ret = towi_pump_sleep(edge->runner.pump, until);
		else
			ret = towi_until(0) < until ? begin_line(edge, until) : -ETIMEDOUT;
	}
	return edge->error ? edge->error : ret;
}
