// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Static edges.
 *
 * The receiver's letters are the tensors' memory.  Each notification after the first is a
 * step, in letter step - 1; of a large tensor one by each lane of the slot, with a part.  The
 * receiver notifies NAME/read for each step that was read; the sender begins step N when
 * N - slots were.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../core/internal.h"
#include "steps.h"

#define STEPS		TOW_EDGE_SLOTS_MAX

struct static_edge {
	struct tow_edge edge;			/* first */
	uint64_t read_before;			/* steps, by a receiver before this one */
	_Atomic uint64_t consumed;		/* the receiver's, also read without the lock */
	struct towi_op credit[STEPS];
};

static struct static_edge *static_of(struct tow_edge *edge)
{
	return (struct static_edge *)edge;
}

static const struct static_edge *const_static_of(const struct tow_edge *edge)
{
	return (const struct static_edge *)edge;
}

/* What the other end says that its tensors are. */
static int compare(const struct tow_edge *edge, const struct towi_header *header)
{
	int ret = towi_type_compare(&edge->type, &header->type);

	if (ret)
		return ret;
	/* Only a receiver's letters have a size. */
	if (header->bytes != edge->bytes || (edge->sends && header->stride < edge->bytes) ||
	    header->slots > TOW_EDGE_SLOTS_MAX ||
	    header->before - header->consumed > header->slots)
		return -EPROTO;
	return 0;
}

/* ---- the sender ------------------------------------------------------------- */

static uint64_t read_steps(const struct tow_edge *edge)
{
	return const_static_of(edge)->read_before + tow_slot_value(edge->slot);
}

uint64_t towi_static_read(const struct tow_edge *edge)
{
	return edge->connected ? read_steps(edge) : 0;
}

static void step_ended(struct towi_op *op, int status)
{
	struct tow_edge *edge = towi_edge_of(op);

	if (status)
		towi_edge_fail(edge, status);
	towi_steps_over(edge, (struct towi_step *)op, status);
}

/* The part of it that goes by one lane: all of it, if there is but one. */
static void begin_part(struct tow_edge *edge, struct towi_step *step,
		       const struct tow_region *region, uint64_t offset, uint32_t lane)
{
	struct tow_sqe *sqe = towi_pump_entry(&edge->runner);
	uint64_t from, bytes = towi_part(edge->bytes, edge->lanes, lane, &from);

	if (region)
		tow_prep_write_notify(sqe, towi_edge_lane(edge, lane), region, offset + from,
				      edge->tensors_there ? edge->tensors_there : edge->range,
				      towi_letter_at(edge, step->number - 1) + from, bytes,
				      edge->other);
	else
		tow_prep_notify(sqe, edge->channel, edge->other);
	if (step->staged)
		tow_sqe_set_flags(sqe, edge->runner.pump->copied_flag);
	step->op.more += lane > 0;
	towi_pump_begun(sqe, &step->op);
}

/* False: it cannot begin now. */
static bool begin_step(struct tow_edge *edge, struct towi_step *step)
{
	struct tow_region *region = NULL;
	uint64_t offset = 0;
	uint32_t lane;

	if (step->number > read_steps(edge) + edge->theirs.slots)
		return false;
	/* It was in one when it was given. */
	if (edge->bytes &&
	    towi_edge_place(edge, step->staged ? step->staged : step->data, &region, &offset)) {
		towi_edge_fail(edge, -EFAULT);
		return false;
	}
	if (!towi_pump_room(&edge->runner, edge->lanes))
		return false;
	for (lane = 0; lane < edge->lanes; lane++)
		begin_part(edge, step, region, offset, lane);
	towi_steps_begun(edge, step);
	return true;
}

static void sender_goes_on(struct tow_edge *edge)
{
	struct towi_steps *steps = edge->steps;

	while (!edge->error && steps->begun < steps->given &&
	       begin_step(edge, towi_step(steps, steps->begun + 1)))
		;
	towi_steps_cancel(edge);
	if (!edge->error && steps->begun < steps->given && steps->begun >= edge->theirs.slots)
		towi_edge_wait_for(edge, steps->begun + 1 - edge->theirs.slots -
						 static_of(edge)->read_before);
}

/* Called with the lock. */
static int send_step(struct tow_edge *edge, const void *data, void *staged, tow_edge_done *done,
		     void *arg)
{
	struct towi_step *step;
	int ret = towi_steps_may(edge);

	if (ret)
		return ret;
	step = towi_steps_next(edge->steps);
	step->data = data;
	step->staged = staged;
	towi_steps_give(edge->steps, step, done, arg);
	sender_goes_on(edge);
	return 0;
}

static const struct towi_kind sender_kind;

TOW_PUBLIC int tow_edge_send(struct tow_edge *edge, const void *data, tow_edge_done *done,
			     void *arg)
{
	void *staged = NULL;
	int ret;

	if (!edge || edge->kind != &sender_kind || (!data && edge->bytes))
		return -EINVAL;
	if (!towi_pump_usable(&edge->worker->pump))
		return -EPERM;
	ret = towi_steps_ask(edge);
	if (!ret)
		ret = towi_edge_stage(edge, data, edge->bytes, false, &staged);
	if (ret)
		return ret;
	towi_pump_lock(&edge->worker->pump);
	ret = send_step(edge, data, staged, done, arg);
	towi_pump_unlock(&edge->worker->pump);
	/* Another thread was faster. */
	if (ret)
		tow_arena_free(edge->worker->words, staged);
	return ret;
}

/* Those that came before are there; they are read, and then there is room. */
static void resume(struct tow_edge *edge, const struct towi_header *header)
{
	struct static_edge *own = static_of(edge);

	edge->steps->given = header->before;
	edge->steps->begun = header->before;
	edge->steps->ended = header->before;
	own->read_before = header->consumed;
}

static const struct towi_kind sender_kind = {
	.number = TOWI_STATIC,
	.slot = "/read",
	.other = "/arrived",
	.compare = compare,
	.resume = resume,
	.next = towi_steps_next_number,
	.go_on = sender_goes_on,
	.pending = towi_steps_pending,
	.give_up = towi_steps_give_up,
	.free = towi_steps_free,
};

/* ---- the receiver ----------------------------------------------------------- */

/* Steps that have come. */
static uint64_t come(const struct tow_edge *edge)
{
	uint64_t number = tow_slot_value(edge->slot);

	return edge->before + (number > TOWI_HELLO ? number - TOWI_HELLO : 0);
}

/* Also without the lock. */
static int show(struct tow_edge *edge, void **data, uint64_t *step)
{
	uint64_t consumed = static_of(edge)->consumed;
	int ret;

	/* A step that came before the end did come. */
	if (come(edge) <= consumed) {
		/* A sender that does not fit is told apart from one that has gone. */
		ret = towi_edge_greets(edge);
		return ret < 0 ? ret : edge->error;
	}
	*data = towi_letter(edge, consumed);
	if (step)
		*step = consumed + 1;
	return 1;
}

static int arm(struct tow_edge *edge)
{
	uint64_t consumed = static_of(edge)->consumed;

	if (come(edge) <= consumed)
		return towi_edge_wait_for(edge, TOWI_HELLO + consumed + 1 - edge->before);
	towi_pump_nudge(edge->runner.pump);
	return 0;
}

/* One more was read, also for whoever takes over. */
static void count(struct tow_edge *edge)
{
	uint64_t consumed = ++static_of(edge)->consumed;

	if (edge->kept)
		__atomic_store_n(&edge->kept->consumed, consumed, __ATOMIC_RELEASE);
}

static uint64_t receiver_next(const struct tow_edge *edge)
{
	return const_static_of(edge)->consumed + 1;
}

/* Tell the sender that one more was read. */
static int consume(struct tow_edge *edge)
{
	struct static_edge *own = static_of(edge);
	struct towi_op *op = &own->credit[own->consumed % STEPS];
	struct tow_sqe *sqe;

	if (come(edge) <= own->consumed)
		return -EINVAL;
	if (!edge->connected)
		return edge->error ? edge->error : -ENOTCONN;
	/* Nobody is there to be told; but there may be more steps that came before. */
	if (edge->error) {
		count(edge);
		return 0;
	}
	if (op->busy || !towi_pump_room(&edge->runner, 1))
		return -EBUSY;
	sqe = towi_pump_entry(&edge->runner);
	tow_prep_notify(sqe, edge->channel, edge->other);
	towi_edge_op(edge, op);
	towi_pump_begun(sqe, op);
	count(edge);
	return 0;
}

static bool receiver_lost(struct tow_edge *edge)
{
	return towi_edge_lost(edge, edge->tensors);
}

static const struct towi_kind receiver_kind = {
	.number = TOWI_STATIC,
	.slot = "/arrived",
	.other = "/read",
	.compare = compare,
	.next = receiver_next,
	.show = show,
	.shows_memory = true,
	.arm = arm,
	.consumed = consume,
	.lost = receiver_lost,
};

/* ---- begin ------------------------------------------------------------------ */

/* The size of a letter, and of the tensor in it: 0 or a negative errno. */
static int letters_of(const struct tow_tensor_type *type, uint32_t slots, uint64_t *bytes,
		      struct towi_letters *letters)
{
	int ret;

	if (!slots || slots > TOW_EDGE_SLOTS_MAX)
		return -EINVAL;
	ret = tow_tensor_bytes(type, bytes);
	if (ret)
		return ret;
	letters->slots = slots;
	letters->stride = (*bytes + TOWI_LINE - 1) / TOWI_LINE * TOWI_LINE;
	return letters->stride > (SIZE_MAX / 2 - TOWI_LETTERS_AT) / slots ? -EOVERFLOW : 0;
}

static int make_receiver(struct tow_worker *worker, struct tow_peer *peer, const char *name,
			 const struct tow_tensor_type *type, uint32_t slots,
			 struct tow_region *region, struct tow_edge **edge)
{
	struct static_edge *made;
	struct towi_letters mine;
	uint64_t bytes;
	int ret;

	ret = towi_edge_may_be(worker, peer, name, edge);
	if (!ret)
		ret = letters_of(type, slots, &bytes, &mine);
	if (ret)
		return ret;
	made = calloc(1, sizeof(*made));
	if (!made)
		return -ENOMEM;
	made->edge.kind = &receiver_kind;
	made->edge.type = *type;
	made->edge.bytes = bytes;
	made->edge.mine = mine;
	made->edge.kept_region = region;
	ret = towi_edge_make(&made->edge, worker, peer, name, edge);
	if (!ret && made->edge.kept)
		made->consumed = made->edge.kept->consumed;
	return ret;
}

TOW_PUBLIC int tow_static_receiver(struct tow_worker *worker, struct tow_peer *peer,
				   const char *name, const struct tow_tensor_type *type,
				   uint32_t slots, struct tow_edge **edge)
{
	return make_receiver(worker, peer, name, type, slots, NULL, edge);
}

TOW_PUBLIC int tow_static_receiver_in(struct tow_worker *worker, struct tow_peer *peer,
				      const char *name, const struct tow_tensor_type *type,
				      uint32_t slots, struct tow_region *region,
				      struct tow_edge **edge)
{
	return region ? make_receiver(worker, peer, name, type, slots, region, edge) : -EINVAL;
}

TOW_PUBLIC int tow_static_bytes(const struct tow_tensor_type *type, uint32_t slots,
				uint64_t *bytes)
{
	struct towi_letters letters;
	uint64_t of_one;
	int ret;

	if (!bytes)
		return -EINVAL;
	ret = letters_of(type, slots, &of_one, &letters);
	if (!ret)
		*bytes = TOWI_KEPT_BYTES + TOWI_LETTERS_AT + letters.slots * letters.stride;
	return ret;
}

TOW_PUBLIC int tow_static_sender(struct tow_worker *worker, struct tow_peer *peer,
				 const char *name, const struct tow_tensor_type *type,
				 struct tow_edge **edge)
{
	struct static_edge *made;
	uint64_t bytes;
	int ret;

	ret = towi_edge_may_be(worker, peer, name, edge);
	if (!ret)
		ret = tow_tensor_bytes(type, &bytes);
	if (ret)
		return ret;
	made = calloc(1, sizeof(*made));
	if (!made)
		return -ENOMEM;
	made->edge.kind = &sender_kind;
	made->edge.sends = true;
	made->edge.large = bytes >= TOW_CUT_BYTES;
	made->edge.type = *type;
	made->edge.bytes = bytes;
	ret = towi_steps_make(&made->edge, step_ended);
	if (ret) {
		free(made);
		return ret;
	}
	return towi_edge_make(&made->edge, worker, peer, name, edge);
}
