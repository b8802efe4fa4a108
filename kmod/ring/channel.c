// SPDX-License-Identifier: GPL-2.0
/*
 * Channels: ways to peers that a queue's entries name by number.
 *
 * A channel is a flow (ops.h), which has the operations of entries until they
 * are posted, and is needed until they have ended.  So entries that name a
 * channel are counted when they are taken, whatever else is wrong with them,
 * and when they end.  While the two counts are the same nothing uses the flow,
 * and it may be freed.
 */
#include <linux/slab.h>

#include "core/core.h"
#include "peer.h"
#include "queue.h"
#include "session.h"

/* Published sizes: of the first version that had the structure, for ever. */
#define TOW_CHANNEL_OPEN_PUBLISHED	32
#define TOW_CHANNEL_CLOSE_PUBLISHED	16

/**
 * tow_channels_init - prepare a queue's part of this file
 * @queue: new
 */
void tow_channels_init(struct tow_queue *queue)
{
	xa_init_flags(&queue->channels, XA_FLAGS_ALLOC);
	INIT_LIST_HEAD(&queue->news);
}

/* Caller holds queue->submit, or the queue has no references. */
static void tow_channel_free(struct tow_channel *channel)
{
	struct tow_peers *peers = channel->queue->dev->peers;
	bool last;

	mutex_lock(&peers->lock);
	list_del(&channel->of_peer);
	list_del(&channel->news);
	last = !--channel->of_client->count;
	mutex_unlock(&peers->lock);
	tow_flow_cleanup(&channel->flow);
	if (last)
		kfree(channel->of_client);
	kfree(channel);
}

/*
 * Caller holds tow_peers.lock.  Another channel of the client by that queue pair.
 * Return: NULL: there is none.
 */
static struct tow_channel *tow_channel_like(const struct tow_queue *queue,
					    struct tow_peer *peer,
					    unsigned int index)
{
	struct tow_channel *channel;

	list_for_each_entry(channel, &peer->channels, of_peer) {
		if (channel->queue->charge.account == queue->charge.account &&
		    channel->flow.index == index)
			return channel;
	}
	return NULL;
}

/* Let the queues that have channels to the peer know of another one. */
static void tow_channel_publish(struct tow_channel *channel,
				struct tow_channels *fresh)
{
	struct tow_peer *peer = channel->flow.peer;
	struct tow_peers *peers = peer->dev->peers;
	struct tow_channel *like;

	mutex_lock(&peers->lock);
	like = tow_channel_like(channel->queue, peer, channel->flow.index);
	channel->of_client = like ? like->of_client : fresh;
	channel->of_client->count++;
	channel->told = peer->events;
	list_add_tail(&channel->of_peer, &peer->channels);
	mutex_unlock(&peers->lock);
	channel->flow.shared = &channel->of_client->share;
	if (like)
		kfree(fresh);
}

/**
 * tow_channels_free - undo tow_channels_init()
 * @queue: the queue, without references
 */
void tow_channels_free(struct tow_queue *queue)
{
	struct tow_channel *channel;
	unsigned long number;

	xa_for_each(&queue->channels, number, channel)
		tow_channel_free(channel);
	xa_destroy(&queue->channels);
}

/**
 * tow_channels_stop - post nothing more of a queue's channels
 * @queue: the queue, ended; the caller has a reference
 * @error: status of operations that have not ended
 */
void tow_channels_stop(struct tow_queue *queue, int error)
{
	struct tow_channel *channel;
	unsigned long number;

	mutex_lock(&queue->submit);
	xa_for_each(&queue->channels, number, channel)
		tow_ops_stop(&channel->flow, error);
	mutex_unlock(&queue->submit);
}

static int tow_channel_add(struct tow_queue *queue, struct tow_peer *peer,
			   unsigned int index, u32 *number)
{
	struct tow_channels *of_client;
	struct tow_channel *channel;
	int ret;

	channel = kzalloc(sizeof(*channel), GFP_KERNEL_ACCOUNT);
	of_client = kzalloc(sizeof(*of_client), GFP_KERNEL_ACCOUNT);
	if (!channel || !of_client) {
		kfree(channel);
		kfree(of_client);
		return -ENOMEM;
	}
	tow_share_init(&of_client->share);
	channel->queue = queue;
	INIT_LIST_HEAD(&channel->news);
	tow_flow_init(&channel->flow, peer, index, tow_reqs_end);
	tow_channel_publish(channel, of_client);
	ret = xa_alloc(&queue->channels, number, channel,
		       XA_LIMIT(0, TOW_CHANNELS_MAX - 1), GFP_KERNEL_ACCOUNT);
	if (ret) {
		tow_channel_free(channel);
		return ret == -EBUSY ? -ENOSPC : ret;
	}
	channel->number = *number;
	/* The queue may have ended before this could be found. */
	if (READ_ONCE(queue->ended))
		tow_ops_stop(&channel->flow, queue->ended);
	return 0;
}

/* Caller holds queue->submit, so the queue's channels stay. */
static int tow_channel_find(struct tow_queue *queue, struct tow_peer *peer,
			    unsigned int index, u32 *result)
{
	struct tow_peers *peers = peer->dev->peers;
	struct tow_channel *channel;
	bool found = false;

	mutex_lock(&peers->lock);
	list_for_each_entry(channel, &peer->channels, of_peer) {
		found = channel->queue == queue && channel->flow.index == index;
		if (found) {
			*result = channel->number;
			break;
		}
	}
	mutex_unlock(&peers->lock);
	return found ? 0 : tow_channel_add(queue, peer, index, result);
}

static int tow_channel_open(struct tow_queue *queue, struct tow_peer *peer,
			    struct tow_channel_open *call)
{
	struct tow_device *dev = queue->dev;
	struct tow_session *session;
	int ret = 0;

	if (call->flags)
		session = tow_peer_session(peer);
	else
		ret = tow_peer_use(peer, queue->charge.account,
				   READ_ONCE(dev->peers->settings.reconnect_timeout_ms),
				   &session);
	if (ret || !session)
		return ret ?: -ENOTCONN;
	call->qps = session->qps;
	tow_session_put(session);
	mutex_lock(&queue->submit);
	if (call->qp == TOW_CHANNEL_ANY)
		call->qp = (u32)atomic_fetch_inc(&peer->next_qp) % call->qps;
	if (!queue->client)
		ret = -EPERM;
	else if (call->qp >= call->qps)
		ret = -EINVAL;
	else
		ret = tow_channel_find(queue, peer, call->qp, &call->channel);
	mutex_unlock(&queue->submit);
	return ret;
}

/**
 * tow_queue_channel_open - CHANNEL_OPEN
 * @queue: the queue, which the caller may use
 * @user: struct tow_channel_open
 *
 * Return: 0 or a negative errno.
 */
int tow_queue_channel_open(struct tow_queue *queue, void __user *user)
{
	struct tow_channel_open call;
	struct tow_peer *peer;
	u32 user_size;
	int ret;

	BUILD_BUG_ON(sizeof(call) < TOW_CHANNEL_OPEN_PUBLISHED);

	ret = tow_call_copy_in(&call, sizeof(call), TOW_CHANNEL_OPEN_PUBLISHED, user,
			       &user_size);
	if (ret)
		return ret;
	if (call.flags & ~TOW_CHANNEL_CONNECTED || call.reserved)
		return -EINVAL;
	peer = tow_peer_find(queue->dev, call.peer);
	if (!peer)
		return -ENOENT;
	ret = tow_channel_open(queue, peer, &call);
	tow_peer_put(peer);
	/* If the program was not told the next call finds the same channel. */
	return ret ?: tow_call_copy_out(user, &call, sizeof(call), user_size);
}

/* Caller holds queue->submit.  Is an entry that names the channel busy? */
static bool tow_channel_is_busy(struct tow_queue *queue,
				const struct tow_channel *channel)
{
	bool busy;

	spin_lock(&queue->lock);
	busy = channel->ended != channel->taken;
	spin_unlock(&queue->lock);
	return busy;
}

/* Caller holds queue->submit. */
static int tow_channel_close(struct tow_queue *queue, u32 number)
{
	struct tow_channel *channel = xa_load(&queue->channels, number);

	if (!queue->client)
		return -EPERM;
	if (!channel)
		return -ENOENT;
	if (tow_channel_is_busy(queue, channel))
		return -EBUSY;
	xa_erase(&queue->channels, number);
	tow_channel_free(channel);
	return 0;
}

/**
 * tow_queue_channel_close - CHANNEL_CLOSE
 * @queue: the queue, which the caller may use
 * @user: struct tow_channel_close
 *
 * Return: 0 or a negative errno.
 */
int tow_queue_channel_close(struct tow_queue *queue, void __user *user)
{
	struct tow_channel_close call;
	u32 user_size;
	int ret;

	BUILD_BUG_ON(sizeof(call) < TOW_CHANNEL_CLOSE_PUBLISHED);

	ret = tow_call_copy_in(&call, sizeof(call), TOW_CHANNEL_CLOSE_PUBLISHED,
			       user, &user_size);
	if (ret)
		return ret;
	if (call.flags || call.reserved)
		return -EINVAL;
	mutex_lock(&queue->submit);
	ret = tow_channel_close(queue, call.channel);
	mutex_unlock(&queue->submit);
	return ret;
}
