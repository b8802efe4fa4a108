// SPDX-License-Identifier: GPL-2.0
/*
 * Completion queues that run out (tow_full.ko): as long as those that there are have
 * room, queue pairs share them; each has room for all that its queue pairs may have
 * in flight; and where there is none left, whoever wants it is told so, and nothing
 * is kept of what was begun.  (To be run by tests/lab/evil-nodes.)
 */
#include "tow_evil.h"
#include "tow_peer.h"

#define FULL		"/sys/module/tow_full/parameters/"
#define R_NO_ROOM	9
/* Data queue pairs of a connection: each sends, and each receives. */
#define QPS		4
/* Work requests of one, soft-RoCE's default; and its receives. */
#define DEPTH		"127"
#define ENTRIES		"127"

FIXTURE(cqs)
{
	int fd;
	long refused;
	struct evil e;
};

static long count_of(const char *what)
{
	char path[PATH_MAX], line[32];

	snprintf(path, sizeof(path), FULL "%s", what);
	tow_test_read_line(path, line, sizeof(line));
	return line[0] ? strtol(line, NULL, 10) : -1;
}

/* What each connection has for control. */
#define CONTROL		1

/* Completion queues that there may be, for that and for data. */
static int allow(const char *limit)
{
	return tow_write_file(FULL "cq_limit", limit);
}

/* Whose completion queues have so many entries; "0": as many as ever. */
static int device_has(const char *entries)
{
	return tow_write_file(FULL "cqe", entries);
}

/* Nothing is left of whatever there was. */
static bool all_gone(void)
{
	return !evil_wait("sessions", 0) && !count_of("cq_count") && !count_of("count");
}

FIXTURE_SETUP(cqs)
{
	self->e.fd = -1;
	self->refused = count_of("cq_refused");
	ASSERT_LE(0, self->refused);
	ASSERT_EQ(0, evil_share_key());
	ASSERT_EQ(0, evil_set("qps_per_peer", "4"));
	ASSERT_EQ(0, evil_set("queue_depth", DEPTH));
	/* Who is played says nothing by himself. */
	ASSERT_EQ(0, evil_set("heartbeat_ms", "60000"));
	self->fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(cqs)
{
	if (self->e.fd >= 0)
		evil_end(&self->e);
	EXPECT_TRUE(all_gone());
	for (__u64 peer = 1; evil_count("peers") && peer < 100; peer++)
		tow_disconnect(self->fd, peer);
	EXPECT_EQ(0, evil_count("peers"));
	close(self->fd);
	EXPECT_EQ(0, evil_set("cqs", "4"));
	EXPECT_EQ(0, device_has("0"));
	EXPECT_EQ(0, allow("1000000"));
}

/* ---- room ---------------------------------------------------------------------- */

/* As many as were asked for, for what is sent and for what is received, and control's. */
TEST_F(cqs, one_for_each_queue_pair)
{
	ASSERT_EQ(0, evil_ready(&self->e, QPS));
	EXPECT_EQ(CONTROL + 2 * QPS, count_of("cq_count"));
	EXPECT_EQ(self->refused, count_of("cq_refused"));
}

TEST_F(cqs, shared_where_the_device_has_no_more)
{
	ASSERT_EQ(0, allow("4"));
	ASSERT_EQ(0, evil_ready(&self->e, QPS));
	EXPECT_EQ(4, count_of("cq_count"));
	EXPECT_EQ(self->refused + CONTROL + 2LL * QPS - 4, count_of("cq_refused"));
}

/* One is wanted, and it has no room for a second queue pair. */
TEST_F(cqs, more_than_wanted_where_none_has_room)
{
	ASSERT_EQ(0, device_has(ENTRIES));
	ASSERT_EQ(0, evil_set("cqs", "1"));
	ASSERT_EQ(0, evil_ready(&self->e, QPS));
	EXPECT_EQ(CONTROL + 2 * QPS, count_of("cq_count"));
}

/* And it is as many as wanted where it has. */
TEST_F(cqs, one_where_it_has_room)
{
	ASSERT_EQ(0, evil_set("cqs", "1"));
	ASSERT_EQ(0, evil_ready(&self->e, QPS));
	EXPECT_EQ(CONTROL + 2, count_of("cq_count"));
}

/* Smaller than what a queue pair may have in flight: then it may have less. */
TEST_F(cqs, smaller_than_a_queue_pair)
{
	__u64 peer;

	ASSERT_EQ(0, device_has("64"));
	ASSERT_EQ(0, evil_ready(&self->e, QPS));
	evil_end(&self->e);
	EXPECT_EQ(0, evil_wait("sessions", 0));
	EXPECT_EQ(0, tow_connect_self(self->fd, &peer));
	EXPECT_EQ(0, tow_disconnect(self->fd, peer));
}

/* ---- none ---------------------------------------------------------------------- */

/* The last data queue pair of somebody who comes finds none for what it receives. */
TEST_F(cqs, no_room_for_who_comes)
{
	ASSERT_EQ(0, device_has(ENTRIES));
	ASSERT_EQ(0, allow("8"));
	ASSERT_EQ(0, evil_begin(&self->e, QPS));
	ASSERT_EQ(0, evil_prove(&self->e));
	EXPECT_EQ(R_NO_ROOM, evil_how_it_ends(&self->e));
	evil_end(&self->e);
	EXPECT_TRUE(all_gone());
	/* Now there is. */
	ASSERT_EQ(0, allow("9"));
	EXPECT_EQ(0, evil_ready(&self->e, QPS));
}

/* Not even for what is said. */
TEST_F(cqs, no_room_for_control)
{
	int reason = -1;
	__u64 peer;

	ASSERT_EQ(0, allow("0"));
	ASSERT_EQ(0, evil_prepare(&self->e, 1));
	EXPECT_EQ(-ECONNREFUSED, evil_ask(&self->e, &reason));
	EXPECT_EQ(R_NO_ROOM, reason);
	EXPECT_EQ(-ENOMEM, tow_connect_self(self->fd, &peer));
	EXPECT_TRUE(all_gone());
}

/* To itself: each end has one for control, and two for each data queue pair. */
TEST_F(cqs, no_room_for_a_connection_that_we_make)
{
	__u64 peer;
	int ret;

	ASSERT_EQ(0, device_has(ENTRIES));
	ASSERT_EQ(0, evil_set("qps_per_peer", "1"));
	ASSERT_EQ(0, allow("5"));
	/* The responder has none: it says so, or its session's end does, which is ours too. */
	ret = tow_connect_self(self->fd, &peer);
	EXPECT_TRUE(ret == -ENOSPC || ret == -ENOMEM)
		TH_LOG("%d", ret);
	EXPECT_TRUE(all_gone());
	ASSERT_EQ(0, allow("6"));
	EXPECT_EQ(0, tow_connect_self(self->fd, &peer));
	EXPECT_EQ(6, count_of("cq_count"));
	EXPECT_EQ(0, tow_disconnect(self->fd, peer));
}

TEST_HARNESS_MAIN
