// SPDX-License-Identifier: GPL-2.0
/*
 * Groups against the real module: the ranks are processes of one node, which meet, tell each
 * other things, and do not come, are too many, disagree, or end.
 */
/* build: link -ltowline */
#include <sys/time.h>

#include "tow_ranks.h"

#define WAIT_MS		20000U
/* Of those who wait in vain. */
#define SOON_MS		5000U
/* Of those who stand still when the others give up. */
#define LATE_MS		4000U
#define RANKS_MAX	8
#define ROUNDS		5

/* How a process takes part; what is 0 is as usual. */
struct part {
	uint32_t rank, ranks, restart;
	uint32_t timeout_ms;
	const char *name;
	int want;			/* from tow_group_create() */
	uint32_t blamed;		/* then */
	int (*then)(struct tow_group *group);
	bool gathers;			/* by the test's own way */
	int status;			/* what it says that it cannot take part for */
	const char *root;
};

/* What all processes see. */
struct board {
	_Atomic uint32_t there;		/* who have met */
	_Atomic uint32_t go_on;		/* those who wait for that */
	_Atomic uint32_t calls;
	unsigned char told[RANKS_MAX][TOW_GROUP_GATHER_MAX];
};

FIXTURE(group)
{
	struct tow_ranks ranks;
};

static struct board *board;

FIXTURE_SETUP(group)
{
	ASSERT_EQ(0, tow_ranks_begin(&self->ranks, TOW_PEER_POOL));
	board = tow_ranks_share(sizeof(*board));
	ASSERT_TRUE(board);
}

FIXTURE_TEARDOWN(group)
{
	tow_ranks_end(&self->ranks);
	munmap(board, sizeof(*board));
}

/* ---- what the ranks do ---- */

/* As all ranks of a node could do by themselves. */
static int own_gather(void *arg, const void *mine, size_t bytes, void *all)
{
	uint32_t rank = *(uint32_t *)arg, ranks = ((uint32_t *)arg)[1];
	uint32_t round = atomic_load(&board->calls) / ranks;

	memcpy(board->told[rank], mine, bytes);
	atomic_fetch_add(&board->calls, 1);
	if (!tow_becomes(&board->calls, (round + 1) * ranks))
		return -ETIMEDOUT;
	for (uint32_t i = 0; i < ranks; i++)
		memcpy((char *)all + i * bytes, board->told[i], bytes);
	return 0;
}

static int no_gather(void *arg, const void *mine, size_t bytes, void *all)
{
	(void)arg;
	(void)mine;
	(void)bytes;
	(void)all;
	return -EHWPOISON;
}

static int take_part(const void *arg, const char *session)
{
	const struct part *part = arg;
	struct tow_group_attr attr = { .size = sizeof(attr), .name = part->name };
	struct tow_world world = { .size = sizeof(world), .rank = part->rank,
				   .world_size = part->ranks, .local_rank = part->rank,
				   .restart = part->restart };
	uint32_t who[] = { part->rank, part->ranks }, blamed = 0x5a5a5a5a;
	struct tow_device *dev = NULL;
	struct tow_group *group = NULL;
	int ret;

	snprintf(world.session, sizeof(world.session), "%s", session);
	attr.timeout_ms = part->timeout_ms ? part->timeout_ms : WAIT_MS;
	attr.gather = part->gathers ? own_gather : NULL;
	attr.arg = who;
	attr.status = part->status;
	snprintf(world.root, sizeof(world.root), "%s", part->root ? part->root : "");
	if (!part->status && tow_device_open(tow_test_device(), 0, &dev))
		return 10;
	ret = tow_group_create(dev, &world, &attr, &group, &blamed);
	if (ret != part->want || !group != !!ret) {
		fprintf(stderr, "# rank %u: %d, blamed %d\n", part->rank, ret, (int)blamed);
		return 11;
	}
	if (blamed != (part->blamed || part->want == -ETIMEDOUT ? part->blamed : TOW_NO_RANK))
		return 12;
	ret = 0;
	if (group) {
		atomic_fetch_add(&board->there, 1);
		ret = part->then ? part->then(group) : 0;
	}
	tow_group_destroy(group);
	tow_device_close(dev);
	return ret;
}

/* ---- they meet ---- */

/* What is shared with a child is not its own. */
static bool child_may_not(struct tow_group *group)
{
	int status = -1;
	pid_t pid = fork();

	if (!pid) {
		bool refused = tow_group_gather(group, NULL, 0, NULL, NULL) == -EPERM;

		tow_group_destroy(group);
		_exit(!refused);
	}
	return waitpid(pid, &status, 0) == pid && !status;
}

/* Rounds of each size, told apart by what is in them. */
static int tell_each_other(struct tow_group *group)
{
	static const size_t sizes[] = { 8, 1, TOW_GROUP_GATHER_MAX, 0, 100 };
	uint32_t rank = tow_group_rank(group), ranks = tow_group_size(group), blamed;
	unsigned char mine[TOW_GROUP_GATHER_MAX], all[RANKS_MAX * TOW_GROUP_GATHER_MAX];

	if (!child_may_not(group))
		return 22;
	for (int round = 0; round < ROUNDS * (int)ARRAY_SIZE(sizes); round++) {
		size_t bytes = sizes[round % (int)ARRAY_SIZE(sizes)];

		/* Some are late. */
		usleep((useconds_t)((rank * 7 + (uint32_t)round) % 3) * 1000);
		memset(mine, (int)rank * 16 + round, bytes);
		if (tow_group_gather(group, bytes ? mine : NULL, bytes, bytes ? all : NULL, &blamed) ||
		    blamed != TOW_NO_RANK)
			return 20;
		for (size_t i = 0; i < ranks * bytes; i++)
			if (all[i] != (unsigned char)(i / bytes * 16 + (size_t)round))
				return 21;
	}
	return 0;
}

static int know_peers(struct tow_group *group)
{
	struct tow_peer_info info = { .size = sizeof(info) };
	struct tow_peer *peer = NULL, *other = NULL;

	for (uint32_t rank = 0; rank < tow_group_size(group); rank++) {
		if (tow_group_peer(group, rank, rank ? &other : &peer))
			return 30;
		if (rank && other != peer)
			return 31;
	}
	if (tow_peer_info(peer, &info) || !(info.flags & TOW_PEER_LOOPBACK) ||
	    info.state != TOW_PEER_READY)
		return 32;
	return tow_group_peer(group, tow_group_size(group), &peer) == -EINVAL &&
	       tow_group_peer(group, 0, NULL) == -EINVAL && tow_group_peer(NULL, 0, &peer) == -EINVAL ?
	       0 : 33;
}

static void all_take_part(struct __test_metadata *_metadata, FIXTURE_DATA(group) *self,
			  struct part part)
{
	for (part.rank = part.ranks; part.rank--;)
		tow_ranks_start(&self->ranks, take_part, &part);
	for (uint32_t i = 0; i < part.ranks; i++)
		EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, i));
}

TEST_F(group, tells_all)
{
	all_take_part(_metadata, self, (struct part){ .ranks = 4, .then = tell_each_other });
}

TEST_F(group, of_many)
{
	all_take_part(_metadata, self, (struct part){ .ranks = RANKS_MAX, .then = tell_each_other });
}

TEST_F(group, of_one)
{
	all_take_part(_metadata, self, (struct part){ .ranks = 1, .then = tell_each_other });
}

TEST_F(group, has_peers)
{
	all_take_part(_metadata, self, (struct part){ .ranks = 3, .then = know_peers });
}

TEST_F(group, by_the_callers_way)
{
	all_take_part(_metadata, self,
		      (struct part){ .ranks = 3, .then = know_peers, .gathers = true });
	EXPECT_EQ(3, atomic_load(&board->calls));
}

/* One has no device: all are told at once why. */
TEST_F(group, of_which_one_cannot)
{
	struct part part = { .ranks = 3, .gathers = true, .want = -ENOPKG };

	for (part.rank = 0; part.rank < 3; part.rank++) {
		part.status = part.rank == 1 ? -ENOPKG : 0;
		part.blamed = part.rank == 1 ? 0 : 1;
		tow_ranks_start(&self->ranks, take_part, &part);
	}
	for (uint32_t i = 0; i < 3; i++)
		EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, i));
}

/* Loopback addresses are this node. */
TEST_F(group, by_loopback)
{
	all_take_part(_metadata, self,
		      (struct part){ .ranks = 3, .then = know_peers, .root = "127.0.1.1" });
}

TEST_F(group, by_loopback_of_ipv6)
{
	all_take_part(_metadata, self,
		      (struct part){ .ranks = 3, .then = know_peers, .root = "::1" });
}

static void nothing(int number)
{
	(void)number;
}

static int count_asked(void *arg)
{
	++*(uint32_t *)arg;
	return 1;
}

/* While others are waited for a signal ends nothing, unless that is wanted. */
static int wait_in_vain(const void *arg, const char *session)
{
	struct tow_group_attr attr = { .size = sizeof(attr), .timeout_ms = 1000 };
	struct tow_world world = { .size = sizeof(world), .rank = *(const uint32_t *)arg,
				   .world_size = 2 };
	struct itimerval soon = { .it_value.tv_usec = 20000, .it_interval.tv_usec = 20000 };
	struct sigaction action = { .sa_handler = nothing };
	struct tow_device *dev = NULL;
	struct tow_group *group = NULL;
	uint32_t asked = 0;
	int ret;

	snprintf(world.session, sizeof(world.session), "%s %u", session, world.rank);
	sigaction(SIGALRM, &action, NULL);
	if (tow_device_open(tow_test_device(), 0, &dev) || setitimer(ITIMER_REAL, &soon, NULL))
		return 10;
	ret = tow_group_create(dev, &world, &attr, &group, NULL);
	if (ret != -ETIMEDOUT) {
		fprintf(stderr, "# rank %u: %d\n", world.rank, ret);
		return 11;
	}
	attr.timeout_ms = TOW_WAIT_FOREVER;
	tow_on_signal(count_asked, &asked);
	ret = tow_group_create(dev, &world, &attr, &group, NULL);
	setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, NULL);
	tow_device_close(dev);
	return ret == -EINTR && asked && !group ? 0 : 12;
}

TEST_F(group, under_signals)
{
	for (uint32_t rank = 0; rank < 2; rank++)
		tow_ranks_start(&self->ranks, wait_in_vain, &rank);
	EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, 0));
	EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, 1));
}

/* Two jobs of one name, of which neither has met: both say so. */
TEST_F(group, not_with_a_namesake)
{
	struct part part = { .ranks = 2, .want = -EEXIST };

	for (int job = 0; job < 2; job++)
		tow_ranks_start(&self->ranks, take_part, &part);
	EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, 0));
	EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, 1));
}

/* Runs, starts, and groups of a run at the same time. */
TEST_F(group, not_with_others)
{
	struct part part = { .ranks = 2, .then = tell_each_other };

	for (part.rank = 0; part.rank < 2; part.rank++) {
		part.restart = 0;
		part.name = NULL;
		tow_ranks_start(&self->ranks, take_part, &part);
		part.name = "other";
		tow_ranks_start(&self->ranks, take_part, &part);
		part.restart = 1;
		tow_ranks_start(&self->ranks, take_part, &part);
	}
	for (uint32_t i = 0; i < 6; i++)
		EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, i));
}

/* ---- they do not ---- */

TEST_F(group, without_one)
{
	struct part part = { .ranks = 3, .timeout_ms = SOON_MS, .want = -ETIMEDOUT, .blamed = 2 };

	for (part.rank = 0; part.rank < 2; part.rank++)
		tow_ranks_start(&self->ranks, take_part, &part);
	EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, 0));
	EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, 1));
}

/* Who stands still just when the first one gives up hears of the right one all the same. */
TEST_F_TIMEOUT(group, without_one_and_late, 60)
{
	struct part part = { .ranks = 3, .timeout_ms = SOON_MS, .want = -ETIMEDOUT, .blamed = 2 };

	for (part.rank = 0; part.rank < 2; part.rank++)
		tow_ranks_start(&self->ranks, take_part, &part);
	usleep((SOON_MS - 1000) * 1000);
	kill(self->ranks.pids[1], SIGSTOP);
	usleep((1000 + LATE_MS) * 1000);
	kill(self->ranks.pids[1], SIGCONT);
	EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, 0));
	EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, 1));
}

/* Whose time is over asks who is missing, and that is the end for all. */
TEST_F(group, without_one_and_in_a_hurry)
{
	struct part part = { .ranks = 3, .want = -ETIMEDOUT, .blamed = 2 };
	double begin = tow_test_now();

	for (part.rank = 0; part.rank < 2; part.rank++) {
		part.timeout_ms = part.rank ? SOON_MS : 0;
		tow_ranks_start(&self->ranks, take_part, &part);
	}
	EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, 1));
	EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, 0));
	TOW_WITHIN(begin, 2 * SOON_MS);
}

TEST_F(group, without_the_first)
{
	struct part part = { .rank = 1, .ranks = 2, .timeout_ms = SOON_MS, .want = -ETIMEDOUT };

	tow_ranks_start(&self->ranks, take_part, &part);
	EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, 0));
}

static int wait_to_go_on(struct tow_group *group)
{
	(void)group;
	return tow_becomes(&board->go_on, 1) ? 0 : 40;
}

TEST_F(group, nobody_twice)
{
	struct part part = { .ranks = 2, .then = wait_to_go_on };

	for (part.rank = 0; part.rank < 2; part.rank++)
		tow_ranks_start(&self->ranks, take_part, &part);
	ASSERT_TRUE(tow_becomes(&board->there, 2));
	part.want = -EEXIST;
	for (part.rank = 0; part.rank < 2; part.rank++) {
		tow_ranks_start(&self->ranks, take_part, &part);
		EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, 2 + part.rank));
	}
	atomic_store(&board->go_on, 1);
	EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, 0));
	EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, 1));
}

TEST_F_TIMEOUT(group, that_disagrees, 60)
{
	/* The second is to come meanwhile. */
	struct part first = { .ranks = 2, .timeout_ms = 3 * SOON_MS, .want = -ETIMEDOUT,
			      .blamed = 1 };
	struct part second = { .rank = 1, .ranks = 3, .want = -EPROTO };

	tow_ranks_start(&self->ranks, take_part, &first);
	tow_ranks_start(&self->ranks, take_part, &second);
	EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, 1));
	EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, 0));
}

/* ---- they end ---- */

static int fails_ever_after(struct tow_group *group, int error, uint32_t who)
{
	uint32_t blamed;
	int ret;

	if (!tow_becomes(&board->go_on, 1))
		return 50;
	ret = tow_group_gather(group, NULL, 0, NULL, &blamed);
	if (error ? ret != error : ret != -ESTALE && ret != -ECONNRESET) {
		fprintf(stderr, "# %d\n", ret);
		return 51;
	}
	if (blamed != who)
		return 52;
	return tow_group_gather(group, NULL, 0, NULL, NULL) == ret ? 0 : 53;
}

static int second_ends(struct tow_group *group)
{
	if (tow_group_rank(group) == 1)
		pause();
	return fails_ever_after(group, -ESTALE, 1);
}

static int first_ends(struct tow_group *group)
{
	if (!tow_group_rank(group))
		pause();
	return fails_ever_after(group, 0, 0);
}

static void kill_one(struct __test_metadata *_metadata, FIXTURE_DATA(group) *self, uint32_t which,
		     int (*then)(struct tow_group *group))
{
	struct part part = { .ranks = 3, .timeout_ms = 2 * SOON_MS, .then = then };

	for (; part.rank < 3; part.rank++)
		tow_ranks_start(&self->ranks, take_part, &part);
	ASSERT_TRUE(tow_becomes(&board->there, 3));
	kill(self->ranks.pids[which], SIGKILL);
	EXPECT_EQ(SIGKILL, tow_ranks_end_of(&self->ranks, which));
	atomic_store(&board->go_on, 1);
	for (uint32_t i = 0; i < 3; i++)
		if (i != which)
			EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, i));
}

TEST_F(group, that_lost_one)
{
	kill_one(_metadata, self, 1, second_ends);
}

TEST_F(group, that_lost_the_first)
{
	kill_one(_metadata, self, 0, first_ends);
}

/* ---- arguments ---- */

TEST_F(group, arguments)
{
	struct tow_world world = { .size = sizeof(world), .world_size = 1 }, wrong = world;
	struct tow_group_attr attr = { .size = sizeof(attr), .name = self->ranks.session };
	char long_name[TOW_GROUP_NAME_MAX + 2], data[TOW_GROUP_GATHER_MAX + 1] = { 0 };
	struct tow_device *dev = NULL;
	struct tow_group *group = NULL;
	uint32_t blamed = 0;

	ASSERT_EQ(0, tow_device_open(tow_test_device(), 0, &dev));
	EXPECT_EQ(-EINVAL, tow_group_create(NULL, &world, &attr, &group, &blamed));
	EXPECT_EQ(TOW_NO_RANK, blamed);
	EXPECT_EQ(-EINVAL, tow_group_create(dev, NULL, &attr, &group, NULL));
	EXPECT_EQ(-EINVAL, tow_group_create(dev, &world, &attr, NULL, NULL));
	wrong.rank = 1;
	EXPECT_EQ(-EINVAL, tow_group_create(dev, &wrong, &attr, &group, NULL));
	wrong.world_size = TOW_RANKS_MAX + 1;
	EXPECT_EQ(-EINVAL, tow_group_create(dev, &wrong, &attr, &group, NULL));
	wrong = world;
	wrong.size--;
	EXPECT_EQ(-EINVAL, tow_group_create(dev, &wrong, &attr, &group, NULL));
	wrong = world;
	memset(wrong.session, 'a', sizeof(wrong.session));
	EXPECT_EQ(-EINVAL, tow_group_create(dev, &wrong, &attr, &group, NULL));
	memset(long_name, 'a', sizeof(long_name));
	long_name[TOW_GROUP_NAME_MAX + 1] = '\0';
	attr.name = long_name;
	EXPECT_EQ(-EINVAL, tow_group_create(dev, &world, &attr, &group, NULL));
	attr.name = NULL;
	attr.gather = no_gather;
	EXPECT_EQ(-EHWPOISON, tow_group_create(dev, &world, &attr, &group, NULL));
	EXPECT_EQ(NULL, (void *)group);
	ASSERT_EQ(0, tow_group_create(dev, &world, NULL, &group, &blamed));
	EXPECT_EQ(TOW_NO_RANK, blamed);
	EXPECT_EQ(-EINVAL, tow_group_gather(NULL, data, 1, data, NULL));
	EXPECT_EQ(-EINVAL, tow_group_gather(group, NULL, 1, data, NULL));
	EXPECT_EQ(-EINVAL, tow_group_gather(group, data, 1, NULL, NULL));
	EXPECT_EQ(-EINVAL, tow_group_gather(group, data, sizeof(data), data, NULL));
	EXPECT_EQ(0, tow_group_gather(group, NULL, 0, NULL, NULL));
	tow_group_destroy(group);
	tow_group_destroy(NULL);
	tow_device_close(dev);
}

TEST_HARNESS_MAIN
