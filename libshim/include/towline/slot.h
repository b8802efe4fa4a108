/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * libtowline: slots, by which a peer tells that something has arrived.
 *
 * A slot is a number in a process's memory that counts notifications.  One peer at a
 * time has it, as a remote range that it found by its name with TOW_RIGHT_NOTIFY:
 *
 *	the consumer	tow_slot_create(), then either looks at tow_slot_value() now and
 *			then, which is one load, or sleeps in an entry of its queue,
 *			tow_prep_wait(), until the number has come so far
 *	the producer	tow_resolve() with TOW_RIGHT_NOTIFY, then tow_prep_write_notify()
 *			for each piece of data that it has
 *
 * A producer that sends what is large by several queue pairs at once finds the slot with
 * TOW_RIGHT_NOTIFY_BY(), and as many channels.  Each step of it is an entry by each of
 * these, with a part of the data, or none, and counts when all parts are in place.
 *
 * When the number says N, all the data of the first N notifications is in place, and
 * of this one too.  Nothing has to be cleared: numbers only grow.
 *
 * All else of <towline/queue.h> holds here.
 */
#ifndef TOW_SLOT_H
#define TOW_SLOT_H

#include <towline/queue.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * struct tow_slot - a number that notifications are counted in
 * @handle: the kernel's
 * @number: which the kernel writes: how many have arrived
 *
 * Made by tow_slot_create(), ended by tow_slot_destroy(); the fields are for the
 * functions of this header.
 */
struct tow_slot {
	uint64_t handle;
	const uint64_t *number;
};

/**
 * tow_slot_create() - let a peer notify this process, under a name
 * @region: memory of the pool, or of the process's own; not one that is read-only
 * @offset: where the number is in it: 8 bytes that are aligned, and that nobody
 *	writes from now on
 * @name: by which a process of the same job finds it; as for tow_export()
 * @slot: where to put the slot; the caller ends it with tow_slot_destroy().  Left
 *	alone on failure.
 *
 * The number becomes 0.  It is an export like others, in lists and limits, of 8 bytes
 * with TOW_RIGHT_NOTIFY; @region may be destroyed while there is the slot.
 *
 * Takes the place of the flag byte of Xue et al., EuroSys '19, section 3.2, that
 * consumers poll and clear: a number needs no clearing, and says which step it is.
 *
 * Return: 0; -EINVAL when @region or @slot is NULL, the 8 bytes are not within the
 * region or not aligned, or @name is not as above; -EACCES when the region is
 * read-only; -EOPNOTSUPP when it is a dma-buf's; -EEXIST when the name is taken;
 * -EDQUOT; -ENOSPC; -ENOMEM; -EPERM when another process opened the device; -ENODEV;
 * -EPROTONOSUPPORT; and for the first mapping of a region from tow_region_from_fd():
 * -EMFILE or -ENFILE.
 */
int tow_slot_create(struct tow_region *region, uint64_t offset, const char *name,
		    struct tow_slot **slot);

/**
 * tow_slot_destroy() - end a slot
 * @slot: from tow_slot_create(), or NULL
 *
 * Waits until nobody can notify by it any more, as tow_unexport().  Entries that wait
 * for it end with -ESTALE.  @slot is freed in any case.
 *
 * Return: as tow_unexport().
 */
int tow_slot_destroy(struct tow_slot *slot);

/**
 * tow_slot_value() - how many notifications have arrived
 * @slot: from tow_slot_create()
 *
 * Reads memory and makes no call, so it may be asked over and over; in a child that
 * was forked, too, unless the region is of imported memory, of which a child has a
 * copy.  All data that came with those notifications is there to be read.
 *
 * Return: the number.
 */
static inline uint64_t tow_slot_value(const struct tow_slot *slot)
{
	return tow_load_acquire64(slot->number);
}

/**
 * tow_prep_write_notify() - an entry that writes to a peer, and then tells it
 * @sqe: from tow_queue_get_sqe()
 * @channel: as for tow_prep_write(); the same one for all that notifies by @slot, or
 *	one of as many as @slot was found for
 * @region: as for tow_prep_write(), as are all that follow
 * @offset: where, in bytes
 * @remote: where it is written; of the same peer as @slot
 * @remote_offset: where in it, in bytes
 * @bytes: how much, at least 1; tow_prep_notify() writes nothing
 * @slot: what counts it at the peer; resolved with TOW_RIGHT_NOTIFY
 *
 * When the entry has succeeded, the peer has all of it, and the peer's kernel counts it
 * without anybody's help.
 */
static inline void tow_prep_write_notify(struct tow_sqe *sqe, const struct tow_channel *channel,
					 const struct tow_region *region, uint64_t offset,
					 const struct tow_remote *remote, uint64_t remote_offset,
					 uint64_t bytes, const struct tow_remote *slot)
{
	tow_prep_transfer(sqe, TOW_OP_WRITE_NOTIFY, channel, region, offset, remote,
			  remote_offset, bytes, tow_handle_of(slot));
}

/**
 * tow_prep_notify() - an entry that tells a peer something, and writes nothing
 * @sqe: from tow_queue_get_sqe()
 * @channel: as for tow_prep_write_notify()
 * @slot: as for tow_prep_write_notify()
 *
 * Counted after everything that was written over the same channel before it.
 */
static inline void tow_prep_notify(struct tow_sqe *sqe, const struct tow_channel *channel,
				   const struct tow_remote *slot)
{
	tow_prep_nop(sqe);
	sqe->opcode = TOW_OP_WRITE_NOTIFY;
	sqe->channel = (uint16_t)channel->number;
	sqe->operand = tow_handle_of(slot);
}

/**
 * tow_prep_wait() - an entry that completes when so many notifications have arrived
 * @sqe: from tow_queue_get_sqe()
 * @slot: from tow_slot_create(), of the same device as the queue
 * @number: how many; at once if there are as many already
 *
 * Holds back no other entry, but for those that LINK or FENCE let wait for it: what is
 * linked behind it begins in the kernel, while the process sleeps.  Goes on waiting
 * when whoever notified dies and the connection to his node stays: the next one to
 * find the slot counts on.
 */
static inline void tow_prep_wait(struct tow_sqe *sqe, const struct tow_slot *slot,
				 uint64_t number)
{
	tow_prep_nop(sqe);
	sqe->opcode = TOW_OP_WAIT;
	sqe->region = tow_handle_of(slot);
	sqe->operand = number;
}

#ifdef __cplusplus
}
#endif

#endif /* TOW_SLOT_H */
