// SPDX-License-Identifier: GPL-2.0
/*
 * The pool grows and shrinks while it is used; more than the machine has; less
 * than is in use; and whatever else is written to the files that may be
 * written.
 */
#include <pthread.h>
#include <stdatomic.h>
#include "tow_test.h"
#include "tow_region.h"

FIXTURE(pool)
{
	struct tow_knobs before;
	int fd;
};

FIXTURE_SETUP(pool)
{
	tow_knobs_save(&self->before);
	self->fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN_PARENT(pool)
{
	EXPECT_TRUE(tow_pool_unused())
		TH_LOG("regions of a process that has ended are still there");
	EXPECT_EQ(0, tow_knobs_restore(&self->before));
}

TEST(empty_when_loaded)
{
	EXPECT_EQ(0, tow_sysfs_get("pool_bytes"));
	EXPECT_EQ(0, tow_sysfs_get("pool_used_bytes"));
	EXPECT_EQ(TOW_SLAB, tow_sysfs_get("slab_bytes"));
	EXPECT_EQ(0, tow_sysfs_get("mr_used"));
	EXPECT_LT(0, tow_sysfs_get("mr_limit"));
}

TEST_F(pool, suffixes)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {
		{ "2097152", 2 * TOW_MB }, { "2097152\n", 2 * TOW_MB }, { "4096k", 4 * TOW_MB },
		{ "2048K\n", 2 * TOW_MB }, { "6m", 6 * TOW_MB }, { "4M", 4 * TOW_MB },
		{ "0g", 0 }, { "0G\n", 0 }, { "0", 0 }, { "0k", 0 }, { "002m", 2 * TOW_MB },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(good); i++) {
		EXPECT_EQ(0, tow_sysfs_put("pool_bytes", good[i].text))
			TH_LOG("\"%s\"", good[i].text);
		EXPECT_EQ(good[i].bytes, tow_sysfs_get("pool_bytes"))
			TH_LOG("\"%s\"", good[i].text);
	}
}

/* What sysfs tells adds up at every size. */
TEST_F(pool, numbers_add_up)
{
	struct tow_region_create large, small;
	int slabs;

	for (slabs = 8; slabs >= 0; slabs -= 2) {
		ASSERT_EQ(0, tow_pool_fresh((uint64_t)slabs * TOW_SLAB));
		EXPECT_EQ(slabs, tow_sysfs_get("stats/slabs"));
		EXPECT_EQ(slabs, tow_sysfs_get("stats/free_slabs"));
	}
	ASSERT_EQ(0, tow_pool_fresh(8 * TOW_SLAB));
	ASSERT_EQ(0, tow_region_create(self->fd, 3 * TOW_SLAB, &large));
	EXPECT_EQ(3 * TOW_SLAB, tow_sysfs_get("pool_used_bytes"));
	EXPECT_EQ(1, tow_sysfs_get("stats/regions"));
	EXPECT_EQ(5, tow_sysfs_get("stats/free_slabs"));
	EXPECT_LE(3 * TOW_SLAB, tow_sysfs_get("pool_high_water_bytes"));
	ASSERT_EQ(0, tow_region_create(self->fd, 1, &small));
	EXPECT_EQ(3 * TOW_SLAB + TOW_SMALL_SLAB, tow_sysfs_get("pool_used_bytes"));
	EXPECT_LE(1, tow_sysfs_get("stats/small_slabs"));
	EXPECT_EQ(8 * TOW_SLAB, tow_sysfs_get("pool_bytes"));
	EXPECT_EQ(0, tow_region_end(self->fd, &large));
	EXPECT_EQ(0, tow_region_end(self->fd, &small));
	EXPECT_TRUE(tow_pool_unused());
	EXPECT_EQ(0, tow_sysfs_get("stats/held_slabs"));
	EXPECT_EQ(0, tow_sysfs_wait("stats/dirty_slabs", 0));
	/* It only ever rises. */
	EXPECT_LE(3 * TOW_SLAB + TOW_SMALL_SLAB, tow_sysfs_get("pool_high_water_bytes"));
	EXPECT_EQ(tow_sysfs_get("stats/dma_maps") - tow_sysfs_get("stats/dma_unmaps") > 0,
		  tow_sysfs_get("stats/slabs") > 0);
	ASSERT_EQ(0, tow_sysfs_put("pool_bytes", "0"));
	EXPECT_EQ(tow_sysfs_get("stats/dma_maps"), tow_sysfs_get("stats/dma_unmaps"));
}

/*
 * The whole pool can be had, in one piece, and in small pieces.  Small slabs stay small:
 * large ones can be had when the pool's size has been written again.
 */
TEST_F_TIMEOUT(pool, all_of_it_can_be_had, 60)
{
	const struct {
		size_t bytes;
		size_t count;
	} pieces[] = {
		{ 4 * TOW_SLAB, 1 }, { TOW_SMALL_SLAB, 4 * TOW_SLAB / TOW_SMALL_SLAB },
		{ TOW_SMALL_REGION, 4 * TOW_SLAB / TOW_SMALL_REGION },
		{ TOW_SLAB, 4 }, { 4 * TOW_SLAB, 1 },
	};
	struct tow_region_create made[4 * TOW_SLAB / TOW_SMALL_SLAB];
	int small = 0;
	size_t i, j;

	ASSERT_EQ(0, tow_pool_fresh(4 * TOW_SLAB));
	for (i = 0; i < ARRAY_SIZE(pieces); i++) {
		if (small && pieces[i].bytes > TOW_SMALL_REGION) {
			EXPECT_EQ(-ENOSPC, tow_region_create(self->fd, TOW_SLAB, &made[0]));
			ASSERT_EQ(0, tow_sysfs_set("pool_bytes", 4 * TOW_SLAB));
			EXPECT_EQ(0, tow_sysfs_get("stats/small_slabs"));
		}
		small = pieces[i].bytes <= TOW_SMALL_REGION;
		for (j = 0; j < pieces[i].count; j++) {
			ASSERT_EQ(0, tow_region_create(self->fd, pieces[i].bytes, &made[j]))
				TH_LOG("piece %zu of %zu bytes", j, pieces[i].bytes);
		}
		EXPECT_EQ(4 * TOW_SLAB, tow_sysfs_get("pool_used_bytes"));
		EXPECT_EQ(4 * TOW_SLAB, tow_sysfs_get("pool_bytes"));
		while (j-- > 0) {
			EXPECT_EQ(0, tow_region_end(self->fd, &made[j]));
		}
	}
	EXPECT_TRUE(tow_pool_unused());
}

/* ---- less than is in use ----------------------------------------------------------- */

TEST_F(pool, shrinks_as_memory_is_freed)
{
	struct tow_region_create made[4];
	int i;

	ASSERT_EQ(0, tow_pool_fresh(6 * TOW_SLAB));
	for (i = 0; i < 4; i++) {
		ASSERT_EQ(0, tow_region_create(self->fd, TOW_SLAB, &made[i]));
	}
	ASSERT_EQ(0, tow_sysfs_set("pool_bytes", TOW_SLAB));
	/* What is free is gone now, the rest when it is given back. */
	EXPECT_EQ(4 * TOW_SLAB, tow_sysfs_wait("pool_bytes", 4 * TOW_SLAB));
	EXPECT_EQ(-ENOSPC, tow_region_create(self->fd, 1, &(struct tow_region_create){ 0 }));
	for (i = 3; i > 0; i--) {
		EXPECT_EQ(0, tow_region_end(self->fd, &made[i]));
		EXPECT_EQ(i * TOW_SLAB, tow_sysfs_wait("pool_bytes", i * TOW_SLAB));
	}
	EXPECT_EQ(0, tow_region_end(self->fd, &made[0]));
	EXPECT_TRUE(tow_pool_unused());
	EXPECT_EQ(TOW_SLAB, tow_sysfs_get("pool_bytes"));
	EXPECT_EQ(1, tow_sysfs_get("stats/slabs"));
}

/* Small slabs in use are too much: no large one goes in their place. */
TEST_F(pool, shrinks_no_further)
{
	struct tow_region_create made[2];
	uint64_t small = 0;
	int i;

	ASSERT_EQ(0, tow_pool_fresh(2 * TOW_SLAB));
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, tow_region_create(self->fd, TOW_SMALL_REGION, &made[i]));
		small += TOW_SMALL_REGION;
	}
	ASSERT_EQ(0, tow_sysfs_set("pool_bytes", TOW_SLAB));
	EXPECT_EQ(TOW_SLAB + small, tow_sysfs_wait("pool_bytes", TOW_SLAB + small));
	for (i = 0; i < 2; i++) {
		EXPECT_EQ(0, tow_region_end(self->fd, &made[i]));
		small -= TOW_SMALL_REGION;
		EXPECT_EQ(TOW_SLAB + small, tow_sysfs_wait("pool_bytes", TOW_SLAB + small));
	}
	EXPECT_TRUE(tow_pool_unused());
	EXPECT_EQ(1, tow_sysfs_get("stats/slabs"));
}

/* Changed one's mind before it had shrunk. */
TEST_F(pool, grows_while_it_shrinks)
{
	struct tow_region_create made, more;

	ASSERT_EQ(0, tow_pool_fresh(4 * TOW_SLAB));
	ASSERT_EQ(0, tow_region_create(self->fd, 4 * TOW_SLAB, &made));
	ASSERT_EQ(0, tow_sysfs_put("pool_bytes", "0"));
	EXPECT_EQ(4 * TOW_SLAB, tow_sysfs_get("pool_bytes"));
	ASSERT_EQ(0, tow_sysfs_set("pool_bytes", 6 * TOW_SLAB));
	EXPECT_EQ(6 * TOW_SLAB, tow_sysfs_get("pool_bytes"));
	EXPECT_EQ(0, tow_region_create(self->fd, 2 * TOW_SLAB, &more));
	EXPECT_EQ(0, tow_region_end(self->fd, &made));
	EXPECT_TRUE(tow_sysfs_wait("pool_used_bytes", 2 * TOW_SLAB) == 2 * TOW_SLAB);
	EXPECT_EQ(6 * TOW_SLAB, tow_sysfs_get("pool_bytes"));
	EXPECT_EQ(0, tow_region_end(self->fd, &more));
}

/* ---- more than there is -------------------------------------------------------------- */

static uint64_t memory_kb(const char *name)
{
	char line[128], format[64];
	unsigned long long value = 0;
	FILE *file = fopen("/proc/meminfo", "re");

	snprintf(format, sizeof(format), "%s:", name);
	while (file && fgets(line, sizeof(line), file)) {
		if (!strncmp(line, format, strlen(format)))
			value = strtoull(line + strlen(format), NULL, 10);
	}
	if (file)
		fclose(file);
	return value;
}

/*
 * The machine stays alive: nobody is killed for it, and a process gets memory
 * meanwhile.
 */
TEST_F_TIMEOUT(pool, more_than_the_machine_has, 120)
{
	uint64_t total = memory_kb("MemTotal") * 1024, had;
	uint64_t refusals = tow_sysfs_get("stats/memory_refusals");
	int log = tow_log_open(), killer = tow_log_open();
	char *memory;

	ASSERT_LE(0, log);
	ASSERT_LE(0, killer);
	ASSERT_LT(0, total);
	EXPECT_EQ(-ENOMEM, tow_sysfs_set("pool_bytes", 2 * total));
	had = tow_sysfs_get("pool_bytes");
	TH_LOG("%llu of %llu MiB could be had", (unsigned long long)had >> 20,
	       (unsigned long long)total >> 20);
	EXPECT_LT(total / 16, had);
	EXPECT_GT(total, had);
	EXPECT_EQ(0, had % TOW_SMALL_SLAB);
	EXPECT_TRUE(tow_log_says(log, "the machine has no more to give"));
	EXPECT_EQ(refusals + 1, tow_sysfs_get("stats/memory_refusals"));
	memory = mmap(NULL, 4 * TOW_MB, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	EXPECT_NE(MAP_FAILED, (void *)memory);
	EXPECT_EQ(0, system("true"));
	/* What could be had is good, and all of it comes back. */
	ASSERT_EQ(0, tow_sysfs_put("pool_bytes", "8m"));
	EXPECT_EQ(8 * TOW_MB, tow_sysfs_get("pool_bytes"));
	EXPECT_LT(had / 2 / 1024, memory_kb("MemFree"));
	EXPECT_EQ(0, tow_log_count(killer, "Out of memory", "Killed process"));
	close(killer);
	close(log);
}

/* More than any machine has is no size. */
TEST_F(pool, absurd_sizes)
{
	EXPECT_EQ(-ERANGE, tow_sysfs_put("pool_bytes", "18446744073709551615"));
	EXPECT_EQ(-ERANGE, tow_sysfs_put("pool_bytes", "18446744073709551616"));
	EXPECT_EQ(-ERANGE, tow_sysfs_put("pool_bytes", "17179869184g"));
	EXPECT_EQ(-ERANGE, tow_sysfs_put("pool_bytes", "17179869185g"));
	EXPECT_EQ(-ERANGE, tow_sysfs_put("pool_bytes", "18014398509481984k"));
	EXPECT_EQ(0, tow_sysfs_get("pool_bytes"));
}

/* ---- under load ------------------------------------------------------------------------ */

#define LOAD_SLABS	8

struct load {
	pthread_t thread;
	atomic_int *stop;
	unsigned int seed;
	int fd;
	int made;
	int refused;
	int wrong;
};

/* Random sizes; contents of one's own, from zero to the end. */
static int load_once(struct load *load)
{
	const size_t sizes[] = { 1, TOW_SMALL_REGION, TOW_SLAB, 2 * TOW_SLAB };
	size_t bytes = sizes[rand_r(&load->seed) % ARRAY_SIZE(sizes)];
	uint64_t stamp = (uint64_t)rand_r(&load->seed) % 1000 + 1;

	/* A page of each is enough, and keeps the load on the pool. */
	return tow_mapped_use(load->fd, bytes, 4096, stamp);
}

static void *load_pool(void *arg)
{
	struct load *load = arg;
	int ret;

	while (!*load->stop) {
		ret = load_once(load);
		if (!ret)
			__atomic_add_fetch(&load->made, 1, __ATOMIC_RELAXED);
		else if (ret == -ENOSPC)
			load->refused++;
		else
			load->wrong = ret;
	}
	return NULL;
}

/* Each has made one, before long. */
static void await_loads(const struct load *loads, int count)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	int i;

	for (i = 0; i < count; i++)
		while (!__atomic_load_n(&loads[i].made, __ATOMIC_RELAXED) && tow_patient(&patience))
			tow_test_sleep_ms(1);
}

TEST_F_TIMEOUT(pool, resized_under_load, 3600)
{
	int rounds = tow_test_count(40), i;
	struct load loads[4];
	atomic_int stop = 0;
	unsigned int seed = 1;

	ASSERT_EQ(0, tow_pool_fresh(LOAD_SLABS * TOW_SLAB));
	for (i = 0; i < 4; i++) {
		loads[i] = (struct load){
			.stop = &stop, .seed = (unsigned int)i,
			.fd = i & 1 ? tow_test_open(O_RDWR) : self->fd,
		};
		ASSERT_EQ(0, pthread_create(&loads[i].thread, NULL, load_pool, &loads[i]));
	}
	for (i = 0; i < rounds; i++) {
		uint64_t slabs = (uint64_t)rand_r(&seed) % (2UL * LOAD_SLABS);

		EXPECT_EQ(0, tow_sysfs_set("pool_bytes", slabs * TOW_SLAB));
		tow_test_sleep_ms(20);
	}
	EXPECT_EQ(0, tow_sysfs_set("pool_bytes", LOAD_SLABS * TOW_SLAB));
	tow_test_sleep_ms(100);
	await_loads(loads, 4);
	stop = 1;
	for (i = 0; i < 4; i++) {
		pthread_join(loads[i].thread, NULL);
		TH_LOG("thread %d: %d made, %d refused", i, loads[i].made, loads[i].refused);
		EXPECT_EQ(0, loads[i].wrong)
			TH_LOG("%s", strerror(-loads[i].wrong));
		EXPECT_LT(0, loads[i].made);
		if (i & 1)
			close(loads[i].fd);
	}
	EXPECT_TRUE(tow_pool_unused());
	EXPECT_EQ(LOAD_SLABS * TOW_SLAB, tow_sysfs_wait("pool_bytes", LOAD_SLABS * TOW_SLAB));
	EXPECT_EQ(0, tow_sysfs_wait("stats/regions", 0));
}

struct resizer {
	pthread_t thread;
	atomic_int *stop;
	unsigned int seed;
	int wrong;
};

static void *resize_pool(void *arg)
{
	struct resizer *resizer = arg;
	int ret;

	while (!*resizer->stop) {
		ret = tow_sysfs_set("pool_bytes",
				    (uint64_t)(rand_r(&resizer->seed) % 8) * TOW_SLAB);
		if (ret)
			resizer->wrong = ret;
	}
	return NULL;
}

/* Several administrators at once: the last one's word counts. */
TEST_F_TIMEOUT(pool, resized_by_several, 60)
{
	struct resizer resizers[3];
	atomic_int stop = 0;
	int i;

	for (i = 0; i < 3; i++) {
		resizers[i] = (struct resizer){ .stop = &stop, .seed = (unsigned int)i };
		ASSERT_EQ(0, pthread_create(&resizers[i].thread, NULL, resize_pool,
					    &resizers[i]));
	}
	tow_test_sleep_ms(1000);
	stop = 1;
	for (i = 0; i < 3; i++) {
		pthread_join(resizers[i].thread, NULL);
		EXPECT_EQ(0, resizers[i].wrong)
			TH_LOG("%s", strerror(-resizers[i].wrong));
	}
	ASSERT_EQ(0, tow_sysfs_set("pool_bytes", 3 * TOW_SLAB));
	EXPECT_EQ(3 * TOW_SLAB, tow_sysfs_get("pool_bytes"));
	EXPECT_EQ(3, tow_sysfs_get("stats/slabs"));
}

struct write_size {
	pthread_t thread;
	uint64_t bytes;
	int ret;
};

static void *write_size(void *arg)
{
	struct write_size *size = arg;

	size->ret = tow_sysfs_set("pool_bytes", size->bytes);
	return NULL;
}

/* While one grows the pool from nothing, and has made some slabs, empty it. */
static void change_ones_mind(struct __test_metadata *_metadata, struct write_size *size,
			     uint64_t made)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);

	ASSERT_EQ(0, pthread_create(&size->thread, NULL, write_size, size));
	while (tow_sysfs_get("pool_bytes") < made && tow_patient(&patience))
		;
	EXPECT_EQ(0, tow_sysfs_set("pool_bytes", 0));
	pthread_join(size->thread, NULL);
	EXPECT_EQ(0, tow_sysfs_get("pool_bytes"))
		TH_LOG("after %llu MiB were there", (unsigned long long)made >> 20);
}

#define MIND_SLABS	12

/* The later of two writes counts, also while the earlier one is under way. */
TEST_F_TIMEOUT(pool, emptied_while_it_grows, 60)
{
	struct write_size size = { .bytes = MIND_SLABS * TOW_SLAB };
	uint64_t round;

	ASSERT_EQ(0, tow_pool_fresh(0));
	for (round = 0; round < MIND_SLABS; round++) {
		change_ones_mind(_metadata, &size, (1 + round) * TOW_SLAB);
		EXPECT_EQ(0, size.ret);
	}
}

/* ---- whatever is written to the files ----------------------------------------------------- */

struct text {
	const char *bytes;
	size_t count;
};

#define TEXT(TEXT_BYTES)	{ TEXT_BYTES, sizeof(TEXT_BYTES) - 1 }

/* No number that any of the files takes. */
static const struct text malformed[] = {
	TEXT("\n"), TEXT(" "), TEXT("  \n"), TEXT("-1"), TEXT("-0"), TEXT("+1"),
	TEXT("-9223372036854775808"), TEXT("0x10"), TEXT("1e3"), TEXT("1.5m"), TEXT("1,000"), TEXT(" 1"), TEXT("1 "),
	TEXT("\t1"), TEXT("1\n\n"), TEXT("1\n2"), TEXT("1 2"), TEXT("m"), TEXT("k\n"), TEXT("1mm"),
	TEXT("1kb"), TEXT("1mib"), TEXT("1p"), TEXT("1b"), TEXT("1%"), TEXT("maximum"),
	TEXT("MAX"), TEXT("max1"), TEXT("1max"), TEXT("mx"), TEXT("none"), TEXT("unlimited"),
	TEXT("1\0"), TEXT("\0"), TEXT("1\0002"), TEXT("\0001"), TEXT("1m\0"), TEXT("max\0"),
	TEXT("1\0\n"), TEXT("max\0\n"), TEXT("\xff\xfe"), TEXT("1\xc2\xa0"), TEXT("%s%n"),
	TEXT("1\r\n"), TEXT("\"1\""),
};

/* Numbers, but of no limit: refused, and not taken for something smaller. */
static const struct text too_large[] = {
	TEXT("18446744073709551615"), TEXT("18446744073709551616"), TEXT("18446744073709551617"),
	TEXT("36893488147419103232"), TEXT("9223372036854775808"),
};

TEST_F_TIMEOUT(pool, sysfs_takes_nothing_malformed, 60)
{
	static char letters[4095], digits[4095];
	char before[64], after[64];
	size_t i, j;
	int ret;

	memset(letters, 'a', sizeof(letters));
	memset(digits, '9', sizeof(digits));
	ASSERT_EQ(0, tow_sysfs_put("pool_bytes", "4m"));
	for (i = 0; i < ARRAY_SIZE(tow_knobs); i++) {
		tow_sysfs_line(tow_knobs[i], before, sizeof(before));
		ASSERT_NE('\0', before[0]);
		for (j = 0; j < ARRAY_SIZE(malformed); j++) {
			EXPECT_EQ(-EINVAL, tow_sysfs_put_bytes(tow_knobs[i], malformed[j].bytes,
							       malformed[j].count))
				TH_LOG("%s: text %zu (\"%s\")", tow_knobs[i], j,
				       malformed[j].bytes);
		}
		for (j = 0; j < ARRAY_SIZE(too_large); j++) {
			EXPECT_EQ(-ERANGE, tow_sysfs_put(tow_knobs[i], too_large[j].bytes))
				TH_LOG("%s: \"%s\"", tow_knobs[i], too_large[j].bytes);
		}
		EXPECT_EQ(-EINVAL, tow_sysfs_put_bytes(tow_knobs[i], letters, sizeof(letters)));
		ret = tow_sysfs_put_bytes(tow_knobs[i], digits, sizeof(digits));
		EXPECT_TRUE(ret == -EINVAL || ret == -ERANGE);
		/* An empty write calls nobody; it changes nothing, whatever it says. */
		tow_sysfs_put_bytes(tow_knobs[i], "", 0);
		tow_sysfs_line(tow_knobs[i], after, sizeof(after));
		EXPECT_STREQ(before, after)
			TH_LOG("%s", tow_knobs[i]);
	}
	/* Only what is counted in bytes has suffixes; a pool without end is none. */
	EXPECT_EQ(-EINVAL, tow_sysfs_put("linger_max_s", "1m"));
	EXPECT_EQ(-EINVAL, tow_sysfs_put("user_region_limit", "1k"));
	EXPECT_EQ(-EINVAL, tow_sysfs_put("client_mr_limit", "1k"));
	EXPECT_EQ(-EINVAL, tow_sysfs_put("pool_bytes", "max"));
}

/* What was written is what is read. */
TEST_F(pool, limits_read_back)
{
	static const char * const files[] = {
		"client_bytes_limit", "user_bytes_limit", "client_mr_limit", "user_mr_limit",
		"client_region_limit", "user_region_limit", "device_region_limit",
	};
	static const char * const values[] = { "0", "1", "12345", "4294967297", "max" };
	char line[64];
	size_t i, j;

	for (i = 0; i < ARRAY_SIZE(files); i++) {
		for (j = 0; j < ARRAY_SIZE(values); j++) {
			EXPECT_EQ(0, tow_sysfs_put(files[i], values[j]))
				TH_LOG("%s = %s", files[i], values[j]);
			tow_sysfs_line(files[i], line, sizeof(line));
			EXPECT_STREQ(values[j], line);
		}
	}
	EXPECT_EQ(0, tow_sysfs_put("linger_max_s", "17\n"));
	EXPECT_EQ(17, tow_sysfs_get("linger_max_s"));
	EXPECT_EQ(0, tow_sysfs_put("mr_limit", "100"));
	EXPECT_EQ(100, tow_sysfs_get("mr_limit"));
}

/* Written, too, but not as a number of this kind. */
static const char * const other_knobs[] = {
	"gid_index", "traffic_class", "cluster_key", "cgroup_bytes_limit",
};

TEST_F(pool, other_knobs_take_nothing_malformed)
{
	static const struct text malformed_or_unset[] = {
		TEXT("-2"), TEXT("256"), TEXT("x"), TEXT("1 "), TEXT("--1"), TEXT("0x1"), TEXT("1\0"),
		TEXT("18446744073709551615"),
	};
	static const struct text malformed_keys[] = {
		TEXT("nothing"), TEXT(":nothing"), TEXT("tow:a\nb"), TEXT("tow:a\0b"),
	};
	static char letters[4095];
	char before[64], after[64];
	size_t i;

	memset(letters, 'a', sizeof(letters));
	for (i = 0; i < 2 * ARRAY_SIZE(malformed_or_unset); i++) {
		const struct text *text = &malformed_or_unset[i / 2];

		EXPECT_GT(0, tow_sysfs_put_bytes(other_knobs[i % 2], text->bytes, text->count))
			TH_LOG("%s", text->bytes);
	}
	for (i = 0; i < ARRAY_SIZE(malformed_keys); i++)
		EXPECT_GT(0, tow_sysfs_put_bytes("cluster_key", malformed_keys[i].bytes,
						 malformed_keys[i].count))
			TH_LOG("%s", malformed_keys[i].bytes);
	for (i = 0; i < ARRAY_SIZE(other_knobs); i++) {
		tow_sysfs_line(other_knobs[i], before, sizeof(before));
		EXPECT_EQ(-EINVAL, tow_sysfs_put_bytes(other_knobs[i], letters, sizeof(letters)));
		tow_sysfs_line(other_knobs[i], after, sizeof(after));
		EXPECT_STREQ(before, after);
	}
	for (i = 0; i < 2; i++) {
		tow_sysfs_line(other_knobs[i], before, sizeof(before));
		EXPECT_STREQ("-1", before);
		EXPECT_EQ(0, tow_sysfs_put(other_knobs[i], "0"));
		EXPECT_EQ(0, tow_sysfs_put(other_knobs[i], "-1"));
	}
}

static bool is_knob(const char *file)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(other_knobs); i++)
		if (!strcmp(other_knobs[i], file))
			return true;

	for (i = 0; i < ARRAY_SIZE(tow_knobs); i++)
		if (!strcmp(tow_knobs[i], file))
			return true;
	return false;
}

static void check_read_only(struct __test_metadata *_metadata, const char *file)
{
	char before[64], after[64];

	tow_sysfs_line(file, before, sizeof(before));
	EXPECT_NE('\0', before[0])
		TH_LOG("%s cannot be read", file);
	EXPECT_GT(0, tow_sysfs_put(file, "1"))
		TH_LOG("%s can be written", file);
	tow_sysfs_line(file, after, sizeof(after));
	EXPECT_STREQ(before, after);
}

/* Whatever there is in a folder of the device's: how many files it has. */
static size_t check_files(struct __test_metadata *_metadata, const char *folder, size_t *knobs)
{
	char path[400], file[NAME_MAX + 16];
	struct dirent *entry;
	size_t count = 0;
	DIR *dir;

	tow_sysfs_path(path, sizeof(path), folder);
	dir = opendir(path);
	ASSERT_NE(NULL, dir);
	while ((entry = readdir(dir))) {
		/* The driver core's own. */
		if (entry->d_type != DT_REG || !strcmp(entry->d_name, "uevent"))
			continue;
		snprintf(file, sizeof(file), "%s%s", folder, entry->d_name);
		count++;
		if (is_knob(file))
			++*knobs;
		else
			check_read_only(_metadata, file);
	}
	closedir(dir);
	return count;
}

/*
 * What is no knob, which the other cases write to, is only told and cannot be
 * written, not even by root.
 */
TEST_F(pool, knobs_are_all_that_can_be_written)
{
	size_t knobs = 0;

	EXPECT_LT(ARRAY_SIZE(tow_knobs) + 4, check_files(_metadata, "", &knobs));
	EXPECT_LT(10, check_files(_metadata, "stats/", &knobs));
	EXPECT_EQ(ARRAY_SIZE(tow_knobs) + ARRAY_SIZE(other_knobs), knobs);
}

TEST_HARNESS_MAIN
