// SPDX-License-Identifier: GPL-2.0
/*
 * Entries that have their data in themselves: exactly these bytes arrive, also among
 * others that could be merged, when more wait than may be posted, and where the memory of
 * the peer is in several pieces; a notification tells that they are there.
 */
#include "tow_notify.h"
#include "tow_places.h"

#define POOL_BYTES	(16 * TOW_SLAB)
#define ENTRIES		1024U

static struct tow_sqe in_itself(const struct tow_user *user, __u8 opcode, __u64 remote,
				__u64 offset, const void *data, size_t bytes)
{
	struct tow_sqe sqe = tow_move(user, opcode, 0, 0, remote, offset, bytes);

	sqe.flags = TOW_SQE_INLINE;
	memset(sqe.payload, 0xee, sizeof(sqe.payload));
	memcpy(sqe.payload, data, bytes < sizeof(sqe.payload) ? bytes : sizeof(sqe.payload));
	return sqe;
}

FIXTURE(in_itself)
{
	struct tow_random random;
	struct tow_user user;
	struct tow_place own, far;
};

FIXTURE_VARIANT(in_itself)
{
	enum tow_place_kind far;
};

FIXTURE_VARIANT_ADD(in_itself, large)
{
	.far = TOW_PLACE_LARGE,
};

FIXTURE_VARIANT_ADD(in_itself, small)
{
	.far = TOW_PLACE_SMALL,
};

FIXTURE_VARIANT_ADD(in_itself, import)
{
	.far = TOW_PLACE_IMPORT,
};

FIXTURE_SETUP(in_itself)
{
	self->random.state = 0x696e6c696e65;
	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_user_make(&self->user, ENTRIES, 0));
	ASSERT_EQ(0, tow_place_make(self->user.fd, TOW_PLACE_LARGE, &self->random, &self->own));
	ASSERT_EQ(0, tow_place_make(self->user.fd, variant->far, &self->random, &self->far));
	ASSERT_EQ(0, tow_place_publish(&self->user, "far", TOW_RIGHT_READ | TOW_RIGHT_WRITE,
				       &self->far));
}

FIXTURE_TEARDOWN(in_itself)
{
	EXPECT_TRUE(tow_place_good(&self->own));
	free(self->own.shadow);
	free(self->far.shadow);
}

/* Of each size, at each place around a border. */
TEST_F_TIMEOUT(in_itself, every_byte, 60)
{
	struct tow_place *far = &self->far;
	struct tow_sqe sqe;
	size_t bytes, at;
	char data[TOW_INLINE_MAX];

	for (bytes = 1; bytes <= TOW_INLINE_MAX; bytes++) {
		for (at = far->border - bytes; at <= far->border; at++) {
			tow_random_fill(&self->random, data, bytes);
			memcpy(far->shadow + at, data, bytes);
			sqe = in_itself(&self->user, TOW_OP_WRITE, far->remote, at, data, bytes);
			ASSERT_EQ(0, tow_rings_do(&self->user.rings, &sqe));
			ASSERT_TRUE(tow_place_good_around(far, at, bytes))
				TH_LOG("%zu bytes at %zu", bytes, at);
		}
	}
	EXPECT_TRUE(tow_place_good(far));
}

/*
 * Neighbours, which would be merged if they were of a region; some are.  More than may be
 * posted at once, time and again.
 */
TEST_F_TIMEOUT(in_itself, among_others, 60)
{
	struct tow_place *own = &self->own, *far = &self->far;
	unsigned int rounds = tow_test_slow() ? 2 : 8, round, i;
	struct tow_sqe sqe;
	size_t at, bytes;
	char data[TOW_INLINE_MAX];

	for (round = 0; round < rounds; round++) {
		at = 5;
		for (i = 0; i < ENTRIES; i++, at += bytes) {
			bytes = round % 2 ? 1 + tow_random_below(&self->random, TOW_INLINE_MAX) :
				TOW_INLINE_MAX;
			if (tow_random_below(&self->random, 4)) {
				tow_random_fill(&self->random, data, bytes);
				memcpy(far->shadow + at, data, bytes);
				sqe = in_itself(&self->user, TOW_OP_WRITE, far->remote, at, data,
						bytes);
			} else {
				tow_place_expect(far, at, own, at, bytes);
				sqe = tow_move(&self->user, TOW_OP_WRITE, own->region, at,
					       far->remote, at, bytes);
			}
			ASSERT_TRUE(tow_rings_put(&self->user.rings, &sqe));
		}
		ASSERT_EQ((int)ENTRIES, tow_rings_enter(&self->user.rings, 0, 0));
		ASSERT_EQ(0, tow_rings_collect(&self->user.rings, ENTRIES));
		ASSERT_TRUE(tow_place_good(far));
	}
}

/* The data is the entry's from when it is taken. */
TEST_F(in_itself, taken_once)
{
	struct tow_rings *rings = &self->user.rings;
	struct tow_place *far = &self->far;
	struct tow_sqe sqe;
	unsigned int i;
	__u64 data;

	for (i = 0; i < ENTRIES; i++) {
		data = tow_random(&self->random);
		memcpy(far->shadow + 8UL * i, &data, sizeof(data));
		sqe = in_itself(&self->user, TOW_OP_WRITE, far->remote, 8UL * i, &data, sizeof(data));
		ASSERT_TRUE(tow_rings_put(rings, &sqe));
	}
	ASSERT_EQ((int)ENTRIES, tow_rings_enter(rings, 0, 0));
	memset(rings->sqes, 0xff, ENTRIES * sizeof(rings->sqes[0]));
	ASSERT_EQ(0, tow_rings_collect(rings, ENTRIES));
	EXPECT_TRUE(tow_place_good(far));
}

TEST_F(in_itself, refused)
{
	const __u8 others[] = {
		TOW_OP_NOP, TOW_OP_READ, TOW_OP_FETCH_ADD, TOW_OP_COMPARE_SWAP, TOW_OP_WAIT,
	};
	struct tow_rings *rings = &self->user.rings;
	const __u64 sizes[] = { 0, TOW_INLINE_MAX + 1, 1ULL << 32, ~0ULL };
	struct tow_place *far = &self->far;
	struct tow_sqe good, sqe;
	__u64 only_read;
	size_t i;

	good = in_itself(&self->user, TOW_OP_WRITE, far->remote, 0, "something", 8);
	for (i = 0; i < ARRAY_SIZE(others); i++) {
		sqe = good;
		sqe.opcode = others[i];
		EXPECT_EQ(-EINVAL, tow_rings_do(rings, &sqe));
	}
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		sqe = good;
		sqe.bytes = sizes[i];
		EXPECT_EQ(-EINVAL, tow_rings_do(rings, &sqe));
	}
	sqe = good;
	sqe.flags |= TOW_SQE_VECTOR;
	EXPECT_EQ(-EINVAL, tow_rings_do(rings, &sqe));
	sqe = good;
	sqe.operand = 1;
	EXPECT_EQ(-EINVAL, tow_rings_do(rings, &sqe));
	sqe = good;
	sqe.remote_offset = far->bytes - 7;
	EXPECT_EQ(-ERANGE, tow_rings_do(rings, &sqe));
	sqe = good;
	sqe.channel++;
	EXPECT_EQ(-EBADF, tow_rings_do(rings, &sqe));
	sqe = good;
	sqe.remote = 0;
	EXPECT_EQ(-EBADF, tow_rings_do(rings, &sqe));
	ASSERT_EQ(0, tow_find_for(self->user.fd, self->user.peer, "far", TOW_RIGHT_READ,
				  &only_read));
	sqe = good;
	sqe.remote = only_read;
	EXPECT_EQ(-EACCES, tow_rings_do(rings, &sqe));
	/* A region is not looked for; a notification without data has no inline data. */
	sqe = in_itself(&self->user, TOW_OP_WRITE_NOTIFY, far->remote, 0, "", 1);
	EXPECT_EQ(-EBADF, tow_rings_do(rings, &sqe));
	sqe.bytes = 0;
	EXPECT_EQ(-EINVAL, tow_rings_do(rings, &sqe));
	EXPECT_TRUE(tow_place_good(far));
	ASSERT_EQ(0, tow_end_handle(self->user.fd, TOW_IOCTL_UNEXPORT, far->exported));
	EXPECT_EQ(-ESTALE, tow_rings_do(rings, &good));
	EXPECT_TRUE(tow_place_good(far));
}

#define NOTIFIED	500U

/* What is told of is there, whether the kernel copies small operations or not. */
TEST(notified)
{
	struct tow_ends ends;
	const volatile __u64 *there;
	struct tow_sqe sqe;
	size_t limit;
	__u64 i;

	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_ends_make(&ends, ENTRIES, TOW_SLAB));
	there = (const volatile __u64 *)(ends.memory.at + TOW_DATA_AT);
	for (i = 1; i <= NOTIFIED; i++) {
		limit = i % 2 ? 0 : 64;
		ASSERT_EQ(0, tow_sysfs_set("loopback_copy_bytes", limit));
		sqe = in_itself(&ends.from, TOW_OP_WRITE_NOTIFY, ends.remote, 0, &i, sizeof(i));
		sqe.operand = ends.found;
		ASSERT_EQ(0, tow_ends_begin_wait(&ends, i, 0));
		ASSERT_EQ(0, tow_rings_do(&ends.from.rings, &sqe));
		ASSERT_EQ(0, tow_rings_collect(&ends.to.rings, 1));
		ASSERT_EQ(i, *there);
		ASSERT_EQ(i, tow_ends_number(&ends));
	}
	EXPECT_EQ(0, tow_sysfs_set("loopback_copy_bytes", 0));
	tow_ends_end(&ends);
}

TEST_HARNESS_MAIN
