// SPDX-License-Identifier: GPL-2.0
/*
 * towline top, as far as it needs no kernel: samples of a made-up sysfs and what
 * they differ by, and the statistics page, whole and not.
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

#include "tow_scratch.h"

#include "tools/tool.h"
#include "tools/top.h"
#include "tools/top_page.h"

/* ---- a made-up sysfs ---- */

/* Everything but notifications, which this kernel does not count. */
static void make_device(const char *incarnation)
{
	static const char *const files[] = {
		"pool_bytes", "pool_used_bytes", "mr_used", "stats/regions", "stats/exports",
		"stats/grants", "stats/remotes", "stats/queues", "stats/peers", "stats/sessions",
	};
	char text[32];

	make_folder("rxe0");
	make_folder("rxe0/stats");
	make_folder("rxe0/peers");
	write_file("rxe0", "incarnation", incarnation);
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		snprintf(text, sizeof(text), "%zu\n", 1000 + i);
		write_file("rxe0", files[i], text);
	}
}

static void set_peer(const char *address, const char *incarnation, const char *operations,
		     const char *written)
{
	char folder[128], path[256];

	snprintf(folder, sizeof(folder), "rxe0/peers/%s", address);
	snprintf(path, sizeof(path), "%s/%s", scratch, folder);
	if (mkdir(path, 0700) && errno != EEXIST)
		ksft_exit_fail_perror("mkdir");
	write_file(folder, "incarnation", incarnation);
	write_file(folder, "operations", operations);
	write_file(folder, "bytes_written", written);
	write_file(folder, "bytes_read", "5\n");
	write_file(folder, "last_error", "-110\n");
	write_file(folder, "state", "ready\n");
}

#define LIFE	"000102030405060708090a0b0c0d0eff\n"
#define OTHER	"100102030405060708090a0b0c0d0eff\n"

static uint64_t number(struct json_object *object, const char *key)
{
	struct json_object *value = json_object_object_get(object, key);

	return json_object_is_type(value, json_type_int) ? json_object_get_uint64(value) : 0;
}

static double rate(struct json_object *object, const char *key)
{
	struct json_object *value = json_object_object_get(object, key);

	return value ? json_object_get_double(value) : -1;
}

static bool is_about(double value, double want)
{
	return value > want * 0.999999 && value < want * 1.000001;
}

static void test_sample(void)
{
	struct top_sample sample, other;
	int ret = top_sample_take(scratch, "rxe0", NULL, &sample);

	ksft_test_result(!ret && sample.incarnation[1] == 1 && sample.incarnation[15] == 0xff &&
			 sample.counts[TOP_POOL_BYTES] == 1000 &&
			 sample.counts[TOP_SESSIONS] == 1009 &&
			 sample.counts[TOP_NOTIFICATIONS] == TOP_ABSENT, "sample: counts\n");
	ksft_test_result(sample.peer_count == 2 && sample.counts[TOP_PEERS_READY] == 2 &&
			 sample.counts[TOP_OPERATIONS] == 300 &&
			 sample.counts[TOP_BYTES_WRITTEN] == 7000 &&
			 sample.counts[TOP_BYTES_READ] == 10 &&
			 !strcmp(sample.peers[0].address, "192.0.2.1") &&
			 !strcmp(sample.peers[0].state, "ready") &&
			 sample.peers[0].last_error == -110, "sample: peers\n");
	top_sample_free(&sample);
	ksft_test_result(top_sample_take("/nonexistent/class", "rxe0", NULL, &other) == -ENOPKG &&
			 top_sample_take(scratch, "nosuch0", NULL, &other) == -ENOENT &&
			 top_sample_take(scratch, "..", NULL, &other) == -EINVAL,
			 "sample: no module, no device, no name\n");
}

/* As if two seconds went by between them. */
static struct json_object *difference(struct top_sample *before, struct top_sample *now)
{
	if (top_sample_take(scratch, "rxe0", before, now))
		return NULL;
	now->time_ns = before->time_ns + 2000000000ULL;
	return top_object("rxe0", now, before);
}

static void test_rates(void)
{
	struct json_object *object, *peers, *first, *second;
	struct top_sample before, now;

	top_sample_take(scratch, "rxe0", NULL, &before);
	/* One goes on, one goes away, and one comes where that was. */
	set_peer("192.0.2.1", "aa\n", "150\n", "3000\n");
	set_peer("192.0.2.2", "cc\n", "30\n", "100\n");
	object = difference(&before, &now);
	peers = json_object_object_get(object, "peers");
	first = json_object_array_get_idx(peers, 0);
	second = json_object_array_get_idx(peers, 1);
	ksft_test_result(is_about(rate(object, "operations_per_s"), (50 + 30) / 2.0) &&
			 is_about(rate(object, "bytes_written_per_s"), (1000 + 100) / 2.0) &&
			 is_about(rate(object, "bytes_read_per_s"), 5 / 2.0) &&
			 rate(object, "notifications_per_s") < 0, "rates: of the device\n");
	ksft_test_result(is_about(rate(first, "operations_per_s"), 25) &&
			 rate(first, "bytes_read_per_s") == 0 &&
			 is_about(rate(second, "operations_per_s"), 15) &&
			 is_about(rate(second, "bytes_written_per_s"), 50),
			 "rates: of a peer that stays, and one that came\n");
	ksft_test_result(number(object, "operations") == 300 + 80 &&
			 number(object, "bytes_written") == 7000 + 1100 &&
			 number(object, "pool_bytes") == 1000 &&
			 number(json_object_object_get(object, "stats"), "queues") == 1007,
			 "rates: who goes does not take counts along\n");
	json_object_put(object);
	top_sample_free(&before);

	/* It changed its address only. */
	scratch_remove("rxe0/peers/192.0.2.1");
	set_peer("192.0.2.9", "aa\n", "151\n", "3000\n");
	before = now;
	object = difference(&before, &now);
	ksft_test_result(is_about(rate(object, "operations_per_s"), 0.5),
			 "rates: a peer at another address\n");
	json_object_put(object);
	top_sample_free(&before);

	write_file("rxe0", "incarnation", OTHER);
	before = now;
	object = difference(&before, &now);
	first = json_object_array_get_idx(json_object_object_get(object, "peers"), 0);
	ksft_test_result(rate(object, "operations_per_s") < 0 &&
			 rate(first, "operations_per_s") < 0 && number(object, "operations") == 181,
			 "rates: none over two lives of the device\n");
	json_object_put(object);
	top_sample_free(&before);
	top_sample_free(&now);
}

static void test_gone(void)
{
	struct top_sample sample;
	char path[256];

	/* A peer that goes while it is looked at: its folder is there yet. */
	snprintf(path, sizeof(path), "%s/rxe0/peers/192.0.2.9/state", scratch);
	unlink(path);
	ksft_test_result(!top_sample_take(scratch, "rxe0", NULL, &sample) &&
			 sample.peer_count == 1, "a peer that goes in between\n");
	top_sample_free(&sample);
	scratch_remove("rxe0/peers");
	ksft_test_result(!top_sample_take(scratch, "rxe0", NULL, &sample) && !sample.peer_count,
			 "a module without peers\n");
	top_sample_free(&sample);
	scratch_remove("rxe0");
	ksft_test_result(top_gone(top_sample_take(scratch, "rxe0", NULL, &sample)) == -ENODEV,
			 "a device that has gone\n");
}

/* ---- the page ---- */

static struct top_report a_report(uint64_t sequence)
{
	struct top_report report = {
		.sequence = sequence,
		.time_ns = sequence * 500000000,
		.interval_ms = 500,
		.incarnation = { 1, 2, 3 },
		.device = "rxe0",
		.node = "node7",
	};

	for (size_t i = 0; i < TOP_COUNTS; i++)
		report.counts[i] = (sequence + 1) * (i + 1) * 1000;
	return report;
}

static bool reads(const uint8_t *page, uint64_t sequence)
{
	struct top_report want = a_report(sequence), report;

	return top_page_read(page, &report) == 0 && !memcmp(&report, &want, sizeof(report));
}

static int fails(const uint8_t *page)
{
	struct top_report report;

	return top_page_read(page, &report);
}

static void test_page(void)
{
	uint8_t page[TOP_PAGE_BYTES] = { 0 }, before[TOP_PAGE_BYTES];
	struct top_report report;
	bool good = true;

	ksft_test_result(top_crc32("123456789", 9) == 0xcbf43926 && top_crc32("", 0) == 0,
			 "crc32: the check value\n");
	ksft_test_result(fails(page) == -EPROTO, "page: nothing there\n");
	for (uint64_t sequence = 1; sequence < 6; sequence++) {
		report = a_report(sequence);
		memcpy(before, page, sizeof(page));
		top_page_write(page, &report);
		good = good && reads(page, sequence) &&
		       !memcmp(page + (sequence + 1) % 2 * TOP_COPY_ROOM,
			       before + (sequence + 1) % 2 * TOP_COPY_ROOM, TOP_COPY_ROOM);
	}
	ksft_test_result(good, "page: the newest is read, the one before stays\n");
	ksft_test_result(!memcmp(page, "WOTS", 4) && page[4] == TOP_PAGE_VERSION &&
			 page[16] == 4 && page[TOP_COPY_ROOM + 16] == 5,
			 "page: little-endian, as it is written down\n");
}

/* Any moment in the middle of a write: the copy before is read. */
static void test_torn(void)
{
	uint8_t page[TOP_PAGE_BYTES] = { 0 }, next[TOP_PAGE_BYTES], torn[TOP_PAGE_BYTES];
	struct top_report report;
	bool good = true;

	for (uint64_t sequence = 1; sequence < 3; sequence++) {
		report = a_report(sequence);
		top_page_write(page, &report);
	}
	memcpy(next, page, sizeof(page));
	report = a_report(3);
	top_page_write(next, &report);
	for (size_t i = 0; i <= sizeof(struct top_copy); i++) {
		memcpy(torn, page, sizeof(page));
		memcpy(torn + TOP_COPY_ROOM, next + TOP_COPY_ROOM, i);
		/* Until the last byte that differs has come. */
		good = good && (memcmp(torn, next, sizeof(page)) ? reads(torn, 2) :
								   reads(torn, 3));
	}
	ksft_test_result(good, "page: torn anywhere, the copy before counts\n");
	torn[TOP_COPY_ROOM + 40] ^= 1;
	torn[40] ^= 1;
	ksft_test_result(fails(torn) == -EAGAIN, "page: both torn\n");
}

/* Make the checksum of copy 0 right again. */
static void seal(uint8_t *page)
{
	uint16_t bytes = (uint16_t)(page[6] | page[7] << 8);
	uint32_t crc;

	memset(page + 8, 0, 4);
	crc = top_crc32(page, bytes > TOP_COPY_ROOM ? TOP_COPY_ROOM : bytes);
	for (int i = 0; i < 4; i++)
		page[8 + i] = (uint8_t)(crc >> 8 * i);
}

static void test_foreign(void)
{
	uint8_t page[TOP_PAGE_BYTES] = { 0 };
	struct top_report report = a_report(2), read;
	uint16_t most = TOP_COPY_ROOM, least = offsetof(struct top_copy, counts) + 8;

	top_page_write(page, &report);
	page[4]++;
	seal(page);
	ksft_test_result(fails(page) == -EPROTONOSUPPORT, "page: another version\n");
	page[4]--;
	memcpy(page + 6, &most, 2);
	seal(page);
	ksft_test_result(reads(page, 2), "page: one that has more in it\n");
	memcpy(page + 6, &least, 2);
	seal(page);
	ksft_test_result(!top_page_read(page, &read) && read.counts[0] == report.counts[0] &&
			 read.counts[1] == TOP_ABSENT && read.counts[TOP_COUNTS - 1] == TOP_ABSENT,
			 "page: one that has less in it\n");
	most++;
	memcpy(page + 6, &most, 2);
	seal(page);
	ksft_test_result(fails(page) == -EPROTO, "page: more than there is room for\n");
	memset(page + 6, 0, 2);
	seal(page);
	ksft_test_result(fails(page) == -EPROTO, "page: less than there must be\n");
	memset(report.node, 'n', sizeof(report.node));
	memset(report.device, 'd', sizeof(report.device));
	top_page_write(page, &report);
	ksft_test_result(!top_page_read(page, &read) && strlen(read.node) == TOP_NODE_NAME - 1 &&
			 strlen(read.device) == TOW_DEVICE_NAME_MAX - 1, "page: names end\n");
}

static void test_report_rates(void)
{
	struct top_report before = a_report(4), now = a_report(6), reset = a_report(1);
	struct top_rates rates = top_report_rates(&now, &before);

	/* Two steps of 1000 for each number of the count, in one second. */
	ksft_test_result(is_about(rates.operations, 2000.0 * (TOP_OPERATIONS + 1)) &&
			 is_about(rates.bytes_read, 2000.0 * (TOP_BYTES_READ + 1)),
			 "report: rates by its own clock\n");
	rates = top_report_rates(&reset, &now);
	ksft_test_result(rates.operations < 0 && rates.bytes_written < 0,
			 "report: none when it began again\n");
	now.incarnation[0]++;
	rates = top_report_rates(&now, &before);
	ksft_test_result(rates.operations < 0 && top_report_rates(&now, NULL).operations < 0,
			 "report: none over two lives of the device\n");
}

int main(void)
{
	scratch_make();
	make_device(LIFE);
	set_peer("192.0.2.1", "aa\n", "100\n", "2000\n");
	set_peer("192.0.2.2", "bb\n", "200\n", "5000\n");

	ksft_print_header();
	ksft_set_plan(3 + 5 + 3 + 4 + 2 + 6 + 3);
	test_sample();
	test_rates();
	test_gone();
	test_page();
	test_torn();
	test_foreign();
	test_report_rates();
	ksft_finished();
}
