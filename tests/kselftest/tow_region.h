/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Regions by raw calls, their mappings, and what tests write into them.
 */
#ifndef TOW_REGION_H
#define TOW_REGION_H

#include <sched.h>
#include <stdint.h>
#include <sys/mman.h>
#include "tow_test.h"
#include "tow_sysfs.h"

#define TOW_KB			1024ULL
#define TOW_MB			(1024ULL * 1024)

/* A large slab of soft-RoCE; a small one of every device. */
#define TOW_SLAB		(2 * TOW_MB)
#define TOW_SMALL_SLAB		(64 * TOW_KB)
/* The largest region made of small slabs. */
#define TOW_SMALL_REGION	(256 * TOW_KB)
/* Of the RDMA device: one to read, one to write. */
#define TOW_SLAB_MRS		2ULL

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

/* How many the caller's user has, or a negative errno. */
static inline int tow_region_count(int fd)
{
	struct tow_region_info entries[8];
	uint64_t cursor = 0;
	int count, sum = 0;

	while ((count = tow_region_list(fd, 0, &cursor, entries, 8)) > 0)
		sum += count;
	return count < 0 ? count : sum;
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

/* The physical pages from an address of ours on; false if one is not there. */
static inline bool tow_frames_of(const void *at, size_t count, uint64_t *frames)
{
	uintptr_t first = (uintptr_t)at / (uintptr_t)sysconf(_SC_PAGESIZE);
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	ssize_t bytes = (ssize_t)(count * sizeof(*frames));
	bool all = pread(fd, frames, (size_t)bytes, (off_t)(first * sizeof(*frames))) == bytes;
	size_t i;

	close(fd);
	for (i = 0; i < count && all; i++) {
		all = frames[i] >> 63;
		frames[i] &= (1ULL << 55) - 1;
		/* Whoever may not know is told 0. */
		all = all && frames[i];
	}
	return all;
}

/* ---- regions that are mapped ------------------------------------------------- */

struct tow_mapped {
	struct tow_region_create made;
	int client;
	size_t bytes;
	union {
		char *at;
		uint64_t *words;
	};
};

static inline int tow_mapped_make(int client, uint64_t bytes, struct tow_mapped *mapped)
{
	int ret = tow_region_create(client, bytes, &mapped->made);

	mapped->client = client;
	if (ret)
		return ret;
	mapped->bytes = (size_t)mapped->made.map_bytes;
	mapped->at = tow_region_map(mapped->made.fd, mapped->bytes, PROT_READ | PROT_WRITE);
	if (mapped->at != MAP_FAILED)
		return 0;
	ret = -errno;
	tow_region_end(client, &mapped->made);
	return ret;
}

/* The mapping goes first, then what tow_region_end() takes: the first error. */
static inline int tow_mapped_end(const struct tow_mapped *mapped)
{
	int ret = munmap(mapped->at, mapped->bytes) ? -errno : 0;
	int end = tow_region_end(mapped->client, &mapped->made);

	return ret ? ret : end;
}

/*
 * Make one, look at its first @touch bytes, write to them, give it up: 0,
 * -EBADMSG if they were not what they should be, or the errno of a call.
 */
static inline int tow_mapped_use(int client, uint64_t bytes, size_t touch, uint64_t seed)
{
	struct tow_mapped mapped;
	int ret = tow_mapped_make(client, bytes, &mapped), end;
	bool good;

	if (ret)
		return ret;
	good = tow_is_zero(mapped.at, touch);
	tow_fill(mapped.at, touch, seed);
	sched_yield();
	good = good && !tow_differs(mapped.at, touch, seed);
	end = tow_mapped_end(&mapped);
	return good ? end : -EBADMSG;
}

#endif /* TOW_REGION_H */
