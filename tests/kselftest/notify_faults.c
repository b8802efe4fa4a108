// SPDX-License-Identifier: GPL-2.0
/*
 * Memory runs out, and copies fail, at every point of making a slot, of finding it, and
 * of notifying and waiting.  For kernels with fault injection.
 *
 * What fails may fail, with the one error that says so; then nothing has happened, the
 * slot is nobody's, and the same thing done again succeeds.  Entries allocate nothing,
 * and nor does what a notification does where it arrives.
 */
#include "tow_calls.h"
#include "tow_faults.h"
#include "tow_notify.h"

#define POOL_BYTES	(4 * TOW_SLAB)
#define BYTES		(64 * TOW_KB)
#define ENTRIES		64U
#define BATCH		16

FIXTURE(notify_faults)
{
	struct tow_ends ends;
	__u64 made;			/* by an act */
	__u64 number;			/* of notifications so far */
	uint64_t exports, grants;
};

FIXTURE_SETUP(notify_faults)
{
	ASSERT_EQ(0, access(fault_dir[FAIL_SLAB], F_OK))
		TH_LOG("this kernel has no fault injection");
	ASSERT_TRUE(filter(FAULTS, nothing));
	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_ends_make(&self->ends, ENTRIES, BYTES));
	self->number = 0;
}

FIXTURE_TEARDOWN_PARENT(notify_faults)
{
	if (!filter(FAULTS, nothing))
		TH_LOG("faults are still injected");
}

FIXTURE_VARIANT(notify_faults)
{
	enum fault fault;
};

FIXTURE_VARIANT_ADD(notify_faults, slab) { .fault = FAIL_SLAB };
FIXTURE_VARIANT_ADD(notify_faults, page) { .fault = FAIL_PAGE };
FIXTURE_VARIANT_ADD(notify_faults, user_copy) { .fault = FAIL_USERCOPY };

static int act_make(void *data)
{
	FIXTURE_DATA(notify_faults) *self = data;

	return tow_slot_make(self->ends.to.fd, self->ends.memory.made.handle, 64, "made",
			     &self->made);
}

static int undo_make(void *data)
{
	FIXTURE_DATA(notify_faults) *self = data;

	return tow_end_handle(self->ends.to.fd, TOW_IOCTL_UNEXPORT, self->made);
}

/* Whoever had it last has given it back before. */
static int act_find(void *data)
{
	FIXTURE_DATA(notify_faults) *self = data;

	return tow_slot_ask(self->ends.from.fd, self->ends.from.peer, "slot", 1,
			    &self->ends.found);
}

static int undo_find(void *data)
{
	FIXTURE_DATA(notify_faults) *self = data;

	return tow_end_handle(self->ends.from.fd, TOW_IOCTL_RELEASE, self->ends.found);
}

/* Some with data, some without. */
static int act_notify(void *data)
{
	FIXTURE_DATA(notify_faults) *self = data;
	struct tow_ends *ends = &self->ends;
	struct tow_rings *rings = &ends->from.rings;
	int i, ret;

	/* Those of the last time may not have been taken. */
	for (i = (int)(rings->tail - rings->ring->sq_head); i < BATCH; i++) {
		struct tow_sqe sqe = tow_notify(&ends->from, ends->found);

		if (i % 3)
			sqe = tow_write_notify(&ends->from, ends->own.made.handle,
					       (__u64)i * 2048, ends->remote, (__u64)i * 2048,
					       2040, ends->found);
		sqe.flags = i % 5 == 3 ? TOW_SQE_LINK : 0;
		tow_rings_put(rings, &sqe);
	}
	ret = tow_rings_enter(rings, BATCH, TOW_LONG_US);
	return ret == BATCH ? 0 : ret < 0 ? ret : -EXFULL;
}

/* All have ended well, and were counted. */
static int undo_notify(void *data)
{
	FIXTURE_DATA(notify_faults) *self = data;
	struct tow_cqe cqe;
	int count;

	for (count = 0; tow_rings_take(&self->ends.from.rings, &cqe); count++)
		if (cqe.status)
			return cqe.status;
	self->number += (__u64)count;
	if (tow_slot_await(tow_ends_word(&self->ends), self->number) != self->number)
		return -EBADMSG;
	return count == BATCH ? 0 : -ENOMSG;
}

/* For what is there, and for what comes when they were handed over. */
static int act_wait(void *data)
{
	FIXTURE_DATA(notify_faults) *self = data;
	struct tow_rings *rings = &self->ends.to.rings;
	__u64 number = tow_ends_number(&self->ends);
	int i, ret;

	for (i = (int)(rings->tail - rings->ring->sq_head); i < BATCH; i++) {
		struct tow_sqe sqe = tow_wait_for(self->ends.slot, number + (__u64)(i & 1));

		tow_rings_put(rings, &sqe);
	}
	ret = tow_rings_enter(rings, BATCH / 2, TOW_LONG_US);
	return ret == BATCH ? 0 : ret < 0 ? ret : -EXFULL;
}

static int undo_wait(void *data)
{
	FIXTURE_DATA(notify_faults) *self = data;
	struct tow_cqe cqe;
	int count, ret;

	ret = tow_ends_notify(&self->ends);
	for (count = 0; !ret && count < BATCH; count++) {
		ret = tow_rings_wait(&self->ends.to.rings, &cqe);
		if (!ret)
			ret = cqe.status;
	}
	return ret;
}

/* Nothing is left of what was done last. */
static bool is_settled(void *data)
{
	const FIXTURE_DATA(notify_faults) *self = data;

	return tow_sysfs_wait("stats/exports", self->exports) == self->exports &&
	       tow_sysfs_wait("stats/grants", self->grants) == self->grants;
}

static const struct action actions[] = {
	{ "make", act_make, undo_make, { true, false, true } },
	{ "find", act_find, undo_find, { true, false, true } },
	{ "notify", act_notify, undo_notify, { false, false, true } },
	{ "wait", act_wait, undo_wait, { false, false, true } },
};

static void sweep(struct __test_metadata *_metadata, FIXTURE_DATA(notify_faults) *self,
		  const struct action *action, enum fault fault)
{
	self->exports = tow_sysfs_get("stats/exports");
	self->grants = tow_sysfs_get("stats/grants");
	all_rounds(_metadata, self, action, fault, is_settled);
}

TEST_F_TIMEOUT(notify_faults, make, 600)
{
	sweep(_metadata, self, &actions[0], variant->fault);
}

TEST_F_TIMEOUT(notify_faults, find, 600)
{
	uint64_t grants = tow_sysfs_get("stats/grants");

	ASSERT_EQ(0, undo_find(self));
	ASSERT_EQ(grants - 1, tow_sysfs_wait("stats/grants", grants - 1));
	sweep(_metadata, self, &actions[1], variant->fault);
}

TEST_F_TIMEOUT(notify_faults, notify, 600)
{
	sweep(_metadata, self, &actions[2], variant->fault);
}

TEST_F_TIMEOUT(notify_faults, wait, 600)
{
	sweep(_metadata, self, &actions[3], variant->fault);
}

/* Anybody's allocation on towline's behalf fails, in whatever context: they go on. */
TEST_F_TIMEOUT(notify_faults, nothing_is_allocated, 120)
{
	int round;

	if (variant->fault == FAIL_USERCOPY)
		return;
	ASSERT_EQ(0, act_notify(self));
	ASSERT_EQ(0, undo_notify(self));
	ASSERT_TRUE(begin_all(variant->fault, module_text()));
	for (round = 0; round < 50; round++) {
		EXPECT_EQ(0, act_notify(self));
		EXPECT_EQ(0, undo_notify(self));
		EXPECT_EQ(0, act_wait(self));
		EXPECT_EQ(0, undo_wait(self));
		self->number++;
	}
	/* There were none to fail. */
	EXPECT_EQ(0, end_all(variant->fault));
	ASSERT_TRUE(filter(FAULTS, nothing));
}

TEST_HARNESS_MAIN
