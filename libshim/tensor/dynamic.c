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

/* A sum over more is an errand. */
#define SUM_BYTES	(64U << 10)

enum intake_state {
	EMPTY,
	WAITING,	/* for memory, or to know where it is */
	READING,	/* or it is being looked at */
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
	struct towi_errand errand;
	bool getting;			/* memory: an errand does */
	void *got;
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
	sqe = towi_pump_entry(&edge->runner);
	if (!sqe)
		return false;
	tow_prep_write_notify(sqe, edge->channel, region, offset, edge->range,
			      towi_letter_at(edge, step->number - 1), LETTER_BYTES, edge->other);
	towi_pump_begun(sqe, &step->op);
	towi_steps_begun(edge, step);
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

/* Without the lock: all but the step's number, and a copy if there has to be one. */
static int write_letter(struct tow_edge *edge, const void *data, struct letter *letter,
			void **staged)
{
	towi_crc32c *crc32c = edge->worker->crc32c;
	int ret;

	ret = towi_edge_stage(edge, data, letter->bytes, false, staged);
	if (ret)
		return ret;
	if (*staged) {
		letter->flags |= LETTER_COPIED;
		data = *staged;
	}
	if (letter->bytes)
		ret = towi_window(&dynamic_of(edge)->windows, data, letter->bytes, true,
				  &letter->source);
	if (ret) {
		tow_arena_free(edge->worker->arena, *staged);
		return ret;
	}
	if (crc32c) {
		letter->flags |= LETTER_CRC32C;
		letter->crc32c = towi_crc32c_of(crc32c, data, letter->bytes);
	}
	return 0;
}

/* Called with the lock. */
static int send_step(struct tow_edge *edge, struct letter *letter, const void *data, void *staged,
		     tow_edge_done *done, void *arg)
{
	struct towi_step *step;
	int ret = towi_steps_may(edge);

	if (ret)
		return ret;
	step = towi_steps_next(edge->steps);
	step->data = data;
	step->staged = staged;
	letter->step = edge->steps->given + 1;
	*own_letter(edge, letter->step) = *letter;
	towi_steps_give(edge->steps, step, done, arg);
	sender_goes_on(edge);
	return 0;
}

static const struct towi_kind sender_kind;

TOW_PUBLIC int tow_dynamic_send(struct tow_edge *edge, const struct tow_tensor_type *type,
				const void *data, tow_edge_done *done, void *arg)
{
	struct letter letter = { 0 };
	void *staged = NULL;
	int ret;

	if (!edge || edge->kind != &sender_kind)
		return -EINVAL;
	ret = tow_tensor_bytes(type, &letter.bytes);
	if (ret)
		return ret;
	letter.type = *type;
	if (!data && letter.bytes)
		return -EINVAL;
	if (!towi_pump_usable(&edge->worker->pump))
		return -EPERM;
	ret = towi_steps_ask(edge);
	if (!ret)
		ret = write_letter(edge, data, &letter, &staged);
	if (ret)
		return ret;
	towi_pump_lock(&edge->worker->pump);
	ret = send_step(edge, &letter, data, staged, done, arg);
	towi_pump_unlock(&edge->worker->pump);
	/* Another thread was faster. */
	if (ret)
		tow_arena_free(edge->worker->arena, staged);
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
	.pending = towi_steps_pending,
	.hide = sender_hides,
	.give_up = towi_steps_give_up,
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
	tow_arena_free(edge->worker->arena, intake->data);
	intake->data = NULL;
}

/* An answer's entry, which is to be begun; there is room for it. */
static struct tow_sqe *prepare_answer(struct tow_edge *edge, struct intake *intake, int status)
{
	struct answer *answer = own_answer(edge, intake->letter.step);
	struct tow_sqe *sqe = towi_pump_entry(&edge->runner);
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

	if (!towi_pump_room(&edge->runner, 1))
		return false;
	sqe = prepare_answer(edge, intake, status);
	towi_pump_begun(sqe, &intake->reply);
	intake->status = status;
	intake->state = READY;
	return true;
}

/* Read it, and answer behind that; or just read it, if it is to be looked at before. */
static bool begin_read(struct tow_edge *edge, struct intake *intake)
{
	bool look = intake->letter.flags & LETTER_CRC32C && edge->worker->crc32c;
	struct tow_region *region;
	struct tow_sqe *sqe;
	uint64_t offset;

	if (!towi_pump_room(&edge->runner, 2) ||
	    towi_edge_place(edge, intake->data, &region, &offset))
		return false;
	sqe = towi_pump_entry(&edge->runner);
	tow_prep_read(sqe, edge->bulk, region, offset, intake->view->remote,
		      intake->letter.source.offset, intake->letter.bytes);
	tow_sqe_set_flags(sqe, (uint8_t)((look ? 0 : TOW_SQE_LINK) |
					 (intake->letter.flags & LETTER_COPIED ?
						  edge->runner.pump->copied_flag : 0)));
	towi_pump_begun(sqe, &intake->read);
	if (!look)
		towi_pump_begun(prepare_answer(edge, intake, 0), &intake->reply);
	intake->view->busy++;
	intake->status = 0;
	intake->state = READING;
	return true;
}

static struct intake *intake_with(struct towi_errand *errand)
{
	return (struct intake *)(void *)((char *)errand - offsetof(struct intake, errand));
}

/* Is it what was sent?  Also without the lock. */
static int look_at(struct towi_errand *errand)
{
	const struct intake *intake = intake_with(errand);
	towi_crc32c *crc32c = towi_edge_of(&intake->read)->worker->crc32c;

	return towi_crc32c_of(crc32c, intake->data, intake->letter.bytes) == intake->letter.crc32c ?
		       0 : -EBADMSG;
}

static void looked_at(struct towi_errand *errand, int ret)
{
	intake_with(errand)->status = ret;
	intake_with(errand)->state = READY;
}

static void read_ended(struct towi_op *op, int status)
{
	struct intake *intake = (struct intake *)(void *)op;
	struct tow_edge *edge = towi_edge_of(op);
	bool looks = !status && intake->letter.flags & LETTER_CRC32C && edge->worker->crc32c;

	intake->view->busy--;
	if (status)
		towi_edge_fail(edge, status);
	intake->errand = (struct towi_errand){ .runner = &edge->runner, .run = look_at,
					       .done = looked_at };
	if (looks && intake->letter.bytes > SUM_BYTES && !towi_pump_errand(&intake->errand))
		return;
	looked_at(&intake->errand, looks ? look_at(&intake->errand) : status);
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
		towi_edge_fail(towi_edge_of(op), status);
}

/* Without the lock. */
static int make_memory(struct towi_errand *errand)
{
	struct intake *intake = intake_with(errand);
	struct tow_edge *edge = towi_edge_of(&intake->read);
	int error = edge->error;

	if (error)
		return error;
	intake->got = tow_arena_alloc(edge->worker->arena, intake->letter.bytes);
	return intake->got ? 0 : -errno;
}

static void made_memory(struct towi_errand *errand, int ret)
{
	struct intake *intake = intake_with(errand);
	struct tow_edge *edge = towi_edge_of(&intake->read);
	struct tow_region *region;
	uint64_t offset;

	intake->getting = false;
	edge->trying--;
	/* Ordinary memory. */
	if (!ret && intake->letter.bytes && towi_edge_place(edge, intake->got, &region, &offset))
		ret = -ENOSPC;
	/* It may have been left out meanwhile. */
	if (ret || intake->state != WAITING)
		tow_arena_free(edge->worker->arena, intake->got);
	else
		intake->data = intake->got;
	if (intake->state == WAITING)
		intake->status = ret;
	intake->got = NULL;
}

/* False: there is none, or not yet: an errand looks. */
static bool get_memory(struct tow_edge *edge, struct intake *intake)
{
	int ret;

	if (intake->data || intake->getting)
		return intake->data;
	intake->data = towi_arena_try(edge->worker->arena, intake->letter.bytes);
	if (intake->data)
		return true;
	intake->errand = (struct towi_errand){ .runner = &edge->runner, .run = make_memory,
					       .done = made_memory };
	ret = towi_pump_errand(&intake->errand);
	if (ret) {
		intake->status = ret;
		return false;
	}
	intake->getting = true;
	edge->trying++;
	return false;
}

/* Begin to read a step, or be content with what is missing. */
static void begin_intake(struct tow_edge *edge, struct intake *intake)
{
	int ret;

	if (!get_memory(edge, intake))
		return;
	intake->status = 0;
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
		if (intake->read.busy || intake->reply.busy || intake->getting)
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
		if (intake->state == WAITING && (intake->status || intake->getting))
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
	const struct dynamic_edge *own = dynamic_of(edge);
	const struct intake *intake = intake_of(edge, own->consumed + 1);
	int error = edge->error;

	if (!edge->connected)
		return error ? error : -ENOTCONN;
	/* A step that came before the end did come. */
	if (!shows(edge))
		return error;
	if (intake->status)
		return intake->status;
	*data = intake->data;
	if (step)
		*step = own->consumed + 1;
	return 1;
}

static bool retry(struct tow_edge *edge)
{
	if (!edge->connected || !shows(edge) ||
	    intake_of(edge, dynamic_of(edge)->consumed + 1)->state != WAITING)
		return false;
	take_in(edge, true);
	return true;
}

static int arm(struct tow_edge *edge)
{
	const struct dynamic_edge *own = dynamic_of(edge);

	if (!edge->connected)
		return -ENOTCONN;
	if (shows(edge)) {
		towi_pump_nudge(edge->runner.pump);
		return 0;
	}
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
	.show = show,
	.retry = retry,
	.arm = arm,
	.consumed = consume,
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
	if (!towi_pump_usable(&edge->worker->pump))
		return -EPERM;
	towi_pump_lock(&edge->worker->pump);
	ret = type_of(edge, type);
	towi_pump_unlock_plainly(&edge->worker->pump);
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
	if (!towi_pump_usable(&edge->worker->pump))
		return -EPERM;
	towi_pump_lock(&edge->worker->pump);
	ret = take_data(edge, data);
	towi_edge_watch_on(edge);
	towi_pump_unlock(&edge->worker->pump);
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
							 .runner = &own->edge.runner };
		own->intakes[i].reply = (struct towi_op){ .ended = reply_ended,
							  .runner = &own->edge.runner };
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
		ret = towi_windows_begin(&made->windows, worker, TOW_RIGHT_READ);
	if (ret) {
		towi_steps_free(&made->edge);
		free(made);
		return ret;
	}
	return towi_edge_make(&made->edge, worker, peer, name, edge);
}
