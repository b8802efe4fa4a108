// SPDX-License-Identifier: GPL-2.0
/*
 * Memory runs out, and copies fail, at every point of making a queue, and a poller, of
 * opening and closing a channel, of submitting and waiting.  For kernels with fault
 * injection.
 *
 * What fails may fail, with the one error that says so.  Then nothing has happened,
 * nothing stays, and the same thing done again succeeds.  Entries allocate nothing, but
 * for the list of a vector: others do not fail at all, even if every allocation does.
 */
#include "tow_calls.h"
#include "tow_faults.h"
#include "tow_queue.h"

#define POOL_BYTES	(6 * TOW_SLAB)
#define REGION_BYTES	(64 * TOW_KB)
#define ENTRIES		64U

FIXTURE(queue_faults)
{
	struct tow_user user;
	struct tow_mapped own, target;
	__u64 remote;
	struct tow_rings made;		/* what an act makes */
	int client;			/* has no poller before an act */
	uint64_t queues;
	int fds;
};

FIXTURE_SETUP(queue_faults)
{
	ASSERT_EQ(0, access(fault_dir[FAIL_SLAB], F_OK))
		TH_LOG("this kernel has no fault injection");
	ASSERT_TRUE(filter(FAULTS, nothing));
	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_user_make(&self->user, ENTRIES, 0));
	ASSERT_EQ(0, tow_make_target(&self->user, REGION_BYTES, &self->own, &self->target,
				     &self->remote));
	ASSERT_EQ(0, tow_rings_make(self->user.fd, 1, 0, &self->made));
}

FIXTURE_TEARDOWN_PARENT(queue_faults)
{
	if (!filter(FAULTS, nothing))
		TH_LOG("faults are still injected");
}

FIXTURE_VARIANT(queue_faults)
{
	enum fault fault;
};

FIXTURE_VARIANT_ADD(queue_faults, slab) { .fault = FAIL_SLAB };
FIXTURE_VARIANT_ADD(queue_faults, page) { .fault = FAIL_PAGE };
FIXTURE_VARIANT_ADD(queue_faults, user_copy) { .fault = FAIL_USERCOPY };

static int act_create(void *data)
{
	FIXTURE_DATA(queue_faults) *self = data;

	return tow_queue_make(self->user.fd, 256, 0, &self->made.made);
}

static int act_create_polled(void *data)
{
	FIXTURE_DATA(queue_faults) *self = data;

	return tow_polled_make(self->client, 256, 0, 0, &self->made.made);
}

static int undo_create(void *data)
{
	FIXTURE_DATA(queue_faults) *self = data;

	return close(self->made.made.fd) ? -errno : 0;
}

/* Of a new queue, which has none. */
static int act_open(void *data)
{
	FIXTURE_DATA(queue_faults) *self = data;
	struct tow_channel_open call;

	return tow_channel_open(self->made.made.fd, self->user.peer, 0, &call);
}

static int undo_open(void *data)
{
	FIXTURE_DATA(queue_faults) *self = data;

	tow_rings_end(&self->made);
	return tow_rings_make(self->user.fd, 1, 0, &self->made);
}

/* Of a queue that has one. */
static int act_close(void *data)
{
	FIXTURE_DATA(queue_faults) *self = data;

	return tow_channel_close(self->made.made.fd, 0);
}

/* Of every kind, in a batch. */
static int act_enter(void *data)
{
	FIXTURE_DATA(queue_faults) *self = data;
	struct tow_rings *rings = &self->user.rings;
	int i, ret;

	/* Those of the last time may not have been taken. */
	for (i = (int)(rings->tail - rings->ring->sq_head); i < 32; i++) {
		struct tow_sqe sqe = tow_move(&self->user, (__u8)(i % 5), self->own.made.handle,
					      (__u64)i * 2048, self->remote, (__u64)i * 2048, 2040);

		if (sqe.opcode == TOW_OP_NOP)
			sqe = (struct tow_sqe){ .opcode = TOW_OP_NOP };
		if (sqe.opcode >= TOW_OP_FETCH_ADD)
			sqe.compare = 0;
		sqe.flags = i % 7 == 3 ? TOW_SQE_LINK : i % 11 == 5 ? TOW_SQE_FENCE : 0;
		tow_rings_put(rings, &sqe);
	}
	ret = tow_rings_enter(rings, 32, TOW_LONG_US);
	return ret == 32 ? 0 : ret < 0 ? ret : -EXFULL;
}

/* All of them have ended well. */
static int undo_enter(void *data)
{
	FIXTURE_DATA(queue_faults) *self = data;
	struct tow_cqe cqe;
	int count;

	for (count = 0; tow_rings_take(&self->user.rings, &cqe); count++)
		if (cqe.status)
			return cqe.status;
	return count == 32 ? 0 : -ENOMSG;
}

/* What becomes of it. */
static int act_vector(void *data)
{
	FIXTURE_DATA(queue_faults) *self = data;
	const struct tow_vector list[] = { { 4096, 0, 100 }, { 8192, 200, 100 } };
	struct tow_sqe sqe = tow_move(&self->user, TOW_OP_WRITE, self->own.made.handle,
				      self->own.made.handle, self->remote, 0, sizeof(list));
	struct tow_rings *rings = &self->user.rings;
	struct tow_cqe cqe;
	int ret;

	memcpy(self->own.at, list, sizeof(list));
	sqe.flags = TOW_SQE_VECTOR;
	/* That of the last time may not have been taken. */
	if (rings->tail == rings->ring->sq_head)
		tow_rings_put(rings, &sqe);
	ret = tow_rings_enter(rings, 1, TOW_LONG_US);
	if (ret != 1)
		return ret < 0 ? ret : -EXFULL;
	return tow_rings_take(rings, &cqe) ? cqe.status : -ENOMSG;
}

static int undo_nothing(void *data)
{
	(void)data;
	return 0;
}

/* Nothing is left of what was done last. */
static bool is_settled(void *data)
{
	const FIXTURE_DATA(queue_faults) *self = data;

	return tow_sysfs_wait("stats/queues", self->queues) == self->queues &&
	       tow_count_fds() == self->fds;
}

/* The poller is the client's, whatever came of the queue. */
static bool is_settled_polled(void *data)
{
	FIXTURE_DATA(queue_faults) *self = data;

	if (!is_settled(data) || close(self->client))
		return false;
	self->client = tow_test_open(O_RDWR);
	return self->client >= 0 && !tow_sysfs_wait("stats/pollers", 0);
}

static const struct action actions[] = {
	{ "create", act_create, undo_create, { true, true, true } },
	{ "open", act_open, undo_open, { true, false, true } },
	{ "enter", act_enter, undo_enter, { false, false, true } },
	{ "create polled", act_create_polled, undo_create, { true, true, true } },
	{ "close", act_close, act_open, { false, false, true } },
	{ "vector", act_vector, undo_nothing, { true, false, true } },
};

static void sweep_until(struct __test_metadata *_metadata, FIXTURE_DATA(queue_faults) *self,
			const struct action *action, enum fault fault,
			bool (*settled)(void *data))
{
	self->queues = tow_sysfs_get("stats/queues");
	self->fds = tow_count_fds();
	all_rounds(_metadata, self, action, fault, settled);
}

static void sweep(struct __test_metadata *_metadata, FIXTURE_DATA(queue_faults) *self,
		  const struct action *action, enum fault fault)
{
	sweep_until(_metadata, self, action, fault, is_settled);
}

TEST_F_TIMEOUT(queue_faults, create, 600)
{
	tow_rings_end(&self->made);
	sweep(_metadata, self, &actions[0], variant->fault);
}

TEST_F_TIMEOUT(queue_faults, create_polled, 600)
{
	tow_rings_end(&self->made);
	self->client = tow_test_open(O_RDWR);
	ASSERT_LE(0, self->client);
	sweep_until(_metadata, self, &actions[3], variant->fault, is_settled_polled);
	close(self->client);
}

TEST_F_TIMEOUT(queue_faults, open, 600)
{
	sweep(_metadata, self, &actions[1], variant->fault);
}

/* What is given back asks for nothing. */
TEST_F_TIMEOUT(queue_faults, close, 600)
{
	ASSERT_EQ(0, act_open(self));
	sweep(_metadata, self, &actions[4], variant->fault);
}

TEST_F_TIMEOUT(queue_faults, enter, 600)
{
	sweep(_metadata, self, &actions[2], variant->fault);
}

TEST_F_TIMEOUT(queue_faults, vector, 600)
{
	sweep(_metadata, self, &actions[5], variant->fault);
}

/* Anybody's allocation on towline's behalf fails, in whatever context: entries go on. */
TEST_F_TIMEOUT(queue_faults, entries_allocate_nothing, 120)
{
	int round;

	if (variant->fault == FAIL_USERCOPY)
		return;
	ASSERT_EQ(0, act_enter(self));
	ASSERT_EQ(0, undo_enter(self));
	ASSERT_TRUE(begin_all(variant->fault, module_text()));
	for (round = 0; round < 100; round++) {
		EXPECT_EQ(0, act_enter(self));
		EXPECT_EQ(0, undo_enter(self));
	}
	/* There were none to fail. */
	EXPECT_EQ(0, end_all(variant->fault));
	ASSERT_TRUE(filter(FAULTS, nothing));
}

TEST_HARNESS_MAIN
