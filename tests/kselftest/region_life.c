// SPDX-License-Identifier: GPL-2.0
/*
 * How long a region's memory lives: mappings, descriptors, children, users it
 * was passed to, the end of the process in every way, the end of the device.
 * region_reuse.c says whose the memory is afterwards.
 */

#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "tow_test.h"
#include "tow_hotplug.h"
#include "tow_identity.h"
#include "tow_region.h"

#define POOL_SLABS	4
#define POOL_BYTES	(POOL_SLABS * TOW_SLAB)

/* Seeds of stamps: who wrote. */
enum { FIRST = 1, SECOND, THIRD };

FIXTURE(life)
{
	struct tow_knobs before;
	char name[NAME_MAX + 1];
	char interface[64];
	int fd;
	size_t page;
};

FIXTURE_SETUP(life)
{
	/* Looked up while the device is there: the later calls remember. */
	snprintf(self->name, sizeof(self->name), "%s", tow_test_device());
	snprintf(self->interface, sizeof(self->interface), "%s", tow_link_interface());
	tow_knobs_save(&self->before);
	ASSERT_EQ(0, tow_pool_fresh(POOL_BYTES));
	self->page = (size_t)sysconf(_SC_PAGESIZE);
	self->fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, self->fd)
		TH_LOG("%s: %s", tow_test_path(), strerror(-self->fd));
}

FIXTURE_TEARDOWN_PARENT(life)
{
	EXPECT_TRUE(tow_link_restore(self->name, self->interface))
		TH_LOG("%s does not come back", self->name);
	EXPECT_TRUE(tow_pool_unused())
		TH_LOG("regions of a process that has ended are still there");
	EXPECT_EQ(0, tow_knobs_restore(&self->before));
}

/* ---- mappings --------------------------------------------------------------- */

TEST_F(life, whole_and_part_many_times)
{
	size_t offset = TOW_SLAB + 5 * self->page, bytes = TOW_SLAB;
	struct tow_mapped whole;
	char *again, *part, *small;
	int status;
	pid_t child;

	ASSERT_EQ(0, tow_mapped_make(self->fd, 3 * TOW_SLAB, &whole));
	tow_fill(whole.at, whole.bytes, FIRST);
	again = tow_region_map(whole.made.fd, whole.bytes, PROT_READ | PROT_WRITE);
	ASSERT_NE(MAP_FAILED, (void *)again);
	EXPECT_EQ(0, tow_differs(again, whole.bytes, FIRST));
	/* Across a slab's end, from the middle. */
	part = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, whole.made.fd,
		    (off_t)offset);
	ASSERT_NE(MAP_FAILED, (void *)part);
	EXPECT_EQ(0, memcmp(part, whole.at + offset, bytes));
	part[bytes - 1] = 77;
	EXPECT_EQ(77, again[offset + bytes - 1]);
	/* The last page alone. */
	small = mmap(NULL, self->page, PROT_READ, MAP_SHARED, whole.made.fd,
		     (off_t)(whole.bytes - self->page));
	ASSERT_NE(MAP_FAILED, (void *)small);
	EXPECT_EQ(0, memcmp(small, whole.at + whole.bytes - self->page, self->page));
	/* A process of its own, with a mapping of its own. */
	child = fork();
	if (!child) {
		char *theirs = tow_region_map(whole.made.fd, whole.bytes,
					      PROT_READ | PROT_WRITE);

		if (theirs == MAP_FAILED || theirs[offset + bytes - 1] != 77)
			_exit(1);
		theirs[0] = 78;
		_exit(0);
	}
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ(78, whole.at[0]);
	munmap(small, self->page);
	munmap(part, bytes);
	munmap(again, whole.bytes);
	EXPECT_EQ(0, tow_mapped_end(&whole));
	EXPECT_TRUE(tow_pool_unused());
}

TEST_F(life, small_regions_too)
{
	struct tow_mapped small, other;

	ASSERT_EQ(0, tow_mapped_make(self->fd, TOW_SMALL_REGION, &small));
	ASSERT_EQ(0, tow_mapped_make(self->fd, 1, &other));
	ASSERT_EQ(TOW_SMALL_REGION, small.bytes);
	ASSERT_EQ(TOW_SMALL_SLAB, other.bytes);
	EXPECT_TRUE(tow_is_zero(small.at, small.bytes));
	EXPECT_TRUE(tow_is_zero(other.at, other.bytes));
	tow_fill(small.at, small.bytes, FIRST);
	tow_fill(other.at, other.bytes, SECOND);
	EXPECT_EQ(0, tow_differs(small.at, small.bytes, FIRST));
	EXPECT_EQ(0, tow_differs(other.at, other.bytes, SECOND));
	EXPECT_EQ(0, tow_mapped_end(&small));
	EXPECT_EQ(0, tow_differs(other.at, other.bytes, SECOND));
	EXPECT_EQ(0, tow_mapped_end(&other));
}

static int map_error(int fd, size_t bytes, int protection, int flags, off_t offset)
{
	void *at = mmap(NULL, bytes, protection, flags, fd, offset);

	if (at == MAP_FAILED)
		return -errno;
	munmap(at, bytes);
	return 0;
}

TEST_F(life, nothing_beyond_the_end)
{
	struct tow_region_create made;
	int rw = PROT_READ | PROT_WRITE;

	ASSERT_EQ(0, tow_region_create(self->fd, 1, &made));
	EXPECT_EQ(0, map_error(made.fd, TOW_SMALL_SLAB, rw, MAP_SHARED, 0));
	EXPECT_EQ(-EINVAL, map_error(made.fd, TOW_SMALL_SLAB + 1, rw, MAP_SHARED, 0));
	EXPECT_EQ(-EINVAL, map_error(made.fd, TOW_SMALL_SLAB, rw, MAP_SHARED,
				     (off_t)self->page));
	EXPECT_EQ(-EINVAL, map_error(made.fd, self->page, rw, MAP_SHARED, TOW_SMALL_SLAB));
	EXPECT_GT(0, map_error(made.fd, self->page, rw, MAP_SHARED,
			       (off_t)(INT64_MAX & ~(self->page - 1))));
	/* Neither longer nor shorter, and no bytes by read and write. */
	EXPECT_EQ(-1, ftruncate(made.fd, 2 * TOW_SLAB));
	EXPECT_EQ(-1, pwrite(made.fd, "x", 1, 0));
	EXPECT_EQ(0, tow_region_end(self->fd, &made));
}

/* A private mapping would copy what it writes, unseen by the device. */
TEST_F(life, private_mappings_are_refused)
{
	struct tow_region_create made;
	int readonly;

	ASSERT_EQ(0, tow_region_create(self->fd, TOW_SLAB, &made));
	readonly = tow_region_fd(self->fd, made.handle, TOW_REGION_READONLY);
	ASSERT_LE(0, readonly);
	EXPECT_EQ(-EINVAL, map_error(made.fd, TOW_SLAB, PROT_READ | PROT_WRITE, MAP_PRIVATE, 0));
	EXPECT_EQ(-EINVAL, map_error(made.fd, TOW_SLAB, PROT_READ, MAP_PRIVATE, 0));
	EXPECT_EQ(-EINVAL, map_error(readonly, TOW_SLAB, PROT_READ, MAP_PRIVATE, 0));
	EXPECT_GT(0, map_error(readonly, TOW_SLAB, PROT_READ | PROT_WRITE, MAP_PRIVATE, 0));
	close(readonly);
	EXPECT_EQ(0, tow_region_end(self->fd, &made));
}

/* Only the mapping is left, and it is enough. */
TEST_F(life, mapping_outlives_handle_and_descriptors)
{
	struct tow_mapped mapped;

	ASSERT_EQ(0, tow_mapped_make(self->fd, 2 * TOW_SLAB, &mapped));
	tow_fill(mapped.at, TOW_SLAB, FIRST);
	EXPECT_EQ(0, tow_region_end(self->fd, &mapped.made));
	close(self->fd);
	EXPECT_EQ(0, tow_differs(mapped.at, TOW_SLAB, FIRST));
	/* This half is touched for the first time. */
	EXPECT_TRUE(tow_is_zero(mapped.at + TOW_SLAB, TOW_SLAB));
	tow_fill(mapped.at, mapped.bytes, SECOND);
	EXPECT_EQ(0, tow_differs(mapped.at, mapped.bytes, SECOND));
	EXPECT_EQ(2 * TOW_SLAB, tow_sysfs_get("pool_used_bytes"));
	ASSERT_EQ(0, munmap(mapped.at, mapped.bytes));
	EXPECT_TRUE(tow_pool_unused());
}

TEST_F(life, mremap)
{
	struct tow_mapped mapped;
	char *room, *moved;

	ASSERT_EQ(0, tow_mapped_make(self->fd, 2 * TOW_SLAB, &mapped));
	tow_fill(mapped.at, mapped.bytes, FIRST);
	room = mmap(NULL, 4 * TOW_SLAB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)room);
	moved = mremap(mapped.at, mapped.bytes, mapped.bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
		       room + self->page);
	ASSERT_EQ(room + self->page, moved);
	EXPECT_EQ(0, tow_differs(moved, mapped.bytes, FIRST));
	tow_fill(moved, mapped.bytes, SECOND);
	EXPECT_EQ(MAP_FAILED, mremap(moved, mapped.bytes, mapped.bytes + self->page,
				     MREMAP_MAYMOVE));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_EQ(MAP_FAILED, mremap(moved, mapped.bytes, mapped.bytes + self->page, 0));
	/* A part moves, the rest stays. */
	ASSERT_EQ(moved - self->page, mremap(moved, self->page, self->page,
					     MREMAP_MAYMOVE | MREMAP_FIXED, moved - self->page));
	EXPECT_EQ(0, tow_differs(moved - self->page, self->page, SECOND));
	EXPECT_EQ(tow_stamp(SECOND, self->page), *(uint64_t *)(moved + self->page));
	/* Shorter: what is left is unharmed. */
	ASSERT_EQ(moved + self->page, mremap(moved + self->page, mapped.bytes - self->page,
					     self->page, 0));
	EXPECT_EQ(tow_stamp(SECOND, self->page), *(uint64_t *)(moved + self->page));
	munmap(room, 4 * TOW_SLAB);
	munmap(moved, mapped.bytes);
	EXPECT_EQ(0, tow_region_end(self->fd, &mapped.made));
	EXPECT_TRUE(tow_pool_unused());
}

TEST_F(life, partial_munmap)
{
	struct tow_mapped mapped;
	char *again;

	ASSERT_EQ(0, tow_mapped_make(self->fd, 2 * TOW_SLAB, &mapped));
	tow_fill(mapped.at, mapped.bytes, FIRST);
	EXPECT_EQ(0, tow_region_end(self->fd, &mapped.made));
	/* Out of the middle of what may be one huge mapping. */
	ASSERT_EQ(0, munmap(mapped.at + 10 * self->page, 3 * self->page));
	EXPECT_EQ(0, tow_differs(mapped.at, 10 * self->page, FIRST));
	EXPECT_EQ(tow_stamp(FIRST, 13 * self->page), *(uint64_t *)(mapped.at + 13 * self->page));
	/* The hole can be filled with something else. */
	again = mmap(mapped.at + 10 * self->page, 3 * self->page, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	ASSERT_EQ(mapped.at + 10 * self->page, again);
	EXPECT_TRUE(tow_is_zero(again, 3 * self->page));
	munmap(again, 3 * self->page);
	munmap(mapped.at, 10 * self->page);
	EXPECT_EQ(2 * TOW_SLAB, tow_sysfs_get("pool_used_bytes"));
	munmap(mapped.at + 13 * self->page, TOW_SLAB - 13 * self->page);
	EXPECT_EQ(tow_stamp(FIRST, TOW_SLAB), *(uint64_t *)(mapped.at + TOW_SLAB));
	/* One page keeps the region. */
	munmap(mapped.at + TOW_SLAB, TOW_SLAB - self->page);
	EXPECT_EQ(2 * TOW_SLAB, tow_sysfs_get("pool_used_bytes"));
	EXPECT_EQ(tow_stamp(FIRST, 2 * TOW_SLAB - self->page),
		  *(uint64_t *)(mapped.at + 2 * TOW_SLAB - self->page));
	munmap(mapped.at + 2 * TOW_SLAB - self->page, self->page);
	EXPECT_TRUE(tow_pool_unused());
}

TEST_F(life, advice_forgets_nothing)
{
	int advice[] = { MADV_DONTNEED, MADV_FREE, MADV_REMOVE, MADV_COLD, MADV_PAGEOUT };
	struct tow_mapped mapped;
	size_t i;

	ASSERT_EQ(0, tow_mapped_make(self->fd, TOW_SLAB, &mapped));
	tow_fill(mapped.at, mapped.bytes, FIRST);
	ASSERT_EQ(0, madvise(mapped.at, mapped.bytes, MADV_DONTNEED));
	EXPECT_EQ(0, tow_differs(mapped.at, mapped.bytes, FIRST));
	ASSERT_EQ(0, madvise(mapped.at + 4 * self->page, self->page, MADV_DONTNEED));
	EXPECT_EQ(0, tow_differs(mapped.at, mapped.bytes, FIRST));
	/* Those that are not for such memory may be refused. */
	for (i = 0; i < ARRAY_SIZE(advice); i++) {
		madvise(mapped.at, mapped.bytes, advice[i]);
		EXPECT_EQ(0, tow_differs(mapped.at, mapped.bytes, FIRST))
			TH_LOG("advice %d", advice[i]);
	}
	/* Protection comes and goes, the contents do not. */
	ASSERT_EQ(0, mprotect(mapped.at + self->page, self->page, PROT_NONE));
	ASSERT_EQ(0, mprotect(mapped.at + self->page, self->page, PROT_READ | PROT_WRITE));
	EXPECT_EQ(0, tow_differs(mapped.at, mapped.bytes, FIRST));
	EXPECT_EQ(0, tow_mapped_end(&mapped));
}

static long minor_faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt;
}

/* Bytes that smaps says are mapped 2 MiB at a time, at an address. */
static size_t huge_mapped(const void *at)
{
	char line[256];
	unsigned long start, kilobytes;
	bool here = false;
	size_t sum = 0;
	FILE *smaps = fopen("/proc/self/smaps", "re");

	while (smaps && fgets(line, sizeof(line), smaps)) {
		if (sscanf(line, "%lx-%*x %*4c", &start) == 1 && strchr(line, '-'))
			here = start == (unsigned long)at;
		else if (here && (sscanf(line, "FilePmdMapped: %lu", &kilobytes) == 1 ||
				  sscanf(line, "ShmemPmdMapped: %lu", &kilobytes) == 1))
			sum += kilobytes << 10;
	}
	if (smaps)
		fclose(smaps);
	return sum;
}

/* Memory that was a file's, far from its beginning, is free next. */
static int leave_numbers(void)
{
	int fd = memfd_create("numbers", MFD_CLOEXEC);
	int ret = fd < 0 || fallocate(fd, 0, 1LL << 40, 64 * TOW_SLAB) ? -errno : 0;

	if (fd >= 0)
		close(fd);
	return ret;
}

/* One fault maps a whole slab, whoever had the memory, and the kernel says so. */
TEST_F(life, slabs_are_mapped_at_once)
{
	struct tow_mapped mapped;
	long before, after;
	volatile char *at;
	size_t offset;

	ASSERT_EQ(0, tow_sysfs_put("pool_bytes", "0"));
	ASSERT_EQ(0, leave_numbers());
	ASSERT_EQ(0, tow_pool_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_mapped_make(self->fd, 2 * TOW_SLAB, &mapped));
	at = mapped.at;
	at[0] = 1;
	before = minor_faults();
	for (offset = 0; offset < TOW_SLAB; offset += self->page)
		at[offset] = 1;
	after = minor_faults();
	EXPECT_GT(16, after - before)
		TH_LOG("%ld faults in %llu pages", after - before, TOW_SLAB / self->page);
	EXPECT_EQ(TOW_SLAB, huge_mapped(mapped.at));
	EXPECT_EQ(0, tow_mapped_end(&mapped));
}

/* In KiB, of ours. */
static long resident_files(void)
{
	FILE *file = fopen("/proc/self/status", "re");
	long kib = -1;
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		sscanf(line, "RssFile: %ld", &kib);
	if (file)
		fclose(file);
	return kib;
}

/* Nobody gets it back by killing us, but this is what killers look at. */
TEST_F(life, counts_as_resident)
{
	struct tow_mapped mapped;
	long before;

	ASSERT_EQ(0, tow_mapped_make(self->fd, 2 * TOW_SLAB, &mapped));
	before = resident_files();
	tow_fill(mapped.at, mapped.bytes, FIRST);
	EXPECT_LE((long)(2 * TOW_SLAB / 1024), resident_files() - before);
	EXPECT_EQ(0, tow_mapped_end(&mapped));
}

/* ---- core dumps ------------------------------------------------------------- */

#define CORE	"/tmp/tow_core"

/* The bytes of the dump of a process with memory of the pool. */
static long dump(const char *filter, bool advised)
{
	const struct rlimit any = { RLIM_INFINITY, RLIM_INFINITY };
	struct tow_mapped mapped;
	struct stat core;
	int status;
	pid_t child;

	unlink(CORE);
	child = fork();
	if (!child) {
		int fd = tow_test_open(O_RDWR);

		if (setrlimit(RLIMIT_CORE, &any) ||
		    (filter && tow_write_file("/proc/self/coredump_filter", filter)) ||
		    tow_mapped_make(fd, 2 * TOW_SLAB, &mapped))
			_exit(1);
		tow_fill(mapped.at, mapped.bytes, FIRST);
		if (advised && madvise(mapped.at, mapped.bytes, MADV_DONTDUMP))
			_exit(2);
		signal(SIGABRT, SIG_DFL);
		abort();
	}
	if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status) || stat(CORE, &core))
		return -1;
	unlink(CORE);
	/* Not what is left out as a hole. */
	return core.st_blocks * 512L;
}

TEST_F_TIMEOUT(life, core_dumps_leave_it_out, 60)
{
	char pattern[256];

	if (access("/proc/sys/kernel/core_pattern", F_OK))
		SKIP(return, "this kernel dumps no core");
	tow_test_read_line("/proc/sys/kernel/core_pattern", pattern, sizeof(pattern));
	ASSERT_EQ(0, tow_write_file("/proc/sys/kernel/core_pattern", CORE));
	EXPECT_GT((long)TOW_SLAB, dump(NULL, false));
	EXPECT_LT((long)(2 * TOW_SLAB), dump("0x3b", false));
	EXPECT_GT((long)TOW_SLAB, dump("0x3b", true));
	EXPECT_EQ(0, tow_write_file("/proc/sys/kernel/core_pattern", pattern));
}

/* ---- other processes -------------------------------------------------------- */

/* A pair of ends for two processes to wait for each other. */
static void tell(int end)
{
	if (write(end, "1", 1) != 1)
		_exit(9);
}

static bool hear(int end)
{
	char byte;

	return read(end, &byte, 1) == 1;
}

TEST_F(life, fork_shares)
{
	struct tow_mapped mapped;
	int ends[2], status;
	pid_t child;

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
	ASSERT_EQ(0, tow_mapped_make(self->fd, TOW_SLAB, &mapped));
	tow_fill(mapped.at, mapped.bytes, FIRST);
	child = fork();
	if (!child) {
		close(ends[0]);
		if (tow_differs(mapped.at, mapped.bytes, FIRST))
			_exit(1);
		tow_fill(mapped.at, mapped.bytes, SECOND);
		tell(ends[1]);
		if (!hear(ends[1]))
			_exit(2);
		/* The parent has given everything up. */
		_exit(tow_differs(mapped.at, mapped.bytes, THIRD) ? 3 : 0);
	}
	close(ends[1]);
	ASSERT_TRUE(hear(ends[0]));
	EXPECT_EQ(0, tow_differs(mapped.at, mapped.bytes, SECOND));
	tow_fill(mapped.at, mapped.bytes, THIRD);
	EXPECT_EQ(0, tow_mapped_end(&mapped));
	close(self->fd);
	EXPECT_EQ(TOW_SLAB, tow_sysfs_get("pool_used_bytes"));
	tell(ends[0]);
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_TRUE(tow_pool_unused());
}

static int send_fd(int socket, int fd)
{
	char space[CMSG_SPACE(sizeof(int))] = "", byte = 0;
	struct iovec part = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1,
		.msg_control = space, .msg_controllen = sizeof(space),
	};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	return sendmsg(socket, &message, 0) == 1 ? 0 : -errno;
}

static int receive_fd(int socket)
{
	char space[CMSG_SPACE(sizeof(int))] = "", byte = 0;
	struct iovec part = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1,
		.msg_control = space, .msg_controllen = sizeof(space),
	};
	struct cmsghdr *header;
	int fd = -1;

	if (recvmsg(socket, &message, 0) != 1)
		return -1;
	header = CMSG_FIRSTHDR(&message);
	if (header)
		memcpy(&fd, CMSG_DATA(header), sizeof(fd));
	return fd;
}

/* Nobody, who may not open the device, is given a region. */
static int use_passed_region(void *arg)
{
	int fd = receive_fd(*(int *)arg);
	char *at;

	if (fd < 0)
		return -1;
	if (tow_test_open(O_RDWR) != -EACCES)
		return -2;
	at = tow_region_map(fd, TOW_SLAB, PROT_READ | PROT_WRITE);
	if (at == MAP_FAILED)
		return -3;
	if (tow_differs(at, TOW_SLAB, FIRST))
		return -4;
	tow_fill(at, TOW_SLAB, SECOND);
	close(fd);
	return 0;
}

static int refuse_passed_readonly(void *arg)
{
	int fd = receive_fd(*(int *)arg);
	char *at, path[64];

	if (fd < 0)
		return -1;
	if (map_error(fd, TOW_SLAB, PROT_READ | PROT_WRITE, MAP_SHARED, 0) != -EACCES)
		return -2;
	at = mmap(NULL, TOW_SLAB, PROT_READ, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED || tow_differs(at, TOW_SLAB, SECOND))
		return -3;
	if (!mprotect(at, TOW_SLAB, PROT_READ | PROT_WRITE) || errno != EACCES)
		return -4;
	/* No way around it: the file cannot be opened anew for writing. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (open(path, O_RDWR | O_CLOEXEC) >= 0)
		return -5;
	return 0;
}

TEST_F(life, passed_to_another_user)
{
	struct tow_mapped mapped;
	int ends[2], readonly;

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
	ASSERT_EQ(0, tow_mapped_make(self->fd, TOW_SLAB, &mapped));
	tow_fill(mapped.at, mapped.bytes, FIRST);
	ASSERT_EQ(0, send_fd(ends[0], mapped.made.fd));
	EXPECT_EQ(0, tow_as(TOW_NOBODY, use_passed_region, &ends[1]));
	EXPECT_EQ(0, tow_differs(mapped.at, mapped.bytes, SECOND));
	readonly = tow_region_fd(self->fd, mapped.made.handle, TOW_REGION_READONLY);
	ASSERT_LE(0, readonly);
	ASSERT_EQ(0, send_fd(ends[0], readonly));
	EXPECT_EQ(0, tow_as(TOW_NOBODY, refuse_passed_readonly, &ends[1]));
	close(readonly);

	/* In flight in a socket that nobody reads any more, it still holds. */
	ASSERT_EQ(0, send_fd(ends[0], mapped.made.fd));
	EXPECT_EQ(0, tow_mapped_end(&mapped));
	EXPECT_EQ(TOW_SLAB, tow_sysfs_get("pool_used_bytes"));
	close(ends[0]);
	close(ends[1]);
	EXPECT_TRUE(tow_pool_unused());
}

TEST_F(life, readonly_descriptor)
{
	struct tow_mapped mapped;
	int readonly, memory, program;
	char path[64];
	char *at;

	ASSERT_EQ(0, tow_mapped_make(self->fd, TOW_SLAB, &mapped));
	tow_fill(mapped.at, mapped.bytes, FIRST);
	readonly = tow_region_fd(self->fd, mapped.made.handle, TOW_REGION_READONLY);
	ASSERT_LE(0, readonly);
	EXPECT_EQ(-EACCES, map_error(readonly, TOW_SLAB, PROT_READ | PROT_WRITE, MAP_SHARED, 0));
	EXPECT_EQ(-EACCES, map_error(readonly, TOW_SLAB, PROT_WRITE, MAP_SHARED, 0));
	at = tow_region_map(readonly, TOW_SLAB, PROT_READ);
	ASSERT_NE(MAP_FAILED, (void *)at);
	EXPECT_EQ(0, tow_differs(at, TOW_SLAB, FIRST));
	EXPECT_EQ(-1, mprotect(at, self->page, PROT_READ | PROT_WRITE));
	EXPECT_EQ(EACCES, errno);
	/* Not even a debugger may. */
	memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	ASSERT_LE(0, memory);
	EXPECT_EQ(-1, pwrite(memory, "x", 1, (off_t)(uintptr_t)at));
	close(memory);
	/* Neither does the kernel, on a user's behalf. */
	program = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	EXPECT_EQ(-1, pread(program, at, 1, 0));
	EXPECT_EQ(EFAULT, errno);
	close(program);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", readonly);
	EXPECT_EQ(-1, open(path, O_RDWR | O_CLOEXEC));
	/* The other descriptors are as they were, and what they write is seen. */
	tow_fill(mapped.at, mapped.bytes, SECOND);
	EXPECT_EQ(0, tow_differs(at, TOW_SLAB, SECOND));
	munmap(at, TOW_SLAB);
	close(readonly);
	EXPECT_EQ(0, tow_mapped_end(&mapped));
}

/* ---- how a process can end --------------------------------------------------- */

/* In a child: some regions, mapped, then killed while it touches them. */
static void live_and_be_killed(int end)
{
	struct tow_mapped large, small;
	int fd = tow_test_open(O_RDWR);

	if (fd < 0 || tow_mapped_make(fd, 2 * TOW_SLAB, &large) || tow_mapped_make(fd, 1, &small))
		_exit(1);
	tell(end);
	for (;;) {
		tow_fill(large.at, large.bytes, FIRST);
		tow_fill(small.at, small.bytes, FIRST);
	}
}

TEST_F_TIMEOUT(life, killed_with_mapped_regions, 3600)
{
	int count = tow_test_count(100);
	int ends[2], status, i;
	pid_t child;

	for (i = 0; i < count; i++) {
		/* New ones each time: of a child that fails the end is heard. */
		ASSERT_EQ(0, pipe2(ends, O_CLOEXEC));
		child = fork();
		if (!child)
			live_and_be_killed(ends[1]);
		close(ends[1]);
		ASSERT_TRUE(hear(ends[0]))
			TH_LOG("round %d: it could not have its regions", i);
		close(ends[0]);
		ASSERT_EQ(0, kill(child, SIGKILL));
		ASSERT_EQ(child, waitpid(child, &status, 0));
		ASSERT_TRUE(WIFSIGNALED(status))
			TH_LOG("round %d: it ended by itself", i);
	}
	EXPECT_TRUE(tow_pool_unused());
	EXPECT_EQ(POOL_BYTES, tow_sysfs_get("pool_bytes"));
	EXPECT_EQ(0, tow_sysfs_wait("stats/regions", 0));
}

/* The opener dies, a child of its holds everything. */
TEST_F(life, opener_dies_before_its_child)
{
	struct tow_region_create made, refused;
	int ends[2], status;
	pid_t opener;

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
	opener = fork();
	if (!opener) {
		int fd = tow_test_open(O_RDWR);

		if (fd < 0 || tow_region_create(fd, TOW_SLAB, &made))
			_exit(1);
		if (fork()) {
			/* The handle was all there was, beside the child's files. */
			_exit(0);
		}
		/* Only after the opener is gone for good. */
		if (!hear(ends[1]))
			_exit(2);
		status = tow_region_query(fd, made.handle, &(struct tow_region_info){ 0 });
		if (status != -ENOENT || tow_region_create(fd, 1, &refused) != -EPERM)
			_exit(write(ends[1], "f", 1) != 1);
		/* The descriptor still holds the memory. */
		if (tow_sysfs_get("pool_used_bytes") != TOW_SLAB)
			_exit(write(ends[1], "u", 1) != 1);
		close(made.fd);
		_exit(write(ends[1], tow_pool_unused() ? "o" : "n", 1) != 1);
	}
	close(self->fd);
	close(ends[1]);
	ASSERT_EQ(opener, waitpid(opener, &status, 0));
	ASSERT_EQ(0, status);
	tell(ends[0]);
	status = 0;
	ASSERT_EQ(1, read(ends[0], &status, 1));
	EXPECT_EQ('o', status)
		TH_LOG("%c: f: the client lives on, u: the memory is gone, n: it stays", status);
}

/* The new program inherits the file; the client has ended all the same. */
TEST_F(life, exec_ends_the_client)
{
	struct tow_region_create made;
	int ends[2], status;
	pid_t child;

	ASSERT_EQ(0, pipe(ends));
	child = fork();
	if (!child) {
		int fd = tow_test_open(O_RDWR);

		if (fd < 0 || tow_region_create(fd, TOW_SLAB, &made) ||
		    fcntl(fd, F_SETFD, 0))
			_exit(1);
		dup2(ends[0], 0);
		close(ends[1]);
		execlp("cat", "cat", NULL);
		_exit(2);
	}
	close(ends[0]);
	/* It sits in read(2): with the device's file, without the region. */
	for (int tries = 0; tries < 1000; tries++) {
		char path[64], comm[32];

		snprintf(path, sizeof(path), "/proc/%d/comm", child);
		tow_test_read_line(path, comm, sizeof(comm));
		if (!strcmp(comm, "cat"))
			break;
		tow_test_sleep_ms(10);
	}
	EXPECT_TRUE(tow_pool_unused());
	EXPECT_EQ(0, kill(child, 0));
	close(ends[1]);
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, status);
}

#define MANY_HANDLES	1000

/*
 * Look at the handles in the order in which their end comes, each until it has
 * come: 0, or the errno of anything but that.
 */
static int watch_the_end(int fd, const uint64_t *handles, int end)
{
	struct tow_region_info info;
	int i, ret;

	tell(end);
	for (i = 0; i < MANY_HANDLES; i++) {
		while (!(ret = tow_region_query(fd, handles[i], &info)))
			;
		if (ret != -ENOENT)
			return -ret;
	}
	return 0;
}

/* In a child: a client with many handles, that ends while its own child looks. */
static int end_while_watched(int ends[2])
{
	uint64_t handles[MANY_HANDLES];
	struct tow_region_create made;
	int fd = tow_test_open(O_RDWR), i;
	char wrong;

	if (fd < 0 || tow_region_create(fd, 1, &made))
		return 1;
	for (i = 0; i < MANY_HANDLES; i++)
		if (tow_region_from_fd(fd, made.fd, &handles[i]))
			return 2;
	if (!fork()) {
		/* Its end is the pipe's. */
		close(ends[0]);
		wrong = (char)watch_the_end(fd, handles, ends[1]);
		return wrong && write(ends[1], &wrong, 1) != 1;
	}
	close(ends[1]);
	return hear(ends[0]) ? 0 : 4;
}

/*
 * Whoever has the file may look at handles, also while they end: what is seen
 * is there, or is not.  The debug kernels see it if it is neither.
 */
TEST_F_TIMEOUT(life, watched_while_the_client_ends, 3600)
{
	int count = tow_test_count(25), ends[2], status, i;
	char wrong;
	pid_t opener;

	ASSERT_EQ(0, tow_sysfs_set("client_region_limit", MANY_HANDLES + 1));
	for (i = 0; i < count; i++) {
		ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
		opener = fork();
		if (!opener)
			_exit(end_while_watched(ends));
		close(ends[1]);
		ASSERT_EQ(opener, waitpid(opener, &status, 0));
		ASSERT_EQ(0, status);
		/* Until its child has ended: nothing, or what was wrong. */
		ASSERT_EQ(0, read(ends[0], &wrong, 1))
			TH_LOG("round %d: %s", i, strerror(wrong));
		close(ends[0]);
	}
	EXPECT_EQ(0, tow_sysfs_wait("stats/regions", 0));
}

static void *open_in_thread(void *arg)
{
	*(int *)arg = tow_test_open(O_RDWR);
	return NULL;
}

/* What children do with their copies of the file ends nothing. */
TEST_F(life, client_outlives_its_children_and_threads)
{
	struct tow_region_create made;
	struct tow_region_info info;
	char true_name[] = "true", *arguments[] = { true_name, NULL };
	int status, fd = -1;
	pthread_t thread;
	pid_t child;

	ASSERT_EQ(0, tow_region_create(self->fd, 1, &made));
	child = fork();
	if (!child)
		_exit(close(self->fd));
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, tow_region_query(self->fd, made.handle, &info));
	/* Shares our memory until it executes. */
	ASSERT_EQ(0, posix_spawnp(&child, "true", NULL, NULL, arguments, environ));
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, tow_region_query(self->fd, made.handle, &info));
	EXPECT_EQ(0, tow_region_end(self->fd, &made));
	/* The process opened it, not the thread. */
	ASSERT_EQ(0, pthread_create(&thread, NULL, open_in_thread, &fd));
	pthread_join(thread, NULL);
	ASSERT_LE(0, fd);
	EXPECT_EQ(0, tow_region_create(fd, 1, &made));
	EXPECT_EQ(0, tow_region_end(fd, &made));
	close(fd);
}

/* ---- the end of the device ---------------------------------------------------- */

TEST_F_TIMEOUT(life, mappings_outlive_the_device, 120)
{
	struct tow_mapped mapped, untouched, small;
	struct tow_region_info info;
	uint64_t handle;
	int fd, status;
	pid_t child;

	ASSERT_EQ(0, tow_mapped_make(self->fd, TOW_SLAB, &mapped));
	ASSERT_EQ(0, tow_mapped_make(self->fd, TOW_SLAB, &untouched));
	ASSERT_EQ(0, tow_mapped_make(self->fd, 1, &small));
	tow_fill(mapped.at, mapped.bytes, FIRST);
	tow_fill(small.at, small.bytes, SECOND);
	ASSERT_TRUE(tow_link_del(self->name));
	EXPECT_EQ(-ENODEV, tow_region_query(self->fd, mapped.made.handle, &info));
	EXPECT_EQ(-ENODEV, tow_region_destroy(self->fd, mapped.made.handle));
	EXPECT_EQ(0, tow_differs(mapped.at, mapped.bytes, FIRST));
	EXPECT_EQ(0, tow_differs(small.at, small.bytes, SECOND));
	/* Faults still work: here the first one, there again. */
	EXPECT_TRUE(tow_is_zero(untouched.at, untouched.bytes));
	ASSERT_EQ(0, madvise(mapped.at, mapped.bytes, MADV_DONTNEED));
	EXPECT_EQ(0, tow_differs(mapped.at, mapped.bytes, FIRST));
	tow_fill(mapped.at, mapped.bytes, THIRD);
	child = fork();
	if (!child)
		_exit(tow_differs(mapped.at, mapped.bytes, THIRD) ? 1 : 0);
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, status);
	/* The file goes, too: only mappings and descriptors are left. */
	close(self->fd);
	EXPECT_EQ(0, tow_differs(mapped.at, mapped.bytes, THIRD));
	EXPECT_EQ(-1, syscall(SYS_delete_module, "towline", O_NONBLOCK));
	EXPECT_EQ(EWOULDBLOCK, errno);

	/* The device's next life has nothing to do with this one's memory. */
	ASSERT_TRUE(tow_link_restore(self->name, self->interface));
	ASSERT_EQ(0, tow_pool_fresh(POOL_BYTES));
	fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, fd);
	EXPECT_EQ(-EXDEV, tow_region_from_fd(fd, mapped.made.fd, &handle));
	EXPECT_EQ(0, tow_sysfs_get("pool_used_bytes"));
	EXPECT_EQ(0, tow_differs(mapped.at, mapped.bytes, THIRD));
	close(mapped.made.fd);
	close(untouched.made.fd);
	close(small.made.fd);
	EXPECT_EQ(0, tow_differs(mapped.at, mapped.bytes, THIRD));
	munmap(mapped.at, mapped.bytes);
	munmap(untouched.at, untouched.bytes);
	munmap(small.at, small.bytes);
	close(fd);
}

TEST_HARNESS_MAIN
