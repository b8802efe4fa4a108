// SPDX-License-Identifier: GPL-2.0
/*
 * The directory's outbox: which associations have something to say; and its work item.
 *
 * Both sides of the directory leave what is to be said in lists of the association,
 * with locks held, and call tow_directory_want_kick(), which keeps the association
 * and a reference to it. Nothing is sent before somebody who holds no lock calls
 * tow_directory_kick(), and whoever wanted one sees to that.  So what a program's
 * end sets free goes out together, as many as a message holds.
 */
#include "assoc.h"
#include "core/core.h"
#include "directory.h"

/**
 * tow_directory_queue - have the work item look at what is dead or quiet
 * @dir: the directory; caller knows of a reference to its device
 */
void tow_directory_queue(struct tow_directory *dir)
{
	struct tow_device *dev = dir->dev;

	kref_get(&dev->refs);
	if (!queue_work(tow_wq, &dir->work))
		tow_device_put(dev);
}

/**
 * tow_directory_want_kick - an association has something to say
 * @assoc: the association; caller knows of a reference, and may hold both of its locks
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

/* Return: an association, with the reference that was kept; or NULL. */
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
 * tow_directory_kick - have what is to be said sent
 * @dir: the directory; caller holds no lock, and knows of a reference to its device
 */
void tow_directory_kick(struct tow_directory *dir)
{
	struct tow_assoc *assoc;

	while ((assoc = tow_directory_next_kick(dir))) {
		tow_assoc_kick(assoc);
		tow_assoc_put(assoc);
	}
}
