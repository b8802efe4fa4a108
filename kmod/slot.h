/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Slots: numbers in which notifications of peers are counted, and who waits for
 * them.
 */
#ifndef TOW_SLOT_H
#define TOW_SLOT_H

#include <linux/kref.h>
#include <linux/list.h>
#include <linux/llist.h>
#include <linux/spinlock.h>
#include <linux/types.h>

struct tow_device;
struct tow_session;

/**
 * struct tow_slot - a slot
 * @refs: held by its export, and by each that waits
 * @number: what peers call it
 * @lock: protects what follows; taken in softirqs
 * @word: where programs see @count; NULL: the export has ended
 * @count: notifications that have arrived
 * @session: whose notifications count: of the peer that has it; NULL: nobody has
 * @ended: nobody can wait any more: why, a negative errno; 0: one can
 * @waits: struct tow_waiter, the smallest number first
 * @rcu: frees it: it is looked up without a lock
 */
struct tow_slot {
	struct kref		refs;
	u32			number;
	/* protects everything below */
	spinlock_t		lock;
	u64			*word;
	u64			count;
	struct tow_session	*session;
	int			ended;
	struct list_head	waits;
	struct rcu_head		rcu;
};

/**
 * struct tow_waiter - somebody waits until a slot is at a number
 * @slot: which, with a reference
 * @number: what for
 * @of_slot: in tow_slot.waits while it waits; under tow_slot.lock, like @status
 * @status: how it has ended: 0 or a negative errno
 * @of_queue: in one of the lists of the queue whose entry it is
 * @due: in tow_queue.due when it has ended
 */
struct tow_waiter {
	struct tow_slot		*slot;
	u64			number;
	struct list_head	of_slot;
	int			status;
	struct list_head	of_queue;
	struct llist_node	due;
};

int tow_slot_new(struct tow_device *dev, u64 *word, struct tow_slot **result);
void tow_slot_get(struct tow_slot *slot);
void tow_slot_put(struct tow_slot *slot);
u64 tow_slot_count(struct tow_slot *slot);
void tow_slot_give(struct tow_slot *slot, struct tow_session *session);
void tow_slot_take_back(struct tow_slot *slot, bool lost);
void tow_slot_close(struct tow_slot *slot);
void tow_slot_end(struct tow_slot *slot, struct tow_device *dev);
bool tow_slot_notify(struct tow_device *dev, struct tow_session *session,
		     u32 imm);
int tow_slot_wait(struct tow_slot *slot, struct tow_waiter *wait);
void tow_slot_wait_no_more(struct tow_waiter *wait, int status);

#endif /* TOW_SLOT_H */
