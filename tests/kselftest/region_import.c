// SPDX-License-Identifier: GPL-2.0
/*
 * Regions of memory that is not the pool's: the process's own, and dma-bufs.
 * What can be pinned and what not, what it counts against, and that all of it
 * is given back.
 */
/* build: also 32-bit */

#include <glob.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "tow_test.h"
#include "tow_hotplug.h"
#include "tow_identity.h"
#include "tow_region.h"

#define POOL_BYTES	(4 * TOW_SLAB)

FIXTURE(import)
{
	struct tow_knobs before;
	char name[NAME_MAX + 1];
	char interface[64];
	int fd;
	size_t page;
	char *memory;
	size_t bytes;
};

FIXTURE_SETUP(import)
{
	/* Looked up while the device is there: the later calls remember. */
	snprintf(self->name, sizeof(self->name), "%s", tow_test_device());
	snprintf(self->interface, sizeof(self->interface), "%s", tow_link_interface());
	tow_knobs_save(&self->before);
	ASSERT_EQ(0, tow_pool_fresh(POOL_BYTES));
	ASSERT_EQ(0, chmod(tow_test_path(), 0666));
	self->fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, self->fd);
	self->page = (size_t)sysconf(_SC_PAGESIZE);
	self->bytes = 64 * self->page;
	self->memory = mmap(NULL, self->bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)self->memory);
}

FIXTURE_TEARDOWN_PARENT(import)
{
	EXPECT_TRUE(tow_link_restore(self->name, self->interface))
		TH_LOG("%s does not come back", self->name);
	EXPECT_EQ(0, tow_sysfs_wait("stats/regions", 0))
		TH_LOG("imports of a process that has ended are still there");
	EXPECT_EQ(0, tow_knobs_restore(&self->before));
	EXPECT_EQ(0, chmod(tow_test_path(), 0600));
}

/* Pages that are pinned on this process's account. */
static long pinned_pages(pid_t pid)
{
	long kilobytes = -1;
	char path[64], line[128];
	FILE *status;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	status = fopen(path, "re");
	while (status && fgets(line, sizeof(line), status)) {
		if (!strncmp(line, "VmPin:", 6))
			kilobytes = strtol(line + 6, NULL, 10);
	}
	if (status)
		fclose(status);
	return kilobytes < 0 ? -1 : kilobytes * 1024 / sysconf(_SC_PAGESIZE);
}

/* What all of the kernel has pinned now. */
static long long pins(void)
{
	unsigned long long value;
	long long sum = 0;
	char line[128], name[64];
	FILE *vmstat;

	/* What each processor has counted by itself is added up now. */
	tow_write_file("/proc/sys/vm/stat_refresh", "1");
	vmstat = fopen("/proc/vmstat", "re");
	while (vmstat && fgets(line, sizeof(line), vmstat)) {
		if (sscanf(line, "%63s %llu", name, &value) != 2)
			continue;
		if (!strcmp(name, "nr_foll_pin_acquired"))
			sum += (long long)value;
		else if (!strcmp(name, "nr_foll_pin_released"))
			sum -= (long long)value;
	}
	if (vmstat)
		fclose(vmstat);
	return sum;
}

/* Pinned pages of a process, after a while: dropped a little later, perhaps. */
static long wait_pinned(pid_t pid, long wanted)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	long seen;

	while ((seen = pinned_pages(pid)) != wanted && tow_patient(&patience))
		tow_test_sleep_ms(10);
	return seen;
}

static long long wait_pins(long long wanted)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	long long seen;

	while ((seen = pins()) != wanted && tow_patient(&patience))
		tow_test_sleep_ms(10);
	return seen;
}

/* ---- the process's own memory -------------------------------------------------------- */

TEST_F(import, whole_pages)
{
	struct tow_region_info info;
	uint64_t handle;
	long long before = pins();

	ASSERT_EQ(0, tow_region_import(self->fd, self->memory, self->bytes, 0, &handle));
	ASSERT_EQ(0, tow_region_query(self->fd, handle, &info));
	EXPECT_EQ(TOW_REGION_USER_MEMORY, info.flags);
	EXPECT_EQ(self->bytes, info.bytes);
	EXPECT_EQ(0, info.map_bytes);
	EXPECT_EQ(self->bytes, info.charged_bytes);
	EXPECT_LE(1, info.mrs);
	EXPECT_EQ(0, info.fds);
	EXPECT_EQ(64, pinned_pages(getpid()));
	EXPECT_EQ(before + 64, pins());
	/* It has no descriptor, and none can be made. */
	EXPECT_EQ(-EOPNOTSUPP, tow_region_fd(self->fd, handle, 0));
	EXPECT_EQ(-EOPNOTSUPP, tow_region_fd(self->fd, handle, TOW_REGION_READONLY));
	/* The process goes on using it. */
	tow_fill(self->memory, self->bytes, 1);
	EXPECT_EQ(0, tow_differs(self->memory, self->bytes, 1));
	EXPECT_EQ(0, tow_region_destroy(self->fd, handle));
	EXPECT_EQ(0, wait_pinned(getpid(), 0));
	EXPECT_EQ(before, wait_pins(before));
	EXPECT_EQ(0, tow_differs(self->memory, self->bytes, 1));
	/* Nothing of the pool was touched. */
	EXPECT_EQ(0, tow_sysfs_get("pool_used_bytes"));
}

/* From any byte to any byte: what is pinned, and counted, is whole pages. */
TEST_F(import, unaligned)
{
	struct {
		size_t offset, bytes, pages;
	} cases[] = {
		{ 0, 1, 1 }, { 1, 1, 1 }, { self->page - 1, 1, 1 }, { self->page - 1, 2, 2 },
		{ 1, self->page, 2 }, { 17, 2 * self->page - 17, 2 },
		{ 17, 2 * self->page - 16, 3 }, { 3, 10 * self->page, 11 },
	};
	struct tow_region_info info;
	uint64_t handle;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		ASSERT_EQ(0, tow_region_import(self->fd, self->memory + cases[i].offset,
					       cases[i].bytes, 0, &handle))
			TH_LOG("case %zu", i);
		ASSERT_EQ(0, tow_region_query(self->fd, handle, &info));
		EXPECT_EQ(cases[i].bytes, info.bytes);
		EXPECT_EQ(cases[i].pages * self->page, info.charged_bytes)
			TH_LOG("case %zu", i);
		EXPECT_EQ((long)cases[i].pages, pinned_pages(getpid()));
		EXPECT_EQ(0, tow_region_destroy(self->fd, handle));
		EXPECT_EQ(0, wait_pinned(getpid(), 0));
	}
}

/* The same memory several times: each pins it, each is charged. */
TEST_F(import, overlapping)
{
	uint64_t first, second;

	ASSERT_EQ(0, tow_region_import(self->fd, self->memory, self->bytes, 0, &first));
	ASSERT_EQ(0, tow_region_import(self->fd, self->memory + self->page, self->page, 0,
				       &second));
	EXPECT_NE(first, second);
	EXPECT_EQ(65, pinned_pages(getpid()));
	EXPECT_EQ(0, tow_region_destroy(self->fd, first));
	EXPECT_EQ(1, wait_pinned(getpid(), 1));
	EXPECT_EQ(0, tow_region_destroy(self->fd, second));
	EXPECT_EQ(0, wait_pinned(getpid(), 0));
}

/*
 * A region's pages are let go a little after it has ended, as soon as no peer
 * can reach them.
 */
static bool nothing_pinned(void)
{
	return !wait_pinned(getpid(), 0);
}

static int import_error(int fd, const void *at, uint64_t bytes, uint32_t flags)
{
	uint64_t handle;
	int ret = tow_region_import(fd, at, bytes, flags, &handle);

	return ret ? ret : tow_region_destroy(fd, handle);
}

static int import_at(int fd, uint64_t address, uint64_t bytes)
{
	struct tow_region_import_user call = {
		.size = sizeof(call), .address = address, .bytes = bytes,
	};
	int ret = tow_test_ioctl(fd, TOW_IOCTL_REGION_IMPORT_USER, &call);

	return ret ? ret : tow_region_destroy(fd, call.handle);
}

TEST_F(import, read_only_memory)
{
	uint64_t handle;
	struct tow_region_info info;

	tow_fill(self->memory, self->bytes, 1);
	ASSERT_EQ(0, mprotect(self->memory, self->bytes, PROT_READ));
	EXPECT_EQ(-EFAULT, import_error(self->fd, self->memory, self->bytes, 0));
	ASSERT_EQ(0, tow_region_import(self->fd, self->memory, self->bytes,
				       TOW_REGION_READONLY, &handle));
	ASSERT_EQ(0, tow_region_query(self->fd, handle, &info));
	EXPECT_EQ(TOW_REGION_READONLY | TOW_REGION_USER_MEMORY, info.flags);
	EXPECT_EQ(0, tow_region_destroy(self->fd, handle));
	/* One page of many is enough to refuse, and nothing stays pinned. */
	ASSERT_EQ(0, mprotect(self->memory, self->bytes, PROT_READ | PROT_WRITE));
	ASSERT_EQ(0, mprotect(self->memory + self->bytes - self->page, self->page, PROT_READ));
	EXPECT_EQ(-EFAULT, import_error(self->fd, self->memory, self->bytes, 0));
	ASSERT_EQ(0, mprotect(self->memory + self->page, self->page, PROT_NONE));
	EXPECT_EQ(-EFAULT, import_error(self->fd, self->memory, self->bytes,
					TOW_REGION_READONLY));
	EXPECT_EQ(0, wait_pinned(getpid(), 0));
}

/*
 * Memory that was imported for reading before the program first touched it is
 * the memory that it writes to afterwards, and no copy: of its own pages, and of
 * a file's in a private mapping.
 */
TEST_F(import, read_only_follows_what_is_written)
{
	char *text = mmap(NULL, self->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE,
			  open("/proc/self/exe", O_RDONLY | O_CLOEXEC), 0);
	char *places[] = { self->memory, text };
	uint64_t before[4], after[4], handle;
	size_t i, offset;

	ASSERT_NE(MAP_FAILED, (void *)text);
	for (i = 0; i < ARRAY_SIZE(places); i++) {
		ASSERT_EQ(0, tow_region_import(self->fd, places[i], 4 * self->page,
					       TOW_REGION_READONLY, &handle));
		ASSERT_TRUE(tow_frames_of(places[i], 4, before));
		for (offset = 0; offset < 4 * self->page; offset += self->page)
			places[i][offset]++;
		ASSERT_TRUE(tow_frames_of(places[i], 4, after));
		EXPECT_EQ(0, memcmp(before, after, sizeof(before)))
			TH_LOG("case %zu: page 0x%llx became 0x%llx", i,
			       (unsigned long long)before[0], (unsigned long long)after[0]);
		EXPECT_EQ(0, tow_region_destroy(self->fd, handle));
	}
	EXPECT_TRUE(nothing_pinned());
	munmap(text, self->bytes);
}

static int export_error(int fd, uint64_t region, uint64_t bytes, uint32_t rights)
{
	struct tow_export call = {
		.size = sizeof(call), .region = region, .bytes = bytes, .rights = rights,
		.name_bytes = 6, .name = "import",
	};
	struct tow_unexport end = { .size = sizeof(end) };
	int ret = tow_test_ioctl(fd, TOW_IOCTL_EXPORT, &call);

	end.handle = call.handle;
	return ret ? ret : tow_test_ioctl(fd, TOW_IOCTL_UNEXPORT, &end);
}

/* No peer may write what was imported for reading, by whatever right. */
TEST_F(import, read_only_is_exported_for_reading)
{
	const uint32_t beyond[] = {
		TOW_RIGHT_WRITE, TOW_RIGHT_READ | TOW_RIGHT_WRITE,
		TOW_RIGHT_WRITE | TOW_RIGHT_ATOMIC,
		TOW_RIGHT_READ | TOW_RIGHT_WRITE | TOW_RIGHT_ATOMIC,
	};
	uint64_t readonly, handle;
	size_t i;

	ASSERT_EQ(0, tow_region_import(self->fd, self->memory, self->bytes,
				       TOW_REGION_READONLY, &readonly));
	ASSERT_EQ(0, tow_region_import(self->fd, self->memory, self->bytes, 0, &handle));
	for (i = 0; i < ARRAY_SIZE(beyond); i++) {
		EXPECT_EQ(-EACCES, export_error(self->fd, readonly, self->bytes, beyond[i]))
			TH_LOG("rights %u", beyond[i]);
	}
	EXPECT_EQ(0, export_error(self->fd, readonly, self->bytes, TOW_RIGHT_READ));
	EXPECT_EQ(0, export_error(self->fd, handle, self->bytes, TOW_RIGHT_WRITE));
	EXPECT_EQ(0, tow_region_destroy(self->fd, readonly));
	EXPECT_EQ(0, tow_region_destroy(self->fd, handle));
	EXPECT_TRUE(nothing_pinned());
}

TEST_F(import, memory_that_is_not_there)
{
	char *end = self->memory + self->bytes;

	ASSERT_EQ(0, munmap(end - self->page, self->page));
	EXPECT_EQ(-EFAULT, import_error(self->fd, NULL, 1, 0));
	EXPECT_EQ(-EFAULT, import_error(self->fd, end - self->page, 1, 0));
	EXPECT_EQ(-EFAULT, import_error(self->fd, self->memory, self->bytes, 0));
	EXPECT_EQ(-EFAULT, import_error(self->fd, end - self->page - 1, 2, 0));
	EXPECT_EQ(0, import_error(self->fd, end - self->page - 1, 1, 0));
	EXPECT_EQ(0, wait_pinned(getpid(), 0));
#if ULONG_MAX > UINT_MAX
	/* The kernel's own. */
	EXPECT_EQ(-EFAULT, import_at(self->fd, 0xffff888000000000, 4096));
	EXPECT_EQ(-EFAULT, import_at(self->fd, 0xffffffff81000000, 1));
	EXPECT_EQ(-EFAULT, import_at(self->fd, 0x8000000000000000, 1));
#endif
}

/* A page of memory that some device of this machine has, or MAP_FAILED. */
static void *device_memory(void)
{
	void *at = MAP_FAILED;
	glob_t files;
	size_t i;
	int file;

	if (glob("/sys/bus/pci/devices/*/resource[0-9]", 0, NULL, &files))
		return MAP_FAILED;
	for (i = 0; i < files.gl_pathc && at == MAP_FAILED; i++) {
		file = open(files.gl_pathv[i], O_RDWR | O_CLOEXEC);
		if (file < 0)
			continue;
		at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
		close(file);
	}
	globfree(&files);
	return at;
}

/* What drivers map need not be memory, and is none here. */
TEST_F(import, memory_of_a_device)
{
	void *at = device_memory();

	ASSERT_NE(MAP_FAILED, at);
	EXPECT_EQ(-EFAULT, import_error(self->fd, at, 1, 0));
	EXPECT_EQ(-EFAULT, import_error(self->fd, at, 1, TOW_REGION_READONLY));
	EXPECT_EQ(0, wait_pinned(getpid(), 0));
	munmap(at, 4096);
}

TEST_F(import, impossible_ranges)
{
	uint64_t start = (uintptr_t)self->memory;

	EXPECT_EQ(-EINVAL, import_at(self->fd, start, 0));
	EXPECT_EQ(-EINVAL, import_at(self->fd, start, ~0ULL));
	EXPECT_EQ(-EINVAL, import_at(self->fd, start, 0 - start + 1));
	EXPECT_EQ(-EINVAL, import_at(self->fd, ~0ULL, 2));
	EXPECT_EQ(-EINVAL, import_at(self->fd, ~0ULL - 4095, 4097));
	/* The last byte of all is the kernel's, but the sum does not wrap. */
	EXPECT_GT(0, import_at(self->fd, ~0ULL, 1));
	/* Too much, without wrapping: one of the errors, and the machine lives. */
	EXPECT_GT(0, import_at(self->fd, 4096, 1ULL << 46));
	EXPECT_GT(0, import_at(self->fd, start, 1ULL << 40));
	EXPECT_GT(0, import_at(self->fd, start, 1ULL << 62));
	EXPECT_EQ(0, wait_pinned(getpid(), 0));
}

static int make_file(size_t bytes)
{
	char path[] = "/tmp/region-import-XXXXXX";
	int file = mkstemp(path);

	if (file < 0 || ftruncate(file, (off_t)bytes))
		return -1;
	unlink(path);
	return file;
}

TEST_F(import, memory_of_files)
{
	int file = make_file(self->bytes), shm = memfd_create("import", MFD_CLOEXEC);
	int rw = PROT_READ | PROT_WRITE;
	char *at, *program;

	ASSERT_LE(0, file);
	ASSERT_EQ(0, ftruncate(shm, (off_t)self->bytes));
	/* A private mapping: what is pinned is the process's copy. */
	at = mmap(NULL, self->bytes, rw, MAP_PRIVATE, file, 0);
	ASSERT_NE(MAP_FAILED, (void *)at);
	EXPECT_EQ(0, import_error(self->fd, at, self->bytes, 0));
	munmap(at, self->bytes);
	/* Shared memory without a disk behind it, to read and to write. */
	at = mmap(NULL, self->bytes, rw, MAP_SHARED, shm, 0);
	ASSERT_NE(MAP_FAILED, (void *)at);
	EXPECT_EQ(0, import_error(self->fd, at, self->bytes, 0));
	/* The file is shorter than its mapping now. */
	ASSERT_EQ(0, ftruncate(shm, (off_t)self->page));
	EXPECT_EQ(-EFAULT, import_error(self->fd, at, self->bytes, 0));
	EXPECT_EQ(0, import_error(self->fd, at, self->page, 0));
	munmap(at, self->bytes);
	/* A program's own text: to read only. */
	program = mmap(NULL, self->page, PROT_READ, MAP_PRIVATE,
		       open("/proc/self/exe", O_RDONLY | O_CLOEXEC), 0);
	ASSERT_NE(MAP_FAILED, (void *)program);
	EXPECT_EQ(-EFAULT, import_error(self->fd, program, self->page, 0));
	EXPECT_EQ(0, import_error(self->fd, program, self->page, TOW_REGION_READONLY));
	EXPECT_EQ(0, wait_pinned(getpid(), 0));
	close(file);
	close(shm);
}

/* Pages of the pool are ordinary memory: whoever maps them may. */
TEST_F(import, memory_of_regions)
{
	struct tow_region_create made;
	char *at;

	ASSERT_EQ(0, tow_region_create(self->fd, TOW_SLAB, &made));
	at = tow_region_map(made.fd, TOW_SLAB, PROT_READ | PROT_WRITE);
	ASSERT_NE(MAP_FAILED, (void *)at);
	EXPECT_EQ(0, import_error(self->fd, at + 5, TOW_SLAB - 5, 0));
	munmap(at, TOW_SLAB);
	EXPECT_EQ(0, tow_region_end(self->fd, &made));
	EXPECT_TRUE(tow_pool_unused());
}

/* The kernel has as many as it finds room for, which is in pieces after other tests. */
static bool have_huge_pages(const char *wanted)
{
	char count[16] = "";
	int tries;

	for (tries = 0; tries < 5 && strcmp(count, wanted); tries++) {
		if (tries)
			tow_write_file("/proc/sys/vm/compact_memory", "1");
		if (tow_write_file("/proc/sys/vm/nr_hugepages", wanted))
			return false;
		tow_test_read_line("/proc/sys/vm/nr_hugepages", count, sizeof(count));
	}
	return !strcmp(count, wanted);
}

TEST_F(import, huge_pages)
{
	char *at;

	EXPECT_TRUE(have_huge_pages("2"));
	at = mmap(NULL, 2 * TOW_SLAB, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	EXPECT_NE(MAP_FAILED, (void *)at);
	if (at != MAP_FAILED) {
		EXPECT_EQ(0, import_error(self->fd, at, 2 * TOW_SLAB, 0));
		EXPECT_EQ(0, import_error(self->fd, at + 4097, TOW_SLAB, 0));
		munmap(at, 2 * TOW_SLAB);
	}
	EXPECT_TRUE(nothing_pinned());
	EXPECT_EQ(0, tow_write_file("/proc/sys/vm/nr_hugepages", "0"));
}

/* Unmapped, forked, replaced: the region keeps the pages it was made of. */
TEST_F(import, memory_goes_first)
{
	struct tow_region_info info;
	uint64_t handle;
	int status;
	pid_t child;

	ASSERT_EQ(0, tow_region_import(self->fd, self->memory, self->bytes, 0, &handle));
	child = fork();
	if (!child) {
		self->memory[0] = 1;
		_exit(0);
	}
	ASSERT_EQ(child, waitpid(child, &status, 0));
	ASSERT_EQ(0, munmap(self->memory, self->bytes));
	ASSERT_EQ(0, tow_region_query(self->fd, handle, &info));
	EXPECT_EQ(self->bytes, info.bytes);
	EXPECT_EQ(64, pinned_pages(getpid()));
	EXPECT_EQ(0, tow_region_destroy(self->fd, handle));
	EXPECT_EQ(0, wait_pinned(getpid(), 0));
}

/* ---- limits ------------------------------------------------------------------------------ */

/* As somebody without CAP_IPC_LOCK: exactly the limit, and a page more. */
static int import_up_to_memlock(void *arg)
{
	FIXTURE_DATA(import) *self = arg;
	struct rlimit limit = { 8 * self->page, 8 * self->page };
	uint64_t first, second;
	int fd = tow_test_open(O_RDWR);

	if (fd < 0 || setrlimit(RLIMIT_MEMLOCK, &limit))
		return -1;
	if (import_error(fd, self->memory, 9 * self->page, 0) != -ENOMEM)
		return -2;
	if (import_error(fd, self->memory + 1, 8 * self->page, 0) != -ENOMEM)
		return -3;
	if (tow_region_import(fd, self->memory, 8 * self->page, 0, &first))
		return -4;
	if (import_error(fd, self->memory, 1, 0) != -ENOMEM)
		return -5;
	if (tow_region_destroy(fd, first) || wait_pinned(getpid(), 0))
		return -6;
	if (tow_region_import(fd, self->memory, 5 * self->page, 0, &first) ||
	    tow_region_import(fd, self->memory, 3 * self->page, 0, &second))
		return -7;
	if (import_error(fd, self->memory, 1, TOW_REGION_READONLY) != -ENOMEM)
		return -8;
	/* The end of the file is the end of the pins. */
	close(fd);
	if (wait_pinned(getpid(), 0))
		return -9;
	return 0;
}

TEST_F(import, memlock)
{
	struct rlimit none = { 0, 0 };
	long long before = pins();

	EXPECT_EQ(0, tow_as(TOW_NOBODY, import_up_to_memlock, self))
		TH_LOG("see the numbers in import_up_to_memlock()");
	EXPECT_EQ(before, wait_pins(before));
	/* Who has CAP_IPC_LOCK has no such limit, but the pages are counted. */
	ASSERT_EQ(0, setrlimit(RLIMIT_MEMLOCK, &none));
	EXPECT_EQ(0, import_error(self->fd, self->memory, self->bytes, 0));
}

/* What was just given up can be had at once, though unpinning takes its time. */
TEST_F(import, again_at_once)
{
	long long refusals = tow_sysfs_get("stats/quota_refusals");
	uint64_t handle;
	int i;

	ASSERT_EQ(0, tow_sysfs_set("client_bytes_limit", 10 * self->page));
	for (i = 0; i < 50; i++) {
		ASSERT_EQ(0, tow_region_import(self->fd, self->memory, 10 * self->page, 0,
					       &handle))
			TH_LOG("round %d", i);
		ASSERT_EQ(0, tow_region_destroy(self->fd, handle));
	}
	/* What a second look made good was no refusal. */
	EXPECT_EQ(refusals, tow_sysfs_get("stats/quota_refusals"));
	ASSERT_EQ(0, tow_sysfs_put("client_bytes_limit", "max"));
	EXPECT_TRUE(nothing_pinned());
}

TEST_F(import, quotas)
{
	uint64_t handle, second;
	struct tow_region_info info;

	ASSERT_EQ(0, tow_sysfs_set("client_bytes_limit", 10 * self->page));
	EXPECT_EQ(-EDQUOT, import_error(self->fd, self->memory, 11 * self->page, 0));
	EXPECT_EQ(-EDQUOT, import_error(self->fd, self->memory + 1, 10 * self->page, 0));
	ASSERT_EQ(0, tow_region_import(self->fd, self->memory, 10 * self->page, 0, &handle));
	EXPECT_EQ(-EDQUOT, import_error(self->fd, self->memory, 1, 0));
	ASSERT_EQ(0, tow_region_query(self->fd, handle, &info));
	EXPECT_EQ(0, tow_region_destroy(self->fd, handle));
	EXPECT_TRUE(nothing_pinned());
	EXPECT_EQ(0, import_error(self->fd, self->memory, 10 * self->page, 0));
	EXPECT_TRUE(nothing_pinned());
	ASSERT_EQ(0, tow_sysfs_put("client_bytes_limit", "max"));

	ASSERT_EQ(0, tow_sysfs_set("user_mr_limit", info.mrs));
	ASSERT_EQ(0, tow_region_import(self->fd, self->memory, 1, 0, &handle));
	EXPECT_EQ(-EDQUOT, import_error(self->fd, self->memory, 1, 0));
	ASSERT_EQ(0, tow_sysfs_put("user_mr_limit", "max"));
	ASSERT_EQ(0, tow_sysfs_put("client_region_limit", "1"));
	EXPECT_EQ(-EDQUOT, tow_region_import(self->fd, self->memory, 1, 0, &second));
	EXPECT_EQ(0, tow_region_destroy(self->fd, handle));
	EXPECT_TRUE(nothing_pinned());
	EXPECT_EQ(0, import_error(self->fd, self->memory, 1, 0));
	/* Nothing of what was refused is pinned. */
	EXPECT_EQ(0, wait_pinned(getpid(), 0));
}

/* ---- the end ------------------------------------------------------------------------------- */

TEST_F_TIMEOUT(import, killed, 60)
{
	uint64_t mrs = tow_sysfs_get("mr_used");
	long long before = pins();
	int ends[2], i;

	for (i = 0; i < 10; i++) {
		pid_t child;
		char byte;

		/* New ones each time: of a child that fails the end is heard. */
		ASSERT_EQ(0, pipe2(ends, O_CLOEXEC));
		child = fork();
		if (!child) {
			uint64_t handle;
			int fd = tow_test_open(O_RDWR);
			int ret = tow_region_import(fd, self->memory, self->bytes, 0, &handle);

			_exit(ret || write(ends[1], "1", 1) != 1 || pause());
		}
		close(ends[1]);
		ASSERT_EQ(1, read(ends[0], &byte, 1))
			TH_LOG("round %d: it could not have its region", i);
		close(ends[0]);
		EXPECT_EQ(64, pinned_pages(child));
		kill(child, SIGKILL);
		ASSERT_EQ(child, waitpid(child, NULL, 0));
	}
	EXPECT_EQ(before, wait_pins(before));
	EXPECT_EQ(mrs, tow_sysfs_wait("mr_used", mrs));
}

/* The device goes without waiting for the region, and the region can still end. */
TEST_F_TIMEOUT(import, device_removed, 60)
{
	long long before = pins();
	uint64_t handle;

	tow_fill(self->memory, self->bytes, 1);
	ASSERT_EQ(0, tow_region_import(self->fd, self->memory, self->bytes, 0, &handle));
	ASSERT_TRUE(tow_link_del(self->name));
	EXPECT_EQ(-ENODEV, tow_region_destroy(self->fd, handle));
	EXPECT_EQ(0, tow_differs(self->memory, self->bytes, 1));
	close(self->fd);
	EXPECT_EQ(0, wait_pinned(getpid(), 0));
	EXPECT_EQ(before, wait_pins(before));
}

/* ---- dma-bufs ------------------------------------------------------------------------------- */

static int import_dmabuf(int fd, int dmabuf, uint64_t offset, uint64_t bytes, uint32_t flags)
{
	struct tow_region_import_dmabuf call = {
		.size = sizeof(call), .flags = flags, .fd = dmabuf,
		.offset = offset, .bytes = bytes,
	};
	int ret = tow_test_ioctl(fd, TOW_IOCTL_REGION_IMPORT_DMABUF, &call);

	return ret ? ret : tow_region_destroy(fd, call.handle);
}

/*
 * Software devices reach only the processor's memory.  That may be said before
 * or after the descriptor is looked at; in no case is it taken.  Of devices with DMA
 * there is more in import_dmabuf.c and vgpu.c.
 */
TEST_F(import, dmabufs)
{
	int ends[2], file = memfd_create("import", MFD_CLOEXEC), readonly, ret, works;
	struct tow_region_create made;
	struct tow_query query;
	size_t i;

	ASSERT_EQ(0, tow_test_query(self->fd, &query));
	works = query.features & TOW_FEATURE_VIRT_DMA ? -EOPNOTSUPP : 0;
	ASSERT_EQ(0, pipe2(ends, O_CLOEXEC));
	ASSERT_EQ(0, tow_region_create(self->fd, TOW_SLAB, &made));
	readonly = tow_region_fd(self->fd, made.handle, TOW_REGION_READONLY);
	/* Our own regions are dma-bufs, too. */
	EXPECT_EQ(works, import_dmabuf(self->fd, made.fd, 0, 4096, 0));
	EXPECT_EQ(works, import_dmabuf(self->fd, made.fd, 0, 4096, TOW_REGION_READONLY));
	EXPECT_EQ(works, import_dmabuf(self->fd, readonly, 0, 4096, TOW_REGION_READONLY));
	{
		int wrong[] = { -1, INT_MIN, 1000, file, ends[0], self->fd };

		for (i = 0; i < ARRAY_SIZE(wrong); i++) {
			ret = import_dmabuf(self->fd, wrong[i], 0, 4096, 0);
			EXPECT_TRUE(ret == -EOPNOTSUPP || ret == (i < 3 ? -EBADF : -EINVAL))
				TH_LOG("case %zu: %d", i, ret);
		}
	}
	/* Ranges beyond it, and none. */
	EXPECT_GT(0, import_dmabuf(self->fd, made.fd, 0, 0, 0));
	EXPECT_GT(0, import_dmabuf(self->fd, made.fd, 1, 4096, 0));
	EXPECT_GT(0, import_dmabuf(self->fd, made.fd, TOW_SLAB, 1, 0));
	EXPECT_GT(0, import_dmabuf(self->fd, made.fd, ~0ULL - 4095, 8192, 0));
	close(readonly);
	EXPECT_EQ(0, tow_region_end(self->fd, &made));
	EXPECT_TRUE(tow_pool_unused());
}

TEST_HARNESS_MAIN
