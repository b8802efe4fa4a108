// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * towline perf --listen: answers to notifications.
 *
 * There are two slots: who notifies the one is answered by somebody who looks at
 * memory, the other one by somebody who sleeps.  Between measurements he sleeps in any
 * case.  Which peer is to be answered nobody says: it is the one where memory and a
 * slot of the agreed names are found.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <towline/slot.h>

#include "peers.h"
#include "perf.h"
#include "perf_notify.h"
#include "tool.h"

/* After that a measurement is over. */
#define SILENCE_US	200000U
#define SLOT_STRIDE	64U

enum { LOOK, SLEEP, WAYS };

/* One slot, with a queue of its own. */
struct way {
	struct tow_slot *slot;
	struct tow_queue *queue;
	uint64_t number;		/* so far */
	struct perf_talk talk;
	struct tow_peer *peer;		/* of the present measurement */
};

struct answerer {
	struct tow_device *dev;
	struct tow_region *memory;	/* that is listened with */
	uint64_t bytes;			/* of it */
	struct tow_region *region;	/* with the slots */
	struct way ways[WAYS];
	int signals;
};

/* ---- whom to answer ---- */

static void let_go(struct way *way)
{
	tow_remote_release(way->talk.notifies);
	tow_remote_release(way->talk.to);
	tow_peer_release(way->peer);
	way->talk.notifies = NULL;
	way->talk.to = NULL;
	way->peer = NULL;
}

/* Is it this one? */
static int try_peer(const struct answerer *answerer, struct way *way,
		    const struct tow_peer_info *info)
{
	struct perf_talk *talk = &way->talk;
	char address[ADDRESS_TEXT];
	int ret;

	if (info->state != TOW_PEER_READY)
		return -ENOENT;
	ret = tow_peer_find(answerer->dev, address_words(info->address, info->scope_id, address),
			    &way->peer);
	if (!ret)
		ret = tow_resolve(way->peer, PERF_PONG, TOW_RIGHT_NOTIFY, 0, &talk->notifies);
	if (!ret)
		ret = tow_resolve(way->peer, PERF_BACK, TOW_RIGHT_WRITE, 0, &talk->to);
	if (!ret)
		ret = tow_channel_get(way->queue, way->peer, 0, &talk->channel);
	if (!ret)
		talk->bytes = tow_remote_bytes(talk->to);
	if (!ret && talk->bytes > answerer->bytes)
		ret = -ERANGE;
	if (ret)
		let_go(way);
	return ret;
}

/* 0, or another number: nobody wants an answer. */
static int find_whom(const struct answerer *answerer, struct way *way)
{
	struct tow_peer_info info;
	struct tow_peers *peers;
	int ret = -ENOENT;

	if (tow_peer_list_get(answerer->dev, 0, &peers))
		return -ENOENT;
	for (size_t i = 0; ret && i < tow_peer_list_count(peers); i++) {
		info.size = sizeof(info);
		if (!tow_peer_list_entry(peers, i, &info))
			ret = try_peer(answerer, way, &info);
	}
	tow_peer_list_free(peers);
	return ret;
}

/* ---- answering ---- */

/* Until there is silence, or who measures has gone. */
static void answer(const struct answerer *answerer, struct way *way)
{
	way->number = tow_slot_value(way->slot);
	if (find_whom(answerer, way))
		return;
	while (!perf_say_and_hear(&way->talk, way->number + 1))
		way->number++;
	/* What comes in this moment is not passed over: the next wait ends at once. */
	let_go(way);
}

/* Deal with completions: 0 or a negative errno. */
static int go_on(const struct answerer *answerer, struct way *way)
{
	int ret;

	while ((ret = perf_take_one(&way->talk)) != -EAGAIN) {
		/* The connection has ended, or who measured had gone. */
		if (ret && ret != -ECONNRESET && !way->talk.waits)
			return ret;
		if (way->talk.waits)
			continue;
		if (!ret)
			answer(answerer, way);
		if (!way->talk.waits)
			ret = perf_begin_wait(&way->talk, way->number + 1);
		if (ret)
			return ret;
	}
	return 0;
}

static int answer_all(struct answerer *answerer)
{
	struct pollfd fds[WAYS + 1] = { { .fd = answerer->signals, .events = POLLIN } };
	int ret = 0;

	for (size_t i = 0; !ret && i < WAYS; i++) {
		fds[i + 1].fd = tow_queue_fd(answerer->ways[i].queue);
		fds[i + 1].events = POLLIN;
		ret = perf_begin_wait(&answerer->ways[i].talk, 1);
	}
	while (!ret && !fds[0].revents) {
		if (poll(fds, COUNT(fds), -1) < 0 && errno != EINTR)
			ret = -errno;
		for (size_t i = 0; !ret && i < WAYS; i++) {
			if (fds[i + 1].revents & (POLLERR | POLLHUP))
				ret = -ENODEV;
			else if (fds[i + 1].revents)
				ret = go_on(answerer, &answerer->ways[i]);
		}
	}
	return ret;
}

/* ---- what it takes ---- */

static int make_way(const struct answerer *answerer, size_t number, struct way *way)
{
	static const char *const names[WAYS] = {
		[LOOK] = PERF_PING_LOOK, [SLEEP] = PERF_PING_SLEEP,
	};
	int ret;

	ret = tow_queue_create(answerer->dev, 4, 0, &way->queue);
	if (!ret)
		ret = tow_slot_create(answerer->region, number * SLOT_STRIDE, names[number],
				      &way->slot);
	way->talk.queue = way->queue;
	way->talk.region = answerer->memory;
	way->talk.slot = way->slot;
	way->talk.sleeps = number == SLEEP;
	way->talk.silence_us = SILENCE_US;
	return ret;
}

static int make_answerer(struct answerer *answerer)
{
	int ret;

	ret = tow_region_create(answerer->dev, (uint64_t)WAYS * SLOT_STRIDE, NULL,
				&answerer->region);
	for (size_t i = 0; !ret && i < WAYS; i++)
		ret = make_way(answerer, i, &answerer->ways[i]);
	return ret;
}

static void free_answerer(struct answerer *answerer)
{
	for (size_t i = 0; i < WAYS; i++) {
		tow_slot_destroy(answerer->ways[i].slot);
		tow_queue_destroy(answerer->ways[i].queue);
	}
	tow_region_destroy(answerer->region);
	if (answerer->signals >= 0)
		close(answerer->signals);
	free(answerer);
}

int perf_answer_make(struct tow_device *dev, struct tow_region *memory, uint64_t bytes,
		     const sigset_t *ends, struct answerer **result)
{
	struct answerer *answerer = calloc(1, sizeof(*answerer));
	int ret;

	if (!answerer)
		return -ENOMEM;
	answerer->dev = dev;
	answerer->memory = memory;
	answerer->bytes = bytes;
	answerer->signals = signalfd(-1, ends, SFD_CLOEXEC);
	ret = answerer->signals < 0 ? -errno : make_answerer(answerer);
	if (ret)
		free_answerer(answerer);
	else
		*result = answerer;
	return ret;
}

int perf_answer(struct answerer *answerer)
{
	int ret = answer_all(answerer);

	free_answerer(answerer);
	return ret;
}
