// SPDX-License-Identifier: GPL-2.0
/*
 * Writes of 8 bytes by a program of the library's, one after the other: what queue_write.py does
 * from Python.
 *
 *	queue_write DEVICE each|blocks COUNT
 *
 * The other end is a region of our own node's.  COUNT entries, each of one write, or of 2,000 pieces,
 * whose places are in two arrays.  Prints us_each: of a write, or of a piece.
 */
/* build: link -ltowline */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <towline/queue.h>
#include "sample.h"

#define NAME		"bench-queue-write"
#define BYTES		((uint64_t)64 << 10)
#define WIDTH		8U
#define PIECES		2000U
#define WARM		50U

static struct tow_region *here, *there, *list;
static struct tow_exported *exported;
static struct tow_remote *remote;
static struct tow_queue *queue;
static struct tow_channel *channel;
static struct tow_vector *vectors;
static uint64_t offsets[PIECES], remote_offsets[PIECES];

static void must(const char *what, int ret)
{
	if (ret >= 0)
		return;
	fprintf(stderr, "queue_write: %s: %s\n", what, tow_strerror(ret));
	exit(1);
}

static void make_ends(const char *name)
{
	char address[64];
	const char *all = getenv("TOW_LAB_ADDRS");
	struct tow_device *dev;
	struct tow_peer *peer;
	void *memory;

	must("TOW_LAB_ADDRS", all ? 0 : -ENOENT);
	snprintf(address, sizeof(address), "%.*s", (int)strcspn(all, ","), all);
	must("device", tow_device_open(name, 0, &dev));
	must("region", tow_region_create(dev, BYTES, NULL, &here));
	must("region", tow_region_create(dev, BYTES, NULL, &there));
	must("export", tow_export(there, 0, BYTES, NAME, TOW_RIGHT_WRITE, &exported));
	must("peer", tow_peer_connect(dev, address, NULL, 30000, &peer));
	must("resolve", tow_resolve(peer, NAME, TOW_RIGHT_WRITE, 10000, &remote));
	must("queue", tow_queue_create(dev, 256, 0, &queue));
	must("channel", tow_channel_get(queue, peer, 0, &channel));
	must("list", tow_region_create(dev, PIECES * sizeof(*vectors), NULL, &list));
	must("list", tow_region_map(list, 0, 0, PROT_READ | PROT_WRITE, &memory));
	vectors = memory;
	for (uint32_t i = 0; i < PIECES; i++) {
		offsets[i] = (uint64_t)i * WIDTH;
		remote_offsets[i] = (uint64_t)(PIECES - 1 - i) * WIDTH;
	}
}

static void carry_out(void)
{
	const struct tow_cqe *cqe;

	must("submit", tow_queue_submit(queue));
	must("wait", tow_queue_wait_cqe(queue, &cqe, TOW_WAIT_FOREVER));
	must("write", cqe->status);
	tow_queue_cqe_seen(queue);
}

/* There is one: the one before was carried out. */
static struct tow_sqe *entry(void)
{
	struct tow_sqe *sqe = tow_queue_get_sqe(queue);

	if (!sqe)
		abort();
	return sqe;
}

static void write_each(void)
{
	tow_prep_write(entry(), channel, here, 0, remote, 0, WIDTH);
	carry_out();
}

static void write_blocks(void)
{
	struct tow_sqe *sqe = entry();

	for (uint32_t i = 0; i < PIECES; i++)
		vectors[i] = (struct tow_vector){
			.offset = offsets[i], .remote_offset = remote_offsets[i], .bytes = WIDTH,
		};
	tow_prep_write(sqe, channel, here, 0, remote, 0, 0);
	tow_sqe_set_vector(sqe, list, 0, PIECES);
	carry_out();
}

int main(int argc, char **argv)
{
	bool each = argc == 4 && !strcmp(argv[2], "each");
	int count = argc == 4 ? atoi(argv[3]) : 0;
	void (*write)(void) = each ? write_each : write_blocks;
	double before;

	if (count <= 0 || (!each && strcmp(argv[2], "blocks"))) {
		fputs("usage: queue_write DEVICE each|blocks COUNT\n", stderr);
		return 2;
	}
	make_ends(argv[1]);
	for (uint32_t i = 0; i < WARM; i++)
		write();
	before = now_us();
	for (int i = 0; i < count; i++)
		write();
	printf("us_each %.4f\n", (now_us() - before) / count / (each ? 1 : PIECES));
	return 0;
}
