// SPDX-License-Identifier: GPL-2.0
/*
 * Small operations to our own node, which the kernel does itself.
 *
 * Where an administrator says so (loopback_copy_bytes), the memory of both sides is the
 * pool's, and nothing of the flow has begun and not ended, a read or a write is a copy, and
 * a notification is counted at once.  The operation then ends as any other.  Whatever
 * speaks against it is left to the RDMA device, also after the copy: a write may take
 * effect more than once.  So no error arises here.
 *
 * The peer's memory is found by the grant, at the other end of the association, which is
 * ours as well.  A grant does not end while tow_assoc_dir.reach is held, by whatever it
 * ends: so the memory is the export's, and the device's, until the copy is made.
 *
 * Numbers of notifications are the lane's, as of those that are posted.  One is counted
 * only if it is the very next for its slot: what was posted before, by whichever flow, has
 * been counted by then, so its data is there.  It takes no credit and no receive, and is
 * none of those that have arrived by the queue pair.
 */
#include <linux/jiffies.h>
#include <linux/sched.h>
#include <linux/uaccess.h>

#include "assoc.h"
#include "core/core.h"
#include "export.h"
#include "internal.h"
#include "memory/memory.h"
#include "queue.h"
#include "remote.h"
#include "slot.h"

/* Copy the data.  Return: false: memory has failed. */
static bool tow_op_move(const struct tow_op *op,
			const struct tow_exported *exported)
{
	u64 offset = exported->offset + op->remote_offset;
	u64 at, bytes, here, there;
	void *own, *far;

	for (at = 0; at < op->bytes; at += bytes) {
		own = tow_region_address(op->region, op->offset + at, &here);
		far = tow_region_address(exported->region, offset + at, &there);
		bytes = min3(op->bytes - at, here, there);
		if (!tow_op_is_read(op))
			swap(own, far);
		if (copy_mc_to_kernel(own, far, bytes))
			return false;
	}
	return true;
}

/*
 * May the data be copied?  A peer's atomics are the device's, and would not see that the
 * kernel writes.
 */
static bool tow_op_may_copy(const struct tow_op *op,
			    const struct tow_exported *exported)
{
	return !(exported->rights & TOW_RIGHT_ATOMIC) &&
	       !exported->region->backing && !op->region->backing;
}

/* Return: false: it was not copied. */
static bool tow_op_copy_data(const struct tow_op *op)
{
	const struct tow_remote *remote = op->remote;
	struct tow_assoc_dir *far = &remote->assoc->other_end->dir;
	const struct tow_grant *grant;
	bool copied;

	/* Some grant ends: nobody waits here for what it waits for. */
	if (!down_read_trylock(&far->reach))
		return false;
	/* While the operation is in flight the remote range has its grant. */
	grant = xa_load(&far->grants, remote->grant);
	copied = grant && tow_op_may_copy(op, grant->exported) &&
		 tow_op_claim(op, TOW_CLAIM_POSTED) &&
		 tow_op_move(op, grant->exported);
	up_read(&far->reach);
	cond_resched();
	return copied;
}

/* The data was copied.  Return: false: the notification was not counted. */
static bool tow_op_notify(struct tow_op *op, struct tow_link *link)
{
	struct tow_assoc *assoc = link->assoc;
	bool counted = false;

	spin_lock_bh(&link->lock);
	if (!tow_op_refused(op)) {
		counted = tow_slot_notify(assoc->dev, assoc->other_end->index,
					  link->index,
					  tow_remote_notify(op->slot, link->index),
					  1);
		/* The next notification gets this number. */
		if (!counted)
			--*tow_remote_lane(op->slot, link->index);
	}
	spin_unlock_bh(&link->lock);
	if (counted)
		tow_stat_inc(assoc->dev, TOW_STAT_NOTIFICATIONS);
	return counted;
}

/* Its session was used, as by what it carries.  Said once in a jiffy. */
static void tow_copy_note(struct tow_assoc *assoc)
{
	unsigned long now = jiffies;
	struct tow_session *session;

	if (READ_ONCE(assoc->copied_at) == now)
		return;
	WRITE_ONCE(assoc->copied_at, now);
	session = tow_assoc_session(assoc);
	if (!session)
		return;
	WRITE_ONCE(session->busy_at, now);
	tow_session_put(session);
}

/**
 * tow_op_copy - do an operation to our own node without the RDMA device
 * @op: the operation, which has begun, and is not in its plug
 * @link: the link that it would be posted on
 *
 * In process context, without a link's lock.
 *
 * Return: true: it has ended with success, for tow_flow_end(); false: the caller has it
 * posted.
 */
bool tow_op_copy(struct tow_op *op, struct tow_link *link)
{
	struct tow_assoc *assoc = link->assoc;
	u32 most = READ_ONCE(assoc->dev->queues->loopback_copy_bytes);

	if (!most || op->bytes > most || !assoc->other_end || op->vec ||
	    tow_op_is_inline(op) || tow_op_is_atomic(op) || tow_op_refused(op))
		return false;
	/* Pairs with tow_flow_end(): what was before has taken place. */
	if (atomic_read_acquire(&op->flow->busy) != 1)
		return false;
	if (op->bytes ? !tow_op_copy_data(op) :
			!tow_op_claim(op, TOW_CLAIM_POSTED))
		return false;
	if (op->slot && !tow_op_notify(op, link))
		return false;
	tow_stat_add(assoc->dev, TOW_STAT_LOOPBACK_COPIED_BYTES, op->bytes);
	tow_copy_note(assoc);
	return true;
}
