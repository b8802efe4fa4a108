/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The directory: what this node publishes (exports, to which peers hold grants)
 * and what it found on others (remote ranges).
 *
 *	init.c		what associations and devices call
 *	ioctl.c		programs' calls and handles
 *	serve.c		the owner's side: names are looked for, and answered
 *	grant.c		grants: given, revoked; an export ends
 *	export.c	exports
 *	resolve.c	the resolver's side: what is said about remote ranges
 *	remote.c	remote ranges
 *	outbox.c	which associations have something to say
 *	name.c		names
 *
 * Each calls those below it only.  Remote ranges as operations see them: rma/rmr.c.
 *
 * Locks, in this order; nothing is sent while one of them is held:
 *
 *	tow_directory.lock
 *	tow_assoc_dir.lock	nobody holds two of them
 *	tow_directory.kick_lock
 */
#ifndef TOW_DIRECTORY_H
#define TOW_DIRECTORY_H

#include <linux/list.h>
#include <linux/llist.h>
#include <linux/mutex.h>
#include <linux/sizes.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "core/core.h"
#include "label.h"
#include "uapi/towline.h"

struct tow_client;
struct tow_device;
struct tow_exported;
struct tow_remote;
struct tow_assoc;
struct tow_slot;

/* Segments of one export; more than a TiB, whatever the device's slabs. */
#define TOW_SEGMENTS_MAX	SZ_1M

/**
 * struct tow_directory - what a device publishes
 * @dev: the device
 * @lock: protects what follows, up to @by_id, and what is marked so in
 *	struct tow_exported
 * @exports: by label, without a reference: those that have not ended
 * @waiting: struct tow_request by label: peers that wait for a name
 * @dead: exports that have ended and that nobody has a grant of: @work finishes
 *	them
 * @stopping: the device is going: nothing is published any more
 * @by_id: every export, with a reference; has a lock of its own
 * @last_id: of the youngest; under the lock of @by_id
 * @quiet: struct tow_remote on which nothing is in flight any more, for @work
 * @work: what cannot be done at once; holds a reference to the device while it
 *	is queued
 * @kick_lock: protects @kicks and tow_assoc_dir.kick
 * @kicks: associations that have something to say, each with a reference
 */
struct tow_directory {
	struct tow_device	*dev;
	/* protects exports to stopping, and parts of tow_exported */
	struct mutex		lock;
	struct tow_labels	exports;
	struct tow_labels	waiting;
	struct list_head	dead;
	bool			stopping;
	struct xarray		by_id;
	u64			last_id;
	struct llist_head	quiet;
	struct work_struct	work;
	/* protects kicks and tow_assoc_dir.kick */
	spinlock_t		kick_lock;
	struct list_head	kicks;
};

/**
 * struct tow_assoc_dir - what the directory keeps of an association
 * @kick: in tow_directory.kicks
 * @lock: protects what follows
 * @lost: the association ends: nothing begins any more
 * @gone: its queue pairs are destroyed, and there will be no others
 * @apart: no session carries it: no peer reaches anything by it
 * @waiting: struct tow_request that wait for a name, by the peer's number
 * @waiting_count: how many
 * @answers: struct tow_request that are to be answered
 * @answer_count: how many
 * @grants: what the peer has of ours: struct tow_grant, by id
 * @grant_count: how many
 * @last_grant: id of the youngest
 * @revokes: grants that the peer is to be told to let go of, oldest first
 * @revoked: those that it was told of, oldest first; all older than @revokes
 * @bygone: grants that were revoked while @apart, and have ended; the peer is to be told
 *	first
 * @revoke_timer: waits for the oldest of both; holds a reference to the association
 *	while it is queued
 * @cache: struct tow_remote by label: those that may be found
 * @requests: struct tow_remote by the number of the request that is or will be on
 *	its way, with a reference
 * @last_request: number of the youngest
 * @asked: requests that were sent and not answered
 * @remotes: what we have of the peer's: struct tow_remote by grant, with a
 *	reference
 * @remote_count: how many
 * @asks: remotes whose requests are to be sent
 * @cancels: remotes whose requests nobody waits for, and the peer is to know
 * @acks: remotes whose revoke is to be acknowledged
 * @releases: remotes to be given up
 * @idle: remotes that nobody uses at the moment, the one used last at the end
 * @idle_count: how many
 */
struct tow_assoc_dir {
	struct list_head	kick;
	/* protects everything below */
	struct mutex		lock;
	bool			lost;
	bool			gone;
	bool			apart;
	/* the owner's side */
	struct xarray		waiting;
	unsigned int		waiting_count;
	struct list_head	answers;
	unsigned int		answer_count;
	struct xarray		grants;
	u32			grant_count;
	u64			last_grant;
	struct list_head	revokes;
	struct list_head	revoked;
	struct list_head	bygone;
	struct delayed_work	revoke_timer;
	/* the resolver's side */
	struct tow_labels	cache;
	struct xarray		requests;
	u32			last_request;
	unsigned int		asked;
	struct xarray		remotes;
	u32			remote_count;
	struct list_head	asks;
	struct list_head	cancels;
	struct list_head	acks;
	struct list_head	releases;
	struct list_head	idle;
	unsigned int		idle_count;
};

/* What can be done with a range, or a slot, and only that? */
static inline bool tow_rights_valid(u32 rights)
{
	if (rights == TOW_RIGHT_NOTIFY)
		return true;
	return rights && !(rights & ~(TOW_RIGHT_READ | TOW_RIGHT_WRITE |
				      TOW_RIGHT_ATOMIC)) &&
	       (!(rights & TOW_RIGHT_ATOMIC) || rights & TOW_RIGHT_WRITE);
}

/*
 * Called by associations.  All in process context; may sleep, but not for long, as
 * nothing else of the association goes on meanwhile.
 *
 *	init	the association was made
 *	receive	a message of a type from TOW_WIRE_RESOLVE on came: only in a READY
 *		session, one at a time, in order; @body is the receiver's to change.
 *		0, or a negative errno: the other end must not have sent
 *		that: the association ends
 *	fill	something can be sent: put a message's type, request and body
 *		there and return its bytes, or 0 if there is nothing.  The way of
 *		all that the directory says.  Called by one at a time, again after
 *		tow_assoc_kick()
 *	lost	the association ends: nothing may begin any more, whoever waits
 *		gets assoc->error; operations may still be in flight
 *	gone	the queue pairs are destroyed: the other end reaches nothing
 *	cleanup	the last reference is gone
 */
void tow_directory_assoc_init(struct tow_assoc *assoc);
int tow_directory_receive(struct tow_assoc *assoc, u8 type, u32 request,
			  void *body, size_t bytes);
size_t tow_directory_fill(struct tow_assoc *assoc, bool all, u8 *type, u32 *request,
			  void *body);
void tow_directory_assoc_lost(struct tow_assoc *assoc);
void tow_directory_assoc_gone(struct tow_assoc *assoc);
void tow_directory_assoc_cleanup(struct tow_assoc *assoc);
void tow_directory_assoc_numbers(struct tow_assoc *assoc, u32 *grants,
				 u32 *remotes);

/* Called by main.c. */
int tow_directory_init(struct tow_device *dev);
void tow_directory_quiesce(struct tow_device *dev);
void tow_directory_stop(struct tow_device *dev);
void tow_directory_cleanup(struct tow_device *dev);

/* outbox.c */
void tow_directory_queue(struct tow_directory *dir);
void tow_directory_want_kick(struct tow_assoc *assoc);
void tow_directory_kick(struct tow_directory *dir);

/* Called by chardev.c, when a client has ended. */
void tow_directory_client_end(struct tow_client *client);

/* ioctl.c */
extern const struct tow_listing tow_export_listing;
int tow_call_export(struct tow_client *client, void *data,
		    const struct tow_answer *answer);
int tow_call_unexport(struct tow_client *client, void *data,
		      const struct tow_answer *answer);
int tow_call_resolve(struct tow_client *client, void *data,
		     const struct tow_answer *answer);
int tow_call_release(struct tow_client *client, void *data,
		     const struct tow_answer *answer);
struct tow_remote *tow_client_get_remote(struct tow_client *client, u64 number);
struct tow_slot *tow_client_get_slot(struct tow_client *client, u64 number);

#endif /* TOW_DIRECTORY_H */
