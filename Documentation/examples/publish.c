// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Memory that is found by its name on another node.
 *
 *	publish NAME			exports memory, says so, and waits
 *	publish find ADDR NAME [MS]	finds it on the node at ADDR
 *
 * find waits MS milliseconds (default: 5000) for the name to be there.  Exit
 * status: 0 success, 1 failure, 2 wrong usage.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <towline/towline.h>

#define BYTES	(1 << 20)
#define WAIT_MS	5000

static int say(const char *what, int error)
{
	fprintf(stderr, "publish: %s: %s\n", what, tow_strerror(error));
	return EXIT_FAILURE;
}

static int publish(struct tow_device *dev, const char *name)
{
	struct tow_exported *exported;
	struct tow_region *region;
	int ret;

	ret = tow_region_create(dev, BYTES, NULL, &region);
	if (ret)
		return say("no region", ret);
	ret = tow_export(region, 0, BYTES, name, TOW_RIGHT_READ, &exported);
	if (ret) {
		tow_region_destroy(region);
		return say(name, ret);
	}
	printf("process %d: publishes \"%s\", %d bytes\n", (int)getpid(), name, BYTES);
	fflush(stdout);
	/* Until somebody kills it: nothing is ended by hand. */
	for (;;)
		pause();
}

/* Which connection it is: the epoch counts those there were. */
static int describe(const struct tow_peer *peer)
{
	struct tow_peer_info info = { .size = sizeof(info) };
	int ret = tow_peer_info(peer, &info);

	if (ret)
		return say("no word about the peer", ret);
	printf("peer %" PRIu64 ": %s, epoch %u, %u queue pairs\n", (uint64_t)info.peer,
	       info.flags & TOW_PEER_AUTHENTICATED ? "authenticated" : "not authenticated",
	       info.epoch, info.qps);
	return EXIT_SUCCESS;
}

static int resolve(struct tow_peer *peer, const char *name, uint32_t wait_ms)
{
	struct tow_remote *remote;
	int ret;

	ret = tow_resolve(peer, name, TOW_RIGHT_READ, wait_ms, &remote);
	if (ret)
		return say(name, ret);
	printf("process %d: found \"%s\", %" PRIu64 " bytes\n", (int)getpid(), name,
	       tow_remote_bytes(remote));
	return tow_remote_release(remote) ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int find(struct tow_device *dev, const char *address, const char *name, uint32_t wait_ms)
{
	struct tow_peer *peer;
	int ret, described;

	ret = tow_peer_connect(dev, address, NULL, 0, &peer);
	if (ret)
		return say(address, ret);
	ret = resolve(peer, name, wait_ms);
	described = describe(peer);
	tow_peer_release(peer);
	return ret ? ret : described;
}

int main(int argc, char **argv)
{
	bool finds = argc > 1 && !strcmp(argv[1], "find");
	struct tow_device *dev;
	int ret;

	if (finds ? argc < 4 || argc > 5 : argc != 2) {
		fprintf(stderr, "usage: publish NAME | publish find ADDR NAME [MS]\n");
		return 2;
	}
	ret = tow_device_open(NULL, 0, &dev);
	if (ret)
		return say("no device", ret);
	if (finds)
		ret = find(dev, argv[2], argv[3], argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : WAIT_MS);
	else
		ret = publish(dev, argv[1]);
	tow_device_close(dev);
	return ret;
}
