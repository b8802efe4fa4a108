// SPDX-License-Identifier: GPL-2.0
/*
 * libtowline's exports and remote ranges against the real module, with the node
 * as its own peer: publishing and finding by name, waiting for a name, jobs, how
 * exports end, and each error that a program can meet on one node.
 */
/* build: link -ltowline */
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/wait.h>

#include "tow_libpeer.h"

#define KIB		((size_t)1 << 10)
#define ALL_RIGHTS	(TOW_RIGHT_READ | TOW_RIGHT_WRITE)
#define THREADS		4
#define ROUNDS		20

static int open_in_job(uint8_t job, struct tow_device **dev)
{
	uint8_t key[TOW_JOB_KEY_BYTES];
	int ret;

	memset(key, job, sizeof(key));
	ret = tow_device_open(tow_test_device(), 0, dev);
	return ret ? ret : tow_job_join(*dev, key);
}

/* The exports that a client sees, by name; -1 if one of them is not as it must be. */
static int count_exports(const struct tow_device *dev, uint32_t flags, const char *name,
			 struct tow_export_info *last)
{
	struct tow_exports *list;
	uint64_t last_id = 0;
	int count = 0;

	if (tow_export_list_get(dev, flags, &list))
		return -1;
	for (size_t i = 0; i < tow_export_list_count(list); i++) {
		struct tow_export_info info = { .size = sizeof(info) };

		if (tow_export_list_entry(list, i, &info) || info.size != sizeof(info) ||
		    info.id <= last_id || info.name[info.name_bytes])
			count = -1;
		if (count < 0)
			break;
		last_id = info.id;
		if (strcmp((const char *)info.name, name) != 0)
			continue;
		count++;
		*last = info;
	}
	tow_export_list_free(list);
	return count;
}

/* ---- exports and remote ranges ---- */

TEST_F(peer, publish_and_find)
{
	struct tow_exported *exported;
	struct tow_export_info info;
	struct tow_peer_info node;
	struct tow_remote *remote;

	ASSERT_EQ(0, tow_export(self->region, 4 * KIB, 10001, "weights", ALL_RIGHTS, &exported));
	ASSERT_EQ(0, tow_resolve(self->peer, "weights", TOW_RIGHT_READ, 0, &remote));
	EXPECT_EQ(10001, tow_remote_bytes(remote));
	ASSERT_EQ(1, count_exports(self->dev, 0, "weights", &info));
	EXPECT_EQ(0, info.flags);
	EXPECT_EQ(4 * KIB, info.offset);
	EXPECT_EQ(10001, info.bytes);
	EXPECT_EQ(ALL_RIGHTS, info.rights);
	EXPECT_EQ(1, info.grants);
	EXPECT_EQ(getuid(), info.uid);
	EXPECT_EQ(getpid(), info.pid);
	ASSERT_EQ(0, tow_info_of(self->peer, &node));
	EXPECT_LE(1, node.remotes);
	EXPECT_EQ(0, tow_remote_release(remote));
	EXPECT_EQ(0, tow_unexport(exported));
	EXPECT_EQ(0, count_exports(self->dev, 0, "weights", &info));
}

TEST_F(peer, answers_are_kept)
{
	struct tow_remote *first, *second, *writer;
	struct tow_exported *exported;
	struct tow_export_info info;
	long long asked;

	ASSERT_EQ(0, tow_export(self->region, 0, TOW_PEER_REGION, "kept", ALL_RIGHTS, &exported));
	asked = tow_get_count("stats/resolves");
	ASSERT_EQ(0, tow_resolve(self->peer, "kept", TOW_RIGHT_READ, 0, &first));
	ASSERT_EQ(0, tow_resolve(self->peer, "kept", TOW_RIGHT_READ, 0, &second));
	EXPECT_EQ(asked + 1, tow_get_count("stats/resolves"));
	/* Other rights are another key. */
	ASSERT_EQ(0, tow_resolve(self->peer, "kept", TOW_RIGHT_WRITE, 0, &writer));
	EXPECT_EQ(asked + 2, tow_get_count("stats/resolves"));
	ASSERT_EQ(1, count_exports(self->dev, 0, "kept", &info));
	EXPECT_EQ(2, info.grants);
	EXPECT_EQ(0, tow_remote_release(first));
	EXPECT_EQ(0, tow_remote_release(second));
	EXPECT_EQ(0, tow_remote_release(writer));
	EXPECT_EQ(0, tow_unexport(exported));
}

TEST_F(peer, names)
{
	static const char * const good[] = { "w", "a b/c", "gr\xc3\xb6\xc3\x9f" "e", "\xff\x80" };
	static const char * const bad[] = { "", "a\n", "\x01", "a\x7f" };
	char name[TOW_EXPORT_NAME_MAX + 2];
	struct tow_exported *exported = NULL;
	struct tow_remote *remote = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		ASSERT_EQ(0, tow_export(self->region, 0, i + 1, good[i], TOW_RIGHT_READ,
					&exported));
		ASSERT_EQ(0, tow_resolve(self->peer, good[i], TOW_RIGHT_READ, 0, &remote));
		EXPECT_EQ(i + 1, tow_remote_bytes(remote));
		EXPECT_EQ(0, tow_remote_release(remote));
		EXPECT_EQ(0, tow_unexport(exported));
	}
	memset(name, 'n', sizeof(name));
	name[TOW_EXPORT_NAME_MAX] = '\0';
	ASSERT_EQ(0, tow_export(self->region, 0, 1, name, TOW_RIGHT_READ, &exported));
	ASSERT_EQ(0, tow_resolve(self->peer, name, TOW_RIGHT_READ, 0, &remote));
	EXPECT_EQ(0, tow_remote_release(remote));
	/* All of it counts. */
	name[TOW_EXPORT_NAME_MAX - 1] = '\0';
	EXPECT_EQ(-ENOENT, tow_resolve(self->peer, name, TOW_RIGHT_READ, 0, &remote));
	EXPECT_EQ(0, tow_unexport(exported));

	exported = NULL;
	remote = NULL;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		EXPECT_EQ(-EINVAL, tow_export(self->region, 0, 1, bad[i], TOW_RIGHT_READ,
					      &exported));
		EXPECT_EQ(-EINVAL, tow_resolve(self->peer, bad[i], TOW_RIGHT_READ, 0, &remote));
	}
	memset(name, 'n', TOW_EXPORT_NAME_MAX + 1);
	name[TOW_EXPORT_NAME_MAX + 1] = '\0';
	EXPECT_EQ(-EINVAL, tow_export(self->region, 0, 1, name, TOW_RIGHT_READ, &exported));
	EXPECT_EQ(-EINVAL, tow_resolve(self->peer, name, TOW_RIGHT_READ, 0, &remote));
	EXPECT_EQ(NULL, exported);
	EXPECT_EQ(NULL, remote);
}

TEST_F(peer, export_checks_its_arguments)
{
	struct tow_exported *exported = NULL, *first;

#define REFUSED(error, offset, bytes, rights) \
	EXPECT_EQ(error, tow_export(self->region, offset, bytes, "w", rights, &exported))
	REFUSED(-EINVAL, 0, 0, TOW_RIGHT_READ);
	REFUSED(-EINVAL, 0, TOW_PEER_REGION + 1, TOW_RIGHT_READ);
	REFUSED(-EINVAL, TOW_PEER_REGION, 1, TOW_RIGHT_READ);
	REFUSED(-EINVAL, 1, TOW_PEER_REGION, TOW_RIGHT_READ);
	REFUSED(-EINVAL, UINT64_MAX, 2, TOW_RIGHT_READ);
	REFUSED(-EINVAL, 2, UINT64_MAX, TOW_RIGHT_READ);
	REFUSED(-EINVAL, 0, 1, 0);
	REFUSED(-EINVAL, 0, 1, TOW_RIGHT_READ | TOW_RIGHT_NOTIFY);
	REFUSED(-EINVAL, 0, 1, TOW_RIGHT_READ | 1U << 4);
	REFUSED(-EINVAL, 0, 1, 1U << 4);
	REFUSED(-EINVAL, 0, 1, TOW_RIGHT_ATOMIC);
	REFUSED(-EINVAL, 0, 1, TOW_RIGHT_ATOMIC | TOW_RIGHT_READ);
	ASSERT_EQ(0, tow_export(self->region, TOW_PEER_REGION - 1, 1, "w", TOW_RIGHT_WRITE,
				&first));
	REFUSED(-EEXIST, 0, 1, TOW_RIGHT_READ);
#undef REFUSED
	EXPECT_EQ(NULL, exported);
	EXPECT_EQ(0, tow_unexport(first));
}

TEST_F(peer, atomics_where_there_are_any)
{
	struct tow_device_attr attr = { .size = sizeof(attr) };
	struct tow_exported *exported;
	int ret;

	ASSERT_EQ(0, tow_device_query(self->dev, &attr));
	ret = tow_export(self->region, 0, 8, "counter", ALL_RIGHTS | TOW_RIGHT_ATOMIC, &exported);
	if (attr.features & TOW_FEATURE_ATOMICS) {
		ASSERT_EQ(0, ret);
		EXPECT_EQ(0, tow_unexport(exported));
	} else {
		EXPECT_EQ(-EOPNOTSUPP, ret);
	}
}

TEST_F(peer, memory_of_the_process)
{
	struct tow_exported *exported = NULL;
	struct tow_region *region;
	struct tow_remote *remote;
	char *memory = mmap(NULL, TOW_PEER_REGION, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ASSERT_NE(MAP_FAILED, memory);
	ASSERT_EQ(0, tow_region_from_memory(self->dev, memory + 100, 5000, TOW_REGION_READONLY,
					    &region));
	EXPECT_EQ(-EACCES, tow_export(region, 0, 5000, "own", TOW_RIGHT_WRITE, &exported));
	EXPECT_EQ(-EACCES, tow_export(region, 0, 5000, "own", ALL_RIGHTS, &exported));
	EXPECT_EQ(NULL, exported);
	ASSERT_EQ(0, tow_export(region, 1, 4999, "own", TOW_RIGHT_READ, &exported));
	ASSERT_EQ(0, tow_resolve(self->peer, "own", TOW_RIGHT_READ, 0, &remote));
	EXPECT_EQ(4999, tow_remote_bytes(remote));
	EXPECT_EQ(0, tow_remote_release(remote));
	EXPECT_EQ(0, tow_unexport(exported));
	EXPECT_EQ(0, tow_region_destroy(region));
}

TEST_F(peer, resolve_checks_rights)
{
	struct tow_remote *remote = NULL;
	struct tow_exported *exported;

	ASSERT_EQ(0, tow_export(self->region, 0, TOW_PEER_REGION, "read", TOW_RIGHT_READ,
				&exported));
	EXPECT_EQ(-EACCES, tow_resolve(self->peer, "read", TOW_RIGHT_WRITE, 0, &remote));
	EXPECT_EQ(-EACCES, tow_resolve(self->peer, "read", ALL_RIGHTS, TOW_PEER_WAIT_MS, &remote));
	EXPECT_EQ(-EINVAL, tow_resolve(self->peer, "read", 0, 0, &remote));
	EXPECT_EQ(-EINVAL, tow_resolve(self->peer, "read", TOW_RIGHT_READ | TOW_RIGHT_NOTIFY, 0,
				       &remote));
	EXPECT_EQ(-EINVAL, tow_resolve(self->peer, "read", TOW_RIGHT_READ | 1U << 4, 0, &remote));
	EXPECT_EQ(-EINVAL, tow_resolve(self->peer, "read", TOW_RIGHT_ATOMIC, 0, &remote));
	EXPECT_EQ(NULL, remote);
	EXPECT_EQ(0, tow_unexport(exported));
}

/* ---- waiting for a name ---- */

TEST_F(peer, nobody_exports_the_name)
{
	struct tow_remote *remote = NULL;
	double start = tow_test_now();

	EXPECT_EQ(-ENOENT, tow_resolve(self->peer, "nosuch", TOW_RIGHT_READ, 0, &remote));
	EXPECT_EQ(-ETIMEDOUT, tow_resolve(self->peer, "nosuch", TOW_RIGHT_READ, 300, &remote));
	EXPECT_LE(0.3, tow_test_now() - start);
	EXPECT_EQ(NULL, remote);
}

static void *export_late(void *region)
{
	struct tow_exported *exported;

	tow_test_sleep_ms(300);
	if (tow_export(region, 0, 77, "late", TOW_RIGHT_READ, &exported))
		return NULL;
	return exported;
}

TEST_F(peer, who_asks_first_waits)
{
	struct tow_remote *remote;
	void *exported = NULL;
	pthread_t thread;

	ASSERT_EQ(0, pthread_create(&thread, NULL, export_late, self->region));
	EXPECT_EQ(0, tow_resolve(self->peer, "late", TOW_RIGHT_READ, TOW_WAIT_FOREVER, &remote));
	ASSERT_EQ(0, pthread_join(thread, &exported));
	ASSERT_NE(NULL, exported);
	EXPECT_EQ(77, tow_remote_bytes(remote));
	EXPECT_EQ(0, tow_remote_release(remote));
	EXPECT_EQ(0, tow_unexport(exported));
}

static void nothing(int signal)
{
	(void)signal;
}

static int ends(void *arg)
{
	(void)arg;
	return 1;
}

TEST_F(peer, a_wait_goes_on_after_signals)
{
	struct itimerval soon = { .it_value.tv_usec = 20000, .it_interval.tv_usec = 20000 };
	struct itimerval never = { 0 };
	struct sigaction action = { .sa_handler = nothing };
	struct tow_remote *remote = NULL;
	double begin = tow_clock_begin();

	ASSERT_EQ(0, sigaction(SIGALRM, &action, NULL));
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &soon, NULL));
	EXPECT_EQ(-ETIMEDOUT, tow_resolve(self->peer, "nosuch", TOW_RIGHT_READ, 500, &remote));
	EXPECT_GE(tow_clock_begin() - begin, 0.5);
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &never, NULL));
	EXPECT_EQ(NULL, remote);
}

TEST_F(peer, a_signal_ends_the_wait)
{
	/* Again and again: one before the call waits is for nothing. */
	struct itimerval soon = { .it_value.tv_usec = 300000, .it_interval.tv_usec = 300000 };
	struct itimerval never = { 0 };
	struct sigaction action = { .sa_handler = nothing };
	struct tow_remote *remote = NULL;

	tow_on_signal(ends, NULL);
	ASSERT_EQ(0, sigaction(SIGALRM, &action, NULL));
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &soon, NULL));
	EXPECT_EQ(-EINTR, tow_resolve(self->peer, "nosuch", TOW_RIGHT_READ, TOW_WAIT_FOREVER,
				      &remote));
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &never, NULL));
	tow_on_signal(NULL, NULL);
	EXPECT_EQ(NULL, remote);
}

/* ---- how exports end ---- */

TEST_F(peer, unexport_reaches_who_found_it)
{
	struct tow_exported *exported;
	struct tow_remote *old, *new;

	ASSERT_EQ(0, tow_export(self->region, 0, 100, "w", TOW_RIGHT_READ, &exported));
	ASSERT_EQ(0, tow_resolve(self->peer, "w", TOW_RIGHT_READ, 0, &old));
	ASSERT_EQ(0, tow_unexport(exported));
	EXPECT_EQ(-ENOENT, tow_resolve(self->peer, "w", TOW_RIGHT_READ, 0, &new));

	/* The name is free; who finds it now finds another thing. */
	ASSERT_EQ(0, tow_export(self->region, 0, 200, "w", TOW_RIGHT_READ, &exported));
	ASSERT_EQ(0, tow_resolve(self->peer, "w", TOW_RIGHT_READ, 0, &new));
	EXPECT_EQ(100, tow_remote_bytes(old));
	EXPECT_EQ(200, tow_remote_bytes(new));
	EXPECT_EQ(-ESTALE, tow_remote_release(old));
	EXPECT_EQ(0, tow_remote_release(new));
	EXPECT_EQ(0, tow_unexport(exported));
}

/* However often one comes: the memory is the caller's afterwards. */
TEST_F(peer, unexport_goes_on_after_signals)
{
	struct itimerval soon = { .it_value.tv_usec = 1000, .it_interval.tv_usec = 1000 };
	struct itimerval never = { 0 };
	struct sigaction action = { .sa_handler = nothing };
	struct tow_exported *exported;
	struct tow_export_info info;
	struct tow_remote *remote;

	tow_on_signal(ends, NULL);
	ASSERT_EQ(0, sigaction(SIGALRM, &action, NULL));
	for (int i = 0; i < 10 * ROUNDS; i++) {
		ASSERT_EQ(0, tow_export(self->region, 0, 100, "w", TOW_RIGHT_READ, &exported));
		ASSERT_EQ(0, tow_resolve(self->peer, "w", TOW_RIGHT_READ, 0, &remote));
		ASSERT_EQ(0, setitimer(ITIMER_REAL, &soon, NULL));
		EXPECT_EQ(0, tow_unexport(exported));
		ASSERT_EQ(0, setitimer(ITIMER_REAL, &never, NULL));
		EXPECT_EQ(0, count_exports(self->dev, 0, "w", &info));
		tow_remote_release(remote);
	}
	tow_on_signal(NULL, NULL);
}

TEST_F(peer, an_export_holds_its_region)
{
	struct tow_exported *exported;
	struct tow_region *region;
	struct tow_remote *remote;
	long long used;

	/* What the tests before this one had is on its way back. */
	used = TOW_PEER_REGION;
	ASSERT_EQ(used, tow_wait_count("pool_used_bytes", used));
	ASSERT_EQ(0, tow_region_create(self->dev, TOW_PEER_REGION, NULL, &region));
	ASSERT_EQ(0, tow_export(region, 0, TOW_PEER_REGION, "held", TOW_RIGHT_READ, &exported));
	ASSERT_EQ(0, tow_region_destroy(region));
	ASSERT_EQ(0, tow_resolve(self->peer, "held", TOW_RIGHT_READ, 0, &remote));
	EXPECT_EQ(used + (long long)TOW_PEER_REGION, tow_get_count("pool_used_bytes"));
	EXPECT_EQ(0, tow_unexport(exported));
	EXPECT_EQ(used, tow_wait_count("pool_used_bytes", used));
	EXPECT_EQ(-ESTALE, tow_remote_release(remote));
}

/* Exports something, says so, and waits to be killed. */
static pid_t start_publisher(const char *name, int *ready)
{
	struct tow_exported *exported;
	struct tow_region *region;
	struct tow_device *dev;
	int ends[2];
	pid_t child;

	if (pipe2(ends, O_CLOEXEC))
		return -1;
	child = fork();
	if (child) {
		close(ends[1]);
		*ready = ends[0];
		return child;
	}
	if (tow_device_open(tow_test_device(), 0, &dev) ||
	    tow_region_create(dev, TOW_PEER_REGION, NULL, &region) ||
	    tow_export(region, 0, TOW_PEER_REGION, name, ALL_RIGHTS, &exported) ||
	    write(ends[1], "r", 1) != 1)
		_exit(1);
	for (;;)
		pause();
}

static bool is_ready(int ready)
{
	char byte;
	bool is = read(ready, &byte, 1) == 1;

	close(ready);
	return is;
}

/* The answer that was kept is there until the word of its end has come. */
static int resolve_until_gone(struct tow_peer *peer, const char *name)
{
	struct tow_patience patience = tow_patience(TOW_PEER_SETTLE_SECONDS);
	struct tow_remote *remote;
	int ret;

	while (!(ret = tow_resolve(peer, name, ALL_RIGHTS, 0, &remote)) && tow_patient(&patience)) {
		tow_remote_release(remote);
		tow_test_sleep_ms(10);
	}
	return ret;
}

TEST_F(peer, exports_of_a_killed_process_are_gone)
{
	struct tow_exported *exported = NULL;
	struct tow_peer_info before, now;
	struct tow_remote *remote;
	int status, ready;
	pid_t publisher = start_publisher("mortal", &ready);

	ASSERT_LT(0, publisher);
	ASSERT_TRUE(is_ready(ready));
	ASSERT_EQ(0, tow_resolve(self->peer, "mortal", ALL_RIGHTS, 0, &remote));
	EXPECT_EQ(-EEXIST, tow_export(self->region, 0, 1, "mortal", TOW_RIGHT_READ, &exported));
	EXPECT_EQ(NULL, exported);
	ASSERT_EQ(0, tow_info_of(self->peer, &before));
	ASSERT_EQ(0, kill(publisher, SIGKILL));
	ASSERT_EQ(publisher, waitpid(publisher, &status, 0));

	/* A client ends before its process can be waited for: the name is free. */
	ASSERT_EQ(0, tow_export(self->region, 0, 1, "mortal", TOW_RIGHT_READ, &exported));
	EXPECT_EQ(0, tow_unexport(exported));
	EXPECT_EQ(-ENOENT, resolve_until_gone(self->peer, "mortal"));
	EXPECT_EQ(0, tow_wait_count("stats/exports", 0));
	EXPECT_EQ(-ESTALE, tow_remote_release(remote));
	/* The connection is the node's. */
	ASSERT_EQ(0, tow_info_of(self->peer, &now));
	EXPECT_EQ(before.epoch, now.epoch);
	EXPECT_EQ(TOW_PEER_READY, now.state);
}

/* ---- who may ---- */

struct family {
	struct tow_region *region;
	struct tow_exported *exported;
	struct tow_peer *peer;
	struct tow_remote *remote;
};

static int export_as_child(void *arg)
{
	struct family *family = arg;
	struct tow_exported *exported;

	return tow_export(family->region, 0, 1, "child", TOW_RIGHT_READ, &exported);
}

static int unexport_as_child(void *arg)
{
	return tow_unexport(((struct family *)arg)->exported);
}

static int resolve_as_child(void *arg)
{
	struct family *family = arg;
	struct tow_remote *remote;

	return tow_resolve(family->peer, "parent", TOW_RIGHT_READ, 0, &remote);
}

static int release_as_child(void *arg)
{
	return tow_remote_release(((struct family *)arg)->remote);
}

TEST_F(peer, a_child_is_not_the_client)
{
	struct family family = { .region = self->region, .peer = self->peer };

	ASSERT_EQ(0, tow_export(self->region, 0, 1, "parent", TOW_RIGHT_READ, &family.exported));
	ASSERT_EQ(0, tow_resolve(self->peer, "parent", TOW_RIGHT_READ, 0, &family.remote));
	EXPECT_EQ(-EPERM, tow_as(TOW_ROOT, export_as_child, &family));
	EXPECT_EQ(-EPERM, tow_as(TOW_ROOT, unexport_as_child, &family));
	EXPECT_EQ(-EPERM, tow_as(TOW_ROOT, resolve_as_child, &family));
	EXPECT_EQ(-EPERM, tow_as(TOW_ROOT, release_as_child, &family));
	/* What the child freed was its own copy. */
	EXPECT_EQ(0, tow_remote_release(family.remote));
	EXPECT_EQ(0, tow_unexport(family.exported));
}

TEST_F(peer, jobs_have_names_of_their_own)
{
	struct tow_exported *exported[2], *secret;
	struct tow_remote *remote = NULL;
	struct tow_export_info info;
	struct tow_region *region[2];
	struct tow_device *dev[2];
	struct tow_peer *peer[2];

	for (uint8_t i = 0; i < 2; i++) {
		ASSERT_EQ(0, open_in_job(i + 1, &dev[i]));
		ASSERT_EQ(0, tow_region_create(dev[i], TOW_PEER_REGION, NULL, &region[i]));
		ASSERT_EQ(0, tow_peer_connect(dev[i], tow_own_address(), NULL, TOW_PEER_WAIT_MS,
					      &peer[i]));
		ASSERT_EQ(0, tow_export(region[i], 0, i + 1, "same", TOW_RIGHT_READ, &exported[i]));
	}
	ASSERT_EQ(0, tow_export(region[0], 0, 9, "secret", TOW_RIGHT_READ, &secret));
	for (uint8_t i = 0; i < 2; i++) {
		ASSERT_EQ(0, tow_resolve(peer[i], "same", TOW_RIGHT_READ, 0, &remote));
		EXPECT_EQ(i + 1, tow_remote_bytes(remote));
		EXPECT_EQ(0, tow_remote_release(remote));
		EXPECT_EQ(1, count_exports(dev[i], 0, "same", &info));
		EXPECT_EQ(i + 1, info.bytes);
	}
	remote = NULL;
	/* Found by one's own, once, so that an answer is kept. */
	ASSERT_EQ(0, tow_resolve(peer[0], "secret", TOW_RIGHT_READ, 0, &remote));
	EXPECT_EQ(0, tow_remote_release(remote));
	remote = NULL;
	EXPECT_EQ(-ENOENT, tow_resolve(peer[1], "secret", TOW_RIGHT_READ, 0, &remote));
	EXPECT_EQ(-ENOENT, tow_resolve(self->peer, "secret", TOW_RIGHT_READ, 0, &remote));
	EXPECT_EQ(-ENOENT, tow_resolve(self->peer, "same", TOW_RIGHT_READ, 0, &remote));
	EXPECT_EQ(NULL, remote);
	EXPECT_EQ(0, count_exports(dev[1], 0, "secret", &info));
	EXPECT_EQ(0, count_exports(self->dev, 0, "same", &info));
	/* An administrator sees what there is, and in whose job. */
	EXPECT_EQ(2, count_exports(self->dev, TOW_LIST_ALL, "same", &info));
	EXPECT_EQ(1, count_exports(self->dev, TOW_LIST_ALL, "secret", &info));

	EXPECT_EQ(0, tow_unexport(secret));
	for (uint8_t i = 0; i < 2; i++) {
		EXPECT_EQ(0, tow_unexport(exported[i]));
		EXPECT_EQ(0, tow_region_destroy(region[i]));
		tow_peer_release(peer[i]);
		tow_device_close(dev[i]);
	}
}

/* Names stay where they were given. */
TEST_F(peer, a_client_that_joins_leaves_its_names)
{
	struct tow_exported *before, *after;
	struct tow_export_info info;
	uint8_t key[TOW_JOB_KEY_BYTES];

	memset(key, 7, sizeof(key));
	ASSERT_EQ(0, tow_export(self->region, 0, 1, "n", TOW_RIGHT_READ, &before));
	ASSERT_EQ(0, tow_job_join(self->dev, key));
	EXPECT_EQ(0, count_exports(self->dev, 0, "n", &info));
	ASSERT_EQ(0, tow_export(self->region, 0, 2, "n", TOW_RIGHT_READ, &after));
	EXPECT_EQ(2, count_exports(self->dev, TOW_LIST_ALL, "n", &info));
	EXPECT_EQ(0, tow_unexport(before));
	EXPECT_EQ(1, count_exports(self->dev, 0, "n", &info));
	EXPECT_EQ(2, info.bytes);
	EXPECT_EQ(0, tow_unexport(after));
}

/* ---- what runs out ---- */

TEST_F(peer, exports_are_limited)
{
	struct tow_exported *first, *second = NULL;
	char client[32], all[32];

	tow_get_file("client_export_limit", client, sizeof(client));
	tow_get_file("export_limit", all, sizeof(all));
	ASSERT_EQ(0, tow_export(self->region, 0, 1, "first", TOW_RIGHT_READ, &first));
	ASSERT_EQ(0, tow_set_file("client_export_limit", "1"));
	EXPECT_EQ(-EDQUOT, tow_export(self->region, 0, 1, "second", TOW_RIGHT_READ, &second));
	EXPECT_EQ(0, tow_set_file("client_export_limit", client));
	ASSERT_EQ(0, tow_set_file("export_limit", "1"));
	EXPECT_EQ(-ENOSPC, tow_export(self->region, 0, 1, "second", TOW_RIGHT_READ, &second));
	EXPECT_EQ(0, tow_set_file("export_limit", all));
	EXPECT_EQ(NULL, second);
	EXPECT_EQ(0, tow_unexport(first));
}

/* ---- many ---- */

/* More than fit into the first call. */
#define MANY 100

TEST_F(peer, lists_of_many)
{
	struct tow_exported *exported[MANY];
	struct tow_exports *list = NULL;
	struct tow_export_info info = { .size = sizeof(info) };
	char name[16];

	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "many%d", i);
		ASSERT_EQ(0, tow_export(self->region, 0, (uint64_t)i + 1, name, TOW_RIGHT_READ,
					&exported[i]));
	}
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "many%d", i);
		EXPECT_EQ(1, count_exports(self->dev, 0, name, &info));
		EXPECT_EQ((uint64_t)i + 1, info.bytes);
	}
	ASSERT_EQ(0, tow_export_list_get(self->dev, 0, &list));
	EXPECT_EQ(MANY, tow_export_list_count(list));
	info.size = sizeof(info);
	EXPECT_EQ(-EINVAL, tow_export_list_entry(list, MANY, &info));
	info.size = 8;
	EXPECT_EQ(-EINVAL, tow_export_list_entry(list, 0, &info));
	tow_export_list_free(list);
	list = NULL;
	EXPECT_EQ(-EINVAL, tow_export_list_get(self->dev, 1U << 31, &list));
	EXPECT_EQ(NULL, list);
	for (int i = 0; i < MANY; i++)
		ASSERT_EQ(0, tow_unexport(exported[i]));
	EXPECT_EQ(0, count_exports(self->dev, 0, "many0", &info));
}

struct work {
	struct tow_region *region;
	struct tow_peer *peer;
	int next;
	int failures;
};

static int publish_once(struct work *work, int thread, int round)
{
	struct tow_exported *exported;
	struct tow_remote *remote;
	bool first = round % 2;
	char name[32];
	int ret;

	snprintf(name, sizeof(name), "t%d", thread);
	if (tow_export(work->region, 0, (uint64_t)round + 1, name, TOW_RIGHT_READ, &exported))
		return -1;
	ret = tow_resolve(work->peer, name, TOW_RIGHT_READ, 0, &remote);
	if (ret) {
		tow_unexport(exported);
		return -1;
	}
	if (tow_remote_bytes(remote) != (uint64_t)round + 1)
		ret = -1;
	/* Given up before it ends, or found ended. */
	if (first && tow_remote_release(remote))
		ret = -1;
	if (tow_unexport(exported))
		ret = -1;
	if (!first && tow_remote_release(remote) != -ESTALE)
		ret = -1;
	return ret;
}

static void *publish_many(void *arg)
{
	struct work *work = arg;
	int thread = __atomic_fetch_add(&work->next, 1, __ATOMIC_RELAXED);

	for (int i = 0; i < ROUNDS; i++)
		if (publish_once(work, thread, i))
			__atomic_add_fetch(&work->failures, 1, __ATOMIC_RELAXED);
	return NULL;
}

TEST_F(peer, threads_with_one_peer)
{
	struct work work = { .region = self->region, .peer = self->peer };
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, publish_many, &work));
	for (int i = 0; i < THREADS; i++)
		ASSERT_EQ(0, pthread_join(threads[i], NULL));
	EXPECT_EQ(0, work.failures);
}

TEST_HARNESS_MAIN
