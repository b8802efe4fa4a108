// SPDX-License-Identifier: GPL-2.0
/*
 * Registering for peers when memory is fragmented, and when it runs out.  For
 * kernels with fault injection; faults.c says how it is done.
 */
#include "tow_probe.h"
#include "tow_faults.h"

#define POOL_BYTES	(2 * TOW_SLAB)
#define WORD		0x746f776c696e65ULL
#define PAGE		4096UL

/* Smaller pages are what small objects come from: without them nothing works. */
#define SMALLEST_ORDER	3

/* Allocations that one call makes are fewer than that. */
#define CALL_ROUNDS_MAX	60
/* As are those that make another maintenance queue pair on the way. */
#define BROKEN_ROUNDS_MAX 100

struct bench {
	struct tow_knobs knobs;
	int client;
	int expose;
	struct tow_mapped region;
};

static int bench_up(struct bench *bench)
{
	struct tow_query query;

	tow_knobs_save(&bench->knobs);
	bench->client = tow_test_open(O_RDWR);
	if (bench->client < 0)
		return bench->client;
	bench->expose = tow_expose_open();
	if (bench->expose < 0)
		return bench->expose;
	return tow_maint_wait(bench->client, &query);
}

static bool bench_down(struct bench *bench)
{
	bool ok = filter(FAULTS, nothing);

	ok &= tow_pool_unused();
	return !tow_knobs_restore(&bench->knobs) && ok;
}

/* A pool for which no chunk of 2^order pages or more can be had. */
static int make_fragmented(unsigned long order)
{
	const char *dir = fault_dir[FAIL_PAGE];
	bool ok;
	int ret;

	if (tow_pool_fresh(0))
		return -EBUSY;
	ok = filter(FAIL_PAGE, module_text());
	ok &= put(dir, "min-order", "%lu\n", order);
	ok &= put(dir, "task-filter", "Y\n", 0);
	ok &= put(dir, "interval", "%lu\n", 1);
	ok &= put(dir, "times", "-1\n", 0);
	ok &= put("/proc/self", "make-it-fail", "%lu\n", 1);
	ok &= put(dir, "probability", "%lu\n", 100);
	ret = tow_sysfs_set("pool_bytes", POOL_BYTES);
	ok &= put(dir, "probability", "%lu\n", 0);
	ok &= put("/proc/self", "make-it-fail", "%lu\n", 0);
	ok &= put(dir, "task-filter", "N\n", 0);
	ok &= filter(FAULTS, nothing);
	return ret ? ret : ok ? 0 : -EIO;
}

FIXTURE(fragmented)
{
	struct bench bench;
};

FIXTURE_SETUP(fragmented)
{
	ASSERT_EQ(0, access(fault_dir[FAIL_PAGE], F_OK))
		TH_LOG("this kernel has no fault injection");
	ASSERT_EQ(0, bench_up(&self->bench));
}

FIXTURE_TEARDOWN_PARENT(fragmented)
{
	EXPECT_TRUE(bench_down(&self->bench))
		TH_LOG("the device is not as it was");
}

FIXTURE_VARIANT(fragmented)
{
	unsigned long order;	/* of the largest chunk */
};

FIXTURE_VARIANT_ADD(fragmented, halves) { .order = 8 };
FIXTURE_VARIANT_ADD(fragmented, of_64_KiB) { .order = 4 };
FIXTURE_VARIANT_ADD(fragmented, of_32_KiB) { .order = SMALLEST_ORDER };

/* One key and one range of addresses, however many chunks there are. */
TEST_F_TIMEOUT(fragmented, reached_as_one, 300)
{
	static uint64_t page[PAGE / 8];
	size_t chunk = PAGE << variant->order, at, i;
	struct bench *b = &self->bench;
	struct tow_expose_slab to;

	ASSERT_EQ(0, make_fragmented(variant->order + 1));
	ASSERT_EQ(0, tow_mapped_make(b->client, TOW_SLAB, &b->region));
	ASSERT_NE(NULL, b->region.words);
	ASSERT_EQ(0, tow_expose(b->expose, b->region.made.fd, 0, TOW_EXPOSE_WRITE, &to));
	EXPECT_EQ(TOW_SLAB / chunk, to.chunks);
	EXPECT_EQ(chunk, to.page_bytes);
	/* Over the edge of each chunk. */
	for (at = chunk; at < TOW_SLAB; at += chunk) {
		for (i = 0; i < ARRAY_SIZE(page); i++)
			page[i] = WORD + at + i;
		ASSERT_EQ(0, tow_probe(b->expose, TOW_EXPOSE_RDMA_WRITE, to.key,
				       to.address + at - PAGE / 2, page, PAGE));
		EXPECT_EQ(0, memcmp((char *)b->region.words + at - PAGE / 2, page, PAGE))
			TH_LOG("at %zu", at);
	}
	EXPECT_EQ(0, tow_probe_write(b->expose, &to, TOW_SLAB - 8, WORD));
	EXPECT_EQ(WORD, b->region.words[TOW_SLAB / 8 - 1]);
	EXPECT_EQ(TOW_EXPOSE_REFUSED, tow_probe_write(b->expose, &to, TOW_SLAB, ~0ULL));
	EXPECT_EQ(TOW_EXPOSE_REFUSED, tow_probe_write(b->expose, &to, TOW_SLAB - 4, ~0ULL));
	ASSERT_EQ(0, tow_hide(b->expose, &to));
	EXPECT_EQ(TOW_EXPOSE_REFUSED, tow_probe_write(b->expose, &to, 0, ~0ULL));

	/* It comes back zeroed, all of it. */
	ASSERT_EQ(0, tow_mapped_end(&b->region));
	ASSERT_TRUE(tow_pool_unused());
	ASSERT_EQ(0, tow_mapped_make(b->client, POOL_BYTES, &b->region));
	ASSERT_NE(NULL, b->region.words);
	EXPECT_TRUE(tow_is_zero(b->region.words, POOL_BYTES));
}

FIXTURE(short_of_memory)
{
	struct bench bench;
};

FIXTURE_SETUP(short_of_memory)
{
	ASSERT_EQ(0, access(fault_dir[FAIL_SLAB], F_OK))
		TH_LOG("this kernel has no fault injection");
	ASSERT_EQ(0, bench_up(&self->bench));
	/* Of several chunks: their list has to be allocated. */
	ASSERT_EQ(0, make_fragmented(SMALLEST_ORDER + 1));
	ASSERT_EQ(0, tow_mapped_make(self->bench.client, POOL_BYTES, &self->bench.region));
}

FIXTURE_TEARDOWN_PARENT(short_of_memory)
{
	EXPECT_TRUE(bench_down(&self->bench))
		TH_LOG("the device is not as it was");
}

FIXTURE_VARIANT(short_of_memory)
{
	enum fault fault;
};

FIXTURE_VARIANT_ADD(short_of_memory, slab) { .fault = FAIL_SLAB };
FIXTURE_VARIANT_ADD(short_of_memory, page) { .fault = FAIL_PAGE };

static int expose_with_nth(struct bench *bench, long nth, struct tow_expose_slab *to,
			   bool *injected)
{
	int ret;

	begin_nth(nth);
	ret = tow_expose(bench->expose, bench->region.made.fd, 0, TOW_EXPOSE_WRITE, to);
	*injected = end_nth();
	return ret;
}

static int hide_with_nth(struct bench *bench, long nth, const struct tow_expose_slab *to,
			 bool *injected)
{
	int ret;

	begin_nth(nth);
	ret = tow_hide(bench->expose, to);
	*injected = end_nth();
	return ret;
}

/* Whatever was before: it works, and it is over when it is hidden. */
static void check_works(struct __test_metadata *_metadata, struct bench *b)
{
	struct tow_expose_slab to;

	ASSERT_EQ(0, tow_expose(b->expose, b->region.made.fd, 0, TOW_EXPOSE_WRITE, &to));
	EXPECT_EQ(0, tow_probe_write(b->expose, &to, 0, WORD));
	ASSERT_EQ(0, tow_hide(b->expose, &to));
	EXPECT_EQ(TOW_EXPOSE_REFUSED, tow_probe_write(b->expose, &to, 0, ~0ULL));
	EXPECT_EQ(WORD, b->region.words[0]);
}

TEST_F_TIMEOUT(short_of_memory, expose, 300)
{
	struct bench *b = &self->bench;
	struct tow_expose_slab to;
	long nth, failed = 0;
	bool injected;
	uint64_t mrs;
	int ret;

	check_works(_metadata, b);
	mrs = tow_sysfs_get("mr_used");
	ASSERT_TRUE(filter(variant->fault, module_text()));
	for (nth = 1; nth < CALL_ROUNDS_MAX; nth++) {
		ret = expose_with_nth(b, nth, &to, &injected);
		if (ret) {
			EXPECT_TRUE(injected);
			EXPECT_EQ(-ENOMEM, ret);
			failed++;
		} else {
			EXPECT_EQ(0, tow_probe_write(b->expose, &to, 0, WORD));
			ASSERT_EQ(0, tow_hide(b->expose, &to));
		}
		check_works(_metadata, b);
		EXPECT_EQ(mrs, tow_sysfs_get("mr_used"));
		if (!injected)
			break;
	}
	EXPECT_LT(nth, CALL_ROUNDS_MAX);
	TH_LOG("%ld of %ld allocations made the call fail", failed, nth - 1);
	if (variant->fault == FAIL_SLAB) {
		EXPECT_LT(0, failed)
			TH_LOG("nothing was injected: the filter does not match");
	}
}

/* The first exposure of a slab makes a memory region. */
TEST_F_TIMEOUT(short_of_memory, expose_first, 300)
{
	struct bench *b = &self->bench;
	struct tow_expose_slab to;
	long nth, failed = 0;
	bool injected;
	int ret;

	for (nth = 1; nth < CALL_ROUNDS_MAX; nth++) {
		ASSERT_EQ(0, tow_mapped_end(&b->region));
		ASSERT_EQ(0, tow_pool_fresh(POOL_BYTES));
		ASSERT_EQ(0, tow_mapped_make(b->client, POOL_BYTES, &b->region));
		EXPECT_EQ(0, tow_sysfs_get("mr_used"));
		ASSERT_TRUE(filter(variant->fault, module_text()));
		ret = expose_with_nth(b, nth, &to, &injected);
		ASSERT_TRUE(filter(FAULTS, nothing));
		if (ret) {
			EXPECT_TRUE(injected);
			EXPECT_EQ(-ENOMEM, ret);
			EXPECT_EQ(0, tow_sysfs_get("mr_used"));
			failed++;
		} else {
			EXPECT_EQ(0, tow_probe_write(b->expose, &to, 0, WORD));
			ASSERT_EQ(0, tow_hide(b->expose, &to));
		}
		check_works(_metadata, b);
		if (!injected)
			break;
	}
	EXPECT_LT(nth, CALL_ROUNDS_MAX);
	TH_LOG("%ld of %ld allocations made the call fail", failed, nth - 1);
	if (variant->fault == FAIL_SLAB) {
		EXPECT_LT(0, failed)
			TH_LOG("nothing was injected: the filter does not match");
	}
}

/* Hiding cannot fail: it needs nothing that could be lacking. */
TEST_F_TIMEOUT(short_of_memory, hide, 300)
{
	struct bench *b = &self->bench;
	struct tow_expose_slab to;
	bool injected;
	long nth;

	ASSERT_TRUE(filter(variant->fault, module_text()));
	for (nth = 1; nth < CALL_ROUNDS_MAX; nth++) {
		ASSERT_EQ(0, tow_expose(b->expose, b->region.made.fd, 0, TOW_EXPOSE_WRITE, &to));
		EXPECT_EQ(0, hide_with_nth(b, nth, &to, &injected));
		EXPECT_EQ(TOW_EXPOSE_REFUSED, tow_probe_write(b->expose, &to, 0, ~0ULL));
		check_works(_metadata, b);
		if (!injected)
			break;
	}
	EXPECT_LT(nth, CALL_ROUNDS_MAX);
}

/*
 * Not even when the maintenance queue pair breaks: what another needs may be lacking.
 * Then the memory region is destroyed, and the next exposure makes one.
 */
TEST_F_TIMEOUT(short_of_memory, hide_when_broken, 300)
{
	struct bench *b = &self->bench;
	struct tow_expose_slab to;
	struct tow_query query;
	bool injected;
	long nth;

	ASSERT_TRUE(filter(variant->fault, module_text()));
	/* The first ones are the call's own. */
	for (nth = 1; nth < BROKEN_ROUNDS_MAX; nth += nth < 7 ? 1 : 4) {
		ASSERT_EQ(0, tow_expose(b->expose, b->region.made.fd, 0, TOW_EXPOSE_WRITE, &to));
		EXPECT_EQ(0, tow_probe_write(b->expose, &to, 0, WORD));
		ASSERT_EQ(0, tow_maint_wait(b->client, &query));
		ASSERT_EQ(0, ioctl(b->expose, TOW_EXPOSE_BREAK));
		EXPECT_EQ(0, hide_with_nth(b, nth, &to, &injected));
		EXPECT_EQ(TOW_EXPOSE_REFUSED, tow_probe_write(b->expose, &to, 0, ~0ULL));
		ASSERT_EQ(0, tow_maint_wait(b->client, &query));
		check_works(_metadata, b);
		if (!injected)
			break;
	}
	EXPECT_LT(nth, BROKEN_ROUNDS_MAX);
	TH_LOG("about %ld allocations", nth - 1);
}

TEST_HARNESS_MAIN
