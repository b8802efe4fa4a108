// SPDX-License-Identifier: GPL-2.0
/*
 * What entries of a queue end with: every status of the contract that one client can
 * bring about by itself, at the edge of what is allowed; and that a refusal moves
 * nothing, and hurts nobody else on the queue.
 *
 * queue_end.c has what ends with clients and devices.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include "tow_queue.h"

#define POOL_BYTES	(8 * TOW_SLAB)
#define ENTRIES		64
#define BYTES		1000		/* of a region: less than can be mapped */

FIXTURE(status)
{
	struct tow_user user;
	bool atomics;
	struct tow_mapped ours;
	struct tow_mapped theirs;
	__u64 exported;
	__u64 all;			/* with every right that the device knows */
	__u64 reading;
	__u64 writing;
	__u64 moving;			/* READ and WRITE */
};

FIXTURE_SETUP(status)
{
	struct tow_user *user = &self->user;
	__u32 both = TOW_RIGHT_READ | TOW_RIGHT_WRITE, rights = both;

	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_user_make(user, ENTRIES, 0));
	self->atomics = tow_has_atomics(user->fd);
	if (self->atomics)
		rights |= TOW_RIGHT_ATOMIC;
	ASSERT_EQ(0, tow_mapped_make(user->fd, BYTES, &self->ours));
	ASSERT_EQ(0, tow_mapped_make(user->fd, BYTES, &self->theirs));
	ASSERT_EQ(0, tow_publish_for(user->fd, self->theirs.made.handle, "x", BYTES, rights,
				     &self->exported));
	ASSERT_EQ(0, tow_find_for(user->fd, user->peer, "x", rights, &self->all));
	ASSERT_EQ(0, tow_find_for(user->fd, user->peer, "x", TOW_RIGHT_READ, &self->reading));
	ASSERT_EQ(0, tow_find_for(user->fd, user->peer, "x", TOW_RIGHT_WRITE, &self->writing));
	ASSERT_EQ(0, tow_find_for(user->fd, user->peer, "x", both, &self->moving));
}

/*
 * Whatever was refused, the queue works.  That nothing stays when the process ends,
 * the next case's beginning shows.
 */
FIXTURE_TEARDOWN(status)
{
	struct tow_sqe nop = { .user_data = 99 };

	if (self->user.rings.ring) {
		EXPECT_EQ(0, tow_rings_do(&self->user.rings, &nop));
	}
}

/* A good one of each opcode. */
static struct tow_sqe good(const FIXTURE_DATA(status) *self, __u8 opcode)
{
	struct tow_sqe sqe = tow_move(&self->user, opcode, self->ours.made.handle, 16, self->all,
				      24, opcode < TOW_OP_FETCH_ADD ? 32 : 0);

	if (opcode == TOW_OP_NOP)
		sqe = (struct tow_sqe){ .opcode = TOW_OP_NOP };
	sqe.user_data = 0x1122334455667788;
	return sqe;
}

/* Each of them that the device can do. */
#define EACH_OPCODE(OPCODE) \
	for ((OPCODE) = TOW_OP_NOP; \
	     (OPCODE) <= (self->atomics ? TOW_OP_COMPARE_SWAP : TOW_OP_READ); (OPCODE)++)

/* Those which move something. */
#define EACH_MOVE(OPCODE) \
	EACH_OPCODE(OPCODE) \
		if ((OPCODE) != TOW_OP_NOP)

/* It is refused, and no byte changes. */
static void refused(struct __test_metadata *_metadata, FIXTURE_DATA(status) *self, int status,
		    const struct tow_sqe *sqe)
{
	memset(self->ours.at, 0x33, self->ours.bytes);
	memset(self->theirs.at, 0x55, self->theirs.bytes);
	EXPECT_EQ(status, tow_rings_do(&self->user.rings, sqe))
		TH_LOG("opcode %u, %llu of %llu to %llu of %llu, %llu bytes", sqe->opcode,
		       sqe->offset, sqe->region, sqe->remote_offset, sqe->remote, sqe->bytes);
	EXPECT_EQ(0x33, self->ours.at[0]);
	EXPECT_EQ(0, memcmp(self->ours.at, self->ours.at + 1, self->ours.bytes - 1));
	EXPECT_EQ(0x55, self->theirs.at[0]);
	EXPECT_EQ(0, memcmp(self->theirs.at, self->theirs.at + 1, self->theirs.bytes - 1));
}

/* Otherwise no case below shows anything. */
TEST_F(status, good_ones_are_good)
{
	struct tow_sqe sqe;
	int opcode;

	EACH_OPCODE(opcode) {
		sqe = good(self, (__u8)opcode);
		EXPECT_EQ(0, tow_rings_do(&self->user.rings, &sqe));
	}
}

/* ---- EINVAL ------------------------------------------------------------------------ */

TEST_F(status, unknown_opcodes)
{
	struct tow_sqe sqe;
	int opcode;

	for (opcode = TOW_OP_WAIT + 1; opcode < 256; opcode++) {
		sqe = good(self, TOW_OP_WRITE);
		sqe.opcode = (__u8)opcode;
		refused(_metadata, self, -EINVAL, &sqe);
		sqe = good(self, TOW_OP_NOP);
		sqe.opcode = (__u8)opcode;
		refused(_metadata, self, -EINVAL, &sqe);
	}
}

TEST_F(status, unknown_flags)
{
	struct tow_sqe sqe;
	int opcode, bit;

	EACH_OPCODE(opcode) {
		for (bit = 6; bit < 8; bit++) {
			sqe = good(self, (__u8)opcode);
			sqe.flags = (__u8)(1 << bit);
			refused(_metadata, self, -EINVAL, &sqe);
			sqe.flags |= TOW_SQE_FENCE;
			refused(_metadata, self, -EINVAL, &sqe);
		}
	}
}

/* What a program says that it copied is counted, if anything is moved. */
TEST_F(status, copied)
{
	uint64_t copied = tow_sysfs_get("stats/copied_bytes");
	struct tow_sqe sqe;
	int opcode;

	EACH_OPCODE(opcode) {
		sqe = good(self, (__u8)opcode);
		sqe.flags = TOW_SQE_COPIED;
		if (opcode != TOW_OP_WRITE && opcode != TOW_OP_READ) {
			refused(_metadata, self, -EINVAL, &sqe);
			continue;
		}
		copied += sqe.bytes;
		EXPECT_EQ(0, tow_rings_do(&self->user.rings, &sqe));
		/* Not of what is refused. */
		sqe.offset = 1ULL << 40;
		refused(_metadata, self, -ERANGE, &sqe);
	}
	EXPECT_EQ(copied, tow_sysfs_get("stats/copied_bytes"));
}

/* What is not used is zero, every bit of it. */
TEST_F(status, unused_fields)
{
	struct tow_sqe sqe;
	int opcode, bit;

	for (opcode = TOW_OP_NOP; opcode <= TOW_OP_READ; opcode++) {
		for (bit = 0; bit < 64; bit++) {
			sqe = good(self, (__u8)opcode);
			sqe.operand = 1ULL << bit;
			refused(_metadata, self, -EINVAL, &sqe);
		}
	}
}

TEST_F(status, nop_has_no_fields)
{
	const size_t fields[] = {
		offsetof(struct tow_sqe, region), offsetof(struct tow_sqe, offset),
		offsetof(struct tow_sqe, remote), offsetof(struct tow_sqe, remote_offset),
		offsetof(struct tow_sqe, bytes), offsetof(struct tow_sqe, operand),
	};
	struct tow_sqe sqe = good(self, TOW_OP_NOP);
	size_t i;

	sqe.channel = 1;
	refused(_metadata, self, -EINVAL, &sqe);
	for (i = 0; i < ARRAY_SIZE(fields); i++) {
		sqe = good(self, TOW_OP_NOP);
		*((char *)&sqe + fields[i] + 7) = 1;
		refused(_metadata, self, -EINVAL, &sqe);
		sqe = good(self, TOW_OP_NOP);
		*((char *)&sqe + fields[i]) = 1;
		refused(_metadata, self, -EINVAL, &sqe);
	}
}

/* FETCH_ADD does not compare. */
TEST_F(status, fetch_add_has_no_compare)
{
	struct tow_sqe sqe = good(self, TOW_OP_FETCH_ADD);

	if (!self->atomics)
		return;
	sqe.compare = 1;
	refused(_metadata, self, -EINVAL, &sqe);
}

TEST_F(status, atomics_are_aligned_at_both_ends)
{
	struct tow_sqe sqe;
	int opcode, by;

	for (opcode = TOW_OP_FETCH_ADD; self->atomics && opcode <= TOW_OP_COMPARE_SWAP; opcode++) {
		for (by = 1; by < 8; by++) {
			sqe = good(self, (__u8)opcode);
			sqe.offset += (__u64)by;
			refused(_metadata, self, -EINVAL, &sqe);
			sqe = good(self, (__u8)opcode);
			sqe.remote_offset += (__u64)by;
			refused(_metadata, self, -EINVAL, &sqe);
		}
	}
}

/* ---- EBADF ------------------------------------------------------------------------- */

static void each_handle(struct __test_metadata *_metadata, FIXTURE_DATA(status) *self,
			__u64 made_up)
{
	struct tow_sqe sqe;
	int opcode;

	EACH_MOVE(opcode) {
		if (made_up != self->ours.made.handle && made_up != self->theirs.made.handle) {
			sqe = good(self, (__u8)opcode);
			sqe.region = made_up;
			refused(_metadata, self, -EBADF, &sqe);
		}
		if (made_up != self->all && made_up != self->moving) {
			sqe = good(self, (__u8)opcode);
			sqe.remote = made_up;
			refused(_metadata, self, -EBADF, &sqe);
		}
	}
}

TEST_F(status, handles_made_up_or_of_another_kind)
{
	const __u64 made_up[] = { 0, 1, 77, 1ULL << 32, ~0ULL, 1ULL << 63 };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(made_up); i++)
		each_handle(_metadata, self, made_up[i]);
	each_handle(_metadata, self, self->exported);
	each_handle(_metadata, self, self->all);
	each_handle(_metadata, self, self->ours.made.handle);
}

TEST_F(status, handles_of_another_client)
{
	struct tow_user other;
	struct tow_mapped region;
	struct tow_sqe sqe;
	__u64 remote;

	ASSERT_EQ(0, tow_user_make(&other, 1, 0));
	ASSERT_EQ(0, tow_mapped_make(other.fd, BYTES, &region));
	ASSERT_EQ(0, tow_find_for(other.fd, other.peer, "x", TOW_RIGHT_WRITE, &remote));
	sqe = tow_move(&other, TOW_OP_WRITE, region.made.handle, 0, remote, 0, 8);
	EXPECT_EQ(0, tow_rings_do(&other.rings, &sqe));
	/* Numbers may be the same in two clients; these are not. */
	if (region.made.handle != self->ours.made.handle &&
	    region.made.handle != self->theirs.made.handle) {
		sqe = good(self, TOW_OP_WRITE);
		sqe.region = region.made.handle;
		refused(_metadata, self, -EBADF, &sqe);
	}
	sqe = tow_move(&other, TOW_OP_WRITE, self->theirs.made.handle, 0, remote, 0, 8);
	if (self->theirs.made.handle != region.made.handle) {
		EXPECT_EQ(-EBADF, tow_rings_do(&other.rings, &sqe));
	}
	EXPECT_EQ(0, tow_mapped_end(&region));
	tow_user_end(&other);
}

TEST_F(status, handles_given_up)
{
	struct tow_mapped gone;
	struct tow_sqe sqe;

	ASSERT_EQ(0, tow_mapped_make(self->user.fd, BYTES, &gone));
	sqe = good(self, TOW_OP_WRITE);
	sqe.region = gone.made.handle;
	EXPECT_EQ(0, tow_rings_do(&self->user.rings, &sqe));
	/* The descriptor and the mapping stay. */
	ASSERT_EQ(0, tow_region_destroy(self->user.fd, gone.made.handle));
	refused(_metadata, self, -EBADF, &sqe);
	munmap(gone.at, gone.bytes);
	close(gone.made.fd);
	ASSERT_EQ(0, tow_end_handle(self->user.fd, TOW_IOCTL_RELEASE, self->writing));
	sqe = good(self, TOW_OP_WRITE);
	sqe.remote = self->writing;
	refused(_metadata, self, -EBADF, &sqe);
}

TEST_F(status, channels_that_are_not_there)
{
	const __u16 channels[] = { 1, 2, TOW_CHANNELS_MAX, 0x7fff, 0xffff };
	struct tow_channel_open call;
	struct tow_rings other;
	struct tow_sqe sqe;
	int opcode;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(channels); i++) {
		EACH_MOVE(opcode) {
			sqe = good(self, (__u8)opcode);
			sqe.channel = (__u16)(self->user.channel + channels[i]);
			refused(_metadata, self, -EBADF, &sqe);
		}
	}
	/* Of another queue of the same client. */
	ASSERT_EQ(0, tow_rings_make(self->user.fd, 1, 0, &other));
	sqe = good(self, TOW_OP_WRITE);
	EXPECT_EQ(-EBADF, tow_rings_do(&other, &sqe));
	ASSERT_EQ(0, tow_channel_open(other.made.fd, self->user.peer, TOW_CHANNEL_ANY, &call));
	sqe.channel = (__u16)call.channel;
	EXPECT_EQ(0, tow_rings_do(&other, &sqe));
	tow_rings_end(&other);
}

/* ---- ERANGE ------------------------------------------------------------------------- */

/*
 * Of a region all that can be mapped can be used; of a remote range what was
 * exported.
 */
static void check_not_within(struct __test_metadata *_metadata, FIXTURE_DATA(status) *self,
			     bool ours, __u64 end)
{
	const struct {
		__u64 offset, bytes;
	} beyond[] = {
		{ 0, end + 1 }, { 1, end }, { end, 1 }, { end + 1, 0 }, { end - 8, 9 },
		{ 0, ~0ULL }, { ~0ULL, 1 }, { ~0ULL, 2 }, { 8, ~0ULL - 7 },
		{ 1ULL << 63, 1ULL << 63 }, { 0, 1ULL << 32 }, { 1ULL << 32, 1 }, { ~0ULL, 0 },
	};
	struct tow_sqe sqe;
	int opcode;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(beyond); i++) {
		for (opcode = TOW_OP_WRITE; opcode <= TOW_OP_READ; opcode++) {
			sqe = good(self, (__u8)opcode);
			sqe.offset = ours ? beyond[i].offset : 0;
			sqe.remote_offset = ours ? 0 : beyond[i].offset;
			sqe.bytes = beyond[i].bytes;
			refused(_metadata, self, -ERANGE, &sqe);
		}
	}
	for (opcode = TOW_OP_FETCH_ADD; self->atomics && opcode <= TOW_OP_COMPARE_SWAP; opcode++) {
		sqe = good(self, (__u8)opcode);
		*(ours ? &sqe.offset : &sqe.remote_offset) = end;
		refused(_metadata, self, -ERANGE, &sqe);
		*(ours ? &sqe.offset : &sqe.remote_offset) = ~7ULL;
		refused(_metadata, self, -ERANGE, &sqe);
	}
}

TEST_F(status, not_within_the_region)
{
	check_not_within(_metadata, self, true, self->ours.bytes);
}

TEST_F(status, not_within_the_remote_range)
{
	check_not_within(_metadata, self, false, BYTES);
}

/* The last byte can be reached, and the place behind it with nothing. */
TEST_F(status, just_within)
{
	__u64 end = self->ours.bytes;
	struct tow_sqe sqe;
	int opcode;

	for (opcode = TOW_OP_WRITE; opcode <= TOW_OP_READ; opcode++) {
		sqe = good(self, (__u8)opcode);
		sqe.offset = end - BYTES;
		sqe.remote_offset = 0;
		sqe.bytes = BYTES;
		EXPECT_EQ(0, tow_rings_do(&self->user.rings, &sqe));
		sqe.offset = end;
		sqe.remote_offset = BYTES;
		sqe.bytes = 0;
		EXPECT_EQ(0, tow_rings_do(&self->user.rings, &sqe));
	}
	for (opcode = TOW_OP_FETCH_ADD; self->atomics && opcode <= TOW_OP_COMPARE_SWAP; opcode++) {
		sqe = good(self, (__u8)opcode);
		sqe.offset = end - 8;
		sqe.remote_offset = BYTES - 8;
		EXPECT_EQ(0, tow_rings_do(&self->user.rings, &sqe));
	}
}

/* ---- EACCES, EOPNOTSUPP -------------------------------------------------------------- */

TEST_F(status, without_the_right)
{
	struct tow_sqe sqe;
	int opcode;

	sqe = good(self, TOW_OP_WRITE);
	sqe.remote = self->reading;
	refused(_metadata, self, -EACCES, &sqe);
	sqe.bytes = 0;
	refused(_metadata, self, -EACCES, &sqe);
	sqe = good(self, TOW_OP_READ);
	sqe.remote = self->writing;
	refused(_metadata, self, -EACCES, &sqe);
	sqe.bytes = 0;
	refused(_metadata, self, -EACCES, &sqe);
	for (opcode = TOW_OP_FETCH_ADD; self->atomics && opcode <= TOW_OP_COMPARE_SWAP; opcode++) {
		sqe = good(self, (__u8)opcode);
		sqe.remote = self->moving;
		refused(_metadata, self, -EACCES, &sqe);
		sqe.remote = self->reading;
		refused(_metadata, self, -EACCES, &sqe);
	}
	sqe = good(self, TOW_OP_WRITE);
	sqe.remote = self->writing;
	EXPECT_EQ(0, tow_rings_do(&self->user.rings, &sqe));
	sqe = good(self, TOW_OP_READ);
	sqe.remote = self->reading;
	EXPECT_EQ(0, tow_rings_do(&self->user.rings, &sqe));
}

/* What can only be read is sent from, not written to. */
TEST_F(status, regions_that_can_only_be_read)
{
	int fd = tow_region_fd(self->user.fd, self->ours.made.handle, TOW_REGION_READONLY);
	uint64_t handles[2];
	char *memory;
	struct tow_sqe sqe;
	int opcode, i;

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, tow_region_from_fd(self->user.fd, fd, &handles[0]));
	memory = mmap(NULL, TOW_SMALL_SLAB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		      -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)memory);
	memset(memory, 0x11, TOW_SMALL_SLAB);
	ASSERT_EQ(0, tow_region_import(self->user.fd, memory, BYTES, TOW_REGION_READONLY,
				       &handles[1]));
	for (i = 0; i < 2; i++) {
		EACH_MOVE(opcode) {
			sqe = good(self, (__u8)opcode);
			sqe.region = handles[i];
			if (opcode != TOW_OP_WRITE)
				refused(_metadata, self, -EACCES, &sqe);
			else
				EXPECT_EQ(0, tow_rings_do(&self->user.rings, &sqe));
		}
		EXPECT_EQ(0, tow_region_destroy(self->user.fd, handles[i]));
	}
	EXPECT_EQ(0x11, memory[16]);
	close(fd);
}

/* See tests/lab/no-atomics. */
TEST_F(status, a_device_without_atomics)
{
	struct tow_sqe sqe;
	__u64 exported;
	int opcode;

	if (self->atomics)
		return;
	for (opcode = TOW_OP_FETCH_ADD; opcode <= TOW_OP_COMPARE_SWAP; opcode++) {
		sqe = good(self, (__u8)opcode);
		refused(_metadata, self, -EOPNOTSUPP, &sqe);
	}
	EXPECT_EQ(-EOPNOTSUPP, tow_publish_for(self->user.fd, self->theirs.made.handle, "y", BYTES,
					       TOW_RIGHT_READ | TOW_RIGHT_WRITE | TOW_RIGHT_ATOMIC,
					       &exported));
}

/* ---- ESTALE, ECONNRESET --------------------------------------------------------------- */

TEST_F(status, exports_that_have_ended)
{
	struct tow_sqe sqe;
	int opcode;

	ASSERT_EQ(0, tow_end_handle(self->user.fd, TOW_IOCTL_UNEXPORT, self->exported));
	EACH_MOVE(opcode) {
		sqe = good(self, (__u8)opcode);
		refused(_metadata, self, -ESTALE, &sqe);
	}
	/* The name is free; the new one is another. */
	ASSERT_EQ(0, tow_publish_for(self->user.fd, self->theirs.made.handle, "x", BYTES,
				     TOW_RIGHT_WRITE, &self->exported));
	sqe = good(self, TOW_OP_WRITE);
	refused(_metadata, self, -ESTALE, &sqe);
	ASSERT_EQ(0, tow_find_for(self->user.fd, self->user.peer, "x", TOW_RIGHT_WRITE,
				  &sqe.remote));
	EXPECT_EQ(0, tow_rings_do(&self->user.rings, &sqe));
}

/* What was found is stale; the channel is there again with the next connection. */
TEST_F(status, connections_that_have_ended)
{
	struct tow_sqe sqe = good(self, TOW_OP_WRITE);

	ASSERT_EQ(0, tow_disconnect(self->user.fd, self->user.peer));
	refused(_metadata, self, -ESTALE, &sqe);
	ASSERT_EQ(0, tow_connect_self(self->user.fd, &self->user.peer));
	refused(_metadata, self, -ESTALE, &sqe);
	ASSERT_EQ(0, tow_find_for(self->user.fd, self->user.peer, "x", TOW_RIGHT_WRITE,
				  &sqe.remote));
	EXPECT_EQ(0, tow_rings_do(&self->user.rings, &sqe));
}

static void *disconnect(void *arg)
{
	struct tow_user *user = arg;

	tow_test_sleep_ms(2);
	return (void *)(intptr_t)tow_disconnect(user->fd, user->peer);
}

#define TRIES	8

/* While many are under way: how many of them had not begun. */
static int end_connection(struct __test_metadata *_metadata, struct tow_user *user, __u64 region)
{
	int counts[3] = { 0, 0, 0 };
	pthread_t thread;
	struct tow_cqe cqe;
	struct tow_sqe sqe;
	void *ret;
	int i;

	sqe = tow_move(user, TOW_OP_WRITE, region, 0, 0, TOW_SLAB, TOW_SLAB);
	EXPECT_EQ(0, tow_find_for(user->fd, user->peer, "much", TOW_RIGHT_WRITE, &sqe.remote));
	for (i = 0; i < ENTRIES; i++)
		EXPECT_TRUE(tow_rings_put(&user->rings, &sqe));
	EXPECT_EQ(0, pthread_create(&thread, NULL, disconnect, user));
	EXPECT_EQ(ENTRIES, tow_rings_enter(&user->rings, ENTRIES, TOW_LONG_US));
	EXPECT_EQ(0, pthread_join(thread, &ret));
	EXPECT_EQ(0, (int)(intptr_t)ret);
	for (i = 0; tow_rings_take(&user->rings, &cqe); i++) {
		EXPECT_TRUE(!cqe.status || cqe.status == -ECONNRESET || cqe.status == -ESTALE)
			TH_LOG("%s", strerror(-cqe.status));
		counts[0] += !cqe.status;
		counts[1] += cqe.status == -ECONNRESET;
		counts[2] += cqe.status == -ESTALE;
	}
	EXPECT_EQ(ENTRIES, i);
	TH_LOG("%d had ended, %d were under way, %d had not begun", counts[0], counts[1],
	       counts[2]);
	EXPECT_EQ(0, tow_connect_self(user->fd, &user->peer));
	return counts[2];
}

/*
 * Each of them ends, and says how.  Who disconnects may have to wait for a processor until
 * all have ended.
 */
TEST_F_TIMEOUT(status, connections_that_end, 60)
{
	struct tow_user *user = &self->user;
	struct tow_mapped much;
	int tries, left = 0;
	__u64 exported;

	ASSERT_EQ(0, tow_mapped_make(user->fd, 2 * TOW_SLAB, &much));
	ASSERT_EQ(0, tow_publish_for(user->fd, much.made.handle, "much", much.bytes,
				     TOW_RIGHT_WRITE, &exported));
	/* It ended in the middle; the last ones had not begun. */
	for (tries = 0; tries < TRIES && !left; tries++)
		left = end_connection(_metadata, user, much.made.handle);
	EXPECT_LT(0, left);
	EXPECT_EQ(0, tow_mapped_end(&much));
}

/* ---- what ENTER itself says -------------------------------------------------------------- */

TEST_F(status, no_room_for_a_completion)
{
	struct tow_sqe nop = good(self, TOW_OP_NOP);
	struct tow_rings rings;
	struct tow_cqe cqe;
	__u32 i;

	ASSERT_EQ(0, tow_rings_make(self->user.fd, 4, 4, &rings));
	for (i = 0; i < 4; i++)
		ASSERT_TRUE(tow_rings_put(&rings, &nop));
	ASSERT_EQ(4, tow_rings_enter(&rings, 4, TOW_LONG_US));
	ASSERT_TRUE(tow_rings_put(&rings, &nop));
	ASSERT_TRUE(tow_rings_put(&rings, &nop));
	EXPECT_EQ(-EBUSY, tow_rings_enter(&rings, 0, 0));
	EXPECT_EQ(-EBUSY, tow_rings_enter(&rings, 1, TOW_LONG_US));
	EXPECT_EQ(4, tow_rings_ready(&rings));
	/* Nothing is to be taken: that is no error. */
	EXPECT_EQ(0, tow_enter(rings.made.fd, 0, 4, TOW_LONG_US));
	ASSERT_TRUE(tow_rings_take(&rings, &cqe));
	EXPECT_EQ(1, tow_rings_enter(&rings, 0, 0));
	EXPECT_EQ(-EBUSY, tow_rings_enter(&rings, 0, 0));
	for (i = 0; i < 4; i++)
		ASSERT_EQ(0, tow_rings_wait(&rings, &cqe));
	EXPECT_EQ(1, tow_rings_enter(&rings, 1, TOW_LONG_US));
	EXPECT_EQ(1, tow_rings_ready(&rings));
	tow_rings_end(&rings);
}

TEST_F(status, waiting_in_vain)
{
	struct tow_sqe nop = good(self, TOW_OP_NOP);
	struct tow_rings *rings = &self->user.rings;
	double start = tow_test_now();

	EXPECT_EQ(-ETIMEDOUT, tow_enter(rings->made.fd, 0, 1, 0));
	EXPECT_EQ(-ETIMEDOUT, tow_enter(rings->made.fd, 0, 1, 100000));
	EXPECT_LE(0.1, tow_test_now() - start);
	TOW_WITHIN(start, 5000);
	/* Entries that are not there are not taken. */
	EXPECT_EQ(-ETIMEDOUT, tow_enter(rings->made.fd, 5, 1, 1000));
	EXPECT_EQ(0, tow_enter(rings->made.fd, 5, 0, 0));
	/* What was taken is the answer; and one completion is not two. */
	ASSERT_TRUE(tow_rings_put(rings, &nop));
	EXPECT_EQ(1, tow_rings_enter(rings, 2, 1000));
	EXPECT_EQ(-ETIMEDOUT, tow_enter(rings->made.fd, 0, 2, 1000));
	EXPECT_EQ(0, tow_enter(rings->made.fd, 0, 1, TOW_WAIT_FOREVER));
	EXPECT_EQ(-EINVAL, tow_enter(rings->made.fd, 0, rings->made.cq_entries + 1, 0));
	EXPECT_EQ(-ETIMEDOUT, tow_enter(rings->made.fd, 0, rings->made.cq_entries, 0));
	/* An error of the call takes nothing. */
	ASSERT_TRUE(tow_rings_put(rings, &nop));
	EXPECT_EQ(-EINVAL, tow_rings_enter(rings, rings->made.cq_entries + 1, 0));
	EXPECT_EQ(1, tow_rings_ready(rings));
	EXPECT_EQ(1, tow_rings_enter(rings, 2, TOW_LONG_US));
	tow_rings_seen(rings, 2);
}

static void nothing(int number)
{
	(void)number;
}

TEST_F(status, signals)
{
	struct sigaction action = { .sa_handler = nothing };
	/* Again and again: one before the call waits is for nothing. */
	struct itimerval soon = {
		.it_value = { .tv_usec = 50000 }, .it_interval = { .tv_usec = 50000 },
	}, never = { 0 };
	struct tow_sqe nop = good(self, TOW_OP_NOP);
	struct tow_rings *rings = &self->user.rings;

	ASSERT_EQ(0, sigaction(SIGALRM, &action, NULL));
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &soon, NULL));
	EXPECT_EQ(-EINTR, tow_enter(rings->made.fd, 0, 1, TOW_LONG_US));
	ASSERT_TRUE(tow_rings_put(rings, &nop));
	EXPECT_EQ(1, tow_rings_enter(rings, 2, TOW_LONG_US));
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &never, NULL));
	EXPECT_EQ(1, tow_rings_ready(rings));
	tow_rings_seen(rings, 1);
}

/* ---- beside others ----------------------------------------------------------------------- */

/* One in a batch: the others do what they do. */
TEST_F(status, a_bad_one_among_good_ones)
{
	struct tow_rings *rings = &self->user.rings;
	struct tow_cqe cqe;
	unsigned int i, bad = 0;

	for (i = 0; i < 32; i++) {
		struct tow_sqe sqe = good(self, TOW_OP_WRITE);

		sqe.user_data = i;
		sqe.offset = i;
		sqe.remote_offset = (__u64)i * 8;
		sqe.bytes = 8;
		if (i % 4 == 3)
			sqe.remote_offset = BYTES - i % 8;
		self->ours.at[i] = (char)i;
		ASSERT_TRUE(tow_rings_put(rings, &sqe));
	}
	ASSERT_EQ(32, tow_rings_enter(rings, 32, TOW_LONG_US));
	while (tow_rings_take(rings, &cqe)) {
		EXPECT_EQ(cqe.user_data % 4 == 3 ? -ERANGE : 0, cqe.status);
		if (cqe.status) {
			bad++;
			continue;
		}
		EXPECT_EQ((char)cqe.user_data, self->theirs.at[cqe.user_data * 8]);
	}
	EXPECT_EQ(8, bad);
}

/* A silent one that fails is heard of. */
TEST_F(status, silent_ones_that_fail)
{
	struct tow_sqe sqe = good(self, TOW_OP_WRITE);
	int i;

	sqe.flags = TOW_SQE_SILENT;
	for (i = 0; i < 3; i++) {
		if (i == 0)
			sqe.bytes = BYTES;
		if (i == 1)
			sqe.operand = 1;
		if (i == 2) {
			ASSERT_EQ(0, tow_end_handle(self->user.fd, TOW_IOCTL_UNEXPORT,
						    self->exported));
			sqe = good(self, TOW_OP_WRITE);
			sqe.flags = TOW_SQE_SILENT;
		}
		refused(_metadata, self, i == 0 ? -ERANGE : i == 1 ? -EINVAL : -ESTALE, &sqe);
	}
}

TEST_HARNESS_MAIN
