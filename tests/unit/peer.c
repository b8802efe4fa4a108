// SPDX-License-Identifier: GPL-2.0
/*
 * What the library does about peers before it asks the kernel: addresses as
 * people write them, which of several peers is meant, attributes, and arguments
 * that are missing.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kselftest.h>

#include "internal.h"

/* Published sizes never change. */
#define ATTR_FIRST	44
#define INFO_FIRST	112

/* ---- addresses ---- */

/* Is text that address, as IPv6, with that scope and port? */
static bool reads(const char *text, const char *want, uint32_t scope_id, uint16_t port)
{
	struct towi_address address;
	char seen[INET6_ADDRSTRLEN];
	uint8_t bytes[16];
	int ret;

	memset(&address, 0xff, sizeof(address));
	ret = towi_address(text, &address);
	if (ret) {
		ksft_print_msg("'%s': %d\n", text, ret);
		return false;
	}
	if (inet_pton(AF_INET6, want, bytes) == 1 && !memcmp(address.bytes, bytes, sizeof(bytes)) &&
	    address.scope_id == scope_id && address.port == port)
		return true;
	inet_ntop(AF_INET6, address.bytes, seen, sizeof(seen));
	ksft_print_msg("'%s' was read as %s %u %u\n", text, seen, address.scope_id, address.port);
	return false;
}

/* On the heap, so that the sanitizer sees a byte read past the end. */
static bool refuses(const char *text)
{
	struct towi_address address;
	char *copy = strdup(text);
	int ret = copy ? towi_address(copy, &address) : -ENOMEM;

	free(copy);
	if (ret != -EINVAL)
		ksft_print_msg("'%s': %d\n", text, ret);
	return ret == -EINVAL;
}

static void test_addresses(void)
{
	ksft_test_result(reads("192.0.2.1", "::ffff:192.0.2.1", 0, 0), "IPv4\n");
	ksft_test_result(reads("192.0.2.1:18600", "::ffff:192.0.2.1", 0, 18600) &&
			 reads("192.0.2.1:1", "::ffff:192.0.2.1", 0, 1) &&
			 reads("192.0.2.1:65535", "::ffff:192.0.2.1", 0, 65535), "IPv4 and a port\n");
	ksft_test_result(reads("2001:db8::7", "2001:db8::7", 0, 0) && reads("::1", "::1", 0, 0) &&
			 reads("::ffff:192.0.2.1", "::ffff:192.0.2.1", 0, 0), "IPv6\n");
	ksft_test_result(reads("2001:db8::7:1860", "2001:db8::7:1860", 0, 0),
			 "IPv6 without brackets has no port\n");
	ksft_test_result(reads("[2001:db8::7]", "2001:db8::7", 0, 0) &&
			 reads("[2001:db8::7]:18600", "2001:db8::7", 0, 18600), "brackets\n");
	ksft_test_result(reads("fe80::1%lo", "fe80::1", 1, 0) && reads("fe80::1%7", "fe80::1", 7, 0) &&
			 reads("[fe80::1%lo]:99", "fe80::1", 1, 99), "link-local addresses\n");
	ksft_test_result(reads("[192.0.2.1]:99", "::ffff:192.0.2.1", 0, 99), "IPv4 in brackets\n");
}

static void test_bad_addresses(void)
{
	char host[NI_MAXHOST + 1];

	ksft_test_result(refuses("") && refuses("[]") && refuses("[]:99") && refuses(":99"),
			 "nothing is no address\n");
	ksft_test_result(refuses("[") && refuses("[::1") && refuses("[::1]x") && refuses("[::1]99"),
			 "brackets that say nothing\n");
	ksft_test_result(refuses("192.0.2.1:") && refuses("192.0.2.1:0") &&
			 refuses("192.0.2.1:65536") && refuses("192.0.2.1:4294967297") &&
			 refuses("[::1]:") && refuses("[::1]:0"), "ports that are none\n");
	ksft_test_result(refuses("192.0.2.1:+1") && refuses("192.0.2.1:-1") &&
			 refuses("192.0.2.1: 1") && refuses("192.0.2.1:1x") &&
			 refuses("192.0.2.1:0x1"), "a port is digits\n");
	memset(host, 'h', sizeof(host));
	host[NI_MAXHOST] = '\0';
	ksft_test_result(refuses(host), "a name longer than any\n");
}

/* ---- which peer ---- */

#define PEERS 5

static void make_peer(struct tow_peer_info *info, uint64_t number, uint8_t last_byte,
		      uint16_t port, enum tow_peer_state state)
{
	memset(info, 0, sizeof(*info));
	info->size = sizeof(*info);
	info->peer = number;
	info->address[15] = last_byte;
	info->port = port;
	info->state = state;
}

static uint64_t number_at(const struct towi_entries *peers, uint8_t last_byte, uint16_t port,
			  uint32_t scope_id)
{
	struct towi_address address = { .port = port, .scope_id = scope_id };
	const struct tow_peer_info *found;

	address.bytes[15] = last_byte;
	found = towi_peer_at(peers, &address);
	return found ? found->peer : 0;
}

static void test_which(void)
{
	struct tow_peer_info infos[PEERS];
	struct towi_entries peers = {
		.count = PEERS,
		.room = PEERS,
		.entry_bytes = sizeof(infos[0]),
		.bytes = (unsigned char *)infos,
	};

	make_peer(&infos[0], 1, 1, 18600, TOW_PEER_DEAD);
	make_peer(&infos[1], 2, 1, 18600, TOW_PEER_READY);
	make_peer(&infos[2], 3, 1, 18600, TOW_PEER_DEAD);
	make_peer(&infos[3], 4, 2, 0, TOW_PEER_IDLE);
	make_peer(&infos[4], 5, 2, 99, TOW_PEER_DEAD);
	ksft_test_result(number_at(&peers, 1, 0, 0) == 2 && number_at(&peers, 1, 18600, 0) == 2,
			 "the peer that is connected\n");
	ksft_test_result(number_at(&peers, 2, 0, 0) == 5, "or else the youngest\n");
	ksft_test_result(number_at(&peers, 2, 18600, 0) == 4,
			 "a peer may listen at any port while none is known\n");
	ksft_test_result(!number_at(&peers, 1, 1, 0) && !number_at(&peers, 3, 0, 0) &&
			 !number_at(&peers, 1, 0, 2), "another port, address or interface\n");
	peers.count = 0;
	ksft_test_result(!number_at(&peers, 1, 0, 0), "nobody\n");
}

static void test_entries(void)
{
	union {
		struct tow_peer_info info;
		unsigned char bytes[8192];
	} room = { .info.size = INFO_FIRST };
	struct tow_peer_info infos[2];
	struct towi_entries peers = {
		.count = 2,
		.room = 2,
		.entry_bytes = sizeof(infos[0]),
		.bytes = (unsigned char *)infos,
	};

	make_peer(&infos[0], 1, 1, 1, TOW_PEER_READY);
	make_peer(&infos[1], 2, 2, 2, TOW_PEER_DEAD);
	ksft_test_result(TOWI_PEER_INFO_SIZE_FIRST == INFO_FIRST, "the first published size\n");
	ksft_test_result(!towi_entry_give(&peers, 1, INFO_FIRST, &room.info) &&
			 room.info.peer == 2 && room.info.state == TOW_PEER_DEAD, "an entry\n");
	ksft_test_result(towi_entry_give(&peers, 2, INFO_FIRST, &room.info) == -EINVAL &&
			 towi_entry_give(&peers, SIZE_MAX, INFO_FIRST, &room.info) == -EINVAL &&
			 towi_entry_give(&peers, 0, INFO_FIRST, NULL) == -EINVAL,
			 "past the end, and nowhere to put it\n");
	room.info.size = INFO_FIRST - 1;
	ksft_test_result(towi_entry_give(&peers, 0, INFO_FIRST, &room.info) == -EINVAL,
			 "a size that no version has\n");
}

/* ---- arguments ---- */

static void test_attr(void)
{
	struct tow_device dev = { .fd = -1 };
	union {
		struct tow_peer_attr attr;
		unsigned char bytes[8192];
	} room = { .attr.size = sizeof(room.attr) };
	struct tow_peer *peer = NULL;

	/* The descriptor is bad: who gets as far as the kernel hears that. */
	ksft_test_result(sizeof(room.attr) >= ATTR_FIRST &&
			 tow_peer_connect(&dev, "::1", NULL, 0, &peer) == -EBADF &&
			 tow_peer_connect(&dev, "::1", &room.attr, 0, &peer) == -EBADF,
			 "attributes, or none\n");
	room.attr.size = ATTR_FIRST;
	ksft_test_result(tow_peer_connect(&dev, "::1", &room.attr, 0, &peer) == -EBADF,
			 "attributes of old\n");
	room.attr.size = sizeof(room.attr) + 4;
	ksft_test_result(tow_peer_connect(&dev, "::1", &room.attr, 0, &peer) == -EBADF,
			 "longer ones, the rest zero\n");
	room.bytes[sizeof(room.attr) + 3] = 1;
	ksft_test_result(tow_peer_connect(&dev, "::1", &room.attr, 0, &peer) == -E2BIG,
			 "what is not known here is refused\n");
	room.attr.size = ATTR_FIRST - 1;
	ksft_test_result(tow_peer_connect(&dev, "::1", &room.attr, 0, &peer) == -EINVAL,
			 "a size that no version has\n");
	ksft_test_result(!peer, "on failure no peer is left behind\n");
}

static void test_missing(void)
{
	struct tow_device dev = { .fd = -1 };
	struct tow_peer_info info = { .size = sizeof(info) };
	struct tow_peers *list = NULL;
	struct tow_peer *peer = NULL;

	ksft_test_result(tow_peer_connect(NULL, "::1", NULL, 0, &peer) == -EINVAL &&
			 tow_peer_connect(&dev, NULL, NULL, 0, &peer) == -EINVAL &&
			 tow_peer_connect(&dev, "::1", NULL, 0, NULL) == -EINVAL &&
			 tow_peer_connect(&dev, "[::1", NULL, 0, &peer) == -EINVAL && !peer,
			 "connect\n");
	ksft_test_result(tow_peer_find(NULL, "::1", &peer) == -EINVAL &&
			 tow_peer_find(&dev, NULL, &peer) == -EINVAL &&
			 tow_peer_find(&dev, "::1", NULL) == -EINVAL &&
			 tow_peer_find(&dev, "[::1", &peer) == -EINVAL &&
			 tow_peer_find(&dev, "::1", &peer) == -EBADF && !peer, "find\n");
	ksft_test_result(tow_peer_info(NULL, &info) == -EINVAL, "info\n");
	ksft_test_result(tow_peer_list_get(NULL, 0, &list) == -EINVAL &&
			 tow_peer_list_get(&dev, 0, NULL) == -EINVAL &&
			 tow_peer_list_get(&dev, 0, &list) == -EBADF && !list, "list_get\n");
	tow_peer_list_free(NULL);
	tow_peer_release(NULL);
	ksft_test_result(tow_peer_disconnect(NULL) == 0, "ending nothing\n");
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(7 + 5 + 5 + 4 + 6 + 5);
	test_addresses();
	test_bad_addresses();
	test_which();
	test_entries();
	test_attr();
	test_missing();
	ksft_finished();
}
