// SPDX-License-Identifier: GPL-2.0
/*
 * What happens to a peer is told to queues that have channels to it, to nobody else,
 * and once.  The node is its own peer, of which nothing outlives the connection: it is
 * lost when that ends.  tests/lab/outage and tests/lab/fall have peers that come back.
 */
#include <poll.h>
#include <pthread.h>
#include "tow_queue.h"

#define POOL_BYTES	(2 * TOW_SLAB)
#define ENTRIES		8U
#define LATER_MS	300

FIXTURE(event)
{
	struct tow_user user;
};

FIXTURE_SETUP(event)
{
	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_user_make(&self->user, ENTRIES, 0));
}

FIXTURE_TEARDOWN(event)
{
	tow_user_end(&self->user);
}

static int ask(int queue, struct tow_queue_event *event)
{
	*event = (struct tow_queue_event) { .size = sizeof(*event) };
	return tow_test_ioctl(queue, TOW_IOCTL_QUEUE_EVENT, event);
}

/* What poll(2) says at once. */
static int polled(int queue)
{
	struct pollfd poller = { .fd = queue, .events = POLLIN | POLLPRI };

	return poll(&poller, 1, 0) < 0 ? -errno : poller.revents;
}

static __u64 now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (__u64)now.tv_sec * 1000000000 + (__u64)now.tv_nsec;
}

/* Nothing is told, whoever asks, however often. */
#define EXPECT_NO_NEWS(QUEUE) \
	do { \
		static const struct tow_queue_event nothing; \
		struct tow_queue_event _event; \
		EXPECT_EQ(0, ask(QUEUE, &_event)); \
		EXPECT_EQ(sizeof(_event), _event.size); \
		_event.size = 0; \
		EXPECT_EQ(0, memcmp(&nothing, &_event, sizeof(_event))); \
		EXPECT_EQ(0, polled(QUEUE)); \
	} while (0)

TEST(layout_never_changes)
{
	EXPECT_EQ(88, sizeof(struct tow_queue_event));
	EXPECT_EQ(8, offsetof(struct tow_queue_event, peer));
	EXPECT_EQ(32, offsetof(struct tow_queue_event, broken_ns));
	EXPECT_EQ(80, offsetof(struct tow_queue_event, port));
}

TEST_F(event, nothing_has_happened)
{
	EXPECT_NO_NEWS(self->user.rings.made.fd);
	EXPECT_NO_NEWS(self->user.rings.made.fd);
}

TEST_F(event, lost)
{
	int queue = self->user.rings.made.fd;
	struct tow_queue_event event;
	struct tow_peer_info info;
	__u64 begin = now_ns();

	ASSERT_EQ(0, tow_peer_look(self->user.fd, self->user.peer, &info));
	ASSERT_EQ(0, tow_disconnect(self->user.fd, self->user.peer));
	EXPECT_EQ(POLLPRI, polled(queue));
	ASSERT_EQ(0, ask(queue, &event));
	EXPECT_EQ(sizeof(event), event.size);
	EXPECT_EQ(self->user.peer, event.peer);
	EXPECT_EQ(TOW_QUEUE_EVENT_LOST, event.what);
	/* As it was wanted. */
	EXPECT_EQ(0, event.error);
	EXPECT_EQ(TOW_PEER_IDLE, event.state);
	EXPECT_EQ(0, event.broken_ns);
	EXPECT_LE(begin, event.lost_ns);
	EXPECT_GE(now_ns(), event.lost_ns);
	EXPECT_EQ(0, memcmp(info.address, event.address, sizeof(event.address)));
	EXPECT_EQ(0, memcmp(info.incarnation, event.incarnation, sizeof(event.incarnation)));
	EXPECT_EQ(info.port, event.port);
	EXPECT_EQ(0, event.flags);
	EXPECT_EQ(0, event.reserved[0] | event.reserved[1] | event.reserved[2]);
	EXPECT_NO_NEWS(queue);
}

/* What happened before it had a channel is no news; nor is another client's channel. */
TEST_F(event, only_who_has_a_channel_is_told)
{
	struct tow_channel_open channel;
	struct tow_queue_event event;
	struct tow_rings other;
	struct tow_user late;
	__u64 peer;

	ASSERT_EQ(0, tow_rings_make(self->user.fd, ENTRIES, 0, &other));
	ASSERT_EQ(0, tow_disconnect(self->user.fd, self->user.peer));
	EXPECT_NO_NEWS(other.made.fd);
	ASSERT_EQ(0, tow_connect_self(self->user.fd, &peer));
	ASSERT_EQ(self->user.peer, peer);
	ASSERT_EQ(0, tow_channel_open(other.made.fd, peer, 0, &channel));
	EXPECT_NO_NEWS(other.made.fd);
	ASSERT_EQ(0, tow_user_make(&late, ENTRIES, 0));
	EXPECT_NO_NEWS(late.rings.made.fd);
	ASSERT_EQ(0, tow_disconnect(self->user.fd, peer));
	/* Each of them, once; and what happened twice once, too. */
	ASSERT_EQ(0, ask(late.rings.made.fd, &event));
	EXPECT_EQ(peer, event.peer);
	ASSERT_EQ(0, ask(other.made.fd, &event));
	EXPECT_EQ(peer, event.peer);
	ASSERT_EQ(0, ask(self->user.rings.made.fd, &event));
	EXPECT_EQ(peer, event.peer);
	EXPECT_NO_NEWS(late.rings.made.fd);
	EXPECT_NO_NEWS(other.made.fd);
	EXPECT_NO_NEWS(self->user.rings.made.fd);
	tow_rings_end(&other);
	tow_user_end(&late);
}

TEST_F(event, two_channels_to_one_peer)
{
	int queue = self->user.rings.made.fd;
	struct tow_channel_open channel;
	struct tow_queue_event event;

	ASSERT_EQ(0, tow_channel_open(queue, self->user.peer, 1, &channel));
	EXPECT_NE(self->user.channel, channel.channel);
	ASSERT_EQ(0, tow_disconnect(self->user.fd, self->user.peer));
	ASSERT_EQ(0, ask(queue, &event));
	EXPECT_EQ(self->user.peer, event.peer);
	EXPECT_NO_NEWS(queue);
}

/* Nothing is told of a peer to who has no channel to it any more, also if it was to be. */
TEST_F(event, the_channel_is_closed)
{
	int queue = self->user.rings.made.fd;
	struct tow_channel_open channel;
	struct tow_queue_event event;
	__u64 peer;

	ASSERT_EQ(0, tow_channel_open(queue, self->user.peer, 1, &channel));
	ASSERT_EQ(0, tow_disconnect(self->user.fd, self->user.peer));
	ASSERT_EQ(0, tow_channel_close(queue, self->user.channel));
	/* There is another one. */
	EXPECT_EQ(POLLPRI, polled(queue));
	ASSERT_EQ(0, tow_channel_close(queue, channel.channel));
	EXPECT_NO_NEWS(queue);
	ASSERT_EQ(0, tow_connect_self(self->user.fd, &peer));
	ASSERT_EQ(0, tow_disconnect(self->user.fd, peer));
	EXPECT_NO_NEWS(queue);
	/* What happened before it is open again is no news. */
	ASSERT_EQ(0, tow_channel_open(queue, peer, 0, &channel));
	EXPECT_NO_NEWS(queue);
	ASSERT_EQ(0, tow_disconnect(self->user.fd, peer));
	ASSERT_EQ(0, ask(queue, &event));
	EXPECT_EQ(peer, event.peer);
	EXPECT_NO_NEWS(queue);
}

/* Who could not be told is told the next time. */
TEST_F(event, an_answer_that_could_not_be_written)
{
	int queue = self->user.rings.made.fd;
	struct tow_queue_event *event;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	event = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)event);
	event->size = sizeof(*event);
	ASSERT_EQ(0, mprotect(event, page, PROT_READ));
	ASSERT_EQ(0, tow_disconnect(self->user.fd, self->user.peer));
	EXPECT_EQ(-EFAULT, tow_test_ioctl(queue, TOW_IOCTL_QUEUE_EVENT, event));
	EXPECT_EQ(POLLPRI, polled(queue));
	ASSERT_EQ(0, mprotect(event, page, PROT_READ | PROT_WRITE));
	EXPECT_EQ(0, tow_test_ioctl(queue, TOW_IOCTL_QUEUE_EVENT, event));
	EXPECT_EQ(self->user.peer, event->peer);
	EXPECT_NO_NEWS(queue);
	munmap(event, page);
}

struct sleeper {
	int queue;
	short revents;
};

static void *sleep_in_poll(void *arg)
{
	struct sleeper *sleeper = arg;
	struct pollfd poller = { .fd = sleeper->queue, .events = POLLPRI };

	if (poll(&poller, 1, TOW_WAIT_MS) == 1)
		sleeper->revents = poller.revents;
	return NULL;
}

TEST_F(event, who_sleeps_in_poll_is_woken)
{
	struct sleeper sleeper = { .queue = self->user.rings.made.fd };
	double begin = tow_test_now();
	pthread_t thread;

	ASSERT_EQ(0, pthread_create(&thread, NULL, sleep_in_poll, &sleeper));
	tow_test_sleep_ms(LATER_MS);
	ASSERT_EQ(0, tow_disconnect(self->user.fd, self->user.peer));
	ASSERT_EQ(0, pthread_join(thread, NULL));
	EXPECT_EQ(POLLPRI, sleeper.revents);
	EXPECT_LE(LATER_MS / 1e3, tow_test_now() - begin);
	TOW_WITHIN(begin, TOW_WAIT_MS);
}

/* An idle connection that nobody uses goes, and comes back: that is no news. */
TEST_F(event, idle)
{
	struct tow_channel_open channel;
	struct tow_peer_info info = { .state = TOW_PEER_READY };
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);

	ASSERT_EQ(0, tow_sysfs_put("peer_idle_s", "1"));
	while (info.state != TOW_PEER_IDLE && tow_patient(&patience)) {
		tow_test_sleep_ms(50);
		ASSERT_EQ(0, tow_peer_look(self->user.fd, self->user.peer, &info));
	}
	EXPECT_EQ(0, tow_sysfs_put("peer_idle_s", "600"));
	EXPECT_EQ(TOW_PEER_IDLE, info.state);
	EXPECT_NO_NEWS(self->user.rings.made.fd);
	ASSERT_EQ(0, tow_channel_open(self->user.rings.made.fd, self->user.peer, 0, &channel));
	EXPECT_NO_NEWS(self->user.rings.made.fd);
}

TEST_HARNESS_MAIN
