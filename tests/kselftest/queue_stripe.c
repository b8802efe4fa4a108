// SPDX-License-Identifier: GPL-2.0
/*
 * Large operations that go by several queue pairs at once: every byte is where it must
 * be, and nobody can tell by the order.
 *
 * "stripe_bytes" is small here, so that much is striped in little time.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include "tow_notify.h"

#define POOL_BYTES	(24 * TOW_SLAB)
#define RANGE_BYTES	(9 * TOW_SLAB)
#define WORK_BYTES	(3 * TOW_SLAB)	/* of it, for the cases with many */
#define ENTRIES		64U
#define STRIPE		(128 * TOW_KB)
#define RIGHTS		(TOW_RIGHT_READ | TOW_RIGHT_WRITE)

/* One operation, for the cases with many. */
#define PIECE		(384 * TOW_KB)

FIXTURE(stripe)
{
	struct tow_knobs before;
	struct tow_user user;
	struct tow_mapped own, target;
	__u64 exported;
	__u64 remote;
	__u64 alias;			/* the same memory, found by another name */
	uint64_t striped, parts;	/* so far */
};

static int publish(FIXTURE_DATA(stripe) *self)
{
	int ret = tow_publish_for(self->user.fd, self->target.made.handle, "range", RANGE_BYTES,
				  RIGHTS, &self->exported);

	return ret ? ret : tow_find_for(self->user.fd, self->user.peer, "range", RIGHTS,
					&self->remote);
}

FIXTURE_SETUP(stripe)
{
	__u64 exported;

	tow_knobs_save(&self->before);
	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_sysfs_set("stripe_bytes", STRIPE));
	ASSERT_EQ(0, tow_user_make(&self->user, ENTRIES, 0));
	ASSERT_EQ(0, tow_mapped_make(self->user.fd, RANGE_BYTES, &self->own));
	ASSERT_EQ(0, tow_mapped_make(self->user.fd, RANGE_BYTES, &self->target));
	ASSERT_EQ(0, publish(self));
	ASSERT_EQ(0, tow_publish_for(self->user.fd, self->target.made.handle, "alias", RANGE_BYTES,
				     RIGHTS, &exported));
	ASSERT_EQ(0, tow_find_for(self->user.fd, self->user.peer, "alias", RIGHTS, &self->alias));
	self->striped = tow_sysfs_get("stats/striped");
	self->parts = tow_sysfs_get("stats/striped_parts");
}

FIXTURE_TEARDOWN_PARENT(stripe)
{
	EXPECT_EQ(0, tow_knobs_restore(&self->before));
}

/* Since the last time. */
static uint64_t striped_now(FIXTURE_DATA(stripe) *self, uint64_t *parts)
{
	uint64_t striped = tow_sysfs_get("stats/striped") - self->striped;

	*parts = tow_sysfs_get("stats/striped_parts") - self->parts;
	self->striped += striped;
	self->parts += *parts;
	return striped;
}

static struct tow_sqe move(const FIXTURE_DATA(stripe) *self, __u8 opcode, size_t offset,
			   size_t remote_offset, size_t bytes)
{
	return tow_move(&self->user, opcode, self->own.made.handle, offset, self->remote,
			remote_offset, bytes);
}

/* One call for all that was filled in, and each has succeeded: 0 or the first error. */
static int do_all(struct tow_rings *rings, unsigned int count)
{
	struct tow_cqe cqe;
	int ret = tow_rings_enter(rings, count, TOW_LONG_US);
	int first = ret < 0 ? ret : 0;
	unsigned int i;

	for (i = 0; i < count && !first; i++) {
		first = tow_rings_wait(rings, &cqe);
		if (!first)
			first = cqe.status;
	}
	return first;
}

static void put(struct __test_metadata *_metadata, FIXTURE_DATA(stripe) *self, struct tow_sqe sqe)
{
	ASSERT_TRUE(tow_rings_put(&self->user.rings, &sqe));
}

/* ---- every byte ------------------------------------------------------------------------ */

FIXTURE_VARIANT(stripe)
{
	__u8 opcode;
};

FIXTURE_VARIANT_ADD(stripe, write) { .opcode = TOW_OP_WRITE };
FIXTURE_VARIANT_ADD(stripe, read) { .opcode = TOW_OP_READ };

static const struct extent {
	size_t offset, remote_offset, bytes;
	bool striped;
} extents[] = {
	{ 0, 0, STRIPE - 1, false },
	{ 0, 0, STRIPE, true },
	{ 0, 0, STRIPE + 1, true },
	{ 4096, 64 * TOW_KB, STRIPE + 4096, true },
	{ 13, 4099, 5 * STRIPE + 77, true },
	/* Over the borders of slabs, at places that differ. */
	{ TOW_SLAB - 1, 2 * TOW_SLAB - 100 * TOW_KB, STRIPE + 3, true },
	{ TOW_SLAB - 300 * TOW_KB - 8, 5, 3 * TOW_SLAB + 1, true },
	{ 4097, 1, 16 * TOW_MB, true },
};

/* The bytes around it stay. */
#define AROUND	64U

static void move_extent(struct __test_metadata *_metadata, FIXTURE_DATA(stripe) *self,
			__u8 opcode, const struct extent *extent)
{
	bool write = opcode == TOW_OP_WRITE;
	char *from = write ? self->own.at + extent->offset :
			     self->target.at + extent->remote_offset;
	char *to = write ? self->target.at + extent->remote_offset :
			   self->own.at + extent->offset;
	size_t before = (size_t)(to - (write ? self->target.at : self->own.at));
	struct tow_sqe sqe = move(self, opcode, extent->offset, extent->remote_offset,
				  extent->bytes);

	before = before < AROUND ? before : AROUND;
	memset(to - before, 0, before + extent->bytes + AROUND);
	ASSERT_EQ(0, tow_rings_do(&self->user.rings, &sqe));
	EXPECT_EQ(0, memcmp(from, to, extent->bytes));
	EXPECT_TRUE(tow_is_zero(to - before, before));
	EXPECT_TRUE(tow_is_zero(to + extent->bytes, AROUND));
}

/*
 * Nobody else keeps the other queue pairs busy; but who sends the parts out may have to
 * wait for a processor, and the first queue pair has taken all by then.
 */
#define TRIES	8

TEST_F_TIMEOUT(stripe, every_byte, 120)
{
	const struct extent *extent;
	struct tow_patience patience;
	unsigned int tries;
	uint64_t parts;
	size_t i;

	tow_fill((variant->opcode == TOW_OP_WRITE ? self->own : self->target).at, RANGE_BYTES, 1);
	for (i = 0; i < ARRAY_SIZE(extents); i++) {
		extent = &extents[i];
		patience = tow_patience(TOW_SETTLE_SECONDS);
		for (parts = 0, tries = 0;
		     !parts && (tries < TRIES || tow_patient(&patience)); tries++) {
			move_extent(_metadata, self, variant->opcode, extent);
			EXPECT_EQ(extent->striped, striped_now(self, &parts))
				TH_LOG("extent %zu", i);
			EXPECT_GE(3, parts);
			if (!extent->striped)
				break;
		}
		EXPECT_EQ(extent->striped, parts > 0)
			TH_LOG("extent %zu", i);
	}
}

TEST_F_TIMEOUT(stripe, never, 60)
{
	const struct extent extent = { 13, 4099, 4 * TOW_MB, false };
	uint64_t parts;

	ASSERT_EQ(0, tow_sysfs_set("stripe_bytes", 0));
	tow_fill(self->own.at, WORK_BYTES, 3);
	tow_fill(self->target.at, WORK_BYTES, 4);
	move_extent(_metadata, self, variant->opcode, &extent);
	EXPECT_EQ(0, striped_now(self, &parts));
}

/* Connect anew, by what the knobs say now. */
static int reconnect(FIXTURE_DATA(stripe) *self)
{
	int ret = tow_disconnect(self->user.fd, self->user.peer);

	if (!ret)
		ret = tow_connect_self(self->user.fd, &self->user.peer);
	if (!ret)
		ret = tow_end_handle(self->user.fd, TOW_IOCTL_UNEXPORT, self->exported);
	return ret ? ret : publish(self);
}

/* How often the device has sent again; -1: it does not say. */
static long sent_again(void)
{
	char path[PATH_MAX], line[32];

	snprintf(path, sizeof(path),
		 "/sys/class/infiniband/%s/ports/1/hw_counters/completer_retry_err",
		 tow_test_device());
	tow_test_read_line(path, line, sizeof(line));
	return line[0] ? strtol(line, NULL, 10) : -1;
}

/*
 * An acknowledgement may take longer than "timeout" (8 us here: one tick), as nothing is
 * lost on the way to oneself.  What is sent again is of the control queue pair.
 */
TEST_F_TIMEOUT(stripe, not_sent_again, 60)
{
	const struct extent extent = { 0, 0, WORK_BYTES, true };
	long before, again = LONG_MAX;
	unsigned int tries;

	ASSERT_EQ(0, tow_sysfs_set("timeout", 1));
	/* The control queue pair is to say nothing meanwhile. */
	ASSERT_EQ(0, tow_sysfs_set("heartbeat_ms", 60000));
	ASSERT_EQ(0, reconnect(self));
	tow_fill(self->own.at, WORK_BYTES, 3);
	tow_fill(self->target.at, WORK_BYTES, 4);
	/* A machine that is busy with others may hold up the control queue pair's, too. */
	for (tries = 0; tries < 3 && again >= 4; tries++) {
		before = sent_again();
		ASSERT_LE(0, before);
		move_extent(_metadata, self, variant->opcode, &extent);
		again = sent_again() - before;
	}
	EXPECT_GT(4, again);
}

/* The connection has one queue pair, and later four again. */
TEST_F_TIMEOUT(stripe, one_queue_pair, 60)
{
	const struct extent extent = { 13, 4099, 4 * TOW_MB, false };
	const unsigned int qps[] = { 1, 4 };
	unsigned int tries;
	uint64_t parts;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(qps); i++) {
		ASSERT_EQ(0, tow_sysfs_set("qps_per_peer", qps[i]));
		ASSERT_EQ(0, reconnect(self));
		for (parts = 0, tries = 0; !parts && tries < (qps[i] > 1 ? TRIES : 1); tries++) {
			tow_fill(self->own.at, WORK_BYTES, 3);
			tow_fill(self->target.at, WORK_BYTES, 4);
			move_extent(_metadata, self, variant->opcode, &extent);
			EXPECT_EQ(qps[i] > 1, striped_now(self, &parts));
		}
		EXPECT_EQ(qps[i] > 1, parts > 0);
	}
}

/* Whoever turns the knob meanwhile. */
static void *turn(void *arg)
{
	static const uint64_t sizes[] = { 0, STRIPE, TOW_MB, 1, 4 * TOW_MB };
	const bool *stop = arg;
	unsigned int i;
	int ret = 0;

	for (i = 0; !ret && !__atomic_load_n(stop, __ATOMIC_RELAXED); i++) {
		ret = tow_sysfs_set("stripe_bytes", sizes[i % ARRAY_SIZE(sizes)]);
		tow_test_sleep_ms(3);
	}
	return (void *)(intptr_t)ret;
}

TEST_F_TIMEOUT(stripe, while_the_knob_is_turned, 120)
{
	const unsigned int rounds = tow_test_slow() ? 2 : 3, count = WORK_BYTES / PIECE;
	pthread_t thread;
	bool stop = false;
	unsigned int round, i;
	void *said;

	ASSERT_EQ(0, pthread_create(&thread, NULL, turn, &stop));
	for (round = 1; round <= rounds; round++) {
		tow_fill(self->own.at, WORK_BYTES, round);
		tow_fill(self->target.at, WORK_BYTES, round + 100);
		for (i = 0; i < count; i++)
			put(_metadata, self, move(self, variant->opcode, i * PIECE,
						  (count - 1 - i) * PIECE, PIECE));
		ASSERT_EQ(0, do_all(&self->user.rings, count));
		for (i = 0; i < count; i++)
			EXPECT_EQ(0, memcmp(self->own.at + i * PIECE,
					    self->target.at + (count - 1 - i) * PIECE, PIECE));
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	ASSERT_EQ(0, pthread_join(thread, &said));
	EXPECT_EQ(NULL, said);
}

/* ---- order ------------------------------------------------------------------------------- */

/* Where small ones go, in a large one: all over it. */
#define SPOTS	6U

static size_t spot(unsigned int i)
{
	return i * (PIECE / SPOTS) + PIECE / SPOTS - 16;
}

static void set_word(char *at, uint64_t value)
{
	memcpy(at, &value, sizeof(value));
}

static uint64_t word(const char *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

/* Small ones, then a large one over them, then small ones over that; until some had parts. */
TEST_F_TIMEOUT(stripe, small_large_small, 120)
{
	const unsigned int rounds = tow_test_slow() ? 5 : 30;
	const size_t small = PIECE + 4096;	/* of our region: what the small ones write */
	uint64_t before = self->parts, parts;
	unsigned int round, i;

	if (variant->opcode != TOW_OP_WRITE)
		return;
	for (round = 1; round <= rounds || (round <= rounds + TRIES &&
	     tow_sysfs_get("stats/striped_parts") == before); round++) {
		tow_fill(self->own.at, PIECE, round);
		set_word(self->own.at + small, ~(uint64_t)round);
		set_word(self->own.at + small + 8, round);
		for (i = 0; i < SPOTS; i++)
			put(_metadata, self, move(self, TOW_OP_WRITE, small, spot(i), 8));
		put(_metadata, self, move(self, TOW_OP_WRITE, 0, 0, PIECE));
		for (i = 0; i < SPOTS; i++) {
			struct tow_sqe sqe = move(self, TOW_OP_WRITE, small + 8, spot(i) + 8, 8);

			/* By the same range, or by another one of the same memory. */
			sqe.remote = round % 2 ? self->remote : self->alias;
			put(_metadata, self, sqe);
		}
		ASSERT_EQ(0, do_all(&self->user.rings, 2 * SPOTS + 1));
		for (i = 0; i < SPOTS; i++) {
			EXPECT_EQ(word(self->own.at + spot(i)), word(self->target.at + spot(i)))
				TH_LOG("round %u: an earlier write came later", round);
			EXPECT_EQ(round, word(self->target.at + spot(i) + 8))
				TH_LOG("round %u: a later write came earlier", round);
		}
	}
	EXPECT_EQ(round - 1, striped_now(self, &parts));
	EXPECT_LT(0, parts);
}

/* A large read sees the small writes before it, a small read the large write before it. */
TEST_F_TIMEOUT(stripe, reads_see_writes_before, 120)
{
	const unsigned int rounds = tow_test_slow() ? 5 : 30;
	const size_t small = 2 * PIECE;		/* of our region */
	unsigned int round, i;

	for (round = 1; round <= rounds; round++) {
		bool large_read = variant->opcode == TOW_OP_READ;
		size_t at = PIECE;		/* of our region: the large one */
		char *read = self->own.at + small + 8;

		tow_fill(self->own.at + at, PIECE, round);
		set_word(self->own.at + small, round);
		if (!large_read)
			put(_metadata, self, move(self, TOW_OP_WRITE, at, 0, PIECE));
		for (i = 0; i < SPOTS; i++)
			put(_metadata, self,
			    large_read ? move(self, TOW_OP_WRITE, small, spot(i), 8) :
					 move(self, TOW_OP_READ, small + (i + 1ULL) * 8, spot(i),
					      8));
		if (large_read)
			put(_metadata, self, move(self, TOW_OP_READ, at, 0, PIECE));
		ASSERT_EQ(0, do_all(&self->user.rings, SPOTS + 1));
		for (i = 0; i < SPOTS; i++)
			EXPECT_EQ(large_read ? round : word(self->own.at + at + spot(i)),
				  word(large_read ? self->own.at + at + spot(i) :
						    read + (size_t)8 * i))
				TH_LOG("round %u, spot %u", round, i);
	}
}

/* A large write sends what was there before a read behind it puts something there. */
TEST_F_TIMEOUT(stripe, a_read_to_where_a_write_is_from, 120)
{
	const unsigned int rounds = tow_test_slow() ? 5 : 30;
	const size_t away = 4 * TOW_SLAB;	/* of the target: what is read */
	unsigned int round, i;

	if (variant->opcode != TOW_OP_READ)
		return;
	for (round = 1; round <= rounds; round++) {
		tow_fill(self->own.at, PIECE, round);
		set_word(self->target.at + away, ~(uint64_t)round);
		put(_metadata, self, move(self, TOW_OP_WRITE, 0, 0, PIECE));
		for (i = 0; i < SPOTS; i++)
			put(_metadata, self, move(self, TOW_OP_READ, spot(i), away, 8));
		ASSERT_EQ(0, do_all(&self->user.rings, SPOTS + 1));
		EXPECT_EQ(0, tow_differs(self->target.at, PIECE, round));
		for (i = 0; i < SPOTS; i++)
			EXPECT_EQ(~(uint64_t)round, word(self->own.at + spot(i)));
	}
}

/* Large ones, one over the other: the last one is what is left. */
TEST_F_TIMEOUT(stripe, large_over_large, 120)
{
	const unsigned int rounds = tow_test_slow() ? 2 : 5, deep = 8;
	bool write = variant->opcode == TOW_OP_WRITE;
	char *from = write ? self->own.at : self->target.at;
	char *to = write ? self->target.at : self->own.at;
	unsigned int round, i;

	for (i = 0; i < deep; i++)
		tow_fill(from + i * PIECE, PIECE, i);
	for (round = 0; round < rounds; round++) {
		for (i = 0; i < deep; i++) {
			size_t place = (i * 3 + round) % deep * PIECE;

			put(_metadata, self, move(self, variant->opcode, write ? place : 0,
						  write ? 0 : place, PIECE));
		}
		ASSERT_EQ(0, do_all(&self->user.rings, deep));
		EXPECT_EQ(0, tow_differs(to, PIECE, ((deep - 1) * 3 + round) % deep))
			TH_LOG("round %u", round);
	}
}

/* ---- ends ----------------------------------------------------------------------------------- */

#define MANY	48U

/* Much that is striped, and not over yet. */
static int submit_many(struct tow_user *user, __u8 opcode, __u64 region, __u64 remote)
{
	const size_t places = WORK_BYTES / PIECE;
	unsigned int i;

	for (i = 0; i < MANY; i++) {
		size_t here = i % places, there = (size_t)i * 7 % places;
		struct tow_sqe sqe = tow_move(user, opcode, region, here * PIECE, remote,
					      there * PIECE, PIECE);

		sqe.user_data = i;
		if (!tow_rings_put(&user->rings, &sqe))
			return -EXFULL;
	}
	return tow_rings_enter(&user->rings, 0, 0) == (int)MANY ? 0 : -EXFULL;
}

/* Each has ended once: how many did not succeed; all of those with one of two errors. */
static unsigned int count_failed(struct __test_metadata *_metadata, struct tow_rings *rings,
				 int one, int other)
{
	unsigned char seen[MANY] = { 0 };
	struct tow_cqe cqe = { .user_data = MANY };
	unsigned int failed = 0, i;

	for (i = 0; i < MANY; i++) {
		EXPECT_EQ(0, tow_rings_wait(rings, &cqe));
		EXPECT_GT(MANY, cqe.user_data);
		EXPECT_EQ(0, seen[cqe.user_data % MANY]++);
		EXPECT_TRUE(!cqe.status || cqe.status == one || cqe.status == other)
			TH_LOG("entry %llu: %s", cqe.user_data, strerror(-cqe.status));
		failed += cqe.status != 0;
	}
	EXPECT_EQ(0, tow_rings_ready(rings));
	return failed;
}

/* The connection stays, and not a byte changes once UNEXPORT is over. */
TEST_F_TIMEOUT(stripe, revoked_in_the_middle, 120)
{
	const unsigned int rounds = tow_test_slow() ? 2 : 3;
	__u32 epoch = tow_peer_epoch(self->user.fd, self->user.peer);
	uint64_t late = tow_sysfs_get("stats/revokes_late"), parts;
	unsigned int round, failed = 0;

	/* This thread may wait for a processor until all has ended. */
	for (round = 0; round < rounds || (!failed && round < TRIES); round++) {
		tow_fill(self->own.at, WORK_BYTES, 77);
		ASSERT_EQ(0, submit_many(&self->user, variant->opcode, self->own.made.handle,
					 self->remote));
		/* Not always as early. */
		tow_test_sleep_ms((long)(round % 3) * 5);
		ASSERT_EQ(0, tow_end_handle(self->user.fd, TOW_IOCTL_UNEXPORT, self->exported));
		tow_fill(self->target.at, WORK_BYTES, 99);
		failed += count_failed(_metadata, &self->user.rings, -ESTALE, -ESTALE);
		EXPECT_EQ(0, tow_differs(self->target.at, WORK_BYTES, 99));
		ASSERT_EQ(0, publish(self));
	}
	EXPECT_LT(0, failed);
	EXPECT_LT(0, striped_now(self, &parts));
	EXPECT_EQ(epoch, tow_peer_epoch(self->user.fd, self->user.peer));
	EXPECT_EQ(late, tow_sysfs_get("stats/revokes_late"));
}

/* All queue pairs break; the next connection is as good. */
TEST_F_TIMEOUT(stripe, cut_off_in_the_middle, 120)
{
	const unsigned int rounds = tow_test_slow() ? 1 : 2;
	unsigned int round, failed = 0;
	struct tow_sqe sqe;

	for (round = 0; round < rounds || (!failed && round < TRIES); round++) {
		ASSERT_EQ(0, submit_many(&self->user, variant->opcode, self->own.made.handle,
					 self->remote));
		tow_test_sleep_ms((long)(round % 3) * 5);
		ASSERT_EQ(0, tow_disconnect(self->user.fd, self->user.peer));
		failed += count_failed(_metadata, &self->user.rings, -ESTALE, -ECONNRESET);
		ASSERT_EQ(0, tow_connect_self(self->user.fd, &self->user.peer));
		ASSERT_EQ(0, tow_end_handle(self->user.fd, TOW_IOCTL_UNEXPORT, self->exported));
		ASSERT_EQ(0, publish(self));
		tow_fill(self->own.at, WORK_BYTES, round);
		tow_fill(self->target.at, WORK_BYTES, round);
		sqe = move(self, variant->opcode, 0, 0, PIECE);
		ASSERT_EQ(0, tow_rings_do(&self->user.rings, &sqe));
		EXPECT_EQ(0, tow_differs(self->own.at, WORK_BYTES, round));
		EXPECT_EQ(0, tow_differs(self->target.at, WORK_BYTES, round));
	}
	EXPECT_LT(0, failed);
}

/*
 * Submits much, and is killed, or closes the queue and waits for that.  -ENOMSG: nothing
 * was left in the middle.
 */
static int be_ended(__u8 opcode, bool killed)
{
	struct tow_mapped own;
	struct tow_user user;
	__u64 remote;
	int ret = tow_user_make(&user, ENTRIES, 0);

	if (!ret)
		ret = tow_mapped_make(user.fd, 4 * TOW_SLAB, &own);
	if (!ret)
		ret = tow_find_for(user.fd, user.peer, "range", RIGHTS, &remote);
	for (unsigned int i = 0; !ret && i < MANY; i++) {
		struct tow_sqe sqe = tow_move(&user, opcode, own.made.handle, 0, remote,
					      i % 4 * TOW_SLAB, 3 * TOW_SLAB);

		ret = tow_rings_put(&user.rings, &sqe) ? 0 : -EXFULL;
	}
	if (!ret)
		ret = tow_rings_enter(&user.rings, 0, 0) == (int)MANY ? 0 : -EXFULL;
	if (!ret && tow_rings_ready(&user.rings) == MANY)
		ret = -ENOMSG;
	if (!ret && killed)
		raise(SIGKILL);
	tow_rings_end(&user.rings);
	return ret;
}

#define WAS_OVER	W_EXITCODE(ENOMSG, 0)

/* What its owner left in the middle ends, and the connection stays. */
TEST_F_TIMEOUT(stripe, whose_owner_has_gone, 120)
{
	const unsigned int rounds = 2;
	__u32 epoch = tow_peer_epoch(self->user.fd, self->user.peer);
	uint64_t used = tow_sysfs_get("pool_used_bytes");
	struct tow_sqe sqe = move(self, variant->opcode, 0, 0, PIECE);
	unsigned int round, tries;
	int status;
	pid_t pid;

	for (round = 0; round < rounds; round++) {
		for (tries = 0, status = WAS_OVER; tries < TRIES && status == WAS_OVER; tries++) {
			pid = fork();
			if (!pid)
				_exit(-be_ended(variant->opcode, round % 2));
			ASSERT_LT(0, pid);
			ASSERT_EQ(pid, waitpid(pid, &status, 0));
		}
		EXPECT_EQ(round % 2, WIFSIGNALED(status));
		EXPECT_TRUE(round % 2 || !status);
		EXPECT_EQ(1, tow_sysfs_wait("stats/queues", 1));
		EXPECT_EQ(used, tow_sysfs_wait("pool_used_bytes", used));
	}
	EXPECT_EQ(0, tow_rings_do(&self->user.rings, &sqe));
	EXPECT_EQ(epoch, tow_peer_epoch(self->user.fd, self->user.peer));
}

/* ---- notification ------------------------------------------------------------------------------ */

#define PLACES	4U

/* Who notifies: with the data, or by an entry of its own behind that. */
FIXTURE(told)
{
	struct tow_knobs before;
	struct tow_ends ends;
	__u64 count;
	__u64 wrong;
	__u64 checked;
	bool stop;
};

FIXTURE_VARIANT(told)
{
	bool apart;
};

FIXTURE_VARIANT_ADD(told, together) { .apart = false };
FIXTURE_VARIANT_ADD(told, apart) { .apart = true };

FIXTURE_SETUP(told)
{
	tow_knobs_save(&self->before);
	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_sysfs_set("stripe_bytes", STRIPE));
	ASSERT_EQ(0, tow_ends_make(&self->ends, ENTRIES, PLACES * PIECE));
	self->count = tow_test_slow() ? 15 : 40;
	self->wrong = 0;
	self->checked = 0;
	self->stop = false;
}

FIXTURE_TEARDOWN_PARENT(told)
{
	EXPECT_EQ(0, tow_knobs_restore(&self->before));
}

static void *check_told(void *arg)
{
	FIXTURE_DATA(told) *self = arg;
	__u64 seen = 0;

	while (seen < self->count && !__atomic_load_n(&self->stop, __ATOMIC_RELAXED)) {
		if (tow_ends_number(&self->ends) == seen) {
			tow_test_sleep_ms(1);
			continue;
		}
		seen++;
		self->wrong += tow_differs(self->ends.memory.at + TOW_DATA_AT +
					   seen % PLACES * PIECE, PIECE, seen) != 0;
		__atomic_store_n(&self->checked, seen, __ATOMIC_RELEASE);
	}
	return NULL;
}

static int tell(FIXTURE_DATA(told) *self, __u64 number, bool apart)
{
	struct tow_ends *ends = &self->ends;
	size_t at = number % PLACES * PIECE;
	struct tow_sqe sqe = tow_write_notify(&ends->from, ends->own.made.handle, at, ends->remote,
					      at, PIECE, ends->found);
	struct tow_sqe notify = tow_notify(&ends->from, ends->found);

	tow_fill(ends->own.at + at, PIECE, number);
	if (apart) {
		sqe.opcode = TOW_OP_WRITE;
		sqe.operand = 0;
		sqe.flags = TOW_SQE_SILENT;
	}
	if (!tow_rings_put(&ends->from.rings, &sqe) ||
	    (apart && !tow_rings_put(&ends->from.rings, &notify)))
		return -EXFULL;
	return tow_rings_enter(&ends->from.rings, 0, 0) == 1 + apart ? 0 : -EXFULL;
}

/* Two at a time, so that one is behind the other's parts. */
TEST_F_TIMEOUT(told, all_is_there, 120)
{
	uint64_t striped = tow_sysfs_get("stats/striped");
	struct tow_patience patience = tow_patience(100);
	struct tow_cqe cqe;
	pthread_t thread;
	__u64 next = 1, ended = 0;

	ASSERT_EQ(0, pthread_create(&thread, NULL, check_told, self));
	while (ended < self->count && tow_patient(&patience)) {
		while (next <= self->count && next <= ended + 2 &&
		       next <= __atomic_load_n(&self->checked, __ATOMIC_ACQUIRE) + PLACES - 1)
			ASSERT_EQ(0, tell(self, next++, variant->apart));
		if (next - 1 == ended) {
			tow_test_sleep_ms(1);
			continue;
		}
		ASSERT_EQ(0, tow_rings_wait(&self->ends.from.rings, &cqe));
		ASSERT_EQ(0, cqe.status);
		ended++;
	}
	EXPECT_EQ(self->count, tow_slot_await(tow_ends_word(&self->ends), self->count));
	while (__atomic_load_n(&self->checked, __ATOMIC_ACQUIRE) < self->count &&
	       tow_patient(&patience))
		tow_test_sleep_ms(1);
	__atomic_store_n(&self->stop, true, __ATOMIC_RELAXED);
	ASSERT_EQ(0, pthread_join(thread, NULL));
	EXPECT_EQ(self->count, self->checked);
	EXPECT_EQ(0, self->wrong);
	EXPECT_EQ(self->count, tow_ends_number(&self->ends));
	EXPECT_LE(self->count, tow_sysfs_get("stats/striped") - striped);
}

TEST_HARNESS_MAIN
