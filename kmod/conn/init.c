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

static void tow_pads_free(struct ib_device *ibdev, struct tow_pads *pads)
{
	if (!ib_dma_mapping_error(ibdev, pads->out))
		ib_dma_unmap_single(ibdev, pads->out, TOW_WIRE_PROOF_BYTES,
				    DMA_TO_DEVICE);
	if (!ib_dma_mapping_error(ibdev, pads->in))
		ib_dma_unmap_single(ibdev, pads->in, TOW_WIRE_PROOF_BYTES,
				    DMA_FROM_DEVICE);
	kfree(pads->memory);
}

/* Return: 0 or -ENOMEM. */
static int tow_pads_make(struct ib_device *ibdev, struct tow_pads *pads)
{
	pads->memory = kzalloc(2 * TOW_WIRE_PROOF_BYTES, GFP_KERNEL);
	if (!pads->memory)
		return -ENOMEM;
	pads->out = ib_dma_map_single(ibdev, pads->memory, TOW_WIRE_PROOF_BYTES,
				      DMA_TO_DEVICE);
	pads->in = ib_dma_map_single(ibdev, pads->memory + TOW_WIRE_PROOF_BYTES,
				     TOW_WIRE_PROOF_BYTES, DMA_FROM_DEVICE);
	if (!ib_dma_mapping_error(ibdev, pads->out) &&
	    !ib_dma_mapping_error(ibdev, pads->in))
		return 0;
	tow_pads_free(ibdev, pads);
	return -ENOMEM;
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
	ret = tow_pads_make(dev->ibdev, &peers->pads);
	if (ret)
		goto err_free_pool;
	peers->control_pd = ib_alloc_pd(dev->ibdev, 0);
	if (IS_ERR(peers->control_pd)) {
		ret = PTR_ERR(peers->control_pd);
		goto err_free_pads;
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

err_free_pads:
	tow_pads_free(dev->ibdev, &peers->pads);
err_free_pool:
	tow_cq_pool_free(peers->cq_pool);
	return ret;
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
	tow_pads_free(dev->ibdev, &peers->pads);
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
