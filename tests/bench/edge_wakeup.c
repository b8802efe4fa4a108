// SPDX-License-Identifier: GPL-2.0
/*
 * What it costs to wake up for one of many edges.
 *
 *	edge_wakeup -n EDGES [-r ROUNDS] -a ADDRESS
 *
 * Two processes on this node (ADDRESS is its own), each with one worker: one has the senders of
 * EDGES static edges, the other one the receivers, all of which are watched.  In each round a word
 * is sent over one of them, another one each time; the receiving process sleeps, is woken, and its
 * function for that edge gives the word back over an edge of its own, for which the first process
 * sleeps.  Whatever EDGES is, each round does the same; queues are as large for 10 as for 10,000.
 * The median, the 99th percentile and the mean of rounds in microseconds.
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
#include <unistd.h>

#include <towline/tensor.h>

#include "sample.h"

#define EDGES_MAX	10000U
#define ROUNDS_MAX	100000U
#define WARM		20U
#define WAIT_MS		30000
#define WAIT_US		30000000U
/* Has no divisor in common with any of the numbers of edges that are measured. */
#define STRIDE		7919U
#define NAME_BYTES	32

struct side {
	struct tow_device *dev;
	struct tow_arena *arena;
	struct tow_worker *worker;
	struct tow_peer *peer;
	struct tow_edge *edges[EDGES_MAX], *back;
	uint64_t *word;
};

static const struct tow_tensor_type type = {
	.dtype = { TOW_DTYPE_INT, 64, 1 }, .ndim = 1, .dims = { 1 },
};

static void __attribute__((noreturn)) die(const char *what, int error)
{
	fprintf(stderr, "edge_wakeup: %s: %s\n", what, tow_strerror(error));
	exit(1);
}

static void must(const char *what, int ret)
{
	if (ret < 0)
		die(what, ret);
}

static void open_side(struct side *side, const char *address)
{
	const struct tow_worker_attr attr = { .size = sizeof(attr), .entries = EDGES_MAX };

	must("device", tow_device_open(NULL, 0, &side->dev));
	must("arena", tow_arena_create(side->dev, NULL, &side->arena));
	must("worker", tow_worker_create(side->dev, side->arena, &attr, &side->worker));
	must("peer", tow_peer_connect(side->dev, address, NULL, WAIT_MS, &side->peer));
	side->word = tow_arena_zeroed(side->arena, 1, sizeof(*side->word));
	if (!side->word)
		die("memory", -ENOMEM);
}

/* All ends of one process, before any is connected. */
static void make_edges(struct side *side, uint32_t count, bool sends)
{
	char name[NAME_BYTES];

	for (uint32_t i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "wakeup/%u", i);
		must("edge", sends ? tow_static_sender(side->worker, side->peer, name, &type,
						       &side->edges[i]) :
				     tow_static_receiver(side->worker, side->peer, name, &type, 1,
							 &side->edges[i]));
	}
	must("edge", sends ? tow_static_receiver(side->worker, side->peer, "back", &type, 2,
						 &side->back) :
			     tow_static_sender(side->worker, side->peer, "back", &type, &side->back));
}

static void connect_edges(const struct side *side, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		must("connecting", tow_edge_connect(side->edges[i], WAIT_MS));
	must("connecting", tow_edge_connect(side->back, WAIT_MS));
}

/* ---- the receivers' process ---- */

static void came(void *arg, struct tow_edge *edge, int status)
{
	const struct side *side = arg;

	must("receiving", status);
	must("receiving", tow_edge_consumed(edge));
	must("sending back", tow_edge_send(side->back, side->word, NULL, NULL));
}

/* Until it is killed. */
static void __attribute__((noreturn)) receive(const char *address, uint32_t count)
{
	static struct side side;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	open_side(&side, address);
	make_edges(&side, count, false);
	connect_edges(&side, count);
	for (uint32_t i = 0; i < count; i++)
		must("watching", tow_edge_watch(side.edges[i], came, &side));
	for (;;)
		must("receiving", tow_worker_progress(side.worker, WAIT_US));
}

/* ---- the senders' ---- */

static void send_one(const struct side *side, uint32_t which)
{
	void *data;

	must("sending", tow_edge_send(side->edges[which], side->word, NULL, NULL));
	must("waiting", tow_edge_wait(side->back, WAIT_US, &data, NULL));
	must("waiting", tow_edge_consumed(side->back));
}

static void measure(const struct side *side, uint32_t count, uint32_t rounds)
{
	double *sample = calloc(rounds, sizeof(*sample)), before;
	uint32_t which = 0;

	if (!sample)
		die("memory", -ENOMEM);
	for (uint32_t i = 0; i < WARM + rounds; i++) {
		before = now_us();
		send_one(side, which);
		if (i >= WARM)
			sample[i - WARM] = now_us() - before;
		which = (which + STRIDE) % count;
	}
	report(sample, rounds);
	free(sample);
}

static uint32_t number(const char *text, unsigned long most)
{
	unsigned long value = strtoul(text, NULL, 10);

	if (!value || value > most)
		die(text, -EINVAL);
	return (uint32_t)value;
}

int main(int argc, char **argv)
{
	uint32_t count = 10, rounds = 500;
	const char *address = NULL;
	static struct side side;
	pid_t child;
	int option;

	while ((option = getopt(argc, argv, "n:r:a:")) != -1) {
		if (option == 'n')
			count = number(optarg, EDGES_MAX);
		else if (option == 'r')
			rounds = number(optarg, ROUNDS_MAX);
		else if (option == 'a')
			address = optarg;
		else
			return 2;
	}
	if (!address)
		return 2;
	child = fork();
	if (child < 0)
		die("fork", -errno);
	if (!child)
		receive(address, count);
	open_side(&side, address);
	make_edges(&side, count, true);
	connect_edges(&side, count);
	measure(&side, count, rounds);
	/* The rest ends with the processes. */
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return 0;
}
