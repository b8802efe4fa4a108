// SPDX-License-Identifier: GPL-2.0
/*
 * The end of those who have a poller, and of what it serves: processes that are killed,
 * or execute another program, while it has a lot to do; children; clients, queues, the
 * device.  Nothing is left of the poller, and nobody waits for it.
 */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include "tow_hotplug.h"
#include "tow_poller.h"

#define POOL_BYTES	(8 * TOW_SLAB)
#define ENTRIES		256U
#define PIECE		(8 * TOW_KB)
#define SERVED_BYTES	(ENTRIES * PIECE)
#define USUAL_KILLS	2

FIXTURE(end)
{
	char name[NAME_MAX + 1];
	char interface[64];
	struct tow_user user;		/* without a poller; has what others write to */
	struct tow_mapped own, target;
	__u64 remote;
};

FIXTURE_SETUP(end)
{
	snprintf(self->name, sizeof(self->name), "%s", tow_test_device());
	snprintf(self->interface, sizeof(self->interface), "%s", tow_link_interface());
	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_user_make(&self->user, 8, 0));
	ASSERT_EQ(0, tow_make_target(&self->user, SERVED_BYTES, &self->own, &self->target,
				     &self->remote));
	ASSERT_EQ(0, tow_sysfs_wait("stats/pollers", 0));
}

FIXTURE_TEARDOWN_PARENT(end)
{
	EXPECT_TRUE(tow_link_restore(self->name, self->interface))
		TH_LOG("%s does not come back", self->name);
}

/* A client with a polled queue, and a channel of it. */
static int polled_user_make(struct tow_user *user)
{
	struct tow_channel_open channel;
	int ret;

	memset(user, 0, sizeof(*user));
	user->fd = tow_test_open(O_RDWR);
	if (user->fd < 0)
		return user->fd;
	ret = tow_connect_self(user->fd, &user->peer);
	if (!ret)
		ret = tow_rings_make_polled(user->fd, ENTRIES, ENTRIES, TOW_POLL_IDLE_MAX_US,
					    &user->rings);
	if (!ret)
		ret = tow_channel_open(user->rings.made.fd, user->peer, 0, &channel);
	if (!ret)
		user->channel = (__u16)channel.channel;
	return ret;
}

static int fill_up(struct tow_user *user, __u64 region, __u64 remote)
{
	__u32 i;

	for (i = 0; i < ENTRIES; i++) {
		__u32 place = i * 89 % ENTRIES * (__u32)PIECE;
		struct tow_sqe sqe = tow_move(user, TOW_OP_WRITE, region, place, remote, place,
					      PIECE);

		if (!tow_rings_put(&user->rings, &sqe))
			return -EXFULL;
	}
	return tow_rings_offer(&user->rings);
}

/* Only what the fixture has is left. */
static void expect_gone(struct __test_metadata *_metadata, pid_t owner)
{
	EXPECT_EQ(0, tow_sysfs_wait("stats/pollers", 0));
	EXPECT_EQ(1, tow_sysfs_wait("stats/queues", 1));
	EXPECT_TRUE(tow_poller_ends(owner));
}

/* ---- processes ------------------------------------------------------------------------ */

enum way { KILLED, EXITS, EXECUTES, WAYS };

/* Has a lot on its way, and more that was not taken; and then: */
static int go(enum way way)
{
	struct tow_region_create made;
	struct tow_user user;
	__u64 remote;
	int ret = polled_user_make(&user);

	if (!ret)
		ret = tow_region_create(user.fd, SERVED_BYTES, &made);
	if (!ret)
		ret = tow_find_for(user.fd, user.peer, "target", TOW_RIGHT_WRITE, &remote);
	if (!ret)
		ret = fill_up(&user, made.handle, remote);
	if (ret < 0)
		return -ret;
	if (way == KILLED)
		raise(SIGKILL);
	if (way == EXECUTES)
		execl("/bin/sh", "sh", "-c", "exit 0", NULL);
	return 0;
}

TEST_F_TIMEOUT(end, processes, 600)
{
	int rounds = tow_test_count(USUAL_KILLS), round, status;
	enum way way;
	pid_t child;

	for (round = 0; round < rounds; round++) {
		for (way = 0; way < WAYS; way++) {
			child = fork();
			if (!child)
				_exit(go(way));
			ASSERT_EQ(child, waitpid(child, &status, 0));
			if (way == KILLED) {
				ASSERT_TRUE(WIFSIGNALED(status));
			} else {
				ASSERT_EQ(0, status);
			}
			expect_gone(_metadata, child);
		}
	}
}

/* Executes a program that has not ended: the poller has. */
TEST_F(end, program_goes_on)
{
	int status, ends[2];
	pid_t child;
	char seen;

	ASSERT_EQ(0, pipe(ends));
	child = fork();
	if (!child) {
		struct tow_user user;

		close(ends[1]);
		dup2(ends[0], 0);
		/* The poller is there until it has been seen. */
		if (!polled_user_make(&user) && read(0, &seen, 1) == 1)
			execl("/bin/sh", "sh", "-c", "read line", NULL);
		_exit(1);
	}
	close(ends[0]);
	EXPECT_EQ(1, tow_sysfs_wait("stats/pollers", 1));
	ASSERT_EQ(1, write(ends[1], "", 1));
	expect_gone(_metadata, child);
	EXPECT_EQ(0, waitpid(child, &status, WNOHANG));
	close(ends[1]);
	ASSERT_EQ(child, waitpid(child, &status, 0));
}

/* A child has no part in it, and its end does nothing to it. */
TEST_F(end, children)
{
	struct tow_user user;
	struct tow_cqe cqe;
	int status, i;
	pid_t child;

	ASSERT_EQ(0, polled_user_make(&user));
	for (i = 0; i < 2; i++) {
		child = fork();
		if (!child)
			_exit(tow_enter(user.rings.made.fd, 0, 0, 0) != -EPERM);
		ASSERT_EQ(child, waitpid(child, &status, 0));
		EXPECT_EQ(0, status);
		EXPECT_EQ(1, tow_sysfs_get("stats/pollers"));
		ASSERT_TRUE(tow_rings_put(&user.rings, &(struct tow_sqe){ .user_data = 4 }));
		ASSERT_LE(0, tow_rings_offer(&user.rings));
		ASSERT_EQ(0, tow_rings_wait(&user.rings, &cqe));
		EXPECT_EQ(4, cqe.user_data);
	}
	tow_user_end(&user);
	expect_gone(_metadata, getpid());
}

/* ---- queues and clients ------------------------------------------------------------------ */

/* With entries under way, and a chain that cannot be taken. */
TEST_F(end, queue_closed)
{
	struct tow_rings other;
	struct tow_user user;
	struct tow_cqe cqe;
	int round;
	__u32 i;

	for (round = 0; round < 3; round++) {
		ASSERT_EQ(0, polled_user_make(&user));
		ASSERT_EQ(0, tow_rings_make_polled(user.fd, 4, 4, 0, &other));
		/* Nobody has dealt with the first of them, so there is no room for all. */
		for (i = 0; i < 2; i++)
			ASSERT_TRUE(tow_rings_put(&user.rings, &(struct tow_sqe){ 0 }));
		ASSERT_LE(0, tow_rings_offer(&user.rings));
		while (tow_rings_ready(&user.rings) < 2)
			sched_yield();
		for (i = 0; i < ENTRIES; i++)
			ASSERT_TRUE(tow_rings_put(&user.rings, &(struct tow_sqe){
				.flags = i < ENTRIES - 1 ? TOW_SQE_LINK : 0,
				.user_data = i,
			}));
		ASSERT_LE(0, tow_rings_offer(&user.rings));
		tow_rings_end(&user.rings);
		/* The other one is served as before. */
		for (i = 0; i < 20; i++) {
			ASSERT_TRUE(tow_rings_put(&other, &(struct tow_sqe){ .user_data = i }));
			ASSERT_LE(0, tow_rings_offer(&other));
			ASSERT_EQ(0, tow_rings_wait(&other, &cqe));
			ASSERT_EQ(i, cqe.user_data);
		}
		EXPECT_EQ(1, tow_sysfs_get("stats/pollers"));
		EXPECT_EQ(2, tow_sysfs_wait("stats/queues", 2));
		tow_rings_end(&other);
		close(user.fd);
		expect_gone(_metadata, getpid());
	}
}

/* What a call and poll(2) say of one whose client or device has gone. */
static void expect_over(struct __test_metadata *_metadata, const struct tow_rings *rings,
			int error)
{
	struct pollfd waiter = { .fd = rings->made.fd, .events = 0 };

	EXPECT_TRUE(tow_rings_need_wakeup(rings));
	EXPECT_EQ(error, tow_enter(rings->made.fd, 0, 0, 0));
	EXPECT_EQ(error, tow_enter(rings->made.fd, 0, ENTRIES, TOW_LONG_US));
	EXPECT_EQ(1, poll(&waiter, 1, 0));
	EXPECT_EQ(POLLERR | POLLHUP, waiter.revents);
}

TEST_F(end, client_closed)
{
	struct tow_user user;
	int round;
	__u32 head;

	for (round = 0; round < 3; round++) {
		ASSERT_EQ(0, polled_user_make(&user));
		ASSERT_LE(0, fill_up(&user, 0, 0));
		close(user.fd);
		expect_over(_metadata, &user.rings, -EPERM);
		/* What was not taken never is. */
		head = __atomic_load_n(&user.rings.ring->sq_head, __ATOMIC_ACQUIRE);
		tow_test_sleep_ms(5);
		EXPECT_EQ(head, __atomic_load_n(&user.rings.ring->sq_head, __ATOMIC_ACQUIRE));
		EXPECT_EQ(0, tow_sysfs_get("stats/pollers"));
		tow_rings_end(&user.rings);
		expect_gone(_metadata, getpid());
	}
}

/* ---- the device ---------------------------------------------------------------------------- */

struct pusher {
	struct tow_user *user;
	bool stop;
	unsigned long pushed;
	int error;
};

/* Keeps the poller busy until it is told that nobody looks any more. */
static void *push(void *arg)
{
	struct pusher *pusher = arg;
	struct tow_rings *rings = &pusher->user->rings;
	struct tow_patience patience = tow_patience(60);

	while (pusher->error >= 0 && tow_patient(&patience)) {
		if (tow_rings_put(rings, &(struct tow_sqe){ 0 }))
			pusher->pushed++;
		tow_rings_seen(rings, tow_rings_ready(rings));
		pusher->error = tow_rings_offer(rings);
	}
	return NULL;
}

TEST_F_TIMEOUT(end, device_removed, 90)
{
	struct tow_user user;
	struct pusher pusher = { .user = &user };
	pthread_t thread;
	struct tow_patience patience;
	double start, end;

	ASSERT_EQ(0, polled_user_make(&user));
	ASSERT_EQ(0, pthread_create(&thread, NULL, push, &pusher));
	patience = tow_patience(TOW_SETTLE_SECONDS);
	while (tow_poller_state(tow_poller_of(getpid())) != 'R')
		ASSERT_TRUE(tow_patient(&patience));
	start = tow_test_now();
	ASSERT_TRUE(tow_link_del(self->name));
	end = tow_test_now();
	EXPECT_TRUE(tow_poller_ends(getpid()));
	ASSERT_EQ(0, pthread_join(thread, NULL));
	EXPECT_EQ(-ENODEV, pusher.error);
	EXPECT_LT(0, pusher.pushed);
	expect_over(_metadata, &user.rings, -ENODEV);
	tow_user_end(&user);
	TOW_WITHIN_AT(start, end, 15000);
}

TEST_HARNESS_MAIN
