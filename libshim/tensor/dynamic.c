// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Dynamic edges.
 *
 * The sender's letter N says what tensor N is, and where; the receiver allocates, reads, and
 * answers with its own letter N, in the sender's range, behind the read.  Until that has
 * come the tensor is the edge's.  Section 3.3 of "Fast Distributed Deep Learning over RDMA".
 *
 * Reads may end in any order, so an answer says which step it is of.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../core/internal.h"
#include "steps.h"

#define STEPS		TOW_EDGE_SLOTS_MAX

/* The sender's, of so many bytes. */
struct letter {
	uint64_t step;
	uint64_t bytes;
	struct towi_place source;
	uint32_t flags;
	uint32_t crc32c;
	struct tow_tensor_type type;
};

#define LETTER_BYTES	192U
#define LETTER_CRC32C	(1U << 0)
#define LETTER_COPIED	(1U << 1)	/* what is read is a copy */

/* The receiver's: what is written partly fits not together. */
struct answer {
	uint64_t step;
	int64_t status;
	uint64_t check;
	uint64_t reserved;
};

_Static_assert(sizeof(struct letter) <= LETTER_BYTES, "each has its place");

enum intake_state {
	EMPTY,
	WAITING,	/* for memory, or to know where it is */
	READING,
	READY,		/* or it never will be: status */
};

/* The receiver's: a step of which the letter has come. */
struct intake {
	struct towi_op read, reply;		/* first */
	enum intake_state state;
	struct letter letter;
	void *data;
	int status;
	struct towi_view *view;
};

struct dynamic_edge {
	struct tow_edge edge;			/* first */
	struct towi_windows windows;
	uint64_t taken, consumed;		/* the receiver's */
	struct intake *intakes;			/* STEPS */
	struct towi_views views;
};

static struct dynamic_edge *dynamic_of(struct tow_edge *edge)
{
	return (struct dynamic_edge *)edge;
}

static const struct dynamic_edge *const_dynamic_of(const struct tow_edge *edge)
{
	return (const struct dynamic_edge *)edge;
}

static uint64_t check_of(const struct answer *answer)
{
	return ~(answer->step ^ ((uint64_t)answer->status << 32));
}

/* ---- the sender ------------------------------------------------------------- */

static struct letter *own_letter(const struct tow_edge *edge, uint64_t step)
{
	return (struct letter *)(void *)(edge->own + TOWI_OWN_AT + (step - 1) % STEPS * LETTER_BYTES);
}

/* Has step been answered?  Then its status is stored. */
static bool answered(const struct tow_edge *edge, uint64_t step, int *status)
{
	struct answer answer;

	memcpy(&answer, towi_letter(edge, step - 1), sizeof(answer));
	if (answer.step != step || answer.check != check_of(&answer))
		return false;
	*status = towi_is_error(answer.status) ? (int)answer.status :
		  answer.status ? -EPROTO : 0;
	return true;
}

/*
 * May nobody be reading what was not answered?  After other errors somebody may, until the
 * windows have ended: who reads without an error has read what was there.
 */
static bool out_of_reach(const struct tow_edge *edge)
{
	return edge->error == -ESTALE || edge->error == -ECONNRESET || edge->error == -ENODEV;
}

/* The letter's own operation has to have ended, too. */
static void end_answered(struct tow_edge *edge)
{
	struct towi_steps *steps = edge->steps;
	struct towi_step *step;
	int status;

	while (steps->ended < steps->begun) {
		step = towi_step(steps, steps->ended + 1);
		status = edge->error;
		if (step->op.busy ||
		    (!answered(edge, step->number, &status) && !out_of_reach(edge)))
			break;
		towi_steps_over(edge, step, status);
	}
}

static uint64_t unanswered(const struct towi_steps *steps)
{
	return steps->begun - steps->ended;
}

/* False: it cannot begin now. */
static bool begin_step(struct tow_edge *edge, struct towi_step *step)
{
	struct tow_region *region;
	struct tow_sqe *sqe;
	uint64_t offset;

	if (unanswered(edge->steps) >= edge->theirs.slots)
		return false;
	if (towi_edge_place(edge, own_letter(edge, step->number), &region, &offset))
		return false;
	sqe = towi_worker_entry(edge->common.worker);
	if (!sqe)
		return false;
	tow_prep_write_notify(sqe, edge->channel, region, offset, edge->range,
			      towi_letter_at(edge, step->number - 1), LETTER_BYTES, edge->other);
	towi_worker_begun(sqe, &step->op);
	towi_steps_begun(edge->steps, step);
	return true;
}

static void sender_goes_on(struct tow_edge *edge)
{
	struct towi_steps *steps = edge->steps;
	uint64_t seen = tow_slot_value(edge->slot);

	end_answered(edge);
	while (!edge->error && steps->begun < steps->given &&
	       begin_step(edge, towi_step(steps, steps->begun + 1)))
		;
	towi_steps_cancel(edge);
	/* More than was seen before looking. */
	if (!edge->error && steps->ended < steps->begun)
		towi_edge_wait_for(edge, seen + 1);
}

static void sender_ticks(struct tow_edge *edge, uint64_t now_us)
{
	if (edge->error)
		return;
	if (edge->wait.busy && edge->connected)
		towi_edge_probe(edge, now_us);
	towi_steps_look(edge, now_us);
}

static int write_letter(struct tow_edge *edge, const struct towi_step *step, uint64_t bytes,
			const struct tow_tensor_type *type)
{
	towi_crc32c *crc32c = edge->common.worker->crc32c;
	const void *data = step->staged ? step->staged : step->data;
	struct letter letter = { .step = edge->steps->given + 1, .bytes = bytes,
				 .type = *type };
	int ret = 0;

	if (bytes)
		ret = towi_window(&dynamic_of(edge)->windows, data, &letter.source);
	if (ret)
		return ret;
	if (step->staged)
		letter.flags |= LETTER_COPIED;
	if (crc32c) {
		letter.flags |= LETTER_CRC32C;
		letter.crc32c = towi_crc32c_of(crc32c, data, bytes);
	}
	*own_letter(edge, letter.step) = letter;
	return 0;
}

/* Called with the lock. */
static int send_step(struct tow_edge *edge, const struct tow_tensor_type *type, uint64_t bytes,
		     const void *data, tow_edge_done *done, void *arg)
{
	struct towi_steps *steps = edge->steps;
	struct towi_step *step;
	int ret;

	if (edge->error)
		return edge->error;
	if (!edge->connected)
		return -ENOTCONN;
	step = towi_steps_next(steps);
	if (!step)
		return -EAGAIN;
	ret = towi_edge_stage(edge, data, bytes, false, &step->staged);
	if (ret)
		return ret;
	step->data = data;
	ret = write_letter(edge, step, bytes, type);
	if (ret) {
		tow_arena_free(edge->common.worker->arena, step->staged);
		step->staged = NULL;
		return ret;
	}
	towi_steps_give(steps, step, done, arg);
	sender_goes_on(edge);
	return 0;
}

static const struct towi_kind sender_kind;

TOW_PUBLIC int tow_dynamic_send(struct tow_edge *edge, const struct tow_tensor_type *type,
				const void *data, tow_edge_done *done, void *arg)
{
	uint64_t bytes;
	int ret;

	if (!edge || edge->kind != &sender_kind)
		return -EINVAL;
	ret = tow_tensor_bytes(type, &bytes);
	if (ret)
		return ret;
	if (!data && bytes)
		return -EINVAL;
	if (!towi_worker_usable(edge->common.worker))
		return -EPERM;
	towi_worker_lock(edge->common.worker);
	ret = send_step(edge, type, bytes, data, done, arg);
	towi_worker_unlock(edge->common.worker);
	return ret;
}

static void sender_hides(struct tow_edge *edge)
{
	towi_windows_end(&dynamic_of(edge)->windows);
}

static const struct towi_kind sender_kind = {
	.number = TOWI_DYNAMIC,
	.back = true,
	.next = towi_steps_next_number,
	.go_on = sender_goes_on,
	.tick = sender_ticks,
	.pending = towi_steps_pending,
	.in_flight = towi_steps_in_flight,
	.hide = sender_hides,
	.give_up = towi_steps_give_up,
	.calling = towi_steps_calling,
	.free = towi_steps_free,
};

/* ---- the receiver ----------------------------------------------------------- */

static struct intake *intake_of(struct tow_edge *edge, uint64_t step)
{
	return &dynamic_of(edge)->intakes[(step - 1) % STEPS];
}

static struct answer *own_answer(const struct tow_edge *edge, uint64_t step)
{
	return (struct answer *)(void *)(edge->own + TOWI_OWN_AT +
					 (step - 1) % STEPS * sizeof(struct answer));
}

static void drop_data(const struct tow_edge *edge, struct intake *intake)
{
	tow_arena_free(edge->common.worker->arena, intake->data);
	intake->data = NULL;
}

/* An answer's entry, which is to be begun; there is room for it. */
static struct tow_sqe *prepare_answer(struct tow_edge *edge, struct intake *intake, int status)
{
	struct answer *answer = own_answer(edge, intake->letter.step);
	struct tow_sqe *sqe = towi_worker_entry(edge->common.worker);
	struct tow_region *region;
	uint64_t offset;

	*answer = (struct answer){ .step = intake->letter.step, .status = status };
	answer->check = check_of(answer);
	if (sqe && !towi_edge_place(edge, answer, &region, &offset))
		tow_prep_write_notify(sqe, edge->channel, region, offset, edge->range,
				      towi_letter_at(edge, answer->step - 1), sizeof(*answer),
				      edge->other);
	return sqe;
}

/* There is no tensor, or it was read already. */
static bool answer(struct tow_edge *edge, struct intake *intake, int status)
{
	struct tow_sqe *sqe;

	if (!towi_worker_room(edge->common.worker, 1))
		return false;
	sqe = prepare_answer(edge, intake, status);
	towi_worker_begun(sqe, &intake->reply);
	intake->status = status;
	intake->state = READY;
	return true;
}

/* Read it, and answer behind that; or just read it, if it is to be looked at before. */
static bool begin_read(struct tow_edge *edge, struct intake *intake)
{
	bool look = intake->letter.flags & LETTER_CRC32C && edge->common.worker->crc32c;
	struct tow_region *region;
	struct tow_sqe *sqe;
	uint64_t offset;

	if (!towi_worker_room(edge->common.worker, 2) ||
	    towi_edge_place(edge, intake->data, &region, &offset))
		return false;
	sqe = towi_worker_entry(edge->common.worker);
	tow_prep_read(sqe, edge->bulk, region, offset, intake->view->remote,
		      intake->letter.source.offset, intake->letter.bytes);
	tow_sqe_set_flags(sqe, (uint8_t)((look ? 0 : TOW_SQE_LINK) |
					 (intake->letter.flags & LETTER_COPIED ?
						  edge->common.worker->copied_flag : 0)));
	towi_worker_begun(sqe, &intake->read);
	if (!look)
		towi_worker_begun(prepare_answer(edge, intake, 0), &intake->reply);
	intake->view->busy++;
	intake->status = 0;
	intake->state = READING;
	return true;
}

static void read_ended(struct towi_op *op, int status)
{
	struct intake *intake = (struct intake *)(void *)op;
	struct tow_edge *edge = op->edge;
	towi_crc32c *crc32c = edge->common.worker->crc32c;

	intake->view->busy--;
	if (status)
		towi_edge_fail(edge, status);
	if (!status && intake->letter.flags & LETTER_CRC32C && crc32c &&
	    towi_crc32c_of(crc32c, intake->data, intake->letter.bytes) != intake->letter.crc32c)
		status = -EBADMSG;
	intake->status = status;
	intake->state = READY;
}

/* After a read that was looked at; what finds no room is answered when something ended. */
static void answer_read(struct tow_edge *edge, struct intake *intake)
{
	if (!intake->reply.busy && intake->letter.step && !edge->error &&
	    own_answer(edge, intake->letter.step)->step != intake->letter.step)
		answer(edge, intake, intake->status);
}

static void reply_ended(struct towi_op *op, int status)
{
	/* Its read has failed, and has said why. */
	if (status && status != -ECANCELED)
		towi_edge_fail(op->edge, status);
}

static int get_memory(struct tow_edge *edge, struct intake *intake)
{
	struct tow_region *region;
	uint64_t offset;

	if (intake->data)
		return 0;
	intake->data = tow_arena_alloc(edge->common.worker->arena, intake->letter.bytes);
	if (!intake->data)
		return -errno;
	if (!towi_edge_place(edge, intake->data, &region, &offset) || !intake->letter.bytes)
		return 0;
	/* Ordinary memory. */
	drop_data(edge, intake);
	return -ENOSPC;
}

/* Begin to read a step, or be content with what is missing. */
static void begin_intake(struct tow_edge *edge, struct intake *intake)
{
	int ret;

	intake->status = get_memory(edge, intake);
	if (intake->status)
		return;
	if (!intake->letter.bytes) {
		answer(edge, intake, 0);
		return;
	}
	ret = towi_view(edge, &dynamic_of(edge)->views, &intake->letter.source,
			intake->letter.bytes, TOW_RIGHT_READ, &intake->view);
	if (!ret)
		begin_read(edge, intake);
	else if (ret != -EAGAIN)
		towi_edge_fail(edge, ret == -ERANGE ? -EPROTO : ret);
}

/* The next letter, if it makes sense. */
static void take_letter(struct tow_edge *edge, uint64_t step)
{
	struct intake *intake = intake_of(edge, step);
	uint64_t bytes;

	memcpy(&intake->letter, towi_letter(edge, step - 1), sizeof(intake->letter));
	if (intake->letter.step != step || tow_tensor_bytes(&intake->letter.type, &bytes) ||
	    bytes != intake->letter.bytes) {
		towi_edge_fail(edge, -EPROTO);
		return;
	}
	intake->state = WAITING;
	intake->status = 0;
	intake->data = NULL;
	dynamic_of(edge)->taken = step;
}

static void take_letters(struct tow_edge *edge)
{
	struct dynamic_edge *own = dynamic_of(edge);
	uint64_t count = tow_slot_value(edge->slot), come = count > TOWI_HELLO ? count - TOWI_HELLO : 0;
	struct intake *intake;

	/* As much as there is room for; a record's last operations have to have ended. */
	while (!edge->error && own->taken < come &&
	       own->taken - own->consumed < edge->mine.slots) {
		intake = intake_of(edge, own->taken + 1);
		if (intake->read.busy || intake->reply.busy)
			break;
		take_letter(edge, own->taken + 1);
	}
}

/* @again: also what has found no memory. */
static void take_in(struct tow_edge *edge, bool again)
{
	struct dynamic_edge *own = dynamic_of(edge);
	struct intake *intake;

	if (!edge->connected)
		return;
	take_letters(edge);
	for (uint64_t step = own->consumed + 1; step <= own->taken && !edge->error; step++) {
		intake = intake_of(edge, step);
		if (intake->state == READY)
			answer_read(edge, intake);
		if (intake->state != WAITING)
			continue;
		if (intake->status && !again)
			break;
		/* What waits until its window was found holds up no other one. */
		begin_intake(edge, intake);
		if (intake->state == WAITING && intake->status)
			break;
	}
}

static void receiver_goes_on(struct tow_edge *edge)
{
	const struct dynamic_edge *own = dynamic_of(edge);
	uint64_t next;

	take_in(edge, false);
	next = TOWI_HELLO + own->taken + 1;
	if (edge->connected && !edge->error && own->taken - own->consumed < edge->mine.slots &&
	    tow_slot_value(edge->slot) < next)
		towi_edge_wait_for(edge, next);
	else if (!edge->connected)
		towi_edge_wait_on(edge);
}

/* Is there a tensor to be shown, or an error in its place? */
static bool shows(struct tow_edge *edge)
{
	const struct dynamic_edge *own = dynamic_of(edge);
	const struct intake *intake = intake_of(edge, own->consumed + 1);

	return own->consumed < own->taken &&
	       (intake->state == READY || (intake->state == WAITING && intake->status));
}

static int show(struct tow_edge *edge, void **data, uint64_t *step)
{
	struct dynamic_edge *own = dynamic_of(edge);
	struct intake *intake = intake_of(edge, own->consumed + 1);

	if (!edge->connected)
		return edge->error ? edge->error : -ENOTCONN;
	take_in(edge, true);
	/* A step that came before the end did come. */
	if (!shows(edge))
		return edge->error;
	if (intake->status)
		return intake->status;
	*data = intake->data;
	if (step)
		*step = own->consumed + 1;
	return 1;
}

static int arm(struct tow_edge *edge)
{
	const struct dynamic_edge *own = dynamic_of(edge);

	if (!edge->connected)
		return -ENOTCONN;
	if (shows(edge))
		return towi_edge_nudge(edge);
	/* What is being read says so when it was. */
	if (own->consumed < own->taken)
		return 0;
	return towi_edge_wait_for(edge, TOWI_HELLO + own->taken + 1);
}

static int consume(struct tow_edge *edge)
{
	struct dynamic_edge *own = dynamic_of(edge);
	struct intake *intake = intake_of(edge, own->consumed + 1);

	if (!shows(edge))
		return -EINVAL;
	/* One for which there was no memory is left out; or it is answered before it goes. */
	if (!edge->error && intake->state == WAITING && !answer(edge, intake, intake->status))
		return -EBUSY;
	answer_read(edge, intake);
	if (!edge->error && own_answer(edge, intake->letter.step)->step != intake->letter.step)
		return -EBUSY;
	drop_data(edge, intake);
	intake->state = EMPTY;
	own->consumed++;
	receiver_goes_on(edge);
	return 0;
}

static uint64_t receiver_next(const struct tow_edge *edge)
{
	return const_dynamic_of(edge)->consumed + 1;
}

static bool receiver_in_flight(const struct tow_edge *edge)
{
	const struct dynamic_edge *own = const_dynamic_of(edge);

	for (uint32_t i = 0; i < STEPS; i++)
		if (own->intakes[i].read.busy || own->intakes[i].reply.busy)
			return true;
	return towi_views_busy(&own->views);
}

static void receiver_free(struct tow_edge *edge)
{
	struct dynamic_edge *own = dynamic_of(edge);

	for (uint32_t i = 0; i < STEPS; i++)
		drop_data(edge, &own->intakes[i]);
	free(own->intakes);
	towi_views_free(&own->views);
}

static const struct towi_kind receiver_kind = {
	.number = TOWI_DYNAMIC,
	.back = true,
	.next = receiver_next,
	.go_on = receiver_goes_on,
	.tick = towi_edge_ticks,
	.show = show,
	.arm = arm,
	.consumed = consume,
	.in_flight = receiver_in_flight,
	.free = receiver_free,
};

/* Called with the lock. */
static int type_of(struct tow_edge *edge, struct tow_tensor_type *type)
{
	if (edge->kind->number == TOWI_STATIC)
		*type = edge->type;
	else if (edge->kind == &receiver_kind && shows(edge))
		*type = intake_of(edge, dynamic_of(edge)->consumed + 1)->letter.type;
	else
		return -EINVAL;
	return 0;
}

TOW_PUBLIC int tow_edge_type(struct tow_edge *edge, struct tow_tensor_type *type)
{
	int ret;

	if (!edge || !type)
		return -EINVAL;
	if (!towi_worker_usable(edge->common.worker))
		return -EPERM;
	towi_worker_lock(edge->common.worker);
	ret = type_of(edge, type);
	towi_worker_unlock(edge->common.worker);
	return ret;
}

/* Called with the lock. */
static int take_data(struct tow_edge *edge, void **data)
{
	struct intake *intake = intake_of(edge, dynamic_of(edge)->consumed + 1);
	void *taken = intake->data;
	int ret;

	if (!shows(edge) || intake->status)
		return -EINVAL;
	intake->data = NULL;
	ret = consume(edge);
	if (ret)
		intake->data = taken;
	else
		*data = taken;
	return ret;
}

TOW_PUBLIC int tow_edge_take(struct tow_edge *edge, void **data)
{
	int ret;

	if (!edge || edge->kind != &receiver_kind || !data)
		return -EINVAL;
	if (!towi_worker_usable(edge->common.worker))
		return -EPERM;
	towi_worker_lock(edge->common.worker);
	ret = take_data(edge, data);
	towi_edge_watch_on(edge);
	towi_worker_unlock(edge->common.worker);
	return ret;
}

/* ---- begin ------------------------------------------------------------------ */

static int make_intakes(struct dynamic_edge *own)
{
	own->intakes = calloc(STEPS, sizeof(*own->intakes));
	if (!own->intakes)
		return -ENOMEM;
	for (uint32_t i = 0; i < STEPS; i++) {
		own->intakes[i].read = (struct towi_op){ .ended = read_ended,
							 .edge = &own->edge };
		own->intakes[i].reply = (struct towi_op){ .ended = reply_ended,
							  .edge = &own->edge };
	}
	return 0;
}

TOW_PUBLIC int tow_dynamic_receiver(struct tow_worker *worker, struct tow_peer *peer,
				    const char *name, uint32_t slots, struct tow_edge **edge)
{
	struct dynamic_edge *made;
	int ret;

	if (!slots || slots > STEPS)
		return -EINVAL;
	ret = towi_edge_may_be(worker, peer, name, edge);
	if (ret)
		return ret;
	made = calloc(1, sizeof(*made));
	if (!made)
		return -ENOMEM;
	made->edge.kind = &receiver_kind;
	made->edge.mine = (struct towi_letters){ slots, LETTER_BYTES };
	made->edge.own_bytes = STEPS * sizeof(struct answer);
	ret = make_intakes(made);
	if (ret) {
		free(made);
		return ret;
	}
	return towi_edge_make(&made->edge, worker, peer, name, edge);
}

TOW_PUBLIC int tow_dynamic_sender(struct tow_worker *worker, struct tow_peer *peer,
				  const char *name, struct tow_edge **edge)
{
	struct dynamic_edge *made;
	int ret;

	ret = towi_edge_may_be(worker, peer, name, edge);
	if (ret)
		return ret;
	made = calloc(1, sizeof(*made));
	if (!made)
		return -ENOMEM;
	made->edge.kind = &sender_kind;
	made->edge.sends = true;
	made->edge.mine = (struct towi_letters){ STEPS, sizeof(struct answer) };
	made->edge.own_bytes = (uint64_t)STEPS * LETTER_BYTES;
	ret = towi_steps_make(&made->edge, towi_edge_op_ended);
	if (!ret)
		ret = towi_windows_begin(&made->windows, worker->arena, TOW_RIGHT_READ);
	if (ret) {
		towi_steps_free(&made->edge);
		free(made);
		return ret;
	}
	return towi_edge_make(&made->edge, worker, peer, name, edge);
}
