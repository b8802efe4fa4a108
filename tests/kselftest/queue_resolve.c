// SPDX-License-Identifier: GPL-2.0
/*
 * Many names are looked for without waiting: each has one completion, with what was
 * found or why not, whatever becomes of the others, the queue or the connection.  The
 * node is its own peer.
 */
#include <poll.h>
#include "tow_identity.h"
#include "tow_queue.h"

#define POOL_BYTES	(2 * TOW_SLAB)
#define ENTRIES		4096U
#define NAMES		1000U
#define NAME_BYTES	32
#define SOON_MS		100U
/* Both ends of the fixture's connection to its own node. */
#define OWN_SESSIONS	2U

FIXTURE(resolve)
{
	int fd;
	__u64 peer;
	struct tow_region_create region;
	struct tow_rings rings;
	struct tow_resolve_request requests[TOW_QUEUE_RESOLVE_MAX + 1];
	char names[TOW_QUEUE_RESOLVE_MAX + 1][NAME_BYTES];
};

static int make_rings_with(int client, __u32 flags, __u32 entries, struct tow_rings *rings)
{
	memset(rings, 0, sizeof(*rings));
	rings->made = (struct tow_queue_create) {
		.size = sizeof(rings->made), .sq_entries = 1, .cq_entries = entries, .fd = -1,
		.flags = TOW_QUEUE_RESULTS | flags,
	};
	return tow_rings_made(rings, tow_test_ioctl(client, TOW_IOCTL_QUEUE_CREATE, &rings->made));
}

static int make_rings(int client, __u32 entries, struct tow_rings *rings)
{
	return make_rings_with(client, 0, entries, rings);
}

/* What request I looks for: name number I, at once. */
static void fill(FIXTURE_DATA(resolve) *self, __u32 i, __u32 timeout_ms)
{
	snprintf(self->names[i], NAME_BYTES, "name %u", i);
	self->requests[i] = (struct tow_resolve_request) {
		.user_data = i, .peer = self->peer, .name = (uintptr_t)self->names[i],
		.name_bytes = (__u32)strlen(self->names[i]), .rights = TOW_RIGHT_READ,
		.timeout_ms = timeout_ms,
	};
}

FIXTURE_SETUP(resolve)
{
	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	self->fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, tow_connect_self(self->fd, &self->peer));
	ASSERT_EQ(0, tow_region_create(self->fd, TOW_SLAB, &self->region));
	ASSERT_EQ(0, make_rings(self->fd, ENTRIES, &self->rings));
	for (__u32 i = 0; i <= TOW_QUEUE_RESOLVE_MAX; i++)
		fill(self, i, 0);
}

FIXTURE_TEARDOWN(resolve)
{
	tow_rings_end(&self->rings);
	close(self->fd);
}

/* How many were begun, or a negative errno. */
static int begin(FIXTURE_DATA(resolve) *self, __u32 first, __u32 count)
{
	struct tow_queue_resolve call = {
		.size = sizeof(call), .requests = (uintptr_t)&self->requests[first],
		.count = count, .request_size = sizeof(self->requests[0]),
	};
	int ret = ioctl(self->rings.made.fd, TOW_IOCTL_QUEUE_RESOLVE, &call);

	return ret < 0 ? -errno : ret;
}

static struct tow_result result_of(FIXTURE_DATA(resolve) *self)
{
	const char *ring = (const char *)self->rings.ring;
	const struct tow_result *results =
		(const struct tow_result *)(ring + self->rings.made.results_offset);

	return results[self->rings.head & (self->rings.made.cq_entries - 1)];
}

/* The next completion, with its result. */
static int next(FIXTURE_DATA(resolve) *self, struct tow_cqe *cqe, struct tow_result *result)
{
	int ret = 0;

	if (!tow_rings_ready(&self->rings))
		ret = tow_enter(self->rings.made.fd, 0, 1, TOW_LONG_US);
	if (ret < 0)
		return ret;
	*result = result_of(self);
	return tow_rings_take(&self->rings, cqe) ? 0 : -ENOENT;
}

static int publish(FIXTURE_DATA(resolve) *self, __u32 number, __u64 *handle)
{
	return tow_publish(self->fd, self->region.handle, self->names[number],
			   (number + 1) * 8ULL, handle);
}

/* Messages of both ends; or -1. */
static long long messages(FIXTURE_DATA(resolve) *self)
{
	struct tow_peer_info info = {};

	return tow_peer_look(self->fd, self->peer, &info) ? -1 : (long long)info.messages_sent;
}

/* Every third is not there, and each is told so by itself; messages are shared. */
TEST_F_TIMEOUT(resolve, a_thousand, 120)
{
	long long said, says;
	bool seen[NAMES] = {};
	__u64 found[NAMES] = {};
	struct tow_result result;
	struct tow_cqe cqe;
	__u64 handle;

	for (__u32 i = 0; i < NAMES; i++)
		if (i % 3)
			ASSERT_EQ(0, publish(self, i, &handle));
	said = messages(self);
	ASSERT_LE(0, said);
	ASSERT_EQ((int)NAMES, begin(self, 0, NAMES));
	for (__u32 i = 0; i < NAMES; i++) {
		ASSERT_EQ(0, next(self, &cqe, &result));
		ASSERT_GT(NAMES, cqe.user_data);
		ASSERT_FALSE(seen[cqe.user_data]);
		seen[cqe.user_data] = true;
		found[cqe.user_data] = result.handle;
		if (cqe.user_data % 3) {
			ASSERT_EQ(0, cqe.status);
			EXPECT_EQ(TOW_CQE_FOUND, cqe.flags);
			EXPECT_EQ((cqe.user_data + 1) * 8, result.bytes);
		} else {
			EXPECT_EQ(-ENOENT, cqe.status);
			EXPECT_EQ(0, cqe.flags);
			EXPECT_EQ(0, result.handle);
			EXPECT_EQ(0, result.bytes);
		}
	}
	EXPECT_EQ(0, tow_rings_ready(&self->rings));
	/* Eleven names, or eight answers, are in one. */
	says = messages(self);
	EXPECT_LT(said + NAMES / 12, says);
	EXPECT_GT(said + NAMES / 2, says);
	for (__u32 i = 0; i < NAMES; i++)
		if (i % 3)
			EXPECT_EQ(0, tow_end_handle(self->fd, TOW_IOCTL_RELEASE, found[i]));
}

/* What was found is for operations as what RESOLVE finds. */
TEST_F(resolve, what_was_found)
{
	struct tow_result result;
	struct tow_channel_open channel;
	struct tow_sqe read = { .opcode = TOW_OP_READ, .bytes = 8 };
	struct tow_cqe cqe;
	__u64 handle;

	ASSERT_EQ(0, publish(self, 1, &handle));
	ASSERT_EQ(1, begin(self, 1, 1));
	ASSERT_EQ(0, next(self, &cqe, &result));
	ASSERT_EQ(0, cqe.status);
	ASSERT_EQ(0, tow_channel_open(self->rings.made.fd, self->peer, 0, &channel));
	read.channel = (__u16)channel.channel;
	read.region = self->region.handle;
	read.remote = result.handle;
	EXPECT_EQ(0, tow_rings_do(&self->rings, &read));
	read.bytes = 24;
	EXPECT_EQ(-ERANGE, tow_rings_do(&self->rings, &read));
}

/* Whose names are exported while they are waited for, and whose are not. */
TEST_F(resolve, who_waits)
{
	struct tow_result result;
	struct tow_cqe cqe;
	__u64 handle;

	fill(self, 0, TOW_WAIT_FOREVER);
	fill(self, 1, SOON_MS);
	fill(self, 2, TOW_WAIT_MS);
	ASSERT_EQ(3, begin(self, 0, 3));
	ASSERT_EQ(0, next(self, &cqe, &result));
	EXPECT_EQ(1, cqe.user_data);
	EXPECT_EQ(-ETIMEDOUT, cqe.status);
	EXPECT_EQ(0, tow_rings_ready(&self->rings));
	ASSERT_EQ(0, publish(self, 2, &handle));
	ASSERT_EQ(0, next(self, &cqe, &result));
	EXPECT_EQ(2, cqe.user_data);
	EXPECT_EQ(0, cqe.status);
	ASSERT_EQ(0, publish(self, 0, &handle));
	ASSERT_EQ(0, next(self, &cqe, &result));
	EXPECT_EQ(0, cqe.user_data);
	EXPECT_EQ(0, cqe.status);
	EXPECT_EQ(8, result.bytes);
}

/* The same name, looked for many times: one request at the peer, a handle for each. */
TEST_F(resolve, one_name)
{
	struct tow_result results[8];
	struct tow_cqe cqe;
	__u64 handle;

	for (__u32 i = 0; i < 8; i++) {
		self->requests[i].name = (uintptr_t)self->names[9];
		self->requests[i].timeout_ms = TOW_WAIT_MS;
	}
	ASSERT_EQ(8, begin(self, 0, 8));
	ASSERT_EQ(0, publish(self, 9, &handle));
	for (__u32 i = 0; i < 8; i++) {
		ASSERT_EQ(0, next(self, &cqe, &results[i]));
		ASSERT_EQ(0, cqe.status);
		for (__u32 j = 0; j < i; j++)
			EXPECT_NE(results[j].handle, results[i].handle);
	}
	for (__u32 i = 0; i < 8; i++)
		EXPECT_EQ(0, tow_end_handle(self->fd, TOW_IOCTL_RELEASE, results[i].handle));
}

/* Request I: to connect to the own address, with another last byte. */
static void fill_node(FIXTURE_DATA(resolve) *self, __u32 i, __u8 last, __u32 timeout_ms)
{
	self->requests[i] = (struct tow_resolve_request) {
		.user_data = i, .timeout_ms = timeout_ms,
	};
	tow_own_address(self->requests[i].address);
	self->requests[i].address[TOW_ADDRESS_BYTES - 1] ^= last;
}

/* Who is there and who is not, by the same call; and names beside them. */
TEST_F(resolve, nodes)
{
	struct tow_result result;
	struct tow_cqe cqe;
	__u64 handle;

	ASSERT_EQ(0, publish(self, 3, &handle));
	fill_node(self, 0, 0, 0);
	/* Nobody has these addresses; at that port nobody listens. */
	fill_node(self, 1, 0x80, SOON_MS);
	fill_node(self, 2, 0, TOW_WAIT_MS);
	self->requests[2].port = 1;
	ASSERT_EQ(4, begin(self, 0, 4));
	for (int i = 0; i < 4; i++) {
		ASSERT_EQ(0, next(self, &cqe, &result));
		switch (cqe.user_data) {
		case 0:
			EXPECT_EQ(0, cqe.status);
			EXPECT_EQ(TOW_CQE_CONNECTED, cqe.flags);
			EXPECT_EQ(self->peer, result.handle);
			EXPECT_EQ(0, result.bytes);
			break;
		case 1:
			EXPECT_TRUE(cqe.status == -ETIMEDOUT || cqe.status == -EHOSTUNREACH);
			break;
		case 2:
			EXPECT_EQ(-ECONNREFUSED, cqe.status);
			break;
		default:
			EXPECT_EQ(0, cqe.status);
			EXPECT_EQ(TOW_CQE_FOUND, cqe.flags);
			EXPECT_NE(0, result.handle);
		}
		if (cqe.status) {
			EXPECT_EQ(0, cqe.flags);
			EXPECT_EQ(0, result.handle);
		}
	}
}

/* All that seek one node share one attempt, and none of them waits when the queue ends. */
TEST_F(resolve, nodes_that_nobody_wants)
{
	/* Those of the test before may be on their way out. */
	unsigned long long sessions = tow_sysfs_wait("stats/sessions", OWN_SESSIONS);

	for (__u32 i = 0; i < 64; i++)
		fill_node(self, i, i % 2 ? 0x80 : 0x81, 600000);
	ASSERT_EQ(64, begin(self, 0, 64));
	tow_test_sleep_ms(SOON_MS);
	EXPECT_EQ(0, tow_rings_ready(&self->rings));
	EXPECT_LT(sessions, tow_sysfs_get("stats/sessions"));
	EXPECT_GE(sessions + 2, tow_sysfs_get("stats/sessions"));
	tow_rings_end(&self->rings);
	EXPECT_EQ(sessions, tow_sysfs_wait("stats/sessions", sessions));
	self->rings.made.fd = -1;
}

/* As many as a user may seek, and more of them. */
TEST_F(resolve, nodes_more_than_may_be)
{
	/* Those of the test before may be on their way out. */
	unsigned long long sessions = tow_sysfs_wait("stats/sessions", OWN_SESSIONS);
	struct tow_result result;
	struct tow_cqe cqe;

	for (__u32 i = 0; i < TOW_QUEUE_RESOLVE_MAX; i++) {
		fill_node(self, i, 0x80, 600000);
		self->requests[i].port = (__u16)(1 + i);
	}
	ASSERT_EQ(TOW_QUEUE_RESOLVE_MAX, begin(self, 0, TOW_QUEUE_RESOLVE_MAX));
	/* Each is another node, and so is this one. */
	self->requests[0].user_data = TOW_QUEUE_RESOLVE_MAX;
	self->requests[0].port = TOW_QUEUE_RESOLVE_MAX + 1;
	ASSERT_EQ(1, begin(self, 0, 1));
	ASSERT_EQ(0, next(self, &cqe, &result));
	EXPECT_EQ(TOW_QUEUE_RESOLVE_MAX, cqe.user_data);
	EXPECT_EQ(-EAGAIN, cqe.status);
	/* Names of who is connected are found all the same. */
	fill(self, 0, 0);
	ASSERT_EQ(1, begin(self, 0, 1));
	ASSERT_EQ(0, next(self, &cqe, &result));
	EXPECT_EQ(-ENOENT, cqe.status);
	tow_rings_end(&self->rings);
	self->rings.made.fd = -1;
	EXPECT_EQ(sessions, tow_sysfs_wait("stats/sessions", sessions));
}

#define EXPECT_STATUS(STATUS) \
	do { \
		struct tow_result _result; \
		struct tow_cqe _cqe; \
		ASSERT_EQ(1, begin(self, 0, 1)); \
		ASSERT_EQ(0, next(self, &_cqe, &_result)); \
		EXPECT_EQ(STATUS, _cqe.status); \
		EXPECT_EQ(0, _result.handle); \
		fill(self, 0, 0); \
	} while (0)

/* A request as it must not be is its own completion's, not the call's. */
TEST_F(resolve, requests_that_are_wrong)
{
	self->requests[0].rights = 0;
	EXPECT_STATUS(-EINVAL);
	self->requests[0].reserved = 1;
	EXPECT_STATUS(-EINVAL);
	self->requests[0].name_bytes = 0;
	EXPECT_STATUS(-EINVAL);
	self->requests[0].name_bytes = TOW_EXPORT_NAME_MAX + 1;
	EXPECT_STATUS(-EINVAL);
	self->names[0][0] = '\n';
	EXPECT_STATUS(-EINVAL);
	self->requests[0].name = 8;
	EXPECT_STATUS(-EFAULT);
	self->requests[0].peer += 1000;
	EXPECT_STATUS(-ENOENT);
	/* Either a name or a node. */
	self->requests[0].address[0] = 1;
	EXPECT_STATUS(-EINVAL);
	self->requests[0].scope_id = 1;
	EXPECT_STATUS(-EINVAL);
	self->requests[0].port = 1;
	EXPECT_STATUS(-EINVAL);
	self->requests[0].reserved1 = 1;
	EXPECT_STATUS(-EINVAL);
	fill_node(self, 0, 0, 0);
	self->requests[0].name_bytes = 1;
	EXPECT_STATUS(-EINVAL);
	fill_node(self, 0, 0, 0);
	self->requests[0].name = 8;
	EXPECT_STATUS(-EINVAL);
	fill_node(self, 0, 0, 0);
	self->requests[0].rights = TOW_RIGHT_READ;
	EXPECT_STATUS(-EINVAL);
	fill_node(self, 0, 0, 0);
	self->requests[0].reserved = 1;
	EXPECT_STATUS(-EINVAL);
	fill_node(self, 0, 0, 0);
	self->requests[0].reserved1 = 1;
	EXPECT_STATUS(-EINVAL);
	fill_node(self, 0, 0, 0);
	/* An IPv4 address has no scope. */
	self->requests[0].scope_id = 1;
	EXPECT_STATUS(-EINVAL);
	fill_node(self, 0, 0, 0);
	memset(self->requests[0].address, 0, TOW_ADDRESS_BYTES);
	EXPECT_STATUS(-EINVAL);
}

TEST_F(resolve, calls_that_are_wrong)
{
	struct tow_queue_resolve call = {
		.size = sizeof(call), .requests = (uintptr_t)self->requests, .count = 1,
		.request_size = sizeof(self->requests[0]),
	}, wrong = call;
	struct tow_rings other;
	int fd = self->rings.made.fd;

	EXPECT_EQ(-EINVAL, begin(self, 0, 0));
	EXPECT_EQ(-EINVAL, begin(self, 0, TOW_QUEUE_RESOLVE_MAX + 1));
	wrong.flags = 1;
	EXPECT_EQ(-EINVAL, tow_test_ioctl(fd, TOW_IOCTL_QUEUE_RESOLVE, &wrong));
	wrong = call;
	wrong.request_size = sizeof(self->requests[0]) - 8;
	EXPECT_EQ(-EINVAL, tow_test_ioctl(fd, TOW_IOCTL_QUEUE_RESOLVE, &wrong));
	wrong.request_size = sizeof(self->requests[0]) + 8;
	EXPECT_EQ(-E2BIG, tow_test_ioctl(fd, TOW_IOCTL_QUEUE_RESOLVE, &wrong));
	wrong = call;
	wrong.requests = 8;
	EXPECT_EQ(-EFAULT, tow_test_ioctl(fd, TOW_IOCTL_QUEUE_RESOLVE, &wrong));
	/* It has no results. */
	ASSERT_EQ(0, tow_rings_make(self->fd, 1, 8, &other));
	EXPECT_EQ(0, other.made.results_offset);
	EXPECT_EQ(-EINVAL, tow_test_ioctl(other.made.fd, TOW_IOCTL_QUEUE_RESOLVE, &call));
	tow_rings_end(&other);
	EXPECT_EQ(0, tow_rings_ready(&self->rings));
}

/* No more begin than have room; what is dealt with makes room. */
TEST_F(resolve, room)
{
	struct tow_result result;
	struct tow_cqe cqe;

	tow_rings_end(&self->rings);
	ASSERT_EQ(0, make_rings(self->fd, 4, &self->rings));
	EXPECT_EQ(4, begin(self, 0, 8));
	EXPECT_EQ(-EBUSY, begin(self, 4, 4));
	ASSERT_EQ(0, next(self, &cqe, &result));
	EXPECT_EQ(1, begin(self, 4, 4));
	for (__u32 i = 0; i < 4; i++)
		ASSERT_EQ(0, next(self, &cqe, &result));
	EXPECT_EQ(0, tow_rings_ready(&self->rings));
}

static int polled(int queue, int timeout_ms)
{
	struct pollfd poller = { .fd = queue, .events = POLLIN };

	return poll(&poller, 1, timeout_ms) < 0 ? -errno : poller.revents;
}

TEST_F(resolve, poll_tells)
{
	EXPECT_EQ(0, polled(self->rings.made.fd, 0));
	ASSERT_EQ(1, begin(self, 0, 1));
	EXPECT_EQ(POLLIN, polled(self->rings.made.fd, TOW_WAIT_MS));
}

/* Nothing is left of a queue that ends while its names are waited for, nor of a client. */
TEST_F(resolve, the_end)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	bool seen[NAMES / 2] = {};
	struct tow_cqe cqe;
	long long said;
	__u64 handle;

	for (__u32 i = 0; i < NAMES / 2; i++)
		fill(self, i, TOW_WAIT_FOREVER);
	ASSERT_EQ((int)NAMES / 2, begin(self, 0, NAMES / 2));
	/* They all wait at the peer. */
	tow_test_sleep_ms(10L * SOON_MS);
	said = messages(self);
	ASSERT_LE(0, said);
	tow_rings_end(&self->rings);
	tow_test_sleep_ms(10L * SOON_MS);
	/* Those who take them back share messages, as do the answers to that. */
	EXPECT_LT(said, messages(self));
	EXPECT_GT(said + NAMES / 4, messages(self));
	/* They were taken back at the peer, so there is room for others. */
	ASSERT_EQ(0, make_rings(self->fd, ENTRIES, &self->rings));
	ASSERT_EQ((int)NAMES / 2, begin(self, 0, NAMES / 2));
	close(self->fd);
	self->fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, self->fd);
	while (tow_rings_ready(&self->rings) < NAMES / 2 && tow_patient(&patience))
		tow_test_sleep_ms(1);
	ASSERT_EQ(NAMES / 2, tow_rings_ready(&self->rings));
	while (tow_rings_take(&self->rings, &cqe)) {
		EXPECT_EQ(-ECANCELED, cqe.status);
		EXPECT_EQ(0, cqe.flags);
		ASSERT_GT(NAMES / 2, cqe.user_data);
		EXPECT_FALSE(seen[cqe.user_data]);
		seen[cqe.user_data] = true;
	}
	/* Whoever exports it now finds nobody who waits. */
	ASSERT_EQ(0, tow_region_create(self->fd, TOW_SLAB, &self->region));
	ASSERT_EQ(0, publish(self, 0, &handle));
	EXPECT_EQ(0, tow_end_handle(self->fd, TOW_IOCTL_UNEXPORT, handle));
}

/* What was found and not looked at is given up with the queue; what was taken over is not. */
TEST_F(resolve, nobody_looks)
{
	struct tow_result *results, result[2];
	struct tow_cqe cqe;
	__u64 handle;

	for (__u32 i = 0; i < 3; i++)
		ASSERT_EQ(0, publish(self, i, &handle));
	ASSERT_EQ(1, begin(self, 0, 1));
	ASSERT_EQ(0, next(self, &cqe, &result[0]));
	ASSERT_EQ(2, begin(self, 1, 2));
	ASSERT_EQ(0, tow_enter(self->rings.made.fd, 0, 2, TOW_LONG_US));
	results = (struct tow_result *)((char *)self->rings.ring + self->rings.made.results_offset);
	result[1] = results[1];
	ASSERT_NE(0, result[1].handle);
	/* The third is taken over, though it is not dealt with. */
	handle = results[2].handle;
	ASSERT_NE(0, handle);
	results[2].handle = 0;
	tow_rings_end(&self->rings);
	EXPECT_EQ(-ENOENT, tow_end_handle(self->fd, TOW_IOCTL_RELEASE, result[1].handle));
	EXPECT_EQ(0, tow_end_handle(self->fd, TOW_IOCTL_RELEASE, result[0].handle));
	EXPECT_EQ(0, tow_end_handle(self->fd, TOW_IOCTL_RELEASE, handle));
}

/* A poller takes other entries meanwhile, and these need no call. */
TEST_F(resolve, with_a_poller)
{
	struct tow_sqe nop = { .opcode = TOW_OP_NOP, .user_data = NAMES };
	struct tow_result result;
	bool seen[NAMES + 1] = {};
	struct tow_cqe cqe;
	__u64 handle;

	tow_rings_end(&self->rings);
	ASSERT_EQ(0, make_rings_with(self->fd, TOW_QUEUE_POLL, 16, &self->rings));
	for (__u32 i = 0; i < 8; i++)
		ASSERT_EQ(0, publish(self, i, &handle));
	ASSERT_EQ(8, begin(self, 0, 8));
	ASSERT_TRUE(tow_rings_put(&self->rings, &nop));
	ASSERT_LE(0, tow_rings_enter_polled(&self->rings, 0, 0));
	for (__u32 i = 0; i < 9; i++) {
		ASSERT_EQ(0, next(self, &cqe, &result));
		EXPECT_EQ(0, cqe.status);
		ASSERT_GE(NAMES, cqe.user_data);
		EXPECT_FALSE(seen[cqe.user_data]);
		seen[cqe.user_data] = true;
		EXPECT_EQ(cqe.user_data == NAMES ? 0 : TOW_CQE_FOUND, cqe.flags);
	}
	/* Its ring is full of names: what comes then has its turn when there is room. */
	for (__u32 i = 8; i < 24; i++)
		fill(self, i, SOON_MS * (i % 8 ? 1 : 2));
	ASSERT_EQ(16, begin(self, 8, 16));
	ASSERT_TRUE(tow_rings_put(&self->rings, &nop));
	do {
		ASSERT_LE(0, tow_rings_offer(&self->rings));
		ASSERT_EQ(0, next(self, &cqe, &result));
	} while (cqe.user_data != NAMES);
}

static int begin_as_child(void *arg)
{
	return begin(arg, 0, 1);
}

TEST_F(resolve, a_child_has_no_part_in_it)
{
	EXPECT_EQ(-EPERM, tow_as(TOW_ROOT, begin_as_child, self));
	EXPECT_EQ(0, tow_rings_ready(&self->rings));
}

/* A slot is one's only. */
TEST_F(resolve, slots)
{
	struct tow_result result;
	int taken = 0, found = 0;
	struct tow_cqe cqe;
	__u64 handle;

	ASSERT_EQ(0, tow_publish_for(self->fd, self->region.handle, self->names[0], 8,
				     TOW_RIGHT_NOTIFY, &handle));
	for (__u32 i = 0; i < 3; i++) {
		self->requests[i].name = (uintptr_t)self->names[0];
		self->requests[i].rights = TOW_RIGHT_NOTIFY;
	}
	ASSERT_EQ(3, begin(self, 0, 3));
	for (__u32 i = 0; i < 3; i++) {
		ASSERT_EQ(0, next(self, &cqe, &result));
		found += !cqe.status && cqe.flags == TOW_CQE_FOUND && result.bytes == 8;
		taken += cqe.status == -EBUSY;
	}
	EXPECT_EQ(1, found);
	EXPECT_EQ(2, taken);
}

TEST_F(resolve, while_it_is_drained)
{
	ASSERT_EQ(0, tow_sysfs_set("drain", 1));
	EXPECT_EQ(-ESHUTDOWN, begin(self, 0, 1));
	ASSERT_EQ(0, tow_sysfs_set("drain", 0));
	EXPECT_EQ(1, begin(self, 0, 1));
}

/* The connection ends while names are waited for; later ones make another. */
TEST_F(resolve, another_connection)
{
	struct tow_result result;
	struct tow_cqe cqe;
	__u64 handle;

	for (__u32 i = 0; i < 16; i++)
		fill(self, i, TOW_WAIT_FOREVER);
	ASSERT_EQ(16, begin(self, 0, 16));
	tow_test_sleep_ms(SOON_MS);
	ASSERT_EQ(0, tow_disconnect(self->fd, self->peer));
	for (__u32 i = 0; i < 16; i++) {
		ASSERT_EQ(0, next(self, &cqe, &result));
		EXPECT_EQ(-ECONNRESET, cqe.status);
	}
	ASSERT_EQ(0, publish(self, 0, &handle));
	ASSERT_EQ(16, begin(self, 0, 16));
	ASSERT_EQ(0, next(self, &cqe, &result));
	EXPECT_EQ(0, cqe.user_data);
	EXPECT_EQ(0, cqe.status);
	EXPECT_EQ(0, tow_rings_ready(&self->rings));
}

TEST_HARNESS_MAIN
