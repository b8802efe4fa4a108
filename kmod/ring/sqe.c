// SPDX-License-Identifier: GPL-2.0
/*
 * Entries are taken from the submission ring, and checked: by ENTER, or by a
 * poller.
 *
 * The program may write to the ring at any time.  Each entry is copied once,
 * and only the copy is looked at.  The kernel reads only the index that the
 * program writes, and believes it no further than it can be true.
 */
#include <linux/overflow.h>

#include "core/core.h"
#include "link.h"
#include "memory/memory.h"
#include "queue.h"
#include "remote.h"

/* Flags that say something of what is moved. */
#define TOW_SQE_MOVES		(TOW_SQE_COPIED | TOW_SQE_VECTOR | TOW_SQE_INLINE)

#define TOW_SQE_FLAGS		(TOW_SQE_FENCE | TOW_SQE_LINK | TOW_SQE_SILENT | \
				 TOW_SQE_MOVES)

static bool tow_sqe_is_atomic(const struct tow_sqe *sqe)
{
	return sqe->opcode == TOW_OP_FETCH_ADD ||
	       sqe->opcode == TOW_OP_COMPARE_SWAP;
}

/* An entry that moves no data of a region has copied none either. */
static bool tow_sqe_moves(const struct tow_sqe *sqe)
{
	return sqe->opcode == TOW_OP_WRITE || sqe->opcode == TOW_OP_READ ||
	       (sqe->opcode == TOW_OP_WRITE_NOTIFY && sqe->bytes);
}

/* Is an entry with one of TOW_SQE_MOVES as it must be? */
static bool tow_sqe_moves_well(const struct tow_sqe *sqe)
{
	if (!tow_sqe_moves(sqe))
		return false;
	if (sqe->flags & TOW_SQE_INLINE)
		return sqe->opcode != TOW_OP_READ && sqe->bytes &&
		       sqe->bytes <= TOW_INLINE_MAX &&
		       !(sqe->flags & TOW_SQE_VECTOR);
	return !(sqe->flags & TOW_SQE_VECTOR) ||
	       (sqe->bytes && !(sqe->bytes % sizeof(struct tow_vector)) &&
		sqe->bytes <= TOW_VECTOR_MAX * sizeof(struct tow_vector) &&
		IS_ALIGNED(sqe->vector_offset, sizeof(u64)));
}

/* An entry with a time-out needs room for two completions. */
static bool tow_queue_times(const struct tow_queue *queue)
{
	return queue->cq_entries > 1;
}

/* Return: false: it has what its opcode does not use, or its queue has not. */
static bool tow_sqe_well_formed(const struct tow_queue *queue,
				const struct tow_sqe *sqe)
{
	if (sqe->flags & ~TOW_SQE_FLAGS ||
	    (sqe->flags & TOW_SQE_MOVES && !tow_sqe_moves_well(sqe)) ||
	    (sqe->timeout_ms && !tow_queue_times(queue)))
		return false;
	switch (sqe->opcode) {
	case TOW_OP_NOP:
		return !sqe->channel && !sqe->region && !sqe->offset &&
		       !sqe->remote && !sqe->remote_offset && !sqe->bytes &&
		       !sqe->operand;
	case TOW_OP_WRITE:
	case TOW_OP_READ:
		return !sqe->operand;
	case TOW_OP_FETCH_ADD:
		return !sqe->compare;
	case TOW_OP_COMPARE_SWAP:
		return true;
	case TOW_OP_WRITE_NOTIFY:
		return sqe->bytes ||
		       (!sqe->region && !sqe->offset && !sqe->remote &&
			!sqe->remote_offset);
	case TOW_OP_WAIT:
		return !sqe->channel && !sqe->offset && !sqe->remote &&
		       !sqe->remote_offset && !sqe->bytes;
	default:
		return false;
	}
}

static bool tow_region_has(const struct tow_region *region, u64 offset, u64 bytes)
{
	u64 size = max(region->bytes, region->map_bytes);

	return bytes <= size && offset <= size - bytes;
}

/* May the operation use the region, and is the region large enough? */
static int tow_req_check_region(const struct tow_req *entry,
				const struct tow_region *region, u32 flags)
{
	const struct tow_op *op = &entry->op;

	if (entry->opcode != TOW_OP_WRITE &&
	    entry->opcode != TOW_OP_WRITE_NOTIFY &&
	    (flags | region->flags) & TOW_REGION_READONLY)
		return -EACCES;
	return tow_region_has(region, op->offset, op->bytes) ? 0 : -ERANGE;
}

/**
 * struct tow_known - what the entry before has named
 * @channel: its channel
 * @way: the channel; NULL: none was named
 * @region: its region, which that entry holds until all are taken; NULL: none
 *	was named
 * @region_number: the handle of @region
 * @region_more: references to @region that later entries need, taken all at
 *	once
 * @flags: of the handle @region_number
 * @remote: its remote range, which that entry holds until all are taken; NULL:
 *	none was named
 * @remote_number: the handle of @remote
 * @remote_more: references to @remote that later entries need, taken all at
 *	once
 *
 * Most entries name the same as the one before.
 */
struct tow_known {
	u16			channel;
	struct tow_channel	*way;
	struct tow_region	*region;
	u64			region_number;
	u32			region_more;
	u32			flags;
	struct tow_remote	*remote;
	u64			remote_number;
	u32			remote_more;
};

static struct tow_flow *tow_known_flow(struct tow_queue *queue, u16 channel,
				       struct tow_known *known)
{
	if (!known->way || known->channel != channel) {
		known->way = xa_load(&queue->channels, channel);
		known->channel = channel;
	}
	if (!known->way)
		return NULL;
	/* It stays until the caller's entry ends. */
	known->way->taken++;
	return &known->way->flow;
}

static void tow_known_hold_region(struct tow_known *known)
{
	if (known->region_more)
		tow_region_get_many(known->region, known->region_more);
	known->region_more = 0;
}

static struct tow_region *tow_known_region(struct tow_queue *queue, u64 number,
					   struct tow_known *known)
{
	if (known->region && known->region_number == number) {
		known->region_more++;
		return known->region;
	}
	tow_known_hold_region(known);
	known->region = tow_client_get_region(queue->client, number,
					      &known->flags);
	known->region_number = number;
	return known->region;
}

static void tow_known_hold_remote(struct tow_known *known)
{
	if (known->remote_more)
		tow_remote_get_many(known->remote, known->remote_more);
	known->remote_more = 0;
}

static struct tow_remote *tow_known_remote(struct tow_queue *queue, u64 number,
					   struct tow_known *known)
{
	if (known->remote && known->remote_number == number) {
		known->remote_more++;
		return known->remote;
	}
	tow_known_hold_remote(known);
	known->remote = tow_client_get_remote(queue->client, number);
	known->remote_number = number;
	return known->remote;
}

static int tow_req_check(struct tow_req *entry, u32 flags)
{
	return tow_req_check_region(entry, entry->op.region, flags) ?:
	       tow_ops_check(&entry->op);
}

/* Caller holds queue->submit.  Copy the list of an entry with VECTOR. */
static int tow_req_read_vector(struct tow_req *entry, const struct tow_sqe *sqe)
{
	struct tow_client *client = entry->queue->client;
	struct tow_region *region;
	struct tow_vec *vec;
	u32 flags;

	region = tow_client_get_region(client, sqe->vector, &flags);
	if (!region)
		return -EBADF;
	vec = tow_vec_new(client->account, region, sqe->vector_offset,
			  sqe->bytes / sizeof(struct tow_vector));
	tow_region_put(region);
	if (IS_ERR(vec))
		return PTR_ERR(vec);
	entry->op.vec = vec;
	return 0;
}

/*
 * Caller holds queue->submit.  Check each piece as if it were an entry of its own.
 * @flags: of the handle of the operation's region.
 */
static int tow_req_find_vector(struct tow_req *entry, const struct tow_sqe *sqe,
			       u32 flags)
{
	int ret = tow_req_read_vector(entry, sqe);
	struct tow_op *op = &entry->op;
	const struct tow_vector *piece;
	u64 sum = 0;
	u32 i;

	for (i = 0; !ret && i < op->vec->count; i++) {
		piece = &op->vec->pieces[i];
		op->offset = piece->offset;
		op->remote_offset = piece->remote_offset;
		op->bytes = piece->bytes;
		ret = tow_req_check(entry, flags);
		if (!piece->bytes)
			ret = -EINVAL;
		else if (!ret && check_add_overflow(sum, piece->bytes, &sum))
			ret = -ERANGE;
	}
	op->bytes = sum;
	return ret;
}

/* Caller holds queue->submit.  Find the rest of an entry with INLINE. */
static int tow_req_find_inline(struct tow_req *entry, const struct tow_sqe *sqe,
			       struct tow_known *known)
{
	struct tow_op *op = &entry->op;

	op->offset = 0;
	memcpy(op->payload, sqe->payload, sizeof(op->payload));
	op->remote = tow_known_remote(entry->queue, sqe->remote, known);
	return op->remote ? tow_ops_check(op) : -EBADF;
}

/* Caller holds queue->submit; the queue's client has not ended. */
static int tow_req_find(struct tow_req *entry, const struct tow_sqe *sqe,
			struct tow_known *known)
{
	struct tow_queue *queue = entry->queue;
	struct tow_op *op = &entry->op;

	if (tow_sqe_is_atomic(sqe) &&
	    (!queue->atomics || tow_memory_lacks_atomics(queue->dev)))
		return -EOPNOTSUPP;
	op->flow = tow_known_flow(queue, sqe->channel, known);
	if (!op->flow)
		return -EBADF;
	if (unlikely(sqe->flags & TOW_SQE_INLINE))
		return tow_req_find_inline(entry, sqe, known);
	op->region = tow_known_region(queue, sqe->region, known);
	if (!op->region)
		return -EBADF;
	op->remote = tow_known_remote(queue, sqe->remote, known);
	if (!op->remote)
		return -EBADF;
	if (unlikely(sqe->flags & TOW_SQE_VECTOR))
		return tow_req_find_vector(entry, sqe, known->flags);
	return tow_req_check(entry, known->flags);
}

/* Caller holds queue->submit.  Find the slot that a WAIT is for. */
static int tow_req_find_slot(struct tow_req *entry,
			     const struct tow_sqe *sqe)
{
	struct tow_slot *slot = tow_client_get_slot(entry->queue->client,
						    sqe->region);

	if (IS_ERR(slot))
		return PTR_ERR(slot);
	entry->wait.slot = slot;
	entry->wait.number = sqe->operand;
	INIT_LIST_HEAD(&entry->wait.of_slot);
	return 0;
}

/* Caller holds queue->submit.  Find what a notification without data needs. */
static int tow_req_find_only_slot(struct tow_req *entry,
				  const struct tow_sqe *sqe,
				  struct tow_known *known)
{
	struct tow_op *op = &entry->op;

	op->flow = tow_known_flow(entry->queue, sqe->channel, known);
	if (!op->flow)
		return -EBADF;
	tow_remote_get(op->slot);
	op->remote = op->slot;
	return 0;
}

/* Caller holds queue->submit.  Find all that the entry names. */
static int tow_req_find_all(struct tow_req *entry,
			    const struct tow_sqe *sqe,
			    struct tow_known *known)
{
	bool notifies = sqe->opcode == TOW_OP_WRITE_NOTIFY;
	struct tow_op *op = &entry->op;
	int ret;

	if (notifies && !op->slot)
		return -EBADF;
	if (notifies && !sqe->bytes)
		ret = tow_req_find_only_slot(entry, sqe, known);
	else
		ret = tow_req_find(entry, sqe, known);
	if (notifies && !ret)
		ret = tow_ops_check_slot(op);
	return ret;
}

static void tow_req_fill(struct tow_req *entry, const struct tow_sqe *sqe,
			 struct tow_known *known)
{
	struct tow_op *op = &entry->op;

	entry->step.next = NULL;
	entry->step.fence = sqe->flags & TOW_SQE_FENCE;
	entry->step.failed = false;
	entry->user_data = sqe->user_data;
	entry->opcode = sqe->opcode;
	entry->flags = sqe->flags;
	entry->run = 0;
	op->flow = NULL;
	op->region = NULL;
	op->remote = NULL;
	op->slot = NULL;
	op->claim = NULL;
	op->vec = NULL;
	op->bytes = 0;
	entry->wait.slot = NULL;
	/* Before anything is refused: then its slot is to know. */
	if (sqe->opcode == TOW_OP_WRITE_NOTIFY)
		op->slot = tow_client_get_remote(entry->queue->client,
						 sqe->operand);
	if (!tow_sqe_well_formed(entry->queue, sqe)) {
		entry->error = -EINVAL;
		return;
	}
	entry->error = 0;
	if (sqe->opcode == TOW_OP_NOP)
		return;
	if (unlikely(tow_device_draining(entry->queue->dev))) {
		entry->error = -ESHUTDOWN;
		return;
	}
	if (sqe->opcode == TOW_OP_WAIT) {
		entry->error = tow_req_find_slot(entry, sqe);
		return;
	}
	op->opcode = sqe->opcode;
	op->offset = sqe->offset;
	op->remote_offset = sqe->remote_offset;
	op->bytes = tow_sqe_is_atomic(sqe) ? sizeof(u64) : sqe->bytes;
	op->operand = sqe->operand;
	op->compare = sqe->compare;
	entry->error = tow_req_find_all(entry, sqe, known);
	if (sqe->flags & TOW_SQE_COPIED && !entry->error)
		tow_stat_add(entry->queue->dev, TOW_STAT_COPIED_BYTES,
			     op->bytes);
}

/* An entry of the submission ring, so many after the one that is next. */
static const struct tow_sqe *tow_queue_sqe(const struct tow_queue *queue, u32 ahead)
{
	u32 index = READ_ONCE(queue->sq_head) + ahead;

	return &queue->sqes[index & (queue->sq_entries - 1)];
}

/*
 * Caller holds queue->submit.  Copy an entry, each word read once.  The copy is
 * in the queue, as one on the stack would be zeroed before.
 */
static const struct tow_sqe *tow_sqe_read(struct tow_queue *queue)
{
	const u64 *from = (const u64 *)tow_queue_sqe(queue, 0);
	u64 *to = (u64 *)&queue->sqe;

	BUILD_BUG_ON(sizeof(queue->sqe) != 8 * sizeof(u64));

	to[0] = READ_ONCE(from[0]);
	to[1] = READ_ONCE(from[1]);
	to[2] = READ_ONCE(from[2]);
	to[3] = READ_ONCE(from[3]);
	to[4] = READ_ONCE(from[4]);
	to[5] = READ_ONCE(from[5]);
	to[6] = READ_ONCE(from[6]);
	to[7] = READ_ONCE(from[7]);
	return &queue->sqe;
}

/* ---- what is there -------------------------------------------------------- */

/* How many entries are there to be taken? */
static u32 tow_queue_there(const struct tow_queue *queue)
{
	/* Pairs with tow_queue_submit_and_wait() of the library. */
	return min(smp_load_acquire(&queue->ring->sq_tail) -
		   READ_ONCE(queue->sq_head), queue->sq_entries);
}

/*
 * The chain that is next, of the @most entries that may be taken: it ends with the
 * first that has no LINK.  Where ENTER takes entries it ends with the last of them,
 * too.  The program may change what is looked at here: a chain is what was seen.
 * @room: completions that it needs room for.
 *
 * Return: how many entries it has; 0: its end is not there.
 */
static u32 tow_queue_chain(const struct tow_queue *queue, u32 most, u32 *room)
{
	const struct tow_sqe *sqe;
	u32 count = 0;

	*room = 0;
	while (count < most) {
		sqe = tow_queue_sqe(queue, count++);
		*room += READ_ONCE(sqe->timeout_ms) && tow_queue_times(queue) ?
			 2 : 1;
		if (!(READ_ONCE(sqe->flags) & TOW_SQE_LINK))
			return count;
	}
	return queue->poller ? 0 : count;
}

/**
 * tow_queue_needs - completions that the next chain needs room for
 * @queue: the queue
 * @most: entries that may be taken
 *
 * Return: how many, if nobody takes it meanwhile; 0: there is no chain, or its end is
 * not there.
 */
u32 tow_queue_needs(const struct tow_queue *queue, u32 most)
{
	u32 room;

	most = min(most, tow_queue_there(queue));
	return tow_queue_chain(queue, most, &room) ? room : 0;
}

/**
 * tow_queue_stuck - is there a chain that can never be taken?
 * @queue: the queue, of a poller
 *
 * Return: true: the next chain is longer than the submission ring, or needs more
 * completions than the completion ring has.
 */
bool tow_queue_stuck(struct tow_queue *queue)
{
	u32 there, room;
	bool whole;

	mutex_lock(&queue->submit);
	there = tow_queue_there(queue);
	whole = tow_queue_chain(queue, there, &room);
	mutex_unlock(&queue->submit);
	return room > queue->cq_entries ||
	       (!whole && there == queue->sq_entries);
}

/* ---- taking --------------------------------------------------------------- */

/**
 * struct tow_taking - entries that are being taken
 * @chains: chains that were taken, linked by tow_step.later
 * @end: where the next chain is linked
 * @count: how many @chains
 * @fenced: one of @chains is fenced
 * @known: what the last entry has named
 * @free: entries that are to be used, linked by tow_req.free
 * @left: how many entries in @free
 * @spares: those of @free that are for deadlines of the chain that is being taken
 * @now: the time; 0: it was not read so far
 * @deadlines: deadlines that are to count, linked by @next
 * @last: where the next deadline is linked
 */
struct tow_taking {
	struct tow_step		*chains;
	struct tow_step		**end;
	u32			count;
	bool			fenced;
	struct tow_known	known;
	struct tow_req		*free;
	u32			left;
	u32			spares;
	ktime_t			now;
	struct tow_deadline	*deadlines;
	struct tow_deadline	**last;
};

/* Caller holds queue->submit.  Has @taking entries for @room completions? */
static bool tow_taking_has_room(struct tow_queue *queue,
				struct tow_taking *taking, u32 room)
{
	u32 more = room - min(room, taking->left);

	if (more)
		taking->left += tow_reqs_take(queue, more, more, &taking->free);
	return taking->left >= room;
}

static struct tow_req *tow_taking_use(struct tow_taking *taking)
{
	struct tow_req *entry = taking->free;

	taking->free = entry->free;
	taking->left--;
	return entry;
}

/* Give an entry a deadline, with its spare. */
static void tow_taking_time(struct tow_taking *taking, struct tow_req *entry,
			    u32 timeout_ms)
{
	struct tow_req *spare;

	/* The program has changed it since tow_queue_chain() looked. */
	if (!taking->spares) {
		entry->error = -EINVAL;
		return;
	}
	taking->spares--;
	spare = tow_taking_use(taking);
	if (!taking->now)
		taking->now = ktime_get();
	tow_timeout_set(entry, spare, ktime_add_ms(taking->now, timeout_ms));
	spare->deadline.next = NULL;
	*taking->last = &spare->deadline;
	taking->last = &spare->deadline.next;
}

/* Caller holds queue->submit.  Take an entry; there is room. */
static struct tow_req *tow_queue_take_one(struct tow_queue *queue,
					  struct tow_taking *taking)
{
	struct tow_req *entry = tow_taking_use(taking);
	const struct tow_sqe *sqe = tow_sqe_read(queue);

	WRITE_ONCE(queue->sq_head, queue->sq_head + 1);
	tow_req_fill(entry, sqe, &taking->known);
	if (unlikely(sqe->timeout_ms) && tow_queue_times(queue))
		tow_taking_time(taking, entry, sqe->timeout_ms);
	return entry;
}

/* ---- runs ----------------------------------------------------------------- */

/**
 * struct tow_run - an entry, and those that are like it
 * @kind: the first word of their submission entries: opcode, flags, channel, and no
 *	time-out
 * @first: the first one
 * @last: the last one
 * @count: how many
 */
struct tow_run {
	u64		kind;
	struct tow_req	*first;
	struct tow_req	*last;
	u32		count;
};

/* Return: false: nothing is like the entry, a chain by itself, that was taken last. */
static bool tow_run_begin(struct tow_run *run, const struct tow_queue *queue,
			  struct tow_req *entry)
{
	const struct tow_sqe *sqe = &queue->sqe;

	run->kind = *(const u64 *)sqe;
	run->first = entry;
	run->last = entry;
	run->count = 1;
	return (sqe->opcode == TOW_OP_WRITE || sqe->opcode == TOW_OP_READ) &&
	       !(sqe->flags & ~TOW_SQE_SILENT) && !sqe->timeout_ms &&
	       sqe->bytes && !entry->error;
}

/*
 * Caller holds queue->submit.  Take the entry @ahead of the one that is next, if it
 * is like the run's first, and what it names has the bytes.  Each word is read once.
 */
static struct tow_req *tow_run_take(struct tow_queue *queue,
				    struct tow_taking *taking,
				    const struct tow_run *run, u32 ahead)
{
	const struct tow_known *known = &taking->known;
	const u64 *from = (const u64 *)tow_queue_sqe(queue, ahead);
	u64 offset, to, bytes;
	struct tow_req *entry;

	if (READ_ONCE(from[0]) != run->kind ||
	    READ_ONCE(from[2]) != known->region_number ||
	    READ_ONCE(from[4]) != known->remote_number || READ_ONCE(from[7]))
		return NULL;
	offset = READ_ONCE(from[3]);
	to = READ_ONCE(from[5]);
	bytes = READ_ONCE(from[6]);
	if (!bytes || !tow_region_has(known->region, offset, bytes) ||
	    !tow_remote_has(known->remote, to, bytes))
		return NULL;
	entry = tow_taking_use(taking);
	entry->user_data = READ_ONCE(from[1]);
	entry->op.offset = offset;
	entry->op.remote_offset = to;
	entry->op.bytes = bytes;
	return entry;
}

/* Fill in what is the same as in the run's first entry. */
static void tow_run_add(struct tow_run *run, struct tow_req *entry)
{
	const struct tow_req *first = run->first;
	struct tow_op *op = &entry->op;

	entry->step.next = NULL;
	entry->step.fence = false;
	entry->step.failed = false;
	entry->opcode = first->opcode;
	entry->flags = first->flags;
	entry->error = 0;
	entry->run = 0;
	entry->wait.slot = NULL;
	op->flow = first->op.flow;
	op->region = first->op.region;
	op->remote = first->op.remote;
	op->slot = NULL;
	op->claim = NULL;
	op->vec = NULL;
	op->opcode = first->op.opcode;
	tow_op_begin_state(op, true);
	run->last->op.next = op;
	run->last = entry;
	run->count++;
}

/*
 * Caller holds queue->submit.  Take entries that are like @entry, which was taken
 * last, at most @most.  Return: how many.
 */
static u32 tow_queue_take_run(struct tow_queue *queue, struct tow_taking *taking,
			      struct tow_req *entry, u32 most)
{
	struct tow_known *known = &taking->known;
	struct tow_run run;
	u32 more;

	if (!most || !tow_run_begin(&run, queue, entry))
		return 0;
	most = min(most, taking->left);
	while (run.count <= most) {
		entry = tow_run_take(queue, taking, &run, run.count - 1);
		if (!entry)
			break;
		tow_run_add(&run, entry);
		*taking->end = &entry->step;
		taking->end = &entry->step.later;
	}
	more = run.count - 1;
	if (!more)
		return 0;
	*taking->end = NULL;
	WRITE_ONCE(queue->sq_head, queue->sq_head + more);
	run.last->op.next = NULL;
	run.first->run = run.count;
	run.first->run_last = run.last;
	taking->count += more;
	known->way->taken += more;
	known->region_more += more;
	known->remote_more += more;
	return more;
}

/* ---- chains --------------------------------------------------------------- */

/* None of a chain begins, as one of its entries is not valid. */
static void tow_chain_refuse(struct tow_step *step)
{
	for (; step; step = step->next) {
		struct tow_req *entry = container_of(step, struct tow_req,
						     step);

		if (!entry->error)
			entry->error = -ECANCELED;
	}
}

/*
 * Caller holds queue->submit.  Take the next @length entries, as a chain.  Return: the
 * first one.
 */
static struct tow_req *tow_queue_take_chain(struct tow_queue *queue,
					    struct tow_taking *taking, u32 length)
{
	struct tow_req *entry = tow_queue_take_one(queue, taking);
	struct tow_step *first = &entry->step, *last = first;
	bool bad = entry->error;

	while (--length) {
		entry = tow_queue_take_one(queue, taking);
		bad |= entry->error;
		first->fence |= entry->step.fence;
		last->next = &entry->step;
		last = &entry->step;
	}
	if (bad)
		tow_chain_refuse(first);
	first->later = NULL;
	*taking->end = first;
	taking->end = &first->later;
	taking->count++;
	taking->fenced |= first->fence;
	return container_of(first, struct tow_req, step);
}

/*
 * Caller holds queue->submit.  Take chains, each as a whole: for ENTER at most
 * @count entries; for a poller, chains until there are as many.  Return: 0; -EBUSY:
 * the first chain has no room; -EINVAL: it never has.
 */
static int tow_queue_take(struct tow_queue *queue, u32 count,
			  struct tow_taken *result)
{
	struct tow_taking taking = {};
	u32 most = tow_queue_there(queue), taken = 0, length, room = 0;
	struct tow_req *first;

	taking.end = &taking.chains;
	taking.last = &taking.deadlines;
	count = min(count, most);
	if (!queue->poller)
		most = count;
	taking.left = tow_reqs_take(queue, count, 0, &taking.free);
	while (taken < count) {
		length = tow_queue_chain(queue, most - taken, &room);
		if (!length || !tow_taking_has_room(queue, &taking, room))
			break;
		taking.spares = room - length;
		first = tow_queue_take_chain(queue, &taking, length);
		taken += length;
		if (length == 1)
			taken += tow_queue_take_run(queue, &taking, first,
						    count - taken);
	}
	tow_reqs_return(queue, taking.free, taking.left);
	if (!taken)
		return room > queue->cq_entries ? -EINVAL : count ? -EBUSY : 0;
	/* Before any of the entries begins, and may end. */
	tow_known_hold_region(&taking.known);
	tow_known_hold_remote(&taking.known);
	/* Pairs with tow_queue_get_sqe() of the library. */
	smp_store_release(&queue->ring->sq_head, queue->sq_head);
	if (unlikely(taking.deadlines))
		tow_deadlines_start(queue, taking.deadlines);
	/* The chains are added together: none begins before. */
	result->step = tow_queue_add(queue, taking.chains,
				     taking.fenced ? 0 : taking.count,
				     &result->cqs);
	result->count = taken;
	return 0;
}

/**
 * tow_queue_ended_error - the error of calls on a queue that has ended
 * @queue: the queue
 *
 * Return: a negative errno; 0: the queue has not ended.
 */
int tow_queue_ended_error(struct tow_queue *queue)
{
	int ended = READ_ONCE(queue->ended);

	return ended && ended != -ENODEV ? -EPERM : ended;
}

/**
 * tow_queue_submit - take entries
 * @queue: the queue
 * @count: how many, at most
 * @result: zeroed by the caller; becomes the entries that were taken, for
 *	tow_queue_begin(); left alone if none were
 *
 * Return: 0; -EBUSY: there was no room for the first chain; -EINVAL: there never is;
 * -EPERM, -ENODEV: the queue has ended.
 */
int tow_queue_submit(struct tow_queue *queue, u32 count,
		     struct tow_taken *result)
{
	int ret = -EPERM;

	mutex_lock(&queue->submit);
	/* Calls fail by now, so a poller must take nothing either. */
	if (tow_device_going(queue->dev))
		ret = -ENODEV;
	else if (queue->client)
		ret = tow_queue_ended_error(queue) ?:
		      tow_queue_take(queue, count, result);
	mutex_unlock(&queue->submit);
	return ret;
}
