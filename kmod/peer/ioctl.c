// SPDX-License-Identifier: GPL-2.0
/*
 * Programs' calls about peers.
 */
#include <linux/capability.h>
#include <linux/limits.h>
#include <linux/log2.h>
#include <linux/uaccess.h>
#include <net/ipv6.h>

#include "core/core.h"
#include "session.h"

/* Published sizes: see chardev.c. */
#define TOW_PEER_INFO_PUBLISHED		112

#define TOW_PEER_SETTINGS						\
	(TOW_PEER_SET_GID_INDEX | TOW_PEER_SET_PKEY_INDEX |		\
	 TOW_PEER_SET_SL | TOW_PEER_SET_TRAFFIC_CLASS |			\
	 TOW_PEER_SET_MTU | TOW_PEER_SET_TIMEOUT |			\
	 TOW_PEER_SET_RETRY_COUNT | TOW_PEER_SET_QUEUE_DEPTH |		\
	 TOW_PEER_SET_QPS)

/**
 * tow_address_take - a program's address of a node
 * @address: where to
 * @bytes: of the address, as in struct tow_peer_connect, as are the others
 * @scope_id: the scope
 * @port: the port; 0: the device's listen_port
 *
 * Return: 0; -EINVAL: it is no unicast address, or has no scope though it is link-local,
 * or has one though it is not.
 */
int tow_address_take(struct tow_address *address,
		     const u8 bytes[TOW_ADDRESS_BYTES], u32 scope_id, u16 port)
{
	int type;

	memcpy(&address->in6, bytes, sizeof(address->in6));
	address->scope_id = scope_id;
	address->port = port;
	if (ipv6_addr_v4mapped(&address->in6)) {
		__be32 in = address->in6.s6_addr32[3];

		if (!in || ipv4_is_multicast(in) || ipv4_is_lbcast(in))
			return -EINVAL;
		return scope_id ? -EINVAL : 0;
	}
	type = ipv6_addr_type(&address->in6);
	if (type == IPV6_ADDR_ANY || type & IPV6_ADDR_MULTICAST)
		return -EINVAL;
	if (!!(type & IPV6_ADDR_LINKLOCAL) != !!scope_id)
		return -EINVAL;
	return 0;
}

/* A setting of the call has the bounds of its file in sysfs. */
static int tow_connect_check(const struct tow_conn_settings *settings,
			     struct ib_device *ibdev)
{
	if (settings->gid_index < -1 ||
	    settings->gid_index > TOW_GID_INDEX_MAX ||
	    settings->pkey_index > TOW_PKEY_INDEX_MAX ||
	    settings->sl > TOW_SL_MAX ||
	    settings->traffic_class < -1 ||
	    settings->traffic_class > TOW_TRAFFIC_CLASS_MAX ||
	    settings->timeout > TOW_TIMEOUT_MAX ||
	    settings->retry_count > TOW_RETRY_COUNT_MAX ||
	    !settings->qps_per_peer || settings->qps_per_peer > TOW_QPS_MAX ||
	    !tow_mtu_valid(settings->mtu))
		return -EINVAL;
	if (settings->queue_depth < TOW_QUEUE_DEPTH_MIN ||
	    settings->queue_depth > TOW_QUEUE_DEPTH_MAX ||
	    settings->queue_depth > ibdev->attrs.max_qp_wr)
		return -EINVAL;
	return 0;
}

/* The device's settings, overridden by those of the call. */
static int tow_connect_settings(struct tow_device *dev,
				const struct tow_peer_connect *call,
				struct tow_conn_settings *settings)
{
	u32 flags = call->flags;

	tow_conn_settings_read(dev->peers, settings);
	if (flags & TOW_PEER_SET_GID_INDEX)
		settings->gid_index = call->gid_index;
	if (flags & TOW_PEER_SET_PKEY_INDEX)
		settings->pkey_index = call->pkey_index;
	if (flags & TOW_PEER_SET_SL)
		settings->sl = call->sl;
	if (flags & TOW_PEER_SET_TRAFFIC_CLASS)
		settings->traffic_class = call->traffic_class;
	if (flags & TOW_PEER_SET_MTU)
		settings->mtu = call->mtu;
	if (flags & TOW_PEER_SET_TIMEOUT)
		settings->timeout = call->timeout;
	if (flags & TOW_PEER_SET_RETRY_COUNT)
		settings->retry_count = call->retry_count;
	if (flags & TOW_PEER_SET_QUEUE_DEPTH)
		settings->queue_depth = call->queue_depth;
	if (flags & TOW_PEER_SET_QPS)
		settings->qps_per_peer = call->qps;
	return tow_connect_check(settings, dev->ibdev);
}

static int tow_call_connect_reach(struct tow_client *client,
				  struct tow_peer_connect *call)
{
	struct tow_device *dev = client->dev;
	struct tow_conn_settings settings;
	struct tow_address address;
	struct tow_peer *peer;
	u32 timeout_ms;
	int ret;

	ret = tow_address_take(&address, call->address, call->scope_id,
			       call->port);
	if (ret)
		return ret;
	if (!tow_device_enter(dev))
		return -ENODEV;
	ret = tow_connect_settings(dev, call, &settings);
	tow_device_leave(dev);
	if (ret)
		return ret;
	if (!address.port)
		address.port = settings.listen_port;
	timeout_ms = min_t(u32, call->timeout_ms ?:
			   settings.reconnect_timeout_ms, INT_MAX);
	ret = tow_peer_reach(dev, client->account, &address, &settings,
			     timeout_ms, &peer);
	if (ret)
		return ret;
	if (call->flags)
		tow_peer_remember(peer, &settings);
	call->peer = peer->id;
	memcpy(call->incarnation, peer->incarnation,
	       sizeof(call->incarnation));
	tow_peer_put(peer);
	return 0;
}

/* TOW_IOCTL_PEER_CONNECT */
int tow_call_peer_connect(struct tow_client *client, void *data,
			  const struct tow_answer *answer)
{
	struct tow_peer_connect *call = data;
	int ret;

	if (call->flags & ~TOW_PEER_SETTINGS || call->reserved)
		return -EINVAL;
	if (call->flags && !capable(CAP_NET_ADMIN))
		return -EPERM;
	ret = tow_call_connect_reach(client, call);
	if (ret)
		return ret;
	return tow_call_answer(answer, call);
}

/* TOW_IOCTL_PEER_DISCONNECT */
int tow_call_peer_disconnect(struct tow_client *client, void *data,
			     const struct tow_answer *answer)
{
	const struct tow_peer_disconnect *call = data;
	struct tow_peer *peer;
	int ret;

	if (call->flags)
		return -EINVAL;
	if (!capable(CAP_NET_ADMIN))
		return -EPERM;
	peer = tow_peer_find(client->dev, call->peer);
	if (!peer)
		return -ENOENT;
	ret = tow_peer_disconnect(peer);
	tow_peer_put(peer);
	return ret;
}

static int tow_peer_list_next(struct tow_client *client, u32 flags,
			      u64 *cursor, void *info)
{
	struct tow_peer *peer = tow_peer_next(client->dev, cursor);

	if (!peer)
		return -ENOENT;
	tow_peer_describe(peer, info);
	tow_peer_put(peer);
	return 1;
}

const struct tow_listing tow_peer_listing = {
	.entry_published	= TOW_PEER_INFO_PUBLISHED,
	.entry_bytes		= sizeof(struct tow_peer_info),
	.next			= tow_peer_list_next,
};
