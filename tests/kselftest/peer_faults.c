// SPDX-License-Identifier: GPL-2.0
/*
 * Memory runs out at every point of connecting (both ends of it: the node is its
 * own peer), publishing, finding and giving up.  For kernels with fault injection.
 *
 * In each round one allocation fails: the n-th that anybody makes on towline's
 * behalf, in whatever context, until a round ends in which fewer were made.  What
 * fails may fail; the kernel must not complain (the lab looks), nothing may stay
 * (the oracles and kmemleak look), and the same thing done again must succeed.
 *
 * $TOW_COUNT (soak) is unset in a usual run, which leaves out most rounds.
 */
#include "tow_test.h"
#include "tow_faults.h"
#include "tow_region.h"
#include "tow_peer.h"

#define POOL_BYTES	(4 * TOW_SLAB)
#define REGION_BYTES	(64 * TOW_KB)

FIXTURE(peer_faults)
{
	int fd;
	struct tow_region_create region;
	__u64 peer;
	__u64 exported;
};

FIXTURE_SETUP(peer_faults)
{
	ASSERT_EQ(0, access(fault_dir[FAIL_SLAB], F_OK))
		TH_LOG("this kernel has no fault injection");
	ASSERT_TRUE(filter(FAULTS, nothing));
	ASSERT_EQ(0, tow_pool_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_sysfs_put("allow_unauthenticated", "1"));
	self->fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, tow_region_create(self->fd, REGION_BYTES, &self->region));
	ASSERT_EQ(0, tow_connect_self(self->fd, &self->peer));
	ASSERT_EQ(0, tow_publish(self->fd, self->region.handle, "there", 100, &self->exported));
}

FIXTURE_TEARDOWN_PARENT(peer_faults)
{
	if (!filter(FAULTS, nothing))
		TH_LOG("faults are still injected");
	if (tow_sysfs_wait("stats/exports", 0))
		TH_LOG("exports of a process that has ended are still there");
}

FIXTURE_VARIANT(peer_faults)
{
	enum fault fault;
	int stride;
};

FIXTURE_VARIANT_ADD(peer_faults, slab) { .fault = FAIL_SLAB, .stride = 7 };
FIXTURE_VARIANT_ADD(peer_faults, page) { .fault = FAIL_PAGE, .stride = 3 };

/* The n-th allocation from now on fails, once. */
static bool arm(enum fault fault, unsigned long nth)
{
	const char *dir = fault_dir[fault];
	static struct range text;
	bool ok;

	/* Looking for it takes longer than a round. */
	if (!text.end)
		text = module_text();
	ok = filter(fault, text);
	ok &= put(dir, "task-filter", "N\n", 0);
	/* It begins to count anew. */
	ok &= put(dir, "space", "%lu\n", 0);
	ok &= put(dir, "interval", "%lu\n", nth);
	ok &= put(dir, "times", "%lu\n", 1);
	ok &= put(dir, "probability", "%lu\n", 100);
	return ok;
}

/* Has one failed? */
static bool disarm(enum fault fault)
{
	char path[256], line[32];

	put(fault_dir[fault], "probability", "%lu\n", 0);
	snprintf(path, sizeof(path), "%s/times", fault_dir[fault]);
	tow_test_read_line(path, line, sizeof(line));
	filter(FAULTS, nothing);
	return !strcmp(line, "0");
}

/* What whoever asks may be told: a node has no memory, here or there. */
static bool is_shortage(int error)
{
	return error == -ENOMEM || error == -ENOSPC || error == -ECONNRESET ||
	       error == -ETIMEDOUT || error == -EAGAIN || error == -ECONNREFUSED ||
	       error == -EHOSTUNREACH;
}

static int do_connect(FIXTURE_DATA(peer_faults) *self)
{
	return tow_connect_self(self->fd, &self->peer);
}

static int undo_connect(FIXTURE_DATA(peer_faults) *self)
{
	return tow_disconnect(self->fd, self->peer);
}

static int do_export(FIXTURE_DATA(peer_faults) *self)
{
	return tow_publish(self->fd, self->region.handle, "here", 10, &self->exported);
}

static int undo_export(FIXTURE_DATA(peer_faults) *self)
{
	return tow_end_handle(self->fd, TOW_IOCTL_UNEXPORT, self->exported);
}

/* Not kept: the next one asks the peer again. */
static int do_resolve(FIXTURE_DATA(peer_faults) *self)
{
	struct tow_resolve found;
	__u64 handle;
	int ret;

	ret = tow_publish(self->fd, self->region.handle, "here", 10, &handle);
	if (ret)
		return ret;
	ret = tow_find(self->fd, self->peer, "here", &found);
	if (tow_end_handle(self->fd, TOW_IOCTL_UNEXPORT, handle))
		return -EILSEQ;
	if (!ret && tow_end_handle(self->fd, TOW_IOCTL_RELEASE, found.handle) != -ESTALE)
		return -EILSEQ;
	return ret;
}

static int undo_nothing(FIXTURE_DATA(peer_faults) *self)
{
	return tow_connect_self(self->fd, &self->peer);
}

struct job {
	const char *name;
	int (*act)(FIXTURE_DATA(peer_faults) *self);
	int (*undo)(FIXTURE_DATA(peer_faults) *self);
	int most;	/* rounds of a usual run */
};

static const struct job jobs[] = {
	{ "connect", do_connect, undo_connect, 14 },
	{ "export", do_export, undo_export, 20 },
	{ "resolve", do_resolve, undo_nothing, 20 },
};

/*
 * Not as all_rounds() does: what fails may be another task's, and the peer may have
 * gone for want of it, so there is more than one thing to be told.
 */
static void some_rounds(struct __test_metadata *_metadata, FIXTURE_DATA(peer_faults) *self,
			const struct job *job, enum fault fault, int stride)
{
	int rounds = 0, most = tow_test_count(0) ? ROUNDS_MAX : job->most, ret;
	unsigned long nth = 1;
	bool injected;

	for (;;) {
		ASSERT_TRUE(arm(fault, nth));
		ret = job->act(self);
		injected = disarm(fault);
		EXPECT_TRUE(!ret || (injected && is_shortage(ret)))
			TH_LOG("%s, allocation %lu: %s", job->name, nth, strerror(-ret));
		if (ret)
			EXPECT_EQ(0, job->act(self))
				TH_LOG("%s, after allocation %lu failed", job->name, nth);
		EXPECT_EQ(0, job->undo(self))
			TH_LOG("%s, allocation %lu", job->name, nth);
		if (!injected || rounds >= most)
			break;
		rounds++;
		nth += tow_test_count(0) ? 1 : (unsigned long)stride;
	}
	TH_LOG("%s: %d of about %lu allocations failed", job->name, rounds, nth);
	/* Pages may all come out of slabs that are there. */
	if (fault == FAIL_SLAB)
		EXPECT_LT(0, rounds)
			TH_LOG("nothing was injected: the filter does not match");
}

TEST_F_TIMEOUT(peer_faults, connect, 3600)
{
	ASSERT_EQ(0, tow_disconnect(self->fd, self->peer));
	some_rounds(_metadata, self, &jobs[0], variant->fault, variant->stride);
}

TEST_F_TIMEOUT(peer_faults, export, 3600)
{
	some_rounds(_metadata, self, &jobs[1], variant->fault, 1);
}

TEST_F_TIMEOUT(peer_faults, resolve, 3600)
{
	some_rounds(_metadata, self, &jobs[2], variant->fault, 2);
}

/* ---- copies from and to user space ---------------------------------------------- */

/* -EFAULT, and nothing stays: the name is free again. */
TEST_F(peer_faults, user_copies)
{
	int (*const acts[])(FIXTURE_DATA(peer_faults) *) = { do_export, do_connect };
	bool injected;
	size_t i;
	long nth;
	int ret;

	if (variant->fault != FAIL_SLAB)
		return;
	for (i = 0; i < ARRAY_SIZE(acts); i++) {
		for (nth = 1; nth < ROUNDS_MAX; nth++) {
			ASSERT_TRUE(filter(FAIL_USERCOPY, module_text()));
			ASSERT_TRUE(set_nth("self", nth));
			ret = acts[i](self);
			injected = get_nth("self") == 0;
			set_nth("self", 0);
			ASSERT_TRUE(filter(FAULTS, nothing));
			EXPECT_EQ(injected ? -EFAULT : 0, ret);
			if (!injected)
				break;
			EXPECT_EQ(1, tow_count_exports(self->fd, 0));
		}
		/* At least one on the way in and one on the way out. */
		EXPECT_LT(2, nth);
		if (acts[i] == do_export)
			EXPECT_EQ(0, undo_export(self));
	}
}

TEST_HARNESS_MAIN
