// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/* Rendezvous, the receiver's end: it asks. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../core/internal.h"
#include "known.h"
#include "rendezvous.h"

/* Of how many keys is remembered what their tensors were. */
#define KNOWN_MAX	65536U
/* A sum over more is an errand. */
#define SUM_BYTES	(64U << 10)

/* Who waits in tow_rendezvous_wait(). */
struct waiter {
	bool over;
	struct tow_rendezvous_tensor got;
};

/* A tensor that is wanted. */
struct want {
	struct towi_named named;		/* first */
	struct want *next;			/* in the line for asking, or held */
	bool asked;
	uint32_t tag;				/* of its request */
	bool cancelled;
	bool arriving;				/* its reply has come, and its tensor has not */
	struct towi_reply reply;
	struct want *arrives_next;
	bool away;				/* with an errand, in no line */
	bool placed;				/* somebody knows where its memory is */
	struct towi_place target;
	uint32_t crc32c;			/* what it is to be, when it has come */
	struct towi_errand errand;
	bool typed;
	struct tow_tensor_type type;
	uint64_t bytes;
	void *data;
	int status;
	struct towi_timed timed;
	tow_rendezvous_got *got;
	void *arg;
	struct waiter *waiter;
	struct towi_call call;
	struct tow_edge *edge;
};

/* A request that is on its way. */
struct tag {
	struct want *want;			/* or NULL */
};

struct line {
	struct want *first, **last;
};

struct asker {
	struct tow_edge edge;			/* first */
	struct towi_windows windows;
	struct towi_names wants;
	uint32_t count;				/* of them */
	struct line to_ask, to_cancel;
	uint32_t requests;			/* asked at once, at most */
	uint32_t asked, cancelling;		/* without a reply, or its tensor */
	struct want *arriving, **last_arriving;
	struct tag *tags;			/* as many as requests */
	uint32_t *free_tags, free_count;
	struct towi_knowns knowns;
	struct want *held;			/* others may still write their memory */
};

static struct asker *asker_of(struct tow_edge *edge)
{
	return (struct asker *)edge;
}

static const struct asker *const_asker_of(const struct tow_edge *edge)
{
	return (const struct asker *)edge;
}

static void join(struct line *line, struct want *want)
{
	want->next = NULL;
	*line->last = want;
	line->last = &want->next;
}

static struct want *leave(struct line *line)
{
	struct want *want = line->first;

	line->first = want->next;
	if (!line->first)
		line->last = &line->first;
	return want;
}

/* Wherever in the line it is. */
static void leave_early(struct line *line, const struct want *want)
{
	struct want **link;

	for (link = &line->first; *link && *link != want;)
		link = &(*link)->next;
	if (!*link)
		return;
	*link = want->next;
	for (line->last = &line->first; *line->last;)
		line->last = &(*line->last)->next;
}

/* ---- the end of a want ------------------------------------------------------ */

/* Without the lock. */
static void tell(struct towi_call *call)
{
	struct want *want = (struct want *)(void *)((char *)call - offsetof(struct want, call));
	struct tow_rendezvous_tensor got = {
		.key = want->named.name.key, .step = want->named.name.step, .status = want->status,
		.type = want->type, .data = want->data,
	};

	want->got(want->arg, &got);
	free(want);
}

static void tell_soon(struct want *want)
{
	want->call = (struct towi_call){ .runner = &want->edge->runner, .run = tell };
	towi_pump_call(&want->call);
}

static void drop_data(struct want *want)
{
	tow_arena_free(want->edge->worker->arena, want->data);
	want->data = NULL;
}

/* Its memory is freed, or kept while somebody may write to it. */
static void drop(struct asker *own, struct want *want)
{
	struct want *held;

	if (want->data && want->placed) {
		held = malloc(sizeof(*held));
		/* Lost rather than written to by others. */
		if (held) {
			*held = *want;
			held->next = own->held;
			own->held = held;
		}
		want->data = NULL;
	}
	drop_data(want);
}

static void end_want(struct want *want, int status)
{
	struct asker *own = asker_of(want->edge);

	towi_names_remove(&own->wants, &want->named);
	towi_pump_untime(own->edge.runner.pump, &want->timed);
	own->count--;
	want->status = status;
	if (status)
		drop(own, want);
	if (want->waiter) {
		want->waiter->got.status = status;
		want->waiter->got.type = want->type;
		want->waiter->got.data = want->data;
		want->waiter->over = true;
		towi_pump_wake(&want->edge->worker->pump);
	} else if (want->got) {
		tell_soon(want);
		return;
	} else {
		/* Nobody waits any more. */
		drop_data(want);
	}
	free(want);
}

/* ---- requests --------------------------------------------------------------- */

/* False: there is no room for it at the moment. */
static bool send_request(struct asker *own, const struct want *want, uint32_t tag, uint32_t flags)
{
	struct towi_request request = {
		.tag = tag, .flags = flags, .type = want->type, .name = want->named.name,
	};

	if (flags & TOWI_REQUEST_TARGET)
		request.target = want->target;
	return !towi_edge_tell(&own->edge, TOWI_TAG_REQUEST, &request,
			       (uint32_t)(offsetof(struct towi_request, name.key) +
					  strlen(request.name.key)));
}

static struct want *want_with(struct towi_errand *errand)
{
	return (struct want *)(void *)((char *)errand - offsetof(struct want, errand));
}

/* It is in no line until the errand is done: 0 or -ENOMEM. */
static int send_away(struct want *want, int (*run)(struct towi_errand *errand),
		     void (*done)(struct towi_errand *errand, int ret))
{
	int ret;

	want->errand = (struct towi_errand){ .runner = &want->edge->runner, .run = run,
					     .done = done };
	ret = towi_pump_errand(&want->errand);
	want->away = !ret;
	return ret;
}

/* Memory for what it is thought to be, that others can reach: 0 or a negative errno. */
static int make_room(struct towi_errand *errand)
{
	struct want *want = want_with(errand);
	struct asker *own = asker_of(want->edge);
	int ret = own->edge.error;

	if (!ret && !want->data) {
		want->data = tow_arena_alloc(own->edge.worker->arena, want->bytes);
		ret = want->data ? 0 : -errno;
	}
	if (!ret && want->bytes)
		ret = towi_window(&own->windows, want->data, want->bytes, true,
				  &want->target);
	/* Ordinary memory. */
	return ret == -ENOENT ? -ENOSPC : ret;
}

static void made_room(struct towi_errand *errand, int ret)
{
	struct want *want = want_with(errand);
	struct asker *own = asker_of(want->edge);

	want->away = false;
	if (!ret)
		ret = own->edge.error;
	if (!ret && want->cancelled)
		ret = -ECANCELED;
	if (ret)
		end_want(want, ret);
	else
		join(&own->to_ask, want);
}

/* The same, of what there is: true: it has some. */
static bool find_room(struct asker *own, struct want *want)
{
	if (!want->data)
		want->data = towi_arena_try(own->edge.worker->arena, want->bytes);
	return want->data && (!want->bytes || !towi_window(&own->windows, want->data, want->bytes,
							   false, &want->target));
}

/* As many as there are letters for, at both ends. */
static uint32_t at_once(const struct asker *own)
{
	uint32_t theirs = own->edge.theirs.slots / 2;

	return own->requests < theirs ? own->requests : theirs;
}

/* False: not at the moment. */
static bool ask(struct asker *own, struct want *want)
{
	uint32_t tag;
	int ret;

	if (own->asked >= at_once(own))
		return false;
	if (!want->typed)
		want->typed = towi_known(&own->knowns, &want->named.name, &want->type);
	if (want->typed) {
		/* Looked at when it was told. */
		tow_tensor_bytes(&want->type, &want->bytes);
		if (!find_room(own, want)) {
			leave(&own->to_ask);
			ret = send_away(want, make_room, made_room);
			if (ret)
				end_want(want, ret);
			return true;
		}
	}
	tag = own->free_tags[own->free_count - 1];
	if (!send_request(own, want, tag, want->typed ? TOWI_REQUEST_TARGET : 0))
		return false;
	leave(&own->to_ask);
	own->free_count--;
	own->tags[tag].want = want;
	want->tag = tag;
	want->placed = want->typed && want->bytes;
	want->asked = true;
	own->asked++;
	return true;
}

/* The sender replies to the request, and to this one. */
static bool send_cancel(struct asker *own)
{
	if (own->cancelling >= at_once(own) ||
	    !send_request(own, own->to_cancel.first, TOWI_NO_TAG, TOWI_REQUEST_CANCEL))
		return false;
	leave(&own->to_cancel);
	own->cancelling++;
	return true;
}

/* ---- replies ---------------------------------------------------------------- */

/* Is it what was offered?  Also without the lock. */
static int look_at(struct towi_errand *errand)
{
	const struct want *want = want_with(errand);
	towi_crc32c *crc32c = want->edge->worker->crc32c;

	return towi_crc32c_of(crc32c, want->data, want->bytes) == want->crc32c ? 0 : -EBADMSG;
}

static void looked_at(struct towi_errand *errand, int ret)
{
	want_with(errand)->away = false;
	end_want(want_with(errand), ret);
}

static void take_tensor(struct asker *own, struct want *want, const struct towi_reply *reply)
{
	want->crc32c = reply->crc32c;
	if (!own->edge.worker->crc32c || !(reply->flags & TOWI_REPLY_CRC32C) ||
	    !towi_edge_touches(&own->edge, want->data))
		end_want(want, 0);
	else if (want->bytes <= SUM_BYTES || send_away(want, look_at, looked_at))
		end_want(want, look_at(&want->errand));
}

/* It is another one than was thought, or was not known: ask again. */
static void take_type(struct asker *own, struct want *want, const struct towi_reply *reply)
{
	uint64_t bytes;

	if (tow_tensor_bytes(&reply->type, &bytes)) {
		towi_edge_fail(&own->edge, -EPROTO);
		return;
	}
	drop_data(want);
	want->type = reply->type;
	want->typed = true;
	towi_remember(&own->knowns, &want->named.name, &want->type);
	if (want->cancelled)
		end_want(want, -ECANCELED);
	else
		join(&own->to_ask, want);
}

/* The want that it is about; NULL: there is none, or that has a reply. */
static struct want *asked_for(const struct asker *own, const struct towi_reply *reply)
{
	struct want *want = reply->tag < own->requests ? own->tags[reply->tag].want : NULL;

	return want && !want->arriving ? want : NULL;
}

/* The same, and it is asked for no longer; NULL: there is none, and the edge has failed. */
static struct want *wanted(struct asker *own, const struct towi_reply *reply)
{
	struct want *want = asked_for(own, reply);

	if (!want) {
		towi_edge_fail(&own->edge, -EPROTO);
		return NULL;
	}
	own->tags[want->tag].want = NULL;
	own->free_tags[own->free_count++] = want->tag;
	own->asked--;
	want->asked = false;
	if (want->cancelled)
		leave_early(&own->to_cancel, want);
	/* Nobody writes there any more. */
	want->placed = false;
	return want;
}

static void take_reply(struct asker *own, const struct towi_reply *reply)
{
	struct want *want;

	if ((reply->status && !towi_is_error(reply->status)) ||
	    (reply->tag == TOWI_NO_TAG && !own->cancelling)) {
		towi_edge_fail(&own->edge, -EPROTO);
		return;
	}
	if (reply->tag == TOWI_NO_TAG) {
		own->cancelling--;
		return;
	}
	want = wanted(own, reply);
	if (!want)
		return;
	if (reply->status)
		end_want(want, reply->status);
	else if (reply->flags & TOWI_REPLY_TYPE)
		take_type(own, want, reply);
	else if (want->typed)
		take_tensor(own, want, reply);
	else
		towi_edge_fail(&own->edge, -EPROTO);
}

static void await_tensor(struct asker *own, const struct towi_reply *reply)
{
	struct want *want = asked_for(own, reply);

	if (!want) {
		towi_edge_fail(&own->edge, -EPROTO);
		return;
	}
	want->arriving = true;
	want->reply = *reply;
	want->arrives_next = NULL;
	*own->last_arriving = want;
	own->last_arriving = &want->arrives_next;
}

/* Whose number it says. */
static const struct tow_slot *slot_of(const struct tow_edge *edge, const struct towi_reply *reply)
{
	return reply->flags & TOWI_REPLY_LARGE ? edge->large_slot : edge->slot;
}

static bool asker_came(struct tow_edge *edge, const struct towi_record *record, const void *data)
{
	struct asker *own = asker_of(edge);
	struct towi_reply reply;

	if (record->tag != TOWI_TAG_REPLY || record->bytes != sizeof(reply))
		return false;
	memcpy(&reply, data, sizeof(reply));
	if (edge->error || !edge->there)
		return true;
	if (reply.number > tow_slot_value(slot_of(edge, &reply)))
		await_tensor(own, &reply);
	else
		take_reply(own, &reply);
	return true;
}

/* Only the slot's number says that a tensor is there. */
static void take_arrived(struct tow_edge *edge)
{
	struct asker *own = asker_of(edge);
	struct towi_reply reply;
	struct want *want;

	while (!edge->error && (want = own->arriving) &&
	       want->reply.number <= tow_slot_value(slot_of(edge, &want->reply))) {
		own->arriving = want->arrives_next;
		if (!own->arriving)
			own->last_arriving = &own->arriving;
		want->arriving = false;
		reply = want->reply;
		take_reply(own, &reply);
	}
}

/* ---- what the edge is asked ------------------------------------------------- */

/* A sender that has no room for a request would never be asked for anything. */
static int compare(const struct tow_edge *edge, const struct towi_header *header)
{
	(void)edge;
	return header->slots < TOWI_LETTERS_OF(1U) ? -EPROTO : 0;
}

/* After an error everybody is told; the memory stays until nobody can write to it. */
static void end_all(struct asker *own)
{
	struct want *want, *next;

	for (want = (struct want *)towi_names_first(&own->wants); want; want = next) {
		next = (struct want *)towi_names_next(&want->named);
		/* Otherwise when its errand is done. */
		if (!want->away)
			end_want(want, own->edge.error);
	}
	own->to_ask = (struct line){ NULL, &own->to_ask.first };
	own->to_cancel = (struct line){ NULL, &own->to_cancel.first };
	own->arriving = NULL;
	own->last_arriving = &own->arriving;
	memset(own->tags, 0, own->requests * sizeof(*own->tags));
}

static void asker_goes_on(struct tow_edge *edge)
{
	struct asker *own = asker_of(edge);

	if (!edge->connected) {
		if (edge->error)
			end_all(own);
		return;
	}
	take_arrived(edge);
	while (!edge->error && own->to_cancel.first && send_cancel(own))
		;
	while (!edge->error && own->to_ask.first && ask(own, own->to_ask.first))
		;
	if (edge->error)
		end_all(own);
	else if (own->arriving)
		towi_edge_wait_at(edge, slot_of(edge, &own->arriving->reply),
				  own->arriving->reply.number);
}

/* The sender is told that it is not wanted any more, if it knows that it was. */
static void call_off(struct want *want)
{
	if (!want->cancelled && !want->away)
		join(&asker_of(want->edge)->to_cancel, want);
	want->cancelled = true;
}

/* Who asked is told; what may still be written stays until the sender says that it is not. */
static void end_late(struct towi_timed *timed)
{
	struct want *want = (struct want *)(void *)((char *)timed - offsetof(struct want, timed));
	struct asker *own = asker_of(want->edge);
	struct want *told;

	if (!want->asked && !want->away) {
		leave_early(&own->to_ask, want);
		end_want(want, -ETIMEDOUT);
		return;
	}
	told = malloc(sizeof(*told));
	/* Another time. */
	if (!told) {
		towi_pump_time(own->edge.runner.pump, timed);
		return;
	}
	*told = *want;
	told->data = NULL;
	told->status = -ETIMEDOUT;
	tell_soon(told);
	want->got = NULL;
	call_off(want);
	towi_pump_ready(&want->edge->runner);
}

static uint32_t asker_pending(const struct tow_edge *edge)
{
	return const_asker_of(edge)->count;
}

static void asker_hides(struct tow_edge *edge)
{
	towi_windows_end(&asker_of(edge)->windows);
}

static void asker_gives_up(struct tow_edge *edge)
{
	end_all(asker_of(edge));
}

static void free_tables(const struct asker *own)
{
	free(own->tags);
	free(own->free_tags);
}

static void asker_free(struct tow_edge *edge)
{
	struct asker *own = asker_of(edge);
	struct want *held;

	while ((held = own->held)) {
		own->held = held->next;
		drop_data(held);
		free(held);
	}
	towi_knowns_end(&own->knowns);
	free_tables(own);
}

/* Of what was asked for. */
static bool asker_lost(struct tow_edge *edge)
{
	struct towi_named *named;

	for (named = towi_names_first(&asker_of(edge)->wants); named; named = towi_names_next(named))
		if (towi_edge_lost(edge, ((const struct want *)named)->data))
			return true;
	return false;
}

static const struct towi_kind asker_kind = {
	.number = TOWI_RENDEZVOUS,
	.slot = "/data",
	.large = "/large",
	.compare = compare,
	.go_on = asker_goes_on,
	.came = asker_came,
	.take = take_arrived,
	.pending = asker_pending,
	.lost = asker_lost,
	.hide = asker_hides,
	.give_up = asker_gives_up,
	.free = asker_free,
};

/* ---- what programs ask ------------------------------------------------------ */

/* Called with the lock: 0 and one more want, or a negative errno. */
static int begin_want(struct tow_edge *edge, const struct towi_name *name, struct want **made)
{
	struct asker *own = asker_of(edge);
	int error = edge->error;
	struct want *want;

	if (error)
		return error;
	if (!edge->connected)
		return -ENOTCONN;
	if (towi_names_find(&own->wants, name))
		return -EEXIST;
	want = calloc(1, sizeof(*want));
	if (!want)
		return -ENOMEM;
	want->named.name = *name;
	want->edge = edge;
	want->timed.late = end_late;
	towi_names_add(&own->wants, &want->named);
	own->count++;
	join(&own->to_ask, want);
	*made = want;
	return 0;
}

static bool is_asker(const struct tow_edge *edge)
{
	return edge && edge->kind == &asker_kind;
}

TOW_PUBLIC int tow_rendezvous_get(struct tow_edge *edge, const char *key, uint64_t step,
				  tow_rendezvous_got *got, void *arg)
{
	struct towi_name name;
	struct want *want;
	int ret;

	if (!is_asker(edge) || !got || towi_name_of(key, step, &name))
		return -EINVAL;
	if (!towi_pump_usable(&edge->worker->pump))
		return -EPERM;
	towi_pump_lock(&edge->worker->pump);
	ret = begin_want(edge, &name, &want);
	if (!ret) {
		want->got = got;
		want->arg = arg;
		towi_pump_time(edge->runner.pump, &want->timed);
		asker_goes_on(edge);
	}
	towi_pump_unlock(&edge->worker->pump);
	return ret;
}

/* Called with the lock. */
static void cancel(struct want *want)
{
	struct asker *own = asker_of(want->edge);

	if (!want->asked && !want->away) {
		leave_early(&own->to_ask, want);
		end_want(want, -ECANCELED);
		return;
	}
	call_off(want);
	asker_goes_on(want->edge);
}

TOW_PUBLIC int tow_rendezvous_cancel(struct tow_edge *edge, const char *key, uint64_t step)
{
	struct towi_name name;
	struct want *want;
	int ret = 0;

	if (!is_asker(edge) || towi_name_of(key, step, &name))
		return -EINVAL;
	if (!towi_pump_usable(&edge->worker->pump))
		return -EPERM;
	towi_pump_lock(&edge->worker->pump);
	want = (struct want *)towi_names_find(&asker_of(edge)->wants, &name);
	if (want)
		cancel(want);
	else
		ret = -ENOENT;
	towi_pump_unlock(&edge->worker->pump);
	return ret;
}

/* Called with the lock. */
static int wait_for(struct tow_edge *edge, const struct towi_name *name, uint64_t until,
		    struct waiter *waiter)
{
	struct want *want;
	int ret;

	ret = begin_want(edge, name, &want);
	if (ret)
		return ret;
	want->waiter = waiter;
	asker_goes_on(edge);
	while (!waiter->over && !ret)
		ret = towi_pump_sleep(&edge->worker->pump, until);
	if (waiter->over)
		return waiter->got.status;
	want->waiter = NULL;
	cancel(want);
	return ret;
}

TOW_PUBLIC int tow_rendezvous_wait(struct tow_edge *edge, const char *key, uint64_t step,
				   uint32_t timeout_us, struct tow_tensor_type *type, void **data)
{
	struct waiter waiter = { 0 };
	struct towi_name name;
	uint64_t until;
	int ret;

	if (!is_asker(edge) || !data || towi_name_of(key, step, &name))
		return -EINVAL;
	if (!towi_pump_usable(&edge->worker->pump))
		return -EPERM;
	until = towi_until(timeout_us);
	towi_pump_lock(&edge->worker->pump);
	ret = wait_for(edge, &name, until, &waiter);
	towi_pump_unlock(&edge->worker->pump);
	if (ret)
		return ret;
	*data = waiter.got.data;
	if (type)
		*type = waiter.got.type;
	return 0;
}

/* ---- begin ------------------------------------------------------------------ */

static int make_asker(struct asker *own, uint32_t requests, const struct tow_worker *worker)
{
	int ret;

	own->edge.kind = &asker_kind;
	own->edge.mine.slots = TOWI_LETTERS_OF(requests);
	own->last_arriving = &own->arriving;
	own->requests = requests;
	own->to_ask.last = &own->to_ask.first;
	own->to_cancel.last = &own->to_cancel.first;
	towi_knowns_begin(&own->knowns, KNOWN_MAX);
	own->tags = calloc(requests, sizeof(*own->tags));
	own->free_tags = calloc(requests, sizeof(*own->free_tags));
	ret = own->tags && own->free_tags ? 0 : -ENOMEM;
	if (!ret)
		ret = towi_windows_begin(&own->windows, worker->arena, worker->dev,
					 TOW_RIGHT_WRITE);
	if (ret)
		return ret;
	for (uint32_t tag = 0; tag < requests; tag++)
		own->free_tags[own->free_count++] = tag;
	return 0;
}

TOW_PUBLIC int tow_rendezvous_receiver(struct tow_worker *worker, struct tow_peer *peer,
				       const char *name, uint32_t requests, struct tow_edge **edge)
{
	struct asker *made;
	int ret;

	if (!requests || requests > TOW_REQUESTS_MAX)
		return -EINVAL;
	ret = towi_edge_may_be(worker, peer, name, edge);
	if (ret)
		return ret;
	made = calloc(1, sizeof(*made));
	if (!made)
		return -ENOMEM;
	ret = make_asker(made, requests, worker);
	if (ret) {
		free_tables(made);
		free(made);
		return ret;
	}
	return towi_edge_make(&made->edge, worker, peer, name, edge);
}
