// SPDX-License-Identifier: GPL-2.0
/*
 * TOW_IOCTL_QUERY and open(2): the size negotiation that every call follows,
 * every error, and memory that is not there, on every byte where that matters.
 * What the fields say is checked in query_fields.c.
 */
/* build: also 32-bit */

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include "tow_test.h"

#define PUBLISHED	TOW_TEST_QUERY_PUBLISHED
#define KERNEL_MAX	4096U	/* no call takes more */
/* A command that there is not. */
#define UNUSED		255

FIXTURE(query)
{
	int fd;
	size_t page;
	/* Three pages that can be read and written, then one that is not there. */
	unsigned char *area;
	unsigned char *end;
};

FIXTURE_SETUP(query)
{
	self->page = (size_t)sysconf(_SC_PAGESIZE);
	self->fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, self->fd)
		TH_LOG("%s: %s", tow_test_path(), strerror(-self->fd));
	self->area = mmap(NULL, 4 * self->page, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)self->area);
	self->end = self->area + 3 * self->page;
	ASSERT_EQ(0, munmap(self->end, self->page));
}

FIXTURE_TEARDOWN(query)
{
	munmap(self->area, 3 * self->page);
	close(self->fd);
}

/* A good query of a given size, at any address; what follows is zero. */
static void put_query(void *at, __u32 size)
{
	struct tow_query query = { .size = size };

	memset(at, 0, size);
	memcpy(at, &query, size < sizeof(query) ? size : sizeof(query));
}

static int ask(int fd, void *at)
{
	return tow_test_ioctl(fd, TOW_IOCTL_QUERY, at);
}

TEST(published_size_never_grows)
{
	ASSERT_LE((size_t)PUBLISHED, sizeof(struct tow_query));
	ASSERT_EQ(0, offsetof(struct tow_query, size));
}

TEST_F(query, exact)
{
	struct tow_query query;

	ASSERT_EQ(0, tow_test_query(self->fd, &query));
	EXPECT_EQ(sizeof(query), query.size);
	EXPECT_EQ(0, query.flags);
	EXPECT_EQ(0, query.reserved);
	EXPECT_EQ(TOW_UAPI_VERSION, query.uapi_version);
}

TEST_F(query, short_is_einval)
{
	__u32 size;

	for (size = 0; size < PUBLISHED; size++) {
		put_query(self->area, sizeof(struct tow_query));
		memcpy(self->area, &size, sizeof(size));
		EXPECT_EQ(-EINVAL, ask(self->fd, self->area))
			TH_LOG("size %u", size);
	}
}

/* The words behind the size may be missing altogether. */
TEST_F(query, short_reads_only_the_size)
{
	__u32 sizes[] = { 0, 1, 4, PUBLISHED - 1 };
	unsigned char *at = self->end - sizeof(__u32);
	size_t i;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		memcpy(at, &sizes[i], sizeof(__u32));
		EXPECT_EQ(-EINVAL, ask(self->fd, at))
			TH_LOG("size %u", sizes[i]);
	}
}

/* A program compiled against the first header works for ever. */
TEST_F(query, published_size_is_accepted)
{
	struct tow_query query = { .size = PUBLISHED };

	ASSERT_EQ(0, ask(self->fd, &query));
	EXPECT_EQ(PUBLISHED, query.size);
	EXPECT_EQ(TOW_UAPI_VERSION, query.uapi_version);
}

TEST_F(query, long_with_zero_tail_is_accepted)
{
	__u32 sizes[] = { sizeof(struct tow_query) + 1, sizeof(struct tow_query) + 4,
			  sizeof(struct tow_query) + 7, sizeof(struct tow_query) + 8,
			  1024, KERNEL_MAX - 1, KERNEL_MAX };
	size_t i, tail;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		memset(self->area, 0xa5, 2 * self->page);
		put_query(self->area, sizes[i]);
		ASSERT_EQ(0, ask(self->fd, self->area))
			TH_LOG("size %u", sizes[i]);
		EXPECT_EQ(sizeof(struct tow_query), ((struct tow_query *)self->area)->size);
		for (tail = sizeof(struct tow_query); tail < sizes[i]; tail++) {
			ASSERT_EQ(0, self->area[tail])
				TH_LOG("size %u: byte %zu written", sizes[i], tail);
		}
		ASSERT_EQ(0xa5, self->area[sizes[i]])
			TH_LOG("size %u: written beyond", sizes[i]);
	}
}

TEST_F(query, long_with_nonzero_tail_is_e2big)
{
	__u32 sizes[] = { sizeof(struct tow_query) + 1, sizeof(struct tow_query) + 24,
			  KERNEL_MAX };
	size_t i, bad;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		size_t step = sizes[i] == KERNEL_MAX ? 97 : 1;

		for (bad = sizeof(struct tow_query); bad < sizes[i]; bad += step) {
			put_query(self->area, sizes[i]);
			self->area[bad] = 1;
			EXPECT_EQ(-E2BIG, ask(self->fd, self->area))
				TH_LOG("size %u, byte %zu", sizes[i], bad);
		}
		put_query(self->area, sizes[i]);
		self->area[sizes[i] - 1] = 0x80;
		EXPECT_EQ(-E2BIG, ask(self->fd, self->area));
	}
}

/* Above the limit nothing but the size is looked at. */
TEST_F(query, huge_is_e2big)
{
	__u32 sizes[] = { KERNEL_MAX + 1, 8192, 1U << 20, INT_MAX, 1U << 31, UINT_MAX - 3,
			  UINT_MAX };
	unsigned char *at = self->end - sizeof(__u32);
	size_t i;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		memset(self->area, 0, 2 * self->page);
		memcpy(self->area, &sizes[i], sizeof(__u32));
		EXPECT_EQ(-E2BIG, ask(self->fd, self->area))
			TH_LOG("size %u", sizes[i]);
		memcpy(at, &sizes[i], sizeof(__u32));
		EXPECT_EQ(-E2BIG, ask(self->fd, at))
			TH_LOG("size %u, nothing behind it", sizes[i]);
	}
}

TEST_F(query, unknown_flags_are_einval)
{
	struct tow_query query;
	int bit;

	for (bit = 0; bit < 32; bit++) {
		memset(&query, 0, sizeof(query));
		query.size = sizeof(query);
		query.flags = 1U << bit;
		EXPECT_EQ(-EINVAL, ask(self->fd, &query))
			TH_LOG("bit %d", bit);
	}
}

TEST_F(query, nonzero_reserved_is_einval)
{
	struct tow_query query;
	int bit;

	for (bit = 0; bit < 32; bit++) {
		memset(&query, 0, sizeof(query));
		query.size = sizeof(query);
		query.reserved = 1U << bit;
		EXPECT_EQ(-EINVAL, ask(self->fd, &query))
			TH_LOG("bit %d", bit);
	}
}

/* Fields that are only written may hold anything on the way in. */
TEST_F(query, garbage_in_output_fields_is_fine)
{
	struct tow_query clean, dirty;

	ASSERT_EQ(0, tow_test_query(self->fd, &clean));
	memset(&dirty, 0xff, sizeof(dirty));
	dirty.size = sizeof(dirty);
	dirty.flags = 0;
	dirty.reserved = 0;
	ASSERT_EQ(0, ask(self->fd, &dirty));
	EXPECT_EQ(0, memcmp(&clean, &dirty, sizeof(clean)));
}

/* What is wrong with the size comes before what is wrong with the content. */
TEST_F(query, order_of_errors)
{
	struct tow_query query = { .size = PUBLISHED - 1, .flags = 1 };

	EXPECT_EQ(-EINVAL, ask(self->fd, &query));
	put_query(self->area, sizeof(struct tow_query) + 8);
	self->area[offsetof(struct tow_query, flags)] = 1;
	self->area[sizeof(struct tow_query)] = 1;
	EXPECT_EQ(-E2BIG, ask(self->fd, self->area));
	/* No such call: the argument is not looked at. */
	EXPECT_EQ(-ENOTTY, tow_test_ioctl(self->fd, _IO(TOW_IOCTL_TYPE, UNUSED), NULL));
}

TEST_F(query, refusals_write_nothing)
{
	struct tow_query query, before;

	memset(&query, 0x5a, sizeof(query));
	query.size = sizeof(query);
	query.flags = 1;
	before = query;
	EXPECT_EQ(-EINVAL, ask(self->fd, &query));
	EXPECT_EQ(0, memcmp(&before, &query, sizeof(query)));
	query.size = 4;
	before = query;
	EXPECT_EQ(-EINVAL, ask(self->fd, &query));
	EXPECT_EQ(0, memcmp(&before, &query, sizeof(query)));
}

TEST_F(query, no_such_address)
{
	void *nowhere[] = {
		NULL,
		(void *)1,
		self->end,
		self->end + 1,
		(void *)-1L,
		(void *)-4096L,
#if ULONG_MAX > UINT_MAX
		(void *)0xffff888000000000,	/* the kernel's own memory */
		(void *)0xffffffff81000000,	/* the kernel's text */
		(void *)0x8000000000000000,	/* not canonical */
		(void *)0x00007ffffffff000,	/* the last page of user space */
#else
		(void *)0xc0000000,
#endif
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(nowhere); i++) {
		EXPECT_EQ(-EFAULT, ask(self->fd, nowhere[i]))
			TH_LOG("%p", nowhere[i]);
	}
}

/* The structure ends k bytes too late, for every k. */
TEST_F(query, missing_page_at_every_offset)
{
	size_t size = sizeof(struct tow_query);
	unsigned char *at;
	size_t missing;

	for (missing = 1; missing < size; missing++) {
		at = self->end - size + missing;
		memset(at, 0, size - missing);
		if (size - missing >= sizeof(__u32))
			memcpy(at, &(__u32){ size }, sizeof(__u32));
		EXPECT_EQ(-EFAULT, ask(self->fd, at))
			TH_LOG("%zu bytes missing", missing);
	}
	at = self->end - size;
	put_query(at, size);
	EXPECT_EQ(0, ask(self->fd, at));
}

/* The kernel looks whether the tail is zero, and there is none. */
TEST_F(query, missing_page_in_the_tail)
{
	size_t size = sizeof(struct tow_query);
	size_t tails[] = { 1, 2, 8, 100, KERNEL_MAX - sizeof(struct tow_query) };
	size_t i, there;

	for (i = 0; i < ARRAY_SIZE(tails); i++) {
		for (there = 0; there < tails[i] && there < 16; there++) {
			unsigned char *at = self->end - size - there;

			put_query(at, size);
			memset(at + size, 0, there);
			memcpy(at, &(__u32){ size + tails[i] }, sizeof(__u32));
			EXPECT_EQ(-EFAULT, ask(self->fd, at))
				TH_LOG("tail %zu, %zu of it there", tails[i], there);
		}
	}
}

/* Neither alignment nor a page boundary in the middle matters. */
TEST_F(query, any_address_works)
{
	size_t size = sizeof(struct tow_query);
	unsigned char *boundary = self->area + self->page;
	struct tow_query query;
	size_t before;

	for (before = 0; before <= size; before += before < 17 ? 1 : 13) {
		/* Both pages gone: the kernel must fault them in. */
		ASSERT_EQ(0, madvise(self->area, 2 * self->page, MADV_DONTNEED));
		put_query(boundary - before, size);
		ASSERT_EQ(0, ask(self->fd, boundary - before))
			TH_LOG("%zu bytes before the boundary", before);
		memcpy(&query, boundary - before, size);
		EXPECT_EQ(size, query.size);
		EXPECT_EQ(TOW_UAPI_VERSION, query.uapi_version);
	}
}

TEST_F(query, read_only_memory)
{
	struct tow_query query;

	put_query(self->area, sizeof(query));
	ASSERT_EQ(0, mprotect(self->area, self->page, PROT_READ));
	EXPECT_EQ(-EFAULT, ask(self->fd, self->area));
	memcpy(&query, self->area, sizeof(query));
	EXPECT_EQ(0, query.uapi_version);

	/* Only its second half is read-only. */
	ASSERT_EQ(0, mprotect(self->area, self->page, PROT_READ | PROT_WRITE));
	put_query(self->area + self->page - sizeof(query) / 2, sizeof(query));
	ASSERT_EQ(0, mprotect(self->area + self->page, self->page, PROT_READ));
	EXPECT_EQ(-EFAULT, ask(self->fd, self->area + self->page - sizeof(query) / 2));

	ASSERT_EQ(0, mprotect(self->area + self->page, self->page, PROT_NONE));
	EXPECT_EQ(-EFAULT, ask(self->fd, self->area + self->page - sizeof(query) / 2));
	EXPECT_EQ(0, tow_test_query(self->fd, &query));
}

/* Pages of a file that ends in the middle of the structure. */
TEST_F(query, fault_behind_the_end_of_a_file)
{
	size_t size = sizeof(struct tow_query);
	int file = memfd_create("query", MFD_CLOEXEC);
	unsigned char *map;

	ASSERT_LE(0, file);
	ASSERT_EQ(0, ftruncate(file, (off_t)self->page));
	map = mmap(NULL, 2 * self->page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	ASSERT_NE(MAP_FAILED, (void *)map);
	memcpy(map + self->page - 16, &(__u32){ size }, sizeof(__u32));
	EXPECT_EQ(-EFAULT, ask(self->fd, map + self->page - 16));
	/* The file grows: the same address is good now. */
	ASSERT_EQ(0, ftruncate(file, (off_t)(2 * self->page)));
	put_query(map + self->page - 16, size);
	EXPECT_EQ(0, ask(self->fd, map + self->page - 16));
	munmap(map, 2 * self->page);
	close(file);
}

/* Every command that there is: add each new one. */
static bool is_command(int nr)
{
	return nr <= TOW_CMD_JOIN || nr == TOW_CMD_CLIENT_END || nr == TOW_CMD_ACCOUNT_LIST ||
	       (nr >= TOW_CMD_REGION_CREATE && nr <= TOW_CMD_REGION_END) ||
	       (nr >= TOW_CMD_PEER_CONNECT && nr <= TOW_CMD_PEER_LIST) ||
	       (nr >= TOW_CMD_EXPORT && nr <= TOW_CMD_RELEASE) ||
	       nr == TOW_CMD_QUEUE_CREATE;
}

TEST_F(query, unknown_calls_are_enotty)
{
	struct tow_query query = { .size = sizeof(query) };
	int nr;

	for (nr = 0; nr < 256; nr++) {
		if (is_command(nr))
			continue;
		EXPECT_EQ(-ENOTTY, tow_test_ioctl(self->fd, _IO(TOW_IOCTL_TYPE, nr), &query))
			TH_LOG("number %d", nr);
	}
	EXPECT_EQ(-ENOTTY, tow_test_ioctl(self->fd, _IO(TOW_IOCTL_TYPE + 1, TOW_CMD_QUERY), &query));
	EXPECT_EQ(-ENOTTY, tow_test_ioctl(self->fd, _IO(0, TOW_CMD_QUERY), &query));
	/* The number has neither a direction nor a size. */
	EXPECT_EQ(-ENOTTY, tow_test_ioctl(self->fd, _IOWR(TOW_IOCTL_TYPE, TOW_CMD_QUERY,
							  struct tow_query), &query));
	EXPECT_EQ(-ENOTTY, tow_test_ioctl(self->fd, _IOR(TOW_IOCTL_TYPE, TOW_CMD_QUERY, __u32),
					  &query));
}

TEST_F(query, other_system_calls)
{
	char byte = 0;
	void *map;

	EXPECT_EQ(-1, read(self->fd, &byte, 1));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-1, write(self->fd, &byte, 1));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-1, lseek(self->fd, 0, SEEK_END));
	EXPECT_EQ(ESPIPE, errno);
	map = mmap(NULL, self->page, PROT_READ, MAP_SHARED, self->fd, 0);
	EXPECT_EQ(MAP_FAILED, map);
	EXPECT_EQ(ENODEV, errno);
}

TEST_F(query, open_modes)
{
	struct tow_query query;
	int fd;

	fd = tow_test_open(O_RDONLY);
	ASSERT_LE(0, fd);
	EXPECT_EQ(0, tow_test_query(fd, &query));
	close(fd);

	EXPECT_EQ(-EINVAL, tow_test_open(O_WRONLY));
	EXPECT_EQ(-ENOTDIR, tow_test_open(O_RDWR | O_DIRECTORY));
	EXPECT_EQ(-EEXIST, tow_test_open(O_RDWR | O_CREAT | O_EXCL));

	fd = tow_test_open(O_RDWR | O_NONBLOCK | O_TRUNC | O_APPEND);
	ASSERT_LE(0, fd);
	EXPECT_EQ(0, tow_test_query(fd, &query));
	close(fd);

	fd = tow_test_open(O_PATH);
	ASSERT_LE(0, fd);
	EXPECT_EQ(-EBADF, tow_test_query(fd, &query));
	close(fd);
	EXPECT_EQ(-EBADF, tow_test_query(fd, &query));
}

static volatile sig_atomic_t alarms;

static void count_alarm(int number)
{
	(void)number;
	alarms++;
}

/* Pages that are mapped each in its own way: the first open(2) of a process looks at all. */
static void map_in_pieces(unsigned char *area, size_t page, size_t pages)
{
	size_t i;

	for (i = 0; i < pages; i += 2)
		mprotect(area + i * page, page, PROT_READ);
}

/* A program that has its calls restarted does not see that signals come. */
TEST_F(query, open_is_restarted_after_a_signal)
{
	const size_t pages = tow_test_slow() ? 100 : 400;
	struct itimerval often = { .it_interval.tv_usec = 4000, .it_value.tv_usec = 4000 };
	struct sigaction action = { .sa_handler = count_alarm, .sa_flags = SA_RESTART };
	unsigned char *area = mmap(NULL, pages * self->page, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct tow_patience patience = tow_patience(3);
	int fd = 0;

	ASSERT_NE(MAP_FAILED, (void *)area);
	map_in_pieces(area, self->page, pages);
	/* The process is to be no client when it becomes one. */
	close(self->fd);
	ASSERT_EQ(0, sigaction(SIGALRM, &action, NULL));
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &often, NULL));
	while (fd >= 0 && tow_patient(&patience)) {
		fd = tow_test_open(O_RDWR);
		if (fd >= 0)
			close(fd);
	}
	often = (struct itimerval) { .it_value.tv_sec = 0 };
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &often, NULL));
	EXPECT_LE(0, fd)
		TH_LOG("%s, after %d signals", strerror(-fd), (int)alarms);
	EXPECT_LT(10, alarms);
	self->fd = tow_test_open(O_RDWR);
	EXPECT_LE(0, self->fd);
	munmap(area, pages * self->page);
}

TEST_F(query, many_open_files)
{
	struct rlimit limit = { .rlim_cur = 600, .rlim_max = 600 };
	struct tow_query first, query;
	int fds[500];
	int i;

	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
	ASSERT_EQ(0, tow_test_query(self->fd, &first));
	for (i = 0; i < 500; i++) {
		fds[i] = tow_test_open(i & 1 ? O_RDWR : O_RDONLY);
		ASSERT_LE(0, fds[i])
			TH_LOG("file %d: %s", i, strerror(-fds[i]));
	}
	for (i = 0; i < 500; i++) {
		ASSERT_EQ(0, tow_test_query(fds[i], &query));
		EXPECT_EQ(0, memcmp(first.incarnation, query.incarnation,
				    sizeof(first.incarnation)));
		close(fds[i]);
	}
}

TEST_F(query, duplicates_and_children)
{
	struct tow_query query;
	int fd = dup(self->fd);
	int status;
	pid_t child;

	ASSERT_LE(0, fd);
	child = fork();
	ASSERT_LE(0, child);
	if (!child)
		_exit(tow_test_query(fd, &query) ? 1 : 0);
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, status);
	close(fd);
	EXPECT_EQ(0, tow_test_query(self->fd, &query));
}

struct racer {
	int fd;
	int failures;
};

static void *race(void *arg)
{
	struct racer *racer = arg;
	struct tow_query query;
	int i, fd;

	for (i = 0; i < 300; i++) {
		if (tow_test_query(racer->fd, &query) || query.uapi_version != TOW_UAPI_VERSION)
			racer->failures++;
		fd = tow_test_open(O_RDWR);
		if (fd < 0)
			racer->failures++;
		else
			close(fd);
	}
	return NULL;
}

TEST_F(query, threads)
{
	struct racer racers[4];
	pthread_t threads[4];
	int i;

	for (i = 0; i < 4; i++) {
		racers[i] = (struct racer){ .fd = self->fd };
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, race, &racers[i]));
	}
	for (i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		EXPECT_EQ(0, racers[i].failures);
	}
}

TEST_HARNESS_MAIN
