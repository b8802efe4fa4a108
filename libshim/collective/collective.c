// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/* Collectives that are made once for their arrays: what they are asked for, and their life. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../alloc/arena.h"
#include "../bootstrap/inside.h"
#include "made.h"

/* What the device is given to end what is on its way. */
#define SETTLE_US	10000000U

/* ---- what is asked for -------------------------------------------------------- */

static int check_barrier(const struct tow_collective_attr *attr)
{
	static const struct tow_dtype nothing;

	return memcmp(&attr->dtype, &nothing, sizeof(nothing)) || attr->count || attr->in ||
	       attr->out || attr->piece_bytes || attr->reduction || attr->algorithm ? -EINVAL : 0;
}

static int check_attr(const struct tow_comm *comm, const struct tow_collective_attr *attr,
		      enum towi_reduce_type *type)
{
	if (attr->kind > TOW_BARRIER || attr->algorithm > TOW_ALGORITHM_TREE ||
	    (!towi_is_reduction(attr->kind) && attr->reduction) ||
	    (attr->kind != TOW_BROADCAST && attr->root))
		return -EINVAL;
	return attr->kind == TOW_BARRIER ? check_barrier(attr) : towi_check_asked(comm, attr, type);
}

/* ---- arrays -------------------------------------------------------------------- */

/* Of a kind of which a rank has all; or its part only. */
static void take_span(const struct towi_joint *joint, bool part, struct towi_array *array)
{
	uint64_t bytes = joint->plan.count / joint->plan.ranks * joint->element;

	array->bytes = part ? bytes : joint->plan.count * joint->element;
	array->from = part ? joint->plan.rank * bytes : 0;
}

/* One that is sent from, or that others write to: in a region, or in a copy of it. */
static int take_shown(const struct tow_comm *comm, char *given, struct towi_array *array,
		      char **copied)
{
	uint64_t from = array->from, bytes = array->bytes;
	int ret = towi_take_array(comm, given, bytes, array);

	array->from = from;
	if (ret || !bytes || (array->region && !towi_region_readonly(array->region)))
		return ret;
	ret = towi_array_make(comm, bytes, array);
	array->from = from;
	*copied = given;
	return ret;
}

/* Part of the other one, which has it at the same place among all elements. */
static void take_part_of(struct towi_array *part, char **copied, const struct towi_array *all,
			 char *all_copied)
{
	uint64_t at = part->from - all->from;

	part->at = all->at ? all->at + at : NULL;
	part->region = all->region;
	part->offset = all->offset + at;
	*copied = all_copied ? all_copied + at : NULL;
}

/* What others do not reach. */
static int take_plain(struct towi_array *array, char *given)
{
	array->at = given;
	return 0;
}

static int take_arrays(struct tow_collective *collective)
{
	const struct tow_collective_attr *attr = &collective->attr;
	struct towi_joint *joint = &collective->joint;
	struct towi_array *in = &joint->in, *out = &joint->out;
	struct tow_comm *comm = joint->work.comm;
	char *given = towi_in_of(attr), *result = attr->out;
	bool scatters = attr->kind == TOW_REDUCE_SCATTER;
	int ret;

	take_span(joint, attr->kind == TOW_ALLGATHER, in);
	take_span(joint, scatters, out);
	if (!given)
		given = result + (in->from - out->from);
	if (scatters) {
		ret = take_shown(comm, given, in, &collective->in_given);
		return ret ? ret : take_plain(out, result);
	}
	ret = take_shown(comm, result, out, &collective->out_given);
	if (ret)
		return ret;
	if (given == result + (in->from - out->from)) {
		take_part_of(in, &collective->in_given, out, collective->out_given);
		return 0;
	}
	/* Nobody has anything of the others of a broadcast. */
	if (attr->kind == TOW_BROADCAST && comm->rank != attr->root)
		in->bytes = 0;
	return take_shown(comm, given, in, &collective->in_given);
}

static void copy(struct tow_collective *collective, char *to, const char *from, uint64_t bytes)
{
	memcpy(to, from, bytes);
	collective->stats.copied_bytes += bytes;
}

static void copy_in(struct tow_collective *collective)
{
	const struct towi_array *in = &collective->joint.in;
	bool gives = collective->attr.kind != TOW_BROADCAST ||
		     collective->joint.plan.rank == collective->attr.root;

	if (collective->in_given && gives)
		copy(collective, in->at, collective->in_given, in->bytes);
}

void towi_made_end(struct towi_joint *joint)
{
	struct tow_collective *collective = towi_collective_of(joint);

	if (joint->work.status)
		return;
	if (collective->out_given)
		copy(collective, collective->out_given, joint->out.at, joint->out.bytes);
	collective->stats.calls++;
	towi_board_put(joint->work.comm, collective->place, 2 * collective->begun + 1);
}

/* ---- all ranks together -------------------------------------------------------- */

/* Others wait for this rank, and cannot be told otherwise. */
static int fail(struct tow_comm *comm, int error)
{
	towi_pump_lock(&comm->pump);
	towi_comm_fail(comm, error, comm->rank);
	towi_pump_unlock(&comm->pump);
	return error;
}

/* What each tells of one that it makes. */
struct card {
	uint64_t mark;			/* of what is asked for */
	uint32_t place;
	int32_t status;
};

/*
 * By a call, in its turn among them.  Can everybody, and does everybody ask for the same?  0; the
 * own error; or that of the first that cannot, or does not as rank 0 does, and whose.
 */
static int compare(struct tow_comm *comm, const struct card *own, struct card *cards,
		   uint32_t *blamed)
{
	static const struct tow_dtype bytes = { TOW_DTYPE_UINT, 8, 1 };
	struct tow_work *work;
	uint32_t rank;
	int ret;

	ret = tow_allgather(comm, own, cards, sizeof(*own), bytes, NULL, &work);
	if (ret)
		return ret;
	ret = tow_work_wait(work, TOW_WAIT_FOREVER, blamed);
	tow_work_free(work);
	for (rank = 0; ret == 1 && !own->status && rank < comm->ranks; rank++) {
		if (!cards[rank].status && cards[rank].mark == cards[0].mark)
			continue;
		*blamed = rank;
		return cards[rank].status ? -ECANCELED : -EPROTO;
	}
	return own->status || ret == 1 ? own->status : ret;
}

static int agree(struct tow_collective *collective, int status, uint32_t *blamed)
{
	struct tow_comm *comm = collective->joint.work.comm;
	const struct card own = {
		.mark = collective->joint.mark,
		.place = collective->place,
		.status = status,
	};
	struct card *cards = calloc(comm->ranks, sizeof(*cards));
	uint32_t rank;
	int ret;

	if (!cards)
		return fail(comm, -ENOMEM);
	ret = compare(comm, &own, cards, blamed);
	for (rank = 0; !ret && rank < comm->ranks; rank++) {
		collective->places[rank] = cards[rank].place;
		if (cards[rank].place >= TOW_COLLECTIVES_MAX) {
			*blamed = rank;
			ret = -EPROTO;
		}
	}
	free(cards);
	return ret;
}

/* ---- life ----------------------------------------------------------------------- */

static int take_place(struct tow_collective *collective)
{
	struct tow_comm *comm = collective->joint.work.comm;
	uint32_t place;

	for (place = 0; place < TOW_COLLECTIVES_MAX; place++) {
		if (comm->used[place / 64] >> place % 64 & 1)
			continue;
		comm->used[place / 64] |= 1ULL << place % 64;
		collective->place = place;
		collective->placed = true;
		/* Nobody asks about the one before any more: all have come to make this one. */
		towi_board_put(comm, place, 0);
		return 0;
	}
	return -EMLINK;
}

static void leave_place(struct tow_collective *collective)
{
	uint32_t place = collective->place;

	/* How often it was started stays: others may still wait in a call that has ended here. */
	if (collective->placed)
		collective->joint.work.comm->used[place / 64] &= ~(1ULL << place % 64);
}

static struct tow_collective *collective_of(struct towi_runner *runner)
{
	return (struct tow_collective *)runner;
}

static void free_memory(struct tow_collective *collective)
{
	towi_made_free_paths(collective);
	free(collective->places);
	free(collective);
}

/* Of one of which nothing is on its way. */
static void bury(struct towi_runner *runner)
{
	struct tow_collective *collective = collective_of(runner);
	const struct tow_comm *comm = collective->joint.work.comm;

	towi_array_free(comm, &collective->joint.in);
	towi_array_free(comm, &collective->joint.out);
	towi_array_free(comm, &collective->joint.sums);
	towi_array_free(comm, &collective->scratch);
	towi_array_free(comm, &collective->numbers);
	free_memory(collective);
}

static void go_on(struct towi_runner *runner)
{
	struct tow_comm *comm = collective_of(runner)->joint.work.comm;

	if (comm->calls)
		towi_pump_ready(&comm->calls->runner);
}

static const struct towi_runner_ops ops = { .go_on = go_on, .bury = bury };

/* It has ended; with the lock. */
static void close_collective(struct tow_collective *collective)
{
	towi_made_hide(collective);
	towi_comm_settle(collective->joint.work.comm, &collective->runner.waiting);
	leave_place(collective);
	/* The device may still read what it did not end. */
	if (towi_pump_leave(&collective->runner))
		bury(&collective->runner);
}

static int make_own(struct tow_collective *collective)
{
	int ret = take_arrays(collective);

	if (!ret)
		ret = towi_joint_take_sums(&collective->joint);
	if (!ret)
		ret = towi_made_count(collective);
	return ret ? ret : towi_made_show(collective);
}

/* What others find; then what they have made. */
static int make(struct tow_collective *collective, int placed, uint32_t *blamed)
{
	struct tow_comm *comm = collective->joint.work.comm;
	uint32_t missing = TOW_NO_RANK;
	int ret, found;

	ret = agree(collective, placed ? placed : make_own(collective), blamed);
	if (ret)
		return ret;
	found = towi_made_find(collective, towi_until(comm->timeout_ms * 1000ULL), &missing);
	ret = agree(collective, found, blamed);
	/* Others have been told that this rank cannot; it knows whose fault it is. */
	if (found && *blamed == TOW_NO_RANK)
		*blamed = missing;
	return ret;
}

static int new_collective(struct tow_comm *comm, const struct tow_collective_attr *attr,
			  enum towi_reduce_type type, struct tow_collective **made)
{
	struct tow_collective *collective;
	int ret;

	collective = calloc(1, sizeof(*collective) + comm->ranks * sizeof(struct towi_path *));
	if (!collective)
		return -ENOMEM;
	collective->attr = *attr;
	collective->joint.work.comm = comm;
	collective->joint.type = type;
	collective->places = calloc(comm->ranks, sizeof(*collective->places));
	towi_made_init(collective);
	ret = collective->places ? towi_joint_plan(&collective->joint, attr) : -ENOMEM;
	if (ret)
		free_memory(collective);
	else
		*made = collective;
	return ret;
}

static int create(struct tow_collective *collective, uint32_t *blamed)
{
	struct tow_comm *comm = collective->joint.work.comm;
	int ret;

	towi_pump_lock(&comm->pump);
	collective->number = comm->made++;
	collective->runner.ops = &ops;
	towi_pump_join(&comm->pump, &collective->runner);
	comm->collectives++;
	ret = take_place(collective);
	towi_pump_unlock(&comm->pump);
	ret = make(collective, ret, blamed);
	if (!ret)
		return 0;
	if (*blamed == TOW_NO_RANK && comm->error == ret)
		*blamed = comm->blamed;
	towi_pump_lock(&comm->pump);
	comm->collectives--;
	close_collective(collective);
	towi_pump_unlock(&comm->pump);
	return ret;
}

TOW_PUBLIC int tow_collective_create(struct tow_comm *comm, const struct tow_collective_attr *attr,
				     struct tow_collective **collective, uint32_t *blamed)
{
	enum towi_reduce_type type = TOWI_REDUCE_TYPES;
	struct tow_collective_attr known;
	uint32_t rank = TOW_NO_RANK;
	struct tow_collective *made;
	int ret;

	if (blamed)
		*blamed = rank;
	if (!comm || !attr || !collective)
		return -EINVAL;
	ret = towi_take(attr, TOWI_COLLECTIVE_ATTR_SIZE_FIRST, &known, sizeof(known));
	if (!ret)
		ret = check_attr(comm, &known, &type);
	if (ret)
		return ret;
	ret = towi_comm_usable(comm);
	if (ret)
		rank = ret == -EPERM ? TOW_NO_RANK : comm->blamed;
	else
		ret = towi_calls_begun(comm);
	if (!ret)
		ret = new_collective(comm, &known, type, &made);
	if (!ret)
		ret = create(made, &rank);
	else if (ret == -ENOMEM)
		fail(comm, ret);
	if (!ret)
		*collective = made;
	if (blamed)
		*blamed = rank;
	return ret;
}

/* It has ended, or seems never to: then nothing goes on with it any more. */
static void await_end(struct tow_collective *collective)
{
	struct tow_comm *comm = collective->joint.work.comm;
	uint64_t until = towi_until(SETTLE_US);

	/* A thread that finds out who is late may do so for this one, and look at its places. */
	while ((!collective->joint.work.ended && (towi_left_us(until) || comm->calls->going)) ||
	       comm->calls->asking) {
		towi_comm_progress(comm);
		if (!collective->joint.work.ended || comm->calls->asking)
			towi_comm_sleep(comm, until);
	}
	if (!collective->joint.work.ended)
		TAILQ_REMOVE(&comm->calls->made_ones, &collective->joint, next);
	towi_work_leave(&collective->joint.work);
}

TOW_PUBLIC void tow_collective_destroy(struct tow_collective *collective)
{
	struct tow_comm *comm;

	if (!collective)
		return;
	comm = collective->joint.work.comm;
	/* As forget_comm(). */
	if (!towi_comm_ours(comm)) {
		free_memory(collective);
		return;
	}
	towi_pump_lock(&comm->pump);
	if (!collective->joint.work.ended)
		towi_comm_fail(comm, -ECANCELED, comm->rank);
	if (collective->begun)
		await_end(collective);
	comm->collectives--;
	towi_comm_settle(comm, &collective->runner.busy);
	close_collective(collective);
	towi_pump_unlock(&comm->pump);
}

/* ---- calls -------------------------------------------------------------------- */

TOW_PUBLIC int tow_collective_start(struct tow_collective *collective)
{
	struct tow_work *work;
	struct tow_comm *comm;
	int ret;

	if (!collective)
		return -EINVAL;
	work = &collective->joint.work;
	comm = work->comm;
	ret = towi_comm_usable(comm);
	if (!ret && !work->ended)
		ret = -EBUSY;
	if (ret)
		return ret;
	towi_pump_lock(&comm->pump);
	if (collective->begun++)
		towi_work_leave(work);
	copy_in(collective);
	towi_board_put(comm, collective->place, 2 * collective->begun);
	work->ended = false;
	work->until_us = towi_until(comm->timeout_ms * 1000ULL);
	towi_made_begin(collective);
	towi_comm_progress(comm);
	towi_pump_unlock(&comm->pump);
	return 0;
}

/* What is on its way of a communicator that has failed returns that, and so does what is not. */
static int ask(struct tow_collective *collective, uint32_t timeout_us, uint32_t *blamed)
{
	struct tow_comm *comm;
	int ret;

	if (!collective)
		return -EINVAL;
	comm = collective->joint.work.comm;
	ret = timeout_us ? tow_work_wait(&collective->joint.work, timeout_us, blamed) :
			   tow_work_test(&collective->joint.work, blamed);
	if (ret <= 0 || !comm->error)
		return ret;
	if (blamed)
		*blamed = comm->blamed;
	return comm->error;
}

TOW_PUBLIC int tow_collective_test(struct tow_collective *collective, uint32_t *blamed)
{
	return ask(collective, 0, blamed);
}

TOW_PUBLIC int tow_collective_wait(struct tow_collective *collective, uint32_t *blamed)
{
	int ret = ask(collective, TOW_WAIT_FOREVER, blamed);

	return ret < 0 ? ret : 0;
}

TOW_PUBLIC int tow_collective_wait_for(struct tow_collective *collective, uint32_t timeout_us,
				       uint32_t *blamed)
{
	return ask(collective, timeout_us, blamed);
}

TOW_PUBLIC int tow_collective_late(struct tow_collective *collective, uint32_t *rank)
{
	struct tow_comm *comm;
	int ret;

	if (!collective || !rank)
		return -EINVAL;
	comm = collective->joint.work.comm;
	ret = towi_comm_usable(comm);
	if (ret)
		return ret;
	*rank = TOW_NO_RANK;
	towi_pump_lock(&comm->pump);
	if (!collective->joint.work.ended)
		*rank = towi_board_late(comm, collective->places, 2 * collective->begun);
	towi_pump_unlock(&comm->pump);
	return comm->error;
}

TOW_PUBLIC int tow_collective_stats(const struct tow_collective *collective,
				    struct tow_collective_stats *stats)
{
	struct tow_collective_stats known;
	const struct towi_joint *joint;
	struct tow_work_info info = { 0 };

	if (!collective || !stats)
		return -EINVAL;
	joint = &collective->joint;
	known = collective->stats;
	known.size = sizeof(known);
	towi_plan_tell(&joint->work, &info);
	known.algorithm = info.algorithm;
	known.pieces = towi_plan_pieces(joint);
	known.copies = (joint->in.owned && collective->in_given) + !!collective->out_given;
	return towi_give(&known, TOWI_COLLECTIVE_STATS_SIZE_FIRST, stats);
}
