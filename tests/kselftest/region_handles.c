// SPDX-License-Identifier: GPL-2.0
/*
 * What the calls about regions say: handles that are stale, somebody else's or
 * made up; descriptors; names; how many bytes a region gets; lists; jobs.
 */
/* build: also 32-bit */

#include <sys/resource.h>
#include "tow_test.h"
#include "tow_hotplug.h"
#include "tow_region.h"

#define POOL_BYTES	(8 * TOW_SLAB)

FIXTURE(handles)
{
	struct tow_knobs before;
	int fd;
	int looking;			/* O_RDONLY */
	struct tow_region_create region;
};

FIXTURE_SETUP(handles)
{
	tow_knobs_save(&self->before);
	ASSERT_EQ(0, tow_pool_fresh(POOL_BYTES));
	self->fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, self->fd)
		TH_LOG("%s: %s", tow_test_path(), strerror(-self->fd));
	self->looking = tow_test_open(O_RDONLY);
	ASSERT_LE(0, self->looking);
	ASSERT_EQ(0, tow_region_create(self->fd, 4096, &self->region));
}

FIXTURE_TEARDOWN_PARENT(handles)
{
	EXPECT_TRUE(tow_pool_unused())
		TH_LOG("regions of a process that has ended are still there");
	EXPECT_EQ(0, tow_knobs_restore(&self->before));
	EXPECT_TRUE(tow_second_del());
}

/* ---- handles ---------------------------------------------------------------- */

/* No call takes this for a region of the client. */
static void refuse_handle(struct __test_metadata *_metadata, int fd, uint64_t handle,
			  const char *what)
{
	struct tow_region_info info;

	EXPECT_EQ(-ENOENT, tow_region_query(fd, handle, &info))
		TH_LOG("%s: %llx", what, (unsigned long long)handle);
	EXPECT_EQ(-ENOENT, tow_region_fd(fd, handle, 0))
		TH_LOG("%s: %llx", what, (unsigned long long)handle);
	EXPECT_EQ(-ENOENT, tow_region_fd(fd, handle, TOW_REGION_READONLY));
	EXPECT_EQ(-ENOENT, tow_region_destroy(fd, handle))
		TH_LOG("%s: %llx", what, (unsigned long long)handle);
}

TEST_F(handles, made_up_handles)
{
	uint64_t good = self->region.handle;
	struct tow_region_info info;
	int bit;

	EXPECT_NE(0, good);
	refuse_handle(_metadata, self->fd, 0, "zero");
	refuse_handle(_metadata, self->fd, ~0ULL, "all ones");
	refuse_handle(_metadata, self->fd, 1ULL << 63, "the top bit");
	refuse_handle(_metadata, self->fd, INT64_MAX, "the largest signed number");
	/* Neither generation nor index is looked at in part only. */
	for (bit = 0; bit < 64; bit++)
		refuse_handle(_metadata, self->fd, good ^ (1ULL << bit), "one bit off");
	EXPECT_EQ(0, tow_region_query(self->fd, good, &info));
}

TEST_F(handles, stale_handles)
{
	struct tow_region_create made;
	uint64_t old[64];
	size_t i, j;

	for (i = 0; i < ARRAY_SIZE(old); i++) {
		ASSERT_EQ(0, tow_region_create(self->fd, 1, &made));
		old[i] = made.handle;
		for (j = 0; j < i; j++) {
			ASSERT_NE(old[j], made.handle)
				TH_LOG("a handle came back");
		}
		ASSERT_EQ(0, tow_region_end(self->fd, &made));
		refuse_handle(_metadata, self->fd, made.handle, "destroyed");
	}
	/* Something new is in the place of the old: they still mean nothing. */
	ASSERT_EQ(0, tow_region_create(self->fd, 1, &made));
	for (i = 0; i < ARRAY_SIZE(old); i++)
		refuse_handle(_metadata, self->fd, old[i], "reused");
	EXPECT_EQ(0, tow_region_end(self->fd, &made));
}

/* Both clients count alike, so numbers may coincide: then each has its own. */
TEST_F(handles, other_clients_handles)
{
	struct tow_region_create mine, theirs[4];
	struct tow_region_info info;
	int other = tow_test_open(O_RDWR);
	int i;

	ASSERT_LE(0, other);
	refuse_handle(_metadata, other, self->region.handle, "another client's");
	ASSERT_EQ(0, tow_region_create_named(self->fd, 3, 0, 0, "mine", &mine));
	for (i = 0; i < 4; i++) {
		ASSERT_EQ(0, tow_region_create_named(other, 5, 0, 0, "theirs", &theirs[i]));
		ASSERT_EQ(0, tow_region_query(other, theirs[i].handle, &info));
		EXPECT_STREQ("theirs", info.name);
	}
	ASSERT_EQ(0, tow_region_query(self->fd, mine.handle, &info));
	EXPECT_STREQ("mine", info.name);
	close(other);
	/* The end of one client ends nothing of the other. */
	ASSERT_EQ(0, tow_region_query(self->fd, mine.handle, &info));
	EXPECT_EQ(0, tow_region_end(self->fd, &mine));
}

/* The last descriptor is gone, the handle is not; and the other way round. */
TEST_F(handles, handle_and_descriptor_live_apart)
{
	struct tow_region_create made;
	struct tow_region_info info;
	uint64_t handle;
	int fd;

	ASSERT_EQ(0, tow_region_create(self->fd, 4096, &made));
	close(made.fd);
	ASSERT_EQ(0, tow_region_query(self->fd, made.handle, &info));
	EXPECT_EQ(0, info.fds);
	fd = tow_region_fd(self->fd, made.handle, 0);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, tow_region_query(self->fd, made.handle, &info));
	EXPECT_EQ(1, info.fds);
	EXPECT_EQ(FD_CLOEXEC, fcntl(fd, F_GETFD));
	ASSERT_EQ(0, tow_region_destroy(self->fd, made.handle));
	/* Another handle of the same region, with another number. */
	ASSERT_EQ(0, tow_region_from_fd(self->fd, fd, &handle));
	EXPECT_NE(made.handle, handle);
	refuse_handle(_metadata, self->fd, made.handle, "destroyed");
	close(fd);
	ASSERT_EQ(0, tow_region_query(self->fd, handle, &info));
	EXPECT_EQ(4096, info.bytes);
	EXPECT_EQ(0, tow_region_destroy(self->fd, handle));
}

TEST_F(handles, readonly_stays_readonly)
{
	struct tow_region_info info;
	uint64_t handle;
	int fd = tow_region_fd(self->fd, self->region.handle, TOW_REGION_READONLY);
	int again;

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, tow_region_from_fd(self->fd, fd, &handle));
	ASSERT_EQ(0, tow_region_query(self->fd, handle, &info));
	EXPECT_EQ(TOW_REGION_READONLY, info.flags & TOW_REGION_READONLY);
	EXPECT_EQ(-EACCES, tow_region_fd(self->fd, handle, 0));
	again = tow_region_fd(self->fd, handle, TOW_REGION_READONLY);
	EXPECT_LE(0, again);
	close(again);
	/* The other handle of the same region is not. */
	ASSERT_EQ(0, tow_region_query(self->fd, self->region.handle, &info));
	EXPECT_EQ(0, info.flags & TOW_REGION_READONLY);
	EXPECT_EQ(0, tow_region_destroy(self->fd, handle));
	close(fd);
}

TEST_F(handles, descriptors_that_are_no_regions)
{
	int other, ends[2], file = memfd_create("region", MFD_CLOEXEC);
	uint64_t handle;

	ASSERT_EQ(0, pipe(ends));
	EXPECT_EQ(-EBADF, tow_region_from_fd(self->fd, -1, &handle));
	EXPECT_EQ(-EBADF, tow_region_from_fd(self->fd, INT_MIN, &handle));
	EXPECT_EQ(-EBADF, tow_region_from_fd(self->fd, 1000, &handle));
	EXPECT_EQ(-EINVAL, tow_region_from_fd(self->fd, file, &handle));
	EXPECT_EQ(-EINVAL, tow_region_from_fd(self->fd, ends[0], &handle));
	EXPECT_EQ(-EINVAL, tow_region_from_fd(self->fd, self->fd, &handle));
	close(file);
	close(ends[0]);
	close(ends[1]);

	/* Another device's. */
	ASSERT_TRUE(tow_second_add("rxe_two"));
	EXPECT_TRUE(tow_wait_path(TOW_TEST_DEVICES "/rxe_two", true));
	other = open(TOW_TEST_DEVICES "/rxe_two", O_RDWR | O_CLOEXEC);
	EXPECT_LE(0, other);
	EXPECT_EQ(-EXDEV, tow_region_from_fd(other, self->region.fd, &handle));
	close(other);
	EXPECT_TRUE(tow_second_del());
}

TEST_F(handles, no_descriptor_left)
{
	uint64_t used = tow_sysfs_get("pool_used_bytes");
	struct rlimit limit, tight;
	struct tow_region_create made;
	struct tow_region_info info;
	int lowest = dup(self->fd);

	ASSERT_LE(0, lowest);
	close(lowest);
	ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &limit));
	tight = limit;
	tight.rlim_cur = (rlim_t)lowest;
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &tight));
	EXPECT_EQ(-EMFILE, tow_region_create(self->fd, 1, &made));
	EXPECT_EQ(-EMFILE, tow_region_create(self->fd, TOW_SLAB, &made));
	EXPECT_EQ(-EMFILE, tow_region_fd(self->fd, self->region.handle, 0));
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
	ASSERT_EQ(0, tow_region_query(self->fd, self->region.handle, &info));
	EXPECT_EQ(1, info.fds);
	EXPECT_EQ(1, tow_region_count(self->fd));
	EXPECT_EQ(used, tow_sysfs_wait("pool_used_bytes", used));
}

/* ---- names ------------------------------------------------------------------ */

static int create_raw_name(FIXTURE_DATA(handles) *self, __u32 flags, const char *name, size_t bytes)
{
	struct tow_region_create made = {
		.size = sizeof(made), .flags = flags, .bytes = 1,
		.linger_s = flags ? 1 : 0,
	};
	int ret;

	memcpy(made.name, name, bytes);
	ret = tow_test_ioctl(self->fd, TOW_IOCTL_REGION_CREATE, &made);
	return ret ? ret : tow_region_end(self->fd, &made);
}

TEST_F(handles, names)
{
	struct tow_region_attach attach;
	char full[TOW_REGION_NAME_MAX];
	__u32 all[] = { 0, TOW_REGION_PERSISTENT };
	size_t i;
	int byte;

	for (i = 0; i < ARRAY_SIZE(all); i++) {
		/* Not terminated; as long as can be. */
		memset(full, 'x', sizeof(full));
		EXPECT_EQ(-EINVAL, create_raw_name(self, all[i], full, sizeof(full)));
		full[sizeof(full) - 1] = '\0';
		EXPECT_EQ(0, create_raw_name(self, all[i], full, sizeof(full)));
		/* Something behind the end. */
		full[10] = '\0';
		EXPECT_EQ(-EINVAL, create_raw_name(self, all[i], full, sizeof(full)));
		/* Every byte in the middle of a name. */
		for (byte = 1; byte < 256; byte++) {
			char name[4] = { 'a', (char)byte, 'b', 0 };
			bool good = byte > ' ' && byte <= '~' && byte != '/';

			EXPECT_EQ(good ? 0 : -EINVAL, create_raw_name(self, all[i], name, 4))
				TH_LOG("byte %d", byte);
		}
		EXPECT_EQ(-EINVAL, create_raw_name(self, all[i], "/", 2));
		EXPECT_EQ(-EINVAL, create_raw_name(self, all[i], "a/", 3));
		EXPECT_EQ(-EINVAL, create_raw_name(self, all[i], "\n", 2));
	}
	EXPECT_EQ(0, create_raw_name(self, 0, "", 1));
	EXPECT_EQ(-EINVAL, create_raw_name(self, TOW_REGION_PERSISTENT, "", 1));

	/* ATTACH takes the same for names. */
	EXPECT_EQ(-EINVAL, tow_region_attach(self->fd, "", &attach));
	EXPECT_EQ(-EINVAL, tow_region_attach(self->fd, "a/b", &attach));
	EXPECT_EQ(-EINVAL, tow_region_attach(self->fd, "a\tb", &attach));
	memset(&attach, 'x', sizeof(attach));
	attach.size = sizeof(attach);
	attach.flags = 0;
	attach.linger_s = 0;
	EXPECT_EQ(-EINVAL, tow_test_ioctl(self->fd, TOW_IOCTL_REGION_ATTACH, &attach));
	EXPECT_EQ(1, tow_region_count(self->fd));
}

TEST_F(handles, linger_is_for_persistent_regions)
{
	struct tow_region_create made;
	struct tow_region_info info;
	uint64_t most = tow_sysfs_get("linger_max_s");

	EXPECT_EQ(-EINVAL, tow_region_create_named(self->fd, 1, 0, 1, "", &made));
	EXPECT_EQ(-EINVAL, tow_region_create_named(self->fd, 1, 0, 1, "named", &made));
	/* Neither nothing nor more than the device allows: what it allows. */
	ASSERT_EQ(0, tow_region_create_named(self->fd, 1, TOW_REGION_PERSISTENT, 0, "a", &made));
	ASSERT_EQ(0, tow_region_query(self->fd, made.handle, &info));
	EXPECT_EQ(most, info.linger_s);
	EXPECT_EQ(TOW_REGION_PERSISTENT, info.flags);
	EXPECT_EQ(0, info.linger_left_ms);
	EXPECT_EQ(0, tow_region_end(self->fd, &made));
	ASSERT_EQ(0, tow_region_create_named(self->fd, 1, TOW_REGION_PERSISTENT, UINT_MAX, "a",
					     &made));
	ASSERT_EQ(0, tow_region_query(self->fd, made.handle, &info));
	EXPECT_EQ(most, info.linger_s);
	EXPECT_EQ(0, tow_region_end(self->fd, &made));
	ASSERT_EQ(0, tow_region_create_named(self->fd, 1, TOW_REGION_PERSISTENT, 2, "a", &made));
	ASSERT_EQ(0, tow_region_query(self->fd, made.handle, &info));
	EXPECT_EQ(2, info.linger_s);
	/* The name is taken while it lives, and free at once when destroyed. */
	EXPECT_EQ(-EEXIST, tow_region_create_named(self->fd, 1, TOW_REGION_PERSISTENT, 2, "a",
						   &(struct tow_region_create){ 0 }));
	/* Names that are only for people do not clash. */
	EXPECT_EQ(0, create_raw_name(self, 0, "a", 2));
	EXPECT_EQ(0, tow_region_end(self->fd, &made));
}

/* ---- how much --------------------------------------------------------------- */

struct size_case {
	uint64_t bytes;
	uint64_t map_bytes;
	__u32 slabs;
};

TEST_F(handles, sizes)
{
	static const struct size_case good[] = {
		{ 1, TOW_SMALL_SLAB, 1 },
		{ TOW_SMALL_SLAB - 1, TOW_SMALL_SLAB, 1 },
		{ TOW_SMALL_SLAB, TOW_SMALL_SLAB, 1 },
		{ TOW_SMALL_SLAB + 1, 2 * TOW_SMALL_SLAB, 2 },
		{ TOW_SMALL_REGION, TOW_SMALL_REGION, 4 },
		{ TOW_SMALL_REGION + 1, TOW_SLAB, 1 },
		{ TOW_SLAB - 1, TOW_SLAB, 1 },
		{ TOW_SLAB, TOW_SLAB, 1 },
		{ TOW_SLAB + 1, 2 * TOW_SLAB, 2 },
		{ 3 * TOW_SLAB + 1, 4 * TOW_SLAB, 4 },
	};
	struct tow_region_create made;
	struct tow_region_info info;
	size_t i;

	EXPECT_EQ(TOW_SLAB, tow_sysfs_get("slab_bytes"));
	for (i = 0; i < ARRAY_SIZE(good); i++) {
		ASSERT_EQ(0, tow_region_create(self->fd, good[i].bytes, &made))
			TH_LOG("%llu bytes", (unsigned long long)good[i].bytes);
		EXPECT_EQ(good[i].map_bytes, made.map_bytes)
			TH_LOG("%llu bytes", (unsigned long long)good[i].bytes);
		EXPECT_EQ(good[i].bytes, made.bytes);
		EXPECT_EQ(FD_CLOEXEC, fcntl(made.fd, F_GETFD));
		EXPECT_EQ((off_t)good[i].map_bytes, lseek(made.fd, 0, SEEK_END));
		ASSERT_EQ(0, tow_region_query(self->fd, made.handle, &info));
		EXPECT_EQ(made.handle, info.handle);
		EXPECT_EQ(good[i].bytes, info.bytes);
		EXPECT_EQ(good[i].map_bytes, info.map_bytes);
		EXPECT_EQ(good[i].map_bytes, info.charged_bytes);
		EXPECT_EQ(good[i].slabs, info.slabs);
		EXPECT_EQ(TOW_SLAB_MRS * good[i].slabs, info.mrs);
		EXPECT_EQ(getuid(), info.uid);
		EXPECT_EQ(getpid(), info.pid);
		EXPECT_EQ(1, info.fds);
		EXPECT_EQ(0, info.flags);
		EXPECT_EQ(0, info.linger_s);
		EXPECT_EQ(0, tow_region_end(self->fd, &made));
	}
}

TEST_F(handles, impossible_sizes)
{
	uint64_t huge[] = {
		POOL_BYTES + 1, 1ULL << 40, 1ULL << 52, 1ULL << 62, (1ULL << 63) - 1,
		1ULL << 63, (1ULL << 63) + 1, ~0ULL - TOW_SLAB, ~0ULL - 1, ~0ULL,
	};
	struct tow_region_create made;
	size_t i;
	int ret;

	EXPECT_EQ(-EINVAL, tow_region_create(self->fd, 0, &made));
	/* More than the pool, whatever else it is more than. */
	EXPECT_EQ(-ENOSPC, tow_region_create(self->fd, POOL_BYTES + 1, &made));
	EXPECT_EQ(-ENOSPC, tow_region_create(self->fd, 1ULL << 40, &made));
	for (i = 0; i < ARRAY_SIZE(huge); i++) {
		ret = tow_region_create(self->fd, huge[i], &made);
		EXPECT_TRUE(ret == -ENOSPC || ret == -EINVAL)
			TH_LOG("%llx bytes: %d", (unsigned long long)huge[i], ret);
	}
	EXPECT_EQ(1, tow_region_count(self->fd));
	/* None of that took anything. */
	ASSERT_EQ(0, tow_region_create(self->fd, POOL_BYTES - TOW_SLAB, &made));
	EXPECT_EQ(0, tow_region_end(self->fd, &made));
}

/* ---- lists ------------------------------------------------------------------ */

TEST_F(handles, list_in_order_once_each)
{
	struct tow_region_create made[20];
	struct tow_region_info entries[3];
	uint64_t cursor = 0, last = 0;
	int count, i, seen = 0;

	for (i = 0; i < 20; i++) {
		ASSERT_EQ(0, tow_region_create(self->fd, 1, &made[i]));
	}
	while ((count = tow_region_list(self->looking, 0, &cursor, entries, 3)) > 0) {
		ASSERT_GE(3, count);
		for (i = 0; i < count; i++) {
			EXPECT_LT(last, entries[i].id);
			last = entries[i].id;
			EXPECT_EQ(sizeof(entries[i]), entries[i].size);
			EXPECT_EQ(0, entries[i].handle);
			EXPECT_EQ(getpid(), entries[i].pid);
		}
		seen += count;
		ASSERT_GE(21, seen);
		/* One goes while we look: the others are told all the same. */
		if (seen == 3) {
			EXPECT_EQ(0, tow_region_end(self->fd, &made[19]));
		}
	}
	EXPECT_EQ(0, count);
	EXPECT_EQ(20, seen);
	for (i = 0; i < 19; i++) {
		EXPECT_EQ(0, tow_region_end(self->fd, &made[i]));
	}
	/* A cursor out of the blue finds nothing, and does no harm. */
	cursor = ~0ULL;
	EXPECT_EQ(0, tow_region_list(self->looking, 0, &cursor, entries, 3));
}

/* ---- jobs ------------------------------------------------------------------- */

static int join(int fd, unsigned char key, struct tow_join *call)
{
	memset(call, 0, sizeof(*call));
	call->size = sizeof(*call);
	memset(call->job_key, key, sizeof(call->job_key));
	return tow_test_ioctl(fd, TOW_IOCTL_JOIN, call);
}

TEST_F(handles, join)
{
	/* The first 16 bytes of the SHA-256 of 32 bytes of 7. */
	static const unsigned char id[TOW_JOB_ID_BYTES] = {
		0x4b, 0xb0, 0x6f, 0x8e, 0x4e, 0x3a, 0x77, 0x15,
		0xd2, 0x01, 0xd5, 0x73, 0xd0, 0xaa, 0x42, 0x37,
	};
	struct tow_region_create made;
	struct tow_region_info info;
	struct tow_join call;
	int other = tow_test_open(O_RDWR);

	ASSERT_LE(0, other);
	ASSERT_EQ(0, join(self->fd, 7, &call));
	EXPECT_EQ(0, memcmp(id, call.job_id, sizeof(id)));
	/* The same again is nothing new; another is refused, and joins nothing. */
	EXPECT_EQ(0, join(self->fd, 7, &call));
	EXPECT_EQ(-EBUSY, join(self->fd, 8, &call));
	ASSERT_EQ(0, tow_region_create(self->fd, 1, &made));
	ASSERT_EQ(0, tow_region_query(self->fd, made.handle, &info));
	EXPECT_EQ(0, memcmp(id, info.job_id, sizeof(id)));
	/* What was there before stays where it was. */
	ASSERT_EQ(0, tow_region_query(self->fd, self->region.handle, &info));
	EXPECT_TRUE(tow_is_zero(info.job_id, sizeof(info.job_id)));
	EXPECT_EQ(0, tow_region_end(self->fd, &made));
	/* Another client of the same process is in no job of its own. */
	ASSERT_EQ(0, join(other, 8, &call));
	EXPECT_NE(0, memcmp(id, call.job_id, sizeof(id)));
	close(other);
}

TEST_HARNESS_MAIN
