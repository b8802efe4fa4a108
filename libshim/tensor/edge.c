// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * What all kinds of edges have in common: how the ends find each other, wait, and go.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../core/internal.h"
#include "edge.h"

#define MAGIC		0x65676465776f74ULL	/* "towedge" */
#define VERSION		3U
#define KEPT_MAGIC	0x7470656b776f74ULL	/* "towkept" */
/* Where things are in a range: lines of the cache of their own. */
#define HEADER_AT	0U
#define HELLO_AT	256U
/* In memory of each end that nobody reaches but the kernel. */
#define NUMBER_AT	0U
#define SCRATCH_AT	512U		/* both headers, as in the range */

_Static_assert(sizeof(struct towi_header) <= HELLO_AT, "each has its place");
_Static_assert(SCRATCH_AT + 2 * HELLO_AT <= TOWI_OWN_AT, "and in the scratch");

static struct tow_edge *edge_of(struct towi_edge *common)
{
	return (struct tow_edge *)common;
}

void towi_edge_fail(struct tow_edge *edge, int error)
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

int towi_edge_place(const struct tow_edge *edge, const void *ptr, struct tow_region **region,
		    uint64_t *offset)
{
	uint64_t at = (uint64_t)((uintptr_t)ptr - (uintptr_t)edge->kept);

	if (!edge->kept || at >= edge->kept_bytes)
		return tow_arena_find(edge->common.worker->arena, ptr, region, offset);
	*region = edge->kept_region;
	*offset = at;
	return 0;
}

int towi_edge_clone(struct tow_edge *edge, const void *data, uint64_t bytes, void **copy)
{
	struct tow_worker *worker = edge->common.worker;
	struct tow_region *region;
	uint64_t offset;

	*copy = NULL;
	if (!bytes)
		return 0;
	*copy = tow_arena_alloc(worker->arena, bytes);
	if (!*copy)
		return -errno;
	if (towi_edge_place(edge, *copy, &region, &offset)) {
		tow_arena_free(worker->arena, *copy);
		*copy = NULL;
		return -ENOSPC;
	}
	memcpy(*copy, data, bytes);
	atomic_fetch_add_explicit(&worker->copied, bytes, memory_order_relaxed);
	return 0;
}

int towi_edge_stage(struct tow_edge *edge, const void *data, uint64_t bytes, void **copy)
{
	struct tow_region *region;
	uint64_t offset;

	*copy = NULL;
	if (!bytes || !towi_edge_place(edge, data, &region, &offset))
		return 0;
	return towi_edge_clone(edge, data, bytes, copy);
}

/* ---- waiting ---------------------------------------------------------------- */

void towi_edge_op_ended(struct towi_op *op, int status)
{
	if (status)
		towi_edge_fail(op->edge, status);
}

void towi_edge_op(struct tow_edge *edge, struct towi_op *op)
{
	*op = (struct towi_op){ .ended = towi_edge_op_ended, .edge = edge };
}

int towi_edge_wait_for(struct tow_edge *edge, uint64_t number)
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
	towi_edge_op_ended(op, status);
}

void towi_edge_wait_on(struct tow_edge *edge)
{
	if (!edge->wanted || edge->wait.busy || edge->error)
		return;
	if (tow_slot_value(edge->slot) >= edge->wanted)
		edge->wanted = 0;
	else
		towi_edge_wait_for(edge, edge->wanted);
}

int towi_edge_nudge(struct tow_edge *edge)
{
	struct tow_sqe *sqe;

	if (edge->nudge.busy)
		return 0;
	sqe = towi_worker_entry(edge->common.worker);
	if (!sqe)
		return -EBUSY;
	tow_prep_nop(sqe);
	towi_worker_begun(sqe, &edge->nudge);
	return 0;
}

/* A write of nothing. */
void towi_edge_probe(struct tow_edge *edge)
{
	struct tow_region *region;
	struct tow_sqe *sqe;
	uint64_t offset;

	if (edge->probe.busy || towi_edge_place(edge, edge->own + SCRATCH_AT, &region, &offset))
		return;
	sqe = towi_worker_entry(edge->common.worker);
	if (!sqe)
		return;
	tow_prep_write(sqe, edge->channel, region, offset, edge->range, HELLO_AT, 0);
	towi_worker_begun(sqe, &edge->probe);
}

/* ---- what the worker asks --------------------------------------------------- */

/* Of one that is being made, or closed, there is no slot. */
static void go_on(struct towi_edge *common)
{
	struct tow_edge *edge = edge_of(common);

	if (edge->slot)
		edge->kind->go_on(edge);
}

static void tick(struct towi_edge *common, uint64_t now_us)
{
	struct tow_edge *edge = edge_of(common);

	if (edge->slot && edge->kind->tick)
		edge->kind->tick(edge, now_us);
}

static void lost(struct towi_edge *common, int error, uint64_t lost_ns)
{
	struct tow_edge *edge = edge_of(common);

	if (edge->found_ns && edge->found_ns <= lost_ns)
		towi_edge_fail(edge, error);
}

static void bury(struct towi_edge *common)
{
	struct tow_edge *edge = edge_of(common);
	struct tow_arena *arena = common->worker->arena;

	if (edge->kind->free)
		edge->kind->free(edge);
	if (edge->kept)
		tow_region_unmap(edge->kept_region, edge->kept, (size_t)edge->kept_bytes);
	else
		tow_arena_free(arena, edge->letters);
	tow_arena_free(arena, edge->own);
	free(edge);
}

static const struct towi_edge_ops edge_ops = { go_on, lost, tick, bury };

/* ---- finding each other ----------------------------------------------------- */

/* What the other end says that it is: 0; -EPROTO: no edge of this kind; what differs. */
static int compare(const struct tow_edge *edge, const struct towi_header *header)
{
	if (header->magic != MAGIC || header->version != VERSION ||
	    header->kind != edge->kind->number)
		return -EPROTO;
	return edge->kind->compare ? edge->kind->compare(edge, header) : 0;
}

/* Is there room in the range for the letters that it is said to hold? */
static bool holds(const struct tow_remote *range, const struct towi_header *header)
{
	uint64_t bytes = tow_remote_bytes(range);

	return header->slots && bytes >= TOWI_LETTERS_AT &&
	       header->stride <= (bytes - TOWI_LETTERS_AT) / header->slots;
}

static struct towi_header own_header(const struct tow_edge *edge)
{
	return (struct towi_header){
		.magic = MAGIC, .version = VERSION, .kind = edge->kind->number,
		.slots = edge->mine.slots, .stride = edge->mine.stride, .bytes = edge->bytes,
		.type = edge->type, .before = edge->before,
		.consumed = edge->kept ? edge->kept->consumed : 0,
	};
}

static void once_ended(struct towi_op *op, int status)
{
	op->edge->once_status = status;
}

/* Read the receiver's header, or write this one's, and tell. */
static int begin_meeting(struct tow_edge *edge, enum towi_meeting meeting)
{
	struct tow_worker *worker = edge->common.worker;
	struct tow_region *region;
	struct tow_sqe *sqe;
	uint64_t offset;
	int ret;

	ret = towi_edge_place(edge, edge->own + SCRATCH_AT, &region, &offset);
	if (ret)
		return ret;
	sqe = towi_worker_entry(worker);
	if (!sqe)
		return -EBUSY;
	if (meeting == TOWI_READING)
		tow_prep_read(sqe, edge->channel, region, offset, edge->range, HEADER_AT,
			      HELLO_AT + sizeof(struct towi_header));
	else
		tow_prep_write_notify(sqe, edge->channel, region, offset + HELLO_AT, edge->range,
				      HELLO_AT, sizeof(struct towi_header), edge->other);
	towi_worker_begun(sqe, &edge->once);
	edge->meeting = meeting;
	return 0;
}

/* The same, and wait for it; after a time-out it goes on where it was. */
static int meet(struct tow_edge *edge, enum towi_meeting meeting, uint64_t until)
{
	struct tow_worker *worker = edge->common.worker;
	int ret = 0, waited = 0;

	while (edge->meeting < meeting && !waited) {
		ret = begin_meeting(edge, meeting);
		if (ret != -EBUSY)
			break;
		/* Until there is room. */
		waited = edge->error ? edge->error : towi_worker_wait(worker, until);
		ret = waited;
	}
	if (!ret)
		ret = towi_worker_wait_for(worker, &edge->once, until);
	return ret ? ret : edge->once_status;
}

/*
 * What the receiver says of itself: 0, and this end's header is ready; -EPROTO: that
 * cannot be; -EBUSY: it had a sender, and counts on from that one's steps.
 */
static int take_header(struct tow_edge *edge)
{
	char *scratch = edge->own + SCRATCH_AT;
	struct towi_header *hello = (struct towi_header *)(void *)(scratch + HELLO_AT);
	struct towi_header header;
	int fits;

	memcpy(&header, scratch + HEADER_AT, sizeof(header));
	fits = compare(edge, &header);
	if (fits == -EPROTO)
		return fits;
	if (hello->magic)
		return -EBUSY;
	if (!holds(edge->range, &header))
		return -EPROTO;
	edge->theirs = (struct towi_letters){ header.slots, header.stride };
	edge->fits = fits;
	if (!fits && edge->kind->resume && header.before)
		edge->kind->resume(edge, &header);
	*hello = own_header(edge);
	return 0;
}

/* What the receiver is, and then, whatever it is, what this is. */
static int exchange_headers(struct tow_edge *edge, uint64_t until)
{
	int ret = 0;

	if (edge->meeting < TOWI_GREETING) {
		ret = meet(edge, TOWI_READING, until);
		if (!ret)
			ret = take_header(edge);
	}
	if (!ret)
		ret = meet(edge, TOWI_GREETING, until);
	return ret ? ret : edge->fits;
}

int towi_edge_greeted(struct tow_edge *edge)
{
	struct towi_header header;
	int ret;

	if (edge->greeted)
		return 1;
	if (tow_slot_value(edge->slot) < TOWI_HELLO)
		return 0;
	memcpy(&header, edge->letters + HELLO_AT, sizeof(header));
	ret = compare(edge, &header);
	if (ret) {
		towi_edge_fail(edge, ret);
		return ret;
	}
	edge->theirs = (struct towi_letters){ header.slots, header.stride };
	edge->greeted = true;
	return 1;
}

char *towi_letter(const struct tow_edge *edge, uint64_t number)
{
	return edge->letters + TOWI_LETTERS_AT + number % edge->mine.slots * edge->mine.stride;
}

uint64_t towi_letter_at(const struct tow_edge *edge, uint64_t number)
{
	return TOWI_LETTERS_AT + number % edge->theirs.slots * edge->theirs.stride;
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

/* The receiver: until the sender has said what it is. */
static int wait_for_greeting(struct tow_edge *edge, uint64_t until)
{
	struct tow_worker *worker = edge->common.worker;
	int ret, waited = 0;

	towi_worker_lock(worker);
	while (!(ret = towi_edge_greeted(edge)) && !waited) {
		waited = edge->error ? edge->error : towi_edge_wait_for(edge, TOWI_HELLO);
		if (!waited || waited == -EBUSY)
			waited = towi_worker_wait(worker, until);
	}
	towi_worker_unlock(worker);
	if (ret)
		return ret < 0 ? ret : 0;
	return waited;
}

static int find_other(struct tow_edge *edge, uint64_t until)
{
	int ret = 0;

	if (edge->sends)
		ret = find(edge, "", TOW_RIGHT_READ | TOW_RIGHT_WRITE, until, &edge->range);
	/* Whoever greeted has these. */
	if (!edge->sends && edge->kind->back) {
		ret = wait_for_greeting(edge, until);
		if (!ret)
			ret = find(edge, "/back", TOW_RIGHT_WRITE, until, &edge->range);
	}
	if (!ret)
		ret = find(edge, edge->sends ? "/arrived" : "/read", TOW_RIGHT_NOTIFY, until,
			   &edge->other);
	return ret;
}

/* With the lock, when what is there was found. */
static int meet_other(struct tow_edge *edge, uint64_t until)
{
	struct towi_header header = { .slots = edge->theirs.slots,
				      .stride = edge->theirs.stride };

	if (edge->error || edge->connected)
		return edge->error;
	if (edge->sends)
		return exchange_headers(edge, until);
	return edge->kind->back && !holds(edge->range, &header) ? -EPROTO : 0;
}

/* Called with the lock. */
static int end_meeting(struct tow_edge *edge, int ret)
{
	/* Another time it would be no better. */
	if (ret && ret != -ETIMEDOUT && ret != -EINTR)
		towi_edge_fail(edge, ret);
	if (!ret) {
		edge->connected = true;
		edge->kind->go_on(edge);
	}
	return ret;
}

TOW_PUBLIC int tow_edge_connect(struct tow_edge *edge, uint32_t timeout_ms)
{
	struct tow_worker *worker;
	bool connecting;
	uint64_t until;
	int ret;

	if (!edge)
		return -EINVAL;
	worker = edge->common.worker;
	if (!towi_worker_usable(worker))
		return -EPERM;
	until = towi_until((uint64_t)timeout_ms * 1000);
	towi_worker_lock(worker);
	connecting = edge->connecting;
	edge->connecting = true;
	towi_worker_unlock(worker);
	if (connecting)
		return -EALREADY;
	/* Waits in the kernel, and keeps nobody out meanwhile. */
	ret = edge->connected ? 0 : find_other(edge, until);
	towi_worker_lock(worker);
	if (!ret)
		ret = end_meeting(edge, meet_other(edge, until));
	edge->connecting = false;
	towi_worker_unlock(worker);
	return ret;
}

/* ---- what a receiver is asked ----------------------------------------------- */

TOW_PUBLIC int tow_edge_test(struct tow_edge *edge, void **data, uint64_t *step)
{
	int ret;

	if (!edge || !edge->kind->show || !data)
		return -EINVAL;
	if (!towi_worker_usable(edge->common.worker))
		return -EPERM;
	towi_worker_lock(edge->common.worker);
	ret = edge->kind->show(edge, data, step);
	towi_worker_unlock(edge->common.worker);
	return ret;
}

TOW_PUBLIC int tow_edge_arm(struct tow_edge *edge)
{
	int ret;

	if (!edge || !edge->kind->arm)
		return -EINVAL;
	if (!towi_worker_usable(edge->common.worker))
		return -EPERM;
	towi_worker_lock(edge->common.worker);
	ret = edge->error ? edge->error : edge->kind->arm(edge);
	towi_worker_unlock(edge->common.worker);
	return ret;
}

TOW_PUBLIC int tow_edge_wait(struct tow_edge *edge, uint32_t timeout_us, void **data,
			     uint64_t *step)
{
	struct tow_worker *worker;
	uint64_t until;
	int ret, waited = 0;

	if (!edge || !edge->kind->show || !data)
		return -EINVAL;
	worker = edge->common.worker;
	if (!towi_worker_usable(worker))
		return -EPERM;
	until = towi_until(timeout_us);
	towi_worker_lock(worker);
	while (!(ret = edge->kind->show(edge, data, step)) && !waited) {
		waited = edge->kind->arm(edge);
		if (!waited || waited == -EBUSY)
			waited = towi_worker_wait(worker, until);
	}
	towi_worker_unlock(worker);
	if (ret)
		return ret < 0 ? ret : 0;
	return waited;
}

TOW_PUBLIC int tow_edge_consumed(struct tow_edge *edge)
{
	int ret;

	if (!edge || !edge->kind->consumed)
		return -EINVAL;
	if (!towi_worker_usable(edge->common.worker))
		return -EPERM;
	towi_worker_lock(edge->common.worker);
	ret = edge->kind->consumed(edge);
	towi_worker_unlock(edge->common.worker);
	return ret;
}

TOW_PUBLIC uint32_t tow_edge_pending(const struct tow_edge *edge)
{
	uint32_t pending;

	if (!edge || !edge->kind->pending || !towi_worker_usable(edge->common.worker))
		return 0;
	towi_worker_lock(edge->common.worker);
	pending = edge->kind->pending(edge);
	towi_worker_unlock(edge->common.worker);
	return pending;
}

TOW_PUBLIC int tow_edge_next(struct tow_edge *edge, uint64_t *step)
{
	if (!edge || !step || !edge->kind->next)
		return -EINVAL;
	if (!towi_worker_usable(edge->common.worker))
		return -EPERM;
	towi_worker_lock(edge->common.worker);
	*step = edge->kind->next(edge);
	towi_worker_unlock(edge->common.worker);
	return 0;
}

/* ---- begin and end ---------------------------------------------------------- */

int towi_edge_may_be(const struct tow_worker *worker, const struct tow_peer *peer,
		     const char *name, struct tow_edge **edge)
{
	if (!worker || !peer || !edge || !name || !*name ||
	    strnlen(name, TOW_EDGE_NAME_MAX + 1) > TOW_EDGE_NAME_MAX)
		return -EINVAL;
	return towi_worker_usable(worker) ? 0 : -EPERM;
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

	ret = take_memory(edge->common.worker->arena, TOWI_OWN_AT + edge->own_bytes, &edge->own);
	if (ret)
		return ret;
	ret = towi_edge_place(edge, edge->kept ? (char *)&edge->kept->number :
					    edge->own + NUMBER_AT, &region, &offset);
	return ret ? ret : tow_slot_create(region, offset, name_of(edge, end), &edge->slot);
}

static int make_range(struct tow_edge *edge, const char *end, uint32_t rights)
{
	uint64_t size = TOWI_LETTERS_AT + edge->mine.slots * edge->mine.stride, offset;
	struct tow_region *region;
	int ret = 0;

	if (edge->kept)
		edge->letters = (char *)edge->kept + TOWI_KEPT_BYTES;
	else
		ret = take_memory(edge->common.worker->arena, size, &edge->letters);
	if (ret)
		return ret;
	/* Nobody has greeted yet. */
	memset(edge->letters + HELLO_AT, 0, HELLO_AT);
	*(struct towi_header *)(void *)(edge->letters + HEADER_AT) = own_header(edge);
	if (edge->kept)
		__atomic_store_n(&edge->kept->magic, KEPT_MAGIC, __ATOMIC_SEQ_CST);
	ret = towi_edge_place(edge, edge->letters, &region, &offset);
	return ret ? ret : tow_export(region, offset, size, name_of(edge, end), rights,
				      &edge->exported);
}

/*
 * What an end before this one has left, or a beginning: 0; -EPROTO, -EPROTOTYPE, -EMSGSIZE: it
 * was of another edge.
 */
static int take_over(struct tow_edge *edge)
{
	struct towi_kept *kept = edge->kept;
	struct towi_header header;
	int ret;

	if (kept->magic != KEPT_MAGIC) {
		*kept = (struct towi_kept){ 0 };
		return 0;
	}
	memcpy(&header, (char *)kept + TOWI_KEPT_BYTES + HEADER_AT, sizeof(header));
	ret = compare(edge, &header);
	if (!ret && header.slots != edge->mine.slots)
		ret = -EMSGSIZE;
	if (ret)
		return ret;
	/* The first notification is no step. */
	if (kept->number)
		edge->before = kept->before + kept->number - TOWI_HELLO;
	else
		edge->before = kept->next;
	/* Whenever this process is killed, the next one finds the same. */
	__atomic_store_n(&kept->next, edge->before, __ATOMIC_SEQ_CST);
	__atomic_store_n(&kept->number, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&kept->before, edge->before, __ATOMIC_SEQ_CST);
	return 0;
}

static int map_kept(struct tow_edge *edge)
{
	uint64_t size = TOWI_KEPT_BYTES + TOWI_LETTERS_AT + edge->mine.slots * edge->mine.stride;
	struct tow_region_info info = { .size = sizeof(info) };
	void *mapped;
	int ret;

	ret = tow_region_info(edge->kept_region, &info);
	if (!ret && info.map_bytes < size)
		ret = -ERANGE;
	if (!ret)
		ret = tow_region_map(edge->kept_region, 0, 0, PROT_READ | PROT_WRITE, &mapped);
	if (ret)
		return ret;
	edge->kept = mapped;
	edge->kept_bytes = info.map_bytes;
	return take_over(edge);
}

/* The rest of an edge, whose worker knows it. */
static int make_rest(struct tow_edge *edge)
{
	struct tow_queue *queue = edge->common.worker->queue;
	int ret;

	ret = tow_channel_get(queue, edge->peer, TOW_CHANNEL_ANY, &edge->channel);
	if (!ret && edge->kept_region)
		ret = map_kept(edge);
	edge->bulk = edge->channel;
	/* There a write has ended when it is on its way, and only its own channel knows more. */
	if (!ret && !edge->common.worker->iwarp)
		ret = tow_channel_get(queue, edge->peer,
				      (edge->channel->qp + 1) % edge->channel->qps, &edge->bulk);
	if (!ret)
		ret = make_slot(edge, edge->sends ? "/read" : "/arrived");
	/* Last: who finds it finds all of it. */
	if (!ret && !edge->sends)
		ret = make_range(edge, "", TOW_RIGHT_READ | TOW_RIGHT_WRITE);
	else if (!ret && edge->kind->back)
		ret = make_range(edge, "/back", TOW_RIGHT_WRITE);
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

int towi_edge_make(struct tow_edge *edge, struct tow_worker *worker, struct tow_peer *peer,
		   const char *name, struct tow_edge **made)
{
	int ret;

	edge->common.ops = &edge_ops;
	edge->common.worker = worker;
	edge->common.peer = towi_peer_number(peer);
	edge->peer = peer;
	edge->wait = (struct towi_op){ .ended = wait_ended, .edge = edge };
	edge->once = (struct towi_op){ .ended = once_ended, .edge = edge };
	towi_edge_op(edge, &edge->probe);
	towi_edge_op(edge, &edge->nudge);
	edge->name_length = strlen(name);
	memcpy(edge->name, name, edge->name_length + 1);
	link_edge(edge);
	ret = make_rest(edge);
	if (ret)
		tow_edge_close(edge);
	else
		*made = edge;
	return ret;
}

/* All but what waits for the slot. */
static bool in_flight(const struct tow_edge *edge)
{
	return edge->once.busy || edge->probe.busy || edge->nudge.busy ||
	       edge->kind->in_flight(edge);
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

/* Nothing of it is on its way any more. */
static void drain(struct tow_edge *edge)
{
	struct tow_worker *worker = edge->common.worker;

	towi_worker_lock(worker);
	towi_edge_fail(edge, -ECANCELED);
	go_on(&edge->common);
	until_not(edge, in_flight);
	towi_worker_unlock(worker);
}

/* Whoever is to be told is told, as nobody reaches anything any more. */
static void tell_rest(struct tow_edge *edge)
{
	struct tow_worker *worker = edge->common.worker;

	towi_worker_lock(worker);
	go_on(&edge->common);
	/* What the device has not ended, and it is gone; nobody is told a second time. */
	if (edge->kind->give_up)
		edge->kind->give_up(edge);
	towi_worker_unlock(worker);
	/* Another thread may be telling. */
	while (edge->kind->calling && edge->kind->calling(edge))
		usleep(50);
}

/* An entry that waits for a slot ends with the slot. */
static void drain_wait(struct tow_edge *edge)
{
	towi_worker_lock(edge->common.worker);
	until_not(edge, waits);
	towi_worker_unlock(edge->common.worker);
}

/* A signal must not end the waiting for whoever reaches this end's memory. */
static void block_signals(sigset_t *before)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, before);
}

/* Nobody reaches what this end has exported any more. */
static int end_exports(struct tow_edge *edge)
{
	sigset_t before;
	int ret;

	block_signals(&before);
	if (edge->kind->hide)
		edge->kind->hide(edge);
	ret = tow_unexport(edge->exported);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return ret;
}

/* From now on nothing is done for it. */
static int end_slot(struct tow_edge *edge)
{
	struct tow_slot *slot;
	sigset_t before;
	int ret;

	towi_worker_lock(edge->common.worker);
	slot = edge->slot;
	edge->slot = NULL;
	towi_worker_unlock(edge->common.worker);
	block_signals(&before);
	ret = tow_slot_destroy(slot);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return ret;
}

/* True: nothing knows its records any more; else it is buried with the queue. */
static bool unlink_edge(struct tow_edge *edge)
{
	struct tow_worker *worker = edge->common.worker;
	struct towi_edge **link;
	bool free;

	towi_worker_lock(worker);
	for (link = &worker->edges; edge_of(*link) != edge;)
		link = &(*link)->next;
	*link = edge->common.next;
	free = !in_flight(edge) && !waits(edge);
	if (!free) {
		edge->common.next = worker->graves;
		worker->graves = &edge->common;
	}
	towi_worker_unlock(worker);
	return free;
}

TOW_PUBLIC int tow_edge_close(struct tow_edge *edge)
{
	struct tow_worker *worker;
	int ret, error;

	if (!edge)
		return 0;
	worker = edge->common.worker;
	/* The parent's edge, of which a child has a copy that does nothing. */
	if (!towi_worker_usable(worker))
		return -EPERM;
	drain(edge);
	ret = end_exports(edge);
	tell_rest(edge);
	error = end_slot(edge);
	drain_wait(edge);
	tow_remote_release(edge->range);
	tow_remote_release(edge->other);
	if (unlink_edge(edge))
		bury(&edge->common);
	return ret ? ret : error;
}
