// SPDX-License-Identifier: GPL-2.0
/*
 * A device's resources for connections: settings, keys, the control protection
 * domain, completion queues, the port to listen on.  They exist from
 * tow_conn_start() to tow_conn_stop(), which is called when no session is left.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "core/core.h"
#include "session.h"

/**
 * tow_conn_init - initialise settings, keys and partings
 * @peers: the device's peers
 * @ibdev: the RDMA device
 */
void tow_conn_init(struct tow_peers *peers, struct ib_device *ibdev)
{
	tow_conn_settings_init(&peers->settings, ibdev);
	tow_cluster_key_init(&peers->key);
	tow_cluster_key_init(&peers->self);
	tow_partings_init(&peers->partings);
}

/**
 * tow_conn_start - connections may be made
 * @dev: the device, in use from now on
 *
 * Failures to listen or to make the loopback peer's key are logged, and are no
 * error.
 *
 * Return: 0; -ENOMEM; the provider's error.
 */
int tow_conn_start(struct tow_device *dev)
{
	struct tow_peers *peers = dev->peers;
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
 * tow_conn_stop - undo tow_conn_start()
 * @dev: the device, without sessions; it listens on no port any more
 *
 * On return no connection, protection domain or completion queue of ours is on
 * the RDMA device.
 */
void tow_conn_stop(struct tow_device *dev)
{
	struct tow_peers *peers = dev->peers;

	tow_partings_end(dev);
	ib_dealloc_pd(peers->control_pd);
	tow_cq_pool_free(peers->cq_pool);
}

/**
 * tow_conn_cleanup - undo tow_conn_init()
 * @peers: the device's peers
 */
void tow_conn_cleanup(struct tow_peers *peers)
{
	tow_cluster_key_cleanup(&peers->key);
	tow_cluster_key_cleanup(&peers->self);
}
