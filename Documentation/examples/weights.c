// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Weights on one node, read by another one through a queue.
 *
 *	weights serve NAME [MIB]	makes weights, exports them, and waits
 *	weights fetch ADDR NAME		reads them from the node at ADDR
 *
 * Both print the same checksum.  fetch waits for the name to be there.  Exit
 * status: 0 success, 1 failure, 2 wrong usage.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <towline/queue.h>

#define MIB		((uint64_t)1 << 20)
#define DEFAULT_MIB	16
#define MIB_MAX		65536
#define WAIT_MS		5000
/* How much one entry reads, and how many are in flight. */
#define PIECE		(256 * (uint64_t)1024)
#define IN_FLIGHT	16

static int say(const char *what, int error)
{
	fprintf(stderr, "weights: %s: %s\n", what, tow_strerror(error));
	return EXIT_FAILURE;
}

/* A tensor of 64-bit numbers: each is made of the one before. */
static void make_weights(uint64_t *weights, uint64_t count)
{
	uint64_t number = 88172645463325252ULL;

	for (uint64_t i = 0; i < count; i++) {
		number ^= number << 13;
		number ^= number >> 7;
		number ^= number << 17;
		weights[i] = number;
	}
}

/* Says where each number is, too. */
static uint64_t checksum(const uint64_t *weights, uint64_t count)
{
	uint64_t sum = 0;

	for (uint64_t i = 0; i < count; i++)
		sum = (sum ^ weights[i]) * 1099511628211ULL;
	return sum;
}

/* ---- serve ---- */

static int export_weights(struct tow_region *region, uint64_t *weights, const char *name,
			  uint64_t bytes)
{
	struct tow_exported *exported;
	int ret;

	make_weights(weights, bytes / sizeof(*weights));
	ret = tow_export(region, 0, bytes, name, TOW_RIGHT_READ, &exported);
	if (ret)
		return say(name, ret);
	printf("serves \"%s\", %" PRIu64 " MiB, checksum %016" PRIx64 "\n", name, bytes / MIB,
	       checksum(weights, bytes / sizeof(*weights)));
	fflush(stdout);
	/* Until somebody kills it: nothing is ended by hand. */
	for (;;)
		pause();
}

static int serve(struct tow_device *dev, const char *name, uint64_t bytes)
{
	struct tow_region *region;
	void *weights;
	int ret;

	ret = tow_region_create(dev, bytes, NULL, &region);
	if (ret)
		return say("no memory for the weights", ret);
	ret = tow_region_map(region, 0, 0, PROT_READ | PROT_WRITE, &weights);
	if (ret)
		ret = say("cannot map them", ret);
	else
		ret = export_weights(region, weights, name, bytes);
	tow_region_destroy(region);
	return ret;
}

/* ---- fetch ---- */

/* What is read, from where, to where. */
struct fetch {
	struct tow_queue *queue;
	struct tow_channel *channel;
	struct tow_remote *remote;
	struct tow_region *region;
	uint64_t bytes;
};

/* As many pieces as there are entries: where the next one begins. */
static uint64_t prepare(const struct fetch *fetch, uint64_t offset)
{
	struct tow_sqe *sqe;
	uint64_t bytes;

	while (offset < fetch->bytes && (sqe = tow_queue_get_sqe(fetch->queue))) {
		bytes = fetch->bytes - offset < PIECE ? fetch->bytes - offset : PIECE;
		tow_prep_read(sqe, fetch->channel, fetch->region, offset, fetch->remote, offset,
			      bytes);
		tow_sqe_set_data(sqe, bytes);
		offset += bytes;
	}
	return offset;
}

/* Deal with what has completed: 0 or a negative errno; adds what was read. */
static int reap(const struct fetch *fetch, uint64_t *read)
{
	const struct tow_cqe *cqe;
	uint32_t index, seen = 0;
	int ret = 0;

	tow_queue_for_each_cqe(fetch->queue, index, cqe) {
		if (cqe->status)
			ret = cqe->status;
		*read += cqe->user_data;
		seen++;
	}
	tow_queue_advance(fetch->queue, seen);
	return ret;
}

/* The whole range, in pieces, of which some are always on their way. */
static int read_all(const struct fetch *fetch)
{
	uint64_t offset = 0, read = 0;
	int ret;

	while (read < fetch->bytes) {
		offset = prepare(fetch, offset);
		ret = tow_queue_submit_and_wait(fetch->queue, 1);
		if (ret >= 0)
			ret = reap(fetch, &read);
		if (ret)
			return ret;
	}
	return 0;
}

static int make_queue(struct tow_device *dev, struct tow_peer *peer, struct fetch *fetch)
{
	int ret;

	ret = tow_queue_create(dev, IN_FLIGHT, IN_FLIGHT, &fetch->queue);
	if (!ret)
		ret = tow_channel_get(fetch->queue, peer, TOW_CHANNEL_ANY, &fetch->channel);
	if (!ret)
		ret = tow_region_create(dev, fetch->bytes, NULL, &fetch->region);
	return ret;
}

static int show(const struct fetch *fetch, const char *name)
{
	void *weights;
	int ret = tow_region_map(fetch->region, 0, 0, PROT_READ, &weights);

	if (ret)
		return say("cannot map what was read", ret);
	printf("fetched \"%s\", %" PRIu64 " MiB, checksum %016" PRIx64 "\n", name,
	       fetch->bytes / MIB, checksum(weights, fetch->bytes / sizeof(uint64_t)));
	return EXIT_SUCCESS;
}

static int fetch_from(struct tow_device *dev, struct tow_peer *peer, const char *name)
{
	struct fetch fetch = { 0 };
	int ret;

	ret = tow_resolve(peer, name, TOW_RIGHT_READ, WAIT_MS, &fetch.remote);
	if (ret)
		return say(name, ret);
	fetch.bytes = tow_remote_bytes(fetch.remote);
	ret = make_queue(dev, peer, &fetch);
	if (!ret)
		ret = read_all(&fetch);
	ret = ret ? say("cannot read them", ret) : show(&fetch, name);
	tow_queue_destroy(fetch.queue);
	tow_region_destroy(fetch.region);
	tow_remote_release(fetch.remote);
	return ret;
}

static int fetch(struct tow_device *dev, const char *address, const char *name)
{
	struct tow_peer *peer;
	int ret;

	ret = tow_peer_connect(dev, address, NULL, 0, &peer);
	if (ret)
		return say(address, ret);
	ret = fetch_from(dev, peer, name);
	tow_peer_release(peer);
	return ret;
}

/* ---- the command ---- */

/* 0: that is no size. */
static uint64_t size_of(const char *text)
{
	char *end;
	unsigned long mib = text ? strtoul(text, &end, 10) : DEFAULT_MIB;

	if (text && (*end || mib > MIB_MAX))
		mib = 0;
	return mib * MIB;
}

int main(int argc, char **argv)
{
	int serves = argc >= 3 && argc <= 4 && !strcmp(argv[1], "serve");
	uint64_t bytes = serves ? size_of(argv[3]) : 0;
	struct tow_device *dev;
	int ret;

	if (serves ? !bytes : argc != 4 || strcmp(argv[1], "fetch") != 0) {
		fprintf(stderr, "usage: weights serve NAME [MIB]\n       weights fetch ADDR NAME\n");
		return 2;
	}
	ret = tow_device_open(NULL, 0, &dev);
	if (ret)
		return say("no device", ret);
	ret = serves ? serve(dev, argv[2], bytes) : fetch(dev, argv[2], argv[3]);
	tow_device_close(dev);
	return ret;
}
