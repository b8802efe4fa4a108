// SPDX-License-Identifier: GPL-2.0
/*
 * The towline command, as far as it needs no kernel: sizes, files of a made-up
 * sysfs, and the shape of its JSON.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kselftest.h>

#include "tools/pool.h"
#include "tools/regions.h"
#include "tools/tool.h"

static char scratch[] = "/tmp/towline-tool.XXXXXX";

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *where)
{
	(void)status;
	(void)type;
	(void)where;
	return remove(path);
}

static void cleanup(void)
{
	nftw(scratch, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* ---- sizes ---- */

static bool says(uint64_t bytes, const char *want)
{
	char text[SIZE_TEXT];

	if (strcmp(size_words(bytes, text), want) == 0)
		return true;
	ksft_print_msg("got '%s', not '%s'\n", text, want);
	return false;
}

static bool means(const char *text, uint64_t want)
{
	uint64_t bytes = ~want;

	return size_parse(text, &bytes) == 0 && bytes == want;
}

static bool is_no_size(const char *text, int want)
{
	uint64_t bytes = 4711;

	if (size_parse(text, &bytes) == want && bytes == 4711)
		return true;
	ksft_print_msg("'%s' is taken\n", text);
	return false;
}

static void test_sizes(void)
{
	ksft_test_result(says(0, "0 bytes") && says(1023, "1023 bytes") && says(1024, "1 KiB"),
			 "bytes up to a KiB\n");
	ksft_test_result(says(64 << 20, "64 MiB") && says(3ULL << 29, "1.5 GiB") &&
			 says(1ULL << 40, "1 TiB"), "whole and half ones\n");
	ksft_test_result(says((1ULL << 20) - 1, "1023.9 KiB") && says((1ULL << 20) + 1, "1.0 MiB"),
			 "cut off, not rounded\n");
	ksft_test_result(says(UINT64_MAX, "15.9 EiB") && says(1ULL << 63, "8 EiB"), "the largest\n");
	ksft_test_result(means("0", 0) && means("4096", 4096) && means("64k", 65536) &&
			 means("64K", 65536) && means("3m", 3 << 20) && means("2G", 1ULL << 31),
			 "digits and suffixes are read\n");
	ksft_test_result(means("18446744073709551615", UINT64_MAX) &&
			 means("17179869183g", 17179869183ULL << 30), "up to 64 bits\n");
	ksft_test_result(is_no_size("18446744073709551616", -ERANGE) &&
			 is_no_size("17179869184g", -ERANGE) &&
			 is_no_size("99999999999999999999999k", -ERANGE), "and not beyond\n");
	ksft_test_result(is_no_size("", -EINVAL) && is_no_size("k", -EINVAL) &&
			 is_no_size("-1", -EINVAL) && is_no_size("+1", -EINVAL) &&
			 is_no_size(" 1", -EINVAL) && is_no_size("1 ", -EINVAL) &&
			 is_no_size("1kk", -EINVAL) && is_no_size("1x", -EINVAL) &&
			 is_no_size("1.5g", -EINVAL) && is_no_size("0x10", -EINVAL),
			 "nothing else is a size\n");
}

/* ---- a made-up sysfs ---- */

static const char *const files[] = {
	"pool_bytes", "pool_used_bytes", "pool_high_water_bytes", "slab_bytes", "mr_limit", "mr_used",
	"client_bytes_limit", "user_bytes_limit", "client_mr_limit", "user_mr_limit",
	"client_region_limit", "user_region_limit", "device_region_limit", "linger_max_s",
};

static const char *const stats[] = {
	"slabs", "free_slabs", "dirty_slabs", "draining_slabs", "small_slabs", "dma_maps",
	"dma_unmaps", "registrations", "invalidations", "retired_slabs", "revokes", "regions",
	"quota_refusals", "pool_refusals", "memory_refusals",
};

static void write_file(const char *folder, const char *name, const char *text)
{
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s/%s", scratch, folder, name);
	file = fopen(path, "we");
	if (!file || fputs(text, file) < 0 || fclose(file))
		ksft_exit_fail_perror(path);
}

/* Each file holds a number of its own. */
static void make_device(const char *name)
{
	char path[256], text[32];

	snprintf(path, sizeof(path), "%s/%s", scratch, name);
	if (mkdir(path, 0700))
		ksft_exit_fail_perror("mkdir");
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		snprintf(text, sizeof(text), "%zu\n", 1000 + i);
		write_file(name, files[i], text);
	}
	snprintf(path, sizeof(path), "%s/%s/stats", scratch, name);
	if (mkdir(path, 0700))
		ksft_exit_fail_perror("mkdir");
	for (size_t i = 0; i < ARRAY_SIZE(stats); i++) {
		snprintf(path, sizeof(path), "stats/%s", stats[i]);
		snprintf(text, sizeof(text), "%zu\n", 2000 + i);
		write_file(name, path, text);
	}
}

static uint64_t number(struct json_object *object, const char *key)
{
	struct json_object *value = json_object_object_get(object, key);

	return json_object_is_type(value, json_type_int) ? json_object_get_uint64(value) : 0;
}

static bool has_text(struct json_object *object, const char *key, const char *want)
{
	struct json_object *value = json_object_object_get(object, key);

	return json_object_is_type(value, json_type_string) &&
	       strcmp(json_object_get_string(value), want) == 0;
}

/* Each file's number under its name, and nothing else. */
static bool pool_is_whole(struct json_object *pool)
{
	struct json_object *counts = json_object_object_get(pool, "stats");

	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		if (number(pool, files[i]) != 1000 + i)
			return false;
	for (size_t i = 0; i < ARRAY_SIZE(stats); i++)
		if (number(counts, stats[i]) != 2000 + i)
			return false;
	/* The device's name and the statistics come on top. */
	return json_object_object_length(pool) == ARRAY_SIZE(files) + 2 &&
	       json_object_object_length(counts) == ARRAY_SIZE(stats);
}

static void test_pool_object(void)
{
	struct json_object *pool = NULL;

	ksft_test_result(pool_object(scratch, "rxe0", &pool) == 0 && has_text(pool, "device", "rxe0") &&
			 pool_is_whole(pool), "pool: each file under its name\n");
	json_object_put(pool);

	write_file("rxe0", "client_bytes_limit", "max\n");
	write_file("rxe0", "user_bytes_limit", "18446744073709551615\n");
	pool = NULL;
	ksft_test_result(pool_object(scratch, "rxe0", &pool) == 0 &&
			 has_text(pool, "client_bytes_limit", "max") &&
			 number(pool, "user_bytes_limit") == UINT64_MAX,
			 "pool: no limit is a word, the largest number a number\n");
	json_object_put(pool);
}

static void test_pool_errors(void)
{
	struct json_object *pool = NULL;
	char path[256];

	ksft_test_result(pool_object("/nonexistent/class", "rxe0", &pool) == -ENOPKG, "no module\n");
	ksft_test_result(pool_object(scratch, "nosuch0", &pool) == -ENOENT, "no such device\n");
	ksft_test_result(pool_object(scratch, "", &pool) == -EINVAL &&
			 pool_object(scratch, "..", &pool) == -EINVAL &&
			 pool_object(scratch, "rxe0/stats", &pool) == -EINVAL, "no device's name\n");
	snprintf(path, sizeof(path), "%s/old0/linger_max_s", scratch);
	ksft_test_result(!unlink(path) && pool_object(scratch, "old0", &pool) == -EPROTONOSUPPORT,
			 "a module that has no such file\n");
	ksft_test_result(!pool, "on failure no object is left behind\n");
}

static void test_pool_set(void)
{
	char text[SYSFS_TEXT] = "";

	ksft_test_result(pool_set(scratch, "rxe0", 1ULL << 40) == 0 &&
			 sysfs_read(scratch, "rxe0", "pool_bytes", text) == 0 &&
			 strcmp(text, "1099511627776") == 0, "set: all bytes in digits\n");
	ksft_test_result(pool_set(scratch, "nosuch0", 1) == -ENOENT, "set: no such device\n");
}

static void test_region_object(void)
{
	struct tow_region_info info = {
		.size = sizeof(info),
		.flags = TOW_REGION_PERSISTENT | TOW_REGION_LINGERING | 1U << 31,
		.id = 7,
		.bytes = 1,
		.map_bytes = 65536,
		.charged_bytes = UINT64_MAX,
		.cgroup_id = 9,
		.mrs = 2,
		.slabs = 1,
		.uid = UINT32_MAX,
		.linger_s = 60,
		.linger_left_ms = 1500,
		.fds = 3,
		.name = "weights \"1\"",
		.job_id = { 0xab, 0, 0xcd },
	};
	struct json_object *region = region_object("rxe0", &info), *flags;

	flags = json_object_object_get(region, "flags");
	ksft_test_result(has_text(region, "device", "rxe0") && number(region, "id") == 7 &&
			 has_text(region, "name", info.name) && number(region, "bytes") == 1 &&
			 number(region, "map_bytes") == 65536 &&
			 number(region, "charged_bytes") == UINT64_MAX &&
			 number(region, "uid") == UINT32_MAX && number(region, "fds") == 3 &&
			 number(region, "linger_left_ms") == 1500, "region: its fields\n");
	ksft_test_result(has_text(region, "job_id", "ab00cd00000000000000000000000000"),
			 "region: its job in digits\n");
	ksft_test_result(json_object_array_length(flags) == 3 &&
			 !strcmp(json_object_get_string(json_object_array_get_idx(flags, 1)),
				 "lingering") &&
			 !strcmp(json_object_get_string(json_object_array_get_idx(flags, 2)),
				 "bit_31"), "region: its flags by name, unknown ones by bit\n");
	json_object_put(region);
}

int main(void)
{
	if (!mkdtemp(scratch))
		ksft_exit_fail_perror("mkdtemp");
	atexit(cleanup);
	make_device("rxe0");
	make_device("old0");

	ksft_print_header();
	ksft_set_plan(8 + 2 + 5 + 2 + 3);
	test_sizes();
	test_pool_object();
	test_pool_errors();
	test_pool_set();
	test_region_object();
	ksft_finished();
}
