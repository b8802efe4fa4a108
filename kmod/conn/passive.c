// SPDX-License-Identifier: GPL-2.0
/*
 * The responder: listening, and accepting connections that other nodes make.
 *
 * Listening
 *
 * The connection manager listens for all RDMA devices of the machine at once,
 * so devices with the same port share its listeners, one for IPv4 and one for
 * IPv6.  A request's identifier names the device that it came through.
 *
 * Accepting
 *
 * A request for a control queue pair does not prove which node sent it.  So all
 * it can do is take one of a bounded number of half-open sessions, which end
 * soon.  The proof is in the first message, AUTH, which peer/ handles.
 *
 * All of this runs in the connection manager's handler of the new connection.
 */
#include <linux/netdevice.h>
#include <linux/random.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <net/net_namespace.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_cm.h>

#include "core/address.h"
#include "core/core.h"
#include "peer.h"
#include "session.h"

/* Requests that the connection manager keeps.  Few wait: accepting is fast. */
#define TOW_LISTEN_BACKLOG	128

/**
 * struct tow_listener - a port that devices listen on
 * @link: in tow_listeners; this and all else is under tow_listen_lock
 * @port: the port
 * @users: devices that listen on it; freed with the last
 * @ids: identifiers for IPv4 and for IPv6, owned; NULL: none
 */
struct tow_listener {
	struct list_head	link;
	u16			port;
	unsigned int		users;
	struct rdma_cm_id	*ids[2];
};

/* ---- accepting ------------------------------------------------------------ */

/* Reject a request.  The other end gets the reason of @error. */
static void tow_accept_reject(struct rdma_cm_id *id, int error)
{
	struct tow_wire_reject reject = {
		.magic		= cpu_to_le32(TOW_WIRE_MAGIC),
		.version	= TOW_WIRE_VERSION,
		.lowest		= TOW_WIRE_LOWEST,
		.reason		= cpu_to_le16(error == -EPROTO ?
					      TOW_WIRE_MALFORMED :
					      tow_session_reason_of(error)),
	};

	rdma_reject(id, &reject, sizeof(reject),
		    IB_CM_REJ_CONSUMER_DEFINED);
}

/* Is it a request of towline's, of a version that we speak? */
static int tow_accept_check(const struct tow_wire_request *request, u8 bytes)
{
	if (bytes < sizeof(*request) ||
	    request->magic != cpu_to_le32(TOW_WIRE_MAGIC))
		return -EPROTO;
	if (request->lowest > request->version)
		return -EPROTO;
	if (request->version < TOW_WIRE_LOWEST ||
	    request->lowest > TOW_WIRE_VERSION)
		return -EPROTONOSUPPORT;
	return 0;
}

static bool tow_accept_is_us(struct tow_device *dev,
			     const struct tow_wire_request *request)
{
	return !memcmp(request->incarnation, dev->incarnation,
		       sizeof(dev->incarnation));
}

static int tow_accept_check_control(struct tow_device *dev,
				    const struct tow_wire_request *request)
{
	u32 features = le32_to_cpu(request->features);

	/* Of a later version there may be others. */
	if (request->version > TOW_WIRE_VERSION)
		features &= TOW_WIRE_AUTHENTICATED;
	if (!request->qps || request->qps > TOW_QPS_MAX ||
	    request->mtu < IB_MTU_256 || request->mtu > IB_MTU_4096 ||
	    features & ~TOW_WIRE_AUTHENTICATED)
		return -EPROTO;
	/* Loopback uses tow_peers.self, and needs no cluster key. */
	if (!features && !tow_accept_is_us(dev, request) &&
	    !READ_ONCE(dev->peers->settings.allow_unauthenticated))
		return -ENOKEY;
	return 0;
}

/* The request's queue pair must be the one that the transport connects. */
static bool tow_accept_qp_num_fits(const struct rdma_conn_param *param,
				   __le32 qp_num)
{
	return param->qp_num == le32_to_cpu(qp_num);
}

/*
 * The initiator's address is what it says.  On RoCE it is the GID, too, to which all goes
 * that we send: only who is there, as far as the network can tell, can go on.
 */
static bool tow_accept_address_fits(const struct rdma_cm_id *id)
{
	union ib_gid gid;

	if (!rdma_protocol_roce(id->device, id->port_num))
		return true;
	rdma_ip2gid((struct sockaddr *)&id->route.addr.dst_addr, &gid);
	return !memcmp(&gid, &id->route.path_rec->dgid, sizeof(gid));
}

/*
 * The largest packet that our end takes.  On RoCE drivers ask with RTNL, which the
 * handler does not wait for: the interface says it, too.
 */
static enum ib_mtu tow_accept_port_mtu(const struct tow_session *session)
{
	const struct ib_gid_attr *gid =
		session->control.id->route.addr.dev_addr.sgid_attr;
	struct tow_device *dev = session->dev;
	enum ib_mtu mtu = IB_MTU_256;
	struct net_device *netdev;
	struct ib_port_attr port;

	if (dev->transport != TOW_TRANSPORT_ROCE)
		return ib_query_port(dev->ibdev, dev->port, &port) ?
		       IB_MTU_256 : port.active_mtu;
	rcu_read_lock();
	netdev = gid ? rdma_read_gid_attr_ndev_rcu(gid) : ERR_PTR(-ENODEV);
	if (!IS_ERR(netdev))
		mtu = iboe_get_mtu(READ_ONCE(netdev->mtu));
	rcu_read_unlock();
	return mtu;
}

/* The largest packet that both ends take. */
static enum ib_mtu tow_accept_mtu(const struct tow_session *session)
{
	enum ib_mtu mtu = min_t(enum ib_mtu, tow_accept_port_mtu(session),
				session->handshake.request.mtu);

	return session->settings.mtu ?
	       min(mtu, ib_mtu_int_to_enum(session->settings.mtu)) : mtu;
}

static int tow_accept_reply(struct tow_session *session)
{
	struct tow_handshake *handshake = &session->handshake;
	struct tow_wire_reply *reply = &handshake->reply;
	struct tow_device *dev = session->dev;

	reply->magic = cpu_to_le32(TOW_WIRE_MAGIC);
	reply->version = min_t(u8, handshake->request.version,
			       TOW_WIRE_VERSION);
	memcpy(reply->incarnation, dev->incarnation,
	       sizeof(reply->incarnation));
	get_random_bytes(reply->nonce, sizeof(reply->nonce));
	reply->qp_num = cpu_to_le32(session->control.id->qp->qp_num);
	reply->features = handshake->request.features &
			  cpu_to_le32(TOW_WIRE_AUTHENTICATED);
	reply->qps = session->qps;
	reply->mtu = tow_accept_mtu(session);
	return tow_auth_derive(&session->auth, session->loopback ?
			       &dev->peers->self : &dev->peers->key, handshake,
			       false, reply->mac);
}

/* Caller holds the session's @setup. */
static int tow_accept_control_setup(struct tow_session *session,
				    struct rdma_cm_id *id,
				    const struct rdma_conn_param *param)
{
	const struct tow_wire_request *request = &session->handshake.request;
	struct rdma_conn_param answer;
	int ret;

	/* The interface is not in the address of an accepted connection. */
	if (ipv6_addr_type(&session->handshake.initiator) & IPV6_ADDR_LINKLOCAL)
		session->scope_id = id->route.addr.dev_addr.bound_dev_if;
	session->control.id = id;
	id->context = &session->control;
	if (!tow_accept_qp_num_fits(param, request->qp_num))
		return -EPROTO;
	session->qps = min_t(u32, request->qps, session->settings.qps_per_peer);
	ret = tow_session_prepare(session, id);
	if (!ret)
		ret = tow_accept_reply(session);
	if (ret)
		return ret;
	tow_link_conn_param(&session->control, &answer,
			    &session->handshake.reply,
			    sizeof(session->handshake.reply));
	return rdma_accept(id, &answer);
}

/*
 * Accept or reject a control queue pair.  Once tow_accept_control_setup() is
 * called the session owns @id and destroys it, so 0 is returned from then on,
 * even if @id was rejected.
 */
static int tow_accept_control(struct tow_device *dev, struct rdma_cm_id *id,
			      const struct rdma_conn_param *param)
{
	const struct tow_wire_request *request = param->private_data;
	struct tow_handshake handshake = { .request = *request };
	struct tow_conn_settings settings;
	struct tow_session *session;
	int ret;

	tow_address_of(&id->route.addr.dst_addr, &handshake.initiator, NULL);
	tow_address_of(&id->route.addr.src_addr, &handshake.responder, NULL);
	ret = tow_accept_check_control(dev, request);
	if (!ret)
		ret = tow_auth_check_request(&dev->peers->key, &handshake);
	if (ret)
		return ret;
	tow_conn_settings_read(dev->peers, &settings);
	session = tow_session_new(dev, false, &settings);
	if (IS_ERR(session))
		return PTR_ERR(session);
	mutex_lock(&session->setup);
	if (!tow_session_alive(session)) {
		mutex_unlock(&session->setup);
		tow_session_put(session);
		return -ENODEV;
	}
	session->handshake = handshake;
	session->loopback = tow_accept_is_us(dev, request);
	ret = tow_accept_control_setup(session, id, param);
	if (ret) {
		tow_accept_reject(id, ret);
		tow_session_fail(session, ret, tow_session_reason_of(ret),
				 "could not be accepted");
	}
	mutex_unlock(&session->setup);
	tow_session_put(session);
	return 0;
}

/*
 * Accept or reject the request of @id, which is new.  The caller is one of the
 * device's users.  Return: 0; a negative errno: rejected, and the connection
 * manager is to destroy @id.
 */
static int tow_accept_request(struct tow_device *dev, struct rdma_cm_id *id,
			      const struct rdma_conn_param *param)
{
	const struct tow_wire_request *request = param->private_data;
	struct in6_addr from;
	int ret;

	ret = tow_accept_check(request, param->private_data_len);
	if (!ret && !tow_accept_address_fits(id))
		ret = -EPROTO;
	if (!ret)
		ret = tow_accept_control(dev, id, param);
	/* -ENODEV: nobody is wrong, and whoever was connected may ask often. */
	if (ret && ret != -ENODEV) {
		tow_address_of(&id->route.addr.dst_addr, &from, NULL);
		tow_accept_refused(dev, &from, ret);
	}
	if (ret)
		tow_accept_reject(id, ret);
	return ret;
}

/* ---- listening ------------------------------------------------------------ */

/* Protects tow_listeners, each struct tow_listener, and tow_peers.listening. */
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

/* The handler of listeners, and of the connections that they accepted. */
static int tow_listen_event(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	struct tow_link *link = id->context;

	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		return tow_listen_request(id, event);
	/* A listener's context is NULL: its other events do not matter. */
	if (!link)
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
	/* IPv4 and IPv6 have separate listeners. */
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
	/*
	 * The machine or the device may lack one family: one listener is
	 * enough.
	 */
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
 * Return: 0; -EADDRINUSE: the port is in use; -ENODEV: the device is going;
 * another negative errno from the connection manager.  After an error the
 * device listens on the same port as before.
 */
int tow_listen_move(struct tow_device *dev, u16 port)
{
	struct tow_peers *peers = dev->peers;
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
