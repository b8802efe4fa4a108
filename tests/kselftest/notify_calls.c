// SPDX-License-Identifier: GPL-2.0
/*
 * Slots, WRITE_NOTIFY and WAIT: what they are refused for, by each call and each
 * status of the contract that one node can bring about; and that a refusal counts
 * nothing and moves nothing.
 *
 * notify_end.c has what ends under way; lab/notify the slot of another peer.
 */
/* build: also 32-bit */
#include "tow_notify.h"

#define POOL_BYTES	(4 * TOW_SLAB)
#define ENTRIES		16
#define BYTES		(64 * TOW_KB)
#define OTHER_RIGHTS	(TOW_RIGHT_READ | TOW_RIGHT_WRITE | TOW_RIGHT_ATOMIC)

FIXTURE(notify)
{
	struct tow_ends ends;
	bool atomics;
};

FIXTURE_SETUP(notify)
{
	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_ends_make(&self->ends, ENTRIES, BYTES));
	self->atomics = tow_has_atomics(self->ends.to.fd);
}

/* Whatever was refused: the next one counts. */
FIXTURE_TEARDOWN(notify)
{
	struct tow_ends *ends = &self->ends;
	struct tow_sqe nop = { .user_data = 99 };

	EXPECT_EQ(0, tow_rings_do(&ends->from.rings, &nop));
	EXPECT_EQ(0, tow_rings_do(&ends->to.rings, &nop));
}

/* ---- EXPORT ------------------------------------------------------------------------ */

static struct tow_export slot_call(const struct tow_ends *ends, const char *name)
{
	struct tow_export call = {
		.size = sizeof(call), .region = ends->memory.made.handle, .offset = 64,
		.bytes = 8, .rights = TOW_RIGHT_NOTIFY, .name_bytes = (__u32)strlen(name),
	};

	memcpy(call.name, name, strlen(name));
	return call;
}

static int export_slot(const struct tow_ends *ends, struct tow_export call)
{
	int ret = tow_test_ioctl(ends->to.fd, TOW_IOCTL_EXPORT, &call);

	return ret ? ret : tow_end_handle(ends->to.fd, TOW_IOCTL_UNEXPORT, call.handle);
}

/* The number becomes 0, and none of its neighbours. */
TEST_F(notify, a_slot_begins_at_0)
{
	struct tow_export call = slot_call(&self->ends, "other");
	uint64_t *words = self->ends.memory.words;
	struct tow_export_info info[8];
	struct tow_export_list list = {
		.size = sizeof(list), .entries = (uintptr_t)info, .entry_size = sizeof(info[0]),
		.count = ARRAY_SIZE(info),
	};
	__u32 i, found = 0;

	words[7] = words[8] = words[9] = ~0ULL;
	ASSERT_EQ(0, tow_test_ioctl(self->ends.to.fd, TOW_IOCTL_EXPORT, &call));
	EXPECT_EQ(~0ULL, words[7]);
	EXPECT_EQ(0, words[8]);
	EXPECT_EQ(~0ULL, words[9]);
	ASSERT_EQ(0, tow_test_ioctl(self->ends.to.fd, TOW_IOCTL_EXPORT_LIST, &list));
	for (i = 0; i < list.count; i++) {
		if (info[i].name_bytes != 5 || memcmp(info[i].name, "other", 5))
			continue;
		found++;
		EXPECT_EQ(TOW_RIGHT_NOTIFY, info[i].rights);
		EXPECT_EQ(8, info[i].bytes);
		EXPECT_EQ(64, info[i].offset);
		EXPECT_EQ(0, info[i].grants);
	}
	EXPECT_EQ(1, found);
	EXPECT_EQ(0, tow_end_handle(self->ends.to.fd, TOW_IOCTL_UNEXPORT, call.handle));
}

TEST_F(notify, sizes_and_places_of_a_slot)
{
	const __u64 sizes[] = { 0, 1, 4, 7, 9, 15, 16, 64, 4096, ~0ULL };
	__u64 end = self->ends.memory.bytes, by;
	struct tow_export call;
	size_t i;

	EXPECT_EQ(0, export_slot(&self->ends, slot_call(&self->ends, "other")));
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		call = slot_call(&self->ends, "other");
		call.bytes = sizes[i];
		EXPECT_EQ(-EINVAL, export_slot(&self->ends, call))
			TH_LOG("%llu bytes", (unsigned long long)sizes[i]);
	}
	for (by = 1; by < 8; by++) {
		call = slot_call(&self->ends, "other");
		call.offset += by;
		EXPECT_EQ(-EINVAL, export_slot(&self->ends, call));
	}
	call = slot_call(&self->ends, "other");
	call.offset = self->ends.memory.made.bytes - 8;
	EXPECT_EQ(0, export_slot(&self->ends, call));
	call.offset = end;
	EXPECT_EQ(-EINVAL, export_slot(&self->ends, call));
	call.offset = ~7ULL;
	EXPECT_EQ(-EINVAL, export_slot(&self->ends, call));
	call = slot_call(&self->ends, "slot");
	EXPECT_EQ(-EEXIST, export_slot(&self->ends, call));
	call = slot_call(&self->ends, "other");
	call.region = ~0ULL;
	EXPECT_EQ(-ENOENT, export_slot(&self->ends, call));
}

TEST_F(notify, a_slot_has_no_other_right)
{
	struct tow_export call = slot_call(&self->ends, "other");
	__u32 others;

	for (others = 1; others <= OTHER_RIGHTS; others++) {
		call.rights = TOW_RIGHT_NOTIFY | others;
		EXPECT_EQ(-EINVAL, export_slot(&self->ends, call))
			TH_LOG("rights %u", call.rights);
	}
	call.rights = TOW_RIGHT_NOTIFY << 1;
	EXPECT_EQ(-EINVAL, export_slot(&self->ends, call));
	call.rights |= TOW_RIGHT_NOTIFY;
	EXPECT_EQ(-EINVAL, export_slot(&self->ends, call));
}

/* Two pages of the process's own, the second one for numbers. */
#define OWN_BYTES	8192

TEST_F(notify, slots_in_imported_memory)
{
	char *own = mmap(NULL, OWN_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			 0);
	struct tow_ends *ends = &self->ends;
	struct tow_export call = slot_call(ends, "own");
	uint64_t region, odd, locked;
	struct tow_sqe sqe;
	__u64 slot;

	ASSERT_NE(MAP_FAILED, own);
	memset(own, 0x77, OWN_BYTES);
	ASSERT_EQ(0, tow_region_import(ends->to.fd, own, OWN_BYTES, 0, &region));
	ASSERT_EQ(0, tow_region_import(ends->to.fd, own + 4, OWN_BYTES - 4, 0, &odd));
	ASSERT_EQ(0, tow_region_import(ends->to.fd, own, OWN_BYTES, TOW_REGION_READONLY, &locked));
	call.region = locked;
	EXPECT_EQ(-EACCES, export_slot(ends, call));
	/* A multiple of 8 in the region, and none in memory: half in each of two pages. */
	call.region = odd;
	call.offset = 4088;
	EXPECT_EQ(-EINVAL, export_slot(ends, call));
	call.region = region;
	ASSERT_EQ(0, tow_test_ioctl(ends->to.fd, TOW_IOCTL_EXPORT, &call));
	EXPECT_EQ(0, tow_slot_number(own + 4088));
	ASSERT_EQ(0, tow_slot_find(ends->from.fd, ends->from.peer, "own", &slot));
	sqe = tow_notify(&ends->from, slot);
	EXPECT_EQ(0, tow_rings_do(&ends->from.rings, &sqe));
	EXPECT_EQ(1, tow_slot_await(own + 4088, 1));
	EXPECT_EQ(0x77, own[4087]);
	EXPECT_EQ(0x77, own[4096]);
	/* The region's handle is not what keeps the memory. */
	ASSERT_EQ(0, tow_region_destroy(ends->to.fd, region));
	EXPECT_EQ(0, tow_rings_do(&ends->from.rings, &sqe));
	EXPECT_EQ(2, tow_slot_await(own + 4088, 2));
	EXPECT_EQ(0, tow_end_handle(ends->to.fd, TOW_IOCTL_UNEXPORT, call.handle));
	EXPECT_EQ(-ESTALE, tow_rings_do(&ends->from.rings, &sqe));
	EXPECT_EQ(2, tow_slot_number(own + 4088));
	munmap(own, OWN_BYTES);
}

/* ---- RESOLVE ----------------------------------------------------------------------- */

static int find_with(const struct tow_user *user, const char *name, __u32 rights,
		     __u32 timeout_ms)
{
	struct tow_resolve call = {
		.size = sizeof(call), .peer = user->peer, .rights = rights,
		.timeout_ms = timeout_ms, .name_bytes = (__u32)strlen(name),
	};
	int ret;

	memcpy(call.name, name, strlen(name));
	ret = tow_test_ioctl(user->fd, TOW_IOCTL_RESOLVE, &call);
	if (!ret && rights == TOW_RIGHT_NOTIFY && call.bytes != 8)
		ret = -EBADMSG;
	if (!ret)
		ret = tow_end_handle(user->fd, TOW_IOCTL_RELEASE, call.handle);
	return ret;
}

TEST_F(notify, what_finds_a_slot)
{
	struct tow_user *user = &self->ends.from;
	__u32 rights;

	ASSERT_EQ(0, tow_end_handle(user->fd, TOW_IOCTL_RELEASE, self->ends.found));
	EXPECT_EQ(0, find_with(user, "slot", TOW_RIGHT_NOTIFY, 0));
	EXPECT_EQ(0, find_with(user, "slot", TOW_RIGHT_NOTIFY, TOW_WAIT_MS));
	for (rights = 1; rights <= OTHER_RIGHTS; rights++) {
		/* ATOMIC does not go without WRITE. */
		bool valid = !(rights & TOW_RIGHT_ATOMIC) || rights & TOW_RIGHT_WRITE;

		if (valid) {
			EXPECT_EQ(-EACCES, find_with(user, "slot", rights, 0));
			EXPECT_EQ(-EACCES, find_with(user, "slot", rights, TOW_WAIT_MS));
		}
		EXPECT_EQ(-EINVAL, find_with(user, "slot", rights | TOW_RIGHT_NOTIFY, 0));
	}
	/* A width is a slot's: notify_width.c. */
	EXPECT_EQ(-EINVAL, find_with(user, "slot", TOW_RIGHT_WIDTH, 0));
	EXPECT_EQ(-EINVAL, find_with(user, "data", TOW_RIGHT_WIDTH | TOW_RIGHT_READ, 0));
	EXPECT_EQ(-EINVAL, find_with(user, "slot", TOW_RIGHT_NOTIFY_BY(2) | TOW_RIGHT_READ, 0));
	EXPECT_EQ(-EACCES, find_with(user, "data", TOW_RIGHT_NOTIFY_BY(2), 0));
	EXPECT_EQ(-EACCES, find_with(user, "data", TOW_RIGHT_NOTIFY, 0));
	EXPECT_EQ(-EACCES, find_with(user, "data", TOW_RIGHT_NOTIFY, TOW_WAIT_MS));
	EXPECT_EQ(-EINVAL, find_with(user, "slot", 0, 0));
	EXPECT_EQ(-ENOENT, find_with(user, "none", TOW_RIGHT_NOTIFY, 0));
	EXPECT_EQ(-ETIMEDOUT, find_with(user, "none", TOW_RIGHT_NOTIFY, 100));
	EXPECT_EQ(0, find_with(user, "data", TOW_RIGHT_READ, 0));
	ASSERT_EQ(0, tow_slot_find(user->fd, user->peer, "slot", &self->ends.found));
	EXPECT_EQ(0, tow_ends_notify(&self->ends));
}

/* One at a time; others are told at once, however long they would wait. */
TEST_F(notify, a_slot_is_taken)
{
	struct tow_ends *ends = &self->ends;
	double start = tow_test_now(), end;
	struct tow_user other;
	struct tow_sqe sqe;
	__u64 slot;

	ASSERT_EQ(0, tow_user_make(&other, 4, 0));
	EXPECT_EQ(-EBUSY, find_with(&other, "slot", TOW_RIGHT_NOTIFY, 0));
	EXPECT_EQ(-EBUSY, find_with(&other, "slot", TOW_RIGHT_NOTIFY, TOW_WAIT_FOREVER));
	EXPECT_EQ(-EBUSY, find_with(&ends->from, "slot", TOW_RIGHT_NOTIFY, TOW_WAIT_MS));
	end = tow_test_now();
	ASSERT_EQ(0, tow_ends_notify(ends));
	ASSERT_EQ(0, tow_ends_notify(ends));
	/* The next one goes on from there. */
	ASSERT_EQ(0, tow_end_handle(ends->from.fd, TOW_IOCTL_RELEASE, ends->found));
	ASSERT_EQ(0, tow_slot_find(other.fd, other.peer, "slot", &slot));
	EXPECT_EQ(2, tow_slot_await(tow_ends_word(ends), 2));
	EXPECT_EQ(-EBADF, tow_ends_notify(ends));
	sqe = tow_notify(&other, slot);
	EXPECT_EQ(0, tow_rings_do(&other.rings, &sqe));
	EXPECT_EQ(3, tow_slot_await(tow_ends_word(ends), 3));
	/* And whoever comes after a client that has ended. */
	tow_user_end(&other);
	ASSERT_EQ(0, tow_slot_find(ends->from.fd, ends->from.peer, "slot", &ends->found));
	EXPECT_EQ(0, tow_ends_notify(ends));
	EXPECT_EQ(4, tow_slot_await(tow_ends_word(ends), 4));
	TOW_WITHIN_AT(start, end, TOW_WAIT_MS);
}

/* ---- WRITE_NOTIFY ------------------------------------------------------------------ */

static struct tow_sqe good(const struct tow_ends *ends)
{
	struct tow_sqe sqe = tow_write_notify(&ends->from, ends->own.made.handle, 16,
					      ends->remote, 24, 32, ends->found);

	sqe.user_data = 0x1122334455667788;
	return sqe;
}

/* It is refused; no byte changes, and nothing is counted, also not a little later. */
static void refused(struct __test_metadata *_metadata, struct tow_ends *ends, int status,
		    const struct tow_sqe *sqe)
{
	char *data = ends->memory.at + TOW_DATA_AT;
	__u64 number = tow_ends_number(ends);

	memset(ends->own.at, 0x33, 256);
	memset(data, 0x55, 256);
	EXPECT_EQ(status, tow_rings_do(&ends->from.rings, sqe))
		TH_LOG("opcode %u, %llu of %llu to %llu of %llu, %llu bytes, slot %llu",
		       sqe->opcode, (unsigned long long)sqe->offset,
		       (unsigned long long)sqe->region, (unsigned long long)sqe->remote_offset,
		       (unsigned long long)sqe->remote, (unsigned long long)sqe->bytes,
		       (unsigned long long)sqe->operand);
	EXPECT_EQ(number, tow_ends_number(ends));
	EXPECT_EQ(0x33, ends->own.at[0]);
	EXPECT_EQ(0, memcmp(ends->own.at, ends->own.at + 1, 255));
	EXPECT_EQ(0x55, data[0]);
	EXPECT_EQ(0, memcmp(data, data + 1, 255));
}

TEST_F(notify, good_ones_are_good)
{
	const __u64 sizes[] = { 1, 8, 1000, 1024, 4096, 4097, BYTES };
	uint64_t arrived = tow_sysfs_get("stats/notifications");
	uint64_t sent = tow_sysfs_get("stats/notifications_sent");
	struct tow_ends *ends = &self->ends;
	struct tow_sqe sqe;
	__u64 number = 0;
	size_t i;

	EXPECT_EQ(0, tow_ends_notify(ends));
	EXPECT_EQ(++number, tow_slot_await(tow_ends_word(ends), number));
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		sqe = good(ends);
		sqe.offset = sqe.remote_offset = 0;
		sqe.bytes = sizes[i];
		memset(ends->own.at, (int)i + 1, BYTES);
		EXPECT_EQ(0, tow_rings_do(&ends->from.rings, &sqe));
		EXPECT_EQ(++number, tow_slot_await(tow_ends_word(ends), number));
		EXPECT_EQ(0, memcmp(ends->own.at, ends->memory.at + TOW_DATA_AT, sizes[i]));
	}
	EXPECT_EQ(arrived + number, tow_sysfs_wait("stats/notifications", arrived + number));
	EXPECT_EQ(sent + number, tow_sysfs_wait("stats/notifications_sent", sent + number));
}

TEST_F(notify, handles_that_are_none)
{
	struct tow_ends *ends = &self->ends;
	const __u64 made_up[] = { 0, 77, 1ULL << 32, ~0ULL, 1ULL << 63 };
	struct tow_sqe sqe;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(made_up); i++) {
		sqe = good(ends);
		sqe.operand = made_up[i];
		refused(_metadata, ends, -EBADF, &sqe);
		sqe = tow_notify(&ends->from, made_up[i]);
		refused(_metadata, ends, -EBADF, &sqe);
		sqe = good(ends);
		sqe.remote = made_up[i];
		refused(_metadata, ends, -EBADF, &sqe);
		if (made_up[i] == ends->own.made.handle)
			continue;
		sqe = good(ends);
		sqe.region = made_up[i];
		refused(_metadata, ends, -EBADF, &sqe);
	}
	sqe = good(ends);
	sqe.channel++;
	refused(_metadata, ends, -EBADF, &sqe);
	/* Given up. */
	ASSERT_EQ(0, tow_end_handle(ends->from.fd, TOW_IOCTL_RELEASE, ends->found));
	sqe = good(ends);
	refused(_metadata, ends, -EBADF, &sqe);
	ASSERT_EQ(0, tow_slot_find(ends->from.fd, ends->from.peer, "slot", &ends->found));
}

/* What is memory is no slot, and the reverse. */
TEST_F(notify, handles_of_the_other_kind)
{
	struct tow_ends *ends = &self->ends;
	struct tow_sqe sqe;
	__u64 reading;
	int opcode;

	sqe = good(ends);
	sqe.operand = ends->remote;
	refused(_metadata, ends, -EACCES, &sqe);
	sqe = tow_notify(&ends->from, ends->remote);
	refused(_metadata, ends, -EACCES, &sqe);
	sqe = good(ends);
	sqe.remote = ends->found;
	sqe.remote_offset = 0;
	sqe.bytes = 8;
	refused(_metadata, ends, -EACCES, &sqe);
	for (opcode = TOW_OP_WRITE; opcode <= TOW_OP_COMPARE_SWAP; opcode++) {
		if (opcode >= TOW_OP_FETCH_ADD && !self->atomics)
			continue;
		sqe = tow_move(&ends->from, (__u8)opcode, ends->own.made.handle, 0, ends->found, 0,
			       opcode < TOW_OP_FETCH_ADD ? 8 : 0);
		refused(_metadata, ends, -EACCES, &sqe);
	}
	ASSERT_EQ(0, tow_find_for(ends->from.fd, ends->from.peer, "data", TOW_RIGHT_READ,
				  &reading));
	sqe = good(ends);
	sqe.remote = reading;
	refused(_metadata, ends, -EACCES, &sqe);
}

TEST_F(notify, fields_of_write_notify)
{
	const size_t unused[] = {
		offsetof(struct tow_sqe, region), offsetof(struct tow_sqe, offset),
		offsetof(struct tow_sqe, remote), offsetof(struct tow_sqe, remote_offset),
	};
	struct tow_ends *ends = &self->ends;
	struct tow_sqe sqe;
	size_t i;
	int bit;

	/* Without data there is no place of it either: not even a good one. */
	for (i = 0; i < ARRAY_SIZE(unused); i++) {
		sqe = tow_notify(&ends->from, ends->found);
		*((char *)&sqe + unused[i]) = 1;
		refused(_metadata, ends, -EINVAL, &sqe);
		sqe = tow_notify(&ends->from, ends->found);
		*((char *)&sqe + unused[i] + 7) = 1;
		refused(_metadata, ends, -EINVAL, &sqe);
	}
	sqe = good(ends);
	sqe.bytes = 0;
	refused(_metadata, ends, -EINVAL, &sqe);
	for (bit = 4; bit < 8; bit++) {
		sqe = good(ends);
		sqe.flags = (__u8)(1U << bit);
		refused(_metadata, ends, -EINVAL, &sqe);
	}
}

TEST_F(notify, ranges_of_write_notify)
{
	struct tow_ends *ends = &self->ends;
	struct tow_sqe sqe;

	sqe = good(ends);
	sqe.offset = ends->own.bytes - sqe.bytes;
	sqe.remote_offset = BYTES - sqe.bytes;
	EXPECT_EQ(0, tow_rings_do(&ends->from.rings, &sqe));
	EXPECT_EQ(1, tow_slot_await(tow_ends_word(ends), 1));
	sqe.offset++;
	refused(_metadata, ends, -ERANGE, &sqe);
	sqe.offset -= 2;
	sqe.remote_offset++;
	refused(_metadata, ends, -ERANGE, &sqe);
	sqe = good(ends);
	sqe.bytes = ~0ULL;
	refused(_metadata, ends, -ERANGE, &sqe);
	sqe = good(ends);
	sqe.remote_offset = ~0ULL;
	refused(_metadata, ends, -ERANGE, &sqe);
}

/* A slot keeps to the queue pair that it was used on first. */
TEST_F(notify, another_queue_pair)
{
	struct tow_ends *ends = &self->ends;
	struct tow_channel_open call;
	struct tow_sqe sqe = good(ends);
	struct tow_rings other;

	ASSERT_EQ(0, tow_channel_open(ends->from.rings.made.fd, ends->from.peer, 1, &call));
	ASSERT_LE(2, call.qps);
	EXPECT_EQ(0, tow_rings_do(&ends->from.rings, &sqe));
	EXPECT_EQ(1, tow_slot_await(tow_ends_word(ends), 1));
	sqe.channel = (__u16)call.channel;
	refused(_metadata, ends, -EINVAL, &sqe);
	sqe = tow_notify(&ends->from, ends->found);
	sqe.channel = (__u16)call.channel;
	refused(_metadata, ends, -EINVAL, &sqe);
	/* After the one before has given it back, it is the first one again. */
	ASSERT_EQ(0, tow_end_handle(ends->from.fd, TOW_IOCTL_RELEASE, ends->found));
	ASSERT_EQ(0, tow_slot_find(ends->from.fd, ends->from.peer, "slot", &ends->found));
	sqe.operand = ends->found;
	EXPECT_EQ(0, tow_rings_do(&ends->from.rings, &sqe));
	EXPECT_EQ(2, tow_slot_await(tow_ends_word(ends), 2));
	/* Another queue of this client, the same queue pair. */
	ASSERT_EQ(0, tow_rings_make(ends->from.fd, 1, 0, &other));
	ASSERT_EQ(0, tow_channel_open(other.made.fd, ends->from.peer, 1, &call));
	sqe.channel = (__u16)call.channel;
	EXPECT_EQ(0, tow_rings_do(&other, &sqe));
	EXPECT_EQ(3, tow_slot_await(tow_ends_word(ends), 3));
	tow_rings_end(&other);
}

TEST_F(notify, exports_that_have_ended)
{
	struct tow_ends *ends = &self->ends;
	struct tow_sqe sqe = good(ends);

	ASSERT_EQ(0, tow_end_handle(ends->to.fd, TOW_IOCTL_UNEXPORT, ends->data));
	refused(_metadata, ends, -ESTALE, &sqe);
	EXPECT_EQ(0, tow_ends_notify(ends));
	EXPECT_EQ(1, tow_slot_await(tow_ends_word(ends), 1));
	ASSERT_EQ(0, tow_end_handle(ends->to.fd, TOW_IOCTL_UNEXPORT, ends->slot));
	refused(_metadata, ends, -ESTALE, &sqe);
	sqe = tow_notify(&ends->from, ends->found);
	refused(_metadata, ends, -ESTALE, &sqe);
	/* The number stays; a new one of the name begins anew. */
	EXPECT_EQ(1, tow_ends_number(ends));
	ASSERT_EQ(0, tow_slot_make(ends->to.fd, ends->memory.made.handle, TOW_SLOT_AT, "slot",
				   &ends->slot));
	EXPECT_EQ(0, tow_ends_number(ends));
	refused(_metadata, ends, -ESTALE, &sqe);
	ASSERT_EQ(0, tow_slot_find(ends->from.fd, ends->from.peer, "slot", &ends->found));
	EXPECT_EQ(0, tow_ends_notify(ends));
	EXPECT_EQ(1, tow_slot_await(tow_ends_word(ends), 1));
}

/* ---- WAIT -------------------------------------------------------------------------- */

static void wait_refused(struct __test_metadata *_metadata, struct tow_ends *ends, int status,
			 struct tow_sqe sqe)
{
	sqe.user_data = 5;
	EXPECT_EQ(status, tow_rings_do(&ends->to.rings, &sqe))
		TH_LOG("%llu for %llu", (unsigned long long)sqe.region,
		       (unsigned long long)sqe.operand);
}

TEST_F(notify, waits_for_what_is_there)
{
	struct tow_ends *ends = &self->ends;

	wait_refused(_metadata, ends, 0, tow_wait_for(ends->slot, 0));
	EXPECT_EQ(0, tow_ends_notify(ends));
	wait_refused(_metadata, ends, 0, tow_wait_for(ends->slot, 1));
	wait_refused(_metadata, ends, 0, tow_wait_for(ends->slot, 0));
	/* A program that writes there deceives itself alone. */
	*(__u64 *)ends->memory.at = 1000;
	EXPECT_EQ(0, tow_ends_begin_wait(ends, 2, 0));
	EXPECT_EQ(-ETIMEDOUT, tow_enter(ends->to.rings.made.fd, 0, 1, 50000));
	EXPECT_EQ(0, tow_ends_notify(ends));
	EXPECT_EQ(0, tow_ends_end_wait(ends, 2));
	EXPECT_EQ(2, tow_ends_number(ends));
}

TEST_F(notify, waits_for_no_slot)
{
	const __u64 made_up[] = { 0, 77, 1ULL << 32, ~0ULL, 1ULL << 63 };
	struct tow_ends *ends = &self->ends;
	__u64 gone;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(made_up); i++) {
		if (made_up[i] != ends->slot && made_up[i] != ends->data)
			wait_refused(_metadata, ends, -EBADF, tow_wait_for(made_up[i], 0));
	}
	wait_refused(_metadata, ends, -EACCES, tow_wait_for(ends->data, 0));
	wait_refused(_metadata, ends, -EACCES, tow_wait_for(ends->data, 1));
	ASSERT_EQ(0, tow_slot_make(ends->to.fd, ends->memory.made.handle, 64, "gone", &gone));
	wait_refused(_metadata, ends, 0, tow_wait_for(gone, 0));
	ASSERT_EQ(0, tow_end_handle(ends->to.fd, TOW_IOCTL_UNEXPORT, gone));
	wait_refused(_metadata, ends, -EBADF, tow_wait_for(gone, 0));
}

/* It is its client's alone: who found it does not wait for it, nor anybody else. */
TEST_F(notify, waits_of_others)
{
	struct tow_ends *ends = &self->ends;
	struct tow_sqe sqe = tow_wait_for(ends->slot, 0);

	/* This client has no exports: no number is one of its. */
	EXPECT_EQ(-EBADF, tow_rings_do(&ends->from.rings, &sqe));
	sqe = tow_wait_for(ends->found, 0);
	EXPECT_EQ(-EBADF, tow_rings_do(&ends->from.rings, &sqe));
}

TEST_F(notify, fields_of_wait)
{
	const size_t unused[] = {
		offsetof(struct tow_sqe, offset), offsetof(struct tow_sqe, remote),
		offsetof(struct tow_sqe, remote_offset), offsetof(struct tow_sqe, bytes),
	};
	struct tow_ends *ends = &self->ends;
	struct tow_sqe sqe;
	size_t i;
	int bit;

	for (i = 0; i < ARRAY_SIZE(unused); i++) {
		sqe = tow_wait_for(ends->slot, 0);
		*((char *)&sqe + unused[i]) = 1;
		wait_refused(_metadata, ends, -EINVAL, sqe);
		sqe = tow_wait_for(ends->slot, 0);
		*((char *)&sqe + unused[i] + 3) = 0x40;
		wait_refused(_metadata, ends, -EINVAL, sqe);
	}
	sqe = tow_wait_for(ends->slot, 0);
	sqe.channel = 1;
	wait_refused(_metadata, ends, -EINVAL, sqe);
	for (bit = 3; bit < 8; bit++) {
		sqe = tow_wait_for(ends->slot, 0);
		sqe.flags = (__u8)(1U << bit);
		wait_refused(_metadata, ends, -EINVAL, sqe);
	}
	sqe = tow_wait_for(ends->slot, 0);
	sqe.opcode = TOW_OP_WAIT + 1;
	wait_refused(_metadata, ends, -EINVAL, sqe);
}

/* ---- limits and settings ------------------------------------------------------------- */

FIXTURE(settings)
{
	struct tow_knobs before;
	struct tow_ends ends;
};

FIXTURE_SETUP(settings)
{
	tow_knobs_save(&self->before);
	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_ends_make(&self->ends, ENTRIES, BYTES));
}

FIXTURE_TEARDOWN_PARENT(settings)
{
	EXPECT_EQ(0, tow_knobs_restore(&self->before));
}

/* They count as exports do; no registration is made for them. */
TEST_F(settings, limits)
{
	struct tow_region_info before, after;
	struct tow_export call = slot_call(&self->ends, "other");

	ASSERT_EQ(0, tow_region_query(self->ends.to.fd, call.region, &before));
	ASSERT_EQ(0, tow_sysfs_set("client_export_limit", 2));
	EXPECT_EQ(-EDQUOT, export_slot(&self->ends, call));
	ASSERT_EQ(0, tow_sysfs_set("client_export_limit", 3));
	ASSERT_EQ(0, tow_test_ioctl(self->ends.to.fd, TOW_IOCTL_EXPORT, &call));
	ASSERT_EQ(0, tow_region_query(self->ends.to.fd, call.region, &after));
	EXPECT_EQ(before.mrs, after.mrs);
	EXPECT_EQ(0, tow_end_handle(self->ends.to.fd, TOW_IOCTL_UNEXPORT, call.handle));
}

TEST_HARNESS_MAIN
