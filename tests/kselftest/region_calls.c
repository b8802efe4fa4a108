// SPDX-License-Identifier: GPL-2.0
/*
 * What all calls about regions have in common: sizes, flags, reserved fields
 * and memory that is not there, by the same rules for each; who may make them;
 * the order of errors.  region_handles.c is about what they say.
 */
/* build: also 32-bit */

#include <sys/stat.h>
#include <sys/wait.h>
#include "tow_test.h"
#include "tow_identity.h"
#define TOW_ONLY_SOFT_ROCE
#include "tow_region.h"

#define KERNEL_MAX	4096U
#define POOL_BYTES	(8 * TOW_SLAB)

FIXTURE(calls)
{
	struct tow_knobs before;
	int fd;
	int looking;			/* O_RDONLY */
	struct tow_region_create region;
	struct tow_region_info list[4];
	size_t page;
	/* Three pages that can be read and written, then one that is not there. */
	unsigned char *area;
	unsigned char *end;
};

FIXTURE_SETUP(calls)
{
	tow_knobs_save(&self->before);
	ASSERT_EQ(0, tow_pool_fresh(POOL_BYTES));
	self->page = (size_t)sysconf(_SC_PAGESIZE);
	self->fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, self->fd)
		TH_LOG("%s: %s", tow_test_path(), strerror(-self->fd));
	self->looking = tow_test_open(O_RDONLY);
	ASSERT_LE(0, self->looking);
	ASSERT_EQ(0, tow_region_create(self->fd, 4096, &self->region));
	self->area = mmap(NULL, 4 * self->page, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)self->area);
	self->end = self->area + 3 * self->page;
	ASSERT_EQ(0, munmap(self->end, self->page));
}

FIXTURE_TEARDOWN_PARENT(calls)
{
	EXPECT_TRUE(tow_pool_unused())
		TH_LOG("regions of a process that has ended are still there");
	EXPECT_EQ(0, tow_knobs_restore(&self->before));
	EXPECT_EQ(0, chmod(tow_test_path(), 0600));
}

/* ---- every call, and a good request of each --------------------------------- */

enum { CREATE, DESTROY, QUERY, LIST, MAKE_FD, FROM_FD, ATTACH, IMPORT_USER, IMPORT_DMABUF, JOIN };

struct call {
	const char *name;
	unsigned long command;
	__u32 published;	/* for ever */
	__u32 size;		/* as this was compiled */
	__u32 flags;		/* that mean something on the way in */
	__u32 reserved;		/* offset of the reserved field; 0: none */
	bool looks;
	bool answers;
};

#define CALL(NAME, PUBLISHED, TYPE) \
	.name = #NAME, .command = TOW_IOCTL_##NAME, .published = (PUBLISHED), \
	.size = sizeof(struct TYPE)

static const struct call calls[] = {
	[CREATE] = { CALL(REGION_CREATE, 104, tow_region_create),
		.flags = TOW_REGION_PERSISTENT, .answers = true },
	[DESTROY] = { CALL(REGION_DESTROY, 16, tow_region_destroy) },
	[QUERY] = { CALL(REGION_QUERY, 168, tow_region_info),
		.reserved = offsetof(struct tow_region_info, reserved), .looks = true,
		.answers = true },
	[LIST] = { CALL(REGION_LIST, 32, tow_region_list),
		.flags = TOW_LIST_ALL, .looks = true, .answers = true },
	[MAKE_FD] = { CALL(REGION_FD, 24, tow_region_fd),
		.flags = TOW_REGION_READONLY, .answers = true,
		.reserved = offsetof(struct tow_region_fd, reserved) },
	[FROM_FD] = { CALL(REGION_FROM_FD, 24, tow_region_from_fd), .answers = true,
		.reserved = offsetof(struct tow_region_from_fd, reserved) },
	[ATTACH] = { CALL(REGION_ATTACH, 104, tow_region_attach) },
	[IMPORT_USER] = { CALL(REGION_IMPORT_USER, 32, tow_region_import_user),
		.flags = TOW_REGION_READONLY, .answers = true },
	[IMPORT_DMABUF] = { CALL(REGION_IMPORT_DMABUF, 40, tow_region_import_dmabuf),
		.flags = TOW_REGION_READONLY,
		.reserved = offsetof(struct tow_region_import_dmabuf, reserved) },
	[JOIN] = { CALL(JOIN, 56, tow_join), .answers = true },
};

/* Room for a request of any length that the kernel takes. */
union request {
	__u32 size;
	unsigned char bytes[2 * KERNEL_MAX];
	struct tow_region_create create;
	struct tow_region_destroy destroy;
	struct tow_region_info info;
	struct tow_region_list list;
	struct tow_region_fd fd;
	struct tow_region_from_fd from_fd;
	struct tow_region_attach attach;
	struct tow_region_import_user import_user;
	struct tow_region_import_dmabuf import_dmabuf;
	struct tow_join join;
};

/*
 * A request that succeeds (or whose refusal shows that it was understood:
 * nothing of that name lingers; software devices take no dma-bufs).
 */
static int prepare(FIXTURE_DATA(calls) *self, size_t call, union request *request)
{
	static int imported = 1;
	struct tow_region_create made;

	memset(request, 0, sizeof(*request));
	request->size = calls[call].size;
	switch (call) {
	case CREATE:
		request->create.bytes = 1;
		request->create.fd = -1;
		return 0;
	case DESTROY:
		/* The handle alone keeps it. */
		if (tow_region_create(self->fd, 1, &made))
			return -EIO;
		close(made.fd);
		request->destroy.handle = made.handle;
		return 0;
	case QUERY:
		request->info.handle = self->region.handle;
		return 0;
	case LIST:
		request->list.entries = (uintptr_t)self->list;
		request->list.entry_size = sizeof(self->list[0]);
		request->list.count = 1;
		return 0;
	case MAKE_FD:
		request->fd.handle = self->region.handle;
		return 0;
	case FROM_FD:
		request->from_fd.fd = self->region.fd;
		return 0;
	case ATTACH:
		strcpy(request->attach.name, "nothing");
		return -ENOENT;
	case IMPORT_USER:
		request->import_user.address = (uintptr_t)&imported;
		request->import_user.bytes = sizeof(imported);
		return 0;
	case IMPORT_DMABUF:
		request->import_dmabuf.fd = self->region.fd;
		request->import_dmabuf.bytes = 1;
		return -EOPNOTSUPP;
	default:
		memset(request->join.job_key, 7, sizeof(request->join.job_key));
		return 0;
	}
}

/* What a request that succeeded has made. */
static int undo(FIXTURE_DATA(calls) *self, size_t call, const union request *request)
{
	switch (call) {
	case CREATE:
		return tow_region_end(self->fd, &request->create);
	case MAKE_FD:
		return close(request->fd.fd) ? -errno : 0;
	case FROM_FD:
		return tow_region_destroy(self->fd, request->from_fd.handle);
	case IMPORT_USER:
		return tow_region_destroy(self->fd, request->import_user.handle);
	default:
		return 0;
	}
}

static int ask(FIXTURE_DATA(calls) *self, size_t call, void *request)
{
	return tow_test_ioctl(self->fd, calls[call].command, request);
}

/* To see that a refusal leaves no descriptor. */
static int count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	while (dir && readdir(dir))
		count++;
	if (dir)
		closedir(dir);
	return count;
}

#define EACH_CALL(CALL)	for ((CALL) = 0; (CALL) < ARRAY_SIZE(calls); (CALL)++)

TEST(published_sizes_never_change)
{
	size_t call;

	EACH_CALL(call) {
		EXPECT_LE(calls[call].published, calls[call].size)
			TH_LOG("%s", calls[call].name);
		EXPECT_EQ(0, calls[call].size % 8);
	}
	EXPECT_EQ(168, sizeof(struct tow_region_info));
}

/* Otherwise no case below shows anything. */
TEST_F(calls, good_requests_are_good)
{
	union request request;
	size_t call;
	int good;

	EACH_CALL(call) {
		good = prepare(self, call, &request);
		ASSERT_EQ(good, ask(self, call, &request))
			TH_LOG("%s", calls[call].name);
		if (calls[call].answers) {
			EXPECT_EQ(calls[call].size, request.size);
		}
		if (!good) {
			EXPECT_EQ(0, undo(self, call, &request));
		}
	}
}

/* ---- sizes ------------------------------------------------------------------ */

TEST_F(calls, short_is_einval)
{
	union request request, before;
	size_t call;
	__u32 size;

	EACH_CALL(call) {
		prepare(self, call, &request);
		for (size = 0; size < calls[call].published; size++) {
			request.size = size;
			before = request;
			EXPECT_EQ(-EINVAL, ask(self, call, &request))
				TH_LOG("%s, size %u", calls[call].name, size);
			EXPECT_EQ(0, memcmp(before.bytes, request.bytes, sizeof(before.bytes)));
		}
	}
}

/* The words behind the size may be missing altogether. */
TEST_F(calls, short_and_huge_read_only_the_size)
{
	unsigned char *at = self->end - sizeof(__u32);
	__u32 huge[] = { KERNEL_MAX + 1, 1U << 20, INT_MAX, 1U << 31, UINT_MAX };
	size_t call, i;
	__u32 size;

	EACH_CALL(call) {
		size = calls[call].published - 1;
		memcpy(at, &size, sizeof(size));
		EXPECT_EQ(-EINVAL, ask(self, call, at))
			TH_LOG("%s", calls[call].name);
		for (i = 0; i < ARRAY_SIZE(huge); i++) {
			memcpy(at, &huge[i], sizeof(size));
			EXPECT_EQ(-E2BIG, ask(self, call, at))
				TH_LOG("%s, size %u", calls[call].name, huge[i]);
		}
	}
}

/* A program of the first header. */
TEST_F(calls, published_size_is_accepted)
{
	union request request;
	size_t call;
	int good;

	EACH_CALL(call) {
		good = prepare(self, call, &request);
		request.size = calls[call].published;
		ASSERT_EQ(good, ask(self, call, &request))
			TH_LOG("%s", calls[call].name);
		EXPECT_EQ(calls[call].published, request.size);
		if (!good) {
			EXPECT_EQ(0, undo(self, call, &request));
		}
	}
}

TEST_F(calls, long_with_zero_tail_is_accepted)
{
	__u32 sizes[] = { 1, 7, 8, 1000, KERNEL_MAX };
	union request request;
	size_t call, i, byte;
	int good;

	EACH_CALL(call) {
		for (i = 0; i < ARRAY_SIZE(sizes); i++) {
			__u32 size = sizes[i] == KERNEL_MAX ? KERNEL_MAX :
				     calls[call].size + sizes[i];

			good = prepare(self, call, &request);
			request.size = size;
			request.bytes[size] = 0xa5;
			ASSERT_EQ(good, ask(self, call, &request))
				TH_LOG("%s, size %u", calls[call].name, size);
			if (calls[call].answers) {
				EXPECT_EQ(calls[call].size, request.size);
			}
			for (byte = calls[call].size; byte < size; byte++) {
				ASSERT_EQ(0, request.bytes[byte])
					TH_LOG("%s: byte %zu written", calls[call].name, byte);
			}
			EXPECT_EQ(0xa5, request.bytes[size]);
			if (!good) {
				EXPECT_EQ(0, undo(self, call, &request));
			}
		}
	}
}

TEST_F(calls, long_with_nonzero_tail_is_e2big)
{
	union request request, before;
	size_t call, byte;

	EACH_CALL(call) {
		prepare(self, call, &request);
		request.size = KERNEL_MAX;
		for (byte = calls[call].size; byte < KERNEL_MAX;
		     byte += byte < calls[call].size + 16 ? 1 : 499) {
			request.bytes[byte] = 1;
			before = request;
			EXPECT_EQ(-E2BIG, ask(self, call, &request))
				TH_LOG("%s, byte %zu", calls[call].name, byte);
			EXPECT_EQ(0, memcmp(before.bytes, request.bytes, sizeof(before.bytes)));
			request.bytes[byte] = 0;
		}
	}
}

/* ---- flags and reserved fields ---------------------------------------------- */

TEST_F(calls, unknown_flags_are_einval)
{
	int fds = count_fds();
	union request request;
	size_t call;
	int bit;

	EACH_CALL(call) {
		prepare(self, call, &request);
		for (bit = 0; bit < 32; bit++) {
			__u32 flag = 1U << bit;

			if (flag & calls[call].flags)
				continue;
			memcpy(request.bytes + 4, &flag, sizeof(flag));
			EXPECT_EQ(-EINVAL, ask(self, call, &request))
				TH_LOG("%s, bit %d", calls[call].name, bit);
			/* A known bit beside it does not help. */
			flag |= calls[call].flags;
			memcpy(request.bytes + 4, &flag, sizeof(flag));
			EXPECT_EQ(-EINVAL, ask(self, call, &request))
				TH_LOG("%s, bit %d", calls[call].name, bit);
		}
	}
	EXPECT_EQ(fds, count_fds());
}

TEST_F(calls, nonzero_reserved_is_einval)
{
	union request request;
	size_t call;
	int bit;

	EACH_CALL(call) {
		if (!calls[call].reserved)
			continue;
		prepare(self, call, &request);
		for (bit = 0; bit < 32; bit++) {
			memcpy(request.bytes + calls[call].reserved, &(__u32){ 1U << bit },
			       sizeof(__u32));
			EXPECT_EQ(-EINVAL, ask(self, call, &request))
				TH_LOG("%s, bit %d", calls[call].name, bit);
		}
	}
}

/* What is only written may hold anything on the way in. */
TEST_F(calls, garbage_in_output_fields_is_fine)
{
	union request request;

	prepare(self, CREATE, &request);
	request.create.handle = ~0ULL;
	request.create.map_bytes = ~0ULL;
	request.create.fd = INT_MIN;
	ASSERT_EQ(0, ask(self, CREATE, &request));
	EXPECT_NE(~0ULL, request.create.handle);
	EXPECT_EQ(TOW_SMALL_SLAB, request.create.map_bytes);
	EXPECT_EQ(0, undo(self, CREATE, &request));

	memset(&request, 0xff, sizeof(request.info));
	request.size = sizeof(request.info);
	request.info.flags = 0;
	request.info.reserved = 0;
	request.info.handle = self->region.handle;
	ASSERT_EQ(0, ask(self, QUERY, &request));
	EXPECT_EQ(4096, request.info.bytes);
	EXPECT_EQ(0, request.info.flags);
	EXPECT_TRUE(tow_is_zero(request.info.name, sizeof(request.info.name)));
	EXPECT_TRUE(tow_is_zero(request.info.job_id, sizeof(request.info.job_id)));

	prepare(self, MAKE_FD, &request);
	request.fd.fd = -77;
	ASSERT_EQ(0, ask(self, MAKE_FD, &request));
	EXPECT_EQ(0, undo(self, MAKE_FD, &request));
	prepare(self, FROM_FD, &request);
	request.from_fd.handle = 12345;
	ASSERT_EQ(0, ask(self, FROM_FD, &request));
	EXPECT_EQ(0, undo(self, FROM_FD, &request));
}

/* ---- memory that is not there ----------------------------------------------- */

TEST_F(calls, no_such_address)
{
	void *nowhere[] = {
		NULL, (void *)1, self->end, (void *)-1L, (void *)-4096L,
#if ULONG_MAX > UINT_MAX
		(void *)0xffff888000000000, (void *)0x8000000000000000,
		(void *)0x00007ffffffff000,
#else
		(void *)0xc0000000,
#endif
	};
	size_t call, i;

	EACH_CALL(call) {
		for (i = 0; i < ARRAY_SIZE(nowhere); i++) {
			EXPECT_EQ(-EFAULT, ask(self, call, nowhere[i]))
				TH_LOG("%s at %p", calls[call].name, nowhere[i]);
		}
	}
}

/* The structure ends k bytes too late, for every k. */
TEST_F(calls, missing_page_at_every_offset)
{
	union request request;
	size_t call, there;

	EACH_CALL(call) {
		prepare(self, call, &request);
		for (there = 0; there < calls[call].size; there++) {
			memcpy(self->end - there, &request, there);
			EXPECT_EQ(-EFAULT, ask(self, call, self->end - there))
				TH_LOG("%s, %zu bytes there", calls[call].name, there);
		}
	}
}

TEST_F(calls, missing_page_in_the_tail)
{
	union request request;
	size_t call, there;

	EACH_CALL(call) {
		prepare(self, call, &request);
		request.size += 64;
		for (there = 0; there < 64; there += 7) {
			memcpy(self->end - calls[call].size - there, &request,
			       calls[call].size + there);
			EXPECT_EQ(-EFAULT, ask(self, call, self->end - calls[call].size - there))
				TH_LOG("%s, %zu bytes there", calls[call].name, there);
		}
	}
}

/* Neither alignment nor a page boundary in the middle matters. */
TEST_F(calls, any_address_works)
{
	unsigned char *boundary = self->area + self->page;
	union request request;
	size_t call, before;
	int good;

	EACH_CALL(call) {
		for (before = 0; before <= calls[call].size; before += 5) {
			good = prepare(self, call, &request);
			memcpy(boundary - before, &request, calls[call].size);
			ASSERT_EQ(good, ask(self, call, boundary - before))
				TH_LOG("%s, %zu bytes before", calls[call].name, before);
			memcpy(&request, boundary - before, calls[call].size);
			if (!good) {
				EXPECT_EQ(0, undo(self, call, &request));
			}
		}
	}
}

/*
 * Where the answer cannot be written, nothing may stay: no handle that nobody
 * knows, no descriptor, no charge.
 */
TEST_F(calls, answer_cannot_be_written)
{
	uint64_t used = tow_sysfs_get("pool_used_bytes");
	int regions = tow_region_count(self->fd);
	int fds = count_fds();
	union request request;
	size_t call, split;

	ASSERT_EQ(1, regions);
	EACH_CALL(call) {
		if (!calls[call].answers || call == JOIN)
			continue;
		/* All of it read-only, the second half, the last word. */
		for (split = 0; split < 3; split++) {
			size_t writable = split ? calls[call].size - (split == 1 ?
					  calls[call].size / 2 & ~7UL : 4) : 0;
			unsigned char *at = self->area + self->page - writable;

			prepare(self, call, &request);
			memcpy(at, &request, calls[call].size);
			ASSERT_EQ(0, mprotect(self->area + self->page, self->page, PROT_READ));
			EXPECT_EQ(-EFAULT, ask(self, call, at))
				TH_LOG("%s, %zu bytes writable", calls[call].name, writable);
			ASSERT_EQ(0, mprotect(self->area + self->page, self->page,
					      PROT_READ | PROT_WRITE));
		}
	}
	EXPECT_EQ(fds, count_fds());
	EXPECT_EQ(regions, tow_region_count(self->fd));
	EXPECT_EQ(used, tow_sysfs_wait("pool_used_bytes", used));
}

/* ---- who may ---------------------------------------------------------------- */

TEST_F(calls, read_only_file)
{
	union request request;
	size_t call;

	EACH_CALL(call) {
		int good = prepare(self, call, &request);

		/* Its own handles are none: it looks, and finds nothing. */
		if (call == QUERY)
			good = -ENOENT;
		EXPECT_EQ(calls[call].looks ? good : -EBADF,
			  tow_test_ioctl(self->looking, calls[call].command, &request))
			TH_LOG("%s", calls[call].name);
	}
}

struct as_child {
	FIXTURE_DATA(calls) *self;
	int fd;
	bool looking;	/* the file is O_RDONLY */
};

/* The file is another process's: the number of the first call that is wrong. */
static int ask_as_child(void *arg)
{
	struct as_child *child = arg;
	union request request;
	size_t call;
	int expected;

	EACH_CALL(call) {
		int good = prepare(child->self, call, &request);

		if (call == DESTROY)
			request.destroy.handle = child->self->region.handle;
		expected = calls[call].looks ? good : child->looking ? -EBADF : -EPERM;
		if (call == QUERY && child->looking)
			expected = -ENOENT;
		if (tow_test_ioctl(child->fd, calls[call].command, &request) != expected)
			return -(int)call - 1;
	}
	return 0;
}

/* Whoever was handed the file: it may look, and nothing else. */
TEST_F(calls, other_process)
{
	struct as_child writing = { .self = self, .fd = self->fd };
	struct as_child looking = { .self = self, .fd = self->looking, .looking = true };
	struct tow_region_info info;
	int who;

	tow_write_file("/proc/sys/kernel/unprivileged_userns_clone", "1");
	for (who = 0; who < TOW_WHO_COUNT; who++) {
		EXPECT_EQ(0, tow_as(who, ask_as_child, &writing))
			TH_LOG("%s: a call was answered wrongly", tow_who_name[who]);
		EXPECT_EQ(0, tow_as(who, ask_as_child, &looking))
			TH_LOG("%s: a call was answered wrongly", tow_who_name[who]);
	}
	EXPECT_EQ(0, tow_region_query(self->fd, self->region.handle, &info));
	EXPECT_EQ(0, tow_region_destroy(self->fd, self->region.handle));
}

/* A file that was sent back to its opener is still its opener's. */
TEST_F(calls, duplicate_is_the_same_client)
{
	int fd = dup(self->fd);
	struct tow_region_info info;

	ASSERT_LE(0, fd);
	EXPECT_EQ(0, tow_region_query(fd, self->region.handle, &info));
	close(fd);
	/* Closing one of them ends nothing. */
	EXPECT_EQ(0, tow_region_query(self->fd, self->region.handle, &info));
	EXPECT_EQ(0, tow_region_destroy(self->fd, self->region.handle));
}

static int list_all(void *arg)
{
	struct tow_region_info entries[4];
	uint64_t cursor = 0;
	int ret = tow_region_list(*(int *)arg, TOW_LIST_ALL, &cursor, entries, 4);

	return ret < 0 ? ret : 0;
}

/* So many are one's own: through a file of one's own. */
static int list_own(void *arg)
{
	int fd = tow_test_open(O_RDONLY);
	int count = fd < 0 ? fd : tow_region_count(fd);

	if (count < 0)
		return count;
	return count == *(int *)arg ? 0 : -ERANGE;
}

/* CAP_NET_ADMIN where the machine's administrator has it, not a namespace's. */
TEST_F(calls, list_all_is_for_the_administrator)
{
	int who, one = 1, none = 0;

	tow_write_file("/proc/sys/kernel/unprivileged_userns_clone", "1");
	for (who = 0; who < TOW_WHO_COUNT; who++) {
		EXPECT_EQ(who == TOW_ROOT ? 0 : -EPERM, tow_as(who, list_all, &self->looking))
			TH_LOG("%s", tow_who_name[who]);
	}
	/* Root's region is nobody else's. */
	ASSERT_EQ(0, chmod(tow_test_path(), 0666));
	EXPECT_EQ(0, tow_as(TOW_ROOT, list_own, &one));
	EXPECT_EQ(0, tow_as(TOW_NOBODY, list_own, &none));
	EXPECT_EQ(0, tow_as(TOW_GROUP, list_own, &none));
	EXPECT_EQ(0, tow_as(TOW_ROOT_IN_USERNS, list_own, &none));
}

/* ---- the order of errors ---------------------------------------------------- */

/*
 * ENODEV is unplug's.  Each step mends the error before it, and leaves those
 * behind it.
 */
TEST_F(calls, order_of_errors)
{
	union request request;
	size_t call;
	int status;
	pid_t child;

	EXPECT_EQ(-ENOTTY, tow_test_ioctl(self->looking, _IO(TOW_IOCTL_TYPE, 0x7f), NULL));
	EACH_CALL(call) {
		if (calls[call].looks)
			continue;
		/* EBADF before EPERM before EFAULT. */
		child = fork();
		if (!child) {
			int in_child =
				tow_test_ioctl(self->looking, calls[call].command, NULL) == -EBADF &&
				tow_test_ioctl(self->fd, calls[call].command, NULL) == -EPERM;
			_exit(!in_child);
		}
		ASSERT_EQ(child, waitpid(child, &status, 0));
		EXPECT_EQ(0, status)
			TH_LOG("%s", calls[call].name);
		EXPECT_EQ(-EBADF, tow_test_ioctl(self->looking, calls[call].command, NULL));
	}
	EACH_CALL(call) {
		/* Size before content; flags before handles and descriptors. */
		memset(&request, 0xff, sizeof(request));
		request.size = calls[call].published - 1;
		EXPECT_EQ(-EINVAL, ask(self, call, &request));
		request.size = calls[call].size + 8;
		EXPECT_EQ(-E2BIG, ask(self, call, &request))
			TH_LOG("%s", calls[call].name);
		request.size = calls[call].size;
		EXPECT_EQ(-EINVAL, ask(self, call, &request))
			TH_LOG("%s", calls[call].name);
	}
	/* What is malformed comes before what does not exist. */
	prepare(self, MAKE_FD, &request);
	request.fd.handle = ~0ULL;
	request.fd.reserved = 1;
	EXPECT_EQ(-EINVAL, ask(self, MAKE_FD, &request));
	prepare(self, FROM_FD, &request);
	request.from_fd.fd = -1;
	request.from_fd.reserved = 1;
	EXPECT_EQ(-EINVAL, ask(self, FROM_FD, &request));
}

/* ---- the array of REGION_LIST ------------------------------------------------ */

TEST_F(calls, list_entries)
{
	struct tow_region_list call;
	__u32 bad[] = { 0, 8, 160, 167, 169, 175, 4097, 4104, UINT_MAX };
	unsigned char *at;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		call = (struct tow_region_list){
			.size = sizeof(call), .entries = (uintptr_t)self->area,
			.entry_size = bad[i], .count = 1,
		};
		EXPECT_EQ(-EINVAL, tow_test_ioctl(self->fd, TOW_IOCTL_REGION_LIST, &call))
			TH_LOG("entries of %u bytes", bad[i]);
	}
	/* A newer program's entries. */
	memset(self->area, 0xa5, 2 * self->page);
	call = (struct tow_region_list){
		.size = sizeof(call), .entries = (uintptr_t)self->area,
		.entry_size = 256, .count = 2,
	};
	ASSERT_EQ(0, tow_test_ioctl(self->fd, TOW_IOCTL_REGION_LIST, &call));
	EXPECT_EQ(1, call.count);
	EXPECT_EQ(sizeof(struct tow_region_info), call.entry_size);
	EXPECT_EQ(4096, ((struct tow_region_info *)self->area)->bytes);
	/* The second was not there to be told. */
	EXPECT_EQ(0xa5, self->area[256]);

	/* An entry that ends behind the last page, and one that is read-only. */
	at = self->end - sizeof(struct tow_region_info) + 8;
	call = (struct tow_region_list){
		.size = sizeof(call), .entries = (uintptr_t)at,
		.entry_size = sizeof(struct tow_region_info), .count = 1,
	};
	EXPECT_EQ(-EFAULT, tow_test_ioctl(self->fd, TOW_IOCTL_REGION_LIST, &call));
	call.entries = ~0ULL - 100;
	EXPECT_EQ(-EFAULT, tow_test_ioctl(self->fd, TOW_IOCTL_REGION_LIST, &call));
	/* Room for more than there are, beyond what is mapped: not touched. */
	call = (struct tow_region_list){
		.size = sizeof(call), .entries = (uintptr_t)(at - 8),
		.entry_size = sizeof(struct tow_region_info), .count = UINT_MAX,
	};
	EXPECT_EQ(0, tow_test_ioctl(self->fd, TOW_IOCTL_REGION_LIST, &call));
	EXPECT_EQ(1, call.count);
	/* No room: an answer of none. */
	call = (struct tow_region_list){
		.size = sizeof(call), .entry_size = sizeof(struct tow_region_info),
	};
	EXPECT_EQ(0, tow_test_ioctl(self->fd, TOW_IOCTL_REGION_LIST, &call));
	EXPECT_EQ(0, call.count);
}

TEST_HARNESS_MAIN
