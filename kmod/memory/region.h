/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Regions: what clients have.  Documentation/design/memory.md says how long
 * they live.
 */
#ifndef TOW_REGION_H
#define TOW_REGION_H

#include <linux/hashtable.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/math64.h>
#include <linux/mutex.h>
#include <linux/uidgid.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "client.h"
#include "limits.h"
#include "slab.h"
#include "uapi/towline.h"

struct dma_buf;
struct file;
struct pid;
struct tow_device;
struct user_namespace;

/**
 * struct tow_region - memory of the pool, or imported
 * @refs: held by each handle, each descriptor (hence each mapping), and by the
 *	named table while the region lingers
 * @dev: the device, with a reference
 * @id: its number on the device
 * @bytes: as asked for
 * @map_bytes: what can be mapped
 * @flags: those of enum tow_region_flag that never change
 * @fds: descriptors that exist
 * @charge: what its client is charged
 * @backing: where its memory is from; NULL: the pool
 * @name: its name
 * @kuid: whose it is, and the name
 * @key: whom it is charged to; stays so when it is taken over
 * @user_ns: in which user namespace, with a reference
 * @job_id: in which job
 * @owner: the client that has it; NULL: ended.  This and the following are
 *	under tow_regions.lock
 * @pid: of its client, with a reference
 * @cgroup_id: of its client
 * @hashed: in tow_regions.named
 * @lingering: it is there only for somebody to take it over; whoever clears
 *	this takes over the table's reference
 * @linger_s: seconds that it may be so
 * @linger_end: when that is over, in jiffies
 * @linger_work: then ends it
 * @rcu: frees it
 * @skip: bytes of the first slab that come before the region: an import begins
 *	where the program said, not where its page does
 * @slab_bytes: of each slab, except that an import's last one may be smaller
 * @slab_count: how many slabs
 * @slabs: in the order of the region's bytes
 */
struct tow_region {
	struct kref		refs;
	struct tow_device	*dev;
	u64			id;
	u64			bytes;
	u64			map_bytes;
	u32			flags;
	atomic_t		fds;
	struct tow_charge	charge;
	struct tow_backing	*backing;
	char			name[TOW_REGION_NAME_MAX];
	kuid_t			kuid;
	kuid_t			key;
	struct user_namespace	*user_ns;
	u8			job_id[TOW_JOB_ID_BYTES];

	struct tow_client	*owner;
	struct pid		*pid;
	u64			cgroup_id;
	struct hlist_node	hashed;
	bool			lingering;
	u32			linger_s;
	unsigned long		linger_end;
	struct delayed_work	linger_work;

	struct rcu_head		rcu;

	u64			skip;
	u64			slab_bytes;
	unsigned int		slab_count;
	struct tow_slab		*slabs[];
};

#define TOW_REGIONS_HASH_BITS	8

/**
 * struct tow_regions - a device's regions
 * @lock: protects @named, @stopped and what is marked so in struct tow_region
 * @named: the persistent ones, by user, job and name
 * @linger_max_s: what the administrator allows
 * @stopped: the device is going: nothing lingers any more
 * @by_id: every region, without a reference; has a lock of its own
 * @last_id: of the youngest; under the lock of @by_id
 */
struct tow_regions {
	/* protects named, linger_max_s, stopped and parts of tow_region */
	struct mutex		lock;
	DECLARE_HASHTABLE(named, TOW_REGIONS_HASH_BITS);
	u32			linger_max_s;
	bool			stopped;
	struct xarray		by_id;
	u64			last_id;
};

/**
 * struct tow_region_handle - a client's way to a region
 * @handle: in the client's table
 * @region: with a reference
 * @flags: TOW_REGION_READONLY or 0
 * @owner: the client made the region, or took it over
 * @charge: if it did not: one region
 */
struct tow_region_handle {
	struct tow_handle	handle;
	struct tow_region	*region;
	u32			flags;
	bool			owner;
	struct tow_charge	charge;
};

extern const struct tow_handle_ops tow_region_handle_ops;

/**
 * tow_region_aim - where does the RDMA device see a region's byte?
 * @region: the region; the device is not gone
 * @offset: of the byte in the region
 * @dma: where to
 *
 * Return: how many bytes from there on it sees one after the other.
 */
static inline u64 tow_region_aim(const struct tow_region *region, u64 offset,
				 u64 *dma)
{
	const struct tow_chunk *chunk;
	const struct tow_slab *slab;
	u64 rest;

	slab = region->slabs[div64_u64_rem(region->skip + offset,
					   region->slab_bytes, &rest)];
	chunk = tow_slab_chunk(slab, rest);
	rest -= chunk->at;
	*dma = chunk->dma + rest;
	return chunk->bytes - rest;
}

/**
 * tow_region_invalid - has a region's memory been taken back?
 * @region: the region
 *
 * Return: true: it is an import's, whose exporter has asked for it.
 */
static inline bool tow_region_invalid(const struct tow_region *region)
{
	return unlikely(region->backing) &&
	       tow_backing_invalid(region->backing);
}

/* region.c */
void tow_regions_init(struct tow_regions *regions);
void tow_regions_stop(struct tow_regions *regions);
void tow_regions_cleanup(struct tow_regions *regions);
struct tow_region *tow_region_alloc(struct tow_client *client,
				    unsigned int slab_count,
				    const char name[TOW_REGION_NAME_MAX]);
int tow_region_publish(struct tow_region *region);
struct tow_region *tow_region_new(struct tow_client *client, u64 bytes,
				  u32 flags, u32 linger_s,
				  const char name[TOW_REGION_NAME_MAX]);
struct tow_region *tow_client_get_region(struct tow_client *client, u64 number,
					 u32 *flags);
void tow_region_get(struct tow_region *region);
void tow_region_get_many(struct tow_region *region, u32 count);
bool tow_region_try_get(struct tow_region *region);
void tow_region_put(struct tow_region *region);
void tow_region_put_many(struct tow_region *region, u32 count);
void tow_region_orphan(struct tow_region *region);
void tow_region_disown(struct tow_region *region);
struct tow_region *tow_region_take_over(struct tow_client *client,
					const char name[TOW_REGION_NAME_MAX],
					struct tow_account **payer);
void tow_region_give_up(struct tow_region *region, struct tow_account *payer);
void tow_region_taken(struct tow_region *region, struct tow_client *client,
		      u32 linger_s, struct tow_account *payer);
void tow_region_describe(struct tow_region *region,
			 struct tow_region_info *info);
struct tow_region *tow_region_next(struct tow_regions *regions, u64 *cursor);
bool tow_region_is_of(struct tow_region *region, struct tow_client *client);

/* The page of a region's slab @index at @offset, in bytes; not of another device's. */
static inline struct page *tow_region_page(const struct tow_region *region,
					   unsigned int index, u64 offset)
{
	return region->backing ?
	       region->backing->ops->page(region, index, offset) :
	       tow_slab_page(region->slabs[index], offset);
}

/* dmabuf.c */
struct dma_buf *tow_region_make_dmabuf(struct tow_region *region, bool readonly);
struct tow_region *tow_region_from_dmabuf(struct dma_buf *dmabuf,
					  bool *readonly);

struct tow_region *towk_region_get(int fd);
void towk_region_put(struct tow_region *region);

/* ioctl.c */
long tow_region_call(struct tow_client *client, unsigned int cmd,
		     void __user *user);

/* import_user.c */
struct tow_region *tow_import_user(struct tow_client *client, u64 address,
				   u64 bytes, bool readonly);

/* import_dmabuf.c */
struct tow_region *tow_import_dmabuf(struct tow_client *client,
				     struct dma_buf *dmabuf, u64 offset,
				     u64 bytes, bool readonly);

/**
 * struct tow_imports - a device's imports
 * @dev: the device
 * @lock: protects @list and @leaving
 * @list: those that are on the RDMA device
 * @leaving: those that are being taken off
 * @invalid: those that were taken back, until @quiesce takes them from here; under @lock
 * @quiesce: ends their use; holds the device while it is queued
 * @ending: those whose end has begun
 * @wait: for one that has been taken off, or has ended
 */
struct tow_imports {
	struct tow_device	*dev;
	/* protects list, leaving, invalid */
	struct mutex		lock;
	struct list_head	list;
	unsigned int		leaving;
	struct list_head	invalid;
	struct work_struct	quiesce;
	atomic_t		ending;
	wait_queue_head_t	wait;
};

void tow_imports_init(struct tow_imports *imports, struct tow_device *dev,
		      work_func_t quiesce);
void tow_imports_stop(struct tow_imports *imports);

#endif /* TOW_REGION_H */
