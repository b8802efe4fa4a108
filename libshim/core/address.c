// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Where a node listens, as people write it: an address or a host's name, and
 * perhaps a port.
 *
 * Colons separate, and are part of IPv6 addresses: text with more than one of
 * them is an address as a whole, unless brackets say where it ends.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "internal.h"

#define PORT_MAX 65535

/* Before an IPv4 address within an IPv6 one. */
static const uint8_t mapped[] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };

/* Digits only; no port is 0. */
static int parse_port(const char *text, uint16_t *port)
{
	uint32_t number = 0;

	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return -EINVAL;
		number = 10 * number + (uint32_t)(*text - '0');
		if (number > PORT_MAX)
			return -EINVAL;
	}
	*port = (uint16_t)number;
	return number ? 0 : -EINVAL;
}

static int copy_host(const char *from, size_t length, char host[NI_MAXHOST])
{
	if (!length || length >= NI_MAXHOST)
		return -EINVAL;
	memcpy(host, from, length);
	host[length] = '\0';
	return 0;
}

/* "[HOST]" or "[HOST]:PORT" */
static int split_brackets(const char *text, char host[NI_MAXHOST], uint16_t *port)
{
	const char *end = strchr(text, ']');

	if (!end || (end[1] && end[1] != ':'))
		return -EINVAL;
	if (end[1] && parse_port(end + 2, port))
		return -EINVAL;
	return copy_host(text + 1, (size_t)(end - text) - 1, host);
}

static int split(const char *text, char host[NI_MAXHOST], uint16_t *port)
{
	const char *colon = strchr(text, ':');

	*port = 0;
	if (*text == '[')
		return split_brackets(text, host, port);
	if (!colon || strchr(colon + 1, ':'))
		return copy_host(text, strlen(text), host);
	if (parse_port(colon + 1, port))
		return -EINVAL;
	return copy_host(text, (size_t)(colon - text), host);
}

static int take_address(const struct sockaddr *from, struct towi_address *address)
{
	const struct sockaddr_in6 *in6 = (const void *)from;
	const struct sockaddr_in *in = (const void *)from;

	switch (from->sa_family) {
	case AF_INET:
		memcpy(address->bytes, mapped, sizeof(mapped));
		memcpy(address->bytes + sizeof(mapped), &in->sin_addr, sizeof(in->sin_addr));
		return 0;
	case AF_INET6:
		memcpy(address->bytes, &in6->sin6_addr, sizeof(in6->sin6_addr));
		address->scope_id = in6->sin6_scope_id;
		return 0;
	default:
		return -ENOENT;
	}
}

/* What an error of getaddrinfo(3) means; errno is as it left it. */
static int name_error(int error)
{
	switch (error) {
	case EAI_AGAIN:
		return -EAGAIN;
	case EAI_MEMORY:
		return -ENOMEM;
	case EAI_SYSTEM:
		return errno ? -errno : -ENOENT;
	default:
		return -ENOENT;
	}
}

static int look_up(const char *host, struct towi_address *address)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	struct addrinfo *found;
	int ret;

	errno = 0;
	ret = getaddrinfo(host, NULL, &hints, &found);
	if (ret)
		return name_error(ret);
	ret = take_address(found->ai_addr, address);
	freeaddrinfo(found);
	return ret;
}

int towi_address(const char *text, struct towi_address *address)
{
	char host[NI_MAXHOST];
	int ret;

	memset(address, 0, sizeof(*address));
	ret = split(text, host, &address->port);
	return ret ? ret : look_up(host, address);
}
