/* SPDX-License-Identifier: GPL-2.0 */
/*
 * libtowline's peers on one node: a client with a region, and the node as its own
 * peer, found by the address that it has in the lab.
 */
#ifndef TOW_LIBPEER_H
#define TOW_LIBPEER_H

#include <towline/towline.h>

#include "tow_identity.h"
#include "tow_test.h"

#define TOW_PEER_POOL		"64m"
/* Bytes of the region: one small slab. */
#define TOW_PEER_REGION		((size_t)64 << 10)
#define TOW_PEER_WAIT_MS	10000
#define TOW_PEER_SETTLE_SECONDS	20.0

/* ---- the node ---- */

static inline void tow_file_path(char *path, size_t room, const char *file)
{
	snprintf(path, room, "/sys/class/towline/%s/%s", tow_test_device(), file);
}

/* 0 or a negative errno. */
static inline int tow_set_file(const char *file, const char *text)
{
	char path[PATH_MAX];

	tow_file_path(path, sizeof(path), file);
	return tow_write_file(path, text);
}

static inline void tow_get_file(const char *file, char *text, size_t room)
{
	char path[PATH_MAX];

	tow_file_path(path, sizeof(path), file);
	tow_test_read_line(path, text, room);
}

/* -1: there is no such file */
static inline long long tow_get_count(const char *file)
{
	char text[32];

	tow_get_file(file, text, sizeof(text));
	return text[0] ? strtoll(text, NULL, 10) : -1;
}

/* Wait until a file says so: what it says in the end. */
static inline long long tow_wait_count(const char *file, long long wanted)
{
	struct tow_patience patience = tow_patience(TOW_PEER_SETTLE_SECONDS);
	long long seen;

	while ((seen = tow_get_count(file)) != wanted && tow_patient(&patience))
		tow_test_sleep_ms(10);
	return seen;
}

/* This node's address in the lab. */
static inline const char *tow_own_address(void)
{
	const char *addresses = getenv("TOW_LAB_ADDRS"), *node = getenv("TOW_LAB_NODE");
	static char own[64];
	long skip = node ? strtol(node, NULL, 10) : 0;

	if (!addresses)
		return "none";
	while (skip-- > 0) {
		addresses = strchr(addresses, ',');
		if (!addresses)
			return "none";
		addresses++;
	}
	snprintf(own, sizeof(own), "%.*s", (int)strcspn(addresses, ","), addresses);
	return own;
}

/* ---- a device, a region, and the node as a peer ---- */

static inline int tow_info_of(const struct tow_peer *peer, struct tow_peer_info *info)
{
	info->size = sizeof(*info);
	return tow_peer_info(peer, info);
}

FIXTURE(peer)
{
	struct tow_device *dev;
	struct tow_region *region;
	struct tow_peer *peer;
};

FIXTURE_SETUP(peer)
{
	ASSERT_EQ(0, tow_set_file("pool_bytes", TOW_PEER_POOL));
	ASSERT_EQ(0, tow_set_file("allow_unauthenticated", "1"));
	ASSERT_EQ(0, tow_device_open(tow_test_device(), 0, &self->dev));
	ASSERT_EQ(0, tow_region_create(self->dev, TOW_PEER_REGION, NULL, &self->region));
	ASSERT_EQ(0, tow_peer_connect(self->dev, tow_own_address(), NULL, TOW_PEER_WAIT_MS,
				      &self->peer));
}

FIXTURE_TEARDOWN(peer)
{
	tow_peer_release(self->peer);
	tow_region_destroy(self->region);
	tow_device_close(self->dev);
}

#endif /* TOW_LIBPEER_H */
