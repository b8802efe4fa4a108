// SPDX-License-Identifier: GPL-2.0
/*
 * Channels that are closed: not while an entry that names one is under way, in whatever
 * state; and while others open it, submit, ask for events, or take the device away.
 */
#include <pthread.h>
#include "tow_deadline.h"
#include "tow_hotplug.h"

#define COMINGS		2000
#define TRIES		16
#define PIECE		64U
#define BATCH		8U
#define BATCHES		200
#define UNPLUGS		3
#define ENDINGS		30
/* Before the device goes, and before the connection ends, it has gone on so often. */
#define WARM		20U

/* ---- entries under way ---------------------------------------------------------------- */

FIXTURE(busy)
{
	struct tow_timed timed;
	int queue;
	__u16 channel;			/* by the queue pair that notifies */
};

static int open_second(int queue, __u64 peer, __u16 *channel)
{
	struct tow_channel_open call;
	int ret = tow_channel_open(queue, peer, 1, &call);

	*channel = (__u16)call.channel;
	return ret;
}

FIXTURE_SETUP(busy)
{
	ASSERT_EQ(0, tow_timed_make(&self->timed));
	self->queue = self->timed.user.rings.made.fd;
	ASSERT_EQ(0, open_second(self->queue, self->timed.user.peer, &self->channel));
	ASSERT_NE(self->timed.user.channel, self->channel);
}

FIXTURE_TEARDOWN_PARENT(busy)
{
	EXPECT_EQ(0, tow_timed_restore(&self->timed));
}

/* A small WRITE by the second channel. */
static struct tow_sqe small(const struct tow_timed *timed, __u16 channel)
{
	struct tow_sqe sqe = move(timed, TOW_OP_WRITE, 4096, PIECE, 0);

	sqe.channel = channel;
	return sqe;
}

/* More than there may be at once: what a channel has goes back with it. */
TEST_F_TIMEOUT(busy, come_and_go, 60)
{
	struct tow_rings *rings = &self->timed.user.rings;
	__u16 channel = self->channel;
	struct tow_sqe sqe;
	int i;

	for (i = 0; i < COMINGS; i++) {
		sqe = small(&self->timed, channel);
		ASSERT_EQ(0, tow_rings_do(rings, &sqe));
		ASSERT_EQ(0, tow_channel_close(self->queue, channel));
		ASSERT_EQ(-EBADF, tow_rings_do(rings, &sqe));
		ASSERT_EQ(0, open_second(self->queue, self->timed.user.peer, &channel));
		ASSERT_GT(TOW_CHANNELS_MAX, channel);
	}
	expect_works(_metadata, &self->timed);
}

/* Taken, and not begun. */
TEST_F(busy, linked_behind_what_waits)
{
	struct tow_timed *timed = &self->timed;
	struct tow_rings *rings = &timed->user.rings;
	struct fate fates[2] = {};

	put(_metadata, rings, wait_for(timed, 1, 0), TOW_SQE_LINK, 0);
	put(_metadata, rings, small(timed, self->channel), TOW_SQE_SILENT, 1);
	submit(_metadata, rings, 2);
	EXPECT_EQ(-EBUSY, tow_channel_close(self->queue, self->channel));
	EXPECT_EQ(-EBUSY, tow_channel_close(self->queue, self->channel));
	/* The other one is not. */
	EXPECT_EQ(0, tow_channel_close(self->queue, timed->user.channel));
	ASSERT_EQ(0, go_on(timed));
	put(_metadata, rings, nop(0, 0), TOW_SQE_FENCE, 1);
	submit(_metadata, rings, 1);
	ASSERT_EQ(0, collect(rings, fates, 2, 2));
	EXPECT_EQ(0, fates[0].status);
	EXPECT_EQ(0, fates[1].status);
	EXPECT_EQ(0, tow_channel_close(self->queue, self->channel));
}

/* Its chain is cancelled: it ends without having begun. */
TEST_F(busy, cancelled)
{
	struct tow_timed *timed = &self->timed;
	struct tow_rings *rings = &timed->user.rings;
	struct fate fates[2] = {};

	put(_metadata, rings, wait_for(timed, 1, 20), TOW_SQE_LINK, 0);
	put(_metadata, rings, small(timed, self->channel), 0, 1);
	submit(_metadata, rings, 2);
	ASSERT_EQ(0, collect(rings, fates, 2, 2));
	EXPECT_EQ(-ETIMEDOUT, fates[0].status);
	EXPECT_EQ(-ECANCELED, fates[1].status);
	EXPECT_EQ(0, tow_channel_close(self->queue, self->channel));
}

/* The program was told, but it has its place until those before it have ended. */
TEST_F(busy, late_in_its_place)
{
	struct tow_timed *timed = &self->timed;
	struct tow_rings *rings = &timed->user.rings;
	struct fate fates[3] = {};
	struct tow_sqe late = small(timed, self->channel);

	late.timeout_ms = 1;
	put(_metadata, rings, wait_for(timed, 1, 0), TOW_SQE_LINK, 0);
	put(_metadata, rings, late, 0, 1);
	put(_metadata, rings, nop(0, 0), TOW_SQE_FENCE, 2);
	submit(_metadata, rings, 3);
	ASSERT_EQ(0, collect(rings, fates, 3, 1));
	EXPECT_EQ(1, fates[1].firsts);
	EXPECT_EQ(-ETIMEDOUT, fates[1].status);
	EXPECT_EQ(-EBUSY, tow_channel_close(self->queue, self->channel));
	ASSERT_EQ(0, go_on(timed));
	/* What waits for its place, too. */
	ASSERT_EQ(0, collect(rings, fates, 3, 2));
	EXPECT_EQ(1, fates[2].firsts);
	EXPECT_EQ(0, tow_channel_close(self->queue, self->channel));
}

/* A large one: HELD, as a rule.  What is known after the call: was it RELEASED before? */
static bool close_held(struct __test_metadata *_metadata, FIXTURE_DATA(busy) *self, __u32 *ms)
{
	struct tow_timed *timed = &self->timed;
	struct tow_rings *rings = &timed->user.rings;
	struct tow_sqe sqe = move(timed, TOW_OP_WRITE, 4096, LARGE_BYTES - 4096, *ms);
	struct fate fate = {};
	struct tow_cqe cqe;
	bool known;
	int ret;

	sqe.channel = self->channel;
	put(_metadata, rings, sqe, 0, 0);
	submit(_metadata, rings, 1);
	ASSERT_EQ(0, tow_rings_wait(rings, &cqe));
	ASSERT_TRUE(note(&fate, &cqe, 0));
	if (!fate.held) {
		/* Late before any of it was sent, or done in time. */
		*ms = fate.status ? 2 * *ms : (*ms + 1) / 2;
		return false;
	}
	ret = tow_channel_close(self->queue, self->channel);
	known = !tow_rings_ready(rings);
	if (known) {
		EXPECT_EQ(-EBUSY, ret);
	}
	ASSERT_EQ(0, collect(rings, &fate, 1, 1));
	if (ret)
		EXPECT_EQ(0, tow_channel_close(self->queue, self->channel));
	ASSERT_EQ(0, open_second(self->queue, timed->user.peer, &self->channel));
	return known;
}

TEST_F_TIMEOUT(busy, held, 60)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	unsigned int i, known = 0;
	__u32 ms = 1;

	for (i = 0; !known && (i < TRIES || tow_patient(&patience)); i++)
		known += close_held(_metadata, self, &ms);
	EXPECT_LT(0, known);
	expect_works(_metadata, &self->timed);
}

/* Entries that name it and are wrong otherwise: each has ended when it says so. */
TEST_F(busy, whatever_is_wrong)
{
	struct tow_timed *timed = &self->timed;
	struct tow_rings *rings = &timed->user.rings;
	struct tow_sqe good = small(timed, self->channel);
	struct tow_sqe nowhere = good, lost = good, far = good, many = good;
	struct tow_sqe other = notify(timed);
	struct fate fates[3] = {};

	nowhere.region = ~0ULL;
	EXPECT_EQ(-EBADF, tow_rings_do(rings, &nowhere));
	lost.remote = ~0ULL;
	EXPECT_EQ(-EBADF, tow_rings_do(rings, &lost));
	far.remote_offset = LARGE_BYTES;
	EXPECT_EQ(-ERANGE, tow_rings_do(rings, &far));
	many.bytes = 1ULL << 62;
	EXPECT_EQ(-ERANGE, tow_rings_do(rings, &many));
	/* A slot is its first queue pair's. */
	ASSERT_EQ(0, go_on(timed));
	other.channel = timed->user.channel;
	EXPECT_EQ(-EINVAL, tow_rings_do(rings, &other));
	/* A chain is not begun at all. */
	put(_metadata, rings, good, TOW_SQE_LINK, 0);
	put(_metadata, rings, nowhere, TOW_SQE_LINK, 1);
	put(_metadata, rings, good, 0, 2);
	submit(_metadata, rings, 3);
	ASSERT_EQ(0, collect(rings, fates, 3, 3));
	EXPECT_EQ(-ECANCELED, fates[0].status);
	EXPECT_EQ(-EBADF, fates[1].status);
	EXPECT_EQ(-ECANCELED, fates[2].status);
	EXPECT_EQ(0, tow_channel_close(self->queue, self->channel));
	EXPECT_EQ(0, tow_channel_close(self->queue, timed->user.channel));
	EXPECT_EQ(-EBADF, tow_rings_do(rings, &good));
}

/* What does not name a channel is no business of that of an entry before it. */
TEST_F(busy, not_named)
{
	struct tow_timed *timed = &self->timed;
	struct tow_rings *rings = &timed->user.rings;
	struct tow_sqe sqe = small(timed, self->channel), odd = sqe;
	struct tow_sqe nothing = nop(0, 0), at_once = wait_for(timed, 0, 0);

	odd.operand = 1;
	EXPECT_EQ(0, tow_rings_do(rings, &sqe));
	EXPECT_EQ(0, tow_rings_do(rings, &nothing));
	EXPECT_EQ(0, tow_rings_do(rings, &at_once));
	EXPECT_EQ(-EINVAL, tow_rings_do(rings, &odd));
	EXPECT_EQ(0, tow_channel_close(self->queue, self->channel));
}

/* ---- with others at work --------------------------------------------------------------- */

FIXTURE(race)
{
	char name[NAME_MAX + 1];
	char interface[64];
	struct tow_user user;
	struct tow_mapped own, target;
	__u64 remote;
	int over;			/* threads are to end */
	__u32 channel;			/* that is opened and closed */
	unsigned int opened, closed, told, taken;
	int opener, closer, asker, enterer;	/* what was not as it must be; or -ENODEV */
};

static int make_race(FIXTURE_DATA(race) *self)
{
	int ret = tow_queue_fresh(POOL_BYTES);

	if (!ret)
		ret = tow_user_make(&self->user, ENTRIES, 0);
	if (!ret)
		ret = tow_make_target(&self->user, LARGE_BYTES, &self->own, &self->target,
				      &self->remote);
	self->channel = 1;
	return ret;
}

FIXTURE_SETUP(race)
{
	/* Looked up while the device is there: the later calls remember. */
	snprintf(self->name, sizeof(self->name), "%s", tow_test_device());
	snprintf(self->interface, sizeof(self->interface), "%s", tow_link_interface());
	ASSERT_EQ(0, make_race(self));
}

FIXTURE_TEARDOWN_PARENT(race)
{
	EXPECT_TRUE(tow_link_restore(self->name, self->interface))
		TH_LOG("%s does not come back", self->name);
}

static bool goes_on(FIXTURE_DATA(race) *self)
{
	return !__atomic_load_n(&self->over, __ATOMIC_ACQUIRE);
}

/* Until it has gone on so often, or has ended. */
static void await(const unsigned int *counter, unsigned int wanted, const int *ended)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);

	while (__atomic_load_n(counter, __ATOMIC_ACQUIRE) < wanted &&
	       !__atomic_load_n(ended, __ATOMIC_ACQUIRE) && tow_patient(&patience))
		sched_yield();
}

/* What a connection that ends at this moment may bring. */
static bool is_connections(int error)
{
	return error == -ESTALE || error == -ECONNRESET || error == -ECONNREFUSED ||
	       error == -ETIMEDOUT || error == -EHOSTUNREACH || error == -EAGAIN;
}

static void *open_it(void *arg)
{
	FIXTURE_DATA(race) *self = arg;
	struct tow_channel_open call;
	int ret;

	while (goes_on(self) && !self->opener) {
		ret = tow_channel_open(self->user.rings.made.fd, self->user.peer, 1, &call);
		if (!ret) {
			__atomic_store_n(&self->channel, call.channel, __ATOMIC_RELAXED);
			__atomic_add_fetch(&self->opened, 1, __ATOMIC_RELEASE);
		} else if (!is_connections(ret)) {
			__atomic_store_n(&self->opener, ret, __ATOMIC_RELEASE);
		}
	}
	return NULL;
}

static void *close_it(void *arg)
{
	FIXTURE_DATA(race) *self = arg;
	int ret;

	while (goes_on(self) && !self->closer) {
		ret = tow_channel_close(self->user.rings.made.fd,
					__atomic_load_n(&self->channel, __ATOMIC_RELAXED));
		if (!ret)
			__atomic_add_fetch(&self->closed, 1, __ATOMIC_RELEASE);
		else if (ret != -EBUSY && ret != -ENOENT)
			__atomic_store_n(&self->closer, ret, __ATOMIC_RELEASE);
	}
	return NULL;
}

static void *ask_for_events(void *arg)
{
	FIXTURE_DATA(race) *self = arg;
	struct tow_queue_event event;
	int ret;

	while (goes_on(self) && !self->asker) {
		event = (struct tow_queue_event){ .size = sizeof(event) };
		ret = tow_test_ioctl(self->user.rings.made.fd, TOW_IOCTL_QUEUE_EVENT, &event);
		if (ret)
			__atomic_store_n(&self->asker, ret, __ATOMIC_RELEASE);
		else if (event.peer)
			__atomic_add_fetch(&self->told, 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

/* A batch by a channel that comes and goes: what was not as it must be. */
static int enter_batch(FIXTURE_DATA(race) *self)
{
	struct tow_rings *rings = &self->user.rings;
	struct tow_cqe cqe;
	unsigned int i;
	int ret;

	for (i = 0; i < BATCH; i++) {
		struct tow_sqe sqe = tow_move(&self->user, TOW_OP_WRITE, self->own.made.handle,
					      (__u64)i * PIECE, self->remote,
					      (__u64)i * PIECE, PIECE);

		sqe.channel = (__u16)__atomic_load_n(&self->channel, __ATOMIC_RELAXED);
		sqe.flags = i % 3 ? 0 : TOW_SQE_LINK;
		if (!tow_rings_put(rings, &sqe))
			return -EXFULL;
	}
	ret = tow_rings_enter(rings, 0, 0);
	if (ret != BATCH)
		return ret < 0 ? ret : -EXFULL;
	for (i = 0; i < BATCH; i++) {
		ret = tow_rings_wait(rings, &cqe);
		if (ret)
			return ret;
		if (!cqe.status)
			__atomic_add_fetch(&self->taken, 1, __ATOMIC_RELEASE);
		else if (cqe.status != -EBADF && cqe.status != -ECANCELED &&
			 cqe.status != -ENODEV && !is_connections(cqe.status))
			return cqe.status;
	}
	return 0;
}

static void *enter_it(void *arg)
{
	FIXTURE_DATA(race) *self = arg;
	int ret;

	while (goes_on(self) && !self->enterer) {
		ret = enter_batch(self);
		if (ret)
			__atomic_store_n(&self->enterer, ret, __ATOMIC_RELEASE);
	}
	return NULL;
}

struct threads {
	pthread_t all[4];
};

static int begin_threads(FIXTURE_DATA(race) *self, struct threads *threads)
{
	int ret = pthread_create(&threads->all[0], NULL, open_it, self);

	if (!ret)
		ret = pthread_create(&threads->all[1], NULL, close_it, self);
	if (!ret)
		ret = pthread_create(&threads->all[2], NULL, ask_for_events, self);
	if (!ret)
		ret = pthread_create(&threads->all[3], NULL, enter_it, self);
	return -ret;
}

static void end_threads(FIXTURE_DATA(race) *self, struct threads *threads)
{
	size_t i;

	__atomic_store_n(&self->over, 1, __ATOMIC_RELEASE);
	for (i = 0; i < ARRAY_SIZE(threads->all); i++)
		pthread_join(threads->all[i], NULL);
}

/* One channel, which is opened, closed, and named by entries, all at once. */
TEST_F_TIMEOUT(race, open_close_enter, 60)
{
	struct threads threads;
	int ret;

	ASSERT_EQ(0, begin_threads(self, &threads));
	await(&self->taken, BATCH * BATCHES, &self->enterer);
	await(&self->closed, BATCHES, &self->closer);
	end_threads(self, &threads);
	EXPECT_EQ(0, self->opener);
	EXPECT_EQ(0, self->closer);
	EXPECT_EQ(0, self->asker);
	EXPECT_EQ(0, self->enterer);
	EXPECT_LT(0, self->taken);
	EXPECT_LE(BATCHES, self->closed);
	EXPECT_LE(self->closed, self->opened);
	/* All have ended: it is not busy, if it is there. */
	ret = tow_channel_close(self->user.rings.made.fd, self->channel);
	EXPECT_TRUE(!ret || ret == -ENOENT);
	EXPECT_EQ(0, tow_channel_close(self->user.rings.made.fd, self->user.channel));
}

/* The peer is lost again and again meanwhile. */
TEST_F_TIMEOUT(race, events, 120)
{
	struct threads threads;
	unsigned int i;
	__u64 peer;

	ASSERT_EQ(0, begin_threads(self, &threads));
	for (i = 0; i < ENDINGS; i++) {
		await(&self->closed, (i + 1) * WARM, &self->closer);
		EXPECT_EQ(0, tow_disconnect(self->user.fd, self->user.peer));
		tow_connect_self(self->user.fd, &peer);
	}
	end_threads(self, &threads);
	EXPECT_EQ(0, self->opener);
	EXPECT_EQ(0, self->closer);
	EXPECT_EQ(0, self->asker);
	EXPECT_EQ(0, self->enterer);
	EXPECT_LE(ENDINGS * WARM, self->closed);
	EXPECT_LT(0, self->told);
}

/* The device goes meanwhile: who calls is told, and what was under way ends. */
TEST_F_TIMEOUT(race, unplug, 120)
{
	struct threads threads;
	unsigned int i;

	for (i = 0; i < UNPLUGS; i++) {
		ASSERT_EQ(0, begin_threads(self, &threads));
		await(&self->closed, WARM, &self->closer);
		await(&self->taken, WARM, &self->enterer);
		ASSERT_TRUE(tow_link_del(self->name));
		/* Each finds out by itself. */
		await(&self->opened, UINT_MAX, &self->opener);
		await(&self->closed, UINT_MAX, &self->closer);
		await(&self->told, UINT_MAX, &self->asker);
		await(&self->taken, UINT_MAX, &self->enterer);
		end_threads(self, &threads);
		EXPECT_EQ(-ENODEV, self->opener);
		EXPECT_EQ(-ENODEV, self->closer);
		EXPECT_EQ(-ENODEV, self->asker);
		EXPECT_EQ(-ENODEV, self->enterer);
		munmap(self->own.at, self->own.bytes);
		munmap(self->target.at, self->target.bytes);
		tow_user_end(&self->user);
		ASSERT_TRUE(tow_link_restore(self->name, self->interface));
		memset(&self->over, 0, sizeof(*self) - offsetof(FIXTURE_DATA(race), over));
		ASSERT_EQ(0, make_race(self));
	}
}

TEST_HARNESS_MAIN
