// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/* Mailboxes: what programs call, whom they tell, and ports. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "../core/queue.h"
#include "line.h"

#define ATTR_SIZE_FIRST	(offsetof(struct tow_mailbox_attr, backlog) + sizeof(uint32_t))
#define INFO_SIZE_FIRST	offsetof(struct tow_line_info, sent)
#define BYTES		8192U
/* Of one of a worker's own, where there are many edges. */
#define OWN_BYTES	32768U
#define LINES		1024U
#define BACKLOG		8U
#define PORTS_MAX	(1U << 20)

static bool usable(const struct tow_mailbox *box)
{
	return towi_pump_usable(&box->worker->pump);
}

/* ---- what the program is told ----------------------------------------------- */

/* Called with the lock, which is let go of meanwhile. */
static void tell(struct tow_mailbox *box, struct tow_line *line, struct towi_telling *news)
{
	tow_mailbox_news *function;
	uint32_t what;
	void *arg;

	towi_pump_lock(towi_box_pump(box));
	what = news->what;
	news->what = 0;
	news->calling = false;
	function = box->tell;
	arg = box->arg;
	towi_pump_unlock_quietly(towi_box_pump(box));
	if (what && function)
		function(arg, line, what);
}

static void tell_line(struct towi_call *call)
{
	struct tow_line *line = (struct tow_line *)call->runner;

	tell(line->box, line, &line->news);
}

static void tell_box(struct towi_call *call)
{
	struct tow_mailbox *box = (struct tow_mailbox *)call->runner;

	tell(box, NULL, &box->news);
}

static void add_news(struct tow_mailbox *box, struct towi_telling *news, uint32_t what)
{
	what &= ~news->told;
	if (!box->tell || !what)
		return;
	news->told |= what;
	news->what |= what;
	if (news->calling)
		return;
	news->calling = true;
	towi_pump_call(&news->call);
}

void towi_line_tell(struct tow_line *line, uint32_t what)
{
	if (line->shown)
		add_news(line->box, &line->news, what);
	/* Who waits for it looks. */
	towi_pump_wake(line->runner.pump);
}

/* One that may be accepted; or NULL. */
static struct tow_line *acceptable(const struct tow_mailbox *box)
{
	struct tow_line *line;

	TAILQ_FOREACH(line, &box->waiting, in_box)
		if (line->state == TOWI_OPEN || line->error)
			break;
	return line;
}

void towi_box_tell(struct tow_mailbox *box)
{
	if (!acceptable(box))
		return;
	add_news(box, &box->news, TOW_MAILBOX_CAME);
	towi_pump_wake(towi_box_pump(box));
}

TOW_PUBLIC int tow_mailbox_watch(struct tow_mailbox *mailbox, tow_mailbox_news *news, void *arg)
{
	struct towi_pump *pump;
	struct tow_line *line;

	if (!mailbox)
		return -EINVAL;
	if (!usable(mailbox))
		return -EPERM;
	pump = towi_box_pump(mailbox);
	towi_pump_lock(pump);
	mailbox->tell = news;
	mailbox->arg = arg;
	mailbox->news.told = 0;
	towi_box_tell(mailbox);
	TAILQ_FOREACH(line, &mailbox->lines, in_box) {
		line->news.told = 0;
		towi_line_tell(line, towi_line_what(line));
	}
	/* The worker's descriptor says that there is something to do. */
	if (!STAILQ_EMPTY(&pump->calls))
		towi_pump_nudge(pump);
	towi_pump_unlock_quietly(pump);
	return 0;
}

/* ---- ports ------------------------------------------------------------------ */

int towi_port_open(struct tow_mailbox *box, struct towi_port *port)
{
	struct towi_port_place *ports;
	uint32_t i = box->ports_free;

	while (i < box->ports_count && box->ports[i].port)
		i++;
	if (i == PORTS_MAX)
		return -EMFILE;
	if (i == box->ports_count) {
		ports = reallocarray(box->ports, 2 * (size_t)i + 1, sizeof(*ports));
		if (!ports)
			return -ENOMEM;
		box->ports = ports;
		box->ports_count = 2 * i + 1;
		memset(&ports[i], 0, (box->ports_count - i) * sizeof(*ports));
	}
	port->bye = calloc(1, sizeof(*port->bye));
	if (!port->bye)
		return -ENOMEM;
	box->ports[i].port = port;
	box->ports_free = i + 1;
	port->box = box;
	port->line = NULL;
	port->starved = false;
	port->number = i + 1;
	port->generation = ++box->generations;
	port->other = 0;
	return 0;
}

void towi_port_detach(struct towi_port *port)
{
	if (!port->line)
		return;
	LIST_REMOVE(port, on_line);
	if (port->starved)
		TAILQ_REMOVE(&port->line->starving, port, starving);
	port->starved = false;
	port->line = NULL;
}

void towi_port_tell(struct towi_port *port, struct towi_note *note, uint8_t tag)
{
	struct tow_line *line = port->line;

	if (!line || line->error || !port->other) {
		free(note);
		return;
	}
	note->port = port->other;
	note->generation = port->other_generation;
	note->tag = tag;
	STAILQ_INSERT_TAIL(&line->notes, note, next);
	towi_pump_ready(&line->runner);
}

void towi_port_close(struct towi_port *port)
{
	struct tow_mailbox *box = port->box;

	towi_port_tell(port, port->bye, TOWI_PORT_BYE);
	towi_port_detach(port);
	box->ports[port->number - 1].port = NULL;
	if (port->number - 1 < box->ports_free)
		box->ports_free = port->number - 1;
}

void towi_port_attach(struct towi_port *port, struct tow_line *line)
{
	towi_port_detach(port);
	port->line = line;
	LIST_INSERT_HEAD(&line->ports, port, on_line);
}

int towi_port_send(struct towi_port *port, const struct towi_record *record, const void *data,
		   uint32_t bytes)
{
	struct tow_line *line = port->line;
	int ret = -EAGAIN;

	if (!line)
		return -ENOTCONN;
	if (line->error || (line->state == TOWI_OPEN && STAILQ_EMPTY(&line->notes)))
		ret = towi_line_send(line, record, data, bytes);
	if (ret != -EAGAIN || port->starved)
		return ret;
	port->starved = true;
	TAILQ_INSERT_TAIL(&line->starving, port, starving);
	return ret;
}

struct towi_port *towi_port_of(struct tow_mailbox *box, const struct towi_record *record)
{
	struct towi_port *port = NULL;

	if (record->port && record->port <= box->ports_count)
		port = box->ports[record->port - 1].port;
	return port && port->generation == record->generation ? port : NULL;
}

/* ---- mailboxes -------------------------------------------------------------- */

/* Lines do all there is. */
static void go_on(struct towi_runner *runner)
{
	(void)runner;
}

static void lost(struct towi_runner *runner, int error, uint64_t lost_ns)
{
	(void)runner;
	(void)error;
	(void)lost_ns;
}

/* One that has ended, and the program does not have; or NULL. */
static struct tow_line *dead_line(const struct tow_mailbox *box)
{
	struct tow_line *line;

	TAILQ_FOREACH(line, &box->waiting, in_box)
		if (line->error && !line->runner.busy)
			break;
	return line;
}

static int hide_dead(struct towi_errand *errand)
{
	towi_line_hide(((struct tow_mailbox *)errand->runner)->dead);
	return 0;
}

static void end_dead(struct tow_mailbox *box);

static void hidden(struct towi_errand *errand, int ret)
{
	struct tow_mailbox *box = (struct tow_mailbox *)errand->runner;
	struct tow_line *line = box->dead;

	(void)ret;
	box->dead = NULL;
	/* Once more by the clock, or with the mailbox. */
	if (line->runner.waiting) {
		TAILQ_INSERT_TAIL(&box->waiting, line, in_box);
		return;
	}
	towi_line_leave(line);
	end_dead(box);
}

/* Peers that come and die again and again leave no more behind than one that stays. */
static void end_dead(struct tow_mailbox *box)
{
	struct tow_line *line = box->dead || box->ending ? NULL : dead_line(box);

	if (!line)
		return;
	box->burial = (struct towi_errand){ .runner = &box->runner, .run = hide_dead,
					    .done = hidden };
	if (towi_pump_errand(&box->burial))
		return;
	towi_box_forget(line);
	box->dead = line;
}

static void tick(struct towi_runner *runner, uint64_t now_us)
{
	struct tow_mailbox *box = (struct tow_mailbox *)runner;

	(void)now_us;
	/* If there was no memory, say. */
	towi_door_refill(box);
	if (box->own)
		end_dead(box);
}

static void free_box(struct tow_mailbox *box)
{
	if (box->dead)
		towi_line_free(box->dead);
	tow_arena_free(box->worker->words, box->door);
	free(box->ports);
	free(box);
}

static void bury(struct towi_runner *runner)
{
	free_box((struct tow_mailbox *)runner);
}

static const struct towi_runner_ops box_ops = { go_on, lost, tick, bury };

static bool attr_makes_sense(const struct tow_mailbox_attr *attr)
{
	return attr->bytes >= TOW_LINE_BYTES_MIN && attr->bytes <= TOW_LINE_BYTES_MAX &&
	       !(attr->bytes & (attr->bytes - 1)) && attr->backlog <= TOW_BACKLOG_MAX;
}

static int take_attr(const struct tow_mailbox_attr *given, struct tow_mailbox_attr *attr)
{
	int ret = towi_take(given, ATTR_SIZE_FIRST, attr, sizeof(*attr));

	if (ret)
		return ret;
	attr->bytes = attr->bytes ? attr->bytes : BYTES;
	attr->lines = attr->lines ? attr->lines : LINES;
	attr->backlog = attr->backlog ? attr->backlog : BACKLOG;
	if (attr->backlog > attr->lines)
		attr->backlog = attr->lines;
	return attr_makes_sense(attr) ? 0 : -EINVAL;
}

static int identify(struct tow_mailbox *box)
{
	struct tow_device_attr attr = { .size = sizeof(attr) };
	int ret;

	if (getrandom(&box->number, sizeof(box->number), 0) < 0)
		return -errno;
	ret = tow_device_query(towi_queue_of(box->worker->pump.queue)->dev, &attr);
	memcpy(box->incarnation, attr.incarnation, sizeof(box->incarnation));
	return ret;
}

static struct tow_mailbox *new_box(struct tow_worker *worker, const char *name,
				   const struct tow_mailbox_attr *attr)
{
	struct tow_mailbox *box = calloc(1, sizeof(*box));

	if (!box)
		return NULL;
	box->runner.ops = &box_ops;
	box->worker = worker;
	box->units = attr->bytes / TOWI_UNIT;
	box->lines_max = attr->lines;
	box->backlog = attr->backlog;
	if (name)
		memcpy(box->name, name, strlen(name) + 1);
	TAILQ_INIT(&box->lines);
	TAILQ_INIT(&box->spares);
	TAILQ_INIT(&box->waiting);
	box->news.call = (struct towi_call){ .runner = &box->runner, .run = tell_box };
	return box;
}

/* It is known, and nobody finds it so far. */
static int begin_box(struct tow_worker *worker, const char *name,
		     const struct tow_mailbox_attr *attr, struct tow_mailbox **mailbox)
{
	struct tow_mailbox *made = new_box(worker, name, attr);
	int ret;

	if (!made)
		return -ENOMEM;
	ret = identify(made);
	if (ret) {
		free_box(made);
		return ret;
	}
	towi_pump_lock(&worker->pump);
	towi_pump_join(&worker->pump, &made->runner);
	towi_pump_unlock_quietly(&worker->pump);
	*mailbox = made;
	return 0;
}

void towi_box_name(char name[TOWI_LINE_NAME_BYTES], uint64_t number)
{
	snprintf(name, TOWI_LINE_NAME_BYTES, "tow/box/%016" PRIx64, number);
}

int towi_box_make(struct tow_worker *worker, uint32_t backlog, struct tow_mailbox **mailbox)
{
	const struct tow_mailbox_attr attr = { .bytes = OWN_BYTES, .lines = UINT32_MAX,
					       .backlog = backlog > BACKLOG ? backlog : BACKLOG };
	struct tow_mailbox *made;
	int ret;

	ret = begin_box(worker, NULL, &attr, &made);
	if (ret)
		return ret;
	made->own = true;
	towi_box_name(made->name, made->number);
	ret = towi_door_open(made);
	if (ret)
		tow_mailbox_destroy(made);
	else
		*mailbox = made;
	return ret;
}

static int check_name(const char *name)
{
	size_t length = strnlen(name, TOW_MAILBOX_NAME_MAX + 1);

	return length && length <= TOW_MAILBOX_NAME_MAX ? 0 : -EINVAL;
}

TOW_PUBLIC int tow_mailbox_create(struct tow_worker *worker, const char *name,
				  const struct tow_mailbox_attr *attr, struct tow_mailbox **mailbox)
{
	struct tow_mailbox_attr known;
	struct tow_mailbox *made;
	int ret;

	if (!worker || !mailbox || (name && check_name(name)))
		return -EINVAL;
	if (!towi_pump_usable(&worker->pump))
		return -EPERM;
	ret = take_attr(attr, &known);
	if (ret)
		return ret;
	ret = begin_box(worker, name, &known, &made);
	if (ret)
		return ret;
	ret = name ? towi_door_open(made) : 0;
	if (ret)
		tow_mailbox_destroy(made);
	else
		*mailbox = made;
	return ret;
}

/* Is there anything that the other end wants to know, and has not been told for want of room? */
static bool owes(const struct tow_line *line)
{
	const struct towi_note *note;

	STAILQ_FOREACH(note, &line->notes, next)
		if (note->bytes)
			break;
	return note && line->state == TOWI_OPEN;
}

/* One that the program does not have, in no list any more; or NULL. */
static struct tow_line *take_line(struct tow_mailbox *box)
{
	struct towi_lines *lines = TAILQ_EMPTY(&box->spares) ? &box->waiting : &box->spares;
	struct tow_line *line = TAILQ_FIRST(lines);

	if (!line)
		return NULL;
	TAILQ_REMOVE(lines, line, in_box);
	/* Nobody looks at what comes. */
	if (!line->error && !owes(line))
		line->error = -ECANCELED;
	return line;
}

static void end_lines(struct tow_mailbox *box)
{
	struct tow_line *line;

	towi_pump_lock(towi_box_pump(box));
	while ((line = take_line(box))) {
		towi_pump_unlock(towi_box_pump(box));
		towi_line_end(line);
		towi_pump_lock(towi_box_pump(box));
	}
	towi_pump_unlock(towi_box_pump(box));
}

void towi_box_forget(struct tow_line *line)
{
	struct tow_mailbox *box = line->box;

	TAILQ_REMOVE(&box->waiting, line, in_box);
	/* One that is hidden was noted. */
	if (!line->error || line->begun || !line->theirs || !line->slot)
		return;
	box->ended[box->ended_count++ % TOWI_ENDED] =
		(struct towi_ended){ line->number, line->theirs, line->error };
}

int towi_box_ended(const struct tow_mailbox *box, uint64_t number, uint32_t theirs)
{
	const struct towi_ended *ended;

	for (ended = box->ended; ended < box->ended + TOWI_ENDED; ended++)
		if (ended->error && ended->number == number && ended->theirs == theirs)
			return ended->error;
	return 0;
}

int towi_box_drop(struct tow_mailbox *box)
{
	struct tow_line *line;
	int error;

	line = dead_line(box);
	if (!line)
		return 0;
	towi_box_forget(line);
	error = line->error;
	towi_pump_unlock(towi_box_pump(box));
	towi_line_end(line);
	towi_pump_lock(towi_box_pump(box));
	return error;
}

/* In a child. */
static void forget_box(struct tow_mailbox *box)
{
	struct tow_line *line;

	while ((line = take_line(box)))
		towi_line_free(line);
	free_box(box);
}

/* False: the program has lines; else nothing is begun any more. */
static bool begin_end(struct tow_mailbox *box)
{
	bool free;

	towi_pump_lock(towi_box_pump(box));
	free = TAILQ_EMPTY(&box->lines);
	if (free) {
		box->ending = true;
		box->tell = NULL;
	}
	towi_pump_unlock(towi_box_pump(box));
	return free;
}

TOW_PUBLIC int tow_mailbox_destroy(struct tow_mailbox *mailbox)
{
	struct towi_pump *pump;
	bool known;
	int ret;

	if (!mailbox)
		return 0;
	pump = towi_box_pump(mailbox);
	if (!usable(mailbox)) {
		if (towi_at_rest(&pump->lock))
			forget_box(mailbox);
		return -EPERM;
	}
	if (!begin_end(mailbox))
		return -EBUSY;
	/* Nobody finds it any more, and none of its spares is being made. */
	ret = tow_unexport(mailbox->exported);
	towi_pump_lock(pump);
	towi_pump_settle(pump, &mailbox->runner.busy, UINT64_MAX);
	towi_pump_settle(pump, &mailbox->runner.calls, UINT64_MAX);
	towi_pump_unlock(pump);
	end_lines(mailbox);
	towi_pump_lock(pump);
	known = !towi_pump_leave(&mailbox->runner);
	towi_pump_unlock(pump);
	if (!known)
		free_box(mailbox);
	return ret;
}

/* ---- lines ------------------------------------------------------------------ */

/* The program has it from now on. */
static void show(struct tow_line *line)
{
	line->news.call = (struct towi_call){ .runner = &line->runner, .run = tell_line };
	line->shown = true;
	TAILQ_INSERT_TAIL(&line->box->lines, line, in_box);
}

struct tow_line *towi_box_accept(struct tow_mailbox *box)
{
	struct tow_line *line;

	TAILQ_FOREACH(line, &box->waiting, in_box)
		if (line->error ||
		    (line->state == TOWI_OPEN && line->kept_first != line->kept_last))
			break;
	if (line) {
		TAILQ_REMOVE(&box->waiting, line, in_box);
		show(line);
	}
	return line;
}

TOW_PUBLIC int tow_mailbox_connect(struct tow_mailbox *mailbox, struct tow_peer *peer,
				   const char *name, uint32_t timeout_ms, struct tow_line **line)
{
	struct tow_peer_info info = { .size = sizeof(info) };
	struct tow_line *made;
	int ret;

	if (!mailbox || !peer || !name || check_name(name) || !line)
		return -EINVAL;
	if (!usable(mailbox))
		return -EPERM;
	ret = tow_peer_info(peer, &info);
	if (!ret)
		ret = towi_line_make(mailbox, &made);
	if (ret)
		return ret;
	made->peer = peer;
	memcpy(made->incarnation, info.incarnation, sizeof(made->incarnation));
	memcpy(made->name, name, strlen(name) + 1);
	made->until_us = towi_until_ms(timeout_ms);
	towi_pump_lock(towi_box_pump(mailbox));
	ret = towi_door_begin(made);
	if (!ret)
		show(made);
	towi_pump_unlock(towi_box_pump(mailbox));
	if (ret)
		towi_line_end(made);
	else
		*line = made;
	return ret;
}

TOW_PUBLIC int tow_mailbox_accept(struct tow_mailbox *mailbox, struct tow_line **line)
{
	struct tow_line *found;

	if (!mailbox || !line)
		return -EINVAL;
	if (!usable(mailbox))
		return -EPERM;
	towi_pump_lock(towi_box_pump(mailbox));
	found = acceptable(mailbox);
	if (found) {
		TAILQ_REMOVE(&mailbox->waiting, found, in_box);
		show(found);
		*line = found;
	}
	mailbox->news.told = 0;
	towi_box_tell(mailbox);
	towi_pump_unlock(towi_box_pump(mailbox));
	return found ? 1 : 0;
}

/* The next message that the program receives; or NULL. */
static const struct towi_record *first_kept(const struct tow_line *line)
{
	const char *at = line->kept + line->kept_first % line->wire.ours * TOWI_UNIT;

	return line->kept_first == line->kept_last ? NULL : (const void *)at;
}

static uint32_t room_bytes(const struct tow_line *line)
{
	uint32_t units;

	if (line->state != TOWI_OPEN || line->error)
		return 0;
	units = towi_wire_room(&line->wire);
	return units ? units * TOWI_UNIT - (uint32_t)sizeof(struct towi_record) : 0;
}

TOW_PUBLIC int tow_mailbox_info(struct tow_line *line, struct tow_line_info *info)
{
	struct tow_line_info known = { .size = sizeof(known) };
	const struct towi_record *record;

	if (!line || !info || !towi_size_valid(info->size, INFO_SIZE_FIRST))
		return -EINVAL;
	if (!usable(line->box))
		return -EPERM;
	towi_pump_lock(line->runner.pump);
	towi_line_look(line);
	record = first_kept(line);
	if (line->state != TOWI_OPEN)
		known.status = -EINPROGRESS;
	if (line->error)
		known.status = line->error;
	known.room = room_bytes(line);
	known.waiting = record ? record->bytes : 0;
	memcpy(known.incarnation, line->incarnation, sizeof(known.incarnation));
	memcpy(known.name, line->name, sizeof(known.name));
	known.sent = line->wire.composed;
	known.there = line->wire.done;
	towi_pump_unlock(line->runner.pump);
	return towi_give(&known, INFO_SIZE_FIRST, info);
}

TOW_PUBLIC int tow_mailbox_send(struct tow_line *line, const void *data, uint32_t bytes)
{
	const struct towi_record record = { .kind = TOWI_MESSAGE };
	int ret;

	if (!line || !data || !bytes || bytes > TOW_MESSAGE_MAX)
		return -EINVAL;
	if (!usable(line->box))
		return -EPERM;
	towi_pump_lock(line->runner.pump);
	towi_line_look(line);
	ret = towi_line_send(line, &record, data, bytes);
	/* Somebody may still want it for a longer one. */
	if (ret || towi_units(bytes) >= line->wanted)
		line->wanted = ret == -EAGAIN ? towi_units(bytes) : 0;
	line->news.told &= ~(uint32_t)TOW_MAILBOX_ROOM;
	towi_pump_unlock(line->runner.pump);
	return ret;
}

/* Called with the lock. */
static int receive(struct tow_line *line, void *data, uint32_t room, uint32_t *bytes)
{
	const struct towi_record *record = first_kept(line);
	uint32_t units;

	if (!record)
		return line->error;
	*bytes = record->bytes;
	if (record->bytes > room || !data)
		return -EMSGSIZE;
	memcpy(data, record + 1, record->bytes);
	units = towi_units(record->bytes);
	line->kept_first += units;
	towi_wire_taken(&line->wire, units);
	towi_pump_ready(&line->runner);
	return 1;
}

TOW_PUBLIC int tow_mailbox_receive(struct tow_line *line, void *data, uint32_t room,
				   uint32_t *bytes)
{
	int ret;

	if (!line || (!data && room) || !bytes)
		return -EINVAL;
	if (!usable(line->box))
		return -EPERM;
	towi_pump_lock(line->runner.pump);
	towi_line_look(line);
	ret = receive(line, data, room, bytes);
	if (ret <= 0 && ret != -EMSGSIZE)
		line->news.told &= ~(uint32_t)TOW_MAILBOX_CAME;
	towi_pump_unlock(line->runner.pump);
	return ret;
}

/* What of it is so. */
static uint32_t look_at(struct tow_mailbox *box, struct tow_line *line, uint32_t what)
{
	if (!line)
		return acceptable(box) ? what & TOW_MAILBOX_CAME : 0;
	towi_line_look(line);
	return towi_line_what(line) & (what | TOW_MAILBOX_ENDED);
}

TOW_PUBLIC int tow_mailbox_wait(struct tow_mailbox *mailbox, struct tow_line *line, uint32_t what,
				uint32_t timeout_us)
{
	const uint32_t all = TOW_MAILBOX_CAME | TOW_MAILBOX_ROOM | TOW_MAILBOX_ENDED;
	uint64_t until;
	uint32_t found;
	int ret = 0;

	if (!mailbox || !what || what & ~all || (line ? line->box != mailbox :
						       what != TOW_MAILBOX_CAME))
		return -EINVAL;
	if (!usable(mailbox))
		return -EPERM;
	until = towi_until(timeout_us);
	towi_pump_lock(towi_box_pump(mailbox));
	while (!(found = look_at(mailbox, line, what)) && !ret)
		ret = towi_pump_sleep(towi_box_pump(mailbox), until);
	towi_pump_unlock(towi_box_pump(mailbox));
	return found ? (int)found : ret;
}

TOW_PUBLIC int tow_mailbox_close(struct tow_line *line)
{
	struct tow_mailbox *box;

	if (!line)
		return 0;
	box = line->box;
	if (!usable(box)) {
		if (towi_at_rest(&line->runner.pump->lock)) {
			TAILQ_REMOVE(&box->lines, line, in_box);
			towi_line_free(line);
		}
		return -EPERM;
	}
	towi_pump_lock(line->runner.pump);
	TAILQ_REMOVE(&box->lines, line, in_box);
	towi_pump_unlock(line->runner.pump);
	return towi_line_end(line);
}
