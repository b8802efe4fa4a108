// SPDX-License-Identifier: GPL-2.0
/*
 * Room for another peer, where there is none: no more queue pairs (tow_full.ko), or
 * a full table of peers.  The connection that was idle for the longest goes, and
 * nothing that anybody uses.  (To be run by tests/lab/evil-nodes.)
 */
#include "tow_evil.h"
#include "tow_region.h"
#include "tow_peer.h"

#define LIMIT		"/sys/module/tow_full/parameters/limit"
#define COUNT		"/sys/module/tow_full/parameters/count"
#define R_NO_ROOM	9
#define R_IDLE		10

/* What counts as just used; for one who comes back. */
#define IDLE_MS		1000
#define AGAIN_MS	50

FIXTURE(evict)
{
	int fd;
	struct tow_knobs knobs;
	struct tow_region_create region;
	__u64 exported;
	long long evictions;
	/* Connected, and used in this order; each has two queue pairs here. */
	struct evil a;
	struct evil b;
	struct evil c;
};

/* Asks what there is not: it is in use for a moment. */
static int use(struct evil *e)
{
	uint8_t body[33] = { [20] = TOW_RIGHT_READ, [25] = 1, [32] = '?' };

	if (evil_say(e, T_RESOLVE, 1, body, sizeof(body)))
		return -EIO;
	return evil_hear(e, EVIL_WAIT_MS) == T_RESOLVED ? 0 : -EPROTO;
}

/* Has found the export: it is in use until it ends. */
static int keep(struct evil *e)
{
	uint8_t body[33] = { [20] = TOW_RIGHT_READ, [25] = 1, [32] = 'w' };
	uint32_t status;

	if (evil_say(e, T_RESOLVE, 2, body, sizeof(body)) ||
	    evil_hear(e, EVIL_WAIT_MS) != T_RESOLVED)
		return -EPROTO;
	memcpy(&status, e->last.data + EVIL_HEADER + 16, sizeof(status));
	return status ? -ENOENT : 0;
}

/* As a node of its own.  0; -ECONNREFUSED, and why; what else there is. */
static int come(struct evil *e, char name, int *reason)
{
	int ret = evil_appear(e, name);

	*reason = -1;
	if (ret)
		return ret;
	ret = evil_connect(e->fd, &e->request, sizeof(e->request), &e->reply, sizeof(e->reply),
			   reason);
	if (!ret)
		ret = evil_derive(e);
	if (ret)
		return ret;
	e->qps = e->reply.qps;
	ret = evil_say_last(e, T_AUTH, 0, &e->auth, sizeof(e->auth));
	if (!ret)
		ret = evil_hear(e, EVIL_WAIT_MS);
	if (ret == T_AUTHED)
		return evil_complete(e);
	if (ret != T_GOODBYE)
		return ret < 0 ? ret : -EPROTO;
	memcpy(reason, e->last.data + EVIL_HEADER, sizeof(*reason));
	return -ECONNREFUSED;
}

/* Comes back as long as it is told to: how often it was, or a negative errno. */
static int come_back(struct evil *e, char name)
{
	struct tow_patience patience = tow_patience(EVIL_WAIT_MS / 1e3);
	int ret, reason, told = 0;

	while ((ret = come(e, name, &reason)) == -ECONNREFUSED && reason == R_BUSY &&
	       tow_patient(&patience)) {
		told++;
		evil_end(e);
		tow_test_sleep_ms(AGAIN_MS);
	}
	return ret ? ret : told;
}

static bool goes_on(struct evil *e)
{
	return !use(e);
}

/*
 * No peer is remembered: each that is not connected is forgotten by that.  Not yet one that is being
 * connected to, as whoever was played has gone without a word.
 */
static bool forgotten(int fd)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);

	for (;;) {
		for (__u64 peer = 1; evil_count("peers") && peer < 1000; peer++)
			tow_disconnect(fd, peer);
		if (!evil_count("peers") || !tow_patient(&patience))
			return !evil_count("peers");
		tow_test_sleep_ms(AGAIN_MS);
	}
}

FIXTURE_SETUP(evict)
{
	int reason;

	tow_knobs_save(&self->knobs);
	ASSERT_EQ(0, evil_share_key());
	ASSERT_EQ(0, evil_set("qps_per_peer", "1"));
	/* Those that are played say nothing by themselves. */
	ASSERT_EQ(0, evil_set("heartbeat_ms", "60000"));
	ASSERT_EQ(0, tow_pool_fresh(TOW_SLAB));
	self->fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, tow_region_create(self->fd, TOW_SLAB, &self->region));
	ASSERT_EQ(0, tow_publish(self->fd, self->region.handle, "w", TOW_SLAB, &self->exported));
	self->evictions = evil_count("evictions");
	ASSERT_LE(0, self->evictions);
	ASSERT_EQ(0, come(&self->a, 'a', &reason));
	ASSERT_EQ(0, come(&self->b, 'b', &reason));
	self->c.fd = -1;
	ASSERT_EQ(0, use(&self->a));
	tow_test_sleep_ms(20);
	ASSERT_EQ(0, use(&self->b));
	ASSERT_EQ(2, evil_count("sessions"));
}

FIXTURE_TEARDOWN(evict)
{
	EXPECT_EQ(0, tow_write_file(LIMIT, "1000000"));
	evil_end(&self->a);
	evil_end(&self->b);
	if (self->c.fd >= 0)
		evil_end(&self->c);
	EXPECT_EQ(0, evil_wait("sessions", 0));
	EXPECT_TRUE(forgotten(self->fd));
	EXPECT_EQ(0, tow_end_handle(self->fd, TOW_IOCTL_UNEXPORT, self->exported));
	close(self->fd);
	EXPECT_EQ(0, tow_knobs_restore(&self->knobs));
}

/* ---- somebody comes ---------------------------------------------------------- */

TEST_F(evict, the_one_that_was_idle_for_the_longest)
{
	ASSERT_EQ(0, tow_write_file(LIMIT, "4"));
	ASSERT_TRUE(tow_peers_idle(self->fd, IDLE_MS));
	EXPECT_LE(1, come_back(&self->c, 'c'));
	EXPECT_EQ(R_IDLE, evil_how_it_ends(&self->a));
	EXPECT_TRUE(goes_on(&self->b));
	EXPECT_TRUE(goes_on(&self->c));
	EXPECT_EQ(self->evictions + 1, evil_count("evictions"));
	EXPECT_EQ(2, evil_wait("sessions", 2));
}

/* One whose use began before the other's is used for as long as that lasts. */
TEST_F(evict, never_one_that_is_used)
{
	int reason;

	ASSERT_EQ(0, keep(&self->a));
	ASSERT_EQ(0, tow_write_file(LIMIT, "4"));
	ASSERT_TRUE(tow_peers_idle(self->fd, IDLE_MS));
	EXPECT_LE(1, come_back(&self->c, 'c'));
	EXPECT_EQ(R_IDLE, evil_how_it_ends(&self->b));
	EXPECT_EQ(self->evictions + 1, evil_count("evictions"));
	evil_end(&self->b);
	/* And now there is none but those that are. */
	ASSERT_EQ(0, keep(&self->c));
	ASSERT_TRUE(tow_peers_idle(self->fd, IDLE_MS));
	EXPECT_EQ(-ECONNREFUSED, come(&self->b, 'b', &reason));
	EXPECT_EQ(R_NO_ROOM, reason);
	EXPECT_TRUE(goes_on(&self->a));
	EXPECT_TRUE(goes_on(&self->c));
	EXPECT_EQ(self->evictions + 1, evil_count("evictions"));
}

/* There is room for the control queue pair, and none for data. */
TEST_F(evict, who_has_proved_itself)
{
	ASSERT_EQ(0, tow_write_file(LIMIT, "5"));
	ASSERT_TRUE(tow_peers_idle(self->fd, IDLE_MS));
	for (int tries = 0; tries < 3; tries++) {
		int reason, ret = come(&self->c, 'c', &reason);

		if (!ret)
			break;
		EXPECT_EQ(0, tries);
		EXPECT_EQ(-ECONNREFUSED, ret);
		evil_end(&self->c);
		self->c.fd = -1;
		EXPECT_EQ(1, evil_wait("sessions", 1));
	}
	EXPECT_EQ(R_IDLE, evil_how_it_ends(&self->a));
	EXPECT_TRUE(goes_on(&self->b));
	EXPECT_TRUE(goes_on(&self->c));
	EXPECT_EQ(self->evictions + 1, evil_count("evictions"));
}

/* ---- we go ------------------------------------------------------------------- */

/* To itself, which takes as many as both others have. */
TEST_F(evict, for_a_connection_that_we_make)
{
	__u64 peer;

	ASSERT_EQ(0, tow_write_file(LIMIT, "4"));
	ASSERT_TRUE(tow_peers_idle(self->fd, IDLE_MS));
	EXPECT_EQ(0, tow_connect_self(self->fd, &peer));
	EXPECT_EQ(R_IDLE, evil_how_it_ends(&self->a));
	EXPECT_EQ(R_IDLE, evil_how_it_ends(&self->b));
	EXPECT_EQ(self->evictions + 2, evil_count("evictions"));
	EXPECT_EQ(2, evil_wait("sessions", 2));
	EXPECT_EQ(0, tow_disconnect(self->fd, peer));
}

/*
 * It is the other end, which happens to be ours, that has no room: it says so, and
 * is asked again soon, twice.  Not after 2 s, the time of one step.
 */
TEST_F(evict, told_to_come_back)
{
	__u64 peer;

	ASSERT_EQ(0, tow_write_file(LIMIT, "5"));
	ASSERT_TRUE(tow_peers_idle(self->fd, IDLE_MS));
	EXPECT_EQ(0, tow_connect_self(self->fd, &peer));
	EXPECT_EQ(R_IDLE, evil_how_it_ends(&self->a));
	/* By a data queue pair: before that it is not known whose record it is. */
	EXPECT_TRUE(tow_peer_recorded(" error=-11\n"));
	EXPECT_FALSE(tow_peer_recorded(" error=-110\n"));
	EXPECT_EQ(0, tow_disconnect(self->fd, peer));
}

TEST_F(evict, no_room_at_all)
{
	__u64 peer;

	ASSERT_EQ(0, keep(&self->a));
	ASSERT_EQ(0, keep(&self->b));
	ASSERT_EQ(0, tow_write_file(LIMIT, "4"));
	ASSERT_TRUE(tow_peers_idle(self->fd, IDLE_MS));
	EXPECT_EQ(-ENOSPC, tow_connect_self(self->fd, &peer));
	/* The responder's end, and it alone, has none. */
	ASSERT_EQ(0, tow_write_file(LIMIT, "5"));
	EXPECT_EQ(-ENOSPC, tow_connect_self(self->fd, &peer));
	EXPECT_TRUE(goes_on(&self->a));
	EXPECT_TRUE(goes_on(&self->b));
	EXPECT_EQ(self->evictions, evil_count("evictions"));
}

/* ---- the table --------------------------------------------------------------- */

TEST_F(evict, a_peer_that_is_not_connected)
{
	ASSERT_EQ(2, evil_count("peers"));
	ASSERT_EQ(0, evil_set("peer_limit", "2"));
	evil_end(&self->a);
	ASSERT_EQ(1, evil_wait("sessions", 1));
	/* Not b, though it is idle too. */
	ASSERT_TRUE(tow_peers_idle(self->fd, IDLE_MS));
	EXPECT_EQ(0, come_back(&self->c, 'c'));
	EXPECT_EQ(2, evil_count("peers"));
	EXPECT_TRUE(goes_on(&self->b));
	EXPECT_TRUE(goes_on(&self->c));
	EXPECT_EQ(self->evictions + 1, evil_count("evictions"));
}

TEST_F(evict, all_peers_are_connected)
{
	ASSERT_EQ(0, evil_set("peer_limit", "2"));
	ASSERT_TRUE(tow_peers_idle(self->fd, IDLE_MS));
	EXPECT_LE(1, come_back(&self->c, 'c'));
	EXPECT_EQ(R_IDLE, evil_how_it_ends(&self->a));
	EXPECT_TRUE(goes_on(&self->b));
	EXPECT_TRUE(goes_on(&self->c));
	EXPECT_EQ(2, evil_count("peers"));
	/* A connection, and then the peer. */
	EXPECT_EQ(self->evictions + 2, evil_count("evictions"));
}

TEST_F(evict, all_peers_are_used)
{
	int reason;
	__u64 peer;

	ASSERT_EQ(0, keep(&self->a));
	ASSERT_EQ(0, keep(&self->b));
	ASSERT_EQ(0, evil_set("peer_limit", "2"));
	ASSERT_TRUE(tow_peers_idle(self->fd, IDLE_MS));
	EXPECT_EQ(-ECONNREFUSED, come(&self->c, 'c', &reason));
	EXPECT_EQ(R_NO_ROOM, reason);
	EXPECT_EQ(-ENOSPC, tow_connect_self(self->fd, &peer));
	EXPECT_EQ(2, evil_count("peers"));
	EXPECT_TRUE(goes_on(&self->a));
	EXPECT_TRUE(goes_on(&self->b));
	EXPECT_EQ(self->evictions, evil_count("evictions"));
}

TEST_HARNESS_MAIN
