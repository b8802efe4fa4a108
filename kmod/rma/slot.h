/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Slots: counters of peers' notifications, and entries that wait for them.
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

#include "uapi/towline.h"

struct tow_device;
struct tow_notify;

/**
 * struct tow_lane - what has come for a slot by one queue pair
 * @via: index of the queue pair, counted from 1; 0: nothing has
 * @count: notifications
 */
struct tow_lane {
	u32	via;
	u64	count;
};

/**
 * struct tow_slot - a slot
 * @refs: held by its export, by each struct tow_slot_wait, and by @work while
 *	it is queued
 * @notify: where it is found
 * @number: what peers call the slot
 * @lock: protects the fields up to @all; taken in softirqs
 * @word: where programs read @count; NULL: the export has ended
 * @count: notifications that have arrived: the least of all lanes' counts, less
 *	@skipped
 * @skipped: what earlier holders have sent on some of their lanes only; their
 *	numbers are not given again
 * @lanes: of the holder, in the order in which they were used first
 * @width: how many @lanes
 * @holder: tow_assoc.index of the peer whose notifications count; 0: none
 * @ended: 0; a negative errno: no wait begins any more
 * @waits: struct tow_slot_wait by number
 * @all: the same waits, oldest first
 * @work: ends waits that a softirq has left
 * @rcu: frees the slot, which is looked up without a lock
 */
struct tow_slot {
	struct kref		refs;
	struct tow_notify	*notify;
	u32			number;
	/* protects everything below */
	spinlock_t		lock;
	u64			*word;
	u64			count;
	u64			skipped;
	struct tow_lane		lanes[TOW_SLOT_WIDTH_MAX];
	u32			width;
	u64			holder;
	int			ended;
	struct rb_root_cached	waits;
	struct list_head	all;
	struct work_struct	work;
	struct rcu_head		rcu;
};

/**
 * struct tow_slot_wait - an entry's wait until a slot is at a number
 * @slot: the slot, with a reference
 * @number: the number
 * @node: in tow_slot.waits during the wait; this and the next two are under
 *	tow_slot.lock
 * @of_slot: in tow_slot.all during the wait; empty: it has ended
 * @status: how the wait has ended: 0 or a negative errno
 * @of_queue: in tow_queue.waiting or .waited; under tow_queue.lock
 * @due: in tow_queue.due when the wait has ended
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
u64 tow_slot_begin(struct tow_slot *slot);
void tow_slot_give(struct tow_slot *slot, u64 holder, u32 width);
void tow_slot_lost(struct tow_slot *slot);
void tow_slot_close(struct tow_slot *slot);
void tow_slot_end(struct tow_slot *slot, struct tow_device *dev);
bool tow_slot_notify(struct tow_device *dev, u64 holder, unsigned int link, u32 imm,
		     u32 most);
int tow_slot_wait(struct tow_slot *slot, struct tow_slot_wait *wait);
void tow_slot_wait_no_more(struct tow_slot_wait *wait, int status);

#endif /* TOW_SLOT_H */
