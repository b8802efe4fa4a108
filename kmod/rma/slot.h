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
#include <linux/rbtree.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/workqueue.h>

struct tow_device;

/**
 * struct tow_slot - a slot
 * @refs: held by its export, and by each that waits
 * @number: what peers call it
 * @lock: protects what follows; taken in softirqs
 * @word: where programs see @count; NULL: the export has ended
 * @count: notifications that have arrived
 * @holder: tow_assoc.index of the peer that has it, whose notifications count; 0:
 *	nobody has
 * @ended: nobody can wait any more: why, a negative errno; 0: one can
 * @waits: struct tow_slot_wait by number
 * @all: the same, in the order in which they came
 * @work: goes on with those that a softirq has left; has a reference while it is
 *	queued
 * @rcu: frees it: it is looked up without a lock
 */
struct tow_slot {
	struct kref		refs;
	u32			number;
	/* protects everything below */
	spinlock_t		lock;
	u64			*word;
	u64			count;
	u64			holder;
	int			ended;
	struct rb_root_cached	waits;
	struct list_head	all;
	struct work_struct	work;
	struct rcu_head		rcu;
};

/**
 * struct tow_slot_wait - somebody waits until a slot is at a number
 * @slot: which, with a reference
 * @number: what for
 * @node: in tow_slot.waits while it waits; under tow_slot.lock, like @status
 * @of_slot: in tow_slot.all meanwhile; empty: it waits no more
 * @status: how it has ended: 0 or a negative errno
 * @of_queue: in one of the lists of the queue whose entry it is
 * @due: in tow_queue.due when it has ended
 */
struct tow_slot_wait {
	struct tow_slot		*slot;
	u64			number;
	struct rb_node		node;
	struct list_head	of_slot;
	int			status;
	struct list_head	of_queue;
	struct llist_node	due;
};

int tow_slot_new(struct tow_device *dev, u64 *word, struct tow_slot **result);
void tow_slot_get(struct tow_slot *slot);
void tow_slot_put(struct tow_slot *slot);
u64 tow_slot_count(struct tow_slot *slot);
void tow_slot_give(struct tow_slot *slot, u64 holder);
void tow_slot_lost(struct tow_slot *slot);
void tow_slot_close(struct tow_slot *slot);
void tow_slot_end(struct tow_slot *slot, struct tow_device *dev);
bool tow_slot_notify(struct tow_device *dev, u64 holder, u32 imm);
int tow_slot_wait(struct tow_slot *slot, struct tow_slot_wait *wait);
void tow_slot_wait_no_more(struct tow_slot_wait *wait, int status);

#endif /* TOW_SLOT_H */
