// SPDX-License-Identifier: GPL-2.0
/*
 * Operations on a peer that gives out keys which open nothing (tow_hostile.ko): its
 * RDMA device refuses them, that connection ends, and nothing else does.  And, as there
 * are two peers: a remote range of one, over a channel to the other.
 */
#include "tow_rdma.h"
#include "tow_evil_range.h"

#define POOL_BYTES	(8 * TOW_SLAB)
#define ENTRIES		16U
#define BYTES		EVIL_BYTES

FIXTURE(refused)
{
	struct tow_user user;
	struct tow_mapped ours, theirs;
	__u64 own;			/* remote range of the node itself */
	struct evil_range evil;
};

static int meet(FIXTURE_DATA(refused) *self)
{
	int ret = evil_patience(EVIL_PATIENT);

	if (!ret)
		ret = evil_range_make(&self->evil, &self->user);
	return ret ? ret : evil_patience(EVIL_HASTY);
}

FIXTURE_SETUP(refused)
{
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
	evil_end(&self->evil.e);
	EXPECT_EQ(0, tow_module_unload("tow_hostile"));
}

/* One of each opcode, over the channel to the evil one. */
static struct tow_sqe entry(const FIXTURE_DATA(refused) *self, int opcode)
{
	struct tow_sqe sqe = tow_move(&self->user, (__u8)opcode, self->ours.made.handle, 64,
				      self->evil.remote, 64, opcode < TOW_OP_FETCH_ADD ? 128 : 0);

	sqe.channel = self->evil.channel;
	return sqe;
}

/* ---- EIO ----------------------------------------------------------------------------------- */

/* The connection is over, with that as its reason; the one to ourselves is not. */
static void check_ended(struct __test_metadata *_metadata, FIXTURE_DATA(refused) *self,
			__u32 epoch)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	struct tow_peer_info info = {};

	do {
		ASSERT_EQ(0, tow_peer_look(self->user.fd, self->evil.peer, &info));
	} while (info.state == TOW_PEER_READY && tow_patient(&patience));
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
		evil_end(&self->evil.e);
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
	ASSERT_EQ(0, tow_peer_look(self->user.fd, self->evil.peer, &info));
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
