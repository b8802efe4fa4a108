// SPDX-License-Identifier: GPL-2.0
/*
 * Remote ranges as operations see them.
 *
 * What is in flight
 *
 * tow_remote.inflight is 1 while the range is VALID, plus 1 for each
 * operation.  It drops to 0 only after the range has ceased to be VALID, and
 * never rises again: then the directory acknowledges or releases the range.  A
 * range with an operation that did not succeed is neither acknowledged nor
 * released: the failure says nothing about the peer's end, so the peer must
 * assume that we have the range until the queue pairs are destroyed.
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

/*
 * The lane of a queue pair, or a free one.  @via: tow_remote.via.  Return: -EINVAL:
 * other queue pairs are the slot's.
 */
static int tow_remote_find_lane(const struct tow_remote *remote, u32 via,
				unsigned int link)
{
	unsigned int lane, width = tow_rights_width(remote->rights);
	u8 who;

	for (lane = 0; lane < width; lane++) {
		who = via >> 8 * lane;
		if (!who || who == link + 1)
			return lane;
	}
	return -EINVAL;
}

/**
 * tow_remote_check_slot - may a queue pair notify a slot?
 * @remote: the slot; was VALID once
 * @link: index of a data queue pair of the association
 *
 * Return: 0; -EINVAL: other queue pairs are the slot's.
 */
int tow_remote_check_slot(const struct tow_remote *remote, unsigned int link)
{
	int lane = tow_remote_find_lane(remote, atomic_read(&remote->via), link);

	return min(lane, 0);
}

/**
 * tow_remote_bind_slot - a queue pair is about to notify a slot
 * @remote: as for tow_remote_check_slot()
 * @link: likewise; the first ones that are bound become the slot's, one for each of
 *	its lanes
 *
 * Return: as tow_remote_check_slot().
 */
int tow_remote_bind_slot(struct tow_remote *remote, unsigned int link)
{
	int via = atomic_read(&remote->via), lane;

	do {
		lane = tow_remote_find_lane(remote, via, link);
		if (lane < 0)
			return lane;
		if ((u8)(via >> 8 * lane) == link + 1)
			return 0;
	} while (!atomic_try_cmpxchg(&remote->via, &via,
				     via | (link + 1) << 8 * lane));
	return 0;
}

/**
 * tow_remote_lane - the number of a slot's last notification by a queue pair
 * @remote: the slot
 * @link: index of the queue pair, which tow_remote_bind_slot() has allowed;
 *	caller holds the lock of its link
 *
 * Return: where it is: one of tow_remote.notified.
 */
u16 *tow_remote_lane(struct tow_remote *remote, unsigned int link)
{
	u32 via = atomic_read(&remote->via);
	u16 *notified = remote->notified;

	for (; (u8)via != link + 1; via >>= 8)
		notified++;
	return notified;
}

/**
 * tow_remote_notify - number the next notification of a slot
 * @remote: as for tow_remote_lane()
 * @link: likewise
 *
 * Return: the notification's immediate.
 */
u32 tow_remote_notify(struct tow_remote *remote, unsigned int link)
{
	return tow_imm(remote->segments[0].key,
		       ++*tow_remote_lane(remote, link));
}

/**
 * tow_remote_enter - count an operation in flight
 * @remote: the range; was VALID once.  The caller has a reference, which need
 *	not be kept after success
 *
 * tow_remote_leave() undoes it.  Callable in any context.
 *
 * Return: 0; -ESTALE: the export or the connection has ended.
 */
int tow_remote_enter(struct tow_remote *remote)
{
	/* Pairs with tow_remote_end(): one of the two sees the other. */
	if (!atomic_inc_not_zero(&remote->inflight))
		return -ESTALE;
	if (tow_remote_usable(remote))
		return 0;
	tow_remote_leave(remote, 1, 0);
	return -ESTALE;
}

/**
 * tow_remote_leave - operations have ended
 * @remote: from tow_remote_enter(); may be freed here, unless the caller has a
 *	reference
 * @count: the number of operations
 * @status: 0; else an operation did not succeed, and the caller sees to it that
 *	the association ends
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
	/* The work item may free the range, and its reference to @dev. */
	dev = remote->assoc->dev;
	kref_get(&dev->refs);
	llist_add(&remote->quiet_node, &dev->directory->quiet);
	tow_directory_queue(dev->directory, &dev->directory->work);
	tow_device_put(dev);
}
