// SPDX-License-Identifier: GPL-2.0
/*
 * Jobs that ask one peer for names have turns: whoever asks for one does not wait until
 * another one's thousand have been asked for.  The peer is played (tow_hostile.ko), so what
 * is asked for, and in which order, is seen.  (To be run by tests/lab/evil-nodes.)
 */
#include "tow_evil_again.h"
#include "tow_evil_range.h"
#include "tow_region.h"

#define POOL_BYTES	(4 * TOW_SLAB)
#define NAMES		1000U
/* Several, as one may happen to be counted as the same job as the one with many. */
#define OTHERS		3U
/*
 * What is on its way before anybody else asks: as many messages as the peer has receives
 * for, and some more.  Thirteen names of one letter are in one.
 */
#define MESSAGES	24U
#define ALL_MESSAGES	(NAMES / 13)

FIXTURE(turns)
{
	struct evil_host host;
	struct evil e;
	__u64 peer;
};

FIXTURE_SETUP(turns)
{
	ASSERT_EQ(0, evil_host_start(&self->host, &self->e, POOL_BYTES));
	self->peer = self->host.work.call.peer;
}

FIXTURE_TEARDOWN(turns)
{
	EXPECT_EQ(0, evil_host_disconnect(self->host.fd, self->peer));
	evil_end(&self->e);
	EXPECT_EQ(0, evil_wait("sessions", 0));
	close(self->host.fd);
	close(self->host.listener);
}

/* A client of a job of its own, and a queue. */
struct asker {
	int fd;
	struct tow_rings rings;
};

static int open_asker(struct asker *asker, __u8 job)
{
	int ret;

	memset(asker, 0, sizeof(*asker));
	asker->fd = tow_test_open(O_RDWR);
	if (asker->fd < 0)
		return asker->fd;
	ret = tow_enter_job(asker->fd, job);
	if (ret)
		return ret;
	asker->rings.made = (struct tow_queue_create) {
		.size = sizeof(asker->rings.made), .sq_entries = 1, .cq_entries = 1024, .fd = -1,
		.flags = TOW_QUEUE_RESULTS,
	};
	return tow_rings_made(&asker->rings, tow_test_ioctl(asker->fd, TOW_IOCTL_QUEUE_CREATE,
							    &asker->rings.made));
}

static void close_asker(struct asker *asker)
{
	tow_rings_end(&asker->rings);
	close(asker->fd);
}

/* A slot, as those are not shared: each is a request of its own. */
static int ask(const struct asker *asker, __u64 peer, const char *name, __u32 count)
{
	static struct tow_resolve_request requests[NAMES];
	struct tow_queue_resolve call = {
		.size = sizeof(call), .requests = (uintptr_t)requests, .count = count,
		.request_size = sizeof(requests[0]),
	};
	int ret;

	for (__u32 i = 0; i < count; i++)
		requests[i] = (struct tow_resolve_request) {
			.user_data = i, .peer = peer, .name = (uintptr_t)name, .name_bytes = 1,
			.rights = TOW_RIGHT_NOTIFY, .timeout_ms = TOW_WAIT_FOREVER,
		};
	ret = ioctl(asker->rings.made.fd, TOW_IOCTL_QUEUE_RESOLVE, &call);
	return ret < 0 ? -errno : ret;
}

/* Is one of the names of the message that came last this letter?  @count: how many it has. */
static bool has_name(const struct evil *e, char letter, uint32_t *count)
{
	struct evil_resolve asked;
	bool has = false;

	*count = (e->last.bytes - EVIL_HEADER) / (uint32_t)sizeof(asked);
	for (uint32_t i = 0; i < *count; i++) {
		memcpy(&asked, e->last.data + EVIL_HEADER + i * sizeof(asked), sizeof(asked));
		has |= asked.name[0] == letter;
	}
	return has;
}

/* The next message is RESOLVE: 0 or a negative errno.  The node is told that it was heard. */
static int hear_names(struct evil *e)
{
	int type = evil_hear(e, EVIL_WAIT_MS);

	if (type != T_RESOLVE)
		return type < 0 ? type : -EPROTO;
	return e->heard % 4 ? 0 : evil_say(e, T_HEARTBEAT, 0, NULL, 0);
}

TEST_F_TIMEOUT(turns, one_among_a_thousand, 60)
{
	struct asker many, others[OTHERS];
	uint32_t messages = 0, names = 0, count;
	bool heard;

	ASSERT_EQ(0, open_asker(&many, 1));
	for (__u8 i = 0; i < OTHERS; i++)
		ASSERT_EQ(0, open_asker(&others[i], (__u8)(2 + i)));
	ASSERT_EQ((int)NAMES, ask(&many, self->peer, "m", NAMES));
	/* As many as may be are on their way. */
	ASSERT_EQ(0, hear_names(&self->e));
	EXPECT_FALSE(has_name(&self->e, 'o', &count));
	for (__u32 i = 0; i < OTHERS; i++)
		ASSERT_EQ(1, ask(&others[i], self->peer, "o", 1));
	do {
		ASSERT_EQ(0, hear_names(&self->e));
		heard = has_name(&self->e, 'o', &count);
		names += count;
	} while (!heard && ++messages < ALL_MESSAGES);
	EXPECT_GT(MESSAGES, messages);
	EXPECT_GT(NAMES / 2, names);
	for (__u32 i = 0; i < OTHERS; i++)
		close_asker(&others[i]);
	close_asker(&many);
}

/* A queue that ends takes all its names back, many by one message. */
TEST_F_TIMEOUT(turns, a_thousand_are_taken_back, 60)
{
	uint32_t names = 0, messages = 0, count;
	struct asker many;
	int type;

	ASSERT_EQ(0, open_asker(&many, 1));
	ASSERT_EQ((int)NAMES, ask(&many, self->peer, "m", NAMES));
	do {
		ASSERT_EQ(0, hear_names(&self->e));
		has_name(&self->e, 'm', &count);
		names += count;
	} while (names < NAMES);
	EXPECT_EQ(NAMES, names);
	close_asker(&many);
	for (names = 0; names < NAMES; messages++) {
		type = evil_hear(&self->e, EVIL_WAIT_MS);
		ASSERT_EQ(T_CANCEL, type);
		names += (self->e.last.bytes - EVIL_HEADER) / 4;
		if (messages % 4 == 3)
			ASSERT_EQ(0, evil_say(&self->e, T_HEARTBEAT, 0, NULL, 0));
	}
	EXPECT_EQ(NAMES, names);
	/* The first may come when few have been taken back. */
	EXPECT_GT(NAMES / 4, messages);
}

TEST_HARNESS_MAIN
