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
	xa_init_flags(&queue->flows, XA_FLAGS_ALLOC);
}

static void tow_channel_free(struct tow_flow *flow)
{
	tow_flow_cleanup(flow);
	kfree(flow);
}

/**
 * tow_channels_free - undo tow_channels_init()
 * @queue: the queue, without references
 */
void tow_channels_free(struct tow_queue *queue)
{
	struct tow_flow *flow;
	unsigned long number;

	xa_for_each(&queue->flows, number, flow)
		tow_channel_free(flow);
	xa_destroy(&queue->flows);
}

/**
 * tow_channels_stop - post nothing more of a queue's channels
 * @queue: the queue, ended; the caller has a reference
 * @error: status of operations that have not ended
 */
void tow_channels_stop(struct tow_queue *queue, int error)
{
	struct tow_flow *flow;
	unsigned long number;

	mutex_lock(&queue->submit);
	xa_for_each(&queue->flows, number, flow)
		tow_ops_stop(flow, error);
	mutex_unlock(&queue->submit);
}

static int tow_queue_add_flow(struct tow_queue *queue, struct tow_peer *peer,
			      unsigned int index, u32 *number)
{
	struct tow_peers *peers = peer->dev->peers;
	struct tow_flow *flow;
	int ret;

	flow = kzalloc(sizeof(*flow), GFP_KERNEL_ACCOUNT);
	if (!flow)
		return -ENOMEM;
	tow_flow_init(flow, peer, index, tow_reqs_end);
	/* The client may have to wait for its memory, but nobody else. */
	lockdep_assert_not_held(&peers->lock);
	ret = xa_alloc(&queue->flows, number, NULL,
		       XA_LIMIT(0, TOW_CHANNELS_MAX - 1), GFP_KERNEL_ACCOUNT);
	if (ret) {
		tow_channel_free(flow);
		return ret == -EBUSY ? -ENOSPC : ret;
	}
	mutex_lock(&peers->lock);
	flow->told = peer->events;
	xa_store(&queue->flows, *number, flow, 0);
	mutex_unlock(&peers->lock);
	/* The queue may have ended before this flow could be found. */
	if (READ_ONCE(queue->ended))
		tow_ops_stop(flow, queue->ended);
	return 0;
}

static int tow_queue_find_flow(struct tow_queue *queue, struct tow_peer *peer,
			       unsigned int index, u32 *result)
{
	struct tow_flow *flow;
	unsigned long number;

	xa_for_each(&queue->flows, number, flow) {
		if (flow->peer == peer && flow->index == index) {
			*result = number;
			return 0;
		}
	}
	return tow_queue_add_flow(queue, peer, index, result);
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
		call->qp = queue->next_qp++ % call->qps;
	if (!queue->client)
		ret = -EPERM;
	else if (call->qp >= call->qps)
		ret = -EINVAL;
	else
		ret = tow_queue_find_flow(queue, peer, call->qp,
					  &call->channel);
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
				const struct tow_flow *flow)
{
	bool busy;

	spin_lock(&queue->lock);
	busy = flow->ended != flow->taken;
	spin_unlock(&queue->lock);
	return busy;
}

/* Caller holds queue->submit.  Return: 0: the flow is the caller's. */
static int tow_channel_take_away(struct tow_queue *queue, u32 number,
				 struct tow_flow **result)
{
	struct tow_peers *peers = queue->dev->peers;
	struct tow_flow *flow = xa_load(&queue->flows, number);

	if (!queue->client)
		return -EPERM;
	if (!flow)
		return -ENOENT;
	if (tow_channel_is_busy(queue, flow))
		return -EBUSY;
	mutex_lock(&peers->lock);
	xa_erase(&queue->flows, number);
	tow_event_recount(queue);
	mutex_unlock(&peers->lock);
	*result = flow;
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
	struct tow_flow *flow;
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
	ret = tow_channel_take_away(queue, call.channel, &flow);
	mutex_unlock(&queue->submit);
	if (!ret)
		tow_channel_free(flow);
	return ret;
}
