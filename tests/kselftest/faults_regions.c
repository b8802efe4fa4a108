// SPDX-License-Identifier: GPL-2.0
/*
 * Memory runs out, and copies fail, at every point of every call about
 * regions, of mapping them, of growing the pool, of the device's end.  For
 * kernels with fault injection; faults.c says how it is done.
 *
 * What fails may fail, with the one error that says so.  Then nothing has
 * happened: no memory is gone, what was there still is, and the same thing done
 * again succeeds.
 */
#include "tow_test.h"
#include "tow_faults.h"
#include "tow_hotplug.h"
#include "tow_region.h"

#define POOL_BYTES	(4 * TOW_SLAB)
#define DEVICE		"rxe0"
#define LONG_S		60

/* So many fail in each round of "anywhere". */
#define TIMES		4

/* What the calls work on. */
struct bench {
	int fd;
	struct tow_region_create region;	/* is there all the time */
	struct tow_region_create made;
	struct tow_region_attach attached;
	uint64_t handle;
	int other;
	char *at;
	int user[3 * 1024];			/* memory to import */
};

/*
 * Something that can fail: what must be there before (without faults), the
 * thing itself, and how to undo it if it succeeded, or if it did not.
 */
struct act {
	const char *name;
	int (*before)(struct bench *bench);
	int (*act)(struct bench *bench);
	int (*undo)(struct bench *bench);
	int (*mend)(struct bench *bench);
	unsigned int traits;
};

enum trait {
	ALLOCATES	= 1,	/* small objects: one at least can fail */
	COPIES		= 2,	/* from or to user space: the same */
	NEVER_FAILS	= 4,	/* unless it is a copy that does */
	WIDE		= 8,	/* makes many allocations: every one only in soak */
};

static int open_client(struct bench *bench)
{
	bench->other = tow_test_open(O_RDWR);
	return bench->other < 0 ? bench->other : 0;
}

static int close_other(struct bench *bench)
{
	return close(bench->other) ? -errno : 0;
}

static int create_small(struct bench *bench)
{
	return tow_region_create(bench->fd, TOW_SMALL_REGION, &bench->made);
}

static int create_large(struct bench *bench)
{
	return tow_region_create(bench->fd, 2 * TOW_SLAB, &bench->made);
}

static int create_persistent(struct bench *bench)
{
	return tow_region_create_named(bench->fd, TOW_SLAB, TOW_REGION_PERSISTENT, LONG_S,
				       "made", &bench->made);
}

static int end_made(struct bench *bench)
{
	return tow_region_end(bench->fd, &bench->made);
}

static int destroy_made(struct bench *bench)
{
	return tow_region_destroy(bench->fd, bench->made.handle);
}

static int close_made(struct bench *bench)
{
	return close(bench->made.fd) ? -errno : 0;
}

static int make_fd(struct bench *bench)
{
	bench->other = tow_region_fd(bench->fd, bench->region.handle, 0);
	return bench->other < 0 ? bench->other : 0;
}

static int from_fd(struct bench *bench)
{
	return tow_region_from_fd(bench->fd, bench->region.fd, &bench->handle);
}

static int destroy_handle(struct bench *bench)
{
	return tow_region_destroy(bench->fd, bench->handle);
}

static int query(struct bench *bench)
{
	struct tow_region_info info;

	return tow_region_query(bench->fd, bench->region.handle, &info);
}

static int list(struct bench *bench)
{
	struct tow_region_info entries[2];
	uint64_t cursor = 0;
	int count = tow_region_list(bench->fd, 0, &cursor, entries, 2);

	return count < 0 ? count : 0;
}

static int join(struct bench *bench)
{
	struct tow_join call = { .size = sizeof(call), .job_key = { 1 } };

	return tow_test_ioctl(bench->other, TOW_IOCTL_JOIN, &call);
}

static int map_and_touch(struct bench *bench)
{
	bench->at = tow_region_map(bench->region.fd, TOW_SLAB, PROT_READ | PROT_WRITE);
	if (bench->at == MAP_FAILED)
		return -errno;
	tow_fill(bench->at, TOW_SLAB, 1);
	return tow_differs(bench->at, TOW_SLAB, 1) ? -EBADMSG : 0;
}

static int unmap(struct bench *bench)
{
	return munmap(bench->at, TOW_SLAB) ? -errno : 0;
}

static int import(struct bench *bench)
{
	return tow_region_import(bench->fd, bench->user, sizeof(bench->user), 0, &bench->handle);
}

/* Refused by this device, and understood so far. */
static int import_dmabuf(struct bench *bench)
{
	struct tow_region_import_dmabuf call = {
		.size = sizeof(call), .fd = bench->region.fd, .bytes = 4096,
	};
	int ret = tow_test_ioctl(bench->fd, TOW_IOCTL_REGION_IMPORT_DMABUF, &call);

	return ret == -EOPNOTSUPP ? 0 : ret;
}

/* A region that lingers, of another client of this process. */
static int leave_behind(struct bench *bench)
{
	int fd = tow_test_open(O_RDWR);
	int ret = tow_region_create_named(fd, TOW_SLAB, TOW_REGION_PERSISTENT, LONG_S, "left",
					  &bench->made);

	close(bench->made.fd);
	close(fd);
	return ret;
}

static int attach(struct bench *bench)
{
	return tow_region_attach(bench->fd, "left", &bench->attached);
}

static int end_attached(struct bench *bench)
{
	int ret = tow_region_destroy(bench->fd, bench->attached.handle);

	return close(bench->attached.fd) && !ret ? -errno : ret;
}

/* It must still be there for who tries again. */
static int attach_and_end(struct bench *bench)
{
	int ret = attach(bench);

	return ret ? ret : end_attached(bench);
}

static int grow(struct bench *bench)
{
	(void)bench;
	return tow_sysfs_set("pool_bytes", POOL_BYTES + 2 * TOW_SLAB);
}

static int shrink(struct bench *bench)
{
	(void)bench;
	return tow_sysfs_set("pool_bytes", POOL_BYTES);
}

static const struct act acts[] = {
	{ "open", NULL, open_client, close_other, NULL, ALLOCATES },
	{ "create small", NULL, create_small, end_made, NULL, ALLOCATES | COPIES | WIDE },
	{ "create large", NULL, create_large, end_made, NULL, ALLOCATES | COPIES },
	{ "create persistent", NULL, create_persistent, end_made, NULL, ALLOCATES | COPIES },
	{ "fd", NULL, make_fd, close_other, NULL, ALLOCATES | COPIES },
	{ "from fd", NULL, from_fd, destroy_handle, NULL, ALLOCATES | COPIES },
	{ "query", NULL, query, NULL, NULL, COPIES },
	{ "list", NULL, list, NULL, NULL, COPIES },
	{ "join", open_client, join, close_other, close_other, COPIES },
	{ "map and touch", NULL, map_and_touch, unmap, NULL, 0 },
	{ "import", NULL, import, destroy_handle, NULL, ALLOCATES | COPIES },
	{ "import a dma-buf", NULL, import_dmabuf, NULL, NULL, COPIES },
	{ "attach", leave_behind, attach, end_attached, attach_and_end, ALLOCATES | COPIES },
	{ "grow", NULL, grow, shrink, shrink, ALLOCATES | WIDE },
	/* What takes away has no excuse; if it is a copy that fails, it has. */
	{ "shrink", grow, shrink, NULL, shrink, NEVER_FAILS },
	{ "destroy", create_large, destroy_made, close_made, end_made, COPIES | NEVER_FAILS },
};

FIXTURE(region_faults)
{
	struct bench bench;
};

FIXTURE_VARIANT(region_faults)
{
	enum fault fault;
};

FIXTURE_VARIANT_ADD(region_faults, slab) { FAIL_SLAB };
FIXTURE_VARIANT_ADD(region_faults, page) { FAIL_PAGE };
FIXTURE_VARIANT_ADD(region_faults, copy) { FAIL_USERCOPY };

FIXTURE_SETUP(region_faults)
{
	ASSERT_EQ(0, access(fault_dir[FAIL_SLAB], F_OK))
		TH_LOG("this kernel has no fault injection");
	ASSERT_FALSE(loaded());
	ASSERT_TRUE(filter(FAIL_SLAB, nothing));
	ASSERT_TRUE(tow_link_restore_device(DEVICE, "eth0"));
	ASSERT_EQ(0, load_module());
	ASSERT_EQ(0, device_works());
	ASSERT_EQ(0, tow_pool_fresh(POOL_BYTES));
	self->bench.fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, self->bench.fd);
	ASSERT_EQ(0, tow_region_create(self->bench.fd, TOW_SLAB, &self->bench.region));
	ASSERT_TRUE(filter(variant->fault, module_text()));
}

FIXTURE_TEARDOWN_PARENT(region_faults)
{
	EXPECT_TRUE(filter(FAULTS, nothing));
	if (loaded()) {
		EXPECT_EQ(0, unload_module());
	}
	EXPECT_TRUE(tow_link_restore_device(DEVICE, "eth0"));
}

/* The n-th fails: did one? */
static bool act_round(struct __test_metadata *_metadata, struct bench *bench,
		      const struct act *act, enum fault fault, long nth)
{
	bool injected;
	int ret;

	if (act->before) {
		EXPECT_EQ(0, act->before(bench))
			TH_LOG("before %s, %ld", act->name, nth);
	}
	begin_nth(nth);
	ret = act->act(bench);
	injected = end_nth();
	if (!injected || (act->traits & NEVER_FAILS && fault != FAIL_USERCOPY)) {
		EXPECT_EQ(0, ret)
			TH_LOG("%s, %ld", act->name, nth);
	} else if (ret) {
		EXPECT_EQ(fault == FAIL_USERCOPY ? -EFAULT : -ENOMEM, ret)
			TH_LOG("%s, %ld: %s", act->name, nth, strerror(-ret));
	}
	if (!ret && act->undo) {
		EXPECT_EQ(0, act->undo(bench))
			TH_LOG("after %s, %ld", act->name, nth);
	} else if (ret && act->mend) {
		EXPECT_EQ(0, act->mend(bench))
			TH_LOG("after %s failed, %ld", act->name, nth);
	}
	return injected;
}

/* What shows that the filter matches: FAIL_PAGE may find all it needs in stock. */
static bool must_be_hit(const struct act *act, enum fault fault)
{
	return (fault == FAIL_SLAB && act->traits & ALLOCATES) ||
	       (fault == FAIL_USERCOPY && act->traits & COPIES);
}

/* Rounds in which something failed. */
static long sweep(struct __test_metadata *_metadata, struct bench *bench, const struct act *act,
		  enum fault fault)
{
	int stride = act->traits & WIDE && !tow_test_count(0) ? 7 : 1;
	long nth, rounds = 0;

	for (nth = 1; nth < ROUNDS_MAX; nth += stride) {
		if (!act_round(_metadata, bench, act, fault, nth))
			break;
		rounds++;
	}
	EXPECT_LT(nth, ROUNDS_MAX);
	/* Nothing is gone, and nothing is left. */
	EXPECT_EQ(TOW_SLAB, tow_sysfs_wait("pool_used_bytes", TOW_SLAB))
		TH_LOG("%s", act->name);
	/* Small slabs that could not be made are missing until the next write. */
	EXPECT_EQ(0, tow_sysfs_set("pool_bytes", POOL_BYTES));
	EXPECT_EQ(POOL_BYTES, tow_sysfs_get("pool_bytes"))
		TH_LOG("%s", act->name);
	EXPECT_EQ(1, tow_sysfs_wait("stats/regions", 1))
		TH_LOG("%s", act->name);
	EXPECT_FALSE(act_round(_metadata, bench, act, fault, ROUNDS_MAX));
	TH_LOG("%s: %ld of about %ld failed", act->name, rounds, nth - 1);
	if (must_be_hit(act, fault)) {
		EXPECT_LT(0, rounds)
			TH_LOG("nothing of %s failed: the filter does not match", act->name);
	}
	return rounds;
}

TEST_F_TIMEOUT(region_faults, calls, 3600)
{
	long rounds = 0;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(acts); i++)
		rounds += sweep(_metadata, &self->bench, &acts[i], variant->fault);
	EXPECT_LT(0, rounds)
		TH_LOG("nothing was injected: the filter does not match");
	EXPECT_EQ(0, tow_region_end(self->bench.fd, &self->bench.region));
	EXPECT_TRUE(tow_pool_unused());
}

/* Removal cannot fail: with a region mapped, one that lingers, and an import. */
TEST_F_TIMEOUT(region_faults, removal, 3600)
{
	struct bench *bench = &self->bench;
	long nth, failed = 0, stride = tow_test_count(0) ? 1 : 5;
	bool injected = true;
	int rc;

	for (nth = 1; nth < ROUNDS_MAX && injected; nth += stride) {
		ASSERT_EQ(0, leave_behind(bench));
		ASSERT_EQ(0, map_and_touch(bench));
		ASSERT_EQ(0, import(bench));
		injected = link_with_nth(false, nth, &rc);
		failed += injected;
		EXPECT_EQ(0, rc)
			TH_LOG("allocation %ld", nth);
		EXPECT_EQ(-1, access("/sys/class/towline/" DEVICE, F_OK));
		/* devtmpfs needs memory to find what to remove: that may stay. */
		EXPECT_GT(0, tow_test_open(O_RDWR));
		EXPECT_EQ(0, tow_differs(bench->at, TOW_SLAB, 1));
		EXPECT_EQ(0, unmap(bench));
		close(bench->region.fd);
		close(bench->fd);
		ASSERT_TRUE(tow_link_restore(DEVICE, "eth0"));
		ASSERT_EQ(0, tow_pool_fresh(POOL_BYTES));
		bench->fd = tow_test_open(O_RDWR);
		ASSERT_LE(0, bench->fd);
		ASSERT_EQ(0, tow_region_create(bench->fd, TOW_SLAB, &bench->region));
	}
	TH_LOG("%ld failed", failed);
	if (variant->fault == FAIL_SLAB) {
		EXPECT_LT(0, failed)
			TH_LOG("nothing was injected: the filter does not match");
	}
}

/*
 * Whoever allocates, in whatever context: work items do, too.
 */
TEST_F_TIMEOUT(region_faults, anywhere, 3600)
{
	static const unsigned long intervals[] = { 1, 2, 3, 5, 8, 13, 21 };
	const char *dir = fault_dir[variant->fault];
	struct bench *bench = &self->bench;
	char path[256], line[32];
	int hit = 0;
	size_t i, j;

	snprintf(path, sizeof(path), "%s/times", dir);
	for (i = 0; i < ARRAY_SIZE(intervals); i += tow_test_count(0) ? 1 : 3) {
		ASSERT_TRUE(put(dir, "task-filter", "N\n", 0));
		ASSERT_TRUE(put(dir, "interval", "%lu\n", intervals[i]));
		ASSERT_TRUE(put(dir, "times", "%lu\n", TIMES));
		ASSERT_TRUE(put(dir, "probability", "%lu\n", 100));
		for (j = 0; j < ARRAY_SIZE(acts); j++) {
			/* What failed before it is not there to be undone. */
			if (acts[j].before)
				continue;
			if (!acts[j].act(bench) && acts[j].undo)
				acts[j].undo(bench);
		}
		ASSERT_TRUE(put(dir, "probability", "%lu\n", 0));
		tow_test_read_line(path, line, sizeof(line));
		hit += TIMES - atoi(line);
		/* An undoing that was interrupted ends with its client. */
		close(bench->region.fd);
		close(bench->fd);
		bench->fd = tow_test_open(O_RDWR);
		ASSERT_LE(0, bench->fd);
		ASSERT_EQ(0, tow_pool_fresh(POOL_BYTES))
			TH_LOG("interval %lu", intervals[i]);
		ASSERT_EQ(0, tow_region_create(bench->fd, TOW_SLAB, &bench->region));
		for (j = 0; j < ARRAY_SIZE(acts); j++) {
			EXPECT_FALSE(act_round(_metadata, bench, &acts[j], variant->fault,
					       ROUNDS_MAX));
		}
	}
	TH_LOG("%d failed", hit);
	EXPECT_LT(0, hit)
		TH_LOG("nothing was injected: the filter does not match");
}

TEST_HARNESS_MAIN
