// SPDX-License-Identifier: GPL-2.0
/*
 * The end of clients: it holds up nobody else's, and an administrator can bring it about,
 * and that of regions; what begins a client, open(2), is stopped by no signal.
 */
#include <signal.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include "tow_halt.h"
#include "tow_identity.h"
#include "tow_queue.h"

#define POOL_BYTES	(4 * TOW_SLAB)
#define NAME		"kept"
#define LONG_S		60

FIXTURE(client)
{
	struct tow_knobs before;
	int fd;
};

FIXTURE_SETUP(client)
{
	tow_knobs_save(&self->before);
	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	self->fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN_PARENT(client)
{
	EXPECT_EQ(0, tow_sysfs_set("linger_max_s", 0));
	EXPECT_TRUE(tow_pool_unused())
		TH_LOG("something is still there");
	EXPECT_EQ(0, tow_knobs_restore(&self->before));
}

/* ---- how it ends -------------------------------------------------------------------- */

/* A client with a persistent region, which is mapped, an export of it and a queue. */
static int be_client(struct tow_user *user, struct tow_region_create *made)
{
	__u64 exported;
	int ret = tow_user_make(user, 4, 8);

	if (!ret)
		ret = tow_region_create_named(user->fd, TOW_SLAB, TOW_REGION_PERSISTENT, LONG_S,
					      NAME, made);
	if (!ret)
		ret = tow_publish(user->fd, made->handle, NAME, TOW_SLAB, &exported);
	if (!ret && tow_region_map(made->fd, TOW_SLAB, PROT_READ | PROT_WRITE) == MAP_FAILED)
		ret = -errno;
	return ret;
}

/* What a client says of its life after an administrator has ended it: 0 if it is right. */
static int be_ended(struct tow_user *user, struct tow_region_create *made)
{
	struct tow_region_create more;
	struct tow_queue_create queue;
	struct tow_query query;

	if (tow_region_create(user->fd, TOW_SLAB, &more) != -EPERM ||
	    tow_queue_make(user->fd, 4, 8, &queue) != -EPERM ||
	    tow_region_destroy(user->fd, made->handle) != -EPERM ||
	    tow_enter(user->rings.made.fd, 1, 0, 0) != -EPERM)
		return 2;
	/* To look is allowed. */
	if (tow_test_query(user->fd, &query) ||
	    tow_region_query(user->fd, made->handle, &(struct tow_region_info){ 0 }) != -ENOENT)
		return 3;
	/* And another file is another client. */
	return tow_test_open(O_RDWR) < 0 ? 4 : 0;
}

/* A process that is one, until a signal comes or it is killed; or a negative number. */
static pid_t start_client(void)
{
	struct tow_region_create made;
	struct tow_user user;
	int ends[2], number;
	sigset_t signals;
	char byte;
	pid_t child;

	if (pipe2(ends, O_CLOEXEC))
		return -1;
	child = fork();
	if (!child) {
		close(ends[0]);
		/* Blocked: it may come before it is waited for. */
		sigemptyset(&signals);
		sigaddset(&signals, SIGUSR1);
		sigprocmask(SIG_BLOCK, &signals, NULL);
		if (be_client(&user, &made) || write(ends[1], "", 1) != 1)
			_exit(1);
		close(ends[1]);
		sigwait(&signals, &number);
		_exit(be_ended(&user, &made));
	}
	close(ends[1]);
	if (read(ends[0], &byte, 1) != 1) {
		waitpid(child, NULL, 0);
		child = -1;
	}
	close(ends[0]);
	return child;
}

/* An end that takes long, as one does while a device with much memory goes. */
TEST_F_TIMEOUT(client, slow_end_holds_up_nobody, 60)
{
	pid_t slow = start_client(), other;
	double begun;
	int status;

	ASSERT_LT(0, slow);
	other = fork();
	if (!other)
		_exit(tow_test_open(O_RDWR) < 0 || pause());
	tow_test_sleep_ms(100);
	ASSERT_EQ(0, tow_halt_begin("tow_directory_client_end"));
	kill(slow, SIGKILL);
	EXPECT_TRUE(tow_halt_wait());
	begun = tow_test_now();
	kill(other, SIGKILL);
	EXPECT_EQ(other, waitpid(other, &status, 0));
	TOW_WITHIN(begun, 5000);
	/* Who is dead has not closed the file so far. */
	EXPECT_EQ(0, waitpid(slow, &status, WNOHANG));
	EXPECT_EQ(0, tow_halt_end());
	EXPECT_EQ(slow, waitpid(slow, &status, 0));
}

/* Who waits for the end of a region's owner is told after a while, and can be killed. */
TEST_F_TIMEOUT(client, take_over_gives_up, 60)
{
	struct tow_region_attach made;
	struct tow_region_info info;
	pid_t slow = start_client(), child;
	double begun;
	int status;

	ASSERT_LT(0, slow);
	EXPECT_EQ(-EBUSY, tow_region_attach(self->fd, NAME, &made));
	ASSERT_EQ(0, tow_halt_begin("tow_directory_client_end"));
	kill(slow, SIGKILL);
	EXPECT_TRUE(tow_halt_wait());
	child = fork();
	if (!child)
		_exit(tow_region_attach(tow_test_open(O_RDWR), NAME, &made) != -EINTR);
	tow_test_sleep_ms(100);
	EXPECT_EQ(0, waitpid(child, &status, WNOHANG));
	begun = tow_clock_begin();
	kill(child, SIGKILL);
	EXPECT_EQ(child, waitpid(child, &status, 0));
	TOW_WITHIN(begun, 5000);

	ASSERT_EQ(0, tow_sysfs_put("revoke_timeout_ms", "100"));
	begun = tow_clock_begin();
	EXPECT_EQ(-EBUSY, tow_region_attach(self->fd, NAME, &made));
	EXPECT_LE(0.2, tow_test_now() - begun);
	TOW_WITHIN(begun, 5000);
	EXPECT_EQ(0, tow_halt_end());
	EXPECT_EQ(slow, waitpid(slow, &status, 0));
	ASSERT_EQ(0, tow_region_find(self->fd, 0, NAME, &info));
	EXPECT_EQ(TOW_REGION_PERSISTENT | TOW_REGION_LINGERING, info.flags);
	ASSERT_EQ(0, tow_region_attach(self->fd, NAME, &made));
	EXPECT_EQ(0, tow_region_destroy(self->fd, made.handle));
	close(made.fd);
}

/* ---- administrators ----------------------------------------------------------------- */

static int list_clients(int fd, uint32_t flags, struct tow_account_info *entries, uint32_t count)
{
	struct tow_account_list call = {
		.size = sizeof(call), .flags = flags, .entries = (uintptr_t)entries,
		.entry_size = sizeof(*entries), .count = count,
	};
	int ret = tow_test_ioctl(fd, TOW_IOCTL_ACCOUNT_LIST, &call);

	return ret ? ret : (int)call.count;
}

/* The first client of a process: 0, -ENOENT, … */
static int find_client(int fd, uint32_t flags, pid_t pid, struct tow_account_info *found)
{
	struct tow_account_info entries[8];
	int count = list_clients(fd, flags, entries, ARRAY_SIZE(entries)), i;

	for (i = 0; i < count; i++) {
		if (entries[i].pid != pid)
			continue;
		*found = entries[i];
		return 0;
	}
	return count < 0 ? count : -ENOENT;
}

static int end_clients(int fd, pid_t pid)
{
	struct tow_client_end call = { .size = sizeof(call), .pid = pid };
	int ret = tow_test_ioctl(fd, TOW_IOCTL_CLIENT_END, &call);

	return ret ? ret : (int)call.count;
}

static int end_region(int fd, uint64_t id, struct tow_region_end *call)
{
	*call = (struct tow_region_end) { .size = sizeof(*call), .id = id };
	return tow_test_ioctl(fd, TOW_IOCTL_REGION_END, call);
}

TEST_F(client, listed)
{
	struct tow_account_info info;
	pid_t other = start_client();
	int status;

	ASSERT_LT(0, other);
	ASSERT_EQ(0, find_client(self->fd, 0, other, &info));
	EXPECT_EQ(sizeof(info), info.size);
	EXPECT_EQ(0, info.flags);
	EXPECT_EQ(TOW_SLAB, info.charged_bytes);
	EXPECT_EQ(1, info.regions);
	EXPECT_EQ(1, info.exports);
	EXPECT_EQ(8, info.queue_entries);
	EXPECT_EQ(TOW_SLAB_MRS, info.mrs);
	EXPECT_EQ(getuid(), info.uid);
	EXPECT_TRUE(tow_is_zero(info.job_id, sizeof(info.job_id)));
	ASSERT_EQ(0, find_client(self->fd, 0, getpid(), &info));
	EXPECT_EQ(0, info.charged_bytes);
	EXPECT_EQ(1, end_clients(self->fd, other));
	kill(other, SIGUSR1);
	EXPECT_EQ(other, waitpid(other, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ(-ENOENT, find_client(self->fd, 0, other, &info));
	EXPECT_EQ(-ESRCH, end_clients(self->fd, other));
	EXPECT_EQ(-EINVAL, end_clients(self->fd, 0));
}

/* Its region lingers, what it published is withdrawn, and its process goes on. */
TEST_F(client, ended)
{
	struct tow_region_attach made;
	struct tow_account_info client;
	struct tow_region_info info;
	pid_t other = start_client();
	int status;

	ASSERT_LT(0, other);
	EXPECT_EQ(-EBUSY, tow_region_attach(self->fd, NAME, &made));
	EXPECT_EQ(1, end_clients(self->fd, other));
	EXPECT_EQ(-ESRCH, end_clients(self->fd, other));
	EXPECT_EQ(0, tow_sysfs_wait("stats/exports", 0));
	ASSERT_EQ(0, find_client(self->fd, 0, other, &client));
	EXPECT_EQ(TOW_ACCOUNT_ENDED, client.flags);
	EXPECT_EQ(0, client.exports);
	ASSERT_EQ(0, tow_region_find(self->fd, 0, NAME, &info));
	EXPECT_EQ(TOW_REGION_PERSISTENT | TOW_REGION_LINGERING, info.flags);
	/* It has a descriptor and a mapping, still. */
	EXPECT_EQ(1, info.fds);
	ASSERT_EQ(0, tow_region_attach(self->fd, NAME, &made));
	kill(other, SIGUSR1);
	EXPECT_EQ(other, waitpid(other, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ(0, tow_region_destroy(self->fd, made.handle));
	close(made.fd);
}

/* What it is just exporting is published for nobody. */
TEST_F_TIMEOUT(client, ended_while_it_exports, 60)
{
	uint64_t revokes = tow_sysfs_get("stats/revokes");
	struct tow_region_create made;
	struct tow_user user;
	int status;
	pid_t other;

	ASSERT_EQ(0, tow_halt_begin("tow_exported_new"));
	other = fork();
	if (!other)
		_exit(be_client(&user, &made) != -EPERM);
	EXPECT_TRUE(tow_halt_wait());
	EXPECT_EQ(1, end_clients(self->fd, other));
	EXPECT_EQ(0, tow_halt_end());
	EXPECT_EQ(other, waitpid(other, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ(0, tow_sysfs_wait("stats/exports", 0));
	EXPECT_EQ(revokes, tow_sysfs_get("stats/revokes"));
}

/* It is the caller himself. */
TEST_F(client, ends_itself)
{
	struct tow_region_create made;

	EXPECT_EQ(1, end_clients(self->fd, getpid()));
	EXPECT_EQ(-EPERM, tow_region_create(self->fd, TOW_SLAB, &made));
}

TEST_F(client, region_ended)
{
	struct tow_region_attach attach;
	struct tow_region_create made;
	struct tow_region_info info;
	struct tow_region_end end;
	pid_t other = start_client();

	ASSERT_LT(0, other);
	ASSERT_EQ(0, tow_region_find(self->fd, 0, NAME, &info));
	/* One that lingers. */
	kill(other, SIGKILL);
	EXPECT_EQ(other, waitpid(other, NULL, 0));
	EXPECT_EQ(TOW_SLAB, tow_sysfs_get("pool_used_bytes"));
	EXPECT_EQ(0, end_region(self->fd, info.id, &end));
	EXPECT_EQ(0, end.pid);
	EXPECT_EQ(0, end.fds);
	EXPECT_TRUE(tow_pool_unused());
	EXPECT_EQ(-ENOENT, end_region(self->fd, info.id, &end));
	EXPECT_EQ(-ENOENT, end_region(self->fd, 0, &end));
	/* One that somebody has: its name is free, and it does not linger. */
	other = start_client();
	ASSERT_LT(0, other);
	ASSERT_EQ(0, tow_region_find(self->fd, 0, NAME, &info));
	EXPECT_EQ(0, end_region(self->fd, info.id, &end));
	EXPECT_EQ(other, end.pid);
	EXPECT_EQ(-EBUSY, end_region(self->fd, info.id, &end));
	EXPECT_EQ(-ENOENT, tow_region_attach(self->fd, NAME, &attach));
	EXPECT_EQ(TOW_SLAB, tow_sysfs_get("pool_used_bytes"));
	EXPECT_EQ(1, end_clients(self->fd, other));
	kill(other, SIGKILL);
	EXPECT_EQ(other, waitpid(other, NULL, 0));
	EXPECT_TRUE(tow_pool_unused());
	/* One without a name that counts. */
	ASSERT_EQ(0, tow_region_create(self->fd, TOW_SLAB, &made));
	ASSERT_EQ(0, tow_region_query(self->fd, made.handle, &info));
	EXPECT_EQ(-EBUSY, end_region(self->fd, info.id, &end));
	EXPECT_EQ(0, tow_region_end(self->fd, &made));
}

/* Nobody has it for a moment: it is not said to be over, as somebody will. */
TEST_F_TIMEOUT(client, region_ended_while_it_is_attached, 60)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	struct tow_region_attach made;
	struct tow_region_info info;
	struct tow_region_end end;
	pid_t other = start_client();
	int ret;

	ASSERT_LT(0, other);
	kill(other, SIGKILL);
	EXPECT_EQ(other, waitpid(other, NULL, 0));
	ASSERT_EQ(0, tow_region_find(self->fd, 0, NAME, &info));
	ASSERT_EQ(0, tow_halt_begin("tow_region_make_dmabuf"));
	other = fork();
	if (!other)
		_exit(tow_region_attach(tow_test_open(O_RDWR), NAME, &made) || pause());
	EXPECT_TRUE(tow_halt_wait());
	EXPECT_EQ(-EBUSY, end_region(self->fd, info.id, &end));
	EXPECT_EQ(0, tow_halt_end());
	while ((ret = end_region(self->fd, info.id, &end)) == -EBUSY && tow_patient(&patience))
		tow_test_sleep_ms(10);
	EXPECT_EQ(0, ret);
	EXPECT_EQ(other, end.pid);
	kill(other, SIGKILL);
	EXPECT_EQ(other, waitpid(other, NULL, 0));
	EXPECT_TRUE(tow_pool_unused());
}

/* What lingers goes when less time is allowed, and not before. */
TEST_F(client, linger_max_lowered)
{
	struct tow_region_info info;
	pid_t other = start_client();

	ASSERT_LT(0, other);
	kill(other, SIGKILL);
	EXPECT_EQ(other, waitpid(other, NULL, 0));
	ASSERT_EQ(0, tow_sysfs_set("linger_max_s", LONG_S / 2));
	ASSERT_EQ(0, tow_region_find(self->fd, 0, NAME, &info));
	EXPECT_GE(LONG_S / 2 * 1000, info.linger_left_ms);
	EXPECT_LT(LONG_S / 4 * 1000, info.linger_left_ms);
	ASSERT_EQ(0, tow_sysfs_set("linger_max_s", 0));
	EXPECT_TRUE(tow_pool_unused());
}

/* Without CAP_NET_ADMIN outside all containers. */
static int try_all(void *arg)
{
	pid_t victim = *(pid_t *)arg;
	struct tow_account_info info;
	int fd = tow_test_open(O_RDWR);
	struct tow_region_end end;

	if (fd < 0)
		return fd;
	if (end_clients(fd, victim) != -EPERM || end_region(fd, 1, &end) != -EPERM ||
	    list_clients(fd, TOW_LIST_ALL, &info, 1) != -EPERM)
		return -EBADE;
	/* He sees himself, and nobody else. */
	return find_client(fd, 0, victim, &info) == -ENOENT && list_clients(fd, 0, &info, 1) == 1 ?
	       0 : -EBADE;
}

TEST_F(client, without_the_capability)
{
	pid_t self_pid = getpid();

	ASSERT_EQ(0, chmod(tow_test_path(), 0666));
	EXPECT_EQ(0, tow_as(TOW_GROUP, try_all, &self_pid));
	EXPECT_EQ(0, tow_as(TOW_GROUP_IN_USERNS, try_all, &self_pid));
	EXPECT_EQ(0, chmod(tow_test_path(), 0600));
}

/* ---- open(2) ------------------------------------------------------------------------ */

#define OPENS		200
#define SIGNAL_US	100

static volatile sig_atomic_t signals;

static void count_signal(int number)
{
	(void)number;
	signals++;
}

/* The first client of a process takes all locks of its memory, during which signals wait. */
TEST_F_TIMEOUT(client, opened_while_signals_come, 60)
{
	const struct itimerval often = { .it_interval = { .tv_usec = SIGNAL_US },
					 .it_value = { .tv_usec = SIGNAL_US } };
	struct sigaction action = { .sa_handler = count_signal }, before;
	int i, fd = 0;

	close(self->fd);
	ASSERT_EQ(0, sigaction(SIGALRM, &action, &before));
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &often, NULL));
	for (i = 0; i < OPENS && fd >= 0; i++) {
		fd = tow_test_open(O_RDWR);
		if (fd >= 0)
			close(fd);
	}
	setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, NULL);
	sigaction(SIGALRM, &before, NULL);
	EXPECT_LE(0, fd)
		TH_LOG("open %d of %d: %s", i, OPENS, strerror(-fd));
	EXPECT_LT(0, signals);
}

TEST_HARNESS_MAIN
