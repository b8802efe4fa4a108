// SPDX-License-Identifier: GPL-2.0
/*
 * One end of edges over which go tensors of all kinds, of which every byte is looked at:
 *
 *	tensors KIND receive|send ADDRESS NAME COUNT LARGEST [TIMEOUT_MS]
 *
 * KIND: static (an edge for each tensor, of 1 to 4 slots), dynamic, rendezvous; COUNT tensors
 * by chance, of all of DLPack's types, 0 to 8 dimensions, 0 to LARGEST bytes, one of them of
 * LARGEST; both ends rest by chance.  kept: COUNT steps of LARGEST bytes by a static edge into
 * a region that outlives the receiver, which says each step and may be killed; the next one
 * goes on, as the sender does.  stream: COUNT steps of whatever is there by a static edge, as
 * fast as they go.  rest: an end of such an edge that does nothing.  TIMEOUT_MS is the worker's.
 *
 * $TOW_DEVICE_BYTES: its tensors are in so much memory of another device (tow_vgpu.ko).
 */
/* build: link -ltowline */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <towline/queue.h>
#include <towline/tensor.h>

#include "device.h"

#define WAIT_MS		30000U
#define WAIT_US		30000000U
#define SOON_US		50000U
#define REST_US		3000U
#define LARGE		((uint64_t)4 << 20)	/* such are alone */
#define IN_FLIGHT	4U
#define COUNT_MAX	100000U
#define KEPT_SLOTS	3U

static struct tow_device *dev;
static struct tow_arena *arena;
static struct device device;	/* without an arena: the other one is of the pool */
static struct tow_worker *worker;
static struct tow_peer *peer;
static struct tow_edge *edge;
static const char *what;
static uint64_t count, largest, moved;
static bool sends;

static void __attribute__((noreturn)) die(const char *doing, uint64_t step, int error)
{
	fflush(stdout);
	fprintf(stderr, "tensors: %s: %s, %" PRIu64 ": %s\n", what, doing, step,
		tow_strerror(error));
	exit(1);
}

static void must(const char *doing, uint64_t step, int ret)
{
	if (ret < 0)
		die(doing, step, ret);
}

/* ---- chance, the same at both ends but for rests ---- */

static uint64_t chance(uint64_t number)
{
	number = (number + 1) * 0x9e3779b97f4a7c15ULL;
	number ^= number >> 31;
	number *= 0xbf58476d1ce4e5b9ULL;
	return number ^ number >> 29;
}

static void rest(uint64_t step)
{
	uint64_t roll = chance(step * 2 + sends + 1000);

	if (roll % 3 == 0)
		usleep((useconds_t)(roll / 3 % REST_US));
}

/* The nth tensor's type. */
static struct tow_tensor_type type_of(uint64_t n)
{
	static const uint8_t bits[TOW_DTYPE_FLOAT4_E2M1FN + 1] = {
		32, 64, 32, 64, 16, 128, 8, 8, 8, 8, 8, 8, 8, 8, 8, 6, 6, 4,
	};
	struct tow_tensor_type type = { .ndim = (uint32_t)(n % (TOW_DIMS_MAX + 1)) };
	uint64_t roll = chance(n), bytes = 1;

	type.dtype.code = (uint8_t)(n % (TOW_DTYPE_FLOAT4_E2M1FN + 1));
	type.dtype.bits = bits[type.dtype.code];
	type.dtype.lanes = (uint16_t)(1 + roll % 2);
	if (n == count / 2 + 1)
		return (struct tow_tensor_type){ { TOW_DTYPE_UINT, 8, 1 }, 1, { (int64_t)largest } };
	if (!type.ndim)
		return type;
	for (uint32_t i = 1; i < type.ndim; i++)
		type.dims[i] = (int64_t)(1 + (roll >> 3 * i) % 3);
	/* As many small ones as large ones. */
	while (bytes < LARGE && chance(n + bytes) % 8)
		bytes *= 2;
	type.dims[0] = n % 11 ? (int64_t)(bytes / 64 + roll % 5) : 0;
	return type;
}

static uint64_t bytes_of(const struct tow_tensor_type *type, uint64_t step)
{
	uint64_t bytes = 0;

	must("type", step, tow_tensor_bytes(type, &bytes));
	return bytes;
}

static uint64_t word_at(uint64_t step, uint64_t at)
{
	return (step << 40 ^ at) * 0x9e3779b97f4a7c15ULL;
}

static void fill(unsigned char *tensor, uint64_t bytes, uint64_t step)
{
	for (uint64_t at = 0; at < bytes; at += sizeof(uint64_t)) {
		uint64_t word = word_at(step, at), left = bytes - at;

		memcpy(tensor + at, &word, left < sizeof(word) ? left : sizeof(word));
	}
}

static void expect(const unsigned char *tensor, uint64_t bytes, uint64_t step)
{
	for (uint64_t at = 0; at < bytes; at += sizeof(uint64_t)) {
		uint64_t word = word_at(step, at), left = bytes - at;

		if (memcmp(tensor + at, &word, left < sizeof(word) ? left : sizeof(word))) {
			fprintf(stderr, "at byte %" PRIu64 " of %" PRIu64 "\n", at, bytes);
			die("other bytes", step, -EBADMSG);
		}
	}
	moved += bytes;
}

/* ---- what a sender has on its way ---- */

static void sent(void *arg, uint64_t step, int status)
{
	must("sent", step, status);
	must("freeing", step, tow_arena_free(arena, arg));
}

static void until_pending(uint32_t most)
{
	while (tow_edge_pending(edge) > most)
		must("progress", 0, tow_worker_progress(worker, WAIT_US));
}

/* Filled, and there is room for it on its way. */
static unsigned char *next_tensor(uint64_t bytes, uint64_t step)
{
	unsigned char *tensor;

	rest(step);
	until_pending(bytes < LARGE ? IN_FLIGHT - 1 : 0);
	tensor = tow_arena_alloc(arena, bytes);
	if (!tensor)
		die("memory", step, -errno);
	fill(device_seen(&device, tensor), bytes, step);
	moved += bytes;
	return tensor;
}

/* ---- static: an edge for each ---- */

static void open_static(uint64_t n, const struct tow_tensor_type *type, uint32_t slots)
{
	char name[64];

	snprintf(name, sizeof(name), "%s/%" PRIu64, what, n);
	must("edge", n, sends ? tow_static_sender(worker, peer, name, type, &edge) :
				tow_static_receiver(worker, peer, name, type, slots, &edge));
	must("connecting", n, tow_edge_connect(edge, WAIT_MS));
}

static void one_static(uint64_t n)
{
	struct tow_tensor_type type = type_of(n);
	uint64_t bytes = bytes_of(&type, n), step;
	uint32_t slots = bytes < LARGE ? (uint32_t)(1 + n % 4) : 1;
	void *data;

	open_static(n, &type, slots);
	for (uint64_t i = 1; i <= slots + 1; i++) {
		if (sends) {
			data = next_tensor(bytes, n * 16 + i);
			must("sending", i, tow_edge_send(edge, data, sent, data));
			continue;
		}
		must("receiving", i, tow_edge_wait(edge, WAIT_US, &data, &step));
		rest(step);
		expect(device_seen(&device, data), bytes, n * 16 + i);
		must("consuming", step, tow_edge_consumed(edge));
	}
	/* What was consumed is told before the receiver goes. */
	if (sends)
		until_pending(0);
	must("closing", n, tow_edge_close(edge));
	edge = NULL;
}

static void all_static(void)
{
	for (uint64_t n = 1; n <= count; n++)
		one_static(n);
}

/* ---- dynamic ---- */

static void all_dynamic(void)
{
	struct tow_tensor_type type, come;
	uint64_t bytes, step;
	void *data;

	must("edge", 0, sends ? tow_dynamic_sender(worker, peer, what, &edge) :
				tow_dynamic_receiver(worker, peer, what, 3, &edge));
	must("connecting", 0, tow_edge_connect(edge, WAIT_MS));
	for (uint64_t n = 1; n <= count; n++) {
		type = type_of(n);
		bytes = bytes_of(&type, n);
		if (sends) {
			data = next_tensor(bytes, n);
			must("sending", n, tow_dynamic_send(edge, &type, data, sent, data));
			continue;
		}
		must("receiving", n, tow_edge_wait(edge, WAIT_US, &data, &step));
		must("type", n, tow_edge_type(edge, &come));
		if (step != n || bytes_of(&come, n) != bytes || come.ndim != type.ndim)
			die("another one", n, -EBADMSG);
		rest(step);
		expect(device_seen(&device, data), bytes, n);
		must("consuming", n, tow_edge_consumed(edge));
	}
}

/* ---- rendezvous ---- */

static void all_rendezvous(void)
{
	struct tow_tensor_type type, come;
	uint64_t bytes;
	char key[16];
	void *data;

	must("edge", 0, sends ? tow_rendezvous_sender(worker, peer, what, 8, &edge) :
				tow_rendezvous_receiver(worker, peer, what, 8, &edge));
	must("connecting", 0, tow_edge_connect(edge, WAIT_MS));
	for (uint64_t n = 1; n <= count; n++) {
		type = type_of(n);
		bytes = bytes_of(&type, n);
		snprintf(key, sizeof(key), "key %" PRIu64, n % 7);
		if (sends) {
			data = next_tensor(bytes, n);
			must("offering", n, tow_rendezvous_put(edge, key, n, &type, data, 0, sent,
							       data));
			continue;
		}
		rest(n);
		must("asking", n, tow_rendezvous_wait(edge, key, n, WAIT_US, &come, &data));
		if (bytes_of(&come, n) != bytes || come.ndim != type.ndim)
			die("another one", n, -EBADMSG);
		expect(device_seen(&device, data), bytes, n);
		must("freeing", n, tow_arena_free(arena, data));
	}
}

/* ---- kept ---- */

static struct tow_tensor_type kept_type(void)
{
	return (struct tow_tensor_type){ { TOW_DTYPE_UINT, 8, 1 }, 1, { (int64_t)largest } };
}

/* The region of the one before, or one of our own. */
static struct tow_region *kept_region(const struct tow_tensor_type *type)
{
	struct tow_region_attr attr = { .size = sizeof(attr), .flags = TOW_REGION_PERSISTENT,
					.name = what };
	struct tow_region *region = NULL;
	uint64_t bytes;
	int ret;

	must("size", 0, tow_static_bytes(type, KEPT_SLOTS, &bytes));
	/* Until the kernel has ended who was killed. */
	while ((ret = tow_region_attach(dev, what, 0, &region)) == -EBUSY)
		usleep(1000);
	if (ret == -ENOENT)
		ret = tow_region_create(dev, bytes, &attr, &region);
	must("region", 0, ret);
	return region;
}

static void receive_kept(void)
{
	struct tow_tensor_type type = kept_type();
	struct tow_region *region = kept_region(&type);
	uint64_t step = 0, wanted = 0;
	void *data;

	must("edge", 0, tow_static_receiver_in(worker, peer, what, &type, KEPT_SLOTS, region,
					       &edge));
	must("connecting", 0, tow_edge_connect(edge, WAIT_MS));
	must("next", 0, tow_edge_next(edge, &wanted));
	for (; step < count; wanted++) {
		must("receiving", wanted, tow_edge_wait(edge, WAIT_US, &data, &step));
		if (step != wanted)
			die("another step", step, -EBADMSG);
		expect(data, largest, step);
		printf("step %" PRIu64 "\n", step);
		must("consuming", step, tow_edge_consumed(edge));
	}
	must("closing", 0, tow_edge_close(edge));
	edge = NULL;
	must("region", 0, tow_region_destroy(region));
}

/* The step that comes next, at a receiver that may be another one than before. */
static uint64_t meet_receiver(void)
{
	struct tow_tensor_type type = kept_type();
	uint64_t step = 0;

	int ret;

	/* The one before may be found as long as the kernel has not ended it. */
	do {
		must("closing", 0, tow_edge_close(edge));
		must("edge", 0, tow_static_sender(worker, peer, what, &type, &edge));
		ret = tow_edge_connect(edge, WAIT_MS);
	} while (ret == -ESTALE);
	must("connecting", 0, ret);
	must("next", 0, tow_edge_next(edge, &step));
	return step;
}

static void note_end(void *arg, uint64_t step, int status)
{
	int *error = arg;

	(void)step;
	if (status && !*error)
		*error = status;
}

/* From that step on: 0, or what has ended the edge. */
static int send_from(uint64_t step, unsigned char *const *tensors)
{
	int ret = 0, error = 0;

	for (; step <= count && !error && ret >= 0; step++) {
		while (tow_edge_pending(edge) > KEPT_SLOTS - 1 && ret >= 0)
			ret = tow_worker_progress(worker, WAIT_US);
		if (error || ret < 0)
			break;
		fill(tensors[step % (KEPT_SLOTS + 1)], largest, step);
		ret = tow_edge_send(edge, tensors[step % (KEPT_SLOTS + 1)], note_end, &error);
	}
	while (tow_edge_pending(edge) && ret >= 0)
		ret = tow_worker_progress(worker, WAIT_US);
	return error ? error : ret < 0 ? ret : 0;
}

static void send_kept(void)
{
	unsigned char *tensors[KEPT_SLOTS + 1];
	uint64_t step = 1;
	int ret;

	for (unsigned int i = 0; i <= KEPT_SLOTS; i++) {
		tensors[i] = tow_arena_alloc(arena, largest);
		if (!tensors[i])
			die("memory", i, -errno);
	}
	do {
		step = meet_receiver();
		printf("from step %" PRIu64 "\n", step);
		ret = send_from(step, tensors);
	} while (ret == -ESTALE);
	must("sending", step, ret);
	moved = count * largest;
}

/* ---- stream ---- */

static void begin_stream(void)
{
	struct tow_tensor_type type = kept_type();

	must("edge", 0, sends ? tow_static_sender(worker, peer, what, &type, &edge) :
				tow_static_receiver(worker, peer, what, &type, KEPT_SLOTS, &edge));
	must("connecting", 0, tow_edge_connect(edge, WAIT_MS));
}

/* Until it is killed. */
static void do_nothing(void)
{
	begin_stream();
	for (;;)
		must("resting", 0, tow_worker_progress(worker, WAIT_US));
}

/* Says what has ended it, at once: what is on its way then may be for long. */
static void stream(void)
{
	uint64_t step = 1;
	void *data;
	int ret;

	begin_stream();
	data = tow_arena_zeroed(arena, 1, largest);
	if (!data)
		die("memory", 0, -errno);
	for (; step <= count; step++) {
		if (!sends) {
			must("receiving", step, tow_edge_wait(edge, WAIT_US, &data, NULL));
			must("consuming", step, tow_edge_consumed(edge));
			continue;
		}
		while ((ret = tow_edge_send(edge, data, NULL, NULL)) == -EAGAIN)
			must("progress", step, tow_worker_progress(worker, SOON_US));
		must("sending", step, ret);
	}
}

/* ---- all of it ---- */

static int usage(void)
{
	fputs("usage: tensors static|dynamic|rendezvous|kept|stream|rest receive|send ADDRESS NAME\n"
	      "	COUNT LARGEST [TIMEOUT_MS]\n", stderr);
	return 2;
}

static bool run(const char *kind)
{
	if (!strcmp(kind, "static"))
		all_static();
	else if (!strcmp(kind, "dynamic"))
		all_dynamic();
	else if (!strcmp(kind, "rendezvous"))
		all_rendezvous();
	else if (!strcmp(kind, "stream"))
		stream();
	else if (!strcmp(kind, "rest"))
		do_nothing();
	else if (!strcmp(kind, "kept") && sends)
		send_kept();
	else if (!strcmp(kind, "kept"))
		receive_kept();
	else
		return false;
	if (edge && sends)
		until_pending(0);
	must("closing", 0, tow_edge_close(edge));
	return true;
}

/* Tensors are in a device's memory, or the pool. */
static void make_arena(const char *device_bytes)
{
	if (!device_bytes) {
		must("arena", 0, tow_arena_create(dev, NULL, &arena));
		return;
	}
	must("another device's memory", 0,
	     device_begin(dev, strtoull(device_bytes, NULL, 10), &device));
	arena = device.arena;
}

int main(int argc, char **argv)
{
	struct tow_worker_attr attr = { .size = sizeof(attr) };

	if (argc < 7 || argc > 8)
		return usage();
	if (argc == 8)
		attr.timeout_ms = (uint32_t)strtoul(argv[7], NULL, 10);
	setvbuf(stdout, NULL, _IOLBF, 0);
	sends = !strcmp(argv[2], "send");
	what = argv[4];
	count = strtoull(argv[5], NULL, 10);
	largest = strtoull(argv[6], NULL, 10);
	if ((!sends && strcmp(argv[2], "receive")) || !count || count > COUNT_MAX || !largest)
		return usage();
	must("device", 0, tow_device_open(NULL, 0, &dev));
	make_arena(getenv("TOW_DEVICE_BYTES"));
	must("worker", 0, tow_worker_create(dev, arena, &attr, &worker));
	must("peer", 0, tow_peer_connect(dev, argv[3], NULL, WAIT_MS, &peer));
	if (!run(argv[1]))
		return usage();
	printf("%s %s: %" PRIu64 " tensors, %" PRIu64 " bytes, %" PRIu64 " copied\n", argv[1],
	       argv[2], count, moved, tow_worker_copied(worker));
	must("worker", 0, tow_worker_destroy(worker));
	tow_peer_release(peer);
	must("arena", 0, device.arena ? device_end(&device) : tow_arena_destroy(arena));
	tow_device_close(dev);
	return 0;
}
