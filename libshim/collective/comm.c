// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Communicators: a pump for all that its collectives send and wait for.
 *
 * Whoever asks how a collective is goes on with all of them.  What goes wrong does for all of
 * them, too, and other ranks are told (board.c).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "../bootstrap/inside.h"
#include "calls.h"

#define VERSION		4U
#define ENTRIES		256U
#define ENTRIES_MIN	16U
#define SPIN_US		20U
/* How long others are told about a failure, or that this rank leaves, at most. */
#define TELL_US		1000000U
/* What the device is given to end what is on its way. */
#define SETTLE_US	10000000U
/* The longest sleep: others may have something to say. */
#define LOOK_US		20000U
/* The same when the device is gone. */
#define OVER_US		1000U

/*
 * What ranks tell each other of a step; of the first one, what their names have, their node, and by
 * what they would choose.
 */
struct card {
	uint32_t version;
	int32_t status;
	uint64_t value;
	uint64_t node;
	struct towi_choices choices;
};

_Static_assert(sizeof(struct card) <= TOW_GROUP_GATHER_MAX, "is told at once");

/* ---- the pump ------------------------------------------------------------------ */

struct tow_sqe *towi_comm_entry(struct towi_runner *runner)
{
	if (!towi_pump_free(runner->pump))
		towi_pump_submit(runner->pump);
	return towi_pump_entry(runner);
}

static struct tow_comm *comm_of(struct towi_runner *runner)
{
	return (struct tow_comm *)runner;
}

static void go_on(struct towi_runner *runner)
{
	towi_board_look(comm_of(runner));
	towi_board_go_on(comm_of(runner));
}

/* Of peers boards tell. */
static void lost(struct towi_runner *runner, int error, uint64_t lost_ns)
{
	if (lost_ns == UINT64_MAX)
		towi_comm_fail(comm_of(runner), error, comm_of(runner)->rank);
}

static const struct towi_runner_ops comm_ops = { .go_on = go_on, .lost = lost };

bool towi_comm_progress(struct tow_comm *comm)
{
	bool any;

	comm->moved = false;
	/* What comes is seen in slots. */
	towi_pump_ready(&comm->runner);
	if (comm->calls)
		towi_pump_ready(&comm->calls->runner);
	any = towi_pump_look(&comm->pump);
	return any || comm->moved;
}

int towi_comm_sleep(struct tow_comm *comm, uint64_t until)
{
	uint64_t look = towi_until(LOOK_US);

	/* Nothing sleeps there any more; another thread may want the lock to go on. */
	if (comm->pump.over) {
		towi_pump_unlock_plainly(&comm->pump);
		usleep(OVER_US);
		towi_pump_lock(&comm->pump);
		return 0;
	}
	return towi_pump_sleep(&comm->pump, until < look ? until : look) == -EINTR ? -EINTR : 0;
}

void towi_comm_tell(struct tow_comm *comm)
{
	uint64_t until = towi_until(TELL_US);

	do {
		towi_pump_look(&comm->pump);
		if (towi_board_go_on(comm) && !towi_members_are_sought(comm))
			break;
		towi_comm_sleep(comm, until);
	} while (!comm->pump.over && towi_left_us(until));
}

void towi_comm_settle(struct tow_comm *comm, const uint32_t *count)
{
	if (comm->error)
		towi_comm_tell(comm);
	towi_pump_settle(&comm->pump, count, towi_until(SETTLE_US));
}

void towi_comm_fail(struct tow_comm *comm, int error, uint32_t blamed)
{
	if (comm->error)
		return;
	/* Others look at the error without the lock, and then at this. */
	comm->blamed = blamed;
	comm->error = error;
	comm->tell_until = towi_until(TELL_US);
	towi_board_alarm(comm);
	/* Calls end, whoever asks for them. */
	if (comm->calls)
		towi_pump_ready(&comm->calls->runner);
}

/* ---- sleeping ------------------------------------------------------------------ */

static void waited(struct towi_op *op, int status)
{
	/* Whether a rank is lost is found out by asking it. */
	(void)op;
	(void)status;
}

void towi_sleeper_init(struct towi_op *sleeper, struct towi_runner *runner)
{
	*sleeper = (struct towi_op){ .ended = waited, .runner = runner, .waits = true };
}

bool towi_sleep_for(struct towi_op *sleeper, const struct tow_slot *slot, uint64_t number)
{
	struct tow_sqe *sqe;

	if (tow_slot_value(slot) >= number)
		return false;
	/* For less, and it has not come; or that is being told. */
	if (sleeper->busy || !towi_wait_room(sleeper->runner->pump))
		return true;
	sqe = towi_comm_entry(sleeper->runner);
	if (!sqe)
		return false;
	tow_prep_wait(sqe, slot, number);
	towi_pump_begun(sqe, sleeper);
	return true;
}

/* ---- life --------------------------------------------------------------------- */

/* What all have told of a step: 0; the own error; or -ECANCELED, and whose. */
static int compare(const struct tow_comm *comm, int status, const struct card *cards,
		   uint32_t *blamed)
{
	uint32_t rank;

	if (status)
		return status;
	for (rank = 0; rank < comm->ranks; rank++) {
		if (cards[rank].version != VERSION || cards[rank].status) {
			*blamed = rank;
			return cards[rank].version != VERSION ? -EPROTO : -ECANCELED;
		}
	}
	return 0;
}

/* 0, and what all have told, until the next time; the own error; or -ECANCELED, and whose. */
static int gather(struct tow_comm *comm, const struct card *own, const struct card **cards,
		  uint32_t *blamed)
{
	uint32_t who = TOW_NO_RANK;
	void *told;
	int ret;

	ret = towi_group_gather(comm->group, own, sizeof(*own), &told, &who);
	*cards = told;
	if (!ret)
		ret = compare(comm, own->status, *cards, &who);
	if (*blamed == TOW_NO_RANK)
		*blamed = who;
	return own->status ? own->status : ret;
}

/* Others wait for a rank that has no memory, too: they are told. */
static int decline(struct tow_group *group, int status)
{
	struct card own = { .version = VERSION, .status = status };
	void *told;

	towi_group_gather(group, &own, sizeof(own), &told, NULL);
	return status;
}

static int make_own(struct tow_comm *comm, const struct tow_comm_attr *attr)
{
	uint32_t entries = attr->entries ? attr->entries : ENTRIES;
	int ret;

	ret = towi_pump_begin(&comm->pump, towi_group_device(comm->group),
			      entries > ENTRIES_MIN ? entries : ENTRIES_MIN, 0, 0);
	if (ret)
		return ret;
	comm->runner.ops = &comm_ops;
	towi_pump_join(&comm->pump, &comm->runner);
	return 0;
}

/* This node, by a number that others hardly have. */
static uint64_t node_of(const struct tow_comm *comm)
{
	struct tow_device_attr attr = { .size = sizeof(attr) };
	uint64_t halves[TOW_INCARNATION_BYTES / sizeof(uint64_t)] = { 0 };

	if (!tow_device_query(towi_group_device(comm->group), &attr))
		memcpy(halves, attr.incarnation, sizeof(halves));
	return halves[0] ^ halves[1];
}

/* Who finds the board finds the rest. */
static int make_names(struct tow_comm *comm, const struct tow_comm_attr *attr)
{
	int ret = make_own(comm, attr);

	if (!ret)
		ret = towi_calls_make(comm);
	return ret ? ret : towi_board_make(comm);
}

/* What others find, by a number of this rank's. */
static int make_found(struct tow_comm *comm, const struct tow_comm_attr *attr)
{
	uint64_t *own = &comm->numbers[comm->rank];

	if (getrandom(own, sizeof(*own), 0) != sizeof(*own))
		return -errno;
	return make_names(comm, attr);
}

static int take_cards(struct tow_comm *comm, const struct card *cards, uint32_t *blamed)
{
	uint32_t rank, first;

	if (!towi_choices_good(&cards[0].choices)) {
		*blamed = 0;
		return -EPROTO;
	}
	comm->choices = cards[0].choices;
	for (rank = 0; rank < comm->ranks; rank++) {
		for (first = 0; cards[first].node != cards[rank].node; first++)
			;
		comm->numbers[rank] = cards[rank].value;
		comm->nodes[rank] = first;
		comm->places[rank] = rank;
	}
	return towi_calls_order(comm);
}

static int meet(struct tow_comm *comm, const struct tow_comm_attr *attr, uint32_t *blamed)
{
	struct card own = { .version = VERSION };
	const struct card *cards;
	int ret;

	own.status = make_found(comm, attr);
	own.value = comm->numbers[comm->rank];
	own.node = node_of(comm);
	own.choices = towi_choices_of(attr);
	ret = gather(comm, &own, &cards, blamed);
	return ret ? ret : take_cards(comm, cards, blamed);
}

static void free_memory(struct tow_comm *comm)
{
	free(comm->places);
	free(comm->nodes);
	free(comm->numbers);
	free(comm->members);
	free(comm);
}

static void free_comm(struct tow_comm *comm)
{
	towi_comm_drive_end(comm);
	comm->leaving = true;
	if (comm->pump.queue)
		towi_pump_quiet(&comm->pump);
	towi_calls_end(comm);
	towi_board_free(comm);
	if (comm->pump.queue)
		towi_pump_end(&comm->pump);
	free_memory(comm);
}

static struct tow_comm *new_comm(struct tow_group *group, struct tow_arena *arena, uint32_t rank,
				 uint32_t ranks, const struct tow_comm_attr *attr)
{
	struct tow_comm *made = calloc(1, sizeof(*made));
	uint32_t i;

	if (!made)
		return NULL;
	made->group = group;
	made->arena = arena;
	made->rank = rank;
	made->ranks = ranks;
	made->timeout_ms = attr->timeout_ms ? attr->timeout_ms : TOWI_TIMEOUT_MS;
	made->spin_us = attr->spin_us ? attr->spin_us : SPIN_US;
	made->blamed = TOW_NO_RANK;
	made->members = calloc(ranks, sizeof(*made->members));
	made->numbers = calloc(ranks, sizeof(*made->numbers));
	made->nodes = calloc(ranks, sizeof(*made->nodes));
	made->places = calloc(ranks, sizeof(*made->places));
	if (!made->members || !made->numbers || !made->nodes || !made->places) {
		free_memory(made);
		return NULL;
	}
	for (i = 0; i < ranks; i++) {
		made->members[i].comm = made;
		made->members[i].rank = i;
	}
	return made;
}

static int take_attr(const struct tow_comm_attr *attr, struct tow_comm_attr *known)
{
	int ret = towi_take(attr, TOWI_COMM_ATTR_SIZE_FIRST, known, sizeof(*known));

	if (ret)
		return ret;
	return known->flags & ~(uint32_t)TOW_COMM_THREAD ? -E2BIG : 0;
}

/* It is the caller's, with a thread if that is asked for; or gone. */
static int give(struct tow_comm *made, const struct tow_comm_attr *attr, struct tow_comm **comm)
{
	int ret = attr->flags & TOW_COMM_THREAD ? towi_comm_drive(made) : 0;

	if (ret)
		free_comm(made);
	else
		*comm = made;
	return ret;
}

TOW_PUBLIC int tow_comm_create(struct tow_group *group, struct tow_arena *arena,
			       const struct tow_comm_attr *attr, struct tow_comm **comm,
			       uint32_t *blamed)
{
	struct tow_comm_attr known;
	uint32_t rank = TOW_NO_RANK;
	struct tow_comm *made;
	int ret;

	if (blamed)
		*blamed = rank;
	if (!group || !arena || !comm)
		return -EINVAL;
	if (!towi_group_ours(group))
		return -EPERM;
	ret = take_attr(attr, &known);
	if (ret)
		return ret;
	if (tow_group_size(group) > TOW_COMM_RANKS_MAX)
		return -ENOSPC;
	made = new_comm(group, arena, tow_group_rank(group), tow_group_size(group), &known);
	if (!made)
		return decline(group, -ENOMEM);
	ret = meet(made, &known, &rank);
	if (blamed)
		*blamed = rank;
	if (ret)
		free_comm(made);
	return ret ? ret : give(made, &known, comm);
}

/* ---- of some ranks -------------------------------------------------------------- */

/* This rank's among @ranks; or an error. */
static int place_among(const struct tow_comm *comm, const uint32_t *ranks, uint32_t count,
		       uint32_t *own)
{
	uint32_t i, j;

	*own = TOW_NO_RANK;
	for (i = 0; i < count; i++) {
		if (ranks[i] >= comm->ranks)
			return -EINVAL;
		for (j = 0; j < i; j++)
			if (ranks[j] == ranks[i])
				return -EINVAL;
		if (ranks[i] == comm->rank)
			*own = i;
	}
	return *own == TOW_NO_RANK ? -EINVAL : 0;
}

/* All that others tell of themselves elsewhere follows from what all know. */
static void number_split(struct tow_comm *split, const struct tow_comm *comm,
			 const uint32_t *ranks, uint64_t tag)
{
	uint64_t mark = towi_mixed(1, tag);
	uint32_t i, first;

	for (i = 0; i < split->ranks; i++)
		mark = towi_mixed(mark, ranks[i]);
	for (i = 0; i < split->ranks; i++) {
		for (first = 0; comm->nodes[ranks[first]] != comm->nodes[ranks[i]]; first++)
			;
		split->numbers[i] = towi_mixed(mark, comm->numbers[ranks[i]]);
		split->nodes[i] = first;
		split->places[i] = comm->places[ranks[i]];
	}
	split->choices = comm->choices;
	split->split = true;
}

/* What rank 0 might say nobody would hear. */
static int take_split_attr(const struct tow_comm_attr *attr, struct tow_comm_attr *known)
{
	int ret = take_attr(attr, known);

	if (ret)
		return ret;
	return known->direct_ranks || known->direct_bytes || known->tree_bytes ? -EINVAL : 0;
}

TOW_PUBLIC int tow_comm_split(struct tow_comm *comm, const uint32_t *ranks, uint32_t count,
			      uint64_t tag, const struct tow_comm_attr *attr,
			      struct tow_comm **split)
{
	struct tow_comm_attr known;
	struct tow_comm *made;
	uint32_t own;
	int ret;

	if (!comm || !ranks || !split)
		return -EINVAL;
	ret = take_split_attr(attr, &known);
	if (!ret)
		ret = towi_comm_usable(comm);
	if (!ret)
		ret = place_among(comm, ranks, count, &own);
	if (ret)
		return ret;
	made = new_comm(comm->group, comm->arena, own, count, &known);
	if (!made)
		return -ENOMEM;
	number_split(made, comm, ranks, tag);
	ret = make_names(made, &known);
	if (!ret)
		ret = towi_calls_order(made);
	if (ret)
		free_comm(made);
	return ret ? ret : give(made, &known, split);
}

/* ---- ends --------------------------------------------------------------------- */

/* A child's copy: all of it that no thread can have been changing. */
static void forget_comm(struct tow_comm *comm)
{
	towi_pump_forget(&comm->pump);
	free(comm->calls);
	free(comm->board);
	free_memory(comm);
}

TOW_PUBLIC int tow_comm_destroy(struct tow_comm *comm)
{
	if (!comm)
		return 0;
	if (!towi_comm_ours(comm)) {
		forget_comm(comm);
		return -EPERM;
	}
	if (comm->collectives || towi_calls_busy(comm))
		return -EBUSY;
	towi_pump_lock(&comm->pump);
	towi_calls_flush(comm);
	if (!comm->error)
		towi_board_leave(comm);
	towi_comm_tell(comm);
	while (comm->aborting)
		towi_comm_sleep(comm, UINT64_MAX);
	towi_pump_unlock(&comm->pump);
	free_comm(comm);
	return 0;
}
