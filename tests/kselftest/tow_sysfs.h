/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What root reads and turns in sysfs, the pool and the limits, and what the
 * kernel's log says of it.
 *
 * The pool is empty when the module is loaded: a test that wants memory sizes
 * it first.  What a region gives back is cleaned behind the caller's back, so
 * numbers in sysfs are waited for, not read once.
 */
#ifndef TOW_SYSFS_H
#define TOW_SYSFS_H

#include <stdint.h>
#include "tow_test.h"

/* Room for the path of any file of the device. */
#define TOW_SYSFS_PATH		600

/* "max" in a limit's file. */
#define TOW_SYSFS_MAX		UINT64_MAX

/* What sysfs says later rather than never, also on an emulated debug kernel. */
#define TOW_SETTLE_SECONDS	20.0

/* ---- sysfs ----------------------------------------------------------------- */

static inline void tow_sysfs_path(char *path, size_t size, const char *file)
{
	snprintf(path, size, "/sys/class/towline/%s/%s", tow_test_device(), file);
}

/* Bytes to a file of the device, as they are: 0 or a negative errno. */
static inline int tow_sysfs_put_bytes(const char *file, const void *bytes, size_t count)
{
	char path[TOW_SYSFS_PATH];
	ssize_t put;
	int fd, ret;

	tow_sysfs_path(path, sizeof(path), file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	put = write(fd, bytes, count);
	ret = put < 0 ? -errno : 0;
	if (!ret && (size_t)put != count)
		ret = -EIO;
	close(fd);
	return ret;
}

static inline int tow_sysfs_put(const char *file, const char *text)
{
	return tow_sysfs_put_bytes(file, text, strlen(text));
}

static inline int tow_sysfs_set(const char *file, uint64_t value)
{
	char text[32];

	if (value == TOW_SYSFS_MAX)
		return tow_sysfs_put(file, "max");
	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	return tow_sysfs_put(file, text);
}

static inline void tow_sysfs_line(const char *file, char *line, size_t size)
{
	char path[TOW_SYSFS_PATH];

	tow_sysfs_path(path, sizeof(path), file);
	tow_test_read_line(path, line, size);
}

/* -2 (which nothing counts up to) if there is no such file. */
static inline uint64_t tow_sysfs_get(const char *file)
{
	char line[64];

	tow_sysfs_line(file, line, sizeof(line));
	if (!line[0])
		return UINT64_MAX - 1;
	return strcmp(line, "max") ? strtoull(line, NULL, 10) : TOW_SYSFS_MAX;
}

/* Wait until a file says so; what it says in the end. */
static inline uint64_t tow_sysfs_wait(const char *file, uint64_t wanted)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	uint64_t seen;

	while ((seen = tow_sysfs_get(file)) != wanted && tow_patient(&patience))
		tow_test_sleep_ms(10);
	return seen;
}

/* Every number that may be written, and what it held. */
static const char * const tow_knobs[] = {
	"pool_bytes", "mr_limit", "client_bytes_limit", "user_bytes_limit", "client_mr_limit",
	"user_mr_limit", "client_region_limit", "user_region_limit", "device_region_limit",
	"drain", "linger_max_s", "user_grant_limit",
	"client_export_limit", "user_export_limit", "export_limit", "client_queue_entries_limit",
	"user_queue_entries_limit", "queue_entries_limit", "poller_limit", "inflight_bytes",
	"loopback_copy_bytes",
	"op_stall_ms", "qps_per_peer", "cqs", "peer_limit",
	"queue_depth", "listen_port", "peer_idle_s", "heartbeat_ms", "heartbeat_misses",
	"reconnect_timeout_ms", "revoke_timeout_ms", "pkey_index", "sl", "mtu",
	"timeout", "retry_count", "allow_unauthenticated", "port",
};

struct tow_knobs {
	char value[ARRAY_SIZE(tow_knobs)][32];
};

static inline void tow_knobs_save(struct tow_knobs *knobs)
{
	size_t i;

	/* So that two can be compared. */
	memset(knobs, 0, sizeof(*knobs));
	for (i = 0; i < ARRAY_SIZE(tow_knobs); i++)
		tow_sysfs_line(tow_knobs[i], knobs->value[i], sizeof(knobs->value[i]));
}

static inline int tow_knobs_restore(const struct tow_knobs *knobs)
{
	int ret, first = 0;
	size_t i;

	for (i = ARRAY_SIZE(tow_knobs); i-- > 0;) {
		if (!knobs->value[i][0])
			continue;
		ret = tow_sysfs_put(tow_knobs[i], knobs->value[i]);
		if (ret && !first)
			first = ret;
	}
	return first;
}

/* An empty pool, then one of this size: what was there does not matter. */
static inline int tow_pool_fresh(uint64_t bytes)
{
	int ret = tow_sysfs_put("pool_bytes", "0");

	if (ret)
		return ret;
	if (tow_sysfs_wait("pool_bytes", 0))
		return -EBUSY;
	ret = tow_sysfs_set("pool_bytes", bytes);
	if (ret)
		return ret;
	return tow_sysfs_get("pool_bytes") == bytes ? 0 : -EIO;
}

/* Nothing of the pool is in use any more: true, or false after a while. */
static inline bool tow_pool_unused(void)
{
	return !tow_sysfs_wait("pool_used_bytes", 0);
}

/* ---- the kernel's log -------------------------------------------------------- */

/* From now on; -1 if it cannot be read. */
static inline int tow_log_open(void)
{
	int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);

	if (fd >= 0)
		lseek(fd, 0, SEEK_END);
	return fd;
}

/* How many new lines, up to the last one, have both in them. */
static inline int tow_log_count(int log, const char *who, const char *text)
{
	char record[2048];
	ssize_t got;
	int count = 0;

	for (;;) {
		got = read(log, record, sizeof(record) - 1);
		/* EPIPE: some were lost; the next read goes on behind them. */
		if (got < 0 && errno != EPIPE)
			return count;
		if (got <= 0)
			continue;
		record[got] = '\0';
		count += strstr(record, who) && strstr(record, text);
	}
}

/* Is there a new line of towline's that says this?  Reads up to the last one. */
static inline bool tow_log_says(int log, const char *text)
{
	return tow_log_count(log, "towline", text) > 0;
}

#endif /* TOW_SYSFS_H */
