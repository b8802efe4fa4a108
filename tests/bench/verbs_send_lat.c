// SPDX-License-Identifier: GPL-2.0
/*
 * How long a small message takes from process to process where both sleep until
 * it is there, through libibverbs and librdmacm: half a round trip; the median,
 * the 99th percentile and the mean in microseconds.
 *
 * What ib_send_lat -e measures.  That hangs between two nodes with soft-RoCE of
 * 6.12; here the completion queue is looked at again once it is armed, as
 * ibv_get_cq_event(3) has it.
 *
 * Without an address it is the other end, which serves one client.
 */
/* build: link -lrdmacm -libverbs */
#include <getopt.h>
#include <unistd.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include "sample.h"
#include "work.h"

#define PORT		"18517"
#define MOST_BYTES	4096UL
/* For the other end to listen. */
#define TRIES		50
#define AGAIN_US	100000

struct options {
	const char *address;
	uint32_t bytes, count;
};

struct end {
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	char *in, *out;
	size_t bytes;
};

static void check(const char *what, int ret)
{
	if (ret < 0)
		die(what, errno);
}

static struct rdma_cm_id *make_id(const struct options *options)
{
	struct rdma_addrinfo hints = {
		.ai_port_space = RDMA_PS_TCP, .ai_flags = options->address ? 0 : RAI_PASSIVE,
	};
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 1, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC, .sq_sig_all = 1,
	};
	struct rdma_addrinfo *found;
	struct rdma_cm_id *id;

	check("rdma_getaddrinfo", rdma_getaddrinfo(options->address, PORT, &hints, &found));
	check("rdma_create_ep", rdma_create_ep(&id, found, NULL, &attr));
	rdma_freeaddrinfo(found);
	return id;
}

static void expect(struct end *end)
{
	check("rdma_post_recv", rdma_post_recv(end->id, NULL, end->in, end->bytes, end->mr));
}

static void prepare(struct end *end, struct rdma_cm_id *id, size_t bytes)
{
	end->id = id;
	end->bytes = bytes;
	end->in = aligned_alloc(MOST_BYTES, 2 * MOST_BYTES);
	if (!end->in)
		die("memory", ENOMEM);
	memset(end->in, 0, 2 * MOST_BYTES);
	end->out = end->in + MOST_BYTES;
	end->mr = rdma_reg_msgs(id, end->in, 2 * MOST_BYTES);
	if (!end->mr)
		die("rdma_reg_msgs", errno);
	expect(end);
}

static void completed(const char *what, int found, const struct ibv_wc *wc)
{
	check(what, found);
	if (found != 1 || wc->status != IBV_WC_SUCCESS)
		die(what, EIO);
}

/* Sleeps until a message is there; room for the next one is made before it is answered. */
static void await_message(struct end *end)
{
	struct ibv_wc wc;

	completed("message", rdma_get_recv_comp(end->id, &wc), &wc);
	expect(end);
}

static void send_message(struct end *end)
{
	check("rdma_post_send",
	      rdma_post_send(end->id, NULL, end->out, end->bytes, end->mr, 0));
}

static void message_sent(struct end *end)
{
	struct ibv_wc wc;

	completed("sending", rdma_get_send_comp(end->id, &wc), &wc);
}

static void serve(const struct options *options)
{
	struct rdma_cm_id *listener = make_id(options), *id;
	struct end end;

	check("rdma_listen", rdma_listen(listener, 1));
	check("rdma_get_request", rdma_get_request(listener, &id));
	prepare(&end, id, options->bytes);
	check("rdma_accept", rdma_accept(id, NULL));
	for (uint32_t i = 0; i < options->count; i++) {
		await_message(&end);
		send_message(&end);
		message_sent(&end);
	}
	/* Until the other end has all of it, and leaves. */
	rdma_disconnect(id);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
}

/* The other end may not listen yet. */
static void meet(struct end *end, const struct options *options)
{
	for (int tries = 0;; tries++) {
		struct rdma_cm_id *id = make_id(options);

		prepare(end, id, options->bytes);
		if (!rdma_connect(id, NULL))
			return;
		if (errno != ECONNREFUSED || tries == TRIES)
			die("rdma_connect", errno);
		rdma_dereg_mr(end->mr);
		free(end->in);
		rdma_destroy_ep(id);
		usleep(AGAIN_US);
	}
}

static void measure(const struct options *options)
{
	double *sample = calloc(options->count, sizeof(*sample));
	struct end end;

	if (!sample)
		die("memory", ENOMEM);
	meet(&end, options);
	for (uint32_t i = 0; i < options->count; i++) {
		double before = now_us();

		send_message(&end);
		await_message(&end);
		sample[i] = (now_us() - before) / 2;
		message_sent(&end);
	}
	rdma_disconnect(end.id);
	rdma_destroy_ep(end.id);
	report(sample, options->count);
	free(sample);
}

int main(int argc, char **argv)
{
	struct options options = { .bytes = 8, .count = 1000 };
	bool valid = true;
	int option;

	while ((option = getopt(argc, argv, "s:n:")) != -1) {
		switch (option) {
		case 's':
			valid = valid && work_number(optarg, 1, MOST_BYTES, &options.bytes);
			break;
		case 'n':
			valid = valid && work_number(optarg, 1, 10000000, &options.count);
			break;
		default:
			valid = false;
		}
	}
	if (!valid || argc > optind + 1) {
		fputs("usage: verbs_send_lat [-s BYTES] [-n COUNT] [ADDRESS]\n", stderr);
		return 2;
	}
	options.address = argv[optind];
	if (options.address)
		measure(&options);
	else
		serve(&options);
	return 0;
}
