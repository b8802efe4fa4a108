// SPDX-License-Identifier: GPL-2.0
/*
 * Slots: see slot.h.
 *
 * A slot of a width of more than 1 is notified by several queue pairs of its
 * holder, its lanes: each carries a part of the data, and proves only what it
 * carries.  So each is counted alone, and the slot's number is the least of them.
 *
 * Notifications are counted in a softirq, which finds a slot by RCU and takes
 * only its lock.  The word in the region's memory is written under that lock,
 * so nobody writes it after tow_slot_end().  A wait is taken off the lists
 * under the lock by the first that ends it: the softirq, or the end of the
 * slot, of the peer's association or of the queue.  The wait is then handed to
 * its queue, which completes the entry in process context.
 */
#include <linux/slab.h>

#include "core/core.h"
#include "notify.h"
#include "sequence.h"
#include "slot.h"

/* Waits that are ended before the lock is released. */
#define TOW_SLOT_BATCH		64

/* Caller holds slot->lock. */
static void tow_wait_end(struct tow_slot *slot, struct tow_slot_wait *wait,
			 int status)
{
	rb_erase_cached(&wait->node, &slot->waits);
	list_del_init(&wait->of_slot);
	wait->status = status;
	slot->notify->wait_ended(wait);
}

/*
 * Caller holds slot->lock.  End waits whose number is reached, up to a batch.
 * Return: whether there may be more.
 */
static bool tow_slot_end_due(struct tow_slot *slot)
{
	struct rb_node *first;
	int left = TOW_SLOT_BATCH;

	while (left && (first = rb_first_cached(&slot->waits))) {
		struct tow_slot_wait *wait = rb_entry(first, struct tow_slot_wait,
						      node);

		if (wait->number > slot->count)
			return false;
		tow_wait_end(slot, wait, 0);
		left--;
	}
	return !left;
}

static void tow_slot_work(struct work_struct *work)
{
	struct tow_slot *slot = container_of(work, struct tow_slot, work);
	bool more;

	do {
		spin_lock_bh(&slot->lock);
		more = tow_slot_end_due(slot);
		spin_unlock_bh(&slot->lock);
		cond_resched();
	} while (more);
	tow_slot_put(slot);
}

/**
 * tow_slot_new - make a slot, without holder
 * @dev: the device
 * @word: where programs read the count; becomes 0
 * @result: the slot, with a reference, until tow_slot_end() and tow_slot_put()
 *
 * Return: 0; -ENOSPC: the device has TOW_SLOTS_MAX slots; -ENOMEM.
 */
int tow_slot_new(struct tow_device *dev, u64 *word, struct tow_slot **result)
{
	struct tow_notify *notify = dev->notify;
	struct tow_slot *slot;
	int ret;

	slot = kzalloc(sizeof(*slot), GFP_KERNEL_ACCOUNT);
	if (!slot)
		return -ENOMEM;
	kref_init(&slot->refs);
	slot->notify = notify;
	spin_lock_init(&slot->lock);
	slot->waits = RB_ROOT_CACHED;
	INIT_LIST_HEAD(&slot->all);
	INIT_WORK(&slot->work, tow_slot_work);
	slot->word = word;
	/* The number of a slot that ended just now is avoided. */
	ret = xa_alloc_cyclic(&notify->slots, &slot->number, slot,
			      XA_LIMIT(0, TOW_SLOTS_MAX - 1), &notify->next_slot,
			      GFP_KERNEL_ACCOUNT);
	if (ret < 0) {
		kfree(slot);
		return ret == -EBUSY ? -ENOSPC : ret;
	}
	WRITE_ONCE(*word, 0);
	*result = slot;
	return 0;
}

/**
 * tow_slot_get - take another reference
 * @slot: the slot; the caller has one
 */
void tow_slot_get(struct tow_slot *slot)
{
	kref_get(&slot->refs);
}

static void tow_slot_release(struct kref *refs)
{
	struct tow_slot *slot = container_of(refs, struct tow_slot, refs);

	kfree_rcu(slot, rcu);
}

/**
 * tow_slot_put - give a reference back
 * @slot: the slot; may be gone afterwards
 */
void tow_slot_put(struct tow_slot *slot)
{
	kref_put(&slot->refs, tow_slot_release);
}

/**
 * tow_slot_begin - after which number do a new holder's begin?
 * @slot: the slot, which its holder has not notified so far
 *
 * Return: the number, which is the same for all lanes.
 */
u64 tow_slot_begin(struct tow_slot *slot)
{
	u64 number;

	spin_lock_bh(&slot->lock);
	number = slot->count + slot->skipped;
	spin_unlock_bh(&slot->lock);
	return number;
}

/**
 * tow_slot_give - set the peer whose notifications count
 * @slot: the slot
 * @holder: tow_assoc.index of the peer; 0: no peer
 * @width: by how many of its queue pairs it notifies
 *
 * What the peer before has sent on some of its lanes only counts for nobody, now or
 * if it comes a second time: all lanes begin where the first of them was.
 */
void tow_slot_give(struct tow_slot *slot, u64 holder, u32 width)
{
	unsigned int i;
	u64 most;

	spin_lock_bh(&slot->lock);
	most = slot->count + slot->skipped;
	for (i = 0; i < slot->width; i++)
		most = max(most, slot->lanes[i].count);
	slot->skipped = most - slot->count;
	slot->holder = holder;
	slot->width = width;
	for (i = 0; i < width; i++)
		slot->lanes[i] = (struct tow_lane){ .count = most };
	spin_unlock_bh(&slot->lock);
}

/* End the waits there are; waits that begin meanwhile are left alone. */
static void tow_slot_end_waits(struct tow_slot *slot, int status)
{
	struct tow_slot_wait *wait;
	LIST_HEAD(all);
	int left;

	spin_lock_bh(&slot->lock);
	list_splice_init(&slot->all, &all);
	spin_unlock_bh(&slot->lock);
	do {
		left = TOW_SLOT_BATCH;
		/* Other callers may end waits in this list, too. */
		spin_lock_bh(&slot->lock);
		while (left && !list_empty(&all)) {
			wait = list_first_entry(&all, struct tow_slot_wait,
						of_slot);
			tow_wait_end(slot, wait, status);
			left--;
		}
		spin_unlock_bh(&slot->lock);
		cond_resched();
	} while (!left);
}

/**
 * tow_slot_lost - the connection to a slot's holder has ended
 * @slot: the slot
 *
 * All waits end.
 */
void tow_slot_lost(struct tow_slot *slot)
{
	tow_slot_give(slot, 0, 1);
	tow_slot_end_waits(slot, -ECONNRESET);
}

/**
 * tow_slot_close - end all waits, and let none begin: the export is ending
 * @slot: the slot; its holder may still notify it
 */
void tow_slot_close(struct tow_slot *slot)
{
	spin_lock_bh(&slot->lock);
	slot->ended = -ESTALE;
	spin_unlock_bh(&slot->lock);
	tow_slot_end_waits(slot, -ESTALE);
}

/**
 * tow_slot_end - undo tow_slot_new(), but for the reference
 * @slot: the slot, without holder
 * @dev: the device
 *
 * On return nobody writes to the word any more.
 */
void tow_slot_end(struct tow_slot *slot, struct tow_device *dev)
{
	xa_erase(&dev->notify->slots, slot->number);
	spin_lock_bh(&slot->lock);
	slot->word = NULL;
	spin_unlock_bh(&slot->lock);
	tow_slot_close(slot);
}

/*
 * Caller holds slot->lock.  Count a notification on the lane of its queue pair,
 * which is the next one if the queue pair has none.  Return: false: it is not
 * ahead, or more than @most; or all lanes are others'.
 */
static bool tow_lane_advance(struct tow_slot *slot, u32 via, u32 imm, u32 most)
{
	struct tow_lane *lane = slot->lanes, *end = lane + slot->width;
	u32 ahead;

	while (lane != end && lane->via && lane->via != via)
		lane++;
	if (lane == end)
		return false;
	ahead = tow_imm_ahead(imm, lane->count);
	if (ahead > most)
		return false;
	lane->count += ahead;
	if (ahead)
		lane->via = via;
	return ahead;
}

/*
 * Caller holds slot->lock.  Store the least of the lanes' counts, and end a batch
 * of waits: not more, as this is a softirq.
 */
static void tow_slot_advance(struct tow_slot *slot)
{
	u64 count = slot->lanes[0].count;
	unsigned int i;

	for (i = 1; i < slot->width; i++)
		count = min(count, slot->lanes[i].count);
	count -= slot->skipped;
	if (count == slot->count)
		return;
	slot->count = count;
	/* Pairs with tow_slot_value() of the library: the data is seen, too. */
	smp_store_release(slot->word, count);
	if (!tow_slot_end_due(slot))
		return;
	/* While there is a word the export has a reference. */
	tow_slot_get(slot);
	if (!queue_work(tow_wq, &slot->work))
		tow_slot_put(slot);
}

/**
 * tow_slot_notify - count a notification that has arrived
 * @dev: the device
 * @holder: tow_assoc.index of the peer that has sent it
 * @link: index of the queue pair that it has come by
 * @imm: its immediate
 * @most: by how many numbers it may be ahead: 1: all before it have been counted
 *
 * In a softirq, or with bottom halves off.
 *
 * Return: whether it was counted.
 */
bool tow_slot_notify(struct tow_device *dev, u64 holder, unsigned int link, u32 imm,
		     u32 most)
{
	struct tow_slot *slot;
	bool counted = false;

	rcu_read_lock();
	slot = xa_load(&dev->notify->slots, tow_imm_slot(imm));
	if (slot) {
		spin_lock(&slot->lock);
		counted = slot->holder == holder && slot->word &&
			  tow_lane_advance(slot, link + 1, imm, most);
		if (counted)
			tow_slot_advance(slot);
		spin_unlock(&slot->lock);
	}
	rcu_read_unlock();
	return counted;
}

static bool tow_waiter_less(struct rb_node *node, const struct rb_node *other)
{
	return rb_entry(node, struct tow_slot_wait, node)->number <
	       rb_entry(other, struct tow_slot_wait, node)->number;
}

/* Caller holds slot->lock. */
static void tow_slot_enter(struct tow_slot *slot, struct tow_slot_wait *wait)
{
	rb_add_cached(&wait->node, &slot->waits, tow_waiter_less);
	list_add_tail(&wait->of_slot, &slot->all);
}

/**
 * tow_slot_wait - wait until a slot is at a number
 * @slot: the slot
 * @wait: the wait, with its number
 *
 * Return: 0: the slot is; -EINPROGRESS: tow_notify.wait_ended will be called;
 * -ESTALE: the export has ended.
 */
int tow_slot_wait(struct tow_slot *slot, struct tow_slot_wait *wait)
{
	int ret = -EINPROGRESS;

	INIT_LIST_HEAD(&wait->of_slot);
	spin_lock_bh(&slot->lock);
	if (slot->count >= wait->number)
		ret = 0;
	else if (slot->ended)
		ret = slot->ended;
	else
		tow_slot_enter(slot, wait);
	spin_unlock_bh(&slot->lock);
	return ret;
}

/**
 * tow_slot_wait_no_more - end a wait
 * @wait: the wait, after tow_slot_wait(); may have ended already
 * @status: its status, unless it has ended
 */
void tow_slot_wait_no_more(struct tow_slot_wait *wait, int status)
{
	struct tow_slot *slot = wait->slot;

	spin_lock_bh(&slot->lock);
	if (!list_empty(&wait->of_slot))
		tow_wait_end(slot, wait, status);
	spin_unlock_bh(&slot->lock);
}
