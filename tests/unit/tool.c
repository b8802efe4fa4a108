// SPDX-License-Identifier: GPL-2.0
/*
 * The towline command, as far as it needs no kernel: sizes, files of a made-up
 * sysfs, and the shape of its JSON.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kselftest.h>

#include "tow_says.h"
#include "tow_scratch.h"

#include "tools/apply.h"
#include "tools/exports.h"
#include "tools/holders.h"
#include "tools/peers.h"
#include "tools/perf.h"
#include "tools/pool.h"
#include "tools/regions.h"
#include "tools/tool.h"

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
			 means("64K", 65536) && means("3m", 3 << 20) && means("2G", 1ULL << 31) &&
			 means("5t", 5ULL << 40) && means("1T", 1ULL << 40),
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
	"pool_bytes", "pool_used_bytes", "pool_held_bytes", "pool_high_water_bytes", "slab_bytes",
	"mr_limit", "mr_used",
	"client_bytes_limit", "user_bytes_limit", "client_mr_limit", "user_mr_limit",
	"client_region_limit", "user_region_limit", "device_region_limit", "linger_max_s",
};

static const char *const stats[] = {
	"slabs", "free_slabs", "dirty_slabs", "held_slabs", "small_slabs", "dma_maps",
	"dma_unmaps", "registrations", "invalidations", "poisoned_chunks", "revokes", "regions",
	"quota_refusals", "pool_refusals", "memory_refusals",
};

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

static void test_nodes(void)
{
	struct json_object *nodes = json_object_new_array(), *node;

	write_file("rxe0", "pool_numa_bytes", "N0=0 N3=18446744073709551615\n");
	ksft_test_result(nodes_add(scratch, "rxe0", nodes) == 0 &&
			 json_object_array_length(nodes) == 2, "by node: each of them\n");
	node = json_object_array_get_idx(nodes, 1);
	ksft_test_result(number(node, "node") == 3 && number(node, "bytes") == UINT64_MAX &&
			 has_text(node, "device", "rxe0"), "by node: its number and bytes\n");
	ksft_test_result(nodes_add(scratch, "old0", nodes) == -EPROTONOSUPPORT &&
			 !holders_of("nodes") && holders_of("node") == HOLDERS_NODE,
			 "by node: a module that does not say\n");
	json_object_put(nodes);
}

/* ---- settings ---- */

static bool holds(const char *file, const char *want)
{
	char text[SYSFS_TEXT] = "";

	if (!sysfs_read(scratch, "conf0", file, text) && strcmp(text, want) == 0)
		return true;
	ksft_print_msg("%s is '%s', not '%s'\n", file, text, want);
	return false;
}

static int apply(bool dry_run)
{
	char conf_dir[64];

	snprintf(conf_dir, sizeof(conf_dir), "%s/etc", scratch);
	return apply_device(conf_dir, scratch, "conf0", dry_run);
}

static int apply_as(const void *dry_run)
{
	return apply(*(const bool *)dry_run);
}

static bool apply_says(bool dry_run, int want, const char *words)
{
	return command_says(apply_as, &dry_run, want, words);
}

/* As they were before there were any settings. */
static void make_settings(void)
{
	static const char *const names[] = { "incarnation", "pool_bytes", "cluster_key", "gid_index" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		write_file("conf0", names[i], "-\n");
}

static void test_apply(void)
{
	make_folder("conf0");
	make_settings();
	ksft_test_result(apply(false) == 0 && holds("pool_bytes", "-"), "apply: no settings\n");
	make_folder("etc");
	write_file("etc", "conf*.conf", "# a comment\n\npool_bytes = 1g\ngid_index = 3\n");
	write_file("etc", "conf0.conf", "\tpool_bytes=2g\t# twice\n  cluster_key =  a:b c#d \r\n");
	write_file("etc", "rxe*.conf", "gid_index = 4\n");
	write_file("etc", "conf0.conf~", "gid_index = 5\n");
	write_file("etc", ".conf", "gid_index = 6\n");
	ksft_test_result(apply(true) == 0 && holds("pool_bytes", "-"), "apply: a dry run\n");
	ksft_test_result(apply(false) == 0 && holds("pool_bytes", "2g") && holds("gid_index", "3") &&
			 holds("cluster_key", "a:b c#d"), "apply: the last file, and all of the value\n");
}

static void test_apply_wrong(void)
{
	static const char *const wrong[] = {
		"gid_index", "gid_index =", "= 7", "gid_index 7", "Gid_index = 7", "../conf0/gid_index = 7",
		"gid_index = # 7", "stats/slabs = 7",
	};
	char text[128];
	bool refused = true;

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		make_settings();
		snprintf(text, sizeof(text), "%s\npool_bytes = 8\n", wrong[i]);
		write_file("etc", "conf0.conf", text);
		refused = refused && apply(false) < 0 && holds("gid_index", "3") &&
			  holds("pool_bytes", "8");
	}
	ksft_test_result(refused, "apply: what is no setting, and the rest all the same\n");
	write_file("etc", "conf0.conf", "gid_index = 7 = 7");
	ksft_test_result(apply(false) == 0 && holds("gid_index", "7 = 7"),
			 "apply: a last line without its end\n");
	make_settings();
	write_file("etc", "conf0.conf", "nosuch = 1\nuevent = add\ngid_index = 9\n");
	write_file("conf0", "uevent", "-\n");
	ksft_test_result(apply(false) < 0 && holds("gid_index", "9") && holds("uevent", "-"),
			 "apply: no such setting\n");
	snprintf(text, sizeof(text), "%s/conf0/gid_index", scratch);
	make_settings();
	ksft_test_result(!chmod(text, 0444) && apply(false) < 0 && holds("gid_index", "-"),
			 "apply: a file that is not for writing\n");
	write_file("conf0", "cgroup_bytes_limit", "-\n");
	write_file("etc", "conf0.conf", "cgroup_bytes_limit = /a 1g\ncgroup_bytes_limit = /b 1g\n"
		   "cgroup_bytes_limit = /a 2g\n");
	write_file("etc", "conf*.conf", "");
	ksft_test_result(apply(false) == 0 && holds("cgroup_bytes_limit", "/b 1g"),
			 "apply: one for each cgroup\n");
	write_file("conf0", "cgroup_bytes_limit", "/b max\n/a 2147483648\n");
	ksft_test_result(apply_says(true, 0, "cgroup_bytes_limit is /a 2g already") &&
			 apply_says(true, 0, "would become /b 1g; it is max"),
			 "apply: a dry run compares each cgroup\n");
	write_file("etc", "conf0.conf", "nosuch = 1\ncgroup_bytes_limit = /c 1g\npool_bytes = 16\n");
	ksft_test_result(apply_says(true, -1, "would become /c 1g; it is default") &&
			 apply_says(false, -1, "conf0: 1 of 3 settings failed; the others are made") &&
			 holds("pool_bytes", "16"), "apply: one fails\n");
	scratch_remove("conf0");
	ksft_test_result(apply(false) < 0, "apply: no such device\n");
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

/* ---- words ---- */

static bool shows(const char *bytes, size_t count, const char *want)
{
	struct json_object *text = text_object((const uint8_t *)bytes, count);
	bool same = strcmp(json_object_get_string(text), want) == 0;

	if (!same)
		ksft_print_msg("got '%s', not '%s'\n", json_object_get_string(text), want);
	json_object_put(text);
	return same;
}

#define SHOWS(bytes, want) shows(bytes, sizeof(bytes) - 1, want)
#define NO "\xef\xbf\xbd"

static void test_text(void)
{
	ksft_test_result(SHOWS("layer 7/weights", "layer 7/weights") && SHOWS("", "") &&
			 SHOWS("\xc2\xa0\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf\xf0\x90\x80\x80"
			       "\xf4\x8f\xbf\xbf",
			       "\xc2\xa0\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf\xf0\x90\x80\x80"
			       "\xf4\x8f\xbf\xbf"), "text stays as it is\n");
	ksft_test_result(SHOWS("a\x1b[31m", "a" NO "[31m") && SHOWS("\n\x7f", NO NO) &&
			 SHOWS("\xc2\x9b" "31m", NO NO "31m") && SHOWS("\x9b" "31m", NO "31m"),
			 "what a terminal would obey is not shown\n");
	ksft_test_result(SHOWS("\xff" "a", NO "a") && SHOWS("\xc0\x80", NO NO) &&
			 SHOWS("\xe0\x9f\xbf", NO NO NO) && SHOWS("\xed\xa0\x80", NO NO NO) &&
			 SHOWS("\xf4\x90\x80\x80", NO NO NO NO) &&
			 SHOWS("\xf8\x88\x80\x80", NO NO NO NO), "bytes that are no text\n");
	ksft_test_result(SHOWS("\xe2\x82", NO NO) && SHOWS("\xc3" "a", NO "a") &&
			 shows("\xe2\x82\xac", 2, NO NO) && shows("ab", 1, "a"),
			 "text that is cut off, and its end\n");
}

static bool is_called(const uint8_t *address, uint32_t scope_id, const char *want)
{
	char text[ADDRESS_TEXT];

	return strcmp(address_words(address, scope_id, text), want) == 0;
}

static void test_address_words(void)
{
	static const uint8_t in[16] = { [10] = 0xff, [11] = 0xff, 192, 0, 2, 1 };
	static const uint8_t in6[16] = { 0x20, 0x01, 0x0d, 0xb8, [15] = 7 };
	static const uint8_t link[16] = { 0xfe, 0x80, [15] = 1 };
	uint8_t longest[16];

	memset(longest, 0xff, sizeof(longest));
	ksft_test_result(is_called(in, 0, "192.0.2.1") && is_called(in6, 0, "2001:db8::7") &&
			 is_called(link, 2, "fe80::1%2") &&
			 is_called(longest, UINT32_MAX,
				   "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff%4294967295"),
			 "addresses\n");
}

/* The words of a list, one after the other. */
static bool lists(struct json_object *object, const char *key, const char *want)
{
	char text[WORDS_TEXT];

	return strcmp(words_joined(json_object_object_get(object, key), text), want) == 0;
}

static void test_words_joined(void)
{
	static const char *const names[] = { "one", "two" };
	/* The first bit means nothing any more. */
	static const char *const rest[] = { [1] = "two" };
	struct json_object *many = bits_object(names, ARRAY_SIZE(names), UINT64_MAX);
	struct json_object *none = bits_object(names, ARRAY_SIZE(names), 0);
	struct json_object *both = bits_object(rest, ARRAY_SIZE(rest), 3);
	char text[WORDS_TEXT];

	ksft_test_result(json_object_array_length(many) == 64 &&
			 strlen(words_joined(many, text)) == WORDS_TEXT - 1 &&
			 !strncmp(text, "one,two,bit_2,", 14), "more words than there is room for\n");
	ksft_test_result(!strcmp(words_joined(none, text), "-"), "no words\n");
	ksft_test_result(!strcmp(words_joined(both, text), "bit_0,two"), "a bit without a word\n");
	json_object_put(many);
	json_object_put(none);
	json_object_put(both);
}

/* ---- peers and exports ---- */

static struct tow_peer_info a_peer(void)
{
	return (struct tow_peer_info){
		.size = sizeof(struct tow_peer_info),
		.flags = TOW_PEER_AUTHENTICATED | 1U << 30,
		.peer = UINT64_MAX,
		.address = { [10] = 0xff, [11] = 0xff, 192, 0, 2, 1 },
		.port = 65535,
		.incarnation = { 0xab, 0, 0xcd },
		.state = TOW_PEER_READY,
		.last_error = -ECONNRESET,
		.epoch = 3,
		.qps = 4,
		.reconnects = 2,
		.grants = 5,
		.remotes = 6,
		.messages_sent = 7,
		.messages_received = UINT64_MAX,
		.idle_ms = 9,
	};
}

static void test_peer_object(void)
{
	struct tow_peer_info info = a_peer();
	struct json_object *peer = peer_object("/nonexistent/class", "rxe0", &info);

	ksft_test_result(has_text(peer, "device", "rxe0") && number(peer, "peer") == UINT64_MAX &&
			 has_text(peer, "address", "192.0.2.1") && number(peer, "port") == 65535 &&
			 number(peer, "epoch") == 3 && number(peer, "qps") == 4 &&
			 number(peer, "reconnects") == 2 && number(peer, "grants") == 5 &&
			 number(peer, "remotes") == 6 && number(peer, "messages_sent") == 7 &&
			 number(peer, "messages_received") == UINT64_MAX &&
			 number(peer, "idle_ms") == 9, "peer: its fields\n");
	ksft_test_result(has_text(peer, "state", "ready") &&
			 has_text(peer, "incarnation", "ab00cd00000000000000000000000000") &&
			 lists(peer, "flags", "authenticated,bit_30") &&
			 json_object_get_int(json_object_object_get(peer, "last_error")) ==
				 -ECONNRESET, "peer: words\n");
	ksft_test_result(!json_object_object_get(peer, "bytes_read"),
			 "peer: what a kernel does not count is left out\n");
	json_object_put(peer);
	info.state = 77;
	peer = peer_object("/nonexistent/class", "rxe0", &info);
	ksft_test_result(number(peer, "state") == 77, "peer: a state without a name\n");
	json_object_put(peer);
}

static void test_peer_counts(void)
{
	struct json_object *peer, *peers = json_object_new_array();
	struct tow_peer_info info = a_peer();

	/* Another node's, which was there before: this one's is named by where it was. */
	make_folder("rxe0/peers");
	make_folder("rxe0/peers/192.0.2.1");
	write_file("rxe0/peers/192.0.2.1", "incarnation", "00000000000000000000000000000001\n");
	write_file("rxe0/peers/192.0.2.1", "bytes_read", "16\n");
	peer = peer_object(scratch, "rxe0", &info);
	ksft_test_result(!json_object_object_get(peer, "bytes_read"),
			 "peer: counts of another are none\n");
	json_object_put(peer);
	make_folder("rxe0/peers/192.0.2.2@7");
	write_file("rxe0/peers/192.0.2.2@7", "incarnation", "ab00cd00000000000000000000000000\n");
	write_file("rxe0/peers/192.0.2.2@7", "bytes_written", "18446744073709551615\n");
	write_file("rxe0/peers/192.0.2.2@7", "bytes_read", "17\n");
	write_file("rxe0/peers/192.0.2.2@7", "operations", "\n");
	write_file("rxe0/peers/192.0.2.2@7", "rtt_ns", "1700\n");
	peer = peer_object(scratch, "rxe0", &info);
	ksft_test_result(number(peer, "bytes_written") == UINT64_MAX &&
			 number(peer, "bytes_read") == 17 && number(peer, "rtt_ns") == 1700 &&
			 !json_object_object_get(peer, "operations"),
			 "peer: counts are sysfs's, and numbers\n");
	json_object_array_add(peers, peer);
	ksft_test_result(peers_add_histories(scratch, peers) == -EPROTONOSUPPORT &&
			 !json_object_object_get(peer, "history"),
			 "peer: a kernel without histories says so\n");
	write_file("rxe0/peers/192.0.2.2@7", "history",
		   "1.000002 epoch=1 ready\n2.000003 epoch=1 broken error=-110\n");
	ksft_test_result(!peers_add_histories(scratch, peers) &&
			 lists(peer, "history", "1.000002 epoch=1 ready,2.000003 epoch=1 broken error=-110"),
			 "peer: its history, a line for each event\n");
	json_object_put(peers);
}

/* One has none that can be read, and another has gone meanwhile. */
static void test_peer_histories(void)
{
	struct json_object *peers = json_object_new_array();
	struct tow_peer_info info = a_peer();

	for (uint8_t i = 0; i < 3; i++) {
		info.incarnation[15] = i;
		json_object_array_add(peers, peer_object(scratch, "rxe0", &info));
	}
	make_folder("rxe0/peers/192.0.2.3");
	write_file("rxe0/peers/192.0.2.3", "incarnation", "ab00cd00000000000000000000000002\n");
	write_file("rxe0/peers/192.0.2.3", "history", "1.000002 epoch=1 ready\n");
	scratch_remove("rxe0/peers/192.0.2.2@7/history");
	ksft_test_result(peers_add_histories(scratch, peers) == -EPROTONOSUPPORT &&
			 json_object_object_get(json_object_array_get_idx(peers, 2), "history"),
			 "peer: the others' histories\n");
	scratch_remove("rxe0/peers/192.0.2.2@7");
	ksft_test_result(!peers_add_histories(scratch, peers), "peer: who has gone has none\n");
	json_object_put(peers);
}

static void test_export_object(void)
{
	struct tow_export_info info = {
		.size = sizeof(info),
		.flags = TOW_EXPORT_REVOKING,
		.id = 7,
		.region_id = 8,
		.offset = 4096,
		.bytes = UINT64_MAX,
		.rights = TOW_RIGHT_READ | TOW_RIGHT_ATOMIC | TOW_RIGHT_NOTIFY,
		.grants = 9,
		.uid = UINT32_MAX,
		.pid = 11,
		.name_bytes = 5,
		.job_id = { 0xab, 0, 0xcd },
		.name = "w \"1\"is cut off",
	};
	struct json_object *export = export_object("rxe0", &info);

	ksft_test_result(has_text(export, "device", "rxe0") && number(export, "id") == 7 &&
			 number(export, "region_id") == 8 && number(export, "offset") == 4096 &&
			 number(export, "bytes") == UINT64_MAX && number(export, "grants") == 9 &&
			 number(export, "uid") == UINT32_MAX && number(export, "pid") == 11,
			 "export: its fields\n");
	ksft_test_result(has_text(export, "name", "w \"1\"") &&
			 lists(export, "flags", "revoking") && lists(export, "rights", "read,atomic,notify") &&
			 has_text(export, "job_id", "ab00cd00000000000000000000000000"),
			 "export: words\n");
	json_object_put(export);
	memset(info.name, 'n', sizeof(info.name));
	info.name_bytes = UINT32_MAX;
	export = export_object("rxe0", &info);
	ksft_test_result(strlen(json_object_get_string(json_object_object_get(export, "name"))) ==
			 sizeof(info.name), "export: a length that cannot be\n");
	json_object_put(export);
}

/* ---- perf ---- */

/* Each of a window's places is within the room, and touches no other one. */
static bool are_apart(uint64_t bytes, uint64_t room, uint32_t window)
{
	for (uint32_t i = 0; i < window; i++) {
		uint64_t place = perf_place(i, bytes, room, window);

		if (place + bytes > perf_room(bytes, room, window))
			return false;
		/* What comes next goes behind, with something in between. */
		if (i + 1 < window && perf_place(i + 1, bytes, room, window) <= place + bytes)
			return false;
	}
	return perf_room(bytes, room, window) <= room;
}

static void test_perf_places(void)
{
	bool aligned = true;

	for (uint64_t i = 0; i < 100; i++)
		aligned = aligned && perf_place(i, 8, 1 << 20, 64) % 8 == 0;
	ksft_test_result(are_apart(1, 1 << 20, 128) && are_apart(4096, 1 << 20, 128) &&
			 are_apart(65536, 16 << 20, 2) && are_apart(100, 164, 1) && aligned,
			 "perf: places are apart, and aligned\n");
	ksft_test_result(perf_place(128, 4096, 1 << 20, 128) == 0 &&
			 perf_place(5, 4096, 2 * (4096ULL + 64), 128) == 4096 + 64,
			 "perf: and begin again when there are no more\n");
	ksft_test_result(perf_place(7, 1 << 20, 1 << 20, 128) == 0 &&
			 perf_room(1 << 20, 1 << 20, 128) == 1 << 20,
			 "perf: room for one only\n");
}

static bool is_about(double value, double want)
{
	return value > want * 0.999999 && value < want * 1.000001;
}

static double measured(struct json_object *object, const char *key)
{
	return json_object_get_double(json_object_object_get(object, key));
}

static void test_perf_numbers(void)
{
	struct perf_plan plan = { .type = PERF_READ, .bytes = 4096, .batch = 16, .qps = 2 };
	uint64_t times[200], one = 5000;
	struct perf_result result;
	struct json_object *run;

	/* In no order: 1000 ns, 2000 ns and so on. */
	for (uint64_t i = 0; i < 200; i++)
		times[i] = (i * 73 % 200 + 1) * 1000;
	perf_sum_up(times, 200, 4096, 0.5, &result);
	ksft_test_result(is_about(result.latency_min_us, 1) &&
			 is_about(result.latency_median_us, 101) &&
			 is_about(result.latency_p99_us, 199) &&
			 is_about(result.operations_per_s, 400) &&
			 is_about(result.bytes_per_s, 400 * 4096), "perf: what times come to\n");
	plan.iterations = 200;
	run = perf_object("rxe0", "192.0.2.1", &plan, &result);
	ksft_test_result(has_text(run, "device", "rxe0") && has_text(run, "address", "192.0.2.1") &&
			 has_text(run, "type", "read") && number(run, "bytes") == 4096 &&
			 number(run, "iterations") == 200 && number(run, "batch") == 16 &&
			 number(run, "qps") == 2 &&
			 is_about(measured(run, "latency_p99_us"), 199) &&
			 is_about(measured(run, "bytes_per_s"), 400 * 4096), "perf: its fields\n");
	json_object_put(run);
	perf_sum_up(&one, 1, 1, 1, &result);
	ksft_test_result(is_about(result.latency_min_us, 5) && is_about(result.latency_median_us, 5) &&
			 is_about(result.latency_p99_us, 5), "perf: a single one\n");
}

int main(void)
{
	scratch_make();
	make_device("rxe0");
	make_device("old0");

	ksft_print_header();
	ksft_set_plan(8 + 2 + 5 + 2 + 3 + 3 + 8 + 3 + 4 + 1 + 3 + 4 + 4 + 2 + 3 + 3 + 3);
	test_sizes();
	test_pool_object();
	test_pool_errors();
	test_pool_set();
	test_nodes();
	test_apply();
	test_apply_wrong();
	test_region_object();
	test_text();
	test_address_words();
	test_words_joined();
	test_peer_object();
	test_peer_counts();
	test_peer_histories();
	test_export_object();
	test_perf_places();
	test_perf_numbers();
	ksft_finished();
}
