// SPDX-License-Identifier: GPL-2.0
/*
 * What allocating tensors costs: an arena against glibc's malloc(), and the tracer
 * against a program that knows by itself what goes where.
 *
 *	tensor_alloc -w arena|memfd|malloc [-n COUNT] [-t THREADS] [-r ROUNDS]
 *	tensor_alloc -w tracer|placed [-r ROUNDS]
 *
 * arena, memfd, malloc: each thread has 200 tensors; COUNT times (default 200,000) one of them
 * goes and another comes.  Their sizes are those of section 5 of "Fast Distributed Deep
 * Learning over RDMA" (EuroSys '19): half over 10 KB, a fifth over 1 MB (here up to
 * 2 MiB).  Nothing is written to them.  ns_per_pair: one to go, and one to come.  memfd is
 * an arena, too, whose regions are of such a file and not of a device: no module is needed,
 * nor a guest, which is emulated.
 *
 * tracer, placed: steps of a graph of 200 nodes, each of which has three buffers of such
 * sizes, up to 64 KiB, writes them once, and sends the first one.  The first two
 * steps are not counted.  us_per_step.
 */
/* build: link -l:libtowline.a -lm */
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <towline/tracer.h>

#include "../../libshim/alloc/arena.h"
#include "../../libshim/alloc/fit.h"
#include "sample.h"

#define LIVE		200
#define NODES		200
#define BUFFERS		3
#define THREADS_MAX	64
#define ROUNDS_MAX	1000

static struct tow_arena *arena;
static unsigned long pairs = 200000, rounds = 7, threads = 1;

static void __attribute__((noreturn)) die(const char *what, int error)
{
	fprintf(stderr, "tensor_alloc: %s: %s\n", what, tow_strerror(error));
	exit(1);
}

/* xorshift: rand() would be half of what is measured. */
static uint32_t next(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

static size_t some_bytes(uint32_t *state)
{
	uint32_t kind = next(state) % 10;
	size_t least = kind < 5 ? 64 : kind < 8 ? 10000 : 1000000;
	size_t most = kind < 5 ? 10000 : kind < 8 ? 1000000 : 2097152;

	return least + next(state) % (most - least);
}

/* ---- arena, malloc ---------------------------------------------------------- */

static void *come(size_t bytes)
{
	void *ptr = arena ? tow_arena_alloc(arena, bytes) : malloc(bytes);

	if (!ptr)
		die("no memory", -errno);
	return ptr;
}

static void go(void *ptr)
{
	if (arena)
		tow_arena_free(arena, ptr);
	else
		free(ptr);
}

/* From the first address on that a span may begin at. */
/* NOLINTNEXTLINE(readability-non-const-parameter): as arenas call it */
static int get_memfd(void *from, size_t *bytes, void **at, struct tow_region **region)
{
	int fd = memfd_create("arena", MFD_CLOEXEC);
	char *mapped, *made;

	(void)from;
	if (fd < 0 || ftruncate(fd, (off_t)*bytes))
		die("no memfd", -errno);
	mapped = mmap(NULL, *bytes + TOWI_SPAN_GRAIN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mapped == MAP_FAILED)
		die("no addresses", -errno);
	made = mapped + (-(uintptr_t)mapped & (TOWI_SPAN_GRAIN - 1));
	if (mmap(made, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
		die("no memory", -errno);
	close(fd);
	*at = made;
	*region = (struct tow_region *)made;
	return 0;
}

/* They go with the program. */
static int put_memfd(void *from, struct tow_region *region)
{
	(void)from;
	(void)region;
	return 0;
}

static int make_arena(const char *what, struct tow_device **dev)
{
	struct towi_source memfd = { .get = get_memfd, .put = put_memfd };
	int ret;

	if (!strcmp(what, "memfd"))
		return towi_arena_create(&memfd, NULL, &arena);
	ret = tow_device_open(NULL, 0, dev);
	return ret ? ret : tow_arena_create(*dev, NULL, &arena);
}

static void *exchange(void *arg)
{
	uint32_t state = (uint32_t)(uintptr_t)arg * 2654435761U + 1;
	void *live[LIVE];

	for (size_t i = 0; i < LIVE; i++)
		live[i] = come(some_bytes(&state));
	for (unsigned long i = 0; i < pairs; i++) {
		size_t which = next(&state) % LIVE;

		go(live[which]);
		live[which] = come(some_bytes(&state));
	}
	for (size_t i = 0; i < LIVE; i++)
		go(live[i]);
	return NULL;
}

static void measure_exchange(void)
{
	double samples[ROUNDS_MAX], start;
	pthread_t thread[THREADS_MAX];

	for (unsigned long round = 0; round <= rounds; round++) {
		start = now_us();
		for (uintptr_t i = 0; i < threads; i++)
			if (pthread_create(&thread[i], NULL, exchange, (void *)(i + 1)))
				die("pthread_create", -EAGAIN);
		for (unsigned long i = 0; i < threads; i++)
			pthread_join(thread[i], NULL);
		/* The first one has everything made. */
		if (round)
			samples[round - 1] = (now_us() - start) * 1000 / (double)pairs;
	}
	qsort(samples, rounds, sizeof(*samples), by_value);
	printf("ns_per_pair %.1f\n", samples[rounds / 2]);
}

/* ---- tracer, placed --------------------------------------------------------- */

static struct tow_tracer *tracer;
static uint32_t numbers[NODES];

/* Who knows by itself: the first buffer of a node is sent. */
static void *place(uint32_t node, int which, size_t bytes)
{
	void *ptr = NULL;

	if (tracer)
		ptr = tow_tracer_alloc(tracer, numbers[node], bytes);
	else if (!which)
		ptr = tow_arena_alloc(arena, bytes);
	else if (posix_memalign(&ptr, TOW_ARENA_ALIGNMENT, bytes))
		ptr = NULL;
	if (!ptr)
		die("no memory", -errno);
	return ptr;
}

static void displace(void *ptr, int which)
{
	if (tracer)
		tow_tracer_free(tracer, ptr);
	else if (!which)
		tow_arena_free(arena, ptr);
	else
		free(ptr);
}

static void run_node(uint32_t node, uint32_t *state)
{
	void *buffers[BUFFERS];

	for (int i = 0; i < BUFFERS; i++) {
		size_t bytes = some_bytes(state) % 65536 + 1;

		buffers[i] = place(node, i, bytes);
		memset(buffers[i], i, bytes);
		if (tracer && !i)
			tow_tracer_transferred(tracer, buffers[i], bytes);
	}
	for (int i = 0; i < BUFFERS; i++)
		displace(buffers[i], i);
}

static void measure_steps(void)
{
	double samples[ROUNDS_MAX], start;

	for (unsigned long step = 0; step < rounds + 2; step++) {
		uint32_t state = 1;

		start = now_us();
		if (tracer)
			tow_tracer_step_begin(tracer);
		for (uint32_t node = 0; node < NODES; node++)
			run_node(node, &state);
		if (tracer)
			tow_tracer_step_end(tracer);
		if (step >= 2)
			samples[step - 2] = now_us() - start;
	}
	qsort(samples, rounds, sizeof(*samples), by_value);
	printf("us_per_step %.1f\n", samples[rounds / 2]);
}

static void make_tracer(void)
{
	char name[32];

	if (tow_tracer_create(arena, &tracer))
		die("no tracer", -ENOMEM);
	for (int i = 0; i < NODES; i++) {
		snprintf(name, sizeof(name), "node %d", i);
		if (tow_tracer_node(tracer, name, &numbers[i]))
			die("no node", -ENOMEM);
	}
}

/* ---- all of it -------------------------------------------------------------- */

static unsigned long number(const char *text, unsigned long most)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (*end || !value || value > most)
		die(text, -EINVAL);
	return value;
}

static void __attribute__((noreturn)) usage(void)
{
	fputs("usage: tensor_alloc -w arena|memfd|malloc|tracer|placed [-n COUNT] [-t THREADS] [-r ROUNDS]\n",
	      stderr);
	exit(2);
}

int main(int argc, char **argv)
{
	const char *what = "";
	struct tow_device *dev = NULL;
	int option, ret;

	while ((option = getopt(argc, argv, "w:n:t:r:")) != -1) {
		if (option == 'w')
			what = optarg;
		else if (option == 'n')
			pairs = number(optarg, UINT32_MAX);
		else if (option == 't')
			threads = number(optarg, THREADS_MAX);
		else if (option == 'r')
			rounds = number(optarg, ROUNDS_MAX - 2);
		else
			usage();
	}
	if (strcmp(what, "malloc")) {
		ret = make_arena(what, &dev);
		if (ret)
			die("no arena", ret);
	}
	if (!strcmp(what, "tracer"))
		make_tracer();
	if (!strcmp(what, "arena") || !strcmp(what, "memfd") || !strcmp(what, "malloc"))
		measure_exchange();
	else if (!strcmp(what, "tracer") || !strcmp(what, "placed"))
		measure_steps();
	else
		usage();
	tow_tracer_destroy(tracer);
	tow_arena_destroy(arena);
	tow_device_close(dev);
	return 0;
}
