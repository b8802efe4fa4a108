// SPDX-License-Identifier: GPL-2.0
/*
 * The files in /sys/class/towline/<ibdev>/ that say how to connect to peers, and
 * how to keep a connection; Documentation/ABI/testing/sysfs-class-towline describes
 * each.  Sessions that exist keep what they were made with, but for the times.
 *
 * Removing the node waits for those who write here, and comes before anything of
 * the device is taken down.
 */
#include <linux/device.h>
#include <linux/log2.h>
#include <linux/string.h>

#include "core/core.h"
#include "export.h"
#include "peer.h"
#include "root.h"
#include "session.h"
#include "sysfs.h"

/* Fewer work requests than one large operation takes make no sense. */
#define TOW_QUEUE_DEPTH_MIN	16
#define TOW_QUEUE_DEPTH_MAX	4096

#define TOW_CQS_MAX		64

/* Thirty days. */
#define TOW_PEER_IDLE_MAX_S	2592000

#define TOW_TIMEOUT_MAX_MS	600000

/* No port of any RDMA device has as many addresses. */
#define TOW_GID_INDEX_MAX	255

/* ---- numbers with rules of their own -------------------------------------- */

static int tow_peer_set_queue_depth(struct tow_device *dev, u32 value)
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

static int tow_peer_set_listen_port(struct tow_device *dev, u32 value)
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
static int tow_peer_set_revoke_timeout(struct tow_device *dev, u32 value)
{
	WRITE_ONCE(dev->peers->settings.revoke_timeout_ms, value);
	tow_revoke_watch(dev);
	return 0;
}

/* Of a port there are the powers of two from 256 to 4096. */
static int tow_peer_set_mtu(struct tow_device *dev, u32 value)
{
	if (value && (value < 256 || !is_power_of_2(value)))
		return -EINVAL;
	WRITE_ONCE(dev->peers->settings.mtu, value);
	return 0;
}

TOW_SETTING_ATTR(peer_limit, dev->peers->settings.peer_limit, 1, TOW_PEERS_MAX);
TOW_SETTING_ATTR(qps_per_peer, dev->peers->settings.qps_per_peer, 1,
		 TOW_QPS_MAX);
TOW_SETTING_ATTR(cqs, dev->peers->settings.cqs, 1, TOW_CQS_MAX);
TOW_SETTING_ATTR_SET(queue_depth, dev->peers->settings.queue_depth,
		     TOW_QUEUE_DEPTH_MIN, TOW_QUEUE_DEPTH_MAX,
		     tow_peer_set_queue_depth);
TOW_SETTING_ATTR_SET(listen_port, dev->peers->settings.listen_port, 1, 65535,
		     tow_peer_set_listen_port);
TOW_SETTING_ATTR(peer_idle_s, dev->peers->settings.peer_idle_s, 0,
		 TOW_PEER_IDLE_MAX_S);
TOW_SETTING_ATTR(heartbeat_ms, dev->peers->settings.heartbeat_ms, 50, 60000);
TOW_SETTING_ATTR(heartbeat_misses, dev->peers->settings.heartbeat_misses, 2,
		 100);
TOW_SETTING_ATTR(reconnect_timeout_ms, dev->peers->settings.reconnect_timeout_ms,
		 100, TOW_TIMEOUT_MAX_MS);
TOW_SETTING_ATTR_SET(revoke_timeout_ms, dev->peers->settings.revoke_timeout_ms,
		     10, TOW_TIMEOUT_MAX_MS, tow_peer_set_revoke_timeout);
TOW_SETTING_ATTR(pkey_index, dev->peers->settings.pkey_index, 0, 65535);
TOW_SETTING_ATTR(sl, dev->peers->settings.sl, 0, 15);
TOW_SETTING_ATTR(traffic_class, dev->peers->settings.traffic_class, 0, 255);
TOW_SETTING_ATTR_SET(mtu, dev->peers->settings.mtu, 0, 4096, tow_peer_set_mtu);
TOW_SETTING_ATTR(timeout, dev->peers->settings.timeout, 0, 31);
TOW_SETTING_ATTR(retry_count, dev->peers->settings.retry_count, 0, 6);
TOW_SETTING_ATTR(allow_unauthenticated,
		 dev->peers->settings.allow_unauthenticated, 0, 1);

/* ---- what is no number ---------------------------------------------------- */

static ssize_t gid_index_show(struct device *node,
			      struct device_attribute *attr, char *buf)
{
	struct tow_device *dev = dev_get_drvdata(node);

	return sysfs_emit(buf, "%d\n", READ_ONCE(dev->peers->settings.gid_index));
}

static ssize_t gid_index_store(struct device *node,
			       struct device_attribute *attr, const char *buf,
			       size_t count)
{
	struct tow_device *dev = dev_get_drvdata(node);
	u64 value;
	int ret;

	if (!tow_sysfs_may_write())
		return -EPERM;
	if (sysfs_streq(buf, "-1") && strlen(buf) == count) {
		WRITE_ONCE(dev->peers->settings.gid_index, -1);
		return count;
	}
	ret = tow_sysfs_number(buf, count, false, TOW_GID_INDEX_MAX, &value);
	if (ret)
		return ret;
	WRITE_ONCE(dev->peers->settings.gid_index, value);
	return count;
}
static DEVICE_ATTR_RW(gid_index);

static ssize_t cluster_key_show(struct device *node,
				struct device_attribute *attr, char *buf)
{
	struct tow_device *dev = dev_get_drvdata(node);
	char name[TOW_KEY_NAME_MAX];

	tow_cluster_key_name(&dev->peers->key, name);
	return sysfs_emit(buf, "%s\n", name[0] ? name : "none");
}

static ssize_t cluster_key_store(struct device *node,
				 struct device_attribute *attr, const char *buf,
				 size_t count)
{
	struct tow_device *dev = dev_get_drvdata(node);
	char name[TOW_KEY_NAME_MAX];
	size_t bytes = count;
	int ret;

	if (!tow_sysfs_may_write())
		return -EPERM;
	if (bytes && buf[bytes - 1] == '\n')
		bytes--;
	if (bytes >= sizeof(name) || memchr(buf, '\0', bytes))
		return -EINVAL;
	memcpy(name, buf, bytes);
	name[bytes] = '\0';
	ret = tow_cluster_key_set(&dev->peers->key, name);
	return ret ?: count;
}
static DEVICE_ATTR_RW(cluster_key);

static struct attribute *tow_peer_settings_attrs[] = {
	&tow_setting_attr_peer_limit.attr.attr,
	&tow_setting_attr_qps_per_peer.attr.attr,
	&tow_setting_attr_cqs.attr.attr,
	&tow_setting_attr_queue_depth.attr.attr,
	&tow_setting_attr_listen_port.attr.attr,
	&tow_setting_attr_peer_idle_s.attr.attr,
	&tow_setting_attr_heartbeat_ms.attr.attr,
	&tow_setting_attr_heartbeat_misses.attr.attr,
	&tow_setting_attr_reconnect_timeout_ms.attr.attr,
	&tow_setting_attr_revoke_timeout_ms.attr.attr,
	&dev_attr_gid_index.attr,
	&tow_setting_attr_pkey_index.attr.attr,
	&tow_setting_attr_sl.attr.attr,
	&tow_setting_attr_traffic_class.attr.attr,
	&tow_setting_attr_mtu.attr.attr,
	&tow_setting_attr_timeout.attr.attr,
	&tow_setting_attr_retry_count.attr.attr,
	&tow_setting_attr_allow_unauthenticated.attr.attr,
	&dev_attr_cluster_key.attr,
	NULL
};

const struct attribute_group tow_conn_settings_group = {
	.attrs = tow_peer_settings_attrs,
};
