// SPDX-License-Identifier: GPL-2.0
/*
 * Memory runs out at every point: while the module loads, while a device is
 * added, in the work item that makes the maintenance queue pair, in open and
 * QUERY.  For kernels with fault injection.
 *
 * Exactly one allocation fails in each round: the n-th that a task makes on
 * towline's behalf, for n = 1, 2, ... until a round ends in which fewer were
 * made.  "On towline's behalf" is said by the stack-trace filter: while the
 * module loads its text has no address yet, so there it is do_one_initcall(),
 * which has nothing but towline's init function above it; later it is the
 * text of towline.ko.
 *
 * What fails may fail, with any errno that says so; the kernel must not
 * complain (the lab looks), nothing may stay (the oracles and kmemleak look),
 * and the same thing done again must succeed.
 *
 * $TOW_COUNT (soak) is unset in a usual run, which then leaves out most of the
 * rounds, as each takes a good part of a second.
 */
#include "tow_test.h"
#include "tow_faults.h"
#include "tow_hotplug.h"
#include "tow_peer.h"
#include "tow_sysfs.h"

FIXTURE(faults)
{
	struct range text;
};

/* Each case begins without the module, and with the lab's device. */
FIXTURE_SETUP(faults)
{
	ASSERT_EQ(0, access(fault_dir[FAIL_SLAB], F_OK))
		TH_LOG("this kernel has no fault injection");
	ASSERT_FALSE(loaded());
	ASSERT_TRUE(filter(FAIL_SLAB, nothing));
	ASSERT_TRUE(tow_link_restore_device("rxe0", "eth0"));
	self->text = nothing;
}

FIXTURE_TEARDOWN_PARENT(faults)
{
	EXPECT_TRUE(filter(FAULTS, nothing));
	if (loaded()) {
		EXPECT_EQ(0, unload_module());
	}
	EXPECT_TRUE(tow_link_restore_device("rxe0", "eth0"));
}

FIXTURE_VARIANT(faults)
{
	enum fault fault;
	/*
	 * Of a usual run: every how-manieth allocation fails while the module
	 * loads.  Rounds that start programs take ten times as long, so there
	 * it is every fourth of those.
	 */
	int stride;
};

FIXTURE_VARIANT_ADD(faults, slab) { .fault = FAIL_SLAB, .stride = 10 };
FIXTURE_VARIANT_ADD(faults, page) { .fault = FAIL_PAGE, .stride = 1 };

/* 1, 1 + stride, ...; all in soak. */
static long next_nth(long nth, int stride)
{
	return nth + (tow_test_count(0) ? 1 : stride);
}

/*
 * Without a round in which something failed a case shows nothing.  Only pages
 * may all come out of slabs that are there already, while loading and adding:
 * that their filter matches is seen in maintenance_work and anywhere.
 */
static void check_injected(struct __test_metadata *_metadata, enum fault fault, long rounds)
{
	if (fault == FAIL_PAGE)
		return;
	EXPECT_LT(0, rounds)
		TH_LOG("nothing was injected: the filter does not match");
}

static bool module_round(struct __test_metadata *_metadata, long nth)
{
	bool injected;
	int ret;

	EXPECT_TRUE(begin_nth(nth));
	ret = load_module();
	injected = end_nth();
	if (!injected) {
		EXPECT_EQ(0, ret);
	} else if (ret) {
		EXPECT_EQ(-ENOMEM, ret)
			TH_LOG("allocation %ld: %s", nth, strerror(-ret));
		EXPECT_FALSE(loaded());
	}
	/* Some failures cost one device, or only a pause: never the module. */
	if (!ret) {
		EXPECT_EQ(0, unload_module())
			TH_LOG("allocation %ld", nth);
	}
	return injected;
}

TEST_F_TIMEOUT(faults, module_load, 3600)
{
	struct range init = text_of("do_one_initcall", NULL);
	long nth, rounds = 0;

	ASSERT_LT(0x1000, init.start);
	ASSERT_GT(0x10000, init.end - init.start);
	ASSERT_TRUE(filter(variant->fault, init));
	for (nth = 1; nth < ROUNDS_MAX; nth = next_nth(nth, variant->stride)) {
		if (!module_round(_metadata, nth))
			break;
		rounds++;
	}
	TH_LOG("%ld of about %ld allocations failed", rounds, nth - 1);
	check_injected(_metadata, variant->fault, rounds);
	ASSERT_TRUE(filter(variant->fault, nothing));
	ASSERT_EQ(0, load_module());
	EXPECT_EQ(0, device_works());
}

static bool add_device_round(struct __test_metadata *_metadata, long nth)
{
	bool injected;
	int rc;

	ASSERT_TRUE(tow_link_del("rxe0"));
	injected = link_with_nth(true, nth, &rc);
	/* The RDMA core does not care whether towline takes the device. */
	EXPECT_EQ(0, rc)
		TH_LOG("allocation %ld", nth);
	if (!injected) {
		EXPECT_EQ(0, access(TOW_TEST_DEVICES "/rxe0", F_OK));
	} else if (access(TOW_TEST_DEVICES "/rxe0", F_OK)) {
		/* Refused: then entirely. */
		EXPECT_EQ(-1, access("/sys/class/towline/rxe0", F_OK))
			TH_LOG("allocation %ld", nth);
	}
	return injected;
}

TEST_F_TIMEOUT(faults, device_add, 3600)
{
	long nth, rounds = 0;

	ASSERT_EQ(0, load_module());
	ASSERT_TRUE(filter(variant->fault, module_text()));
	for (nth = 1; nth < ROUNDS_MAX; nth = next_nth(nth, 4 * variant->stride)) {
		if (!add_device_round(_metadata, nth))
			break;
		rounds++;
	}
	TH_LOG("%ld of about %ld allocations failed", rounds, nth - 1);
	check_injected(_metadata, variant->fault, rounds);
	ASSERT_TRUE(filter(variant->fault, nothing));
	ASSERT_TRUE(tow_link_del("rxe0"));
	ASSERT_TRUE(tow_link_add("rxe0", "eth0"));
	EXPECT_EQ(0, device_works());
}

/* Who can prove nothing to himself must not be believed by anybody. */
TEST_F_TIMEOUT(faults, no_key_of_its_own, 60)
{
	struct range text;
	__u64 peer;
	int fd, rc, log = tow_log_open();

	ASSERT_EQ(0, load_module());
	text = text_of("tow_cluster_key_random", "towline");
	ASSERT_LT(0x1000, text.start);
	ASSERT_GT(0x1000, text.end - text.start);
	ASSERT_TRUE(tow_link_del("rxe0"));
	/* It needs no page of its own. */
	ASSERT_TRUE(filter(FAIL_SLAB, text));
	EXPECT_TRUE(link_with_nth(true, 1, &rc));
	ASSERT_TRUE(filter(FAIL_SLAB, nothing));
	EXPECT_EQ(0, rc);
	EXPECT_TRUE(tow_log_says(log, "no peer can be authenticated"));
	close(log);
	fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, tow_sysfs_put("allow_unauthenticated", "1"));
	EXPECT_EQ(-ENOKEY, tow_connect_self(fd, &peer));
	close(fd);
}

/* However often there is no memory for the maintenance queue pair, it is tried again. */
TEST_F_TIMEOUT(faults, no_memory_for_a_while, 120)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	struct range text;

	ASSERT_EQ(0, load_module());
	text = text_of("tow_maint_build", "towline");
	ASSERT_LT(0x1000, text.start);
	ASSERT_TRUE(tow_link_del("rxe0"));
	ASSERT_TRUE(begin_all(FAIL_SLAB, text));
	EXPECT_TRUE(tow_link_add("rxe0", "eth0"));
	while (count_all(FAIL_SLAB) < 5 && tow_patient(&patience))
		tow_test_sleep_ms(20);
	EXPECT_LE(5, end_all(FAIL_SLAB));
	EXPECT_EQ(0, device_works());
}

/*
 * The work item runs in some unbound worker: each gets a fail-nth.  Should a
 * worker that was made just then run it, the round shows nothing.
 */
TEST_F_TIMEOUT(faults, maintenance_work, 3600)
{
	int misses = 0, rounds = 0;
	long nth = 1;

	ASSERT_EQ(0, load_module());
	ASSERT_EQ(0, device_works());
	ASSERT_TRUE(filter(variant->fault, module_text()));
	while (nth < ROUNDS_MAX && misses < (rounds ? 2 : 8)) {
		bool hit = false;

		ASSERT_TRUE(tow_link_del("rxe0"));
		ASSERT_LT(0, each_worker(nth, NULL));
		ASSERT_TRUE(tow_link_add("rxe0", "eth0"));
		/* What failed is tried again, by itself. */
		EXPECT_EQ(0, device_works())
			TH_LOG("allocation %ld", nth);
		each_worker(0, &hit);
		rounds += hit;
		misses = hit ? 0 : misses + 1;
		if (hit)
			nth = next_nth(nth, 4 * variant->stride);
	}
	TH_LOG("%d of about %ld allocations failed", rounds, nth - 1);
	EXPECT_LT(0, rounds)
		TH_LOG("nothing was injected: the filter does not match");
}

/* Whoever allocates, in whatever context: one of them fails. */
TEST_F_TIMEOUT(faults, anywhere, 600)
{
	static const unsigned long intervals[] = { 1, 2, 3, 5, 8, 13, 21, 34 };
	const char *dir = fault_dir[variant->fault];
	char path[256], line[32];
	int injected = 0;
	size_t i;

	ASSERT_EQ(0, load_module());
	ASSERT_TRUE(filter(variant->fault, module_text()));
	for (i = 0; i < ARRAY_SIZE(intervals); i += tow_test_count(0) ? 1 : 4) {
		ASSERT_TRUE(tow_link_del("rxe0"));
		ASSERT_TRUE(put(dir, "task-filter", "N\n", 0));
		ASSERT_TRUE(put(dir, "interval", "%lu\n", intervals[i]));
		ASSERT_TRUE(put(dir, "times", "%lu\n", 1));
		ASSERT_TRUE(put(dir, "probability", "%lu\n", 100));
		ASSERT_TRUE(tow_link_add("rxe0", "eth0"));
		tow_test_sleep_ms(100);
		ASSERT_TRUE(put(dir, "probability", "%lu\n", 0));
		snprintf(path, sizeof(path), "%s/times", dir);
		tow_test_read_line(path, line, sizeof(line));
		injected += atoi(line) == 0;
		/* If not taken into use, then the next time. */
		if (access(TOW_TEST_DEVICES "/rxe0", F_OK)) {
			ASSERT_TRUE(tow_link_del("rxe0"));
			ASSERT_TRUE(tow_link_add("rxe0", "eth0"));
		}
		EXPECT_EQ(0, device_works())
			TH_LOG("interval %lu", intervals[i]);
	}
	EXPECT_LT(0, injected);
}

static int open_and_query(long nth, bool *injected)
{
	struct tow_query query;
	int fd, ret;

	begin_nth(nth);
	fd = open(TOW_TEST_DEVICES "/rxe0", O_RDWR | O_CLOEXEC);
	ret = fd < 0 ? -errno : tow_test_query(fd, &query);
	*injected = end_nth();
	if (fd >= 0)
		close(fd);
	return ret;
}

/* What a client is made of. */
TEST_F(faults, open_and_query)
{
	bool injected;
	long nth;
	int ret;

	ASSERT_EQ(0, load_module());
	ASSERT_TRUE(filter(variant->fault, module_text()));
	for (nth = 1; nth < ROUNDS_MAX; nth++) {
		ret = open_and_query(nth, &injected);
		/* The kernel can do without some of what it asks for. */
		EXPECT_TRUE(!ret || (injected && ret == -ENOMEM))
			TH_LOG("allocation %ld: %s", nth, strerror(-ret));
		if (!injected)
			break;
	}
	EXPECT_LT(nth, ROUNDS_MAX);
	if (variant->fault == FAIL_SLAB) {
		EXPECT_LT(1, nth)
			TH_LOG("nothing was injected: the filter does not match");
	}
	EXPECT_EQ(0, open_and_query(0, &injected));
}

/* Every copy from and to user space; not twice, hence not a variant's. */
TEST(user_copies)
{
	bool injected;
	long nth;
	int ret;

	ASSERT_FALSE(loaded());
	ASSERT_EQ(0, load_module());
	ASSERT_TRUE(filter(FAIL_USERCOPY, module_text()));
	for (nth = 1; nth < ROUNDS_MAX; nth++) {
		ret = open_and_query(nth, &injected);
		EXPECT_EQ(injected ? -EFAULT : 0, ret);
		if (!injected)
			break;
	}
	/* At least one on the way in and one on the way out. */
	EXPECT_LT(2, nth);
	ASSERT_TRUE(filter(FAULTS, nothing));
	EXPECT_EQ(0, open_and_query(0, &injected));
	EXPECT_EQ(0, unload_module());
}

TEST_HARNESS_MAIN
