// SPDX-License-Identifier: GPL-2.0
/*
 * What all calls about regions have in common: sizes, flags, reserved fields
 * and memory that is not there, by the same rules for each (tow_calls.h); who may
 * make them; the order of errors.  region_handles.c is about what they say.
 */
/* build: also 32-bit */

#include <sys/stat.h>
#include "tow_test.h"
#include "tow_calls.h"
#include "tow_identity.h"
#include "tow_region.h"

#define POOL_BYTES	(8 * TOW_SLAB)

FIXTURE(calls)
{
	struct tow_knobs before;
	struct tow_calls set;
	struct tow_region_create region;
	struct tow_region_info list[4];
	bool takes_dmabufs;
};

/* ---- every call, and a good request of each --------------------------------- */

enum {
	CREATE, DESTROY, QUERY, LIST, MAKE_FD, FROM_FD, ATTACH, IMPORT_USER, IMPORT_DMABUF, END,
	LIST_CLIENTS, END_CLIENTS, JOIN, CALLS
};

static const struct tow_call calls[CALLS] = {
	[CREATE] = { TOW_CALL(REGION_CREATE, 104, tow_region_create),
		.flags = TOW_REGION_PERSISTENT, .answers = true },
	[DESTROY] = { TOW_CALL(REGION_DESTROY, 16, tow_region_destroy) },
	[QUERY] = { TOW_CALL(REGION_QUERY, 168, tow_region_info),
		TOW_RESERVED(tow_region_info, reserved), .looks = true, .answers = true },
	[LIST] = { TOW_CALL(REGION_LIST, 32, tow_region_list),
		.flags = TOW_LIST_ALL, .looks = true, .answers = true },
	[MAKE_FD] = { TOW_CALL(REGION_FD, 24, tow_region_fd), .flags = TOW_REGION_READONLY,
		TOW_RESERVED(tow_region_fd, reserved), .answers = true },
	[FROM_FD] = { TOW_CALL(REGION_FROM_FD, 24, tow_region_from_fd),
		TOW_RESERVED(tow_region_from_fd, reserved), .answers = true },
	[ATTACH] = { TOW_CALL(REGION_ATTACH, 104, tow_region_attach) },
	[IMPORT_USER] = { TOW_CALL(REGION_IMPORT_USER, 32, tow_region_import_user),
		.flags = TOW_REGION_READONLY, .answers = true },
	[IMPORT_DMABUF] = { TOW_CALL(REGION_IMPORT_DMABUF, 40, tow_region_import_dmabuf),
		.flags = TOW_REGION_READONLY, TOW_RESERVED(tow_region_import_dmabuf, reserved) },
	[END] = { TOW_CALL(REGION_END, 24, tow_region_end) },
	[LIST_CLIENTS] = { TOW_CALL(ACCOUNT_LIST, 32, tow_account_list),
		.flags = TOW_LIST_ALL, .looks = true, .answers = true },
	[END_CLIENTS] = { TOW_CALL(CLIENT_END, 16, tow_client_end) },
	/* The client has joined, though it does not know. */
	[JOIN] = { TOW_CALL(JOIN, 56, tow_join), .answers = true, .stays = true },
};

/* A request as each of them. */
union request {
	union tow_request any;
	struct tow_region_create create;
	struct tow_region_destroy destroy;
	struct tow_region_info info;
	struct tow_region_list list;
	struct tow_region_fd fd;
	struct tow_region_from_fd from_fd;
	struct tow_region_attach attach;
	struct tow_region_import_user import_user;
	struct tow_region_import_dmabuf import_dmabuf;
	struct tow_region_end end;
	struct tow_account_list clients;
	struct tow_client_end end_clients;
	struct tow_join join;
};

/*
 * A request that succeeds (or whose refusal shows that it was understood:
 * nothing of that name lingers, nobody has such a number; software devices take no
 * dma-bufs).
 */
static int prepare(void *arg, size_t call, union tow_request *any)
{
	FIXTURE_DATA(calls) *self = arg;
	union request *request = (union request *)any;
	static int imported = 1;
	struct tow_region_create made;

	switch (call) {
	case CREATE:
		request->create.bytes = 1;
		request->create.fd = -1;
		return 0;
	case DESTROY:
		/* The handle alone keeps it. */
		if (tow_region_create(self->set.fd, 1, &made))
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
		return self->takes_dmabufs ? 0 : -EOPNOTSUPP;
	case END:
		request->end.id = UINT64_MAX;
		return -ENOENT;
	case LIST_CLIENTS:
		request->clients.entries = (uintptr_t)self->list;
		request->clients.entry_size = sizeof(struct tow_account_info);
		request->clients.count = 1;
		return 0;
	case END_CLIENTS:
		request->end_clients.pid = INT_MAX;
		return -ESRCH;
	default:
		memset(request->join.job_key, 7, sizeof(request->join.job_key));
		return 0;
	}
}

/* What a request that succeeded has made. */
static int undo(void *arg, size_t call, const union tow_request *any)
{
	const union request *request = (const union request *)any;
	FIXTURE_DATA(calls) *self = arg;

	switch (call) {
	case CREATE:
		return tow_region_end(self->set.fd, &request->create);
	case MAKE_FD:
		return close(request->fd.fd) ? -errno : 0;
	case FROM_FD:
		return tow_region_destroy(self->set.fd, request->from_fd.handle);
	case IMPORT_USER:
		return tow_region_destroy(self->set.fd, request->import_user.handle);
	case IMPORT_DMABUF:
		return tow_region_destroy(self->set.fd, request->import_dmabuf.handle);
	default:
		return 0;
	}
}

FIXTURE_SETUP(calls)
{
	struct tow_query query;

	tow_knobs_save(&self->before);
	ASSERT_EQ(0, tow_pool_fresh(POOL_BYTES));
	self->set = (struct tow_calls){
		.calls = calls, .count = CALLS, .self = self, .prepare = prepare, .undo = undo,
		.fd = tow_test_open(O_RDWR), .looking = tow_test_open(O_RDONLY),
	};
	ASSERT_LE(0, self->set.fd)
		TH_LOG("%s: %s", tow_test_path(), strerror(-self->set.fd));
	ASSERT_LE(0, self->set.looking);
	ASSERT_EQ(0, tow_area_make(&self->set.area));
	ASSERT_EQ(0, tow_region_create(self->set.fd, 4096, &self->region));
	ASSERT_EQ(0, tow_test_query(self->set.fd, &query));
	self->takes_dmabufs = !(query.features & TOW_FEATURE_VIRT_DMA);
}

FIXTURE_TEARDOWN_PARENT(calls)
{
	EXPECT_TRUE(tow_pool_unused())
		TH_LOG("regions of a process that has ended are still there");
	EXPECT_EQ(0, tow_knobs_restore(&self->before));
	EXPECT_EQ(0, chmod(tow_test_path(), 0600));
}

static int ready(FIXTURE_DATA(calls) *self, size_t call, union request *request)
{
	return tow_call_prepare(&self->set, call, &request->any);
}

static int ask(FIXTURE_DATA(calls) *self, size_t call, union request *request)
{
	return tow_call_ask(&self->set, call, request);
}

TEST(the_longest_answer)
{
	EXPECT_EQ(168, sizeof(struct tow_region_info));
}

TOW_CALL_CASES(calls)

/* What is only written may hold anything on the way in. */
TEST_F(calls, garbage_in_output_fields_is_fine)
{
	union request request;

	ready(self, CREATE, &request);
	request.create.handle = ~0ULL;
	request.create.map_bytes = ~0ULL;
	request.create.fd = INT_MIN;
	ASSERT_EQ(0, ask(self, CREATE, &request));
	EXPECT_NE(~0ULL, request.create.handle);
	EXPECT_EQ(TOW_SMALL_SLAB, request.create.map_bytes);
	EXPECT_EQ(0, undo(self, CREATE, &request.any));

	memset(&request, 0xff, sizeof(request.info));
	request.any.size = sizeof(request.info);
	request.info.flags = 0;
	request.info.reserved = 0;
	request.info.handle = self->region.handle;
	ASSERT_EQ(0, ask(self, QUERY, &request));
	EXPECT_EQ(4096, request.info.bytes);
	EXPECT_EQ(0, request.info.flags);
	EXPECT_TRUE(tow_is_zero(request.info.name, sizeof(request.info.name)));
	EXPECT_TRUE(tow_is_zero(request.info.job_id, sizeof(request.info.job_id)));

	ready(self, MAKE_FD, &request);
	request.fd.fd = -77;
	ASSERT_EQ(0, ask(self, MAKE_FD, &request));
	EXPECT_EQ(0, undo(self, MAKE_FD, &request.any));
	ready(self, FROM_FD, &request);
	request.from_fd.handle = 12345;
	ASSERT_EQ(0, ask(self, FROM_FD, &request));
	EXPECT_EQ(0, undo(self, FROM_FD, &request.any));
}

/*
 * Where the answer cannot be written, nothing may stay: no handle that nobody
 * knows, no descriptor, no charge.
 */
TEST_F(calls, answer_cannot_be_written)
{
	uint64_t used = tow_sysfs_get("pool_used_bytes");
	int regions = tow_region_count(self->set.fd);
	int fds = tow_count_fds();

	ASSERT_EQ(1, regions);
	tow_calls_unwritable(_metadata, &self->set);
	EXPECT_EQ(fds, tow_count_fds());
	EXPECT_EQ(regions, tow_region_count(self->set.fd));
	EXPECT_EQ(used, tow_sysfs_wait("pool_used_bytes", used));
}

/* ---- who may ---------------------------------------------------------------- */

TEST_F(calls, read_only_file)
{
	union request request;
	size_t call;

	TOW_EACH_CALL(&self->set, call) {
		int good = ready(self, call, &request);

		/* Its own handles are none: it looks, and finds nothing. */
		if (call == QUERY)
			good = -ENOENT;
		EXPECT_EQ(calls[call].looks ? good : -EBADF,
			  tow_test_ioctl(self->set.looking, calls[call].command, &request))
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

	TOW_EACH_CALL(&child->self->set, call) {
		int good = ready(child->self, call, &request);

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
	struct as_child writing = { .self = self, .fd = self->set.fd };
	struct as_child looking = { .self = self, .fd = self->set.looking, .looking = true };
	struct tow_region_info info;
	int who;

	tow_write_file("/proc/sys/kernel/unprivileged_userns_clone", "1");
	for (who = 0; who < TOW_WHO_COUNT; who++) {
		EXPECT_EQ(0, tow_as(who, ask_as_child, &writing))
			TH_LOG("%s: a call was answered wrongly", tow_who_name[who]);
		EXPECT_EQ(0, tow_as(who, ask_as_child, &looking))
			TH_LOG("%s: a call was answered wrongly", tow_who_name[who]);
	}
	EXPECT_EQ(0, tow_region_query(self->set.fd, self->region.handle, &info));
	EXPECT_EQ(0, tow_region_destroy(self->set.fd, self->region.handle));
}

/* A file that was sent back to its opener is still its opener's. */
TEST_F(calls, duplicate_is_the_same_client)
{
	int fd = dup(self->set.fd);
	struct tow_region_info info;

	ASSERT_LE(0, fd);
	EXPECT_EQ(0, tow_region_query(fd, self->region.handle, &info));
	close(fd);
	/* Closing one of them ends nothing. */
	EXPECT_EQ(0, tow_region_query(self->set.fd, self->region.handle, &info));
	EXPECT_EQ(0, tow_region_destroy(self->set.fd, self->region.handle));
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
		EXPECT_EQ(who == TOW_ROOT ? 0 : -EPERM, tow_as(who, list_all, &self->set.looking))
			TH_LOG("%s", tow_who_name[who]);
	}
	/* Root's region is nobody else's. */
	ASSERT_EQ(0, chmod(tow_test_path(), 0666));
	EXPECT_EQ(0, tow_as(TOW_ROOT, list_own, &one));
	EXPECT_EQ(0, tow_as(TOW_NOBODY, list_own, &none));
	EXPECT_EQ(0, tow_as(TOW_GROUP, list_own, &none));
	EXPECT_EQ(0, tow_as(TOW_ROOT_IN_USERNS, list_own, &none));
}

/* What is malformed comes before what does not exist. */
TEST_F(calls, malformed_before_missing)
{
	union request request;

	ready(self, MAKE_FD, &request);
	request.fd.handle = ~0ULL;
	request.fd.reserved = 1;
	EXPECT_EQ(-EINVAL, ask(self, MAKE_FD, &request));
	ready(self, FROM_FD, &request);
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
			.size = sizeof(call), .entries = (uintptr_t)self->set.area.start,
			.entry_size = bad[i], .count = 1,
		};
		EXPECT_EQ(-EINVAL, tow_test_ioctl(self->set.fd, TOW_IOCTL_REGION_LIST, &call))
			TH_LOG("entries of %u bytes", bad[i]);
	}
	/* A newer program's entries. */
	memset(self->set.area.start, 0xa5, 2 * self->set.area.page);
	call = (struct tow_region_list){
		.size = sizeof(call), .entries = (uintptr_t)self->set.area.start,
		.entry_size = 256, .count = 2,
	};
	ASSERT_EQ(0, tow_test_ioctl(self->set.fd, TOW_IOCTL_REGION_LIST, &call));
	EXPECT_EQ(1, call.count);
	EXPECT_EQ(sizeof(struct tow_region_info), call.entry_size);
	EXPECT_EQ(4096, ((struct tow_region_info *)self->set.area.start)->bytes);
	/* The second was not there to be told. */
	EXPECT_EQ(0xa5, self->set.area.start[256]);

	/* An entry that ends behind the last page, and one that is read-only. */
	at = self->set.area.end - sizeof(struct tow_region_info) + 8;
	call = (struct tow_region_list){
		.size = sizeof(call), .entries = (uintptr_t)at,
		.entry_size = sizeof(struct tow_region_info), .count = 1,
	};
	EXPECT_EQ(-EFAULT, tow_test_ioctl(self->set.fd, TOW_IOCTL_REGION_LIST, &call));
	call.entries = ~0ULL - 100;
	EXPECT_EQ(-EFAULT, tow_test_ioctl(self->set.fd, TOW_IOCTL_REGION_LIST, &call));
	/* Room for more than there are, beyond what is mapped: not touched. */
	call = (struct tow_region_list){
		.size = sizeof(call), .entries = (uintptr_t)(at - 8),
		.entry_size = sizeof(struct tow_region_info), .count = UINT_MAX,
	};
	EXPECT_EQ(0, tow_test_ioctl(self->set.fd, TOW_IOCTL_REGION_LIST, &call));
	EXPECT_EQ(1, call.count);
	/* No room: an answer of none. */
	call = (struct tow_region_list){
		.size = sizeof(call), .entry_size = sizeof(struct tow_region_info),
	};
	EXPECT_EQ(0, tow_test_ioctl(self->set.fd, TOW_IOCTL_REGION_LIST, &call));
	EXPECT_EQ(0, call.count);
}

/* Who forgot to fill it in would share a job with all others who did. */
TEST_F(calls, join_without_a_key)
{
	struct tow_join call = { .size = sizeof(call) };

	EXPECT_EQ(-EINVAL, tow_test_ioctl(self->set.fd, TOW_IOCTL_JOIN, &call));
}

TEST_HARNESS_MAIN
