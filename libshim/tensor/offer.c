// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/* Rendezvous, the sender's end: it offers. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../core/internal.h"
#include "rendezvous.h"

/* A tensor that is offered, or was asked for, or both. */
struct match {
	struct towi_named named;		/* first */
	struct match *next;			/* in the line for replies */
	bool offered, asked, served;
	bool kept;				/* the queue knows it still */
	struct towi_request request;		/* if it was asked for */
	struct tow_tensor_type type;
	uint64_t bytes;
	const void *data;
	void *staged;				/* a copy of it */
	int error;				/* that is offered in its place */
	bool summed;
	uint32_t crc32c;			/* if it is */
	struct towi_op write;
	struct towi_view *view;
	tow_edge_done *done;
	void *arg;
	int status;
	struct towi_call call;
};

/* A reply that moves nothing. */
struct note {
	struct note *next;
	uint32_t tag;
	int status;
};

struct offerer {
	struct tow_edge edge;			/* first */
	struct towi_views views;
	struct towi_names matches;
	uint32_t offers;			/* of them */
	struct match *first, **last;		/* to be replied to */
	struct note *first_note, **last_note;
	uint64_t moved, moved_large;		/* tensors */
	uint32_t asked;				/* requests without a reply */
	struct match *kept;
};

static struct offerer *offerer_of(struct tow_edge *edge)
{
	return (struct offerer *)edge;
}

static const struct offerer *const_offerer_of(const struct tow_edge *edge)
{
	return (const struct offerer *)edge;
}

static struct match *find_match(struct offerer *own, const struct towi_name *name)
{
	return (struct match *)towi_names_find(&own->matches, name);
}

/* ---- the end of a match ----------------------------------------------------- */

/* Without the lock. */
static void tell(struct towi_call *call)
{
	struct match *match = (struct match *)(void *)((char *)call - offsetof(struct match, call));

	match->done(match->arg, match->named.name.step, match->status);
	if (!match->kept)
		free(match);
}

static void end_match(struct offerer *own, struct match *match, int status)
{
	towi_names_remove(&own->matches, &match->named);
	own->offers -= match->offered;
	tow_arena_free(own->edge.worker->words, match->staged);
	match->staged = NULL;
	if (match->kept) {
		match->next = own->kept;
		own->kept = match;
	}
	if (!match->offered || !match->done) {
		if (!match->kept)
			free(match);
		return;
	}
	match->status = status;
	match->call = (struct towi_call){ .runner = &own->edge.runner, .run = tell };
	towi_pump_call(&match->call);
}

static void write_ended(struct towi_op *op, int status);

/* Another one, of a name of which there is none; NULL: no memory. */
static struct match *add_match(struct offerer *own, const struct towi_name *name)
{
	struct match *match = calloc(1, sizeof(*match));

	if (!match)
		return NULL;
	match->named.name = *name;
	match->write = (struct towi_op){ .ended = write_ended, .runner = &own->edge.runner };
	towi_names_add(&own->matches, &match->named);
	return match;
}

/* ---- replies ---------------------------------------------------------------- */

/* 0; or there is no room at the moment. */
static int send_reply(struct offerer *own, const struct towi_reply *reply)
{
	int ret = towi_edge_tell(&own->edge, TOWI_TAG_REPLY, reply, sizeof(*reply));

	own->asked -= !ret;
	return ret;
}

static void add_note(struct offerer *own, uint32_t tag, int status)
{
	struct note *note = malloc(sizeof(*note));

	if (!note) {
		towi_edge_fail(&own->edge, -ENOMEM);
		return;
	}
	*note = (struct note){ .tag = tag, .status = status };
	*own->last_note = note;
	own->last_note = &note->next;
}

/* @match, or the first one of that name if it is NULL, was asked for. */
static void ask_for(struct offerer *own, struct match *match, const struct towi_request *request)
{
	if (!match)
		match = add_match(own, &request->name);
	if (!match) {
		add_note(own, request->tag, -ENOMEM);
		return;
	}
	match->request = *request;
	match->asked = true;
}

/* Its reply has gone, and its tensor. */
static void finish(struct offerer *own, struct match *match)
{
	struct towi_request request;

	if (!match->asked) {
		end_match(own, match, match->status);
		return;
	}
	/* The next one of that name is wanted already. */
	request = match->request;
	end_match(own, match, match->status);
	ask_for(own, NULL, &request);
}

static void write_ended(struct towi_op *op, int status)
{
	struct match *match = (struct match *)(void *)((char *)op - offsetof(struct match, write));

	match->view->busy--;
	match->status = status;
	if (status)
		towi_edge_fail(towi_edge_of(op), status);
	finish(offerer_of(towi_edge_of(op)), match);
}

/* By how many channels it goes. */
static uint32_t lanes_of(const struct offerer *own, const struct match *match)
{
	return match->bytes < TOW_CUT_BYTES ? 1 : own->edge.lanes;
}

/* The tensor, which is the next one of those that go by as many.  There is room. */
static void send_tensor(struct offerer *own, struct match *match, struct tow_region *region,
			uint64_t offset)
{
	uint32_t lane, lanes = lanes_of(own, match);
	struct tow_edge *edge = &own->edge;
	uint64_t from, bytes;
	struct tow_sqe *sqe;

	for (lane = 0; lane < lanes; lane++) {
		bytes = towi_part(match->bytes, lanes, lane, &from);
		sqe = towi_pump_entry(&edge->runner);
		tow_prep_write_notify(sqe, towi_edge_lane(edge, lane), region, offset + from,
				      match->view->remote, match->request.target.offset + from,
				      bytes, lanes > 1 ? edge->large_other : edge->other);
		if (match->staged)
			tow_sqe_set_flags(sqe, edge->runner.pump->copied_flag);
		match->write.more += lane > 0;
		towi_pump_begun(sqe, &match->write);
	}
	match->view->busy++;
	if (lanes > 1)
		own->moved_large++;
	else
		own->moved++;
}

/* Which number says that it is there. */
static void say_number(const struct offerer *own, const struct match *match,
		       struct towi_reply *reply)
{
	bool large = lanes_of(own, match) > 1;

	reply->number = large ? own->moved_large + 1 : TOWI_HELLO + own->moved + 1;
	reply->flags = large ? TOWI_REPLY_LARGE : 0;
}

/* It is what the receiver has made room for. */
static bool fits(const struct match *match)
{
	return match->request.flags & TOWI_REQUEST_TARGET &&
	       towi_same_type(&match->request.type, &match->type);
}

/*
 * 0: the reply has begun; -EAGAIN: when its place was found; -EBUSY: when there is room; or what has
 * ended the edge.
 */
static int serve(struct offerer *own, struct match *match)
{
	struct towi_reply reply = { .tag = match->request.tag, .status = match->error };
	bool whole = !match->error && fits(match), moves = whole && match->bytes;
	struct tow_region *region = NULL;
	uint64_t offset = 0;
	int ret = 0;

	if (moves)
		ret = towi_view(&own->views, &match->request.target, match->bytes, TOW_RIGHT_WRITE,
				&match->view);
	/* The program's, and it has freed it. */
	if (!ret && moves && towi_edge_place(&own->edge, match->staged ? match->staged : match->data,
					     &region, &offset))
		ret = -EFAULT;
	if (!ret && moves && !towi_pump_room(&own->edge.runner, lanes_of(own, match)))
		ret = -EBUSY;
	if (ret)
		return ret;
	if (moves)
		say_number(own, match, &reply);
	reply.type = match->type;
	if (whole && match->summed) {
		reply.flags |= TOWI_REPLY_CRC32C;
		reply.crc32c = match->crc32c;
	}
	if (!match->error && !whole)
		reply.flags = TOWI_REPLY_TYPE;
	if (send_reply(own, &reply))
		return -EBUSY;
	match->asked = false;
	match->served = match->error || whole;
	if (moves)
		send_tensor(own, match, region, offset);
	else if (match->served)
		finish(own, match);
	return 0;
}

/* It is offered and asked for. */
static void line_up(struct offerer *own, struct match *match)
{
	match->next = NULL;
	*own->last = match;
	own->last = &match->next;
}

/* All that can be: whoever waits until its place was found holds up no other one. */
static void reply_all(struct offerer *own)
{
	struct match **link = &own->first, *next;
	int ret = 0;

	while (*link && !own->edge.error && ret != -EBUSY) {
		next = (*link)->next;
		ret = serve(own, *link);
		if (!ret)
			*link = next;
		else if (ret == -EAGAIN)
			link = &(*link)->next;
		else if (ret != -EBUSY)
			towi_edge_fail(&own->edge, ret == -ERANGE ? -EPROTO : ret);
	}
	/* The last one may have gone. */
	while (*link)
		link = &(*link)->next;
	own->last = link;
}

static bool send_note(struct offerer *own)
{
	struct note *note = own->first_note;
	struct towi_reply reply = { .tag = note->tag, .status = note->status };

	if (send_reply(own, &reply))
		return false;
	own->first_note = note->next;
	if (!own->first_note)
		own->last_note = &own->first_note;
	free(note);
	return true;
}

/* ---- requests --------------------------------------------------------------- */

/* The one that is asked for is not any more, if it is not on its way; and that is noted. */
static void take_cancel(struct offerer *own, const struct towi_request *request)
{
	struct match *match = find_match(own, &request->name);

	if (match && match->asked && (!match->offered || match->served)) {
		add_note(own, match->request.tag, -ECANCELED);
		match->asked = false;
		if (!match->offered)
			end_match(own, match, 0);
	}
	add_note(own, TOWI_NO_TAG, 0);
}

static void take_request(struct offerer *own, const struct towi_request *request)
{
	struct match *match;

	if (request->flags & TOWI_REQUEST_CANCEL) {
		take_cancel(own, request);
		return;
	}
	match = find_match(own, &request->name);
	/* The receiver asks for nothing twice. */
	if (match && match->asked) {
		add_note(own, request->tag, -EPROTO);
		return;
	}
	ask_for(own, match, request);
	if (match && match->offered && !match->served)
		line_up(own, match);
}

static bool offerer_came(struct tow_edge *edge, const struct towi_record *record,
			 const void *data)
{
	const size_t most = offsetof(struct towi_request, name.key) + TOW_KEY_MAX;
	struct offerer *own = offerer_of(edge);
	struct towi_request request = { 0 };

	/* A receiver has only so many without a reply. */
	if (record->tag != TOWI_TAG_REQUEST || record->bytes > most ||
	    own->asked == edge->mine.slots)
		return false;
	memcpy(&request, data, record->bytes);
	if (offsetof(struct towi_request, name.key) + strlen(request.name.key) != record->bytes ||
	    !request.name.key[0])
		return false;
	/* Nobody would free what is noted of it. */
	if (edge->error || !edge->there)
		return true;
	own->asked++;
	take_request(own, &request);
	return true;
}

/* ---- what the edge is asked ------------------------------------------------- */

/* After an error whoever offered is told, but for what is on its way still. */
static void end_all(struct offerer *own)
{
	struct match *match, *next;
	struct note *note;

	own->first = NULL;
	own->last = &own->first;
	while ((note = own->first_note)) {
		own->first_note = note->next;
		free(note);
	}
	own->last_note = &own->first_note;
	for (match = (struct match *)towi_names_first(&own->matches); match; match = next) {
		next = (struct match *)towi_names_next(&match->named);
		if (!match->served)
			end_match(own, match, own->edge.error);
	}
}

static void offerer_goes_on(struct tow_edge *edge)
{
	struct offerer *own = offerer_of(edge);

	if (edge->connected && !edge->error) {
		while (!edge->error && own->first_note && send_note(own))
			;
		reply_all(own);
	}
	if (edge->error)
		end_all(own);
}

static uint32_t offerer_pending(const struct tow_edge *edge)
{
	return const_offerer_of(edge)->offers;
}

/* What the device did not end stays with the queue; nobody is told a second time. */
static void ignore(struct towi_op *op, int status)
{
	(void)op;
	(void)status;
}

static void offerer_gives_up(struct tow_edge *edge)
{
	struct offerer *own = offerer_of(edge);
	struct match *match;

	end_all(own);
	while ((match = (struct match *)towi_names_first(&own->matches))) {
		match->write.ended = ignore;
		match->kept = match->write.busy;
		end_match(own, match, edge->error);
	}
}

static void offerer_free(struct tow_edge *edge)
{
	struct offerer *own = offerer_of(edge);
	struct match *match;

	while ((match = own->kept)) {
		own->kept = match->next;
		free(match);
	}
	towi_views_free(&own->views);
}

static const struct towi_kind offerer_kind = {
	.number = TOWI_RENDEZVOUS,
	.other = "/data",
	.large = "/large",
	.go_on = offerer_goes_on,
	.came = offerer_came,
	.pending = offerer_pending,
	.give_up = offerer_gives_up,
	.free = offerer_free,
};

/* ---- what programs ask ------------------------------------------------------ */

static bool is_offerer(const struct tow_edge *edge)
{
	return edge && edge->kind == &offerer_kind;
}

/* Without the lock: what is to be offered. */
static int stage(struct offerer *own, struct match *match, uint32_t flags)
{
	struct tow_worker *worker = own->edge.worker;
	int ret;

	ret = towi_edge_stage(&own->edge, match->data, match->bytes, flags & TOW_PUT_CLONE,
			      &match->staged);
	match->summed = !ret && worker->crc32c && towi_edge_touches(&own->edge, match->data);
	if (match->summed)
		match->crc32c = towi_crc32c_of(worker->crc32c, match->data, match->bytes);
	return ret;
}

/* Called with the lock. */
static int may_offer(struct offerer *own, const struct towi_name *name)
{
	const struct match *match = find_match(own, name);
	int error = own->edge.error;

	if (error)
		return error;
	return match && match->offered ? -EEXIST : 0;
}

/* Called with the lock: what @wanted says becomes an offer. */
static int offer(struct offerer *own, const struct match *wanted)
{
	int ret = may_offer(own, &wanted->named.name);
	struct match *match;

	if (ret)
		return ret;
	match = find_match(own, &wanted->named.name);
	if (!match)
		match = add_match(own, &wanted->named.name);
	if (!match)
		return -ENOMEM;
	match->type = wanted->type;
	match->bytes = wanted->bytes;
	match->data = wanted->data;
	match->staged = wanted->staged;
	match->summed = wanted->summed;
	match->crc32c = wanted->crc32c;
	match->error = wanted->error;
	match->done = wanted->done;
	match->arg = wanted->arg;
	match->offered = true;
	own->offers++;
	if (match->asked)
		line_up(own, match);
	offerer_goes_on(&own->edge);
	return 0;
}

static int make_offer(struct tow_edge *edge, struct match *wanted, uint32_t flags)
{
	struct towi_pump *pump = edge->runner.pump;
	int ret;

	if (!towi_pump_usable(pump))
		return -EPERM;
	towi_pump_lock(pump);
	ret = may_offer(offerer_of(edge), &wanted->named.name);
	towi_pump_unlock_plainly(pump);
	if (!ret && !wanted->error)
		ret = stage(offerer_of(edge), wanted, flags);
	if (ret)
		return ret;
	towi_pump_lock(pump);
	ret = offer(offerer_of(edge), wanted);
	towi_pump_unlock(pump);
	/* Another thread was faster. */
	if (ret)
		tow_arena_free(edge->worker->words, wanted->staged);
	return ret;
}

TOW_PUBLIC int tow_rendezvous_put(struct tow_edge *edge, const char *key, uint64_t step,
				  const struct tow_tensor_type *type, const void *data,
				  uint32_t flags, tow_edge_done *done, void *arg)
{
	struct match wanted = { .data = data, .done = done, .arg = arg };
	int ret;

	if (!is_offerer(edge) || flags & ~TOW_PUT_CLONE || towi_name_of(key, step, &wanted.named.name))
		return -EINVAL;
	ret = tow_tensor_bytes(type, &wanted.bytes);
	if (ret)
		return ret;
	if (!data && wanted.bytes)
		return -EINVAL;
	wanted.type = *type;
	return make_offer(edge, &wanted, flags);
}

TOW_PUBLIC int tow_rendezvous_fail(struct tow_edge *edge, const char *key, uint64_t step,
				   int status)
{
	struct match wanted = { .error = status };

	if (!is_offerer(edge) || !towi_is_error(status) ||
	    towi_name_of(key, step, &wanted.named.name))
		return -EINVAL;
	return make_offer(edge, &wanted, 0);
}

/* ---- begin ------------------------------------------------------------------ */

TOW_PUBLIC int tow_rendezvous_sender(struct tow_worker *worker, struct tow_peer *peer,
				     const char *name, uint32_t requests, struct tow_edge **edge)
{
	struct offerer *made;
	int ret;

	if (!requests || requests > TOW_REQUESTS_MAX)
		return -EINVAL;
	ret = towi_edge_may_be(worker, peer, name, edge);
	if (ret)
		return ret;
	made = calloc(1, sizeof(*made));
	if (!made)
		return -ENOMEM;
	made->edge.kind = &offerer_kind;
	made->edge.sends = true;
	made->edge.large = true;
	made->edge.mine.slots = TOWI_LETTERS_OF(requests);
	made->views.viewer = (struct towi_viewer){ &made->edge.runner, peer, &made->edge.error };
	made->last = &made->first;
	made->last_note = &made->first_note;
	return towi_edge_make(&made->edge, worker, peer, name, edge);
}
