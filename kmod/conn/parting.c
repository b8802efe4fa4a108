// SPDX-License-Identifier: GPL-2.0
/*
 * Partings: connections whose end cannot be reported to the other end now.
 *
 * rdma_disconnect() and rdma_destroy_id() send a datagram to the other end, by
 * a queue pair that all connections of the device share.  If soft-RoCE finds no
 * route for a datagram, because the interface is down or the address or the
 * route is gone, it moves that queue pair to the error state.  Its receives are
 * flushed and never posted again, so no connection can be made by the device,
 * in either direction, until the device is removed.
 *
 * So an identifier without a route is kept, without a queue pair and a context,
 * until there is a route, or the device or the module goes.  An identifier
 * whose address was removed has no route again: when the address comes back it
 * is a new GID entry.  Hardware needs none of this.
 */
#include <linux/slab.h>
#include <net/flow.h>
#include <net/net_namespace.h>
#include <net/route.h>
#include <rdma/ib_cache.h>

#include "core/compat.h"
#include "core/core.h"
#include "parting.h"
#include "peer.h"

/**
 * struct tow_parting - an identifier that waits to be destroyed
 * @link: in tow_partings.list
 * @id: the identifier, owned; its context is NULL
 */
struct tow_parting {
	struct list_head	link;
	struct rdma_cm_id	*id;
};

/* Does a route leave by an interface? */
static bool tow_parting_leaves(const struct dst_entry *route, int index)
{
	bool leaves;

	/* A route that is not used any more loses its interface. */
	rcu_read_lock();
	leaves = READ_ONCE(route->dev)->ifindex == index;
	rcu_read_unlock();
	return leaves;
}

/* By interface @oif, and from @from, whatever the routing table may choose. */
static bool tow_parting_route4(const struct sockaddr_in *from,
			       const struct sockaddr_in *to, int oif,
			       enum tow_parting_choice choice)
{
	struct flowi4 flow = {
		.flowi4_oif	= choice == TOW_CHOICE_INTERFACE ? 0 : oif,
		.flowi4_proto	= IPPROTO_UDP,
		.saddr		= choice == TOW_CHOICE_NONE ?
				  from->sin_addr.s_addr : 0,
		.daddr		= to->sin_addr.s_addr,
	};
	struct rtable *route;
	bool good;

	route = ip_route_output_key(&init_net, &flow);
	if (IS_ERR(route))
		return false;
	good = flow.saddr == from->sin_addr.s_addr &&
	       (choice != TOW_CHOICE_INTERFACE ||
		tow_parting_leaves(&route->dst, oif));
	ip_rt_put(route);
	return good;
}

/* The same for IPv6.  The interface of a link-local address is given, always. */
static bool tow_parting_route6(const struct sockaddr_in6 *from,
			       const struct sockaddr_in6 *to, int oif,
			       enum tow_parting_choice choice)
{
	bool any = choice == TOW_CHOICE_INTERFACE && !to->sin6_scope_id;
	struct flowi6 flow = {
		.flowi6_oif	= any ? 0 : oif,
		.flowi6_proto	= IPPROTO_UDP,
		.saddr		= choice == TOW_CHOICE_NONE ?
				  from->sin6_addr : in6addr_any,
		.daddr		= to->sin6_addr,
	};
	struct dst_entry *route;
	bool good;

	if (to->sin6_scope_id && to->sin6_scope_id != oif)
		return false;
	route = tow_route6(&init_net, &flow);
	if (IS_ERR(route))
		return false;
	good = !route->error && ipv6_addr_equal(&flow.saddr, &from->sin6_addr) &&
	       (!any || tow_parting_leaves(route, oif));
	dst_release(route);
	return good;
}

/* The index of a GID's interface, if it is running; else 0. */
static int tow_parting_interface(const struct ib_gid_attr *from)
{
	struct net_device *ndev;
	int index = 0;

	rcu_read_lock();
	ndev = rdma_read_gid_attr_ndev_rcu(from);
	/*
	 * netif_running(): an interface that goes down keeps its routes for
	 * some ms.
	 */
	if (!IS_ERR(ndev) && netif_running(ndev))
		index = ndev->ifindex;
	rcu_read_unlock();
	return index;
}

/*
 * Virtual DMA alone does not tell: InfiniBand drivers in software use it as
 * well.
 */
static bool tow_parting_is_soft_roce(const struct rdma_cm_id *id)
{
	return rdma_protocol_roce(id->device, id->port_num) &&
	       ib_uses_virt_dma(id->device);
}

/**
 * tow_parting_leads - is there a route from a RoCE address to another node?
 * @gid: the GID of the address
 * @from: the address
 * @to: the other node's
 * @choice: what the routing table may choose
 *
 * An IPv4 address that no route of the interface leads to is taken for one that
 * is there, on the link, unless the routing table chooses the interface.
 *
 * Return: true: there is one through the GID's interface, which is running, and
 * it has @from.
 */
bool tow_parting_leads(const struct ib_gid_attr *gid,
		       const struct sockaddr_storage *from,
		       const struct sockaddr_storage *to,
		       enum tow_parting_choice choice)
{
	int oif = tow_parting_interface(gid);

	if (!oif)
		return false;
	if (from->ss_family == AF_INET)
		return tow_parting_route4((const void *)from, (const void *)to,
					  oif, choice);
	return tow_parting_route6((const void *)from, (const void *)to, oif,
				  choice);
}

/**
 * tow_parting_possible - can a datagram about a connection's end be sent?
 * @id: the connection's identifier
 *
 * Checks what soft-RoCE checks when it sends: interface and route.
 *
 * Return: true: it can; false: sending would break the device's connections.
 */
bool tow_parting_possible(const struct rdma_cm_id *id)
{
	const struct rdma_addr *addr = &id->route.addr;

	if (!id->device || !tow_parting_is_soft_roce(id) ||
	    !addr->dev_addr.sgid_attr)
		return true;
	return tow_parting_leads(addr->dev_addr.sgid_attr, &addr->src_addr,
				 &addr->dst_addr, TOW_CHOICE_NONE);
}

static void tow_partings_work(struct work_struct *work)
{
	struct tow_partings *partings = container_of(work, struct tow_partings,
						     work);
	struct tow_parting *parting, *next;

	mutex_lock(&partings->lock);
	list_for_each_entry_safe(parting, next, &partings->list, link) {
		if (!READ_ONCE(partings->ending) &&
		    !tow_parting_possible(parting->id))
			continue;
		rdma_destroy_id(parting->id);
		list_del(&parting->link);
		kfree(parting);
	}
	mutex_unlock(&partings->lock);
}

/**
 * tow_parting_begin - destroy an identifier as soon as tow_parting_possible()
 * @dev: the device
 * @id: the identifier, without a queue pair; its handler does nothing while its
 *	context is NULL
 *
 * Without memory to keep the identifier it is destroyed now.
 */
void tow_parting_begin(struct tow_device *dev, struct rdma_cm_id *id)
{
	struct tow_partings *partings = &dev->peers->partings;
	struct tow_parting *parting = NULL;

	if (!tow_parting_possible(id))
		parting = kzalloc(sizeof(*parting), GFP_KERNEL);
	if (!parting) {
		rdma_destroy_id(id);
		return;
	}
	/* The lock waits for a handler that still uses the context. */
	rdma_lock_handler(id);
	id->context = NULL;
	rdma_unlock_handler(id);
	parting->id = id;
	mutex_lock(&partings->lock);
	list_add_tail(&parting->link, &partings->list);
	mutex_unlock(&partings->lock);
	/*
	 * The route may have come back before the identifier was in the list.
	 */
	tow_partings_retry(dev);
}

/**
 * tow_partings_retry - an interface, address or route may be back
 * @dev: the device
 *
 * May be called in any context.
 */
void tow_partings_retry(struct tow_device *dev)
{
	queue_work(tow_wq, &dev->peers->partings.work);
}

/**
 * tow_partings_init - initialise an empty list of partings
 * @partings: where to
 */
void tow_partings_init(struct tow_partings *partings)
{
	mutex_init(&partings->lock);
	INIT_LIST_HEAD(&partings->list);
	INIT_WORK(&partings->work, tow_partings_work);
}

/**
 * tow_partings_end - destroy all identifiers, with a route or without
 * @dev: the device, without sessions; its event handlers are unregistered
 */
void tow_partings_end(struct tow_device *dev)
{
	WRITE_ONCE(dev->peers->partings.ending, true);
	tow_partings_retry(dev);
	flush_work(&dev->peers->partings.work);
}
