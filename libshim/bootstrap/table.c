// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * All ranks tell each other something.
 *
 * Rank 0 has a mailbox, and each other rank a line with it.  In a round all tell rank 0, which then
 * tells them what all have.  What it says is in their memory before its call returns, so it may
 * compute, or end, and they learn it all the same.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../pump/line.h"
#include "inside.h"

#define VERSION		3U
#define ARENA_BYTES	((uint64_t)2 << 20)
/* Of others than rank 0. */
#define ENTRIES		16U
/* How long a rank whose time is over waits for rank 0 to say who is missing. */
#define ANSWER_US	1000000U
/* How long rank 0, when something went wrong, tries to tell others. */
#define GOODBYE_US	5000000U

/* A message's tag. */
enum what {
	JOIN	= 1,	/* to rank 0, the first: whose line it is, and of how many ranks */
	TELL	= 2,	/* to rank 0: what this rank tells in a round */
	LATE	= 3,	/* to rank 0: this rank's time for the round is over */
	LEAVE	= 4,	/* to rank 0: this rank takes part in nothing any more */
	ALL	= 5,	/* from rank 0: what some ranks have told, in the order of ranks */
	FAILED	= 6	/* from rank 0: it is over */
};

struct word {
	uint32_t rank;		/* JOIN: whose; ALL: the first; FAILED: who is to blame */
	uint32_t number;	/* JOIN: of ranks; FAILED: of an error */
	uint64_t round;		/* JOIN: VERSION */
};

/* What a message has room for besides. */
#define DATA_BYTES	(TOW_MESSAGE_MAX - sizeof(struct word))

/* At rank 0: who has joined. */
struct caller {
	struct towi_port port;		/* first: of that line, for its end and its room */
	struct towi_table *table;
	TAILQ_ENTRY(caller) next;
	uint32_t rank;			/* TOW_NO_RANK: it was refused */
	int error;			/* what it is to be told, or 0 */
	uint32_t given;			/* what so many ranks have told in this round it was sent */
	uint64_t round;			/* that it has told in last, and what */
	size_t bytes;
	unsigned char data[TOW_GROUP_GATHER_MAX];
};

struct towi_table {
	struct towi_port port;		/* first: the only one that others send to */
	struct tow_peer *root;		/* NULL: this is rank 0 */
	uint32_t rank, ranks;
	int error;			/* what has ended it, */
	uint32_t blamed;		/* and whose fault it is */
	bool told;			/* by rank 0 */
	bool over;			/* that was returned */
	struct tow_arena *arena;
	struct tow_worker *worker;
	struct tow_mailbox *box;
	uint64_t round;
	unsigned char *all;		/* what ranks tell in it, */
	size_t bytes;			/* and how much each does */
	uint32_t known;			/* so many have told, and rank KNOWN has not */
	struct tow_line *line;		/* to rank 0 */
	/* Rank 0. */
	char met_name[TOW_EXPORT_NAME_MAX + 1];
	struct tow_exported *met;	/* by that name, when all have met */
	uint64_t late;			/* the last round for which somebody's time was over */
	TAILQ_HEAD(, caller) callers;
	struct caller *members[];	/* by rank */
};

static struct towi_pump *pump_of(const struct towi_table *table)
{
	return &table->worker->pump;
}

/* Until something may have happened: 0; -ETIMEDOUT; -EINTR: the caller wants to end; -ENODEV. */
static int sleep_until(struct towi_table *table, uint64_t until)
{
	int ret = towi_pump_sleep(pump_of(table), until);

	if (ret)
		return ret;
	/* A signal may have come elsewhere than in a wait. */
	towi_pump_unlock(pump_of(table));
	ret = towi_goes_on() ? 0 : -EINTR;
	towi_pump_lock(pump_of(table));
	return ret;
}

/* The first error counts. */
static void fail(struct towi_table *table, int error, uint32_t blamed)
{
	if (table->error)
		return;
	table->error = error;
	table->blamed = blamed;
}

static int send_word(struct towi_port *port, enum what what, const struct word *word,
		     const void *data, size_t bytes)
{
	/* The other mailbox has one port, too. */
	const struct towi_record record = {
		.kind = TOWI_MESSAGE, .port = 1, .generation = 1, .tag = (uint8_t)what,
	};
	unsigned char message[TOW_MESSAGE_MAX];

	memcpy(message, word, sizeof(*word));
	if (bytes)
		memcpy(message + sizeof(*word), data, bytes);
	return towi_port_send(port, &record, message, (uint32_t)(sizeof(*word) + bytes));
}

/* What was sent is in the other end's memory, or never will be. */
static bool is_there(const struct towi_port *port)
{
	return !port->line || towi_wire_idle(&port->line->wire);
}

/* ---- rank 0: who has joined ------------------------------------------------- */

/* As far as there is room: why it is over, or else what all have told. */
static void answer(struct towi_port *port)
{
	struct caller *caller = (struct caller *)port;
	const struct towi_table *table = caller->table;
	struct word word = { .rank = table->blamed, .number = (uint32_t)-caller->error };
	uint32_t left, count, most = UINT32_MAX;

	if (table->bytes)
		most = (uint32_t)(DATA_BYTES / table->bytes);
	if (caller->error && !send_word(port, FAILED, &word, NULL, 0))
		caller->error = 0;
	while (!caller->error && (left = table->ranks - caller->given)) {
		count = left < most ? left : most;
		word = (struct word){ .rank = caller->given, .round = table->round };
		if (send_word(port, ALL, &word, table->all + caller->given * table->bytes,
			      count * table->bytes))
			break;
		caller->given += count;
	}
}

static void refuse(struct caller *caller, int error)
{
	caller->error = error;
	answer(&caller->port);
}

static bool may_come_again(int error)
{
	return error == -ESTALE || error == -ECONNRESET || error == -ETIMEDOUT || error == -EPROTO;
}

static void caller_ended(struct towi_port *port, int error)
{
	struct caller *caller = (struct caller *)port;
	struct towi_table *table = caller->table;

	if (caller->rank != TOW_NO_RANK) {
		table->members[caller->rank] = NULL;
		if (towi_is_own_error(error))
			fail(table, error, table->rank);
		/* One that meets, and has told nothing, may come again. */
		else if (table->met || caller->round || !may_come_again(error))
			fail(table, error, caller->rank);
	}
	TAILQ_REMOVE(&table->callers, caller, next);
	free(caller);
}

/*
 * Where somebody is that rank already two jobs have one name, or one was started twice.  While ranks
 * still meet nobody can say which is whose, so nobody goes on; ranks that have met are left alone.
 */
static void find_rank(struct towi_table *table, struct caller *caller, const struct word *word)
{
	if (word->round != VERSION || word->number != table->ranks || word->rank >= table->ranks) {
		refuse(caller, -EPROTO);
	} else if (!word->rank || table->members[word->rank]) {
		if (!table->met)
			fail(table, -EEXIST, TOW_NO_RANK);
		refuse(caller, -EEXIST);
	} else {
		caller->rank = word->rank;
		table->members[word->rank] = caller;
	}
}

static void take_join(struct towi_table *table, struct tow_line *line, const struct word *word)
{
	struct caller *caller = calloc(1, sizeof(*caller));

	if (!caller) {
		towi_line_fail(line, -ENOMEM);
		return;
	}
	caller->port.room = answer;
	caller->port.ended = caller_ended;
	caller->table = table;
	caller->rank = TOW_NO_RANK;
	caller->given = table->ranks;
	towi_port_attach(&caller->port, line);
	TAILQ_INSERT_TAIL(&table->callers, caller, next);
	find_rank(table, caller, word);
}

static void hear_caller(struct towi_table *table, struct tow_line *line, uint8_t what,
			const struct word *word, const void *data, size_t bytes)
{
	struct caller *caller = (struct caller *)LIST_FIRST(&line->ports);

	/* Whoever was refused may not know yet. */
	if (caller && caller->rank == TOW_NO_RANK)
		return;
	if (!caller && what == JOIN) {
		take_join(table, line, word);
	} else if (!caller) {
		towi_line_fail(line, -EPROTO);
	} else if (what == TELL && word->round == caller->round + 1 &&
		   bytes <= sizeof(caller->data)) {
		caller->round = word->round;
		caller->bytes = bytes;
		memcpy(caller->data, data, bytes);
	} else if (what == LATE) {
		table->late = word->round;
	} else {
		fail(table, what == LEAVE ? -ECANCELED : -EPROTO, caller->rank);
	}
}

/* ---- rank 0: a round -------------------------------------------------------- */

/* Whoever has told, in the order of ranks: how many. */
static uint32_t collect_some(struct towi_table *table)
{
	const struct caller *caller;

	for (; table->known < table->ranks; table->known++) {
		caller = table->members[table->known];
		if (!caller || caller->round != table->round)
			break;
		if (caller->bytes != table->bytes)
			fail(table, -EPROTO, caller->rank);
		else if (table->bytes)
			memcpy(table->all + table->known * table->bytes, caller->data,
			       table->bytes);
	}
	return table->known;
}

/*
 * A line that has ended goes: its other end hears of that, others may come.  What rank 0 lacks to
 * answer by it lacks for the next one, too.  Whether one has.
 */
static bool drop_line(struct towi_table *table)
{
	int error = towi_box_drop(table->box);

	if (!table->met && towi_is_own_error(error))
		fail(table, error, table->rank);
	return error;
}

/* Somebody is missing who cannot come, as there is no spare for him, nor will be. */
static bool lacks_spares(struct towi_table *table)
{
	const struct tow_mailbox *box = table->box;
	const struct tow_line *line;

	if (table->met || table->members[table->known] || box->spares_count || box->making)
		return false;
	/* Whoever has begun one may be about to say that it is him. */
	TAILQ_FOREACH(line, &box->waiting, in_box)
		if (!line->error && LIST_EMPTY(&line->ports))
			return false;
	if (towi_is_own_error(box->unmade))
		fail(table, box->unmade, table->rank);
	return table->error;
}

/* Until all have. */
static int collect(struct towi_table *table, uint64_t until)
{
	int ret = 0;

	towi_pump_look(pump_of(table));
	while (collect_some(table) < table->ranks && !table->error) {
		if (ret == -ETIMEDOUT || table->late == table->round)
			fail(table, -ETIMEDOUT, table->known);
		else if (ret)
			fail(table, ret, table->rank);
		else if (!drop_line(table) && !lacks_spares(table))
			ret = sleep_until(table, until);
	}
	return table->error;
}

/* Whoever comes now is none of them, and finds that out though rank 0 computes. */
static int end_meeting(struct towi_table *table)
{
	struct tow_region *region;
	uint64_t offset;
	int ret = tow_arena_find(table->arena, table->box->door, &region, &offset);

	if (!ret)
		ret = tow_export(region, offset, 1, table->met_name, TOW_RIGHT_READ, &table->met);
	if (ret)
		fail(table, ret, table->rank);
	return ret;
}

/* A rank that was not told all so far, or, if that is an error, one that was refused; or NULL. */
static const struct caller *find_ignorant(const struct towi_table *table, int error)
{
	const struct caller *caller;

	TAILQ_FOREACH(caller, &table->callers, next)
		if ((error || caller->rank != TOW_NO_RANK) &&
		    (caller->error || caller->given < table->ranks || !is_there(&caller->port)))
			break;
	return caller;
}

/* Ranks are told that error, or what all have told. */
static int tell(struct towi_table *table, int error, uint64_t until)
{
	const struct caller *late;
	struct caller *caller;
	int ret = 0;

	TAILQ_FOREACH(caller, &table->callers, next) {
		if (!error && caller->rank == TOW_NO_RANK)
			continue;
		caller->given = error ? table->ranks : 0;
		caller->error = error;
		answer(&caller->port);
	}
	while ((late = find_ignorant(table, error)) && !ret)
		ret = sleep_until(table, until);
	if (!late)
		return 0;
	fail(table, ret, ret == -ETIMEDOUT ? late->rank : table->rank);
	return table->error;
}

static int gather_here(struct towi_table *table, const void *mine, uint64_t until)
{
	int ret;

	if (table->bytes)
		memcpy(table->all, mine, table->bytes);
	table->known = 1;
	ret = collect(table, until);
	if (!ret && !table->met)
		ret = end_meeting(table);
	if (!ret)
		ret = tell(table, 0, until);
	/* Somebody was not told, for want of something. */
	if (!ret && table->blamed == table->rank)
		ret = table->error;
	/* The program may end at once; and what this rank lacks others need not know. */
	if (ret)
		tell(table, table->blamed == table->rank ? -ECANCELED : ret,
		     towi_until(GOODBYE_US));
	while (ret && drop_line(table))
		;
	return ret;
}

/* ---- others ----------------------------------------------------------------- */

static void no_more(struct towi_port *port)
{
	(void)port;
}

static void line_ended(struct towi_port *port, int error)
{
	struct towi_table *table = (struct towi_table *)port;
	bool gone = error == -ESTALE || error == -ECONNRESET || error == -ETIMEDOUT;

	/* Rank 0's is of no line: anybody could say that it has ended. */
	if (table->root)
		fail(table, error, gone ? 0 : TOW_NO_RANK);
}

static void hear_root(struct towi_table *table, uint8_t what, const struct word *word,
		      const void *data, size_t bytes)
{
	uint64_t count = table->bytes ? bytes / table->bytes : table->ranks;
	int64_t error = -(int64_t)word->number;

	if (what == FAILED) {
		table->told = table->told || !table->error;
		fail(table, towi_is_error(error) ? (int)error : -EPROTO,
		     word->rank < table->ranks ? word->rank : TOW_NO_RANK);
	} else if (what == ALL && !table->error && word->round == table->round &&
		   word->rank == table->known && count && count <= table->ranks - table->known &&
		   bytes == count * table->bytes) {
		if (bytes)
			memcpy(table->all + table->known * table->bytes, data, bytes);
		table->known += (uint32_t)count;
	} else {
		fail(table, -EPROTO, 0);
	}
}

/* As soon as there is room; that the line has ended is known by then, too. */
static int say(struct towi_table *table, enum what what, const struct word *word, const void *data,
	       size_t bytes, uint64_t until)
{
	int ret = -EAGAIN, slept = 0;

	while (!slept && !table->error && ret) {
		ret = send_word(&table->port, what, word, data, bytes);
		if (ret && !table->error)
			slept = sleep_until(table, until);
	}
	return slept;
}

/* If there is room. */
static void say_leave(struct towi_table *table)
{
	static const struct word none;

	send_word(&table->port, LEAVE, &none, NULL, 0);
}

static int gather_there(struct towi_table *table, const void *mine, uint64_t until)
{
	const struct word word = { .round = table->round };
	bool late = false;
	int ret;

	table->known = 0;
	ret = say(table, TELL, &word, mine, table->bytes, until);
	while (!ret && !table->error && table->known < table->ranks) {
		ret = sleep_until(table, until);
		if (ret != -ETIMEDOUT || late)
			continue;
		/* It knows who is missing. */
		late = true;
		until = towi_until(ANSWER_US);
		ret = say(table, LATE, &word, NULL, 0, until);
	}
	if (table->known == table->ranks)
		return 0;
	/* The program may do something else for long before it ends its group. */
	if (ret == -EINTR)
		say_leave(table);
	fail(table, ret, ret == -ETIMEDOUT ? 0 : TOW_NO_RANK);
	return table->error;
}

/* ---- all -------------------------------------------------------------------- */

static void came(struct towi_port *port, struct tow_line *line, const struct towi_record *record,
		 const void *data)
{
	struct towi_table *table = (struct towi_table *)port;
	struct word word;

	if (record->bytes < sizeof(word)) {
		towi_line_fail(line, -EPROTO);
		return;
	}
	memcpy(&word, data, sizeof(word));
	data = (const char *)data + sizeof(word);
	if (table->root)
		hear_root(table, record->tag, &word, data, record->bytes - sizeof(word));
	else
		hear_caller(table, line, record->tag, &word, data, record->bytes - sizeof(word));
}

int towi_table_gather(struct towi_table *table, const void *mine, size_t bytes, void *all,
		      uint64_t until, uint32_t *blamed)
{
	int ret = table->error;

	if (!table->over) {
		towi_pump_lock(pump_of(table));
		table->round++;
		table->all = all;
		table->bytes = bytes;
		ret = table->root ? gather_there(table, mine, until) :
				    gather_here(table, mine, until);
		table->over = ret;
		towi_pump_unlock(pump_of(table));
	}
	/* Who was interrupted is to blame for others only. */
	if (ret && ret != -EINTR)
		*blamed = table->blamed;
	return ret;
}

/* ---- life ------------------------------------------------------------------- */

/* Called with the lock: until rank 0 has it.  What that says meanwhile is the first round's. */
static int say_who(struct towi_table *table, uint64_t until)
{
	const struct word word = { table->rank, table->ranks, VERSION };
	int ret;

	towi_port_attach(&table->port, table->line);
	fail(table, table->line->error, TOW_NO_RANK);
	ret = say(table, JOIN, &word, NULL, 0, until);
	while (!ret && !table->error && !is_there(&table->port))
		ret = sleep_until(table, until);
	return ret || table->told ? ret : table->error;
}

/* All have met, and this is none of them: -EEXIST. */
static int look_whether_met(const struct towi_table *table)
{
	struct tow_remote *met;
	int ret = tow_resolve(table->root, table->met_name, TOW_RIGHT_READ, 0, &met);

	if (ret)
		return ret == -ENOENT ? 0 : ret;
	tow_remote_release(met);
	return -EEXIST;
}

static int join(struct towi_table *table, const char *name, uint64_t until)
{
	int ret = look_whether_met(table);

	if (!ret)
		ret = tow_mailbox_connect(table->box, table->root, name, towi_left_ms(until),
					  &table->line);
	if (ret)
		return ret;
	towi_pump_lock(pump_of(table));
	ret = say_who(table, until);
	towi_pump_unlock(pump_of(table));
	/* Rank 0 looks at who has joined until all have met, and may not afterwards. */
	return ret || table->told ? ret : look_whether_met(table);
}

static int make_box(struct towi_table *table, const char *name)
{
	struct tow_mailbox_attr attr = { .size = sizeof(attr), .bytes = TOW_LINE_BYTES_MIN };
	int ret;

	/* As many as come at once; and others come, who are refused. */
	attr.backlog = table->ranks < TOW_BACKLOG_MAX ? table->ranks : TOW_BACKLOG_MAX;
	attr.lines = table->ranks + TOW_BACKLOG_MAX;
	ret = tow_mailbox_create(table->worker, name, &attr, &table->box);
	if (ret)
		return ret;
	towi_pump_lock(pump_of(table));
	table->port = (struct towi_port){ .came = came, .room = no_more, .ended = line_ended };
	ret = towi_port_open(table->box, &table->port);
	towi_pump_unlock(pump_of(table));
	return ret;
}

static int make(struct towi_table *table, struct tow_device *dev, const char *name, uint64_t until)
{
	const struct tow_arena_attr arena = { .size = sizeof(arena), .region_bytes = ARENA_BYTES };
	struct tow_worker_attr attr = { .size = sizeof(attr), .entries = ENTRIES };
	char full[TOW_EXPORT_NAME_MAX + 1];
	int ret;

	/* Twice as many may wait. */
	if (!table->root)
		attr.entries = table->ranks + TOW_BACKLOG_MAX;
	if (attr.entries > TOW_SQ_ENTRIES_MAX)
		attr.entries = TOW_SQ_ENTRIES_MAX;
	snprintf(full, sizeof(full), "towline/group/%s", name);
	snprintf(table->met_name, sizeof(table->met_name), "towline/met/%s", name);
	ret = tow_arena_create(dev, &arena, &table->arena);
	if (!ret)
		ret = tow_worker_create(dev, table->arena, &attr, &table->worker);
	if (!ret)
		ret = make_box(table, table->root ? NULL : full);
	return ret || !table->root ? ret : join(table, full, until);
}

static void free_table(struct towi_table *table)
{
	struct caller *caller, *after;
	struct tow_line *line;

	while (table->box && tow_mailbox_accept(table->box, &line) == 1)
		tow_mailbox_close(line);
	tow_mailbox_close(table->line);
	if (table->port.box && towi_pump_usable(pump_of(table))) {
		towi_pump_lock(pump_of(table));
		towi_port_close(&table->port);
		towi_pump_unlock(pump_of(table));
	}
	tow_unexport(table->met);
	tow_mailbox_destroy(table->box);
	tow_worker_destroy(table->worker);
	tow_arena_destroy(table->arena);
	tow_peer_release(table->root);
	/* Of lines that were never open. */
	for (caller = TAILQ_FIRST(&table->callers); caller; caller = after) {
		after = TAILQ_NEXT(caller, next);
		free(caller);
	}
	free(table);
}

int towi_table_create(struct tow_device *dev, struct tow_peer *root, const char *name,
		      uint32_t rank, uint32_t ranks, uint64_t until, struct towi_table **table)
{
	struct towi_table *made = calloc(1, sizeof(*made) + ranks * sizeof(struct caller *));
	int ret;

	if (!made) {
		tow_peer_release(root);
		return -ENOMEM;
	}
	made->root = root;
	made->rank = rank;
	made->ranks = ranks;
	made->blamed = TOW_NO_RANK;
	TAILQ_INIT(&made->callers);
	ret = make(made, dev, name, until);
	if (ret)
		free_table(made);
	else
		*table = made;
	return ret;
}

void towi_table_destroy(struct towi_table *table)
{
	if (!table)
		return;
	if (table->root && towi_pump_usable(pump_of(table))) {
		towi_pump_lock(pump_of(table));
		say_leave(table);
		towi_pump_unlock(pump_of(table));
	}
	free_table(table);
}
