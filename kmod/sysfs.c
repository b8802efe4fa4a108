// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/class/towline/<ibdev>/.  Each file is one row of a table at the end:
 * TOW_SETTING() is a number of the administrator's with its bounds, TOW_LIMIT() a
 * limit, TOW_POOL() one of the pool's numbers, TOW_STAT() a count of what happened;
 * Documentation/ABI/testing/sysfs-class-towline describes each.
 *
 * The node's driver data is the tow_device, which outlives the node: removing
 * the node waits for readers and writers that are in these functions, and comes
 * before anything of the device is taken down.
 *
 * Writing takes CAP_NET_ADMIN in the initial user namespace, besides the file's
 * permissions: a container's root may own the file.
 */
#include <linux/bits.h>
#include <linux/capability.h>
#include <linux/ctype.h>
#include <linux/device.h>
#include <linux/nodemask.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/sysfs.h>

#include "core/core.h"
#include "export.h"
#include "memory/memory.h"
#include "peer.h"
#include "queue.h"
#include "root.h"
#include "session.h"

/* More than any machine has, and far from what u64 holds. */
#define TOW_BYTES_MAX		BIT_ULL(56)

/* Ten years. */
#define TOW_LINGER_MAX_MAX_S	315360000

/* Thirty days. */
#define TOW_PEER_IDLE_MAX_S	2592000

#define TOW_CQS_MAX		64

#define TOW_TIMEOUT_MAX_MS	600000

/**
 * struct tow_file - a file
 * @attr: the file
 * @level: TOW_LIMIT(): whose limit
 * @resource: of what
 * @stat: TOW_STAT(): of what
 * @number: TOW_POOL(): which, as an offset in struct tow_pool_numbers
 * @base: TOW_SETTING(): what the device keeps it in
 * @offset: at which offset of that, a u32; read and written in one go, without a
 *	lock
 * @set: takes a number that is within the bounds, or refuses it with a negative
 *	errno; NULL: it is written to @offset
 * @min: the least that may be written
 * @max: the most
 * @unset: -1 may be written as well: there is no setting
 */
struct tow_file {
	struct device_attribute		attr;
	union {
		struct {
			enum tow_level		level;
			enum tow_resource	resource;
		};
		enum tow_stat			stat;
		size_t				number;
		struct {
			void	*(*base)(struct tow_device *dev);
			size_t	offset;
			int	(*set)(struct tow_device *dev, u32 value);
			u32	min;
			u32	max;
			bool	unset;
		};
	};
};

static struct tow_file *tow_file_of(struct device_attribute *attr)
{
	return container_of(attr, struct tow_file, attr);
}

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
	case 't':
		return 40;
	default:
		return -1;
	}
}

/*
 * The number in the @count bytes of @buf: decimal, nothing before it, at most a
 * newline after it, and with @suffixes k, m, g or t.  A write may hold a NUL, which
 * ends what the C library's functions see: not here.  Returns -EINVAL if it is no
 * number, -ERANGE if it is more than @max.
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

/* The same, or "max": of what has no @max of its own there is no limit. */
static int tow_sysfs_limit(const char *buf, size_t count, bool suffixes,
			   u64 max, u64 *result)
{
	if (!sysfs_streq(buf, "max") || strlen(buf) != count)
		return tow_sysfs_number(buf, count, suffixes, max, result);
	*result = max == TOW_BYTES_MAX ? TOW_UNLIMITED : max;
	return 0;
}

/* ---- the device ----------------------------------------------------------- */

static ssize_t incarnation_show(struct device *node,
				struct device_attribute *attr, char *buf)
{
	struct tow_device *dev = dev_get_drvdata(node);

	return sysfs_emit(buf, "%*phN\n", TOW_INCARNATION_BYTES,
			  dev->incarnation);
}

/* ---- the pool ------------------------------------------------------------- */

static ssize_t tow_pool_show(struct device *node, struct device_attribute *attr,
			     char *buf)
{
	struct tow_pool_numbers numbers;

	tow_pool_numbers(dev_get_drvdata(node), &numbers);
	return sysfs_emit(buf, "%llu\n",
			  *(u64 *)((void *)&numbers + tow_file_of(attr)->number));
}

static ssize_t tow_pool_store(struct device *node,
			      struct device_attribute *attr, const char *buf,
			      size_t count)
{
	struct tow_device *dev = dev_get_drvdata(node);
	u64 bytes;
	int ret;

	if (!capable(CAP_NET_ADMIN))
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

static ssize_t pool_numa_bytes_show(struct device *node,
				    struct device_attribute *attr, char *buf)
{
	struct tow_device *dev = dev_get_drvdata(node);
	int numa, bytes = 0;

	for_each_node_state(numa, N_MEMORY)
		bytes += sysfs_emit_at(buf, bytes, "%sN%d=%llu",
				       bytes ? " " : "", numa,
				       tow_pool_node_bytes(dev, numa));
	bytes += sysfs_emit_at(buf, bytes, "\n");
	return bytes;
}

/* ---- limits --------------------------------------------------------------- */

static ssize_t mr_used_show(struct device *node, struct device_attribute *attr,
			    char *buf)
{
	struct tow_device *dev = dev_get_drvdata(node);

	return sysfs_emit(buf, "%llu\n", tow_limits_mrs(&dev->limits));
}

static ssize_t tow_limit_show(struct device *node,
			      struct device_attribute *attr, char *buf)
{
	struct tow_file *limit = tow_file_of(attr);
	struct tow_device *dev = dev_get_drvdata(node);
	u64 max = READ_ONCE(dev->limits.max[limit->level][limit->resource]);

	if (max == TOW_UNLIMITED)
		return sysfs_emit(buf, "max\n");
	return sysfs_emit(buf, "%llu\n", max);
}

/*
 * The most that may be written: of the device's MRs, what the hardware has.
 * False: the device is going, and with it who knows.
 */
static bool tow_limit_ceiling(struct tow_device *dev,
			      struct tow_file *limit, u64 *ceiling)
{
	*ceiling = TOW_BYTES_MAX;
	if (limit->resource != TOW_RES_MADE_MRS)
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
	struct tow_file *limit = tow_file_of(attr);
	struct tow_device *dev = dev_get_drvdata(node);
	u64 ceiling, max;
	int ret;

	if (!capable(CAP_NET_ADMIN))
		return -EPERM;
	if (!tow_limit_ceiling(dev, limit, &ceiling))
		return -ENODEV;
	ret = tow_sysfs_limit(buf, count, limit->resource == TOW_RES_BYTES,
			      ceiling, &max);
	if (ret)
		return ret;
	/* Charges that exceed it already stay. */
	WRITE_ONCE(dev->limits.max[limit->level][limit->resource], max);
	return count;
}

static ssize_t cgroup_bytes_limit_show(struct device *node,
				       struct device_attribute *attr, char *buf)
{
	struct tow_device *dev = dev_get_drvdata(node);

	return tow_limits_show_cgroups(&dev->limits, buf);
}

static ssize_t cgroup_bytes_limit_store(struct device *node,
					struct device_attribute *attr,
					const char *buf, size_t count)
{
	struct tow_device *dev = dev_get_drvdata(node);
	u64 max, *chosen = NULL;
	char *path, *value;
	int ret = 0;

	if (!capable(CAP_NET_ADMIN))
		return -EPERM;
	path = kmemdup_nul(buf, count, GFP_KERNEL);
	if (!path)
		return -ENOMEM;
	value = path;
	strsep(&value, " ");
	/* The root has no limit. */
	if (path[0] != '/' || !value || value[-2] == '/' ||
	    memchr(buf, '\0', count)) {
		ret = -EINVAL;
	} else if (!sysfs_streq(value, "default")) {
		chosen = &max;
		ret = tow_sysfs_limit(value, strlen(value), true,
				      TOW_BYTES_MAX, chosen);
	}
	if (!ret && !tow_accounts_by_cgroup())
		ret = -EOPNOTSUPP;
	if (!ret)
		ret = tow_limits_set_cgroup(&dev->limits, path, chosen);
	kfree(path);
	return ret ?: count;
}

/* ---- settings ------------------------------------------------------------- */

static u32 *tow_setting(struct device *node, const struct tow_file *file)
{
	return file->base(dev_get_drvdata(node)) + file->offset;
}

static ssize_t tow_setting_show(struct device *node,
				struct device_attribute *attr, char *buf)
{
	const struct tow_file *file = tow_file_of(attr);

	return sysfs_emit(buf, file->unset ? "%d\n" : "%u\n",
			  READ_ONCE(*tow_setting(node, file)));
}

static ssize_t tow_setting_store(struct device *node,
				 struct device_attribute *attr, const char *buf,
				 size_t count)
{
	struct tow_file *file = tow_file_of(attr);
	u64 value;
	int ret;

	if (!capable(CAP_NET_ADMIN))
		return -EPERM;
	if (file->unset && sysfs_streq(buf, "-1") && strlen(buf) == count) {
		WRITE_ONCE(*tow_setting(node, file), -1);
		return count;
	}
	ret = tow_sysfs_number(buf, count, false, file->max, &value);
	if (ret)
		return ret;
	if (value < file->min)
		return -ERANGE;
	if (file->set)
		return file->set(dev_get_drvdata(node), value) ?: count;
	WRITE_ONCE(*tow_setting(node, file), value);
	return count;
}

static void *tow_setting_device(struct tow_device *dev)
{
	return dev;
}

static void *tow_setting_memory(struct tow_device *dev)
{
	return tow_memory_linger_max_s(dev);
}

static void *tow_setting_queues(struct tow_device *dev)
{
	return dev->queues;
}

static void *tow_setting_peers(struct tow_device *dev)
{
	return &dev->peers->settings;
}

/* Takes effect soon, but for peers: they stay with theirs as long as it is up. */
static int tow_setting_set_port(struct tow_device *dev, u32 port)
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

/* What is under way goes on; tow_device_draining() keeps the rest from beginning. */
static int tow_setting_set_drain(struct tow_device *dev, u32 value)
{
	if (xchg(&dev->drain, value) != value)
		tow_uevent(dev, value ? "drain" : "undrain", "");
	return 0;
}

static int tow_setting_set_queue_depth(struct tow_device *dev, u32 value)
{
	int max;

	if (!tow_device_enter(dev))
		return -ENODEV;
	max = dev->ibdev->attrs.max_qp_wr;
	tow_device_leave(dev);
	if (max < 0 || value > max)
		return -ERANGE;
	WRITE_ONCE(dev->peers->settings.queue_depth, value);
	return 0;
}

static int tow_setting_set_listen_port(struct tow_device *dev, u32 value)
{
	int ret;

	if (!tow_device_enter(dev))
		return -ENODEV;
	/* Writes the setting, too: of two at a time, the one that it listens on. */
	ret = tow_listen_move(dev, value);
	tow_device_leave(dev);
	return ret;
}

/* It holds for what is being revoked already, too. */
static int tow_setting_set_revoke_timeout(struct tow_device *dev, u32 value)
{
	WRITE_ONCE(dev->peers->settings.revoke_timeout_ms, value);
	tow_revoke_watch(dev);
	return 0;
}

static int tow_setting_set_mtu(struct tow_device *dev, u32 value)
{
	if (!tow_mtu_valid(value))
		return -EINVAL;
	WRITE_ONCE(dev->peers->settings.mtu, value);
	return 0;
}

/* ---- settings that are no number ------------------------------------------ */

static enum tow_key_use tow_key_use_of(const struct device_attribute *attr)
{
	return strcmp(attr->attr.name, "cluster_key_next") ? TOW_KEY_CURRENT :
							     TOW_KEY_NEXT;
}

static ssize_t tow_key_show(struct device *node, struct device_attribute *attr,
			    char *buf)
{
	struct tow_device *dev = dev_get_drvdata(node);
	char name[TOW_KEY_NAME_MAX];

	tow_cluster_key_name(&dev->peers->key, tow_key_use_of(attr), name);
	return sysfs_emit(buf, "%s\n", name[0] ? name : "none");
}

static ssize_t tow_key_store(struct device *node, struct device_attribute *attr,
			     const char *buf, size_t count)
{
	struct tow_device *dev = dev_get_drvdata(node);
	char name[TOW_KEY_NAME_MAX];
	size_t bytes = count;
	int ret;

	if (!capable(CAP_NET_ADMIN))
		return -EPERM;
	if (bytes && buf[bytes - 1] == '\n')
		bytes--;
	if (bytes >= sizeof(name) || memchr(buf, '\0', bytes))
		return -EINVAL;
	memcpy(name, buf, bytes);
	name[bytes] = '\0';
	ret = tow_cluster_key_set(&dev->peers->key, tow_key_use_of(attr), name);
	return ret ?: count;
}

/* ---- stats/ --------------------------------------------------------------- */

static ssize_t tow_stat_show(struct device *node, struct device_attribute *attr,
			     char *buf)
{
	struct tow_device *dev = dev_get_drvdata(node);

	return sysfs_emit(buf, "%lld\n",
			  atomic64_read(&dev->stats[tow_file_of(attr)->stat]));
}

/* ---- the tables ----------------------------------------------------------- */

#define TOW_POOL(_name, _mode, _store, _number) {			\
	.attr = __ATTR(_name, _mode, tow_pool_show, _store),		\
	.number = offsetof(struct tow_pool_numbers, _number),		\
}

#define TOW_LIMIT(_name, _level, _resource) {				\
	.attr = __ATTR(_name, 0644, tow_limit_show, tow_limit_store),	\
	.level = TOW_LEVEL_##_level,					\
	.resource = TOW_RES_##_resource,				\
}

/* What follows: where it is kept, and .set. */
#define TOW_SETTING(_name, _min, _max, ...) {				\
	.attr = __ATTR(_name, 0644, tow_setting_show, tow_setting_store), \
	.min = _min,							\
	.max = _max,							\
	__VA_ARGS__							\
}

#define TOW_IN(_base, _structure, _field)				\
	.base = tow_setting_##_base,					\
	.offset = offsetof(struct _structure, _field)

#define TOW_IN_QUEUES(_field)	TOW_IN(queues, tow_queues, _field)
#define TOW_IN_PEERS(_field)	TOW_IN(peers, tow_conn_settings, _field)

#define TOW_STAT(_name, _stat) {					\
	.attr = __ATTR(_name, 0444, tow_stat_show, NULL),		\
	.stat = TOW_STAT_##_stat,					\
}

static struct tow_file tow_files[] = {
	{ .attr = __ATTR_RO(incarnation) },
	TOW_POOL(pool_bytes, 0644, tow_pool_store, bytes),
	TOW_POOL(pool_used_bytes, 0444, NULL, used_bytes),
	TOW_POOL(pool_held_bytes, 0444, NULL, held_bytes),
	TOW_POOL(pool_high_water_bytes, 0444, NULL, high_water_bytes),
	{ .attr = __ATTR_RO(pool_numa_bytes) },
	TOW_POOL(slab_bytes, 0444, NULL, large_bytes),
	{ .attr = __ATTR_RO(mr_used) },
	TOW_LIMIT(client_bytes_limit, CLIENT, BYTES),
	TOW_LIMIT(client_mr_limit, CLIENT, MRS),
	TOW_LIMIT(client_region_limit, CLIENT, REGIONS),
	TOW_LIMIT(client_export_limit, CLIENT, EXPORTS),
	TOW_LIMIT(client_queue_entries_limit, CLIENT, QUEUE_ENTRIES),
	TOW_LIMIT(user_bytes_limit, USER, BYTES),
	TOW_LIMIT(user_mr_limit, USER, MRS),
	TOW_LIMIT(user_region_limit, USER, REGIONS),
	TOW_LIMIT(user_export_limit, USER, EXPORTS),
	TOW_LIMIT(user_grant_limit, USER, GRANTS),
	TOW_LIMIT(user_queue_entries_limit, USER, QUEUE_ENTRIES),
	{ .attr = __ATTR_RW(cgroup_bytes_limit) },
	TOW_LIMIT(mr_limit, DEVICE, MADE_MRS),
	TOW_LIMIT(device_region_limit, DEVICE, REGIONS),
	TOW_LIMIT(export_limit, DEVICE, EXPORTS),
	TOW_LIMIT(queue_entries_limit, DEVICE, QUEUE_ENTRIES),
	TOW_LIMIT(poller_limit, DEVICE, POLLERS),
	TOW_SETTING(port, 0, U32_MAX, TOW_IN(device, tow_device, port_wanted),
		    .set = tow_setting_set_port),
	TOW_SETTING(drain, 0, 1, TOW_IN(device, tow_device, drain),
		    .set = tow_setting_set_drain),
	TOW_SETTING(linger_max_s, 0, TOW_LINGER_MAX_MAX_S,
		    .base = tow_setting_memory,
		    .set = tow_memory_set_linger_max),
	TOW_SETTING(inflight_bytes, SZ_64K, SZ_1G,
		    TOW_IN_QUEUES(inflight_bytes)),
	TOW_SETTING(loopback_copy_bytes, 0, SZ_64K,
		    TOW_IN_QUEUES(loopback_copy_bytes)),
	TOW_SETTING(op_stall_ms, 0, TOW_OP_STALL_MAX_MS,
		    TOW_IN_QUEUES(op_stall_ms)),
	TOW_SETTING(peer_limit, 1, TOW_PEERS_MAX, TOW_IN_PEERS(peer_limit)),
	TOW_SETTING(qps_per_peer, 1, TOW_QPS_MAX, TOW_IN_PEERS(qps_per_peer)),
	TOW_SETTING(cqs, 1, TOW_CQS_MAX, TOW_IN_PEERS(cqs)),
	TOW_SETTING(queue_depth, TOW_QUEUE_DEPTH_MIN, TOW_QUEUE_DEPTH_MAX,
		    TOW_IN_PEERS(queue_depth),
		    .set = tow_setting_set_queue_depth),
	TOW_SETTING(listen_port, 1, 65535, TOW_IN_PEERS(listen_port),
		    .set = tow_setting_set_listen_port),
	TOW_SETTING(peer_idle_s, 0, TOW_PEER_IDLE_MAX_S,
		    TOW_IN_PEERS(peer_idle_s)),
	TOW_SETTING(heartbeat_ms, 50, 60000, TOW_IN_PEERS(heartbeat_ms)),
	TOW_SETTING(heartbeat_misses, 2, 100, TOW_IN_PEERS(heartbeat_misses)),
	TOW_SETTING(reconnect_timeout_ms, 100, TOW_TIMEOUT_MAX_MS,
		    TOW_IN_PEERS(reconnect_timeout_ms)),
	TOW_SETTING(revoke_timeout_ms, 10, TOW_TIMEOUT_MAX_MS,
		    TOW_IN_PEERS(revoke_timeout_ms),
		    .set = tow_setting_set_revoke_timeout),
	TOW_SETTING(gid_index, 0, TOW_GID_INDEX_MAX, TOW_IN_PEERS(gid_index),
		    .unset = true),
	TOW_SETTING(pkey_index, 0, TOW_PKEY_INDEX_MAX,
		    TOW_IN_PEERS(pkey_index)),
	TOW_SETTING(sl, 0, TOW_SL_MAX, TOW_IN_PEERS(sl)),
	TOW_SETTING(traffic_class, 0, TOW_TRAFFIC_CLASS_MAX,
		    TOW_IN_PEERS(traffic_class), .unset = true),
	TOW_SETTING(mtu, 0, TOW_MTU_MAX, TOW_IN_PEERS(mtu),
		    .set = tow_setting_set_mtu),
	TOW_SETTING(timeout, 0, TOW_TIMEOUT_MAX, TOW_IN_PEERS(timeout)),
	TOW_SETTING(retry_count, 0, TOW_RETRY_COUNT_MAX,
		    TOW_IN_PEERS(retry_count)),
	TOW_SETTING(allow_unauthenticated, 0, 1,
		    TOW_IN_PEERS(allow_unauthenticated)),
	{ .attr = __ATTR(cluster_key, 0644, tow_key_show, tow_key_store) },
	{ .attr = __ATTR(cluster_key_next, 0644, tow_key_show, tow_key_store) },
};

static struct tow_file tow_stat_files[] = {
	TOW_STAT(regions, REGIONS),
	TOW_STAT(dma_maps, DMA_MAPS),
	TOW_STAT(dma_unmaps, DMA_UNMAPS),
	TOW_STAT(registrations, REGISTRATIONS),
	TOW_STAT(invalidations, INVALIDATIONS),
	TOW_STAT(invalidated_by_peers, INVALIDATED_BY_PEERS),
	TOW_STAT(poisoned_chunks, POISONED_CHUNKS),
	TOW_STAT(quota_refusals, QUOTA_REFUSALS),
	TOW_STAT(pool_refusals, POOL_REFUSALS),
	TOW_STAT(memory_refusals, MEMORY_REFUSALS),
	TOW_STAT(peers, PEERS),
	TOW_STAT(sessions, SESSIONS),
	TOW_STAT(handshakes, HANDSHAKES),
	TOW_STAT(auth_refused, AUTH_REFUSED),
	TOW_STAT(hostile_messages, HOSTILE),
	TOW_STAT(evictions, EVICTIONS),
	TOW_STAT(exports, EXPORTS),
	TOW_STAT(grants, GRANTS),
	TOW_STAT(remotes, REMOTES),
	TOW_STAT(resolves, RESOLVES),
	TOW_STAT(revokes, REVOKES),
	TOW_STAT(revokes_late, REVOKES_LATE),
	TOW_STAT(queues, QUEUES),
	TOW_STAT(pollers, POLLERS),
	TOW_STAT(poller_wakeups, POLLER_WAKEUPS),
	TOW_STAT(timeouts, TIMEOUTS),
	TOW_STAT(stalls, STALLS),
	TOW_STAT(replayed, REPLAYED),
	TOW_STAT(copied_bytes, COPIED_BYTES),
	TOW_STAT(loopback_copied_bytes, LOOPBACK_COPIED_BYTES),
	TOW_STAT(notifications, NOTIFICATIONS),
	TOW_STAT(notifications_sent, NOTIFICATIONS_SENT),
	TOW_STAT(notifications_ignored, NOTIFICATIONS_IGNORED),
	TOW_POOL(slabs, 0444, NULL, slabs),
	TOW_POOL(small_slabs, 0444, NULL, small),
	TOW_POOL(free_slabs, 0444, NULL, free),
	TOW_POOL(dirty_slabs, 0444, NULL, dirty),
	TOW_POOL(held_slabs, 0444, NULL, held),
};

/* The last one is NULL. */
static struct attribute *tow_sysfs_attrs[ARRAY_SIZE(tow_files) + 1];
static struct attribute *tow_sysfs_stats[ARRAY_SIZE(tow_stat_files) + 1];

static const struct attribute_group tow_sysfs_group = {
	.attrs = tow_sysfs_attrs,
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

/**
 * tow_sysfs_init - fill in tow_sysfs_groups
 */
void __init tow_sysfs_init(void)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(tow_files); i++)
		tow_sysfs_attrs[i] = &tow_files[i].attr.attr;
	for (i = 0; i < ARRAY_SIZE(tow_stat_files); i++)
		tow_sysfs_stats[i] = &tow_stat_files[i].attr.attr;
}
