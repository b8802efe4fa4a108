// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Static edges.
 *
 * The receiver exports a range, NAME: a header that says what it is, room for the
 * sender's header, and a buffer for each of its slots; and a slot, NAME/arrived.  The
 * sender has a slot NAME/read.  It reads the header and writes its own behind it, which
 * is the first notification; each one after it is a step, in buffer (step - 1) % slots.
 * The receiver notifies NAME/read for each step that was read; the sender begins step N
 * when N - slots were.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/internal.h"
#include "worker.h"

#define MAGIC		0x65676465776f74ULL	/* "towedge" */
#define VERSION		1U
#define HELLO		1U		/* notifications before step 1 */
#define STEPS		TOW_EDGE_SLOTS_MAX
/* Where things are in the range: lines of the cache of their own. */
#define HEADER_AT	0U
#define HELLO_AT	256U
#define BUFFERS_AT	512U
#define LINE		64U
/* In memory of each end that nobody reaches but the kernel. */
#define NUMBER_AT	0U
#define SCRATCH_AT	512U		/* both headers, as in the range */
#define OWN_BYTES	1024U

struct header {
	uint64_t magic;
	uint32_t version;
	uint32_t slots;
	uint64_t stride;
	uint64_t bytes;
	struct tow_tensor_type type;
};

_Static_assert(sizeof(struct header) <= HELLO_AT, "each has its place");

struct step {
	struct towi_op op;			/* first */
	uint64_t number;
	uint64_t begun_us;
	const void *data;
	void *staged;
	struct towi_call call;
};

/* How far the sender has come in tow_edge_connect(). */
enum meeting {
	NOTHING,
	READING,	/* the receiver's header */
	GREETING,	/* with its own */
};

struct tow_edge {
	struct towi_edge common;		/* first */
	bool sends;
	bool connected;
	bool greeted;				/* the receiver: by a sender that fits */
	uint64_t found_ns;			/* when the other end was found */
	int error;				/* what has ended it */
	struct tow_peer *peer;
	struct tow_channel *channel;
	struct tow_tensor_type type;
	uint64_t bytes, stride;
	uint32_t slots;
	char *own;				/* OWN_BYTES */
	struct tow_slot *slot;			/* that the other end notifies */
	struct tow_remote *other;		/* the slot that this end does */
	struct towi_op wait;			/* for the slot */
	uint64_t wanted;			/* what its number is waited for to be */
	struct towi_op once;			/* of tow_edge_connect() */
	int once_status;
	enum meeting meeting;
	int fits;				/* how the other end differs, or 0 */
	/* The sender's. */
	struct towi_op probe;			/* is the receiver there? */
	struct tow_remote *range;
	uint64_t given, begun, ended;		/* steps */
	struct step *steps;
	/* The receiver's. */
	char *buffers;				/* the range */
	struct tow_exported *exported;
	uint64_t consumed;
	uint32_t credits;			/* on their way */
	struct towi_op credit[STEPS];
	char name[TOW_EDGE_NAME_MAX + 16];
	size_t name_length;
};

static struct tow_edge *edge_of(struct towi_edge *common)
{
	return (struct tow_edge *)common;
}

/* The first error counts. */
static void fail(struct tow_edge *edge, int error)
{
	if (!edge->error)
		edge->error = error;
}

static const char *name_of(struct tow_edge *edge, const char *end)
{
	snprintf(edge->name + edge->name_length, sizeof(edge->name) - edge->name_length, "%s",
		 end);
	return edge->name;
}

static int place(const struct tow_edge *edge, const void *ptr, struct tow_region **region,
		 uint64_t *offset)
{
	return tow_arena_find(edge->common.worker->arena, ptr, region, offset);
}

/* ---- the sender ------------------------------------------------------------- */

static uint64_t read_steps(const struct tow_edge *edge)
{
	return tow_slot_value(edge->slot);
}

static void end_step(struct step *step, int status)
{
	struct tow_edge *edge = step->op.edge;
	struct tow_worker *worker = edge->common.worker;

	if (status)
		fail(edge, status);
	tow_arena_free(worker->arena, step->staged);
	step->staged = NULL;
	edge->ended++;
	step->call.status = status;
	towi_worker_call(worker, &step->call);
}

static void step_ended(struct towi_op *op, int status)
{
	end_step((struct step *)op, status);
}

static void prepare_step(struct tow_edge *edge, const struct step *step, struct tow_sqe *sqe)
{
	uint64_t to = BUFFERS_AT + (step->number - 1) % edge->slots * edge->stride, offset;
	struct tow_region *region;

	if (edge->bytes && !place(edge, step->staged ? step->staged : step->data, &region, &offset))
		tow_prep_write_notify(sqe, edge->channel, region, offset, edge->range, to,
				      edge->bytes, edge->other);
	else
		tow_prep_notify(sqe, edge->channel, edge->other);
	if (step->staged)
		tow_sqe_set_flags(sqe, edge->common.worker->copied_flag);
}

/* False: it cannot begin now. */
static bool begin_step(struct tow_edge *edge, struct step *step)
{
	struct tow_worker *worker = edge->common.worker;
	struct tow_sqe *sqe;

	if (step->number > read_steps(edge) + edge->slots)
		return false;
	sqe = towi_worker_entry(worker);
	if (!sqe)
		return false;
	prepare_step(edge, step, sqe);
	towi_worker_begun(sqe, &step->op);
	step->begun_us = towi_now_ns() / 1000;
	edge->begun++;
	return true;
}

/* Be told when the slot's number is @number; it may be by now.  0 or -EBUSY. */
static int wait_for(struct tow_edge *edge, uint64_t number)
{
	struct tow_worker *worker = edge->common.worker;
	struct tow_sqe *sqe;

	edge->wanted = number;
	/* One that waits for less is followed by another one. */
	if (edge->wait.busy)
		return 0;
	sqe = towi_worker_may_wait(worker) ? towi_worker_entry(worker) : NULL;
	if (!sqe)
		return -EBUSY;
	tow_prep_wait(sqe, edge->slot, number);
	towi_worker_begun(sqe, &edge->wait);
	worker->waits++;
	return 0;
}

static void wait_ended(struct towi_op *op, int status)
{
	op->edge->common.worker->waits--;
	if (status)
		fail(op->edge, status);
}

static void sender_goes_on(struct tow_edge *edge)
{
	struct step *step;

	while (edge->begun < edge->given) {
		step = &edge->steps[edge->begun % STEPS];
		if (!edge->error) {
			if (!begin_step(edge, step))
				break;
			continue;
		}
		/* After those that are on their way, so that steps end in order. */
		if (edge->begun > edge->ended)
			return;
		edge->begun++;
		end_step(step, edge->error);
	}
	/* What finds no room to wait is begun when something has ended, or by the clock. */
	if (edge->begun < edge->given && edge->begun >= edge->slots)
		wait_for(edge, edge->begun + 1 - edge->slots);
}

static void probe_ended(struct towi_op *op, int status)
{
	if (status)
		fail(op->edge, status);
}

/*
 * A receiver that has gone while its node is there tells nobody: a write of nothing finds
 * out.
 */
static void probe(struct tow_edge *edge)
{
	struct tow_region *region;
	struct tow_sqe *sqe;
	uint64_t offset;

	if (edge->probe.busy || place(edge, edge->own + SCRATCH_AT, &region, &offset))
		return;
	sqe = towi_worker_entry(edge->common.worker);
	if (!sqe)
		return;
	tow_prep_write(sqe, edge->channel, region, offset, edge->range, HELLO_AT, 0);
	towi_worker_begun(sqe, &edge->probe);
}

static void sender_ticks(struct tow_edge *edge, uint64_t now_us)
{
	uint64_t most = edge->common.worker->timeout_ms * 1000ULL;

	if (edge->error)
		return;
	if (edge->wait.busy)
		probe(edge);
	/* The oldest of those on their way. */
	if (most && edge->ended < edge->begun &&
	    now_us - edge->steps[edge->ended % STEPS].begun_us > most)
		fail(edge, -ETIMEDOUT);
}

/* Its tensor is in the arena, or a copy of it. */
static int stage(struct tow_edge *edge, struct step *step)
{
	struct tow_worker *worker = edge->common.worker;
	struct tow_region *region;
	uint64_t offset;

	if (!edge->bytes || !place(edge, step->data, &region, &offset))
		return 0;
	step->staged = tow_arena_alloc(worker->arena, edge->bytes);
	if (!step->staged)
		return -errno;
	if (place(edge, step->staged, &region, &offset)) {
		tow_arena_free(worker->arena, step->staged);
		step->staged = NULL;
		return -ENOSPC;
	}
	memcpy(step->staged, step->data, edge->bytes);
	atomic_fetch_add_explicit(&worker->copied, edge->bytes, memory_order_relaxed);
	return 0;
}

/* Called with the lock. */
static int send_step(struct tow_edge *edge, const void *data, tow_edge_done *done, void *arg)
{
	struct step *step = &edge->steps[edge->given % STEPS];
	int ret;

	if (edge->error)
		return edge->error;
	if (!edge->connected)
		return -ENOTCONN;
	/* Or the step that had the record has ended, and is being told of. */
	if (edge->given - edge->ended >= STEPS ||
	    atomic_load_explicit(&step->call.busy, memory_order_acquire))
		return -EAGAIN;
	step->data = data;
	ret = stage(edge, step);
	if (ret)
		return ret;
	step->number = ++edge->given;
	step->call.done = done;
	step->call.arg = arg;
	step->call.step = step->number;
	atomic_store_explicit(&step->call.busy, true, memory_order_relaxed);
	sender_goes_on(edge);
	return 0;
}

TOW_PUBLIC int tow_edge_send(struct tow_edge *edge, const void *data, tow_edge_done *done,
			     void *arg)
{
	int ret;

	if (!edge || !edge->sends || (!data && edge->bytes))
		return -EINVAL;
	if (!towi_worker_usable(edge->common.worker))
		return -EPERM;
	towi_worker_lock(edge->common.worker);
	ret = send_step(edge, data, done, arg);
	towi_worker_unlock(edge->common.worker);
	return ret;
}

TOW_PUBLIC uint32_t tow_edge_pending(const struct tow_edge *edge)
{
	uint32_t pending;

	if (!edge || !towi_worker_usable(edge->common.worker))
		return 0;
	towi_worker_lock(edge->common.worker);
	pending = (uint32_t)(edge->given - edge->ended);
	towi_worker_unlock(edge->common.worker);
	return pending;
}

/* ---- the receiver ----------------------------------------------------------- */

/* What the sender says that it sends, once it has said so. */
static int compare_types(const struct header *header, const struct tow_tensor_type *type)
{
	if (header->magic != MAGIC || header->version != VERSION)
		return -EPROTO;
	if (memcmp(&header->type.dtype, &type->dtype, sizeof(type->dtype)))
		return -EPROTOTYPE;
	if (header->type.ndim != type->ndim ||
	    memcmp(header->type.dims, type->dims, type->ndim * sizeof(type->dims[0])))
		return -EMSGSIZE;
	return 0;
}

/* 1: step edge->consumed + 1 is there. */
static int arrived(struct tow_edge *edge)
{
	uint64_t count = tow_slot_value(edge->slot);
	struct header header;
	int ret;

	/* A step that came before the end did come. */
	if (count > HELLO + edge->consumed)
		return 1;
	if (edge->error)
		return edge->error;
	if (count < HELLO || edge->greeted)
		return 0;
	memcpy(&header, edge->buffers + HELLO_AT, sizeof(header));
	ret = compare_types(&header, &edge->type);
	if (ret)
		fail(edge, ret);
	edge->greeted = !ret;
	return ret;
}

static int show(struct tow_edge *edge, void **data, uint64_t *step)
{
	int ret = arrived(edge);

	if (ret <= 0)
		return ret;
	*data = edge->buffers + BUFFERS_AT + edge->consumed % edge->slots * edge->stride;
	if (step)
		*step = edge->consumed + 1;
	return 1;
}

TOW_PUBLIC int tow_edge_test(struct tow_edge *edge, void **data, uint64_t *step)
{
	int ret;

	if (!edge || edge->sends || !data)
		return -EINVAL;
	if (!towi_worker_usable(edge->common.worker))
		return -EPERM;
	towi_worker_lock(edge->common.worker);
	ret = show(edge, data, step);
	towi_worker_unlock(edge->common.worker);
	return ret;
}

/* Called with the lock. */
static int arm(struct tow_edge *edge)
{
	return wait_for(edge, HELLO + edge->consumed + 1);
}

TOW_PUBLIC int tow_edge_arm(struct tow_edge *edge)
{
	int ret;

	if (!edge || edge->sends)
		return -EINVAL;
	if (!towi_worker_usable(edge->common.worker))
		return -EPERM;
	towi_worker_lock(edge->common.worker);
	ret = edge->error ? edge->error : arm(edge);
	towi_worker_unlock(edge->common.worker);
	return ret;
}

TOW_PUBLIC int tow_edge_wait(struct tow_edge *edge, uint32_t timeout_us, void **data,
			     uint64_t *step)
{
	struct tow_worker *worker;
	uint64_t until;
	int ret, waited = 0;

	if (!edge || edge->sends || !data)
		return -EINVAL;
	worker = edge->common.worker;
	if (!towi_worker_usable(worker))
		return -EPERM;
	until = towi_until(timeout_us);
	towi_worker_lock(worker);
	while (!(ret = show(edge, data, step)) && !waited) {
		waited = arm(edge);
		if (!waited || waited == -EBUSY)
			waited = towi_worker_wait(worker, until);
	}
	towi_worker_unlock(worker);
	if (ret)
		return ret < 0 ? ret : 0;
	return waited;
}

static void credit_ended(struct towi_op *op, int status)
{
	if (status)
		fail(op->edge, status);
}

/* Called with the lock: tell the sender that one more was read. */
static int give_credit(struct tow_edge *edge)
{
	struct tow_worker *worker = edge->common.worker;
	struct towi_op *op = &edge->credit[edge->consumed % STEPS];
	struct tow_sqe *sqe;

	if (tow_slot_value(edge->slot) <= HELLO + edge->consumed)
		return -EINVAL;
	if (!edge->connected)
		return edge->error ? edge->error : -ENOTCONN;
	sqe = op->busy ? NULL : towi_worker_entry(worker);
	if (!sqe)
		return -EBUSY;
	tow_prep_notify(sqe, edge->channel, edge->other);
	op->ended = credit_ended;
	op->edge = edge;
	towi_worker_begun(sqe, op);
	edge->consumed++;
	return 0;
}

TOW_PUBLIC int tow_edge_consumed(struct tow_edge *edge)
{
	int ret;

	if (!edge || edge->sends)
		return -EINVAL;
	if (!towi_worker_usable(edge->common.worker))
		return -EPERM;
	towi_worker_lock(edge->common.worker);
	ret = give_credit(edge);
	towi_worker_unlock(edge->common.worker);
	return ret;
}

static void receiver_goes_on(struct tow_edge *edge)
{
	if (!edge->wanted || edge->wait.busy || edge->error)
		return;
	if (tow_slot_value(edge->slot) >= edge->wanted)
		edge->wanted = 0;
	else
		wait_for(edge, edge->wanted);
}

static void receiver_ticks(struct tow_edge *edge, uint64_t now_us)
{
	(void)edge;
	(void)now_us;
}

static void lost(struct tow_edge *edge, int error, uint64_t lost_ns)
{
	if (edge->found_ns && edge->found_ns <= lost_ns)
		fail(edge, error);
}

static void bury(struct tow_edge *edge);

static const struct towi_edge_ops sender_ops = { sender_goes_on, lost, sender_ticks, bury };
static const struct towi_edge_ops receiver_ops = {
	receiver_goes_on, lost, receiver_ticks, bury,
};

/* ---- finding each other ----------------------------------------------------- */

static void once_ended(struct towi_op *op, int status)
{
	op->edge->once_status = status;
}

/* Read the receiver's header, or write this one's, and tell. */
static int begin_meeting(struct tow_edge *edge, enum meeting meeting)
{
	struct tow_worker *worker = edge->common.worker;
	struct tow_region *region;
	struct tow_sqe *sqe;
	uint64_t offset;
	int ret;

	ret = place(edge, edge->own + SCRATCH_AT, &region, &offset);
	if (ret)
		return ret;
	sqe = towi_worker_entry(worker);
	if (!sqe)
		return -EBUSY;
	if (meeting == READING)
		tow_prep_read(sqe, edge->channel, region, offset, edge->range, HEADER_AT,
			      HELLO_AT + sizeof(struct header));
	else
		tow_prep_write_notify(sqe, edge->channel, region, offset + HELLO_AT, edge->range,
				      HELLO_AT, sizeof(struct header), edge->other);
	towi_worker_begun(sqe, &edge->once);
	edge->meeting = meeting;
	return 0;
}

/* The same, and wait for it; after a time-out it goes on where it was. */
static int meet(struct tow_edge *edge, enum meeting meeting, uint64_t until)
{
	int ret = edge->meeting < meeting ? begin_meeting(edge, meeting) : 0;

	if (!ret)
		ret = towi_worker_wait_for(edge->common.worker, &edge->once, until);
	return ret ? ret : edge->once_status;
}

/*
 * What the receiver says of itself: 0, and this end's header is ready; -EPROTO: that
 * cannot be; -EBUSY: it had a sender, and counts on from that one's steps.
 */
static int take_header(struct tow_edge *edge)
{
	char *scratch = edge->own + SCRATCH_AT;
	struct header *hello = (struct header *)(void *)(scratch + HELLO_AT);
	struct header header;
	int fits;

	memcpy(&header, scratch + HEADER_AT, sizeof(header));
	fits = compare_types(&header, &edge->type);
	if (fits == -EPROTO)
		return fits;
	if (hello->magic)
		return -EBUSY;
	edge->slots = header.slots;
	edge->stride = header.stride;
	if (!edge->slots || edge->slots > TOW_EDGE_SLOTS_MAX || edge->stride < header.bytes ||
	    edge->stride > tow_remote_bytes(edge->range) ||
	    tow_remote_bytes(edge->range) < BUFFERS_AT + edge->slots * edge->stride ||
	    (!fits && header.bytes != edge->bytes))
		return -EPROTO;
	*hello = header;
	hello->type = edge->type;
	hello->bytes = edge->bytes;
	edge->fits = fits;
	return 0;
}

/* What the receiver is, and then, whatever it is, what this is. */
static int exchange_headers(struct tow_edge *edge, uint64_t until)
{
	int ret = 0;

	if (edge->meeting < GREETING) {
		ret = meet(edge, READING, until);
		if (!ret)
			ret = take_header(edge);
	}
	if (!ret)
		ret = meet(edge, GREETING, until);
	return ret ? ret : edge->fits;
}

static uint32_t ms_until(uint64_t until)
{
	uint64_t now = towi_until(0), left = until > now ? (until - now) / 1000 : 0;

	return left > UINT32_MAX ? UINT32_MAX : (uint32_t)left;
}

/*
 * In one go: a slot that was found as the time ran out is this end's for a moment, and
 * who asks again would be told that somebody has it.
 */
static int find(struct tow_edge *edge, const char *end, uint32_t rights, uint64_t until,
		struct tow_remote **remote)
{
	uint64_t before = towi_now_ns();
	int ret;

	if (*remote)
		return 0;
	ret = tow_resolve(edge->peer, name_of(edge, end), rights, ms_until(until), remote);
	if (!ret && !edge->found_ns)
		edge->found_ns = before;
	return ret == -ENOENT ? -ETIMEDOUT : ret;
}

static int find_other(struct tow_edge *edge, uint64_t until)
{
	int ret = 0;

	if (edge->sends)
		ret = find(edge, "", TOW_RIGHT_READ | TOW_RIGHT_WRITE, until, &edge->range);
	if (!ret)
		ret = find(edge, edge->sends ? "/arrived" : "/read", TOW_RIGHT_NOTIFY, until,
			   &edge->other);
	return ret;
}

TOW_PUBLIC int tow_edge_connect(struct tow_edge *edge, uint32_t timeout_ms)
{
	struct tow_worker *worker;
	uint64_t until;
	int ret;

	if (!edge)
		return -EINVAL;
	worker = edge->common.worker;
	if (!towi_worker_usable(worker))
		return -EPERM;
	until = towi_until((uint64_t)timeout_ms * 1000);
	/* Waits in the kernel, and keeps nobody out meanwhile. */
	ret = edge->connected ? 0 : find_other(edge, until);
	if (ret)
		return ret;
	towi_worker_lock(worker);
	ret = edge->error;
	if (!ret && !edge->connected && edge->sends)
		ret = exchange_headers(edge, until);
	/* Another time it would be no better. */
	if (ret && ret != -ETIMEDOUT && ret != -EINTR)
		fail(edge, ret);
	edge->connected |= !ret;
	towi_worker_unlock(worker);
	return ret;
}

/* ---- begin and end ---------------------------------------------------------- */

static bool name_fits(const char *name)
{
	return name && *name && strnlen(name, TOW_EDGE_NAME_MAX + 1) <= TOW_EDGE_NAME_MAX;
}

/* Memory of the arena that is in a region; zeroed. */
static int take_memory(struct tow_arena *arena, uint64_t bytes, char **at)
{
	struct tow_region *region;
	uint64_t offset;
	char *memory;

	if (bytes > SIZE_MAX)
		return -ENOMEM;
	memory = tow_arena_zeroed(arena, 1, (size_t)bytes);
	if (!memory)
		return -errno;
	if (tow_arena_find(arena, memory, &region, &offset)) {
		tow_arena_free(arena, memory);
		return -ENOSPC;
	}
	*at = memory;
	return 0;
}

static int make_slot(struct tow_edge *edge, const char *end)
{
	struct tow_region *region;
	uint64_t offset;
	int ret;

	ret = take_memory(edge->common.worker->arena, OWN_BYTES, &edge->own);
	if (ret)
		return ret;
	ret = place(edge, edge->own + NUMBER_AT, &region, &offset);
	return ret ? ret : tow_slot_create(region, offset, name_of(edge, end), &edge->slot);
}

static int make_range(struct tow_edge *edge)
{
	struct header *header;
	struct tow_region *region;
	uint64_t size = BUFFERS_AT + edge->slots * edge->stride, offset;
	int ret;

	ret = take_memory(edge->common.worker->arena, size, &edge->buffers);
	if (ret)
		return ret;
	header = (struct header *)(void *)(edge->buffers + HEADER_AT);
	*header = (struct header){
		.magic = MAGIC, .version = VERSION, .slots = edge->slots,
		.stride = edge->stride, .bytes = edge->bytes, .type = edge->type,
	};
	ret = place(edge, edge->buffers, &region, &offset);
	return ret ? ret : tow_export(region, offset, size, name_of(edge, ""),
				      TOW_RIGHT_READ | TOW_RIGHT_WRITE, &edge->exported);
}

static int make_steps(struct tow_edge *edge)
{
	edge->steps = calloc(STEPS, sizeof(*edge->steps));
	if (!edge->steps)
		return -ENOMEM;
	for (uint32_t i = 0; i < STEPS; i++) {
		edge->steps[i].op.edge = edge;
		edge->steps[i].op.ended = step_ended;
	}
	return 0;
}

/* The rest of an edge, whose worker knows it. */
static int make_rest(struct tow_edge *edge)
{
	int ret;

	ret = tow_channel_get(edge->common.worker->queue, edge->peer, TOW_CHANNEL_ANY,
			      &edge->channel);
	if (!ret && edge->sends)
		ret = make_steps(edge);
	if (!ret)
		ret = make_slot(edge, edge->sends ? "/read" : "/arrived");
	/* Last: who finds it finds all of it. */
	if (!ret && !edge->sends)
		ret = make_range(edge);
	return ret;
}

static void link_edge(struct tow_edge *edge)
{
	struct tow_worker *worker = edge->common.worker;

	towi_worker_lock(worker);
	edge->common.next = worker->edges;
	worker->edges = &edge->common;
	towi_worker_unlock(worker);
}

static void unlink_edge(struct tow_edge *edge)
{
	struct tow_worker *worker = edge->common.worker;
	struct towi_edge **link;

	towi_worker_lock(worker);
	for (link = &worker->edges; edge_of(*link) != edge;)
		link = &(*link)->next;
	*link = edge->common.next;
	towi_worker_unlock(worker);
}

static int make_edge(struct tow_worker *worker, struct tow_peer *peer, const char *name,
		     const struct tow_tensor_type *type, struct tow_edge *wanted,
		     struct tow_edge **edge)
{
	struct tow_edge *made;
	int ret;

	made = malloc(sizeof(*made));
	if (!made)
		return -ENOMEM;
	*made = *wanted;
	made->common.worker = worker;
	made->common.peer = towi_peer_number(peer);
	made->peer = peer;
	made->type = *type;
	made->wait = (struct towi_op){ .ended = wait_ended, .edge = made };
	made->once = (struct towi_op){ .ended = once_ended, .edge = made };
	made->probe = (struct towi_op){ .ended = probe_ended, .edge = made };
	made->name_length = strlen(name);
	memcpy(made->name, name, made->name_length + 1);
	link_edge(made);
	ret = make_rest(made);
	if (ret)
		tow_edge_close(made);
	else
		*edge = made;
	return ret;
}

TOW_PUBLIC int tow_static_receiver(struct tow_worker *worker, struct tow_peer *peer,
				   const char *name, const struct tow_tensor_type *type,
				   uint32_t slots, struct tow_edge **edge)
{
	struct tow_edge wanted = { .common.ops = &receiver_ops, .slots = slots };
	int ret;

	if (!worker || !peer || !name_fits(name) || !edge || !slots ||
	    slots > TOW_EDGE_SLOTS_MAX)
		return -EINVAL;
	ret = tow_tensor_bytes(type, &wanted.bytes);
	if (ret)
		return ret;
	wanted.stride = (wanted.bytes + LINE - 1) / LINE * LINE;
	if (wanted.stride > (SIZE_MAX / 2 - BUFFERS_AT) / slots)
		return -EOVERFLOW;
	return make_edge(worker, peer, name, type, &wanted, edge);
}

TOW_PUBLIC int tow_static_sender(struct tow_worker *worker, struct tow_peer *peer,
				 const char *name, const struct tow_tensor_type *type,
				 struct tow_edge **edge)
{
	struct tow_edge wanted = { .common.ops = &sender_ops, .sends = true };
	int ret;

	if (!worker || !peer || !name_fits(name) || !edge)
		return -EINVAL;
	ret = tow_tensor_bytes(type, &wanted.bytes);
	return ret ? ret : make_edge(worker, peer, name, type, &wanted, edge);
}

/* Is anything of it in flight that is bound to end?  All but what waits for the slot. */
static bool in_flight(const struct tow_edge *edge)
{
	for (uint32_t i = 0; edge->steps && i < STEPS; i++)
		if (edge->steps[i].op.busy)
			return true;
	for (uint32_t i = 0; i < STEPS; i++)
		if (edge->credit[i].busy)
			return true;
	return edge->once.busy || edge->probe.busy;
}

static bool waits(const struct tow_edge *edge)
{
	return edge->wait.busy;
}

/* Until it is not any more, with the lock. */
static void until_not(struct tow_edge *edge, bool (*busy)(const struct tow_edge *edge))
{
	struct tow_worker *worker = edge->common.worker;
	int ret = 0;

	while (busy(edge) && (!ret || ret == -EINTR || ret == -ETIMEDOUT))
		ret = towi_worker_wait(worker, UINT64_MAX);
	if (busy(edge))
		towi_worker_settle(worker, busy, edge);
}

/* Nothing of it is on its way any more, and whoever is to be told is told. */
static void drain(struct tow_edge *edge)
{
	struct tow_worker *worker = edge->common.worker;
	struct step *step;

	towi_worker_lock(worker);
	fail(edge, -ECANCELED);
	if (edge->steps)
		sender_goes_on(edge);
	until_not(edge, in_flight);
	if (edge->steps)
		sender_goes_on(edge);
	/* What the device has not ended, and it is gone; nobody is told a second time. */
	while (edge->steps && edge->ended < edge->given) {
		step = &edge->steps[edge->ended % STEPS];
		step->op.ended = probe_ended;
		end_step(step, edge->error);
	}
	towi_worker_unlock(worker);
	/* Another thread may be telling. */
	for (uint32_t i = 0; edge->steps && i < STEPS; i++)
		while (atomic_load_explicit(&edge->steps[i].call.busy, memory_order_acquire))
			sched_yield();
}

/* An entry that waits for a slot ends with the slot. */
static void drain_wait(struct tow_edge *edge)
{
	towi_worker_lock(edge->common.worker);
	until_not(edge, waits);
	towi_worker_unlock(edge->common.worker);
}

static void bury(struct tow_edge *edge)
{
	struct tow_arena *arena = edge->common.worker->arena;

	tow_arena_free(arena, edge->buffers);
	tow_arena_free(arena, edge->own);
	free(edge->steps);
	free(edge);
}

/* Nobody reaches its memory any more; a signal must not end the waiting for that. */
static int end_exports(struct tow_edge *edge)
{
	sigset_t all, before;
	int ret, error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ret = tow_unexport(edge->exported);
	error = tow_slot_destroy(edge->slot);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return ret ? ret : error;
}

TOW_PUBLIC int tow_edge_close(struct tow_edge *edge)
{
	struct tow_worker *worker;
	int ret;

	if (!edge)
		return 0;
	worker = edge->common.worker;
	/* The parent's edge, of which a child has a copy that does nothing. */
	if (!towi_worker_usable(worker))
		return -EPERM;
	drain(edge);
	ret = end_exports(edge);
	drain_wait(edge);
	tow_remote_release(edge->range);
	tow_remote_release(edge->other);
	unlink_edge(edge);
	if (!in_flight(edge) && !waits(edge)) {
		bury(edge);
		return ret;
	}
	/* Its records are still known to the queue. */
	towi_worker_lock(worker);
	edge->common.next = worker->graves;
	worker->graves = &edge->common;
	towi_worker_unlock(worker);
	return ret;
}
