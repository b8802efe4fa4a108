// SPDX-License-Identifier: GPL-2.0
/*
 * No room for another peer: no more queue pairs (tow_full.ko), or a full table of
 * peers.  The new one is refused, and no connection ends for it, however idle it is.
 * (To be run by tests/lab/evil-nodes.)
 */
#include "tow_evil.h"
#include "tow_peer.h"
#include "tow_sysfs.h"

#define LIMIT		"/sys/module/tow_full/parameters/limit"
#define R_NO_ROOM	9
/* Longer than a connection that is in use is quiet. */
#define IDLE_MS		1100

FIXTURE(room)
{
	int fd;
	struct tow_knobs knobs;
	long long evictions;
	/* The first two are connected and idle; each has two queue pairs here. */
	struct evil a;
	struct evil b;
	struct evil c;
};

/*
 * No peer is remembered: each that is not connected is forgotten by that.  Not yet one that is
 * being connected to, as whoever was played has gone without a word.
 */
static bool forgotten(int fd)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);

	for (;;) {
		for (__u64 peer = 1; evil_count("peers") && peer < 1000; peer++)
			tow_disconnect(fd, peer);
		if (!evil_count("peers") || !tow_patient(&patience))
			return !evil_count("peers");
		tow_test_sleep_ms(50);
	}
}

FIXTURE_SETUP(room)
{
	int reason;

	tow_knobs_save(&self->knobs);
	ASSERT_EQ(0, evil_share_key());
	ASSERT_EQ(0, evil_set("qps_per_peer", "1"));
	/* Those that are played say nothing by themselves. */
	ASSERT_EQ(0, evil_set("heartbeat_ms", "60000"));
	self->fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, self->fd);
	self->evictions = evil_count("evictions");
	ASSERT_LE(0, self->evictions);
	ASSERT_EQ(0, evil_come(&self->a, 'a', 'a', &reason));
	ASSERT_EQ(0, evil_come(&self->b, 'b', 'b', &reason));
	self->c.fd = -1;
	ASSERT_EQ(0, evil_use(&self->a));
	ASSERT_EQ(0, evil_use(&self->b));
	ASSERT_EQ(2, evil_count("sessions"));
	ASSERT_TRUE(tow_peers_idle(self->fd, IDLE_MS));
}

FIXTURE_TEARDOWN(room)
{
	EXPECT_EQ(0, tow_write_file(LIMIT, "1000000"));
	evil_end(&self->a);
	evil_end(&self->b);
	if (self->c.fd >= 0)
		evil_end(&self->c);
	EXPECT_EQ(0, evil_wait("sessions", 0));
	EXPECT_TRUE(forgotten(self->fd));
	close(self->fd);
	EXPECT_EQ(0, tow_knobs_restore(&self->knobs));
}

/* Neither was ended, nor is either forgotten. */
static bool others_go_on(FIXTURE_DATA(room) *self)
{
	return !evil_use(&self->a) && !evil_use(&self->b) && evil_count("evictions") == self->evictions;
}

/* ---- no more queue pairs ----------------------------------------------------- */

TEST_F(room, none_for_who_comes)
{
	int reason;

	ASSERT_EQ(0, tow_write_file(LIMIT, "4"));
	EXPECT_EQ(-ECONNREFUSED, evil_come(&self->c, 'c', 'c', &reason));
	EXPECT_EQ(R_NO_ROOM, reason);
	EXPECT_TRUE(others_go_on(self));
}

/* There is room for the control queue pair, and none for data. */
TEST_F(room, none_for_who_has_proved_itself)
{
	int reason;

	ASSERT_EQ(0, tow_write_file(LIMIT, "5"));
	EXPECT_EQ(-ECONNREFUSED, evil_come(&self->c, 'c', 'c', &reason));
	EXPECT_EQ(2, evil_wait("sessions", 2));
	EXPECT_TRUE(others_go_on(self));
}

/* What the driver says is what the caller gets. */
TEST_F(room, none_for_a_connection_that_we_make)
{
	__u64 peer;

	ASSERT_EQ(0, tow_write_file(LIMIT, "4"));
	EXPECT_EQ(-ENOMEM, tow_connect_self(self->fd, &peer));
	/* The responder's end, and it alone, has none. */
	ASSERT_EQ(0, tow_write_file(LIMIT, "5"));
	EXPECT_EQ(-ENOSPC, tow_connect_self(self->fd, &peer));
	EXPECT_TRUE(others_go_on(self));
}

/* ---- the table --------------------------------------------------------------- */

TEST_F(room, a_peer_that_is_not_connected)
{
	int reason;

	ASSERT_EQ(2, evil_count("peers"));
	ASSERT_EQ(0, evil_set("peer_limit", "2"));
	evil_end(&self->a);
	ASSERT_EQ(1, evil_wait("sessions", 1));
	/* Not b, which is idle too. */
	EXPECT_EQ(0, evil_come(&self->c, 'c', 'c', &reason));
	EXPECT_EQ(2, evil_count("peers"));
	EXPECT_EQ(0, evil_use(&self->b));
	EXPECT_EQ(0, evil_use(&self->c));
	EXPECT_EQ(self->evictions + 1, evil_count("evictions"));
}

TEST_F(room, all_peers_are_connected)
{
	int reason;
	__u64 peer;

	ASSERT_EQ(0, evil_set("peer_limit", "2"));
	EXPECT_EQ(-ECONNREFUSED, evil_come(&self->c, 'c', 'c', &reason));
	EXPECT_EQ(R_NO_ROOM, reason);
	EXPECT_EQ(-ENOSPC, tow_connect_self(self->fd, &peer));
	EXPECT_EQ(2, evil_count("peers"));
	EXPECT_TRUE(others_go_on(self));
}

TEST_HARNESS_MAIN
