// SPDX-License-Identifier: GPL-2.0
/*
 * What becomes of notifications that are under way, and of those who wait for more,
 * when a slot ends, is given back, or its connection, one of the processes, a queue or
 * the device goes: each entry ends once, as documented; the slot can be given again and
 * counts on, and no notification is lost or counted twice on the way.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include "tow_hotplug.h"
#include "tow_notify.h"

#define POOL_BYTES	(8 * TOW_SLAB)
#define ENTRIES		256U
#define PIECE		(16 * TOW_KB)
#define BYTES		(16 * PIECE)
/* No number here comes so far. */
#define FAR		1000000U
#define KILLS		5
#define AFTERWARDS	10U

FIXTURE(end)
{
	char name[NAME_MAX + 1];
	char interface[64];
	struct tow_ends ends;
	__u32 epoch;
};

FIXTURE_SETUP(end)
{
	snprintf(self->name, sizeof(self->name), "%s", tow_test_device());
	snprintf(self->interface, sizeof(self->interface), "%s", tow_link_interface());
	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_ends_make(&self->ends, ENTRIES, BYTES));
	self->epoch = tow_peer_epoch(self->ends.to.fd, self->ends.to.peer);
	ASSERT_NE(0, self->epoch);
}

FIXTURE_TEARDOWN_PARENT(end)
{
	EXPECT_TRUE(tow_link_restore(self->name, self->interface))
		TH_LOG("%s does not come back", self->name);
}

/* ---- many under way ------------------------------------------------------------------ */

/* As many as the queue has, each with data. */
static int fill_up(struct tow_user *user, __u64 region, __u64 remote, __u64 slot)
{
	__u32 i;

	for (i = 0; i < ENTRIES; i++) {
		struct tow_sqe sqe = tow_write_notify(user, region, i % 16 * PIECE, remote,
						      i % 16 * PIECE, PIECE, slot);

		sqe.user_data = i;
		if (!tow_rings_put(&user->rings, &sqe))
			return -EXFULL;
	}
	return tow_rings_enter(&user->rings, 0, 0) == (int)ENTRIES ? 0 : -EXFULL;
}

static int fill_from(struct tow_ends *ends)
{
	return fill_up(&ends->from, ends->own.made.handle, ends->remote, ends->found);
}

/* How many ended in which way, each of them once. */
struct ways {
	unsigned int good, stale, reset, gone, cancelled, other;
};

static bool count_ways(struct tow_rings *rings, unsigned int wanted, struct ways *ways)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	unsigned char seen[ENTRIES] = { 0 };
	struct tow_cqe cqe;
	unsigned int i;

	memset(ways, 0, sizeof(*ways));
	while (tow_rings_ready(rings) < wanted && tow_patient(&patience))
		tow_test_sleep_ms(1);
	tow_test_sleep_ms(20);
	if (tow_rings_ready(rings) != wanted)
		return false;
	for (i = 0; i < wanted; i++) {
		cqe = tow_rings_look(rings, i);
		if (cqe.user_data >= ENTRIES || seen[cqe.user_data]++)
			return false;
		ways->good += !cqe.status;
		ways->stale += cqe.status == -ESTALE;
		ways->reset += cqe.status == -ECONNRESET;
		ways->gone += cqe.status == -ENODEV;
		ways->cancelled += cqe.status == -ECANCELED;
	}
	ways->other = wanted - ways->good - ways->stale - ways->reset - ways->gone -
		      ways->cancelled;
	return true;
}

/* Where the number is when nothing more comes. */
static __u64 settled(const struct tow_ends *ends)
{
	__u64 number;

	do {
		number = tow_ends_number(ends);
		tow_test_sleep_ms(50);
	} while (number != tow_ends_number(ends));
	return number;
}

/* It is had again, and counts on from where it is: neither one more nor one less. */
static void expect_counts_on(struct __test_metadata *_metadata, struct tow_ends *ends)
{
	__u64 number;
	__u32 i;

	ASSERT_EQ(0, tow_slot_find(ends->from.fd, ends->from.peer, "slot", &ends->found));
	number = settled(ends);
	for (i = 0; i < AFTERWARDS; i++)
		ASSERT_EQ(0, tow_ends_notify(ends));
	EXPECT_EQ(number + AFTERWARDS, tow_slot_await(tow_ends_word(ends), number + AFTERWARDS));
	EXPECT_EQ(number + AFTERWARDS, settled(ends));
}

static void forget_completions(struct tow_rings *rings)
{
	tow_rings_seen(rings, tow_rings_ready(rings));
}

/* ---- the slot --------------------------------------------------------------------------- */

TEST_F(end, unexported)
{
	struct tow_ends *ends = &self->ends;
	struct ways ways;

	ASSERT_EQ(0, tow_ends_begin_wait(ends, FAR, 0));
	ASSERT_EQ(0, tow_ends_begin_wait(ends, FAR, 0));
	ASSERT_EQ(0, fill_from(ends));
	ASSERT_EQ(0, tow_end_handle(ends->to.fd, TOW_IOCTL_UNEXPORT, ends->slot));
	/* Nothing is counted any more. */
	ASSERT_GE(ENTRIES, tow_ends_number(ends));
	EXPECT_EQ(tow_ends_number(ends), settled(ends));
	EXPECT_EQ(-ESTALE, tow_ends_end_wait(ends, FAR));
	EXPECT_EQ(-ESTALE, tow_ends_end_wait(ends, FAR));
	ASSERT_TRUE(count_ways(&ends->from.rings, ENTRIES, &ways));
	EXPECT_EQ(ENTRIES, ways.good + ways.stale);
	EXPECT_GE(ways.good, tow_ends_number(ends));
	TH_LOG("%u had begun, %llu were counted", ways.good,
	       (unsigned long long)tow_ends_number(ends));
	forget_completions(&ends->from.rings);
	EXPECT_EQ(self->epoch, tow_peer_epoch(ends->to.fd, ends->to.peer));
	ASSERT_EQ(0, tow_slot_make(ends->to.fd, ends->memory.made.handle, TOW_SLOT_AT, "slot",
				   &ends->slot));
	EXPECT_EQ(0, tow_ends_number(ends));
	expect_counts_on(_metadata, ends);
	EXPECT_EQ(AFTERWARDS, tow_ends_number(ends));
}

/* What has begun is counted; the next one to have the slot goes on behind it. */
TEST_F(end, released)
{
	struct tow_ends *ends = &self->ends;
	struct ways ways;
	int round;

	ASSERT_EQ(0, tow_ends_begin_wait(ends, FAR, 0));
	for (round = 0; round < 3; round++) {
		__u64 before = settled(ends);

		ASSERT_EQ(0, fill_from(ends));
		ASSERT_EQ(0, tow_end_handle(ends->from.fd, TOW_IOCTL_RELEASE, ends->found));
		ASSERT_TRUE(count_ways(&ends->from.rings, ENTRIES, &ways));
		EXPECT_EQ(ENTRIES, ways.good + ways.stale);
		EXPECT_EQ(before + ways.good, tow_slot_await(tow_ends_word(ends),
							     before + ways.good));
		EXPECT_EQ(before + ways.good, settled(ends));
		forget_completions(&ends->from.rings);
		expect_counts_on(_metadata, ends);
	}
	EXPECT_EQ(0, tow_rings_ready(&ends->to.rings));
	EXPECT_EQ(self->epoch, tow_peer_epoch(ends->to.fd, ends->to.peer));
}

/* Given and ended many times: slots' numbers go round. */
TEST_F_TIMEOUT(end, given_many_times, 120)
{
	struct tow_ends *ends = &self->ends;
	__u64 slot, found;
	int i;

	for (i = 0; i < 100; i++) {
		struct tow_sqe sqe;

		ASSERT_EQ(0, tow_slot_make(ends->to.fd, ends->memory.made.handle, 64, "other",
					   &slot));
		ASSERT_EQ(0, tow_slot_find(ends->from.fd, ends->from.peer, "other", &found));
		sqe = tow_notify(&ends->from, found);
		ASSERT_EQ(0, tow_rings_do(&ends->from.rings, &sqe));
		ASSERT_EQ(1, tow_slot_await(ends->memory.at + 64, 1));
		if (i % 2) {
			ASSERT_EQ(0, tow_end_handle(ends->from.fd, TOW_IOCTL_RELEASE, found));
		}
		ASSERT_EQ(0, tow_end_handle(ends->to.fd, TOW_IOCTL_UNEXPORT, slot));
	}
	EXPECT_EQ(0, tow_ends_number(ends));
}

/* ---- processes -------------------------------------------------------------------------- */

/* Whoever has the slot, until he dies of it. */
static void notify_and_die(void)
{
	struct tow_region_create made;
	struct tow_user user;
	__u64 found, remote;

	if (tow_user_make(&user, ENTRIES, 0) || tow_region_create(user.fd, BYTES, &made) ||
	    tow_slot_find(user.fd, user.peer, "slot", &found) ||
	    tow_find_for(user.fd, user.peer, "data", TOW_RIGHT_WRITE, &remote) ||
	    fill_up(&user, made.handle, remote, found))
		_exit(1);
	raise(SIGKILL);
}

TEST_F_TIMEOUT(end, who_notifies_is_killed, 120)
{
	struct tow_ends *ends = &self->ends;
	int round, status;
	pid_t child;

	/* The connection stays, so this one goes on waiting. */
	ASSERT_EQ(0, tow_ends_begin_wait(ends, FAR, 0));
	for (round = 0; round < KILLS; round++) {
		ASSERT_EQ(0, tow_end_handle(ends->from.fd, TOW_IOCTL_RELEASE, ends->found));
		child = fork();
		if (!child)
			notify_and_die();
		ASSERT_EQ(child, waitpid(child, &status, 0));
		ASSERT_TRUE(WIFSIGNALED(status));
		expect_counts_on(_metadata, ends);
	}
	EXPECT_EQ(0, tow_rings_ready(&ends->to.rings));
	EXPECT_EQ(self->epoch, tow_peer_epoch(ends->to.fd, ends->to.peer));
	EXPECT_EQ(2, tow_sysfs_wait("stats/queues", 2));
}

/* Has a slot of its own and waits for it, for ever. */
static void be_notified_and_die(int ready)
{
	struct tow_ends ends = { .slot_name = "dying", .data_name = "dying data" };

	if (tow_ends_make_to(&ends, ENTRIES, BYTES) || tow_ends_begin_wait(&ends, FAR, 0) ||
	    tow_ends_begin_wait(&ends, FAR + 1, TOW_SQE_LINK) || write(ready, "r", 1) != 1)
		_exit(1);
	tow_rings_enter(&ends.to.rings, 1, TOW_WAIT_FOREVER);
	_exit(2);
}

TEST_F_TIMEOUT(end, who_is_notified_is_killed, 120)
{
	struct tow_ends *ends = &self->ends;
	__u64 found, remote;
	int round, status, ready[2];
	struct ways ways;
	pid_t child;
	char byte;

	for (round = 0; round < KILLS; round++) {
		ASSERT_EQ(0, pipe(ready));
		child = fork();
		if (!child)
			be_notified_and_die(ready[1]);
		ASSERT_EQ(1, read(ready[0], &byte, 1));
		ASSERT_EQ(0, tow_slot_find(ends->from.fd, ends->from.peer, "dying", &found));
		ASSERT_EQ(0, tow_find_for(ends->from.fd, ends->from.peer, "dying data",
					  TOW_RIGHT_WRITE, &remote));
		ASSERT_EQ(0, fill_up(&ends->from, ends->own.made.handle, remote, found));
		kill(child, SIGKILL);
		ASSERT_EQ(child, waitpid(child, &status, 0));
		ASSERT_TRUE(WIFSIGNALED(status));
		ASSERT_TRUE(count_ways(&ends->from.rings, ENTRIES, &ways));
		EXPECT_EQ(ENTRIES, ways.good + ways.stale);
		forget_completions(&ends->from.rings);
		close(ready[0]);
		close(ready[1]);
	}
	EXPECT_EQ(0, tow_ends_notify(ends));
	EXPECT_EQ(1, tow_slot_await(tow_ends_word(ends), 1));
	EXPECT_EQ(self->epoch, tow_peer_epoch(ends->to.fd, ends->to.peer));
	EXPECT_EQ(2, tow_sysfs_wait("stats/queues", 2));
}

/* ---- the connection ----------------------------------------------------------------------- */

TEST_F_TIMEOUT(end, disconnected, 120)
{
	struct tow_ends *ends = &self->ends;
	struct tow_sqe sqe;
	struct tow_cqe cqe;
	struct ways ways;
	__u64 nobodys;
	int round;

	ASSERT_EQ(0, tow_slot_make(ends->to.fd, ends->memory.made.handle, 64, "nobody's",
				   &nobodys));
	sqe = tow_wait_for(nobodys, 1);
	sqe.user_data = 77;
	ASSERT_TRUE(tow_rings_put(&ends->to.rings, &sqe));
	ASSERT_EQ(1, tow_rings_enter(&ends->to.rings, 0, 0));
	for (round = 0; round < 3; round++) {
		__u64 before = settled(ends);

		ASSERT_EQ(0, tow_ends_begin_wait(ends, FAR, 0));
		ASSERT_EQ(0, fill_from(ends));
		ASSERT_EQ(0, tow_disconnect(ends->from.fd, ends->from.peer));
		EXPECT_EQ(-ECONNRESET, tow_ends_end_wait(ends, FAR));
		/* It was so far: the next one has the slot. */
		ASSERT_EQ(0, tow_ends_begin_wait(ends, before, 0));
		EXPECT_EQ(0, tow_ends_end_wait(ends, before));
		ASSERT_TRUE(count_ways(&ends->from.rings, ENTRIES, &ways));
		EXPECT_EQ(ENTRIES, ways.good + ways.stale + ways.reset);
		EXPECT_LE(before + ways.good, settled(ends));
		EXPECT_GE(before + ways.good + ways.reset, settled(ends));
		TH_LOG("%u had arrived, of %u it is not known, %u had not begun", ways.good,
		       ways.reset, ways.stale);
		forget_completions(&ends->from.rings);
		EXPECT_EQ(-ESTALE, tow_ends_notify(ends));
		ASSERT_EQ(0, tow_connect_self(ends->from.fd, &ends->from.peer));
		/* What was found is stale for good. */
		EXPECT_EQ(-ESTALE, tow_ends_notify(ends));
		EXPECT_EQ(-ESTALE, tow_end_handle(ends->from.fd, TOW_IOCTL_RELEASE, ends->found));
		expect_counts_on(_metadata, ends);
		ASSERT_EQ(0, tow_find_for(ends->from.fd, ends->from.peer, "data",
					  TOW_RIGHT_WRITE, &ends->remote));
	}
	/* Nobody had that one, so no connection was its. */
	EXPECT_EQ(0, tow_rings_ready(&ends->to.rings));
	ASSERT_EQ(0, tow_end_handle(ends->to.fd, TOW_IOCTL_UNEXPORT, nobodys));
	ASSERT_EQ(0, tow_rings_wait(&ends->to.rings, &cqe));
	EXPECT_EQ(77, cqe.user_data);
	EXPECT_EQ(-ESTALE, cqe.status);
}

/* ---- queues and clients ---------------------------------------------------------------------- */

TEST_F(end, queue_closed)
{
	struct tow_ends *ends = &self->ends;
	struct tow_rings rings;
	struct tow_sqe sqe = tow_wait_for(ends->slot, 1);

	ASSERT_EQ(0, tow_rings_make(ends->to.fd, 4, 0, &rings));
	ASSERT_TRUE(tow_rings_put(&rings, &sqe));
	sqe.flags = TOW_SQE_LINK;
	ASSERT_TRUE(tow_rings_put(&rings, &sqe));
	ASSERT_TRUE(tow_rings_put(&rings, &sqe));
	ASSERT_EQ(3, tow_rings_enter(&rings, 0, 0));
	EXPECT_EQ(3, tow_sysfs_wait("stats/queues", 3));
	tow_rings_end(&rings);
	EXPECT_EQ(2, tow_sysfs_wait("stats/queues", 2));
	/* Nobody is left to be told. */
	EXPECT_EQ(0, tow_ends_notify(ends));
	EXPECT_EQ(1, tow_slot_await(tow_ends_word(ends), 1));
}

TEST_F(end, client_closed)
{
	struct tow_ends *ends = &self->ends;
	struct ways ways;
	__u32 i;

	for (i = 0; i < 8; i++)
		ASSERT_EQ(0, tow_ends_begin_wait(ends, 1 + i, i % 2 ? TOW_SQE_LINK : 0));
	ASSERT_EQ(0, fill_from(ends));
	close(ends->to.fd);
	ASSERT_TRUE(count_ways(&ends->from.rings, ENTRIES, &ways));
	EXPECT_EQ(ENTRIES, ways.good + ways.stale);
	ASSERT_TRUE(count_ways(&ends->to.rings, 8, &ways));
	/* By the slot's end, or by the client's. */
	EXPECT_EQ(8, ways.good + ways.stale + ways.cancelled);
	EXPECT_EQ(-EPERM, tow_enter(ends->to.rings.made.fd, 0, 1, 0));
	tow_rings_end(&ends->to.rings);
	EXPECT_EQ(1, tow_sysfs_wait("stats/queues", 1));
	EXPECT_EQ(self->epoch, tow_peer_epoch(ends->from.fd, ends->from.peer));
}

/* ---- the device ------------------------------------------------------------------------------ */

struct waiter {
	struct tow_rings *rings;
	int entered;
	pthread_t thread;
};

static void *enter_for_end(void *arg)
{
	struct waiter *waiter = arg;

	waiter->entered = tow_enter(waiter->rings->made.fd, 0, ENTRIES, TOW_LONG_US);
	return NULL;
}

/* What is in the rings needs no call: the status of the next one, or -ENOMSG. */
static int completes_yet(struct tow_rings *rings)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	struct tow_cqe cqe;

	while (!tow_rings_take(rings, &cqe)) {
		if (!tow_patient(&patience))
			return -ENOMSG;
		tow_test_sleep_ms(1);
	}
	return cqe.status;
}

static void *notify_for_end(void *arg)
{
	struct tow_ends *ends = arg;
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	int ret;

	do {
		ret = tow_ends_notify(ends);
		/*
		 * ENTER says that it was taken, and does not wait for a device that is gone.
		 * It may have arrived all the same.
		 */
		if (ret == -ENOMSG)
			ret = completes_yet(&ends->from.rings);
	} while (!ret && tow_patient(&patience));
	return (void *)(intptr_t)ret;
}

TEST_F_TIMEOUT(end, device_removed, 60)
{
	struct tow_ends *ends = &self->ends;
	struct waiter waiter = { .rings = &ends->to.rings };
	struct ways ways;
	pthread_t thread;
	double start, end;
	void *ret;
	__u32 i;

	for (i = 0; i < 8; i++) {
		struct tow_sqe sqe = tow_wait_for(ends->slot, FAR + i);

		sqe.user_data = i;
		ASSERT_TRUE(tow_rings_put(&ends->to.rings, &sqe));
	}
	ASSERT_EQ(8, tow_rings_enter(&ends->to.rings, 0, 0));
	ASSERT_EQ(0, pthread_create(&waiter.thread, NULL, enter_for_end, &waiter));
	ASSERT_EQ(0, pthread_create(&thread, NULL, notify_for_end, ends));
	start = tow_test_now();
	ASSERT_TRUE(tow_link_del(self->name));
	end = tow_test_now();
	ASSERT_EQ(0, pthread_join(waiter.thread, NULL));
	ASSERT_EQ(0, pthread_join(thread, &ret));
	EXPECT_EQ(-ENODEV, waiter.entered);
	TH_LOG("the last one: %s", strerror(-(int)(intptr_t)ret));
	EXPECT_TRUE((int)(intptr_t)ret == -ENODEV || (int)(intptr_t)ret == -ECONNRESET ||
		    (int)(intptr_t)ret == -ESTALE);
	ASSERT_TRUE(count_ways(&ends->to.rings, 8, &ways));
	/* The connection that had it ended, or its export, or the device. */
	EXPECT_EQ(8, ways.reset + ways.gone + ways.stale);
	TH_LOG("connection lost: %u; stale: %u; no device: %u", ways.reset, ways.stale,
	       ways.gone);
	tow_ends_end(ends);
	TOW_WITHIN_AT(start, end, 15000);
}

TEST_HARNESS_MAIN
