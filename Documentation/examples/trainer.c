// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * A trainer whose weights survive it.
 *
 *	trainer start NAME BYTES	makes weights, says so, and waits
 *	trainer resume NAME		takes over what a dead one left
 *
 * The weights are in a persistent region: memory that is registered for RDMA,
 * and that outlives the process for a while under its name.  Exit status: 0
 * success, 1 failure, 2 wrong usage.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <towline/towline.h>

#define LINGER_S 60

/* What the i-th weight is after so many steps; anything that can be checked. */
static uint32_t weight_after(uint32_t step, size_t i)
{
	return step * 2654435761U + (uint32_t)i;
}

static int say(const char *what, int error)
{
	fprintf(stderr, "trainer: %s: %s\n", what, tow_strerror(error));
	return EXIT_FAILURE;
}

static void train(uint32_t *weights, size_t count, uint32_t step)
{
	size_t i;

	for (i = 0; i < count; i++)
		weights[i] = weight_after(step, i);
}

static size_t count_right(const uint32_t *weights, size_t count, uint32_t step)
{
	size_t i, right = 0;

	for (i = 0; i < count; i++)
		right += weights[i] == weight_after(step, i);
	return right;
}

static int start(struct tow_device *dev, const char *name, uint64_t bytes)
{
	struct tow_region_attr attr = {
		.size = sizeof(attr),
		.flags = TOW_REGION_PERSISTENT,
		.linger_s = LINGER_S,
		.name = name,
	};
	struct tow_region *region;
	void *weights;
	int ret;

	ret = tow_region_create(dev, bytes, &attr, &region);
	if (ret)
		return say("no region", ret);
	ret = tow_region_map(region, 0, 0, PROT_READ | PROT_WRITE, &weights);
	if (ret)
		return say("no mapping", ret);
	train(weights, bytes / sizeof(uint32_t), 1000);
	printf("process %d: %llu MiB of weights after step 1000\n", (int)getpid(),
	       (unsigned long long)bytes >> 20);
	fflush(stdout);
	/* Until somebody kills it: nothing is saved, closed or freed. */
	for (;;)
		pause();
}

static int resume(struct tow_device *dev, const char *name)
{
	struct tow_region_info info = { .size = sizeof(info) };
	struct tow_region *region;
	size_t count, right;
	void *weights;
	int ret;

	ret = tow_region_attach(dev, name, LINGER_S, &region);
	if (ret)
		return say(name, ret);
	ret = tow_region_info(region, &info);
	if (!ret)
		ret = tow_region_map(region, 0, 0, PROT_READ | PROT_WRITE, &weights);
	if (ret)
		return say("no mapping", ret);
	count = info.bytes / sizeof(uint32_t);
	right = count_right(weights, count, 1000);
	printf("process %d: took over \"%s\": %zu of %zu weights are as they were\n",
	       (int)getpid(), name, right, count);
	tow_region_destroy(region);
	return right == count ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
	struct tow_device *dev;
	int ret;

	if (argc < 3 || (strcmp(argv[1], "start") != 0 && strcmp(argv[1], "resume") != 0)) {
		fprintf(stderr, "usage: trainer start NAME BYTES | trainer resume NAME\n");
		return 2;
	}
	ret = tow_device_open(NULL, 0, &dev);
	if (ret)
		return say("no device", ret);
	if (!strcmp(argv[1], "resume"))
		ret = resume(dev, argv[2]);
	else
		ret = start(dev, argv[2], argc > 3 ? strtoull(argv[3], NULL, 0) : 1 << 20);
	tow_device_close(dev);
	return ret;
}
