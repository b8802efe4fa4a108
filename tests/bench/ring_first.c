// SPDX-License-Identifier: GPL-2.0
/*
 * How long a new process takes until its first write to a peer has completed,
 * where the nodes are connected already: from exec, over opening the device,
 * memory of its own, the peer, a name on it and a queue.  COUNT processes one
 * after the other; the median, the 99th percentile and the mean in microseconds.
 *
 * The node is its own peer.  verbs_first.c does the same without towline.
 */
#include <getopt.h>
#include "ring.h"
#include "spawn.h"
#include "work.h"

#define NAME	"bench"
#define BYTES	((__u64)64 << 10)

static int must(const char *what, int ret)
{
	if (ret < 0)
		die(what, -ret);
	return ret;
}

/* What the new process does. */
static void write_once(const char *device, const char *address, int done)
{
	int fd = must(device, ring_open_device(device)), status = 0, channel;
	__u64 peer = 0, region = 0, remote = 0;
	struct ring ring = { .fd = -1 };

	must("region", ring_region(fd, BYTES, &region));
	must("connect", ring_connect(fd, address, &peer));
	must("resolve", ring_resolve(fd, peer, NAME, &remote));
	must("queue", ring_make(fd, 1, false, &ring));
	channel = must("channel", ring_channel(&ring, peer, 0));
	*ring_next(&ring) = (struct tow_sqe){
		.opcode = TOW_OP_WRITE, .channel = (__u16)channel,
		.region = region, .remote = remote, .bytes = 8,
	};
	must("enter", ring_enter(&ring, 1));
	if (!ring_reap(&ring, &status))
		status = -ETIMEDOUT;
	must("write", status);
	spawn_done(done);
}

/* The node is connected to itself, and publishes what is written to. */
static void prepare(const char *device, const char *address)
{
	int fd = must(device, ring_open_device(device));
	__u64 peer = 0, region = 0;

	must("region", ring_region(fd, BYTES, &region));
	must("export", ring_export(fd, region, 0, BYTES, NAME));
	must("connect", ring_connect(fd, address, &peer));
}

int main(int argc, char **argv)
{
	const char *device = NULL, *address = NULL;
	uint32_t count = 1, done = 0;
	bool valid = true;
	int option;

	while ((option = getopt(argc, argv, "d:a:n:c:")) != -1) {
		switch (option) {
		case 'd': device = optarg; break;
		case 'a': address = optarg; break;
		case 'n': valid = valid && work_number(optarg, 1, 100000, &count); break;
		case 'c': valid = valid && work_number(optarg, 3, 1000, &done); break;
		default: valid = false;
		}
	}
	if (!valid || !device || !address || optind != argc) {
		fputs("usage: ring_first -d DEVICE -a OWN_ADDRESS [-n COUNT]\n", stderr);
		return 2;
	}
	if (done) {
		write_once(device, address, (int)done);
		return 0;
	}
	prepare(device, address);
	spawn_report((char *[]){ argv[0], (char *)"-d", (char *)device, (char *)"-a",
				 (char *)address, NULL, NULL, NULL }, count);
	return 0;
}
