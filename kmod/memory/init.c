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
	tow_keys_init(&memory->keys);
	tow_pool_init(&memory->pool, dev,
		      dev->ibdev->attrs.max_fast_reg_page_list_len);
	tow_regions_init(&memory->regions);
	tow_imports_init(&memory->imports, dev, tow_imports_quiesce);
	dev->memory = memory;
	dev->key_invalidated = tow_keys_invalidated;
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
 * tow_memory_stop - nothing is left on the RDMA device
 * @dev: the device, going, without events, users, peers and exports
 *
 * Regions stay with those who have them, as plain memory.
 */
void tow_memory_stop(struct tow_device *dev)
{
	tow_keys_stop(&dev->memory->keys);
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
	/* They are empty, but may have room that something did not get. */
	xa_destroy(&dev->memory->regions.by_id);
	xa_destroy(&dev->memory->keys.slabs);
	kfree(dev->memory);
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
