// SPDX-License-Identifier: GPL-2.0
/*
 * A peer that is there, and whose queue pair does not answer any more (tow_hostile.ko):
 * what is on its way to it stays so until the node gives that connection up, after
 * op_stall_ms; what is late meanwhile is HELD, and what outlives its client is nobody
 * else's; and connections that move are not given up, nor those that have nothing to do.
 */
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include "tow_rdma.h"
#include "tow_evil_range.h"

#define POOL_BYTES	(8 * TOW_SLAB)
#define ENTRIES		64U
#define BYTES		(2 * TOW_MB)
/* On its way at once; work requests count 4096 bytes at least. */
#define LITTLE		65536U
#define ON_ITS_WAY	(LITTLE / 4096U)

/* Before the RDMA device gives up by itself, and before the peer is silent for too long. */
#define STALL_MS	2500U

/* ATTACH waits so long: two of them give up before the RDMA device does, after 3.8 s. */
#define ATTACH_MS	500U

FIXTURE(stall)
{
	struct tow_knobs before;
	struct tow_user user;
	struct tow_rings others;	/* a queue for the node itself */
	__u16 channel;
	struct tow_mapped own, target;
	__u64 remote;			/* of the node itself */
	struct evil_range evil;
	__u32 epoch;			/* of the connection to itself */
	uint64_t stalls;
};

FIXTURE_SETUP(stall)
{
	struct tow_user *user = &self->user;
	struct tow_channel_open channel;
	__u32 unused = 0;
	char usual[32];

	tow_knobs_save(&self->before);
	ASSERT_EQ(0, tow_sysfs_set("inflight_bytes", LITTLE));
	/* The peer says nothing by itself: that is not what ends it here. */
	ASSERT_EQ(0, tow_sysfs_set("heartbeat_misses", 60));
	ASSERT_EQ(0, tow_module_load("tow_hostile", ""));
	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, evil_share_key());
	ASSERT_EQ(0, tow_user_make(user, ENTRIES, 0));
	ASSERT_EQ(0, tow_make_target(user, BYTES, &self->own, &self->target, &self->remote));
	ASSERT_EQ(0, tow_rings_make(user->fd, 4, 0, &self->others));
	ASSERT_EQ(0, tow_channel_open(self->others.made.fd, user->peer, 0, &channel));
	self->channel = (__u16)channel.channel;
	self->epoch = tow_peer_epoch(user->fd, user->peer);
	tow_sysfs_line("timeout", usual, sizeof(usual));
	/* The RDMA device tries for seconds: on that connection, and on no other one. */
	ASSERT_EQ(0, tow_sysfs_set("timeout", 20));
	ASSERT_EQ(0, evil_range_make(&self->evil, user));
	ASSERT_EQ(0, tow_sysfs_put("timeout", usual));
	ASSERT_EQ(0, evil_patience(EVIL_HASTY));
	ASSERT_EQ(0, tow_test_ioctl(self->evil.e.data[0], TOW_HOSTILE_DEAF, &unused));
	self->stalls = tow_sysfs_get("stats/stalls");
}

FIXTURE_TEARDOWN_PARENT(stall)
{
	EXPECT_EQ(0, tow_knobs_restore(&self->before));
	/* The processes are gone that had it open. */
	EXPECT_EQ(0, tow_module_unload("tow_hostile"));
}

/* To the one that does not answer. */
static struct tow_sqe entry(const FIXTURE_DATA(stall) *self, __u32 timeout_ms, __u64 number)
{
	struct tow_sqe sqe = tow_move(&self->user, TOW_OP_WRITE, self->own.made.handle,
				      (number & 31) * 8192, self->evil.remote, 0, EVIL_BYTES);

	sqe.channel = self->evil.channel;
	sqe.timeout_ms = timeout_ms;
	sqe.user_data = number;
	return sqe;
}

/* The next completion is that. */
static void expect_next(struct __test_metadata *_metadata, FIXTURE_DATA(stall) *self,
			__u64 number, int status, __u32 flags)
{
	struct tow_cqe cqe = { .status = 1 };

	ASSERT_EQ(0, tow_rings_wait(&self->user.rings, &cqe));
	EXPECT_EQ(number, cqe.user_data);
	EXPECT_EQ(status, cqe.status);
	EXPECT_EQ(flags, cqe.flags);
}

/* The connection to itself is as it was, and works. */
static void expect_others_well(struct __test_metadata *_metadata, FIXTURE_DATA(stall) *self,
			       size_t bytes)
{
	struct tow_sqe sqe = tow_move(&self->user, TOW_OP_WRITE, self->own.made.handle, 0,
				      self->remote, 0, bytes);

	sqe.channel = self->channel;
	EXPECT_EQ(0, tow_rings_do(&self->others, &sqe));
	EXPECT_EQ(self->epoch, tow_peer_epoch(self->user.fd, self->user.peer));
}

/*
 * Deadlines, each told in its time; those for which there was no room on the
 * way are not HELD.  The connection goes on as if nothing were, until the node has
 * waited long enough.
 */
TEST_F_TIMEOUT(stall, given_up, 60)
{
	/* All are to be on their way before the first is late; queue-deadline has 1 ms. */
	const __u32 times[] = { 400, 500, 800, 1000 };
	struct tow_rings *rings = &self->user.rings;
	struct tow_peer_info info;
	double begin = tow_test_now();
	unsigned int i, lost = 0;
	struct tow_cqe cqe;
	struct tow_sqe sqe;
	uint64_t stalls;

	ASSERT_EQ(0, tow_sysfs_set("op_stall_ms", STALL_MS));
	for (i = 0; i < ON_ITS_WAY + 2; i++) {
		sqe = entry(self, i < ARRAY_SIZE(times) ? times[i] :
			    i < ON_ITS_WAY ? 0 : 10000, i);
		ASSERT_TRUE(tow_rings_put(rings, &sqe));
	}
	/* Neighbours of which nothing goes with the one before. */
	sqe = entry(self, 650, i);
	ASSERT_TRUE(tow_rings_put(rings, &sqe));
	ASSERT_EQ(i + 1, tow_rings_enter(rings, 0, 0));
	expect_next(_metadata, self, 0, -ETIMEDOUT, TOW_CQE_HELD);
	expect_next(_metadata, self, 1, -ETIMEDOUT, TOW_CQE_HELD);
	expect_next(_metadata, self, i, -ETIMEDOUT, 0);
	expect_next(_metadata, self, 2, -ETIMEDOUT, TOW_CQE_HELD);
	expect_others_well(_metadata, self, 4096);
	expect_next(_metadata, self, 3, -ETIMEDOUT, TOW_CQE_HELD);
	EXPECT_LE(1.0, tow_test_now() - begin);
	stalls = tow_sysfs_get("stats/stalls");
	ASSERT_EQ(0, tow_peer_look(self->user.fd, self->evil.peer, &info));
	/* Unless this thread was away for as long as that takes. */
	if (tow_test_now() - begin < STALL_MS / 1e3) {
		EXPECT_EQ(self->stalls, stalls);
		EXPECT_EQ(TOW_PEER_READY, info.state);
	}
	for (i = 0; i < ON_ITS_WAY + 2; i++) {
		ASSERT_EQ(0, tow_rings_wait(rings, &cqe));
		EXPECT_EQ(cqe.user_data < ARRAY_SIZE(times) ? TOW_CQE_RELEASED : 0, cqe.flags);
		EXPECT_TRUE(cqe.status == -ECONNRESET ||
			    (cqe.user_data >= ON_ITS_WAY && cqe.status == -ESTALE))
			TH_LOG("%llu: %d", cqe.user_data, cqe.status);
		lost += cqe.status == -ECONNRESET;
	}
	EXPECT_EQ(ON_ITS_WAY, lost);
	TH_LOG("given up after %.1f s", tow_test_now() - begin);
	EXPECT_LE(STALL_MS / 1e3, tow_test_now() - begin);
	EXPECT_EQ(self->stalls + 1, tow_sysfs_get("stats/stalls"));
	ASSERT_EQ(0, tow_peer_look(self->user.fd, self->evil.peer, &info));
	EXPECT_EQ(-ETIMEDOUT, info.last_error);
	expect_others_well(_metadata, self, 4096);
	evil_end(&self->evil.e);
}

/* Unless the administrator says never; then it ends with the connection. */
TEST_F_TIMEOUT(stall, never, 60)
{
	/* It is to be on its way before it is late. */
	struct tow_sqe sqe = entry(self, 400, 0);

	ASSERT_EQ(0, tow_sysfs_set("op_stall_ms", 0));
	ASSERT_TRUE(tow_rings_put(&self->user.rings, &sqe));
	ASSERT_EQ(1, tow_rings_enter(&self->user.rings, 0, 0));
	expect_next(_metadata, self, 0, -ETIMEDOUT, TOW_CQE_HELD);
	tow_test_sleep_ms(STALL_MS);
	EXPECT_EQ(0, tow_rings_ready(&self->user.rings));
	EXPECT_EQ(self->stalls, tow_sysfs_get("stats/stalls"));
	evil_end(&self->evil.e);
	expect_next(_metadata, self, 0, -ECONNRESET, TOW_CQE_RELEASED);
	expect_others_well(_metadata, self, 4096);
}

/* Writes to the peer from a region that will linger, and waits to be killed. */
static void be_owner(const FIXTURE_DATA(stall) *self, int end)
{
	struct tow_user user = { .fd = tow_test_open(O_RDWR) };
	struct tow_channel_open channel;
	struct tow_region_create made;
	struct tow_sqe sqe;
	__u64 remote = 0;
	char byte;
	int ret;

	ret = tow_rings_make(user.fd, 4, 0, &user.rings);
	if (!ret)
		ret = tow_region_create_named(user.fd, EVIL_BYTES, TOW_REGION_PERSISTENT, 60,
					      "kept", &made);
	/* The node has it already. */
	if (!ret)
		ret = tow_find_for(user.fd, self->evil.peer, "x", TOW_ALL_RIGHTS, &remote);
	if (!ret)
		ret = tow_channel_open(user.rings.made.fd, self->evil.peer, 0, &channel);
	if (!ret) {
		user.channel = (__u16)channel.channel;
		sqe = tow_move(&user, TOW_OP_WRITE, made.handle, 0, remote, 0, EVIL_BYTES);
		tow_rings_put(&user.rings, &sqe);
		ret = tow_rings_enter(&user.rings, 0, 0) - 1;
	}
	if (write(end, &ret, sizeof(ret)) != sizeof(ret))
		_exit(1);
	_exit(read(end, &byte, 1) != 1);
}

/* A process is killed that has something on its way: 0 or a negative errno. */
static int leave_behind(FIXTURE_DATA(stall) *self)
{
	int ends[2], ret, status;
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return -errno;
	child = fork();
	if (!child) {
		close(ends[0]);
		be_owner(self, ends[1]);
	}
	close(ends[1]);
	if (read(ends[0], &ret, sizeof(ret)) != sizeof(ret))
		ret = -EPIPE;
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	close(ends[0]);
	return ret;
}

/* Nobody takes a region over while the RDMA device may still look at it. */
TEST_F_TIMEOUT(stall, what_outlives_its_client, 60)
{
	struct tow_region_attach made;
	struct tow_region_info info;
	int fd = self->user.fd;
	double begin;

	ASSERT_EQ(0, tow_sysfs_set("op_stall_ms", 0));
	ASSERT_EQ(0, tow_sysfs_set("revoke_timeout_ms", ATTACH_MS / 2));
	ASSERT_EQ(0, leave_behind(self));
	begin = tow_test_now();
	EXPECT_EQ(-EBUSY, tow_region_attach(fd, "kept", &made));
	EXPECT_LE(ATTACH_MS / 1e3, tow_test_now() - begin);
	tow_test_sleep_ms(300);
	EXPECT_EQ(-EBUSY, tow_region_attach(fd, "kept", &made));
	ASSERT_EQ(0, tow_region_find(fd, 0, "kept", &info));
	EXPECT_EQ(TOW_REGION_PERSISTENT | TOW_REGION_LINGERING, info.flags);
	/* The peer goes, and what was on its way to it is over. */
	evil_end(&self->evil.e);
	EXPECT_EQ(2, tow_sysfs_wait("stats/queues", 2));
	ASSERT_EQ(0, tow_region_attach(fd, "kept", &made));
	EXPECT_EQ(0, tow_region_destroy(fd, made.handle));
	close(made.fd);
}

/* What moves is not given up, however long it takes; nor what has nothing to do. */
TEST_F_TIMEOUT(stall, what_moves, 60)
{
	double end = tow_test_now() + 3;

	evil_end(&self->evil.e);
	ASSERT_EQ(0, tow_sysfs_set("op_stall_ms", 2000));
	while (tow_test_now() < end)
		expect_others_well(_metadata, self, BYTES);
	ASSERT_EQ(0, tow_sysfs_set("op_stall_ms", 1));
	tow_test_sleep_ms(1500);
	ASSERT_EQ(0, tow_sysfs_set("op_stall_ms", 0));
	expect_others_well(_metadata, self, 4096);
	EXPECT_EQ(self->stalls, tow_sysfs_get("stats/stalls"));
}

TEST_HARNESS_MAIN
