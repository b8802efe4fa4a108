// SPDX-License-Identifier: GPL-2.0
/*
 * Events of peers are reported to queues that have channels to them.
 *
 * No event is stored.  A peer counts what has happened to it, each channel has
 * the counts that were reported to its program, and a difference is an event:
 * what happens twice before the program asks is reported once, and nothing is
 * missed.
 */
#include <linux/string.h>

#include "assoc.h"
#include "core/core.h"
#include "internal.h"
#include "peer.h"
#include "queue.h"

/* Published size: of the first version that had the structure, for ever. */
#define TOW_QUEUE_EVENT_PUBLISHED	88

/* ---- events --------------------------------------------------------------- */

/* Something has happened to a peer.  Caller holds tow_peers.lock. */
static void tow_event_announce(struct tow_peer *peer)
{
	struct tow_channel *channel;

	list_for_each_entry(channel, &peer->channels, of_peer) {
		if (list_empty(&channel->news))
			list_add_tail(&channel->news, &channel->queue->news);
		tow_queue_wake(channel->queue, TOW_WAKE_POLL);
	}
}

const struct tow_assoc_client tow_ring_client = {
	.event	= tow_event_announce,
};

/* ---- reports -------------------------------------------------------------- */

static u32 tow_channel_news(const struct tow_channel *channel)
{
	const struct tow_peer_events *now = &channel->flow.peer->events;
	u32 what = 0;

	if (now->broken != channel->told.broken)
		what |= TOW_QUEUE_EVENT_BROKEN;
	if (now->back != channel->told.back)
		what |= TOW_QUEUE_EVENT_BACK;
	if (now->lost != channel->told.lost)
		what |= TOW_QUEUE_EVENT_LOST;
	return what;
}

static void tow_event_describe(const struct tow_peer *peer, u32 what,
			       struct tow_queue_event *event)
{
	const struct tow_address address = tow_peer_address(peer);

	event->what = what;
	event->peer = peer->id;
	event->error = peer->events.error;
	event->broken_ns = peer->events.broken_ns;
	event->lost_ns = peer->events.lost_ns;
	event->state = peer->state;
	event->scope_id = address.scope_id;
	event->port = address.port;
	memcpy(event->address, &address.in6, sizeof(event->address));
	memcpy(event->incarnation, peer->incarnation,
	       sizeof(event->incarnation));
}

/*
 * Return: a peer that has an event for the queue, with a reference for the
 * caller; NULL: there is none.
 */
static struct tow_peer *tow_queue_find_event(struct tow_queue *queue,
					     struct tow_queue_event *event,
					     struct tow_peer_events *now)
{
	struct tow_peers *peers = queue->dev->peers;
	struct tow_channel *channel;
	struct tow_peer *peer = NULL;

	mutex_lock(&peers->lock);
	channel = list_first_entry_or_null(&queue->news, struct tow_channel,
					   news);
	if (channel) {
		peer = channel->flow.peer;
		tow_peer_get(peer);
		tow_event_describe(peer, tow_channel_news(channel), event);
		*now = peer->events;
	}
	mutex_unlock(&peers->lock);
	return peer;
}

/* Another call may have reported more meanwhile. */
static void tow_event_delivered(u32 *told, u32 now)
{
	if ((s32)(now - *told) > 0)
		*told = now;
}

/**
 * tow_queue_has_event - is there an event to report?
 * @queue: the queue
 *
 * Return: false: there is not.
 */
bool tow_queue_has_event(const struct tow_queue *queue)
{
	return !list_empty_careful(&queue->news);
}

/* The program knows the peer's events up to @now. */
static void tow_queue_event_delivered(struct tow_queue *queue, const struct tow_peer *peer,
				      const struct tow_peer_events *now)
{
	struct tow_peers *peers = queue->dev->peers;
	struct tow_channel *channel;

	mutex_lock(&peers->lock);
	list_for_each_entry(channel, &peer->channels, of_peer) {
		if (channel->queue != queue)
			continue;
		tow_event_delivered(&channel->told.broken, now->broken);
		tow_event_delivered(&channel->told.back, now->back);
		tow_event_delivered(&channel->told.lost, now->lost);
		if (!tow_channel_news(channel))
			list_del_init(&channel->news);
	}
	mutex_unlock(&peers->lock);
}

/**
 * tow_queue_event - QUEUE_EVENT
 * @queue: the queue, which the caller may use
 * @user: struct tow_queue_event
 *
 * Return: 0 or a negative errno.
 */
int tow_queue_event(struct tow_queue *queue, void __user *user)
{
	struct tow_queue_event call;
	struct tow_peer_events now;
	struct tow_peer *peer;
	u32 user_size;
	int ret;

	BUILD_BUG_ON(sizeof(call) < TOW_QUEUE_EVENT_PUBLISHED);

	ret = tow_call_copy_in(&call, sizeof(call), TOW_QUEUE_EVENT_PUBLISHED,
			       user, &user_size);
	if (ret)
		return ret;
	if (call.flags)
		return -EINVAL;
	memset(&call, 0, sizeof(call));
	peer = tow_queue_find_event(queue, &call, &now);
	ret = tow_call_copy_out(user, &call, sizeof(call), user_size);
	if (!peer)
		return ret;
	/* An event that the program did not get is reported the next time. */
	if (!ret)
		tow_queue_event_delivered(queue, peer, &now);
	tow_peer_put(peer);
	return ret;
}
