// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Communicators: a queue for all that its collectives send and wait for.
 *
 * Whoever asks how a collective is goes on with all of them.  What goes wrong does for all of
 * them, too, and other ranks are told (board.c).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "../bootstrap/inside.h"
#include "inside.h"

#define VERSION		2U
#define ENTRIES		256U
#define ENTRIES_MIN	16U
#define SPIN_US		20U
/* The first version of the kernel's interface with TOW_SQE_COPIED. */
#define COPIED_SINCE	9U
/* How long others are told about a failure, or that this rank leaves, at most. */
#define TELL_US		1000000U
/* What the device is given to end what is on its way. */
#define SETTLE_US	10000000U
/* The longest sleep: others may have something to say. */
#define LOOK_US		20000U

/* What ranks tell each other of a step. */
struct card {
	uint32_t version;
	int32_t status;
	uint64_t value;
};

/* ---- entries ------------------------------------------------------------------ */

static struct towi_end *end_of(uint64_t user_data)
{
	/* NOLINTNEXTLINE(performance-no-int-to-ptr): the kernel carries it as a number */
	return (struct towi_end *)(uintptr_t)user_data;
}

/* Nothing is taken any more: what was not has ended. */
static void end_queue(struct tow_comm *comm, int error)
{
	struct tow_queue *queue = comm->queue;
	uint32_t from, to = queue->sq_tail;
	struct towi_end *end;

	comm->over = true;
	towi_comm_fail(comm, error, comm->rank);
	from = tow_load_acquire(&queue->ring->sq_head);
	queue->sq_tail = from;
	for (; from != to; from++) {
		end = end_of(queue->sqes[from & (queue->sq_entries - 1)].user_data);
		comm->in_flight--;
		end->ended(end, error);
	}
}

void towi_comm_submit(struct tow_comm *comm)
{
	struct tow_queue *queue = comm->queue;
	int ret;

	if (comm->over || queue->sq_tail == tow_load_acquire(&queue->ring->sq_head))
		return;
	/* What finds no room, or a signal, is handed over with what comes next. */
	ret = tow_queue_submit(queue);
	if (ret == -ENODEV || ret == -EPERM)
		end_queue(comm, ret);
}

static uint32_t room_of(const struct tow_comm *comm)
{
	struct tow_queue *queue = comm->queue;
	uint32_t entries, completions;

	queue->sq_head = tow_load_acquire(&queue->ring->sq_head);
	entries = queue->sq_entries - (queue->sq_tail - queue->sq_head);
	completions = queue->cq_entries - comm->in_flight;
	return entries < completions ? entries : completions;
}

uint32_t towi_comm_room(struct tow_comm *comm)
{
	towi_comm_submit(comm);
	return comm->over ? 0 : room_of(comm);
}

struct tow_sqe *towi_comm_entry(struct tow_comm *comm)
{
	if (comm->over)
		return NULL;
	if (!room_of(comm) && !towi_comm_room(comm))
		return NULL;
	return tow_queue_get_sqe(comm->queue);
}

void towi_comm_put(struct tow_comm *comm, struct tow_sqe *sqe, struct towi_end *end)
{
	tow_sqe_set_data(sqe, (uintptr_t)end);
	comm->in_flight++;
}

bool towi_comm_reap(struct tow_comm *comm)
{
	struct tow_queue *queue = comm->queue;
	const struct tow_cqe *cqe;
	struct towi_end *end;
	bool any = false;
	int status;

	while ((cqe = tow_queue_cqe(queue, queue->cq_head))) {
		end = end_of(cqe->user_data);
		status = cqe->status;
		tow_queue_cqe_seen(queue);
		comm->in_flight--;
		end->ended(end, status);
		any = true;
	}
	return any;
}

bool towi_comm_progress(struct tow_comm *comm)
{
	struct tow_collective *collective;
	bool any = towi_comm_reap(comm);

	towi_board_look(comm);
	for (collective = comm->collectives; collective && !comm->error;
	     collective = collective->next) {
		if (!collective->running)
			continue;
		any |= collective->algorithm->go_on(collective);
		towi_collective_end(collective);
	}
	towi_board_go_on(comm);
	towi_comm_submit(comm);
	return any;
}

int towi_comm_sleep(struct tow_comm *comm, uint64_t until)
{
	uint64_t look = towi_until(LOOK_US);
	const struct tow_cqe *cqe;
	int ret;

	if (comm->over)
		return 0;
	ret = tow_queue_wait_cqe(comm->queue, &cqe, towi_left_us(until < look ? until : look));
	if (ret == -ENODEV || ret == -EPERM)
		end_queue(comm, ret);
	return ret == -EINTR ? ret : 0;
}

void towi_comm_tell(struct tow_comm *comm)
{
	uint64_t until = towi_until(TELL_US);

	do {
		towi_comm_reap(comm);
		if (towi_board_go_on(comm))
			break;
		towi_comm_submit(comm);
		towi_comm_sleep(comm, until);
	} while (!comm->over && towi_left_us(until));
}

void towi_comm_settle(struct tow_comm *comm, const uint32_t *in_flight)
{
	uint64_t until = towi_until(SETTLE_US);

	if (comm->error)
		towi_comm_tell(comm);
	towi_comm_reap(comm);
	while (*in_flight && !comm->over && towi_left_us(until)) {
		towi_comm_submit(comm);
		towi_comm_sleep(comm, until);
		towi_comm_reap(comm);
	}
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

int towi_comm_agree(struct tow_comm *comm, int status, uint64_t value, uint64_t *values,
		    uint32_t *blamed)
{
	struct card own = { .version = VERSION, .status = status, .value = value };
	uint32_t who = TOW_NO_RANK, rank;
	const struct card *cards;
	void *told;
	int ret;

	ret = towi_group_gather(comm->group, &own, sizeof(own), &told, &who);
	cards = told;
	if (!ret)
		ret = compare(comm, status, cards, &who);
	if (!ret)
		comm->value = cards[0].value;
	for (rank = 0; !ret && values && rank < comm->ranks; rank++)
		values[rank] = cards[rank].value;
	if (*blamed == TOW_NO_RANK)
		*blamed = who;
	return status ? status : ret;
}

/* Others wait for a rank that has no memory, too: they are told. */
static int decline(struct tow_group *group, int status)
{
	struct card own = { .version = VERSION, .status = status };
	void *told;

	towi_group_gather(group, &own, sizeof(own), &told, NULL);
	return status;
}

/* All have the number of rank 0's choice. */
static int agree_on_number(struct tow_comm *comm, int status, uint32_t *blamed)
{
	uint64_t number = 0;
	int ret;

	if (getrandom(&number, sizeof(number), 0) != sizeof(number))
		status = -errno;
	ret = towi_comm_agree(comm, status, number, NULL, blamed);
	comm->number = comm->value;
	return ret;
}

static int make_own(struct tow_comm *comm, const struct tow_comm_attr *attr)
{
	struct tow_device *dev = towi_group_device(comm->group);
	struct tow_device_attr device = { .size = sizeof(device) };
	uint32_t entries = attr->entries ? attr->entries : ENTRIES;
	int ret = tow_device_query(dev, &device);

	if (ret)
		return ret;
	if (device.uapi_version >= COPIED_SINCE)
		comm->copied_flag = TOW_SQE_COPIED;
	return tow_queue_create(dev, entries > ENTRIES_MIN ? entries : ENTRIES_MIN, 0,
				&comm->queue);
}

static int find_member(struct tow_comm *comm, uint32_t rank)
{
	struct towi_member *member = &comm->members[rank];
	int ret = tow_group_peer(comm->group, rank, &member->peer);

	return ret ? ret : tow_channel_get(comm->queue, member->peer, 0, &member->channel);
}

/* The ways to others, and what they wait for. */
static int find_others(struct tow_comm *comm, uint32_t *blamed)
{
	uint64_t until = towi_until(comm->timeout_ms * 1000ULL);
	uint32_t rank;
	int ret;

	for (rank = 0; rank < comm->ranks; rank++) {
		ret = find_member(comm, rank);
		if (ret) {
			*blamed = rank;
			return ret;
		}
	}
	return towi_board_find(comm, until, blamed);
}

static int meet(struct tow_comm *comm, const struct tow_comm_attr *attr, uint32_t *blamed)
{
	int ret = agree_on_number(comm, make_own(comm, attr), blamed);

	if (ret)
		return ret;
	ret = towi_comm_agree(comm, towi_board_make(comm), 0, NULL, blamed);
	if (ret)
		return ret;
	return towi_comm_agree(comm, find_others(comm, blamed), 0, NULL, blamed);
}

static void free_comm(struct tow_comm *comm)
{
	struct tow_collective *grave;

	towi_board_free(comm);
	tow_queue_destroy(comm->queue);
	while ((grave = comm->graves)) {
		comm->graves = grave->next;
		towi_collective_free(grave);
	}
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
	if (!made->members) {
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
	tow_queue_destroy(comm->queue);
	free(comm->board);
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
	if (comm->collectives)
		return -EBUSY;
	if (!comm->error)
		towi_board_leave(comm);
	towi_comm_tell(comm);
	free_comm(comm);
	return 0;
}
