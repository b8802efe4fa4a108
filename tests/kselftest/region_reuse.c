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
#include "tow_hotplug.h"
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

/* Small slabs come last, as they stay: every piece changes hands. */
TEST_F_TIMEOUT(reuse, new_memory_is_zero, 120)
{
	static const size_t sizes[] = {
		TOW_SLAB, POOL_BYTES, TOW_SLAB, TOW_SMALL_REGION, TOW_SMALL_SLAB,
		TOW_SMALL_REGION,
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

/* The first frame of a slab that the case holds, before its region is given up. */
static void begin_hold(struct __test_metadata *_metadata, uint64_t *frame,
		       const struct tow_mapped *mapped)
{
	ASSERT_TRUE(tow_frames_of(mapped->at, 1, frame));
}

/*
 * All of the pool but what is held belongs to the next owner now, who writes to all of
 * it.  None of it is what is held.
 */
static void check_next_owner(struct __test_metadata *_metadata, int fd, uint64_t frame)
{
	static uint64_t frames[POOL_BYTES / 4096];
	size_t page = (size_t)sysconf(_SC_PAGESIZE), i;
	struct tow_mapped next;

	EXPECT_EQ(TOW_SLAB, tow_sysfs_get("pool_held_bytes"));
	EXPECT_EQ(1, tow_sysfs_get("stats/held_slabs"));
	EXPECT_EQ(TOW_SLAB, tow_sysfs_get("pool_used_bytes"));
	EXPECT_EQ(POOL_BYTES, tow_sysfs_get("pool_bytes"));
	EXPECT_EQ(-ENOSPC, tow_mapped_make(fd, POOL_BYTES, &next));
	ASSERT_EQ(0, tow_mapped_make(fd, POOL_BYTES - TOW_SLAB, &next));
	EXPECT_TRUE(tow_is_zero(next.at, next.bytes));
	ASSERT_TRUE(tow_frames_of(next.at, next.bytes / page, frames));
	for (i = 0; i < next.bytes / page; i++) {
		EXPECT_FALSE(frames[i] >= frame && (frames[i] - frame) * page < TOW_SLAB)
			TH_LOG("page %zu is in use elsewhere", i);
	}
	tow_fill(next.at, next.bytes, THIRD);
	EXPECT_EQ(0, tow_mapped_end(&next));
}

/* What was held was let go of: whoever wants all of the pool has it at once. */
static void check_let_go(struct __test_metadata *_metadata, int fd)
{
	struct tow_mapped all;

	ASSERT_EQ(0, tow_mapped_make(fd, POOL_BYTES, &all));
	EXPECT_TRUE(tow_is_zero(all.at, all.bytes));
	EXPECT_EQ(0, tow_sysfs_get("pool_held_bytes"));
	EXPECT_EQ(0, tow_mapped_end(&all));
}

/* A pipe holds 16 pages of the old owner's. */
TEST_F_TIMEOUT(reuse, held_by_a_pipe, 60)
{
	size_t bytes = 16 * self->page, got = 0;
	struct tow_mapped mapped;
	uint64_t held;
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
	check_next_owner(_metadata, self->fd, held);
	/* The reader gets what the old owner wrote. */
	while (got < bytes) {
		ssize_t some = read(ends[0], copy + got, bytes - got);

		ASSERT_LT(0, some);
		got += (size_t)some;
	}
	EXPECT_EQ(0, tow_differs(copy, bytes, FIRST));
	check_let_go(_metadata, self->fd);
	close(ends[0]);
	close(ends[1]);
	free(copy);
}

/* Small slabs are the whole's parts: the same for one of them. */
TEST_F_TIMEOUT(reuse, small_region_held_by_a_pipe, 60)
{
	struct tow_mapped mapped;
	uint64_t frame, other;
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
	EXPECT_EQ(TOW_SMALL_SLAB, tow_sysfs_get("pool_held_bytes"));
	for (i = 0; i < ARRAY_SIZE(others); i++) {
		if (tow_mapped_make(self->fd, 1, &others[i]))
			break;
		EXPECT_TRUE(tow_is_zero(others[i].at, others[i].bytes));
		ASSERT_TRUE(tow_frames_of(others[i].at, 1, &other));
		EXPECT_NE(frame, other);
		tow_fill(others[i].at, others[i].bytes, THIRD);
		count++;
	}
	EXPECT_EQ(ARRAY_SIZE(others) - 1, count);
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
	uint64_t held;

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
	check_next_owner(_metadata, self->fd, held);
	EXPECT_EQ(0, ibv_dereg_mr(mr));
	check_let_go(_metadata, self->fd);
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
	uint64_t held;
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
	check_next_owner(_metadata, self->fd, held);
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
	int ret;

	ASSERT_EQ(0, tow_mapped_make(fd, TOW_SLAB, &mapped));
	direct.at = mapped.at;
	ASSERT_EQ(0, pthread_create(&direct.thread, NULL, read_directly, &direct));
	while (!direct.reads)
		usleep(100);
	usleep((useconds_t)delay_us);
	ASSERT_TRUE(take_away(&mapped));
	ASSERT_EQ(0, tow_region_end(fd, &mapped.made));
	/* One slab may be held for a moment. */
	ret = tow_mapped_make(fd, POOL_BYTES, &next);
	if (ret == -ENOSPC)
		ret = tow_mapped_make(fd, POOL_BYTES - TOW_SLAB, &next);
	ASSERT_EQ(0, ret);
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

/* ---- a user's quota ------------------------------------------------------------ */

/* Slabs that a user may have, all of which he holds by one page each. */
#define QUOTA_SLABS	3

/* What holds the pages. */
struct grip {
	int ends[2];
	int ring;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr[QUOTA_SLABS];
};

static int hold_in_pipe(struct grip *grip, struct iovec *pages)
{
	ssize_t bytes = (ssize_t)(QUOTA_SLABS * pages[0].iov_len);

	if (pipe(grip->ends))
		return -errno;
	return vmsplice(grip->ends[1], pages, QUOTA_SLABS, 0) == bytes ? 0 : -EIO;
}

static void let_go_of_pipe(struct grip *grip)
{
	close(grip->ends[0]);
	close(grip->ends[1]);
}

static int hold_in_ring(struct grip *grip, struct iovec *pages)
{
	struct io_uring_params params = { 0 };

	grip->ring = (int)syscall(SYS_io_uring_setup, 4, &params);
	if (grip->ring < 0)
		return -errno;
	return syscall(SYS_io_uring_register, grip->ring, IORING_REGISTER_BUFFERS, pages,
		       QUOTA_SLABS) ? -errno : 0;
}

static void let_go_of_ring(struct grip *grip)
{
	syscall(SYS_io_uring_register, grip->ring, IORING_UNREGISTER_BUFFERS, NULL, 0);
	close(grip->ring);
}

static int hold_by_registration(struct grip *grip, struct iovec *pages)
{
	int i;

	grip->context = tow_verbs_open(tow_test_device());
	grip->pd = grip->context ? ibv_alloc_pd(grip->context) : NULL;
	if (!grip->pd)
		return -EIO;
	for (i = 0; i < QUOTA_SLABS; i++) {
		grip->mr[i] = ibv_reg_mr(grip->pd, pages[i].iov_base, pages[i].iov_len,
					 IBV_ACCESS_LOCAL_WRITE);
		if (!grip->mr[i])
			return -errno;
	}
	return 0;
}

static void let_go_of_registration(struct grip *grip)
{
	int i;

	for (i = 0; i < QUOTA_SLABS; i++)
		ibv_dereg_mr(grip->mr[i]);
	ibv_dealloc_pd(grip->pd);
	ibv_close_device(grip->context);
}

struct way {
	int (*hold)(struct grip *grip, struct iovec *pages);
	void (*let_go)(struct grip *grip);
};

/* Not an errno: what went wrong. */
enum { NOT_HELD = -300, NOT_CHARGED, NOT_CHARGED_WHEN_CLOSED, NOT_COUNTED, NOT_LET_GO };

static int hold_pages(const struct way *way, struct grip *grip, int fd)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct iovec pages[QUOTA_SLABS];
	struct tow_mapped mapped;
	int i, ret;

	ret = tow_mapped_make(fd, QUOTA_SLABS * TOW_SLAB, &mapped);
	if (ret)
		return ret;
	tow_fill(mapped.at, mapped.bytes, FIRST);
	for (i = 0; i < QUOTA_SLABS; i++)
		pages[i] = (struct iovec){ mapped.at + i * TOW_SLAB, page };
	ret = way->hold(grip, pages);
	return tow_mapped_end(&mapped) ? -EIO : ret;
}

/* With its region and its file closed he has his quota still. */
static int hold_quota(void *arg)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	const struct way *way = arg;
	int fd = tow_test_open(O_RDWR), ret;
	struct tow_region_create made;
	struct grip grip = { 0 };

	ret = hold_pages(way, &grip, fd);
	if (ret)
		return way->hold == hold_in_ring && ret == -EOPNOTSUPP ? ret : NOT_HELD;
	if (tow_region_create(fd, TOW_SLAB, &made) != -EDQUOT)
		return NOT_CHARGED;
	close(fd);
	fd = tow_test_open(O_RDWR);
	if (tow_region_create(fd, TOW_SLAB, &made) != -EDQUOT)
		return NOT_CHARGED_WHEN_CLOSED;
	if (tow_sysfs_get("pool_held_bytes") != QUOTA_SLABS * TOW_SLAB ||
	    tow_sysfs_get("pool_used_bytes") != QUOTA_SLABS * TOW_SLAB ||
	    tow_sysfs_get("pool_bytes") != POOL_BYTES)
		return NOT_COUNTED;
	way->let_go(&grip);
	while ((ret = tow_region_create(fd, QUOTA_SLABS * TOW_SLAB, &made)) == -EDQUOT &&
	       tow_patient(&patience))
		tow_test_sleep_ms(10);
	return ret ? NOT_LET_GO : 0;
}

static const struct way ways[] = {
	{ hold_in_pipe, let_go_of_pipe },
	{ hold_by_registration, let_go_of_registration },
	{ hold_in_ring, let_go_of_ring },
};

/* A page of each slab is the slab: whatever he closes, it is charged to him. */
TEST_F_TIMEOUT(reuse, held_slabs_are_charged, 120)
{
	size_t i;
	int ret;

	ASSERT_EQ(0, tow_sysfs_set("user_bytes_limit", QUOTA_SLABS * TOW_SLAB));
	ASSERT_EQ(0, chmod(tow_test_path(), 0666));
	for (i = 0; i < ARRAY_SIZE(ways); i++) {
		struct way way = ways[i];

		ret = tow_as(TOW_NOBODY, hold_quota, &way);
		if (ret == -EOPNOTSUPP) {
			EXPECT_FALSE(io_uring_takes_files());
			continue;
		}
		EXPECT_EQ(0, ret)
			TH_LOG("way %zu; see enum NOT_HELD and the following", i);
		/* What a process held goes with it. */
		EXPECT_TRUE(tow_pool_unused());
	}
}

/* Removal does not wait for who holds pages; what they hold is there still. */
TEST_F_TIMEOUT(reuse, removal_with_held_memory, 60)
{
	char name[NAME_MAX + 1], interface[64], copy[4096];
	struct tow_mapped mapped;
	struct iovec part;
	int ends[2];

	snprintf(name, sizeof(name), "%s", tow_test_device());
	snprintf(interface, sizeof(interface), "%s", tow_link_interface());
	ASSERT_EQ(0, pipe(ends));
	ASSERT_EQ(0, tow_mapped_make(self->fd, TOW_SLAB, &mapped));
	tow_fill(mapped.at, mapped.bytes, FIRST);
	part = (struct iovec){ .iov_base = mapped.at, .iov_len = sizeof(copy) };
	ASSERT_EQ(sizeof(copy), vmsplice(ends[1], &part, 1, 0));
	ASSERT_EQ(0, tow_mapped_end(&mapped));
	EXPECT_EQ(TOW_SLAB, tow_sysfs_get("pool_held_bytes"));
	ASSERT_TRUE(tow_link_del(name));
	ASSERT_TRUE(tow_wait_path(tow_test_path(), false));
	ASSERT_TRUE(tow_link_add(name, interface));
	ASSERT_TRUE(tow_wait_path(tow_test_path(), true));
	ASSERT_EQ(sizeof(copy), read(ends[0], copy, sizeof(copy)));
	EXPECT_EQ(0, tow_differs(copy, sizeof(copy), FIRST));
	close(ends[0]);
	close(ends[1]);
}

/* ---- hardware errors ------------------------------------------------------------ */

/* Of /proc/kpageflags. */
#define KPF_HWPOISON	19

static bool is_poisoned(uint64_t frame)
{
	int fd = open("/proc/kpageflags", O_RDONLY | O_CLOEXEC);
	uint64_t flags = 0;
	bool known = pread(fd, &flags, sizeof(flags), (off_t)(frame * sizeof(flags))) ==
		     sizeof(flags);

	close(fd);
	return known && flags >> KPF_HWPOISON & 1;
}

/* By a child, which a signal may end: it is as if it had touched the page. */
static void poison(void *at, size_t bytes)
{
	pid_t child = fork();

	if (!child) {
		madvise(at, bytes, MADV_HWPOISON);
		_exit(0);
	}
	waitpid(child, NULL, 0);
}

/* A page in the midst of a region has a hardware error: nobody has its chunk any more. */
static void lose_memory(struct __test_metadata *_metadata, int fd, size_t page, size_t bytes)
{
	uint64_t lost = tow_sysfs_get("stats/poisoned_chunks"), frame;
	uint64_t pool = tow_sysfs_get("pool_bytes");
	struct tow_mapped mapped, next;
	int log = tow_log_open();
	size_t at;

	ASSERT_LE(0, log);
	ASSERT_EQ(0, tow_mapped_make(fd, bytes, &mapped));
	tow_fill(mapped.at, mapped.bytes, FIRST);
	ASSERT_TRUE(tow_frames_of(mapped.at + 5 * page, 1, &frame));
	poison(mapped.at + 5 * page, page);
	ASSERT_TRUE(is_poisoned(frame));
	ASSERT_EQ(0, tow_mapped_end(&mapped));
	EXPECT_EQ(pool - bytes, tow_sysfs_wait("pool_bytes", pool - bytes));
	EXPECT_EQ(lost + 1, tow_sysfs_wait("stats/poisoned_chunks", lost + 1));
	EXPECT_TRUE(tow_log_says(log, "memory with a hardware error is used no more"));
	/* It starts again, and has other memory. */
	ASSERT_EQ(0, tow_mapped_make(fd, bytes, &next));
	for (at = 0; at < next.bytes; at += page) {
		next.at[at] = 1;
		ASSERT_TRUE(tow_frames_of(next.at + at, 1, &frame));
		EXPECT_FALSE(is_poisoned(frame));
	}
	EXPECT_EQ(0, tow_mapped_end(&next));
	close(log);
}

TEST_F_TIMEOUT(reuse, poisoned_memory_never_comes_back, 60)
{
	if (access("/proc/sys/vm/memory_failure_recovery", F_OK))
		SKIP(return, "this kernel has no MADV_HWPOISON");
	lose_memory(_metadata, self->fd, self->page, TOW_SLAB);
	lose_memory(_metadata, self->fd, self->page, TOW_SMALL_SLAB);
	/* Written again, the size is what it was: of other memory. */
	EXPECT_EQ(0, tow_sysfs_set("pool_bytes", POOL_BYTES));
	EXPECT_EQ(POOL_BYTES, tow_sysfs_get("pool_bytes"));
}

TEST_HARNESS_MAIN
