// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * How lines begin.
 *
 * A mailbox with a name keeps ends of lines that nobody has, spares, and shows which in its door.
 * Whoever begins a line reads the door and takes the slot of one of them: the kernel lets one at a
 * time have it, so that is the claim.  If there is nothing in its ring, nobody had it before.  (Who
 * had it may have died, and its slot is free again; but its first record is there, as it was
 * counted.)  The first record says whose the line is, and messages may follow, whether the other
 * process looks or not.  When it does, it finds the other end by that.
 *
 * What waits for another node is done in errands; reading is not, as it is the queue's.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "../core/queue.h"
#include "line.h"

#define DOOR_MAGIC	0x726f6f64776f74ULL	/* "towdoor", as it is in memory */
#define HELLO_MAGIC	0x6f6c6c6568776f74ULL	/* "towhello" */
#define VERSION		1U
/* How long whoever finds no spare waits until he looks again, at first and at last. */
#define PAUSE_US	1000U
#define PAUSE_MAX_US	128000U
/* How long what whoever has begun a line says that he has is looked for, if the node is busy. */
#define PATIENCE_US	10000000U

static struct tow_line *line_of_errand(const struct towi_errand *errand)
{
	return (struct tow_line *)errand->runner;
}

static bool units_make_sense(uint32_t units)
{
	return units >= TOW_LINE_BYTES_MIN / TOWI_UNIT && units <= TOW_LINE_BYTES_MAX / TOWI_UNIT &&
	       !(units & (units - 1));
}

/* ---- a line that this end begins -------------------------------------------- */

static void begin(struct tow_line *line, enum towi_door_step step,
		  int (*run)(struct towi_errand *errand))
{
	int ret;

	line->step = step;
	line->errand.run = run;
	ret = towi_pump_errand(&line->errand);
	if (ret)
		towi_line_fail(line, ret);
}

static bool is_late(const struct tow_line *line)
{
	return atomic_load(&line->given_up) || towi_until(0) >= line->until_us;
}

/* Of an errand: what may be another time, until it is late. */
static int once_more(const struct tow_line *line, int ret)
{
	switch (ret) {
	case -ENOENT:
	case -EBUSY:
	case -EAGAIN:
		return is_late(line) ? -ETIMEDOUT : -EAGAIN;
	case -ESTALE:
		return is_late(line) ? ret : -EAGAIN;
	default:
		return ret;
	}
}

static int find(struct tow_line *line, const char *name, uint32_t rights,
		struct tow_remote **remote)
{
	uint64_t before = towi_now_ns();
	int ret;

	if (*remote)
		return 0;
	/* Errands are run one after the other: others wait for this one. */
	if (atomic_load(&line->given_up))
		return -ECANCELED;
	ret = tow_resolve(line->peer, name, rights, 0, remote);
	if (!ret && !line->looked_ns)
		line->looked_ns = before;
	return ret;
}

static int get_channel(struct tow_line *line)
{
	if (line->channel)
		return 0;
	return tow_channel_get(line->runner.pump->queue, line->peer, TOW_CHANNEL_ANY,
			       &line->channel);
}

static int find_door(struct towi_errand *errand)
{
	struct tow_line *line = line_of_errand(errand);
	int ret = get_channel(line);

	if (line->door_stale) {
		tow_remote_release(line->door);
		line->door = NULL;
		line->door_stale = false;
	}
	if (!ret)
		ret = find(line, line->name, TOW_RIGHT_READ, &line->door);
	/* Nor will it be. */
	if (ret == -ENOENT && line->told)
		return -ESTALE;
	if (!ret && tow_remote_bytes(line->door) < sizeof(struct towi_door))
		ret = -EPROTO;
	return once_more(line, ret);
}

static void let_go(struct tow_line *line)
{
	tow_remote_release(line->range);
	tow_remote_release(line->other);
	line->range = NULL;
	line->other = NULL;
}

/* 0: that one is this end's; -EBUSY and the like: it is somebody else's, or nobody's any more. */
static int claim_one(struct tow_line *line, uint32_t index)
{
	char name[TOWI_LINE_NAME_BYTES];
	int ret;

	towi_line_name(name, line->number, index, "!");
	ret = find(line, name, TOW_RIGHT_NOTIFY, &line->other);
	if (ret)
		return ret;
	towi_line_name(name, line->number, index, "");
	ret = find(line, name, TOW_RIGHT_READ | TOW_RIGHT_WRITE, &line->range);
	if (!ret && tow_remote_bytes(line->range) <
		    TOWI_RING_AT + towi_ring_bytes(line->seen.units))
		ret = -EPROTO;
	if (ret)
		let_go(line);
	return ret;
}

/* Any of those that the door says nobody has; the first by chance, so that not all try the same. */
static int claim(struct towi_errand *errand)
{
	struct tow_line *line = line_of_errand(errand);
	uint32_t i, from, index;
	int ret;

	let_go(line);
	ret = towi_line_outbox(line, line->seen.units);
	if (ret)
		return ret;
	from = (uint32_t)towi_now_ns();
	for (i = 0; i < TOW_BACKLOG_MAX; i++) {
		index = line->seen.spares[(from + i) % TOW_BACKLOG_MAX];
		if (!index)
			continue;
		ret = claim_one(line, index);
		if (!ret)
			return 0;
		if (ret != -EBUSY && ret != -ENOENT && ret != -ESTALE)
			return once_more(line, ret);
	}
	return is_late(line) ? -ETIMEDOUT : -EBUSY;
}

/* The door is read again, a little later each time. */
static void try_later(struct tow_line *line)
{
	begin(line, TOWI_FIND_DOOR, find_door);
	line->pause_us = line->pause_us ? 2 * line->pause_us : PAUSE_US;
	if (line->pause_us > PAUSE_MAX_US)
		line->pause_us = PAUSE_MAX_US;
	line->errand.due_us = towi_until(line->pause_us);
}

static void errand_done(struct towi_errand *errand, int ret)
{
	struct tow_line *line = line_of_errand(errand);

	line->found_ns = line->looked_ns;
	if (line->error)
		return;
	if (line->step == TOWI_CLAIM && ret == -EBUSY)
		try_later(line);
	else if (ret)
		towi_line_fail(line, ret);
	else
		line->step = line->step == TOWI_FIND_DOOR ? TOWI_READ_DOOR :
							    TOWI_LOOK_WHETHER_USED;
}

static void take_door(struct tow_line *line)
{
	memcpy(&line->seen, line->desk + TOWI_READ_AT, sizeof(line->seen));
	if (line->seen.magic != DOOR_MAGIC || line->seen.version != VERSION ||
	    !units_make_sense(line->seen.units)) {
		towi_line_fail(line, -EPROTO);
		return;
	}
	line->number = line->seen.number;
	begin(line, TOWI_CLAIM, claim);
}

static void say_hello(struct tow_line *line)
{
	const struct towi_record record = { .kind = TOWI_HELLO };
	struct tow_mailbox *box = line->box;
	struct towi_hello hello = {
		.magic = HELLO_MAGIC,
		.version = VERSION,
		.units = box->units,
		.number = box->number,
		.index = line->index,
		.name_bytes = (uint32_t)strlen(box->name),
	};

	memcpy(hello.incarnation, box->incarnation, sizeof(hello.incarnation));
	memcpy(hello.name, box->name, hello.name_bytes);
	/* The ring is empty. */
	towi_wire_put(&line->wire, &record, &hello, sizeof(hello));
	towi_line_open(line);
}

static void look_whether_used(struct tow_line *line)
{
	static const char nothing[TOWI_UNIT];

	if (memcmp(line->desk + TOWI_READ_AT, nothing, sizeof(nothing)))
		try_later(line);
	else
		say_hello(line);
}

static void read_ended(struct towi_op *op, int status)
{
	struct tow_line *line = (struct tow_line *)op->runner;

	/* Another one of that name may come. */
	line->door_stale = status == -ESTALE;
	if (line->error)
		return;
	if (status == -ESTALE)
		try_later(line);
	else if (status)
		towi_line_fail(line, status);
	else if (line->step == TOWI_READ_DOOR)
		take_door(line);
	else
		look_whether_used(line);
}

static void read_remote(struct tow_line *line, struct tow_remote *remote, uint64_t at,
			uint64_t bytes)
{
	struct tow_region *region;
	struct tow_sqe *sqe;
	uint64_t offset;

	if (towi_line_place(line, line->desk + TOWI_READ_AT, &region, &offset))
		return;
	sqe = towi_pump_entry(&line->runner);
	if (!sqe)
		return;
	tow_prep_read(sqe, line->channel, region, offset, remote, at, bytes);
	towi_pump_begun(sqe, &line->read);
}

void towi_door_go_on(struct tow_line *line)
{
	if (line->read.busy)
		return;
	if (line->step == TOWI_READ_DOOR)
		read_remote(line, line->door, 0, sizeof(struct towi_door));
	else if (line->step == TOWI_LOOK_WHETHER_USED)
		read_remote(line, line->range, TOWI_RING_AT, TOWI_UNIT);
}

int towi_door_begin(struct tow_line *line)
{
	line->begun = true;
	line->state = TOWI_OPENING;
	line->runner.peer = towi_peer_number(line->peer);
	line->read = (struct towi_op){ .ended = read_ended, .runner = &line->runner };
	line->errand.done = errand_done;
	begin(line, TOWI_FIND_DOOR, find_door);
	return line->error;
}

/* ---- a line that others have begun ------------------------------------------ */

/* What whoever has begun it has said that he has. */
static int find_other(struct towi_errand *errand)
{
	struct tow_line *line = line_of_errand(errand);
	const struct towi_queue *queue = towi_queue_of(line->runner.pump->queue);
	uint64_t inbox = TOWI_RING_AT + towi_ring_bytes(line->seen.units);
	char name[TOWI_LINE_NAME_BYTES];
	int ret = 0;

	if (!line->own_peer)
		ret = towi_peer_named(queue->dev, line->incarnation, &line->own_peer);
	line->peer = line->own_peer;
	if (!ret)
		ret = get_channel(line);
	towi_line_name(name, line->number, line->theirs, "!");
	if (!ret)
		ret = find(line, name, TOW_RIGHT_NOTIFY, &line->other);
	towi_line_name(name, line->number, line->theirs, "");
	if (!ret)
		ret = find(line, name, TOW_RIGHT_WRITE, &line->range);
	if (!ret && tow_remote_bytes(line->range) < inbox)
		ret = -EPROTO;
	if (!ret)
		ret = towi_line_outbox(line, line->seen.units);
	if (ret == -EAGAIN && is_late(line))
		ret = -ETIMEDOUT;
	/* It was there when it said so. */
	return ret == -ENOENT ? -ESTALE : ret;
}

static void found_other(struct towi_errand *errand, int ret)
{
	struct tow_line *line = line_of_errand(errand);

	line->found_ns = line->looked_ns;
	/* That was told, and what the line had may be gone; its mailbox, too, if the device is. */
	if (line->error)
		return;
	if (line->own_peer)
		line->runner.peer = towi_peer_number(line->own_peer);
	if (ret) {
		towi_line_fail(line, ret);
		return;
	}
	towi_line_open(line);
	towi_box_tell(line->box);
}

static bool name_makes_sense(const struct towi_hello *hello)
{
	uint32_t i;

	if (hello->name_bytes > TOW_MAILBOX_NAME_MAX)
		return false;
	for (i = 0; i < hello->name_bytes; i++)
		if ((unsigned char)hello->name[i] < ' ' || hello->name[i] == 127)
			return false;
	return true;
}

bool towi_door_hello(struct tow_line *line, const struct towi_record *record, const void *data)
{
	struct towi_hello hello;

	if (record->bytes != sizeof(hello))
		return false;
	memcpy(&hello, data, sizeof(hello));
	if (hello.magic != HELLO_MAGIC || hello.version != VERSION ||
	    !units_make_sense(hello.units) || !name_makes_sense(&hello))
		return false;
	memcpy(line->name, hello.name, hello.name_bytes);
	memcpy(line->incarnation, hello.incarnation, sizeof(line->incarnation));
	line->number = hello.number;
	line->theirs = hello.index;
	line->seen.units = hello.units;
	line->state = TOWI_OPENING;
	line->until_us = towi_until(PATIENCE_US);
	line->errand.run = find_other;
	line->errand.done = found_other;
	return !towi_pump_errand(&line->errand);
}

/* ---- spares ----------------------------------------------------------------- */

/* Nobody has it, so far. */
static void add_spare(struct tow_line *line)
{
	struct tow_mailbox *box = line->box;

	for (line->place = 0; box->shown[line->place]; line->place++)
		;
	box->shown[line->place] = true;
	TAILQ_INSERT_TAIL(&box->spares, line, in_box);
	box->spares_count++;
	/* Others read it at any time. */
	__atomic_store_n(&box->door->spares[line->place], line->index, __ATOMIC_RELEASE);
	towi_pump_ready(&line->runner);
}

void towi_door_taken(struct tow_line *line)
{
	struct tow_mailbox *box = line->box;

	__atomic_store_n(&box->door->spares[line->place], 0, __ATOMIC_RELEASE);
	box->shown[line->place] = false;
	TAILQ_REMOVE(&box->spares, line, in_box);
	box->spares_count--;
	TAILQ_INSERT_TAIL(&box->waiting, line, in_box);
	line->state = TOWI_OPENING;
	towi_box_tell(box);
	towi_door_refill(box);
}

static int make_spare(struct towi_errand *errand)
{
	struct tow_mailbox *box = (struct tow_mailbox *)errand->runner;
	int ret = towi_line_make(box, &box->made);

	/* It is tried again, but the mailbox may be ended meanwhile. */
	return ret == -EAGAIN ? -EBUSY : ret;
}

static void made_spare(struct towi_errand *errand, int ret)
{
	struct tow_mailbox *box = (struct tow_mailbox *)errand->runner;

	box->making = false;
	box->unmade = ret;
	/* By the clock. */
	if (ret)
		return;
	add_spare(box->made);
	towi_door_refill(box);
}

void towi_door_refill(struct tow_mailbox *box)
{
	if (!box->door || box->making || box->ending || box->spares_count >= box->backlog ||
	    box->count == box->lines_max)
		return;
	box->errand = (struct towi_errand){ .runner = &box->runner, .run = make_spare,
					    .done = made_spare };
	box->making = !towi_pump_errand(&box->errand);
}

/* Nobody makes spares for it until the first ones are there. */
static int make_door(struct tow_mailbox *box, struct tow_region **region, uint64_t *offset)
{
	const struct towi_door door = { .magic = DOOR_MAGIC, .version = VERSION,
					.units = box->units, .number = box->number };
	struct tow_arena *arena = box->worker->words;
	char *memory;
	int ret;

	ret = towi_take_memory(arena, sizeof(door), &memory);
	if (ret)
		return ret;
	memcpy(memory, &door, sizeof(door));
	towi_pump_lock(towi_box_pump(box));
	box->making = true;
	box->door = (struct towi_door *)(void *)memory;
	towi_pump_unlock_plainly(towi_box_pump(box));
	return tow_arena_find(arena, memory, region, offset) ? -ENOSPC : 0;
}

static int make_spares(struct tow_mailbox *box)
{
	struct tow_line *line;
	uint32_t i;
	int ret;

	for (i = 0; i < box->backlog; i++) {
		ret = towi_line_make(box, &line);
		if (ret)
			return ret;
		towi_pump_lock(towi_box_pump(box));
		add_spare(line);
		towi_pump_unlock(towi_box_pump(box));
	}
	towi_pump_lock(towi_box_pump(box));
	box->making = false;
	towi_door_refill(box);
	towi_pump_unlock(towi_box_pump(box));
	return 0;
}

int towi_door_open(struct tow_mailbox *box)
{
	struct tow_region *region;
	uint64_t offset;
	int ret;

	ret = make_door(box, &region, &offset);
	if (!ret)
		ret = make_spares(box);
	if (ret)
		return ret;
	return tow_export(region, offset, sizeof(*box->door), box->name, TOW_RIGHT_READ,
			  &box->exported);
}
