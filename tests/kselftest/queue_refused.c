// SPDX-License-Identifier: GPL-2.0
/*
 * Operations on a peer that gives out keys which open nothing (tow_hostile.ko): its
 * RDMA device refuses them, that connection ends, and nothing else does.  And, as there
 * are two peers: a remote range of one, over a channel to the other.
 */
#include <pthread.h>
#define TOW_ONLY_SOFT_ROCE
#include "tow_evil.h"
#include "tow_rdma.h"
#include "tow_queue.h"

#define POOL_BYTES	(8 * TOW_SLAB)
#define ENTRIES		16U
#define BYTES		4096U
#define WRONG_KEY	0x00abcd00U
#define LIFE		"an evil node"

/* What it answers to RESOLVE. */
struct resolved {
	uint64_t grant, bytes;
	uint32_t status, rights, total, first, count, reserved;
	uint64_t address;
	uint32_t key, segment_bytes;
};

_Static_assert(sizeof(struct resolved) == 56, "an answer with one segment");

FIXTURE(refused)
{
	struct tow_user user;
	struct tow_mapped ours, theirs;
	__u64 own;			/* remote range of the node itself */
	struct evil e;
	__u64 peer;			/* the evil one */
	__u16 channel;			/* to it */
	__u64 remote;			/* a range of it, that there is not */
};

/* ---- the peer ---------------------------------------------------------------------------- */

/* Whatever is asked for, it is there. */
static void *answer(void *arg)
{
	struct evil *e = arg;
	struct resolved says = {
		.grant = 77, .bytes = BYTES, .rights = TOW_ALL_RIGHTS, .total = 1, .count = 1,
		.address = 0x10000, .key = WRONG_KEY, .segment_bytes = BYTES,
	};
	uint32_t request;
	int ret = evil_hear(e, EVIL_WAIT_MS);

	if (ret != T_RESOLVE)
		return (void *)(intptr_t)(ret < 0 ? ret : -EPROTO);
	memcpy(&request, e->last.data + 4, sizeof(request));
	says.grant += request;
	return (void *)(intptr_t)evil_say(e, T_RESOLVED, request, &says, sizeof(says));
}

static int find_evil(FIXTURE_DATA(refused) *self)
{
	pthread_t thread;
	void *said;
	int ret;

	if (pthread_create(&thread, NULL, answer, &self->e))
		return -EAGAIN;
	ret = tow_find_for(self->user.fd, self->peer, "x", TOW_ALL_RIGHTS, &self->remote);
	pthread_join(thread, &said);
	return ret ? ret : (int)(intptr_t)said;
}

/* Its number here. */
static __u64 number_of_evil(int fd)
{
	struct tow_peer_info entries[16];
	struct tow_peer_list call = {
		.size = sizeof(call), .entries = (uintptr_t)entries,
		.entry_size = sizeof(entries[0]), .count = 16,
	};
	__u32 i;

	if (tow_test_ioctl(fd, TOW_IOCTL_PEER_LIST, &call))
		return 0;
	for (i = 0; i < call.count; i++)
		if (!memcmp(entries[i].incarnation, LIFE, sizeof(LIFE)))
			return entries[i].peer;
	return 0;
}

/*
 * It connects, and something of it is found.  Not before it is READY: who is not is
 * looked for at his address, which is ours.
 */
static int meet(FIXTURE_DATA(refused) *self)
{
	double end = tow_test_now() + TOW_SETTLE_SECONDS;
	struct tow_peer_info info = {};
	int ret = evil_ready(&self->e, 1);

	if (ret)
		return ret;
	self->peer = number_of_evil(self->user.fd);
	if (!self->peer)
		return -ENOENT;
	do {
		ret = tow_peer_look(self->user.fd, self->peer, &info);
	} while (!ret && info.state != TOW_PEER_READY && tow_test_now() < end);
	return ret ? ret : find_evil(self);
}

FIXTURE_SETUP(refused)
{
	struct tow_channel_open channel;
	__u64 exported;

	ASSERT_EQ(0, tow_module_load("tow_hostile", ""));
	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, evil_share_key());
	ASSERT_EQ(0, tow_user_make(&self->user, ENTRIES, 0));
	ASSERT_EQ(0, tow_mapped_make(self->user.fd, BYTES, &self->ours));
	ASSERT_EQ(0, tow_mapped_make(self->user.fd, BYTES, &self->theirs));
	ASSERT_EQ(0, tow_publish_for(self->user.fd, self->theirs.made.handle, "own", BYTES,
				     TOW_ALL_RIGHTS, &exported));
	ASSERT_EQ(0, tow_find_for(self->user.fd, self->user.peer, "own", TOW_ALL_RIGHTS,
				  &self->own));
	ASSERT_EQ(0, meet(self));
	ASSERT_EQ(0, tow_channel_open(self->user.rings.made.fd, self->peer, 0, &channel));
	self->channel = (__u16)channel.channel;
	memset(self->ours.at, 0x33, BYTES);
	memset(self->theirs.at, 0x55, BYTES);
}

/* No byte has moved, and the queue works, with the other peer, too. */
FIXTURE_TEARDOWN(refused)
{
	struct tow_sqe sqe = tow_move(&self->user, TOW_OP_WRITE, self->ours.made.handle, 0,
				      self->own, 0, BYTES);

	EXPECT_EQ(0x33, self->ours.at[0]);
	EXPECT_EQ(0, memcmp(self->ours.at, self->ours.at + 1, BYTES - 1));
	EXPECT_EQ(0x55, self->theirs.at[0]);
	EXPECT_EQ(0, memcmp(self->theirs.at, self->theirs.at + 1, BYTES - 1));
	EXPECT_EQ(0, tow_rings_do(&self->user.rings, &sqe));
	EXPECT_EQ(0, memcmp(self->ours.at, self->theirs.at, BYTES));
	tow_user_end(&self->user);
	evil_end(&self->e);
	EXPECT_EQ(0, tow_module_unload("tow_hostile"));
}

/* One of each opcode, over the channel to the evil one. */
static struct tow_sqe entry(const FIXTURE_DATA(refused) *self, int opcode)
{
	struct tow_sqe sqe = tow_move(&self->user, (__u8)opcode, self->ours.made.handle, 64,
				      self->remote, 64, opcode < TOW_OP_FETCH_ADD ? 128 : 0);

	sqe.channel = self->channel;
	return sqe;
}

/* ---- EIO ----------------------------------------------------------------------------------- */

/* The connection is over, with that as its reason; the one to ourselves is not. */
static void check_ended(struct __test_metadata *_metadata, FIXTURE_DATA(refused) *self,
			__u32 epoch)
{
	double end = tow_test_now() + TOW_SETTLE_SECONDS;
	struct tow_peer_info info = {};

	do {
		ASSERT_EQ(0, tow_peer_look(self->user.fd, self->peer, &info));
	} while (info.state == TOW_PEER_READY && tow_test_now() < end);
	EXPECT_NE(TOW_PEER_READY, info.state);
	EXPECT_EQ(-EIO, info.last_error);
	ASSERT_EQ(0, tow_peer_look(self->user.fd, self->user.peer, &info));
	EXPECT_EQ(TOW_PEER_READY, info.state);
	EXPECT_EQ(epoch, info.epoch);
}

/* Whatever it is, it is told; and the channel leads to the next connection. */
TEST_F_TIMEOUT(refused, every_opcode, 120)
{
	__u32 epoch = tow_peer_epoch(self->user.fd, self->user.peer);
	struct tow_sqe sqe;
	int opcode;

	for (opcode = TOW_OP_WRITE; opcode <= TOW_OP_COMPARE_SWAP; opcode++) {
		sqe = entry(self, opcode);
		EXPECT_EQ(-EIO, tow_rings_do(&self->user.rings, &sqe))
			TH_LOG("opcode %d", opcode);
		check_ended(_metadata, self, epoch);
		/* What was found is no more. */
		EXPECT_EQ(-ESTALE, tow_rings_do(&self->user.rings, &sqe));
		evil_end(&self->e);
		ASSERT_EQ(0, meet(self));
	}
}

/* It says so also if it was to say nothing; what waits for it does not begin. */
TEST_F(refused, in_a_chain)
{
	struct tow_rings *rings = &self->user.rings;
	const int status[] = { 0, -EIO, -ECANCELED, -ECANCELED, 0 };
	struct tow_sqe sqe[ARRAY_SIZE(status)];
	struct tow_cqe cqe;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(status); i++) {
		sqe[i] = entry(self, TOW_OP_WRITE);
		sqe[i].user_data = i;
		sqe[i].flags = i < 3 ? TOW_SQE_LINK : 0;
	}
	sqe[0] = (struct tow_sqe){ .flags = TOW_SQE_LINK };
	sqe[1].flags |= TOW_SQE_SILENT;
	sqe[4] = (struct tow_sqe){ .user_data = 4 };
	for (i = 0; i < ARRAY_SIZE(status); i++)
		ASSERT_TRUE(tow_rings_put(rings, &sqe[i]));
	ASSERT_EQ(ARRAY_SIZE(status), tow_rings_enter(rings, ARRAY_SIZE(status), TOW_LONG_US));
	for (i = 0; tow_rings_take(rings, &cqe); i++) {
		ASSERT_GT(ARRAY_SIZE(status), cqe.user_data);
		EXPECT_EQ(status[cqe.user_data], cqe.status)
			TH_LOG("entry %llu", cqe.user_data);
	}
	EXPECT_EQ(ARRAY_SIZE(status), i);
}

/* ---- the wrong peer ------------------------------------------------------------------------ */

/* Refused before anything is begun: the connections stay. */
TEST_F(refused, a_range_of_another_peer)
{
	struct tow_peer_info info;
	struct tow_sqe sqe;
	int opcode;

	for (opcode = TOW_OP_WRITE; opcode <= TOW_OP_COMPARE_SWAP; opcode++) {
		sqe = entry(self, opcode);
		sqe.channel = self->user.channel;
		EXPECT_EQ(-EINVAL, tow_rings_do(&self->user.rings, &sqe));
		sqe = entry(self, opcode);
		sqe.remote = self->own;
		EXPECT_EQ(-EINVAL, tow_rings_do(&self->user.rings, &sqe));
	}
	/* Nothing of it, too. */
	sqe = entry(self, TOW_OP_WRITE);
	sqe.remote = self->own;
	sqe.bytes = 0;
	EXPECT_EQ(-EINVAL, tow_rings_do(&self->user.rings, &sqe));
	ASSERT_EQ(0, tow_peer_look(self->user.fd, self->peer, &info));
	EXPECT_EQ(TOW_PEER_READY, info.state);
}

TEST_F(refused, a_range_of_another_peer_in_a_chain)
{
	struct tow_rings *rings = &self->user.rings;
	const int status[] = { -ECANCELED, -EINVAL, -ECANCELED };
	struct tow_cqe cqe;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(status); i++) {
		struct tow_sqe sqe = entry(self, TOW_OP_WRITE);

		sqe.channel = self->user.channel;
		if (i != 1)
			sqe.remote = self->own;
		sqe.flags = i < 2 ? TOW_SQE_LINK : 0;
		sqe.user_data = i;
		ASSERT_TRUE(tow_rings_put(rings, &sqe));
	}
	ASSERT_EQ(ARRAY_SIZE(status), tow_rings_enter(rings, ARRAY_SIZE(status), TOW_LONG_US));
	for (i = 0; tow_rings_take(rings, &cqe); i++)
		EXPECT_EQ(status[cqe.user_data], cqe.status);
	EXPECT_EQ(ARRAY_SIZE(status), i);
}

TEST_HARNESS_MAIN
