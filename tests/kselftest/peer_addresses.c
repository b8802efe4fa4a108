// SPDX-License-Identifier: GPL-2.0
/*
 * Addresses that move from one node to another, and nodes that claim what is not theirs
 * (tow_hostile.ko).  No connection ends that is alive, and nobody is taken for another.
 * (To be run by tests/lab/evil-nodes.)
 */
#include "tow_evil.h"
#include "tow_peer.h"
#include "tow_sysfs.h"

/* Longer than a node has to be silent before it is believed to be elsewhere. */
#define SILENT_MS	2500

FIXTURE(addresses)
{
	int fd;
	struct tow_knobs knobs;
	struct evil p;
	struct evil q;
};

FIXTURE_SETUP(addresses)
{
	tow_knobs_save(&self->knobs);
	ASSERT_EQ(0, evil_share_key());
	ASSERT_EQ(0, evil_patience(EVIL_PATIENT));
	/* Those that are played say nothing by themselves. */
	ASSERT_EQ(0, evil_set("heartbeat_ms", "60000"));
	self->fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, self->fd);
	self->p.fd = -1;
	self->q.fd = -1;
}

FIXTURE_TEARDOWN(addresses)
{
	__u64 peer;

	if (self->p.fd >= 0)
		evil_end(&self->p);
	if (self->q.fd >= 0)
		evil_end(&self->q);
	for (peer = 1; peer < 100; peer++)
		tow_disconnect(self->fd, peer);
	EXPECT_EQ(0, evil_wait("sessions", 0));
	for (peer = 1; peer < 100; peer++)
		tow_disconnect(self->fd, peer);
	EXPECT_EQ(0, evil_count("peers"));
	close(self->fd);
	EXPECT_EQ(0, tow_knobs_restore(&self->knobs));
}

/* The peer that has this name; false: there is none. */
static bool look(int fd, char name, struct tow_peer_info *info)
{
	struct tow_peer_info entries[16] = {};
	struct tow_peer_list call = {
		.size = sizeof(call), .entries = (uintptr_t)entries,
		.entry_size = sizeof(entries[0]), .count = ARRAY_SIZE(entries),
	};

	if (tow_test_ioctl(fd, TOW_IOCTL_PEER_LIST, &call))
		return false;
	while (call.count--)
		if (!(entries[call.count].flags & TOW_PEER_LOOPBACK) &&
		    entries[call.count].incarnation[15] == (uint8_t)name) {
			*info = entries[call.count];
			return true;
		}
	return false;
}

/* Its number, and the last byte of where it is; 0: none. */
static __u64 find(int fd, char name, char *where)
{
	struct tow_peer_info info;

	if (!look(fd, name, &info))
		return 0;
	*where = (char)info.address[15];
	return info.peer;
}

/* A node hears READY a moment before it is so. */
static int come(int fd, struct evil *e, char name, char address, int *reason)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	struct tow_peer_info info = {};
	int ret = evil_come(e, name, address, reason);

	while (!ret && !(look(fd, name, &info) && info.state == TOW_PEER_READY) &&
	       tow_patient(&patience))
		tow_test_sleep_ms(10);
	return ret;
}

static __u64 number_of(int fd, char name)
{
	char where;

	return find(fd, name, &where);
}

/* Whom PEER_CONNECT finds there: nobody but the node itself listens at any of its addresses. */
static __u64 found_at(int fd, char address)
{
	struct tow_peer_connect call = {
		.size = sizeof(call), .port = EVIL_PORT, .timeout_ms = 20000,
	};

	evil_address_of(call.address, address);
	return tow_test_ioctl(fd, TOW_IOCTL_PEER_CONNECT, &call) ? 0 : call.peer;
}

/* A node has moved to another address, and a new one has its old one. */
TEST_F_TIMEOUT(addresses, that_is_anothers_now, 60)
{
	char where;
	__u64 p;
	int reason;

	ASSERT_EQ(0, come(self->fd, &self->p, 'p', 'a', &reason));
	evil_end(&self->p);
	ASSERT_EQ(0, evil_wait("sessions", 0));
	ASSERT_EQ(0, come(self->fd, &self->p, 'p', 'b', &reason));
	p = find(self->fd, 'p', &where);
	ASSERT_NE(0, p);
	EXPECT_EQ('b', where);
	ASSERT_EQ(0, come(self->fd, &self->q, 'q', 'a', &reason));
	EXPECT_EQ(0, evil_use(&self->p));
	EXPECT_EQ(0, evil_use(&self->q));
	EXPECT_EQ(p, number_of(self->fd, 'p'));
	EXPECT_EQ(2, evil_count("sessions"));
	/* Nor is the other one told for it when it has gone. */
	evil_end(&self->p);
	ASSERT_EQ(1, evil_wait("sessions", 1));
	EXPECT_EQ(p, find(self->fd, 'p', &where));
	EXPECT_EQ('b', where);
	EXPECT_NE(0, find(self->fd, 'q', &where));
	EXPECT_EQ('a', where);
}

/* Its connection is by another address now: who is at the old one is asked for anew. */
TEST_F_TIMEOUT(addresses, nobody_is_taken_for_who_was_there, 60)
{
	__u64 p, found;
	int reason;

	ASSERT_EQ(0, come(self->fd, &self->p, 'p', 'a', &reason));
	evil_end(&self->p);
	ASSERT_EQ(0, evil_wait("sessions", 0));
	ASSERT_EQ(0, come(self->fd, &self->p, 'p', 'b', &reason));
	p = number_of(self->fd, 'p');
	EXPECT_EQ(p, found_at(self->fd, 'b'));
	found = found_at(self->fd, 'a');
	EXPECT_NE(0, found);
	EXPECT_NE(p, found);
	EXPECT_EQ(0, evil_use(&self->p));
}

/* Two nodes that were both there swap their addresses: neither is another's earlier life. */
TEST_F_TIMEOUT(addresses, two_that_swap, 60)
{
	struct evil p, q;
	__u64 first, second;
	int reason;

	ASSERT_EQ(0, come(self->fd, &p, 'p', 'a', &reason));
	ASSERT_EQ(0, come(self->fd, &q, 'q', 'b', &reason));
	first = number_of(self->fd, 'p');
	second = number_of(self->fd, 'q');
	/* P is heard some ticks of the kernel's clock after Q has come. */
	tow_test_sleep_ms(50);
	ASSERT_EQ(0, evil_use(&p));
	ASSERT_EQ(0, evil_use(&q));
	/* Both go without a word, and are waited for. */
	evil_hang_up(&p);
	evil_hang_up(&q);
	ASSERT_EQ(0, evil_wait("sessions", 0));
	ASSERT_EQ(0, come(self->fd, &self->q, 'q', 'a', &reason));
	EXPECT_EQ(first, number_of(self->fd, 'p'));
	ASSERT_EQ(0, come(self->fd, &self->p, 'p', 'b', &reason));
	EXPECT_EQ(first, number_of(self->fd, 'p'));
	EXPECT_EQ(second, number_of(self->fd, 'q'));
	EXPECT_EQ(0, evil_use(&self->p));
	EXPECT_EQ(0, evil_use(&self->q));
}

/* Another life at the same address has come, though the node is known by others, too. */
TEST_F_TIMEOUT(addresses, another_life, 60)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	int reason;

	ASSERT_EQ(0, come(self->fd, &self->p, 'p', 'b', &reason));
	evil_end(&self->p);
	ASSERT_EQ(0, evil_wait("sessions", 0));
	ASSERT_EQ(0, come(self->fd, &self->p, 'p', 'a', &reason));
	evil_hang_up(&self->p);
	ASSERT_EQ(0, evil_wait("sessions", 0));
	ASSERT_EQ(0, come(self->fd, &self->q, 'q', 'a', &reason));
	/* It hears READY a moment before the other one is forgotten. */
	while (number_of(self->fd, 'p') && tow_patient(&patience))
		tow_test_sleep_ms(10);
	EXPECT_EQ(0, number_of(self->fd, 'p'));
}

/*
 * Somebody who has the cluster's key says that it is a node that is heard at another
 * address: it is told to wait.  The node itself, which has moved, is not heard there any more.
 */
TEST_F_TIMEOUT(addresses, a_node_that_is_another, 60)
{
	long long refused = evil_count("auth_refused");
	struct evil thief;
	int reason;

	ASSERT_EQ(0, come(self->fd, &self->p, 'p', 'a', &reason));
	ASSERT_EQ(0, evil_use(&self->p));
	EXPECT_EQ(-ECONNREFUSED, evil_come(&thief, 'p', 'b', &reason));
	EXPECT_EQ(R_BUSY, reason);
	evil_end(&thief);
	EXPECT_EQ(0, evil_use(&self->p));
	EXPECT_EQ(1, evil_wait("sessions", 1));
	/* Whoever is to wait was not refused. */
	EXPECT_EQ(refused, evil_count("auth_refused"));
	tow_test_sleep_ms(SILENT_MS);
	ASSERT_EQ(0, come(self->fd, &self->q, 'p', 'b', &reason));
	EXPECT_EQ(0, evil_use(&self->q));
	EXPECT_EQ(1, evil_wait("sessions", 1));
}

/* A request from somewhere else than it says. */
TEST_F_TIMEOUT(addresses, an_address_that_is_not_its, 60)
{
	int reason;

	ASSERT_EQ(0, evil_appear_at(&self->p, 'p', 'a', 'b'));
	EXPECT_EQ(-ECONNREFUSED, evil_ask(&self->p, &reason));
	EXPECT_EQ(R_MALFORMED, reason);
}

TEST_HARNESS_MAIN
