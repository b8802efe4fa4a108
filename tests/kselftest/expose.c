// SPDX-License-Identifier: GPL-2.0
/*
 * What peers can reach: a slab's keys work from towk_slab_expose() to
 * towk_slab_hide(), for what they were given for, and never after.  A queue pair
 * of tow_expose.ko in the slabs' protection domain asks, as a peer would.
 */
/* build: link -libverbs */

#include <sys/resource.h>
#include <sys/stat.h>
#include "tow_identity.h"
#include "tow_peer.h"
#include "tow_probe.h"
#include "tow_verbs.h"

#define POOL_BYTES	(8 * TOW_MB)
#define REGION_BYTES	(2 * TOW_SLAB)

/* Keys have 8 bits that change: so many registrations until they come again. */
#define KEYS		256
#define REGISTRATIONS	300

/* What is written, give or take a little. */
#define WORD		0x746f776c696e65ULL

struct bench {
	char name[NAME_MAX + 1];
	char interface[64];
	struct tow_knobs knobs;
	int client;
	int expose;
	struct tow_query query;
	struct tow_mapped region;
};

static int bench_up(struct bench *bench)
{
	int ret;

	snprintf(bench->name, sizeof(bench->name), "%s", tow_test_device());
	snprintf(bench->interface, sizeof(bench->interface), "%s", tow_link_interface());
	tow_knobs_save(&bench->knobs);
	bench->client = tow_test_open(O_RDWR);
	if (bench->client < 0)
		return bench->client;
	bench->expose = tow_expose_open();
	if (bench->expose < 0)
		return bench->expose;
	ret = tow_maint_wait(bench->client, &bench->query);
	if (!ret)
		ret = tow_pool_fresh(POOL_BYTES);
	if (!ret)
		ret = tow_mapped_make(bench->client, REGION_BYTES, &bench->region);
	return ret;
}

/* By the parent, whatever happened to the test. */
static bool bench_down(const struct bench *bench)
{
	bool ok = tow_link_restore(bench->name, bench->interface);

	ok &= tow_pool_unused();
	ok &= !chmod(tow_test_path(), 0600);
	return !tow_knobs_restore(&bench->knobs) && ok;
}

/* Registrations without probing. */
FIXTURE(registration)
{
	struct bench bench;
};

FIXTURE_SETUP(registration)
{
	ASSERT_EQ(0, bench_up(&self->bench));
}

FIXTURE_TEARDOWN_PARENT(registration)
{
	EXPECT_TRUE(bench_down(&self->bench))
		TH_LOG("the device is not as it was");
}

FIXTURE(probe)
{
	struct bench bench;
};

FIXTURE_SETUP(probe)
{
	ASSERT_EQ(0, bench_up(&self->bench));
}

FIXTURE_TEARDOWN_PARENT(probe)
{
	EXPECT_TRUE(bench_down(&self->bench))
		TH_LOG("the device is not as it was");
}

/* ---- registrations --------------------------------------------------------- */

TEST_F(registration, module_refuses)
{
	struct tow_expose_slab none = { .id = 77 }, exposed;
	struct bench *b = &self->bench;
	int region = b->region.made.fd;
	unsigned int slabs = (unsigned int)(b->region.made.map_bytes / TOW_SLAB);

	/* Nobody's file yet. */
	EXPECT_EQ(-ENOENT, tow_hide(b->expose, &none));
	EXPECT_EQ(-EBADF, tow_expose(b->expose, -1, 0, TOW_EXPOSE_READ, &exposed));
	EXPECT_EQ(-EINVAL, tow_expose(b->expose, region, slabs, TOW_EXPOSE_READ, &exposed));
	EXPECT_EQ(-EINVAL, tow_expose(b->expose, region, 0, 2, &exposed));
	ASSERT_EQ(0, tow_expose(b->expose, region, 0, TOW_EXPOSE_READ, &exposed));
	EXPECT_EQ(-ENOENT, tow_hide(b->expose, &none));
	EXPECT_EQ(-ENOENT, tow_end(b->expose, TOW_EXPOSE_DROP, &exposed));
	EXPECT_EQ(0, tow_hide(b->expose, &exposed));
	EXPECT_EQ(-ENOENT, tow_hide(b->expose, &exposed));
}

/* One registration for all exposures of a kind, and it is told apart. */
TEST_F(registration, counted)
{
	struct bench *b = &self->bench;
	uint64_t registered = tow_sysfs_get("stats/registrations");
	uint64_t invalidated = tow_sysfs_get("stats/invalidations");
	struct tow_expose_slab one, two, reader;
	int region = b->region.made.fd;

	ASSERT_EQ(0, tow_expose(b->expose, region, 0, TOW_EXPOSE_WRITE, &one));
	ASSERT_EQ(0, tow_expose(b->expose, region, 0, TOW_EXPOSE_WRITE, &two));
	EXPECT_EQ(one.key, two.key);
	EXPECT_EQ(one.address, two.address);
	EXPECT_EQ(registered + 1, tow_sysfs_get("stats/registrations"));
	ASSERT_EQ(0, tow_expose(b->expose, region, 0, TOW_EXPOSE_READ, &reader));
	EXPECT_NE(one.key, reader.key);
	EXPECT_EQ(registered + 2, tow_sysfs_get("stats/registrations"));
	EXPECT_EQ(0, tow_hide(b->expose, &one));
	EXPECT_EQ(invalidated, tow_sysfs_get("stats/invalidations"));
	EXPECT_EQ(0, tow_hide(b->expose, &two));
	EXPECT_EQ(invalidated + 1, tow_sysfs_get("stats/invalidations"));
	EXPECT_EQ(0, tow_hide(b->expose, &reader));
	EXPECT_EQ(invalidated + 2, tow_sysfs_get("stats/invalidations"));
}

TEST_F(registration, key_is_another_each_time)
{
	struct bench *b = &self->bench;
	struct tow_expose_slab now;
	uint32_t last = 0;
	int i;

	for (i = 0; i < REGISTRATIONS; i++) {
		ASSERT_EQ(0, tow_expose(b->expose, b->region.made.fd, 0, TOW_EXPOSE_READ, &now));
		EXPECT_NE(last, now.key);
		last = now.key;
		ASSERT_EQ(0, tow_hide(b->expose, &now));
	}
}

/*
 * A peer that may still have operations in flight keeps the slab out of
 * everybody's hands, however long its region is gone.
 */
TEST_F(registration, held_slab_is_nobodys)
{
	struct bench *b = &self->bench;
	struct tow_expose_slab held, again;
	struct tow_region_create all;
	int other = tow_test_open(O_RDWR);
	void *memory;

	ASSERT_LE(0, other);
	tow_fill(b->region.words, REGION_BYTES, 1);
	ASSERT_EQ(0, tow_hold(b->expose, b->region.made.fd, 1, &held));
	ASSERT_EQ(0, tow_hold(b->expose, b->region.made.fd, 1, &again));
	ASSERT_EQ(0, tow_mapped_end(&b->region));
	EXPECT_EQ(1, tow_sysfs_wait("stats/draining_slabs", 1));
	EXPECT_EQ(TOW_SLAB, tow_sysfs_wait("pool_used_bytes", TOW_SLAB));

	EXPECT_EQ(-ENOSPC, tow_region_create(other, POOL_BYTES, &all));
	EXPECT_EQ(0, tow_end(b->expose, TOW_EXPOSE_DROP, &held));
	EXPECT_EQ(-ENOSPC, tow_region_create(other, POOL_BYTES, &all));
	EXPECT_EQ(1, tow_sysfs_get("stats/draining_slabs"));
	ASSERT_EQ(0, tow_region_create(other, POOL_BYTES - TOW_SLAB, &all));
	EXPECT_EQ(0, tow_region_end(other, &all));

	EXPECT_EQ(0, tow_end(b->expose, TOW_EXPOSE_DROP, &again));
	EXPECT_EQ(0, tow_sysfs_wait("stats/draining_slabs", 0));
	ASSERT_EQ(0, tow_region_create(other, POOL_BYTES, &all));
	memory = tow_region_map(all.fd, POOL_BYTES, PROT_READ);
	ASSERT_NE(MAP_FAILED, memory);
	EXPECT_TRUE(tow_is_zero(memory, POOL_BYTES));
}

/* The pool shrinks around it, and takes it when it is let go. */
TEST_F(registration, held_slab_outlives_shrinking)
{
	struct bench *b = &self->bench;
	struct tow_expose_slab held;

	ASSERT_EQ(0, tow_hold(b->expose, b->region.made.fd, 0, &held));
	ASSERT_EQ(0, tow_mapped_end(&b->region));
	EXPECT_EQ(0, tow_sysfs_put("pool_bytes", "0"));
	EXPECT_EQ(TOW_SLAB, tow_sysfs_wait("pool_bytes", TOW_SLAB));
	EXPECT_EQ(0, tow_end(b->expose, TOW_EXPOSE_DROP, &held));
	EXPECT_EQ(0, tow_sysfs_wait("pool_bytes", 0));
}

/* Both ends of what was made: the file's and the process's. */
TEST_F(registration, closing_ends_all)
{
	struct bench *b = &self->bench;
	uint64_t registered, invalidated;
	struct tow_expose_slab exposed, held;

	registered = tow_sysfs_get("stats/registrations");
	invalidated = tow_sysfs_get("stats/invalidations");
	ASSERT_EQ(0, tow_expose(b->expose, b->region.made.fd, 0, TOW_EXPOSE_READ, &exposed));
	ASSERT_EQ(0, tow_expose(b->expose, b->region.made.fd, 1, TOW_EXPOSE_WRITE, &exposed));
	ASSERT_EQ(0, tow_hold(b->expose, b->region.made.fd, 1, &held));
	ASSERT_EQ(0, tow_mapped_end(&b->region));
	EXPECT_EQ(REGION_BYTES, tow_sysfs_get("pool_used_bytes"));
	close(b->expose);
	EXPECT_TRUE(tow_pool_unused());
	EXPECT_EQ(registered + 2, tow_sysfs_get("stats/registrations"));
	EXPECT_EQ(invalidated + 2, tow_sysfs_get("stats/invalidations"));
}

/* Exposures and holds are left when the device goes; mappings stay. */
TEST_F_TIMEOUT(registration, removal_ends_all, 120)
{
	struct bench *b = &self->bench;
	struct tow_expose_slab exposed, held;
	struct tow_mapped gone;

	ASSERT_EQ(0, tow_mapped_make(b->client, TOW_SLAB, &gone));
	ASSERT_EQ(0, tow_hold(b->expose, gone.made.fd, 0, &held));
	ASSERT_EQ(0, tow_expose(b->expose, gone.made.fd, 0, TOW_EXPOSE_WRITE, &exposed));
	ASSERT_EQ(0, tow_end(b->expose, TOW_EXPOSE_FORGET, &exposed));
	ASSERT_EQ(0, tow_mapped_end(&gone));
	ASSERT_EQ(0, tow_expose(b->expose, b->region.made.fd, 0, TOW_EXPOSE_READ, &exposed));
	ASSERT_EQ(0, tow_expose(b->expose, b->region.made.fd, 1, TOW_EXPOSE_WRITE, &exposed));
	tow_fill(b->region.words, REGION_BYTES, 2);

	ASSERT_TRUE(tow_link_del(b->name));
	EXPECT_EQ(-ENODEV, tow_hide(b->expose, &exposed));
	EXPECT_EQ(-ENODEV, tow_expose(b->expose, b->region.made.fd, 0, TOW_EXPOSE_READ,
				      &exposed));
	EXPECT_EQ(0, tow_differs(b->region.words, REGION_BYTES, 2));
	ASSERT_TRUE(tow_link_add(b->name, b->interface));
	ASSERT_TRUE(tow_wait_path(tow_test_path(), true));
	/* The file stays with the life that it was used in. */
	EXPECT_EQ(-ENODEV, tow_hide(b->expose, &exposed));
}

/* ---- probes ---------------------------------------------------------------- */

/* Before anything else: what a peer writes is what the process sees. */
TEST_F(probe, write_key_writes_and_reads)
{
	uint64_t last = TOW_SLAB - sizeof(uint64_t), word = 0;
	struct bench *b = &self->bench;
	struct tow_expose_slab to;

	ASSERT_EQ(0, tow_expose(b->expose, b->region.made.fd, 1, TOW_EXPOSE_WRITE, &to));
	EXPECT_EQ(0, tow_probe_write(b->expose, &to, 0, WORD));
	EXPECT_EQ(0, tow_probe_write(b->expose, &to, last, WORD + 1));
	EXPECT_EQ(WORD, b->region.words[TOW_SLAB / 8]);
	EXPECT_EQ(WORD + 1, b->region.words[REGION_BYTES / 8 - 1]);
	b->region.words[TOW_SLAB / 8 + 512] = WORD + 2;
	EXPECT_EQ(0, tow_probe_read(b->expose, &to, 4096, &word));
	EXPECT_EQ(WORD + 2, word);
	/* Not a byte more than the slab, at either end. */
	EXPECT_EQ(TOW_EXPOSE_REFUSED, tow_probe_write(b->expose, &to, last + 4, ~0ULL));
	EXPECT_EQ(TOW_EXPOSE_REFUSED, tow_probe_write(b->expose, &to, -4ULL, ~0ULL));
	EXPECT_EQ(TOW_EXPOSE_REFUSED, tow_probe_write(b->expose, &to, TOW_SLAB, ~0ULL));
	EXPECT_EQ(TOW_EXPOSE_REFUSED, tow_probe_read(b->expose, &to, TOW_SLAB, &word));
	EXPECT_EQ(WORD, b->region.words[TOW_SLAB / 8]);
	EXPECT_EQ(WORD + 1, b->region.words[REGION_BYTES / 8 - 1]);
	EXPECT_EQ(0, b->region.words[TOW_SLAB / 8 - 1]);
}

/* Whole packets, and every page where it belongs. */
TEST_F(probe, every_page)
{
	static uint64_t page[TOW_EXPOSE_PROBE_MAX / 8];
	struct bench *b = &self->bench;
	struct tow_expose_slab to;
	uint64_t at, i;

	ASSERT_EQ(0, tow_expose(b->expose, b->region.made.fd, 0, TOW_EXPOSE_WRITE, &to));
	/* One page for the device, where it is one piece of memory. */
	EXPECT_TRUE(to.chunks > 1 || to.page_bytes == TOW_SLAB)
		TH_LOG("pages of %llu bytes", (unsigned long long)to.page_bytes);
	for (at = 0; at < TOW_SLAB; at += 16 * sizeof(page)) {
		for (i = 0; i < ARRAY_SIZE(page); i++)
			page[i] = WORD + at + i;
		ASSERT_EQ(0, tow_probe(b->expose, TOW_EXPOSE_RDMA_WRITE, to.key,
				       to.address + at, page, sizeof(page)));
		EXPECT_EQ(0, memcmp(b->region.words + at / 8, page, sizeof(page)));
	}
}

TEST_F(probe, read_key_only_reads)
{
	struct bench *b = &self->bench;
	struct tow_expose_slab from;
	uint64_t word = 0;

	b->region.words[3] = WORD;
	ASSERT_EQ(0, tow_expose(b->expose, b->region.made.fd, 0, TOW_EXPOSE_READ, &from));
	EXPECT_EQ(0, tow_probe_read(b->expose, &from, 24, &word));
	EXPECT_EQ(WORD, word);
	EXPECT_EQ(TOW_EXPOSE_REFUSED, tow_probe_write(b->expose, &from, 24, ~0ULL));
	EXPECT_EQ(TOW_EXPOSE_REFUSED, tow_probe_add(b->expose, &from, 24, &word));
	EXPECT_EQ(WORD, b->region.words[3]);
	/* What was refused has not cost the others the key. */
	EXPECT_EQ(0, tow_probe_read(b->expose, &from, 24, &word));
}

TEST_F(probe, atomics_where_there_are_any)
{
	bool atomics = self->bench.query.features & TOW_FEATURE_ATOMICS;
	struct bench *b = &self->bench;
	struct tow_expose_slab to;
	uint64_t word = 5;

	b->region.words[0] = WORD;
	ASSERT_EQ(0, tow_expose(b->expose, b->region.made.fd, 0, TOW_EXPOSE_WRITE, &to));
	if (!atomics) {
		EXPECT_NE(0, tow_probe_add(b->expose, &to, 0, &word));
		EXPECT_EQ(WORD, b->region.words[0]);
		return;
	}
	EXPECT_EQ(0, tow_probe_add(b->expose, &to, 0, &word));
	EXPECT_EQ(WORD, word);
	EXPECT_EQ(WORD + 5, b->region.words[0]);
}

TEST_F(probe, hidden_key_is_refused)
{
	struct bench *b = &self->bench;
	struct tow_expose_slab to;
	uint64_t word;
	uint32_t rights;

	for (rights = TOW_EXPOSE_READ; rights <= TOW_EXPOSE_WRITE; rights++) {
		ASSERT_EQ(0, tow_expose(b->expose, b->region.made.fd, 0, rights, &to));
		EXPECT_EQ(0, tow_probe_read(b->expose, &to, 0, &word));
		ASSERT_EQ(0, tow_hide(b->expose, &to));
		EXPECT_EQ(TOW_EXPOSE_REFUSED, tow_probe_read(b->expose, &to, 0, &word));
		EXPECT_EQ(TOW_EXPOSE_REFUSED, tow_probe_write(b->expose, &to, 0, ~0ULL));
		EXPECT_EQ(0, b->region.words[0]);
	}
}

/* Two exposures, one taken back: the key works until the other is. */
TEST_F(probe, exposures_are_counted)
{
	struct bench *b = &self->bench;
	struct tow_expose_slab one, two;

	ASSERT_EQ(0, tow_expose(b->expose, b->region.made.fd, 0, TOW_EXPOSE_WRITE, &one));
	ASSERT_EQ(0, tow_expose(b->expose, b->region.made.fd, 0, TOW_EXPOSE_WRITE, &two));
	ASSERT_EQ(0, tow_hide(b->expose, &one));
	EXPECT_EQ(0, tow_probe_write(b->expose, &one, 0, WORD));
	ASSERT_EQ(0, tow_hide(b->expose, &two));
	EXPECT_EQ(TOW_EXPOSE_REFUSED, tow_probe_write(b->expose, &two, 0, ~0ULL));
	EXPECT_EQ(WORD, b->region.words[0]);
}

/* The key to read and the key to write come and go by themselves. */
TEST_F(probe, kinds_are_independent)
{
	struct bench *b = &self->bench;
	struct tow_expose_slab reader, writer;
	int region = b->region.made.fd;
	uint64_t word;

	ASSERT_EQ(0, tow_expose(b->expose, region, 0, TOW_EXPOSE_READ, &reader));
	ASSERT_EQ(0, tow_expose(b->expose, region, 0, TOW_EXPOSE_WRITE, &writer));
	EXPECT_EQ(TOW_EXPOSE_REFUSED, tow_probe_write(b->expose, &reader, 0, ~0ULL));
	EXPECT_EQ(0, tow_probe_write(b->expose, &writer, 0, WORD));
	ASSERT_EQ(0, tow_hide(b->expose, &writer));
	EXPECT_EQ(0, tow_probe_read(b->expose, &reader, 0, &word));
	EXPECT_EQ(WORD, word);
	EXPECT_EQ(TOW_EXPOSE_REFUSED, tow_probe_read(b->expose, &writer, 0, &word));
	ASSERT_EQ(0, tow_expose(b->expose, region, 0, TOW_EXPOSE_WRITE, &writer));
	ASSERT_EQ(0, tow_hide(b->expose, &reader));
	EXPECT_EQ(0, tow_probe_write(b->expose, &writer, 0, WORD + 1));
	EXPECT_EQ(TOW_EXPOSE_REFUSED, tow_probe_read(b->expose, &reader, 0, &word));
	EXPECT_EQ(WORD + 1, b->region.words[0]);
}

/* Neighbours in one region, and yet the one's key says nothing of the other. */
TEST_F(probe, slabs_are_independent)
{
	struct bench *b = &self->bench;
	struct tow_expose_slab one, two, mixed;
	int region = b->region.made.fd;

	ASSERT_EQ(0, tow_expose(b->expose, region, 0, TOW_EXPOSE_WRITE, &one));
	ASSERT_EQ(0, tow_expose(b->expose, region, 1, TOW_EXPOSE_WRITE, &two));
	EXPECT_NE(one.key, two.key);
	mixed = one;
	mixed.address = two.address;
	if (one.address != two.address) {
		EXPECT_EQ(TOW_EXPOSE_REFUSED, tow_probe_write(b->expose, &mixed, 0, ~0ULL));
	}
	ASSERT_EQ(0, tow_hide(b->expose, &one));
	EXPECT_EQ(TOW_EXPOSE_REFUSED, tow_probe_write(b->expose, &one, 0, ~0ULL));
	EXPECT_EQ(0, tow_probe_write(b->expose, &two, 0, WORD));
	EXPECT_EQ(0, b->region.words[0]);
	EXPECT_EQ(WORD, b->region.words[TOW_SLAB / 8]);
}

/*
 * So many registrations that keys come again: at any time the present key
 * works, and of all that were before only the one that it equals.
 */
TEST_F_TIMEOUT(probe, stale_keys_are_refused, 600)
{
	struct bench *b = &self->bench;
	struct tow_expose_slab now = { 0 }, stale;
	uint32_t keys[REGISTRATIONS];
	int i, refused = 0, equal = 0;
	uint64_t word;

	for (i = 0; i < REGISTRATIONS; i++) {
		ASSERT_EQ(0, tow_expose(b->expose, b->region.made.fd, 0, TOW_EXPOSE_WRITE, &now));
		keys[i] = now.key;
		if (i % 16 == 0) {
			EXPECT_EQ(0, tow_probe_write(b->expose, &now, 0, WORD + (unsigned)i));
			EXPECT_EQ(WORD + (unsigned)i, b->region.words[0]);
		}
		if (i < REGISTRATIONS - 1)
			ASSERT_EQ(0, tow_hide(b->expose, &now));
	}
	for (i = 0; i < REGISTRATIONS; i++) {
		stale = now;
		stale.key = keys[i];
		if (keys[i] == now.key) {
			equal++;
			EXPECT_EQ(0, tow_probe_read(b->expose, &stale, 0, &word));
			continue;
		}
		/* It came again, and has been tried already. */
		if (i >= KEYS && keys[i] == keys[i - KEYS])
			continue;
		refused++;
		ASSERT_EQ(TOW_EXPOSE_REFUSED, tow_probe_write(b->expose, &stale, 0, ~0ULL))
			TH_LOG("key %#x of registration %d, the present one is %#x", keys[i], i,
			       now.key);
	}
	TH_LOG("%d stale keys refused, %d equal the present one", refused, equal);
	EXPECT_EQ((REGISTRATIONS - 1) / KEYS + 1, equal);
	EXPECT_NE(~0ULL, b->region.words[0]);
}

/*
 * A region ends with its exposures: the pool takes the key back before anybody
 * else has the memory.
 */
TEST_F(probe, released_slab_is_out_of_reach)
{
	struct bench *b = &self->bench;
	struct tow_mapped next;
	struct tow_expose_slab to;
	uint64_t word;
	uint32_t slab;

	for (slab = 0; slab < 2; slab++) {
		ASSERT_EQ(0, tow_expose(b->expose, b->region.made.fd, slab, TOW_EXPOSE_WRITE,
					&to));
		EXPECT_EQ(0, tow_end(b->expose, TOW_EXPOSE_FORGET, &to));
	}
	EXPECT_EQ(0, tow_probe_write(b->expose, &to, 0, WORD));
	ASSERT_EQ(0, tow_mapped_end(&b->region));
	ASSERT_TRUE(tow_pool_unused());
	EXPECT_EQ(TOW_EXPOSE_REFUSED, tow_probe_write(b->expose, &to, 0, ~0ULL));
	EXPECT_EQ(TOW_EXPOSE_REFUSED, tow_probe_read(b->expose, &to, 0, &word));

	ASSERT_EQ(0, tow_mapped_make(b->client, POOL_BYTES, &next));
	ASSERT_NE(NULL, next.words);
	EXPECT_EQ(TOW_EXPOSE_REFUSED, tow_probe_write(b->expose, &to, 0, ~0ULL));
	EXPECT_TRUE(tow_is_zero(next.words, POOL_BYTES));
	/* Exposed by its next owner it has other keys. */
	for (slab = 0; slab < POOL_BYTES / TOW_SLAB; slab++) {
		struct tow_expose_slab again;

		ASSERT_EQ(0, tow_expose(b->expose, next.made.fd, slab, TOW_EXPOSE_WRITE, &again));
		EXPECT_NE(to.key, again.key);
	}
	EXPECT_EQ(TOW_EXPOSE_REFUSED, tow_probe_write(b->expose, &to, 0, ~0ULL));
}

/* Revoked is not yet released: a peer that has not acknowledged may go on. */
TEST_F(probe, held_slab_keeps_its_key)
{
	struct bench *b = &self->bench;
	struct tow_expose_slab to, held;

	ASSERT_EQ(0, tow_expose(b->expose, b->region.made.fd, 0, TOW_EXPOSE_WRITE, &to));
	ASSERT_EQ(0, tow_hold(b->expose, b->region.made.fd, 0, &held));
	ASSERT_EQ(0, tow_end(b->expose, TOW_EXPOSE_FORGET, &to));
	ASSERT_EQ(0, tow_mapped_end(&b->region));
	EXPECT_EQ(1, tow_sysfs_wait("stats/draining_slabs", 1));
	EXPECT_EQ(TOW_SLAB, tow_sysfs_wait("pool_used_bytes", TOW_SLAB));
	EXPECT_EQ(0, tow_probe_write(b->expose, &to, 0, WORD));
	EXPECT_EQ(0, tow_end(b->expose, TOW_EXPOSE_DROP, &held));
	EXPECT_TRUE(tow_pool_unused());
	EXPECT_EQ(TOW_EXPOSE_REFUSED, tow_probe_write(b->expose, &to, 0, ~0ULL));
}

/* What its client exposed and did not hide before it was killed, too. */
TEST_F(probe, closed_file_hides)
{
	struct bench *b = &self->bench;
	struct tow_expose_slab to, own;
	int other = tow_expose_open();

	ASSERT_LE(0, other);
	ASSERT_EQ(0, tow_expose(other, b->region.made.fd, 0, TOW_EXPOSE_WRITE, &to));
	ASSERT_EQ(0, tow_expose(b->expose, b->region.made.fd, 1, TOW_EXPOSE_READ, &own));
	EXPECT_EQ(0, tow_probe_write(b->expose, &to, 0, WORD));
	close(other);
	EXPECT_EQ(TOW_EXPOSE_REFUSED, tow_probe_write(b->expose, &to, 0, ~0ULL));
	EXPECT_EQ(WORD, b->region.words[0]);
}

/* One slab of 64 KiB under one key, and nothing around it. */
TEST_F(probe, small_slabs)
{
	struct bench *b = &self->bench;
	struct tow_mapped small;
	struct tow_expose_slab to;
	uint64_t last = TOW_SMALL_SLAB - 8;

	ASSERT_EQ(0, tow_mapped_make(b->client, 3 * TOW_SMALL_SLAB, &small));
	ASSERT_EQ(0, tow_expose(b->expose, small.made.fd, 1, TOW_EXPOSE_WRITE, &to));
	EXPECT_TRUE(to.chunks > 1 || to.page_bytes == TOW_SMALL_SLAB)
		TH_LOG("pages of %llu bytes", (unsigned long long)to.page_bytes);
	EXPECT_EQ(0, tow_probe_write(b->expose, &to, 0, WORD));
	EXPECT_EQ(0, tow_probe_write(b->expose, &to, last, WORD));
	EXPECT_EQ(TOW_EXPOSE_REFUSED, tow_probe_write(b->expose, &to, last + 8, ~0ULL));
	EXPECT_EQ(TOW_EXPOSE_REFUSED, tow_probe_write(b->expose, &to, -8ULL, ~0ULL));
	EXPECT_EQ(WORD, small.words[TOW_SMALL_SLAB / 8]);
	EXPECT_EQ(WORD, small.words[2 * TOW_SMALL_SLAB / 8 - 1]);
	EXPECT_EQ(0, small.words[TOW_SMALL_SLAB / 8 - 1]);
	EXPECT_EQ(0, small.words[2 * TOW_SMALL_SLAB / 8]);
	EXPECT_EQ(0, tow_hide(b->expose, &to));
	EXPECT_EQ(TOW_EXPOSE_REFUSED, tow_probe_write(b->expose, &to, 0, ~0ULL));
}

/* ---- remote ranges --------------------------------------------------------- */

/* What a peer needs to reach an export of ours: the node is its own. */
static int reach(const struct bench *bench, uint64_t peer, const char *name,
		 struct tow_resolve *found, struct tow_expose_remote *remote)
{
	int ret = tow_find(bench->client, peer, name, found);

	return ret ? ret : tow_test_ioctl(bench->expose, TOW_EXPOSE_REMOTE, remote);
}

/*
 * Memory of the process is pinned in whole pages; what a peer is told begins at
 * the byte that the process said, however many pages and slabs there are.
 */
TEST_F_TIMEOUT(probe, imports_begin_where_they_should, 60)
{
	const struct {
		size_t skip, offset, bytes;
	} cases[] = {
		{ 0, 0, 64 }, { 8, 0, 64 }, { 8, 8, 64 }, { 4088, 0, 64 }, { 4088, 4096, 64 },
		{ 24, TOW_SLAB - 32, 64 }, { 24, TOW_SLAB, 64 },
		{ 1000, 2 * TOW_SLAB - 1000, 4096 },
	};
	size_t room = 3 * TOW_SLAB, i;
	char *memory = mmap(NULL, room, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct bench *b = &self->bench;
	struct tow_expose_remote remote;
	uint64_t region, word, *words;
	struct tow_expose_slab bound;
	struct tow_resolve found;
	__u64 exported, peer;

	ASSERT_NE(MAP_FAILED, (void *)memory);
	words = (uint64_t *)memory;
	for (i = 0; i < room / sizeof(*words); i++)
		words[i] = WORD + i;
	ASSERT_EQ(0, tow_sysfs_put("allow_unauthenticated", "1"));
	ASSERT_EQ(0, tow_connect_self(b->client, &peer));
	/* The module's file is the device's from now on. */
	ASSERT_EQ(0, tow_expose(b->expose, b->region.made.fd, 0, TOW_EXPOSE_READ, &bound));
	EXPECT_EQ(-ENOENT, tow_test_ioctl(b->expose, TOW_EXPOSE_REMOTE, &remote));
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		ASSERT_EQ(0, tow_region_import(b->client, memory + cases[i].skip,
					       room - cases[i].skip, TOW_REGION_READONLY,
					       &region));
		ASSERT_EQ(0, tow_publish_part(b->client, region, "part", cases[i].offset,
					      cases[i].bytes, &exported));
		ASSERT_EQ(0, reach(b, peer, "part", &found, &remote));
		EXPECT_EQ(0, tow_probe(b->expose, TOW_EXPOSE_RDMA_READ, remote.key,
				       remote.address, &word, sizeof(word)));
		EXPECT_EQ(WORD + (cases[i].skip + cases[i].offset) / sizeof(word), word)
			TH_LOG("case %zu: it began at byte %llu", i,
			       (unsigned long long)(word - WORD) * sizeof(word));
		EXPECT_GE(cases[i].bytes, remote.bytes);
		EXPECT_EQ(0, tow_end_handle(b->client, TOW_IOCTL_RELEASE, found.handle));
		EXPECT_EQ(0, tow_end_handle(b->client, TOW_IOCTL_UNEXPORT, exported));
		EXPECT_EQ(0, tow_region_destroy(b->client, region));
	}
	munmap(memory, room);
}

/* ---- RLIMIT_MEMLOCK -------------------------------------------------------- */

#define BIG		(64 * TOW_MB)
#define MEMLOCK		(8 * TOW_MB)

/* All slabs of a region can be written by peers; the last one is. */
static int register_all(int expose, const struct tow_mapped *region)
{
	struct tow_expose_slab to[BIG / TOW_SLAB];
	uint32_t slab;

	for (slab = 0; slab < ARRAY_SIZE(to); slab++) {
		if (tow_expose(expose, region->made.fd, slab, TOW_EXPOSE_WRITE, &to[slab]))
			return -1;
	}
	if (tow_probe_write(expose, &to[slab - 1], TOW_SLAB - 8, WORD) ||
	    region->words[BIG / 8 - 1] != WORD)
		return -2;
	while (slab-- > 0)
		if (tow_hide(expose, &to[slab]))
			return -3;
	return 0;
}

/* The same as programs do it today: what fits is registered, BIG is not. */
static int register_with_verbs(struct ibv_pd *pd)
{
	struct ibv_mr *mr;
	char *memory = mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return -4;
	/* It works, with less; so it is the limit that refuses. */
	mr = ibv_reg_mr(pd, memory, MEMLOCK / 2, IBV_ACCESS_LOCAL_WRITE);
	if (!mr || ibv_dereg_mr(mr))
		return -5;
	mr = ibv_reg_mr(pd, memory, BIG, IBV_ACCESS_LOCAL_WRITE);
	return mr || errno != ENOMEM ? -6 : 0;
}

/* 0, or the negative number of what went wrong. */
static int use_pool_and_verbs(void *arg)
{
	struct rlimit limit = { MEMLOCK, MEMLOCK };
	struct ibv_context *context = tow_verbs_open(tow_test_device());
	struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
	int expose = *(int *)arg, client = tow_test_open(O_RDWR), ret;
	struct tow_mapped region;

	if (setrlimit(RLIMIT_MEMLOCK, &limit) || client < 0 || !pd)
		return -7;
	if (tow_mapped_make(client, BIG, &region))
		return -8;
	tow_fill(region.at, BIG, 1);
	if (tow_differs(region.at, BIG, 1))
		return -9;
	ret = register_all(expose, &region);
	return ret ? ret : register_with_verbs(pd);
}

/* The pool is the administrator's, and no user's locked memory. */
TEST_F_TIMEOUT(probe, pool_needs_no_memlock, 120)
{
	struct bench *b = &self->bench;

	ASSERT_EQ(0, tow_mapped_end(&b->region));
	ASSERT_EQ(0, tow_pool_fresh(BIG));
	ASSERT_EQ(0, chmod(tow_test_path(), 0666));
	EXPECT_EQ(0, tow_as(TOW_NOBODY, use_pool_and_verbs, &b->expose))
		TH_LOG("see the numbers in use_pool_and_verbs()");
}

/* ---- errors, and the end --------------------------------------------------- */

/* An error on the maintenance queue pair costs nobody anything: there is another at once. */
TEST_F_TIMEOUT(probe, maintenance_breaks, 120)
{
	struct bench *b = &self->bench;
	struct tow_expose_slab first, second;
	int region = b->region.made.fd;
	struct tow_query query;

	ASSERT_EQ(0, tow_expose(b->expose, region, 0, TOW_EXPOSE_WRITE, &first));
	ASSERT_EQ(0, ioctl(b->expose, TOW_EXPOSE_BREAK));
	ASSERT_EQ(0, tow_expose(b->expose, region, 1, TOW_EXPOSE_WRITE, &second));
	EXPECT_EQ(0, tow_probe_write(b->expose, &second, 0, WORD));
	/* Registrations that stood before stand still. */
	EXPECT_EQ(0, tow_probe_write(b->expose, &first, 0, WORD));
	ASSERT_EQ(0, tow_maint_wait(b->client, &query));
	EXPECT_EQ(b->query.maint_rebuilds + 1, query.maint_rebuilds);

	/* Hidden is hidden, on whatever queue pair. */
	ASSERT_EQ(0, ioctl(b->expose, TOW_EXPOSE_BREAK));
	ASSERT_EQ(0, tow_hide(b->expose, &first));
	EXPECT_EQ(TOW_EXPOSE_REFUSED, tow_probe_write(b->expose, &first, 0, ~0ULL));
	EXPECT_EQ(0, tow_probe_write(b->expose, &second, 0, WORD + 1));
	ASSERT_EQ(0, tow_expose(b->expose, region, 0, TOW_EXPOSE_WRITE, &first));
	EXPECT_EQ(0, tow_probe_write(b->expose, &first, 0, WORD + 1));
	ASSERT_EQ(0, tow_maint_wait(b->client, &query));
	EXPECT_EQ(b->query.maint_rebuilds + 2, query.maint_rebuilds);
}

/* The device goes while a queue pair of ours stands and keys are out. */
TEST_F_TIMEOUT(probe, removal_with_everything, 120)
{
	struct bench *b = &self->bench;
	struct tow_expose_slab to;
	uint64_t word;

	ASSERT_EQ(0, tow_expose(b->expose, b->region.made.fd, 0, TOW_EXPOSE_WRITE, &to));
	ASSERT_EQ(0, tow_probe_write(b->expose, &to, 0, WORD));
	ASSERT_TRUE(tow_link_del(b->name));
	EXPECT_EQ(-ENODEV, tow_probe_read(b->expose, &to, 0, &word));
	EXPECT_EQ(-1, ioctl(b->expose, TOW_EXPOSE_BREAK));
	EXPECT_EQ(ENODEV, errno);
	EXPECT_EQ(WORD, b->region.words[0]);
}

TEST_HARNESS_MAIN
