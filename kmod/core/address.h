/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Addresses of nodes: IPv6, and IPv4 mapped into it.
 */
#ifndef TOW_ADDRESS_H
#define TOW_ADDRESS_H

#include <linux/in.h>
#include <linux/in6.h>
#include <linux/socket.h>
#include <linux/types.h>
#include <net/ipv6.h>

/**
 * struct tow_address - where a node listens
 * @in6: the address; IPv4 as IPv4-mapped
 * @scope_id: interface of a link-local address; else 0
 * @port: 0: not known
 */
struct tow_address {
	struct in6_addr	in6;
	u32		scope_id;
	u16		port;
};

/**
 * tow_address_of - the address in a socket address
 * @from: AF_INET or AF_INET6; any other: the unspecified address
 * @to: where to
 * @scope_id: where to; may be NULL
 */
static inline void tow_address_of(const struct sockaddr_storage *from,
				  struct in6_addr *to, u32 *scope_id)
{
	const struct sockaddr_in *sin = (const void *)from;
	const struct sockaddr_in6 *sin6 = (const void *)from;

	if (scope_id)
		*scope_id = 0;
	switch (from->ss_family) {
	case AF_INET:
		ipv6_addr_set_v4mapped(sin->sin_addr.s_addr, to);
		break;
	case AF_INET6:
		*to = sin6->sin6_addr;
		if (scope_id && ipv6_addr_type(to) & IPV6_ADDR_LINKLOCAL)
			*scope_id = sin6->sin6_scope_id;
		break;
	default:
		*to = in6addr_any;
		break;
	}
}

/**
 * tow_address_to - a socket address
 * @address: the address
 * @to: where to
 */
static inline void tow_address_to(const struct tow_address *address,
				  struct sockaddr_storage *to)
{
	struct sockaddr_in6 *sin6 = (void *)to;
	struct sockaddr_in *sin = (void *)to;

	memset(to, 0, sizeof(*to));
	if (ipv6_addr_v4mapped(&address->in6)) {
		sin->sin_family = AF_INET;
		sin->sin_addr.s_addr = address->in6.s6_addr32[3];
		sin->sin_port = htons(address->port);
	} else {
		sin6->sin6_family = AF_INET6;
		sin6->sin6_addr = address->in6;
		sin6->sin6_scope_id = address->scope_id;
		sin6->sin6_port = htons(address->port);
	}
}

#endif /* TOW_ADDRESS_H */
