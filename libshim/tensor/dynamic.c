// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Dynamic edges.
 *
 * The sender's letter N says what tensor N is, and where; the receiver allocates, reads, and
 * answers when it has.  Both are messages on the edge's line.  Until the answer has come the tensor
 * is the edge's.  Section 3.3 of "Fast Distributed Deep Learning over RDMA".
 *
 * No more letters are without an answer than the receiver has slots, so it has memory for them.
 * Reads may end in any order, so an answer says which step it is of.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../core/internal.h"
#include "steps.h"

#define STEPS		TOW_EDGE_SLOTS_MAX

/* The sender's: a tensor of so many bytes. */
struct letter {
	uint64_t step;
	uint64_t bytes;
	struct towi_place source;
	uint32_t flags;
	uint32_t crc32c;
	struct tow_tensor_type type;
};

#define LETTER_CRC32C	(1U << 0)
#define LETTER_COPIED	(1U << 1)	/* what is read is a copy */

/* The receiver's. */
struct answer {
	uint64_t step;
	int64_t status;
};

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
	struct towi_op read;			/* first */
	enum intake_state state;
	struct letter letter;
	void *data;
	int status;
	bool owed;				/* an answer, with that status, */
	int answer;
	struct towi_view *view;
	struct towi_errand errand;
	bool getting;			/* memory: an errand does */
	void *got;
};

struct dynamic_edge {
	struct tow_edge edge;			/* first */
	/* The sender's. */
	struct towi_windows windows;
	struct letter *letters;			/* STEPS, of what has not begun */
	/* The receiver's. */
	uint64_t come, taken, consumed;
	uint32_t owed;				/* answers that there was no room for */
	struct letter *waiting;			/* slots, of what was not taken */
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

/* ---- the sender ------------------------------------------------------------- */

static struct letter *own_letter(struct tow_edge *edge, uint64_t step)
{
	return &dynamic_of(edge)->letters[(step - 1) % STEPS];
}

/*
 * May nobody be reading what was not answered?  After other errors somebody may, until the
 * windows have ended: who reads without an error has read what was there.  EFAULT is said by the
 * receiver, once it reads no more.
 */
static bool out_of_reach(const struct tow_edge *edge)
{
	return edge->error == -ESTALE || edge->error == -ECONNRESET || edge->error == -ENODEV ||
	       edge->error == -EFAULT;
}

static void end_unanswered(struct tow_edge *edge)
{
	struct towi_steps *steps = edge->steps;

	while (out_of_reach(edge) && steps->ended < steps->begun)
		towi_steps_over(edge, towi_step(steps, steps->ended + 1), edge->error);
}

/*
 * What the receiver says of its memory, or of this end's, in this end's words: EFAULT is who has
 * it, ESTALE the other one.
 */
static int seen_from_here(int status)
{
	if (status == -ESTALE)
		return -EFAULT;
	return status == -EFAULT ? -ESTALE : status;
}

/* An answer. */
static bool sender_came(struct tow_edge *edge, const struct towi_record *record, const void *data)
{
	struct towi_steps *steps = edge->steps;
	struct answer answer;
	int status;

	if (record->tag != TOWI_TAG_ANSWER || record->bytes != sizeof(answer))
		return false;
	memcpy(&answer, data, sizeof(answer));
	if (answer.step <= steps->ended || answer.step > steps->begun ||
	    towi_step(steps, answer.step)->over ||
	    (answer.status && !towi_is_error(answer.status)))
		return false;
	status = seen_from_here((int)answer.status);
	towi_steps_over(edge, towi_step(steps, answer.step), status);
	/* So is the edge, over there. */
	if (status == -EFAULT || status == -ESTALE)
		towi_edge_fail(edge, status);
	return true;
}

static uint64_t unanswered(const struct towi_steps *steps)
{
	return steps->begun - steps->ended;
}

/* False: it cannot begin now. */
static bool begin_step(struct tow_edge *edge, struct towi_step *step)
{
	if (unanswered(edge->steps) >= edge->theirs.slots ||
	    towi_edge_tell(edge, TOWI_TAG_STEP, own_letter(edge, step->number),
			   sizeof(struct letter)))
		return false;
	towi_steps_begun(edge, step);
	return true;
}

static void sender_goes_on(struct tow_edge *edge)
{
	struct towi_steps *steps = edge->steps;

	end_unanswered(edge);
	while (!edge->error && steps->begun < steps->given &&
	       begin_step(edge, towi_step(steps, steps->begun + 1)))
		;
	towi_steps_cancel(edge);
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
		tow_arena_free(edge->worker->words, *staged);
		return ret;
	}
	if (crc32c && towi_edge_touches(edge, data)) {
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
		tow_arena_free(edge->worker->words, staged);
	return ret;
}

/* Of what was not read yet. */
static bool sender_lost(struct tow_edge *edge)
{
	struct towi_steps *steps = edge->steps;

	for (uint64_t number = steps->ended + 1; number <= steps->given; number++)
		if (towi_edge_lost(edge, towi_step(steps, number)->data))
			return true;
	return false;
}

static void sender_hides(struct tow_edge *edge)
{
	towi_windows_end(&dynamic_of(edge)->windows);
}

static void sender_free(struct tow_edge *edge)
{
	free(dynamic_of(edge)->letters);
	towi_steps_free(edge);
}

static const struct towi_kind sender_kind = {
	.number = TOWI_DYNAMIC,
	.other = "/met",
	.next = towi_steps_next_number,
	.go_on = sender_goes_on,
	.came = sender_came,
	.pending = towi_steps_pending,
	.lost = sender_lost,
	.hide = sender_hides,
	.give_up = towi_steps_give_up,
	.free = sender_free,
};

/* ---- the receiver ----------------------------------------------------------- */

static struct intake *intake_of(struct tow_edge *edge, uint64_t step)
{
	return &dynamic_of(edge)->intakes[(step - 1) % STEPS];
}

static void drop_data(const struct tow_edge *edge, struct intake *intake)
{
	tow_arena_free(edge->worker->arena, intake->data);
	intake->data = NULL;
}

/* One that finds no room is said when there is some, whatever becomes of the tensor. */
static void say_answer(struct tow_edge *edge, struct intake *intake)
{
	const struct answer answer = { intake->letter.step, intake->answer };

	if (!edge->error && !towi_edge_tell(edge, TOWI_TAG_ANSWER, &answer, sizeof(answer)))
		intake->owed = false;
}

static void say_answers(struct tow_edge *edge)
{
	struct dynamic_edge *own = dynamic_of(edge);

	for (uint32_t i = 0; i < STEPS && own->owed; i++) {
		if (!own->intakes[i].owed)
			continue;
		say_answer(edge, &own->intakes[i]);
		if (own->intakes[i].owed)
			break;
		own->owed--;
	}
}

/* The sender's tensors are its own again, and were read. */
static void receiver_parts(struct tow_edge *edge)
{
	const struct dynamic_edge *own = dynamic_of(edge);
	struct answer answer;

	for (uint32_t i = 0; i < STEPS && own->owed; i++) {
		if (!own->intakes[i].owed)
			continue;
		answer = (struct answer){ own->intakes[i].letter.step, own->intakes[i].answer };
		towi_edge_tell_last(edge, TOWI_TAG_ANSWER, &answer, sizeof(answer));
	}
}

/* There is no tensor, or it was read. */
static void answer(struct tow_edge *edge, struct intake *intake, int status)
{
	intake->status = status;
	intake->state = READY;
	intake->answer = status;
	intake->owed = true;
	if (!dynamic_of(edge)->owed)
		say_answer(edge, intake);
	dynamic_of(edge)->owed += intake->owed;
}

static bool begin_read(struct tow_edge *edge, struct intake *intake)
{
	uint32_t lane, lanes = intake->letter.bytes < TOW_CUT_BYTES ? 1 : edge->lanes;
	uint64_t offset, from, bytes;
	struct tow_region *region;
	struct tow_sqe *sqe;

	if (towi_edge_place(edge, intake->data, &region, &offset) ||
	    !towi_pump_room(&edge->runner, lanes))
		return false;
	for (lane = 0; lane < lanes; lane++) {
		bytes = towi_part(intake->letter.bytes, lanes, lane, &from);
		sqe = towi_pump_entry(&edge->runner);
		tow_prep_read(sqe, towi_edge_lane(edge, lane), region, offset + from,
			      intake->view->remote, intake->letter.source.offset + from, bytes);
		if (intake->letter.flags & LETTER_COPIED)
			tow_sqe_set_flags(sqe, edge->runner.pump->copied_flag);
		intake->read.more += lane > 0;
		towi_pump_begun(sqe, &intake->read);
	}
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
	struct intake *intake = intake_with(errand);

	answer(towi_edge_of(&intake->read), intake, ret);
}

static void read_ended(struct towi_op *op, int status)
{
	struct intake *intake = (struct intake *)(void *)op;
	struct tow_edge *edge = towi_edge_of(op);
	bool looks = !status && intake->letter.flags & LETTER_CRC32C && edge->worker->crc32c &&
		     towi_edge_touches(edge, intake->data);

	intake->view->busy--;
	if (status)
		towi_edge_fail(edge, status);
	intake->errand = (struct towi_errand){ .runner = &edge->runner, .run = look_at,
					       .done = looked_at };
	if (looks && intake->letter.bytes > SUM_BYTES && !towi_pump_errand(&intake->errand))
		return;
	looked_at(&intake->errand, looks ? look_at(&intake->errand) : status);
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
	ret = towi_view(&dynamic_of(edge)->views, &intake->letter.source, intake->letter.bytes,
			TOW_RIGHT_READ, &intake->view);
	if (!ret)
		begin_read(edge, intake);
	else if (ret != -EAGAIN)
		towi_edge_fail(edge, ret == -ERANGE ? -EPROTO : ret);
}

/* A letter, which is kept until there is room for its tensor. */
static bool receiver_came(struct tow_edge *edge, const struct towi_record *record,
			  const void *data)
{
	struct dynamic_edge *own = dynamic_of(edge);
	struct letter letter;
	uint64_t bytes;

	if (record->tag != TOWI_TAG_STEP || record->bytes != sizeof(letter))
		return false;
	memcpy(&letter, data, sizeof(letter));
	if (letter.step != own->come + 1 || own->come - own->taken >= edge->mine.slots ||
	    tow_tensor_bytes(&letter.type, &bytes) || bytes != letter.bytes)
		return false;
	own->waiting[own->come++ % edge->mine.slots] = letter;
	return true;
}

static void take_letters(struct tow_edge *edge)
{
	struct dynamic_edge *own = dynamic_of(edge);
	struct intake *intake;

	/* As much as there is room for; what became of a record's last one has to be said. */
	while (own->taken < own->come && own->taken - own->consumed < edge->mine.slots) {
		intake = intake_of(edge, own->taken + 1);
		if (intake->read.busy || intake->owed || intake->getting)
			break;
		intake->letter = own->waiting[own->taken++ % edge->mine.slots];
		intake->state = WAITING;
		intake->status = 0;
		intake->data = NULL;
	}
}

/* @again: also what has found no memory. */
static void take_in(struct tow_edge *edge, bool again)
{
	struct dynamic_edge *own = dynamic_of(edge);
	struct intake *intake;

	if (!edge->connected)
		return;
	if (!edge->error)
		take_letters(edge);
	for (uint64_t step = own->consumed + 1; step <= own->taken && !edge->error; step++) {
		intake = intake_of(edge, step);
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
	/* Nothing more comes by the slot. */
	if (edge->connected)
		towi_pump_release(&edge->wait);
	say_answers(edge);
	take_in(edge, false);
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
	if (!edge->connected)
		return -ENOTCONN;
	/* What is read, or comes by the line, says so. */
	if (shows(edge))
		towi_pump_nudge(edge->runner.pump);
	return 0;
}

static int consume(struct tow_edge *edge)
{
	struct dynamic_edge *own = dynamic_of(edge);
	struct intake *intake = intake_of(edge, own->consumed + 1);

	if (!shows(edge))
		return -EINVAL;
	/* One for which there was no memory is left out. */
	if (!edge->error && intake->state == WAITING)
		answer(edge, intake, intake->status);
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
	free(own->waiting);
	towi_views_free(&own->views);
}

static const struct towi_kind receiver_kind = {
	.number = TOWI_DYNAMIC,
	.slot = "/met",
	.next = receiver_next,
	.go_on = receiver_goes_on,
	.came = receiver_came,
	.show = show,
	.retry = retry,
	.arm = arm,
	.consumed = consume,
	.part = receiver_parts,
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

static int make_intakes(struct dynamic_edge *own, uint32_t slots)
{
	own->waiting = calloc(slots, sizeof(*own->waiting));
	own->intakes = calloc(STEPS, sizeof(*own->intakes));
	if (!own->waiting || !own->intakes)
		return -ENOMEM;
	for (uint32_t i = 0; i < STEPS; i++)
		own->intakes[i].read = (struct towi_op){ .ended = read_ended,
							 .runner = &own->edge.runner };
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
	made->edge.large = true;
	made->edge.mine.slots = slots;
	made->views.viewer = (struct towi_viewer){ &made->edge.runner, peer, &made->edge.error };
	ret = make_intakes(made, slots);
	if (ret) {
		free(made->waiting);
		free(made->intakes);
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
	made->letters = calloc(STEPS, sizeof(*made->letters));
	ret = made->letters ? towi_steps_make(&made->edge, towi_edge_op_ended) : -ENOMEM;
	if (!ret)
		ret = towi_windows_begin(&made->windows, worker->arena, worker->dev,
					 TOW_RIGHT_READ);
	if (ret) {
		sender_free(&made->edge);
		free(made);
		return ret;
	}
	return towi_edge_make(&made->edge, worker, peer, name, edge);
}
