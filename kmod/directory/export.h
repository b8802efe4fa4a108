/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The owner's side of the directory: exports, and the grants that peers have.
 */
#ifndef TOW_EXPORT_H
#define TOW_EXPORT_H

#include <linux/completion.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/uidgid.h>

#include "conn/wire.h"
#include "core/core.h"
#include "directory.h"
#include "memory/memory.h"

struct pid;
struct tow_region;
struct tow_slot;

/**
 * struct tow_exposure - how peers reach one slab
 * @address: of the slab's first byte, as peers address it
 * @key: the remote key of the slab's registration
 */
struct tow_exposure {
	u64	address;
	u32	key;
};

/**
 * struct tow_exported - a range that peers may reach
 * @refs: held by tow_directory.by_id until it is finished, by its client's
 *	handle, by each grant, and by each caller of tow_exported_next()
 * @dev: the device, with a reference
 * @id: its number on the device
 * @label: its name and job, in tow_directory.exports until @ending
 * @kuid: its client's user
 * @pid: its client's PID, with a reference
 * @charge: what its client is charged, until it is finished
 * @region: its region, with a reference until it is finished; then NULL
 * @region_id: the region's number
 * @offset: where it begins in the region, in bytes
 * @bytes: its size
 * @rights: bits of enum tow_right
 * @slot: of a NOTIFY export: the slot, with a reference; else NULL
 * @grants: struct tow_grant; under tow_directory.lock, like @grant_count,
 *	@ending and @dead
 * @grant_count: length of @grants
 * @ending: it has no name any more and gets no grants; its grants are revoked
 * @dead: in tow_directory.dead, until a task claims it to finish it
 * @ended: completed when it is finished: no peer reaches it
 * @skip: where it begins in its first slab, in bytes
 * @first: the first slab's number in the region
 * @count: how many slabs peers reach; of a slot: 0
 * @exposed: how many of @exposures are made
 * @exposures: all slabs with the first kind of rights, then, if it needs two
 *	kinds, all with the second
 */
struct tow_exported {
	struct kref		refs;
	struct tow_device	*dev;
	u64			id;
	struct tow_label	label;
	kuid_t			kuid;
	struct pid		*pid;
	struct tow_charge	charge;
	struct tow_region	*region;
	u64			region_id;
	u64			offset;
	u64			bytes;
	u32			rights;
	struct tow_slot		*slot;

	struct list_head	grants;
	u32			grant_count;
	bool			ending;
	struct list_head	dead;

	struct completion	ended;
	u64			skip;
	unsigned int		first;
	unsigned int		count;
	unsigned int		exposed;
	struct tow_exposure	exposures[];
};

/**
 * struct tow_grant - a peer may reach an export
 * @id: its number in the association, from when it is given
 * @rights: bits of enum tow_right: what the peer asked for
 * @mark: in tow_assoc_dir.told: tow_session_mark() of its REVOKE
 * @exported: the export, with a reference until the grant ends; then NULL, and
 *	before the grant is given
 * @assoc: the peer's association, which outlives its grants
 * @of_export: in tow_exported.grants
 * @link: in tow_assoc_dir.revokes, .revoked, .ended or .told, under
 *	tow_assoc_dir.lock; empty: it is not revoked
 * @revoked_at: when it was revoked, in jiffies
 *
 * It ends when the peer has acknowledged the revoke or released it, or when the
 * peer's queue pairs are destroyed and it is revoked or the association is
 * gone.
 */
struct tow_grant {
	u64			id;
	u32			rights;
	u32			mark;
	struct tow_exported	*exported;
	struct tow_assoc	*assoc;
	struct list_head	of_export;
	struct list_head	link;
	unsigned long		revoked_at;
};

/* export.c */
struct tow_exported *tow_exported_new(struct tow_client *client,
				      struct tow_region *region,
				      const struct tow_export *call);
int tow_exported_may_be(struct tow_exported *exported);
void tow_exported_hide(struct tow_exported *exported);
void tow_exported_put(struct tow_exported *exported);
bool tow_exported_claim(struct tow_exported *exported);
void tow_exported_finish(struct tow_exported *exported);
void tow_exported_reap(struct tow_directory *dir);
void tow_exported_check_dead(struct tow_exported *exported);
struct tow_exported *tow_exported_next(struct tow_directory *dir, u64 *cursor);
bool tow_exported_is_of(struct tow_exported *exported,
			struct tow_client *client);
bool tow_exported_of_region(const struct tow_region *region,
			    const struct tow_account *account);
void tow_exported_describe(struct tow_exported *exported,
			   struct tow_export_info *info);
u32 tow_exported_segments(const struct tow_exported *exported);
void tow_exported_segment(struct tow_exported *exported, u32 rights,
			  unsigned int index, struct tow_wire_segment *segment);
void tow_label_of_client(struct tow_label *label, struct tow_client *client,
			 const u8 *name, u32 bytes);

/* serve.c */
int tow_exported_publish(struct tow_exported *exported);
void tow_grant_assoc_init(struct tow_assoc *assoc);
int tow_grant_receive(struct tow_assoc *assoc, u8 type, u32 number,
		      void *body, size_t bytes);
size_t tow_grant_fill(struct tow_session *session, u8 *type, u32 *number,
		      void *body);
void tow_request_drop_all(struct tow_assoc *assoc);

/* grant.c */
struct tow_grant *tow_grant_new(struct tow_assoc *assoc, u32 rights);
u32 tow_grant_give(struct tow_grant *grant, struct tow_exported *exported);
void tow_grant_end(struct tow_grant *grant);
void tow_exported_end(struct tow_exported *exported);
void tow_exported_stop(struct tow_directory *dir);
void tow_exported_end_region(struct tow_device *dev, u64 region_id);
void tow_grant_assoc_apart(struct tow_assoc *assoc);
void tow_grant_assoc_carried(struct tow_assoc *assoc);
int tow_grant_assoc_heard(struct tow_assoc *assoc, u64 last);
void tow_grant_assoc_gone(struct tow_assoc *assoc);
void tow_revoke_assoc_init(struct tow_assoc *assoc);
void tow_revoke_watch(struct tow_device *dev);
size_t tow_revoke_fill(struct tow_session *session, u8 *type,
		       struct tow_wire_grants *body);

#endif /* TOW_EXPORT_H */
