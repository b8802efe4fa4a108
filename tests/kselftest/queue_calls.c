// SPDX-License-Identifier: GPL-2.0
/*
 * The calls about queues: sizes, flags, reserved fields and memory that is not there,
 * by the rules of all calls (tow_calls.h); numbers out of range; whose a queue is:
 * children, processes that it is passed to, programs that are executed; how it may be
 * mapped; limits, exactly.
 */
/* build: also 32-bit */

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include "tow_calls.h"
#include "tow_identity.h"
#include "tow_queue.h"

#define POOL_BYTES	(2 * TOW_SLAB)
#define ENTRIES		8U

FIXTURE(queues)
{
	struct tow_user user;
	struct tow_calls set;		/* calls on the device */
	struct tow_calls own;		/* calls on the queue */
};

enum { QUEUE_CREATE };
enum { CHANNEL_OPEN, CHANNEL_CLOSE, ENTER, QUEUE_EVENT };

static const struct tow_call device_calls[] = {
	[QUEUE_CREATE] = { TOW_CALL(QUEUE_CREATE, 40, tow_queue_create), .answers = true,
		.flags = TOW_QUEUE_POLL | TOW_QUEUE_RESULTS,
		TOW_RESERVED(tow_queue_create, reserved) },
};

static const struct tow_call queue_calls[] = {
	[CHANNEL_OPEN] = { TOW_CALL(CHANNEL_OPEN, 32, tow_channel_open), .answers = true,
		.stays = true, .flags = TOW_CHANNEL_CONNECTED,
		TOW_RESERVED(tow_channel_open, reserved) },
	[CHANNEL_CLOSE] = { TOW_CALL(CHANNEL_CLOSE, 16, tow_channel_close),
		TOW_RESERVED(tow_channel_close, reserved) },
	[ENTER] = { TOW_CALL(ENTER, 24, tow_enter), .flags = TOW_ENTER_SINCE | TOW_ENTER_ROOM,
		TOW_RESERVED(tow_enter, since) },
	[QUEUE_EVENT] = { TOW_CALL(QUEUE_EVENT, 88, tow_queue_event), .answers = true,
		.stays = true },
};

static int prepare_queue(void *arg, size_t call, union tow_request *request)
{
	struct tow_queue_create *create = (struct tow_queue_create *)request;

	(void)arg;
	(void)call;
	create->sq_entries = ENTRIES;
	return 0;
}

static int undo_queue(void *arg, size_t call, const union tow_request *request)
{
	const struct tow_queue_create *create = (const struct tow_queue_create *)request;

	(void)arg;
	(void)call;
	return close(create->fd) ? -errno : 0;
}

static int prepare_own(void *arg, size_t call, union tow_request *request)
{
	struct tow_channel_close *closing = (struct tow_channel_close *)request;
	struct tow_channel_open *open = (struct tow_channel_open *)request;
	FIXTURE_DATA(queues) *self = arg;
	struct tow_channel_open other;
	int ret = 0;

	if (call == CHANNEL_OPEN) {
		open->peer = self->user.peer;
	} else if (call == CHANNEL_CLOSE) {
		/* If it was closed the last time, it is there again. */
		ret = tow_channel_open(self->user.rings.made.fd, self->user.peer, 1, &other);
		closing->channel = other.channel;
	}
	return ret;
}

/* A channel may stay: the next request gives the same one, or closes it. */
static int undo_own(void *arg, size_t call, const union tow_request *request)
{
	(void)arg;
	(void)call;
	(void)request;
	return 0;
}

FIXTURE_SETUP(queues)
{
	struct tow_area area;

	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_user_make(&self->user, ENTRIES, 0));
	ASSERT_EQ(0, tow_area_make(&area));
	self->set = (struct tow_calls) {
		.calls = device_calls, .count = ARRAY_SIZE(device_calls), .self = self,
		.prepare = prepare_queue, .undo = undo_queue, .fd = self->user.fd,
		.looking = tow_test_open(O_RDONLY), .area = area,
	};
	ASSERT_LE(0, self->set.looking);
	self->own = (struct tow_calls) {
		.calls = queue_calls, .count = ARRAY_SIZE(queue_calls), .self = self,
		.prepare = prepare_own, .undo = undo_own, .fd = self->user.rings.made.fd,
		.looking = -1, .area = area,
	};
}

FIXTURE_TEARDOWN(queues)
{
	struct tow_sqe nop = { .user_data = 5 };

	/* Whatever was refused, it works; and nothing but it is there. */
	EXPECT_EQ(0, tow_rings_do(&self->user.rings, &nop));
	EXPECT_EQ(1, tow_sysfs_wait("stats/queues", 1));
}

/* ---- the rules of all calls ----------------------------------------------------------- */

TOW_CALL_CASES(queues)

#define OWN_CASE(CASE, CHECK) \
	TEST_F(queues, CASE) \
	{ \
		tow_calls_##CHECK(_metadata, &self->own); \
	}

OWN_CASE(own_good_requests_are_good, good)
OWN_CASE(own_short_is_einval, short)
OWN_CASE(own_short_and_huge_read_only_the_size, only_size)
OWN_CASE(own_long_with_zero_tail_is_accepted, zero_tail)
OWN_CASE(own_long_with_nonzero_tail_is_e2big, nonzero_tail)
OWN_CASE(own_unknown_flags_are_einval, unknown_flags)
OWN_CASE(own_nonzero_reserved_is_einval, reserved)
OWN_CASE(own_no_such_address, nowhere)
OWN_CASE(own_missing_page_at_every_offset, missing_page)
OWN_CASE(own_any_address_works, any_address)
OWN_CASE(own_size_before_content, size_first)

/* Nothing stays of a queue whose descriptor nobody was told. */
TEST_F(queues, answer_cannot_be_written)
{
	int fds = tow_count_fds();

	tow_calls_unwritable(_metadata, &self->set);
	EXPECT_EQ(fds, tow_count_fds());
}

TEST(layouts_never_change)
{
	EXPECT_EQ(64, sizeof(struct tow_sqe));
	EXPECT_EQ(16, sizeof(struct tow_cqe));
	EXPECT_EQ(256, sizeof(struct tow_ring));
	EXPECT_EQ(0, offsetof(struct tow_ring, sq_tail));
	EXPECT_EQ(64, offsetof(struct tow_ring, cq_head));
	EXPECT_EQ(128, offsetof(struct tow_ring, sq_head));
	EXPECT_EQ(132, offsetof(struct tow_ring, sq_flags));
	EXPECT_EQ(192, offsetof(struct tow_ring, cq_tail));
	EXPECT_EQ(offsetof(struct tow_sqe, offset), offsetof(struct tow_sqe, vector));
	EXPECT_EQ(offsetof(struct tow_sqe, remote_offset),
		  offsetof(struct tow_sqe, vector_offset));
	EXPECT_EQ(offsetof(struct tow_sqe, region), offsetof(struct tow_sqe, payload));
	EXPECT_EQ(16, sizeof(((struct tow_sqe *)0)->payload));
	EXPECT_EQ(24, sizeof(struct tow_vector));
	EXPECT_EQ(8, offsetof(struct tow_vector, remote_offset));
	EXPECT_EQ(16, offsetof(struct tow_vector, bytes));
	EXPECT_EQ(48, offsetof(struct tow_sqe, bytes));
	EXPECT_EQ(48, offsetof(struct tow_sqe, compare));
	EXPECT_EQ(56, offsetof(struct tow_sqe, operand));
	EXPECT_EQ(8, offsetof(struct tow_cqe, status));
	EXPECT_EQ(16, sizeof(struct tow_result));
	EXPECT_EQ(64, sizeof(struct tow_resolve_request));
	EXPECT_EQ(24, sizeof(struct tow_queue_resolve));
	EXPECT_EQ(16, sizeof(struct tow_channel_close));
	EXPECT_EQ(8, offsetof(struct tow_channel_close, channel));
}

/* ---- descriptors of the other kind ------------------------------------------------------ */

TEST_F(queues, calls_on_the_wrong_descriptor)
{
	const unsigned long devices[] = {
		TOW_IOCTL_QUERY, TOW_IOCTL_JOIN, TOW_IOCTL_REGION_CREATE, TOW_IOCTL_REGION_LIST,
		TOW_IOCTL_PEER_LIST, TOW_IOCTL_EXPORT, TOW_IOCTL_RESOLVE, TOW_IOCTL_QUEUE_CREATE,
		_IO(TOW_IOCTL_TYPE, 0x46), _IO(TOW_IOCTL_TYPE, 0x7f), 0,
	};
	union tow_request request;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(queue_calls); i++) {
		tow_call_prepare(&self->own, i, &request);
		EXPECT_EQ(-ENOTTY, tow_test_ioctl(self->user.fd, queue_calls[i].command,
						  &request));
		EXPECT_EQ(-ENOTTY, tow_test_ioctl(self->set.looking, queue_calls[i].command,
						  &request));
	}
	for (i = 0; i < ARRAY_SIZE(devices); i++) {
		EXPECT_EQ(-ENOTTY, tow_test_ioctl(self->user.rings.made.fd, devices[i], NULL));
	}
	/* Other system calls neither hang nor succeed by mistake. */
	EXPECT_EQ(-1, read(self->user.rings.made.fd, &request, 8));
	EXPECT_EQ(-1, write(self->user.rings.made.fd, &request, 8));
}

/* ---- numbers ------------------------------------------------------------------------------ */

/* What it takes, and what comes of it; 0, 0: nothing. */
static const struct {
	__u32 sq, cq, made_sq, made_cq;
} sizes[] = {
	{ 0, 0, 0, 0 }, { 0, 8, 0, 0 }, { 1, 0, 1, 2 }, { 1, 1, 1, 1 }, { 2, 1, 0, 0 },
	{ 3, 0, 4, 8 }, { 3, 3, 4, 4 }, { 4, 5, 4, 8 }, { 8, 7, 0, 0 }, { 8, 8, 8, 8 },
	{ 7, 6, 0, 0 }, { 1, 65536, 1, 65536 }, { 1, 65537, 0, 0 }, { 1, ~0U, 0, 0 },
	{ 32768, 0, 32768, 65536 }, { 32767, 32768, 32768, 32768 }, { 32769, 0, 0, 0 },
	{ 32769, 65536, 0, 0 }, { 65536, 65536, 0, 0 }, { 1U << 31, 0, 0, 0 },
	{ (1U << 31) + 1, 0, 0, 0 }, { ~0U, 0, 0, 0 }, { ~0U, ~0U, 0, 0 },
};

TEST_F(queues, numbers_of_entries)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), i;
	struct tow_rings rings = { 0 };
	const struct tow_queue_create *made = &rings.made;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		ASSERT_EQ(sizes[i].made_sq ? 0 : -EINVAL,
			  tow_queue_make(self->user.fd, sizes[i].sq, sizes[i].cq, &rings.made))
			TH_LOG("%u, %u", sizes[i].sq, sizes[i].cq);
		if (!sizes[i].made_sq)
			continue;
		EXPECT_EQ(sizes[i].made_sq, made->sq_entries);
		EXPECT_EQ(sizes[i].made_cq, made->cq_entries);
		EXPECT_EQ(0, made->map_bytes % page);
		EXPECT_LE(sizeof(struct tow_ring), made->sqes_offset);
		EXPECT_LE(made->sqes_offset + made->sq_entries * sizeof(struct tow_sqe),
			  made->cqes_offset);
		EXPECT_LE(made->cqes_offset + made->cq_entries * sizeof(struct tow_cqe),
			  made->map_bytes);
		EXPECT_EQ(0, made->sqes_offset % 64);
		EXPECT_EQ(0, made->cqes_offset % 16);
		EXPECT_EQ(FD_CLOEXEC, fcntl(made->fd, F_GETFD));
		ASSERT_EQ(0, tow_rings_map(&rings));
		EXPECT_TRUE(tow_is_zero(rings.ring, made->map_bytes));
		tow_rings_end(&rings);
	}
}

/* Every entry of the largest rings is used, all at once, and once more. */
TEST_F_TIMEOUT(queues, largest_rings, 60)
{
	struct tow_rings rings;
	__u32 round, i;

	ASSERT_EQ(0, tow_rings_make(self->user.fd, TOW_SQ_ENTRIES_MAX, TOW_CQ_ENTRIES_MAX,
				    &rings));
	for (round = 0; round < 3; round++) {
		for (i = 0; i < TOW_SQ_ENTRIES_MAX; i++) {
			struct tow_sqe *sqe = tow_rings_next(&rings);

			ASSERT_NE(NULL, sqe);
			sqe->user_data = i;
		}
		ASSERT_EQ(NULL, tow_rings_next(&rings));
		ASSERT_EQ(TOW_SQ_ENTRIES_MAX,
			  tow_rings_enter(&rings, TOW_SQ_ENTRIES_MAX, TOW_LONG_US));
		ASSERT_EQ(TOW_SQ_ENTRIES_MAX, tow_rings_ready(&rings));
		for (i = 0; i < TOW_SQ_ENTRIES_MAX; i++)
			ASSERT_EQ(i, tow_rings_look(&rings, i).user_data);
		tow_rings_seen(&rings, TOW_SQ_ENTRIES_MAX);
	}
	tow_rings_end(&rings);
}

TEST_F(queues, channels)
{
	int queue = self->user.rings.made.fd;
	struct tow_channel_open first, again, any;
	__u32 qp, seen = 0;

	ASSERT_EQ(0, tow_channel_open(queue, self->user.peer, 0, &first));
	EXPECT_EQ(self->user.channel, first.channel);
	ASSERT_LE(1, first.qps);
	for (qp = 0; qp < first.qps; qp++) {
		ASSERT_EQ(0, tow_channel_open(queue, self->user.peer, qp, &again));
		EXPECT_EQ(first.qps, again.qps);
		EXPECT_EQ(qp, again.qp);
		EXPECT_EQ(qp == 0, again.channel == first.channel);
	}
	EXPECT_EQ(-EINVAL, tow_channel_open(queue, self->user.peer, first.qps, &again));
	EXPECT_EQ(-EINVAL, tow_channel_open(queue, self->user.peer, INT_MAX, &again));
	EXPECT_EQ(-EINVAL, tow_channel_open(queue, self->user.peer, ~1U, &again));
	EXPECT_EQ(-ENOENT, tow_channel_open(queue, 0, 0, &again));
	EXPECT_EQ(-ENOENT, tow_channel_open(queue, self->user.peer + 1, 0, &again));
	EXPECT_EQ(-ENOENT, tow_channel_open(queue, ~0ULL, 0, &again));
	/* One after the other: each has its turn, and none that is not there. */
	for (qp = 0; qp < first.qps; qp++) {
		ASSERT_EQ(0, tow_channel_open(queue, self->user.peer, TOW_CHANNEL_ANY, &any));
		ASSERT_GT(first.qps, any.qp);
		seen |= 1U << any.qp;
		ASSERT_EQ(0, tow_channel_open(queue, self->user.peer, any.qp, &again));
		EXPECT_EQ(any.channel, again.channel);
	}
	EXPECT_EQ((1U << first.qps) - 1, seen);
}

/* Who does not want to wait is told so, and nobody connects for that. */
TEST_F(queues, channels_of_who_is_connected)
{
	int queue = self->user.rings.made.fd;
	struct tow_channel_open open = {
		.size = sizeof(open), .flags = TOW_CHANNEL_CONNECTED, .peer = self->user.peer,
	};

	EXPECT_EQ(0, tow_test_ioctl(queue, TOW_IOCTL_CHANNEL_OPEN, &open));
	EXPECT_EQ(self->user.channel, open.channel);
	ASSERT_EQ(0, tow_disconnect(self->user.fd, self->user.peer));
	EXPECT_EQ(-ENOTCONN, tow_test_ioctl(queue, TOW_IOCTL_CHANNEL_OPEN, &open));
	EXPECT_EQ(-ENOTCONN, tow_test_ioctl(queue, TOW_IOCTL_CHANNEL_OPEN, &open));
	open.flags = 0;
	EXPECT_EQ(0, tow_test_ioctl(queue, TOW_IOCTL_CHANNEL_OPEN, &open));
	EXPECT_EQ(self->user.channel, open.channel);
}

TEST_F(queues, channels_are_closed)
{
	const __u32 wrong[] = { TOW_CHANNELS_MAX - 1, TOW_CHANNELS_MAX, INT_MAX, ~0U };
	int queue = self->user.rings.made.fd;
	struct tow_channel_open open;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(wrong); i++)
		EXPECT_EQ(-ENOENT, tow_channel_close(queue, wrong[i]));
	ASSERT_EQ(0, tow_channel_open(queue, self->user.peer, 1, &open));
	ASSERT_NE(self->user.channel, open.channel);
	/* However often it was opened. */
	ASSERT_EQ(0, tow_channel_open(queue, self->user.peer, 1, &open));
	EXPECT_EQ(0, tow_channel_close(queue, open.channel));
	EXPECT_EQ(-ENOENT, tow_channel_close(queue, open.channel));
	/* The others stay; without any it is a queue like a new one. */
	EXPECT_EQ(0, tow_channel_close(queue, self->user.channel));
	EXPECT_EQ(-ENOENT, tow_channel_close(queue, self->user.channel));
	ASSERT_EQ(0, tow_channel_open(queue, self->user.peer, 0, &open));
	EXPECT_GT(TOW_CHANNELS_MAX, open.channel);
}

/* ---- whose it is ----------------------------------------------------------------------------- */

/* Where it can be read from without dying of it. */
static bool is_mapped(const void *at)
{
	int ends[2];
	bool there;

	if (pipe(ends))
		return false;
	there = write(ends[1], at, 1) == 1;
	close(ends[0]);
	close(ends[1]);
	return there;
}

/* 0, or the number of what was wrong. */
static int try_as_child(void *arg)
{
	FIXTURE_DATA(queues) *self = arg;
	struct tow_channel_open channel;
	struct tow_queue_create made;
	int queue = self->user.rings.made.fd;

	if (tow_enter(queue, 0, 0, 0) != -EPERM || tow_enter(queue, 1, 1, 0) != -EPERM)
		return -1;
	if (tow_channel_open(queue, self->user.peer, 0, &channel) != -EPERM)
		return -2;
	if (tow_channel_close(queue, self->user.channel) != -EPERM)
		return -9;
	if (tow_queue_make(self->user.fd, 1, 0, &made) != -EPERM)
		return -3;
	/* Before EFAULT, and what is wrong with the size. */
	if (tow_test_ioctl(queue, TOW_IOCTL_ENTER, NULL) != -EPERM ||
	    tow_test_ioctl(queue, TOW_IOCTL_CHANNEL_OPEN, NULL) != -EPERM ||
	    tow_test_ioctl(queue, TOW_IOCTL_CHANNEL_CLOSE, NULL) != -EPERM)
		return -4;
	if (is_mapped(self->user.rings.ring))
		return -5;
	if (!is_mapped(self->set.area.start))
		return -6;
	if (mmap(NULL, self->user.rings.made.map_bytes, PROT_READ, MAP_SHARED, queue, 0) !=
	    MAP_FAILED || errno != EPERM)
		return -7;
	if (tow_test_ioctl(queue, _IO(TOW_IOCTL_TYPE, 0x7f), NULL) != -ENOTTY)
		return -8;
	return 0;
}

TEST_F(queues, children)
{
	struct tow_sqe nop = { .user_data = 7 };
	int who;

	tow_write_file("/proc/sys/kernel/unprivileged_userns_clone", "1");
	/* Filled in, but not taken: nobody else's call takes it. */
	ASSERT_TRUE(tow_rings_put(&self->user.rings, &nop));
	tow_rings_publish(&self->user.rings);
	self->set.area.start[0] = 1;
	for (who = 0; who < TOW_WHO_COUNT; who++) {
		EXPECT_EQ(0, tow_as(who, try_as_child, self))
			TH_LOG("as %s", tow_who_name[who]);
	}
	EXPECT_EQ(0, tow_rings_ready(&self->user.rings));
	EXPECT_EQ(1, tow_enter(self->user.rings.made.fd, 1, 1, TOW_LONG_US));
	tow_rings_seen(&self->user.rings, 1);
}

/* A thread is no child. */
static void *enter_as_thread(void *arg)
{
	struct tow_sqe nop = { .user_data = 8 };

	return (void *)(intptr_t)tow_rings_do(arg, &nop);
}

TEST_F(queues, threads)
{
	pthread_t thread;
	void *ret;

	ASSERT_EQ(0, pthread_create(&thread, NULL, enter_as_thread, &self->user.rings));
	ASSERT_EQ(0, pthread_join(thread, &ret));
	EXPECT_EQ(0, (intptr_t)ret);
}

/* ---- passing it on, and how its client ends ----------------------------------------------------- */

static int send_fd(int end, int fd)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .header = {
		.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int)),
	} };
	struct iovec data = { .iov_base = &(char){ 'f' }, .iov_len = 1 };
	struct msghdr message = {
		.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control,
		.msg_controllen = sizeof(control),
	};

	memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	return sendmsg(end, &message, 0) == 1 ? 0 : -errno;
}

static int receive_fd(int end)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	char byte;
	struct iovec data = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr message = {
		.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	int fd;

	if (recvmsg(end, &message, MSG_CMSG_CLOEXEC) != 1 ||
	    message.msg_controllen < CMSG_LEN(sizeof(int)))
		return -EPROTO;
	memcpy(&fd, CMSG_DATA(&control.header), sizeof(fd));
	return fd;
}

enum way { EXIT, KILL, EXEC, CLOSE, WAYS };

/* A client of its own, whose queue it passes on, ends when it is told. */
static void be_client(int end, enum way way)
{
	struct tow_user user;
	char byte;

	if (tow_user_make(&user, ENTRIES, 0) || send_fd(end, user.rings.made.fd) ||
	    read(end, &byte, 1) != 1)
		_exit(1);
	switch (way) {
	case KILL:
		raise(SIGKILL);
		break;
	case EXEC:
		/* Who is executed has the socket, and waits for its end. */
		dup2(end, 0);
		fcntl(user.fd, F_SETFD, 0);
		fcntl(user.rings.made.fd, F_SETFD, 0);
		execlp("cat", "cat", NULL);
		break;
	case CLOSE:
		close(user.fd);
		if (read(end, &byte, 1) < 0)
			_exit(1);
		break;
	default:
		break;
	}
	_exit(0);
}

static short polled(int fd, int timeout_ms)
{
	struct pollfd waiter = { .fd = fd, .events = POLLIN };

	return poll(&waiter, 1, timeout_ms) < 0 ? -1 : waiter.revents;
}

TEST_F(queues, passed_on_and_ended)
{
	int ends[2], way, fd, status;
	pid_t child;

	for (way = 0; way < WAYS; way++) {
		ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
		child = fork();
		if (!child) {
			close(ends[0]);
			be_client(ends[1], way);
		}
		close(ends[1]);
		fd = receive_fd(ends[0]);
		ASSERT_LE(0, fd);
		EXPECT_EQ(-EPERM, tow_enter(fd, 0, 0, 0));
		EXPECT_EQ(0, polled(fd, 0));
		EXPECT_EQ(MAP_FAILED, mmap(NULL, self->user.rings.made.map_bytes, PROT_READ,
					   MAP_SHARED, fd, 0));
		EXPECT_EQ(EPERM, errno);
		ASSERT_EQ(1, write(ends[0], "g", 1));
		EXPECT_EQ(POLLERR | POLLHUP, polled(fd, TOW_WAIT_MS))
			TH_LOG("way %d", way);
		EXPECT_EQ(-EPERM, tow_enter(fd, 0, 1, 0));
		close(ends[0]);
		ASSERT_EQ(child, waitpid(child, &status, 0));
		EXPECT_EQ(way == KILL, WIFSIGNALED(status));
		close(fd);
	}
}

/* The program has closed the device: the queue it kept says so. */
TEST_F(queues, client_closed)
{
	struct tow_sqe nop = { .user_data = 1 };
	struct tow_channel_open channel;
	struct tow_cqe cqe = { 0 };
	struct tow_user other;

	ASSERT_EQ(0, tow_user_make(&other, ENTRIES, 0));
	ASSERT_TRUE(tow_rings_put(&other.rings, &nop));
	ASSERT_EQ(1, tow_rings_enter(&other.rings, 1, TOW_LONG_US));
	close(other.fd);
	EXPECT_EQ(POLLIN | POLLERR | POLLHUP, polled(other.rings.made.fd, TOW_WAIT_MS));
	EXPECT_EQ(-EPERM, tow_enter(other.rings.made.fd, 1, 0, 0));
	EXPECT_EQ(-EPERM, tow_enter(other.rings.made.fd, 0, 2, TOW_LONG_US));
	EXPECT_EQ(-EPERM, tow_channel_open(other.rings.made.fd, other.peer, 0, &channel));
	EXPECT_EQ(-EPERM, tow_channel_close(other.rings.made.fd, other.channel));
	/* What had completed is there to be read. */
	EXPECT_TRUE(tow_rings_take(&other.rings, &cqe));
	EXPECT_EQ(1, cqe.user_data);
	EXPECT_EQ(POLLERR | POLLHUP, polled(other.rings.made.fd, 0));
	tow_rings_end(&other.rings);
}

/* ---- mappings ------------------------------------------------------------------------------- */

static int map_error(int fd, size_t bytes, int protection, int flags, off_t offset)
{
	void *at = mmap(NULL, bytes, protection, flags, fd, offset);

	if (at == MAP_FAILED)
		return -errno;
	munmap(at, bytes);
	return 0;
}

TEST_F(queues, mappings)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes;
	int rw = PROT_READ | PROT_WRITE, fd;
	struct tow_rings rings;

	ASSERT_EQ(0, tow_rings_make(self->user.fd, 256, 0, &rings));
	bytes = rings.made.map_bytes;
	fd = rings.made.fd;
	ASSERT_LT(2 * page, bytes);
	EXPECT_EQ(0, map_error(fd, bytes, rw, MAP_SHARED, 0));
	EXPECT_EQ(0, map_error(fd, bytes, PROT_READ, MAP_SHARED, 0));
	EXPECT_EQ(-EINVAL, map_error(fd, bytes - page, rw, MAP_SHARED, 0));
	EXPECT_EQ(-EINVAL, map_error(fd, bytes + page, rw, MAP_SHARED, 0));
	EXPECT_EQ(-EINVAL, map_error(fd, page, rw, MAP_SHARED, 0));
	EXPECT_EQ(-EINVAL, map_error(fd, bytes - page, rw, MAP_SHARED, (off_t)page));
	EXPECT_EQ(-EINVAL, map_error(fd, bytes, rw, MAP_SHARED, (off_t)page));
	EXPECT_EQ(-EINVAL, map_error(fd, bytes, rw, MAP_SHARED, (off_t)bytes));
	EXPECT_EQ(-EINVAL, map_error(fd, bytes, rw, MAP_PRIVATE, 0));
	EXPECT_EQ(-EINVAL, map_error(fd, bytes, PROT_READ, MAP_PRIVATE, 0));
	/* It does not grow. */
	EXPECT_EQ(MAP_FAILED, mremap(rings.ring, bytes, bytes + page, MREMAP_MAYMOVE));
	tow_rings_end(&rings);
}

/* The mapping alone keeps the memory, and nothing else. */
TEST_F(queues, mapping_outlives_the_descriptor)
{
	struct tow_sqe nop = { .user_data = 3 };
	struct tow_rings rings;

	ASSERT_EQ(0, tow_rings_make(self->user.fd, ENTRIES, 0, &rings));
	ASSERT_EQ(0, tow_rings_do(&rings, &nop));
	close(rings.made.fd);
	EXPECT_EQ(2, tow_sysfs_get("stats/queues"));
	EXPECT_EQ(3, rings.cqes[0].user_data);
	rings.ring->sq_tail = 77;
	EXPECT_EQ(0, munmap(rings.ring, rings.made.map_bytes));
}

/* What the program scribbles over the kernel's indices, the kernel does not read. */
TEST_F(queues, indices_of_the_kernel)
{
	struct tow_rings *rings = &self->user.rings;
	struct tow_sqe nop = { .user_data = 4 };
	__u32 junk[] = { 0, 1, 77, 1U << 31, ~0U };
	__u32 i, tail, head;

	for (i = 0; i < 3 * ARRAY_SIZE(junk); i++) {
		ASSERT_TRUE(tow_rings_put(rings, &nop));
		tow_rings_publish(rings);
		tail = rings->ring->cq_tail;
		head = rings->ring->sq_head;
		rings->ring->sq_head = junk[i % ARRAY_SIZE(junk)];
		rings->ring->cq_tail = junk[i % ARRAY_SIZE(junk)];
		ASSERT_EQ(1, tow_enter(rings->made.fd, 1, 1, TOW_LONG_US));
		EXPECT_EQ(tail + 1, rings->ring->cq_tail);
		EXPECT_EQ(head + 1, rings->ring->sq_head);
		EXPECT_EQ(4, tow_rings_look(rings, 0).user_data);
		tow_rings_seen(rings, 1);
	}
}

/*
 * A program may see, and deal with, a completion that the kernel has not told itself of
 * yet: then there is none, rather than as many as there may be.
 */
TEST_F(queues, seen_before_it_is_told)
{
	struct tow_rings *rings = &self->user.rings;
	struct tow_sqe nop = { .user_data = 4 };
	struct pollfd fd = { .fd = rings->made.fd, .events = POLLIN };

	tow_rings_seen(rings, 1);
	EXPECT_EQ(-ETIMEDOUT, tow_enter(rings->made.fd, 0, 1, 1000));
	EXPECT_EQ(0, poll(&fd, 1, 0));
	rings->head--;
	tow_rings_seen(rings, 0);
	EXPECT_EQ(0, tow_rings_do(rings, &nop));
}

/* ---- limits ------------------------------------------------------------------------------------- */

FIXTURE(limit)
{
	int fd;
};

FIXTURE_SETUP(limit)
{
	ASSERT_EQ(0, tow_queue_fresh(0));
	self->fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(limit)
{
	close(self->fd);
	EXPECT_EQ(0, tow_sysfs_wait("stats/queues", 0));
}

FIXTURE_VARIANT(limit)
{
	const char *file;
	int error;
};

FIXTURE_VARIANT_ADD(limit, client) { .file = "client_queue_entries_limit", .error = -EDQUOT };
FIXTURE_VARIANT_ADD(limit, user) { .file = "user_queue_entries_limit", .error = -EDQUOT };
FIXTURE_VARIANT_ADD(limit, device) { .file = "queue_entries_limit", .error = -ENOSPC };

#define LIMIT	64

/* It is refused, and the log says so, if not at once: it is not flooded. */
static bool refused_and_logged(int fd, const char *file, int error)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	struct tow_queue_create made;
	int log = tow_log_open();
	bool says = false;

	while (!says && tow_patient(&patience) &&
	       tow_queue_make(fd, 1, LIMIT + 1, &made) == error) {
		says = tow_log_says(log, file);
		if (!says)
			tow_test_sleep_ms(500);
	}
	close(log);
	return says;
}

/* Entries of completion rings count, as they are made. */
TEST_F(limit, exactly)
{
	struct tow_queue_create first, second, third;
	int fds = tow_count_fds();
	char before[32];

	tow_sysfs_line(variant->file, before, sizeof(before));
	ASSERT_EQ(0, tow_sysfs_set(variant->file, LIMIT));
	EXPECT_TRUE(refused_and_logged(self->fd, variant->file, variant->error));
	ASSERT_EQ(0, tow_queue_make(self->fd, 1, LIMIT - 1, &first));
	EXPECT_EQ(LIMIT, first.cq_entries);
	EXPECT_EQ(variant->error, tow_queue_make(self->fd, 1, 1, &second));
	close(first.fd);
	/* It comes back, and a refusal took nothing. */
	EXPECT_EQ(0, tow_sysfs_wait("stats/queues", 0));
	ASSERT_EQ(0, tow_queue_make(self->fd, LIMIT / 4, 0, &first));
	ASSERT_EQ(0, tow_queue_make(self->fd, LIMIT / 4, 0, &second));
	EXPECT_EQ(variant->error, tow_queue_make(self->fd, 1, 1, &third));
	ASSERT_EQ(0, tow_sysfs_set(variant->file, LIMIT + 1));
	EXPECT_EQ(variant->error, tow_queue_make(self->fd, 1, 2, &third));
	ASSERT_EQ(0, tow_queue_make(self->fd, 1, 1, &third));
	/* Below what there is: nothing goes, nothing comes. */
	ASSERT_EQ(0, tow_sysfs_set(variant->file, 1));
	EXPECT_EQ(0, tow_enter(first.fd, 0, 0, 0));
	close(third.fd);
	EXPECT_EQ(variant->error, tow_queue_make(self->fd, 1, 1, &third));
	close(first.fd);
	close(second.fd);
	EXPECT_EQ(0, tow_sysfs_wait("stats/queues", 0));
	ASSERT_EQ(0, tow_queue_make(self->fd, 1, 1, &first));
	close(first.fd);
	EXPECT_EQ(fds, tow_count_fds());
	ASSERT_EQ(0, tow_sysfs_put(variant->file, before));
}

/* Another client, and another user, have their own. */
static int make_one(void *arg)
{
	struct tow_queue_create made;
	int fd = tow_test_open(O_RDWR);

	(void)arg;
	return fd < 0 ? fd : tow_queue_make(fd, 1, 1, &made);
}

TEST_F(limit, whose)
{
	bool of_client = !strncmp(variant->file, "client", 6);
	bool of_device = variant->error == -ENOSPC;
	struct tow_queue_create made;
	char before[32];

	ASSERT_EQ(0, chmod(tow_test_path(), 0666));
	tow_sysfs_line(variant->file, before, sizeof(before));
	ASSERT_EQ(0, tow_sysfs_set(variant->file, LIMIT));
	ASSERT_EQ(0, tow_queue_make(self->fd, LIMIT, LIMIT, &made));
	EXPECT_EQ(of_client ? 0 : variant->error, tow_as(TOW_ROOT, make_one, NULL));
	EXPECT_EQ(of_device ? variant->error : 0, tow_as(TOW_NOBODY, make_one, NULL));
	close(made.fd);
	ASSERT_EQ(0, tow_sysfs_put(variant->file, before));
	ASSERT_EQ(0, chmod(tow_test_path(), 0600));
}

TEST_HARNESS_MAIN
