// SPDX-License-Identifier: GPL-2.0
/*
 * The directory: what associations and devices call, and its work items.
 *
 * The functions here call the owner's side (serve.c, grant.c, export.c) and the
 * resolver's side (remote.c, resolve.c), and take the locks that both need.
 */
#include "assoc.h"
#include "core/core.h"
#include "directory.h"
#include "export.h"
#include "remote.h"

/* ---- work ----------------------------------------------------------------- */

static void tow_directory_work(struct work_struct *work)
{
	struct tow_directory *dir = container_of(work, struct tow_directory,
						 work);

	tow_remote_reap(dir);
	tow_device_put(dir->dev);
}

static void tow_directory_dead_work(struct work_struct *work)
{
	struct tow_directory *dir = container_of(work, struct tow_directory,
						 dead_work);

	tow_exported_reap(dir);
	tow_device_put(dir->dev);
}

/* ---- associations ----------------------------------------------------------------- */

static void tow_directory_assoc_init(struct tow_assoc *assoc)
{
	mutex_init(&assoc->dir.lock);
	tow_grant_assoc_init(assoc);
	tow_remote_assoc_init(assoc);
}

static void tow_directory_assoc_cleanup(struct tow_assoc *assoc)
{
	tow_labels_cleanup(&assoc->dir.cache);
	/* They have nothing, but may have room that something did not get. */
	xa_destroy(&assoc->dir.requests);
	xa_destroy(&assoc->dir.remotes);
	xa_destroy(&assoc->dir.waiting);
	xa_destroy(&assoc->dir.grants);
}

static int tow_directory_receive(struct tow_session *session, u8 type,
				 u32 request, void *body, size_t bytes)
{
	struct tow_assoc *assoc = session->assoc;
	const struct tow_wire_sync *sync = body;

	switch (type) {
	case TOW_WIRE_RESOLVE:
	case TOW_WIRE_RESOLVE_MORE:
	case TOW_WIRE_CANCEL:
	case TOW_WIRE_REVOKED:
	case TOW_WIRE_RELEASE:
		return tow_grant_receive(assoc, type, request, body, bytes);
	case TOW_WIRE_RESOLVED:
	case TOW_WIRE_REVOKE:
		return tow_answer_receive(assoc, type, request, body, bytes);
	case TOW_WIRE_SYNC:
		return tow_grant_assoc_heard(assoc, le64_to_cpu(sync->grant));
	default:
		return 0;
	}
}

static size_t tow_directory_fill(struct tow_session *session, u8 *type,
				 u32 *request, void *body)
{
	struct tow_assoc_dir *sdir = &session->assoc->dir;
	size_t bytes = 0;

	mutex_lock(&sdir->lock);
	if (!sdir->lost) {
		bytes = tow_grant_fill(session, type, request, body);
		if (!*type && session->synced)
			bytes = tow_answer_fill(session, type, request, body);
	}
	mutex_unlock(&sdir->lock);
	return bytes;
}

/*
 * The next session says again what may not have been handled: the resolver
 * asks for all that was not answered, and releases what it has released; the
 * owner forgets what it was asked, and revokes what it has revoked.
 */
static void tow_directory_assoc_apart(struct tow_assoc *assoc)
{
	struct tow_directory *dir = assoc->dev->directory;

	mutex_lock(&dir->lock);
	mutex_lock(&assoc->dir.lock);
	assoc->dir.apart = true;
	tow_request_drop_all(assoc);
	/* What follows is long if programs ask for much. */
	mutex_unlock(&dir->lock);
	list_splice_init(&assoc->dir.told, &assoc->dir.ended);
	tow_remote_assoc_apart(assoc);
	mutex_unlock(&assoc->dir.lock);
	tow_grant_assoc_apart(assoc);
}

static void tow_directory_assoc_lost(struct tow_assoc *assoc)
{
	struct tow_directory *dir = assoc->dev->directory;

	mutex_lock(&dir->lock);
	mutex_lock(&assoc->dir.lock);
	assoc->dir.lost = true;
	tow_request_drop_all(assoc);
	mutex_unlock(&dir->lock);
	tow_remote_assoc_lost(assoc);
	mutex_unlock(&assoc->dir.lock);
}

static void tow_directory_assoc_gone(struct tow_assoc *assoc)
{
	tow_grant_assoc_gone(assoc);
	mutex_lock(&assoc->dir.lock);
	assoc->dir.gone = true;
	tow_remote_assoc_gone(assoc);
	mutex_unlock(&assoc->dir.lock);
}

const struct tow_assoc_client tow_directory_client = {
	.receive	= tow_directory_receive,
	.fill		= tow_directory_fill,
	.init		= tow_directory_assoc_init,
	.carried	= tow_grant_assoc_carried,
	.apart		= tow_directory_assoc_apart,
	.lost		= tow_directory_assoc_lost,
	.gone		= tow_directory_assoc_gone,
	.release	= tow_directory_assoc_cleanup,
};

/* ---- the device ----------------------------------------------------------- */

/**
 * tow_directory_init - make a device's directory
 * @dev: the device
 *
 * Return: 0 or -ENOMEM.
 */
int tow_directory_init(struct tow_device *dev)
{
	struct tow_directory *dir = kzalloc(sizeof(*dir), GFP_KERNEL);
	int ret;

	if (!dir)
		return -ENOMEM;
	dir->dev = dev;
	mutex_init(&dir->lock);
	INIT_LIST_HEAD(&dir->dead);
	init_llist_head(&dir->quiet);
	INIT_WORK(&dir->work, tow_directory_work);
	INIT_WORK(&dir->dead_work, tow_directory_dead_work);
	xa_init(&dir->by_id);
	ret = tow_labels_init(&dir->exports);
	if (ret)
		goto err_free;
	ret = tow_labels_init(&dir->waiting);
	if (ret)
		goto err_cleanup_exports;
	dev->directory = dir;
	return 0;

err_cleanup_exports:
	tow_labels_cleanup(&dir->exports);
err_free:
	kfree(dir);
	return ret;
}

/**
 * tow_directory_quiesce - publish no more exports
 * @dev: the device, going
 *
 * A call that waits for a peer's answer is woken when the association is lost.
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
 * @dev: the device, quiesced; it has no users, and its associations have ended
 */
void tow_directory_stop(struct tow_device *dev)
{
	tow_exported_stop(dev->directory);
	flush_work(&dev->directory->dead_work);
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
