// SPDX-License-Identifier: GPL-2.0
/*
 * What an administrator learns: who is charged what, also when the client has ended;
 * where the pool's memory is; and by uevents that a limit was reached and that the
 * maintenance queue pair is there, whatever becomes of the device meanwhile.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include "tow_hotplug.h"
#include "tow_identity.h"
#include "tow_peer.h"
#include "tow_region.h"
#include "tow_uevent.h"

#define POOL_BYTES	(8 * TOW_SLAB)
#define MANY		64
#define OTHER_NAME	"towadmin"

FIXTURE(admin)
{
	struct tow_knobs before;
	char name[NAME_MAX + 1];
	char interface[64];
	int fd;
};

FIXTURE_SETUP(admin)
{
	tow_knobs_save(&self->before);
	snprintf(self->name, sizeof(self->name), "%s", tow_test_device());
	snprintf(self->interface, sizeof(self->interface), "%s", tow_link_interface());
	ASSERT_EQ(0, tow_pool_fresh(POOL_BYTES));
	self->fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN_PARENT(admin)
{
	EXPECT_TRUE(tow_link_restore(self->name, self->interface));
	EXPECT_EQ(0, tow_knobs_restore(&self->before));
	EXPECT_EQ(0, chmod(tow_test_path(), 0600));
}

/* ---- accounts --------------------------------------------------------------- */

/* How many were filled in, or a negative errno. */
static int list_accounts(int fd, __u32 flags, struct tow_account_info *entries, __u32 count)
{
	struct tow_account_list call = {
		.size = sizeof(call), .flags = flags, .entries = (uintptr_t)entries,
		.entry_size = sizeof(*entries), .count = count,
	};
	int ret = tow_test_ioctl(fd, TOW_IOCTL_ACCOUNT_LIST, &call);

	return ret ? ret : (int)call.count;
}

/* The sum of all accounts of a user; *count of them. */
static struct tow_account_info sum_of(int fd, __u32 flags, uid_t uid, int *count)
{
	struct tow_account_info entries[MANY], sum = { 0 };
	int i, found = list_accounts(fd, flags, entries, MANY);

	*count = found < 0 ? found : 0;
	for (i = 0; i < found; i++) {
		if (entries[i].uid != uid)
			continue;
		++*count;
		sum.flags |= entries[i].flags;
		sum.charged_bytes += entries[i].charged_bytes;
		sum.held_bytes += entries[i].held_bytes;
		sum.mrs += entries[i].mrs;
		sum.regions += entries[i].regions;
		sum.exports += entries[i].exports;
		sum.cgroup_id = entries[i].cgroup_id;
	}
	return sum;
}

TEST_F(admin, account_says_what_is_charged)
{
	struct tow_account_info sum;
	struct tow_region_create made;
	struct tow_region_info info;
	__u64 handle;
	int count;

	ASSERT_EQ(0, tow_region_create(self->fd, TOW_SLAB + 1, &made));
	ASSERT_EQ(0, tow_publish(self->fd, made.handle, "admin", TOW_SLAB, &handle));
	sum = sum_of(self->fd, 0, 0, &count);
	EXPECT_EQ(1, count);
	EXPECT_EQ(2 * TOW_SLAB, sum.charged_bytes);
	EXPECT_EQ(0, sum.held_bytes);
	EXPECT_EQ(2 * TOW_SLAB_MRS, sum.mrs);
	EXPECT_EQ(1, sum.regions);
	EXPECT_EQ(1, sum.exports);
	ASSERT_EQ(0, tow_region_query(self->fd, made.handle, &info));
	EXPECT_EQ(info.cgroup_id, sum.cgroup_id);
	ASSERT_EQ(0, tow_region_end(self->fd, &made));
}

/* What lingers is its dead client's. */
TEST_F(admin, account_outlives_its_client)
{
	struct tow_region_create made;
	struct tow_region_attach back;
	struct tow_account_info sum;
	int count, other = tow_test_open(O_RDWR);

	ASSERT_LE(0, other);
	ASSERT_EQ(0, tow_region_create_named(other, TOW_SLAB, TOW_REGION_PERSISTENT, 600, "admin",
					     &made));
	close(made.fd);
	close(other);
	sum = sum_of(self->fd, 0, 0, &count);
	EXPECT_EQ(2, count);
	EXPECT_EQ(TOW_ACCOUNT_ENDED | TOW_ACCOUNT_CLOSED, sum.flags);
	EXPECT_EQ(TOW_SLAB, sum.charged_bytes);
	ASSERT_EQ(0, tow_region_attach(self->fd, "admin", &back));
	sum = sum_of(self->fd, 0, 0, &count);
	EXPECT_EQ(1, count);
	EXPECT_EQ(0, sum.flags);
	EXPECT_EQ(TOW_SLAB, sum.charged_bytes);
	close(back.fd);
	EXPECT_EQ(0, tow_region_destroy(self->fd, back.handle));
}

/* A pipe holds a page of a slab: all of that stays charged. */
TEST_F_TIMEOUT(admin, held_is_told, 60)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	struct tow_account_info sum;
	struct tow_mapped mapped;
	struct iovec part;
	int ends[2], count;

	ASSERT_EQ(0, pipe(ends));
	ASSERT_EQ(0, tow_mapped_make(self->fd, TOW_SLAB, &mapped));
	part = (struct iovec){ .iov_base = mapped.at, .iov_len = 4096 };
	ASSERT_EQ(4096, vmsplice(ends[1], &part, 1, 0));
	ASSERT_EQ(0, tow_mapped_end(&mapped));
	do {
		sum = sum_of(self->fd, 0, 0, &count);
	} while (sum.held_bytes != TOW_SLAB && tow_patient(&patience));
	EXPECT_EQ(TOW_SLAB, sum.held_bytes);
	EXPECT_EQ(TOW_SLAB, sum.charged_bytes);
	close(ends[0]);
	close(ends[1]);
	while (sum.held_bytes && tow_patient(&patience))
		sum = sum_of(self->fd, 0, 0, &count);
	EXPECT_EQ(0, sum.held_bytes);
	EXPECT_EQ(0, sum.charged_bytes);
}

static int look_as_child(void *arg)
{
	struct tow_account_info entries[MANY];
	int i, count, fd = tow_test_open(O_RDONLY);

	(void)arg;
	if (fd < 0)
		return fd;
	if (list_accounts(fd, TOW_LIST_ALL, entries, MANY) != -EPERM)
		return 1;
	count = list_accounts(fd, 0, entries, MANY);
	for (i = 0; i < count; i++) {
		if (entries[i].uid != getuid())
			return 2;
	}
	return count == 1 ? 0 : 3;
}

TEST_F(admin, others_accounts_take_the_capability)
{
	struct tow_account_info sum;
	int ends[2], count, status;
	pid_t child;
	char byte;

	ASSERT_EQ(0, chmod(tow_test_path(), 0666));
	EXPECT_EQ(0, tow_as(TOW_NOBODY, look_as_child, NULL));
	ASSERT_EQ(0, pipe(ends));
	child = fork();
	if (!child) {
		if (tow_become(TOW_NOBODY) || tow_test_open(O_RDWR) < 0 ||
		    write(ends[1], "", 1) != 1)
			_exit(1);
		pause();
		_exit(0);
	}
	close(ends[1]);
	EXPECT_EQ(1, read(ends[0], &byte, 1));
	sum = sum_of(self->fd, TOW_LIST_ALL, 65534, &count);
	EXPECT_EQ(1, count);
	EXPECT_EQ(0, sum.charged_bytes);
	sum_of(self->fd, 0, 65534, &count);
	EXPECT_EQ(0, count);
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	close(ends[0]);
}

TEST_F(admin, list_refuses_what_it_does_not_know)
{
	struct tow_account_info entries[2];
	struct tow_account_list call = {
		.size = sizeof(call), .entries = (uintptr_t)entries, .count = 2,
		.entry_size = sizeof(*entries) - 8,
	};

	EXPECT_EQ(-EINVAL, tow_test_ioctl(self->fd, TOW_IOCTL_ACCOUNT_LIST, &call));
	call.entry_size = sizeof(*entries);
	call.flags = 2;
	EXPECT_EQ(-EINVAL, tow_test_ioctl(self->fd, TOW_IOCTL_ACCOUNT_LIST, &call));
	call.flags = 0;
	call.cursor = UINT64_MAX;
	EXPECT_EQ(0, tow_test_ioctl(self->fd, TOW_IOCTL_ACCOUNT_LIST, &call));
	EXPECT_EQ(0, call.count);
}

/* ---- the machine's nodes ------------------------------------------------------ */

TEST_F(admin, numa_bytes_are_the_pool)
{
	char line[512], *at;
	uint64_t sum = 0;

	tow_sysfs_line("pool_numa_bytes", line, sizeof(line));
	for (at = line; *at == 'N'; at += *at == ' ') {
		strtoul(at + 1, &at, 10);
		ASSERT_EQ('=', *at) TH_LOG("'%s'", line);
		sum += strtoull(at + 1, &at, 10);
	}
	EXPECT_EQ('\0', *at) TH_LOG("'%s'", line);
	EXPECT_EQ(POOL_BYTES, sum);
	ASSERT_EQ(0, tow_sysfs_put("pool_bytes", "0"));
	tow_sysfs_line("pool_numa_bytes", line, sizeof(line));
	EXPECT_EQ(0, strncmp(line, "N0=0", 4)) TH_LOG("'%s'", line);
}

/* ---- uevents ---------------------------------------------------------------- */

TEST_F(admin, uevent_names_the_limit)
{
	static const char *const files[] = {
		"client_bytes_limit", "user_region_limit", "device_region_limit",
	};
	int events = tow_uevent_open();
	struct tow_region_create made;
	size_t i;

	ASSERT_LE(0, events);
	for (i = 0; i < ARRAY_SIZE(files); i++) {
		ASSERT_EQ(0, tow_sysfs_set(files[i], 0));
		EXPECT_GT(0, tow_region_create(self->fd, TOW_SLAB, &made));
		ASSERT_EQ(0, tow_sysfs_put(files[i], "max"));
		EXPECT_TRUE(tow_uevent_wait(events, "limit", files[i])) TH_LOG("%s", files[i]);
	}
	EXPECT_EQ(-ENOSPC, tow_region_create(self->fd, 2 * POOL_BYTES, &made));
	EXPECT_TRUE(tow_uevent_wait(events, "limit", "pool_bytes"));
	close(events);
}

/* A program that does not stop asking does not keep udev busy; the last is told. */
TEST_F(admin, uevents_are_not_a_flood)
{
	int i, count, events = tow_uevent_open();
	double start = tow_test_now();
	struct tow_region_create made;

	ASSERT_LE(0, events);
	for (i = 0; i < 500; i++) {
		EXPECT_EQ(-ENOSPC, tow_region_create(self->fd, 2 * POOL_BYTES, &made));
	}
	tow_test_sleep_ms(600);
	count = tow_uevent_count(events, "limit", "pool_bytes");
	EXPECT_LE(1, count);
	EXPECT_GE(2 + 2 * (tow_test_now() - start), count);
	close(events);
}

struct asker {
	int fd;
	bool stop;
};

/* Until the device is gone, or it is told. */
static void *ask(void *arg)
{
	struct asker *asker = arg;
	struct tow_region_create made;

	while (!__atomic_load_n(&asker->stop, __ATOMIC_RELAXED))
		if (tow_region_create(asker->fd, 2 * POOL_BYTES, &made) == -ENODEV)
			break;
	return NULL;
}

/* There is always something to tell while the node is replaced, and when it goes. */
TEST_F_TIMEOUT(admin, uevents_of_a_device_that_moves_and_goes, 60)
{
	struct asker asker = { .fd = self->fd };
	int i, events = tow_uevent_open();
	pthread_t thread;

	ASSERT_LE(0, events);
	ASSERT_EQ(0, pthread_create(&thread, NULL, ask, &asker));
	for (i = 0; i < 6; i++) {
		EXPECT_EQ(0, tow_rdma_rename(self->name, OTHER_NAME));
		tow_test_sleep_ms(10L * i);
		EXPECT_EQ(0, tow_rdma_rename(OTHER_NAME, self->name));
	}
	tow_uevent_count(events, "limit", "pool_bytes");
	EXPECT_TRUE(tow_uevent_wait(events, "limit", "pool_bytes"));
	EXPECT_TRUE(tow_link_del(self->name));
	__atomic_store_n(&asker.stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	tow_uevent_count(events, "limit", "pool_bytes");
	EXPECT_TRUE(tow_link_restore(self->name, self->interface));
	EXPECT_TRUE(tow_uevent_wait(events, "maint_ready", NULL));
	close(events);
}

TEST_HARNESS_MAIN
