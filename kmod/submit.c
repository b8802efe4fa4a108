// SPDX-License-Identifier: GPL-2.0
/*
 * ENTER: entries are taken from the submission ring, checked, and waited for.
 *
 * The program may write to the ring at any time.  Each entry is copied once, and
 * only the copy is looked at; of the indices only the program's are read, and
 * believed no further than they can be true.
 */
#include <linux/hrtimer.h>
#include <linux/ktime.h>
#include <linux/sched/signal.h>

#include "client.h"
#include "device.h"
#include "link.h"
#include "queue.h"
#include "remote.h"

#define TOW_ENTER_PUBLISHED	24

#define TOW_SQE_FLAGS		(TOW_SQE_FENCE | TOW_SQE_LINK | TOW_SQE_SILENT)

/* Waits that a queue looks no longer than it must after that was in vain. */
#define TOW_LOOK_PENANCE	16

/* ---- taking --------------------------------------------------------------- */

static bool tow_sqe_is_atomic(const struct tow_sqe *sqe)
{
	return sqe->opcode == TOW_OP_FETCH_ADD ||
	       sqe->opcode == TOW_OP_COMPARE_SWAP;
}

/* Does it have what its opcode does not use? */
static bool tow_sqe_well_formed(const struct tow_sqe *sqe)
{
	if (sqe->flags & ~TOW_SQE_FLAGS || sqe->reserved)
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

/* Our side of an operation: may it, and is there so much? */
static int tow_entry_check_region(const struct tow_entry *entry,
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
 * @flow: the same; NULL: none was named
 * @region: its region; NULL: none.  That entry holds it until all are taken
 * @region_number: the program's name for it
 * @region_more: references that others are to have, which are taken all at once
 * @flags: of that handle
 * @remote: its remote range, likewise
 * @remote_number: the program's name for it
 * @remote_more: as of the region
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

/* Called with @submit held, of a queue whose client is there. */
static int tow_entry_find(struct tow_entry *entry, const struct tow_sqe *sqe,
			  struct tow_known *known)
{
	struct tow_queue *queue = entry->queue;
	struct tow_op *op = &entry->op;
	int ret;

	if ((tow_sqe_is_atomic(sqe) && !queue->atomics) ||
	    (sqe->opcode == TOW_OP_READ && !queue->reads))
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
	ret = tow_entry_check_region(entry, op->region, known->flags);
	return ret ?: tow_ops_check(op);
}

/* Called with @submit held: what is waited for. */
static int tow_entry_find_slot(struct tow_entry *entry,
			       const struct tow_sqe *sqe)
{
	struct tow_slot *slot = tow_client_get_slot(entry->queue->client,
						    sqe->region);

	if (IS_ERR(slot))
		return PTR_ERR(slot);
	entry->wait.slot = slot;
	entry->wait.number = sqe->operand;
	return 0;
}

/* Called with @submit held: what is written, if anything is, and notified. */
static int tow_entry_find_notify(struct tow_entry *entry,
				 const struct tow_sqe *sqe,
				 struct tow_known *known)
{
	struct tow_queue *queue = entry->queue;
	struct tow_op *op = &entry->op;
	int ret = 0;

	op->slot = tow_client_get_remote(queue->client, sqe->operand);
	if (!op->slot)
		return -EBADF;
	if (sqe->bytes) {
		ret = tow_entry_find(entry, sqe, known);
	} else {
		op->flow = tow_known_flow(queue, sqe->channel, known);
		if (!op->flow)
			return -EBADF;
		tow_remote_get(op->slot);
		op->remote = op->slot;
	}
	return ret ?: tow_ops_check_slot(op);
}

static void tow_entry_fill(struct tow_entry *entry, const struct tow_sqe *sqe,
			   struct tow_known *known)
{
	struct tow_op *op = &entry->op;

	entry->step.next = NULL;
	entry->step.fence = sqe->flags & TOW_SQE_FENCE;
	entry->user_data = sqe->user_data;
	entry->opcode = sqe->opcode;
	entry->flags = sqe->flags;
	op->region = NULL;
	op->remote = NULL;
	op->slot = NULL;
	op->bytes = 0;
	entry->wait.slot = NULL;
	if (!tow_sqe_well_formed(sqe)) {
		entry->error = -EINVAL;
		return;
	}
	entry->error = 0;
	if (sqe->opcode == TOW_OP_NOP)
		return;
	if (sqe->opcode == TOW_OP_WAIT) {
		entry->error = tow_entry_find_slot(entry, sqe);
		return;
	}
	op->opcode = sqe->opcode;
	op->offset = sqe->offset;
	op->remote_offset = sqe->remote_offset;
	op->bytes = tow_sqe_is_atomic(sqe) ? sizeof(u64) : sqe->bytes;
	op->operand = sqe->operand;
	op->compare = sqe->compare;
	entry->error = sqe->opcode == TOW_OP_WRITE_NOTIFY ?
		       tow_entry_find_notify(entry, sqe, known) :
		       tow_entry_find(entry, sqe, known);
}

/* Called with @submit held: the copy, each word of it read once. */
static void tow_sqe_read(struct tow_queue *queue, struct tow_sqe *sqe)
{
	const u64 *from = (const u64 *)&queue->sqes[queue->sq_head &
						    (queue->sq_entries - 1)];
	u64 *to = (u64 *)sqe;
	unsigned int i;

	BUILD_BUG_ON(sizeof(*sqe) != 64);

	for (i = 0; i < sizeof(*sqe) / sizeof(u64); i++)
		to[i] = READ_ONCE(from[i]);
}

/**
 * struct tow_taking - entries that are being taken
 * @chains: those that are complete, linked by @later
 * @end: where the next one goes
 * @first: of the chain that is not complete yet; NULL: there is none
 * @last: of the same
 * @bad: it has an entry as it must not be
 * @count: those that are complete
 * @fenced: one of them is
 */
struct tow_taking {
	struct tow_step		*chains;
	struct tow_step		**end;
	struct tow_entry	*first;
	struct tow_entry	*last;
	bool			bad;
	u32			count;
	bool			fenced;
};

static void tow_taking_close(struct tow_taking *taking)
{
	struct tow_step *step;

	if (!taking->first)
		return;
	for (step = &taking->first->step; step && taking->bad;
	     step = step->next) {
		struct tow_entry *entry = container_of(step, struct tow_entry,
						       step);

		if (!entry->error)
			entry->error = -ECANCELED;
	}
	taking->first->step.later = NULL;
	*taking->end = &taking->first->step;
	taking->end = &taking->first->step.later;
	taking->count++;
	taking->fenced |= taking->first->step.fence;
	taking->first = NULL;
	taking->bad = false;
}

static void tow_taking_add(struct tow_taking *taking, struct tow_entry *entry)
{
	if (taking->first) {
		taking->last->step.next = &entry->step;
		taking->first->step.fence |= entry->step.fence;
	} else {
		taking->first = entry;
	}
	taking->last = entry;
	taking->bad |= entry->error;
	if (!(entry->flags & TOW_SQE_LINK))
		tow_taking_close(taking);
}

/**
 * struct tow_taken - what comes of entries that were taken
 * @count: how many there are
 * @step: from tow_queue_add()
 * @cq: the same
 */
struct tow_taken {
	u32		count;
	struct tow_step	*step;
	struct tow_cq	*cq;
};

/* Called with @submit held: take entries.  Return: 0 or -EBUSY. */
static int tow_queue_take(struct tow_queue *queue, u32 count,
			  struct tow_taken *result)
{
	struct tow_taking taking = {};
	struct tow_known known = {};
	struct tow_entry *entry, *next;
	struct tow_sqe sqe;
	u32 taken, i;

	taking.end = &taking.chains;
	/* Pairs with the program's release: the entries are there. */
	taken = smp_load_acquire(&queue->ring->sq_tail) - queue->sq_head;
	count = min3(count, taken, queue->sq_entries);
	taken = tow_entries_take(queue, count, &next);
	for (i = 0; i < taken; i++) {
		entry = next;
		next = entry->free;
		tow_sqe_read(queue, &sqe);
		queue->sq_head++;
		tow_entry_fill(entry, &sqe, &known);
		tow_taking_add(&taking, entry);
	}
	tow_taking_close(&taking);
	if (!taken)
		return count ? -EBUSY : 0;
	/* Before any of them begins, and may end. */
	tow_known_hold_region(&known);
	tow_known_hold_remote(&known);
	/* Now the program may write there again. */
	smp_store_release(&queue->ring->sq_head, queue->sq_head);
	/* Nobody begins the chains before all are there. */
	result->step = tow_queue_add(queue, taking.chains,
				     taking.fenced ? 0 : taking.count,
				     &result->cq);
	result->count = taken;
	return 0;
}

static int tow_queue_submit(struct tow_queue *queue, u32 count,
			    struct tow_taken *result)
{
	int ret = -EPERM;

	mutex_lock(&queue->submit);
	if (queue->client)
		ret = tow_queue_take(queue, count, result);
	mutex_unlock(&queue->submit);
	return ret;
}

/* ---- waiting -------------------------------------------------------------- */

static bool tow_queue_has(struct tow_queue *queue, u32 wanted)
{
	return tow_queue_completions(queue) >= wanted ||
	       READ_ONCE(queue->ended);
}

/* The same; or entries have ended that the caller is to complete. */
static bool tow_queue_stirs(struct tow_queue *queue, u32 wanted)
{
	return !llist_empty(&queue->due) || tow_queue_has(queue, wanted);
}

/* Where the queue's last operation completes, with a reference. */
static struct tow_cq *tow_queue_cq(struct tow_queue *queue)
{
	struct tow_cq *cq;

	spin_lock(&queue->lock);
	cq = queue->cq;
	if (cq)
		tow_cq_ref(cq);
	spin_unlock(&queue->lock);
	return cq;
}

/**
 * struct tow_wait - a call that waits
 * @wanted: for so many completions
 * @timeout_us: so long at most
 * @looked_us: so long at most it looked for them; 0: it did not look
 * @since: from then on
 */
struct tow_wait {
	u32	wanted;
	u32	timeout_us;
	u32	looked_us;
	ktime_t	since;
};

/*
 * How long to look: half as long again as the last wait took, if that is not too
 * long.  If it was in vain, something else needed the processor, or it is not to be
 * foreseen: then no longer than one must for some time.
 */
static void tow_queue_learn(struct tow_queue *queue,
			    const struct tow_wait *wait, bool found)
{
	s64 us = ktime_us_delta(ktime_get(), wait->since) * 3 / 2;
	u8 penance = READ_ONCE(queue->penance);

	if (us < TOW_LOOK_US || us > TOW_LOOK_MAX_US)
		us = TOW_LOOK_US;
	if (!found && wait->looked_us > TOW_LOOK_US)
		penance = TOW_LOOK_PENANCE;
	else if (penance)
		penance--;
	if (penance)
		us = TOW_LOOK_US;
	WRITE_ONCE(queue->penance, penance);
	WRITE_ONCE(queue->look_us, us);
}

/* Look once; and for a while, if there is not what is wanted. */
static void tow_queue_look(struct tow_queue *queue, struct tow_cq *cq,
			   struct tow_wait *wait)
{
	ktime_t end;

	tow_cq_look(cq);
	if (tow_queue_stirs(queue, wait->wanted))
		return;
	wait->looked_us = min(READ_ONCE(queue->look_us), wait->timeout_us);
	wait->since = ktime_get();
	end = ktime_add_us(wait->since, wait->looked_us);
	/*
	 * Who sends or receives for us may need this processor; and others must
	 * not wait while we look and do not run.
	 */
	while (!need_resched() && !signal_pending(current) &&
	       ktime_before(ktime_get(), end)) {
		cpu_relax();
		tow_cq_look(cq);
		if (tow_queue_stirs(queue, wait->wanted)) {
			tow_queue_learn(queue, wait, true);
			return;
		}
	}
}

/*
 * What has begun may complete elsewhere than what began before it: that is where to
 * look then.  Return: where, with a reference; or NULL.
 */
static struct tow_cq *tow_queue_turn(struct tow_queue *queue,
				     struct tow_cq *cq)
{
	/* Ours cannot have been replaced by another one at the same address. */
	if (READ_ONCE(queue->cq) == cq)
		return cq;
	/* First, as it may sleep. */
	if (cq) {
		tow_cq_look_end(cq, false);
		tow_cq_unref(cq);
	}
	cq = tow_queue_cq(queue);
	if (cq)
		tow_cq_look_begin(cq);
	return cq;
}

/*
 * Begin what was taken, and look whether it completes.  Who does not wait looks
 * once, and only if nothing waits for its turn: else all that his completions let
 * begin would be done in his call.
 *
 * He counts as one who looks from before he posts, as soft-RoCE of 6.1 completes
 * operations while they are posted; and must not sleep meanwhile.  The
 * completion queue is that of the operation before, until it turns out otherwise.
 */
static void tow_queue_go(struct tow_queue *queue, struct tow_taken *taken,
			 struct tow_wait *wait)
{
	struct tow_cq *cq = taken->cq;
	bool looks;

	if (cq)
		tow_cq_look_begin(cq);
	tow_queue_begin(queue, taken->step);
	if (taken->step)
		cq = tow_queue_turn(queue, cq);
	if (!cq)
		return;
	looks = wait->wanted || !READ_ONCE(queue->waits);
	if (wait->wanted)
		tow_queue_look(queue, cq, wait);
	else if (looks)
		tow_cq_look(cq);
	tow_cq_look_end(cq, looks);
	tow_cq_unref(cq);
}

/* @end: when to stop; 0: never */
static int tow_queue_sleep(struct tow_queue *queue, u32 wanted, ktime_t end)
{
	ktime_t now = end ? ktime_get() : 0;
	int ret;

	if (!end)
		ret = wait_event_interruptible(queue->wait,
					       tow_queue_stirs(queue, wanted));
	else
		ret = wait_event_interruptible_hrtimeout(queue->wait,
							 tow_queue_stirs(queue, wanted),
							 ktime_after(end, now) ?
							 ktime_sub(end, now) : 0);
	if (ret == -ETIME)
		return -ETIMEDOUT;
	return ret ? -EINTR : 0;
}

/* What a completion must bring to wake somebody; called when one comes or goes. */
static void tow_queue_count_waiter(struct tow_queue *queue, u32 wanted, int by)
{
	spin_lock(&queue->lock);
	queue->waiters += by;
	if (!queue->waiters)
		queue->wanted = U32_MAX;
	else if (by > 0 && wanted < queue->wanted)
		queue->wanted = wanted;
	spin_unlock(&queue->lock);
}

/* What a call says to an ended queue; 0: it has not ended. */
static int tow_queue_over(struct tow_queue *queue)
{
	int ended = READ_ONCE(queue->ended);

	return ended && ended != -ENODEV ? -EPERM : ended;
}

static int tow_queue_wait(struct tow_queue *queue, const struct tow_wait *wait)
{
	ktime_t end = 0;
	bool slept = false;
	int ret = 0;

	for (;;) {
		if (!llist_empty(&queue->due))
			tow_queue_deal(queue);
		if (ret || tow_queue_has(queue, wait->wanted))
			break;
		if (!end && wait->timeout_us != TOW_WAIT_FOREVER)
			end = ktime_add_us(ktime_get(), wait->timeout_us);
		tow_queue_count_waiter(queue, wait->wanted, 1);
		ret = tow_queue_sleep(queue, wait->wanted, end);
		tow_queue_count_waiter(queue, wait->wanted, -1);
		slept = true;
	}
	/* Who gave up says nothing about how long it takes. */
	if (slept && !ret && wait->looked_us)
		tow_queue_learn(queue, wait, false);
	return tow_queue_completions(queue) >= wait->wanted ? 0 :
	       tow_queue_over(queue) ?: ret;
}

/**
 * tow_queue_enter - the call
 * @queue: the queue; the caller's process is its client's
 * @user: struct tow_enter
 *
 * Return: how many entries were taken, or a negative errno; see the contract.
 */
long tow_queue_enter(struct tow_queue *queue, void __user *user)
{
	struct tow_taken taken = {};
	struct tow_wait wait = {};
	struct tow_enter call;
	u32 user_size;
	int ret;

	BUILD_BUG_ON(sizeof(call) < TOW_ENTER_PUBLISHED);

	ret = tow_file_copy_in(&call, sizeof(call), TOW_ENTER_PUBLISHED, user,
			       &user_size);
	if (ret)
		return ret;
	if (call.flags || call.reserved ||
	    call.min_complete > queue->cq_entries)
		return -EINVAL;
	ret = tow_queue_over(queue);
	if (!ret && call.to_submit)
		ret = tow_queue_submit(queue, call.to_submit, &taken);
	if (ret)
		return ret;
	wait.wanted = call.min_complete;
	wait.timeout_us = call.timeout_us;
	if (!taken.count && !tow_queue_has(queue, wait.wanted))
		taken.cq = tow_queue_cq(queue);
	if (wait.wanted)
		tow_queue_call_begin(queue);
	tow_queue_go(queue, &taken, &wait);
	if (!wait.wanted)
		return taken.count;
	ret = tow_queue_wait(queue, &wait);
	tow_queue_call_end(queue);
	return taken.count ? (long)taken.count : ret;
}
