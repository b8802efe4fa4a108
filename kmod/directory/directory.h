/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The directory: exports, which this node publishes and peers have grants of;
 * and remote ranges, which this node has found on peers.
 *
 *	init.c		what associations and devices call
 *	ioctl.c		programs' calls and handles
 *	lookup.c	programs' lookups of names
 *	serve.c		the owner's side: answers to requests for names
 *	grant.c		giving and revoking grants; the end of an export
 *	export.c	exports
 *	resolve.c	the resolver's side: messages about remote ranges
 *	remote.c	remote ranges
 *	name.c		names
 *
 * Each file calls only files below it.  rma/rmr.c: remote ranges as operations
 * see them.
 *
 * Locks, outermost first; no message is sent while one of them is held:
 *
 *	tow_directory.lock
 *	tow_assoc_dir.lock	of one association at a time
 *	tow_assoc_dir.reach
 *
 * Nothing waits for memory with these locks held.
 */
#ifndef TOW_DIRECTORY_H
#define TOW_DIRECTORY_H

#include <linux/bitfield.h>
#include <linux/list.h>
#include <linux/llist.h>
#include <linux/mutex.h>
#include <linux/overflow.h>
#include <linux/rwsem.h>
#include <linux/sizes.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "conn/wire.h"
#include "core/core.h"
#include "label.h"
#include "uapi/towline.h"

struct tow_client;
struct tow_device;
struct tow_exported;
struct tow_remote;
struct tow_session;
struct tow_assoc;
struct tow_assoc_client;
struct tow_slot;

/* Segments of one export, one for each slab: 2 TiB, if slabs are of 2 MiB. */
#define TOW_SEGMENTS_MAX	SZ_1M

/**
 * struct tow_directory - the directory of a device
 * @dev: the device
 * @lock: protects @exports, @waiting, @dead, @stopping, and some fields of
 *	struct tow_exported
 * @exports: struct tow_exported by label, until they begin to end; without a
 *	reference
 * @waiting: struct tow_request by label: requests of peers that wait for a name
 * @dead: struct tow_exported that are dead, until @dead_work or another task
 *	finishes them
 * @stopping: the device is going: no export is published any more
 * @by_id: struct tow_exported by id, until they are finished, with a reference;
 *	under the lock of the xarray
 * @last_id: id of the youngest export; under the lock of @by_id
 * @quiet: struct tow_remote that are drained, for @work; without a lock
 * @work: acknowledges or releases drained remote ranges; holds a reference to
 *	the device while it is queued, as @dead_work does
 * @dead_work: finishes dead exports.  Not @work, as that takes as long as the
 *	device takes to invalidate keys, and owners do not wait so long
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
	struct work_struct	dead_work;
};

/**
 * struct tow_assoc_dir - what the directory keeps of an association
 * @lock: protects all that follows
 * @lost: the association is lost: nothing begins in it any more
 * @gone: its queue pairs are destroyed, and there will be no others
 * @apart: no session carries the association: the peer reaches nothing by it
 * @waiting: struct tow_request that wait for a name, by the peer's number
 * @waiting_count: length of @waiting
 * @waiting_of: how many of them each tenant has, by tow_label_tenant()
 * @answers: struct tow_request whose answers are to be sent
 * @answer_count: length of @answers
 * @grants: struct tow_grant by id: the peer's grants of our exports
 * @reach: held for writing while one of @grants ends; who has it for reading, and not
 *	@lock, may copy what they reach (rma/copy.c)
 * @grant_count: length of @grants
 * @grants_of: how many of them each tenant has, like @waiting_of
 * @last_grant: id of the youngest grant
 * @revokes: revoked grants whose REVOKE is to be sent, oldest first
 * @revoked: revoked grants whose REVOKE was sent, oldest first; all are older
 *	than those of @revokes
 * @ended: grants that were revoked and ended while @apart, or were being
 *	revoked then, and whose REVOKE is to be sent
 * @told: likewise, whose REVOKE was sent by the present session, and may not
 *	have been handled
 * @ended_count: length of @ended and @told
 * @revoke_timer: waits for the deadline of the oldest grant of @revoked and
 *	@revokes; holds a reference to the association while it is queued
 * @cache: struct tow_remote by label: those that a call may share
 * @requests: struct tow_remote by the number of its request, until the answer
 *	comes, with a reference.  In each session all are sent anew
 * @last_request: number of the youngest request
 * @asked: requests that were sent and not answered
 * @remotes: struct tow_remote by grant: our grants of the peer's exports, with
 *	a reference
 * @remote_count: length of @remotes
 * @last_heard: the last grant of the peer's that we were told of
 * @asks: struct tow_remote whose requests are to be sent, of each tenant
 *	(tow_label_tenant()); of those that were answered in part first
 * @turn: the tenant whose request is sent next, if it has one
 * @cancels: struct tow_remote whose requests are to be cancelled: no call waits
 *	for the answer
 * @acks: struct tow_remote whose revoke is to be acknowledged
 * @releases: struct tow_remote that are to be released
 * @released: struct tow_remote that were acknowledged or released in the
 *	present session, until the peer has handled that
 * @idle: struct tow_remote that are VALID and without users, used last at the
 *	end
 * @idle_count: length of @idle
 */
struct tow_assoc_dir {
	/* protects everything below */
	struct mutex		lock;
	bool			lost;
	bool			gone;
	bool			apart;
	/* the owner's side */
	struct xarray		waiting;
	unsigned int		waiting_count;
	u16			waiting_of[TOW_TENANTS];
	struct list_head	answers;
	unsigned int		answer_count;
	struct xarray		grants;
	struct rw_semaphore	reach;
	u32			grant_count;
	u32			grants_of[TOW_TENANTS];
	u64			last_grant;
	struct list_head	revokes;
	struct list_head	revoked;
	struct list_head	ended;
	struct list_head	told;
	u32			ended_count;
	struct delayed_work	revoke_timer;
	/* the resolver's side */
	struct tow_labels	cache;
	struct xarray		requests;
	u32			last_request;
	unsigned int		asked;
	struct xarray		remotes;
	u32			remote_count;
	u64			last_heard;
	struct list_head	asks[TOW_TENANTS];
	unsigned int		turn;
	struct list_head	cancels;
	struct list_head	acks;
	struct list_head	releases;
	struct list_head	released;
	struct list_head	idle;
	unsigned int		idle_count;
};

/* Return: how many grants are in a message; 0: it is malformed. */
static inline u32 tow_wire_grants_count(const struct tow_wire_grants *body,
					size_t bytes)
{
	u32 count = le32_to_cpu(body->count);

	return body->reserved || count > TOW_WIRE_GRANTS_MAX ||
	       bytes != struct_size(body, grants, count) ? 0 : count;
}

/* By how many queue pairs may a slot be notified, with these rights? */
static inline u32 tow_rights_width(u32 rights)
{
	return FIELD_GET(TOW_RIGHT_WIDTH, rights) + 1;
}

/* Are these rights of a range, or NOTIFY of a slot, but not both? */
static inline bool tow_rights_valid(u32 rights)
{
	if ((rights & ~TOW_RIGHT_WIDTH) == TOW_RIGHT_NOTIFY)
		return true;
	return rights && !(rights & ~(TOW_RIGHT_READ | TOW_RIGHT_WRITE |
				      TOW_RIGHT_ATOMIC)) &&
	       (!(rights & TOW_RIGHT_ATOMIC) || rights & TOW_RIGHT_WRITE);
}

extern const struct tow_assoc_client tow_directory_client;

/* Called by main.c. */
int tow_directory_init(struct tow_device *dev);
void tow_directory_quiesce(struct tow_device *dev);
void tow_directory_stop(struct tow_device *dev);
void tow_directory_cleanup(struct tow_device *dev);

/*
 * Queue tow_directory.work or .dead_work.  A reference keeps the device during
 * the call.
 */
static inline void tow_directory_queue(struct tow_directory *dir,
				       struct work_struct *work)
{
	kref_get(&dir->dev->refs);
	if (!queue_work(tow_wq, work))
		tow_device_put(dir->dev);
}

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
int tow_client_release_remote(struct tow_client *client, u64 number);
struct tow_slot *tow_client_get_slot(struct tow_client *client, u64 number);

#endif /* TOW_DIRECTORY_H */
