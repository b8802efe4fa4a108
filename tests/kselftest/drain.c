// SPDX-License-Identifier: GPL-2.0
/*
 * A device that is drained: whoever wants to begin something is told so, what was begun
 * goes on, and all can be given back; and when an administrator goes back, all is as it
 * was.  tests/lab/drain has what other nodes see.
 */
#include <sys/stat.h>
#include "tow_identity.h"
#include "tow_queue.h"
#include "tow_uevent.h"

#define ENTRIES		64U
#define PIECE		(256 * TOW_KB)
#define BYTES		(ENTRIES * PIECE)
#define POOL_BYTES	(2 * BYTES + 8 * TOW_SLAB)

FIXTURE(drain)
{
	struct tow_knobs before;
	struct tow_user user;
	struct tow_mapped own;
	struct tow_mapped target;
	__u64 remote;
};

FIXTURE_SETUP(drain)
{
	tow_knobs_save(&self->before);
	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_user_make(&self->user, ENTRIES, 0));
	ASSERT_EQ(0, tow_make_target(&self->user, BYTES, &self->own, &self->target,
				     &self->remote));
}

FIXTURE_TEARDOWN_PARENT(drain)
{
	EXPECT_EQ(0, tow_knobs_restore(&self->before));
	EXPECT_EQ(0, chmod(tow_test_path(), 0600));
}

static struct tow_sqe a_write(const FIXTURE_DATA(drain) *self, __u32 place)
{
	struct tow_sqe sqe = tow_move(&self->user, TOW_OP_WRITE, self->own.made.handle,
				      place * PIECE, self->remote, place * PIECE, PIECE);

	sqe.user_data = place;
	return sqe;
}

/* ---- what begins ------------------------------------------------------------ */

/* Each call that gives a client something new: how many answer so. */
static int count_calls(FIXTURE_DATA(drain) *self, int answer)
{
	int fd = self->user.fd, queue = self->user.rings.made.fd, count = 0;
	void *memory = mmap(NULL, TOW_SLAB, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct tow_region_import_dmabuf dmabuf = { .size = sizeof(dmabuf), .fd = -1 };
	struct tow_channel_open channel;
	struct tow_queue_create made_queue;
	struct tow_region_create made;
	struct tow_region_attach back;
	struct tow_resolve found;
	__u64 handle, peer;
	uint64_t region;

	count += tow_region_create(fd, TOW_SLAB, &made) == answer;
	count += tow_region_from_fd(fd, self->own.made.fd, &region) == answer;
	count += tow_region_attach(fd, "drained", &back) == answer;
	/* Or it would linger after the test. */
	if (!answer)
		tow_region_destroy(fd, back.handle);
	count += tow_region_import(fd, memory, TOW_SLAB, 0, &region) == answer;
	count += tow_test_ioctl(fd, TOW_IOCTL_REGION_IMPORT_DMABUF, &dmabuf) == answer;
	count += tow_connect_self(fd, &peer) == answer;
	count += tow_publish(fd, self->own.made.handle, "drained", TOW_KB, &handle) == answer;
	count += tow_find(fd, self->user.peer, "target", &found) == answer;
	count += tow_queue_make(fd, 1, 0, &made_queue) == answer;
	count += tow_channel_open(queue, self->user.peer, 0, &channel) == answer;
	return count;
}

#define CALLS	10

TEST_F(drain, no_call_begins_anything)
{
	struct tow_region_create made;
	int other = tow_test_open(O_RDWR);

	ASSERT_LE(0, other);
	ASSERT_EQ(0, tow_region_create_named(other, TOW_SLAB, TOW_REGION_PERSISTENT, 600,
					     "drained", &made));
	close(made.fd);
	close(other);
	EXPECT_EQ(0, tow_sysfs_get("drain"));
	ASSERT_EQ(0, tow_sysfs_set("drain", 1));
	EXPECT_EQ(1, tow_sysfs_get("drain"));
	EXPECT_EQ(CALLS, count_calls(self, -ESHUTDOWN));
	ASSERT_EQ(0, tow_sysfs_set("drain", 0));
	/* All but the import of a dma-buf that is none. */
	EXPECT_EQ(CALLS - 1, count_calls(self, 0));
}

/* What is wrong with the caller is said first, and what is wrong with the call last. */
TEST_F(drain, order_of_errors)
{
	struct tow_region_create made = { .size = 1 };
	int looks = tow_test_open(O_RDONLY);

	ASSERT_LE(0, looks);
	ASSERT_EQ(0, tow_sysfs_set("drain", 1));
	EXPECT_EQ(-EBADF, tow_test_ioctl(looks, TOW_IOCTL_REGION_CREATE, &made));
	EXPECT_EQ(-ESHUTDOWN, tow_test_ioctl(self->user.fd, TOW_IOCTL_REGION_CREATE, &made));
	close(looks);
}

TEST_F(drain, no_entry_begins)
{
	struct tow_sqe write = a_write(self, 0), nop = { .opcode = TOW_OP_NOP }, bad = write;
	struct tow_sqe linked = write;
	struct tow_cqe cqe;

	bad.flags = 0x80;
	linked.flags = TOW_SQE_LINK;
	tow_fill(self->own.at, PIECE, 1);
	ASSERT_EQ(0, tow_sysfs_set("drain", 1));
	EXPECT_EQ(-ESHUTDOWN, tow_rings_do(&self->user.rings, &write));
	EXPECT_EQ(0, tow_rings_do(&self->user.rings, &nop));
	EXPECT_EQ(-EINVAL, tow_rings_do(&self->user.rings, &bad));
	/* A chain that cannot be begun as a whole is not. */
	linked.user_data = 1;
	nop.user_data = 2;
	ASSERT_TRUE(tow_rings_put(&self->user.rings, &linked));
	ASSERT_TRUE(tow_rings_put(&self->user.rings, &nop));
	ASSERT_EQ(2, tow_rings_enter(&self->user.rings, 2, TOW_LONG_US));
	while (tow_rings_take(&self->user.rings, &cqe))
		EXPECT_EQ(cqe.user_data == 1 ? -ESHUTDOWN : -ECANCELED, cqe.status);
	EXPECT_TRUE(tow_is_zero(self->target.at, PIECE));
	ASSERT_EQ(0, tow_sysfs_set("drain", 0));
	EXPECT_EQ(0, tow_rings_do(&self->user.rings, &write));
	EXPECT_EQ(0, tow_differs(self->target.at, PIECE, 1));
}

TEST_F(drain, no_entry_begins_by_a_poller)
{
	struct tow_channel_open channel;
	struct tow_user polled = self->user;
	struct tow_sqe write;
	struct tow_cqe cqe;

	ASSERT_EQ(0, tow_rings_make_polled(self->user.fd, 4, 0, 0, &polled.rings));
	ASSERT_EQ(0, tow_channel_open(polled.rings.made.fd, polled.peer, 0, &channel));
	write = a_write(self, 0);
	write.channel = (__u16)channel.channel;
	ASSERT_EQ(0, tow_sysfs_set("drain", 1));
	ASSERT_TRUE(tow_rings_put(&polled.rings, &write));
	ASSERT_LE(0, tow_rings_offer(&polled.rings));
	ASSERT_EQ(0, tow_rings_wait(&polled.rings, &cqe));
	EXPECT_EQ(-ESHUTDOWN, cqe.status);
	tow_rings_end(&polled.rings);
}

static int open_as(void *arg)
{
	int fd = tow_test_open(*(const int *)arg);

	return fd < 0 ? fd : 0;
}

TEST_F(drain, only_administrators_open_it)
{
	int looks = O_RDONLY, works = O_RDWR, fd;
	struct tow_region_create made;

	ASSERT_EQ(0, chmod(tow_test_path(), 0666));
	EXPECT_EQ(0, tow_as(TOW_NOBODY, open_as, &works));
	ASSERT_EQ(0, tow_sysfs_set("drain", 1));
	EXPECT_EQ(-ESHUTDOWN, tow_as(TOW_NOBODY, open_as, &works));
	EXPECT_EQ(-ESHUTDOWN, tow_as(TOW_NOBODY, open_as, &looks));
	EXPECT_EQ(-ESHUTDOWN, tow_as(TOW_REAL_ROOT_IN_USERNS, open_as, &works));
	fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, fd);
	EXPECT_EQ(-ESHUTDOWN, tow_region_create(fd, TOW_SLAB, &made));
	EXPECT_LE(0, tow_region_count(fd));
	close(fd);
	ASSERT_EQ(0, tow_sysfs_set("drain", 0));
	EXPECT_EQ(0, tow_as(TOW_NOBODY, open_as, &works));
}

/* ---- what goes on, and ends --------------------------------------------------- */

TEST_F_TIMEOUT(drain, what_was_begun_goes_on, 60)
{
	struct tow_rings *rings = &self->user.rings;
	struct tow_cqe cqe;
	__u32 i, early;

	tow_fill(self->own.at, BYTES, 2);
	for (i = 0; i < ENTRIES; i++) {
		struct tow_sqe write = a_write(self, i);

		ASSERT_TRUE(tow_rings_put(rings, &write));
	}
	ASSERT_EQ((int)ENTRIES, tow_rings_enter(rings, 0, 0));
	ASSERT_EQ(0, tow_sysfs_set("drain", 1));
	early = tow_rings_ready(rings);
	EXPECT_GT(ENTRIES, early) TH_LOG("all had ended before");
	for (i = 0; i < ENTRIES; i++) {
		ASSERT_EQ(0, tow_rings_wait(rings, &cqe));
		EXPECT_EQ(0, cqe.status);
	}
	EXPECT_EQ(0, tow_differs(self->target.at, BYTES, 2));
}

TEST_F(drain, all_is_given_back)
{
	__u64 exported;

	ASSERT_EQ(0, tow_publish(self->user.fd, self->own.made.handle, "own", TOW_KB, &exported));
	ASSERT_EQ(0, tow_sysfs_set("drain", 1));
	EXPECT_EQ(0, tow_end_handle(self->user.fd, TOW_IOCTL_RELEASE, self->remote));
	EXPECT_EQ(0, tow_end_handle(self->user.fd, TOW_IOCTL_UNEXPORT, exported));
	EXPECT_EQ(0, tow_channel_close(self->user.rings.made.fd, self->user.channel));
	EXPECT_EQ(0, tow_disconnect(self->user.fd, self->user.peer));
	EXPECT_TRUE(tow_peer_recorded("device is being drained"));
	EXPECT_EQ(0, tow_mapped_end(&self->own));
	EXPECT_EQ(0, tow_mapped_end(&self->target));
	tow_user_end(&self->user);
	EXPECT_TRUE(tow_pool_unused());
	EXPECT_EQ(0, tow_sysfs_wait("stats/sessions", 0));
}

/* ---- the file ------------------------------------------------------------------ */

static int write_drain(void *arg)
{
	(void)arg;
	return tow_sysfs_set("drain", 1);
}

TEST_F(drain, who_and_what_may_be_written)
{
	char path[TOW_SYSFS_PATH];

	EXPECT_EQ(-ERANGE, tow_sysfs_set("drain", 2));
	EXPECT_EQ(-EINVAL, tow_sysfs_put("drain", "yes"));
	EXPECT_EQ(-EACCES, tow_as(TOW_NOBODY, write_drain, NULL));
	tow_sysfs_path(path, sizeof(path), "drain");
	ASSERT_EQ(0, chmod(path, 0666));
	EXPECT_EQ(-EPERM, tow_as(TOW_NOBODY, write_drain, NULL));
	EXPECT_EQ(0, chmod(path, 0644));
	EXPECT_EQ(0, tow_sysfs_get("drain"));
}

/* Each change is told, and nothing else. */
TEST_F(drain, uevents)
{
	int events = tow_uevent_open();

	ASSERT_LE(0, events);
	ASSERT_EQ(0, tow_sysfs_set("drain", 1));
	EXPECT_TRUE(tow_uevent_wait(events, "drain", NULL));
	ASSERT_EQ(0, tow_sysfs_set("drain", 1));
	tow_test_sleep_ms(700);
	EXPECT_EQ(0, tow_uevent_count(events, "drain", NULL));
	ASSERT_EQ(0, tow_sysfs_set("drain", 0));
	EXPECT_TRUE(tow_uevent_wait(events, "undrain", NULL));
	close(events);
}

TEST_HARNESS_MAIN
