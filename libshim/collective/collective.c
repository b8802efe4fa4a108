// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/* Collectives: what their attributes say, their arrays, and their calls. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../alloc/arena.h"
#include "../bootstrap/inside.h"
#include "inside.h"

/* Pieces that are sent at once, unless the caller says how large they are to be. */
#define PIECE_BYTES	(256U << 10)
#define PIECES_MAX	4096U
/* Up to so many bytes, two steps are better than 2 (P - 1) of 1/P each. */
#define DIRECT_BYTES	(256U << 10)
#define DIRECT_RANKS	16U

/* ---- what is asked for -------------------------------------------------------- */

static int check_barrier(const struct tow_collective_attr *attr)
{
	static const struct tow_dtype nothing;

	return memcmp(&attr->dtype, &nothing, sizeof(nothing)) || attr->count || attr->in ||
	       attr->out || attr->piece_bytes || attr->reduction ? -EINVAL : 0;
}

static int check_attr(const struct tow_comm *comm, const struct tow_collective_attr *attr)
{
	enum towi_reduce_type type;

	if (attr->kind > TOW_BARRIER || attr->algorithm > TOW_ALGORITHM_DIRECT ||
	    (!towi_is_reduction(attr->kind) && attr->reduction) ||
	    (attr->kind != TOW_ALLREDUCE && attr->algorithm) ||
	    (attr->kind != TOW_BROADCAST && attr->root))
		return -EINVAL;
	return attr->kind == TOW_BARRIER ? check_barrier(attr) : towi_check_asked(comm, attr, &type);
}

/* ---- one rank alone ----------------------------------------------------------- */

static int alone_make(struct tow_collective *collective)
{
	(void)collective;
	return 0;
}

static int alone_find(struct tow_collective *collective, uint64_t until, uint32_t *blamed)
{
	(void)collective;
	(void)until;
	*blamed = TOW_NO_RANK;
	return 0;
}

static void alone_close(struct tow_collective *collective)
{
	(void)collective;
}

/* What all have together is what it has; of bools 0 or 1. */
static void alone_start(struct tow_collective *collective)
{
	char *in = collective->in.at, *out = collective->out.at;

	if (!towi_is_reduction(collective->attr.kind))
		return;
	if (collective->type == TOWI_REDUCE_BOOL)
		towi_reduce(TOW_BOR, TOWI_REDUCE_BOOL, out, in, in, collective->out.bytes);
	else if (in != out)
		memcpy(out, in, collective->out.bytes);
}

static bool alone_go_on(struct tow_collective *collective)
{
	(void)collective;
	return false;
}

static bool alone_done(const struct tow_collective *collective)
{
	(void)collective;
	return true;
}

static bool alone_arm(struct tow_collective *collective)
{
	(void)collective;
	return false;
}

static uint32_t alone_waits_for(const struct tow_collective *collective)
{
	return collective->comm->rank;
}

static const struct towi_algorithm alone = {
	.bytes = sizeof(struct tow_collective),
	.make = alone_make,
	.find = alone_find,
	.close = alone_close,
	.start = alone_start,
	.go_on = alone_go_on,
	.done = alone_done,
	.arm = alone_arm,
	.waits_for = alone_waits_for,
};

/* ---- which ---------------------------------------------------------------------- */

static const struct towi_algorithm *algorithm_of(uint32_t algorithm, uint32_t ranks)
{
	if (ranks == 1)
		return &alone;
	return algorithm == TOW_ALGORITHM_DIRECT ? &towi_direct : &towi_ring;
}

static uint32_t choose_algorithm(const struct tow_collective_attr *attr, uint32_t ranks,
				 uint64_t bytes)
{
	if (attr->kind == TOW_BARRIER)
		return ranks <= DIRECT_RANKS ? TOW_ALGORITHM_DIRECT : TOW_ALGORITHM_RING;
	if (attr->kind != TOW_ALLREDUCE)
		return TOW_ALGORITHM_RING;
	if (attr->algorithm)
		return attr->algorithm;
	return ranks <= DIRECT_RANKS && bytes <= DIRECT_BYTES ? TOW_ALGORITHM_DIRECT :
								TOW_ALGORITHM_RING;
}

/* ---- shape -------------------------------------------------------------------- */

static uint64_t round_up(uint64_t bytes)
{
	return (bytes + TOWI_LINE - 1) / TOWI_LINE * TOWI_LINE;
}

static void shape(struct tow_collective *collective, uint64_t element)
{
	const struct tow_collective_attr *attr = &collective->attr;
	uint32_t ranks = collective->comm->ranks;
	uint64_t bytes = attr->count * element;

	collective->whole_bytes = bytes;
	switch (attr->kind) {
	case TOW_REDUCE_SCATTER:
	case TOW_ALLGATHER:
		collective->shard_bytes = bytes;
		collective->whole_bytes = bytes * ranks;
		break;
	case TOW_BROADCAST:
		collective->shard_bytes = bytes;
		break;
	default:
		collective->shard_bytes = round_up((attr->count + ranks - 1) / ranks * element);
	}
}

void towi_cut(struct tow_collective *collective, uint32_t lanes)
{
	uint64_t wanted = collective->attr.piece_bytes, pieces;

	if (!wanted)
		wanted = PIECE_BYTES;
	pieces = collective->shard_bytes / wanted + !!(collective->shard_bytes % wanted);
	if (pieces > PIECES_MAX)
		pieces = PIECES_MAX;
	/* As many for each lane. */
	if (pieces > lanes)
		pieces = (pieces + lanes - 1) / lanes * lanes;
	if (!pieces)
		pieces = 1;
	collective->pieces = (uint32_t)pieces;
	collective->piece_bytes = round_up((collective->shard_bytes + pieces - 1) / pieces);
}

/* ---- arrays ------------------------------------------------------------------- */

/* An array of the caller's that is sent from, or written to. */
static int take_array(const struct tow_comm *comm, void *given, uint64_t bytes,
		      struct towi_array *array)
{
	int ret = towi_take_array(comm, given, bytes, array);

	if (ret || !bytes || (array->region && !towi_region_readonly(array->region)))
		return ret;
	ret = towi_array_make(comm, bytes, array);
	array->given = given;
	return ret;
}

/* One that only this process reads or writes. */
static void plain_array(void *given, uint64_t bytes, struct towi_array *array)
{
	*array = (struct towi_array){ .at = given, .bytes = bytes };
}

/* Both arrays of a reduction to all, which may be one. */
static int take_both(struct tow_collective *collective)
{
	const struct tow_collective_attr *attr = &collective->attr;
	uint64_t bytes = collective->whole_bytes;
	void *in = towi_in_of(attr);
	int ret = take_array(collective->comm, attr->out, bytes, &collective->out);

	if (ret)
		return ret;
	if (in && in != attr->out)
		return take_array(collective->comm, in, bytes, &collective->in);
	collective->in = collective->out;
	collective->in.owned = false;
	return 0;
}

static int take_arrays(struct tow_collective *collective)
{
	const struct tow_collective_attr *attr = &collective->attr;
	uint64_t own = collective->comm->rank * collective->shard_bytes;
	void *in = towi_in_of(attr);
	int ret;

	switch (attr->kind) {
	case TOW_ALLREDUCE:
		return take_both(collective);
	case TOW_REDUCE_SCATTER:
		ret = take_array(collective->comm, in, collective->whole_bytes, &collective->in);
		plain_array(attr->out, collective->shard_bytes, &collective->out);
		collective->out.from = own;
		return ret;
	case TOW_ALLGATHER:
		plain_array(in, collective->shard_bytes, &collective->in);
		collective->in.from = own;
		return take_array(collective->comm, attr->out, collective->whole_bytes,
				  &collective->out);
	case TOW_BROADCAST:
		plain_array(in, collective->whole_bytes, &collective->in);
		return take_array(collective->comm, attr->out, collective->whole_bytes,
				  &collective->out);
	default:
		return 0;
	}
}

static void copy(struct tow_collective *collective, void *to, const void *from, uint64_t bytes)
{
	if (!bytes || to == from)
		return;
	memcpy(to, from, bytes);
	collective->copied_bytes += bytes;
}

/* Does this rank give something that others get as it is? */
static bool gives(const struct tow_collective *collective)
{
	return collective->attr.kind == TOW_ALLGATHER ||
	       (collective->attr.kind == TOW_BROADCAST &&
		collective->comm->rank == collective->attr.root);
}

static void copy_in(struct tow_collective *collective)
{
	struct towi_array *in = &collective->in, *out = &collective->out;
	char *own;

	if (!gives(collective)) {
		if (in->given)
			copy(collective, in->at, in->given, in->bytes);
		return;
	}
	if (!in->bytes)
		return;
	own = towi_at(out, in->from);
	if (out->given)
		copy(collective, own, in->at ? in->at : out->given + in->from, in->bytes);
	else if (in->at && in->at != own)
		memcpy(own, in->at, in->bytes);
}

static void copy_out(struct tow_collective *collective)
{
	struct towi_array *out = &collective->out;

	if (out->given)
		copy(collective, out->given, out->at, out->bytes);
}

/* ---- life --------------------------------------------------------------------- */

/* What all have to ask for alike. */
struct card {
	uint32_t kind, reduction, algorithm, root;
	struct tow_dtype dtype;
	int32_t status;
	uint64_t count, piece_bytes;
};

/*
 * Can everybody, and does everybody ask for the same?  Or who is the first that cannot, or does not as
 * rank 0 does?
 */
static int compare_cards(const struct tow_comm *comm, const struct tow_collective_attr *attr,
			 int status, uint32_t *blamed)
{
	struct card own = {
		.kind = attr->kind,
		.reduction = attr->reduction,
		.algorithm = attr->algorithm,
		.root = attr->root,
		.dtype = attr->dtype,
		.status = status,
		.count = attr->count,
		.piece_bytes = attr->piece_bytes,
	};
	const struct card *cards;
	uint32_t rank;
	void *told;
	int ret;

	ret = towi_group_gather(comm->group, &own, sizeof(own), &told, blamed);
	cards = told;
	for (rank = 0; !ret && rank < comm->ranks; rank++) {
		if (!cards[rank].status && !memcmp(&cards[rank], &cards[0], sizeof(own)))
			continue;
		*blamed = rank;
		ret = cards[rank].status ? -ECANCELED : -EPROTO;
	}
	return status ? status : ret;
}

static int take_place(struct tow_collective *collective)
{
	struct tow_comm *comm = collective->comm;
	uint32_t place;

	for (place = 0; place < TOW_COLLECTIVES_MAX; place++) {
		if (comm->used[place / 64] >> place % 64 & 1)
			continue;
		comm->used[place / 64] |= 1ULL << place % 64;
		collective->place = place;
		collective->placed = true;
		/* Nobody asks about the one before any more: all have come to make this one. */
		towi_board_started(comm, place, 0);
		return 0;
	}
	return -EMLINK;
}

static void leave_place(struct tow_collective *collective)
{
	uint32_t place = collective->place;

	if (!collective->placed)
		return;
	/* How often it was started stays: others may still wait in a call that has ended here. */
	collective->comm->used[place / 64] &= ~(1ULL << place % 64);
}

/* Each has its own: they may have destroyed others in another order. */
static int agree_on_places(struct tow_collective *collective, uint32_t *blamed)
{
	uint32_t rank, ranks = collective->comm->ranks;
	uint64_t *places = calloc(ranks, sizeof(*places));
	int ret = places ? take_place(collective) : -ENOMEM;

	collective->places = places;
	ret = towi_comm_agree(collective->comm, ret, collective->place, places, blamed);
	for (rank = 0; !ret && places && rank < ranks; rank++) {
		if (places[rank] >= TOW_COLLECTIVES_MAX) {
			*blamed = rank;
			ret = -EPROTO;
		}
	}
	return ret;
}

static struct tow_collective *collective_of(struct towi_runner *runner)
{
	return (struct tow_collective *)runner;
}

/* Of one of which nothing is on its way. */
static void free_collective(struct towi_runner *runner)
{
	struct tow_collective *collective = collective_of(runner);
	struct tow_comm *comm = collective->comm;

	towi_array_free(comm, &collective->in);
	towi_array_free(comm, &collective->out);
	towi_array_free(comm, &collective->scratch);
	towi_array_free(comm, &collective->numbers);
	free(collective->places);
	free(collective);
}

/* Nobody reaches it any more, and it is not in the communicator's list. */
static void close_collective(struct tow_collective *collective)
{
	struct tow_comm *comm = collective->comm;

	collective->algorithm->close(collective);
	tow_unexport(collective->scratch_exported);
	tow_unexport(collective->out_exported);
	towi_comm_settle(comm, &collective->runner.waiting);
	leave_place(collective);
	/* The device may still read what it did not end. */
	if (towi_pump_leave(&collective->runner))
		free_collective(&collective->runner);
}

static void go_on(struct towi_runner *runner)
{
	struct tow_collective *collective = collective_of(runner);

	if (!collective->running || collective->comm->error)
		return;
	collective->comm->moved |= collective->algorithm->go_on(collective);
	/* Then the caller has what it is to get. */
	if (runner->busy || !collective->algorithm->done(collective))
		return;
	copy_out(collective);
	collective->running = false;
	collective->calls++;
}

static const struct towi_runner_ops ops = { .go_on = go_on, .bury = free_collective };

/* What others find; then what they have made. */
static int make(struct tow_collective *collective, uint32_t *blamed)
{
	struct tow_comm *comm = collective->comm;
	uint32_t other = TOW_NO_RANK;
	uint32_t missing = TOW_NO_RANK;
	int ret;

	ret = towi_members_find(comm, towi_until(comm->timeout_ms * 1000ULL), &missing);
	if (ret) {
		*blamed = missing;
		return towi_comm_agree(comm, ret, 0, NULL, blamed);
	}
	ret = agree_on_places(collective, blamed);
	if (ret)
		return ret;
	ret = take_arrays(collective);
	if (!ret)
		ret = collective->algorithm->make(collective);
	ret = towi_comm_agree(comm, ret, 0, NULL, blamed);
	if (ret)
		return ret;
	ret = collective->algorithm->find(collective, towi_until(comm->timeout_ms * 1000ULL),
					  &other);
	if (ret)
		*blamed = other;
	return towi_comm_agree(comm, ret, 0, NULL, blamed);
}

static uint64_t element_of(const struct tow_collective_attr *attr)
{
	return attr->kind == TOW_BARRIER ? 1 : (uint64_t)attr->dtype.bits * attr->dtype.lanes / 8;
}

/* @attr says which algorithm. */
static struct tow_collective *new_collective(struct tow_comm *comm,
					     const struct tow_collective_attr *attr, uint64_t number)
{
	const struct towi_algorithm *algorithm = algorithm_of(attr->algorithm, comm->ranks);
	struct tow_collective *made;

	made = calloc(1, algorithm->bytes + comm->ranks * algorithm->rank_bytes);
	if (!made)
		return NULL;
	made->algorithm = algorithm;
	made->comm = comm;
	made->attr = *attr;
	if (towi_is_reduction(attr->kind))
		towi_reduce_type(attr->dtype, attr->reduction, &made->type);
	made->number = number;
	shape(made, element_of(attr));
	return made;
}

static int create(struct tow_comm *comm, struct tow_collective_attr *attr,
		  struct tow_collective **collective, uint32_t *blamed)
{
	struct tow_collective *made;
	int ret;

	attr->algorithm = choose_algorithm(attr, comm->ranks, attr->count * element_of(attr));
	made = new_collective(comm, attr, comm->made++);
	ret = compare_cards(comm, attr, made ? 0 : -ENOMEM, blamed);
	if (ret) {
		free(made);
		return ret;
	}
	made->runner.ops = &ops;
	towi_pump_join(&comm->pump, &made->runner);
	ret = make(made, blamed);
	if (ret) {
		close_collective(made);
		return ret;
	}
	made->next = comm->collectives;
	comm->collectives = made;
	*collective = made;
	return 0;
}

static int create_locked(struct tow_comm *comm, struct tow_collective_attr *attr,
			 struct tow_collective **collective, uint32_t *blamed)
{
	int ret;

	towi_pump_lock(&comm->pump);
	ret = create(comm, attr, collective, blamed);
	towi_pump_unlock(&comm->pump);
	return ret;
}

/* May it go on?  0 or a negative errno. */
static int usable(const struct tow_comm *comm)
{
	return towi_comm_ours(comm) ? comm->error : -EPERM;
}

static bool is_busy(const struct tow_comm *comm)
{
	const struct tow_collective *collective;

	for (collective = comm->collectives; collective; collective = collective->next)
		if (collective->running)
			return true;
	return false;
}

TOW_PUBLIC int tow_collective_create(struct tow_comm *comm, const struct tow_collective_attr *attr,
				     struct tow_collective **collective, uint32_t *blamed)
{
	struct tow_collective_attr known;
	uint32_t rank = TOW_NO_RANK;
	int ret;

	if (blamed)
		*blamed = rank;
	if (!comm || !attr || !collective)
		return -EINVAL;
	ret = towi_take(attr, TOWI_COLLECTIVE_ATTR_SIZE_FIRST, &known, sizeof(known));
	if (!ret)
		ret = check_attr(comm, &known);
	if (ret)
		return ret;
	ret = usable(comm);
	if (ret)
		rank = ret == -EPERM ? TOW_NO_RANK : comm->blamed;
	else if (is_busy(comm))
		ret = -EBUSY;
	else
		ret = create_locked(comm, &known, collective, &rank);
	if (blamed)
		*blamed = rank;
	return ret;
}

/* Nothing that was sent is on its way any more, or it seems never to end. */
static void settle(struct tow_collective *collective)
{
	struct tow_comm *comm = collective->comm;

	if (comm->error && collective->algorithm->stop) {
		/* Who finds this rank's end of it gone is to know why. */
		towi_comm_tell(comm);
		collective->algorithm->stop(collective);
	}
	towi_comm_settle(comm, &collective->runner.busy);
}

TOW_PUBLIC void tow_collective_destroy(struct tow_collective *collective)
{
	struct tow_collective **link;
	struct tow_comm *comm;

	if (!collective)
		return;
	comm = collective->comm;
	/* As forget_comm(). */
	if (!towi_comm_ours(comm)) {
		free(collective->places);
		free(collective);
		return;
	}
	towi_pump_lock(&comm->pump);
	if (collective->running)
		towi_comm_fail(comm, -ECANCELED, comm->rank);
	for (link = &comm->collectives; *link != collective; link = &(*link)->next)
		;
	*link = collective->next;
	settle(collective);
	close_collective(collective);
	towi_pump_unlock(&comm->pump);
}

/* ---- calls -------------------------------------------------------------------- */

TOW_PUBLIC int tow_collective_start(struct tow_collective *collective)
{
	struct tow_comm *comm;
	int ret;

	if (!collective)
		return -EINVAL;
	comm = collective->comm;
	ret = usable(comm);
	if (!ret && collective->running)
		ret = -EBUSY;
	if (ret)
		return ret;
	towi_pump_lock(&comm->pump);
	copy_in(collective);
	collective->begun++;
	towi_board_started(comm, collective->place, collective->begun);
	collective->until = towi_until(comm->timeout_ms * 1000ULL);
	comm->probe_us = towi_until(TOWI_PROBE_US);
	collective->running = true;
	collective->algorithm->start(collective);
	towi_comm_progress(comm);
	towi_pump_unlock(&comm->pump);
	return 0;
}

/* It takes too long: somebody is to blame. */
static void be_late(struct tow_collective *collective)
{
	struct tow_comm *comm = collective->comm;
	uint32_t late = towi_board_late(comm, collective->places, collective->begun);

	if (late == TOW_NO_RANK)
		late = collective->algorithm->waits_for(collective);
	towi_comm_fail(comm, -ETIMEDOUT, late);
}

/* While nothing comes others may be gone, or late. */
static void doubt(struct tow_collective *collective, bool any, uint64_t now_us)
{
	struct tow_comm *comm = collective->comm;

	if (comm->error)
		return;
	if (now_us >= collective->until) {
		be_late(collective);
	} else if (any) {
		comm->probe_us = now_us + TOWI_PROBE_US;
	} else if (now_us >= comm->probe_us) {
		comm->probe_us = now_us + TOWI_PROBE_US;
		towi_board_probe(comm);
	}
}

/* How it is at @now_us: 1: it has ended; 0: it has not; or a negative errno. */
static int look(struct tow_collective *collective, bool *any, uint64_t *now_us)
{
	struct tow_comm *comm = collective->comm;

	*any = towi_comm_progress(comm);
	if (!collective->running && !comm->error)
		return 1;
	*now_us = towi_now_ns() / 1000;
	doubt(collective, *any, *now_us);
	if (comm->error)
		settle(collective);
	return comm->error;
}

static void tell_blame(const struct tow_collective *collective, int ret, uint32_t *blamed)
{
	if (blamed)
		*blamed = ret < 0 && ret != -EPERM && ret != -EINTR ? collective->comm->blamed :
								       TOW_NO_RANK;
}

TOW_PUBLIC int tow_collective_test(struct tow_collective *collective, uint32_t *blamed)
{
	uint64_t now;
	bool any;
	int ret;

	if (!collective)
		return -EINVAL;
	if (!towi_comm_ours(collective->comm)) {
		tell_blame(collective, -EPERM, blamed);
		return -EPERM;
	}
	towi_pump_lock(&collective->comm->pump);
	ret = look(collective, &any, &now);
	towi_pump_unlock(&collective->comm->pump);
	tell_blame(collective, ret, blamed);
	return ret;
}

/* Nothing has happened for a while: sleep until something does, or @end. */
static int sleep_for_it(struct tow_collective *collective, uint64_t end)
{
	struct tow_comm *comm = collective->comm;
	struct tow_collective *other;
	bool armed = true;

	for (other = comm->collectives; other && armed; other = other->next)
		if (other->running)
			armed = other->algorithm->arm(other);
	if (!armed)
		return 0;
	return towi_comm_sleep(comm, collective->until < end ? collective->until : end);
}

/* Until it has ended, or @end: as look(); -EINTR: it goes on, and may be waited for again. */
static int wait_until(struct tow_collective *collective, uint64_t end)
{
	struct towi_pump *pump = &collective->comm->pump;
	uint64_t now, busy_until = 0;
	int ret, slept = 0;
	bool any;

	if (!towi_comm_ours(collective->comm))
		return -EPERM;
	towi_pump_lock(pump);
	while (!(ret = look(collective, &any, &now)) && now < end && !slept) {
		if (any || !busy_until)
			busy_until = now + collective->comm->spin_us;
		else if (now >= busy_until)
			slept = sleep_for_it(collective, end);
	}
	towi_pump_unlock(pump);
	return ret ? ret : slept;
}

TOW_PUBLIC int tow_collective_wait(struct tow_collective *collective, uint32_t *blamed)
{
	int ret;

	if (!collective)
		return -EINVAL;
	ret = wait_until(collective, UINT64_MAX);
	tell_blame(collective, ret, blamed);
	return ret < 0 ? ret : 0;
}

TOW_PUBLIC int tow_collective_wait_for(struct tow_collective *collective, uint32_t timeout_us,
				       uint32_t *blamed)
{
	int ret;

	if (!collective)
		return -EINVAL;
	ret = wait_until(collective, towi_until(timeout_us));
	tell_blame(collective, ret, blamed);
	return ret;
}

TOW_PUBLIC int tow_collective_late(struct tow_collective *collective, uint32_t *rank)
{
	struct tow_comm *comm;
	int ret;

	if (!collective || !rank)
		return -EINVAL;
	comm = collective->comm;
	ret = usable(comm);
	if (ret)
		return ret;
	*rank = TOW_NO_RANK;
	towi_pump_lock(&comm->pump);
	if (collective->running)
		*rank = towi_board_late(comm, collective->places, collective->begun);
	towi_pump_unlock(&comm->pump);
	return comm->error;
}

TOW_PUBLIC int tow_collective_stats(const struct tow_collective *collective,
				    struct tow_collective_stats *stats)
{
	struct tow_collective_stats known = { .size = sizeof(known) };

	if (!collective || !stats)
		return -EINVAL;
	known.algorithm = collective->attr.algorithm;
	known.pieces = collective->pieces;
	known.copies = (collective->in.given != NULL) + (collective->out.given != NULL);
	known.calls = collective->calls;
	known.sent_bytes = collective->sent_bytes;
	known.copied_bytes = collective->copied_bytes;
	known.forwarded = collective->forwarded;
	return towi_give(&known, TOWI_COLLECTIVE_STATS_SIZE_FIRST, stats);
}
