// SPDX-License-Identifier: GPL-2.0
/*
 * How long it takes until memory is ready for RDMA: through towline, and as
 * programs do it today.
 *
 * Ways to have memory (-w):
 *
 *	region	tow_region_create(), tow_region_map(), every page touched
 *	export	the same by raw calls, and the slabs registered for peers as an
 *		export does it (tow_expose.ko; regions of one slab)
 *	verbs	malloc(), every page touched, ibv_reg_mr()
 *
 * What is done with it (-m):
 *
 *	stock	COUNT are made and kept, then all are given back, ROUNDS times; the
 *		time of each until it is ready.  Between rounds the pool gets the
 *		time to have its memory zeroed.  With -b there is a round before
 *		that does not count: without, the first is of slabs that were never
 *		registered.
 *	sustained	COUNT are kept; ROUNDS * COUNT times the oldest is given
 *		back and another one made, without a pause; the time of both.
 *	seconds	one is made; seconds until it is ready
 *	most	as many as can be had, COUNT at most; GiB
 *	random	one is made; the time of one load at a random place.  With -u it
 *		is mapped once more, where the kernel has to use small pages.
 *
 * "stock" and "sustained" print the median, the 99th percentile and the mean in
 * microseconds.
 */
/* build: link -ltowline -libverbs */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <towline/towline.h>
#include "sample.h"
#include "tests/kselftest/tow_verbs.h"
#include "tests/modules/tow_expose.h"

#define TOUCH_BYTES	4096UL
#define SLAB_BYTES	(2UL << 20)
#define LOADS		4000000UL
#define GIB		((double)(1UL << 30))

/* One piece of memory. */
struct buffer {
	volatile uint8_t *memory;
	struct tow_region *region;
	struct tow_region_create made;
	struct tow_expose_slab exposed;
	struct ibv_mr *mr;
};

struct way;

struct state {
	const struct way *way;
	const char *device;
	unsigned long bytes, count, rounds;
	bool unaligned;
	bool before;
	struct tow_device *tow;
	int client, expose;
	uint8_t *room;
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	struct buffer *buffer;
};

/* A way to have memory; make returns 0 or a negative errno. */
struct way {
	const char *name;
	void (*open)(struct state *state);
	int (*make)(struct state *state, struct buffer *buffer);
	void (*end)(struct state *state, struct buffer *buffer);
};

static void __attribute__((noreturn)) die(const char *what, int error)
{
	fprintf(stderr, "region_ready: %s: %s\n", what, strerror(error));
	exit(1);
}

static void touch(volatile uint8_t *memory, unsigned long bytes)
{
	for (unsigned long at = 0; at < bytes; at += TOUCH_BYTES)
		memory[at] = 1;
}

/* ---- towline's regions ----------------------------------------------------- */

static void region_open(struct state *state)
{
	int ret = tow_device_open(state->device, 0, &state->tow);

	if (ret)
		die(state->device, -ret);
}

static int region_make(struct state *state, struct buffer *buffer)
{
	void *memory;
	int ret;

	ret = tow_region_create(state->tow, state->bytes, NULL, &buffer->region);
	if (ret)
		return ret;
	ret = tow_region_map(buffer->region, 0, 0, PROT_READ | PROT_WRITE, &memory);
	if (ret)
		return ret;
	buffer->memory = memory;
	touch(buffer->memory, state->bytes);
	return 0;
}

static void region_end(struct state *state, struct buffer *buffer)
{
	int ret = tow_region_destroy(buffer->region);

	(void)state;
	if (ret)
		die("tow_region_destroy", -ret);
}

/* ---- regions that peers reach ---------------------------------------------- */

static void export_open(struct state *state)
{
	size_t bytes = (state->count + 1) * SLAB_BYTES;
	char path[100];
	uint8_t *room;

	snprintf(path, sizeof(path), "/dev/towline/%s", state->device);
	state->client = open(path, O_RDWR | O_CLOEXEC);
	if (state->client < 0)
		die(path, errno);
	state->expose = open(TOW_EXPOSE_NODE, O_RDWR | O_CLOEXEC);
	if (state->expose < 0)
		die(TOW_EXPOSE_NODE, errno);
	room = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (room == MAP_FAILED)
		die("address space", errno);
	state->room = room + (SLAB_BYTES - (uintptr_t)room % SLAB_BYTES);
}

static int export_make(struct state *state, struct buffer *buffer)
{
	uint8_t *place = state->room + (buffer - state->buffer) * (ptrdiff_t)SLAB_BYTES;

	buffer->made = (struct tow_region_create){
		.size = sizeof(buffer->made), .bytes = state->bytes,
	};
	if (ioctl(state->client, TOW_IOCTL_REGION_CREATE, &buffer->made))
		return -errno;
	if (mmap(place, buffer->made.map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
		 buffer->made.fd, 0) == MAP_FAILED)
		return -errno;
	buffer->memory = place;
	touch(buffer->memory, state->bytes);
	buffer->exposed = (struct tow_expose_slab){
		.region_fd = buffer->made.fd, .rights = TOW_EXPOSE_WRITE,
	};
	return ioctl(state->expose, TOW_EXPOSE_EXPOSE, &buffer->exposed) ? -errno : 0;
}

static void export_end(struct state *state, struct buffer *buffer)
{
	struct tow_region_destroy call = {
		.size = sizeof(call), .handle = buffer->made.handle,
	};

	if (ioctl(state->expose, TOW_EXPOSE_HIDE, (unsigned long)buffer->exposed.id) ||
	    munmap((void *)buffer->memory, buffer->made.map_bytes) ||
	    close(buffer->made.fd) || ioctl(state->client, TOW_IOCTL_REGION_DESTROY, &call))
		die("giving a region back", errno);
}

/* ---- the peer -------------------------------------------------------------- */

static void verbs_open(struct state *state)
{
	state->verbs = tow_verbs_open(state->device);
	if (!state->verbs)
		die(state->device, ENODEV);
	state->pd = ibv_alloc_pd(state->verbs);
	if (!state->pd)
		die("ibv_alloc_pd", errno);
}

static int verbs_make(struct state *state, struct buffer *buffer)
{
	void *memory = malloc(state->bytes);

	if (!memory)
		return -ENOMEM;
	buffer->memory = memory;
	touch(buffer->memory, state->bytes);
	buffer->mr = ibv_reg_mr(state->pd, memory, state->bytes,
				IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
				IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	return buffer->mr ? 0 : -errno;
}

static void verbs_end(struct state *state, struct buffer *buffer)
{
	int ret = ibv_dereg_mr(buffer->mr);

	(void)state;
	if (ret)
		die("ibv_dereg_mr", ret);
	free((void *)buffer->memory);
}

static const struct way ways[] = {
	{ "region", region_open, region_make, region_end },
	{ "export", export_open, export_make, export_end },
	{ "verbs", verbs_open, verbs_make, verbs_end },
};

/* ---- what is done with it -------------------------------------------------- */

static void make(struct state *state, struct buffer *buffer)
{
	int ret = state->way->make(state, buffer);

	if (ret)
		die(state->way->name, -ret);
}

static void end_all(struct state *state)
{
	for (unsigned long i = 0; i < state->count; i++)
		state->way->end(state, &state->buffer[i]);
}

/* -1 if there is no such file. */
static long stat_of(const struct state *state, const char *name)
{
	char path[200], line[32] = "-1";
	FILE *file;

	snprintf(path, sizeof(path), "/sys/class/towline/%s/stats/%s", state->device, name);
	file = fopen(path, "re");
	if (!file)
		return -1;
	if (!fgets(line, sizeof(line), file))
		line[0] = '\0';
	fclose(file);
	return strtol(line, NULL, 10);
}

/* Both sides pause; the pool's is over when there is nothing left to zero. */
static void pause_between(const struct state *state)
{
	struct timespec pause = { .tv_nsec = 20000000 };

	do {
		nanosleep(&pause, NULL);
	} while (stat_of(state, "dirty_slabs") > 0 ||
		 stat_of(state, "free_slabs") < stat_of(state, "slabs"));
}

static void stock_once(struct state *state)
{
	pause_between(state);
	for (unsigned long i = 0; i < state->count; i++)
		make(state, &state->buffer[i]);
	end_all(state);
}

static void run_stock(struct state *state)
{
	double *sample = calloc(state->rounds * state->count, sizeof(*sample));
	double *next = sample;

	if (!sample)
		die("memory", ENOMEM);
	if (state->before)
		stock_once(state);
	for (unsigned long round = 0; round < state->rounds; round++) {
		pause_between(state);
		for (unsigned long i = 0; i < state->count; i++) {
			double before = now_us();

			make(state, &state->buffer[i]);
			*next++ = now_us() - before;
		}
		end_all(state);
	}
	report(sample, state->rounds * state->count);
	free(sample);
}

static void run_sustained(struct state *state)
{
	unsigned long turns = state->rounds * state->count;
	double *sample = calloc(turns, sizeof(*sample));

	if (!sample)
		die("memory", ENOMEM);
	for (unsigned long i = 0; i < state->count; i++)
		make(state, &state->buffer[i]);
	for (unsigned long turn = 0; turn < turns; turn++) {
		struct buffer *oldest = &state->buffer[turn % state->count];
		double before = now_us();

		state->way->end(state, oldest);
		make(state, oldest);
		sample[turn] = now_us() - before;
	}
	report(sample, turns);
	end_all(state);
	free(sample);
}

static void run_seconds(struct state *state)
{
	double before = now_us();

	make(state, &state->buffer[0]);
	printf("seconds %.4f\n", (now_us() - before) / 1e6);
	state->way->end(state, &state->buffer[0]);
}

static void run_most(struct state *state)
{
	unsigned long made = 0;

	while (made < state->count && !state->way->make(state, &state->buffer[made]))
		made++;
	printf("gib %.4f\n", (double)(made * state->bytes) / GIB);
	for (unsigned long i = 0; i < made; i++)
		state->way->end(state, &state->buffer[i]);
}

/* The same memory at an address where no large page fits. */
static volatile uint8_t *map_unaligned(struct state *state, struct buffer *buffer)
{
	uint8_t *room;
	int fd;

	if (tow_region_fd(buffer->region, 0, &fd))
		die("tow_region_fd", EINVAL);
	room = mmap(NULL, state->bytes + 2 * SLAB_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
		    -1, 0);
	if (room == MAP_FAILED)
		die("address space", errno);
	room += SLAB_BYTES - (uintptr_t)room % SLAB_BYTES + TOUCH_BYTES;
	if (mmap(room, state->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
	    MAP_FAILED)
		die("mapping", errno);
	close(fd);
	return room;
}

static void run_random(struct state *state)
{
	struct buffer *buffer = &state->buffer[0];
	volatile uint8_t *memory;
	uint64_t place = 88172645463325252ULL, sum = 0;
	double before;

	make(state, buffer);
	memory = state->unaligned ? map_unaligned(state, buffer) : buffer->memory;
	touch(memory, state->bytes);
	before = now_us();
	for (unsigned long i = 0; i < LOADS; i++) {
		place ^= place << 13;
		place ^= place >> 7;
		place ^= place << 17;
		/* The next place depends on what is there: no load overtakes. */
		place += memory[place % state->bytes];
		sum += place;
	}
	printf("ns %.2f (%u)\n", (now_us() - before) * 1e3 / (double)LOADS,
	       (unsigned int)(sum & 1));
	if (memory != buffer->memory)
		munmap((void *)memory, state->bytes);
	state->way->end(state, buffer);
}

static const struct {
	const char *name;
	void (*run)(struct state *state);
} modes[] = {
	{ "stock", run_stock },
	{ "sustained", run_sustained },
	{ "seconds", run_seconds },
	{ "most", run_most },
	{ "random", run_random },
};

/* ---- the program ----------------------------------------------------------- */

static void __attribute__((noreturn)) usage(void)
{
	fputs("usage: region_ready -d DEVICE -w region|export|verbs\n"
	      "                    -m stock|sustained|seconds|most|random [-u]\n"
	      "                    [-s BYTES] [-n COUNT] [-r ROUNDS] [-b]\n", stderr);
	exit(2);
}

static unsigned long number(const char *text)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (!*text || *end || !value || value > 1UL << 40)
		usage();
	return value;
}

static const struct way *way_of(const char *name)
{
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		if (!strcmp(ways[i].name, name))
			return &ways[i];
	}
	usage();
}

static void (*mode_of(const char *name))(struct state *state)
{
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		if (!strcmp(modes[i].name, name))
			return modes[i].run;
	}
	usage();
}

int main(int argc, char **argv)
{
	struct state state = { .bytes = 1 << 20, .count = 1, .rounds = 1 };
	void (*run)(struct state *state) = NULL;
	int option;

	while ((option = getopt(argc, argv, "d:w:m:s:n:r:ub")) != -1) {
		switch (option) {
		case 'd': state.device = optarg; break;
		case 'w': state.way = way_of(optarg); break;
		case 'm': run = mode_of(optarg); break;
		case 's': state.bytes = number(optarg); break;
		case 'n': state.count = number(optarg); break;
		case 'r': state.rounds = number(optarg); break;
		case 'u': state.unaligned = true; break;
		case 'b': state.before = true; break;
		default: usage();
		}
	}
	if (!state.device || !state.way || !run || optind != argc)
		usage();
	state.buffer = calloc(state.count, sizeof(*state.buffer));
	if (!state.buffer)
		die("memory", ENOMEM);
	state.way->open(&state);
	run(&state);
	return 0;
}
