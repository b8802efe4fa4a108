// SPDX-License-Identifier: GPL-2.0
/*
 * What udev and others are told by the device's node: that a limit was reached,
 * and that the maintenance queue pair was made, or could not be.
 *
 * Callers may be in any context, so what happened is noted, and a work item
 * tells it: each thing once, however often it happened meanwhile, and at most
 * ten times in five seconds.  Notes wait while there is no node, as when the
 * device is being renamed.
 */
#include <linux/device.h>
#include <linux/jiffies.h>
#include <linux/string.h>

#include "core/core.h"

#define TOW_UEVENT_PAUSE_MS	500

/**
 * tow_uevent - tell user space what happened
 * @dev: the device
 * @what: TOWLINE_EVENT; a constant
 * @file: TOWLINE_FILE: the file in sysfs that raises the limit; a constant; "":
 *	none does
 *
 * May be called in any context.
 */
void tow_uevent(struct tow_device *dev, const char *what, const char *file)
{
	const struct tow_uevent event = { what, file };
	struct tow_uevents *events = &dev->uevents;
	unsigned int i, kept = 0;
	unsigned long flags;

	spin_lock_irqsave(&events->lock, flags);
	/* The last of those that contradict each other comes last. */
	for (i = 0; i < events->count; i++) {
		if (strcmp(events->pending[i].what, what) ||
		    strcmp(events->pending[i].file, file))
			events->pending[kept++] = events->pending[i];
	}
	if (!WARN_ON_ONCE(kept == ARRAY_SIZE(events->pending)))
		events->pending[kept++] = event;
	events->count = kept;
	if (!events->stopped)
		queue_delayed_work(tow_wq, &events->work,
				   time_is_after_jiffies(events->next) ?
				   events->next - jiffies : 0);
	spin_unlock_irqrestore(&events->lock, flags);
}

static void tow_uevent_send(struct device *node, const struct tow_uevent *event)
{
	char what[32], file[64];
	char *words[3] = { what, event->file[0] ? file : NULL };

	snprintf(what, sizeof(what), "TOWLINE_EVENT=%s", event->what);
	snprintf(file, sizeof(file), "TOWLINE_FILE=%s", event->file);
	/* Without memory listeners miss one: the log has it still. */
	kobject_uevent_env(&node->kobj, KOBJ_CHANGE, words);
}

static void tow_uevent_work(struct work_struct *work)
{
	struct tow_uevents *events = container_of(to_delayed_work(work),
						  struct tow_uevents, work);
	struct tow_uevent pending[ARRAY_SIZE(events->pending)];
	unsigned int i, count;

	mutex_lock(&events->node_lock);
	if (events->node) {
		spin_lock_irq(&events->lock);
		count = events->count;
		memcpy(pending, events->pending, sizeof(pending));
		events->count = 0;
		events->next = jiffies + msecs_to_jiffies(TOW_UEVENT_PAUSE_MS);
		spin_unlock_irq(&events->lock);
		for (i = 0; i < count; i++)
			tow_uevent_send(events->node, &pending[i]);
	}
	mutex_unlock(&events->node_lock);
}

/**
 * tow_uevents_init - prepare the structure
 * @events: zeroed memory inside a tow_device
 */
void tow_uevents_init(struct tow_uevents *events)
{
	spin_lock_init(&events->lock);
	mutex_init(&events->node_lock);
	events->next = jiffies;
	INIT_DELAYED_WORK(&events->work, tow_uevent_work);
}

/**
 * tow_uevents_use - tell what is told by another node from now on
 * @events: the device's
 * @node: which; NULL: the present one goes, and has told its last on return
 */
void tow_uevents_use(struct tow_uevents *events, struct device *node)
{
	mutex_lock(&events->node_lock);
	events->node = node;
	mutex_unlock(&events->node_lock);
	if (node)
		mod_delayed_work(tow_wq, &events->work, 0);
}

/**
 * tow_uevents_stop - the device is going, and tells nothing any more
 * @events: the device's
 */
void tow_uevents_stop(struct tow_uevents *events)
{
	spin_lock_irq(&events->lock);
	events->stopped = true;
	spin_unlock_irq(&events->lock);
	cancel_delayed_work_sync(&events->work);
}
