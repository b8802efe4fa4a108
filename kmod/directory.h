/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The directory: what this node publishes (exports, to which peers hold grants)
 * and what it found on others (remote ranges).
 */
#ifndef TOW_DIRECTORY_H
#define TOW_DIRECTORY_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/rhashtable.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/xarray.h>

#include "uapi/towline.h"

struct tow_client;
struct tow_device;
struct tow_session;

/* To be completed in directory.c's favour: */
struct tow_directory {
	struct mutex	lock;
};

struct tow_session_dir {
	struct mutex	lock;
};

/*
 * Called by sessions.  All in process context; may sleep, but not for long, as
 * nothing else of the session goes on meanwhile.
 *
 *	init	the session was made
 *	receive	a message of a type from TOW_WIRE_RESOLVE on came: only in a READY
 *		session, one at a time, in order; @body is the receiver's to change.
 *		0, or a negative errno: the other end must not have sent
 *		that: the session ends
 *	fill	something can be sent: put a message's type, request and body
 *		there and return its bytes, or 0 if there is nothing.  The way for
 *		what can be much: REVOKE, REVOKED, RELEASE.  Called by one at a
 *		time, again after tow_session_kick()
 *	lost	the session is ENDING: nothing may begin any more, whoever waits
 *		gets session->error; operations may still be in flight
 *	gone	the queue pairs are destroyed: the other end reaches nothing
 *	cleanup	the last reference is gone
 */
void tow_directory_session_init(struct tow_session *session);
int tow_directory_receive(struct tow_session *session, u8 type, u32 request,
			  void *body, size_t bytes);
size_t tow_directory_fill(struct tow_session *session, u8 *type, u32 *request,
			  void *body);
void tow_directory_session_lost(struct tow_session *session);
void tow_directory_session_gone(struct tow_session *session);
void tow_directory_session_cleanup(struct tow_session *session);
void tow_directory_session_numbers(struct tow_session *session, u32 *grants,
				   u32 *remotes);

/* Called by device.c. */
int tow_directory_init(struct tow_directory *dir);
void tow_directory_stop_begin(struct tow_directory *dir);
void tow_directory_stop(struct tow_directory *dir);
void tow_directory_cleanup(struct tow_directory *dir);

/* Called by client.c, when a client has ended. */
void tow_directory_client_end(struct tow_client *client);

/* directory_call.c: -ENOTTY: none of its calls */
long tow_directory_call(struct tow_client *client, unsigned int cmd,
			void __user *user);

#endif /* TOW_DIRECTORY_H */
