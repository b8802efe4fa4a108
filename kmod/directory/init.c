// SPDX-License-Identifier: GPL-2.0
/*
 * The directory: what ties and devices call, and its work item.
 *
 * It only hands on, to the owner's side (serve.c, grant.c, export.c) and the resolver's
 * (remote.c, resolve.c), and takes the locks that both need.
 */
#include "core/core.h"
#include "directory.h"
#include "export.h"
#include "remote.h"
#include "tie.h"

/* ---- work ----------------------------------------------------------------- */

static void tow_directory_work(struct work_struct *work)
{
	struct tow_directory *dir = container_of(work, struct tow_directory,
						 work);

	tow_remote_reap(dir);
	tow_exported_reap(dir);
	tow_directory_kick(dir);
	tow_device_put(dir->dev);
}

/* ---- ties ----------------------------------------------------------------- */

/**
 * tow_directory_tie_init - a tie was made
 * @tie: the tie
 */
void tow_directory_tie_init(struct tow_tie *tie)
{
	INIT_LIST_HEAD(&tie->dir.kick);
	mutex_init(&tie->dir.lock);
	tow_grant_tie_init(tie);
	tow_remote_tie_init(tie);
}

/**
 * tow_directory_receive - a message of the directory came
 * @tie: the tie, READY
 * @type: enum tow_wire_type
 * @request: from the header
 * @body: what follows the header
 * @bytes: its size
 *
 * Return: 0; -EPROTO: the other end must not have sent that; -ENOMEM;
 * -ECONNRESET: the tie is lost.
 */
int tow_directory_receive(struct tow_tie *tie, u8 type, u32 request,
			  void *body, size_t bytes)
{
	int ret;

	switch (type) {
	case TOW_WIRE_RESOLVE:
	case TOW_WIRE_RESOLVE_MORE:
	case TOW_WIRE_CANCEL:
	case TOW_WIRE_REVOKED:
	case TOW_WIRE_RELEASE:
		ret = tow_grant_receive(tie, type, request, body, bytes);
		break;
	case TOW_WIRE_RESOLVED:
	case TOW_WIRE_REVOKE:
		ret = tow_answer_receive(tie, type, request, body, bytes);
		break;
	default:
		return -EPROTO;
	}
	tow_directory_kick(tie->dev->directory);
	return ret;
}

/**
 * tow_directory_fill - what is to be said next?
 * @tie: the tie, whose session can send something
 * @all: not only to a resolver
 * @type: where to; 0: nothing
 * @request: where to
 * @body: where to, TOW_WIRE_BODY_BYTES
 *
 * Return: the body's size.
 */
size_t tow_directory_fill(struct tow_tie *tie, bool all, u8 *type, u32 *request,
			  void *body)
{
	struct tow_tie_dir *sdir = &tie->dir;
	size_t bytes = 0;

	*type = 0;
	*request = 0;
	mutex_lock(&sdir->lock);
	if (!sdir->lost) {
		bytes = tow_grant_fill(tie, type, request, body);
		if (!*type && all)
			bytes = tow_answer_fill(tie, type, request, body);
	}
	mutex_unlock(&sdir->lock);
	return bytes;
}

/**
 * tow_directory_tie_lost - nothing begins in this tie any more
 * @tie: the tie, ENDING
 */
void tow_directory_tie_lost(struct tow_tie *tie)
{
	struct tow_directory *dir = tie->dev->directory;

	mutex_lock(&dir->lock);
	mutex_lock(&tie->dir.lock);
	tie->dir.lost = true;
	tow_grant_tie_lost(tie);
	tow_remote_tie_lost(tie);
	mutex_unlock(&tie->dir.lock);
	mutex_unlock(&dir->lock);
}

/**
 * tow_directory_tie_gone - the queue pairs of a tie are destroyed
 * @tie: the tie, lost
 */
void tow_directory_tie_gone(struct tow_tie *tie)
{
	tow_grant_tie_gone(tie);
	mutex_lock(&tie->dir.lock);
	tie->dir.gone = true;
	tow_remote_tie_gone(tie);
	mutex_unlock(&tie->dir.lock);
}

/**
 * tow_directory_tie_cleanup - undo tow_directory_tie_init()
 * @tie: without references
 */
void tow_directory_tie_cleanup(struct tow_tie *tie)
{
	tow_remote_tie_cleanup(tie);
}

/**
 * tow_directory_tie_numbers - what goes on in a tie
 * @tie: the tie
 * @grants: what the other end has of ours
 * @remotes: what we have of the other end's
 */
void tow_directory_tie_numbers(struct tow_tie *tie, u32 *grants,
			       u32 *remotes)
{
	*grants = READ_ONCE(tie->dir.grant_count);
	*remotes = READ_ONCE(tie->dir.remote_count);
}

/* ---- the device ----------------------------------------------------------- */

/**
 * tow_directory_init - nothing is published so far
 * @dev: the device
 *
 * Return: 0 or -ENOMEM.
 */
int tow_directory_init(struct tow_device *dev)
{
	struct tow_directory *dir = kzalloc(sizeof(*dir), GFP_KERNEL);

	if (!dir)
		return -ENOMEM;
	dir->dev = dev;
	mutex_init(&dir->lock);
	spin_lock_init(&dir->kick_lock);
	INIT_LIST_HEAD(&dir->dead);
	INIT_LIST_HEAD(&dir->kicks);
	init_llist_head(&dir->quiet);
	INIT_WORK(&dir->work, tow_directory_work);
	xa_init(&dir->by_id);
	if (tow_labels_init(&dir->exports))
		goto err_free;
	if (tow_labels_init(&dir->waiting))
		goto err_cleanup_exports;
	dev->directory = dir;
	return 0;

err_cleanup_exports:
	tow_labels_cleanup(&dir->exports);
err_free:
	kfree(dir);
	return -ENOMEM;
}

/**
 * tow_directory_quiesce - nothing is published any more
 * @dev: the device, going
 *
 * Who waits for a peer's answer is woken when the tie ends.
 */
void tow_directory_quiesce(struct tow_device *dev)
{
	struct tow_directory *dir = dev->directory;

	mutex_lock(&dir->lock);
	dir->stopping = true;
	mutex_unlock(&dir->lock);
}

/**
 * tow_directory_stop - end all exports
 * @dev: the device, quiesced; nobody is a user of it, and its ties
 *	have ended
 */
void tow_directory_stop(struct tow_device *dev)
{
	tow_exported_stop(dev->directory);
	flush_work(&dev->directory->work);
}

/**
 * tow_directory_cleanup - undo tow_directory_init()
 * @dev: the device; its directory is stopped, or was never used
 */
void tow_directory_cleanup(struct tow_device *dev)
{
	struct tow_directory *dir = dev->directory;

	tow_labels_cleanup(&dir->waiting);
	tow_labels_cleanup(&dir->exports);
	xa_destroy(&dir->by_id);
	kfree(dir);
}
