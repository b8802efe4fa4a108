// SPDX-License-Identifier: GPL-2.0
/*
 * libtowline's polled queues against the real module: what making one refuses; that
 * submitting and looking for completions makes no call; that it does when the poller
 * sleeps, for entries as for room; copies; children.
 */
/* build: link -ltowline */
#include <sys/mman.h>
#include <sys/wait.h>

#include <towline/queue.h>

#include "tow_libpeer.h"
#include "tow_mute.h"

#define MIB		((size_t)1 << 20)
#define ENTRIES		16U
#define NAME		"libpoller"
#define LATE_US		30000000U
#define RIGHTS		(TOW_RIGHT_READ | TOW_RIGHT_WRITE)
#define ROUNDS		300
#define RESTLESS_US	1
#define ASLEEP		2		/* no status */

FIXTURE(polled)
{
	struct tow_device *dev;
	struct tow_peer *peer;
	struct tow_region *region;
	struct tow_region *target;
	volatile uint64_t *here;
	volatile uint64_t *there;
	struct tow_exported *exported;
	struct tow_remote *remote;
	struct tow_queue *queue;
	struct tow_channel *channel;
};

static int map_whole(struct tow_region *region, volatile uint64_t **addr)
{
	void *mapped = NULL;
	int ret = tow_region_map(region, 0, 0, PROT_READ | PROT_WRITE, &mapped);

	*addr = mapped;
	return ret;
}

FIXTURE_SETUP(polled)
{
	ASSERT_EQ(0, tow_set_file("pool_bytes", TOW_PEER_POOL));
	ASSERT_EQ(0, tow_set_file("allow_unauthenticated", "1"));
	ASSERT_EQ(0, tow_device_open(tow_test_device(), 0, &self->dev));
	ASSERT_EQ(0, tow_peer_connect(self->dev, tow_own_address(), NULL, TOW_PEER_WAIT_MS,
				      &self->peer));
	ASSERT_EQ(0, tow_region_create(self->dev, MIB, NULL, &self->region));
	ASSERT_EQ(0, tow_region_create(self->dev, MIB, NULL, &self->target));
	ASSERT_EQ(0, map_whole(self->region, &self->here));
	ASSERT_EQ(0, map_whole(self->target, &self->there));
	ASSERT_EQ(0, tow_export(self->target, 0, MIB, NAME, RIGHTS, &self->exported));
	ASSERT_EQ(0, tow_resolve(self->peer, NAME, RIGHTS, 0, &self->remote));
}

FIXTURE_TEARDOWN(polled)
{
	tow_queue_destroy(self->queue);
	tow_remote_release(self->remote);
	tow_unexport(self->exported);
	tow_region_destroy(self->target);
	tow_region_destroy(self->region);
	tow_peer_release(self->peer);
	tow_device_close(self->dev);
}

/* The fixture's queue. */
static int make(FIXTURE_DATA(polled) *self, uint32_t sq, uint32_t cq, uint32_t idle_us)
{
	const struct tow_queue_attr attr = {
		.size = sizeof(attr), .flags = TOW_QUEUE_POLL, .idle_us = idle_us,
	};
	int ret = tow_queue_create_with(self->dev, sq, cq, &attr, &self->queue);

	return ret ? ret : tow_channel_get(self->queue, self->peer, 0, &self->channel);
}

/* The poller sleeps, before long. */
static bool falls_asleep(const struct tow_queue *queue)
{
	int ms;

	for (ms = 0; ms < 20000 && !tow_queue_need_wakeup(queue); ms++)
		tow_test_sleep_ms(1);
	return tow_queue_need_wakeup(queue);
}

/* The next completion without a call, before long: what it says; 1: none came. */
static int look_for(struct tow_queue *queue, uint64_t data)
{
	const struct tow_cqe *cqe = NULL;
	unsigned long patience;
	int ret;

	for (patience = 1000000000UL; patience && tow_queue_peek_cqe(queue, &cqe); patience--)
		;
	if (!cqe)
		return 1;
	ret = cqe->user_data == data ? cqe->status : -EBADMSG;
	tow_queue_cqe_seen(queue);
	return ret;
}

TEST_F(polled, attributes)
{
	static const struct {
		struct tow_queue_attr attr;
		int ret;
	} cases[] = {
		{ { .size = 0 }, -EINVAL },
		{ { .size = sizeof(uint32_t) }, -EINVAL },
		{ { .size = 4097, .flags = TOW_QUEUE_POLL }, -EINVAL },
		{ { .size = sizeof(struct tow_queue_attr), .flags = 4 }, -EINVAL },
		{ { .size = sizeof(struct tow_queue_attr), .idle_us = 1 }, -EINVAL },
		{ { .size = sizeof(struct tow_queue_attr), .flags = TOW_QUEUE_POLL,
		    .idle_us = TOW_POLL_IDLE_MAX_US + 1 }, -EINVAL },
		{ { .size = sizeof(struct tow_queue_attr) }, 0 },
		{ { .size = sizeof(struct tow_queue_attr), .flags = TOW_QUEUE_POLL,
		    .idle_us = TOW_POLL_IDLE_MAX_US }, 0 },
	};
	struct {
		struct tow_queue_attr known;
		uint32_t unknown;
	} longer = { { .size = sizeof(longer), .flags = TOW_QUEUE_POLL }, 0 };
	struct tow_queue *queue = NULL;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		ASSERT_EQ(cases[i].ret, tow_queue_create_with(self->dev, 1, 0, &cases[i].attr,
							      &queue));
		ASSERT_EQ(!cases[i].ret, !!queue);
		tow_queue_destroy(queue);
		queue = NULL;
	}
	ASSERT_EQ(0, tow_queue_create_with(self->dev, 1, 0, NULL, &queue));
	tow_queue_destroy(queue);
	ASSERT_EQ(0, tow_queue_create_with(self->dev, 1, 0, &longer.known, &queue));
	tow_queue_destroy(queue);
	longer.unknown = 1;
	EXPECT_EQ(-E2BIG, tow_queue_create_with(self->dev, 1, 0, &longer.known, &queue));
	EXPECT_EQ(-EINVAL, tow_queue_create_with(NULL, 1, 0, NULL, &queue));
	EXPECT_EQ(-EINVAL, tow_queue_create_with(self->dev, 1, 0, NULL, NULL));
}

/* From this number on: the number of the first that went wrong, and what it said. */
static int write_mutely(FIXTURE_DATA(polled) *self, int first, int *said)
{
	int i;

	for (i = first; i < ROUNDS; i++) {
		struct tow_sqe *sqe;

		*said = ASLEEP;
		if (tow_queue_need_wakeup(self->queue))
			break;
		sqe = tow_queue_get_sqe(self->queue);
		*self->here = (uint64_t)i + 1;
		tow_prep_write(sqe, self->channel, self->region, 0, self->remote, 0, 8);
		tow_sqe_set_data(sqe, (uint64_t)i);
		*said = tow_queue_submit(self->queue);
		if (*said != 1)
			break;
		*said = look_for(self->queue, (uint64_t)i);
		if (*said || *self->there != (uint64_t)i + 1)
			break;
	}
	return i;
}

/* The poller sleeps if this thread was away for too long: then it is woken, and all goes on. */
TEST_F_TIMEOUT(polled, no_calls, 60)
{
	int done = 0, said = ASLEEP, tries;

	ASSERT_EQ(0, make(self, ENTRIES, 0, TOW_POLL_IDLE_MAX_US));
	for (tries = 0; tries < ROUNDS / 10 && said == ASLEEP; tries++) {
		tow_prep_nop(tow_queue_get_sqe(self->queue));
		ASSERT_EQ(1, tow_queue_submit_and_wait(self->queue, 1));
		ASSERT_EQ(0, look_for(self->queue, 0));
		ASSERT_EQ(0, tow_mute_begin());
		done = write_mutely(self, done, &said);
		EXPECT_EQ(0, tow_mute_end());
	}
	EXPECT_EQ(ROUNDS, done)
		TH_LOG("%d; %llu of %llu", said, (unsigned long long)*self->there,
		       (unsigned long long)*self->here);
}

TEST_F(polled, wakes_who_sleeps)
{
	const struct tow_cqe *cqe;
	int i;

	ASSERT_EQ(0, make(self, ENTRIES, 0, RESTLESS_US));
	for (i = 0; i < 20; i++) {
		ASSERT_TRUE(falls_asleep(self->queue));
		tow_prep_nop(tow_queue_get_sqe(self->queue));
		ASSERT_EQ(1, tow_queue_submit(self->queue));
		/* In turns with a call and without. */
		if (i & 1)
			ASSERT_EQ(0, tow_queue_wait_cqe(self->queue, &cqe, LATE_US));
		ASSERT_EQ(0, look_for(self->queue, 0));
	}
	/* Nothing is there to be handed over. */
	EXPECT_EQ(0, tow_queue_submit(self->queue));
	EXPECT_EQ(-ETIMEDOUT, tow_queue_wait_cqe(self->queue, &cqe, 1000));
	EXPECT_EQ(-EINVAL, tow_queue_enter(self->queue, 1, 0, 0));
}

/* Entries without room are taken when completions are dealt with, and nothing else. */
TEST_F(polled, room)
{
	uint64_t i;

	ASSERT_EQ(0, make(self, 8, 8, RESTLESS_US));
	for (i = 0; i < 16; i++) {
		struct tow_sqe *sqe = tow_queue_get_sqe(self->queue);

		ASSERT_NE(NULL, sqe);
		tow_prep_nop(sqe);
		tow_sqe_set_data(sqe, i);
		if (i == 7)
			ASSERT_EQ(8, tow_queue_submit_and_wait(self->queue, 8));
	}
	ASSERT_EQ(8, tow_queue_submit(self->queue));
	ASSERT_EQ(NULL, tow_queue_get_sqe(self->queue));
	ASSERT_TRUE(falls_asleep(self->queue));
	for (i = 0; i < 16; i++)
		ASSERT_EQ(0, look_for(self->queue, i));
}

static void count_done(void *arg, int status)
{
	*(int *)arg += status ? 1000 : 1;
}

TEST_F_TIMEOUT(polled, copies, 60)
{
	int done = 0, begun, ret;

	ASSERT_EQ(0, make(self, ENTRIES, ENTRIES, 50));
	for (begun = 0; begun < ROUNDS; ) {
		ret = tow_memcpy(self->channel, self->region, 0, self->remote, 0, 64,
				 TOW_TO_REMOTE, count_done, &done);
		ASSERT_TRUE(!ret || ret == -EBUSY);
		begun += !ret;
		if (ret)
			ASSERT_LE(0, tow_queue_progress(self->queue, LATE_US));
	}
	while (done < begun)
		ASSERT_LT(0, tow_queue_progress(self->queue, LATE_US));
	EXPECT_EQ(ROUNDS, done);
}

TEST_F(polled, children)
{
	int status;
	pid_t child;

	ASSERT_EQ(0, make(self, ENTRIES, 0, 0));
	child = fork();
	if (!child) {
		if (tow_queue_get_sqe(self->queue) || tow_queue_submit(self->queue) != -EPERM)
			_exit(1);
		tow_queue_destroy(self->queue);
		_exit(0);
	}
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, status);
	tow_prep_nop(tow_queue_get_sqe(self->queue));
	EXPECT_EQ(1, tow_queue_submit_and_wait(self->queue, 1));
}

/* The client's end, with the queue still there. */
TEST_F(polled, device_closed)
{
	struct tow_sqe *sqe;

	ASSERT_EQ(0, make(self, ENTRIES, 0, TOW_POLL_IDLE_MAX_US));
	tow_remote_release(self->remote);
	tow_unexport(self->exported);
	tow_region_destroy(self->target);
	tow_region_destroy(self->region);
	tow_peer_release(self->peer);
	tow_device_close(self->dev);
	self->remote = NULL;
	self->exported = NULL;
	self->target = NULL;
	self->region = NULL;
	self->peer = NULL;
	self->dev = NULL;
	sqe = tow_queue_get_sqe(self->queue);
	ASSERT_NE(NULL, sqe);
	tow_prep_nop(sqe);
	EXPECT_EQ(-EPERM, tow_queue_submit(self->queue));
}

TEST_HARNESS_MAIN
