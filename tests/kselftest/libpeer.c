// SPDX-License-Identifier: GPL-2.0
/*
 * libtowline's peers against the real module, with the node as its own peer:
 * addresses, settings, whose the connection is, ending it, and each error that a
 * program can meet on one node.  (libexport.c is about what is found on them.)
 */
/* build: link -ltowline */
#include <sys/stat.h>

#include "tow_hotplug.h"
#include "tow_libpeer.h"

/* Connections that are lost for want of use, each after a second. */
#define DROPS		4

TEST_F(peer, the_own_address_is_the_own_peer)
{
	struct tow_device_attr attr = { .size = sizeof(attr) };
	struct tow_peer_info info, again;
	char text[128];
	struct tow_peer *same;

	ASSERT_EQ(0, tow_device_query(self->dev, &attr));
	ASSERT_EQ(0, tow_info_of(self->peer, &info));
	EXPECT_EQ(sizeof(info), info.size);
	EXPECT_EQ(TOW_PEER_LOOPBACK, info.flags & TOW_PEER_LOOPBACK);
	EXPECT_EQ(TOW_PEER_READY, info.state);
	EXPECT_EQ(0, memcmp(attr.incarnation, info.incarnation, sizeof(info.incarnation)));
	EXPECT_LE(1, info.epoch);
	EXPECT_EQ(info.epoch - 1, info.reconnects);
	EXPECT_LE(1, info.qps);

	/* However the address is written, it is the same connection. */
	snprintf(text, sizeof(text), "%s:%lld", tow_own_address(), tow_get_count("listen_port"));
	ASSERT_EQ(0, tow_peer_connect(self->dev, text, NULL, 0, &same));
	ASSERT_EQ(0, tow_info_of(same, &again));
	EXPECT_EQ(info.peer, again.peer);
	EXPECT_EQ(info.epoch, again.epoch);
	tow_peer_release(same);
	snprintf(text, sizeof(text), "[::ffff:%s]:%lld", tow_own_address(),
		 tow_get_count("listen_port"));
	ASSERT_EQ(0, tow_peer_connect(self->dev, text, NULL, 0, &same));
	ASSERT_EQ(0, tow_info_of(same, &again));
	EXPECT_EQ(info.peer, again.peer);
	tow_peer_release(same);

	ASSERT_EQ(0, tow_peer_find(self->dev, tow_own_address(), &same));
	ASSERT_EQ(0, tow_info_of(same, &again));
	EXPECT_EQ(info.peer, again.peer);
	tow_peer_release(same);
}

/* Connections are the node's: another process, another client, the same one. */
TEST_F(peer, the_connection_outlives_the_client)
{
	struct tow_peer_info before, after;

	ASSERT_EQ(0, tow_info_of(self->peer, &before));
	tow_peer_release(self->peer);
	tow_region_destroy(self->region);
	tow_device_close(self->dev);
	ASSERT_EQ(0, tow_device_open(tow_test_device(), 0, &self->dev));
	ASSERT_EQ(0, tow_region_create(self->dev, TOW_PEER_REGION, NULL, &self->region));
	ASSERT_EQ(0, tow_peer_connect(self->dev, tow_own_address(), NULL, 0, &self->peer));
	ASSERT_EQ(0, tow_info_of(self->peer, &after));
	EXPECT_EQ(before.peer, after.peer);
	EXPECT_EQ(before.epoch, after.epoch);
}

TEST_F(peer, list)
{
	struct tow_peer_info info, entry;
	struct tow_peers *list = NULL;
	size_t found = 0;

	ASSERT_EQ(0, tow_info_of(self->peer, &info));
	EXPECT_EQ(-EINVAL, tow_peer_list_get(self->dev, 1, &list));
	EXPECT_EQ(NULL, list);
	ASSERT_EQ(0, tow_peer_list_get(self->dev, 0, &list));
	for (size_t i = 0; i < tow_peer_list_count(list); i++) {
		entry.size = sizeof(entry);
		ASSERT_EQ(0, tow_peer_list_entry(list, i, &entry));
		found += entry.peer == info.peer;
	}
	EXPECT_EQ(1, found);
	entry.size = sizeof(entry);
	EXPECT_EQ(-EINVAL, tow_peer_list_entry(list, tow_peer_list_count(list), &entry));
	entry.size = 8;
	EXPECT_EQ(-EINVAL, tow_peer_list_entry(list, 0, &entry));
	EXPECT_EQ(-EINVAL, tow_peer_info(self->peer, &entry));
	tow_peer_list_free(list);
}

TEST_F(peer, connect_refuses_what_is_no_node)
{
	static const char * const bad[] = {
		"", "[::1", "192.0.2.1:0", "0.0.0.0", "::", "224.0.0.1", "255.255.255.255",
		"ff02::1", "fe80::1",
	};
	struct tow_peer *none = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		EXPECT_EQ(-EINVAL, tow_peer_connect(self->dev, bad[i], NULL, 1000, &none)) {
			TH_LOG("address '%s'", bad[i]);
		}
	}
	EXPECT_EQ(-ENOENT, tow_peer_find(self->dev, "192.0.2.77", &none));
	EXPECT_EQ(NULL, none);
}

/* An address of the lab's network that no node has. */
TEST_F(peer, connect_gives_up_in_time)
{
	struct tow_peer *none = NULL;
	double start = tow_test_now();
	char *dot, text[64];
	int ret;

	snprintf(text, sizeof(text), "%s", tow_own_address());
	dot = strrchr(text, '.');
	ASSERT_NE(NULL, dot);
	snprintf(dot, sizeof(text) - (size_t)(dot - text), ".250");
	ret = tow_peer_connect(self->dev, text, NULL, 1000, &none);
	EXPECT_TRUE(ret == -ETIMEDOUT || ret == -EHOSTUNREACH) {
		TH_LOG("%d", ret);
	}
	TOW_WITHIN(start, TOW_PEER_SETTLE_SECONDS * 1e3);
	EXPECT_EQ(NULL, none);
}

/* What must be refused although there is a connection already. */
TEST_F(peer, settings_are_checked)
{
	struct tow_peer_attr attr = { .size = sizeof(attr) };
	struct tow_peer *peer = NULL;

	attr.flags = 1U << 31;
	EXPECT_EQ(-EINVAL, tow_peer_connect(self->dev, tow_own_address(), &attr, 0, &peer));
	attr.flags = TOW_PEER_SET_SL;
	attr.sl = 16;
	EXPECT_EQ(-EINVAL, tow_peer_connect(self->dev, tow_own_address(), &attr, 0, &peer));
	attr.flags = TOW_PEER_SET_RETRY_COUNT;
	attr.sl = 0;
	attr.retry_count = 7;
	EXPECT_EQ(-EINVAL, tow_peer_connect(self->dev, tow_own_address(), &attr, 0, &peer));
	attr.flags = TOW_PEER_SET_QPS;
	attr.retry_count = 0;
	EXPECT_EQ(-EINVAL, tow_peer_connect(self->dev, tow_own_address(), &attr, 0, &peer));
	EXPECT_EQ(NULL, peer);
}

TEST_F(peer, settings_hold_for_the_connection_that_is_made)
{
	struct tow_peer_attr attr = {
		.size = sizeof(attr), .flags = TOW_PEER_SET_QPS, .qps = 2,
	};
	struct tow_peer_info info;

	ASSERT_EQ(0, tow_peer_disconnect(self->peer));
	self->peer = NULL;
	ASSERT_EQ(0, tow_peer_connect(self->dev, tow_own_address(), &attr, TOW_PEER_WAIT_MS,
				      &self->peer));
	ASSERT_EQ(0, tow_info_of(self->peer, &info));
	EXPECT_EQ(2, info.qps);
	/* So that the next one is as the device's settings say. */
	attr.qps = (uint32_t)tow_get_count("qps_per_peer");
	ASSERT_EQ(0, tow_peer_disconnect(self->peer));
	self->peer = NULL;
	ASSERT_EQ(0, tow_peer_connect(self->dev, tow_own_address(), &attr, TOW_PEER_WAIT_MS,
				      &self->peer));
	ASSERT_EQ(0, tow_info_of(self->peer, &info));
	EXPECT_EQ(attr.qps, info.qps);
}

TEST_F(peer, disconnect_and_connect_anew)
{
	struct tow_peer_info before, after;
	struct tow_exported *exported;
	struct tow_remote *remote;
	struct tow_peer *same;

	ASSERT_EQ(0, tow_info_of(self->peer, &before));
	ASSERT_EQ(0, tow_export(self->region, 0, TOW_PEER_REGION, "again", TOW_RIGHT_READ,
				&exported));
	ASSERT_EQ(0, tow_resolve(self->peer, "again", TOW_RIGHT_READ, TOW_PEER_WAIT_MS, &remote));
	ASSERT_EQ(0, tow_peer_find(self->dev, tow_own_address(), &same));
	ASSERT_EQ(0, tow_peer_disconnect(same));
	ASSERT_EQ(0, tow_info_of(self->peer, &after));
	EXPECT_EQ(before.peer, after.peer);
	EXPECT_NE(TOW_PEER_READY, after.state);
	EXPECT_EQ(0, after.qps);
	/* What was found by the old connection went with it. */
	EXPECT_EQ(-ESTALE, tow_remote_release(remote));

	/* Whoever needs a connection makes one. */
	ASSERT_EQ(0, tow_resolve(self->peer, "again", TOW_RIGHT_READ, TOW_PEER_WAIT_MS, &remote));
	ASSERT_EQ(0, tow_info_of(self->peer, &after));
	EXPECT_EQ(TOW_PEER_READY, after.state);
	EXPECT_EQ(before.peer, after.peer);
	EXPECT_EQ(before.epoch + 1, after.epoch);
	EXPECT_EQ(0, tow_remote_release(remote));
	EXPECT_EQ(0, tow_unexport(exported));
}

/* nobody, who is in the group rdma: he connects, and no more than that. */
static int administer_as_group(void *arg)
{
	struct tow_peer_attr attr = {
		.size = sizeof(attr), .flags = TOW_PEER_SET_QPS, .qps = 2,
	};
	struct tow_exports *list;
	struct tow_device *dev;
	struct tow_peer *peer;
	int ret;

	(void)arg;
	ret = tow_device_open(tow_test_device(), 0, &dev);
	if (ret)
		return ret;
	if (tow_peer_connect(dev, tow_own_address(), &attr, 0, &peer) != -EPERM)
		return -EILSEQ;
	ret = tow_peer_connect(dev, tow_own_address(), NULL, TOW_PEER_WAIT_MS, &peer);
	if (ret)
		return ret;
	if (tow_peer_disconnect(peer) != -EPERM)
		return -EXFULL;
	if (tow_export_list_get(dev, TOW_LIST_ALL, &list) != -EPERM)
		return -ENOANO;
	tow_device_close(dev);
	return 0;
}

TEST_F(peer, an_administrators_calls)
{
	struct tow_peer_info info;

	ASSERT_EQ(0, chown(tow_test_path(), 0, tow_rdma_group()));
	ASSERT_EQ(0, chmod(tow_test_path(), 0660));
	EXPECT_EQ(0, tow_as(TOW_GROUP, administer_as_group, NULL));
	ASSERT_EQ(0, tow_info_of(self->peer, &info));
	EXPECT_EQ(TOW_PEER_READY, info.state);
}

/*
 * What was found before is found again without a word to the other end, so the
 * connection is idle, and is dropped again and again.  Whoever wants it at that
 * moment, before all know of it, gets another.
 */
TEST_F_TIMEOUT(peer, found_while_the_connection_is_dropped, 90)
{
	struct tow_patience patience = tow_patience(60);
	struct tow_exported *exported;
	struct tow_peer_info info;
	struct tow_remote *remote;
	__u32 epoch;

	ASSERT_EQ(0, tow_info_of(self->peer, &info));
	epoch = info.epoch;
	ASSERT_EQ(0, tow_export(self->region, 0, 1, "w", TOW_RIGHT_READ, &exported));
	/* It is looked for idleness twice in a beat; silence is not what ends it. */
	ASSERT_EQ(0, tow_set_file("heartbeat_misses", "100"));
	ASSERT_EQ(0, tow_set_file("heartbeat_ms", "50"));
	ASSERT_EQ(0, tow_set_file("peer_idle_s", "1"));
	while (info.epoch < epoch + DROPS && tow_patient(&patience)) {
		for (int i = 0; i < 100; i++) {
			ASSERT_EQ(0, tow_resolve(self->peer, "w", TOW_RIGHT_READ, 0, &remote)) {
				TH_LOG("epoch %u after %u", info.epoch, epoch);
			}
			/* It may be stale by now. */
			(void)tow_remote_release(remote);
		}
		ASSERT_EQ(0, tow_info_of(self->peer, &info));
	}
	/* It may have been dropped again since, if this thread was away. */
	EXPECT_LE(epoch + DROPS, info.epoch);
	EXPECT_EQ(0, tow_set_file("peer_idle_s", "600"));
	EXPECT_EQ(0, tow_set_file("heartbeat_ms", "1000"));
	EXPECT_EQ(0, tow_set_file("heartbeat_misses", "5"));
	EXPECT_EQ(0, tow_unexport(exported));
}

/* ---- the device goes ---- */

TEST_F(peer, a_device_that_goes_away)
{
	struct tow_exported *exported, *later = NULL;
	struct tow_remote *remote, *found = NULL;
	struct tow_peers *peers = NULL;
	struct tow_peer *peer = NULL;
	const char *interface = tow_link_interface(), *name = tow_test_device();
	struct tow_peer_info info;

	ASSERT_EQ(0, tow_export(self->region, 0, 1, "w", TOW_RIGHT_READ, &exported));
	ASSERT_EQ(0, tow_resolve(self->peer, "w", TOW_RIGHT_READ, 0, &remote));
	ASSERT_TRUE(tow_link_del(name));
	EXPECT_EQ(-ENODEV, tow_peer_connect(self->dev, tow_own_address(), NULL, 0, &peer));
	EXPECT_EQ(-ENODEV, tow_peer_find(self->dev, tow_own_address(), &peer));
	EXPECT_EQ(NULL, peer);
	EXPECT_EQ(-ENODEV, tow_peer_list_get(self->dev, 0, &peers));
	EXPECT_EQ(-ENODEV, tow_info_of(self->peer, &info));
	EXPECT_EQ(-ENODEV, tow_export(self->region, 0, 1, "x", TOW_RIGHT_READ, &later));
	EXPECT_EQ(-ENODEV, tow_resolve(self->peer, "w", TOW_RIGHT_READ, 0, &found));
	EXPECT_EQ(NULL, later);
	EXPECT_EQ(NULL, found);
	EXPECT_EQ(-ENODEV, tow_remote_release(remote));
	EXPECT_EQ(-ENODEV, tow_unexport(exported));
	EXPECT_EQ(-ENODEV, tow_peer_disconnect(self->peer));
	self->peer = NULL;
	ASSERT_TRUE(tow_link_add(name, interface));
}

TEST_HARNESS_MAIN
