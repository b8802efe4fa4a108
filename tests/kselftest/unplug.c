// SPDX-License-Identifier: GPL-2.0
/*
 * The RDMA device goes away while files are open on it, while calls run, while
 * sysfs is read, while a call sleeps in a page fault; it comes back, under its
 * name or another one.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include "tow_test.h"
#include "tow_halt.h"
#include "tow_hotplug.h"
#include "tow_identity.h"
#include "tow_peer.h"
#include "tow_region.h"
#include "tow_tracing.h"

/* With its file open, called or read, the device is gone within this time. */
#define REMOVE_SECONDS	5.0

FIXTURE(unplug)
{
	char name[NAME_MAX + 1];
	char interface[64];
	char incarnation_file[512];
};

FIXTURE_SETUP(unplug)
{
	/* Looked up while the device is there: the later calls remember. */
	snprintf(self->name, sizeof(self->name), "%s", tow_test_device());
	snprintf(self->interface, sizeof(self->interface), "%s", tow_link_interface());
	snprintf(self->incarnation_file, sizeof(self->incarnation_file), "%s/incarnation",
		 tow_sysfs_dir());
	ASSERT_STRNE("none", self->name);
	ASSERT_EQ(0, access(tow_test_path(), F_OK))
		TH_LOG("%s is not there", tow_test_path());
}

FIXTURE_TEARDOWN_PARENT(unplug)
{
	EXPECT_TRUE(tow_second_del());
	EXPECT_TRUE(tow_link_restore(self->name, self->interface))
		TH_LOG("%s does not come back", self->name);
}

/* When the last removal began, and when it ended. */
struct removal {
	double begin, end;
};

static bool remove_timed(const char *name, struct removal *removal)
{
	bool ok;

	removal->begin = tow_clock_begin();
	ok = tow_link_del(name);
	removal->end = tow_test_now();
	return ok;
}

static void in_time(struct __test_metadata *_metadata, const struct removal *removal)
{
	TOW_WITHIN_AT(removal->begin, removal->end, REMOVE_SECONDS * 1e3);
}

static int ask_dead(void *arg)
{
	struct tow_query query;

	return tow_test_query(*(int *)arg, &query);
}

/* Whatever is asked of a file whose device is gone, the answer is ENODEV. */
static int check_dead(struct __test_metadata *_metadata, int fd)
{
	struct pollfd waiter = { .fd = fd, .events = POLLIN | POLLOUT };
	struct tow_query query = { .size = 4, .flags = 1 };
	struct stat st;
	int who;

	for (who = 0; who < TOW_WHO_COUNT; who++) {
		EXPECT_EQ(-ENODEV, tow_as(who, ask_dead, &fd))
			TH_LOG("%s", tow_who_name[who]);
	}
	/* It comes before every other error. */
	EXPECT_EQ(-ENODEV, tow_test_ioctl(fd, TOW_IOCTL_QUERY, &query));
	EXPECT_EQ(-ENODEV, tow_test_ioctl(fd, TOW_IOCTL_QUERY, NULL));
	EXPECT_EQ(-ENODEV, tow_test_ioctl(fd, _IO(TOW_IOCTL_TYPE, 255), NULL));
	/* Other system calls neither hang nor succeed by mistake. */
	EXPECT_EQ(-1, read(fd, &query, sizeof(query)));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0));
	EXPECT_EQ(ENODEV, errno);
	EXPECT_EQ(0, fstat(fd, &st));
	EXPECT_LE(0, poll(&waiter, 1, 0));
	return _metadata->exit_code;
}

TEST_F_TIMEOUT(unplug, with_the_file_open, 3600)
{
	unsigned char seen[8][TOW_INCARNATION_BYTES];
	int count = tow_test_count(5);
	struct tow_query query;
	int fd, old, i, j;
	struct removal removal;

	memset(seen, 0, sizeof(seen));
	for (i = 0; i < count; i++) {
		fd = tow_test_open(O_RDWR);
		ASSERT_LE(0, fd)
			TH_LOG("round %d: %s", i, strerror(-fd));
		ASSERT_EQ(0, tow_test_query(fd, &query));
		for (j = 0; j < 8 && j < i; j++) {
			EXPECT_NE(0, memcmp(seen[j], query.incarnation, sizeof(seen[j])))
				TH_LOG("round %d: an incarnation came back", i);
		}
		memcpy(seen[i % 8], query.incarnation, sizeof(seen[0]));

		ASSERT_TRUE(remove_timed(self->name, &removal));
		in_time(_metadata, &removal);
		EXPECT_EQ(-1, access(tow_test_path(), F_OK));
		EXPECT_EQ(-1, access(tow_sysfs_dir(), F_OK));
		EXPECT_EQ(-ENOENT, tow_test_open(O_RDWR));
		if (!i) {
			check_dead(_metadata, fd);
		} else {
			EXPECT_EQ(-ENODEV, ask_dead(&fd));
		}

		ASSERT_TRUE(tow_link_add(self->name, self->interface));
		ASSERT_TRUE(tow_wait_path(tow_test_path(), true));
		/* The file stays with the life it was opened in. */
		old = fd;
		fd = tow_test_open(O_RDWR);
		ASSERT_LE(0, fd);
		EXPECT_EQ(0, tow_test_query(fd, &query));
		EXPECT_EQ(-ENODEV, ask_dead(&old));
		close(old);
		EXPECT_EQ(0, tow_test_query(fd, &query));
		close(fd);
	}
}

/* The dead file still holds the module. */
TEST_F(unplug, dead_file_holds_the_module)
{
	int fd = tow_test_open(O_RDWR);

	ASSERT_LE(0, fd);
	ASSERT_TRUE(tow_link_del(self->name));
	EXPECT_EQ(-1, syscall(SYS_delete_module, "towline", O_NONBLOCK));
	EXPECT_EQ(EWOULDBLOCK, errno);
	EXPECT_EQ(-ENODEV, ask_dead(&fd));
	close(fd);
}

struct hammer {
	pthread_t thread;
	const char *sysfs;
	int fd;
	atomic_int *stop;
	atomic_int answers;	/* good ones */
	atomic_int gone;	/* -ENODEV and the like */
	int wrong;	/* anything else, or an answer after the end */
	int last_wrong;
};

static void hammer_note(struct hammer *hammer, int ret)
{
	switch (ret) {
	case 0:
		hammer->answers++;
		break;
	case -ENODEV:
	case -ENOENT:
	case -ENXIO:
		hammer->gone++;
		break;
	default:
		hammer->wrong++;
		hammer->last_wrong = ret;
	}
}

static void *hammer_query(void *arg)
{
	struct hammer *hammer = arg;
	struct tow_query query;
	bool dead = false;
	int ret;

	while (!*hammer->stop) {
		ret = tow_test_query(hammer->fd, &query);
		hammer_note(hammer, ret);
		if (ret)
			dead = true;
		else if (dead)
			hammer->wrong++;
	}
	return NULL;
}

static void *hammer_open(void *arg)
{
	struct hammer *hammer = arg;
	struct tow_query query;
	int fd;

	while (!*hammer->stop) {
		fd = tow_test_open(O_RDWR);
		hammer_note(hammer, fd < 0 ? fd : 0);
		if (fd < 0)
			continue;
		hammer_note(hammer, tow_test_query(fd, &query));
		close(fd);
	}
	return NULL;
}

static void *hammer_sysfs(void *arg)
{
	struct hammer *hammer = arg;
	char line[64];
	ssize_t got;
	int fd;

	while (!*hammer->stop) {
		fd = open(hammer->sysfs, O_RDONLY | O_CLOEXEC);
		if (fd < 0) {
			hammer_note(hammer, -errno);
			continue;
		}
		got = read(fd, line, sizeof(line));
		if (got < 0)
			hammer_note(hammer, -errno);
		else
			hammer_note(hammer, got == 2 * TOW_INCARNATION_BYTES + 1 ? 0 : -EBADMSG);
		close(fd);
	}
	return NULL;
}

static bool all_answered(const struct hammer *hammers, size_t count)
{
	while (count-- > 0)
		if (!hammers[count].answers)
			return false;
	return true;
}

static bool all_gone(const struct hammer *hammers, size_t count)
{
	while (count-- > 0)
		if (!hammers[count].gone)
			return false;
	return true;
}

/* All threads have seen the device, or its end: also those that start late. */
static bool wait_for_hammers(bool (*what)(const struct hammer *hammers, size_t count),
			     const struct hammer *hammers, size_t count)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);

	while (!what(hammers, count)) {
		if (!tow_patient(&patience))
			return false;
		tow_test_sleep_ms(10);
	}
	return true;
}

TEST_F_TIMEOUT(unplug, under_fire, 120)
{
	void *(*what[])(void *) = { hammer_query, hammer_query, hammer_open, hammer_sysfs };
	struct hammer hammers[ARRAY_SIZE(what)];
	int rounds = 2;
	struct removal removal;
	size_t i;

	while (rounds--) {
		atomic_int stop = 0;
		int fd = tow_test_open(O_RDWR);

		ASSERT_LE(0, fd);
		for (i = 0; i < ARRAY_SIZE(what); i++) {
			hammers[i] = (struct hammer){
				.fd = fd, .stop = &stop, .sysfs = self->incarnation_file,
			};
			ASSERT_EQ(0, pthread_create(&hammers[i].thread, NULL, what[i],
						    &hammers[i]));
		}
		EXPECT_TRUE(wait_for_hammers(all_answered, hammers, ARRAY_SIZE(what)));
		tow_test_sleep_ms(50);
		EXPECT_TRUE(remove_timed(self->name, &removal));
		EXPECT_TRUE(wait_for_hammers(all_gone, hammers, ARRAY_SIZE(what)));
		EXPECT_TRUE(tow_link_add(self->name, self->interface));
		EXPECT_TRUE(tow_wait_path(tow_test_path(), true));
		tow_test_sleep_ms(50);
		stop = 1;
		for (i = 0; i < ARRAY_SIZE(what); i++) {
			pthread_join(hammers[i].thread, NULL);
			EXPECT_EQ(0, hammers[i].wrong)
				TH_LOG("thread %zu: %s", i, strerror(-hammers[i].last_wrong));
			EXPECT_LT(0, atomic_load(&hammers[i].answers));
			EXPECT_LT(0, atomic_load(&hammers[i].gone));
		}
		in_time(_metadata, &removal);
		close(fd);
	}
}

static void *hammer_regions(void *arg)
{
	const size_t sizes[] = { TOW_SMALL_SLAB, TOW_SMALL_REGION, TOW_SLAB };
	struct hammer *hammer = arg;
	unsigned int turn = 0;
	bool dead = false;
	int ret;

	while (!*hammer->stop) {
		/* The device may go meanwhile: memory stays memory. */
		ret = tow_mapped_use(hammer->fd, sizes[turn % ARRAY_SIZE(sizes)], 8192, turn + 1);
		turn++;
		/* Four at once may find the pool empty. */
		hammer_note(hammer, ret == -ENOSPC ? 0 : ret);
		if (ret)
			dead = dead || ret == -ENODEV;
		else if (dead)
			hammer->wrong++;
	}
	return NULL;
}

TEST_F_TIMEOUT(unplug, while_regions_are_used, 3600)
{
	int rounds = tow_test_count(5), round;
	struct hammer hammers[4];
	struct removal removal;
	size_t i;

	for (round = 0; round < rounds; round++) {
		int fd = tow_test_open(O_RDWR);
		struct tow_mapped kept;
		atomic_int stop = 0;

		ASSERT_LE(0, fd);
		ASSERT_EQ(0, tow_sysfs_put("pool_bytes", "12m"));
		/* Is there all the while, whatever the device does. */
		ASSERT_EQ(0, tow_mapped_make(fd, TOW_SLAB, &kept));
		tow_fill(kept.at, kept.bytes, (uint64_t)round + 1);
		for (i = 0; i < ARRAY_SIZE(hammers); i++) {
			hammers[i] = (struct hammer){ .fd = fd, .stop = &stop };
			ASSERT_EQ(0, pthread_create(&hammers[i].thread, NULL, hammer_regions,
						    &hammers[i]));
		}
		EXPECT_TRUE(wait_for_hammers(all_answered, hammers, ARRAY_SIZE(hammers)));
		tow_test_sleep_ms(50);
		EXPECT_TRUE(remove_timed(self->name, &removal));
		EXPECT_EQ(0, tow_differs(kept.at, kept.bytes, (uint64_t)round + 1));
		tow_fill(kept.at, kept.bytes, (uint64_t)round + 2);
		EXPECT_TRUE(wait_for_hammers(all_gone, hammers, ARRAY_SIZE(hammers)));
		stop = 1;
		for (i = 0; i < ARRAY_SIZE(hammers); i++) {
			pthread_join(hammers[i].thread, NULL);
			EXPECT_EQ(0, hammers[i].wrong)
				TH_LOG("thread %zu: %s", i, strerror(-hammers[i].last_wrong));
			EXPECT_LT(0, atomic_load(&hammers[i].answers));
			EXPECT_LT(0, atomic_load(&hammers[i].gone));
		}
		in_time(_metadata, &removal);
		EXPECT_TRUE(tow_link_add(self->name, self->interface));
		EXPECT_TRUE(tow_wait_path(tow_test_path(), true));
		EXPECT_EQ(0, tow_sysfs_get("pool_bytes"));
		EXPECT_EQ(0, tow_differs(kept.at, kept.bytes, (uint64_t)round + 2));
		EXPECT_EQ(-ENODEV, tow_mapped_end(&kept));
		close(fd);
	}
}

#define ENDERS		4
#define ENDER_REGIONS	16

/* Has mapped regions, and gives them up when the device is going. */
struct ender {
	pthread_t thread;
	struct tow_mapped mapped[ENDER_REGIONS];
	int client;
	long pause_us;
};

/* Nothing but the last munmap and the last close: the client is left as it is. */
static void *end_regions(void *arg)
{
	struct ender *ender = arg;
	int i;

	/* Whoever asks now is refused: the device's end has begun. */
	while (ask_dead(&ender->client) != -ENODEV)
		;
	for (i = 0; i < ENDER_REGIONS; i++) {
		munmap(ender->mapped[i].at, ender->mapped[i].bytes);
		close(ender->mapped[i].made.fd);
		usleep((unsigned int)ender->pause_us);
	}
	return NULL;
}

static void start_ender(struct __test_metadata *_metadata, struct ender *ender, int client)
{
	int owner = tow_test_open(O_RDWR), i;

	ASSERT_LE(0, owner);
	for (i = 0; i < ENDER_REGIONS; i++) {
		ASSERT_EQ(0, tow_mapped_make(owner, i & 1 ? TOW_SLAB : 1, &ender->mapped[i]));
		ender->mapped[i].at[0] = 1;
	}
	/* Mappings and descriptors are all that holds them from here on. */
	close(owner);
	ender->client = client;
	ASSERT_EQ(0, pthread_create(&ender->thread, NULL, end_regions, ender));
}

/*
 * Regions end while removal takes slabs off the RDMA device: each of them is
 * taken off it, by one or the other.
 */
TEST_F_TIMEOUT(unplug, while_regions_end, 3600)
{
	int rounds = tow_test_count(5), round, client, log = tow_log_open();
	static struct ender enders[ENDERS];
	struct removal removal;
	size_t i;

	ASSERT_LE(0, log);
	for (round = 0; round < rounds; round++) {
		client = tow_test_open(O_RDWR);
		ASSERT_LE(0, client);
		ASSERT_EQ(0, tow_sysfs_set("pool_bytes", (ENDERS * ENDER_REGIONS / 2 + 4) *
							 TOW_SLAB));
		for (i = 0; i < ENDERS; i++) {
			enders[i].pause_us = 100L * (round % 5) * (long)i;
			start_ender(_metadata, &enders[i], client);
		}
		EXPECT_TRUE(remove_timed(self->name, &removal));
		for (i = 0; i < ENDERS; i++)
			pthread_join(enders[i].thread, NULL);
		in_time(_metadata, &removal);
		close(client);
		ASSERT_TRUE(tow_link_add(self->name, self->interface));
		ASSERT_TRUE(tow_wait_path(tow_test_path(), true));
	}
	/* What the RDMA core finds on a device that goes, it says. */
	EXPECT_EQ(0, tow_log_count(log, "RESTRACK", "leak"));
	close(log);
}

/* With one processor meanwhile: tow_tracing.h tells why. */
static bool trace_switch(const char *how)
{
	bool done = !tow_tracing_processors("0") && tow_shell("cd " TOW_TRACEFS " && %s", how);

	return !tow_tracing_processors("1") && done;
}

/* Note when removal comes to the pool, and each slab that is zeroed. */
static bool trace_begin(void)
{
	return trace_switch("echo > trace && "
			    "echo p:tow_test/stop towline:tow_pool_stop > kprobe_events && "
			    "echo p:tow_test/zero towline:tow_slab_zero >> kprobe_events && "
			    "echo 1 > events/tow_test/enable");
}

/* How many were zeroed after removal had come to the pool; -1: it never did. */
static int trace_end(void)
{
	FILE *trace = fopen(TOW_TRACEFS "/trace", "re");
	int zeroed = -1;
	char line[256];

	while (trace && fgets(line, sizeof(line), trace)) {
		if (strstr(line, " stop: "))
			zeroed = 0;
		else if (zeroed >= 0 && strstr(line, " zero: "))
			zeroed++;
	}
	if (trace)
		fclose(trace);
	trace_switch("echo 0 > events/tow_test/enable && echo > kprobe_events");
	return zeroed;
}

/* Much to zero, and little enough that a kernel which poisons what is freed is in time. */
#define DIRTY_BYTES	(512 * TOW_MB)

/* Nobody needs zeroes when the device goes: however much is dirty, it goes. */
TEST_F_TIMEOUT(unplug, with_much_to_zero, 120)
{
	struct tow_region_create made;
	int fd = tow_test_open(O_RDWR), zeroed;
	struct removal removal;
	bool removed;

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, tow_sysfs_set("pool_bytes", DIRTY_BYTES));
	ASSERT_EQ(0, tow_region_create(fd, DIRTY_BYTES, &made));
	ASSERT_TRUE(trace_begin());
	EXPECT_EQ(0, tow_region_end(fd, &made));
	removed = remove_timed(self->name, &removal);
	zeroed = trace_end();
	EXPECT_TRUE(removed);
	in_time(_metadata, &removal);
	EXPECT_LE(0, zeroed);
	/* The one that was begun. */
	EXPECT_GE(1, zeroed);
	TH_LOG("%.2f s, %d slabs zeroed", removal.end - removal.begin, zeroed);
	close(fd);
}

/* A file of sysfs that was open all the while. */
TEST_F(unplug, open_sysfs_file)
{
	char line[64];
	int fd = open(self->incarnation_file, O_RDONLY | O_CLOEXEC);

	ASSERT_LE(0, fd);
	ASSERT_EQ(2 * TOW_INCARNATION_BYTES + 1, pread(fd, line, sizeof(line), 0));
	ASSERT_TRUE(tow_link_del(self->name));
	EXPECT_EQ(-1, pread(fd, line, sizeof(line), 0));
	EXPECT_EQ(ENODEV, errno);
	close(fd);
}

static void *query_slowly(void *arg)
{
	struct hammer *hammer = arg;

	hammer->last_wrong = tow_test_ioctl(hammer->fd, TOW_IOCTL_QUERY,
					    (void *)(uintptr_t)hammer->sysfs);
	return NULL;
}

static int slow_sleepers(int slow)
{
	char text[16] = "";

	return pread(slow, text, sizeof(text) - 1, 0) > 0 ? atoi(text) : 0;
}

/*
 * A process that removes the device when it is told, and says how long that
 * took.  It is made beforehand: a process one of whose threads sleeps in a page
 * fault cannot start others, as that needs its memory map for writing.
 */
static int start_remover(const char *name)
{
	struct removal removal;
	int ends[2];
	char go;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
		return -1;
	if (!fork()) {
		close(ends[0]);
		_exit(read(ends[1], &go, 1) != 1 || !remove_timed(name, &removal) ||
		      write(ends[1], &removal, sizeof(removal)) != sizeof(removal));
	}
	close(ends[1]);
	return ends[0];
}

/* Has it removed it? */
static bool tell_remover(int remover, struct removal *removal)
{
	bool good = write(remover, "1", 1) == 1 &&
		    read(remover, removal, sizeof(*removal)) == sizeof(*removal);

	close(remover);
	return good;
}

/*
 * A call sleeps in a page fault, as it may for as long as user space likes:
 * its argument lies half in ordinary memory, half in a page of tow_plant.ko
 * that is not there before we say so.  Removal must not wait for it.
 */
TEST_F_TIMEOUT(unplug, while_a_call_sleeps_in_a_fault, 60)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct hammer sleeper = { .fd = tow_test_open(O_RDWR) };
	int remover = start_remover(self->name);
	struct removal removal = { 0 };
	struct tow_patience patience;
	int slow;
	char *area;

	ASSERT_LE(0, remover);
	ASSERT_LE(0, sleeper.fd);
	ASSERT_EQ(0, tow_module_load("tow_plant", ""));
	slow = open("/sys/kernel/debug/tow_plant/slow", O_RDWR | O_CLOEXEC);
	ASSERT_LE(0, slow);
	area = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)area);
	ASSERT_EQ(area + page, mmap(area + page, page, PROT_READ | PROT_WRITE,
				    MAP_SHARED | MAP_FIXED, slow, 0));
	sleeper.sysfs = area + page - 64;
	memcpy(area + page - 64, &(__u32){ sizeof(struct tow_query) }, sizeof(__u32));
	ASSERT_EQ(0, pthread_create(&sleeper.thread, NULL, query_slowly, &sleeper));
	patience = tow_patience(TOW_SETTLE_SECONDS);
	while (!slow_sleepers(slow) && tow_patient(&patience))
		tow_test_sleep_ms(10);
	ASSERT_EQ(1, slow_sleepers(slow));

	EXPECT_TRUE(tell_remover(remover, &removal));
	EXPECT_EQ(1, slow_sleepers(slow))
		TH_LOG("the call no longer slept: nothing was shown");
	EXPECT_EQ(1, write(slow, "1", 1));
	pthread_join(sleeper.thread, NULL);
	EXPECT_EQ(-ENODEV, sleeper.last_wrong);
	close(sleeper.fd);
	munmap(area, 2 * page);
	close(slow);
	EXPECT_EQ(0, tow_module_unload("tow_plant"));
	in_time(_metadata, &removal);
}

/* A call, by a thread; and the removal, where that waits for the call. */
struct caller {
	int fd;
	char *memory;
	int ret;
	pthread_t thread;
};

static void *import_there(void *arg)
{
	struct caller *caller = arg;
	uint64_t handle;

	caller->ret = tow_region_import(caller->fd, caller->memory, TOW_SLAB, 0, &handle);
	return NULL;
}

static void *connect_there(void *arg)
{
	struct caller *caller = arg;
	__u64 peer;

	caller->ret = tow_connect_self(caller->fd, &peer);
	return NULL;
}

/* To an address of the lab's network that no node has. */
static void *connect_nowhere(void *arg)
{
	struct tow_peer_connect call = { .size = sizeof(call), .timeout_ms = TOW_WAIT_MS };
	struct caller *caller = arg;

	tow_own_address(call.address);
	call.address[TOW_ADDRESS_BYTES - 1] = 250;
	caller->ret = tow_test_ioctl(caller->fd, TOW_IOCTL_PEER_CONNECT, &call);
	return NULL;
}

static void *remove_there(void *arg)
{
	struct caller *caller = arg;

	caller->ret = tow_link_del(caller->memory) ? 0 : -EIO;
	return NULL;
}

/* Memory has been mapped for the device, and is not a region so far. */
TEST_F_TIMEOUT(unplug, while_an_import_is_completed, 60)
{
	struct caller importer = { .fd = tow_test_open(O_RDWR) };
	struct removal removal;

	ASSERT_LE(0, importer.fd);
	importer.memory = mmap(NULL, TOW_SLAB, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)importer.memory);
	ASSERT_EQ(0, tow_halt_begin("tow_region_alloc"));
	ASSERT_EQ(0, pthread_create(&importer.thread, NULL, import_there, &importer));
	EXPECT_TRUE(tow_halt_wait());
	EXPECT_TRUE(remove_timed(self->name, &removal));
	EXPECT_EQ(0, tow_halt_end());
	pthread_join(importer.thread, NULL);
	EXPECT_EQ(0, importer.ret);
	munmap(importer.memory, TOW_SLAB);
	close(importer.fd);
	in_time(_metadata, &removal);
}

/* A session can be found by who ends it, and its timer is about to be started. */
TEST_F_TIMEOUT(unplug, while_a_session_begins, 60)
{
	struct caller connector = { .fd = tow_test_open(O_RDWR) };
	struct caller remover = { .memory = self->name };

	ASSERT_LE(0, connector.fd);
	ASSERT_EQ(0, tow_halt_begin("tow_session_watch"));
	ASSERT_EQ(0, pthread_create(&connector.thread, NULL, connect_there, &connector));
	EXPECT_TRUE(tow_halt_wait());
	ASSERT_EQ(0, pthread_create(&remover.thread, NULL, remove_there, &remover));
	/* If it can, it has ended the session by then. */
	tow_test_sleep_ms(1000);
	EXPECT_EQ(0, tow_halt_end());
	pthread_join(connector.thread, NULL);
	EXPECT_EQ(-ENODEV, connector.ret);
	pthread_join(remover.thread, NULL);
	EXPECT_EQ(0, remover.ret);
	/* Long enough for a timer of what is gone. */
	tow_test_sleep_ms(2000);
	close(connector.fd);
}

/* What the network says of it meanwhile is of no use to the caller. */
TEST_F_TIMEOUT(unplug, while_nobody_answers, 60)
{
	struct caller connector = { .fd = tow_test_open(O_RDWR) };
	struct caller remover = { .memory = self->name };

	ASSERT_LE(0, connector.fd);
	ASSERT_EQ(0, tow_halt_begin("tow_peers_quiesce"));
	ASSERT_EQ(0, pthread_create(&connector.thread, NULL, connect_nowhere, &connector));
	tow_test_sleep_ms(100);
	ASSERT_EQ(0, pthread_create(&remover.thread, NULL, remove_there, &remover));
	EXPECT_TRUE(tow_halt_wait());
	pthread_join(connector.thread, NULL);
	EXPECT_EQ(0, tow_halt_end());
	EXPECT_EQ(-ENODEV, connector.ret);
	pthread_join(remover.thread, NULL);
	EXPECT_EQ(0, remover.ret);
	close(connector.fd);
}

/* Open files and the incarnation survive a change of name; the node moves. */
TEST_F(unplug, rename)
{
	struct tow_query before, after;
	int fd = tow_test_open(O_RDWR);

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, tow_test_query(fd, &before));
	ASSERT_TRUE(tow_shell("rdma dev set %s name %s_new", self->name, self->name));
	EXPECT_EQ(0, tow_test_query(fd, &after));
	EXPECT_EQ(0, memcmp(before.incarnation, after.incarnation, TOW_INCARNATION_BYTES));
	EXPECT_EQ(0, strncmp(after.device_name, self->name, strlen(self->name)));
	EXPECT_STREQ("_new", after.device_name + strlen(self->name));
	EXPECT_EQ(-ENOENT, tow_test_open(O_RDWR));
	EXPECT_TRUE(tow_shell("test -c %s_new && test -e %s_new/incarnation && test ! -e %s",
			      tow_test_path(), tow_sysfs_dir(), tow_sysfs_dir()));

	/* Back again, over an open file of the new name. */
	EXPECT_TRUE(tow_shell("exec 3< %s_new && rdma dev set %s_new name %s",
			      tow_test_path(), self->name, self->name));
	EXPECT_EQ(0, tow_test_query(fd, &after));
	EXPECT_STREQ(self->name, after.device_name);
	EXPECT_TRUE(tow_wait_path(tow_test_path(), true));
	close(fd);
}

static void *grow_pool(void *arg)
{
	struct caller *grower = arg;

	grower->ret = tow_sysfs_set("pool_bytes", *(uint64_t *)grower->memory);
	return NULL;
}

/* A new name waits for nobody who makes the pool larger. */
TEST_F_TIMEOUT(unplug, rename_while_the_pool_grows, 60)
{
	uint64_t bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 2;
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	struct caller grower = { .memory = (void *)&bytes };
	char other[sizeof(self->name) + sizeof("_new")];
	uint64_t had;

	snprintf(other, sizeof(other), "%s_new", self->name);
	ASSERT_EQ(0, tow_pool_fresh(0));
	ASSERT_EQ(0, pthread_create(&grower.thread, NULL, grow_pool, &grower));
	while (tow_sysfs_get("pool_bytes") < 2 * TOW_SLAB && tow_patient(&patience))
		;
	/* No program is started, as all might have grown by then. */
	EXPECT_EQ(0, tow_rdma_rename(self->name, other));
	pthread_join(grower.thread, NULL);
	EXPECT_EQ(-EAGAIN, grower.ret);
	EXPECT_EQ(0, tow_rdma_rename(other, self->name));
	EXPECT_TRUE(tow_wait_path(tow_test_path(), true));
	/* What there was stays. */
	had = tow_sysfs_get("pool_bytes");
	TH_LOG("%llu of %llu MiB were there", (unsigned long long)had >> 20,
	       (unsigned long long)bytes >> 20);
	EXPECT_LE(2 * TOW_SLAB, had);
	EXPECT_GT(bytes, had);
	EXPECT_EQ(0, tow_sysfs_set("pool_bytes", had + TOW_SLAB));
	EXPECT_EQ(0, tow_sysfs_set("pool_bytes", 0));
}

/* The network interface under a second device is unplugged. */
TEST_F(unplug, one_of_two_devices)
{
	char second[512], name[NAME_MAX + 8];
	struct tow_query one, two;
	int fd, other;

	snprintf(name, sizeof(name), "%s_two", self->name);
	snprintf(second, sizeof(second), "%s_two", tow_test_path());
	ASSERT_TRUE(tow_second_add(name));
	EXPECT_TRUE(tow_wait_path(second, true));
	fd = tow_test_open(O_RDWR);
	other = open(second, O_RDWR | O_CLOEXEC);
	EXPECT_LE(0, fd);
	EXPECT_LE(0, other);
	EXPECT_EQ(0, tow_test_query(fd, &one));
	EXPECT_EQ(0, tow_test_query(other, &two));
	EXPECT_NE(0, memcmp(one.incarnation, two.incarnation, TOW_INCARNATION_BYTES));
	EXPECT_STRNE(one.device_name, two.device_name);

	EXPECT_TRUE(tow_second_del());
	EXPECT_TRUE(tow_wait_path(second, false));
	EXPECT_EQ(-ENODEV, ask_dead(&other));
	EXPECT_EQ(0, tow_test_query(fd, &one));
	close(other);
	close(fd);
}

/* The driver itself is unloaded under an open file. */
TEST_F_TIMEOUT(unplug, driver_unloaded, 60)
{
	int fd = tow_test_open(O_RDWR);
	struct removal removal;

	ASSERT_LE(0, fd);
	removal.begin = tow_clock_begin();
	ASSERT_TRUE(tow_shell("rmmod %s", tow_link_driver()));
	removal.end = tow_test_now();
	EXPECT_EQ(-ENODEV, ask_dead(&fd));
	EXPECT_EQ(-1, access(tow_test_path(), F_OK));
	ASSERT_TRUE(tow_shell("modprobe %s", tow_link_driver()));
	close(fd);
	in_time(_metadata, &removal);
}

TEST_HARNESS_MAIN
