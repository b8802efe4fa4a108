// SPDX-License-Identifier: GPL-2.0
/*
 * The end of a process, a descriptor, a handle, a device with entries under way: each
 * entry ends once, if anybody is there to see it; the connection stays, as others use
 * it; and memory goes to nobody else before the RDMA device is done with it.
 *
 * $TOW_COUNT (soak): how many processes are killed.
 */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include "tow_hotplug.h"
#include "tow_queue.h"

#define USUAL_KILLS	100
#define IN_FLIGHT	64		/* at least, when the process is killed */
#define ENTRIES		256U
#define PIECE		(8 * TOW_KB)	/* all of them are on their way at once */

#define SERVED_BYTES	(ENTRIES * PIECE)

FIXTURE(end)
{
	char name[NAME_MAX + 1];
	char interface[64];
	struct tow_user user;		/* has what others write to */
	struct tow_mapped target;
	__u32 epoch;
	uint64_t used;			/* bytes of the pool, by us */
};

#define POOL_BYTES	(8 * TOW_SLAB)

FIXTURE_SETUP(end)
{
	__u32 rights = TOW_RIGHT_READ | TOW_RIGHT_WRITE;
	__u64 exported;

	/* Looked up while the device is there: the later calls remember. */
	snprintf(self->name, sizeof(self->name), "%s", tow_test_device());
	snprintf(self->interface, sizeof(self->interface), "%s", tow_link_interface());
	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_user_make(&self->user, ENTRIES, 0));
	ASSERT_EQ(0, tow_mapped_make(self->user.fd, SERVED_BYTES, &self->target));
	ASSERT_EQ(0, tow_publish_for(self->user.fd, self->target.made.handle, "target",
				     SERVED_BYTES, rights, &exported));
	self->epoch = tow_peer_epoch(self->user.fd, self->user.peer);
	ASSERT_NE(0, self->epoch);
}

FIXTURE_TEARDOWN_PARENT(end)
{
	EXPECT_TRUE(tow_link_restore(self->name, self->interface))
		TH_LOG("%s does not come back", self->name);
}

/*
 * Take all that is left of the pool but what one region of a slab needs: who has one
 * afterwards has the memory of the one before.
 */
static int leave_one_slab(FIXTURE_DATA(end) *self)
{
	struct tow_region_create made, last = { .fd = -1 };
	int ret;

	while (!(ret = tow_region_create(self->user.fd, TOW_SLAB, &made))) {
		if (last.fd >= 0)
			close(last.fd);
		last = made;
	}
	if (ret != -ENOSPC || last.fd < 0)
		return -EXFULL;
	ret = tow_region_end(self->user.fd, &last);
	self->used = (tow_sysfs_get("pool_bytes") - TOW_SLAB) / TOW_SLAB * TOW_SLAB;
	return ret;
}

/* As many entries as the queue has. */
static int fill_up(struct tow_user *user, __u8 opcode, __u64 region, __u64 remote, size_t piece)
{
	__u32 i;

	for (i = 0; i < ENTRIES; i++) {
		/* Not neighbours, so that each goes by itself. */
		__u32 place = i * 89 % ENTRIES;
		struct tow_sqe sqe = tow_move(user, opcode, region, place * piece, remote,
					      place * piece, piece);

		sqe.user_data = i;
		if (!tow_rings_put(&user->rings, &sqe))
			return -EXFULL;
	}
	return tow_rings_enter(&user->rings, 0, 0) == (int)ENTRIES ? 0 : -EXFULL;
}

/* ---- processes that are killed ------------------------------------------------------------ */

/* What the one who is killed says in his last moment; shared memory. */
struct last_words {
	int error;
	__u32 in_flight;
};

static void *share(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

/* Reads into memory of his own, or writes from it, and dies of it. */
static void be_killed(__u8 opcode, struct last_words *words)
{
	struct tow_region_create made;
	struct tow_user user;
	__u64 remote;

	words->error = tow_user_make(&user, ENTRIES, 0);
	if (!words->error)
		words->error = tow_region_create(user.fd, SERVED_BYTES, &made);
	if (!words->error)
		words->error = tow_find_for(user.fd, user.peer, "target",
					    TOW_RIGHT_READ | TOW_RIGHT_WRITE, &remote);
	if (!words->error)
		words->error = fill_up(&user, opcode, made.handle, remote, PIECE);
	words->in_flight = ENTRIES - tow_rings_ready(&user.rings);
	raise(SIGKILL);
}

/*
 * The next owner of the memory: it is zero when he gets it, and stays what he makes of
 * it.  0, or a negative errno.
 */
static int own_after(int client, uint64_t seed)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	struct tow_mapped mapped;
	bool good;
	int ret;

	/* Not before the dead one's entries are done. */
	while ((ret = tow_mapped_make(client, SERVED_BYTES, &mapped)) == -ENOSPC &&
	       tow_patient(&patience))
		sched_yield();
	if (ret)
		return ret;
	good = tow_is_zero(mapped.at, mapped.bytes);
	tow_fill(mapped.at, mapped.bytes, seed);
	tow_test_sleep_ms(5);
	good = good && !tow_differs(mapped.at, mapped.bytes, seed);
	ret = tow_mapped_end(&mapped);
	return good ? ret : -EBADMSG;
}

/* ---- somebody who goes on all the while ---------------------------------------------------- */

struct bystander {
	bool stop;
	int error;
	unsigned int rounds, mismatches;
};

#define BYSTANDER_BYTES	TOW_SMALL_REGION

static int stand_by_once(struct tow_user *user, const struct tow_mapped *own,
			 const struct tow_mapped *other, __u64 remote, struct bystander *bystander)
{
	struct tow_sqe sqe = tow_move(user, TOW_OP_WRITE, own->made.handle, 0, remote, 0,
				      BYSTANDER_BYTES);
	uint64_t seed = bystander->rounds + 1;
	int ret;

	tow_fill(own->at, BYSTANDER_BYTES, seed);
	ret = tow_rings_do(&user->rings, &sqe);
	if (ret)
		return ret;
	bystander->mismatches += tow_differs(other->at, BYSTANDER_BYTES, seed) != 0;
	tow_fill(other->at, BYSTANDER_BYTES, seed + 1000);
	sqe.opcode = TOW_OP_READ;
	ret = tow_rings_do(&user->rings, &sqe);
	if (!ret)
		bystander->mismatches += tow_differs(own->at, BYSTANDER_BYTES, seed + 1000) != 0;
	bystander->rounds++;
	return ret;
}

static void be_bystander(struct bystander *bystander)
{
	__u32 rights = TOW_RIGHT_READ | TOW_RIGHT_WRITE;
	struct tow_mapped own, other;
	struct tow_user user;
	__u64 exported, remote;
	int ret;

	ret = tow_user_make(&user, 4, 0);
	if (!ret)
		ret = tow_mapped_make(user.fd, BYSTANDER_BYTES, &own);
	if (!ret)
		ret = tow_mapped_make(user.fd, BYSTANDER_BYTES, &other);
	if (!ret)
		ret = tow_publish_for(user.fd, other.made.handle, "bystander", BYSTANDER_BYTES,
				      rights, &exported);
	if (!ret)
		ret = tow_find_for(user.fd, user.peer, "bystander", rights, &remote);
	while (!ret && !__atomic_load_n(&bystander->stop, __ATOMIC_RELAXED))
		ret = stand_by_once(&user, &own, &other, remote, bystander);
	bystander->error = ret;
	_exit(0);
}

TEST_F_TIMEOUT(end, killed, 3600)
{
	int kills = tow_test_count(USUAL_KILLS), killed = 0, round, status;
	struct bystander *bystander = share(sizeof(*bystander));
	struct last_words *words = share(sizeof(*words));
	pid_t child, beside;

	ASSERT_TRUE(bystander && words);
	beside = fork();
	if (!beside)
		be_bystander(bystander);
	while (!__atomic_load_n(&bystander->rounds, __ATOMIC_RELAXED))
		tow_test_sleep_ms(10);
	ASSERT_EQ(0, leave_one_slab(self));
	/* A process that was too slow, so that less was under way, does not count. */
	for (round = 0; killed < kills && round < 2 * kills; round++) {
		memset(words, 0, sizeof(*words));
		child = fork();
		if (!child)
			be_killed(round & 1 ? TOW_OP_READ : TOW_OP_WRITE, words);
		/* Whoever needs his memory does not wait until he is buried. */
		ASSERT_EQ(0, waitid(P_PID, (id_t)child, &(siginfo_t){ 0 }, WEXITED | WNOWAIT));
		ASSERT_EQ(0, own_after(self->user.fd, (uint64_t)round + 1))
			TH_LOG("round %d", round);
		ASSERT_EQ(child, waitpid(child, &status, 0));
		ASSERT_EQ(0, words->error)
			TH_LOG("round %d: %s", round, strerror(-words->error));
		EXPECT_TRUE(WIFSIGNALED(status));
		killed += words->in_flight >= IN_FLIGHT;
	}
	EXPECT_EQ(kills, killed)
		TH_LOG("in %d rounds", round);
	EXPECT_EQ(0, bystander->error);
	bystander->stop = true;
	ASSERT_EQ(beside, waitpid(beside, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ(0, bystander->error);
	EXPECT_EQ(0, bystander->mismatches);
	EXPECT_LT(0, bystander->rounds);
	EXPECT_EQ(self->epoch, tow_peer_epoch(self->user.fd, self->user.peer));
	/* Only ours is left. */
	EXPECT_EQ(1, tow_sysfs_wait("stats/queues", 1));
}

/* ---- regions that are taken over from the dead ------------------------------------------- */

#define USUAL_HEIRS	4
#define KEPT_BYTES	(64 * TOW_MB)
#define KEPT_POOL	(KEPT_BYTES + 4 * TOW_SLAB)
#define KEPT_PIECE	(256 * TOW_KB)

/* Reads all of it from himself, has it published, and waits to be killed. */
static void be_testator(__u64 from, struct last_words *words)
{
	struct tow_sqe sqe = { .opcode = TOW_OP_READ, .bytes = KEPT_BYTES };
	struct tow_region_create made = {};
	struct tow_user user = {};
	__u64 exported;
	int ret;

	ret = tow_user_make(&user, ENTRIES, 0);
	if (!ret)
		ret = tow_region_create_named(user.fd, KEPT_BYTES, TOW_REGION_PERSISTENT, 60,
					      "kept", &made);
	if (!ret)
		ret = tow_publish_for(user.fd, made.handle, "kept", KEPT_BYTES,
				      TOW_RIGHT_READ | TOW_RIGHT_WRITE, &exported);
	if (!ret)
		ret = tow_find_for(user.fd, user.peer, "kept", TOW_RIGHT_READ, &from);
	sqe.channel = user.channel;
	sqe.region = made.handle;
	sqe.remote = from;
	if (!ret && (!tow_rings_put(&user.rings, &sqe) ||
		     tow_rings_enter(&user.rings, 0, 0) != 1))
		ret = -EXFULL;
	words->error = ret;
	__atomic_store_n(&words->in_flight, 1, __ATOMIC_RELEASE);
	pause();
	_exit(1);
}

/* Writes to what the testator has published, without a pause. */
static int write_to_kept(struct tow_user *user, const struct tow_mapped *own, __u64 *remote)
{
	struct tow_sqe sqe;
	__u32 i;
	int ret;

	ret = tow_find_for(user->fd, user->peer, "kept", TOW_RIGHT_WRITE, remote);
	for (i = 0; i < ENTRIES && !ret; i++) {
		sqe = tow_move(user, TOW_OP_WRITE, own->made.handle, 0, *remote,
			       i * KEPT_PIECE, KEPT_PIECE);
		if (!tow_rings_put(&user->rings, &sqe))
			ret = -EXFULL;
	}
	if (!ret && tow_rings_enter(&user->rings, 0, 0) != (int)ENTRIES)
		ret = -EXFULL;
	return ret;
}

/* At once; and nothing of what was under way changes a byte from then on. */
static int inherit(int client, uint64_t seed)
{
	struct tow_region_attach made;
	int ret = tow_region_attach(client, "kept", &made), close_ret;
	char *at;

	if (ret)
		return ret;
	at = tow_region_map(made.fd, KEPT_BYTES, PROT_READ | PROT_WRITE);
	if (at == MAP_FAILED)
		return -errno;
	tow_fill(at, KEPT_BYTES, seed);
	tow_test_sleep_ms(20);
	ret = tow_differs(at, KEPT_BYTES, seed) ? -EBADMSG : 0;
	munmap(at, KEPT_BYTES);
	close(made.fd);
	close_ret = tow_region_destroy(client, made.handle);
	return ret ? ret : close_ret;
}

/* Each of the writer's entries has ended: how many of them well. */
static int settle(struct tow_user *user)
{
	struct tow_cqe cqe;
	int i, good = 0;

	for (i = 0; i < (int)ENTRIES; i++) {
		if (tow_rings_wait(&user->rings, &cqe))
			return -ETIMEDOUT;
		good += !cqe.status;
	}
	return good;
}

/* SIGKILL, and ATTACH before the process has exited. */
TEST_F_TIMEOUT(end, taken_over_from_the_killed, 3600)
{
	int rounds = tow_test_count(USUAL_HEIRS), round, status, cut = 0;
	struct last_words *words = share(sizeof(*words));
	struct tow_mapped own;
	__u64 remote;
	pid_t child;

	ASSERT_TRUE(words);
	ASSERT_EQ(0, tow_sysfs_set("pool_bytes", KEPT_POOL));
	ASSERT_EQ(0, tow_mapped_make(self->user.fd, KEPT_PIECE, &own));
	for (round = 0; round < rounds; round++) {
		memset(words, 0, sizeof(*words));
		child = fork();
		if (!child)
			be_testator(0, words);
		while (!__atomic_load_n(&words->in_flight, __ATOMIC_ACQUIRE))
			tow_test_sleep_ms(1);
		ASSERT_EQ(0, words->error);
		ASSERT_EQ(0, write_to_kept(&self->user, &own, &remote));
		kill(child, SIGKILL);
		ASSERT_EQ(0, inherit(self->user.fd, (uint64_t)round + 1))
			TH_LOG("round %d", round);
		ASSERT_EQ(child, waitpid(child, &status, 0));
		status = settle(&self->user);
		ASSERT_LE(0, status);
		cut += status < (int)ENTRIES;
		EXPECT_EQ(-ESTALE, tow_end_handle(self->user.fd, TOW_IOCTL_RELEASE, remote));
	}
	/* Else nothing was under way. */
	EXPECT_LT(rounds / 2, cut);
	EXPECT_EQ(self->epoch, tow_peer_epoch(self->user.fd, self->user.peer));
}

/* ---- what the process itself closes ---------------------------------------------------------- */

/* Far more than can be on its way at once: some has not begun. */
#define LONG_PIECE	(64 * TOW_KB)

static int fill_up_long(struct tow_user *user, __u64 region, __u64 remote, size_t piece)
{
	__u32 i;

	for (i = 0; i < ENTRIES; i++) {
		size_t place = i % (SERVED_BYTES / piece) * piece;
		struct tow_sqe sqe = tow_move(user, TOW_OP_WRITE, region, place, remote, place,
					      piece);

		sqe.user_data = i;
		if (!tow_rings_put(&user->rings, &sqe))
			return -EXFULL;
	}
	return tow_rings_enter(&user->rings, 0, 0) == (int)ENTRIES ? 0 : -EXFULL;
}

/* How many ended in which way: each of them once. */
struct ends {
	unsigned int good, cancelled, stale, reset, gone, other;
};

/* All entries have ended: false, if that takes too long, or one did twice. */
static bool count_ends(struct tow_rings *rings, struct ends *ends)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	unsigned char seen[ENTRIES] = { 0 };
	struct tow_cqe cqe;
	__u32 i;

	memset(ends, 0, sizeof(*ends));
	while (tow_rings_ready(rings) < ENTRIES && tow_patient(&patience))
		tow_test_sleep_ms(1);
	/* None comes afterwards. */
	tow_test_sleep_ms(20);
	if (tow_rings_ready(rings) != ENTRIES)
		return false;
	for (i = 0; i < ENTRIES; i++) {
		cqe = tow_rings_look(rings, i);
		if (cqe.user_data >= ENTRIES || seen[cqe.user_data]++)
			return false;
		ends->good += !cqe.status;
		ends->cancelled += cqe.status == -ECANCELED;
		ends->stale += cqe.status == -ESTALE;
		ends->reset += cqe.status == -ECONNRESET;
		ends->gone += cqe.status == -ENODEV;
	}
	ends->other = ENTRIES - ends->good - ends->cancelled - ends->stale - ends->reset -
		      ends->gone;
	return true;
}

/* Another client of this process, with a region, and the target found. */
struct runner {
	struct tow_user user;
	struct tow_mapped own;
	__u64 remote;
};

static int runner_make(struct runner *runner)
{
	int ret = tow_user_make(&runner->user, ENTRIES, 0);

	if (!ret)
		ret = tow_mapped_make(runner->user.fd, SERVED_BYTES, &runner->own);
	if (!ret)
		ret = tow_find_for(runner->user.fd, runner->user.peer, "target", TOW_RIGHT_WRITE,
				   &runner->remote);
	return ret;
}

static int runner_start_with(FIXTURE_DATA(end) *self, struct runner *runner, size_t piece)
{
	int ret = leave_one_slab(self);

	if (!ret)
		ret = runner_make(runner);
	return ret ? ret : fill_up_long(&runner->user, runner->own.made.handle, runner->remote,
					piece);
}

static int runner_start(FIXTURE_DATA(end) *self, struct runner *runner)
{
	return runner_start_with(self, runner, LONG_PIECE);
}

/* Of the region but the handle. */
static void runner_forget(struct runner *runner)
{
	munmap(runner->own.at, runner->own.bytes);
	close(runner->own.made.fd);
}

/* All of what somebody had is gone, with the connection as it was. */
static void expect_gone(struct __test_metadata *_metadata, FIXTURE_DATA(end) *self)
{
	EXPECT_EQ(1, tow_sysfs_wait("stats/queues", 1));
	EXPECT_EQ(self->used, tow_sysfs_wait("pool_used_bytes", self->used));
	EXPECT_EQ(self->epoch, tow_peer_epoch(self->user.fd, self->user.peer));
}

/* The mapping stays, and shows how each of them ended. */
TEST_F(end, queue_closed)
{
	struct runner runner;
	struct ends ends;

	ASSERT_EQ(0, runner_start(self, &runner));
	close(runner.user.rings.made.fd);
	/* What keeps the memory mapped keeps the queue: it has not been closed. */
	EXPECT_TRUE(count_ends(&runner.user.rings, &ends));
	EXPECT_EQ(ENTRIES, ends.good);
	munmap(runner.user.rings.ring, runner.user.rings.made.map_bytes);
	EXPECT_EQ(1, tow_sysfs_wait("stats/queues", 1));
	EXPECT_EQ(0, tow_mapped_end(&runner.own));
	close(runner.user.fd);
	expect_gone(_metadata, self);
}

/* Mapping and descriptor, at once. */
TEST_F(end, queue_closed_and_unmapped)
{
	struct runner runner;

	ASSERT_EQ(0, runner_start(self, &runner));
	tow_rings_end(&runner.user.rings);
	EXPECT_EQ(0, tow_mapped_end(&runner.own));
	expect_gone(_metadata, self);
	close(runner.user.fd);
	/* Those which were sent stopped some time, and did not stop others. */
	EXPECT_EQ(0, own_after(self->user.fd, 1));
}

#define TRIES	8

/* How many entries were cancelled. */
static unsigned int close_device(struct __test_metadata *_metadata, FIXTURE_DATA(end) *self)
{
	struct pollfd waiter = { .events = 0 };
	struct runner runner;
	struct ends ends = { 0 };

	EXPECT_EQ(0, runner_start(self, &runner));
	close(runner.user.fd);
	EXPECT_TRUE(count_ends(&runner.user.rings, &ends));
	EXPECT_EQ(ENTRIES, ends.good + ends.cancelled);
	TH_LOG("%u had begun, %u were cancelled", ends.good, ends.cancelled);
	waiter.fd = runner.user.rings.made.fd;
	EXPECT_EQ(1, poll(&waiter, 1, 0));
	EXPECT_EQ(POLLERR | POLLHUP, waiter.revents);
	EXPECT_EQ(-EPERM, tow_enter(runner.user.rings.made.fd, 1, 0, 0));
	runner_forget(&runner);
	tow_rings_end(&runner.user.rings);
	expect_gone(_metadata, self);
	return ends.cancelled;
}

/*
 * The client ends: what had not begun is cancelled.  Who closes it may have to wait for a
 * processor until all has begun.
 */
TEST_F_TIMEOUT(end, device_closed, 60)
{
	unsigned int cancelled = 0, tries;

	for (tries = 0; tries < TRIES && !cancelled; tries++)
		cancelled = close_device(_metadata, self);
	EXPECT_LT(0, cancelled);
}

/* A handle is given up while entries use it: they go on, and hold what they need. */
TEST_F(end, region_destroyed)
{
	struct runner runner;
	struct ends ends;

	ASSERT_EQ(0, runner_start(self, &runner));
	ASSERT_EQ(0, tow_mapped_end(&runner.own));
	/* Nobody else has it meanwhile. */
	EXPECT_EQ(0, own_after(self->user.fd, 1));
	EXPECT_TRUE(count_ends(&runner.user.rings, &ends));
	EXPECT_EQ(ENTRIES, ends.good);
	tow_user_end(&runner.user);
	expect_gone(_metadata, self);
}

TEST_F(end, remote_range_released)
{
	struct runner runner;
	struct ends ends;

	ASSERT_EQ(0, runner_start(self, &runner));
	ASSERT_EQ(0, tow_end_handle(runner.user.fd, TOW_IOCTL_RELEASE, runner.remote));
	EXPECT_TRUE(count_ends(&runner.user.rings, &ends));
	EXPECT_EQ(ENTRIES, ends.good + ends.stale);
	EXPECT_EQ(0, tow_mapped_end(&runner.own));
	tow_user_end(&runner.user);
	expect_gone(_metadata, self);
}

/* ---- the end of the device -------------------------------------------------------------------- */

struct waiter {
	struct tow_rings *rings;
	short polled;
	int entered;
	pthread_t poller, enterer;
};

static void *poll_for_end(void *arg)
{
	struct waiter *waiter = arg;
	struct pollfd fd = { .fd = waiter->rings->made.fd, .events = 0 };

	poll(&fd, 1, TOW_WAIT_MS);
	waiter->polled = fd.revents;
	return NULL;
}

/* For more than there will be. */
static void *enter_for_end(void *arg)
{
	struct waiter *waiter = arg;

	waiter->entered = tow_enter(waiter->rings->made.fd, 0, ENTRIES + 1, TOW_LONG_US);
	return NULL;
}

/* Every entry ends once, and whoever waits is woken. */
TEST_F_TIMEOUT(end, device_removed, 60)
{
	struct waiter waiter;
	struct runner runner;
	struct ends ends;
	double start, end;

	/* rdma(8) takes a while to start: half a gigabyte takes longer. */
	ASSERT_EQ(0, runner_start_with(self, &runner, SERVED_BYTES));
	waiter.rings = &runner.user.rings;
	ASSERT_EQ(0, pthread_create(&waiter.poller, NULL, poll_for_end, &waiter));
	ASSERT_EQ(0, pthread_create(&waiter.enterer, NULL, enter_for_end, &waiter));
	start = tow_test_now();
	ASSERT_TRUE(tow_link_del(self->name));
	end = tow_test_now();
	ASSERT_EQ(0, pthread_join(waiter.poller, NULL));
	ASSERT_EQ(0, pthread_join(waiter.enterer, NULL));
	EXPECT_EQ(POLLERR | POLLHUP, waiter.polled);
	EXPECT_EQ(-ENODEV, waiter.entered);
	EXPECT_TRUE(count_ends(&runner.user.rings, &ends));
	EXPECT_EQ(0, ends.other);
	EXPECT_EQ(0, ends.cancelled);
	EXPECT_GT(ENTRIES, ends.good);
	TH_LOG("%u had ended; connection lost: %u; stale: %u; no device: %u", ends.good,
	       ends.reset, ends.stale, ends.gone);
	EXPECT_EQ(-ENODEV, tow_enter(runner.user.rings.made.fd, 1, 0, 0));
	runner_forget(&runner);
	tow_user_end(&runner.user);
	TOW_WITHIN_AT(start, end, 15000);
}

TEST_HARNESS_MAIN
