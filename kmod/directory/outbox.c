// SPDX-License-Identifier: GPL-2.0
/*
 * The directory's outbox: which ties have something to say; and its work item.
 *
 * Both sides of the directory leave what is to be said in lists of the tie, with locks
 * held, and call tow_directory_want_kick(), which keeps the tie and a reference to it.
 * Nothing is sent before somebody who holds no lock calls tow_directory_kick(), and
 * whoever wanted one sees to that.  So what a program's end sets free goes out together,
 * as many as a message holds.
 */
#include "core/core.h"
#include "directory.h"
#include "tie.h"

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
 * tow_directory_want_kick - a tie has something to say
 * @tie: the tie; caller knows of a reference, and may hold both of its locks
 */
void tow_directory_want_kick(struct tow_tie *tie)
{
	struct tow_directory *dir = tie->dev->directory;

	spin_lock(&dir->kick_lock);
	if (list_empty(&tie->dir.kick)) {
		tow_tie_get(tie);
		list_add_tail(&tie->dir.kick, &dir->kicks);
	}
	spin_unlock(&dir->kick_lock);
}

/* Return: a tie, with the reference that was kept; or NULL. */
static struct tow_tie *tow_directory_next_kick(struct tow_directory *dir)
{
	struct tow_tie *tie;

	spin_lock(&dir->kick_lock);
	tie = list_first_entry_or_null(&dir->kicks, struct tow_tie,
				       dir.kick);
	if (tie)
		list_del_init(&tie->dir.kick);
	spin_unlock(&dir->kick_lock);
	return tie;
}

/**
 * tow_directory_kick - have what is to be said sent
 * @dir: the directory; caller holds no lock, and knows of a reference to its device
 */
void tow_directory_kick(struct tow_directory *dir)
{
	struct tow_tie *tie;

	while ((tie = tow_directory_next_kick(dir))) {
		tow_tie_kick(tie);
		tow_tie_put(tie);
	}
}
