// SPDX-License-Identifier: GPL-2.0
/*
 * Tensors over edges: one a step, of which the receiver takes the largest element
 * (reduce_max), as in figure 8 of "Fast Distributed Deep Learning over RDMA" (EuroSys '19).
 *
 *	tensor_edge -k static|copy|dynamic|rendezvous [-m both|send|serve] [-s BYTES]
 *		[-n STEPS] -a ADDRESS
 *
 * Both ends in this process (ADDRESS is this node's own), or one of them, and the other one on
 * the node at ADDRESS.  A step begins when the one before it was read.
 *
 * static, dynamic, rendezvous: sent from where the tensor is.  copy: a static edge, and a
 * tensor that is in ordinary memory, so the library copies it first.  The memory is
 * the same in all steps, and warm.  us_per_step, copied_bytes; cpu_us_per_step is of this
 * process alone: what the kernel does for it elsewhere is not in it.
 */
/* build: link -ltowline */
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <towline/queue.h>
#include <towline/tensor.h>

#include "sample.h"

#define WAIT_MS		30000
#define WAIT_US		30000000U
#define WARM		3U
#define STEPS_MAX	100000U
#define KEY		"tensor"

static struct tow_device *dev;
static struct tow_arena *arena;
static struct tow_worker *worker;
static struct tow_peer *peer;
static struct tow_edge *sender, *receiver;
static bool sends = true, receives = true;
static struct tow_tensor_type type = {
	.dtype = { TOW_DTYPE_FLOAT, 32, 1 }, .ndim = 1, .dims = { 256 },
};

static void __attribute__((noreturn)) die(const char *what, int error)
{
	fprintf(stderr, "tensor_edge: %s: %s\n", what, tow_strerror(error));
	exit(1);
}

static void must(const char *what, int ret)
{
	if (ret < 0)
		die(what, ret);
}

static float largest(const float *tensor)
{
	float most = tensor[0];

	for (int64_t i = 1; i < type.dims[0]; i++)
		most = tensor[i] > most ? tensor[i] : most;
	return most;
}

/* All that was sent has arrived. */
static void finish(void)
{
	while (tow_edge_pending(sender))
		must("sending", tow_worker_progress(worker, WAIT_US));
}

/* ---- one step of each kind: the largest element ---- */

static void send_static(const void *tensor, uint64_t step)
{
	(void)step;
	must("sending", tow_edge_send(sender, tensor, NULL, NULL));
}

static void send_dynamic(const void *tensor, uint64_t step)
{
	(void)step;
	must("sending", tow_dynamic_send(sender, &type, tensor, NULL, NULL));
}

static void send_rendezvous(const void *tensor, uint64_t step)
{
	must("sending", tow_rendezvous_put(sender, KEY, step, &type, tensor, 0, NULL, NULL));
}

static float receive_edge(uint64_t step)
{
	float most;
	void *data;

	(void)step;
	must("receiving", tow_edge_wait(receiver, WAIT_US, &data, NULL));
	most = largest(data);
	must("receiving", tow_edge_consumed(receiver));
	return most;
}

static float receive_rendezvous(uint64_t step)
{
	float most;
	void *data;

	must("receiving", tow_rendezvous_wait(receiver, KEY, step, WAIT_US, NULL, &data));
	most = largest(data);
	must("freeing", tow_arena_free(arena, data));
	return most;
}

struct kind {
	const char *name;
	void (*send)(const void *tensor, uint64_t step);
	float (*receive)(uint64_t step);
};

static const struct kind kinds[] = {
	{ "static", send_static, receive_edge },
	{ "copy", send_static, receive_edge },
	{ "dynamic", send_dynamic, receive_edge },
	{ "rendezvous", send_rendezvous, receive_rendezvous },
};

static void make_receiver(const struct kind *kind)
{
	if (kind->send == send_static)
		must("receiver", tow_static_receiver(worker, peer, "bench", &type, 1, &receiver));
	else if (kind->send == send_dynamic)
		must("receiver", tow_dynamic_receiver(worker, peer, "bench", 1, &receiver));
	else
		must("receiver", tow_rendezvous_receiver(worker, peer, "bench", 8, &receiver));
}

static void make_sender(const struct kind *kind)
{
	if (kind->send == send_static)
		must("sender", tow_static_sender(worker, peer, "bench", &type, &sender));
	else if (kind->send == send_dynamic)
		must("sender", tow_dynamic_sender(worker, peer, "bench", &sender));
	else
		must("sender", tow_rendezvous_sender(worker, peer, "bench", 8, &sender));
}

static void make_edges(const struct kind *kind)
{
	if (receives)
		make_receiver(kind);
	if (sends) {
		make_sender(kind);
		must("connecting", tow_edge_connect(sender, WAIT_MS));
	}
	if (receives)
		must("connecting", tow_edge_connect(receiver, WAIT_MS));
}

static const struct kind *kind_of(const char *name)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(name, kinds[i].name))
			return &kinds[i];
	return NULL;
}

static double cpu_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void step(const struct kind *kind, float *tensor, uint64_t number)
{
	if (tensor) {
		tensor[number % (uint64_t)type.dims[0]] = (float)number;
		kind->send(tensor, number);
	}
	if (receives && kind->receive(number) != (float)number)
		die("another tensor has come", -EBADMSG);
	if (tensor)
		finish();
}

/* Until the sender ends. */
static void __attribute__((noreturn)) serve(const struct kind *kind)
{
	for (uint64_t number = 1;; number++)
		step(kind, NULL, number);
}

static void measure(const struct kind *kind, float *tensor, uint64_t steps)
{
	double start = 0, cpu = 0;
	uint64_t copied = 0;

	for (uint64_t number = 1; number <= WARM + steps; number++) {
		step(kind, tensor, number);
		if (number == WARM) {
			start = now_us();
			cpu = cpu_us();
			copied = tow_worker_copied(worker);
		}
	}
	printf("us_per_step %.1f cpu_us_per_step %.1f copied_bytes %.0f\n",
	       (now_us() - start) / (double)steps, (cpu_us() - cpu) / (double)steps,
	       (double)(tow_worker_copied(worker) - copied) / (double)steps);
}

static int usage(void)
{
	fputs("usage: tensor_edge -k static|copy|dynamic|rendezvous [-m both|send|serve] [-s BYTES]\n"
	      "	[-n STEPS] -a ADDRESS\n", stderr);
	return 2;
}

int main(int argc, char **argv)
{
	const struct kind *kind = NULL;
	unsigned long bytes = 1024, steps = 100;
	struct tow_peer_attr attr = { .size = sizeof(attr) };
	const char *address = NULL;
	float *tensor;
	int option;

	while ((option = getopt(argc, argv, "k:m:s:n:a:")) != -1) {
		if (option == 'k')
			kind = kind_of(optarg);
		else if (option == 'm' && !strcmp(optarg, "send"))
			receives = false;
		else if (option == 'm' && !strcmp(optarg, "serve"))
			sends = false;
		else if (option == 'm' && !strcmp(optarg, "both"))
			;
		else if (option == 'a')
			address = optarg;
		else if (option == 's')
			bytes = strtoul(optarg, NULL, 0);
		else if (option == 'n')
			steps = strtoul(optarg, NULL, 0);
		else
			return usage();
	}
	if (!kind || !address || bytes < 16 || !steps || steps > STEPS_MAX)
		return usage();
	type.dims[0] = (int64_t)(bytes / sizeof(float));
	must("device", tow_device_open(NULL, 0, &dev));
	must("arena", tow_arena_create(dev, NULL, &arena));
	must("worker", tow_worker_create(dev, arena, NULL, &worker));
	must("peer", tow_peer_connect(dev, address, &attr, WAIT_MS, &peer));
	make_edges(kind);
	if (!sends)
		serve(kind);
	tensor = strcmp(kind->name, "copy") ? tow_arena_alloc(arena, bytes) : malloc(bytes);
	if (!tensor)
		die("no memory", -ENOMEM);
	memset(tensor, 0, bytes);
	measure(kind, tensor, steps);
	tow_edge_close(sender);
	tow_edge_close(receiver);
	tow_worker_destroy(worker);
	tow_peer_release(peer);
	tow_arena_destroy(arena);
	tow_device_close(dev);
	return 0;
}
