// SPDX-License-Identifier: GPL-2.0
/*
 * Small operations to one's own node, which the kernel copies where an administrator says
 * so (loopback_copy_bytes): what is copied and what is left to the device, and that nobody
 * can tell by anything but the time and stats/loopback_copied_bytes: data, order,
 * notifications, errors, the end of an export.
 */
#include <glob.h>
#include <pthread.h>
#include "tow_notify.h"
#include "tow_places.h"

#define POOL_BYTES	(16 * TOW_SLAB)
#define ENTRIES		64U
#define LIMIT		((size_t)4 * TOW_KB)
/* Several messages, and several slabs. */
#define BIG		((size_t)192 * TOW_KB)
#define BYTES		(2 * BIG)
#define ROUNDS		100U
#define REVOKES		20U
#define RIGHTS		(TOW_RIGHT_READ | TOW_RIGHT_WRITE)

static uint64_t copied(void)
{
	return tow_sysfs_get("stats/loopback_copied_bytes");
}

static int copy_up_to(size_t bytes)
{
	return tow_sysfs_set("loopback_copy_bytes", bytes);
}

/* What the one peer's file says; UINT64_MAX: there is none. */
static uint64_t of_peer(const char *file)
{
	uint64_t value = UINT64_MAX;
	char path[128], line[32];
	glob_t found;

	snprintf(path, sizeof(path), "/sys/class/towline/*/peers/*/%s", file);
	if (!glob(path, 0, NULL, &found)) {
		tow_test_read_line(found.gl_pathv[0], line, sizeof(line));
		value = strtoull(line, NULL, 10);
		globfree(&found);
	}
	return value;
}

static int put(struct tow_user *user, struct tow_sqe sqe)
{
	return tow_rings_put(&user->rings, &sqe) ? 0 : -EXFULL;
}

static int hand_over(struct tow_user *user, __u32 count)
{
	int ret = tow_rings_enter(&user->rings, 0, 0);

	return ret < 0 ? ret : ret == (int)count ? 0 : -EXFULL;
}

/* ---- memory of every kind -------------------------------------------------------------- */

FIXTURE(places)
{
	struct tow_random random;
	struct tow_user user;
	struct tow_place place[TOW_PLACE_KINDS];
};

FIXTURE_SETUP(places)
{
	int i;

	self->random.state = 8642;
	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_user_make(&self->user, ENTRIES, 0));
	for (i = 0; i < TOW_PLACE_KINDS; i++) {
		ASSERT_EQ(0, tow_place_make(self->user.fd, i, &self->random, &self->place[i]));
		ASSERT_EQ(0, tow_place_publish(&self->user, tow_place_name[i], RIGHTS,
					       &self->place[i]));
	}
	ASSERT_EQ(0, copy_up_to(LIMIT));
}

FIXTURE_TEARDOWN(places)
{
	int i;

	EXPECT_EQ(0, copy_up_to(0));
	for (i = 0; i < TOW_PLACE_KINDS; i++)
		free(self->place[i].shadow);
}

/* One way; was as much copied as must be? */
static void move(struct __test_metadata *_metadata, FIXTURE_DATA(places) *self, __u8 opcode,
		 struct tow_place *own, struct tow_place *far, size_t bytes, bool copies)
{
	struct tow_place *from = opcode == TOW_OP_READ ? far : own;
	struct tow_place *to = opcode == TOW_OP_READ ? own : far;
	/* Over a border, at odd places. */
	size_t offset = own->border - bytes / 2 - 3, remote_offset = far->border - bytes / 3 - 8;
	size_t from_at = opcode == TOW_OP_READ ? remote_offset : offset;
	size_t to_at = opcode == TOW_OP_READ ? offset : remote_offset;
	struct tow_sqe sqe = tow_move(&self->user, opcode, own->region, offset, far->remote,
				      remote_offset, bytes);
	uint64_t before = copied();

	tow_place_renew(from, from_at, bytes, &self->random);
	tow_place_expect(to, to_at, from, from_at, bytes);
	ASSERT_EQ(0, tow_rings_do(&self->user.rings, &sqe));
	EXPECT_TRUE(tow_place_good_around(to, to_at, bytes));
	EXPECT_EQ(copies ? bytes : 0, copied() - before);
}

TEST_F(places, byte_for_byte)
{
	static const size_t sizes[] = { 1, 7, 8, 100, 4095, LIMIT };
	struct tow_place *own, *far;
	bool copies;
	size_t i;

	/* Those that are not the same. */
	for (i = 0; i < TOW_PLACE_KINDS * ARRAY_SIZE(sizes) * 2; i++) {
		own = &self->place[i % TOW_PLACE_KINDS];
		far = &self->place[(i + 1 + i % 2) % TOW_PLACE_KINDS];
		copies = own != &self->place[TOW_PLACE_IMPORT] &&
			 far != &self->place[TOW_PLACE_IMPORT];
		move(_metadata, self, TOW_OP_WRITE, own, far,
		     sizes[i / TOW_PLACE_KINDS % ARRAY_SIZE(sizes)], copies);
		move(_metadata, self, TOW_OP_READ, own, far,
		     sizes[i / TOW_PLACE_KINDS % ARRAY_SIZE(sizes)], copies);
	}
	for (i = 0; i < TOW_PLACE_KINDS; i++)
		EXPECT_TRUE(tow_place_good(&self->place[i]));
}

/* As much as the file says, from when it says so. */
TEST_F(places, no_more_than_may_be)
{
	struct tow_place *own = &self->place[TOW_PLACE_LARGE], *far = &self->place[TOW_PLACE_SMALL];

	move(_metadata, self, TOW_OP_WRITE, own, far, LIMIT, true);
	move(_metadata, self, TOW_OP_WRITE, own, far, LIMIT + 1, false);
	ASSERT_EQ(0, copy_up_to(8));
	move(_metadata, self, TOW_OP_WRITE, own, far, 8, true);
	move(_metadata, self, TOW_OP_READ, own, far, 9, false);
	ASSERT_EQ(0, copy_up_to(0));
	move(_metadata, self, TOW_OP_WRITE, own, far, 8, false);
	move(_metadata, self, TOW_OP_READ, own, far, 8, false);
	ASSERT_EQ(0, copy_up_to(64 * TOW_KB));
	move(_metadata, self, TOW_OP_WRITE, own, far, 64 * TOW_KB - 5, true);
	EXPECT_EQ(-ERANGE, copy_up_to(64 * TOW_KB + 1));
	EXPECT_EQ(64 * TOW_KB, tow_sysfs_get("loopback_copy_bytes"));
}

/* What is exported for atomics is the device's alone, also to who only writes. */
TEST_F(places, not_where_atomics_may_be)
{
	struct tow_place *own = &self->place[TOW_PLACE_LARGE], *far = &self->place[TOW_PLACE_SMALL];
	struct tow_place atomic = *far;

	if (!tow_has_atomics(self->user.fd))
		return;
	ASSERT_EQ(0, tow_publish_for(self->user.fd, far->region, "atomic", far->bytes,
				     TOW_ALL_RIGHTS, &atomic.exported));
	ASSERT_EQ(0, tow_find_for(self->user.fd, self->user.peer, "atomic", RIGHTS,
				  &atomic.remote));
	move(_metadata, self, TOW_OP_WRITE, own, &atomic, 8, false);
	move(_metadata, self, TOW_OP_READ, own, &atomic, 8, false);
	ASSERT_EQ(0, tow_find_for(self->user.fd, self->user.peer, "atomic", TOW_ALL_RIGHTS,
				  &atomic.remote));
	move(_metadata, self, TOW_OP_WRITE, own, &atomic, 8, false);
}

/* A peer's numbers count what was copied as anything else. */
TEST_F(places, numbers_of_the_peer)
{
	struct tow_place *own = &self->place[TOW_PLACE_LARGE], *far = &self->place[TOW_PLACE_SMALL];
	uint64_t written = of_peer("bytes_written"), read = of_peer("bytes_read");
	uint64_t operations = of_peer("operations");

	move(_metadata, self, TOW_OP_WRITE, own, far, 100, true);
	move(_metadata, self, TOW_OP_READ, own, far, 30, true);
	EXPECT_EQ(written + 100, of_peer("bytes_written"));
	EXPECT_EQ(read + 30, of_peer("bytes_read"));
	EXPECT_EQ(operations + 2, of_peer("operations"));
}

/* Nor is it idle, which only heartbeats would leave it. */
TEST_F(places, nor_is_the_peer_idle)
{
	struct tow_place *own = &self->place[TOW_PLACE_LARGE], *far = &self->place[TOW_PLACE_SMALL];
	struct tow_peer_info info;
	double begin;

	tow_test_sleep_ms(300);
	begin = tow_test_now();
	move(_metadata, self, TOW_OP_WRITE, own, far, 8, true);
	ASSERT_EQ(0, tow_peer_look(self->user.fd, self->user.peer, &info));
	EXPECT_GE((tow_test_now() - begin) * 1e3 + 50, (double)info.idle_ms);
}

/* With a time-out, too: it is not late, and completes once. */
TEST_F(places, in_time)
{
	struct tow_place *own = &self->place[TOW_PLACE_LARGE], *far = &self->place[TOW_PLACE_SMALL];
	struct tow_sqe sqe = tow_move(&self->user, TOW_OP_WRITE, own->region, 0, far->remote, 0,
				      LIMIT);
	uint64_t before = copied();

	sqe.timeout_ms = TOW_WAIT_MS;
	ASSERT_EQ(0, tow_rings_do(&self->user.rings, &sqe));
	EXPECT_EQ(LIMIT, copied() - before);
	EXPECT_EQ(0, tow_rings_ready(&self->user.rings));
}

/* What must not be is refused as ever, and moves nothing. */
TEST_F(places, errors)
{
	struct tow_place *own = &self->place[TOW_PLACE_LARGE], *far = &self->place[TOW_PLACE_SMALL];
	uint64_t before = copied();
	__u64 only_read, read_only, written_only;
	struct tow_sqe sqe;
	size_t limit;

	ASSERT_EQ(0, tow_publish_for(self->user.fd, far->region, "read", 100, TOW_RIGHT_READ,
				     &read_only));
	ASSERT_EQ(0, tow_find_for(self->user.fd, self->user.peer, "read", TOW_RIGHT_READ,
				  &only_read));
	ASSERT_EQ(0, tow_find_for(self->user.fd, self->user.peer, tow_place_name[TOW_PLACE_SMALL],
				  TOW_RIGHT_WRITE, &written_only));
	for (limit = 0; limit <= LIMIT; limit += LIMIT) {
		ASSERT_EQ(0, copy_up_to(limit));
		sqe = tow_move(&self->user, TOW_OP_WRITE, own->region, 0, only_read, 0, 8);
		EXPECT_EQ(-EACCES, tow_rings_do(&self->user.rings, &sqe));
		sqe = tow_move(&self->user, TOW_OP_READ, own->region, 0, written_only, 0, 8);
		EXPECT_EQ(-EACCES, tow_rings_do(&self->user.rings, &sqe));
		sqe = tow_move(&self->user, TOW_OP_READ, own->region, 0, only_read, 93, 8);
		EXPECT_EQ(-ERANGE, tow_rings_do(&self->user.rings, &sqe));
		sqe = tow_move(&self->user, TOW_OP_READ, own->region, own->mapped.bytes - 7,
			       only_read, 0, 8);
		EXPECT_EQ(-ERANGE, tow_rings_do(&self->user.rings, &sqe));
	}
	EXPECT_EQ(before, copied());
	ASSERT_EQ(0, tow_end_handle(self->user.fd, TOW_IOCTL_UNEXPORT, read_only));
	sqe = tow_move(&self->user, TOW_OP_READ, own->region, 0, only_read, 0, 8);
	EXPECT_EQ(-ESTALE, tow_rings_do(&self->user.rings, &sqe));
	EXPECT_EQ(before, copied());
	EXPECT_TRUE(tow_place_good(own) && tow_place_good(far));
}

/* ---- order and notifications -------------------------------------------------------------- */

FIXTURE(ends)
{
	struct tow_ends ends;
	__u32 epoch;
};

FIXTURE_SETUP(ends)
{
	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_ends_make(&self->ends, ENTRIES, BYTES));
	self->epoch = tow_peer_epoch(self->ends.from.fd, self->ends.from.peer);
	ASSERT_EQ(0, copy_up_to(LIMIT));
}

FIXTURE_TEARDOWN(ends)
{
	EXPECT_EQ(0, copy_up_to(0));
	EXPECT_EQ(self->epoch, tow_peer_epoch(self->ends.from.fd, self->ends.from.peer));
}

static struct tow_sqe step(struct tow_ends *ends, __u8 opcode, size_t offset, size_t bytes)
{
	return opcode == TOW_OP_WRITE_NOTIFY ?
	       tow_write_notify(&ends->from, ends->own.made.handle, offset, ends->remote, offset,
				bytes, ends->found) :
	       tow_move(&ends->from, opcode, ends->own.made.handle, offset, ends->remote, offset,
			bytes);
}

/* Behind a large one that is on its way, or in the same call: it comes second. */
TEST_F(ends, behind_a_large_one)
{
	struct tow_ends *ends = &self->ends;
	char *to = ends->memory.at + TOW_DATA_AT;
	unsigned int i, calls;

	for (i = 0; i < ROUNDS; i++) {
		calls = 1 + i % 2;
		memset(ends->own.at, (int)i, BIG);
		ASSERT_EQ(0, put(&ends->from, step(ends, TOW_OP_WRITE, 0, BIG)));
		if (calls == 2)
			ASSERT_EQ(0, hand_over(&ends->from, 1));
		/* What is at the end of the large one, from elsewhere. */
		memset(ends->own.at + BIG, (int)~i, LIMIT);
		ASSERT_EQ(0, put(&ends->from,
				 tow_move(&ends->from, TOW_OP_WRITE, ends->own.made.handle, BIG,
					  ends->remote, BIG - LIMIT, LIMIT)));
		ASSERT_EQ(0, hand_over(&ends->from, 3 - calls));
		ASSERT_EQ(0, tow_rings_collect(&ends->from.rings, 2));
		ASSERT_EQ(0, memcmp(to, ends->own.at, BIG - LIMIT));
		ASSERT_EQ(0, memcmp(to + BIG - LIMIT, ends->own.at + BIG, LIMIT));
	}
}

/* As many as the window is wide, several times: what is copied takes none of it. */
TEST_F(ends, notified_and_waited_for)
{
	struct tow_ends *ends = &self->ends;
	uint64_t sent = tow_sysfs_get("stats/notifications_sent");
	uint64_t counted = tow_sysfs_get("stats/notifications"), before = copied();
	__u64 number;

	for (number = 1; number <= 3ULL * TOW_NOTIFY_WINDOW; number++) {
		struct tow_sqe sqe = number % 3 ? step(ends, TOW_OP_WRITE_NOTIFY, 0, 8) :
						  tow_notify(&ends->from, ends->found);

		memcpy(ends->own.at, &number, sizeof(number));
		ASSERT_EQ(0, tow_ends_begin_wait(ends, number, 0));
		ASSERT_EQ(0, tow_rings_do(&ends->from.rings, &sqe));
		/* Not a moment later. */
		ASSERT_EQ(number, tow_ends_number(ends));
		ASSERT_EQ(0, tow_ends_end_wait(ends, number));
		if (number % 3)
			ASSERT_EQ(0, memcmp(ends->memory.at + TOW_DATA_AT, &number, 8));
	}
	EXPECT_EQ(3 * TOW_NOTIFY_WINDOW, tow_sysfs_get("stats/notifications_sent") - sent);
	EXPECT_EQ(3 * TOW_NOTIFY_WINDOW, tow_sysfs_get("stats/notifications") - counted);
	EXPECT_EQ(16ULL * TOW_NOTIFY_WINDOW, copied() - before);
}

/* Large and small ones by turns on one slot: each number has its data, none is missing. */
TEST_F(ends, both_on_one_slot)
{
	struct tow_ends *ends = &self->ends;
	const char *to = ends->memory.at + TOW_DATA_AT;
	struct tow_random random = { 97531 };
	unsigned int i, round, count, at;
	size_t bytes[ENTRIES / 2];
	__u64 number = 0;

	for (round = 0; round < ROUNDS; round++) {
		count = 1 + (unsigned int)tow_random_below(&random, ARRAY_SIZE(bytes));
		memset(ends->own.at, (int)round, BYTES);
		for (i = 0, at = 0; i < count; i++, at += TOW_SMALL_SLAB / 8) {
			bytes[i] = tow_random(&random) % 2 ? 8 : LIMIT + 8;
			ASSERT_EQ(0, put(&ends->from,
					 step(ends, TOW_OP_WRITE_NOTIFY, at, bytes[i])));
			if (tow_random(&random) % 4 == 0)
				ASSERT_LE(0, tow_rings_enter(&ends->from.rings, 0, 0));
		}
		ASSERT_LE(0, tow_rings_enter(&ends->from.rings, 0, 0));
		for (i = 0, at = 0; i < count; i++, at += TOW_SMALL_SLAB / 8) {
			ASSERT_LE(++number, tow_slot_await(tow_ends_word(ends), number));
			ASSERT_EQ(0, memcmp(to + at, ends->own.at + at, bytes[i]));
		}
		ASSERT_EQ(0, tow_rings_collect(&ends->from.rings, count));
		ASSERT_EQ(number, tow_ends_number(ends));
	}
}

/* Two queues notify one slot: no number comes before the data of those before it. */
TEST_F(ends, not_ahead_of_another_queue)
{
	struct tow_ends *ends = &self->ends;
	const char *to = ends->memory.at + TOW_DATA_AT;
	struct tow_user second = ends->from;
	struct tow_channel_open channel;
	struct tow_sqe sqe;
	unsigned int i;

	ASSERT_EQ(0, tow_rings_make(ends->from.fd, ENTRIES, 0, &second.rings));
	ASSERT_EQ(0, tow_channel_open(second.rings.made.fd, second.peer, 0, &channel));
	second.channel = (__u16)channel.channel;
	for (i = 0; i < ROUNDS; i++) {
		memset(ends->own.at, (int)i + 1, BIG);
		ASSERT_EQ(0, put(&ends->from, step(ends, TOW_OP_WRITE_NOTIFY, 0, BIG)));
		ASSERT_EQ(0, hand_over(&ends->from, 1));
		sqe = tow_notify(&second, ends->found);
		ASSERT_EQ(0, put(&second, sqe));
		ASSERT_EQ(0, hand_over(&second, 1));
		ASSERT_EQ(2 * i + 2, tow_slot_await(tow_ends_word(ends), 2 * i + 2));
		ASSERT_EQ(0, memcmp(to, ends->own.at, BIG));
		ASSERT_EQ(0, tow_rings_collect(&ends->from.rings, 1));
		ASSERT_EQ(0, tow_rings_collect(&second.rings, 1));
	}
	tow_rings_end(&second.rings);
}

/* ---- the end ---------------------------------------------------------------------------- */

struct writer {
	struct tow_ends *ends;
	__u8 opcode;
	unsigned int done;
	int status;
	pthread_t thread;
};

/* One after the other until it fails. */
static void *write_all_the_time(void *arg)
{
	struct writer *writer = arg;
	struct tow_sqe sqe = step(writer->ends, writer->opcode, 0, LIMIT);

	do {
		writer->status = tow_rings_do(&writer->ends->from.rings, &sqe);
		__atomic_add_fetch(&writer->done, 1, __ATOMIC_RELAXED);
	} while (!writer->status);
	return NULL;
}

static int writer_begin(struct writer *writer, struct tow_ends *ends, __u8 opcode)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);

	*writer = (struct writer) { .ends = ends, .opcode = opcode };
	if (pthread_create(&writer->thread, NULL, write_all_the_time, writer))
		return -EAGAIN;
	while (__atomic_load_n(&writer->done, __ATOMIC_RELAXED) < 10)
		if (!tow_patient(&patience))
			return -ETIMEDOUT;
	return 0;
}

/* Once UNEXPORT has returned no byte changes, and the connection stays. */
TEST_F(ends, revoked_in_the_middle)
{
	uint64_t late = tow_sysfs_get("stats/revokes_late"), before;
	struct tow_ends *ends = &self->ends;
	char *to = ends->memory.at + TOW_DATA_AT;
	struct writer writer;
	unsigned int i;

	tow_fill(ends->own.at, BYTES, 77);
	for (i = 0; i < REVOKES; i++) {
		before = copied();
		ASSERT_EQ(0, writer_begin(&writer, ends, i % 2 ? TOW_OP_WRITE :
							  TOW_OP_WRITE_NOTIFY));
		ASSERT_EQ(0, tow_end_handle(ends->to.fd, TOW_IOCTL_UNEXPORT, ends->data));
		tow_fill(to, BYTES, 99);
		pthread_join(writer.thread, NULL);
		EXPECT_EQ(-ESTALE, writer.status);
		EXPECT_EQ(0, tow_differs(to, BYTES, 99));
		EXPECT_LE(LIMIT * 9, copied() - before);
		ASSERT_EQ(0, tow_mapped_end(&ends->own));
		ASSERT_EQ(0, tow_mapped_end(&ends->memory));
		tow_ends_end(ends);
		ASSERT_EQ(0, tow_ends_make(ends, ENTRIES, BYTES));
		tow_fill(ends->own.at, BYTES, 77);
		to = ends->memory.at + TOW_DATA_AT;
	}
	EXPECT_EQ(late, tow_sysfs_get("stats/revokes_late"));
}

/* The connection ends, which nobody waits for: the memory can be another's at once. */
TEST_F(ends, disconnected_in_the_middle)
{
	struct tow_ends *ends = &self->ends;
	struct writer writer;
	unsigned int i;

	for (i = 0; i < REVOKES; i++) {
		tow_fill(ends->own.at, BYTES, 77);
		ASSERT_EQ(0, writer_begin(&writer, ends, TOW_OP_WRITE));
		ASSERT_EQ(0, tow_disconnect(ends->to.fd, ends->to.peer));
		ASSERT_EQ(0, tow_end_handle(ends->to.fd, TOW_IOCTL_UNEXPORT, ends->data));
		tow_fill(ends->memory.at + TOW_DATA_AT, BYTES, 99);
		pthread_join(writer.thread, NULL);
		EXPECT_TRUE(writer.status == -ESTALE || writer.status == -ECONNRESET)
			TH_LOG("%s", strerror(-writer.status));
		EXPECT_EQ(0, tow_differs(ends->memory.at + TOW_DATA_AT, BYTES, 99));
		ASSERT_EQ(0, tow_mapped_end(&ends->own));
		ASSERT_EQ(0, tow_mapped_end(&ends->memory));
		tow_ends_end(ends);
		ASSERT_EQ(0, tow_ends_make(ends, ENTRIES, BYTES));
	}
	self->epoch = tow_peer_epoch(ends->from.fd, ends->from.peer);
}

TEST_HARNESS_MAIN
