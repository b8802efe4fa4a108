// SPDX-License-Identifier: GPL-2.0
/*
 * How a device's memory begins and ends; main.c calls these, in this order.
 */
#include <linux/slab.h>

#include "internal.h"

/**
 * tow_memory_init - make what a device has of memory
 * @dev: the device, with its RDMA device and limits
 * @ops: those that use it
 *
 * Return: 0 or -ENOMEM.
 */
int tow_memory_init(struct tow_device *dev, const struct tow_memory_ops *ops)
{
	struct tow_memory *memory = kzalloc(sizeof(*memory), GFP_KERNEL);

	if (!memory)
		return -ENOMEM;
	memory->ops = ops;
	tow_maint_init(&memory->maint, dev);
	tow_pool_init(&memory->pool, dev,
		      dev->ibdev->attrs.max_fast_reg_page_list_len);
	tow_regions_init(&memory->regions);
	tow_imports_init(&memory->imports, dev, tow_imports_quiesce);
	dev->memory = memory;
	return 0;
}

/**
 * tow_memory_start - memory can be registered from now on
 * @dev: the device, with its protection domain
 */
void tow_memory_start(struct tow_device *dev)
{
	tow_maint_start(&dev->memory->maint);
}

/**
 * tow_memory_quiesce - nobody is to wait for registrations any more
 * @dev: the device, going
 */
void tow_memory_quiesce(struct tow_device *dev)
{
	tow_maint_stop_begin(&dev->memory->maint);
}

/**
 * tow_memory_stop - nothing is left on the RDMA device
 * @dev: the device, without users, peers and exports
 *
 * Regions stay with those who have them, as plain memory.
 */
void tow_memory_stop(struct tow_device *dev)
{
	tow_regions_stop(&dev->memory->regions);
	tow_pool_stop(&dev->memory->pool);
	tow_imports_stop(&dev->memory->imports);
	tow_maint_stop(&dev->memory->maint);
}

/**
 * tow_memory_cleanup - undo tow_memory_init()
 * @dev: the device, without regions
 */
void tow_memory_cleanup(struct tow_device *dev)
{
	tow_regions_cleanup(&dev->memory->regions);
	kfree(dev->memory);
}

/**
 * tow_memory_broken - the RDMA device has failed, as it says
 * @dev: the device
 * @error: how, a negative errno
 *
 * May be called in any context, with the provider's locks held.
 */
void tow_memory_broken(struct tow_device *dev, int error)
{
	tow_maint_broken(&dev->memory->maint, error);
}

/**
 * tow_memory_changed - a port or an address has changed, or is to be another
 * @dev: the device
 *
 * May be called in any context.
 */
void tow_memory_changed(struct tow_device *dev)
{
	tow_maint_changed(&dev->memory->maint);
}

/**
 * tow_memory_describe - fill in what QUERY tells of the maintenance queue pair
 * @dev: the device
 * @query: where to
 */
void tow_memory_describe(struct tow_device *dev, struct tow_query *query)
{
	tow_maint_describe(&dev->memory->maint, query);
}

/**
 * tow_memory_lacks_atomics - did the device turn out to have no atomics for us?
 * @dev: the device, which may be going
 *
 * Return: whether; false if it was not tried, whatever its driver says.
 */
bool tow_memory_lacks_atomics(struct tow_device *dev)
{
	return tow_maint_lacks(&dev->memory->maint, TOW_LACKS_ATOMICS);
}

/**
 * tow_memory_linger_max_s - how long regions may linger, as the administrator allows
 * @dev: the device
 *
 * Return: where that is, in seconds; read and written in one go.
 */
u32 *tow_memory_linger_max_s(struct tow_device *dev)
{
	return &dev->memory->regions.linger_max_s;
}
