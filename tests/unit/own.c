// SPDX-License-Identifier: GPL-2.0
/*
 * A node's own address, from what the kernel says of an RDMA device's port: of several the
 * best, in files as they are in sysfs.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kselftest.h>

#include "tow_scratch.h"
#include "../../libshim/bootstrap/inside.h"

#define NONE	"0000:0000:0000:0000:0000:0000:0000:0000"
#define LINK	"fe80:0000:0000:0000:5054:00ff:fe12:3456"
#define GLOBAL	"2001:0db8:0000:0000:0000:0000:0000:0001"
#define V4	"0000:0000:0000:0000:0000:ffff:c000:0201"
#define V4_TOO	"0000:0000:0000:0000:0000:ffff:c000:0202"
#define GIDS	4

/* GIDs and their interfaces, in their order; an address, or NULL: there is none. */
struct port {
	const char *said;
	const char *gids[GIDS], *interfaces[GIDS];
	const char *address;
};

static const struct port ports[] = {
	{ "IPv4 behind IPv6", { LINK, GLOBAL, V4 }, { "eth0", "eth0", "eth0" }, "192.0.2.1" },
	{ "the first of two", { V4, V4_TOO }, { "eth0", "eth0" }, "192.0.2.1" },
	{ "IPv6", { LINK, GLOBAL }, { "eth0", "eth0" }, "2001:db8::1" },
	{ "of one link", { NONE, LINK }, { "", "eth1" }, "fe80::5054:ff:fe12:3456%eth1" },
	{ "behind empty places", { NONE, NONE, V4 }, { "", "", "eth0" }, "192.0.2.1" },
	{ "what is none", { "none", V4 }, { "eth0", "eth0" }, "192.0.2.1" },
	{ "of InfiniBand", { LINK, GLOBAL }, { NULL, NULL }, NULL },
	{ "without an interface", { V4 }, { "" }, NULL },
	{ "empty", { NONE }, { "" }, NULL },
	{ "no port", { NULL }, { NULL }, NULL },
};

static void write_line(const char *folder, int index, const char *text)
{
	char name[16], line[64];

	snprintf(name, sizeof(name), "%d", index);
	snprintf(line, sizeof(line), "%s\n", text);
	write_file(folder, name, line);
}

static bool finds(const struct port *port)
{
	char address[TOW_GROUP_ADDRESS_BYTES] = "";
	bool good;
	int ret;

	make_folder("dev");
	make_folder("dev/ports");
	make_folder("dev/ports/1");
	make_folder("dev/ports/1/gids");
	make_folder("dev/ports/1/gid_attrs");
	make_folder("dev/ports/1/gid_attrs/ndevs");
	for (int i = 0; i < GIDS && port->gids[i]; i++) {
		write_line("dev/ports/1/gids", i, port->gids[i]);
		if (port->interfaces[i])
			write_line("dev/ports/1/gid_attrs/ndevs", i, port->interfaces[i]);
	}
	ret = towi_own_address(scratch, "dev", 1, address);
	scratch_remove("dev");
	good = port->address ? !ret && !strcmp(address, port->address) : ret == -EADDRNOTAVAIL;
	if (!good)
		ksft_print_msg("%d %s\n", ret, address);
	return good;
}

/* Whatever interfaces there are: no host has addresses of TEST-NET, or of documents. */
static const struct {
	const char *text;
	bool own;
} addresses[] = {
	{ "127.0.0.1", true }, { "127.0.1.1", true }, { "::1", true }, { "localhost", true },
	{ "192.0.2.1", false }, { "2001:db8::1", false }, { "126.0.0.1", false },
};

static bool is_known(const char *text, bool own)
{
	struct towi_address address;

	return !towi_address(text, &address) && towi_is_own(&address) == own;
}

int main(void)
{
	ksft_print_header();
	scratch_make();
	ksft_set_plan(ARRAY_SIZE(ports) + ARRAY_SIZE(addresses));
	for (size_t i = 0; i < ARRAY_SIZE(ports); i++)
		ksft_test_result(finds(&ports[i]), "%s\n", ports[i].said);
	for (size_t i = 0; i < ARRAY_SIZE(addresses); i++)
		ksft_test_result(is_known(addresses[i].text, addresses[i].own), "%s is %s\n",
				 addresses[i].text, addresses[i].own ? "this node" : "another one");
	ksft_finished();
}
