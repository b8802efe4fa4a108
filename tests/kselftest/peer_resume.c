// SPDX-License-Identifier: GPL-2.0
/*
 * What is said again when a connection is made again, by a node to one that breaks it where
 * it likes (tow_hostile.ko): all that may not have been dealt with, once, and nothing else.
 * (To be run by tests/lab/evil-nodes.)
 */
#include "tow_evil_again.h"
#include "tow_evil_range.h"
#include "tow_region.h"

#define POOL_BYTES	(4 * TOW_SLAB)
#define SHORT_MS	300
/* Longer than two heartbeats. */
#define NOTHING_MS	1500
#define SLOT		{ .bytes = 8, .rights = TOW_RIGHT_NOTIFY, .total = 1, .count = 1, \
			  .key = 1, .segment_bytes = 8 }

FIXTURE(resume)
{
	struct evil_host host;
	struct evil e;
	__u64 peer;
	struct tow_region_create region;
	__u64 exported;
};

FIXTURE_SETUP(resume)
{
	ASSERT_EQ(0, evil_host_start(&self->host, &self->e, POOL_BYTES));
	ASSERT_EQ(0, tow_region_create(self->host.fd, TOW_SLAB, &self->region));
	self->peer = self->host.work.call.peer;
}

FIXTURE_TEARDOWN(resume)
{
	EXPECT_EQ(0, evil_host_disconnect(self->host.fd, self->peer));
	evil_end(&self->e);
	EXPECT_EQ(0, evil_wait("sessions", 0));
	EXPECT_EQ(0, evil_count("grants"));
	EXPECT_EQ(0, evil_count("remotes"));
	EXPECT_EQ(0, tow_region_end(self->host.fd, &self->region));
	close(self->host.fd);
	close(self->host.listener);
	EXPECT_TRUE(tow_pool_unused());
}

/* The node has nothing more to say. */
static bool silent(struct evil *e)
{
	struct tow_patience patience = tow_patience(NOTHING_MS / 1e3);
	int type;

	do {
		type = evil_hear_any(e, NOTHING_MS);
	} while ((type == T_HEARTBEAT || type == T_CREDIT) && tow_patient(&patience));
	return type == -ETIMEDOUT || type == T_HEARTBEAT || type == T_CREDIT;
}

/* SYNC is next: the last grant of ours that the node was told of; or -1. */
static long long synced(struct evil *e)
{
	struct evil_sync sync = {};

	if (evil_hear(e, EVIL_WAIT_MS) != T_SYNC)
		return -1;
	memcpy(&sync, e->last.data + EVIL_HEADER, EVIL_SYNC_BYTES);
	return (long long)sync.grant;
}

/* A message of one grant is next: which; or -1. */
static long long hear_grant(struct evil *e, int type)
{
	uint64_t says[2];

	if (evil_hear(e, EVIL_WAIT_MS) != type || e->last.bytes != EVIL_HEADER + sizeof(says))
		return -1;
	memcpy(says, e->last.data + EVIL_HEADER, sizeof(says));
	return says[0] == 1 ? (long long)says[1] : -1;
}

/* RESOLVE is next: the number of its first request; or 0. */
static uint32_t hear_resolve(struct evil *e)
{
	return evil_hear(e, EVIL_WAIT_MS) == T_RESOLVE ? evil_asked(e) : 0;
}

/* RESOLVE is next, of names of one letter: how many; their numbers are added to @numbers. */
static uint32_t hear_names(struct evil *e, uint32_t *numbers, uint32_t room)
{
	struct evil_resolve asked;
	uint32_t i, count;

	if (evil_hear(e, EVIL_WAIT_MS) != T_RESOLVE)
		return 0;
	count = (e->last.bytes - EVIL_HEADER) / (uint32_t)sizeof(asked);
	for (i = 0; i < count && i < room; i++) {
		memcpy(&asked, e->last.data + EVIL_HEADER + i * sizeof(asked), sizeof(asked));
		numbers[i] = asked.request;
	}
	return count;
}

/* CANCEL is next, of one name: its number; or 0. */
static uint32_t hear_cancel(struct evil *e)
{
	uint32_t number;

	if (evil_hear(e, EVIL_WAIT_MS) != T_CANCEL ||
	    e->last.bytes != EVIL_HEADER + sizeof(number))
		return 0;
	memcpy(&number, e->last.data + EVIL_HEADER, sizeof(number));
	return number;
}

/* Ours, of a name of the node's; @wait: until it is there.  0, or a negative errno. */
static int say_resolve(struct evil *e, char name, uint32_t request, bool wait)
{
	struct evil_resolve body = evil_resolve(name, request, TOW_RIGHT_READ);

	body.wait = wait;
	return evil_say(e, T_RESOLVE, 0, &body, sizeof(body));
}

/* The answer is next: the grant; or -1. */
static long long hear_resolved(struct evil *e, uint32_t request)
{
	struct evil_resolved says;

	if (evil_hear(e, EVIL_WAIT_MS) != T_RESOLVED)
		return -1;
	memcpy(&says, e->last.data + EVIL_HEADER, sizeof(says));
	return says.request == request && !says.status ? (long long)says.grant : -1;
}

/* ---- the node asks ---------------------------------------------------------------- */

/* RESOLVE, by a thread. */
struct asking {
	int fd;
	struct tow_resolve call;
	int ret;
	pthread_t thread;
};

static void *ask(void *arg)
{
	struct asking *work = arg;

	work->ret = tow_test_ioctl(work->fd, TOW_IOCTL_RESOLVE, &work->call);
	return NULL;
}

static int begin_asking(FIXTURE_DATA(resume) *self, struct asking *work, __u32 timeout_ms)
{
	*work = (struct asking) {
		.fd = self->host.fd,
		.call = {
			.size = sizeof(work->call), .peer = self->peer, .name_bytes = 1,
			.rights = TOW_RIGHT_NOTIFY, .timeout_ms = timeout_ms, .name = "s",
		},
	};
	return -pthread_create(&work->thread, NULL, ask, work);
}

/* Until it is answered; and what is released, until that was dealt with. */
TEST_F_TIMEOUT(resume, asks_and_releases_again, 100)
{
	struct evil_resolved slot = SLOT;
	struct asking work;
	uint32_t number;

	ASSERT_EQ(0, begin_asking(self, &work, 60000));
	number = hear_resolve(&self->e);
	EXPECT_NE(0, number);
	ASSERT_EQ(0, evil_break(&self->host, &self->e, 0));
	EXPECT_EQ(0, synced(&self->e));
	EXPECT_EQ(number, hear_resolve(&self->e));
	slot.grant = 5;
	slot.request = number;
	ASSERT_EQ(0, evil_say(&self->e, T_RESOLVED, 0, &slot, sizeof(slot)));
	ASSERT_EQ(0, pthread_join(work.thread, NULL));
	ASSERT_EQ(0, work.ret);
	/* What was answered is not asked for again. */
	ASSERT_EQ(0, evil_break(&self->host, &self->e, 0));
	EXPECT_EQ(5, synced(&self->e));
	EXPECT_TRUE(silent(&self->e));
	EXPECT_EQ(0, tow_end_handle(self->host.fd, TOW_IOCTL_RELEASE, work.call.handle));
	for (int i = 0; i < 2; i++) {
		EXPECT_EQ(5, hear_grant(&self->e, T_RELEASE));
		EXPECT_EQ(1, evil_count("remotes"));
		ASSERT_EQ(0, evil_break(&self->host, &self->e, 0));
		EXPECT_EQ(5, synced(&self->e));
	}
	EXPECT_EQ(5, hear_grant(&self->e, T_RELEASE));
	/* This says that it was. */
	ASSERT_EQ(0, evil_say(&self->e, T_HEARTBEAT, 0, NULL, 0));
	EXPECT_EQ(0, evil_wait("remotes", 0));
	ASSERT_EQ(0, evil_break(&self->host, &self->e, 0));
	EXPECT_EQ(5, synced(&self->e));
	EXPECT_TRUE(silent(&self->e));
}

/* What nobody waits for is not asked for again: the other end has forgotten it. */
TEST_F_TIMEOUT(resume, does_not_ask_in_vain, 60)
{
	struct asking work;
	uint32_t number;

	ASSERT_EQ(0, begin_asking(self, &work, SHORT_MS));
	number = hear_resolve(&self->e);
	EXPECT_NE(0, number);
	EXPECT_EQ(number, hear_cancel(&self->e));
	ASSERT_EQ(0, pthread_join(work.thread, NULL));
	EXPECT_EQ(-ETIMEDOUT, work.ret);
	ASSERT_EQ(0, evil_break(&self->host, &self->e, 0));
	EXPECT_EQ(0, synced(&self->e));
	EXPECT_TRUE(silent(&self->e));
}

#define NAMES		3U

/* A queue that looks for names of one letter, each with its own completion. */
static int begin_names(FIXTURE_DATA(resume) *self, struct tow_rings *rings)
{
	static const char letters[NAMES] = { 'a', 'b', 'c' };
	struct tow_resolve_request requests[NAMES];
	struct tow_queue_resolve call = {
		.size = sizeof(call), .requests = (uintptr_t)requests, .count = NAMES,
		.request_size = sizeof(requests[0]),
	};
	int ret;

	memset(rings, 0, sizeof(*rings));
	rings->made = (struct tow_queue_create) {
		.size = sizeof(rings->made), .sq_entries = 1, .cq_entries = NAMES, .fd = -1,
		.flags = TOW_QUEUE_RESULTS,
	};
	ret = tow_rings_made(rings, tow_test_ioctl(self->host.fd, TOW_IOCTL_QUEUE_CREATE,
						   &rings->made));
	if (ret)
		return ret;
	for (uint32_t i = 0; i < NAMES; i++)
		requests[i] = (struct tow_resolve_request) {
			.user_data = i, .peer = self->peer, .name = (uintptr_t)&letters[i],
			.name_bytes = 1, .rights = TOW_RIGHT_READ, .timeout_ms = 60000,
		};
	ret = ioctl(rings->made.fd, TOW_IOCTL_QUEUE_RESOLVE, &call);
	return ret < 0 ? -errno : ret;
}

/* All of them are asked for: their numbers. */
static uint32_t hear_all(struct evil *e, uint32_t numbers[NAMES])
{
	uint32_t count = 0, some;

	do {
		some = hear_names(e, numbers + count, NAMES - count);
		count += some;
	} while (some && count < NAMES);
	return count;
}

/* Those that were not answered are asked for again, in one message, in their order. */
TEST_F_TIMEOUT(resume, asks_for_many_again, 100)
{
	struct evil_resolved says[NAMES] = {};
	uint32_t numbers[NAMES], again[NAMES];
	struct tow_rings rings;
	struct tow_cqe cqe;

	ASSERT_EQ((int)NAMES, begin_names(self, &rings));
	ASSERT_EQ(NAMES, hear_all(&self->e, numbers));
	ASSERT_EQ(0, evil_break(&self->host, &self->e, 0));
	EXPECT_EQ(0, synced(&self->e));
	ASSERT_EQ(NAMES, hear_names(&self->e, again, NAMES));
	for (uint32_t i = 0; i < NAMES; i++) {
		EXPECT_EQ(numbers[i], again[i]);
		says[i] = (struct evil_resolved) {
			.grant = 5 + i, .bytes = 8, .rights = TOW_RIGHT_READ, .total = 1,
			.count = 1, .request = numbers[i], .address = 0x10000, .key = 1,
			.segment_bytes = 8,
		};
	}
	/* Two of them are answered, by one message. */
	ASSERT_EQ(0, evil_say(&self->e, T_RESOLVED, 0, says, 2 * sizeof(says[0])));
	for (uint32_t i = 0; i < 2; i++) {
		ASSERT_EQ(0, tow_rings_wait(&rings, &cqe));
		EXPECT_EQ(0, cqe.status);
		EXPECT_EQ(TOW_CQE_FOUND, cqe.flags);
	}
	ASSERT_EQ(0, evil_break(&self->host, &self->e, 0));
	EXPECT_EQ(6, synced(&self->e));
	ASSERT_EQ(1, hear_names(&self->e, again, 1));
	EXPECT_EQ(numbers[2], again[0]);
	ASSERT_EQ(0, evil_say(&self->e, T_RESOLVED, 0, &says[2], sizeof(says[2])));
	ASSERT_EQ(0, tow_rings_wait(&rings, &cqe));
	EXPECT_EQ(0, cqe.status);
	EXPECT_EQ(0, tow_rings_ready(&rings));
	tow_rings_end(&rings);
}

/* A peer that does not come back answers nobody, and nobody waits for ever. */
TEST_F_TIMEOUT(resume, nobody_comes_back, 100)
{
	uint32_t numbers[NAMES];
	struct tow_rings rings;
	struct tow_cqe cqe;

	ASSERT_EQ((int)NAMES, begin_names(self, &rings));
	ASSERT_EQ(NAMES, hear_all(&self->e, numbers));
	ASSERT_EQ(0, evil_host_disconnect(self->host.fd, self->peer));
	for (uint32_t i = 0; i < NAMES; i++) {
		ASSERT_EQ(0, tow_rings_wait(&rings, &cqe));
		EXPECT_EQ(-ECONNRESET, cqe.status);
		EXPECT_EQ(0, cqe.flags);
	}
	tow_rings_end(&rings);
	evil_end(&self->e);
	ASSERT_EQ(0, evil_host_serve(&self->host, &self->e, 0));
	self->peer = self->host.work.call.peer;
}

/* Grants are numbered upwards, or it is not known which were heard of. */
TEST_F_TIMEOUT(resume, numbers_that_go_back, 60)
{
	long long lies = evil_count("hostile_messages");
	struct evil_resolved slot = SLOT;
	struct asking work;

	for (uint64_t grant = 8; grant >= 7; grant--) {
		ASSERT_EQ(0, begin_asking(self, &work, 60000));
		slot.grant = grant;
		slot.request = hear_resolve(&self->e);
		ASSERT_EQ(0, evil_say_last(&self->e, T_RESOLVED, 0, &slot, sizeof(slot)));
		ASSERT_EQ(0, pthread_join(work.thread, NULL));
		EXPECT_EQ(grant == 8 ? 0 : -EPROTO, work.ret);
	}
	EXPECT_EQ(lies + 1, evil_wait("hostile_messages", lies + 1));
}

/* ---- the node is asked ------------------------------------------------------------ */

/* A grant that was not heard of ends, one that was stays; and there is none that was not given. */
TEST_F_TIMEOUT(resume, grants_not_heard_of_end, 100)
{
	long long lies = evil_count("hostile_messages");
	long long first, second;

	ASSERT_EQ(0, tow_publish(self->host.fd, self->region.handle, "w", TOW_SLAB,
				 &self->exported));
	ASSERT_EQ(0, say_resolve(&self->e, 'w', 1, false));
	first = hear_resolved(&self->e, 1);
	ASSERT_LT(0, first);
	ASSERT_EQ(0, say_resolve(&self->e, 'w', 2, false));
	EXPECT_EQ(2, evil_wait("grants", 2));
	ASSERT_EQ(0, evil_break(&self->host, &self->e, (uint64_t)first));
	EXPECT_EQ(1, evil_wait("grants", 1));
	EXPECT_EQ(0, synced(&self->e));
	ASSERT_EQ(0, say_resolve(&self->e, 'w', 2, false));
	second = hear_resolved(&self->e, 2);
	EXPECT_LT(first + 1, second);
	ASSERT_EQ(0, evil_break(&self->host, &self->e, (uint64_t)second));
	EXPECT_EQ(0, synced(&self->e));
	EXPECT_TRUE(silent(&self->e));
	EXPECT_EQ(2, evil_count("grants"));
	evil_hang_up(&self->e);
	ASSERT_EQ(0, evil_host_serve_again(&self->host, &self->e));
	ASSERT_EQ(0, evil_heard(evil_resume(&self->e, (uint64_t)second + 1, false)));
	EXPECT_EQ(R_PROTOCOL, evil_how_it_ends(&self->e));
	EXPECT_EQ(lies + 1, evil_wait("hostile_messages", lies + 1));
	EXPECT_EQ(0, tow_end_handle(self->host.fd, TOW_IOCTL_UNEXPORT, self->exported));
}

/* Before a node has said of which grants it was told it asks for nothing. */
TEST_F_TIMEOUT(resume, asks_before_sync, 60)
{
	long long lies = evil_count("hostile_messages");

	ASSERT_EQ(0, tow_publish(self->host.fd, self->region.handle, "w", TOW_SLAB,
				 &self->exported));
	ASSERT_EQ(0, say_resolve(&self->e, 'w', 1, false));
	ASSERT_LT(0, hear_resolved(&self->e, 1));
	evil_hang_up(&self->e);
	ASSERT_EQ(0, evil_host_serve_again(&self->host, &self->e));
	for (int stage = EVIL_TOLD; stage <= EVIL_READY; stage++)
		ASSERT_EQ(0, evil_serve_step(&self->e, (enum evil_stage)stage));
	ASSERT_EQ(0, evil_heard(say_resolve(&self->e, 'w', 2, false)));
	EXPECT_EQ(R_PROTOCOL, evil_how_it_ends(&self->e));
	EXPECT_EQ(lies + 1, evil_wait("hostile_messages", lies + 1));
	EXPECT_EQ(0, tow_end_handle(self->host.fd, TOW_IOCTL_UNEXPORT, self->exported));
}

/* Two answers in one message, which is lost: both grants end, and both are asked for again. */
TEST_F_TIMEOUT(resume, two_answers_lost_together, 100)
{
	const struct evil_resolve two[] = {
		evil_resolve('w', 1, TOW_RIGHT_READ), evil_resolve('w', 2, TOW_RIGHT_READ),
	};
	struct { uint32_t count, reserved; uint64_t grants[2]; } back = { .count = 2 };
	struct evil_resolved says[2];

	ASSERT_EQ(0, tow_publish(self->host.fd, self->region.handle, "w", TOW_SLAB,
				 &self->exported));
	ASSERT_EQ(0, evil_say(&self->e, T_RESOLVE, 0, two, sizeof(two)));
	EXPECT_EQ(2, evil_wait("grants", 2));
	ASSERT_EQ(0, evil_break(&self->host, &self->e, 0));
	EXPECT_EQ(0, evil_wait("grants", 0));
	EXPECT_EQ(0, synced(&self->e));
	ASSERT_EQ(0, evil_say(&self->e, T_RESOLVE, 0, two, sizeof(two)));
	ASSERT_EQ(T_RESOLVED, evil_hear(&self->e, EVIL_WAIT_MS));
	ASSERT_EQ(EVIL_HEADER + sizeof(says), self->e.last.bytes);
	memcpy(says, self->e.last.data + EVIL_HEADER, sizeof(says));
	for (uint32_t i = 0; i < 2; i++) {
		EXPECT_EQ(0, says[i].status);
		EXPECT_EQ(i + 1, says[i].request);
		EXPECT_LT(2, says[i].grant);
		back.grants[i] = says[i].grant;
	}
	EXPECT_EQ(2, evil_count("grants"));
	ASSERT_EQ(0, evil_say(&self->e, T_RELEASE, 0, &back, sizeof(back)));
	EXPECT_EQ(0, evil_wait("grants", 0));
	EXPECT_EQ(0, tow_end_handle(self->host.fd, TOW_IOCTL_UNEXPORT, self->exported));
}

/* Who waits for a name asks again, and is answered once. */
TEST_F_TIMEOUT(resume, waits_again, 100)
{
	ASSERT_EQ(0, say_resolve(&self->e, 'w', 1, true));
	ASSERT_EQ(0, evil_break(&self->host, &self->e, 0));
	EXPECT_EQ(0, synced(&self->e));
	ASSERT_EQ(0, say_resolve(&self->e, 'w', 1, true));
	EXPECT_TRUE(silent(&self->e));
	ASSERT_EQ(0, tow_publish(self->host.fd, self->region.handle, "w", TOW_SLAB,
				 &self->exported));
	EXPECT_LT(0, hear_resolved(&self->e, 1));
	EXPECT_TRUE(silent(&self->e));
	EXPECT_EQ(1, evil_count("grants"));
	/* The grant of a node that goes does not keep it. */
	EXPECT_EQ(0, evil_host_disconnect(self->host.fd, self->peer));
	EXPECT_EQ(0, tow_end_handle(self->host.fd, TOW_IOCTL_UNEXPORT, self->exported));
	evil_end(&self->e);
	ASSERT_EQ(0, evil_host_serve(&self->host, &self->e, 0));
	self->peer = self->host.work.call.peer;
}

/* What is revoked while nobody is there ends at once, and is said until it was dealt with. */
TEST_F_TIMEOUT(resume, revokes_again, 100)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	struct tow_peer_info info = {};
	long long grant;

	ASSERT_EQ(0, tow_publish(self->host.fd, self->region.handle, "w", TOW_SLAB,
				 &self->exported));
	ASSERT_EQ(0, say_resolve(&self->e, 'w', 1, false));
	grant = hear_resolved(&self->e, 1);
	ASSERT_LT(0, grant);
	evil_hang_up(&self->e);
	while (!tow_peer_look(self->host.fd, self->peer, &info) &&
	       info.state == TOW_PEER_READY && tow_patient(&patience))
		tow_test_sleep_ms(10);
	EXPECT_EQ(0, tow_end_handle(self->host.fd, TOW_IOCTL_UNEXPORT, self->exported));
	EXPECT_EQ(0, evil_count("grants"));
	ASSERT_EQ(0, evil_host_serve_again(&self->host, &self->e));
	ASSERT_EQ(0, evil_resume(&self->e, (uint64_t)grant, false));
	for (int i = 0; i < 2; i++) {
		EXPECT_EQ(grant, hear_grant(&self->e, T_REVOKE));
		EXPECT_EQ(0, synced(&self->e));
		ASSERT_EQ(0, evil_break(&self->host, &self->e, (uint64_t)grant));
	}
	EXPECT_EQ(grant, hear_grant(&self->e, T_REVOKE));
	EXPECT_EQ(0, synced(&self->e));
	/* This says that it was. */
	ASSERT_EQ(0, evil_say(&self->e, T_HEARTBEAT, 0, NULL, 0));
	EXPECT_TRUE(silent(&self->e));
	ASSERT_EQ(0, evil_break(&self->host, &self->e, (uint64_t)grant));
	EXPECT_EQ(0, synced(&self->e));
	EXPECT_TRUE(silent(&self->e));
}

TEST_HARNESS_MAIN
