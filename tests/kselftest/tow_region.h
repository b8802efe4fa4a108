/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Regions by raw calls, and what root turns in sysfs: the pool and the limits.
 *
 * The pool is empty when the module is loaded: a test that wants memory sizes
 * it first.  What a region gives back is cleaned behind the caller's back, so
 * numbers in sysfs are waited for, not read once.
 */
#ifndef TOW_REGION_H
#define TOW_REGION_H

#include <stdarg.h>
#include <stdint.h>
#include <sys/mman.h>
#include "tow_test.h"

#define TOW_KB			1024ULL
#define TOW_MB			(1024ULL * 1024)

/* The largest slab of any device, soft-RoCE's; a small one of every device. */
#define TOW_SLAB_MOST		(2 * TOW_MB)
#define TOW_SMALL_SLAB		(64 * TOW_KB)
/* The largest region made of small slabs. */
#define TOW_SMALL_REGION	(256 * TOW_KB)
/* Of the RDMA device: one to read, one to write. */
#define TOW_SLAB_MRS		2ULL

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
	char path[400];
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
	char path[400];

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

/* A large slab of this device: soft-iWARP's registrations hold 1 MiB. */
static inline uint64_t tow_slab_bytes(void)
{
	static uint64_t bytes;

	if (!bytes)
		bytes = tow_sysfs_get("slab_bytes");
	return bytes;
}

/* Programs that run on soft-RoCE only may have it as a constant. */
#ifdef TOW_ONLY_SOFT_ROCE
#define TOW_SLAB		TOW_SLAB_MOST
#else
#define TOW_SLAB		tow_slab_bytes()
#endif

/* Wait until a file says so; what it says in the end. */
static inline uint64_t tow_sysfs_wait(const char *file, uint64_t wanted)
{
	double end = tow_test_now() + TOW_SETTLE_SECONDS;
	uint64_t seen;

	while ((seen = tow_sysfs_get(file)) != wanted && tow_test_now() < end)
		tow_test_sleep_ms(10);
	return seen;
}

/* Everything that may be written, and what it held. */
static const char * const tow_knobs[] = {
	"pool_bytes", "mr_limit", "client_bytes_limit", "user_bytes_limit", "client_mr_limit",
	"user_mr_limit", "client_region_limit", "user_region_limit", "device_region_limit",
	"linger_max_s",
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

/* Is there a new line of towline's that says this?  Up to the last one. */
static inline bool tow_log_says(int log, const char *text)
{
	char record[2048];
	bool found = false;
	ssize_t got;

	for (;;) {
		got = read(log, record, sizeof(record) - 1);
		/* EPIPE: some were lost; the next read goes on behind them. */
		if (got < 0 && errno != EPIPE)
			return found;
		if (got <= 0)
			continue;
		record[got] = '\0';
		found = found || (strstr(record, "towline") && strstr(record, text));
	}
}

/* ---- calls ----------------------------------------------------------------- */

static inline int tow_region_create_named(int fd, uint64_t bytes, uint32_t flags,
					  uint32_t linger_s, const char *name,
					  struct tow_region_create *made)
{
	memset(made, 0, sizeof(*made));
	made->size = sizeof(*made);
	made->flags = flags;
	made->bytes = bytes;
	made->linger_s = linger_s;
	made->fd = -1;
	snprintf(made->name, sizeof(made->name), "%s", name);
	return tow_test_ioctl(fd, TOW_IOCTL_REGION_CREATE, made);
}

static inline int tow_region_create(int fd, uint64_t bytes, struct tow_region_create *made)
{
	return tow_region_create_named(fd, bytes, 0, 0, "", made);
}

static inline int tow_region_attach(int fd, const char *name, struct tow_region_attach *made)
{
	memset(made, 0, sizeof(*made));
	made->size = sizeof(*made);
	made->fd = -1;
	snprintf(made->name, sizeof(made->name), "%s", name);
	return tow_test_ioctl(fd, TOW_IOCTL_REGION_ATTACH, made);
}

static inline int tow_region_destroy(int fd, uint64_t handle)
{
	struct tow_region_destroy call = { .size = sizeof(call), .handle = handle };

	return tow_test_ioctl(fd, TOW_IOCTL_REGION_DESTROY, &call);
}

/* The handle and the descriptor. */
static inline int tow_region_end(int fd, const struct tow_region_create *made)
{
	int ret = tow_region_destroy(fd, made->handle);

	return close(made->fd) && !ret ? -errno : ret;
}

static inline int tow_region_query(int fd, uint64_t handle, struct tow_region_info *info)
{
	memset(info, 0, sizeof(*info));
	info->size = sizeof(*info);
	info->handle = handle;
	return tow_test_ioctl(fd, TOW_IOCTL_REGION_QUERY, info);
}

/* A descriptor, or a negative errno. */
static inline int tow_region_fd(int fd, uint64_t handle, uint32_t flags)
{
	struct tow_region_fd call = { .size = sizeof(call), .flags = flags, .handle = handle };
	int ret = tow_test_ioctl(fd, TOW_IOCTL_REGION_FD, &call);

	return ret ? ret : call.fd;
}

static inline int tow_region_from_fd(int fd, int region_fd, uint64_t *handle)
{
	struct tow_region_from_fd call = { .size = sizeof(call), .fd = region_fd };
	int ret = tow_test_ioctl(fd, TOW_IOCTL_REGION_FROM_FD, &call);

	*handle = call.handle;
	return ret;
}

static inline int tow_region_import(int fd, const void *address, uint64_t bytes, uint32_t flags,
				    uint64_t *handle)
{
	struct tow_region_import_user call = {
		.size = sizeof(call), .flags = flags,
		.address = (uintptr_t)address, .bytes = bytes,
	};
	int ret = tow_test_ioctl(fd, TOW_IOCTL_REGION_IMPORT_USER, &call);

	*handle = call.handle;
	return ret;
}

/* How many were filled in, or a negative errno.  The cursor begins at 0. */
static inline int tow_region_list(int fd, uint32_t flags, uint64_t *cursor,
				  struct tow_region_info *entries, uint32_t count)
{
	struct tow_region_list call = {
		.size = sizeof(call), .flags = flags, .cursor = *cursor,
		.entries = (uintptr_t)entries, .entry_size = sizeof(*entries), .count = count,
	};
	int ret = tow_test_ioctl(fd, TOW_IOCTL_REGION_LIST, &call);

	*cursor = call.cursor;
	return ret ? ret : (int)call.count;
}

/* The first region of this name that the caller may see: 0, -ENOENT, … */
static inline int tow_region_find(int fd, uint32_t flags, const char *name,
				  struct tow_region_info *found)
{
	struct tow_region_info entries[8];
	uint64_t cursor = 0;
	int count, i;

	while ((count = tow_region_list(fd, flags, &cursor, entries, 8)) > 0) {
		for (i = 0; i < count; i++) {
			if (strcmp(entries[i].name, name))
				continue;
			*found = entries[i];
			return 0;
		}
	}
	return count ? count : -ENOENT;
}

/* ---- memory ---------------------------------------------------------------- */

/*
 * A shared mapping of a region, or MAP_FAILED; large ones begin at a multiple
 * of 2 MiB, as the kernel then can map a slab at once.
 */
static inline void *tow_region_map(int region_fd, size_t bytes, int protection)
{
	uintptr_t start;
	char *room;

	if (bytes < TOW_SLAB)
		return mmap(NULL, bytes, protection, MAP_SHARED, region_fd, 0);
	room = mmap(NULL, bytes + TOW_SLAB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (room == MAP_FAILED)
		return room;
	start = ((uintptr_t)room + TOW_SLAB - 1) & ~(uintptr_t)(TOW_SLAB - 1);
	if (start > (uintptr_t)room)
		munmap(room, start - (uintptr_t)room);
	munmap((char *)start + bytes, (uintptr_t)room + TOW_SLAB - start);
	return mmap((void *)start, bytes, protection, MAP_SHARED | MAP_FIXED, region_fd, 0);
}

/*
 * Words that tell where they are and who wrote them; one in every 512 bytes, so
 * that each page and each sector has some.
 */
#define TOW_STAMP_STRIDE	512

static inline uint64_t tow_stamp(uint64_t seed, size_t offset)
{
	return (seed << 40) ^ (offset * 0x9e3779b97f4a7c15ULL) ^ 0x746f776cULL;
}

static inline void tow_fill(void *at, size_t bytes, uint64_t seed)
{
	size_t offset;

	for (offset = 0; offset + 8 <= bytes; offset += TOW_STAMP_STRIDE)
		*(volatile uint64_t *)((char *)at + offset) = tow_stamp(seed, offset);
}

/* Stamps that are not there. */
static inline size_t tow_differs(const void *at, size_t bytes, uint64_t seed)
{
	size_t offset, wrong = 0;

	for (offset = 0; offset + 8 <= bytes; offset += TOW_STAMP_STRIDE)
		wrong += *(const volatile uint64_t *)((const char *)at + offset) !=
			 tow_stamp(seed, offset);
	return wrong;
}

/* Every byte is zero; whole words, as regions and their parts are. */
static inline bool tow_is_zero(const void *at, size_t bytes)
{
	const uint64_t *word = at;
	uint64_t sum = 0;
	size_t i;

	for (i = 0; i < bytes / sizeof(*word); i++)
		sum |= word[i];
	return !sum;
}

#endif /* TOW_REGION_H */
