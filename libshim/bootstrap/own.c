// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * By which address other nodes reach this one: the kernel keeps those of an RDMA device's port
 * as GIDs, one a file (Documentation/ABI/stable/sysfs-class-infiniband).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "inside.h"

#define GIDS_MAX	1024

/* How good an address is: IPv4, IPv6, IPv6 of one link only. */
enum quality { NONE, LINK, GLOBAL, IPV4 };

bool towi_read_line(const char *path, char *line, size_t bytes)
{
	FILE *file = fopen(path, "re");

	if (!file)
		return false;
	if (!fgets(line, (int)bytes, file))
		line[0] = '\0';
	line[strcspn(line, "\n")] = '\0';
	fclose(file);
	return true;
}

static enum quality quality_of(const struct in6_addr *gid)
{
	if (IN6_IS_ADDR_UNSPECIFIED(gid))
		return NONE;
	if (IN6_IS_ADDR_LINKLOCAL(gid))
		return LINK;
	return IN6_IS_ADDR_V4MAPPED(gid) ? IPV4 : GLOBAL;
}

static void write_address(const struct in6_addr *gid, enum quality quality, const char *interface,
			  char address[TOW_GROUP_ADDRESS_BYTES])
{
	size_t length;

	if (quality == IPV4)
		inet_ntop(AF_INET, gid->s6_addr + 12, address, TOW_GROUP_ADDRESS_BYTES);
	else
		inet_ntop(AF_INET6, gid, address, TOW_GROUP_ADDRESS_BYTES);
	length = strlen(address);
	if (quality == LINK)
		snprintf(address + length, TOW_GROUP_ADDRESS_BYTES - length, "%%%s", interface);
}

int towi_own_address(const char *class, const char *device, uint32_t port,
		     char address[TOW_GROUP_ADDRESS_BYTES])
{
	enum quality best = NONE, quality;
	char path[256], line[64];
	struct in6_addr gid;

	for (int i = 0; i < GIDS_MAX; i++) {
		snprintf(path, sizeof(path), "%s/%s/ports/%u/gids/%d", class, device, port, i);
		if (!towi_read_line(path, line, sizeof(line)))
			break;
		if (inet_pton(AF_INET6, line, &gid) != 1)
			continue;
		quality = quality_of(&gid);
		if (quality <= best)
			continue;
		snprintf(path, sizeof(path), "%s/%s/ports/%u/gid_attrs/ndevs/%d", class, device,
			 port, i);
		/* On InfiniBand a GID is no address, and has no interface. */
		if (!towi_read_line(path, line, sizeof(line)) || !line[0])
			continue;
		write_address(&gid, quality, line, address);
		best = quality;
	}
	return best == NONE ? -EADDRNOTAVAIL : 0;
}

static bool is_at(const struct sockaddr *interface, const struct in6_addr *address)
{
	const struct sockaddr_in6 *in6 = (const void *)interface;
	const struct sockaddr_in *in = (const void *)interface;

	if (!interface)
		return false;
	if (interface->sa_family == AF_INET6)
		return !memcmp(&in6->sin6_addr, address, sizeof(*address));
	return interface->sa_family == AF_INET && IN6_IS_ADDR_V4MAPPED(address) &&
	       !memcmp(&in->sin_addr, address->s6_addr + 12, sizeof(in->sin_addr));
}

bool towi_is_own(const struct towi_address *address)
{
	struct ifaddrs *all, *one;
	struct in6_addr wanted;
	bool found;

	memcpy(&wanted, address->bytes, sizeof(wanted));
	found = IN6_IS_ADDR_LOOPBACK(&wanted) ||
		(IN6_IS_ADDR_V4MAPPED(&wanted) && wanted.s6_addr[12] == IN_LOOPBACKNET);
	if (found || getifaddrs(&all))
		return found;
	for (one = all; one && !found; one = one->ifa_next)
		found = is_at(one->ifa_addr, &wanted);
	freeifaddrs(all);
	return found;
}
