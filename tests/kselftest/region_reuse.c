// SPDX-License-Identifier: GPL-2.0
/*
 * That nobody ever sees what another has written, nor writes into what is
 * another's by now: memory that changes hands is zero, and memory that the
 * kernel still uses on the old owner's behalf (a pipe, direct I/O, a
 * registration of other software) does not change hands.
 */
/* build: link -libverbs */

#include <linux/io_uring.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include "tow_test.h"
#include "tow_identity.h"
#include "tow_region.h"
#include "tow_verbs.h"

#define POOL_BYTES	(4 * TOW_SLAB)

/* Seeds of stamps: who wrote. */
enum { FIRST = 1, SECOND, THIRD };

FIXTURE(reuse)
{
	struct tow_knobs before;
	int fd;
	size_t page;
};

FIXTURE_SETUP(reuse)
{
	tow_knobs_save(&self->before);
	ASSERT_EQ(0, tow_pool_fresh(POOL_BYTES));
	self->page = (size_t)sysconf(_SC_PAGESIZE);
	self->fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, self->fd)
		TH_LOG("%s: %s", tow_test_path(), strerror(-self->fd));
}

FIXTURE_TEARDOWN_PARENT(reuse)
{
	EXPECT_TRUE(tow_pool_unused())
		TH_LOG("regions of a process that has ended are still there");
	EXPECT_EQ(0, tow_knobs_restore(&self->before));
	EXPECT_EQ(0, chmod(tow_test_path(), 0600));
}

/* ---- new memory is zero ------------------------------------------------------ */

/* All of the pool, in pieces of one size; whether each was zero, then filled. */
static int fill_pool(int fd, size_t bytes, uint64_t seed, bool *zero)
{
	struct tow_mapped pieces[POOL_BYTES / TOW_SMALL_SLAB];
	size_t count = POOL_BYTES / bytes, i;
	int ret = 0;

	for (i = 0; i < count && !ret; i++) {
		ret = tow_mapped_make(fd, bytes, &pieces[i]);
		if (ret)
			break;
		*zero &= tow_is_zero(pieces[i].at, pieces[i].bytes);
		tow_fill(pieces[i].at, pieces[i].bytes, seed);
	}
	while (i-- > 0)
		if (tow_mapped_end(&pieces[i]))
			ret = -EIO;
	return ret;
}

/* Large after small, small after large: every piece changes hands. */
TEST_F_TIMEOUT(reuse, new_memory_is_zero, 120)
{
	static const size_t sizes[] = {
		TOW_SLAB, POOL_BYTES, TOW_SMALL_REGION, TOW_SLAB, TOW_SMALL_SLAB, POOL_BYTES,
	};
	bool zero = true;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		ASSERT_EQ(0, fill_pool(self->fd, sizes[i], FIRST + i, &zero))
			TH_LOG("pieces of %zu bytes", sizes[i]);
		EXPECT_TRUE(zero)
			TH_LOG("pieces of %zu bytes: old contents", sizes[i]);
	}
	EXPECT_TRUE(tow_pool_unused());
}

struct filler {
	bool zero;
	uint64_t seed;
};

static int fill_as_child(void *arg)
{
	struct filler *filler = arg;
	int fd = tow_test_open(O_RDWR);
	int ret;

	if (fd < 0)
		return fd;
	ret = fill_pool(fd, TOW_SLAB, filler->seed, &filler->zero);
	if (!ret && !filler->zero)
		ret = -EBADMSG;
	close(fd);
	return ret;
}

/* The same between users. */
TEST_F_TIMEOUT(reuse, no_contents_pass_between_users, 60)
{
	struct filler filler = { .zero = true };
	int i;

	ASSERT_EQ(0, chmod(tow_test_path(), 0666));
	for (i = 0; i < 4; i++) {
		filler.seed = FIRST + i;
		EXPECT_EQ(0, tow_as(i & 1 ? TOW_NOBODY : TOW_ROOT, fill_as_child, &filler));
	}
}

/* ---- pages that the kernel still uses ---------------------------------------- */

/*
 * What the case holds back: the frames of one slab, whose pages something in
 * the kernel uses.  Its region is given up; the pool goes round completely.
 */
struct held {
	uint64_t frame;		/* the first of the slab's */
	uint64_t retired;
};

/* Before the region of this mapping is given up. */
static void begin_hold(struct __test_metadata *_metadata, struct held *held,
		       const struct tow_mapped *mapped)
{
	ASSERT_TRUE(tow_frames_of(mapped->at, 1, &held->frame));
	held->retired = tow_sysfs_get("stats/retired_slabs");
}

/*
 * Everything in the pool belongs to the next owner now, who writes to all of
 * it.  None of it is what was held back, and nobody was told there is less.
 */
static void check_next_owner(struct __test_metadata *_metadata, int fd, const struct held *held)
{
	static uint64_t frames[POOL_BYTES / 4096];
	size_t page = (size_t)sysconf(_SC_PAGESIZE), i;
	struct tow_mapped next;

	EXPECT_TRUE(tow_pool_unused());
	EXPECT_EQ(held->retired + 1, tow_sysfs_wait("stats/retired_slabs", held->retired + 1));
	EXPECT_EQ(POOL_BYTES, tow_sysfs_wait("pool_bytes", POOL_BYTES));
	ASSERT_EQ(0, tow_mapped_make(fd, POOL_BYTES, &next));
	EXPECT_TRUE(tow_is_zero(next.at, next.bytes));
	ASSERT_TRUE(tow_frames_of(next.at, next.bytes / page, frames));
	for (i = 0; i < next.bytes / page; i++) {
		EXPECT_FALSE(frames[i] >= held->frame &&
			     (frames[i] - held->frame) * page < TOW_SLAB)
			TH_LOG("page %zu is in use elsewhere", i);
	}
	tow_fill(next.at, next.bytes, THIRD);
	EXPECT_EQ(0, tow_mapped_end(&next));
}

/* A pipe holds 16 pages of the old owner's. */
TEST_F_TIMEOUT(reuse, held_by_a_pipe, 60)
{
	size_t bytes = 16 * self->page, got = 0;
	struct tow_mapped mapped;
	struct held held;
	struct iovec part;
	char *copy = malloc(bytes);
	int ends[2];

	ASSERT_NE(NULL, copy);
	ASSERT_EQ(0, pipe(ends));
	ASSERT_EQ(0, tow_mapped_make(self->fd, TOW_SLAB, &mapped));
	tow_fill(mapped.at, mapped.bytes, FIRST);
	begin_hold(_metadata, &held, &mapped);
	part = (struct iovec){ .iov_base = mapped.at, .iov_len = bytes };
	ASSERT_EQ((ssize_t)bytes, vmsplice(ends[1], &part, 1, 0));
	ASSERT_EQ(0, tow_mapped_end(&mapped));
	check_next_owner(_metadata, self->fd, &held);
	/* The reader gets what the old owner wrote. */
	while (got < bytes) {
		ssize_t some = read(ends[0], copy + got, bytes - got);

		ASSERT_LT(0, some);
		got += (size_t)some;
	}
	EXPECT_EQ(0, tow_differs(copy, bytes, FIRST));
	close(ends[0]);
	close(ends[1]);
	free(copy);
}

/* Small slabs are the whole's parts: the same for one of them. */
TEST_F_TIMEOUT(reuse, small_region_held_by_a_pipe, 60)
{
	uint64_t retired = tow_sysfs_get("stats/retired_slabs"), frame, other;
	struct tow_mapped mapped;
	struct iovec part;
	char copy[4096];
	size_t i, count = 0;
	struct tow_mapped others[POOL_BYTES / TOW_SMALL_SLAB];
	int ends[2];

	ASSERT_EQ(0, pipe(ends));
	ASSERT_EQ(0, tow_mapped_make(self->fd, 1, &mapped));
	tow_fill(mapped.at, mapped.bytes, FIRST);
	ASSERT_TRUE(tow_frames_of(mapped.at, 1, &frame));
	part = (struct iovec){ .iov_base = mapped.at, .iov_len = sizeof(copy) };
	ASSERT_EQ(sizeof(copy), vmsplice(ends[1], &part, 1, 0));
	ASSERT_EQ(0, tow_mapped_end(&mapped));
	EXPECT_EQ(retired + 1, tow_sysfs_wait("stats/retired_slabs", retired + 1));
	for (i = 0; i < ARRAY_SIZE(others); i++) {
		if (tow_mapped_make(self->fd, 1, &others[i]))
			break;
		EXPECT_TRUE(tow_is_zero(others[i].at, others[i].bytes));
		ASSERT_TRUE(tow_frames_of(others[i].at, 1, &other));
		EXPECT_NE(frame, other);
		tow_fill(others[i].at, others[i].bytes, THIRD);
		count++;
	}
	EXPECT_LT(TOW_SLAB / TOW_SMALL_SLAB, count);
	ASSERT_EQ(sizeof(copy), read(ends[0], copy, sizeof(copy)));
	EXPECT_EQ(0, tow_differs(copy, sizeof(copy), FIRST));
	while (count-- > 0) {
		EXPECT_EQ(0, tow_mapped_end(&others[count]));
	}
	close(ends[0]);
	close(ends[1]);
}

/* A registration of plain libibverbs: the device may write there at any time. */
TEST_F_TIMEOUT(reuse, held_by_a_registration, 60)
{
	struct ibv_context *context = tow_verbs_open(tow_test_device());
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct tow_mapped mapped;
	struct held held;

	ASSERT_NE(NULL, context);
	pd = ibv_alloc_pd(context);
	ASSERT_NE(NULL, pd);
	ASSERT_EQ(0, tow_mapped_make(self->fd, TOW_SLAB, &mapped));
	tow_fill(mapped.at, mapped.bytes, FIRST);
	begin_hold(_metadata, &held, &mapped);
	mr = ibv_reg_mr(pd, mapped.at, mapped.bytes,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	ASSERT_NE(NULL, mr)
		TH_LOG("ibv_reg_mr: %s", strerror(errno));
	ASSERT_EQ(0, tow_mapped_end(&mapped));
	check_next_owner(_metadata, self->fd, &held);
	EXPECT_EQ(0, ibv_dereg_mr(mr));
	ibv_dealloc_pd(pd);
	ibv_close_device(context);
}

/* The io_uring of 6.1 takes no memory of files but shmem's. */
static bool io_uring_takes_files(void)
{
	struct utsname kernel;

	return !uname(&kernel) && strncmp(kernel.release, "6.1.", 4);
}

/* io_uring's registered buffers are pinned as direct I/O pins, and stay so. */
TEST_F_TIMEOUT(reuse, held_by_io_uring, 60)
{
	struct io_uring_params params = { 0 };
	struct tow_mapped mapped;
	struct held held;
	struct iovec part;
	int ring = (int)syscall(SYS_io_uring_setup, 4, &params);

	ASSERT_LE(0, ring);
	ASSERT_EQ(0, tow_mapped_make(self->fd, TOW_SLAB, &mapped));
	tow_fill(mapped.at, mapped.bytes, FIRST);
	begin_hold(_metadata, &held, &mapped);
	part = (struct iovec){ .iov_base = mapped.at, .iov_len = mapped.bytes };
	if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &part, 1)) {
		/* Then nothing holds it. */
		EXPECT_EQ(EOPNOTSUPP, errno);
		EXPECT_FALSE(io_uring_takes_files());
		EXPECT_EQ(0, tow_mapped_end(&mapped));
		close(ring);
		return;
	}
	ASSERT_EQ(0, tow_mapped_end(&mapped));
	check_next_owner(_metadata, self->fd, &held);
	ASSERT_EQ(0, syscall(SYS_io_uring_register, ring, IORING_UNREGISTER_BUFFERS, NULL, 0));
	close(ring);
}

/* What the lab's disk takes in one request: more is read piece by piece. */
#define DIRECT_BYTES	(256 * TOW_KB)

struct direct {
	pthread_t thread;
	int file;
	char *at;
	size_t bytes;
	atomic_int reads;
	int error;
};

/* Direct reads into the region, until its mapping is gone. */
static void *read_directly(void *arg)
{
	struct direct *direct = arg;

	while (pread(direct->file, direct->at, direct->bytes, 0) > 0)
		direct->reads++;
	direct->error = errno;
	return NULL;
}

/* The mapping gives way to one that nobody can write to. */
static bool take_away(const struct tow_mapped *mapped)
{
	return mmap(mapped->at, mapped->bytes, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == mapped->at;
}

/*
 * The region is given up in the middle of a direct read: what the disk still
 * sends goes nowhere near the next owner.
 */
static void direct_round(struct __test_metadata *_metadata, int fd, int file, long delay_us)
{
	struct direct direct = { .file = file, .bytes = DIRECT_BYTES };
	struct tow_mapped mapped, next;

	ASSERT_EQ(0, tow_mapped_make(fd, TOW_SLAB, &mapped));
	direct.at = mapped.at;
	ASSERT_EQ(0, pthread_create(&direct.thread, NULL, read_directly, &direct));
	while (!direct.reads)
		usleep(100);
	usleep((useconds_t)delay_us);
	ASSERT_TRUE(take_away(&mapped));
	ASSERT_EQ(0, tow_region_end(fd, &mapped.made));
	/* One slab may have to be replaced first: the caller waits for that. */
	ASSERT_EQ(0, tow_mapped_make(fd, POOL_BYTES, &next))
		TH_LOG("of %llu bytes", (unsigned long long)tow_sysfs_get("pool_bytes"));
	EXPECT_TRUE(tow_is_zero(next.at, next.bytes));
	tow_fill(next.at, next.bytes, THIRD);
	pthread_join(direct.thread, NULL);
	EXPECT_EQ(EFAULT, direct.error);
	EXPECT_EQ(0, tow_differs(next.at, next.bytes, THIRD));
	EXPECT_EQ(0, tow_mapped_end(&next));
	munmap(mapped.at, mapped.bytes);
}

TEST_F_TIMEOUT(reuse, given_up_during_direct_reads, 120)
{
	int file = open("/usr/bin/python3", O_RDONLY | O_DIRECT | O_CLOEXEC);
	int i;

	ASSERT_LE(0, file)
		TH_LOG("no direct I/O here: %s", strerror(errno));
	for (i = 0; i < 12; i++)
		direct_round(_metadata, self->fd, file, 137L * i);
	close(file);
}

TEST_HARNESS_MAIN
