// SPDX-License-Identifier: GPL-2.0
/*
 * Whoever has no memory tells the others, who wait for it: each of the calls that all ranks make takes
 * part in the first exchange at least, whichever allocation fails.
 */
/* build: link -Wl,--wrap=calloc -Wl,--wrap=tow_device_query -Wl,--wrap=tow_export */
#include <errno.h>
#include <string.h>

#include <kselftest.h>
#include <towline/collective.h>
#include <towline/feed.h>
#include <towline/server.h>

#include "../bootstrap/inside.h"
#include "tow_source.h"

#define RANKS		2U
#define OWN		1U
/* More than any of these calls allocates before it needs the kernel. */
#define ALLOCATIONS	12U

/* ---- the world ---------------------------------------------------------------- */

/* Which calloc(3) from now on fails; 0: none. */
static uint32_t fails;

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);

void *__wrap_calloc(size_t count, size_t bytes)
{
	if (fails && !--fails) {
		errno = ENOMEM;
		return NULL;
	}
	return __real_calloc(count, bytes);
}

int __wrap_tow_device_query(const struct tow_device *dev, struct tow_device_attr *attr);

int __wrap_tow_device_query(const struct tow_device *dev, struct tow_device_attr *attr)
{
	(void)dev;
	(void)attr;
	return 0;
}

int __wrap_tow_export(struct tow_region *region, uint64_t offset, uint64_t bytes,
		      const char *name, uint32_t rights, struct tow_exported **exported);

int __wrap_tow_export(struct tow_region *region, uint64_t offset, uint64_t bytes,
		      const char *name, uint32_t rights, struct tow_exported **exported)
{
	(void)region;
	(void)offset;
	(void)bytes;
	(void)name;
	(void)rights;
	*exported = NULL;
	return -EDQUOT;
}

static uint32_t gathers;

/* In place of that, what a group's other rank says it cannot come for: group.c, struct card. */
static int32_t others_status;

#define STATUS_AT	4U

/* The other rank tells the same. */
static int gather(void *arg, const void *mine, size_t bytes, void *all)
{
	(void)arg;
	gathers++;
	for (uint32_t rank = 0; rank < RANKS; rank++)
		memcpy((char *)all + rank * bytes, mine, bytes);
	if (others_status)
		memcpy((char *)all + STATUS_AT, &others_status, sizeof(others_status));
	return 0;
}

static const struct tow_world world = { .size = sizeof(world), .rank = OWN, .world_size = RANKS };
static const struct tow_group_attr meeting = { .size = sizeof(meeting), .address = "192.0.2.1",
					       .gather = gather };
static struct tow_device dev = { .fd = -1 };
static struct tow_arena *arena;
static struct tow_group *group;

static void make_group(void)
{
	dev.process = towi_process();
	if (tow_group_create(&dev, &world, &meeting, &group, NULL))
		ksft_exit_fail_msg("no group\n");
}

/* What the other rank says is returned if it is an error. */
static bool is_bounded(void)
{
	static const struct { int32_t says; int means; } cases[] = {
		{ -ENOPKG, -ENOPKG }, { -4096, -EPROTO }, { INT32_MIN, -EPROTO }, { 1, -EPROTO },
	};
	struct tow_group *none;
	bool good = true;
	uint32_t blamed;
	int ret;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		others_status = cases[i].says;
		ret = tow_group_create(&dev, &world, &meeting, &none, &blamed);
		others_status = 0;
		if (ret == cases[i].means && !blamed)
			continue;
		ksft_print_msg("%d: %d, and %u is to blame\n", cases[i].says, ret, blamed);
		good = false;
	}
	return good;
}

/* ---- calls -------------------------------------------------------------------- */

static int make_comm(void)
{
	struct tow_comm *made = NULL;

	return tow_comm_create(group, arena, NULL, &made, NULL);
}

static const struct tow_tensor_type type = {
	.dtype = { TOW_DTYPE_FLOAT, 32, 1 }, .ndim = 1, .dims = { 4 },
};

static int make_ps(void)
{
	const struct tow_ps_attr attr = { .size = sizeof(attr), .servers = 1, .count = 1,
					  .types = &type };
	struct tow_ps *made = NULL;

	return tow_ps_create(group, arena, &attr, &made, NULL);
}

static int make_feed(void)
{
	const struct tow_feed_attr attr = { .size = sizeof(attr), .depth = 1, .count = 1,
					    .types = &type };
	struct tow_feed *made = NULL;

	return tow_feed_create(group, arena, &attr, &made, NULL);
}

/* Whichever allocation fails: it is told. */
static bool is_told(int (*make)(void))
{
	bool good = true;
	int ret;

	for (uint32_t nth = 1; nth <= ALLOCATIONS; nth++) {
		gathers = 0;
		fails = nth;
		ret = make();
		fails = 0;
		if (ret < 0 && gathers)
			continue;
		ksft_print_msg("allocation %u: %d, %u exchanges\n", nth, ret, gathers);
		good = false;
	}
	return good;
}

int main(void)
{
	struct source source = { 0 };

	ksft_print_header();
	ksft_set_plan(4);
	arena = source_arena(&source, NULL);
	make_group();
	ksft_test_result(is_bounded(), "what another rank cannot come for\n");
	ksft_test_result(is_told(make_comm), "a communicator\n");
	ksft_test_result(is_told(make_ps), "parameters\n");
	ksft_test_result(is_told(make_feed), "a feed\n");
	tow_group_destroy(group);
	tow_arena_destroy(arena);
	ksft_finished();
}
