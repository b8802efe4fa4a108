// SPDX-License-Identifier: GPL-2.0
/*
 * Two-phase revoke against a resolver that does what it likes (tow_hostile.ko): it
 * lets go late, never, in another way than it was asked to, or dies.  Until it has
 * let go, or its queue pairs are destroyed, UNEXPORT waits, nothing of the memory
 * is used for anything else, and who takes a region over waits.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "tow_evil.h"
#include "tow_rdma.h"
#include "tow_region.h"
#include "tow_peer.h"

#define POOL_BYTES	(4 * TOW_SLAB)
#define REVOKE_MS	2000
#define R_REVOKE_LATE	14

struct revoke_grants {
	uint32_t count;
	uint32_t reserved;
	uint64_t grant;
};

FIXTURE(revoke)
{
	int fd;
	struct tow_region_create region;
	__u64 exported;
	struct evil e;
	uint64_t grant;
	long long late;
};

/* It has found the export: the number of its grant; 0: something is wrong. */
static uint64_t find(struct evil *e, char name, uint32_t request)
{
	struct evil_resolve body = evil_resolve(name, request, TOW_RIGHT_READ);
	uint32_t status;
	uint64_t grant;

	if (evil_say(e, T_RESOLVE, 0, &body, sizeof(body)) ||
	    evil_hear(e, EVIL_WAIT_MS) != T_RESOLVED)
		return 0;
	memcpy(&grant, e->last.data + EVIL_HEADER, sizeof(grant));
	memcpy(&status, e->last.data + EVIL_HEADER + 16, sizeof(status));
	return status ? 0 : grant;
}

FIXTURE_SETUP(revoke)
{
	char text[16];

	ASSERT_EQ(0, tow_module_load("tow_hostile", ""));
	ASSERT_EQ(0, evil_share_key());
	snprintf(text, sizeof(text), "%d", REVOKE_MS);
	ASSERT_EQ(0, evil_set("revoke_timeout_ms", text));
	/* It says nothing by itself: that is not what ends it here. */
	ASSERT_EQ(0, evil_set("heartbeat_misses", "100"));
	ASSERT_EQ(0, tow_pool_fresh(POOL_BYTES));
	self->late = evil_count("revokes_late");
	self->fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, tow_region_create(self->fd, TOW_SLAB, &self->region));
	ASSERT_EQ(0, tow_publish(self->fd, self->region.handle, "w", TOW_SLAB, &self->exported));
	ASSERT_EQ(0, evil_patience(EVIL_PATIENT));
	ASSERT_EQ(0, evil_ready(&self->e, 1));
	ASSERT_EQ(0, evil_patience(EVIL_HASTY));
	self->grant = find(&self->e, 'w', 1);
	ASSERT_NE(0, self->grant);
	ASSERT_EQ(1, evil_count("grants"));
	/* The export alone keeps the memory. */
	ASSERT_EQ(0, tow_region_end(self->fd, &self->region));
}

/* All of it is over, the memory included. */
FIXTURE_TEARDOWN(revoke)
{
	EXPECT_EQ(0, evil_count("grants"));
	EXPECT_EQ(0, evil_count("exports"));
	EXPECT_TRUE(tow_pool_unused());
	evil_end(&self->e);
	EXPECT_EQ(0, evil_wait("sessions", 0));
	EXPECT_EQ(0, tow_module_unload("tow_hostile"));
}

/* ---- UNEXPORT, by somebody else ------------------------------------------------ */

struct unexporting {
	int fd;
	__u64 handle;
	int ret;
	double begun, ended;
	pthread_t thread;
};

static void *unexport(void *arg)
{
	struct unexporting *work = arg;

	work->begun = tow_clock_begin();
	work->ret = tow_end_handle(work->fd, TOW_IOCTL_UNEXPORT, work->handle);
	work->ended = tow_test_now();
	return NULL;
}

/* It has begun, and the resolver was told. */
static int begin(FIXTURE_DATA(revoke) *self, struct unexporting *work)
{
	struct revoke_grants said;

	*work = (struct unexporting) { .fd = self->fd, .handle = self->exported };
	if (pthread_create(&work->thread, NULL, unexport, work))
		return -EAGAIN;
	if (evil_hear(&self->e, EVIL_WAIT_MS) != T_REVOKE ||
	    self->e.last.bytes != EVIL_HEADER + sizeof(said))
		return -EPROTO;
	memcpy(&said, self->e.last.data + EVIL_HEADER, sizeof(said));
	return said.count == 1 && said.grant == self->grant ? 0 : -EPROTO;
}

static int let_go(FIXTURE_DATA(revoke) *self, int type, uint64_t grant)
{
	struct revoke_grants says = { .count = 1, .grant = grant };

	return evil_say(&self->e, type, 0, &says, sizeof(says));
}

static void end(struct __test_metadata *_metadata, struct unexporting *work)
{
	ASSERT_EQ(0, pthread_join(work->thread, NULL));
	EXPECT_EQ(0, work->ret);
}

/* Late, but in time; the memory is nobody else's until then. */
TEST_F(revoke, slow)
{
	struct unexporting work;

	ASSERT_EQ(0, evil_set("revoke_timeout_ms", "10000"));
	ASSERT_EQ(0, begin(self, &work));
	tow_test_sleep_ms(REVOKE_MS / 2);
	EXPECT_EQ(TOW_SLAB, tow_sysfs_get("pool_used_bytes"));
	EXPECT_EQ(1, evil_count("exports"));
	/* Who asks now is told that it is not there. */
	EXPECT_EQ(0, find(&self->e, 'w', 2));
	ASSERT_EQ(0, let_go(self, T_REVOKED, self->grant));
	end(_metadata, &work);
	EXPECT_LE(REVOKE_MS / 2e3, work.ended - work.begun);
	EXPECT_EQ(self->late, evil_count("revokes_late"));
	EXPECT_EQ(1, evil_count("sessions"));
}

/* It says that it does not need it any more, and never heard of the revoke. */
TEST_F(revoke, released_instead)
{
	struct unexporting work;

	ASSERT_EQ(0, begin(self, &work));
	ASSERT_EQ(0, let_go(self, T_RELEASE, self->grant));
	end(_metadata, &work);
	/* Both at the same time: the second is not wrong. */
	ASSERT_EQ(0, let_go(self, T_REVOKED, self->grant));
	EXPECT_EQ(0, find(&self->e, 'w', 2));
	EXPECT_EQ(1, evil_count("sessions"));
}

/* Who is to blame, and for what, can be read. */
TEST_F(revoke, never)
{
	struct unexporting work;
	int log = tow_log_open();
	char late[64];

	snprintf(late, sizeof(late), " revoke: late subject=%llu error=%d\n",
		 (unsigned long long)self->grant, -ETIMEDOUT);
	ASSERT_LE(0, log);
	ASSERT_EQ(0, begin(self, &work));
	end(_metadata, &work);
	EXPECT_TRUE(tow_peer_recorded(late));
	EXPECT_TRUE(tow_log_says(log, "not acknowledged; what happened before"));
	close(log);
	EXPECT_LE(REVOKE_MS / 1e3, work.ended - work.begun);
	TOW_WITHIN_AT(work.begun, work.ended, REVOKE_MS + 5000);
	EXPECT_EQ(self->late + 1, evil_count("revokes_late"));
	EXPECT_EQ(R_REVOKE_LATE, evil_how_it_ends(&self->e));
	EXPECT_EQ(0, evil_wait("sessions", 0));
}

/* Who has lost patience need not wait for what was allowed before. */
TEST_F(revoke, less_time_than_it_had)
{
	struct unexporting work;

	ASSERT_EQ(0, evil_set("revoke_timeout_ms", "600000"));
	ASSERT_EQ(0, begin(self, &work));
	tow_test_sleep_ms(100);
	EXPECT_EQ(1, evil_count("exports"));
	ASSERT_EQ(0, evil_set("revoke_timeout_ms", "500"));
	end(_metadata, &work);
	EXPECT_LE(0.5, work.ended - work.begun);
	TOW_WITHIN_AT(work.begun, work.ended, 500 + 5000);
	EXPECT_EQ(self->late + 1, evil_count("revokes_late"));
	EXPECT_EQ(R_REVOKE_LATE, evil_how_it_ends(&self->e));
	EXPECT_EQ(0, evil_wait("sessions", 0));
}

TEST_F(revoke, more_time_than_it_had)
{
	struct unexporting work;

	ASSERT_EQ(0, begin(self, &work));
	ASSERT_EQ(0, evil_set("revoke_timeout_ms", "600000"));
	tow_test_sleep_ms(REVOKE_MS + 500);
	EXPECT_EQ(1, evil_count("exports"));
	ASSERT_EQ(0, let_go(self, T_REVOKED, self->grant));
	end(_metadata, &work);
	EXPECT_LE(REVOKE_MS / 1e3, work.ended - work.begun);
	EXPECT_EQ(self->late, evil_count("revokes_late"));
	EXPECT_EQ(1, evil_count("sessions"));
}

TEST_F(revoke, dead)
{
	struct unexporting work;

	ASSERT_EQ(0, evil_set("revoke_timeout_ms", "20000"));
	ASSERT_EQ(0, begin(self, &work));
	evil_hang_up(&self->e);
	end(_metadata, &work);
	TOW_WITHIN_AT(work.begun, work.ended, 10000);
	EXPECT_EQ(self->late, evil_count("revokes_late"));
}

/* A program of a job waits for a name.  0, or a negative errno. */
static int wait_for_name(struct evil *e, uint8_t job, uint32_t request)
{
	struct evil_resolve body = evil_resolve('n', request, TOW_RIGHT_READ);

	body.job[0] = job;
	body.wait = 1;
	return evil_say(e, T_RESOLVE, 0, &body, sizeof(body));
}

/*
 * The status of the next answer; -ETIMEDOUT: there is none.  Heartbeats come as often as
 * some callers wait, so they must not begin the time anew.
 */
static int answered(struct evil *e, uint32_t timeout_ms)
{
	double end = tow_test_now() + timeout_ms / 1e3, left;
	uint32_t status;
	int type;

	do {
		left = end - tow_test_now();
		type = evil_hear_any(e, left > 0 ? (uint32_t)(left * 1e3) : 0);
	} while (type == T_HEARTBEAT || type == T_CREDIT);
	if (type != T_RESOLVED)
		return type < 0 ? type : -EPROTO;
	memcpy(&status, e->last.data + EVIL_HEADER + 16, sizeof(status));
	return (int)status;
}

/* A job may wait for half of the names that there is room for, others for half of the rest. */
TEST_F_TIMEOUT(revoke, names_that_one_job_waits_for, 120)
{
	enum { ROOM = 1024, FIRST = 1000, NOT_FOUND = 1, TOO_MANY = 4 };
	struct unexporting work;
	/* The first, one that was never asked for, and the first again. */
	const uint32_t taken_back[] = { FIRST, 1, FIRST };
	uint8_t job = 2;
	uint32_t i;

	for (i = 0; i < ROOM / 2; i++) {
		ASSERT_EQ(0, evil_await_room(&self->e));
		ASSERT_EQ(0, wait_for_name(&self->e, 1, FIRST + i));
		ASSERT_EQ(-ETIMEDOUT, answered(&self->e, 0));
	}
	ASSERT_EQ(0, wait_for_name(&self->e, 1, FIRST + i));
	EXPECT_EQ(TOO_MANY, answered(&self->e, EVIL_WAIT_MS));
	/* Another one, unless it happens to be counted as the same. */
	do {
		ASSERT_GT(12, job);
		ASSERT_EQ(0, wait_for_name(&self->e, job++, FIRST + i));
	} while (answered(&self->e, 500) == TOO_MANY);
	/* One that is taken back makes room. */
	ASSERT_EQ(0, evil_say(&self->e, T_CANCEL, 0, taken_back, sizeof(taken_back)));
	EXPECT_EQ(NOT_FOUND, answered(&self->e, EVIL_WAIT_MS));
	ASSERT_EQ(0, wait_for_name(&self->e, 1, FIRST));
	EXPECT_EQ(-ETIMEDOUT, answered(&self->e, 500));
	EXPECT_EQ(1, evil_count("sessions"));
	ASSERT_EQ(0, begin(self, &work));
	ASSERT_EQ(0, let_go(self, T_REVOKED, self->grant));
	end(_metadata, &work);
}

/* The number of a request that waits is not another's. */
TEST_F(revoke, a_number_that_waits)
{
	ASSERT_EQ(0, wait_for_name(&self->e, 1, 7));
	ASSERT_EQ(-ETIMEDOUT, answered(&self->e, 0));
	ASSERT_EQ(0, evil_heard(wait_for_name(&self->e, 1, 7)));
	EXPECT_EQ(R_PROTOCOL, evil_how_it_ends(&self->e));
	EXPECT_EQ(0, evil_wait("grants", 0));
	EXPECT_EQ(0, tow_end_handle(self->fd, TOW_IOCTL_UNEXPORT, self->exported));
}

/* What was not asked for cannot be acknowledged. */
TEST_F(revoke, acknowledged_before)
{
	ASSERT_EQ(0, evil_heard(let_go(self, T_REVOKED, self->grant)));
	EXPECT_EQ(R_PROTOCOL, evil_how_it_ends(&self->e));
	EXPECT_EQ(0, evil_wait("grants", 0));
	EXPECT_EQ(0, tow_end_handle(self->fd, TOW_IOCTL_UNEXPORT, self->exported));
}

/* The exporter is killed while it waits: what it had ends all the same. */
TEST_F(revoke, the_exporter_goes)
{
	close(self->fd);
	EXPECT_EQ(T_REVOKE, evil_hear(&self->e, EVIL_WAIT_MS));
	EXPECT_EQ(TOW_SLAB, tow_sysfs_get("pool_used_bytes"));
	ASSERT_EQ(0, let_go(self, T_REVOKED, self->grant));
	EXPECT_EQ(0, evil_wait("exports", 0));
	EXPECT_EQ(1, evil_count("sessions"));
}

/* ---- regions that outlive their client ------------------------------------------ */

/* Makes one and publishes it, and waits to be killed. */
static void be_owner(int end)
{
	int fd = tow_test_open(O_RDWR), ret = fd;
	struct tow_region_create made;
	__u64 exported;
	char byte;

	if (fd >= 0)
		ret = tow_region_create_named(fd, TOW_SLAB, TOW_REGION_PERSISTENT, 60, "kept",
					      &made);
	if (!ret)
		ret = tow_publish(fd, made.handle, "k", TOW_SLAB, &exported);
	if (write(end, &ret, sizeof(ret)) != sizeof(ret))
		_exit(1);
	_exit(read(end, &byte, 1) != 1);
}

/* The resolver has found what its owner published who is killed then: its grant, or 0. */
static uint64_t leave_behind(FIXTURE_DATA(revoke) *self)
{
	int ends[2], ret = -1, status;
	uint64_t grant = 0;
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return 0;
	child = fork();
	if (!child) {
		close(ends[0]);
		be_owner(ends[1]);
	}
	close(ends[1]);
	if (read(ends[0], &ret, sizeof(ret)) == sizeof(ret) && !ret)
		grant = find(&self->e, 'k', 2);
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	close(ends[0]);
	return evil_hear(&self->e, EVIL_WAIT_MS) == T_REVOKE ? grant : 0;
}

/* A take-over, which may have to wait. */
struct attaching {
	int fd;
	int ret;
	bool over;
	struct tow_region_attach made;
	pthread_t thread;
};

static void *attach(void *arg)
{
	struct attaching *work = arg;

	work->ret = tow_region_attach(work->fd, "kept", &work->made);
	__atomic_store_n(&work->over, true, __ATOMIC_RELEASE);
	return NULL;
}

/* It has begun, and waits: the region lingers as before. */
static void expect_waits(struct __test_metadata *_metadata, struct attaching *work, int fd)
{
	struct tow_region_info info;

	work->fd = fd;
	work->over = false;
	ASSERT_EQ(0, pthread_create(&work->thread, NULL, attach, work));
	tow_test_sleep_ms(300);
	EXPECT_FALSE(__atomic_load_n(&work->over, __ATOMIC_ACQUIRE));
	ASSERT_EQ(0, tow_region_find(fd, 0, "kept", &info));
	EXPECT_LE(TOW_REGION_PERSISTENT, info.flags);
	EXPECT_EQ(0, info.pid);
}

static void expect_taken_over(struct __test_metadata *_metadata, struct attaching *work)
{
	pthread_join(work->thread, NULL);
	ASSERT_EQ(0, work->ret);
	EXPECT_EQ(0, tow_region_destroy(work->fd, work->made.handle));
	close(work->made.fd);
}

TEST_F(revoke, taken_over_when_peers_have_let_go)
{
	struct attaching work;
	uint64_t grant;

	ASSERT_EQ(0, evil_set("revoke_timeout_ms", "20000"));
	grant = leave_behind(self);
	ASSERT_NE(0, grant);
	expect_waits(_metadata, &work, self->fd);
	ASSERT_EQ(0, let_go(self, T_REVOKED, grant));
	EXPECT_EQ(1, evil_wait("grants", 1));
	EXPECT_EQ(1, evil_wait("exports", 1));
	expect_taken_over(_metadata, &work);
	ASSERT_EQ(0, let_go(self, T_RELEASE, self->grant));
	EXPECT_EQ(0, tow_end_handle(self->fd, TOW_IOCTL_UNEXPORT, self->exported));
	EXPECT_EQ(1, evil_count("sessions"));
}

TEST_F(revoke, taken_over_when_they_never_do)
{
	struct attaching work;

	ASSERT_NE(0, leave_behind(self));
	expect_waits(_metadata, &work, self->fd);
	EXPECT_EQ(R_REVOKE_LATE, evil_how_it_ends(&self->e));
	EXPECT_EQ(0, evil_wait("grants", 0));
	EXPECT_EQ(1, evil_wait("exports", 1));
	expect_taken_over(_metadata, &work);
	EXPECT_EQ(0, tow_end_handle(self->fd, TOW_IOCTL_UNEXPORT, self->exported));
}

/* What others have published of it, to whom its owner gave it, ends with them. */
TEST_F(revoke, taken_over_whatever_others_have_published)
{
	int owner = tow_test_open(O_RDWR), other = tow_test_open(O_RDWR);
	struct attaching work = { .fd = self->fd };
	struct tow_region_create made;
	uint64_t shared, grant;
	__u64 exported;

	ASSERT_LE(0, owner);
	ASSERT_LE(0, other);
	ASSERT_EQ(0, tow_region_create_named(owner, TOW_SLAB, TOW_REGION_PERSISTENT, 60, "kept",
					     &made));
	ASSERT_EQ(0, tow_region_from_fd(other, made.fd, &shared));
	close(made.fd);
	ASSERT_EQ(0, tow_publish(other, shared, "o", TOW_SLAB, &exported));
	grant = find(&self->e, 'o', 2);
	ASSERT_NE(0, grant);
	close(owner);
	ASSERT_EQ(0, pthread_create(&work.thread, NULL, attach, &work));
	expect_taken_over(_metadata, &work);
	ASSERT_EQ(0, let_go(self, T_RELEASE, grant));
	ASSERT_EQ(0, let_go(self, T_RELEASE, self->grant));
	EXPECT_EQ(0, evil_wait("grants", 0));
	EXPECT_EQ(0, tow_end_handle(other, TOW_IOCTL_UNEXPORT, exported));
	EXPECT_EQ(0, tow_end_handle(self->fd, TOW_IOCTL_UNEXPORT, self->exported));
	close(other);
}

TEST_HARNESS_MAIN
