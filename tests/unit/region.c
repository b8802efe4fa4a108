// SPDX-License-Identifier: GPL-2.0
/*
 * What the library does about regions before it asks the kernel: attributes and
 * answers of older and newer callers, names, arguments that are missing.  Then which
 * region an address is in, with the test in place of the kernel.
 */
/* build: link -Wl,--wrap=towi_call */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kselftest.h>

#include <towline/arena.h>

#include "internal.h"

/* Published sizes never change. */
#define ATTR_FIRST	(16 + sizeof(char *))
#define INFO_FIRST	168

/* Room for structures that are longer than today's. */
union attr_room {
	struct tow_region_attr attr;
	unsigned char bytes[8192];
};

union info_room {
	struct tow_region_info info;
	unsigned char bytes[8192];
};

static void fill(void *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		((unsigned char *)bytes)[i] = (unsigned char)(i % 251 + 1);
}

static int take(uint32_t size, size_t junk_at, struct tow_region_attr *attr)
{
	static union attr_room room;

	memset(&room, 0, sizeof(room));
	room.attr.size = size;
	room.attr.flags = 7;
	room.attr.linger_s = 8;
	room.attr.name = "weights";
	if (junk_at)
		room.bytes[junk_at] = 1;
	return towi_region_attr_take(&room.attr, attr);
}

static bool taken(uint32_t size)
{
	struct tow_region_attr attr;

	memset(&attr, 0xff, sizeof(attr));
	return !take(size, 0, &attr) && attr.flags == 7 && attr.linger_s == 8 &&
	       !strcmp(attr.name, "weights");
}

static void test_attr(void)
{
	struct tow_region_attr attr;

	memset(&attr, 0xff, sizeof(attr));
	ksft_test_result(!towi_region_attr_take(NULL, &attr) && !attr.flags && !attr.linger_s &&
			 !attr.name, "no attributes: nothing asked for\n");
	ksft_test_result(taken(sizeof(attr)) && taken(ATTR_FIRST), "attributes of today and of old\n");
	ksft_test_result(taken(sizeof(attr) + 8) && taken(4096), "longer ones, the rest zero\n");
	ksft_test_result(take(sizeof(attr) + 8, sizeof(attr), &attr) == -E2BIG &&
			 take(4096, 4095, &attr) == -E2BIG, "what is not known here is refused\n");
	ksft_test_result(taken(4088), "what lies behind the structure is not looked at\n");
	ksft_test_result(take(ATTR_FIRST - 1, 0, &attr) == -EINVAL && take(0, 0, &attr) == -EINVAL &&
			 take(4097, 0, &attr) == -EINVAL && take(UINT32_MAX, 0, &attr) == -EINVAL,
			 "sizes that no version has\n");
	ksft_test_result(take(sizeof(attr), offsetof(struct tow_region_attr, reserved), &attr) ==
			 -EINVAL, "a reserved field that is used\n");
}

static bool name_is(const char *name, size_t length)
{
	char to[TOW_REGION_NAME_MAX];

	memset(to, 'x', sizeof(to));
	if (towi_region_name(name, to) || strlen(to) != length || memcmp(to, name, length) != 0)
		return false;
	for (size_t i = length; i < sizeof(to); i++)
		if (to[i])
			return false;
	return true;
}

static void test_names(void)
{
	char name[TOW_REGION_NAME_MAX + 1], to[TOW_REGION_NAME_MAX];

	memset(name, 'n', sizeof(name));
	name[TOW_REGION_NAME_MAX] = '\0';
	ksft_test_result(towi_region_name(name, to) == -EINVAL, "a name without room for its end\n");
	name[TOW_REGION_NAME_MAX - 1] = '\0';
	ksft_test_result(name_is(name, TOW_REGION_NAME_MAX - 1), "the longest name\n");
	ksft_test_result(name_is("weights", 7) && name_is("", 0), "a name is filled up with zeroes\n");
	memset(to, 'x', sizeof(to));
	ksft_test_result(!towi_region_name(NULL, to) && !to[0] && !to[TOW_REGION_NAME_MAX - 1],
			 "no name is an empty one\n");
}

/*
 * A kernel that filled in known->size bytes, a caller with room for size: the
 * smaller of both arrives, the caller's rest is zero, nothing beyond is touched.
 */
static bool gives(const struct tow_region_info *known, uint32_t size)
{
	size_t from = sizeof(known->size), filled = known->size < size ? known->size : size;
	static union info_room room;

	memset(&room, 0xee, sizeof(room));
	room.info.size = size;
	if (towi_give(known, INFO_FIRST, &room.info) || room.info.size != filled ||
	    memcmp(room.bytes + from, (const unsigned char *)known + from, filled - from) != 0)
		return false;
	for (size_t i = filled; i < sizeof(room); i++)
		if (room.bytes[i] != (i < size ? 0 : 0xee))
			return false;
	return true;
}

static bool refuses(const struct tow_region_info *known, uint32_t size)
{
	static union info_room room;

	memset(&room, 0xee, sizeof(room));
	room.info.size = size;
	return towi_give(known, INFO_FIRST, &room.info) == -EINVAL && room.info.size == size &&
	       room.bytes[sizeof(size)] == 0xee;
}

static void test_info(void)
{
	struct tow_region_info known;

	fill(&known, sizeof(known));
	known.size = sizeof(known);
	ksft_test_result(sizeof(known) >= INFO_FIRST && TOWI_INFO_SIZE_FIRST == INFO_FIRST &&
			 towi_size_valid(INFO_FIRST, INFO_FIRST) &&
			 !towi_size_valid(INFO_FIRST - 1, INFO_FIRST), "the first published size\n");
	ksft_test_result(gives(&known, sizeof(known)) && gives(&known, INFO_FIRST) &&
			 gives(&known, sizeof(known) + 64) && gives(&known, 4096),
			 "callers of all ages\n");
	known.size = INFO_FIRST;
	ksft_test_result(gives(&known, sizeof(known) + 64), "a kernel that is the oldest of the three\n");
	ksft_test_result(refuses(&known, INFO_FIRST - 1) && refuses(&known, 0) &&
			 refuses(&known, 4097) && refuses(&known, UINT32_MAX),
			 "sizes that no version has\n");
}

/* A device that nothing is asked of: every call with it ends before. */
static void test_missing(void)
{
	struct tow_device dev = { .fd = -1 };
	struct tow_region_attr reserved = { .size = sizeof(reserved), .reserved = 1 };
	struct tow_region_info info = { .size = sizeof(info) };
	struct tow_region *region = NULL;
	char long_name[TOW_REGION_NAME_MAX + 1];
	void *addr = NULL;
	int fd = -1;

	memset(long_name, 'n', sizeof(long_name));
	long_name[TOW_REGION_NAME_MAX] = '\0';
	ksft_test_result(tow_region_create(NULL, 1, NULL, &region) == -EINVAL &&
			 tow_region_create(&dev, 1, NULL, NULL) == -EINVAL &&
			 tow_region_create(&dev, 1, &reserved, &region) == -EINVAL, "create\n");
	ksft_test_result(tow_region_attach(NULL, "a", 0, &region) == -EINVAL &&
			 tow_region_attach(&dev, NULL, 0, &region) == -EINVAL &&
			 tow_region_attach(&dev, "a", 0, NULL) == -EINVAL &&
			 tow_region_attach(&dev, long_name, 0, &region) == -EINVAL, "attach\n");
	ksft_test_result(tow_region_from_fd(NULL, 0, &region) == -EINVAL &&
			 tow_region_from_fd(&dev, 0, NULL) == -EINVAL, "from_fd\n");
	ksft_test_result(tow_region_from_memory(NULL, &dev, 1, 0, &region) == -EINVAL &&
			 tow_region_from_memory(&dev, &dev, 1, 0, NULL) == -EINVAL, "from_memory\n");
	ksft_test_result(tow_region_from_dmabuf(NULL, 0, 0, 1, 0, &region) == -EINVAL &&
			 tow_region_from_dmabuf(&dev, 0, 0, 1, 0, NULL) == -EINVAL, "from_dmabuf\n");
	ksft_test_result(tow_region_map(NULL, 0, 0, PROT_READ, &addr) == -EINVAL &&
			 tow_region_unmap(NULL, &dev, 0) == -EINVAL, "map and unmap\n");
	ksft_test_result(tow_region_fd(NULL, 0, &fd) == -EINVAL && fd == -1, "fd\n");
	ksft_test_result(tow_region_info(NULL, &info) == -EINVAL, "info\n");
	ksft_test_result(tow_region_list_get(NULL, 0, NULL) == -EINVAL &&
			 tow_region_list_get(&dev, 0, NULL) == -EINVAL, "list_get\n");
	tow_region_list_free(NULL);
	tow_region_release(NULL);
	ksft_test_result(tow_region_destroy(NULL) == 0, "ending nothing\n");
	/* The descriptor is bad, and the kernel's word for it comes through. */
	ksft_test_result(tow_region_create(&dev, 1, NULL, &region) == -EBADF && !region &&
			 tow_region_from_fd(&dev, 0, &region) == -EBADF && !region,
			 "on failure no region is left behind\n");
}

/* ---- a kernel ---------------------------------------------------------------- */

#define KERNEL		(-2)		/* devices with that descriptor */
#define REGION_BYTES	((size_t)4 << 20)
#define RW		(PROT_READ | PROT_WRITE)

/* Of the regions that it makes. */
static struct {
	uint32_t flags;
	uint64_t bytes, map_bytes, last;
	unsigned int ended;
} kernel;

static int new_memory(void)
{
	int fd = memfd_create("region", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, REGION_BYTES))
		ksft_exit_fail_perror("memfd_create");
	return fd;
}

int __real_towi_call(const struct tow_device *dev, unsigned long command, void *arg);
int __wrap_towi_call(const struct tow_device *dev, unsigned long command, void *arg);

int __wrap_towi_call(const struct tow_device *dev, unsigned long command, void *arg)
{
	if (dev->fd != KERNEL)
		return __real_towi_call(dev, command, arg);
	switch (command) {
	case TOW_IOCTL_REGION_CREATE:
		((struct tow_region_create *)arg)->handle = ++kernel.last;
		((struct tow_region_create *)arg)->map_bytes = REGION_BYTES;
		((struct tow_region_create *)arg)->fd = new_memory();
		return 0;
	case TOW_IOCTL_REGION_FROM_FD:
		((struct tow_region_from_fd *)arg)->handle = ++kernel.last;
		return 0;
	case TOW_IOCTL_REGION_IMPORT_USER:
		((struct tow_region_import_user *)arg)->handle = ++kernel.last;
		return 0;
	case TOW_IOCTL_REGION_IMPORT_DMABUF:
		((struct tow_region_import_dmabuf *)arg)->handle = ++kernel.last;
		return 0;
	case TOW_IOCTL_REGION_QUERY:
		((struct tow_region_info *)arg)->flags = kernel.flags;
		((struct tow_region_info *)arg)->bytes = kernel.bytes;
		((struct tow_region_info *)arg)->map_bytes = kernel.map_bytes;
		return 0;
	case TOW_IOCTL_REGION_FD:
		((struct tow_region_fd *)arg)->fd = new_memory();
		return 0;
	case TOW_IOCTL_REGION_DESTROY:
		kernel.ended++;
		return 0;
	default:
		return -ENOTTY;
	}
}

static void open_kernel(struct tow_device *dev)
{
	*dev = (struct tow_device){ .fd = KERNEL, .process = towi_process() };
	kernel.flags = 0;
	kernel.bytes = REGION_BYTES;
	kernel.map_bytes = REGION_BYTES;
	towi_mapped_begin(dev);
}

/* ---- which region an address is in -------------------------------------------- */

/* Is it in @region, there, and goes on so far?  NULL: in none. */
static bool found(struct tow_device *dev, const void *ptr, const struct tow_region *region,
		  uint64_t offset, uint64_t bytes)
{
	struct tow_region *is = NULL;
	uint64_t at = 0, left = 0;
	int ret = tow_region_find(dev, ptr, &is, &at, &left);

	if (!region)
		return ret == -ENOENT;
	return !ret && is == region && at == offset && left == bytes;
}

static void test_find(void)
{
	struct tow_region *mapped, *passed, *imported, *region;
	struct tow_device dev;
	char memory[1000], *all, *part, *theirs;
	uint64_t offset;

	open_kernel(&dev);
	ksft_test_result(tow_region_find(NULL, memory, &region, &offset, NULL) == -EINVAL &&
			 tow_region_find(&dev, memory, NULL, &offset, NULL) == -EINVAL &&
			 tow_region_find(&dev, memory, &region, NULL, NULL) == -EINVAL &&
			 found(&dev, memory, NULL, 0, 0) && found(&dev, NULL, NULL, 0, 0),
			 "nothing to find\n");
	if (tow_region_create(&dev, REGION_BYTES, NULL, &mapped) ||
	    tow_region_from_fd(&dev, 0, &passed) ||
	    tow_region_from_memory(&dev, memory + 100, 500, 0, &imported))
		ksft_exit_fail_msg("no regions\n");
	ksft_test_result(!tow_region_map(mapped, 0, 0, RW, (void **)&all) &&
			 !tow_region_map(mapped, 8192, 4096, RW, (void **)&part) &&
			 found(&dev, all, mapped, 0, REGION_BYTES) &&
			 found(&dev, all + REGION_BYTES - 1, mapped, REGION_BYTES - 1, 1) &&
			 found(&dev, part + 5, mapped, 8197, 4091), "what was mapped, each time\n");
	ksft_test_result(!tow_region_map(passed, 0, 0, PROT_READ, (void **)&theirs) &&
			 found(&dev, theirs + 7, passed, 7, REGION_BYTES - 7),
			 "what came as a descriptor\n");
	ksft_test_result(found(&dev, memory + 99, NULL, 0, 0) &&
			 found(&dev, memory + 100, imported, 0, 500) &&
			 found(&dev, memory + 599, imported, 499, 1) &&
			 found(&dev, memory + 600, NULL, 0, 0), "what was imported\n");
	ksft_test_result(!tow_region_unmap(mapped, part, 4096) && found(&dev, part, NULL, 0, 0) &&
			 found(&dev, all, mapped, 0, REGION_BYTES), "not what is unmapped\n");
	tow_region_release(passed);
	ksft_test_result(found(&dev, theirs, NULL, 0, 0), "nor released\n");
	tow_region_destroy(imported);
	tow_region_destroy(mapped);
	ksft_test_result(found(&dev, memory + 100, NULL, 0, 0) && found(&dev, all, NULL, 0, 0) &&
			 !dev.mapped.count, "nor destroyed\n");
	towi_mapped_end(&dev);
}

/* Whether a region can be written is asked of those alone that have an address. */
static void test_readonly(void)
{
	struct tow_region *passed, *imported, *writable;
	struct tow_device dev;
	char memory[100];
	void *addr;

	open_kernel(&dev);
	kernel.flags = TOW_REGION_READONLY;
	if (tow_region_from_fd(&dev, 0, &passed) ||
	    tow_region_from_memory(&dev, memory, 100, TOW_REGION_READONLY, &imported) ||
	    tow_region_create(&dev, REGION_BYTES, NULL, &writable))
		ksft_exit_fail_msg("no regions\n");
	ksft_test_result(!tow_region_map(passed, 0, 0, PROT_READ, &addr) &&
			 towi_region_readonly(passed) && towi_region_readonly(imported) &&
			 !towi_region_readonly(writable), "read-only ones are known\n");
	tow_region_destroy(passed);
	tow_region_destroy(imported);
	tow_region_destroy(writable);
	towi_mapped_end(&dev);
}

#define RANGES	60
#define AREA	4000U

/* What a look at all of them finds: how far it goes on, 0: nothing. */
static uint64_t look(const struct towi_range *ranges, uintptr_t at)
{
	uint64_t most = 0;

	for (size_t i = 0; i < RANGES; i++)
		if (ranges[i].region && ranges[i].at <= at &&
		    ranges[i].at + ranges[i].bytes - at - 1 < ranges[i].bytes &&
		    ranges[i].at + ranges[i].bytes - at > most)
			most = ranges[i].at + ranges[i].bytes - at;
	return most;
}

/* Regions that overlap each other as they like come and go. */
static void test_overlaps(void)
{
	static char area[AREA];
	struct towi_range ranges[RANGES] = { 0 }, *range;
	struct tow_region *region = NULL;
	struct tow_device dev;
	uint64_t offset, left;
	unsigned int seed = 1;
	bool good = true;
	int ret;

	open_kernel(&dev);
	for (int i = 0; i < 3000; i++) {
		range = &ranges[(unsigned int)rand_r(&seed) % RANGES];
		if (range->region) {
			towi_mapped_drop(&dev, range->region, (void *)range->at);
			range->region = NULL;
		} else {
			range->region = (struct tow_region *)(void *)range;
			range->at = (uintptr_t)&area[(unsigned int)rand_r(&seed) % (AREA / 2)];
			range->bytes = (unsigned int)rand_r(&seed) % (i % 3 ? 50 : AREA / 2) + 1;
			if (towi_mapped_add(&dev, range->region, (void *)range->at, 7, range->bytes))
				ksft_exit_fail_msg("no memory\n");
		}
		for (size_t at = 0; at < AREA; at += 37) {
			uint64_t most = look(ranges, (uintptr_t)&area[at]);

			left = 0;
			ret = tow_region_find(&dev, &area[at], &region, &offset, &left);
			range = (struct towi_range *)(void *)region;
			good &= ret == (most ? 0 : -ENOENT) && left == most &&
				(ret || offset == 7 + (uintptr_t)&area[at] - range->at);
		}
	}
	ksft_test_result(good, "of several it is the one that goes on furthest\n");
	towi_mapped_end(&dev);
}

static struct {
	uint64_t first, second;
	unsigned int ended;
} told;

static void note_first(struct towi_watch *watch, uint64_t region)
{
	(void)watch;
	told.first = region;
	told.ended = kernel.ended;
}

static void note_second(struct towi_watch *watch, uint64_t region)
{
	(void)watch;
	told.second = region;
}

static void test_watch(void)
{
	struct towi_watch first = { .gone = note_first }, second = { .gone = note_second };
	struct tow_region *region, *other;
	struct tow_device dev;
	char memory[100];

	open_kernel(&dev);
	if (tow_region_from_memory(&dev, memory, 100, 0, &region) ||
	    tow_region_create(&dev, 1, NULL, &other))
		ksft_exit_fail_msg("no regions\n");
	towi_watch(&dev, &first);
	towi_watch(&dev, &second);
	kernel.ended = 0;
	told.ended = 1;
	tow_region_destroy(region);
	ksft_test_result(told.first == kernel.last - 1 && told.second == told.first && !told.ended &&
			 kernel.ended == 1, "all are told, before the kernel ends it\n");
	towi_unwatch(&dev, &second);
	tow_region_destroy(other);
	ksft_test_result(told.first == kernel.last && told.second == kernel.last - 1,
			 "and not any more\n");
	towi_unwatch(&dev, &first);
	towi_mapped_end(&dev);
}

/* A lock that a thread had is never let go of there. */
static void test_child(void)
{
	struct tow_region *region, *found_there;
	struct tow_device dev;
	uint64_t offset;
	char memory[100];
	int status = -1;
	pid_t pid;

	open_kernel(&dev);
	if (tow_region_from_memory(&dev, memory, 100, 0, &region))
		ksft_exit_fail_msg("no region\n");
	pthread_mutex_lock(&dev.mapped.lock);
	pthread_mutex_lock(&dev.watching);
	pid = fork();
	if (!pid) {
		alarm(20);
		if (tow_region_find(&dev, memory, &found_there, &offset, NULL) != -EPERM)
			_exit(1);
		tow_region_destroy(region);
		towi_mapped_end(&dev);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	pthread_mutex_unlock(&dev.watching);
	pthread_mutex_unlock(&dev.mapped.lock);
	ksft_test_result(!status && found(&dev, memory, region, 0, 100), "a child asks in vain\n");
	tow_region_destroy(region);
	towi_mapped_end(&dev);
}

/* ---- for arenas ---------------------------------------------------------------- */

static void test_adopt(void)
{
	struct tow_region *pool, *imported, *others, *found_there;
	struct tow_device dev, another;
	struct tow_arena *arena, *second;
	char *memory = mmap(NULL, REGION_BYTES + 100, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *ptr;
	uint64_t offset;
	void *addr;

	open_kernel(&dev);
	open_kernel(&another);
	if (memory == MAP_FAILED || tow_region_create(&dev, REGION_BYTES, NULL, &pool) ||
	    tow_region_from_memory(&dev, memory + 100, REGION_BYTES, 0, &imported) ||
	    tow_region_create(&another, REGION_BYTES, NULL, &others) ||
	    tow_arena_create(&dev, NULL, &arena) || tow_arena_create(&dev, NULL, &second))
		ksft_exit_fail_msg("no regions\n");
	ksft_test_result(tow_arena_adopt(arena, others) == -EINVAL, "another device's\n");
	kernel.flags = TOW_REGION_READONLY;
	ksft_test_result(tow_arena_adopt(arena, pool) == -EACCES, "a read-only one\n");
	kernel.flags = 0;
	ksft_test_result(!tow_arena_adopt(arena, pool) && tow_arena_adopt(arena, pool) == -EBUSY &&
			 tow_arena_adopt(second, pool) == -EBUSY, "once, by one arena\n");
	ptr = tow_arena_alloc(arena, REGION_BYTES);
	ksft_test_result(ptr && found(&dev, ptr, pool, 0, REGION_BYTES) &&
			 !tow_arena_find(arena, ptr + 9, &found_there, &offset) &&
			 found_there == pool && offset == 9, "its memory is found either way\n");
	kernel.map_bytes = 0;
	ksft_test_result(!tow_arena_adopt(second, imported) &&
			 (ptr = tow_arena_alloc(second, (size_t)2 << 20)) &&
			 ptr > memory && ptr + ((size_t)2 << 20) <= memory + REGION_BYTES + 100 &&
			 !tow_arena_find(second, ptr, &found_there, &offset) &&
			 found_there == imported && offset == (uint64_t)(ptr - memory - 100),
			 "the process's own memory\n");
	kernel.map_bytes = REGION_BYTES;
	kernel.ended = 0;
	ksft_test_result(!tow_arena_destroy(arena) && !tow_arena_destroy(second) && !kernel.ended &&
			 dev.mapped.count == 1 && found(&dev, memory + 100, imported, 0, REGION_BYTES) &&
			 !tow_region_map(pool, 0, 0, RW, &addr) && !tow_arena_create(&dev, NULL, &arena) &&
			 !tow_arena_adopt(arena, pool), "when an arena ends it is as it was\n");
	tow_arena_destroy(arena);
	tow_region_destroy(pool);
	tow_region_destroy(imported);
	tow_region_destroy(others);
	towi_mapped_end(&dev);
	towi_mapped_end(&another);
	munmap(memory, REGION_BYTES + 100);
}

/* A device's memory has addresses, and nothing is there. */
static void test_adopt_far(void)
{
	struct tow_region *region, *found_there;
	int event = eventfd(0, EFD_CLOEXEC);
	struct tow_device dev;
	struct tow_arena *arena;
	uint64_t offset;
	char *ptr = NULL;

	open_kernel(&dev);
	kernel.bytes = REGION_BYTES;
	if (tow_region_from_dmabuf(&dev, event, 0, REGION_BYTES, 0, &region) ||
	    tow_arena_create(&dev, NULL, &arena))
		ksft_exit_fail_msg("no region\n");
	kernel.flags = TOW_REGION_READONLY;
	ksft_test_result(tow_arena_adopt(arena, region) == -EACCES, "a read-only dma-buf\n");
	kernel.flags = 0;
	ksft_test_result(!tow_arena_adopt(arena, region) &&
			 (ptr = tow_arena_alloc(arena, REGION_BYTES)) &&
			 found(&dev, ptr, region, 0, REGION_BYTES) &&
			 !tow_arena_find(arena, ptr + 9, &found_there, &offset) &&
			 found_there == region && offset == 9, "a dma-buf has addresses\n");
	ksft_test_result(towi_region_far(region, ptr) && !towi_region_far(region, ptr - 1) &&
			 towi_region_far(region, ptr + REGION_BYTES - 1) &&
			 !towi_region_far(region, ptr + REGION_BYTES) &&
			 write(event, ptr, sizeof(uint64_t)) < 0 && errno == EFAULT,
			 "at which there is nothing\n");
	offset = towi_region_lost(region);
	kernel.flags = TOW_REGION_INVALID;
	ksft_test_result(!offset && towi_region_lost(region) && !tow_arena_destroy(arena) &&
			 !dev.mapped.count && !towi_region_far(region, ptr),
			 "it may be taken back, and has none when the arena ends\n");
	kernel.flags = 0;
	tow_region_destroy(region);
	close(event);
	towi_mapped_end(&dev);
}

/* One that can be mapped, and begins with something that is not the region's. */
static void test_dmabuf(void)
{
	int buffer = memfd_create("dma-buf", MFD_CLOEXEC);
	struct tow_region *region, *readonly;
	struct tow_device dev;
	char *addr, byte;

	open_kernel(&dev);
	if (buffer < 0 || ftruncate(buffer, 2 * (off_t)REGION_BYTES) ||
	    tow_region_from_dmabuf(&dev, buffer, REGION_BYTES, REGION_BYTES, 0, &region) ||
	    tow_region_from_dmabuf(&dev, buffer, 0, REGION_BYTES, TOW_REGION_READONLY,
				   &readonly))
		ksft_exit_fail_msg("no regions\n");
	ksft_test_result(!tow_region_map(region, 4096, 4096, RW, (void **)&addr) &&
			 memset(addr, 'd', 1) && pread(buffer, &byte, 1, REGION_BYTES + 4096) == 1 &&
			 byte == 'd' && found(&dev, addr, region, 4096, 4096) &&
			 !tow_region_unmap(region, addr, 4096), "a dma-buf is mapped\n");
	ksft_test_result(tow_region_map(region, REGION_BYTES, 0, RW, (void **)&addr) == -EINVAL &&
			 tow_region_map(readonly, 0, 0, RW, (void **)&addr) == -EACCES &&
			 !tow_region_map(readonly, 0, 0, PROT_READ, (void **)&addr) &&
			 addr[0] == '\0', "no more of it than there is, and may be\n");
	close(buffer);
	tow_region_destroy(region);
	tow_region_destroy(readonly);
	towi_mapped_end(&dev);
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(7 + 4 + 4 + 11 + 7 + 1 + 1 + 2 + 1 + 6 + 4 + 2);
	test_attr();
	test_names();
	test_info();
	test_missing();
	test_find();
	test_readonly();
	test_overlaps();
	test_watch();
	test_child();
	test_adopt();
	test_adopt_far();
	test_dmabuf();
	ksft_finished();
}
