// SPDX-License-Identifier: GPL-2.0
/*
 * The directory's outbox: which associations have messages to send; and
 * queueing of its work item.
 *
 * Both sides of the directory hold locks when they find out that a message is
 * to be sent.  They put it into a list of the association and call
 * tow_directory_want_kick(), which lists the association with a reference.
 * tow_directory_kick() sends; the task that took the locks calls it after it
 * has released them.  So all that a program's end releases is sent together, as
 * much as a message holds.
 */
#include "assoc.h"
#include "core/core.h"
#include "directory.h"

/**
 * tow_directory_queue - queue the work item
 * @dir: the directory; a reference keeps its device during the call
 */
void tow_directory_queue(struct tow_directory *dir)
{
	struct tow_device *dev = dir->dev;

	kref_get(&dev->refs);
	if (!queue_work(tow_wq, &dir->work))
		tow_device_put(dev);
}

/**
 * tow_directory_want_kick - an association has messages to send
 * @assoc: the association; a reference keeps it during the call.  Caller may
 *	hold tow_directory.lock and tow_assoc_dir.lock
 */
void tow_directory_want_kick(struct tow_assoc *assoc)
{
	struct tow_directory *dir = assoc->dev->directory;

	spin_lock(&dir->kick_lock);
	if (list_empty(&assoc->dir.kick)) {
		tow_assoc_get(assoc);
		list_add_tail(&assoc->dir.kick, &dir->kicks);
	}
	spin_unlock(&dir->kick_lock);
}

/* Return: the next association, with the list's reference; or NULL. */
static struct tow_assoc *tow_directory_next_kick(struct tow_directory *dir)
{
	struct tow_assoc *assoc;

	spin_lock(&dir->kick_lock);
	assoc = list_first_entry_or_null(&dir->kicks, struct tow_assoc,
					 dir.kick);
	if (assoc)
		list_del_init(&assoc->dir.kick);
	spin_unlock(&dir->kick_lock);
	return assoc;
}

/**
 * tow_directory_kick - send the messages of all listed associations
 * @dir: the directory; caller holds no lock; a reference keeps its device
 *	during the call
 */
void tow_directory_kick(struct tow_directory *dir)
{
	struct tow_assoc *assoc;

	while ((assoc = tow_directory_next_kick(dir))) {
		tow_assoc_kick(assoc);
		tow_assoc_put(assoc);
	}
}
