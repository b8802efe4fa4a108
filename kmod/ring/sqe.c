// SPDX-License-Identifier: GPL-2.0
/*
 * Entries are taken from the submission ring, and checked: by ENTER, or by a
 * poller.
 *
 * The program may write to the ring at any time.  Each entry is copied once,
 * and only the copy is looked at.  The kernel reads only the index that the
 * program writes, and believes it no further than it can be true.
 */
#include "core/core.h"
#include "link.h"
#include "memory/memory.h"
#include "queue.h"
#include "remote.h"

#define TOW_SQE_FLAGS		(TOW_SQE_FENCE | TOW_SQE_LINK | TOW_SQE_SILENT | \
				 TOW_SQE_COPIED)

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
	    (sqe->flags & TOW_SQE_COPIED && !tow_sqe_moves(sqe)) ||
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

/* May the operation use the region, and is the region large enough? */
static int tow_req_check_region(const struct tow_req *entry,
				const struct tow_region *region, u32 flags)
{
	const struct tow_op *op = &entry->op;
	u64 size = max(region->bytes, region->map_bytes);

	if (entry->opcode != TOW_OP_WRITE &&
	    entry->opcode != TOW_OP_WRITE_NOTIFY &&
	    (flags | region->flags) & TOW_REGION_READONLY)
		return -EACCES;
	if (op->bytes > size || op->offset > size - op->bytes)
		return -ERANGE;
	return 0;
}

/**
 * struct tow_known - what the entry before has named
 * @channel: its channel
 * @flow: the flow of @channel; NULL: none was named
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
	struct tow_flow		*flow;
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
	if (!known->flow || known->channel != channel) {
		known->flow = xa_load(&queue->flows, channel);
		known->channel = channel;
	}
	/* The flow stays until the caller's entry ends. */
	if (known->flow)
		known->flow->taken++;
	return known->flow;
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

/* Caller holds queue->submit; the queue's client has not ended. */
static int tow_req_find(struct tow_req *entry, const struct tow_sqe *sqe,
			struct tow_known *known)
{
	struct tow_queue *queue = entry->queue;
	struct tow_op *op = &entry->op;
	int ret;

	if (tow_sqe_is_atomic(sqe) &&
	    (!queue->atomics || tow_memory_lacks_atomics(queue->dev)))
		return -EOPNOTSUPP;
	op->flow = tow_known_flow(queue, sqe->channel, known);
	if (!op->flow)
		return -EBADF;
	op->region = tow_known_region(queue, sqe->region, known);
	if (!op->region)
		return -EBADF;
	op->remote = tow_known_remote(queue, sqe->remote, known);
	if (!op->remote)
		return -EBADF;
	ret = tow_req_check_region(entry, op->region, known->flags);
	return ret ?: tow_ops_check(op);
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
	op->flow = NULL;
	op->region = NULL;
	op->remote = NULL;
	op->slot = NULL;
	op->claim = NULL;
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
			     sqe->bytes);
}

/*
 * Caller holds queue->submit.  Copy an entry, each word read once.  The copy is
 * in the queue, as one on the stack would be zeroed before.
 */
static const struct tow_sqe *tow_sqe_read(struct tow_queue *queue)
{
	const u64 *from = (const u64 *)&queue->sqes[queue->sq_head &
						    (queue->sq_entries - 1)];
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

/**
 * struct tow_taking - entries that are being taken
 * @chains: chains that are complete, linked by tow_step.later
 * @end: where the next chain is linked
 * @open: the chain that is not complete yet
 * @count: how many @chains
 * @fenced: one of @chains is fenced
 * @known: what the last entry has named
 * @free: entries that are to be used, linked by tow_req.free
 * @left: how many entries in @free
 * @now: the time; 0: it was not read so far
 * @deadlines: deadlines that are to count, linked by @next
 * @last: where the next deadline is linked
 */
struct tow_taking {
	struct tow_step		*chains;
	struct tow_step		**end;
	struct tow_chain	open;
	u32			count;
	bool			fenced;
	struct tow_known	known;
	struct tow_req		*free;
	u32			left;
	ktime_t			now;
	struct tow_deadline	*deadlines;
	struct tow_deadline	**last;
};

static void tow_taking_add_chain(struct tow_taking *taking, struct tow_step *first)
{
	first->later = NULL;
	*taking->end = first;
	taking->end = &first->later;
	taking->count++;
	taking->fenced |= first->fence;
}

static void tow_taking_close(struct tow_taking *taking)
{
	struct tow_chain *open = &taking->open;
	struct tow_step *step;

	if (!open->first)
		return;
	for (step = &open->first->step; step && open->bad; step = step->next) {
		struct tow_req *entry = container_of(step, struct tow_req,
						     step);

		if (!entry->error)
			entry->error = -ECANCELED;
	}
	tow_taking_add_chain(taking, &open->first->step);
	open->first = NULL;
	open->room = 0;
	open->bad = false;
}

static void tow_taking_add(struct tow_taking *taking, struct tow_req *entry)
{
	struct tow_chain *open = &taking->open;

	/* Most are a chain by themselves. */
	if (!open->first && !(entry->flags & TOW_SQE_LINK)) {
		tow_taking_add_chain(taking, &entry->step);
		return;
	}
	if (open->first) {
		open->last->step.next = &entry->step;
		open->first->step.fence |= entry->step.fence;
	} else {
		open->first = entry;
	}
	open->last = entry;
	open->room += entry->op.claim ? 2 : 1;
	open->bad |= entry->error;
	if (!(entry->flags & TOW_SQE_LINK))
		tow_taking_close(taking);
}

/*
 * Caller holds queue->submit.  Return: how many entries there are to be taken.
 * A poller takes the entries that it has seen at once as one ENTER would,
 * though it may need several turns.
 */
static u32 tow_queue_there(struct tow_queue *queue)
{
	u32 there;

	if (!queue->poller || queue->sq_seen == queue->sq_head) {
		/* Pairs with tow_queue_submit_and_wait() of the library. */
		there = smp_load_acquire(&queue->ring->sq_tail) -
			queue->sq_head;
		queue->sq_seen = queue->sq_head + min(there, queue->sq_entries);
	}
	return queue->sq_seen - queue->sq_head;
}

static struct tow_req *tow_taking_use(struct tow_taking *taking)
{
	struct tow_req *entry = taking->free;

	if (!taking->left)
		return NULL;
	taking->free = entry->free;
	taking->left--;
	return entry;
}

/* Caller holds queue->submit.  Return: a spare entry; NULL: no room. */
static struct tow_req *tow_taking_spare(struct tow_queue *queue,
					struct tow_taking *taking)
{
	struct tow_req *spare;

	/* Others first: then as many entries as possible are taken. */
	if (tow_reqs_take(queue, 1, &spare))
		return spare;
	return tow_taking_use(taking);
}

static void tow_taking_time(struct tow_taking *taking, struct tow_req *entry,
			    struct tow_req *spare, u32 timeout_ms)
{
	if (!taking->now)
		taking->now = ktime_get();
	tow_timeout_set(entry, spare, ktime_add_ms(taking->now, timeout_ms));
	spare->deadline.next = NULL;
	*taking->last = &spare->deadline;
	taking->last = &spare->deadline.next;
}

/* Caller holds queue->submit.  Take an entry.  Return: false: no room. */
static bool tow_queue_take_one(struct tow_queue *queue,
			       struct tow_taking *taking)
{
	struct tow_req *entry = tow_taking_use(taking), *spare = NULL;
	const struct tow_sqe *sqe;

	if (!entry)
		return false;
	sqe = tow_sqe_read(queue);
	if (unlikely(sqe->timeout_ms) && tow_queue_times(queue)) {
		spare = tow_taking_spare(queue, taking);
		if (!spare) {
			tow_req_return(entry, 2);
			return false;
		}
	}
	WRITE_ONCE(queue->sq_head, queue->sq_head + 1);
	tow_req_fill(entry, sqe, &taking->known);
	if (spare)
		tow_taking_time(taking, entry, spare, sqe->timeout_ms);
	tow_taking_add(taking, entry);
	return true;
}

/*
 * Caller holds queue->submit.  Does the chain that is not complete end here?
 * It must also where there never will be room for its next entry, as none of
 * its entries has begun.
 */
static bool tow_taking_ends(struct tow_queue *queue,
			    const struct tow_taking *taking)
{
	return !queue->poller || queue->sq_head == queue->sq_seen ||
	       taking->open.room + READ_ONCE(queue->needed) > queue->cq_entries;
}

/* Caller holds queue->submit.  Take entries.  Return: 0 or -EBUSY. */
static int tow_queue_take(struct tow_queue *queue, u32 count,
			  struct tow_taken *result)
{
	struct tow_taking taking = {};
	u32 taken = 0;

	taking.end = &taking.chains;
	taking.last = &taking.deadlines;
	taking.open = queue->chain;
	count = min(count, tow_queue_there(queue));
	taking.left = tow_reqs_take(queue, count, &taking.free);
	while (tow_queue_take_one(queue, &taking))
		taken++;
	if (tow_taking_ends(queue, &taking))
		tow_taking_close(&taking);
	queue->chain = taking.open;
	if (!taken && !taking.chains)
		return count ? -EBUSY : 0;
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
				     &result->cq);
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
 * Return: 0; -EBUSY: there was no room for any entry; -EPERM, -ENODEV: the
 * queue has ended.
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

/**
 * tow_queue_abort_chain - end the chain of which more entries were to be taken
 * @queue: the queue, of a poller, ended
 *
 * Nothing is taken any more on return.  May sleep.
 */
void tow_queue_abort_chain(struct tow_queue *queue)
{
	struct tow_taking taking = {};
	struct tow_step *step = NULL;
	struct tow_cq *cq = NULL;

	mutex_lock(&queue->submit);
	taking.end = &taking.chains;
	taking.open = queue->chain;
	queue->chain.first = NULL;
	tow_taking_close(&taking);
	if (taking.chains)
		step = tow_queue_add(queue, taking.chains, 0, &cq);
	mutex_unlock(&queue->submit);
	if (cq)
		tow_cq_unref(cq);
	tow_queue_begin(queue, step);
}
