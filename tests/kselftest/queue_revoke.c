// SPDX-License-Identifier: GPL-2.0
/*
 * An export ends while others write to it, and read, as much as they can: UNEXPORT
 * does not wait for what has not begun; what is on its way ends before it returns,
 * and from then on no byte changes; the connection stays.
 */
#include <pthread.h>
#include "tow_halt.h"
#include "tow_queue.h"

#define POOL_BYTES	(12 * TOW_SLAB)
#define RANGE_BYTES	(2 * TOW_SLAB)
#define ENTRIES		64U
#define PIECE		(256 * TOW_KB)
#define RESOLVERS	2
#define ROUNDS		4
/* So many at most, until one has shown what a machine that is busy with others may hide. */
#define TRIES		8
/* 4.096 us * 2^18, after which an ACK to one's own node is missed; and the next one. */
#define ACK_SECONDS	(2 * 1.074)

FIXTURE(revoke)
{
	int owner;
	struct tow_mapped range;
	struct resolver {
		struct tow_user user;
		struct tow_mapped own;
	} resolvers[RESOLVERS];
};

FIXTURE_SETUP(revoke)
{
	int i;

	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	self->owner = tow_test_open(O_RDWR);
	ASSERT_LE(0, self->owner);
	ASSERT_EQ(0, tow_mapped_make(self->owner, RANGE_BYTES, &self->range));
	for (i = 0; i < RESOLVERS; i++) {
		ASSERT_EQ(0, tow_user_make(&self->resolvers[i].user, ENTRIES, 0));
		ASSERT_EQ(0, tow_mapped_make(self->resolvers[i].user.fd, RANGE_BYTES,
					     &self->resolvers[i].own));
	}
}

FIXTURE_TEARDOWN(revoke)
{
	struct tow_sqe nop = { .user_data = 1 };
	int i;

	for (i = 0; i < RESOLVERS; i++) {
		EXPECT_EQ(0, tow_rings_do(&self->resolvers[i].user.rings, &nop));
	}
}

/* 16 MiB each, of which a small part can be on its way. */
static int submit_all(struct resolver *resolver, __u8 opcode, __u64 remote)
{
	const __u32 places = RANGE_BYTES / PIECE;
	__u32 i;

	for (i = 0; i < ENTRIES; i++) {
		struct tow_sqe sqe = tow_move(&resolver->user, opcode,
					      resolver->own.made.handle, i % places * PIECE,
					      remote, (i * 7 + 3) % places * PIECE, PIECE);

		sqe.user_data = i;
		if (!tow_rings_put(&resolver->user.rings, &sqe))
			return -EXFULL;
	}
	return tow_rings_enter(&resolver->user.rings, 0, 0) == (int)ENTRIES ? 0 : -EXFULL;
}

/* Each of them has ended, well or because it was too late: how many of the latter. */
static void count_stale(struct __test_metadata *_metadata, struct tow_rings *rings,
			unsigned int *stale)
{
	unsigned char seen[ENTRIES] = { 0 };
	struct tow_cqe cqe;
	unsigned int i;

	*stale = 0;
	for (i = 0; i < ENTRIES; i++) {
		ASSERT_EQ(0, tow_rings_wait(rings, &cqe));
		ASSERT_GT(ENTRIES, cqe.user_data);
		ASSERT_EQ(0, seen[cqe.user_data]++);
		EXPECT_TRUE(!cqe.status || cqe.status == -ESTALE)
			TH_LOG("entry %llu: %s", cqe.user_data, strerror(-cqe.status));
		*stale += cqe.status == -ESTALE;
	}
}

/*
 * How long moving all of it takes when nothing ends; what UNEXPORT may take is
 * measured by that, whatever the machine.
 */
static double time_all(struct __test_metadata *_metadata, FIXTURE_DATA(revoke) *self, __u8 opcode,
		       const __u64 *remotes)
{
	double start = tow_test_now();
	unsigned int stale;
	int i;

	for (i = 0; i < RESOLVERS; i++)
		EXPECT_EQ(0, submit_all(&self->resolvers[i], opcode, remotes[i]));
	for (i = 0; i < RESOLVERS; i++) {
		count_stale(_metadata, &self->resolvers[i].user.rings, &stale);
		EXPECT_EQ(0, stale);
	}
	return tow_test_now() - start;
}

static int publish(FIXTURE_DATA(revoke) *self, __u64 *exported, __u64 *remotes)
{
	__u32 rights = TOW_RIGHT_READ | TOW_RIGHT_WRITE;
	int ret, i;

	ret = tow_publish_for(self->owner, self->range.made.handle, "range", RANGE_BYTES, rights,
			      exported);
	for (i = 0; i < RESOLVERS && !ret; i++)
		ret = tow_find_for(self->resolvers[i].user.fd, self->resolvers[i].user.peer,
				   "range", rights, &remotes[i]);
	return ret;
}

/* A device that loses ACKs may lose the last one of what was on its way. */
static double ack_seconds(void)
{
	return access("/sys/module/rxe_hostile", F_OK) ? 0 : ACK_SECONDS;
}

/*
 * What rounds have shown: UNEXPORT that did not wait for all, entries that came too late; and
 * from when until when the last UNEXPORT took, and what it had.
 */
struct shown {
	unsigned int in_time, stale;
	double begin, end, limit;
};

/* Ends in the middle of it, and what was there then stays. */
static void end_in_the_middle(struct __test_metadata *_metadata, FIXTURE_DATA(revoke) *self,
			      __u8 opcode, __u64 exported, const __u64 *remotes, double all,
			      struct shown *shown)
{
	unsigned int stale, sum = 0;
	double took;
	int i;

	for (i = 0; i < RESOLVERS; i++) {
		tow_fill(self->resolvers[i].own.at, RANGE_BYTES, 77);
		ASSERT_EQ(0, submit_all(&self->resolvers[i], opcode, remotes[i]));
	}
	shown->begin = tow_clock_begin();
	ASSERT_EQ(0, tow_end_handle(self->owner, TOW_IOCTL_UNEXPORT, exported));
	shown->end = tow_test_now();
	/* What is on its way is a tenth of it at most; it has time for half. */
	shown->limit = all / 2 + 0.05 + ack_seconds();
	took = shown->end - shown->begin;
	shown->in_time += took < shown->limit;
	tow_fill(self->range.at, RANGE_BYTES, 99);
	for (i = 0; i < RESOLVERS; i++) {
		count_stale(_metadata, &self->resolvers[i].user.rings, &stale);
		sum += stale;
	}
	EXPECT_EQ(0, tow_differs(self->range.at, RANGE_BYTES, 99));
	EXPECT_GE(ENTRIES * RESOLVERS, sum);
	shown->stale += sum;
	TH_LOG("all of it takes %.3f s, UNEXPORT took %.3f s; %u were too late", all, took, sum);
}

FIXTURE_VARIANT(revoke)
{
	__u8 opcode;
};

FIXTURE_VARIANT_ADD(revoke, write) { .opcode = TOW_OP_WRITE };
FIXTURE_VARIANT_ADD(revoke, read) { .opcode = TOW_OP_READ };

TEST_F_TIMEOUT(revoke, while_all_are_at_it, 120)
{
	struct tow_user *first = &self->resolvers[0].user;
	uint64_t late = tow_sysfs_get("stats/revokes_late");
	__u32 epoch = tow_peer_epoch(first->fd, first->peer);
	__u64 exported, remotes[RESOLVERS];
	struct shown shown = { 0 };
	double all = 0;
	int round;

	ASSERT_NE(0, epoch);
	for (round = 0; round < ROUNDS ||
	     (round < TRIES && !(shown.in_time && shown.stale)); round++) {
		ASSERT_EQ(0, publish(self, &exported, remotes));
		if (!round)
			all = time_all(_metadata, self, variant->opcode, remotes);
		end_in_the_middle(_metadata, self, variant->opcode, exported, remotes, all, &shown);
	}
	if (!shown.in_time)
		TOW_WITHIN_AT(shown.begin, shown.end, shown.limit * 1e3);
	/* It was in the middle. */
	EXPECT_LT(0, shown.stale);
	EXPECT_EQ(epoch, tow_peer_epoch(first->fd, first->peer));
	EXPECT_EQ(late, tow_sysfs_get("stats/revokes_late"));
}

/* Who has let go says so at once, though the keys of others are being invalidated. */
TEST_F_TIMEOUT(revoke, while_other_exports_end, 120)
{
	struct tow_user *first = &self->resolvers[0].user;
	uint64_t late = tow_sysfs_get("stats/revokes_late");
	__u32 epoch = tow_peer_epoch(first->fd, first->peer);
	struct tow_patience patience;
	struct tow_region_create region;
	__u64 exported, remotes[RESOLVERS];
	unsigned int stale;
	int other, i;

	ASSERT_EQ(0, publish(self, &exported, remotes));
	other = tow_test_open(O_RDWR);
	ASSERT_LE(0, other);
	ASSERT_EQ(0, tow_region_create(other, TOW_SLAB, &region));
	ASSERT_EQ(0, tow_publish(other, region.handle, "other", TOW_SLAB, &exported));
	ASSERT_EQ(0, tow_halt_begin("tow_exported_reap"));
	close(region.fd);
	close(other);
	ASSERT_TRUE(tow_halt_wait());
	for (i = 0; i < RESOLVERS; i++)
		ASSERT_EQ(0, submit_all(&self->resolvers[i], variant->opcode, remotes[i]));
	munmap(self->range.at, self->range.bytes);
	close(self->range.made.fd);
	close(self->owner);
	patience = tow_patience(10);
	while (tow_sysfs_get("stats/grants") && tow_patient(&patience))
		tow_test_sleep_ms(10);
	EXPECT_EQ(0, tow_sysfs_get("stats/grants"));
	EXPECT_EQ(2, tow_sysfs_get("stats/exports"));
	EXPECT_EQ(late, tow_sysfs_get("stats/revokes_late"));
	EXPECT_EQ(epoch, tow_peer_epoch(first->fd, first->peer));
	ASSERT_EQ(0, tow_halt_end());
	for (i = 0; i < RESOLVERS; i++)
		count_stale(_metadata, &self->resolvers[i].user.rings, &stale);
}

/* The owner's region is gone, too, and its memory another's, with other bytes in it. */
TEST_F_TIMEOUT(revoke, and_the_memory_is_anothers, 120)
{
	__u64 exported, remotes[RESOLVERS];
	struct tow_mapped next;
	unsigned int stale;
	int i;

	ASSERT_EQ(0, publish(self, &exported, remotes));
	for (i = 0; i < RESOLVERS; i++) {
		tow_fill(self->resolvers[i].own.at, RANGE_BYTES, 77);
		ASSERT_EQ(0, submit_all(&self->resolvers[i], variant->opcode, remotes[i]));
	}
	/* The client ends, and its export with it; nobody waits for that. */
	munmap(self->range.at, self->range.bytes);
	close(self->range.made.fd);
	close(self->owner);
	self->owner = tow_test_open(O_RDWR);
	ASSERT_LE(0, self->owner);
	/* All that there is: the memory is in it, as soon as it can be had. */
	for (i = 0; i < 2000; i++) {
		if (!tow_mapped_make(self->owner, POOL_BYTES - RESOLVERS * RANGE_BYTES, &next))
			break;
		tow_test_sleep_ms(10);
	}
	ASSERT_GT(2000, i);
	EXPECT_TRUE(tow_is_zero(next.at, next.bytes));
	tow_fill(next.at, next.bytes, 5);
	for (i = 0; i < RESOLVERS; i++)
		count_stale(_metadata, &self->resolvers[i].user.rings, &stale);
	EXPECT_EQ(0, tow_differs(next.at, next.bytes, 5));
	EXPECT_EQ(0, tow_mapped_end(&next));
}

TEST_HARNESS_MAIN
