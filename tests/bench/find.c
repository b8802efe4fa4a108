// SPDX-License-Identifier: GPL-2.0
/*
 * How long it takes to connect to a node, and to find by name what it
 * publishes; what that costs in memory.
 *
 * What is done (-m), with the node at ADDRESS, which may be our own:
 *
 *	ready	connect to it, of which nothing was known before; milliseconds
 *	among	COUNT exports of our own, our node as its own peer.  ROUNDS times,
 *		SAMPLE of them are taken by chance, each is found for the first
 *		time, and all of them are then exported anew, so that no answer is
 *		kept.  Whatever COUNT is, each round does the same.
 *	serve	export COUNT names, and wait to be killed
 *	find	find the COUNT names that another process serves, each once
 *	batch	the same by one call that does not wait; microseconds for each
 *	vanish	a child exports COUNT names and is killed; seconds to make them,
 *		and until nothing is left of them
 *	memory	memory of the kernel's: of an export and of one that was found
 *		(both ends of it, if ADDRESS is our own), COUNT of them each; of
 *		the connection
 *
 * "among" and "find" print the median, the 99th percentile and the mean in
 * microseconds.
 */
/* build: link -ltowline */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <towline/queue.h>
#include <towline/towline.h>
#include "sample.h"

#define REGION_BYTES	((size_t)64 << 10)
#define WAIT_MS		30000
/* Names that are taken in one round of "among". */
#define SAMPLE		10UL
/* The kernel frees some things a moment later; counters of memory lag behind. */
#define SETTLE_MS	1500
#define NAME_BYTES	48
#define CONNECTIONS	5

struct state {
	const char *device, *address;
	unsigned long count, rounds;
	struct tow_device *tow;
	struct tow_region *region;
	struct tow_exported **exported;
	struct tow_peer *peer;
};

static void __attribute__((noreturn)) die(const char *what, int error)
{
	fprintf(stderr, "find: %s: %s\n", what, strerror(error));
	exit(1);
}

static void must(const char *what, int ret)
{
	if (ret)
		die(what, -ret);
}

static void sleep_ms(unsigned int time_ms)
{
	struct timespec time = { time_ms / 1000, (long)(time_ms % 1000) * 1000000 };

	nanosleep(&time, NULL);
}

/* ---- the parts ------------------------------------------------------------- */

static void open_device(struct state *state)
{
	must(state->device, tow_device_open(state->device, 0, &state->tow));
}

static void make_room(struct state *state)
{
	must("tow_region_create",
	     tow_region_create(state->tow, REGION_BYTES, NULL, &state->region));
	state->exported = calloc(state->count, sizeof(struct tow_exported *));
	if (!state->exported)
		die("memory", ENOMEM);
}

/* As long as names usually are: 32 bytes. */
static const char *name_of(unsigned long number)
{
	static char name[NAME_BYTES];

	snprintf(name, sizeof(name), "model.layers.%010lu.gradient", number);
	return name;
}

static void publish(struct state *state, unsigned long number)
{
	must("tow_export", tow_export(state->region, 0, REGION_BYTES, name_of(number),
				      TOW_RIGHT_READ | TOW_RIGHT_WRITE,
				      &state->exported[number]));
}

static void publish_all(struct state *state)
{
	for (unsigned long i = 0; i < state->count; i++)
		publish(state, i);
}

static void connect_peer(struct state *state)
{
	must("tow_peer_connect", tow_peer_connect(state->tow, state->address, NULL, WAIT_MS,
						  &state->peer));
}

/* Nobody is to know afterwards that we were connected. */
static void forget_peer(struct state *state)
{
	int ret;

	while (!(ret = tow_peer_find(state->tow, state->address, &state->peer)))
		must("tow_peer_disconnect", tow_peer_disconnect(state->peer));
	if (ret != -ENOENT)
		die("tow_peer_find", -ret);
}

static struct tow_remote *find(struct state *state, unsigned long number, uint32_t wait_ms)
{
	struct tow_remote *remote;

	must("tow_resolve", tow_resolve(state->peer, name_of(number), TOW_RIGHT_READ, wait_ms,
					&remote));
	return remote;
}

static long number_in(const char *path, const char *format)
{
	FILE *file = fopen(path, "re");
	char line[200];
	long number = -1;

	if (!file)
		die(path, errno);
	while (number < 0 && fgets(line, sizeof(line), file)) {
		const char *found = strstr(line, format);

		if (found == line)
			number = strtol(line + strlen(format), NULL, 10);
	}
	fclose(file);
	if (number < 0)
		die(path, EPROTO);
	return number;
}

static long exports_there(const struct state *state)
{
	char path[200];

	snprintf(path, sizeof(path), "/sys/class/towline/%s/stats/exports", state->device);
	return number_in(path, "");
}

/* ---- what is done ---------------------------------------------------------- */

static void run_ready(struct state *state)
{
	double before;

	forget_peer(state);
	before = now_us();
	connect_peer(state);
	printf("ready_ms %.2f\n", (now_us() - before) / 1e3);
	tow_peer_release(state->peer);
	forget_peer(state);
}

/* A permutation's beginning: SAMPLE different ones. */
static void choose(unsigned long *all, unsigned long count)
{
	for (unsigned long i = 0; i < SAMPLE; i++) {
		unsigned long other = i + (unsigned long)random() % (count - i);
		unsigned long number = all[i];

		all[i] = all[other];
		all[other] = number;
	}
}

static void among_round(struct state *state, const unsigned long *chosen, double *sample)
{
	for (unsigned long i = 0; i < SAMPLE; i++) {
		struct tow_remote *remote;
		double before = now_us();

		remote = find(state, chosen[i], 0);
		sample[i] = now_us() - before;
		must("tow_remote_release", tow_remote_release(remote));
	}
	for (unsigned long i = 0; i < SAMPLE; i++) {
		must("tow_unexport", tow_unexport(state->exported[chosen[i]]));
		publish(state, chosen[i]);
	}
}

static void run_among(struct state *state)
{
	double *sample = calloc(state->rounds * SAMPLE, sizeof(*sample));
	unsigned long *all = calloc(state->count, sizeof(*all));
	struct tow_exported *kept;

	if (!sample || !all || state->count < SAMPLE)
		die("-n", EINVAL);
	make_room(state);
	/* The slab stays registered when all others are gone. */
	must("tow_export", tow_export(state->region, 0, REGION_BYTES, "kept",
				      TOW_RIGHT_READ | TOW_RIGHT_WRITE, &kept));
	connect_peer(state);
	for (unsigned long i = 0; i < state->count; i++)
		all[i] = i;
	publish_all(state);
	srandom(1);
	for (unsigned long round = 0; round < state->rounds; round++) {
		choose(all, state->count);
		among_round(state, all, sample + round * SAMPLE);
	}
	report(sample, state->rounds * SAMPLE);
	free(sample);
	free(all);
}

static void run_serve(struct state *state)
{
	make_room(state);
	publish_all(state);
	for (;;)
		pause();
}

/* The last name is there when all are. */
static void connect_server(struct state *state)
{
	connect_peer(state);
	must("tow_remote_release",
	     tow_remote_release(find(state, state->count, WAIT_MS)));
}

static void run_find(struct state *state)
{
	double *sample = calloc(state->count, sizeof(*sample));

	if (!sample)
		die("memory", ENOMEM);
	connect_server(state);
	for (unsigned long i = 0; i < state->count; i++) {
		struct tow_remote *remote;
		double before = now_us();

		remote = find(state, i, 0);
		sample[i] = now_us() - before;
		must("tow_remote_release", tow_remote_release(remote));
	}
	report(sample, state->count);
	free(sample);
}

static struct tow_name *all_names(struct state *state)
{
	struct tow_name *names = calloc(state->count, sizeof(*names));

	for (unsigned long i = 0; names && i < state->count; i++) {
		names[i] = (struct tow_name) {
			.peer = state->peer, .name = strdup(name_of(i)), .rights = TOW_RIGHT_READ,
		};
		if (!names[i].name)
			die("memory", ENOMEM);
	}
	if (!names)
		die("memory", ENOMEM);
	return names;
}

/* What serial calls have, too: a remote range for each, which is given up. */
static void take_found(struct tow_queue *queue)
{
	const struct tow_cqe *cqe;
	struct tow_remote *remote;

	must("tow_queue_wait_cqe", tow_queue_wait_cqe(queue, &cqe, WAIT_MS * 1000));
	must("tow_queue_found", tow_queue_found(queue, cqe, &remote));
	tow_queue_cqe_seen(queue);
	must("tow_remote_release", tow_remote_release(remote));
}

static void run_batch(struct state *state)
{
	const struct tow_queue_attr attr = { .size = sizeof(attr), .flags = TOW_QUEUE_RESULTS };
	struct tow_queue *queue;
	struct tow_name *names;
	double before;
	int begun;

	connect_server(state);
	names = all_names(state);
	must("tow_queue_create_with",
	     tow_queue_create_with(state->tow, 1, (uint32_t)state->count, &attr, &queue));
	before = now_us();
	begun = tow_queue_resolve(queue, names, (uint32_t)state->count);
	if (begun != (int)state->count)
		die("tow_queue_resolve", begun < 0 ? -begun : EBUSY);
	for (unsigned long i = 0; i < state->count; i++)
		take_found(queue);
	printf("each_us %.2f\n", (now_us() - before) / (double)state->count);
	for (unsigned long i = 0; i < state->count; i++)
		free((void *)(uintptr_t)names[i].name);
	free(names);
}

/* Exports everything, says how long that took, and waits to be killed. */
static void __attribute__((noreturn)) be_killed(struct state *state, int answer)
{
	double before;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	open_device(state);
	make_room(state);
	before = now_us();
	publish_all(state);
	before = now_us() - before;
	if (write(answer, &before, sizeof(before)) != sizeof(before))
		die("pipe", errno);
	for (;;)
		pause();
}

static void run_vanish(struct state *state)
{
	double made, before;
	int ends[2], status;
	pid_t child;

	if (pipe(ends))
		die("pipe", errno);
	child = fork();
	if (child < 0)
		die("fork", errno);
	if (!child)
		be_killed(state, ends[1]);
	close(ends[1]);
	if (read(ends[0], &made, sizeof(made)) != sizeof(made))
		die("child", EPIPE);
	if (exports_there(state) != (long)state->count)
		die("exports", EPROTO);
	before = now_us();
	kill(child, SIGKILL);
	if (waitpid(child, &status, 0) != child)
		die("waitpid", errno);
	while (exports_there(state))
		sleep_ms(1);
	printf("make_seconds %.3f vanish_seconds %.3f\n", made / 1e6,
	       (now_us() - before) / 1e6);
}

/* What the kernel has for itself: small pieces, and large ones. */
static double kernel_bytes(void)
{
	sleep_ms(SETTLE_MS);
	return 1024.0 * (double)(number_in("/proc/meminfo", "Slab:") +
				 number_in("/proc/meminfo", "VmallocUsed:"));
}

/* A connection is small beside what else goes on: several, and the median. */
static double connection_bytes(struct state *state)
{
	double sample[CONNECTIONS];

	for (int i = 0; i < CONNECTIONS; i++) {
		double before;

		forget_peer(state);
		before = kernel_bytes();
		connect_peer(state);
		sample[i] = kernel_bytes() - before;
		tow_peer_release(state->peer);
	}
	qsort(sample, CONNECTIONS, sizeof(*sample), by_value);
	return sample[CONNECTIONS / 2];
}

static void run_memory(struct state *state)
{
	double before = connection_bytes(state), count = (double)state->count;

	printf("connection_bytes %.0f\n", before);
	connect_peer(state);
	make_room(state);
	before = kernel_bytes();
	publish_all(state);
	printf("export_bytes %.1f\n", (kernel_bytes() - before) / count);
	before = kernel_bytes();
	for (unsigned long i = 0; i < state->count; i++)
		find(state, i, WAIT_MS);
	printf("found_bytes %.1f\n", (kernel_bytes() - before) / count);
}

static const struct {
	const char *name;
	void (*run)(struct state *state);
	bool opens;
} modes[] = {
	{ "ready", run_ready, true },
	{ "among", run_among, true },
	{ "serve", run_serve, true },
	{ "find", run_find, true },
	{ "batch", run_batch, true },
	/* The device's programs are to be one: the child. */
	{ "vanish", run_vanish, false },
	{ "memory", run_memory, true },
};

/* ---- the program ----------------------------------------------------------- */

static void __attribute__((noreturn)) usage(void)
{
	fputs("usage: find -d DEVICE -m ready|among|serve|find|batch|vanish|memory [-a ADDRESS]\n"
	      "            [-n COUNT] [-r ROUNDS]\n", stderr);
	exit(2);
}

static unsigned long number(const char *text)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (!*text || *end || !value || value > 10000000)
		usage();
	return value;
}

static size_t mode_of(const char *name)
{
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		if (!strcmp(modes[i].name, name))
			return i + 1;
	}
	usage();
}

int main(int argc, char **argv)
{
	struct state state = { .count = 1, .rounds = 1 };
	size_t mode = 0;
	int option;

	while ((option = getopt(argc, argv, "d:m:a:n:r:")) != -1) {
		switch (option) {
		case 'd': state.device = optarg; break;
		case 'm': mode = mode_of(optarg); break;
		case 'a': state.address = optarg; break;
		case 'n': state.count = number(optarg); break;
		case 'r': state.rounds = number(optarg); break;
		default: usage();
		}
	}
	if (!state.device || !mode || optind != argc)
		usage();
	if (modes[mode - 1].opens)
		open_device(&state);
	modes[mode - 1].run(&state);
	return 0;
}
