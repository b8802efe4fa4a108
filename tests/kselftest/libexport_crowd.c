// SPDX-License-Identifier: GPL-2.0
/*
 * 100,000 exports of one process: each is found, the last costs what the first did,
 * and all of them are gone with their process.
 */
/* build: link -ltowline */
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>

#include "tow_libpeer.h"

#define CROWD		100000
/* With all checks on: what takes some seconds there. */
#define CROWD_DEBUG	20000
/* The first so many, and the last, in batches, of which the fastest counts. */
#define ENDS		1000
#define BATCH		50
/*
 * A table that is searched from its beginning makes the last exports ten times as
 * expensive and more, even where every check of the kernel's slows the first ones.
 */
#define GROWTH		3.0

/* Seconds for the fastest batch. */
struct cost {
	double exports;
	double queries;	/* what the table is nothing to */
};

/* What the publisher tells. */
struct told {
	struct cost first;
	struct cost last;
};

static int crowd_size(void)
{
	return tow_test_slow() ? CROWD_DEBUG : CROWD;
}

/* @count exports from number @from on: 0 or a negative errno. */
static int publish(struct tow_region *region, int from, int count)
{
	struct tow_exported *exported;
	char name[16];
	int ret = 0;

	for (int i = from; !ret && i < from + count; i++) {
		snprintf(name, sizeof(name), "crowd%d", i);
		ret = tow_export(region, 0, (uint64_t)(i + 1) % TOW_PEER_REGION + 1, name,
				 TOW_RIGHT_READ, &exported);
	}
	return ret;
}

/* A batch of questions that any process may ask: 0 or a negative errno. */
static int ask(struct tow_device *dev)
{
	int ret = 0;

	for (int i = 0; !ret && i < BATCH; i++) {
		struct tow_device_attr attr = { .size = sizeof(attr) };

		ret = tow_device_query(dev, &attr);
	}
	return ret;
}

static void keep_least(double *least, double seconds)
{
	if (seconds < *least)
		*least = seconds;
}

/*
 * ENDS exports from number @from on.  The two ends are some seconds apart, and the host
 * may have more to do by then: so beside each batch there is one of something else.
 */
static int measure(struct tow_device *dev, struct tow_region *region, int from,
		   struct cost *cost)
{
	int ret = 0;

	*cost = (struct cost) { .exports = 1e9, .queries = 1e9 };
	for (int i = from; !ret && i < from + ENDS; i += BATCH) {
		double start = tow_test_now(), between;

		ret = publish(region, i, BATCH);
		between = tow_test_now();
		keep_least(&cost->exports, between - start);
		if (!ret)
			ret = ask(dev);
		keep_least(&cost->queries, tow_test_now() - between);
	}
	return ret;
}

static bool publish_crowd(int count, struct told *told)
{
	struct tow_region *region;
	struct tow_device *dev;

	if (tow_device_open(tow_test_device(), 0, &dev) ||
	    tow_region_create(dev, TOW_PEER_REGION, NULL, &region))
		return false;
	return !measure(dev, region, 0, &told->first) &&
	       !publish(region, ENDS, count - 2 * ENDS) &&
	       !measure(dev, region, count - ENDS, &told->last);
}

/* Publishes all, says so, and waits to be killed. */
static pid_t start_crowd(int count, int *ready)
{
	struct told told;
	int ends[2];
	pid_t child;

	if (pipe2(ends, O_CLOEXEC))
		return -1;
	child = fork();
	if (child) {
		close(ends[1]);
		*ready = ends[0];
		return child;
	}
	if (!publish_crowd(count, &told) ||
	    write(ends[1], &told, sizeof(told)) != sizeof(told))
		_exit(1);
	for (;;)
		pause();
}

TEST_F_TIMEOUT(peer, a_crowd_of_exports, 170)
{
	int status, ready, count = crowd_size();
	int wanted[] = { 0, count / 2, count - 1 };
	struct tow_remote *remotes[ARRAY_SIZE(wanted)], *remote = NULL;
	struct told told = {};
	pid_t publisher;
	char name[16];
	double start;

	/* Of the region that it goes away with, too. */
	ASSERT_EQ(TOW_PEER_REGION, tow_wait_count("pool_used_bytes", TOW_PEER_REGION));
	publisher = start_crowd(count, &ready);
	ASSERT_LT(0, publisher);
	ASSERT_EQ(sizeof(told), read(ready, &told, sizeof(told)));
	close(ready);
	TH_LOG("%.1f us each at first, %.1f us in the end; something else: %.1f us, %.1f us",
	       told.first.exports / BATCH * 1e6, told.last.exports / BATCH * 1e6,
	       told.first.queries / BATCH * 1e6, told.last.queries / BATCH * 1e6);
	EXPECT_GT(GROWTH * told.first.exports / told.first.queries,
		  told.last.exports / told.last.queries);
	EXPECT_EQ(count, tow_get_count("stats/exports"));
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		snprintf(name, sizeof(name), "crowd%d", wanted[i]);
		ASSERT_EQ(0, tow_resolve(self->peer, name, TOW_RIGHT_READ, 0, &remotes[i]));
		EXPECT_EQ((uint64_t)(wanted[i] + 1) % TOW_PEER_REGION + 1,
			  tow_remote_bytes(remotes[i]));
	}
	snprintf(name, sizeof(name), "crowd%d", count);
	EXPECT_EQ(-ENOENT, tow_resolve(self->peer, name, TOW_RIGHT_READ, 0, &remote));

	start = tow_test_now();
	ASSERT_EQ(0, kill(publisher, SIGKILL));
	ASSERT_EQ(publisher, waitpid(publisher, &status, 0));
	EXPECT_EQ(0, tow_wait_count("stats/exports", 0));
	TH_LOG("gone after %.1f s", tow_test_now() - start);
	EXPECT_EQ(TOW_PEER_REGION, tow_wait_count("pool_used_bytes", TOW_PEER_REGION));
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		snprintf(name, sizeof(name), "crowd%d", wanted[i]);
		EXPECT_EQ(-ENOENT, tow_resolve(self->peer, name, TOW_RIGHT_READ, 0, &remote));
		EXPECT_EQ(-ESTALE, tow_remote_release(remotes[i]));
	}
	EXPECT_EQ(0, tow_wait_count("stats/grants", 0));
}

TEST_HARNESS_MAIN
