// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * The least that moves a tensor: one node writes it into another's memory, and says so.
 *
 *	ring take NAME		has memory of that name, sleeps until it was written, and adds up
 *	ring give ADDR NAME	writes into the memory of that name on the node at ADDR
 *
 * give waits ten seconds for the name to be there.  Exit status: 0 success, 1 failure, 2 wrong usage.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <towline/slot.h>

#define FLOATS		65536U
#define BYTES		(FLOATS * sizeof(float))
/* In the taker's region, behind the slot. */
#define DATA		4096U
#define WAIT_MS		10000U

/* Hand over the entry that was prepared, and sleep until it has ended. */
static int carry_out(struct tow_queue *queue)
{
	const struct tow_cqe *cqe;
	int ret = tow_queue_submit(queue);

	if (ret >= 0)
		ret = tow_queue_wait_cqe(queue, &cqe, TOW_WAIT_FOREVER);
	if (ret)
		return ret;
	ret = cqe->status;
	tow_queue_cqe_seen(queue);
	return ret;
}

static int take(struct tow_device *dev, const char *name, const char *told)
{
	struct tow_exported *exported;
	struct tow_region *region;
	struct tow_queue *queue;
	struct tow_slot *slot;
	struct tow_sqe *sqe;
	double sum = 0;
	void *memory;
	int ret;

	ret = tow_region_create(dev, DATA + BYTES, NULL, &region);
	if (!ret)
		ret = tow_region_map(region, 0, 0, PROT_READ | PROT_WRITE, &memory);
	if (!ret)
		ret = tow_slot_create(region, 0, told, &slot);
	if (!ret)
		ret = tow_export(region, DATA, BYTES, name, TOW_RIGHT_WRITE, &exported);
	if (!ret)
		ret = tow_queue_create(dev, 1, 0, &queue);
	if (ret)
		return ret;
	sqe = tow_queue_get_sqe(queue);
	if (!sqe)
		return -EBUSY;
	/* Until one notification has come: what was written before it is there. */
	tow_prep_wait(sqe, slot, 1);
	ret = carry_out(queue);
	if (ret)
		return ret;
	for (unsigned int i = 0; i < FLOATS; i++)
		sum += ((float *)memory)[DATA / sizeof(float) + i];
	printf("sum %.0f\n", sum);
	return 0;
}

static int give(struct tow_device *dev, const char *address, const char *name, const char *told)
{
	struct tow_remote *there, *slot;
	struct tow_channel *channel;
	struct tow_region *region;
	struct tow_queue *queue;
	struct tow_peer *peer;
	struct tow_sqe *sqe;
	void *memory;
	int ret;

	ret = tow_peer_connect(dev, address, NULL, WAIT_MS, &peer);
	if (!ret)
		ret = tow_resolve(peer, name, TOW_RIGHT_WRITE, WAIT_MS, &there);
	if (!ret)
		ret = tow_resolve(peer, told, TOW_RIGHT_NOTIFY, WAIT_MS, &slot);
	if (!ret)
		ret = tow_region_create(dev, BYTES, NULL, &region);
	if (!ret)
		ret = tow_region_map(region, 0, 0, PROT_READ | PROT_WRITE, &memory);
	if (!ret)
		ret = tow_queue_create(dev, 1, 0, &queue);
	if (!ret)
		ret = tow_channel_get(queue, peer, 0, &channel);
	if (ret)
		return ret;
	for (unsigned int i = 0; i < FLOATS; i++)
		((float *)memory)[i] = (float)(i % 7);
	sqe = tow_queue_get_sqe(queue);
	if (!sqe)
		return -EBUSY;
	tow_prep_write_notify(sqe, channel, region, 0, there, 0, BYTES, slot);
	return carry_out(queue);
}

int main(int argc, char **argv)
{
	int gives = argc == 4 && !strcmp(argv[1], "give"), ret;
	struct tow_device *dev;
	char told[64];

	if (!gives && (argc != 3 || strcmp(argv[1], "take"))) {
		fputs("usage: ring take NAME | ring give ADDR NAME\n", stderr);
		return 2;
	}
	snprintf(told, sizeof(told), "%.40s/told", argv[argc - 1]);
	ret = tow_device_open(NULL, 0, &dev);
	if (!ret)
		ret = gives ? give(dev, argv[2], argv[3], told) : take(dev, argv[2], told);
	if (ret)
		fprintf(stderr, "ring: %s: %s\n", argv[argc - 1], tow_strerror(ret));
	/* What is left ends with the process. */
	return ret ? EXIT_FAILURE : EXIT_SUCCESS;
}
