// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/class/towline/<ibdev>/.  A new file is one attribute (for most there is a
 * macro: TOW_SETTING_ATTR() for a number with bounds, TOW_STAT_ATTR() for what is
 * counted as it happens, TOW_POOL_ATTR(), TOW_LIMIT_ATTR()) and one line in the
 * table; Documentation/ABI/testing/sysfs-class-towline describes each.
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

#include "core/core.h"
#include "memory/memory.h"
#include "notify.h"
#include "queue.h"
#include "root.h"
#include "sysfs.h"

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

/**
 * tow_sysfs_number - read what was written to a file that takes a number
 * @buf: what was written
 * @count: how many bytes
 * @suffixes: k, m or g may follow
 * @max: the most that it may be
 * @result: where to
 *
 * A decimal number, nothing before it, at most a newline after it.  A write may
 * hold a NUL, which ends what the C library's functions see: not here.
 *
 * Return: 0; -EINVAL: no number; -ERANGE: more than @max.
 */
int tow_sysfs_number(const char *buf, size_t count, bool suffixes, u64 max,
		     u64 *result)
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

/**
 * tow_sysfs_may_write - may the caller change settings?
 *
 * Return: whether; -EPERM is for those who may not.
 */
bool tow_sysfs_may_write(void)
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

/**
 * struct tow_pool_attr - a file that holds one of the pool's numbers
 * @attr: the file
 * @number: which
 */
struct tow_pool_attr {
	struct device_attribute	attr;
	u64 (*number)(const struct tow_pool_numbers *numbers);
};

static ssize_t tow_pool_show(struct device *node, struct device_attribute *attr,
			     char *buf)
{
	struct tow_pool_attr *file = container_of(attr, struct tow_pool_attr,
						  attr);
	struct tow_device *dev = dev_get_drvdata(node);
	struct tow_pool_numbers numbers;

	tow_pool_numbers(dev, &numbers);
	return sysfs_emit(buf, "%llu\n", file->number(&numbers));
}

/* @_value: in terms of "numbers" */
#define TOW_POOL_ATTR(_name, _mode, _store, _value)			\
	static u64 tow_pool_number_##_name(const struct tow_pool_numbers *numbers) \
	{								\
		return _value;						\
	}								\
	static struct tow_pool_attr tow_pool_attr_##_name = {		\
		.attr = __ATTR(_name, _mode, tow_pool_show, _store),	\
		.number = tow_pool_number_##_name,			\
	}

static ssize_t tow_sysfs_resize(struct device *node,
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
	ret = tow_pool_resize(dev, bytes);
	tow_device_leave(dev);
	return ret ?: count;
}
TOW_POOL_ATTR(pool_bytes, 0644, tow_sysfs_resize, numbers->bytes);
TOW_POOL_ATTR(pool_used_bytes, 0444, NULL, numbers->used_bytes);
TOW_POOL_ATTR(pool_high_water_bytes, 0444, NULL, numbers->high_water_bytes);

TOW_POOL_ATTR(slab_bytes, 0444, NULL, numbers->large_bytes);

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

/*
 * The most that may be written: of the device's MRs, what the hardware has.
 * False: the device is going, and with it who knows.
 */
static bool tow_limit_ceiling(struct tow_device *dev,
			      struct tow_limit_attr *limit, u64 *ceiling)
{
	*ceiling = TOW_BYTES_MAX;
	if (limit->level != TOW_LEVEL_DEVICE ||
	    limit->resource != TOW_RES_MRS)
		return true;
	if (!tow_device_enter(dev))
		return false;
	*ceiling = dev->ibdev->attrs.max_mr;
	tow_device_leave(dev);
	return true;
}

static ssize_t tow_limit_store(struct device *node,
			       struct device_attribute *attr, const char *buf,
			       size_t count)
{
	struct tow_limit_attr *limit = container_of(attr, struct tow_limit_attr,
						    attr);
	struct tow_device *dev = dev_get_drvdata(node);
	u64 ceiling, max;
	int ret;

	if (!tow_sysfs_may_write())
		return -EPERM;
	if (!tow_limit_ceiling(dev, limit, &ceiling))
		return -ENODEV;
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
TOW_LIMIT_ATTR(client_export_limit, TOW_LEVEL_CLIENT, TOW_RES_EXPORTS);
TOW_LIMIT_ATTR(client_queue_entries_limit, TOW_LEVEL_CLIENT,
	       TOW_RES_QUEUE_ENTRIES);
TOW_LIMIT_ATTR(user_bytes_limit, TOW_LEVEL_USER, TOW_RES_BYTES);
TOW_LIMIT_ATTR(user_mr_limit, TOW_LEVEL_USER, TOW_RES_MRS);
TOW_LIMIT_ATTR(user_region_limit, TOW_LEVEL_USER, TOW_RES_REGIONS);
TOW_LIMIT_ATTR(user_export_limit, TOW_LEVEL_USER, TOW_RES_EXPORTS);
TOW_LIMIT_ATTR(user_queue_entries_limit, TOW_LEVEL_USER,
	       TOW_RES_QUEUE_ENTRIES);
TOW_LIMIT_ATTR(mr_limit, TOW_LEVEL_DEVICE, TOW_RES_MRS);
TOW_LIMIT_ATTR(device_region_limit, TOW_LEVEL_DEVICE, TOW_RES_REGIONS);
TOW_LIMIT_ATTR(export_limit, TOW_LEVEL_DEVICE, TOW_RES_EXPORTS);
TOW_LIMIT_ATTR(queue_entries_limit, TOW_LEVEL_DEVICE, TOW_RES_QUEUE_ENTRIES);
TOW_LIMIT_ATTR(poller_limit, TOW_LEVEL_DEVICE, TOW_RES_POLLERS);

/* ---- settings ------------------------------------------------------------- */

/**
 * tow_setting_show - read a number of the administrator's
 * @node: the device's node
 * @attr: in a struct tow_setting_attr
 * @buf: where to
 *
 * Return: bytes written there.
 */
ssize_t tow_setting_show(struct device *node, struct device_attribute *attr,
			 char *buf)
{
	struct tow_setting_attr *setting =
		container_of(attr, struct tow_setting_attr, attr);

	return sysfs_emit(buf, "%u\n",
			  READ_ONCE(*setting->field(dev_get_drvdata(node))));
}

/**
 * tow_setting_store - write it
 * @node: the device's node
 * @attr: in a struct tow_setting_attr
 * @buf: what was written
 * @count: how many bytes
 *
 * Return: @count; -EPERM: see tow_sysfs_may_write(); -EINVAL: no number;
 * -ERANGE: not within the bounds; or what the setting's own function says.
 */
ssize_t tow_setting_store(struct device *node, struct device_attribute *attr,
			  const char *buf, size_t count)
{
	struct tow_setting_attr *setting =
		container_of(attr, struct tow_setting_attr, attr);
	struct tow_device *dev = dev_get_drvdata(node);
	u64 value;
	int ret;

	if (!tow_sysfs_may_write())
		return -EPERM;
	ret = tow_sysfs_number(buf, count, false, setting->max, &value);
	if (ret)
		return ret;
	if (value < setting->min)
		return -ERANGE;
	if (setting->set)
		return setting->set(dev, value) ?: count;
	WRITE_ONCE(*setting->field(dev), value);
	return count;
}

/* @_field: in terms of "dev" */
TOW_SETTING_ATTR(linger_max_s, *tow_memory_linger_max_s(dev), 0, TOW_LINGER_MAX_MAX_S);

/* Takes effect at once, but for peers: they stay with theirs as long as it is up. */
static int tow_sysfs_want_port(struct tow_device *dev, u32 port)
{
	int ret = 0;

	if (!tow_device_enter(dev))
		return -ENODEV;
	if (port && (!rdma_is_port_valid(dev->ibdev, port) ||
		     !rdma_ib_or_roce(dev->ibdev, port))) {
		ret = -ERANGE;
	} else {
		WRITE_ONCE(dev->port_wanted, port);
		tow_memory_changed(dev);
	}
	tow_device_leave(dev);
	return ret;
}
TOW_SETTING_ATTR_SET(port, dev->port_wanted, 0, U32_MAX, tow_sysfs_want_port);

TOW_SETTING_ATTR(inflight_bytes, dev->queues->inflight_bytes, SZ_64K, SZ_1G);

TOW_SETTING_ATTR(stripe_bytes, dev->queues->stripe_bytes, 0, SZ_1G);

TOW_SETTING_ATTR(op_stall_ms, dev->queues->op_stall_ms, 0, TOW_OP_STALL_MAX_MS);

TOW_SETTING_ATTR(srq_depth, dev->notify->srq_depth, TOW_SRQ_DEPTH_MIN,
		 TOW_SRQ_DEPTH_MAX);

static struct attribute *tow_sysfs_attrs[] = {
	&dev_attr_incarnation.attr,
	&tow_pool_attr_pool_bytes.attr.attr,
	&tow_pool_attr_pool_used_bytes.attr.attr,
	&tow_pool_attr_pool_high_water_bytes.attr.attr,
	&tow_pool_attr_slab_bytes.attr.attr,
	&dev_attr_mr_used.attr,
	&tow_limit_attr_mr_limit.attr.attr,
	&tow_limit_attr_client_bytes_limit.attr.attr,
	&tow_limit_attr_client_mr_limit.attr.attr,
	&tow_limit_attr_client_region_limit.attr.attr,
	&tow_limit_attr_client_export_limit.attr.attr,
	&tow_limit_attr_client_queue_entries_limit.attr.attr,
	&tow_limit_attr_user_bytes_limit.attr.attr,
	&tow_limit_attr_user_mr_limit.attr.attr,
	&tow_limit_attr_user_region_limit.attr.attr,
	&tow_limit_attr_user_export_limit.attr.attr,
	&tow_limit_attr_user_queue_entries_limit.attr.attr,
	&tow_limit_attr_device_region_limit.attr.attr,
	&tow_limit_attr_export_limit.attr.attr,
	&tow_limit_attr_queue_entries_limit.attr.attr,
	&tow_limit_attr_poller_limit.attr.attr,
	&tow_setting_attr_port.attr.attr,
	&tow_setting_attr_inflight_bytes.attr.attr,
	&tow_setting_attr_stripe_bytes.attr.attr,
	&tow_setting_attr_op_stall_ms.attr.attr,
	&tow_setting_attr_srq_depth.attr.attr,
	&tow_setting_attr_linger_max_s.attr.attr,
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
TOW_STAT_ATTR(peers, TOW_STAT_PEERS);
TOW_STAT_ATTR(sessions, TOW_STAT_SESSIONS);
TOW_STAT_ATTR(handshakes, TOW_STAT_HANDSHAKES);
TOW_STAT_ATTR(auth_refused, TOW_STAT_AUTH_REFUSED);
TOW_STAT_ATTR(hostile_messages, TOW_STAT_HOSTILE);
TOW_STAT_ATTR(evictions, TOW_STAT_EVICTIONS);
TOW_STAT_ATTR(exports, TOW_STAT_EXPORTS);
TOW_STAT_ATTR(grants, TOW_STAT_GRANTS);
TOW_STAT_ATTR(remotes, TOW_STAT_REMOTES);
TOW_STAT_ATTR(resolves, TOW_STAT_RESOLVES);
TOW_STAT_ATTR(revokes, TOW_STAT_REVOKES);
TOW_STAT_ATTR(revokes_late, TOW_STAT_REVOKES_LATE);
TOW_STAT_ATTR(queues, TOW_STAT_QUEUES);
TOW_STAT_ATTR(pollers, TOW_STAT_POLLERS);
TOW_STAT_ATTR(poller_wakeups, TOW_STAT_POLLER_WAKEUPS);
TOW_STAT_ATTR(timeouts, TOW_STAT_TIMEOUTS);
TOW_STAT_ATTR(stalls, TOW_STAT_STALLS);
TOW_STAT_ATTR(striped, TOW_STAT_STRIPED);
TOW_STAT_ATTR(striped_parts, TOW_STAT_STRIPED_PARTS);
TOW_STAT_ATTR(replayed, TOW_STAT_REPLAYED);
TOW_STAT_ATTR(copied_bytes, TOW_STAT_COPIED_BYTES);
TOW_STAT_ATTR(notifications, TOW_STAT_NOTIFICATIONS);
TOW_STAT_ATTR(notifications_sent, TOW_STAT_NOTIFICATIONS_SENT);
TOW_STAT_ATTR(notifications_ignored, TOW_STAT_NOTIFICATIONS_IGNORED);

TOW_POOL_ATTR(slabs, 0444, NULL, numbers->slabs);
TOW_POOL_ATTR(small_slabs, 0444, NULL, numbers->small);
TOW_POOL_ATTR(free_slabs, 0444, NULL, numbers->free);
TOW_POOL_ATTR(dirty_slabs, 0444, NULL, numbers->dirty);
TOW_POOL_ATTR(draining_slabs, 0444, NULL, numbers->draining);

static struct attribute *tow_sysfs_stats[] = {
	&tow_pool_attr_slabs.attr.attr,
	&tow_pool_attr_small_slabs.attr.attr,
	&tow_pool_attr_free_slabs.attr.attr,
	&tow_pool_attr_dirty_slabs.attr.attr,
	&tow_pool_attr_draining_slabs.attr.attr,
	&tow_stat_attr_regions.attr.attr,
	&tow_stat_attr_dma_maps.attr.attr,
	&tow_stat_attr_dma_unmaps.attr.attr,
	&tow_stat_attr_registrations.attr.attr,
	&tow_stat_attr_invalidations.attr.attr,
	&tow_stat_attr_retired_slabs.attr.attr,
	&tow_stat_attr_quota_refusals.attr.attr,
	&tow_stat_attr_pool_refusals.attr.attr,
	&tow_stat_attr_memory_refusals.attr.attr,
	&tow_stat_attr_peers.attr.attr,
	&tow_stat_attr_sessions.attr.attr,
	&tow_stat_attr_handshakes.attr.attr,
	&tow_stat_attr_auth_refused.attr.attr,
	&tow_stat_attr_hostile_messages.attr.attr,
	&tow_stat_attr_evictions.attr.attr,
	&tow_stat_attr_exports.attr.attr,
	&tow_stat_attr_grants.attr.attr,
	&tow_stat_attr_remotes.attr.attr,
	&tow_stat_attr_resolves.attr.attr,
	&tow_stat_attr_revokes.attr.attr,
	&tow_stat_attr_revokes_late.attr.attr,
	&tow_stat_attr_queues.attr.attr,
	&tow_stat_attr_pollers.attr.attr,
	&tow_stat_attr_poller_wakeups.attr.attr,
	&tow_stat_attr_timeouts.attr.attr,
	&tow_stat_attr_stalls.attr.attr,
	&tow_stat_attr_striped.attr.attr,
	&tow_stat_attr_striped_parts.attr.attr,
	&tow_stat_attr_replayed.attr.attr,
	&tow_stat_attr_copied_bytes.attr.attr,
	&tow_stat_attr_notifications.attr.attr,
	&tow_stat_attr_notifications_sent.attr.attr,
	&tow_stat_attr_notifications_ignored.attr.attr,
	NULL
};

static const struct attribute_group tow_sysfs_stats_group = {
	.name = "stats",
	.attrs = tow_sysfs_stats,
};

const struct attribute_group *tow_sysfs_groups[] = {
	&tow_sysfs_group,
	&tow_conn_settings_group,
	&tow_sysfs_stats_group,
	NULL
};
