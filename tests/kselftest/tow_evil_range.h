/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A peer (tow_hostile.ko) that has whatever is asked for, of which nothing can be
 * reached.
 */
#ifndef TOW_EVIL_RANGE_H
#define TOW_EVIL_RANGE_H

#include <pthread.h>

#include "tow_evil.h"
#include "tow_queue.h"

#define EVIL_BYTES	4096U
#define EVIL_WRONG_KEY	0x00abcd00U

/* What it answers to RESOLVE. */
struct evil_resolved {
	uint64_t grant, bytes;
	uint32_t status, rights, total, first, count, request;
	uint64_t address;
	uint32_t key, segment_bytes;
};

_Static_assert(sizeof(struct evil_resolved) == 56, "an answer with one segment");

/* What a client has of it. */
struct evil_range {
	struct evil e;
	__u64 peer;
	__u64 remote;			/* a range of it, that there is not */
	__u16 channel;
};

/* Whatever is asked for, it is there. */
static inline void *evil_answer_any(void *arg)
{
	struct evil *e = arg;
	struct evil_resolved says = {
		.grant = 77, .bytes = EVIL_BYTES, .rights = TOW_ALL_RIGHTS, .total = 1, .count = 1,
		.address = 0x10000, .key = EVIL_WRONG_KEY, .segment_bytes = EVIL_BYTES,
	};
	int ret = evil_hear(e, EVIL_WAIT_MS);

	if (ret != T_RESOLVE)
		return (void *)(intptr_t)(ret < 0 ? ret : -EPROTO);
	says.request = evil_asked(e);
	says.grant += says.request;
	return (void *)(intptr_t)evil_say(e, T_RESOLVED, 0, &says, sizeof(says));
}

static inline int evil_range_find(struct evil_range *range, int client)
{
	pthread_t thread;
	void *said;
	int ret;

	if (pthread_create(&thread, NULL, evil_answer_any, &range->e))
		return -EAGAIN;
	ret = tow_find_for(client, range->peer, "x", TOW_ALL_RIGHTS, &range->remote);
	pthread_join(thread, &said);
	return ret ? ret : (int)(intptr_t)said;
}

/* Its number here. */
static inline __u64 evil_number(int fd)
{
	struct tow_peer_info entries[16];
	struct tow_peer_list call = {
		.size = sizeof(call), .entries = (uintptr_t)entries,
		.entry_size = sizeof(entries[0]), .count = 16,
	};
	__u32 i;

	if (tow_test_ioctl(fd, TOW_IOCTL_PEER_LIST, &call))
		return 0;
	for (i = 0; i < call.count; i++)
		if (!memcmp(entries[i].incarnation, EVIL_LIFE, sizeof(EVIL_LIFE)))
			return entries[i].peer;
	return 0;
}

/*
 * It connects, and something of it is found.  Not before it is READY: who is not is
 * looked for at his address, which is ours.
 */
static inline int evil_range_make(struct evil_range *range, const struct tow_user *user)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	struct tow_channel_open channel = { .size = sizeof(channel) };
	struct tow_peer_info info = {};
	int ret = evil_ready(&range->e, 1);

	if (ret)
		return ret;
	range->peer = evil_number(user->fd);
	if (!range->peer)
		return -ENOENT;
	do {
		ret = tow_peer_look(user->fd, range->peer, &info);
	} while (!ret && info.state != TOW_PEER_READY && tow_patient(&patience));
	if (!ret)
		ret = evil_range_find(range, user->fd);
	if (!ret)
		ret = tow_channel_open(user->rings.made.fd, range->peer, 0, &channel);
	range->channel = (__u16)channel.channel;
	return ret;
}

#endif /* TOW_EVIL_RANGE_H */
