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

/* What the publisher tells. */
struct told {
	double first;	/* seconds for the fastest batch at the beginning */
	double last;
};

static int crowd_size(void)
{
	const char *kernel = getenv("TOW_LAB_KERNEL");

	return kernel && strncmp(kernel, "6.", 2) != 0 ? CROWD_DEBUG : CROWD;
}

/* From number @from on: the fastest batch's seconds; a negative errno. */
static double publish(struct tow_region *region, int from, int count)
{
	struct tow_exported *exported;
	double best = 1e9, start = 0;
	char name[16];
	int ret;

	for (int i = 0; i < count; i++) {
		double now = tow_test_now();

		if (i % BATCH == 0) {
			if (i && now - start < best)
				best = now - start;
			start = now;
		}
		snprintf(name, sizeof(name), "crowd%d", from + i);
		ret = tow_export(region, 0, (uint64_t)(from + i + 1) % TOW_PEER_REGION + 1, name,
				 TOW_RIGHT_READ, &exported);
		if (ret)
			return ret;
	}
	return best;
}

static bool publish_crowd(int count, struct told *told)
{
	struct tow_region *region;
	struct tow_device *dev;

	if (tow_device_open(tow_test_device(), 0, &dev) ||
	    tow_region_create(dev, TOW_PEER_REGION, NULL, &region))
		return false;
	told->first = publish(region, 0, ENDS);
	if (publish(region, ENDS, count - 2 * ENDS) < 0)
		return false;
	told->last = publish(region, count - ENDS, ENDS);
	return told->first > 0 && told->last > 0;
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
	TH_LOG("%.1f us each at first, %.1f us in the end", told.first / BATCH * 1e6,
	       told.last / BATCH * 1e6);
	EXPECT_GT(GROWTH * told.first, told.last);
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
