// SPDX-License-Identifier: GPL-2.0
/*
 * A node that notifies as it likes (tow_hostile.ko): slots that are another's, that it
 * had, or that are none; numbers that make no sense, or do not agree; more than it may;
 * and that invalidates others' keys.
 * Nothing of it counts for anybody else.  And one that is notified and never says that
 * it has dealt with anything: no more than the window is sent to it, and others do not
 * wait.
 */
#include <pthread.h>

#include "tow_evil.h"
#include "tow_rdma.h"
#include "tow_notify.h"

#define POOL_BYTES	(4 * TOW_SLAB)
#define ENTRIES		512U
#define BYTES		(64 * TOW_KB)
#define NUMBER_BITS	12
#define SLOTS_TRIED	64U

struct resolved {
	uint64_t grant;
	uint64_t bytes;
	uint32_t status;
	uint32_t rights;
	uint32_t total;
	uint32_t first;
	uint32_t count;
	uint32_t request;
	uint64_t address;	/* of the only segment */
	uint32_t key;
	uint32_t segment_bytes;
};

FIXTURE(hostile)
{
	struct tow_ends honest;
	struct evil e;
	long long ignored;
};

FIXTURE_SETUP(hostile)
{
	ASSERT_EQ(0, tow_module_load("tow_hostile", ""));
	ASSERT_EQ(0, evil_share_key());
	/* It says nothing while it does other things, and they may take long. */
	ASSERT_EQ(0, evil_set("heartbeat_ms", "60000"));
	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_ends_make(&self->honest, ENTRIES, BYTES));
	ASSERT_EQ(0, evil_patience(EVIL_PATIENT));
	ASSERT_EQ(0, evil_ready(&self->e, 2));
	self->ignored = evil_count("notifications_ignored");
	ASSERT_LE(0, self->ignored);
}

/* The honest ones go on, whatever the other did. */
FIXTURE_TEARDOWN(hostile)
{
	__u64 number = tow_ends_number(&self->honest);

	EXPECT_EQ(0, tow_ends_notify(&self->honest));
	EXPECT_EQ(number + 1, tow_slot_await(tow_ends_word(&self->honest), number + 1));
	tow_ends_end(&self->honest);
	evil_end(&self->e);
	/* The node as its own peer has two ends, and stays. */
	EXPECT_EQ(2, evil_wait("sessions", 2));
	EXPECT_EQ(0, tow_module_unload("tow_hostile"));
}

/* The other peer, not the node itself; 0: it is not READY. */
static __u64 its_number(int client)
{
	struct tow_peer_info entries[16];
	struct tow_peer_list call = {
		.size = sizeof(call), .entries = (uintptr_t)entries,
		.entry_size = sizeof(entries[0]), .count = 16,
	};
	__u32 i;

	if (tow_test_ioctl(client, TOW_IOCTL_PEER_LIST, &call))
		return 0;
	for (i = 0; i < call.count; i++)
		if (!(entries[i].flags & TOW_PEER_LOOPBACK) && entries[i].state == TOW_PEER_READY)
			return entries[i].peer;
	return 0;
}

/* The node says READY before it lists it so. */
static __u64 await_its_number(int client)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	__u64 peer;

	while (!(peer = its_number(client)) && tow_patient(&patience))
		tow_test_sleep_ms(1);
	return peer;
}

/* ---- as who notifies ----------------------------------------------------------------- */

/* It finds what has a name of one letter. */
static int find_for(struct evil *e, char name, uint8_t rights, struct resolved *answer)
{
	static uint32_t request;
	struct evil_resolve body = evil_resolve(name, ++request, rights);

	memset(answer, 0, sizeof(*answer));
	if (evil_say(e, T_RESOLVE, 0, &body, sizeof(body)) ||
	    evil_hear(e, EVIL_WAIT_MS) != T_RESOLVED)
		return -EPROTO;
	memcpy(answer, e->last.data + EVIL_HEADER, e->last.bytes - EVIL_HEADER < sizeof(*answer) ?
	       e->last.bytes - EVIL_HEADER : sizeof(*answer));
	return (int)answer->status;
}

/* A slot: its number, and how far it is. */
static int find(struct evil *e, char name, struct resolved *answer)
{
	return find_for(e, name, TOW_RIGHT_NOTIFY, answer);
}

static uint32_t notify_by(int data, uint32_t slot, uint32_t number, uint32_t step,
			  uint32_t count)
{
	struct tow_hostile_notify call = {
		.immediate = slot << NUMBER_BITS | (number & ((1U << NUMBER_BITS) - 1)),
		.step = step, .count = count,
	};

	tow_test_ioctl(data, TOW_HOSTILE_NOTIFY, &call);
	return call.count;
}

/* How many it could send: as many as asked for, if nothing else is expected. */
static uint32_t notify(struct evil *e, uint32_t slot, uint32_t number, uint32_t step,
		       uint32_t count)
{
	return notify_by(e->data[0], slot, number, step, count);
}

/* Of the honest one's client, at a word of its memory. */
static int make(FIXTURE_DATA(hostile) *self, char letter, size_t offset, __u64 *handle)
{
	const char name[2] = { letter, '\0' };

	return tow_slot_make(self->honest.to.fd, self->honest.memory.made.handle, offset, name,
			     handle);
}

TEST_F(hostile, its_own_slot)
{
	const void *word = self->honest.memory.at + 64;
	struct resolved mine, again;
	__u64 slot;

	ASSERT_EQ(0, make(self, 's', 64, &slot));
	ASSERT_EQ(0, find(&self->e, 's', &mine));
	EXPECT_EQ(8, mine.bytes);
	EXPECT_EQ(TOW_RIGHT_NOTIFY, mine.rights);
	EXPECT_EQ(1, mine.total);
	EXPECT_EQ(1, mine.count);
	EXPECT_EQ(0, mine.address);
	EXPECT_EQ(8, mine.segment_bytes);
	EXPECT_EQ(0, mine.key >> 20);
	/* Taken, by itself. */
	EXPECT_EQ(6, find(&self->e, 's', &again));
	EXPECT_EQ(10, notify(&self->e, mine.key, 1, 1, 10));
	EXPECT_EQ(10, tow_slot_await(word, 10));
	/* What was, and what is too far to be anything else. */
	EXPECT_EQ(3, notify(&self->e, mine.key, 10, 0, 3));
	EXPECT_EQ(1, notify(&self->e, mine.key, 1, 0, 1));
	EXPECT_EQ(1, notify(&self->e, mine.key, 10 + 2048, 0, 1));
	EXPECT_EQ(self->ignored + 5, evil_wait("notifications_ignored", self->ignored + 5));
	EXPECT_EQ(10, tow_slot_number(word));
	/* The number goes round. */
	EXPECT_EQ(1, notify(&self->e, mine.key, 10 + 2047, 0, 1));
	EXPECT_EQ(2057, tow_slot_await(word, 2057));
	EXPECT_EQ(1, notify(&self->e, mine.key, 4095, 0, 1));
	EXPECT_EQ(1, notify(&self->e, mine.key, 0, 0, 1));
	EXPECT_EQ(1, notify(&self->e, mine.key, 1, 0, 1));
	EXPECT_EQ(4097, tow_slot_await(word, 4097));
}

/* What comes again is not counted, here nor in the window: its provider does that, too. */
TEST_F_TIMEOUT(hostile, one_that_comes_again, 60)
{
	const void *word = self->honest.memory.at + 64;
	const uint32_t again = 16 * TOW_NOTIFY_WINDOW;
	struct resolved mine;
	__u64 slot;

	ASSERT_EQ(0, make(self, 's', 64, &slot));
	ASSERT_EQ(0, find(&self->e, 's', &mine));
	EXPECT_EQ(1, notify(&self->e, mine.key, 1, 0, 1));
	EXPECT_EQ(again, notify(&self->e, mine.key, 1, 0, again));
	EXPECT_EQ(self->ignored + again,
		  evil_wait("notifications_ignored", self->ignored + again));
	EXPECT_EQ(1, notify(&self->e, mine.key, 2, 0, 1));
	EXPECT_EQ(2, tow_slot_await(word, 2));
}

static int let_go(struct evil *e, int type, uint64_t grant)
{
	struct {
		uint32_t count, reserved;
		uint64_t grant;
	} says = { .count = 1, .grant = grant };

	return evil_say(e, type, 0, &says, sizeof(says));
}

/*
 * It has come round, by another queue pair when that had the slot, and only looks like
 * the one before it on its own.
 */
TEST_F(hostile, one_that_looks_like_the_last)
{
	const void *word = self->honest.memory.at + 64;
	static const uint32_t others[] = { 2048, 4095, 4096 };
	struct resolved mine;
	__u64 slot;
	size_t i;

	ASSERT_EQ(0, make(self, 's', 64, &slot));
	ASSERT_EQ(0, find(&self->e, 's', &mine));
	EXPECT_EQ(1, notify(&self->e, mine.key, 1, 0, 1));
	EXPECT_EQ(1, tow_slot_await(word, 1));
	ASSERT_EQ(0, let_go(&self->e, T_RELEASE, mine.grant));
	ASSERT_EQ(0, find(&self->e, 's', &mine));
	EXPECT_EQ(1, mine.address);
	for (i = 0; i < ARRAY_SIZE(others); i++) {
		EXPECT_EQ(1, notify_by(self->e.data[1], mine.key, others[i], 0, 1));
		EXPECT_EQ(others[i], tow_slot_await(word, others[i]));
	}
	ASSERT_EQ(0, let_go(&self->e, T_RELEASE, mine.grant));
	ASSERT_EQ(0, find(&self->e, 's', &mine));
	EXPECT_EQ(4096, mine.address);
	EXPECT_EQ(1, notify(&self->e, mine.key, 4097, 0, 1));
	EXPECT_EQ(4097, tow_slot_await(word, 4097));
}

/* A slot that is as wide as its queue pairs are many, and they do not agree. */
TEST_F(hostile, lanes_that_do_not_agree)
{
	const void *word = self->honest.memory.at + 64;
	struct resolved mine;
	__u64 slot;

	ASSERT_EQ(0, make(self, 's', 64, &slot));
	ASSERT_EQ(0, find_for(&self->e, 's', TOW_RIGHT_NOTIFY_BY(2), &mine));
	EXPECT_EQ(TOW_RIGHT_NOTIFY_BY(2), mine.rights);
	EXPECT_EQ(8, notify(&self->e, mine.key, 1, 1, 8));
	/* What was, and what is too far, is ignored on its own lane. */
	EXPECT_EQ(1, notify(&self->e, mine.key, 8 + 2048, 0, 1));
	EXPECT_EQ(1, notify_by(self->e.data[1], mine.key, 2048, 0, 1));
	EXPECT_EQ(1, notify_by(self->e.data[1], mine.key, 0, 0, 1));
	EXPECT_EQ(self->ignored + 3, evil_wait("notifications_ignored", self->ignored + 3));
	EXPECT_EQ(0, tow_slot_number(word));
	EXPECT_EQ(1, notify_by(self->e.data[1], mine.key, 3, 0, 1));
	EXPECT_EQ(3, tow_slot_await(word, 3));
	/* Far ahead, which is as far as the other one is. */
	EXPECT_EQ(1, notify_by(self->e.data[1], mine.key, 2000, 0, 1));
	EXPECT_EQ(8, tow_slot_await(word, 8));
	/* With the slot all that goes, and what comes again of it is nobody's. */
	ASSERT_EQ(0, let_go(&self->e, T_RELEASE, mine.grant));
	ASSERT_EQ(0, find(&self->e, 's', &mine));
	EXPECT_EQ(2000, mine.address);
	EXPECT_EQ(1, notify_by(self->e.data[1], mine.key, 2000, 0, 1));
	EXPECT_EQ(self->ignored + 4, evil_wait("notifications_ignored", self->ignored + 4));
	EXPECT_EQ(8, tow_slot_number(word));
	EXPECT_EQ(1, notify_by(self->e.data[1], mine.key, 2001, 0, 1));
	EXPECT_EQ(9, tow_slot_await(word, 9));
	/* It is as wide as that now. */
	EXPECT_EQ(1, notify(&self->e, mine.key, 2002, 0, 1));
	EXPECT_EQ(self->ignored + 5, evil_wait("notifications_ignored", self->ignored + 5));
	EXPECT_EQ(9, tow_slot_number(word));
	/* By the number that programs see it goes on, once more as wide. */
	ASSERT_EQ(0, let_go(&self->e, T_RELEASE, mine.grant));
	ASSERT_EQ(0, find_for(&self->e, 's', TOW_RIGHT_NOTIFY_BY(2), &mine));
	EXPECT_EQ(2001, mine.address);
	EXPECT_EQ(1, notify(&self->e, mine.key, 2002, 0, 1));
	EXPECT_EQ(1, notify_by(self->e.data[1], mine.key, 2002, 0, 1));
	EXPECT_EQ(10, tow_slot_await(word, 10));
}

/* Wider than its queue pairs are many: it is no request. */
TEST_F(hostile, a_slot_that_is_too_wide)
{
	struct resolved mine;
	__u64 slot;

	ASSERT_EQ(0, make(self, 's', 64, &slot));
	EXPECT_EQ(-EPROTO, find_for(&self->e, 's', TOW_RIGHT_NOTIFY_BY(3), &mine));
	EXPECT_EQ(2, evil_wait("sessions", 2));
}

/* One that does not know of widths is asked for none, and asks for none. */
TEST_F(hostile, the_version_before)
{
	const void *word = self->honest.memory.at + 64;
	struct resolved mine;
	__u64 slot, peer;

	evil_end(&self->e);
	ASSERT_EQ(2, evil_wait("sessions", 2));
	ASSERT_EQ(0, evil_begin_as(&self->e, 2, EVIL_LOWEST));
	EXPECT_EQ(EVIL_LOWEST, self->e.reply.version);
	ASSERT_EQ(0, evil_prove(&self->e));
	ASSERT_EQ(0, evil_complete(&self->e));
	peer = await_its_number(self->honest.from.fd);
	EXPECT_EQ(-EINVAL, tow_slot_ask(self->honest.from.fd, peer, "e", 2, &slot));
	ASSERT_EQ(0, make(self, 's', 64, &slot));
	ASSERT_EQ(0, find(&self->e, 's', &mine));
	EXPECT_EQ(1, notify(&self->e, mine.key, 1, 0, 1));
	EXPECT_EQ(1, tow_slot_await(word, 1));
	ASSERT_EQ(0, let_go(&self->e, T_RELEASE, mine.grant));
	EXPECT_EQ(-EPROTO, find_for(&self->e, 's', TOW_RIGHT_NOTIFY_BY(2), &mine));
	EXPECT_EQ(2, evil_wait("sessions", 2));
}

/* With a slot of its own it may notify; others' do not move, whatever their numbers. */
TEST_F(hostile, slots_of_others)
{
	__u64 slot, number = 0;
	struct resolved mine;
	uint32_t i, sent = 0;

	ASSERT_EQ(0, tow_ends_notify(&self->honest));
	number = tow_slot_await(tow_ends_word(&self->honest), 1);
	ASSERT_EQ(0, make(self, 's', 64, &slot));
	ASSERT_EQ(0, find(&self->e, 's', &mine));
	for (i = 0; i < SLOTS_TRIED; i++) {
		if (i == mine.key)
			continue;
		sent += notify(&self->e, i, 2, 0, 1);
		/* The words about what was dealt with, so that they do not pile up. */
		while (evil_hear(&self->e, 1) > 0)
			;
	}
	sent += notify(&self->e, 0xfffff, 1, 0, 1);
	EXPECT_EQ(SLOTS_TRIED, sent);
	EXPECT_EQ(self->ignored + sent, evil_wait("notifications_ignored", self->ignored + sent));
	EXPECT_EQ(number, tow_ends_number(&self->honest));
	EXPECT_EQ(0, tow_slot_number(self->honest.memory.at + 64));
	EXPECT_EQ(1, notify(&self->e, mine.key, 1, 0, 1));
	EXPECT_EQ(1, tow_slot_await(self->honest.memory.at + 64, 1));
}

/* What it has given back is not its any more. */
TEST_F(hostile, slots_that_were_its)
{
	struct tow_sqe sqe;
	struct resolved mine;
	__u64 slot, found;

	ASSERT_EQ(0, make(self, 's', 64, &slot));
	ASSERT_EQ(0, find(&self->e, 's', &mine));
	EXPECT_EQ(1, notify(&self->e, mine.key, 1, 0, 1));
	EXPECT_EQ(1, tow_slot_await(self->honest.memory.at + 64, 1));
	ASSERT_EQ(0, let_go(&self->e, T_RELEASE, mine.grant));
	ASSERT_EQ(0, tow_slot_find(self->honest.from.fd, self->honest.from.peer, "s", &found));
	EXPECT_EQ(1, notify(&self->e, mine.key, 2, 0, 1));
	EXPECT_EQ(self->ignored + 1, evil_wait("notifications_ignored", self->ignored + 1));
	EXPECT_EQ(1, tow_slot_number(self->honest.memory.at + 64));
	sqe = tow_notify(&self->honest.from, found);
	EXPECT_EQ(0, tow_rings_do(&self->honest.from.rings, &sqe));
	EXPECT_EQ(2, tow_slot_await(self->honest.memory.at + 64, 2));
	/* Nor is one that has ended. */
	ASSERT_EQ(0, tow_end_handle(self->honest.to.fd, TOW_IOCTL_UNEXPORT, slot));
	EXPECT_EQ(1, notify(&self->e, mine.key, 3, 0, 1));
	EXPECT_EQ(self->ignored + 2, evil_wait("notifications_ignored", self->ignored + 2));
	EXPECT_EQ(2, tow_slot_number(self->honest.memory.at + 64));
}

/* Before it was given a slot it has the same window, and nothing counts. */
TEST_F_TIMEOUT(hostile, without_a_slot, 60)
{
	EXPECT_EQ(1, notify(&self->e, 0, 1, 0, 1));
	EXPECT_EQ(self->ignored + 1, evil_wait("notifications_ignored", self->ignored + 1));
	EXPECT_EQ(0, tow_ends_number(&self->honest));
	EXPECT_GT(100000, notify(&self->e, 0, 2, 1, 100000));
	EXPECT_EQ(2, evil_wait("sessions", 2));
	EXPECT_EQ(0, tow_ends_number(&self->honest));
}

/*
 * It hears nothing, so it is told nothing when as many messages are on their way as
 * there may be; it goes on, and its session ends.
 */
TEST_F_TIMEOUT(hostile, more_than_the_window, 60)
{
	struct resolved mine;
	uint32_t sent;
	__u64 slot;

	ASSERT_EQ(0, make(self, 's', 64, &slot));
	ASSERT_EQ(0, find(&self->e, 's', &mine));
	sent = notify(&self->e, mine.key, 1, 1, 100000);
	EXPECT_GT(100000, sent);
	EXPECT_LE(TOW_NOTIFY_WINDOW, sent);
	TH_LOG("it sent %u", sent);
	EXPECT_EQ(2, evil_wait("sessions", 2));
}

/* ---- as who invalidates ------------------------------------------------------------------ */

/* By a queue pair: what a SEND WITH INVALIDATE does to whoever had given it the key. */
static int invalidate(int fd, uint32_t key)
{
	struct tow_hostile_message call = { .key = key };
	long long registered = evil_count("registrations");
	int ret = evil_heard(tow_test_ioctl(fd, TOW_HOSTILE_SEND, &call));

	/*
	 * Until it is registered again: what the honest ones did before would break their
	 * connection, and that of a node with itself takes along what was found.
	 */
	if (!ret && evil_wait("registrations", registered + 1) != registered + 1)
		return -ETIMEDOUT;
	return ret;
}

/* The honest ones' writes by the same key; their connection may have to be made again. */
static int await_write(const struct tow_ends *honest, char with)
{
	struct tow_user *from = (struct tow_user *)&honest->from;
	const struct tow_sqe sqe = tow_move(from, TOW_OP_WRITE, honest->own.made.handle, 0,
					    honest->remote, 0, 64);
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	int ret;

	memset(honest->own.at, with, 64);
	while ((ret = tow_rings_do(&from->rings, &sqe)) && tow_patient(&patience))
		tow_test_sleep_ms(10);
	return ret ? ret : memcmp(honest->memory.at + TOW_DATA_AT, honest->own.at, 64);
}

TEST_F_TIMEOUT(hostile, keys_of_others, 120)
{
	long long before = evil_count("invalidated_by_peers");
	struct evil member, stranger;
	struct resolved answer;
	__u64 handle;

	ASSERT_LE(0, before);
	/* In the slab that the honest ones' is in, so that it is under the same key. */
	ASSERT_EQ(0, tow_publish_for(self->honest.to.fd, self->honest.memory.made.handle, "k", 64,
				     TOW_RIGHT_READ | TOW_RIGHT_WRITE, &handle));
	ASSERT_EQ(0, find_for(&self->e, 'k', TOW_RIGHT_READ | TOW_RIGHT_WRITE, &answer));
	ASSERT_EQ(0, await_write(&self->honest, 1));
	/* By who was given it. */
	EXPECT_EQ(0, invalidate(self->e.data[0], answer.key));
	EXPECT_EQ(before + 1, evil_wait("invalidated_by_peers", before + 1));
	EXPECT_EQ(0, await_write(&self->honest, 2));
	EXPECT_EQ(2, evil_wait("sessions", 2));
	/* By who has the cluster's key only, as to soft-RoCE the protection domain is nothing. */
	ASSERT_EQ(0, evil_ready(&member, 1));
	EXPECT_EQ(0, invalidate(member.fd, answer.key));
	EXPECT_EQ(before + 2, evil_wait("invalidated_by_peers", before + 2));
	EXPECT_EQ(0, await_write(&self->honest, 3));
	evil_end(&member);
	/* By who has proved nothing. */
	ASSERT_EQ(0, evil_begin(&stranger, 1));
	EXPECT_EQ(0, invalidate(stranger.fd, answer.key));
	EXPECT_EQ(before + 3, evil_wait("invalidated_by_peers", before + 3));
	EXPECT_EQ(0, await_write(&self->honest, 4));
	evil_end(&stranger);
}

/* ---- as who is notified ------------------------------------------------------------------ */

struct finding {
	FIXTURE_DATA(hostile) *self;
	__u64 peer;
	__u64 handle;
	int ret;
};

static void *find_its_slot(void *arg)
{
	struct finding *work = arg;
	struct tow_resolve call = {
		.size = sizeof(call), .peer = work->peer, .rights = TOW_RIGHT_NOTIFY,
		.timeout_ms = TOW_WAIT_MS, .name_bytes = 1, .name = "e",
	};

	work->ret = tow_test_ioctl(work->self->honest.from.fd, TOW_IOCTL_RESOLVE, &call);
	work->handle = call.handle;
	return NULL;
}

/* It says that it has a slot, of number 77, at @count. */
static int give(struct evil *e, struct finding *work, struct resolved answer)
{
	pthread_t thread;
	int ret;

	work->peer = await_its_number(work->self->honest.from.fd);
	if (!work->peer)
		return -ENOENT;
	if (pthread_create(&thread, NULL, find_its_slot, work))
		return -EAGAIN;
	ret = evil_hear(e, EVIL_WAIT_MS);
	if (ret >= 0)
		ret = ret == T_RESOLVE ? 0 : -EPROTO;
	answer.request = evil_asked(e);
	if (!ret)
		ret = evil_say(e, T_RESOLVED, 0, &answer, sizeof(answer));
	pthread_join(thread, NULL);
	return ret;
}

static const struct resolved good_answer = {
	.grant = 1, .bytes = 8, .rights = TOW_RIGHT_NOTIFY, .total = 1, .count = 1,
	.address = 5, .key = 77, .segment_bytes = 8,
};

static uint32_t noted(struct evil *e, uint32_t count, uint32_t timeout_ms, uint32_t *immediate)
{
	struct tow_hostile_noted call = { .timeout_ms = timeout_ms, .count = count };

	if (tow_test_ioctl(e->data[0], TOW_HOSTILE_NOTED, &call))
		return 0;
	*immediate = call.immediate;
	return call.count;
}

static int dealt_with(struct evil *e, uint32_t count)
{
	uint32_t body[2] = { count, 0 };

	return evil_say(e, T_NOTIFIED, 0, body, sizeof(body));
}

static uint32_t await_ready(struct tow_rings *rings, uint32_t count)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);

	while (tow_rings_ready(rings) < count && tow_patient(&patience))
		tow_test_sleep_ms(1);
	tow_test_sleep_ms(20);
	return tow_rings_ready(rings);
}

#define WAITING	300U

TEST_F_TIMEOUT(hostile, one_that_deals_with_nothing, 60)
{
	struct tow_user *user = &self->honest.from;
	struct finding work = { .self = self };
	struct tow_channel_open channel;
	uint32_t i, immediate = 0;
	struct tow_sqe sqe;
	struct tow_cqe cqe;

	ASSERT_EQ(0, give(&self->e, &work, good_answer));
	ASSERT_EQ(0, work.ret);
	ASSERT_EQ(0, tow_channel_open(user->rings.made.fd, work.peer, 0, &channel));
	sqe = tow_notify(user, work.handle);
	/* Of another peer's queue pair than the slot's. */
	EXPECT_EQ(-EINVAL, tow_rings_do(&user->rings, &sqe));
	sqe.channel = (__u16)channel.channel;
	for (i = 0; i < WAITING; i++)
		ASSERT_TRUE(tow_rings_put(&user->rings, &sqe));
	ASSERT_EQ(WAITING, tow_rings_enter(&user->rings, 0, 0));
	/* As many as the window has, from where it said that the count is. */
	EXPECT_EQ(TOW_NOTIFY_WINDOW, noted(&self->e, TOW_NOTIFY_WINDOW, EVIL_WAIT_MS, &immediate));
	EXPECT_EQ(TOW_NOTIFY_WINDOW, noted(&self->e, WAITING, 300, &immediate));
	EXPECT_EQ(77U << NUMBER_BITS | (5 + TOW_NOTIFY_WINDOW), immediate);
	EXPECT_EQ(TOW_NOTIFY_WINDOW, await_ready(&user->rings, TOW_NOTIFY_WINDOW));
	/* Nobody else waits. */
	EXPECT_EQ(0, tow_ends_begin_wait(&self->honest, 0, 0));
	EXPECT_EQ(0, tow_ends_end_wait(&self->honest, 0));
	tow_rings_seen(&user->rings, TOW_NOTIFY_WINDOW);
	EXPECT_EQ(0, tow_ends_notify(&self->honest));
	EXPECT_EQ(1, tow_slot_await(tow_ends_word(&self->honest), 1));
	/* Each word of it lets so many go. */
	ASSERT_EQ(0, dealt_with(&self->e, 50));
	EXPECT_EQ(TOW_NOTIFY_WINDOW + 50,
		  noted(&self->e, TOW_NOTIFY_WINDOW + 50, EVIL_WAIT_MS, &immediate));
	EXPECT_EQ(50, await_ready(&user->rings, 50));
	/* Those that wait end with the slot, and have not been sent. */
	ASSERT_EQ(0, let_go(&self->e, T_REVOKE, good_answer.grant));
	EXPECT_EQ(T_REVOKED, evil_hear(&self->e, EVIL_WAIT_MS));
	EXPECT_EQ(WAITING - TOW_NOTIFY_WINDOW,
		  await_ready(&user->rings, WAITING - TOW_NOTIFY_WINDOW));
	for (i = 0; tow_rings_take(&user->rings, &cqe); i++) {
		EXPECT_EQ(i < 50 ? 0 : -ESTALE, cqe.status);
	}
	EXPECT_EQ(TOW_NOTIFY_WINDOW + 50, noted(&self->e, 0, 0, &immediate));
}

/*
 * They are late while they wait: they are told, and leave their places, though nobody has
 * told that there is room.
 */
TEST_F_TIMEOUT(hostile, deadlines_of_those_that_wait, 60)
{
	struct tow_user *user = &self->honest.from;
	struct finding work = { .self = self };
	struct tow_sqe sqe, last = { .flags = TOW_SQE_FENCE, .user_data = 1 };
	struct tow_channel_open channel;
	uint32_t i, immediate = 0;
	struct tow_cqe cqe;

	ASSERT_EQ(0, give(&self->e, &work, good_answer));
	ASSERT_EQ(0, work.ret);
	ASSERT_EQ(0, tow_channel_open(user->rings.made.fd, work.peer, 0, &channel));
	sqe = tow_notify(user, work.handle);
	sqe.channel = (__u16)channel.channel;
	for (i = 0; i < TOW_NOTIFY_WINDOW; i++)
		ASSERT_TRUE(tow_rings_put(&user->rings, &sqe));
	ASSERT_EQ(TOW_NOTIFY_WINDOW, tow_rings_enter(&user->rings, TOW_NOTIFY_WINDOW,
						     TOW_LONG_US));
	tow_rings_seen(&user->rings, TOW_NOTIFY_WINDOW);
	sqe.timeout_ms = 50;
	for (i = 0; i < WAITING; i++)
		ASSERT_TRUE(tow_rings_put(&user->rings, &sqe));
	ASSERT_EQ(WAITING, tow_rings_enter(&user->rings, WAITING, TOW_LONG_US));
	EXPECT_EQ(WAITING, await_ready(&user->rings, WAITING));
	for (i = 0; tow_rings_take(&user->rings, &cqe); i++) {
		EXPECT_EQ(-ETIMEDOUT, cqe.status);
		EXPECT_EQ(0, cqe.flags);
	}
	/* It waits for all of them. */
	EXPECT_EQ(0, tow_rings_do(&user->rings, &last));
	/* What is sent now are others. */
	ASSERT_EQ(0, dealt_with(&self->e, TOW_NOTIFY_WINDOW));
	sqe.timeout_ms = 0;
	EXPECT_EQ(0, tow_rings_do(&user->rings, &sqe));
	EXPECT_EQ(TOW_NOTIFY_WINDOW + 1,
		  noted(&self->e, TOW_NOTIFY_WINDOW + 1, EVIL_WAIT_MS, &immediate));
}

/* The connection ends while they wait. */
TEST_F_TIMEOUT(hostile, one_that_hangs_up, 60)
{
	struct tow_user *user = &self->honest.from;
	struct finding work = { .self = self };
	struct tow_channel_open channel;
	struct tow_sqe sqe;
	struct tow_cqe cqe;
	uint32_t i;

	ASSERT_EQ(0, give(&self->e, &work, good_answer));
	ASSERT_EQ(0, work.ret);
	ASSERT_EQ(0, tow_channel_open(user->rings.made.fd, work.peer, 0, &channel));
	sqe = tow_notify(user, work.handle);
	sqe.channel = (__u16)channel.channel;
	for (i = 0; i < WAITING; i++)
		ASSERT_TRUE(tow_rings_put(&user->rings, &sqe));
	ASSERT_EQ(WAITING, tow_rings_enter(&user->rings, 0, 0));
	EXPECT_EQ(TOW_NOTIFY_WINDOW, await_ready(&user->rings, TOW_NOTIFY_WINDOW));
	ASSERT_EQ(0, evil_patience(EVIL_HASTY));
	evil_hang_up(&self->e);
	EXPECT_EQ(WAITING, await_ready(&user->rings, WAITING));
	for (i = 0; tow_rings_take(&user->rings, &cqe); i++) {
		EXPECT_TRUE(i < TOW_NOTIFY_WINDOW ? !cqe.status :
			    cqe.status == -ESTALE || cqe.status == -ECONNRESET)
			TH_LOG("%u: %s", i, strerror(-cqe.status));
	}
}

/* What is no slot, where one was asked for. */
TEST_F_TIMEOUT(hostile, answers_that_are_no_slot, 120)
{
	struct resolved answers[5];
	size_t i;
	int ret;

	for (i = 0; i < ARRAY_SIZE(answers); i++)
		answers[i] = good_answer;
	answers[0].bytes = answers[0].segment_bytes = 16;
	answers[1].key = 1U << 20;
	answers[2].rights = TOW_RIGHT_WRITE;
	answers[3].total = answers[3].count = 0;
	answers[4].status = 7;
	answers[4].grant = answers[4].bytes = 0;
	for (i = 0; i < ARRAY_SIZE(answers); i++) {
		struct finding work = { .self = self };

		ret = give(&self->e, &work, answers[i]);
		ASSERT_EQ(0, ret)
			TH_LOG("%zu: %s", i, strerror(-work.ret));
		EXPECT_TRUE(work.ret == -EPROTO || work.ret == -ECONNRESET)
			TH_LOG("%zu: %s", i, strerror(-work.ret));
		evil_end(&self->e);
		EXPECT_EQ(2, evil_wait("sessions", 2));
		ASSERT_EQ(0, evil_ready(&self->e, 1));
	}
}

TEST_HARNESS_MAIN
