/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TOW_MEMORY_H
#define TOW_MEMORY_H

#include "maint.h"
#include "pool.h"
#include "region.h"

/**
 * struct tow_memory_ops - what those do for memory that use it
 * @end_exports: begin to end all exports of the region with a number, those that are
 *	being made, too; its memory was taken back
 * @look: tell tow_backing_found() of everything that was taken back and is in use on a
 *	queue pair; of the queue pairs of what takes too long nothing is left afterwards
 * @in_use: may what a client has begun still reach a region, or peers by what it has
 *	exported of it?  The client, which @account is of, has ended
 * @revoke_timeout_ms: how long peers have to let go of what is revoked
 */
struct tow_memory_ops {
	void		(*end_exports)(struct tow_device *dev, u64 region_id);
	void		(*look)(struct tow_device *dev, unsigned int look);
	bool		(*in_use)(const struct tow_region *region,
				  const struct tow_account *account);
	unsigned int	(*revoke_timeout_ms)(struct tow_device *dev);
};

/**
 * struct tow_memory - what a device has of memory
 * @ops: those that use it
 * @maint: the maintenance queue pair
 * @pool: slabs
 * @regions: regions
 * @imports: imported memory
 */
struct tow_memory {
	const struct tow_memory_ops	*ops;
	struct tow_maint		maint;
	struct tow_pool			pool;
	struct tow_regions		regions;
	struct tow_imports		imports;
};

/* init.c */
int tow_memory_init(struct tow_device *dev, const struct tow_memory_ops *ops);
void tow_memory_start(struct tow_device *dev);
void tow_memory_quiesce(struct tow_device *dev);
void tow_memory_stop(struct tow_device *dev);
void tow_memory_cleanup(struct tow_device *dev);

/* import_dmabuf.c */
bool tow_backing_found(struct tow_backing *backing, unsigned int look);

#endif /* TOW_MEMORY_H */
