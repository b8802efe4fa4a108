// SPDX-License-Identifier: GPL-2.0
/*
 * Remote ranges as operations see them.
 *
 * What is in flight
 *
 * "inflight" is 1 while the range is VALID, and 1 more for each operation.  It
 * drops to 0 only after the range has ceased to be VALID, and never rises again:
 * whoever brings it there has the range acknowledged or released.  A range with
 * an operation that did not succeed is neither: that the operation came back says
 * nothing about the peer's end, so the peer must go on thinking that we have it
 * until the queue pairs are destroyed.
 */
#include "assoc.h"
#include "core/core.h"
#include "directory.h"
#include "remote.h"
#include "sequence.h"

/**
 * tow_remote_segment - the segment that a byte is in
 * @remote: was VALID once
 * @offset: of the byte in the range
 *
 * Return: one of tow_remote.segments.
 */
const struct tow_segment *tow_remote_segment(const struct tow_remote *remote,
					     u64 offset)
{
	u32 low = 0, high = remote->total - 1;

	while (low < high) {
		u32 middle = high - (high - low) / 2;

		if (remote->segments[middle].offset <= offset)
			low = middle;
		else
			high = middle - 1;
	}
	return &remote->segments[low];
}

/**
 * tow_remote_check_slot - may a slot be notified by a queue pair?
 * @remote: the slot; was VALID once
 * @link: which of the association's data queue pairs; the slot's from now on
 *
 * Return: 0; -EINVAL: it was used by another one before.
 */
int tow_remote_check_slot(struct tow_remote *remote, unsigned int link)
{
	int via = atomic_cmpxchg(&remote->via, 0, link + 1);

	return !via || via == link + 1 ? 0 : -EINVAL;
}

/**
 * tow_remote_notify - the next notification of a slot
 * @remote: the slot; the caller has the lock of the queue pair that all go by
 *
 * Return: the immediate that goes with it.
 */
u32 tow_remote_notify(struct tow_remote *remote)
{
	return tow_imm(remote->segments[0].key, ++remote->notified);
}

/**
 * tow_remote_enter - begin an operation
 * @remote: was VALID once; the caller has a reference, which he need not keep
 *	after success
 *
 * tow_remote_leave() ends it.  Callable in any context.
 *
 * Return: 0; -ESTALE: the export or the connection has ended.
 */
int tow_remote_enter(struct tow_remote *remote)
{
	if (!atomic_inc_not_zero(&remote->inflight))
		return -ESTALE;
	if (tow_remote_usable(remote))
		return 0;
	tow_remote_leave(remote, 1, 0);
	return -ESTALE;
}

/**
 * tow_remote_leave - operations have completed
 * @remote: from tow_remote_enter(); may be gone afterwards, without a reference
 *	of the caller's own
 * @count: how many
 * @status: 0, or one did not succeed: then the caller sees to it that the
 *	association ends
 *
 * In process context.
 */
void tow_remote_leave(struct tow_remote *remote, int count, int status)
{
	struct tow_device *dev;

	if (status)
		WRITE_ONCE(remote->failed, true);
	if (!atomic_sub_and_test(count, &remote->inflight))
		return;
	/* In the work item it may go, with all that it holds; not before. */
	dev = remote->assoc->dev;
	kref_get(&dev->refs);
	llist_add(&remote->quiet_node, &dev->directory->quiet);
	tow_directory_queue(dev->directory);
	tow_device_put(dev);
}
