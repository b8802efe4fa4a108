// SPDX-License-Identifier: GPL-2.0
/*
 * One end of two edges of one worker, of which one goes on when the other's memory is taken back:
 *
 *	taken static|dynamic receive|send ADDRESS NAME BYTES [DEVICE_BYTES]
 *
 * NAME/taken is of that kind; with DEVICE_BYTES its tensors at this end are in another device's
 * memory (tow_vgpu.ko), which wants its place while steps are on their way.  NAME/kept is static, of
 * memory of the pool, and goes on for some steps after that.  Every byte is looked at.  It says
 * what has ended the first one.
 */
/* build: link -ltowline */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <towline/tensor.h>

#include "device.h"

#define WAIT_MS		30000U
#define SOON_US		10000U
#define SLOTS		3U
#define IN_FLIGHT	4U
#define MOVED_AT	10U	/* the step */
#define AFTERWARDS	30U
#define PATIENCE_S	100

static struct device device;
static struct tow_device *dev;
static struct tow_arena *plain;
static struct tow_worker *worker;
static struct tow_peer *peer;
static struct tow_tensor_type type = { { TOW_DTYPE_UINT, 8, 1 }, 1, { 0 } };
static pthread_t mover;
static bool dynamic, moves, moving;

struct way {
	struct tow_edge *edge;
	unsigned char *tensors[IN_FLIGHT];	/* a sender's */
	uint64_t steps;			/* that have come, or were sent */
	int ended;			/* with that error */
};

static struct way taken, kept;

static void __attribute__((noreturn)) die(const char *doing, int error)
{
	fflush(stdout);
	fprintf(stderr, "taken: %s: %s\n", doing, tow_strerror(error));
	exit(1);
}

static void must(const char *doing, int ret)
{
	if (ret < 0)
		die(doing, ret);
}

static unsigned char byte_of(const struct way *way, uint64_t step, uint64_t at)
{
	return (unsigned char)(step * 41 + at * 7 + (at >> 8) + (way == &kept));
}

/* ---- the device ---- */

static void *move(void *unused)
{
	must("moving", device_move(&device));
	return unused;
}

/* While more is on its way. */
static void move_now(const struct way *way)
{
	if (way != &taken || !moves || moving || way->steps < MOVED_AT)
		return;
	moving = true;
	if (pthread_create(&mover, NULL, move, NULL))
		die("a thread", -ENOMEM);
}

/* ---- the ends ---- */

static void note_end(void *arg, uint64_t step, int status)
{
	struct way *way = arg;

	(void)step;
	if (status && !way->ended)
		way->ended = status;
}

static void send_one(struct way *way)
{
	unsigned char *tensor = way->tensors[way->steps % IN_FLIGHT], *seen;
	int ret;

	if (tow_edge_pending(way->edge) >= IN_FLIGHT)
		return;
	seen = device_seen(&device, tensor);
	for (int64_t at = 0; at < type.dims[0]; at++)
		seen[at] = byte_of(way, way->steps + 1, (uint64_t)at);
	ret = dynamic && way == &taken ? tow_dynamic_send(way->edge, &type, tensor, note_end, way) :
					 tow_edge_send(way->edge, tensor, note_end, way);
	if (ret < 0 && ret != -EAGAIN && !way->ended)
		way->ended = ret;
	way->steps += !ret;
}

static void receive_one(struct way *way)
{
	const unsigned char *seen;
	uint64_t step;
	void *data;
	int ret = tow_edge_test(way->edge, &data, &step);

	if (ret < 0)
		way->ended = ret;
	if (ret <= 0)
		return;
	seen = device_seen(&device, data);
	for (int64_t at = 0; at < type.dims[0]; at++)
		if (seen[at] != byte_of(way, step, (uint64_t)at))
			die("other bytes", -EBADMSG);
	must("order", step == way->steps + 1 ? 0 : -EPROTO);
	way->steps = step;
	ret = tow_edge_consumed(way->edge);
	if (ret && ret != -EBUSY)
		way->ended = ret;
}

/* Also the other end's, which is told so. */
static void end_way(struct way *way)
{
	must("closing", tow_edge_close(way->edge));
	way->edge = NULL;
}

static void go_on(struct way *way, void (*one)(struct way *way))
{
	if (!way->edge)
		return;
	if (!way->ended)
		one(way);
	move_now(way);
	if (way->ended)
		end_way(way);
}

/* How often the one went on after the other had ended. */
static uint64_t run(void (*one)(struct way *way), bool sends)
{
	time_t until = time(NULL) + PATIENCE_S;
	uint64_t before = 0;

	while (kept.edge && time(NULL) < until) {
		go_on(&taken, one);
		if (taken.edge)
			before = kept.steps;
		/* The receiver is told when it has them all. */
		if (sends && kept.steps >= before + AFTERWARDS) {
			if (!tow_edge_pending(kept.edge))
				end_way(&kept);
		} else {
			go_on(&kept, one);
		}
		must("progress", tow_worker_progress(worker, SOON_US));
	}
	must("in time", kept.edge || taken.edge ? -ETIMEDOUT : 0);
	return kept.steps - before;
}

/* ---- begin and end ---- */

static void make_receivers(const char *names[2], struct tow_region **region)
{
	uint64_t bytes = 0;

	must("size", tow_static_bytes(&type, SLOTS, &bytes));
	must("region", tow_region_create(dev, bytes, NULL, region));
	must("edge", dynamic ? tow_dynamic_receiver(worker, peer, names[0], SLOTS, &taken.edge) :
			       tow_static_receiver(worker, peer, names[0], &type, SLOTS, &taken.edge));
	must("edge", tow_static_receiver_in(worker, peer, names[1], &type, SLOTS, *region,
					    &kept.edge));
}

static void make_senders(const char *names[2])
{
	struct tow_arena *arena = moves ? device.arena : plain;
	size_t bytes = (size_t)type.dims[0];

	must("edge", dynamic ? tow_dynamic_sender(worker, peer, names[0], &taken.edge) :
			       tow_static_sender(worker, peer, names[0], &type, &taken.edge));
	must("edge", tow_static_sender(worker, peer, names[1], &type, &kept.edge));
	for (uint32_t i = 0; i < IN_FLIGHT; i++) {
		taken.tensors[i] = tow_arena_alloc(arena, bytes);
		kept.tensors[i] = tow_arena_alloc(plain, bytes);
		if (!taken.tensors[i] || !kept.tensors[i])
			die("memory", -errno);
	}
}

/* Nothing comes to where it was. */
static void look_at_device(void)
{
	int64_t landed;

	if (pthread_join(mover, NULL))
		die("a thread", -EINVAL);
	sleep(1);
	landed = device_landed(&device);
	if (landed)
		die("something landed", landed < 0 ? (int)landed : -EUCLEAN);
}

static int usage(void)
{
	fputs("usage: taken static|dynamic receive|send ADDRESS NAME BYTES [DEVICE_BYTES]\n", stderr);
	return 2;
}

static void begin(const char *address, const char *device_bytes)
{
	must("device", tow_device_open(NULL, 0, &dev));
	must("arena", tow_arena_create(dev, NULL, &plain));
	if (moves)
		must("another device's memory",
		     device_begin(dev, strtoull(device_bytes, NULL, 10), &device));
	must("worker", tow_worker_create(dev, moves ? device.arena : plain, NULL, &worker));
	must("peer", tow_peer_connect(dev, address, NULL, WAIT_MS, &peer));
}

static void end(struct tow_region *region)
{
	must("worker", tow_worker_destroy(worker));
	tow_peer_release(peer);
	must("region", tow_region_destroy(region));
	must("arena", tow_arena_destroy(plain));
	if (moves)
		must("device's memory", device_end(&device));
	tow_device_close(dev);
}

int main(int argc, char **argv)
{
	char first[64], second[64];
	const char *names[2] = { first, second };
	struct tow_region *region = NULL;
	uint64_t more;
	bool sends;

	if (argc < 6 || argc > 7)
		return usage();
	dynamic = !strcmp(argv[1], "dynamic");
	sends = !strcmp(argv[2], "send");
	moves = argc > 6;
	snprintf(first, sizeof(first), "%s/taken", argv[4]);
	snprintf(second, sizeof(second), "%s/kept", argv[4]);
	type.dims[0] = strtoll(argv[5], NULL, 10);
	begin(argv[3], argv[6]);
	if (sends)
		make_senders(names);
	else
		make_receivers(names, &region);
	must("connecting", tow_edge_connect(taken.edge, WAIT_MS));
	must("connecting", tow_edge_connect(kept.edge, WAIT_MS));
	more = run(sends ? send_one : receive_one, sends);
	if (moves)
		look_at_device();
	end(region);
	printf("%s %s: %" PRIu64 " steps, ended %d; %" PRIu64 " more of the other, ended %d\n", argv[1],
	       argv[2], taken.steps, taken.ended, more, kept.ended);
	return 0;
}
