// SPDX-License-Identifier: GPL-2.0
/*
 * What a device's driver refuses although it says that the device can: towline finds
 * out when it takes the device, goes on without, and says so; what is refused later
 * harms nobody else.  And what a device has less of than soft-RoCE, or none: the rest
 * works.  For the lab's provider dma, whose module can be told so.
 */
#include "tow_hotplug.h"
#include "tow_identity.h"
#include "tow_notify.h"
#include "tow_probe.h"
#include "tow_uevent.h"

#define PARAMETERS	"/sys/module/rxe_dma/parameters/"
#define BYTES		4096

/* What is moved where the device has little. */
#define MUCH		(512 << 10)
#define WRITES		512

/* Of enum ib_access_flags. */
#define ACCESS_REMOTE_WRITE	"2"
#define ACCESS_REMOTE_READ	"4"
#define ACCESS_REMOTE_ATOMIC	"8"

FIXTURE(trial)
{
	char name[NAME_MAX + 1];
	char interface[64];
	struct tow_query query;
	struct tow_region_create made;
	int log;
	int fd;
};

static int parameter(const char *name, const char *value)
{
	char path[128];

	snprintf(path, sizeof(path), PARAMETERS "%s", name);
	return tow_write_file(path, value);
}

/* The device anew, as the parameters have it now. */
static int plug(FIXTURE_DATA(trial) *self)
{
	close(self->fd);
	if (!tow_link_del(self->name) || !tow_link_restore(self->name, self->interface))
		return -ENODEV;
	self->fd = tow_test_open(O_RDWR);
	return self->fd < 0 ? self->fd : tow_pool_fresh(4 * TOW_SLAB);
}

static int plug_ready(FIXTURE_DATA(trial) *self)
{
	int ret = plug(self);

	if (!ret)
		ret = tow_maint_wait(self->fd, &self->query);
	return ret ? ret : tow_region_create(self->fd, BYTES, &self->made);
}

FIXTURE_SETUP(trial)
{
	if (access(PARAMETERS, F_OK))
		SKIP(return, "this device refuses nothing");
	snprintf(self->name, sizeof(self->name), "%s", tow_test_device());
	snprintf(self->interface, sizeof(self->interface), "%s", tow_link_interface());
	self->log = tow_log_open();
	ASSERT_LE(0, self->log);
	self->fd = -1;
}

FIXTURE_TEARDOWN_PARENT(trial)
{
	if (access(PARAMETERS, F_OK))
		return;
	EXPECT_EQ(0, parameter("no_atomics", "N"));
	EXPECT_EQ(0, parameter("refuse_access", "0"));
	EXPECT_EQ(0, parameter("page_list", "0"));
	EXPECT_EQ(0, parameter("max_cqe", "0"));
	EXPECT_EQ(0, parameter("no_srq", "N"));
	tow_link_del(self->name);
	EXPECT_TRUE(tow_link_restore(self->name, self->interface));
}

static int publish(FIXTURE_DATA(trial) *self, const char *name, __u32 rights)
{
	struct tow_export call = {
		.size = sizeof(call), .region = self->made.handle, .bytes = BYTES,
		.rights = rights, .name_bytes = (__u32)strlen(name),
	};

	memcpy(call.name, name, strlen(name));
	return tow_test_ioctl(self->fd, TOW_IOCTL_EXPORT, &call);
}

static int add(FIXTURE_DATA(trial) *self, __u64 remote)
{
	struct tow_rings rings;
	struct tow_channel_open channel;
	struct tow_sqe sqe = {
		.opcode = TOW_OP_FETCH_ADD, .region = self->made.handle, .remote = remote,
		.operand = 1, .remote_offset = 8,
	};
	__u64 peer;
	int ret;

	ret = tow_connect_self(self->fd, &peer);
	if (!ret)
		ret = tow_rings_make(self->fd, 4, 4, &rings);
	if (ret)
		return ret;
	ret = tow_channel_open(rings.made.fd, peer, TOW_CHANNEL_ANY, &channel);
	sqe.channel = channel.channel;
	if (!ret)
		ret = tow_rings_do(&rings, &sqe);
	tow_rings_end(&rings);
	return ret;
}

/* Neither offered nor done, nor is anything else worse for it. */
static void expect_no_atomics(struct __test_metadata *_metadata, FIXTURE_DATA(trial) *self)
{
	__u64 peer, remote;

	EXPECT_FALSE(self->query.features & TOW_FEATURE_ATOMICS);
	EXPECT_EQ(0, self->query.maint_rebuilds);
	EXPECT_EQ(1, tow_log_count(self->log, "towline", "has no atomics for us"));
	EXPECT_EQ(-EOPNOTSUPP, publish(self, "no", TOW_ALL_RIGHTS));
	ASSERT_EQ(0, publish(self, "both", TOW_RIGHT_READ | TOW_RIGHT_WRITE));
	ASSERT_EQ(0, tow_connect_self(self->fd, &peer));
	ASSERT_EQ(0, tow_find_for(self->fd, peer, "both", TOW_RIGHT_READ | TOW_RIGHT_WRITE,
				  &remote));
	EXPECT_EQ(-EOPNOTSUPP, add(self, remote));
	ASSERT_EQ(0, tow_test_query(self->fd, &self->query));
	EXPECT_EQ(TOW_MAINT_READY, self->query.maint_state);
	EXPECT_EQ(0, self->query.maint_rebuilds);
}

TEST_F(trial, nothing_refused)
{
	ASSERT_EQ(0, plug_ready(self));
	EXPECT_TRUE(self->query.features & TOW_FEATURE_ATOMICS);
	EXPECT_EQ(0, self->query.maint_rebuilds);
	EXPECT_EQ(0, tow_log_count(self->log, "towline", "the RDMA device"));
	EXPECT_EQ(0, publish(self, "all", TOW_ALL_RIGHTS));
}

/* As mlx5: it says that it has them. */
TEST_F(trial, atomics_are_not_posted)
{
	ASSERT_EQ(0, parameter("no_atomics", "Y"));
	ASSERT_EQ(0, plug_ready(self));
	expect_no_atomics(_metadata, self);
}

/* As its functions without the right to change what may be atomic. */
TEST_F(trial, atomics_are_not_registered)
{
	ASSERT_EQ(0, parameter("refuse_access", ACCESS_REMOTE_ATOMIC));
	ASSERT_EQ(0, plug_ready(self));
	expect_no_atomics(_metadata, self);
}

/* A device with which nothing is left to do. */
static void plug_refusing(struct __test_metadata *_metadata, FIXTURE_DATA(trial) *self)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);

	ASSERT_EQ(0, parameter("refuse_access", ACCESS_REMOTE_READ));
	ASSERT_EQ(0, plug(self));
	while (!tow_test_query(self->fd, &self->query) &&
	       self->query.maint_state != TOW_MAINT_FAILED && tow_patient(&patience))
		tow_test_sleep_ms(10);
	EXPECT_EQ(TOW_MAINT_FAILED, self->query.maint_state);
	EXPECT_EQ(-EINVAL, self->query.maint_error);
	ASSERT_EQ(0, tow_region_create(self->fd, BYTES, &self->made));
	EXPECT_EQ(-EAGAIN, publish(self, "no", TOW_RIGHT_READ));
}

/* Who wants to register has it tried again, but not each time; that is said once. */
TEST_F_TIMEOUT(trial, nothing_is_registered, 60)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	int i, ret;

	plug_refusing(_metadata, self);
	for (i = 0; i < 20; i++) {
		tow_test_sleep_ms(20);
		EXPECT_EQ(-EAGAIN, publish(self, "no", TOW_RIGHT_READ));
	}
	EXPECT_EQ(1, tow_log_count(self->log, "towline", "no maintenance queue pair"));
	ASSERT_EQ(0, parameter("refuse_access", "0"));
	while ((ret = publish(self, "yes", TOW_RIGHT_READ)) == -EAGAIN && tow_patient(&patience))
		tow_test_sleep_ms(10);
	EXPECT_EQ(0, ret);
	ASSERT_EQ(0, tow_test_query(self->fd, &self->query));
	EXPECT_EQ(TOW_MAINT_READY, self->query.maint_state);
	EXPECT_EQ(0, self->query.maint_error);
	EXPECT_EQ(0, self->query.maint_rebuilds);
}

/* So does what happens to an address. */
TEST_F_TIMEOUT(trial, address_comes, 60)
{
	int events = tow_uevent_open();

	ASSERT_LE(0, events);
	plug_refusing(_metadata, self);
	EXPECT_TRUE(tow_uevent_wait(events, "maint_failed", NULL));
	ASSERT_EQ(0, parameter("refuse_access", "0"));
	EXPECT_TRUE(tow_shell("ip addr add 10.77.9.9/32 dev %s && ip addr del 10.77.9.9/32 dev %s",
			      self->interface, self->interface));
	ASSERT_EQ(0, tow_maint_wait(self->fd, &self->query));
	EXPECT_TRUE(tow_uevent_wait(events, "maint_ready", NULL));
	close(events);
	EXPECT_EQ(0, publish(self, "yes", TOW_RIGHT_READ));
}

/* One export is refused; the next, and whoever else has one, do not notice. */
TEST_F(trial, refused_later)
{
	int i;

	ASSERT_EQ(0, plug_ready(self));
	ASSERT_EQ(0, parameter("refuse_access", ACCESS_REMOTE_WRITE));
	for (i = 0; i < 20; i++) {
		EXPECT_EQ(-EAGAIN, publish(self, "write", TOW_RIGHT_WRITE));
	}
	EXPECT_EQ(0, publish(self, "read", TOW_RIGHT_READ));
	ASSERT_EQ(0, tow_test_query(self->fd, &self->query));
	EXPECT_EQ(TOW_MAINT_READY, self->query.maint_state);
	EXPECT_EQ(0, self->query.maint_rebuilds);
	ASSERT_EQ(0, parameter("refuse_access", "0"));
	EXPECT_EQ(0, publish(self, "write", TOW_RIGHT_WRITE));
}

/* ---- less than soft-RoCE has --------------------------------------------------- */

/* So many writes at once, and what they have written: 0 or the first error. */
static int write_all(struct tow_user *user, const struct tow_mapped *own,
		     const struct tow_mapped *target, __u64 remote, __u32 count, __u32 bytes)
{
	struct tow_sqe sqe = tow_move(user, TOW_OP_WRITE, own->made.handle, 0, remote, 0, bytes);
	struct tow_cqe cqe;
	__u32 i;
	int ret;

	tow_fill(own->at, (size_t)count * bytes, count);
	for (i = 0; i < count; i++) {
		sqe.offset = sqe.remote_offset = (__u64)i * bytes;
		if (!tow_rings_put(&user->rings, &sqe))
			return -EXFULL;
	}
	ret = tow_rings_enter(&user->rings, count, TOW_LONG_US);
	for (i = 0; ret >= 0 && i < count; i++)
		ret = tow_rings_wait(&user->rings, &cqe) ?: cqe.status;
	if (ret < 0)
		return ret;
	return tow_differs(target->at, (size_t)count * bytes, count) ? -EBADMSG : 0;
}

/* The device anew, a peer, an export, and writes: a long one, and many. */
static int smoke(FIXTURE_DATA(trial) *self)
{
	struct tow_mapped own, target;
	struct tow_user user;
	__u64 remote;
	int ret;

	ret = plug_ready(self);
	if (!ret)
		ret = tow_user_make(&user, WRITES, WRITES);
	if (!ret)
		ret = tow_make_target(&user, MUCH, &own, &target, &remote);
	if (!ret)
		ret = write_all(&user, &own, &target, remote, 1, MUCH);
	if (!ret)
		ret = write_all(&user, &own, &target, remote, WRITES, MUCH / WRITES);
	if (!ret)
		tow_user_end(&user);
	return ret ?: tow_test_query(self->fd, &self->query);
}

/* A slot, and one notification that counts there. */
static int notify(void)
{
	struct tow_ends ends;
	int ret;

	ret = tow_ends_make(&ends, 4, BYTES) ?: tow_ends_notify(&ends);
	if (!ret && tow_slot_await(tow_ends_word(&ends), 1) != 1)
		ret = -ETIMEDOUT;
	if (!ret)
		tow_ends_end(&ends);
	return ret;
}

/* Large slabs are of 128 KiB. */
TEST_F(trial, few_pages)
{
	ASSERT_EQ(0, parameter("page_list", "40"));
	ASSERT_EQ(0, smoke(self));
	EXPECT_EQ(40, self->query.max_fast_reg_pages);
	EXPECT_EQ(0, notify());
}

/* With less than 640, ib_core cannot connect anything. */
TEST_F(trial, few_completions)
{
	ASSERT_EQ(0, parameter("max_cqe", "700"));
	ASSERT_EQ(0, smoke(self));
	EXPECT_EQ(700, self->query.max_cqe);
	EXPECT_EQ(0, notify());
}

/* Nothing needs them. */
TEST_F(trial, no_shared_receives)
{
	ASSERT_EQ(0, parameter("no_srq", "Y"));
	ASSERT_EQ(0, smoke(self));
	EXPECT_EQ(0, self->query.max_srq);
	EXPECT_FALSE(self->query.features & TOW_FEATURE_SRQ);
	EXPECT_EQ(0, notify());
}

TEST_HARNESS_MAIN
