// SPDX-License-Identifier: GPL-2.0
/*
 * iWARP: the maintenance queue pair and its other end.
 *
 * An iWARP queue pair is ready to send once it has a TCP connection, and only
 * the connection manager can give it one.  So there are two, connected to each
 * other over one of the device's own addresses.  The active end is the one that
 * registrations are posted to: the passive one must not send first.
 *
 * The listener is open to the network for the moment that connecting takes; a
 * random cookie in the request tells our own from anybody else's, which are
 * rejected.  It is closed before the pair is used.
 *
 * Handlers only note what happened and wake the work item, which does the rest
 * and owns all identifiers.
 */
#include <crypto/algapi.h>
#include <linux/inetdevice.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <net/addrconf.h>
#include <rdma/rdma_cm.h>

#include "device.h"

#define TOW_IWARP_STEP_MS	2000
#define TOW_IWARP_COOKIE_BYTES	16

/**
 * struct tow_maint_pair - both ends and what their handlers noted
 * @maint: the maintenance queue pair this is for
 * @listener: waits for @passive, while connecting
 * @active: made by us; owns the queue pair that is used
 * @passive: made by the connection manager from our own request
 * @cookie: proves that a request is ours
 * @lock: protects the fields below, and @passive being set
 * @resolved: address, then route of @active: how many of the two are known
 * @established: how many ends are
 * @error: the first thing that went wrong
 */
struct tow_maint_pair {
	struct tow_maint	*maint;
	struct rdma_cm_id	*listener;
	struct rdma_cm_id	*active;
	struct rdma_cm_id	*passive;
	u8			cookie[TOW_IWARP_COOKIE_BYTES];
	/* protects what follows, and passive being set */
	spinlock_t		lock;
	unsigned int		resolved;
	unsigned int		established;
	int			error;
};

static void tow_iwarp_note_error(struct tow_maint_pair *pair, int error)
{
	spin_lock(&pair->lock);
	if (!pair->error)
		pair->error = error;
	spin_unlock(&pair->lock);
	/* Wakes the work item, or makes it run if the pair is in use. */
	tow_maint_broken(pair->maint, error);
}

static int tow_iwarp_error(struct tow_maint_pair *pair)
{
	int error;

	spin_lock(&pair->lock);
	error = pair->error;
	spin_unlock(&pair->lock);
	return error;
}

static void tow_iwarp_note(struct tow_maint_pair *pair, unsigned int *what)
{
	spin_lock(&pair->lock);
	(*what)++;
	spin_unlock(&pair->lock);
	wake_up(&pair->maint->wait);
}

/* A non-zero result makes the connection manager reject and destroy @id. */
static int tow_iwarp_request(struct tow_maint_pair *pair,
			     struct rdma_cm_id *id,
			     struct rdma_cm_event *event)
{
	const struct rdma_conn_param *param = &event->param.conn;
	int ret = -ECONNREFUSED;

	if (id->device != pair->maint->cq->device ||
	    param->private_data_len < TOW_IWARP_COOKIE_BYTES ||
	    crypto_memneq(param->private_data, pair->cookie,
			  TOW_IWARP_COOKIE_BYTES))
		return ret;
	spin_lock(&pair->lock);
	if (!pair->passive) {
		pair->passive = id;
		ret = 0;
	}
	spin_unlock(&pair->lock);
	wake_up(&pair->maint->wait);
	return ret;
}

static int tow_iwarp_event(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	struct tow_maint_pair *pair = id->context;

	switch (event->event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		return tow_iwarp_request(pair, id, event);
	case RDMA_CM_EVENT_ADDR_RESOLVED:
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		tow_iwarp_note(pair, &pair->resolved);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		tow_iwarp_note(pair, &pair->established);
		break;
	case RDMA_CM_EVENT_ADDR_CHANGE:
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		tow_iwarp_note_error(pair, -ECONNRESET);
		break;
	default:
		/* Errors, rejections, device removal. */
		tow_iwarp_note_error(pair, event->status < 0 ? event->status :
							       -ECONNREFUSED);
		break;
	}
	return 0;
}

/* Has @what reached @count, or is there no sense in waiting for it? */
static bool tow_iwarp_reached(struct tow_maint_pair *pair, unsigned int *what,
			      unsigned int count)
{
	bool result;

	spin_lock(&pair->lock);
	result = *what >= count || pair->error;
	spin_unlock(&pair->lock);
	return result || tow_maint_stopping(pair->maint);
}

static int tow_iwarp_wait(struct tow_maint_pair *pair, unsigned int *what,
			  unsigned int count)
{
	if (!wait_event_timeout(pair->maint->wait,
				tow_iwarp_reached(pair, what, count),
				msecs_to_jiffies(TOW_IWARP_STEP_MS)))
		return -ETIMEDOUT;
	if (tow_maint_stopping(pair->maint))
		return -ENODEV;
	return tow_iwarp_error(pair);
}

static bool tow_iwarp_have_passive(struct tow_maint_pair *pair)
{
	bool result;

	spin_lock(&pair->lock);
	result = pair->passive || pair->error;
	spin_unlock(&pair->lock);
	return result || tow_maint_stopping(pair->maint);
}

static bool tow_iwarp_address4(struct net_device *ndev,
			       struct sockaddr_storage *address)
{
	struct sockaddr_in *sin = (struct sockaddr_in *)address;
	const struct in_device *in_dev = __in_dev_get_rcu(ndev);
	const struct in_ifaddr *ifa;

	if (!in_dev)
		return false;
	ifa = rcu_dereference(in_dev->ifa_list);
	if (!ifa)
		return false;
	sin->sin_family = AF_INET;
	sin->sin_addr.s_addr = ifa->ifa_local;
	return true;
}

#if IS_ENABLED(CONFIG_IPV6)
/* Link-local addresses need a scope that not every provider hands on. */
static bool tow_iwarp_address6(struct net_device *ndev,
			       struct sockaddr_storage *address)
{
	struct sockaddr_in6 *sin = (struct sockaddr_in6 *)address;
	struct inet6_dev *in6_dev = __in6_dev_get(ndev);
	struct inet6_ifaddr *ifa;
	bool found = false;

	if (!in6_dev)
		return false;
	read_lock_bh(&in6_dev->lock);
	list_for_each_entry(ifa, &in6_dev->addr_list, if_list) {
		if (ifa->flags & (IFA_F_TENTATIVE | IFA_F_DEPRECATED) ||
		    ipv6_addr_type(&ifa->addr) & IPV6_ADDR_LINKLOCAL)
			continue;
		sin->sin6_family = AF_INET6;
		sin->sin6_addr = ifa->addr;
		found = true;
		break;
	}
	read_unlock_bh(&in6_dev->lock);
	return found;
}
#else
static bool tow_iwarp_address6(struct net_device *ndev,
			       struct sockaddr_storage *address)
{
	return false;
}
#endif

static bool tow_iwarp_is_ours(struct ib_device *ibdev, struct net_device *ndev)
{
	struct ib_device *found;
	bool result;

	found = ib_device_get_by_netdev(ndev, ibdev->ops.driver_id);
	if (!found)
		return false;
	result = found == ibdev;
	ib_device_put(found);
	return result;
}

/* An address of the device's interface; port 0. */
static int tow_iwarp_find_address(struct ib_device *ibdev,
				  struct sockaddr_storage *address)
{
	struct net_device *ndev;
	int ret = -EADDRNOTAVAIL;

	memset(address, 0, sizeof(*address));
	rcu_read_lock();
	for_each_netdev_rcu(&init_net, ndev) {
		if (!tow_iwarp_is_ours(ibdev, ndev))
			continue;
		if (tow_iwarp_address4(ndev, address) ||
		    tow_iwarp_address6(ndev, address)) {
			ret = 0;
			break;
		}
	}
	rcu_read_unlock();
	return ret;
}

static struct rdma_cm_id *tow_iwarp_new_id(struct tow_maint_pair *pair)
{
	return rdma_create_id(&init_net, tow_iwarp_event, pair, RDMA_PS_TCP,
			      IB_QPT_RC);
}

/* @address: in: port 0; out: the port that the kernel chose. */
static int tow_iwarp_listen(struct tow_maint_pair *pair,
			    struct sockaddr_storage *address)
{
	struct rdma_cm_id *id = tow_iwarp_new_id(pair);
	int ret;

	if (IS_ERR(id))
		return PTR_ERR(id);
	pair->listener = id;
	ret = rdma_bind_addr(id, (struct sockaddr *)address);
	if (ret)
		return ret;
	/* The connection manager chooses; two devices may share an address. */
	if (id->device != pair->maint->cq->device)
		return -EADDRINUSE;
	ret = rdma_listen(id, 1);
	if (ret)
		return ret;
	*address = id->route.addr.src_addr;
	return 0;
}

static int tow_iwarp_resolve(struct tow_maint_pair *pair,
			     struct sockaddr_storage *address)
{
	struct rdma_cm_id *id = tow_iwarp_new_id(pair);
	int ret;

	if (IS_ERR(id))
		return PTR_ERR(id);
	pair->active = id;
	ret = rdma_resolve_addr(id, NULL, (struct sockaddr *)address,
				TOW_IWARP_STEP_MS);
	if (!ret)
		ret = tow_iwarp_wait(pair, &pair->resolved, 1);
	if (ret)
		return ret;
	if (id->device != pair->maint->cq->device)
		return -EADDRINUSE;
	ret = rdma_resolve_route(id, TOW_IWARP_STEP_MS);
	if (!ret)
		ret = tow_iwarp_wait(pair, &pair->resolved, 2);
	return ret;
}

static int tow_iwarp_make_qp(struct tow_maint_pair *pair,
			     struct rdma_cm_id *id)
{
	struct tow_device *dev = tow_maint_device(pair->maint);
	struct ib_qp_init_attr attr;

	tow_maint_qp_attr(pair->maint, &attr);
	return rdma_create_qp(id, dev->pd, &attr);
}

static int tow_iwarp_request_connection(struct tow_maint_pair *pair)
{
	struct rdma_conn_param param = {
		.private_data		= pair->cookie,
		.private_data_len	= sizeof(pair->cookie),
		.responder_resources	= 1,
		.initiator_depth	= 1,
	};
	int ret;

	ret = tow_iwarp_make_qp(pair, pair->active);
	if (ret)
		return ret;
	return rdma_connect(pair->active, &param);
}

static int tow_iwarp_accept(struct tow_maint_pair *pair)
{
	struct rdma_conn_param param = {
		.responder_resources	= 1,
		.initiator_depth	= 1,
	};
	int ret;

	if (!wait_event_timeout(pair->maint->wait,
				tow_iwarp_have_passive(pair),
				msecs_to_jiffies(TOW_IWARP_STEP_MS)))
		return -ETIMEDOUT;
	if (tow_maint_stopping(pair->maint))
		return -ENODEV;
	ret = tow_iwarp_error(pair);
	if (ret)
		return ret;
	ret = tow_iwarp_make_qp(pair, pair->passive);
	if (ret)
		return ret;
	/* Outside of its handler an accept must keep the handler out. */
	rdma_lock_handler(pair->passive);
	ret = rdma_accept(pair->passive, &param);
	rdma_unlock_handler(pair->passive);
	return ret;
}

static void tow_iwarp_stop_listening(struct tow_maint_pair *pair)
{
	if (pair->listener)
		rdma_destroy_id(pair->listener);
	pair->listener = NULL;
}

/**
 * tow_iwarp_connect - make both ends and connect them
 * @maint: the maintenance queue pair; its CQ is there
 *
 * Only from the work item.  On success @maint's queue pair can be posted to.
 * tow_iwarp_disconnect() and tow_iwarp_destroy() undo it, after errors too.
 *
 * Return: 0; -EADDRNOTAVAIL if the device's interface has no address in the
 * initial network namespace; -EADDRINUSE if the connection manager gives its
 * address to another RDMA device; -ENODEV if the device is going; another
 * negative errno from what failed.
 */
int tow_iwarp_connect(struct tow_maint *maint)
{
	struct sockaddr_storage address;
	struct tow_maint_pair *pair;
	int ret;

	ret = tow_iwarp_find_address(maint->cq->device, &address);
	if (ret)
		return ret;
	pair = kzalloc(sizeof(*pair), GFP_KERNEL);
	if (!pair)
		return -ENOMEM;
	pair->maint = maint;
	spin_lock_init(&pair->lock);
	get_random_bytes(pair->cookie, sizeof(pair->cookie));
	maint->pair = pair;

	ret = tow_iwarp_listen(pair, &address);
	if (!ret)
		ret = tow_iwarp_resolve(pair, &address);
	if (!ret)
		ret = tow_iwarp_request_connection(pair);
	if (!ret)
		ret = tow_iwarp_accept(pair);
	if (!ret)
		ret = tow_iwarp_wait(pair, &pair->established, 2);
	if (ret)
		return ret;
	tow_iwarp_stop_listening(pair);
	maint->qp = pair->active->qp;
	return 0;
}

static void tow_iwarp_disconnect_end(struct rdma_cm_id *id)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };

	if (!id || !id->qp)
		return;
	rdma_disconnect(id);
	ib_modify_qp(id->qp, &attr, IB_QP_STATE);
}

/**
 * tow_iwarp_disconnect - let everything that was posted complete
 * @maint: the maintenance queue pair
 */
void tow_iwarp_disconnect(struct tow_maint *maint)
{
	struct tow_maint_pair *pair = maint->pair;

	/* First, so that no passive end appears behind our back. */
	tow_iwarp_stop_listening(pair);
	/* What it asked is answered, or the active end would wait for that. */
	if (pair->passive && !pair->passive->qp)
		rdma_reject(pair->passive, NULL, 0, 0);
	tow_iwarp_disconnect_end(pair->active);
	tow_iwarp_disconnect_end(pair->passive);
}

static void tow_iwarp_destroy_end(struct rdma_cm_id *id)
{
	if (!id)
		return;
	if (id->qp)
		rdma_destroy_qp(id);
	rdma_destroy_id(id);
}

/**
 * tow_iwarp_destroy - undo tow_iwarp_connect(), after tow_iwarp_disconnect()
 * @maint: the maintenance queue pair
 */
void tow_iwarp_destroy(struct tow_maint *maint)
{
	tow_iwarp_destroy_end(maint->pair->active);
	tow_iwarp_destroy_end(maint->pair->passive);
	kfree(maint->pair);
	maint->pair = NULL;
}
