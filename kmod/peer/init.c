// SPDX-License-Identifier: GPL-2.0
/*
 * A device's peers as a whole: from before the first to after the last.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "device.h"
#include "tie.h"

/**
 * tow_peers_init - no peers, on no RDMA device so far
 * @peers: where to
 * @ibdev: the RDMA device
 */
void tow_peers_init(struct tow_peers *peers, struct ib_device *ibdev)
{
	mutex_init(&peers->lock);
	xa_init(&peers->by_id);
	xa_init(&peers->sessions);
	INIT_LIST_HEAD(&peers->attempts);
	init_waitqueue_head(&peers->wait);
	tow_peer_settings_init(&peers->settings, ibdev);
	tow_cluster_key_init(&peers->key);
	tow_cluster_key_init(&peers->self);
	tow_partings_init(&peers->partings);
	tow_peer_dirs_init(&peers->dirs);
}

/**
 * tow_peers_start - peers may come
 * @dev: the device, in use from now on
 *
 * That nobody can listen is logged, and not an error: connecting works.
 *
 * Return: 0; -ENOMEM; what the provider says.
 */
int tow_peers_start(struct tow_device *dev)
{
	struct tow_peers *peers = &dev->peers;
	u16 port;
	int ret;

	peers->cq_pool = tow_cq_pool_new();
	if (!peers->cq_pool)
		return -ENOMEM;
	peers->control_pd = ib_alloc_pd(dev->ibdev, 0);
	if (IS_ERR(peers->control_pd)) {
		tow_cq_pool_free(peers->cq_pool);
		return PTR_ERR(peers->control_pd);
	}
	ret = tow_cluster_key_random(&peers->self);
	if (ret)
		pr_err("%s: no peer can be authenticated: error %d (the kernel needs hmac and sha256)\n",
		       dev_name(&dev->ibdev->dev), ret);
	port = READ_ONCE(peers->settings.listen_port);
	ret = tow_listen_move(dev, port);
	if (ret)
		pr_err("%s: cannot listen on port %u: error %d (write another one to listen_port)\n",
		       dev_name(&dev->ibdev->dev), port, ret);
	return 0;
}

/**
 * tow_peers_stop_begin - nothing begins any more, and all sessions end
 * @dev: the device
 */
void tow_peers_stop_begin(struct tow_device *dev)
{
	struct tow_peers *peers = &dev->peers;
	struct tow_session *session;
	unsigned long index;
	struct tow_peer *peer;

	mutex_lock(&peers->lock);
	WRITE_ONCE(peers->stopping, true);
	xa_for_each(&peers->by_id, index, peer)
		tow_peer_drop_tie(peer, -ENODEV, true);
	xa_for_each(&peers->sessions, index, session)
		tow_session_fail(session, -ENODEV, TOW_WIRE_GOING,
				 "the device is going");
	mutex_unlock(&peers->lock);
	wake_up_all(&peers->wait);
	tow_listen_move(dev, 0);
}

/* Without the lock, as whoever waits cannot take it while it looks. */
static bool tow_peers_quiet(struct tow_peers *peers)
{
	return xa_empty(&peers->sessions) && !READ_ONCE(peers->ties) &&
	       list_empty_careful(&peers->attempts);
}

/**
 * tow_peers_stop - undo tow_peers_start(), after tow_peers_stop_begin()
 * @dev: the device
 *
 * When it returns, nothing of ours that peers need is on the RDMA device.
 */
void tow_peers_stop(struct tow_device *dev)
{
	struct tow_peers *peers = &dev->peers;
	struct tow_peer *peer;
	unsigned long index;

	wait_event(peers->wait, tow_peers_quiet(peers));
	/* Whoever made it quiet has let go of the lock. */
	mutex_lock(&peers->lock);
	mutex_unlock(&peers->lock);
	xa_for_each(&peers->by_id, index, peer) {
		mutex_lock(&peers->lock);
		tow_peer_take_out(peer);
		mutex_unlock(&peers->lock);
		tow_peer_sysfs_remove(peer);
		tow_peer_put(peer);
	}
	tow_partings_end(dev);
	ib_dealloc_pd(peers->control_pd);
	tow_cq_pool_free(peers->cq_pool);
}

/**
 * tow_peers_cleanup - undo tow_peers_init()
 * @peers: where it was
 */
void tow_peers_cleanup(struct tow_peers *peers)
{
	tow_cluster_key_cleanup(&peers->key);
	tow_cluster_key_cleanup(&peers->self);
	xa_destroy(&peers->by_id);
	xa_destroy(&peers->sessions);
}
