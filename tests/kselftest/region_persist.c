// SPDX-License-Identifier: GPL-2.0
/*
 * Persistent regions: they outlive their process for a while, still charged,
 * and the next process of the same user and job takes them over with what they
 * hold.  Nobody else does.
 */
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "tow_test.h"
#include "tow_hotplug.h"
#include "tow_identity.h"
#include "tow_region.h"

#define POOL_BYTES	(8 * TOW_SLAB)
#define REGION_BYTES	(2 * TOW_SLAB)
#define NAME		"weights"

/* Longer than any case; as long as the case that waits for it. */
#define LONG_S		60
#define SHORT_S		5

/* Not in a job of its own. */
#define NO_JOB		0

FIXTURE(persist)
{
	struct tow_knobs before;
	char name[NAME_MAX + 1];
	char interface[64];
	int fd;
};

FIXTURE_SETUP(persist)
{
	/* Looked up while the device is there: the later calls remember. */
	snprintf(self->name, sizeof(self->name), "%s", tow_test_device());
	snprintf(self->interface, sizeof(self->interface), "%s", tow_link_interface());
	tow_write_file("/proc/sys/kernel/unprivileged_userns_clone", "1");
	tow_knobs_save(&self->before);
	ASSERT_EQ(0, tow_pool_fresh(POOL_BYTES));
	ASSERT_EQ(0, chmod(tow_test_path(), 0666));
	self->fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, self->fd);
}

static int join(int fd, unsigned char key)
{
	struct tow_join call = { .size = sizeof(call) };

	if (key == NO_JOB)
		return 0;
	memset(call.job_key, key, sizeof(call.job_key));
	return tow_test_ioctl(fd, TOW_IOCTL_JOIN, &call);
}

/* What lingers after a case is over is taken over and destroyed. */
static int sweep_job(void *arg)
{
	struct tow_region_attach made;
	int fd = tow_test_open(O_RDWR);
	int ret = fd < 0 ? fd : join(fd, *(unsigned char *)arg);

	if (!ret)
		ret = tow_region_attach(fd, NAME, &made);
	if (!ret)
		ret = tow_region_destroy(fd, made.handle);
	return ret;
}

static void sweep(void)
{
	unsigned char jobs[] = { NO_JOB, 1 };
	size_t i;

	/* Usually there is nothing: two processes for each job take a while. */
	if (!tow_sysfs_get("pool_used_bytes"))
		return;
	for (i = 0; i < ARRAY_SIZE(jobs); i++) {
		tow_as(TOW_ROOT, sweep_job, &jobs[i]);
		tow_as(TOW_GROUP, sweep_job, &jobs[i]);
	}
}

FIXTURE_TEARDOWN_PARENT(persist)
{
	EXPECT_TRUE(tow_link_restore(self->name, self->interface))
		TH_LOG("%s does not come back", self->name);
	sweep();
	EXPECT_TRUE(tow_pool_unused())
		TH_LOG("something is still there");
	EXPECT_EQ(0, tow_knobs_restore(&self->before));
	EXPECT_EQ(0, chmod(tow_test_path(), 0600));
}

/* ---- owners: processes that have a persistent region ----------------------------- */

struct owner {
	enum tow_who who;
	unsigned char job;
	uint32_t linger_s;
	uint64_t seed;
	pid_t child;
	int end;
	int error;
};

/* Makes the region, fills it and waits to be killed. */
static void be_owner(struct owner *owner, int end)
{
	struct tow_region_create made;
	int fd = tow_test_open(O_RDWR);
	int error = fd < 0 ? fd : join(fd, owner->job);
	char byte, *at;

	if (!error)
		error = tow_region_create_named(fd, REGION_BYTES, TOW_REGION_PERSISTENT,
						owner->linger_s, NAME, &made);
	if (!error) {
		at = tow_region_map(made.fd, REGION_BYTES, PROT_READ | PROT_WRITE);
		if (at == MAP_FAILED)
			error = -errno;
		else
			tow_fill(at, REGION_BYTES, owner->seed);
	}
	if (write(end, &error, sizeof(error)) != sizeof(error))
		_exit(1);
	_exit(read(end, &byte, 1) != 1);
}

static int start_owner(struct owner *owner)
{
	int ends[2];

	owner->child = -1;
	owner->error = TOW_NOT_BECOME;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return -errno;
	owner->child = fork();
	if (!owner->child) {
		close(ends[0]);
		if (tow_become(owner->who))
			_exit(2);
		be_owner(owner, ends[1]);
	}
	close(ends[1]);
	owner->end = ends[0];
	if (read(owner->end, &owner->error, sizeof(owner->error)) != sizeof(owner->error))
		owner->error = TOW_NOT_BECOME;
	return owner->error;
}

static void kill_owner(struct owner *owner)
{
	kill(owner->child, SIGKILL);
	waitpid(owner->child, NULL, 0);
	close(owner->end);
}

/* A region that lingers, of a process that was killed. */
static int leave_behind(enum tow_who who, unsigned char job, uint32_t linger_s, uint64_t seed)
{
	struct owner owner = { .who = who, .job = job, .linger_s = linger_s, .seed = seed };
	int ret = start_owner(&owner);

	if (owner.child > 0)
		kill_owner(&owner);
	return ret;
}

/* ---- successors -------------------------------------------------------------------- */

struct successor {
	unsigned char job;
	uint64_t seed;		/* that the contents must have */
};

static int check_contents(int region_fd, uint64_t seed)
{
	char *at = tow_region_map(region_fd, REGION_BYTES, PROT_READ | PROT_WRITE);
	int ret = 0;

	if (at == MAP_FAILED)
		return -errno;
	if (tow_differs(at, REGION_BYTES, seed))
		ret = -EBADMSG;
	munmap(at, REGION_BYTES);
	return ret;
}

/* Takes it over, looks, and gives it up; or the errno of not getting it. */
static int take_over(void *arg)
{
	struct successor *successor = arg;
	struct tow_region_attach made;
	int fd = tow_test_open(O_RDWR);
	int ret = fd < 0 ? fd : join(fd, successor->job);

	if (!ret)
		ret = tow_region_attach(fd, NAME, &made);
	if (ret)
		return ret;
	if (made.bytes != REGION_BYTES || made.map_bytes != REGION_BYTES)
		return -EINVAL;
	ret = check_contents(made.fd, successor->seed);
	if (!ret)
		ret = tow_region_destroy(fd, made.handle);
	close(made.fd);
	close(fd);
	return ret;
}

static int take_over_as(enum tow_who who, unsigned char job, uint64_t seed)
{
	struct successor successor = { .job = job, .seed = seed };

	return tow_as(who, take_over, &successor);
}

TEST_F(persist, killed_and_taken_over_with_its_contents)
{
	struct tow_region_attach made;
	struct tow_region_info info;

	ASSERT_EQ(0, leave_behind(TOW_ROOT, NO_JOB, LONG_S, 1));
	ASSERT_EQ(0, tow_region_attach(self->fd, NAME, &made));
	EXPECT_EQ(sizeof(made), made.size);
	EXPECT_EQ(REGION_BYTES, made.bytes);
	EXPECT_EQ(REGION_BYTES, made.map_bytes);
	EXPECT_EQ(FD_CLOEXEC, fcntl(made.fd, F_GETFD));
	EXPECT_EQ(0, check_contents(made.fd, 1));
	ASSERT_EQ(0, tow_region_query(self->fd, made.handle, &info));
	EXPECT_EQ(getpid(), info.pid);
	EXPECT_EQ(TOW_REGION_PERSISTENT, info.flags);
	EXPECT_EQ(0, info.linger_left_ms);
	EXPECT_STREQ(NAME, info.name);
	EXPECT_EQ(tow_sysfs_get("linger_max_s"), info.linger_s);
	EXPECT_EQ(1, info.fds);
	EXPECT_EQ(REGION_BYTES, info.charged_bytes);
	EXPECT_EQ(0, tow_region_destroy(self->fd, made.handle));
	close(made.fd);
	EXPECT_TRUE(tow_pool_unused());
	/* Destroyed: it does not linger. */
	EXPECT_EQ(-ENOENT, tow_region_attach(self->fd, NAME, &made));
}

/* Again and again, as a trainer that crashes often. */
TEST_F_TIMEOUT(persist, generations, 60)
{
	struct tow_region_attach made;
	int i, status;
	pid_t child;

	ASSERT_EQ(0, leave_behind(TOW_ROOT, NO_JOB, LONG_S, 1));
	for (i = 1; i <= 10; i++) {
		child = fork();
		if (!child) {
			int fd = tow_test_open(O_RDWR);
			char *at;

			if (tow_region_attach(fd, NAME, &made) || check_contents(made.fd, i))
				_exit(1);
			at = tow_region_map(made.fd, REGION_BYTES, PROT_READ | PROT_WRITE);
			tow_fill(at, REGION_BYTES, i + 1);
			raise(SIGKILL);
		}
		ASSERT_EQ(child, waitpid(child, &status, 0));
		ASSERT_TRUE(WIFSIGNALED(status))
			TH_LOG("generation %d did not find the last one's", i);
		EXPECT_EQ(REGION_BYTES, tow_sysfs_get("pool_used_bytes"));
	}
	EXPECT_EQ(0, take_over_as(TOW_ROOT, NO_JOB, 11));
	EXPECT_TRUE(tow_pool_unused());
}

/* A client that only closes its file has ended, too. */
TEST_F(persist, closed_and_taken_over)
{
	struct tow_region_create made;
	struct tow_region_attach again;
	int other = tow_test_open(O_RDWR);
	char *old, *new;

	ASSERT_LE(0, other);
	ASSERT_EQ(0, tow_region_create_named(other, 1, TOW_REGION_PERSISTENT, LONG_S, NAME, &made));
	EXPECT_EQ(-EBUSY, tow_region_attach(self->fd, NAME, &again));
	close(other);
	ASSERT_EQ(0, tow_region_attach(self->fd, NAME, &again));
	/* The old descriptor is one of the same memory. */
	old = tow_region_map(made.fd, TOW_SMALL_SLAB, PROT_READ | PROT_WRITE);
	new = tow_region_map(again.fd, TOW_SMALL_SLAB, PROT_READ);
	ASSERT_NE(MAP_FAILED, (void *)old);
	ASSERT_NE(MAP_FAILED, (void *)new);
	tow_fill(old, TOW_SMALL_SLAB, 7);
	EXPECT_EQ(0, tow_differs(new, TOW_SMALL_SLAB, 7));
	munmap(old, TOW_SMALL_SLAB);
	munmap(new, TOW_SMALL_SLAB);
	EXPECT_EQ(0, tow_region_destroy(self->fd, again.handle));
	close(again.fd);
	close(made.fd);
}

TEST_F(persist, only_the_same_user)
{
	ASSERT_EQ(0, leave_behind(TOW_GROUP, NO_JOB, LONG_S, 2));
	EXPECT_EQ(-ENOENT, take_over_as(TOW_ROOT, NO_JOB, 2));
	EXPECT_EQ(-ENOENT, take_over_as(TOW_REAL_ROOT_IN_USERNS, NO_JOB, 2));
	/* The same kuid in another user namespace is somebody else. */
	EXPECT_EQ(-ENOENT, take_over_as(TOW_GROUP_IN_USERNS, NO_JOB, 2));
	EXPECT_EQ(-ENOENT, take_over_as(TOW_ROOT_IN_USERNS, NO_JOB, 2));
	EXPECT_EQ(0, take_over_as(TOW_NOBODY, NO_JOB, 2));
	EXPECT_EQ(-ENOENT, take_over_as(TOW_GROUP, NO_JOB, 2));
	/* And root's is not nobody's. */
	ASSERT_EQ(0, leave_behind(TOW_ROOT, NO_JOB, LONG_S, 3));
	EXPECT_EQ(-ENOENT, take_over_as(TOW_GROUP, NO_JOB, 3));
	EXPECT_EQ(-ENOENT, take_over_as(TOW_REAL_ROOT_IN_USERNS, NO_JOB, 3));
	EXPECT_EQ(0, take_over_as(TOW_ROOT, NO_JOB, 3));
}

TEST_F(persist, only_the_same_job)
{
	ASSERT_EQ(0, leave_behind(TOW_ROOT, 1, LONG_S, 4));
	EXPECT_EQ(-ENOENT, take_over_as(TOW_ROOT, NO_JOB, 4));
	EXPECT_EQ(-ENOENT, take_over_as(TOW_ROOT, 2, 4));
	/* Another user who knows the key is still another user. */
	EXPECT_EQ(-ENOENT, take_over_as(TOW_GROUP, 1, 4));
	EXPECT_EQ(0, take_over_as(TOW_ROOT, 1, 4));
	ASSERT_EQ(0, leave_behind(TOW_ROOT, NO_JOB, LONG_S, 5));
	EXPECT_EQ(-ENOENT, take_over_as(TOW_ROOT, 1, 5));
	EXPECT_EQ(0, take_over_as(TOW_ROOT, NO_JOB, 5));
}

/* The same name in each user's jobs: none is in another's way. */
TEST_F(persist, names_are_the_users_and_the_jobs)
{
	ASSERT_EQ(0, leave_behind(TOW_ROOT, NO_JOB, LONG_S, 1));
	ASSERT_EQ(0, leave_behind(TOW_ROOT, 1, LONG_S, 2));
	ASSERT_EQ(0, leave_behind(TOW_GROUP, NO_JOB, LONG_S, 3));
	ASSERT_EQ(0, leave_behind(TOW_GROUP, 1, LONG_S, 4));
	EXPECT_EQ(4 * REGION_BYTES, tow_sysfs_get("pool_used_bytes"));
	EXPECT_EQ(0, take_over_as(TOW_GROUP, 1, 4));
	EXPECT_EQ(0, take_over_as(TOW_ROOT, 1, 2));
	EXPECT_EQ(0, take_over_as(TOW_GROUP, NO_JOB, 3));
	EXPECT_EQ(0, take_over_as(TOW_ROOT, NO_JOB, 1));
	EXPECT_TRUE(tow_pool_unused());
}

TEST_F(persist, busy_while_the_owner_lives)
{
	struct owner owner = { .linger_s = LONG_S, .seed = 1 };
	struct tow_region_attach attached;
	struct tow_region_create made;

	ASSERT_EQ(0, start_owner(&owner));
	EXPECT_EQ(-EBUSY, tow_region_attach(self->fd, NAME, &attached));
	EXPECT_EQ(-EEXIST, tow_region_create_named(self->fd, 1, TOW_REGION_PERSISTENT, LONG_S,
						   NAME, &made));
	kill_owner(&owner);
	/* Nobody took it over: the name is still taken. */
	EXPECT_EQ(-EEXIST, tow_region_create_named(self->fd, 1, TOW_REGION_PERSISTENT, LONG_S,
						   NAME, &made));
	ASSERT_EQ(0, tow_region_attach(self->fd, NAME, &attached));
	EXPECT_EQ(0, check_contents(attached.fd, 1));
	/* Now we are the owner, also for ourselves. */
	EXPECT_EQ(-EBUSY, tow_region_attach(self->fd, NAME, &attached));
}

/* Of several who want it one gets it. */
TEST_F_TIMEOUT(persist, one_of_many_gets_it, 60)
{
	struct successor successor = { .seed = 1 };
	int ends[2], i, round, won;
	pid_t child[6];

	for (round = 0; round < 5; round++) {
		ASSERT_EQ(0, leave_behind(TOW_ROOT, NO_JOB, LONG_S, 1));
		ASSERT_EQ(0, pipe2(ends, O_CLOEXEC));
		for (i = 0; i < 6; i++) {
			child[i] = fork();
			if (!child[i]) {
				char byte;

				close(ends[1]);
				/* All at once, when the other end is closed. */
				if (read(ends[0], &byte, 1))
					_exit(1);
				_exit(-take_over(&successor));
			}
		}
		close(ends[0]);
		close(ends[1]);
		for (i = 0, won = 0; i < 6; i++) {
			int status = 0;

			ASSERT_EQ(child[i], waitpid(child[i], &status, 0));
			status = WEXITSTATUS(status);
			won += !status;
			EXPECT_TRUE(!status || status == EBUSY || status == ENOENT)
				TH_LOG("%s", strerror(status));
		}
		EXPECT_EQ(1, won);
	}
}

/* An answer that cannot be written loses nothing. */
TEST_F(persist, faulting_attach_keeps_the_region)
{
	long page = sysconf(_SC_PAGESIZE);
	struct tow_region_attach *call, made;

	ASSERT_EQ(0, leave_behind(TOW_ROOT, NO_JOB, LONG_S, 6));
	call = mmap(NULL, (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)call);
	call->size = sizeof(*call);
	strcpy(call->name, NAME);
	ASSERT_EQ(0, mprotect(call, (size_t)page, PROT_READ));
	EXPECT_EQ(-EFAULT, tow_test_ioctl(self->fd, TOW_IOCTL_REGION_ATTACH, call));
	ASSERT_EQ(0, tow_region_attach(self->fd, NAME, &made));
	EXPECT_EQ(0, check_contents(made.fd, 6));
	EXPECT_EQ(0, tow_region_destroy(self->fd, made.handle));
	close(made.fd);
	munmap(call, (size_t)page);
}

/* Asked for in a way that cannot end well: there is room for no descriptor, or no answer. */
static int attach_without_descriptors(int fd, struct tow_region_attach *call)
{
	struct rlimit before, none;
	int ret;

	if (getrlimit(RLIMIT_NOFILE, &before))
		return -errno;
	none = (struct rlimit) { .rlim_max = before.rlim_max };
	if (setrlimit(RLIMIT_NOFILE, &none))
		return -errno;
	ret = tow_test_ioctl(fd, TOW_IOCTL_REGION_ATTACH, call);
	return setrlimit(RLIMIT_NOFILE, &before) ? -errno : ret;
}

static int attach_without_answer(int fd, struct tow_region_attach *call)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *room = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int ret;

	if (room == MAP_FAILED)
		return -errno;
	memcpy(room, call, sizeof(*call));
	ret = mprotect(room, page, PROT_READ) ? -errno :
	      tow_test_ioctl(fd, TOW_IOCTL_REGION_ATTACH, room);
	munmap(room, page);
	return ret;
}

/* Whoever did not get it is not charged for it, and may ask again. */
TEST_F(persist, failed_attach_charges_nothing)
{
	struct tow_region_attach call = { .size = sizeof(call), .name = NAME };
	struct tow_region_create own;

	ASSERT_EQ(0, tow_sysfs_set("client_bytes_limit", REGION_BYTES));
	ASSERT_EQ(0, leave_behind(TOW_ROOT, NO_JOB, LONG_S, 1));
	EXPECT_EQ(-EMFILE, attach_without_descriptors(self->fd, &call));
	EXPECT_EQ(-EFAULT, attach_without_answer(self->fd, &call));
	/* All that the client may have is there for something else. */
	ASSERT_EQ(0, tow_region_create(self->fd, REGION_BYTES, &own));
	EXPECT_EQ(0, tow_region_end(self->fd, &own));
	ASSERT_EQ(0, tow_region_attach(self->fd, NAME, &call));
	EXPECT_EQ(0, check_contents(call.fd, 1));
	/* Now it is charged. */
	EXPECT_EQ(-EDQUOT, tow_region_create(self->fd, 1, &own));
	EXPECT_EQ(0, tow_region_destroy(self->fd, call.handle));
	close(call.fd);
}

/* Nor has the region more time than it had, or less. */
TEST_F(persist, failed_attach_leaves_the_time)
{
	struct tow_region_attach call = { .size = sizeof(call), .linger_s = 1, .name = NAME };
	int (*const ways[])(int, struct tow_region_attach *) = {
		attach_without_descriptors, attach_without_answer, NULL
	};
	struct tow_region_info before, after;
	size_t i;

	ASSERT_EQ(0, leave_behind(TOW_ROOT, NO_JOB, LONG_S, 1));
	for (i = 0; i < ARRAY_SIZE(ways); i++) {
		tow_test_sleep_ms(500);
		ASSERT_EQ(0, tow_region_find(self->fd, 0, NAME, &before));
		if (ways[i]) {
			EXPECT_GT(0, ways[i](self->fd, &call));
		} else {
			ASSERT_EQ(0, tow_sysfs_set("client_bytes_limit", REGION_BYTES - 1));
			EXPECT_EQ(-EDQUOT, tow_region_attach(self->fd, NAME, &call));
		}
		ASSERT_EQ(0, tow_region_find(self->fd, 0, NAME, &after));
		EXPECT_EQ(TOW_REGION_PERSISTENT | TOW_REGION_LINGERING, after.flags);
		EXPECT_EQ(LONG_S, after.linger_s);
		EXPECT_LT(LONG_S * 1000 / 2, after.linger_left_ms);
		EXPECT_GE(before.linger_left_ms, after.linger_left_ms);
	}
	ASSERT_EQ(0, tow_sysfs_set("client_bytes_limit", REGION_BYTES));
	/* The second that was asked for has nothing to say. */
	tow_test_sleep_ms(1500);
	EXPECT_EQ(0, take_over_as(TOW_ROOT, NO_JOB, 1));
}

/* ---- lingering ------------------------------------------------------------------------ */

TEST_F_TIMEOUT(persist, expires, 60)
{
	struct owner owner = { .who = TOW_ROOT, .job = NO_JOB, .linger_s = SHORT_S, .seed = 1 };
	struct tow_region_attach made;
	struct tow_region_info info;
	double start;

	ASSERT_EQ(0, start_owner(&owner));
	start = tow_test_now();
	kill_owner(&owner);
	ASSERT_EQ(0, tow_region_find(self->fd, 0, NAME, &info));
	EXPECT_EQ(TOW_REGION_PERSISTENT | TOW_REGION_LINGERING, info.flags);
	EXPECT_EQ(SHORT_S, info.linger_s);
	EXPECT_LT(0, info.linger_left_ms);
	EXPECT_GE(SHORT_S * 1000, info.linger_left_ms);
	EXPECT_EQ(0, info.pid);
	EXPECT_EQ(0, info.fds);
	EXPECT_EQ(0, info.uid);
	EXPECT_EQ(REGION_BYTES, info.charged_bytes);
	EXPECT_EQ(REGION_BYTES, tow_sysfs_get("pool_used_bytes"));
	EXPECT_TRUE(tow_pool_unused());
	/* Neither at once nor much later. */
	EXPECT_LT(SHORT_S - 1.0, tow_test_now() - start);
	TOW_WITHIN(start, (SHORT_S + 8.0) * 1e3);
	EXPECT_EQ(-ENOENT, tow_region_attach(self->fd, NAME, &made));
	EXPECT_EQ(-ENOENT, tow_region_find(self->fd, 0, NAME, &info));
	/* The name is free. */
	EXPECT_EQ(0, leave_behind(TOW_ROOT, NO_JOB, SHORT_S, 2));
}

TEST_F_TIMEOUT(persist, time_left_runs, 60)
{
	double start = tow_test_now(), took;
	struct tow_region_info first, second;

	ASSERT_EQ(0, leave_behind(TOW_ROOT, NO_JOB, LONG_S, 1));
	ASSERT_EQ(0, tow_region_find(self->fd, 0, NAME, &first));
	/* By the kernel's ticks, which may be behind for a while. */
	do {
		tow_test_sleep_ms(50);
		ASSERT_EQ(0, tow_region_find(self->fd, 0, NAME, &second));
		took = tow_test_now() - start;
	} while (second.linger_left_ms + 250 > first.linger_left_ms && took < TOW_SETTLE_SECONDS);
	EXPECT_LE(second.linger_left_ms + 250, first.linger_left_ms);
	EXPECT_GE(second.linger_left_ms + took * 1e3 + 1000, first.linger_left_ms);
	EXPECT_EQ(first.id, second.id);
}

/*
 * Taken over in time it does not expire, when another one does whose time began
 * later; its own begins anew when its new client ends.
 */
TEST_F_TIMEOUT(persist, taken_over_in_time, 60)
{
	int other = tow_test_open(O_RDWR);
	struct tow_region_attach made;
	struct tow_region_info info;

	ASSERT_LE(0, other);
	ASSERT_EQ(0, join(other, 1));
	ASSERT_EQ(0, leave_behind(TOW_ROOT, 1, SHORT_S, 1));
	ASSERT_EQ(0, tow_region_attach(other, NAME, &made));
	ASSERT_EQ(0, leave_behind(TOW_ROOT, NO_JOB, SHORT_S, 2));
	EXPECT_EQ(2 * REGION_BYTES, tow_sysfs_get("pool_used_bytes"));
	EXPECT_EQ(REGION_BYTES, tow_sysfs_wait("pool_used_bytes", REGION_BYTES));
	EXPECT_EQ(0, check_contents(made.fd, 1));
	EXPECT_EQ(-EEXIST, leave_behind(TOW_ROOT, 1, SHORT_S, 3));
	close(made.fd);
	close(other);
	ASSERT_EQ(0, tow_region_find(self->fd, 0, NAME, &info));
	EXPECT_EQ(TOW_REGION_PERSISTENT | TOW_REGION_LINGERING, info.flags);
	EXPECT_LT(SHORT_S * 1000, info.linger_left_ms);
	EXPECT_EQ(0, take_over_as(TOW_ROOT, 1, 1));
}

/* The device's linger_max_s bounds what is asked for. */
TEST_F_TIMEOUT(persist, administrator_bounds_lingering, 60)
{
	struct tow_region_attach made;

	ASSERT_EQ(0, tow_sysfs_put("linger_max_s", "1"));
	ASSERT_EQ(0, leave_behind(TOW_ROOT, NO_JOB, LONG_S, 1));
	EXPECT_TRUE(tow_pool_unused());
	EXPECT_EQ(-ENOENT, tow_region_attach(self->fd, NAME, &made));
}

/* What is allowed later holds for what was made before. */
TEST_F(persist, administrator_allows_more)
{
	struct tow_region_info info;

	ASSERT_EQ(0, tow_sysfs_set("linger_max_s", LONG_S / 2));
	ASSERT_EQ(0, leave_behind(TOW_ROOT, NO_JOB, LONG_S, 1));
	ASSERT_EQ(0, tow_region_find(self->fd, 0, NAME, &info));
	EXPECT_EQ(LONG_S / 2, info.linger_s);
	EXPECT_GE(LONG_S / 2 * 1000, info.linger_left_ms);
	ASSERT_EQ(0, tow_sysfs_set("linger_max_s", LONG_S));
	ASSERT_EQ(0, tow_region_find(self->fd, 0, NAME, &info));
	EXPECT_EQ(LONG_S, info.linger_s);
	EXPECT_LT(LONG_S / 2 * 1000, info.linger_left_ms);
	EXPECT_EQ(0, take_over_as(TOW_ROOT, NO_JOB, 1));
}

/* Some months are more milliseconds than are told: as many as can be are. */
TEST_F(persist, long_time_left)
{
	const uint32_t months_s = 5000000;
	struct tow_region_info info;

	ASSERT_EQ(0, tow_sysfs_set("linger_max_s", months_s));
	ASSERT_EQ(0, leave_behind(TOW_ROOT, NO_JOB, months_s, 1));
	ASSERT_EQ(0, tow_region_find(self->fd, 0, NAME, &info));
	EXPECT_EQ(months_s, info.linger_s);
	EXPECT_EQ(UINT32_MAX, info.linger_left_ms);
	EXPECT_EQ(0, take_over_as(TOW_ROOT, NO_JOB, 1));
}

/* What lingers is paid for by its user, and counts for nobody else. */
TEST_F(persist, charged_meanwhile)
{
	struct tow_region_create made;

	ASSERT_EQ(0, tow_sysfs_set("user_bytes_limit", REGION_BYTES));
	ASSERT_EQ(0, leave_behind(TOW_ROOT, NO_JOB, LONG_S, 1));
	EXPECT_EQ(-EDQUOT, tow_region_create(self->fd, 1, &made));
	EXPECT_EQ(0, leave_behind(TOW_GROUP, NO_JOB, LONG_S, 2));
	EXPECT_EQ(0, take_over_as(TOW_ROOT, NO_JOB, 1));
	EXPECT_TRUE(tow_sysfs_wait("pool_used_bytes", REGION_BYTES) == REGION_BYTES);
	EXPECT_EQ(0, tow_region_create(self->fd, REGION_BYTES, &made));
	EXPECT_EQ(0, take_over_as(TOW_GROUP, NO_JOB, 2));
}

/* The new client's own limits count: a refusal leaves the region where it is. */
TEST_F(persist, refused_by_a_limit_it_stays)
{
	struct tow_region_attach made;

	ASSERT_EQ(0, leave_behind(TOW_ROOT, NO_JOB, LONG_S, 1));
	ASSERT_EQ(0, tow_sysfs_set("client_bytes_limit", REGION_BYTES - 1));
	EXPECT_EQ(-EDQUOT, tow_region_attach(self->fd, NAME, &made));
	ASSERT_EQ(0, tow_sysfs_set("client_bytes_limit", REGION_BYTES));
	/* The user's are not: it was charged all the time. */
	ASSERT_EQ(0, tow_sysfs_set("user_bytes_limit", 0));
	ASSERT_EQ(0, tow_region_attach(self->fd, NAME, &made));
	EXPECT_EQ(0, check_contents(made.fd, 1));
	EXPECT_EQ(0, tow_region_destroy(self->fd, made.handle));
	close(made.fd);
}

/* Destroyed it is gone at once, though others still map it. */
TEST_F(persist, destroyed_at_once)
{
	struct tow_region_create made, again;
	struct tow_region_info info;

	ASSERT_EQ(0, tow_region_create_named(self->fd, REGION_BYTES, TOW_REGION_PERSISTENT,
					     LONG_S, NAME, &made));
	EXPECT_EQ(0, tow_region_destroy(self->fd, made.handle));
	/* The descriptor holds the memory, but not the name. */
	EXPECT_EQ(REGION_BYTES, tow_sysfs_get("pool_used_bytes"));
	ASSERT_EQ(0, tow_region_create_named(self->fd, 1, TOW_REGION_PERSISTENT, LONG_S, NAME,
					     &again));
	close(made.fd);
	EXPECT_EQ(TOW_SMALL_SLAB, tow_sysfs_wait("pool_used_bytes", TOW_SMALL_SLAB));
	EXPECT_EQ(0, tow_region_end(self->fd, &again));
	EXPECT_EQ(-ENOENT, tow_region_find(self->fd, 0, NAME, &info));
}

/* ---- the end of all ----------------------------------------------------------------------- */

/* A region that lingers keeps neither the device nor the module. */
TEST_F_TIMEOUT(persist, freed_with_the_device, 60)
{
	struct tow_region_attach made;
	int fd;

	ASSERT_EQ(0, leave_behind(TOW_ROOT, NO_JOB, LONG_S, 1));
	ASSERT_TRUE(tow_link_del(self->name));
	close(self->fd);
	ASSERT_TRUE(tow_link_restore(self->name, self->interface));
	ASSERT_EQ(0, tow_sysfs_get("pool_used_bytes"));
	fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, fd);
	EXPECT_EQ(-ENOENT, tow_region_attach(fd, NAME, &made));
	close(fd);
}

TEST_F_TIMEOUT(persist, freed_with_the_module, 60)
{
	struct tow_region_attach made;
	int fd;

	ASSERT_EQ(0, leave_behind(TOW_ROOT, NO_JOB, LONG_S, 1));
	close(self->fd);
	EXPECT_EQ(0, syscall(SYS_delete_module, "towline", O_NONBLOCK))
		TH_LOG("%s", strerror(errno));
	ASSERT_EQ(0, tow_module_load("towline", ""));
	ASSERT_TRUE(tow_wait_path(tow_test_path(), true));
	fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, fd);
	EXPECT_EQ(-ENOENT, tow_region_attach(fd, NAME, &made));
	close(fd);
}

TEST_HARNESS_MAIN
