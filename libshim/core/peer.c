// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Peers: the nodes that this one is connected to, or was.
 *
 * Connections are the node's, in the kernel.  A peer here is the kernel's number
 * of one, and owns nothing: freeing it ends no connection.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* The size of struct tow_peer_attr when it was first published. */
#define ATTR_SIZE_FIRST	(offsetof(struct tow_peer_attr, qps) + sizeof(uint32_t))

struct tow_peer {
	const struct tow_device *dev;
	uint64_t number;
};

const struct tow_device *towi_peer_device(const struct tow_peer *peer)
{
	return peer->dev;
}

uint64_t towi_peer_number(const struct tow_peer *peer)
{
	return peer->number;
}

int towi_peer_new(const struct tow_device *dev, uint64_t number, struct tow_peer **peer)
{
	struct tow_peer *made = malloc(sizeof(*made));

	if (!made)
		return -ENOMEM;
	*made = (struct tow_peer){ .dev = dev, .number = number };
	*peer = made;
	return 0;
}

int towi_peer_copy(const struct tow_peer *peer, struct tow_peer **copy)
{
	return towi_peer_new(peer->dev, peer->number, copy);
}

static int connect_call(const char *address, const struct tow_peer_attr *attr, uint32_t timeout_ms,
			struct tow_peer_connect *call)
{
	struct tow_peer_attr known;
	struct towi_address where;
	int ret;

	ret = towi_take(attr, ATTR_SIZE_FIRST, &known, sizeof(known));
	if (ret)
		return ret;
	ret = towi_address(address, &where);
	if (ret)
		return ret;
	*call = (struct tow_peer_connect){
		.size = sizeof(*call),
		.flags = known.flags,
		.scope_id = where.scope_id,
		.port = where.port,
		.timeout_ms = timeout_ms,
		.gid_index = known.gid_index,
		.pkey_index = known.pkey_index,
		.sl = known.sl,
		.traffic_class = known.traffic_class,
		.mtu = known.mtu,
		.timeout = known.timeout,
		.retry_count = known.retry_count,
		.queue_depth = known.queue_depth,
		.qps = known.qps,
	};
	memcpy(call->address, where.bytes, sizeof(call->address));
	return 0;
}

TOW_PUBLIC int tow_peer_connect(struct tow_device *dev, const char *address,
				const struct tow_peer_attr *attr, uint32_t timeout_ms,
				struct tow_peer **peer)
{
	struct tow_peer_connect call;
	struct tow_peer *made;
	int ret;

	if (!dev || !address || !peer)
		return -EINVAL;
	ret = connect_call(address, attr, timeout_ms, &call);
	if (ret)
		return ret;
	made = malloc(sizeof(*made));
	if (!made)
		return -ENOMEM;
	ret = towi_call_for(dev, TOW_IOCTL_PEER_CONNECT, &call, &call.timeout_ms);
	if (ret) {
		free(made);
		return ret;
	}
	made->dev = dev;
	made->number = call.peer;
	*peer = made;
	return 0;
}

/* A peer whose port is not known may listen at any. */
static bool is_at(const struct tow_peer_info *info, const struct towi_address *address)
{
	return !memcmp(info->address, address->bytes, sizeof(info->address)) &&
	       info->scope_id == address->scope_id &&
	       (!info->port || !address->port || info->port == address->port);
}

const struct tow_peer_info *towi_peer_at(const struct towi_entries *peers,
					 const struct towi_address *address)
{
	const struct tow_peer_info *found = NULL, *info;
	size_t i;

	/* In the order of their numbers: the last is the youngest. */
	for (i = 0; (info = towi_entry(peers, i)); i++)
		if (is_at(info, address) && (!found || found->state != TOW_PEER_READY ||
					     info->state == TOW_PEER_READY))
			found = info;
	return found;
}

static int find_number(const struct tow_device *dev, const struct towi_address *address,
		       uint64_t *number)
{
	const struct tow_peer_info *found;
	struct towi_entries peers;
	int ret;

	ret = towi_entries_ask(dev, TOW_IOCTL_PEER_LIST, 0, sizeof(*found), &peers);
	if (ret)
		return ret;
	found = towi_peer_at(&peers, address);
	if (found)
		*number = found->peer;
	else
		ret = -ENOENT;
	towi_entries_free(&peers);
	return ret;
}

TOW_PUBLIC int tow_peer_find(struct tow_device *dev, const char *address, struct tow_peer **peer)
{
	struct towi_address where;
	struct tow_peer *made;
	int ret;

	if (!dev || !address || !peer)
		return -EINVAL;
	ret = towi_address(address, &where);
	if (ret)
		return ret;
	made = malloc(sizeof(*made));
	if (!made)
		return -ENOMEM;
	made->dev = dev;
	ret = find_number(dev, &where, &made->number);
	if (ret)
		free(made);
	else
		*peer = made;
	return ret;
}

/* Of those that are one life of a device, the one that is connected, or else the youngest. */
static const struct tow_peer_info *peer_named(const struct towi_entries *peers,
					      const uint8_t incarnation[TOW_INCARNATION_BYTES])
{
	const struct tow_peer_info *found = NULL, *info;
	size_t i;

	for (i = 0; (info = towi_entry(peers, i)); i++)
		if (!memcmp(info->incarnation, incarnation, TOW_INCARNATION_BYTES) &&
		    (!found || found->state != TOW_PEER_READY || info->state == TOW_PEER_READY))
			found = info;
	return found;
}

int towi_peer_named(const struct tow_device *dev,
		    const uint8_t incarnation[TOW_INCARNATION_BYTES], struct tow_peer **peer)
{
	const struct tow_peer_info *found;
	struct towi_entries peers;
	struct tow_peer *made;
	int ret;

	ret = towi_entries_ask(dev, TOW_IOCTL_PEER_LIST, 0, sizeof(*found), &peers);
	if (ret)
		return ret;
	found = peer_named(&peers, incarnation);
	made = found ? malloc(sizeof(*made)) : NULL;
	if (made) {
		*made = (struct tow_peer){ dev, found->peer };
		*peer = made;
	} else {
		ret = found ? -ENOMEM : -ENOENT;
	}
	towi_entries_free(&peers);
	return ret;
}

/* By number: in a list of one, which begins with it. */
static int describe(const struct tow_device *dev, uint64_t number, struct tow_peer_info *info)
{
	struct tow_peer_list list = {
		.size = sizeof(list),
		.cursor = number - 1,
		.entries = (uintptr_t)info,
		.entry_size = sizeof(*info),
		.count = 1,
	};
	int ret = towi_call(dev, TOW_IOCTL_PEER_LIST, &list);

	if (ret)
		return ret;
	info->size = list.entry_size;
	return list.count && info->peer == number ? 0 : -ENOENT;
}

TOW_PUBLIC int tow_peer_info(const struct tow_peer *peer, struct tow_peer_info *info)
{
	struct tow_peer_info known = { 0 };
	int ret;

	if (!peer || !info || !towi_size_valid(info->size, TOWI_PEER_INFO_SIZE_FIRST))
		return -EINVAL;
	ret = describe(peer->dev, peer->number, &known);
	return ret ? ret : towi_give(&known, TOWI_PEER_INFO_SIZE_FIRST, info);
}

TOW_PUBLIC int tow_peer_disconnect(struct tow_peer *peer)
{
	struct tow_peer_disconnect call = { .size = sizeof(call) };
	const struct tow_device *dev;
	int ret;

	if (!peer)
		return 0;
	dev = peer->dev;
	call.peer = peer->number;
	free(peer);
	ret = towi_call(dev, TOW_IOCTL_PEER_DISCONNECT, &call);
	while (ret == -EINTR && towi_goes_on()) {
		ret = towi_call(dev, TOW_IOCTL_PEER_DISCONNECT, &call);
		/* It has ended between the two calls, and was forgotten. */
		if (ret == -ENOENT)
			ret = 0;
	}
	return ret;
}

TOW_PUBLIC void tow_peer_release(struct tow_peer *peer)
{
	free(peer);
}
