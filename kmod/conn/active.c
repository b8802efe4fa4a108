// SPDX-License-Identifier: GPL-2.0
/*
 * The initiator: connecting a session's control queue pair.
 *
 * That is done step by step: address, route, queue pair, the other end's proof.
 * Every step sleeps, in a work item.  Then the caller connects the data queue
 * pairs (data.c).  It (peer/try.c) decides between the steps: only the
 * proof says which node the other end is, and so whether it is connected
 * already.
 */
#include <linux/jiffies.h>
#include <linux/limits.h>
#include <linux/minmax.h>
#include <linux/random.h>
#include <linux/wait.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>
#include <rdma/ib_cache.h>

#include "core/address.h"
#include "core/core.h"
#include "parting.h"
#include "peer.h"
#include "session.h"

/*
 * Time to resolve an address.  ib_core queries the neighbour before it queues
 * its own request for the answer.  An answer that comes in between is noticed
 * only when this time is over, so it is short.
 */
#define TOW_CONNECT_ADDRESS_MS	200

/*
 * Has @link come to @step?  -EINPROGRESS: not yet.  An error of the link counts
 * only until it is connected.  After that the session's error counts: the
 * connection manager's event may overtake the other end's GOODBYE, which has
 * the reason.
 */
static int tow_connect_result(struct tow_session *session,
			      struct tow_link *link, enum tow_link_step step)
{
	unsigned long flags;
	int ret = -EINPROGRESS;

	spin_lock_irqsave(&session->lock, flags);
	if (session->state >= TOW_SESSION_ENDING)
		ret = session->error;
	else if (link->error && link->step < TOW_LINK_ESTABLISHED)
		ret = link->error;
	else if (link->step >= step)
		ret = 0;
	spin_unlock_irqrestore(&session->lock, flags);
	return ret;
}

static int tow_connect_wait_for(struct tow_session *session,
				struct tow_link *link, enum tow_link_step step,
				unsigned int limit_ms)
{
	int ret = -EINPROGRESS;

	wait_event_timeout(session->wait,
			   (ret = tow_connect_result(session, link, step)) !=
			   -EINPROGRESS, msecs_to_jiffies(limit_ms));
	return ret == -EINPROGRESS ? -ETIMEDOUT : ret;
}

static int tow_connect_wait(struct tow_session *session, struct tow_link *link,
			    enum tow_link_step step)
{
	return tow_connect_wait_for(session, link, step, TOW_CONNECT_STEP_MS);
}

/**
 * tow_connect_wait_state - wait until a session has reached a state
 * @session: the initiator's session
 * @state: the state to wait for
 *
 * Return: 0; -ETIMEDOUT: it takes too long; the session's error if it is ENDING.
 */
int tow_connect_wait_state(struct tow_session *session,
			   enum tow_session_state state)
{
	if (!wait_event_timeout(session->wait,
				READ_ONCE(session->state) >= state,
				msecs_to_jiffies(TOW_CONNECT_STEP_MS)))
		return -ETIMEDOUT;
	return tow_session_alive(session) ? 0 : session->error;
}

/* The address of one of our port's GIDs.  Return: false: there is no such GID. */
static bool tow_connect_gid(struct tow_session *session, int index,
			    struct tow_address *address)
{
	struct tow_device *dev = session->dev;
	union ib_gid gid;

	if (rdma_query_gid(dev->ibdev, dev->port, index, &gid))
		return false;
	*address = (struct tow_address){};
	memcpy(&address->in6, gid.raw, sizeof(address->in6));
	if (ipv6_addr_type(&address->in6) & IPV6_ADDR_LINKLOCAL)
		address->scope_id = session->target.scope_id;
	return true;
}

/* Our interface that the routing table chooses, whatever its address is like. */
#define TOW_CONNECT_CHOSEN	INT_MAX

/*
 * How well does the interface of GID @index lead to the other end, from the
 * GID's address?  -1: it does not.
 */
static int tow_connect_leads(struct tow_session *session, int index,
			     const struct tow_address *address)
{
	struct tow_device *dev = session->dev;
	struct sockaddr_storage from, to;
	const struct ib_gid_attr *gid;
	int like = -1;

	tow_address_to(address, &from);
	tow_address_to(&session->target, &to);
	if (from.ss_family != to.ss_family)
		return -1;
	gid = rdma_get_gid_attr(dev->ibdev, dev->port, index);
	if (IS_ERR(gid))
		return -1;
	if (gid->gid_type != IB_GID_TYPE_ROCE_UDP_ENCAP)
		goto out_put_gid;
	if (tow_parting_leads(gid, &from, &to, TOW_CHOICE_INTERFACE))
		like = TOW_CONNECT_CHOSEN;
	else if (tow_parting_leads(gid, &from, &to, TOW_CHOICE_ADDRESS))
		like = ipv6_addr_diff(&address->in6, &session->target.in6);
out_put_gid:
	rdma_put_gid_attr(gid);
	return like;
}

/*
 * The source address: that of the GID which the settings name.  If they name
 * none, the one that the routing table chooses.  It may prefer another device's
 * interface: then it is asked about each of our port's; of the addresses that it
 * chooses, the one most like the other end's.  Return: false: none.
 */
static bool tow_connect_source(struct tow_session *session,
			       struct sockaddr_storage *source)
{
	struct tow_device *dev = session->dev;
	struct tow_address address, best;
	int i, like, most = -1;
	struct ib_port_attr port;

	if (session->settings.gid_index >= 0) {
		if (tow_connect_gid(session, session->settings.gid_index, &best))
			most = 0;
	} else if (dev->transport == TOW_TRANSPORT_ROCE &&
		   !ib_query_port(dev->ibdev, dev->port, &port)) {
		for (i = 0; i < port.gid_tbl_len; i++) {
			if (!tow_connect_gid(session, i, &address))
				continue;
			like = tow_connect_leads(session, i, &address);
			if (like > most) {
				best = address;
				most = like;
			}
		}
	}
	if (most >= 0)
		tow_address_to(&best, source);
	return most >= 0;
}

static int tow_connect_resolve_address(struct tow_link *link)
{
	struct tow_session *session = link->session;
	struct sockaddr_storage source, target;
	bool bound = tow_connect_source(session, &source);

	if (!bound && session->settings.gid_index >= 0)
		return -EADDRNOTAVAIL;
	tow_address_to(&session->target, &target);
	/* Without a type of its own, the identifier has the administrator's default. */
	if (session->settings.traffic_class >= 0)
		rdma_set_service_type(link->id, session->settings.traffic_class);
	return rdma_resolve_addr(link->id,
				 bound ? (struct sockaddr *)&source : NULL,
				 (struct sockaddr *)&target,
				 TOW_CONNECT_ADDRESS_MS);
}

/* Override what the path record says by the administrator's settings. */
static int tow_connect_edit_path(struct tow_link *link)
{
	const struct tow_conn_settings *settings = &link->session->settings;
	struct sa_path_rec *path = link->id->route.path_rec;
	enum ib_mtu mtu = ib_mtu_int_to_enum(settings->mtu);

	if (settings->sl)
		path->sl = settings->sl;
	if (settings->mtu && mtu < path->mtu)
		path->mtu = mtu;
	return 0;
}

/* Take one step of connecting @link, unless its session is ENDING. */
static int tow_connect_step(struct tow_link *link,
			    int (*step)(struct tow_link *link))
{
	struct tow_session *session = link->session;
	int ret;

	mutex_lock(&session->setup);
	ret = tow_session_alive(session) ? step(link) : session->error;
	mutex_unlock(&session->setup);
	return ret;
}

static int tow_connect_create_id(struct tow_link *link)
{
	struct rdma_cm_id *id;

	id = rdma_create_id(&init_net, tow_link_event, link, RDMA_PS_TCP,
			    IB_QPT_RC);
	if (IS_ERR(id))
		return PTR_ERR(id);
	link->id = id;
	return tow_connect_resolve_address(link);
}

/* On InfiniBand the partition is part of the path query. */
static int tow_connect_set_pkey(struct tow_link *link)
{
	struct tow_device *dev = link->session->dev;
	u16 pkey;

	if (!link->session->settings.pkey_index)
		return 0;
	if (ib_query_pkey(dev->ibdev, dev->port,
			  link->session->settings.pkey_index, &pkey))
		return -EINVAL;
	if (dev->transport == TOW_TRANSPORT_IB)
		ib_addr_set_pkey(&link->id->route.addr.dev_addr, pkey);
	return 0;
}

static int tow_connect_resolve_route(struct tow_link *link)
{
	int ret;

	if (link->id->device != link->session->dev->ibdev ||
	    link->id->port_num != link->session->dev->port)
		return -EADDRNOTAVAIL;
	ret = tow_connect_set_pkey(link);
	if (ret)
		return ret;
	/* 0: none. */
	rdma_set_ack_timeout(link->id, link->session->settings.timeout);
	return rdma_resolve_route(link->id, TOW_CONNECT_STEP_MS);
}

/* Resolve address and route. */
static int tow_connect_reach(struct tow_link *link)
{
	struct tow_session *session = link->session;
	int ret;

	ret = tow_connect_step(link, tow_connect_create_id);
	if (!ret)
		ret = tow_connect_wait(session, link, TOW_LINK_ADDRESS);
	if (!ret)
		ret = tow_connect_step(link, tow_connect_resolve_route);
	if (!ret)
		ret = tow_connect_wait(session, link, TOW_LINK_ROUTE);
	if (!ret)
		ret = tow_connect_step(link, tow_connect_edit_path);
	return ret;
}

/* ---- the control queue pair ----------------------------------------------- */

static int tow_connect_control_request(struct tow_link *link)
{
	struct tow_session *session = link->session;
	struct tow_wire_request *request = &session->handshake.request;
	struct sa_path_rec *path = link->id->route.path_rec;
	struct tow_device *dev = session->dev;
	struct rdma_conn_param param;
	int ret;

	ret = tow_session_prepare(session, link->id);
	if (ret)
		return ret;
	tow_address_of(&link->id->route.addr.src_addr,
		       &session->handshake.initiator, NULL);
	tow_address_of(&link->id->route.addr.dst_addr,
		       &session->handshake.responder, NULL);
	request->magic = cpu_to_le32(TOW_WIRE_MAGIC);
	request->version = TOW_WIRE_VERSION;
	request->lowest = TOW_WIRE_LOWEST;
	request->qps = session->settings.qps_per_peer;
	request->mtu = min_t(u8, path->mtu, IB_MTU_4096);
	/*
	 * The other end's control queue pair gets ours, which its port may not take.
	 * No message is longer than this.
	 */
	path->mtu = min_t(u8, path->mtu, IB_MTU_512);
	memcpy(request->incarnation, dev->incarnation,
	       sizeof(request->incarnation));
	get_random_bytes(request->nonce, sizeof(request->nonce));
	request->qp_num = cpu_to_le32(link->id->qp->qp_num);
	if (tow_cluster_key_there(&dev->peers->key))
		request->features = cpu_to_le32(TOW_WIRE_AUTHENTICATED);
	ret = tow_auth_sign_request(&dev->peers->key, &session->handshake);
	if (ret)
		return ret;
	tow_link_conn_param(link, &param, request, sizeof(*request));
	return rdma_connect(link->id, &param);
}

/* Does the answer make sense, and was it made with the cluster key? */
static int tow_connect_check_reply(struct tow_link *link)
{
	struct tow_session *session = link->session;
	const struct tow_wire_request *request = &session->handshake.request;
	const struct tow_wire_reply *reply = &session->handshake.reply;
	struct tow_device *dev = session->dev;
	u8 mac[TOW_WIRE_MAC_BYTES];
	int ret;

	if (reply->magic != cpu_to_le32(TOW_WIRE_MAGIC) || reply->reserved0 ||
	    memchr_inv(reply->reserved, 0, sizeof(reply->reserved)))
		return -EPROTO;
	if (reply->version < TOW_WIRE_LOWEST || reply->version > TOW_WIRE_VERSION)
		return -EPROTONOSUPPORT;
	if (reply->features != request->features)
		return -ENOKEY;
	if (!reply->qps || reply->qps > request->qps || !reply->mtu ||
	    reply->mtu > request->mtu)
		return -EPROTO;
	session->loopback = !memcmp(reply->incarnation, dev->incarnation,
				    sizeof(reply->incarnation));
	/* Loopback uses tow_peers.self, and needs no cluster key. */
	if (!session->loopback &&
	    !(request->features & cpu_to_le32(TOW_WIRE_AUTHENTICATED)) &&
	    !READ_ONCE(dev->peers->settings.allow_unauthenticated))
		return -ENOKEY;
	ret = tow_auth_derive(&session->auth, session->loopback ?
			      &dev->peers->self : &dev->peers->key,
			      &session->handshake, true, mac);
	if (ret)
		return ret;
	if (!tow_auth_equal(mac, reply->mac, sizeof(mac)))
		return -EKEYREJECTED;
	session->qps = reply->qps;
	return 0;
}

/**
 * tow_connect_control - connect the control queue pair
 * @session: the initiator's session, new; @target names the other end
 * @answer_ms: how long to wait for the answer to the request
 *
 * Return: 0: the other end has proved that it holds the key; -ENOKEY,
 * -EKEYREJECTED, -EPROTO, -EPROTONOSUPPORT: it has not; the connection
 * manager's error; the session's error if it is ENDING.
 */
int tow_connect_control(struct tow_session *session, unsigned int answer_ms)
{
	struct tow_link *link = &session->control;
	int ret;

	ret = tow_connect_reach(link);
	if (!ret)
		ret = tow_connect_step(link, tow_connect_control_request);
	if (!ret)
		ret = tow_connect_wait_for(session, link, TOW_LINK_ESTABLISHED,
					   answer_ms);
	if (!ret)
		ret = tow_connect_step(link, tow_connect_check_reply);
	return ret;
}
