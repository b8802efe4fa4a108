// SPDX-License-Identifier: GPL-2.0
/*
 * Listening.  The connection manager listens for all RDMA devices of the machine
 * at once, so devices with the same port share its listeners, one for IPv4 and
 * one for IPv6; a request says which device it came through.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/slab.h>
#include <net/net_namespace.h>

#include "device.h"
#include "session.h"

/* Requests that the connection manager keeps; accepting takes no time. */
#define TOW_LISTEN_BACKLOG	128

/**
 * struct tow_listener - a port that is listened on
 * @link: in tow_listeners
 * @port: which
 * @users: devices
 * @ids: for IPv4 and for IPv6; NULL: not there
 */
struct tow_listener {
	struct list_head	link;
	u16			port;
	unsigned int		users;
	struct rdma_cm_id	*ids[2];
};

/* Protects tow_listeners and all of them, and tow_peers.listening. */
static DEFINE_MUTEX(tow_listen_lock);
static LIST_HEAD(tow_listeners);

static int tow_listen_request(struct rdma_cm_id *id,
			      struct rdma_cm_event *event)
{
	struct tow_device *dev = tow_device_find(id->device);
	int ret;

	if (!dev)
		return -ECONNREFUSED;
	if (tow_device_enter(dev)) {
		ret = tow_accept_request(dev, id, &event->param.conn);
		tow_device_leave(dev);
	} else {
		ret = -ENODEV;
	}
	tow_device_put(dev);
	return ret;
}

/* The listeners' handler, and that of the connections that they led to. */
static int tow_listen_event(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		return tow_listen_request(id, event);
	/* A listener hears nothing else that matters; its context is NULL. */
	if (!id->context)
		return 0;
	return tow_link_event(id, event);
}

static struct rdma_cm_id *tow_listen_on(struct sockaddr *address)
{
	struct rdma_cm_id *id;
	int ret;

	id = rdma_create_id(&init_net, tow_listen_event, NULL, RDMA_PS_TCP,
			    IB_QPT_RC);
	if (IS_ERR(id))
		return id;
	/* The other family has a listener of its own. */
	ret = rdma_set_afonly(id, 1);
	if (!ret)
		ret = rdma_bind_addr(id, address);
	if (!ret)
		ret = rdma_listen(id, TOW_LISTEN_BACKLOG);
	if (ret) {
		rdma_destroy_id(id);
		return ERR_PTR(ret);
	}
	return id;
}

static void tow_listener_free(struct tow_listener *listener)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(listener->ids); i++) {
		if (listener->ids[i])
			rdma_destroy_id(listener->ids[i]);
	}
	kfree(listener);
}

static struct tow_listener *tow_listener_new(u16 port)
{
	struct sockaddr_in in = {
		.sin_family	= AF_INET,
		.sin_port	= htons(port),
	};
	struct sockaddr_in6 in6 = {
		.sin6_family	= AF_INET6,
		.sin6_port	= htons(port),
	};
	struct sockaddr *addresses[] = { (void *)&in, (void *)&in6 };
	struct tow_listener *listener;
	struct rdma_cm_id *id;
	int ret = 0;
	int i;

	listener = kzalloc(sizeof(*listener), GFP_KERNEL);
	if (!listener)
		return ERR_PTR(-ENOMEM);
	listener->port = port;
	for (i = 0; i < ARRAY_SIZE(addresses); i++) {
		id = tow_listen_on(addresses[i]);
		if (!IS_ERR(id))
			listener->ids[i] = id;
		else if (ret != -EADDRINUSE)
			ret = PTR_ERR(id);
	}
	/* One family is enough if the machine has no other, or the device. */
	if (ret == -EADDRINUSE || (!listener->ids[0] && !listener->ids[1])) {
		tow_listener_free(listener);
		return ERR_PTR(ret);
	}
	return listener;
}

static struct tow_listener *tow_listener_find(u16 port)
{
	struct tow_listener *listener;

	list_for_each_entry(listener, &tow_listeners, link) {
		if (listener->port == port)
			return listener;
	}
	return NULL;
}

static int tow_listener_get(u16 port)
{
	struct tow_listener *listener = tow_listener_find(port);

	if (!listener) {
		listener = tow_listener_new(port);
		if (IS_ERR(listener))
			return PTR_ERR(listener);
		list_add(&listener->link, &tow_listeners);
	}
	listener->users++;
	return 0;
}

static void tow_listener_put(u16 port)
{
	struct tow_listener *listener = tow_listener_find(port);

	if (!listener || --listener->users)
		return;
	list_del(&listener->link);
	tow_listener_free(listener);
}

/**
 * tow_listen_move - listen on another port
 * @dev: the device
 * @port: the port; 0: on none
 *
 * Return: 0; -EADDRINUSE: somebody else listens there; -ENODEV: the device is
 * going; another negative errno from the connection manager.  After an error it
 * listens where it did before.
 */
int tow_listen_move(struct tow_device *dev, u16 port)
{
	struct tow_peers *peers = &dev->peers;
	int ret = 0;

	mutex_lock(&tow_listen_lock);
	if (port == peers->listening)
		goto out_unlock;
	if (port && READ_ONCE(peers->stopping)) {
		ret = -ENODEV;
		goto out_unlock;
	}
	if (port)
		ret = tow_listener_get(port);
	if (ret)
		goto out_unlock;
	if (peers->listening)
		tow_listener_put(peers->listening);
	peers->listening = port;
	if (port)
		WRITE_ONCE(peers->settings.listen_port, port);
out_unlock:
	mutex_unlock(&tow_listen_lock);
	return ret;
}
