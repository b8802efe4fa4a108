// SPDX-License-Identifier: GPL-2.0
/*
 * libtowline's regions against the real module: where mappings lie, what ending
 * a region leaves, passing one on, taking one over, and each error that a
 * program can meet.
 */
/* build: link -ltowline */
#include <towline/arena.h>

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>

#include "tow_hotplug.h"
#include "tow_identity.h"
#include "tow_sysfs.h"
#include "tow_test.h"

#define KIB		((size_t)1 << 10)
#define MIB		((size_t)1 << 20)
#define HUGE		(2 * MIB)
#define SMALL		(64 * KIB)
#define RW		(PROT_READ | PROT_WRITE)
#define POOL		"128m"
#define THREADS		4
#define ROUNDS		50
#define KEY		"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

/* A process's mapping that begins at addr: how long it is, or 0. */
static size_t mapped_at(const void *addr)
{
	unsigned long from, to;
	size_t found = 0;
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "re");

	if (!maps)
		return 0;
	while (!found && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx", &from, &to) == 2 && from == (uintptr_t)addr)
			found = to - from;
	fclose(maps);
	return found;
}

static bool all_zero(const unsigned char *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (bytes[i])
			return false;
	return true;
}

static int create(struct tow_device *dev, size_t bytes, const char *name, uint32_t flags,
		  struct tow_region **region)
{
	struct tow_region_attr attr = { .size = sizeof(attr), .name = name, .flags = flags };

	return tow_region_create(dev, bytes, &attr, region);
}

static int info_of(const struct tow_region *region, struct tow_region_info *info)
{
	info->size = sizeof(*info);
	return tow_region_info(region, info);
}

/* Is the address there in the region?  NULL: in none. */
static bool is_found(struct tow_device *dev, const void *ptr, const struct tow_region *region,
		     uint64_t offset)
{
	struct tow_region *found = NULL;
	uint64_t at = 0;
	int ret = tow_region_find(dev, ptr, &found, &at, NULL);

	return region ? !ret && found == region && at == offset : ret == -ENOENT;
}

/* What a child's function answers: 0 or a negative errno. */
static int in_child(int (*what)(void *arg), void *arg)
{
	return tow_as(TOW_ROOT, what, arg);
}

FIXTURE(region)
{
	struct tow_device *dev;
};

FIXTURE_SETUP(region)
{
	ASSERT_EQ(0, tow_sysfs_put("pool_bytes", POOL));
	ASSERT_EQ(0, tow_device_open(tow_test_device(), 0, &self->dev));
}

FIXTURE_TEARDOWN(region)
{
	tow_device_close(self->dev);
}

TEST_F(region, create_map_touch_unmap_destroy)
{
	static const size_t sizes[] = { 1, SMALL, 4 * SMALL, 4 * SMALL + 1, HUGE, HUGE + 1 };
	struct tow_region_info info;
	struct tow_region *region;
	void *addr;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		ASSERT_EQ(0, tow_region_create(self->dev, sizes[i], NULL, &region));
		ASSERT_EQ(0, info_of(region, &info));
		ASSERT_EQ(0, tow_region_map(region, 0, 0, RW, &addr));
		EXPECT_EQ(info.map_bytes, mapped_at(addr));
		EXPECT_TRUE(all_zero(addr, info.map_bytes));
		memset(addr, 0xa5, info.map_bytes);
		EXPECT_EQ(0, tow_region_unmap(region, addr, 0));
		EXPECT_EQ(0, mapped_at(addr));
		EXPECT_EQ(-EINVAL, tow_region_unmap(region, addr, 0));
		EXPECT_EQ(0, tow_region_destroy(region));
	}
}

TEST_F(region, mappings_lie_as_in_the_region)
{
	struct tow_region *region;
	void *whole, *again, *part, *small;

	ASSERT_EQ(0, tow_region_create(self->dev, 8 * MIB, NULL, &region));
	ASSERT_EQ(0, tow_region_map(region, 0, 0, RW, &whole));
	ASSERT_EQ(0, tow_region_map(region, 0, 0, RW, &again));
	ASSERT_EQ(0, tow_region_map(region, MIB, 4 * MIB, RW, &part));
	ASSERT_EQ(0, tow_region_map(region, 4 * KIB, 8 * KIB, RW, &small));
	EXPECT_EQ(0, (uintptr_t)whole % HUGE);
	EXPECT_EQ(0, (uintptr_t)again % HUGE);
	EXPECT_EQ(MIB, (uintptr_t)part % HUGE);
	EXPECT_EQ(8 * MIB, mapped_at(whole));
	EXPECT_EQ(4 * MIB, mapped_at(part));
	EXPECT_EQ(8 * KIB, mapped_at(small));

	/* One memory, however often it is mapped. */
	((char *)whole)[MIB + 5] = 'x';
	((char *)whole)[4 * KIB] = 'y';
	EXPECT_EQ('x', ((char *)again)[MIB + 5]);
	EXPECT_EQ('x', ((char *)part)[5]);
	EXPECT_EQ('y', ((char *)small)[0]);

	/* The length is the one that was given. */
	EXPECT_EQ(-EINVAL, tow_region_unmap(region, part, 0));
	EXPECT_EQ(-EINVAL, tow_region_unmap(region, whole, 8 * MIB));
	EXPECT_EQ(0, tow_region_unmap(region, part, 4 * MIB));
	EXPECT_EQ(0, tow_region_destroy(region));
	EXPECT_EQ(0, mapped_at(whole));
	EXPECT_EQ(0, mapped_at(again));
	EXPECT_EQ(0, mapped_at(small));
}

TEST_F(region, map_checks_its_arguments)
{
	struct tow_region *region;
	void *addr = NULL;

	ASSERT_EQ(0, tow_region_create(self->dev, 2 * HUGE, NULL, &region));
	EXPECT_EQ(-EINVAL, tow_region_map(region, 1, 0, RW, &addr));
	EXPECT_EQ(-EINVAL, tow_region_map(region, 2 * HUGE, 0, RW, &addr));
	EXPECT_EQ(-EINVAL, tow_region_map(region, HUGE, HUGE + 1, RW, &addr));
	EXPECT_EQ(-EINVAL, tow_region_map(region, 0, SIZE_MAX, RW, &addr));
	EXPECT_EQ(-EINVAL, tow_region_map(region, UINT64_MAX - 4095, 0, RW, &addr));
	EXPECT_EQ(-EINVAL, tow_region_map(region, 0, 0, RW, NULL));
	EXPECT_EQ(NULL, addr);
	EXPECT_EQ(-EINVAL, tow_region_unmap(region, NULL, 0));
	EXPECT_EQ(-EINVAL, tow_region_unmap(region, self->dev, 0));
	EXPECT_EQ(0, tow_region_destroy(region));
}

TEST_F(region, create_checks_its_arguments)
{
	struct tow_region_attr attr = { .size = sizeof(attr) };
	struct tow_region *region = NULL;

	EXPECT_EQ(-EINVAL, tow_region_create(self->dev, 0, NULL, &region));
	attr.flags = TOW_REGION_LINGERING;
	EXPECT_EQ(-EINVAL, tow_region_create(self->dev, 1, &attr, &region));
	/* Persistent, but what would it be asked for by? */
	attr.flags = TOW_REGION_PERSISTENT;
	EXPECT_EQ(-EINVAL, tow_region_create(self->dev, 1, &attr, &region));
	attr.name = "a/b";
	EXPECT_EQ(-EINVAL, tow_region_create(self->dev, 1, &attr, &region));
	attr.flags = 0;
	attr.name = NULL;
	attr.linger_s = 1;
	EXPECT_EQ(-EINVAL, tow_region_create(self->dev, 1, &attr, &region));
	EXPECT_EQ(NULL, region);
}

/* ---- how many system calls ---- */

/* Marks what is counted; a call that nothing else here makes. */
#define MARK SYS_getpgrp

static int map_when_traced(void)
{
	struct tow_region *region;
	struct tow_device *dev;
	void *first, *second;

	if (ptrace(PTRACE_TRACEME) || raise(SIGSTOP))
		return 1;
	if (tow_device_open(tow_test_device(), 0, &dev) ||
	    tow_region_create(dev, HUGE, NULL, &region) ||
	    tow_region_map(region, 0, 0, RW, &first))
		return 2;
	syscall(MARK);
	if (tow_region_map(region, 0, 0, RW, &second))
		return 3;
	syscall(MARK);
	if ((uintptr_t)second % HUGE || tow_region_destroy(region))
		return 4;
	tow_device_close(dev);
	return 0;
}

/* The system calls of a child between its two marks; -1 if it failed. */
static int count_calls(pid_t child)
{
	struct __ptrace_syscall_info info;
	int status, marks = 0, calls = 0;

	if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status))
		return -1;
	ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
	for (;;) {
		ptrace(PTRACE_SYSCALL, child, NULL, NULL);
		if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status))
			break;
		if (ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof(info), &info) <= 0 ||
		    info.op != PTRACE_SYSCALL_INFO_ENTRY)
			continue;
		if (info.entry.nr == MARK)
			marks++;
		else if (marks == 1)
			calls++;
	}
	return marks == 2 && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? calls : -1;
}

TEST_F(region, the_usual_map_is_one_system_call)
{
	pid_t child = fork();

	ASSERT_LE(0, child);
	if (!child)
		_exit(map_when_traced());
	EXPECT_EQ(1, count_calls(child));
}

/* ---- passing on ---- */

/* What happens to a descriptor that a child was born with. */
static int write_through_fd(void *arg)
{
	char *addr = mmap(NULL, SMALL, RW, MAP_SHARED, *(int *)arg, 0);

	if (addr == MAP_FAILED)
		return -errno;
	addr[100] = 'c';
	return 0;
}

static int create_with_parents_device(void *dev)
{
	struct tow_region *region;

	return tow_region_create(dev, 1, NULL, &region);
}

static int destroy_parents_region(void *region)
{
	return tow_region_destroy(region);
}

TEST_F(region, a_child_has_the_memory_and_not_the_client)
{
	struct tow_region *region;
	char *addr;
	int fd = -1;

	ASSERT_EQ(0, tow_region_create(self->dev, SMALL, NULL, &region));
	ASSERT_EQ(0, tow_region_map(region, 0, 0, RW, (void **)&addr));
	ASSERT_EQ(0, tow_region_fd(region, 0, &fd));
	EXPECT_EQ(FD_CLOEXEC, fcntl(fd, F_GETFD));
	EXPECT_EQ(0, in_child(write_through_fd, &fd));
	EXPECT_EQ('c', addr[100]);
	EXPECT_EQ(-EPERM, in_child(create_with_parents_device, self->dev));
	EXPECT_EQ(-EPERM, in_child(destroy_parents_region, region));
	/* It took the child's mapping with it, and not this one. */
	EXPECT_EQ('c', addr[100]);
	EXPECT_EQ(-EINVAL, tow_region_fd(region, TOW_REGION_PERSISTENT, &fd));
	EXPECT_EQ(0, close(fd));
	EXPECT_EQ(0, tow_region_destroy(region));
}

/* A client of its own: sees what the other wrote, and answers in it. */
static int answer_through_own_client(void *arg)
{
	struct tow_region *region;
	struct tow_device *dev;
	char *addr = NULL;
	int ret;

	ret = tow_device_open(tow_test_device(), 0, &dev);
	if (ret)
		return ret;
	ret = tow_region_from_fd(dev, *(int *)arg, &region);
	if (ret)
		return ret;
	ret = tow_region_map(region, 0, 0, RW, (void **)&addr);
	if (ret)
		return ret;
	if ((uintptr_t)addr % HUGE || addr[HUGE] != 'p')
		return -EILSEQ;
	addr[HUGE] = 'c';
	ret = tow_region_destroy(region);
	tow_device_close(dev);
	return ret;
}

TEST_F(region, from_fd_in_another_client)
{
	struct tow_region *region;
	char *addr;
	int fd;

	ASSERT_EQ(0, tow_region_create(self->dev, 2 * HUGE, NULL, &region));
	ASSERT_EQ(0, tow_region_map(region, 0, 0, RW, (void **)&addr));
	ASSERT_EQ(0, tow_region_fd(region, 0, &fd));
	addr[HUGE] = 'p';
	EXPECT_EQ(0, in_child(answer_through_own_client, &fd));
	/* The other's destroy ended its handle, not the region. */
	EXPECT_EQ('c', addr[HUGE]);
	EXPECT_EQ(0, tow_region_destroy(region));

	/* The descriptor keeps the region, without a handle of anybody's. */
	ASSERT_EQ(0, tow_region_from_fd(self->dev, fd, &region));
	EXPECT_EQ(0, close(fd));
	ASSERT_EQ(0, tow_region_map(region, HUGE, 0, RW, (void **)&addr));
	EXPECT_EQ('c', addr[0]);
	EXPECT_EQ(0, tow_region_destroy(region));
}

TEST_F(region, from_fd_refuses_what_is_no_region)
{
	struct tow_region *region = NULL;
	int memfd = memfd_create("none", MFD_CLOEXEC);

	ASSERT_LE(0, memfd);
	EXPECT_EQ(-EBADF, tow_region_from_fd(self->dev, -1, &region));
	EXPECT_EQ(-EINVAL, tow_region_from_fd(self->dev, memfd, &region));
	EXPECT_EQ(-EBADF, tow_region_from_dmabuf(self->dev, -1, 0, SMALL, 0, &region));
	EXPECT_EQ(-EINVAL, tow_region_from_dmabuf(self->dev, memfd, 0, SMALL, 0, &region));
	EXPECT_EQ(NULL, region);
	close(memfd);
}

TEST_F(region, read_only_descriptors_stay_so)
{
	struct tow_region *region, *reader;
	struct tow_region_info info;
	void *addr = NULL;
	int fd, more = -1;

	ASSERT_EQ(0, tow_region_create(self->dev, SMALL, NULL, &region));
	ASSERT_EQ(0, tow_region_fd(region, TOW_REGION_READONLY, &fd));
	EXPECT_EQ(MAP_FAILED, mmap(NULL, SMALL, RW, MAP_SHARED, fd, 0));
	EXPECT_EQ(EACCES, errno);

	ASSERT_EQ(0, tow_region_from_fd(self->dev, fd, &reader));
	ASSERT_EQ(0, info_of(reader, &info));
	EXPECT_EQ(TOW_REGION_READONLY, info.flags);
	EXPECT_EQ(-EACCES, tow_region_map(reader, 0, 0, RW, &addr));
	EXPECT_EQ(NULL, addr);
	ASSERT_EQ(0, tow_region_map(reader, 0, 0, PROT_READ, &addr));
	EXPECT_EQ(-1, mprotect(addr, SMALL, RW));
	EXPECT_EQ(-EACCES, tow_region_fd(reader, 0, &more));
	EXPECT_EQ(-1, more);
	EXPECT_EQ(0, tow_region_fd(reader, TOW_REGION_READONLY, &more));
	EXPECT_EQ(0, close(more));
	EXPECT_EQ(0, close(fd));
	EXPECT_EQ(0, tow_region_destroy(reader));
	EXPECT_EQ(0, tow_region_destroy(region));
}

/* ---- other memory ---- */

TEST_F(region, from_memory)
{
	struct tow_region *region = NULL;
	struct tow_region_info info;
	void *addr = NULL;
	int fd = -1;
	char *memory = mmap(NULL, MIB, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ASSERT_NE(MAP_FAILED, memory);
	ASSERT_EQ(0, tow_region_from_memory(self->dev, memory + 100, 10000, 0, &region));
	ASSERT_EQ(0, info_of(region, &info));
	EXPECT_EQ(TOW_REGION_USER_MEMORY, info.flags);
	EXPECT_EQ(10000, info.bytes);
	EXPECT_EQ(0, info.map_bytes);
	EXPECT_EQ(-EOPNOTSUPP, tow_region_map(region, 0, 0, RW, &addr));
	EXPECT_EQ(-EOPNOTSUPP, tow_region_fd(region, 0, &fd));
	EXPECT_EQ(0, tow_region_destroy(region));

	region = NULL;
	EXPECT_EQ(-EINVAL, tow_region_from_memory(self->dev, memory, 0, 0, &region));
	EXPECT_EQ(-EINVAL, tow_region_from_memory(self->dev, memory, UINT64_MAX, 0, &region));
	EXPECT_EQ(-EINVAL, tow_region_from_memory(self->dev, memory, 1, TOW_REGION_PERSISTENT,
						  &region));
	ASSERT_EQ(0, mprotect(memory, MIB, PROT_READ));
	EXPECT_EQ(-EFAULT, tow_region_from_memory(self->dev, memory, MIB, 0, &region));
	EXPECT_EQ(NULL, region);
	ASSERT_EQ(0, tow_region_from_memory(self->dev, memory, MIB, TOW_REGION_READONLY, &region));
	EXPECT_EQ(0, tow_region_destroy(region));
	ASSERT_EQ(0, munmap(memory, MIB));
	region = NULL;
	EXPECT_EQ(-EFAULT, tow_region_from_memory(self->dev, memory, MIB, 0, &region));
	EXPECT_EQ(NULL, region);
}

/* Of whatever kind, as long as it has the address. */
TEST_F(region, find)
{
	struct tow_region *region, *passed, *imported, *arenas;
	char *addr, *again, *theirs, *block;
	struct tow_arena *arena;
	static char memory[10000];
	uint64_t offset, bytes;
	int fd;

	ASSERT_EQ(0, tow_region_create(self->dev, 2 * HUGE, NULL, &region));
	ASSERT_EQ(0, tow_region_map(region, 0, 0, RW, (void **)&addr));
	ASSERT_EQ(0, tow_region_map(region, HUGE, 4096, PROT_READ, (void **)&again));
	EXPECT_TRUE(is_found(self->dev, addr + 5, region, 5));
	EXPECT_TRUE(is_found(self->dev, again + 5, region, HUGE + 5));
	EXPECT_EQ(0, tow_region_unmap(region, again, 4096));
	EXPECT_TRUE(is_found(self->dev, again + 5, NULL, 0));
	ASSERT_EQ(0, tow_region_fd(region, TOW_REGION_READONLY, &fd));
	ASSERT_EQ(0, tow_region_from_fd(self->dev, fd, &passed));
	EXPECT_EQ(0, close(fd));
	ASSERT_EQ(0, tow_region_map(passed, 0, 0, PROT_READ, (void **)&theirs));
	EXPECT_TRUE(is_found(self->dev, theirs, passed, 0));
	tow_region_release(passed);
	EXPECT_TRUE(is_found(self->dev, theirs, NULL, 0));
	ASSERT_EQ(0, tow_region_from_memory(self->dev, memory + 7, 5000, 0, &imported));
	EXPECT_TRUE(is_found(self->dev, memory + 6, NULL, 0));
	EXPECT_TRUE(is_found(self->dev, memory + 5006, imported, 4999));
	EXPECT_TRUE(is_found(self->dev, memory + 5007, NULL, 0));
	EXPECT_EQ(0, tow_region_destroy(imported));
	EXPECT_TRUE(is_found(self->dev, memory + 7, NULL, 0));
	ASSERT_EQ(0, tow_arena_create(self->dev, NULL, &arena));
	block = tow_arena_alloc(arena, 100);
	ASSERT_EQ(0, tow_arena_find(arena, block, &arenas, &offset));
	EXPECT_TRUE(is_found(self->dev, block, arenas, offset));
	EXPECT_EQ(0, tow_arena_destroy(arena));
	EXPECT_TRUE(is_found(self->dev, block, NULL, 0));
	ASSERT_EQ(0, tow_region_find(self->dev, addr + HUGE, &arenas, &offset, &bytes));
	EXPECT_EQ(HUGE, bytes);
	EXPECT_EQ(0, tow_region_destroy(region));
	EXPECT_TRUE(is_found(self->dev, addr, NULL, 0));
}

/* ---- persistent regions ---- */

/* Makes a persistent region, writes into it, and dies without a word. */
static pid_t start_owner(const char *name, int *ready)
{
	struct tow_region *region;
	struct tow_device *dev;
	int ends[2];
	char *addr;
	pid_t child;

	if (pipe2(ends, O_CLOEXEC))
		return -1;
	child = fork();
	if (child) {
		close(ends[1]);
		*ready = ends[0];
		return child;
	}
	if (tow_device_open(tow_test_device(), 0, &dev) ||
	    create(dev, 2 * HUGE, name, TOW_REGION_PERSISTENT, &region) ||
	    tow_region_map(region, 0, 0, RW, (void **)&addr))
		_exit(1);
	snprintf(addr + HUGE, 32, "contents of %s", name);
	if (write(ends[1], "r", 1) != 1)
		_exit(1);
	for (;;)
		pause();
}

static bool owner_is_ready(int ready)
{
	char byte;
	bool is = read(ready, &byte, 1) == 1;

	close(ready);
	return is;
}

TEST_F(region, attach_after_the_owner_was_killed)
{
	struct tow_region *region = NULL;
	struct tow_region_info info;
	int status, ready;
	char *addr;
	pid_t owner = start_owner("weights", &ready);

	ASSERT_LT(0, owner);
	ASSERT_TRUE(owner_is_ready(ready));
	EXPECT_EQ(-ENOENT, tow_region_attach(self->dev, "others", 0, &region));
	EXPECT_EQ(-EBUSY, tow_region_attach(self->dev, "weights", 0, &region));
	EXPECT_EQ(-EEXIST, create(self->dev, 1, "weights", TOW_REGION_PERSISTENT, &region));
	EXPECT_EQ(NULL, region);
	ASSERT_EQ(0, kill(owner, SIGKILL));
	ASSERT_EQ(owner, waitpid(owner, &status, 0));
	EXPECT_EQ(-EEXIST, create(self->dev, 1, "weights", TOW_REGION_PERSISTENT, &region));

	ASSERT_EQ(0, tow_region_attach(self->dev, "weights", 7, &region));
	ASSERT_EQ(0, tow_region_map(region, 0, 0, RW, (void **)&addr));
	EXPECT_STREQ("contents of weights", addr + HUGE);
	EXPECT_TRUE(is_found(self->dev, addr + HUGE, region, HUGE));
	ASSERT_EQ(0, info_of(region, &info));
	EXPECT_EQ(TOW_REGION_PERSISTENT, info.flags);
	EXPECT_EQ(getpid(), info.pid);
	EXPECT_EQ(7, info.linger_s);
	EXPECT_EQ(0, tow_region_destroy(region));
	/* Destroyed is destroyed. */
	region = NULL;
	EXPECT_EQ(-ENOENT, tow_region_attach(self->dev, "weights", 0, &region));
	EXPECT_EQ(NULL, region);
}

TEST_F(region, a_released_one_lingers_when_the_client_ends)
{
	struct tow_region *region, *after = NULL;
	struct tow_device *second;
	void *addr;

	ASSERT_EQ(0, tow_device_open(tow_test_device(), 0, &second));
	ASSERT_EQ(0, create(second, SMALL, "state", TOW_REGION_PERSISTENT, &region));
	ASSERT_EQ(0, tow_region_map(region, 0, 0, RW, &addr));
	((char *)addr)[0] = 's';
	tow_region_release(region);
	EXPECT_EQ(0, mapped_at(addr));
	EXPECT_EQ(-EBUSY, tow_region_attach(self->dev, "state", 0, &after));
	tow_device_close(second);
	ASSERT_EQ(0, tow_region_attach(self->dev, "state", 0, &after));
	ASSERT_EQ(0, tow_region_map(after, 0, 0, RW, &addr));
	EXPECT_EQ('s', ((char *)addr)[0]);
	EXPECT_EQ(0, tow_region_destroy(after));
}

TEST_F(region, jobs_have_names_of_their_own)
{
	static const uint8_t other_key[TOW_JOB_KEY_BYTES] = { 1 };
	struct tow_region *region, *found = NULL;
	uint8_t key[TOW_JOB_KEY_BYTES];
	struct tow_region_info info;
	struct tow_device *in_job = NULL;

	for (size_t i = 0; i < sizeof(key); i++)
		key[i] = (uint8_t)i;
	ASSERT_EQ(0, setenv("TOW_JOB", KEY "0", 1));
	EXPECT_EQ(-EINVAL, tow_device_open(tow_test_device(), 0, &in_job));
	ASSERT_EQ(0, setenv("TOW_JOB", KEY, 1));
	ASSERT_EQ(0, tow_device_open(tow_test_device(), 0, &in_job));
	EXPECT_EQ(0, tow_job_join(in_job, key));
	EXPECT_EQ(-EBUSY, tow_job_join(in_job, other_key));

	ASSERT_EQ(0, create(in_job, SMALL, "mine", TOW_REGION_PERSISTENT, &region));
	ASSERT_EQ(0, info_of(region, &info));
	EXPECT_FALSE(all_zero(info.job_id, sizeof(info.job_id)));
	EXPECT_EQ(-ENOENT, tow_region_attach(self->dev, "mine", 0, &found));
	EXPECT_EQ(0, tow_job_join(self->dev, key));
	EXPECT_EQ(-EBUSY, tow_region_attach(self->dev, "mine", 0, &found));
	EXPECT_EQ(0, tow_region_destroy(region));
	tow_device_close(in_job);
}

/* ---- asking ---- */

TEST_F(region, info)
{
	struct tow_region_info info = { .size = 0 };
	struct tow_region *region;

	ASSERT_EQ(0, create(self->dev, 3 * HUGE - 1, "named", 0, &region));
	EXPECT_EQ(-EINVAL, tow_region_info(region, &info));
	info.size = 5000;
	EXPECT_EQ(-EINVAL, tow_region_info(region, &info));
	EXPECT_EQ(-EINVAL, tow_region_info(region, NULL));
	memset(&info, 0xff, sizeof(info));
	ASSERT_EQ(0, info_of(region, &info));
	EXPECT_EQ(sizeof(info), info.size);
	EXPECT_EQ(0, info.flags);
	EXPECT_EQ(3 * HUGE - 1, info.bytes);
	EXPECT_EQ(3 * HUGE, info.map_bytes);
	EXPECT_EQ(3 * HUGE, info.charged_bytes);
	EXPECT_EQ(3, info.slabs);
	EXPECT_EQ(6, info.mrs);
	EXPECT_EQ(getuid(), info.uid);
	EXPECT_EQ(getpid(), info.pid);
	EXPECT_EQ(1, info.fds);
	EXPECT_STREQ("named", info.name);
	EXPECT_TRUE(all_zero(info.job_id, sizeof(info.job_id)));
	EXPECT_EQ(0, tow_region_destroy(region));
}

/* How many of a list are called so; every entry is looked at. */
static int count_named(const struct tow_regions *list, const char *name)
{
	struct tow_region_info info;
	uint64_t last = 0;
	int count = 0;

	for (size_t i = 0; i < tow_region_list_count(list); i++) {
		info.size = sizeof(info);
		if (tow_region_list_entry(list, i, &info) || info.size != sizeof(info) ||
		    (i && info.id <= last) || info.handle)
			return -1;
		last = info.id;
		count += strcmp(info.name, name) == 0;
	}
	return count;
}

/* More than fit into the first call. */
#define MANY 100

TEST_F(region, list)
{
	struct tow_region *regions[MANY];
	struct tow_region_info info = { .size = sizeof(info) };
	struct tow_regions *list = NULL;

	for (int i = 0; i < MANY; i++)
		ASSERT_EQ(0, create(self->dev, 1, i % 2 ? "odd" : "even", 0, &regions[i]));
	ASSERT_EQ(0, tow_region_list_get(self->dev, 0, &list));
	EXPECT_EQ(MANY / 2, count_named(list, "odd"));
	EXPECT_EQ(MANY / 2, count_named(list, "even"));
	EXPECT_EQ(-EINVAL, tow_region_list_entry(list, tow_region_list_count(list), &info));
	info.size = 8;
	EXPECT_EQ(-EINVAL, tow_region_list_entry(list, 0, &info));
	tow_region_list_free(list);

	for (int i = 0; i < MANY; i++)
		ASSERT_EQ(0, tow_region_destroy(regions[i]));
	ASSERT_EQ(0, tow_region_list_get(self->dev, TOW_LIST_ALL, &list));
	EXPECT_EQ(0, count_named(list, "odd"));
	tow_region_list_free(list);
	list = NULL;
	EXPECT_EQ(-EINVAL, tow_region_list_get(self->dev, 1U << 31, &list));
	EXPECT_EQ(NULL, list);
}

/* nobody, who is in the group rdma: sees his own, and not everybody's. */
static int list_as_group(void *arg)
{
	struct tow_regions *list;
	struct tow_device *dev;
	int ret;

	(void)arg;
	ret = tow_device_open(tow_test_device(), 0, &dev);
	if (ret)
		return ret;
	if (tow_region_list_get(dev, TOW_LIST_ALL, &list) != -EPERM)
		return -EILSEQ;
	ret = tow_region_list_get(dev, 0, &list);
	if (ret)
		return ret;
	ret = tow_region_list_count(list) ? -EEXIST : 0;
	tow_region_list_free(list);
	tow_device_close(dev);
	return ret;
}

TEST_F(region, a_user_lists_his_own)
{
	struct tow_region *region;

	ASSERT_EQ(0, chown(tow_test_path(), 0, tow_rdma_group()));
	ASSERT_EQ(0, chmod(tow_test_path(), 0660));
	ASSERT_EQ(0, tow_region_create(self->dev, 1, NULL, &region));
	EXPECT_EQ(0, tow_as(TOW_GROUP, list_as_group, NULL));
	EXPECT_EQ(0, tow_region_destroy(region));
}

/* ---- what runs out ---- */

TEST_F(region, each_shortage_has_its_error)
{
	struct tow_region *region = NULL;
	struct rlimit files = { 3, 3 };

	EXPECT_EQ(-ENOSPC, tow_region_create(self->dev, 1024 * MIB, NULL, &region));
	EXPECT_EQ(NULL, region);
	ASSERT_EQ(0, tow_sysfs_put("client_bytes_limit", "2m"));
	EXPECT_EQ(-EDQUOT, tow_region_create(self->dev, HUGE + 1, NULL, &region));
	EXPECT_EQ(NULL, region);
	EXPECT_EQ(0, tow_region_create(self->dev, HUGE, NULL, &region));
	ASSERT_EQ(0, tow_sysfs_put("client_bytes_limit", "max"));
	EXPECT_EQ(0, tow_region_destroy(region));

	region = NULL;
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &files));
	EXPECT_EQ(-EMFILE, tow_region_create(self->dev, 1, NULL, &region));
	EXPECT_EQ(NULL, region);
}

/* ---- threads ---- */

struct many {
	struct tow_device *dev;
	int failures;
};

static int map_once(struct tow_device *dev, int round)
{
	struct tow_region *region;
	char *addr;
	int ret;

	ret = tow_region_create(dev, round % 2 ? SMALL : HUGE, NULL, &region);
	if (ret)
		return ret;
	ret = tow_region_map(region, 0, 0, RW, (void **)&addr);
	if (!ret) {
		if (addr[0] || (!(round % 2) && (uintptr_t)addr % HUGE))
			ret = -EILSEQ;
		addr[0] = 1;
		if (!ret && round % 3)
			ret = tow_region_unmap(region, addr, 0);
	}
	return tow_region_destroy(region) ? -EIO : ret;
}

static void *map_many(void *arg)
{
	struct many *many = arg;

	for (int i = 0; i < ROUNDS; i++)
		if (map_once(many->dev, i))
			__atomic_add_fetch(&many->failures, 1, __ATOMIC_RELAXED);
	return NULL;
}

TEST_F(region, threads_with_one_device)
{
	struct many many = { .dev = self->dev };
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, map_many, &many));
	for (int i = 0; i < THREADS; i++)
		ASSERT_EQ(0, pthread_join(threads[i], NULL));
	EXPECT_EQ(0, many.failures);
}

/* ---- the device goes ---- */

TEST_F(region, a_device_that_goes_away)
{
	struct tow_region *region, *later = NULL;
	struct tow_region_info info;
	struct tow_device *again;
	/* Looked up while the device is there. */
	const char *interface = tow_link_interface(), *name = tow_test_device();
	char *addr;
	int fd;

	ASSERT_EQ(0, tow_region_create(self->dev, HUGE, NULL, &region));
	ASSERT_EQ(0, tow_region_map(region, 0, 0, RW, (void **)&addr));
	ASSERT_EQ(0, tow_region_fd(region, 0, &fd));
	addr[5] = 'k';
	ASSERT_TRUE(tow_link_del(name));
	EXPECT_EQ('k', addr[5]);
	addr[5] = 'l';
	EXPECT_EQ(-ENODEV, info_of(region, &info));
	EXPECT_EQ(-ENODEV, tow_region_create(self->dev, 1, NULL, &later));
	EXPECT_EQ(-ENODEV, tow_job_join(self->dev, (const uint8_t *)KEY));

	ASSERT_TRUE(tow_link_restore(name, interface));
	ASSERT_EQ(0, tow_device_open(name, 0, &again));
	EXPECT_EQ(-EXDEV, tow_region_from_fd(again, fd, &later));
	EXPECT_EQ(NULL, later);
	EXPECT_EQ('l', addr[5]);
	tow_device_close(again);
	EXPECT_EQ(0, close(fd));
	EXPECT_EQ(-ENODEV, tow_region_destroy(region));
	EXPECT_EQ(0, mapped_at(addr));
}

TEST_HARNESS_MAIN
