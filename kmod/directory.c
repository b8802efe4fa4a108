// SPDX-License-Identifier: GPL-2.0
/*
 * The directory: what its two sides share, and what sessions and devices call.
 *
 * Both sides leave what is to be said in lists, and the session on a list of
 * those to be kicked; whoever did so calls tow_directory_kick() when he holds no
 * lock any more.  So what a program's end sets free goes out together, as many
 * as a message holds.
 */
#include "device.h"
#include "export.h"
#include "remote.h"
#include "session.h"

/**
 * tow_directory_device - whose directory is it?
 * @dir: the directory
 *
 * Return: the device that it is part of.
 */
struct tow_device *tow_directory_device(struct tow_directory *dir)
{
	return container_of(dir, struct tow_device, directory);
}

/* ---- work ----------------------------------------------------------------- */

static void tow_directory_work(struct work_struct *work)
{
	struct tow_directory *dir = container_of(work, struct tow_directory,
						 work);

	tow_remote_reap(dir);
	tow_exported_reap(dir);
	tow_directory_kick(dir);
	tow_device_put(tow_directory_device(dir));
}

/**
 * tow_directory_queue - have the work item look at what is dead or quiet
 * @dir: the directory; its device has a reference that the caller knows of
 */
void tow_directory_queue(struct tow_directory *dir)
{
	struct tow_device *dev = tow_directory_device(dir);

	kref_get(&dev->refs);
	if (!queue_work(tow_wq, &dir->work))
		tow_device_put(dev);
}

/**
 * tow_directory_want_kick - a session has something to say
 * @session: the session; the caller knows of a reference
 */
void tow_directory_want_kick(struct tow_session *session)
{
	struct tow_directory *dir = &session->dev->directory;

	spin_lock(&dir->kick_lock);
	if (list_empty(&session->dir.kick)) {
		tow_session_get(session);
		list_add_tail(&session->dir.kick, &dir->kicks);
	}
	spin_unlock(&dir->kick_lock);
}

static struct tow_session *tow_directory_next_kick(struct tow_directory *dir)
{
	struct tow_session *session;

	spin_lock(&dir->kick_lock);
	session = list_first_entry_or_null(&dir->kicks, struct tow_session,
					   dir.kick);
	if (session)
		list_del_init(&session->dir.kick);
	spin_unlock(&dir->kick_lock);
	return session;
}

/**
 * tow_directory_kick - have what is to be said sent
 * @dir: the directory; the caller holds no lock, and knows of a reference to its
 *	device
 */
void tow_directory_kick(struct tow_directory *dir)
{
	struct tow_session *session;

	while ((session = tow_directory_next_kick(dir))) {
		tow_session_kick(session);
		tow_session_put(session);
	}
}

/* ---- sessions ------------------------------------------------------------- */

/**
 * tow_directory_session_init - a session was made
 * @session: the session
 */
void tow_directory_session_init(struct tow_session *session)
{
	INIT_LIST_HEAD(&session->dir.kick);
	mutex_init(&session->dir.lock);
	tow_grant_session_init(session);
	tow_remote_session_init(session);
}

/**
 * tow_directory_receive - a message of the directory came
 * @session: the session, READY
 * @type: enum tow_wire_type
 * @request: from the header
 * @body: what follows the header
 * @bytes: its size
 *
 * Return: 0; -EPROTO: the other end must not have sent that; -ENOMEM;
 * -ECONNRESET: the session is lost.
 */
int tow_directory_receive(struct tow_session *session, u8 type, u32 request,
			  void *body, size_t bytes)
{
	int ret;

	switch (type) {
	case TOW_WIRE_RESOLVE:
	case TOW_WIRE_RESOLVE_MORE:
	case TOW_WIRE_CANCEL:
	case TOW_WIRE_REVOKED:
	case TOW_WIRE_RELEASE:
		ret = tow_grant_receive(session, type, request, body, bytes);
		break;
	case TOW_WIRE_RESOLVED:
	case TOW_WIRE_REVOKE:
		ret = tow_answer_receive(session, type, request, body, bytes);
		break;
	default:
		return -EPROTO;
	}
	tow_directory_kick(&session->dev->directory);
	return ret;
}

/**
 * tow_directory_fill - what is to be said next?
 * @session: the session, which can send something
 * @type: where to; 0: nothing
 * @request: where to
 * @body: where to, TOW_WIRE_BODY_BYTES
 *
 * Return: the body's size.
 */
size_t tow_directory_fill(struct tow_session *session, u8 *type, u32 *request,
			  void *body)
{
	struct tow_session_dir *sdir = &session->dir;
	size_t bytes = 0;

	*type = 0;
	*request = 0;
	mutex_lock(&sdir->lock);
	if (!sdir->lost) {
		bytes = tow_grant_fill(session, type, request, body);
		if (!*type)
			bytes = tow_answer_fill(session, type, request, body);
	}
	mutex_unlock(&sdir->lock);
	return bytes;
}

/**
 * tow_directory_session_lost - nothing begins in this session any more
 * @session: the session, ENDING
 */
void tow_directory_session_lost(struct tow_session *session)
{
	struct tow_directory *dir = &session->dev->directory;

	mutex_lock(&dir->lock);
	mutex_lock(&session->dir.lock);
	session->dir.lost = true;
	tow_grant_session_lost(session);
	tow_remote_session_lost(session);
	mutex_unlock(&session->dir.lock);
	mutex_unlock(&dir->lock);
}

/**
 * tow_directory_session_gone - the queue pairs of a session are destroyed
 * @session: the session, lost
 */
void tow_directory_session_gone(struct tow_session *session)
{
	tow_grant_session_gone(session);
	mutex_lock(&session->dir.lock);
	session->dir.gone = true;
	tow_remote_session_gone(session);
	mutex_unlock(&session->dir.lock);
}

/**
 * tow_directory_session_cleanup - undo tow_directory_session_init()
 * @session: without references
 */
void tow_directory_session_cleanup(struct tow_session *session)
{
	tow_remote_session_cleanup(session);
}

/**
 * tow_directory_session_numbers - what goes on in a session
 * @session: the session
 * @grants: what the other end has of ours
 * @remotes: what we have of the other end's
 */
void tow_directory_session_numbers(struct tow_session *session, u32 *grants,
				   u32 *remotes)
{
	*grants = READ_ONCE(session->dir.grant_count);
	*remotes = READ_ONCE(session->dir.remote_count);
}

/* ---- the device ----------------------------------------------------------- */

/**
 * tow_directory_init - prepare the structure
 * @dir: zeroed memory inside a tow_device
 *
 * Return: 0 or -ENOMEM.
 */
int tow_directory_init(struct tow_directory *dir)
{
	int ret;

	mutex_init(&dir->lock);
	spin_lock_init(&dir->kick_lock);
	INIT_LIST_HEAD(&dir->dead);
	INIT_LIST_HEAD(&dir->kicks);
	init_llist_head(&dir->quiet);
	INIT_WORK(&dir->work, tow_directory_work);
	xa_init(&dir->by_id);
	ret = tow_labels_init(&dir->exports);
	if (ret)
		return ret;
	ret = tow_labels_init(&dir->waiting);
	if (ret)
		tow_labels_cleanup(&dir->exports);
	return ret;
}

/**
 * tow_directory_stop_begin - nothing is published any more
 * @dir: the directory of a device that is going
 *
 * Who waits for a peer's answer is woken when the session ends.
 */
void tow_directory_stop_begin(struct tow_directory *dir)
{
	mutex_lock(&dir->lock);
	dir->stopping = true;
	mutex_unlock(&dir->lock);
}

/**
 * tow_directory_stop - end all exports
 * @dir: the directory, stopping; nobody is a user of the device, and its sessions
 *	have ended
 */
void tow_directory_stop(struct tow_directory *dir)
{
	tow_exported_stop(dir);
	flush_work(&dir->work);
}

/**
 * tow_directory_cleanup - undo tow_directory_init()
 * @dir: the directory, stopped, or never used
 */
void tow_directory_cleanup(struct tow_directory *dir)
{
	tow_labels_cleanup(&dir->waiting);
	tow_labels_cleanup(&dir->exports);
	xa_destroy(&dir->by_id);
}
