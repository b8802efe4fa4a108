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

#include "../bootstrap/inside.h"
#include "calls.h"

#define VERSION		3U
#define ENTRIES		256U
#define ENTRIES_MIN	16U
#define SPIN_US		20U
/* How long others are told about a failure, or that this rank leaves, at most. */
#define TELL_US		1000000U
/* What the device is given to end what is on its way. */
#define SETTLE_US	10000000U
/* The longest sleep: others may have something to say. */
#define LOOK_US		20000U

/* What ranks tell each other of a step; of the first one, what their names have, and their node. */
struct card {
	uint32_t version;
	int32_t status;
	uint64_t value;
	uint64_t node;
};

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
	struct tow_collective *collective;
	bool any;

	comm->moved = false;
	/* What comes is seen in slots. */
	towi_pump_ready(&comm->runner);
	if (comm->calls)
		towi_pump_ready(&comm->calls->runner);
	for (collective = comm->collectives; collective; collective = collective->next)
		if (collective->running)
			towi_pump_ready(&collective->runner);
	any = towi_pump_look(&comm->pump);
	return any || comm->moved;
}

int towi_comm_sleep(struct tow_comm *comm, uint64_t until)
{
	uint64_t look = towi_until(LOOK_US);

	return towi_pump_sleep(&comm->pump, until < look ? until : look) == -EINTR ? -EINTR : 0;
}

void towi_comm_tell(struct tow_comm *comm)
{
	uint64_t until = towi_until(TELL_US);

	do {
		towi_pump_look(&comm->pump);
		if (towi_board_go_on(comm))
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
	comm->error = error;
	comm->blamed = blamed;
	towi_board_alarm(comm);
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

int towi_comm_agree(struct tow_comm *comm, int status, uint64_t value, uint64_t *values,
		    uint32_t *blamed)
{
	const struct card own = { .version = VERSION, .status = status, .value = value };
	const struct card *cards;
	uint32_t rank;
	int ret;

	ret = gather(comm, &own, &cards, blamed);
	for (rank = 0; !ret && values && rank < comm->ranks; rank++)
		values[rank] = cards[rank].value;
	return ret;
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

/* What others find, by a number of this rank's. */
static int make_found(struct tow_comm *comm, const struct tow_comm_attr *attr)
{
	uint64_t *own = &comm->numbers[comm->rank];
	int ret;

	if (getrandom(own, sizeof(*own), 0) != sizeof(*own))
		return -errno;
	ret = make_own(comm, attr);
	if (!ret)
		ret = towi_board_make(comm);
	return ret ? ret : towi_calls_make(comm);
}

/* Ranks of a node are neighbours. */
static int take_cards(struct tow_comm *comm, const struct card *cards)
{
	uint64_t *nodes = calloc(comm->ranks, sizeof(*nodes));
	uint32_t rank;
	int ret;

	if (!nodes)
		return -ENOMEM;
	for (rank = 0; rank < comm->ranks; rank++) {
		comm->numbers[rank] = cards[rank].value;
		nodes[rank] = cards[rank].node;
	}
	ret = towi_calls_order(comm, nodes);
	free(nodes);
	return ret;
}

static int meet(struct tow_comm *comm, const struct tow_comm_attr *attr, uint32_t *blamed)
{
	struct card own = { .version = VERSION };
	const struct card *cards;
	int ret;

	own.status = make_found(comm, attr);
	own.value = comm->numbers[comm->rank];
	own.node = node_of(comm);
	ret = gather(comm, &own, &cards, blamed);
	return ret ? ret : take_cards(comm, cards);
}

static void free_comm(struct tow_comm *comm)
{
	comm->leaving = true;
	if (comm->pump.queue)
		towi_pump_quiet(&comm->pump);
	towi_calls_end(comm);
	towi_board_free(comm);
	if (comm->pump.queue)
		towi_pump_end(&comm->pump);
	free(comm->numbers);
	free(comm->members);
	free(comm);
}

static struct tow_comm *new_comm(struct tow_group *group, struct tow_arena *arena,
				 const struct tow_comm_attr *attr)
{
	struct tow_comm *made = calloc(1, sizeof(*made));
	uint32_t rank;

	if (!made)
		return NULL;
	made->group = group;
	made->arena = arena;
	made->rank = tow_group_rank(group);
	made->ranks = tow_group_size(group);
	made->timeout_ms = attr->timeout_ms ? attr->timeout_ms : TOWI_TIMEOUT_MS;
	made->spin_us = attr->spin_us ? attr->spin_us : SPIN_US;
	made->blamed = TOW_NO_RANK;
	made->members = calloc(made->ranks, sizeof(*made->members));
	made->numbers = calloc(made->ranks, sizeof(*made->numbers));
	if (!made->members || !made->numbers) {
		free(made->numbers);
		free(made->members);
		free(made);
		return NULL;
	}
	for (rank = 0; rank < made->ranks; rank++) {
		made->members[rank].comm = made;
		made->members[rank].rank = rank;
	}
	return made;
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
	ret = towi_take(attr, TOWI_COMM_ATTR_SIZE_FIRST, &known, sizeof(known));
	if (ret)
		return ret;
	if (tow_group_size(group) > TOW_COMM_RANKS_MAX)
		return -ENOSPC;
	made = new_comm(group, arena, &known);
	if (!made)
		return decline(group, -ENOMEM);
	ret = meet(made, &known, &rank);
	if (blamed)
		*blamed = rank;
	if (ret)
		free_comm(made);
	else
		*comm = made;
	return ret;
}

/* A child's copy: all of it that no thread can have been changing. */
static void forget_comm(struct tow_comm *comm)
{
	towi_pump_forget(&comm->pump);
	free(comm->calls);
	free(comm->board);
	free(comm->numbers);
	free(comm->members);
	free(comm);
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
	towi_pump_unlock(&comm->pump);
	free_comm(comm);
	return 0;
}
