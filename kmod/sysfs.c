// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/class/towline/<ibdev>/.  A new file is one attribute and one line in
 * the table; Documentation/ABI/testing/sysfs-class-towline describes each.
 *
 * The node's driver data is the tow_device, which outlives the node: removing
 * the node waits for readers and writers that are in these functions.
 *
 * Whoever writes needs CAP_NET_ADMIN in the initial user namespace: the file's
 * permissions say who owns it, and the root of a container may.
 */
#include <linux/bits.h>
#include <linux/capability.h>
#include <linux/ctype.h>
#include <linux/device.h>
#include <linux/sysfs.h>

#include "device.h"

/* More than any machine has, and far from what u64 holds. */
#define TOW_BYTES_MAX		BIT_ULL(56)

/* Ten years. */
#define TOW_LINGER_MAX_MAX_S	315360000

/* ---- numbers -------------------------------------------------------------- */

/* The power of two that a suffix stands for; -1: it is none. */
static int tow_sysfs_suffix(char suffix)
{
	switch (tolower(suffix)) {
	case 'k':
		return 10;
	case 'm':
		return 20;
	case 'g':
		return 30;
	default:
		return -1;
	}
}

/*
 * A decimal number, nothing before it, at most a newline after it.  A write may
 * hold a NUL, which ends what the C library's functions see: not here.
 */
static int tow_sysfs_number(const char *buf, size_t count, bool suffixes,
			    u64 max, u64 *result)
{
	char digits[24];
	int shift = 0, ret;
	size_t i;
	u64 value;

	if (count && buf[count - 1] == '\n')
		count--;
	if (count && suffixes && tow_sysfs_suffix(buf[count - 1]) > 0)
		shift = tow_sysfs_suffix(buf[--count]);
	if (!count || count >= sizeof(digits))
		return -EINVAL;
	for (i = 0; i < count; i++) {
		if (!isdigit(buf[i]))
			return -EINVAL;
	}
	memcpy(digits, buf, count);
	digits[count] = '\0';
	ret = kstrtou64(digits, 10, &value);
	if (ret)
		return ret;
	if (value > max >> shift)
		return -ERANGE;
	*result = value << shift;
	return 0;
}

static bool tow_sysfs_may_write(void)
{
	return capable(CAP_NET_ADMIN);
}

/* ---- the device ----------------------------------------------------------- */

static ssize_t incarnation_show(struct device *node,
				struct device_attribute *attr, char *buf)
{
	struct tow_device *dev = dev_get_drvdata(node);

	return sysfs_emit(buf, "%*phN\n", TOW_INCARNATION_BYTES,
			  dev->incarnation);
}
static DEVICE_ATTR_RO(incarnation);

/* ---- the pool ------------------------------------------------------------- */

static void tow_sysfs_pool(struct device *node, struct tow_pool_numbers *numbers)
{
	struct tow_device *dev = dev_get_drvdata(node);

	tow_pool_numbers(&dev->pool, numbers);
}

static ssize_t pool_bytes_show(struct device *node,
			       struct device_attribute *attr, char *buf)
{
	struct tow_pool_numbers numbers;

	tow_sysfs_pool(node, &numbers);
	return sysfs_emit(buf, "%llu\n", numbers.bytes);
}

static ssize_t pool_bytes_store(struct device *node,
				struct device_attribute *attr, const char *buf,
				size_t count)
{
	struct tow_device *dev = dev_get_drvdata(node);
	u64 bytes;
	int ret;

	if (!tow_sysfs_may_write())
		return -EPERM;
	ret = tow_sysfs_number(buf, count, true, TOW_BYTES_MAX, &bytes);
	if (ret)
		return ret;
	if (!tow_device_enter(dev))
		return -ENODEV;
	ret = tow_pool_resize(&dev->pool, bytes);
	tow_device_leave(dev);
	return ret ?: count;
}
static DEVICE_ATTR_RW(pool_bytes);

static ssize_t pool_used_bytes_show(struct device *node,
				    struct device_attribute *attr, char *buf)
{
	struct tow_pool_numbers numbers;

	tow_sysfs_pool(node, &numbers);
	return sysfs_emit(buf, "%llu\n", numbers.used_bytes);
}
static DEVICE_ATTR_RO(pool_used_bytes);

static ssize_t pool_high_water_bytes_show(struct device *node,
					  struct device_attribute *attr,
					  char *buf)
{
	struct tow_pool_numbers numbers;

	tow_sysfs_pool(node, &numbers);
	return sysfs_emit(buf, "%llu\n", numbers.high_water_bytes);
}
static DEVICE_ATTR_RO(pool_high_water_bytes);

static ssize_t slab_bytes_show(struct device *node,
			       struct device_attribute *attr, char *buf)
{
	struct tow_device *dev = dev_get_drvdata(node);

	return sysfs_emit(buf, "%llu\n", dev->pool.large_bytes);
}
static DEVICE_ATTR_RO(slab_bytes);

/* ---- limits --------------------------------------------------------------- */

static ssize_t mr_used_show(struct device *node, struct device_attribute *attr,
			    char *buf)
{
	struct tow_device *dev = dev_get_drvdata(node);

	return sysfs_emit(buf, "%llu\n", tow_limits_mrs(&dev->limits));
}
static DEVICE_ATTR_RO(mr_used);

/**
 * struct tow_limit_attr - a file that holds a limit
 * @attr: the file
 * @level: whose limit
 * @resource: of what
 */
struct tow_limit_attr {
	struct device_attribute	attr;
	enum tow_level		level;
	enum tow_resource	resource;
};

static ssize_t tow_limit_show(struct device *node,
			      struct device_attribute *attr, char *buf)
{
	struct tow_limit_attr *limit = container_of(attr, struct tow_limit_attr,
						    attr);
	struct tow_device *dev = dev_get_drvdata(node);
	u64 max = tow_limits_get(&dev->limits, limit->level, limit->resource);

	if (max == TOW_UNLIMITED)
		return sysfs_emit(buf, "max\n");
	return sysfs_emit(buf, "%llu\n", max);
}

/* The most that may be written: of the device's MRs, what the hardware has. */
static u64 tow_limit_ceiling(struct tow_device *dev,
			     struct tow_limit_attr *limit)
{
	u64 ceiling = TOW_BYTES_MAX;

	if (limit->level == TOW_LEVEL_DEVICE &&
	    limit->resource == TOW_RES_MRS && tow_device_enter(dev)) {
		ceiling = dev->ibdev->attrs.max_mr;
		tow_device_leave(dev);
	}
	return ceiling;
}

static ssize_t tow_limit_store(struct device *node,
			       struct device_attribute *attr, const char *buf,
			       size_t count)
{
	struct tow_limit_attr *limit = container_of(attr, struct tow_limit_attr,
						    attr);
	struct tow_device *dev = dev_get_drvdata(node);
	u64 ceiling = tow_limit_ceiling(dev, limit);
	u64 max;
	int ret;

	if (!tow_sysfs_may_write())
		return -EPERM;
	if (sysfs_streq(buf, "max") && strlen(buf) == count) {
		max = ceiling == TOW_BYTES_MAX ? TOW_UNLIMITED : ceiling;
	} else {
		ret = tow_sysfs_number(buf, count,
				       limit->resource == TOW_RES_BYTES,
				       ceiling, &max);
		if (ret)
			return ret;
	}
	tow_limits_set(&dev->limits, limit->level, limit->resource, max);
	return count;
}

#define TOW_LIMIT_ATTR(_name, _level, _resource)			\
	static struct tow_limit_attr tow_limit_attr_##_name = {		\
		.attr = __ATTR(_name, 0644, tow_limit_show,		\
			       tow_limit_store),			\
		.level = _level,					\
		.resource = _resource,					\
	}

TOW_LIMIT_ATTR(client_bytes_limit, TOW_LEVEL_CLIENT, TOW_RES_BYTES);
TOW_LIMIT_ATTR(client_mr_limit, TOW_LEVEL_CLIENT, TOW_RES_MRS);
TOW_LIMIT_ATTR(client_region_limit, TOW_LEVEL_CLIENT, TOW_RES_REGIONS);
TOW_LIMIT_ATTR(user_bytes_limit, TOW_LEVEL_USER, TOW_RES_BYTES);
TOW_LIMIT_ATTR(user_mr_limit, TOW_LEVEL_USER, TOW_RES_MRS);
TOW_LIMIT_ATTR(user_region_limit, TOW_LEVEL_USER, TOW_RES_REGIONS);
TOW_LIMIT_ATTR(mr_limit, TOW_LEVEL_DEVICE, TOW_RES_MRS);
TOW_LIMIT_ATTR(device_region_limit, TOW_LEVEL_DEVICE, TOW_RES_REGIONS);

static ssize_t linger_max_s_show(struct device *node,
				 struct device_attribute *attr, char *buf)
{
	struct tow_device *dev = dev_get_drvdata(node);

	return sysfs_emit(buf, "%u\n", READ_ONCE(dev->regions.linger_max_s));
}

static ssize_t linger_max_s_store(struct device *node,
				  struct device_attribute *attr,
				  const char *buf, size_t count)
{
	struct tow_device *dev = dev_get_drvdata(node);
	u64 seconds;
	int ret;

	if (!tow_sysfs_may_write())
		return -EPERM;
	ret = tow_sysfs_number(buf, count, false, TOW_LINGER_MAX_MAX_S,
			       &seconds);
	if (ret)
		return ret;
	WRITE_ONCE(dev->regions.linger_max_s, seconds);
	return count;
}
static DEVICE_ATTR_RW(linger_max_s);

static struct attribute *tow_sysfs_attrs[] = {
	&dev_attr_incarnation.attr,
	&dev_attr_pool_bytes.attr,
	&dev_attr_pool_used_bytes.attr,
	&dev_attr_pool_high_water_bytes.attr,
	&dev_attr_slab_bytes.attr,
	&dev_attr_mr_used.attr,
	&tow_limit_attr_mr_limit.attr.attr,
	&tow_limit_attr_client_bytes_limit.attr.attr,
	&tow_limit_attr_client_mr_limit.attr.attr,
	&tow_limit_attr_client_region_limit.attr.attr,
	&tow_limit_attr_user_bytes_limit.attr.attr,
	&tow_limit_attr_user_mr_limit.attr.attr,
	&tow_limit_attr_user_region_limit.attr.attr,
	&tow_limit_attr_device_region_limit.attr.attr,
	&dev_attr_linger_max_s.attr,
	NULL
};

static const struct attribute_group tow_sysfs_group = {
	.attrs = tow_sysfs_attrs,
};

/* ---- stats/ --------------------------------------------------------------- */

/**
 * struct tow_stat_attr - a file that holds a count
 * @attr: the file
 * @stat: of what
 */
struct tow_stat_attr {
	struct device_attribute	attr;
	enum tow_stat		stat;
};

static ssize_t tow_stat_show(struct device *node, struct device_attribute *attr,
			     char *buf)
{
	struct tow_stat_attr *stat = container_of(attr, struct tow_stat_attr,
						  attr);
	struct tow_device *dev = dev_get_drvdata(node);

	return sysfs_emit(buf, "%lld\n",
			  atomic64_read(&dev->stats[stat->stat]));
}

#define TOW_STAT_ATTR(_name, _stat)					\
	static struct tow_stat_attr tow_stat_attr_##_name = {		\
		.attr = __ATTR(_name, 0444, tow_stat_show, NULL),	\
		.stat = _stat,						\
	}

TOW_STAT_ATTR(regions, TOW_STAT_REGIONS);
TOW_STAT_ATTR(dma_maps, TOW_STAT_DMA_MAPS);
TOW_STAT_ATTR(dma_unmaps, TOW_STAT_DMA_UNMAPS);
TOW_STAT_ATTR(registrations, TOW_STAT_REGISTRATIONS);
TOW_STAT_ATTR(invalidations, TOW_STAT_INVALIDATIONS);
TOW_STAT_ATTR(retired_slabs, TOW_STAT_RETIRED_SLABS);
TOW_STAT_ATTR(quota_refusals, TOW_STAT_QUOTA_REFUSALS);
TOW_STAT_ATTR(pool_refusals, TOW_STAT_POOL_REFUSALS);
TOW_STAT_ATTR(memory_refusals, TOW_STAT_MEMORY_REFUSALS);

static ssize_t slabs_show(struct device *node, struct device_attribute *attr,
			  char *buf)
{
	struct tow_pool_numbers numbers;

	tow_sysfs_pool(node, &numbers);
	return sysfs_emit(buf, "%lu\n", numbers.slabs[TOW_SLAB_SMALL] +
			  numbers.slabs[TOW_SLAB_LARGE]);
}
static DEVICE_ATTR_RO(slabs);

static ssize_t small_slabs_show(struct device *node,
				struct device_attribute *attr, char *buf)
{
	struct tow_pool_numbers numbers;

	tow_sysfs_pool(node, &numbers);
	return sysfs_emit(buf, "%lu\n", numbers.slabs[TOW_SLAB_SMALL]);
}
static DEVICE_ATTR_RO(small_slabs);

static ssize_t free_slabs_show(struct device *node,
			       struct device_attribute *attr, char *buf)
{
	struct tow_pool_numbers numbers;

	tow_sysfs_pool(node, &numbers);
	return sysfs_emit(buf, "%lu\n", numbers.free);
}
static DEVICE_ATTR_RO(free_slabs);

static ssize_t dirty_slabs_show(struct device *node,
				struct device_attribute *attr, char *buf)
{
	struct tow_pool_numbers numbers;

	tow_sysfs_pool(node, &numbers);
	return sysfs_emit(buf, "%lu\n", numbers.dirty);
}
static DEVICE_ATTR_RO(dirty_slabs);

static ssize_t draining_slabs_show(struct device *node,
				   struct device_attribute *attr, char *buf)
{
	struct tow_pool_numbers numbers;

	tow_sysfs_pool(node, &numbers);
	return sysfs_emit(buf, "%lu\n", numbers.draining);
}
static DEVICE_ATTR_RO(draining_slabs);

static struct attribute *tow_sysfs_stats[] = {
	&dev_attr_slabs.attr,
	&dev_attr_small_slabs.attr,
	&dev_attr_free_slabs.attr,
	&dev_attr_dirty_slabs.attr,
	&dev_attr_draining_slabs.attr,
	&tow_stat_attr_regions.attr.attr,
	&tow_stat_attr_dma_maps.attr.attr,
	&tow_stat_attr_dma_unmaps.attr.attr,
	&tow_stat_attr_registrations.attr.attr,
	&tow_stat_attr_invalidations.attr.attr,
	&tow_stat_attr_retired_slabs.attr.attr,
	&tow_stat_attr_quota_refusals.attr.attr,
	&tow_stat_attr_pool_refusals.attr.attr,
	&tow_stat_attr_memory_refusals.attr.attr,
	NULL
};

static const struct attribute_group tow_sysfs_stats_group = {
	.name = "stats",
	.attrs = tow_sysfs_stats,
};

const struct attribute_group *tow_sysfs_groups[] = {
	&tow_sysfs_group,
	&tow_sysfs_stats_group,
	NULL
};
